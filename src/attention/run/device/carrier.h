/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of rows in a device's memory. The regions that a rank sends are gathered into one buffer of the device, and
 * the regions that it receives are filled from another one. Between the ranks
 *
 *   - a transport that takes memory of devices (ith_transport.device_memory) moves these buffers itself;
 *   - any other transport moves copies of them in pinned memory of the host.
 *
 * Each exchange that may be under way has a stream of its own, so that messages travel while the device computes.
 * Without device_memory the host can send a copy only when the copy has ended. It does not wait for this end at once:
 * an exchange is posted when the rank waits for this exchange or for a later one. By then the device has further work.
 * All ranks post in the order of the schedule, so the exchanges of a group have the same order on every rank. */
#ifndef ITH_ATTENTION_CARRIER_H
#define ITH_ATTENTION_CARRIER_H

#include "../../schedule/schedule.h"
#include "../plan_memory.h"

#define ITH_CARRIER_ALIGNMENT 16 /* messages begin at multiples of this many bytes */

/* The sizes of an exchange's messages, and of its lists: the most of any step. */
typedef struct ith_carried_sizes {
    int64_t out_bytes, in_bytes; /* of all regions */
    int64_t sends, receives;     /* regions */
} ith_carried_sizes;

/* One exchange that may be under way. */
typedef struct ith_carried {
    char *device_out, *device_in, *pinned_out, *pinned_in;
    ith_region_pair *gather, *scatter; /* copies before and after the message */
    int64_t scatter_count;
    ith_transfer *sends, *receives; /* as they are posted */
    int64_t send_count, receive_count;
    int64_t in_used; /* bytes of device_in that arrive */
    bool used;       /* some step posts this exchange, perhaps without regions */
    struct ith_device_stream *stream;
    ith_comm *comm;
    ith_request *request;
    bool waiting; /* the exchange is in the carrier's queue, and has yet to be posted */
    bool posted;  /* it has been posted; request is NULL if it has ended since */
} ith_carried;

/* The exchanges of one rank, and the order in which the waiting ones are to be posted. */
typedef struct ith_carrier {
    const ith_attn_setting *setting;
    struct ith_device_stream *compute; /* the stream in which the device computes */
    bool direct;                       /* the transport takes memory of the device */
    ith_carried exchanges[ITH_EXCHANGES];
    int queue[ITH_EXCHANGES]; /* numbers of the exchanges that are waiting to be posted, in their order */
    int queued;
    atomic_bool halts; /* on_halt may be called: an execution is under way, and on_halt was not called in it */
    void (*on_halt)(void *user);
    void *halt_user;
} ith_carrier;

/* Takes the memory of exchange number `exchange` from the plan's memory. */
void ith_carrier_lay_out(ith_carrier *carrier, int exchange, const ith_carried_sizes *sizes, ith_plan_memory *memory);
/* Makes the streams of the exchanges that have memory. on_halt: called once in an execution that is to stop, from
 * any thread, between the moments at which `halts` becomes true and false. */
ith_status ith_carrier_open(ith_carrier *carrier, struct ith_device_stream *compute, void (*on_halt)(void *user),
                            void *user);
void ith_carrier_close(ith_carrier *carrier);

/* Begins an execution: forgets exchanges that an earlier execution left when it failed. */
void ith_carrier_begin(ith_carrier *carrier);
/* Gathers the regions of `sends` when the work that the device has now is done, and posts the exchange, perhaps later.
 * Both lists are overwritten, and belong to the carrier until the exchange has been waited for. */
ith_status ith_carrier_post(ith_carrier *carrier, int exchange, ith_comm *comm, ith_transfer *sends, int64_t send_count,
                            ith_transfer *receives, int64_t receive_count);
/* Whether an exchange has been posted and not been waited for. */
static inline bool ith_carrier_is_under_way(const ith_carrier *carrier, int exchange)
{
    return carrier->exchanges[exchange].waiting || carrier->exchanges[exchange].posted;
}
/* Waits until the messages of an exchange have arrived. Work that the device gets later finds them in their regions. */
ith_status ith_carrier_wait(ith_carrier *carrier, int exchange);

/* Returns whether the execution is to stop; if so, it stops the device's work too. Communicators call this while the
 * rank waits for other ranks (ith_comm.unwanted). user: an ith_carrier. Any thread may call this. */
bool ith_carrier_unwanted(void *user);
/* Waits until all work of a stream has ended; meanwhile moves messages, and shows that this rank is alive. */
ith_status ith_carrier_sync(ith_carrier *carrier, struct ith_device_stream *stream);

#endif
