/* SPDX-License-Identifier: Apache-2.0 */
/* CLIP's image encoder and its image processor compared with transformers, with any number of threads: an encoder of
 * odd sizes (golden/clip, tools/make_vision_golden.py), with the names of transformers and of the original code. */
#include "files/store.h"
#include "support/compare.h"
#include "support/engine/altered_component.h"
#include "support/engine/find_tensor.h"
#include "support/engine/kinds.h"
#include "support/engine/misaligned.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/names/module_names.h"
#include "wan/vision/vision_encoder.h"
#include "wan/vision/vision_pixels.h"

#include <ithaca/files.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIP "golden/clip"
#define WEIGHTS CLIP "/model.safetensors"
#define MODEL "vision_model."
enum { DIM = 40, TOKENS = 10, NUMBERS = TOKENS * DIM, PICTURES = 2 };

static const ith_vision_config no_config;

/* Opens a weight file with the names of any form. */
static ith_status open_store(ith_context *own, const char *path, ith_store **store)
{
    const ith_store_names names = {ith_vision_name, NULL};
    return ith_store_open_files(own, &path, 1, &names, store);
}

static ith_status read_config(ith_context *own, const char *folder, ith_vision_config *config)
{
    *config = no_config;
    ith_status status = ith_vision_config_read(own, folder, config);
    return status ? status : ith_vision_processor_read(own, folder, config);
}

static ith_status open_encoder(ith_context *own, const char *folder, const char *path, ith_operand_types types,
                               bool keeps_packed, ith_vision_encoder **out)
{
    ith_vision_config config;
    ith_store *store = NULL;
    *out = NULL;
    ith_status status = read_config(own, folder, &config);
    if (!status)
        status = open_store(own, path, &store);
    return status ? status : ith_vision_encoder_open(own, &config, store, types, keeps_packed, out);
}

static ith_vision_encoder *load(const char *path, int kind)
{
    ith_vision_encoder *encoder = NULL;
    check(context, open_encoder(context, CLIP, path, operand_kinds[kind], false, &encoder));
    return encoder;
}

static ith_tensor_file *open_expected(void)
{
    ith_tensor_file *file = NULL;
    check(context, ith_tensor_file_open(context, CLIP "/expected.safetensors", &file));
    return file;
}

static const ith_tensor *numbered(const ith_tensor_file *file, const char *name, int number)
{
    char whole[32];
    snprintf(whole, sizeof whole, "%s_%d", name, number);
    return find_tensor(file, whole);
}

static ith_image picture_of(const ith_tensor_file *file, int number)
{
    const ith_tensor *picture = numbered(file, "picture", number);
    return (ith_image){sizeof(ith_image), picture->data, picture->shape[0], picture->shape[1]};
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The numbers of all patches together have the bits of the processor's pixels. */
static void pixels_are_those_of_the_processor(void **state)
{
    (void)state;
    ith_tensor_file *golden = open_expected();
    ith_vision_config c;
    check(context, read_config(context, CLIP, &c));
    assert_true(c.resize > c.image);
    for (int number = 0; number < PICTURES; number++) {
        const ith_image image = picture_of(golden, number);
        const float *wanted = numbered(golden, "pixels", number)->data;
        float space[3 * 14 * 14];
        ith_vision_pixels pixels;
        ith_arena arena = {0};
        ith_vision_pixels_lay_out(&c, &arena, &pixels);
        check(context, ith_arena_allocate(context, &arena, "pixels"));
        ith_vision_pixels_lay_out(&c, &arena, &pixels);
        check(context, ith_vision_pixels_read(context, &c, &image, &pixels));
        for (int patch = 0; patch < TOKENS - 1; patch++) {
            const float *row = ith_vision_patch_row(&pixels, patch, space);
            for (int i = 0; i < 3 * 14 * 14; i++) {
                const int colour = i / (14 * 14), y = patch / 3 * 14 + i / 14 % 14, x = patch % 3 * 14 + i % 14;
                assert_true(row[i] == wanted[(colour * 42 + y) * 42 + x]);
            }
        }
        ith_free(context, arena.base);
    }
    ith_tensor_file_close(&golden);
}

/* The largest relative L2 over the pictures. name: the expected rows. */
static double error_of(const ith_vision_encoder *encoder, const char *name)
{
    ith_tensor_file *golden = open_expected();
    double worst = 0;
    for (int number = 0; number < PICTURES; number++) {
        float rows[NUMBERS];
        const ith_image image = picture_of(golden, number);
        check(context, ith_vision_encode(context, encoder, &image, rows, NULL));
        const double error = relative_l2(rows, numbered(golden, name, number)->data, NUMBERS);
        worst = larger_error(worst, error);
    }
    ith_tensor_file_close(&golden);
    return worst;
}

static void rows_are_those_of_transformers(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        ith_vision_encoder *encoder = load(WEIGHTS, kind);
        const double error = error_of(encoder, "rows");
        print_message("largest relative L2: %s %.2g\n", ith_dtype_name(operand_kinds[kind].rounded), error);
        assert_true(kind == OPERANDS_F32 ? error <= 1e-5 : error > 1e-5 && error <= 2e-2);
        ith_vision_encoder_free(context, &encoder);
    }
}

