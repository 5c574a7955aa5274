/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine by measurement (ith_machine_measure in ithaca/tune.h). Rank 0 measures the kernels, with the
 * memory of one process; then all ranks of the communicator measure their links together. */
#include "../base/clock.h"
#include "../base/cpu.h"
#include "../base/dtype.h"
#include "../base/host_name.h"
#include "../base/size.h"
#include "../base/sized.h"
#include "../base/team_limit.h"
#include "../kernels/rowops.h"
#include "../plan/agree.h"
#include "../plan/kernel_choice.h"
#include "kernel_rate.h"
#include "link_rate.h"
#include "shared_cores.h"

#include <ithaca/tune.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MOST_CASES = 64,
    ROW_NUMBERS = 4096, /* length of a row on which row operations are timed */
    ROWS = 512,         /* number of such rows: two arrays of 8 MB */
    KEYS = 8192,        /* keys to which queries attend */
    LOCAL_RANKS = 2     /* ranks of this process that exchange messages */
};
/* shares of the time */
static const double KERNEL_SHARE = 0.6, LEVEL_SHARE = 0.1, LINK_SHARE = 0.3, SMALL_SHARE = 0.05, LEAST_SECONDS = 0.05,
                    MOST_SECONDS = 3600;

/* A description and its arrays, in one allocation. */
typedef struct measured {
    ith_machine machine;
    ith_context *context;
    ith_machine_level levels[ITH_MACHINE_LEVELS];
    ith_machine_attention attention[];
} measured;

/* A measurement of this machine. */
typedef struct calibration {
    ith_context *context;
    ith_comm *comm;
    ith_measure_options options;
    ith_machine_case cases[MOST_CASES];
    int64_t done, total; /* progress */
    measured *out;
} calibration;

/* ---- Options --------------------------------------------------------------------------------------------------- */

static ith_status check_case(ith_context *context, const ith_machine_case *c)
{
    if (!ith_dtype_is_operand(c->dtype))
        return ith_fail(context, ITH_ERR_ARGUMENT, "the type of a case is %d (%s); F32, BF16 and F16 are measured",
                        (int)c->dtype, ith_dtype_name(c->dtype));
    if ((unsigned)c->softmax > ITH_SOFTMAX_FIXED_M)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the softmax of a case is %d; 0 (both), 1 (online) and 2 (fixed_m) are known", c->softmax);
    if (c->head_dim < 1 || c->head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "head_dim of a case is %lld, and must be from 1 to %d",
                        (long long)c->head_dim, ITH_ATTN_HEAD_DIM_MAX);
    return ITH_OK;
}

/* Copies the cases over defaults. */
static ith_status read_cases(calibration *c)
{
    const ith_machine_case usual = ITH_MACHINE_CASE_INIT;
    const char *given = (const char *)c->options.cases;
    ith_status status = ITH_OK;
    c->cases[0] = c->cases[1] = usual;
    c->cases[1].dtype = ITH_F32;
    if (!given) {
        c->options.case_count = 2;
        return ITH_OK;
    }
    if (c->options.case_count < 1 || c->options.case_count > MOST_CASES)
        return ith_fail(c->context, ITH_ERR_ARGUMENT, "case_count is %lld, and must be from 1 to %d",
                        (long long)c->options.case_count, MOST_CASES);
    status = ith_sized_check_array(c->context, "ith_machine_case", "ITH_MACHINE_CASE_INIT", given,
                                   c->options.case_count, sizeof *c->options.cases);
    for (int64_t i = 0; !status && i < c->options.case_count; i++, given += c->options.cases->struct_size) {
        c->cases[i] = usual;
        status = ITH_SIZED_READ(c->context, ith_machine_case, ITH_MACHINE_CASE_INIT, given, &c->cases[i]);
        if (!status)
            status = check_case(c->context, &c->cases[i]);
    }
    return status;
}

