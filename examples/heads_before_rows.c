/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensors [B, H, S, D], heads before rows, as PyTorch's scaled_dot_product_attention takes them. The
 * problem describes them as a batch of B * H entries of one head each, so nothing is copied. This example has the whole
 * tensors on one rank.
 *
 *     cc heads_before_rows.c $(pkg-config --cflags --libs ithaca) -lm -o heads && ./heads
 */
#include <ithaca/ithaca.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, HEADS = 3, ROWS = 70, KEYS = 90, DIM = 32 };

static ith_status attend(ith_context *context, const float *q, const float *k, const float *v, float *o, float *lse,
                         const int32_t kv_lengths[BATCH])
{
    int32_t lengths[BATCH * HEADS];
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    problem.batch = BATCH * HEADS, problem.heads = problem.kv_heads = 1, problem.head_dim = DIM;
    problem.q_len = ROWS, problem.kv_len = KEYS, problem.has_kv_lengths = true;
    for (int i = 0; i < BATCH * HEADS; i++)
        lengths[i] = kv_lengths[i / HEADS]; /* the length of a batch entry is repeated for each of its heads */
    tensors.q = q, tensors.k = k, tensors.v = v, tensors.o = o;
    tensors.lse = lse; /* [B * H, 1, S], in memory the same as [B, H, S] */
    tensors.kv_lengths = lengths;
    ith_status status = ith_plan_create(context, &problem, NULL, NULL, &plan);
    if (!status)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    return status;
}

/* The largest error of o against softmax(q k^T / sqrt(D)) v in double precision; NaN if o has a NaN. */
static double error_of(const float *q, const float *k, const float *v, const float *o, const int32_t kv_lengths[BATCH])
{
    double largest = 0;
    for (int row = 0; row < BATCH * HEADS * ROWS; row++) {
        int head = row / ROWS; /* the number of the head among all B * H */
        double sum = 0, expected[DIM] = {0};
        for (int key = 0; key < kv_lengths[head / HEADS]; key++) {
            double dot = 0;
            for (int d = 0; d < DIM; d++)
                dot += (double)q[row * DIM + d] * (double)k[(head * KEYS + key) * DIM + d];
            double p = exp(dot / sqrt(DIM));
            sum += p;
            for (int d = 0; d < DIM; d++)
                expected[d] += p * (double)v[(head * KEYS + key) * DIM + d];
        }
        for (int d = 0; d < DIM; d++) {
            double error = fabs(expected[d] / sum - (double)o[row * DIM + d]);
            largest = error > largest || isnan(error) ? error : largest;
        }
    }
    return largest;
}

static float *random_tensor(int count, unsigned *state)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int i = 0; x && i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        x[i] = (float)(*state >> 8) * 0x1p-23f - 1;
    }
    return x;
}

int main(void)
{
    static const int32_t kv_lengths[BATCH] = {KEYS, 50};
    unsigned state = 1;
    float *q = random_tensor(BATCH * HEADS * ROWS * DIM, &state),
          *k = random_tensor(BATCH * HEADS * KEYS * DIM, &state);
    float *v = random_tensor(BATCH * HEADS * KEYS * DIM, &state),
          *o = random_tensor(BATCH * HEADS * ROWS * DIM, &state);
    float *lse = random_tensor(BATCH * HEADS * ROWS, &state);
    ith_context *context = NULL;
    int failed = 1;
    ith_status status = q && k && v && o && lse ? ith_context_create(NULL, &context) : ITH_ERR_MEMORY;
    if (!status)
        status = attend(context, q, k, v, o, lse, kv_lengths);
    if (status) {
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    } else {
        double error = error_of(q, k, v, o, kv_lengths);
        printf("o[0][0][0][0] = %.6f, largest error %.1e\n", (double)o[0], error);
        failed = !(error <= 1e-5);
    }
    ith_context_destroy(&context);
    free(q), free(k), free(v), free(o), free(lse);
    return failed;
}
