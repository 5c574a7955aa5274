/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for YAML files and for the prompts of a batch: an input is read as the options of `ithaca
 * generate`, as the ithaca.yaml of a model, as a batch, and as the description of a machine. Plans are then predicted
 * for this machine. From the root of the tree, with CC and CXX clang:
 *
 *     cmake -S . -B build-fuzz -G Ninja -DITHACA_SANITIZE=address,undefined -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link
 *     ninja -C build-fuzz ith_wan ith_tune ith_oracle
 *     clang -g -O1 -D_GNU_SOURCE -Dmain=program -DITHACA_MACHINES='"machines"' -fsanitize=fuzzer,address,undefined \
 *         -fsanitize-link-c++-runtime -Iinclude -Isrc -Itests tools/fuzz_yaml.c tests/support/memory_file.c \
 *         $(find src/cli src/media/load -name '*.c') \
 *         build-fuzz/src/libith_{wan,linear,files,tune,cost,attention,oracle,kernels,comm,base}.a \
 *         -fopenmp -lyaml -ljansson -lsentencepiece -lutf8proc -lstdc++ -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz -max_len=8192 found examples machines
 *
 * The target ends at a failure without a sentence, too. A file that breaks the program becomes a case of
 * tests/cli/test_cli_config.sh, test_cli_plan.sh or test_cli_batch.sh. */
#include "cli/cli.h"
#include "cli/generate/batch_file.h"
#include "cli/generate/generate.h"
#include "cli/machine/machine_file.h"
#include "cli/option/config.h"
#include "support/memory_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_LINES 10 /* lines of a batch whose options are read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static FILE *screen; /* the standard error of the program, while `said` takes its place */
static char *said;
static size_t said_bytes;

/* Keeps the text that the readers print on standard error, until check_sentence. */
static void listen(void)
{
    screen = stderr;
    stderr = open_memstream(&said, &said_bytes);
    if (!stderr)
        abort();
}

/* Ends the program unless a failure has one sentence of one line without control characters, and a success none.
 * Returns the exit status. */
static int check_sentence(int code)
{
    fclose(stderr);
    stderr = screen;
    bool right = code == ITH_EXIT_FAILED ? said_bytes > 1 && said[said_bytes - 1] == '\n' : !code && !said_bytes;
    for (size_t i = 0; i + 1 < said_bytes; i++)
        right = right && (unsigned char)said[i] >= ' ' && said[i] != 127;
    if (!right) {
        fprintf(stderr, "exit status %d: %s\n", code, said);
        abort();
    }
    free(said);
    return code;
}

static void read_options(const char *path, int (*read)(const char *, ith_options *))
{
    static ith_generate_settings settings;
    ith_options options;
    ith_generate_open_options(&settings, &options);
    listen();
    check_sentence(read(path, &options));
    ith_options_free(&options);
}

/* Reads the file as the prompts of a batch, and the options of its first lines. */
static void read_batch(const char *path)
{
    static ith_generate_settings settings;
    ith_batch_line *lines;
    int64_t count;
    listen();
    int code = check_sentence(ith_batch_lines_read(path, true, &lines, &count));
    for (int64_t i = 0; !code && i < count && i < MOST_LINES; i++) {
        ith_options options;
        ith_generate_open_options(&settings, &options);
        listen();
        check_sentence(ith_batch_line_apply(&lines[i], path, &options));
        ith_options_free(&options);
    }
    ith_batch_lines_free(lines, count);
}

/* An ith_plan_candidate_fn. Ends the program if a predicted time is no number. */
static ith_status check_plan(void *user, const ith_plan_candidate *candidate)
{
    (void)user;
    if (candidate->legal && isnan(candidate->cost->seconds))
        abort();
    return ITH_OK;
}

static void read_machine(ith_context *context, const char *path)
{
    ith_machine machine;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = 1, problem.heads = problem.kv_heads = 8, problem.head_dim = 128;
    problem.q_len = problem.kv_len = 512, problem.dtype = ITH_BF16;
    listen();
    if (check_sentence(ith_machine_file_read(context, path, &machine)))
        return;
    for (int ranks = 1; ranks <= 16; ranks *= 4)
        ith_plan_list(context, &problem, NULL, &machine, ranks, check_plan, NULL);
    ith_machine_file_free(&machine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ith_context *context = NULL;
    if (ith_context_create(NULL, &context))
        return 0;
    memory_file file = memory_file_create();
    memory_file_fill(&file, data, size);
    read_options(file.path, ith_config_read);
    read_options(file.path, ith_config_read_model);
    read_machine(context, file.path);
    read_batch(file.path);
    close(file.file);
    ith_context_destroy(&context);
    return 0;
}
