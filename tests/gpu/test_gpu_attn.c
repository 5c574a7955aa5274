/* SPDX-License-Identifier: Apache-2.0 */
/* Every attention kernel of the device module, compared with float64 and with a plain computation in the same types:
 * sizes around the tiles, head sizes, layouts, masks, several shards, extreme logits; rows alone, calls that are
 * cancelled. Outputs are NaN before a call, and nothing else may be written. Arguments choose groups of cases;
 * `test_gpu_attn speed` measures rates. */
#include "base/size.h"
#include "gpu/attn_problem.h"
#include "gpu/gpu_test.h"
#include "support/random.h"

#include <math.h>

static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
enum { DTYPES = 3 };

/* ---- A problem on the device ----------------------------------------------------------------------------------- */

/* Rows on the device, and the elements that hold them. */
typedef struct placed {
    gpu_buffer buffer;
    ith_device_rows rows;
    int64_t begin; /* the element at rows.data */
} placed;

/* Rows [from, from + count) of heads, from an array [heads, all, head_dim]. */
typedef struct host_rows {
    const float *x; /* NULL: outputs, which are NaN */
    int64_t heads, per_entry, all, from, count;
    int64_t first, some; /* heads of the call */
    int64_t padded;      /* rows after `count` up to this number are finite */
} host_rows;

/* The element at which row i of head n begins. */
static int64_t element_of(const placed *p, int64_t n, int64_t i, int64_t D)
{
    const ith_device_rows *r = &p->rows;
    return p->begin + (n - r->first) / r->heads * r->batch_stride + i * r->row_stride + (n - r->first) % r->heads * D;
}

/* Lays rows out; returns the number of elements. */
static int64_t lay_out(placed *p, const attn_problem *problem, const host_rows *h)
{
    int64_t D = problem->spec.head_dim, width = h->per_entry * D, entries = h->heads / h->per_entry;
    rows_layout layout = problem->spec.layout;
    p->rows = (ith_device_rows){.heads = h->per_entry, .row_stride = width};
    if (layout == LAYOUT_FUSED)
        p->rows.row_stride = 3 * width, p->begin = width;
    if (layout == LAYOUT_ODD)
        p->rows.row_stride = width + 1 + width % 2 * 2, p->begin = 1;
    if (layout == LAYOUT_BHSD)
        p->rows.heads = 1, p->rows.row_stride = D, p->rows.first = h->first, entries = h->some;
    p->rows.batch_stride = h->padded * p->rows.row_stride;
    return p->begin + entries * p->rows.batch_stride;
}

static placed place(const attn_problem *problem, const host_rows *h)
{
    placed p = {.begin = 0};
    ith_dtype dtype = problem->spec.dtype;
    int64_t D = problem->spec.head_dim, bytes = ith_dtype_bytes(dtype), count = lay_out(&p, problem, h);
    char *image = malloc((size_t)(count * bytes + 1));
    float *behind = malloc((size_t)D * sizeof *behind);
    memset(image, GPU_POISON, (size_t)(count * bytes));
    for (int64_t d = 0; d < D; d++)
        behind[d] = 30.0f;
    int64_t last = p.rows.heads == 1 && p.rows.first == h->first ? h->first + h->some : h->heads;
    for (int64_t n = p.rows.first; h->x && n < last; n++)
        for (int64_t i = 0; i < h->padded; i++)
            ith_from_f32(image + element_of(&p, n, i, D) * bytes, dtype,
                         i < h->count ? h->x + (n * h->all + h->from + i) * D : behind, D);
    p.buffer = gpu_upload(image, count * bytes);
    p.rows.data = p.buffer.data + p.begin * bytes;
    free(image);
    free(behind);
    return p;
}

/* The memory of a run on the device. */
typedef struct run_memory {
    placed q, o, k[SHARDS_MAX], v[SHARDS_MAX];
    gpu_buffer keys, bias, fixed, mask, o_sum, m, l, lse, halt;
} run_memory;

static int64_t lse_stride(int64_t rows)
{
    return rows + 3;
}

