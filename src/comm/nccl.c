/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c: joins ranks over NCCL. It collects the options of the caller, or the launcher's variables, and calls the plug-in. */
#include "comm.h"

#include "bits.h"
#include "env.h"
#include "plugin.h"
#include "plugin_built_in.h"
#include "structs.h"
#include "try.h"

#include <math.h>

static const zoff_comm_tools TOOLS = {.name = zoff_comm_call_name,
                                      .sends = zoff_comm_call_sends,
                                      .expects = zoff_comm_call_expects,
                                      .compare = zoff_comm_call_compare,
                                      .last_error = zoff_last_error,
                                      .heard = zoff_comm_heard,
                                      .visits = zoff_comm_get_visits};

static zoff_status load(const zoff_plugin_built_in **out)
{
    const zoff_plugin_wish wish = {
        .name = "nccl",
        .what = "the communicator \"nccl\"",
        .advice = "Build zoff where CUDA and NCCL from 2.18 on are installed (NCCL_ROOT tells CMake where), "
                  "put the folders of libcudart and libnccl into LD_LIBRARY_PATH"};
    zoff_plugin plugin;
    ZOFF_TRY(zoff_base_plugin_load(&wish, &plugin));
    *out = plugin.built_in;
    ZOFF_FAIL_IF(!*out || !(*out)->open_comm, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_nccl.so has no communicator: install it together with libzoff");
    return ZOFF_OK;
}

zoff_status zoff_comm_nccl_probe(char *out, size_t bytes)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    return plugin->probe(out, bytes);
}

static zoff_status join(zoff_comm_join *with, zoff_comm **out)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    with->tools = &TOOLS;
    if (with->opts.timeout_seconds == 0)
        with->opts.timeout_seconds = ZOFF_COMM_TIMEOUT_SECONDS;
    zoff_comm *made;
    ZOFF_TRY(plugin->open_comm(with, &made));
    const zoff_status status = zoff_comm_prepare(made);
    if (status < 0)
        made->ops->close(made);
    else
        *out = made;
    return status;
}

/* ---- programs that can already communicate between their ranks ---- */

zoff_status zoff_comm_open_nccl(const zoff_nccl_opts *opts, zoff_comm **out)
{
    zoff_comm_join with = {.meet_at = NULL};
    zoff_nccl_opts *o = &with.opts;
    ZOFF_FAIL_IF(!opts || !out, ZOFF_ERR_INVALID, "zoff_comm_open_nccl: opts and out must not be NULL");
    ZOFF_TRY(zoff_base_structs_read("zoff_nccl_opts", "ZOFF_NCCL_OPTS_INIT", opts, o, sizeof *o));
    ZOFF_FAIL_IF(isnan(o->timeout_seconds), ZOFF_ERR_INVALID, "zoff_comm_open_nccl: timeout_seconds is not a number");
    ZOFF_FAIL_IF(!o->nccl_comm && !o->broadcast, ZOFF_ERR_INVALID,
                 "zoff_comm_open_nccl: neither nccl_comm nor broadcast is set. Set nccl_comm to a communicator of the program, "
                 "or broadcast to a function that copies from rank 0 to all. Programs with neither call zoff_comm_open() with "
                 "\"nccl\"");
    ZOFF_FAIL_IF(o->nccl_stream && !o->nccl_comm, ZOFF_ERR_INVALID,
                 "zoff_comm_open_nccl: nccl_stream is set, but nccl_comm is not: set both, or leave nccl_stream NULL");
    ZOFF_FAIL_IF(!o->nccl_comm && o->rank >= o->size, ZOFF_ERR_INVALID, "zoff_comm_open_nccl: rank %u of %u", o->rank, o->size);
    return join(&with, out);
}

/* ---- programs that have only the launcher's environment variables ---- */

zoff_status zoff_comm_nccl_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_comm_join with = {.opts = {.struct_size = sizeof with.opts, .timeout_seconds = opts->timeout_seconds},
                           .device_is_count = true};
    zoff_env_meeting meeting;
    zoff_env_ranks here;
    char place[320];
    ZOFF_TRY(zoff_comm_world_place("nccl", &with.opts.rank, &with.opts.size));
    ZOFF_TRY(zoff_comm_world_check("nccl", with.opts.size));
    zoff_base_env_meeting(&meeting);
    zoff_base_env_ranks(&here);
    unsigned local = here.index;
    ZOFF_FAIL_IF(meeting.local_rank && !zoff_comm_world_count(meeting.local_rank, &local), ZOFF_ERR_INVALID,
                 "communicator \"nccl\": LOCAL_RANK=%s is not a number", meeting.local_rank);
    with.opts.device = (int)local;
    if (!meeting.nccl_comm_id && with.opts.size > 1) {
        ZOFF_TRY(zoff_comm_world_meeting("nccl", meeting.is_taken, place, sizeof place));
        with.meet_at = place;
    }
    return join(&with, out);
}
