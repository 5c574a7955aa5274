/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate with --prompts or --count: several videos with one model. All of them are checked first, then all
 * texts are encoded, then the videos are made one after the other. A video that fails does not end the others, unless
 * it ends a group of ranks of several processes. */
#include "batch_file.h"
#include "generate.h"
#include "generate_predict.h"

#include "../../media/output.h"
#include "../file/output_name.h"
#include "../launch/interrupt.h"
#include "../option/complaint.h"
#include "../option/launcher.h"

#include <ithaca/transport.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_DIGITS 3 /* of the numbers in the names of outputs */
#define MOST_NAMES 20  /* of videos that were not made, each on a separate line */

typedef enum video_state { VIDEO_WAITS, VIDEO_SKIPPED, VIDEO_DONE, VIDEO_FAILED } video_state;

/* One video of the batch. */
typedef struct video {
    ith_generation g;
    ith_options options;        /* the options of the command and of the line */
    char *output, *saved;       /* names with a number; `saved`: of the saved run, or NULL */
    const ith_batch_line *line; /* NULL: there is no file */
    video_state state;
} video;

/* The videos of one command. */
typedef struct batch {
    ith_generation *base; /* the command, with the open model */
    ith_batch_line *lines;
    int64_t line_count, count;
    video **videos;           /* [count] */
    ith_generate_rates rates; /* of a dry run */
    int round;                /* 0: the texts are encoded; otherwise the number of a video, from 1 on */
} batch;

/* ---- Names ----------------------------------------------------------------------------------------------------- */

/* Puts a number in front of the ending of a name, or at its end: "clip.mp4" becomes "clip-001.mp4". Returns NULL if
 * there is no memory. */
static char *with_number(const char *name, int64_t number, int64_t count)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(name, '.');
    const size_t whole = strlen(name);
    size_t length = whole;
    int digits = LEAST_DIGITS;
    char *out = NULL;
    for (int64_t most = 1000; most <= count; most *= 10)
        digits++;
    while (length > 1 && name[length - 1] == '/')
        length--;
    if (length == whole && dot && dot > (slash ? slash + 1 : name))
        length = (size_t)(dot - name);
    if (asprintf(&out, "%.*s-%0*lld%s", (int)length, name, digits, (long long)number, name + length) < 0)
        return NULL;
    return out;
}

/* Whether a complete output is there: a file, or a folder with a first frame. */
static bool is_there(const char *output)
{
    char *frame = NULL;
    if (asprintf(&frame, "%s%s", output, ith_output_is_folder(output) ? "/frame_0000.png" : "") < 0)
        return false;
    const bool there = !access(frame, F_OK);
    free(frame);
    return there;
}

/* ---- Before the videos ----------------------------------------------------------------------------------------- */

/* Names the output of a video, and the file in which its run is saved. number: from 0 on. */
static int name_files(const batch *b, video *v, int64_t number)
{
    ith_generate_settings *s = &v->g.settings;
    const int64_t each = b->count / b->line_count;
    const bool own = v->options.text[ith_option_find(&v->options, "output")]; /* the line has set it */
    const char *saved = s->checkpoint ? s->checkpoint : s->resume;
    if (own && each == 1)
        v->output = strdup(s->output);
    else
        v->output =
            own ? with_number(s->output, number % each + 1, each) : with_number(s->output, number + 1, b->count);
    v->saved = saved ? with_number(saved, number + 1, b->count) : NULL;
    if (!v->output || (saved && !v->saved))
        return ith_cli_error("there is no memory for a name");
    if (s->resume && v->g.launch.leads && is_there(v->output)) /* others prepare all videos */
        v->state = VIDEO_SKIPPED;
    s->resume = s->resume && !access(v->saved, F_OK) ? v->saved : NULL;
    s->checkpoint = v->saved;
    s->output = v->output;
    return ITH_EXIT_DONE;
}

