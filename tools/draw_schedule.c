/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the schedules of all ranks as an SVG picture, from the steps that the library executes:
 *
 *     draw_schedule WHAT RANKS HEADS ROWS [OPTION=VALUE ...] >picture.svg
 *
 * OPTION is strategy, ulysses, ring or chunks.
 * WHAT is `holdings` (who holds which rows of which heads, before and while attention is computed) or `timeline` (what
 * each rank computes and exchanges, step after step). RANKS, HEADS and ROWS are the sizes of the problem. Exchanges go
 * by messages, so that the picture shows them. tools/make_guide.sh makes the pictures of docs/guide. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/attention/schedule/schedule.h"
#include "../src/plan/settle.h"

enum {
    WIDTH = 900,   /* of a picture, in pixels */
    MARGIN = 70,   /* on the left, for the names of ranks */
    LANE = 26,     /* height of a row of boxes */
    GAP = 6,       /* between two lanes */
    EXPOSED = 48,  /* width of an exchange during which nothing is computed */
    MOST_RANKS = 8 /* ranks that have a colour of their own */
};

/* Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008). */
static const char *const colours[MOST_RANKS] = {"#56b4e9", "#e69f00", "#009e73", "#f0e442",
                                                "#cc79a7", "#d55e00", "#0072b2", "#999999"};

static _Noreturn void give_up(const char *reason)
{
    fprintf(stderr, "draw_schedule: %s\n", reason);
    exit(EXIT_FAILURE);
}

/* ---- SVG ------------------------------------------------------------------------------------------------------- */

static void begin_picture(int width, int height)
{
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
           "font-size=\"13\">\n"
           "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
           width, height);
}

static void draw_text(double x, double y, const char *anchor, const char *text)
{
    printf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}

static void draw_box(double x, double y, double width, double height, const char *fill, const char *text)
{
    printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"#333\"/>\n", x, y, width,
           height, fill);
    if (text[0])
        draw_text(x + width / 2, y + height / 2 + 5, "middle", text);
}

/* ---- Holdings -------------------------------------------------------------------------------------------------- */

/* A matrix of boxes: one for every part of the sequence that a rank holds, and every head. */
typedef struct matrix {
    double x, y, cell;
    const ith_attn_setting *setting;
} matrix;

/* Draws rows [begin, begin + rows) of heads [first, first + count) in the colour of a rank. */
static void draw_part(const matrix *m, int64_t first, int64_t count, ith_row_range rows, int rank)
{
    const ith_attn_setting *s = m->setting;
    double row_height = m->cell * s->ulysses * s->ring / (double)s->problem.q_len;
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    for (int64_t n = first; n < first + count; n++)
        draw_box(m->x + (double)n * m->cell, m->y + (double)rows.begin * row_height, m->cell,
                 (double)rows.rows * row_height, colours[rank], n == first ? text : "");
}

/* Draws the queries of each COMPUTE step that begins with new queries: the rows and heads for which a rank computes. */
static void draw_computed(const matrix *m)
{
    ith_step step;
    for (int rank = 0; rank < m->setting->ulysses * m->setting->ring; rank++) {
        ith_schedule schedule = ith_schedule_of(m->setting, rank);
        while (ith_schedule_next(&schedule, &step))
            if (step.kind == ITH_STEP_COMPUTE && step.first)
                draw_part(m, step.heads.first, step.heads.count, step.q, rank);
    }
}

/* Draws the rows that each rank brings: its share of the sequence, of all heads. */
static void draw_shares(const matrix *m)
{
    const ith_attn_setting *s = m->setting;
    ith_row_range rows;
    for (int rank = 0; rank < s->ulysses * s->ring; rank++) {
        ith_share(s->problem.q_len, s->ulysses * s->ring, rank, &rows.begin, &rows.rows);
        draw_part(m, 0, s->problem.heads, rows, rank);
    }
}

/* Names the two axes of a matrix and its title. */
static void draw_axes(const matrix *m, const char *title)
{
    double width = m->cell * (double)m->setting->problem.heads;
    draw_text(m->x + width / 2, m->y - 26, "middle", title);
    draw_text(m->x + width / 2, m->y - 8, "middle", "heads");
    printf("<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">rows of the sequence</text>\n",
           m->x - 10, m->y + m->cell * m->setting->ulysses * m->setting->ring / 2);
}

