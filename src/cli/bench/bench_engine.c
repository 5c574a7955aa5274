/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench block, ithaca bench decode and ithaca bench encode: reads the options, lets the engine measure, and
 * prints a row for each stage, as text or as JSON. */
#include "bench_engine.h"

#include "../cli.h"
#include "../launch/progress.h"
#include "../launch/thread_limit.h"
#include "../shared_option/device_option.h"
#include "bench_output.h"

#include <ithaca/bench.h>

#include <stdio.h>
#include <string.h>

#define STAGES_MAX 32 /* more than any benchmark has */
#define LARGEST 1e9   /* upper limit of options without a natural maximum */

/* The values of the options that the commands `bench block`, `decode` and `encode` have in common. */
typedef struct engine_settings {
    int size, precision, weights, softmax; /* numbers of words */
    int64_t threads, repeats;
    bool force;
    const char *device; /* of a block; NULL: the processor */
    ith_bench_output output;
} engine_settings;

/* The measurements of one command. */
typedef struct engine_bench {
    const char *what; /* "block", "decode" or "encode" */
    ith_bench_stage stages[STAGES_MAX];
    int count;
    ith_bench_report report;
    ith_device_info device; /* on which the block was computed; only if on_device */
    bool on_device;
    ith_progress progress;
    int (*describe)(const void *settings, char *text, size_t bytes); /* writes the sizes that are measured as text */
    json_t *(*to_json)(const void *settings);                        /* returns the sizes as a JSON object */
    const void *settings;
} engine_bench;

ITH_OPTION_WORD_OF(precision)
ITH_OPTION_WORD_OF(softmax)

/* The types of weights, indexed by the values of --weights. */
static const ith_dtype weights_types[] = {ITH_BF16, ITH_F32,  ITH_F16,  ITH_F8_E4M3, ITH_F8_E5M2, ITH_I8,
                                          ITH_Q8_0, ITH_Q6_K, ITH_Q5_K, ITH_Q4_K,    ITH_Q3_K,    ITH_Q2_K,
                                          ITH_Q5_0, ITH_Q5_1, ITH_Q4_0, ITH_Q4_1,    ITH_IQ4_NL};

static const char *weights_word(int value)
{
    return (unsigned)value < sizeof weights_types / sizeof *weights_types ? ith_dtype_name(weights_types[value])
                                                                          : "unknown";
}

/* The options that the commands have in common. A command's struct of settings begins with an engine_settings. */
#define SHARED(member) offsetof(engine_settings, member)
static const ith_option shared_rows[] = {
    {"precision", "auto|f32|bf16", "Type to which operands are rounded (auto: as 'ithaca generate' chooses)",
     ITH_OPTION_WORD, .offset = SHARED(precision), .word = precision_word},
    {"weights", "TYPE",
     "Type in which the weights are stored: bf16 (the default), f32 or f16; of a block also a packed one, such as "
     "f8_e4m3, i8, q8_0 or q4_k",
     ITH_OPTION_WORD, .offset = SHARED(weights), .word = weights_word},
    {"threads", "N", "Threads (all cores)", ITH_OPTION_WHOLE, .offset = SHARED(threads), .least = 1,
     .most = ITH_CLI_THREADS_MAX},
    {"repeat", "N", "Times that it is run after a first one to warm up (5)", ITH_OPTION_WHOLE,
     .offset = SHARED(repeats), .least = 1, .most = 1000},
    {"force", NULL, "Run even if memory seems too small", ITH_OPTION_FLAG, .offset = SHARED(force)},
};
enum { SHARED_ROWS = sizeof shared_rows / sizeof *shared_rows };

