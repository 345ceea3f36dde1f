/* SPDX-License-Identifier: Apache-2.0 */
/* aio.h: the door of the aio room: bytes between one file and memory. Other rooms use the same calls as a program that uses the
 * queue alone. They may also limit their waits. */
#ifndef ZOFF_AIO_AIO_H
#define ZOFF_AIO_AIO_H

#include <zoff/aio.h>

/* Whether a back-end ("io_uring") works here.  @return ERR_UNSUPPORTED with the reason */
zoff_status zoff_aio_backend_probe(const char *name);

/* Like zoff_aio_open(), on a file that the caller has open as `held`. A file that is only read needs its name no more. Symbolic
 * links are not followed, and another file under the same name is refused. An empty file counts as the caller's own: O_DIRECT
 * is tried by a write. */
zoff_status zoff_aio_queue_open(const char *path, int held, const zoff_aio_opts *opts, zoff_aio **out);

/* From now on zoff_aio_wait() and zoff_aio_wait_any() return PENDING if no transfer has completed for this time. Transfers stay
 * in flight, tickets stay valid, and the kernel may still access the memory. Negative: no limit, which is the default. Any
 * thread may call it; a wait learns of it within a second. The "posix" back-end moves bytes inside the caller's calls and
 * cannot be limited. */
void zoff_aio_queue_limit(zoff_aio *q, double seconds);

/* Close, as zoff_aio_close() does.  @return false: some transfers are still in flight after the limit. Then nothing was freed,
 * because the kernel may still access the memory and the file. Do not reuse either in the life of the process. */
bool zoff_aio_queue_close(zoff_aio *q);

/* Descriptor of the queue's file, for reading it beside the queue. It has O_DIRECT if the queue uses it. */
int zoff_aio_queue_fd(const zoff_aio *q);

/* The times at which the transfer of a ticket was accepted and was found complete, by zoff_trace_now(). Call it directly after
 * the call that gave the ticket's result. */
void zoff_aio_queue_times(const zoff_aio *q, uint64_t ticket, double *out_began, double *out_ended);

/* Open a second queue on the file of `of`, for reading it in another thread. The file may have no name any more.
 * @owns caller; zoff_aio_close() */
zoff_status zoff_aio_queue_share(const zoff_aio *of, zoff_aio **out);

#endif
