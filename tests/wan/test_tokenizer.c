/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer compared with ids that SentencePiece gave (golden/shapes/tokenizer.json), also where divisions of a
 * text have equal scores (golden/ties.json); and damaged model files. */
#include "base/lent_files.h"
#include "support/engine/tokenizer_check.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/temporary.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODEL "../models/shapes/tokenizer"
#define BYTE_0 4 /* the model's id of <0x00> */

static unsigned char *model;
static size_t model_bytes;

static int set_up(void **state)
{
    FILE *file = fopen(MODEL "/spiece.model", "rb");
    model = malloc(1 << 20);
    if (!file || !model)
        return 1;
    model_bytes = fread(model, 1, 1 << 20, file);
    fclose(file);
    return context_set_up(state);
}

static int tear_down(void **state)
{
    free(model);
    return context_tear_down(state);
}

/* As expect_ids, for a case of a JSON file whose ids have this key. */
static void expect_case(const ith_tokenizer *tokenizer, const json_t *one, const char *key)
{
    const json_t *list = json_object_get(one, key);
    const size_t count = json_array_size(list);
    int32_t wanted[ITH_TEXT_LEN];
    assert_true(count > 0 && count <= ITH_TEXT_LEN);
    for (size_t i = 0; i < count; i++)
        wanted[i] = (int32_t)json_integer_value(json_array_get(list, i));
    expect_ids(tokenizer, json_string_value(json_object_get(one, "text")), wanted, (int64_t)count);
}

static void ids_of_the_reference(void **state)
{
    (void)state;
    ith_tokenizer *tokenizer = NULL;
    assert_int_equal(ith_tokenizer_load(context, MODEL, &tokenizer), ITH_OK);
    assert_int_equal(ith_tokenizer_vocab(tokenizer), 1536);
    json_t *cases = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 20);
    size_t index, longest = 0;
    json_array_foreach(cases, index, one)
    {
        const size_t count = json_array_size(json_object_get(one, "ids"));
        expect_case(tokenizer, one, "ids");
        longest = count > longest ? count : longest;
    }
    assert_int_equal(longest, ITH_TEXT_LEN); /* one prompt was cut off */
    json_decref(cases);
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 7;
    assert_int_equal(ith_tokenizer_encode(context, tokenizer, "caf\xe9", ids, &count), ITH_ERR_ARGUMENT);
    assert_int_equal(count, 0);
    ith_tokenizer_free(context, &tokenizer);
    assert_null(tokenizer);
    ith_tokenizer_free(context, &tokenizer);
}

/* A tokenizer without a model gives the same ids, and holds the context that its caller has destroyed. */
static void a_tokenizer_alone_holds_its_context(void **state)
{
    (void)state;
    static const char text[] = "a red circle, caf\u00e9";
    static const char *const paths[] = {MODEL, MODEL "/spiece.model", MODEL "/.."}; /* the last one: of the model */
    int32_t ids[ITH_TEXT_LEN], wanted[ITH_TEXT_LEN];
    int64_t count, wanted_count;
    ith_tokenizer *tokenizer = NULL;
    check(context, ith_tokenizer_load(context, MODEL, &tokenizer));
    check(context, ith_tokenizer_encode(context, tokenizer, text, wanted, &wanted_count));
    ith_tokenizer_free(context, &tokenizer);
    for (int i = 0; i < 3; i++) {
        ith_context *own;
        check(context, ith_context_clone(context, &own));
        check(own, ith_tokenizer_open(own, paths[i], &tokenizer));
        ith_context_destroy(&own);
        assert_int_equal(ith_tokenizer_ids(tokenizer, text, ids, &count), ITH_OK);
        assert_int_equal(count, wanted_count);
        assert_memory_equal(ids, wanted, (size_t)count * sizeof *ids);
        assert_int_equal(ith_tokenizer_ids(tokenizer, "caf\xe9", ids, &count), ITH_ERR_ARGUMENT);
        assert_int_equal(count, 0);
        assert_int_equal(ith_tokenizer_ids(tokenizer, NULL, ids, &count), ITH_ERR_ARGUMENT);
        assert_int_equal(ith_tokenizer_ids(tokenizer, text, NULL, &count), ITH_ERR_ARGUMENT);
        assert_int_equal(ith_tokenizer_ids(tokenizer, text, ids, NULL), ITH_ERR_ARGUMENT);
        ith_tokenizer_close(&tokenizer);
        assert_null(tokenizer);
    }
}

