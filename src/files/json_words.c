/* SPDX-License-Identifier: Apache-2.0 */
#include "json_words.h"

#include "../base/count.h"

#include <string.h>

/* The length of the word with which a text begins; 0: another text. */
static int64_t word_length(const char *text, int64_t bytes)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (int i = 0; i < ITH_COUNT(words); i++) {
        const int64_t length = (int64_t)strlen(words[i]);
        if (length <= bytes && !memcmp(text, words[i], (size_t)length))
            return length;
    }
    return 0;
}

/* Whether a colon follows: a key, which is a string in Python too. */
static bool is_key(const char *text, int64_t bytes)
{
    int64_t i = 0;
    while (i < bytes && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n'))
        i++;
    return i < bytes && text[i] == ':';
}

/* The length of the word for a number with which a text begins; 0: another text. */
static int64_t number_length(const char *text, int64_t bytes)
{
    const int64_t length = word_length(text, bytes);
    return length && is_key(text + length, bytes - length) ? 0 : length;
}

/* Copies the text with its words in quotation marks to `out`, unless this is NULL. Returns the number of words. */
static int64_t copy(const char *text, int64_t bytes, char *out)
{
    int64_t words = 0, length = 1;
    bool quoted = false;
    for (int64_t i = 0; i < bytes; i += length) {
        const int64_t word = quoted ? 0 : number_length(text + i, bytes - i);
        length = word ? word : 1;
        if (quoted && text[i] == '\\' && i + 1 < bytes)
            length = 2;
        else if (text[i] == '"')
            quoted = !quoted;
        if (out) {
            char *to = out + i + 2 * words + (word > 0);
            memcpy(to, text + i, (size_t)length);
            if (word)
                to[-1] = to[word] = '"';
        }
        words += word > 0;
    }
    return words;
}

ith_status ith_json_quote_words(ith_context *context, char **text, int64_t *bytes)
{
    const int64_t words = copy(*text, *bytes, NULL);
    if (!words)
        return ITH_OK;
    char *longer = ith_alloc(context, *bytes + 2 * words, 1, "a configuration");
    if (!longer)
        return ITH_ERR_MEMORY;
    copy(*text, *bytes, longer);
    ith_free(context, *text);
    *text = longer;
    *bytes += 2 * words;
    return ITH_OK;
}
