/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of the readers of src/wan on files of any content. Each returns the status of opening and of reading all that
 * the file promises. A failure has a sentence that names the file; the program ends if it has not. */
#ifndef ITH_TESTS_PROBE_MODELS_H
#define ITH_TESTS_PROBE_MODELS_H

#include <ithaca/ithaca.h>

/* A tokenizer: a tokenizer.json, which begins with '{', a GGUF file, or a spiece.model. It encodes a text. */
ith_status probe_tokenizer(ith_context *ctx, const char *path);

/* A LoRA for a transformer whose layers have 4 x 4 matrices, biases of 4 numbers and tables of 24. */
ith_status probe_lora(ith_context *ctx, const char *path);

/* A saved run with latents of [2, 1, 2, 2] numbers. PROBE_VERSION in its first bytes stands for the library's version.
 */
ith_status probe_saved_run(ith_context *ctx, const char *path);

#define PROBE_VERSION "\"@@@@@@@@@@@@@@@@\""

#endif
