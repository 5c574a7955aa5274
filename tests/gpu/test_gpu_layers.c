/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a transformer's layers on a device (kernels/device_layers.h), each compared with its definition in
 * float64, with random and extreme sizes; then their rates with the sizes of Wan 2.2 A14B. The argument "short" leaves
 * out the rates. */
#include "gpu_numbers.h"
#include "gpu_test.h"

#include <math.h>

static const ith_device_layers *layers;
static struct ith_device_products *products;

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Numbers of one type in the host's memory. */
typedef struct numbers {
    ith_dtype type;
    int64_t count;
    void *data;
} numbers;

static float at(const numbers *n, int64_t i)
{
    return (float)gpu_number(n->data, n->type, i);
}

static numbers make_random(ith_dtype type, int64_t count, float scale, float offset)
{
    return (numbers){type, count, gpu_random_numbers(type, count, scale, offset)};
}

static gpu_buffer upload(const numbers *n)
{
    return gpu_upload(n->data, n->count * ith_dtype_bytes(n->type));
}

static numbers download(const gpu_buffer *buffer, ith_dtype type)
{
    numbers n = {type, buffer->bytes / ith_dtype_bytes(type), malloc((size_t)buffer->bytes + 1)};
    gpu_download(n.data, buffer->data, buffer->bytes);
    return n;
}

/* Whether the numbers of rows after the first `width` are untouched (poison), in a buffer of rows `stride` apart. */
static bool gaps_kept(const numbers *n, int64_t rows, int64_t width, int64_t stride)
{
    const unsigned char *bytes = n->data;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = width * ith_dtype_bytes(n->type); i < stride * ith_dtype_bytes(n->type); i++)
            if (bytes[row * stride * ith_dtype_bytes(n->type) + i] != GPU_POISON)
                return false;
    return true;
}

/* The error of a result as a multiple of the error that its type and its sums allow:
 * |y - ref| / (unit |ref| + slack). */
static double error_of(double y, double ref, ith_dtype type, double slack)
{
    return fabs(y - ref) / ((type == ITH_BF16 ? 0x1p-8 : 0x1p-22) * fabs(ref) + slack);
}

/* ---- Linear layers ----------------------------------------------------------------------------------------------- */

static double gelu(double v)
{
    return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

typedef struct linear_case {
    int64_t rows, in, out, x_gap, y_gap;
    ith_dtype type, y_type;
    bool bias, gelu;
} linear_case;

/* Row `row`, column `column` of y in float64. *size: the sum of the products without signs. *product: the product
 * alone. */
static double linear_at(const linear_case *c, const numbers *x, const numbers *w, const numbers *bias, int64_t row,
                        int64_t column, double *size, double *product)
{
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < c->in; k++) {
        const double term = (double)at(x, row * (c->in + c->x_gap) + k) * at(w, column * c->in + k);
        sum += term;
        *size += fabs(term);
    }
    *product = sum;
    sum += c->bias ? at(bias, column) : 0;
    return c->gelu ? gelu(sum) : sum;
}