static ith_status read_options(calibration *c, const ith_measure_options *given)
{
    ith_measure_options *o = &c->options;
    *o = (ith_measure_options)ITH_MEASURE_OPTIONS_INIT;
    ith_status status =
        given ? ITH_SIZED_READ(c->context, ith_measure_options, ITH_MEASURE_OPTIONS_INIT, given, o) : ITH_OK;
    if (status)
        return status;
    if (!(o->seconds >= 0 && o->seconds <= MOST_SECONDS))
        return ith_fail(c->context, ITH_ERR_ARGUMENT, "seconds is %g, and must be from 0 to %g", o->seconds,
                        MOST_SECONDS);
    o->seconds = o->seconds > 0 ? fmax(o->seconds, LEAST_SECONDS) : 1;
    o->threads = o->threads ? o->threads : ith_threads_or(0, ith_processor_count());
    status = o->threads > 0 ? ith_thread_limit_check(c->context, "threads", o->threads)
                            : ith_fail(c->context, ITH_ERR_ARGUMENT, "threads is %lld, and must be 0 or more",
                                       (long long)o->threads);
    if (!status)
        status = ith_team_check(c->context, (int)o->threads);
    return status ? status : read_cases(c);
}

/* ---- Progress -------------------------------------------------------------------------------------------------- */

/* Whether the caller wants to stop. Also gives a sign of life to ranks that wait. */
static bool stopped(void *user)
{
    const calibration *c = user;
    ith_comm_alive(c->comm);
    return (c->options.should_stop && c->options.should_stop(c->options.user)) || ith_context_interrupted(c->context);
}

/* One more part of the measurement is done. Returns ITH_ERR_INTERRUPTED if the caller wants to stop. */
static ith_status advance(calibration *c)
{
    c->done++;
    if (c->options.on_progress)
        c->options.on_progress(c->options.user, c->done, c->total);
    return stopped(c) ? ith_fail_interrupted(c->context) : ITH_OK;
}

/* ---- Kernels --------------------------------------------------------------------------------------------------- */

/* A row of the description without rates. */
static ith_machine_attention row_of(const ith_machine_case *c, ith_softmax softmax, const ith_attn_kernel *kernel)
{
    const ith_attn_tiles tiles = kernel->tiles(c->head_dim).best;
    ith_machine_attention row = ITH_MACHINE_ATTENTION_INIT;
    snprintf(row.kernel, sizeof row.kernel, "%s", kernel->name);
    row.dtype = c->dtype, row.softmax = softmax, row.head_dim = c->head_dim;
    row.block_q = tiles.block_q, row.block_kv = tiles.block_kv;
    row.block_kv_compute = tiles.block_kv_compute, row.block_kv_compute_in = tiles.block_kv_compute_in;
    return row;
}

/* Writes the rows of the description without rates: a row for each kernel that a plan may choose for a case. rows may
 * be NULL, to count them. Returns their number. */
static int64_t list_rows(const calibration *c, ith_machine_attention *rows)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->options.case_count; i++)
        for (int softmax = ITH_SOFTMAX_ONLINE; softmax <= ITH_SOFTMAX_FIXED_M; softmax++) {
            const ith_machine_case *x = &c->cases[i];
            if (x->softmax != ITH_SOFTMAX_AUTO && (int)x->softmax != softmax)
                continue;
            ith_candidates all = ith_kernel_candidates(c->context, x->dtype, x->head_dim, (ith_softmax)softmax);
            for (int n = 0; n < all.count; n++, count++)
                if (rows)
                    rows[count] = row_of(x, (ith_softmax)softmax, all.kernels[n]);
        }
    return count;
}

static ith_rate_request request_of(const ith_machine_attention *row, double seconds)
{
    return (ith_rate_request){.kernel = ith_attn_kernel_named(row->kernel),
                              .softmax = row->softmax,
                              .tiles = {row->block_q, row->block_kv, row->block_kv_compute, row->block_kv_compute_in},
                              .keys = KEYS,
                              .seconds = seconds};
}

static ith_status open_scene(calibration *c, const ith_machine_attention *row, int64_t threads, ith_rate_scene *scene)
{
    ith_status status = ith_rate_scene_create(c->context, row->dtype, row->head_dim, threads, scene);
    scene->stopped = stopped, scene->user = c;
    return status;
}

static ith_status measure_kernels(calibration *c)
{
    measured *m = c->out;
    const int64_t rows = m->machine.attention_count;
    ith_rate_scene scene = {.context = c->context};
    ith_status status = ITH_OK;
    for (int64_t i = 0; !status && i < rows; i++) {
        ith_machine_attention *row = &m->attention[i];
        ith_rate_request request = request_of(row, c->options.seconds * KERNEL_SHARE / (double)rows);
        ith_rate rate;
        if (scene.dtype != row->dtype || scene.head_dim != row->head_dim) {
            ith_rate_scene_free(&scene);
            status = open_scene(c, row, 1, &scene);
        }
        if (!status)
            status = ith_rate_measure(&scene, &request, &rate);
        if (status)
            break;
        row->gflops = rate.gflops, row->call_seconds = rate.call_seconds;
        row->pack_bytes_per_second = rate.pack_bytes_per_second;
        row->offset_bytes_per_second = rate.offset_bytes_per_second;
        status = advance(c);
    }
    ith_rate_scene_free(&scene);
    return status;
}

