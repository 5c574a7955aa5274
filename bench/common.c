/* SPDX-License-Identifier: Apache-2.0 */
/* Options, contexts and peaks of the benchmarks (common.h). */
#include "common.h"

#include "../src/kernels/unpack.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURSTS = 3 };
static const double BURST_SECONDS = 0.00004;

/* Finds the type of a name among F32, BF16 and F16, and with `packed` among the quantised types too. */
static bool parse_dtype(const char *name, bool packed, ith_dtype *dtype)
{
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++)
        if ((type <= ITH_F16 || (packed && ith_unpack_has(type))) && strcmp(name, ith_dtype_name(type)) == 0) {
            *dtype = type;
            return true;
        }
    return false;
}

static bool parse_value(const bench_option *option, const char *value)
{
    if (option->text)
        *option->text = value;
    if (option->dtype && !parse_dtype(value, false, option->dtype))
        return false;
    if (option->weights && !parse_dtype(value, true, option->weights))
        return false;
    if (!option->number && !option->count)
        return true;
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || (option->count && (number < INT_MIN || number > INT_MAX)))
        return false;
    if (option->count)
        *option->count = (int)number;
    else
        *option->number = number;
    return true;
}

bool bench_parse(int argc, char **argv, const bench_option *options, int count)
{
    for (int i = 1; i < argc; i += 2) {
        int n = 0;
        while (n < count && strcmp(argv[i], options[n].name) != 0)
            n++;
        if (n == count || i + 1 == argc || !parse_value(&options[n], argv[i + 1]))
            return false;
    }
    return true;
}

int bench_run(const char *program, ith_status (*bench)(ith_context *context, const void *settings),
              const void *settings)
{
    ith_context *context = NULL;
    ith_status status = ith_context_create(NULL, &context);
    if (!status)
        status = bench(context, settings);
    if (status)
        fprintf(stderr, "%s: %s\n", program, ith_context_error(context));
    ith_context_destroy(&context);
    return status ? 1 : 0;
}

double bench_burst(const ith_instructions *instructions, uint32_t cpu)
{
    double best = 0;
    for (int i = 0; i < BURSTS; i++)
        best = fmax(best, ith_peak_of_product(instructions, cpu, 1, BURST_SECONDS));
    return best;
}
