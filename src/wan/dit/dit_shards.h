/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of an expert whose matrices the processes of a run share out. Process p of P keeps part p of the bytes of
 * every layer, in the pages of its mapped files that it reads. A layer's parts travel to all processes before it is
 * computed:
 *
 *     while layer l is computed from one slot:  the parts of layer l + 1 arrive in the other slot
 *
 * So a process reads 1/P of the files, and holds two layers in memory. The results have the same bits as without.
 *
 * The loads of layers are numbered: load n holds layer n % layers, in slot n % 2. All ranks of a process use the same
 * slots. Each rank uses load n in its n-th call of ith_dit_shards_begin. The leader of the process makes the loads. A
 * slot is overwritten when all ranks have ended their use of it.
 *
 * Covered are the matrices that a forward pass multiplies by in the layers. Keys and values of prompts are made once,
 * from the files. */
#ifndef ITH_WAN_DIT_SHARDS_H
#define ITH_WAN_DIT_SHARDS_H

#include "dit.h"

/* Takes the memory of the slots and lets the layers of `dit` read from them. leaders: the communicator of one rank of
 * each process; from now on this module alone uses it, and it must outlive the shards. ranks: the number of all ranks of
 * the run. users: the number of ranks of this process. loads: the number of layers that each rank will compute in all,
 * the same in all processes. On failure *out is NULL and the expert stays as it was. */
ith_status ith_dit_shards_create(ith_context *context, ith_dit *dit, ith_comm *leaders, int ranks, int users,
                                 int64_t loads, ith_dit_shards **out);
/* Frees the slots. The expert must not be used afterwards. Accepts NULL. */
void ith_dit_shards_free(ith_context *context, ith_dit_shards **shards);
/* Sets *bytes to the memory that ith_dit_shards_create allocates for the expert in `folder`. It depends on the types of
 * the weights, so this function opens the expert. */
ith_status ith_dit_shards_bytes(ith_context *context, const char *folder, ith_number_types types, int ranks,
                                int64_t *bytes);

/* Waits until the matrices of this rank's next layer are there. The leader of the process makes loads here. comm: the
 * rank's communicator, in which a failure of another rank shows; NULL is accepted. Returns ITH_ERR_INTERRUPTED or the
 * failure of a load. */
ith_status ith_dit_shards_begin(ith_dit_shards *shards, ith_context *context, const ith_comm *comm, bool leads,
                                int64_t use);
/* Says that this rank has computed the layer of its use number `use`. */
void ith_dit_shards_end(ith_dit_shards *shards, int64_t use);
/* Moves the data of the load that is under way, and begins the next load as soon as its slot is free. The leader calls
 * it every few milliseconds while it computes. A failure is returned by the next ith_dit_shards_begin. */
void ith_dit_shards_progress(ith_dit_shards *shards);

#endif
