/* SPDX-License-Identifier: Apache-2.0 */
/* Reads machine descriptions from YAML files. The tables of machine_fields.h say which keys there are. */
#include "machine_file.h"

#include "../cli.h"
#include "../option/yaml_file.h"
#include "../support/nearest.h"
#include "../support/text_value.h"
#include "machine_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 4096 /* of a list */
#define MAX_LIKE 4    /* machines that are like one another, in a chain of files */

/* A description while it is read. */
typedef struct reading {
    ith_yaml_file file;
    ith_context *context;
    ith_machine *machine;
    const yaml_node_t *lists[ITH_MACHINE_LIST_COUNT]; /* the lists of the file; NULL if it lacks one */
    const yaml_node_t *like;                          /* the value of the key "like"; NULL if the file lacks it */
    int depth;                                        /* files that were opened for this one by "like" */
} reading;

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* Complains about a key that the mapping does not have, and names the key that is spelled most like it. */
static int complain_key(reading *r, const yaml_node_t *key, const ith_fields *fields)
{
    enum { MOST = 32 }; /* keys of a mapping */
    const char *names[MOST], *name = ith_yaml_scalar(key);
    char why[160];
    const int count = fields->count < MOST ? fields->count : MOST;
    for (int i = 0; i < count; i++)
        names[i] = fields->table[i].name;
    const char *nearest = ith_nearest_of_all(name, names, count);
    snprintf(why, sizeof why, "%s has no such key%s%s%s", fields->noun, nearest ? "; the nearest is '" : "",
             nearest ? nearest : "", nearest ? "'" : "");
    return ith_yaml_complain(&r->file, key, name, why);
}

/* Complains about a value, and names the values that the key takes. */
static int complain_value(reading *r, const yaml_node_t *value, const ith_field *field)
{
    char why[256];
    const char *text = ith_yaml_is_text(value) ? ith_yaml_scalar(value) : "a list or a mapping";
    int length = snprintf(why, sizeof why, "'%.60s' is not ", text);
    char *end = why + length;
    size_t left = sizeof why - (size_t)length;
    switch (field->kind) {
    case ITH_FIELD_TEXT: snprintf(end, left, "a text of at most %zu bytes", field->bytes - 1); break;
    case ITH_FIELD_WHOLE: snprintf(end, left, "a whole number from 0 on"); break;
    case ITH_FIELD_NUMBER: snprintf(end, left, "a number from 0 on, such as 450e9"); break;
    case ITH_FIELD_FLAG: snprintf(end, left, "true or false"); break;
    case ITH_FIELD_LIKE: snprintf(end, left, "the name of a machine whose file lies beside this one"); break;
    case ITH_FIELD_LIST: snprintf(end, left, "a list of at most %d mappings", MAX_ROWS); break;
    case ITH_FIELD_WORD:
        snprintf(end, left, "one of");
        for (int i = 0; strcmp(field->word(i), "unknown") != 0; i++)
            if (strcmp(field->word(i), "auto") != 0) {
                size_t used = strlen(why);
                snprintf(why + used, sizeof why - used, " %s", field->word(i));
            }
        break;
    }
    return ith_yaml_complain(&r->file, value, field->name, why);
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

/* Sets a field from the text of a value. Returns false if the text is no value of the field. */
static bool set_field(const ith_field *field, const char *text, void *owner)
{
    void *value = (char *)owner + field->offset;
    double number;
    int64_t whole;
    switch (field->kind) {
    case ITH_FIELD_TEXT:
        if (!*text || strlen(text) >= field->bytes)
            return false;
        memcpy(value, text, strlen(text) + 1);
        return true;
    case ITH_FIELD_WHOLE:
        if (!ith_text_whole(text, &whole) || whole < 0)
            return false;
        *(int64_t *)value = whole;
        return true;
    case ITH_FIELD_NUMBER:
        if (!ith_text_number(text, &number) || number < 0)
            return false;
        *(double *)value = number;
        return true;
    case ITH_FIELD_FLAG: return ith_text_flag(text, value);
    case ITH_FIELD_WORD:
        for (int i = 0; strcmp(field->word(i), "unknown") != 0; i++)
            if (!strcmp(field->word(i), text) && strcmp(text, "auto") != 0) {
                *(int *)value = i;
                return true;
            }
        return false;
    case ITH_FIELD_LIKE: return *text && !strchr(text, '/');
    case ITH_FIELD_LIST: return false;
    }
    return false;
}

/* Sets the field that a key names. seen: the keys that the mapping has set so far, a bit for each. */
static int read_pair(reading *r, const ith_fields *fields, const yaml_node_t *key, const yaml_node_t *value,
                     void *owner, unsigned *seen)
{
    int index = 0;
    if (!ith_yaml_is_text(key))
        return ith_yaml_complain(&r->file, key, fields->noun, "a key is not a word");
    while (index < fields->count && strcmp(ith_yaml_scalar(key), fields->table[index].name) != 0)
        index++;
    if (index == fields->count)
        return complain_key(r, key, fields);
    const ith_field *field = &fields->table[index];
    if (*seen & 1u << index)
        return ith_yaml_complain(&r->file, key, field->name, "it is set twice");
    *seen |= 1u << index;
    if (field->kind == ITH_FIELD_LIST && value->type == YAML_SEQUENCE_NODE) {
        r->lists[field->offset] = value;
        return ITH_EXIT_DONE;
    }
    bool good = ith_yaml_is_text(value) && !ith_yaml_is_null(value) && set_field(field, ith_yaml_scalar(value), owner);
    return good ? ITH_EXIT_DONE : complain_value(r, value, field);
}

/* Reads a mapping into the struct `owner`. */
static int read_mapping(reading *r, const ith_fields *fields, const yaml_node_t *node, void *owner)
{
    unsigned seen = 0;
    int code = ITH_EXIT_DONE;
    if (node->type != YAML_MAPPING_NODE)
        return ith_yaml_complain(&r->file, node, fields->noun, "it is not a mapping of keys to values");
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; !code && pair < node->data.mapping.pairs.top; pair++)
        code = read_pair(r, fields, yaml_document_get_node(&r->file.document, pair->key),
                         yaml_document_get_node(&r->file.document, pair->value), owner, &seen);
    for (int i = 0; !code && i < fields->count; i++)
        if (fields->table[i].needed && !(seen & 1u << i) && !(r->like && owner == r->machine && i > 0)) {
            char why[96];
            snprintf(why, sizeof why, "%s needs this key", fields->noun);
            code = ith_yaml_complain(&r->file, node, fields->table[i].name, why);
        }
    return code;
}

