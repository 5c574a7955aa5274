/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed messages. Numbers that the messages can hold arrive untouched: the result has the bits of plain messages.
 * Other numbers arrive within the error that the rounding has, which the plan measures. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/run/compress.h"
#include "base/dtype.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/in_rank.h"
#include "support/plan_trial.h"

#define MOST_RANKS 6

static int64_t kv_numbers(const attention_case *c)
{
    const ith_attn_problem *p = &c->problem;
    return p->batch * p->kv_len * case_kv_heads(c) * p->head_dim;
}

static int64_t q_numbers(const attention_case *c)
{
    const ith_attn_problem *p = &c->problem;
    return p->batch * p->q_len * p->heads * p->head_dim;
}

/* ---- Cases ----------------------------------------------------------------------------------------------------- */

typedef struct mesh {
    int ranks;
    ith_strategy strategy;
    int ulysses, ring;
    ith_direction direction;
    ith_exchange_mode exchange;
} mesh;

static const mesh meshes[] = {
    {2, ITH_STRATEGY_ULYSSES, 2, 1, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {3, ITH_STRATEGY_ULYSSES, 3, 1, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {2, ITH_STRATEGY_RING, 1, 2, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {5, ITH_STRATEGY_RING, 1, 5, ITH_DIRECTION_BIDIR, ITH_EXCHANGE_COPY},
    {4, ITH_STRATEGY_ULYSSES_RING, 2, 2, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {6, ITH_STRATEGY_ULYSSES_RING, 2, 3, ITH_DIRECTION_BIDIR, ITH_EXCHANGE_COPY},
    {4, ITH_STRATEGY_ULYSSES_RING, 2, 2, ITH_DIRECTION_UNI, ITH_EXCHANGE_MIXED},
    {6, ITH_STRATEGY_ULYSSES_RING, 2, 3, ITH_DIRECTION_UNI, ITH_EXCHANGE_MIXED},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* A random problem on a mesh: lengths that the ranks share unevenly, grouped queries, lengths of keys, biases. */
static attention_case make_case(const mesh *m, ith_dtype type, uint64_t seed)
{
    uint64_t r = seed;
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .kind = CASE_NORMAL};
    ith_attn_problem *p = &c.problem;
    p->batch = 1 + (int64_t)(random_bits(&r) % 2), p->kv_heads = 1 + (int64_t)(random_bits(&r) % 3);
    p->heads = p->kv_heads * (1 + (int64_t)(random_bits(&r) % 2)), p->head_dim = 1 + (int64_t)(random_bits(&r) % 70);
    p->q_len = 1 + (int64_t)(random_bits(&r) % 90), p->kv_len = 1 + (int64_t)(random_bits(&r) % 90);
    p->dtype = type, p->has_kv_lengths = random_bits(&r) % 2, p->has_key_bias = random_bits(&r) % 2;
    c.options.strategy = m->strategy, c.options.ulysses = m->ulysses, c.options.ring = m->ring;
    c.options.direction = m->direction, c.options.exchange = m->exchange;
    c.options.chunks = 1 + (int)(random_bits(&r) % 3);
    c.options.softmax = random_bits(&r) % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
    c.gap = (int64_t)(random_bits(&r) % 3), c.wants_lse = random_bits(&r) % 2;
    case_fill(&c, seed, 1);
    return c;
}

/* Runs a case on its ranks, and returns a copy of o as it was written. */
static void *run(attention_case *c, int ranks, ith_compress compress)
{
    ith_context *context = NULL;
    const size_t bytes = (size_t)(q_numbers(c) * ith_dtype_bytes(c->problem.dtype));
    c->options.compress = compress;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, case_in_rank, c);
    if (status)
        fail_msg("%s", ith_context_error(context));
    ith_context_destroy(&context);
    return memcpy(malloc(bytes + 1), c->o_bits, bytes);
}

/* ---- Numbers that arrive untouched ----------------------------------------------------------------------------- */

static void round_numbers(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = ith_round_to_bf16(x[i]);
}

/* Makes the numbers of each row of v whole multiples of a power of two: the first number is 127 times the power, and no
 * other is larger. */
static void level_numbers(void *v, ith_dtype type, int64_t count, int64_t dim)
{
    float *x = malloc((size_t)count * sizeof *x);
    ith_to_f32(x, v, type, count);
    for (int64_t i = 0; i < count; i++) {
        float unit = ldexpf(1, (int)(i / dim % 5) - 6);
        x[i] = i % dim ? unit * rintf(fmaxf(fminf(x[i] * 30, 127), -127)) : 127 * unit;
    }
    ith_from_f32(v, type, x, count);
    free(x);
}

/* With f32 tensors the outputs of ulysses are rounded, so only rings give the same bits. */
static void numbers_that_fit_arrive_untouched(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    int compared = 0;
    for (int i = 0; i < MESHES * 9; i++) {
        const mesh *m = &meshes[i % MESHES];
        const ith_dtype type = types[i / MESHES % 3];
        const bool outputs_travel = m->ulysses > 1 && m->exchange == ITH_EXCHANGE_COPY;
        if (type == ITH_F32 && outputs_travel)
            continue;
        attention_case c = make_case(m, type, 77 + (uint64_t)i);
        if (type == ITH_F32) {
            round_numbers(c.q, q_numbers(&c));
            round_numbers(c.k, kv_numbers(&c));
        }
        level_numbers(c.v, type, kv_numbers(&c), c.problem.head_dim);
        size_t bytes = (size_t)(q_numbers(&c) * ith_dtype_bytes(type));
        void *plain = run(&c, m->ranks, ITH_COMPRESS_OFF);
        for (int compress = type == ITH_F32 ? ITH_COMPRESS_BF16 : ITH_COMPRESS_8BIT; compress <= ITH_COMPRESS_8BIT;
             compress++, compared++) {
            void *o = run(&c, m->ranks, (ith_compress)compress);
            if (memcmp(o, plain, bytes))
                fail_msg("case %d, %s: other bits", i, ith_compress_name((ith_compress)compress));
            free(o);
        }
        free(plain);
        case_free(&c);
    }
    assert_true(compared > 50);
}

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* bf16 rounds a number by at most 2^-9 of it; 8 bits round a number of v by at most 1/254 of the largest number of its
 * row. The softmax enlarges the error of logits, which are about as large as q and k are long. */
static void other_numbers_arrive_within_the_error(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES * 3; i++) {
        const mesh *m = &meshes[i % MESHES];
        attention_case c = make_case(m, ITH_F32, 500 + (uint64_t)i);
        size_t count = (size_t)q_numbers(&c);
        float *plain = run(&c, m->ranks, ITH_COMPRESS_OFF);
        for (int compress = ITH_COMPRESS_BF16; compress <= ITH_COMPRESS_8BIT; compress++) {
            float *o = run(&c, m->ranks, (ith_compress)compress);
            double error = relative_l2(o, plain, (int64_t)count);
            if (!(error <= 0.06))
                fail_msg("case %d, %s: error %g", i, ith_compress_name((ith_compress)compress), error);
            free(o);
        }
        free(plain);
        case_free(&c);
    }
}

/* One rank's report of a plan whose tensors are normal numbers. */
typedef struct report {
    ith_attn_problem problem;
    ith_attn_options options;
    ith_plan_info info[MOST_RANKS];
    ith_plan_counters counters[MOST_RANKS];
    float special; /* a number in v of rank 1; 0: none */
    float *o[MOST_RANKS];
} report;

static ith_status report_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    report *r = user;
    const ith_attn_problem *p = &r->problem;
    const int rank = ith_comm_rank(comm);
    int64_t begin, rows;
    ith_share(p->q_len, ith_comm_size(comm), rank, &begin, &rows);
    const size_t count = (size_t)(rows * p->heads * p->head_dim);
    float *x = malloc((3 * count + 1) * sizeof *x), *o = malloc((count + 1) * sizeof *o);
    uint64_t random = 9 + (uint64_t)rank;
    for (size_t i = 0; i < 3 * count; i++)
        x[i] = case_value(&random);
    if (r->special != 0 && rank == 1)
        x[2 * count + 5] = r->special;
    ith_plan *plan = NULL;
    ith_attn_tensors tensors = {.struct_size = sizeof tensors, .q = x, .k = x + count, .v = x + 2 * count, .o = o};
    r->info[rank] = (ith_plan_info)ITH_PLAN_INFO_INIT, r->counters[rank] = (ith_plan_counters)ITH_PLAN_COUNTERS_INIT;
    ith_status status = ith_plan_create(context, p, &r->options, comm, &plan);
    for (int i = 0; i < 2 && !status; i++)
        status = ith_plan_execute(plan, &tensors);
    if (!status)
        status = ith_plan_describe(plan, &r->info[rank]);
    if (!status)
        status = ith_plan_count(plan, &r->counters[rank]);
    ith_plan_destroy(&plan);
    r->o[rank] = o;
    free(x);
    return status;
}

static void run_report(report *r, int ranks)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, report_in_rank, r);
    if (status)
        fail_msg("%s", ith_context_error(context));
    ith_context_destroy(&context);
    for (int rank = 0; rank < ranks; rank++)
        free(r->o[rank]);
}

