// A link of two rings in shared memory and nothing else. Packets are copied into the peer's ring with their length
// before them, and a byte over a socket wakes a peer that sleeps.
//
// It is a measure, no carrier to use: it believes each word of the peer, resumes nothing, moves nowhere, and never
// looks for packets by itself.
#include <erl_driver.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RING_BYTES = 1 << 20,
    // A packet and its length start at a multiple of this.
    ALIGNMENT = 8,
    LENGTH_BYTES = 4,
    // Packets given to the VM in one callback at most, as in inet_rdma's port.
    PACKETS_PER_TURN = 256,
};
// In place of a length: the next packet is at the start of the ring.
static const uint32_t WRAPS = UINT32_MAX;

// Commands of port_control/3; bare_ring_dist.erl has the same numbers.
enum { OPEN = 1, START = 2, TICK = 3, PACKETS = 4 };

struct ring {
    _Alignas(128) _Atomic uint64_t tail; // Bytes written since the start; the producer's word.
    _Alignas(128) _Atomic uint64_t head; // Bytes read since the start; the consumer's word.
    _Alignas(128) _Atomic uint32_t sleeps; // 1: the consumer waits for packets.
    _Alignas(128) _Atomic uint32_t waits; // 1: the producer waits for room.
    _Alignas(4096) char data[RING_BYTES];
};

struct link {
    ErlDrvPort port;
    int socket;
    int is_busy;
    struct ring *memory; // Both rings.
    struct ring *out, *in;
    uint64_t tail, head; // Of `out` and of `in`.
    uint64_t head_seen;  // The peer's, when last read.
    uint32_t received, sent;
};

static ErlDrvEvent event(int fd) { return (ErlDrvEvent)(intptr_t)fd; }

