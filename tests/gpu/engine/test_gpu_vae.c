/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of the autoencoder on a device: golden frames, frames of the processor's decoder at the published widths,
 * causality, bands, cancellation and failures. Runs in the folder tests. The first argument names the device ("cuda" by
 * default; "fake:0" and "fake:1" are stand-ins, with which the largest cases are left out). With the second argument
 * "rates" the times of published sizes follow. Exit status: 0 passed, 1 failed, 77 skipped because there is no such
 * device. */
#include "base/context.h"
#include "files/store.h"
#include "gpu/fake/fake_device.h"
#include "wan/vae/vae.h"

#include <ithaca/files.h>

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const ith_operand_types f32 = {ITH_F32, ITH_F32, ITH_F32}, bf16 = {ITH_BF16, ITH_BF16, ITH_F32};
static const char *device = "cuda";
static int failures;

__attribute__((format(printf, 2, 3))) static void expect(bool holds, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf(holds ? "  " : "FAILED: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    failures += !holds;
}

/* Ends the program if a call of the library fails, because later failures would only follow from it. */
static void need(ith_context *context, ith_status status, const char *what)
{
    if (!status)
        return;
    printf("FAILED: %s: %s: %s\n", what, ith_status_name(status), ith_context_error(context));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A context on the device, or on the processor. Ends the program with 77 if there is no such device. */
static ith_context *context_on(const char *name)
{
    ith_context *context = NULL;
    need(NULL, ith_context_create(NULL, &context), "a context");
    const ith_status status = ith_context_use_device(context, name);
    if (status == ITH_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", ith_context_error(context));
        exit(77);
    }
    need(context, status, name);
    return context;
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* The frames of a decoding, one after the other. */
typedef struct frames {
    float *numbers; /* NULL: frames are counted only */
    int64_t count, most, stop_at;
    double last; /* time of the last frame */
} frames;

static ith_status keep_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    frames *f = user;
    if (index == f->stop_at)
        return ITH_ERR_INTERRUPTED;
    if (index != f->count || index >= f->most) {
        printf("FAILED: frame %lld comes after %lld frames of %lld\n", (long long)index, (long long)f->count,
               (long long)f->most);
        exit(1);
    }
    if (f->numbers)
        memcpy(f->numbers + index * height * width * 3, frame, (size_t)(height * width * 3) * sizeof *frame);
    f->count++;
    f->last = now();
    return ITH_OK;
}

static frames new_frames(int64_t most, int64_t height, int64_t width)
{
    return (frames){
        .numbers = malloc((size_t)(most * height * width * 3) * sizeof(float)), .most = most, .stop_at = -1};
}

static ith_vae *open_model(ith_context *context, const char *folder, ith_operand_types types)
{
    ith_vae_config config;
    ith_store *store = NULL;
    ith_vae *vae = NULL;
    need(context, ith_vae_config_read(context, folder, &config), folder);
    need(context, ith_store_open(context, folder, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &store), folder);
    need(context, ith_vae_open(context, &config, ITH_VAE_DECODER, store, types, &vae), folder);
    return vae;
}

static double relative_l2(const float *x, const float *reference, int64_t count)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)x[i] - reference[i]) * ((double)x[i] - reference[i]);
        size += (double)reference[i] * reference[i];
    }
    return sqrt(error / size);
}

/* The peak signal-to-noise ratio of frames in [-1, 1]. */
static double psnr(const float *x, const float *reference, int64_t count)
{
    double error = 0;
    for (int64_t i = 0; i < count; i++)
        error += ((double)x[i] - reference[i]) * ((double)x[i] - reference[i]);
    return 10 * log10(4 * (double)count / error);
}

/* ---- Golden files ------------------------------------------------------------------------------------------------ */