/* Uploads rows [begin, begin + rows) of the problem. */
static void upload(run_memory *r, const attn_problem *p, int64_t begin, int64_t rows, bool halted)
{
    const attn_spec *s = &p->spec;
    int64_t all = s->batch * s->heads, mask_bytes = s->mask == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float);
    host_rows h = {p->q, all, s->heads, s->q_rows, begin, rows, s->first, s->count, rows};
    *r = (run_memory){.q = place(p, &h)};
    h.x = NULL;
    r->o = place(p, &h);
    for (int i = 0; i < s->shards; i++) {
        int64_t count = p->cut[i + 1] - p->cut[i], first = s->first / s->per_kv;
        int64_t last = (s->first + s->count - 1) / s->per_kv;
        h = (host_rows){p->k,       p->kv_heads,      s->heads / s->per_kv,
                        s->kv_rows, p->cut[i],        count,
                        first,      last - first + 1, ith_round_up(count, ITH_DEVICE_KEYS)};
        r->k[i] = place(p, &h);
        h.x = p->v;
        r->v[i] = place(p, &h);
    }
    if (p->keys)
        r->keys = gpu_upload(p->keys, s->shards * s->batch * (int64_t)sizeof *p->keys);
    if (p->bias)
        r->bias = gpu_upload(p->bias, s->batch * s->kv_rows * (int64_t)sizeof *p->bias);
    if (p->fixed)
        r->fixed = gpu_upload(p->fixed, s->count);
    int64_t masks = (s->mask_of_batch ? s->batch : 1) * (s->mask_of_head ? s->heads : 1) * s->q_rows * s->kv_rows;
    if (s->mask != ITH_MASK_NONE)
        r->mask = gpu_upload(p->shown ? (void *)p->shown : p->added, masks * mask_bytes);
    r->o_sum = gpu_poisoned(s->count * rows * s->head_dim * (int64_t)sizeof(float));
    r->l = gpu_poisoned(s->count * rows * (int64_t)sizeof(float));
    r->lse = gpu_poisoned(s->count * lse_stride(rows) * (int64_t)sizeof(float));
    r->m = gpu_poisoned(s->count * rows * (int64_t)sizeof(float));
    for (int64_t n = 0; n < s->count; n++) /* offsets of heads that use fixed_m; a kernel must not read others */
        if (uses_fixed_m(p, n))
            GPU_OK(gpu_module->copy(gpu_stream, r->m.data + n * rows * 4, p->m + n * s->q_rows + begin, rows * 4,
                                    gpu_said));
    gpu_wait();
    r->halt = gpu_upload(&(int32_t){halted}, sizeof(int32_t));
}

static void release(run_memory *r)
{
    gpu_buffer *all[] = {&r->q.buffer, &r->o.buffer, &r->keys, &r->bias, &r->fixed, &r->mask,
                         &r->o_sum,    &r->m,        &r->l,    &r->lse,  &r->halt};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_free(all[i]);
    for (int i = 0; i < SHARDS_MAX; i++)
        gpu_free(&r->k[i].buffer), gpu_free(&r->v[i].buffer);
}

/* The call for one shard. */
static ith_device_attend call_of(const run_memory *r, const attn_problem *p, int64_t begin, int64_t rows, int shard)
{
    const attn_spec *s = &p->spec;
    ith_device_attend call = {.dtype = s->dtype,
                              .head_dim = s->head_dim,
                              .scale = p->scale,
                              .softmax = s->softmax,
                              .fixed = (const uint8_t *)r->fixed.data,
                              .first = s->first,
                              .count = s->count,
                              .heads = s->heads,
                              .per_kv = s->per_kv,
                              .q = r->q.rows,
                              .k = r->k[shard].rows,
                              .v = r->v[shard].rows,
                              .o = r->o.rows,
                              .q_rows = rows,
                              .kv_rows = p->cut[shard + 1] - p->cut[shard],
                              .first_shard = shard == 0,
                              .last_shard = shard == s->shards - 1,
                              .lse = (float *)r->lse.data,
                              .lse_stride = lse_stride(rows),
                              .halt = (const int32_t *)r->halt.data};
    bool stateless = s->shards == 1 && rows % 2 == 0;
    call.o_sum = stateless ? NULL : (float *)r->o_sum.data;
    call.l = stateless ? NULL : (float *)r->l.data;
    call.m = stateless && s->softmax == ITH_SOFTMAX_ONLINE && !s->mixed ? NULL : (float *)r->m.data;
    call.keys = p->keys ? (const int32_t *)r->keys.data + shard * s->batch : NULL;
    call.key_bias = p->bias ? (const float *)r->bias.data + p->cut[shard] : NULL;
    call.key_bias_stride = s->kv_rows;
    call.mask_kind = s->mask;
    call.mask_batch_stride = p->mask_batch_stride, call.mask_head_stride = p->mask_head_stride;
    call.mask_row_stride = s->kv_rows;
    int64_t at = begin * s->kv_rows + p->cut[shard];
    if (s->mask != ITH_MASK_NONE)
        call.mask = r->mask.data + at * (s->mask == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float));
    return call;
}

