%% Neighbours as witnesses: what a third node knows of the VM at the other end of a lost link.
%%
%% The dialer of a lost link asks the guards of this node's other links. A neighbour answers for one
%% VM, named by its node and instance. With a link to that VM it asks it first, and says that it
%% lives if it answers. Without one it says that the VM has ended, if evidence has shown that; what
%% it has only concluded from refusals or silence it presumes. What it knows from others is not
%% passed on. It answers later, too, as soon as it knows: for ASKER_MS after the question.
%%
%% The messages go in band between guards, over links that both nodes have proved:
%%
%%     <<$w, 1:8, Instance:64, Node/binary>>    question to a neighbour: does that VM live?
%%     <<$w, 2:8, Instance:64, Node/binary>>    answer: it does
%%     <<$w, 3:8, Instance:64, Node/binary>>    answer: it has ended
%%     <<$w, 4:8, Number:64>>                   question to that VM itself
%%     <<$w, 5:8, Number:64>>                   its answer
%%     <<$w, 6:8, Instance:64, Node/binary>>    answer: it is presumed to have ended
%%
%% Bounds: NEIGHBOURS_MAX neighbours are asked, chosen by chance; a guard keeps ASKERS_MAX askers,
%% and asks its peer every ASK_PEER_MS at most; DEATHS_MAX ended VMs are remembered, each for
%% DEATH_MS, or PRESUMED_MS. A message whose name cannot be that of a node is passed over.
-module(inet_rdma_witness).

-export([ask/2, hear/3, new/0, handle/3, peer/1, ended/3, lives/1]).
-export_type([t/0, event/0, said/0, peer/0]).

-import(inet_rdma_clock, [now_ms/0]).
-import(inet_rdma_links, [quietly/1]).

-define(WITNESS, $w).
-define(IS_ALIVE, 1).
-define(ALIVE, 2).
-define(DEAD, 3).
-define(ASK_PEER, 4).
-define(PEER_ANSWERS, 5).
-define(PRESUMED, 6).

-define(NEIGHBOURS_MAX, 32).
-define(ASKERS_MAX, 64).
%% A dialer asks again before.
-define(ASKER_MS, 5000).
-define(ASK_PEER_MS, 100).
%% Longer than a cut between two of three nodes lasts that the third one has not seen.
-define(DEATH_MS, 60000).
%% What is presumed may be wrong: long enough for others that lose their links for the same reason.
-define(PRESUMED_MS, 3000).
-define(DEATHS_MAX, 1024).
%% A table of inet_rdma_links: {{Node, Instance}, UntilMs, DEAD or PRESUMED}, of VMs whose end this
%% node has seen.
-define(DEATHS, inet_rdma_deaths).

%% The part of a guard. askers: the names of the sessions whose peers have asked, with the times
%% until which they are answered. asked_at: when this guard has asked its own peer.
-type t() :: #{
    askers := #{Name :: binary() => UntilMs :: integer()}, asked_at := integer() | never
}.

%% What one guard of this node tells another one. asked: the peer of this session asks about the
%% guard's peer. said: a neighbour knows this of the guard's peer.
-type event() :: {asked, Name :: binary()} | {said, said()}.
-type said() :: alive | dead | presumed.
-type peer() :: {Node :: binary(), Instance :: non_neg_integer()} | unknown.

-spec new() -> t().
new() -> #{askers => #{}, asked_at => never}.

%% Asks neighbours about the VM at the other end of the link to this node.
-spec ask(Node :: binary(), Instance :: non_neg_integer()) -> ok.
ask(Node, Instance) ->
    Message = <<?WITNESS, ?IS_ALIVE, Instance:64, Node/binary>>,
    Sessions = [
        Session
     || #{node := Neighbour, controller := {session, Session}} <- inet_rdma_links:all(),
        Neighbour =/= Node
    ],
    Shuffled = lists:sort([{erlang:phash2(erlang:unique_integer()), Session} || Session <- Sessions]),
    _ = [
        inet_rdma_session:send_message(Session, Message)
     || {_, Session} <- lists:sublist(Shuffled, ?NEIGHBOURS_MAX)
    ],
    ok.

%% A message of the peer's guard. False: it is about something else. One that is not well formed is
%% passed over.
-spec hear(inet_rdma_session:t(), binary(), t()) -> {true, t()} | false.
hear(Session, <<?WITNESS, Message/binary>>, Witness) -> {true, heard(Message, Session, Witness)};
hear(_Session, _Message, _Witness) -> false.

heard(<<Kind, Instance:64, Node/binary>>, Session, Witness) when
    Kind =:= ?IS_ALIVE; Kind =:= ?ALIVE; Kind =:= ?DEAD; Kind =:= ?PRESUMED
->
    _ = [ok = about(Kind, Node, Instance, Session) || inet_rdma_tcp:is_node_name(Node)],
    Witness;
heard(<<?ASK_PEER, Number:8/binary>>, Session, Witness) ->
    _ = inet_rdma_session:send_message(Session, <<?WITNESS, ?PEER_ANSWERS, Number/binary>>),
    Witness;
