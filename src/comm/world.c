/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: the ranks that were started, by the launcher's variables, and those that have joined. A launcher of another MPI
 * starts processes that do not find each other: each is rank 0 of 1, and would train a model of its own. */
#include "comm.h"

#include "try.h"

#include <stdio.h>
#include <stdlib.h>

static unsigned long number_of(const char *text)
{
    return text ? strtoul(text, NULL, 10) : 0;
}

bool zoff_comm_world_is_outer(zoff_env_world id)
{
    return id == ZOFF_ENV_WORLD_JSM || id == ZOFF_ENV_WORLD_FLUX || id == ZOFF_ENV_WORLD_PALS || id == ZOFF_ENV_WORLD_SLURM;
}

/* An outer launcher's count is used only where no inner launcher says that it has started one rank. */
zoff_env_world zoff_comm_world_several(zoff_env_place *out)
{
    bool is_alone = false;
    for (int id = 0; id < ZOFF_ENV_WORLD_COUNT; id++) {
        if (!zoff_base_env_world((zoff_env_world)id, out) || (zoff_comm_world_is_outer((zoff_env_world)id) && is_alone))
            continue;
        if (number_of(out->size) > 1 || number_of(out->rank) > 0)
            return (zoff_env_world)id;
        is_alone = is_alone || number_of(out->size) == 1;
    }
    return ZOFF_ENV_WORLD_COUNT;
}

const char *zoff_comm_world_print(const zoff_env_place *place, char *dst, size_t dst_bytes)
{
    if (place->rank && place->size)
        snprintf(dst, dst_bytes, "%s=%.40s, %s=%.40s", place->rank_name, place->rank, place->size_name, place->size);
    else
        snprintf(dst, dst_bytes, "%s=%.40s", place->rank ? place->rank_name : place->size_name,
                 place->rank ? place->rank : place->size);
    return dst;
}

zoff_status zoff_comm_world_check(const char *backend, size_t joined)
{
    zoff_env_place place;
    char words[160];
    if (joined != 1 || zoff_comm_world_several(&place) == ZOFF_ENV_WORLD_COUNT)
        return ZOFF_OK;
    const unsigned long least = number_of(place.rank) + 1, size = number_of(place.size);
    return zoff_base_status_fail(
        ZOFF_ERR_UNSUPPORTED,
        "communicator \"%s\": this process is the only rank that has joined, but %s has started %s%lu (%s). Each rank would "
        "train a model of its own. Start the program with the launcher of the MPI library that it loads, or compile zoff/mpi.h "
        "into "
        "it with the MPI of this launcher. For ranks that are independent on purpose choose \"self\", with zoff/mpi.h "
        "MPI_COMM_SELF, or unset these variables",
        backend, place.launcher, size ? "" : "at least ", size > least ? size : least,
        zoff_comm_world_print(&place, words, sizeof words));
}
