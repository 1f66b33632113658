%% The policy of the settlement: which fabrics may be tried, which failures are remembered, and
%% whether a link that no queue pair carries stays or is refused. It sends and opens nothing.
%%
%% A *target* is one fabric to one peer. The table of inet_rdma_links remembers failures for the
%% option fallback_retry_ms, under
%%
%%     {Node, Instance, Fabric}   a queue pair could not be made; a restarted peer has another instance, and is tried
%%     {Node, 0, Fabric}          a queue pair was lost under a link
%%     {Node, 0, settlement}      a settlement broke off, maybe before the peer had sent its instance
-module(inet_rdma_settlement_policy).

-export([compare/4, settles/3, facts/2, obstacle/2, allows/2, tried/2, seals/2, cipher/1]).
-export([failed/3, lost/4, stay/2, break_off/2]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [broken/1]).
-import(inet_rdma_text, [reason/1, text/2]).

%% tcp: of a stream.
-type fabric() :: inet_rdma_options:fabric().

%% Whether two offers lead to a settlement; otherwise the outcome without one.
-spec compare(
    Node :: binary(),
    inet_rdma_options:config(),
    Own :: inet_rdma_offer:offer(),
    Peer :: inet_rdma_offer:offer()
) ->
    settle | inet_rdma_settlement:outcome().
