#include "progress.h"

#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 32

void ith_progress_begin(ith_progress *progress, const ith_progress_stage *stages, int stage_count, bool silent)
{
    *progress = (ith_progress){
        .stages = stages, .stage_count = stage_count, .silent = silent, .terminal = isatty(STDERR_FILENO), .stage = -1};
    progress->last_event = ith_cli_seconds();
}

/* "1:02:03", "4:05", "0.7 s". */
static const char *duration(double seconds, char *text, size_t bytes)
{
    long whole = (long)(seconds + 0.5);
    if (seconds < 9.95)
        snprintf(text, bytes, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(text, bytes, "%ld:%02ld", whole / 60, whole % 60);
    else
        snprintf(text, bytes, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

static void show_bar(ith_progress *progress, const ith_progress_stage *stage, int64_t done, int64_t total, double left)
{
    char bar[BAR_WIDTH + 1], time[32];
    int64_t full = done * BAR_WIDTH / total;
    for (int64_t i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%-8s[%s] %s %lld/%lld, %s left\033[K", stage->name, bar, stage->unit, (long long)done,
            (long long)total, duration(left, time, sizeof time));
    progress->bar_open = done < total;
    if (!progress->bar_open)
        fprintf(stderr, "\r%-8s%lld/%lld in %s\033[K\n", stage->name, (long long)done, (long long)total,
                duration(progress->last_event - progress->stage_start, time, sizeof time));
    fflush(stderr);
}

/* Of units that are many and quick ten lines are enough. */
static void show_line(ith_progress *progress, const ith_progress_stage *stage, int64_t done, int64_t total, double left)
{
    char time[32];
    int64_t tenth = done * 10 / total;
    if (!stage->slow && tenth == progress->last_tenth)
        return;
    progress->last_tenth = tenth;
    fprintf(stderr, "%s: %s %lld of %lld, %s left\n", stage->name, stage->unit, (long long)done, (long long)total,
            duration(left, time, sizeof time));
}

void ith_progress_show(ith_progress *progress, int stage, int64_t done, int64_t total)
{
    if (progress->silent || total < 1 || done < 0 || done > total || stage < 0 || stage >= progress->stage_count)
        return;
    if (progress->stage != stage) {
        ith_progress_end(progress);
        progress->stage = stage;
        progress->stage_start = progress->last_event;
        progress->last_tenth = 0;
    }
    progress->last_event = ith_cli_seconds();
    double passed = progress->last_event - progress->stage_start;
    double left = done ? passed * (double)(total - done) / (double)done : 0;
    if (progress->terminal)
        show_bar(progress, &progress->stages[stage], done, total, left);
    else
        show_line(progress, &progress->stages[stage], done, total, left);
}

void ith_progress_end(ith_progress *progress)
{
    if (progress->bar_open)
        fputc('\n', stderr);
    progress->bar_open = false;
}
