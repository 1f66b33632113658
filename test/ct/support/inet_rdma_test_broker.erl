%% A broker of RabbitMQ, as Debian's package starts it, but with directories, name and ports of its
%% own. Runs in the node that runs the tests.
-module(inet_rdma_test_broker).

-export([installed/0, add_client/0, start/3, start/4, start_configured/3]).
-export([stop/1, amqp/1, ctl/2, enable/2, join/2, logged/2]).
-export_type([t/0]).

-type t() :: #{
    name := string(),
    os_pid := pos_integer(),
    amqp_port := inet:port_number(),
    home := file:filename(),
    port := port(),
    env := [{string(), string()}],
    place := place()
}.
%% The host by whose name the broker goes; under: the command that runs others there.
-type place() :: here | #{host := string(), under := [string()]}.

-define(BOOT_MS, 60000).

%% Where it is; INET_RDMA_RABBITMQ names another place.
-spec installed() -> none | file:filename().
installed() ->
    Pattern = os:getenv("INET_RDMA_RABBITMQ", "/usr/lib/rabbitmq/lib/rabbitmq_server-*"),
    case lists:reverse(filelib:wildcard(Pattern)) of
        [Newest | _] -> Newest;
        [] -> none
    end.

%% Makes its client for AMQP usable in this node.
-spec add_client() -> ok.
add_client() ->
    ok = code:add_pathsz(filelib:wildcard(filename:join([installed(), "plugins", "*", "ebin"]))),
    {ok, _} = application:ensure_all_started(amqp_client),
    ok.

%% Flags: of the carrier, for erl.
-spec start(file:filename(), Prefix :: string(), Flags :: [string()]) -> t().
start(Directory, Prefix, Flags) -> start(Directory, Prefix, Flags, here).

-spec start(file:filename(), Prefix :: string(), Flags :: [string()], place()) -> t().
start(Directory, Prefix, Flags, Place) -> start(Directory, Prefix, Flags, Place, none).

%% As a rabbitmq-env.conf says.
-spec start_configured(file:filename(), Prefix :: string(), File :: file:filename()) -> t().
start_configured(Directory, Prefix, File) -> start(Directory, Prefix, [], here, File).

