/* SPDX-License-Identifier: Apache-2.0 */
/* Repairs a line of text by the steps of ftfy.fix_text, in ftfy's order, repeated until nothing changes: HTML entities,
 * C1 controls, ligatures, widths, quotes, line breaks, terminal escapes, control characters, NFC. ftfy's step for
 * surrogates is left out, since UTF-8 contains none. */
#include "text_fix.h"

#include "../../base/count.h"
#include "../../base/size.h"
#include "html_unescape.h"

#include <string.h>
#include <utf8proc.h>

#define ESCAPE 0x1b

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* A step of the repair: appends the repaired `text` to `out`. */
typedef ith_status (*step_fn)(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

/* Replaces C1 controls (U+0080 to U+009F) by the characters with these numbers in Windows-1252, as browsers do. */
static ith_status read_c1_controls(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++)
        status = ith_codepoints_push(context, out, ith_windows_1252(text->at[i]));
    return status;
}

/* The letters of a Latin ligature or digraph; NULL for any other character. */
static const char *ligature_letters(uint32_t c)
{
    switch (c) {
    case 0x132: return "IJ";
    case 0x133: return "ij";
    case 0x149: return "\u02bcn";
    case 0x1f1: return "DZ";
    case 0x1f2: return "Dz";
    case 0x1f3: return "dz";
    case 0x1c4: return "D\u017d";
    case 0x1c5: return "D\u017e";
    case 0x1c6: return "d\u017e";
    case 0x1c7: return "LJ";
    case 0x1c8: return "Lj";
    case 0x1c9: return "lj";
    case 0x1ca: return "NJ";
    case 0x1cb: return "Nj";
    case 0x1cc: return "nj";
    case 0xfb00: return "ff";
    case 0xfb01: return "fi";
    case 0xfb02: return "fl";
    case 0xfb03: return "ffi";
    case 0xfb04: return "ffl";
    case 0xfb05: return "\u017ft";
    case 0xfb06: return "st";
    default: return NULL;
    }
}

static ith_status split_ligatures(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++) {
        const char *letters = ligature_letters(text->at[i]);
        status = letters ? ith_codepoints_append_utf8(context, out, letters)
                         : ith_codepoints_push(context, out, text->at[i]);
    }
    return status;
}

/* Replaces full-width and half-width forms by their NFKC form, and the ideographic space by a space. */
static ith_status make_widths_plain(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++) {
        uint32_t c = text->at[i];
        if (c == 0x3000) {
            status = ith_codepoints_push(context, out, ' ');
        } else if (c > 0xff00 && c < 0xfff0) {
            utf8proc_int32_t plain[8];
            int last_class = 0;
            utf8proc_ssize_t count = utf8proc_decompose_char(
                (utf8proc_int32_t)c, plain, 8, UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, &last_class);
            for (utf8proc_ssize_t j = 0; j < count && !status; j++)
                status = ith_codepoints_push(context, out, (uint32_t)plain[j]);
        } else {
            status = ith_codepoints_push(context, out, c);
        }
    }
    return status;
}

/* Curly quotation marks and apostrophes become ASCII. */
static ith_status straighten_quotes(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++) {
        uint32_t c = text->at[i];
        if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b))
            c = '\'';
        else if (c >= 0x201c && c <= 0x201f)
            c = '"';
        status = ith_codepoints_push(context, out, c);
    }
    return status;
}

/* CR LF, CR, and Unicode's line, paragraph and next-line separators become LF. */
static ith_status unify_line_breaks(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++) {
        uint32_t c = text->at[i];
        if (c == '\r' && i + 1 < text->count && text->at[i + 1] == '\n')
            continue;
        if (c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85)
            c = '\n';
        status = ith_codepoints_push(context, out, c);
    }
    return status;
}

