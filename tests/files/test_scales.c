/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of fp8 and int8 weights in every form in which files have them; files that lack them, or have a quantisation
 * that is not known, are refused by name. */
#include "base/context.h"
#include "files/store.h"
#include "files/tensor.h"
#include "support/folder_fixture.h"
#include "support/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A tensor of a file: data are f32 numbers, bytes, or text. */
typedef struct part {
    const char *name;
    ith_dtype type;
    int dims;
    int64_t shape[3];
    const void *data;
} part;

static const unsigned char codes[6] = {1, 2, 3, 4, 5, 6};
static const float one[] = {0.5f}, rows[] = {0.5f, -2}, three[] = {1, 2, 3}, infinite[] = {INFINITY};

#define WEIGHT(type)                                                                                                   \
    {                                                                                                                  \
        "m.weight", type, 2, {2, 3}, codes                                                                             \
    }
#define SCALE(name, dims, ...)                                                                                         \
    {                                                                                                                  \
        name, ITH_F32, dims, __VA_ARGS__                                                                               \
    }
#define TEXT(name, text)                                                                                               \
    {                                                                                                                  \
        name, ITH_U8, 1, {sizeof text - 1}, text                                                                       \
    }
#define ROTATED "{\"format\": \"int8_tensorwise\", \"params\": {\"convrot\": true, \"convrot_groupsize\": 256}}"
#define E4M3 "{\"format\": \"float8_e4m3fn\"}"

/* Writes and opens a file with these tensors, up to one without a name, and perhaps quantisation metadata. */
static ith_status open_parts(const part *parts, const char *metadata, ith_store **store)
{
    ith_tensor tensors[8];
    int64_t count = 0;
    const char *path = temporary_path(folder, "x.safetensors"), *key = "_quantization_metadata";
    for (; parts[count].name; count++) {
        tensors[count] = (ith_tensor)ITH_TENSOR_INIT;
        tensors[count].name = parts[count].name, tensors[count].dtype = parts[count].type;
        tensors[count].dims = parts[count].dims, tensors[count].data = parts[count].data;
        memcpy(tensors[count].shape, parts[count].shape, sizeof parts[count].shape);
        assert_true(
            ith_tensor_bytes(tensors[count].dtype, tensors[count].dims, tensors[count].shape, &tensors[count].bytes));
    }
    if (ith_tensor_file_write(context, path, tensors, count, &key, &metadata, metadata ? 1 : 0))
        fail_msg("%s", ith_context_error(context));
    return ith_store_open_files(context, &path, 1, NULL, store);
}

/* Files whose weight "m.weight" has these scales. */
static const struct {
    part parts[6];
    const char *metadata;
    ith_dtype type;
    const float *scale;
    int64_t stride;
} good[] = {
    {{WEIGHT(ITH_F8_E4M3)}, NULL, ITH_F8_E4M3, NULL, 0},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 0, {0}, one)}, NULL, ITH_F8_E4M3, one, 0},
    {{WEIGHT(ITH_F8_E5M2), SCALE("m.weight_scale", 1, {1}, one)}, NULL, ITH_F8_E5M2, one, 0},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.weight_scale", 2, {2, 1}, rows)}, NULL, ITH_F8_E4M3, rows, 1},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 2, {2, 1}, rows)}, NULL, ITH_I8, rows, 1},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 1, {2}, rows)}, NULL, ITH_I8, rows, 1},
    {{WEIGHT(ITH_F8_E4M3),
      SCALE("m.scale_weight", 0, {0}, one),
      SCALE("m.scale_input", 0, {0}, one),
      SCALE("m.input_scale", 0, {0}, one),
      {"scaled_fp8", ITH_F8_E4M3, 1, {0}, codes}},
     NULL,
     ITH_F8_E4M3,
     one,
     0},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 0, {0}, one), {"scaled_fp8", ITH_F8_E4M3, 1, {2}, codes}},
     NULL,
     ITH_F8_E4M3,
     one,
     0},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.weight_scale", 0, {0}, one), TEXT("m.comfy_quant", E4M3)},
     NULL,
     ITH_F8_E4M3,
     one,
     0},
    {{WEIGHT(ITH_U8), SCALE("m.weight_scale", 0, {0}, one), TEXT("m.comfy_quant", E4M3)}, NULL, ITH_F8_E4M3, one, 0},
    {{WEIGHT(ITH_U8), SCALE("m.weight_scale", 0, {0}, one),
      TEXT("m.comfy_quant", "{\"format\": \"float8_e5m2\", \"convrot\": false}")},
     NULL,
     ITH_F8_E5M2,
     one,
     0},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one), TEXT("m.comfy_quant", "{\"format\": \"int8_tensorwise\"}")},
     NULL,
     ITH_I8,
     one,
     0},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one),
      TEXT("m.comfy_quant", "{\"format\": \"int8_tensorwise\", \"convrot\": false, \"params\": {\"convrot\": true}}")},
     NULL,
     ITH_I8,
     one,
     0},
    {{WEIGHT(ITH_U8), SCALE("m.weight_scale", 0, {0}, one)}, "{\"layers\": {\"m\": " E4M3 "}}", ITH_F8_E4M3, one, 0},
};