start(Directory, Prefix, Flags, Place, File) ->
    Name = inet_rdma_test_node:unique(Prefix) ++ "@" ++ host(Place),
    Home = filename:join(Directory, Name),
    ok = filelib:ensure_dir(filename:join([Home, "log", "x"])),
    Cookie = filename:join(Home, ".erlang.cookie"),
    ok = file:write_file(Cookie, "inet_rdma_test"),
    ok = file:change_mode(Cookie, 8#400),
    ok = file:write_file(filename:join(Home, "enabled_plugins"), "[].\n"),
    AmqpPort = inet_rdma_test_os:free_port(),
    Env = [
        {"HOME", Home},
        {"RABBITMQ_NODENAME", Name},
        {"RABBITMQ_NODE_PORT", integer_to_list(AmqpPort)},
        {"RABBITMQ_DIST_PORT", integer_to_list(inet_rdma_test_os:free_port())},
        {"RABBITMQ_MNESIA_BASE", filename:join(Home, "mnesia")},
        {"RABBITMQ_LOG_BASE", filename:join(Home, "log")},
        {"RABBITMQ_PID_FILE", filename:join(Home, "pid")},
        {"RABBITMQ_ENABLED_PLUGINS_FILE", filename:join(Home, "enabled_plugins")},
        {"RABBITMQ_CONFIG_FILE", filename:join(Home, "none")},
        {"RABBITMQ_CONF_ENV_FILE",
            case File of
                none -> filename:join(Home, "none.env");
                _ -> File
            end},
        {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", lists:append(lists:join(" ", Flags))}
        | [{"RABBITMQ_USE_LONGNAME", "true"} || Place =/= here]
    ],
    Port = open("rabbitmq-server", Place, [], [{env, Env}, hide, stderr_to_stdout, {line, 1000}]),
    Broker = #{
        name => Name,
        os_pid => 0,
        amqp_port => AmqpPort,
        home => Home,
        port => Port,
        env => Env,
        place => Place
    },
    ok = booted(Broker),
    {ok, OsPid} = file:read_file(filename:join(Home, "pid")),
    Broker#{os_pid := binary_to_integer(string:trim(OsPid))}.

host(here) ->
    {ok, Host} = inet:gethostname(),
    Host;
host(#{host := Host}) ->
    Host.

booted(#{name := Name, place := here, amqp_port := Port}) ->
    true = inet_rdma_test_wait:until({booted, Name}, ?BOOT_MS, fun() -> accepts(Port) end),
    ok;
booted(#{name := Name, home := Home} = Broker) ->
    Pid = filename:join(Home, "pid"),
    _ = inet_rdma_test_wait:until({pid, Name}, ?BOOT_MS, fun() -> filelib:is_regular(Pid) end),
    _ = ctl(Broker, ["await_startup"]),
    ok.

open(Program, Place, Args, Options) ->
    File = filename:join([installed(), "sbin", Program]),
    case Place of
        here ->
            open_port({spawn_executable, File}, [{args, Args} | Options]);
        #{under := [Under | Words]} ->
            open_port({spawn_executable, os:find_executable(Under)}, [
                {args, Words ++ [File | Args]} | Options
            ])
    end.

%% Where it accepts AMQP.
-spec amqp(t()) -> {Host :: string(), inet:port_number()}.
amqp(#{place := here, amqp_port := Port}) -> {"127.0.0.1", Port};
amqp(#{place := #{host := Host}, amqp_port := Port}) -> {Host, Port}.

accepts(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {ok, Socket} ->
            gen_tcp:close(Socket),
            true;
        {error, Reason} ->
            Reason
    end.

%% Ends it the hard way.
-spec stop(t()) -> ok.
stop(#{os_pid := OsPid, port := Port}) ->
    _ = os:cmd("kill -KILL " ++ integer_to_list(OsPid)),
    inet_rdma_test_wait:until({end_of_process, OsPid}, 20000, fun() ->
        not inet_rdma_test_os:is_alive(OsPid)
    end),
    catch port_close(Port),
    ok.

%% What rabbitmqctl answers; it must end well.
-spec ctl(t(), [string()]) -> string().
ctl(Broker, Arguments) -> run("rabbitmqctl", Broker, Arguments).

run(Program, #{env := Env, place := Place}, Arguments) ->
    %% It has its own flags for erl, and connects as any node of inet_tcp does, or, where these
    %% flags say so, of inet_tls.
    Flags = {"RABBITMQ_CTL_ERL_ARGS", os:getenv("INET_RDMA_RABBITMQ_CTL_FLAGS", "")},
    Own = [Flags | lists:keydelete("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", 1, Env)],
    Port = open(Program, Place, Arguments, [{env, Own}, exit_status, stderr_to_stdout, hide]),
    collect(Port, Arguments, []).

collect(Port, Arguments, Output) ->
    receive
        {Port, {data, Data}} ->
            collect(Port, Arguments, [Output | Data]);
        {Port, {exit_status, 0}} ->
            lists:flatten(Output);
        {Port, {exit_status, Status}} ->
            error({rabbitmqctl, Arguments, Status, lists:flatten(Output)})
    end.

-spec enable(t(), Plugins :: [string()]) -> ok.
enable(Broker, Plugins) ->
    _ = run("rabbitmq-plugins", Broker, ["enable" | Plugins]),
    ok.

%% Makes the first broker a member of the other's cluster.
-spec join(t(), t()) -> ok.
join(Broker, #{name := Name}) ->
    [ctl(Broker, Words) || Words <- [["stop_app"], ["join_cluster", Name], ["start_app"]]],
    ok.

%% How many lines of its log have this in them.
-spec logged(t(), binary()) -> non_neg_integer().
logged(#{home := Home}, Text) ->
    Files = filelib:wildcard(filename:join([Home, "log", "*.log"])),
    Lines = lists:append([
        binary:split(Log, <<"\n">>, [global])
     || File <- Files, {ok, Log} <- [file:read_file(File)]
    ]),
    length([Line || Line <- Lines, binary:match(Line, Text) =/= nomatch]).
