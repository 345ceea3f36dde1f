/* emulated_priv.h: the kernels of a device made of threads (emulated_kernels.c), for its table in emulated.c. */
#ifndef ZOFF_ACCEL_EMULATED_PRIV_H
#define ZOFF_ACCEL_EMULATED_PRIV_H

#include "accel.h"

zoff_status zoff_accel_emulated_kernels_update(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count);
zoff_status zoff_accel_emulated_kernels_accumulate(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces,
                                                   size_t count);
zoff_status zoff_accel_emulated_kernels_cast(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count);
zoff_status zoff_accel_emulated_kernels_square_sum(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces,
                                                   size_t count);

#endif
