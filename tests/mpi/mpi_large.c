/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_large TRANSPORT: rank 0 sends more than 2^31 bytes to rank 1 in one region. Their processes are started by a
 * launcher. The region of the sender is made of windows of 1 MiB, 4 KiB apart, so each has bytes of its own; the region
 * of the receiver is contiguous. */
#include <ithaca/transport.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW ((int64_t)1 << 20)
#define STEP ((int64_t)4096)
#define WINDOWS ((int64_t)2100) /* 2.05 GiB */
#define SOURCE (WINDOW + (WINDOWS - 1) * STEP)

/* The bytes that the windows are cut from: no two windows are equal. */
static char *make_source(void)
{
    uint32_t *numbers = malloc((size_t)SOURCE);
    for (int64_t i = 0; numbers && i < SOURCE / 4; i++)
        numbers[i] = (uint32_t)i * 2654435761u;
    return (char *)numbers;
}

static ith_status move(ith_context *context, ith_comm *comm, void *user)
{
    int *right = user;
    char *source = make_source(), *all = ith_comm_rank(comm) == 1 ? malloc((size_t)(WINDOWS * WINDOW)) : NULL;
    if (!source || (ith_comm_rank(comm) == 1 && !all))
        return ITH_ERR_MEMORY;
    ith_transfer send = {1, {.data = source, .count = {WINDOWS, 1}, .stride = {STEP, 0}, .bytes = WINDOW}};
    ith_transfer receive = {0, {.data = all, .count = {1, 1}, .bytes = WINDOWS * WINDOW}};
    ith_status status = ith_comm_rank(comm) == 0 ? ith_comm_exchange(comm, &send, 1, NULL, 0)
                                                 : ith_comm_exchange(comm, NULL, 0, &receive, 1);
    *right = 1;
    for (int64_t i = 0; all && i < WINDOWS; i++)
        *right &= !memcmp(all + i * WINDOW, source + i * STEP, (size_t)WINDOW);
    free(all);
    free(source);
    (void)context;
    return status;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    int right = 0;
    if (argc != 2 || ith_context_create(NULL, &context))
        return 2;
    alarm(100);
    ith_status status = ith_run_ranks_connected(context, argv[1], NULL, 1, 1, move, &right);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    ith_context_destroy(&context);
    if (!status && right)
        printf("all bytes are right\n");
    return status || !right;
}
