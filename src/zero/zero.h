/* zero.h: the door of the room that decides who owns a number: which elements belong to which rank, in which chunk they
 * lie, and where in it; and of what carries numbers between owners. It knows no states, no files, no types of numbers. */
#ifndef ZOFF_ZERO_H
#define ZOFF_ZERO_H

#include <zoff/types.h>

/* The streams of a chunk, in the order in which it keeps them. What a parameter has of them depends on its type (fp32 weights
 * are their own master) and on its optimizer. */
typedef enum zoff_plan_stream { ZOFF_STREAM_MASTER, ZOFF_STREAM_M, ZOFF_STREAM_V, ZOFF_STREAM_COUNT } zoff_plan_stream;

/* One parameter as the plan sees it. */
typedef struct zoff_plan_tensor {
    size_t count, slices;
    bool frozen;
    bool has[ZOFF_STREAM_COUNT];
    size_t weight_bytes; /* of an element whose weight the engine keeps; 0: it is in the caller's memory */
} zoff_plan_tensor;

/* A run of elements of one slice of one parameter that lies in one bucket. Offsets are in elements. */
typedef struct zoff_plan_piece {
    uint32_t param;
    uint32_t bucket;
    size_t block; /* number of its first unit in the list of all parameters */
    size_t slice;
    size_t first; /* in the slice; a multiple of the unit of the plan */
    size_t count;
    /* Of what this rank owns: */
    size_t offsets[ZOFF_STREAM_COUNT]; /* in the chunk's streams; of no use where the parameter has no such state */
    size_t weight_offset;              /* in the chunk's weights, in bytes; of no use where they are the caller's */
    size_t owned_offset;               /* in the rank's gradient accumulator; padded like the streams */
} zoff_plan_piece;

/* A chunk: the unit in which states are kept and moved. In memory and in the file it is up to three streams one after the
 * other,
 *
 *      | master | m | v |
 *
 * each starting at another page of the 32 KiB that it starts in: streams that start at the same place fight for the same
 * sets of the cache (docs/adr/0005-state-layout.md). Each has the elements of those pieces whose parameter has that state, so
 * their lengths may differ, and a stream that nobody needs is not there. A chunk of parameters that have no states at all (SGD
 * without momentum on fp32 weights) takes no bytes.
 *
 * Weights that the engine keeps are beside it, in a memory of their own: they may live on another tier, and are read without
 * the states. Of a frozen parameter there is nothing else; where its weights are the caller's it is in no chunk at all. */
typedef struct zoff_plan_chunk {
    size_t first_piece, piece_count;   /* in plan.pieces */
    size_t first_run, run_count;       /* of the bucket, in plan.runs */
    size_t elements;                   /* without padding, frozen ones too */
    size_t blocks;                     /* units, a tail counts as one */
    size_t lengths[ZOFF_STREAM_COUNT]; /* of the streams in elements, with padding; 0: it is not there */
    size_t starts[ZOFF_STREAM_COUNT];  /* where they start, in bytes */
    size_t bytes;                      /* all of it, a multiple of 4 KiB */
    size_t weight_bytes;               /* likewise of its weights */
} zoff_plan_chunk;

/* Some of plan.pieces. */
typedef struct zoff_plan_span {
    size_t first_piece, piece_count;
} zoff_plan_span;

typedef struct zoff_plan zoff_plan;

/* A walk over the pieces of a rank's part of a bucket, which are made on the way. */
typedef struct zoff_plan_cursor {
    const zoff_plan *plan;
    size_t run, block, end;
} zoff_plan_cursor;

/* Elements: pieces start at cache lines of their streams. */
enum { ZOFF_PLAN_PAD = 16 };

typedef struct zoff_plan_opts {
    size_t unit;               /* elements; pieces are cut at multiples of it, so that blocks of the norm stay whole */
    size_t max_chunk_elements; /* at least one unit is put into a chunk, whatever the limits */
    size_t max_chunk_bytes;    /* with padding */
    unsigned rank, ranks;      /* 0 ranks: 1 */
    bool replicated;           /* each rank owns all of every bucket */
    size_t max_bucket_units;   /* of several ranks; 0: no limit */
} zoff_plan_opts;

