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

#include "../../base/observer.h"
#include "../../comm/comm.h"
#include "../part/precision.h"
#include "../sample/latents.h"
#include "memory/run_memory.h"
#include "request.h"
#include "saved_run.h"
#include "team.h"

/* The state of one rank in a run. */
typedef struct ith_rank {
    ith_pipeline *pipeline;
    ith_context *context;         /* the context of the communicator, or of the pipeline if `comm` is NULL */
    ith_comm *comm;               /* NULL: the run has one rank */
    int rank, ranks;              /* number of this rank, and number of all ranks of the run */
    ith_generate_options options; /* checked, with defaults filled in; its pointers to structs point into `parts` */
    ith_request_parts parts;
    ith_number_types types;
    /* The device of the context, on which the transformer and the decoder compute; NULL: the processor. All else
     * computes on the processor: between ith_rank_begin and ith_rank_end the context has no device except while
     * ith_denoise and ith_decode give it this one. */
    struct ith_device_use *device;
    ith_device_need on_device; /* on the leader: the predicted memory of the device */
    ith_latent_size size;
    ith_team team;     /* the ranks that share the pipeline, including this one */
    int position;      /* index of this rank among the ranks that share the pipeline; 0: this is the leader */
    ith_comm *leaders; /* on leaders: the leaders of all pipelines, in the order of their ranks; NULL if there is one */
    ith_comm *neighbours; /* on leaders that share out weights: the leaders of the processes of this host */
    ith_comm *loaders;    /* on the first leader of a host that shares out weights: the first leaders of all hosts */
    bool dumps;     /* whether rank 0 writes options.dump_file, and so needs the latents of every denoising step */
    ith_dump *dump; /* on rank 0, the contents of options.dump_file; NULL: this rank writes no such file */
    bool saves;     /* whether rank 0 saves the run, and so needs the latents and the solver's arrays */
    int64_t preview_every; /* number of steps after which rank 0 shows a preview; 0: there are none */
    float preview_map[2 * 3 * (ITH_LATENT_MOST_CHANNELS + 1)]; /* on rank 0: the maps of the previews (preview.h) */
    ith_saved_run *saved;            /* the open file options.resume_file; NULL: the run begins with noise */
    uint64_t model_hash, noise_hash; /* on rank 0, of a run that is saved or resumed: hashes for its file */
    ith_generate_report report;
    ith_observer observer;
    ith_observer *observer_before; /* of a run in whose callback this run was called; restored at its end */
    int threads_before; /* the calling thread's number of OpenMP threads before the run, restored at its end */
    bool joined;        /* this rank is counted in pipeline->shared.ranks */
    bool begun;         /* ith_rank_begin has succeeded */
    void *records;      /* the pipelines and threads of all ranks, which ith_agree_on_run has compared */
} ith_rank;

/* Opens a half of the model's autoencoder, whose files must not have changed since they were checked. */
ith_status ith_rank_open_vae(ith_rank *rank, ith_vae_half half, ith_vae **vae);
/* Frees the expert in use: its weights, and the keys and values that it has made from the prompts. The leader calls it
 * when no rank uses them any more. */
void ith_shared_free_expert(ith_context *context, ith_shared *shared);

/* Ends the group of ranks, and returns the status and the error message of the rank that failed first. It may be called
 * more than once. */
ith_status ith_rank_fail(ith_rank *rank, ith_status status);

/* Collective: returns ITH_OK if `mine` is ITH_OK on every rank, otherwise the status of the lowest rank that failed.
 * The error message names this rank, unless all ranks failed with the same error message. */
ith_status ith_rank_agree(ith_rank *rank, ith_status mine);
/* Work that one rank does for other ranks. `user` comes from the caller of ith_rank_lead or ith_rank_first. */
typedef ith_status (*ith_rank_part)(ith_rank *rank, void *user);
/* Collective: the leader (the lowest rank) of every pipeline calls `part` with all threads of its process, while the
 * other ranks wait. Then all ranks agree on the status, and can read the memory that the leader has written. The error
 * message of an interruption names `activity`, the work that was interrupted. */
ith_status ith_rank_lead(ith_rank *rank, const char *activity, ith_rank_part part, void *user);
/* Collective: as ith_rank_lead, but rank 0 alone calls `part`. */
ith_status ith_rank_first(ith_rank *rank, const char *activity, ith_rank_part part, void *user);

#endif
