%% Nodes of one host in containers: network, mount, user and process namespaces of their own. They
%% meet over shared memory in a directory that both mount, and stay on TCP with a reason where that
%% may not or cannot be.
-module(neighbours_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    off_by_default/1,
    one_side_only/1,
    another_network_namespace/1,
    a_killed_peer_is_a_nodedown_at_once/1,
    settles_under_traffic/1
]).
-export([
    containers_share_memory_by_a_directory/1,
    path_longer_than_an_address/1,
    directory_that_is_not_shared/1,
    refused_directories_leave_links_on_tcp/1
]).
-export([
    read_only_mount/1,
    refused_directory_is_reported/1,
    an_allowed_user_shares_memory/1,
    another_user_who_is_not_listed/1
]).
-export([
    user_namespace_of_the_same_user/1,
    users_without_a_number/1,
    a_removed_file_is_made_again/1,
    file_goes_with_the_node/1
]).
-export([
    tls_between_two_users_is_sealed/1,
    numbers_of_users_in_user_namespaces/1,
    wrong_facts_are_no_message/1
]).
-export([hidden_boot_ids/1, hidden_boot_ids_in_other_networks/1]).

%% The bound for "at once".
-define(AT_ONCE_MS, 5000).
-define(OTHER_USER, 65533).

suite() ->
    [{timetrap, {minutes, 4}}].

all() ->
    [
        off_by_default,
        one_side_only,
        another_network_namespace,
        a_killed_peer_is_a_nodedown_at_once,
        settles_under_traffic,
        containers_share_memory_by_a_directory,
        path_longer_than_an_address,
        directory_that_is_not_shared,
        refused_directories_leave_links_on_tcp,
        read_only_mount,
        refused_directory_is_reported,
        an_allowed_user_shares_memory,
        another_user_who_is_not_listed,
        user_namespace_of_the_same_user,
        users_without_a_number,
        a_removed_file_is_made_again,
        file_goes_with_the_node,
        tls_between_two_users_is_sealed,
        numbers_of_users_in_user_namespaces,
        wrong_facts_are_no_message,
        hidden_boot_ids,
        hidden_boot_ids_in_other_networks
    ].

init_per_suite(Config) ->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            case inet_rdma_test_netns:make() of
                {ok, Network} ->
                    [{network, Network} | Config];
                {error, Output} ->
                    inet_rdma_test_link:skip("no network namespace can be made here: " ++ Output)
            end
    end.

end_per_suite(Config) ->
    inet_rdma_test_netns:remove(proplists:get_value(network, Config)).

%% Below /tmp, as other users may not see where the tests write.
init_per_testcase(_Case, Config) ->
    Scratch = filename:join("/tmp", inet_rdma_test_node:unique("inet_rdma_neighbours")),
    [Names, Shared] = [filename:join(Scratch, Name) || Name <- ["names", "shared"]],
    [ok = filelib:ensure_dir(filename:join(Directory, "x")) || Directory <- [Names, Shared]],
    [] = os:cmd("chmod 777 " ++ Names),
    [{scratch, Scratch}, {names, Names}, {shared, Shared} | Config].

end_per_testcase(_Case, Config) ->
    inet_rdma_test_node:stop_all(),
    _ = file:del_dir_r(proplists:get_value(scratch, Config)),
    ok.