static void check_golden(const char *model, const char *golden, const char *z_name, const char *frames_name)
{
    ith_context *context = context_on(device);
    ith_tensor_file *file = NULL;
    need(context, ith_tensor_file_open(context, golden, &file), golden);
    const ith_tensor *z = ith_tensor_file_find(file, z_name), *decoded = ith_tensor_file_find(file, frames_name);
    const int64_t *shape = decoded->shape, positions = shape[1] * shape[2] * shape[3];
    float *reference = malloc((size_t)decoded->bytes);
    for (int64_t c = 0; c < 3; c++)
        for (int64_t i = 0; i < positions; i++)
            reference[i * 3 + c] = ((const float *)decoded->data)[c * positions + i];
    for (int half = 0; half < 2; half++) {
        ith_vae *vae = open_model(context, model, half ? bf16 : f32);
        frames out = new_frames(shape[1], shape[2], shape[3]);
        need(context,
             ith_vae_decode(context, vae, z->data, &(ith_vae_extent){z->shape[1], z->shape[2], z->shape[3], NULL},
                            keep_frame, &out, NULL),
             "decoding");
        const double error = relative_l2(out.numbers, reference, positions * 3);
        const double ratio = psnr(out.numbers, reference, positions * 3);
        expect(out.count == shape[1] && (half ? ratio >= 30 : error <= 5e-5),
               "%s %s %s: %lld frames, relative error %.2e, %.1f dB", model, z_name, half ? "bf16" : "f32",
               (long long)out.count, error, ratio);
        free(out.numbers);
        ith_vae_free(context, &vae);
    }
    free(reference);
    ith_tensor_file_close(&file);
    ith_context_destroy(&context);
}

/* Compares frames with the golden video, whose frames are rounded to 8 bits. */
static void check_video(ith_operand_types types)
{
    ith_context *context = context_on(device);
    ith_tensor_file *file = NULL;
    ith_vae *vae = open_model(context, "../models/shapes/vae", types);
    need(context, ith_tensor_file_open(context, "golden/shapes/video.safetensors", &file), "the golden video");
    const ith_tensor *z = ith_tensor_file_find(file, "latents"), *golden = ith_tensor_file_find(file, "frames");
    const int64_t *s = golden->shape, numbers = s[0] * s[1] * s[2] * s[3];
    frames out = new_frames(s[0], s[1], s[2]);
    need(context,
         ith_vae_decode(context, vae, z->data, &(ith_vae_extent){z->shape[1], z->shape[2], z->shape[3], NULL},
                        keep_frame, &out, NULL),
         "decoding the golden video");
    int64_t by_one = 0, by_more = 0;
    double squares = 0;
    for (int64_t i = 0; i < numbers; i++) {
        const long pixel = lrintf((out.numbers[i] / 2 + 0.5f) * 255);
        const long off = labs(pixel - ((const uint8_t *)golden->data)[i]);
        by_one += off == 1, by_more += off > 1;
        squares += (double)(off * off);
    }
    const double ratio = 10 * log10(255.0 * 255.0 * (double)numbers / squares);
    expect(types.rounded == ITH_F32 ? by_more == 0 && by_one * 10000 <= numbers : ratio >= 45,
           "golden video %s: %lld of %lld numbers off by 1, %lld by more, %.1f dB",
           types.rounded == ITH_F32 ? "f32" : "bf16", (long long)by_one, (long long)numbers, (long long)by_more, ratio);
    free(out.numbers);
    ith_tensor_file_close(&file);
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

/* ---- Causality, bands, cancellation ------------------------------------------------------------------------------ */

/* Latents of `count` frames. The first frames are the same for every count. */
static float *make_latents(int64_t channels, int64_t count, int64_t pixels)
{
    float *latents = malloc((size_t)(channels * count * pixels) * sizeof *latents);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t f = 0; f < count; f++)
            for (int64_t i = 0; i < pixels; i++)
                latents[(c * count + f) * pixels + i] = sinf((float)((c * 31 + f * 1009 + i * i) % 997));
    return latents;
}

/* The free memory of the context's device. */
static int64_t free_bytes(ith_context *context)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    need(context, ith_device_describe(context, &info), "the device");
    return info.free_bytes;
}