#define FIGURES_DOC                                                                                                    \
    "Each repeat runs every stage once; 'rest' is the time between stages, and the last row is the whole. "            \
    "seconds is the median of the repeats, and spread the difference of the slowest and the fastest over it. "         \
    "gflops counts the operations of the definition of a stage over seconds. peak names the instructions that "        \
    "the stage multiplies with, peak_gflops is their highest rate, measured after each repeat on as many "             \
    "threads (the median of the means), and share_of_peak, the mean share, is gflops over it. On a machine that "      \
    "others use too, quiet_share says more about the program: quiet_seconds adds up the fastest time of each "         \
    "slice of a stage in any repeat (slices of a millisecond with --threads 1; otherwise a stage of the block, "       \
    "or one convolution of a frame), burst_gflops is the highest peak in any two milliseconds, and quiet_share "       \
    "is operations over quiet_seconds over burst_gflops. The peak of the whole is its rate if every stage ran at "     \
    "its own peak. memory is the most that the engine held, predicted and measured, weights included: a run with "     \
    "a checkpoint keeps these in the mapped files."

/* Reads a command's own options and the shared ones. Returns an exit status. */
static int parse(int argc, char **argv, const ith_option *own_rows, int own_count, ith_options *options,
                 const char *doc)
{
    static ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, (size_t)own_count * sizeof *table);
    memcpy(table + own_count, shared_rows, sizeof shared_rows);
    options->table = table, options->command = argv[0];
    options->count = ith_bench_output_add_options(table, own_count + SHARED_ROWS, SHARED(output));
    ith_options_parse(options, argc, argv, doc, NULL);
    return ith_options_check(options);
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static void take_stage(void *user, const ith_bench_stage *stage)
{
    engine_bench *bench = user;
    if (bench->count < STAGES_MAX)
        bench->stages[bench->count++] = *stage;
}

static void show_progress(void *user, int64_t done, int64_t total)
{
    engine_bench *bench = user;
    ith_progress_show(&bench->progress, 0, done, total);
}

/* Fills in the options of the engine. `attention`: room for the options of self-attention. */
static ith_bench_options options_of(const engine_settings *s, engine_bench *bench, ith_attn_options *attention)
{
    ith_bench_options options = ITH_BENCH_OPTIONS_INIT;
    *attention = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    attention->softmax = (ith_softmax)s->softmax;
    options.precision = (ith_precision)s->precision, options.weights = weights_types[s->weights];
    options.threads = ith_cli_threads(s->threads), options.repeats = (int)s->repeats, options.force = s->force;
    options.attention = attention;
    options.on_stage = take_stage, options.on_progress = show_progress, options.user = bench;
    return options;
}

/* ---- Report ---------------------------------------------------------------------------------------------------- */

/* The rates of a stage, in 10^9 operations a second, and its shares of the peak; 0 if it multiplies nothing. */
typedef struct rates {
    double gflops, share, quiet_share;
} rates;

static rates rates_of(const ith_bench_stage *stage)
{
    rates r = {0};
    if (stage->seconds > 0)
        r.gflops = 1e-9 * stage->operations / stage->seconds;
    if (stage->peak_gflops > 0)
        r.share = r.gflops / stage->peak_gflops;
    if (stage->quiet_seconds > 0 && stage->burst_gflops > 0)
        r.quiet_share = 1e-9 * stage->operations / stage->quiet_seconds / stage->burst_gflops;
    return r;
}

/* A stage as a JSON object. A stage that multiplies nothing has no rates: they are null. */
static json_t *stage_json(const ith_bench_stage *stage)
{
    const rates r = rates_of(stage);
    json_t *row = json_pack("{s:s, s:f, s:f, s:f, s:f}", "stage", stage->name, "operations", stage->operations,
                            "seconds", stage->seconds, "spread", stage->spread, "quiet_seconds", stage->quiet_seconds);
    const struct {
        const char *name;
        double value;
    } figures[] = {{"gflops", r.gflops},
                   {"peak_gflops", stage->peak_gflops},
                   {"share_of_peak", r.share},
                   {"burst_gflops", stage->burst_gflops},
                   {"quiet_share", r.quiet_share}};
    const bool multiplies = stage->peak[0];
    json_object_set_new(row, "peak", multiplies ? json_string(stage->peak) : json_null());
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(row, figures[i].name, multiplies ? json_real(figures[i].value) : json_null());
    return row;
}