static void scales_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ith_store *store = NULL;
        const ith_tensor *tensor = NULL;
        const float *scale = NULL, *again = NULL;
        int64_t stride = -1;
        if (open_parts(good[i].parts, good[i].metadata, &store))
            fail_msg("case %zu: %s", i, ith_context_error(context));
        assert_int_equal(ith_store_take(context, store, "m.weight", 2, (int64_t[]){2, 3}, &tensor), ITH_OK);
        assert_int_equal(tensor->dtype, good[i].type);
        assert_int_equal(ith_store_scale(context, store, tensor, &scale, &stride), ITH_OK);
        assert_int_equal(stride, good[i].stride);
        assert_true(!scale == !good[i].scale);
        for (int row = 0; scale && row < 2; row++)
            assert_true(scale[row * stride] == good[i].scale[row * stride]);
        assert_int_equal(ith_store_scale(context, store, tensor, &again, &stride), ITH_OK);
        assert_ptr_equal(scale, again);
        if (ith_store_check_all_taken(context, store))
            fail_msg("case %zu: %s", i, ith_context_error(context));
        ith_store_close(&store);
        assert_int_equal(memory_of(context).current_bytes, 0);
    }
}

static const struct {
    part parts[6];
    const char *metadata;
    ith_status status;
    const char *word;
} bad[] = {
    {{WEIGHT(ITH_F8_E4M3), {"scaled_fp8", ITH_F8_E4M3, 1, {2}, codes}},
     NULL,
     ITH_ERR_FORMAT,
     "'m.weight' is of type f8_e4m3 and lacks"},
    {{WEIGHT(ITH_F8_E4M3), {"a.weight", ITH_F8_E4M3, 2, {2, 3}, codes}, SCALE("m.scale_weight", 0, {0}, one)},
     NULL,
     ITH_ERR_FORMAT,
     "'a.weight' is of type f8_e4m3 and lacks"},
    {{WEIGHT(ITH_I8)}, NULL, ITH_ERR_FORMAT, "'m.weight' is of type i8 and lacks"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", E4M3)}, NULL, ITH_ERR_FORMAT, "lacks its scales"},
    {{WEIGHT(ITH_U8)}, "{\"layers\": {\"m\": " E4M3 "}}", ITH_ERR_FORMAT, "lacks its scales"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", "{\"format\": \"nvfp4\"}")}, NULL, ITH_ERR_UNSUPPORTED, "'nvfp4'"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", "{\"format\": \"mxfp8\"}")}, NULL, ITH_ERR_UNSUPPORTED, "'mxfp8'"},
    {{WEIGHT(ITH_U8)}, "{\"layers\": {\"m\": {\"format\": \"w4a4\"}}}", ITH_ERR_UNSUPPORTED, "'w4a4'"},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one),
      TEXT("m.comfy_quant", "{\"format\": \"int8_tensorwise\", \"convrot\": true}")},
     NULL,
     ITH_ERR_UNSUPPORTED,
     "rotated"},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one),
      TEXT("m.comfy_quant", "{\"format\": \"int8_tensorwise\", \"convrot\": 256}")},
     NULL,
     ITH_ERR_UNSUPPORTED,
     "rotated"},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one), TEXT("m.comfy_quant", ROTATED)},
     NULL,
     ITH_ERR_UNSUPPORTED,
     "'m.weight' has the quantisation 'int8_tensorwise' and is rotated"},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one)},
     "{\"layers\": {\"m\": " ROTATED "}}",
     ITH_ERR_UNSUPPORTED,
     "rotated"},
    {{WEIGHT(ITH_I8), SCALE("m.weight_scale", 0, {0}, one)},
     "{\"layers\": {\"model.m\": " ROTATED "}}",
     ITH_ERR_UNSUPPORTED,
     "layer 'model.m' is rotated"},
    {{WEIGHT(ITH_F8_E5M2), SCALE("m.weight_scale", 0, {0}, one), TEXT("m.comfy_quant", E4M3)},
     NULL,
     ITH_ERR_FORMAT,
     "but the type f8_e5m2"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", "{\"format\"")}, NULL, ITH_ERR_FORMAT, "'m.comfy_quant' is not a JSON"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", "[]")}, NULL, ITH_ERR_FORMAT, "'m.comfy_quant' is not a JSON"},
    {{WEIGHT(ITH_U8), TEXT("m.comfy_quant", "{}")}, NULL, ITH_ERR_UNSUPPORTED, "the quantisation ''"},
    {{WEIGHT(ITH_U8), SCALE("m.comfy_quant", 1, {1}, one)}, NULL, ITH_ERR_FORMAT, "'m.comfy_quant' is not a JSON"},
    {{WEIGHT(ITH_U8)}, "{\"layers\": []}", ITH_ERR_FORMAT, "_quantization_metadata"},
    {{WEIGHT(ITH_U8)}, "nonsense", ITH_ERR_FORMAT, "_quantization_metadata"},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 1, {3}, three)},
     NULL,
     ITH_ERR_FORMAT,
     "does not hold scales of 2 rows"},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 3, {2, 1, 1}, rows)}, NULL, ITH_ERR_FORMAT, "does not hold scales"},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 2, {1, 2}, rows)}, NULL, ITH_ERR_FORMAT, "does not hold scales"},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 1, {0}, rows)}, NULL, ITH_ERR_FORMAT, "does not hold scales"},
    {{WEIGHT(ITH_F8_E4M3), {"m.scale_weight", ITH_U8, 1, {1}, codes}}, NULL, ITH_ERR_FORMAT, "does not hold scales"},
    {{WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 0, {0}, one), SCALE("m.weight_scale", 0, {0}, one)},
     NULL,
     ITH_ERR_FORMAT,
     "two kinds of scales"},
    {{{"m.weight", ITH_F32, 1, {3}, three}, SCALE("m.scale_weight", 0, {0}, one)},
     NULL,
     ITH_ERR_FORMAT,
     "is of type f32, not fp8"},
};