/* Makes a folder with these bytes as the model and, if json is not NULL, a tokenizer.json. */
static char *folder_with(const void *bytes, size_t count, const char *json)
{
    char *folder = temporary_folder();
    temporary_write(temporary_path(folder, "spiece.model"), bytes, count);
    if (json)
        temporary_write(temporary_path(folder, "tokenizer.json"), json, strlen(json));
    return folder;
}

static void expect_unknown(const char *json, const int32_t *wanted, int64_t wanted_count)
{
    char *folder = folder_with(model, model_bytes, json);
    ith_tokenizer *tokenizer = NULL;
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), ITH_OK);
    expect_ids(tokenizer, "\u732b\u72ac red \u00e9\u0416", wanted, wanted_count);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
}

/* The fast tokenizer of transformers gives the same ids if it is made of this model with and without byte_fallback. */
static void tokenizer_json_decides_what_is_unknown(void **state)
{
    (void)state;
    enum { B = BYTE_0, SPACE = 263, RED = 296 };
    const int32_t bytes[] = {SPACE, B + 0xe7, B + 0x8c, B + 0xab, B + 0xe7, B + 0x8a, B + 0xac,
                             RED,   SPACE,    B + 0xc3, B + 0xa9, B + 0xd0, B + 0x96, 1};
    const int32_t unknown[] = {SPACE, 3, RED, SPACE, 3, 1};
    const int64_t byte_count = sizeof bytes / sizeof *bytes, unknown_count = sizeof unknown / sizeof *unknown;
    expect_unknown(NULL, bytes, byte_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\", \"byte_fallback\": true}}", bytes, byte_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\", \"byte_fallback\": false}}", unknown, unknown_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\"}}", unknown, unknown_count);
}

/* Where two divisions of a text have equal scores, the rounding of the sums decides. SentencePiece sums floats,
 * transformers sums doubles. */
static void equal_scores_are_decided_as_by_the_reference(void **state)
{
    (void)state;
    char *folder = folder_with(model, model_bytes, "{\"model\": {\"type\": \"Unigram\", \"byte_fallback\": true}}");
    ith_tokenizer *alone = NULL, *with_json = NULL;
    assert_int_equal(ith_tokenizer_load(context, MODEL, &alone), ITH_OK);
    assert_int_equal(ith_tokenizer_load(context, folder, &with_json), ITH_OK);
    json_t *cases = json_load_file("golden/ties.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 30);
    size_t index, different = 0;
    json_array_foreach(cases, index, one)
    {
        expect_case(alone, one, "float");
        const bool differs = json_object_get(one, "double");
        expect_case(with_json, one, differs ? "double" : "float");
        different += differs;
    }
    assert_true(different > 0);
    json_decref(cases);
    ith_tokenizer_free(context, &alone);
    ith_tokenizer_free(context, &with_json);
    temporary_remove(folder);
}

static void expect_refused(char *folder, ith_status wanted, const char *words)
{
    ith_tokenizer *tokenizer = (ith_tokenizer *)folder;
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), wanted);
    assert_null(tokenizer);
    assert_non_null(strstr(ith_context_error(context), words));
    temporary_remove(folder);
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    expect_refused(temporary_folder(), ITH_ERR_IO, "spiece.model");
    expect_refused(folder_with("", 0, NULL), ITH_ERR_FORMAT, "spiece.model");
    expect_refused(folder_with("not a model", 11, NULL), ITH_ERR_FORMAT, "spiece.model");
    expect_refused(folder_with(model, model_bytes - 1, NULL), ITH_ERR_FORMAT, "cut short");
    expect_refused(folder_with(model, model_bytes / 2, NULL), ITH_ERR_FORMAT, "cut short");
    expect_refused(folder_with("\x12\x02\x18\x02", 4, NULL), ITH_ERR_UNSUPPORTED, "type 2"); /* BPE */
    expect_refused(folder_with(model, model_bytes, "{"), ITH_ERR_FORMAT, "tokenizer.json");
    expect_refused(folder_with(model, model_bytes, "{\"model\": 3}"), ITH_ERR_FORMAT, "model");
    expect_refused(folder_with(model, model_bytes, "{\"model\": {\"byte_fallback\": 1}}"), ITH_ERR_FORMAT, "fallback");
    expect_refused(folder_with(model, model_bytes, "{\"model\": {\"byte_fallback\": null}}"), ITH_ERR_FORMAT,
                   "fallback");
}

