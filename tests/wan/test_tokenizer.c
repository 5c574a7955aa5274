/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer compared with ids that SentencePiece gave (golden/shapes/tokenizer.json), also where divisions of a
 * text have equal scores (golden/ties.json); and damaged model files. */
#include "base/lent_files.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/text/piece_model.h"
#include "wan/text/tokenizer.h"

#include <jansson.h>
#include <math.h>
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

static void expect_ids(const ith_tokenizer *tokenizer, const char *text, const int32_t *wanted, int64_t wanted_count)
{
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    check(context, ith_tokenizer_encode(context, tokenizer, text, ids, &count));
    if (count != wanted_count || memcmp(ids, wanted, (size_t)count * sizeof *ids) != 0)
        fail_msg("'%s' has other ids, %lld", text, (long long)count);
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
    const size_t table = find_table(), table_bytes = 0x2bc00;
    char text[3 * 3000 + 1] = "";
    size_t length = 0;
    for (unsigned c = 0xa0; c < 0xa0 + 3000; c++) { /* every two-byte character and some with three */
        if (c < 0x800)
            text[length++] = (char)(0xc0 | c >> 6);
        else
            text[length++] = (char)0xe0, text[length++] = (char)(0x80 | (c >> 6 & 0x3f));
        text[length++] = (char)(0x80 | (c & 0x3f));
    }
    srand(7);
    unsigned char *copy = malloc(model_bytes);
    int loaded = 0, refused = 0;
    for (int round = 0; round < 240; round++) {
        memcpy(copy, model, model_bytes);
        for (int change = rand() % 8; change >= 0; change--) {
            size_t random = (size_t)rand();
            size_t at = round % 2 ? table + 4 + random % table_bytes : random % model_bytes;
            copy[at] = (unsigned char)rand();
        }
        if (survives(copy, model_bytes - (round % 5 ? 0 : (size_t)rand() % model_bytes), text))
            loaded++;
        else
            refused++;
    }
    free(copy);
    assert_true(loaded > 10 && refused > 10);
}

/* ---- tokenizer.json alone ---------------------------------------------------------------------------------------- */

#define SAVED "golden/transformers_5/tokenizer.json" /* the same tokenizer, saved by transformers 5 */

/* Makes a folder with a tokenizer.json in which `to` replaces the first `from`. with_model: adds spiece.model. */
static char *folder_with_json(const char *from, const char *to, bool with_model)
{
    char *folder = temporary_folder(), *text = temporary_read(SAVED, NULL), *at = strstr(text, from);
    assert_non_null(at);
    char *edited = malloc(strlen(text) + strlen(to) + 1);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    temporary_write(temporary_path(folder, "tokenizer.json"), edited, strlen(edited));
    if (with_model)
        temporary_write(temporary_path(folder, "spiece.model"), model, model_bytes);
    free(text), free(edited);
    return folder;
}

/* The ids are those that SentencePiece gives with its own file, for every prompt and with both rules for unknown
 * characters. */
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
        check(context, ith_tokenizer_load(context, json ? SAVED : "../models/shapes/tokenizer", &tokenizer));
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
    json_t *root = json_load_file(SAVED, 0, NULL), *tokens = json_object_get(root, "added_tokens");
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
    char *text = temporary_read(SAVED, &bytes);
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

/* A small vocabulary, whose best divisions follow by hand from the rules of SentencePiece. The sum of the scores
 * counts. An unknown character scores 10 less than the worst usual piece (-5), whatever longer pieces begin with it. A
 * piece that a user has defined scores -0.1. */
