/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds decoded frames to 8 bits, and passes them to the caller (frames.h). */
#include "frames.h"

#include "../base/clock.h"
#include "../base/context.h"
#include "../base/trace.h"

#include <math.h>
#include <string.h>

/* Maps each number of a frame from [-1, 1] to [0, 255], and rounds it to the nearest integer, ties to even, as
 * torch.round does. */
static void quantise(uint8_t *rgb, const float *frame, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        rgb[i] = (uint8_t)rintf(fminf(fmaxf(frame[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f);
}

/* Calls on_frame. If on_frame fails and leaves no error message in the context, leaves one. */
static ith_status hand_over(const ith_rank *rank, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    ith_context *context = rank->context;
    if (!rank->options.on_frame)
        return ITH_OK;
    ith_fail(context, ITH_OK, "%s", ""); /* clears the error message, to see afterwards whether on_frame has left one */
    int status = rank->options.on_frame(rank->options.user, index, rgb, height, width);
    if (status > ITH_OK || status < ITH_ERR_INTERNAL)
        return ith_fail(context, ITH_ERR_ABORTED,
                        "on_frame returned %d for frame %lld, which is no ith_status: it counts as a failure", status,
                        (long long)index);
    if (status && !ith_context_error(context)[0])
        return ith_fail(context, (ith_status)status, "on_frame returned %s for frame %lld",
                        ith_status_name((ith_status)status), (long long)index);
    return (ith_status)status;
}

void ith_frames_set_activity(const ith_rank *rank)
{
    if (rank->report.frames_done < rank->options.frames)
        ith_observer_set_activity(rank->context, "decoding frame %lld of %lld", (long long)rank->report.frames_done + 1,
                                  (long long)rank->options.frames);
}

ith_status ith_frames_take(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    const ith_frames *frames = user;
    ith_rank *rank = frames->rank;
    int64_t count = height * width * 3, total = rank->options.frames;
    ith_status status = ith_observer_ask(rank->context);
    if (status)
        return status;
    double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    quantise(frames->rgb, frame, count);
    status = hand_over(rank, index, frames->rgb, height, width);
    ith_trace_end(rank->context, traced, "write frame", "write");
    rank->report.decode_sink_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    if (rank->dump) {
        memcpy(rank->dump->frames + index * count, frames->rgb, (size_t)count);
        rank->dump->frames_done = index + 1;
    }
    rank->report.frames_done = index + 1;
    ith_frames_set_activity(rank);
    ith_observer_show(rank->context, ITH_STAGE_DECODE, (index + 1) * ITH_PROGRESS_UNIT, total * ITH_PROGRESS_UNIT);
    return ITH_OK;
}
