/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a configuration file, each known by name: what a checkpoint says is honoured or refused, never ignored.
 */
#ifndef ITH_WAN_CONFIG_FIELDS_H
#define ITH_WAN_CONFIG_FIELDS_H

#include "../files/json.h"

/* Any value but null, which diffusers and transformers cannot use there. */
#define ITH_CONFIG_NOT_NULL "!null"

typedef struct ith_config_field {
    const char *name;
    /* The only values that are supported, as compact JSON text with '|' between them ("absent" where the field may be
     * left out), or ITH_CONFIG_NOT_NULL. NULL: any; the field is read elsewhere, or changes nothing that this program
     * computes. */
    const char *only;
    const char *why; /* more about a value that is refused; NULL: nothing */
} ith_config_field;

/* ITH_ERR_UNSUPPORTED, naming the field, its value and the values that are supported. `quantization_config` and
 * `_use_default_values`, which change how diffusers reads a file, are refused in every file. */
ith_status ith_config_fields_check(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                   size_t count);
/* The same for diffusers' own files, of which all fields are known: one of another name changes nothing there and is
 * logged as a warning. */
ith_status ith_config_fields_check_all(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                       size_t count);

#endif
