/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/altered_model.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const char *const parts[] = {
    "model_index.json",
    "scheduler/scheduler_config.json",
    "tokenizer/spiece.model",
    "tokenizer/tokenizer_config.json",
    "tokenizer/special_tokens_map.json",
    "text_encoder/config.json",
    TEXT,
    "transformer/config.json",
    "transformer/" SHARD_1,
    "transformer/" SHARD_2,
    "transformer/" INDEX,
    "transformer_2/config.json",
    "transformer_2/" SHARD_1,
    "transformer_2/" SHARD_2,
    "transformer_2/" INDEX,
    "vae/config.json",
    VAE,
};
const size_t part_count = sizeof parts / sizeof parts[0];

void link_part(const char *part)
{
    char target[PATH_MAX], source[512];
    snprintf(source, sizeof source, MODEL "/%s", part);
    temporary_require(realpath(source, target) != NULL, source);
    unlink(temporary_path(folder, part));
    temporary_require(symlink(target, temporary_path(folder, part)) == 0, part);
}

int altered_model_set_up(void **state)
{
    static const char *const folders[] = {"scheduler",   "tokenizer",     "text_encoder",
                                          "transformer", "transformer_2", "vae"};
    int failed = folder_set_up(state);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        temporary_require(mkdir(temporary_path(folder, folders[i]), 0700) == 0, folders[i]);
    for (size_t i = 0; i < part_count; i++)
        link_part(parts[i]);
    return failed;
}

void replace_part(const char *part, const void *data, size_t bytes)
{
    const char *path = temporary_path(folder, part);
    unlink(path);
    temporary_write(path, data, bytes);
}

void edit_part(const char *part, const char *from, const char *to)
{
    size_t bytes = 0;
    char *old = temporary_read(temporary_path(folder, part), &bytes);
    char *at = memmem(old, bytes, from, strlen(from));
    if (!at)
        fail_msg("%s does not hold %s", part, from);
    size_t before = (size_t)(at - old), length = strlen(to), after = bytes - before - strlen(from);
    char *new = malloc(before + length + after);
    memcpy(new, old, before);
    memcpy(new + before, to, length);
    memcpy(new + before + length, at + strlen(from), after);
    const char *suffix = strrchr(part, '.');
    if (!strcmp(suffix, ".safetensors")) {
        uint64_t header = 0;
        memcpy(&header, new, sizeof header);
        header = header + length - strlen(from);
        memcpy(new, &header, sizeof header);
    }
    replace_part(part, new, before + length + after);
    free(new);
    free(old);
}

static ith_status count_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)index, (void)rgb, (void)height, (void)width;
    ++*(int *)user;
    return ITH_OK;
}

ith_status generate(ith_pipeline *pipeline, int *frames)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle";
    options.frames = 1, options.height = options.width = 16, options.steps = 2;
    options.shift = 1, options.boundary = 0.6;
    options.guidance[0] = options.guidance[1] = 1;
    options.precision = ITH_PRECISION_F32;
    options.threads = 1;
    options.on_frame = count_frame;
    options.user = frames;
    return ith_pipeline_generate(pipeline, NULL, &options, NULL);
}

ith_status attempt(void)
{
    ith_pipeline *pipeline = NULL;
    int frames = 0;
    ith_status status = ith_pipeline_open(context, folder, &pipeline);
    assert_true(!status == (pipeline != NULL));
    if (!status)
        status = ith_pipeline_check(pipeline);
    if (!status && generate(pipeline, &frames))
        fail_msg("found only when generation had started: %s", ith_context_error(context));
    assert_int_equal(frames, status ? 0 : 1);
    ith_pipeline_close(&pipeline);
    assert_int_equal(memory_of(context).current_bytes, 0);
    return status;
}

void assert_refused(int wanted, const char *file, const char *word)
{
    int status = attempt();
    const char *sentence = ith_context_error(context);
    bool right =
        wanted == FORMAT_OR_UNSUPPORTED ? status == ITH_ERR_FORMAT || status == ITH_ERR_UNSUPPORTED : status == wanted;
    if (!right || !strstr(sentence, file) || !strstr(sentence, word))
        fail_msg("%s: '%s' should be refused, got %s: %s", file, word, ith_status_name((ith_status)status), sentence);
    for (const char *p = sentence; *p; p++)
        assert_true((unsigned char)*p >= ' ');
}

void refuse_edits(const edit *edits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        edit_part(edits[i].part, edits[i].from, edits[i].to);
        assert_refused(edits[i].status, edits[i].file, edits[i].word);
        link_part(edits[i].part);
    }
}