/* Refuses options that a line sets and that its video cannot use. */
static int check_line(const batch *b, const video *v)
{
    const char *path = b->base->settings.prompts, *output = v->g.settings.output;
    const long long number = v->line->number;
    if (ith_batch_line_sets(v->line, "seed") && ith_batch_line_sets(v->line, "noise"))
        return ith_cli_error("%s:%lld: seed and noise exclude each other", path, number);
    if (ith_batch_line_sets(v->line, "noise") && b->count > b->line_count)
        return ith_cli_error("%s:%lld: noise: --count makes noise from several seeds, and this is one noise", path,
                             number);
    if (ith_batch_line_sets(v->line, "fit") && !v->g.settings.image && !v->g.settings.last_image)
        return ith_cli_error("%s:%lld: fit: it needs an image", path, number);
    for (const char *const *name = ith_generate_of_output; *name; name++) {
        const char *why = ith_generate_why_unused(*name, output);
        if (why && ith_batch_line_sets(v->line, *name))
            return ith_cli_error("%s:%lld: %s: it %s, and '%s' is none", path, number, *name, why, output);
    }
    return ITH_EXIT_DONE;
}

/* Makes the state of one video: the options of the command, and the options of its line, which count more. */
static int make_video(batch *b, int64_t number)
{
    video *v = b->videos[number] = calloc(1, sizeof *v);
    if (!v)
        return ith_cli_error("there is no memory for %lld videos", (long long)b->count);
    const int64_t each = b->count / b->line_count;
    v->line = b->lines ? &b->lines[number / each] : NULL;
    v->g = *b->base;
    v->options = *b->base->table;
    memset(v->options.text, 0, sizeof v->options.text); /* they belong to the command */
    v->options.settings = &v->g.settings;
    v->g.table = &v->options;
    int code = v->line ? ith_batch_line_apply(v->line, b->base->settings.prompts, &v->options) : ITH_EXIT_DONE;
    if (!code && !v->g.settings.prompt)
        code = ith_cli_error("%s:%lld: a prompt is needed", b->base->settings.prompts, (long long)v->line->number);
    if (!code && v->line)
        code = check_line(b, v);
    if (!code && v->line && ith_batch_line_sets(v->line, "seed"))
        v->g.settings.noise = NULL; /* --noise is for the lines without a seed */
    if (!code && v->g.settings.seed > UINT64_MAX - (uint64_t)(number % each))
        code = ith_cli_error("--count %lld needs a seed for each video, and %llu is the largest: take a smaller --seed",
                             (long long)each, (unsigned long long)UINT64_MAX);
    v->g.settings.seed += (uint64_t)(number % each);
    return code ? code : name_files(b, v, number);
}

/* Checks everything about one video that can be checked without weights. */
static int check_video(batch *b, video *v)
{
    ith_error_explain(&v->options);
    int code = ith_generate_translate(&v->g, v->g.command);
    if (!code)
        code = ith_generate_check_names(&v->g);
    if (!code)
        code = ith_generate_resolve(&v->g);
    ith_error_explain(b->base->table);
    if (code && v->line)
        ith_cli_error("%s:%lld: no video is begun because of this line", b->base->settings.prompts,
                      (long long)v->line->number);
    if (!code && v->g.launch.leads && v->g.settings.dry_run) {
        ith_generate_inspect_memory(&v->g);
        ith_generate_predict_next(&v->g, &b->rates);
    }
    return code;
}

/* Checks that no two videos have the same output. */
static int check_outputs(const batch *b)
{
    const char **paths = malloc((size_t)b->count * sizeof *paths);
    int64_t first, second;
    if (!paths)
        return ith_cli_error("there is no memory for names");
    for (int64_t i = 0; i < b->count; i++)
        paths[i] = b->videos[i]->output;
    int code = ith_cli_find_same(paths, b->count, b->count, &first, &second);
    if (!code && first >= 0)
        code = ith_cli_error("videos %lld and %lld have the same output, '%s'", (long long)first + 1,
                             (long long)second + 1, paths[second]);
    free(paths);
    return code;
}

