/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the decoder with random weights, on two latent frames of a small picture: the stages of the second one,
 * which becomes as many frames as each later one does. */
#include "../../base/clock.h"
#include "../../base/size.h"
#include "../sample/noise.h"
#include "../vae/vae_decoder.h"
#include "video_measure.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define FRAMES 2
#define FIRST_SIDE 4 /* height and width of the latents that say how long a pixel takes */
#define LEAST_REPEATS 1
#define MOST_REPEATS 10
#define STAGES 16

/* A decoder, and the latents that pass through it. */
typedef struct decoder_run {
    ith_video_meter *meter;
    ith_vae *vae;
    int64_t height, width, threads;
    float *latents;
    ith_stage_clock clock;
    double begin, second; /* when the second latent frame began; the fastest time in which it was decoded */
} decoder_run;

/* The second latent frame begins when the first one has been handed on. */
static ith_status take_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    decoder_run *r = user;
    (void)frame, (void)height, (void)width;
    if (index == 0) {
        ith_stage_clock_begin(&r->clock);
        r->begin = ith_clock_seconds();
    }
    return ITH_OK;
}

static ith_status decode(decoder_run *r)
{
    ith_status status =
        ith_vae_decode(r->meter->context, r->vae, r->latents, FRAMES, r->height, r->width, NULL, take_frame, r);
    const double seconds = ith_clock_seconds() - r->begin;
    ith_stage_clock_end(&r->clock);
    if (r->second == 0 || seconds < r->second)
        r->second = seconds;
    return status;
}

static ith_status run(decoder_run *r, int64_t height, int64_t width, int least, int most)
{
    ith_context *context = r->meter->context;
    const int64_t count = r->meter->problem->channels * FRAMES * height * width;
    r->height = height, r->width = width, r->second = 0;
    r->latents = ith_alloc(context, count, sizeof *r->latents, "the latents of a measurement");
    ith_status status = r->latents ? ith_noise_make(context, 0, 0, count, r->latents) : ITH_ERR_MEMORY;
    if (!status)
        status = ith_stage_clock_open(&r->clock, context);
    if (!status) {
        for (int i = 0; i < most && !status; i++)
            if (i < least || ith_clock_seconds() < r->meter->until)
                status = decode(r);
        ith_stage_clock_close(&r->clock, context);
    }
    ith_free(context, r->latents);
    return status;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* The work of one latent frame by stage. */
typedef struct stage_work {
    const char *name;
    double operations;
} stage_work;

typedef struct tally {
    stage_work stages[STAGES];
    int count;
    double sign;  /* 1 or -1: adds or takes away */
    double bytes; /* of operations on rows */
    /* to add the rates */
    decoder_run *run;
    double products; /* what products take of the time of the stages */
} tally;

/* Adds the products of an item to its stage. The attention is priced by its plan. */
static void add(void *user, const ith_work *work)
{
    tally *t = user;
    if (work->kind == ITH_WORK_OF_ROWS)
        t->bytes += t->sign * work->times * work->bytes;
    if (work->kind == ITH_WORK_OF_ROWS || !strcmp(work->stage, ITH_VAE_ATTENTION))
        return;
    int i = 0;
    while (i < t->count && strcmp(t->stages[i].name, work->stage))
        i++;
    if (i == STAGES)
        return;
    if (i == t->count)
        t->stages[t->count++] = (stage_work){.name = work->stage};
    t->stages[i].operations += t->sign * work->times * work->operations;
}

/* Adds the rate of a stage for the size of a convolution in the picture of the problem, which is larger. */
static void add_rate(void *user, const ith_work *work)
{
    const tally *t = user;
    const decoder_run *r = t->run;
    for (int i = 0; i < t->count && work->kind == ITH_WORK_OF_CONV; i++)
        if (!strcmp(t->stages[i].name, work->stage))
            ith_video_meter_add(r->meter, ITH_WORK_CONVOLUTION, r->meter->model->types.products.rounded, work->rows,
                                ith_min64(work->in, work->out), t->stages[i].operations,
                                ith_stage_clock_seconds(&r->clock, work->stage) * t->products, r->threads);
}

static ith_status list(const decoder_run *r, int64_t frames, int64_t height, int64_t width,
                       void (*take)(void *, const ith_work *), tally *t)
{
    const ith_video_model *m = r->meter->model;
    return ith_vae_list(r->meter->context, &m->model.vae, m->types.products, frames, height, width, NULL,
                        &(ith_work_list){take, t});
}

static ith_status add_rates(decoder_run *r)
{
    const ith_latent_size *size = &r->meter->model->size;
    tally t = {.sign = 1, .run = r};
    ith_status status = list(r, FRAMES, r->height, r->width, add, &t);
    t.sign = -1;
    if (!status)
        status = list(r, FRAMES - 1, r->height, r->width, add, &t);
    double stages = 0;
    for (int i = 0; i < t.count; i++)
        stages += ith_stage_clock_seconds(&r->clock, t.stages[i].name);
    const double seconds = r->second - ith_stage_clock_seconds(&r->clock, ITH_VAE_ATTENTION);
    t.products = ith_video_meter_without_rows(r->meter, seconds, t.bytes, r->threads) / stages;
    return status ? status : list(r, 1, size->height, size->width, add_rate, &t);
}

/* The sides of the latents whose decoding fits into the time, if latents of FIRST_SIDE x FIRST_SIDE took `seconds`. */
static void sides_that_fit(const decoder_run *r, double seconds, int64_t *height, int64_t *width)
{
    const ith_latent_size *size = &r->meter->model->size;
    const double left = fmax(r->meter->until - ith_clock_seconds(), 0);
    const double pixels = left / seconds * FIRST_SIDE * FIRST_SIDE;
    *width = ith_max64(ith_min64(size->width, (int64_t)sqrt(2 * pixels)), ith_min64(size->width, FIRST_SIDE));
    *height =
        ith_max64(ith_min64(size->height, (int64_t)(pixels / (double)*width)), ith_min64(size->height, FIRST_SIDE));
}

static ith_status measure(decoder_run *r)
{
    const ith_latent_size *size = &r->meter->model->size;
    int64_t height = ith_min64(size->height, FIRST_SIDE), width = ith_min64(size->width, FIRST_SIDE);
    const double begin = ith_clock_seconds();
    ith_status status = run(r, height, width, 1, 1);
    sides_that_fit(r, ith_clock_seconds() - begin, &height, &width);
    if (!status)
        status = run(r, height, width, LEAST_REPEATS, MOST_REPEATS);
    return status ? status : add_rates(r);
}

ith_status ith_video_measure_decoder(ith_video_meter *m)
{
    decoder_run r = {.meter = m, .threads = ith_min64(m->place.threads, omp_get_num_procs())};
    omp_set_num_threads((int)r.threads);
    ith_status status =
        ith_vae_make_random(m->context, &m->model->model.vae, m->model->types.products, ITH_BF16, &r.vae);
    if (!status)
        status = measure(&r);
    ith_vae_free(m->context, &r.vae);
    return status;
}
