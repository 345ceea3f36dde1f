/* discover.c: which group this process belongs to, by what its launcher has left in the environment. Nothing is launched here,
 * and no variable is trusted that may mean something else. */
#include "comm.h"

#include "env.h"
#include "try.h"

#include <dlfcn.h>
#include <string.h>

bool zoff_comm_discover_mpi(void)
{
    /* These two have the same form in every MPI. */
    static const char *const NAMES[] = {"MPI_Initialized", "MPI_Finalized"};
    int flags[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        int (*ask)(int *) = NULL;
        void *found = dlsym(RTLD_DEFAULT, NAMES[i]);
        memcpy(&ask, &found, sizeof ask); /* ISO C has no such cast */
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
        "the environment contradicts itself: %s=%s and %s=%s; unset what another launcher has left, or "
        "name the communicator (\"self\", \"mpi\") instead of \"auto\"",
        a_name, a, b_name, b);
}

/* MPI's own launchers, and torchrun's variables beside them, which scripts set for others: they must mean the same group. Slurm
 * may have started the launchers, so what it counts may be hosts. */
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
        "%s=%s, %s=%s and LOCAL_RANK are torchrun's, from which NCCL can make a group and MPI cannot: "
        "start the program with mpirun or with srun --mpi=pmix; or say \"self\" for ranks that have "
        "nothing to do with one another. NCCL is not there: ",
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
        return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                     "%s=%s and %s=%s: srun has started several ranks, and gave them no way to find each other "
                                     "(no PMIX_RANK, no PMI_RANK): start them with srun --mpi=pmix (srun --mpi=list tells what "
                                     "there is), or with mpirun; or say \"self\"",
                                     place.rank_name, place.rank ? place.rank : "", place.size_name,
                                     place.size ? place.size : "");
    return ZOFF_OK;
}
