/* accel.c: the list of accelerator back-ends, and the checks that all of them share. */
#include "accel.h"

#include "try.h"

#include <string.h>

static const zoff_accel_ops *const BACKENDS[] = {&zoff_accel_host_ops};

zoff_status zoff_accel_open(const char *backend, int index, zoff_accel **out)
{
    ZOFF_FAIL_IF(!backend || !out, ZOFF_ERR_INVALID, "zoff_accel_open: backend and out must not be NULL");
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++) {
        if (strcmp(BACKENDS[i]->name, backend) == 0)
            return BACKENDS[i]->open(index, out);
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "this build has no accelerator \"%s\"; it has: host", backend);
}

void zoff_accel_close(zoff_accel *accel)
{
    if (accel)
        accel->ops->close(accel);
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
