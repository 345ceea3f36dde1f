/* device_copies.c: memory of a device, pinned memory, and copies between them as the engine makes them. They are not in the
 * public headers, so this file alone of bench/device looks into the library, and no benchmark needs CUDA's headers. */
#include "device_bench.h"

#include "accel.h"

static int told(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "device: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

int device_copies_alloc(zoff_accel *accel, size_t bytes, void **out)
{
    return told(accel->ops->alloc(accel, bytes, out));
}

void device_copies_free(zoff_accel *accel, void *memory)
{
    if (memory)
        accel->ops->free(accel, memory);
}

int device_copies_pin(zoff_accel *accel, void *memory, size_t bytes)
{
    return told(accel->ops->pin(accel, memory, bytes));
}

void device_copies_unpin(zoff_accel *accel, void *memory)
{
    accel->ops->unpin(accel, memory);
}

int device_copies_put(zoff_accel *accel, void *stream, const device_move *moves, size_t count)
{
    int ret = 0;
    for (size_t i = 0; i < count && ret == 0; i++)
        ret = told(accel->ops->copy(accel, stream, moves[i].dst, moves[i].src, moves[i].bytes));
    return ret;
}