static json_t *memory_json(const ith_bench_report *report)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "memory_bytes", (json_int_t)report->peak_bytes, "predicted_memory_bytes",
                     (json_int_t)report->predicted_bytes, "weights_bytes", (json_int_t)report->weights_bytes,
                     "resident_bytes", (json_int_t)ith_cli_resident_bytes());
}

/* All stages as a JSON array of flat objects; the last one, the whole, also has the memory. */
static json_t *rows_json(const engine_bench *bench, const engine_settings *s)
{
    json_t *rows = json_array();
    for (int i = 0; i < bench->count; i++) {
        json_t *row = bench->to_json(bench->settings);
        json_object_update_new(
            row, json_pack("{s:s, s:s, s:i, s:i}", "precision", ith_precision_name(bench->report.precision), "weights",
                           weights_word(s->weights), "threads", bench->report.threads, "repeats", (int)s->repeats));
        if (s->softmax)
            json_object_set_new(row, "softmax", json_string(softmax_word(s->softmax)));
        if (bench->on_device)
            json_object_set_new(row, "device", json_string(bench->device.name));
        json_object_update_new(row, stage_json(&bench->stages[i]));
        if (i == bench->count - 1)
            json_object_update_new(row, memory_json(&bench->report));
        json_array_append_new(rows, row);
    }
    return rows;
}

static const ith_bench_column columns[] = {
    {"stage", "stage", NULL, 0, NULL},           {"seconds", "seconds", "%.4f", 1, NULL},
    {"spread", "spread", "%.1f%%", 100, NULL},   {"quiet", "quiet_seconds", "%.4f", 1, NULL},
    {"GFLOP/s", "gflops", "%.1f", 1, NULL},      {"peak", "peak", NULL, 0, NULL},
    {"GFLOP/s", "peak_gflops", "%.1f", 1, NULL}, {"share", "share_of_peak", "%.1f%%", 100, NULL},
    {"burst", "burst_gflops", "%.1f", 1, NULL},  {"quiet", "quiet_share", "%.1f%%", 100, NULL},
    {"earlier", "old_seconds", "%.4f", 1, NULL}, {"change", "change", NULL, 0, NULL},
};

/* Reports the stages as the options ask. Returns an exit status. */
static int report(const engine_bench *bench, const engine_settings *s)
{
    char title[64], settings[384], sizes[256];
    const bool table = !s->output.json && !s->output.csv;
    bench->describe(bench->settings, sizes, sizeof sizes);
    snprintf(title, sizeof title, "ithaca bench %s", bench->what);
    snprintf(settings, sizeof settings, "%s; precision %s, weights %s, %s%s%d thread%s", sizes,
             ith_precision_name(bench->report.precision), weights_word(s->weights), s->device ? s->device : "",
             s->device ? ", " : "", bench->report.threads, ith_cli_plural(bench->report.threads));
    if (table)
        printf("%s: %s\n", bench->what, settings);
    const ith_bench_about about = {.title = title,
                                   .machine = "",
                                   .settings = settings,
                                   .columns = columns,
                                   .column_count = sizeof columns / sizeof *columns};
    const int code = ith_bench_output_end(&s->output, rows_json(bench, s), &about);
    if (table)
        printf("memory %.1f MB held (predicted %.1f MB; %.1f MB of it are the weights), %.1f MB resident\n",
               ith_cli_megabytes(bench->report.peak_bytes), ith_cli_megabytes(bench->report.predicted_bytes),
               ith_cli_megabytes(bench->report.weights_bytes), ith_cli_megabytes(ith_cli_resident_bytes()));
    return code;
}

