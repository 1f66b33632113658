%% The addresses at which a dialer tries to reach the peer of a link, in order: the address in use,
%% what the node's name leads to now, what the peer has announced; and the look-up of the name.
%%
%% Each address has a pace of its own: the pause after an attempt that failed doubles from 20 ms on.
%% So have attempts over a neighbour (inet_rdma_detour). Where the peer has accepted a connection
%% and not answered in time, its host or this one may be slow: the next attempt there has twice the
%% time, and one such attempt is under way at a time, as handshakes of TLS side by side slow each
%% other down.
-module(inet_rdma_candidates).

-export([
    new/1, resolved/2, next/2, factor/2, started/2, ended/4, hurry/1, facts/2, knows/3, may_lead/2
]).
-export([addresses/1]).
-export([detour_ms/1, detour_pause_ms/2]).
-export([look_up/2, has_descriptors/0, had_descriptors/0]).
%% Spawned.
-export([looked_up/2, learn/2]).
-export_type([t/0, found/0]).

%% Before all times of erlang:monotonic_time/1, which are negative for the most part.
-define(AT_ONCE, -(1 bsl 59)).

-record(candidate, {
    address :: inet_rdma_peer_node:address(),
    origin :: used | resolved | announced,
    is_own :: boolean(),
    %% Whether dialling this address has reached the peer's very instance.
    is_reached :: boolean(),
    %% Whether the name of the peer's node has led there since the loss.
    is_named = false :: boolean(),
    %% An address of this host, at which the peer was not reached: this host itself may refuse
    %% there.
    is_here :: boolean(),
    outcome = none :: inet_rdma_death:outcome(),
    %% When the first and the last of the attempts ended that were all refused, and from when on
    %% another attempt is due, in milliseconds.
    refused = none :: {First :: integer(), Last :: integer()} | none,
    due = ?AT_ONCE :: integer(),
    tries = 0 :: non_neg_integer(),
    %% The attempts before this one that the peer did not answer in time.
    slow = 0 :: non_neg_integer(),
    is_running = false :: boolean()
}).

-record(candidates, {
    peer_node :: inet_rdma_peer_node:state(),
    reached :: [inet_rdma_peer_node:address()],
    %% The addresses of this host.
    host :: [inet:ip_address()],
    %% Times for which refusals must have lasted: an attempt is due at each.
    bounds_ms :: [timeout()],
    list = [] :: [#candidate{}]
}).

-opaque t() :: #candidates{}.

%% What a look-up has found: addresses of the listener, and what the name server says. asked: where
%% EPMD runs that says so; none: another name server does.
-type found() :: #{
    addresses := [inet_rdma_peer_node:address()],
    asked := inet:ip_address() | none,
    answer := {known, inet:port_number(), IsLive :: boolean()} | unknown | no_answer
}.

-define(RETRY_MS, 20).
%% How often the time limits of an attempt are doubled: 12 s for a handshake of TLS then. An
%% acceptor ends it after net_setuptime (7 s).
-define(DOUBLINGS_MAX, 2).
%% Up to this longest pause the caller is in a hurry.
-define(SHORT_PAUSE_MS_MAX, 1000).
-define(CANDIDATES_MAX, 16).
%% Time from the loss to the first attempt over a neighbour. The acceptor's comes later, as the
%% initiator's would take precedence.
-define(DETOUR_MS, 500).
-define(ACCEPTOR_DETOUR_MS, 1000).
%% The pauses after such attempts: half of it or more, by chance, as a cut disturbs many links at
%% once.
-define(DETOUR_PAUSE_MS, 1000).
-define(DETOUR_PAUSE_MS_MAX, 15000).
%% Descriptors that a look-up may need: a connection to the name server and files of the resolver.
-define(DESCRIPTORS, 4).
%% The same if OTP's resolver has not started its program yet. It needs five for that, and ends the
%% VM if one is missing ("Can not execute inet_gethost : emfile"). As many to spare, as other
%% processes open files meanwhile.
-define(DESCRIPTORS_AT_START, 10).

