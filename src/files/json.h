/* SPDX-License-Identifier: Apache-2.0 */
/* JSON configuration files, and typed access to their values. Every error message names the file and the key. */
#ifndef ITH_FILES_JSON_H
#define ITH_FILES_JSON_H

#include "../base/context.h"

typedef struct ith_json ith_json; /* a file that was read, whose top value is an object */

/* Reads a JSON file. ITH_ERR_IO if it cannot be read. ITH_ERR_FORMAT if it is not JSON, if its top value is not an
 * object, if it has a key twice, or if it is larger than 64 MiB. NaN, Infinity and -Infinity, which are no JSON, but
 * which Python writes, are read as strings. */
ith_status ith_json_read(ith_context *context, const char *path, ith_json **out);
/* Reads the JSON file folder/name. */
ith_status ith_json_read_in(ith_context *context, const char *folder, const char *name, ith_json **out);
/* Parses a JSON text of `bytes` bytes. where: its place in words, for messages. */
ith_status ith_json_parse(ith_context *context, const char *where, const char *text, int64_t bytes, ith_json **out);
void ith_json_close(ith_json **json);

/* The path of the file, for messages. */
const char *ith_json_path(const ith_json *json);
bool ith_json_has(const ith_json *json, const char *key); /* whether key exists and is not null */
/* Reads an integer in [least, most]. If the key is absent or null, *out becomes `otherwise`; if `otherwise` is below
 * least, a missing key is an error. ITH_ERR_FORMAT for a missing key, a wrong type or a number out of range. */
ith_status ith_json_int(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t most,
                        int64_t otherwise, int64_t *out);
/* Reads a number. If the key is absent or null, *out becomes `otherwise`; if `otherwise` is NAN, a missing key is an
 * error. */
ith_status ith_json_double(ith_context *context, const ith_json *json, const char *key, double otherwise, double *out);
/* Iterates over the numbers in the object at key, in the order of the file. *member is the name of the number before,
 * NULL at the beginning. It becomes the name of the next number; NULL after the end or without an object. */
ith_status ith_json_next_number(ith_context *context, const ith_json *json, const char *key, const char **member,
                                double *value);
/* Reads true or false. If the key is absent or null, *out becomes `otherwise`. */
ith_status ith_json_bool(ith_context *context, const ith_json *json, const char *key, bool otherwise, bool *out);
/* Reads a string, which lives as long as the ith_json. If the key is absent or null, *out becomes NULL; if `required`
 * is true, this is an error. */
ith_status ith_json_string(ith_context *context, const ith_json *json, const char *key, bool required,
                           const char **out);
/* Reads an array of at most `most` numbers into out. *count becomes its length, or 0 if the key is absent or null. */
ith_status ith_json_doubles(ith_context *context, const ith_json *json, const char *key, int64_t most, double *out,
                            int64_t *count);
/* Reads an array of at most `most` integers in [least, greatest] into out. *count becomes its length, or 0 if the key
 * is absent or null. */
ith_status ith_json_ints(ith_context *context, const ith_json *json, const char *key, int64_t least, int64_t greatest,
                         int64_t most, int64_t *out, int64_t *count);
/* Reads an array of at most `most` values true and false into out. *count becomes its length, or 0 if the key is absent
 * or null. */
ith_status ith_json_bools(ith_context *context, const ith_json *json, const char *key, int64_t most, bool *out,
                          int64_t *count);
/* Returns the string at position `index` of the array at key; NULL if the array is absent or shorter, or if the value
 * there is null. */
const char *ith_json_string_at(const ith_json *json, const char *key, int64_t index);

/* The value at a key as compact JSON text, for messages and comparisons: "absent" if there is no such key. A long text
 * is cut. */
typedef struct ith_json_text {
    char text[192];
} ith_json_text;
ith_json_text ith_json_print(const ith_json *json, const char *key);
/* Iterates over the keys of the top object in the order of the file: for NULL returns the first key, otherwise the key
 * after `key`, and NULL at the end. */
const char *ith_json_next_key(const ith_json *json, const char *key);
/* Counts the members of the object at key. The object must exist, and all its members must be strings. */
ith_status ith_json_map_count(ith_context *context, const ith_json *json, const char *key, int64_t *count);
/* Stores the names and the values of the members of the object at key, in the order of the file. Both arrays have room
 * for the number of members that ith_json_map_count counts. The strings live as long as the ith_json. */
void ith_json_map(const ith_json *json, const char *key, const char **names, const char **values);

#endif
