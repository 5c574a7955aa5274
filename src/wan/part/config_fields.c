/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the fields of a configuration file against tables of supported values (config_fields.h). */
#include "config_fields.h"

#include "../../base/count.h"
#include "../../base/lent_files.h"
#include "../../base/plain_text.h"
#include "../../files/quote.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Fields that any file may have. The last two are refused if they change how diffusers reads the file. */
static const ith_config_field common[] = {
    {"_class_name", NULL, NULL},
    {"_diffusers_version", NULL, NULL},
    {"_name_or_path", NULL, NULL},
    {"_use_default_values", "absent|null|[]", "the fields that it lists would have to be read as if they were absent"},
    {"quantization_config", "absent|null", "weights must be stored as F32, F16 or BF16"},
};

/* Writes a list of supported values for an error message: "absent|null|[]" becomes "null or []". */
static ith_json_text list_text(const char *list)
{
    ith_json_text out = {""};
    const char *word = !strncmp(list, "absent|", 7) ? list + 7 : list;
    size_t used = 0;
    for (; *word && used + 5 < sizeof out.text; word++) {
        const char *piece = *word == '|' ? " or " : (char[]){*word, '\0'};
        memcpy(out.text + used, piece, strlen(piece) + 1);
        used += strlen(piece);
    }
    return out;
}

static ith_status check_field(ith_context *context, const ith_json *json, const ith_config_field *field)
{
    if (!field->only)
        return ITH_OK;
    ith_json_text value = ith_json_print(json, field->name);
    if (!strcmp(field->only, ITH_CONFIG_NOT_NULL)) {
        if (strcmp(value.text, "null") != 0)
            return ITH_OK;
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s is null; it must have a value, or be left out",
                        ith_json_path(json), field->name);
    }
    if (ith_is_listed(field->only, '|', value.text))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s is %s; only %s is supported%s%s", ith_json_path(json),
                    field->name, value.text, list_text(field->only).text, field->why ? ": " : "",
                    field->why ? field->why : "");
}

static ith_status check_fields(ith_context *context, const ith_json *json, const ith_config_field *fields, int count)
{
    ith_status status = ITH_OK;
    for (int i = 0; i < count && !status; i++)
        status = check_field(context, json, &fields[i]);
    return status;
}

static bool is_in(const ith_config_field *fields, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(fields[i].name, name))
            return true;
    return false;
}

static bool is_known(const ith_config_table *tables, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (is_in(tables[i].fields, tables[i].count, name))
            return true;
    return is_in(common, ITH_COUNT(common), name);
}

ith_status ith_config_fields_check(ith_context *context, const ith_json *json, const ith_config_field *fields,
                                   int count)
{
    ith_status status = check_fields(context, json, common, ITH_COUNT(common));
    return status ? status : check_fields(context, json, fields, count);
}

ith_status ith_config_fields_check_all(ith_context *context, const ith_json *json, const ith_config_table *tables,
                                       int count)
{
    ith_status status = check_fields(context, json, common, ITH_COUNT(common));
    for (int i = 0; i < count && !status; i++)
        status = check_fields(context, json, tables[i].fields, tables[i].count);
    const char *key = status ? NULL : ith_json_next_key(json, NULL);
    for (; key; key = ith_json_next_key(json, key))
        if (!is_known(tables, count, key))
            ith_log(context, ITH_LOG_WARNING, "%s: diffusers knows no %s there; it is not used", ith_json_path(json),
                    ith_quote(key).text);
    return status;
}

ith_status ith_config_class_check(ith_context *context, const ith_json *json, const char *noun, const char *name)
{
    const char *found = NULL;
    ith_status status = ith_json_string(context, json, "_class_name", true, &found);
    if (!status && strcmp(found, name) != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s is a %.80s; only %s is supported", ith_json_path(json),
                        noun, found, name);
    return status;
}

ith_status ith_size_limits_check(ith_context *context, const char *where, const char *model,
                                 const ith_size_limit *limits, int count)
{
    for (int i = 0; i < count; i++)
        if (limits[i].size < 1 || limits[i].size > limits[i].most)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: %s whose number of %s is %lld; it must be from 1 to %lld",
                            where, model, limits[i].noun, (long long)limits[i].size, (long long)limits[i].most);
    return ITH_OK;
}

ith_status ith_config_class_read(ith_context *context, const char *folder, ith_config_class *out)
{
    ith_json *json = NULL;
    const char *name = NULL, *type = NULL;
    *out = (ith_config_class){""};
    if (!folder)
        return ITH_OK;
    char *path = ith_format(context, "%s/config.json", folder);
    if (!path)
        return ITH_ERR_MEMORY;
    if (access(ith_lent_path(context, path), F_OK)) {
        ith_free(context, path);
        return ITH_OK;
    }
    ith_status status = ith_json_read(context, path, &json);
    if (!status)
        status = ith_json_string(context, json, "_class_name", false, &name);
    if (!status)
        status = ith_json_string(context, json, "model_type", false, &type);
    if (!status) {
        name = name ? name : ith_json_string_at(json, "architectures", 0);
        snprintf(out->text, sizeof out->text, "%s", name ? name : type ? type : "");
    }
    ith_json_close(&json);
    ith_free(context, path);
    return status;
}
