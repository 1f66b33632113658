%% Who fills the links of this node, as their ports have counted it.
%%
%% Internal: use inet_rdma:top/0,1.
-module(inet_rdma_top).

-export([all/0, of_node/1, of_attribution/1, named/2, table/2, text/1, rate/1]).
-export_type([t/0, direction/0, heaviest/0, row/0, party/0]).

-type t() :: #{sent := direction(), received := direction()}.

%% Operations: as the protocol of the distribution names them, in small letters; other: what the
%% reader does not know. Bytes: of packets, without the lengths before them. Recent: in bytes per
%% second, of about the last ten seconds. All: bytes since the link came up. Off: none, or why
%% senders and targets are no longer known; what comes from then on is other.
-type direction() :: #{
    operations := #{atom() => {Messages :: non_neg_integer(), Bytes :: non_neg_integer()}},
    recent := heaviest(),
    all := heaviest(),
    off := none | binary()
}.

%% The total has all rows, also those that are not shown: 20 are, the heaviest first.
-type heaviest() :: #{total := non_neg_integer(), rows := [row()]}.

%% The bytes are at_least to at_most, exactly where both are the same. Percent: of at_least in the
%% total; 0 in all rows: many senders share the link.
-type row() :: #{
    operation := atom(),
    from := party(),
    to := party(),
    at_least := non_neg_integer(),
    at_most := non_neg_integer(),
    percent := 0..100
}.

%% A process of this node that lives has its registered name, its label (OTP 27 or later), or its
%% initial call, as they are now. {alias, Node}: any alias of a process there. unknown: the name is
%% forgotten. none: the message names none.
-type party() ::
    pid()
    | {pid(), atom() | mfa() | {label, term()}}
    | {name, atom()}
    | {alias, node()}
    | unknown
    | none.

-type answer() :: {ok, t()} | {error, no_link | other_carrier | attribution_off}.

-spec all() -> [{node(), answer()}].
all() ->
    [{Node, of_controller(Controller)} || {Node, Controller} <- erlang:system_info(dist_ctrl)].

-spec of_node(node()) -> answer().
of_node(Node) ->
    case lists:keyfind(Node, 1, erlang:system_info(dist_ctrl)) of
        {Node, Controller} -> of_controller(Controller);
        false -> {error, no_link}
    end.

of_controller(Controller) ->
    case is_port(Controller) andalso inet_rdma_port:is_link(Controller) of
        true -> of_port(inet_rdma_port:attribution(Controller));
        false -> {error, other_carrier}
    end.

of_port({ok, Attribution}) -> {ok, of_attribution(Attribution)};
of_port(none) -> {error, attribution_off};
of_port({error, closed}) -> {error, no_link}.

%% What a port has answered, with the names of this node's processes. Asks these processes.
-spec of_attribution(inet_rdma_port:attribution()) -> t().
of_attribution({Sent, Received}) -> #{sent => direction(Sent), received => direction(Received)}.

direction({Operations, Recent, All, Off}) ->
    #{
        operations => maps:from_list([
            {Name, {Messages, Bytes}}
         || {Name, Messages, Bytes} <- Operations
        ]),
        recent => heaviest(Recent),
        all => heaviest(All),
        off => Off
    }.

heaviest({Total, Rows}) ->
    #{total => round(Total), rows => [row(Row, Total) || Row <- Rows]}.

row({Operation, Sender, Target, AtLeast, AtMost}, Total) ->
    #{
        operation => Operation,
        from => party(Sender),
        to => party(Target),
        at_least => round(AtLeast),
        at_most => round(AtMost),
        percent => min(100, round(100 * AtLeast / max(Total, 1.0)))
    }.

party(Pid) when is_pid(Pid), node(Pid) =:= node() ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> {Pid, Name};
        [] -> {Pid, label(get_label(), Pid)};
        undefined -> Pid
    end;
party(Party) ->
    Party.

