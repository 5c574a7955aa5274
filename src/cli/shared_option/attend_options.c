/* SPDX-License-Identifier: Apache-2.0 */
/* The options that all commands with attention share, and their translation into ith_attn_options. */
#include "attend_options.h"

#include "../cli.h"
#include "../file/cache_file.h"
#include "../file/output_name.h"
#include "../launch/thread_limit.h"
#include "../option/complaint.h"
#include "../support/text_value.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST 1e9 /* upper limit of options without a natural maximum */

ITH_OPTION_WORD_OF(direction)
ITH_OPTION_WORD_OF(softmax)
ITH_OPTION_WORD_OF(exchange_mode)
ITH_OPTION_WORD_OF(effort)
ITH_OPTION_WORD_OF(compress)

const char *ith_attend_softmax_word(int value)
{
    return softmax_word(value);
}

const char *ith_attend_dtype_word(int value)
{
    return value == ITH_DTYPE_NONE ? "auto" : value <= ITH_F16 ? ith_dtype_name((ith_dtype)value) : "unknown";
}

#define AT(member) offsetof(ith_attend_choices, member)
static const ith_option rows[] = {
    {.help = "How attention is spread and computed; options that are not given are chosen:"},
    {"strategy", "NAME",
     "How attention is spread: auto, single, ulysses, ring, ulysses_ring, or a name of maxdiffusion's", ITH_OPTION_TEXT,
     .offset = AT(strategy)},
    {"softmax", "auto|online|fixed_m", "A running maximum, or an offset from norms of q and k", ITH_OPTION_WORD,
     .offset = AT(asked.softmax), .word = softmax_word},
    {"ranks", "N", "Ranks in this process (1)", ITH_OPTION_WHOLE, .offset = AT(ranks), .least = 1,
     .most = ITH_CLI_RANKS_MAX},
    {"threads", "N", "Threads, shared out to the ranks (all cores)", ITH_OPTION_WHOLE, .offset = AT(threads),
     .least = 1, .most = ITH_CLI_THREADS_MAX},
    {"ulysses", "N", "Ranks along the ulysses axis of the mesh", ITH_OPTION_INT, .offset = AT(asked.ulysses),
     .least = 1, .most = ITH_CLI_RANKS_MAX},
    {"ring", "N", "Ranks along the ring axis of the mesh", ITH_OPTION_INT, .offset = AT(asked.ring), .least = 1,
     .most = ITH_CLI_RANKS_MAX},
    {"direction", "auto|uni|bidir",
     "Keys travel round the ring, or both ways along a line; without effect where the mesh has no ring",
     ITH_OPTION_WORD, .offset = AT(asked.direction), .word = direction_word},
    {"chunks", "N", "Chunks of heads that are exchanged one after the other; without effect where none are exchanged",
     ITH_OPTION_INT, .offset = AT(asked.chunks), .least = 1, .most = LARGEST},
    {"no-smoothing", NULL, "fixed_m without subtracting the mean key", ITH_OPTION_FLAG, .offset = AT(no_smoothing)},
    {"fold", NULL, "Exchange batch and heads as one list, which is the default", ITH_OPTION_FLAG, .offset = AT(fold)},
    {"no-fold", NULL, "Exchange the entries of a batch one by one", ITH_OPTION_FLAG, .offset = AT(no_fold)},
    {"exchange", "auto|in_place|copy|mixed",
     "Read one another's tensors in place, send messages (copy), or both (mixed), with messages along the ring",
     ITH_OPTION_WORD, .offset = AT(asked.exchange), .word = exchange_mode_word},
    {"compress", "off|bf16|8bit",
     "Round messages for slow links: f32 to bf16, or v to 8 bits and the rest to bf16; the error is measured and shown",
     ITH_OPTION_WORD, .offset = AT(asked.compress), .word = compress_word},
    {"no-overlap", NULL, "Wait for every message before going on, so that nothing is hidden; for comparison",
     ITH_OPTION_FLAG, .offset = AT(no_overlap)},
    {"kernel", "NAME", "A kernel that 'ithaca info' lists (by wisdom, a rule or measurement)", ITH_OPTION_TEXT,
     .offset = AT(asked.kernel)},
    {"effort", "estimate|measure",
     "Where wisdom names no kernel, choose one by a fixed rule, which gives the same bits on every run (the "
     "default), or time them",
     ITH_OPTION_WORD, .offset = AT(asked.effort), .word = effort_word},
    {"block-q", "N", "Queries of a block, which pass over the keys together", ITH_OPTION_WHOLE,
     .offset = AT(asked.block_q), .least = 1, .most = LARGEST},
    {"block-kv", "N", "Keys that a block of queries passes over before the next block does", ITH_OPTION_WHOLE,
     .offset = AT(asked.block_kv), .least = 1, .most = LARGEST},
    {"block-kv-compute", "N", "Keys whose logits a block of queries holds at a time", ITH_OPTION_WHOLE,
     .offset = AT(asked.block_kv_compute), .least = 1, .most = LARGEST},
    {"block-kv-compute-in", "N", "Keys of a tile in registers", ITH_OPTION_WHOLE,
     .offset = AT(asked.block_kv_compute_in), .least = 1, .most = LARGEST},
    {"wisdom", "FILE|none",
     "What was measured of kernels, tiles and strategies: read if the file exists; written afterwards if it does not, "
     "or with --effort measure ($XDG_CACHE_HOME/ithaca/wisdom, which 'ithaca tune' writes, is read and not written); "
     "none: nothing is read",
     ITH_OPTION_TEXT, .offset = AT(wisdom)},
};
#undef AT

