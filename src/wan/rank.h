/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run of ith_pipeline_generate.
 *
 * Ranks that call with the same pipeline are threads of one process. They share what the pipeline holds for the run:
 * the weights of one expert, the encoded prompts, the latents. The lowest of them is their leader: it makes these
 * things with all threads of the process while the others wait. A rank alone has its share of the tokens and its
 * buffers.
 *
 * Until ith_rank_begin has succeeded, a failure leaves the group as it was. After it a failure ends the group. */
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
    ith_generate_options options; /* all of them, checked; its attention is the next member */
    ith_attn_options attention;
    ith_number_types types;
    ith_latent_size size;
    ith_team team;  /* the ranks that share the pipeline, this one among them */
    int place;      /* of this rank in the team; 0: the leader */
    bool dumps;     /* rank 0 wants the latents of every step */
    ith_dump *dump; /* of rank 0 */
    ith_generate_report report;
    ith_observer observer;
    int threads_before; /* of OpenMP in the caller's thread */
    bool joined, begun;
    void *records; /* what the ranks showed one another */
} ith_rank;

/* Collective. `mine` is what became of this rank's arguments: whether all ranks may begin the same run. It finds out
 * who shares a pipeline, predicts the memory of every process, and checks the weight files. On success the rank has
 * joined its pipeline, is observed, and has its share of the process's threads, until ith_rank_end. */
ith_status ith_rank_begin(ith_rank *rank, ith_status mine);
/* Ends the group if status is a failure; all ranks then return the same. The last rank of a pipeline frees what they
 * shared. Also after a failure of ith_rank_begin. */
ith_status ith_rank_end(ith_rank *rank, ith_status status);

/* The leader's, when no rank uses the expert any more. */
void ith_shared_free_expert(ith_context *context, ith_shared *shared);

/* Ends the group; returns its first failure, with that one's sentence. May be called more than once. The sentence of an
 * interruption says the place. */
ith_status ith_rank_fail(ith_rank *rank, ith_status status);

/* Collective: every rank brings its own status. ITH_OK, or that of the lowest rank that failed, which the sentence
 * names unless all failed alike. */
ith_status ith_rank_agree(ith_rank *rank, ith_status mine);
typedef ith_status (*ith_rank_part)(ith_rank *rank, void *user);
/* Collective: the leader of every pipeline does `part` with all threads of its process, the others wait. Then all
 * agree, and see what the leader wrote. `place` is what is being done, for the sentence of an interruption. */
ith_status ith_rank_lead(ith_rank *rank, const char *place, ith_rank_part part, void *user);
/* The same of rank 0 alone. */
ith_status ith_rank_first(ith_rank *rank, const char *place, ith_rank_part part, void *user);
/* Collective: whether the leaders' values are those of rank 0; `name` is in the sentence. The others' do not count. */
ith_status ith_rank_compare(ith_rank *rank, const char *name, uint64_t value);

#endif
