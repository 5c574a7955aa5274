/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files that another process cuts, overwrites, replaces or removes while a run reads them: the run ends with a
 * sentence that names the file, on every rank, and the next run of the same pipeline works. */
#include "support/engine/altered_model.h"
#include "support/engine/engine_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void (*change_fn)(const char *part);

/* Replaces the link to a file of the checkpoint in the tree by a copy of this file. */
static void copy_part(const char *part)
{
    size_t bytes = 0;
    char *whole = temporary_read(temporary_path(folder, part), &bytes);
    replace_part(part, whole, bytes);
    free(whole);
}

/* Cuts the file off after its header. */
static void cut(const char *part)
{
    uint64_t header = 0;
    FILE *file = fopen(temporary_path(folder, part), "rb");
    temporary_require(file && fread(&header, sizeof header, 1, file) == 1 && fclose(file) == 0, part);
    temporary_require(truncate(temporary_path(folder, part), (off_t)header + 8) == 0, part);
}

static void overwrite(const char *part)
{
    struct stat info;
    int file = open(temporary_path(folder, part), O_RDWR);
    temporary_require(file >= 0 && fstat(file, &info) == 0, part);
    temporary_require(pwrite(file, "x", 1, info.st_size / 2) == 1 && close(file) == 0, part);
}

/* Puts another file with the same content in the place of the file. */
static void replace(const char *part)
{
    size_t bytes = 0;
    char *whole = temporary_read(temporary_path(folder, part), &bytes);
    temporary_write(temporary_path(folder, "other"), whole, bytes);
    free(whole);
    temporary_require(rename(temporary_path(folder, "other"), temporary_path(folder, part)) == 0, part);
}

static void take_away(const char *part)
{
    temporary_require(unlink(temporary_path(folder, part)) == 0, part);
}

/* ---- Runs ------------------------------------------------------------------------------------------------------ */

/* When a part is changed, and how. */
typedef struct scene {
    const char *part;
    change_fn change;
    ith_stage stage;
    double from; /* the change comes with the first progress of the stage beyond this number of units */
    bool done;
} scene;

static void change_in_time(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)total;
    scene *s = user;
    if (s->done || stage != s->stage || (double)done <= s->from * ITH_PROGRESS_UNIT)
        return;
    s->done = true;
    s->change(s->part);
}

/* Two steps with each expert, then two latent frames. */
static ith_status run(ith_pipeline *pipeline, int ranks, scene *s)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle", options.frames = 5, options.height = options.width = 16;
    options.steps = 4, options.shift = 1, options.boundary = 0.6;
    options.guidance[0] = options.guidance[1] = 1;
    options.threads = 1, options.precision = ITH_PRECISION_F32;
    options.on_progress = s ? change_in_time : NULL, options.user = s;
    return engine_generate(context, pipeline, ranks, &options, NULL);
}

static void expect_named(const scene *wanted, const char *words, int ranks)
{
    ith_pipeline *pipeline = NULL;
    scene s = *wanted;
    copy_part(s.part);
    check(context, ith_pipeline_open(context, folder, &pipeline));
    usleep(20000); /* the clock of the file system may tick only 100 times a second */
    assert_int_equal(run(pipeline, ranks, &s), ITH_ERR_IO);
    assert_true(s.done);
    if (!strstr(ith_context_error(context), s.part) || !strstr(ith_context_error(context), words))
        fail_msg("%s and '%s' are not in: %s", s.part, words, ith_context_error(context));
    link_part(s.part);
    if (ranks == 1)
        check(context, run(pipeline, ranks, NULL));
    ith_pipeline_close(&pipeline);
}

/* A pass reads the file when it is cut, so the failure comes from the middle of the pass. */
static void a_file_cut_within_a_pass_is_named(void **state)
{
    (void)state;
    static const scene scenes[] = {{TEXT, cut, ITH_STAGE_TEXT, 0, false},
                                   {"transformer/" SHARD_1, cut, ITH_STAGE_DENOISE, 0, false},
                                   {"transformer_2/" SHARD_2, cut, ITH_STAGE_DENOISE, 3, false},
                                   {VAE, cut, ITH_STAGE_DECODE, 0, false}};
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        for (int ranks = 1; ranks < 4; ranks += 2)
            expect_named(&scenes[i], "was cut while it was in use", ranks);
}

/* The change is found before the next step, or before the file is opened again. */
static void a_file_that_changes_between_passes_is_named(void **state)
{
    (void)state;
    static const struct {
        change_fn change;
        const char *words;
    } changes[] = {{cut, "changed while it was in use"},
                   {overwrite, "changed while it was in use"},
                   {replace, "changed while it was in use"},
                   {take_away, "is no longer there"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const scene later = {"transformer_2/" SHARD_1, changes[i].change, ITH_STAGE_TEXT, 0, false};
        const scene last = {VAE, changes[i].change, ITH_STAGE_DENOISE, 3.99, false};
        expect_named(&later, changes[i].words, 1);
        expect_named(&last, changes[i].words, 2);
        if (changes[i].change != cut) { /* the current pass can still end; the next pass does not begin */
            const scene now = {"transformer/" SHARD_2, changes[i].change, ITH_STAGE_DENOISE, 0, false};
            expect_named(&now, changes[i].words, 2);
        }
    }
}

/* A saved run does not go on with other files of the model. */
static void a_saved_run_of_another_model_is_refused(void **state)
{
    (void)state;
    const char *path = "saved.safetensors";
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle", options.frames = 1, options.height = options.width = 16, options.steps = 2;
    options.checkpoint_file = path = temporary_path(folder, path);
    check(context, ith_pipeline_open(context, folder, &pipeline));
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    ith_pipeline_close(&pipeline);
    edit_part("scheduler/scheduler_config.json", "\"num_train_timesteps\": 1000", "\"num_train_timesteps\": 1001");
    options.checkpoint_file = NULL, options.resume_file = path;
    check(context, ith_pipeline_open(context, folder, &pipeline));
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "began with other files of the model"));
    ith_pipeline_close(&pipeline);
}

static ino_t unread; /* a file that cannot be read; 0: all can */

ssize_t __real_read(int file, void *data, size_t bytes);
ssize_t __wrap_read(int file, void *data, size_t bytes);
ssize_t __wrap_read(int file, void *data, size_t bytes)
{
    struct stat info;
    if (!unread || fstat(file, &info) || info.st_ino != unread)
        return __real_read(file, data, bytes);
    errno = EIO;
    return -1;
}

/* A saved run holds a hash of the model's files. A disk that fails while they are read ends the run. */
static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    static const char name[] = "scheduler/scheduler_config.json";
    struct stat info;
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle", options.frames = 1, options.height = options.width = 16, options.steps = 2;
    options.checkpoint_file = temporary_path(folder, "saved.safetensors");
    check(context, ith_pipeline_open(context, folder, &pipeline));
    assert_int_equal(stat(temporary_path(folder, name), &info), 0);
    unread = info.st_ino;
    const ith_status status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
    unread = 0;
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), name));
    assert_non_null(strstr(ith_context_error(context), strerror(EIO)));
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    ith_pipeline_close(&pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_cut_within_a_pass_is_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_changes_between_passes_is_named, altered_model_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_saved_run_of_another_model_is_refused, altered_model_set_up,
                                        folder_tear_down),
    };
    return cmocka_run_group_tests_name("changed_model", tests, NULL, NULL);
}