static void divisions_have_the_best_sum(void **state)
{
    (void)state;
    enum { UNKNOWN = 2, SPACE = 3, AB, BCD, X, Y, XY, W, WZ, Q, HIJK, GH, I, J, K, MNOP, LM, N, O, P };
    static const struct {
        const char *piece;
        float score;
        ith_piece_type type;
    } pieces[] = {{"<pad>", -100, ITH_PIECE_CONTROL}, {"</s>", 0, ITH_PIECE_CONTROL}, {"<unk>", 0, ITH_PIECE_UNKNOWN},
                  {"\u2581", -1, ITH_PIECE_NORMAL},   {"ab", -2, ITH_PIECE_NORMAL},   {"bcd", -3, ITH_PIECE_NORMAL},
                  {"x", -0.2f, ITH_PIECE_NORMAL},     {"y", -0.2f, ITH_PIECE_NORMAL}, {"xy", -9, ITH_PIECE_USER},
                  {"w", -4.5f, ITH_PIECE_NORMAL},     {"wz", -20, ITH_PIECE_UNUSED},  {"q", -5, ITH_PIECE_NORMAL},
                  {"hijk", -1, ITH_PIECE_NORMAL},     {"gh", -5, ITH_PIECE_NORMAL},   {"i", -5, ITH_PIECE_NORMAL},
                  {"j", -5, ITH_PIECE_NORMAL},        {"k", -0.5f, ITH_PIECE_NORMAL}, {"mnop", -1, ITH_PIECE_NORMAL},
                  {"lm", -5, ITH_PIECE_NORMAL},       {"n", -5, ITH_PIECE_NORMAL},    {"o", -5, ITH_PIECE_NORMAL},
                  {"p", -1.5f, ITH_PIECE_NORMAL}};
    static const struct {
        const char *text;
        int32_t ids[6];
        int64_t count;
    } cases[] = {
        {"ab", {SPACE, AB, 1}, 3},
        {"abcd", {SPACE, UNKNOWN, BCD, 1}, 4}, /* -15 - 3 is more than -2 - 30 */
        {"xy", {SPACE, XY, 1}, 3},
        {"wz", {SPACE, W, UNKNOWN, 1}, 4},
        {"qx", {SPACE, Q, X, 1}, 4},
        {"ghijk", {SPACE, GH, I, J, K, 1}, 6},   /* -15.5 is more than -15 - 1 */
        {"lmnop", {SPACE, UNKNOWN, MNOP, 1}, 4}, /* -15 - 1 is more than -16.5 */
    };
    ith_piece_model made = {.context = context};
    ith_tokenizer *tokenizer = NULL;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        ith_piece_model_add(&made, pieces[i].piece, (int64_t)strlen(pieces[i].piece), pieces[i].score, pieces[i].type);
    ith_piece_model_end(&made, (ith_piece_spaces){true, true}, NULL, 0);
    assert_false(made.failed);
    check(context, ith_tokenizer_make(context, "it", made.data, made.bytes, &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ids(tokenizer, cases[i].text, cases[i].ids, cases[i].count);
    ith_tokenizer_free(context, &tokenizer);
    ith_free(context, made.data);
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

/* Steps around the vocabulary that SentencePiece has not give other ids in the reference. Each case replaces the steps
 * of the saved file, which are a table of characters, a split at spaces, and a mark for them. Without the mark, or with
 * one before the first word alone, the reference reads "a red circle" as other pieces. */
static void steps_of_other_tokenizers_are_refused(void **state)
{
    (void)state;
#define TABLE "\"normalizer\": {"
#define SPLIT "\"pre_tokenizer\": {"
#define AFTER "\"post_processor\": {"
#define TEMPLATE "{\"type\":\"TemplateProcessing\",\"single\":["
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define LAST "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#define MARK "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
#define STEPS "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    static const struct {
        const char *from, *to, *word; /* word NULL: the file is taken */
    } edits[] = {
        {TABLE, "\"normalizer\":{\"type\":\"Lowercase\"},\"unused\": {", "'Lowercase' of its normalizer"},
        {TABLE,
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},{\"type\":\"NFD\"}]},\"unused\": "
         "{",
         "'NFD' of its normalizer"},
        {TABLE, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"},\"unused\": {",
         "'Replace' of its normalizer"},
        {TABLE, "\"normalizer\":[],\"unused\": {", "'' of its normalizer"},
        {TABLE,
         "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},\"unused\": {",
         NULL},
        {TABLE,
         "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"x\"},\"unused\": {",
         "'Replace' of its normalizer"},
        {TABLE, "\"normalizer\":null,\"unused\": {", NULL},
        {SPLIT, "\"pre_tokenizer\":{\"type\":\"Digits\"},\"unused\": {", "'Digits' of its pre_tokenizer"},
        {SPLIT, "\"pre_tokenizer\":" MARK "\"never\"},\"unused\": {", "'Metaspace' of its pre_tokenizer"},
        {SPLIT, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"add_prefix_space\":false},\"unused\": {",
         "'Metaspace' of its pre_tokenizer"},
        {SPLIT, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"unused\": {",
         "'Metaspace' of its pre_tokenizer"},
        {SPLIT, "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"unused\": {",
         "'WhitespaceSplit' of its pre_tokenizer"},
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
    for (size_t i = 0; i < 2 * (sizeof edits / sizeof *edits); i++) {
        char *folder = folder_with_json(edits[i / 2].from, edits[i / 2].to, i % 2);
        ith_tokenizer *tokenizer = NULL;
        ith_status status = ith_tokenizer_load(context, folder, &tokenizer);
        const char *word = edits[i / 2].word;
        if (word ? !status || !strstr(ith_context_error(context), word) : status)
            fail_msg("'%s': %s", edits[i / 2].to, status ? ith_context_error(context) : "taken");
        ith_tokenizer_free(context, &tokenizer);
        temporary_remove(folder);
    }
}

/* ---- Models made by hand ----------------------------------------------------------------------------------------- */

/* The pieces with which every model here begins: </s> and <unk> with their ids 0 and 1. */
static ith_piece_model begin_model(void)
{
    ith_piece_model made = {.context = context};
    ith_piece_model_add(&made, "</s>", 4, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "<unk>", 5, 0, ITH_PIECE_UNKNOWN);
    return made;
}

/* Makes the tokenizer of a model, and frees the model. map: the normaliser's table. */
static ith_status end_model(ith_piece_model *made, const void *map, int64_t map_bytes, ith_tokenizer **tokenizer)
{
    ith_piece_model_end(made, (ith_piece_spaces){true, true}, map, map_bytes);
    assert_false(made->failed);
    const ith_status status = ith_tokenizer_make(context, "it", made->data, made->bytes, tokenizer);
    ith_free(context, made->data);
    return status;
}

/* The lengths in the model file take one byte up to 127, and then two. */
static void pieces_of_every_length_are_pieces(void **state)
{
    (void)state;
    enum { MOST = 300, FIRST_ID = 2 };
    char text[3 + MOST + 1] = "\u2581";
    memset(text + 3, 'x', MOST);
    ith_piece_model made = begin_model();
    for (int length = 1; length <= MOST; length++)
        ith_piece_model_add(&made, text, 3 + length, -1, ITH_PIECE_NORMAL);
    ith_tokenizer *tokenizer = NULL;
    check(context, end_model(&made, NULL, 0, &tokenizer));
    for (int length = MOST; length >= 1; length--) {
        const int32_t wanted[] = {FIRST_ID + length - 1, 0};
        text[3 + length] = '\0';
        expect_ids(tokenizer, text + 3, wanted, 2);
    }
    ith_tokenizer_free(context, &tokenizer);
}

/* If a text goes on with two names of special pieces, the longer one counts, as in tokenizers' added vocabulary. */
static void the_longest_special_name_counts(void **state)
{
    (void)state;
    enum { AT_AT = 2, AT, AT_AT_AT };
    const int32_t one[] = {AT, 0}, two[] = {AT_AT, 0}, three[] = {AT_AT_AT, 0}, four[] = {AT_AT_AT, AT, 0};
    ith_piece_model made = begin_model();
    ith_piece_model_add(&made, "@@", 2, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "@", 1, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "@@@", 3, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "a", 1, -1, ITH_PIECE_NORMAL);
    ith_tokenizer *tokenizer = NULL;
    check(context, end_model(&made, NULL, 0, &tokenizer));
    expect_ids(tokenizer, "@", one, 2);
    expect_ids(tokenizer, "@@", two, 2);
    expect_ids(tokenizer, "@@@", three, 2);
    expect_ids(tokenizer, "@@@@", four, 3);
    ith_tokenizer_free(context, &tokenizer);
}

static void scores_are_finite(void **state)
{
    (void)state;
    const float scores[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        ith_piece_model made = begin_model();
        ith_tokenizer *tokenizer = NULL;
        ith_piece_model_add(&made, "a", 1, scores[i], ITH_PIECE_NORMAL);
        assert_int_equal(end_model(&made, NULL, 0, &tokenizer), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), "score of piece 2"));
    }
}

/* A prompt ends with </s>, so a tokenizer needs it. */
static void a_tokenizer_has_an_end(void **state)
{
    (void)state;
    ith_piece_model made = {.context = context};
    ith_tokenizer *tokenizer = NULL;
    ith_piece_model_add(&made, "<unk>", 5, 0, ITH_PIECE_UNKNOWN);
    ith_piece_model_add(&made, "a", 1, -1, ITH_PIECE_NORMAL);
    assert_int_equal(end_model(&made, NULL, 0, &tokenizer), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "has no </s>"));
}