/* Finds the rate of the first kernel on one unit while all units compute, as a share of its rate on one unit alone.
 * Measures with all keys, because units share the cache that packed keys come from. */
static ith_status measure_busy(calibration *c)
{
    const ith_machine_attention *row = c->out->attention;
    const double seconds = c->options.seconds * SMALL_SHARE;
    double gflops[2] = {1, 1};
    ith_status status = ITH_OK;
    for (int i = 0; !status && i < 2 && c->options.threads > 1; i++) {
        ith_rate_scene scene;
        ith_rate_request request = request_of(row, seconds);
        status = open_scene(c, row, i ? c->options.threads : 1, &scene);
        if (!status)
            status = ith_rate_measure_whole(&scene, &request, &gflops[i]);
        ith_rate_scene_free(&scene);
    }
    c->out->machine.busy_share = fmin(gflops[1] / gflops[0], 1);
    return status ? status : advance(c);
}

/* Times x += gate * y on rows that are not in a cache: two numbers are read and one is written. */
static ith_status measure_rows(calibration *c)
{
    const ith_rowops *ops = ith_rowops_choose(ith_context_cpu(c->context));
    const int64_t numbers = (int64_t)ROWS * ROW_NUMBERS;
    float *x = ith_alloc_zero(c->context, 2 * numbers + ROW_NUMBERS, sizeof *x, "timing operations on rows");
    ith_quiet *quiet = ith_alloc(c->context, 1, sizeof *quiet, "timing operations on rows");
    const double until = ith_clock_seconds() + c->options.seconds * SMALL_SHARE;
    ith_status status = x && quiet ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        ith_quiet_reset(quiet);
    for (int n = 0; !status && (n < 3 || ith_clock_seconds() < until) && !stopped(c); n++) {
        ith_quiet_begin(quiet);
        for (int64_t i = 0; i < numbers; i += ROW_NUMBERS) {
            ops->add_gated(x + i, x + numbers + i, x + 2 * numbers, ROW_NUMBERS);
            ith_quiet_tick(quiet);
        }
        ith_quiet_end(quiet);
    }
    if (!status)
        c->out->machine.row_bytes_per_second = 3.0 * sizeof *x * (double)numbers / ith_quiet_typical(quiet);
    ith_free(c->context, quiet);
    ith_free(c->context, x);
    return status ? status : advance(c);
}

/* ---- Levels ---------------------------------------------------------------------------------------------------- */

/* Measurements by ranks of this process: the time of messages between them, and of the agreement on an execution. */
typedef struct local_links {
    double seconds, start_seconds;
    ith_link_rate rate;
} local_links;

static ith_status measure_local(ith_context *context, ith_comm *comm, void *user)
{
    local_links *shared = user, mine = *shared;
    ith_status status = ith_link_measure(context, comm, 1, 1, mine.seconds, &mine.rate);
    if (!status)
        status = ith_start_measure(context, comm, mine.seconds, &mine.start_seconds);
    if (!status && ith_comm_rank(comm) == 0)
        *shared = mine;
    return status;
}

static ith_status measure_start(ith_context *context, ith_comm *comm, void *user)
{
    local_links *shared = user;
    double start = 0;
    ith_status status = ith_start_measure(context, comm, shared->seconds, &start);
    if (!status && ith_comm_rank(comm) == 0)
        shared->start_seconds = start;
    return status;
}

ith_status ith_machine_start_measure(ith_context *context, int ranks, double seconds, double *start_seconds)
{
    local_links shared = {.seconds = seconds};
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, start_seconds, "start_seconds");
    if (!status && ranks < 2)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "ranks is %d, and must be at least 2", ranks);
    if (!status && !(seconds >= 0 && seconds <= MOST_SECONDS))
        status = ith_fail(context, ITH_ERR_ARGUMENT, "seconds is %g, and must be from 0 to %g", seconds, MOST_SECONDS);
    if (!status)
        status = ith_run_ranks(context, ranks, ranks, measure_start, &shared);
    if (!status)
        *start_seconds = shared.start_seconds;
    return status;
}