static void check_causal(const char *model, int64_t channels, int64_t stride)
{
    enum { H = 3, W = 5 };
    const int64_t frame = stride * H * stride * W * 3;
    const ith_vae_span band = {1, 3};
    ith_context *context = context_on(device);
    ith_vae *vae = open_model(context, model, f32);
    float *two = make_latents(channels, 2, H * W), *four = make_latents(channels, 4, H * W);
    frames first = new_frames(5, stride * H, stride * W), all = new_frames(13, stride * H, stride * W);
    frames part = new_frames(13, stride * H, stride * W), stopped = {.most = 13, .stop_at = 2};
    need(context, ith_vae_decode(context, vae, two, &(ith_vae_extent){2, H, W, NULL}, keep_frame, &first, NULL),
         "decoding 2");
    const int64_t free_before = free_bytes(context);
    need(context, ith_vae_decode(context, vae, four, &(ith_vae_extent){4, H, W, NULL}, keep_frame, &all, NULL),
         "decoding 4");
    need(context, ith_vae_decode(context, vae, four, &(ith_vae_extent){4, H, W, &band}, keep_frame, &part, NULL),
         "decoding a band");
    expect(first.count == 5 && !memcmp(first.numbers, all.numbers, (size_t)(5 * frame) * sizeof(float)),
           "%s: frames do not depend on those that follow", model);
    bool equal = true;
    for (int64_t i = 0; i < 13; i++)
        equal = equal && !memcmp(part.numbers + i * frame / 3 * 2, all.numbers + i * frame + frame / 3,
                                 (size_t)(frame / 3 * 2) * sizeof(float));
    expect(equal && part.count == 13, "%s: the rows of a band have the bits of whole frames", model);
    expect(ith_vae_decode(context, vae, four, &(ith_vae_extent){4, H, W, NULL}, keep_frame, &stopped, NULL) ==
                   ITH_ERR_INTERRUPTED &&
               stopped.count == 2,
           "%s: the caller can stop", model);
    ith_context_interrupt(context);
    expect(ith_vae_decode(context, vae, four, &(ith_vae_extent){4, H, W, NULL}, keep_frame, &stopped, NULL) ==
               ITH_ERR_INTERRUPTED,
           "%s: an interrupted context does not decode: %s", model, ith_context_error(context));
    ith_context_end_interruption(context);
    const int64_t lost = free_before - free_bytes(context);
    expect(lost < 64 << 20 && (!lost || strncmp(device, "fake", 4)),
           "%s: memory of the device is given back: %lld bytes", model, (long long)lost);
    free(two), free(four), free(first.numbers), free(all.numbers), free(part.numbers);
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

static void check_too_large(void)
{
    ith_context *context = context_on(device);
    ith_vae *vae = open_model(context, "../models/shapes/vae", f32);
    frames none = {.stop_at = -1};
    float nothing = 0;
    const ith_status status =
        ith_vae_decode(context, vae, &nothing, &(ith_vae_extent){1, 8000, 8000, NULL}, keep_frame, &none, NULL);
    expect(status == ITH_ERR_MEMORY || status == ITH_ERR_UNSUPPORTED, "pictures that are too large: %s",
           ith_context_error(context));
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

/* Each call of the fake device that can fail fails once. The failure is reported, and no memory is lost. */
static void check_refused(const char *model, int64_t channels)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ithaca_device_fake.so", getenv("ITHACA_PLUGIN_PATH"));
    void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    fake_control_table *control = module ? dlsym(module, "fake_control") : NULL;
    if (!control) {
        expect(false, "%s is not loaded", path);
        return;
    }
    ith_context *context = context_on(device);
    ith_vae *vae = open_model(context, model, f32);
    float *latents = make_latents(channels, 2, 1);
    const long held = atomic_load(&control->device_held), streams = atomic_load(&control->streams);
    ith_status status = ITH_ERR_INTERNAL;
    long refused = 0, silent = 0, kept = 0;
    for (; status && refused < 10000; refused++) {
        frames out = {.most = 5, .stop_at = -1};
        atomic_store(&control->calls, 0);
        atomic_store(&control->refuse, refused);
        status = ith_vae_decode(context, vae, latents, &(ith_vae_extent){2, 1, 1, NULL}, keep_frame, &out, NULL);
        silent += status && !ith_context_error(context)[0];
        kept += atomic_load(&control->device_held) != held || atomic_load(&control->pinned_held) ||
                atomic_load(&control->streams) != streams;
    }
    atomic_store(&control->refuse, -1);
    expect(refused > 100 && !silent && !kept && !status,
           "%s: %ld calls are refused, one after the other; %ld failures without a sentence, %ld that keep something",
           model, refused - 1, silent, kept);
    free(latents);
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
    dlclose(module);
}

/* ---- Published widths -------------------------------------------------------------------------------------------- */

/* Decodes two latent frames with random weights on the processor in f32 and on the device, at the published widths. */
static void check_published(bool wan_22, int64_t height, int64_t width)
{
    ith_vae_config config;
    ith_vae_config_published(wan_22, &config);
    const int64_t rows = height * config.stride_space, columns = width * config.stride_space;
    const int64_t numbers = 5 * rows * columns * 3;
    float *latents = make_latents(config.z_dim, 2, height * width);
    frames reference = new_frames(5, rows, columns);
    for (int kind = 0; kind < 3; kind++) {
        ith_context *context = context_on(kind ? device : "cpu");
        ith_vae *vae = NULL;
        need(context, ith_vae_make_random(context, &config, ITH_VAE_DECODER, kind == 2 ? bf16 : f32, ITH_BF16, &vae),
             "weights");
        frames out = kind ? new_frames(5, rows, columns) : reference;
        need(context,
             ith_vae_decode(context, vae, latents, &(ith_vae_extent){2, height, width, NULL}, keep_frame, &out, NULL),
             "decoding at published widths");
        if (kind) {
            int64_t edge = 0;
            for (int64_t i = 0; i < numbers; i++)
                edge += fabsf(reference.numbers[i]) >= 1;
            const double error = relative_l2(out.numbers, reference.numbers, numbers);
            const double ratio = psnr(out.numbers, reference.numbers, numbers);
            expect(kind == 2 ? ratio >= 30 : error <= 5e-5,
                   "Wan 2.%d published widths, %s: relative error %.2e, %.1f dB (%.0f%% of the numbers are clamped)",
                   wan_22 ? 2 : 1, kind == 2 ? "bf16" : "f32", error, ratio, 100.0 * (double)edge / (double)numbers);
            free(out.numbers);
        }
        ith_vae_free(context, &vae);
        ith_context_destroy(&context);
    }
    free(latents), free(reference.numbers);
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* Adds up the operations of a list of work. */
static void add_operations(void *user, const ith_work *work)
{
    *(double *)user += work->times * work->operations;
}

static void print_rate(bool wan_22, ith_operand_types types, int64_t height, int64_t width)
{
    enum { LATENT_FRAMES = 6 };
    ith_vae_config config;
    ith_context *context = context_on(device);
    ith_vae *vae = NULL;
    double operations = 0, loaded = 0;
    const ith_work_list list = {add_operations, &operations};
    ith_vae_config_published(wan_22, &config);
    const int64_t rows = height / config.stride_space, columns = width / config.stride_space;
    float *latents = make_latents(config.z_dim, LATENT_FRAMES, rows * columns);
    frames out = {.most = 1000, .stop_at = -1};
    need(context, ith_vae_make_random(context, &config, ITH_VAE_DECODER, types, ITH_BF16, &vae), "weights");
    ith_vae_decode_list(context, &config, types, &(ith_vae_extent){LATENT_FRAMES, rows, columns, NULL}, &list);
    const double begin = now();
    need(context,
         ith_vae_decode(context, vae, latents, &(ith_vae_extent){LATENT_FRAMES, rows, columns, NULL}, keep_frame, &out,
                        &loaded),
         "decoding");
    const double seconds = now() - begin - loaded;
    printf("Wan 2.%d %s %lld x %lld: %lld frames in %.2f s after %.2f s of loading: %.1f frames/s, %.1f TFLOP/s\n",
           wan_22 ? 2 : 1, types.rounded == ITH_F32 ? "f32" : "bf16", (long long)width, (long long)height,
           (long long)out.count, seconds, loaded, (double)out.count / seconds, operations / seconds * 1e-12);
    free(latents);
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1)
        device = arguments[1];
    const bool fake = !strncmp(device, "fake", 4);
    const double begin = now();
    check_golden("../models/shapes/vae", "golden/shapes/vae.safetensors", "z1", "decoded1");
    check_golden("../models/shapes/vae", "golden/shapes/vae.safetensors", "z", "decoded");
    check_golden("golden/ti2v/model/vae", "golden/ti2v/vae.safetensors", "z", "decoded");
    check_causal("../models/shapes/vae", 16, 8);
    check_causal("golden/ti2v/model/vae", 48, 16);
    check_too_large();
    if (fake) {
        check_refused("../models/shapes/vae", 16);
        check_refused("golden/ti2v/model/vae", 48);
    } else {
        check_video(f32);
        check_video(bf16);
        check_published(false, 6, 10);
        check_published(true, 3, 5);
    }
    printf("%.1f s\n", now() - begin);
    if (count > 2 && !strcmp(arguments[2], "rates")) {
        print_rate(false, bf16, 720, 1280);
        print_rate(true, bf16, 704, 1280);
        print_rate(false, f32, 480, 832);
    }
    printf(failures ? "FAILED: %d failures\n" : "passed\n", failures);
    return failures ? 1 : 0;
}