/* Makes a folder with the golden files' configurations, where `to` replaces `from` in one of them. */
static char *other_folder(const char *name, const char *from, const char *to)
{
    static const char *const names[] = {"config.json", "preprocessor_config.json"};
    char *folder = temporary_folder();
    for (int i = 0; i < 2; i++) {
        const bool changes = !strcmp(names[i], name);
        char whole[64];
        snprintf(whole, sizeof whole, CLIP "/%s", names[i]);
        copy_text_with(whole, temporary_path(folder, names[i]), changes ? from : "{", changes ? to : "{");
    }
    return folder;
}

static void quick_gelu_is_another_activation(void **state)
{
    (void)state;
    char *folder = other_folder("config.json", "\"gelu\"", "\"quick_gelu\"");
    ith_vision_encoder *encoder = NULL;
    check(context, open_encoder(context, folder, WEIGHTS, operand_kinds[OPERANDS_F32], false, &encoder));
    assert_true(error_of(encoder, "quick") <= 1e-5);
    assert_true(error_of(encoder, "rows") > 1e-4);
    ith_vision_encoder_free(context, &encoder);
    temporary_remove(folder);
}

static void encode_first(const ith_vision_encoder *encoder, float rows[NUMBERS])
{
    ith_tensor_file *golden = open_expected();
    const ith_image image = picture_of(golden, 0);
    check(context, ith_vision_encode(context, encoder, &image, rows, NULL));
    ith_tensor_file_close(&golden);
}

/* Checks that the encoder of a weight file computes the bits of the encoder of the golden weights. */
static void assert_same_bits(const char *path, ith_operand_types types, bool keeps_packed)
{
    float rows[NUMBERS], wanted[NUMBERS];
    ith_vision_encoder *usual = NULL, *encoder = NULL;
    check(context, open_encoder(context, CLIP, WEIGHTS, types, false, &usual));
    check(context, open_encoder(context, CLIP, path, types, keeps_packed, &encoder));
    encode_first(usual, wanted), encode_first(encoder, rows);
    assert_memory_equal(rows, wanted, sizeof rows);
    ith_vision_encoder_free(context, &usual);
    ith_vision_encoder_free(context, &encoder);
}

static void names_of_other_forms_give_the_same_bits(void **state)
{
    (void)state;
    static const tensor_change forms[] = {{.renamed = MODEL, .name = ""}, {.with = MODEL "embeddings.position_ids"}};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "model.safetensors");
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        assert_same_bits(CLIP "/original.safetensors", operand_kinds[kind], false);
    for (int i = 0; i < 2; i++) {
        copy_tensors_with(context, WEIGHTS, path, &forms[i]);
        assert_same_bits(path, ith_operands_f32(), false);
    }
    copy_tensors_with(context, CLIP "/original.safetensors", path,
                      &(tensor_change){.renamed = "visual.", .name = "", .with = "textual.norm.weight"});
    assert_same_bits(path, ith_operands_f32(), false);
    temporary_remove(folder);
}

/* A folder that transformers wrote is opened without a change of names. Files of versions before 4.31 number the
 * positions. */
