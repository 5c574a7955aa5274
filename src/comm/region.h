/* SPDX-License-Identifier: Apache-2.0 */
/* What transports do with blocks. */
#ifndef ITH_COMM_REGION_H
#define ITH_COMM_REGION_H

#include "comm.h"

/* The bytes of all its runs together; -1 if a count or size is negative or the product does not fit. */
int64_t ith_region_bytes(const ith_region *block);

/* Copies `source`, run by run, to `target`. They hold equally many bytes; their runs may differ in length. */
void ith_region_copy(const ith_region *target, const ith_region *source);

#endif
