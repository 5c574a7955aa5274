/* SPDX-License-Identifier: Apache-2.0 */
/* Brings streamed layers to the device (dit_device.h). A rank has two slots there, which take turns. Before the rank's
 * stream gets the work of a streamed layer, the copy of the next streamed layer to the other slot is enqueued. The copy
 * waits for all work that the stream has by then, which includes the last use of that slot. */
#include "../../../base/context.h"
#include "dit_device.h"

ith_status ith_dit_slots_create(ith_context *context, const ith_dit *dit, ith_dit_slots *slots)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_device *device = dit->device;
    const ith_device_module *module = device->use->module;
    *slots = (ith_dit_slots){.memory = NULL};
    if (!device->streamed)
        return ITH_OK;
    ith_status status =
        module->allocate(device->use->device, ITH_DIT_SLOTS * device->layer_bytes, &slots->memory, said);
    ith_arena arena = {.base = slots->memory};
    for (int i = 0; i < ITH_DIT_SLOTS && !status; i++) {
        slots->holds[i] = -1;
        ith_dit_device_lay_out_layer(dit, &arena, &slots->layers[i]);
        status = module->create_stream(device->use->device, &slots->streams[i], said);
    }
    return ith_device_check(context, status, said);
}

void ith_dit_slots_free(const ith_device_use *use, ith_dit_slots *slots)
{
    for (int i = 0; i < ITH_DIT_SLOTS; i++) {
        ith_device_drain(use, slots->streams[i]);
        use->module->destroy_stream(slots->streams[i]);
    }
    use->module->release(use->device, slots->memory);
}

/* Begins to copy a layer to a slot, unless it is there. */
static ith_status fill(const ith_dit_device *device, ith_dit_space *space, int slot, int64_t index, char *said)
{
    const ith_device_module *module = device->use->module;
    ith_dit_slots *slots = &space->slots;
    const int64_t number = ith_dit_streamed_before(device->count, device->streamed, index);
    if (slots->holds[slot] == index)
        return ITH_OK;
    ith_status status = module->wait_for(slots->streams[slot], space->stream, said);
    if (!status)
        status = module->copy(slots->streams[slot], (char *)slots->memory + slot * device->layer_bytes,
                              device->pinned + number * device->layer_bytes, device->layer_bytes, said);
    if (!status)
        slots->holds[slot] = index;
    return status;
}

/* The streamed layer that follows layer `index`; behind the last one, the first. */
static int64_t next_streamed(const ith_dit_device *device, int64_t index)
{
    do
        index = (index + 1) % device->count;
    while (!ith_dit_is_streamed(device->count, device->streamed, index));
    return index;
}

ith_status ith_dit_slots_turn(ith_context *context, const ith_dit_device *device, ith_dit_space *space, int64_t index)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_dit_slots *slots = &space->slots;
    const int slot = slots->next;
    if (!ith_dit_is_streamed(device->count, device->streamed, index))
        return ITH_OK;
    ith_status status = fill(device, space, slot, index, said);
    if (!status)
        status = device->use->module->wait_for(space->stream, slots->streams[slot], said);
    if (!status)
        status = fill(device, space, 1 - slot, next_streamed(device, index), said);
    slots->next = 1 - slot;
    return ith_device_check(context, status, said);
}

const ith_dit_device_layer *ith_dit_slots_layer(const ith_dit_device *device, const ith_dit_slots *slots, int64_t index)
{
    if (!ith_dit_is_streamed(device->count, device->streamed, index))
        return &device->layers[index];
    return &slots->layers[1 - slots->next];
}