/* Opens the model, and makes and checks all videos. */
static int prepare_all(batch *b)
{
    ith_generation *g = b->base;
    int code = ith_generate_translate(g, g->command);
    if (!code)
        code = ith_generate_begin(g);
    if (!code)
        code = ith_generate_open_model(g);
    if (!code && g->launch.leads && g->settings.dry_run)
        ith_generate_inspect_weights(g);
    for (int64_t i = 0; i < b->count && !code; i++)
        code = make_video(b, i);
    if (!code)
        code = check_outputs(b);
    for (int64_t i = 0; i < b->count && !code; i++) {
        if (b->videos[i]->state == VIDEO_WAITS)
            code = check_video(b, b->videos[i]);
        if (!code)
            code = ith_interrupt_check();
    }
    return code;
}

/* ith_launch_work.prepare. Round 0 prepares all videos, each later round makes one. */
static int prepare(void *user)
{
    batch *b = user;
    if (!b->videos[0])
        return prepare_all(b);
    b->round++;
    video *v = b->videos[b->round - 1];
    v->g.launch = b->base->launch;
    v->g.start = ith_cli_seconds();
    return ITH_EXIT_DONE;
}

/* ---- The videos ------------------------------------------------------------------------------------------------ */

/* Collective: rank 0's process decides which videos are skipped, because it writes them. */
static ith_status agree_on_skipped(batch *b, ith_comm *comm, char *skipped)
{
    const int rank = ith_comm_rank(comm);
    for (int64_t i = 0; i < b->count; i++)
        skipped[i] = b->videos[i]->state == VIDEO_SKIPPED;
    ith_status status = comm ? ith_comm_broadcast(comm, skipped, b->count, 0) : ITH_OK;
    for (int64_t i = 0; i < b->count && !status && rank && ith_launch_is_first(comm, rank); i++)
        b->videos[i]->state = skipped[i] ? VIDEO_SKIPPED : VIDEO_WAITS;
    return status;
}

/* Collective: encodes the prompts of all videos that are not skipped. */
static ith_status encode_all(batch *b, ith_comm *comm)
{
    char *skipped = malloc((size_t)b->count);
    const char **texts = malloc(2 * (size_t)b->count * sizeof *texts);
    int64_t count = 0;
    video *first = NULL;
    ith_status status = skipped && texts ? agree_on_skipped(b, comm, skipped) : ith_launch_fail(comm, ITH_ERR_MEMORY);
    for (int64_t i = 0; i < b->count && !status; i++) {
        video *v = b->videos[i];
        if (skipped[i])
            continue;
        first = first ? first : v;
        texts[count++] = v->g.options.prompt;
        if (v->g.options.guidance[0] > 1 || v->g.options.guidance[1] > 1)
            texts[count++] = v->g.options.negative;
    }
    if (first && !status)
        status = ith_generate_encode(&first->g, comm, texts, count);
    free(texts);
    free(skipped);
    return status;
}

/* Says which video begins, or that it is skipped. */
static void announce(const batch *b, const video *v)
{
    if (v->g.settings.quiet)
        return;
    fprintf(stderr, "[%d of %lld] %s%s\n", b->round, (long long)b->count, v->output,
            v->state == VIDEO_SKIPPED ? " is there already: skipped" : "");
}

/* Collective: makes the video of this round. */
static ith_status make_one(batch *b, ith_context *context, ith_comm *comm)
{
    video *v = b->videos[b->round - 1];
    const bool leads = ith_comm_rank(comm) == 0;
    if (leads)
        announce(b, v);
    if (v->state == VIDEO_SKIPPED)
        return ITH_OK;
    ith_status status = ith_generate_rank(context, comm, &v->g);
    if (!leads || status)
        return status;
    v->state = ith_generate_complete(&v->g) ? VIDEO_FAILED : VIDEO_DONE;
    if (v->state == VIDEO_FAILED) {
        ith_error_say();
        ith_generate_discard(&v->g);
    }
    return ITH_OK;
}

