/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the rows of a benchmark as a table, as JSON or as CSV (RFC 4180). */
#include "bench_output.h"

#include "../cli.h"
#include "../file/output_name.h"
#include "../support/json_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES 128

#define AT(member) offsetof(ith_bench_output, member)
static const ith_option rows[] = {
    {.help = "What is printed and drawn:"},
    {"json", NULL, "Print a JSON array, an object for each row", ITH_OPTION_FLAG, .offset = AT(json)},
    {"csv", NULL, "Print CSV, a line for each row, after one with the names that --json uses", ITH_OPTION_FLAG,
     .offset = AT(csv)},
    {"svg", "FILE", "Draw the rows: bars of the medians, from the fastest to the slowest repeat, and the prediction",
     ITH_OPTION_TEXT, .offset = AT(svg)},
    {"compare", "FILE",
     "Compare with an earlier run, printed with --json: a row whose median differs by more than the spread of either "
     "run is faster or slower",
     ITH_OPTION_TEXT, .offset = AT(compare)},
};
#undef AT

int ith_bench_output_add_options(ith_option *table, int count, size_t offset)
{
    return ith_options_append(table, count, rows, sizeof rows / sizeof *rows, offset);
}

int ith_bench_output_begin(ith_bench_output *output, const char *command)
{
    if (output->json && output->csv)
        return ith_cli_usage(command, "--json and --csv exclude each other");
    int code = ith_cli_check_output(output->svg);
    if (code || !output->compare)
        return code;
    output->old = ith_bench_read_rows(output->compare);
    return output->old ? ITH_EXIT_DONE : ITH_EXIT_FAILED;
}

void ith_bench_output_free(ith_bench_output *output)
{
    json_decref(output->old);
    output->old = NULL;
}

/* ---- Numbers of a row -------------------------------------------------------------------------------------------- */

/* Compares two doubles for qsort. */
static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ith_bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_numbers);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void ith_bench_set_seconds(json_t *row, double *seconds, int count)
{
    double median = ith_bench_median(seconds, count);
    json_object_update_new(row, json_pack("{s:f, s:f, s:f, s:f}", "seconds", median, "spread",
                                          median > 0 ? (seconds[count - 1] - seconds[0]) / median : 0.0, "seconds_min",
                                          seconds[0], "seconds_max", seconds[count - 1]));
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

/* Writes the value of a row in a column; "" if it has none. */
static void write_cell(const json_t *row, const ith_bench_column *column, char cell[CELL_BYTES])
{
    const json_t *value = json_object_get(row, column->key);
    cell[0] = '\0';
    if (json_is_string(value))
        snprintf(cell, CELL_BYTES, "%s", json_string_value(value));
    else if (json_is_number(value) && column->format)
        snprintf(cell, CELL_BYTES, column->format, column->scale * json_number_value(value));
    else if (json_is_integer(value))
        snprintf(cell, CELL_BYTES, "%lld", (long long)json_integer_value(value));
    if (column->nothing && !strcmp(cell, column->nothing))
        cell[0] = '\0';
}

/* The width of a column; 0 if no row has a value in it. */
static int column_width(const json_t *all, const ith_bench_column *column)
{
    size_t index, width = 0;
    const json_t *row;
    char cell[CELL_BYTES];
    json_array_foreach(all, index, row)
    {
        write_cell(row, column, cell);
        width = strlen(cell) > width ? strlen(cell) : width;
    }
    return (int)(width && strlen(column->title) > width ? strlen(column->title) : width);
}

/* Prints a line of the table. row: NULL for the titles. The first column is aligned to the left, others to the right.
 */
static void print_line(const json_t *row, const ith_bench_column *columns, const int *widths, int count)
{
    char cell[CELL_BYTES];
    for (int i = 0; i < count; i++) {
        if (!widths[i])
            continue;
        if (row)
            write_cell(row, &columns[i], cell);
        else
            snprintf(cell, sizeof cell, "%s", columns[i].title);
        printf("%s%*s", i ? "  " : "", i ? widths[i] : -widths[i], cell[0] ? cell : "-");
    }
    putchar('\n');
}

/* Prints the columns of the table in which some row has a value. */
static void print_table(const json_t *all, const ith_bench_column *columns, int count)
{
    size_t index;
    const json_t *row;
    int *widths = calloc((size_t)count + 1, sizeof *widths);
    if (!widths)
        return;
    for (int i = 0; i < count; i++)
        widths[i] = column_width(all, &columns[i]);
    print_line(NULL, columns, widths, count);
    json_array_foreach(all, index, row)
    {
        print_line(row, columns, widths, count);
    }
    free(widths);
}

/* ---- JSON and CSV ------------------------------------------------------------------------------------------------ */

/* Prints the rows as a JSON array, one object on each line. */
static int print_json(const json_t *all)
{
    size_t index;
    const json_t *row;
    json_array_foreach(all, index, row)
    {
        fputs(index ? ",\n " : "[", stdout);
        const int code = ith_cli_json_dump(row, "the rows", JSON_REAL_PRECISION(6));
        if (code)
            return code;
    }
    puts(json_array_size(all) ? "]" : "[]");
    return ITH_EXIT_DONE;
}

/* Prints a field, in quotes if it needs them. */
static void print_field(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

/* Prints a value as a field of CSV; nothing for null. */
static void print_value(const json_t *value)
{
    if (json_is_string(value))
        print_field(json_string_value(value));
    else if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", stdout);
}

/* The names of all members of the rows, as the keys of an object in the order in which they come first. */
static json_t *list_names(const json_t *all)
{
    size_t index;
    json_t *row, *names = json_object();
    json_array_foreach(all, index, row)
    {
        json_object_update_missing(names, row);
    }
    return names;
}

static int print_csv(const json_t *all)
{
    size_t index;
    const json_t *row;
    const char *name;
    json_t *value, *names = list_names(all);
    if (!names)
        return ith_cli_error("there is no memory to write CSV");
    bool first = true;
    json_object_foreach(names, name, value)
    {
        printf("%s%s", first ? "" : ",", name);
        first = false;
    }
    fputs("\r\n", stdout);
    json_array_foreach(all, index, row)
    {
        first = true;
        json_object_foreach(names, name, value)
        {
            fputs(first ? "" : ",", stdout);
            print_value(json_object_get(row, name));
            first = false;
        }
        fputs("\r\n", stdout);
    }
    json_decref(names);
    return ITH_EXIT_DONE;
}

int ith_bench_output_end(const ith_bench_output *output, json_t *all, const ith_bench_about *about)
{
    int printed = ITH_EXIT_DONE;
    if (output->old)
        ith_bench_compare(all, output->old, output->compare);
    const int drawn = output->svg ? ith_bench_draw(output->svg, all, about) : ITH_EXIT_DONE;
    if (output->json)
        printed = print_json(all);
    else if (output->csv)
        printed = print_csv(all);
    else
        print_table(all, about->columns, about->column_count);
    json_decref(all);
    return drawn ? drawn : printed;
}
