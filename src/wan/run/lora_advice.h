/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that published distilled LoRAs need, but do not have in their files. */
#ifndef ITH_WAN_LORA_ADVICE_H
#define ITH_WAN_LORA_ADVICE_H

#include <ithaca/wan.h>

/* The settings that the publisher of a LoRA recommends. 0 and AUTO: no recommendation. */
typedef struct ith_lora_advice {
    const char *name; /* of the LoRA, as its publisher calls it */
    int64_t steps_least, steps_most;
    double shift_least, shift_most, guidance;
    ith_solver solver;
    const char *note; /* NULL: none */
} ith_lora_advice;

/* Recognises a LoRA by the names of its file and of the two folders above; NULL: it is not known. */
const ith_lora_advice *ith_lora_advice_of(const char *path);

#endif
