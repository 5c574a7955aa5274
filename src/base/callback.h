/* SPDX-License-Identifier: Apache-2.0 */
/* The results of the caller's functions that return a status. */
#ifndef ITH_BASE_CALLBACK_H
#define ITH_BASE_CALLBACK_H

#include "context.h"

/* Clears the error sentence of the context, to see afterwards whether the function has left one. */
void ith_callback_begin(ith_context *context);
/* The status that a function called `name` has returned for an item, such as "frame 3". A number that is no ith_status
 * counts as ITH_ERR_ABORTED. A failure without an error sentence gets one. */
ith_status ith_callback_end(ith_context *context, int returned, const char *name, const char *item, int64_t number);

#endif
