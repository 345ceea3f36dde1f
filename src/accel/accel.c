/* SPDX-License-Identifier: Apache-2.0 */
/* accel.c: the list of accelerator back-ends, and the checks that all of them share. */
#include "accel.h"

#include "mem.h"
#include "plugin.h"
#include "plugin_built_in.h"
#include "structs.h"
#include "try.h"

#include <string.h>
#include <time.h>

/* ---- the plug-in for CUDA ---- */

static zoff_status load(const zoff_plugin_built_in **out)
{
    const zoff_plugin_wish wish = {.name = "cuda",
                                   .what = "the accelerator \"cuda\"",
                                   .advice = "Build zoff where the CUDA toolkit is found, and have its runtime where the "
                                             "loader looks"};
    zoff_plugin plugin;
    ZOFF_TRY(zoff_base_plugin_load(&wish, &plugin));
    *out = plugin.built_in;
    ZOFF_FAIL_IF(!*out || !(*out)->open_accel, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_cuda.so has no accelerator: install it together with libzoff");
    return ZOFF_OK;
}

static zoff_status open_cuda(int index, zoff_accel **out)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    return plugin->open_accel(index, out);
}

zoff_status zoff_accel_plugins_cuda_probe(char *out, size_t bytes)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    return plugin->probe(out, bytes);
}

/* ---- the host: the CPU as its own accelerator. Kernels run on weights and gradients in place, so nothing is ever copied. ----
 */

static const zoff_accel_ops HOST;

static zoff_status host_open(int index, zoff_accel **out)
{
    ZOFF_FAIL_IF(index != 0, ZOFF_ERR_INVALID, "accelerator \"host\" has one device, number 0; %d was asked for", index);
    zoff_accel *accel;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *accel, "the host accelerator", &accel));
    *accel = (zoff_accel){.ops = &HOST, .index = index};
    *out = accel;
    return ZOFF_OK;
}

static void host_close(zoff_accel *accel)
{
    zoff_base_mem_free(accel);
}

/* The CPU spans all nodes, so it has no node of its own. */
static int host_numa_node(const zoff_accel *accel)
{
    return -1;
}

static void host_get_info(const zoff_accel *accel, zoff_accel_info *out)
{
    out->name = "the CPU";
}

static const zoff_accel_ops HOST = {
    .name = "host", .in_place = true, .close = host_close, .numa_node = host_numa_node, .get_info = host_get_info};

/* ---- opening ---- */

static const struct {
    const char *name;
    zoff_status (*open)(int index, zoff_accel **out);
} BACKENDS[] = {{"host", host_open}, {"emulated", zoff_accel_emulated_open}, {"cuda", open_cuda}};

zoff_status zoff_accel_open(const char *backend, int index, zoff_accel **out)
{
    ZOFF_FAIL_IF(!backend || !out, ZOFF_ERR_INVALID, "zoff_accel_open: backend and out must not be NULL");
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++) {
        if (strcmp(BACKENDS[i].name, backend) == 0)
            return BACKENDS[i].open(index, out);
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                 "this build has no accelerator \"%s\"; it has: host, emulated, cuda (a plug-in)", backend);
}

void zoff_accel_close(zoff_accel *accel)
{
    if (accel)
        accel->ops->close(accel);
}

zoff_status zoff_accel_get_info(const zoff_accel *accel, zoff_accel_info *out)
{
    ZOFF_FAIL_IF(!accel || !out, ZOFF_ERR_INVALID, "zoff_accel_get_info: accel and out must not be NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_accel_info", "ZOFF_ACCEL_INFO_INIT", out));
    zoff_accel_info info = ZOFF_ACCEL_INFO_INIT;
    accel->ops->get_info(accel, &info);
    info.backend = accel->ops->name;
    info.index = accel->index;
    info.numa_node = accel->ops->numa_node(accel);
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}

const char *zoff_accel_name(const zoff_accel *accel)
{
    return accel->ops->name;
}

bool zoff_accel_in_place(const zoff_accel *accel)
{
    return accel->ops->in_place;
}

int zoff_accel_numa_node(const zoff_accel *accel)
{
    return accel->ops->numa_node(accel);
}

static zoff_status check_streams(const zoff_accel *accel, const char *call)
{
    ZOFF_FAIL_IF(!accel, ZOFF_ERR_INVALID, "%s: accel must not be NULL", call);
    ZOFF_FAIL_IF(accel->ops->in_place, ZOFF_ERR_UNSUPPORTED,
                 "%s: accelerator \"%s\" works in the caller's thread, it has no streams", call, accel->ops->name);
    return ZOFF_OK;
}

zoff_status zoff_accel_stream_open(zoff_accel *accel, void **out_stream)
{
    ZOFF_TRY(check_streams(accel, "zoff_accel_stream_open"));
    ZOFF_FAIL_IF(!out_stream, ZOFF_ERR_INVALID, "zoff_accel_stream_open: out_stream must not be NULL");
    return accel->ops->streams.open(accel, out_stream);
}

void zoff_accel_stream_close(zoff_accel *accel, void *stream)
{
    if (accel && stream == ZOFF_STREAM_DEFAULT)
        ZOFF_KEEP_ERROR((void)zoff_accel_stream_wait(accel, stream));
    else if (accel && stream)
        accel->ops->streams.close(accel, stream);
}

zoff_status zoff_accel_stream_call(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx)
{
    ZOFF_TRY(check_streams(accel, "zoff_accel_stream_call"));
    ZOFF_FAIL_IF(!stream || !run, ZOFF_ERR_INVALID, "zoff_accel_stream_call: stream and run must not be NULL");
    return accel->ops->streams.call(accel, stream, run, ctx);
}

zoff_status zoff_accel_stream_wait(zoff_accel *accel, void *stream)
{
    enum { NAP_NS = 20000 };
    void *event;
    ZOFF_TRY(check_streams(accel, "zoff_accel_stream_wait"));
    ZOFF_FAIL_IF(!stream, ZOFF_ERR_INVALID, "zoff_accel_stream_wait: stream must not be NULL");
    ZOFF_TRY(accel->ops->event_open(accel, &event));
    zoff_status status = accel->ops->event_record(accel, event, stream);
    while (status >= 0 && (status = accel->ops->event_poll(accel, event)) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    accel->ops->event_close(accel, event);
    return status;
}