off_by_default(Config) ->
    [A, B] = start(Config, #{}, #{}),
    stays(A, B, "another network namespace, and neither node has a shm_directory"),
    ?assertEqual({ok, []}, file:list_dir(proplists:get_value(shared, Config))).

one_side_only(Config) ->
    [A, B] = start(Config, in(Config), #{}),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, tcp, ", and has no shm_directory"),
    %% In the words of the node that has connected.
    ok = inet_rdma_test_link:await(B, A, tcp, "the peer says: shm: .*, and has no shm_directory").

%% Whichever connects; all of distribution, up to messages of 16 MB.
another_network_namespace(Config) ->
    [A, B] = start(Config, in(Config), in(Config)),
    [
        begin
            connect(X, Y),
            [
                ok = inet_rdma_test_link:await(
                    P, Q, shm, "through " ++ proplists:get_value(shared, Config)
                )
             || {P, Q} <- [{A, B}, {B, A}]
            ],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    %% Strangers of other users could not even connect.
    [?assertEqual("srw-------", mode(File)) || File <- files(Config)].

mode(File) -> hd(string:lexemes(os:cmd("ls -l " ++ File), " ")).

a_killed_peer_is_a_nodedown_at_once(Config) ->
    [A, B] = start(Config, in(Config), in(Config)),
    meet(A, B),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_wait:until(nodedown, ?AT_ONCE_MS, fun() ->
        lists:member(monitor_node, call(A, inet_rdma_test_watch, seen, [Watcher]))
    end),
    %% The file of the killed node is in nobody's way.
    C = start_b(Config, in(Config)),
    meet(A, C).

%% With the option move as earned the link comes up on TCP, and moves under traffic.
settles_under_traffic(Config) ->
    [A, B] = start(Config, in(Config, [{move, earned}]), in(Config, [{move, earned}])),
    connect(A, B),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), lists:duplicate(40, 70000)]),
    [ok = inet_rdma_test_link:await(P, Q, shm, "through /") || {P, Q} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:exercise(A, B).

%% All namespaces are the container's own, and the directory has another path in it.
containers_share_memory_by_a_directory(Config) ->
    Mounted = filename:join(proplists:get_value(scratch, Config), "mounted"),
    ok = file:make_dir(Mounted),
    Script =
        "mount --bind " ++ proplists:get_value(shared, Config) ++ " " ++ Mounted ++
            " && exec \"$@\"",
    Under = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--ipc",
        "--uts",
        "--cgroup",
        "sh",
        "-c",
        Script,
        "sh"
    ],
    [A, B] = start(Config, in(Config), within(Under, at(Mounted))),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm, "through " ++ proplists:get_value(shared, Config)),
    ok = inet_rdma_test_link:await(B, A, shm, "through " ++ Mounted),
    ok = inet_rdma_test_link:exercise(A, B),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_wait:until(nodedown, ?AT_ONCE_MS, fun() ->
        lists:member(monitor_node, call(A, inet_rdma_test_watch, seen, [Watcher]))
    end).

%% The address of a Unix socket has 108 bytes.
path_longer_than_an_address(Config) ->
    Deep = filename:join([
        proplists:get_value(shared, Config) | lists:duplicate(20, "a_part_of_the_path")
    ]),
    ok = filelib:ensure_dir(filename:join(Deep, "x")),
    [A, B] = start(Config, at(Deep), at(Deep)),
    meet(A, B).

%% Two directories, of which each node has one: two volumes.
directory_that_is_not_shared(Config) ->
    Other = filename:join(proplists:get_value(scratch, Config), "other"),
    ok = file:make_dir(Other),
    [A, B] = start(Config, in(Config), at(Other)),
    stays(A, B, "the socket file of the peer is not in it").

refused_directories_leave_links_on_tcp(Config) ->
    Scratch = proplists:get_value(scratch, Config),
    Shared = proplists:get_value(shared, Config),
    Refused = fun(Name, Script) ->
        Path = filename:join(Scratch, Name),
        ok = sh(Script, Path),
        Path
    end,
    [
        begin
            [A, B] = start(Config, in(Config), at(Path)),
            stays(A, B, Path ++ ": " ++ Text),
            inet_rdma_test_node:stop_all()
        end
     || {Path, Text} <- [
            {Refused("missing", "true"), "it does not exist"},
            {Refused("file", "touch $0"), "it is no directory"},
            {Refused("link", "ln -s " ++ Shared ++ " $0"), "it is a symbolic link"},
            {Refused("open", "mkdir -m 777 $0"), "all users may remove files"},
            {Refused("anothers", "mkdir $0 && chown 65533 $0"), "it belongs to user 65533"}
        ]
    ].

