/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of an expert whose matrices the hosts of a run share out. Of H hosts, host h reads part h of the bytes of
 * every layer from its mapped files. The parts of a layer travel to all hosts before the layer is computed:
 *
 *     while layer l is computed from one slot:  the parts of layer l + 1 arrive in the other slot
 *
 * So a host reads 1/H of the files, and holds two layers in memory. The results have the same bits as a run in which
 * every host reads all files. If some hosts have no files, the others keep all parts.
 *
 * All processes of a host use the same slots: in shared memory if there are several. The loads of layers are numbered:
 * load n holds layer n % layers, in slot n % 2. Each rank computes the layers of load 0, 1, 2 and so on: use n of a
 * rank reads load n. One rank of the host, the loader, makes the loads. It overwrites a slot when all ranks of the host
 * have ended their use of it.
 *
 * All matrices of the linear layers in the transformer blocks are shared out, except the matrices that make the
 * prompts' keys and values: they are used once, from the files. */
#ifndef ITH_WAN_DIT_SHARDS_H
#define ITH_WAN_DIT_SHARDS_H

#include "dit.h"

/* The ranks that share out an expert, as the leader of one process sees them. */
typedef struct ith_shard_ranks {
    ith_comm *loaders;    /* the loaders of all hosts; NULL: this process has none of them */
    ith_comm *neighbours; /* the leaders of the processes of this host; the first one is its loader */
    int users;            /* the number of all ranks of the run that are on this host */
    bool has_files;       /* this process can read the expert's files */
} ith_shard_ranks;

/* Collective over the leaders of all processes: takes the memory of the slots, and makes each layer of `dit` read from
 * the slot of its load. Until the last load is complete or the group has failed, only this module uses ranks->loaders.
 * loads: the number of layers that each rank will compute in all, the same in all processes. On failure, which may
 * differ between processes, *out is NULL and the expert stays as it was. */
ith_status ith_dit_shards_create(ith_context *context, ith_dit *dit, const ith_shard_ranks *ranks, int64_t loads,
                                 ith_dit_shards **out);
/* Frees the slots, after which no rank of this process may compute with the expert. If a load is under way, the loader
 * must have ended the group before (ith_comm_abort), so that the transport no longer writes to the slots. Accepts
 * NULL. */
void ith_dit_shards_free(ith_context *context, ith_dit_shards **shards);
/* The place of a process in a run, by which its memory is predicted. */
typedef struct ith_shard_place {
    int hosts;      /* number of hosts of the run */
    int processes;  /* number of processes on this host */
    bool is_loader; /* the leader of this process is the loader, whose context counts the slots */
} ith_shard_place;
/* Sets *bytes to the memory that ith_dit_shards_create takes for the expert. The bytes depend on the types of the
 * weights, so this function opens the expert from `store`, which it closes. */
ith_status ith_dit_shards_bytes(ith_context *context, const ith_dit_config *config, ith_store *store,
                                ith_number_types types, const ith_shard_place *place, int64_t *bytes);
/* As ith_dit_shards_bytes, for an expert without files, whose weights are bf16. */
ith_status ith_dit_shards_estimate(ith_context *context, const ith_dit_config *config, ith_number_types types,
                                   const ith_shard_place *place, int64_t *bytes);

/* Begins use number `use` of a rank: waits until load `use` is complete. leads: this rank is the leader of its process;
 * the loader makes loads meanwhile. comm: the rank's communicator, whose failure ends the wait; NULL: the rank is
 * alone. Returns ITH_ERR_INTERRUPTED, ITH_ERR_ABORTED if the group has failed, or the failure of a load. */
ith_status ith_dit_shards_begin(ith_dit_shards *shards, ith_context *context, ith_comm *comm, bool leads, int64_t use);
/* Ends use number `use` of a rank: it has computed the layer, or has failed. */
void ith_dit_shards_end(ith_dit_shards *shards, int64_t use);
/* Moves the data of the load that is under way, and begins the next load as soon as its slot is free. The leader calls
 * it every few milliseconds while it computes; it does nothing where the process has no loader. A failure is returned
 * by the next ith_dit_shards_begin. */
void ith_dit_shards_progress(ith_dit_shards *shards);

#endif
