// A switch between the networks of up to 8 hosts, which are network namespaces, that does to the packets from one host
// to another what it is told: loss, delay, rate, a largest packet, connections forgotten as by a firewall that was
// restarted. No host hears of it: every device stays up. Kernels without sch_netem have nothing of their own for this.
//
//     switch NAMESPACE DEVICE [NAMESPACE DEVICE]...
//
// It makes a TUN device in each namespace, writes "ready", and ends with its standard input, which has orders, a line
// each:
//
//     FROM TO loss PPM        of the packets vanish at random; 1000000: all
//     FROM TO delay US        adds this time to the way of each packet
//     FROM TO rate KBIT       0: without a limit; beyond BUFFER_BYTES packets vanish
//     FROM TO largest BYTES   larger packets vanish; 0: none do
//     FROM TO forget BYTES    of the TCP connections that there are, packets larger than this vanish for good
//     FROM TO pass 0          all is well again
//     FROM TO count 0         changes nothing
//
// FROM and TO count the namespaces from 0. The answer to each is "ok N": packets from FROM to TO that have vanished.
// A packet goes to the host that has last sent from its destination address, or to all while there is none.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 8, ADDRESSES = 64, PACKET_BYTES = 2048, PACKETS_PER_TURN = 64, ORDER_BYTES = 256 };
// What a device keeps of a direction with a rate.
enum { BUFFER_BYTES = 65536 };
// A power of two: connections share an entry rarely, and the older one then counts as forgotten.
enum { CONNECTIONS = 1 << 20 };
enum { TCP_HEADER_BYTES = 20, TCP_SYN = 2, TCP_ACK = 16 };

struct packet {
    struct packet *next;
    uint64_t due_ns;
    ssize_t bytes;
    char data[PACKET_BYTES];
};

// The packets from one host to another.
struct way {
    uint64_t delay_ns, rate_kbit, loss_ppm, largest_bytes;
    // Connections that began before this moment are forgotten but for packets of this size.
    uint32_t forgotten_until;
    uint64_t forgotten_bytes;
    // When the last packet has left, at this rate.
    uint64_t free_ns;
    uint64_t vanished;
    struct packet *first, *last;
};

struct address {
    uint8_t bytes[16];
};

// What the switch reads of a packet. began: when its TCP connection began; UINT32_MAX: it is none of TCP.
struct headers {
    struct address from, to;
    uint32_t began;
};

static int hosts, devices[HOSTS];
static struct way ways[HOSTS][HOSTS];
static struct {
    struct address address;
    int host;
} known[ADDRESSES];
static int addresses_known, next_address;
// Moments are counted by the orders to forget. The upper half of the hash tells connections of an entry apart.
static uint32_t moment = 1;
static struct {
    uint32_t hash, began;
} *connections;

static void fail(const char *what) {
    fprintf(stderr, "switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int namespace_at(const char *path) {
    int there = open(path, O_RDONLY | O_CLOEXEC);
    if (there < 0) fail(path);
    return there;
}

static void enter(int there) {
    if (setns(there, CLONE_NEWNET) < 0) fail("setns");
    close(there);
}

static int tun(const char *namespace, const char *device) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    enter(namespace_at(path));
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request) < 0) fail(device);
    return fd;
}

// FNV-1a over both ends, of which the smaller comes first: the same for both directions.
static uint64_t hash_of(const struct headers *headers, const uint8_t *ports) {
    uint8_t ends[2][18];
    memcpy(ends[0], headers->from.bytes, 16);
    memcpy(ends[0] + 16, ports, 2);
    memcpy(ends[1], headers->to.bytes, 16);
    memcpy(ends[1] + 16, ports + 2, 2);
    int first = memcmp(ends[0], ends[1], 18) > 0;
    uint64_t hash = 14695981039346656037u;
    for (int end = 0; end < 2; end++)
        for (int i = 0; i < 18; i++) hash = (hash ^ ends[end ^ first][i]) * 1099511628211u;
    return hash;
}