/* ---- Running a kernel ------------------------------------------------------------------------------------------ */

static bool is_poison(const char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if ((unsigned char)bytes[i] != GPU_POISON)
            return false;
    return true;
}

/* Copies o and lse into the answer, and checks that nothing else was written: not between the rows, not to the state of
 * a single shard, not around buffers. */
static const char *collect(const run_memory *r, const attn_problem *p, int64_t rows, attn_answer *a)
{
    const attn_spec *s = &p->spec;
    const char *fault = NULL;
    int64_t D = s->head_dim, bytes = ith_dtype_bytes(s->dtype);
    char *image = malloc((size_t)r->o.buffer.bytes + 1);
    float *lse = malloc((size_t)r->lse.bytes + 1);
    gpu_download(image, r->o.buffer.data, r->o.buffer.bytes);
    gpu_download(lse, r->lse.data, r->lse.bytes);
    for (int64_t row = 0; row < s->count * rows; row++) {
        int64_t n = row / rows, i = row % rows, at = n * lse_stride(rows) + i;
        char *o = image + element_of(&r->o, s->first + n, i, D) * bytes;
        ith_to_f32(a->o + row * D, o, s->dtype, D);
        memset(o, GPU_POISON, (size_t)(D * bytes));
        a->lse[row] = lse[at];
        memset(&lse[at], GPU_POISON, sizeof *lse);
    }
    if (!is_poison(image, r->o.buffer.bytes) || !is_poison((char *)lse, r->lse.bytes))
        fault = "wrote between rows of o or lse";
    const gpu_buffer *all[] = {&r->o.buffer, &r->lse, &r->o_sum, &r->m, &r->l};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fault = all[i]->whole && !gpu_is_guarded(all[i]) ? "wrote outside a buffer" : fault;
    char *state = malloc((size_t)r->o_sum.bytes + 1);
    gpu_download(state, r->o_sum.data, r->o_sum.bytes);
    if (s->shards == 1 && !is_poison(state, r->o_sum.bytes))
        fault = "wrote the state at the last shard";
    free(state);
    free(image);
    free(lse);
    return fault;
}

/* Whether the offsets of heads with fixed_m have not changed. */
static bool has_offsets(const run_memory *r, const attn_problem *p, int64_t begin, int64_t rows)
{
    bool same = true;
    float *m = malloc((size_t)r->m.bytes + 1);
    gpu_download(m, r->m.data, r->m.bytes);
    for (int64_t n = 0; n < p->spec.count; n++)
        if (uses_fixed_m(p, n))
            same = same && !memcmp(m + n * rows, p->m + n * p->spec.q_rows + begin, (size_t)rows * sizeof *m);
    free(m);
    return same;
}

static bool is_refused(const ith_device_kernel *kernel, const ith_device_attend *call)
{
    return kernel->refuses(gpu_device, call) != NULL;
}

/* Runs rows [begin, begin + rows) of the problem into `a`. Returns false if the kernel refuses it. */
static bool run(const ith_device_kernel *kernel, const attn_problem *p, int64_t begin, int64_t rows, bool halted,
                attn_answer *a)
{
    const attn_spec *s = &p->spec;
    run_memory r;
    bool refused = false;
    upload(&r, p, begin, rows, halted);
    for (int pass = 0; pass < (s->mixed ? 2 : 1); pass++)
        for (int shard = 0; shard < s->shards; shard++) {
            ith_device_attend call = call_of(&r, p, begin, rows, shard);
            if (s->mixed)
                call.softmax = pass ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
            refused = refused || is_refused(kernel, &call);
        }
    for (int pass = 0; !refused && pass < (s->mixed ? 2 : 1); pass++)
        for (int shard = 0; shard < s->shards; shard++) {
            ith_device_attend call = call_of(&r, p, begin, rows, shard);
            if (s->mixed)
                call.softmax = pass ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
            GPU_OK(kernel->attend(gpu_stream, &call, gpu_said));
        }
    if (!refused) {
        gpu_wait();
        const char *fault = collect(&r, p, rows, a);
        fault = has_offsets(&r, p, begin, rows) ? fault : "wrote offsets of fixed_m";
        if (fault)
            gpu_fail("%s %s: %s", kernel->name, fault, describe(p));
    }
    release(&r);
    return !refused;
}