static ith_machine_level *add_level(measured *m, const char *name, int64_t ranks)
{
    ith_machine_level *level = &m->levels[m->machine.level_count++];
    *level = (ith_machine_level)ITH_MACHINE_LEVEL_INIT;
    snprintf(level->name, sizeof level->name, "%s", name);
    level->ranks = ranks;
    return level;
}

/* Between ranks of one process, messages are copies by the ranks' own threads. */
static ith_status measure_process(calibration *c, int64_t ranks)
{
    local_links links = {.seconds = c->options.seconds * LEVEL_SHARE};
    ith_status status = ith_run_ranks(c->context, LOCAL_RANKS, LOCAL_RANKS, measure_local, &links);
    if (status)
        return status;
    ith_machine_level *level = add_level(c->out, "process", ranks);
    level->shares_memory = true;
    level->latency_seconds = links.rate.latency_seconds;
    level->copy_bytes_per_second = links.rate.copy_bytes_per_second;
    c->out->machine.start_seconds = links.start_seconds;
    return advance(c);
}

/* Collective. Measures the links that join groups of `inner` consecutive ranks to groups of `outer` ranks, within a
 * host or between hosts. */
static ith_status measure_links(calibration *c, bool between_hosts, int inner, int outer)
{
    ith_link_rate rate;
    const int far = (int)ith_max64(outer / inner / 2, 1) * inner; /* groups that lie far apart */
    ith_status status = ith_link_measure(c->context, c->comm, inner, far, c->options.seconds * LINK_SHARE, &rate);
    if (status)
        return status;
    ith_machine_level *level =
        add_level(c->out, between_hosts ? "network" : "host", outer == ith_comm_size(c->comm) ? 0 : outer);
    level->between_hosts = between_hosts;
    level->latency_seconds = rate.latency_seconds;
    level->setup_seconds = rate.setup_seconds;
    level->bytes_per_second = rate.bytes_per_second;
    level->group_bytes_per_second = rate.group_bytes_per_second;
    level->copy_bytes_per_second = rate.copy_bytes_per_second;
    level->overlap = rate.overlap;
    return ITH_OK;
}

/* Collective. The model adds two latencies of the widest level to start_seconds. */
static ith_status measure_group_start(calibration *c)
{
    ith_machine *m = &c->out->machine;
    double seconds = 0;
    ith_status status = ith_start_measure(c->context, c->comm, c->options.seconds * SMALL_SHARE, &seconds);
    m->start_seconds = fmax(seconds - 2 * m->levels[m->level_count - 1].latency_seconds, 0);
    return status;
}

/* Collective. Finds the units of a host, and the hosts that share them. */
static ith_status share_units(calibration *c)
{
    ith_machine *m = &c->out->machine;
    ith_shared_cores found = {0};
    ith_status status = ith_shared_cores_count(c->context, c->comm, &found);
    if (status)
        return status;
    m->host_units = ith_max64(m->host_units, found.units);
    m->unit_hosts = found.hosts;
    return ITH_OK;
}