/* A call of the engine's benchmark with a problem, ith_block_problem or ith_decode_problem. */
typedef ith_status (*measure_fn)(ith_context *context, const void *problem, const ith_bench_options *options,
                                 ith_bench_report *report);

/* Measures and reports. A signal ends the process at once, because nothing is written before the end. */
static int run(engine_bench *bench, engine_settings *s, const char *command, measure_fn measure, const void *problem)
{
    static const ith_progress_stage stage = {"bench", "run", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS};
    ith_attn_options attention;
    ith_context *context = NULL;
    const ith_bench_options options = options_of(s, bench, &attention);
    bench->report = (ith_bench_report)ITH_BENCH_REPORT_INIT;
    int code = ith_bench_output_begin(&s->output, command);
    if (!code)
        code = ith_cli_prepare_threads(0, s->threads, 0);
    if (!code)
        code = ith_cli_context(ITH_TALK_NORMAL, &context);
    if (!code)
        code = ith_device_choose(context, command, s->device);
    if (code) {
        ith_context_destroy(&context);
        return code;
    }
    bench->on_device = ith_device_in_use(context, &bench->device);
    ith_progress_begin(&bench->progress, &stage, 1, !ith_terminal_draws());
    ith_status status = measure(context, problem, &options, &bench->report);
    ith_progress_end(&bench->progress);
    if (status)
        code = ith_cli_error("%s", ith_context_error(context));
    else
        code = report(bench, s);
    ith_context_destroy(&context);
    return code;
}

/* ---- Block ----------------------------------------------------------------------------------------------------- */

/* The values of the options of `bench block`. */
typedef struct block_settings {
    engine_settings shared;
    int64_t seq, heads, head_dim, ffn_dim, text, lora_rank;
} block_settings;

/* The published models, in the order of block_word. */
static const struct block_size {
    const char *name;
    int64_t heads, head_dim, ffn_dim;
} block_sizes[] = {{"1.3b", 12, 128, 8960}, {"5b", 24, 128, 14336}, {"a14b", 40, 128, 13824}};

static const char *block_word(int value)
{
    return (unsigned)value < sizeof block_sizes / sizeof *block_sizes ? block_sizes[value].name : "unknown";
}

#define AT(member) offsetof(block_settings, member)
static const ith_option block_rows[] = {
    {"size", "1.3b|5b|a14b", "Model whose block is measured (1.3b)", ITH_OPTION_WORD, .offset = SHARED(size),
     .word = block_word},
    {"seq", "N", "Tokens of the sequence (8192)", ITH_OPTION_WHOLE, .offset = AT(seq), .least = 1, .most = LARGEST},
    {"text", "N", "Rows of the prompt that cross-attention attends to (512)", ITH_OPTION_WHOLE, .offset = AT(text),
     .least = 1, .most = LARGEST},
    {"lora-rank", "N", "Rank of a LoRA of all matrices of the block (0: none)", ITH_OPTION_WHOLE,
     .offset = AT(lora_rank), .least = 0, .most = LARGEST},
    {"heads", "N", "Heads, instead of the model's", ITH_OPTION_WHOLE, .offset = AT(heads), .least = 1, .most = LARGEST},
    {"head-dim", "N", "Head size, instead of the model's", ITH_OPTION_WHOLE, .offset = AT(head_dim), .least = 1,
     .most = LARGEST},
    {"ffn-dim", "N", "Hidden width of the feed-forward network, instead of the model's", ITH_OPTION_WHOLE,
     .offset = AT(ffn_dim), .least = 1, .most = LARGEST},
    {"device", "cpu|cuda|cuda:N", "Compute the block on the processor, or on a GPU that 'ithaca info' lists (cpu)",
     ITH_OPTION_TEXT, .offset = SHARED(device)},
    {"softmax", "auto|online|fixed_m", "Softmax of self-attention (auto)", ITH_OPTION_WORD, .offset = SHARED(softmax),
     .word = softmax_word},
};
#undef AT

