/* SPDX-License-Identifier: Apache-2.0 */
/* An array of code points, and its conversion from and to UTF-8. */
#include "text_codepoints.h"

#include "../../base/size.h"
#include "text_length.h"

#include <string.h>
#include <utf8proc.h>

/* Makes room for `more` code points. The capacity at least doubles, so that pushing takes constant time on average. */
static ith_status reserve(ith_context *context, ith_codepoints *text, int64_t more)
{
    if (more <= text->capacity - text->count)
        return ITH_OK;
    const int64_t capacity = ith_max64(ith_max64(text->count + more, 2 * text->capacity), 64);
    uint32_t *at = ith_alloc(context, capacity, sizeof *at, "a prompt's characters");
    if (!at)
        return ITH_ERR_MEMORY;
    if (text->count > 0)
        memcpy(at, text->at, (size_t)text->count * sizeof *at);
    ith_free(context, text->at);
    text->at = at;
    text->capacity = capacity;
    return ITH_OK;
}

ith_status ith_codepoints_push(ith_context *context, ith_codepoints *text, uint32_t codepoint)
{
    ith_status status = reserve(context, text, 1);
    if (!status)
        text->at[text->count++] = codepoint;
    return status;
}

ith_status ith_codepoints_append(ith_context *context, ith_codepoints *text, const uint32_t *at, int64_t count)
{
    if (count == 0)
        return ITH_OK;
    ith_status status = reserve(context, text, count);
    if (status)
        return status;
    memcpy(text->at + text->count, at, (size_t)count * sizeof *at);
    text->count += count;
    return ITH_OK;
}

void ith_codepoints_free(ith_context *context, ith_codepoints *text)
{
    ith_free(context, text->at);
    *text = (ith_codepoints){0};
}

/* Decodes the character at byte i of a text. Returns its bytes; 0, with the error, if they are not UTF-8. */
static int64_t decode(ith_context *context, const char *name, const char *utf8, int64_t i, int64_t length,
                      utf8proc_int32_t *codepoint)
{
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)utf8;
    const utf8proc_ssize_t used = utf8proc_iterate(bytes + i, length - i, codepoint);
    if (used <= 0)
        ith_fail(context, ITH_ERR_ARGUMENT, "%s is not UTF-8: byte 0x%02X at offset %lld", name, bytes[i],
                 (long long)i);
    return used > 0 ? used : 0;
}

ith_status ith_text_check(ith_context *context, const char *name, const char *utf8)
{
    const int64_t length = (int64_t)strlen(utf8);
    utf8proc_int32_t codepoint;
    if (length > ITH_TEXT_BYTES)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s has %lld bytes, and must have at most %d; its first %d ids count", name, (long long)length,
                        ITH_TEXT_BYTES, ITH_TEXT_LEN);
    for (int64_t i = 0, used; i < length; i += used)
        if (!(used = decode(context, name, utf8, i, length, &codepoint)))
            return ITH_ERR_ARGUMENT;
    return ITH_OK;
}

ith_status ith_codepoints_append_utf8(ith_context *context, ith_codepoints *text, const char *utf8)
{
    const int64_t length = (int64_t)strlen(utf8);
    for (int64_t i = 0; i < length;) {
        utf8proc_int32_t codepoint;
        const int64_t used = decode(context, "the text", utf8, i, length, &codepoint);
        if (!used)
            return ITH_ERR_ARGUMENT;
        ith_status status = ith_codepoints_push(context, text, (uint32_t)codepoint);
        if (status)
            return status;
        i += used;
    }
    return ITH_OK;
}

/* The first loop counts the bytes of the text in UTF-8, the second loop writes them. */
ith_status ith_codepoints_to_utf8(ith_context *context, const ith_codepoints *text, char **out)
{
    *out = NULL;
    utf8proc_uint8_t scratch[4];
    int64_t bytes = 1;
    for (int64_t i = 0; i < text->count; i++)
        bytes += utf8proc_encode_char((utf8proc_int32_t)text->at[i], scratch);
    char *utf8 = ith_alloc(context, bytes, 1, "a prompt");
    if (!utf8)
        return ITH_ERR_MEMORY;
    int64_t used = 0;
    for (int64_t i = 0; i < text->count; i++)
        used += utf8proc_encode_char((utf8proc_int32_t)text->at[i], (utf8proc_uint8_t *)utf8 + used);
    utf8[used] = '\0';
    *out = utf8;
    return ITH_OK;
}
