/* SPDX-License-Identifier: Apache-2.0 */
/* The records that ranks show one another at the opening of a call, and their comparison. Every rank sees the same
 * records and so comes to the same result. */
#include "opening.h"

#include "../base/hash.h"
#include "../base/size.h"
#include "agree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* bytes of a mask that are hashed between two checks for a cancellation */
#define HASHED_AT_A_TIME ITH_DEVICE_PIECE_BYTES

typedef enum call_kind { CALL_CREATE = 1, CALL_EXECUTE } call_kind;

/* The record that a rank shows when a call opens. It has at most ITH_COMM_RECORD_BYTES. */
typedef struct call_record {
    call_kind call;
    int64_t plan, execution; /* number of the plan that is created or executed; number of its execution */
    ith_status status;       /* result of the checks that this rank made alone */
    bool wants_lse;
    uint64_t kv_lengths, key_bias; /* hashes of these two tensors */
    const void *mask;              /* address of the mask */
    const ith_extents *extents;    /* memory of this rank's tensors, for ranks of its process; NULL: not known */
    ith_in_place_record shown;     /* addresses of this rank's tensors, if other ranks use them in place */
    char sentence[512];            /* this rank's error sentence; empty if status is ITH_OK */
} call_record;

_Static_assert(sizeof(call_record) <= ITH_COMM_RECORD_BYTES,
               "a record is larger than the most that ith_comm_begin_call takes");

static const call_record *record_of(const ith_comm *comm, int rank)
{
    return ith_comm_record(comm, rank);
}

/* ---- Comparison ------------------------------------------------------------------------------------------------ */

static void describe_call(const call_record *record, char *text, size_t text_bytes)
{
    if (record->call == CALL_CREATE)
        snprintf(text, text_bytes, "is making plan %lld", (long long)record->plan);
    else
        snprintf(text, text_bytes, "is in execution %lld of plan %lld", (long long)record->execution,
                 (long long)record->plan);
}

/* Fails if ranks are in different calls. The rest of their records is then not compared. */
static ith_status compare_calls(ith_context *context, const ith_comm *comm)
{
    const call_record *first = record_of(comm, 0);
    for (int rank = 1; rank < comm->size; rank++) {
        const call_record *record = record_of(comm, rank);
        if (record->call == first->call && record->plan == first->plan && record->execution == first->execution)
            continue;
        char here[64], there[64], one[ITH_RANK_NAME], other[ITH_RANK_NAME];
        describe_call(record, here, sizeof here);
        describe_call(first, there, sizeof there);
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s %s, and %s %s: ranks make their plans and execute them in the same order",
                        ith_comm_name_rank(comm, rank, one), here, ith_comm_name_rank(comm, 0, other), there);
    }
    return ITH_OK;
}

/* Whether two ranks have the same verdict. A sentence that a broken transport has delivered may have no end. */
static bool same_verdict(const call_record *one, const call_record *other)
{
    return one->status == other->status && !strncmp(one->sentence, other->sentence, sizeof one->sentence - 1);
}

/* Returns the failure of the lowest rank that failed. The error sentence names that rank, unless all ranks failed with
 * the same error sentence. */
static ith_status compare_verdicts(ith_context *context, const ith_comm *comm)
{
    const call_record *failed = NULL;
    int failed_rank = 0;
    bool alike = true;
    for (int rank = 0; rank < comm->size; rank++) {
        const call_record *record = record_of(comm, rank);
        if (!failed && record->status)
            failed = record, failed_rank = rank;
        alike &= same_verdict(record, record_of(comm, 0));
    }
    if (!failed)
        return ITH_OK;
    const int bytes = sizeof failed->sentence - 1;
    char name[ITH_RANK_NAME];
    if (alike)
        return ith_fail(context, ith_failure_of(failed->status), "%.*s", bytes, failed->sentence);
    return ith_fail(context, ith_failure_of(failed->status), "%s: %.*s", ith_comm_name_rank(comm, failed_rank, name),
                    bytes, failed->sentence);
}

static ith_status differ(ith_context *context, const ith_comm *comm, const char *name, int rank)
{
    char one[ITH_RANK_NAME], other[ITH_RANK_NAME];
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "%s on %s differs from %s on %s: every rank needs all of it, with the same numbers", name,
                    ith_comm_name_rank(comm, rank, one), name, ith_comm_name_rank(comm, 0, other));
}

