/* SPDX-License-Identifier: Apache-2.0 */
/* Ithaca's engine on processes that share no memory, on a transport that is no part of the library. Each process opens
 * the model (weights are mapped, so they are in memory once) and holds its share of the video's tokens. Rank 0 writes
 * the frames to standard output, one picture in the format PPM after the other.
 *
 *     cc generate_on_processes.c socket_*.c $(pkg-config --cflags --libs ithaca_wan) -lpthread -o generate
 *     ./generate MODEL 3 "a red circle" | ffmpeg -f image2pipe -framerate 12 -i - clip.mp4
 */
#include "socket_meeting.h"

#include <ithaca/wan.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 16, FRAMES = 17, SIZE = 128, STEPS = 16 };

typedef struct job {
    const char *model, *prompt;
    int ranks;
} job;

/* Writes a frame in the format PPM. The engine calls this on rank 0 for each frame in its order. */
static ith_status write_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    size_t bytes = (size_t)(height * width * 3);
    (void)user, (void)index;
    printf("P6\n%lld %lld\n255\n", (long long)width, (long long)height);
    return fwrite(rgb, 1, bytes, stdout) == bytes ? ITH_OK : ITH_ERR_IO;
}

static ith_status generate(ith_context *context, ith_comm *comm, const job *j)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_pipeline *pipeline = NULL;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    options.prompt = j->prompt;
    options.frames = FRAMES, options.height = options.width = SIZE, options.steps = STEPS;
    options.threads = processors > j->ranks ? (int)processors / j->ranks : 1; /* a share of the processors */
    options.on_frame = write_frame;
    ith_status status = ith_pipeline_open(context, j->model, &pipeline);
    /* Every rank must call ith_pipeline_generate. A rank that cannot ends the group, so that no other rank waits for
     * it. */
    if (status)
        ith_comm_abort(comm, status);
    else
        status = ith_pipeline_generate(pipeline, comm, &options, NULL);
    ith_pipeline_close(&pipeline);
    return status;
}

/* Runs in each process: connects it to the others, and generates the video together with them. */
static int be_rank(int rank, const char *folder, void *user)
{
    const job *j = user;
    char problem[SOCKET_SENTENCE];
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    void *state = socket_meet(folder, rank, j->ranks, 10, problem);
    if (!state) {
        fprintf(stderr, "rank %d: %s\n", rank, problem);
        return 1;
    }
    ith_status status = ith_context_create(NULL, &context);
    if (!status)
        status = ith_comm_create(context, &socket_transport, state, rank, j->ranks, &comm);
    if (status)
        socket_transport.close(state); /* without a communicator the state is still the caller's */
    else
        status = generate(context, comm, j);
    if (status)
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(context));
    ith_comm_destroy(&comm);
    ith_context_destroy(&context);
    return status != ITH_OK;
}

int main(int argc, char **argv)
{
    int statuses[MOST_RANKS];
    job j = {argc > 1 ? argv[1] : NULL, argc > 3 ? argv[3] : "a red circle", argc > 2 ? atoi(argv[2]) : 2};
    if (!j.model || j.ranks < 1 || j.ranks > MOST_RANKS) {
        fprintf(stderr, "usage: %s MODEL [RANKS [PROMPT]], up to %d ranks\n", argv[0], MOST_RANKS);
        return 2;
    }
    return socket_run_processes(j.ranks, be_rank, &j, statuses) != 0;
}