static void draw_holdings(const ith_attn_setting *setting)
{
    int ranks = setting->ulysses * setting->ring;
    double cell = 300.0 / (double)setting->problem.heads;
    matrix before = {.x = MARGIN, .y = 60, .cell = cell, .setting = setting};
    matrix during = {.x = WIDTH / 2 + MARGIN, .y = 60, .cell = cell, .setting = setting};
    begin_picture(WIDTH, 80 + (int)(cell * ranks));
    draw_axes(&before, "each rank brings these rows of q, k, v");
    draw_shares(&before);
    draw_axes(&during, "each rank computes o for these rows and heads");
    draw_computed(&during);
    printf("</svg>\n");
}

/* ---- Timeline -------------------------------------------------------------------------------------------------- */

/* The lanes of one rank. */
typedef struct lanes {
    double y, now;                /* the upper edge; the present place on the time axis */
    double posted[ITH_EXCHANGES]; /* the places at which exchanges were posted */
    char label[ITH_EXCHANGES][64];
    int lane[ITH_EXCHANGES];
    double scale; /* pixels for each pair of a query and a key of a head */
} lanes;

/* The number of lanes below a rank's lane of computing: one for each buffer of chunks, and one for the hops. */
static int exchange_lanes(const ith_schedule *schedule)
{
    const ith_attn_setting *setting = schedule->setting;
    int buffers = schedule->chunks < ITH_CHUNK_BUFFERS ? schedule->chunks : ITH_CHUNK_BUFFERS;
    return (setting->ulysses > 1 ? buffers : 0) + (setting->ring > 1);
}

/* The number of an exchange's lane, from 1 on. */
static int exchange_lane(const ith_schedule *schedule, int exchange)
{
    return exchange == ITH_EXCHANGE_HOP ? exchange_lanes(schedule) : 1 + exchange;
}

/* Appends to text the ranks to which a hop sends keys and values (`sent`), or from which it receives them. */
static void label_hop(const ith_schedule *schedule, const ith_step *step, bool sent, char *text, size_t bytes)
{
    const ith_attn_setting *setting = schedule->setting;
    for (int i = 0; i < step->moves; i++) {
        ith_move move = ith_schedule_move(schedule, step, sent, i);
        size_t used = strlen(text);
        if (move.heads && move.tensor == ITH_TENSOR_K)
            snprintf(text + used, bytes - used, "%s%s %d", used ? ", " : "k v ", sent ? "to" : "from",
                     move.peer * setting->ulysses + schedule->ulysses_index);
    }
}

/* Describes the exchange that a POST step starts. */
static void label_post(const ith_schedule *schedule, const ith_step *step, char *text, size_t bytes)
{
    text[0] = 0;
    if (step->exchange != ITH_EXCHANGE_HOP) {
        const char *tensors = step->outputs ? "o" : "q k v";
        snprintf(text, bytes, schedule->chunks > 1 ? "%s %d" : "%s", tensors, step->chunk);
        return;
    }
    label_hop(schedule, step, true, text, bytes);
    if (!text[0])
        label_hop(schedule, step, false, text, bytes);
}

static void draw_compute(lanes *l, const ith_step *step, const ith_attn_setting *setting)
{
    double width = l->scale * (double)(step->heads.count * step->q.rows * step->kv.rows);
    char text[64];
    if (setting->ring > 1)
        snprintf(text, sizeof text, "keys %d", step->shard);
    else if (step->heads.count == 1)
        snprintf(text, sizeof text, "head %lld", (long long)step->heads.first);
    else
        snprintf(text, sizeof text, "heads %lld-%lld", (long long)step->heads.first,
                 (long long)(step->heads.first + step->heads.count - 1));
    draw_box(l->now, l->y, width, LANE, colours[(setting->ring > 1 ? step->shard : step->chunk) % MOST_RANKS], text);
    l->now += width;
}

/* Draws an exchange at the step that waits for it. If nothing was computed meanwhile, the rank waits. */
static void draw_exchange(lanes *l, int exchange)
{
    double begin = l->posted[exchange], y = l->y + l->lane[exchange] * LANE + GAP / 2.0;
    if (begin < 0)
        return;
    if (l->now < begin + EXPOSED)
        l->now = begin + EXPOSED;
    draw_box(begin, y, l->now - begin, LANE - GAP, "#eeeeee", l->label[exchange]);
    l->posted[exchange] = -1;
}

