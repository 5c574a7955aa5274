/* SPDX-License-Identifier: Apache-2.0 */
/* The display of progress: on a terminal a bar that is drawn again and again on one line, otherwise lines. */
#include "progress.h"

#include "../cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_WIDTH 32       /* characters, at most */
#define NAME_WIDTH 8       /* of a stage, with a space */
#define LEAST_BAR 4        /* a terminal with room for fewer shows no bar */
#define REDRAW_SECONDS 0.1 /* least time between two drawings of the bar */
#define LINE_SECONDS 1.5   /* least time between two lines; with a report each second, two seconds pass at most */

bool ith_terminal_draws(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && (!kind || strcmp(kind, "dumb") != 0);
}

int ith_terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2 ? 79 : size.ws_col - 1;
}

void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent)
{
    *progress = (ith_progress){
        .stages = stages, .stage_count = stage_count, .silent = silent, .terminal = ith_terminal_draws(), .stage = -1};
    progress->last_event = progress->last_shown = ith_cli_seconds();
}

const char *ith_duration_text(double seconds, char *text, size_t bytes)
{
    const double most = 3600e6;
    if (!(seconds < most)) {
        snprintf(text, bytes, "more than %.0f hours", most / 3600);
        return text;
    }
    long whole = (long)(seconds + 0.5);
    if (seconds < 9.95)
        snprintf(text, bytes, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(text, bytes, "%ld:%02ld", whole / 60, whole % 60);
    else
        snprintf(text, bytes, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

/* An amount as text, returned by value. */
typedef struct amount {
    char text[128];
} amount;

/* Formats an amount: "step 3/40", "1.2/28.6 GB". `of` separates the two numbers. */
static amount describe(const ith_progress_stage *stage, int64_t done, int64_t total, const char *of)
{
    amount a;
    if (stage->unit)
        snprintf(a.text, sizeof a.text, "%s %lld%s%lld", stage->unit, (long long)(done / stage->unit_size), of,
                 (long long)(total / stage->unit_size));
    else if (total < 1000000000)
        snprintf(a.text, sizeof a.text, "%.1f%s%.1f MB", (double)done / 1e6, of, (double)total / 1e6);
    else
        snprintf(a.text, sizeof a.text, "%.2f%s%.2f GB", (double)done / 1e9, of, (double)total / 1e9);
    return a;
}

/* The amount, the share and the time left of a stage, as text. left < 0: the time is not known. */
static amount describe_all(const ith_progress_stage *stage, int64_t done, int64_t total, double left, const char *of)
{
    amount a = describe(stage, done, total, of);
    char time[32];
    const size_t length = strlen(a.text);
    snprintf(a.text + length, sizeof a.text - length, ", %.1f %%", 100.0 * (double)done / (double)total);
    if (left >= 0) {
        const size_t end = strlen(a.text);
        snprintf(a.text + end, sizeof a.text - end, ", %s left", ith_duration_text(left, time, sizeof time));
    }
    return a;
}

/* Draws the bar of a stage over the previous bar, as far as the terminal has room. At the end of the stage, prints a
 * line with its duration instead. */
static void show_bar(ith_progress *progress, const ith_progress_stage *stage, int64_t done, int64_t total, double left)
{
    char bar[BAR_WIDTH + 1], time[32];
    progress->bar_open = done < total;
    if (!progress->bar_open) {
        fprintf(stderr, "\r%-*s%s in %s\033[K\n", NAME_WIDTH, stage->name, describe(stage, done, total, "/").text,
                ith_duration_text(progress->last_event - progress->stage_start, time, sizeof time));
        return;
    }
    const amount all = describe_all(stage, done, total, left, "/");
    const int columns = ith_terminal_columns(), room = columns - (int)strlen(all.text) - NAME_WIDTH - 3;
    const int width = room < BAR_WIDTH ? room : BAR_WIDTH;
    const int full = (int)((double)done / (double)total * width);
    for (int i = 0; i < width; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    if (width >= LEAST_BAR)
        fprintf(stderr, "\r%-*s[%.*s] %s\033[K", NAME_WIDTH, stage->name, width, bar, all.text);
    else
        fprintf(stderr, "\r%.*s\033[K", columns, all.text);
    fflush(stderr);
}

/* Prints the progress of a stage as a line, for standard error that is no terminal. */
static void show_line(const ith_progress_stage *stage, int64_t done, int64_t total, double left)
{
    fprintf(stderr, "%s: %s\n", stage->name, describe_all(stage, done, total, left, " of ").text);
}

/* Shows the time since a stage ended, while the run works on something that belongs to no stage. */
static void show_waiting(ith_progress *progress, const ith_progress_stage *stage)
{
    char time[32];
    progress->bar_open = progress->terminal;
    fprintf(stderr, progress->terminal ? "\rafter %s: %s\033[K" : "after %s: %s\n", stage->name,
            ith_duration_text(ith_cli_seconds() - progress->last_event, time, sizeof time));
    fflush(stderr);
}

/* Whether `done` has reached a new tenth or unit of the stage (ith_progress_lines), for which a line is printed at
 * once. */
static bool is_worth_a_line(ith_progress *progress, const ith_progress_stage *stage, int64_t done, int64_t total)
{
    int64_t line = progress->last_line;
    if (stage->lines == ITH_LINES_TENTHS)
        line = (int64_t)((double)done / (double)total * 10);
    else if (stage->lines == ITH_LINES_UNITS)
        line = done / stage->unit_size;
    bool is_new = line != progress->last_line;
    progress->last_line = line;
    return is_new;
}

/* Begins a stage, or resumes a stage that another one interrupted. */
static void enter_stage(ith_progress *progress, int stage, int64_t done)
{
    ith_progress_end(progress);
    if (progress->stage >= 0) {
        progress->seconds[progress->stage] += progress->last_event - progress->stage_start;
        progress->gained[progress->stage] += progress->done - progress->entered_at;
    }
    progress->stage = stage;
    progress->entered_at = done >= progress->reached[stage] ? progress->reached[stage] : 0;
    progress->stage_start = progress->last_event;
    progress->last_line = 0;
}

/* The time that the rest of the stage will take; -1 if nothing is done yet. It follows from the progress since the
 * stage was entered; until that is a whole unit, also from the progress before, because the first part of a unit is
 * shown soon and says little. */
static double time_left(const ith_progress *progress, double now, int64_t done, int64_t total)
{
    const int stage = progress->stage;
    double seconds = now - progress->stage_start;
    int64_t gained = done - progress->entered_at;
    if (gained < progress->stages[stage].unit_size)
        seconds += progress->seconds[stage], gained += progress->gained[stage];
    return gained ? seconds * (double)(total - done) / (double)gained : -1;
}

void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total)
{
    if (progress->silent || total < 1 || done < 0 || done > total || stage < 0 || stage >= progress->stage_count)
        return;
    const ith_progress_stage *description = &progress->stages[stage];
    double now = ith_cli_seconds(), since = now - progress->last_shown;
    bool same = progress->stage == stage && done >= progress->done;
    /* While the engine works on something that belongs to no stage, it reports a complete stage again. */
    if (same && done == progress->done && done == total) {
        if (since >= LINE_SECONDS) {
            progress->last_shown = now;
            show_waiting(progress, description);
        }
        return;
    }
    if (!same)
        enter_stage(progress, stage, done);
    progress->done = progress->reached[stage] = done;
    progress->last_event = now;
    bool due = is_worth_a_line(progress, description, done, total) ||
               since >= (progress->terminal ? REDRAW_SECONDS : LINE_SECONDS) || (progress->terminal && done == total);
    if (!due)
        return;
    progress->last_shown = now;
    const double left = time_left(progress, now, done, total);
    if (progress->terminal)
        show_bar(progress, description, done, total, left);
    else
        show_line(description, done, total, left);
}

void ith_progress_end(ith_progress *progress)
{
    if (progress->bar_open)
        fputc('\n', stderr);
    progress->bar_open = false;
}