/* The position of the model's table of replacements, which begins with its size, 0x2bc00 bytes. */
static size_t find_table(void)
{
    for (size_t i = 0; i + 4 < model_bytes; i++)
        if (!memcmp(model + i, "\x00\xbc\x02\x00", 4))
            return i;
    fail_msg("no table in " MODEL);
    return 0;
}

/* Loads the bytes as a model and, if this succeeds, encodes a text. The worst that may happen is an error. */
static bool survives(const unsigned char *bytes, size_t count, const char *text)
{
    char *folder = folder_with(bytes, count, NULL);
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t id_count = 0;
    ith_status status = ith_tokenizer_load(context, folder, &tokenizer);
    assert_true(!status || status == ITH_ERR_FORMAT || status == ITH_ERR_UNSUPPORTED);
    if (!status && !ith_tokenizer_encode(context, tokenizer, text, ids, &id_count))
        assert_true(id_count >= 1 && id_count <= ITH_TEXT_LEN);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
    return !status;
}

static void damaged_models_are_survived(void **state)
{
    (void)state;
    const size_t table = find_table();
    const uint32_t table_bytes = 0x2bc00;
    char text[3 * 3000 + 1] = "";
    size_t length = 0;
    for (unsigned c = 0xa0; c < 0xa0 + 3000; c++) { /* every two-byte character and some with three */
        if (c < 0x800)
            text[length++] = (char)(0xc0 | c >> 6);
        else
            text[length++] = (char)0xe0, text[length++] = (char)(0x80 | (c >> 6 & 0x3f));
        text[length++] = (char)(0x80 | (c & 0x3f));
    }
    uint64_t seed = 7;
    unsigned char *copy = malloc(model_bytes);
    int loaded = 0, refused = 0;
    for (int round = 0; round < 240; round++) {
        memcpy(copy, model, model_bytes);
        for (uint32_t changes = 1 + random_below(&seed, 8); changes; changes--) {
            const size_t at =
                round % 2 ? table + 4 + random_below(&seed, table_bytes) : random_below(&seed, (uint32_t)model_bytes);
            copy[at] = (unsigned char)random_bits(&seed);
        }
        if (survives(copy, model_bytes - (round % 5 ? 0 : random_below(&seed, (uint32_t)model_bytes)), text))
            loaded++;
        else
            refused++;
    }
    free(copy);
    assert_true(loaded > 10 && refused > 10);
}

/* ---- tokenizer.json alone ---------------------------------------------------------------------------------------- */

/* Makes a folder with a tokenizer.json in which `to` replaces the first `from`. with_model: adds spiece.model. */
static char *folder_with_json(const char *from, const char *to, bool with_model)
{
    char *folder = temporary_folder(), *text = temporary_read(TOKENIZER_SAVED, NULL), *at = strstr(text, from);
    assert_non_null(at);
    char *edited = malloc(strlen(text) + strlen(to) + 1);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    temporary_write(temporary_path(folder, "tokenizer.json"), edited, strlen(edited));
    if (with_model)
        temporary_write(temporary_path(folder, "spiece.model"), model, model_bytes);
    free(text), free(edited);
    return folder;
}

