/* SPDX-License-Identifier: Apache-2.0 */
/* The names of tensors in LoRA files. A name consists of a module and of the part that the tensor plays there. Modules
 * have the names of diffusers or of the original code, perhaps after a prefix ("transformer.", "base_model.model.",
 * "pipe.dit.", "diffusion_model."). After "lora_unet_" (kohya) or "lycoris_" they have underscores for dots. */
#ifndef ITH_WAN_LORA_KEYS_H
#define ITH_WAN_LORA_KEYS_H

#include "../names/module_names.h"

#include <stdbool.h>

/* The part that a tensor plays in the change of a module. */
typedef enum ith_lora_role {
    ITH_LORA_DOWN,       /* [rank, in]: .lora_A.weight, .lora_A.default.weight, .lora_down.weight, .lora.down.weight */
    ITH_LORA_UP,         /* [out, rank]: .lora_B.weight, .lora_B.default.weight, .lora_up.weight, .lora.up.weight */
    ITH_LORA_ALPHA,      /* a scalar: .alpha */
    ITH_LORA_WEIGHT,     /* .diff: the change of the weight itself */
    ITH_LORA_BIAS,       /* .diff_b: the change of the bias */
    ITH_LORA_MODULATION, /* .diff_m: the change of the module's scale_shift_table */
    ITH_LORA_UP_BIAS     /* [out]: .lora_B.bias, which has the factor of the product up down */
} ith_lora_role;

/* The name of a tensor, divided into its parts. */
typedef struct ith_lora_key {
    ith_lora_role role;
    /* DOWN, UP and UP_BIAS: the name of the adapter, which ends before a dot; "" without an adapter. It points into the
     * tensor's name. */
    const char *adapter;
    char module[ITH_STORE_NAME_BYTES]; /* the canonical name of the module; "" for the whole transformer */
} ith_lora_key;

/* Reads the name of a tensor. Returns false if it has no known form. */
bool ith_lora_key_read(const char *name, ith_lora_key *key);
/* Whether the module of this canonical name reads the output of an image encoder. Only the image-to-video models of Wan
 * 2.1 have such modules. */
bool ith_lora_reads_image(const char *module);
/* Returns the form of LoRA to which a tensor of this name belongs, such as "LoKr", if this form is not supported;
 * otherwise NULL. */
const char *ith_lora_key_unsupported(const char *name);

#endif
