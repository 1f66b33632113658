%% @doc A collector for prometheus.erl: what the links of this node carry, those over RDMA and those
%% over TCP.
%%
%%     prometheus_registry:deregister_collector(prometheus_vm_dist_collector),
%%     prometheus_registry:register_collector(inet_rdma_prometheus_collector)
%%
%% It replaces prometheus_vm_dist_collector, whose names, types, labels and environment
%% vm_dist_collector_metrics of the application prometheus it has. Then come series of this carrier.
%% docs/MONITORING.md lists all.
%%
%% A series has no value for a link whose fact is unknown. inet_rdma does not depend on
%% prometheus.erl. This module does not declare the behaviour prometheus_collector: prometheus.erl
%% would register it beside its own collector, and each series would be there twice.
-module(inet_rdma_prometheus_collector).

-export([collect_mf/2, deregister_cleanup/1]).

%% Series of names for each link.
-define(NAMES_MAX, 20).

%% A distribution link, over RDMA or over TCP. owner: the connection supervisor. controller: the
%% port, or the process of TLS, that carries the packets; undefined before the link is up.
-type link() :: #{
    node := node(),
    state := atom(),
    owner := pid() | undefined,
    controller := port() | pid() | undefined,
    info := inet_rdma:info() | undefined
}.
-type type() :: gauge | counter.
-type metric() :: {Labels :: [{atom(), term()}], number()}.
%% Where values come from: a count of inet:getstat/1, an item of port_info/2 or process_info/2, or a
%% function of a link.
-type source() ::
    {count, atom()}
    | {port, atom()}
    | {process, atom()}
    | fun((link()) -> [metric()]).

-spec deregister_cleanup(Registry :: atom()) -> ok.
deregister_cleanup(_Registry) ->
    ok.

%% Callback gets a metric family for each series, in no order that is promised.
-spec collect_mf(Registry :: atom(), Callback :: fun((term()) -> term())) -> ok.
collect_mf(_Registry, Callback) ->
    Links = links(),
    Counted = [{Link, counts(Link)} || Link <- Links],
    Enabled = application:get_env(prometheus, vm_dist_collector_metrics, all),
    _ = [
        family(
            Callback, ["erlang_vm_dist_", atom_to_list(Name)], Type, Help, values(Source, Counted)
        )
     || {Name, Type, Help, Source} <- distribution(),
        Enabled =:= all orelse lists:member(Name, Enabled)
    ],
    _ = [
        family(Callback, ["inet_rdma_", atom_to_list(Name)], Type, Help, values(Source, Counted))
     || {Name, Type, Help, Source} <- carrier_series()
    ],
    Counts = inet_rdma_links:counts(),
    _ = [
        family(Callback, ["inet_rdma_", atom_to_list(Name)], counter, Help, Values(Counts))
     || {Name, Help, Values} <- lasting()
    ],
    _ = family(
        Callback,
        "inet_rdma_detours",
        gauge,
        "Detours that this node relays for the links of other nodes.",
        [{[], length(inet_rdma_detours:relayed())}]
    ),
    ok.

family(Callback, Name, Type, Help, Metrics) ->
    Callback(apply(helpers(), create_mf, [iolist_to_binary(Name), Help, Type, Metrics])).

%% The name is made at run time because Dialyzer and xref report calls of a module that is absent.
-spec helpers() -> module().
helpers() ->
    list_to_atom("prometheus_model_helpers").

%% The values of all links. A link whose fact cannot be had has none: it has just ended, or its
%% carrier does not count that. The other facts do not depend on it.
values(Source, Counted) ->
    lists:append([
        try
            values(Source, Link, Counts)
        catch
            _:_ -> []
        end
     || {Link, Counts} <- Counted
    ]).

values({count, Key}, Link, Counts) ->
    [{peer(Link), Value} || {Name, Value} <- Counts, Name =:= Key];