static void canonical_names_need_no_change(void **state)
{
    (void)state;
    static const tensor_change forms[] = {{0}, {.with = MODEL "embeddings.position_ids"}};
    char *folder = temporary_folder();
    ith_vision_config config;
    check(context, read_config(context, CLIP, &config));
    for (int i = 0; i < 2; i++) {
        ith_store *store = NULL;
        copy_tensors_with(context, WEIGHTS, temporary_path(folder, "model.safetensors"), &forms[i]);
        check(context, ith_store_open(context, folder, "model", ITH_STORE_FILE_FIRST, &store));
        check(context, ith_vision_encoder_check(context, &config, store));
        ith_store_close(&store);
    }
    temporary_remove(folder);
}

static void packed_and_misaligned_weights_give_the_same_bits(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "model.safetensors");
    write_misaligned(WEIGHTS, path);
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        assert_same_bits(path, operand_kinds[kind], false);
        assert_same_bits(WEIGHTS, operand_kinds[kind], true);
    }
    temporary_remove(folder);
}

/* The files may lack the last layer, the norm after it and the projection, because these are not computed. */
static void the_last_layer_is_not_needed(void **state)
{
    (void)state;
    static const char *const rest[] = {MODEL "encoder.layers.2.", MODEL "post_layernorm.", "visual_projection"};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "model.safetensors");
    for (int i = 0; i < 3; i++) {
        copy_tensors_with(context, WEIGHTS, path, &(tensor_change){.without = rest[i]});
        assert_same_bits(path, ith_operands_f32(), false);
    }
    temporary_remove(folder);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        ith_vision_encoder *encoder = load(WEIGHTS, kind);
        float rows[NUMBERS], first[NUMBERS];
        encode_first(encoder, first);
        for (int threads = 1; threads <= 8; threads++) {
            omp_set_num_threads(threads);
            encode_first(encoder, rows);
            assert_memory_equal(rows, first, sizeof rows);
        }
        omp_set_num_threads(before);
        ith_vision_encoder_free(context, &encoder);
    }
}

/* ---- Progress, memory and work ----------------------------------------------------------------------------------- */

/* Stops the encoder when the rows and one layer are complete. */
static void stop_in_the_second(void *user, int stage, int64_t done, int64_t total)
{
    (void)done, (void)total;
    int *parts = user;
    if (stage == ITH_STAGE_IMAGE && ++*parts == 2)
        ith_context_interrupt(context);
}

/* An encoder that is stopped says in which layer. Before the first layer, it makes the rows. */
static void encoding_can_be_stopped(void **state)
{
    (void)state;
    int parts = 0;
    ith_observer observer = {.show = stop_in_the_second, .user = &parts};
    const ith_span span = {ITH_STAGE_IMAGE, 0, 100, 100};
    ith_tensor_file *golden = open_expected();
    const ith_image image = picture_of(golden, 0);
    float rows[NUMBERS];
    ith_vision_encoder *encoder = load(WEIGHTS, OPERANDS_F32);
    ith_observer_open(&observer);
    ith_context_set_observer(context, &observer);
    assert_int_equal(ith_vision_encode(context, encoder, &image, rows, &span), ITH_ERR_INTERRUPTED);
    assert_string_equal(ith_context_error(context), "stopped in layer 2 of 2 of the image encoder");
    assert_int_equal(ith_vision_encode(context, encoder, &image, rows, &span), ITH_ERR_INTERRUPTED);
    assert_null(strstr(ith_context_error(context), "layer"));
    ith_context_end_interruption(context);
    check(context, ith_vision_encode(context, encoder, &image, rows, &span));
    ith_context_set_observer(context, NULL);
    ith_observer_close(&observer);
    ith_vision_encoder_free(context, &encoder);
    ith_tensor_file_close(&golden);
}

typedef struct meter {
    failing_allocator allocator;
    ith_context *context;
    long calls; /* calls of the allocator at the end of the previous part */
    int parts;
    int64_t done; /* the progress that was shown last */
} meter;

/* Called when the rows are made, and at the end of each layer. */
static void meter_part(void *user, int stage, int64_t done, int64_t total)
{
    meter *m = user;
    if (stage != ITH_STAGE_IMAGE)
        return;
    assert_true(done > m->done && done <= total);
    m->done = done;
    if (m->parts++)
        assert_int_equal(atomic_load(&m->allocator.calls), m->calls);
    m->calls = atomic_load(&m->allocator.calls);
}

