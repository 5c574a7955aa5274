/* How far a run has come, on standard error: a bar with the time left on a terminal, plain lines otherwise. */
#ifndef ITH_CLI_PROGRESS_H
#define ITH_CLI_PROGRESS_H

#include <ithaca/wan.h>

typedef struct ith_progress {
    bool silent, terminal;
    bool bar_open; /* the cursor stands behind a bar */
    int stage;     /* -1 before the first */
    double stage_start;
    double last_event;
    int64_t last_tenth; /* of the stage, that was printed as a line */
} ith_progress;

void ith_progress_begin(ith_progress *progress, bool silent);
void ith_progress_show(ith_progress *progress, ith_stage stage, int64_t done, int64_t total);
/* Ends a bar's line, so that something else can be printed. */
void ith_progress_end(ith_progress *progress);

#endif
