/* host.c: the CPU as its own accelerator. Kernels run on weights and gradients in place, so nothing is ever copied. */
#include "accel.h"

#include "mem.h"
#include "try.h"

static zoff_status host_open(int index, zoff_accel **out)
{
    ZOFF_FAIL_IF(index != 0, ZOFF_ERR_INVALID, "accelerator \"host\" has one device, number 0; %d was asked for", index);
    zoff_accel *accel;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *accel, "the host accelerator", &accel));
    *accel = (zoff_accel){.ops = &zoff_accel_host_ops, .index = index};
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

const zoff_accel_ops zoff_accel_host_ops = {.name = "host",
                                            .in_place = true,
                                            .open = host_open,
                                            .close = host_close,
                                            .numa_node = host_numa_node,
                                            .get_info = host_get_info};
