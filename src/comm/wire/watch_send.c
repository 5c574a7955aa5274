/* SPDX-License-Identifier: Apache-2.0 */
/* Sends messages on control connections (watch.h). A message is a watch_head and its bytes. A queue of the sender holds
 * the bytes for which the connection has no room, so that a message is never cut off. */
#include "watch_state.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum { BYE_BYTES = 64 }; /* room of a queue that only the goodbye takes */

int64_t ith_watch_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

double ith_watch_now(void)
{
    return (double)ith_watch_now_ns() * 1e-9;
}

/* Sends bytes of a connection as far as it has room, and returns how many were sent. On an error the peer becomes deaf.
 */
static size_t send_some(watch_peer *peer, struct iovec *parts, int count)
{
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t sent;
    do
        sent = sendmsg(peer->socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS)
        atomic_store(&peer->deaf, true);
    return sent > 0 ? (size_t)sent : 0;
}

/* Adds bytes, without the first `skip`, to the queue. The lock is held, and there is room. */
static void enqueue(ith_watch *w, watch_peer *peer, const struct iovec *parts, int count, size_t skip)
{
    size_t before = peer->queued;
    for (int i = 0; i < count; i++) {
        size_t gone = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        memcpy(peer->queue + peer->queued, (char *)parts[i].iov_base + gone, parts[i].iov_len - gone);
        peer->queued += parts[i].iov_len - gone;
        skip -= gone;
    }
    if (!before && peer->queued)
        atomic_fetch_add(&w->queues, 1);
}

void ith_watch_flush_queue(ith_watch *w, watch_peer *peer)
{
    if (!peer->queued)
        return;
    size_t sent = send_some(peer, &(struct iovec){peer->queue, peer->queued}, 1);
    if (peer->deaf)
        sent = peer->queued;
    memmove(peer->queue, peer->queue + sent, peer->queued - sent);
    peer->queued -= sent;
    if (!peer->queued)
        atomic_fetch_sub(&w->queues, 1);
}

bool ith_watch_put(ith_watch *w, watch_peer *peer, uint16_t kind, const void *data, size_t bytes, bool droppable)
{
    watch_head head = {kind, (uint16_t)bytes};
    struct iovec parts[2] = {{&head, sizeof head}, {bytes ? (void *)data : &head, bytes}};
    size_t all = sizeof head + bytes, room = WATCH_QUEUE - (kind == WATCH_BYE ? 0 : BYE_BYTES), sent = 0;
    pthread_mutex_lock(&peer->lock);
    ith_watch_flush_queue(w, peer);
    bool taken = peer->queued == 0 || (!droppable && peer->queued + all <= room);
    if (!peer->queued)
        sent = send_some(peer, parts, 2);
    if (taken && !peer->deaf && (sent || !droppable))
        enqueue(w, peer, parts, 2, sent);
    pthread_mutex_unlock(&peer->lock);
    return taken || droppable;
}

bool ith_watch_send(ith_watch *w, int process, const void *data, size_t bytes, bool droppable)
{
    watch_peer *peer = &w->peers[process];
    if (peer->socket < 0 || atomic_load(&peer->deaf) || atomic_load(&peer->ended))
        return true;
    if (!bytes || bytes > ITH_WATCH_BYTES)
        return false;
    return ith_watch_put(w, peer, WATCH_MESSAGE, data, bytes, droppable);
}

bool ith_watch_has_closed(const ith_watch *w, int process)
{
    const watch_peer *peer = &w->peers[process];
    struct pollfd one = {.fd = peer->socket, .events = POLLRDHUP};
    return peer->socket >= 0 && (atomic_load(&peer->ended) || poll(&one, 1, 0) > 0);
}

void ith_watch_flush(ith_watch *w)
{
    for (int i = 0; i < w->processes && atomic_load(&w->queues); i++) {
        pthread_mutex_lock(&w->peers[i].lock);
        ith_watch_flush_queue(w, &w->peers[i]);
        pthread_mutex_unlock(&w->peers[i].lock);
    }
}
