/* SPDX-License-Identifier: Apache-2.0 */
/* Implements media.h: chooses the format by the name of the output, and creates, uses and frees writers. */
#include "format.h"

#include <libavutil/error.h>
#include <libavutil/imgutils.h>
#include <libavutil/log.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The maximal width and height in pixels, which all formats support. */
#define MOST_SIDE 16384

ith_status ith_video_fail(ith_video_writer *writer, int av_error, const char *what)
{
    char reason[AV_ERROR_MAX_STRING_SIZE];
    av_make_error_string(reason, sizeof reason, av_error);
    ith_status status = ITH_ERR_IO;
    if (av_error == AVERROR(ENOMEM))
        status = ITH_ERR_MEMORY;
    else if (-av_error > 4096) /* an error number of libav, not one of the system */
        status = ITH_ERR_INTERNAL;
    return ith_fail(writer->context, status, "'%s' cannot be written: %s: %s", writer->output.path, what, reason);
}

/* Returns the format for the name of an output; NULL if no format has that name. An existing folder is for PNGs. */
static const ith_video_format *find_format(const char *path)
{
    static const struct {
        const char *ending;
        const ith_video_format *format;
    } endings[] = {{".mp4", &ith_video_mp4}, {".gif", &ith_video_gif}, {".png", &ith_video_png}};
    const size_t length = strlen(path);
    if (ith_output_is_folder(path))
        return &ith_video_png_folder;
    if (length <= 4 || path[length - 5] == '/')
        return NULL;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(path + length - 4, endings[i].ending))
            return endings[i].format;
    return NULL;
}

/* Whether a path, such as "//" or a link, names the root folder. */
static bool is_root(const char *path)
{
    struct stat info, root;
    return !stat(path, &info) && !stat("/", &root) && info.st_dev == root.st_dev && info.st_ino == root.st_ino;
}

/* Finds the format of an output, and creates its partial file or folder. */
static ith_status reserve(ith_context *context, const char *path, const ith_video_format **format, ith_output *output)
{
    *format = path ? find_format(path) : NULL;
    if (!*format)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "output '%s' is of no known kind: its name must end in .mp4, .gif, .png (a video of one frame), "
            "or '/' (a folder of PNGs)",
            path ? path : "");
    if (*format == &ith_video_png_folder && is_root(path))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "output '%s' is the root folder, in which frames would lie among folders of the system: name "
                        "a folder in it, such as '/frames/'",
                        path);
    return ith_output_reserve(context, path, *format == &ith_video_png_folder, output);
}

/* Checks that the output can hold `frames` frames. */
static ith_status check_frames(ith_context *context, const char *path, const ith_video_format *format, int64_t frames)
{
    if (!format->holds_one_frame || frames <= 1)
        return ITH_OK;
    return ith_fail(
        context, ITH_ERR_ARGUMENT,
        "'%s' cannot be written: a .png holds one frame, and the video has more: make one frame, or end the "
        "name in .mp4, .gif or '/' (a folder of PNGs)",
        path);
}

static ith_status check_options(ith_context *context, const char *path, const ith_video_options *options)
{
    if (options->width < 1 || options->width > MOST_SIDE || options->height < 1 || options->height > MOST_SIDE)
        return ith_fail(context, ITH_ERR_ARGUMENT, "'%s': %lld x %lld pixels is not between 1 x 1 and %d x %d", path,
                        (long long)options->width, (long long)options->height, MOST_SIDE, MOST_SIDE);
    if (av_image_check_size((unsigned)options->width, (unsigned)options->height, 0, NULL) < 0)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "'%s' cannot be written: FFmpeg takes about 260 million pixels a frame at most, not %lld x %lld", path,
            (long long)options->width, (long long)options->height);
    if (!(options->fps >= 0.01 && options->fps <= 1000))
        return ith_fail(context, ITH_ERR_ARGUMENT, "'%s': %g frames a second is not between 0.01 and 1000", path,
                        options->fps);
    if (options->crf < 0 || options->crf > 51)
        return ith_fail(context, ITH_ERR_ARGUMENT, "'%s': quality (crf) %d is not between 0 and 51", path,
                        options->crf);
    return ITH_OK;
}

/* Copies the options and their texts into the writer. */
static ith_status copy_options(ith_video_writer *writer, const ith_video_options *options)
{
    writer->options = *options;
    if (options->title && !(writer->title = ith_strdup(writer->context, options->title)))
        return ITH_ERR_MEMORY;
    if (options->comment && !(writer->comment = ith_strdup(writer->context, options->comment)))
        return ITH_ERR_MEMORY;
    writer->options.title = writer->title;
    writer->options.comment = writer->comment;
    return ITH_OK;
}

ith_status ith_video_open(ith_context *context, const char *path, const ith_video_options *options,
                          ith_video_writer **out)
{
    *out = NULL;
    av_log_set_level(AV_LOG_QUIET); /* libav prints nothing; its errors go into the context */
    ith_video_writer *writer = ith_alloc_zero(context, 1, sizeof *writer, "video writer");
    if (!writer)
        return ITH_ERR_MEMORY;
    writer->context = context;
    ith_status status = reserve(context, path, &writer->format, &writer->output);
    if (!status)
        status = check_options(context, path, options);
    if (!status)
        status = check_frames(context, path, writer->format, options->frames);
    if (!status)
        status = copy_options(writer, options);
    if (!status)
        status = writer->format->open(writer);
    if (status)
        ith_video_discard(&writer);
    *out = writer;
    return status;
}

ith_status ith_video_add(ith_video_writer *writer, const uint8_t *rgb)
{
    ith_status status = check_frames(writer->context, writer->output.path, writer->format, writer->frames + 1);
    if (!status)
        status = writer->format->add(writer, rgb);
    if (!status)
        writer->frames++;
    return status;
}

ith_status ith_video_finish(ith_video_writer **writer)
{
    ith_video_writer *w = *writer;
    ith_status status = ITH_OK;
    if (w->frames == 0)
        status = ith_fail(w->context, ITH_ERR_ARGUMENT, "'%s' cannot be written: there is no frame", w->output.path);
    if (!status)
        status = w->format->end(w);
    if (!status)
        status = ith_output_commit(w->context, &w->output);
    ith_video_discard(writer);
    return status;
}

void ith_video_discard(ith_video_writer **writer)
{
    ith_video_writer *w = writer ? *writer : NULL;
    if (!w)
        return;
    ith_context *context = w->context;
    if (w->format)
        w->format->close(w);
    ith_output_release(context, &w->output);
    ith_free(context, w->title);
    ith_free(context, w->comment);
    ith_free(context, w);
    *writer = NULL;
}

ith_status ith_video_check(ith_context *context, const char *path, const ith_video_options *options)
{
    ith_video_writer *writer = NULL;
    ith_status status = ith_video_open(context, path, options, &writer);
    ith_video_discard(&writer);
    return status;
}

ith_status ith_video_check_path(ith_context *context, const char *path)
{
    const ith_video_format *format = NULL;
    ith_output output;
    ith_status status = reserve(context, path, &format, &output);
    if (!status)
        ith_output_release(context, &output);
    return status;
}
