/* SPDX-License-Identifier: Apache-2.0 */
/* GIF (89a). Each frame has its own palette of 256 colours, chosen by libavfilter's palettegen, and ordered dithering,
 * whose pattern stays in place from frame to frame. Frames are written at once, so memory does not grow with their
 * number. The time base of a GIF is 1/100 s. */
#include "stream.h"

#include <libavfilter/avfilter.h>
#include <libavfilter/buffersink.h>
#include <libavfilter/buffersrc.h>
#include <stdio.h>

/* The graph of libavfilter: palettegen makes a palette from each frame, and paletteuse reduces the frame to it. */
#define PALETTE                                                                                                        \
    "split[a][b];[a]palettegen=stats_mode=single:reserve_transparent=0[p];[b][p]paletteuse=new=1:dither=bayer:"        \
    "bayer_scale=4"

/* The state of a GIF writer (ith_video_writer.state). */
typedef struct gif {
    ith_stream stream;
    AVFilterGraph *graph;
    AVFilterContext *source, *sink;
    AVFrame *rgb, *indexed; /* a frame in RGB; the frame reduced to its palette */
} gif;

/* Connects the filters: source -> PALETTE -> sink. Returns an error of libav or 0. */
static int link_graph(gif *state)
{
    AVFilterInOut *inputs = NULL, *outputs = NULL;
    int error = avfilter_graph_parse2(state->graph, PALETTE, &inputs, &outputs);
    if (error >= 0)
        error = avfilter_link(state->source, 0, inputs->filter_ctx, (unsigned)inputs->pad_idx);
    if (error >= 0)
        error = avfilter_link(outputs->filter_ctx, (unsigned)outputs->pad_idx, state->sink, 0);
    if (error >= 0)
        error = avfilter_graph_config(state->graph, NULL);
    avfilter_inout_free(&inputs);
    avfilter_inout_free(&outputs);
    return error;
}

/* Makes the graph of filters for the size and rate of the video. Returns an error of libav or 0. */
static int open_graph(const ith_video_writer *writer, gif *state)
{
    char frames[160];
    AVRational base = state->stream.encoder->time_base;
    snprintf(frames, sizeof frames, "video_size=%dx%d:pix_fmt=rgb24:time_base=%d/%d:pixel_aspect=1/1",
             (int)writer->options.width, (int)writer->options.height, base.num, base.den);
    state->graph = avfilter_graph_alloc();
    if (!state->graph)
        return AVERROR(ENOMEM);
    state->graph->nb_threads = 1;
    int error = avfilter_graph_create_filter(&state->source, avfilter_get_by_name("buffer"), "source", frames, NULL,
                                             state->graph);
    if (error >= 0)
        error = avfilter_graph_create_filter(&state->sink, avfilter_get_by_name("buffersink"), "sink", NULL, NULL,
                                             state->graph);
    return error < 0 ? error : link_graph(state);
}

/* Opens the GIF encoder. Returns an error of libav or 0. */
static int open_encoder(const ith_video_writer *writer, gif *state)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_GIF);
    if (!codec)
        return AVERROR_ENCODER_NOT_FOUND;
    state->stream.encoder = ith_stream_encoder(writer, codec);
    if (!state->stream.encoder)
        return AVERROR(ENOMEM);
    state->stream.encoder->pix_fmt = AV_PIX_FMT_PAL8;
    return avcodec_open2(state->stream.encoder, codec, NULL);
}

/* Allocates state->rgb and state->indexed. Returns an error of libav or 0. */
static int open_frames(const ith_video_writer *writer, gif *state)
{
    state->rgb = ith_stream_frame(writer, AV_PIX_FMT_RGB24);
    state->indexed = av_frame_alloc();
    return state->rgb && state->indexed ? 0 : AVERROR(ENOMEM);
}

/* Implements ith_video_format.open: opens the filters, the encoder and the file. */
static ith_status gif_open(ith_video_writer *writer)
{
    if (writer->options.fps > 100)
        return ith_fail(writer->context, ITH_ERR_ARGUMENT, "'%s': a GIF has at most 100 frames a second, not %g",
                        writer->output.path, writer->options.fps);
    gif *state = writer->state = ith_alloc_zero(writer->context, 1, sizeof *state, "gif writer");
    if (!state)
        return ITH_ERR_MEMORY;
    int error = open_encoder(writer, state);
    if (error >= 0)
        error = open_graph(writer, state);
    if (error >= 0)
        error = open_frames(writer, state);
    if (error < 0)
        return ith_video_fail(writer, error, "the palette filter or the encoder cannot be opened");
    return ith_stream_begin(writer, &state->stream, "gif", NULL);
}

/* Encodes all frames that the filters have finished. */
static ith_status drain(ith_video_writer *writer, gif *state)
{
    for (;;) {
        int error = av_buffersink_get_frame(state->sink, state->indexed);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return ITH_OK;
        if (error < 0)
            return ith_video_fail(writer, error, "a palette cannot be made");
        ith_status status = ith_stream_encode(writer, &state->stream, state->indexed);
        av_frame_unref(state->indexed);
        if (status)
            return status;
    }
}

/* Implements ith_video_format.add: sends a frame through the filters and encodes the result. */
static ith_status gif_add(ith_video_writer *writer, const uint8_t *rgb)
{
    gif *state = writer->state;
    int error = ith_stream_fill(writer, state->rgb, rgb);
    if (error >= 0)
        error = av_buffersrc_add_frame_flags(state->source, state->rgb, AV_BUFFERSRC_FLAG_KEEP_REF);
    return error < 0 ? ith_video_fail(writer, error, "a palette cannot be made") : drain(writer, state);
}

/* Implements ith_video_format.end: encodes the frames that are still in the filters, and ends the file. */
static ith_status gif_end(ith_video_writer *writer)
{
    gif *state = writer->state;
    int error = av_buffersrc_add_frame_flags(state->source, NULL, 0);
    ith_status status = error < 0 ? ith_video_fail(writer, error, "the last frame") : drain(writer, state);
    return status ? status : ith_stream_end(writer, &state->stream);
}

static void gif_close(ith_video_writer *writer)
{
    gif *state = writer->state;
    if (!state)
        return;
    avfilter_graph_free(&state->graph);
    if (state->stream.begun) /* FFmpeg 5 frees the picture that its GIF writer holds back only at the end of the file */
        av_write_trailer(state->stream.muxer);
    ith_stream_free(&state->stream);
    av_frame_free(&state->rgb);
    av_frame_free(&state->indexed);
    ith_free(writer->context, state);
}

const ith_video_format ith_video_gif = {.open = gif_open, .add = gif_add, .end = gif_end, .close = gif_close};
