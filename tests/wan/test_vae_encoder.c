/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder, from frames to latents, compared with golden files. */
#include "wan/vae/vae.h"

#include <ithaca/files.h>
#include <ithaca/wan.h>

#include "support/compare.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/engine/vae_checkpoints.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "../models/shapes/vae"
#define GOLDEN "golden/shapes/vae.safetensors"
#define IMAGE_MODEL "golden/i2v/model/vae"
#define MODEL_22 "golden/ti2v/model/vae"

/* A video in memory. It counts the rows that the encoder takes, and refuses row 0 of frame stop_at. */
typedef struct clip {
    const float *pixels; /* [3, frames, height, width] */
    int64_t frames, height, width;
    int64_t stop_at; /* -1: it refuses none */
    int64_t taken;   /* number of rows that were taken */
} clip;

static ith_status give_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    clip *c = user;
    const int64_t plane = c->height * c->width;
    assert_true(frame >= 0 && frame < c->frames && row >= 0 && count > 0 && row + count <= c->height);
    c->taken += count;
    if (frame == c->stop_at)
        return ITH_ERR_IO;
    for (int64_t i = 0; i < count * c->width; i++)
        for (int64_t colour = 0; colour < 3; colour++)
            rows[3 * i + colour] = c->pixels[(colour * c->frames + frame) * plane + row * c->width + i];
    return ITH_OK;
}

/* Encodes into latents [z_dim, latent frames, height, width], which the caller frees. */
static float *encode(ith_context *context, const char *model, int kind, clip *video)
{
    ith_vae *vae = NULL;
    assert_int_equal(open_vae(context, model, ITH_VAE_ENCODER, operand_kinds[kind], &vae), ITH_OK);
    const ith_vae_config config = vae_config_in(context, model);
    const int64_t stride = config.stride_space, frames = (video->frames - 1) / 4 + 1;
    const int64_t height = video->height / stride, width = video->width / stride;
    float *latents = malloc((size_t)(config.z_dim * frames * height * width) * sizeof *latents);
    video->taken = 0;
    assert_int_equal(
        ith_vae_encode(context, vae, &(ith_vae_extent){frames, height, width, NULL}, give_rows, video, latents, NULL),
        ITH_OK);
    assert_int_equal(video->taken, video->frames * video->height);
    ith_vae_free(context, &vae);
    return latents;
}

/* A caller that counts the rows of one frame. Its pixels are grey. */
static ith_status give_next_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    enum { WIDTH = 128 };
    int64_t *next = user;
    assert_int_equal(frame, 0);
    assert_int_equal(row, *next);
    *next += count;
    memset(rows, 0, (size_t)(count * WIDTH * 3) * sizeof *rows);
    return ITH_OK;
}

/* The encoder asks for each row once, from the first to the last, also where it takes squares of pixels. */
static void rows_are_taken_in_order(void **state)
{
    (void)state;
    static const char *const models[] = {MODEL, MODEL_22};
    ith_context *context = new_context();
    omp_set_num_threads(1); /* so that a frame has several strips */
    for (int i = 0; i < 2; i++) {
        const ith_vae_config config = vae_config_in(context, models[i]);
        const int64_t side = 128 / config.stride_space;
        ith_vae *vae = NULL;
        int64_t next = 0;
        assert_int_equal(open_vae(context, models[i], ITH_VAE_ENCODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
        float *latents = malloc((size_t)(config.z_dim * side * side) * sizeof *latents);
        assert_int_equal(
            ith_vae_encode(context, vae, &(ith_vae_extent){1, side, side, NULL}, give_next_rows, &next, latents, NULL),
            ITH_OK);
        assert_int_equal(next, 128);
        free(latents);
        ith_vae_free(context, &vae);
    }
    ith_context_destroy(&context);
}

/* ---- Golden files ---------------------------------------------------------------------------------------------- */

static double golden_error(const char *model, const char *golden, int kind, int64_t frames, const char *encoded_name)
{
    ith_context *context = new_context();
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, golden, &file), ITH_OK);
    const ith_tensor *video = ith_tensor_file_find(file, "video"), *encoded = ith_tensor_file_find(file, encoded_name);
    const int64_t plane = video->shape[2] * video->shape[3];
    float *pixels = malloc((size_t)(3 * frames * plane) * sizeof *pixels);
    for (int64_t c = 0; c < 3; c++)
        memcpy(pixels + c * frames * plane, (const float *)video->data + c * video->shape[1] * plane,
               (size_t)(frames * plane) * sizeof *pixels);
    clip all = {pixels, frames, video->shape[2], video->shape[3], -1, 0};
    float *latents = encode(context, model, kind, &all);
    double error = relative_l2(latents, encoded->data, encoded->bytes / 4);
    free(latents), free(pixels);
    ith_tensor_file_close(&file);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    return error;
}

