/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run as a table of fields: ranks compare them (agreement.c), and a saved run keeps some of them
 * (saved_run.h). */
#ifndef ITH_WAN_RUN_FIELDS_H
#define ITH_WAN_RUN_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The C type of a member, and how its values on two ranks are compared. */
typedef enum ith_field_kind {
    ITH_FIELD_TEXT,  /* const char *, compared by its hash */
    ITH_FIELD_GIVEN, /* const char *; only whether it is NULL is compared */
    ITH_FIELD_WHOLE, /* int64_t or uint64_t */
    ITH_FIELD_INT,   /* int, or an enum */
    ITH_FIELD_REAL,  /* double */
    ITH_FIELD_IMAGE  /* const ith_image *, compared by the hash of its size and pixels; 0: NULL */
} ith_field_kind;

/* A member of a struct. */
typedef struct ith_field {
    const char *name;
    ith_field_kind kind;
    size_t offset;
    const char *(*word)(int value); /* the name of a value; NULL: print the number */
    bool saved;                     /* the value shapes the result, so a saved run keeps it */
} ith_field;

/* The fields of ith_generate_options and of ith_attn_options that must be the same on all ranks. */
enum { ITH_OPTION_FIELDS = 21, ITH_ATTENTION_FIELDS = 16 };
extern const ith_field ith_option_fields[ITH_OPTION_FIELDS];
extern const ith_field ith_attention_fields[ITH_ATTENTION_FIELDS];

/* Returns a member of the struct `base` as a 64-bit number. Equal values give equal numbers; a text and an
 * image give their hashes. */
int64_t ith_field_value(const ith_field *field, const void *base);
/* Writes a value of ith_field_value as text. Not for TEXT, of which ith_field_value returns a hash. */
void ith_field_print(const ith_field *field, int64_t value, char *text, size_t bytes);
/* Sets a member of the struct `base` from a text of ith_field_print. A member of kind TEXT points to `text` afterwards.
 * Not for GIVEN and IMAGE, whose texts do not hold the value. Returns false if `text` is no value of the field. */
bool ith_field_parse(const ith_field *field, const char *text, void *base);

#endif
