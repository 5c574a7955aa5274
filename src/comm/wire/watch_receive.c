/* SPDX-License-Identifier: Apache-2.0 */
/* Receives messages from control connections, and ends a watch (watch.h).
 *
 * No socket sets a time limit (TCP_USER_TIMEOUT, keepalive): the time limit of a group decides how long a network may
 * be interrupted. */
#include "watch_state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The end of a watch waits this long beyond its limit for messages that are on the way: time to send a message again
 * that the network has lost once. */
#define ARRIVE_SECONDS 0.5

/* Reads into the input of a peer, once. */
static void read_input(watch_peer *peer)
{
    memmove(peer->input, peer->input + peer->begin, peer->end - peer->begin);
    peer->end -= peer->begin;
    peer->begin = 0;
    ssize_t count = recv(peer->socket, peer->input + peer->end, WATCH_INPUT - peer->end, MSG_DONTWAIT);
    if (count > 0) {
        peer->end += (size_t)count;
        peer->read_ns = ith_watch_now_ns();
    } else if (count == 0 || errno == ECONNRESET || errno == EPIPE)
        peer->reason = "its connection closed";
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        peer->reason = errno == ETIMEDOUT ? "its connection timed out" : "its connection failed";
}

/* Nothing more is read from the peer. The socket stays open, since other threads may send at the moment. */
static ith_watch_event end_peer(ith_watch *w, watch_peer *peer, ith_watch_event event)
{
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, peer->socket, NULL);
    atomic_store(&peer->ended, true);
    shutdown(peer->socket, SHUT_WR);
    return event;
}

/* Reads the head of the next message that is no pulse. Returns false if the head is not there. */
static bool read_head(watch_peer *peer, watch_head *head)
{
    for (;;) {
        if (peer->end - peer->begin < sizeof *head)
            return false;
        memcpy(head, peer->input + peer->begin, sizeof *head);
        if (head->kind != WATCH_PULSE || head->bytes)
            return true;
        peer->begin += sizeof *head;
    }
}

/* Takes the next message of a peer's input, or its end. */
static ith_watch_event take_event(ith_watch *w, watch_peer *peer, const void **data, size_t *bytes)
{
    watch_head head;
    if (atomic_load(&peer->ended))
        return ITH_WATCH_NOTHING;
    if (read_head(peer, &head)) {
        if (head.kind == WATCH_BYE)
            return end_peer(w, peer, ITH_WATCH_BYE);
        bool fails = head.kind == WATCH_FAILED && head.bytes > offsetof(watch_failure, sentence);
        bool awaits = head.kind == WATCH_AWAITS && head.bytes == sizeof(int32_t);
        if ((head.kind != WATCH_MESSAGE && !fails && !awaits) || head.bytes > ITH_WATCH_BYTES) {
            peer->reason = "its connection carried bytes that are no message";
        } else if (peer->end - peer->begin - sizeof head >= head.bytes) {
            memcpy(w->message, peer->input + peer->begin + sizeof head, head.bytes);
            peer->begin += sizeof head + head.bytes;
            size_t skipped = fails ? offsetof(watch_failure, sentence) : 0;
            *data = w->message + skipped;
            *bytes = head.bytes - skipped;
            if (!fails)
                return awaits ? ITH_WATCH_AWAITS : ITH_WATCH_MESSAGE;
            w->message[head.bytes - 1] = 0;
            return end_peer(w, peer, ITH_WATCH_FAILED);
        }
    }
    if (!peer->reason)
        return ITH_WATCH_NOTHING;
    *data = peer->reason;
    *bytes = strlen(peer->reason) + 1;
    return end_peer(w, peer, ITH_WATCH_LOST);
}

