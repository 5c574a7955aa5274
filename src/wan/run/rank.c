/* SPDX-License-Identifier: Apache-2.0 */
/* Makes all ranks agree on a status, and lets one rank work for the others (rank.h). */
#include "rank.h"

#include "../../base/context.h"
#include "../../base/hash.h"

#include <omp.h>
#include <string.h>

/* A rank's failure, in the form in which it is broadcast to the other ranks. */
typedef struct verdict {
    ith_status status;
    char sentence[ITH_ERROR_BYTES];
} verdict;

/* A hash of a status and its error message. It has 24 bits, which an f32 holds exactly, so that ranks can compare it by
 * an allreduce. */
static float hash_of_failure(const ith_rank *rank, ith_status status)
{
    const char *sentence = ith_context_error(rank->context);
    return (float)(ith_hash((uint64_t)-status, sentence, (int64_t)strlen(sentence)) & 0xffffff);
}

ith_status ith_rank_agree(ith_rank *rank, ith_status mine)
{
    if (!rank->comm)
        return mine;
    /* Three numbers, each maximised over all ranks, give the lowest rank that failed, and the largest and the smallest
     * hash of a failure. If the two hashes are equal, all ranks failed with the same error message. */
    float hash = mine ? hash_of_failure(rank, mine) : -1.0f;
    float values[3] = {mine ? (float)(rank->ranks - rank->rank) : 0.0f, hash, -hash};
    ith_status status = ith_comm_allreduce(rank->comm, values, 3, ITH_REDUCE_MAX);
    if (status || values[0] == 0.0f)
        return status;
    int failed = rank->ranks - (int)values[0];
    verdict first = {.status = mine};
    memcpy(first.sentence, ith_context_error(rank->context), strlen(ith_context_error(rank->context)) + 1);
    status = ith_comm_broadcast(rank->comm, &first, sizeof first, failed);
    if (status)
        return status;
    ith_fail(rank->context, first.status, "%s", first.sentence);
    return values[1] == -values[2] ? first.status : ith_fail_in(rank->context, first.status, "rank %d", failed);
}

ith_status ith_rank_fail(ith_rank *rank, ith_status status)
{
    if (!rank->comm)
        return status;
    ith_comm_abort(rank->comm, status);
    ith_status first = ith_comm_barrier(rank->comm);
    return first ? first : status;
}

/* ---- Work of one rank for all ---------------------------------------------------------------------------------- */

ith_status ith_rank_lead(ith_rank *rank, const char *activity, ith_rank_part part, void *user)
{
    ith_pipeline *pipeline = rank->pipeline;
    ith_status status = ITH_OK;
    int threads = omp_get_max_threads();
    ith_observer_set_activity(rank->context, "%s", activity);
    if (!rank->position) {
        omp_set_num_threads(rank->options.threads);
        status = ith_observer_say_activity(rank->context, part(rank, user));
        omp_set_num_threads(threads);
        pthread_mutex_lock(&pipeline->lock);
        pthread_mutex_unlock(&pipeline->lock);
    }
    status = ith_rank_agree(rank, status);
    /* The leader has locked pipeline->lock after its writes to shared memory. Locking it here makes these writes
     * visible to this thread. The communication in ith_rank_agree does not promise that. */
    pthread_mutex_lock(&pipeline->lock);
    pthread_mutex_unlock(&pipeline->lock);
    return status;
}

/* The arguments of ith_rank_first, which if_first gets as its `user`. */
typedef struct part_of_first {
    ith_rank_part part;
    void *user;
} part_of_first;

static ith_status if_first(ith_rank *rank, void *user)
{
    const part_of_first *first = user;
    return rank->rank ? ITH_OK : first->part(rank, first->user);
}

ith_status ith_rank_first(ith_rank *rank, const char *activity, ith_rank_part part, void *user)
{
    part_of_first first = {part, user};
    return ith_rank_lead(rank, activity, if_first, &first);
}

ith_status ith_rank_open_vae(ith_rank *rank, ith_vae_half half, ith_vae **vae)
{
    const ith_model *model = rank->pipeline->model;
    ith_store *store = NULL;
    ith_status status = ith_model_open_unchanged(rank->context, model, ITH_PART_VAE, &store);
    return status ? status : ith_vae_open(rank->context, &model->vae, half, store, rank->types.products, vae);
}

void ith_shared_free_expert(ith_context *context, ith_shared *shared)
{
    ith_dit_text_free(context, &shared->keys[0]);
    ith_dit_text_free(context, &shared->keys[1]);
    ith_dit_image_free(context, &shared->images);
    ith_dit_free(context, &shared->dit);
    ith_dit_shards_free(context, &shared->shards);
}