compare(_Node, Config, _Own, none) ->
    stay(<<"the peer makes no offer: it does not run inet_rdma">>, Config, #{}, []);
compare(_Node, Config, #{version := Ours}, #{version := Theirs} = Peer) when Ours =/= Theirs ->
    stay(
        text("the peer's settlement has version ~b, this node's ~b", [Theirs, Ours]),
        Config,
        Peer,
        []
    );
%% A link that may not stay on TCP has to settle even after a failure.
compare(
    Node, #{required := false} = Config, #{settles := false} = Own, #{required := false} = Peer
) ->
    stay(why_not_settled(Node, Own), Config, Peer, []);
compare(
    _Node,
    #{required := false} = Config,
    _Own,
    #{settles := false, session := none, required := false} = Peer
) ->
    stay(
        <<
            "the peer does not settle: a settlement of it with this node broke off lately, or it "
            "has no port or descriptor left; its log says why"
        >>,
        Config,
        Peer,
        []
    );
compare(_Node, #{required := false} = Config, _Own, #{settles := false, required := false} = Peer) ->
    stay(
        <<"the peer does not settle: a settlement of it with this node broke off lately">>,
        Config,
        Peer,
        []
    );
compare(_Node, _Config, _Own, _Peer) ->
    settle.

why_not_settled(_Node, #{lacks := Reason}) ->
    text("this node has no room for a session: ~ts", [reason(Reason)]);
why_not_settled(Node, _Own) ->
    text("the settlement with it ~ts", [broken_off_lately(broken_off(Node))]).

broken_off_lately(none) -> <<"broke off lately">>;
broken_off_lately({Why, LeftMs}) -> text("broke off lately and ~ts: ~ts", [again(LeftMs), Why]).

again(LeftMs) -> text("is tried again in ~b s", [LeftMs div 1000 + 1]).

%% Whether this node's offer says that it settles. A link that may not stay on TCP settles even
%% after a failure. Place: for a session; an error: there is no room for it, nor for a queue pair.
-spec settles(Node :: binary(), inet_rdma_options:config(), Place) -> boolean() when
    Place :: {ok, port() | none} | none | {error, inet_rdma:reason()}.
settles(_Node, #{required := true}, _Place) -> true;
settles(_Node, _Config, {error, _}) -> false;
settles(Node, _Config, _Place) -> broken_off(Node) =:= none.

%% The facts in this side's hello, from which the peer sees the possible paths. Only a peer that has
%% proved the cookie gets them.
-spec facts(inet_rdma_options:config(), tcp | tls) -> map().
facts(Config, tcp) ->
    facts(Config);
facts(#{encrypt_shm := EncryptShm} = Config, tls) ->
    Facts = facts(Config),
    Facts#{encrypt_shm => EncryptShm, cipher => faster_cipher(Facts)}.

facts(#{fabric := Fabric, required := Required, connect_timeout_ms := BoundMs} = Config) ->
    Facts = maps:merge(
        #{fabric => Fabric, required => Required, timeout_ms => BoundMs},
        maps:with([move], maps:filter(fun(_, Value) -> Value =:= never end, Config))
    ),
    case inet_rdma_nif:load() of
        ok ->
            {UserNamespace, Identity} = maps:take(userns, inet_rdma_nif:identity()),
            maps:merge(
                maps:merge(Identity, Facts), inet_rdma_neighbours:fact(Config, UserNamespace)
            );
        {error, _} ->
            Facts#{fabric := none, boot => <<>>, netns => 0, user => 0, instance => 0}
    end.

%% The cipher that this processor computes faster.
faster_cipher(#{fabric := none}) -> none;
faster_cipher(#{}) -> inet_rdma_nif:cipher().

%% The reason not to try a fabric, or none.
-spec obstacle(fabric(), #settling{}) -> none | Why :: binary().
obstacle(Fabric, #settling{node = none, own = Own, peer = Peer, reach = Reach}) ->
    obstacle(Fabric, Own, Peer, Reach);
obstacle(Fabric, #settling{own = Own, peer = Peer, reach = Reach, lacks = Lacks} = Settling) ->
    case {obstacle(Fabric, Own, Peer, Reach), Own, Peer} of
        {none, _, _} when Lacks =/= none -> Lacks;
        %% With the option required the link cannot stay on TCP, so a path that failed recently is
        %% tried at once.
        {none, #{required := true}, _} -> none;
        {none, _, #{required := true}} -> none;
        {none, _, _} -> recent_failure(failure(Settling, Fabric));
        {Why, _, _} -> Why
    end.

obstacle(_Fabric, #{fabric := none}, _Peer, _Reach) ->
    <<"the native library of this node could not be loaded, its log says why">>;
obstacle(_Fabric, _Own, #{fabric := none}, _Reach) ->
    <<"the native library of the peer could not be loaded, its log says why">>;
obstacle(_Fabric, #{move := never, required := false}, _Peer, _Reach) ->
    <<"the option move of this node is never">>;
obstacle(_Fabric, _Own, #{move := never, required := false}, _Reach) ->
    <<"the option move of the peer is never">>;
obstacle(Fabric, #{fabric := Own}, _Peer, _Reach) when Own =/= auto, Own =/= Fabric ->
    text("the option fabric of this node is ~ts", [Own]);
obstacle(Fabric, _Own, #{fabric := Theirs}, _Reach) when Theirs =/= auto, Theirs =/= Fabric ->
    text("the option fabric of the peer is ~ts", [Theirs]);
obstacle(shm, _Own, _Peer, Reach) ->
    case Reach of
        network -> none;
        {directory, {ok, _Name}} -> none;
        {directory, {error, Why}} -> text("the peer says: ~ts", [Why]);
        {directory, none} -> <<"the peer names no socket file">>;
        {none, Why} -> Why
    end;
obstacle(tcp, _Own, _Peer, _Reach) ->
    none;
obstacle(verbs, _Own, _Peer, _Reach) ->
    case inet_rdma_nif:check_verbs() of
        ok -> none;
        {error, Reason} -> reason(Reason)
    end.

failure(#settling{node = Node} = Settling, Fabric) ->
    case inet_rdma_links:failure(target(Settling, Fabric)) of
        none -> inet_rdma_links:failure({Node, 0, Fabric});
        Failure -> Failure
    end.

recent_failure(none) -> none;
recent_failure({Reason, LeftMs}) -> text("it failed lately and ~ts: ~ts", [again(LeftMs), Reason]).

target(#settling{node = Node, peer = #{instance := Instance}}, Fabric) -> {Node, Instance, Fabric}.

%% Whether the option fabric of this node allows it.
-spec allows(#settling{}, fabric()) -> boolean().
allows(#settling{node = Node}, tcp) when Node =/= none -> false;
allows(#settling{own = #{fabric := auto}}, _Fabric) -> true;
allows(#settling{own = #{fabric := Own}}, Fabric) -> Own =:= Fabric.

-spec tried(#settling{}, fabric()) -> #settling{}.
tried(#settling{tried = Tried} = Settling, Fabric) ->
    Settling#settling{tried = ordsets:add_element(Fabric, Tried)}.

%% Tells whether a queue pair is encrypted, for a link or stream that began inside TLS. Over shm
%% only if one of the nodes sets encrypt_shm, or if they run as several users: the kernel gives the
%% memory of one user's nodes to processes of that user only.
-spec seals(#settling{}, fabric()) -> boolean().
seals(#settling{own = #{encrypt_shm := false} = Own, peer = #{encrypt_shm := false} = Peer}, shm) ->
    not inet_rdma_neighbours:is_same_user(Own, Peer);
seals(_Settling, _Fabric) ->
    true.

%% The cipher is the one that the acceptor named.
-spec cipher(#settling{}) -> inet_rdma_nif:cipher().
cipher(#settling{role = acceptor, own = #{cipher := Cipher}}) ->
    Cipher;
cipher(#settling{role = initiator, peer = #{cipher := none}}) ->
    broken(<<"the peer names no cipher">>);
cipher(#settling{role = initiator, peer = #{cipher := Cipher}}) ->
    Cipher.

%% Remembers that no queue pair could be made. Failures of streams are not remembered: a stream
%% cannot stay on TCP.
-spec failed(#settling{}, fabric(), Why :: binary()) -> ok.
failed(#settling{node = none}, _Fabric, _Why) ->
    ok;
failed(#settling{config = #{fallback_retry_ms := RetryMs}} = Settling, Fabric, Why) ->
    inet_rdma_links:failed(target(Settling, Fabric), Why, RetryMs).

%% Remembers that a queue pair under a link was lost.
-spec lost(Node :: binary(), fabric(), Why :: binary(), RetryMs :: non_neg_integer()) -> ok.
lost(Node, Fabric, Why, RetryMs) -> inet_rdma_links:failed({Node, 0, Fabric}, Why, RetryMs).

%% No path is left. The link stays on the connection on which it began, or is refused if that is not
%% allowed.
-spec stay(#settling{}, Why :: binary()) -> inet_rdma_settlement:outcome().
stay(#settling{config = Config, peer = Peer, tried = Tried}, Why) ->
    stay(Why, Config, Peer, Tried).

%% Peer: the peer's offer, or its facts.
stay(Why, #{required := Own}, Peer, Tried) ->
    case Own orelse maps:get(required, Peer, false) of
        true -> {refuse, Why};
        false -> {stay, Why, Tried}
    end.

%% The sides no longer know which message comes next: the link ends, and the next one is not settled
%% for a while.
-spec break_off(#settling{}, Why :: binary()) -> {error, Why :: binary()}.
break_off(#settling{node = Node, config = #{fallback_retry_ms := RetryMs}}, Why) ->
    Node =:= none orelse inet_rdma_links:failed(settlement(Node), Why, RetryMs),
    {error, text("the settlement broke off: ~ts", [Why])}.

%% Why the last settlement with a node broke off, and how long no other is tried.
broken_off(Node) -> inet_rdma_links:failure(settlement(Node)).

settlement(Node) -> {Node, 0, settlement}.
