/* SPDX-License-Identifier: Apache-2.0 */
/* The error sentence of a context, and its log. */
#include "context_state.h"

#include "control.h"
#include "spin_lock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes of a sentence. The rest of ITH_ERROR_BYTES is for the name of a rank that others put before it. */
#define MOST_BYTES 900

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

/* If a sentence has more than `most` bytes, leaves out its middle, which is mostly in a path: its end names the
 * fault. */
static void shorten(char *sentence, size_t most)
{
    static const char gap[] = " ... ";
    const size_t length = strlen(sentence), gap_bytes = sizeof gap - 1;
    if (length <= most)
        return;
    const size_t head = ith_utf8_cut(sentence, most / 2);
    size_t tail = length - (most - most / 2 - gap_bytes);
    for (int i = 0; i < ITH_UTF8_CONTINUING && ith_utf8_continues(sentence[tail]); i++)
        tail++;
    memcpy(sentence + head, gap, gap_bytes);
    memmove(sentence + head + gap_bytes, sentence + tail, length - tail + 1);
}

/* Writes a sentence to text [ITH_ERROR_BYTES], without its middle if it has more than `most` bytes. A stack may be
 * small, so a sentence with a long path is written to other memory first; if there is none, it loses its end. */
static void print(char *text, size_t most, const char *format, va_list arguments)
{
    char *whole;
    va_list again;
    va_copy(again, arguments);
    if (vsnprintf(text, ITH_ERROR_BYTES, format, arguments) >= ITH_ERROR_BYTES &&
        vasprintf(&whole, format, again) >= 0) {
        shorten(whole, most);
        strcpy(text, whole);
        free(whole);
    }
    va_end(again);
    shorten(text, most);
}

ith_status ith_fail(ith_context *context, ith_status status, const char *format, ...)
{
    /* the sentence is first written here, since an argument may point to the previous error sentence in the context */
    char sentence[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    print(sentence, MOST_BYTES, format, arguments);
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

ith_status ith_need_to_make(ith_context *context, const void *from, const char *name, const void *out)
{
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, from, name);
    return status ? status : ith_need(context, out, "out");
}

ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
{
    char prefix[ITH_ERROR_BYTES], reason[ITH_ERROR_BYTES];
    va_list arguments;
    ith_context_copy_sentence(context, reason);
    const size_t rest = strlen(reason) + strlen(": ");
    va_start(arguments, format);
    print(prefix, rest < MOST_BYTES / 2 ? MOST_BYTES - rest : MOST_BYTES / 2, format, arguments);
    va_end(arguments);
    return ith_fail(context, status, "%s: %s", prefix, reason);
}

void ith_log(ith_context *context, ith_log_level level, const char *format, ...)
{
    if (!context->log || level > context->log_level)
        return;
    char line[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    print(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    ith_replace_controls(line);
    context->log(context->log_user, level, line);
}
