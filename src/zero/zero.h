/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h: plans which rank owns which elements of the parameters, in which chunk they lie, and at which offset. The plan knows
 * neither the values of states, nor files, nor data types, only the bytes of an element. reduce.h and gather.h exchange the
 * data between ranks. */
#ifndef ZOFF_ZERO_H
#define ZOFF_ZERO_H

#include <zoff/types.h>

/* The streams of a chunk, in the order in which the chunk stores them: master weights, first moments, second moments. Which of
 * them a parameter has depends on its type (fp32 weights are their own master weights) and on its optimizer. */
typedef enum zoff_plan_stream { ZOFF_STREAM_MASTER, ZOFF_STREAM_M, ZOFF_STREAM_V, ZOFF_STREAM_COUNT } zoff_plan_stream;

/* One parameter as the plan sees it. */
typedef struct zoff_plan_tensor {
    size_t count, slices;
    bool frozen;
    size_t bytes[ZOFF_STREAM_COUNT];   /* bytes of an element in each stream; 0: the parameter lacks the stream */
    size_t weight_bytes;               /* bytes of one weight if the engine stores it; 0: weights are in the caller's memory */
    size_t block;                      /* elements that share a header; it divides the plan's unit */
    size_t headers[ZOFF_STREAM_COUNT]; /* bytes of the header before each block, in each stream; 0: there are none */
    const size_t *matrix_ends;         /* where each matrix of a slice ends, the last one at `count`; NULL: there are none */
    size_t matrices;                   /* number of them */
} zoff_plan_tensor;

/* Bytes of the first `count` elements of a slice in a stream, from a multiple of the plan's unit on. Such a multiple is also
 * the offset of the element with this number. */
static inline size_t zoff_zero_plan_bytes(const zoff_plan_tensor *tensor, unsigned stream, size_t count)
{
    const size_t header = tensor->headers[stream];
    return count * tensor->bytes[stream] + (header ? (count + tensor->block - 1) / tensor->block * header : 0);
}

/* A run of elements of one slice of one parameter that lies in one bucket. */
typedef struct zoff_plan_piece {
    uint32_t param;
    uint32_t bucket;
    size_t block; /* index of its first block in the list of all parameters, see zoff_plan */
    size_t slice;
    size_t first; /* first element in the slice; a multiple of the plan's unit */
    size_t count;
    /* The offsets are valid only in pieces that this rank owns. */
    size_t offsets[ZOFF_STREAM_COUNT]; /* bytes in the chunk's streams; meaningless for a stream that the parameter lacks */
    size_t weight_offset;              /* bytes in the chunk's weights; meaningless for weights of the caller */
    size_t owned_offset;               /* elements in the rank's gradient accumulator, with padding */
} zoff_plan_piece;

/* A chunk: the unit in which states are stored and moved. In memory and in the file it has up to three streams, one after the
 * other:
 *
 *      | master | m | v |
 *
 * The streams start at different pages modulo 32 KiB. Otherwise they would compete for the same sets of the cache
 * (docs/adr/0005-plan.md). Each stream holds the elements of the pieces whose parameter has that state. So the lengths
 * may differ, and a stream that no parameter needs is absent. A chunk of parameters without states (SGD without momentum on
 * fp32 weights) has no bytes.
 *
 * Weights that the engine stores have memory of their own, because they may live on another tier and are read without the
 * states. A frozen parameter has only weights. If these are the caller's, the parameter is in no chunk. */
typedef struct zoff_plan_chunk {
    size_t first_piece, piece_count;   /* pieces of the chunk, in plan.pieces */
    size_t first_run, run_count;       /* runs of the bucket, in plan.runs */
    size_t round;                      /* number of its round, from 1; 0: the chunk has no matrices */
    size_t elements;                   /* elements without padding, including frozen ones */
    size_t blocks;                     /* number of units; a shorter tail counts as one */
    size_t lengths[ZOFF_STREAM_COUNT]; /* bytes of each stream, with padding; 0: absent */
    size_t starts[ZOFF_STREAM_COUNT];  /* offset of each stream in bytes */
    size_t bytes;                      /* size of the streams, a multiple of 4 KiB */
    size_t weight_bytes;               /* size of the stored weights, a multiple of 4 KiB */
} zoff_plan_chunk;

/* A range of plan.pieces. */
typedef struct zoff_plan_span {
    size_t first_piece, piece_count;
} zoff_plan_span;

/* Matrices that are stepped together, and their buckets. */
typedef struct zoff_plan_round {
    size_t first_chunk, chunk_count;
    size_t elements; /* of all ranks */
} zoff_plan_round;

typedef struct zoff_plan_rounds {
    zoff_plan_round *all;
    size_t count;
    bool *has_param; /* by parameter: it has matrices; NULL: none has */
} zoff_plan_rounds;

typedef struct zoff_plan zoff_plan;

/* An iterator over the pieces of a rank's part of a bucket. The pieces are computed, not stored. */
typedef struct zoff_plan_cursor {
    const zoff_plan *plan;
    size_t run, block, end;
} zoff_plan_cursor;

/* Pieces are padded, so that each starts at a cache line of its stream: to bytes in streams, to elements in the accumulator. */
enum { ZOFF_PLAN_LINE = 64, ZOFF_PLAN_PAD = 16 };

