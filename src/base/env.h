/* SPDX-License-Identifier: Apache-2.0 */
/* env.h: the tables of environment variables: our own, and other programs' that we read. Only env.c calls getenv. */
#ifndef ZOFF_BASE_ENV_H
#define ZOFF_BASE_ENV_H

#include <stdbool.h>

/* clang-format off */
#define ZOFF_ENV_LIST(E) /* id         variable          default   help */                                              \
    E(LOG_LEVEL,  "ZOFF_LOG_LEVEL", "warn",   "how much is logged: error, warn, info, debug, trace; open, a sink of the program gets info, too") \
    E(ISA,        "ZOFF_ISA",       "auto",   "kernels to use: auto, scalar, avx2, avx512, neon, sve")                  \
    E(AIO,        "ZOFF_AIO",       "auto",   "I/O back-end where the configuration leaves it open: auto, io_uring, threads, posix") \
    E(PLUGINS,    "ZOFF_PLUGIN_PATH", "none", "folders of plug-ins after the folder zoff beside libzoff, separated by colons; none")  \
    E(TRACE,      "ZOFF_TRACE",     "none",   "file for a trace of steps, FILE or FILE:FIRST-LAST; none") \
    E(METRICS,    "ZOFF_METRICS",   "none",   "file for the numbers of steps, FILE.prom (Prometheus) or FILE.csv; none")
/* clang-format on */

typedef enum zoff_env {
#define E(id, variable, fallback, help) ZOFF_ENV_##id,
    ZOFF_ENV_LIST(E)
#undef E
        ZOFF_ENV_COUNT
} zoff_env;

/* The value in the environment; NULL if it is not set or empty. */
const char *zoff_base_env_get(zoff_env id);

/* Name of the variable, for messages. */
const char *zoff_base_env_name(zoff_env id);

/* The variables by which launchers tell a rank how many ranks this host has, and which of them it is. The first line with valid
 * values wins. Inner launchers come first: under srun, torchrun knows all ranks and srun sees one. The size may be the first
 * number of a Slurm list, "4(x2),3". Slurm's NTASKS_PER_NODE counts only inside a step: a batch script has it, too, and runs
 * alone. */
/* clang-format off */
#define ZOFF_ENV_LAUNCHER_LIST(E) /* launcher   ranks on this host            which of them this is          only where set */ \
    E("torchrun",   "LOCAL_WORLD_SIZE",           "LOCAL_RANK",                 NULL)                                       \
    E("DeepSpeed",  "LOCAL_SIZE",                 "LOCAL_RANK",                 NULL)                                       \
    E("Open MPI",   "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", NULL)                                       \
    E("MVAPICH",    "MV2_COMM_WORLD_LOCAL_SIZE",  "MV2_COMM_WORLD_LOCAL_RANK",  NULL)                                       \
    E("MPICH",      "MPI_LOCALNRANKS",            "MPI_LOCALRANKID",            NULL)                                       \
    E("PMI",        "PMI_LOCAL_SIZE",             "PMI_LOCAL_RANK",             NULL)                                       \
    E("Slurm step", "SLURM_STEP_TASKS_PER_NODE",  "SLURM_LOCALID",              "SLURM_STEP_ID")                            \
    E("Slurm",      "SLURM_NTASKS_PER_NODE",      "SLURM_LOCALID",              "SLURM_STEP_ID")
/* clang-format on */

typedef struct zoff_env_ranks {
    unsigned count;       /* ranks on this host, at least 1 */
    unsigned index;       /* below count */
    const char *launcher; /* the launcher that set them; NULL: none */
} zoff_env_ranks;

/* Ranks of this program on this host. */
void zoff_base_env_ranks(zoff_env_ranks *out);

/* The variables by which launchers tell a process its rank and the number of ranks; inner launchers come first. Slurm's
 * variables count only inside a step, as above. Its number of tasks must be that of the step, because the shell of salloc is a
 * step of one task, in which SLURM_NTASKS counts the tasks of the job. Without LOCAL_RANK, RANK and WORLD_SIZE may count hosts.
 * PALS may leave out the size. */
/* clang-format off */
#define ZOFF_ENV_WORLD_LIST(E) /* id  launcher    rank                     ranks                   only where set */    \
    E(TORCHRUN, "torchrun", "RANK",                 "WORLD_SIZE",           "LOCAL_RANK")                               \
    E(OPEN_MPI, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL)                                       \
    E(MVAPICH,  "MVAPICH",  "MV2_COMM_WORLD_RANK",  "MV2_COMM_WORLD_SIZE",  NULL)                                       \
    E(PMI,      "PMI",      "PMI_RANK",             "PMI_SIZE",             NULL)                                       \
    E(PMIX,     "PMIx",     "PMIX_RANK",            "PMIX_SIZE",            NULL)                                       \
    E(JSM,      "jsrun",    "JSM_NAMESPACE_RANK",   "JSM_NAMESPACE_SIZE",   NULL)                                       \
    E(FLUX,     "Flux",     "FLUX_TASK_RANK",       "FLUX_JOB_SIZE",        NULL)                                       \
    E(PALS,     "PALS",     "PALS_RANKID",          "PALS_SIZE",            NULL)                                       \
    E(SLURM,    "Slurm",    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID")                            \
    E(JOB,      "the job",  "RANK",                 "WORLD_SIZE",           NULL)
/* clang-format on */

typedef enum zoff_env_world {
#define E(id, launcher, rank, ranks, only_with) ZOFF_ENV_WORLD_##id,
    ZOFF_ENV_WORLD_LIST(E)
#undef E
        ZOFF_ENV_WORLD_COUNT
} zoff_env_world;

/* The variables of one launcher. Texts come from the environment; NULL if not set or empty. */
typedef struct zoff_env_place {
    const char *launcher, *rank_name, *size_name; /* static */
    const char *rank, *size;
} zoff_env_place;

/* @return whether any of the variables is set */
bool zoff_base_env_world(zoff_env_world id, zoff_env_place *out);

/* The place where ranks meet that know only their numbers. Texts come from the environment; NULL if not set or empty. */
typedef struct zoff_env_meeting {
    const char *address, *port; /* MASTER_ADDR, MASTER_PORT */
    bool is_taken;              /* torchrun's agent listens there already */
    const char *nccl_comm_id;   /* NCCL_COMM_ID, "host:port" */
    const char *local_rank;     /* LOCAL_RANK: which of this host's devices is meant */
} zoff_env_meeting;
void zoff_base_env_meeting(zoff_env_meeting *out);

/* The first number of OMP_NUM_THREADS; 0 if it is not set or no number. */
unsigned zoff_base_env_omp_threads(void);

#endif
