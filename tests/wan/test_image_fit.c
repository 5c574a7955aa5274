/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled pictures have the bits of Pillow's filters. Cuts of pictures; memory. */
#include "base/context.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "wan/image/image_fit.h"

#include <ithaca/files.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ith_image image_of(const ith_tensor *tensor)
{
    return (ith_image){sizeof(ith_image), tensor->data, tensor->shape[0], tensor->shape[1]};
}

/* Scales the pictures of a golden file with a filter; both ways to ask for the filter of Lanczos give the same. */
static void assert_scaled(const char *path, ith_image_filter filter)
{
    ith_tensor_file *file = NULL;
    check(context, ith_tensor_file_open(context, path, &file));
    int cases = 0;
    for (;; cases++) {
        char from_name[16], to_name[16];
        snprintf(from_name, sizeof from_name, "from_%d", cases);
        snprintf(to_name, sizeof to_name, "to_%d", cases);
        const ith_tensor *from = ith_tensor_file_find(file, from_name), *to = ith_tensor_file_find(file, to_name);
        if (!from)
            break;
        const ith_image image = image_of(from);
        const int64_t height = to->shape[0], width = to->shape[1];
        const ith_image_scaling scaling = {filter, height, width, height, width};
        uint8_t *rgb = malloc((size_t)to->bytes);
        const int64_t before = memory_of(context).current_bytes;
        check(context, ith_image_scale(context, &image, &scaling, rgb));
        assert_memory_equal(rgb, to->data, (size_t)to->bytes);
        if (filter == ITH_FILTER_LANCZOS) {
            memset(rgb, 0, (size_t)to->bytes);
            check(context, ith_image_fit(context, &image, ITH_FIT_STRETCH, height, width, rgb));
            assert_memory_equal(rgb, to->data, (size_t)to->bytes);
        }
        assert_int_equal(memory_of(context).current_bytes, before);
        free(rgb);
    }
    assert_int_equal(cases, 7);
    ith_tensor_file_close(&file);
}

static void pixels_are_those_of_pillow(void **state)
{
    (void)state;
    assert_scaled("golden/resize.safetensors", ITH_FILTER_LANCZOS);
    assert_scaled("golden/bicubic.safetensors", ITH_FILTER_CUBIC);
}

/* A picture that is scaled and cut has the pixels of the middle of the whole scaled picture. If an odd number of rows
 * is cut off, one more is cut off at the end. */
static void the_middle_remains(void **state)
{
    (void)state;
    enum { HEIGHT = 31, WIDTH = 26, WHOLE_HEIGHT = 24, WHOLE_WIDTH = 37, SIDE = 17 };
    uint8_t from[HEIGHT * WIDTH * 3], whole[WHOLE_HEIGHT * WHOLE_WIDTH * 3], cut[SIDE * SIDE * 3];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7919 >> 4);
    const ith_image image = {sizeof image, from, HEIGHT, WIDTH};
    const ith_image_scaling all = {ITH_FILTER_CUBIC, WHOLE_HEIGHT, WHOLE_WIDTH, WHOLE_HEIGHT, WHOLE_WIDTH};
    const ith_image_scaling middle = {ITH_FILTER_CUBIC, WHOLE_HEIGHT, WHOLE_WIDTH, SIDE, SIDE};
    check(context, ith_image_scale(context, &image, &all, whole));
    check(context, ith_image_scale(context, &image, &middle, cut));
    for (int row = 0; row < SIDE; row++)
        assert_memory_equal(cut + row * SIDE * 3, whole + ((row + 3) * WHOLE_WIDTH + 10) * 3, SIDE * 3);
}

