/* SPDX-License-Identifier: Apache-2.0 */
/* A fast hash of bytes. It is not cryptographic. */
#ifndef ITH_BASE_HASH_H
#define ITH_BASE_HASH_H

#include <stdint.h>

/* Continues the hash `before`, which is 0 at first, with `bytes` bytes of data. The result depends on the pieces into
 * which the data are cut: hashes that are compared must be made of the same pieces. */
uint64_t ith_hash(uint64_t before, const void *data, int64_t bytes);

#endif