#define BLOCK 256 /* units of a trie: the children of a node */

/* A normaliser's table. Its trie has the keys "a", "aa" and so on, `length` of them if `ends` is set, otherwise one
 * path of this length without a key. All keys are replaced by the string at `string`. */
typedef struct table {
    int length;
    bool ends, wide;      /* wide: offsets are written as multiples of 256 */
    int cut_units;        /* missing at the end of the trie */
    unsigned char letter; /* the only string; 0: "b" */
    uint32_t string;      /* the keys' replacement */
    int tail;             /* the last byte of the table */
    int64_t trie_bytes;   /* 0, or a wrong size */
    bool valid;
} table;

/* The unit of a node with this label: its children are the units from `children` on. */
static uint32_t unit_of(const table *t, uint32_t label, uint32_t index, uint32_t children)
{
    const uint32_t offset = index ^ children;
    if (t->wide && offset % 256 == 0)
        return label | 0x200u | (offset / 256) << 10;
    return label | offset << 10;
}

/* Writes the table, and returns its bytes. Node i of the path is the unit for 'a' in block i, and its children are
 * block i + 1. */
static int64_t write_table(const table *t, unsigned char *out)
{
    const int units = (t->length + 2) * BLOCK - t->cut_units;
    uint32_t *unit = malloc((size_t)(t->length + 2) * BLOCK * sizeof *unit);
    const uint32_t ends = t->ends ? 0x100 : 0;
    for (int i = 0; i < (t->length + 2) * BLOCK; i++)
        unit[i] = 0x80000000u | (i % BLOCK ? 0 : t->string);
    unit[0] = unit_of(t, 0, 0, BLOCK);
    for (uint32_t i = 1; i <= (uint32_t)t->length; i++)
        unit[i * BLOCK + 'a'] = unit_of(t, 'a' | ends, i * BLOCK + 'a', (i + 1) * BLOCK);
    const uint32_t bytes = (uint32_t)(t->trie_bytes ? t->trie_bytes : units * 4);
    memcpy(out, &bytes, 4);
    memcpy(out + 4, unit, (size_t)units * 4);
    out[4 + units * 4] = t->letter ? t->letter : 'b', out[5 + units * 4] = (unsigned char)t->tail;
    free(unit);
    return 6 + units * 4;
}

