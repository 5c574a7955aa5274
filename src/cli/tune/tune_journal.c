/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the journal of a tuner, and appends to it (tune_journal.h). */
#include "tune_journal.h"

#include "../../media/output.h"
#include "../cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 256
#define MOST_LINES 100000

/* The first line of a journal of this library on this machine. */
static void write_header(ith_context *context, char line[LINE_BYTES])
{
    char sets[128];
    snprintf(line, LINE_BYTES, "ithaca tune journal 1, library %s, %s\n", ith_version(),
             ith_cpu_describe(ith_context_cpu(context), sets, sizeof sets));
}

/* The number of the type or softmax with this name; 0 if there is none. */
static int dtype_of(const char *name)
{
    for (int i = ITH_F32; i <= ITH_F16; i++)
        if (!strcmp(name, ith_dtype_name((ith_dtype)i)))
            return i;
    return 0;
}

static int softmax_of(const char *name)
{
    for (int i = ITH_SOFTMAX_ONLINE; i <= ITH_SOFTMAX_FIXED_M; i++)
        if (!strcmp(name, ith_softmax_name((ith_softmax)i)))
            return i;
    return 0;
}

/* Reads one line. Returns false if it is not a measurement. */
static bool read_line(const char *text, ith_journal_line *line)
{
    char dtype[8], softmax[16], end;
    long long head_dim, keys, tiles[4];
    double gflops;
    if (sscanf(text, "%63s %7s %15s %lld %lld %lld %lld %lld %lld %lf%c", line->kernel, dtype, softmax, &head_dim,
               &keys, &tiles[0], &tiles[1], &tiles[2], &tiles[3], &gflops, &end) != 11 ||
        end != '\n' || !(gflops > 0 && isfinite(gflops)))
        return false;
    line->about = (ith_tile_search)ITH_TILE_SEARCH_INIT;
    line->about.dtype = (ith_dtype)dtype_of(dtype), line->about.softmax = (ith_softmax)softmax_of(softmax);
    line->about.head_dim = head_dim, line->about.keys = keys;
    line->tiles = (ith_tile_choice){tiles[0], tiles[1], tiles[2], tiles[3], gflops};
    return true;
}

/* Reads all lines behind the header. Returns false if the file is of another version or machine. */
static bool read_lines(FILE *file, const char *header, ith_journal *j)
{
    char text[LINE_BYTES];
    if (!fgets(text, sizeof text, file) || strcmp(text, header) != 0)
        return false;
    while (j->count < MOST_LINES && fgets(text, sizeof text, file)) {
        if (j->count % 1024 == 0) {
            ith_journal_line *more = realloc(j->lines, (size_t)(j->count + 1024) * sizeof *more);
            if (!more)
                break;
            j->lines = more;
        }
        j->count += read_line(text, &j->lines[j->count]);
    }
    return true;
}

int ith_journal_open(ith_context *context, const char *wisdom, bool again, ith_journal *j)
{
    char path[PATH_MAX], header[LINE_BYTES];
    struct stat info;
    *j = (ith_journal){.file = -1};
    if (!stat(wisdom, &info) && !S_ISREG(info.st_mode))
        return ITH_EXIT_DONE;
    if (ith_output_beside(wisdom, "", ".journal", path))
        return ith_cli_error("cannot write the journal of %s: %s", wisdom, strerror(ENAMETOOLONG));
    write_header(context, header);
    FILE *file = again ? NULL : fopen(path, "r");
    bool usable = file && read_lines(file, header, j);
    if (file)
        fclose(file);
    j->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (usable ? 0 : O_TRUNC), 0666);
    const char *start = usable ? "\n" : header; /* ends a line that was cut off */
    if (j->file >= 0 && write(j->file, start, strlen(start)) >= 0)
        return ITH_EXIT_DONE;
    const int error = errno;
    if (j->file >= 0 && !usable) /* it is empty */
        unlink(path);
    return ith_cli_error("cannot write %s: %s", path, strerror(error));
}

static bool is_about(const ith_journal_line *line, const char *kernel, const ith_tile_search *about,
                     const ith_tile_choice *tiles)
{
    const ith_tile_choice *t = &line->tiles;
    return !strcmp(line->kernel, kernel) && line->about.dtype == about->dtype &&
           line->about.softmax == about->softmax && line->about.head_dim == about->head_dim &&
           line->about.keys == about->keys && t->block_q == tiles->block_q && t->block_kv == tiles->block_kv &&
           t->block_kv_compute == tiles->block_kv_compute && t->block_kv_compute_in == tiles->block_kv_compute_in;
}

double ith_journal_find(const ith_journal *j, const char *kernel, const ith_tile_search *about,
                        const ith_tile_choice *tiles)
{
    double gflops = 0;
    for (int64_t i = 0; i < j->count; i++)
        if (is_about(&j->lines[i], kernel, about, tiles) && j->lines[i].tiles.gflops > gflops)
            gflops = j->lines[i].tiles.gflops;
    return gflops;
}

/* One call of `write` for a line: lines of several processes do not mix. */
void ith_journal_add(const ith_journal *j, const char *kernel, const ith_tile_search *about,
                     const ith_tile_choice *tiles)
{
    char text[LINE_BYTES];
    int length = snprintf(text, sizeof text, "%s %s %s %lld %lld %lld %lld %lld %lld %.6g\n", kernel,
                          ith_dtype_name(about->dtype), ith_softmax_name(about->softmax), (long long)about->head_dim,
                          (long long)about->keys, (long long)tiles->block_q, (long long)tiles->block_kv,
                          (long long)tiles->block_kv_compute, (long long)tiles->block_kv_compute_in, tiles->gflops);
    if (j->file >= 0 && length > 0 && length < LINE_BYTES && write(j->file, text, (size_t)length) < 0)
        return;
}

void ith_journal_close(ith_journal *j)
{
    if (j->file >= 0)
        close(j->file);
    free(j->lines);
    *j = (ith_journal){.file = -1};
}