static int64_t *count_of(ith_machine *machine, const ith_machine_list *list)
{
    return (int64_t *)((char *)machine + list->count_offset);
}

static void **elements_of(ith_machine *machine, const ith_machine_list *list)
{
    return (void **)((char *)machine + list->pointer_offset);
}

/* Reads list number `index` of the file into memory that the machine owns. */
static int read_list(reading *r, int index)
{
    const ith_machine_list *list = &ith_machine_lists[index];
    const yaml_node_t *node = r->lists[index];
    if (!node)
        return ITH_EXIT_DONE;
    const yaml_node_item_t *items = node->data.sequence.items.start;
    int64_t count = node->data.sequence.items.top - items;
    char why[96];
    snprintf(why, sizeof why, "it has %lld items, and may have %d", (long long)count, MAX_ROWS);
    if (count > MAX_ROWS)
        return ith_yaml_complain(&r->file, node, list->fields.noun, why);
    char *elements = calloc((size_t)count + 1, list->bytes);
    if (!elements)
        return ith_cli_error("%s: there is no memory for its lists", r->file.path);
    free(*elements_of(r->machine, list));
    *elements_of(r->machine, list) = elements;
    *count_of(r->machine, list) = count;
    int code = ITH_EXIT_DONE;
    for (int64_t i = 0; !code && i < count; i++) {
        void *element = elements + (size_t)i * list->bytes;
        memcpy(element, list->init, list->bytes);
        code = read_mapping(r, &list->fields, yaml_document_get_node(&r->file.document, items[i]), element);
    }
    return code;
}

/* ---- Machines that are like others ----------------------------------------------------------------------------- */

static int read_file(ith_context *context, const char *path, int depth, ith_machine *machine);

/* Finds the key "like" of the machine, and reads that machine, whose values hold until this file replaces them. */
static int read_like(reading *r, const yaml_node_t *root)
{
    char *path = NULL;
    const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
    for (; root->type == YAML_MAPPING_NODE && pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&r->file.document, pair->key);
        if (ith_yaml_is_text(key) && !strcmp(ith_yaml_scalar(key), "like"))
            r->like = yaml_document_get_node(&r->file.document, pair->value);
    }
    const char *name = r->like && ith_yaml_is_text(r->like) ? ith_yaml_scalar(r->like) : "/";
    if (!r->like || strchr(name, '/'))
        return ITH_EXIT_DONE; /* read_pair complains about a value that is no name */
    if (r->depth == MAX_LIKE)
        return ith_yaml_complain(&r->file, r->like, "like", "too many machines are each like another one");
    const char *slash = strrchr(r->file.path, '/');
    int folder = slash ? (int)(slash - r->file.path) + 1 : 0;
    if (asprintf(&path, "%.*s%s.yaml", folder, r->file.path, name) < 0)
        return ith_cli_error("%s: there is no memory for a name", r->file.path);
    int code = read_file(r->context, path, r->depth + 1, r->machine);
    free(path);
    return code;
}