static report new_report(ith_exchange_mode exchange, ith_compress compress)
{
    report r = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
    r.problem.heads = 2, r.problem.head_dim = 64, r.problem.q_len = r.problem.kv_len = 60;
    r.options.strategy = ITH_STRATEGY_RING, r.options.exchange = exchange, r.options.compress = compress;
    return r;
}

/* Rounding errors are spread evenly over half of the last bit. So in bf16 their root mean square is from 2^-9 / sqrt(3)
 * to 2^-8 / sqrt(3) of a number, according to its place between two powers of two. */
static void the_error_is_measured(void **state)
{
    (void)state;
    report plain = new_report(ITH_EXCHANGE_COPY, ITH_COMPRESS_OFF),
           half = new_report(ITH_EXCHANGE_COPY, ITH_COMPRESS_BF16),
           eighth = new_report(ITH_EXCHANGE_COPY, ITH_COMPRESS_8BIT),
           place = new_report(ITH_EXCHANGE_IN_PLACE, ITH_COMPRESS_8BIT);
    run_report(&plain, 3), run_report(&half, 3), run_report(&eighth, 3), run_report(&place, 3);
    for (int rank = 0; rank < 3; rank++) {
        /* 20 rows of 2 heads of k and of v, 2 hops */
        const int64_t vectors = 20 * 2 * 2;
        assert_int_equal(plain.info[rank].sent_bytes, vectors * 2 * 64 * 4);
        assert_int_equal(half.info[rank].sent_bytes, vectors * 2 * 64 * 2);
        assert_int_equal(eighth.info[rank].sent_bytes, vectors * (64 * 2 + 64 + 4));
        assert_int_equal(half.counters[rank].sent_bytes, 2 * half.info[rank].sent_bytes);
        assert_int_equal(eighth.counters[rank].sent_bytes, 2 * eighth.info[rank].sent_bytes);
        assert_true(plain.counters[rank].compression_error == 0);
        assert_true(half.counters[rank].compression_error > 1e-3 && half.counters[rank].compression_error < 2.3e-3);
        assert_true(eighth.counters[rank].compression_error > 2e-3 && eighth.counters[rank].compression_error < 1e-2);
        assert_int_equal(half.info[rank].compress, ITH_COMPRESS_BF16);
        assert_int_equal(place.info[rank].compress, ITH_COMPRESS_OFF);
        assert_true(place.counters[rank].compression_error == 0);
    }
}

