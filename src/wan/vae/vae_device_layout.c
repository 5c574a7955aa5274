/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the decoder on a device and their memory, which is one allocation:
 *
 *   weights | x of convolutions with history | x between residual blocks | buffers that all layers share */
#include "vae_device.h"

#include "../../base/context.h"
#include "../../base/size.h"

#define MOST_LOGITS ((int64_t)1 << 26) /* logits of the attention that are in memory together */
#define OUT_MULTIPLE 8                 /* channels of conv_out, so that rows of 16-bit pixels are aligned */

bool ith_vae_device_serves(const ith_context *context, const char **reason)
{
    const ith_device_use *use = ith_context_device_use(context);
    *reason = NULL;
    if (!use)
        return false;
    *reason = use->module->convolutions && use->module->layers ? use->module->convolutions->refusal()
                                                               : "its module has no convolutions";
    return !*reason;
}

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Appends a convolution. */
static ith_vae_device_conv *add_conv(ith_vae_device *d, const ith_vae_filter *filter, const float *norm, int64_t frames,
                                     int64_t height, int64_t width)
{
    ith_vae_device_conv *c = &d->conv[d->conv_count++];
    *c = (ith_vae_device_conv){
        .filter = filter, .norm = norm, .frames = frames, .height = height, .width = width, .out = filter->out};
    return c;
}

static ith_vae_device_residual add_residual(ith_vae_device *d, const ith_vae_residual *weights, int64_t frames,
                                            int64_t height, int64_t width)
{
    ith_vae_device_residual r = {0};
    r.conv1 = add_conv(d, &weights->conv1, weights->norm1, frames, height, width);
    r.conv2 = add_conv(d, &weights->conv2, weights->norm2, frames, height, width);
    if (weights->shortcut.in)
        r.shortcut = add_conv(d, &weights->shortcut, NULL, frames, height, width);
    return r;
}

/* Appends the layers of a level. Returns the number of frames behind it. */
static int64_t add_level(ith_vae_device *d, int64_t index, int64_t frames, int64_t height, int64_t width)
{
    const ith_vae_level *weights = &d->vae->levels[index];
    ith_vae_device_level *level = &d->levels[index];
    *level = (ith_vae_device_level){.frames = frames,
                                    .height = height,
                                    .width = width,
                                    .in = weights->in,
                                    .out = weights->out,
                                    .repeats = weights->repeats,
                                    .residuals = &d->residuals[d->residual_count]};
    for (int64_t i = 0; i <= d->vae->config.res_blocks; i++)
        d->residuals[d->residual_count++] = add_residual(d, &weights->residuals[i], frames, height, width);
    if (weights->time.in) {
        level->time = add_conv(d, &weights->time, NULL, frames, height, width);
        frames *= 2;
    }
    if (weights->resample.in)
        level->resample = add_conv(d, &weights->resample, NULL, frames, 2 * height, 2 * width);
    return frames;
}

static void add_layers(ith_vae_device *d)
{
    const ith_vae *vae = d->vae;
    const int64_t levels = vae->config.levels, height = d->height, width = d->width;
    int64_t frames = 1;
    d->quant = add_conv(d, &vae->quant, NULL, 1, height, width);
    d->in = add_conv(d, &vae->in, NULL, 1, height, width);
    d->before = add_residual(d, &vae->before, 1, height, width);
    d->qkv = add_conv(d, &vae->qkv, vae->attention_norm, 1, height, width);
    d->proj = add_conv(d, &vae->proj, NULL, 1, height, width);
    d->after = add_residual(d, &vae->after, 1, height, width);
    for (int64_t i = 0; i < levels; i++)
        frames = add_level(d, i, frames, height << i, width << i);
    const ith_vae_device_level *last = &d->levels[levels - 1];
    d->out = add_conv(d, &vae->out, vae->norm_out, frames, last->height, last->width);
    d->out->out = ith_round_up(d->out->out, OUT_MULTIPLE);
}

/* The bytes of a decoder with its convolutions: conv_in, conv_out, three linear layers and four convolutions in the
 * middle; in a level three for each residual block, and `time` and `resample`. */
static int64_t device_size(const ith_vae_config *config)
{
    const int64_t convs = 9 + 2 + config->levels * (3 * (config->res_blocks + 1) + 2);
    return (int64_t)sizeof(ith_vae_device) + convs * (int64_t)sizeof(ith_vae_device_conv);
}