static void wake(struct link *link) {
    // A full socket is readable already, and the end of the peer is read.
    (void)send(link->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ErlDrvData start(ErlDrvPort port, char *command) {
    (void)command;
    struct link *link = driver_alloc(sizeof *link);
    memset(link, 0, sizeof *link);
    link->port = port;
    link->socket = -1;
    set_port_control_flags(port, PORT_CONTROL_FLAG_BINARY);
    return (ErlDrvData)link;
}

static void stop(ErlDrvData data) {
    struct link *link = (struct link *)data;
    if (link->socket >= 0) driver_select(link->port, event(link->socket), ERL_DRV_USE | ERL_DRV_READ, 0);
    if (link->memory) munmap(link->memory, 2 * sizeof(struct ring));
    driver_free(link);
}

static void stop_select(ErlDrvEvent fd, void *reserved) {
    (void)reserved;
    shutdown((int)(intptr_t)fd, SHUT_RDWR);
    close((int)(intptr_t)fd);
}

// The bytes of the ring that a packet takes.
static uint64_t bytes_in_ring(uint32_t packet) {
    return (LENGTH_BYTES + (uint64_t)packet + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// A place for a packet of `bytes`, or NULL: the ring is full. The caller fills it, then calls `publish`.
static char *place(struct link *link, uint32_t bytes) {
    uint64_t all = bytes_in_ring(bytes);
    uint64_t at = link->tail % RING_BYTES;
    uint64_t skipped = at + all > RING_BYTES ? RING_BYTES - at : 0;
    if (link->tail + skipped + all - link->head_seen > RING_BYTES) {
        link->head_seen = atomic_load_explicit(&link->out->head, memory_order_acquire);
        if (link->tail + skipped + all - link->head_seen > RING_BYTES) return NULL;
    }
    if (skipped) {
        memcpy(link->out->data + at, &WRAPS, LENGTH_BYTES);
        at = 0;
    }
    memcpy(link->out->data + at, &bytes, LENGTH_BYTES);
    link->tail += skipped + all;
    return link->out->data + at + LENGTH_BYTES;
}

static void publish(struct link *link) {
    link->sent++;
    atomic_store_explicit(&link->out->tail, link->tail, memory_order_release);
    if (atomic_exchange(&link->out->sleeps, 0)) wake(link);
}

// Copies up to `bytes` of a vector; how many.
static size_t gather(char *to, size_t bytes, const SysIOVec *pieces, int count) {
    size_t copied = 0;
    for (int i = 0; i < count && copied < bytes; i++) {
        size_t piece = pieces[i].iov_len < bytes - copied ? pieces[i].iov_len : bytes - copied;
        memcpy(to + copied, pieces[i].iov_base, piece);
        copied += piece;
    }
    return copied;
}

// Moves packets that wait in the port's queue, each with its length before it, to the ring.
static void drain(struct link *link) {
    while (driver_sizeq(link->port) > 0) {
        uint32_t bytes;
        int count;
        const SysIOVec *pieces = driver_peekq(link->port, &count);
        gather((char *)&bytes, LENGTH_BYTES, pieces, count);
        char *to = place(link, bytes);
        if (to == NULL) {
            atomic_exchange(&link->out->waits, 1);
            // The peer may have made room before it could see that this side waits.
            to = place(link, bytes);
            if (to == NULL) return;
        }
        driver_deq(link->port, LENGTH_BYTES);
        pieces = driver_peekq(link->port, &count);
        gather(to, bytes, pieces, count);
        driver_deq(link->port, bytes);
        publish(link);
    }
    if (link->is_busy) set_busy_port(link->port, link->is_busy = 0);
}

static void outputv(ErlDrvData data, ErlIOVec *packet) {
    struct link *link = (struct link *)data;
    uint32_t bytes = (uint32_t)packet->size;
    if (packet->size > RING_BYTES / 2) {
        driver_failure_posix(link->port, EMSGSIZE);
        return;
    }
    char *to = driver_sizeq(link->port) == 0 ? place(link, bytes) : NULL;
    if (to != NULL) {
        gather(to, bytes, packet->iov, packet->vsize);
        publish(link);
        return;
    }
    driver_enq(link->port, (char *)&bytes, LENGTH_BYTES);
    driver_enqv(link->port, packet, 0);
    if (!link->is_busy) set_busy_port(link->port, link->is_busy = 1);
    drain(link);
}

// Gives packets to the VM, and sleeps when there are no more.
static void take(struct link *link) {
    for (int left = PACKETS_PER_TURN;;) {
        uint64_t tail = atomic_load_explicit(&link->in->tail, memory_order_acquire);
        uint64_t before = link->head;
        while (link->head != tail && left > 0) {
            uint64_t at = link->head % RING_BYTES;
            uint32_t bytes;
            memcpy(&bytes, link->in->data + at, LENGTH_BYTES);
            if (bytes == WRAPS) {
                link->head += RING_BYTES - at;
                continue;
            }
            if (bytes > 0) driver_output2(link->port, NULL, 0, link->in->data + at + LENGTH_BYTES, bytes);
            link->received++;
            link->head += bytes_in_ring(bytes);
            left--;
        }
        if (link->head != before) {
            atomic_store(&link->in->head, link->head);
            if (atomic_load(&link->in->waits) && atomic_exchange(&link->in->waits, 0)) wake(link);
        }
        if (link->head != tail) {
            driver_set_timer(link->port, 0);
            return;
        }
        atomic_exchange(&link->in->sleeps, 1);
        if (atomic_load(&link->in->tail) == link->head) return;
        atomic_exchange(&link->in->sleeps, 0);
    }
}

static void ready_input(ErlDrvData data, ErlDrvEvent fd) {
    (void)fd;
    struct link *link = (struct link *)data;
    char bytes[64];
    ssize_t count = recv(link->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        driver_failure_eof(link->port);
        return;
    }
    drain(link);
    take(link);
}

static void timeout(ErlDrvData data) {
    struct link *link = (struct link *)data;
    drain(link);
    take(link);
}

static void flush(ErlDrvData data) {
    struct link *link = (struct link *)data;
    driver_deq(link->port, driver_sizeq(link->port));
}

// `<<Socket:32/native, Side:32/native, Path/binary>>`: side 0 writes the first ring of the file, side 1 the second.
static int open_rings(struct link *link, const char *argument, size_t bytes) {
    int32_t socket, side;
    char path[256];
    if (link->memory || bytes < 8 || bytes - 8 >= sizeof path) return -1;
    memcpy(&socket, argument, 4);
    memcpy(&side, argument + 4, 4);
    memcpy(path, argument + 8, bytes - 8);
    path[bytes - 8] = 0;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return -1;
    void *memory = MAP_FAILED;
    if (ftruncate(file, 2 * sizeof(struct ring)) == 0)
        memory = mmap(NULL, 2 * sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return -1;
    link->memory = memory;
    link->out = link->memory + side;
    link->in = link->memory + 1 - side;
    link->socket = dup(socket);
    return link->socket < 0 ? -1 : 0;
}

static ErlDrvSSizeT control(
    ErlDrvData data, unsigned command, char *argument, ErlDrvSizeT bytes, char **answer, ErlDrvSizeT answer_bytes
) {
    struct link *link = (struct link *)data;
    (void)answer_bytes;
    if (command == OPEN) return open_rings(link, argument, bytes);
    if (!link->memory) return -1;
    switch (command) {
    case START:
        driver_select(link->port, event(link->socket), ERL_DRV_USE | ERL_DRV_READ, 1);
        take(link);
        return 0;
    case TICK:
        if (driver_sizeq(link->port) == 0 && place(link, 0)) publish(link);
        return 0;
    case PACKETS: {
        ErlDrvBinary *counts = driver_alloc_binary(8);
        memcpy(counts->orig_bytes, &link->received, 4);
        memcpy(counts->orig_bytes + 4, &link->sent, 4);
        *answer = (char *)counts;
        return 8;
    }
    default:
        return -1;
    }
}

static ErlDrvEntry entry = {
    .driver_name = "bare_ring",
    .start = start,
    .stop = stop,
    .stop_select = stop_select,
    .outputv = outputv,
    .ready_input = ready_input,
    .timeout = timeout,
    .flush = flush,
    .control = control,
    .extended_marker = ERL_DRV_EXTENDED_MARKER,
    .major_version = ERL_DRV_EXTENDED_MAJOR_VERSION,
    .minor_version = ERL_DRV_EXTENDED_MINOR_VERSION,
    .driver_flags = ERL_DRV_FLAG_USE_PORT_LOCKING | ERL_DRV_FLAG_SOFT_BUSY,
};

DRIVER_INIT(bare_ring) { return &entry; }