/* Only the ring of a mixed exchange sends messages. The rows of the ulysses axis are used in place, as they are. */
static void rows_in_place_count_in_full(void **state)
{
    (void)state;
    const ith_compress all[] = {ITH_COMPRESS_BF16, ITH_COMPRESS_8BIT};
    const int64_t messages[] = {2 * 64 * 2, 64 * 2 + 64 + 4};
    for (int i = 0; i < 2; i++) {
        report r = new_report(ITH_EXCHANGE_MIXED, all[i]);
        r.options.strategy = ITH_STRATEGY_ULYSSES_RING, r.options.ulysses = r.options.ring = 2;
        run_report(&r, 4);
        for (int rank = 0; rank < 4; rank++) {
            /* 15 rows of one head of q, k, v and o stay on the host; 30 rows of one head of k and v take one hop */
            assert_int_equal(r.info[rank].sent_bytes, 15 * 4 * 64 * 4 + 30 * messages[i]);
            assert_int_equal(r.counters[rank].sent_bytes, 2 * r.info[rank].sent_bytes);
        }
    }
}

/* Ulysses sends no row of a rank to itself: where all other rows fit the messages, and each rank keeps the outputs of
 * its own head and rows, the result has the bits of plain messages. */
static void own_rows_are_not_rounded(void **state)
{
    (void)state;
    enum { HEAD = 16, LENGTH = 6, WIDTH = 2 * HEAD };
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .kind = CASE_NORMAL};
    c.problem.heads = 2, c.problem.head_dim = HEAD, c.problem.q_len = c.problem.kv_len = LENGTH;
    c.options.strategy = ITH_STRATEGY_ULYSSES, c.options.exchange = ITH_EXCHANGE_COPY;
    case_fill(&c, 3, 1);
    /* the rows of rank 1 fit */
    round_numbers((float *)c.q + LENGTH / 2 * WIDTH, LENGTH / 2 * WIDTH);
    round_numbers((float *)c.k + LENGTH / 2 * WIDTH, LENGTH / 2 * WIDTH);
    level_numbers((float *)c.v + LENGTH / 2 * WIDTH, ITH_F32, LENGTH / 2 * WIDTH, HEAD);
    float *plain = run(&c, 2, ITH_COMPRESS_OFF), *o = run(&c, 2, ITH_COMPRESS_8BIT);
    for (int row = 0; row < LENGTH / 2; row++) /* head 0 of rank 0's rows */
        assert_memory_equal(o + row * WIDTH, plain + row * WIDTH, HEAD * sizeof *o);
    assert_true(memcmp(o, plain, LENGTH * WIDTH * sizeof *o)); /* the others are rounded */
    free(o), free(plain);
    case_free(&c);
}