/* Fails if ranks differ in kv_lengths, in key_bias, or in whether they want lse. */
static ith_status compare_tensors(ith_context *context, const ith_comm *comm)
{
    const call_record *first = record_of(comm, 0);
    char one[ITH_RANK_NAME], other[ITH_RANK_NAME];
    for (int rank = 1; rank < comm->size; rank++) {
        const call_record *record = record_of(comm, rank);
        if (record->wants_lse != first->wants_lse)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "lse must be given on every rank or on none: %s has %s, %s has %s",
                            ith_comm_name_rank(comm, rank, one), record->wants_lse ? "it" : "none",
                            ith_comm_name_rank(comm, 0, other), first->wants_lse ? "it" : "none");
        if (record->kv_lengths != first->kv_lengths)
            return differ(context, comm, "kv_lengths", rank);
        if (record->key_bias != first->key_bias)
            return differ(context, comm, "key_bias", rank);
    }
    return ITH_OK;
}

/* Returns status. If it is a failure of the communicator, which has ended the group, the error sentence says so. */
static ith_status group_ended(ith_context *context, ith_comm *comm, ith_status status)
{
    if (!status)
        return ITH_OK;
    return ith_fail(context, status, "%s; the group has ended: its communicators and plans must be made anew",
                    ith_context_error(comm->context));
}

/* Ends the opening of a call. status: the refusal on which all ranks agree, or ITH_OK. The group may fail here because
 * another rank has already returned the refusal and left; the refusal and its sentence are then kept. */
static ith_status end_opening(ith_context *context, ith_comm *comm, ith_status status)
{
    char refusal[ITH_ERROR_BYTES];
    float claim = 0;
    ith_context_copy_sentence(context, refusal);
    const ith_status end = ith_comm_end_call(comm, &claim);
    if (!status)
        return group_ended(context, comm, end);
    return end ? ith_fail(context, status, "%s", refusal) : status;
}

/* ---- Creation -------------------------------------------------------------------------------------------------- */

/* Puts the result of this rank's checks into its record, for the other ranks to return. */
static void put_verdict(call_record *record, ith_context *context, ith_status mine)
{
    record->status = mine;
    if (mine)
        snprintf(record->sentence, sizeof record->sentence, "%s", ith_context_error(context));
}

