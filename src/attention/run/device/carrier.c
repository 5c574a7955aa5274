/* SPDX-License-Identifier: Apache-2.0 */
/* Moves rows between the device memories of ranks (carrier.h). */
#include "carrier.h"

#include <string.h>

static ith_status check(const ith_carrier *c, ith_status status, const char *said)
{
    return ith_device_check(c->setting->context, status, said);
}

static int64_t padded(int64_t bytes)
{
    return ith_round_up(bytes, ITH_CARRIER_ALIGNMENT);
}

/* ---- Memory and streams ---------------------------------------------------------------------------------------- */

void ith_carrier_lay_out(ith_carrier *c, int exchange, const ith_carried_sizes *sizes, ith_plan_memory *memory)
{
    ith_carried *x = &c->exchanges[exchange];
    const int64_t out = sizes->out_bytes + sizes->sends * ITH_CARRIER_ALIGNMENT;
    const int64_t in = sizes->in_bytes + sizes->receives * ITH_CARRIER_ALIGNMENT;
    x->used = true;
    x->gather = ith_arena_take(&memory->host, sizes->sends, sizeof *x->gather);
    x->scatter = ith_arena_take(&memory->host, sizes->receives, sizeof *x->scatter);
    x->device_out = ith_arena_take(&memory->device, out, 1);
    x->device_in = ith_arena_take(&memory->device, in, 1);
    if (c->direct)
        return;
    x->pinned_out = ith_arena_take(&memory->pinned, out, 1);
    x->pinned_in = ith_arena_take(&memory->pinned, in, 1);
}

ith_status ith_carrier_open(ith_carrier *c, struct ith_device_stream *compute, void (*on_halt)(void *user), void *user)
{
    const ith_device_use *use = c->setting->device;
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = ITH_OK;
    c->compute = compute;
    c->on_halt = on_halt;
    c->halt_user = user;
    for (int i = 0; i < ITH_EXCHANGES && !status; i++)
        if (c->exchanges[i].used)
            status = check(c, use->module->create_stream(use->device, &c->exchanges[i].stream, said), said);
    return status;
}

void ith_carrier_close(ith_carrier *c)
{
    for (int i = 0; i < ITH_EXCHANGES; i++)
        if (c->exchanges[i].stream)
            c->setting->device->module->destroy_stream(c->exchanges[i].stream);
}

void ith_carrier_begin(ith_carrier *c)
{
    c->queued = 0;
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        c->exchanges[i].request = NULL;
        c->exchanges[i].waiting = c->exchanges[i].posted = false;
    }
}

/* ---- Waiting for the device ------------------------------------------------------------------------------------ */

/* Tells the device, once, that the execution is to stop. */
static void tell_device(ith_carrier *c)
{
    if (atomic_exchange(&c->halts, false))
        c->on_halt(c->halt_user);
}

bool ith_carrier_unwanted(void *user)
{
    ith_carrier *c = user;
    const bool stops = ith_halt_heard(c->setting->halt);
    if (stops)
        tell_device(c);
    return stops;
}

/* Moves messages of the exchanges under way, and tells the device if the execution is to stop. Called while the host
 * waits for the device (ith_device_wait). Returns false, so that the wait goes on: the work that the device has must
 * end in any case. user: an ith_carrier. */
static bool move_messages(void *user)
{
    ith_carrier *c = user;
    for (int i = ITH_EXCHANGES - 1; i >= 0; i--) {
        bool done = false;
        if (c->exchanges[i].request) /* a failure is seen when the exchange is waited for */
            ith_comm_test(c->exchanges[i].comm, &c->exchanges[i].request, &done);
    }
    if (ith_halted(c->setting->halt))
        tell_device(c);
    return false;
}

ith_status ith_carrier_sync(ith_carrier *c, struct ith_device_stream *stream)
{
    return ith_device_wait(c->setting->context, stream, move_messages, c);
}

/* ---- Posting --------------------------------------------------------------------------------------------------- */

/* Gives each region that is sent a place in device_out, and returns the bytes that are used. */
static int64_t place_sends(ith_carried *x, const ith_transfer *sends, int64_t count)
{
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = ith_region_bytes(&sends[i].region);
        x->gather[i] = (ith_region_pair){.target = ith_region_of(x->device_out + at, bytes), .source = sends[i].region};
        at += padded(bytes);
    }
    return at;
}

/* Lists the copies that fill the regions that are received. Rows that this rank sends to itself come straight from
 * device_out, the others from device_in. Receives from other ranks move to the front of the list, and their number is
 * returned. */
