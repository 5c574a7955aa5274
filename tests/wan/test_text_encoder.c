/* SPDX-License-Identifier: Apache-2.0 */
/* The umT5 encoder compared with transformers, with any number of threads: the encoder of models/shapes
 * (golden/shapes/text.safetensors) and an encoder of odd sizes in f16 (golden/umt5). */
#include "files/store.h"
#include "support/compare.h"
#include "support/engine/altered_component.h"
#include "support/engine/kinds.h"
#include "support/engine/misaligned.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/text/text_encoder.h"

#include <ithaca/files.h>
#include <jansson.h>
#include <omp.h>
#include <string.h>

#define SHAPES "../models/shapes/text_encoder"
#define ODD "golden/umt5"

static ith_text_config config; /* the configuration of the encoder that `load` has opened */

static ith_text_encoder *load(const char *folder, int kind)
{
    ith_text_encoder *encoder = NULL;
    check(context, ith_text_config_read(context, folder, &config));
    if (open_text_encoder(context, folder, operand_kinds[kind], false, &encoder))
        fail_msg("%s", ith_context_error(context));
    return encoder;
}

static float *encode(const ith_text_encoder *encoder, const int32_t *ids, int64_t count)
{
    float *rows = malloc((size_t)(count * config.dim) * sizeof *rows);
    assert_non_null(rows);
    if (ith_text_encode(context, encoder, ids, count, rows, NULL))
        fail_msg("%s", ith_context_error(context));
    return rows;
}

/* The largest relative L2 over the prompts of the shapes checkpoint. */
static double shapes_error(int kind)
{
    ith_text_encoder *encoder = load(SHAPES, kind);
    ith_tensor_file *golden = NULL;
    assert_int_equal(ith_tensor_file_open(context, "golden/shapes/text.safetensors", &golden), ITH_OK);
    json_t *cases = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    size_t index, found = 0;
    double worst = 0;
    json_array_foreach(cases, index, one)
    {
        char name[32];
        snprintf(name, sizeof name, "prompt_%zu", index);
        const ith_tensor *wanted = ith_tensor_file_find(golden, name);
        if (!wanted)
            continue;
        int32_t ids[512];
        json_t *list = json_object_get(one, "ids");
        int64_t count = (int64_t)json_array_size(list);
        for (int64_t i = 0; i < count; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
        assert_int_equal(wanted->shape[0], count);
        float *rows = encode(encoder, ids, count);
        worst = larger_error(worst, relative_l2(rows, wanted->data, count * wanted->shape[1]));
        free(rows);
        found++;
    }
    assert_true(found >= 20);
    json_decref(cases);
    ith_tensor_file_close(&golden);
    ith_text_encoder_free(context, &encoder);
    return worst;
}

static void shapes_are_the_reference(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        double error = shapes_error(kind);
        print_message("largest relative L2: %s %.2g\n", ith_dtype_name(operand_kinds[kind].rounded), error);
        assert_true(kind == OPERANDS_F32 ? error <= 1e-5 : error > 1e-5 && error <= 2e-2);
    }
}

static void odd_sizes_are_the_reference(void **state)
{
    (void)state;
    ith_text_encoder *encoder = load(ODD, OPERANDS_F32);
    ith_tensor_file *golden = NULL;
    assert_int_equal(ith_tensor_file_open(context, ODD "/expected.safetensors", &golden), ITH_OK);
    const int64_t counts[] = {1, 6, 133};
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "ids_%d", (int)counts[i]);
        const ith_tensor *ids = ith_tensor_file_find(golden, name);
        snprintf(name, sizeof name, "rows_%d", (int)counts[i]);
        const ith_tensor *wanted = ith_tensor_file_find(golden, name);
        float *rows = encode(encoder, ids->data, counts[i]);
        double error = relative_l2(rows, wanted->data, counts[i] * wanted->shape[1]);
        free(rows);
        print_message("%d tokens: %.2g\n", (int)counts[i], error);
        assert_true(error <= 1e-5);
    }
    ith_tensor_file_close(&golden);
    ith_text_encoder_free(context, &encoder);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { COUNT = 77 };
    int32_t ids[COUNT];
    for (int i = 0; i < COUNT; i++)
        ids[i] = (i * 37 + 5) % 61;
    int before = omp_get_max_threads();
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        ith_text_encoder *encoder = load(ODD, kind);
        size_t bytes = (size_t)(COUNT * config.dim) * sizeof(float);
        float *first = encode(encoder, ids, COUNT);
        for (int threads = 1; threads <= 8; threads++) {
            omp_set_num_threads(threads);
            float *rows = encode(encoder, ids, COUNT);
            assert_memory_equal(rows, first, bytes);
            free(rows);
        }
        omp_set_num_threads(before);
        free(first);
        ith_text_encoder_free(context, &encoder);
    }
}

