/* SPDX-License-Identifier: Apache-2.0 */
/* The places of linear layers for additions: their memory, the workspaces of layers that have them, and refusals of
 * additions that do not fit a place. A LoRA file that is cut after it was mapped. */
#include "linear/linear_set.h"
#include "support/engine/added_layer.h"
#include "support/engine/kinds.h"
#include "support/memory.h"
#include "support/memory_file.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed = 1;

/* Layers take the memory that was counted. An addition takes little memory unless it is kept packed. */
static void memory_is_as_counted(void **state)
{
    (void)state;
    enum { WIDTH = 1024, RANK = 64 };
    ith_context *context = new_context();
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        const ith_linear_addition sizes = {.down.rows = RANK, .up.rows = WIDTH};
        ith_linear_set *set = NULL;
        ith_arena arena = {0};
        const int64_t before = memory_of(context).current_bytes;
        int64_t counted = 0;
        assert_int_equal(ith_linear_set_create(context, (ith_linear_keep)(i % 2), &set), ITH_OK);
        for (int pass = 0; pass < 2; pass++) {
            ith_linear_lay_out_with(set, WIDTH, WIDTH, operand_kinds[i / 2], &sizes, 1, &arena);
            counted = pass ? counted : arena.used_bytes;
            if (!pass)
                assert_int_equal(ith_arena_allocate(context, &arena, "a layer"), ITH_OK);
        }
        assert_int_equal(arena.used_bytes, counted);
        assert_int_equal(memory_of(context).current_bytes - before,
                         counted + ITH_ALLOC_HEADER + ith_linear_set_bytes(set));
        assert_true(i % 2 ? counted > 2 * WIDTH * RANK * 2 : counted < 10000);
        ith_linear_set_destroy(&set);
        ith_free(context, arena.base);
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* The memory of a workspace for layers of one size, each with one of the additions. */
static int64_t workspace_bytes(ith_context *context, int kind, bool separate, const ith_linear_addition *additions,
                               int count)
{
    ith_linear_set *set = NULL;
    ith_arena layers = {0}, arena = {0};
    ith_linear_workspace workspace;
    assert_int_equal(ith_linear_set_create(context, ITH_LINEAR_KEEP_NONE, &set), ITH_OK);
    set->merges_most = separate ? 0 : ITH_LINEAR_MERGES_MOST;
    for (int i = 0; i < count; i++)
        ith_linear_lay_out_with(set, 64, 4000, operand_kinds[kind], &additions[i], 1, &layers);
    assert_int_equal(ith_linear_set_status(set), ITH_OK);
    ith_linear_workspace_lay_out(set, 2, 10000, &arena, &workspace);
    ith_linear_set_destroy(&set);
    return arena.used_bytes;
}

/* A workspace has room for every layer of a set, in whatever order they were laid out. */
static void a_workspace_fits_layers_in_any_order(void **state)
{
    (void)state;
    const ith_linear_addition large = {.down.rows = 1500, .up.rows = 4000}, small = {.down.rows = 5, .up.rows = 4000};
    const ith_linear_addition dense = {.up.rows = 4000};
    const ith_linear_addition orders[][2] = {{large, small}, {small, large}, {large, dense}, {dense, large}};
    ith_context *context = new_context();
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        const int64_t needed = workspace_bytes(context, i / 2, i % 2, &large, 1);
        for (int n = 0; n < 4; n++)
            assert_int_equal(workspace_bytes(context, i / 2, i % 2, orders[n], 2), needed);
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* If a LoRA file is cut after it was mapped, there is an error that names it: for one strip of rows, for several, and
 * where weights are kept packed. */
static void a_cut_file_is_named(void **state)
{
    (void)state;
    enum { WIDTH = 256, RANK = 64, ROWS = 2200, BYTES = WIDTH * RANK * 4 };
    ith_context *context = new_context();
    float *w = random_floats(&seed, WIDTH * WIDTH), *x = random_floats(&seed, ROWS * WIDTH),
          *y = new_floats(ROWS * WIDTH);
    memory_file file = memory_file_create();
    memory_file_fill(&file, w, BYTES);
    float *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file.file, 0);
    assert_true(mapped != MAP_FAILED);
    added_layer s = {.in = WIDTH, .out = WIDTH, .matrices = 1, .count = 1, .begins = {0, WIDTH}, .w = w};
    s.bias = random_floats(&seed, WIDTH);
    s.additions[0] =
        (ith_linear_addition){.down = {.data = w, .type = ITH_F32, .rows = RANK},
                              .up = {.data = mapped, .type = ITH_F32, .rows = WIDTH, .file = "style.safetensors"},
                              .factor = 1};
    added_layer_attach(context, &s, OPERANDS_F32, ITH_LINEAR_KEEP_NONE);
    assert_int_equal(one_layer_apply(context, &s.layer, ROWS, x, y), ITH_OK);
    assert_int_equal(ftruncate(file.file, BYTES / 2), 0);
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
        assert_int_equal(one_layer_apply(context, &s.layer, rows, x, y), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), "style.safetensors"));
    }
    assert_string_equal(ith_linear_read(s.layer.linear, ITH_F32, 0, WIDTH, y), "style.safetensors");
    one_layer_free(context, &s.layer);
    for (int separate = 0; separate < 2; separate++) {
        s.separate = separate;
        added_layer_attach_weights(context, &s, OPERANDS_F32, ITH_LINEAR_KEEP_ALL);
        assert_int_equal(ith_linear_add(context, s.layer.linear, s.additions, 1), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), "style.safetensors"));
        one_layer_free(context, &s.layer);
    }
    munmap(mapped, BYTES);
    close(file.file);
    free(s.bias), free(w), free(x), free(y);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

