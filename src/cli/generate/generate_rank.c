/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of ithaca generate. It calls the engine, which calls the functions below to report progress and to hand over
 * frames. */
#include "../option/complaint.h"
#include "generate.h"
#include "generate_files.h"
#include "generate_predict.h"

#include "../launch/interrupt.h"

#define PREVIEW_HEIGHT 192 /* least height of a preview, to which latents are enlarged */

/* Shows the progress that the engine reports (ith_generate_options.on_progress). */
static void show_progress(void *user, ith_stage stage, int64_t done, int64_t total)
{
    ith_generation *g = user;
    ith_progress_show(&g->progress, (int)stage, done, total);
}

/* Whether a signal was recorded (ith_video_options.should_stop). */
static bool was_stopped(void)
{
    return ith_interrupt_stops(NULL);
}

ith_video_options ith_generate_video(const ith_generation *g, int64_t width, int64_t height)
{
    return (ith_video_options){.width = width,
                               .height = height,
                               .frames = g->options.frames,
                               .fps = g->fps,
                               .crf = (int)g->settings.crf,
                               .title = g->title,
                               .comment = g->comment,
                               .should_stop = was_stopped};
}

/* Writes a decoded frame (ith_generate_options.on_frame). The first frame opens the video. */
static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    ith_generation *g = user;
    ith_status status = ITH_OK;
    if (index == 0) {
        ith_video_options options = ith_generate_video(g, width, height);
        g->height = height, g->width = width;
        status = g->media->video_open(g->media_context, g->settings.output, &options, &g->writer);
    }
    if (!status)
        status = g->media->video_add(g->writer, rgb);
    g->media_failed = status != ITH_OK;
    return status;
}

/* Writes a preview (ith_generate_options.on_preview). A file that cannot be written is a warning: the run goes on. */
static ith_status take_preview(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width)
{
    ith_generation *g = user;
    const int64_t scale = height < PREVIEW_HEIGHT ? PREVIEW_HEIGHT / height : 1;
    (void)step;
    if (g->media->picture_write(g->media_context, g->settings.preview, rgb, height, width, scale) &&
        !g->preview_failed) {
        g->preview_failed = true;
        ith_progress_end(&g->progress);
        ith_error_print("no preview: %s", ith_context_error(g->media_context));
    }
    return ITH_OK;
}

void ith_generate_set_preview(ith_generation *g)
{
    if (!g->settings.preview)
        return;
    g->options.on_preview = take_preview;
    g->options.preview_every = g->settings.preview_every ? g->settings.preview_every : 1;
}

/* The stages of the progress display, indexed by ith_stage. */
static const ith_progress_stage stages[] = {{"load", NULL, 1, ITH_LINES_TIMED},
                                            {"text", "prompt", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS},
                                            {"denoise", "step", ITH_PROGRESS_UNIT, ITH_LINES_UNITS},
                                            {"decode", "frame", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS},
                                            {"encode", "frame", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS},
                                            {"image", "image", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS}};

/* Begins the display. Steps that a saved run has done count as done before. */
static void begin_progress(ith_generation *g)
{
    ith_progress_begin(&g->progress, stages, sizeof stages / sizeof *stages, g->settings.quiet);
    g->progress.reached[ITH_STAGE_DENOISE] = g->resumed_steps * ITH_PROGRESS_UNIT;
}

/* Runs the engine on the lowest rank of a process, where signals arrive, or on rank 0, which also shows progress. */
static ith_status lead(ith_generation *g, ith_comm *comm, const ith_generate_options *options)
{
    bool speaks = ith_comm_rank(comm) == 0;
    if (speaks && !g->settings.quiet)
        ith_generate_announce(g, stderr);
    if (speaks)
        begin_progress(g);
    ith_interrupt_target(ith_generate_cancel, g->pipeline);
    ith_status status = ith_pipeline_generate(g->pipeline, comm, options, speaks ? &g->report : NULL);
    ith_interrupt_target(NULL, NULL);
    g->gone_wrong = status == ITH_ERR_NUMERIC;
    if (speaks)
        ith_progress_end(&g->progress);
    return status;
}

ith_status ith_generate_encode(ith_generation *g, ith_comm *comm, const char *const *texts, int64_t count)
{
    const bool first = ith_launch_is_first(comm, ith_comm_rank(comm)), speaks = ith_comm_rank(comm) == 0;
    ith_generate_options options = g->options;
    options.on_progress = show_progress;
    options.should_stop = ith_interrupt_stops;
    options.user = g;
    if (speaks)
        begin_progress(g);
    if (first)
        ith_interrupt_target(ith_generate_cancel, g->pipeline);
    ith_status status = ith_pipeline_encode(g->pipeline, comm, &options, texts, count);
    if (first)
        ith_interrupt_target(NULL, NULL);
    if (speaks)
        ith_progress_end(&g->progress);
    return status;
}

ith_status ith_generate_rank(ith_context *context, ith_comm *comm, void *user)
{
    ith_generation *g = user;
    if (g->settings.dry_run)
        return ith_generate_predict_links(g, context, comm);
    /* The context of a rank of several processes was made before the options were read. */
    ith_status status = g->settings.device ? ith_context_use_device(context, g->settings.device) : ITH_OK;
    if (status)
        return ith_launch_fail(comm, status);
    ith_generate_options options = g->options;
    options.on_progress = show_progress;
    options.on_frame = take_frame;
    options.should_stop = ith_interrupt_stops;
    options.user = g;
    options.latents_file = ith_comm_rank(comm) == 0 ? ith_generate_take_latents(g) : NULL;
    if (ith_launch_is_first(comm, ith_comm_rank(comm)))
        return lead(g, comm, &options);
    return ith_pipeline_generate(g->pipeline, comm, &options, NULL);
}