static void encodes_as_the_reference(void **state)
{
    (void)state;
    ith_context *context = new_context();
    const int kinds = operand_kinds_here(context);
    ith_context_destroy(&context);
    for (int kind = 0; kind < kinds; kind++) {
        const double most = kind == OPERANDS_F32 ? 5e-5 : 6e-3;
        const double error = golden_error(MODEL, GOLDEN, kind, 9, "encoded");
        const double first = golden_error(MODEL, GOLDEN, kind, 1, "encoded1");
        const double wan_22 = golden_error(MODEL_22, "golden/ti2v/vae.safetensors", kind, 9, "encoded");
        print_message("operands %d: %.2g, one frame %.2g, Wan 2.2 %.2g\n", kind, error, first, wan_22);
        assert_true(error <= most && first <= most && wan_22 <= most);
    }
}

/* Encodes a video of `frames` frames. Its first frame is `first` and, if `last` is not NULL, its last frame is `last`;
 * all others are zero. The images have 8 bits, [height, width, 3]. Compares `count` numbers with the reference. */
static void check_images(const char *model, const ith_tensor *first, const ith_tensor *last, int64_t frames,
                         const float *encoded, int64_t count)
{
    ith_context *context = new_context();
    const int64_t height = first->shape[0], width = first->shape[1], plane = height * width;
    float *pixels = calloc((size_t)(3 * frames * plane), sizeof *pixels);
    for (int64_t i = 0; i < 3 * plane; i++) {
        float *pixel = pixels + i % 3 * frames * plane + i / 3;
        pixel[0] = (float)((const uint8_t *)first->data)[i] / 127.5f - 1;
        if (last)
            pixel[(frames - 1) * plane] = (float)((const uint8_t *)last->data)[i] / 127.5f - 1;
    }
    clip video = {pixels, frames, height, width, -1, 0};
    float *latents = encode(context, model, OPERANDS_F32, &video);
    assert_true(relative_l2(latents, encoded, count) <= 5e-5);
    free(latents), free(pixels);
    ith_context_destroy(&context);
}

/* The condition of image-to-video: four channels of a mask, and then the encoded images. */
static void check_condition(const char *golden, bool has_last)
{
    ith_context *context = new_context();
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, golden, &file), ITH_OK);
    const ith_tensor *condition = ith_tensor_file_find(file, "condition");
    const int64_t positions = condition->shape[1] * condition->shape[2] * condition->shape[3];
    check_images(IMAGE_MODEL, ith_tensor_file_find(file, "first"), has_last ? ith_tensor_file_find(file, "last") : NULL,
                 9, (const float *)condition->data + 4 * positions, 16 * positions);
    ith_tensor_file_close(&file);
    ith_context_destroy(&context);
}

static void encodes_images_as_the_reference(void **state)
{
    (void)state;
    ith_context *context = new_context();
    ith_tensor_file *file = NULL;
    check_condition("golden/i2v/first.safetensors", false);
    check_condition("golden/i2v/first_last.safetensors", true);
    assert_int_equal(ith_tensor_file_open(context, "golden/ti2v/image.safetensors", &file), ITH_OK);
    const ith_tensor *latent = ith_tensor_file_find(file, "first_latent");
    check_images(MODEL_22, ith_tensor_file_find(file, "first"), NULL, 1, latent->data, latent->bytes / 4);
    ith_tensor_file_close(&file);
    ith_context_destroy(&context);
}

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

static float *waves(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = sinf((float)(i * i % 1009));
    return x;
}

/* A clip of the first `frames` frames of a video. */
static clip start_of(const clip *video, int64_t frames, float *pixels)
{
    const int64_t plane = video->height * video->width;
    for (int64_t c = 0; c < 3; c++)
        memcpy(pixels + c * frames * plane, video->pixels + c * video->frames * plane,
               (size_t)(frames * plane) * sizeof *pixels);
    return (clip){pixels, frames, video->height, video->width, -1, 0};
}

static void check_causal(ith_context *context, const vae_checkpoint *model, int kind)
{
    enum { H = 32, W = 48, FRAMES = 17 };
    const int64_t latent = H / model->stride * (W / model->stride);
    float *pixels = waves(3 * FRAMES * H * W), *shorter = malloc(3 * FRAMES * H * W * sizeof *shorter);
    clip video = {pixels, FRAMES, H, W, -1, 0};
    omp_set_num_threads(1);
    float *whole = encode(context, model->folder, kind, &video);
    for (int64_t frames = 1; frames <= 2; frames++) {
        omp_set_num_threads(1 + (int)frames);
        clip start = start_of(&video, 4 * (frames - 1) + 1, shorter);
        float *part = encode(context, model->folder, kind, &start);
        for (int64_t c = 0; c < model->channels; c++)
            assert_memory_equal(part + c * frames * latent, whole + c * 5 * latent,
                                (size_t)(frames * latent) * sizeof *part);
        free(part);
    }
    free(whole), free(pixels), free(shorter);
}

