/* SPDX-License-Identifier: Apache-2.0 */
/* Parses JSON texts with Jansson (json_load.h). */
#include "json_load.h"

#include "../base/plain_text.h"
#include "quote.h"

bool ith_json_lacks_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory || !error->text[0];
}

bool ith_json_has_few_values(const char *text, int64_t bytes)
{
    int64_t values = 0;
    bool quoted = false;
    for (int64_t i = 0; i < bytes; i++)
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += text[i] == '\\';
        else
            values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values <= ITH_JSON_MOST_VALUES;
}

json_t *ith_json_tree(const char *text, int64_t bytes, json_error_t *error)
{
    const locale_t before = ith_plain_begin();
    json_t *root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, error);
    ith_plain_end(before);
    return root;
}

ith_status ith_json_load(ith_context *context, const char *path, const char *text, int64_t bytes, json_t **out)
{
    json_error_t error;
    *out = NULL;
    if (!ith_json_has_few_values(text, bytes))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: has more than %d JSON values, which no file of a model needs",
                        path, ITH_JSON_MOST_VALUES);
    *out = ith_json_tree(text, bytes, &error);
    if (*out)
        return ITH_OK;
    if (ith_json_lacks_memory(&error))
        return ith_fail(context, ITH_ERR_MEMORY, "out of memory for the contents of %s", path);
    return ith_fail(context, ITH_ERR_FORMAT, "%s, line %d, column %d: not valid JSON: %s", path, error.line,
                    error.column, ith_quote(error.text).text);
}
