%% Two nodes on hosts of their own that reach only a proxy, on a third host: it accepts each
%% connection, and closes it where nobody listens behind it. Each node finds the other one at a port
%% of the proxy by its EPMD module, which answers the same for ever. Runs in the node that runs the
%% tests.
-module(inet_rdma_test_proxied).

-export([start/3, stop_listening/1, listen/1]).
-export_type([t/0]).

-type node_under_test() :: inet_rdma_test_node:t().
-type t() :: #{
    nodes := [node_under_test()], proxy := node_under_test(), relay := inet_rdma_test_relay:t()
}.

%% In network namespaces of the case's own.
-define(PORT, 15400).
-define(TO_A, 15401).
-define(TO_B, 15402).

%% Options: of both nodes.
-spec start(file:filename(), inet_rdma_test_node:options(), inet_rdma_test_hosts:t()) -> t().
start(Directory, Options, Hosts) ->
    ok = inet_rdma_test_hosts:silence(inet_rdma_test_hosts:both(a, b), Hosts),
    [{OfA, #{name := NameA} = A}, {OfB, #{name := NameB} = B}] =
        [named_by_files(Host, Directory, Options, Hosts) || Host <- [a, b]],
    Proxy = inet_rdma_test_node:start("proxy", #{
        name => none, under => inet_rdma_test_hosts:under(c, Hosts)
    }),
    Nodes = inet_rdma_test_node:start_all([{"a", A}, {"b", B}]),
    Ip = inet_rdma_test_hosts:address(c, Hosts),
    _ = [
        ok = file:write_file(filename:join(Of, base(Name)), [
            integer_to_list(Port), " ", inet:ntoa(Ip)
        ])
     || {Of, Name, Port} <- [{OfA, NameB, ?TO_B}, {OfB, NameA, ?TO_A}]
    ],
    Relay = inet_rdma_test_relay:start_in(Proxy, [
        #{
            at => {Ip, Port},
            to => {inet_rdma_test_hosts:address(Host, Hosts), ?PORT},
            from => Ip,
            refused => close
        }
     || {Port, Host} <- [{?TO_A, a}, {?TO_B, b}]
    ]),
    #{nodes => Nodes, proxy => Proxy, relay => Relay}.

named_by_files(Host, Directory, #{args := Args} = Options, Hosts) ->
    Own = filename:join([Directory, "names", inet_rdma_test_node:unique("of")]),
    ok = filelib:ensure_path(Own),
    Port = integer_to_list(?PORT),
    Named = [
        "-start_epmd",
        "false",
        "-epmd_module",
        "inet_rdma_test_epmd",
        "-inet_rdma_test_epmd",
        Own,
        "-kernel",
        "inet_dist_listen_min",
        Port,
        "-kernel",
        "inet_dist_listen_max",
        Port
    ],
    {Own, inet_rdma_test_hosts:options(Host, Hosts, Options#{args := Named ++ Args})}.

base(Name) -> hd(string:lexemes(Name, "@")).

%% The proxy has ended: it resets all connections, and its host refuses others.
-spec stop_listening(t()) -> ok.
stop_listening(#{proxy := Proxy, relay := Relay}) ->
    inet_rdma_test_node:call(Proxy, inet_rdma_test_relay, refuse, [Relay]).

%% It is back.
-spec listen(t()) -> ok.
listen(#{proxy := Proxy, relay := Relay}) ->
    inet_rdma_test_node:call(Proxy, inet_rdma_test_relay, pass, [Relay]).
