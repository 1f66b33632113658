%% A logger handler: what no act of the chaos explains is a violation. Runs in the nodes under test.
-module(inet_rdma_soak_log).

-export([install/1, log/2]).

%% Errors that the runtime system logs when a node is stopped, killed or disconnected.
-define(EXPECTED, ["not responding", "global:"]).
%% Warnings of the carrier that a killed or stopped peer does not explain.
-define(UNEXPECTED, ["peer_misbehaved", "the connection to", "fabric", "no_memory", "could not be accepted",
                     "wrong_user", "version_mismatch", "bad_hello", "enobufs"]).

-spec install(file:filename_all()) -> ok.
install(File) ->
    logger:add_handler(?MODULE, ?MODULE, #{level => warning, config => #{violations => File}}).

%% The callback of logger.
log(#{level := Level} = Event, #{config := #{violations := File}}) ->
    Line = logger_formatter:format(Event, #{single_line => true, template => [msg]}),
    Text = lists:flatten(io_lib:format("~ts", [Line])),
    case is_violation(Level, Text) of
        true -> inet_rdma_soak_node:violation(File, {logged, Level, Text});
        false -> ok
    end.

is_violation(warning, Text) -> contains(Text, ["inet_rdma: "]) andalso contains(Text, ?UNEXPECTED);
is_violation(_Error, Text) -> not contains(Text, ?EXPECTED).

contains(Text, Parts) ->
    lists:any(fun(Part) -> string:find(Text, Part) =/= nomatch end, Parts).