static void lies_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ith_store *store = NULL;
        if (open_parts(bad[i].parts, bad[i].metadata, &store) != bad[i].status)
            fail_msg("case %zu: %s", i, ith_context_error(context));
        if (!strstr(ith_context_error(context), bad[i].word) || !strstr(ith_context_error(context), "x.safetensors"))
            fail_msg("case %zu: '%s' is not in: %s", i, bad[i].word, ith_context_error(context));
        assert_null(store);
        assert_int_equal(memory_of(context).current_bytes, 0);
    }
}

static void scales_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    static const part parts[] = {WEIGHT(ITH_F8_E4M3), SCALE("m.scale_weight", 0, {0}, infinite), {0}};
    ith_store *store = NULL;
    const ith_tensor *tensor = NULL;
    const float *scale;
    int64_t stride;
    assert_int_equal(open_parts(parts, NULL, &store), ITH_OK);
    assert_int_equal(ith_store_take(context, store, "m.weight", 2, (int64_t[]){2, 3}, &tensor), ITH_OK);
    assert_int_equal(ith_store_scale(context, store, tensor, &scale, &stride), ITH_ERR_FORMAT);
    assert_null(scale);
    assert_non_null(strstr(ith_context_error(context), "'m.weight' is not finite"));
    ith_store_close(&store);
}

/* Scales without a weight are unknown tensors, as any others. */
static void scales_of_nothing_are_unknown(void **state)
{
    (void)state;
    static const part parts[] = {SCALE("m.scale_weight", 0, {0}, one), {0}};
    ith_store *store = NULL;
    assert_int_equal(open_parts(parts, NULL, &store), ITH_OK);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    ith_store_close(&store);
}

/* A layer's name must be the whole name of the module, not only the end of another module's name. */
static void layers_of_like_names_are_apart(void **state)
{
    (void)state;
    static const part parts[] = {WEIGHT(ITH_U8),
                                 SCALE("m.weight_scale", 0, {0}, one),
                                 {"a.m.weight", ITH_F8_E4M3, 2, {2, 3}, codes},
                                 SCALE("a.m.weight_scale", 0, {0}, one),
                                 {0}};
    ith_store *store = NULL;
    if (open_parts(parts, "{\"layers\": {\"m\": " E4M3 "}}", &store))
        fail_msg("%s", ith_context_error(context));
    ith_store_close(&store);
}

