/* SPDX-License-Identifier: Apache-2.0 */
/* JSON configuration files and typed access to their values. Every failure names the file and the key. */
#ifndef ITH_FILES_JSON_H
#define ITH_FILES_JSON_H

#include "../base/context.h"

typedef struct ith_json ith_json; /* a document, whose top value is an object, and its path */

/* ITH_ERR_IO if the file cannot be read. ITH_ERR_FORMAT if it is not JSON, not an object, has a key twice, or is larger
 * than 64 MiB. */
ith_status ith_json_read(ith_context *context, const char *path, ith_json **out);
/* Reads folder/name. */
ith_status ith_json_read_in(ith_context *context, const char *folder, const char *name, ith_json **out);
void ith_json_close(ith_json **json);

const char *ith_json_path(const ith_json *json);
bool ith_json_has(const ith_json *json, const char *key); /* there, and not null */
/* An integer in [least, most]. If the key is absent or null, *out is `otherwise`; an `otherwise` below least makes the
 * key required. Here and below, a wrong type or range is ITH_ERR_FORMAT. */
ith_status ith_json_int(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t most,
                        int64_t otherwise, int64_t *out);
/* A number; `otherwise` if the key is absent or null. NAN as `otherwise` makes the key required. */
ith_status ith_json_double(ith_context *context, const ith_json *json, const char *key, double otherwise, double *out);
ith_status ith_json_bool(ith_context *context, const ith_json *json, const char *key, bool otherwise, bool *out);
/* A string, which lives as long as the document; NULL if it is absent or null and not required. */
ith_status ith_json_string(ith_context *context, const ith_json *json, const char *key, bool required,
                           const char **out);
/* An array of at most `most` numbers; *count is its length, 0 if it is absent or null. */
ith_status ith_json_doubles(ith_context *context, const ith_json *json, const char *key, int64_t most, double *out,
                            int64_t *count);
/* The same for integers in [least, greatest]. */
ith_status ith_json_ints(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t greatest,
                         int64_t most, int64_t *out, int64_t *count);
ith_status ith_json_bools(ith_context *context, const ith_json *json, const char *key, int64_t most, bool *out,
                          int64_t *count);
/* String number `index` of the array at key; NULL if the array is absent or shorter, or if the value is null. */
const char *ith_json_string_at(const ith_json *json, const char *key, int64_t index);

/* The value at key as compact JSON text, to be compared or shown: "absent" if there is none, and cut if it is long. */
typedef struct ith_json_text {
    char text[192];
} ith_json_text;
ith_json_text ith_json_print(const ith_json *json, const char *key);
/* Iterates over the keys of the document in the order of the file: returns the first one for NULL, otherwise the one
 * after `key`, and NULL at the end. */
const char *ith_json_next_key(const ith_json *json, const char *key);

/* The number of members of the object at key. The object is required, and all members must be strings. */
ith_status ith_json_map_count(ith_context *context, const ith_json *json, const char *key, int64_t *count);
/* The members of that object in the order of the file. names[i] and values[i] live as long as the document. */
void ith_json_map(const ith_json *json, const char *key, const char **names, const char **values);

#endif
