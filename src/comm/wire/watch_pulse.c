/* SPDX-License-Identifier: Apache-2.0 */
/* Pulses (watch.h): messages without bytes, from a thread that does nothing else. The system answers for a process that
 * is stopped, so keepalive of TCP does not show it. */
#include "watch_state.h"

#include "../../base/monotonic.h"

#include <signal.h>
#include <time.h>

#define PULSES 8 /* pulses in the `seconds` of ith_watch_begin_pulse */
#define LONGEST_SECONDS 1.0

static void send_pulses(ith_watch *w)
{
    for (int i = 0; i < w->processes; i++) {
        watch_peer *peer = &w->peers[i];
        if (peer->socket >= 0 && !atomic_load(&peer->deaf) && !atomic_load(&peer->ended))
            ith_watch_put(w, peer, WATCH_PULSE, NULL, 0, true);
    }
}

static void *beat(void *user)
{
    ith_watch *w = user;
    watch_pulse *pulse = &w->pulse;
    pthread_mutex_lock(&pulse->lock);
    while (!pulse->ended) {
        int64_t next = ith_watch_now_ns() + (int64_t)(pulse->seconds * 1e9);
        struct timespec time = {(time_t)(next / 1000000000), (long)(next % 1000000000)};
        pthread_mutex_unlock(&pulse->lock);
        send_pulses(w);
        pthread_mutex_lock(&pulse->lock);
        while (!pulse->ended && ith_watch_now_ns() < next)
            pthread_cond_timedwait(&pulse->end, &pulse->lock, &time);
    }
    pthread_mutex_unlock(&pulse->lock);
    return NULL;
}

/* The thread takes no signals, which other threads of the process handle. */
static bool start_thread(ith_watch *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !pthread_create(&w->pulse.thread, NULL, beat, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

bool ith_watch_begin_pulse(ith_watch *w, double seconds)
{
    watch_pulse *pulse = &w->pulse;
    pulse->seconds = seconds / PULSES < LONGEST_SECONDS ? seconds / PULSES : LONGEST_SECONDS;
    for (int i = 0; i < w->processes; i++)
        w->peers[i].read_ns = ith_watch_now_ns();
    pulse->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!ith_monotonic_conditions(&pulse->end, 1))
        return false;
    pulse->started = start_thread(w);
    if (!pulse->started)
        pthread_cond_destroy(&pulse->end);
    return pulse->started;
}

void ith_watch_end_pulse(ith_watch *w)
{
    watch_pulse *pulse = &w->pulse;
    if (!pulse->started)
        return;
    pthread_mutex_lock(&pulse->lock);
    pulse->ended = true;
    pthread_cond_signal(&pulse->end);
    pthread_mutex_unlock(&pulse->lock);
    pthread_join(pulse->thread, NULL);
    pthread_cond_destroy(&pulse->end);
    pthread_mutex_destroy(&pulse->lock);
    pulse->started = false;
}

double ith_watch_silence(const ith_watch *w, int process)
{
    const watch_peer *peer = &w->peers[process];
    if (peer->socket < 0 || atomic_load(&peer->ended))
        return 0;
    return (double)(ith_watch_now_ns() - peer->read_ns) * 1e-9;
}
