/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the readers of src/wan: each reads a file of any content. It returns the status of opening the file and of
 * reading all that the file promises. The program ends if a failure has no sentence that names the file. */
#ifndef ITH_TESTS_PROBE_MODELS_H
#define ITH_TESTS_PROBE_MODELS_H

#include <ithaca/ithaca.h>

/* Reads a tokenizer: a tokenizer.json, which begins with '{', a GGUF file, or a spiece.model. Encodes a text with
 * it. */
ith_status probe_tokenizer(ith_context *ctx, const char *path);

/* Reads a LoRA for a transformer whose layers have 4 x 4 matrices, biases of 4 numbers and tables of 24. */
ith_status probe_lora(ith_context *ctx, const char *path);

/* Reads a saved run with latents of [2, 1, 2, 2] numbers. The text of PROBE_VERSION in its header stands for the
 * library's version. */
ith_status probe_saved_run(ith_context *ctx, const char *path);

#define PROBE_VERSION "\"@@@@@@@@@@@@@@@@\""

#endif
