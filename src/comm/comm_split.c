/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a group into sub-groups. */
#include "comm_life.h"

#define MOST_GROUPS ((int64_t)1 << 60) /* more sub-groups than a run can make */

/* The data that each rank shows the others when a group is split. */
typedef struct wish {
    int colour, key; /* ranks of one colour form a sub-group, sorted by key */
    int64_t groups;  /* this rank's ith_comm.groups, the largest number of a sub-group so far */
} wish;

/* Lists the ranks that have this rank's colour, sorted by key and then by rank. Writes their world ranks to members and
 * the position of this rank to *place, and returns their number. */
static int list_members(const ith_comm *comm, const wish *wishes, int *members, int *place)
{
    int size = 0;
    for (int i = 0; i < comm->size; i++) {
        if (wishes[i].colour != wishes[comm->rank].colour)
            continue;
        int at = 0;
        for (int j = 0; j < comm->size; j++)
            at += wishes[j].colour == wishes[i].colour &&
                  (wishes[j].key < wishes[i].key || (wishes[j].key == wishes[i].key && j < i));
        members[at] = ith_comm_world_rank(comm, i);
        *place = i == comm->rank ? at : *place;
        size++;
    }
    return size;
}

int64_t ith_comm_split_bytes(int parent)
{
    return parent * (int64_t)(sizeof(wish) + sizeof(int)) + 2 * (int64_t)ITH_ALLOC_HEADER;
}

/* All sub-groups made by one split get the same number: one more than the largest number that any rank of `comm` has
 * used. So two groups with a rank in common never have the same number. Fails if a transport has brought a number that
 * no rank reaches. */
static ith_status number_group(ith_comm *comm, const wish *wishes)
{
    ith_comm *whole = ith_comm_whole(comm);
    char name[ITH_RANK_NAME];
    for (int i = 0; i < comm->size; i++) {
        if (wishes[i].groups < 0 || wishes[i].groups > MOST_GROUPS)
            return ith_fail(comm->context, ITH_ERR_INTERNAL,
                            "the transport %s has changed the data of a split on the way from %s", comm->transport.name,
                            ith_comm_name_rank(comm, i, name));
        whole->groups = wishes[i].groups > whole->groups ? wishes[i].groups : whole->groups;
    }
    whole->groups++;
    return ITH_OK;
}

static ith_status split(ith_comm *comm, int colour, int key, ith_comm **out)
{
    ith_comm *whole = ith_comm_whole(comm);
    const wish mine = {colour, key, whole->groups};
    wish *wishes = ith_alloc(comm->context, comm->size, sizeof *wishes, "the split of a group");
    int *members = ith_alloc(comm->context, comm->size, sizeof *members, "the split of a group");
    int place = 0;
    ith_status status = ith_comm_agree(comm, wishes && members ? ITH_OK : ITH_ERR_MEMORY);
    if (!status)
        status = ith_comm_allgather(comm, &mine, sizeof mine, wishes);
    if (!status) {
        const int size = list_members(comm, wishes, members, &place);
        status = number_group(comm, wishes);
        if (!status)
            status = ith_comm_make_part(comm, whole->groups, members, size, place, out);
        status = ith_comm_agree(comm, status);
    }
    if (status)
        ith_comm_destroy(out);
    ith_free(comm->context, members);
    ith_free(comm->context, wishes);
    return status;
}

ith_status ith_comm_split(ith_comm *comm, int colour, int key, ith_comm **out)
{
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = ITH_OK;
    if (out)
        *out = NULL;
    if (!out)
        status = ith_comm_refuse(comm, "a split", "out is NULL");
    else if (comm)
        status = split(comm, colour, key, out);
    return ith_comm_exit_operation(comm, entered, status);
}