/* tokenizer.json alone gives the ids of spiece.model, for every prompt and with both rules for unknown characters. */
static void tokenizer_json_alone_gives_the_same_ids(void **state)
{
    (void)state;
    static const char *const fallback[] = {"\"byte_fallback\": false", "\"byte_fallback\": true"};
    json_t *prompts = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    size_t index;
    for (int i = 0; i < 2; i++) {
        ith_tokenizer *wanted = NULL, *tokenizer = NULL;
        char *both = folder_with_json(fallback[0], fallback[i], true),
             *alone = folder_with_json(fallback[0], fallback[i], false);
        check(context, ith_tokenizer_load(context, both, &wanted));
        check(context, ith_tokenizer_load(context, i ? temporary_path(alone, "tokenizer.json") : alone, &tokenizer));
        assert_int_equal(ith_tokenizer_vocab(tokenizer), ith_tokenizer_vocab(wanted));
        json_array_foreach(prompts, index, one)
        {
            int32_t ids[2][ITH_TEXT_LEN];
            int64_t count[2] = {0, 0};
            const char *text = json_string_value(json_object_get(one, "text"));
            check(context, ith_tokenizer_encode(context, wanted, text, ids[0], &count[0]));
            check(context, ith_tokenizer_encode(context, tokenizer, text, ids[1], &count[1]));
            assert_int_equal(count[0], count[1]);
            assert_memory_equal(ids[0], ids[1], (size_t)count[0] * sizeof **ids);
        }
        ith_tokenizer_free(context, &wanted);
        ith_tokenizer_free(context, &tokenizer);
        temporary_remove(both), temporary_remove(alone);
    }
    json_decref(prompts);
}

/* If a prompt contains the name of a special piece, such as </s>, the tokenizer gives the id of this piece.
 * Transformers 5.24 gives the same ids for these prompts with the same tokenizer.json. */
static void names_of_special_pieces_are_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t ids[8]; /* they end with 1, </s> */
        int count;
    } cases[] = {
        {"a </s> b", {260, 1, 362, 1}, 4},
        {"<pad> red", {0, 296, 1}, 3},
        {"<s> red", {2, 296, 1}, 3},
        {"<unk> circle", {3, 278, 269, 1}, 4},
        {"a</s>", {260, 1, 1}, 3},
        {"red</s>circle", {296, 1, 278, 269, 1}, 5},
        {"red  </s>  circle", {296, 1, 278, 269, 1}, 5},
        {"</s></s>", {1, 1, 1}, 3},
        {"</S>", {466, 421, 446, 540, 1}, 5},
        {"&lt;/s&gt;", {1, 1}, 2}, /* prompts are cleaned before they are encoded */
    };
    ith_tokenizer *tokenizer = NULL;
    for (int json = 0; json < 2; json++) {
        check(context, ith_tokenizer_load(context, json ? TOKENIZER_SAVED : "../models/shapes/tokenizer", &tokenizer));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            expect_ids(tokenizer, cases[i].text, cases[i].ids, cases[i].count);
        ith_tokenizer_free(context, &tokenizer);
    }
}

/* An added token that is not special is found by its name too, also inside a word, unless its name has a "▁", which
 * texts do not write. Transformers 4.57 and 5.24 give the same ids with the same tokenizer.json. */
static void names_of_added_tokens_are_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int32_t id, ids[12];
        int count;
    } cases[] = {
        {"ack", "a cardboard ack", 277, {260, 378, 531, 326, 437, 356, 531, 326, 277, 1}, 10},
        {"none", "a cardboard ack", 277, {260, 378, 531, 326, 437, 356, 531, 326, 263, 277, 1}, 11},
        {"\u2581red", "a red circle", 296, {260, 296, 278, 269, 1}, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char tokens[256];
        ith_tokenizer *tokenizer = NULL;
        snprintf(tokens, sizeof tokens, "\"added_tokens\": [{\"id\": %d, \"content\": \"%s\", \"special\": false},",
                 (int)cases[i].id, cases[i].name);
        char *folder = folder_with_json("\"added_tokens\": [", tokens, false);
        check(context, ith_tokenizer_load(context, folder, &tokenizer));
        expect_ids(tokenizer, cases[i].text, cases[i].ids, cases[i].count);
        ith_tokenizer_free(context, &tokenizer);
        temporary_remove(folder);
    }
}

/* Loads the saved tokenizer.json with other added tokens: one in front of the usual ones, and one behind them. */
static ith_tokenizer *with_added(json_t *first, json_t *last)
{
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "tokenizer.json");
    json_t *root = json_load_file(TOKENIZER_SAVED, 0, NULL), *tokens = json_object_get(root, "added_tokens");
    ith_tokenizer *tokenizer = NULL;
    json_array_insert_new(tokens, 0, first);
    json_array_append_new(tokens, last);
    assert_int_equal(json_dump_file(root, path, JSON_COMPACT), 0);
    check(context, ith_tokenizer_load(context, path, &tokenizer));
    json_decref(root);
    temporary_remove(folder);
    return tokenizer;
}

