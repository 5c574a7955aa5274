/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the parts of an expert on a device that belong to one rank: its buffers, a stream, and the tables of RoPE. */
#include "../../../base/context.h"
#include "../../../base/size.h"
#include "dit_device.h"

/* The numbers of all shifts, scales and gates of a pass. */
static int64_t modulation_numbers(const ith_dit_workspace *w)
{
    const ith_dit_config *c = &w->dit->config;
    return ith_dit_time_rows(&w->shape) * (c->layers * ITH_DIT_MODULATIONS + 2) * c->dim;
}

/* Lays out the buffers in memory of the device, and in pinned memory. */
static void lay_out(const ith_dit_workspace *w, ith_arena *device, ith_arena *pinned, ith_dit_space *s)
{
    const ith_dit_config *c = &w->dit->config;
    const int64_t f32 = sizeof(float), element = ith_dtype_bytes(w->type);
    const int64_t patch = c->in_channels * ITH_DIT_PATCH, out = c->out_channels * ITH_DIT_PATCH;
    const int64_t widest = ith_max64(ith_max64(3 * c->dim, c->ffn_dim) * element, ith_max64(c->dim, patch) * f32);
    s->x = ith_device_take(device, w->rows, c->dim * f32);
    s->n = ith_device_take(device, w->rows, ith_max64(c->dim * element, out * f32));
    s->work = ith_device_take(device, w->rows, widest);
    s->cosines = ith_device_take(device, w->share, c->head_dim / 2 * f32);
    s->sines = ith_device_take(device, w->share, c->head_dim / 2 * f32);
    s->modulation = ith_device_take(device, modulation_numbers(w), f32);
    s->pinned_modulation = ith_device_take(pinned, modulation_numbers(w), f32);
    s->pinned_patches = ith_device_take(pinned, w->rows, patch * f32);
    s->pinned_out = ith_device_take(pinned, w->rows, out * f32);
}

int64_t ith_dit_space_bytes(const ith_dit_workspace *sizes)
{
    const ith_device_use *use = sizes->dit->use;
    ith_arena device = {0}, pinned = {0};
    ith_dit_space s;
    lay_out(sizes, &device, &pinned, &s);
    return device.used_bytes + (use && use->module->layers ? use->module->layers->product_bytes : 0);
}

/* Copies the tables of RoPE. */
static ith_status fill_tables(ith_context *context, const ith_dit_workspace *w, const ith_dit_space *s)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_module *module = s->use->module;
    const ith_dit_config *c = &w->dit->config;
    const int64_t table = w->share * (c->head_dim / 2) * (int64_t)sizeof(float);
    ith_status status = module->copy(s->stream, s->cosines, w->cosines, table, said);
    if (!status)
        status = module->copy(s->stream, s->sines, w->sines, table, said);
    status = ith_device_check(context, status, said);
    return status ? status : ith_device_wait(context, s->stream, NULL, NULL);
}

static ith_status build(ith_context *context, const ith_dit_workspace *w, ith_dit_space *s)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_module *module = s->use->module;
    struct ith_device *device = s->use->device;
    ith_arena on_device = {0}, pinned = {0};
    lay_out(w, &on_device, &pinned, s);
    if (on_device.overflow || pinned.overflow)
        return ith_fail(context, ITH_ERR_MEMORY, "a transformer's workspace takes more memory than a size can hold");
    ith_status status = module->allocate(device, on_device.used_bytes, &s->memory, said);
    if (!status)
        status = module->allocate_pinned(device, pinned.used_bytes, &s->pinned_memory, said);
    if (!status)
        status = module->create_stream(device, &s->stream, said);
    if (!status)
        status = module->layers->create_products(device, &s->products, said);
    status = ith_device_check(context, status, said);
    if (!status)
        status = ith_dit_slots_create(context, w->dit, &s->slots);
    if (status)
        return status;
    on_device = (ith_arena){.base = s->memory}, pinned = (ith_arena){.base = s->pinned_memory};
    lay_out(w, &on_device, &pinned, s);
    return fill_tables(context, w, s);
}

ith_status ith_dit_space_create(ith_context *context, ith_dit_workspace *w)
{
    const ith_device_use *used = ith_context_device_use(context);
    ith_device_use *use = w->dit->device->use;
    if (used != use)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the context computes on %s, and the transformer's weights are on %s: ranks that share a "
                        "transformer use one device",
                        used ? used->name : "cpu", use->name);
    ith_dit_space *s = ith_alloc_zero(context, 1, sizeof *s, "a transformer's workspace");
    if (!s)
        return ITH_ERR_MEMORY;
    s->use = use;
    ith_status status = build(context, w, s);
    if (status)
        ith_dit_space_free(context, &s);
    w->device = s;
    return status;
}

void ith_dit_space_free(ith_context *context, ith_dit_space **space)
{
    ith_dit_space *s = *space;
    if (!s)
        return;
    const ith_device_module *module = s->use->module;
    ith_device_drain(s->use, s->stream); /* a pass that has failed may have left work */
    ith_dit_slots_free(s->use, &s->slots);
    module->layers->destroy_products(s->products);
    module->destroy_stream(s->stream);
    module->release_pinned(s->use->device, s->pinned_memory);
    module->release(s->use->device, s->memory);
    ith_free(context, s);
    *space = NULL;
}
