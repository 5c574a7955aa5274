/* SPDX-License-Identifier: Apache-2.0 */
/* Copies an expert's weights, and a prompt's keys and values, to a device: unpacked and rounded by the processor into
 * one of two blocks of pinned memory, while the other one travels. The weights of streamed layers travel in the same
 * way to pinned memory that stays. */
#include "dit_device.h"

#include "../../../base/context.h"
#include "../../../base/dtype.h"
#include "../../../base/file_fault.h"
#include "../../../base/observer.h"
#include "../../../base/size.h"

#include <ithaca/wan.h>

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define PIECE_BYTES ((int64_t)32 << 20) /* of a block of pinned memory */
#define ROWS_TOGETHER 64                /* rows of a matrix that a thread converts at a time */

/* ---- Layout ---------------------------------------------------------------------------------------------------- */

static void lay_out_matrix(int64_t in, int64_t out, ith_dtype type, ith_arena *arena, ith_device_matrix *matrix)
{
    *matrix = (ith_device_matrix){.in = in, .out = out, .type = type};
    matrix->w = ith_device_take(arena, out * in, ith_dtype_bytes(type));
    matrix->bias = ith_device_take(arena, out, ith_dtype_bytes(type));
}

void ith_dit_device_lay_out_layer(const ith_dit *dit, ith_arena *arena, ith_dit_device_layer *layer)
{
    const int64_t dim = dit->config.dim, ffn = dit->config.ffn_dim, f32 = sizeof(float);
    const int64_t sizes[ITH_DIT_LINEARS][2] = {
        [ITH_DIT_QKV] = {dim, 3 * dim},   [ITH_DIT_SELF_OUT] = {dim, dim}, [ITH_DIT_CROSS_Q] = {dim, dim},
        [ITH_DIT_CROSS_OUT] = {dim, dim}, [ITH_DIT_FFN_UP] = {dim, ffn},   [ITH_DIT_FFN_DOWN] = {ffn, dim}};
    for (int i = 0; i < ITH_DIT_LINEARS; i++)
        lay_out_matrix(sizes[i][0], sizes[i][1], ith_dit_device_type(dit), arena, &layer->linears[i]);
    layer->self_norm_q = ith_device_take(arena, dim, f32);
    layer->self_norm_k = ith_device_take(arena, dim, f32);
    layer->cross_norm_q = ith_device_take(arena, dim, f32);
    layer->cross_weight = layer->cross_bias = NULL;
    if (dit->config.raw_cross)
        return;
    layer->cross_weight = ith_device_take(arena, dim, f32);
    layer->cross_bias = ith_device_take(arena, dim, f32);
}

int64_t ith_dit_device_layer_bytes(const ith_dit *dit)
{
    ith_arena arena = {0};
    ith_dit_device_layer layer;
    ith_dit_device_lay_out_layer(dit, &arena, &layer);
    return arena.overflow ? INT64_MAX : arena.used_bytes;
}

/* Lays out the weights: streamed layers in pinned memory, all others in memory of the device. device: NULL if the
 * arenas only count bytes. The expert need not have layers. */
static void lay_out(const ith_dit *dit, int64_t streamed, ith_arena *arena, ith_arena *pinned, ith_dit_device *device)
{
    const ith_dit_config *c = &dit->config;
    ith_device_matrix matrix;
    ith_dit_device_layer layer;
    lay_out_matrix(c->in_channels * ITH_DIT_PATCH, c->dim, ITH_F32, arena, device ? &device->patch : &matrix);
    lay_out_matrix(c->dim, c->out_channels * ITH_DIT_PATCH, ITH_F32, arena, device ? &device->head : &matrix);
    for (int64_t i = 0; i < c->layers; i++)
        ith_dit_device_lay_out_layer(dit, ith_dit_is_streamed(c->layers, streamed, i) ? pinned : arena,
                                     device ? &device->layers[i] : &layer);
}

/* ---- Copying --------------------------------------------------------------------------------------------------- */

