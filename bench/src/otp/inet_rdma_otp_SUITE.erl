%% The cases of OTP's ssl_dist_bench_SUITE, as they are, over inet_rdma too: a group is a carrier.
%% bench/run.py otp.
%%
%% Started with -inet_rdma_ebin DIRECTORY, where the library's modules are.
-module(inet_rdma_otp_SUITE).

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([init_per_testcase/2, end_per_testcase/2]).
-export([setup/1, roundtrip/1, sched_utilization/1]).
-export([
    throughput_0/1,
    throughput_64/1,
    throughput_1024/1,
    throughput_4096/1,
    throughput_16384/1,
    throughput_65536/1,
    throughput_262144/1,
    throughput_1048576/1
]).

-define(OTP, ssl_dist_bench_SUITE).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, Carrier} || Carrier <- [tcp, tls, inet_rdma]].

groups() ->
    [{Carrier, cases()} || {group, Carrier} <- all()].

cases() ->
    [
        setup,
        roundtrip,
        sched_utilization,
        throughput_0,
        throughput_64,
        throughput_1024,
        throughput_4096,
        throughput_16384,
        throughput_65536,
        throughput_262144,
        throughput_1048576
    ].

init_per_suite(Config) ->
    ?OTP:init_per_suite(Config).

end_per_suite(Config) ->
    ?OTP:end_per_suite(Config).

%% OTP's group benchmark sets the effort at which it publishes figures.
init_per_group(Carrier, Config) ->
    of_carrier(Carrier, ?OTP:init_per_group(benchmark, Config)).

of_carrier(tcp, Config) ->
    ?OTP:init_per_group(plain, Config);
of_carrier(tls, Config) ->
    ?OTP:init_per_group(ssl, Config);
of_carrier(inet_rdma, Config) ->
    {ok, [[Ebin]]} = init:get_argument(inet_rdma_ebin),
    %% A link that would stay on TCP must not be measured: it is refused.
    Arguments = "-pa " ++ Ebin ++ " -proto_dist inet_rdma -inet_rdma required true",
    [{ssl_dist, false}, {ssl_dist_prefix, "RDMA"}, {ssl_dist_args, Arguments} | Config].

end_per_group(_Carrier, _Config) ->
    ok.

init_per_testcase(Case, Config) ->
    ?OTP:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) ->
    ?OTP:end_per_testcase(Case, Config).

setup(Config) -> ?OTP:setup(Config).
roundtrip(Config) -> ?OTP:roundtrip(Config).
sched_utilization(Config) -> ?OTP:sched_utilization(Config).
throughput_0(Config) -> ?OTP:throughput_0(Config).
throughput_64(Config) -> ?OTP:throughput_64(Config).
throughput_1024(Config) -> ?OTP:throughput_1024(Config).
throughput_4096(Config) -> ?OTP:throughput_4096(Config).
throughput_16384(Config) -> ?OTP:throughput_16384(Config).
throughput_65536(Config) -> ?OTP:throughput_65536(Config).
throughput_262144(Config) -> ?OTP:throughput_262144(Config).
throughput_1048576(Config) -> ?OTP:throughput_1048576(Config).