values({port, Item}, #{controller := Port} = Link, _Counts) ->
    {Item, Value} = erlang:port_info(Port, Item),
    [{peer(Link), Value}];
values({process, Item}, #{owner := Owner} = Link, _Counts) ->
    {Item, Value} = erlang:process_info(Owner, Item),
    [{supervisor(Link), Value}];
values(Source, Link, _Counts) ->
    Source(Link).

peer(#{node := Node}) -> [{peer, Node}].

%% The label by which prometheus_vm_dist_collector tells the processes of a link apart.
supervisor(#{node := Node}) -> [{peer, Node}, {type, dist}].

%% The series of prometheus_vm_dist_collector.
-spec distribution() -> [{atom(), type(), Help :: string(), source()}].
distribution() ->
    [
        {recv_bytes, gauge, "Bytes received over the link.", {count, recv_oct}},
        {recv_cnt, gauge, "Packets received over the link.", {count, recv_cnt}},
        {recv_max_bytes, gauge, "Size of the largest packet received.", {count, recv_max}},
        {recv_avg_bytes, gauge, "Average size of the packets received.", {count, recv_avg}},
        {recv_dvi_bytes, gauge, "Deviation of the sizes of the packets received.",
            {count, recv_dvi}},
        {send_bytes, gauge, "Bytes sent over the link.", {count, send_oct}},
        {send_cnt, gauge, "Packets sent over the link.", {count, send_cnt}},
        {send_max_bytes, gauge, "Size of the largest packet sent.", {count, send_max}},
        {send_avg_bytes, gauge, "Average size of the packets sent.", {count, send_avg}},
        {send_pend_bytes, gauge, "Bytes that wait in the link's port.", {count, send_pend}},
        {port_input_bytes, gauge, "Bytes read from the link's port.", {port, input}},
        {port_output_bytes, gauge, "Bytes written to the link's port.", {port, output}},
        {port_memory_bytes, gauge,
            "Memory that the runtime system has allocated for the link's port.", {port, memory}},
        {port_queue_size_bytes, gauge, "Bytes in the driver queue of the link's port.",
            {port, queue_size}},
        {proc_memory_bytes, gauge, "Memory of the process, in bytes.", {process, memory}},
        {proc_heap_size_words, gauge, "The youngest heap generation of the process, in words.",
            {process, heap_size}},
        {proc_min_heap_size_words, gauge, "The minimum heap size of the process.",
            {process, min_heap_size}},
        {proc_min_bin_vheap_size_words, gauge,
            "The minimum binary virtual heap size of the process.", {process, min_bin_vheap_size}},
        {proc_stack_size_words, gauge, "The stack of the process, in words.",
            {process, stack_size}},
        {proc_total_heap_size_words, gauge, "All heap fragments of the process, in words.",
            {process, total_heap_size}},
        {proc_message_queue_len, gauge, "Messages in the message queue of the process.",
            {process, message_queue_len}},
        {proc_reductions, gauge, "Reductions that the process has executed.",
            {process, reductions}},
        {proc_status, gauge,
            "Status of the process: exiting=1, suspended=2, runnable=3, garbage_collecting=4, "
            "running=5, waiting=6.", fun process_status/1},
        {node_state, gauge, "State of the link: pending=1, up_pending=2, up=3.", fun node_state/1},
        {node_queue_size_bytes, gauge,
            "Bytes in the runtime system's output queue of the link, ahead of its port; -1: some.",
            fun node_queue/1}
    ].

process_status(#{owner := Owner} = Link) ->
    {status, Status} = erlang:process_info(Owner, status),
    place(supervisor(Link), Status, [
        exiting, suspended, runnable, garbage_collecting, running, waiting
    ]).

node_state(#{state := State} = Link) ->
    place(peer(Link), State, [pending, up_pending, up]).

%% The place in the list is the number by which the series tells a state.
place(Labels, State, States) ->
    [{Labels, Number} || {Number, Name} <- lists:enumerate(States), Name =:= State].

%% The type of erlang:dist_get_stat/1 leaves out the atoms, which become unknown.
-dialyzer({no_match, node_queue/1}).

node_queue(#{node := Node} = Link) ->
    case inet_rdma_port:queued(Node) of
        closed -> [];
        unknown -> [{peer(Link), -1}];
        Bytes -> [{peer(Link), Bytes}]
    end.

%% Series of each link, while it is there. inet_rdma_counts lists the series that are values of
%% inet_rdma:info/1.
-spec carrier_series() -> [{atom(), type(), Help :: string(), source()}].
carrier_series() ->
    [
        {link_info, gauge, "1 for each link: what carries it, and why.", fun link_info/1},
        {link_path, gauge,
            "1 for the path that carries the link, 0 for the others; 0 for all while it is "
            "suspended.",
            fun link_path/1},
        {link_path_state, gauge,
            "1 for the state of the path that carries the link, 0 for the others; suspended: there "
            "is no path.",
            fun link_path_state/1},
        {link_operation_bytes_total, counter,
            "Bytes of packets by the operation of the distribution's protocol, without the lengths "
            "before them.", fun link_operations/1},
        {link_name_bytes_per_second, gauge,
            "Bytes per second of late by the registered names of sender and target: the 20 heaviest "
            "of a link, with the option attribution_names.", fun link_names/1}
        | [
            {Name, Type, Help, of_info(Keys)}
         || {Name, Type, Help, Keys} <- inet_rdma_counts:series()
        ]
    ].

link_info(#{info := #{fabric := Fabric, why := Why}} = Link) ->
    [{peer(Link) ++ [{fabric, Fabric}, {why, unicode:characters_to_binary(Why)}], 1}].

%% 0 or 1 for each path: the average of a path's series is the share of the time for which the path
%% carried the link.
link_path(#{info := #{fabric := Fabric} = Info} = Link) ->
    Carries =
        case Info of
            #{suspended := true} -> none;
            #{} -> Fabric
        end,
    [
        {peer(Link) ++ [{path, Path}], one_if(Path =:= Carries)}
     || Path <- [tcp, tls | inet_rdma_options:fabrics(link)]
    ].

%% None of a link without a session, which ends with its path.
link_path_state(#{info := #{path_state := Now}} = Link) ->
    [
        {peer(Link) ++ [{state, State}], one_if(State =:= Now)}
     || State <- inet_rdma_counts:path_states()
    ].

link_operations(#{controller := Port} = Link) when is_port(Port) ->
    true = inet_rdma_port:is_link(Port),
    {ok, {Sent, Received}} = inet_rdma_port:attribution(Port),
    [
        {peer(Link) ++ [{direction, Direction}, {operation, Operation}], Bytes}
     || {Direction, {Operations, _Recent, _All, _Off}} <- [{sent, Sent}, {received, Received}],
        {Operation, _Messages, Bytes} <- Operations
    ].

%% None with the option off. Names of processes are few; pids would be new series again and again.
link_names(#{node := Node} = Link) ->
    {ok, #{attribution_names := on}} = inet_rdma_options:node(),
    {ok, Top} = inet_rdma_top:of_node(Node),
    [
        {peer(Link) ++ [{direction, Direction}, {from, From}, {to, To}], Bytes}
     || {{Direction, From, To}, Bytes} <- inet_rdma_top:named(Top, ?NAMES_MAX)
    ].

one_if(true) -> 1;
one_if(false) -> 0.

%% Values of inet_rdma:info/1, those that the link has.
of_info(Keys) ->
    fun(#{info := #{} = Info} = Link) ->
        [
            {peer(Link) ++ Labels, scaled(map_get(Key, Info), Divisor)}
         || {Key, Labels, Divisor} <- Keys, is_map_key(Key, Info)
        ]
    end.

scaled(IsTrue, _Divisor) when is_boolean(IsTrue) -> one_if(IsTrue);
scaled(Number, 1) -> Number;
scaled(Number, Divisor) -> Number / Divisor.

%% Counts since the start of the distribution; they include links that have ended.
lasting() ->
    [
        {settlements_failed_total,
            "Settlements that broke off or whose peer left: the link did not come "
            "up.", fun(Counts) ->
                [{[], proplists:get_value(settlement_failed, Counts, 0)}]
            end},
        {resumes_refused_total,
            "Attempts to resume a link that this node has refused: it does not know the link, a "
            "newer attempt was under way, or the proof of the cookie was wrong.", fun(Counts) ->
                [{[], proplists:get_value(resume_refused, Counts, 0)}]
            end},
        {short_links_total,
            "Links of hidden nodes without inet_rdma that connected and left within 10 s, as "
            "command line tools do: they are in neither log nor flight recorder.", fun(Counts) ->
                [{[], proplists:get_value(short_links, Counts, 0)}]
            end},
        {unknown_messages_total,
            "Messages of peers' guards that this version passes over: those of later versions.",
            fun(Counts) -> [{[], proplists:get_value(unknown_messages, Counts, 0)}] end},
        {unknown_notices_total,
            "Notices of links' ports that this version passes over: those of a later native "
            "library.",
            fun(Counts) -> [{[], proplists:get_value(unknown_notices, Counts, 0)}] end},
        {detours_total,
            "Detours, by event. asked and opened: over neighbours, for links of this node. relayed "
            "and refused: by this node, for links of others.", fun(Counts) ->
                [
                    {[{event, Event}], proplists:get_value(Counted, Counts, 0)}
                 || {Event, Counted} <- [
                        {asked, detours_asked},
                        {opened, detours_opened},
                        {relayed, detours_relayed},
                        {refused, detours_refused}
                    ]
                ]
            end},
        {detour_bytes_total, "Bytes that this node has passed for the links of others.", fun(
            Counts
        ) ->
            [{[], proplists:get_value(detour_bytes, Counts, 0)}]
        end},
        {links_refused_total,
            "Links that the option required refused, as they could only have stayed on TCP.", fun(
                Counts
            ) ->
                [{[], proplists:get_value(refused, Counts, 0)}]
            end},
        {links_stayed_on_tcp_total,
            "Links that stayed on TCP, by the fabrics that were tried and failed before.", fun(
                Counts
            ) ->
                [{[{tried, tried(Fabrics)}], Count} || {{stayed, Fabrics}, Count} <- Counts]
            end}
    ].

tried([]) -> <<"none">>;
tried(Fabrics) -> iolist_to_binary(lists:join(",", [atom_to_list(Fabric) || Fabric <- Fabrics])).

%% Every node that net_kernel has a connection with, or in the making.
-spec links() -> [link()].
links() ->
    Infos = value(fun inet_rdma_info:all/0, []),
    Controllers = erlang:system_info(dist_ctrl),
    [
        #{
            node => Node,
            state => proplists:get_value(state, Properties),
            owner => proplists:get_value(owner, Properties),
            controller => proplists:get_value(Node, Controllers),
            info => find(Node, Infos)
        }
     || {Node, Properties} <- value(fun nodes_info/0, [])
    ].

nodes_info() ->
    {ok, Nodes} = net_kernel:nodes_info(),
    Nodes.

find(Node, Infos) ->
    case [Info || #{node := Name, state := up} = Info <- Infos, Name =:= Node] of
        %% The newest: an old link of the same peer may be on its way out.
        [_ | _] = Found -> lists:last(Found);
        [] -> undefined
    end.

%% The counts of inet:getstat/1, of a port of TCP or of inet_rdma. None of TLS's process.
-spec counts(link()) -> [{atom(), number()}].
counts(#{controller := Port}) when is_port(Port) ->
    Ask = fun() ->
        {ok, Counts} = inet:getstat(Port),
        Counts
    end,
    value(Ask, []);
counts(#{}) ->
    [].

value(Ask, Default) ->
    try
        Ask()
    catch
        _:_ -> Default
    end.
