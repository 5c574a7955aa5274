/* SPDX-License-Identifier: Apache-2.0 */
/* The names of tensors in weight files of other origins than diffusers, and their canonical names, the names of
 * diffusers and transformers. One function for each component maps every form:
 *
 * - the names of the original code ("blocks.0.self_attn.q.weight"), which Comfy's files and GGUF files of the
 *   transformer have too, with or without the prefix "model.diffusion_model.";
 * - the names of the three components in an all-in-one file, which have a prefix each;
 * - the names of llama.cpp in GGUF files of the text encoder;
 * - canonical names, which stay.
 *
 * A function maps modules ("blocks.0.self_attn.q" to "blocks.0.attn1.to_q"), and leaves the rest of the name
 * (".weight", ".scale_weight"). It returns NULL for a tensor that the component does not have. A name of no known form
 * stays, so that the component refuses the tensor. */
#ifndef ITH_WAN_MODULE_NAMES_H
#define ITH_WAN_MODULE_NAMES_H

#include "../../files/store.h"

/* The functions have the type of ith_store_names.canonical. */
const char *ith_dit_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);
/* Returns the canonical name of a module whose name has underscores for dots ("blocks_0_self_attn_q"), or NULL. */
const char *ith_dit_flat_name(const char *name, char space[ITH_STORE_NAME_BYTES]);
const char *ith_text_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);
/* user: an int64_t, the number of entries of decoder.upsamples in each level but the last: the level's residual blocks,
 * and one for its upsampling. 4 in the published autoencoders of Wan 2.1. */
const char *ith_vae_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);

/* CLIP's image encoder. The names of the text encoder in the same file are ignored. */
const char *ith_vision_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);

/* Returns the rest of `name` after `prefix`, or NULL if it begins otherwise. */
const char *ith_name_after(const char *name, const char *prefix);
/* Returns the rest of `name` after the prefix that the transformer's tensors have in Comfy's files, or `name`. */
const char *ith_dit_name_bare(const char *name);

/* A module of another origin, and its canonical name. */
typedef struct ith_module_name {
    const char *other, *canonical;
} ith_module_name;

/* If `name` is one of the modules, or a tensor of one, writes head + canonical name + rest into `space` and returns it.
 * Otherwise, and if the space is too small, returns NULL. */
const char *ith_module_rename(const ith_module_name *modules, int count, const char *head, const char *name,
                              char space[ITH_STORE_NAME_BYTES]);
/* Reads "N.rest" into *number and returns "rest"; NULL if the name does not begin with a number below 10000 and a dot.
 */
const char *ith_name_number(const char *name, int *number);

#endif
