%% The acceptor's part of the settlement: it makes its side of each path that the initiator tries.
-module(inet_rdma_settlement_acceptor).

-export([run/1]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [
    greet/2, tell/2, hear/2, cut/1, left/1, broken/1, with_key/2, without_key/3
]).
-import(inet_rdma_settlement_policy, [tried/2]).
-import(inet_rdma_settlement_queue, [key/1, keys/3]).
-import(inet_rdma_text, [reason/1, text/2]).

%% The hello names a listener over shm, to which the peer may have connected already.
-record(offered, {
    attempt :: inet_rdma_nif:attempt(),
    id :: pos_integer(),
    key :: none | inet_rdma_nif:key()
}).

%% The acceptor has sent `listens`.
-record(listening, {
    fabric :: inet_rdma_options:fabric(),
    attempt :: inet_rdma_nif:attempt(),
    id :: pos_integer()
}).

%% The acceptor has sent `ready`: the queue pair waits for the initiator's decision.
-record(ready, {
    opened :: inet_rdma_settlement_queue:opened(),
    why :: binary()
}).

%% The acceptor's state when the initiator's next message comes.
-type state() :: nothing | #offered{} | #listening{} | #ready{}.

%% Throws as inet_rdma_settlement_message does.
-spec run(#settling{}) -> inet_rdma_settlement:outcome().
run(#settling{lacks = none, own = #{fabric := Fabric} = Own} = Settling) when
    Fabric =:= auto; Fabric =:= shm
->
    {Facts, State} = offer_shm(Settling, Own),
    try greet(Settling, inet_rdma_neighbours:named(Settling#settling.config, Facts)) of
        Greeted -> accept(Greeted, State)
    catch
        throw:Reason ->
            discard(Settling, State),
            throw(Reason)
    end;
run(#settling{own = Own} = Settling) ->
    accept(greet(Settling, Own), nothing).

%% A listener over shm in the hello: an initiator that connects there needs no `try`. A failure here
%% is reported when the initiator asks for shm.
-spec offer_shm(#settling{}, Own :: map()) -> {Facts :: map(), nothing | #offered{}}.
offer_shm(Settling, Own) ->
    case inet_rdma_settlement_queue:expect(Settling, shm) of
        {ok, Attempt, Id, Name, Token} ->
            Key = key(Settling),
            {with_place_key(Own#{place => {Name, Token}}, Key), #offered{
                attempt = Attempt, id = Id, key = Key
            }};
        {error, _} ->
            {Own, nothing}
    end.

with_place_key(Facts, none) -> Facts;
with_place_key(Facts, Key) -> Facts#{place_key => Key}.

-spec accept(#settling{}, state()) -> inet_rdma_settlement:outcome().
accept(Settling, State) ->
    try hear(Settling, ['try', failed, go, stay]) of
        Message -> heard(Message, Settling, State)
    catch
        throw:Reason ->
            discard(Settling, State),
            throw(Reason)
    end.

-spec heard(tuple(), #settling{}, state()) -> inet_rdma_settlement:outcome().
heard(Try, Settling, State) when element(1, Try) =:= 'try' ->
    discard(Settling, State),
    {{'try', Fabric}, Theirs} = without_key(Try, 'try', 2),
    ok = not_tried(Settling, Fabric),
    Trying = keys(tried(Settling, Fabric), key(Settling), Theirs),
    accept(Trying, listen(Trying, Fabric));
heard({failed, Fabric, Why}, Settling, State) ->
    _ = [
        ok = tell(Settling, {failed, Fabric, cut(Own)})
     || Own <- verdict(Settling, State, Fabric, Why)
    ],
    discard(Settling, State),
    accept(offer_failed(Settling, State), nothing);
heard({go}, _Settling, #ready{opened = Opened, why = Why}) ->
    {move, Opened, Why};
heard(Go, Settling, #offered{key = Key} = Offered) when element(1, Go) =:= go ->
    {{go}, Theirs} = without_key(Go, go, 1),
    met(keys(Settling, Key, Theirs), Offered);
heard({stay, Why}, Settling, State) ->
    discard(Settling, State),
    ok = tell(Settling, {stayed}),
    %% The reason is the initiator's text, in which "this node" is the initiator.
    inet_rdma_settlement_policy:stay(Settling, text("the peer says: ~ts", [Why]));
heard(_Go, _Settling, _State) ->
    broken(<<"the peer decides before a queue pair is ready">>).

%% Each fabric is tried at most once, which bounds the settlement.
not_tried(#settling{tried = Tried}, Fabric) ->
    case lists:member(Fabric, Tried) of
        false -> ok;
        true -> broken(<<"the peer tries a fabric for the second time">>)
    end.

%% The initiator has connected: this side's queue pair is there, or is in a moment.
-spec met(#settling{}, #offered{}) -> inet_rdma_settlement:outcome().
met(Settling, #offered{attempt = Attempt, id = Id} = Offered) ->
    case inet_rdma_settlement_queue:open_if_there(Settling, shm, Attempt) of
        {ok, Opened, Why} ->
            {move, Opened, Why};
        waiting ->
            ok = inet_rdma_nif:notify(Attempt),
            receive
                {'$inet_rdma', Id, connected} -> met(Settling, Offered)
            after left(Settling) -> broken(<<"the peer decides before it has connected">>)
            end;
        {error, Reason} ->
            broken(text("the peer decides, and this node has no queue pair: ~ts", [reason(Reason)]))
    end.

%% The reason to send an initiator that could not connect: the acceptor knows better why a queue
%% pair was refused.
-spec verdict(#settling{}, state(), Fabric :: atom(), Why :: binary()) -> [binary()].
verdict(Settling, #offered{attempt = Attempt, key = Key}, shm, Why) ->
    %% The queue pair is opened only to learn the reason; no byte goes over it, and the peer has
    %% sent no key.
    case
        inet_rdma_settlement_queue:open_if_there(keys(Settling, Key, key(Settling)), shm, Attempt)
    of
        {ok, Opened, _} ->
            inet_rdma_settlement_queue:close(Settling, Opened),
            [Why];
        waiting ->
            [Why];
        {error, Reason} ->
            [reason(Reason)]
    end;
verdict(_Settling, #listening{fabric = Fabric}, Fabric, Why) ->
    [Why];
verdict(_Settling, _State, _Fabric, _Why) ->
    [].

%% The initiator has tried the listener that the hello named, without a `try`.
-spec offer_failed(#settling{}, state()) -> #settling{}.
offer_failed(Settling, #offered{}) -> tried(Settling, shm);
offer_failed(Settling, _State) -> Settling.

-spec discard(#settling{}, state()) -> ok.
discard(_Settling, nothing) ->
    ok;
discard(_Settling, #offered{attempt = Attempt}) ->
    inet_rdma_nif:drop_attempt(Attempt);
discard(_Settling, #listening{attempt = Attempt, id = Id}) ->
    inet_rdma_settlement_queue:drop(Attempt, Id);
discard(Settling, #ready{opened = Opened}) ->
    inet_rdma_settlement_queue:close(Settling, Opened).

%% The answer to a `try`.
-spec listen(#settling{}, shm | verbs | tcp) -> nothing | #listening{} | #ready{}.
listen(#settling{lacks = Why} = Settling, Fabric) when Why =/= none ->
    cannot(Settling, Fabric, Why);
listen(Settling, Fabric) ->
    IsAllowed = inet_rdma_settlement_policy:allows(Settling, Fabric),
    case IsAllowed andalso inet_rdma_settlement_queue:own_addresses(Settling, Fabric) of
        {ok, Addresses} -> listen(Settling, Fabric, Addresses);
        {error, Why} -> cannot(Settling, Fabric, Why);
        false -> cannot(Settling, Fabric, <<"the option fabric forbids it">>)
    end.

listen(Settling, Fabric, Addresses) ->
    case inet_rdma_settlement_queue:expect(Settling, Fabric) of
        {ok, Attempt, Id, Place, Token} ->
            ok = tell(Settling, with_key({listens, Place, Token, Addresses}, own_key(Settling))),
            await(Settling, Fabric, Attempt, Id);
        {error, Reason} ->
            cannot(Settling, Fabric, reason(Reason))
    end.

own_key(#settling{keys = none}) -> none;
own_key(#settling{keys = {Key, _Theirs}}) -> Key.

%% Waits until the peer connects, or sends a message, which accept/2 reads next.
-spec await(#settling{}, inet_rdma_options:fabric(), inet_rdma_nif:attempt(), Id :: pos_integer()) ->
    nothing | #listening{} | #ready{}.
await(Settling, Fabric, Attempt, Id) ->
    ok = inet_rdma_nif:notify(Attempt),
    ok = inet_rdma_settlement_message:active_once(Settling),
    receive
        {'$inet_rdma', Id, connected} ->
            ok = inet_rdma_settlement_message:passive(Settling),
            case inet_rdma_settlement_queue:open(Settling, Fabric, Attempt) of
                {ok, Opened, Why} ->
                    ok = tell(Settling, {ready}),
                    #ready{opened = Opened, why = Why};
                {error, Reason} ->
                    cannot(Settling, Fabric, reason(Reason))
            end;
        %% The message has made the connection passive. There is no other message of it in the
        %% queue.
        {Tag, _Socket, _} = Message when Tag =:= tcp; Tag =:= ssl; Tag =:= session ->
            ok = inet_rdma_settlement_message:passive(Settling),
            self() ! Message,
            #listening{fabric = Fabric, attempt = Attempt, id = Id};
        {Tag, _Socket} when Tag =:= tcp_closed; Tag =:= ssl_closed ->
            throw(closed);
        {Tag, _Socket, _Reason} when Tag =:= tcp_error; Tag =:= ssl_error ->
            throw(closed)
    after left(Settling) ->
        broken(<<"the peer did not connect in time">>)
    end.

-spec cannot(#settling{}, inet_rdma_options:fabric(), Why :: binary()) -> nothing.
cannot(Settling, Fabric, Why) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    nothing.
