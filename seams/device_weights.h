/* device_weights.h: the arena of lent weights in memory of a device. Not implemented: see README.md. */
#ifndef ZOFF_SEAMS_DEVICE_WEIGHTS_H
#define ZOFF_SEAMS_DEVICE_WEIGHTS_H

#include <zoff/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where slices are whole. The host: memory of the process, and a copy is done when the call returns. A device: its memory, and
 * copies are in a stream; the trainer's stream waits for them, the host does not. The table joins zoff_lending beside
 * zoff_weight_source, which says where a slice comes from. */
typedef struct zoff_lending_memory {
    const char *name;
    zoff_status (*open)(void *ctx, uint64_t bytes, char **out);
    void (*close)(void *ctx);
    /* From a chunk in host memory to its place in a slice. `bytes` of `from` stay until `poll` says OK. */
    zoff_status (*fill)(void *ctx, char *place, const void *from, size_t bytes);
    zoff_status (*poll)(void *ctx, const char *place); /* OK: all that was put there has come */
    /* Work that is put into the trainer's stream from here on finds the slice whole. */
    zoff_status (*lend)(void *ctx, const char *place, void *native_stream);
    /* The place may be overwritten behind what is in the trainer's stream now. */
    zoff_status (*release)(void *ctx, const char *place, void *native_stream);
} zoff_lending_memory;

#ifdef __cplusplus
}
#endif
#endif
