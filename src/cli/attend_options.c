/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that plans attention. */
#include "attend_options.h"

#include "cli.h"
#include "output_name.h"
#include "thread_limit.h"

#include <unistd.h>

#define TRACE_EVENTS (1 << 18)
#define LARGEST 1e9

static const char *const directions[] = {"auto", "uni", "bidir", NULL};
static const char *const exchanges[] = {"auto", "in_place", "copy", NULL};
static const char *const efforts[] = {"estimate", "measure", NULL};
const char *const ith_attend_softmaxes[] = {"auto", "online", "fixed_m", NULL};
const char *const ith_attend_dtype_words[] = {"f32", "bf16", "f16", NULL};
const ith_dtype ith_attend_dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};

#define AT(member) offsetof(ith_attend_choices, member)
static const ith_option rows[] = {
    {.help = "How it is computed; what is not given is chosen:"},
    {"ranks", "N", "Ranks in this process (1)", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ranks), 1, ITH_CLI_RANKS_MAX,
     NULL, 0},
    {"threads", "N", "Threads, shared out to the ranks (all cores)", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(threads), 1,
     ITH_CLI_THREADS_MAX, NULL, 0},
    {"ulysses", "N", "Ranks along the ulysses axis of the mesh", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ulysses), 1,
     ITH_CLI_RANKS_MAX, NULL, 0},
    {"ring", "N", "Ranks along the ring axis of the mesh", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ring), 1,
     ITH_CLI_RANKS_MAX, NULL, 0},
    {"direction", "auto|uni|bidir", "Keys travel round the ring, or both ways along a line", ITH_OPTION_WORD,
     ITH_FROM_COMMAND, AT(direction), 0, 0, directions, 0},
    {"chunks", "N", "Groups of heads that are exchanged one after the other", ITH_OPTION_WHOLE, ITH_FROM_COMMAND,
     AT(chunks), 1, LARGEST, NULL, 0},
    {"no-smoothing", NULL, "fixed_m without taking the mean key away", ITH_OPTION_FLAG, ITH_FROM_COMMAND,
     AT(no_smoothing), 0, 0, NULL, 0},
    {"fold", NULL, "Exchange batch and heads as one list (the default)", ITH_OPTION_FLAG, ITH_FROM_COMMAND, AT(fold), 0,
     0, NULL, 0},
    {"no-fold", NULL, "Exchange the entries of a batch one by one", ITH_OPTION_FLAG, ITH_FROM_COMMAND, AT(no_fold), 0,
     0, NULL, 0},
    {"exchange", "auto|in_place|copy", "Ranks use one another's tensors where they lie, or send messages",
     ITH_OPTION_WORD, ITH_FROM_COMMAND, AT(exchange), 0, 0, exchanges, 0},
    {"kernel", "NAME", "A kernel that 'ithaca info' lists (by wisdom or --effort)", ITH_OPTION_TEXT, ITH_FROM_COMMAND,
     AT(kernel), 0, 0, NULL, 0},
    {"effort", "estimate|measure",
     "A kernel that wisdom does not tell is chosen by a fixed rule, which gives the same bits on every run (the "
     "default), or is timed",
     ITH_OPTION_WORD, ITH_FROM_COMMAND, AT(effort), 0, 0, efforts, 0},
    {"block-q", "N", "Queries that pass over the keys together", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(block_q), 1,
     LARGEST, NULL, 0},
    {"block-kv", "N", "Keys that they pass over before the next block of queries", ITH_OPTION_WHOLE, ITH_FROM_COMMAND,
     AT(block_kv), 1, LARGEST, NULL, 0},
    {"block-kv-compute", "N", "Keys whose logits are held at a time", ITH_OPTION_WHOLE, ITH_FROM_COMMAND,
     AT(block_kv_compute), 1, LARGEST, NULL, 0},
    {"block-kv-compute-in", "N", "Keys of a tile in registers", ITH_OPTION_WHOLE, ITH_FROM_COMMAND,
     AT(block_kv_compute_in), 1, LARGEST, NULL, 0},
    {"wisdom", "FILE", "What was measured about kernels: read if it is there, written afterwards", ITH_OPTION_TEXT,
     ITH_FROM_COMMAND, AT(wisdom), 0, 0, NULL, 0},
    {"trace", "FILE", "Write computing and exchanges of every rank for chrome://tracing or Perfetto (JSON)",
     ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(trace), 0, 0, NULL, 0},
};
#undef AT

int ith_attend_add_options(ith_option *table, int count, size_t offset)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        table[count] = rows[i];
        table[count++].offset += offset;
    }
    return count;
}

int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      const char *strategy, int64_t softmax, ith_attn_options *out)
{
    *out = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    if (choices->fold && choices->no_fold)
        return ith_cli_usage(command, "--fold and --no-fold exclude each other");
    if (strategy && ith_strategy_parse(context, strategy, out))
        return ith_cli_usage(command, "--strategy: %s", ith_context_error(context));
    if (softmax)
        out->softmax = (ith_softmax)(softmax - 1);
    if (choices->direction)
        out->direction = (ith_direction)(choices->direction - 1);
    if (choices->exchange)
        out->exchange = (ith_exchange_mode)(choices->exchange - 1);
    out->ulysses = (int)choices->ulysses, out->ring = (int)choices->ring;
    out->chunks = (int)choices->chunks;
    out->fold = choices->no_fold ? ITH_CHOICE_OFF : choices->fold ? ITH_CHOICE_ON : ITH_CHOICE_AUTO;
    out->smooth = choices->no_smoothing ? ITH_CHOICE_OFF : ITH_CHOICE_AUTO;
    out->kernel = choices->kernel;
    out->block_q = choices->block_q, out->block_kv = choices->block_kv;
    out->block_kv_compute = choices->block_kv_compute, out->block_kv_compute_in = choices->block_kv_compute_in;
    if (choices->effort)
        out->effort = (ith_effort)(choices->effort - 1);
    return ITH_EXIT_DONE;
}

int ith_attend_begin(ith_context *context, const ith_attend_choices *choices)
{
    int code = ith_cli_prepare_threads(choices->ranks, choices->threads);
    if (!code)
        code = ith_cli_check_output(choices->wisdom);
    if (!code)
        code = ith_cli_check_output(choices->trace);
    if (code)
        return code;
    if (choices->wisdom && !access(choices->wisdom, F_OK) && ith_wisdom_load(context, choices->wisdom))
        return ith_cli_error("%s", ith_context_error(context));
    if (choices->trace && ith_trace_start(context, TRACE_EVENTS))
        return ith_cli_error("%s", ith_context_error(context));
    return ITH_EXIT_DONE;
}

int ith_attend_end(ith_context *context, const ith_attend_choices *choices)
{
    if ((choices->wisdom && ith_wisdom_save(context, choices->wisdom)) ||
        (choices->trace && ith_trace_save(context, choices->trace)))
        return ith_cli_error("%s", ith_context_error(context));
    return ITH_EXIT_DONE;
}
