/* accel.h: the door of the accel room, and the table that a back-end fills. Back-ends stand in one list in accel.c. */
#ifndef ZOFF_ACCEL_DOOR_H
#define ZOFF_ACCEL_DOOR_H

#include <zoff/accel.h>

/* What a back-end implements. Streams, events and copies join this table with the first device that has memory of its own
 * (docs/adr/0010-public-header.md draws it whole). */
typedef struct zoff_accel_ops {
    const char *name;
    bool in_place; /* the CPU can read its gradients and write its weights where they are */
    zoff_status (*open)(int index, zoff_accel **out);
    void (*close)(zoff_accel *accel);
    int (*numa_node)(const zoff_accel *accel); /* that its link is at; -1 where there is none or it is not known */
} zoff_accel_ops;

/* The first member of every back-end's own struct. */
struct zoff_accel {
    const zoff_accel_ops *ops;
    int index;
};

extern const zoff_accel_ops zoff_accel_host_ops;

const char *zoff_accel_name(const zoff_accel *accel);
bool zoff_accel_in_place(const zoff_accel *accel);
int zoff_accel_numa_node(const zoff_accel *accel);

#endif
