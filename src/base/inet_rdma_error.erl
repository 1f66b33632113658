%% @doc The reasons of errors, and their texts: each text says what happened and, where the user can
%% mend it, how.
%%
%% Call inet_rdma:format_error/1. native/nif/src/terms.rs makes the terms of the native library;
%% errors_SUITE compares both.
-module(inet_rdma_error).

-export([format/1, tried/1]).
-export_type([
    reason/0,
    misbehaviour/0,
    message/0,
    limits/0,
    lack/0,
    rejection/0,
    directory_fault/0,
    posix/0,
    tried/0
]).

-type reason() ::
    %% Reasons of a call.
    timeout
    | einval
    | badarg
    | enobufs
    | emsgsize
    | too_late
    | not_owner
    | {unknown_option, term()}
    | {bad_option, atom(), term(), Expected :: string()}
    | {not_loaded, term()}
    %% The end of a connection.
    | closed
    | peer_gone
    | tls_gone
    | half_sent
    | {no_memory, Bytes :: non_neg_integer()}
    %% The peer's fault.
    | {peer_misbehaved, misbehaviour()}
    %% The peer and this side do not fit.
    | {wrong_user, Theirs :: non_neg_integer(), Ours :: non_neg_integer()}
    | {user_not_allowed, Theirs :: non_neg_integer(), Ours :: non_neg_integer()}
    | user_unmapped
    | user_refused
    %% A stream's port over shm: a process of another user, or of one that is not known, has it.
    | {port_held, inet:port_number(), User :: non_neg_integer() | none}
    %% The directory of the option shm_directory, or the peer's socket file there.
    | {shm_directory, Path :: binary(), directory_fault()}
    | {version_mismatch, Theirs :: non_neg_integer(), Ours :: non_neg_integer()}
    | {bad_hello, message()}
    | wrong_token
    | {rejected, rejection()}
    %% Reasons of a stream with the option tls: what TLS has against the peer or its options, in
    %% OTP's words; no path is as well protected as TLS; the peer says something else than a
    %% settlement.
    | ssl:error_alert()
    | {tls, term()}
    | {no_path, binary()}
    | {not_settled, binary()}
    %% No process listens there, or no way leads there.
    | econnrefused
    | eaddrinuse
    | eaddrnotavail
    | etimedout
    | {only_strangers, Refused :: pos_integer(), Last :: reason()}
    | {no_route, binary()}
    %% The machine, its devices, and the options that they do not allow.
    | {unavailable, lack()}
    | {limits, limits()}
    | {locked_memory, Bytes :: non_neg_integer(), Limit :: non_neg_integer() | unlimited}
    | {pinned_limit, Bytes :: non_neg_integer(), Pinned :: non_neg_integer(),
        Max :: non_neg_integer()}
    | {shared_memory, Bytes :: non_neg_integer()}
    | {device_limit, Device :: binary(), Receives :: non_neg_integer(),
        Completions :: non_neg_integer()}
    %% A device fails the self-test of a new queue pair; GoesWithout: the next queue pair does
    %% without what failed.
    | {self_test, Device :: binary() | peer, [tried()], GoesWithout :: boolean()}
    | {option_unknown, Option :: atom()}
    | device_removed
    | {device_event, Device :: binary(), Event :: binary()}
    %% Doing: the operation that failed, in words joined by underscores. For a completion: its
    %% status as ibv_poll_cq(3) names it (without IBV_WC_), and the number that the device's driver
    %% adds.
    | {verbs, Doing :: atom(), posix()}
    | {verbs, completion, {Status :: atom(), VendorError :: non_neg_integer()}}
    | {system, Doing :: atom(), posix()}
    %% The native library, and defects.
    | {
        not_found
        | driver
        | load_failed
        | other_version
        | bad_lib
        | upgrade
        | old_code
        | system_limit,
        binary()
    }
    | attempt_taken
    | {panicked, Thread :: binary()}
    %% Those of inet, where a name does not resolve.
    | posix().

%% What the self-test of a queue pair tries.
-type tried() :: inline | gather | windows | immediates | writes | sends | reads.

