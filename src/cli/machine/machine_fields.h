/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a machine description in YAML, and the fields of the structs of ithaca/cost.h that they set. */
#ifndef ITH_CLI_MACHINE_FIELDS_H
#define ITH_CLI_MACHINE_FIELDS_H

#include <ithaca/cost.h>

#include <stdbool.h>

/* The kinds of values, and the C types of their fields. */
typedef enum ith_field_kind {
    ITH_FIELD_TEXT,   /* char[bytes] */
    ITH_FIELD_WHOLE,  /* int64_t, 0 or more */
    ITH_FIELD_NUMBER, /* double, 0 or more */
    ITH_FIELD_FLAG,   /* bool */
    ITH_FIELD_WORD,   /* an enum; `word` gives the word of a number, "unknown" behind the last */
    ITH_FIELD_LIST,   /* a list of mappings, number `offset` of ith_machine_lists */
    ITH_FIELD_LIKE    /* the name of another machine, whose keys hold where this file has none */
} ith_field_kind;

/* A key, and the field that it sets. */
typedef struct ith_field {
    const char *name;
    ith_field_kind kind;
    size_t offset; /* of the field in its struct */
    bool needed;   /* the key has no default */
    size_t bytes;  /* of a TEXT */
    const char *(*word)(int value);
} ith_field;

/* The keys of a mapping. */
typedef struct ith_fields {
    const char *noun; /* "the machine", "a level" */
    const ith_field *table;
    int count;
} ith_fields;

/* One of the three lists of a machine. */
typedef struct ith_machine_list {
    ith_fields fields;     /* of an element */
    const void *init;      /* the element with its defaults */
    size_t bytes;          /* of an element */
    size_t count_offset;   /* of the number of elements in ith_machine */
    size_t pointer_offset; /* of the pointer to the elements in ith_machine */
} ith_machine_list;

#define ITH_MACHINE_LIST_COUNT 3
extern const ith_machine_list ith_machine_lists[ITH_MACHINE_LIST_COUNT];
extern const ith_fields ith_machine_fields;

#endif