%% The node that connects needs no write access to the directory: only the other node makes a file.
read_only_mount(Config) ->
    Mounted = filename:join(proplists:get_value(scratch, Config), "mounted"),
    ok = file:make_dir(Mounted),
    Script =
        "mount --bind " ++ proplists:get_value(shared, Config) ++ " " ++ Mounted ++
            " && mount -o remount,bind,ro " ++ Mounted ++ " && exec \"$@\"",
    [A, B] = start(
        Config, in(Config), within(["unshare", "--mount", "sh", "-c", Script, "sh"], at(Mounted))
    ),
    connect(A, B),
    [ok = inet_rdma_test_link:await(P, Q, tcp, "mounted read-only") || {P, Q} <- [{A, B}, {B, A}]],
    meet_again(B, A).

%% The log of the start and the doctor report a directory that cannot be used.
refused_directory_is_reported(Config) ->
    Open = filename:join(proplists:get_value(scratch, Config), "open"),
    [] = os:cmd("mkdir -m 777 " ++ Open),
    Flags = ["-inet_rdma", "shm_directory", Open],
    {0, Output} = inet_rdma_test_node:run("n", #{args => Flags}, "timer:sleep(500)"),
    ?assertMatch({match, _}, re:run(Output, "stay on TCP: .*all users may remove files", [dotall])),
    Find = fun(Directory) ->
        Node = inet_rdma_test_node:start("d", at(Directory)),
        #{findings := Findings} = call(Node, inet_rdma_doctor, report, []),
        [
            {Severity, Text, Fix}
         || #{about := shm_directory, severity := Severity, text := Text, fix := Fix} <- Findings
        ]
    end,
    [{problem, Why, Fix}] = Find(Open),
    ?assertMatch({match, _}, re:run(Why, "all users may remove files")),
    ?assert(is_binary(Fix)),
    ?assertMatch([{ok, _, undefined}], Find(proplists:get_value(shared, Config))).

%% Each node lists the user of the other.
an_allowed_user_shares_memory(Config) ->
    [] = os:cmd("chmod 1777 " ++ proplists:get_value(shared, Config)),
    [A, B] = start(
        Config,
        in(Config, [{shm_allowed_uids, [?OTHER_USER]}]),
        as_other_user(Config, in(Config, [{shm_allowed_uids, [0, 7]}]))
    ),
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm, "through /") || {P, Q} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% A user that neither node lists, or only one of them.
another_user_who_is_not_listed(Config) ->
    [] = os:cmd("chmod 1777 " ++ proplists:get_value(shared, Config)),
    [
        begin
            [A, B] = start(
                Config,
                in(Config, [{shm_allowed_uids, UsersOfA}]),
                as_other_user(Config, in(Config, [{shm_allowed_uids, UsersOfB}]))
            ),
            stays(A, B, "shm_allowed_uids"),
            inet_rdma_test_node:stop_all()
        end
     || {UsersOfA, UsersOfB} <- [{[], []}, {[?OTHER_USER], []}, {[], [0]}, {[?OTHER_USER - 1], [1]}]
    ].

%% The kernel translates numbers of users: root of this namespace is the root outside.
user_namespace_of_the_same_user(Config) ->
    [A, B] = start(
        Config, in(Config), within(["unshare", "--user", "--map-root-user"], in(Config))
    ),
    meet(A, B),
    meet_again(B, A).

