/* SPDX-License-Identifier: Apache-2.0 */
// trainer_cuda.cc: the calls of CUDA and cuBLAS that the example trainer makes. Device memory is memory of the process, and
// streams are those of zoff's "emulated" device. Wrong use ends the program, so that a test fails.
#include "trainer_cuda.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <zoff/zoff.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace
{
[[noreturn]] void give_up(const char *words)
{
    fprintf(stderr, "trainer_cuda: %s\n", words);
    abort();
}

void check(bool holds, const char *words)
{
    if (!holds)
        give_up(words);
}

// One device owns all streams; it is never closed.
zoff_accel *device()
{
    static zoff_accel *const opened = [] {
        zoff_accel *accel = nullptr;
        check(zoff_accel_open("emulated", 0, &accel) == ZOFF_OK, "no emulated device");
        return accel;
    }();
    return opened;
}

void run_and_free(void *ctx)
{
    auto work = static_cast<std::function<void()> *>(ctx);
    (*work)();
    delete work;
}

// Unwritten memory reads as NaN.
cudaError_t allocate(void **out, size_t bytes)
{
    *out = aligned_alloc(256, (bytes + 255) & ~static_cast<size_t>(255));
    if (!*out)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    return cudaSuccess;
}
} // namespace

// Counts how often the event was recorded, and how many of these records the stream has passed.
struct CUevent_st {
    std::mutex lock;
    std::condition_variable passed;
    uint64_t recorded = 0, reached = 0;
};

struct cublasContext {
    cudaStream_t stream = nullptr;
};

void cuda_host_put(cudaStream_t stream, std::function<void()> work)
{
    check(stream != nullptr, "work for the default stream, which waits for all others");
    check(zoff_accel_stream_call(device(), stream, run_and_free, new std::function<void()>(std::move(work))) == ZOFF_OK,
          "a stream takes no more work");
}

// ---- the runtime ----

extern "C" {
cudaError_t cudaSetDevice(int index)
{
    return index == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid device ordinal";
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return allocate(out, bytes);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return allocate(out, bytes);
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    cuda_host_put(stream, [=] { memcpy(dst, src, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    cuda_host_put(stream, [=] { memset(memory, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    void *stream = nullptr;
    check(zoff_accel_stream_open(device(), &stream) == ZOFF_OK, "no stream");
    *out = static_cast<cudaStream_t>(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    check(zoff_accel_stream_wait(device(), stream) == ZOFF_OK, "a stream cannot be waited for");
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    zoff_accel_stream_close(device(), stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = new CUevent_st;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    std::unique_lock<std::mutex> hold(event->lock);
    const uint64_t number = ++event->recorded;
    hold.unlock();
    cuda_host_put(stream, [=] {
        std::lock_guard<std::mutex> held(event->lock);
        event->reached = number;
        event->passed.notify_all();
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::unique_lock<std::mutex> hold(event->lock);
    const uint64_t number = event->recorded;
    event->passed.wait(hold, [=] { return event->reached >= number; });
    return cudaSuccess;
}
}

// ---- cuBLAS: matrices are stored by columns ----

namespace
{
struct product {
    bool first_transposed, second_transposed, fp32;
    size_t m, n, k, first_stride, second_stride, out_stride; // strides: elements from one column to the next
    float alpha;
};

float load(const void *matrix, size_t at)
{
    return __bfloat162float(static_cast<const __nv_bfloat16 *>(matrix)[at]);
}

void multiply(const product &p, const void *first, const void *second, void *out)
{
    for (size_t column = 0; column < p.n; column++)
        for (size_t row = 0; row < p.m; row++) {
            float sum = 0.0f;
            for (size_t i = 0; i < p.k; i++)
                sum += load(first, p.first_transposed ? row * p.first_stride + i : i * p.first_stride + row) *
                       load(second, p.second_transposed ? i * p.second_stride + column : column * p.second_stride + i);
            const size_t at = column * p.out_stride + row;
            if (p.fp32)
                static_cast<float *>(out)[at] = p.alpha * sum;
            else
                static_cast<__nv_bfloat16 *>(out)[at] = __float2bfloat16(p.alpha * sum);
        }
}

const char *at(const void *matrix, size_t elements, size_t element_bytes)
{
    return static_cast<const char *>(matrix) + elements * element_bytes;
}
} // namespace

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    *out = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t blas)
{
    delete blas;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t blas, cudaStream_t stream)
{
    blas->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t)
{
    return "an argument is wrong";
}

// Checks the leading dimensions as the manual demands. Other arguments must be those that the trainer uses.
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t blas, cublasOperation_t first_operation,
                                          cublasOperation_t second_operation, int m, int n, int k, const void *alpha,
                                          const void *first, cudaDataType first_type, int first_stride, long long first_step,
                                          const void *second, cudaDataType second_type, int second_stride,
                                          long long second_step, const void *beta, void *out, cudaDataType out_type,
                                          int out_stride, long long out_step, int count, cublasComputeType_t compute,
                                          cublasGemmAlgo_t)
{
    const product p = {first_operation == CUBLAS_OP_T,
                       second_operation == CUBLAS_OP_T,
                       out_type == CUDA_R_32F,
                       static_cast<size_t>(m),
                       static_cast<size_t>(n),
                       static_cast<size_t>(k),
                       static_cast<size_t>(first_stride),
                       static_cast<size_t>(second_stride),
                       static_cast<size_t>(out_stride),
                       *static_cast<const float *>(alpha)};
    check(first_type == CUDA_R_16BF && second_type == CUDA_R_16BF && (p.fp32 || out_type == CUDA_R_16BF) &&
              compute == CUBLAS_COMPUTE_32F && *static_cast<const float *>(beta) == 0.0f,
          "a product of a kind that is not here");
    if (m < 1 || n < 1 || k < 1 || count < 1 || first_stride < (p.first_transposed ? k : m) ||
        second_stride < (p.second_transposed ? n : k) || out_stride < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    cuda_host_put(blas->stream, [=] {
        for (size_t i = 0; i < static_cast<size_t>(count); i++)
            multiply(p, at(first, i * static_cast<size_t>(first_step), 2), at(second, i * static_cast<size_t>(second_step), 2),
                     const_cast<char *>(at(out, i * static_cast<size_t>(out_step), p.fp32 ? 4 : 2)));
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t blas, cublasOperation_t first_operation, cublasOperation_t second_operation, int m,
                            int n, int k, const void *alpha, const void *first, cudaDataType first_type, int first_stride,
                            const void *second, cudaDataType second_type, int second_stride, const void *beta, void *out,
                            cudaDataType out_type, int out_stride, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    return cublasGemmStridedBatchedEx(blas, first_operation, second_operation, m, n, k, alpha, first, first_type, first_stride,
                                      0, second, second_type, second_stride, 0, beta, out, out_type, out_stride, 0, 1, compute,
                                      algorithm);
}
}
