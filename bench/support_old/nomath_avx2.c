/* nomath_avx2.c: the kernels with vectors of 32 bytes and the streaming stores of x86. */
#include <immintrin.h>

#define NOMATH_NAME avx2
#define LANES 8
#define GROUP 2
#define STREAM(to, x) _mm256_stream_si256((__m256i *)(void *)(to), (__m256i)(x))
#define FENCE() _mm_sfence()
#include "nomath_body.h"
