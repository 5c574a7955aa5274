/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the files that a run reads and writes. */
#ifndef ITH_CLI_GENERATE_FILES_H
#define ITH_CLI_GENERATE_FILES_H

#include "generate.h"

/* Checks that no output is another output, a file that the run reads, a file of the model's folder, or a frame of the
 * folder that --output names. Prints errors and returns an exit status. */
int ith_generate_check_distinct(const ith_generation *g);

/* Chooses the name for the latents: OUTPUT.latents.safetensors. A run that removes its latents at the end uses
 * OUTPUT.latents-2.safetensors, and so on, if an earlier run has kept its latents under that name. Then checks the
 * names of all files. Prints errors and returns an exit status. */
int ith_generate_name_latents(ith_generation *g);
/* To be called on rank 0 when the run begins: locks the first of these names that is free and that no other run has
 * locked, and returns it. ith_name_lock_release(&g->latents_lock) unlocks it. NULL if no latents are saved. */
const char *ith_generate_take_latents(ith_generation *g);

#endif
