/* SPDX-License-Identifier: Apache-2.0 */
/* Reads any bytes as the entries of a wisdom file: gives them the header and the checksum that this machine writes. */
#ifndef ITH_TESTS_PROBE_WISDOM_H
#define ITH_TESTS_PROBE_WISDOM_H

#include <ithaca/ithaca.h>

#include <stddef.h>
#include <stdint.h>

/* Loads wisdom with these entries. If it is legal, plans are made with it, and it is saved and loaded again: this must
 * give the same entries. If it is refused, the sentence must be one line that names the file. Ends the program if a
 * promise is broken. Returns the status of loading. */
ith_status probe_wisdom(ith_context *context, const uint8_t *entries, size_t bytes);
/* The same for the entries in a file. */
ith_status probe_wisdom_file(ith_context *context, const char *path);

#endif