/* A picture of 20 x 60 that covers 40 x 40 is scaled to 40 x 120; columns 40 to 79 remain. */
static void covering_cuts_the_middle_out(void **state)
{
    (void)state;
    enum { HEIGHT = 20, WIDTH = 60, SIDE = 40 };
    uint8_t from[HEIGHT * WIDTH * 3], whole[SIDE * 3 * SIDE * 3], cut[SIDE * SIDE * 3];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7919 >> 4);
    const ith_image image = {sizeof image, from, HEIGHT, WIDTH};
    check(context, ith_image_fit(context, &image, ITH_FIT_STRETCH, SIDE, 3 * SIDE, whole));
    check(context, ith_image_fit(context, &image, ITH_FIT_COVER, SIDE, SIDE, cut));
    for (int row = 0; row < SIDE; row++)
        assert_memory_equal(cut + row * SIDE * 3, whole + (row * 3 * SIDE + SIDE) * 3, SIDE * 3);
    /* if the number of columns to cut is odd, one column fewer is cut on the left */
    check(context, ith_image_fit(context, &image, ITH_FIT_COVER, HEIGHT, WIDTH - 3, cut));
    for (int row = 0; row < HEIGHT; row++)
        assert_memory_equal(cut + row * (WIDTH - 3) * 3, from + (row * WIDTH + 1) * 3, (WIDTH - 3) * 3);
    /* an image of the wanted size is copied */
    check(context, ith_image_fit(context, &image, ITH_FIT_COVER, HEIGHT, WIDTH, whole));
    assert_memory_equal(whole, from, sizeof from);
}

/* The side that is not given is the multiple next to the image's shape, and at least one multiple. */
static void the_other_side_follows_from_the_shape(void **state)
{
    (void)state;
    assert_int_equal(ith_image_side(832, 1664, 960, 16), 480);
    assert_int_equal(ith_image_side(832, 832, 487, 16), 480);
    assert_int_equal(ith_image_side(832, 832, 489, 16), 496);
    assert_int_equal(ith_image_side(64, 10000, 1, 16), 16);
}

/* A wide strip and the same strip turned upright give the same pixels, though one axis has far more taps than the
 * other. */
static void a_strip_is_scaled_along_both_axes(void **state)
{
    (void)state;
    enum { LONG = 4000, SIDE = 8 };
    static uint8_t from[LONG * 3];
    uint8_t across[SIDE * SIDE * 3], along[SIDE * SIDE * 3];
    for (int i = 0; i < LONG * 3; i++)
        from[i] = (uint8_t)(i / 3 * 255 / LONG);
    const ith_image wide = {sizeof wide, from, 1, LONG}, tall = {sizeof tall, from, LONG, 1};
    check(context, ith_image_fit(context, &wide, ITH_FIT_STRETCH, SIDE, SIDE, across));
    check(context, ith_image_fit(context, &tall, ITH_FIT_STRETCH, SIDE, SIDE, along));
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_memory_equal(across + (y * SIDE + x) * 3, along + (x * SIDE + y) * 3, 3);
}

static void memory_is_as_predicted(void **state)
{
    (void)state;
    static uint8_t from[300 * 200 * 3], to[64 * 64 * 3];
    const ith_image image = {sizeof image, from, 300, 200};
    ith_context *own = NULL;
    check(context, ith_context_create(NULL, &own));
    const int64_t before = memory_of(own).current_bytes;
    assert_int_equal(ith_image_fit(own, &image, ITH_FIT_COVER, 64, 64, to), ITH_OK);
    assert_int_equal(ith_context_peak_bytes(own) - before, ith_image_fit_bytes(&image, ITH_FIT_COVER, 64, 64));
    ith_context_destroy(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_pillow),        cmocka_unit_test(the_middle_remains),
        cmocka_unit_test(covering_cuts_the_middle_out),      cmocka_unit_test(the_other_side_follows_from_the_shape),
        cmocka_unit_test(a_strip_is_scaled_along_both_axes), cmocka_unit_test(memory_is_as_predicted)};
    return cmocka_run_group_tests_name("image_fit", tests, context_set_up, context_tear_down);
}