/* Of two added tokens of one piece the first counts: tokenizers ignores a name that it has added already. Ids outside
 * the vocabulary name no piece. */
static void the_first_added_token_counts(void **state)
{
    (void)state;
    enum { RED = 296, PIECES = 1536 };
    const int32_t red[] = {RED, 1};
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    ith_tokenizer *tokenizer =
        with_added(json_pack("{sisb}", "id", RED, "special", 0), json_pack("{sisb}", "id", RED, "special", 1));
    expect_ids(tokenizer, "red", red, 2);
    ith_tokenizer_free(context, &tokenizer);
    tokenizer = with_added(json_pack("{sisb}", "id", RED, "special", 1), json_pack("{sisb}", "id", RED, "special", 0));
    check(context, ith_tokenizer_encode(context, tokenizer, "red", ids, &count));
    assert_true(count > 2); /* a special piece is no part of a text */
    ith_tokenizer_free(context, &tokenizer);
    tokenizer =
        with_added(json_pack("{sisb}", "id", -1, "special", 1), json_pack("{sisb}", "id", PIECES, "special", 1));
    expect_ids(tokenizer, "red", red, 2);
    ith_tokenizer_free(context, &tokenizer);
}

/* A vocabulary without one of the 256 bytes has none, and its other bytes are usual pieces. */
static void some_bytes_are_no_bytes(void **state)
{
    (void)state;
    char *folder = folder_with_json("\"<0xF4>\"", "\"<0xF4\"", false);
    ith_tokenizer *tokenizer = NULL;
    const int32_t wanted[] = {263, 3, 296, 1};
    check(context, ith_tokenizer_load(context, folder, &tokenizer));
    expect_ids(tokenizer, "\u732b\u72ac red", wanted, 4);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
}

/* Another process may have sent the tokenizer.json of a folder that is not here. */
static void a_lent_tokenizer_json_is_read(void **state)
{
    (void)state;
    enum { RED = 296 };
    const int32_t red[] = {RED, 1};
    size_t bytes = 0;
    char *text = temporary_read(TOKENIZER_SAVED, &bytes);
    ith_context *borrower = NULL;
    ith_lent_file *lent = NULL;
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    assert_int_equal(ith_context_create(NULL, &borrower), ITH_OK);
    check(borrower, ith_lent_file_create(borrower, "no/such/folder/tokenizer.json", (int64_t)bytes, &lent));
    memcpy(ith_lent_file_fill(borrower, lent, 0, (int64_t)bytes), text, bytes);
    ith_lent_file_end(lent);
    check(borrower, ith_tokenizer_load(borrower, "no/such/folder", &tokenizer));
    check(borrower, ith_tokenizer_encode(borrower, tokenizer, "red", ids, &count));
    assert_int_equal(count, 2);
    assert_memory_equal(ids, red, sizeof red);
    ith_tokenizer_free(borrower, &tokenizer);
    ith_context_destroy(&borrower);
    free(text);
}

static void broken_tokenizer_json_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *word;
    } edits[] = {
        {"{", "", "not valid JSON"},
        {"\"Unigram\"", "\"BPE\"", "model.type is BPE"},
        {"\"vocab\": [", "\"vocab\": [], \"words\": [", "model.vocab"},
        {"\"vocab\": [", "\"vocab\": [[\"x\"], ", "entry 0"},
        {"\"vocab\": [", "\"vocab\": [7, ", "entry 0"},
        {"\"precompiled_charsmap\": \"", "\"precompiled_charsmap\": \"?", "base64"},
        {"\"precompiled_charsmap\": \"", "\"precompiled_charsmap\": \"AAAA", "normaliser's table"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *folder = folder_with_json(edits[i].from, edits[i].to, false);
        ith_tokenizer *tokenizer = NULL;
        ith_status status = ith_tokenizer_load(context, folder, &tokenizer);
        if (!status || !strstr(ith_context_error(context), edits[i].word))
            fail_msg("'%s': %s", edits[i].to, status ? ith_context_error(context) : "taken");
        ith_tokenizer_free(context, &tokenizer);
        temporary_remove(folder);
    }
}

