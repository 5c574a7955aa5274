/* SPDX-License-Identifier: Apache-2.0 */
/* JSON texts become values of Jansson. Duplicate keys and invalid UTF-8 are refused. */
#ifndef ITH_FILES_JSON_LOAD_H
#define ITH_FILES_JSON_LOAD_H

#include "../base/context.h"

#include <jansson.h>
#include <stdbool.h>

#define ITH_JSON_MOST_VALUES (1 << 21) /* the largest files, tokenizers, have fewer than half as many */

/* Whether a text has at most ITH_JSON_MOST_VALUES values. Jansson takes up to 230 bytes for a value, which may be two
 * bytes of the text. */
bool ith_json_has_few_values(const char *text, int64_t bytes);

/* Parses a text as json_loadb does, but in every locale: where a decimal point has several bytes, as in ps_AF.UTF-8,
 * json_loadb aborts the process. */
json_t *ith_json_tree(const char *text, int64_t bytes, json_error_t *error);

/* Parses the text of the file `path`. ITH_ERR_MEMORY, or ITH_ERR_FORMAT with the line and the column. The caller
 * releases *out, which is NULL after a failure, with json_decref. */
ith_status ith_json_load(ith_context *context, const char *path, const char *text, int64_t bytes, json_t **out);

/* Whether Jansson lacked memory for a value; otherwise the text is wrong. Jansson describes every fault of a text, but
 * not every lack of memory. */
bool ith_json_lacks_memory(const json_error_t *error);

#endif
