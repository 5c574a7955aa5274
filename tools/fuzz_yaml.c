/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for YAML files: an input is read as the options of `ithaca generate`, as the ithaca.yaml of a
 * model and as the description of a machine, for which plans are then predicted. From the root of the tree, with CC
 * and CXX clang:
 *
 *     cmake -S . -B build-fuzz -G Ninja -DITHACA_SANITIZE=address,undefined -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link
 *     ninja -C build-fuzz ith_wan ith_tune ith_oracle
 *     clang -g -O1 -D_GNU_SOURCE -Dmain=program -DITHACA_MACHINES='"machines"' -fsanitize=fuzzer,address,undefined \
 *         -fsanitize-link-c++-runtime -Iinclude -Isrc -Itests tools/fuzz_yaml.c tests/support/memory_file.c \
 *         $(find src/cli src/media/load -name '*.c') \
 *         build-fuzz/src/libith_{wan,linear,files,tune,cost,attention,oracle,kernels,comm,base}.a \
 *         -fopenmp -lyaml -ljansson -lsentencepiece -lutf8proc -lstdc++ -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz -max_len=8192 -close_fd_mask=2 found examples machines
 *
 * With these options the sentences of the program are not printed. A file that breaks it becomes a case of
 * tests/cli/test_cli_config.sh or tests/cli/test_cli_plan.sh. */
#include "cli/generate/generate.h"
#include "cli/machine/machine_file.h"
#include "cli/option/config.h"
#include "support/memory_file.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_options(const char *path, int (*read)(const char *, ith_options *))
{
    static ith_generate_settings settings;
    ith_options options;
    ith_generate_open_options(&settings, &options);
    read(path, &options);
    ith_options_free(&options);
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
    if (ith_machine_file_read(context, path, &machine))
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
    close(file.file);
    ith_context_destroy(&context);
    return 0;
}