#define TABLE "\"normalizer\": {"
#define SPLIT "\"pre_tokenizer\": {"
#define AFTER "\"post_processor\": {"
#define TEMPLATE "{\"type\":\"TemplateProcessing\",\"single\":["
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define LAST "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#define MARK "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
#define STEPS "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
/* Edits of the saved file. word: a part of the sentence that refuses it; NULL: the file is taken. */
static const struct {
    const char *from, *to, *word;
} step_edits[] = {
    {TABLE, "\"normalizer\":{\"type\":\"Lowercase\"},\"unused\": {", "'Lowercase' of its normalizer"},
    {TABLE,
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},{\"type\":\"NFD\"}]},\"unused\": "
     "{",
     "'NFD' of its normalizer"},
    {TABLE, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"},\"unused\": {",
     "'Replace' of its normalizer"},
    {TABLE, "\"normalizer\":[],\"unused\": {", "'' of its normalizer"},
    {TABLE, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},\"unused\": {",
     NULL},
    {TABLE, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"x\"},\"unused\": {",
     "'Replace' of its normalizer"},
    {TABLE, "\"normalizer\":null,\"unused\": {", NULL},
    {SPLIT, "\"pre_tokenizer\":{\"type\":\"Digits\"},\"unused\": {", "'Digits' of its pre_tokenizer"},
    {SPLIT, "\"pre_tokenizer\":" MARK "\"never\"},\"unused\": {", "'Metaspace' of its pre_tokenizer"},
    {SPLIT, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"add_prefix_space\":false},\"unused\": {",
     "'Metaspace' of its pre_tokenizer"},
    {SPLIT, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"unused\": {",
     "'Metaspace' of its pre_tokenizer"},
    {SPLIT, "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"unused\": {", "'WhitespaceSplit' of its pre_tokenizer"},
    {SPLIT, STEPS "{\"type\":\"WhitespaceSplit\"}]},\"unused\": {", "'WhitespaceSplit' of its pre_tokenizer"},
    {SPLIT, STEPS "]},\"unused\": {", "'' of its pre_tokenizer"},
    {SPLIT, STEPS "{\"type\":\"WhitespaceSplit\"}," MARK "\"first\"}]},\"unused\": {",
     "'Metaspace' of its pre_tokenizer"},
    {SPLIT, STEPS "{\"type\":\"WhitespaceSplit\"}," MARK "\"always\"}]},\"unused\": {", NULL},
    {SPLIT, STEPS MARK "\"first\"}]},\"unused\": {", NULL},
    {SPLIT, "\"pre_tokenizer\":" MARK "\"first\"},\"unused\": {", NULL},
    {SPLIT, "\"pre_tokenizer\":" MARK "\"always\"},\"unused\": {", NULL},
    {SPLIT, "\"pre_tokenizer\":null,\"unused\": {", NULL},
    {AFTER, "\"post_processor\":null,\"unused\": {", NULL},
    {AFTER, "\"post_processor\":" TEMPLATE TEXT "]},\"unused\": {", "to add </s> to a text"},
    {AFTER, "\"post_processor\":" TEMPLATE LAST "," TEXT "," LAST "]},\"unused\": {", "to add </s> to a text"},
    {AFTER, "\"post_processor\":" TEMPLATE TEXT "," LAST "]},\"unused\": {", NULL},
    {AFTER, "\"post_processor\":{\"type\":\"ByteLevel\"},\"unused\": {", "to add </s> to a text"},
    {"\"single_word\": false", "\"single_word\": true", "'<pad>' has single_word"},
    {"\"lstrip\": false", "\"lstrip\": true", NULL},
    {"\"rstrip\": false", "\"rstrip\": true", NULL},
    {SPLIT, "\"pre_tokenizer\":" MARK "null},\"unused\": {", NULL},
    {SPLIT, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"add_prefix_space\":true},\"unused\": {", NULL},
};

