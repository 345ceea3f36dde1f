/* SPDX-License-Identifier: Apache-2.0 */
/* queue_priv.h: the queue itself, shared by the files of this room.
 *
 *      caller ---> request ---> piece ---> zoff_aio_io ---> back-end
 *                  queue.c      pieces.c   (bounce.c if something is not aligned)
 *
 * A request is the caller's transfer and its ticket. It is cut into pieces as places become free: `depth` of them, in order of
 * arrival for each direction. A piece has one transfer in flight at a time. When that completes, it is judged. Then the piece
 * is done, or is submitted again, for the rest of a short transfer or the second half of read-modify-write. */
#ifndef ZOFF_AIO_QUEUE_PRIV_H
#define ZOFF_AIO_QUEUE_PRIV_H

#include "aio.h"
#include "backend_priv.h"
#include "file_priv.h"
#include "map.h"
#include "mem.h"
#include "trace.h"

enum {
    ZOFF_AIO_NONE = -1,        /* no request: the end of a list */
    ZOFF_AIO_STAGES_MOST = 16, /* pieces in staging memory at once */
    ZOFF_AIO_STAGE_BYTES = 1 << 20,
    ZOFF_AIO_RETRIES_MOST = 100 /* most retries of one piece in a row, after EAGAIN, EINTR or no progress */
};

typedef enum zoff_aio_fault_kind {
    ZOFF_AIO_FAULT_NONE,
    ZOFF_AIO_FAULT_SYSTEM, /* the system has returned `error` */
    ZOFF_AIO_FAULT_END,    /* the file ends before the range does */
    ZOFF_AIO_FAULT_LATE,   /* an earlier write has failed since, with `error` at `offset` */
    ZOFF_AIO_FAULT_STUCK   /* many retries, and no byte moved */
} zoff_aio_fault_kind;

/* Why a request failed, in numbers. The message is formatted when somebody asks for it. */
typedef struct zoff_aio_fault {
    zoff_aio_fault_kind kind;
    int error;       /* SYSTEM, LATE: errno */
    uint64_t offset; /* offset of the piece, or of the earlier write */
    size_t bytes;
    uint64_t end; /* END: the end of the file */
} zoff_aio_fault;

typedef enum zoff_aio_state { ZOFF_AIO_FREE, ZOFF_AIO_ACTIVE, ZOFF_AIO_DONE } zoff_aio_state;

typedef struct zoff_aio_request {
    zoff_aio_state state;
    uint32_t generation; /* generation of the ticket; the next user of this place gets another one */
    int next;            /* next in the list of free places, or of requests waiting to be cut */
    bool writes;
    uint64_t offset;
    size_t bytes;
    char *address;
    size_t cut;          /* bytes that pieces cover so far */
    unsigned pieces;     /* pieces in flight */
    double began, ended; /* times for a trace; 0: none */
    zoff_aio_fault fault;
} zoff_aio_request;

typedef enum zoff_aio_piece_kind {
    ZOFF_AIO_PLAIN,     /* between the file and the caller's memory */
    ZOFF_AIO_STAGED,    /* between the file and staging memory: whole units */
    ZOFF_AIO_EDGE_READ, /* one unit that a write changes in part: it is being read, then changed and written */
    ZOFF_AIO_EDGE_WRITE
} zoff_aio_piece_kind;

typedef struct zoff_aio_piece {
    zoff_aio_io io; /* first, so that the back-end returns the piece */
    zoff_aio_piece_kind kind;
    int request;
    unsigned retries; /* retries in a row without progress */
    struct zoff_aio_piece *next_free;
    char *user; /* the piece's part of the request */
    size_t user_bytes;
    /* Fields of staged pieces: */
    char *stage;
    uint64_t window; /* file offset of the stage's first byte */
    size_t skip;     /* where the part begins in the stage */
    size_t present;  /* EDGE: bytes of the unit that existed in the file */
} zoff_aio_piece;

/* Indices of zoff_aio.lanes. */
enum { ZOFF_AIO_READS, ZOFF_AIO_WRITES, ZOFF_AIO_LANES };

/* Aligned memory for requests that are not aligned. */
typedef struct zoff_aio_stages {
    zoff_map memory; /* memory, mapped at the first request that needs it */
    size_t bytes;    /* size of one stage */
    char *free[ZOFF_AIO_STAGES_MOST];
    unsigned free_count;
} zoff_aio_stages;

typedef struct zoff_aio_counts {
    uint64_t read_bytes, write_bytes, bounce_bytes, resumed_pieces, completed_pieces;
} zoff_aio_counts;

struct zoff_aio {
    zoff_aio_file file;
    const zoff_aio_backend *backend;
    void *backend_self;
    size_t block_bytes; /* a multiple of file.unit */
    unsigned depth;
    unsigned process; /* process that opened the queue */

    zoff_aio_request *requests; /* requests; the array moves when it grows, so other structs hold indices */
    unsigned request_count;
    int free_request;

    struct {
        int first, last; /* requests that are not cut completely, oldest first */
        unsigned out;    /* pieces in flight */
    } lanes[ZOFF_AIO_LANES];

    zoff_aio_piece *pieces; /* array of `depth` pieces */
    zoff_aio_piece *free_piece;

    zoff_aio_stages stages;

    bool register_called, registered;
    zoff_aio_counts counts;
    double limit_seconds; /* most seconds of a wait without a completed piece; negative: no limit. Atomic */
};

/* pieces.c: collect completed transfers, cut requests, submit.  @return an error: the back-end accepts nothing any more */
zoff_status zoff_aio_pieces_advance(zoff_aio *q);
/* Cut and submit without collecting, for a new request. */
zoff_status zoff_aio_pieces_feed(zoff_aio *q);
unsigned zoff_aio_pieces_out(const zoff_aio *q);

/* bounce.c: requests that are not aligned. */
zoff_status zoff_aio_bounce_prepare(zoff_aio *q, uint64_t offset, size_t bytes, const void *address);
/* Make the next piece of a request.  @return false: it must wait until another piece is done */
bool zoff_aio_bounce_cut(zoff_aio *q, const zoff_aio_request *request, zoff_aio_piece *piece);
/* The transfer has moved all its bytes.  @return true: submit the piece again, as changed here */
bool zoff_aio_bounce_next(zoff_aio *q, zoff_aio_piece *piece);
void zoff_aio_bounce_release(zoff_aio *q, zoff_aio_piece *piece);

#endif