/* SentencePiece follows the offsets of a table without a check, and has room for 32 keys that begin one another. */
static void tables_are_checked_to_their_ends(void **state)
{
    (void)state;
    static const table cases[] = {
        {.length = 1, .ends = true, .valid = true},
        {.length = 1, .ends = true, .wide = true, .valid = true},
        {.length = 1, .ends = true, .letter = 0xf0, .valid = true}, /* the first byte of four */
        {.length = 1, .ends = true, .cut_units = 1},
        {.length = 0, .valid = true},
        {.length = 0, .cut_units = 1},
        {.length = 0, .wide = true, .cut_units = 1},
        {.length = 1, .ends = true, .string = 1, .valid = true},
        {.length = 1, .ends = true, .string = 2},
        {.length = 1, .string = 2, .valid = true}, /* no key ends, so no string is read */
        {.length = 32, .ends = true, .valid = true},
        {.length = 33, .ends = true},
        {.length = 256, .valid = true},
        {.length = 257},
        {.length = 1, .ends = true, .tail = 'b'},
        {.length = 1, .ends = true, .trie_bytes = 3 * BLOCK * 4 + 1},
        {.length = 1, .ends = true, .trie_bytes = 3 * BLOCK * 4 + 4},
    };
    static const int32_t b[] = {2, 0}, unknown[] = {1, 0};
    unsigned char *map = malloc(260 * BLOCK * 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_piece_model made = begin_model();
        ith_tokenizer *tokenizer = NULL;
        ith_piece_model_add(&made, "\u2581b", 4, -1, ITH_PIECE_NORMAL);
        const ith_status status = end_model(&made, map, write_table(&cases[i], map), &tokenizer);
        if (status != (cases[i].valid ? ITH_OK : ITH_ERR_FORMAT))
            fail_msg("case %zu: %s", i, status ? ith_context_error(context) : "taken");
        if (cases[i].valid && cases[i].ends && cases[i].length == 1 && !cases[i].string)
            expect_ids(tokenizer, "a", cases[i].letter ? unknown : b, 2);
        ith_tokenizer_free(context, &tokenizer);
    }
    free(map);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    unsigned char bytes[1 << 20];
    size_t used;
} writer;

