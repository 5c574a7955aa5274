/* SPDX-License-Identifier: Apache-2.0 */
/* Options in YAML 1.1 files, parsed by libyaml. Values are read as text by the rules of the command line: a scalar is
 * read like the text after `--name=`, and a list [a, b] like the text "a,b". */
#include "config.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#define MAX_FILE_BYTES (1 << 20)
#define MAX_DEPTH 8 /* maximal nesting of lists and mappings */

/* A YAML file while it is read. */
typedef struct config {
    const char *path;
    yaml_document_t document;
    ith_options *options;
    ith_option_source source;   /* the kind of file, on which the precedence of its values depends */
    bool seen[ITH_OPTIONS_MAX]; /* options that the file has set so far */
} config;

/* Prints the error "FILE:LINE: NAME: WHY" and returns ITH_EXIT_FAILED. */
static int complain(const config *c, const yaml_node_t *node, const char *name, const char *why)
{
    return ith_cli_error("%s:%zu: %s: %s", c->path, node->start_mark.line + 1, name, why);
}

/* The text of a scalar node; NULL for any other node. */
static const char *scalar(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Whether a node is text without NUL characters, at which C would cut the value. */
static bool is_text(const yaml_node_t *node)
{
    return scalar(node) && strlen(scalar(node)) == node->data.scalar.length;
}

/* Whether a value is null (nothing, ~ or null), which counts as absent. */
static bool is_null(const yaml_node_t *node)
{
    const char *text = scalar(node);
    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

/* Writes the list [a, b] as the text "a,b". Returns false if an item is not a single value or the text is too long. */
static bool join(config *c, const yaml_node_t *list, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (const yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top; item++) {
        const yaml_node_t *node = yaml_document_get_node(&c->document, *item);
        if (!is_text(node) || strchr(scalar(node), ','))
            return false;
        length += (size_t)snprintf(text + length, bytes - length, "%s%s", length ? "," : "", scalar(node));
        if (length >= bytes)
            return false;
    }
    return true;
}

/* Sets one option from the file. An option that this kind of file may not set is an error. A value from a source of
 * higher precedence, such as the command line, stays. */
static int set_option(config *c, const yaml_node_t *key, const yaml_node_t *value)
{
    char why[256], list[128];
    if (!is_text(key))
        return complain(c, key, "an option", "its name is not a word");
    const char *name = scalar(key);
    int index = ith_option_find(c->options, name);
    if (index < 0)
        return complain(c, key, name, "there is no such option");
    const ith_option *option = &c->options->table[index];
    if (option->farthest > c->source)
        return complain(c, key, name,
                        c->source == ITH_FROM_MODEL ? "a model folder may not set it"
                                                    : "only the command line sets it");
    if (c->seen[index])
        return complain(c, key, name, "it is set twice");
    c->seen[index] = true;
    if (is_null(value))
        return ITH_EXIT_DONE;
    const char *text = is_text(value) ? scalar(value) : NULL;
    if (value->type == YAML_SEQUENCE_NODE && option->type == ITH_OPTION_PAIR && join(c, value, list, sizeof list))
        text = list;
    if (!text)
        return complain(c, value, name, "its value is not a single one");
    if (!ith_option_set(c->options, index, text, c->source, why, sizeof why))
        return complain(c, value, name, why);
    return ITH_EXIT_DONE;
}

/* Sets all options of the file, whose top value must be a mapping. */
static int set_options(config *c)
{
    yaml_node_t *root = yaml_document_get_root_node(&c->document);
    if (!root || is_null(root))
        return ITH_EXIT_DONE; /* the file is empty or holds only comments */
    if (root->type != YAML_MAPPING_NODE)
        return complain(c, root, "the file", "it is not a mapping of options to values");
    int code = ITH_EXIT_DONE;
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; !code && pair < root->data.mapping.pairs.top; pair++)
        code = set_option(c, yaml_document_get_node(&c->document, pair->key),
                          yaml_document_get_node(&c->document, pair->value));
    return code;
}

/* Prints an error of libyaml with file and line; the line is 0 if the file is not valid text. */
static int explain_parser(const config *c, const yaml_parser_t *parser)
{
    size_t line = parser->error == YAML_READER_ERROR ? 0 : parser->problem_mark.line + 1;
    return ith_cli_error("%s:%zu: %s", c->path, line, parser->problem ? parser->problem : "it is not YAML");
}

/* Checks the depth of nesting on the stream of events, before a document is built: libyaml needs quadratic time for
 * deeply nested files. */
static int check_depth(config *c, yaml_parser_t *parser)
{
    int depth = 0, code = ITH_EXIT_DONE;
    for (bool end = false; !end && !code;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return explain_parser(c, parser);
        bool opens = event.type == YAML_MAPPING_START_EVENT || event.type == YAML_SEQUENCE_START_EVENT;
        bool closes = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        depth += opens - closes;
        end = event.type == YAML_DOCUMENT_END_EVENT || event.type == YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH)
            code = ith_cli_error("%s:%zu: lists and mappings lie more than %d deep in one another", c->path,
                                 event.start_mark.line + 1, MAX_DEPTH);
        yaml_event_delete(&event);
    }
    return code;
}

