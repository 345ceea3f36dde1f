/* SPDX-License-Identifier: Apache-2.0 */
/* tune_priv.h: the two files that measure a folder. tune.c tries block sizes and depths, and tune_keep.c stores results and
 * reads them again. */
#ifndef ZOFF_AIO_TUNE_PRIV_H
#define ZOFF_AIO_TUNE_PRIV_H

#include <zoff/aio.h>

#define ZOFF_AIO_TUNE_FILE "zoff-aio-tune.json"

enum { ZOFF_AIO_TUNE_BLOCK_MOST = 4 << 20, ZOFF_AIO_TUNE_DEPTH_MOST = 32 };

/* tune_keep.c: load the folder's stored result into `io`, if device, file system, back-end and directness match those in `io`.
 * @return false: there is none that can be used */
bool zoff_aio_tune_keep_load(const char *folder, zoff_aio_tune_result *io);
void zoff_aio_tune_keep_store(const char *folder, const zoff_aio_tune_result *result);

#endif
