/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the fields of a JSON configuration file against a table. A value that the engine does not support is an error;
 * it is never ignored. */
#ifndef ITH_WAN_CONFIG_FIELDS_H
#define ITH_WAN_CONFIG_FIELDS_H

#include "../../files/json.h"

/* For the member `only` of an ith_config_field: any value but null is supported. diffusers and transformers refuse null
 * here. */
#define ITH_CONFIG_NOT_NULL "!null"

/* A field of a configuration file, and the values that the engine supports. */
typedef struct ith_config_field {
    const char *name;
    /* The supported values as compact JSON text, separated by '|' ("absent" if the field may be missing), or
     * ITH_CONFIG_NOT_NULL. NULL allows any value: the field is read elsewhere or has no effect on the result. */
    const char *only;
    const char *why; /* the reason, for the error message about a refused value; NULL: none */
} ith_config_field;

/* Checks the values of the listed fields. If a value is not supported, returns ITH_ERR_UNSUPPORTED with an error
 * message that names the field, its value and the supported values. `quantization_config` and `_use_default_values`,
 * which change how diffusers reads a file, are refused in every file unless they are empty. */
ith_status ith_config_fields_check(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                   int count);
/* A table of fields. */
typedef struct ith_config_table {
    const ith_config_field *fields;
    int count;
} ith_config_table;
/* Checks a file of diffusers as ith_config_fields_check does. The tables together list every field that diffusers
 * knows. Any other field has no effect in diffusers, and is logged as a warning. */
ith_status ith_config_fields_check_all(ith_context *context, const ith_json *json, const ith_config_table *tables,
                                       int count);

/* Checks that the _class_name of a file of diffusers is `name`. noun: names the object of the file in the error
 * message, such as "the model". */
ith_status ith_config_class_check(ith_context *context, const ith_json *json, const char *noun, const char *name);

/* A size of a model that follows from the shapes of its tensors, and the largest size that is supported. */
typedef struct ith_size_limit {
    const char *noun; /* the name of the size in "number of ..." */
    int64_t size, most;
} ith_size_limit;
/* Checks that each size is from 1 to `most`. where and model: the beginning of the error message, such as a path and "a
 * transformer". */
ith_status ith_size_limits_check(ith_context *context, const char *where, const char *model,
                                 const ith_size_limit *limits, int count);

/* The kind of model that a config.json describes. */
typedef struct ith_config_class {
    char text[80]; /* _class_name, or else the first of architectures, or model_type; "" if there is no such file */
} ith_config_class;
/* Reads the kind of model that folder/config.json describes; "" if folder is NULL or lacks this file. */
ith_status ith_config_class_read(ith_context *context, const char *folder, ith_config_class *out);

#endif
