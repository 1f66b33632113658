%% The other host of a certificate: reached by ssh, or by a certify that was started there with
%% --join.
-module(inet_rdma_certify_peer).

-export([open/2, facts/1, close/1, run/4]).
-export_type([t/0]).

%% networks: the addresses of the two hosts by which they talk to each other now. addresses: all of
%% the other host's.
-type t() :: #{
    host := inet_rdma_certify_node:host(),
    networks := {Here :: string(), There :: string()},
    addresses := [string()],
    doctor := inet_rdma_doctor:report(),
    facts := inet_rdma_certify_os:facts()
}.

-define(SSH_MS, 60000).
%% About 10 MB go there.
-define(COPY_MS, 600000).

%% none: a certificate of one host. Home: of inet_rdma_certify_os:make_home/1; nodes of the other
%% host get its cookie.
-spec open(inet_rdma_certify:options(), file:filename()) -> t() | none.
open(#{peer := none}, _Home) ->
    none;
open(#{peer := {listen, Port}}, Home) ->
    {Agent, Networks} = inet_rdma_certify_agent:listen(Port),
    Ask = fun(Module, Function, Args) ->
        inet_rdma_certify_agent:call(Agent, {Module, Function, Args}, ?SSH_MS)
    end,
    ok = Ask(inet_rdma_certify_node, home_here, [inet_rdma_certify_os:cookie(Home)]),
    known({agent, Agent}, Networks, Ask);
open(#{peer := {ssh, Name}, ssh := [Ssh | Words], erl := Erl}, Home) ->
    Program = os:find_executable(Ssh),
    Program =/= false orelse throw({usage, [Ssh, " is not in PATH; without ssh: --listen PORT"]}),
    Command = [Program | Words ++ [Name]],
    Directory = copy(Command, Name, Home),
    Host = {ssh, Command, Directory, Erl},
    try
        scouted(Host, Name)
    catch
        Class:Reason:Stack ->
            ok = remove(Host),
            erlang:raise(Class, Reason, Stack)
    end.

%% The modules, of both applications in one ebin, the library and the cookie go into a directory
%% there that only that user can enter.
copy([Program | Words], Name, Home) ->
    [Carrier, Tools] = [
        filename:dirname(inet_rdma_certify_node:ebin(Module))
     || Module <- [inet_rdma, ?MODULE]
    ],
    %% tar's own process, and no shell, reads the names here.
    Archive = filename:join(Home, "archive.tar.gz"),
    {0, _} = inet_rdma_certify_os:run(
        os:find_executable("tar"),
        [
            "-czhf",
            Archive,
            "-C",
            Carrier,
            "ebin",
            "priv",
            "-C",
            Tools,
            "ebin",
            "-C",
            Home,
            ".erlang.cookie"
        ],
        ?SSH_MS
    ),
    %% -o: root owns there what root unpacks.
    There =
        "d=$(mktemp -d /tmp/inet_rdma_certify.XXXXXX) && tar -xzof - -C \"$d\" && echo "
        "\"certify:$d\"",
    Quoted = [inet_rdma_certify_node:quoted(Word) || Word <- [Program | Words] ++ [There]],
    Shell = lists:flatten(lists:join(" ", Quoted)),
    From = " <" ++ inet_rdma_certify_node:quoted(Archive),
    Said = inet_rdma_certify_os:run(os:find_executable("sh"), ["-c", Shell ++ From], ?COPY_MS),
    ok = file:delete(Archive),
    case Said of
        {0, Output} ->
            case
                re:run(Output, "certify:(/tmp/inet_rdma_certify\\.[A-Za-z0-9]+)", [
                    {capture, all_but_first, list}
                ])
            of
                {match, [Directory]} -> Directory;
                nomatch -> unreachable(Name, Output)
            end;
        {timeout, Output} ->
            unreachable(Name, [Output, io_lib:format(" not done after ~b s", [?COPY_MS div 1000])]);
        {_, Output} ->
            unreachable(Name, Output)
    end.

-spec unreachable(string(), iodata()) -> no_return().
unreachable(Name, Output) ->
    throw(
        {usage, [
            "ssh to ",
            Name,
            " does not work without a question: ",
            string:trim(Output),
            "; without ssh: --listen PORT"
        ]}
    ).

%% Facts of the other host, from a VM there that is not distributed and ends afterwards.
scouted({ssh, _, _, Erl} = Host, Name) ->
    {peer, Tag, Scout} = inet_rdma_certify_node:launch(Host, default, []),
    try inet_rdma_certify_node:booted(Tag, Scout, Name) of
        Booted ->
            Ask = fun(Module, Function, Args) ->
                inet_rdma_certify_node:call(Booted, Module, Function, Args)
            end,
            %% Client's address and port, server's address and port.
            case string:lexemes(Ask(os, getenv, ["SSH_CONNECTION", ""]), " ") of
                [Here, _, There, _] ->
                    known(with_real_erl(Host, Ask), {Here, There}, Ask);
                _ ->
                    throw(
                        {usage,
                            "ssh there sets no SSH_CONNECTION: the addresses of the hosts are not "
                            "known; use --listen PORT"}
                    )
            end
    catch
        error:{node_does_not_start, _, _} ->
            throw(
                {usage, [
                    Erl,
                    " does not start on ",
                    Name,
                    ": OTP 25 or later must be there; --peer-erl PATH names it"
                ]}
            )
    after
        inet_rdma_certify_node:kill(Scout)
    end.

%% A script `erl' in PATH may need the user's own HOME.
with_real_erl({ssh, Command, Directory, Erl}, Ask) ->
    Real = filename:join([Ask(code, root_dir, []), "bin", "erl"]),
    {ssh, Command, Directory,
        case Ask(filelib, is_regular, [Real]) of
            true -> Real;
            false -> Erl
        end}.

known(Host, Networks, Ask) ->
    Facts = #{inet_rdma := Theirs} = Ask(inet_rdma_certify_os, facts, []),
    #{inet_rdma := Ours} = inet_rdma_certify_os:facts(),
    Theirs =:= Ours orelse
        throw({usage, ["the other host has inet_rdma ", Theirs, ", and this one ", Ours]}),
    Addresses = [
        inet:ntoa(Ip)
     || {_, _, _, _} = Ip <- Ask(inet_rdma_ip, of_host, []), Ip =/= {127, 0, 0, 1}
    ],
    #{
        host => Host,
        networks => Networks,
        addresses => Addresses,
        doctor => Ask(inet_rdma_doctor, report, []),
        facts => Facts
    }.

-spec facts(t() | none) -> inet_rdma_certify_os:facts() | undefined.
facts(none) -> undefined;
facts(#{facts := Facts}) -> Facts.

-spec close(t() | none) -> ok.
close(none) -> ok;
close(#{host := {agent, Agent}}) -> inet_rdma_certify_agent:close(Agent);
close(#{host := Host}) -> remove(Host).

remove({ssh, [Program | Words], Directory, _}) ->
    _ = inet_rdma_certify_os:run(
        Program, Words ++ ["rm", "-rf", inet_rdma_certify_node:quoted(Directory)], ?SSH_MS
    ),
    ok.

%% Runs a program of the other host.
-spec run(inet_rdma_certify_node:host(), string(), [string()], pos_integer()) ->
    {non_neg_integer() | timeout, binary()} | {error, term()}.
run({ssh, [Program | Words], _, _}, Name, Args, TimeoutMs) ->
    inet_rdma_certify_os:run(
        Program,
        Words ++
            [
                "timeout",
                integer_to_list(TimeoutMs div 1000),
                Name
                | lists:map(fun inet_rdma_certify_node:quoted/1, Args)
            ],
        TimeoutMs
    );
run({agent, Agent}, Name, Args, TimeoutMs) ->
    case inet_rdma_certify_agent:call(Agent, {os, find_executable, [Name]}, TimeoutMs) of
        false ->
            {error, {no_program_there, Name}};
        Path ->
            inet_rdma_certify_agent:call(
                Agent,
                {inet_rdma_certify_os, run, [Path, Args, TimeoutMs]},
                2 * TimeoutMs
            )
    end.