// When the connection of this segment began: now, with its first segment. 0: before all that the switch knows.
static uint32_t began(const struct headers *headers, const uint8_t *segment) {
    uint64_t hash = hash_of(headers, segment);
    uint32_t upper = (uint32_t)(hash >> 32), entry = (uint32_t)hash & (CONNECTIONS - 1);
    if ((segment[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN) {
        connections[entry].hash = upper;
        connections[entry].began = moment;
    }
    return connections[entry].hash == upper ? connections[entry].began : 0;
}

// 0: nothing that goes from host to host.
static int parse(const uint8_t *data, size_t bytes, struct headers *headers) {
    size_t length;
    int protocol;
    memset(headers, 0, sizeof *headers);
    if (bytes >= 20 && data[0] >> 4 == 4) {
        memcpy(headers->from.bytes + 12, data + 12, 4);
        memcpy(headers->to.bytes + 12, data + 16, 4);
        length = (size_t)(data[0] & 15) * 4;
        protocol = data[9];
        if (data[16] >= 224) return 0;
    } else if (bytes >= 40 && data[0] >> 4 == 6) {
        memcpy(headers->from.bytes, data + 8, 16);
        memcpy(headers->to.bytes, data + 24, 16);
        length = 40;
        protocol = data[6];
        // Link-local or multicast addresses.
        if (data[8] == 0xfe || data[24] == 0xfe || data[24] == 0xff) return 0;
    } else {
        return 0;
    }
    int is_tcp = protocol == IPPROTO_TCP && bytes >= length + TCP_HEADER_BYTES;
    headers->began = is_tcp ? began(headers, data + length) : UINT32_MAX;
    return 1;
}

// The host of an address, or -1.
static int host_of(const struct address *address) {
    for (int i = 0; i < addresses_known; i++)
        if (memcmp(&known[i].address, address, sizeof *address) == 0) return known[i].host;
    return -1;
}

static void learn(const struct address *address, int host) {
    for (int i = 0; i < addresses_known; i++)
        if (memcmp(&known[i].address, address, sizeof *address) == 0) {
            known[i].host = host;
            return;
        }
    known[next_address].address = *address;
    known[next_address].host = host;
    next_address = (next_address + 1) % ADDRESSES;
    if (addresses_known < ADDRESSES) addresses_known++;
}

static int vanishes(const struct way *way, const struct headers *headers, uint64_t bytes, uint64_t now) {
    if (way->largest_bytes && bytes > way->largest_bytes) return 1;
    if (headers->began < way->forgotten_until && bytes > way->forgotten_bytes) return 1;
    if ((uint64_t)(random() % 1000000) < way->loss_ppm) return 1;
    // Nanoseconds times kbit/s are 10^-6 bits.
    return way->rate_kbit && way->free_ns > now && (way->free_ns - now) * way->rate_kbit / 8000000u > BUFFER_BYTES;
}

static void deliver(int host, const char *data, size_t bytes) {
    // What the device cannot take is lost, as on any wire.
    if (write(devices[host], data, bytes) < 0 && errno != EAGAIN && errno != EIO && errno != EINVAL) fail("write");
}

static void forward(int from, int to, const char *data, size_t bytes, const struct headers *headers) {
    struct way *way = &ways[from][to];
    uint64_t now = now_ns();
    if (vanishes(way, headers, bytes, now)) {
        way->vanished++;
        return;
    }
    if (!way->delay_ns && !way->rate_kbit && !way->first) {
        deliver(to, data, bytes);
        return;
    }
    if (way->free_ns < now) way->free_ns = now;
    if (way->rate_kbit) way->free_ns += bytes * 8000000u / way->rate_kbit;
    struct packet *packet = malloc(sizeof *packet);
    if (!packet) fail("malloc");
    packet->next = NULL;
    packet->due_ns = way->free_ns + way->delay_ns;
    packet->bytes = (ssize_t)bytes;
    memcpy(packet->data, data, bytes);
    if (way->last) way->last->next = packet;
    else way->first = packet;
    way->last = packet;
}

static void take(int from) {
    for (int taken = 0; taken < PACKETS_PER_TURN; taken++) {
        char data[PACKET_BYTES];
        struct headers headers;
        ssize_t bytes = read(devices[from], data, sizeof data);
        if (bytes <= 0) return;
        if (!parse((const uint8_t *)data, (size_t)bytes, &headers)) continue;
        learn(&headers.from, from);
        int to = host_of(&headers.to);
        for (int host = 0; host < hosts; host++)
            if (host != from && (to < 0 || host == to)) forward(from, host, data, (size_t)bytes, &headers);
    }
}

static void give(int from, int to) {
    struct way *way = &ways[from][to];
    while (way->first && way->first->due_ns <= now_ns()) {
        struct packet *packet = way->first;
        way->first = packet->next;
        if (!way->first) way->last = NULL;
        deliver(to, packet->data, (size_t)packet->bytes);
        free(packet);
    }
}

static void obey(const char *order) {
    int from, to;
    char what[16];
    uint64_t value;
    if (sscanf(order, "%d %d %15s %lu", &from, &to, what, &value) != 4 || from < 0 || from >= hosts || to < 0 ||
        to >= hosts) {
        fprintf(stderr, "switch: not an order: %s\n", order);
        exit(1);
    }
    struct way *way = &ways[from][to];
    if (strcmp(what, "loss") == 0) way->loss_ppm = value;
    else if (strcmp(what, "delay") == 0) way->delay_ns = value * 1000;
    else if (strcmp(what, "rate") == 0) way->rate_kbit = value;
    else if (strcmp(what, "largest") == 0) way->largest_bytes = value;
    else if (strcmp(what, "forget") == 0) {
        way->forgotten_until = ++moment;
        way->forgotten_bytes = value;
    } else if (strcmp(what, "pass") == 0) {
        way->loss_ppm = way->delay_ns = way->rate_kbit = way->largest_bytes = way->forgotten_until = 0;
    } else if (strcmp(what, "count") != 0) {
        fprintf(stderr, "switch: not an order: %s\n", what);
        exit(1);
    }
    printf("ok %lu\n", (unsigned long)way->vanished);
    fflush(stdout);
}

// Whether there may be more orders.
static int read_orders(void) {
    static char orders[ORDER_BYTES];
    static size_t had;
    ssize_t bytes = read(0, orders + had, sizeof orders - 1 - had);
    if (bytes <= 0) return 0;
    had += (size_t)bytes;
    orders[had] = 0;
    char *order = orders, *end;
    for (; (end = strchr(order, '\n')); order = end + 1) {
        *end = 0;
        obey(order);
    }
    had -= (size_t)(order - orders);
    memmove(orders, order, had);
    return 1;
}

static uint64_t next_due_ns(void) {
    uint64_t due = UINT64_MAX;
    for (int from = 0; from < hosts; from++)
        for (int to = 0; to < hosts; to++)
            if (ways[from][to].first && ways[from][to].first->due_ns < due) due = ways[from][to].first->due_ns;
    return due;
}

int main(int argc, char **argv) {
    hosts = (argc - 1) / 2;
    if (hosts < 1 || hosts > HOSTS || argc % 2 == 0) {
        fprintf(stderr, "usage: switch NAMESPACE DEVICE [NAMESPACE DEVICE]...\n");
        return 1;
    }
    connections = calloc(CONNECTIONS, sizeof *connections);
    if (!connections) fail("calloc");
    struct pollfd polled[HOSTS + 1];
    int own = namespace_at("/proc/self/ns/net");
    for (int host = 0; host < hosts; host++) {
        devices[host] = tun(argv[1 + 2 * host], argv[2 + 2 * host]);
        polled[host] = (struct pollfd){.fd = devices[host], .events = POLLIN};
    }
    // Whoever ends all that runs on a host does not end the switch.
    enter(own);
    polled[hosts] = (struct pollfd){.fd = 0, .events = POLLIN};
    // A timer may be so late; by default 50 us.
    prctl(PR_SET_TIMERSLACK, 1000);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t due = next_due_ns(), now = now_ns(), wait = due > now ? due - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
        if (ppoll(polled, (nfds_t)hosts + 1, due == UINT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR)
            fail("ppoll");
        if (polled[hosts].revents && !read_orders()) return 0;
        for (int from = 0; from < hosts; from++) {
            take(from);
            for (int to = 0; to < hosts; to++) give(from, to);
        }
    }
}
