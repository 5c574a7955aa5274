/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON configuration files (RFC 8259) with Jansson, which also refuses duplicate keys and invalid UTF-8. */
#include "json.h"

#include "../base/plain_text.h"
#include "json_load.h"
#include "json_words.h"
#include "mapping.h"
#include "quote.h"

#include <math.h>
#include <stdio.h>

#define MOST_BYTES ((int64_t)64 << 20) /* maximal size of a configuration file in bytes */

/* A file that was read. */
struct ith_json {
    ith_context *context;
    char *path;
    json_t *root;
};

/* Parses the text of a file and checks that the top value is an object. */
static ith_status parse(ith_context *context, const char *path, const char *text, int64_t bytes, json_t **out)
{
    ith_status status = ith_json_load(context, path, text, bytes, out);
    if (!status && !json_is_object(*out))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s: must hold a JSON object, not an array", path);
    return status;
}

ith_status ith_json_parse(ith_context *context, const char *where, const char *text, int64_t bytes, ith_json **out)
{
    ith_json *json = *out = ith_alloc_zero(context, 1, sizeof *json, "a JSON document");
    if (!json)
        return ITH_ERR_MEMORY;
    json->context = context;
    json->path = ith_strdup(context, where);
    ith_status status = json->path ? parse(context, where, text, bytes, &json->root) : ITH_ERR_MEMORY;
    if (status)
        ith_json_close(out);
    return status;
}

ith_status ith_json_read(ith_context *context, const char *path, ith_json **out)
{
    char *text = NULL;
    int64_t bytes = 0;
    *out = NULL;
    ith_status status = ith_file_read(context, path, "a configuration", MOST_BYTES, &text, &bytes);
    if (!status)
        status = ith_json_quote_words(context, &text, &bytes);
    if (!status)
        status = ith_json_parse(context, path, text, bytes, out);
    ith_free(context, text);
    return status;
}

ith_status ith_json_read_in(ith_context *context, const char *folder, const char *name, ith_json **out)
{
    *out = NULL;
    char *path = ith_format(context, "%s/%s", folder, name);
    ith_status status = path ? ith_json_read(context, path, out) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

void ith_json_close(ith_json **json)
{
    if (!json || !*json)
        return;
    ith_context *context = (*json)->context;
    json_decref((*json)->root);
    ith_free(context, (*json)->path);
    ith_free(context, *json);
    *json = NULL;
}

const char *ith_json_path(const ith_json *json)
{
    return json->path;
}

/* Returns the value at key; NULL if it is absent or null. */
static const json_t *value_at(const ith_json *json, const char *key)
{
    const json_t *value = json_object_get(json->root, key);
    return json_is_null(value) ? NULL : value;
}

bool ith_json_has(const ith_json *json, const char *key)
{
    return value_at(json, key) != NULL;
}

/* The text that describes a value in an error message, returned by value. */
typedef struct description {
    char text[sizeof(ith_quoted) + 32];
} description;

/* Describes a value for an error message: by its type and, if it is not an array or an object, by its text. */
static description describe(const json_t *value)
{
    description out = {"null"};
    switch (json_typeof(value)) {
    case JSON_OBJECT: return (description){"an object"};
    case JSON_ARRAY: return (description){"an array"};
    case JSON_STRING:
        snprintf(out.text, sizeof out.text, "the string \"%s\"", ith_quote(json_string_value(value)).text);
        return out;
    case JSON_INTEGER: snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(value)); return out;
    case JSON_REAL: snprintf(out.text, sizeof out.text, "the real number %g", json_real_value(value)); return out;
    case JSON_TRUE: return (description){"true"};
    case JSON_FALSE: return (description){"false"};
    case JSON_NULL: break;
    }
    return out;
}

/* Reports that a required key is missing. */
static ith_status missing(ith_context *context, const ith_json *json, const char *key)
{
    return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" is missing", json->path, key);
}

/* Reports that the value of a key is not `wanted`, such as "a number". */
static ith_status wrong(ith_context *context, const ith_json *json, const char *key, const char *wanted,
                        const json_t *value)
{
    return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" must be %s, not %s", json->path, key, wanted,
                    describe(value).text);
}

static bool is_int_of(const json_t *value, int64_t least, int64_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most;
}

/* Reports that the value of a key is not `what` ("an integer") from `least` to `most`. */
static ith_status wrong_int(ith_context *context, const ith_json *json, const char *key, const char *what,
                            int64_t least, int64_t most, const json_t *value)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s from %lld to %lld", what, (long long)least, (long long)most);
    return wrong(context, json, key, wanted, value);
}

ith_status ith_json_int(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t most,
                        int64_t otherwise, int64_t *out)
{
    const json_t *value = value_at(json, key);
    *out = otherwise;
    if (!value)
        return otherwise < least ? missing(context, json, key) : ITH_OK;
    if (!is_int_of(value, least, most))
        return wrong_int(context, json, key, "an integer", least, most, value);
    *out = json_integer_value(value);
    return ITH_OK;
}

ith_status ith_json_double(ith_context *context, const ith_json *json, const char *key, double otherwise, double *out)
{
    const json_t *value = value_at(json, key);
    *out = otherwise;
    if (!value)
        return isnan(otherwise) ? missing(context, json, key) : ITH_OK;
    if (!json_is_number(value))
        return wrong(context, json, key, "a number", value);
    *out = json_number_value(value);
    return ITH_OK;
}

