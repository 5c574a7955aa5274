/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the linear map of previews, and draws them (preview.h). */
#include "preview.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../sample/noise.h"

#include <math.h>
#include <string.h>

#define SIDE 16       /* latents of a frame that is decoded, in height and width */
#define FRAMES 3      /* latent frames that are decoded, all with the same latents */
#define SQUARE 2      /* latents of a square of the test picture */
#define SEED 20250722 /* for the random colours and latents */
#define RIDGE 1e-2    /* ridge regression: added to the diagonal for each sample, so that unused channels get 0 */

/* The memory of a fit. n = channels + 1; the last row of the equations belongs to the constant. */
typedef struct fit {
    int64_t channels, frames; /* frames: number of video frames for each latent frame but the first */
    int64_t square;           /* pixels of a latent, in height and width */
    float *latents;           /* [channels, FRAMES, SIDE, SIDE] */
    float *colours; /* [2, SIDE, SIDE, 3] mean colours in [-1, 1], of the first latent frame and of the last */
    double *normal; /* [n, n] normal equations, then their Cholesky factor */
    double *right;  /* [3, n] right-hand sides, then the map of one part */
} fit;

static int64_t fit_bytes(int64_t channels)
{
    const int64_t n = channels + 1;
    return (channels * FRAMES + 6) * SIDE * SIDE * (int64_t)sizeof(float) + (n + 3) * n * (int64_t)sizeof(double) +
           4 * ITH_ALLOC_HEADER;
}

/* The latents that are encoded or decoded. */
static const ith_vae_extent extent = {FRAMES, SIDE, SIDE, NULL};

/* Whether the weight files have an encoder that can be used. lends: other processes get the model from this one. */
static bool has_encoder(ith_context *context, const ith_model *model, bool lends)
{
    ith_store *store = NULL;
    bool has = !model->vae.encoder_fault && !lends && !ith_model_open_part(context, model, ITH_PART_VAE, &store) &&
               !ith_vae_check(context, &model->vae, ITH_VAE_ENCODER, store);
    ith_store_close(&store);
    return has;
}

ith_status ith_preview_bytes(ith_context *context, const ith_model *model, bool lends, ith_operand_types types,
                             int64_t *bytes)
{
    ith_status status = has_encoder(context, model, lends)
                            ? ith_vae_encode_bytes(context, &model->vae, types, &extent, bytes)
                            : ith_vae_decode_bytes(context, &model->vae, types, &extent, bytes);
    *bytes += fit_bytes(model->vae.z_dim);
    return status;
}

/* Adds the mean colours of the pixels of each latent to f->colours (an ith_vae_frame_fn). */
static ith_status take_colours(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    const fit *f = user;
    const int64_t square = height / SIDE, last = index > (FRAMES - 2) * f->frames;
    if (index && !last)
        return ITH_OK;
    float *colours = f->colours + last * SIDE * SIDE * 3;
    for (int64_t i = 0; i < SIDE * SIDE * 3; i++) {
        const int64_t row = i / 3 / SIDE * square, column = i / 3 % SIDE * square;
        double sum = 0;
        for (int64_t p = 0; p < square * square; p++)
            sum += (double)frame[((row + p / square) * width + column + p % square) * 3 + i % 3];
        colours[i] += (float)(sum / (double)(square * square * (last ? f->frames : 1)));
    }
    return ITH_OK;
}

/* Number k of sample `at` of the first (part 0) or the last latent frame: a latent, or 1 for the constant. */
static double sample(const fit *f, int64_t part, int64_t at, int64_t k)
{
    const int64_t frame = part ? FRAMES - 1 : 0;
    return k < f->channels ? (double)f->latents[(k * FRAMES + frame) * SIDE * SIDE + at] : 1;
}

/* Adds up the normal equations over all samples of one part. */
static void add_up(const fit *f, int64_t part)
{
    const int64_t n = f->channels + 1;
    const float *colours = f->colours + part * SIDE * SIDE * 3;
    memset(f->normal, 0, (size_t)(n * n) * sizeof *f->normal);
    memset(f->right, 0, (size_t)(3 * n) * sizeof *f->right);
    for (int64_t at = 0; at < SIDE * SIDE; at++)
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k <= i; k++)
                f->normal[i * n + k] += sample(f, part, at, i) * sample(f, part, at, k);
            for (int64_t j = 0; j < 3; j++)
                f->right[j * n + i] += sample(f, part, at, i) * (double)colours[at * 3 + j];
        }
    for (int64_t i = 0; i < n; i++)
        f->normal[i * n + i] += RIDGE * SIDE * SIDE;
}

/* Solves the normal equations by Cholesky's decomposition A = L L^T. They are positive definite. */
static void solve(const fit *f)
{
    const int64_t n = f->channels + 1;
    double *a = f->normal;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k <= i; k++) {
            double sum = a[i * n + k];
            for (int64_t m = 0; m < k; m++)
                sum -= a[i * n + m] * a[k * n + m];
            a[i * n + k] = i == k ? sqrt(sum) : sum / a[k * n + k];
        }
    for (int64_t j = 0; j < 3; j++) {
        double *x = f->right + j * n;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t m = 0; m < i; m++)
                x[i] -= a[i * n + m] * x[m];
            x[i] /= a[i * n + i];
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            for (int64_t m = i + 1; m < n; m++)
                x[i] -= a[m * n + i] * x[m];
            x[i] /= a[i * n + i];
        }
    }
}

