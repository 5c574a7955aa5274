/* SPDX-License-Identifier: Apache-2.0 */
/* `ithaca tune` over the processes that a launcher has started: measures the links between processes and between hosts
 * together (ith_machine_measure), and puts them into the description of this machine, which the process of rank 0
 * reads and writes. The other figures of the description stay; one process measures them best. */
#include "../cli.h"
#include "../machine/machine_file.h"
#include "../option/complaint.h"
#include "../support/json_print.h"
#include "tune_state.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const double LEAST_SECONDS = 0.3, MOST_SECONDS = 10;
enum { LEVELS = 3 };
/* The levels that ith_machine_measure makes, the innermost first. */
static const char *const names[LEVELS] = {"process", "host", "network"};

/* The command in this process. */
typedef struct links_command {
    ith_tune *t;
    const char *command;
    ith_launch launch;
    ith_machine_level found[LEVELS]; /* the levels of this run and of the old description */
    int count;
} links_command;

/* Reads the description to which the links belong (ith_launch_work.prepare). */
static int prepare(void *user)
{
    links_command *c = user;
    ith_tune *t = c->t;
    if (!c->launch.leads)
        return ITH_EXIT_DONE;
    int code = ith_tune_find_machine(t);
    if (!code && (!t->machine_path[0] || access(t->machine_path, F_OK)))
        code = ith_cli_error("%s%sthis machine has no description yet: '%s' in one process makes it, and several "
                             "processes add the links between them",
                             t->machine_path, t->machine_path[0] ? ": " : "", c->command);
    return code ? code : ith_machine_file_read(t->context, t->machine_path, &t->machine);
}

static const ith_machine_level *level_named(const ith_machine *m, const char *name)
{
    for (int64_t i = 0; i < m->level_count; i++)
        if (!strcmp(m->levels[i].name, name))
            return &m->levels[i];
    return NULL;
}

/* Joins the levels that were measured now with the other levels of the description. Their numbers of ranks are left
 * open: the options of a plan decide. */
static void join(links_command *c, const ith_machine *now)
{
    c->count = 0;
    for (int i = 0; i < LEVELS; i++) {
        const ith_machine_level *level = level_named(now, names[i]);
        level = level ? level : level_named(&c->t->machine, names[i]);
        if (!level)
            continue;
        c->found[c->count] = *level;
        c->found[c->count++].ranks = 0;
    }
}

/* Measures the links (ith_launch_work.compute). */
static ith_status measure(ith_context *context, ith_comm *comm, void *user)
{
    links_command *c = user;
    ith_machine_case one = ITH_MACHINE_CASE_INIT;
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    ith_machine *machine = NULL;
    options.cases = &one, options.case_count = 1, options.threads = 1;
    options.seconds = fmin(fmax(c->t->settings->budget / 10, LEAST_SECONDS), MOST_SECONDS);
    ith_status status = ith_machine_measure(context, &options, comm, &machine);
    if (!status && ith_comm_rank(comm) == 0)
        join(c, machine);
    ith_machine_free(&machine);
    return status;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

static int print_json(const links_command *c)
{
    json_t *levels = json_array();
    for (int i = 0; i < c->count; i++) {
        const ith_machine_level *l = &c->found[i];
        json_array_append_new(levels, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "name", l->name, "latency_seconds",
                                                ith_cli_json_number(l->latency_seconds), "bytes_per_second",
                                                ith_cli_json_number(l->bytes_per_second), "group_bytes_per_second",
                                                ith_cli_json_number(l->group_bytes_per_second), "copy_bytes_per_second",
                                                ith_cli_json_number(l->copy_bytes_per_second), "setup_seconds",
                                                ith_cli_json_number(l->setup_seconds)));
    }
    json_t *all = json_pack("{s:o, s:o}", "machine", ith_cli_json_text(c->t->machine_path), "levels", levels);
    return ith_cli_json_print(all, "the report", JSON_REAL_PRECISION(6) | JSON_INDENT(1));
}

/* Prints a rate in MB/s; "-" for a link that has no limit. */
static void print_rate(double bytes_per_second)
{
    if (bytes_per_second > 0)
        printf(" %12.1f", 1e-6 * bytes_per_second);
    else
        printf(" %12s", "-");
}

static void print_table(const links_command *c)
{
    printf("%-8s %12s %12s %12s %12s %12s\n", "level", "latency us", "setup us", "MB/s", "MB/s group", "MB/s copy");
    for (int i = 0; i < c->count; i++) {
        const ith_machine_level *l = &c->found[i];
        printf("%-8s %12.1f %12.1f", l->name, 1e6 * l->latency_seconds, 1e6 * l->setup_seconds);
        print_rate(l->bytes_per_second);
        print_rate(l->group_bytes_per_second);
        print_rate(l->copy_bytes_per_second);
        putchar('\n');
    }
    printf("machine: %s\n", c->t->machine_path);
}

/* Writes the description and reports the links (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    const links_command *c = user;
    if (code)
        return code;
    ith_machine linked = c->t->machine;
    linked.levels = c->found, linked.level_count = c->count;
    code = ith_machine_file_write(c->t->machine_path, &linked, "Written by 'ithaca tune'.");
    if (code || c->t->settings->json)
        return code ? code : print_json(c);
    print_table(c);
    return ITH_EXIT_DONE;
}

int ith_tune_links(ith_tune *t, const ith_launch *launch, int code, const ith_options *options)
{
    links_command c = {.t = t, .command = options->command, .launch = *launch};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .prepare = prepare,
                                  .compute = measure,
                                  .finish = finish,
                                  .user = &c};
    ith_launch_set_ranks(&c.launch, t->settings->ranks, t->settings->threads);
    return ith_launch_run(&c.launch, t->context, code, &work);
}