/* ---- Accuracy -------------------------------------------------------------------------------------------------- */

/* The results of a group of cases, for each kernel. */
typedef struct tally {
    int cases, refused;
    double worst[DTYPES]; /* relative errors of heads that are large enough to judge */
    double ratio;         /* the largest error divided by the plain result's, where this is not nearly 0 */
} tally;

enum { KERNELS_MAX = 16 };
static tally tallies[KERNELS_MAX];

/* The bound of the relative error for all logits. Infinite if only the comparison with the plain result counts. */
static double bound_of(const attn_problem *p)
{
    double bounds[] = {5e-6, 0x1p-8, 0x1p-11};
    return p->spec.spread > 50.0f ? 0.1 : bounds[p->spec.dtype - ITH_F32];
}

static void check_head(const ith_device_kernel *kernel, const attn_problem *p, const attn_answer *mine,
                       const attn_answer *exact, const attn_answer *plain, int64_t n, tally *t)
{
    const attn_spec *s = &p->spec;
    double error = head_error(p, mine, exact, n), simple = head_error(p, plain, exact, n), unit = unit_of(s->dtype);
    bool few = s->q_rows < 16 || s->q_rows * s->head_dim < 512; /* errors of logits change a row's numbers alike */
    double luck = few ? (s->dtype == ITH_F32 ? 128 : 16) * unit : unit_of(ITH_F32);
    if (!((few || error <= bound_of(p)) && error <= fmax(2 * simple, luck)))
        gpu_fail("%s head %lld: error %.3g, of the plain way %.3g, bound %.3g: %s", kernel->name, (long long)n, error,
                 simple, bound_of(p), describe(p));
    if (!few) {
        double *worst = &t->worst[s->dtype - ITH_F32];
        *worst = s->spread > 50.0f ? *worst : fmax(*worst, error);
        t->ratio = simple > unit / 4 ? fmax(t->ratio, error / simple) : t->ratio;
    }
}

/* Runs a problem on all kernels, and compares. */
static void check(const attn_spec *spec, uint64_t seed)
{
    attn_problem p = make_problem(spec, seed);
    attn_answer exact = compute_exact(&p), plain = compute_plain(&p), mine = make_answer(&p);
    for (int k = 0; gpu_module->kernels[k]; k++) {
        const ith_device_kernel *kernel = gpu_module->kernels[k];
        tallies[k].cases++;
        if (!run(kernel, &p, 0, p.spec.q_rows, false, &mine)) {
            tallies[k].refused++;
            continue;
        }
        for (int64_t n = 0; n < p.spec.count; n++)
            check_head(kernel, &p, &mine, &exact, &plain, n, &tallies[k]);
        double slack = p.spec.dtype == ITH_F32 ? 4e-6 : 4e-6 + 0x1p-9 / 4; /* for sums of 16-bit probabilities */
        double difference = lse_error(&p, &mine, &exact);
        if (!(difference <= slack))
            gpu_fail("%s lse: error %.3g: %s", kernel->name, difference, describe(&p));
    }
    free_answer(&exact), free_answer(&plain), free_answer(&mine);
    free_problem(&p);
}

static void report(const char *group)
{
    for (int k = 0; gpu_module->kernels[k]; k++) {
        tally *t = &tallies[k];
        printf("%-16s %-12s %4d cases, %3d refused; worst error f32 %.2e, bf16 %.2e, f16 %.2e; of the plain one %.2f\n",
               group, gpu_module->kernels[k]->name, t->cases, t->refused, t->worst[0], t->worst[1], t->worst[2],
               t->ratio);
        *t = (tally){0};
    }
}

/* ---- Groups of cases ------------------------------------------------------------------------------------------- */

static ith_softmax softmax_of(int n)
{
    return n % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
}

static void test_sizes(void)
{
    static const int64_t rows[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 193, 300};
    static const int64_t keys[] = {0, 1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 500};
    static const int64_t dims[] = {64, 128, 40, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
            int n = (int)(i * 17 + j);
            attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .batch = 1, .heads = 2};
            s.head_dim = dims[n % 4], s.q_rows = rows[i], s.kv_rows = keys[j], s.spread = 2.0f;
            s.layout = n / 2 % 3 ? LAYOUT_BSHD : LAYOUT_FUSED;
            check(&s, (uint64_t)n);
        }
    report("sizes");
}

