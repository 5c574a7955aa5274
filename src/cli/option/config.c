/* SPDX-License-Identifier: Apache-2.0 */
/* Options in YAML files. Values are read as text by the rules of the command line: a scalar is
 * read like the text after `--name=`, and a list [a, b] like the text "a,b". */
#include "config.h"

#include "../cli.h"
#include "../support/text_value.h"
#include "yaml_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A configuration file while it is read. */
typedef struct config {
    ith_yaml_file file;
    ith_options *options;
    ith_option_source source;   /* the kind of file, on which the precedence of its values depends */
    bool seen[ITH_OPTIONS_MAX]; /* options that the file has set so far */
} config;

/* Writes the list [a, b] as the text "a,b". Returns the reason why it cannot, or NULL. */
static const char *join(config *c, const yaml_node_t *list, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (const yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top; item++) {
        const yaml_node_t *node = yaml_document_get_node(&c->file.document, *item);
        if (!ith_yaml_is_text(node))
            return "an item of its list is not a single value";
        if (ith_yaml_is_null(node) || !*ith_yaml_scalar(node))
            return "an item of its list is empty";
        if (strchr(ith_yaml_scalar(node), ','))
            return "an item of its list has a comma";
        length += (size_t)snprintf(text + length, bytes - length, "%s%s", length ? "," : "", ith_yaml_scalar(node));
        if (length >= bytes)
            return "its list is too long";
    }
    return length ? NULL : "its list is empty";
}

/* Whether the values of a type may be written as a list. */
static bool takes_list(ith_option_type type)
{
    return type == ITH_OPTION_PAIR || type == ITH_OPTION_WHOLES || type == ITH_OPTION_WORDS ||
           type == ITH_OPTION_NAMES || type == ITH_OPTION_FILES;
}

/* Prints the error that a file sets something that is no option of files. */
static int explain_unknown(const config *c, const yaml_node_t *key, const yaml_node_t *value)
{
    static const char *const common[] = {"config", "print-config", "help", "usage", "version", NULL};
    const char *name = ith_yaml_scalar(key);
    char why[128] = "there is no such option; a file has no sections";
    if (ith_text_is_among(name, common))
        return ith_yaml_complain(&c->file, key, name, "only the command line sets it");
    if (value->type != YAML_MAPPING_NODE)
        ith_option_unknown(c->options, name, why, sizeof why);
    return ith_yaml_complain(&c->file, key, name, why);
}

/* Sets one option from the file. An option that this kind of file may not set is an error. A value from a source of
 * higher precedence, such as the command line, stays. */
static int set_option(config *c, const yaml_node_t *key, const yaml_node_t *value)
{
    char why[256], list[4096];
    if (!ith_yaml_is_text(key))
        return ith_yaml_complain(&c->file, key, "an option", "its name is not a word");
    const char *name = ith_yaml_scalar(key);
    int index = ith_option_find(c->options, name);
    if (index < 0)
        return explain_unknown(c, key, value);
    const ith_option *option = &c->options->table[index];
    if (c->source == ITH_FROM_MODEL && !option->of_model)
        return ith_yaml_complain(&c->file, key, name, "a model folder may not set it");
    if (c->seen[index])
        return ith_yaml_complain(&c->file, key, name, "it is set twice");
    c->seen[index] = true;
    if (ith_yaml_is_null(value))
        return ITH_EXIT_DONE;
    const bool joins = value->type == YAML_SEQUENCE_NODE && takes_list(option->type);
    const char *text = joins ? list : ith_yaml_scalar(value), *fault = NULL;
    if (joins)
        fault = join(c, value, list, sizeof list);
    else if (!text)
        fault = "its value is not a single one";
    else if (!ith_yaml_is_text(value))
        fault = "its value has a NUL character";
    if (fault)
        return ith_yaml_complain(&c->file, value, name, fault);
    if (!ith_option_set(c->options, index, text, c->source, why, sizeof why))
        return ith_yaml_complain(&c->file, value, name, why);
    if (c->options->source[index] == c->source)
        c->options->line[index] = key->start_mark.line + 1;
    return ITH_EXIT_DONE;
}

/* Sets all options of the file, whose top value must be a mapping (ith_yaml_read). */
static int set_options(void *user)
{
    config *c = user;
    yaml_node_t *root = yaml_document_get_root_node(&c->file.document);
    if (!root || ith_yaml_is_null(root))
        return ITH_EXIT_DONE; /* the file is empty or holds only comments */
    if (root->type != YAML_MAPPING_NODE)
        return ith_yaml_complain(
            &c->file, root, "the file",
            "it is not a mapping of options to values, each 'NAME: VALUE' with a space behind the colon");
    int code = ITH_EXIT_DONE;
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; !code && pair < root->data.mapping.pairs.top; pair++)
        code = set_option(c, yaml_document_get_node(&c->file.document, pair->key),
                          yaml_document_get_node(&c->file.document, pair->value));
    return code;
}

int ith_config_read(const char *path, ith_options *options)
{
    config c = {.file = {.path = path}, .options = options, .source = ITH_FROM_CONFIG};
    return ith_yaml_read(&c.file, false, set_options, &c);
}

int ith_config_read_model(const char *path, ith_options *options)
{
    config c = {.file = {.path = path}, .options = options, .source = ITH_FROM_MODEL};
    return ith_yaml_read(&c.file, true, set_options, &c);
}