static int64_t place_receives(const ith_carrier *c, ith_carried *x, const ith_transfer *sends, int64_t send_count,
                              ith_transfer *receives, int64_t count)
{
    char *const arriving = c->direct ? x->device_in : x->pinned_in;
    int64_t at = 0, kept = 0, own = 0;
    for (int64_t i = 0; i < count; i++) {
        const ith_transfer receive = receives[i];
        const int64_t bytes = ith_region_bytes(&receive.region);
        char *from = x->device_in + at;
        if (receive.peer == x->comm->rank) {
            while (own < send_count && sends[own].peer != receive.peer)
                own++;
            from = x->gather[own++].target.data;
        } else {
            receives[kept++] = (ith_transfer){receive.peer, ith_region_of(arriving + at, bytes)};
            at += padded(bytes);
        }
        x->scatter[i] = (ith_region_pair){.target = receive.region, .source = ith_region_of(from, bytes)};
    }
    x->in_used = at;
    return kept;
}

/* Replaces the regions that go to other ranks by their messages, which move to the front of the list. Returns their
 * number. */
static int64_t place_messages(const ith_carrier *c, const ith_carried *x, ith_transfer *sends, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const ith_region *message = &x->gather[i].target;
        const int64_t at = (char *)message->data - x->device_out;
        if (sends[i].peer != x->comm->rank)
            sends[kept++] = (ith_transfer){
                sends[i].peer, ith_region_of((c->direct ? x->device_out : x->pinned_out) + at, message->bytes)};
    }
    return kept;
}

static ith_status post_now(ith_carrier *c, ith_carried *x)
{
    void *stream = c->direct ? c->setting->device->module->raw_stream(x->stream) : NULL;
    x->posted = true;
    return ith_comm_post_device(x->comm, x->sends, x->send_count, x->receives, x->receive_count, stream, &x->request);
}

ith_status ith_carrier_post(ith_carrier *c, int exchange, ith_comm *comm, ith_transfer *sends, int64_t send_count,
                            ith_transfer *receives, int64_t receive_count)
{
    const ith_device_module *module = c->setting->device->module;
    ith_carried *x = &c->exchanges[exchange];
    char said[ITH_DEVICE_SENTENCE] = "";
    x->comm = comm;
    const int64_t out_bytes = place_sends(x, sends, send_count);
    x->scatter_count = receive_count;
    x->receive_count = place_receives(c, x, sends, send_count, receives, receive_count);
    x->send_count = place_messages(c, x, sends, send_count);
    x->sends = sends, x->receives = receives;
    ith_status status = module->wait_for(x->stream, c->compute, said);
    if (!status)
        status = module->copy_regions(x->stream, x->gather, send_count, said);
    if (!status && !c->direct && x->send_count > 0)
        status = module->copy(x->stream, x->pinned_out, x->device_out, out_bytes, said);
    if (status)
        return check(c, status, said);
    if (c->direct)
        return post_now(c, x);
    x->waiting = true;
    c->queue[c->queued++] = exchange;
    return ITH_OK;
}

/* Posts the exchanges that are waiting, in their order, up to `exchange`. */
static ith_status post_waiting(ith_carrier *c, int exchange)
{
    ith_status status = ITH_OK;
    while (!status && c->exchanges[exchange].waiting) {
        ith_carried *x = &c->exchanges[c->queue[0]];
        status = ith_carrier_sync(c, x->stream);
        if (!status)
            status = post_now(c, x);
        x->waiting = false;
        memmove(c->queue, c->queue + 1, (size_t)--c->queued * sizeof *c->queue);
    }
    return status;
}

ith_status ith_carrier_wait(ith_carrier *c, int exchange)
{
    const ith_device_module *module = c->setting->device->module;
    ith_carried *x = &c->exchanges[exchange];
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = post_waiting(c, exchange);
    if (!status)
        status = ith_comm_wait(x->comm, &x->request);
    x->posted = false;
    if (status)
        return status;
    if (!c->direct && x->receive_count > 0)
        status = module->copy(x->stream, x->device_in, x->pinned_in, x->in_used, said);
    if (!status) /* the work that the device has now may still read the regions */
        status = module->wait_for(x->stream, c->compute, said);
    if (!status)
        status = module->copy_regions(x->stream, x->scatter, x->scatter_count, said);
    if (!status)
        status = module->wait_for(c->compute, x->stream, said);
    return check(c, status, said);
}
