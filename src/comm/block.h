/* SPDX-License-Identifier: Apache-2.0 */
/* What transports do with blocks. */
#ifndef ITH_COMM_BLOCK_H
#define ITH_COMM_BLOCK_H

#include "comm.h"

/* The bytes of all its runs together; -1 if a count or size is negative or the product does not fit. */
int64_t ith_block_bytes(const ith_block *block);

/* Copies `source`, run by run, to `target`. They hold equally many bytes; their runs may differ in length. */
void ith_block_copy(const ith_block *target, const ith_block *source);

#endif