static void test_head_sizes(void)
{
    static const int64_t dims[] = {1,  2,  3,  7,   8,   15,  16,  17,  24,  31,  32,  33,  40,  48,  56,  63,  64, 65,
                                   72, 80, 96, 100, 104, 112, 127, 128, 129, 144, 160, 192, 200, 255, 256, 257, 300};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int n = 0; n < 2 * DTYPES; n++) {
            attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .batch = 1, .heads = 2};
            s.head_dim = dims[i], s.q_rows = 70, s.kv_rows = 150, s.spread = 3.0f;
            s.layout = (rows_layout)((i + (size_t)n) % LAYOUTS), s.shards = 1 + n % 2;
            check(&s, 1000 + i * 10 + (uint64_t)n);
        }
    for (int n = 0; n < DTYPES; n++) {
        attn_spec s = {.dtype = dtypes[n], .softmax = softmax_of(n), .batch = 1, .heads = 2, .head_dim = 5000};
        s.q_rows = 18, s.kv_rows = 70, s.shards = 2, s.spread = 2.0f;
        check(&s, 1900 + (uint64_t)n);
    }
    report("head_sizes");
}

/* A random problem, which may have everything that a call may have. */
static attn_spec draw(uint64_t *random, int n)
{
    static const int64_t dims[] = {8, 40, 64, 64, 80, 96, 128, 128, 128, 192, 256, 300};
    attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .mixed = n % 5 == 0};
    s.batch = random_between(random, 1, 3), s.per_kv = random_between(random, 1, 3);
    s.heads = s.per_kv * random_between(random, 1, 3);
    s.head_dim = dims[random_below(random, 12)];
    s.q_rows = random_between(random, 1, 300), s.kv_rows = random_between(random, 1, 700);
    s.shards = (int)random_between(random, 1, SHARDS_MAX);
    s.spread = 6.0f * random_uniform(random) + 0.1f;
    s.layout = (rows_layout)random_below(random, LAYOUTS);
    s.lengths = random_below(random, 3) == 0;
    s.biased = random_below(random, 3) == 0, s.hiding = random_below(random, 3) == 0;
    static const ith_mask masks[] = {ITH_MASK_NONE, ITH_MASK_NONE, ITH_MASK_BOOL, ITH_MASK_ADDITIVE};
    s.mask = masks[random_below(random, 4)];
    s.mask_of_batch = random_below(random, 2), s.mask_of_head = random_below(random, 2);
    if (random_below(random, 3) == 0) { /* some of the heads */
        s.first = random_between(random, 0, s.batch * s.heads - 1);
        s.count = random_between(random, 1, s.batch * s.heads - s.first);
    }
    return s;
}

static void test_random(void)
{
    uint64_t random = 7;
    for (int n = 0; n < 180; n++) {
        attn_spec s = draw(&random, n);
        check(&s, 2000 + (uint64_t)n);
    }
    report("random");
}

/* Logits of +-30 and +-300, equal logits, logits near 0, peaked logits; equal keys; ten thousand keys. */
static void test_logits(void)
{
    static const float spreads[] = {8.0f, 80.0f, 1e-20f, -5.0f, 1e4f};
    for (int n = 0; n < 2 * DTYPES; n++) {
        attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .batch = 1, .heads = 1};
        s.q_rows = 100, s.kv_rows = 777, s.head_dim = n % 2 ? 128 : 64;
        for (int i = 0; i < 5; i++) {
            s.spread = spreads[i];
            if (s.spread < 1e4f || s.softmax == ITH_SOFTMAX_ONLINE)
                check(&s, 3000 + (uint64_t)(n * 10 + i));
        }
        for (int kind = LOGITS_PEAKED; kind <= LOGITS_ALIKE; kind++) {
            s.logits = (logit_kind)kind, s.spread = 1.0f, s.shards = n % 2 + 1;
            check(&s, 3100 + (uint64_t)(n * 10 + kind));
        }
    }
    report("logits");
}

/* ---- Bits ------------------------------------------------------------------------------------------------------ */