/* A NaN or an infinity in v of one rank reaches every query, and nothing else happens. */
static void numbers_that_are_not_finite_arrive_as_such(void **state)
{
    (void)state;
    const float specials[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        report r = new_report(ITH_EXCHANGE_COPY, ITH_COMPRESS_8BIT);
        ith_context *context = NULL;
        r.special = specials[i];
        assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
        assert_int_equal(ith_run_ranks(context, 3, 3, report_in_rank, &r), ITH_OK);
        for (int rank = 0; rank < 3; rank++) {
            assert_true(!isfinite(r.o[rank][5]));
            free(r.o[rank]);
        }
        ith_context_destroy(&context);
    }
}

/* One row of v as it arrives in 8 bits. The step between its levels is 1/127 of the largest number, rounded to a
 * multiple of the smallest number of f32. */
static void check_row(const float *x, int64_t count)
{
    ith_attn_setting setting = {.element_bytes = sizeof(float), .threads = 1, .compress = ITH_COMPRESS_8BIT};
    assert_int_equal(ith_context_create(NULL, &setting.context), ITH_OK);
    setting.problem.head_dim = count, setting.problem.dtype = ITH_F32;
    ith_compress_error sums = {0, 0};
    float largest = 0, arrived[8];
    char message[64];
    const ith_region from = {.data = (void *)x, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)},
                     to = {.data = arrived, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)};
    assert_int_equal(ith_compress_region(&setting, ITH_TENSOR_V, &from, message, &sums),
                     ith_travel_bytes(&setting, ITH_TENSOR_V));
    ith_decompress_region(&setting, ITH_TENSOR_V, message, &to);
    ith_context_destroy(&setting.context);
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    const double step = (double)largest / 127 + 0x1p-149;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)arrived[i] - (double)x[i]) <= 0.51 * step))
            fail_msg("%a arrives as %a, beside %a", (double)x[i], (double)arrived[i], (double)largest);
}

