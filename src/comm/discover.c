/* SPDX-License-Identifier: Apache-2.0 */
/* discover.c: implements the communicator "auto". It chooses a back-end from the environment variables of the launcher.
 * Variables that could mean something else are not used. */
#include "comm.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool zoff_comm_discover_mpi(void)
{
    /* These two functions have the same signature in every MPI. */
    static const char *const NAMES[] = {"MPI_Initialized", "MPI_Finalized"};
    int flags[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        int (*ask)(int *) = NULL;
        void *found = dlsym(RTLD_DEFAULT, NAMES[i]);
        memcpy(&ask, &found, sizeof ask); /* ISO C forbids casting void * to a function pointer */
        if (ask)
            ask(&flags[i]);
    }
    return flags[0] && !flags[1];
}

static bool differ(const char *a, const char *b)
{
    return a && b && strcmp(a, b) != 0;
}

static zoff_status contradict(const char *a_name, const char *a, const char *b_name, const char *b)
{
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "communicator \"auto\": the environment contradicts itself: %s=%s and %s=%s. Unset the variables of the wrong "
        "launcher, or choose the communicator \"self\" or \"mpi\" instead of \"auto\"",
        a_name, a, b_name, b);
}

/* Variables of several launchers may be set: scripts often set torchrun's beside those of an MPI launcher. All must give the
 * same rank and size. Those of an outer launcher are not compared. */
static zoff_status find_contradiction(void)
{
    for (int i = 0; i < ZOFF_ENV_WORLD_COUNT; i++) {
        for (int k = i + 1; k < ZOFF_ENV_WORLD_COUNT; k++) {
            zoff_env_place a, b;
            if (zoff_comm_world_is_outer((zoff_env_world)i) || zoff_comm_world_is_outer((zoff_env_world)k) ||
                !zoff_base_env_world((zoff_env_world)i, &a) || !zoff_base_env_world((zoff_env_world)k, &b))
                continue;
            if (differ(a.size, b.size))
                return contradict(a.size_name, a.size, b.size_name, b.size);
            if (differ(a.rank, b.rank))
                return contradict(a.rank_name, a.rank, b.rank_name, b.rank);
        }
    }
    return ZOFF_OK;
}

/* Ranks that know their numbers and where to meet: NCCL where it has a device, and otherwise UCX. */
static zoff_status of_torchrun(const zoff_env_place *place, const char **out)
{
    char words[160], about[160], no_nccl[512];
    *out = "nccl";
    if (zoff_comm_nccl_probe(about, sizeof about) == ZOFF_OK)
        return ZOFF_OK;
    snprintf(no_nccl, sizeof no_nccl, "%s", zoff_last_error());
    *out = "ucx";
    const zoff_status status = zoff_comm_ucx_find();
    if (status == ZOFF_OK) {
        ZOFF_INFO("UCX joins the ranks, because NCCL cannot be used: %s", no_nccl);
        return ZOFF_OK;
    }
    return zoff_base_status_prefix(
        status,
        "communicator \"auto\": %s and LOCAL_RANK are set as by torchrun. Only NCCL, with a GPU, and UCX can join such ranks, "
        "and neither can be used. Install one, or start the program with mpirun or srun --mpi=pmix, or choose \"self\" for "
        "independent ranks. NCCL: %s. UCX: ",
        zoff_comm_world_print(place, words, sizeof words), no_nccl);
}

zoff_status zoff_comm_discover(bool mpi_is_up, const char **out)
{
    static const zoff_env_world MPIS[] = {ZOFF_ENV_WORLD_OPEN_MPI, ZOFF_ENV_WORLD_MVAPICH, ZOFF_ENV_WORLD_PMI,
                                          ZOFF_ENV_WORLD_PMIX,     ZOFF_ENV_WORLD_JSM,     ZOFF_ENV_WORLD_FLUX,
                                          ZOFF_ENV_WORLD_PALS};
    zoff_env_place place, inner;
    char words[160];
    *out = "mpi";
    if (mpi_is_up)
        return ZOFF_OK;
    ZOFF_TRY(find_contradiction());
    (void)zoff_base_env_world(ZOFF_ENV_WORLD_TORCHRUN, &inner);
    for (size_t i = 0; i < sizeof MPIS / sizeof MPIS[0]; i++) {
        /* An outer launcher with other numbers has started torchrun. */
        if (zoff_base_env_world(MPIS[i], &place) && !differ(place.size, inner.size) && !differ(place.rank, inner.rank))
            return ZOFF_OK;
    }
    *out = "self";
    const zoff_env_world several = zoff_comm_world_several(&place);
    if (several == ZOFF_ENV_WORLD_COUNT)
        return ZOFF_OK;
    if (several == ZOFF_ENV_WORLD_TORCHRUN)
        return of_torchrun(&place, out);
    zoff_comm_world_print(&place, words, sizeof words);
    ZOFF_FAIL_IF(
        several == ZOFF_ENV_WORLD_SLURM, ZOFF_ERR_UNSUPPORTED,
        "communicator \"auto\": srun has started several ranks (%s), but they cannot find each other: neither PMIX_RANK "
        "nor PMI_RANK is set. Use srun --mpi=pmix (srun --mpi=list shows the choices) or mpirun, or set MASTER_ADDR and "
        "MASTER_PORT and choose \"ucx\", or choose \"self\" for independent ranks",
        words);
    return zoff_base_status_fail(
        ZOFF_ERR_UNSUPPORTED,
        "communicator \"auto\": %s says that there are several ranks, but LOCAL_RANK is not set, so the numbers may count "
        "hosts. "
        "Set LOCAL_RANK to the number of the rank on its host (0 where each host has one), choose \"nccl\", or start the ranks "
        "with torchrun or mpirun. For ranks that are independent on purpose choose \"self\"",
        words);
}