static bool same_bits(const attn_answer *part, const attn_answer *whole, const attn_spec *s, int64_t begin,
                      int64_t rows)
{
    size_t bytes = (size_t)rows * sizeof(float);
    bool same = true;
    for (int64_t n = 0; n < s->count; n++) {
        int64_t row = n * s->q_rows + begin, D = s->head_dim;
        same = same && !memcmp(part->o + n * rows * D, whole->o + row * D, bytes * (size_t)D);
        same = same && !memcmp(part->lse + n * rows, whole->lse + row, bytes);
    }
    return same;
}

/* A row has the same bits alone, at any place of a block, among any number of rows, and in every run. */
static void test_bits(void)
{
    uint64_t random = 11;
    int compared = 0;
    for (int n = 0; n < 36; n++) {
        attn_spec s = draw(&random, n);
        s.q_rows = 280;
        attn_problem p = make_problem(&s, 4000 + (uint64_t)n);
        attn_answer whole = make_answer(&p), part = make_answer(&p);
        for (int k = 0; gpu_module->kernels[k]; k++) {
            const ith_device_kernel *kernel = gpu_module->kernels[k];
            if (!run(kernel, &p, 0, s.q_rows, false, &whole))
                continue;
            for (int i = 0; i < 5; i++) {
                int64_t begin = i == 0 ? 0 : random_between(&random, 0, s.q_rows - 1);
                int64_t rows = i == 0 ? s.q_rows : i == 1 ? 1 : random_between(&random, 1, s.q_rows - begin);
                run(kernel, &p, begin, rows, false, &part);
                compared++;
                if (!same_bits(&part, &whole, &p.spec, begin, rows))
                    gpu_fail("%s: rows [%lld, +%lld) have other bits than in the whole: %s", kernel->name,
                             (long long)begin, (long long)rows, describe(&p));
            }
        }
        free_answer(&whole), free_answer(&part);
        free_problem(&p);
    }
    printf("%-16s %d comparisons\n", "same bits", compared);
}

/* NaN in a query makes its row NaN, and does not change other rows. */
static void test_nan(void)
{
    for (int n = 0; n < 2 * DTYPES; n++) {
        attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .batch = 1, .heads = 1};
        s.q_rows = 40, s.kv_rows = 200, s.head_dim = n % 2 ? 64 : 33, s.shards = 1 + n % 2;
        attn_problem p = make_problem(&s, 5000 + (uint64_t)n);
        attn_answer clean = make_answer(&p), mine = make_answer(&p);
        int64_t row = 5 + 4 * n, D = s.head_dim;
        for (int k = 0; gpu_module->kernels[k]; k++) {
            const ith_device_kernel *kernel = gpu_module->kernels[k];
            float old = p.q[row * D + 3];
            if (!run(kernel, &p, 0, s.q_rows, false, &clean))
                continue;
            p.q[row * D + 3] = NAN;
            run(kernel, &p, 0, s.q_rows, false, &mine);
            p.q[row * D + 3] = old;
            bool good = isnan(mine.lse[row]);
            for (int64_t d = 0; d < D; d++)
                good = good && isnan(mine.o[row * D + d]);
            memcpy(mine.o + row * D, clean.o + row * D, (size_t)D * sizeof(float));
            mine.lse[row] = clean.lse[row];
            if (!good || !same_bits(&mine, &clean, &p.spec, 0, s.q_rows))
                gpu_fail("%s: NaN in query %lld: %s", kernel->name, (long long)row, describe(&p));
        }
        free_answer(&clean), free_answer(&mine);
        free_problem(&p);
    }
    printf("%-16s done\n", "NaN");
}

/* A call whose halt is set writes nothing: outputs stay NaN. */
static void test_halt(void)
{
    for (int n = 0; n < 2 * DTYPES; n++) {
        attn_spec s = {.dtype = dtypes[n % DTYPES], .softmax = softmax_of(n / 3), .batch = 2, .heads = 2};
        s.q_rows = 200, s.kv_rows = 100, s.head_dim = n % 2 ? 128 : 300, s.shards = 1 + n % 2;
        s.head_dim = n >= 4 ? 64 : s.head_dim;
        attn_problem p = make_problem(&s, 6000 + (uint64_t)n);
        attn_answer a = make_answer(&p);
        for (int k = 0; gpu_module->kernels[k]; k++) {
            if (!run(gpu_module->kernels[k], &p, 0, s.q_rows, true, &a))
                continue;
            for (int64_t i = 0; i < p.spec.count * s.q_rows; i++)
                if (!isnan(a.lse[i]) || !isnan(a.o[i * s.head_dim])) {
                    gpu_fail("%s computed although it was halted: %s", gpu_module->kernels[k]->name, describe(&p));
                    break;
                }
        }
        free_answer(&a);
        free_problem(&p);
    }
    printf("%-16s done\n", "halt");
}

