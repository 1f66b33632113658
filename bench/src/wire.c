// A wire between two network namespaces, with delay, rate and loss: a TUN device in each, and this process between
// them.
//
//     wire NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B DELAY_US RATE_KBIT LOSS_PPM BUFFER_BYTES
//
// It writes "ready" when both devices are there, and ends with its standard input. Kernels without sch_netem have
// nothing of their own that delays packets.
#define _GNU_SOURCE
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

// The largest MTU that a device may have.
enum { PACKET_BYTES = 9000, PACKETS_PER_TURN = 64 };

struct packet {
    struct packet *next;
    uint64_t due_ns;
    size_t bytes;
    char data[];
};

struct direction {
    int from, to;
    // When the last packet has left, at this rate.
    uint64_t free_ns;
    struct packet *first, *last;
};

static uint64_t delay_ns, rate_kbit, loss_ppm, buffer_bytes;

static void fail(const char *what) {
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int tun(const char *namespace, const char *device) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int there = open(path, O_RDONLY | O_CLOEXEC);
    if (there < 0 || setns(there, CLONE_NEWNET) < 0) fail(path);
    close(there);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request) < 0) fail(device);
    return fd;
}

static void take(struct direction *way) {
    static char data[PACKET_BYTES];
    for (int taken = 0; taken < PACKETS_PER_TURN; taken++) {
        ssize_t bytes = read(way->from, data, sizeof data);
        if (bytes <= 0) return;
        uint64_t now = now_ns();
        if (way->free_ns < now) way->free_ns = now;
        // Nanoseconds times kbit/s are 10^-6 bits.
        if ((way->free_ns - now) * rate_kbit / 8000000u > buffer_bytes) continue;
        way->free_ns += (uint64_t)bytes * 8000000u / rate_kbit;
        if ((uint64_t)(random() % 1000000) < loss_ppm) continue;
        struct packet *packet = malloc(sizeof *packet + (size_t)bytes);
        if (!packet) fail("malloc");
        memcpy(packet->data, data, (size_t)bytes);
        packet->bytes = (size_t)bytes;
        packet->due_ns = way->free_ns + delay_ns;
        packet->next = NULL;
        if (way->last) way->last->next = packet;
        else way->first = packet;
        way->last = packet;
    }
}

static void give(struct direction *way) {
    while (way->first && way->first->due_ns <= now_ns()) {
        struct packet *packet = way->first;
        way->first = packet->next;
        if (!way->first) way->last = NULL;
        // What the device cannot take is lost, as on any wire.
        if (write(way->to, packet->data, packet->bytes) < 0 && errno != EAGAIN && errno != EIO) fail("write");
        free(packet);
    }
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: wire NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B "
                        "DELAY_US RATE_KBIT LOSS_PPM BUFFER_BYTES\n");
        return 1;
    }
    delay_ns = strtoull(argv[5], NULL, 10) * 1000;
    rate_kbit = strtoull(argv[6], NULL, 10);
    loss_ppm = strtoull(argv[7], NULL, 10);
    buffer_bytes = strtoull(argv[8], NULL, 10);
    int a = tun(argv[1], argv[2]), b = tun(argv[3], argv[4]);
    // A timer may be so late; by default 50 us.
    prctl(PR_SET_TIMERSLACK, 1000);
    printf("ready\n");
    fflush(stdout);
    struct direction ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    struct pollfd polled[3] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    for (;;) {
        uint64_t due = UINT64_MAX, now = now_ns();
        for (int i = 0; i < 2; i++)
            if (ways[i].first && ways[i].first->due_ns < due) due = ways[i].first->due_ns;
        uint64_t wait = due > now ? due - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
        if (ppoll(polled, 3, due == UINT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR) fail("ppoll");
        if (polled[2].revents) return 0;
        for (int i = 0; i < 2; i++) {
            take(&ways[i]);
            give(&ways[i]);
        }
    }
}
