/* SPDX-License-Identifier: Apache-2.0 */
/* Sends frames through one encoder into one file. libav buffers writes and reports an error late, so errors are checked
 * after each packet, after the trailer, and when the file is closed. */
#include "stream.h"

#include <libavutil/dict.h>
#include <libavutil/mathematics.h>
#include <string.h>

AVCodecContext *ith_stream_encoder(const ith_video_writer *writer, const AVCodec *codec)
{
    AVCodecContext *encoder = avcodec_alloc_context3(codec);
    if (!encoder)
        return NULL;
    encoder->width = (int)writer->options.width;
    encoder->height = (int)writer->options.height;
    encoder->framerate = av_d2q(writer->options.fps, 100000);
    encoder->time_base = av_inv_q(encoder->framerate);
    encoder->sample_aspect_ratio = (AVRational){1, 1};
    return encoder;
}

AVFrame *ith_stream_frame(const ith_video_writer *writer, enum AVPixelFormat format)
{
    AVFrame *frame = av_frame_alloc();
    if (!frame)
        return NULL;
    frame->format = format;
    frame->width = (int)writer->options.width;
    frame->height = (int)writer->options.height;
    if (av_frame_get_buffer(frame, 0) < 0)
        av_frame_free(&frame);
    return frame;
}

int ith_stream_fill(const ith_video_writer *writer, AVFrame *frame, const uint8_t *rgb)
{
    int error = av_frame_make_writable(frame);
    if (error < 0)
        return error;
    size_t row_bytes = 3 * (size_t)frame->width;
    for (int y = 0; y < frame->height; y++)
        memcpy(frame->data[0] + (ptrdiff_t)y * frame->linesize[0], rgb + (size_t)y * row_bytes, row_bytes);
    frame->pts = writer->frames;
    return 0;
}

/* Opens the partial file for the muxer. The prefix "file:" keeps libav from interpreting a part of the name as a
 * protocol. */
static ith_status open_file(ith_video_writer *writer, ith_stream *stream, const char *muxer)
{
    char *url = ith_format(writer->context, "file:%s", writer->output.partial);
    if (!url)
        return ITH_ERR_MEMORY;
    int error = avformat_alloc_output_context2(&stream->muxer, NULL, muxer, url);
    if (error >= 0)
        error = avio_open(&stream->muxer->pb, url, AVIO_FLAG_WRITE);
    ith_free(writer->context, url);
    return error < 0 ? ith_video_fail(writer, error, "the file cannot be opened") : ITH_OK;
}

/* Sets the title and the comment of the file. Returns an error of libav or 0. */
static int set_metadata(const ith_video_writer *writer, AVDictionary **metadata)
{
    int error = 0;
    if (writer->options.title)
        error = av_dict_set(metadata, "title", writer->options.title, 0);
    if (error >= 0 && writer->options.comment)
        error = av_dict_set(metadata, "comment", writer->options.comment, 0);
    return error;
}

ith_status ith_stream_begin(ith_video_writer *writer, ith_stream *stream, const char *muxer, AVDictionary **settings)
{
    stream->packet = av_packet_alloc();
    if (!stream->packet)
        return ith_video_fail(writer, AVERROR(ENOMEM), "a packet");
    ith_status status = open_file(writer, stream, muxer);
    if (status)
        return status;
    AVStream *track = avformat_new_stream(stream->muxer, NULL);
    int error = track ? 0 : AVERROR(ENOMEM);
    if (error >= 0)
        error = avcodec_parameters_from_context(track->codecpar, stream->encoder);
    if (error >= 0)
        error = set_metadata(writer, &stream->muxer->metadata);
    if (error < 0)
        return ith_video_fail(writer, error, "the stream cannot be described");
    track->time_base = stream->encoder->time_base;
    track->avg_frame_rate = stream->encoder->framerate;
    error = avformat_write_header(stream->muxer, settings);
    stream->begun = error >= 0;
    return error < 0 ? ith_video_fail(writer, error, "its head cannot be written") : ITH_OK;
}

/* Writes the encoder's packet to the file, with its time in the time base of the file. */
static ith_status write_packet(ith_video_writer *writer, ith_stream *stream)
{
    AVStream *track = stream->muxer->streams[0];
    if (stream->packet->duration == 0)
        stream->packet->duration = 1; /* one frame, in the encoder's time base */
    av_packet_rescale_ts(stream->packet, stream->encoder->time_base, track->time_base);
    int error = av_write_frame(stream->muxer, stream->packet);
    av_packet_unref(stream->packet);
    if (error >= 0)
        error = stream->muxer->pb->error;
    return error < 0 ? ith_video_fail(writer, error, "a frame cannot be written") : ITH_OK;
}

ith_status ith_stream_encode(ith_video_writer *writer, ith_stream *stream, const AVFrame *frame)
{
    int error = avcodec_send_frame(stream->encoder, frame);
    while (error >= 0) {
        error = avcodec_receive_packet(stream->encoder, stream->packet);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return ITH_OK;
        ith_status status = error < 0 ? ITH_OK : write_packet(writer, stream);
        if (!status && writer->options.should_stop && writer->options.should_stop())
            status = ith_fail(writer->context, ITH_ERR_INTERRUPTED, "'%s' was not finished: the run was stopped",
                              writer->output.path);
        if (status)
            return status;
    }
    return ith_video_fail(writer, error, "a frame cannot be encoded");
}

ith_status ith_stream_end(ith_video_writer *writer, ith_stream *stream)
{
    ith_status status = ith_stream_encode(writer, stream, NULL);
    if (status)
        return status;
    int error = av_write_trailer(stream->muxer);
    stream->begun = false;
    avio_flush(stream->muxer->pb);
    if (error >= 0)
        error = stream->muxer->pb->error;
    int closed = avio_closep(&stream->muxer->pb);
    if (error >= 0)
        error = closed;
    return error < 0 ? ith_video_fail(writer, error, "its end cannot be written") : ITH_OK;
}

void ith_stream_free(ith_stream *stream)
{
    if (stream->muxer)
        avio_closep(&stream->muxer->pb);
    avformat_free_context(stream->muxer);
    avcodec_free_context(&stream->encoder);
    av_packet_free(&stream->packet);
    stream->muxer = NULL;
}