/* The bytes that the open files of the encoder take, which do not follow from its configuration. */
static int64_t file_bytes(ith_context *own)
{
    ith_store *store = NULL;
    const int64_t before = memory_of(own).current_bytes;
    check(own, open_store(own, WEIGHTS, &store));
    const int64_t bytes = memory_of(own).current_bytes - before;
    ith_store_close(&store);
    return bytes;
}

static void check_memory(ith_operand_types types, bool keeps_packed, const ith_image *image)
{
    meter m = {0};
    ith_observer observer = {.show = meter_part, .user = &m};
    const ith_span span = {ITH_STAGE_IMAGE, 0, 100, 100};
    ith_vision_config config;
    ith_vision_encoder *encoder = NULL;
    float rows[NUMBERS];
    int64_t predicted = 0;
    m.context = failing_context(&m.allocator, -1);
    ith_observer_open(&observer);
    ith_context_set_observer(m.context, &observer);
    const int64_t files = file_bytes(m.context);
    check(m.context, read_config(m.context, CLIP, &config));
    check(m.context, ith_vision_encoder_bytes(m.context, &config, types, keeps_packed, image, &predicted));
    check(m.context, open_encoder(m.context, CLIP, WEIGHTS, types, keeps_packed, &encoder));
    check(m.context, ith_vision_encode(m.context, encoder, image, rows, &span));
    assert_true(m.parts == 3 && m.done == 100);
    assert_int_equal(memory_of(m.context).peak_bytes - files, predicted);
    ith_vision_encoder_free(m.context, &encoder);
    assert_int_equal(memory_of(m.context).current_bytes, 0);
    ith_context_set_observer(m.context, NULL);
    ith_observer_close(&observer);
    ith_context_destroy(&m.context);
}

/* Encoding holds the predicted memory, for a small picture and for one whose scaling needs more than the attention, and
 * allocates nothing between the first layer and the last. */
static void memory_is_predicted(void **state)
{
    (void)state;
    enum { HEIGHT = 3000, WIDTH = 70 };
    static uint8_t rgb[HEIGHT * WIDTH * 3];
    const int threads = omp_get_max_threads();
    for (int i = 0; i < 4 * operand_kinds_here(context); i++) {
        const ith_image image = {sizeof image, rgb, i % 2 ? HEIGHT : 20, WIDTH};
        omp_set_num_threads(i % 4 + 1);
        check_memory(operand_kinds[i / 4], i & 2, &image);
    }
    omp_set_num_threads(threads);
}

static void add_operations(void *user, const ith_work *work)
{
    double *sums = user;
    if (work->kind == ITH_WORK_OF_ROWS)
        assert_true(work->bytes > 0);
    else
        sums[work->kind == ITH_WORK_OF_ATTENTION] += work->times * work->operations;
}

/* The work of two layers: 4 dim^2 + 2 dim ffn_dim products a row. */
static void the_work_is_listed(void **state)
{
    (void)state;
    double sums[2] = {0, 0};
    ith_vision_config config;
    check(context, read_config(context, CLIP, &config));
    check(context,
          ith_vision_encoder_list(context, &config, ith_operands_f32(), &(ith_work_list){add_operations, sums}));
    assert_true(sums[0] == 2.0 * (9 * 588 * 40 + 2 * 10 * (4 * 40 * 40 + 2 * 40 * 52)));
    assert_true(sums[1] == 2 * 4.0 * 10 * 10 * 40);
}

/* ---- Wrong files ------------------------------------------------------------------------------------------------- */

/* Checks that the configuration in a folder or the weights `path` are refused when they are opened and, in the same
 * way, when they are checked. */
static void expect_refused(const char *folder, const char *path, ith_status wanted, const char *words)
{
    ith_vision_encoder *encoder = NULL;
    ith_vision_config config;
    ith_store *store = NULL;
    ith_status status = read_config(context, folder, &config);
    if (!status)
        status = open_store(context, path, &store);
    if (!status)
        status = ith_vision_encoder_check(context, &config, store);
    ith_store_close(&store);
    for (int opens = 0; opens < 2; opens++) {
        if (status != wanted || !strstr(ith_context_error(context), words))
            fail_msg("wanted %s with '%s', got %s: %s", ith_status_name(wanted), words, ith_status_name(status),
                     ith_context_error(context));
        status = open_encoder(context, folder, path, ith_operands_f32(), false, &encoder);
        assert_null(encoder);
    }
}

