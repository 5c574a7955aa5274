/* SPDX-License-Identifier: Apache-2.0 */
#include "support/refused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void refused(ith_status wanted, const ith_context *c, const char *word, ith_status got, const char *call)
{
    const char *sentence = ith_context_error(c);
    if (got != wanted || !strcmp(sentence, "stale") || !strstr(sentence, word))
        fail_msg("%s: %s, '%s'; wanted %s and a word of %s", call, ith_status_name(got), sentence,
                 ith_status_name(wanted), word);
}