%% How the peer broke the rules of the protocol or of a fabric. The numbers are those that the peer
%% sent, then those that are allowed.
-type misbehaviour() ::
    message()
    | limits()
    | {slots_overrun, Slots :: number()}
    | {credit_excess, Credits :: number(), Known :: number(), Slots :: number()}
    | {notice_bytes, Bytes :: number()}
    | {ring_overflow, Bytes :: number(), Free :: number()}
    | {ring_wrap, Bytes :: number(), Contiguous :: number()}
    | direct_unadvertised
    | {direct_too_long, Bytes :: number(), Room :: number()}
    | {data_after_finish, Bytes :: number(), End :: number()}
    | {finish_short, End :: number(), Arrived :: number()}
    | finish_twice
    | {ack_unsent, Freed :: number(), Written :: number()}
    | {ack_back, Freed :: number(), Before :: number()}
    | {advert_excess, Max :: number()}
    | {advert_indirect, Phase :: number()}
    | {advert_phase, Phase :: number(), Before :: number()}
    | {advert_seq, Seq :: number(), Least :: number(), Most :: number()}
    | advert_address
    | asked_twice
    | mark_unasked
    | ring_address
    | too_many_bytes
    | {packet_too_large, Bytes :: number(), Max :: number()}
    | {target_outside, {Key :: number(), Address :: number()}}
    | greeting_refused
    | greeting_incomplete
    | {ring_elsewhere, {Key :: number(), Address :: number()}}
    | {memory_bytes, Bytes :: number(), Least :: number()}
    | memory_unsealed
    | memory_pages
    | memory_too_large
    | memory_unwritable
    | {queue_head, Said :: number()}
    | {entry_stamp, Said :: number()}
    | {entry_inline, Bytes :: number(), Address :: number()}
    | {entry_kind, Said :: number()}
    | {record_ring, Bytes :: number()}
    | {record_bytes, Bytes :: number(), Max :: number()}
    | {record_cut, Bytes :: number(), Arrived :: number()}
    | {key_generation, Said :: number(), Present :: number()}
    | {record_forged, Sequence :: number()}
    | {control_forged, Sequence :: number()}
    | {frame_kind, Said :: number()}
    | {write_outside, {Key :: number(), Address :: number()}, Bytes :: number()}
    | {message_bytes, Bytes :: number()}
    | self_test_broken
    | tls_bytes
    | {answer_event, Event :: binary(), Status :: integer()}.

%% Bytes that are no message of this protocol.
-type message() ::
    {message_length, Got :: number(), Due :: number()}
    | not_a_hello
    | {version, Theirs :: number(), Ours :: number()}
    | {control_kind, number()}
    | {field, Name :: binary()}.

%% Limits that no stream can run within.
-type limits() :: {ring_bytes, number()} | {receive_slots, number()} | no_adverts.

%% The reason why this machine, or this build, cannot use verbs.
-type lack() ::
    left_out
    | no_libraries
    | no_connection_manager
    | no_permission
    | no_device
    | {no_descriptors, posix()}
    | {connection_manager, posix()}.

%% Why a shared directory, or a socket file in it, is not used.
-type directory_fault() ::
    missing
    | no_directory
    | symbolic_link
    | {owner, User :: non_neg_integer()}
    | owner_unmapped
    | world_writable
    | forbidden
    | read_only
    | too_long
    | no_proc
    | not_shared
    | no_socket
    | {socket_owner, User :: non_neg_integer()}
    | socket_owner_unmapped
    | unconnectable
    | deserted
    | {system, posix()}.

-type rejection() :: busy | hello | {reason, integer()}.

%% As of `file` and `inet`.
-type posix() :: atom().

%% @doc Internal: call inet_rdma:format_error/1.
-spec format(reason()) -> string().
format(Reason) -> lists:flatten(text(Reason)).

text(closed) ->
    "the connection was closed in order";
text(timeout) ->
    "the time given is over";
text(einval) ->
    "the call does not fit the mode of the socket: active mode, posted receives, or {packet, _}";
text(badarg) ->
    "not a living process of this node";
text(enobufs) ->
    "no room: as many are posted, or wait, as the options sends_max, receives_max and backlog "
    "allow";
text(emsgsize) ->
    "the packet is too large for the length that goes before it: see {packet, 1 | 2 | 4}";
text(too_late) ->
    "too late: it is done, or has begun";
text(not_owner) ->
    "only the owner of the socket may do that";
text({unknown_option, _} = Error) ->
    inet_rdma_options:format_error(Error);
text({bad_option, _, _, _} = Error) ->
    inet_rdma_options:format_error(Error);
text({not_loaded, _} = Error) ->
    inet_rdma_options:format_error(Error);
text(peer_gone) ->
    "the peer is gone: its process ended";
text(tls_gone) ->
    "the TLS connection of the stream has ended";
text(half_sent) ->
    "a process died in the middle of a send, so the rest of its packet cannot follow";