/* The state of a copy of many arrays. */
typedef struct upload {
    ith_context *context;
    ith_device_use *use;
    struct ith_device_stream *streams[2];
    char *pinned[2];
    int turn;            /* the block that is filled next */
    bool shows;          /* shows progress */
    int64_t done, total; /* bytes */
} upload;

static void close_upload(upload *u)
{
    for (int i = 0; i < 2; i++) {
        if (u->streams[i])
            ith_device_wait(u->context, u->streams[i], NULL, NULL);
        u->use->module->destroy_stream(u->streams[i]);
        u->use->module->release_pinned(u->use->device, u->pinned[i]);
    }
}

static ith_status open_upload(ith_context *context, int64_t total, bool shows, upload *u)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    *u = (upload){.context = context, .use = ith_context_device_use(context), .shows = shows, .total = total};
    const ith_device_module *module = u->use->module;
    ith_status status = ITH_OK;
    for (int i = 0; i < 2 && !status; i++) {
        void *pinned = NULL;
        status = module->create_stream(u->use->device, &u->streams[i], said);
        if (!status)
            status = module->allocate_pinned(u->use->device, PIECE_BYTES, &pinned, said);
        u->pinned[i] = pinned;
    }
    status = ith_device_check(context, status, said);
    if (status)
        close_upload(u);
    return status;
}

/* Waits until the next block of pinned memory may be filled. */
static ith_status begin_piece(upload *u)
{
    ith_status status = ith_context_check(u->context);
    return status ? status : ith_device_wait(u->context, u->streams[u->turn], NULL, NULL);
}

/* Sends `bytes` bytes of the block to `to`. */
static ith_status send_piece(upload *u, void *to, int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = ith_device_check(
        u->context, u->use->module->copy(u->streams[u->turn], to, u->pinned[u->turn], bytes, said), said);
    u->turn = 1 - u->turn;
    u->done += bytes;
    if (u->shows)
        ith_observer_show(u->context, ITH_STAGE_LOAD, u->done, u->total);
    return status;
}

/* Copies bytes without a conversion. */
static ith_status put_bytes(upload *u, void *to, const void *from, int64_t bytes)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0, piece; done < bytes && !status; done += piece) {
        piece = ith_min64(PIECE_BYTES, bytes - done);
        status = begin_piece(u);
        if (status)
            return status;
        memcpy(u->pinned[u->turn], (const char *)from + done, (size_t)piece);
        status = send_piece(u, (char *)to + done, piece);
    }
    return status;
}

static ith_status put_floats(upload *u, float *to, const float *from, int64_t count)
{
    return put_bytes(u, to, from, count * (int64_t)sizeof *from);
}

/* Copies `count` numbers, rounded to `type`. They fit into one block: a width is at most 2^20. */
static ith_status put_rounded(upload *u, void *to, ith_dtype type, const float *from, int64_t count)
{
    ith_status status = begin_piece(u);
    if (status)
        return status;
    ith_from_f32(u->pinned[u->turn], type, from, count);
    return send_piece(u, to, count * ith_dtype_bytes(type));
}

/* Fills the block with rows [first, first + count) of a layer. */
static ith_status read_rows(upload *u, const ith_linear *linear, const ith_device_matrix *matrix, int64_t first,
                            int64_t count)
{
    const int64_t row_bytes = matrix->in * ith_dtype_bytes(matrix->type), groups = ith_div_up(count, ROWS_TOGETHER);
    char *pinned = u->pinned[u->turn];
    _Atomic(const char *) cut = NULL;
#pragma omp parallel for schedule(dynamic)
    for (int64_t group = 0; group < groups; group++) {
        const int64_t row = group * ROWS_TOGETHER;
        const char *file = ith_linear_read(linear, matrix->type, first + row, ith_min64(ROWS_TOGETHER, count - row),
                                           pinned + row * row_bytes);
        if (file)
            atomic_store(&cut, file);
    }
    const char *file = atomic_load(&cut);
    return file ? ith_fail_file_fault(u->context, file) : ITH_OK;
}

