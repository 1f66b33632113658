%% What happens to links, for those that watch them: the metadata of log events, and events of the library telemetry.
%%
%% Both have the same map. docs/MONITORING.md lists the events.
-module(inet_rdma_link_event).

-export([new/4, new/5, metadata/1, tell/2]).
-export_type([t/0, kind/0]).

%% up: over RDMA. fallback: over TCP or TLS. stalled: over RDMA, senders wait, and the peer takes nothing. resumed: it takes bytes
%% again. down: a link over RDMA has ended. refused: the option required forbids TCP. failed: the settlement failed. The last two
%% never came up.
-type kind() :: up | fallback | stalled | resumed | down | refused | failed.

%% why: in words. reason: of an end, as a term.
-type t() :: #{event := kind(), node := node(), fabric := shm | verbs | tcp | tls | undefined, why := binary(),
               reason => inet_rdma:reason() | unknown}.

%% No fabric where there is no link.
-spec new(kind(), Node :: binary(), Fabric :: binary() | undefined, Why :: binary()) -> t().
new(Kind, Node, undefined, Why) ->
    #{event => Kind, node => binary_to_atom(Node), fabric => undefined, why => Why};
new(Kind, Node, Fabric, Why) ->
    #{event => Kind, node => binary_to_atom(Node), fabric => binary_to_atom(Fabric), why => Why}.

-spec new(kind(), Node :: binary(), Fabric :: binary(), Why :: binary(), inet_rdma:reason() | unknown) -> t().
new(Kind, Node, Fabric, Why, Reason) ->
    (new(Kind, Node, Fabric, Why))#{reason => Reason}.

%% Reasons have a key of their own, which log events of streams have, too.
-spec metadata(t()) -> logger:metadata().
metadata(#{reason := Reason} = Event) ->
    #{inet_rdma => maps:remove(reason, Event), inet_rdma_reason => Reason};
metadata(Event) ->
    #{inet_rdma => Event}.

%% Executes [inet_rdma, link, Kind] if telemetry is loaded: without it no handler can be attached. In a process of its own, as
%% handlers run in the process that executes: one that waits for the peer would wait for the link that waits for it.
-spec tell(t(), Measurements :: #{atom() => integer()}) -> ok.
tell(#{event := Kind} = Event, Measurements) ->
    _ = erlang:function_exported(telemetry, execute, 3) andalso
        spawn(library(), execute, [[inet_rdma, link, Kind], Measurements#{system_time => erlang:system_time()}, Event]),
    ok.

%% Dialyzer and xref see no call of a module that they do not know: it is another application's, which may be absent.
-spec library() -> module().
library() ->
    list_to_atom("telemetry").
