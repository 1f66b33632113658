%% Keeps a node's log events so that a test can ask what was logged. Runs in the node under test,
%% but for await/2.
-module(inet_rdma_test_log).

-export([install/0, forward/1, lines/0, forget/0, contains/1, await/2, log/2]).

%% Starts with no lines, also where it is installed already.
-spec install() -> ok.
install() ->
    case ets:whereis(?MODULE) of
        undefined -> install_new();
        _ -> forget()
    end.

install_new() ->
    %% A table dies with its owner, and the process of a call from the test ends with the call.
    Caller = self(),
    {Owner, Monitor} = spawn_monitor(fun() ->
        ets:new(?MODULE, [named_table, public, ordered_set]),
        Caller ! {self(), ready},
        receive
            stop -> ok
        end
    end),
    receive
        {Owner, ready} -> demonitor(Monitor, [flush]);
        {'DOWN', Monitor, process, Owner, Reason} -> error(Reason)
    end,
    logger:add_handler(?MODULE, ?MODULE, #{}).

%% Sends each event to the standard output of another node, which answers: so does a slave node to
%% its master.
-spec forward(node()) -> ok.
forward(Node) ->
    logger:add_handler(inet_rdma_test_forward, ?MODULE, #{config => Node}).

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

%% Waits, in the node that runs the tests, until an event of this node has all of these in its text,
%% in any case.
-spec await(inet_rdma_test_node:t(), [string() | atom()]) -> ok.
await(Node, Wanted) ->
    Texts = [string:lowercase(text(Each)) || Each <- Wanted],
    inet_rdma_test_wait:until({logged, Texts}, 10000, fun() ->
        Lines = inet_rdma_test_node:call(Node, ?MODULE, lines, []),
        lists:any(fun(Line) -> has_all(string:lowercase(Line), Texts) end, Lines) orelse Lines
    end),
    ok.

has_all(Line, Texts) -> lists:all(fun(Text) -> string:find(Line, Text) =/= nomatch end, Texts).

text(Atom) when is_atom(Atom) -> atom_to_list(Atom);
text(Text) -> Text.

%% The callback of logger.
log(Event, #{config := Node}) ->
    _ = spawn(erpc, call, [Node, io, put_chars, [user, text_of(Event)]]);
log(Event, _Config) ->
    ets:insert(?MODULE, {erlang:unique_integer([monotonic]), text_of(Event)}).

text_of(Event) ->
    Line = logger_formatter:format(Event, #{single_line => true, template => [level, ": ", msg]}),
    lists:flatten(io_lib:format("~ts", [Line])).
