/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the rows of a benchmark with the rows of an earlier run. Two rows belong together if they measure the same
 * problem in the same way: all members in `identity` are equal. */
#include "bench_output.h"

#include "../cli.h"
#include "../file/input_file.h"
#include "../support/text_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The members that identify the measurement of a row. A row may lack some of them. */
static const char *const identity[] = {"bench",     "stage",   "name",  "size",    "model",   "frames",   "height",
                                       "width",     "steps",   "cfg",   "batch",   "seq",     "heads",    "kv_heads",
                                       "head_dim",  "ffn_dim", "text",  "dtype",   "softmax", "overlap",  "compress",
                                       "precision", "weights", "ranks", "threads", "device",  "lora_rank"};
enum { IDENTITY = sizeof identity / sizeof *identity };

#define MOST_BYTES                                                                                                     \
    (1 << 22) /* of a file: thousands of rows. Jansson takes up to a hundred times the bytes of a text. */

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Checks that the rows are objects with the numbers that a comparison needs. */
static int check_rows(const char *path, const json_t *rows)
{
    static const char *const needed[] = {"seconds", "spread"};
    size_t index;
    const json_t *row;
    if (!json_is_array(rows))
        return ith_cli_error("%s: it is not an array of rows, as 'ithaca bench ... --json' prints", path);
    json_array_foreach(rows, index, row)
    {
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
            const json_t *value = json_object_get(row, needed[i]);
            if (!json_is_number(value) || json_number_value(value) < 0)
                return ith_cli_error("%s: row %zu has no number '%s' from 0 on", path, index + 1, needed[i]);
        }
    }
    return ITH_EXIT_DONE;
}

json_t *ith_bench_read_rows(const char *path)
{
    json_error_t error;
    size_t bytes;
    FILE *file = ith_input_open(path);
    if (!file) {
        ith_cli_error("%s: %s", path, ith_input_fault());
        return NULL;
    }
    char *text = ith_input_text(file, path, MOST_BYTES, &bytes);
    fclose(file);
    if (!text)
        return NULL;
    json_t *rows = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!rows)
        ith_cli_error("%s:%d: %s", path, error.line, error.text);
    if (rows && check_rows(path, rows)) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

static bool is_same_row(const json_t *a, const json_t *b)
{
    for (int i = 0; i < IDENTITY; i++) {
        const json_t *x = json_object_get(a, identity[i]), *y = json_object_get(b, identity[i]);
        if (x != y && (!x || !y || !json_equal(x, y)))
            return false;
    }
    return true;
}

/* Writes the members that identify a row: "name ulysses, batch 2, seq 4096". */
static void describe(const json_t *row, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < IDENTITY && length < bytes; i++) {
        const json_t *value = json_object_get(row, identity[i]);
        if (json_is_string(value))
            length += (size_t)snprintf(text + length, bytes - length, "%s%s %s", length ? ", " : "", identity[i],
                                       json_string_value(value));
        else if (json_is_integer(value))
            length += (size_t)snprintf(text + length, bytes - length, "%s%s %lld", length ? ", " : "", identity[i],
                                       (long long)json_integer_value(value));
    }
}

static double number(const json_t *row, const char *name)
{
    return json_number_value(json_object_get(row, name));
}

/* The verdict about a row and the row of the earlier run. */
static const char *judge(const json_t *row, const json_t *old)
{
    double now = number(row, "seconds"), before = number(old, "seconds");
    double noise = fmax(now * number(row, "spread"), before * number(old, "spread"));
    if (fabs(now - before) <= noise)
        return "same";
    return now < before ? "faster" : "slower";
}

/* The first row of the earlier run that measures the same as `row` and belongs to no other row yet; -1 if there is
 * none. */
static int find_old(const json_t *row, const json_t *old, const bool *used)
{
    for (size_t i = 0; i < json_array_size(old); i++)
        if (!used[i] && is_same_row(row, json_array_get(old, i)))
            return (int)i;
    return -1;
}

/* Says that rows of a single repeat have no spread. */
static void warn_of_one_repeat(const json_t *rows)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (number(json_array_get(rows, i), "spread") > 0)
            return;
    fprintf(stderr, "ithaca: one repeat has no spread: a row counts as changed if its time differs by more than the "
                    "spread of the earlier run\n");
}

void ith_bench_compare(json_t *rows, const json_t *old, const char *path)
{
    size_t index;
    json_t *row;
    char text[512];
    warn_of_one_repeat(rows);
    bool *used = calloc(json_array_size(old) + 1, sizeof *used);
    json_array_foreach(rows, index, row)
    {
        int found = used ? find_old(row, old, used) : -1;
        const json_t *before = found < 0 ? NULL : json_array_get(old, (size_t)found);
        if (before)
            used[found] = true;
        json_object_set_new(row, "old_seconds", before ? json_real(number(before, "seconds")) : json_null());
        json_object_set_new(row, "change", json_string(before ? judge(row, before) : "new"));
    }
    for (size_t i = 0; used && i < json_array_size(old); i++)
        if (!used[i]) {
            describe(json_array_get(old, i), text, sizeof text);
            ith_text_clean(text);
            fprintf(stderr, "ithaca: %s: its row %zu is not among the rows now: %s\n", path, i + 1, text);
        }
    free(used);
}
