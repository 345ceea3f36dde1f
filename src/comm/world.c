/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: the ranks that were started, by the launcher's variables, and those that have joined. A launcher of another MPI
 * starts processes that do not find each other: each is rank 0 of 1, and would train a model of its own. */
#include "comm.h"

#include "try.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool zoff_comm_world_count(const char *text, unsigned *out)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    *out = (unsigned)value;
    return !errno && !*end && value <= 1u << 20;
}

zoff_status zoff_comm_world_place(const char *backend, unsigned *rank, unsigned *size)
{
    for (int id = 0; id < ZOFF_ENV_WORLD_COUNT; id++) {
        zoff_env_place place;
        if (!zoff_base_env_world((zoff_env_world)id, &place) || !place.rank || !place.size)
            continue;
        ZOFF_FAIL_IF(!zoff_comm_world_count(place.rank, rank) || !zoff_comm_world_count(place.size, size) || *rank >= *size,
                     ZOFF_ERR_INVALID, "communicator \"%s\": %s=%s and %s=%s are not a valid rank and size", backend,
                     place.rank_name, place.rank, place.size_name, place.size);
        return ZOFF_OK;
    }
    return zoff_base_status_fail(
        ZOFF_ERR_UNSUPPORTED,
        "communicator \"%s\": the environment does not say which rank this is: start the program with torchrun, "
        "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or call %s()",
        backend, strcmp(backend, "nccl") == 0 ? "zoff_comm_open_nccl" : "zoff_comm_open_transport");
}

zoff_status zoff_comm_world_meeting(const char *backend, bool is_next, char *dst, size_t dst_bytes)
{
    unsigned port;
    zoff_env_meeting meeting;
    zoff_base_env_meeting(&meeting);
    const bool is_nccl = strcmp(backend, "nccl") == 0;
    ZOFF_FAIL_IF(!meeting.address || !meeting.port, ZOFF_ERR_UNSUPPORTED,
                 "communicator \"%s\": MASTER_ADDR or MASTER_PORT is not set. Set MASTER_ADDR to the host of rank 0 and "
                 "MASTER_PORT to a free port there%s",
                 backend, is_nccl ? ", or set NCCL_COMM_ID to both as host:port" : "");
    ZOFF_FAIL_IF(!zoff_comm_world_count(meeting.port, &port) || port == 0 || port > 65534, ZOFF_ERR_INVALID,
                 "communicator \"%s\": MASTER_PORT=%s is not a port number", backend, meeting.port);
    const bool is_v6 = strchr(meeting.address, ':') && meeting.address[0] != '[';
    const int bytes = snprintf(dst, dst_bytes, is_v6 ? "[%s]:%u" : "%s:%u", meeting.address, port + is_next);
    ZOFF_FAIL_IF(bytes < 0 || (size_t)bytes >= dst_bytes, ZOFF_ERR_INVALID, "communicator \"%s\": MASTER_ADDR is too long",
                 backend);
    return ZOFF_OK;
}