%% All users without a number have the same number there, 65534, which says nothing.
users_without_a_number(Config) ->
    Shared = proplists:get_value(shared, Config),
    %% The directory's owner has no number in the namespace of the second node.
    [A, B] = start(Config, in(Config), within(["unshare", "--user"], in(Config))),
    stays(A, B, "its owner is unknown in the user namespace"),
    inet_rdma_test_node:stop_all(),
    %% The directory is the second node's; the first node's user has no number there.
    [] = os:cmd("chown 65533 " ++ Shared ++ " && chmod 1777 " ++ Shared),
    OfB = as_other_user(Config, in(Config, [{shm_allowed_uids, [65534]}])),
    #{under := UnderB} = OfB,
    [C, D] = start(
        Config,
        in(Config, [{shm_allowed_uids, [?OTHER_USER]}]),
        OfB#{under := UnderB ++ ["unshare", "--user", "--map-root-user"]}
    ),
    stays(C, D, "unknown in the user namespace|does not allow the user").

%% Whoever may write to the directory can take the file away: the next settlement makes another one.
a_removed_file_is_made_again(Config) ->
    [A, B] = start(Config, in(Config), in(Config)),
    meet(A, B),
    [
        begin
            ok = inet_rdma_test_link:disconnect(A, B),
            [ok = sh(Replace, File) || File <- files(Config)],
            %% The nodes may have connected by themselves, and have told the name that is gone.
            inet_rdma_test_wait:until({meets_after, Replace}, 10000, fun() ->
                connect(A, B),
                inet_rdma_test_link:fabric(A, B) =:= shm orelse inet_rdma_test_link:disconnect(A, B)
            end),
            meet(A, B),
            ok = sh(
                "find $0 -not -type s -not -type d -delete", proplists:get_value(shared, Config)
            )
        end
     || Replace <- ["rm $0", "rm $0 && ln -s /etc/passwd $0", "rm $0 && touch $0"]
    ].

file_goes_with_the_node(Config) ->
    [A, B] = start(Config, in(Config), in(Config)),
    meet(A, B),
    meet_again(B, A),
    ?assertMatch([_, _], files(Config)),
    ok = call(B, init, stop, []),
    inet_rdma_test_node:await_exit(B, 20000),
    ?assertMatch([_], files(Config)),
    ok = call(A, init, stop, []),
    inet_rdma_test_node:await_exit(A, 20000),
    ?assertEqual([], files(Config)).

%% A TLS link goes in clear over shared memory of one user only.
tls_between_two_users_is_sealed(Config) ->
    case inet_rdma_test_tls:certificates(Config) of
        {skip, _} = Skip ->
            Skip;
        Made ->
            Certificates = filename:join(proplists:get_value(scratch, Config), "certificates"),
            [] = os:cmd("cp -r " ++ proplists:get_value(certificates, Made) ++ " " ++ Certificates),
            Tls = fun(Options) ->
                File = inet_rdma_test_certificates:option_file(Certificates, good, []),
                [] = os:cmd("chmod -R a+rX " ++ Certificates),
                Options#{
                    args => [
                        "-pa", filename:join(code:lib_dir(ssl), "ebin"), "-ssl_dist_optfile", File
                    ]
                }
            end,
            [] = os:cmd("chmod 1777 " ++ proplists:get_value(shared, Config)),
            Here = Tls(in(Config, [{security, tls}, {shm_allowed_uids, [?OTHER_USER]}])),
            There = Tls(in(Config, [{security, tls}, {shm_allowed_uids, [0]}])),
            [A, B, C] = inet_rdma_test_node:start_all(
                [{"a", Here}, {"b", as_other_user(Config, There)}, {"c", Here}]
            ),
            [
                begin
                    connect(X, Y),
                    [ok = inet_rdma_test_link:await(P, Q, shm, Why) || {P, Q} <- [{X, Y}, {Y, X}]],
                    ok = inet_rdma_test_link:exercise(X, Y),
                    Ciphers = [
                        maps:get(cipher, call(P, inet_rdma, info, [name(Q)]))
                     || {P, Q} <- [{X, Y}, {Y, X}]
                    ],
                    ?assertEqual([IsSealed, IsSealed], [Cipher =/= none || Cipher <- Ciphers])
                end
             || {X, Y, Why, IsSealed} <- [
                    {A, B, "through /", true}, {A, C, "shared memory of this host$", false}
                ]
            ]
    end.

