/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of a video: seconds and operations of lists of work on a machine. */
#ifndef ITH_WAN_VIDEO_PRICE_H
#define ITH_WAN_VIDEO_PRICE_H

#include "../../cost/machine.h"
#include "../part/work.h"
#include "video_model.h"

/* The machine of a prediction, and the place of the ranks on it. */
typedef struct ith_video_place {
    ith_context *context;
    const ith_machine *machine; /* the caller's */
    ith_machine_view view;
    int64_t ranks, process_ranks, processes; /* all ranks, ranks of a process, all processes */
    int64_t host_processes, hosts;           /* processes of a host; hosts */
    int64_t threads;                         /* threads of a process */
    /* Compute units at full speed: of a rank, and of a process in which one rank computes with all threads. There are
     * fewer of them than threads if the host has fewer units than its ranks have threads. */
    double rank_units, process_units;
    int64_t rank_threads;
    double crowding; /* threads of the ranks of a host, divided by its units; at least 1 */
} ith_video_place;

/* Finds the place of `ranks` ranks. options: where the ranks run; must have been read. threads: of a process; 0: its
 * ranks' share of the units of the host. */
ith_status ith_video_place_find(ith_context *context, const ith_machine *machine, int ranks,
                                const ith_attn_options *options, int64_t threads, ith_video_place *out);

/* The units at full speed that `threads` threads of a host have, if no others compute. */
double ith_video_units(const ith_machine *machine, int64_t threads);

/* The row of the machine that is nearest to a product by kind, type and sizes. If the machine has no rate of products,
 * its gflops are 0. */
ith_machine_product ith_video_product(const ith_machine_view *view, ith_machine_work work, ith_dtype type, int64_t rows,
                                      int64_t features);

/* The seconds of a list of work, by kind. */
typedef struct ith_video_seconds {
    const ith_video_place *place;
    double units;    /* units that compute */
    ith_dtype type;  /* the type to which the operands of products are rounded */
    int ranks;       /* number of ranks that share the attentions in the list */
    int threads;     /* threads of each of these ranks */
    bool skips_self; /* leaves out the stage "self attention", which is priced by its plan */
    ith_status status;
    double linear, conv, attention, row; /* seconds */
    double operations;                   /* of linear layers and convolutions */
    double attention_operations;         /* of all ranks together */
} ith_video_seconds;
/* Prices one item of a list (ith_work_list.take). user: an ith_video_seconds. */
void ith_video_add_work(void *user, const ith_work *work);
/* The sum of the seconds by kind. */
double ith_video_seconds_all(const ith_video_seconds *seconds);

/* The seconds in which a rank sends `bytes` to a rank at this distance, and receives as many. */
double ith_video_send_seconds(const ith_video_place *place, int64_t distance, double bytes);

#endif
