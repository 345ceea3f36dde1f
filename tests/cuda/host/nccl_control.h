// nccl_control.h: how a test steers the NCCL that is made of threads (nccl.cc). Found by dlsym() in libnccl, as those of
// control.h are in libcudart.
#ifndef ZOFF_TESTS_CUDA_NCCL_CONTROL_H
#define ZOFF_TESTS_CUDA_NCCL_CONTROL_H

#ifdef __cplusplus
extern "C" {
#endif
// A call fails with ncclSystemError after so many that go well, once.
void zoff_nccl_fail(const char *call, int after);
// All communicators of that rank say from now on that something has failed meanwhile: ncclRemoteError.
void zoff_nccl_break(int rank);
// What that rank has put and puts into its streams does not go on until its communicators are aborted.
void zoff_nccl_stop(int rank);
void zoff_nccl_heal(void);
// NCCL is that version from now on: 0, that of its header. Before 2.27 (22700) a thread has one group under way at a time, up
// to a call that wants its communicator ready, before 2.26 even the communicator's state does not do.
void zoff_nccl_pretend(int version);
// Whether the calling thread has one.
int zoff_nccl_under_way(void);
// Communicators there are.
int zoff_nccl_count(void);
#ifdef __cplusplus
}
#endif

#endif