static void wrong_ids_are_refused(void **state)
{
    (void)state;
    ith_text_encoder *encoder = load(ODD, OPERANDS_F32);
    float rows[3 * 40];
    assert_int_equal(ith_text_encode(context, encoder, (int32_t[]){1, 2, 61}, 3, rows, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "token 2"));
    assert_int_equal(ith_text_encode(context, encoder, (int32_t[]){-1}, 1, rows, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_text_encode(context, encoder, NULL, 0, rows, NULL), ITH_ERR_ARGUMENT);
    ith_text_encoder_free(context, &encoder);
    assert_null(encoder);
    ith_text_encoder_free(context, &encoder);
}

/* The bytes that the open files of the encoder take, which do not follow from its configuration. */
static int64_t file_bytes(ith_context *own)
{
    ith_store *store = NULL;
    int64_t before = memory_of(own).current_bytes;
    check(own, ith_store_open(own, SHAPES, "model", ITH_STORE_FILE_FIRST, &store));
    int64_t bytes = memory_of(own).current_bytes - before;
    ith_store_close(&store);
    return bytes;
}

typedef struct meter {
    failing_allocator allocator;
    ith_context *context;
    long calls; /* calls of the allocator at the end of the previous layer */
    int layers;
    int64_t done; /* the progress that was shown last */
} meter;

/* Called at the end of a layer. */
static void meter_layer(void *user, int stage, int64_t done, int64_t total)
{
    meter *m = user;
    if (stage != ITH_STAGE_TEXT)
        return;
    assert_true(done > m->done && done <= total); /* each layer is a part of the work, and so is the norm after them */
    m->done = done;
    if (m->layers++)
        assert_int_equal(atomic_load(&m->allocator.calls), m->calls);
    m->calls = atomic_load(&m->allocator.calls);
}

static void check_memory(ith_operand_types types, int64_t count)
{
    meter m = {0};
    ith_observer observer = {.show = meter_layer, .user = &m};
    const ith_span span = {ITH_STAGE_TEXT, 0, 100, 100};
    m.context = failing_context(&m.allocator, -1);
    ith_observer_open(&observer);
    ith_context_set_observer(m.context, &observer);
    int64_t files = file_bytes(m.context), predicted = 0;
    ith_text_encoder *encoder = NULL;
    check(m.context, ith_text_config_read(m.context, SHAPES, &config));
    check(m.context, open_text_encoder(m.context, SHAPES, types, false, &encoder));
    check(m.context, ith_text_encoder_bytes(m.context, &config, types, false, count, &predicted));
    int32_t ids[512] = {0};
    float *rows = malloc(512 * 128 * sizeof *rows);
    check(m.context, ith_text_encode(m.context, encoder, ids, count, rows, &span));
    assert_true(m.layers > config.layers);
    assert_int_equal(m.done, 100);
    assert_int_equal(memory_of(m.context).peak_bytes - files, predicted);
    free(rows);
    ith_text_encoder_free(m.context, &encoder);
    assert_int_equal(memory_of(m.context).current_bytes, 0);
    ith_context_set_observer(m.context, NULL);
    ith_observer_close(&observer);
    ith_context_destroy(&m.context);
}

/* Stops the encoder when two layers are complete. */
static void stop_in_the_third(void *user, int stage, int64_t done, int64_t total)
{
    (void)done, (void)total;
    int *layers = user;
    if (stage == ITH_STAGE_TEXT && ++*layers == 2)
        ith_context_interrupt(context);
}

/* An encoder that is stopped says in which layer. Before the first layer, it waits for the rows of the embedding. */
static void encoding_can_be_stopped(void **state)
{
    (void)state;
    int layers = 0;
    ith_observer observer = {.show = stop_in_the_third, .user = &layers};
    const ith_span span = {ITH_STAGE_TEXT, 0, 100, 100};
    const int32_t ids[] = {7, 3, 1};
    float rows[3 * 40];
    ith_text_encoder *encoder = load(ODD, OPERANDS_F32);
    ith_observer_open(&observer);
    ith_context_set_observer(context, &observer);
    assert_int_equal(ith_text_encode(context, encoder, ids, 3, rows, &span), ITH_ERR_INTERRUPTED);
    assert_string_equal(ith_context_error(context), "stopped in layer 3 of 3 of the text encoder");
    assert_int_equal(ith_text_encode(context, encoder, ids, 3, rows, &span), ITH_ERR_INTERRUPTED);
    assert_null(strstr(ith_context_error(context), "layer"));
    ith_context_end_interruption(context);
    check(context, ith_text_encode(context, encoder, ids, 3, rows, &span));
    ith_context_set_observer(context, NULL);
    ith_observer_close(&observer);
    ith_text_encoder_free(context, &encoder);
}

/* Encoding holds the predicted memory, and allocates nothing between the first layer and the last. */
static void memory_is_predicted(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 100, 512};
    int threads = omp_get_max_threads();
    for (int i = 0; i < 3 * operand_kinds_here(context); i++) {
        omp_set_num_threads(i % 4 + 1);
        check_memory(operand_kinds[i / 3], counts[i % 3]);
    }
    omp_set_num_threads(threads);
}

