%% Notices that this node was paused: its machine was asleep, stopped, moved or restored from a
%% snapshot, or its process was stopped. The guards of sessions get a message: no byte goes over a
%% connection that a snapshot may hold.
%%
%% It reads clocks at a timer that runs while there are sessions. The kernel's clocks and the timer
%% are read at once, on a normal scheduler, and show that a machine was asleep, or that a process
%% was stopped. A hypervisor lets all clocks of the kernel go on from where they stood: then the
%% machine's hardware clock is ahead of them. A process of its own reads that clock, as the file may
%% wait for a dirty scheduler. A machine without such a clock wakes no dirty scheduler.
%%
%% The kernel gives no other sign to a program without privileges: from 6.10 on it tells udev of a
%% new generation of the virtual machine (NEW_VMGENID), and shows that id nowhere.
-module(inet_rdma_wakeup).

-behaviour(inet_rdma_sleeper).

-export([start_link/0, node_pause/2, machine_pause/2]).
%% Spawned.
-export([init/0, read_machine/0]).
-export([handle/2]).

-include_lib("kernel/include/logger.hrl").

%% Between two checks, more than that second. A pause is noticed by the next one, which comes at once if it is late.
-define(CHECK_MS, 5000).
%% boottime - monotonic is the time asleep. 500 ms allow for two separate reads.
-define(PAUSED_MS, 500).
%% A timer may be so late on a node that has much to do.
-define(LATE_MS, 5000).
%% More than the hardware clock's second hides.
-define(AHEAD_MS, 3000).
%% A hardware clock that differs so little from the wall clock was set by it: both are read in
%% seconds.
-define(AGREES_MS, 2000).
%% NTP corrects the wall clock of a machine that runs by less, and may set the hardware clock with
%% it. An agent that corrects the clock of a restored machine sets both, too.
-define(STEP_MS, 30000).

-type clocks() :: #{monotonic | boottime | realtime := integer()}.
-type machine_clocks() :: #{boottime | realtime | hardware := integer()}.
-type sign() :: process_stopped | machine_paused | clock_set | hardware_clock.

%% What the last check read. reader: the process that reads the machine's clocks now.
-type readings() :: #{
    clocks := clocks() | unknown,
    machine := machine_clocks() | unknown,
    reader := none | {pid(), reference()}
}.

