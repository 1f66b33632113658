%% A logger handler: what no act of the chaos explains is a violation. Runs in the nodes under test.
-module(inet_rdma_soak_log).

-export([install/1, log/2, is_violation/1]).

%% Texts of errors that the runtime system logs when a node is stopped, killed or disconnected.
-define(EXPECTED_ERRORS, ["not responding", "global:"]).
%% Warnings of the carrier: for a settlement with a peer that was killed or stopped meanwhile, and
%% for a link to a peer that stands still.
-define(EXPECTED_WARNINGS, ["inet_rdma: no link to", "inet_rdma: nothing has come from"]).
%% Reasons in the metadata of the carrier's warnings that a killed or stopped peer explains: a
%% caller of a stream's listener that ends, or stops, before it has said its hello; a link whose
%% peer is stopped for net_ticktime.
-define(EXPECTED_REASONS, [peer_gone, etimedout, net_tick_timeout]).

-spec install(file:filename_all()) -> ok.
install(File) ->
    logger:add_handler(?MODULE, ?MODULE, #{level => warning, config => #{violations => File}}).

%% The callback of logger.
log(#{level := Level} = Event, #{config := #{violations := File}}) ->
    case is_violation(Event) of
        true -> inet_rdma_soak_node:violation(File, {logged, Level, text(Event)});
        false -> ok
    end.

%% Whether no act of the chaos explains an event of level warning or above. Only the carrier's
%% warnings are judged.
-spec is_violation(logger:log_event()) -> boolean().
%% The witness of the host is a proof: the end of a process that no act has killed is told as a
%% nodedown that no act explains.
is_violation(#{level := warning, meta := #{inet_rdma_reason := not_resumed}} = Event) ->
    not contains(text(Event), ["ended: the peer's process of this host has ended"]);
is_violation(#{level := warning, meta := #{inet_rdma_reason := Reason}}) ->
    not lists:member(Reason, ?EXPECTED_REASONS);
is_violation(#{level := warning} = Event) ->
    Text = text(Event),
    contains(Text, ["inet_rdma: "]) andalso not contains(Text, ?EXPECTED_WARNINGS);
is_violation(Event) ->
    not contains(text(Event), ?EXPECTED_ERRORS).

text(Event) ->
    Line = logger_formatter:format(Event, #{single_line => true, template => [msg]}),
    lists:flatten(io_lib:format("~ts", [Line])).

contains(Text, Parts) ->
    lists:any(fun(Part) -> string:find(Text, Part) =/= nomatch end, Parts).
