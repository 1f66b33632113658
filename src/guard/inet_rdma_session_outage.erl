%% The duration of an outage that only the other side of a link has noticed.
%%
%% A side that sends notices when the peer's host acknowledges nothing. A side that only receives
%% hears nothing for a while, as on a link that is idle. So the guard of the side that has noticed
%% an outage of some seconds says in band how long it was, when it is over:
%%
%%     <<$o, 1:8, Ms:32>>
%%
%% The other side logs that, unless it has logged an outage of its own that ended at the same time.
-module(inet_rdma_session_outage).

-export([ended/3, hear/4]).
-export_type([t/0]).

-import(inet_rdma_clock, [now_ms/0]).

-define(OUTAGE, $o).
-define(ENDED, 1).
-define(MS_MAX, 16#ffffffff).
%% One outage ends at both sides within the time of the next attempt to connect, or of the next
%% check of a path: a second each. Less than the shortest outage that a side says, as the end of an
%% earlier one is not meant.
-define(SAME_MS, 2500).

%% When the last outage that this side has noticed ended, by inet_rdma_clock:now_ms/0.
-type t() :: integer() | never.

%% What was suspected answers, or another connection is there. Duration: since the suspicion or the
%% loss, in native units.
-spec ended(Duration :: integer(), inet_rdma_session:t(), t()) -> t().
ended(Duration, Session, Before) ->
    case inet_rdma_session_loss:is_outage(Duration) of
        true ->
            Ms = min(erlang:convert_time_unit(Duration, native, millisecond), ?MS_MAX),
            _ = inet_rdma_session:send_message(Session, <<?OUTAGE, ?ENDED, Ms:32>>),
            now_ms();
        false ->
            Before
    end.

%% A message of the peer's guard. HasLoss: this side has noticed an outage that is not over. False:
%% the message is about something else.
-spec hear(binary(), HasLoss :: boolean(), inet_rdma_session_log:link(), t()) -> boolean().
hear(<<?OUTAGE, ?ENDED, Ms:32>>, HasLoss, Link, EndedAt) ->
    IsKnown = HasLoss orelse EndedAt =/= never andalso now_ms() - EndedAt < ?SAME_MS,
    _ = [ok = inet_rdma_session_log:peer_had_outage(Ms, Link) || not IsKnown],
    true;
hear(_Message, _HasLoss, _Link, _EndedAt) ->
    false.