/* Also the smallest and the largest numbers of f32. */
static void rows_of_any_size_arrive_within_half_a_step(void **state)
{
    (void)state;
    uint64_t random = 4;
    for (int exponent = -149; exponent <= 127; exponent++)
        for (int i = 0; i < 50; i++) {
            float x[8];
            for (int j = 0; j < 8; j++)
                x[j] = ldexpf(random_signed(&random), exponent) * 1.9999f;
            check_row(x, 8);
        }
    for (int k = 1; k < 400; k++)
        check_row((const float[]){ldexpf((float)k, -149), -ldexpf((float)k, -149), 0, ldexpf((float)(k / 2), -149)}, 4);
    check_row((const float[]){FLT_MAX, -FLT_MAX, FLT_MAX / 3, 1}, 4);
}

/* A message has the same bytes whatever the memory held before: also those after a vector's numbers. */
static void every_byte_of_a_message_is_written(void **state)
{
    (void)state;
    const ith_attn_tensor tensors[] = {ITH_TENSOR_K, ITH_TENSOR_V};
    const float x[8] = {1, -2, 3, -4, 5, -6, 7, -8};
    ith_attn_setting setting = {.element_bytes = sizeof(float), .threads = 1, .compress = ITH_COMPRESS_8BIT};
    assert_int_equal(ith_context_create(NULL, &setting.context), ITH_OK);
    setting.problem.dtype = ITH_F32;
    for (int64_t count = 1; count <= 8; count++)
        for (int i = 0; i < 2; i++) {
            ith_compress_error sums = {0, 0};
            char zeros[32] = {0}, ones[32];
            const ith_region from = {.data = (void *)x, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)};
            setting.problem.head_dim = count;
            memset(ones, 0xff, sizeof ones);
            const int64_t bytes = ith_compress_region(&setting, tensors[i], &from, zeros, &sums);
            assert_int_equal(ith_compress_region(&setting, tensors[i], &from, ones, &sums), bytes);
            assert_memory_equal(zeros, ones, (size_t)bytes);
        }
    ith_context_destroy(&setting.context);
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

SPOIL(use_bf16_tensors, p->dtype = ITH_BF16)
SPOIL(ask_for_8_bits, o->compress = ITH_COMPRESS_8BIT)
SPOIL(ask_for_nonsense, o->compress = (ith_compress)7)

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    trial t = new_trial();
    t.options.exchange = ITH_EXCHANGE_COPY, t.options.compress = ITH_COMPRESS_BF16;
    t.odd_rank = -1, t.spoil = use_bf16_tensors;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT,
                   "compress is bf16, which is for tensors of f32, and these are of bf16: 8bit");
    t.spoil = ask_for_nonsense;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT, "compress is 7, and must be from 0 (off) to 2 (8bit)");
    t.odd_rank = 1, t.spoil = ask_for_8_bits;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT, "compress is 8bit on rank 1 and bf16 on rank 0");
}

/* A pool that runs its tasks one after the other, and counts them. */
static void counting_pool(void *user, int tasks, ith_task_fn task, void *task_user)
{
    *(int *)user += tasks;
    for (int i = 0; i < tasks; i++)
        task(task_user, i);
}

enum { ROWS = 17, OF_ROW = 5, DIM = 8, MESSAGE = ROWS * OF_ROW * (DIM + 4) };

