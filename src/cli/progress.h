/* How far a run has come, on standard error: a bar with the time left on a terminal, plain lines otherwise. */
#ifndef ITH_CLI_PROGRESS_H
#define ITH_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ith_progress_stage {
    const char *name, *unit; /* "decode", "frame" */
    bool slow;               /* its units are few and long: each is worth a line */
} ith_progress_stage;

typedef struct ith_progress {
    const ith_progress_stage *stages;
    int stage_count;
    bool silent, terminal;
    bool bar_open; /* the cursor stands behind a bar */
    int stage;     /* -1 before the first */
    double stage_start;
    double last_event;
    int64_t last_tenth; /* of the stage, that was printed as a line */
} ith_progress;

/* stages must outlive the progress. */
void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent);
void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total);
/* Ends a bar's line, so that something else can be printed. */
void ith_progress_end(ith_progress *progress);

#endif
