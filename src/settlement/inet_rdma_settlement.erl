%% The settlement: over the connection on which their link began, two nodes agree which path carries
%% the link. One of them, the initiator, decides; its part is in this module. The acceptor's part is
%% inet_rdma_settlement_acceptor.
%%
%% It runs if both nodes made an offer (inet_rdma_offer) of the same version: after both have proved
%% the cookie and before the VM knows the link, or later, between the guards of a session.
%% docs/PROTOCOL.md lists the messages.
%%
%% A failure before `go` costs the link nothing, as long as both sides know which message comes
%% next. A side that gets no message in time, or a message of the wrong kind, does not know that,
%% and could take further messages of the peer for packets of the distribution: its link ends. An
%% initiator sends `stay` before that: if the acceptor acknowledges, both sides know the next
%% message again.
%%
%% A stream that begins inside TLS (inet_rdma_tls_stream) is settled by the same messages, without
%% an offer: the hellos have the version. A stream never stays on its TLS connection: with no path
%% left both sides refuse it.
%%
%% The connection is passive whenever a message may be the last one of the settlement: the bytes
%% after it belong to the VM.
-module(inet_rdma_settlement).

-export([settle/7, settle_in_band/3, settle_stream/3]).
-export([up/0, await_up/2]).
-export_type([outcome/0]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_clock, [now_ms/0]).
-import(inet_rdma_settlement_message, [tell/2, hear/2, next/1, parse/3, with_key/2, without_key/3]).
-import(inet_rdma_settlement_message, [greet/2, cut/1, broken/1]).
-import(inet_rdma_settlement_queue, [key/1, keys/3]).
-import(inet_rdma_text, [text/2]).

%% The version of the settlement of streams.
-define(STREAM_VERSION, 1).
%% An acceptor waits this much longer than the initiator may take, so that it receives the decision.
%% An initiator that has given up waits at least this long for the acceptor's acknowledgement.
-define(GRACE_MS, 1000).

-type outcome() ::
    %% The queue pair is up on both sides.
    {move, inet_rdma_settlement_queue:opened(), Why :: binary()}
    %% The link stays on the connection on which it began. Tried: the fabrics that both nodes allow,
    %% and that failed.
    | {stay, Why :: binary(), Tried :: [inet_rdma_options:link_fabric()]}
    %% No path is left, and staying is not allowed: one of the nodes has the option required, or
    %% this is a stream.
    | {refuse, Why :: binary()}
    %% The settlement broke off, or the peer is gone: nothing must be sent over the connection from
    %% now on.
    | {error, Why :: binary()}.

%% Own: this node's offer to the peer. Peer: the peer's offer. Port: of the link's session, which
%% gets the queue pair. Lacks: why the link has no session; the two nodes agree that it stays, or
%% refuse it.
-spec settle(
    initiator | acceptor,
    inet_rdma_transport:t(),
    Node :: binary(),
    inet_rdma_options:config(),
    Own :: inet_rdma_offer:offer(),
    Peer :: inet_rdma_offer:offer(),
    port() | (Lacks :: binary())
) ->
    outcome().