typedef struct edit {
    const char *from, *to;
    ith_status status;
    const char *words;
} edit;

static void refuse_edits(const char *name, const edit *edits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *folder = other_folder(name, edits[i].from, edits[i].to);
        expect_refused(folder, WEIGHTS, edits[i].status, edits[i].words);
        temporary_remove(folder);
    }
}

#define F ITH_ERR_FORMAT
#define U ITH_ERR_UNSUPPORTED

static void other_configurations_are_refused(void **state)
{
    (void)state;
    static const edit edits[] = {
        {"\"clip_vision_model\"", "\"siglip_vision_model\"", U, "model_type is \"siglip_vision_model\""},
        {"\"gelu\"", "\"gelu_new\"", U, "hidden_act is \"gelu_new\""},
        {"\"gelu\"", "null", U, "hidden_act is null"},
        {"\"num_channels\": 3", "\"num_channels\": 4", U, "num_channels is 4"},
        {"\"hidden_size\": 40", "\"hidden_size\": null", U, "hidden_size is null"},
        {"\"hidden_size\": 40", "\"hidden_size\": 41", F, "41 features cannot be divided into 2 heads"},
        {"\"hidden_size\": 40", "\"hidden_size\": 1048577", F, "hidden_size"},
        {"\"hidden_size\": 40", "\"hidden_size\": 80", F, "has the shape [40]; the configuration asks for [80]"},
        {"\"num_attention_heads\": 2", "\"num_attention_heads\": 0", F, "num_attention_heads"},
        {"\"image_size\": 42", "\"image_size\": 43", F, "43 pixels cannot be divided into patches of 14"},
        {"\"image_size\": 42", "\"image_size\": [42, 42]", F, "image_size"},
        {"\"image_size\": 42", "\"image_size\": 14336", F, "has 1048576 patches of 14; 1048575 are the most"},
        {"\"image_size\": 42", "\"image_size\": 20000", F, "image_size"},
        {"\"patch_size\": 14", "\"patch_size\": 1000", F, "patch_size"},
        {"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1", F, "the image encoder has one layer"},
        {"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2", U, "encoder.layers.2.layer_norm1.bias"},
        {"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 5", F, "encoder.layers.3.layer_norm1.weight' is missing"},
        {"\"layer_norm_eps\": 0.0001", "\"layer_norm_eps\": 1", F, "layer_norm_eps is 1"},
        {"\"layer_norm_eps\": 0.0001", "\"layer_norm_eps\": -1e-9", F, "layer_norm_eps is -1e-09"},
    };
    refuse_edits("config.json", edits, sizeof edits / sizeof *edits);
    char *folder = temporary_folder();
    expect_refused(folder, WEIGHTS, ITH_ERR_IO, "config.json");
    temporary_remove(folder);
}

