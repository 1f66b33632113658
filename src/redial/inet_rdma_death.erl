%% Whether the peer of a link has ended: the verdict on the evidence that the dialer has collected.
%% Pure.
%%
%% A link whose connection was reported ended lives on while nothing answers in the peer's place, or
%% while something shows that the peer lives. The rules, in this order; the first that holds
%% decides:
%%
%%   evidence                                                           verdict   after
%%   a proved answer: the peer's VM, or a later VM of its node, does
%%     not know the session                                             dead      at once, also of a suspected path
%%   host witness: the peer's process of this host has ended            dead      at once, also of a suspected path
%%   a path carries the link                                            alive
%%   host witness: the peer's process lives                             alive
%%   the peer has proved the secret in an attempt since the loss        alive     PROVED_MS
%%   neighbour witness: the peer's VM has answered it since the loss    alive
%%   neighbour witness: it has proof of the end of the peer's VM        dead      at once
%%   an attempt has a connection                                        alive     until its answer is late
%%   EPMD was asked, and has the node with the peer's port              alive
%%   EPMD was asked, has known the node, and no longer does; the peer
%%     refuses                                                          dead      at once
%%   the connection ended in order, and nothing translates it; the
%%     peer's own address refuses                                       dead      at once
%%   the peer's own address refuses, or a neighbour presumes its end    dead      OWN_REFUSED_MS
%%   all addresses that led to the peer refuse, or close connections    dead      option refused_ms
%%   the connection ended in order, and nothing translates it; nothing
%%     answers                                                          dead      OWN_REFUSED_MS
%%   the connection ended in order, or EPMD of the peer's own address
%%     does not know the node; nothing answers                          dead      SILENT_MS
%%   anything else                                                      undecided the option survive_ms
%%
%% A proxy closes connections that it has accepted, before the peer has proved anything; so does a
%% host that is at a bound. What a stranger can send without the cookie or the secret counts as such
%% an end. An address is the peer's own (is_own) if the peer's very instance was reached there, and
%% nothing in between translates it; a router, a port forward, or a load balancer can refuse in the
%% peer's place at any other address.
%%
%% A verdict `dead` is proved if the peer's VM cannot have lived at that time. Only that is passed
%% on to neighbours as the end of the VM; what refusals and silence show is presumed.
-module(inet_rdma_death).

-export([verdict/1, outcome/1, is_refusal/1, refusal_bounds_ms/1, silence_bounds_ms/0]).
-export_type([
    facts/0, candidate/0, outcome/0, answer/0, name_server/0, witness/0, verdict/0, grade/0
]).

%% uncarried_ms: time since the last path was lost; none: a path carries the link, or is only
%% suspected. is_in_order: the other side has ended the last connection in order, so the peer's host
%% is well. is_direct: nothing translates that connection. is_under_way: an attempt has a
%% connection. has_answered: a connection was made since the loss, at an address that is not a
%% stranger's, and was not closed before a proof. refused_ms: the option. proved_ms: time since the
%% peer has last proved the secret in an attempt that failed afterwards. port: where the peer
%% listens, as it has announced.
-type facts() :: #{
    uncarried_ms := non_neg_integer() | none,
    is_in_order := boolean(),
    is_direct := boolean(),
    is_under_way := boolean(),
    has_answered := boolean(),
    refused_ms := timeout(),
    proved_ms := non_neg_integer() | none,
    host := witness(),
    neighbour := witness() | presumed,
    port := inet:port_number() | unknown,
    name_server := name_server(),
    candidates := [candidate()]
}.

%% What a witness says of the peer's VM.
-type witness() :: alive | dead | unknown.

%% answered: the peer's VM lives, and has ended the link.
-type grade() :: proved | presumed | answered.
-type verdict() :: {dead, grade(), Why :: binary()} | alive | undecided.

%% An address of the peer, with the outcome of the last attempt there. used: the address in use.
%% is_own: see above. is_reached: this node has reached the peer there, or the peer's name leads
%% there. is_here: an address of this host, at which the peer was not reached. has_epmd: the name
%% server is the EPMD of that host. refused_ms: time from the first to the last refusal there,
%% without another outcome between them.
-type candidate() :: #{
    origin := used | resolved | announced,
    port := inet:port_number(),
    is_own := boolean(),
    is_reached := boolean(),
    is_here := boolean(),
    has_epmd := boolean(),
    outcome := outcome(),
    refused_ms := non_neg_integer()
}.

%% refused: by a reset in place of a connection. closed: a connection has ended before a proof.
%% unreachable: this host has no route there. slow: a connection was made, and no answer came in
%% time. proved: the peer has proved the secret, and the attempt failed afterwards. stranger:
%% another node answers there.
-type outcome() ::
    none
    | refused
    | closed
    | unanswered
    | unreachable
    | slow
    | failed
    | proved
    | stranger
    | {unknown_session, answer()}.

%% Which VM has answered, and has proved the cookie. same: the peer's very instance. another: the
%% peer's name, another instance, or one that is not known.
-type answer() :: same | another.