/* Appends the rows of all options but some, whose names end with NULL. */
static int append_without(const char *const *left_out, ith_option *table, int count, size_t offset)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].name || !ith_text_is_among(rows[i].name, left_out))
            count = ith_options_append(table, count, &rows[i], 1, offset);
    return count;
}

int ith_attend_add_choices(ith_option *table, int count, size_t offset)
{
    static const char *const of_a_run[] = {"ranks", "threads", "effort", "wisdom", NULL};
    return append_without(of_a_run, table, count, offset);
}

int ith_attend_add_options(ith_option *table, int count, size_t offset, bool lists)
{
    static const char *const with_lists[] = {"strategy", "softmax", NULL}, *const none[] = {NULL};
    count = append_without(lists ? with_lists : none, table, count, offset);
    return ith_launch_add_options(table, count, offset + offsetof(ith_attend_choices, launch));
}

int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      ith_attn_options *out)
{
    ith_attn_options named = ITH_ATTN_OPTIONS_INIT;
    if (choices->fold && choices->no_fold)
        return ith_cli_usage(command, "--fold and --no-fold exclude each other");
    if (choices->strategy && ith_strategy_parse(context, choices->strategy, &named))
        return ith_cli_usage(command, "--strategy: %s", ith_context_error(context));
    *out = choices->asked;
    out->struct_size = sizeof *out;
    out->strategy = named.strategy;
    out->softmax = out->softmax ? out->softmax : named.softmax;
    out->direction = out->direction ? out->direction : named.direction;
    out->fold = choices->no_fold ? ITH_CHOICE_OFF : choices->fold ? ITH_CHOICE_ON : ITH_CHOICE_AUTO;
    out->overlap = choices->no_overlap ? ITH_CHOICE_OFF : ITH_CHOICE_AUTO;
    out->smooth = choices->no_smoothing ? ITH_CHOICE_OFF : ITH_CHOICE_AUTO;
    return ITH_EXIT_DONE;
}

/* Reads the wisdom of 'ithaca tune', if there is any. A file that cannot be used gives a warning and no failure, since
 * the user has not named it. */
static void read_cache(ith_context *context)
{
    char path[PATH_MAX];
    if (ith_cache_path("wisdom", path) && !access(path, R_OK) && ith_wisdom_load(context, path))
        ith_error_print("warning: %s; going on without it ('ithaca tune' measures again)", ith_context_error(context));
}

const char *ith_attend_wisdom_file(const ith_attend_choices *choices)
{
    return choices->wisdom && strcmp(choices->wisdom, "none") != 0 ? choices->wisdom : NULL;
}

/* Whether the file of wisdom is only read: it is there, and nothing is measured that it could keep. */
static bool is_only_read(const ith_attend_choices *choices)
{
    const char *wisdom = ith_attend_wisdom_file(choices);
    struct stat info;
    return wisdom && choices->asked.effort != ITH_EFFORT_MEASURE && !stat(wisdom, &info) && S_ISREG(info.st_mode);
}

int ith_attend_begin(ith_context *context, const ith_attend_choices *choices, const ith_launch *launch, int others)
{
    const char *wisdom = ith_attend_wisdom_file(choices);
    int code = ith_cli_prepare_threads(launch->ranks, launch->threads, others);
    if (code || !launch->leads)
        return code;
    code = is_only_read(choices) ? ITH_EXIT_DONE : ith_cli_check_output(wisdom);
    if (code)
        return code;
    if (!choices->wisdom)
        read_cache(context);
    if (wisdom && !access(wisdom, F_OK) && ith_wisdom_load(context, wisdom))
        return ith_cli_error("%s", ith_context_error(context));
    return ITH_EXIT_DONE;
}

int ith_attend_end(ith_context *context, const ith_attend_choices *choices)
{
    const char *wisdom = ith_attend_wisdom_file(choices);
    if (wisdom && !is_only_read(choices) && ith_wisdom_save(context, wisdom))
        return ith_cli_error("%s", ith_context_error(context));
    return ITH_EXIT_DONE;
}
