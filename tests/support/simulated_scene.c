/* SPDX-License-Identifier: Apache-2.0 */
#include "support/simulated_scene.h"

#include "support/temporary.h"
#include "support/trace_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void fill_scene(scene *s)
{
    *s = (scene){.machine = ITH_MACHINE_INIT,
                 .levels = {ITH_MACHINE_LEVEL_INIT, ITH_MACHINE_LEVEL_INIT},
                 .rate = ITH_MACHINE_ATTENTION_INIT,
                 .problem = ITH_ATTN_PROBLEM_INIT,
                 .options = ITH_ATTN_OPTIONS_INIT,
                 .simulation = ITH_SIMULATION_INIT};
    s->levels[0].ranks = 4, s->levels[0].bytes_per_second = 4e9, s->levels[0].latency_seconds = 1e-6;
    s->levels[1].between_hosts = true, s->levels[1].bytes_per_second = 1e9, s->levels[1].latency_seconds = 1e-5;
    s->levels[1].overlap = 0.8;
    strcpy(s->rate.kernel, "flash");
    s->rate.dtype = ITH_F32, s->rate.head_dim = DIM, s->rate.gflops = 100, s->rate.block_q = 64, s->rate.block_kv = 256;
    s->rate.call_seconds = 1e-7, s->rate.pack_bytes_per_second = 1e10, s->rate.offset_bytes_per_second = 1e10;
    s->machine.host_units = 4, s->machine.rank_units = 1;
    s->machine.levels = s->levels, s->machine.level_count = 2;
    s->machine.attention = &s->rate, s->machine.attention_count = 1;
    s->problem.heads = HEADS, s->problem.head_dim = DIM, s->problem.q_len = s->problem.kv_len = LENGTH;
}

void make_scene(scene *s)
{
    fill_scene(s);
    assert_int_equal(ith_context_create(NULL, &s->context), ITH_OK);
}

ith_cost simulate(scene *s, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    if (ith_plan_simulate(s->context, &s->problem, &s->options, &s->machine, ranks, &s->simulation, NULL, &cost))
        fail_msg("%s", ith_context_error(s->context));
    return cost;
}

ith_cost predict(scene *s, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    if (ith_plan_cost(s->context, &s->problem, &s->options, &s->machine, ranks, NULL, &cost))
        fail_msg("%s", ith_context_error(s->context));
    return cost;
}

void within(double found, double expected, double share)
{
    if (!(fabs(found - expected) <= share * fabs(expected)))
        fail_msg("%.9g, and expected %.9g", found, expected);
}

void make_even_scene(scene *s, int ranks)
{
    make_scene(s);
    s->levels[0].ranks = 0, s->levels[0].latency_seconds = 1e-3, s->machine.level_count = 1;
    s->machine.host_units = ranks;
    s->rate.call_seconds = s->rate.pack_bytes_per_second = 0;
    s->problem.q_len = s->problem.kv_len = EVEN_LENGTH;
}

int list_attention(scene *s, int ranks, piece *pieces, int most)
{
    trace_file trace = {0};
    int count = 0;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    assert_int_equal(ith_trace_start(s->context, 1000), ITH_OK);
    simulate(s, ranks);
    assert_int_equal(ith_trace_save(s->context, path), ITH_OK);
    char *text = temporary_read(path, NULL);
    assert_true(trace_file_parse(text, &trace));
    for (int i = 0; i < trace.count; i++) {
        const trace_event *e = &trace.events[i];
        if (!strcmp(e->name, "attend") && count < most)
            pieces[count++] = (piece){(int)e->pid, e->ts * 1e-6, e->dur * 1e-6};
    }
    free(text);
    free(trace.events);
    temporary_remove(folder);
    return count;
}
