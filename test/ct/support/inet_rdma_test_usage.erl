%% All that a node holds: by the kernel what its process has, by the node itself ports, processes
%% and memory. Runs in the node that runs the tests.
-module(inet_rdma_test_usage).

-export([of_node/1, footprint/1, start_resolver/1, await/2, collect/0]).
-export_type([t/0]).

-type t() :: #{atom() => integer()}.

%% Growth that is no leak: processes that start on demand, memory that the allocators keep.
-define(SLACK, #{processes => 1, ports => 0, memory_bytes => 4194304, rss_bytes => 100663296}).

-spec of_node(inet_rdma_test_node:t()) -> t().
of_node(#{os_pid := OsPid} = Node) ->
    ok = start_resolver(Node),
    Own = inet_rdma_test_node:call(Node, ?MODULE, collect, []),
    maps:merge(
        Own#{rss_bytes => inet_rdma_test_os:rss_bytes(OsPid)}, inet_rdma_test_os:footprint(OsPid)
    ).

%% What the node's process has by the kernel.
-spec footprint(inet_rdma_test_node:t()) -> inet_rdma_test_os:footprint().
footprint(#{os_pid := OsPid} = Node) ->
    ok = start_resolver(Node),
    inet_rdma_test_os:footprint(OsPid).

%% OTP's resolver starts its program at the first look-up, and keeps two processes, a port and three
%% descriptors for it. An acceptor looks its peer up when a link has lasted for a second, which
%% would be growth to a case that compares.
-spec start_resolver(inet_rdma_test_node:t()) -> ok.
start_resolver(Node) ->
    {ok, _} = inet_rdma_test_node:call(Node, inet_gethost_native, gethostbyname, ["localhost"]),
    ok.

%% Runs in the node under test. Collects garbage first.
-spec collect() -> t().
collect() ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    #{
        processes => erlang:system_info(process_count),
        ports => erlang:system_info(port_count),
        memory_bytes => erlang:memory(total)
    }.

%% Waits until the node uses no more than this again, but for a little.
-spec await(inet_rdma_test_node:t(), t()) -> ok.
await(#{node := Name} = Node, Before) ->
    Now = inet_rdma_test_wait:until({usage_of, Name, Before}, 15000, fun() ->
        Now = of_node(Node),
        case
            [
                Key
             || Key <- maps:keys(Before),
                map_get(Key, Now) > map_get(Key, Before) + maps:get(Key, ?SLACK, 0)
            ]
        of
            [] -> {ok, Now};
            Grown -> maps:with(Grown, Now)
        end
    end),
    ct:pal("~p: ~0p, was ~0p", [Name, Now, Before]),
    ok.