/* Reads the input of the next peer that has some, as w->current. Returns false if there is none. */
static bool find_input(ith_watch *w)
{
    if (w->ready_next == w->ready_count) {
        w->ready_next = 0;
        w->ready_count = epoll_wait(w->epoll, w->ready, WATCH_READY, 0);
        if (w->ready_count <= 0) {
            w->ready_count = 0;
            return false;
        }
    }
    w->current = w->ready[w->ready_next++].data.ptr;
    if (w->current)
        read_input(w->current);
    else
        eventfd_read(w->wake, &(eventfd_t){0});
    return true;
}

ith_watch_event ith_watch_receive(ith_watch *w, int *process, const void **data, size_t *bytes)
{
    if (atomic_load(&w->queues))
        ith_watch_flush(w);
    do {
        ith_watch_event event = w->current ? take_event(w, w->current, data, bytes) : ITH_WATCH_NOTHING;
        if (event) {
            *process = (int)(w->current - w->peers);
            return event;
        }
        w->current = NULL;
    } while (find_input(w));
    return ITH_WATCH_NOTHING;
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

void ith_watch_rest(ith_watch *w, double seconds)
{
    struct pollfd one = {.fd = w->epoll, .events = POLLIN};
    if (atomic_load(&w->queues) && seconds > 1e-3)
        seconds = 1e-3; /* a connection may have room again */
    if (seconds > 0)
        ppoll(&one, 1, &(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

void ith_watch_wake(ith_watch *w)
{
    int before = errno;
    eventfd_write(w->wake, 1);
    errno = before;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Sends the rest of the queue, and reads until the other end closes. A connection that is closed with unread input is
 * reset, which may overtake messages of this process. Returns whether the connection may be closed. */
static bool finish_peer(ith_watch *w, watch_peer *peer)
{
    char rest[1024];
    ssize_t count;
    if (peer->socket < 0 || atomic_load(&peer->ended))
        return true;
    pthread_mutex_lock(&peer->lock);
    ith_watch_flush_queue(w, peer);
    bool sent = !peer->queued;
    pthread_mutex_unlock(&peer->lock);
    if (sent)
        shutdown(peer->socket, SHUT_WR);
    do
        count = recv(peer->socket, rest, sizeof rest, MSG_DONTWAIT);
    while (count > 0);
    bool closed = count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    atomic_store(&peer->ended, closed);
    return closed;
}

/* Whether some messages may not have reached the system of a peer yet. The peer can read every message that has reached
 * its system, even if the connection is reset after that. */
static bool is_on_the_way(const watch_peer *peer)
{
    int bytes = 0;
    if (peer->socket < 0 || atomic_load(&peer->ended) || atomic_load(&peer->deaf))
        return false;
    return peer->queued > 0 || (!ioctl(peer->socket, SIOCOUTQ, &bytes) && bytes > 0);
}

/* Says goodbye to all peers, and waits for theirs until the time `end`, a little longer if messages are on the way. */
static void say_goodbye(ith_watch *w, double end)
{
    for (int i = 0; i < w->processes; i++)
        if (w->peers[i].socket >= 0 && !atomic_load(&w->peers[i].ended))
            ith_watch_put(w, &w->peers[i], WATCH_BYE, NULL, 0, false);
    for (;;) {
        bool finished = true, arrived = true;
        for (int i = 0; i < w->processes; i++) {
            finished &= finish_peer(w, &w->peers[i]);
            arrived &= !is_on_the_way(&w->peers[i]);
        }
        if (finished || ith_watch_now() >= end + (arrived ? 0 : ARRIVE_SECONDS))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
}

void ith_watch_close(ith_watch *w, bool hasty)
{
    if (!w)
        return;
    ith_watch_end_pulse(w);
    if (w->peers)
        say_goodbye(w, ith_watch_now() + (hasty ? 0.1 : 1));
    for (int i = 0; w->peers && i < w->processes; i++) {
        if (w->peers[i].socket >= 0)
            close(w->peers[i].socket);
        pthread_mutex_destroy(&w->peers[i].lock);
    }
    const int descriptors[] = {w->listener, w->epoll, w->wake};
    for (int i = 0; i < 3; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    free(w->peers);
    free(w);
}
