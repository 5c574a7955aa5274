/* For every head h and query i, over the keys j of a prompt:
 *
 *     o[i] = sum_j softmax_j(q[i] . k[j] + table[bucket(j - i)][h]) v[j]
 *
 * A head is one thread's work: keys are laid out as [head_dim, count], so that both products run along rows, and four
 * queries are taken at a time. Sums are taken in the order of their index whatever the number of threads. */
#include "text_attention.h"

#include "../base/size.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define TILE_ROWS 4
#define TILE_COLUMNS 8

/* Distances below buckets/4 have a bucket each, larger ones share logarithmically wider ones, and from max_distance on
 * the last; keys that follow the query have the upper half. In float, as the reference counts. */
int64_t ith_text_bucket(int64_t distance, int64_t buckets, int64_t max_distance)
{
    int64_t half = buckets / 2, exact = half / 2;
    int64_t first = distance > 0 ? half : 0, away = distance < 0 ? -distance : distance;
    if (away < exact)
        return first + away;
    float ratio = logf((float)away / (float)exact) / (float)log((double)max_distance / (double)exact);
    int64_t wide = exact + (int64_t)(ratio * (float)(half - exact));
    return first + ith_min64(wide, half - 1);
}

/* One thread's work space. */
typedef struct head_work {
    float *k;               /* [head_dim, columns] */
    float *v;               /* [count, width] */
    float *bias;            /* [2 count - 1], by j - i + count - 1 */
    float *q;               /* [TILE_ROWS, head_dim] */
    float *scores;          /* [TILE_ROWS, columns] */
    float *o;               /* [TILE_ROWS, width] */
    int64_t columns, width; /* count and head_dim, rounded up to TILE_COLUMNS; what is beyond is zero */
} head_work;

static int64_t head_work_floats(const ith_text_config *config, int64_t count)
{
    int64_t columns = ith_round_up(count, TILE_COLUMNS), width = ith_round_up(config->head_dim, TILE_COLUMNS);
    int64_t floats =
        config->head_dim * columns + count * width + 2 * count + TILE_ROWS * (config->head_dim + columns + width);
    return ith_round_up(floats, 16);
}

int64_t ith_text_attention_work(const ith_text_config *config, int64_t count, int threads)
{
    return head_work_floats(config, count) * ith_min64(threads, config->heads);
}

static head_work lay_out(const ith_text_config *config, int64_t count, float *work)
{
    head_work w = {.columns = ith_round_up(count, TILE_COLUMNS), .width = ith_round_up(config->head_dim, TILE_COLUMNS)};
    w.k = work;
    w.scores = w.k + config->head_dim * w.columns;
    w.v = w.scores + TILE_ROWS * w.columns;
    w.o = w.v + count * w.width;
    w.q = w.o + TILE_ROWS * w.width;
    w.bias = w.q + TILE_ROWS * config->head_dim;
    return w;
}

/* c[TILE_ROWS, TILE_COLUMNS] = a[TILE_ROWS, inner] b[inner, TILE_COLUMNS] */
static void multiply_tile(const float *a, int64_t a_stride, const float *b, int64_t b_stride, int64_t inner, float *c,
                          int64_t c_stride)
{
    float sum[TILE_ROWS][TILE_COLUMNS] = {{0}};
    for (int64_t l = 0; l < inner; l++)
        for (int row = 0; row < TILE_ROWS; row++)
            for (int column = 0; column < TILE_COLUMNS; column++)
                sum[row][column] += a[row * a_stride + l] * b[l * b_stride + column];
    for (int row = 0; row < TILE_ROWS; row++)
        memcpy(c + row * c_stride, sum[row], sizeof sum[row]);
}

/* c[TILE_ROWS, columns] = a[TILE_ROWS, inner] b[inner, columns]; b and c have rows of `columns`. */
static void multiply(const float *a, int64_t a_stride, const float *b, int64_t inner, int64_t columns, float *c)
{
    for (int64_t column = 0; column < columns; column += TILE_COLUMNS)
        multiply_tile(a, a_stride, b + column, columns, inner, c + column, columns);
}

/* k, v: of the head's first token, `stride` from one token to the next. */
static void pack_head(const head_work *w, int64_t count, int64_t head_dim, int64_t stride, const float *k,
                      const float *v)
{
    for (int64_t d = 0; d < head_dim; d++) {
        for (int64_t j = 0; j < count; j++)
            w->k[d * w->columns + j] = k[j * stride + d];
        for (int64_t j = count; j < w->columns; j++)
            w->k[d * w->columns + j] = 0;
    }
    for (int64_t j = 0; j < count; j++) {
        memcpy(w->v + j * w->width, v + j * stride, (size_t)head_dim * sizeof *v);
        memset(w->v + j * w->width + head_dim, 0, (size_t)(w->width - head_dim) * sizeof *v);
    }
}

/* Queries [i, i + rows) of one head, rows <= TILE_ROWS. */
static void attend_rows(const head_work *w, const ith_rowops *rowops, int64_t count, int64_t head_dim, int64_t stride,
                        int64_t i, int64_t rows, const float *q, float *o)
{
    memset(w->q, 0, (size_t)(TILE_ROWS * head_dim) * sizeof *w->q);
    for (int64_t row = 0; row < rows; row++)
        memcpy(w->q + row * head_dim, q + (i + row) * stride, (size_t)head_dim * sizeof *q);
    multiply(w->q, head_dim, w->k, head_dim, w->columns, w->scores);
    for (int64_t row = 0; row < rows; row++) {
        float *scores = w->scores + row * w->columns;
        const float *bias = w->bias + count - 1 - (i + row);
        for (int64_t j = 0; j < count; j++)
            scores[j] += bias[j];
        rowops->softmax(scores, count);
    }
    multiply(w->scores, w->columns, w->v, count, w->width, w->o);
    for (int64_t row = 0; row < rows; row++)
        memcpy(o + (i + row) * stride, w->o + row * w->width, (size_t)head_dim * sizeof *o);
}

void ith_text_attention(const ith_text_config *config, const ith_rowops *rowops, int64_t count, const float *q,
                        const float *k, const float *v, const float *table, int threads, float *work, float *o)
{
    int64_t heads = config->heads, head_dim = config->head_dim, stride = heads * head_dim;
    int64_t work_floats = head_work_floats(config, count);
    int team = (int)ith_min64(threads, heads);
#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t head = 0; head < heads; head++) {
        head_work w = lay_out(config, count, work + omp_get_thread_num() * work_floats);
        int64_t at = head * head_dim;
        pack_head(&w, count, head_dim, stride, k + at, v + at);
        for (int64_t distance = 1 - count; distance < count; distance++) {
            int64_t bucket = ith_text_bucket(distance, config->buckets, config->max_distance);
            w.bias[distance + count - 1] = table[bucket * heads + head];
        }
        for (int64_t i = 0; i < count; i += TILE_ROWS)
            attend_rows(&w, rowops, count, head_dim, stride, i, ith_min64(TILE_ROWS, count - i), q + at, o + at);
    }
}
