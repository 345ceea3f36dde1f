/* SPDX-License-Identifier: Apache-2.0 */
/* features.c: zoff_feature() and zoff_features(): what this build and this machine can do. Each "no" has its reason. */
#include "accel.h"
#include "aio.h"
#include "comm.h"
#include "cpu_adam.h"
#include "map.h"
#include "team.h"
#include "try.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { DETAIL_BYTES = 1024 };

/* Write details of a feature that is there into `out`.  @return OK; ERR_UNSUPPORTED with the reason as the last error */
typedef zoff_status (*probe_fn)(const char *name, char *out);

static zoff_status probe_kernels(const char *name, char *out)
{
    ZOFF_TRY(zoff_adam_dispatch_probe(name));
    snprintf(out, DETAIL_BYTES, strcmp(name, zoff_isa()) == 0 ? "the kernels in use" : "kernels, not in use");
    return ZOFF_OK;
}

static zoff_status probe_threads(const char *name, char *out)
{
    const char *why;
    const unsigned count = zoff_base_team_count(0, &why);
    snprintf(out, DETAIL_BYTES, "%u, %s", count, why);
    return ZOFF_OK;
}

static zoff_status probe_aio(const char *name, char *out)
{
    ZOFF_TRY(zoff_aio_backend_probe(name));
    snprintf(out, DETAIL_BYTES, "this kernel allows it");
    return ZOFF_OK;
}

static zoff_status probe_locked_memory(const char *name, char *out)
{
    struct rlimit limit;
    ZOFF_FAIL_IF(getrlimit(RLIMIT_MEMLOCK, &limit) != 0, ZOFF_ERR_UNSUPPORTED, "getrlimit() tells no limit of locked memory");
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(out, DETAIL_BYTES, "without a limit");
    else
        snprintf(out, DETAIL_BYTES, "up to %llu KiB, by \"ulimit -l\"", (unsigned long long)limit.rlim_cur / 1024);
    ZOFF_FAIL_IF(limit.rlim_cur == 0, ZOFF_ERR_UNSUPPORTED,
                 "\"ulimit -l\" is 0: I/O works, with more CPU time for each request");
    return ZOFF_OK;
}

static zoff_status probe_huge_pages(const char *name, char *out)
{
    const char *off = zoff_base_map_huge_pages_off("");
    ZOFF_FAIL_IF(off, ZOFF_ERR_UNSUPPORTED, "%s says \"never\": write \"madvise\" to it", off);
    snprintf(out, DETAIL_BYTES, "transparent huge pages are allowed");
    return ZOFF_OK;
}

static zoff_status probe_numa(const char *name, char *out)
{
    const unsigned nodes = zoff_base_map_nodes();
    ZOFF_FAIL_IF(nodes < 2, ZOFF_ERR_UNSUPPORTED, "this process may use the memory of one node only");
    snprintf(out, DETAIL_BYTES, "%u nodes", nodes);
    return ZOFF_OK;
}

static zoff_status probe_mpi(const char *name, char *out)
{
    ZOFF_TRY(zoff_comm_mpi_find());
    snprintf(out, DETAIL_BYTES, "libzoff_mpi.so loads");
    return ZOFF_OK;
}

static zoff_status probe_nccl(const char *name, char *out)
{
    return zoff_comm_nccl_probe(out, DETAIL_BYTES);
}

static zoff_status probe_ucx(const char *name, char *out)
{
    ZOFF_TRY(zoff_comm_ucx_find());
    snprintf(out, DETAIL_BYTES, "libzoff_ucx.so loads");
    return ZOFF_OK;
}

static zoff_status probe_cuda(const char *name, char *out)
{
    return zoff_accel_plugins_cuda_probe(out, DETAIL_BYTES);
}

static const struct {
    const char *name;
    probe_fn probe;
} FEATURES[] = {
    {"threads", probe_threads},
    {"avx2", probe_kernels},
    {"avx512", probe_kernels},
    {"neon", probe_kernels},
    {"sve", probe_kernels},
    {"numa", probe_numa},
    {"huge_pages", probe_huge_pages},
    {"locked_memory", probe_locked_memory},
    {"io_uring", probe_aio},
    {"mpi", probe_mpi},
    {"ucx", probe_ucx},
    {"cuda", probe_cuda},
    {"nccl", probe_nccl},
};
enum { FEATURE_COUNT = sizeof FEATURES / sizeof FEATURES[0] };

/* The names, for an error. */
static void list_names(char *out, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < FEATURE_COUNT && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", FEATURES[i].name);
}

zoff_status zoff_feature(const char *name)
{
    char detail[DETAIL_BYTES], names[256];
    ZOFF_FAIL_IF(!name, ZOFF_ERR_INVALID, "zoff_feature: name must not be NULL");
    for (size_t i = 0; i < FEATURE_COUNT; i++) {
        if (strcmp(name, FEATURES[i].name) == 0)
            return FEATURES[i].probe(name, detail);
    }
    list_names(names, sizeof names);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "zoff_feature: there is no feature \"%s\"; the features are %s", name,
                                 names);
}

zoff_status zoff_features(char *dst, size_t dst_bytes, size_t *out_bytes)
{
    size_t used = 0;
    zoff_saved_error saved;
    ZOFF_FAIL_IF(!dst && dst_bytes, ZOFF_ERR_INVALID, "zoff_features: dst is NULL, but dst_bytes is %zu", dst_bytes);
    zoff_base_status_save(&saved);
    for (size_t i = 0; i < FEATURE_COUNT; i++) {
        char detail[DETAIL_BYTES] = "";
        const bool has = FEATURES[i].probe(FEATURES[i].name, detail) == ZOFF_OK;
        const bool fits = used < dst_bytes;
        used += (size_t)snprintf(fits ? dst + used : NULL, fits ? dst_bytes - used : 0, "%-14s %-4s %s\n", FEATURES[i].name,
                                 has ? "yes" : "no", has ? detail : zoff_last_error());
    }
    zoff_base_status_restore(&saved);
    if (out_bytes)
        *out_bytes = used;
    return ZOFF_OK;
}
