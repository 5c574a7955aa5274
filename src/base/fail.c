/* SPDX-License-Identifier: Apache-2.0 */
/* The error sentence of a context, and its log. */
#include "context_state.h"

#include "control.h"
#include "spin_lock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The buffer for an error sentence: the context's or, without a context, the calling thread's. Only libithaca has a
 * buffer for threads (thread_sentence.c). */
static char *error_of(ith_context *context)
{
    return context ? context->error : (char *)ith_context_error(NULL);
}

/* Locks the error sentence of a context. Two threads may write it at once: a call that finds its plan in use by another
 * thread also records an error sentence. */
static void lock_error(ith_context *context)
{
    if (context)
        ith_spin_lock(&context->writing);
}

static void unlock_error(ith_context *context)
{
    if (context)
        ith_spin_unlock(&context->writing);
}

void ith_context_copy_sentence(ith_context *context, char sentence[ITH_ERROR_BYTES])
{
    lock_error(context);
    memcpy(sentence, error_of(context), ITH_ERROR_BYTES);
    unlock_error(context);
}

ith_status ith_fail(ith_context *context, ith_status status, const char *format, ...)
{
    /* the sentence is first written here, since an argument may point to the previous error sentence in the context */
    char sentence[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    ith_replace_controls(sentence); /* a path may have some */
    lock_error(context);
    memcpy(error_of(context), sentence, strlen(sentence) + 1);
    unlock_error(context);
    return status;
}

const char *ith_context_sentence(const ith_context *context)
{
    return context->error;
}

ith_status ith_need(ith_context *context, const void *pointer, const char *name)
{
    return pointer ? ITH_OK : ith_fail(context, ITH_ERR_ARGUMENT, "%s is NULL", name);
}

ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
{
    char prefix[ITH_ERROR_BYTES], reason[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    lock_error(context);
    memcpy(reason, error_of(context), sizeof reason);
    unlock_error(context);
    int room = ITH_ERROR_BYTES - length - (int)sizeof ": ";
    if (length < 0 || room <= 0)
        return ith_fail(context, status, "%s", prefix);
    return ith_fail(context, status, "%s: %.*s", prefix, room, reason);
}

void ith_log(ith_context *context, ith_log_level level, const char *format, ...)
{
    if (!context->log || level > context->log_level)
        return;
    char line[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ith_replace_controls(line);
    context->log(context->log_user, level, line);
}