text({no_memory, Bytes}) ->
    io("no memory for a packet of ~b bytes", [Bytes]);
text({peer_misbehaved, How}) ->
    misbehaviour(How);
text({wrong_user, Theirs, Ours}) ->
    io("the peer runs as user ~b, this node as user ~b: both must be the same user", [Theirs, Ours]);
text({user_not_allowed, Theirs, Ours}) ->
    io(
        "the peer runs as user ~b, this node as user ~b, and shm_allowed_uids of this node does "
        "not list user ~b",
        [Theirs, Ours, Theirs]
    );
text(user_unmapped) ->
    peer_unmapped();
text(user_refused) ->
    "the peer does not allow the user of this node: list the user in shm_allowed_uids of the peer, "
    "by its number in the user namespace there";
text({shm_directory, Path, Fault}) ->
    io("shm_directory ~ts: ~ts", [Path, directory_fault(Fault)]);
text({version_mismatch, Theirs, Ours}) ->
    io("the peer speaks protocol version ~b, this node speaks ~b: run the same version on both", [
        Theirs, Ours
    ]);
text({bad_hello, Message}) ->
    ["the peer does not speak the protocol of inet_rdma: ", message(Message)];
text(wrong_token) ->
    "the peer does not know the token of this settlement";
text({rejected, How}) ->
    ["the peer refused the connection: ", rejection(How)];
text(econnrefused) ->
    "nobody listens there";
text({port_held, Port, none}) ->
    io(
        "the port ~b over shm is taken by a process whose user is not known: listen on another "
        "one, or on all fabrics",
        [Port]
    );
text({port_held, Port, User}) ->
    io(
        "the port ~b over shm is taken by a process of user ~b: listen on another one, or on all "
        "fabrics",
        [Port, User]
    );
text(eaddrinuse) ->
    "the port is taken, or all of the range are";
text(eaddrnotavail) ->
    "the address given as ip is none of this host";
text(etimedout) ->
    "timed out";
text({only_strangers, Refused, Last}) ->
    io("timed out; ~b other peers were refused, the last one because: ~ts", [Refused, text(Last)]);
text({no_route, Why}) ->
    io("~ts", [Why]);
text({unavailable, What}) ->
    ["the verbs fabric cannot be used: ", lack(What)];
text({limits, Limits}) ->
    limits(Limits);
text({pinned_limit, Bytes, Pinned, Max}) ->
    io(
        "cannot register ~b bytes of memory: this node has pinned ~b of ~b bytes (raise "
        "pinned_max_bytes; its default is what `ulimit -l` allows, and at most a quarter of the "
        "machine's memory)",
        [Bytes, Pinned, Max]
    );
text({locked_memory, Bytes, unlimited}) ->
    io(
        "cannot register ~b bytes of memory: locked memory has no limit, so memory or the regions "
        "of the device are used up (lower receive_slots)",
        [Bytes]
    );
text({locked_memory, Bytes, Limit}) ->
    io(
        "cannot register ~b bytes of memory: the limit on locked memory is ~b bytes (raise it with "
        "`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a "
        "container; or lower receive_slots, or ring_bytes below 65536)",
        [Bytes, Limit]
    );
text({shared_memory, Bytes}) ->
    io(
        "cannot reserve ~b bytes of shared memory: the system commits no further memory "
        "(vm.overcommit_memory is 2: raise vm.overcommit_ratio or vm.overcommit_kbytes, add swap, "
        "or lower ring_bytes and landing_buffers)",
        [Bytes]
    );
text({device_limit, Device, Receives, Completions}) ->
    io(
        "the RDMA device ~ts holds ~b receives and ~b completions in a queue: set receive_slots to "
        "less than ~b",
        %% 8 are for the self-test: SELF_TEST_RECEIVES of the native library.
        [Device, Receives, Completions, max(0, min(Receives, Completions) - 8)]
    );
text({self_test, Device, Tried, GoesWithout}) ->
    Whose =
        case Device of
            peer -> "the peer's RDMA device";
            _ -> io("the RDMA device ~ts", [Device])
        end,
    Next =
        case GoesWithout of
            true -> "the next connection does without";
            false -> "it cannot be used"
        end,
    io("~ts failed the self-test of the connection (~ts): ~ts", [
        Whose, lists:join(", ", [tried(One) || One <- Tried]), Next
    ]);
text({option_unknown, Option}) ->
    io(
        "the kernel's RDMA connection manager does not know the option ~s: leave it at 0, or use a "
        "later kernel",
        [Option]
    );