/* ---- Wrong files ----------------------------------------------------------------------------------------------- */

/* Makes a folder with the odd encoder's config.json, in which `to` replaces `from`. */
static char *odd_folder(const char *from, const char *to)
{
    char *folder = temporary_folder();
    copy_text_with(ODD "/config.json", temporary_path(folder, "config.json"), from, to);
    return folder;
}

/* Rewrites the odd weights: without the tensor `without`, and with a new tensor `with` of [2]; NULL: none. */
static void write_weights(const char *folder, const char *without, const char *with)
{
    const tensor_change change = {.without = without, .with = with};
    copy_tensors_with(context, ODD "/model.safetensors", temporary_path(folder, "model.safetensors"), &change);
}

static void expect_refused(char *folder, ith_status wanted, const char *words)
{
    ith_text_encoder *encoder = (ith_text_encoder *)folder;
    assert_int_equal(check_text_encoder(context, folder), wanted);
    assert_non_null(strstr(ith_context_error(context), words));
    ith_status status = open_text_encoder(context, folder, operand_kinds[OPERANDS_F32], false, &encoder);
    if (status != wanted || !strstr(ith_context_error(context), words))
        fail_msg("wanted %s with '%s', got %s: %s", ith_status_name(wanted), words, ith_status_name(status),
                 ith_context_error(context));
    assert_null(encoder);
    temporary_remove(folder);
}

static void other_configurations_are_refused(void **state)
{
    (void)state;
    expect_refused(temporary_folder(), ITH_ERR_IO, "config.json");
    expect_refused(odd_folder("\"umt5\"", "\"t5\""), ITH_ERR_UNSUPPORTED, "model_type");
    expect_refused(odd_folder("\"gated-gelu\"", "\"relu\""), ITH_ERR_UNSUPPORTED, "feed_forward_proj");
    expect_refused(odd_folder("\"gelu_new\"", "\"relu\""), ITH_ERR_UNSUPPORTED, "dense_act_fn is \"relu\"");
    expect_refused(odd_folder("\"d_model\": 40,", "\"hidden_size\": 41, \"d_model\": 40,"), ITH_ERR_UNSUPPORTED,
                   "hidden_size is 41");
    expect_refused(odd_folder("\"d_kv\": 12,", "\"head_dim\": 13, \"d_kv\": 12,"), ITH_ERR_UNSUPPORTED,
                   "head_dim is 13");
    expect_refused(odd_folder("\"d_kv\": 12,", "\"num_attention_heads\": 6, \"d_kv\": 12,"), ITH_ERR_UNSUPPORTED,
                   "num_attention_heads is 6");
    expect_refused(odd_folder("\"d_kv\": 12,", "\"num_hidden_layers\": 4, \"d_kv\": 12,"), ITH_ERR_UNSUPPORTED,
                   "num_hidden_layers is 4");
    expect_refused(odd_folder("\"d_model\": 40", "\"d_model\": 0"), ITH_ERR_FORMAT, "d_model");
    expect_refused(odd_folder("\"num_heads\": 5", "\"num_heads\": 1000000"), ITH_ERR_FORMAT, "num_heads");
    expect_refused(odd_folder("_max_distance\": 50", "_max_distance\": 5"), ITH_ERR_FORMAT, "max_distance");
}

static char *odd_weights(const char *from, const char *to, const char *without, const char *with)
{
    char *folder = odd_folder(from, to);
    write_weights(folder, without, with);
    return folder;
}

