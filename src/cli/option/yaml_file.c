/* SPDX-License-Identifier: Apache-2.0 */
/* YAML files: opens, limits, parses. See yaml_file.h. */
#include "yaml_file.h"

#include "../cli.h"
#include "../file/input_file.h"
#include "../support/text_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (1 << 20)
#define MAX_DEPTH 8     /* maximal nesting of lists and mappings */
#define MAX_ANCHORS 100 /* maximal number of anchors (&NAME) and of %TAG directives together */

/* A file that is read, and the function that takes its document. */
typedef struct reading {
    ith_yaml_file *file;
    const unsigned char *text;
    size_t bytes;
    bool ended; /* '...' has ended the document */
    int (*take)(void *user);
    void *user;
} reading;

int ith_yaml_complain(const ith_yaml_file *file, const yaml_node_t *node, const char *name, const char *why)
{
    return ith_cli_error("%s:%zu: %s: %s", file->path, node->start_mark.line + 1, name, why);
}

const char *ith_yaml_scalar(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

bool ith_yaml_is_text(const yaml_node_t *node)
{
    return ith_yaml_scalar(node) && strlen(ith_yaml_scalar(node)) == node->data.scalar.length;
}

bool ith_yaml_is_null(const yaml_node_t *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    const char *text = ith_yaml_scalar(node);
    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && ith_text_is_among(text, nulls);
}

/* The line of a byte of the text, from 1 on. */
static size_t line_of(const reading *r, size_t byte)
{
    size_t line = 1;
    for (size_t i = 0; i < byte && i < r->bytes; i++)
        line += r->text[i] == '\n';
    return line;
}

/* Whether a tab is in the white space at the beginning of a line. */
static bool has_tab(const reading *r, size_t line)
{
    size_t i = 0;
    for (size_t at = 1; at < line && i < r->bytes; i++)
        at += r->text[i] == '\n';
    while (i < r->bytes && r->text[i] == ' ')
        i++;
    return i < r->bytes && r->text[i] == '\t';
}

/* An error of libyaml in words for users; `problem` itself if it has no others. */
static const char *in_plain_words(const char *problem)
{
    static const char *const words[][2] = {
        {"mapping values are not allowed in this context",
         "': ' stands where no key can begin; text with ': ' needs quotes"},
        {"found character that cannot start any token",
         "the text begins with a character that YAML reserves; it needs quotes"},
        {"did not find expected <document start>",
         "text follows the end of the mapping, whose keys all begin in one column"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(problem, words[i][0]))
            return words[i][1];
    return problem;
}

/* Prints an error of libyaml with file and line, and the line of its cause if that is an earlier one: a quote that
 * nothing ends is found at the end of the file. */
static int explain_parser(const reading *r, const yaml_parser_t *parser)
{
    const bool reader = parser->error == YAML_READER_ERROR; /* the file is not valid text */
    const size_t line = reader ? line_of(r, parser->problem_offset) : parser->problem_mark.line + 1;
    const char *path = r->file->path, *problem = parser->problem ? parser->problem : "it is not YAML";
    if (!reader && r->ended)
        return ith_cli_error("%s:%zu: text follows '...', which ends the file", path,
                             parser->context ? parser->context_mark.line + 1 : line);
    if (!reader && has_tab(r, line))
        return ith_cli_error("%s:%zu: a tab stands before the text; YAML indents with spaces", path, line);
    if (reader || !parser->context || parser->context_mark.line + 1 == line || in_plain_words(problem) != problem)
        return ith_cli_error("%s:%zu: %s", path, line, in_plain_words(problem));
    return ith_cli_error("%s:%zu: %s %s, which begins in line %zu", path, line, problem, parser->context,
                         parser->context_mark.line + 1);
}

/* By how much a token changes the nesting of lists and mappings. */
static int nesting(yaml_token_type_t type)
{
    switch (type) {
    case YAML_BLOCK_SEQUENCE_START_TOKEN:
    case YAML_BLOCK_MAPPING_START_TOKEN:
    case YAML_FLOW_SEQUENCE_START_TOKEN:
    case YAML_FLOW_MAPPING_START_TOKEN: return 1;
    case YAML_BLOCK_END_TOKEN:
    case YAML_FLOW_SEQUENCE_END_TOKEN:
    case YAML_FLOW_MAPPING_END_TOKEN: return -1;
    default: return 0;
    }
}

/* Checks that there are few anchors and directives: libyaml compares each of them with all before it. The check ends at
 * an error and where the nesting is too deep, which check_events reports. */
static int check_anchors(reading *r, yaml_parser_t *parser)
{
    int count = 0, depth = 0;
    yaml_token_t token;
    for (bool end = false; !end && yaml_parser_scan(parser, &token);) {
        count += token.type == YAML_ANCHOR_TOKEN || token.type == YAML_TAG_DIRECTIVE_TOKEN;
        depth += nesting(token.type);
        end = token.type == YAML_STREAM_END_TOKEN || depth > MAX_DEPTH || count > MAX_ANCHORS;
        if (count > MAX_ANCHORS)
            ith_cli_error("%s:%zu: the file has more than %d anchors (&NAME) and %%TAG directives", r->file->path,
                          token.start_mark.line + 1, MAX_ANCHORS);
        yaml_token_delete(&token);
    }
    return count > MAX_ANCHORS ? ITH_EXIT_FAILED : ITH_EXIT_DONE;
}

/* Checks on the stream of events, before a document is built, that there is one document, and that its lists are not
 * nested too deep: libyaml needs quadratic time for deeply nested files. */
static int check_events(reading *r, yaml_parser_t *parser)
{
    int depth = 0, documents = 0, code = ITH_EXIT_DONE;
    for (bool end = false; !end && !code;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return explain_parser(r, parser);
        bool opens = event.type == YAML_MAPPING_START_EVENT || event.type == YAML_SEQUENCE_START_EVENT;
        bool closes = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        depth += opens - closes;
        documents += event.type == YAML_DOCUMENT_START_EVENT;
        r->ended |= event.type == YAML_DOCUMENT_END_EVENT && !event.data.document_end.implicit;
        end = event.type == YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH)
            code = ith_cli_error("%s:%zu: lists and mappings lie more than %d deep in one another", r->file->path,
                                 event.start_mark.line + 1, MAX_DEPTH);
        else if (documents > 1)
            code = ith_cli_error("%s:%zu: a second document begins; a file has one", r->file->path,
                                 event.start_mark.line + 1);
        yaml_event_delete(&event);
    }
    return code;
}

/* Parses the document and calls `take`. */
static int read_document(reading *r, yaml_parser_t *parser)
{
    if (!yaml_parser_load(parser, &r->file->document))
        return explain_parser(r, parser);
    int code = r->take(r->user);
    yaml_document_delete(&r->file->document);
    return code;
}

/* Calls `read` with a libyaml parser of the text, and returns its exit status. */
static int with_parser(reading *r, int (*read)(reading *, yaml_parser_t *))
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return ith_cli_error("%s: there is no memory to read it", r->file->path);
    yaml_parser_set_input_string(&parser, r->text, r->bytes);
    int code = read(r, &parser);
    yaml_parser_delete(&parser);
    return code;
}

