/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the module besides attention. copy_regions and pack are compared with byte loops, key_stats,
 * query_stats and offsets with float64. Sizes, types and strides are random. There are absent keys, biases, NaN and
 * infinity, and guard bytes around every output. Results must have the same bits in every run and at every alignment.
 * At the end the test prints the bandwidths with S = 75,600, 16 heads and head_dim 128. */
#include "gpu_rows.h"

#include "base/count.h"

#include <math.h>

enum { CASES = 63, SPEED_ROWS = 75600, SPEED_HEADS = 16, SPEED_DIM = 128, SPEED_TURNS = 20 };

static uint64_t seed = 20261127;

static double worse(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

/* The bound of keyops.h for the relative error of a sum over n products, and for its absolute error. */
static double sum_error(int64_t n)
{
    return ((double)n / 16 + 8) * 0x1p-24;
}

static double least_error(int64_t n)
{
    return (double)n * 0x1p-126;
}

/* ---- copy_regions ---------------------------------------------------------------------------------------------- */

/* A region of `total` bytes in runs of `bytes` bytes, whose offset in its memory is at least `offset`. *end: the offset
 * of its end. The strides leave gaps that keep the alignment `unit`. */
static ith_region random_region(int64_t total, int64_t bytes, int64_t unit, int64_t offset, int64_t *end)
{
    ith_region r = {.bytes = bytes};
    int64_t runs = total / bytes, inner = random_between(&seed, 1, runs);
    while (runs % inner)
        inner--;
    r.count[0] = runs / inner;
    r.count[1] = inner;
    r.stride[1] = bytes + unit * random_below(&seed, 4);
    r.stride[0] = r.stride[1] * inner + unit * random_below(&seed, 4);
    *end = offset + r.stride[0] * r.count[0];
    if (random_below(&seed, 8) == 0) { /* negative strides */
        offset += r.stride[0] * (r.count[0] - 1);
        r.stride[0] = -r.stride[0];
    }
    r.data = (char *)NULL + offset;
    return r;
}

/* The offset of byte n of a region. */
static int64_t byte_of(const ith_region *r, int64_t n)
{
    int64_t run = n / r->bytes;
    return (char *)r->data - (char *)NULL + run / r->count[1] * r->stride[0] + run % r->count[1] * r->stride[1] +
           n % r->bytes;
}

/* Copies random lists of regions and compares all bytes of the target, also the bytes between its runs. The data of the
 * regions are offsets at first. kind: 0: memory of the device, 1: the source is pinned memory, 2: the target is. */
static void check_list(int kind, int pairs)
{
    ith_region_pair list[100];
    int64_t source_bytes = 1, target_bytes = 1;
    for (int i = 0; i < pairs; i++) {
        const int64_t unit = 1 << random_below(&seed, 6);
        const int64_t a = unit * random_between(&seed, 1, 20), b = random_between(&seed, 1, 12);
        const int64_t total = a * b * random_between(&seed, 1, 40), cut = random_below(&seed, 3);
        int64_t from = (source_bytes + unit - 1) / unit * unit, to = (target_bytes + unit - 1) / unit * unit;
        list[i].source = random_region(total, cut == 1 ? a * b : a, unit, from, &source_bytes);
        list[i].target = random_region(total, cut == 2 ? a * b : a, unit, to, &target_bytes);
        if (random_below(&seed, 10) == 0)
            list[i].source.count[0] = list[i].target.count[random_below(&seed, 2)] = 0;
    }
    unsigned char *source = malloc((size_t)source_bytes), *target = malloc((size_t)target_bytes);
    unsigned char *found = malloc((size_t)target_bytes);
    for (int64_t i = 0; i < source_bytes; i++)
        source[i] = (unsigned char)random_bits(&seed);
    memset(target, GPU_POISON, (size_t)target_bytes);
    void *pinned = NULL;
    GPU_OK(gpu_module->allocate_pinned(gpu_device, source_bytes + target_bytes, &pinned, gpu_said));
    memcpy(pinned, source, (size_t)source_bytes);
    memset((char *)pinned + source_bytes, GPU_POISON, (size_t)target_bytes);
    gpu_buffer from = gpu_upload(source, source_bytes), to = gpu_poisoned(target_bytes);
    char *from_data = kind == 1 ? pinned : from.data, *to_data = kind == 2 ? (char *)pinned + source_bytes : to.data;
    for (int i = 0; i < pairs; i++) {
        ith_region *s = &list[i].source, *t = &list[i].target;
        for (int64_t n = 0; n < s->count[0] * s->count[1] * s->bytes; n++)
            target[byte_of(t, n)] = source[byte_of(s, n)];
        s->data = s->count[0] ? from_data + ((char *)s->data - (char *)NULL) : NULL;
        t->data = s->count[0] ? to_data + ((char *)t->data - (char *)NULL) : NULL;
    }
    GPU_OK(gpu_module->copy_regions(gpu_stream, list, pairs, gpu_said));
    memset(list, 0xff, sizeof list); /* the list may be freed after the call */
    gpu_download(found, to_data, target_bytes);
    if (memcmp(found, target, (size_t)target_bytes) || !gpu_is_guarded(&to) || !gpu_is_guarded(&from))
        gpu_fail("copy_regions: %d pairs, kind %d, %ld bytes", pairs, kind, (long)target_bytes);
    gpu_free(&from);
    gpu_free(&to);
    gpu_module->release_pinned(gpu_device, pinned);
    free(source);
    free(target);
    free(found);
}

/* More than 2^31 units of one byte: three bytes, again and again. Only some stretches of the target are compared. */
static void check_huge(void)
{
    const int64_t times = ((int64_t)1 << 31) / 3 + 1000, total = 3 * times, piece = 30000;
    if (gpu_facts.free_bytes < 2 * total) {
        printf("copy_regions: no room for more than 2^31 units\n");
        return;
    }
    gpu_buffer from = gpu_upload("abc", 3), to = gpu_poisoned(total);
    const ith_region_pair pair = {{to.data, {1, 1}, {0, 0}, total}, {from.data, {1, times}, {0, 0}, 3}};
    char found[30000];
    bool same = true;
    GPU_OK(gpu_module->copy_regions(gpu_stream, &pair, 1, gpu_said));
    for (int i = 0; i < 4; i++) {
        int64_t first = (total - piece) / 3 * i;
        gpu_download(found, to.data + first, piece);
        for (int64_t n = 0; n < piece; n++)
            same &= found[n] == "abc"[(first + n) % 3];
    }
    if (!same || !gpu_is_guarded(&to))
        gpu_fail("copy_regions: %ld units", (long)total);
    gpu_free(&from);
    gpu_free(&to);
}

static void check_copies(void)
{
    for (int i = 0; i < 3 * CASES; i++)
        check_list(i % 3, (int)random_between(&seed, 0, i % 5 == 0 ? 100 : 5));
    check_huge();
    ith_region_pair pair = {{gpu_said, {1, 1}, {0, 0}, 4}, {gpu_said, {1, 1}, {0, 0}, 5}};
    if (gpu_module->copy_regions(gpu_stream, &pair, 1, gpu_said) != ITH_ERR_ARGUMENT)
        gpu_fail("copy_regions takes regions of different sizes");
    printf("copy_regions: %d lists\n", 3 * CASES);
}

/* ---- pack ------------------------------------------------------------------------------------------------------ */

static void check_pack(int index)
{
    gpu_heads k = gpu_random_heads(&seed, index, true);
    const int64_t padded = k.rows + random_below(&seed, 300), bytes = k.head_dim * k.number;
    const ith_device_pack pack = {.dtype = k.dtype,
                                  .head_dim = k.head_dim,
                                  .first = k.first,
                                  .count = k.count,
                                  .kv_heads = k.heads,
                                  .kv_rows = k.rows,
                                  .padded_rows = padded,
                                  .from = gpu_rows_of(&k),
                                  .keys = k.keys_data,
                                  .key_bias = k.bias_data,
                                  .key_bias_stride = k.bias_stride};
    gpu_buffer to = gpu_poisoned(k.count * padded * bytes + 16);
    ith_device_pack call = pack;
    call.to = to.data + (random_below(&seed, 2) ? k.number : 0);
    GPU_OK(gpu_module->pack(gpu_stream, &call, gpu_said));
    char *found = malloc((size_t)(k.count * padded * bytes + 1)), *zeros = calloc(1, (size_t)bytes);
    gpu_download(found, call.to, k.count * padded * bytes);
    for (int64_t n = 0; n < k.count * padded; n++) {
        int64_t row = n % padded;
        const void *want = row < k.rows && gpu_has_key(&k, n / padded, row) ? gpu_row(&k, n / padded, row) : zeros;
        if (memcmp(found + n * bytes, want, (size_t)bytes)) {
            gpu_fail("pack: %s, head %ld, row %ld", gpu_describe(&k), (long)(n / padded), (long)row);
            break;
        }
    }
    if (!gpu_is_guarded(&to))
        gpu_fail("pack: %s writes outside", gpu_describe(&k));
    free(found);
    free(zeros);
    gpu_free(&to);
    gpu_free_heads(&k);
}

/* ---- key_stats ------------------------------------------------------------------------------------------------- */

/* Results of key_stats. */
typedef struct key_results {
    float *means, *stats;
} key_results;

static key_results key_stats_of(const gpu_heads *k, const gpu_heads *v, bool smoothed)
{
    const int64_t means_bytes = k->count * k->head_dim * 4, stats_bytes = k->count * 16;
    const int64_t scratch_bytes = gpu_module->key_stats_scratch_bytes(k->count, k->rows, k->head_dim);
    gpu_buffer means = gpu_poisoned(means_bytes), stats = gpu_poisoned(stats_bytes),
               scratch = gpu_poisoned(scratch_bytes);
    const ith_device_key_stats call = {.dtype = k->dtype,
                                       .head_dim = k->head_dim,
                                       .first = k->first,
                                       .count = k->count,
                                       .kv_heads = k->heads,
                                       .kv_rows = k->rows,
                                       .k = gpu_rows_of(k),
                                       .v = gpu_rows_of(v),
                                       .keys = k->keys_data,
                                       .key_bias = k->bias_data,
                                       .key_bias_stride = k->bias_stride,
                                       .smoothed = smoothed,
                                       .means = (float *)means.data,
                                       .stats = (float *)stats.data,
                                       .scratch = (double *)scratch.data};
    GPU_OK(gpu_module->key_stats(gpu_stream, &call, gpu_said));
    key_results found = {malloc((size_t)means_bytes + 1), malloc((size_t)stats_bytes + 1)};
    gpu_download(found.means, means.data, means_bytes);
    gpu_download(found.stats, stats.data, stats_bytes);
    if (!gpu_is_guarded(&means) || !gpu_is_guarded(&stats) || !gpu_is_guarded(&scratch))
        gpu_fail("key_stats: %s writes outside", gpu_describe(k));
    gpu_free(&means);
    gpu_free(&stats);
    gpu_free(&scratch);
    return found;
}

/* The largest errors of a group of cases, as multiples of the bounds. */
typedef struct errors {
    double mean, square, offset;
} errors;

/* Compares the mean key of a head. */
static void compare_mean(const gpu_heads *k, int64_t head, bool smoothed, double count, const float *mean,
                         errors *worst)
{
    for (int64_t d = 0; d < k->head_dim; d++) {
        double sum = 0, magnitudes = 0;
        for (int64_t row = 0; row < k->rows; row++)
            if (smoothed && gpu_has_key(k, head, row)) {
                sum += gpu_number(k, head, row, d);
                magnitudes += fabs(gpu_number(k, head, row, d));
            }
        double want = count > 0 ? sum / count : 0;
        double bound = 66 * 0x1p-24 * (count > 0 ? magnitudes / count : 0) + fabs(want) * 0x1p-24 + 0x1p-148;
        worst->mean = worse(worst->mean, fabs((double)mean[d] - want) / bound);
    }
}

static void compare_keys(const gpu_heads *k, const gpu_heads *v, bool smoothed, const key_results *found, errors *worst)
{
    for (int64_t head = 0; head < k->count; head++) {
        const float *mean = found->means + head * k->head_dim, *stats = found->stats + head * 4;
        double count = 0, square = 0, magnitude = 0;
        bool odd = false;
        for (int64_t row = 0; row < k->rows; row++) {
            float bias = gpu_bias(k, head, row);
            odd |= row < gpu_keys(k, head) && bias != 0 && bias != -INFINITY;
            if (!gpu_has_key(k, head, row))
                continue;
            double here = 0;
            for (int64_t d = 0; d < k->head_dim; d++) {
                double distance = gpu_number(k, head, row, d) - (double)mean[d];
                here += distance * distance;
                magnitude = fmax(magnitude, fabs(gpu_number(v, head, row, d)));
            }
            square = fmax(square, here);
            count++;
        }
        compare_mean(k, head, smoothed, count, mean, worst);
        double bound = sum_error(k->head_dim) * square + least_error(k->head_dim);
        worst->square = worse(worst->square, fabs((double)stats[1] - square) / bound);
        if ((double)stats[0] != count || (double)stats[2] != magnitude || stats[3] != (odd ? 1.0f : 0.0f))
            gpu_fail("key_stats: %s, head %ld: %g keys, largest %g, bias %g instead of %g, %g, %d", gpu_describe(k),
                     (long)head, (double)stats[0], (double)stats[2], (double)stats[3], count, magnitude, odd);
    }
}

static void free_results(key_results *found)
{
    free(found->means);
    free(found->stats);
}

/* Whether two calls have the same bits. */
static bool same_results(const gpu_heads *k, const key_results *a, const key_results *b)
{
    return !memcmp(a->means, b->means, (size_t)(k->count * k->head_dim) * 4) &&
           !memcmp(a->stats, b->stats, (size_t)k->count * 16);
}

/* NaN or infinity in a present key or value of a head makes the statistics of this head NaN or infinite, and no
 * others. */
static void check_infection(gpu_heads *k, gpu_heads *v, bool smoothed, const key_results *clean)
{
    const int64_t head = random_below(&seed, (uint32_t)k->count);
    int64_t row = 0;
    while (row < k->rows && !gpu_has_key(k, head, row))
        row++;
    if (row == k->rows)
        return;
    const int kind = (int)random_below(&seed, 4);
    gpu_heads *ill = kind < 2 ? k : v;
    gpu_set_number(ill, head, row, random_below(&seed, (uint32_t)k->head_dim), kind % 2 ? INFINITY : NAN);
    key_results found = key_stats_of(k, v, smoothed);
    const float *stats = found.stats + head * 4;
    bool right = kind < 2 ? !isfinite(stats[1]) : kind == 2 ? isnan(stats[2]) : stats[2] == INFINITY;
    if (kind == 0)
        right = isnan(stats[1]);
    for (int64_t i = 0; i < k->count; i++)
        right &= i == head || !memcmp(found.stats + i * 4, clean->stats + i * 4, 16);
    if (!right)
        gpu_fail("key_stats: %s: %s in %s gives %g, %g", gpu_describe(k), kind % 2 ? "infinity" : "NaN",
                 kind < 2 ? "a key" : "a value", (double)stats[1], (double)stats[2]);
    free_results(&found);
}

static void check_keys(int index, errors *worst)
{
    gpu_heads k = gpu_random_heads(&seed, index, true), v = gpu_like(&seed, &k);
    const bool smoothed = random_below(&seed, 4) > 0;
    key_results found = key_stats_of(&k, &v, smoothed), again = key_stats_of(&k, &v, smoothed);
    compare_keys(&k, &v, smoothed, &found, worst);
    if (!same_results(&k, &found, &again))
        gpu_fail("key_stats: %s: another run has other bits", gpu_describe(&k));
    free_results(&again);
    gpu_move(&k);
    again = key_stats_of(&k, &v, smoothed);
    if (!same_results(&k, &found, &again))
        gpu_fail("key_stats: %s: another alignment has other bits", gpu_describe(&k));
    free_results(&again);
    check_infection(&k, &v, smoothed, &found);
    free_results(&found);
    gpu_free_heads(&k);
    gpu_free_heads(&v);
}

/* ---- query_stats and offsets ----------------------------------------------------------------------------------- */

static double exact_dot(const gpu_heads *q, int64_t head, int64_t row, const float *y)
{
    double sum = 0;
    for (int64_t d = 0; d < q->head_dim; d++)
        sum += gpu_number(q, head, row, d) * (y ? (double)y[d] : gpu_number(q, head, row, d));
    return sum;
}

static void query_stats_of(const gpu_heads *q, float *squares)
{
    gpu_buffer found = gpu_poisoned(q->count * 4);
    const ith_device_query_stats call = {q->dtype, q->head_dim,    q->first,           q->count,
                                         q->rows,  gpu_rows_of(q), (float *)found.data};
    GPU_OK(gpu_module->query_stats(gpu_stream, &call, gpu_said));
    gpu_download(squares, found.data, q->count * 4);
    if (!gpu_is_guarded(&found))
        gpu_fail("query_stats: %s writes outside", gpu_describe(q));
    gpu_free(&found);
}

static void check_queries(int index, errors *worst)
{
    gpu_heads q = gpu_random_heads(&seed, index, false);
    float squares[GPU_HEADS_MAX], moved[GPU_HEADS_MAX];
    query_stats_of(&q, squares);
    for (int64_t head = 0; head < q.count; head++) {
        double square = 0;
        for (int64_t row = 0; row < q.rows; row++)
            square = fmax(square, exact_dot(&q, head, row, NULL));
        double bound = sum_error(q.head_dim) * square + least_error(q.head_dim);
        worst->square = worse(worst->square, fabs((double)squares[head] - square) / bound);
    }
    gpu_move(&q);
    query_stats_of(&q, moved);
    if (memcmp(squares, moved, (size_t)q.count * 4))
        gpu_fail("query_stats: %s: another alignment has other bits", gpu_describe(&q));
    if (q.rows > 0) {
        int64_t head = random_below(&seed, (uint32_t)q.count);
        gpu_set_number(&q, head, random_below(&seed, (uint32_t)q.rows), q.head_dim - 1, NAN);
        query_stats_of(&q, moved);
        for (int64_t i = 0; i < q.count; i++)
            if (i == head ? !isnan(moved[i]) : memcmp(moved + i, squares + i, 4) != 0)
                gpu_fail("query_stats: %s: NaN in head %ld: head %ld has %g", gpu_describe(&q), (long)head, (long)i,
                         (double)moved[i]);
    }
    gpu_free_heads(&q);
}

/* The inputs of offsets besides the queries. */
typedef struct offset_inputs {
    int64_t per_kv, kv_first;
    double c, norm_factor, margin;
    float *means;
    double bounds[GPU_HEADS_MAX];
    uint8_t fixed[GPU_HEADS_MAX];
} offset_inputs;

static void offsets_of(const gpu_heads *q, const offset_inputs *in, float *m)
{
    gpu_buffer means = gpu_upload(in->means, in->means ? q->count * q->head_dim * 4 : 0);
    gpu_buffer bounds = gpu_upload(in->bounds, sizeof in->bounds), fixed = gpu_upload(in->fixed, sizeof in->fixed);
    gpu_buffer found = gpu_poisoned(q->count * q->rows * 4);
    const ith_device_offsets call = {.dtype = q->dtype,
                                     .head_dim = q->head_dim,
                                     .first = q->first,
                                     .count = q->count,
                                     .per_kv = in->per_kv,
                                     .kv_first = in->kv_first,
                                     .q_rows = q->rows,
                                     .q = gpu_rows_of(q),
                                     .c = in->c,
                                     .norm_factor = in->norm_factor,
                                     .margin = in->margin,
                                     .means = in->means ? (float *)means.data : NULL,
                                     .bounds = (double *)bounds.data,
                                     .fixed = (uint8_t *)fixed.data,
                                     .m = (float *)found.data};
    GPU_OK(gpu_module->offsets(gpu_stream, &call, gpu_said));
    gpu_download(m, found.data, q->count * q->rows * 4);
    if (!gpu_is_guarded(&found))
        gpu_fail("offsets: %s writes outside", gpu_describe(q));
    gpu_free(&means);
    gpu_free(&bounds);
    gpu_free(&fixed);
    gpu_free(&found);
}

/* Compares the offset of a row. Its whole number may come from any norm within the error of the
 * square. */
static void compare_offset(const gpu_heads *q, const offset_inputs *in, int64_t head, int64_t row, float m,
                           errors *worst)
{
    const int64_t kv = (q->first + head) / in->per_kv - in->kv_first, n = q->head_dim;
    const float *mean = in->means ? in->means + kv * n : NULL;
    const double square = exact_dot(q, head, row, NULL), zero = 0;
    const double dot = in->means ? exact_dot(q, head, row, mean) : zero, length = mean ? sqrt(gpu_square(mean, n)) : 0;
    const double error = sum_error(n), least = (double)n * 0x1p-125, factor = fabs(in->c) * in->norm_factor;
    const double low = factor * sqrt(square * (1 - error)) * in->bounds[kv] * (1 - 1e-12) + in->margin;
    const double high = factor * sqrt(square * (1 + error) + 2 * least) * in->bounds[kv] * (1 + 1e-12) +
                        fabs(in->c) * least * 2 + in->margin;
    const double slack = fabs(in->c) * (error * sqrt(square) * length + least) + fabs((double)m) * 0x1p-24 + 1e-12;
    const double from = in->c * dot + ceil(low) - 88, to = in->c * dot + ceil(high) - 88;
    worst->offset = worse(worst->offset, fmax(from - (double)m, (double)m - to) / slack);
    if (isnan(m))
        worst->offset = NAN;
}

static void check_offsets(int index, errors *worst)
{
    gpu_heads q = gpu_random_heads(&seed, index, false);
    offset_inputs in = {.per_kv = random_between(&seed, 1, 3), .norm_factor = 1.00001, .margin = 0x1p-15};
    in.kv_first = q.first / in.per_kv;
    in.c = (double)random_signed(&seed) / sqrt((double)q.head_dim);
    in.means = random_below(&seed, 5) ? random_floats(&seed, q.count * q.head_dim) : NULL;
    for (int i = 0; i < GPU_HEADS_MAX; i++) {
        in.bounds[i] = 5 * (double)random_uniform(&seed) * sqrt((double)q.head_dim);
        in.fixed[i] = random_below(&seed, 4) > 0;
    }
    float *m = malloc((size_t)(q.count * q.rows) * 4 + 4), *moved = malloc((size_t)(q.count * q.rows) * 4 + 4);
    offsets_of(&q, &in, m);
    for (int64_t n = 0; n < q.count * q.rows; n++) {
        uint32_t bits;
        memcpy(&bits, m + n, 4);
        if (in.fixed[n / q.rows])
            compare_offset(&q, &in, n / q.rows, n % q.rows, m[n], worst);
        else if (bits != UINT32_MAX)
            gpu_fail("offsets: %s writes a head that is left out", gpu_describe(&q));
    }
    gpu_move(&q);
    offsets_of(&q, &in, moved);
    if (memcmp(m, moved, (size_t)(q.count * q.rows) * 4))
        gpu_fail("offsets: %s: another alignment has other bits", gpu_describe(&q));
    if (q.rows > 1) { /* the same rows without the first */
        const int64_t all = q.rows;
        gpu_skip_row(&q);
        offsets_of(&q, &in, moved);
        for (int64_t head = 0; head < q.count; head++)
            if (memcmp(m + head * all + 1, moved + head * q.rows, (size_t)q.rows * 4))
                gpu_fail("offsets: %s: rows depend on their position", gpu_describe(&q));
    }
    free(m);
    free(moved);
    free(in.means);
    gpu_free_heads(&q);
}

/* ---- Bandwidths ------------------------------------------------------------------------------------------------ */

/* Prints the time and the bandwidth of a call that moves `bytes` bytes. */
#define SPEED(name, bytes, call)                                                                                       \
    do {                                                                                                               \
        GPU_OK(call);                                                                                                  \
        gpu_wait();                                                                                                    \
        double begin = gpu_now();                                                                                      \
        for (int turn = 0; turn < SPEED_TURNS; turn++)                                                                 \
            GPU_OK(call);                                                                                              \
        gpu_wait();                                                                                                    \
        double seconds = (gpu_now() - begin) / SPEED_TURNS;                                                            \
        printf("  %-44s %8.1f us %8.1f GB/s\n", name, seconds * 1e6, (double)(bytes) / seconds * 1e-9);                \
    } while (0)

/* Prints the bandwidth of copies of rows of `run` bytes from [S, H, D] to [H, S, D]. */
static void print_copy(char *to, char *from, int64_t run)
{
    const int64_t all = (int64_t)SPEED_ROWS * SPEED_HEADS * SPEED_DIM * 2, heads = 4096 / run, rows = all / 4096;
    const ith_region_pair pair = {{to, {heads, rows}, {rows * run, run}, run}, {from, {heads, rows}, {run, 4096}, run}};
    char name[64];
    snprintf(name, sizeof name, "copy_regions, transposition of %ld-byte rows", (long)run);
    SPEED(name, 2 * all, gpu_module->copy_regions(gpu_stream, &pair, 1, gpu_said));
}

static void print_speeds(void)
{
    const int64_t width = SPEED_HEADS * SPEED_DIM, numbers = SPEED_ROWS * width, bytes = 2 * numbers;
    const int64_t scratch_bytes = gpu_module->key_stats_scratch_bytes(SPEED_HEADS, SPEED_ROWS, SPEED_DIM);
    gpu_buffer k = gpu_filled(bytes, 0x3c), v = gpu_filled(bytes, 0x3c), to = gpu_poisoned(bytes + 256 * width);
    gpu_buffer scratch = gpu_poisoned(scratch_bytes), small = gpu_filled(1 << 16, 0),
               m = gpu_poisoned(4 * SPEED_ROWS * SPEED_HEADS);
    float *means = (float *)small.data, *stats = means + SPEED_HEADS * SPEED_DIM;
    gpu_buffer fixed = gpu_filled(SPEED_HEADS, 1);
    const ith_device_rows rows = {k.data, 0, SPEED_HEADS, width, 0}, v_rows = {v.data, 0, SPEED_HEADS, width, 0};
    printf("bandwidths at S = %d, %d heads, head_dim %d, bf16\n", SPEED_ROWS, SPEED_HEADS, SPEED_DIM);
    SPEED("copy (cudaMemcpyAsync)", 2 * bytes, gpu_module->copy(gpu_stream, to.data, k.data, bytes, gpu_said));
    print_copy(to.data, k.data, 4096);
    print_copy(to.data, k.data, 1024);
    print_copy(to.data, k.data, 256);
    print_copy(to.data, k.data, 128);
    print_copy(to.data, k.data, 16);
    const ith_device_pack pack = {ITH_BF16,   SPEED_DIM, 0,    SPEED_HEADS, SPEED_HEADS, SPEED_ROWS,
                                  SPEED_ROWS, rows,      NULL, NULL,        0,           to.data};
    SPEED("pack", 2 * bytes, gpu_module->pack(gpu_stream, &pack, gpu_said));
    ith_device_key_stats keys = {ITH_BF16,   SPEED_DIM, 0,      SPEED_HEADS, SPEED_HEADS,
                                 SPEED_ROWS, rows,      v_rows, NULL,        NULL,
                                 0,          true,      means,  stats,       (double *)scratch.data};
    SPEED("key_stats, smoothed (reads k twice)", 3 * bytes, gpu_module->key_stats(gpu_stream, &keys, gpu_said));
    keys.smoothed = false;
    SPEED("key_stats", 2 * bytes, gpu_module->key_stats(gpu_stream, &keys, gpu_said));
    const ith_device_query_stats queries = {ITH_BF16, SPEED_DIM, 0, SPEED_HEADS, SPEED_ROWS, rows, stats};
    SPEED("query_stats", bytes, gpu_module->query_stats(gpu_stream, &queries, gpu_said));
    const ith_device_offsets offsets = {ITH_BF16,
                                        SPEED_DIM,
                                        0,
                                        SPEED_HEADS,
                                        1,
                                        0,
                                        SPEED_ROWS,
                                        rows,
                                        0.1,
                                        1,
                                        0x1p-15,
                                        means,
                                        (double *)(small.data + (1 << 15)),
                                        (uint8_t *)fixed.data,
                                        (float *)m.data};
    SPEED("offsets", bytes + 4 * SPEED_ROWS * SPEED_HEADS, gpu_module->offsets(gpu_stream, &offsets, gpu_said));
}

/* Counts a failure if an error is above its bound. */
static void judge(const char *what, double error)
{
    printf("%s: worst error %.3f of the bound\n", what, error);
    if (!(error <= 1))
        gpu_fail("%s: error above the bound", what);
}

int main(void)
{
    gpu_begin();
    errors keys = {0, 0, 0}, queries = {0, 0, 0};
    check_copies();
    for (int i = 0; i < CASES; i++)
        check_pack(i);
    printf("pack: %d cases\n", CASES);
    for (int i = 0; i < CASES; i++)
        check_keys(i, &keys);
    judge("key_stats: means", keys.mean);
    judge("key_stats: squares", keys.square);
    for (int i = 0; i < CASES; i++)
        check_queries(i, &queries);
    judge("query_stats: squares", queries.square);
    for (int i = 0; i < CASES; i++)
        check_offsets(i, &queries);
    judge("offsets", queries.offset);
    if (!getenv("ITHACA_NO_SPEED"))
        print_speeds();
    return gpu_end();
}
