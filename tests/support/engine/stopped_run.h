/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of the engine that are stopped in a denoising step, and go on from the file of the saved run. */
#ifndef ITH_TESTS_STOPPED_RUN_H
#define ITH_TESTS_STOPPED_RUN_H

#include <ithaca/wan.h>

typedef struct stopped_run {
    ith_pipeline *pipeline;
    char saved[320], latents[320]; /* files: the saved run; the final latents of a run that comes to its end */
} stopped_run;

/* The context of all functions is the fixture's, and the pipeline is of its family. */
void stopped_run_begin(stopped_run *r, ith_pipeline *pipeline, const char *folder);

/* The number of steps that the file of a saved run has done. */
int64_t stopped_run_step(const stopped_run *r);
/* Runs the engine to the end, and returns the final latents, to be freed with free(). */
float *stopped_run_whole(stopped_run *r, int ranks, const ith_generate_options *options, int64_t *count);
/* Runs the engine, saves the run after every `every` steps, and stops it inside step `step`, counted from 0. The run is
 * saved once more when it ends. With options->resume_file it begins with a saved run. */
void stopped_run_stop(stopped_run *r, int ranks, const ith_generate_options *options, int64_t step, int64_t every);
/* Options that leave everything to the saved run, except for its images. */
ith_generate_options stopped_run_options(const stopped_run *r);
/* Resumes the saved run after step `from`, runs to the end, and returns the final latents, to be freed with free(). */
float *stopped_run_resume(stopped_run *r, int ranks, const ith_generate_options *options, int64_t from);

/* Stops a run of one rank inside each of its options->steps steps, saves it after every `every` steps or fewer, and
 * resumes it with `again`. The result must have the bits of a run in one piece. */
void stopped_run_check_steps(stopped_run *r, const ith_generate_options *options, const ith_generate_options *again,
                             int64_t every);

/* A run that is saved on `before` ranks and resumed on `after` ranks, and the cfg of both. */
typedef struct rank_change {
    int before, after;
    ith_strategy strategy;
    ith_cfg cfg[2];
} rank_change;
/* Stops runs after two steps and resumes them with `again` on other numbers of ranks. With ulysses the results must
 * have the bits of a run of one rank in one piece, otherwise they must agree to 1e-4. */
void stopped_run_check_ranks(stopped_run *r, const ith_generate_options *options, const ith_generate_options *again,
                             const rank_change *changes, int count);

#endif
