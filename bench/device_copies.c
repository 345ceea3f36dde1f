/* device_copies.c: device memory, pinned memory, and copies between them as the engine uses them. They are not in the public
 * headers, so this file uses internal ones; no other file of bench/device does. No benchmark needs CUDA's headers. */
#include "device_bench.h"

#include "accel.h"

int device_copies_alloc(zoff_accel *accel, size_t bytes, char **out)
{
    void *memory = NULL;
    const int ret = bench_told(accel->ops->alloc(accel, bytes, &memory));
    *out = memory;
    return ret;
}

void device_copies_free(zoff_accel *accel, void *memory)
{
    if (memory)
        accel->ops->free(accel, memory);
}

int device_copies_pin(zoff_accel *accel, void *memory, size_t bytes)
{
    return bench_told(accel->ops->pages.pin(accel, memory, bytes));
}

void device_copies_unpin(zoff_accel *accel, void *memory)
{
    accel->ops->pages.unpin(accel, memory);
}

int device_copies_put(zoff_accel *accel, void *stream, const device_move *move)
{
    return bench_told(accel->ops->copy(accel, stream, move->dst, move->src, move->bytes));
}