ith_status ith_open_creation(ith_context *context, ith_comm *comm, ith_status mine, int64_t *number)
{
    float claim = 0;
    *number = 0;
    if (!comm || (mine && ith_comm_size(comm) == 1))
        return mine;
    if (ith_comm_size(comm) == 1) /* the group may have been ended */
        return group_ended(context, comm, ith_comm_end_call(comm, &claim));
    call_record record = {.call = CALL_CREATE, .plan = comm->plans + 1};
    put_verdict(&record, context, mine);
    ith_status status = ith_comm_begin_call(comm, &record, sizeof record);
    if (status)
        return group_ended(context, comm, status);
    status = compare_calls(context, comm);
    if (!status)
        *number = ++comm->plans;
    if (!status)
        status = compare_verdicts(context, comm);
    return end_opening(context, comm, status);
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

/* Puts the tensors of an execution into this rank's record: hashes of the small ones, addresses of the others. */
static void describe_execution(ith_plan *plan, const ith_attn_tensors *tensors, call_record *record)
{
    const ith_attn_problem *p = &plan->setting.problem;
    record->wants_lse = tensors->lse != NULL;
    if (p->has_kv_lengths)
        record->kv_lengths = ith_hash(0, tensors->kv_lengths, p->batch * (int64_t)sizeof *tensors->kv_lengths);
    if (p->has_key_bias)
        record->key_bias = ith_hash(0, tensors->key_bias, p->batch * p->kv_len * (int64_t)sizeof *tensors->key_bias);
    record->mask = tensors->mask;
    record->extents = &plan->extents;
    if (ith_in_place_used(&plan->setting))
        record->shown = ith_executor_record(&plan->executor, tensors);
}

/* Refuses o or lse of this rank if it overlaps a tensor of rank `other`, which runs in the same process. */
static ith_status check_neighbour(const ith_plan *plan, int other)
{
    const ith_comm *comm = plan->setting.comm;
    const ith_extents *theirs = record_of(comm, other)->extents;
    char mine[ITH_RANK_NAME], name[ITH_RANK_NAME];
    for (int written = ITH_TENSOR_O; theirs && written <= ITH_TENSOR_LSE; written++)
        for (int i = 0; i < ITH_EXTENTS; i++)
            if (ith_extents_overlap(&plan->extents.of[written], &theirs->of[i]))
                return ith_fail(plan->setting.context, ITH_ERR_ARGUMENT,
                                "%s of %s overlaps %s of %s in memory: the outputs of a rank have memory of their own",
                                ith_extent_name(written), ith_comm_name_rank(comm, comm->rank, mine),
                                ith_extent_name(i), ith_comm_name_rank(comm, other, name));
    return ITH_OK;
}

/* Refuses outputs that overlap tensors of other ranks. Each rank checks its own outputs, and all ranks agree. */
static ith_status compare_memory(const ith_plan *plan)
{
    ith_comm *comm = plan->setting.comm;
    ith_status status = ITH_OK;
    if (!plan->has_neighbours)
        return ITH_OK;
    const int64_t process = ith_comm_place_of(comm, comm->rank).process;
    for (int rank = 0; rank < comm->size && !status; rank++)
        if (rank != comm->rank && (comm->one_process || ith_comm_place_of(comm, rank).process == process))
            status = check_neighbour(plan, rank);
    return ith_agree(plan->setting.context, comm, status);
}

/* Copies the addresses of all ranks' tensors from the records, which are lost when the call ends. */
static void take_shown(ith_plan *plan)
{
    if (!ith_in_place_used(&plan->setting))
        return;
    for (int rank = 0; rank < plan->setting.comm->size; rank++)
        ith_executor_meet(&plan->executor, rank, &record_of(plan->setting.comm, rank)->shown);
}

/* The hash of a rank's mask. */
typedef struct mask_record {
    uint64_t hash;
    bool stopped; /* the execution was stopped before all of the mask was read, so the hash is of no use */
    bool failed;  /* the device that holds the mask has failed */
} mask_record;

_Static_assert(sizeof(mask_record) <= ITH_COMM_LEAST_PIECE * sizeof(float),
               "comm->gathered has no room for the hashes of all ranks");

/* Hashes a mask, HASHED_AT_A_TIME bytes at a time, and stops soon after a cancellation. */
static mask_record hash_mask(ith_plan *plan, const ith_attn_tensors *tensors, ith_status *status)
{
    const char *mask = tensors->mask;
    const ith_attn_problem *p = &plan->setting.problem;
    int64_t bytes = p->mask_batch * p->mask_heads * p->q_len * p->kv_len;
    bytes *= p->mask == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float);
    mask_record record = {0};
    for (int64_t done = 0; done < bytes && !record.stopped && !*status; done += HASHED_AT_A_TIME) {
        const int64_t here = ith_min64(bytes - done, HASHED_AT_A_TIME);
        const char *piece = mask + done;
        if (plan->setting.device)
            *status = ith_device_sweep_read(&plan->executor.device, tensors->stream, mask + done, here, &piece);
        if (!*status)
            record.hash = ith_hash(record.hash, piece, here);
        record.stopped = ith_halted(&plan->halt);
    }
    return record;
}

/* Fails if ranks have different masks. Masks are large, so they are hashed only if ranks have different pointers or do
 * not share memory. */
static ith_status compare_masks(ith_plan *plan, const ith_attn_tensors *tensors)
{
    ith_comm *comm = plan->setting.comm;
    char name[ITH_RANK_NAME];
    bool same = ith_comm_shares_memory(comm);
    for (int rank = 1; rank < comm->size; rank++)
        same &= record_of(comm, rank)->mask == record_of(comm, 0)->mask;
    if (plan->setting.problem.mask == ITH_MASK_NONE || same)
        return ITH_OK;
    ith_status read = ITH_OK;
    mask_record mine = hash_mask(plan, tensors, &read), *all = comm->gathered;
    mine.failed = read != ITH_OK;
    ith_status status = ith_comm_allgather(comm, &mine, sizeof mine, all);
    for (int rank = 0; !status && rank < comm->size; rank++)
        if (all[rank].failed)
            return read ? read
                        : ith_fail(plan->setting.context, ITH_ERR_INTERNAL,
                                   "%s could not read its mask from its device", ith_comm_name_rank(comm, rank, name));
    for (int rank = 0; !status && rank < comm->size; rank++)
        if (all[rank].stopped)
            return ITH_OK; /* a rank has stopped the execution, so the masks do not matter */
    for (int rank = 1; !status && rank < comm->size; rank++)
        if (all[rank].hash != all[0].hash)
            return differ(plan->setting.context, comm, "mask", rank);
    return group_ended(plan->setting.context, comm, status);
}

