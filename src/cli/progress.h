/* SPDX-License-Identifier: Apache-2.0 */
/* The progress of a run on standard error: a bar with the time left on a terminal, plain lines otherwise. The engine
 * reports progress about once a second; the display is renewed at least every two seconds. */
#ifndef ITH_CLI_PROGRESS_H
#define ITH_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define ITH_PROGRESS_STAGES 8

/* The events that get a line at once if standard error is no terminal. */
typedef enum ith_progress_lines {
    ITH_LINES_TIMED,  /* none: there is a line every two seconds */
    ITH_LINES_TENTHS, /* every tenth of the stage */
    ITH_LINES_UNITS   /* every unit */
} ith_progress_lines;

typedef struct ith_progress_stage {
    const char *name, *unit; /* "decode", "frame"; no unit: bytes are counted */
    int64_t unit_size;       /* the size of a unit in `done` and `total` */
    ith_progress_lines lines;
} ith_progress_stage;

typedef struct ith_progress {
    const ith_progress_stage *stages;
    int stage_count;
    bool silent, terminal;
    bool bar_open;            /* the cursor is behind a bar */
    int stage;                /* the current stage; -1 before the first */
    int64_t done, entered_at; /* entered_at: `done` when the stage began or was resumed */
    int64_t reached[ITH_PROGRESS_STAGES];
    double stage_start, last_event, last_shown;
    int64_t last_line; /* the last tenth or unit of the stage that got a line */
} ith_progress;

/* Begins with at most ITH_PROGRESS_STAGES stages, which must outlive the progress. silent: nothing is shown. */
void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent);
void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total);
/* Ends a bar's line, so that something else can be printed. */
void ith_progress_end(ith_progress *progress);

#endif