heard(<<?PEER_ANSWERS, Number:64/signed>>, Session, #{asked_at := Number} = Witness) ->
    answer(?ALIVE, peer(Session), Witness);
heard(_Other, _Session, Witness) ->
    Witness.

about(?IS_ALIVE, Node, Instance, Session) ->
    case tell_guard(Node, Instance, {asked, inet_rdma_session:name(Session)}) of
        is_sent ->
            ok;
        no_link ->
            _ = [say(Answer, Node, Instance, Session) || Answer <- death(Node, Instance)],
            ok
    end;
about(Answer, Node, Instance, _Session) ->
    Said =
        case Answer of
            ?ALIVE -> alive;
            ?DEAD -> dead;
            ?PRESUMED -> presumed
        end,
    _ = tell_guard(Node, Instance, {said, Said}),
    ok.

say(Answer, Node, Instance, Session) ->
    _ = inet_rdma_session:send_message(Session, <<?WITNESS, Answer, Instance:64, Node/binary>>),
    ok.

%% Tells the guard of the living link to that very VM.
tell_guard(Node, Instance, Event) ->
    Guards = [
        Guard
     || {ok, Session} <- [inet_rdma_links:session_of(Node)],
        instance(Session) =:= Instance,
        {ok, Guard} <- [inet_rdma_links:guard(inet_rdma_session:name(Session))]
    ],
    _ = [Guard ! {witness, Event} || Guard <- Guards],
    case Guards of
        [] -> no_link;
        _ -> is_sent
    end.

instance(Session) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    inet_rdma_peer_node:instance(PeerNode).

%% An event of another guard of this node, in the guard of a link that is carried. Asks the peer.
-spec handle(Name :: binary(), inet_rdma_session:t(), t()) -> t().
handle(Name, Session, #{askers := Askers, asked_at := AskedAt} = Witness) ->
    Now = now_ms(),
    Living = maps:filter(fun(_Asker, Until) -> Until > Now end, Askers),
    Kept =
        case map_size(Living) < ?ASKERS_MAX of
            true -> Living#{Name => Now + ?ASKER_MS};
            false -> Living
        end,
    Asked =
        case AskedAt =:= never orelse Now - AskedAt >= ?ASK_PEER_MS of
            true ->
                _ = inet_rdma_session:send_message(Session, <<?WITNESS, ?ASK_PEER, Now:64>>),
                Now;
            false ->
                AskedAt
        end,
    Witness#{askers := Kept, asked_at := Asked}.

%% The VM at the other end of this session; unknown: it has not said which one it is, or the session
%% has ended.
-spec peer(inet_rdma_session:t()) -> peer().
peer(Session) ->
    case {node_of(Session), instance(Session)} of
        {Node, Instance} when Node =/= none, Instance =/= none -> {Node, Instance};
        _ -> unknown
    end.

%% The verdict has ended the link to this peer.
-spec ended(inet_rdma_death:grade(), peer(), t()) -> ok.
ended(answered, _Peer, _Witness) ->
    ok;
ended(_Grade, unknown, _Witness) ->
    ok;
ended(Grade, Peer, Witness) ->
    Answer =
        case Grade of
            proved -> ?DEAD;
            presumed -> ?PRESUMED
        end,
    ok = remember(Answer, Peer),
    _ = answer(Answer, Peer, Witness),
    ok.

%% The guard's peer has sent its instance: what was presumed of that VM was wrong.
-spec lives(inet_rdma_session:t()) -> ok.
lives(Session) -> quietly(fun() -> ets:delete(?DEATHS, peer(Session)) end).

%% Answers all askers about this peer.
answer(_Answer, unknown, Witness) ->
    Witness;
answer(Answer, {Node, Instance}, #{askers := Askers} = Witness) ->
    Now = now_ms(),
    _ = [
        say(Answer, Node, Instance, Asker)
     || {Name, Until} <- maps:to_list(Askers),
        Until > Now,
        {ok, Asker} <- [inet_rdma_links:session(Name)]
    ],
    Witness.

node_of(Session) -> inet_rdma_detours:fact(inet_rdma_session:name(Session), node).

remember(Answer, Peer) ->
    ForMs =
        case Answer of
            ?DEAD -> ?DEATH_MS;
            ?PRESUMED -> ?PRESUMED_MS
        end,
    quietly(fun() ->
        Now = now_ms(),
        _ = ets:select_delete(?DEATHS, [{{'_', '$1', '_'}, [{'<', '$1', Now}], [true]}]),
        _ =
            case ets:info(?DEATHS, size) >= ?DEATHS_MAX of
                true -> ets:delete(?DEATHS, ets:first(?DEATHS));
                false -> ok
            end,
        ets:insert(?DEATHS, {Peer, Now + ForMs, Answer})
    end).

%% The answer about a VM that has ended; none: this node has not seen that.
death(Node, Instance) ->
    Now = now_ms(),
    case quietly(fun() -> ets:lookup(?DEATHS, {Node, Instance}) end) of
        [{_, Until, Answer}] when Until > Now -> [Answer];
        _ -> []
    end.