text(device_removed) ->
    "the RDMA device was removed";
text({device_event, Device, Event}) ->
    io("the RDMA device ~ts says: ~ts", [Device, Event]);
text({verbs, completion, {Status, Vendor}}) when
    Status =:= retry_exc_err; Status =:= rnr_retry_exc_err
->
    io("the peer no longer answers: ~ts (vendor error ~b)", [Status, Vendor]);
text({verbs, completion, {Status, Vendor}}) ->
    io("the queue pair failed: ~ts (vendor error ~b)", [Status, Vendor]);
text({verbs, Doing, Posix}) ->
    [words(Doing), ": ", posix(Posix)];
text({system, starting_a_process, system_limit}) ->
    "the process table of this node is full: find what starts so many processes, or raise the "
    "limit with `erl +P`";
text({system, Doing, Posix}) ->
    [words(Doing), ": ", posix(Posix), forbidden(Posix, Doing)];
text({tls_alert, {_Alert, Text}}) ->
    io("~ts", [Text]);
text({tls, Reason}) ->
    io("TLS: ~ts", [ssl:format_error(Reason)]);
text({no_path, Why}) ->
    io("no path to the peer is as well protected as TLS: ~ts", [Why]);
text({not_settled, Why}) ->
    io("the peer does not settle a stream: ~ts", [Why]);
text({Kind, Text}) when is_atom(Kind), is_binary(Text), Kind =/= panicked -> io("~ts", [Text]);
text(attempt_taken) ->
    "the queue pair of this attempt was taken already";
text({panicked, Thread}) ->
    io("~ts panicked: standard error of the node says where; please report it", [Thread]);
text(Posix) when is_atom(Posix) -> posix(Posix);
text(Other) ->
    io("~tp", [Other]).

misbehaviour({slots_overrun, Slots}) ->
    io("the peer used more than the ~b receive slots that it may", [Slots]);
misbehaviour({credit_excess, Credits, Known, Slots}) ->
    io("~b credits given back with ~b known free, of ~b in all", [Credits, Known, Slots]);
misbehaviour({notice_bytes, Bytes}) ->
    io("a transfer of ~b bytes", [Bytes]);
misbehaviour({ring_overflow, Bytes, Free}) ->
    io("~b bytes written into a ring with ~b free", [Bytes, Free]);
misbehaviour({ring_wrap, Bytes, Contiguous}) ->
    io("~b bytes written where the ring ends after ~b", [Bytes, Contiguous]);
misbehaviour(direct_unadvertised) ->
    "a direct transfer that nothing was advertised for";
misbehaviour({direct_too_long, Bytes, Room}) ->
    io("a direct transfer of ~b bytes into a buffer for ~b", [Bytes, Room]);
misbehaviour({data_after_finish, Bytes, End}) ->
    io("a transfer of ~b bytes over the stream's end at ~b", [Bytes, End]);
misbehaviour({finish_short, End, Arrived}) ->
    io("the stream's end at ~b after ~b bytes had arrived", [End, Arrived]);
misbehaviour(finish_twice) ->
    "the stream's end announced twice";
misbehaviour({ack_unsent, Freed, Written}) ->
    io("~b ring bytes acknowledged of ~b written", [Freed, Written]);
misbehaviour({ack_back, Freed, Before}) ->
    io("~b ring bytes acknowledged after ~b", [Freed, Before]);
misbehaviour({advert_excess, Max}) ->
    io("more than ~b advertisements at a time", [Max]);
misbehaviour({advert_indirect, Phase}) ->
    io("an advertisement for the indirect phase ~b", [Phase]);
misbehaviour({advert_phase, Phase, Before}) ->
    io("an advertisement for phase ~b after one for phase ~b", [Phase, Before]);
misbehaviour({advert_seq, Seq, Least, Most}) ->
    io("an advertisement for byte ~b, possible are ~b to ~b", [Seq, Least, Most]);
misbehaviour(advert_address) ->
    "an advertised buffer over the end of the address space";
misbehaviour(asked_twice) ->
    "a mark asked for twice";
misbehaviour(mark_unasked) ->
    "a mark that nothing asked for";
misbehaviour(ring_address) ->
    "a new ring over the end of the address space";
misbehaviour(too_many_bytes) ->
    "more bytes than can be counted";
misbehaviour({packet_too_large, Bytes, Max}) ->
    io(
        "the peer sends a packet or a line of ~b bytes or more; ~b are allowed (packet_max_bytes, "
        "packet_size)",
        [Bytes, Max]
    );
