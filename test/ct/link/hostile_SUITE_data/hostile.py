"""A peer of the shm fabric that breaks its rules: `hostile.py PORT ATTACK`.

Prints `ended: HOW, told: WHAT` when the other side ends the connection, `refused: ERRNO` when it cannot even connect,
and `open` when the connection is still there after the deadline. `silence N` holds N silent connections until its
standard input ends. `0 mute N` listens, prints `port: PORT`, takes connections and says nothing on them, prints
`holding N` when it has N, and ends with its standard input.
"""

import errno
import fcntl
import mmap
import os
import random
import select
import socket
import struct
import sys

DEADLINE_S = 20
PAGE = 4096
MAGIC = b"inetrdma"
# Numbers of fcntl(2); Python names them only since 3.12.
F_ADD_SEALS = 1033
SEALS = 1 | 2 | 4
HEADER_BYTES = 256
ENTRY_BYTES = 64
KIND_NOTICE, KIND_CONTROL = 1, 2
DIRECT = 1 << 31
RING_BYTES = 65536
SLOTS = 64
RING_KEY, LANDING_KEY = 1, 2


def connect(port):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(f"\0inet_rdma/{port}")
    return sock


def hello(
    magic=MAGIC, version=7, slots=SLOTS, ring=RING_BYTES, key=RING_KEY, adverts=32, pad=0, address=0, tail=bytes(8)
):
    return struct.pack("<8sHHIQQIHHQ", magic, version, slots, ring, key, address, 7, adverts, pad, 0) + tail


def pages(size):
    return -(-size // PAGE) * PAGE


def ring_offset(slots):
    entries = 1 << (slots - 1).bit_length()
    return pages(HEADER_BYTES + entries * ENTRY_BYTES)


def memory(size=None, seals=SEALS):
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, pages(ring_offset(SLOTS) + RING_BYTES) if size is None else size)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


WATCHED = []


def pair():
    """The end that this side watches, and the descriptor by which the other side wakes this one."""
    watched, waking = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return watched, waking.detach()


def bell():
    watched, waking = pair()
    WATCHED.append(watched)
    return waking


def both(fd):
    return [fd, bell()]


# Before the greeting: name -> bytes and descriptors of the only message.
GREETINGS = {
    "nothing_but_zeros": lambda: (bytes(56), both(memory())),
    "random_bytes": lambda: (random.randbytes(random.randrange(1, 300)), []),
    "random_bytes_with_descriptors": lambda: (random.randbytes(56), both(memory())),
    "truncated_hello": lambda: (hello()[:40], both(memory())),
    "one_byte": lambda: (b"\x00", []),
    "long_hello": lambda: (hello() + b"x", both(memory())),
    "huge_hello": lambda: (hello() + bytes(100000), both(memory())),
    "wrong_magic": lambda: (hello(magic=b"inetrdmb"), both(memory())),
    "other_version": lambda: (hello(version=999), both(memory())),
    "pad_not_zero": lambda: (hello(pad=1), both(memory())),
    "token_of_no_settlement": lambda: (hello(tail=b"\x01" * 8), both(memory())),
    "no_descriptors": lambda: (hello(), []),
    "one_descriptor": lambda: (hello(), [memory()]),
    "memory_as_socket": lambda: (hello(), [memory(), memory()]),
    "three_descriptors": lambda: (hello(), [memory(), bell(), bell()]),
    "pipe_as_socket": lambda: (hello(), [memory(), os.pipe()[1]]),
    "event_as_memory": lambda: (hello(), both(os.eventfd(0, os.EFD_NONBLOCK))),
    "directory_as_memory": lambda: (hello(), both(os.open("/", os.O_RDONLY))),
    "device_as_memory": lambda: (hello(), both(os.open("/dev/zero", os.O_RDWR))),
    "pipe_as_memory": lambda: (hello(), both(os.pipe()[0])),
    "memory_without_seals": lambda: (hello(), both(memory(seals=0))),
    "memory_that_may_shrink": lambda: (hello(), both(memory(seals=1 | 4))),
    "memory_too_small": lambda: (hello(), both(memory(size=PAGE))),
    "empty_memory": lambda: (hello(), both(memory(size=0))),
    "memory_of_a_terabyte": lambda: (hello(), both(memory(size=1 << 40))),
    "ring_of_no_bytes": lambda: (hello(ring=0), both(memory())),
    "ring_of_4_gigabytes": lambda: (hello(ring=0xFFFFFFFF), both(memory())),
    "no_slots": lambda: (hello(slots=0), both(memory())),
    "all_slots": lambda: (hello(slots=0xFFFF), both(memory())),
    "no_adverts": lambda: (hello(adverts=0), both(memory())),
    "wrong_key": lambda: (hello(key=LANDING_KEY), both(memory())),
    "wild_ring_address": lambda: (hello(address=0xFFFFFFFFFFFFF000), both(memory())),
}


