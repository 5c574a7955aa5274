/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the rows of a benchmark as SVG: a panel for each batch and length of the sequence, with its own axis from 0 on,
 * and in it a bar for each row. The bar ends at the median, and the diamond is the prediction. The line on the bar goes
 * from the fastest to the slowest repeat; an arrow at its end says that it goes on beyond the axis. The fastest row of
 * a panel is darker. */
#include "bench_output.h"

#include "../cli.h"
#include "../file/output_name.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes in pixels. */
enum {
    WIDTH = 1040,
    MARGIN = 24,
    GAP = 36,  /* between two panels */
    HEAD = 92, /* above the panels: title, machine, sizes, legend */
    PANEL_HEAD = 26,
    PANEL_FOOT = 44, /* the axis with its numbers and its unit */
    ROW = 24,
    BAR = 14,
    LETTER = 7,      /* the width of a letter, about */
    VALUE_ROOM = 66, /* for the medians at the right */
    LABEL_BYTES = 96,
    TICKS = 5 /* at most, besides 0 */
};

#define INK "#1b2733"
#define FAINT "#5c6b7a"
#define GRID "#dde3e9"
#define BAR_COLOUR "#8fb3d9"
#define FASTEST_COLOUR "#2b6cb0"
#define MARK_COLOUR "#c2410c"

/* One bar. */
typedef struct bar {
    char label[LABEL_BYTES], group[LABEL_BYTES];
    double seconds, least, most, predicted; /* NAN: not known */
} bar;

/* The whole picture. */
typedef struct picture {
    bar *bars;
    int count;
    int label_room;
    bool whiskers, marks; /* whether some bar has them, so that the legend explains them */
    const ith_bench_about *about;
} picture;

/* A panel: the bars from `first` on, and its place. */
typedef struct panel {
    int first, count;
    double x, y, width; /* of its corner, and of all of it */
    double scale;       /* pixels of a second */
    double unit;        /* the unit of the axis in seconds */
    const char *unit_name;
    double step, last; /* of the axis, in units */
} panel;

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static double number_or_nan(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text(const json_t *row, const char *name)
{
    const char *value = json_string_value(json_object_get(row, name));
    return value ? value : "";
}

/* Reads a row. The group is named by batch and length of the sequence, where a row has them. */
static void read_row(const json_t *row, bar *out)
{
    const json_t *batch = json_object_get(row, "batch"), *seq = json_object_get(row, "seq");
    const char *name = text(row, "name");
    snprintf(out->label, sizeof out->label, "%.60s", *name ? name : text(row, "stage"));
    if (batch)
        snprintf(out->group, sizeof out->group, "batch %lld, %lld tokens", (long long)json_integer_value(batch),
                 (long long)json_integer_value(seq));
    out->seconds = number_or_nan(row, "seconds");
    out->least = number_or_nan(row, "seconds_min"), out->most = number_or_nan(row, "seconds_max");
    out->predicted = number_or_nan(row, "predicted_seconds");
}

/* Whether another row of the group has the same label. */
static bool is_ambiguous(const picture *p, int index)
{
    for (int i = 0; i < p->count; i++)
        if (i != index && !strcmp(p->bars[i].label, p->bars[index].label) &&
            !strcmp(p->bars[i].group, p->bars[index].group))
            return true;
    return false;
}

/* Reads all rows. Where names alone do not tell bars apart, the softmax follows them. */
static bool read_rows(const json_t *rows, picture *p)
{
    size_t index, longest = 0;
    const json_t *row;
    p->bars = calloc(json_array_size(rows) + 1, sizeof *p->bars);
    bool *ambiguous = calloc(json_array_size(rows) + 1, sizeof *ambiguous);
    json_array_foreach(rows, index, row)
    {
        if (p->bars && ambiguous)
            read_row(row, &p->bars[p->count++]);
    }
    for (int i = 0; i < p->count; i++)
        ambiguous[i] = is_ambiguous(p, i);
    for (int i = 0; i < p->count; i++) {
        bar *b = &p->bars[i];
        size_t length = strlen(b->label);
        if (ambiguous[i])
            snprintf(b->label + length, sizeof b->label - length, ", %.20s",
                     text(json_array_get(rows, (size_t)i), "softmax"));
        longest = strlen(b->label) > longest ? strlen(b->label) : longest;
        p->whiskers |= b->least < b->most;
        p->marks |= isfinite(b->predicted);
    }
    p->label_room = (int)longest * LETTER + 10;
    free(ambiguous);
    return p->bars && p->count;
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* The number of bars from `first` on that belong to one group. */
static int group_size(const picture *p, int first)
{
    int count = 1;
    while (first + count < p->count && !strcmp(p->bars[first].group, p->bars[first + count].group))
        count++;
    return count;
}

/* Where a line to `seconds` ends in a panel; 0 if there is none. */
static double reach(const panel *q, double seconds)
{
    return isfinite(seconds) ? fmin(seconds, q->last * q->unit) : 0;
}

/* The number of seconds that the axis of a panel must reach. Lines to slow repeats may take up to a third of it. */
static double longest(const picture *p, const panel *q)
{
    double most = 0, slowest = 0;
    for (int i = 0; i < q->count; i++) {
        const bar *b = &p->bars[q->first + i];
        most = fmax(most, fmax(b->seconds, b->predicted)); /* fmax passes over NAN */
        slowest = fmax(slowest, b->most);
    }
    return most > 0 ? fmax(most, fmin(slowest, 1.5 * most)) : 1;
}

/* Chooses the unit and the numbers of a panel's axis: steps of 1, 2 or 5 times a power of ten. */
static void scale_panel(const picture *p, panel *q)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{1, "seconds"}, {1e-3, "milliseconds"}, {1e-6, "microseconds"}};
    static const double steps[] = {1, 2, 5, 10};
    const double most = longest(p, q);
    size_t unit = 0;
    while (unit + 1 < sizeof units / sizeof *units && most < 0.5 * units[unit].seconds)
        unit++;
    q->unit = units[unit].seconds, q->unit_name = units[unit].name;
    double range = most / q->unit, power = pow(10, floor(log10(range / TICKS)));
    size_t step = 0;
    while (step < 3 && steps[step] * power * TICKS < range)
        step++;
    q->step = steps[step] * power;
    q->last = q->step * ceil(range / q->step - 1e-9);
    q->scale = (q->width - p->label_room - VALUE_ROOM) / (q->last * q->unit);
}

