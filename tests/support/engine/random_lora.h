/* SPDX-License-Identifier: Apache-2.0 */
/* A LoRA file of random numbers for the transformers of the demo's model. */
#ifndef ITH_TESTS_RANDOM_LORA_H
#define ITH_TESTS_RANDOM_LORA_H

#include <ithaca/files.h>

#include <stdint.h>

/* Writes a LoRA of rank 7 of all matrices of the transformer's blocks, with the keys of PEFT. Advances *seed. */
void random_lora_write(ith_context *ctx, uint64_t *seed, const char *path);

#endif
