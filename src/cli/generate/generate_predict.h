/* SPDX-License-Identifier: Apache-2.0 */
/* The predicted time of a run of ithaca generate. */
#ifndef ITH_CLI_GENERATE_PREDICT_H
#define ITH_CLI_GENERATE_PREDICT_H

#include "generate.h"

/* The rates of this machine with which a run is predicted. Zeros: none yet. */
typedef struct ith_generate_rates {
    int64_t frames, height, width, images; /* the sizes of the run that they were found for */
    bool denoises;                         /* whether that run had a step to compute */
    char source[160];                      /* their origin, in words; "": there are none */
    ith_machine machine;                   /* the rates; its lists are lists of the members below */
    ith_machine kept;                      /* the description that ithaca tune keeps, if there is one */
    ith_machine *measured;                 /* the whole machine, if it was measured */
    ith_machine_level level;               /* ranks of one process, if no other description has levels */
    ith_machine_attention *attention;
    ith_machine_product products[ITH_VIDEO_RATES];
} ith_generate_rates;

/* Predicts the time of the run with rates of this machine: the rates that `ithaca tune` keeps if they have the sizes of
 * the model, otherwise rates that are measured now. A dry run measures for about a second, any other run for a fiftieth
 * of its predicted time, but at least 0.1 and at most 1 second. A run that cannot be predicted goes on, and so does one
 * whose weight files will be refused: for it nothing is measured. A run over several processes is predicted if the kept
 * description has the links between them. */
void ith_generate_predict(ith_generation *generation);
/* The same for one of several runs with one model, machine and command line. rates: from an earlier run, and used if
 * its video has the same size; otherwise they are replaced. */
void ith_generate_predict_next(ith_generation *generation, ith_generate_rates *rates);
/* Frees the memory of the rates. Afterwards there are none. */
void ith_generate_rates_clear(ith_generate_rates *rates);
/* Collective, in a dry run of several processes: measures the links between them, and predicts the run on rank 0. */
ith_status ith_generate_predict_links(ith_generation *generation, ith_context *context, ith_comm *comm);

#endif