static double panel_height(int bars)
{
    return PANEL_HEAD + ROW * bars + PANEL_FOOT;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Writes text with the characters escaped that XML reserves; others that XML does not allow become spaces. */
static void print_text(FILE *file, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': fputs("&amp;", file); break;
        case '<': fputs("&lt;", file); break;
        case '>': fputs("&gt;", file); break;
        case '"': fputs("&quot;", file); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, file);
        }
}

/* Writes a text element. style: further attributes. */
static void print_label(FILE *file, double x, double y, const char *style, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, *style ? " " : "", style);
    print_text(file, text);
    fputs("</text>\n", file);
}

static void draw_line(FILE *file, const char *class, double x0, double y0, double x1, double y1)
{
    fprintf(file, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x0, y0, x1, y1);
}

/* Draws the line from the fastest to the slowest repeat, with its ends. cut: it goes on to the right, as an arrow
 * shows. */
static void print_whisker(FILE *file, double left, double right, double y, bool cut)
{
    draw_line(file, "whisker", left, y, right, y);
    draw_line(file, "whisker", left, y - 4, left, y + 4);
    draw_line(file, "whisker", cut ? right - 5 : right, y - 4, right, cut ? y : y + 4);
    if (cut)
        draw_line(file, "whisker", right - 5, y + 4, right, y);
}

static void print_mark(FILE *file, double x, double y)
{
    fprintf(file, "<path class=\"predicted\" d=\"M%.1f %.1f l5 5 l-5 5 l-5 -5 z\"/>\n", x, y - 5);
}

/* Draws the axis of a panel with its numbers, its unit and lines through the bars. */
static void print_axis(FILE *file, const picture *p, const panel *q)
{
    double left = q->x + p->label_room, top = q->y + PANEL_HEAD, bottom = top + ROW * q->count;
    char label[64];
    for (int i = 0; i * q->step <= q->last * 1.0001; i++) {
        double x = left + i * q->step * q->unit * q->scale;
        draw_line(file, i ? "grid" : "axis", x, top, x, bottom + 4);
        snprintf(label, sizeof label, "%g", i * q->step);
        print_label(file, x, bottom + 18, "class=\"tick\"", label);
    }
    print_label(file, left + q->last * q->unit * q->scale / 2, bottom + 34, "class=\"tick\"", q->unit_name);
}

/* Draws one bar with its label, its number and its marks. */
static void print_bar(FILE *file, const picture *p, const panel *q, int index, bool fastest)
{
    const bar *b = &p->bars[q->first + index];
    double left = q->x + p->label_room, middle = q->y + PANEL_HEAD + ROW * (index + 0.5);
    char value[64];
    print_label(file, left - 8, middle + 4, fastest ? "class=\"name fastest\"" : "class=\"name\"", b->label);
    fprintf(file, "<rect class=\"bar%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>",
            fastest ? " fastest" : "", left, middle - BAR / 2.0, b->seconds * q->scale, BAR);
    print_text(file, b->label);
    fprintf(file, ": %.4g s</title></rect>\n", b->seconds);
    if (b->least < b->most)
        print_whisker(file, left + b->least * q->scale, left + reach(q, b->most) * q->scale, middle,
                      b->most > reach(q, b->most));
    if (isfinite(b->predicted))
        print_mark(file, left + b->predicted * q->scale, middle);
    snprintf(value, sizeof value, "%#.4g", b->seconds / q->unit);
    print_label(file, q->x + q->width, middle + 4, "class=\"value\"", value);
}