/* ---- Check ----------------------------------------------------------------------------------------------------- */

/* The node of the file that makes ith_machine_check fail: the element without which the machine passes, or the root. */
static const yaml_node_t *find_culprit(reading *r, const yaml_node_t *root)
{
    ith_machine part = *r->machine;
    part.level_count = part.attention_count = part.product_count = 0;
    if (ith_machine_check(r->context, &part))
        return root;
    for (int i = 0; i < ITH_MACHINE_LIST_COUNT; i++)
        for (int64_t k = 0; k < *count_of(r->machine, &ith_machine_lists[i]); k++) {
            *count_of(&part, &ith_machine_lists[i]) = k + 1;
            if (ith_machine_check(r->context, &part))
                return !r->lists[i]
                           ? root
                           : yaml_document_get_node(&r->file.document, r->lists[i]->data.sequence.items.start[k]);
        }
    return root;
}

/* The value in a mapping whose key the sentence names; the mapping if it names none. */
static const yaml_node_t *find_value(reading *r, const yaml_node_t *mapping, const char *sentence)
{
    const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
    for (; pair < mapping->data.mapping.pairs.top; pair++)
        if (strstr(sentence, ith_yaml_scalar(yaml_document_get_node(&r->file.document, pair->key))))
            return yaml_document_get_node(&r->file.document, pair->value);
    return mapping;
}

/* Reads the document, whose root is the machine (ith_yaml_read). */
static int read_machine(void *user)
{
    reading *r = user;
    const yaml_node_t *root = yaml_document_get_root_node(&r->file.document);
    if (!root)
        return ith_cli_error("%s:1: the file is empty; a machine needs its name and host_units", r->file.path);
    int code = read_like(r, root);
    if (!code)
        code = read_mapping(r, &ith_machine_fields, root, r->machine);
    for (int i = 0; !code && i < ITH_MACHINE_LIST_COUNT; i++)
        code = read_list(r, i);
    if (code || !ith_machine_check(r->context, r->machine))
        return code;
    const yaml_node_t *culprit = find_value(r, find_culprit(r, root), ith_context_error(r->context));
    return ith_cli_error("%s:%zu: %s", r->file.path, culprit->start_mark.line + 1, ith_context_error(r->context));
}

static int read_file(ith_context *context, const char *path, int depth, ith_machine *machine)
{
    *machine = (ith_machine)ITH_MACHINE_INIT;
    reading r = {.file = {.path = path}, .context = context, .machine = machine, .depth = depth};
    int code = ith_yaml_read(&r.file, false, read_machine, &r);
    if (code)
        ith_machine_file_free(machine);
    return code;
}

int ith_machine_file_read(ith_context *context, const char *path, ith_machine *machine)
{
    return read_file(context, path, 0, machine);
}

void ith_machine_file_free(ith_machine *machine)
{
    for (int i = 0; i < ITH_MACHINE_LIST_COUNT; i++) {
        free(*elements_of(machine, &ith_machine_lists[i]));
        *elements_of(machine, &ith_machine_lists[i]) = NULL;
        *count_of(machine, &ith_machine_lists[i]) = 0;
    }
}

bool ith_machine_has_attention(const ith_machine *machine, ith_dtype dtype, int64_t head_dim)
{
    for (int64_t i = 0; i < machine->attention_count; i++)
        if (machine->attention[i].dtype == dtype && machine->attention[i].head_dim == head_dim)
            return true;
    return false;
}

void *ith_machine_file_copy_rows(const void *rows, int64_t count, size_t bytes)
{
    void *copy = malloc((size_t)count * bytes + 1);
    if (copy && count > 0)
        memcpy(copy, rows, (size_t)count * bytes);
    return copy;
}

int ith_machine_file_check_rows(ith_machine *machine)
{
    if (machine->levels && machine->attention && machine->products)
        return ITH_EXIT_DONE;
    ith_machine_file_free(machine);
    return ith_cli_error("there is no memory for the description of this machine");
}

void ith_machine_file_take_products(ith_machine *machine, ith_machine_product *rows, int64_t count)
{
    free((void *)machine->products);
    machine->products = rows;
    machine->product_count = count;
}