class Peer:
    """A connection that has greeted as it should; its memory and that of the other side are mapped."""

    def __init__(self, port):
        self.sock = connect(port)
        own = memory()
        self.own = mmap.mmap(own, 0)
        self.watched, waking = pair()
        socket.send_fds(self.sock, [hello()], [own, waking])
        os.close(waking)
        theirs, descriptors, _, _ = socket.recv_fds(self.sock, 57, 3)
        if len(descriptors) != 2:
            raise SystemExit(f"no greeting: {theirs!r}")
        (self.slots, self.ring_bytes) = struct.unpack_from("<HI", theirs, 10)
        (self.memory_fd, waking_fd) = descriptors
        self.waking = socket.socket(fileno=waking_fd)
        self.theirs = mmap.mmap(self.memory_fd, 0)
        self.ring = ring_offset(self.slots)
        self.next = 0

    def wake(self):
        try:
            self.waking.shutdown(socket.SHUT_WR)
        except OSError:
            # The other side has ended the connection.
            pass

    def words(self):
        try:
            self.waking.send(b"hello?" * 10)
            print("sent", flush=True)
        except BrokenPipeError:
            # Nobody reads there.
            pass
        self.wake()

    def verdict(self):
        """Waits for the other side to end the connection."""
        poll = select.poll()
        # Without events: the end of both directions.
        poll.register(self.watched, 0)
        return "ended: closed" if poll.poll(DEADLINE_S * 1000) else "open"

    def entry(self, kind, word=0, body=bytes(40), stamp=None):
        """Puts an entry at the end of the other side's receive queue, the stamp last."""
        at = HEADER_BYTES + (self.next % (1 << (self.slots - 1).bit_length())) * ENTRY_BYTES
        self.theirs[at + 8 : at + 16] = struct.pack("<II", word, kind)
        self.theirs[at + 16 : at + 56] = body
        self.next += 1
        self.theirs[at : at + 8] = struct.pack("<Q", self.next if stamp is None else stamp)

    def notice(self, count, direct=False):
        self.entry(KIND_NOTICE, count | (DIRECT if direct else 0))

    def control(self, kind, flags=0, credit=0, key=0, address=0, seq=0, phase=0, count=0):
        body = struct.pack("<BBHIQQQQ", kind, flags, credit, count, address, seq, phase, key)
        self.entry(KIND_CONTROL, body=body)

    def advertise(self, key, address):
        """A buffer for what comes when this side's ring is full, so that it is used."""
        self.control(ADVERT, key=key, address=address, seq=RING_BYTES, phase=2, count=65536)

    def announce_ring(self, address, count):
        """Another ring in place of the greeting's, whose key is where other messages have a sequence number."""
        self.control(RING, seq=RING_KEY, address=address, count=count)

    def write(self, data):
        self.theirs[self.ring : self.ring + len(data)] = data
        self.notice(len(data))

    def finish_then_write(self, data):
        """Both are there when the finish becomes visible, so that its reader cannot take it for an orderly end."""
        self.next = 1
        self.write(data)
        self.next = 0
        self.control(FINISH)

    def flood(self):
        for _ in range(self.slots):
            self.entry(random.getrandbits(32), random.getrandbits(32), random.randbytes(40))

    def overrun(self):
        """More honest entries than there are slots; the first comes last, so that no reader can keep up."""
        self.next = 1
        for _ in range(2 * self.slots):
            self.control(CREDIT)
        self.next = 0
        self.control(CREDIT)

    def recall_twice(self):
        """Both are there when the first becomes visible, so that no mark goes between them."""
        self.next = 1
        self.control(RECALL)
        self.next = 0
        self.control(RECALL)

    def scribble(self):
        """Random bytes over the whole receive queue."""
        self.theirs[: self.ring] = random.randbytes(self.ring)


CREDIT, ADVERT, ACK, TICK, FINISH, RECALL, RING = range(1, 8)

