%% What the native library and the Erlang modules must both know: reasons of errors and their texts,
%% options, numbers.
-module(errors_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    each_native_reason_has_a_text/1,
    each_option_is_known_to_both_sides/1,
    each_value_of_an_option_is_taken/1
]).
-export([each_value_is_known_to_both_sides/1]).
-export([each_name_of_a_port_is_in_its_type/1, each_notice_is_handled/1, each_loss_has_a_text/1]).
-export([
    each_number_is_known_to_both_sides/1,
    numbers_and_options_differ_in_name/1,
    texts_say_what_failed/1
]).

suite() ->
    [{timetrap, {minutes, 1}}].

all() ->
    [
        each_native_reason_has_a_text,
        each_option_is_known_to_both_sides,
        each_value_of_an_option_is_taken,
        each_value_is_known_to_both_sides,
        each_number_is_known_to_both_sides,
        numbers_and_options_differ_in_name,
        texts_say_what_failed,
        each_name_of_a_port_is_in_its_type,
        each_notice_is_handled,
        each_loss_has_a_text
    ].

init_per_suite(Config) ->
    ok = inet_rdma_nif:load(),
    Config.

end_per_suite(_Config) ->
    ok.

each_native_reason_has_a_text(_Config) ->
    Shapes = inet_rdma_nif:reason_shapes(),
    ?assert(length(lists:append([Names || {_, Names} <- Shapes])) > 60),
    Without = [
        Reason
     || {Group, Names} <- Shapes,
        Shape <- Names,
        Reason <- reasons(Group, Shape),
        not has_text(Reason)
    ],
    ?assertEqual([], Without).

%% What has no text is printed as it is, alone or after a text for its group.
has_text(Reason) ->
    try inet_rdma:format_error(Reason) of
        Text ->
            AsItIs = [print(Reason) | [print(Inner) || {_, Inner} <- [Reason]]],
            not lists:any(fun(Printed) -> lists:suffix(Printed, Text) end, AsItIs)
    catch
        error:_ -> false
    end.

print(Term) -> lists:flatten(io_lib:format("~tp", [Term])).

reasons(reason, Shape) -> [sample(Shape)];
reasons(misbehaviour, Shape) -> [{peer_misbehaved, sample(Shape)}];
reasons(shm_directory, Shape) -> [{shm_directory, <<"/run/a">>, sample(Shape)}];
reasons(Group, Shape) -> [{Group, sample(Shape)}].

%% Fields are numbers, but for those that are terms of another group, or texts.
sample({Name, Fields}) ->
    case {Name, Fields} of
        {_, 0} -> Name;
        {peer_misbehaved, 1} -> {Name, finish_twice};
        {bad_hello, 1} -> {Name, not_a_hello};
        {only_strangers, 2} -> {Name, 3, wrong_token};
        {limits, 1} -> {Name, no_adverts};
        {unavailable, 1} -> {Name, no_device};
        {rejected, 1} -> {Name, busy};
        {no_descriptors, 1} -> {Name, emfile};
        {connection_manager, 1} -> {Name, eio};
        {Verbs, 2} when Verbs =:= verbs; Verbs =:= system -> {Name, creating_an_event, emfile};
        {Text, 1} when Text =:= no_route; Text =:= panicked; Text =:= field -> {Name, <<"a text">>};
        {device_event, 2} -> {Name, <<"rxe0">>, <<"fatal">>};
        {option_unknown, 1} -> {Name, ack_timeout_ms};
        {self_test, 3} -> {Name, <<"rxe0">>, [inline, gather], true};
        {device_limit, 3} -> {Name, <<"rxe0">>, 7, 8};
        {shm_directory, 2} -> {Name, <<"/run/a">>, missing};
        {system, 1} -> {Name, eio};
        {answer_event, 2} -> {Name, <<"event">>, -7};
        {target_outside, 1} -> {Name, {1, 2}};
        {write_outside, 2} -> {Name, {1, 2}, 3};
        {ring_elsewhere, 1} -> {Name, {1, 2}};
        _ -> list_to_tuple([Name | lists:seq(7, 6 + Fields)])
    end.

each_option_is_known_to_both_sides(_Config) ->
    Config = config(),
    Native = [Key || {Key, native, _, _} <- inet_rdma_options:list()],
    ?assertEqual(lists:sort(Native), lists:sort(maps:keys(inet_rdma_nif:taken(Config)))),
    %% One that it does not get is no config.
    [?assertError(badarg, inet_rdma_nif:taken(maps:remove(Key, Config))) || Key <- Native].

