/* SPDX-License-Identifier: Apache-2.0 */
/* Files of models under other names, and their videos (model_parts.h). */
#include "model_parts.h"

#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

const char *in_folder(const char *name)
{
    return temporary_path(folder, name);
}

void make_folder(const char *name)
{
    temporary_require(mkdir(in_folder(name), 0700) == 0, name);
}

void copy_file(const char *from, const char *to)
{
    size_t bytes = 0;
    char *data = temporary_read(from, &bytes);
    temporary_write(in_folder(to), data, bytes);
    free(data);
}

void make_part_of(const char *model, const char *part, const char *to, const char *name, rename_fn *rename,
                  const char *prefix, ith_dtype type, int parts)
{
    char source[256], file[512];
    package *p = calloc(1, sizeof *p);
    snprintf(source, sizeof source, "%s/%s", model, part);
    package_add(p, source, rename, prefix, type);
    make_folder(to);
    for (int i = 0; i < parts; i++) {
        if (parts > 1)
            snprintf(file, sizeof file, "%s/%s-%05d-of-%05d.safetensors", to, name, i + 1, parts);
        else
            snprintf(file, sizeof file, "%s/%s.safetensors", to, name);
        package_write(p, in_folder(file), i, parts);
    }
    package_free(p);
    if (strcmp(part, "text_encoder") != 0) {
        snprintf(source, sizeof source, "%s/%s/config.json", model, part);
        snprintf(file, sizeof file, "%s/config.json", to);
        copy_file(source, file);
    }
}

void make_part(const char *part, const char *to, const char *name, rename_fn *rename, const char *prefix,
               ith_dtype type, int parts)
{
    make_part_of(MODEL, part, to, name, rename, prefix, type, parts);
}

void make_original(const char *dit_prefix, ith_dtype type, int parts)
{
    make_part("transformer", "high_noise_model", "x", name_original_dit, dit_prefix, type, parts);
    make_part("transformer_2", "low_noise_model", "x", name_original_dit, dit_prefix, type, parts);
    make_part("vae", "vae", "wan_vae", name_original_vae, "", type, parts);
    make_part("text_encoder", "text", "umt5", name_original_text, "", type, parts);
    copy_file(MODEL "/tokenizer/spiece.model", "text/spiece.model");
}

static ith_status keep_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    assert_true(index == 0 && height == SIDE && width == SIDE);
    memcpy(((frame *)user)->rgb, rgb, sizeof(frame));
    return ITH_OK;
}

frame video_with(const ith_model_files *files, double boundary, const ith_image *image)
{
    ith_pipeline *pipeline = NULL;
    frame out = {{0}};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A red circle moves to the right.";
    options.negative = "blur";
    options.frames = 1, options.height = options.width = SIDE, options.steps = 2, options.shift = 1;
    options.boundary = boundary, options.image = image;
    options.precision = ITH_PRECISION_F32, options.threads = 1;
    options.on_frame = keep_frame, options.user = &out;
    check(context, ith_pipeline_open_files(context, files, &pipeline));
    check(context, ith_pipeline_check(pipeline));
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    ith_pipeline_close(&pipeline);
    assert_int_equal(memory_of(context).current_bytes, 0);
    return out;
}

frame video_of(const ith_model_files *files)
{
    return video_with(files, 0.6, NULL);
}

frame video_of_folder(const char *path)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = path;
    return video_of(&files);
}

void assert_same(const frame *a, const frame *b)
{
    int lit = 0;
    for (size_t i = 0; i < sizeof a->rgb; i++)
        lit += a->rgb[i] != a->rgb[0];
    assert_true(lit > 0);
    assert_memory_equal(a, b, sizeof *a);
}

void assert_files_refused(ith_model_files files, ith_status wanted, const char *words)
{
    ith_pipeline *pipeline = NULL;
    ith_status status = ith_pipeline_open_files(context, &files, &pipeline);
    if (!status)
        status = ith_pipeline_check(pipeline);
    if (status != wanted || !strstr(ith_context_error(context), words))
        fail_msg("wanted %s with '%s', got %s: %s", ith_status_name(wanted), words, ith_status_name(status),
                 status ? ith_context_error(context) : "");
    ith_pipeline_close(&pipeline);
    assert_int_equal(memory_of(context).current_bytes, 0);
}