%% peer: where the link's first connection has led, or where an acceptor supposes that its peer
%% listens; none: the peer accepted no connections. role: of this side. reached: later addresses, as
%% inet_rdma_links:peer/1 says.
-spec new(#{
    peer := inet_rdma_peer_node:address() | none,
    role := initiator | acceptor,
    reached := [inet_rdma_links:reached()],
    peer_node := inet_rdma_peer_node:state(),
    refused_ms := timeout()
}) -> t().
new(#{
    peer := Peer, role := Role, reached := Reached, peer_node := PeerNode, refused_ms := RefusedMs
}) ->
    Dialled = [Address || {dialled, Address} <- Reached],
    Others = Dialled ++ [Peer || Peer =/= none],
    HasReached =
        case Role of
            initiator -> Others;
            acceptor -> Dialled
        end,
    Empty = #candidates{
        peer_node = PeerNode,
        reached = HasReached,
        host = inet_rdma_ip:of_host(),
        bounds_ms = inet_rdma_death:refusal_bounds_ms(RefusedMs)
    },
    {Used, Former} =
        case {came_from(Reached, PeerNode), Others} of
            {{ok, From}, _} -> {[From], Others};
            {none, [First | Rest]} -> {[First], Rest};
            {none, []} -> {[], []}
        end,
    announced(PeerNode, add(announced, Former, add(used, Used, Empty))).

%% The peer has made the last connection itself, from this address of its host.
came_from([{from, Ip} | _], PeerNode) ->
    case [Address || {Each, _} = Address <- inet_rdma_peer_node:addresses(PeerNode), Each =:= Ip] of
        [From] -> {ok, From};
        [] -> none
    end;
came_from(_, _) ->
    none.

