%% The hook that OTP's suites name. Debian does not install OTP's own, which also compiles what the
%% suites have in C. This one gives each case the names of nodes that its suite asks for.
-module(ts_install_cth).

-export([id/1, init/2, pre_init_per_suite/3, pre_init_per_group/4, pre_init_per_testcase/4]).

-spec id([proplists:property()]) -> module().
id(_Options) ->
    ?MODULE.

-spec init(module(), [proplists:property()]) -> {ok, non_neg_integer()}.
init(_Id, Options) ->
    {ok, proplists:get_value(nodenames, Options, 0)}.

-spec pre_init_per_suite(module(), Config, Count) -> {Config, Count}.
pre_init_per_suite(_Suite, Config, Count) ->
    {with_names(Config, Count), Count}.

-spec pre_init_per_group(module(), term(), Config, Count) -> {Config, Count}.
pre_init_per_group(_Suite, _Group, Config, Count) ->
    {with_names(Config, Count), Count}.

-spec pre_init_per_testcase(module(), term(), Config, Count) -> {Config, Count}.
pre_init_per_testcase(_Suite, _Case, Config, Count) ->
    {with_names(Config, Count), Count}.

with_names(Config, Count) ->
    [_Name, Host] = string:split(atom_to_list(node()), "@"),
    Names = [
        list_to_atom(lists:concat(["otp_", erlang:unique_integer([positive]), "@", Host]))
     || _ <- lists:seq(1, Count)
    ],
    lists:keystore(nodenames, 1, Config, {nodenames, Names}).
