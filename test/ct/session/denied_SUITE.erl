%% Writes that the kernel refuses while a link's TCP connection lives, and neither side gets a
%% report of an end.
-module(denied_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([a_denied_connection_is_given_up/1, bytes_wait_while_the_kernel_has_no_memory/1]).

%% Long enough that no tick arrives: only what is written can show the fault.
-define(TICKTIME, 2400).
%% Writes of each thread for which the kernel has no memory.
-define(REFUSED, 3).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [a_denied_connection_is_given_up, bytes_wait_while_the_kernel_has_no_memory].

init_per_suite(Config) ->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip -> Skip;
        Made -> inet_rdma_test_paths:init(tcp, Made)
    end.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> inet_rdma_test_node:stop_all().

%% The node gives the connection up by itself: the peer, which is stopped, says nothing.
a_denied_connection_is_given_up(Config) ->
    [A, B] = pair(Config),
    Before = info(resumes, A, B),
    inet_rdma_test_node:suspend(B),
    case call(A, inet_rdma_test_remote, end_part, [denied]) of
        {error, Why} ->
            inet_rdma_test_node:resume(B),
            inet_rdma_test_link:skip(
                "no TCP connection can be put into repair here: " ++ atom_to_list(Why)
            );
        ok ->
            _ = call(A, erlang, send, [{nobody, name(B)}, denied]),
            inet_rdma_test_wait:until(lost, 20000, fun() -> info(losses, A, B) > 0 end),
            inet_rdma_test_node:resume(B),
            inet_rdma_test_wait:until(resumed, 20000, fun() -> info(resumes, A, B) > Before end),
            ok = inet_rdma_test_link:exercise(A, B)
    end.

%% The bytes go once the kernel has memory; the connection stays.
bytes_wait_while_the_kernel_has_no_memory(Config) ->
    [A, B] = pair(Config),
    case inject(A, "ENOBUFS") of
        {ok, Strace} ->
            ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, [], 20000])),
            ok = inet_rdma_test_link:exercise(A, B),
            ok = detach(Strace),
            ?assertEqual([0, 0], [info(losses, X, Y) || {X, Y} <- [{A, B}, {B, A}]]);
        {error, Why} ->
            inet_rdma_test_link:skip(Why)
    end.

pair(Config) ->
    Args = ["-kernel", "net_ticktime", integer_to_list(?TICKTIME)],
    inet_rdma_test_node:connected_pair(inet_rdma_test_paths:options(Config, #{args => Args})).

info(Key, Node, Peer) -> maps:get(Key, call(Node, inet_rdma, info, [name(Peer)])).

%% Makes the first writes of each of the node's threads fail.
inject(#{os_pid := OsPid}, Error) ->
    case os:find_executable("strace") of
        false ->
            {error, "the program strace is missing"};
        Program ->
            Inject =
                "inject=sendto,sendmsg:error=" ++ Error ++ ":when=1.." ++ integer_to_list(?REFUSED),
            Args = ["-f", "-qq", "-o", "/dev/null", "-e", Inject, "-p", integer_to_list(OsPid)],
            Strace = open_port({spawn_executable, Program}, [
                {args, Args}, exit_status, stderr_to_stdout
            ]),
            case inet_rdma_test_wait:until(traced, 20000, fun() -> is_traced(OsPid, Strace) end) of
                ended -> {error, "strace cannot attach to a node here"};
                _ -> {ok, Strace}
            end
    end.

%% strace ends if it may not attach; what it says may be a mere remark about a call under way.
is_traced(OsPid, Strace) ->
    receive
        {Strace, {exit_status, _}} -> {ok, ended}
    after 0 ->
        Statuses = [
            file:read_file(File)
         || File <- filelib:wildcard(
                "/proc/" ++ integer_to_list(OsPid) ++ "/task/*/status"
            )
        ],
        lists:all(
            fun
                ({ok, Status}) -> binary:match(Status, <<"TracerPid:\t0\n">>) =:= nomatch;
                ({error, _}) -> true
            end,
            Statuses
        )
    end.

detach(Strace) ->
    {os_pid, OsPid} = erlang:port_info(Strace, os_pid),
    _ = os:cmd("kill -INT " ++ integer_to_list(OsPid)),
    receive
        {Strace, {exit_status, _}} -> ok
    after 20000 -> error(strace_does_not_end)
    end.