settle(Role, Connection, Node, Config, Own, Peer, Port) ->
    case inet_rdma_settlement_policy:compare(Node, Config, Own, Peer) of
        settle ->
            Settling = settling(Role, {inet_rdma_transport, Connection}, Node, Config),
            settle(of_session(Settling#settling{peer = Peer}, Port));
        Outcome ->
            Outcome
    end.

%% The message `up`: the same bytes whatever the OTP.
-spec up() -> binary().
up() -> <<"up">>.

-spec await_up(inet_rdma_transport:t(), timeout()) -> ok | {error, term()}.
await_up(Connection, TimeoutMs) ->
    _ = inet_rdma_transport:passive(Connection),
    Up = up(),
    case inet_rdma_transport:recv_message(Connection, TimeoutMs) of
        {ok, Up} -> ok;
        {ok, _} -> {error, protocol};
        Error -> Error
    end.

%% Settles a link that is up, by messages in band of its session. An outcome other than move does
%% not change the link.
-spec settle_in_band(inet_rdma_session:t(), Node :: binary(), inet_rdma_options:config()) ->
    outcome().
settle_in_band(Session, Node, Config) ->
    Settling = settling(
        inet_rdma_session:role(Session), {inet_rdma_session, Session}, Node, Config
    ),
    settle(of_session(Settling, inet_rdma_session:port(Session))).

%% Settles a stream over a connection inside TLS. refuse: no path is left.
-spec settle_stream(initiator | acceptor, inet_rdma_transport:t(), inet_rdma_options:config()) ->
    {move, inet_rdma_nif:conn(), Why :: binary()} | {refuse | error, Why :: binary()}.
settle_stream(Role, Connection, Options) ->
    Settling = settling(Role, {inet_rdma_transport, Connection}, none, Options#{required := true}),
    #settling{own = Facts} = Settling,
    settle(Settling#settling{module = inet_rdma_tls_stream, own = Facts#{stream => ?STREAM_VERSION}}).

settling(Role, {Module, Channel}, Node, Config) ->
    Facts = inet_rdma_settlement_policy:facts(Config, Module:protocol(Channel)),
    #settling{
        role = Role,
        channel = {Module, Channel},
        node = Node,
        config = Config,
        own = Facts,
        deadline = 0
    }.

%% The initiator gives the queue pair of a session its name.
of_session(Settling, Lacks) when is_binary(Lacks) ->
    Settling#settling{lacks = Lacks};
of_session(#settling{role = initiator, own = Own} = Settling, Port) ->
    Settling#settling{session_port = Port, own = Own#{path => inet_rdma_nif:token()}};
of_session(Settling, Port) ->
    Settling#settling{session_port = Port}.

settle(#settling{role = Role, config = #{connect_timeout_ms := BoundMs}} = Undated) ->
    Settling = Undated#settling{deadline = now_ms() + BoundMs + grace_ms(Role)},
    try
        ok = inet_rdma_settlement_message:passive(Settling),
        run(Role, Settling)
    catch
        throw:closed ->
            {error, <<"the peer closed the connection in the middle of the settlement">>};
        throw:{broken, Why} when Role =:= initiator ->
            give_up(Settling, Why);
        throw:{broken, Why} ->
            inet_rdma_settlement_policy:break_off(Settling, Why);
        %% Keys are among the arguments.
        error:Reason:Stack ->
            inet_rdma_crash:raise(error, Reason, Stack)
    end.

grace_ms(initiator) -> 0;
grace_ms(acceptor) -> ?GRACE_MS.

run(initiator, #settling{own = Own, config = Config} = Settling) ->
    #settling{peer = Peer} = Greeted = greet(Settling, Own),
    initiate(
        Greeted#settling{reach = inet_rdma_neighbours:reach(Config, Own, Peer)}, paths(Settling), []
    );
run(acceptor, Settling) ->
    inet_rdma_settlement_acceptor:run(Settling).

%% Links skip the fabric tcp: they stay on their TCP connection.
paths(#settling{node = none}) -> inet_rdma_options:fabrics(stream);
paths(_Link) -> inet_rdma_options:fabrics(link).

%% The initiator tries the paths in turn. Whys: why each earlier path failed, last first.
initiate(Settling, [Fabric | Fabrics], Whys) ->
    case inet_rdma_settlement_policy:obstacle(Fabric, Settling) of
        none -> try_path(Settling, Fabric, Fabrics, Whys);
        Why -> initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end;
initiate(Settling, [], Whys) ->
    stay(Settling, joined(Whys)).

try_path(Before, Fabric, Fabrics, Whys) ->
    Settling = inet_rdma_settlement_policy:tried(Before, Fabric),
    case unbroken(Settling, Fabric) of
        {broken, Why} ->
            give_up(Settling, Why);
        {ok, Opened, Why, Go} ->
            ok = tell(Settling, Go),
            {move, Opened, joined([Why | Whys])};
        {failed, Why} ->
            ok = inet_rdma_settlement_policy:failed(Settling, Fabric, Why),
            initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end.

unbroken(Settling, Fabric) ->
    try
        attempt(Settling, Fabric)
    catch
        throw:{broken, Why} -> {broken, Why}
    end.

joined(Whys) -> iolist_to_binary(lists:join("; ", lists:reverse(Whys))).

%% Go: the message that tells the acceptor that the link moves.
attempt(#settling{peer = #{place := {Name, Token}} = Peer} = Settling, shm) ->
    %% The acceptor's queue pair and listener exist already.
    Key = key(Settling),
    Keyed = keys(Settling, Key, maps:get(place_key, Peer, none)),
    case inet_rdma_settlement_queue:connect_shm(Keyed, Name, Token) of
        {ok, Opened, Why} -> {ok, Opened, Why, with_key({go}, Key)};
        {failed, Why} -> verdict(Settling, shm, {failed, Why})
    end;
attempt(Settling, Fabric) ->
    Key = key(Settling),
    ok = tell(Settling, with_key({'try', Fabric}, Key)),
    case without_key(hear(Settling, [listens, failed]), listens, 4) of
        {{listens, Place, Token, Named}, Theirs} ->
            verdict(
                Settling, Fabric, connect(keys(Settling, Key, Theirs), Fabric, Place, Token, Named)
            );
        {{failed, _, Why}, none} ->
            {failed, Why}
    end.

connect(Settling, shm, Name, Token, []) when is_binary(Name) ->
    inet_rdma_settlement_queue:connect_shm(Settling, Name, Token);
connect(Settling, Fabric, Port, Token, Named) when is_integer(Port), Fabric =/= shm ->
    Addresses = inet_rdma_settlement_queue:by_preference(Settling, Named),
    inet_rdma_settlement_queue:connect(Settling, Fabric, Port, Token, Addresses);
connect(_Settling, _Fabric, _Place, _Token, _Named) ->
    broken(<<"the peer listens at a place of another fabric">>).

%% The acceptor knows better why a queue pair was refused.
verdict(Settling, _Fabric, {ok, Opened, Why}) ->
    try hear(Settling, [ready, failed]) of
        {ready} ->
            {ok, Opened, Why, {go}};
        {failed, _, Theirs} ->
            inet_rdma_settlement_queue:close(Settling, Opened),
            {failed, Theirs}
    catch
        throw:Reason ->
            inet_rdma_settlement_queue:close(Settling, Opened),
            throw(Reason)
    end;
verdict(Settling, Fabric, {failed, Why}) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    case hear(Settling, [ready, failed]) of
        {ready} -> {failed, Why};
        {failed, _, Theirs} -> {failed, Theirs}
    end.

%% The acceptor did not answer in time, or sent a wrong message. If it acknowledges `stay`, both
%% know the next message again. A stream has nothing to stay on.
-spec give_up(#settling{}, Why :: binary()) -> outcome().
give_up(#settling{node = none} = Settling, Why) ->
    try
        tell(Settling, {stay, cut(Why)})
    catch
        throw:_ -> ok
    end,
    inet_rdma_settlement_policy:break_off(Settling, Why);
give_up(Settling, Why) ->
    try
        stay(Settling, Why)
    catch
        throw:_ -> inet_rdma_settlement_policy:break_off(Settling, Why)
    end.

%% The initiator's decision. Messages that the acceptor sent before it received the decision are
%% dropped.
stay(#settling{deadline = Deadline} = Settling, Why) ->
    ok = tell(Settling, {stay, cut(Why)}),
    ok = await_stayed(Settling#settling{deadline = max(Deadline, now_ms() + ?GRACE_MS)}),
    inet_rdma_settlement_policy:stay(Settling, Why).

await_stayed(Settling) ->
    Bytes = next(Settling),
    try parse(Settling, Bytes, [stayed]) of
        {stayed} -> ok
    catch
        throw:{broken, _} -> await_stayed(Settling)
    end.
