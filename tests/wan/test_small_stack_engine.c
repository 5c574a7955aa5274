/* SPDX-License-Identifier: Apache-2.0 */
/* A thread whose stack is three quarters of the size that ithaca.h asks for makes videos, with a LoRA that is merged
 * into the weights, and saves and resumes a run. An overflow ends this program. CMake gives OpenMP's threads the same
 * stack. */
#include "support/engine/random_lora.h"
#include "support/folder_fixture.h"
#include "support/small_stack.h"

#include <ithaca/wan.h>

#define MODEL_FOLDER "../models/shapes"

enum { STACK_BYTES = 384 << 10 };

static const char *lora_path, *saved_path;

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)index, (void)rgb, (void)height, (void)width;
    ++*(int *)user;
    return ITH_OK;
}

static ith_status run(const ith_lora_file *lora, int threads, const char *resume)
{
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    int frames = 0;
    files.folder = MODEL_FOLDER, files.loras = lora, files.lora_count = lora != NULL;
    options.prompt = "A green square moves upwards on a black background.";
    options.frames = 5, options.height = 48, options.width = 64, options.steps = 2, options.threads = threads;
    options.precision = lora ? ITH_PRECISION_BF16 : ITH_PRECISION_F32; /* bf16 merges it into the weights */
    options.on_frame = take_frame, options.user = &frames;
    options.checkpoint_file = saved_path, options.resume_file = resume;
    ith_status status = ith_pipeline_open_files(context, &files, &pipeline);
    if (!status)
        status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
    ith_pipeline_close(&pipeline);
    return status || frames == 5 ? status : ITH_ERR_INTERNAL;
}

static void *work(void *user)
{
    ith_status *status = user;
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    lora.file = lora_path, lora.strength = 0.02;
    for (int threads = 1; threads <= 2 && !*status; threads++) {
        *status = run(NULL, threads, NULL);
        if (!*status)
            *status = run(NULL, threads, saved_path);
        if (!*status)
            *status = run(&lora, threads, NULL);
    }
    return NULL;
}

static void a_small_stack_will_do(void **state)
{
    (void)state;
    uint64_t seed = 5;
    ith_status status = ITH_OK;
    if (!stack_is_usual())
        skip();
    lora_path = temporary_path(folder, "style.safetensors"), saved_path = temporary_path(folder, "saved.safetensors");
    random_lora_write(context, &seed, lora_path);
    run_on_stack(STACK_BYTES, work, &status);
    check(context, status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_stack_will_do)};
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
