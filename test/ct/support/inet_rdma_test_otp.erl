%% Another OTP, which the command of INET_RDMA_OTHER_OTP leads to. Runs in the node that runs the
%% tests.
-module(inet_rdma_test_otp).

-export([needed/1, compiled/2, output/3]).

%% The configuration of a case that needs it, with the command as other_otp.
-spec needed(Config) -> Config | {skip, string()} when Config :: [tuple()].
needed(Config) ->
    case os:getenv("INET_RDMA_OTHER_OTP", "") of
        "" -> {skip, "INET_RDMA_OTHER_OTP does not name a command that runs another OTP"};
        Command -> [{other_otp, string:lexemes(Command, " ")} | Config]
    end.

%% The modules of the carrier and of the tests, compiled by the other OTP below To: it may not load
%% what this one's compiler makes. The native library is the same. Command: a program and its first
%% arguments.
-spec compiled(Command :: [string()], To :: file:filename()) -> file:filename().
compiled(Command, To) ->
    Ebin = filename:join(To, "ebin"),
    case filelib:is_dir(Ebin) of
        true ->
            Ebin;
        false ->
            ok = filelib:ensure_dir(filename:join(Ebin, "module")),
            Own = inet_rdma_test_node:ebin(),
            ok = file:make_symlink(
                filename:join(filename:dirname(Own), "priv"), filename:join(To, "priv")
            ),
            {ok, _} = file:copy(
                filename:join(Own, "inet_rdma.app"), filename:join(Ebin, "inet_rdma.app")
            ),
            Tests = filename:dirname(code:which(?MODULE)),
            Root = filename:join([Tests, "..", "..", ".."]),
            Sources = [
                Source
             || {Directory, Pattern} <- [
                    {filename:join(Root, "src"), "**/*.erl"},
                    {filename:join(Root, "inet_rdma_tools/src"), "*.erl"},
                    {Tests, "inet_rdma_test_*.erl"}
                ],
                Source <- filelib:wildcard(filename:join(Directory, Pattern))
            ],
            _ = output(Command, "erlc", ["-o", Ebin | Sources]),
            Ebin
    end.

%% What a program of the other OTP writes; it must end well.
-spec output(Command :: [string()], Program :: string(), Arguments :: [string()]) -> string().
output([Program | First], Wanted, Arguments) ->
    Path = filename:join(filename:dirname(inet_rdma_test_node:erl()), Wanted),
    Port = open_port(
        {spawn_executable, os:find_executable(Program)},
        [{args, First ++ [Path | Arguments]}, exit_status, stderr_to_stdout, hide]
    ),
    collect(Port, []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output | Data]);
        {Port, {exit_status, 0}} -> lists:flatten(Output);
        {Port, {exit_status, Status}} -> error({status, Status, lists:flatten(Output)})
    after inet_rdma_test_wait:patience(60000) -> error({no_end, lists:flatten(Output)})
    end.