# After the greeting: name -> what to do.
ATTACKS = {
    "stamp_out_of_turn": lambda p: p.entry(KIND_CONTROL, stamp=12345),
    "stamp_of_all_ones": lambda p: p.entry(KIND_CONTROL, stamp=0xFFFFFFFFFFFFFFFF),
    "entry_of_unknown_kind": lambda p: p.entry(77),
    "mark_nobody_asked_for": lambda p: p.notice(0),
    "direct_notice_of_no_bytes": lambda p: p.notice(0, direct=True),
    "notice_beyond_the_ring": lambda p: p.notice(p.ring_bytes + 1),
    "notice_of_2_gigabytes": lambda p: p.notice(DIRECT - 1),
    "direct_without_advertisement": lambda p: p.notice(100, direct=True),
    "unknown_control": lambda p: p.control(99),
    "control_with_wild_flags": lambda p: p.control(TICK, flags=0xFF),
    "tick_with_a_body": lambda p: p.control(TICK, key=5),
    "too_many_credits": lambda p: p.control(CREDIT, credit=0xFFFF),
    "advertisement_of_a_wild_address": lambda p: p.advertise(key=LANDING_KEY, address=1 << 60),
    "advertisement_of_a_wild_key": lambda p: p.advertise(key=0xDEAD, address=0),
    "advertisement_of_no_bytes": lambda p: p.control(ADVERT, key=LANDING_KEY, count=0),
    "advertisement_of_4_gigabytes": lambda p: p.control(ADVERT, key=LANDING_KEY, count=0xFFFFFFFF),
    "advertisement_that_wraps": lambda p: p.control(ADVERT, key=LANDING_KEY, address=0xFFFFFFFFFFFFFFF0, count=65536),
    "advertisement_in_an_indirect_phase": lambda p: p.control(ADVERT, key=LANDING_KEY, count=4096, phase=1),
    "recall_with_a_body": lambda p: p.control(RECALL, phase=2),
    "two_recalls_at_once": lambda p: p.recall_twice(),
    "new_ring_of_no_bytes": lambda p: p.announce_ring(address=0, count=0),
    "ring_that_wraps": lambda p: p.announce_ring(address=0xFFFFFFFFFFFFFFF0, count=65536),
    "ring_of_a_wild_address": lambda p: p.announce_ring(address=1 << 60, count=65536),
    "acknowledged_but_never_sent": lambda p: p.control(ACK, seq=1 << 40),
    "finish_before_what_came": lambda p: (p.write(b"\0\0\0\1x"), p.control(FINISH, seq=2)),
    "bytes_after_the_finish": lambda p: p.finish_then_write(b"\0\0\0\1x"),
    "packet_of_4_gigabytes": lambda p: p.write(b"\xff\xff\xff\xff" + bytes(100)),
    "packet_of_2_gigabytes": lambda p: p.write(b"\x7f\xff\xff\xff" + bytes(100)),
    "flood_of_random_entries": lambda p: p.flood(),
    "more_entries_than_slots": lambda p: p.overrun(),
    "scribble_over_the_queue": lambda p: p.scribble(),
}

# What a connection must survive.
HARMLESS = {
    "words_instead_of_wake_ups": lambda p: [p.words() for _ in range(20)],
    "shrink_the_other_side": lambda p: denied(lambda: os.ftruncate(p.memory_fd, 0)),
    "grow_the_other_side": lambda p: denied(lambda: os.ftruncate(p.memory_fd, 1 << 30)),
}


def denied(action):
    try:
        action()
    except PermissionError:
        print("denied", flush=True)
    else:
        print("allowed", flush=True)


def verdict(sock):
    """Waits for the other side to end the connection; how it ended, and what was said before."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    end, told = "closed", ""
    while poll.poll(DEADLINE_S * 1000):
        try:
            answer = sock.recv(100)
        except ConnectionResetError:
            # Said once; what was said before the end comes next.
            end = "reset"
            continue
        if answer == b"":
            return f"ended: {end}{told}"
        told = f", told: {REFUSALS.get(answer) or version_of(answer)}"
    return "open"


# What a listener answers instead of a greeting: one of these bytes, or its hello without descriptors.
REFUSALS = {b"\x01": "busy", b"\x02": "refused"}


def version_of(answer):
    return f"version {struct.unpack_from('<H', answer, 8)[0]}"


def silence(port, count):
    socks = []
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.connect(f"\0inet_rdma/{port}")
        except BlockingIOError:
            # The kernel's backlog is full: the scanner has what it wanted.
            break
        socks.append(sock)
    print(f"holding {len(socks)}", flush=True)
    sys.stdin.read()


def mute(count):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Below the ports that listeners without a wish are given.
    port = next(port for port in range(40000, 49000) if is_bound(listener, port))
    listener.listen(4 * count)
    print(f"port: {port}", flush=True)
    held = []
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in readable:
            return
        held.append(listener.accept()[0])
        if len(held) == count:
            print(f"holding {count}", flush=True)


def is_bound(sock, port):
    try:
        sock.bind(f"\0inet_rdma/{port}")
    except OSError:
        return False
    return True


def main(port, attack, *rest):
    if attack == "silence":
        return silence(port, int(rest[0]))
    if attack == "mute":
        return mute(int(rest[0]))
    try:
        if attack in GREETINGS:
            sock = connect(port)
            message, descriptors = GREETINGS[attack]()
            socket.send_fds(sock, [message], descriptors)
        elif attack == "whoever":
            sock = connect(port)
            socket.send_fds(sock, [hello()], both(memory()))
        else:
            peer = Peer(port)
            {**ATTACKS, **HARMLESS}[attack](peer)
            peer.wake()
            if attack in HARMLESS:
                return None
            return print(peer.verdict(), flush=True)
    except OSError as error:
        return print(f"refused: {errno.errorcode.get(error.errno)}", flush=True)
    return print(verdict(sock), flush=True)


if sys.argv[1:] == ["names"]:
    print(" ".join(GREETINGS), " ".join(ATTACKS), sep="\n")
else:
    main(int(sys.argv[1]), *sys.argv[2:])