static void put(writer *w, const void *data, size_t bytes)
{
    memcpy(w->bytes + w->used, data, bytes);
    w->used += bytes;
}

static void put_u32(writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_u64(writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_text(writer *w, const char *text)
{
    put_u64(w, strlen(text));
    put(w, text, strlen(text));
}

static void begin_array(writer *w, const char *key, uint32_t type, uint64_t count)
{
    put_text(w, key);
    put_u32(w, 9);
    put_u32(w, type);
    put_u64(w, count);
}

/* The bytes of the normaliser's table in spiece.model. The table is found by its first bytes, the size of its trie. */
static const unsigned char *charsmap(size_t *bytes)
{
    static const unsigned char begin[] = {0x00, 0xbc, 0x02, 0x00};
    for (size_t i = 4; i + 4 < model_bytes; i++)
        if (!memcmp(model + i, begin, 4) && model[i - 1] < 0x80 && model[i - 2] >= 0x80 && model[i - 3] >= 0x80) {
            *bytes = (size_t)(model[i - 3] & 0x7f) | (size_t)(model[i - 2] & 0x7f) << 7 | (size_t)model[i - 1] << 14;
            return model + i;
        }
    fail_msg("no table");
    return NULL;
}

static void put_bool(writer *w, const char *key, bool value)
{
    put_text(w, key);
    put_u32(w, 7);
    put(w, value ? "\1" : "\0", 1);
}

/* The tokenizer of a GGUF file. */
typedef struct gguf {
    size_t scores, types; /* numbers of scores and of types */
    int32_t first_type;   /* of the first piece */
    uint32_t map_type;    /* of an element of the normaliser's table: 0 is u8, 4 is u32 */
    bool prefix, joins;   /* what the file says about spaces */
} gguf;

static const gguf whole = {.scores = 1536, .types = 1536, .first_type = 3, .prefix = true, .joins = true};

/* Writes a GGUF file without tensors, with the tokenizer that transformers 5 has saved. */
static void write_gguf(const char *path, const gguf *g)
{
    writer *w = calloc(1, sizeof *w);
    json_t *root = json_load_file(SAVED, 0, NULL), *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
           *pair;
    size_t index, map_bytes = 0, count = json_array_size(vocab);
    const unsigned char *map = charsmap(&map_bytes);
    put(w, "GGUF", 4);
    put_u32(w, 3), put_u64(w, 0), put_u64(w, 6);
    put_bool(w, "tokenizer.ggml.add_space_prefix", g->prefix);
    put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", g->joins);
    begin_array(w, "tokenizer.ggml.tokens", 8, count);
    json_array_foreach(vocab, index, pair)
    {
        put_text(w, json_string_value(json_array_get(pair, 0)));
    }
    begin_array(w, "tokenizer.ggml.scores", 6, g->scores);
    json_array_foreach(vocab, index, pair)
    {
        const float score = (float)json_number_value(json_array_get(pair, 1));
        if (index < g->scores)
            put(w, &score, sizeof score);
    }
    begin_array(w, "tokenizer.ggml.token_type", 5, g->types);
    json_array_foreach(vocab, index, pair)
    {
        const char *piece = json_string_value(json_array_get(pair, 0));
        const int32_t type = !index                      ? g->first_type
                             : index < 3                 ? 3
                             : index == 3                ? 2
                             : !strncmp(piece, "<0x", 3) ? 6
                                                         : 1;
        if (index < g->types)
            put(w, &type, sizeof type);
    }
    begin_array(w, "tokenizer.ggml.precompiled_charsmap", g->map_type, g->map_type ? map_bytes / 4 : map_bytes);
    put(w, map, map_bytes);
    temporary_write(path, w->bytes, w->used);
    json_decref(root);
    free(w);
}

/* The ids are those of SentencePiece with these two settings in spiece.model. U+200B becomes a space there. */
static void a_tokenizer_in_gguf_says_what_spaces_do(void **state)
{
    (void)state;
    static const struct {
        bool prefix, joins;
        int32_t ids[4];
        int count;
    } cases[] = {
        {false, false, {324, 263, 296, 1}, 4},
        {false, true, {324, 296, 1}, 3},
        {true, false, {260, 263, 296, 1}, 4},
        {true, true, {260, 296, 1}, 3},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "umt5.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_tokenizer *tokenizer = NULL;
        int32_t ids[ITH_TEXT_LEN];
        int64_t count = 0;
        gguf file = whole;
        file.prefix = cases[i].prefix, file.joins = cases[i].joins;
        write_gguf(path, &file);
        check(context, ith_tokenizer_load(context, path, &tokenizer));
        check(context, ith_tokenizer_encode(context, tokenizer, "a\u200b\u200bred", ids, &count));
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, (size_t)count * sizeof *ids);
        ith_tokenizer_free(context, &tokenizer);
    }
    temporary_remove(folder);
}

static void a_tokenizer_in_gguf_gives_the_same_ids(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    json_t *prompts = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    size_t index;
    ith_tokenizer *tokenizer = NULL;
    write_gguf(temporary_path(folder, "umt5.gguf"), &whole);
    check(context, ith_tokenizer_load(context, temporary_path(folder, "umt5.gguf"), &tokenizer));
    json_array_foreach(prompts, index, one)
    {
        int32_t ids[ITH_TEXT_LEN];
        int64_t count = 0;
        const json_t *wanted = json_object_get(one, "ids");
        check(context,
              ith_tokenizer_encode(context, tokenizer, json_string_value(json_object_get(one, "text")), ids, &count));
        assert_int_equal(count, json_array_size(wanted));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(ids[i], json_integer_value(json_array_get(wanted, (size_t)i)));
    }
    ith_tokenizer_free(context, &tokenizer);
    json_decref(prompts);
    temporary_remove(folder);
}

/* Each piece has a score and a type, and the table consists of bytes. */
static void a_tokenizer_in_gguf_is_complete(void **state)
{
    (void)state;
    static const struct {
        gguf file;
        const char *word;
    } cases[] = {
        {{.scores = 1535, .types = 1536, .first_type = 3}, "as many"},
        {{.scores = 1536, .types = 1535, .first_type = 3}, "as many"},
        {{.scores = 1536, .types = 1536, .first_type = 3, .map_type = 4}, "as many"},
        {{.scores = 1536, .types = 1536, .first_type = 7}, "entry 0"},
        {{.scores = 1536, .types = 1536, .first_type = 0}, "entry 0"},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "umt5.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_tokenizer *tokenizer = NULL;
        write_gguf(path, &cases[i].file);
        assert_int_equal(ith_tokenizer_load(context, path, &tokenizer), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), cases[i].word));
        assert_null(tokenizer);
    }
    temporary_remove(folder);
}

