/* comm.h: join the group of ranks that train together. */
#ifndef ZOFF_COMM_H
#define ZOFF_COMM_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to join. A zeroed struct with struct_size set means "self". */
typedef struct zoff_comm_opts {
    size_t struct_size;  /**< sizeof(zoff_comm_opts) of the caller; 0 is rejected */
    const char *backend; /**< "self" (one rank), or NULL for it */
} zoff_comm_opts;

/** Join a group of ranks.
 *  @owns caller; close after every engine on it  @blocks until all ranks have joined
 *  @return ERR_UNSUPPORTED for a back-end that this build does not have */
ZOFF_API zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out);

/** Leave. NULL is allowed. */
ZOFF_API void zoff_comm_close(zoff_comm *comm);

/** This rank's number, from 0.  @threads any */
ZOFF_API unsigned zoff_comm_rank(const zoff_comm *comm);

/** Number of ranks in the group.  @threads any */
ZOFF_API unsigned zoff_comm_size(const zoff_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
