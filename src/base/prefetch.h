/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the system to read parts of mapped files ahead. */
#ifndef ITH_BASE_PREFETCH_H
#define ITH_BASE_PREFETCH_H

#include <stdint.h>

/* Asks the system to read the pages of [data, data + bytes), a part of a mapped file, into its page cache. Does not
 * wait for the disk. A page that has arrived before it is accessed costs no more than memory. Failures are ignored,
 * because the access itself reads the page. */
void ith_prefetch(const void *data, int64_t bytes);

#endif