/* Loads a file in which some bytes are changed and, if this succeeds, encodes a text. Returns whether it succeeded. */
static bool survives_in(const char *path, const char *bytes, size_t count)
{
    char *copy = malloc(count);
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t id_count = 0;
    memcpy(copy, bytes, count);
    for (int change = rand() % 4; change >= 0; change--)
        copy[(size_t)rand() % count] = (char)rand();
    temporary_write(path, copy, count);
    const bool loads = !ith_tokenizer_load(context, path, &tokenizer);
    if (loads)
        check(context, ith_tokenizer_encode(context, tokenizer, "a red circle, \xc3\xa9\xe2\x82\xac", ids, &id_count));
    ith_tokenizer_free(context, &tokenizer);
    free(copy);
    return loads;
}

static void damaged_vocabularies_are_survived(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    size_t bytes[2] = {0, 0};
    write_gguf(temporary_path(folder, "whole.gguf"), &whole);
    char *files[] = {temporary_read(SAVED, &bytes[0]), temporary_read(temporary_path(folder, "whole.gguf"), &bytes[1])};
    srand(11);
    for (int form = 0; form < 2; form++) {
        const char *name = form ? "damaged.gguf" : "damaged.json";
        int loaded = 0;
        for (int round = 0; round < 60; round++)
            loaded += survives_in(temporary_path(folder, name), files[form], bytes[form]);
        print_message("%d of 60 damaged files are tokenizers\n", loaded);
        assert_true(loaded > 0 && loaded < 60);
    }
    free(files[0]), free(files[1]);
    temporary_remove(folder);
}