ith_status ith_vae_device_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                 ith_vae_device **out)
{
    const ith_vae_config *config = &vae->config;
    *out = NULL;
    if (config->levels * (config->res_blocks + 1) > ITH_VAE_DEVICE_MOST_RESIDUALS)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "an autoencoder of %lld residual blocks: on a device it has at most %d",
                        (long long)(config->levels * (config->res_blocks + 1)), ITH_VAE_DEVICE_MOST_RESIDUALS);
    ith_vae_device *d = ith_alloc_zero(context, 1, device_size(config), "a decoder");
    *out = d;
    if (!d)
        return ITH_ERR_MEMORY;
    d->context = context, d->vae = vae, d->height = extent->height, d->width = extent->width;
    d->use = ith_context_device_use(context), d->ops = d->use->module->convolutions;
    d->type = vae->types.rounded;
    add_layers(d);
    return ITH_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static int64_t pixels_of(const ith_vae_device_conv *c)
{
    return c->frames * c->height * c->width;
}

static void lay_out_weights(ith_vae_device *d, ith_arena *arena)
{
    for (int64_t i = 0; i < d->conv_count; i++) {
        ith_vae_device_conv *c = &d->conv[i];
        const ith_vae_filter *f = c->filter;
        c->w = ith_arena_take(arena, c->out * f->frames * f->kernel * f->kernel, ith_vae_device_pixel_bytes(d, f->in));
        c->bias = ith_arena_take(arena, f->out, sizeof(float));
        c->gamma = c->norm ? ith_arena_take(arena, f->in, sizeof(float)) : NULL;
    }
}

/* Lays out x of the convolutions with history. */
static void lay_out_inputs(ith_vae_device *d, ith_arena *arena)
{
    for (int64_t i = 0; i < d->conv_count; i++) {
        ith_vae_device_conv *c = &d->conv[i];
        const int64_t frames = c->frames + ith_vae_device_history(c);
        if (ith_vae_device_history(c))
            c->input =
                ith_arena_take(arena, frames * c->height * c->width, ith_vae_device_pixel_bytes(d, c->filter->in));
    }
}

/* Lays out x between residual blocks. The layers in the middle share the place of the first level. */
static void lay_out_levels(ith_vae_device *d, ith_arena *arena)
{
    for (int64_t i = 0; i < d->vae->config.levels; i++) {
        ith_vae_device_level *level = &d->levels[i];
        const int64_t pixels = level->frames * level->height * level->width;
        level->begin = ith_arena_take(arena, pixels * level->in, sizeof(float));
        level->end = level->begin;
        if (!ith_vae_level_in_place(&d->vae->levels[i]))
            level->end = ith_arena_take(arena, pixels * level->out, sizeof(float));
    }
}

/* Lays out the buffers that all layers share. */
static void lay_out_buffers(ith_vae_device *d, ith_arena *arena)
{
    const int64_t pixels = d->height * d->width, channels = d->qkv->filter->in;
    const ith_vae_device_conv *last = d->out;
    const int64_t square = d->vae->config.patch * d->vae->config.patch;
    int64_t input = 0, y = 0;
    for (int64_t i = 0; i < d->conv_count; i++) {
        const ith_vae_device_conv *c = &d->conv[i];
        if (!ith_vae_device_history(c))
            input = ith_max64(input, pixels_of(c) * ith_vae_device_pixel_bytes(d, c->filter->in));
        y = ith_max64(y, pixels_of(c) * ith_vae_device_pixel_bytes(d, c->out));
    }
    d->z = ith_arena_take(arena, pixels * d->vae->config.z_dim, sizeof(float));
    float **const rows[] = {&d->q, &d->k, &d->vt, &d->o};
    for (int i = 0; i < 4; i++)
        *rows[i] = ith_arena_take(arena, pixels * channels, sizeof(float));
    d->logit_rows = ith_min64(pixels, ith_max64(MOST_LOGITS / pixels, 1));
    d->logits = ith_arena_take(arena, d->logit_rows * pixels, sizeof(float));
    d->scratch = ith_arena_take(arena, input, 1);
    d->y = ith_arena_take(arena, y, 1);
    d->rgb = ith_arena_take(arena, pixels_of(last) * square * 3, sizeof(float));
    d->conv_scratch = ith_arena_take(arena, d->conv_scratch_bytes, 1);
}

