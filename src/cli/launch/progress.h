/* SPDX-License-Identifier: Apache-2.0 */
/* The progress of a run on standard error: a bar with the time left on a terminal, plain lines otherwise. The engine
 * reports progress about once a second; the display is renewed at least every two seconds. */
#ifndef ITH_CLI_PROGRESS_H
#define ITH_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ITH_PROGRESS_STAGES 8 /* maximal number of stages */

/* The progress for which a line is printed at once if standard error is no terminal. */
typedef enum ith_progress_lines {
    ITH_LINES_TIMED,  /* none: there is a line every two seconds */
    ITH_LINES_TENTHS, /* every completed tenth of the stage */
    ITH_LINES_UNITS   /* every completed unit, such as a denoising step */
} ith_progress_lines;

/* A stage of a run, such as the decoding of frames. */
typedef struct ith_progress_stage {
    const char *name, *unit; /* such as "decode" and "frame"; unit NULL: the amounts are bytes */
    int64_t unit_size;       /* amount of progress that makes up one unit */
    ith_progress_lines lines;
} ith_progress_stage;

/* The state of the progress display. */
typedef struct ith_progress {
    const ith_progress_stage *stages;
    int stage_count;
    bool silent, terminal;                      /* whether nothing is shown; whether standard error is a terminal */
    bool bar_open;                              /* an unfinished bar stands on the current line */
    int stage;                                  /* the current stage; -1 before the first */
    int64_t done, entered_at;                   /* progress of the stage: now, and when it began or was resumed */
    int64_t reached[ITH_PROGRESS_STAGES];       /* progress of each stage so far */
    double seconds[ITH_PROGRESS_STAGES];        /* time of each stage before it was interrupted */
    int64_t gained[ITH_PROGRESS_STAGES];        /* progress of each stage in this time */
    double stage_start, last_event, last_shown; /* times: begin of the stage, last report, last display */
    int64_t last_line;                          /* the last tenth or unit of the stage for which a line was printed */
} ith_progress;

/* Whether standard error is a terminal that can draw a line again, which TERM=dumb says it cannot. */
bool ith_terminal_draws(void);
/* The columns of this terminal that a line may fill; 79 if they are not known. */
int ith_terminal_columns(void);
/* Writes a duration into `text`, which it returns: "1:02:03", "4:05", "0.7 s". */
const char *ith_duration_text(double seconds, char *text, size_t bytes);

/* Begins with at most ITH_PROGRESS_STAGES stages, which must outlive the progress. silent: nothing is shown. */
void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent);
/* Reports that `done` of `total` is complete in a stage, and shows it if it is time to. */
void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total);
/* Ends the line of an unfinished bar, so that other output can follow. */
void ith_progress_end(ith_progress *progress);

#endif
