%% Whether the peer of a link that no path carries has ended: the verdict on what attempts to reach it have shown. Pure.
%%
%% Something in between can refuse a connection in the peer's place: a router, a port forward, a load balancer, the
%% loopback interface behind a forward; and at an address of the peer another node can answer. So a refusal and an
%% answer that does not know the session count only where they are the peer's own: see is_own and answer() below.
%% Anything else is an attempt that failed. The link has survive_ms then.
-module(inet_rdma_death).

-export([verdict/1, outcome/1, refused_ms/0]).
-export_type([facts/0, candidate/0, outcome/0, answer/0, name_server/0]).

%% is_in_order: the other side has ended the last connection in order, so the peer's host is well. uncarried_ms: for how
%% long no path has carried the link; none: one does. is_under_way: an attempt has a connection. is_same_host: as of
%% inet_rdma_told. has_answered: a connection was made since the loss, at an address that is not a stranger's.
-type facts() :: #{is_in_order := boolean(), uncarried_ms := non_neg_integer() | none, is_under_way := boolean(),
                   is_same_host := boolean(), has_answered := boolean(), name_server := name_server(),
                   candidates := [candidate()]}.

%% An address of the peer, with the outcome of the last attempt there. used: the address in use. is_own: the peer's very
%% instance was reached there, and nothing in between translates the address. has_epmd: the name server is the EPMD of
%% that host. refused_ms: for how long it has refused every attempt.
-type candidate() :: #{origin := used | resolved | told, port := inet:port_number(), is_own := boolean(),
                       has_epmd := boolean(), outcome := outcome(), refused_ms := non_neg_integer()}.

%% unreachable: this host has no route there. slow: a connection was made, and no answer came in time.
-type outcome() :: none | refused | unanswered | unreachable | slow | failed | {unknown_session, answer()}
                 | {tls_refuses, Alert :: binary()}.

%% How a node that does not know the session names itself. same: the peer's very instance. anew: the peer's name,
%% another instance, or one that is not known. stranger: another node. unsaid: an earlier version.
-type answer() :: same | anew | stranger | unsaid.

%% What the name server says of the node. is_live: the registration ends with the node, as EPMD's does. unknown:
%% is_known says whether this name server has known the node, or runs on the host of an own address.
-type name_server() :: {known, inet:port_number(), IsLive :: boolean()} | {unknown, HasKnown :: boolean()} | no_answer.

%% For how long an own address refuses before the link ends without a word of the name server: a listener that is closed
%% for a moment is back by then.
-define(REFUSED_MS, 1000).
%% Time after which the link ends if the peer's host shows that it is well and nothing answers: more than two attempts
%% of two seconds, with two SYNs each. A load balancer that ends connections as it starts anew answers again by then, or
%% has refused.
-define(SILENT_MS, 5500).

%% What an attempt to resume (inet_rdma_resume) has shown by its exit reason.
-spec outcome(term()) -> {outcome(), Why :: term()}.
outcome({Outcome, Why}) when Outcome =:= refused; Outcome =:= unanswered; Outcome =:= unreachable; Outcome =:= slow;
                             Outcome =:= failed; element(1, Outcome) =:= unknown_session;
                             element(1, Outcome) =:= tls_refuses ->
    {Outcome, Why};
outcome(SupersededOrCrash) ->
    {failed, SupersededOrCrash}.

-spec refused_ms() -> pos_integer().
refused_ms() -> ?REFUSED_MS.