static const char block_doc[] =
    "Measure one block of the diffusion transformer with random weights, stage by stage. No checkpoint is needed."
    "\v"
    "The stages: qkv is the norm, the products for q, k and v, their norms and RoPE; project is the output of "
    "self-attention and the q of cross-attention; ffn is the output of cross-attention and the feed-forward "
    "network.\n\n" FIGURES_DOC;

static int describe_block(const void *settings, char *text, size_t bytes)
{
    const block_settings *s = settings;
    int length = snprintf(text, bytes, "%lld heads of %lld, feed-forward %lld, %lld tokens, %lld rows of text",
                          (long long)s->heads, (long long)s->head_dim, (long long)s->ffn_dim, (long long)s->seq,
                          (long long)s->text);
    if (s->lora_rank && length >= 0 && (size_t)length < bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", LoRA of rank %lld", (long long)s->lora_rank);
    return length;
}

static json_t *block_json(const void *settings)
{
    const block_settings *s = settings;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "bench", "block", "size", block_word(s->shared.size), "seq",
                  (json_int_t)s->seq, "heads", (json_int_t)s->heads, "head_dim", (json_int_t)s->head_dim, "ffn_dim",
                  (json_int_t)s->ffn_dim, "text", (json_int_t)s->text);
    if (s->lora_rank)
        json_object_set_new(json, "lora_rank", json_integer((json_int_t)s->lora_rank));
    return json;
}

static ith_status measure_block(ith_context *context, const void *problem, const ith_bench_options *options,
                                ith_bench_report *report)
{
    return ith_bench_block(context, problem, options, report);
}

int ith_cli_bench_block(int argc, char **argv)
{
    block_settings s = {.shared.repeats = 5, .seq = 8192, .text = 512};
    ith_options options = {.settings = &s};
    int code = parse(argc, argv, block_rows, sizeof block_rows / sizeof *block_rows, &options, block_doc);
    const struct block_size *size = &block_sizes[s.shared.size];
    s.heads = s.heads ? s.heads : size->heads;
    s.head_dim = s.head_dim ? s.head_dim : size->head_dim;
    s.ffn_dim = s.ffn_dim ? s.ffn_dim : size->ffn_dim;
    ith_block_problem problem = ITH_BLOCK_PROBLEM_INIT;
    problem.heads = s.heads, problem.head_dim = s.head_dim, problem.ffn_dim = s.ffn_dim;
    problem.tokens = s.seq, problem.text_rows = s.text, problem.lora_rank = s.lora_rank;
    engine_bench bench = {.what = "block", .describe = describe_block, .to_json = block_json, .settings = &s};
    if (!code)
        code = run(&bench, &s.shared, argv[0], measure_block, &problem);
    ith_bench_output_free(&s.shared.output);
    ith_options_free(&options);
    return code;
}

/* ---- Decode ---------------------------------------------------------------------------------------------------- */

/* The values of the options of `bench decode` and `bench encode`. */
typedef struct decode_settings {
    engine_settings shared;
    int64_t frames, height, width;
    bool encodes;
} decode_settings;

/* Sizes of the autoencoder, in the order of decode_word. */
static const struct decode_size {
    const char *name;
    int64_t vae, decoder_dim, encoder_dim, res_blocks;
} decode_sizes[] = {{"2.1", 21, 96, 96, 2}, {"small", 21, 16, 16, 1}, {"2.2", 22, 256, 160, 2}};

static const char *decode_word(int value)
{
    return (unsigned)value < sizeof decode_sizes / sizeof *decode_sizes ? decode_sizes[value].name : "unknown";
}

