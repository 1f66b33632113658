%% The settlement: two connection supervisors decide over the connection on which their link began how it is carried.
%%
%% It runs after both have proved the cookie and before the VM knows the link, if both made an offer (inet_rdma_offer) of the
%% same version. Each message is an external term, not compressed, in a packet with a length of two bytes:
%%
%%     both        {hello, Facts}                       at once; the acceptor's may say where it listens over shm
%%     initiator   {try, Fabric}                        the next way that both could go; not shm if the hello says where
%%     acceptor    {listens, Port, Token, Addresses}    its listener takes only the peer with the token
%%     initiator   {failed, Fabric, Why}                it could not connect
%%     acceptor    {ready}                              its queue pair is up
%%     acceptor    {failed, Fabric, Why}                it could not listen or accept, or the initiator could not connect
%%     initiator   {go}                                 both queue pairs are up: the link moves, from here on
%%     initiator   {stay, Why}                          no way is left: the link stays on TCP
%%     acceptor    {stayed}                             it has heard that; packets of the distribution may come
%%
%% The initiator decides. It tries each fabric once. To each `try` the acceptor gives one verdict, `ready` or `failed`; to
%% `failed` the initiator tries the next way. A failure before `go` costs the link nothing, as long as both sides know which
%% message comes next. A side that gets no message in time, or one of the wrong kind, does not know that: further messages of
%% the peer would be read as packets of the distribution. Its link ends, and the next one to that peer stays on TCP without
%% a settlement, for the time of the option fallback_retry_ms. An initiator sends `stay` before that: if the acceptor
%% acknowledges, both sides know the next message again.
%%
%% A stream that begins inside TLS (inet_rdma_stream) is settled by the same messages, without an offer: the hellos have
%% the version. It never stays: with no way left it is refused, on both sides.
%%
%% The smaller connect_timeout_ms of both bounds the whole. The connection is passive whenever a message may be the last one
%% of the settlement: the bytes behind it belong to the VM.
-module(inet_rdma_settlement).

-export([settle/6, settle_stream/3]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [tell/2, hear/2, now_ms/0, text/2]).
-import(inet_rdma_settlement_outcome, [stay/4, break_off/2, broken_off/1]).

%% Of the settlement of streams.
-define(STREAM_VERSION, 1).
%% An acceptor waits that much longer than the initiator may take, so that it hears the decision.
-define(GRACE_MS, 1000).

%% Own: this node's offer to the peer. Peer: that of the peer.
-spec settle(initiator | acceptor, inet_rdma_bootstrap:t(), Node :: binary(), inet_rdma_options:config(), Own :: inet_rdma_offer:offer(),
             Peer :: inet_rdma_offer:offer()) -> inet_rdma_settlement_outcome:t().
settle(_Role, _Connection, _Node, Config, _Own, none) ->
    stay(<<"the peer makes no offer: it does not run inet_rdma">>, Config, #{}, []);
settle(_Role, _Connection, _Node, Config, #{version := Ours}, #{version := Theirs} = Peer) when Ours =/= Theirs ->
    stay(text("the peer's settlement has version ~b, this node's ~b", [Theirs, Ours]), Config, Peer, []);
settle(_Role, _Connection, Node, Config, #{settles := false}, Peer) ->
    stay(text("the settlement with it ~ts", [broken_off_lately(broken_off(Node))]), Config, Peer, []);
settle(_Role, _Connection, _Node, Config, _Own, #{settles := false} = Peer) ->
    stay(<<"the peer does not settle: a settlement of it with this node broke off lately">>, Config, Peer, []);
settle(Role, Connection, Node, Config, _Own, Peer) ->
    settle(Role, Connection, Node, Config, Peer).

broken_off_lately(none) -> <<"broke off lately">>;
broken_off_lately({Why, LeftMs}) ->
    text("broke off lately and is tried again in ~b s: ~ts", [LeftMs div 1000 + 1, Why]).

settle(Role, Connection, Node, Config, Offer) ->
    Facts = facts(Config, inet_rdma_bootstrap:protocol(Connection)),
    settle(#settling{role = Role, connection = Connection, node = Node, config = Config, own = Facts, peer = Offer,
                     deadline = 0}).

%% A stream over a connection inside TLS. refuse: no way is left.
-spec settle_stream(initiator | acceptor, inet_rdma_bootstrap:t(), inet_rdma_options:config()) ->
          {move, inet_rdma_stream:stream(), Why :: binary()} | {refuse | error, Why :: binary()}.
settle_stream(Role, Connection, Options) ->
    Config = Options#{required := true},
    Facts = facts(Config, tls),
    settle(#settling{role = Role, connection = Connection, module = inet_rdma_stream, node = none, config = Config,
                     own = Facts#{stream => ?STREAM_VERSION}, deadline = 0}).

settle(#settling{role = Role, config = #{connect_timeout_ms := BoundMs}} = Undated) ->
    Started = now_ms(),
    Settling = Undated#settling{deadline = Started + BoundMs + grace_ms(Role)},
    try
        ok = inet_rdma_settlement_message:passive(Settling),
        run(Role, Settling, Started)
    catch
        throw:closed ->
            {error, <<"the peer closed the connection in the middle of the settlement">>};
        throw:{broken, Why} when Role =:= initiator ->
            inet_rdma_settlement_initiator:give_up(Settling, Why);
        throw:{broken, Why} ->
            break_off(Settling, Why)
    end.

grace_ms(initiator) -> 0;
grace_ms(acceptor) -> ?GRACE_MS.

run(initiator, #settling{own = Own} = Settling, Started) ->
    inet_rdma_settlement_initiator:run(greet(initiator, Settling, Own, Started));
run(acceptor, #settling{own = Own} = Settling, Started) ->
    inet_rdma_settlement_acceptor:run(Settling, Own, fun(Facts) -> greet(acceptor, Settling, Facts, Started) end).

greet(Role, #settling{config = #{connect_timeout_ms := BoundMs}} = Settling, Facts, Started) ->
    ok = tell(Settling, {hello, Facts}),
    {hello, Peer} = hear(Settling, [hello]),
    ok = same_version(Facts, Peer),
    SharedMs = min(BoundMs, maps:get(timeout_ms, Peer)),
    Settling#settling{peer = Peer, deadline = Started + SharedMs + grace_ms(Role)}.

%% Of links the offers have told it.
same_version(#{stream := Ours}, #{stream := Ours}) -> ok;
same_version(#{stream := _}, _Peer) ->
    inet_rdma_settlement_message:broken(<<"the peer settles streams by another version">>);
same_version(_Facts, _Peer) -> ok.

%% The facts from which the peer sees the possible ways. Only a peer that has proved the cookie gets them.
facts(Config, tcp) ->
    facts(Config);
facts(#{encrypt_shm := EncryptShm} = Config, tls) ->
    Facts = facts(Config),
    Facts#{encrypt_shm => EncryptShm, cipher => cipher(Facts)}.

facts(#{fabric := Fabric, required := Required, connect_timeout_ms := BoundMs}) ->
    Facts = #{fabric => Fabric, required => Required, timeout_ms => BoundMs},
    case inet_rdma_nif:load() of
        ok -> maps:merge(inet_rdma_nif:identity(), Facts);
        {error, _} -> Facts#{fabric := none, boot => <<>>, netns => 0, user => 0, instance => 0}
    end.

%% That this processor does faster.
cipher(#{fabric := none}) -> none;
cipher(#{}) -> inet_rdma_nif:cipher().
