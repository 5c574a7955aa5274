/* SPDX-License-Identifier: Apache-2.0 */
/* ith_context_error(NULL): the sentence of a thread's last failure without a context.
 *
 * This file defines this public function only. So libithaca_wan, which contains a copy of context.c, takes the function
 * from libithaca, and both libraries use one sentence. */
#include "context.h"

const char *ith_context_error(const ith_context *context)
{
    static _Thread_local char sentence[ITH_ERROR_BYTES];
    return context ? ith_context_sentence(context) : sentence;
}