/* Collective. Adds the levels over which the ranks of the communicator reach one another. */
static ith_status measure_group(calibration *c)
{
    const int ranks = ith_comm_size(c->comm);
    const ith_blocks blocks = ith_comm_blocks(c->comm, 0, ranks);
    ith_status status = ITH_OK;
    if (ranks == 1)
        return ITH_OK;
    if (blocks.host_ranks > blocks.process_ranks)
        status = measure_links(c, false, blocks.process_ranks, blocks.host_ranks);
    if (!status && ranks > blocks.host_ranks)
        status = measure_links(c, true, blocks.host_ranks, ranks);
    if (!status && ranks > blocks.process_ranks)
        status = measure_group_start(c);
    if (!status && ranks > blocks.process_ranks)
        status = share_units(c);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

static void describe(calibration *c)
{
    ith_machine *m = &c->out->machine;
    char host[64];
    ith_host_name(host, sizeof host);
    ith_cpu_model(m->name, sizeof m->name);
    snprintf(m->source, sizeof m->source, "measured on %s by Ithaca %s", host, ith_version());
    m->host_units = c->options.threads;
    m->memory_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Makes a description without figures. */
static ith_status create(calibration *c, int64_t rows)
{
    c->out = ith_alloc_zero(c->context, 1, (int64_t)sizeof *c->out + rows * (int64_t)sizeof *c->out->attention,
                            "a description of the machine");
    if (!c->out)
        return ITH_ERR_MEMORY;
    c->out->context = ith_context_hold(c->context);
    c->out->machine = (ith_machine)ITH_MACHINE_INIT;
    c->out->machine.levels = c->out->levels;
    c->out->machine.attention = c->out->attention;
    c->out->machine.attention_count = rows;
    return ITH_OK;
}

/* Rank 0's part: all that one process can measure. */
static ith_status measure_alone(calibration *c, const ith_measure_options *given)
{
    ith_status status = read_options(c, given);
    if (status)
        return status;
    const int64_t rows = list_rows(c, NULL);
    const int64_t process_ranks = ith_comm_blocks(c->comm, 0, ith_comm_size(c->comm)).process_ranks;
    if (!rows)
        return ith_fail(c->context, ITH_ERR_ARGUMENT, "no kernel of this machine takes head_dim %lld in %s",
                        (long long)c->cases[0].head_dim, ith_dtype_name(c->cases[0].dtype));
    status = create(c, rows);
    if (status)
        return status;
    list_rows(c, c->out->attention);
    c->total = rows + 3;
    describe(c);
    status = measure_kernels(c);
    if (!status)
        status = measure_busy(c);
    if (!status)
        status = measure_rows(c);
    const bool may_have_ranks = ith_thread_limit() >= LOCAL_RANKS;
    if (!status && may_have_ranks && (process_ranks > 1 || ith_comm_size(c->comm) == 1))
        status = measure_process(c, ith_comm_size(c->comm) > process_ranks ? process_ranks : 0);
    else if (!status)
        status = advance(c);
    return status;
}

/* Collective. Brings rank 0's description to all ranks. */
static ith_status share_description(calibration *c)
{
    int64_t rows = c->out ? c->out->machine.attention_count : 0;
    double seconds = c->options.seconds;
    ith_status status = ith_comm_broadcast(c->comm, &rows, sizeof rows, 0);
    if (!status)
        status = ith_comm_broadcast(c->comm, &seconds, sizeof seconds, 0);
    c->options.seconds = seconds;
    status = ith_pass_on(c->context, c->comm, status);
    if (status)
        return status;
    status = ith_agree(c->context, c->comm, c->out ? ITH_OK : create(c, rows));
    if (status)
        return status;
    measured *m = c->out;
    const ith_machine own = m->machine;
    status = ith_comm_broadcast(c->comm, &m->machine, sizeof m->machine, 0);
    m->machine.levels = own.levels, m->machine.attention = own.attention, m->machine.products = own.products;
    if (!status)
        status = ith_comm_broadcast(c->comm, m->levels, sizeof m->levels, 0);
    if (!status)
        status = ith_comm_broadcast(c->comm, m->attention, rows * (int64_t)sizeof *m->attention, 0);
    return ith_pass_on(c->context, c->comm, status);
}

ith_status ith_machine_measure(ith_context *context, const ith_measure_options *options, ith_comm *comm,
                               ith_machine **machine)
{
    if (machine)
        *machine = NULL;
    if (!context) {
        ith_comm_abort(comm, ITH_ERR_ARGUMENT);
        return ith_need(NULL, context, "context");
    }
    calibration *c = ith_alloc_zero(context, 1, sizeof *c, "a measurement of the machine");
    ith_status status = c ? ith_need(context, machine, "machine") : ITH_ERR_MEMORY;
    if (c)
        c->context = context, c->comm = ith_comm_hold(comm);
    if (!status && ith_comm_rank(comm) == 0)
        status = measure_alone(c, options);
    status = ith_agree(context, comm, status);
    if (!status)
        status = share_description(c);
    if (!status)
        status = measure_group(c);
    if (!status)
        *machine = &c->out->machine;
    else if (c && c->out)
        ith_machine_free(&(ith_machine *){&c->out->machine});
    if (c)
        ith_comm_release(comm);
    ith_free(context, c);
    return status;
}

void ith_machine_free(ith_machine **machine)
{
    if (!machine || !*machine)
        return;
    measured *m = (measured *)*machine; /* its first member */
    ith_context *context = m->context;
    ith_free(context, m);
    ith_context_release(context);
    *machine = NULL;
}
