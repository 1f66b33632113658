%% The addresses at which a dialer tries to reach the peer of a link, in order: the address in use, what the node's name
%% leads to now, what the peer has told; and the look-up of the name.
%%
%% Each address has a pace of its own: the pause behind an attempt that failed doubles from 20 ms on. So have attempts
%% over a neighbour (inet_rdma_detour). Where the peer has accepted a connection and not answered in time, its host or
%% this one may be slow: the next attempt there has twice the time, and one such attempt is under way at a time, as
%% handshakes of TLS side by side slow each other down.
-module(inet_rdma_candidates).

-export([new/1, resolved/2, next/2, factor/2, started/2, ended/4, hurry/1, facts/4, knows/3, addresses/1]).
-export([detour_ms/1, detour_pause_ms/2]).
-export([look_up/2, has_descriptors/0]).
%% Spawned.
-export([looked_up/2]).
-export_type([t/0, found/0]).

%% Before all times of erlang:monotonic_time/1, which are negative for the most part.
-define(AT_ONCE, -(1 bsl 59)).

-record(candidate, {
    address :: inet_rdma_told:address(),
    origin :: used | resolved | told,
    is_own :: boolean(),
    %% Whether dialling this address has reached the peer's very instance.
    is_reached :: boolean(),
    outcome = none :: inet_rdma_death:outcome(),
    %% Since when every attempt was refused, and from when on another attempt is due, in milliseconds.
    refused_since = none :: integer() | none,
    due = ?AT_ONCE :: integer(),
    tries = 0 :: non_neg_integer(),
    %% The attempts before this one that the peer did not answer in time.
    slow = 0 :: non_neg_integer(),
    is_running = false :: boolean()
}).

-record(candidates, {
    told :: inet_rdma_told:state(),
    reached :: [inet_rdma_told:address()],
    %% The addresses of this host.
    host :: [inet:ip_address()],
    list = [] :: [#candidate{}]
}).

-opaque t() :: #candidates{}.

%% What a look-up has found: addresses of the listener, those of the name server, and what that says. asked: where EPMD
%% runs that says so; none: another name server does.
-type found() :: #{addresses := [inet_rdma_told:address()], servers := [inet:ip_address()],
                   asked := inet:ip_address() | none,
                   answer := {known, inet:port_number(), IsLive :: boolean()} | unknown | no_answer}.

-define(RETRY_MS, 20).
%% Of the time limits of an attempt: 12 s for a handshake of TLS then. An acceptor ends it after net_setuptime (7 s).
-define(DOUBLINGS_MAX, 2).
%% Up to this longest pause the caller is in a hurry.
-define(SHORT_PAUSE_MS_MAX, 1000).
-define(CANDIDATES_MAX, 16).
%% Time from the loss to the first attempt over a neighbour. The acceptor's comes later, as the initiator's would take
%% precedence.
-define(DETOUR_MS, 500).
-define(ACCEPTOR_DETOUR_MS, 1000).
%% The pauses behind such attempts: half of it or more, by chance, as a cut disturbs many links at once.
-define(DETOUR_PAUSE_MS, 1000).
-define(DETOUR_PAUSE_MS_MAX, 15000).
%% Descriptors that a look-up may need: a connection to the name server, and pipes to the resolver's program.
-define(DESCRIPTORS, 4).

%% peer: where the link's first connection has led; none: the peer accepted no connections. reached: later addresses, as
%% of inet_rdma_links:peer/1.
-spec new(#{peer := inet_rdma_told:address() | none, reached := [inet_rdma_links:reached()],
            told := inet_rdma_told:state()}) -> t().