misbehaviour({target_outside, {Key, Address}}) ->
    io("a transfer to address ~b of region ~b would leave the memory that it has exposed", [
        Address, Key
    ]);
misbehaviour(greeting_refused) ->
    "it refused this side's greeting; its log says why";
misbehaviour(greeting_incomplete) ->
    "its greeting came without exactly one memory";
misbehaviour({ring_elsewhere, {Key, Address}}) ->
    io("its ring is said to be at address ~b of region ~b", [Address, Key]);
misbehaviour({memory_bytes, Bytes, Least}) ->
    io("its memory has ~b bytes where its hello needs ~b and a landing area of whole pages", [
        Bytes, Least
    ]);
misbehaviour(memory_unsealed) ->
    "its memory is not sealed against shrinking and growing";
misbehaviour(memory_pages) ->
    "its memory is not on ordinary pages";
misbehaviour(memory_too_large) ->
    "its memory is larger than an address space";
misbehaviour(memory_unwritable) ->
    "its memory cannot be written";
misbehaviour({queue_head, Said}) ->
    io("it says that it took ~b entries, which cannot be", [Said]);
misbehaviour({entry_stamp, Said}) ->
    io("an entry of the receive queue has the impossible stamp ~b", [Said]);
misbehaviour({entry_inline, Bytes, Address}) ->
    io("an entry of the receive queue carries ~b bytes for the address ~b", [Bytes, Address]);
misbehaviour({entry_kind, Said}) ->
    io("an entry of the receive queue has the unknown kind ~b", [Said]);
misbehaviour({frame_kind, Said}) ->
    io("a frame begins with ~b, which is no kind of frame", [Said]);
misbehaviour({write_outside, {Key, Address}, Bytes}) ->
    io("it writes ~b bytes to address ~b of region ~b, which are not exposed to it", [
        Bytes, Address, Key
    ]);
misbehaviour({message_bytes, Bytes}) ->
    io("it sent a message of ~b bytes", [Bytes]);
misbehaviour(self_test_broken) ->
    "its messages are not those of the self-test";
misbehaviour(tls_bytes) ->
    "it sent bytes over the stream's TLS connection";
misbehaviour({answer_event, Event, Status}) ->
    io("~ts (status ~b) instead of an answer", [Event, Status]);
misbehaviour({record_ring, Bytes}) ->
    io("a ring of ~b bytes, which takes no records", [Bytes]);
misbehaviour({record_bytes, Bytes, Max}) ->
    io("a record of ~b bytes; 1 to ~b are possible", [Bytes, Max]);
misbehaviour({record_cut, Bytes, Arrived}) ->
    io("a record of ~b bytes of which ~b came", [Bytes, Arrived]);
misbehaviour({key_generation, Said, Present}) ->
    io("a record under the key of generation ~b; the present one is ~b", [Said, Present]);
misbehaviour({record_forged, Sequence}) ->
    io("record ~b is not the peer's: it was changed, repeated, left out or moved", [Sequence]);
misbehaviour({control_forged, Sequence}) ->
    io("control message ~b is not the peer's: it was changed, repeated, left out or moved", [
        Sequence
    ]);
misbehaviour(Message) ->
    message(Message).

%% In words: what a device has failed in a self-test.
-spec tried(tried()) -> string().
tried(inline) -> "inline bytes";
tried(gather) -> "bytes of two places";
tried(windows) -> "memory windows";
tried(immediates) -> "immediates";
tried(writes) -> "writes";
tried(sends) -> "sends";
tried(reads) -> "reads of nothing".

message({message_length, Got, Due}) ->
    io("a message of ~b bytes where ~b were due", [Got, Due]);
message(not_a_hello) ->
    "its first message is not a hello";
message({version, Theirs, Ours}) ->
    io("it speaks protocol version ~b, this node speaks ~b", [Theirs, Ours]);
message({control_kind, Kind}) ->
    io("the unknown control message ~b", [Kind]);
message({field, Name}) ->
    io("the field ~ts has an impossible value", [Name]);
message(Limits) ->
    limits(Limits).

limits({ring_bytes, Bytes}) -> io("a ring of ~b bytes: 1 to 2147483647 are possible", [Bytes]);
limits({receive_slots, Slots}) -> io("~b receive slots: 5 are the least", [Slots]);
limits(no_adverts) -> "0 advertisements: 1 is the least";
limits(Other) -> io("~tp", [Other]).