/* Opening takes linear time, and memory for few JSON values, whatever the metadata claim. */
static void many_layers_take_no_time(void **state)
{
    (void)state;
    enum { LAYERS = 20000, VALUES = 3000000 };
    const char *path = temporary_path(folder, "x.safetensors"), *key = "_quantization_metadata";
    char(*names)[16] = calloc(LAYERS, sizeof *names), *text = malloc(LAYERS * 48), *end = text;
    ith_tensor *tensors = calloc(LAYERS, sizeof *tensors);
    assert_true(names && text && tensors);
    end += sprintf(end, "{\"layers\": {\"a\": {}");
    for (int i = 0; i < LAYERS; i++) {
        tensors[i] = (ith_tensor)ITH_TENSOR_INIT;
        tensors[i].name = names[i], tensors[i].dtype = ITH_F32, tensors[i].dims = 1;
        sprintf(names[i], "%d.weight", i);
        end += sprintf(end, ", \"b%d\": {}", i);
    }
    strcpy(end, "}}");
    const char *value = text;
    assert_int_equal(ith_tensor_file_write(context, path, tensors, LAYERS, &key, &value, 1), ITH_OK);
    const clock_t begin = clock();
    ith_store *store = NULL;
    assert_int_equal(ith_store_open_files(context, &path, 1, NULL, &store), ITH_OK);
    assert_true(clock() - begin < CLOCKS_PER_SEC);
    ith_store_close(&store);
    free(names), free(text), free(tensors);
    text = malloc(2 * VALUES + 32);
    assert_non_null(text);
    strcpy(text, "{\"layers\": [1");
    for (int64_t i = 0, at = (int64_t)strlen(text); i < VALUES; i++)
        memcpy(text + at + 2 * i, ",1", 3);
    strcat(text, "]}");
    static const part parts[] = {WEIGHT(ITH_U8), {0}};
    assert_int_equal(open_parts(parts, text, &store), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "x.safetensors: _quantization_metadata: has more than"));
    free(text);
}

/* Only matrices of layers have scales: no vector, and no table. */
static void other_numbers_need_no_scales(void **state)
{
    (void)state;
    static const part parts[] = {WEIGHT(ITH_F8_E4M3),
                                 SCALE("m.scale_weight", 0, {0}, one),
                                 {"norm.weight", ITH_F8_E4M3, 1, {3}, codes},
                                 {"table", ITH_F8_E4M3, 2, {2, 3}, codes},
                                 {0}};
    ith_store *store = NULL;
    assert_int_equal(open_parts(parts, NULL, &store), ITH_OK);
    ith_store_close(&store);
}

/* The metadata of a shard are about its own tensors. */
static void formats_of_a_shard_are_its_own(void **state)
{
    (void)state;
    static const part own[] = {WEIGHT(ITH_U8), SCALE("m.weight_scale", 0, {0}, one), {0}};
    static const part other[] = {{"o.weight", ITH_U8, 2, {2, 3}, codes}, {0}};
    ith_store *store = NULL;
    const ith_tensor *tensor = NULL;
    assert_int_equal(open_parts(own, "{\"layers\": {\"m\": " E4M3 ", \"o\": " E4M3 "}}", &store), ITH_OK);
    ith_store_close(&store);
    char *first = strdup(temporary_path(folder, "first.safetensors"));
    assert_non_null(first);
    temporary_require(rename(temporary_path(folder, "x.safetensors"), first) == 0, first);
    assert_int_equal(open_parts(other, NULL, &store), ITH_OK);
    ith_store_close(&store);
    const char *paths[] = {first, temporary_path(folder, "x.safetensors")};
    assert_int_equal(ith_store_open_files(context, paths, 2, NULL, &store), ITH_OK);
    assert_int_equal(ith_store_take(context, store, "o.weight", 2, (int64_t[]){2, 3}, &tensor), ITH_ERR_UNSUPPORTED);
    assert_int_equal(ith_store_take(context, store, "m.weight", 2, (int64_t[]){2, 3}, &tensor), ITH_OK);
    assert_int_equal(tensor->dtype, ITH_F8_E4M3);
    ith_store_close(&store);
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scales_are_found, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(lies_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(scales_that_are_not_finite_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(scales_of_nothing_are_unknown, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(layers_of_like_names_are_apart, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(other_numbers_need_no_scales, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(formats_of_a_shard_are_its_own, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(many_layers_take_no_time, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
