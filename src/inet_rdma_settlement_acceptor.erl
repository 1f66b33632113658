%% The acceptor's part of the settlement: it makes its side of each way that the initiator tries.
-module(inet_rdma_settlement_acceptor).

-export([run/3]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [tell/2, hear/2, cut/1, left/1, reason/1, text/2, broken/1]).
-import(inet_rdma_settlement_message, [with_key/2, without_key/3]).
-import(inet_rdma_settlement_way, [tried/2, config/2, key/1, keys/3]).

%% Greet says hello with these facts, hears the initiator's, and returns the settlement as it is then. It throws as
%% inet_rdma_settlement_message does.
-spec run(#settling{}, Own :: map(), Greet :: fun((Facts :: map()) -> #settling{})) -> inet_rdma_settlement_outcome:t().
run(Settling, #{fabric := Fabric} = Own, Greet) when Fabric =:= auto; Fabric =:= shm ->
    {Facts, State} = offer_shm(Settling, Own),
    try Greet(Facts) of
        Greeted -> accept(Greeted, State)
    catch
        throw:Reason -> discard(Settling, State), throw(Reason)
    end;
run(_Settling, Own, Greet) ->
    accept(Greet(Own), none).

%% State: none; a place, reserved, the attempt to meet the peer where the hello has said, and its key; the fabric of a
%% listener that has not met the peer, and its attempt; or a link or stream, and why it is over its fabric, that waits for
%% the decision.
accept(Settling, State) ->
    try hear(Settling, ['try', failed, go, stay]) of
        Try when element(1, Try) =:= 'try' ->
            discard(Settling, State),
            {{'try', Fabric}, Theirs} = without_key(Try, 'try', 2),
            ok = not_tried(Settling, Fabric),
            Trying = keys(tried(Settling, Fabric), key(Settling), Theirs),
            accept(Trying, listen(Trying, Fabric));
        {failed, Fabric, Why} ->
            _ = [ok = tell(Settling, {failed, Fabric, cut(Own)}) || Own <- failure(Settling, State, Fabric, Why)],
            discard(Settling, State),
            accept(offer_failed(Settling, State), none);
        {go} when element(1, State) =:= opened ->
            {opened, Opened, Why} = State,
            {move, Opened, Why};
        Go when element(1, Go) =:= go, element(1, State) =:= offered ->
            {offered, _Place, _Attempt, _Id, Key} = State,
            {{go}, Theirs} = without_key(Go, go, 1),
            met(keys(Settling, Key, Theirs), State);
        {stay, Why} ->
            discard(Settling, State),
            ok = tell(Settling, {stayed}),
            %% The initiator's words: "this node" is the initiator in them.
            inet_rdma_settlement_outcome:stay(Settling, text("the peer says: ~ts", [Why]));
        Go when element(1, Go) =:= go ->
            broken(<<"the peer decides before there is anything to decide">>)
    catch
        throw:Reason -> discard(Settling, State), throw(Reason)
    end.

%% What the settlement costs and says is bounded by that.
not_tried(#settling{tried = Tried}, Fabric) ->
    case lists:member(Fabric, Tried) of
        false -> ok;
        true -> broken(<<"the peer tries a fabric for the second time">>)
    end.

%% The initiator has connected: this side's queue pair is there, or will be in a moment.
met(Settling, {offered, Place, Attempt, Id, _Key} = State) ->
    case inet_rdma_settlement_way:open(Settling, shm, Place, Attempt) of
        {ok, Opened, Why} ->
            {move, Opened, Why};
        waiting ->
            ok = inet_rdma_nif:notify(Attempt),
            receive {'$inet_rdma', Id, connected} -> met(Settling, State)
            after left(Settling) -> broken(<<"the peer decides before it has connected">>)
            end;
        {error, Reason} ->
            broken(text("the peer decides, and this node has no queue pair: ~ts", [reason(Reason)]))
    end.

%% The reasons to tell the initiator when it could not connect.
failure(Settling, {offered, Place, Attempt, _Id, Key}, shm, Why) ->
    %% The acceptor knows better why a queue pair was refused. No byte goes over this one, whose peer has told no key.
    case inet_rdma_settlement_way:open(keys(Settling, Key, key(Settling)), shm, Place, Attempt) of
        {ok, Opened, _} -> inet_rdma_settlement_way:close(Settling, Opened), [Why];
        waiting -> [Why];
        {error, Reason} -> [reason(Reason)]
    end;
failure(_Settling, {listens, Fabric, _Attempt, _Id}, Fabric, Why) ->
    [Why];
failure(_Settling, _State, _Fabric, _Why) ->
    [].

%% The initiator has tried the place that the hello named, without a `try`.
offer_failed(Settling, {offered, _Place, _Attempt, _Id, _Key}) -> tried(Settling, shm);
offer_failed(Settling, _State) -> Settling.

discard(Settling, {offered, Place, Attempt, _Id, _Key}) ->
    ok = inet_rdma_settlement_way:close(Settling, Place),
    inet_rdma_nif:drop_attempt(Attempt);
discard(_Settling, {listens, _Fabric, Attempt, Id}) -> inet_rdma_settlement_way:drop(Attempt, Id);
discard(Settling, {opened, Opened, _Why}) -> inet_rdma_settlement_way:close(Settling, Opened);
discard(_Settling, _) -> ok.

%% The acceptor offers a place over shm in its hello: an initiator that connects there needs no `try`. A failure here is
%% reported when the initiator asks for shm.
offer_shm(Settling, Own) ->
    case inet_rdma_settlement_way:reserve(Settling) of
        {ok, Place} ->
            Token = inet_rdma_nif:token(),
            case inet_rdma_nif:expect_shm(Token, left(Settling), config(Settling, shm)) of
                {ok, Attempt, Id, Port} ->
                    Key = key(Settling),
                    {place(Own#{shm => {Port, Token}}, Key), {offered, Place, Attempt, Id, Key}};
                {error, _} -> inet_rdma_settlement_way:close(Settling, Place), {Own, none}
            end;
        {error, _} ->
            {Own, none}
    end.

place(Facts, none) -> Facts;
place(Facts, Key) -> Facts#{shm_key => Key}.

listen(Settling, Fabric) ->
    case allowed(Settling, Fabric) andalso own_addresses(Fabric) of
        {ok, Addresses} -> listen(Settling, Fabric, Addresses);
        {error, Why} -> cannot(Settling, Fabric, Why);
        false -> cannot(Settling, Fabric, <<"the option fabric forbids it">>)
    end.

listen(Settling, Fabric, Addresses) ->
    case expect(Settling, Fabric) of
        {ok, Attempt, Id, Port, Token} ->
            ok = tell(Settling, with_key({listens, Port, Token, Addresses}, own_key(Settling))),
            await(Settling, Fabric, Attempt, Id);
        {error, Reason} ->
            cannot(Settling, Fabric, reason(Reason))
    end.

own_key(#settling{keys = none}) -> none;
own_key(#settling{keys = {Key, _Theirs}}) -> Key.

expect(Settling, Fabric) ->
    Token = inet_rdma_nif:token(),
    Config = config(Settling, Fabric),
    Expecting = case Fabric of
                    shm -> inet_rdma_nif:expect_shm(Token, left(Settling), Config);
                    verbs -> inet_rdma_nif:expect_verbs(<<>>, Token, left(Settling), Config)
                end,
    case Expecting of
        {ok, Attempt, Id, Port} -> {ok, Attempt, Id, Port, Token};
        {error, Reason} -> {error, Reason}
    end.

%% The peer connects, or says why it does not: then accept/2 hears that next.
await(Settling, Fabric, Attempt, Id) ->
    ok = inet_rdma_nif:notify(Attempt),
    ok = inet_rdma_settlement_message:active_once(Settling),
    receive
        {'$inet_rdma', Id, connected} ->
            ok = inet_rdma_settlement_message:passive(Settling),
            case inet_rdma_settlement_way:open(Settling, Fabric, Attempt) of
                {ok, Opened, Why} -> ok = tell(Settling, {ready}), {opened, Opened, Why};
                {error, Reason} -> cannot(Settling, Fabric, reason(Reason))
            end;
        %% The connection is passive by that. There is no other message of it in the queue.
        {Tag, _Socket, _} = Message when Tag =:= tcp; Tag =:= ssl ->
            self() ! Message,
            {listens, Fabric, Attempt, Id};
        {Tag, _Socket} when Tag =:= tcp_closed; Tag =:= ssl_closed ->
            throw(closed);
        {Tag, _Socket, _Reason} when Tag =:= tcp_error; Tag =:= ssl_error ->
            throw(closed)
    after left(Settling) ->
            broken(<<"the peer did not connect in time">>)
    end.

cannot(Settling, Fabric, Why) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    none.

allowed(#settling{own = #{fabric := auto}}, _Fabric) -> true;
allowed(#settling{own = #{fabric := Own}}, Fabric) -> Own =:= Fabric.

own_addresses(shm) ->
    {ok, [inet_rdma_settlement_way:shm_address()]};
own_addresses(verbs) ->
    {ok, Interfaces} = inet:getifaddrs(),
    Own = [list_to_binary(inet:ntoa(Address)) || {_, Properties} <- Interfaces, {addr, Address} <- Properties],
    case inet_rdma_nif:check_verbs() of
        ok ->
            case inet_rdma_nif:verbs_addresses(Own) of
                {ok, []} -> {error, <<"no address of this host belongs to an RDMA device">>};
                {ok, Addresses} -> {ok, Addresses};
                {error, Reason} -> {error, reason(Reason)}
            end;
        {error, Reason} ->
            {error, reason(Reason)}
    end.
