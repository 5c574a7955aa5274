/* SPDX-License-Identifier: Apache-2.0 */
/* A module that connects three ranks and gives the second rank a number that no rank of three has. `where` is the
 * address of an int, which counts the states that were closed. With HAS_TABLE 0 the module lacks its table. */
#include <ithaca/transport.h>

#include <stdio.h>

static ith_status meet(const char *where, int ranks, double seconds, void **states, int *numbers, int *size,
                       char *sentence, size_t bytes)
{
    void *closed;
    (void)seconds;
    if (ranks != 3 || sscanf(where, "%p", &closed) != 1) {
        snprintf(sentence, bytes, "it takes three ranks, and an address");
        return ITH_ERR_ARGUMENT;
    }
    for (int i = 0; i < ranks; i++)
        states[i] = closed, numbers[i] = i == 1 ? 7 : i;
    *size = ranks;
    return ITH_OK;
}

static ith_status exchange(void *state, const ith_operation *operation)
{
    (void)state, (void)operation;
    return ITH_ERR_IO;
}

static ith_status wait(void *state, int64_t request, double seconds, bool *done)
{
    (void)state, (void)request, (void)seconds, (void)done;
    return ITH_ERR_IO;
}

static ith_status failure(void *state, const char **sentence)
{
    (void)state;
    *sentence = "";
    return ITH_OK;
}

static ith_status split(void *state, const ith_subgroup *subgroup, void **out)
{
    (void)state, (void)subgroup, (void)out;
    return ITH_ERR_IO;
}

static void end_group(void *state, ith_status status, const char *sentence)
{
    (void)state, (void)status, (void)sentence;
}

static void close_state(void *state)
{
    ++*(int *)state;
}

static const ith_transport table = {.struct_size = sizeof(ith_transport),
                                    .name = "miscounting",
                                    .requests = ITH_TRANSPORT_LEAST_REQUESTS,
                                    .exchange = exchange,
                                    .wait = wait,
                                    .failure = failure,
                                    .split = split,
                                    .abort = end_group,
                                    .close = close_state};

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {
    .abi = ITH_TRANSPORT_MODULE_ABI, .name = MODULE_NAME, .transport = HAS_TABLE ? &table : NULL, .connect = meet};
