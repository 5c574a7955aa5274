/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the golden files, which hold a float64 softmax of the same bf16 inputs: every strategy on 1 to 4 ranks.
 * The files are read as by the program's `attend`. The relative L2 error of o is at most 2^-8, and the error of lse at
 * most 1e-5. ulysses gives the bits of one rank. */
#include "support/compare.h"

#include <ithaca/files.h>

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "golden/attention"

typedef struct job {
    ith_tensor_file *file;
    const ith_tensor *q, *k, *v;
    ith_attn_problem problem;
    ith_attn_options options;
    float *key_bias;
    uint16_t *o;
    float *lse; /* [B, H, share] of the ranks one after the other */
    int ranks;
} job;

static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    job *j = user;
    const ith_attn_problem *p = &j->problem;
    int64_t q_begin, kv_begin, count;
    ith_share(p->q_len, j->ranks, ith_comm_rank(comm), &q_begin, &count);
    ith_share(p->kv_len, j->ranks, ith_comm_rank(comm), &kv_begin, &count);
    ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors),
                          .q = (const uint16_t *)j->q->data + q_begin * p->q_row_stride,
                          .k = (const uint16_t *)j->k->data + kv_begin * p->k_row_stride,
                          .v = (const uint16_t *)j->v->data + kv_begin * p->v_row_stride,
                          .o = j->o + q_begin * p->o_row_stride,
                          .lse = j->lse + p->batch * p->heads * q_begin,
                          .key_bias = j->key_bias};
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, p, &j->options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &t);
    ith_plan_destroy(&plan);
    return status;
}

static void describe(job *j)
{
    ith_attn_problem *p = &j->problem;
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->dtype = ITH_BF16;
    p->batch = j->q->shape[0], p->q_len = j->q->shape[1], p->heads = j->q->shape[2], p->head_dim = j->q->shape[3];
    p->kv_len = j->k->shape[1], p->kv_heads = j->k->shape[2];
    p->q_row_stride = p->o_row_stride = p->heads * p->head_dim;
    p->q_batch_stride = p->o_batch_stride = p->q_row_stride * p->q_len;
    p->k_row_stride = p->v_row_stride = p->kv_heads * p->head_dim;
    p->k_batch_stride = p->v_batch_stride = p->k_row_stride * p->kv_len;
    const ith_tensor *lengths = ith_tensor_file_find(j->file, "kv_lengths");
    p->has_key_bias = lengths != NULL;
    if (!lengths)
        return;
    j->key_bias = calloc((size_t)(p->batch * p->kv_len), sizeof *j->key_bias);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = ((const int32_t *)lengths->data)[b]; i < p->kv_len; i++)
            j->key_bias[b * p->kv_len + i] = -INFINITY;
}

static void open_job(ith_context *context, job *j, const char *path)
{
    *j = (job){0};
    if (ith_tensor_file_open(context, path, &j->file))
        fail_msg("%s", ith_context_error(context));
    j->q = ith_tensor_file_find(j->file, "q");
    j->k = ith_tensor_file_find(j->file, "k");
    j->v = ith_tensor_file_find(j->file, "v");
    assert_true(j->q && j->k && j->v && j->q->dtype == ITH_BF16);
    describe(j);
    j->o = malloc((size_t)ith_tensor_elements(j->q) * sizeof *j->o);
    j->lse = malloc((size_t)(j->problem.batch * j->problem.heads * j->problem.q_len) * sizeof *j->lse);
}

static void close_job(job *j)
{
    free(j->o);
    free(j->lse);
    free(j->key_bias);
    ith_tensor_file_close(&j->file);
}

static void run(ith_context *context, job *j, ith_strategy strategy, int ranks, int ulysses)
{
    int64_t elements = ith_tensor_elements(j->q);
    j->ranks = ranks;
    j->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    j->options.strategy = strategy;
    if (ulysses)
        j->options.ulysses = ulysses, j->options.ring = ranks / ulysses;
    memset(j->o, 0xff, (size_t)elements * sizeof *j->o); /* NaN, so that numbers that are not written are found */
    if (ith_run_ranks(context, ranks, 2, attend, j))
        fail_msg("%s", ith_context_error(context));
}

static void assert_golden(ith_context *context, const job *j, const char *path)
{
    const ith_attn_problem *p = &j->problem;
    const ith_tensor *o = ith_tensor_file_find(j->file, "o"), *lse = ith_tensor_file_find(j->file, "lse");
    int64_t elements = ith_tensor_elements(o);
    ith_tensor mine = {.struct_size = sizeof(ith_tensor),
                       .name = "o",
                       .dtype = ITH_BF16,
                       .dims = 1,
                       .shape = {elements},
                       .data = j->o,
                       .bytes = 2 * elements};
    float *values = malloc((size_t)elements * sizeof *values);
    assert_int_equal(ith_tensor_to_f32(context, &mine, values), ITH_OK);
    double error = relative_l2(values, o->data, elements);
    free(values);
    if (!(error <= 1.0 / 256))
        fail_msg("%s: %s over %d ranks: o is off by %g", path, ith_strategy_name(j->options.strategy), j->ranks, error);
    for (int rank = 0; rank < j->ranks; rank++) {
        int64_t begin, count, rows = p->batch * p->heads;
        ith_share(p->q_len, j->ranks, rank, &begin, &count);
        for (int64_t i = 0; i < rows * count; i++) {
            float want = ((const float *)lse->data)[i / count * p->q_len + begin + i % count];
            float got = j->lse[rows * begin + i];
            if (!(got == want || fabsf(got - want) <= 1e-5f * fmaxf(1, fabsf(want))))
                fail_msg("%s: %s over %d ranks: lse %.9g instead of %.9g", path, ith_strategy_name(j->options.strategy),
                         j->ranks, (double)got, (double)want);
        }
    }
}

static void check_file(ith_context *context, const char *path)
{
    job j;
    open_job(context, &j, path);
    size_t bytes = (size_t)ith_tensor_elements(j.q) * sizeof *j.o;
    uint16_t *single = malloc(bytes);
    run(context, &j, ITH_STRATEGY_SINGLE, 1, 0);
    assert_golden(context, &j, path);
    memcpy(single, j.o, bytes);
    for (int ranks = 2; ranks <= 4; ranks++) {
        run(context, &j, ITH_STRATEGY_RING, ranks, 0);
        assert_golden(context, &j, path);
        run(context, &j, ITH_STRATEGY_ULYSSES, ranks, 0);
        assert_golden(context, &j, path);
        assert_memory_equal(j.o, single, bytes);
        run(context, &j, ITH_STRATEGY_AUTO, ranks, 0);
        assert_golden(context, &j, path);
    }
    run(context, &j, ITH_STRATEGY_ULYSSES_RING, 4, 2);
    assert_golden(context, &j, path);
    free(single);
    close_job(&j);
}

static void golden_files(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300];
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        check_file(context, path);
        files++;
    }
    closedir(folder);
    assert_true(files > 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_files)};
    return cmocka_run_group_tests_name("attend", tests, NULL, NULL);
}