%% What the name server says of the node. is_live: EPMD was asked; its registration ends with the
%% node. unknown: has_known says whether this name server has known the node, or runs on the host of
%% an own address.
-type name_server() ::
    {known, inet:port_number(), IsLive :: boolean()} | {unknown, HasKnown :: boolean()} | no_answer.

%% Time for which an own address refuses before the link ends without a word of the name server. A
%% listener that is closed for a moment is back by then. The same for silence after an end in order.
-define(OWN_REFUSED_MS, 1000).
%% Time of silence after which the link ends if the peer's host is well: more than two attempts of
%% two seconds, with two SYNs each. A load balancer that ends connections as it restarts answers
%% again by then, or has refused.
-define(SILENT_MS, 5500).
%% Time for which a proof of the secret counts. The attempts that follow bring others.
-define(PROVED_MS, 3000).

%% What an attempt to resume (inet_rdma_resume) has shown by its exit reason.
-spec outcome(term()) -> {outcome(), Why :: term()}.
outcome({{unknown_session, _}, _Why} = Shown) ->
    Shown;
outcome({Outcome, _Why} = Shown) when
    Outcome =:= refused;
    Outcome =:= closed;
    Outcome =:= unanswered;
    Outcome =:= unreachable;
    Outcome =:= slow;
    Outcome =:= failed;
    Outcome =:= proved;
    Outcome =:= stranger
->
    Shown;
outcome(SupersededOrCrash) ->
    {failed, SupersededOrCrash}.

%% Whether something answers there in the peer's place, or the peer's host, and proves nothing.
-spec is_refusal(outcome()) -> boolean().
is_refusal(Outcome) -> Outcome =:= refused orelse Outcome =:= closed.

%% Times for which refusals must have lasted for a verdict. Only a refusal at that time or later
%% shows that they have.
-spec refusal_bounds_ms(RefusedMs :: timeout()) -> [timeout()].
refusal_bounds_ms(RefusedMs) -> [?OWN_REFUSED_MS, RefusedMs].

%% The times after a loss at which the verdict may become another one without an event.
-spec silence_bounds_ms() -> [pos_integer()].
silence_bounds_ms() -> [?OWN_REFUSED_MS, ?SILENT_MS].

-spec verdict(facts()) -> verdict().
verdict(Facts) ->
    first(
        [
            fun answered/1,
            fun host/1,
            fun carried/1,
            fun shows_life/1,
            fun neighbour/1,
            fun under_way/1,
            fun name_server/1,
            fun ended_in_order/1,
            fun own_refuses/1,
            fun presumed/1,
            fun all_refuse/1,
            fun silence/1
        ],
        Facts
    ).

first([], _Facts) ->
    undecided;
first([Rule | Rules], Facts) ->
    case Rule(Facts) of
        undecided -> first(Rules, Facts);
        Verdict -> Verdict
    end.

