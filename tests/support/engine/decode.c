/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/decode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool decode_frames(decoded *video, const AVPacket *packet)
{
    if (avcodec_send_packet(video->decoder, packet) < 0)
        return false;
    while (video->count < DECODE_MAX_FRAMES) {
        AVFrame *frame = av_frame_alloc();
        int error = avcodec_receive_frame(video->decoder, frame);
        if (error < 0) {
            av_frame_free(&frame);
            return error == AVERROR(EAGAIN) || error == AVERROR_EOF;
        }
        video->frames[video->count++] = frame;
    }
    return false;
}

bool decode_open(decoded *video, const char *path)
{
    *video = (decoded){0};
    if (avformat_open_input(&video->file, path, NULL, NULL) < 0 || avformat_find_stream_info(video->file, NULL) < 0 ||
        video->file->nb_streams != 1)
        return false;
    const AVCodecParameters *parameters = video->file->streams[0]->codecpar;
    video->decoder = avcodec_alloc_context3(NULL);
    if (avcodec_parameters_to_context(video->decoder, parameters) < 0 ||
        avcodec_open2(video->decoder, avcodec_find_decoder(parameters->codec_id), NULL) < 0)
        return false;
    AVPacket *packet = av_packet_alloc();
    bool good = true;
    while (good && av_read_frame(video->file, packet) >= 0) {
        good = decode_frames(video, packet);
        av_packet_unref(packet);
    }
    av_packet_free(&packet);
    return good && decode_frames(video, NULL);
}

void decode_close(decoded *video)
{
    for (int i = 0; i < video->count; i++)
        av_frame_free(&video->frames[i]);
    avcodec_free_context(&video->decoder);
    avformat_close_input(&video->file);
}
