/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the steps of a tokenizer.json (tokenizer_steps.h). The forms that converters of transformers have written are
 *
 *     normalizer      Precompiled; or a Sequence of Precompiled, Strip, and Replace of " {2,}" by one space
 *     pre_tokenizer   Metaspace; or a Sequence of WhitespaceSplit and Metaspace
 *     post_processor  TemplateProcessing of the text and </s>
 *
 * Any other step would give other ids in the reference, so it is refused. So is an added token with single_word, which
 * is found only as a whole word. lstrip and rstrip of an added token change no id, because spaces at the ends of a part
 * are left out anyway. */
#include "tokenizer_steps.h"

#include "../../files/quote.h"

#include <string.h>

#define END "</s>"
#define PRE_TOKENIZER "pre_tokenizer"
#define SPLITS "pretokenizers" /* the key of the steps in a pre_tokenizer that is a Sequence */
#define SPACE "\xe2\x96\x81"   /* ▁, which stands for a space in pieces */

typedef bool step_fn(const json_t *step);

/* Whether a member is absent, null, or one of two texts. */
static bool is_text(const json_t *step, const char *key, const char *one, const char *other)
{
    const json_t *value = json_object_get(step, key);
    const char *text = json_string_value(value);
    return !value || json_is_null(value) || (text && (!strcmp(text, one) || !strcmp(text, other)));
}

static bool is_type(const json_t *step, const char *type)
{
    const char *text = json_string_value(json_object_get(step, "type"));
    return text && !strcmp(text, type);
}

static bool is_normal_step(const json_t *step)
{
    const char *pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    const bool joins = pattern && !strcmp(pattern, " {2,}") && is_text(step, "content", " ", SPACE);
    return is_type(step, "Precompiled") || is_type(step, "Strip") || (is_type(step, "Replace") && joins);
}

/* Whether a step writes spaces as "▁", and one before the text or before its first part. */
static bool marks_spaces(const json_t *step)
{
    const bool prefixed = !json_is_false(json_object_get(step, "add_prefix_space"));
    const bool usual = is_text(step, "replacement", SPACE, SPACE) && is_text(step, "prepend_scheme", "always", "first");
    return is_type(step, "Metaspace") && prefixed && usual;
}

/* Whether a step writes "▁" before every part. */
static bool marks_words(const json_t *step)
{
    return marks_spaces(step) && is_text(step, "prepend_scheme", "always", "always");
}

static bool is_split_step(const json_t *step)
{
    return is_type(step, "WhitespaceSplit") || marks_spaces(step);
}

static ith_status check_step(ith_context *context, const char *path, const char *part, const json_t *step,
                             step_fn *is_known)
{
    if (is_known(step))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: the step '%s' of its %s is none of a SentencePiece model, or has other settings; such a "
                    "tokenizer is not supported",
                    path, ith_quote(json_string_value(json_object_get(step, "type"))).text, part);
}

/* Checks a part, which is one step, or a sequence of steps under the key `list`. */
static ith_status check_part(ith_context *context, const char *path, const json_t *root, const char *part,
                             const char *list, step_fn *is_known)
{
    const json_t *whole = json_object_get(root, part), *step;
    ith_status status = ITH_OK;
    size_t index;
    if (!whole || json_is_null(whole))
        return ITH_OK;
    if (!is_type(whole, "Sequence"))
        return check_step(context, path, part, whole, is_known);
    json_array_foreach(json_object_get(whole, list), index, step)
    {
        if (!status)
            status = check_step(context, path, part, step, is_known);
    }
    return status;
}

/* Checks that the last step of a pre_tokenizer marks the spaces. After a WhitespaceSplit, which drops the spaces, it
 * must mark each word: the scheme "first" would mark the first word alone. */
static ith_status check_marks(ith_context *context, const char *path, const json_t *root)
{
    const json_t *whole = json_object_get(root, PRE_TOKENIZER), *list = json_object_get(whole, SPLITS), *last = whole;
    if (!whole || json_is_null(whole))
        return ITH_OK;
    if (is_type(whole, "Sequence"))
        last = json_array_get(list, json_array_size(list) - 1);
    return check_step(context, path, PRE_TOKENIZER, last, json_array_size(list) > 1 ? marks_words : marks_spaces);
}

/* Whether an item of a template is the text, or the token </s>. */
static bool is_item(const json_t *item, const char *kind, const char *id)
{
    const char *text = json_string_value(json_object_get(json_object_get(item, kind), "id"));
    return text && !strcmp(text, id);
}

static ith_status check_end(ith_context *context, const char *path, const json_t *root)
{
    const json_t *step = json_object_get(root, "post_processor"), *single = json_object_get(step, "single");
    if (!step || json_is_null(step))
        return ITH_OK;
    if (is_type(step, "TemplateProcessing") && json_array_size(single) == 2 &&
        is_item(json_array_get(single, 0), "Sequence", "A") && is_item(json_array_get(single, 1), "SpecialToken", END))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: its post_processor does something else than to add " END " to a text; such a tokenizer is not "
                    "built",
                    path);
}

static ith_status check_added(ith_context *context, const char *path, const json_t *root)
{
    const json_t *token;
    size_t index;
    json_array_foreach(json_object_get(root, "added_tokens"), index, token)
    {
        if (json_is_true(json_object_get(token, "single_word")))
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "%s: the added token '%s' has single_word, so that it is not found inside a word; such a "
                            "tokenizer is not supported",
                            path, ith_quote(json_string_value(json_object_get(token, "content"))).text);
    }
    return ITH_OK;
}

ith_status ith_tokenizer_steps_check(ith_context *context, const char *path, const json_t *root)
{
    ith_status status = check_part(context, path, root, "normalizer", "normalizers", is_normal_step);
    if (!status)
        status = check_part(context, path, root, PRE_TOKENIZER, SPLITS, is_split_step);
    if (!status)
        status = check_marks(context, path, root);
    if (!status)
        status = check_end(context, path, root);
    return status ? status : check_added(context, path, root);
}
