%% Keeps a node's log events so that a test can ask what was logged. Runs in the node under test.
-module(inet_rdma_test_log).

-export([install/0, lines/0, forget/0, contains/1, log/2]).

-spec install() -> ok.
install() ->
    Caller = self(),
    %% A table dies with its owner, and the process of a call from the test ends with the call.
    Owner = spawn(fun() ->
        ets:new(?MODULE, [named_table, public, ordered_set]),
        Caller ! {self(), ready},
        receive stop -> ok end
    end),
    receive {Owner, ready} -> ok end,
    logger:add_handler(?MODULE, ?MODULE, #{}).

%% One string per event, oldest first.
-spec lines() -> [string()].
lines() ->
    [Line || {_, Line} <- ets:tab2list(?MODULE)].

-spec forget() -> ok.
forget() ->
    true = ets:delete_all_objects(?MODULE),
    ok.

%% Has an event been logged whose text contains this, in any case?
-spec contains(string()) -> boolean().
contains(Text) ->
    Wanted = string:lowercase(Text),
    lists:any(fun(Line) -> string:find(string:lowercase(Line), Wanted) =/= nomatch end, lines()).

%% The callback of logger.
log(Event, _Config) ->
    Line = logger_formatter:format(Event, #{single_line => true, template => [level, ": ", msg]}),
    ets:insert(?MODULE, {erlang:unique_integer([monotonic]), lists:flatten(io_lib:format("~ts", [Line]))}).
