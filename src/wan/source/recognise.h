/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the components that weight files of any origin hold, by the names of their tensors. */
#ifndef ITH_WAN_RECOGNISE_H
#define ITH_WAN_RECOGNISE_H

#include "../../files/store.h"

#define ITH_KINDS_SUPPORTED "T2V, I2V and FLF2V of Wan 2.1, and T2V, I2V and TI2V of Wan 2.2"

/* The contents of weight files. */
typedef struct ith_contents {
    bool dit, text, vae, vision;
    bool needs_vision;   /* a transformer that attends to the rows of an image encoder */
    bool lora;           /* low-rank additions to a transformer instead of a transformer */
    int64_t in_level;    /* the number of parts in a level of the autoencoder, for ith_vae_name */
    const char *refusal; /* a kind of model that is not supported: "a VACE model"; NULL: none */
} ith_contents;

/* Recognises the components in a store. raw: a store that was opened without a map of names. */
ith_contents ith_recognise(const ith_store *raw);

/* The noise of a transformer of a model with two, from the name of its file or else of its folder: 1 high, -1 low, 0 if
 * the names do not say it. */
int ith_noise_of_name(const char *path);
/* Whether a file is by its name one of two transformers: "high" or "low", and "noise" or "A14B". */
bool ith_is_expert_by_name(const char *path);

#endif
