/* accel.h: the door of the accel room, and the table that a back-end fills. Back-ends stand in one list in accel.c.
 *
 * A device is used by putting work into streams, and by events: a point in a stream that another stream waits for, or that the
 * caller asks about. Streams and events are the device's own handles, so that those of a program need no wrapping. Nothing here
 * blocks but closing and zoff_accel_stream_wait(). */
#ifndef ZOFF_ACCEL_DOOR_H
#define ZOFF_ACCEL_DOOR_H

#include <zoff/accel.h>

/* What a back-end implements. */
typedef struct zoff_accel_ops {
    const char *name;
    bool in_place; /* the CPU can read its gradients and write its weights where they are: then there is nothing below numa_node
                    */
    zoff_status (*open)(int index, zoff_accel **out);
    void (*close)(zoff_accel *accel);
    int (*numa_node)(const zoff_accel *accel); /* that its link is at; -1 where there is none or it is not known */

    /* Host memory that copies go to and come from. */
    zoff_status (*pin)(zoff_accel *accel, void *memory, size_t bytes);
    void (*unpin)(zoff_accel *accel, void *memory);

    zoff_status (*stream_open)(zoff_accel *accel, void **out);
    void (*stream_close)(zoff_accel *accel, void *stream); /* waits for what is in it */
    zoff_status (*stream_call)(zoff_accel *accel, void *stream, void (*run)(void *ctx), void *ctx);
    zoff_status (*copy)(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes); /* either way */
    zoff_status (*zero)(zoff_accel *accel, void *stream, void *dst, size_t bytes);                  /* on the device */

    zoff_status (*event_open)(zoff_accel *accel, void **out);
    void (*event_close)(zoff_accel *accel, void *event);
    /* The event is the point that the stream has reached when it has done all that is in it now. Stream NULL: now. */
    zoff_status (*event_record)(zoff_accel *accel, void *event, void *stream);
    /* What is put into the stream from here on waits for that point, as the event was recorded last; the caller does not. */
    zoff_status (*event_await)(zoff_accel *accel, void *stream, void *event);
    /* OK: it is reached, and what came before it is seen by the caller; PENDING; ERR_DEVICE, which stays. An event that was
     * never recorded is reached. */
    zoff_status (*event_poll)(zoff_accel *accel, void *event);
} zoff_accel_ops;

/* The first member of every back-end's own struct. */
struct zoff_accel {
    const zoff_accel_ops *ops;
    int index;
};

extern const zoff_accel_ops zoff_accel_host_ops;
extern const zoff_accel_ops zoff_accel_emulated_ops;

const char *zoff_accel_name(const zoff_accel *accel);
bool zoff_accel_in_place(const zoff_accel *accel);
int zoff_accel_numa_node(const zoff_accel *accel);

#endif
