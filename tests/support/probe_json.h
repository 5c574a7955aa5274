/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a configuration of any content and asks it for every kind of value at keys of every kind. */
#ifndef ITH_TESTS_PROBE_JSON_H
#define ITH_TESTS_PROBE_JSON_H

#include "files/json.h"

#include <math.h>

static inline void probe_json_key(ith_context *ctx, const ith_json *json, const char *key)
{
    int64_t integer = 0, length = 0, integers[4];
    double number = 0, numbers[4];
    bool truth = false, truths[4];
    const char *text = NULL, *names[16], *values[16];
    ith_json_int(ctx, json, key, 1, 100, 0, &integer);
    ith_json_double(ctx, json, key, NAN, &number);
    ith_json_bool(ctx, json, key, false, &truth);
    ith_json_string(ctx, json, key, true, &text);
    ith_json_doubles(ctx, json, key, 4, numbers, &length);
    ith_json_ints(ctx, json, key, 0, 9, 4, integers, &length);
    ith_json_bools(ctx, json, key, 4, truths, &length);
    ith_json_string_at(json, key, 1);
    if (!ith_json_map_count(ctx, json, key, &length) && length <= 16)
        ith_json_map(json, key, names, values);
}

/* The status of reading. */
static inline ith_status probe_json(ith_context *ctx, const char *path)
{
    static const char *const keys[] = {"layers", "eps", "name", "mean", "up", "weight_map", "class"};
    ith_json *json = NULL;
    ith_status status = ith_json_read(ctx, path, &json);
    for (size_t i = 0; !status && i < sizeof keys / sizeof keys[0]; i++)
        probe_json_key(ctx, json, keys[i]);
    ith_json_close(&json);
    return status;
}

#endif