static double run_linear(const linear_case *c, int64_t samples)
{
    const int64_t x_stride = c->in + c->x_gap, y_stride = c->out + c->y_gap;
    numbers x = make_random(c->type, c->rows * x_stride, 1, 0), w = make_random(c->type, c->out * c->in, 1, 0);
    numbers bias = make_random(c->y_type, c->out, 3, 0);
    gpu_buffer dx = upload(&x), dw = upload(&w), db = upload(&bias);
    gpu_buffer dy = gpu_poisoned(c->rows * y_stride * ith_dtype_bytes(c->y_type));
    const ith_device_linear call = {.rows = c->rows,
                                    .in = c->in,
                                    .out = c->out,
                                    .type = c->type,
                                    .y_type = c->y_type,
                                    .x = dx.data,
                                    .x_stride = x_stride,
                                    .w = dw.data,
                                    .bias = c->bias ? db.data : NULL,
                                    .gelu = c->gelu,
                                    .y = dy.data,
                                    .y_stride = y_stride};
    GPU_OK(layers->linear(gpu_stream, products, &call, gpu_said));
    gpu_wait();
    numbers y = download(&dy, c->y_type);
    const int64_t all = c->rows * c->out, count = samples && samples < all ? samples : all;
    double worst = 0;
#pragma omp parallel for reduction(max : worst)
    for (int64_t i = 0; i < count; i++) {
        const int64_t element = count < all ? (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u % (uint64_t)all) : i;
        const int64_t row = element / c->out, column = element % c->out;
        double size, product, ref = linear_at(c, &x, &w, &bias, row, column, &size, &product);
        /* GELU by the GPU's fast tanh has an error of its own; a product in bf16 may be rounded before the bias */
        const bool twice = c->y_type == ITH_BF16 && (c->bias || c->gelu);
        const double slack =
            1e-6 * size + (c->gelu ? 2e-4 * fabs(ref) + 1e-4 : 0) + (twice ? 0x1p-8 * fabs(product) : 0);
        const double error = error_of(at(&y, row * y_stride + column), ref, c->y_type, slack);
        worst = isnan(error) ? 1e30 : error > worst ? error : worst;
    }
    if (!(worst < 2) || !gpu_is_guarded(&dy) || !gaps_kept(&y, c->rows, c->out, y_stride))
        gpu_fail("linear %lld x %lld -> %lld, type %d -> %d, bias %d, gelu %d: error %.3g%s%s", (long long)c->rows,
                 (long long)c->in, (long long)c->out, c->type, c->y_type, c->bias, c->gelu, worst,
                 gpu_is_guarded(&dy) ? "" : ", guards overwritten",
                 gaps_kept(&y, c->rows, c->out, y_stride) ? "" : ", gaps overwritten");
    gpu_buffer *buffers[] = {&dx, &dw, &db, &dy};
    for (int i = 0; i < 4; i++)
        gpu_free(buffers[i]);
    free(x.data), free(w.data), free(bias.data), free(y.data);
    return worst;
}

