%% Links over a long way, which a relay makes: more is under way than a link has at first, up to
%% each bound, and the loss of the connection loses none of it.
%%
%% The second node's window is looked at. For the first one the relay is a process of its own host.
-module(distance_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_suite/1, end_per_suite/1]).
-export([
    a_window_follows_the_way_and_rests/1,
    much_under_way_outlives_losses/1,
    bounds_of_windows_hold/1
]).

%% Half of a round trip. A machine that does much else passes few bytes in a second.
-define(DELAY_MS, 400).
-define(LOSSES, 3).
%% The window at first, at most: less where the relay's kernel is near.
-define(FIRST_BYTES, (4 bsl 20)).
%% Of these a link of the tests has under way when its connection is lost.
-define(MUCH_BYTES, (12 bsl 20)).
-define(SHOWN, [bytes_unacknowledged, window_bytes, window_limits, round_trip_p50_us]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [{inet_rdma_test_nodes, [paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

%% Shared memory has no window.
groups() ->
    Cases = [
        a_window_follows_the_way_and_rests,
        much_under_way_outlives_losses,
        bounds_of_windows_hold
    ],
    [Group || {Path, _, _} = Group <- inet_rdma_test_paths:groups(Cases), Path =/= shm].

init_per_suite(Config) ->
    inet_rdma_test_node:only_rdma(Config).

end_per_suite(_Config) ->
    ok.

%% The window is the first one before the traffic, and again after it: a link at rest gives the
%% memory back with its next tick.
a_window_follows_the_way_and_rests(Config) ->
    Ticks = ["-kernel", "net_ticktime", "20"],
    #{a := A, b := B, relay := Relay} = distant(#{args => Ticks}, Config),
    %% On a busy machine the exercise of the link may have made it larger.
    rests(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    under_way(2 * ?FIRST_BYTES, A, B),
    inet_rdma_test_wait:until(larger, 60000, fun() -> window(A, B) > ?FIRST_BYTES end),
    ok = inet_rdma_test_relay:delay(Relay, 0),
    inet_rdma_test_lasting:undisturbed(Traffic),
    rests(A, B).

much_under_way_outlives_losses(Config) ->
    #{a := A, b := B, relay := Relay} = distant(#{}, Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [
        begin
            under_way(?MUCH_BYTES, A, B),
            Before = inet_rdma_test_lasting:resumes(A, B),
            ?assert(inet_rdma_test_relay:lose(Relay, reset) > 0),
            inet_rdma_test_lasting:resumed(A, B, Before)
        end
     || _ <- lists:seq(1, ?LOSSES)
    ],
    ok = inet_rdma_test_relay:delay(Relay, 0),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% What the peer takes, and what a node allows all its links. Senders wait, and the link counts.
bounds_of_windows_hold(Config) ->
    bounded([{window_max_bytes, 6 bsl 20}], [], 6 bsl 20, Config),
    bounded([], [{node_window_max_bytes, 1 bsl 20}], 5 bsl 20, Config).

bounded(RdmaOfA, RdmaOfB, Bytes, Config) ->
    [OptionsA, OptionsB] = [
        inet_rdma_test_paths:options(Config, #{rdma => Rdma})
     || Rdma <- [RdmaOfA, RdmaOfB]
    ],
    #{a := A, b := B, relay := Relay} = distant(OptionsA, OptionsB, Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    %% The window shrinks again when the traffic does not use it.
    inet_rdma_test_wait:until(limits, 60000, fun() ->
        #{window_limits := Limits, window_bytes := Window} = Info = info(B, A),
        ?assert(Window =< Bytes),
        (Limits > 0 andalso Window =:= Bytes) orelse maps:with(?SHOWN, Info)
    end),
    ok = inet_rdma_test_relay:delay(Relay, 0),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% Two nodes with a link over the long way.
distant(More, Config) ->
    Options = inet_rdma_test_paths:options(Config, More),
    distant(Options, Options, Config).

distant(OptionsA, OptionsB, Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    #{a := A, b := B, relay := Relay} =
        Nodes =
        inet_rdma_test_detour:start(Directory, OptionsA, OptionsB),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B),
    Before = inet_rdma_test_lasting:resumes(A, B),
    ok = inet_rdma_test_relay:delay(Relay, ?DELAY_MS),
    inet_rdma_test_lasting:resumed(A, B, Before),
    Nodes.

under_way(Bytes, A, B) ->
    inet_rdma_test_wait:until({under_way, Bytes}, 60000, fun() ->
        #{bytes_unacknowledged := Present} = Info = info(B, A),
        Present >= Bytes orelse maps:with(?SHOWN, Info)
    end).

rests(A, B) ->
    inet_rdma_test_wait:until(rests, 60000, fun() ->
        Window = window(A, B),
        Window =< ?FIRST_BYTES orelse Window
    end).

window(A, B) -> maps:get(window_bytes, info(B, A)).

info(A, B) -> call(A, inet_rdma, info, [name(B)]).