static ith_status put_matrix(upload *u, const ith_linear *linear, const ith_device_matrix *matrix)
{
    const int64_t row_bytes = matrix->in * ith_dtype_bytes(matrix->type), rows = PIECE_BYTES / row_bytes;
    ith_status status = put_rounded(u, matrix->bias, matrix->type, ith_linear_bias(linear), matrix->out);
    for (int64_t first = 0, count; first < matrix->out && !status; first += count) {
        count = ith_min64(rows, matrix->out - first);
        status = begin_piece(u);
        if (!status)
            status = read_rows(u, linear, matrix, first, count);
        if (!status)
            status = send_piece(u, (char *)matrix->w + first * row_bytes, count * row_bytes);
    }
    return status;
}

static ith_status put_layer(upload *u, const ith_dit *dit, const ith_dit_layer *layer, const ith_dit_device_layer *to)
{
    const int64_t dim = dit->config.dim;
    ith_linear *linears[ITH_DIT_LINEARS];
    ith_status status = ITH_OK;
    ith_dit_layer_linears(layer, linears);
    for (int i = 0; i < ITH_DIT_LINEARS && !status; i++)
        status = put_matrix(u, linears[i], &to->linears[i]);
    const struct {
        float *to;
        const float *from;
    } vectors[] = {{to->self_norm_q, layer->self_norm_q},
                   {to->self_norm_k, layer->self_norm_k},
                   {to->cross_norm_q, layer->cross_norm_q},
                   {to->cross_weight, layer->cross_weight},
                   {to->cross_bias, layer->cross_bias}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors && !status; i++)
        if (vectors[i].to)
            status = put_floats(u, vectors[i].to, vectors[i].from, dim);
    return status;
}

static ith_status put_all(ith_context *context, const ith_dit *dit, bool shows, ith_dit_device *device)
{
    upload u;
    ith_status status = open_upload(context, device->bytes + device->streamed * device->layer_bytes, shows, &u);
    if (status)
        return status;
    status = put_matrix(&u, dit->patch, &device->patch);
    if (!status)
        status = put_matrix(&u, dit->head, &device->head);
    for (int64_t i = 0; i < dit->config.layers && !status; i++)
        status = put_layer(&u, dit, &dit->layers[i], &device->layers[i]);
    for (int i = 0; i < 2 && !status; i++)
        status = ith_device_wait(context, u.streams[i], NULL, NULL);
    close_upload(&u);
    if (!status && shows)
        ith_observer_show(context, ITH_STAGE_LOAD, u.total, u.total);
    return status;
}

/* ---- The expert ------------------------------------------------------------------------------------------------ */

int64_t ith_dit_device_bytes(const ith_dit *dit, int64_t streamed)
{
    ith_arena arena = {0}, pinned = {0};
    lay_out(dit, streamed, &arena, &pinned, NULL);
    return arena.overflow ? INT64_MAX : arena.used_bytes;
}

/* Checks that the device has the operations, and the memory for the weights. */
static ith_status check_device(ith_context *context, const ith_device_use *use, int64_t bytes)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    if (!use->module->layers)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "the device %s computes attention only, and no linear layers",
                        use->name);
    ith_status status = ith_device_describe(context, &info);
    if (!status && bytes > info.free_bytes)
        status =
            ith_fail(context, ITH_ERR_MEMORY,
                     "the transformer's weights need %.1f GB on the device %s, which has %.1f GB free of %.1f GB",
                     (double)bytes / 1e9, use->name, (double)info.free_bytes / 1e9, (double)info.memory_bytes / 1e9);
    return status;
}

/* Takes the memory of the device, and pinned memory, and lays out the weights in them. */
static ith_status allocate(ith_context *context, const ith_dit *dit, ith_dit_device *device)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_use *use = device->use;
    void *pinned = NULL;
    ith_status status = use->module->allocate(use->device, device->bytes, &device->memory, said);
    if (!status && device->streamed)
        status = use->module->allocate_pinned(use->device, device->streamed * device->layer_bytes, &pinned, said);
    device->pinned = pinned;
    if (status)
        return ith_device_check(context, status, said);
    ith_arena on_device = {.base = device->memory}, on_host = {.base = pinned};
    lay_out(dit, device->streamed, &on_device, &on_host, device);
    return ITH_OK;
}