/* Compresses some columns of a matrix with a number of threads, and restores them. Returns the tasks of the pool. */
static int code_in_threads(int threads, const float *x, char *message, ith_compress_error *sums)
{
    float arrived[ROWS][OF_ROW * DIM];
    int tasks = 0;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.parallel = counting_pool, options.parallel_user = &tasks;
    ith_attn_setting s = {.element_bytes = sizeof(float), .threads = threads, .compress = ITH_COMPRESS_8BIT};
    s.problem.head_dim = DIM, s.problem.dtype = ITH_F32;
    assert_int_equal(ith_context_create(&options, &s.context), ITH_OK);
    ith_region region = {.data = (void *)x,
                         .count = {ROWS, 1},
                         .stride = {(OF_ROW + 1) * DIM * sizeof(float), 0},
                         .bytes = OF_ROW * DIM * sizeof(float)};
    assert_int_equal(ith_compress_region(&s, ITH_TENSOR_V, &region, message, sums), MESSAGE);
    region.data = arrived, region.stride[0] = sizeof arrived[0];
    ith_decompress_region(&s, ITH_TENSOR_V, message, &region);
    double error = 0, norm = 0;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < OF_ROW * DIM; i++) {
            const double number = x[row * (OF_ROW + 1) * DIM + i], distance = (double)arrived[row][i] - number;
            assert_true(fabs(distance) <= 0.005);
            error += distance * distance, norm += number * number;
        }
    assert_true(fabs(sums->error - error) < 1e-9 * error && fabs(sums->norm - norm) < 1e-9 * norm);
    ith_context_destroy(&s.context);
    return tasks;
}

static void any_number_of_threads_makes_the_same_message(void **state)
{
    (void)state;
    float x[ROWS * (OF_ROW + 1) * DIM];
    char one[MESSAGE], several[MESSAGE];
    ith_compress_error sums = {0, 0}, other = {0, 0};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = sinf((float)i);
    code_in_threads(1, x, one, &sums);
    assert_int_equal(code_in_threads(3, x, several, &other), 6);
    assert_memory_equal(one, several, sizeof one);
    assert_memory_equal(&sums, &other, sizeof sums);
}

/* Once an execution is to stop, nobody reads its messages, so they are neither written nor restored. */
static void nothing_is_compressed_after_a_stop(void **state)
{
    (void)state;
    float x[ROWS * OF_ROW * DIM] = {0};
    char message[MESSAGE], untouched[MESSAGE];
    ith_compress_error sums = {0, 0};
    ith_halt halt = {.stopped = true};
    ith_attn_setting s = {.element_bytes = sizeof(float), .threads = 1, .compress = ITH_COMPRESS_8BIT, .halt = &halt};
    s.problem.head_dim = DIM, s.problem.dtype = ITH_F32;
    assert_int_equal(ith_context_create(NULL, &s.context), ITH_OK);
    ith_region region = {.data = x, .count = {ROWS * OF_ROW, 1}, .stride = {DIM * 4, 0}, .bytes = DIM * 4};
    memset(message, 0x5a, sizeof message), memset(untouched, 0x5a, sizeof untouched);
    assert_int_equal(ith_compress_region(&s, ITH_TENSOR_V, &region, message, &sums), MESSAGE);
    assert_memory_equal(message, untouched, sizeof message);
    ith_decompress_region(&s, ITH_TENSOR_V, message, &region);
    for (int i = 0; i < ROWS * OF_ROW * DIM; i++)
        assert_true(x[i] == 0);
    ith_context_destroy(&s.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_that_fit_arrive_untouched),
        cmocka_unit_test(other_numbers_arrive_within_the_error),
        cmocka_unit_test(the_error_is_measured),
        cmocka_unit_test(rows_in_place_count_in_full),
        cmocka_unit_test(own_rows_are_not_rounded),
        cmocka_unit_test(numbers_that_are_not_finite_arrive_as_such),
        cmocka_unit_test(rows_of_any_size_arrive_within_half_a_step),
        cmocka_unit_test(every_byte_of_a_message_is_written),
        cmocka_unit_test(any_number_of_threads_makes_the_same_message),
        cmocka_unit_test(nothing_is_compressed_after_a_stop),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
