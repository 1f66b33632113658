%% A hook of Common Test: writes what has failed to the file that INET_RDMA_TEST_FAILED names, as
%% variables of `make test-erlang`, a line for each case. test/ct/again reads it.
-module(inet_rdma_test_failures).

-export([init/2, on_tc_fail/4, on_tc_skip/4]).

init(_Id, _Options) ->
    {ok, os:getenv("INET_RDMA_TEST_FAILED", "")}.

on_tc_fail(Suite, Test, _Reason, File) ->
    note(File, Suite, Test),
    File.

%% A case whose init_per_testcase fails is skipped. So are all cases of a suite or group whose init
%% fails: that init has a line of its own.
on_tc_skip(Suite, Test, {tc_auto_skip, Reason}, File) ->
    case is_by_parent(Reason) of
        true -> ok;
        false -> note(File, Suite, Test)
    end,
    File;
on_tc_skip(_Suite, _Test, _Reason, File) ->
    File.

is_by_parent({failed, {_, Init, _}}) when Init =:= init_per_suite; Init =:= init_per_group -> true;
is_by_parent({failed, {_, {Init, _}, _}}) when Init =:= init_per_group -> true;
is_by_parent({group_failed, _}) -> true;
is_by_parent(_) -> false.

note("", _Suite, _Test) ->
    ok;
note(File, Suite, Test) ->
    Line = ["SUITE=", atom_to_list(Suite), only(Test), "\n"],
    ok = file:write_file(File, Line, [append]).

only({Fixture, Group}) when Fixture =:= init_per_group; Fixture =:= end_per_group ->
    [" GROUP=", atom_to_list(Group)];
only({Case, Group}) ->
    [" GROUP=", atom_to_list(Group), " CASE=", atom_to_list(Case)];
only(Fixture) when Fixture =:= init_per_suite; Fixture =:= end_per_suite ->
    "";
only(Case) ->
    [" CASE=", atom_to_list(Case)].
