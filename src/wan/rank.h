/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run of ith_pipeline_generate.
 *
 * Ranks that call with the same pipeline are threads of one process. They share the data that the pipeline holds for
 * the run: the weights of one expert, the encoded prompts, the latents. The lowest of these ranks is their leader: it
 * makes the shared data with all threads of the process while the others wait. Each rank owns its share of the tokens
 * and its buffers.
 *
 * A failure before the success of ith_rank_begin leaves the group intact. A later failure ends the group. */
#ifndef ITH_WAN_RANK_H
#define ITH_WAN_RANK_H

#include "../base/observer.h"
#include "../comm/comm.h"
#include "pipeline.h"
#include "precision.h"
#include "sample/latents.h"

typedef struct ith_rank {
    ith_pipeline *pipeline;
    ith_context *context;         /* the communicator's; the pipeline's if there is none */
    ith_comm *comm;               /* NULL: one rank */
    int rank, ranks;              /* of the communicator */
    ith_generate_options options; /* complete and checked; its attention points to the next member */
    ith_attn_options attention;
    ith_number_types types;
    ith_latent_size size;
    ith_team team;  /* the ranks that share the pipeline, this one among them */
    int position;   /* of this rank in the team; 0: the leader */
    bool dumps;     /* rank 0 wants the latents of every step */
    ith_dump *dump; /* of rank 0 */
    ith_generate_report report;
    ith_observer observer;
    int threads_before; /* OpenMP's number of threads in the caller's thread */
    bool joined;        /* the pipeline counts this rank */
    bool begun;         /* ith_rank_begin has succeeded */
    void *records;      /* the records of all ranks */
} ith_rank;

/* Collective: begins a run if the arguments of all ranks allow it. `mine` is the status of this rank's arguments. Finds
 * the ranks that share a pipeline, predicts the memory of every process, and checks the weight files. On success the
 * rank has joined its pipeline, has an observer, and has its share of the process's threads, until ith_rank_end. */
ith_status ith_rank_begin(ith_rank *rank, ith_status mine);
/* Ends the run; to be called after a failure of ith_rank_begin, too. If status is a failure, it ends the group, and all
 * ranks return the same status. The last rank of a pipeline frees the shared data. */
ith_status ith_rank_end(ith_rank *rank, ith_status status);

/* Frees the expert. The leader calls it when no rank uses the expert any more. */
void ith_shared_free_expert(ith_context *context, ith_shared *shared);

/* Ends the group, and returns the status of its first failure, with that failure's sentence. It may be called more than
 * once. The sentence of an interruption names the activity. */
ith_status ith_rank_fail(ith_rank *rank, ith_status status);

/* Collective: returns ITH_OK if `mine` is ITH_OK on every rank, otherwise the status of the lowest rank that failed.
 * The sentence names the rank unless all have failed alike. */
ith_status ith_rank_agree(ith_rank *rank, ith_status mine);
typedef ith_status (*ith_rank_part)(ith_rank *rank, void *user);
/* Collective: the leader of every pipeline calls `part` with all threads of its process while the others wait. Then all
 * ranks agree on the status and see the leader's writes. `activity` names the work in the sentence of an interruption.
 */
ith_status ith_rank_lead(ith_rank *rank, const char *activity, ith_rank_part part, void *user);
/* The same, but only rank 0 calls `part`. */
ith_status ith_rank_first(ith_rank *rank, const char *activity, ith_rank_part part, void *user);
/* Collective: checks that `value` of every leader equals the value of rank 0; `name` is used in the sentence. The
 * values of other ranks are ignored. */
ith_status ith_rank_compare(ith_rank *rank, const char *name, uint64_t value);

#endif