/* Latents have the same bits whatever frames follow, and with any number of threads. */
static void latents_do_not_depend_on_later_frames(void **state)
{
    (void)state;
    ith_context *context = new_context();
    const int kinds = operand_kinds_here(context), threads = omp_get_max_threads();
    for (int i = 0; i < VAE_CHECKPOINTS * kinds; i++)
        check_causal(context, &vae_checkpoints[i / kinds], i % kinds);
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

/* Encodes frames with each autoencoder, on one thread and on many, and compares the latents. */
static void compare_strips(ith_context *context, int64_t height, int64_t width)
{
    enum { FRAMES = 5, THREADS = 32 };
    float *pixels = waves(3 * FRAMES * height * width);
    for (int i = 0; i < VAE_CHECKPOINTS; i++) {
        const vae_checkpoint *model = &vae_checkpoints[i];
        clip video = {pixels, FRAMES, height, width, -1, 0};
        omp_set_num_threads(1);
        float *strips = encode(context, model->folder, OPERANDS_F32, &video);
        video.taken = 0;
        omp_set_num_threads(THREADS);
        float *whole = encode(context, model->folder, OPERANDS_F32, &video);
        assert_memory_equal(strips, whole,
                            (size_t)(model->channels * 2 * (height / model->stride) * (width / model->stride)) *
                                sizeof *whole);
        free(strips), free(whole);
    }
    free(pixels);
}

/* One thread takes a wide picture in low strips through rows whose memory is used again. Many threads take it as a
 * whole. In a picture 768 pixels wide the strips of a level are no multiples of the next level's strips. So the
 * convolutions that halve frames get the largest number of rows at once. */
static void low_strips_give_the_bits_of_a_whole_picture(void **state)
{
    (void)state;
    ith_context *context = new_context();
    const int threads = omp_get_max_threads();
    compare_strips(context, 64, 1024);
    compare_strips(context, 48, 768);
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

static void a_caller_and_an_interruption_end_the_encoding(void **state)
{
    (void)state;
    enum { H = 16, W = 8, FRAMES = 5 };
    ith_context *context = new_context();
    ith_vae *vae = NULL;
    float *pixels = waves(3 * FRAMES * H * W), latents[16 * 2 * 2];
    clip video = {pixels, FRAMES, H, W, 2, 0};
    assert_int_equal(open_vae(context, MODEL, ITH_VAE_ENCODER, operand_kinds[OPERANDS_F32], &vae), ITH_OK);
    assert_int_equal(ith_vae_encode(context, vae, &(ith_vae_extent){2, 2, 1, NULL}, give_rows, &video, latents, NULL),
                     ITH_ERR_IO);
    video.stop_at = -1;
    ith_context_interrupt(context);
    assert_int_equal(ith_vae_encode(context, vae, &(ith_vae_extent){2, 2, 1, NULL}, give_rows, &video, latents, NULL),
                     ITH_ERR_INTERRUPTED);
    ith_context_end_interruption(context);
    static const int64_t bad[][3] = {{0, 2, 1}, {1, 0, 1}, {1, 1, 0}, {1, 16385, 1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ith_vae_encode(context, vae, &(ith_vae_extent){bad[i][0], bad[i][1], bad[i][2], NULL},
                                        give_rows, &video, latents, NULL),
                         ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "cannot be encoded"));
    }
    ith_vae_free(context, &vae);
    free(pixels);
    ith_context_destroy(&context);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Checks the memory whenever rows are taken. */
typedef struct meter {
    failing_allocator allocator;
    ith_context *context;
    int64_t width;
    long calls; /* 0: no rows have been taken yet */
    int64_t bytes;
} meter;

static ith_status meter_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    meter *m = user;
    (void)frame, (void)row;
    if (m->calls)
        assert_int_equal(atomic_load(&m->allocator.calls), m->calls);
    m->calls = atomic_load(&m->allocator.calls);
    m->bytes = memory_of(m->context).current_bytes;
    memset(rows, 0, (size_t)(count * m->width * 3) * sizeof *rows);
    return ITH_OK;
}

static void check_memory(const vae_checkpoint *model, int kind, int64_t height, int64_t width)
{
    enum { FRAMES = 3 };
    meter m = {.width = model->stride * width};
    float *latents = malloc((size_t)(model->channels * FRAMES * height * width) * sizeof *latents);
    ith_vae *vae = NULL;
    int64_t predicted = 0;
    m.context = failing_context(&m.allocator, -1);
    const ith_vae_config config = vae_config_in(m.context, model->folder);
    const int64_t files = vae_file_bytes(m.context, model->folder);
    assert_int_equal(open_vae(m.context, model->folder, ITH_VAE_ENCODER, operand_kinds[kind], &vae), ITH_OK);
    assert_int_equal(ith_vae_encode_bytes(m.context, &config, operand_kinds[kind],
                                          &(ith_vae_extent){.height = height, .width = width}, &predicted),
                     ITH_OK);
    assert_int_equal(
        ith_vae_encode(m.context, vae, &(ith_vae_extent){FRAMES, height, width, NULL}, meter_rows, &m, latents, NULL),
        ITH_OK);
    assert_int_equal(m.bytes - files, predicted);
    assert_int_equal(memory_of(m.context).peak_bytes, m.bytes);
    ith_vae_free(m.context, &vae);
    ith_context_destroy(&m.context);
    assert_int_equal(atomic_load(&m.allocator.held), 0);
    free(latents);
}

static void memory_is_as_predicted(void **state)
{
    (void)state;
    with_vaes_and_sizes(check_memory);
}

/* The published encoders have fewer convolutions at the size of the picture than the decoders. */
static void large_pictures_take_less_memory_than_decoding(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    omp_set_num_threads(2);
    const int kinds = operand_kinds_here(context);
    for (int i = 0; i < VAE_CHECKPOINTS * kinds; i++) {
        const ith_operand_types types = operand_kinds[i % kinds];
        const int64_t height = i / kinds ? 45 : 90, width = i / kinds ? 80 : 160;
        int64_t encode = 0, decode = 0;
        ith_vae_config config;
        ith_vae_config_published(i >= kinds, &config);
        assert_int_equal(
            ith_vae_encode_bytes(context, &config, types, &(ith_vae_extent){.height = height, .width = width}, &encode),
            ITH_OK);
        assert_int_equal(
            ith_vae_decode_bytes(context, &config, types, &(ith_vae_extent){.height = height, .width = width}, &decode),
            ITH_OK);
        print_message("Wan 2.%d, 1280 x 720, operands %d: %.3f GB, decoding %.3f GB\n", 1 + i / kinds, i % kinds,
                      (double)encode * 1e-9, (double)decode * 1e-9);
        assert_true(encode < decode);
    }
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

static ith_status load_and_encode(ith_context *context, void *user)
{
    clip *video = user;
    float latents[16];
    ith_vae *vae = NULL;
    ith_status status = open_vae(context, MODEL, ITH_VAE_ENCODER, operand_kinds[OPERANDS_F32], &vae);
    if (!status)
        status = ith_vae_encode(context, vae, &(ith_vae_extent){1, 1, 1, NULL}, give_rows, video, latents, NULL);
    ith_vae_free(context, &vae);
    return status;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    float *pixels = waves(3 * 64);
    clip video = {pixels, 1, 8, 8, -1, 0};
    assert_true(refuse_every_allocation(load_and_encode, &video, 1) > 10);
    free(pixels);
}

/* ---- Configurations -------------------------------------------------------------------------------------------- */

static void other_encoders_are_refused_when_they_are_opened(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"\"in_channels\": 4", "in_channels"},
                                         {"\"attn_scales\": [0.5]", "attn_scales"},
                                         {"\"is_residual\": true, \"dim_mult\": [1, 2, 4, 8]", "numbers of channels"}};
    ith_context *context = new_context();
    for (int i = 0; i < 3; i++) {
        char text[256];
        char *folder = temporary_folder();
        ith_vae_config config;
        int64_t bytes = 0;
        snprintf(text, sizeof text, "{\"_class_name\": \"AutoencoderKLWan\", %s}", bad[i][0]);
        temporary_write(temporary_path(folder, "config.json"), text, strlen(text));
        assert_int_equal(ith_vae_config_read(context, folder, &config), ITH_OK);
        temporary_remove(folder);
        assert_int_equal(ith_vae_decode_bytes(context, &config, operand_kinds[OPERANDS_F32],
                                              &(ith_vae_extent){.height = 1, .width = 1}, &bytes),
                         ITH_OK);
        assert_int_equal(ith_vae_encode_bytes(context, &config, operand_kinds[OPERANDS_F32],
                                              &(ith_vae_extent){.height = 1, .width = 1}, &bytes),
                         ITH_ERR_UNSUPPORTED);
        assert_non_null(strstr(ith_context_error(context), bad[i][1]));
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_as_the_reference),
        cmocka_unit_test(encodes_images_as_the_reference),
        cmocka_unit_test(rows_are_taken_in_order),
        cmocka_unit_test(latents_do_not_depend_on_later_frames),
        cmocka_unit_test(low_strips_give_the_bits_of_a_whole_picture),
        cmocka_unit_test(a_caller_and_an_interruption_end_the_encoding),
        cmocka_unit_test(memory_is_as_predicted),
        cmocka_unit_test(large_pictures_take_less_memory_than_decoding),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(other_encoders_are_refused_when_they_are_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
