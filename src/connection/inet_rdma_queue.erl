%% A queue pair that carries a session, under the session's port.
-module(inet_rdma_queue).

-behaviour(inet_rdma_settlement_queue).

-export([config/1, open/5, close/1, begin_on/1, move/2, fabric/1, ended/1, release/1]).
-export_type([t/0]).

%% A map, as a guard keeps it while this module may be loaded again.
-type t() :: #{port := port(), native := inet_rdma_nif:link(), fabric := binary()}.

%% The options for the queue pair of a link. It has no landing buffers: the VM copies the fragments
%% of a large message when it joins them, wherever they lie.
-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

%% Gives the port the queue pair of an attempt. No byte goes over it yet. Number: that of the queue
%% pair in its session. waiting: the outcome of the attempt is not there yet.
-spec open(
    {port(), Number :: pos_integer()},
    inet_rdma_nif:attempt(),
    Node :: binary(),
    inet_rdma_options:config(),
    inet_rdma_nif:protection()
) ->
    {ok, t(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open({Port, Number}, Attempt, Node, Config, Protection) ->
    case inet_rdma_nif:link(Attempt, Node, Config, Protection) of
        {ok, Native, Id, Fabric, Why} ->
            case inet_rdma_port:command(Port, attach_queue, <<Id:64/native, Number:64/native>>) of
                {ok, _} ->
                    {ok, #{port => Port, native => Native, fabric => Fabric}, Why};
                {error, closed} ->
                    {error, closed}
            end;
        Other ->
            Other
    end.

%% Gives up the queue pair; the session's port stays.
-spec close(t()) -> ok.
close(#{port := Port}) ->
    _ = inet_rdma_port:command(Port, drop_queue),
    ok.

%% Both sides begin on the queue pair: the port is not started yet.
-spec begin_on(t()) -> ok.
begin_on(#{port := Port}) ->
    _ = inet_rdma_port:command(Port, begin_on_queue),
    ok.

%% Makes this side send over the queue pair from now on. changed: the standing has another number
%% than this one, and the guard has the port's notice of it to come. gone: the peer has closed the
%% queue pair.
-spec move(t(), Number :: non_neg_integer()) -> ok | changed | gone.
move(#{port := Port}, Number) ->
    case inet_rdma_port:command(Port, move, <<Number:64/native>>) of
        {ok, <<1>>} -> ok;
        {ok, <<>>} -> changed;
        {error, closed} -> gone
    end.

-spec fabric(t()) -> binary().
fabric(#{fabric := Fabric}) -> Fabric.

%% The reason for which the queue pair's connection has ended, as a term and in words, and whether
%% it is an ordinary reason, which is not logged.
-spec ended(t()) -> inet_rdma_link_log:ending().
ended(Queue) ->
    Reason = reason(Queue),
    {Reason, why(Reason), lists:member(Reason, [closed, peer_gone, unknown])}.

%% The queue pair no longer carries the link: it ends when the port has dropped it, even if a
%% process that sleeps still has this term.
-spec release(t()) -> ok.
release(#{native := Native}) ->
    try
        inet_rdma_nif:release_link(Native)
    catch
        %% inet_rdma_nif was loaded again.
        error:_ -> ok
    end.

%% unknown: the connection is still up, or inet_rdma_nif was loaded again, and the old term is no
%% longer valid.
reason(#{native := Native}) ->
    try inet_rdma_nif:link_end(Native) of
        up -> unknown;
        Reason -> Reason
    catch
        error:badarg -> unknown
    end.

why(unknown) -> <<"its port was closed">>;
why(Reason) -> inet_rdma_text:reason(Reason).