static void test_linear(void)
{
    static const int64_t rows[] = {1, 7, 64, 130, 1000}, ins[] = {16, 30, 64, 136, 1536},
                         outs[] = {2, 24, 64, 129, 1536};
    double worst[2][2] = {{0}};
    for (int r = 0; r < 5; r++)
        for (int i = 0; i < 5; i++)
            for (int o = 0; o < 5; o++)
                for (int kind = 0; kind < 3; kind++) {
                    const int variant = r + i + o + kind;
                    const linear_case c = {.rows = rows[r],
                                           .in = ins[i],
                                           .out = outs[o],
                                           .x_gap = variant % 3 * 8,
                                           .y_gap = variant % 2 * 24,
                                           .type = kind ? ITH_BF16 : ITH_F32,
                                           .y_type = kind == 1 ? ITH_BF16 : ITH_F32,
                                           .bias = variant % 4 != 0,
                                           .gelu = variant % 5 == 0};
                    const double error = run_linear(&c, 4000);
                    worst[kind == 1][c.gelu] = gpu_larger(worst[kind == 1][c.gelu], error);
                }
    printf("linear: worst error in units of the bound: to f32 %.3f, with GELU %.3f; to bf16 %.3f, with GELU %.3f\n",
           worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
}

/* ---- Residual sum and norm --------------------------------------------------------------------------------------- */

typedef struct update_case {
    int64_t dim, share, batch, begin, known;
    ith_dtype y_type, n_type;
    bool y, gate, n, normed, in_place;
} update_case;

enum { GAP = 16 };

static int64_t time_of(const update_case *c, int64_t row)
{
    return c->known ? 2 * (row / c->share) + (c->begin + row % c->share < c->known) : row / c->share;
}

/* The largest error of a row. vectors: gate, a and b, [times][3][dim]. */
static double check_row(const update_case *c, int64_t row, const numbers *x, const numbers *y, const numbers *vectors,
                        const numbers *got_x, const numbers *got_n)
{
    const int64_t dim = c->dim;
    double *sum = malloc((size_t)dim * sizeof *sum), mean = 0, var = 0, largest = 0, worst = 0;
    for (int64_t i = 0; i < dim; i++) {
        const int64_t v = time_of(c, row) * 3 * dim + i;
        double ref = at(x, row * dim + i);
        if (c->y)
            ref += (c->gate ? (double)at(vectors, v) : 1.0) * at(y, row * (dim + GAP) + i);
        sum[i] = at(got_x, row * dim + i); /* the norm is computed from the rounded sums */
        worst = gpu_larger(worst, error_of(sum[i], ref, ITH_F32, 1e-6));
        largest = gpu_larger(largest, fabs(sum[i]));
        mean += sum[i] / (double)dim;
    }
    for (int64_t i = 0; i < dim; i++)
        var += (sum[i] - mean) * (sum[i] - mean) / (double)dim;
    for (int64_t i = 0; i < dim && c->n; i++) {
        const int64_t v = time_of(c, row) * 3 * dim + i;
        const double slack = 1e-5 + (c->normed ? 5e-7 * largest / sqrt(var + 1e-6) : 0);
        double n = sum[i];
        if (c->normed)
            n = (n - mean) / sqrt(var + 1e-6) * at(vectors, v + dim) + at(vectors, v + 2 * dim);
        worst = gpu_larger(worst, error_of(at(got_n, row * (dim + GAP) + i), n, c->n_type, slack));
    }
    free(sum);
    return worst;
}

static double run_update(const update_case *c)
{
    const int64_t rows = c->batch * c->share, dim = c->dim, times = c->batch * (c->known ? 2 : 1);
    numbers x = make_random(ITH_F32, rows * dim, 2, 0.5f), y = make_random(c->y_type, rows * (dim + GAP), 3, 0);
    numbers vectors = make_random(ITH_F32, times * 3 * dim, 1, 1);
    gpu_buffer dx = upload(&x), dy = upload(&y), dv = upload(&vectors);
    gpu_buffer dn = c->in_place ? dy : gpu_poisoned(rows * (dim + GAP) * ith_dtype_bytes(c->n_type));
    const float *v = (const float *)dv.data;
    const ith_device_row_update call = {.rows = rows,
                                        .dim = dim,
                                        .x = (float *)dx.data,
                                        .y = c->y ? dy.data : NULL,
                                        .y_type = c->y_type,
                                        .y_stride = dim + GAP,
                                        .gate = {c->gate ? v : NULL, 3 * dim},
                                        .n = c->n ? dn.data : NULL,
                                        .n_type = c->n_type,
                                        .n_stride = dim + GAP,
                                        .normed = c->normed,
                                        .a = {v + dim, 3 * dim},
                                        .b = {v + 2 * dim, 3 * dim},
                                        .eps = 1e-6f,
                                        .begin = c->begin,
                                        .share = c->share,
                                        .known = c->known};
    GPU_OK(layers->update_rows(gpu_stream, &call, gpu_said));
    gpu_wait();
    numbers got_x = download(&dx, ITH_F32), got_n = download(&dn, c->n_type);
    double worst = 0;
#pragma omp parallel for reduction(max : worst)
    for (int64_t row = 0; row < rows; row++) {
        const double error = check_row(c, row, &x, &y, &vectors, &got_x, &got_n);
        worst = isnan(error) ? 1e30 : error > worst ? error : worst;
    }
    const bool kept = c->in_place || gaps_kept(&got_n, rows, c->n ? dim : 0, dim + GAP);
    if (!(worst < 2) || !kept || !gpu_is_guarded(&dx) || !gpu_is_guarded(&dn))
        gpu_fail("update of %lld rows of %lld, begin %lld, known %lld, y %d type %d gate %d, n %d type %d normed %d in "
                 "place %d: error %.3g%s",
                 (long long)rows, (long long)dim, (long long)c->begin, (long long)c->known, c->y, c->y_type, c->gate,
                 c->n, c->n_type, c->normed, c->in_place, worst, kept ? "" : ", gaps overwritten");
    if (!c->in_place)
        gpu_free(&dn);
    gpu_free(&dx), gpu_free(&dy), gpu_free(&dv);
    free(x.data), free(y.data), free(vectors.data), free(got_x.data), free(got_n.data);
    return worst;
}

static void test_updates(void)
{
    static const int64_t dims[] = {2, 6, 24, 64, 96, 250, 1024, 1536, 2046, 3072, 5120, 8192};
    static const ith_dtype types[] = {ITH_F32, ITH_BF16};
    double worst = 0;
    for (int d = 0; d < 12; d++)
        for (int kind = 0; kind < 16; kind++) {
            update_case c = {.dim = dims[d],
                             .share = 1 + (d * 7 + kind) % 40,
                             .batch = 1 + kind % 2,
                             .begin = kind % 3 * 5,
                             .known = kind % 4 == 3 ? 8 : 0,
                             .y_type = types[kind & 1],
                             .n_type = types[kind >> 1 & 1],
                             .y = kind % 5 != 4,
                             .gate = kind % 3 != 2,
                             .n = kind % 7 != 6,
                             .normed = kind % 6 != 5};
            c.in_place = c.n && c.y_type == c.n_type && kind >= 8;
            worst = gpu_larger(worst, run_update(&c));
        }
    printf("residual sum and norm: worst error in units of the bound %.3f\n", worst);
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

typedef struct heads_case {
    int64_t rows, heads, head_dim, tokens;
    ith_dtype type;
    int normed;
    bool rope;
} heads_case;

/* The largest error of a vector. */
static double check_vector(const heads_case *c, int64_t row, int vector, const numbers *data, const numbers *weights,
                           const numbers *cosines, const numbers *sines, const numbers *got)
{
    const int64_t dim = c->heads * c->head_dim, first = row * (3 * dim + GAP) + vector * dim;
    double squares = 0, worst = 0;
    for (int64_t i = 0; i < dim; i++)
        squares += (double)at(data, first + i) * at(data, first + i) / (double)dim;
    const double inverse = 1 / sqrt(squares + 1e-6);
    for (int64_t i = 0; i < dim; i += 2) {
        double even = at(data, first + i) * inverse * at(weights, vector * dim + i);
        double odd = at(data, first + i + 1) * inverse * at(weights, vector * dim + i + 1);
        if (c->rope) {
            const int64_t table = row % c->tokens * (c->head_dim / 2) + i % c->head_dim / 2;
            const double x = even, cosine = at(cosines, table), sine = at(sines, table);
            even = x * cosine - odd * sine;
            odd = x * sine + odd * cosine;
        }
        worst = gpu_larger(worst, error_of(at(got, first + i), even, c->type, 4e-6));
        worst = gpu_larger(worst, error_of(at(got, first + i + 1), odd, c->type, 4e-6));
    }
    return worst;
}

static double run_heads(const heads_case *c)
{
    const int64_t dim = c->heads * c->head_dim, stride = 3 * dim + GAP;
    numbers data = make_random(c->type, c->rows * stride, 4, 0), weights = make_random(ITH_F32, 2 * dim, 1, 1);
    numbers cosines = make_random(ITH_F32, c->tokens * c->head_dim / 2, 1, 0);
    numbers sines = make_random(ITH_F32, c->tokens * c->head_dim / 2, 1, 0);
    gpu_buffer dd = upload(&data), dw = upload(&weights), dc = upload(&cosines), ds = upload(&sines);
    const ith_device_heads call = {.rows = c->rows,
                                   .heads = c->heads,
                                   .head_dim = c->head_dim,
                                   .type = c->type,
                                   .data = dd.data,
                                   .stride = stride,
                                   .normed = c->normed,
                                   .weights = {(const float *)dw.data, (const float *)dw.data + dim},
                                   .cosines = c->rope ? (const float *)dc.data : NULL,
                                   .sines = (const float *)ds.data,
                                   .tokens = c->tokens,
                                   .eps = 1e-6f};
    GPU_OK(layers->norm_heads(gpu_stream, &call, gpu_said));
    gpu_wait();
    numbers got = download(&dd, c->type);
    double worst = 0;
#pragma omp parallel for reduction(max : worst)
    for (int64_t i = 0; i < c->rows * c->normed; i++) {
        const double error =
            check_vector(c, i / c->normed, (int)(i % c->normed), &data, &weights, &cosines, &sines, &got);
        worst = isnan(error) ? 1e30 : error > worst ? error : worst;
    }
    bool kept = true;
    for (int64_t row = 0; row < c->rows; row++) {
        const int64_t begin = (row * stride + c->normed * dim) * ith_dtype_bytes(c->type);
        kept = kept && !memcmp((char *)got.data + begin, (char *)data.data + begin,
                               (size_t)((stride - c->normed * dim) * ith_dtype_bytes(c->type)));
    }
    if (!(worst < 2) || !kept || !gpu_is_guarded(&dd))
        gpu_fail("%lld heads of %lld in %lld rows, type %d, normed %d, rope %d: error %.3g%s", (long long)c->heads,
                 (long long)c->head_dim, (long long)c->rows, c->type, c->normed, c->rope, worst,
                 kept ? "" : ", other numbers overwritten");
    gpu_free(&dd), gpu_free(&dw), gpu_free(&dc), gpu_free(&ds);
    free(data.data), free(weights.data), free(cosines.data), free(sines.data), free(got.data);
    return worst;
}

static void test_heads(void)
{
    static const int64_t heads[] = {1, 2, 3, 12, 24, 40}, head_dims[] = {2, 6, 12, 16, 64, 128};
    double worst = 0;
    for (int h = 0; h < 6; h++)
        for (int d = 0; d < 6; d++)
            for (int kind = 0; kind < 8; kind++) {
                const heads_case c = {.rows = 1 + (h * 5 + d + kind) % 23,
                                      .heads = heads[h],
                                      .head_dim = head_dims[d],
                                      .tokens = 1 + (h + d) % 9,
                                      .type = kind & 1 ? ITH_BF16 : ITH_F32,
                                      .normed = 1 + (kind >> 1 & 1),
                                      .rope = kind >> 2};
                worst = gpu_larger(worst, run_heads(&c));
            }
    printf("RMSNorm and RoPE of heads: worst error in units of the bound %.3f\n", worst);
}

static void test_refusals(void)
{
    ith_device_row_update update = {.rows = 1, .dim = 8200};
    ith_device_heads heads = {.rows = 1, .heads = 1, .head_dim = 9000};
    if (!gpu_facts.capability) /* the fake device takes all sizes */
        return;
    if (layers->update_rows(gpu_stream, &update, gpu_said) != ITH_ERR_UNSUPPORTED)
        gpu_fail("rows of 8200 numbers are not refused");
    if (layers->norm_heads(gpu_stream, &heads, gpu_said) != ITH_ERR_UNSUPPORTED)
        gpu_fail("heads of 9000 numbers are not refused");
    update.rows = heads.rows = 0;
    const ith_device_linear nothing = {.in = 8, .out = 8, .x_stride = 8, .y_stride = 8};
    GPU_OK(layers->update_rows(gpu_stream, &update, gpu_said));
    GPU_OK(layers->norm_heads(gpu_stream, &heads, gpu_said));
    GPU_OK(layers->linear(gpu_stream, products, &nothing, gpu_said));
    gpu_wait();
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

static const ith_device_linear *timed_linear;
static int timed_parts = 1; /* products into which the outputs of the timed layer are cut */
static const ith_device_row_update *timed_update;
static const ith_device_heads *timed_heads;

static void enqueue(void)
{
    for (int i = 0; timed_linear && i < timed_parts; i++) {
        ith_device_linear part = *timed_linear;
        part.out /= timed_parts;
        part.w = (const char *)part.w + i * part.out * part.in * ith_dtype_bytes(part.type);
        part.bias = (const char *)part.bias + i * part.out * ith_dtype_bytes(part.type);
        part.y = (char *)part.y + i * part.out * ith_dtype_bytes(part.type);
        GPU_OK(layers->linear(gpu_stream, products, &part, gpu_said));
    }
    if (timed_update)
        GPU_OK(layers->update_rows(gpu_stream, timed_update, gpu_said));
    if (timed_heads)
        GPU_OK(layers->norm_heads(gpu_stream, timed_heads, gpu_said));
}

/* The median time of a call, of several groups of calls. */
static double time_calls(void)
{
    double times[5];
    enqueue();
    gpu_wait();
    for (int i = 0; i < 5; i++) {
        const double begin = gpu_now();
        for (int j = 0; j < 8; j++)
            enqueue();
        gpu_wait();
        times[i] = (gpu_now() - begin) / 8;
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            const double swapped = times[j];
            times[j] = times[j - 1], times[j - 1] = swapped;
        }
    }
    return times[2];
}

static void time_linear(const char *name, int64_t rows, int64_t in, int64_t out, ith_dtype type, bool is_gelu)
{
    numbers x = make_random(type, rows * in, 1, 0), w = make_random(type, out * in, 1, 0);
    numbers bias = make_random(type, out, 1, 0);
    gpu_buffer dx = upload(&x), dw = upload(&w), db = upload(&bias),
               dy = gpu_poisoned(rows * out * ith_dtype_bytes(type));
    const ith_device_linear call = {.rows = rows,
                                    .in = in,
                                    .out = out,
                                    .type = type,
                                    .y_type = type,
                                    .x = dx.data,
                                    .x_stride = in,
                                    .w = dw.data,
                                    .bias = db.data,
                                    .gelu = is_gelu,
                                    .y = dy.data,
                                    .y_stride = out};
    timed_linear = &call;
    const double seconds = time_calls();
    timed_linear = NULL;
    printf("%-22s %6lld x %5lld -> %5lld: %8.3f ms, %7.1f TFLOP/s\n", name, (long long)rows, (long long)in,
           (long long)out, 1e3 * seconds, 2e-12 * (double)rows * (double)in * (double)out / seconds);
    gpu_free(&dx), gpu_free(&dw), gpu_free(&db), gpu_free(&dy);
    free(x.data), free(w.data), free(bias.data);
}

static void time_rows(int64_t rows, int64_t heads)
{
    const int64_t dim = heads * 128;
    numbers x = make_random(ITH_F32, rows * dim, 1, 0), y = make_random(ITH_BF16, rows * 3 * dim, 1, 0);
    numbers vectors = make_random(ITH_F32, 3 * dim, 0.01f, 1), table = make_random(ITH_F32, rows * 64, 1, 0);
    gpu_buffer dx = upload(&x), dy = upload(&y), dv = upload(&vectors), dt = upload(&table);
    gpu_buffer dn = gpu_poisoned(rows * dim * 2);
    const float *v = (const float *)dv.data;
    const ith_device_row_update update = {.rows = rows,
                                          .dim = dim,
                                          .x = (float *)dx.data,
                                          .y = dy.data,
                                          .y_type = ITH_BF16,
                                          .y_stride = dim,
                                          .gate = {v, 0},
                                          .n = dn.data,
                                          .n_type = ITH_BF16,
                                          .n_stride = dim,
                                          .normed = true,
                                          .a = {v + dim, 0},
                                          .b = {v + 2 * dim, 0},
                                          .eps = 1e-6f,
                                          .share = rows};
    timed_update = &update;
    double seconds = time_calls();
    printf("%-22s %6lld x %5lld: %8.3f ms, %6.0f GB/s of 12 bytes a number\n", "residual sum and norm", (long long)rows,
           (long long)dim, 1e3 * seconds, 12e-9 * (double)rows * (double)dim / seconds);
    const ith_device_heads call = {.rows = rows,
                                   .heads = heads,
                                   .head_dim = 128,
                                   .type = ITH_BF16,
                                   .data = dy.data,
                                   .stride = 3 * dim,
                                   .normed = 2,
                                   .weights = {v, v + dim},
                                   .cosines = (const float *)dt.data,
                                   .sines = (const float *)dt.data,
                                   .tokens = rows,
                                   .eps = 1e-6f};
    timed_update = NULL, timed_heads = &call;
    seconds = time_calls();
    timed_heads = NULL;
    printf("%-22s %6lld x %5lld: %8.3f ms, %6.0f GB/s of 8 bytes a number\n", "norm and RoPE of q, k", (long long)rows,
           (long long)dim, 1e3 * seconds, 8e-9 * (double)rows * (double)dim / seconds);
    gpu_free(&dx), gpu_free(&dy), gpu_free(&dv), gpu_free(&dt), gpu_free(&dn);
    free(x.data), free(y.data), free(vectors.data), free(table.data);
}

static void measure_rates(void)
{
    const int64_t rows = 9450;
    const linear_case large = {
        .rows = rows, .in = 5120, .out = 13824, .type = ITH_BF16, .y_type = ITH_BF16, .bias = true, .gelu = true};
    printf("linear %lld x 5120 -> 13824 with GELU: worst error of 3000 numbers in units of the bound %.3f\n",
           (long long)rows, run_linear(&large, 3000));
    time_linear("q, k, v", rows, 5120, 15360, ITH_BF16, false);
    timed_parts = 3;
    time_linear("q, k, v apart", rows, 5120, 15360, ITH_BF16, false);
    timed_parts = 1;
    time_linear("o", rows, 5120, 5120, ITH_BF16, false);
    time_linear("up, GELU", rows, 5120, 13824, ITH_BF16, true);
    time_linear("up, without GELU", rows, 5120, 13824, ITH_BF16, false);
    time_linear("down", rows, 13824, 5120, ITH_BF16, false);
    time_linear("q, k, v again", rows, 5120, 15360, ITH_BF16, false);
    time_linear("q, k, v, more rows", 4 * rows, 5120, 15360, ITH_BF16, false);
    time_linear("down, more rows", 4 * rows, 13824, 5120, ITH_BF16, false);
    time_linear("o, f32", rows, 5120, 5120, ITH_F32, false);
    time_rows(rows, 40);
}

int main(int count, char **arguments)
{
    gpu_begin();
    layers = gpu_module->layers;
    if (!layers) {
        printf("FAILED: the module has no operations of layers\n");
        return 1;
    }
    GPU_OK(layers->create_products(gpu_device, &products, gpu_said));
    const double begin = gpu_now();
    test_updates();
    test_heads();
    test_refusals();
    test_linear();
    printf("checked in %.1f s\n", gpu_now() - begin);
    if (count < 2 || strcmp(arguments[1], "short"))
        measure_rates();
    layers->destroy_products(products);
    return gpu_end();
}
