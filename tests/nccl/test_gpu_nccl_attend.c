/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on a GPU by several processes that share it, whose messages go over NCCL from memory of the device to
 * memory of the device: ring, ulysses and both. Each rank compares its rows with the attention of one rank on the
 * processor. */
#include "nccl_rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 1003, HEADS = 8, DIM = 64, ROW = HEADS * DIM };

#define MOST_ERROR 0.004 /* for bf16 numbers up to about 0.3 */

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Ends the process with a line if a call of the library fails. */
static void must(const nccl_rank *r, ith_context *context, ith_status status, const char *call)
{
    if (!status)
        return;
    printf("  FAILED: rank %d of %d: %s: %s: %s\n", r->rank, r->size, call, ith_status_name(status),
           ith_context_error(context));
    fflush(stdout);
    _exit(1);
}
#define MUST(r, context, call) must(r, context, call, #call)

static ith_attn_problem problem_of(void)
{
    ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
    p.heads = HEADS, p.head_dim = DIM, p.q_len = p.kv_len = LENGTH, p.dtype = ITH_BF16, p.scale = 0.5f;
    return p;
}

/* q, k, v [3][LENGTH][ROW], the same on every rank, and then o as the processor computes it. */
static uint16_t *make_tensors(const nccl_rank *r)
{
    const size_t count = (size_t)LENGTH * ROW;
    uint16_t *all = calloc(4 * count, sizeof *all);
    const ith_attn_problem problem = problem_of();
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    ith_context *context = NULL;
    ith_plan *plan = NULL;
    for (size_t i = 0; i < 3 * count; i++) {
        const uint32_t h = (uint32_t)i * 2654435761u;
        all[i] = to_bf16((float)((h ^ h >> 15) % 2001) * 1e-3f - 1);
    }
    t.q = all, t.k = all + count, t.v = all + 2 * count, t.o = all + 3 * count;
    MUST(r, NULL, ith_context_create(NULL, &context));
    MUST(r, context, ith_plan_create(context, &problem, NULL, NULL, &plan));
    MUST(r, context, ith_plan_execute(plan, &t));
    ith_plan_destroy(&plan);
    ith_context_destroy(&context);
    return all;
}

/* Computes this rank's rows on the device with a strategy, and returns the largest error. */
static double attend(const nccl_rank *r, ith_context *context, ith_comm *comm, ith_strategy strategy,
                     const uint16_t *all, char text[256])
{
    const size_t count = (size_t)LENGTH * ROW;
    const ith_attn_problem problem = problem_of();
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    int64_t first, rows;
    void *memory[4];
    ith_plan *plan = NULL;
    double worst = 0, largest = 0;
    ith_share(LENGTH, r->size, r->rank, &first, &rows);
    const size_t bytes = (size_t)(rows * ROW) * sizeof *all, from = (size_t)(first * ROW);
    uint16_t *o = malloc(bytes);
    options.strategy = strategy;
    for (int i = 0; i < 4; i++) {
        MUST(r, context, ith_device_allocate(context, (int64_t)bytes, &memory[i]));
        if (i < 3)
            MUST(r, context, ith_device_copy(context, memory[i], all + (size_t)i * count + from, (int64_t)bytes));
    }
    t.q = memory[0], t.k = memory[1], t.v = memory[2], t.o = memory[3];
    MUST(r, context, ith_plan_create(context, &problem, &options, comm, &plan));
    for (int i = 0; i < 3; i++)
        MUST(r, context, ith_plan_execute(plan, &t));
    MUST(r, context, ith_device_copy(context, o, memory[3], (int64_t)bytes));
    for (size_t i = 0; i < (size_t)(rows * ROW); i++) {
        const double error = fabs((double)from_bf16(o[i]) - (double)from_bf16(all[3 * count + from + i]));
        worst = error > worst || isnan(error) ? error : worst;
        largest = fmax(largest, fabs((double)from_bf16(all[3 * count + from + i])));
    }
    snprintf(text, 256, "largest number %.3g, ", largest);
    ith_plan_print(plan, text + strlen(text), 256 - strlen(text));
    ith_plan_destroy(&plan);
    for (int i = 0; i < 4; i++)
        ith_device_release(context, memory[i]);
    free(o);
    return worst;
}

static void run(nccl_rank *r)
{
    static const ith_strategy strategies[] = {ITH_STRATEGY_RING, ITH_STRATEGY_ULYSSES, ITH_STRATEGY_ULYSSES_RING};
    static const char *const names[] = {"ring", "ulysses", "ulysses and ring"};
    const char *device = getenv("ITHACA_TEST_DEVICE"); /* "cpu": the rest of the test runs without a GPU */
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    uint16_t *all = make_tensors(r);
    MUST(r, NULL, ith_context_create(NULL, &context));
    MUST(r, context, ith_context_use_device(context, device ? device : "cuda"));
    MUST(r, context, ith_comm_create(context, r->table, r->state, r->rank, r->size, &comm));
    ith_comm_set_timeout(comm, 20);
    for (int i = 0; i < (r->size > 2 ? 3 : 2); i++) {
        char text[256];
        const double error = attend(r, context, comm, strategies[i], all, text);
        if (!(error <= MOST_ERROR))
            nccl_fail(r, "%s: error %.3g", names[i], error);
        if (r->rank == 0)
            printf("  %d ranks, %s: error %.3g: %.*s\n", r->size, names[i], error, (int)strcspn(text, "\n"), text);
    }
    ith_comm_destroy(&comm);
    ith_context_destroy(&context);
    free(all);
    fflush(stdout);
    _exit(r->failures > 0);
}

int main(void)
{
    int failed = 0;
    if (!nccl_has_gpu())
        return 77;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        const double start = nccl_now();
        const int failures = nccl_run(ranks, 20, -1, run);
        printf("attention of %d ranks: %s, %.1f s\n", ranks, failures ? "FAILED" : "passed", nccl_now() - start);
        failed += failures > 0;
        if (failures)
            break;
    }
    printf(failed ? "FAILED\n" : "passed\n");
    return failed > 0;
}
