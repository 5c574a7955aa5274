/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer_check.h"

#include "../fixture.h"

#include <string.h>

void expect_ids(const ith_tokenizer *tokenizer, const char *text, const int32_t *wanted, int64_t wanted_count)
{
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    check(context, ith_tokenizer_encode(context, tokenizer, text, ids, &count));
    if (count != wanted_count || memcmp(ids, wanted, (size_t)count * sizeof *ids) != 0)
        fail_msg("'%s' has other ids, %lld", text, (long long)count);
}

ith_status load_and_tokenize(ith_context *poor, void *path)
{
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    ith_status status = ith_tokenizer_load(poor, path, &tokenizer);
    if (!status)
        status = ith_tokenizer_encode(poor, tokenizer, "red &amp; \u00e9", ids, &count);
    ith_tokenizer_free(poor, &tokenizer);
    return status;
}
