/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the options of a run, and their values as numbers and as text (run_fields.h). */
#include "run_fields.h"

#include "../../base/hash.h"
#include "../../base/plain_text.h"

#include <ithaca/wan.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 64 /* no enum of the options has as many values */

#define WORD(type, noun)                                                                                               \
    static const char *noun##_word(int value)                                                                          \
    {                                                                                                                  \
        return ith_##noun##_name((type)value);                                                                         \
    }
WORD(ith_solver, solver)
WORD(ith_sigmas, sigmas)
WORD(ith_cfg, cfg)
WORD(ith_fit, fit)
WORD(ith_precision, precision)
WORD(ith_strategy, strategy)
WORD(ith_direction, direction)
WORD(ith_choice, choice)
WORD(ith_softmax, softmax)
WORD(ith_exchange_mode, exchange_mode)
WORD(ith_effort, effort)
WORD(ith_compress, compress)

#define AT(member) offsetof(ith_generate_options, member)
const ith_field ith_option_fields[ITH_OPTION_FIELDS] = {
    {"from_latents", ITH_FIELD_GIVEN, AT(from_latents), NULL, false},
    {"prompt", ITH_FIELD_TEXT, AT(prompt), NULL, true},
    {"negative", ITH_FIELD_TEXT, AT(negative), NULL, true},
    {"frames", ITH_FIELD_WHOLE, AT(frames), NULL, true},
    {"height", ITH_FIELD_WHOLE, AT(height), NULL, true},
    {"width", ITH_FIELD_WHOLE, AT(width), NULL, true},
    {"steps", ITH_FIELD_WHOLE, AT(steps), NULL, true},
    {"shift", ITH_FIELD_REAL, AT(shift), NULL, true},
    {"guidance", ITH_FIELD_REAL, AT(guidance[0]), NULL, true},
    {"guidance of the low-noise expert", ITH_FIELD_REAL, AT(guidance[1]), NULL, true},
    {"boundary", ITH_FIELD_REAL, AT(boundary), NULL, true},
    {"solver", ITH_FIELD_INT, AT(solver), solver_word, true},
    {"sigmas", ITH_FIELD_INT, AT(sigmas), sigmas_word, true},
    {"cfg", ITH_FIELD_INT, AT(cfg), cfg_word, false},
    {"precision", ITH_FIELD_INT, AT(precision), precision_word, true},
    {"seed", ITH_FIELD_WHOLE, AT(seed), NULL, true},
    {"shard_weights", ITH_FIELD_WHOLE, AT(shard_weights), NULL, false},
    {"resume_file", ITH_FIELD_GIVEN, AT(resume_file), NULL, false},
    {"image", ITH_FIELD_IMAGE, AT(image), NULL, true},
    {"last_image", ITH_FIELD_IMAGE, AT(last_image), NULL, true},
    {"fit", ITH_FIELD_WHOLE, AT(fit), fit_word, true},
};
#undef AT
#define AT(member) offsetof(ith_attn_options, member)
const ith_field ith_attention_fields[ITH_ATTENTION_FIELDS] = {
    {"strategy", ITH_FIELD_INT, AT(strategy), strategy_word, false},
    {"ulysses", ITH_FIELD_INT, AT(ulysses), NULL, false},
    {"ring", ITH_FIELD_INT, AT(ring), NULL, false},
    {"direction", ITH_FIELD_INT, AT(direction), direction_word, false},
    {"chunks", ITH_FIELD_INT, AT(chunks), NULL, false},
    {"fold", ITH_FIELD_INT, AT(fold), choice_word, false},
    {"softmax", ITH_FIELD_INT, AT(softmax), softmax_word, true},
    {"smooth", ITH_FIELD_INT, AT(smooth), choice_word, true},
    {"exchange", ITH_FIELD_INT, AT(exchange), exchange_mode_word, false},
    {"effort", ITH_FIELD_INT, AT(effort), effort_word, false},
    {"compress", ITH_FIELD_INT, AT(compress), compress_word, true},
    {"kernel", ITH_FIELD_TEXT, AT(kernel), NULL, true},
    {"block_q", ITH_FIELD_WHOLE, AT(block_q), NULL, false},
    {"block_kv", ITH_FIELD_WHOLE, AT(block_kv), NULL, true},
    {"block_kv_compute", ITH_FIELD_WHOLE, AT(block_kv_compute), NULL, true},
    {"block_kv_compute_in", ITH_FIELD_WHOLE, AT(block_kv_compute_in), NULL, true},
};
#undef AT

static int64_t hash_image(const ith_image *image)
{
    if (!image)
        return 0;
    const int64_t size[2] = {image->height, image->width};
    const uint64_t hash = ith_hash(1, size, (int64_t)sizeof size);
    return (int64_t)ith_hash(hash, image->rgb, image->height * image->width * 3);
}

int64_t ith_field_value(const ith_field *field, const void *base)
{
    const char *member = (const char *)base + field->offset, *text;
    const ith_image *image;
    int64_t value = 0;
    int number;
    switch (field->kind) {
    case ITH_FIELD_TEXT:
        memcpy(&text, member, sizeof text);
        return text ? (int64_t)ith_hash(1, text, (int64_t)strlen(text)) : 0;
    case ITH_FIELD_GIVEN: memcpy(&text, member, sizeof text); return text != NULL;
    case ITH_FIELD_IMAGE: memcpy(&image, member, sizeof image); return hash_image(image);
    case ITH_FIELD_INT: memcpy(&number, member, sizeof number); return number;
    case ITH_FIELD_WHOLE:
    case ITH_FIELD_REAL: memcpy(&value, member, sizeof value); return value;
    }
    return value;
}

void ith_field_print(const ith_field *field, int64_t value, char *text, size_t bytes)
{
    double real;
    memcpy(&real, &value, sizeof real);
    if (field->word)
        snprintf(text, bytes, "%s", field->word((int)value));
    else if (field->kind == ITH_FIELD_REAL)
        ith_number_print(real, 17, text, bytes);
    else if (field->kind == ITH_FIELD_GIVEN)
        snprintf(text, bytes, "%s", value ? "given" : "not given");
    else
        snprintf(text, bytes, "%lld", (long long)value);
}

/* Finds the number of a word. Returns false if no value of the field has this name. */
static bool parse_word(const ith_field *field, const char *text, int *number)
{
    for (*number = 0; *number < MOST_WORDS; ++*number)
        if (!strcmp(field->word(*number), text))
            return strcmp(text, "unknown") != 0;
    return false;
}

bool ith_field_parse(const ith_field *field, const char *text, void *base)
{
    char *member = (char *)base + field->offset, *end = NULL;
    int number = 0;
    errno = 0;
    if (field->kind == ITH_FIELD_TEXT) {
        memcpy(member, &text, sizeof text);
        return true;
    }
    if (field->word) {
        if (!parse_word(field, text, &number))
            return false;
        memcpy(member, &number, sizeof number);
        return true;
    }
    if (field->kind == ITH_FIELD_REAL) {
        const double real = ith_number_read(text, &end);
        memcpy(member, &real, sizeof real);
    } else {
        const int64_t whole = strtoll(text, &end, 10);
        memcpy(member, &whole, sizeof whole);
    }
    return *text && !*end && !errno;
}