/* The length of the terminal escape, ESC '[' (digits or ';')* letter, that begins at text[0]; 0 if there is none. */
static int64_t match_terminal_escape(const uint32_t *text, int64_t left)
{
    if (left < 3 || text[0] != ESCAPE || text[1] != '[')
        return 0;
    int64_t i = 2;
    while (i < left && (text[i] == ';' || utf8proc_category((utf8proc_int32_t)text[i]) == UTF8PROC_CATEGORY_ND))
        i++;
    bool letter = i < left && ((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z'));
    return letter ? i + 1 : 0;
}

static ith_status drop_terminal_escapes(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status;) {
        int64_t length = match_terminal_escape(text->at + i, text->count - i);
        if (length == 0)
            status = ith_codepoints_push(context, out, text->at[i++]);
        i += length;
    }
    return status;
}

/* Whether a character is a control without meaning in text: C0 except tab, LF, FF and CR; deprecated format characters;
 * byte order mark; interlinear annotation; object replacement. */
static bool is_unwanted_control(uint32_t c)
{
    return c <= 0x08 || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || (c >= 0x206a && c <= 0x206f) ||
           c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

static ith_status drop_control_characters(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status; i++)
        if (!is_unwanted_control(text->at[i]))
            status = ith_codepoints_push(context, out, text->at[i]);
    return status;
}

#define BEFORE_FINALS 0x11a7 /* the vowel before the final consonants of Hangul */

/* Composes decomposed characters, and appends them to `out`. utf8proc would drop U+11A7 after a syllable without a
 * final consonant. This vowel is part of no composition, so the characters from one to the next are composed by
 * themselves. */
static ith_status compose_parts(ith_context *context, utf8proc_int32_t *parts, utf8proc_ssize_t count,
                                utf8proc_option_t options, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (utf8proc_ssize_t first = 0, end; first < count && !status; first = end) {
        for (end = first + 1; end < count && parts[end] != BEFORE_FINALS;)
            end++;
        const utf8proc_ssize_t kept = utf8proc_normalize_utf32(parts + first, end - first, options);
        if (kept < 0)
            return ith_fail(context, ITH_ERR_INTERNAL, "utf8proc could not compose a prompt: %s",
                            utf8proc_errmsg(kept));
        status = ith_codepoints_append(context, out, (const uint32_t *)(parts + first), kept);
    }
    return status;
}

/* Brings the text into Unicode's normal form NFC. utf8proc decomposes it first, which may make it longer, so the length
 * of the decomposed text is computed before. */
static ith_status compose(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    utf8proc_int32_t *parts = NULL;
    char *utf8 = NULL;
    ith_status status = ith_codepoints_to_utf8(context, text, &utf8);
    if (status)
        goto done;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)utf8;
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t length = (utf8proc_ssize_t)strlen(utf8);
    utf8proc_ssize_t count = utf8proc_decompose(bytes, length, NULL, 0, options);
    parts = count < 0 ? NULL : ith_alloc(context, count + 1, sizeof *parts, "a prompt's characters");
    if (count >= 0 && !parts) {
        status = ITH_ERR_MEMORY;
        goto done;
    }
    if (count >= 0)
        count = utf8proc_decompose(bytes, length, parts, count, options);
    if (count < 0)
        status =
            ith_fail(context, ITH_ERR_INTERNAL, "utf8proc could not decompose a prompt: %s", utf8proc_errmsg(count));
    else
        status = compose_parts(context, parts, count, options, out);
done:
    ith_free(context, parts);
    ith_free(context, utf8);
    return status;
}

/* ---- Lines ----------------------------------------------------------------------------------------------------- */

static const step_fn steps[] = {
    ith_html_unescape_plain, read_c1_controls,      split_ligatures,         make_widths_plain, straighten_quotes,
    unify_line_breaks,       drop_terminal_escapes, drop_control_characters, compose,
};

static void swap(ith_codepoints *a, ith_codepoints *b)
{
    ith_codepoints old = *a;
    *a = *b;
    *b = old;
}

/* Applies all steps once to `text`, in place. scratch: a second buffer. entities: whether HTML entities are
 * replaced. */
static ith_status run_steps(ith_context *context, bool entities, ith_codepoints *text, ith_codepoints *scratch)
{
    for (int i = 0; i < ITH_COUNT(steps); i++) {
        if (steps[i] == ith_html_unescape_plain && !entities)
            continue;
        scratch->count = 0;
        ith_status status = steps[i](context, text, scratch);
        if (status)
            return status;
        swap(text, scratch);
    }
    return ITH_OK;
}

/* Repeats the steps on a line until nothing changes, and appends it to `out`. This ends, because no step undoes
 * another. A text of nested entities takes a round for each level, so the rounds after the first can be interrupted. */
static ith_status fix_line(ith_context *context, const uint32_t *line, int64_t count, bool entities,
                           ith_codepoints *out)
{
    ith_codepoints text = {0}, before = {0}, scratch = {0};
    ith_status status = ith_codepoints_append(context, &text, line, count);
    bool changed = true;
    while (!status && changed) {
        before.count = 0;
        status = ith_codepoints_append(context, &before, text.at, text.count);
        if (!status)
            status = run_steps(context, entities, &text, &scratch);
        changed = text.count != before.count ||
                  (text.count > 0 && memcmp(text.at, before.at, (size_t)text.count * sizeof *text.at) != 0);
        if (!status && changed)
            status = ith_context_check(context);
    }
    if (!status)
        status = ith_codepoints_append(context, out, text.at, text.count);
    ith_codepoints_free(context, &text);
    ith_codepoints_free(context, &before);
    ith_codepoints_free(context, &scratch);
    return status;
}

static int64_t find_codepoint(const uint32_t *text, int64_t count, uint32_t wanted)
{
    int64_t i = 0;
    while (i < count && text[i] != wanted)
        i++;
    return i;
}

ith_status ith_text_fix(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    ith_status status = ITH_OK;
    bool entities = true; /* HTML entities are replaced up to a line with a '<'; from there the text counts as HTML */
    for (int64_t i = 0; i < text->count && !status;) {
        const uint32_t *line = text->at + i;
        const int64_t count = ith_min64(find_codepoint(line, text->count - i, '\n') + 1, text->count - i);
        entities = entities && find_codepoint(line, count, '<') == count;
        status = fix_line(context, line, count, entities, out);
        i += count;
    }
    return status;
}