/* ith_launch_work.compute */
static ith_status compute(ith_context *context, ith_comm *comm, void *user)
{
    batch *b = user;
    if (b->base->settings.dry_run)
        return ITH_OK;
    return b->round ? make_one(b, context, comm) : encode_all(b, comm);
}

/* ith_launch_work.explain */
static const char *explain(void *user)
{
    const batch *b = user;
    const video *v = b->round ? b->videos[b->round - 1] : NULL;
    return v && v->g.media_failed ? ith_context_error(v->g.media_context) : NULL;
}

/* ith_launch_work.goes_on */
static bool goes_on(void *user)
{
    batch *b = user;
    if (!b->round || ith_interrupt_came())
        return false;
    video *v = b->videos[b->round - 1];
    v->state = VIDEO_FAILED;
    ith_generate_discard(&v->g);
    return true;
}

/* ---- After the videos ------------------------------------------------------------------------------------------ */

static int64_t count_state(const batch *b, video_state state)
{
    int64_t count = 0;
    for (int64_t i = 0; i < b->count; i++)
        count += b->videos[i] && b->videos[i]->state == state;
    return count;
}

/* Whether this process has made videos, and none is missing. */
static bool are_complete(const batch *b)
{
    const int64_t made = b->videos ? count_state(b, VIDEO_DONE) : 0;
    return made && made + count_state(b, VIDEO_SKIPPED) == b->count;
}

/* Prints the size, the memory and the predicted time of one video. */
static void print_dry(const video *v)
{
    const ith_generate_options *o = &v->g.options;
    const int64_t steps = o->steps - v->g.resumed_steps;
    printf("%lld frame%s of %lld x %lld, %lld step%s, seed %llu; %.0f MB", (long long)o->frames,
           ith_cli_plural(o->frames), (long long)o->width, (long long)o->height, (long long)steps,
           ith_cli_plural(steps), (unsigned long long)o->seed, ith_cli_megabytes(v->g.predicted_bytes));
    if (v->g.prediction.known)
        printf(", predicted %.3f s", v->g.prediction.cost.seconds);
    printf("\n");
    if (v->g.memory_lack[0])
        printf("    %s\n", v->g.memory_lack);
}

/* Prints a line for each video of a dry run, and the sum of their times if all of them are known. */
static int print_dry_list(const batch *b)
{
    const char *unknown = NULL;
    double seconds = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const video *v = b->videos[i];
        printf("%s: ", v->output);
        if (v->state == VIDEO_SKIPPED) {
            printf("is there already\n");
            continue;
        }
        print_dry(v);
        if (v->g.prediction.known)
            seconds += v->g.prediction.cost.seconds;
        else
            unknown = unknown ? unknown : v->g.prediction.unknown;
    }
    printf("%lld video%s", (long long)b->count, ith_cli_plural(b->count));
    if (unknown)
        printf("; no time is predicted: %s\n", unknown);
    else
        printf(", predicted %.3f s\n", seconds);
    fflush(stdout);
    return b->base->weights_fault[0] ? ith_cli_error("%s", b->base->weights_fault) : ITH_EXIT_DONE;
}

/* Prints a dry run. As JSON it is an object for each video that is not there yet. */
static int report_dry(const batch *b)
{
    int code = ITH_EXIT_DONE;
    if (!b->base->settings.json)
        return print_dry_list(b);
    for (int64_t i = 0; i < b->count && !code; i++)
        if (b->videos[i]->state != VIDEO_SKIPPED)
            code = ith_generate_report_dry(&b->videos[i]->g);
    return code;
}

