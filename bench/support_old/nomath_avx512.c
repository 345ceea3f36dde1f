/* nomath_avx512.c: the kernels with vectors of 64 bytes and the streaming stores of x86. */
#include <immintrin.h>

#define NOMATH_NAME avx512
#define LANES 16
#define GROUP 2
#define STREAM(to, x) _mm512_stream_si512((__m512i *)(void *)(to), (__m512i)(x))
#define FENCE() _mm_sfence()
#include "nomath_body.h"
