/* SPDX-License-Identifier: Apache-2.0 */
/* The output of all benchmarks. A benchmark makes its rows once, as a JSON array of flat objects; they are printed as a
 * table, as JSON or as CSV, compared with an earlier run, and drawn. Every row has the numbers `seconds` (the median of
 * the repeats) and `spread` (the difference of the slowest and the fastest repeat, divided by `seconds`). */
#ifndef ITH_CLI_BENCH_OUTPUT_H
#define ITH_CLI_BENCH_OUTPUT_H

#include "../option/option.h"

#include <jansson.h>

/* The values of the options that all benchmarks share, and the rows of the earlier run. */
typedef struct ith_bench_output {
    bool json, csv;
    const char *compare, *svg; /* names of files; NULL: not asked for */
    json_t *old;               /* rows of the file `compare` */
} ith_bench_output;

/* Appends these options to a table that has `count` rows, and returns the new count. offset: the position of an
 * ith_bench_output in the command's settings. */
int ith_bench_output_add_options(ith_option *table, int count, size_t offset);

/* To be called before measuring, by the process that prints: checks the options and the files, and reads the earlier
 * rows. Prints errors and returns an exit status. */
int ith_bench_output_begin(ith_bench_output *output, const char *command);

/* A column of the table. */
typedef struct ith_bench_column {
    const char *title, *key; /* key: the member of a row */
    const char *format;      /* NULL: a text or a whole number; otherwise printf's format of the number times `scale` */
    double scale;
    const char *nothing; /* NULL, or a text that means the same as no value */
} ith_bench_column;

/* The headings of the table and of the picture. */
typedef struct ith_bench_about {
    const char *title;    /* the command */
    const char *machine;  /* the machine's name, for the picture */
    const char *settings; /* sizes that all rows have, for the picture */
    const ith_bench_column *columns;
    int column_count;
} ith_bench_about;

/* Compares, draws and prints the rows, and releases them. Prints errors and returns an exit status. */
int ith_bench_output_end(const ith_bench_output *output, json_t *rows, const ith_bench_about *about);
void ith_bench_output_free(ith_bench_output *output);

/* Reads the rows of an earlier run (--json). NULL after an error, which is printed with the file and the line or row.
 */
json_t *ith_bench_read_rows(const char *path);
/* Gives each row the members `old_seconds` and `change`: "same", "faster", "slower", or "new" for a row that the
 * earlier run does not have. A row has changed if its median differs from the earlier one by more than the spread of
 * either run. Says on standard error if no row has a spread, as after a single repeat, and names there the rows of the
 * earlier run that are missing. */
void ith_bench_compare(json_t *rows, const json_t *old, const char *path);

/* Draws the rows: a bar for each, in panels of equal sizes of the problem. Prints errors and returns an exit status. */
int ith_bench_draw(const char *path, const json_t *rows, const ith_bench_about *about);

/* Sorts [count] values, and sets the members seconds, seconds_min, seconds_max and spread of a row. */
void ith_bench_set_seconds(json_t *row, double *seconds, int count);
/* Sorts [count] values and returns their median. */
double ith_bench_median(double *values, int count);

#endif