static void draw_rank(const ith_attn_setting *setting, int rank, lanes *l)
{
    ith_schedule schedule = ith_schedule_of(setting, rank);
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    draw_text(MARGIN - 8, l->y + LANE / 2.0 + 5, "end", name);
    for (int i = 0; i < ITH_EXCHANGES; i++)
        l->posted[i] = -1;
    for (ith_step step; ith_schedule_next(&schedule, &step);) {
        int exchange = step.exchange;
        if (step.kind == ITH_STEP_POST) {
            l->posted[exchange] = l->now;
            l->lane[exchange] = exchange_lane(&schedule, exchange);
            label_post(&schedule, &step, l->label[exchange], sizeof l->label[exchange]);
        } else if (step.kind == ITH_STEP_WAIT) {
            draw_exchange(l, exchange);
        } else if (step.kind == ITH_STEP_COMPUTE) {
            draw_compute(l, &step, setting);
        }
    }
}

static void draw_timeline(const ith_attn_setting *setting)
{
    const ith_attn_problem *p = &setting->problem;
    int ranks = setting->ulysses * setting->ring;
    ith_schedule first = ith_schedule_of(setting, 0);
    int height = (1 + exchange_lanes(&first)) * LANE + 3 * GAP, exposed = setting->ulysses > 1 ? 2 * EXPOSED : 0;
    double work = (double)(p->heads * p->q_len * p->kv_len) / ranks;
    double longest = MARGIN;
    begin_picture(WIDTH, 40 + ranks * height);
    for (int rank = 0; rank < ranks; rank++) {
        lanes l = {.y = 10 + rank * height, .now = MARGIN, .scale = (WIDTH - MARGIN - exposed - 10) / work};
        draw_rank(setting, rank, &l);
        longest = l.now > longest ? l.now : longest;
    }
    printf("<path d=\"M%d %d H%.1f m-8 -5 l8 5 l-8 5\" fill=\"none\" stroke=\"#333\"/>\n", MARGIN, 20 + ranks * height,
           longest);
    draw_text(MARGIN - 8, 25 + ranks * height, "end", "time");
    printf("</svg>\n");
}

/* ---- The command line ------------------------------------------------------------------------------------------ */

static int number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > 1000000)
        give_up("a number is not from 1 to 1000000");
    return (int)value;
}

/* Reads NAME=VALUE into the options. */
static void take_option(ith_context *context, const char *text, ith_attn_options *options)
{
    const char *value = strchr(text, '=');
    size_t length = value ? (size_t)(value++ - text) : 0;
    if (length == 8 && !strncmp(text, "strategy", length)) {
        if (ith_strategy_parse(context, value, options))
            give_up(ith_context_error(context));
    } else if (length == 7 && !strncmp(text, "ulysses", length)) {
        options->ulysses = number(value);
    } else if (length == 4 && !strncmp(text, "ring", length)) {
        options->ring = number(value);
    } else if (length == 6 && !strncmp(text, "chunks", length)) {
        options->chunks = number(value);
    } else {
        give_up("an option is none of strategy=, ulysses=, ring=, chunks=");
    }
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options given = ITH_ATTN_OPTIONS_INIT, options;
    ith_attn_setting setting;
    if (argc < 5 || (strcmp(argv[1], "holdings") && strcmp(argv[1], "timeline")))
        give_up("usage: draw_schedule holdings|timeline RANKS HEADS ROWS [NAME=VALUE ...]");
    ith_group group = {.ranks = number(argv[2]), .blocks = {1, number(argv[2])}};
    if (group.ranks > MOST_RANKS)
        give_up("more than 8 ranks");
    if (ith_context_create(NULL, &context))
        give_up(ith_context_error(NULL));
    problem.heads = number(argv[3]), problem.q_len = problem.kv_len = number(argv[4]), problem.head_dim = 64;
    given.exchange = ITH_EXCHANGE_COPY, given.chunks = 1;
    for (int i = 5; i < argc; i++)
        take_option(context, argv[i], &given);
    if (ith_settle_request(context, &problem, &given, &group, &options, &setting) ||
        ith_settle(&options, &group, NULL, &setting))
        give_up(ith_context_error(context));
    if (!strcmp(argv[1], "holdings"))
        draw_holdings(&setting);
    else
        draw_timeline(&setting);
    ith_context_destroy(&context);
    return ferror(stdout) || fclose(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
