%% What is known of each distribution link of this node, over RDMA and over TCP: facts for inet_rdma_prometheus_collector.
%%
%% Each fact is asked for by itself. A fact that cannot be had (the link has just ended, the carrier does not count that) is
%% absent, and the others are there all the same.
-module(inet_rdma_link_facts).

-export([all/0, counts/1, port/2, process/2, queued/1, info/1]).
-export_type([link/0]).

%% owner: the connection supervisor. controller: what carries the packets, a port or TLS's process; undefined before the
%% link is up.
-type link() :: #{node := node(), state := atom(), owner := pid() | undefined, controller := port() | pid() | undefined,
                  info := inet_rdma:info() | undefined}.
-type fact() :: {ok, term()} | absent.

%% Every node to which net_kernel has a connection, or is making one.
-spec all() -> [link()].
all() ->
    Infos = value(fun inet_rdma_info:all/0, []),
    Controllers = erlang:system_info(dist_ctrl),
    [#{node => Node, state => proplists:get_value(state, Properties), owner => proplists:get_value(owner, Properties),
       controller => proplists:get_value(Node, Controllers), info => find(Node, Infos)}
     || {Node, Properties} <- value(fun nodes_info/0, [])].

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
counts(#{controller := Port} = Link) when is_port(Port) ->
    case port(Link, name) of
        {ok, "tcp_inet"} -> socket_counts(Port);
        %% inet's commands mean something else to another driver.
        {ok, _} -> carried_counts(Link);
        absent -> []
    end;
counts(#{}) ->
    [].

socket_counts(Socket) ->
    case fact(fun() -> inet:getstat(Socket) end) of
        {ok, {ok, Counts}} -> Counts;
        _ -> []
    end.

carried_counts(#{info := undefined}) -> [];
carried_counts(#{info := Info}) -> value(fun() -> inet_rdma_info:link_counts(Info) end, []).

%% An item of erlang:port_info/2.
-spec port(link(), atom()) -> fact().
port(#{controller := Port}, Item) ->
    item(Item, fun() -> erlang:port_info(Port, Item) end).

%% An item of erlang:process_info/2, of the connection supervisor.
-spec process(link(), atom()) -> fact().
process(#{owner := Owner}, Item) ->
    item(Item, fun() -> erlang:process_info(Owner, Item) end).

item(Item, Ask) ->
    case fact(Ask) of
        {ok, {Item, Value}} -> {ok, Value};
        _ -> absent
    end.

%% As erlang:dist_get_stat/1 says of the VM's own queue: bytes, or whether there are any.
-spec queued(link()) -> fact().
queued(#{node := Node}) ->
    %% #connection{} of net_kernel: node, connection id, state.
    case fact(fun() -> erlang:dist_get_stat(ets:lookup_element(sys_dist, Node, 3)) end) of
        {ok, {ok, _Received, _Sent, Queued}} -> {ok, Queued};
        _ -> absent
    end.

%% What inet_rdma:info/1 says.
-spec info(link()) -> {ok, inet_rdma:info()} | absent.
info(#{info := undefined}) -> absent;
info(#{info := Info}) -> {ok, Info}.

-spec fact(fun(() -> term())) -> fact().
fact(Ask) ->
    try {ok, Ask()}
    catch _:_ -> absent
    end.

value(Ask, Default) ->
    case fact(Ask) of
        {ok, Value} -> Value;
        absent -> Default
    end.