%% proc_lib:get_label/1, which OTP 25 and 26 lack. Made at run time, as Dialyzer and xref report
%% calls of functions that are absent.
get_label() -> {proc_lib, list_to_atom("get_label")}.

label({Module, Function}, Pid) ->
    case erlang:function_exported(Module, Function, 1) andalso Module:Function(Pid) of
        None when None =:= false; None =:= undefined -> initial_call(Pid);
        Label -> {label, Label}
    end.

initial_call(Pid) ->
    case {proc_lib:translate_initial_call(Pid), process_info(Pid, initial_call)} of
        %% No process of proc_lib.
        {{proc_lib, init_p, 5}, {initial_call, Call}} -> Call;
        {Call, _} -> Call
    end.

%% The heaviest of late by registered names, at most this many, the heaviest first, in bytes per
%% second. A row without a registered name is left out; where one of the two is no name it is empty.
-spec named(t(), Most :: pos_integer()) ->
    [{{sent | received, From :: atom() | <<>>, To :: atom() | <<>>}, non_neg_integer()}].
named(Top, Most) ->
    Rows = [
        {{Direction, registered(From), registered(To)}, Bytes}
     || Direction <- [sent, received],
        #{recent := #{rows := Rows}} <- [map_get(Direction, Top)],
        #{from := From, to := To, at_least := Bytes} <- Rows
    ],
    Sums = lists:foldl(
        fun({Key, Bytes}, Before) ->
            maps:update_with(Key, fun(Sum) -> Sum + Bytes end, Bytes, Before)
        end,
        #{},
        [Row || {{_, From, To}, _} = Row <- Rows, {From, To} =/= {<<>>, <<>>}]
    ),
    lists:sublist(lists:reverse(lists:keysort(2, maps:to_list(Sums))), Most).

registered({Pid, Name}) when is_pid(Pid), is_atom(Name) -> Name;
registered({name, Name}) -> Name;
registered(_Party) -> <<>>.

%% The heaviest rows of late, at most this many in each direction of each link, as a table. Empty: no
%% link counts its senders, or nothing has gone over them.
-spec table([{node(), answer()}], Most :: pos_integer()) -> unicode:chardata().
table(Answers, Most) ->
    Rows = [
        [
            name(Node),
            name(Direction),
            [integer_to_list(Percent), $%],
            rate(Rate),
            name(Operation),
            text(From),
            text(To)
        ]
     || {Node, {ok, Top}} <- Answers,
        Direction <- [sent, received],
        #{recent := #{rows := Heaviest}} <- [map_get(Direction, Top)],
        #{percent := Percent, at_most := Rate, operation := Operation, from := From, to := To} <-
            lists:sublist(Heaviest, Most)
    ],
    case Rows of
        [] -> [];
        _ -> inet_rdma_text:table([header() | Rows], " ")
    end.

header() -> ["Node", "Direction", "Share", "Rate", "Operation", "From", "To"].

%% Bytes per second in words.
-spec rate(non_neg_integer()) -> unicode:chardata().
rate(Bytes) when Bytes >= 10000000 -> io_lib:format("~b MB/s", [Bytes div 1000000]);
rate(Bytes) when Bytes >= 10000 -> io_lib:format("~b KB/s", [Bytes div 1000]);
rate(Bytes) -> io_lib:format("~b B/s", [Bytes]).

%% A party in words.
-spec text(party()) -> unicode:chardata().
text(Pid) when is_pid(Pid) -> pid_to_list(Pid);
text({Pid, Name}) when is_pid(Pid), is_atom(Name) -> [pid_to_list(Pid), " (", name(Name), ")"];
text({Pid, {label, Label}}) -> io_lib:format("~w (~0tP)", [Pid, Label, 10]);
text({Pid, {M, F, A}}) -> io_lib:format("~w (~tw:~tw/~b)", [Pid, M, F, A]);
text({name, Name}) -> name(Name);
text({alias, Node}) -> ["an alias of ", name(Node)];
text(unknown) -> "a forgotten name";
text(none) -> "none".

name(Name) -> atom_to_binary(Name).
