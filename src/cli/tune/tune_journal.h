/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a tuner: rates of single candidates, so that a search which was interrupted goes on where it was. It
 * is a text file to which each process appends a line for each measurement:
 *
 *     ithaca tune journal 1, library VERSION, INSTRUCTION SETS
 *     KERNEL TYPE SOFTMAX HEAD_DIM KEYS BLOCK_Q BLOCK_KV BLOCK_KV_COMPUTE BLOCK_KV_COMPUTE_IN GFLOPS
 *
 * A line that is cut off, because its process was killed, does not count. */
#ifndef ITH_CLI_TUNE_JOURNAL_H
#define ITH_CLI_TUNE_JOURNAL_H

#include <ithaca/tune.h>

#include <stdint.h>

/* A measurement: tiles of a kernel, and their rate. */
typedef struct ith_journal_line {
    char kernel[64];
    ith_tile_search about; /* dtype, softmax, head_dim and keys */
    ith_tile_choice tiles;
} ith_journal_line;

/* An open journal. */
typedef struct ith_journal {
    int file;                /* -1: nothing is kept */
    ith_journal_line *lines; /* the lines of the file when it was opened */
    int64_t count;
} ith_journal;

/* Opens the journal beside a file of wisdom, and reads its lines. again: empties it instead. A journal of another
 * version or machine is emptied too. Prints errors and returns an exit status. */
int ith_journal_open(ith_context *context, const char *wisdom, bool again, ith_journal *journal);
/* The rate that the journal has for these tiles of a kernel; 0 if it has none. */
double ith_journal_find(const ith_journal *journal, const char *kernel, const ith_tile_search *about,
                        const ith_tile_choice *tiles);
/* Appends a rate. A failure to write costs nothing but the measurement. */
void ith_journal_add(const ith_journal *journal, const char *kernel, const ith_tile_search *about,
                     const ith_tile_choice *tiles);
void ith_journal_close(ith_journal *journal);

#endif