static void other_weights_are_refused(void **state)
{
    (void)state;
    const char *same = "\"d_model\": 40";
    expect_refused(odd_folder(same, same), ITH_ERR_IO, "model.safetensors");
    expect_refused(odd_weights(same, "\"d_model\": 48", NULL, NULL), ITH_ERR_FORMAT, "shared.weight");
    expect_refused(odd_weights("\"num_layers\": 3", "\"num_layers\": 2", NULL, NULL), ITH_ERR_UNSUPPORTED,
                   "encoder.block.2");
    expect_refused(odd_weights(same, same, "shared.weight", NULL), ITH_ERR_FORMAT, "shared.weight");
    expect_refused(odd_weights(same, same, "encoder.block.1.layer.1.DenseReluDense.wo.weight", NULL), ITH_ERR_FORMAT,
                   "encoder.block.1.layer.1.DenseReluDense.wo.weight");
    expect_refused(odd_weights(same, same, NULL, "decoder.final_layer_norm.weight"), ITH_ERR_UNSUPPORTED,
                   "decoder.final_layer_norm.weight");
    expect_refused(odd_weights(same, same, NULL, "encoder.embed_tokens.weight"), ITH_ERR_FORMAT,
                   "encoder.embed_tokens.weight");
}

/* Writes the odd weights without the tensors whose names begin with `without`. The tensor `name` has size `size` in
 * dimension `dim`, and is zero. */
static void write_shape(const char *path, const char *without, const char *name, int dim, int64_t size)
{
    const tensor_change change = {.without = without, .resized = name, .dim = dim, .size = size};
    copy_tensors_with(context, ODD "/model.safetensors", path, &change);
}

/* Without a config.json, the sizes follow from the shapes. They must equal the sizes in the odd encoder's config.json,
 * or the shapes are refused as no umT5. */
static void sizes_follow_from_shapes(void **state)
{
    (void)state;
#define BIASES "layer.0.SelfAttention.relative_attention_bias.weight"
    static const char table[] = "encoder.block.0." BIASES, q[] = "encoder.block.0.layer.0.SelfAttention.q.weight";
    static const struct {
        const char *without, *name;
        int dim;
        int64_t size;
        ith_status status;
        const char *words;
        int64_t layers;
    } cases[] = {
        {NULL, NULL, 0, 0, ITH_OK, "", 3},
        {"encoder.block.2.", NULL, 0, 0, ITH_OK, "", 2},
        {"encoder.block.1.", NULL, 0, 0, ITH_OK, "", 1},
        {table, NULL, 0, 0, ITH_ERR_FORMAT, "do not make a umT5", 0},
        {NULL, q, 0, 61, ITH_ERR_FORMAT, "do not make a umT5", 0},
        {NULL, table, 0, 3, ITH_ERR_FORMAT, "do not make a umT5", 0},
        {NULL, table, 0, (1 << 20) + 1, ITH_ERR_FORMAT, "buckets of distances", 0},
        {NULL, "shared.weight", 0, 32128, ITH_ERR_UNSUPPORTED, "is T5's", 0},
        {"encoder.block.1." BIASES, NULL, 0, 0, ITH_ERR_UNSUPPORTED, "only the first layer", 0},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "text.safetensors");
    ith_text_config odd, found;
    check(context, ith_text_config_read(context, ODD, &odd));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_store *store = NULL;
        write_shape(path, cases[i].without, cases[i].name, cases[i].dim, cases[i].size);
        check(context, ith_store_open_files(context, &path, 1, NULL, &store));
        const ith_status status = ith_text_config_find(context, i % 2 ? folder : NULL, store, &found);
        ith_store_close(&store);
        if (status != cases[i].status || (status && !strstr(ith_context_error(context), cases[i].words)))
            fail_msg("case %zu: %s", i, status ? ith_context_error(context) : "taken");
        if (status)
            continue;
        assert_true(found.vocab == odd.vocab && found.dim == odd.dim && found.heads == odd.heads);
        assert_true(found.head_dim == odd.head_dim && found.ffn_dim == odd.ffn_dim && found.buckets == odd.buckets);
        assert_int_equal(found.layers, cases[i].layers);
    }
    temporary_remove(folder);
}

