/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run has come, on standard error: a bar with the time left on a terminal, plain lines otherwise. Whatever
 * the run tells, at least about once a second, is shown at least every two seconds. */
#ifndef ITH_CLI_PROGRESS_H
#define ITH_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define ITH_PROGRESS_STAGES 8

/* What gets a line at once where there is no terminal. */
typedef enum ith_progress_lines {
    ITH_LINES_TIMED,  /* nothing: a line every two seconds is enough */
    ITH_LINES_TENTHS, /* every tenth of the stage */
    ITH_LINES_UNITS   /* every unit */
} ith_progress_lines;

typedef struct ith_progress_stage {
    const char *name, *unit; /* "decode", "frame"; no unit: bytes are counted */
    int64_t unit_size;       /* what a unit counts in `done` and `total` */
    ith_progress_lines lines;
} ith_progress_stage;

typedef struct ith_progress {
    const ith_progress_stage *stages;
    int stage_count;
    bool silent, terminal;
    bool bar_open;            /* the cursor stands behind a bar */
    int stage;                /* -1 before the first */
    int64_t done, entered_at; /* entered_at: done when the stage was entered, which it may be again */
    int64_t reached[ITH_PROGRESS_STAGES];
    double stage_start, last_event, last_shown;
    int64_t last_line; /* the tenth or unit of the stage that had a line */
} ith_progress;

/* stages must outlive the progress; at most ITH_PROGRESS_STAGES. */
void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent);
void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total);
/* Ends a bar's line, so that something else can be printed. */
void ith_progress_end(ith_progress *progress);

#endif
