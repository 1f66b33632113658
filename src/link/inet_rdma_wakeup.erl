%% Notices that this node stood still: its machine was suspended, stopped, moved or restored from a snapshot, or its
%% process was stopped. The guards of sessions are told: no byte goes over a connection that a snapshot may hold.
%%
%% A clock tells, at a timer that runs while there are sessions. The kernel gives no other sign to a program without
%% privileges: from 6.10 on it tells udev of a new generation of the virtual machine (NEW_VMGENID), and shows that id
%% nowhere.
-module(inet_rdma_wakeup).

-behaviour(inet_rdma_guard).

-export([start_link/0, stood_still/2]).
%% Spawned.
-export([init/0]).
-export([handle/2]).

-include_lib("kernel/include/logger.hrl").

%% Between two looks. A look takes 50 us; a pause is noticed by the next one, which comes at once if it is late.
-define(LOOK_MS, 5000).
%% The two clocks differ by what a machine was suspended alone; they are read one after the other.
-define(SUSPENDED_MS, 500).
%% A timer may be so late on a node that has much to do.
-define(LATE_MS, 5000).
%% Far more than the wall clock is set by at a time while NTP runs, and than the hardware clock's second hides.
-define(AHEAD_MS, 3000).

-type clocks() :: #{monotonic | boottime | realtime | hardware := integer()}.
-type sign() :: process_stopped | machine_suspended | clock_set | hardware_clock.

%% none: there are no sessions, and the timer does not run.
-record(wakeup, {clocks = none :: clocks() | unknown | none}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> proc_lib:start_link(?MODULE, init, []).

-spec init() -> no_return().
init() ->
    true = register(?MODULE, self()),
    _ = [self() ! watch || inet_rdma_links:guards() =/= []],
    ok = proc_lib:init_ack({ok, self()}),
    inet_rdma_guard:run(?MODULE, #wakeup{}).

%% watch: inet_rdma_links has a session.
-spec handle(term(), #wakeup{}) -> {ok, #wakeup{}}.
handle(watch, #wakeup{clocks = none}) ->
    {ok, look_later(clocks())};
handle(look, #wakeup{clocks = Before}) ->
    Now = clocks(),
    case inet_rdma_links:guards() of
        [] ->
            {ok, #wakeup{}};
        Guards ->
            ok = tell(stood_still(Before, Now), Guards),
            {ok, look_later(Now)}
    end;
handle(_Message, Wakeup) ->
    {ok, Wakeup}.

%% unknown: the library is gone.
clocks() ->
    try inet_rdma_nif:clocks()
    catch error:_ -> unknown
    end.

look_later(Now) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    #wakeup{clocks = Now}.

tell(no, _Guards) ->
    ok;
tell({Sign, Ms}, Guards) ->
    _ = [Guard ! woke || Guard <- Guards],
    ?LOG_NOTICE("inet_rdma: this node stood still for about ~b s (~ts): its links make other connections before they "
                "send again", [Ms div 1000, words(Sign)]),
    inet_rdma_recorder:record(woke, node(), #{cause => Sign, why => words(Sign),
                                             duration => erlang:convert_time_unit(Ms, millisecond, native)}).

words(process_stopped) -> "its process did not run";
words(machine_suspended) -> "its machine was suspended";
words(clock_set) -> "its clock was set forward";
words(hardware_clock) -> "the machine's hardware clock has gone on".

%% By two looks at the clocks, ?LOOK_MS apart as this node takes it. A hypervisor lets the kernel's clocks go on from
%% where they stood; then the hardware clock tells, or the wall clock when something sets it.
-spec stood_still(clocks() | unknown, clocks() | unknown) -> no | {sign(), Ms :: pos_integer()}.
stood_still(Before, Now) when Before =:= unknown; Now =:= unknown ->
    no;
stood_still(Before, Now) ->
    #{monotonic := Monotonic, boottime := Boottime, realtime := Realtime} = Passed =
        maps:map(fun(Clock, Time) -> Time - maps:get(Clock, Before) end, Now),
    Hardware = case {Before, Now} of
                   {#{hardware := From}, #{hardware := To}} when From > 0, To > 0 -> maps:get(hardware, Passed);
                   _ -> 0
               end,
    Signs = [{machine_suspended, Boottime - Monotonic, ?SUSPENDED_MS},
             {process_stopped, Monotonic - ?LOOK_MS, ?LATE_MS},
             {clock_set, Realtime - Boottime, ?AHEAD_MS},
             {hardware_clock, Hardware - Boottime, ?AHEAD_MS}],
    case [{Sign, Ms} || {Sign, Ms, Most} <- Signs, Ms > Most] of
        [] -> no;
        [First | _] -> First
    end.
