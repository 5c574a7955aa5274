/* SPDX-License-Identifier: Apache-2.0 */
/* Flows: the data that a rank sends to one other rank in one exchange, and their way between regions and buffers. */
#include "wire_state.h"

#include "../../base/size.h"
#include "../cursor.h"

#include <string.h>

/* Adds the transfers of a list to the flows of one direction. Transfers of the rank with itself are left out, because
 * the library has copied them. */
static void add_transfers(const wire_state *self, wire_flow *flows, const ith_transfer *list, int64_t count)
{
    memset(flows, 0, (size_t)self->group->size * sizeof *flows);
    for (int64_t i = 0; i < count; i++) {
        wire_flow *flow = &flows[list[i].peer];
        int64_t bytes = ith_region_bytes(&list[i].region);
        if (list[i].peer == self->rank)
            continue;
        flow->progress = WIRE_OPEN;
        flow->regions++;
        flow->bytes += bytes;
        flow->sizes = (flow->sizes ^ (uint64_t)bytes) * 1099511628211u + 1;
    }
}

void ith_wire_open_flows(wire_state *self, wire_request *request)
{
    const wire_group *group = self->group;
    const ith_operation *posted = &request->posted;
    add_transfers(self, request->out, posted->sends, posted->send_count);
    add_transfers(self, request->in, posted->receives, posted->receive_count);
    request->pending = request->unsent = request->unsettled = 0;
    for (int peer = 0; peer < group->size; peer++) {
        const wire_flow *in = &request->in[peer], *out = &request->out[peer];
        bool far = !ith_wire_is_near(group->world, group->members[peer]);
        request->pending += (in->progress == WIRE_OPEN) + (out->progress == WIRE_OPEN);
        if (far)
            request->unsent += (in->progress == WIRE_OPEN && in->bytes > WIRE_SMALL) + (out->progress == WIRE_OPEN);
        if (!far && (in->progress == WIRE_OPEN || out->progress == WIRE_OPEN))
            ith_wire_rouse(group->world, group->members[peer]);
    }
}

/* Copies `bytes` bytes between a region, from byte `offset` on, and a buffer. */
static void copy(const ith_region *region, int64_t offset, bool out, char *buffer, int64_t bytes)
{
    ith_cursor c = ith_cursor_at(*region, offset);
    while (bytes > 0) {
        int64_t step = ith_min64(ith_cursor_left(&c), bytes);
        char *at = ith_cursor_address(&c);
        memcpy(out ? buffer : at, out ? at : buffer, (size_t)step);
        ith_cursor_advance(&c, step);
        buffer += step;
        bytes -= step;
    }
}

void ith_wire_stream(const wire_request *request, int peer, bool out, char *buffer, int64_t bytes)
{
    const ith_operation *posted = &request->posted;
    wire_flow *flow = out ? &request->out[peer] : &request->in[peer];
    const ith_transfer *list = out ? posted->sends : posted->receives;
    int64_t count = out ? posted->send_count : posted->receive_count;
    flow->moved += bytes;
    while (bytes > 0 && flow->at < count) {
        const ith_region *region = &list[flow->at].region;
        int64_t left = list[flow->at].peer == peer ? ith_region_bytes(region) - flow->offset : 0;
        int64_t step = ith_min64(left, bytes);
        if (step > 0)
            copy(region, flow->offset, out, buffer, step);
        flow->offset += step;
        buffer += step;
        bytes -= step;
        if (step == left)
            flow->at++, flow->offset = 0;
    }
}

void ith_wire_finish(wire_state *self, wire_request *request, wire_flow *flow)
{
    flow->progress = WIRE_DONE;
    if (--request->pending == 0)
        ith_wire_rouse(self->group->world, self->world_rank);
}

wire_request *ith_wire_request(wire_state *self, int64_t number)
{
    wire_request *request = &self->requests[number % WIRE_REQUESTS];
    return request->in_flight && request->number == number ? request : NULL;
}