new(#{peer := Peer, reached := Reached, told := Told}) ->
    Dialled = [Address || {dialled, Address} <- Reached],
    Empty = #candidates{told = Told, reached = Dialled, host = inet_rdma_ip:of_host()},
    Others = Dialled ++ [Peer || Peer =/= none],
    {Used, Former} = case {came_from(Reached, Told), Others} of
                         {{ok, From}, _} -> {[From], Others};
                         {none, [First | Rest]} -> {[First], Rest};
                         {none, []} -> {[], []}
                     end,
    told(Told, add(told, Former, add(used, Used, Empty))).

%% The peer has made the last connection itself, from this address of its host.
came_from([{from, Ip} | _], Told) ->
    case [Address || {Each, _} = Address <- inet_rdma_told:addresses(Told), Each =:= Ip] of
        [From] -> {ok, From};
        [] -> none
    end;
came_from(_, _) -> none.

%% The node's name leads to these addresses now.
-spec resolved([inet_rdma_told:address()], t()) -> t().
resolved(Addresses, #candidates{list = List} = Candidates) ->
    Kept = [Candidate || #candidate{origin = Origin, address = Address, is_running = IsRunning} = Candidate <- List,
                         Origin =/= resolved orelse IsRunning orelse lists:member(Address, Addresses)],
    add(resolved, Addresses, Candidates#candidates{list = Kept}).

%% The peer has told addresses. Those of this host lead to the peer only if they are its own, too.
told(Told, #candidates{host = Host} = Candidates) ->
    IsSameHost = inet_rdma_told:is_same_host(Told),
    Addresses = [Address || {Ip, _} = Address <- inet_rdma_told:addresses(Told),
                            IsSameHost orelse not lists:member(Ip, Host)],
    add(told, Addresses, Candidates#candidates{told = Told}).

add(Origin, Addresses, Candidates) ->
    lists:foldl(fun(Address, Next) -> add_one(Origin, Address, Next) end, Candidates, Addresses).

add_one(Origin, Address, #candidates{list = List, reached = Reached} = Candidates) ->
    IsReached = lists:member(Address, Reached),
    case lists:keyfind(Address, #candidate.address, List) of
        false when length(List) < ?CANDIDATES_MAX ->
            New = #candidate{address = Address, origin = Origin, is_own = false, is_reached = IsReached},
            {Before, After} = lists:splitwith(fun(Each) -> rank(Each) =< rank(New) end, List),
            Candidates#candidates{list = Before ++ [owned(New, Candidates) | After]};
        #candidate{origin = told} = Known when Origin =:= resolved ->
            Found = owned(Known#candidate{origin = resolved}, Candidates),
            Candidates#candidates{list = lists:keyreplace(Address, #candidate.address, List, Found)};
        _ ->
            Candidates
    end.

rank(#candidate{origin = used}) -> 0;
rank(#candidate{origin = resolved}) -> 1;
rank(#candidate{origin = told}) -> 2.

owned(Candidate, #candidates{told = Told, host = Host}) ->
    Candidate#candidate{is_own = is_own(Candidate, Told, Host)}.

%% Whether a refusal there is the peer's own. A peer that tells nothing runs an earlier version, or has ended at once.
%% The peer's own port and address show that nothing in between translates them. Loopback is the peer's only on one
%% host; another host of a private network may have the same address, unless the peer was reached there.
is_own(#candidate{origin = Origin}, Told, _Host) when Told =:= none; Told =:= awaited ->
    Origin =/= told;
is_own(#candidate{address = {Ip, Port}, origin = Origin, is_reached = IsReached}, Told, Host) ->
    Port =:= inet_rdma_told:port(Told) andalso
        case lists:member(Ip, Host) orelse inet_rdma_ip:is_loopback(Ip) of
            true -> inet_rdma_told:accepts_here(Ip, Told);
            false -> (Origin =:= used orelse IsReached)
                         andalso lists:keymember(Ip, 1, inet_rdma_told:addresses(Told))
        end.

%% The address at which an attempt has been due for the longest time; else when the next one is.
-spec next(NowMs :: integer(), t()) -> {due, inet_rdma_told:address()} | {at, Ms :: integer()} | none.
next(NowMs, #candidates{list = List}) ->
    HasSlow = lists:any(fun(#candidate{slow = Slow, is_running = Is}) -> Is andalso Slow > 0 end, List),
    case lists:keysort(1, [{Due, Address} || #candidate{due = Due, address = Address, is_running = false, slow = Slow}
                                                 <- List, Slow =:= 0 orelse not HasSlow])
    of
        [{Due, First} | _] when Due =< NowMs -> {due, First};
        [{Due, _} | _] -> {at, Due};
        [] -> none
    end.

%% Of the time limits of an attempt there.
-spec factor(inet_rdma_told:address() | detour, t()) -> pos_integer().
factor(detour, _Candidates) ->
    1;
factor(Address, #candidates{list = List}) ->
    #candidate{slow = Slow} = lists:keyfind(Address, #candidate.address, List),
    1 bsl min(Slow, ?DOUBLINGS_MAX).

-spec started(inet_rdma_told:address(), t()) -> t().
started(Address, Candidates) ->
    change(Address, fun(Candidate) -> Candidate#candidate{is_running = true} end, Candidates).

%% An attempt there has ended. interrupted: another attempt has taken its place. PauseMsMax: the longest pause. True:
%% the outcome is another one than before.
-spec ended(inet_rdma_told:address(), inet_rdma_death:outcome() | interrupted,
            {NowMs :: integer(), PauseMsMax :: pos_integer()}, t()) -> {IsNew :: boolean(), t()}.
ended(Address, interrupted, {NowMs, _}, Candidates) ->
    {false, change(Address, fun(Candidate) -> Candidate#candidate{is_running = false, due = NowMs} end, Candidates)};
ended(Address, Outcome, {NowMs, PauseMsMax}, #candidates{list = List} = Candidates) ->
    IsNew = case lists:keyfind(Address, #candidate.address, List) of
                #candidate{outcome = Outcome} -> false;
                _ -> true
            end,
    {IsNew, change(Address, fun(Candidate) -> failed(Outcome, NowMs, PauseMsMax, Candidate) end, Candidates)}.

failed(Outcome, NowMs, PauseMsMax, #candidate{tries = Tries, refused_since = Since, slow = Before} = Candidate) ->
    %% An attempt that nothing has answered was pause enough.
    PauseMs = case Outcome of
                  unanswered when PauseMsMax =< ?SHORT_PAUSE_MS_MAX -> ?RETRY_MS;
                  _ -> min(PauseMsMax, ?RETRY_MS bsl min(Tries, 16))
              end,
    RefusedSince = case Outcome of
                       refused when Since =:= none -> NowMs;
                       refused -> Since;
                       _ -> none
                   end,
    Slow = case Outcome of
               slow -> Before + 1;
               failed -> Before;
               _ -> 0
           end,
    Candidate#candidate{is_running = false, outcome = Outcome, tries = Tries + 1, slow = Slow,
                        refused_since = RefusedSince, due = due(RefusedSince, NowMs, NowMs + PauseMs)}.

%% An attempt at the time when refusals have lasted for long enough.
due(none, _NowMs, Due) -> Due;
due(Since, NowMs, Due) ->
    case Since + inet_rdma_death:refused_ms() of
        Long when Long > NowMs -> min(Long, Due);
        _ -> Due
    end.

change(Address, Change, #candidates{list = List} = Candidates) ->
    Candidates#candidates{list = [case Candidate of
                                      #candidate{address = Address} -> Change(Candidate);
                                      _ -> Candidate
                                  end || Candidate <- List]}.

%% Attempts are due everywhere, pauses are short again, and no address is slow.
-spec hurry(t()) -> t().
hurry(#candidates{list = List} = Candidates) ->
    Candidates#candidates{list = [Candidate#candidate{due = ?AT_ONCE, tries = 0, slow = 0} || Candidate <- List]}.

%% The time from the loss to the first attempt over a neighbour.
-spec detour_ms(initiator | acceptor) -> pos_integer().
detour_ms(initiator) -> ?DETOUR_MS;
detour_ms(acceptor) -> ?ACCEPTOR_DETOUR_MS.

%% The pause behind such an attempt, by the reason for which it has failed and the number of those before. To find that
%% there is no neighbour costs no message.
-spec detour_pause_ms(Why :: term(), Failed :: non_neg_integer()) -> pos_integer().
detour_pause_ms(no_neighbour, _Failed) ->
    ?DETOUR_PAUSE_MS;
detour_pause_ms(_Why, Failed) ->
    Half = min(?DETOUR_PAUSE_MS_MAX, ?DETOUR_PAUSE_MS bsl min(Failed, 4)) div 2,
    Half + erlang:phash2(erlang:unique_integer(), Half).

%% For the verdict. Asked: as in found().
-spec facts(NowMs :: integer(), inet_rdma_death:name_server(), Asked :: inet:ip_address() | none, t()) -> map().
facts(NowMs, NameServer, Asked, #candidates{list = List, told = Told}) ->
    #{name_server => NameServer,
      is_same_host => inet_rdma_told:is_same_host(Told),
      candidates => [#{origin => Origin, port => Port, is_own => IsOwn, outcome => Outcome, has_epmd => Ip =:= Asked,
                       refused_ms => case Since of none -> 0; _ -> NowMs - Since end}
                     || #candidate{origin = Origin, address = {Ip, Port}, is_own = IsOwn, outcome = Outcome,
                                   refused_since = Since} <- List]}.

%% Whether a word of a name server at these addresses about the node is the peer's host's. HasKnown: the name server has
%% known the node.
-spec knows(HasKnown :: boolean(), [inet:ip_address()], t()) -> boolean().
knows(HasKnown, Servers, #candidates{list = List}) ->
    HasKnown orelse [] =/= [Ip || #candidate{address = {Ip, _}, is_own = true} <- List, lists:member(Ip, Servers)].

-spec addresses(t()) -> [inet_rdma_told:address()].
addresses(#candidates{list = List}) -> [Address || #candidate{address = Address} <- List].

%% Looks the node up, in a process linked to the caller, whose exit reason is {found, found()}. A name server may take
%% long to answer, or not answer at all.
-spec look_up(Node :: binary(), inet_rdma_transport:driver()) -> pid().
look_up(Node, Driver) -> spawn_link(?MODULE, looked_up, [Node, Driver]).

%% Whether a look-up finds the descriptors that it needs. Without them OTP's resolver logs errors.
-spec has_descriptors() -> boolean().
has_descriptors() ->
    Opened = [prim_inet:open(tcp, inet, stream) || _ <- lists:seq(1, ?DESCRIPTORS)],
    _ = [prim_inet:close(Socket) || {ok, Socket} <- Opened],
    lists:all(fun(Result) -> element(1, Result) =:= ok end, Opened).

-spec looked_up(Node :: binary(), inet_rdma_transport:driver()) -> no_return().
looked_up(Node, Driver) ->
    {Name, Host} = inet_rdma_tcp:name_and_host(Node),
    IsEpmd = net_kernel:epmd_module() =:= erl_epmd,
    exit({found, case inet_rdma_tcp:places(Driver, Name, Host) of
                     [{Ip, {Port, _Version}}] -> found([Ip], none, {known, Port, false});
                     [{Ip, unknown} | _] = Places ->
                         Asked = case IsEpmd of true -> Ip; false -> none end,
                         found([Each || {Each, unknown} <- Places], Asked, asked(Name, Ip, IsEpmd));
                     [] -> found([], none, no_answer)
                 end}).

found(Ips, Asked, Answer) ->
    Addresses = case Answer of
                    {known, Port, _} -> [{Ip, Port} || Ip <- Ips];
                    _ -> []
                end,
    #{addresses => Addresses, servers => Ips, asked => Asked, answer => Answer}.

%% EPMD drops a node when that ends. What another module answers may be a constant.
asked(Name, Ip, IsEpmd) ->
    case inet_rdma_tcp:port_please(Name, Ip) of
        {ok, {Port, _Version}} -> {known, Port, IsEpmd};
        UnknownOrNoAnswer -> UnknownOrNoAnswer
    end.