lack(left_out) ->
    "this build has none; build the native library again without the environment variable "
    "INET_RDMA_FEATURES";
lack(no_libraries) ->
    "librdmacm or libibverbs is not installed; install rdma-core (Debian: librdmacm1 and "
    "ibverbs-providers)";
lack(no_connection_manager) ->
    "there is no /dev/infiniband/rdma_cm; load the kernel's module with `modprobe rdma_ucm`, and "
    "give a container --device=/dev/infiniband";
lack(no_permission) ->
    "no permission to open /dev/infiniband/rdma_cm; let the user of this node read and write it "
    "(Debian: group rdma)";
lack(no_device) ->
    "this machine has no RDMA device (`rdma link` shows them)";
lack({no_descriptors, Posix}) ->
    [posix(Posix), "; raise the limit with `ulimit -n`"];
lack({connection_manager, Posix}) ->
    ["opening the connection manager: ", posix(Posix)].

directory_fault(missing) ->
    "it does not exist: create it, or mount the volume that the nodes share";
directory_fault(no_directory) ->
    "it is no directory: name the directory that the nodes share";
directory_fault(symbolic_link) ->
    "it is a symbolic link: name the directory that the link leads to";
directory_fault({owner, User}) ->
    io(
        "it belongs to user ~b, who could replace what lies in it: give it to the user of this "
        "node or to root (chown), or list the user in shm_allowed_uids",
        [User]
    );
directory_fault(owner_unmapped) ->
    "its owner is unknown in the user namespace of this node: map the owner into the namespace, or "
    "give the directory to a user that is mapped (chown)";
directory_fault(world_writable) ->
    "all users may remove files of others in it: `chmod 1777` or `chmod o-w`";
directory_fault(forbidden) ->
    "this node may not create files in it: let its user write and search the directory";
directory_fault(read_only) ->
    "its file system is mounted read-only: mount the volume so that this node can write";
directory_fault(too_long) ->
    "the path is too long: 4095 bytes are the most, and 255 for each part";
directory_fault(no_proc) ->
    "/proc/self/fd is missing: mount /proc in the container";
directory_fault(not_shared) ->
    "the socket file of the peer is not in it: the shm_directory of the peer is another directory; "
    "mount the same volume in both containers";
directory_fault(no_socket) ->
    "the file in the place of the peer's socket is no socket: something else has put it there; "
    "look at its owner";
directory_fault({socket_owner, User}) ->
    io(
        "the socket file of the peer belongs to user ~b: list the user in shm_allowed_uids of this "
        "node if its processes are to be trusted",
        [User]
    );
directory_fault(socket_owner_unmapped) ->
    peer_unmapped();
directory_fault(unconnectable) ->
    "this node may not connect to the socket file of the peer: list the user of this node in "
    "shm_allowed_uids of the peer; where both are the same user, look at SELinux or AppArmor";
directory_fault(deserted) ->
    "no process listens at the socket file of the peer: the peer has ended, or its kernel is "
    "another one";
directory_fault({system, Posix}) ->
    posix(Posix);
directory_fault(Other) ->
    io("~tp", [Other]).

rejection(busy) -> "its listener has no room; try again, or raise its backlog";
rejection(hello) -> "its log says why";
rejection({reason, Number}) -> io("reason ~b of the connection manager", [Number]).

%% The system call that these words name, which a container's seccomp filter can refuse.
forbidden(Posix, Doing) when Posix =:= eperm; Posix =:= enosys ->
    Calls = #{
        creating_an_event => "eventfd2",
        opening_a_descriptor => "eventfd2",
        creating_an_epoll_set => "epoll_create1",
        creating_the_memory_of_a_connection => "memfd_create",
        creating_a_socket => "socket",
        creating_sockets_for_wake_ups => "socketpair",
        starting_a_native_thread => "clone"
    },
    case Calls of
        #{Doing := Call} -> io(" (a seccomp filter may refuse ~ts: allow it)", [Call]);
        _ -> ""
    end;
forbidden(_Posix, _Doing) ->
    "".

peer_unmapped() ->
    "the user of the peer is unknown in the user namespace of this node: give both containers user "
    "namespaces that map the users of both".

words(Doing) -> string:replace(atom_to_list(Doing), "_", " ", all).

%% Texts of the system's errors, as inet has them.
posix(Posix) ->
    case inet:format_error(Posix) of
        "unknown POSIX error" ++ _ -> atom_to_list(Posix);
        Text -> Text
    end.

io(Format, Arguments) -> io_lib:format(Format, Arguments).