/* Draws a panel: its heading, the axis, and the bars over it. */
static void print_panel(FILE *file, const picture *p, const panel *q)
{
    int fastest = 0;
    for (int i = 1; i < q->count; i++)
        if (p->bars[q->first + i].seconds < p->bars[q->first + fastest].seconds)
            fastest = i;
    fputs("<g class=\"panel\">\n", file);
    print_label(file, q->x + q->width, q->y + 16, "class=\"about value\"", "median");
    print_label(file, q->x + p->label_room, q->y + 16, "class=\"heading\"", p->bars[q->first].group);
    print_axis(file, p, q);
    for (int i = 0; i < q->count; i++)
        print_bar(file, p, q, i, i == fastest && q->count > 1);
    fputs("</g>\n", file);
}

/* Draws the legend: each sign with its meaning, from the left to the right. */
static void print_legend(FILE *file, const picture *p)
{
    double x = MARGIN, y = HEAD - 14;
    fprintf(file, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"26\" height=\"%d\"/>\n", x, y - 7, BAR);
    print_label(file, x + 34, y + 4, "", "median");
    x += 110;
    fprintf(file, "<rect class=\"bar fastest\" x=\"%.1f\" y=\"%.1f\" width=\"26\" height=\"%d\"/>\n", x, y - 7, BAR);
    print_label(file, x + 34, y + 4, "", "the fastest of a panel");
    x += 200;
    if (p->whiskers) {
        print_whisker(file, x, x + 26, y, false);
        print_label(file, x + 34, y + 4, "", "fastest to slowest repeat");
        x += 215;
    }
    if (p->marks) {
        print_mark(file, x + 13, y);
        print_label(file, x + 26, y + 4, "", "predicted");
    }
}

static const char style[] = "<style>\n"
                            "text { font: 12px sans-serif; fill: " INK "; }\n"
                            ".title { font-size: 18px; font-weight: bold; }\n"
                            ".heading { font-weight: bold; }\n"
                            ".about, .tick { fill: " FAINT "; }\n"
                            ".tick { text-anchor: middle; }\n"
                            ".name, .value { text-anchor: end; }\n"
                            "text.fastest { font-weight: bold; }\n"
                            ".bar { fill: " BAR_COLOUR "; }\n"
                            ".bar.fastest { fill: " FASTEST_COLOUR "; }\n"
                            ".grid { stroke: " GRID "; }\n"
                            ".axis { stroke: " FAINT "; }\n"
                            ".whisker { stroke: " INK "; stroke-width: 1.3; }\n"
                            ".predicted { fill: #ffffff; stroke: " MARK_COLOUR "; stroke-width: 1.8; }\n"
                            "</style>\n";

static void print_head(FILE *file, const picture *p, double height)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
            "role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    print_text(file, p->about->title);
    fprintf(file, "</title>\n%s<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n", style, WIDTH, height);
    print_label(file, MARGIN, 32, "class=\"title\"", p->about->title);
    print_label(file, MARGIN, 52, "class=\"about\"", p->about->machine);
    print_label(file, WIDTH - MARGIN, 32, "class=\"about\" text-anchor=\"end\"", p->about->settings);
}

/* Places the panels in one or two columns and, if there is a file, draws them. Returns the height of the picture. */
static double lay_out(FILE *file, const picture *p)
{
    const bool columns = group_size(p, 0) < p->count;
    double y = HEAD, tallest = 0;
    int number = 0;
    for (int first = 0; first < p->count; number++) {
        panel q = {.first = first, .count = group_size(p, first), .y = y};
        const bool right = columns && number % 2;
        q.width = columns ? (WIDTH - 2 * MARGIN - GAP) / 2.0 : WIDTH - 2 * MARGIN;
        q.x = MARGIN + (right ? q.width + GAP : 0);
        scale_panel(p, &q);
        if (file)
            print_panel(file, p, &q);
        first += q.count;
        tallest = fmax(tallest, panel_height(q.count));
        if (right || !columns || first == p->count) {
            y += tallest;
            tallest = 0;
        }
    }
    return y + MARGIN / 2.0;
}

static void print_picture(FILE *file, void *user)
{
    const picture *p = user;
    print_head(file, p, lay_out(NULL, p));
    print_legend(file, p);
    lay_out(file, p);
    fputs("</svg>\n", file);
}

int ith_bench_draw(const char *path, const json_t *rows, const ith_bench_about *about)
{
    picture p = {.about = about};
    int code = read_rows(rows, &p)
                   ? ith_cli_replace_file(path, print_picture, &p)
                   : ith_cli_error("'%s' cannot be drawn: there are no rows, or there is no memory", path);
    free(p.bars);
    return code;
}
