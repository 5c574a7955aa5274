/* SPDX-License-Identifier: Apache-2.0 */
/* A network whose packets take a given time: delay_line MILLISECONDS CARD...
 *
 * Makes a network card (TUN) of each name, to be moved to the namespace of a host. A packet that a host sends, to the
 * address that ends in n, is handed to card n - 1 after the delay. It is for kernels without netem. It does not limit
 * rates, as tc does. Packets keep their order. Large packets pass whole, as on a card with segmentation offload. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_CARDS = 64,
    HEAD = sizeof(struct virtio_net_hdr),
    PACKET_BYTES = HEAD + 65536,
    LINE_BYTES = 64 << 20, /* bytes of packets that are on their way at most */
    LINE_PACKETS = 1 << 16,
    IP4_DESTINATION_END = 19 /* offset of the last byte of the destination in the head of an IPv4 packet */
};

/* A packet on its way. */
typedef struct packet {
    int64_t due; /* nanoseconds */
    int card;
    uint32_t bytes, at; /* place in line.memory */
} packet;

/* The packets on their way, oldest first. */
typedef struct line {
    int cards[MOST_CARDS], count;
    int64_t delay;
    packet packets[LINE_PACKETS];
    uint64_t first, end; /* packets [first, end), modulo LINE_PACKETS */
    uint32_t head;       /* where the next packet is put */
    uint64_t held;       /* bytes of memory in use */
    char memory[LINE_BYTES + PACKET_BYTES];
} line;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int open_card(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int card = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), bytes = HEAD;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (card < 0 || ioctl(card, TUNSETIFF, &request) || ioctl(card, TUNSETVNETHDRSZ, &bytes) ||
        ioctl(card, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) {
        fprintf(stderr, "delay_line: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return card;
}

static int has_room(const line *l)
{
    return l->held + 2 * PACKET_BYTES < LINE_BYTES && l->end - l->first < LINE_PACKETS;
}

/* Takes packets that a host has sent, as long as there is room. */
static void take(line *l, int from)
{
    while (has_room(l)) {
        char *place = l->memory + l->head;
        ssize_t bytes = read(l->cards[from], place, PACKET_BYTES);
        if (bytes <= HEAD + IP4_DESTINATION_END)
            return;
        int card = (unsigned char)place[HEAD + IP4_DESTINATION_END] - 1;
        if ((place[HEAD] >> 4) != 4 || card < 0 || card >= l->count)
            continue; /* IPv6 and broadcasts lead nowhere */
        l->packets[l->end++ % LINE_PACKETS] = (packet){now() + l->delay, card, (uint32_t)bytes, l->head};
        uint32_t next = l->head + (uint32_t)bytes;
        next = next < LINE_BYTES ? next : 0;
        l->held += (uint64_t)bytes;
        l->head = next;
    }
}

/* Hands over the packets that are due. Returns nanoseconds until the next one; -1 if there is none. */
static int64_t deliver(line *l)
{
    while (l->first < l->end) {
        const packet *p = &l->packets[l->first % LINE_PACKETS];
        int64_t left = p->due - now();
        if (left > 0)
            return left;
        ssize_t written = write(l->cards[p->card], l->memory + p->at, p->bytes); /* a full card loses the packet */
        (void)written;
        l->held -= p->bytes;
        l->first++;
    }
    return -1;
}

int main(int argc, char **argv)
{
    static line l;
    struct pollfd polls[MOST_CARDS];
    if (argc < 3 || argc - 2 > MOST_CARDS) {
        fprintf(stderr, "delay_line MILLISECONDS CARD...\n");
        return 2;
    }
    l.delay = (int64_t)(atof(argv[1]) * 1e6);
    for (; l.count < argc - 2; l.count++) {
        l.cards[l.count] = open_card(argv[2 + l.count]);
        polls[l.count] = (struct pollfd){.fd = l.cards[l.count], .events = POLLIN};
    }
    for (;;) {
        int64_t left = deliver(&l);
        struct timespec pause = {left / 1000000000, left % 1000000000};
        ppoll(polls, has_room(&l) ? (nfds_t)l.count : 0, left < 0 ? NULL : &pause, NULL);
        for (int i = 0; i < l.count; i++)
            take(&l, i);
    }
}
