/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence of a thread's last failure for which there was no context.
 *
 * This file defines a public function and nothing else. So libithaca_wan, which has a copy of context.c, finds this
 * function in libithaca: there is one sentence for both. */
#include "context.h"

const char *ith_context_error(const ith_context *context)
{
    static _Thread_local char sentence[ITH_ERROR_BYTES];
    return context ? ith_context_sentence(context) : sentence;
}
