/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds decoded frames to 8 bits, and passes them to the caller (frames.h). */
#include "frames.h"

#include "../../base/callback.h"
#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/trace.h"

#include <math.h>
#include <string.h>

/* Maps each number of a frame from [-1, 1] to [0, 255], and rounds it to the nearest integer, ties to even, as
 * torch.round does. Returns whether all are numbers: NaN becomes 0. */
static bool quantise(uint8_t *rgb, const float *frame, int64_t count)
{
    int64_t numbers = 0;
    for (int64_t i = 0; i < count; i++) {
        rgb[i] = (uint8_t)rintf(fminf(fmaxf(frame[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f);
        numbers += frame[i] == frame[i];
    }
    return numbers == count;
}

/* Calls on_frame. */
static ith_status hand_over(const ith_rank *rank, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    if (!rank->options.on_frame)
        return ITH_OK;
    ith_callback_begin(rank->context);
    const int returned = rank->options.on_frame(rank->options.user, index, rgb, height, width);
    return ith_callback_end(rank->context, returned, "on_frame", "frame", index);
}

void ith_frames_set_activity(const ith_rank *rank, int64_t index)
{
    if (index < rank->options.frames)
        ith_observer_set_activity(rank->context, "decoding frame %lld of %lld", (long long)index + 1,
                                  (long long)rank->options.frames);
}

/* Gathers the rows of a frame on rank 0. */
static ith_status gather(const ith_frames *f)
{
    ith_comm *leaders = f->rank->leaders;
    if (!f->part_count)
        return ITH_OK;
    double traced = ith_trace_begin(f->rank->context);
    ith_status status = f->rank->rank ? ith_comm_exchange(leaders, f->parts, f->part_count, NULL, 0)
                                      : ith_comm_exchange(leaders, NULL, 0, f->parts, f->part_count);
    ith_trace_end(f->rank->context, traced, "gather frame", "wait");
    return status;
}

/* Passes a whole frame on, on rank 0. */
static ith_status finish(const ith_frames *f, int64_t index)
{
    ith_rank *rank = f->rank;
    const int64_t count = f->height * f->width * 3;
    ith_status status = hand_over(rank, index, f->rgb, f->height, f->width);
    if (status)
        return status;
    if (rank->dump) {
        memcpy(rank->dump->frames + index * count, f->rgb, (size_t)count);
        rank->dump->frames_done = index + 1;
    }
    rank->report.frames_done = index + 1;
    return ITH_OK;
}

ith_status ith_frames_take(void *user, int64_t index, const float *rows, int64_t count, int64_t width)
{
    const ith_frames *frames = user;
    ith_rank *rank = frames->rank;
    ith_observer_ask(rank->context);
    ith_status status = ith_context_check(rank->context);
    if (status)
        return status;
    if (!quantise(frames->rgb, rows, count * width * 3))
        return ith_fail(
            rank->context, ITH_ERR_FORMAT,
            "frame %lld is no picture: the decoder has made numbers that are not finite from finite latents, "
            "so weights of the autoencoder are damaged, or the latents are far too large",
            (long long)index + 1);
    status = gather(frames);
    double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    if (!status && !rank->rank)
        status = finish(frames, index);
    ith_trace_end(rank->context, traced, "write frame", "write");
    rank->report.decode_sink_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    ith_frames_set_activity(rank, index + 1);
    ith_observer_show(rank->context, ITH_STAGE_DECODE, (index + 1) * ITH_PROGRESS_UNIT,
                      rank->options.frames * ITH_PROGRESS_UNIT);
    return ITH_OK;
}