%% The node's name leads to these addresses now.
-spec resolved([inet_rdma_peer_node:address()], t()) -> t().
resolved(Addresses, #candidates{list = List} = Candidates) ->
    Kept = [
        Candidate
     || #candidate{origin = Origin, address = Address, is_running = IsRunning} = Candidate <- List,
        Origin =/= resolved orelse IsRunning orelse lists:member(Address, Addresses)
    ],
    add(resolved, Addresses, Candidates#candidates{list = Kept}).

%% The peer has announced addresses. Those of this host lead to the peer only if they are its own,
%% too.
announced(PeerNode, #candidates{host = Host} = Candidates) ->
    IsSameHost = inet_rdma_peer_node:is_same_host(PeerNode),
    Addresses = [
        Address
     || {Ip, _} = Address <- inet_rdma_peer_node:addresses(PeerNode),
        IsSameHost orelse not lists:member(Ip, Host)
    ],
    add(announced, Addresses, Candidates#candidates{peer_node = PeerNode}).

add(Origin, Addresses, Candidates) ->
    lists:foldl(fun(Address, Next) -> add_one(Origin, Address, Next) end, Candidates, Addresses).

add_one(Origin, Address, #candidates{list = List, reached = Reached} = Candidates) ->
    IsReached = lists:member(Address, Reached),
    case lists:keyfind(Address, #candidate.address, List) of
        false when length(List) < ?CANDIDATES_MAX ->
            New = #candidate{
                address = Address,
                origin = Origin,
                is_own = false,
                is_reached = IsReached,
                is_here = false
            },
            {Before, After} = lists:splitwith(fun(Each) -> rank(Each) =< rank(New) end, List),
            Candidates#candidates{list = Before ++ [owned(New, Candidates) | After]};
        #candidate{origin = announced} = Known when Origin =:= resolved ->
            Found = owned(Known#candidate{origin = resolved}, Candidates),
            Candidates#candidates{
                list = lists:keyreplace(Address, #candidate.address, List, Found)
            };
        #candidate{origin = used} = Known when Origin =:= resolved ->
            Named = Known#candidate{is_named = true},
            Candidates#candidates{
                list = lists:keyreplace(Address, #candidate.address, List, Named)
            };
        _ ->
            Candidates
    end.

rank(#candidate{origin = used}) -> 0;
rank(#candidate{origin = resolved}) -> 1;
rank(#candidate{origin = announced}) -> 2.

owned(
    #candidate{address = {Ip, _}, is_reached = IsReached} = Candidate,
    #candidates{peer_node = PeerNode, host = Host}
) ->
    IsOwn = is_own(Candidate, PeerNode, Host),
    Candidate#candidate{
        is_own = IsOwn, is_here = not IsOwn andalso not IsReached andalso is_of_host(Ip, Host)
    }.

is_of_host(Ip, Host) -> lists:member(Ip, Host) orelse inet_rdma_ip:is_loopback(Ip).

%% Whether a refusal there is the peer's own. A peer that tells nothing runs an earlier version, or
%% has ended at once. The peer's own port and address show that nothing in between translates them.
%% Loopback is the peer's only on one host; another host of a private network may have the same
%% address, unless the peer was reached there.
is_own(#candidate{origin = Origin}, PeerNode, _Host) when PeerNode =:= none; PeerNode =:= awaited ->
    Origin =/= announced;
is_own(#candidate{address = {Ip, Port}, origin = Origin, is_reached = IsReached}, PeerNode, Host) ->
    Port =:= inet_rdma_peer_node:port(PeerNode) andalso
        case is_of_host(Ip, Host) of
            true ->
                inet_rdma_peer_node:accepts_here(Ip, PeerNode);
            %% A transparent proxy leaves the address as it is.
            false ->
                (Origin =:= used orelse IsReached) andalso
                    not inet_rdma_peer_node:is_translated(PeerNode) andalso
                    lists:keymember(Ip, 1, inet_rdma_peer_node:addresses(PeerNode))
        end.

%% The address at which an attempt has been due for the longest time; else when the next one is.
-spec next(NowMs :: integer(), t()) ->
    {due, inet_rdma_peer_node:address()} | {at, Ms :: integer()} | none.
next(NowMs, #candidates{list = List}) ->
    HasSlow = lists:any(
        fun(#candidate{slow = Slow, is_running = Is}) -> Is andalso Slow > 0 end, List
    ),
    case
        lists:keysort(1, [
            {Due, Address}
         || #candidate{due = Due, address = Address, is_running = false, slow = Slow} <-
                List,
            Slow =:= 0 orelse not HasSlow
        ])
    of
        [{Due, First} | _] when Due =< NowMs -> {due, First};
        [{Due, _} | _] -> {at, Due};
        [] -> none
    end.

%% By which the time limits of an attempt there are multiplied.
-spec factor(inet_rdma_peer_node:address() | detour, t()) -> pos_integer().
factor(detour, _Candidates) ->
    1;
factor(Address, #candidates{list = List}) ->
    #candidate{slow = Slow} = lists:keyfind(Address, #candidate.address, List),
    1 bsl min(Slow, ?DOUBLINGS_MAX).

-spec started(inet_rdma_peer_node:address(), t()) -> t().
started(Address, Candidates) ->
    change(Address, fun(Candidate) -> Candidate#candidate{is_running = true} end, Candidates).

%% An attempt there has ended. interrupted: another attempt has taken its place. PauseMsMax: the
%% longest pause. True: the outcome is another one than before.
-spec ended(
    inet_rdma_peer_node:address(),
    inet_rdma_death:outcome() | interrupted,
    {NowMs :: integer(), PauseMsMax :: pos_integer()},
    t()
) -> {IsNew :: boolean(), t()}.
ended(Address, interrupted, {NowMs, _}, Candidates) ->
    {false,
        change(
            Address,
            fun(Candidate) -> Candidate#candidate{is_running = false, due = NowMs} end,
            Candidates
        )};
ended(Address, Outcome, {NowMs, PauseMsMax}, #candidates{list = List} = Candidates) ->
    IsNew =
        case lists:keyfind(Address, #candidate.address, List) of
            #candidate{outcome = Outcome} -> false;
            _ -> true
        end,
    Bounds = Candidates#candidates.bounds_ms,
    {IsNew,
        change(
            Address,
            fun(Candidate) -> failed(Outcome, NowMs, {PauseMsMax, Bounds}, Candidate) end,
            Candidates
        )}.

failed(
    Outcome,
    NowMs,
    {PauseMsMax, Bounds},
    #candidate{tries = Tries, refused = Refused, slow = Before} = Candidate
) ->
    %% An attempt that nothing has answered was pause enough.
    PauseMs =
        case Outcome of
            unanswered when PauseMsMax =< ?SHORT_PAUSE_MS_MAX -> ?RETRY_MS;
            _ -> min(PauseMsMax, ?RETRY_MS bsl min(Tries, 16))
        end,
    Refusals =
        case {inet_rdma_death:is_refusal(Outcome), Refused} of
            {true, none} -> {NowMs, NowMs};
            {true, {First, _Last}} -> {First, NowMs};
            {false, _} -> none
        end,
    Slow =
        case Outcome of
            slow -> Before + 1;
            failed -> Before;
            _ -> 0
        end,
    Candidate#candidate{
        is_running = false,
        outcome = Outcome,
        tries = Tries + 1,
        slow = Slow,
        refused = Refusals,
        due = due(Refusals, Bounds, NowMs + PauseMs)
    }.

%% An attempt at the time when refusals have lasted for long enough: only its own refusal shows that
%% they have.
due(none, _Bounds, Due) ->
    Due;
due({First, Last}, Bounds, Due) ->
    lists:min([
        Due | [First + BoundMs || BoundMs <- Bounds, BoundMs =/= infinity, First + BoundMs > Last]
    ]).

change(Address, Change, #candidates{list = List} = Candidates) ->
    Candidates#candidates{
        list = [
            case Candidate of
                #candidate{address = Address} -> Change(Candidate);
                _ -> Candidate
            end
         || Candidate <- List
        ]
    }.

%% Attempts are due everywhere, pauses are short again, and no address is slow.
-spec hurry(t()) -> t().
hurry(#candidates{list = List} = Candidates) ->
    Candidates#candidates{
        list = [Candidate#candidate{due = ?AT_ONCE, tries = 0, slow = 0} || Candidate <- List]
    }.

%% The time from the loss to the first attempt over a neighbour.
-spec detour_ms(initiator | acceptor) -> pos_integer().
detour_ms(initiator) -> ?DETOUR_MS;
detour_ms(acceptor) -> ?ACCEPTOR_DETOUR_MS.

%% The pause after such an attempt, by the reason for which it has failed and the number of those
%% before. To find that there is no neighbour costs no message.
-spec detour_pause_ms(Why :: term(), Failed :: non_neg_integer()) -> pos_integer().
detour_pause_ms(no_neighbour, _Failed) ->
    ?DETOUR_PAUSE_MS;
detour_pause_ms(_Why, Failed) ->
    Half = min(?DETOUR_PAUSE_MS_MAX, ?DETOUR_PAUSE_MS bsl min(Failed, 4)) div 2,
    Half + erlang:phash2(erlang:unique_integer(), Half).

%% For the verdict. Asked: as in found().
-spec facts(Asked :: inet:ip_address() | none, t()) -> [inet_rdma_death:candidate()].
facts(Asked, #candidates{list = List}) ->
    [
        #{
            origin => Origin,
            port => Port,
            is_own => IsOwn,
            is_reached => IsReached orelse IsNamed,
            is_here => IsHere,
            outcome => Outcome,
            has_epmd => Ip =:= Asked,
            refused_ms =>
                case Refused of
                    none -> 0;
                    {First, Last} -> Last - First
                end
        }
     || #candidate{
            origin = Origin,
            address = {Ip, Port},
            is_own = IsOwn,
            is_reached = IsReached,
            is_named = IsNamed,
            is_here = IsHere,
            outcome = Outcome,
            refused = Refused
        } <- List
    ].

%% Whether the answer `unknown` of the EPMD at the address Asked says that the node has ended: that
%% EPMD has known the node before, or it runs on the host of an own address of the peer.
-spec knows(KnownBy :: inet:ip_address() | none, Asked :: inet:ip_address() | none, t()) ->
    boolean().
knows(_KnownBy, none, _Candidates) ->
    false;
knows(KnownBy, Asked, #candidates{list = List}) ->
    Asked =:= KnownBy orelse
        [] =/= [Ip || #candidate{address = {Ip, _}, is_own = true} <- List, Ip =:= Asked].

%% Whether what accepts a connection there may be the peer: an address that it has announced may be
%% one of another network.
-spec may_lead(inet_rdma_peer_node:address() | detour, t()) -> boolean().
may_lead(detour, _Candidates) ->
    true;
may_lead(Address, #candidates{list = List}) ->
    case lists:keyfind(Address, #candidate.address, List) of
        #candidate{origin = announced, is_own = IsOwn, is_reached = IsReached} ->
            IsOwn orelse IsReached;
        _ ->
            true
    end.

-spec addresses(t()) -> [inet_rdma_peer_node:address()].
addresses(#candidates{list = List}) -> [Address || #candidate{address = Address} <- List].

%% Looks the node up, in a process linked to the caller, whose exit reason is {found, found()}. A
%% name server may take long to answer, or not answer at all.
-spec look_up(Node :: binary(), inet_rdma_transport:driver()) ->
    {ok, pid()} | {error, system_limit}.
look_up(Node, Driver) -> inet_rdma_bounded:start_linked(?MODULE, looked_up, [Node, Driver]).

%% Whether a look-up finds the descriptors that it needs. Without them OTP's resolver logs errors,
%% or ends the VM.
-spec has_descriptors() -> boolean().
has_descriptors() ->
    Needed =
        case whereis(inet_gethost_native) of
            undefined -> ?DESCRIPTORS_AT_START;
            _Resolver -> ?DESCRIPTORS
        end,
    has_descriptors(Needed).

%% The same, of the last second.
-spec had_descriptors() -> boolean().
had_descriptors() -> inet_rdma_links:recent(descriptors, fun has_descriptors/0).

%% Holds none of them for longer than it takes, as a handshake may need the last one.
has_descriptors(0) ->
    true;
has_descriptors(Count) ->
    case prim_inet:open(tcp, inet, stream) of
        {ok, Socket} ->
            Has = has_descriptors(Count - 1),
            _ = prim_inet:close(Socket),
            Has;
        {error, _} ->
            false
    end.

%% Asks EPMD for the peer's node, and keeps the address of an EPMD that knows the node: if that EPMD
%% no longer knows the node later, the node has ended. In a process of its own.
-spec learn(inet_rdma_session:t(), Node :: binary()) -> ok.
learn(Session, Node) ->
    case had_descriptors() of
        true -> known(found_now(Node, inet_rdma_session:driver(Session)), Session);
        false -> ok
    end.

known(#{answer := {known, _, true}, asked := Ip}, Session) ->
    inet_rdma_links:set_known_by(inet_rdma_session:name(Session), Ip);
known(_Found, _Session) ->
    ok.

-spec looked_up(Node :: binary(), inet_rdma_transport:driver()) -> no_return().
looked_up(Node, Driver) ->
    exit({found, found_now(Node, Driver)}).

%% OTP's resolver fails with an exception where it can start no process: no answer.
found_now(Node, Driver) ->
    try
        find(Node, Driver)
    catch
        _:_ -> found([], none, no_answer)
    end.

find(Node, Driver) ->
    {Name, Host} = inet_rdma_tcp:name_and_host(Node),
    IsAsked = inet_rdma_tcp:asks_epmd(Name, Host),
    case inet_rdma_tcp:places(Driver, Name, Host) of
        [{Ip, {Port, _Version}}] ->
            found([Ip], none, {known, Port, false});
        [{Ip, unknown} | _] = Places ->
            Asked =
                case IsAsked of
                    true -> Ip;
                    false -> none
                end,
            found([Each || {Each, unknown} <- Places], Asked, asked(Name, Ip, IsAsked));
        [] ->
            found([], none, no_answer)
    end.

found(Ips, Asked, Answer) ->
    Addresses =
        case Answer of
            {known, Port, _} -> [{Ip, Port} || Ip <- Ips];
            _ -> []
        end,
    #{addresses => Addresses, asked => Asked, answer => Answer}.

%% EPMD drops a node when that ends. What another module answers may be a constant; so is the port
%% of the VM's flag -erl_epmd_port.
asked(Name, Ip, IsAsked) ->
    case inet_rdma_tcp:port_please(Name, Ip) of
        {ok, {Port, _Version}} -> {known, Port, IsAsked};
        unknown when not IsAsked -> no_answer;
        UnknownOrNoAnswer -> UnknownOrNoAnswer
    end.