each_value_of_an_option_is_taken(_Config) ->
    Config = config(),
    [
        ?assertMatch(#{Key := Value}, inet_rdma_nif:taken(Config#{Key := Value}))
     || {Key, native, Type, _} <- inet_rdma_options:list(), Value <- values(Type)
    ].

each_value_is_known_to_both_sides(_Config) ->
    Values = [
        {Key, lists:sort(Atoms)}
     || {Key, native, {one_of, Atoms}, _} <- inet_rdma_options:list()
    ],
    Native = [{Key, lists:sort(Atoms)} || {Key, Atoms} <- inet_rdma_nif:option_values()],
    ?assertEqual(lists:sort(Values), lists:sort(Native)).

values({integer, Min, Max, _Unit}) -> [Min, Max];
values({zero_or, Min, Max, _Unit}) -> [0, Min, Max];
values({one_of, Atoms}) -> Atoms.

config() -> maps:from_list([{Key, Default} || {Key, _, _, Default} <- inet_rdma_options:list()]).

%% inet_rdma_counts, and the numbers of the native library: of a link's port, and of a queue pair.
each_number_is_known_to_both_sides(_Config) ->
    Numbers = inet_rdma_nif:link_numbers(),
    Groups = [
        {counts, [port, session], []},
        {sealing, [sealing], []},
        {compression, [compression], []},
        {round_trips, [round_trips], []}
    ],
    ?assertEqual(
        lists:sort([Command || {Command, _, _} <- Groups]),
        lists:sort([Command || {Command, _} <- Numbers])
    ),
    [
        ?assertEqual(
            {Command,
                lists:sort(
                    lists:append([Own | [inet_rdma_counts:keys(Origin) || Origin <- Origins]])
                )},
            {Command, lists:sort(proplists:get_value(Command, Numbers))}
        )
     || {Command, Origins, Own} <- Groups
    ],
    {ok, Listener} = inet_rdma:listen(0, [{fabric, shm}]),
    {ok, Port} = inet_rdma:port(Listener),
    {ok, Socket} = inet_rdma:connect({127, 0, 0, 1}, Port, [{fabric, shm}]),
    Info = inet_rdma:info(Socket),
    ok = inet_rdma:close(Socket),
    ok = inet_rdma:close(Listener),
    ?assertEqual(
        lists:sort([percent_direct_sent, percent_direct_received | inet_rdma_counts:keys(pair)]),
        lists:sort(maps:keys(Info))
    ).

%% A number has another name than each option.
numbers_and_options_differ_in_name(_Config) ->
    Options = [Key || {Key, _, _, _} <- inet_rdma_options:list()],
    ?assertEqual([], [
        Key
     || {Key, Kind, _, _, _, _} <- inet_rdma_counts:list(),
        Kind =:= counter orelse Kind =:= gauge,
        lists:member(Key, Options)
    ]).

texts_say_what_failed(_Config) ->
    [
        ?assertEqual(Text, inet_rdma:format_error(Reason))
     || {Reason, Text} <- [
            {econnrefused, "nobody listens there"},
            {{system, creating_an_event, emfile}, "creating an event: too many open files"},
            {{verbs, creating_a_queue_pair, enomem}, "creating a queue pair: not enough memory"},
            {
                {verbs, completion, {retry_exc_err, 129}},
                "the peer no longer answers: retry_exc_err (vendor error 129)"
            },
            {
                {only_strangers, 2, wrong_token},
                "timed out; 2 other peers were refused, the last one because: "
                "the peer does not know the token of this settlement"
            },
            {{not_found, <<"no library">>}, "no library"},
            {nxdomain, "non-existing domain"}
        ]
    ].

%% The library was loaded, so it has the same names (code_SUITE: it is refused otherwise).
each_name_of_a_port_is_in_its_type(_Config) ->
    Lists = [
        {command, inet_rdma_interface:commands()},
        {notice_name, inet_rdma_interface:notices()},
        {loss, inet_rdma_interface:losses()}
    ],
    Unions = [
        {Type, Names}
     || {attribute, _, type, {Type, {type, _, union, Names}, []}} <- forms(inet_rdma_interface)
    ],
    Types = maps:from_list([
        {Type, lists:sort([Name || {atom, _, Name} <- Names])}
     || {Type, Names} <- Unions
    ]),
    [
        ?assertEqual({Type, lists:sort(Names)}, {Type, maps:get(Type, Types)})
     || {Type, Names} <- Lists
    ].

%% Each notice has a clause of its own, and there is none for all others.
each_notice_is_handled(_Config) ->
    [Clauses] = [
        Clauses
     || {function, _, handle_notice, 2, Clauses} <- forms(inet_rdma_session_events)
    ],
    Handled = [notice(Pattern) || {clause, _, [Pattern, _Guarded], _, _} <- Clauses],
    ?assertEqual(lists:sort(inet_rdma_interface:notices()), lists:usort(Handled)).

notice({atom, _, Name}) -> Name;
notice({tuple, _, [{atom, _, Name}, _Detail]}) -> Name.

each_loss_has_a_text(_Config) ->
    Own = inet_rdma_interface:losses() -- [system],
    Texts = [inet_rdma_link_event:why_lost(Loss) || Loss <- Own],
    ?assertEqual(length(Own), length(lists:usort(Texts))),
    [
        ?assertEqual({Text, nomatch}, {Text, string:find(Text, "unknown POSIX error")})
     || Text <- Texts
    ],
    ?assertEqual(
        <<"connection reset by peer, econnreset">>, inet_rdma_link_event:why_lost(econnreset)
    ).

forms(Module) ->
    {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}]}} =
        beam_lib:chunks(code:which(Module), [abstract_code]),
    Forms.