/* Names the videos that were not made, and how to make them. */
static void print_failures(const batch *b, int code)
{
    const int64_t waiting = count_state(b, VIDEO_WAITS);
    int64_t named = 0, missing = waiting + count_state(b, VIDEO_FAILED);
    for (int64_t i = 0; i < b->count && named < MOST_NAMES; i++)
        if (b->videos[i]->state == VIDEO_FAILED || b->videos[i]->state == VIDEO_WAITS)
            fprintf(stderr, "%s was not made.\n", b->videos[i]->output), named++;
    if (missing > named)
        fprintf(stderr, "%lld more were not made.\n", (long long)(missing - named));
    if (code && waiting)
        fprintf(stderr, "The same command with --resume FILE leaves out the videos that are there.\n");
}

/* ith_launch_work.finish */
static int finish(void *user, int code)
{
    batch *b = user;
    if (b->base->settings.dry_run)
        return code ? code : report_dry(b);
    if (code && b->round && b->videos[b->round - 1]->state == VIDEO_WAITS)
        ith_generate_discard(&b->videos[b->round - 1]->g);
    if (!b->base->settings.quiet && !b->base->settings.json)
        printf("%lld of %lld videos made, %lld were there, %lld failed\n", (long long)count_state(b, VIDEO_DONE),
               (long long)b->count, (long long)count_state(b, VIDEO_SKIPPED), (long long)count_state(b, VIDEO_FAILED));
    print_failures(b, code);
    int saved = ith_attend_end(b->base->context, &b->base->settings.choices);
    code = code ? code : saved;
    return !code && count_state(b, VIDEO_FAILED) ? ITH_EXIT_FAILED : code;
}

/* ith_launch_work.share */
static ith_status share_model(ith_context *context, ith_comm *comm, void *user)
{
    return ith_generate_share_model(context, comm, ((batch *)user)->base);
}

static void free_batch(batch *b)
{
    for (int64_t i = 0; i < b->count && b->videos; i++) {
        video *v = b->videos[i];
        if (!v)
            continue;
        ith_generate_free(&v->g);
        ith_options_free(&v->options);
        free(v->output);
        free(v->saved);
        free(v);
    }
    free(b->videos);
    ith_generate_rates_clear(&b->rates);
    ith_batch_lines_free(b->lines, b->lines ? b->line_count : 0);
}

int ith_generate_run_batch(ith_generation *g)
{
    batch b = {.base = g, .line_count = 1};
    const ith_generate_settings *s = &g->settings;
    const bool alone = ith_launcher_is_alone(s->choices.launch.transport);
    int code = s->prompts ? ith_batch_lines_read(s->prompts, alone, &b.lines, &b.line_count) : ITH_EXIT_DONE;
    b.count = b.line_count * (s->count ? s->count : 1);
    if (!code && b.count > ITH_BATCH_MOST_VIDEOS)
        code = ith_cli_error("these are %lld videos; one command makes %d at most", (long long)b.count,
                             ITH_BATCH_MOST_VIDEOS);
    if (!code && !(b.videos = calloc((size_t)(b.count ? b.count : 1), sizeof *b.videos)))
        code = ith_cli_error("there is no memory for %lld videos", (long long)b.count);
    const ith_launch_work work = {.command = g->command,
                                  .options = g->table,
                                  .compared = ith_generate_compared,
                                  .orderly = true,
                                  .rounds = s->dry_run ? 1 : (int)b.count + 1,
                                  .share = share_model,
                                  .prepare = prepare,
                                  .compute = compute,
                                  .goes_on = goes_on,
                                  .explain = explain,
                                  .finish = finish,
                                  .user = &b};
    code = ith_launch_run(&g->launch, g->context, code, &work);
    if (code && are_complete(&b)) /* a trace or the wisdom could not be written */
        fprintf(stderr, "All videos are complete.\n");
    free_batch(&b);
    return code;
}
