/* YAML through libyaml, whose nodes know their line. Values are read as text by the same rules as on the command line:
 * a scalar is what would stand after `--name=`, and a list [a, b] what would stand there as a,b. */
#include "config.h"

#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#define MAX_FILE_BYTES (1 << 20)

typedef struct config {
    const char *path;
    yaml_document_t document;
    ith_options *options;
    ith_option_source source;
    bool seen[ITH_OPTIONS_MAX];
} config;

static int complain(const config *c, const yaml_node_t *node, const char *name, const char *why)
{
    return ith_cli_error("%s:%zu: %s: %s", c->path, node->start_mark.line + 1, name, why);
}

static const char *scalar(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* An embedded NUL would cut the value short unseen. */
static bool is_text(const yaml_node_t *node)
{
    return scalar(node) && strlen(scalar(node)) == node->data.scalar.length;
}

/* A key with nothing after it, or ~: as if it were not there. */
static bool is_null(const yaml_node_t *node)
{
    const char *text = scalar(node);
    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

/* [a, b] as "a,b". */
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

static int set_options(config *c)
{
    yaml_node_t *root = yaml_document_get_root_node(&c->document);
    if (!root || is_null(root))
        return ITH_EXIT_DONE; /* nothing but comments */
    if (root->type != YAML_MAPPING_NODE)
        return complain(c, root, "the file", "it is not a mapping of options to values");
    int code = ITH_EXIT_DONE;
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; !code && pair < root->data.mapping.pairs.top; pair++)
        code = set_option(c, yaml_document_get_node(&c->document, pair->key),
                          yaml_document_get_node(&c->document, pair->value));
    return code;
}

static int read_stream(config *c, FILE *file)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return ith_cli_error("%s: there is no memory to read it", c->path);
    yaml_parser_set_input_file(&parser, file);
    int code;
    if (yaml_parser_load(&parser, &c->document)) {
        code = set_options(c);
        yaml_document_delete(&c->document);
    } else {
        size_t line = parser.error == YAML_READER_ERROR ? 0 : parser.problem_mark.line + 1;
        code = ith_cli_error("%s:%zu: %s", c->path, line, parser.problem ? parser.problem : "it is not YAML");
    }
    yaml_parser_delete(&parser);
    return code;
}

static int read_file(config *c, bool may_lack)
{
    struct stat info;
    FILE *file = fopen(c->path, "rbe");
    if (!file && may_lack && (errno == ENOENT || errno == ENOTDIR))
        return ITH_EXIT_DONE;
    if (!file)
        return ith_cli_error("%s: %s", c->path, strerror(errno));
    int code;
    if (fstat(fileno(file), &info) || !S_ISREG(info.st_mode) || info.st_size > MAX_FILE_BYTES)
        code = ith_cli_error("%s: it is not a file of at most %d bytes", c->path, MAX_FILE_BYTES);
    else
        code = read_stream(c, file);
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
