/* SPDX-License-Identifier: Apache-2.0 */
/* A fast hash of bytes, for comparing what ranks were given. Not for anything that somebody may want to forge. */
#ifndef ITH_BASE_HASH_H
#define ITH_BASE_HASH_H

#include <stdint.h>

/* Of `bytes` bytes, going on from the hash of what came before (0 at first). A piece of a longer whole has a multiple
 * of 32 bytes, unless it is the last. */
uint64_t ith_hash(uint64_t before, const void *data, int64_t bytes);

#endif