-spec verdict(facts()) -> {dead, Why :: binary()} | alive | undecided.
verdict(#{uncarried_ms := none}) -> alive;
verdict(#{is_under_way := true}) -> alive;
verdict(#{candidates := Candidates} = Facts) ->
    first([fun() -> answers(Candidate, Facts) end || Candidate <- Candidates]
          ++ [fun() -> refusals(Facts) end, fun() -> silence(Facts) end]).

first([]) -> undecided;
first([Rule | Rules]) ->
    case Rule() of
        undecided -> first(Rules);
        Verdict -> Verdict
    end.

%% The link does not exist at the peer any more.
answers(#{outcome := {unknown_session, same}}, _Facts) ->
    {dead, <<"its TCP connection ended, and the peer does not know the link any more">>};
answers(#{outcome := {unknown_session, anew}} = Candidate, Facts) ->
    case is_the_nodes(Candidate, Facts) of
        true -> {dead, <<"its TCP connection ended, and the peer has been started anew">>};
        false -> undecided
    end;
answers(#{outcome := {unknown_session, unsaid}, is_own := true}, _Facts) ->
    {dead, <<"its TCP connection ended, and the peer does not know the link any more">>};
%% If one side's certificate is no longer accepted, the peer counts as ended.
answers(#{outcome := {tls_refuses, Alert}, is_own := IsOwn, origin := Origin}, _Facts) when IsOwn; Origin =:= used ->
    {dead, <<"its TCP connection ended, and TLS refuses another: ", Alert/binary>>};
answers(_Candidate, _Facts) ->
    undecided.

%% Whether a node that answers there with the peer's name is the node that has this name now.
is_the_nodes(#{is_own := true}, _Facts) -> true;
is_the_nodes(#{origin := resolved}, _Facts) -> true;
is_the_nodes(#{port := Port}, #{name_server := {known, Port, _}}) -> true;
is_the_nodes(_Candidate, _Facts) -> false.

refusals(#{name_server := NameServer, candidates := Candidates} = Facts) ->
    Own = [Candidate || #{is_own := true, outcome := refused} = Candidate <- Candidates],
    case NameServer of
        {unknown, _} when Own =/= [] -> refused();
        {unknown, true} -> all_refuse(Candidates);
        %% The name server would have missed the node's end.
        {known, _, true} -> alive;
        _ -> refused_for_long(Own, Candidates, Facts)
    end.

refused() -> {dead, <<"its TCP connection ended, and the peer refuses another: its node has ended">>}.

%% An address that the peer has told may be one of another network.
all_refuse(Candidates) ->
    Outcomes = [Outcome || #{origin := Origin, outcome := Outcome} <- Candidates, Origin =/= told],
    case Outcomes =/= [] andalso lists:all(fun(Outcome) -> Outcome =:= refused end, Outcomes) of
        true -> refused();
        false -> undecided
    end.

%% A firewall that resets and refuses in the peer's name ends no connection in order, and none of one host.
refused_for_long(Own, Candidates, #{is_in_order := IsInOrder, is_same_host := IsSameHost}) ->
    IsLong = lists:any(fun(#{refused_ms := Ms}) -> Ms >= ?REFUSED_MS end, Own),
    %% The name server may lead to another port, which must have refused, too.
    Others = [Outcome || #{origin := resolved, outcome := Outcome} <- Candidates, Outcome =/= refused],
    case IsLong andalso Others =:= [] andalso (IsInOrder orelse IsSameHost) of
        true -> refused();
        false -> undecided
    end.

%% After an end in order the peer's host is well, or if its EPMD answers, which does not know the node: the kernel of a
%% killed node resets a connection from which the node has not read all. If the peer's process lives, too, its listener
%% answers, or it connects by itself.
silence(#{has_answered := false, uncarried_ms := Ms, candidates := Candidates} = Facts) when Ms >= ?SILENT_MS ->
    Used = [Outcome || #{origin := Origin, outcome := Outcome} <- Candidates, Origin =/= told],
    case lists:member(unanswered, Used) andalso not lists:member(refused, Used) of
        true -> silent(Facts);
        false -> undecided
    end;
silence(_Facts) ->
    undecided.

silent(#{is_in_order := true}) ->
    {dead, <<"the other side ended its TCP connection, and nothing answers at its address">>};
silent(#{name_server := {unknown, _}, candidates := Candidates}) ->
    case [Candidate || #{is_own := true, has_epmd := true, outcome := unanswered} = Candidate <- Candidates] of
        [] -> undecided;
        _ -> {dead, <<"its TCP connection ended, nothing answers at its address, and EPMD there does not know it">>}
    end;
silent(_Facts) ->
    undecided.