ith_status ith_json_next_number(ith_context *context, const ith_json *json, const char *key, const char **member,
                                double *value)
{
    const json_t *object = value_at(json, key);
    if (object && !json_is_object(object))
        return wrong(context, json, key, "an object", object);
    json_t *members = json_object_get(json->root, key);
    void *at =
        *member ? json_object_iter_next(members, json_object_iter_at(members, *member)) : json_object_iter(members);
    *member = at ? json_object_iter_key(at) : NULL;
    const json_t *number = at ? json_object_iter_value(at) : NULL;
    if (number && !json_is_number(number))
        return wrong(context, json, ith_quote(*member).text, "a number", number);
    *value = json_number_value(number);
    return ITH_OK;
}

ith_status ith_json_bool(ith_context *context, const ith_json *json, const char *key, bool otherwise, bool *out)
{
    const json_t *value = value_at(json, key);
    *out = otherwise;
    if (value && !json_is_boolean(value))
        return wrong(context, json, key, "true or false", value);
    if (value)
        *out = json_is_true(value);
    return ITH_OK;
}

ith_status ith_json_string(ith_context *context, const ith_json *json, const char *key, bool required, const char **out)
{
    const json_t *value = value_at(json, key);
    *out = json_string_value(value);
    if (!value)
        return required ? missing(context, json, key) : ITH_OK;
    return *out ? ITH_OK : wrong(context, json, key, "a string", value);
}

/* Finds the array at key and checks that it has at most `most` values. If it is absent or null, *array becomes NULL and
 * *count 0. */
static ith_status array_at(ith_context *context, const ith_json *json, const char *key, int64_t most,
                           const json_t **array, int64_t *count)
{
    *array = value_at(json, key);
    *count = (int64_t)json_array_size(*array);
    if (*array && !json_is_array(*array))
        return wrong(context, json, key, "an array", *array);
    if (*count > most)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" has %lld values; %lld is the most", json->path, key,
                        (long long)*count, (long long)most);
    return ITH_OK;
}

ith_status ith_json_doubles(ith_context *context, const ith_json *json, const char *key, int64_t most, double *out,
                            int64_t *count)
{
    const json_t *array = NULL;
    ith_status status = array_at(context, json, key, most, &array, count);
    for (int64_t i = 0; !status && i < *count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        if (!json_is_number(value))
            return wrong(context, json, key, "an array of numbers", value);
        out[i] = json_number_value(value);
    }
    return status;
}

ith_status ith_json_ints(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t greatest,
                         int64_t most, int64_t *out, int64_t *count)
{
    const json_t *array = NULL;
    ith_status status = array_at(context, json, key, most, &array, count);
    for (int64_t i = 0; !status && i < *count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        if (!is_int_of(value, least, greatest))
            return wrong_int(context, json, key, "an array of integers", least, greatest, value);
        out[i] = json_integer_value(value);
    }
    return status;
}

ith_status ith_json_bools(ith_context *context, const ith_json *json, const char *key, int64_t most, bool *out,
                          int64_t *count)
{
    const json_t *array = NULL;
    ith_status status = array_at(context, json, key, most, &array, count);
    for (int64_t i = 0; !status && i < *count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        if (!json_is_boolean(value))
            return wrong(context, json, key, "an array of true and false", value);
        out[i] = json_is_true(value);
    }
    return status;
}

const char *ith_json_string_at(const ith_json *json, const char *key, int64_t index)
{
    return json_string_value(json_array_get(value_at(json, key), (size_t)index));
}

ith_json_text ith_json_print(const ith_json *json, const char *key)
{
    ith_json_text out = {"absent"};
    char whole[4096];
    const json_t *value = json_object_get(json->root, key);
    if (!value)
        return out;
    if (json_is_boolean(value) || json_is_null(value)) { /* json_dumpb needs memory */
        snprintf(out.text, sizeof out.text, "%s",
                 json_is_null(value)   ? "null"
                 : json_is_true(value) ? "true"
                                       : "false");
        return out;
    }
    const locale_t before = ith_plain_begin();
    size_t bytes = json_dumpb(value, whole, sizeof whole - 1, JSON_COMPACT | JSON_ENCODE_ANY);
    ith_plain_end(before);
    bool fits = bytes > 0 && bytes < sizeof whole;
    whole[fits ? bytes : 0] = '\0';
    snprintf(out.text, sizeof out.text, "%s", fits ? ith_quote(whole).text : describe(value).text);
    return out;
}

const char *ith_json_next_key(const ith_json *json, const char *key)
{
    void *at =
        key ? json_object_iter_next(json->root, json_object_iter_at(json->root, key)) : json_object_iter(json->root);
    return at ? json_object_iter_key(at) : NULL;
}

ith_status ith_json_map_count(ith_context *context, const ith_json *json, const char *key, int64_t *count)
{
    json_t *map = json_object_get(json->root, key), *value = NULL;
    const char *name = NULL;
    *count = (int64_t)json_object_size(map);
    if (!map || json_is_null(map))
        return missing(context, json, key);
    if (!json_is_object(map))
        return wrong(context, json, key, "an object", map);
    json_object_foreach(map, name, value)
    {
        if (!json_is_string(value))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\": the value of \"%s\" must be a string, not %s",
                            json->path, key, ith_quote(name).text, describe(value).text);
    }
    return ITH_OK;
}

void ith_json_map(const ith_json *json, const char *key, const char **names, const char **values)
{
    json_t *value = NULL;
    const char *name = NULL;
    json_object_foreach(json_object_get(json->root, key), name, value)
    {
        *names++ = name;
        *values++ = json_string_value(value);
    }
}