/* ---- Speed ----------------------------------------------------------------------------------------------------- */

/* Prints a kernel's rate: 4 S S D operations a head. */
static void measure(const ith_device_kernel *kernel, ith_dtype dtype, int64_t D, int64_t S, int64_t heads,
                    ith_softmax softmax)
{
    enum { DRAWN = 1 << 16 }; /* random numbers, which are repeated */
    int64_t size = ith_dtype_bytes(dtype), bytes = S * heads * D * size;
    float *drawn = random_floats(&(uint64_t){1}, DRAWN);
    char *bits = malloc((size_t)bytes);
    for (int64_t i = 0; i < S * heads * D; i += DRAWN)
        ith_from_f32(bits + i * size, dtype, drawn, ith_min64(DRAWN, S * heads * D - i));
    free(drawn);
    gpu_buffer q = gpu_upload(bits, bytes), k = gpu_upload(bits, bytes), v = gpu_upload(bits, bytes);
    gpu_buffer o = gpu_poisoned(bytes), m = gpu_filled(S * heads * 4, 0), halt = gpu_filled(4, 0);
    ith_device_attend call = {.dtype = dtype, .head_dim = D, .scale = 1.0f / sqrtf((float)D), .softmax = softmax};
    call.count = call.heads = heads, call.per_kv = 1, call.q_rows = call.kv_rows = S;
    call.q = (ith_device_rows){q.data, 0, heads, heads * D, S * heads * D};
    call.k = call.v = call.o = call.q;
    call.k.data = k.data, call.v.data = v.data, call.o.data = o.data;
    call.first_shard = call.last_shard = true, call.m = (float *)m.data, call.halt = (const int32_t *)halt.data;
    double best = INFINITY;
    for (int i = 0; i < 3 && !is_refused(kernel, &call); i++) {
        gpu_wait();
        double begin = gpu_now();
        GPU_OK(kernel->attend(gpu_stream, &call, gpu_said));
        gpu_wait();
        best = fmin(best, gpu_now() - begin);
    }
    if (isfinite(best))
        printf("speed %-12s %-5s %-8s D=%-4lld S=%-6lld H=%-3lld %9.3f ms %8.1f TFLOP/s\n", kernel->name,
               dtype == ITH_F32    ? "f32"
               : dtype == ITH_BF16 ? "bf16"
                                   : "f16",
               softmax == ITH_SOFTMAX_ONLINE ? "online" : "fixed_m", (long long)D, (long long)S, (long long)heads,
               1e3 * best, 4e-12 * (double)S * (double)S * (double)(D * heads) / best);
    gpu_buffer *all[] = {&q, &k, &v, &o, &m, &halt};
    for (int i = 0; i < 6; i++)
        gpu_free(all[i]);
    free(bits);
}

static void measure_all(void)
{
    static const int64_t dims[] = {64, 128, 256};
    for (int i = 0; gpu_module->kernels[i]; i++)
        for (int n = 0; n < 3; n++)
            for (int softmax = ITH_SOFTMAX_ONLINE; softmax <= ITH_SOFTMAX_FIXED_M; softmax++) {
                measure(gpu_module->kernels[i], ITH_F32, dims[n], 8192, 8, (ith_softmax)softmax);
                measure(gpu_module->kernels[i], ITH_BF16, dims[n], 16384, 8, (ith_softmax)softmax);
            }
}

static const struct {
    const char *name;
    void (*test)(void);
} groups[] = {{"sizes", test_sizes},   {"head_sizes", test_head_sizes},
              {"random", test_random}, {"logits", test_logits},
              {"bits", test_bits},     {"nan", test_nan},
              {"halt", test_halt}};

/* Arguments are names of groups; without one, all run. */
int main(int count, char **arguments)
{
    gpu_begin();
    if (count > 1 && !strcmp(arguments[1], "speed")) {
        measure_all();
        return gpu_end();
    }
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        bool wanted = count == 1;
        for (int i = 1; i < count; i++)
            wanted = wanted || !strcmp(arguments[i], groups[g].name);
        double begin = gpu_now();
        if (!wanted)
            continue;
        groups[g].test();
        printf("%-16s %.1f seconds\n", groups[g].name, gpu_now() - begin);
    }
    return gpu_end();
}