/* Writes the tokenizer.json of the folder with more pieces and added tokens. */
static void write_longer(const char *folder, json_t *pieces, int added)
{
    json_t *root = json_load_file(SAVED, 0, NULL), *tokens = json_object_get(root, "added_tokens");
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

/* Loads the model at the path `user` and encodes a text. */
static ith_status load_and_tokenize(ith_context *poor, void *user)
{
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    ith_status status = ith_tokenizer_load(poor, user, &tokenizer);
    if (!status)
        status = ith_tokenizer_encode(poor, tokenizer, "red &amp; \u00e9", ids, &count);
    ith_tokenizer_free(poor, &tokenizer);
    return status;
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    char *folder = folder_with(model, model_bytes, "{\"model\": {}}");
    assert_true(refuse_every_allocation(load_and_tokenize, folder, 1) > 8);
    assert_true(refuse_every_allocation(load_and_tokenize, (void *)SAVED, 1) > 8);
    write_gguf(temporary_path(folder, "umt5.gguf"), &whole);
    assert_true(refuse_every_allocation(load_and_tokenize, (void *)temporary_path(folder, "umt5.gguf"), 1) > 8);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_reference),
        cmocka_unit_test(equal_scores_are_decided_as_by_the_reference),
        cmocka_unit_test(tokenizer_json_alone_gives_the_same_ids),
        cmocka_unit_test(names_of_special_pieces_are_pieces),
        cmocka_unit_test(the_first_added_token_counts),
        cmocka_unit_test(some_bytes_are_no_bytes),
        cmocka_unit_test(a_lent_tokenizer_json_is_read),
        cmocka_unit_test(divisions_have_the_best_sum),
        cmocka_unit_test(names_of_added_tokens_are_pieces),
        cmocka_unit_test(broken_tokenizer_json_is_refused),
        cmocka_unit_test(a_tokenizer_in_gguf_gives_the_same_ids),
        cmocka_unit_test(a_tokenizer_in_gguf_says_what_spaces_do),
        cmocka_unit_test(steps_of_other_tokenizers_are_refused),
        cmocka_unit_test(a_tokenizer_in_gguf_is_complete),
        cmocka_unit_test(pieces_of_every_length_are_pieces),
        cmocka_unit_test(the_longest_special_name_counts),
        cmocka_unit_test(scores_are_finite),
        cmocka_unit_test(a_tokenizer_has_an_end),
        cmocka_unit_test(tables_are_checked_to_their_ends),
        cmocka_unit_test(damaged_vocabularies_are_survived),
        cmocka_unit_test(tokenizer_json_decides_what_is_unknown),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(damaged_models_are_survived),
        cmocka_unit_test(long_pieces_are_refused),
        cmocka_unit_test(many_added_tokens_are_quick),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
