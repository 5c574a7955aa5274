/* SPDX-License-Identifier: Apache-2.0 */
/* ith_context_error, with the error sentence of the calling thread's last failure without a context.
 *
 * This is the only function of the file, because libithaca_wan contains a copy of fail.c but must take this function
 * from libithaca, so that both libraries share one error sentence. */
#include "context_state.h"

const char *ith_context_error(const ith_context *context)
{
    static _Thread_local char sentence[ITH_ERROR_BYTES];
    return context ? context->error : sentence;
}