#define AT(member) offsetof(decode_settings, member)
static const ith_option decode_rows[] = {
    {"size", "2.1|small|2.2", "Autoencoder: the published one of Wan 2.1 or 2.2, or a small one (2.1)", ITH_OPTION_WORD,
     .offset = SHARED(size), .word = decode_word},
    {"frames", "N", "Frames of the video, one more than a multiple of 4 (5)", ITH_OPTION_WHOLE, .offset = AT(frames),
     .least = 1, .most = LARGEST},
    {"height", "N", "Pixels, a multiple of 8, for 2.2 of 16 (480)", ITH_OPTION_WHOLE, .offset = AT(height), .least = 1,
     .most = LARGEST},
    {"width", "N", "Pixels, a multiple of 8, for 2.2 of 16 (832)", ITH_OPTION_WHOLE, .offset = AT(width), .least = 1,
     .most = LARGEST},
};
#undef AT

#define VAE_DOC                                                                                                        \
    " with random weights, stage by stage. No checkpoint is needed."                                                   \
    "\v"                                                                                                               \
    "The stages: latents is the convolutions at the size of the latents; attention the attention between them, with "  \
    "its products; level 1 to level 4 the convolutions at each size of picture; norms the norms before convolutions; " \
    "picture the "
#define VAE_FIGURES_DOC                                                                                                \
    " convolution. The operations of a convolution are counted by its definition. In f32, most are computed with "     \
    "fewer multiplications, as F(2x2, 3x3), so that their share of the peak may exceed 100%.\n\n" FIGURES_DOC
static const char decode_doc[] = "Measure the decoder of the autoencoder" VAE_DOC "last" VAE_FIGURES_DOC;
static const char encode_doc[] = "Measure the encoder of the autoencoder" VAE_DOC "first" VAE_FIGURES_DOC;

static int describe_decode(const void *settings, char *text, size_t bytes)
{
    const decode_settings *s = settings;
    return snprintf(text, bytes, "autoencoder %s, %lld frames of %lld x %lld", decode_word(s->shared.size),
                    (long long)s->frames, (long long)s->width, (long long)s->height);
}

static json_t *decode_json(const void *settings)
{
    const decode_settings *s = settings;
    return json_pack("{s:s, s:s, s:I, s:I, s:I}", "bench", s->encodes ? "encode" : "decode", "size",
                     decode_word(s->shared.size), "frames", (json_int_t)s->frames, "height", (json_int_t)s->height,
                     "width", (json_int_t)s->width);
}

static ith_status measure_decode(ith_context *context, const void *problem, const ith_bench_options *options,
                                 ith_bench_report *report)
{
    return ith_bench_decode(context, problem, options, report);
}

static ith_status measure_encode(ith_context *context, const void *problem, const ith_bench_options *options,
                                 ith_bench_report *report)
{
    return ith_bench_encode(context, problem, options, report);
}

static int bench_vae(int argc, char **argv, bool encodes)
{
    decode_settings s = {.shared.repeats = 5, .frames = 5, .height = 480, .width = 832, .encodes = encodes};
    ith_options options = {.settings = &s};
    int code = parse(argc, argv, decode_rows, sizeof decode_rows / sizeof *decode_rows, &options,
                     encodes ? encode_doc : decode_doc);
    const struct decode_size *size = &decode_sizes[s.shared.size];
    ith_decode_problem problem = ITH_DECODE_PROBLEM_INIT;
    problem.vae = size->vae, problem.base_dim = encodes ? size->encoder_dim : size->decoder_dim;
    problem.res_blocks = size->res_blocks;
    problem.frames = s.frames, problem.height = s.height, problem.width = s.width;
    engine_bench bench = {
        .what = encodes ? "encode" : "decode", .describe = describe_decode, .to_json = decode_json, .settings = &s};
    if (!code)
        code = run(&bench, &s.shared, argv[0], encodes ? measure_encode : measure_decode, &problem);
    ith_bench_output_free(&s.shared.output);
    ith_options_free(&options);
    return code;
}

int ith_cli_bench_decode(int argc, char **argv)
{
    return bench_vae(argc, argv, false);
}

int ith_cli_bench_encode(int argc, char **argv)
{
    return bench_vae(argc, argv, true);
}