ith_status ith_dit_device_open(ith_context *context, const ith_dit *dit, int64_t streamed, bool shows,
                               ith_dit_device **out)
{
    ith_device_use *use = ith_context_device_use(context);
    ith_arena arena = {0}, pinned = {0};
    *out = NULL;
    lay_out(dit, streamed, &arena, &pinned, NULL);
    if (arena.overflow || pinned.overflow)
        return ith_fail(context, ITH_ERR_MEMORY, "the transformer takes more memory than a size can hold");
    ith_status status = check_device(context, use, arena.used_bytes);
    if (status)
        return status;
    ith_dit_device *device =
        ith_alloc_zero(context, 1, (int64_t)sizeof *device + dit->config.layers * (int64_t)sizeof *device->layers,
                       "a transformer on a device");
    if (!device)
        return ITH_ERR_MEMORY;
    device->use = use, device->bytes = arena.used_bytes;
    device->count = dit->config.layers, device->streamed = streamed;
    device->layer_bytes = ith_dit_device_layer_bytes(dit);
    status = allocate(context, dit, device);
    if (!status)
        status = put_all(context, dit, shows, device);
    if (status)
        ith_dit_device_free(context, &device);
    *out = device;
    return status;
}

void ith_dit_device_free(ith_context *context, ith_dit_device **device)
{
    ith_dit_device *d = *device;
    if (!d)
        return;
    d->use->module->release(d->use->device, d->memory);
    d->use->module->release_pinned(d->use->device, d->pinned);
    ith_free(context, d);
    *device = NULL;
}

/* ---- Texts ----------------------------------------------------------------------------------------------------- */

/* Copies the ITH_TEXT_LEN rows of one prompt in one layer. from: its keys and values, of which the last with a finite
 * bias stands for all rows of padding. */
static ith_status put_prompt(upload *u, char *to, const char *from, const float *bias, int64_t keys, int64_t row_bytes)
{
    ith_status status = ITH_OK;
    int64_t last = 0;
    while (last + 1 < keys && bias[last + 1] != -INFINITY)
        last++;
    for (int64_t row = 0, rows; row < ITH_TEXT_LEN && !status; row += rows) {
        rows = ith_min64(PIECE_BYTES / row_bytes, ITH_TEXT_LEN - row);
        status = begin_piece(u);
        for (int64_t i = 0; i < rows && !status; i++)
            memcpy(u->pinned[u->turn] + i * row_bytes, from + ith_min64(row + i, last) * row_bytes, (size_t)row_bytes);
        if (!status)
            status = send_piece(u, to + row * row_bytes, rows * row_bytes);
    }
    return status;
}

int64_t ith_dit_device_text_bytes(const ith_dit *dit, int64_t batch)
{
    return dit->config.layers * batch * ITH_TEXT_LEN * 2 * dit->config.dim * ith_dtype_bytes(ith_dit_device_type(dit));
}

ith_status ith_dit_device_take_text(ith_context *context, const ith_dit *dit, ith_dit_text *text)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const int64_t row_bytes = 2 * dit->config.dim * ith_dtype_bytes(ith_dit_device_type(dit));
    const int64_t bytes = ith_dit_device_text_bytes(dit, text->batch), prompts = dit->config.layers * text->batch;
    upload u;
    ith_device_use *use = dit->device->use;
    text->use = use;
    ith_status status =
        ith_device_check(context, use->module->allocate(use->device, bytes, &text->on_device, said), said);
    if (!status)
        status = open_upload(context, bytes, false, &u);
    if (status)
        return status;
    for (int64_t i = 0; i < prompts && !status; i++)
        status = put_prompt(&u, (char *)text->on_device + i * ITH_TEXT_LEN * row_bytes,
                            (const char *)text->keys_values + i * text->keys * row_bytes,
                            text->key_bias + i % text->batch * text->keys, text->keys, row_bytes);
    for (int i = 0; i < 2 && !status; i++)
        status = ith_device_wait(context, u.streams[i], NULL, NULL);
    close_upload(&u);
    return status;
}

void ith_dit_device_drop_text(ith_dit_text *text)
{
    if (text->use)
        text->use->module->release(text->use->device, text->on_device);
}