answered(#{candidates := Candidates} = Facts) ->
    first([fun(_) -> answer(Candidate, Facts) end || Candidate <- Candidates], Facts).

answer(#{outcome := {unknown_session, same}}, _Facts) ->
    {dead, answered, <<"the peer no longer knows the link">>};
answer(#{outcome := {unknown_session, another}} = Candidate, Facts) ->
    case is_the_nodes(Candidate, Facts) of
        true -> {dead, proved, <<"the peer's node has been restarted">>};
        false -> undecided
    end;
answer(_Candidate, _Facts) ->
    undecided.

%% Whether a node that answers there with the peer's name is the node that has this name now.
is_the_nodes(#{is_own := true}, _Facts) -> true;
is_the_nodes(#{origin := resolved}, _Facts) -> true;
is_the_nodes(#{port := Port}, #{name_server := {known, Port, _}}) -> true;
is_the_nodes(_Candidate, _Facts) -> false.

host(#{host := dead}) -> {dead, proved, <<"the peer's process of this host has ended">>};
host(_Facts) -> undecided.

carried(#{uncarried_ms := none}) -> alive;
carried(_Facts) -> undecided.

shows_life(#{host := alive}) -> alive;
shows_life(#{proved_ms := Ms}) when Ms =/= none, Ms < ?PROVED_MS -> alive;
shows_life(#{neighbour := alive}) -> alive;
shows_life(_Facts) -> undecided.

%% Hearsay is passed on to nobody.
neighbour(#{neighbour := dead}) -> {dead, presumed, <<"a neighbour has seen the end of its VM">>};
neighbour(_Facts) -> undecided.

under_way(#{is_under_way := true}) -> alive;
under_way(_Facts) -> undecided.

%% EPMD, asked, would have missed the node's end. With another port another VM has the name.
name_server(#{name_server := {known, Port, true}, port := Announced}) when
    Port =:= Announced; Announced =:= unknown
->
    alive;
name_server(#{name_server := NameServer, candidates := Candidates}) ->
    HasGone =
        case NameServer of
            {unknown, HasKnown} -> HasKnown;
            {known, _OtherPort, IsLive} -> IsLive;
            no_answer -> false
        end,
    case {HasGone, own_refusals(Candidates)} of
        {true, [_ | _]} ->
            name_server_says(proved);
        {true, []} ->
            case {min_refused_ms(Candidates), has_closed_once(Candidates)} of
                {Ms, false} when Ms >= 0 -> name_server_says(presumed);
                _ -> undecided
            end;
        _ ->
            undecided
    end.

%% The kernel of a process that is ending may still accept a connection, and close it. The next
%% attempt there follows within RETRY_MS of inet_rdma_candidates, and its refusal is proof.
has_closed_once(Candidates) ->
    [] =/=
        [
            Candidate
         || #{is_own := true, outcome := closed, refused_ms := 0} = Candidate <- Candidates
        ].

name_server_says(Grade) ->
    {dead, Grade, <<"the peer refuses connections, and its name server no longer knows it">>}.

ended_in_order(#{is_in_order := true, is_direct := true, candidates := Candidates}) ->
    case own_refusals(Candidates) of
        [] ->
            undecided;
        _ ->
            {dead, proved,
                <<"the peer's host has ended its TCP connection in order, and refuses another">>}
    end;
ended_in_order(_Facts) ->
    undecided.

own_refuses(#{candidates := Candidates}) ->
    Long = [
        Port
     || #{refused_ms := Ms, port := Port} <- own_refusals(Candidates), Ms >= ?OWN_REFUSED_MS
    ],
    %% The name server may lead to another port, which must have refused, too.
    Others = [
        Port
     || #{origin := resolved, outcome := Outcome, port := Port} <- Candidates,
        Outcome =/= refused,
        not lists:member(Port, Long)
    ],
    case {Long, Others} of
        {[_ | _], []} -> {dead, presumed, <<"the peer refuses connections at its own address">>};
        _ -> undecided
    end.

%% Other neighbours have had the time to say that the peer's VM lives.
presumed(#{neighbour := presumed, uncarried_ms := Ms}) when Ms >= ?OWN_REFUSED_MS ->
    {dead, presumed, <<"the peer refuses connections of a neighbour">>};
presumed(_Facts) ->
    undecided.

own_refusals(Candidates) ->
    [Candidate || #{is_own := true, outcome := refused} = Candidate <- Candidates].

all_refuse(#{candidates := Candidates, refused_ms := BoundMs}) ->
    case min_refused_ms(Candidates) of
        Ms when Ms >= BoundMs, Ms >= 0 ->
            {dead, presumed,
                <<"every address that led to the peer refuses connections, or closes them">>};
        _ ->
            undecided
    end.

%% For how long all addresses that led to the peer have refused; -1: one of them does not.
%%
%% An address that the peer has announced may be one of another network. At an address of this host
%% at which the peer was not reached this host itself refuses. An address without a route shows
%% nothing; so does one in use at which the peer was never reached, as an acceptor only supposes
%% that its peer listens there, unless the peer's name leads to that host.
min_refused_ms(Candidates) ->
    Led = [
        Candidate
     || #{origin := Origin, is_here := false} = Candidate <- Candidates, Origin =/= announced
    ],
    Reached = [Candidate || Candidate <- Led, not is_supposed(Candidate)],
    Refused = [Ms || #{outcome := Outcome, refused_ms := Ms} <- Reached, is_refusal(Outcome)],
    Others = [
        Outcome
     || #{outcome := Outcome} <- Reached, not is_refusal(Outcome), Outcome =/= unreachable
    ],
    case {Refused, Others} of
        {[_ | _], []} -> lists:min(Refused);
        _ -> -1
    end.

is_supposed(#{origin := used, is_reached := false, has_epmd := false}) -> true;
is_supposed(_Candidate) -> false.

%% If the peer's process lives, its listener answers, or it connects itself.
silence(#{has_answered := false, uncarried_ms := Ms, candidates := Candidates} = Facts) ->
    Led = [Outcome || #{origin := Origin, outcome := Outcome} <- Candidates, Origin =/= announced],
    case Led =/= [] andalso not lists:member(refused, Led) of
        true -> silent(Ms, lists:member(unanswered, Led), Facts);
        false -> undecided
    end;
silence(_Facts) ->
    undecided.

silent(Ms, _IsUnanswered, #{is_in_order := true, is_direct := true}) when Ms >= ?OWN_REFUSED_MS ->
    ended_and_silent(proved);
silent(Ms, true, #{is_in_order := true}) when Ms >= ?SILENT_MS ->
    ended_and_silent(presumed);
silent(Ms, true, #{name_server := {unknown, _}, candidates := Candidates}) when Ms >= ?SILENT_MS ->
    case
        [
            Candidate
         || #{is_own := true, has_epmd := true, outcome := unanswered} = Candidate <- Candidates
        ]
    of
        [] ->
            undecided;
        _ ->
            {dead, presumed,
                <<"nothing answers at the peer's address, and EPMD there does not know it">>}
    end;
silent(_Ms, _IsUnanswered, _Facts) ->
    undecided.

ended_and_silent(Grade) ->
    {dead, Grade,
        <<"the other side ended its TCP connection, and nothing answers at its address">>}.