static void other_processors_are_refused(void **state)
{
    (void)state;
#define SIZE "\"shortest_edge\": 47"
#define CROP "\"height\": 42"
    static const edit edits[] = {
        {"\"CLIPImageProcessor\"", "\"SiglipImageProcessor\"", U, "image_processor_type is \"SiglipImageProcessor\""},
        {"\"do_resize\": true", "\"do_resize\": false", U, "do_resize is false"},
        {"\"do_center_crop\": true", "\"do_center_crop\": false", U, "do_center_crop is false"},
        {"\"do_rescale\": true", "\"do_rescale\": 1", U, "do_rescale is 1"},
        {"\"do_normalize\": true", "\"do_normalize\": false", U, "do_normalize is false"},
        {"\"do_convert_rgb\": true", "\"do_convert_rgb\": false", U, "do_convert_rgb is false"},
        {"\"resample\": 3", "\"resample\": 2", U, "resample is 2"},
        {"{", "{\"do_pad\": true,", U, "do_pad is true"},
        {"{", "{\"use_square_size\": true,", U, "use_square_size is true"},
        {"{", "{\"default_to_square\": true,", U, "default_to_square is true"},
        {"{", "{\"feature_extractor_type\": \"ViTFeatureExtractor\",", U, "feature_extractor_type is \"ViT"},
        {"\"rescale_factor\": 0.00392156862745098", "\"rescale_factor\": 1", U, "rescale_factor is 1"},
        {SIZE, "\"shortest_edge\": 41", F, "a shorter side of 41 pixels"},
        {SIZE, "\"shortest_edge\": 47.5", U, "size is {\"shortest_edge\":47.5}; only a number or"},
        {SIZE, "\"height\": 47, \"width\": 47", U, "size is {\"height\":47,\"width\":47}"},
        {SIZE, "\"shortest_edge\": 47, \"longest_edge\": 90", U, "size is {"},
        {SIZE, "\"shortest_edge\": \"47\"", F, "shortest_edge"},
        {SIZE, "\"shortest_edge\": 1e30", U, "size is {"},
        {SIZE, "", U, "size is {}"},
        {CROP, "\"height\": 41", U, "crop_size is {"},
        {CROP, "\"height\": 42, \"depth\": 42", U, "crop_size is {"},
        {CROP ",", "", U, "crop_size is {\"width\":42}"},
        {"\"image_mean\": [", "\"image_mean\": [0.5,", F, "image_mean"},
        {"\"image_mean\": [", "\"image_mean\": 0.5, \"x\": [", F, "image_mean"},
        {"\"image_std\": [", "\"image_std\": [], \"x\": [", F, "image_std\" has 0 values"},
        {"\"image_std\": [", "\"image_std\": [1, 0, 1], \"x\": [", F, "colour 1 has the mean"},
        {"\"image_mean\": [", "\"image_mean\": [1, 1, 1e60], \"x\": [", F, "colour 2 has the mean 1e+60"},
    };
    refuse_edits("preprocessor_config.json", edits, sizeof edits / sizeof *edits);
    char *folder = other_folder("preprocessor_config.json", "\"crop_size\"", "\"crop_size\": 41, \"x\"");
    expect_refused(folder, WEIGHTS, U, "crop_size is 41, but the image encoder takes pictures of 42 x 42 pixels");
    remove(temporary_path(folder, "preprocessor_config.json"));
    expect_refused(folder, WEIGHTS, ITH_ERR_IO, "preprocessor_config.json");
    temporary_remove(folder);
}

/* Fields that are absent or null have transformers' defaults; sizes may be integers. The golden file has the default
 * colours of transformers. */
static void absent_fields_have_their_defaults(void **state)
{
    (void)state;
    static const char short_config[] = "{\"model_type\": \"clip_vision_model\"}";
    static const char *const processors[] = {"{}", "{\"size\": 224, \"crop_size\": 224, \"resample\": null}",
                                             "{\"image_mean\": null, \"image_std\": null, \"do_pad\": null}"};
    char *folder = temporary_folder();
    ith_vision_config c, golden;
    check(context, read_config(context, CLIP, &golden));
    temporary_write(temporary_path(folder, "config.json"), short_config, strlen(short_config));
    check(context, ith_vision_config_read(context, folder, &c));
    assert_true(c.image == 224 && c.patch == 32 && c.dim == 768 && c.heads == 12 && c.ffn_dim == 3072 &&
                c.layers == 12);
    assert_true(c.eps == 1e-5 && c.act == ITH_VISION_GELU_QUICK && c.resize == 224);
    assert_int_equal(ith_vision_tokens(&c), 50);
    for (int i = 0; i < 3; i++) {
        const ith_vision_config before = c;
        temporary_write(temporary_path(folder, "preprocessor_config.json"), processors[i], strlen(processors[i]));
        c.resize = 0;
        memset(c.mean, 0, sizeof c.mean), memset(c.std, 0, sizeof c.std);
        check(context, ith_vision_processor_read(context, folder, &c));
        assert_memory_equal(&c, &before, sizeof c);
        assert_memory_equal(c.mean, golden.mean, sizeof c.mean);
        assert_memory_equal(c.std, golden.std, sizeof c.std);
    }
    temporary_remove(folder);
}

