%% What a collector of prometheus.erl gives, as terms: from the library, or from a stand-in for the
%% one function of it that inet_rdma_prometheus_collector calls. Runs in the node under test.
-module(inet_rdma_test_metrics).

-export([use_library/1, use_stand_in/0, collect/1, text/1, printed/3]).
-export_type([family/0]).

-type family() :: {Name :: binary(), gauge | counter, [{#{binary() => binary()}, number()}]}.

%% The directories of the library's beams.
-spec use_library([file:filename()]) -> ok.
use_library(Directories) ->
    ok = code:add_pathsz(Directories),
    {ok, _} = application:ensure_all_started(prometheus),
    ok.

%% Records what create_mf/4 is called with.
-spec use_stand_in() -> ok.
use_stand_in() ->
    Forms = [
        {attribute, 1, module, prometheus_model_helpers},
        {attribute, 1, export, [{create_mf, 4}]},
        {function, 1, create_mf, 4, [
            {clause, 1, [{var, 1, Name} || Name <- ['Name', '_Help', 'Type', 'Metrics']], [], [
                {tuple, 1, [
                    {atom, 1, stand_in}, {var, 1, 'Name'}, {var, 1, 'Type'}, {var, 1, 'Metrics'}
                ]}
            ]}
        ]}
    ],
    {ok, Module, Beam} = compile:forms(Forms),
    {module, Module} = code:load_binary(Module, "stand_in", Beam),
    ok.

-spec collect(module()) -> [family()].
collect(Collector) ->
    Parent = self(),
    Tag = make_ref(),
    ok = Collector:collect_mf(default, fun(Family) -> Parent ! {Tag, family(Family)} end),
    received(Tag).

received(Tag) ->
    receive
        {Tag, Family} -> [Family | received(Tag)]
    after 0 -> []
    end.

family({stand_in, Name, Type, Metrics}) ->
    {Name, Type, [
        {maps:from_list([{text_of(Key), text_of(Label)} || {Key, Label} <- Labels]), Value}
     || {Labels, Value} <- Metrics
    ]};
%% Records of prometheus_model.hrl.
family(Family) ->
    ['MetricFamily', Name, _Help, Type, Metrics | _] = tuple_to_list(Family),
    {iolist_to_binary(Name), type(Type), [metric(Metric) || Metric <- Metrics]}.

type('GAUGE') -> gauge;
type('COUNTER') -> counter.

metric(Metric) ->
    ['Metric', Labels | Kinds] = tuple_to_list(Metric),
    [Value] = [Number || {Kind, Number} <- Kinds, Kind =:= 'Gauge' orelse Kind =:= 'Counter'],
    {
        maps:from_list([{text_of(Key), text_of(Label)} || {'LabelPair', Key, Label} <- Labels]),
        Value
    }.

text_of(Atom) when is_atom(Atom) -> atom_to_binary(Atom);
text_of(Text) -> iolist_to_binary(Text).

%% What a call prints, by a group leader that keeps it.
-spec printed(module(), atom(), [term()]) -> string().
printed(Module, Function, Arguments) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        receive
            {group_leader, Leader} -> group_leader(Leader, self())
        end,
        ok = apply(Module, Function, Arguments)
    end),
    Pid ! {group_leader, self()},
    keep(Pid, Monitor, []).

keep(Pid, Monitor, Kept) ->
    receive
        {io_request, From, Ref, {put_chars, unicode, Text}} ->
            From ! {io_reply, Ref, ok},
            keep(Pid, Monitor, [Kept, unicode:characters_to_list(Text)]);
        {'DOWN', Monitor, process, Pid, normal} ->
            lists:flatten(Kept)
    end.

%% What the library shows to Prometheus.
-spec text(module()) -> binary().
text(Collector) ->
    ok = prometheus_registry:register_collector(?MODULE, Collector),
    prometheus_text_format:format(?MODULE).