/* Parses the document and sets its options. */
static int read_document(config *c, yaml_parser_t *parser)
{
    if (!yaml_parser_load(parser, &c->document))
        return explain_parser(c, parser);
    int code = set_options(c);
    yaml_document_delete(&c->document);
    return code;
}

/* Calls `read` with a libyaml parser of the text, and returns its exit status. */
static int with_parser(config *c, const unsigned char *text, size_t bytes, int (*read)(config *, yaml_parser_t *))
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return ith_cli_error("%s: there is no memory to read it", c->path);
    yaml_parser_set_input_string(&parser, text, bytes);
    int code = read(c, &parser);
    yaml_parser_delete(&parser);
    return code;
}

/* Parses the text twice: first to check the depth of nesting, then to set the options. */
static int read_text(config *c, const unsigned char *text, size_t bytes)
{
    int code = with_parser(c, text, bytes, check_depth);
    return code ? code : with_parser(c, text, bytes, read_document);
}

/* Reads the whole file, of at most MAX_FILE_BYTES bytes, and parses it. */
static int read_stream(config *c, FILE *file)
{
    unsigned char *text = malloc(MAX_FILE_BYTES + 1);
    if (!text)
        return ith_cli_error("%s: there is no memory to read it", c->path);
    size_t bytes = fread(text, 1, MAX_FILE_BYTES + 1, file);
    int code;
    if (ferror(file))
        code = ith_cli_error("%s: %s", c->path, strerror(errno));
    else if (bytes > MAX_FILE_BYTES)
        code = ith_cli_error("%s: it is longer than %d bytes", c->path, MAX_FILE_BYTES);
    else
        code = read_text(c, text, bytes);
    free(text);
    return code;
}

/* Opens a regular file for reading, and never waits as opening a pipe would. Returns NULL with the reason in errno,
 * which is EINVAL for another kind of file. */
static FILE *open_file(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return NULL;
    bool regular = !fstat(file, &info) && S_ISREG(info.st_mode);
    FILE *stream = regular ? fdopen(file, "r") : NULL;
    if (!stream) {
        int error = regular ? errno : EINVAL;
        close(file);
        errno = error;
    }
    return stream;
}

/* Opens and reads the file. may_lack: a file that does not exist is no error. */
static int read_file(config *c, bool may_lack)
{
    FILE *file = open_file(c->path);
    if (!file && may_lack && (errno == ENOENT || errno == ENOTDIR))
        return ITH_EXIT_DONE;
    if (!file)
        return ith_cli_error("%s: %s", c->path, errno == EINVAL ? "it is not a file" : strerror(errno));
    int code = read_stream(c, file);
    fclose(file);
    return code;
}

int ith_config_read(const char *path, ith_options *options)
{
    config c = {.path = path, .options = options, .source = ITH_FROM_CONFIG};
    return read_file(&c, false);
}

int ith_config_read_model(const char *model_folder, ith_options *options)
{
    char *path = NULL;
    if (asprintf(&path, "%s/ithaca.yaml", model_folder) < 0)
        return ith_cli_error("%s: there is no memory to read its defaults", model_folder);
    config c = {.path = path, .options = options, .source = ITH_FROM_MODEL};
    int code = read_file(&c, true);
    free(path);
    return code;
}
