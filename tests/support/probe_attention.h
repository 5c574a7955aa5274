/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as an attention problem with options and ranks: whatever they say, plans are made and executed or refused with
 * a sentence, and what is computed meets the oracle. */
#ifndef ITH_TESTS_PROBE_ATTENTION_H
#define ITH_TESTS_PROBE_ATTENTION_H

#include <ithaca/ithaca.h>

typedef struct probe_bytes {
    const uint8_t *data;
    size_t size;
} probe_bytes;

/* True if all is as it should be; if not, what is wrong is in the context. */
bool probe_attention(ith_context *context, const uint8_t *data, size_t size);

#endif
