/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises launchers by the environment variables that they set for each process:
 *
 *   Open MPI's mpirun (and prterun)      OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK
 *   MPICH's mpiexec (hydra), srun pmi2   PMI_SIZE, PMI_RANK
 *   srun --mpi=pmix                      PMIX_RANK; Slurm sets SLURM_STEP_NUM_TASKS
 *   srun without MPI                     SLURM_STEP_NUM_TASKS, SLURM_PROCID
 *
 * SLURM_NTASKS tells nothing, since batch scripts have it too. */
#include "launcher_kind.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* The first row whose variable of the process is set counts: mpirun also sets PMIX_RANK, and under srun it also sees
 * Slurm's variables. */
static const ith_launcher_kind kinds[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"openmpi"}},
    {"a launcher with PMI", "PMI_SIZE", "PMI_RANK", {"mpich"}},
    {"a launcher with PMIx", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", {"openmpi", "mpich"}},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", {NULL}},
};
/* Processes of other transports are numbered by whoever starts them. */
static const ith_launcher_kind by_hand = {"ITHACA_PROCESS", "ITHACA_PROCESSES", "ITHACA_PROCESS", {NULL}};

int ith_launcher_number(const char *variable, int other)
{
    const char *text = getenv(variable);
    char *end = NULL;
    errno = 0;
    long number = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && !errno && number >= 0 && number <= 1 << 20 ? (int)number : other;
}

const ith_launcher_kind *ith_launcher_recognise(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ith_launcher_number(kinds[i].process, -1) >= 0)
            return &kinds[i];
    return NULL;
}

const ith_launcher_kind *ith_launcher_recognise_any(void)
{
    return ith_launcher_number(by_hand.process, -1) >= 0 ? &by_hand : ith_launcher_recognise();
}

int ith_launcher_processes(const ith_launcher_kind *kind)
{
    /* A batch script has SLURM_PROCID alone: it is one process. */
    return ith_launcher_number(kind->size, kind->modules[0] ? 0 : 1);
}

bool ith_launcher_has_several(void)
{
    const ith_launcher_kind *kind = ith_launcher_recognise_any();
    return kind && ith_launcher_processes(kind) != 1;
}

int ith_launcher_process(void)
{
    const ith_launcher_kind *kind = ith_launcher_recognise_any();
    return kind ? ith_launcher_number(kind->process, 0) : 0;
}

void ith_launcher_let_first_print(void)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    if (ith_launcher_process())
        nanosleep(&pause, NULL);
}
