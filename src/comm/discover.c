/* discover.c: implements the communicator "auto". It chooses a back-end from the environment variables of the launcher.
 * Variables that could mean something else are not used. */
#include "comm.h"

#include "env.h"
#include "try.h"

#include <dlfcn.h>
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
 * same rank and size. Slurm's are not compared: Slurm may have started one launcher on each host, and then it counts hosts. */
static zoff_status find_contradiction(void)
{
    for (int i = 0; i < ZOFF_ENV_WORLD_COUNT; i++) {
        for (int k = i + 1; k < ZOFF_ENV_WORLD_COUNT; k++) {
            zoff_env_place a, b;
            if (i == ZOFF_ENV_WORLD_SLURM || k == ZOFF_ENV_WORLD_SLURM || !zoff_base_env_world((zoff_env_world)i, &a) ||
                !zoff_base_env_world((zoff_env_world)k, &b))
                continue;
            if (differ(a.size, b.size))
                return contradict(a.size_name, a.size, b.size_name, b.size);
            if (differ(a.rank, b.rank))
                return contradict(a.rank_name, a.rank, b.rank_name, b.rank);
        }
    }
    return ZOFF_OK;
}

static bool is_alone(const zoff_env_place *place)
{
    return place->size && strcmp(place->size, "1") == 0;
}

static zoff_status of_torchrun(const zoff_env_place *place, const char **out)
{
    const zoff_status status = zoff_comm_nccl_find();
    *out = "nccl";
    if (status == ZOFF_OK)
        return ZOFF_OK;
    return zoff_base_status_prefix(
        status,
        "communicator \"auto\": %s=%s, %s=%s and LOCAL_RANK are set as by torchrun. Only NCCL can join such ranks, and it "
        "cannot "
        "be loaded. Install it, or start the program with mpirun or srun --mpi=pmix, or choose \"self\" for independent ranks. "
        "NCCL: ",
        place->rank_name, place->rank ? place->rank : "", place->size_name, place->size ? place->size : "");
}

zoff_status zoff_comm_discover(bool mpi_is_up, const char **out)
{
    static const zoff_env_world MPIS[] = {ZOFF_ENV_WORLD_OPEN_MPI, ZOFF_ENV_WORLD_MVAPICH, ZOFF_ENV_WORLD_PMI,
                                          ZOFF_ENV_WORLD_PMIX};
    zoff_env_place place;
    *out = "mpi";
    if (mpi_is_up)
        return ZOFF_OK;
    ZOFF_TRY(find_contradiction());
    for (size_t i = 0; i < sizeof MPIS / sizeof MPIS[0]; i++) {
        if (zoff_base_env_world(MPIS[i], &place))
            return ZOFF_OK;
    }
    *out = "self";
    if (zoff_base_env_world(ZOFF_ENV_WORLD_TORCHRUN, &place) && zoff_base_env_has_local_rank() && !is_alone(&place))
        return of_torchrun(&place, out);
    if (zoff_base_env_world(ZOFF_ENV_WORLD_SLURM, &place) && !is_alone(&place))
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "communicator \"auto\": srun has started several ranks (%s=%s, %s=%s), but they cannot find "
            "each other: neither PMIX_RANK nor PMI_RANK is set. Use srun --mpi=pmix (srun --mpi=list "
            "shows the choices) or mpirun, or choose \"self\" for independent ranks",
            place.rank_name, place.rank ? place.rank : "", place.size_name, place.size ? place.size : "");
    return ZOFF_OK;
}
