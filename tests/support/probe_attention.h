/* SPDX-License-Identifier: Apache-2.0 */
/* Reads any bytes as an attention problem with options and a number of ranks. Plans must be made and executed, or
 * refused with a sentence, and results must agree with the oracle. */
#ifndef ITH_TESTS_PROBE_ATTENTION_H
#define ITH_TESTS_PROBE_ATTENTION_H

#include <ithaca/ithaca.h>

typedef struct probe_bytes {
    const uint8_t *data;
    size_t size;
} probe_bytes;

/* Returns true if this holds; otherwise the context has a sentence about the fault. */
bool probe_attention(ith_context *context, const uint8_t *data, size_t size);

#endif
