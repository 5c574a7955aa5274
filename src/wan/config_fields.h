/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the fields of a configuration file. Every field is known by name, and its value is either supported or
 * refused, never ignored. */
#ifndef ITH_WAN_CONFIG_FIELDS_H
#define ITH_WAN_CONFIG_FIELDS_H

#include "../files/json.h"

/* Allows any value but null, which diffusers and transformers do not accept for the field. */
#define ITH_CONFIG_NOT_NULL "!null"

typedef struct ith_config_field {
    const char *name;
    /* The supported values as compact JSON text, separated by '|' ("absent" if the field may be missing), or
     * ITH_CONFIG_NOT_NULL. NULL allows any value: the field is read elsewhere or has no effect on the result. */
    const char *only;
    const char *why; /* added to the sentence about a refused value; NULL: nothing */
} ith_config_field;

/* ITH_ERR_UNSUPPORTED, with the field, its value and the supported values, if one is not supported.
 * `quantization_config` and `_use_default_values`, which change how diffusers reads a file, are refused in every file.
 */
ith_status ith_config_fields_check(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                   size_t count);
/* The same for files of diffusers, of which all fields are known: a field with another name has no effect in diffusers
 * and is logged as a warning. */
ith_status ith_config_fields_check_all(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                       size_t count);

#endif
