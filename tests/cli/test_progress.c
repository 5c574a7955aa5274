/* SPDX-License-Identifier: Apache-2.0 */
/* The remaining time in the lines of the progress display. The clock is this test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "cli/launch/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOAD, DENOISE, STAGES, UNIT = 1000, STEPS = 10 };

static double now;
static ith_progress progress;

double ith_cli_seconds(void)
{
    return now;
}

/* Reports progress at a time, and returns the line that is shown, or "" if none is shown. */
static const char *show(double time, int stage, int64_t done, int64_t total)
{
    static char line[256];
    FILE *file = tmpfile();
    assert_non_null(file);
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    now = time;
    ith_progress_show(&progress, stage, done, total);
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(file);
    line[0] = '\0';
    if (fgets(line, sizeof line, file))
        line[strcspn(line, "\n")] = '\0';
    fclose(file);
    return line;
}

static void the_second_expert_does_not_spoil_the_estimate(void **state)
{
    (void)state;
    static const ith_progress_stage stages[STAGES] = {{"load", NULL, 1, ITH_LINES_TIMED},
                                                      {"denoise", "step", UNIT, ITH_LINES_UNITS}};
    const int64_t total = STEPS * UNIT;
    now = 0;
    ith_progress_begin(&progress, stages, STAGES, false);
    assert_string_equal(show(0.5, LOAD, 1, 1), "");
    assert_string_equal(show(2.5, DENOISE, 1 * UNIT, total), "denoise: step 1 of 10, 10.0 %, 0:18 left");
    assert_string_equal(show(4.5, DENOISE, 2 * UNIT, total), "denoise: step 2 of 10, 20.0 %, 0:16 left");
    /* An expert is opened in two seconds. The time of the first parts of its step says too little to be used alone. */
    show(5.5, LOAD, 0, 1);
    show(6.5, LOAD, 1, 1);
    assert_string_equal(show(8.05, DENOISE, 2 * UNIT, total), "denoise: step 2 of 10, 20.0 %, 0:22 left");
    assert_string_equal(show(8.1, DENOISE, 2 * UNIT + 10, total), "");
    /* This expert takes one second for a step. */
    assert_string_equal(show(8.5, DENOISE, 3 * UNIT, total), "denoise: step 3 of 10, 30.0 %, 0:14 left");
    assert_string_equal(show(9.5, DENOISE, 4 * UNIT, total), "denoise: step 4 of 10, 40.0 %, 9.0 s left");
    assert_string_equal(show(10.5, DENOISE, 5 * UNIT, total), "denoise: step 5 of 10, 50.0 %, 6.7 s left");
}

static void a_resumed_run_counts_its_own_steps_alone(void **state)
{
    (void)state;
    static const ith_progress_stage stages[STAGES] = {{"load", NULL, 1, ITH_LINES_TIMED},
                                                      {"denoise", "step", UNIT, ITH_LINES_UNITS}};
    now = 0;
    ith_progress_begin(&progress, stages, STAGES, false);
    progress.reached[DENOISE] = 8 * UNIT;
    assert_string_equal(show(2, DENOISE, 8 * UNIT, STEPS * UNIT), "denoise: step 8 of 10, 80.0 %");
    assert_string_equal(show(3, DENOISE, 9 * UNIT, STEPS * UNIT), "denoise: step 9 of 10, 90.0 %, 3.0 s left");
}

static void durations_are_short(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(ith_duration_text(0.04, text, sizeof text), "0.0 s");
    assert_string_equal(ith_duration_text(9.96, text, sizeof text), "0:10");
    assert_string_equal(ith_duration_text(3723, text, sizeof text), "1:02:03");
    assert_string_equal(ith_duration_text(1e300, text, sizeof text), "more than 1000000 hours");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_expert_does_not_spoil_the_estimate),
        cmocka_unit_test(a_resumed_run_counts_its_own_steps_alone),
        cmocka_unit_test(durations_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
