/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the decoder with random weights, on two latent frames of a small picture. The stages of the second latent
 * frame count: like every later one, it becomes several frames. */
#include "../../base/clock.h"
#include "../../base/size.h"
#include "../sample/noise.h"
#include "../vae/vae_decoder.h"
#include "video_meter.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define FRAMES 2
#define FIRST_SIDE 4     /* height and width of the latents that give the time of a pixel */
#define MOST_CHANNELS 48 /* the most channels at the largest picture: a wider decoder is measured with fewer */
#define LEAST_REPEATS 2
#define MOST_REPEATS 10
#define STAGES 16
#define SECOND "second frame" /* name of the stage of the whole second latent frame */

/* A stage: its operations in the second latent frame, and its times in a run. */
typedef struct stage_work {
    const char *name;
    double operations;
    double seconds[2]; /* of one unit, with one thread and with all */
} stage_work;

/* A decoder, and the latents that pass through it. */
typedef struct decoder_run {
    ith_video_meter *meter;
    ith_vae_config config;
    ith_vae *vae;
    int64_t height, width;
    float *latents;
    ith_stage_clock clock;
    bool disturbed; /* other programs have taken the processor during the last run */
    double begin;   /* when the second latent frame began */
    double worked;  /* the least processor time of a call */
    stage_work stages[STAGES];
    int count;
    double sign;  /* 1 or -1: `add` adds work, or takes it away */
    double bytes; /* of operations on rows in the second latent frame */
} decoder_run;

/* Begins the clock when the first frame is finished: then the second latent frame begins. */
static ith_status take_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    decoder_run *r = user;
    (void)frame, (void)height, (void)width;
    if (index == 0) {
        ith_stage_clock_begin(&r->clock);
        r->begin = ith_stage_clock_now(&r->clock);
    }
    return ITH_OK;
}

static ith_status decode(decoder_run *r)
{
    const ith_vae_extent extent = {FRAMES, r->height, r->width, NULL};
    const double started = ith_clock_thread_seconds();
    ith_status status = ith_vae_decode(r->meter->context, r->vae, r->latents, &extent, take_frame, r, NULL);
    r->worked = fmin(r->worked, ith_clock_thread_seconds() - started);
    ith_stage_clock_add(&r->clock, SECOND, ith_stage_clock_now(&r->clock) - r->begin);
    ith_stage_clock_end(&r->clock);
    return status;
}