/* Steps around the vocabulary that SentencePiece does not have give other ids in the reference. Each case replaces the
 * steps of the saved file, which are a table of characters, a split at spaces, and a mark for them. Without the mark,
 * or with one before the first word alone, the reference reads "a red circle" as other pieces. */
static void steps_of_other_tokenizers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof step_edits / sizeof *step_edits); i++) {
        char *folder = folder_with_json(step_edits[i / 2].from, step_edits[i / 2].to, i % 2);
        ith_tokenizer *tokenizer = NULL;
        ith_status status = ith_tokenizer_load(context, folder, &tokenizer);
        const char *word = step_edits[i / 2].word;
        if (word ? !status || !strstr(ith_context_error(context), word) : status)
            fail_msg("'%s': %s", step_edits[i / 2].to, status ? ith_context_error(context) : "taken");
        ith_tokenizer_free(context, &tokenizer);
        temporary_remove(folder);
    }
}

/* Writes the tokenizer.json of the folder with more pieces and added tokens. */
static void write_longer(const char *folder, json_t *pieces, int added)
{
    json_t *root = json_load_file(TOKENIZER_SAVED, 0, NULL), *tokens = json_object_get(root, "added_tokens");
    json_array_extend(json_object_get(json_object_get(root, "model"), "vocab"), pieces);
    for (int i = 0; i < added; i++)
        json_array_append_new(tokens, json_pack("{s:i}", "id", 1 << 30));
    assert_int_equal(json_dump_file(root, temporary_path(folder, "tokenizer.json"), JSON_COMPACT), 0);
    json_decref(pieces);
    json_decref(root);
}

/* SentencePiece calls itself for every byte of a piece: 10 million of them overflow the stack. */
static void long_pieces_are_refused(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    char *folder = temporary_folder(), text[MOST + 2];
    memset(text, 'x', sizeof text);
    text[MOST + 1] = '\0';
    write_longer(folder, json_pack("[[s%,f]]", text, (size_t)MOST, -20.0), 0);
    ith_tokenizer *tokenizer = NULL;
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), ITH_OK);
    ith_tokenizer_free(context, &tokenizer);
    write_longer(folder, json_pack("[[s,f]]", text, -20.0), 0);
    expect_refused(folder, ITH_ERR_FORMAT, "piece 1536 has 1025 bytes");
}

/* Many pieces and many added tokens take time for each, not for each pair. */
static void many_added_tokens_are_quick(void **state)
{
    (void)state;
    enum { MANY = 30000, MOST_SECONDS = 4 };
    char *folder = temporary_folder(), text[16];
    json_t *pieces = json_array();
    for (int i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "piece%d", i);
        json_array_append_new(pieces, json_pack("[s,f]", text, -20.0));
    }
    write_longer(folder, pieces, MANY);
    ith_tokenizer *tokenizer = NULL;
    const clock_t start = clock();
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), ITH_OK);
    assert_true((clock() - start) / CLOCKS_PER_SEC < MOST_SECONDS);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    char *folder = folder_with(model, model_bytes, "{\"model\": {}}");
    assert_true(refuse_every_allocation(load_and_tokenize, folder, 1) > 8);
    assert_true(refuse_every_allocation(load_and_tokenize, (void *)TOKENIZER_SAVED, 1) > 8);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_reference),
        cmocka_unit_test(a_tokenizer_alone_holds_its_context),
        cmocka_unit_test(equal_scores_are_decided_as_by_the_reference),
        cmocka_unit_test(tokenizer_json_alone_gives_the_same_ids),
        cmocka_unit_test(names_of_special_pieces_are_pieces),
        cmocka_unit_test(the_first_added_token_counts),
        cmocka_unit_test(some_bytes_are_no_bytes),
        cmocka_unit_test(a_lent_tokenizer_json_is_read),
        cmocka_unit_test(names_of_added_tokens_are_pieces),
        cmocka_unit_test(broken_tokenizer_json_is_refused),
        cmocka_unit_test(steps_of_other_tokenizers_are_refused),
        cmocka_unit_test(tokenizer_json_decides_what_is_unknown),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(damaged_models_are_survived),
        cmocka_unit_test(long_pieces_are_refused),
        cmocka_unit_test(many_added_tokens_are_quick),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
