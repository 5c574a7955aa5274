/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of the transport over NCCL (nccl_state.h). */
#include "nccl_state.h"

#include <stdarg.h>
#include <stdio.h>

const char *ith_nccl_name(const nccl_state *s, int rank, char text[NCCL_NAME])
{
    ith_place place = ITH_PLACE_INIT;
    s->world->inner->place(s->inner, rank, &place);
    if (s->world->several_hosts)
        snprintf(text, NCCL_NAME, "rank %d (host %.63s)", s->members[rank], place.name);
    else
        snprintf(text, NCCL_NAME, "rank %d", s->members[rank]);
    return text;
}

const char *ith_nccl_operation(const nccl_state *s, const nccl_request *request, char text[NCCL_OPERATION])
{
    snprintf(text, NCCL_OPERATION, "%.60s (exchange %lld of group %lld)", request->posted.what,
             (long long)request->number, (long long)s->group);
    return text;
}

ith_status ith_nccl_fail(nccl_state *s, ith_status status, const char *format, ...)
{
    char sentence[NCCL_SENTENCE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    s->world->inner->abort(s->inner, status, sentence);
    return ith_nccl_settle(s->world);
}
