/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the arguments of operations on communicators. Each function returns NULL if it accepts its arguments.
 * Otherwise it writes the reason to `reason`, and returns it. */
#ifndef ITH_COMM_ARGUMENTS_H
#define ITH_COMM_ARGUMENTS_H

#include <ithaca/transport.h>

#define ITH_REASON_BYTES 128

/* Writes a reason, and returns it. */
__attribute__((format(printf, 2, 3))) const char *ith_because(char reason[ITH_REASON_BYTES], const char *format, ...);
/* Checks a number of items, each of `bytes` bytes. name: of the argument. */
const char *ith_wrong_number(const char *name, int64_t number, int64_t bytes, char reason[ITH_REASON_BYTES]);
/* Checks that memory is not NULL, unless number is 0. name, number_name: of the two arguments. */
const char *ith_wrong_memory(const char *name, const void *memory, const char *number_name, int64_t number,
                             char reason[ITH_REASON_BYTES]);
/* Checks a list of transfers. name: "sends" or "receives". */
const char *ith_wrong_list(const char *name, const ith_transfer *list, int64_t count, int ranks,
                           char reason[ITH_REASON_BYTES]);

#endif