static ith_status try_sizes(ith_context *context, const ith_linear_addition *addition, int64_t count)
{
    ith_linear_set *set = NULL;
    ith_arena arena = {0};
    assert_int_equal(ith_linear_set_create(context, false, &set), ITH_OK);
    ith_linear_lay_out_with(set, 8, 6, operand_kinds[OPERANDS_F32], addition, count, &arena);
    ith_status status = ith_linear_set_status(set);
    ith_linear_set_destroy(&set);
    return status;
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    ith_context *context = new_context();
    static const struct {
        ith_linear_addition addition;
        ith_status status;
    } cases[] = {{{.down.rows = 3, .up.rows = 6}, ITH_OK},
                 {{2, .down.rows = 3, .up.rows = 2}, ITH_OK},
                 {{.down.rows = -1, .up.rows = 6}, ITH_ERR_ARGUMENT},
                 {{.down.rows = INT32_MAX, .up.rows = 6}, ITH_ERR_ARGUMENT},
                 {{.down.rows = 3, .up.rows = 7}, ITH_ERR_ARGUMENT},
                 {{.down.rows = 3}, ITH_ERR_ARGUMENT},
                 {{3, .down.rows = 3, .up.rows = 2}, ITH_ERR_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(try_sizes(context, &cases[i].addition, 1), cases[i].status);
    const ith_linear_addition many[2] = {{.down.rows = 1 << 30, .up.rows = 6}, {.down.rows = 1 << 30, .up.rows = 6}};
    assert_int_equal(try_sizes(context, many, 1), ITH_OK);
    assert_int_equal(try_sizes(context, many, 2), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "additions of more than 2^31 - 1 ranks"));
    added_layer s = added_layer_make(context, &seed, 8, 6, 4, OPERANDS_F32, false);
    ith_linear_addition wrong[ADDED_MOST];
    for (int i = 0; i < 4; i++) {
        memcpy(wrong, s.additions, sizeof wrong);
        wrong[0].down.rows += i == 0, wrong[0].up.rows += i == 1, wrong[0].matrix += i == 2;
        wrong[0].up.type = i == 3 ? ITH_F64 : wrong[0].up.type;
        assert_int_equal(ith_linear_add(context, s.layer.linear, wrong, s.count), ITH_ERR_ARGUMENT);
    }
    added_layer_free(context, &s);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* Two matrices of 5 rows, each with an addition of rank 4. An addition that does not fit its place is refused, and the
 * layer stays as it was, even if an addition before it fits. */
static void a_refused_addition_changes_nothing(void **state)
{
    (void)state;
    enum { IN = 64, HALF = 5, RANK = 4 };
    ith_context *context = new_context();
    float *numbers = random_floats(&seed, IN * 2 * HALF + (IN + 2 * HALF) * 2 * RANK), *x = random_floats(&seed, IN);
    float before[2 * HALF], after[2 * HALF];
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        added_layer s = {
            .in = IN, .out = 2 * HALF, .separate = i % 2, .matrices = 2, .count = 2, .begins = {0, HALF, 2 * HALF}};
        s.w = numbers, s.bias = numbers;
        for (int n = 0; n < 2; n++)
            s.additions[n] = (ith_linear_addition){
                .matrix = n,
                .down = {.data = numbers + IN * HALF, .type = ITH_F32, .rows = RANK},
                .up = {.data = numbers + IN * 2 * HALF, .type = ITH_F32, .rows = HALF},
                .factor = 1,
            };
        added_layer_attach(context, &s, i / 2, ITH_LINEAR_KEEP_NONE);
        assert_int_equal(one_layer_apply(context, &s.layer, 1, x, before), ITH_OK);
        for (int change = 0; change < 3; change++) {
            ith_linear_addition wrong[2] = {s.additions[0], s.additions[1]};
            wrong[0].factor = 2;
            wrong[1].down.rows += change == 0 ? 1 : change == 1 ? -1 : 0;
            wrong[1].matrix -= change == 2;
            assert_int_equal(ith_linear_add(context, s.layer.linear, wrong, 2), ITH_ERR_ARGUMENT);
            assert_non_null(strstr(ith_context_error(context), "addition 1 of a linear layer"));
            assert_int_equal(one_layer_apply(context, &s.layer, 1, x, after), ITH_OK);
            assert_memory_equal(before, after, sizeof after);
        }
        const ith_linear_weight uneven[] = {{.data = numbers, .type = ITH_F32, .rows = HALF - 1},
                                            {.data = numbers, .type = ITH_F32, .rows = HALF + 1}};
        ith_linear_addition other[2] = {s.additions[0], s.additions[1]};
        other[0].up.rows--, other[1].up.rows++;
        assert_int_equal(ith_linear_attach(context, s.layer.linear, uneven, 2, NULL), ITH_OK);
        assert_int_equal(ith_linear_add(context, s.layer.linear, other, 2), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "addition 0 of a linear layer"));
        const ith_linear_weight halves[] = {{.data = numbers, .type = ITH_F32, .rows = HALF},
                                            {.data = numbers, .type = ITH_F32, .rows = HALF}};
        assert_int_equal(ith_linear_attach(context, s.layer.linear, halves, 2, NULL), ITH_OK);
        other[0] = s.additions[0], other[1] = s.additions[1];
        other[1].down.type = ITH_F64;
        assert_int_equal(ith_linear_add(context, s.layer.linear, other, 2), ITH_ERR_ARGUMENT);
        other[1] = (ith_linear_addition){.matrix = 1, .up = s.additions[1].up}; /* dense */
        for (int64_t count = 0; count < 3; count++) {
            assert_int_equal(ith_linear_add(context, s.layer.linear, other, count), ITH_ERR_ARGUMENT);
            assert_non_null(strstr(ith_context_error(context), count < 2 ? "with places for 2" : "addition"));
        }
        one_layer_free(context, &s.layer);
    }
    free(numbers), free(x);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* A layer has a place for an addition to its second matrix. It gets a smaller matrix there than the addition, a larger
 * one, and none. */
static void a_matrix_of_another_size_takes_no_addition(void **state)
{
    (void)state;
    enum { IN = 8, HALF = 5 };
    ith_context *context = new_context();
    float *numbers = random_floats(&seed, IN * 2 * HALF);
    added_layer s = {.in = IN, .out = 2 * HALF, .matrices = 2, .count = 1, .begins = {0, HALF, 2 * HALF}};
    s.w = numbers, s.bias = numbers;
    s.additions[0] = (ith_linear_addition){.matrix = 1,
                                           .down = {.data = numbers, .type = ITH_F32, .rows = 2},
                                           .up = {.data = numbers, .type = ITH_F32, .rows = HALF},
                                           .factor = 1};
    added_layer_attach(context, &s, OPERANDS_F32, ITH_LINEAR_KEEP_NONE);
    for (int64_t first = HALF - 1; first <= 2 * HALF; first += first == HALF - 1 ? 2 : HALF - 1) {
        const ith_linear_weight matrices[] = {{.data = numbers, .type = ITH_F32, .rows = first},
                                              {.data = numbers, .type = ITH_F32, .rows = 2 * HALF - first}};
        const ith_linear_weight halves[] = {{.data = numbers, .type = ITH_F32, .rows = HALF},
                                            {.data = numbers, .type = ITH_F32, .rows = HALF}};
        assert_int_equal(ith_linear_attach(context, s.layer.linear, halves, 2, NULL), ITH_OK);
        assert_int_equal(ith_linear_attach(context, s.layer.linear, matrices, 1 + (first < 2 * HALF), NULL), ITH_OK);
        assert_int_equal(ith_linear_add(context, s.layer.linear, s.additions, 1), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "the layer has no such matrix"));
    }
    one_layer_free(context, &s.layer);
    free(numbers);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: cmocka takes the library's handler of SIGBUS away after a test */
        cmocka_unit_test(a_cut_file_is_named),
        cmocka_unit_test(memory_is_as_counted),
        cmocka_unit_test(a_workspace_fits_layers_in_any_order),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(a_refused_addition_changes_nothing),
        cmocka_unit_test(a_matrix_of_another_size_takes_no_addition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
