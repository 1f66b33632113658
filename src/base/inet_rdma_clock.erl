%% Points in time, in milliseconds of erlang:monotonic_time/1.
-module(inet_rdma_clock).

-export([now_ms/0, deadline/1, left/1]).
-export_type([deadline/0]).

-type deadline() :: integer() | infinity.

-spec now_ms() -> integer().
now_ms() -> erlang:monotonic_time(millisecond).

-spec deadline(timeout()) -> deadline().
deadline(infinity) -> infinity;
deadline(TimeoutMs) -> now_ms() + TimeoutMs.

-spec left(deadline()) -> timeout().
left(infinity) -> infinity;
left(DeadlineMs) -> max(0, DeadlineMs - now_ms()).
