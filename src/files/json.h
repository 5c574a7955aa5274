/* SPDX-License-Identifier: Apache-2.0 */
/* JSON configuration files: read, and asked for what must be in them. Every failure names the file and the key. */
#ifndef ITH_FILES_JSON_H
#define ITH_FILES_JSON_H

#include "../base/context.h"

typedef struct ith_json ith_json; /* a document: an object at the top, the path it came from */

/* ITH_ERR_IO: cannot be read. ITH_ERR_FORMAT: not JSON, not an object, a key twice, larger than 64 MiB. */
ith_status ith_json_read(ith_context *context, const char *path, ith_json **out);
/* The file `name` of a folder. */
ith_status ith_json_read_in(ith_context *context, const char *folder, const char *name, ith_json **out);
void ith_json_close(ith_json **json);

const char *ith_json_path(const ith_json *json);
bool ith_json_has(const ith_json *json, const char *key); /* there, and not null */
/* An integer of [least, most]; `otherwise` where the key is absent or null, unless it is < least: then it is required.
 */
ith_status ith_json_int(ith_context *context, const ith_json *json, const char *key, int64_t least,
                                    int64_t most, int64_t otherwise, int64_t *out);
/* A number; `otherwise` where the key is absent or null, unless it is NAN: then it is required. */
ith_status ith_json_double(ith_context *context, const ith_json *json, const char *key, double otherwise,
                                       double *out);
ith_status ith_json_bool(ith_context *context, const ith_json *json, const char *key, bool otherwise,
                                     bool *out);
/* A string that lives as long as the document; NULL where absent or null and not required. */
ith_status ith_json_string(ith_context *context, const ith_json *json, const char *key, bool required,
                                       const char **out);
/* An array of numbers; *count is how many there are, at most `most`. 0 where absent or null. */
ith_status ith_json_doubles(ith_context *context, const ith_json *json, const char *key, int64_t most,
                                        double *out, int64_t *count);
/* The same of integers of [least, greatest]. */
ith_status ith_json_ints(ith_context *context, const ith_json *json, const char *key, int64_t least,
                                     int64_t greatest, int64_t most, int64_t *out, int64_t *count);
ith_status ith_json_bools(ith_context *context, const ith_json *json, const char *key, int64_t most,
                                      bool *out, int64_t *count);
/* The index-th string of the array at key: NULL if the array is absent, shorter, or holds null there. */
const char *ith_json_string_at(const ith_json *json, const char *key, int64_t index);

/* The value at key as compact JSON text, for a comparison or a sentence: "absent" where it is not there, shortened
 * where it is long. */
typedef struct ith_json_text {
    char text[192];
} ith_json_text;
ith_json_text ith_json_print(const ith_json *json, const char *key);
/* The document's keys in the order of the file: the first (NULL given), or the one after `key`. NULL at the end. */
const char *ith_json_next_key(const ith_json *json, const char *key);

/* The number of members of the object at key, which is required; all of them must be strings. */
ith_status ith_json_map_count(ith_context *context, const ith_json *json, const char *key, int64_t *count);
/* Its members in the order of the file; names[i] and values[i] live as long as the document. */
void ith_json_map(const ith_json *json, const char *key, const char **names, const char **values);

#endif
