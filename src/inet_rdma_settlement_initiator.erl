%% The initiator's part of the settlement: it goes through the ways, and decides.
-module(inet_rdma_settlement_initiator).

-export([run/1, give_up/2]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [tell/2, hear/2, next/1, parse/3, cut/1, left/1, now_ms/0, reason/1, text/2]).
-import(inet_rdma_settlement_message, [with_key/2, without_key/3]).
-import(inet_rdma_settlement_way, [obstacle/2, tried/2, config/2, key/1, keys/3]).

%% An initiator that has given up waits at least that long for the acceptor's acknowledgement.
-define(GRACE_MS, 1000).
%% Addresses of the peer's devices that are tried at most.
-define(ADDRESSES_MAX, 4).

%% Both have said hello. It throws as inet_rdma_settlement_message does.
-spec run(#settling{}) -> inet_rdma_settlement_outcome:t().
run(Settling) ->
    initiate(Settling, [shm, verbs], []).

%% Whys: why each way before could not be gone, last first.
initiate(Settling, [Fabric | Fabrics], Whys) ->
    case obstacle(Fabric, Settling) of
        none -> try_way(Settling, Fabric, Fabrics, Whys);
        Why -> initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end;
initiate(Settling, [], Whys) ->
    stay(Settling, joined(Whys)).

try_way(Before, Fabric, Fabrics, Whys) ->
    Settling = tried(Before, Fabric),
    case unbroken(Settling, Fabric) of
        {broken, Why} ->
            give_up(Settling, Why);
        {ok, Opened, Why, Go} ->
            %% iWARP (MPA, RFC 5044) has the side that connected send first: a keepalive, on its way before the peer may send.
            _ = inet_rdma_settlement_way:tick(Settling, Opened),
            ok = tell(Settling, Go),
            {move, Opened, joined([Why | Whys])};
        {failed, Why} ->
            ok = inet_rdma_settlement_way:failed(Settling, Fabric, Why),
            initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end.

unbroken(Settling, Fabric) ->
    try attempt(Settling, Fabric)
    catch throw:{broken, Why} -> {broken, Why}
    end.

joined(Whys) -> iolist_to_binary(lists:join("; ", lists:reverse(Whys))).

%% Go: what tells the acceptor that the link moves.
attempt(#settling{peer = #{shm := {Port, Token}} = Peer} = Settling, shm) ->
    %% The acceptor's queue pair and port are there already.
    Key = key(Settling),
    case connect(keys(Settling, Key, maps:get(shm_key, Peer, none)), shm, Port, Token, [inet_rdma_settlement_way:shm_address()], []) of
        {ok, Opened, Why} -> {ok, Opened, Why, with_key({go}, Key)};
        {failed, Why} -> verdict(Settling, shm, {failed, Why})
    end;
attempt(Settling, Fabric) ->
    Key = key(Settling),
    ok = tell(Settling, with_key({'try', Fabric}, Key)),
    case without_key(hear(Settling, [listens, failed]), listens, 4) of
        {{listens, Port, Token, Addresses}, Theirs} ->
            Connected = connect(keys(Settling, Key, Theirs), Fabric, Port, Token, addresses(Settling, Addresses), []),
            verdict(Settling, Fabric, Connected);
        {{failed, _, Why}, none} ->
            {failed, Why}
    end.

%% The acceptor knows better why a queue pair was refused.
verdict(Settling, _Fabric, {ok, Opened, Why}) ->
    try hear(Settling, [ready, failed]) of
        {ready} -> {ok, Opened, Why, {go}};
        {failed, _, Theirs} -> inet_rdma_settlement_way:close(Settling, Opened), {failed, Theirs}
    catch
        throw:Reason -> inet_rdma_settlement_way:close(Settling, Opened), throw(Reason)
    end;
verdict(Settling, Fabric, {failed, Why}) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    case hear(Settling, [ready, failed]) of
        {ready} -> {failed, Why};
        {failed, _, Theirs} -> {failed, Theirs}
    end.

%% The address that the connection leads to comes first: the peer is known to be there.
addresses(#settling{connection = Connection}, Texts) ->
    case inet_rdma_bootstrap:peername(Connection) of
        {ok, {Ip, _}} ->
            Same = list_to_binary(inet:ntoa(Ip)),
            {First, Others} = lists:partition(fun(Address) -> Address =:= Same end, [as_ntoa(Text) || Text <- Texts]),
            lists:sublist(First ++ Others, ?ADDRESSES_MAX);
        {error, _} ->
            throw(closed)
    end.

%% inet takes forms of addresses that the native library does not.
as_ntoa(Text) ->
    {ok, Ip} = inet:parse_strict_address(binary_to_list(Text)),
    list_to_binary(inet:ntoa(Ip)).

%% Whys: why the addresses before did not do, last first.
connect(_Settling, _Fabric, _Port, _Token, [], []) ->
    {failed, <<"the peer names no address">>};
connect(_Settling, _Fabric, _Port, _Token, [], Whys) ->
    {failed, joined(Whys)};
connect(Settling, Fabric, Port, Token, [Address | Addresses], Whys) ->
    %% A silent address must leave time for the others, and for the messages that follow.
    TimeoutMs = left(Settling) * 3 div 4 div (length(Addresses) + 1),
    Attempt = inet_rdma_nif:connect(Fabric, <<>>, {Address, Port}, Token, TimeoutMs, config(Settling, Fabric)),
    case connected(TimeoutMs, Settling, Fabric, Attempt) of
        {ok, Opened, Why} -> {ok, Opened, Why};
        {failed, Why} -> connect(Settling, Fabric, Port, Token, Addresses, [Why | lists:delete(Why, Whys)])
    end.

%% The result of an attempt, which its message announces.
connected(TimeoutMs, Settling, Fabric, {ok, Attempt, Id}) ->
    receive
        {'$inet_rdma', Id, connected} ->
            case inet_rdma_settlement_way:open(Settling, Fabric, Attempt) of
                {ok, Opened, Why} -> {ok, Opened, Why};
                {error, Reason} -> {failed, reason(Reason)}
            end
    after TimeoutMs ->
            ok = inet_rdma_settlement_way:drop(Attempt, Id),
            {failed, <<"timed out">>}
    end;
connected(_TimeoutMs, _Settling, _Fabric, {error, Reason}) ->
    {failed, reason(Reason)}.

%% The acceptor does not say what it must: if it acknowledges to stay, both are in step again.
%% A stream has nothing to stay on.
-spec give_up(#settling{}, Why :: binary()) -> inet_rdma_settlement_outcome:t().
give_up(#settling{node = none} = Settling, Why) ->
    try tell(Settling, {stay, cut(Why)})
    catch throw:_ -> ok
    end,
    inet_rdma_settlement_outcome:break_off(Settling, Why);
give_up(Settling, Why) ->
    try stay(Settling, Why)
    catch throw:_ -> inet_rdma_settlement_outcome:break_off(Settling, Why)
    end.

%% The initiator's decision. Messages that the acceptor sent before it received the decision are dropped.
stay(#settling{deadline = Deadline} = Settling, Why) ->
    ok = tell(Settling, {stay, cut(Why)}),
    ok = await_stayed(Settling#settling{deadline = max(Deadline, now_ms() + ?GRACE_MS)}),
    inet_rdma_settlement_outcome:stay(Settling, Why).

await_stayed(Settling) ->
    Bytes = next(Settling),
    try parse(Settling, Bytes, [stayed]) of
        {stayed} -> ok
    catch
        throw:{broken, _} -> await_stayed(Settling)
    end.
