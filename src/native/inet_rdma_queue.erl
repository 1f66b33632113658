%% A queue pair that carries a session, under the session's port.
-module(inet_rdma_queue).

-behaviour(inet_rdma_settlement_path).

-export([config/1, open/5, close/1, move/1, fabric/1, keys/1, ended/1, release/1]).
-export_type([t/0]).

%% A map, as a guard keeps it while this module may be loaded anew.
-type t() :: #{port := port(), native := inet_rdma_nif:link(), fabric := binary(), is_encrypted := boolean()}.

%% The options for the queue pair of a link. It has no landing buffers: the VM copies the fragments of a large message
%% when it joins them, wherever they lie.
-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

%% Gives the port the queue pair of an attempt. No byte goes over it yet. Path: the number of the queue pair in its
%% session. waiting: the outcome of the attempt is not there yet.
-spec open({port(), Path :: pos_integer()}, inet_rdma_nif:attempt(), Node :: binary(), inet_rdma_options:config(),
           inet_rdma_nif:protection()) ->
          {ok, t(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open({Port, Path}, Attempt, Node, Config, Protection) ->
    case inet_rdma_nif:link(Attempt, Node, Config, Protection) of
        {ok, Native, Id, Fabric, Why} ->
            case inet_rdma_port:command(Port, carry, <<Id:64/native, Path:64/native>>) of
                {ok, _} ->
                    {ok, #{port => Port, native => Native, fabric => Fabric, is_encrypted => Protection =/= none},
                     Why};
                {error, closed} ->
                    {error, closed}
            end;
        Other ->
            Other
    end.

%% Gives up the queue pair; the session's port stays.
-spec close(t()) -> ok.
close(#{port := Port}) ->
    _ = inet_rdma_port:command(Port, drop),
    ok.

%% Makes this side send over the queue pair from now on. If the port is not started yet, both sides begin on it. gone:
%% the peer has closed it.
-spec move(t()) -> ok | gone.
move(#{port := Port}) ->
    case inet_rdma_port:command(Port, move) of
        {ok, _} -> ok;
        {error, closed} -> gone
    end.

-spec fabric(t()) -> binary().
fabric(#{fabric := Fabric}) -> Fabric.

-spec keys(t()) -> inet_rdma_keys:t().
keys(#{native := Native, is_encrypted := IsEncrypted}) -> inet_rdma_keys:new({link, Native}, IsEncrypted).

%% The reason for which the queue pair's connection has ended, as a term and in words, and whether it is an ordinary
%% reason, which is not logged.
-spec ended(t()) -> inet_rdma_link_log:ending().
ended(Queue) ->
    Reason = reason(Queue),
    {Reason, why(Reason), lists:member(Reason, [closed, peer_gone, unknown])}.

%% The queue pair carries the link no more: it ends when the port has dropped it, even if a process that sleeps still
%% has this term.
-spec release(t()) -> ok.
release(#{native := Native}) ->
    try inet_rdma_nif:release_link(Native)
    catch
        %% inet_rdma_nif was loaded anew.
        error:_ -> ok
    end.

%% unknown: the connection is still up, or inet_rdma_nif was loaded anew, and the old term is not valid any more.
reason(#{native := Native}) ->
    try inet_rdma_nif:link_end(Native) of
        up -> unknown;
        Reason -> Reason
    catch
        error:badarg -> unknown
    end.

why(unknown) -> <<"its port was closed">>;
why(Reason) -> inet_rdma_text:reason(Reason).