typedef struct zoff_plan_opts {
    size_t unit;               /* elements of a unit; pieces are cut at its multiples, so that blocks of the norm stay whole */
    size_t max_chunk_elements; /* a chunk gets at least one unit, even if that is beyond the limits */
    size_t max_chunk_bytes;    /* bytes with padding */
    unsigned rank, ranks;      /* ranks 0 means 1 */
    bool replicated;           /* each rank owns all of every bucket */
    size_t max_bucket_units;   /* most units of a bucket, for several ranks only; 0: no limit */
    size_t round_elements;     /* fewest elements of a round, as far as there are matrices */
} zoff_plan_opts;

/* The maximum of each quantity over all chunks. */
typedef struct zoff_plan_most {
    size_t chunk_bytes, chunk_weights; /* bytes of states, and bytes of weights */
    size_t pieces, runs;
    size_t blocks; /* number of units; a shorter tail counts as one */
} zoff_plan_most;

/* A plan lists the elements of all parameters in blocks. A block is one unit, or the shorter tail of a slice. The list is cut
 * into buckets. With several ranks, each bucket is cut into one part for each rank:
 *
 *      bucket 0                  bucket 1                       ...
 *      | part of 0 | part of 1 | part of 0 | part of 1 |
 *
 * The chunk of a bucket holds the elements that this rank owns: its part, or the whole bucket if states are replicated. A
 * single rank fills its chunks as far as the limits allow. The parts of several ranks differ by at most one block, in each
 * bucket and in total. A part may be empty.
 *
 * Matrices come behind all other parameters, because an optimizer needs a whole matrix before it can update any part of it.
 * Consecutive matrices form a round: at least one for each rank, and so many that they fill a bucket. A round ends where a
 * matrix ends at a unit or with its slice, and a bucket lies in one round. So only the buckets of a round wait for each other.
 *
 * A plan stores the pieces that this rank owns, and the runs of slices in each bucket. The parts of other ranks are computed
 * from numbers of blocks. So the plan does not grow with the number of ranks (docs/adr/0005-plan.md#0030). */
struct zoff_plan {
    zoff_plan_piece *pieces; /* pieces of this rank, ordered by parameter, slice, first, those of matrices behind the others;
                                cut where a rank's part begins */
    zoff_plan_piece *runs;   /* runs of all ranks in the same order, cut where a bucket begins. With a single rank: `pieces` */
    zoff_plan_chunk *chunks; /* chunks of this rank, one for each bucket */
    zoff_plan_rounds rounds;
    size_t piece_count, run_count, chunk_count;
    size_t unit, blocks; /* elements of a unit; blocks in the list, set only with several ranks */
    unsigned rank, ranks;
    bool replicated;
    size_t elements;       /* trained elements that this rank owns, without padding */
    size_t weight_bytes;   /* weights that the engine stores, without padding */
    size_t state_bytes;    /* bytes of all streams, without padding */
    size_t owned_elements; /* length of the gradient accumulator, with padding */
    zoff_plan_most most;
    size_t max_chunk_elements, max_chunk_bytes; /* the limits from zoff_plan_opts */
};

/* Make a plan for `count` parameters. Free it with zoff_zero_plan_free().  @return ERR_INVALID if sizes overflow; ERR_NO_MEMORY
 */
zoff_status zoff_zero_plan_make(const zoff_plan_tensor *tensors, size_t count, const zoff_plan_opts *opts, zoff_plan *out);
void zoff_zero_plan_free(zoff_plan *plan); /* a zeroed plan is allowed */

/* The byte of a chunk where a stream that it has ends, with its padding: where the next one starts. */
size_t zoff_zero_plan_end(const zoff_plan_chunk *chunk, unsigned stream);

/* Number of streams that a parameter has; bytes of `count` elements in all of them, as zoff_zero_plan_bytes(). */
size_t zoff_zero_plan_streams(const zoff_plan_tensor *tensor);
size_t zoff_zero_plan_state_bytes(const zoff_plan_tensor *tensor, size_t count);

/* Index of the piece of this rank that holds element `first` of a slice; SIZE_MAX when none does. */
size_t zoff_zero_plan_find(const zoff_plan *plan, uint32_t param, size_t slice, size_t first);
/* Index of the run that holds element `first` of a slice, whichever rank owns the element. SIZE_MAX if the parameter is empty,
 * the element is out of range, or the parameter is frozen and its weights are the caller's. The run's bucket is also the index
 * of its chunk. */
size_t zoff_zero_plan_find_run(const zoff_plan *plan, uint32_t param, size_t slice, size_t first);

/* Iterate over the pieces of a rank's part of a bucket. Their offsets are not set, because only the owner knows them.
 * @return zoff_zero_plan_next(): whether there was another piece */
zoff_plan_cursor zoff_zero_plan_part(const zoff_plan *plan, size_t bucket, unsigned rank);
bool zoff_zero_plan_next(zoff_plan_cursor *cursor, zoff_plan_piece *out);

/* The pieces of this rank's part of a bucket. If states are replicated, its chunk has the parts of other ranks as well. */
zoff_plan_span zoff_zero_plan_own(const zoff_plan *plan, size_t bucket);

/* The pieces of this rank in whole buckets. Buckets that all ranks have are given to the ranks in turns. */
zoff_plan_span zoff_zero_plan_own_whole(const zoff_plan *plan, size_t bucket);

/* The overlap of a rank's part with a run: returns the number of elements, and sets *out_first to the first one in the slice.
 */
size_t zoff_zero_plan_share(const zoff_plan *plan, const zoff_plan_piece *run, unsigned rank, size_t *out_first);
/* The rank whose part contains an element of a run. `element` counts from the start of the slice. */
unsigned zoff_zero_plan_rank_of(const zoff_plan *plan, const zoff_plan_piece *run, size_t element);

#endif