/* Fits the maps of the rank to latents and colours: one to the first latent frame, one to the last. */
static void fit_maps(ith_rank *rank, const fit *f)
{
    const int64_t n = f->channels + 1;
    for (int64_t part = 0; part < 2; part++) {
        add_up(f, part);
        solve(f);
        for (int64_t i = 0; i < 3 * n; i++)
            rank->preview_map[part * 3 * n + i] = (float)f->right[i];
    }
}

/* Gives rows of the test picture, the same in each frame (an ith_vae_rows_fn). */
static ith_status give_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    const fit *f = user;
    const int64_t width = SIDE * f->square;
    (void)frame;
    for (int64_t i = 0; i < count * width * 3; i++) {
        const int64_t y = (row + i / 3 / width) / f->square, x = i / 3 % width / f->square;
        rows[i] = f->colours[(y * SIDE + x) * 3 + i % 3];
    }
    return ITH_OK;
}

/* Makes a test picture of squares, about half of them black and the others in random colours, and encodes it. */
static ith_status encode(ith_rank *rank, const fit *f)
{
    const int64_t numbers = SIDE * SIDE * 3;
    float noise[(SIDE / SQUARE) * (SIDE / SQUARE) * 3];
    ith_vae *vae = NULL;
    ith_noise_normal(SEED, 0, (int64_t)(sizeof noise / sizeof *noise), noise);
    for (int64_t i = 0; i < numbers; i++) {
        const int64_t y = i / 3 / SIDE / SQUARE, x = i / 3 % SIDE / SQUARE;
        const float *square = noise + (y * (SIDE / SQUARE) + x) * 3;
        f->colours[i] = square[0] + square[1] < square[2] ? -1 : fmaxf(-1, fminf(1, 2 * square[i % 3]));
        f->colours[numbers + i] = f->colours[i];
    }
    ith_status status = ith_rank_open_vae(rank, ITH_VAE_ENCODER, &vae);
    if (!status)
        status = ith_vae_encode(rank->context, vae, &extent, give_rows, (void *)(uintptr_t)f, f->latents,
                                &rank->report.load_seconds);
    ith_vae_free(rank->context, &vae);
    return status;
}

/* Decodes random latents, and takes the colours. */
static ith_status decode(ith_rank *rank, const fit *f)
{
    ith_vae *vae = NULL;
    for (int64_t i = 0; i < f->channels * FRAMES; i++)
        ith_noise_normal(SEED, i / FRAMES * SIDE * SIDE, SIDE * SIDE, f->latents + i * SIDE * SIDE);
    ith_status status = ith_rank_open_vae(rank, ITH_VAE_DECODER, &vae);
    if (!status)
        status = ith_vae_decode(rank->context, vae, f->latents, &extent, take_colours, (void *)(uintptr_t)f,
                                &rank->report.load_seconds);
    ith_vae_free(rank->context, &vae);
    return status;
}

ith_status ith_preview_fit(ith_rank *rank, void *unused)
{
    (void)unused;
    ith_context *context = rank->context;
    const int64_t channels = rank->size.channels, n = channels + 1;
    fit f = {.channels = channels,
             .frames = rank->pipeline->model->vae.stride_time,
             .square = rank->pipeline->model->vae.stride_space,
             .latents = ith_alloc(context, channels * FRAMES * SIDE * SIDE, sizeof(float), "latents for a preview"),
             .colours = ith_alloc_zero(context, 6 * SIDE * SIDE, sizeof(float), "colours for a preview"),
             .normal = ith_alloc(context, n * n, sizeof(double), "equations for a preview"),
             .right = ith_alloc(context, 3 * n, sizeof(double), "equations for a preview")};
    ith_status status = f.latents && f.colours && f.normal && f.right ? ITH_OK : ITH_ERR_MEMORY;
    if (!status && has_encoder(context, rank->pipeline->model, rank->team.lends))
        status = encode(rank, &f);
    else if (!status)
        status = decode(rank, &f);
    if (!status)
        fit_maps(rank, &f);
    ith_free(context, f.latents);
    ith_free(context, f.colours);
    ith_free(context, f.normal);
    ith_free(context, f.right);
    return status;
}

/* ---- Drawing --------------------------------------------------------------------------------------------------- */

int64_t ith_preview_frames(const ith_latent_size *size)
{
    return ith_min64(3, size->frames);
}

/* One colour of one latent. numbers: its first channel, in a token. */
static uint8_t colour_of(const float *map, int64_t channels, const float *numbers)
{
    float sum = map[channels];
    for (int64_t c = 0; c < channels; c++)
        sum += map[c] * numbers[ITH_DIT_PATCH * c];
    return (uint8_t)lrintf(fminf(fmaxf((sum + 1) * 127.5f, 0), 255));
}

void ith_preview_draw(const float *map, const ith_latent_size *size, const float *tokens, uint8_t *rgb)
{
    const int64_t shown = ith_preview_frames(size), across = size->width / 2, down = size->height / 2;
    for (int64_t row = 0; row < size->height; row++)
        for (int64_t column = 0; column < shown * size->width; column++) {
            const int64_t place = column / size->width, x = column % size->width;
            const int64_t frame = shown > 1 ? place * (size->frames - 1) / (shown - 1) : 0;
            const int64_t token = (frame * down + row / 2) * across + x / 2;
            const float *numbers = tokens + token * size->channels * ITH_DIT_PATCH + row % 2 * 2 + x % 2;
            for (int64_t j = 0; j < 3; j++)
                *rgb++ = colour_of(map + (j + (frame ? 3 : 0)) * (size->channels + 1), size->channels, numbers);
        }
}