/* Of all chunks the most that one has. */
typedef struct zoff_plan_most {
    size_t chunk_bytes, chunk_weights; /* bytes, of states and of weights */
    size_t pieces, runs;
    size_t blocks; /* units, a tail counts as one */
} zoff_plan_most;

/* The list of all parameters, block by block (a unit, or the tail of a slice), is cut into buckets; and a bucket, where there
 * are several ranks, into one part for each:
 *
 *      bucket 0                  bucket 1                       ...
 *      | part of 0 | part of 1 | part of 0 | part of 1 |
 *
 * The chunk of a bucket is what this rank owns of it: its part, or, where states are replicated, all of it. One rank alone
 * fills its chunks as far as the limits allow. Several ranks have parts that differ by one block at most, in each bucket and
 * in all of them together; a part may be empty.
 *
 * A plan holds what this rank owns, and of each bucket the runs of slices that it cuts. Where other ranks' parts begin follows
 * from numbers of blocks, so the plan does not grow with the number of ranks (docs/adr/0030-plan-of-one-rank.md). */
struct zoff_plan {
    zoff_plan_piece *pieces; /* of this rank, in order of parameter, slice, first; cut where parts of ranks begin */
    zoff_plan_piece *runs;   /* of all ranks, in the same order; cut where buckets begin. One rank alone: the same as pieces */
    zoff_plan_chunk *chunks; /* of this rank, one a bucket */
    size_t piece_count, run_count, chunk_count;
    size_t unit, blocks; /* of several ranks: in the list of all parameters */
    unsigned rank, ranks;
    bool replicated;
    size_t elements;       /* of this rank that are trained, without padding */
    size_t weight_bytes;   /* of weights that the engine keeps, without padding */
    size_t state_bytes;    /* of all streams, without padding */
    size_t owned_elements; /* with padding: length of the gradient accumulator */
    zoff_plan_most most;
    size_t max_chunk_elements, max_chunk_bytes; /* the limits that it was made with */
};

/* Cut the list into chunks.  @return ERR_INVALID when the sizes overflow; ERR_NO_MEMORY */
zoff_status zoff_zero_plan_make(const zoff_plan_tensor *tensors, size_t count, const zoff_plan_opts *opts, zoff_plan *out);
void zoff_zero_plan_free(zoff_plan *plan); /* a zeroed plan is allowed */

/* How many of the streams a parameter has. */
size_t zoff_zero_plan_streams(const zoff_plan_tensor *tensor);

/* Index of the piece of this rank that holds element `first` of a slice; SIZE_MAX when none does. */
size_t zoff_zero_plan_find(const zoff_plan *plan, uint32_t param, size_t slice, size_t first);
/* The same of the runs, which every rank has; SIZE_MAX where the element is empty, out of range, or frozen with its weights
 * elsewhere. Its bucket is the one of its chunk. */
size_t zoff_zero_plan_find_run(const zoff_plan *plan, uint32_t param, size_t slice, size_t first);

/* The pieces of a rank's part of a bucket, one after the other; without the offsets that its owner has for them.
 * @return whether there was another one */
zoff_plan_cursor zoff_zero_plan_part(const zoff_plan *plan, size_t bucket, unsigned rank);
bool zoff_zero_plan_next(zoff_plan_cursor *cursor, zoff_plan_piece *out);

/* This rank's part of a bucket. Where states are replicated its chunk has the other ranks' parts, too. */
zoff_plan_span zoff_zero_plan_own(const zoff_plan *plan, size_t bucket);

/* What a rank's part has of a run: how many elements, and the first of them in its slice. */
size_t zoff_zero_plan_share(const zoff_plan *plan, const zoff_plan_piece *run, unsigned rank, size_t *out_first);
/* The rank whose part an element of a run is in. */
unsigned zoff_zero_plan_rank_of(const zoff_plan *plan, const zoff_plan_piece *run, size_t element);

#endif
