/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint in the layout of diffusers with random weights of 500 kB, for runs that are repeated thousands of
 * times. Transformers of one layer with four heads of 8 numbers, latents of 4 channels, the vocabulary of the demo. */
#ifndef ITH_TESTS_TINY_MODEL_H
#define ITH_TESTS_TINY_MODEL_H

#include <ithaca/wan.h>

/* TEXT: from text. IMAGE: from images, which become a condition. Both have two experts and Wan 2.1's autoencoder.
 * TEXT_IMAGE: from text or an image, with a time for each token, one expert and Wan 2.2's autoencoder. The sizes of all
 * videos are multiples of 16. */
typedef enum tiny_kind { TINY_TEXT, TINY_IMAGE, TINY_TEXT_IMAGE } tiny_kind;

/* Writes the checkpoint into `folder`, which must exist. */
void tiny_model_write(ith_context *ctx, tiny_kind kind, const char *folder);
/* Writes a LoRA of rank 2 for its transformers. */
void tiny_lora_write(ith_context *ctx, const char *path);

#endif
