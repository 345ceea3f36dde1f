/* comm.h: the door of the comm room, and the table that a communicator fills. Everything asynchronous has one shape: start,
 * then poll for OK, PENDING or an error. Back-ends stand in one list in comm.c. */
#ifndef ZOFF_COMM_DOOR_H
#define ZOFF_COMM_DOOR_H

#include <zoff/comm.h>

/* One operation in flight. The back-end keeps what it needs here; the caller keeps the struct until poll says it is done. */
typedef struct zoff_comm_work {
    bool active;
} zoff_comm_work;

/* What a back-end implements. Exchange, gather and broadcast join this table with the first communicator of more than one rank
 * (docs/adr/0010-public-header.md draws it whole). */
typedef struct zoff_comm_ops {
    const char *name;
    zoff_status (*open)(const zoff_comm_opts *opts, zoff_comm **out);
    void (*close)(zoff_comm *comm);
    /* inout[i] becomes the sum over the ranks, added up in rank order: the same bits on every rank. */
    zoff_status (*sum_scalars)(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work);
    zoff_status (*poll)(zoff_comm *comm, zoff_comm_work *work);
} zoff_comm_ops;

/* The first member of every back-end's own struct. */
struct zoff_comm {
    const zoff_comm_ops *ops;
    unsigned rank, size;
};

extern const zoff_comm_ops zoff_comm_self_ops;

zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work);
zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work);

#endif
