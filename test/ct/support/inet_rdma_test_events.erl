%% Keeps what a node reports about its links: the metadata of log events, and what is executed by a
%% stand-in for the library telemetry. Runs in the node under test.
-module(inet_rdma_test_events).

-export([install/0, use_stand_in/1, logged/0, executed/0, log/2, execute/4, record/2]).

-spec install() -> ok.
install() ->
    %% A table dies with its owner, and the process of a call from the test ends with the call.
    _ = inet_rdma_test_ask:start(fun() ->
        {ets:new(?MODULE, [named_table, public, ordered_set]), fun() ->
            receive
                stop -> ok
            end
        end}
    end),
    ok = logger:set_primary_config(level, info),
    logger:add_handler(?MODULE, ?MODULE, #{}).

%% telemetry:execute/3 keeps what it is called with, and then never returns if it shall hang.
-spec use_stand_in(returns | hangs) -> ok.
use_stand_in(Then) ->
    Arguments = [{var, 1, Name} || Name <- ['Name', 'Measurements', 'Metadata']],
    Call =
        {call, 1, {remote, 1, {atom, 1, ?MODULE}, {atom, 1, execute}}, [
            {atom, 1, Then} | Arguments
        ]},
    Forms = [
        {attribute, 1, module, telemetry},
        {attribute, 1, export, [{execute, 3}]},
        {function, 1, execute, 3, [{clause, 1, Arguments, [], [Call]}]}
    ],
    {ok, Module, Beam} = compile:forms(Forms),
    {module, Module} = code:load_binary(Module, "stand_in", Beam),
    ok.

execute(Then, Name, Measurements, Metadata) ->
    insert(executed, {Name, Measurements, Metadata}),
    case Then of
        returns ->
            ok;
        hangs ->
            receive
                never -> ok
            end
    end.

%% The callback of logger.
log(#{meta := #{inet_rdma := _} = Metadata, level := Level}, _Config) ->
    insert(logged, {Level, maps:with([inet_rdma, inet_rdma_reason], Metadata)});
log(_Event, _Config) ->
    ok.

insert(Kind, What) ->
    ets:insert(?MODULE, {erlang:unique_integer([monotonic]), Kind, What}).

%% Oldest first.
-spec logged() -> [{logger:level(), map()}].
logged() -> kept(logged).

-spec executed() -> [{[atom()], Measurements :: map(), Metadata :: map()}].
executed() -> kept(executed).

kept(Kind) -> [What || {_, Is, What} <- ets:tab2list(?MODULE), Is =:= Kind].

%% Gives the flight recorder this number of events, which they have as their amounts.
-spec record(node(), pos_integer()) -> ok.
record(Node, Count) ->
    lists:foreach(
        fun(Number) -> inet_rdma_recorder:record(test, Node, #{amount => Number}) end,
        lists:seq(1, Count)
    ).
