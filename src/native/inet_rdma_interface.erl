%% What the native library and the modules must both know: a library and modules of two versions do
%% not load each other if it differs (native/nif/src/interface.rs compares). The library has each
%% name once, in native/link/port/src/commands.rs and notices.rs, with its meaning.
-module(inet_rdma_interface).

-export([all/1, commands/0, notices/0, losses/0]).
-export_type([command/0, notice/0, notice_name/0, loss/0]).

%% Commands of a link's port. One whose argument or answer changes gets another name.
-type command() ::
    attach_queue
    | start
    | tick
    | packets
    | watch
    | begin_session
    | begin_on_queue
    | move
    | end_link
    | give_up_tcp
    | resume
    | prove
    | verify
    | attempt
    | control
    | drop_queue
    | socket
    | counts
    | return
    | abandon
    | attach
    | sealing
    | compression
    | suspect_after
    | round_trips
    | open
    | reserve
    | release
    | hold_writes
    | questions
    | attribute
    | attribution.

%% What a link's port tells its guard.
-type notice() ::
    notice_name()
    | {lost, inet:posix() | loss()}
    | {message | peer_misbehaved | rolled_back | unread, binary()}.
-type notice_name() ::
    stalled
    | stall_ended
    | busy
    | full
    | unread
    | suspected
    | trusted
    | lost
    | restored
    | changed
    | earned
    | moved
    | returned
    | message
    | peer_closed
    | peer_misbehaved
    | rolled_back.

%% Why a TCP connection is lost. system stands for the system's error, which has its own name in a
%% notice.
-type loss() :: closed | queue_pair | superseded | system_limit | woke | damaged | system.

-spec commands() -> [command()].
commands() ->
    [
        attach_queue,
        start,
        tick,
        packets,
        watch,
        begin_session,
        begin_on_queue,
        move,
        end_link,
        give_up_tcp,
        resume,
        prove,
        verify,
        attempt,
        control,
        drop_queue,
        socket,
        counts,
        return,
        abandon,
        attach,
        sealing,
        compression,
        suspect_after,
        round_trips,
        open,
        reserve,
        release,
        hold_writes,
        questions,
        attribute,
        attribution
    ].

-spec notices() -> [notice_name()].
notices() ->
    [
        stalled,
        stall_ended,
        busy,
        full,
        unread,
        suspected,
        trusted,
        lost,
        restored,
        changed,
        earned,
        moved,
        returned,
        message,
        peer_closed,
        peer_misbehaved,
        rolled_back
    ].

-spec losses() -> [loss()].
losses() -> [closed, queue_pair, superseded, system_limit, woke, damaged, system].

%% A line for each native function; for each command, notice and loss of a link's port; and for each
%% number that the port answers. Sorted. And the options of the library with their defaults.
-spec all(Functions :: [{atom(), arity()}]) -> {Text :: binary(), #{atom() => term()}}.
all(Functions) ->
    Lines =
        [
            ["function ", name(Function), $/, integer_to_list(Arity)]
         || {Function, Arity} <- Functions
        ] ++
            [[Kind, name(Name)] || {Kind, Names} <- named(), Name <- Names] ++
            [
                ["number ", name(Command), $\s, name(Key)]
             || {Command, Keys} <- numbers(), Key <- Keys
            ],
    Text = iolist_to_binary(lists:join($\n, lists:sort([iolist_to_binary(Line) || Line <- Lines]))),
    {Text,
        maps:from_list([{Key, Default} || {Key, native, _Type, Default} <- inet_rdma_options:list()])}.

named() -> [{"command ", commands()}, {"notice ", notices()}, {"loss ", losses()}].

numbers() ->
    [{counts, inet_rdma_counts:keys(port) ++ inet_rdma_counts:keys(session)}] ++
        [
            {Command, inet_rdma_counts:keys(Command)}
         || Command <- [sealing, compression, round_trips]
        ].

name(Atom) -> atom_to_binary(Atom).
