/* SPDX-License-Identifier: Apache-2.0 */
/* application TRANSPORT [single|SECONDS]: a program that uses MPI itself, before, beside and after groups of this
 * library. single: it has told MPI that it has one thread. Prints the refusal of a group, if there is one. SECONDS: it
 * makes one group, with this limit of connecting, and if it fails ends without MPI_Finalize, which could wait for ever.
 */
#include <ithaca/transport.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ith_status add(ith_context *context, ith_comm *comm, void *user)
{
    float sum = 1;
    int all = -1;
    ith_status status = ith_comm_allreduce(comm, &sum, 1, ITH_REDUCE_SUM);
    if (ith_comm_rank(comm) == 1)
        all = 1;
    MPI_Bcast(&all, 1, MPI_INT, 1, MPI_COMM_WORLD); /* while the group exists */
    if (!status)
        status = ith_comm_barrier(comm);
    *(float *)user = sum + (float)all;
    (void)context;
    return status;
}

/* Returns if the processes have been connected within the time. */
static void connect_within(ith_context *context, const char *transport, double seconds)
{
    float result = 0;
    double begin = MPI_Wtime();
    ith_context_set_connect_timeout(context, seconds);
    if (!ith_run_ranks_connected(context, transport, NULL, 1, 1, add, &result))
        return;
    printf("refused after %.1f s: %s\n", MPI_Wtime() - begin, ith_context_error(context));
    fflush(stdout);
    _exit(1);
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    int level, rank, size, finalized = 1, sum = 0;
    bool single = argc > 2 && !strcmp(argv[2], "single");
    MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2 || ith_context_create(NULL, &context))
        return 2;
    const double seconds = argc > 2 ? atof(argv[2]) : 0;
    if (seconds > 0)
        connect_within(context, argv[1], seconds);
    for (int i = 0; i < 2; i++) {
        float result = 0;
        if (ith_run_ranks_connected(context, argv[1], NULL, 1, 1, add, &result))
            printf("refused: %s\n", ith_context_error(context));
        else if (result != (float)size + 1)
            return 3;
    }
    if (ith_comm_connect(context, argv[1], "somewhere", &comm) != ITH_ERR_ARGUMENT ||
        !strstr(ith_context_error(context), "where is \"somewhere\""))
        return 4;
    ith_context_destroy(&context);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    MPI_Finalized(&finalized);
    printf("the application has ended: %d\n", sum);
    return sum != size * (size - 1) / 2 || !finalized;
}