/* A config.json of a T5 counts, whatever the shapes are. */
static void a_config_of_t5_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"model_type\": \"t5\"}", "{\"architectures\": [\"T5EncoderModel\"], "
                                                                    "\"model_type\": \"t5\"}"};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "text.safetensors");
    write_shape(path, NULL, NULL, 0, 0);
    for (int i = 0; i < 2; i++) {
        ith_store *store = NULL;
        ith_text_config found;
        temporary_write(temporary_path(folder, "config.json"), texts[i], strlen(texts[i]));
        check(context, ith_store_open_files(context, &path, 1, NULL, &store));
        assert_int_equal(ith_text_config_find(context, folder, store, &found), ITH_ERR_UNSUPPORTED);
        assert_non_null(strstr(ith_context_error(context), "model_type is \"t5\""));
        ith_store_close(&store);
    }
    temporary_remove(folder);
}

/* Makes a copy with the odd weights in which the embedding is called `name`. keep_shared: the shared embedding stays
 * too, and is zero. */
static char *odd_embedding(const char *name, bool keep_shared)
{
    char *folder = odd_folder("\"d_model\": 40", "\"d_model\": 40");
    ith_tensor_file *file = NULL;
    ith_tensor tensors[64];
    int64_t count = 0;
    check(context, ith_tensor_file_open(context, ODD "/model.safetensors", &file));
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++)
        tensors[count++] = *ith_tensor_file_at(file, i);
    void *zeros = NULL;
    for (int64_t i = 0, all = count; i < all; i++)
        if (!strcmp(tensors[i].name, "shared.weight")) {
            tensors[count] = tensors[i];
            tensors[i].name = name;
            zeros = calloc(1, (size_t)tensors[count].bytes);
            tensors[count].data = zeros;
        }
    check(context, ith_tensor_file_write(context, temporary_path(folder, "model.safetensors"), tensors,
                                         keep_shared ? count + 1 : count, NULL, NULL, 0));
    free(zeros);
    ith_tensor_file_close(&file);
    return folder;
}

/* Like transformers 5, the encoder takes its own embedding if it differs from the shared embedding, or if there is no
 * other. */
static void the_encoder_s_own_embedding_is_taken(void **state)
{
    (void)state;
    const int32_t ids[] = {7, 3, 1};
    ith_text_encoder *encoder = load(ODD, OPERANDS_F32);
    float *wanted = encode(encoder, ids, 3);
    ith_text_encoder_free(context, &encoder);
    for (int keep_shared = 0; keep_shared < 2; keep_shared++) {
        char *folder = odd_embedding("encoder.embed_tokens.weight", keep_shared);
        assert_int_equal(check_text_encoder(context, folder), ITH_OK);
        encoder = load(folder, OPERANDS_F32);
        float *rows = encode(encoder, ids, 3);
        assert_memory_equal(rows, wanted, 3 * 40 * sizeof *rows);
        free(rows);
        ith_text_encoder_free(context, &encoder);
        temporary_remove(folder);
    }
    free(wanted);
}

static void misaligned_weights_give_the_same_bits(void **state)
{
    (void)state;
    const int32_t ids[] = {7, 3, 1};
    char *folder = odd_folder("\"d_model\": 40", "\"d_model\": 40");
    write_misaligned(ODD "/model.safetensors", temporary_path(folder, "model.safetensors"));
    ith_text_encoder *aligned = load(ODD, OPERANDS_F32), *misaligned = load(folder, OPERANDS_F32);
    float *wanted = encode(aligned, ids, 3), *rows = encode(misaligned, ids, 3);
    assert_memory_equal(rows, wanted, 3 * 40 * sizeof *rows);
    free(wanted), free(rows);
    ith_text_encoder_free(context, &aligned);
    ith_text_encoder_free(context, &misaligned);
    temporary_remove(folder);
}

static ith_status load_and_encode(ith_context *poor, void *user)
{
    (void)user;
    ith_text_encoder *encoder = NULL;
    float rows[2 * 40];
    ith_status status = check_text_encoder(poor, ODD);
    if (!status)
        status = open_text_encoder(poor, ODD, operand_kinds[OPERANDS_F32], false, &encoder);
    if (!status)
        status = ith_text_encode(poor, encoder, (int32_t[]){7, 1}, 2, rows, NULL);
    ith_text_encoder_free(poor, &encoder);
    return status;
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(load_and_encode, NULL, 1) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_the_reference),
        cmocka_unit_test(odd_sizes_are_the_reference),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(wrong_ids_are_refused),
        cmocka_unit_test(encoding_can_be_stopped),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(other_configurations_are_refused),
        cmocka_unit_test(other_weights_are_refused),
        cmocka_unit_test(sizes_follow_from_shapes),
        cmocka_unit_test(a_config_of_t5_is_refused),
        cmocka_unit_test(misaligned_weights_give_the_same_bits),
        cmocka_unit_test(the_encoder_s_own_embedding_is_taken),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