static ith_status run(decoder_run *r, int64_t height, int64_t width, int64_t threads, double until)
{
    ith_context *context = r->meter->context;
    const int64_t count = r->meter->problem->channels * FRAMES * height * width;
    r->height = height, r->width = width, r->worked = INFINITY;
    const ith_video_moment began = ith_video_moment_now();
    omp_set_num_threads((int)threads);
    r->latents = ith_alloc(context, count, sizeof *r->latents, "the latents of a measurement");
    ith_status status = r->latents ? ith_noise_make(context, 0, 0, count, r->latents) : ITH_ERR_MEMORY;
    if (!status)
        status = ith_stage_clock_open(&r->clock, context, threads == 1);
    if (!status) {
        for (int i = 0; i < MOST_REPEATS && !status; i++)
            if (i < LEAST_REPEATS || ith_clock_seconds() < until)
                status = decode(r);
        ith_stage_clock_close(&r->clock, context);
    }
    r->disturbed = ith_video_meter_disturbed(&began);
    ith_free(context, r->latents);
    return status;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* The stage of this name, which is appended if it is new. NULL if there is no room. */
static stage_work *stage_of(decoder_run *r, const char *name)
{
    int i = 0;
    while (i < r->count && strcmp(r->stages[i].name, name))
        i++;
    if (i == r->count && i < STAGES)
        r->stages[r->count++] = (stage_work){.name = name};
    return i < STAGES ? &r->stages[i] : NULL;
}

/* Adds the products of an item to its stage. The attention is priced by its plan. */
static void add(void *user, const ith_work *work)
{
    decoder_run *r = user;
    if (work->kind == ITH_WORK_OF_ROWS)
        r->bytes += r->sign * work->times * work->bytes;
    if (work->kind == ITH_WORK_OF_ROWS || !strcmp(work->stage, ITH_VAE_ATTENTION))
        return;
    stage_work *stage = stage_of(r, work->stage);
    if (stage)
        stage->operations += r->sign * work->times * work->operations;
}

/* Adds the rate of a stage for the size of a convolution in the picture and the decoder of the problem, which may be
 * larger. */
static void add_rate(void *user, const ith_work *work)
{
    decoder_run *r = user;
    const stage_work *stage = work->kind == ITH_WORK_OF_CONV ? stage_of(r, work->stage) : NULL;
    const ith_machine_product row = {.work = ITH_WORK_CONVOLUTION,
                                     .dtype = r->meter->model->types.products.rounded,
                                     .rows = work->rows,
                                     .features = ith_min64(work->in, work->out)};
    if (stage)
        ith_video_meter_add(r->meter, &row, stage->operations,
                            ith_video_meter_choose(stage->seconds[0], stage->seconds[1], r->disturbed));
}

static ith_status list(decoder_run *r, const ith_vae_config *config, int64_t frames, int64_t height, int64_t width,
                       void (*take)(void *, const ith_work *))
{
    const ith_vae_extent extent = {frames, height, width, NULL};
    return ith_vae_decode_list(r->meter->context, config, r->meter->model->types.products, &extent,
                               &(ith_work_list){take, r});
}

/* Counts the work of the second latent frame: the work of two latent frames without the work of one. */
static ith_status count_work(decoder_run *r)
{
    r->sign = 1;
    ith_status status = list(r, &r->config, FRAMES, r->height, r->width, add);
    r->sign = -1;
    return status ? status : list(r, &r->config, FRAMES - 1, r->height, r->width, add);
}

/* Keeps the times of the products of each stage. The time outside the stages, and the time of norms beyond their price,
 * is added to the stages in proportion to their times. */
static void keep(decoder_run *r, int64_t threads, int index)
{
    double stages = 0;
    for (int i = 0; i < r->count; i++)
        stages += ith_stage_clock_seconds(&r->clock, r->stages[i].name);
    const double seconds =
        ith_stage_clock_seconds(&r->clock, SECOND) - ith_stage_clock_seconds(&r->clock, ITH_VAE_ATTENTION);
    const double products = ith_video_meter_without_rows(r->meter, seconds, r->bytes, threads);
    for (int i = 0; i < r->count && stages > 0; i++)
        r->stages[i].seconds[index] = ith_stage_clock_seconds(&r->clock, r->stages[i].name) * products / stages;
}

/* Finds the largest latents that can be decoded twice with one thread in the time that is left. The first latents,
 * FIRST_SIDE x FIRST_SIDE, have given the time of a pixel. */
static void sides_that_fit(const decoder_run *r, int64_t *height, int64_t *width)
{
    const ith_latent_size *size = &r->meter->model->size;
    const double left = fmax(r->meter->until - ith_clock_seconds(), 0) / 2;
    const double pixels = left / r->worked * FIRST_SIDE * FIRST_SIDE;
    *width = ith_max64(ith_min64(size->width, (int64_t)sqrt(2 * pixels)), *width);
    *height = ith_max64(ith_min64(size->height, (int64_t)(pixels / (double)*width)), *height);
}

static ith_status measure(decoder_run *r)
{
    const ith_video_meter *m = r->meter;
    const ith_latent_size *size = &m->model->size;
    const int64_t threads = ith_min64(m->place.threads, omp_get_num_procs());
    int64_t height = ith_min64(size->height, FIRST_SIDE), width = ith_min64(size->width, FIRST_SIDE);
    ith_status status = run(r, height, width, 1, 0);
    if (!status)
        sides_that_fit(r, &height, &width);
    if (!status)
        status = run(r, height, width, threads, m->until);
    if (!status)
        status = count_work(r);
    keep(r, threads, 1);
    const bool disturbed = r->disturbed;
    if (!status && disturbed && threads > 1)
        status = run(r, height, width, 1, 0);
    keep(r, disturbed ? 1 : threads, 0);
    r->disturbed = disturbed;
    return status ? status : list(r, &m->model->model.vae, 1, size->height, size->width, add_rate);
}

ith_status ith_video_measure_decoder(ith_video_meter *m)
{
    decoder_run r = {.meter = m, .config = m->model->model.vae};
    r.config.decoder_base_dim = ith_min64(r.config.decoder_base_dim, MOST_CHANNELS);
    ith_status status =
        ith_vae_make_random(m->context, &r.config, ITH_VAE_DECODER, m->model->types.products, ITH_BF16, &r.vae);
    if (!status)
        status = measure(&r);
    ith_vae_free(m->context, &r.vae);
    return status;
}
