/* SPDX-License-Identifier: Apache-2.0 */
/* Reads scheduler/scheduler_config.json: the class of the scheduler, and the fields that change the latents. */
#ifndef ITH_WAN_SCHEDULER_H
#define ITH_WAN_SCHEDULER_H

#include <ithaca/wan.h>

/* The names of the classes in diffusers. */
#define ITH_UNIPC_CLASS "UniPCMultistepScheduler"
#define ITH_EULER_CLASS "FlowMatchEulerDiscreteScheduler"
#define ITH_DPMPP_CLASS "DPMSolverMultistepScheduler"

/* The limits of a shift, in a file and in the options of a run. */
#define ITH_SHIFT_LEAST 1e-3
#define ITH_SHIFT_MOST 1e3

#define ITH_SCHEDULER_MOST_ORDER 3
#define ITH_SCHEDULER_MOST_UNCORRECTED 64

/* The fields of UniPCMultistepScheduler. */
typedef struct ith_unipc_fields {
    int64_t order;      /* solver_order, 1 to ITH_SCHEDULER_MOST_ORDER */
    bool stops_at_last; /* final_sigmas_type is "sigma_min": the list ends with its lowest sigma twice, not with 0 */
    /* disable_corrector: the numbers of the steps whose result the corrector does not change. */
    int64_t uncorrected[ITH_SCHEDULER_MOST_UNCORRECTED], uncorrected_count;
} ith_unipc_fields;

/* The fields of DPMSolverMultistepScheduler. */
typedef struct ith_dpmpp_fields {
    int64_t order; /* solver_order, 1 to ITH_SCHEDULER_MOST_ORDER */
    bool heun;     /* solver_type: Heun's method instead of the midpoint's, in steps of order 2 */
    bool lower_order_final, euler_at_final;
    double last_sigma; /* of the list of sigmas: 0, unless final_sigmas_type is "sigma_min" */
} ith_dpmpp_fields;

/* The fields of the solvers that the scheduler's class does not use have the defaults of the published code. */
typedef struct ith_scheduler {
    ith_solver solver;     /* its class */
    double shift;          /* flow_shift of UniPC and DPM-Solver++, shift of Euler */
    int64_t train_steps;   /* num_train_timesteps; a time step is sigma * train_steps */
    double shift_terminal; /* if not 0, all sigmas are stretched until the last one above 0 has this value */
    ith_unipc_fields unipc;
    ith_dpmpp_fields dpmpp;
} ith_scheduler;

/* The name of the class in diffusers. */
const char *ith_scheduler_class(ith_solver solver);
/* The solver of the class with this name; ITH_SOLVER_AUTO: there is none. */
ith_solver ith_scheduler_of_class(const char *name);

/* The scheduler of the official models: UniPC of order 2, shift 1, 1000 training steps. */
ith_scheduler ith_scheduler_default(void);
/* Reads folder/scheduler_config.json. If a value is not supported, returns ITH_ERR_UNSUPPORTED with an error message
 * that names the field and its value. */
ith_status ith_scheduler_read(ith_context *context, const char *folder, ith_scheduler *out);

#endif