/* Parses the text three times: twice to check its form, then to pass on the document. */
static int read_text(reading *r)
{
    int code = with_parser(r, check_anchors);
    if (!code)
        code = with_parser(r, check_events);
    return code ? code : with_parser(r, read_document);
}

/* Whether a path that could not be opened has nothing at it, not even a link. A link to a missing file is an error: the
 * user wants the values of this file, and a run without them would have another result. */
static bool is_absent(const char *path)
{
    const int fault = errno;
    struct stat info;
    const bool absent = (fault == ENOENT || fault == ENOTDIR) && lstat(path, &info);
    errno = fault;
    return absent;
}

int ith_yaml_read(ith_yaml_file *file, bool may_lack, int (*take)(void *user), void *user)
{
    reading r = {.file = file, .take = take, .user = user};
    FILE *stream = ith_input_open(file->path);
    if (!stream && may_lack && is_absent(file->path))
        return ITH_EXIT_DONE;
    if (!stream)
        return ith_cli_error("%s: %s", file->path, ith_input_fault());
    char *text = ith_input_text(stream, file->path, MAX_FILE_BYTES, &r.bytes);
    fclose(stream);
    r.text = (const unsigned char *)text;
    int code = text ? read_text(&r) : ITH_EXIT_FAILED;
    free(text);
    return code;
}
