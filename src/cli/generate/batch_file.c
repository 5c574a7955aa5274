/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of --prompts, and turns the members of JSON objects into values of options (batch_file.h). */
#include "batch_file.h"

#include "../cli.h"
#include "../file/input_file.h"
#include "../support/text_value.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 512
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* with which some editors begin a file */

/* The options that one video may have for itself. */
static const char *const own_options[] = {
    "prompt",   "negative", "output", "seed",  "frames", "height", "width",      "area", "steps", "guidance", "shift",
    "boundary", "solver",   "sigmas", "noise", "image",  "fit",    "last-image", "fps",  "crf",   NULL};

static int complain(const char *path, int64_t number, const char *name, const char *why)
{
    return ith_cli_error("%s:%lld: %s%s%s", path, (long long)number, name, *name ? ": " : "", why);
}

/* Why a line is no JSON object. */
static const char *explain(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_numeric_overflow:
        return "a number is too large for JSON: a seed above 9223372036854775807 needs quotes";
    case json_error_null_character: return "a text has the character \\u0000, which no option takes";
    default: return error->text;
    }
}

/* Reads one line: a JSON object, or a prompt. */
static int read_line(const char *path, const char *text, ith_batch_line *line)
{
    json_error_t error;
    if (*text != '{') {
        line->prompt = strdup(text);
        return line->prompt ? ITH_EXIT_DONE : ith_cli_error("there is no memory for a prompt");
    }
    line->object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    return line->object ? ITH_EXIT_DONE : complain(path, line->number, "no JSON object", explain(&error));
}

/* Cuts white space off both ends of a line, and byte order marks off its beginning: files that are joined have one in
 * the first line of each file. Returns the line's beginning. */
static const char *trim(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && strchr("\r\n\t ", text[length - 1]))
        text[--length] = '\0';
    while (!strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)))
        text += strlen(BYTE_ORDER_MARK);
    return text + strspn(text, " \t");
}

/* Appends a line to the list. */
static int append_line(const char *path, const char *text, int64_t number, ith_batch_line **lines, int64_t *count)
{
    if (strchr(text, '\r'))
        return complain(path, number, "the line", "it has a carriage return inside: end each line with a line feed");
    if (*count == ITH_BATCH_MOST_VIDEOS)
        return ith_cli_error("%s:%lld: the line: one command makes %d videos at most", path, (long long)number,
                             ITH_BATCH_MOST_VIDEOS);
    ith_batch_line *longer = realloc(*lines, (size_t)(*count + 1) * sizeof **lines);
    if (!longer)
        return ith_cli_error("there is no memory for the lines of %s", path);
    *lines = longer;
    longer[*count] = (ith_batch_line){.number = number};
    return read_line(path, text, &longer[(*count)++]);
}

static int read_lines(FILE *file, const char *path, ith_batch_line **lines, int64_t *count)
{
    char *text = malloc(ITH_INPUT_LINE_BYTES + 1);
    const char *fault;
    int code = text ? ITH_EXIT_DONE : ith_cli_error("there is no memory for the lines of %s", path);
    for (int64_t number = 1; !code && ith_input_line(file, text, &fault); number++) {
        const char *begin = trim(text);
        if (fault)
            code = complain(path, number, "the line", fault);
        else if (*begin)
            code = append_line(path, begin, number, lines, count);
    }
    free(text);
    return code;
}

int ith_batch_lines_read(const char *path, bool alone, ith_batch_line **lines, int64_t *count)
{
    bool once;
    *lines = NULL, *count = 0;
    FILE *file = ith_input_open_once(path, &once);
    if (!file)
        return ith_cli_error("%s: cannot be read: %s", path,
                             errno == EINVAL ? "it is not a file or a pipe" : ith_input_fault());
    int code = once && !alone ? ith_cli_error("%s: it can be read once, and each process of the run reads the prompts: "
                                              "write them to a file, and name it",
                                              path)
                              : read_lines(file, path, lines, count);
    fclose(file);
    return code || *count ? code : ith_cli_error("%s: has no line with a prompt", path);
}

void ith_batch_lines_free(ith_batch_line *lines, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(lines[i].prompt);
        json_decref(lines[i].object);
    }
    free(lines);
}

/* Writes a JSON value as the text that the command line would have: [a, b] becomes "a,b". */
static bool print_value(const json_t *value, char *text, size_t bytes)
{
    if (json_is_integer(value))
        return snprintf(text, bytes, "%lld", (long long)json_integer_value(value)) > 0;
    if (json_is_real(value))
        return snprintf(text, bytes, "%.17g", json_real_value(value)) > 0;
    if (!json_is_array(value) || !json_array_size(value))
        return false;
    size_t length = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_number(item))
            return false;
        length += (size_t)snprintf(text + length, bytes - length, "%s%.17g", i ? "," : "", json_number_value(item));
        if (length >= bytes)
            return false;
    }
    return true;
}

static int apply_member(const ith_batch_line *line, const char *path, const char *name, const json_t *value,
                        ith_options *options)
{
    char text[VALUE_BYTES], why[256];
    const int index = ith_option_find(options, name);
    if (index < 0) {
        ith_option_unknown(options, name, why, sizeof why);
        return complain(path, line->number, name, why);
    }
    if (!ith_text_is_among(name, own_options))
        return complain(path, line->number, name, "it belongs to the whole batch: give it on the command line");
    const char *given = json_is_string(value) ? json_string_value(value) : text;
    if (!json_is_string(value) && !print_value(value, text, sizeof text))
        return complain(path, line->number, name, "its value is neither a text nor numbers");
    if (!ith_option_set(options, index, given, ITH_FROM_COMMAND, why, sizeof why))
        return complain(path, line->number, name, why);
    return ITH_EXIT_DONE;
}

int ith_batch_line_apply(const ith_batch_line *line, const char *path, ith_options *options)
{
    char why[256];
    const char *name;
    json_t *value;
    int code = ITH_EXIT_DONE;
    if (line->prompt &&
        !ith_option_set(options, ith_option_find(options, "prompt"), line->prompt, ITH_FROM_COMMAND, why, sizeof why))
        return complain(path, line->number, "prompt", why);
    if (line->prompt)
        return ITH_EXIT_DONE;
    json_object_foreach(line->object, name, value) if (!code) code = apply_member(line, path, name, value, options);
    return code;
}

bool ith_batch_line_sets(const ith_batch_line *line, const char *name)
{
    return json_object_get(line->object, name);
}