numbers_of_users_in_user_namespaces(_Config) ->
    Facts = fun(Netns, User, Userns) ->
        #{boot => <<"b">>, netns => Netns, user => User, file => {Userns, none}}
    end,
    Same = fun inet_rdma_neighbours:is_same_user/2,
    ?assert(Same(Facts(1, 0, 5), Facts(1, 0, 5))),
    ?assert(Same(Facts(1, 0, 5), Facts(2, 0, 5))),
    ?assertNot(Same(Facts(1, 0, 5), Facts(2, 0, 6))),
    ?assertNot(Same(Facts(1, 0, 5), Facts(2, 1, 5))),
    ?assertNot(Same(Facts(1, 0, 5), Facts(1, 1, 5))),
    %% No boot id: nothing is known of the host.
    Unknown = #{boot => <<>>, file => {1, none}},
    ?assertMatch({none, _}, inet_rdma_neighbours:reach(#{}, Unknown, Unknown)).

%% Names that lead elsewhere, and terms that are no fact, are no message of the settlement.
wrong_facts_are_no_message(_Config) ->
    Digits = binary:copy(<<"0a">>, 16),
    Good = <<"inet_rdma-", Digits/binary>>,
    [
        ?assert(inet_rdma_settlement_message:is_file_fact({7, File}))
     || File <- [none, {ok, Good}, {error, <<"why">>}]
    ],
    [
        ?assertNot(inet_rdma_settlement_message:is_file_fact(Fact))
     || Fact <- [
            none,
            {7},
            {a, none},
            {7, undefined},
            {7, {ok, none}},
            {7, {ok, <<"/etc/passwd">>}},
            {7, {error, [<<"why">>]}},
            {7, {ok, <<Good/binary, "0">>}},
            {7, {ok, <<"inet_rdma-", (binary:copy(<<"/.">>, 16))/binary>>}},
            {7, {ok, binary:part(Good, 0, 41)}},
            {7, {error, binary:copy(<<"a">>, 5000)}}
        ]
    ].

%% As with ProcSubset=pid of systemd in one node or in both, and as containers of nspawn and LXC,
%% which have one each.
hidden_boot_ids(Config) ->
    [Mine, Theirs] = [boot_id(Config, Name) || Name <- ["mine", "theirs"]],
    [
        begin
            Nodes = [{"a", with_boot_id(OfA, #{})}, {"b", with_boot_id(OfB, #{})}],
            [A, B] = inet_rdma_test_node:start_all(Nodes),
            [
                begin
                    connect(X, Y),
                    [
                        ok = inet_rdma_test_link:await(P, Q, shm, "shared memory of this host$")
                     || {P, Q} <- [{A, B}, {B, A}]
                    ],
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            inet_rdma_test_node:stop_all()
        end
     || {OfA, OfB} <- [{"/dev/null", none}, {"/dev/null", "/dev/null"}, {Mine, Theirs}]
    ].

%% What both find in the directory is on one host; without it nothing says so.
hidden_boot_ids_in_other_networks(Config) ->
    [Mine, Theirs] = [boot_id(Config, Name) || Name <- ["mine", "theirs"]],
    Other = filename:join(proplists:get_value(scratch, Config), "other"),
    ok = file:make_dir(Other),
    [
        begin
            With = fun(Options) ->
                start(Config, with_boot_id(OfA, in(Config)), with_boot_id(OfB, Options))
            end,
            [A, B] = With(in(Config)),
            meet(A, B),
            meet_again(B, A),
            inet_rdma_test_node:stop(B),
            [C, D] = With(at(Other)),
            stays(C, D, "another host, or its shm_directory is another directory"),
            [E, F] = start(Config, with_boot_id(OfA, #{}), with_boot_id(OfB, #{})),
            stays(E, F, "another host"),
            inet_rdma_test_node:stop_all()
        end
     || {OfA, OfB} <- [{"/dev/null", "/dev/null"}, {Mine, Theirs}]
    ].

boot_id(Config, Name) ->
    File = filename:join(proplists:get_value(scratch, Config), Name),
    ok = file:write_file(File, ["00000000-0000-0000-0000-", string:pad(Name, 12, leading, $0), "\n"]),
    File.

%% The file that the node sees in the place of the kernel's.
with_boot_id(none, Options) ->
    Options;
with_boot_id(File, Options) ->
    Script = "mount --bind " ++ File ++ " /proc/sys/kernel/random/boot_id && exec \"$@\"",
    within(["unshare", "--mount", "sh", "-c", Script, "sh"], Options).

%% The first node is in the namespace of the test, the second in another.
start(Config, OfA, OfB) ->
    #{addresses := {Here, _}} = proplists:get_value(network, Config),
    inet_rdma_test_node:start_all([
        {"a", reachable(Config, "a", Here, OfA)}, {"b", of_b(Config, OfB)}
    ]).

start_b(Config, OfB) -> inet_rdma_test_node:start("b", of_b(Config, OfB)).

of_b(Config, OfB) ->
    #{namespace := Namespace, addresses := {_, There}} = proplists:get_value(network, Config),
    within(["ip", "netns", "exec", Namespace], reachable(Config, "b", There, OfB)).

%% Names are found in a directory, without EPMD.
reachable(Config, Prefix, Address, Options) ->
    Options#{
        name => inet_rdma_test_node:unique(Prefix) ++ "@" ++ Address,
        long => true,
        args => [
            "-start_epmd",
            "false",
            "-epmd_module",
            "inet_rdma_test_epmd",
            "-inet_rdma_test_epmd",
            proplists:get_value(names, Config)
        ]
    }.

in(Config) -> in(Config, []).

in(Config, More) -> at(proplists:get_value(shared, Config), More).

at(Directory) -> at(Directory, []).

%% A failed way is tried again soon.
at(Directory, More) ->
    #{rdma => [{shm_directory, list_to_binary(Directory)}, {fallback_retry_ms, 0} | More]}.

%% These programs start what starts the node.
within(Under, Options) -> Options#{under => Under ++ maps:get(under, Options, [])}.

%% The other user may be kept from this checkout.
as_other_user(Config, Options) ->
    Home = filename:join(proplists:get_value(scratch, Config), "home"),
    ok = filelib:ensure_dir(filename:join(Home, "x")),
    [] = os:cmd("chmod 777 " ++ Home),
    User = integer_to_list(?OTHER_USER),
    Options#{
        under => [
            "setpriv",
            "--reuid=" ++ User,
            "--regid=" ++ User,
            "--clear-groups",
            "env",
            "-C",
            Home,
            "HOME=" ++ Home
        ],
        code => inet_rdma_test_node:copy_code(filename:join(Home, "inet_rdma"))
    }.

meet(A, B) ->
    connect(A, B),
    [ok = inet_rdma_test_link:await(P, Q, shm, "through /") || {P, Q} <- [{A, B}, {B, A}]],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 500000]]).

meet_again(A, B) ->
    ok = inet_rdma_test_link:disconnect(A, B),
    meet(A, B).

%% The link works over TCP whichever connects, and both nodes say why.
stays(A, B, Why) ->
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, tcp, Why) || {P, Q} <- [{A, B}, {B, A}]],
            ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, 500000]]),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% $0 in the script is the path.
sh(Script, Path) ->
    [] = os:cmd("sh -c '" ++ Script ++ "' " ++ Path),
    ok.

files(Config) ->
    filelib:wildcard(filename:join(proplists:get_value(shared, Config), "inet_rdma-*")).

connect(A, B) -> inet_rdma_test_link:connect(A, B).