static void lay_out(ith_vae_device *d, ith_arena *arena)
{
    lay_out_weights(d, arena);
    lay_out_inputs(d, arena);
    lay_out_levels(d, arena);
    lay_out_buffers(d, arena);
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

ith_status ith_vae_device_count(ith_vae_device *d, int64_t *bytes)
{
    ith_arena arena = {0};
    lay_out(d, &arena);
    *bytes = 0;
    if (arena.overflow)
        return ith_fail(d->context, ITH_ERR_ARGUMENT, "latents of %lld x %lld are too large to be decoded",
                        (long long)d->height, (long long)d->width);
    *bytes = arena.used_bytes + d->use->module->layers->product_bytes;
    return ITH_OK;
}

static ith_status prepare(ith_vae_device *d, const ith_vae_device_conv *c, int64_t frames)
{
    const ith_device_conv conv = ith_vae_device_describe(d, c, frames);
    char said[ITH_DEVICE_SENTENCE] = "";
    int64_t bytes = 0;
    ith_status status = ith_device_check(d->context, d->ops->prepare(d->convs, &conv, &bytes, said), said);
    d->conv_scratch_bytes = ith_max64(d->conv_scratch_bytes, bytes);
    return status;
}

/* Chooses the algorithms of all convolutions, for the first latent frame and for later ones. */
static ith_status prepare_all(ith_vae_device *d)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < d->conv_count && !status; i++) {
        if (&d->conv[i] == d->qkv) /* products of the attention */
            continue;
        status = prepare(d, &d->conv[i], 1);
        if (!status && d->conv[i].frames > 1)
            status = prepare(d, &d->conv[i], d->conv[i].frames);
    }
    return status;
}

/* Checks that the device has enough free memory, as far as its bytes are known. */
static ith_status check_free(ith_vae_device *d)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_facts facts = {0};
    int64_t bytes = 0;
    ith_status status = ith_vae_device_count(d, &bytes);
    if (!status)
        status = ith_device_check(d->context, d->use->module->facts(d->use->device, &facts, said), said);
    if (status || bytes <= facts.free_bytes)
        return status;
    const int64_t scale = d->vae->config.stride_space;
    return ith_fail(d->context, ITH_ERR_MEMORY,
                    "decoding %lld x %lld pixels takes %.2f GB of the memory of %s, of which %.2f GB are free",
                    (long long)(d->width * scale), (long long)(d->height * scale), (double)bytes / 1e9, d->use->name,
                    (double)facts.free_bytes / 1e9);
}

static ith_status allocate(ith_vae_device *d)
{
    const ith_device_module *module = d->use->module;
    const int64_t square = d->vae->config.patch * d->vae->config.patch;
    const int64_t z_bytes = d->height * d->width * d->vae->config.z_dim * (int64_t)sizeof(float);
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_arena arena = {0};
    void *pinned = NULL;
    lay_out(d, &arena);
    ith_status status = module->allocate(d->use->device, arena.used_bytes, &d->memory, said);
    arena = (ith_arena){.base = d->memory};
    if (!status)
        lay_out(d, &arena);
    if (!status)
        status = module->allocate_pinned(d->use->device, z_bytes, &pinned, said);
    d->pinned_z = pinned;
    for (int i = 0; i < 2 && !status; i++) {
        status = module->allocate_pinned(d->use->device, pixels_of(d->out) * square * 3 * (int64_t)sizeof(float),
                                         &pinned, said);
        d->pinned_rgb[i] = status ? NULL : pinned;
    }
    return ith_device_check(d->context, status, said);
}

/* Sets the history of all convolutions to zeros. */
static ith_status clear_history(const ith_vae_device *d)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < d->conv_count && !status; i++) {
        const ith_vae_device_conv *c = &d->conv[i];
        const int64_t pixels = ith_vae_device_history(c) * c->height * c->width;
        status =
            d->use->module->fill(d->stream, c->input, 0, pixels * ith_vae_device_pixel_bytes(d, c->filter->in), said);
    }
    return ith_device_check(d->context, status, said);
}

ith_status ith_vae_device_open(ith_vae_device *d)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = d->use->module->create_stream(d->use->device, &d->stream, said);
    if (!status)
        status = d->ops->create(d->use->device, &d->convs, said);
    status = ith_device_check(d->context, status, said);
    if (!status)
        status = check_free(d);
    if (!status)
        status = prepare_all(d);
    if (!status)
        status = check_free(d);
    if (!status)
        status = allocate(d);
    if (!status) {
        status = d->use->module->layers->create_products(d->use->device, &d->products, said);
        status = ith_device_check(d->context, status, said);
    }
    if (!status)
        status = clear_history(d);
    return status ? status : ith_vae_device_upload(d);
}

int64_t ith_vae_device_host_bytes(const ith_vae_device *d)
{
    return ith_alloc_bytes(d) + ith_vae_device_upload_bytes(d);
}

void ith_vae_device_free(ith_vae_device **device)
{
    ith_vae_device *d = *device;
    if (!d)
        return;
    const ith_device_module *module = d->use->module;
    if (d->stream)
        ith_device_wait(d->context, d->stream, NULL, NULL);
    module->layers->destroy_products(d->products);
    d->ops->destroy(d->convs);
    module->release(d->use->device, d->memory);
    module->release_pinned(d->use->device, d->pinned_z);
    module->release_pinned(d->use->device, d->pinned_rgb[0]);
    module->release_pinned(d->use->device, d->pinned_rgb[1]);
    module->destroy_stream(d->stream);
    ith_free(d->context, d);
    *device = NULL;
}
