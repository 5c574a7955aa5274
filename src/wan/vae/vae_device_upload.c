/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads the weights of the decoder on a device. Filters [out][in][depth][kernel][kernel] of any type become
 * [out][depth][kernel][kernel][in] in the type of operands. */
#include "vae_device.h"

#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/file_fault.h"
#include "../../base/observer.h"
#include "../../base/size.h"
#include "../../kernels/rowops.h"
#include "../../kernels/unpack.h"

#include <ithaca/wan.h>

#include <omp.h>
#include <stdatomic.h>
#include <string.h>

static bool is_interrupted(void *user)
{
    return ith_context_interrupted(user);
}

ith_status ith_vae_device_wait(const ith_vae_device *d)
{
    const ith_status status = ith_device_wait(d->context, d->stream, is_interrupted, d->context);
    return status == ITH_ERR_INTERRUPTED ? ith_fail_interrupted(d->context) : status;
}

/* Memory of the host in which filters are converted. */
typedef struct staging {
    char *filter; /* a whole filter as it is uploaded */
    float *lines; /* [threads][2][line]: the weights of one output channel, as in the file and in their new order */
    int64_t filter_bytes, line;
} staging;

static int64_t taps_of(const ith_vae_filter *f)
{
    return f->frames * f->kernel * f->kernel;
}

static void size_staging(const ith_vae_device *d, staging *s)
{
    *s = (staging){0};
    for (int64_t i = 0; i < d->conv_count; i++) {
        const ith_vae_device_conv *c = &d->conv[i];
        const int64_t numbers = taps_of(c->filter) * c->filter->in;
        s->line = ith_max64(s->line, numbers);
        s->filter_bytes = ith_max64(s->filter_bytes, c->out * ith_vae_device_pixel_bytes(d, numbers));
    }
}

int64_t ith_vae_device_upload_bytes(const ith_vae_device *d)
{
    staging s;
    size_staging(d, &s);
    return s.filter_bytes + omp_get_max_threads() * 2 * s.line * (int64_t)sizeof(float) + 2 * ITH_ALLOC_HEADER;
}

/* ---- Conversion ------------------------------------------------------------------------------------------------ */

/* A request to read the weights of one output channel from a file that may be cut meanwhile. */
typedef struct channel_read {
    const ith_vae_filter *filter;
    int64_t channel;
    float *to;
} channel_read;

static void read_channel(void *user)
{
    const channel_read *r = user;
    const int64_t count = taps_of(r->filter) * r->filter->in;
    ith_unpack_ref(r->filter->weight->dtype, r->filter->weight->data, r->channel * count, count, r->to);
}

/* Converts one output channel. Returns false if the file was cut. */
static bool convert_channel(const ith_vae_device *d, const ith_rowops *rowops, const ith_vae_filter *f, int64_t channel,
                            float *read, float *ordered, char *to)
{
    const int64_t taps = taps_of(f), count = taps * f->in;
    channel_read request = {f, channel, read};
    if (!ith_file_fault_guard(read_channel, &request))
        return false;
    for (int64_t c = 0; c < f->in; c++)
        for (int64_t tap = 0; tap < taps; tap++)
            ordered[tap * f->in + c] = read[c * taps + tap];
    if (d->type == ITH_BF16)
        rowops->bf16_from_f32((uint16_t *)(void *)to, ordered, count);
    else
        memcpy(to, ordered, (size_t)count * sizeof *ordered);
    return true;
}

/* Converts a filter in memory of the host. Channels that the filter lacks become zeros. */
static ith_status convert(const ith_vae_device *d, const ith_vae_device_conv *c, const staging *s)
{
    const ith_vae_filter *f = c->filter;
    const ith_rowops *rowops = ith_rowops_choose(ith_context_cpu(d->context));
    const int64_t bytes = ith_vae_device_pixel_bytes(d, taps_of(f) * f->in);
    atomic_bool lost = false;
#pragma omp parallel for schedule(dynamic)
    for (int64_t channel = 0; channel < f->out; channel++) {
        float *read = s->lines + omp_get_thread_num() * 2 * s->line;
        if (!ith_context_interrupted(d->context) &&
            !convert_channel(d, rowops, f, channel, read, read + s->line, s->filter + channel * bytes))
            atomic_store(&lost, true);
    }
    memset(s->filter + f->out * bytes, 0, (size_t)((c->out - f->out) * bytes));
    if (ith_context_interrupted(d->context))
        return ith_fail_interrupted(d->context);
    return lost ? ith_fail(d->context, ITH_ERR_IO, "%s: %s: the file was cut while its weights were read",
                           ith_store_file_of(d->vae->memory.store, f->weight), f->weight->name)
                : ITH_OK;
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

static ith_status upload(const ith_vae_device *d, const ith_vae_device_conv *c, const staging *s)
{
    const ith_device_module *module = d->use->module;
    const ith_vae_filter *f = c->filter;
    const int64_t floats = (int64_t)sizeof(float);
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = ith_operand_types_check(d->context, &d->vae->types, f->weight->dtype, "a convolution");
    if (!status)
        status = convert(d, c, s);
    if (status)
        return status;
    status = module->copy(d->stream, c->w, s->filter, c->out * ith_vae_device_pixel_bytes(d, taps_of(f) * f->in), said);
    if (!status)
        status = module->copy(d->stream, c->bias, f->bias, f->out * floats, said);
    if (!status && c->norm)
        status = module->copy(d->stream, c->gamma, c->norm, f->in * floats, said);
    status = ith_device_check(d->context, status, said);
    return status ? status : ith_vae_device_wait(d); /* the staging memory is used again */
}

ith_status ith_vae_device_upload(ith_vae_device *d)
{
    staging s;
    int64_t done = 0;
    size_staging(d, &s);
    s.filter = ith_alloc(d->context, s.filter_bytes, 1, "the filters of a convolution");
    s.lines = ith_alloc(d->context, omp_get_max_threads() * 2 * s.line, sizeof(float), "weights of a convolution");
    ith_status status = s.filter && s.lines ? ITH_OK : ITH_ERR_MEMORY;
    ith_observer_show(d->context, ITH_STAGE_LOAD, 0, d->vae->weight_bytes);
    for (int64_t i = 0; i < d->conv_count && !status; i++) {
        status = upload(d, &d->conv[i], &s);
        done += d->conv[i].filter->weight->bytes;
        ith_observer_show(d->context, ITH_STAGE_LOAD, done, d->vae->weight_bytes);
    }
    ith_free(d->context, s.filter);
    ith_free(d->context, s.lines);
    return status;
}
