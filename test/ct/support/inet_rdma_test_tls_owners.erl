%% The parties of streams that began inside TLS, and the ends that they can come to. Runs in the
%% nodes under test.
-module(inet_rdma_test_tls_owners).

-export([
    all/0,
    tcp_ports/0,
    kill/0,
    connect_and_forget/2,
    forget/1,
    remember/1,
    accept_and_drop/1,
    listeners/0
]).

%% The TLS owners of streams, and the processes that are on the way to be one.
-spec all() -> [pid()].
all() ->
    [
        Pid
     || Pid <- processes(),
        {initial_call, Call} <- [process_info(Pid, initial_call)],
        lists:member(Call, [
            {inet_rdma_tls_owner, do_connect, 6},
            {inet_rdma_tls_stream_listener, arrive, 3}
        ])
    ].

-spec tcp_ports() -> non_neg_integer().
tcp_ports() ->
    length([Port || Port <- erlang:ports(), erlang:port_info(Port, name) =:= {name, "tcp_inet"}]).

-spec kill() -> ok.
kill() ->
    _ = [exit(Pid, kill) || Pid <- all()],
    ok.

%% The owner of a connected socket, which lives, and forgets the socket when it is told to.
-spec connect_and_forget(inet:port_number(), [term()]) -> pid().
connect_and_forget(Port, Options) ->
    Caller = self(),
    Pid = spawn(fun() ->
        {ok, Socket} = inet_rdma:connect("localhost", Port, Options),
        Caller ! {self(), connected},
        receive
            forget -> true = is_tuple(Socket)
        end,
        erlang:hibernate(?MODULE, remember, [nothing])
    end),
    receive
        {Pid, connected} -> Pid
    end.

remember(nothing) ->
    receive
        stop -> ok
    end.

-spec forget(pid()) -> ok.
forget(Owner) ->
    Owner ! forget,
    ok.

%% Waits in a process that is not the listener's owner. What was accepted ends with that process.
-spec accept_and_drop(inet_rdma:listener()) ->
    {accepted, {ok, inet_rdma:socket()} | {error, inet_rdma:reason()}}.
accept_and_drop(Listener) -> {accepted, inet_rdma:accept(Listener)}.

%% The processes of listeners of streams that begin inside TLS.
-spec listeners() -> [pid()].
listeners() ->
    [
        Pid
     || Pid <- processes(), {inet_rdma_tls_stream_listener, _, _} <- [proc_lib:initial_call(Pid)]
    ].
