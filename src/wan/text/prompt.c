/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt cleaning as in the reference (basic_clean and whitespace_clean of wan/modules/tokenizers.py): ftfy.fix_text,
 * html.unescape twice, strip, and one space for consecutive white space. */
#include "prompt.h"

#include "html_unescape.h"
#include "text_fix.h"

/* Whether Python's str.isspace counts c as white space. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Replaces consecutive white space by one space, in place, and removes white space at both ends. */
static void make_spaces_single(ith_codepoints *text)
{
    int64_t kept = 0;
    bool space = false;
    for (int64_t i = 0; i < text->count; i++) {
        if (is_space(text->at[i])) {
            space = kept > 0;
            continue;
        }
        if (space)
            text->at[kept++] = ' ';
        space = false;
        text->at[kept++] = text->at[i];
    }
    text->count = kept;
}

ith_status ith_prompt_clean(ith_context *context, const char *text, char **out)
{
    *out = NULL;
    ith_codepoints read = {0}, fixed = {0}, once = {0}, twice = {0};
    ith_status status = ith_codepoints_append_utf8(context, &read, text);
    if (!status)
        status = ith_text_fix(context, &read, &fixed);
    if (!status)
        status = ith_html_unescape(context, &fixed, &once);
    if (!status)
        status = ith_html_unescape(context, &once, &twice);
    if (!status) {
        make_spaces_single(&twice);
        status = ith_codepoints_to_utf8(context, &twice, out);
    }
    ith_codepoints_free(context, &read);
    ith_codepoints_free(context, &fixed);
    ith_codepoints_free(context, &once);
    ith_codepoints_free(context, &twice);
    return status;
}