static void other_weights_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        tensor_change change;
        ith_status status;
        const char *words;
    } cases[] = {
        {WEIGHTS, {.without = MODEL "embeddings.class"}, F, "embeddings.class_embedding' is missing"},
        {WEIGHTS, {.without = MODEL "pre_layrnorm.bias"}, F, "pre_layrnorm.bias' is missing"},
        {WEIGHTS, {.without = MODEL "encoder.layers.1.mlp.fc2.bias"}, F, "encoder.layers.1.mlp.fc2.bias' is missing"},
        {WEIGHTS, {.without = MODEL "encoder.layers.0.self_attn.v"}, F, "layers.0.self_attn.v_proj.weight' is missing"},
        {WEIGHTS, {.with = MODEL "embeddings.patch_embedding.bias"}, U, "patch_embedding.bias' is unknown"},
        {WEIGHTS, {.with = "decoder.conv1.weight"}, U, "decoder.conv1.weight' is unknown"},
        {WEIGHTS, {.resized = MODEL "embeddings.position_embedding.weight", .size = 11}, F, "has the shape [11, 40]"},
        {WEIGHTS, {.resized = MODEL "embeddings.patch_embedding.weight", .dim = 1, .size = 4}, F, "[40, 4, 14, 14]"},
        {WEIGHTS, {.resized = MODEL "encoder.layers.1.mlp.fc1.weight", .size = 53}, F, "has the shape [53, 40]"},
        {CLIP "/original.safetensors",
         {.resized = "visual.transformer.1.attn.to_qkv.weight", .size = 119},
         F,
         "encoder.layers.1.self_attn.qkv_proj.weight' has the shape [119, 40]"},
        {CLIP "/original.safetensors", {.resized = "visual.pos_embedding", .dim = 1, .size = 9}, F, "[1, 9, 40]"},
        {CLIP "/original.safetensors", {.with = "visual.patch_embedding.bias"}, U, "patch_embedding.bias' is unknown"},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "model.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_tensors_with(context, cases[i].path, path, &cases[i].change);
        expect_refused(CLIP, path, cases[i].status, cases[i].words);
    }
    expect_refused(CLIP, "golden/umt5/model.safetensors", F, "is missing");
    temporary_remove(folder);
}

/* ---- Sizes without a config.json --------------------------------------------------------------------------------- */

/* Writes the shapes of an encoder of two layers, in the names of transformers or of the original code. */
static void write_shapes(const char *path, bool original, int64_t dim, int64_t rows)
{
    const int64_t most = dim * 3 * 2 * 2 > rows * dim ? dim * 3 * 2 * 2 : rows * dim;
    float *zeros = calloc((size_t)most, sizeof *zeros);
    const ith_tensor tensors[] = {
        {.name = original ? "visual.patch_embedding.weight" : MODEL "embeddings.patch_embedding.weight",
         .dims = 4,
         .shape = {dim, 3, 2, 2}},
        {.name = original ? "visual.pos_embedding" : MODEL "embeddings.position_embedding.weight",
         .dims = original ? 3 : 2,
         .shape = {original ? 1 : rows, original ? rows : dim, dim}},
        {.name = original ? "visual.transformer.0.norm1.weight" : MODEL "encoder.layers.0.layer_norm1.weight",
         .dims = 1,
         .shape = {dim}},
        {.name = original ? "visual.transformer.1.norm1.weight" : MODEL "encoder.layers.1.layer_norm1.weight",
         .dims = 1,
         .shape = {dim}},
        {.name = original ? "visual.transformer.0.mlp.0.weight" : MODEL "encoder.layers.0.mlp.fc1.weight",
         .dims = 2,
         .shape = {3, dim}},
    };
    ith_tensor all[5];
    for (int i = 0; i < 5; i++) {
        all[i] = tensors[i];
        all[i].struct_size = sizeof all[i], all[i].dtype = ITH_F32, all[i].data = zeros, all[i].bytes = sizeof *zeros;
        for (int d = 0; d < all[i].dims; d++)
            all[i].bytes *= all[i].shape[d];
    }
    check(context, ith_tensor_file_write(context, path, all, 5, NULL, NULL, 0));
    free(zeros);
}

