/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder, from latents to frames, compared with golden files. */
#include "wan/vae/vae.h"
#include "wan/vae/vae_shortcut.h"

#include <ithaca/files.h>

#include "files/store.h"
#include "support/compare.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/engine/vae_checkpoints.h"
#include "support/in_range.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/temporary.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "../models/shapes/vae"
#define GOLDEN "golden/shapes/vae.safetensors"
#define WAN_22_MODEL "golden/ti2v/model/vae"
#define WAN_22_GOLDEN "golden/ti2v/vae.safetensors"
#define VIDEO "golden/shapes/video.safetensors"

/* The frames of a decoding, one after the other. */
typedef struct frames {
    float *numbers;
    int64_t count, most, stop_at; /* stop_at: the frame that is refused; -1: none */
} frames;

static ith_status keep_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    frames *f = user;
    assert_int_equal(index, f->count);
    assert_true(index < f->most);
    if (index == f->stop_at)
        return ITH_ERR_INTERRUPTED;
    memcpy(f->numbers + index * height * width * 3, frame, (size_t)(height * width * 3) * sizeof *frame);
    f->count++;
    return ITH_OK;
}

static double decode_error(const char *model, const char *golden, const char *z_name, const char *decoded_name)
{
    ith_context *context = new_context();
    ith_tensor_file *file = NULL;
    ith_vae *vae = NULL;
    assert_int_equal(ith_tensor_file_open(context, golden, &file), ITH_OK);
    assert_int_equal(open_vae(context, model, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
    const ith_tensor *z = ith_tensor_file_find(file, z_name), *decoded = ith_tensor_file_find(file, decoded_name);
    const int64_t *shape = decoded->shape, positions = shape[1] * shape[2] * shape[3];
    float *reference = malloc((size_t)decoded->bytes);
    frames out = {malloc((size_t)decoded->bytes), 0, shape[1], -1};
    for (int64_t c = 0; c < 3; c++)
        for (int64_t i = 0; i < positions; i++)
            reference[i * 3 + c] = ((const float *)decoded->data)[c * positions + i];
    assert_int_equal(ith_vae_decode(context, vae, z->data,
                                    &(ith_vae_extent){z->shape[1], z->shape[2], z->shape[3], NULL}, keep_frame, &out,
                                    NULL),
                     ITH_OK);
    assert_int_equal(out.count, shape[1]);
    double error = relative_l2(out.numbers, reference, positions * 3);
    free(reference), free(out.numbers);
    ith_vae_free(context, &vae);
    ith_tensor_file_close(&file);
    ith_context_destroy(&context);
    return error;
}

static void test_golden(void **state)
{
    (void)state;
    assert_true(decode_error(MODEL, GOLDEN, "z", "decoded") <= 5e-5);
    assert_true(decode_error(MODEL, GOLDEN, "z1", "decoded1") <= 5e-5);
    assert_true(decode_error(WAN_22_MODEL, WAN_22_GOLDEN, "z", "decoded") <= 5e-5);
}

typedef struct comparison {
    int64_t numbers, by_one, by_more;
    double psnr;
    ith_memory_use memory;
    int64_t predicted_bytes;
} comparison;

static comparison compare_video(int kind)
{
    ith_context *context = new_context();
    ith_tensor_file *file = NULL;
    ith_vae *vae = NULL;
    assert_int_equal(open_vae(context, MODEL, ITH_VAE_DECODER, operand_kinds[kind], &vae), ITH_OK);
    assert_int_equal(ith_tensor_file_open(context, VIDEO, &file), ITH_OK);
    const ith_tensor *z = ith_tensor_file_find(file, "latents"), *golden = ith_tensor_file_find(file, "frames");
    const int64_t *s = golden->shape;
    comparison result = {.numbers = s[0] * s[1] * s[2] * s[3]};
    frames out = {malloc((size_t)result.numbers * sizeof(float)), 0, s[0], -1};
    assert_int_equal(ith_vae_decode(context, vae, z->data,
                                    &(ith_vae_extent){z->shape[1], z->shape[2], z->shape[3], NULL}, keep_frame, &out,
                                    NULL),
                     ITH_OK);
    assert_int_equal(out.count, s[0]);
    double squares = 0;
    for (int64_t i = 0; i < result.numbers; i++) {
        assert_true(out.numbers[i] >= -1 && out.numbers[i] <= 1);
        long pixel = lrintf((out.numbers[i] / 2 + 0.5f) * 255), off = labs(pixel - ((const uint8_t *)golden->data)[i]);
        result.by_one += off == 1;
        result.by_more += off > 1;
        squares += (double)(off * off);
    }
    result.psnr = 10 * log10(255.0 * 255.0 * (double)result.numbers / squares);
    result.memory = memory_of(context);
    const ith_vae_config config = vae_config_in(context, MODEL);
    assert_int_equal(ith_vae_decode_bytes(context, &config, operand_kinds[kind],
                                          &(ith_vae_extent){.height = z->shape[2], .width = z->shape[3]},
                                          &result.predicted_bytes),
                     ITH_OK);
    free(out.numbers);
    ith_tensor_file_close(&file);
    ith_vae_free(context, &vae);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    return result;
}

static void test_video(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    omp_set_num_threads(2); /* attention takes memory for each thread */
    comparison f32 = compare_video(OPERANDS_F32);
    omp_set_num_threads(threads);
    assert_int_equal(f32.by_more, 0);
    assert_true(f32.by_one * 10000 <= f32.numbers);
    assert_true(f32.memory.peak_bytes < 150 << 20);
    assert_true(fabs((double)f32.predicted_bytes / (double)f32.memory.peak_bytes - 1) < 0.15);
}

static void test_video_bf16(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    int kinds = operand_kinds_here(context);
    ith_context_destroy(&context);
    omp_set_num_threads(2);
    for (int kind = OPERANDS_BF16_IN_F32; kind < kinds; kind++) {
        comparison bf16 = compare_video(kind);
        print_message("bf16: %.1f dB, predicted %.1f MB, peak %.1f MB\n", bf16.psnr, (double)bf16.predicted_bytes / 1e6,
                      (double)bf16.memory.peak_bytes / 1e6);
        assert_true(bf16.by_one + bf16.by_more > 0);
        assert_true(bf16.psnr > 52);
        assert_true(fabs((double)bf16.predicted_bytes / (double)bf16.memory.peak_bytes - 1) < 0.15);
    }
    omp_set_num_threads(threads);
}

/* Frames do not depend on later latents or on the number of threads, and memory does not depend on the number of
 * frames. */
static void check_causal(const vae_checkpoint *model)
{
    enum { H = 3, W = 5, FRAMES = 4, POSITIONS = H * W, MOST = 48 };
    const int64_t channels = model->channels, frame = model->stride * H * model->stride * W * 3;
    ith_context *context = new_context();
    ith_vae *vae = NULL;
    assert_int_equal(open_vae(context, model->folder, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
    float latents[MOST * FRAMES * POSITIONS], shorter[MOST * 2 * POSITIONS];
    for (int64_t i = 0; i < channels * FRAMES * POSITIONS; i++)
        latents[i] = sinf((float)(i * i % 1009));
    for (int64_t c = 0; c < channels; c++)
        memcpy(shorter + c * 2 * POSITIONS, latents + c * FRAMES * POSITIONS, 2 * POSITIONS * sizeof(float));
    frames two = {malloc((size_t)(5 * frame) * sizeof(float)), 0, 5, -1};
    frames four = {malloc((size_t)(13 * frame) * sizeof(float)), 0, 13, -1};
    assert_int_equal(ith_vae_decode(context, vae, shorter, &(ith_vae_extent){2, H, W, NULL}, keep_frame, &two, NULL),
                     ITH_OK);
    int64_t peak = memory_of(context).peak_bytes;
    assert_int_equal(
        ith_vae_decode(context, vae, latents, &(ith_vae_extent){FRAMES, H, W, NULL}, keep_frame, &four, NULL), ITH_OK);
    assert_int_equal(two.count, 5);
    assert_int_equal(four.count, 13);
    assert_memory_equal(two.numbers, four.numbers, (size_t)(5 * frame) * sizeof(float));
    assert_int_equal(memory_of(context).peak_bytes, peak);
    frames stopped = {four.numbers, 0, 13, 2};
    assert_int_equal(
        ith_vae_decode(context, vae, latents, &(ith_vae_extent){FRAMES, H, W, NULL}, keep_frame, &stopped, NULL),
        ITH_ERR_INTERRUPTED);
    assert_int_equal(stopped.count, 2);
    assert_int_equal(ith_vae_decode(context, vae, latents, &(ith_vae_extent){0, H, W, NULL}, keep_frame, &four, NULL),
                     ITH_ERR_ARGUMENT);
    free(two.numbers), free(four.numbers);
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

static void test_causal(void **state)
{
    (void)state;
    for (int i = 0; i < VAE_CHECKPOINTS; i++)
        check_causal(&vae_checkpoints[i]);
}

/* ---- Bands ----------------------------------------------------------------------------------------------------- */

/* Decodes a band of rows of the latents, and compares it with the same rows of whole frames, bit for bit. */
static void check_band(ith_context *context, const ith_vae *vae, int64_t stride, const float *latents,
                       int64_t frame_count, int64_t height, int64_t width, ith_vae_span band, const frames *whole)
{
    const int64_t rows = (band.end - band.begin) * stride, row = width * stride * 3;
    frames part = {malloc((size_t)(whole->count * rows * row) * sizeof(float)), 0, whole->count, -1};
    assert_int_equal(ith_vae_decode(context, vae, latents, &(ith_vae_extent){frame_count, height, width, &band},
                                    keep_frame, &part, NULL),
                     ITH_OK);
    assert_int_equal(part.count, whole->count);
    for (int64_t frame = 0; frame < whole->count; frame++)
        if (memcmp(part.numbers + frame * rows * row, whole->numbers + (frame * height + band.begin) * stride * row,
                   (size_t)(rows * row) * sizeof(float)))
            fail_msg("rows %lld to %lld of %lld x %lld, frame %lld", (long long)band.begin, (long long)band.end,
                     (long long)height, (long long)width, (long long)frame);
    free(part.numbers);
}

static void check_bands(ith_context *context, const ith_vae *vae, const vae_checkpoint *model, int64_t height,
                        int64_t width, int parts)
{
    enum { FRAMES = 3, MOST = 9 };
    const int64_t stride = model->stride, count = model->channels * FRAMES * height * width;
    const int64_t pixels = height * width * stride * stride;
    float *latents = malloc((size_t)count * sizeof *latents);
    for (int64_t i = 0; i < count; i++)
        latents[i] = sinf((float)(i * i % 1009));
    frames whole = {malloc((size_t)(MOST * pixels * 3) * sizeof(float)), 0, MOST, -1};
    assert_int_equal(
        ith_vae_decode(context, vae, latents, &(ith_vae_extent){FRAMES, height, width, NULL}, keep_frame, &whole, NULL),
        ITH_OK);
    for (int part = 0; part < parts; part++) {
        int64_t begin, rows;
        ith_share(height, parts, part, &begin, &rows);
        check_band(context, vae, stride, latents, FRAMES, height, width, (ith_vae_span){begin, begin + rows}, &whole);
    }
    check_band(context, vae, stride, latents, FRAMES, height, width, (ith_vae_span){height / 2, height / 2 + 1},
               &whole);
    free(whole.numbers);
    free(latents);
}

/* Each process decodes a band of rows of each frame, with the bits of whole frames. In tall pictures a band needs fewer
 * rows than a whole frame. */
static void bands_have_the_bits_of_whole_frames(void **state)
{
    (void)state;
    ith_context *context = new_context();
    int kinds = operand_kinds_here(context);
    for (int i = 0; i < VAE_CHECKPOINTS * kinds; i++) {
        const int kind = i % kinds;
        const vae_checkpoint *model = &vae_checkpoints[i / kinds];
        ith_vae *vae = NULL;
        assert_int_equal(open_vae(context, model->folder, ITH_VAE_DECODER, operand_kinds[kind], &vae), ITH_OK);
        check_bands(context, vae, model, kind == OPERANDS_F32 ? 61 : 35, 1, kind == OPERANDS_F32 ? 4 : 2);
        check_bands(context, vae, model, 5, 3, 3);
        ith_vae_free(context, &vae);
    }
    ith_context_destroy(&context);
}

static void illegal_bands_are_refused(void **state)
{
    (void)state;
    static const ith_vae_span bands[] = {{-1, 1}, {0, 0}, {2, 1}, {0, 4}, {3, 4}};
    ith_context *context = new_context();
    ith_vae *vae = NULL;
    float latents[16 * 3] = {0};
    frames none = {NULL, 0, 0, -1};
    assert_int_equal(open_vae(context, MODEL, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
    for (size_t i = 0; i < sizeof bands / sizeof *bands; i++) {
        assert_int_equal(
            ith_vae_decode(context, vae, latents, &(ith_vae_extent){1, 3, 1, &bands[i]}, keep_frame, &none, NULL),
            ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "of latents of 3 rows cannot be decoded"));
    }
    ith_vae_free(context, &vae);
    ith_context_destroy(&context);
}

static void illegal_sizes_are_refused(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1, 16385, 1}, {1, 1, 16385}};
    ith_context *context = new_context();
    ith_vae *vae = NULL;
    float *latents = calloc(16 * 16385, sizeof *latents);
    frames none = {NULL, 0, 0, -1};
    assert_int_equal(open_vae(context, MODEL, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ith_vae_decode(context, vae, latents,
                                        &(ith_vae_extent){sizes[i][0], sizes[i][1], sizes[i][2], NULL}, keep_frame,
                                        &none, NULL),
                         ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "cannot be decoded; sides must be from 1 to 16384"));
    }
    ith_vae_free(context, &vae);
    free(latents);
    ith_context_destroy(&context);
}

/* ---- Strips ----------------------------------------------------------------------------------------------------- */

/* Decodes all frames with a number of threads, on which the height of the strips depends. */
static frames decode_with(ith_context *context, const ith_vae *vae, const vae_checkpoint *model, const float *latents,
                          int64_t height, int64_t width, int threads)
{
    enum { FRAMES = 5 };
    const size_t numbers = (size_t)(FRAMES * height * width * model->stride * model->stride * 3);
    frames out = {malloc(numbers * sizeof(float)), 0, FRAMES, -1};
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    assert_int_equal(
        ith_vae_decode(context, vae, latents, &(ith_vae_extent){2, height, width, NULL}, keep_frame, &out, NULL),
        ITH_OK);
    omp_set_num_threads(before);
    assert_int_equal(out.count, FRAMES);
    return out;
}

/* Latents that pass in two strips give the bits of latents that pass whole. */
static void strips_have_the_bits_of_whole_frames(void **state)
{
    (void)state;
    enum { H = 50, W = 48, MOST = 48 * 2 * H * W };
    static float latents[MOST];
    ith_context *context = new_context();
    for (int i = 0; i < MOST; i++)
        latents[i] = sinf((float)(i % 7919 * (i % 7919) % 1009));
    for (int i = 0; i < VAE_CHECKPOINTS; i++) {
        const vae_checkpoint *model = &vae_checkpoints[i];
        ith_vae *vae = NULL;
        assert_int_equal(open_vae(context, model->folder, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
        frames strips = decode_with(context, vae, model, latents, H, W, 1);
        frames whole = decode_with(context, vae, model, latents, H, W, 8);
        assert_memory_equal(strips.numbers, whole.numbers,
                            (size_t)(5 * H * W * model->stride * model->stride * 3) * sizeof(float));
        free(strips.numbers), free(whole.numbers);
        ith_vae_free(context, &vae);
    }
    ith_context_destroy(&context);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Decodes once, and checks the memory at each frame. The frames are not kept. */
typedef struct meter {
    failing_allocator allocator;
    ith_context *context;
    long calls;
    int64_t bytes;
} meter;

static ith_status meter_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    (void)frame, (void)height, (void)width;
    meter *m = user;
    if (index) {
        assert_int_equal(atomic_load(&m->allocator.calls), m->calls);
        assert_int_equal(memory_of(m->context).current_bytes, m->bytes);
    }
    m->calls = atomic_load(&m->allocator.calls);
    m->bytes = memory_of(m->context).current_bytes;
    return ITH_OK;
}

static void check_band_memory(const vae_checkpoint *model, int kind, int64_t height, int64_t width,
                              const ith_vae_span *band)
{
    enum { FRAMES = 3, MOST = 48 * FRAMES * 99 };
    meter m = {0};
    static float latents[MOST];
    ith_vae *vae = NULL;
    int64_t predicted = 0;
    m.context = failing_context(&m.allocator, -1);
    const ith_vae_config config = vae_config_in(m.context, model->folder);
    const int64_t files = vae_file_bytes(m.context, model->folder);
    assert_int_equal(open_vae(m.context, model->folder, ITH_VAE_DECODER, operand_kinds[kind], &vae), ITH_OK);
    assert_int_equal(ith_vae_decode_bytes(m.context, &config, operand_kinds[kind],
                                          &(ith_vae_extent){.height = height, .width = width, .band = band},
                                          &predicted),
                     ITH_OK);
    assert_int_equal(
        ith_vae_decode(m.context, vae, latents, &(ith_vae_extent){FRAMES, height, width, band}, meter_frame, &m, NULL),
        ITH_OK);
    assert_int_equal(m.bytes - files, predicted);
    assert_int_equal(memory_of(m.context).peak_bytes, m.bytes);
    ith_vae_free(m.context, &vae);
    ith_context_destroy(&m.context);
    assert_int_equal(atomic_load(&m.allocator.held), 0);
}

static void check_memory(const vae_checkpoint *model, int kind, int64_t height, int64_t width)
{
    check_band_memory(model, kind, height, width, NULL);
}

/* Decoding holds the predicted memory, and allocates nothing between the first frame and the last. */
static void test_memory(void **state)
{
    (void)state;
    with_vaes_and_sizes(check_memory);
    for (int i = 0; i < VAE_CHECKPOINTS; i++)
        check_band_memory(&vae_checkpoints[i], OPERANDS_F32, 49, 2, &(ith_vae_span){16, 32});
}

/* At 1280 x 720 and 1280 x 704 the published autoencoders keep two frames for each convolution over time, and few other
 * whole frames. */
static void test_large_pictures(void **state)
{
    (void)state;
    static const int64_t most[][3] = {{10000000000, 5500000000, 5500000000}, {12500000000, 9000000000, 8000000000}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    omp_set_num_threads(2);
    for (int wan_22 = 0; wan_22 < 2; wan_22++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            const int64_t height = wan_22 ? 44 : 90, width = wan_22 ? 80 : 160;
            int64_t bytes = 0;
            ith_vae_config config;
            ith_vae_config_published(wan_22, &config);
            assert_int_equal(ith_vae_decode_bytes(context, &config, operand_kinds[kind],
                                                  &(ith_vae_extent){.height = height, .width = width}, &bytes),
                             ITH_OK);
            print_message("Wan 2.%d, 1280 x %d, operands %d: %.3f GB\n", wan_22 ? 2 : 1, wan_22 ? 704 : 720, kind,
                          (double)bytes * 1e-9);
            assert_true(in_range(bytes, most[wan_22][kind] / 2, most[wan_22][kind]));
        }
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

/* ---- Configurations -------------------------------------------------------------------------------------------- */

#define GOOD_LEVELS "\"dim_mult\": [1, 2, 4], \"temperal_downsample\": [false, true], "
#define GOOD_REST                                                                                                      \
    "\"base_dim\": 8, \"z_dim\": 2, \"num_res_blocks\": 1, \"latents_mean\": [0, 1], \"latents_std\": [1, 2]}"
#define KIND "{\"_class_name\": \"AutoencoderKLWan\", "

static ith_status read_config(ith_context *context, const char *text, ith_vae_config *config)
{
    char *folder = temporary_folder();
    temporary_write(temporary_path(folder, "config.json"), text, strlen(text));
    ith_status status = ith_vae_config_read(context, folder, config);
    temporary_remove(folder);
    return status;
}

/* The mean and the deviation of Wan 2.2's latent channels in units of 1e-4, from Wan-Video/Wan2.2 (vae2_2.py). */
static const int16_t wan_22_mean[] = {
    -2289, -52,   -1323, -2339, -2799, 174,   1838,  1557, -1382, 542,  2813, 891,   1570, -98,  375,   -1825,
    -2246, -1207, -698,  5109,  2665,  -2108, -2158, 2502, -2055, -322, 1109, 1567,  -729, 899,  -2799, -1230,
    -313,  -1649, 117,   723,   -2839, -2083, -520,  3748, 152,   1957, 1433, -2944, 3573, -548, -1681, -667};
static const int16_t wan_22_std[] = {4765, 10364, 4514, 11677, 5313, 4990,  4818, 5013, 8158, 10344, 5894, 10901,
                                     6885, 6165,  8454, 4978,  5759, 3523,  7135, 6804, 5833, 14146, 8986, 5659,
                                     7069, 5338,  4889, 4917,  4069, 4999,  6866, 4093, 5709, 6065,  6415, 4944,
                                     5726, 12042, 5458, 16887, 3971, 10600, 3943, 5537, 5444, 4089,  7468, 7744};

/* The usual values of the two autoencoders that were published. For Wan 2.1 a file that diffusers wrote has them. */
static void test_published(void **state)
{
    (void)state;
    ith_context *context = new_context();
    ith_vae_config read, made;
    assert_int_equal(read_config(context, KIND "\"dropout\": 0}", &read), ITH_OK);
    ith_vae_config_published(false, &made);
    assert_true(read.decoder_base_dim == made.decoder_base_dim && read.z_dim == made.z_dim);
    assert_memory_equal(read.mean, made.mean, sizeof made.mean);
    assert_memory_equal(read.std, made.std, sizeof made.std);
    assert_int_equal(ith_vae_config_read(context, "golden/i2v/model/vae", &read), ITH_OK);
    assert_memory_equal(read.mean, made.mean, sizeof made.mean);
    assert_memory_equal(read.std, made.std, sizeof made.std);
    ith_vae_config_published(true, &made);
    assert_true(made.z_dim == 48 && made.stride_space == 16 && made.patch == 2 && made.residual);
    for (int i = 0; i < made.z_dim; i++)
        assert_true(made.mean[i] == (float)(wan_22_mean[i] / 1e4) && made.std[i] == (float)(wan_22_std[i] / 1e4));
    assert_int_equal(ith_vae_config_read(context, WAN_22_MODEL, &read), ITH_OK);
    assert_true(read.z_dim == 48 && read.stride_space == 16 && read.stride_time == 4 && read.patch == 2 &&
                read.residual);
    ith_context_destroy(&context);
}

static void test_config(void **state)
{
    (void)state;
    ith_context *context = new_context();
    ith_vae_config config;
    assert_int_equal(read_config(context, KIND GOOD_LEVELS GOOD_REST, &config), ITH_OK);
    assert_int_equal(config.decoder_base_dim, 8);
    assert_int_equal(config.stride_space, 4);
    assert_int_equal(config.stride_time, 2);
    assert_true(config.temporal_up[0] && !config.temporal_up[1]);
    /* The encoder's fields have no effect here. Fields that are left out have diffusers' defaults. */
    assert_int_equal(
        read_config(context, KIND "\"attn_scales\": [0.5, 1], \"in_channels\": 12, \"dropout\": 0.5}", &config),
        ITH_OK);
    assert_true(config.decoder_base_dim == 96 && config.z_dim == 16 && config.res_blocks == 2 && config.levels == 4);
    assert_true(config.stride_space == 8 && config.stride_time == 4);
    assert_true(config.mean[15] == -0.2921f && config.std[0] == 2.8184f);
    static const struct {
        const char *text, *named;
        ith_status status;
    } bad[] = {
        {"{\"_class_name\": \"AutoencoderKL\", " GOOD_LEVELS GOOD_REST, "AutoencoderKL", ITH_ERR_UNSUPPORTED},
        {KIND "\"is_residual\": 1, " GOOD_LEVELS GOOD_REST, "is_residual", ITH_ERR_FORMAT},
        {KIND "\"is_residual\": true, \"dim_mult\": [1, 1, 9], \"temperal_downsample\": [false, true], " GOOD_REST,
         "from 72 to 8 channels; 4 times", ITH_ERR_FORMAT},
        {KIND "\"patch_size\": 0, " GOOD_LEVELS GOOD_REST, "patch_size", ITH_ERR_FORMAT},
        {KIND "\"patch_size\": 2, " GOOD_LEVELS GOOD_REST, "must be 12", ITH_ERR_FORMAT},
        {KIND "\"out_channels\": 12, " GOOD_LEVELS GOOD_REST, "must be 3", ITH_ERR_FORMAT},
        {KIND "\"out_channels\": null, " GOOD_LEVELS GOOD_REST, "out_channels", ITH_ERR_UNSUPPORTED},
        {KIND "\"dim_mult\": null, " GOOD_REST, "dim_mult is null", ITH_ERR_UNSUPPORTED},
        {KIND "\"scale_factor_spatial\": 16, " GOOD_LEVELS GOOD_REST, "scale_factor_spatial", ITH_ERR_FORMAT},
        {KIND "\"dim_mult\": [1, 2], \"temperal_downsample\": [true, true], " GOOD_REST, "temperal_downsample",
         ITH_ERR_FORMAT},
        {KIND "\"dim_mult\": [], " GOOD_REST, "dim_mult", ITH_ERR_FORMAT},
        {KIND GOOD_LEVELS "\"base_dim\": 7, \"decoder_base_dim\": 7, \"z_dim\": 2, \"num_res_blocks\": 1}",
         "latents_mean", ITH_ERR_FORMAT},
        {KIND GOOD_LEVELS "\"base_dim\": 8, \"z_dim\": 3, \"num_res_blocks\": 1, \"latents_mean\": [0, 1]}",
         "latents_mean", ITH_ERR_FORMAT},
        {KIND GOOD_LEVELS "\"base_dim\": 8, \"num_res_blocks\": 1, \"latents_std\": null}", "latents_std",
         ITH_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(read_config(context, bad[i].text, &config), bad[i].status);
        assert_non_null(strstr(ith_context_error(context), bad[i].named));
        assert_non_null(strstr(ith_context_error(context), "config.json"));
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* ---- Allocations that fail ------------------------------------------------------------------------------------- */

static ith_status load_and_decode(ith_context *context, void *user)
{
    float latents[48] = {0}, numbers[16 * 16 * 3];
    frames out = {numbers, 0, 1, -1};
    ith_vae *vae = NULL;
    ith_status status = open_vae(context, user, ITH_VAE_DECODER, operand_kinds[OPERANDS_F32], &vae);
    if (!status)
        status = ith_vae_decode(context, vae, latents, &(ith_vae_extent){1, 1, 1, NULL}, keep_frame, &out, NULL);
    ith_vae_free(context, &vae);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(load_and_decode, (void *)MODEL, 1) > 10);
    assert_true(refuse_every_allocation(load_and_decode, (void *)WAN_22_MODEL, 1) > 10);
}

/* The shortcuts of Wan 2.2 by their definitions (vae_shortcut.h), for all numbers of channels that fit. */
static void shortcuts_are_as_defined(void **state)
{
    (void)state;
    enum { MOST = 12 };
    uint64_t random = 5;
    float x[ITH_VAE_MOST_COPIES][MOST * ITH_VAE_MOST_COPIES];
    const float *pixels[ITH_VAE_MOST_COPIES];
    for (int copy = 0; copy < ITH_VAE_MOST_COPIES; copy++)
        for (int i = 0; i < MOST * ITH_VAE_MOST_COPIES; i++)
            x[copy][i] = random_signed(&random);
    for (int64_t copies = 4; copies <= 8; copies += 4)
        for (int64_t in = 1; in <= MOST; in++)
            for (int64_t out = 1; out <= MOST; out++) {
                const int64_t repeats = out * copies / in, averaged = in * copies / out;
                float y[MOST];
                for (int64_t part = 0; out * copies % in == 0 && part < copies; part++) {
                    memset(y, 0, sizeof y);
                    ith_vae_shortcut_add(y, out, x[0], copies, repeats, part);
                    for (int64_t o = 0; o < out; o++)
                        assert_true(y[o] == x[0][(o * copies + part) / repeats]);
                }
                if (in * copies % out)
                    continue;
                for (int absent = 0; absent <= copies; absent++) { /* a pixel that is NULL counts as zeros */
                    for (int copy = 0; copy < copies; copy++)
                        pixels[copy] = copy == absent ? NULL : x[copy];
                    memset(y, 0, sizeof y);
                    ith_vae_shortcut_add_means(y, out, pixels, copies, averaged);
                    for (int64_t o = 0; o < out; o++) {
                        double sum = 0;
                        for (int64_t i = o * averaged; i < (o + 1) * averaged; i++)
                            sum += i % copies == absent ? 0 : (double)x[i % copies][i / copies];
                        assert_true(fabs((double)y[o] - sum / (double)averaged) < 1e-6);
                    }
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortcuts_are_as_defined),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_video),
        cmocka_unit_test(test_video_bf16),
        cmocka_unit_test(test_causal),
        cmocka_unit_test(bands_have_the_bits_of_whole_frames),
        cmocka_unit_test(strips_have_the_bits_of_whole_frames),
        cmocka_unit_test(illegal_bands_are_refused),
        cmocka_unit_test(illegal_sizes_are_refused),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_large_pictures),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
