/* SPDX-License-Identifier: Apache-2.0 */
// control.h: functions with which a test steers the CUDA runtime made of threads (cudart.cc). Tests find them by dlsym() in
// libcudart, so that the same test also runs over the real one, where they do not exist.
#ifndef ZOFF_TESTS_CUDA_CONTROL_H
#define ZOFF_TESTS_CUDA_CONTROL_H

#include <cstddef>

#ifdef __cplusplus
extern "C" {
#endif
// Let a call fail after `after` successes. An allocation then fails always, for lack of memory; any other call loses the
// device. "capture": all streams count as being captured.
void zoff_cudart_fail(const char *call, int after);
// End all failures and all limits on pinned memory.
void zoff_cudart_heal(void);
// Refuse to pin more bytes than this at a time.
void zoff_cudart_pin_most(size_t bytes);
#ifdef __cplusplus
}
#endif

#endif
