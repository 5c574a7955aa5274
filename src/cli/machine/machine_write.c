/* SPDX-License-Identifier: Apache-2.0 */
/* Writes machine descriptions as YAML, from which the same numbers are read again. */
#include "../file/output_name.h"
#include "../support/text_value.h"
#include "machine_fields.h"
#include "machine_file.h"

#include <stdio.h>
#include <string.h>

/* Whether a field has the value of its default, or holds no value. */
static bool is_default(const ith_field *field, const void *owner, const void *init)
{
    const char *a = (const char *)owner + field->offset, *b = (const char *)init + field->offset;
    switch (field->kind) {
    case ITH_FIELD_TEXT: return !strcmp(a, b);
    case ITH_FIELD_FLAG: return *(const bool *)a == *(const bool *)b;
    case ITH_FIELD_WORD: return *(const int *)a == *(const int *)b;
    case ITH_FIELD_WHOLE:
    case ITH_FIELD_NUMBER: return !memcmp(a, b, 8);
    case ITH_FIELD_LIST:
    case ITH_FIELD_LIKE: break;
    }
    return true;
}

/* Prints the fields of a struct that are needed or differ from their defaults. head: the text before the first line;
 * spaces: before the others. */
static void print_fields(FILE *file, const ith_fields *fields, const void *owner, const void *init, const char *head,
                         const char *spaces)
{
    for (int i = 0; i < fields->count; i++) {
        const ith_field *field = &fields->table[i];
        const void *value = (const char *)owner + field->offset;
        if (!field->needed && is_default(field, owner, init))
            continue;
        fprintf(file, "%s%s: ", head, field->name);
        head = spaces;
        switch (field->kind) {
        case ITH_FIELD_TEXT: ith_text_print_quoted(file, value); break;
        case ITH_FIELD_WHOLE: fprintf(file, "%lld", (long long)*(const int64_t *)value); break;
        case ITH_FIELD_NUMBER: ith_text_print_number(file, *(const double *)value); break;
        case ITH_FIELD_FLAG: fputs(*(const bool *)value ? "true" : "false", file); break;
        case ITH_FIELD_WORD: fputs(field->word(*(const int *)value), file); break;
        case ITH_FIELD_LIST:
        case ITH_FIELD_LIKE: break;
        }
        fputc('\n', file);
    }
}

/* Prints a machine. */
static void print_machine(FILE *file, const ith_machine *machine)
{
    static const ith_machine init = ITH_MACHINE_INIT;
    print_fields(file, &ith_machine_fields, machine, &init, "", "");
    for (int i = 0; i < ith_machine_fields.count; i++) {
        const ith_field *field = &ith_machine_fields.table[i];
        if (field->kind != ITH_FIELD_LIST)
            continue;
        const ith_machine_list *list = &ith_machine_lists[field->offset];
        const char *element = *(const char *const *)((const char *)machine + list->pointer_offset);
        int64_t count = *(const int64_t *)((const char *)machine + list->count_offset);
        if (count > 0)
            fprintf(file, "\n%s:\n", field->name);
        for (int64_t k = 0; k < count; k++, element += list->bytes)
            print_fields(file, &list->fields, element, list->init, "  - ", "    ");
    }
}

/* Prints the lines of a comment, each behind "# ". */
static void print_comment(FILE *file, const char *comment)
{
    while (comment && *comment) {
        int length = (int)strcspn(comment, "\n");
        fprintf(file, "# %.*s\n", length, comment);
        comment += length + (comment[length] == '\n');
    }
}

/* The machine and the comment that are written. */
typedef struct contents {
    const ith_machine *machine;
    const char *comment;
} contents;

static void print_contents(FILE *file, void *user)
{
    const contents *c = user;
    print_comment(file, c->comment);
    print_machine(file, c->machine);
}

int ith_machine_file_write(const char *path, const ith_machine *machine, const char *comment)
{
    contents c = {machine, comment};
    return ith_cli_replace_file(path, print_contents, &c);
}