/* Compares the records of all ranks, which are in the same execution. */
static ith_status compare_records(ith_plan *plan, const ith_attn_tensors *tensors)
{
    ith_context *context = plan->setting.context;
    const ith_comm *comm = plan->setting.comm;
    ith_status status = compare_verdicts(context, comm);
    if (!status)
        status = compare_tensors(context, comm);
    if (!status)
        status = compare_memory(plan);
    if (status)
        return status;
    take_shown(plan);
    return compare_masks(plan, tensors);
}

/* Opens an execution among several ranks: shows this rank's record and compares the records of all ranks. */
static ith_status meet(ith_plan *plan, const ith_attn_tensors *tensors, ith_status mine)
{
    ith_context *context = plan->setting.context;
    ith_comm *comm = plan->setting.comm;
    call_record record = {.call = CALL_EXECUTE, .plan = plan->number, .execution = plan->begun + 1};
    put_verdict(&record, context, mine);
    if (!mine)
        describe_execution(plan, tensors, &record);
    ith_status status = ith_comm_begin_call(comm, &record, sizeof record);
    if (status)
        return group_ended(context, comm, status);
    status = compare_calls(context, comm);
    if (!status) {
        plan->begun++;
        comm->executions++;
        ith_halt_begin(&plan->halt, comm->executions);
        status = compare_records(plan, tensors);
    }
    if (status) {
        ith_halt_end(&plan->halt);
        return end_opening(context, comm, status);
    }
    if (!ith_in_place_used(&plan->setting))
        ith_comm_unshare(comm); /* so that a rank that gets stuck does not hold the others after the group has ended */
    return ITH_OK;
}

/* If the plan was cancelled before the execution, the execution fails here, and the next one is not affected. */
ith_status ith_open_execution(ith_plan *plan, const ith_attn_tensors *tensors, ith_status mine)
{
    if (!mine && (atomic_load(&plan->halt.cancelled) || ith_context_interrupted(plan->setting.context)))
        mine = ith_fail(plan->setting.context, ITH_ERR_INTERRUPTED, "cancelled");
    ith_status status = mine;
    if (ith_comm_size(plan->setting.comm) > 1)
        status = meet(plan, tensors, mine);
    else if (!status)
        ith_halt_begin(&plan->halt, plan->setting.comm ? ++plan->setting.comm->executions : 1);
    if (status == ITH_ERR_INTERRUPTED)
        atomic_store(&plan->halt.cancelled, false);
    return status;
}

/* The rank that a claim of ith_close_execution names. A broken transport may deliver any number. */
static int claimed_rank(float claim, int ranks)
{
    return (int)fminf(fmaxf((float)ranks - claim, 0), (float)(ranks - 1));
}

ith_status ith_close_execution(ith_plan *plan, ith_status mine)
{
    char name[ITH_RANK_NAME];
    ith_context *context = plan->setting.context;
    ith_comm *comm = plan->setting.comm;
    int ranks = ith_comm_size(comm);
    /* A cancelled rank gives the number ranks - rank. The maximum over all ranks then gives the lowest cancelled
     * rank. */
    float claim = atomic_load(&plan->halt.stopped) ? (float)(ranks - atomic_load(&plan->halt.rank)) : 0.0f;
    ith_status status = mine;
    if (mine && ranks > 1) { /* a failure of this rank alone, such as its device's, ends the group with its sentence */
        if (comm->context != context)
            ith_fail(comm->context, mine, "%s", ith_context_error(context));
        ith_comm_abort(comm, mine);
    }
    if (ranks > 1 || (comm && !mine)) { /* a group of one rank stays usable after its failure */
        status = ith_comm_end_call(comm, &claim);
        status = group_ended(context, comm, mine ? mine : status);
    }
    ith_halt_end(&plan->halt);
    if (status || claim == 0.0f)
        return status;
    atomic_store(&plan->halt.cancelled, false);
    if (ranks == 1)
        return ith_fail(context, ITH_ERR_INTERRUPTED, "cancelled");
    return ith_fail(context, ITH_ERR_INTERRUPTED, "%s: cancelled",
                    ith_comm_name_rank(comm, claimed_rank(claim, ranks), name));
}
