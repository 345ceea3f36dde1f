// control.h: how a test steers the CUDA runtime that is made of threads (cudart.cc). Found by dlsym() in libcudart, so that the
// same test runs over the real one, where there is nothing to steer.
#ifndef ZOFF_TESTS_CUDA_CONTROL_H
#define ZOFF_TESTS_CUDA_CONTROL_H

#include <cstddef>

#ifdef __cplusplus
extern "C" {
#endif
// A call fails after so many that go well: an allocation for want of memory, from then on each; another one for the device is
// lost. "capture": streams are being captured.
void zoff_cudart_fail(const char *call, int after);
// Nothing fails any more, and any memory is pinned again.
void zoff_cudart_heal(void);
// No more bytes than this are pinned at a time.
void zoff_cudart_pin_most(size_t bytes);
#ifdef __cplusplus
}
#endif

#endif