static void sizes_follow_from_shapes(void **state)
{
    (void)state;
    static const struct {
        bool original;
        int64_t dim, rows;
        ith_status status;
        const char *words;
    } cases[] = {
        {false, 160, 17, ITH_OK, ""},
        {true, 160, 17, ITH_OK, ""},
        {false, 40, 17, U, "rows have 40 features: without a config.json"},
        {true, 160, 18, F, "do not make an image encoder of CLIP"},
        {false, 160, 1, F, "do not make an image encoder of CLIP"},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "clip.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_store *store = NULL;
        ith_vision_config c;
        write_shapes(path, cases[i].original, cases[i].dim, cases[i].rows);
        check(context, open_store(context, path, &store));
        const ith_status status = ith_vision_config_find(context, i % 2 ? folder : NULL, store, &c);
        ith_store_close(&store);
        if (status != cases[i].status || (status && !strstr(ith_context_error(context), cases[i].words)))
            fail_msg("case %zu: %s", i, status ? ith_context_error(context) : "taken");
        if (status)
            continue;
        assert_true(c.image == 8 && c.patch == 2 && c.dim == 160 && c.heads == 2 && c.ffn_dim == 3 && c.layers == 2);
        assert_true(c.eps == 1e-5 && c.act == ITH_VISION_GELU && c.resize == 8 && c.mean[1] == 0.4578275);
    }
    temporary_remove(folder);
}

/* A config.json of an image encoder counts, whatever the shapes are; any other one does not. */
static void a_config_of_an_image_encoder_counts(void **state)
{
    (void)state;
    static const char *const others[] = {"{\"_class_name\": \"WanModel\", \"model_type\": \"i2v\"}",
                                         "{\"model_type\": \"clip\", \"architectures\": [\"CLIPModel\"]}"};
    char *folder = temporary_folder();
    ith_store *store = NULL;
    ith_vision_config found, read;
    check(context, open_store(context, WEIGHTS, &store));
    check(context, ith_vision_config_read(context, CLIP, &read));
    check(context, ith_vision_config_find(context, CLIP, store, &found));
    assert_memory_equal(&found, &read, sizeof found);
    assert_true(found.heads == 2 && found.eps == 1e-4);
    for (int i = 0; i < 2; i++) {
        temporary_write(temporary_path(folder, "config.json"), others[i], strlen(others[i]));
        assert_int_equal(ith_vision_config_find(context, folder, store, &found), U);
        assert_non_null(strstr(ith_context_error(context), "rows have 40 features"));
    }
    ith_store_close(&store);
    temporary_remove(folder);
}

static ith_status load_and_encode(ith_context *poor, void *user)
{
    ith_vision_encoder *encoder = NULL;
    ith_store *store = NULL;
    ith_vision_config config;
    float rows[NUMBERS];
    ith_status status = read_config(poor, CLIP, &config);
    if (!status)
        status = open_store(poor, WEIGHTS, &store);
    if (!status)
        status = ith_vision_encoder_check(poor, &config, store);
    ith_store_close(&store);
    if (!status)
        status = open_encoder(poor, CLIP, WEIGHTS, ith_operands_f32(), true, &encoder);
    if (!status)
        status = ith_vision_encode(poor, encoder, user, rows, NULL);
    ith_vision_encoder_free(poor, &encoder);
    return status;
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    static uint8_t rgb[20 * 30 * 3];
    ith_image image = {sizeof image, rgb, 20, 30};
    assert_true(refuse_every_allocation(load_and_encode, &image, 1) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_the_processor),
        cmocka_unit_test(rows_are_those_of_transformers),
        cmocka_unit_test(quick_gelu_is_another_activation),
        cmocka_unit_test(names_of_other_forms_give_the_same_bits),
        cmocka_unit_test(canonical_names_need_no_change),
        cmocka_unit_test(packed_and_misaligned_weights_give_the_same_bits),
        cmocka_unit_test(the_last_layer_is_not_needed),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(encoding_can_be_stopped),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(the_work_is_listed),
        cmocka_unit_test(other_configurations_are_refused),
        cmocka_unit_test(other_processors_are_refused),
        cmocka_unit_test(absent_fields_have_their_defaults),
        cmocka_unit_test(other_weights_are_refused),
        cmocka_unit_test(sizes_follow_from_shapes),
        cmocka_unit_test(a_config_of_an_image_encoder_counts),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests_name("vision_encoder", tests, context_set_up, context_tear_down);
}
