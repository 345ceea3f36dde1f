/* accel.h: open the device on which weights and gradients live. */
#ifndef ZOFF_ACCEL_H
#define ZOFF_ACCEL_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Open device `index` of a back-end. "host" is the CPU itself: weights and gradients are updated in place, without copies.
 *  @owns caller; close after every engine on it  @threads any
 *  @return ERR_UNSUPPORTED for a back-end that this build does not have */
ZOFF_API zoff_status zoff_accel_open(const char *backend, int index, zoff_accel **out);

/** Close. NULL is allowed. */
ZOFF_API void zoff_accel_close(zoff_accel *accel);

#ifdef __cplusplus
}
#endif
#endif
