/* SPDX-License-Identifier: Apache-2.0 */
// nccl_control.h: functions with which a test steers the NCCL made of threads (nccl.cc). Tests find them by dlsym() in libnccl,
// like those of control.h in libcudart.
#ifndef ZOFF_TESTS_CUDA_NCCL_CONTROL_H
#define ZOFF_TESTS_CUDA_NCCL_CONTROL_H

#ifdef __cplusplus
extern "C" {
#endif
// Let a call fail once with ncclSystemError after `after` successes.
void zoff_nccl_fail(const char *call, int after);
// From now on all communicators of that rank report an asynchronous failure: ncclRemoteError.
void zoff_nccl_break(int rank);
// Block all work of that rank in its streams, now and later, until its communicators are aborted.
void zoff_nccl_stop(int rank);
// Messages of that rank leave its stream at once, and arrive so much later. If the rank aborts before, they never arrive, and
// their receivers report ncclRemoteError.
void zoff_nccl_delay(int rank, int milliseconds);
void zoff_nccl_heal(void);
// Behave as this version of NCCL; 0: the version of its header. Before 2.27 (22700) a thread can have one group in progress at
// a time, up to a call that needs its communicator ready. Before 2.26 not even a query of the communicator's state ends the
// group.
void zoff_nccl_pretend(int version);
// True if the calling thread has a group in progress.
int zoff_nccl_under_way(void);
// Number of open communicators.
int zoff_nccl_count(void);
#ifdef __cplusplus
}
#endif

#endif
