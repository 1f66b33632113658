%% Two nodes of which each reaches the other through a relay only. Runs in the node that runs the
%% tests.
%%
%% Both listen at 127.0.0.1. The first finds the second at the relay's port, by its EPMD module. The
%% second takes the first for a node at 127.0.0.2, from where the relay connects, and finds the
%% relay again there, at the first's port.
-module(inet_rdma_test_detour).

-export([start/3, again/2, port_of/1, found_at/2]).
-export_type([t/0]).

-define(HERE, {127, 0, 0, 1}).
-define(THERE, {127, 0, 0, 2}).

%% The system's own choice begins at 32768 (ip_local_port_range).
-define(PORTS_FROM, 12000).
-define(PORTS, 20000).
-define(PORTS_TRIED, 100).

%% `options' are those of the second node.
%% `found' is the file by which the first node finds the second.
-type t() :: #{
    a := inet_rdma_test_node:t(),
    b := inet_rdma_test_node:t(),
    relay := inet_rdma_test_relay:t(),
    options := inet_rdma_test_node:options(),
    found := file:filename()
}.

%% Each node has its own directory of names, in this one.
-spec start(file:filename(), inet_rdma_test_node:options(), inet_rdma_test_node:options()) -> t().
start(Directory, OptionsA, OptionsB) ->
    [NameA, NameB] = [inet_rdma_test_node:unique(Prefix) || Prefix <- ["a", "b"]],
    [OfA, OfB] = [names(Directory, Name) || Name <- [NameA, NameB]],
    Named = with_names(OfB, NameB, OptionsB),
    First = with_names(OfA, NameA, OptionsA#{args => listen_args() ++ maps:get(args, OptionsA, [])}),
    [A, B] = inet_rdma_test_node:start_all([{"a", First}, {"b", Named}]),
    Relay = inet_rdma_test_relay:start([
        #{at => {?HERE, 0}, to => {?HERE, port_in(OfB, NameB)}, from => ?THERE},
        #{at => {?THERE, port_in(OfA, NameA)}, to => {?HERE, port_in(OfA, NameA)}, from => ?HERE}
    ]),
    ok = file:write_file(
        filename:join(OfA, NameB), integer_to_list(inet_rdma_test_relay:port(Relay))
    ),
    #{a => A, b => B, relay => Relay, options => Named, found => filename:join(OfA, NameB)}.

%% The first node's port must be free at the relay's address, too: so it is below those that the
%% system chooses.
listen_args() ->
    Least = ?PORTS_FROM + rand:uniform(?PORTS),
    [
        "-kernel",
        "inet_dist_listen_min",
        integer_to_list(Least),
        "-kernel",
        "inet_dist_listen_max",
        integer_to_list(Least + ?PORTS_TRIED)
    ].

names(Directory, Name) ->
    Own = filename:join([Directory, "names", Name]),
    ok = filelib:ensure_dir(filename:join(Own, "x")),
    Own.

with_names(Directory, Name, Options) ->
    Args = [
        "-start_epmd",
        "false",
        "-epmd_module",
        "inet_rdma_test_epmd",
        "-inet_rdma_test_epmd",
        Directory,
        "-kernel",
        "inet_dist_use_interface",
        lists:flatten(io_lib:format("~0p", [?HERE]))
    ],
    Options#{name => Name, args => Args ++ maps:get(args, Options, [])}.

port_in(Directory, Name) ->
    {ok, Port} = file:read_file(filename:join(Directory, Name)),
    binary_to_integer(Port).

%% Starts the second node once more under its name, and calls `Before' with it before the relay
%% leads to it.
-spec again(t(), fun((inet_rdma_test_node:t()) -> term())) -> t().
again(#{relay := Relay, options := Options} = Detour, Before) ->
    B = inet_rdma_test_node:start("b", Options),
    _ = Before(B),
    ok = inet_rdma_test_relay:lead_to(Relay, {?HERE, port_of(Detour#{b := B})}),
    Detour#{b := B}.

%% The first node finds the second one at this address from now on.
-spec found_at({inet:ip4_address(), inet:port_number()}, t()) -> ok.
found_at({Ip, Port}, #{found := File}) ->
    ok = file:write_file(File, [integer_to_list(Port), " ", inet:ntoa(Ip)]).

%% At which the second node itself listens.
-spec port_of(t()) -> inet:port_number().
port_of(#{options := #{name := Name, args := Args}}) ->
    ["-start_epmd", "false", "-epmd_module", _, "-inet_rdma_test_epmd", Directory | _] = Args,
    port_in(Directory, Name).
