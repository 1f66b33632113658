%% A listener of streams: at a port of the native side, or at a TCP port on which streams begin
%% inside TLS.
-module(inet_rdma_listener).

-export([listen/1, accept/2, close/1, sockname/1, port/1, settings/1]).
-export_type([t/0]).

-include_lib("kernel/include/logger.hrl").

%% Part of the error's words.
-define(HELD, <<" over shm is taken by ">>).

%% The user keeps this term, so it has no options of TLS, which may include keys and passwords.
-record(inet_rdma_listener, {
    listener :: {native, inet_rdma_nif:listener(), Id :: pos_integer()} | {tls, pid()},
    %% The settings of the sockets that are accepted.
    settings :: inet_rdma_socket:settings()
}).

-opaque t() :: #inet_rdma_listener{}.

-spec listen(inet_rdma_socket:settings()) -> {ok, t()} | {error, inet_rdma:reason()}.
listen({Port, Config, #{tls := none, ip := Ip} = SocketOptions}) ->
    case inet_rdma_connect:own_address(Ip) of
        {ok, Address} ->
            case inet_rdma_nif:listen(Address, Port, Port, Config, logger_process()) of
                {ok, Native, Id, Bound, Over} ->
                    ok = log_if_held(Over, Bound),
                    listening({native, Native, Id}, Bound, Config, SocketOptions);
                Error ->
                    Error
            end;
        Error ->
            Error
    end;
listen({Port, Config, SocketOptions}) ->
    case inet_rdma_tls_stream_listener:start(Port, SocketOptions, Config) of
        {ok, Pid, Bound} -> listening({tls, Pid}, Bound, Config, SocketOptions#{tls := none});
        Error -> Error
    end.

%% If another user has the port over shm, the log names that user, and what to do. Over: the fabrics
%% that are open, and why the others are not, in the words of their errors
%% (native/core/fabric/src/error.rs).
log_if_held(Over, Port) ->
    _ = [
        ?LOG_WARNING("inet_rdma: the listener of streams at port ~b is open over ~ts", [Port, Over])
     || binary:match(Over, ?HELD) =/= nomatch
    ],
    ok.

listening(Listener, Port, Config, SocketOptions) ->
    {ok, #inet_rdma_listener{listener = Listener, settings = {Port, Config, SocketOptions}}}.

%% The process that logs events of the runtime system and its native code. It is undefined only for
%% moments in which that process is overloaded and drops events.
logger_process() ->
    case erlang:system_info(system_logger) of
        Pid when is_pid(Pid) -> Pid;
        _ -> whereis(logger)
    end.

%% The caller owns the stream.
-spec accept(t(), inet_rdma_clock:deadline()) ->
    {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
accept(#inet_rdma_listener{listener = {tls, Pid}}, Deadline) ->
    inet_rdma_tls_stream_listener:accept(Pid, Deadline);
accept(#inet_rdma_listener{listener = {native, Native, Id}, settings = {_, Config, _}}, Deadline) ->
    accept(Native, Id, Config, Deadline).

accept(Native, Id, Config, Deadline) ->
    case inet_rdma_nif:accept(Native, Config) of
        empty ->
            receive
                {'$inet_rdma', Id, acceptable} -> accept(Native, Id, Config, Deadline)
            after inet_rdma_clock:left(Deadline) ->
                ok = inet_rdma_nif:stop_accepting(Native),
                inet_rdma_transfer:flush(Id, acceptable),
                {error, timeout}
            end;
        Result ->
            inet_rdma_transfer:flush(Id, acceptable),
            Result
    end.

-spec close(t()) -> ok.
close(#inet_rdma_listener{listener = {tls, Pid}}) ->
    inet_rdma_tls_stream_listener:close(Pid);
close(#inet_rdma_listener{listener = {native, Native, _Id}}) ->
    inet_rdma_nif:close_listener(Native).

-spec sockname(t()) -> {ok, inet_rdma:address()} | {error, inet_rdma:reason()}.
sockname(#inet_rdma_listener{listener = {tls, Pid}}) ->
    inet_rdma_tls_stream_listener:sockname(Pid);
sockname(#inet_rdma_listener{settings = {Port, #{fabric := Fabric}, _}}) when
    Fabric =:= auto; Fabric =:= shm
->
    {ok, {shm, Port}};
sockname(#inet_rdma_listener{settings = {Port, #{fabric := Fabric}, #{ip := Ip}}}) ->
    {ok,
        {Fabric,
            case Ip of
                any -> {0, 0, 0, 0};
                _ -> Ip
            end, Port}}.

-spec port(t()) -> inet:port_number().
port(#inet_rdma_listener{settings = {Port, _, _}}) -> Port.

%% The arguments with which inet_rdma_socket:open/4 opens an accepted socket.
-spec settings(t()) -> inet_rdma_socket:settings().
settings(#inet_rdma_listener{settings = Settings}) -> Settings.