%% none: there are no sessions, and the timer does not run.
-record(wakeup, {readings = none :: readings() | none}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> proc_lib:start_link(?MODULE, init, []).

-spec init() -> no_return().
init() ->
    true = register(?MODULE, self()),
    _ =
        case inet_rdma_links:guards() =/= [] of
            true -> self() ! watch;
            false -> ok
        end,
    ok = proc_lib:init_ack({ok, self()}),
    inet_rdma_sleeper:run(?MODULE, #wakeup{}).

%% watch: inet_rdma_links has another session; of those that begin within a second it tells the first.
-spec handle(term(), #wakeup{}) -> {ok, #wakeup{}}.
handle(watch, #wakeup{readings = none}) ->
    {ok, check_later(#{clocks => clocks(), machine => unknown, reader => none})};
handle(check, #wakeup{readings = #{clocks := Before} = Readings}) ->
    Now = clocks(),
    case inet_rdma_links:guards() of
        [] ->
            {ok, #wakeup{}};
        Guards ->
            ok = tell(node_pause(Before, Now), Guards),
            {ok, check_later(without_hardware(Now, Guards, Readings#{clocks := Now}))}
    end;
handle({'DOWN', Ref, process, Pid, Exit}, #wakeup{
    readings = #{machine := Before, reader := {Pid, Ref}} = Readings
}) ->
    Now =
        case Exit of
            {clocks, Clocks} -> Clocks;
            _ -> unknown
        end,
    ok = tell(machine_pause(Before, Now), inet_rdma_links:guards()),
    {ok, #wakeup{readings = Readings#{machine := Now, reader := none}}};
%% Started by an earlier version of this module.
handle(check, _Earlier) ->
    handle(watch, #wakeup{});
handle(_Message, Wakeup) ->
    {ok, Wakeup}.

%% unknown: the library is gone.
clocks() ->
    try
        inet_rdma_nif:clocks()
    catch
        error:_ -> unknown
    end.

%% On a machine that has no hardware clock the kernel's clocks are all that there is to read.
without_hardware(
    #{boottime := Boottime, realtime := Realtime},
    Guards,
    #{machine := #{hardware := 0} = Before} = Readings
) ->
    Now = Before#{boottime := Boottime, realtime := Realtime},
    ok = tell(machine_pause(Before, Now), Guards),
    Readings#{machine := Now};
without_hardware(_Now, _Guards, Readings) ->
    Readings.

check_later(Readings) ->
    _ = erlang:send_after(?CHECK_MS, self(), check),
    case Readings of
        #{machine := #{hardware := 0}} -> #wakeup{readings = Readings};
        #{reader := none} -> #wakeup{readings = Readings#{reader := reader()}};
        _ -> #wakeup{readings = Readings}
    end.

%% none: the VM has no process left. The next check tries again.
reader() ->
    case inet_rdma_bounded:start_monitored(?MODULE, read_machine, []) of
        {ok, Reader} -> Reader;
        {error, system_limit} -> none
    end.

-spec read_machine() -> no_return().
read_machine() ->
    exit(
        try
            {clocks, inet_rdma_nif:machine_clocks()}
        catch
            error:_ -> unknown
        end
    ).

tell(no, _Guards) ->
    ok;
tell({Sign, Ms}, Guards) ->
    _ = [Guard ! woke || Guard <- Guards],
    ?LOG_NOTICE(
        "inet_rdma: this node was paused for about ~b s (~ts); reconnecting its links",
        [Ms div 1000, words(Sign)]
    ),
    inet_rdma_recorder:record(woke, node(), #{
        cause => Sign,
        why => words(Sign),
        duration => erlang:convert_time_unit(Ms, millisecond, native)
    }).

words(process_stopped) -> "its process did not run";
words(machine_paused) -> "its machine did not run";
words(clock_set) -> "its clock was set forward";
words(hardware_clock) -> "the machine's hardware clock has gone on".

%% By two readings of the kernel's clocks, ?CHECK_MS apart as this node takes it.
-spec node_pause(clocks() | unknown, clocks() | unknown) -> no | {sign(), Ms :: pos_integer()}.
node_pause(Before, Now) when Before =:= unknown; Now =:= unknown ->
    no;
node_pause(Before, Now) ->
    #{monotonic := Monotonic, boottime := Boottime} = passed(Before, Now),
    first([
        {machine_paused, Boottime - Monotonic, ?PAUSED_MS},
        {process_stopped, Monotonic - ?CHECK_MS, ?LATE_MS}
    ]).

%% By two readings of the machine's clocks. A wall clock that is set says nothing, nor does a
%% hardware clock that is set by it. Where no hardware clock can be read, a wall clock that is set
%% by far stands for it.
-spec machine_pause(machine_clocks() | unknown, machine_clocks() | unknown) ->
    no | {sign(), Ms :: pos_integer()}.
machine_pause(Before, Now) when Before =:= unknown; Now =:= unknown ->
    no;
machine_pause(#{hardware := From} = Before, #{hardware := To} = Now) when From > 0, To > 0 ->
    #{boottime := Boottime, hardware := Hardware} = passed(Before, Now),
    case is_set_by_wall_clock(Before, Now) of
        true -> no;
        false -> first([{hardware_clock, Hardware - Boottime, ?AHEAD_MS}])
    end;
machine_pause(Before, Now) ->
    #{boottime := Boottime, realtime := Realtime} = passed(Before, Now),
    first([{clock_set, Realtime - Boottime, ?STEP_MS}]).

%% The wall clock was corrected before, or now and by little; and the hardware clock agrees with it
%% now.
is_set_by_wall_clock(Before, #{realtime := Realtime, hardware := Hardware} = Now) ->
    #{boottime := BoottimePassed, realtime := RealtimePassed} = passed(Before, Now),
    Stepped = RealtimePassed - BoottimePassed,
    abs(Hardware - Realtime) =< ?AGREES_MS andalso Stepped =< ?STEP_MS.

passed(Before, Now) -> maps:map(fun(Clock, Time) -> Time - maps:get(Clock, Before) end, Now).

first(Signs) ->
    case [{Sign, Ms} || {Sign, Ms, Most} <- Signs, Ms > Most] of
        [] -> no;
        [First | _] -> First
    end.
