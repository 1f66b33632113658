%% A network namespace beside that of the tests, and a cable between both. Takes root and iproute2.
-module(inet_rdma_test_netns).

-export([make/0, make/1, remove/1]).
-export_type([t/0]).

%% The addresses of this end and of the other.
-type t() :: #{namespace := string(), addresses := {string(), string()}}.

-spec make() -> {ok, t()} | {error, Output :: string()}.
make() -> make(30).

%% Bits: of the network that this end has the other one in; 32: in none of its networks.
-spec make(30 | 32) -> {ok, t()} | {error, Output :: string()}.
make(Bits) ->
    Namespace = inet_rdma_test_node:unique("inet_rdma"),
    Unique = integer_to_list(erlang:phash2(Namespace, 1 bsl 24), 36),
    {Near, Far} = {"va" ++ Unique, "vb" ++ Unique},
    Net =
        "10." ++ integer_to_list(200 + rand:uniform(50)) ++ "." ++
            integer_to_list(rand:uniform(250)) ++ ".",
    {Here, There} = {Net ++ "1", Net ++ "2"},
    Within = "ip -n " ++ Namespace ++ " ",
    Commands = [
        "ip netns add " ++ Namespace,
        "ip link add " ++ Near ++ " type veth peer name " ++ Far ++ " netns " ++ Namespace,
        "ip addr add " ++ Here ++ "/" ++ integer_to_list(Bits) ++ " dev " ++ Near,
        "ip link set " ++ Near ++ " up",
        "ip route add " ++ There ++ "/32 dev " ++ Near,
        Within ++ "addr add " ++ There ++ "/30 dev " ++ Far,
        Within ++ "link set " ++ Far ++ " up",
        Within ++ "link set lo up"
    ],
    case os:cmd("{ " ++ lists:append(lists:join(" && ", Commands)) ++ "; } 2>&1") of
        "" ->
            {ok, #{namespace => Namespace, addresses => {Here, There}}};
        Output ->
            _ = remove(#{namespace => Namespace}),
            {error, Output}
    end.

-spec remove(#{namespace := string(), _ => _}) -> ok.
remove(#{namespace := Namespace}) ->
    _ = os:cmd("ip netns del " ++ Namespace),
    ok.
