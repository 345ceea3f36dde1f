/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: zoff's functions and host memory, for both plug-ins. A plug-in does not link libzoff: it calls back through the table
 * that libzoff passes to its entry. */
#ifndef ZOFF_CUDA_HOST_H
#define ZOFF_CUDA_HOST_H

#include "try.h"

#include "plugin_built_in.h"
#include <cuda_runtime_api.h>

#include <zoff/plugin.h>

/* Keep the table.  @return false if the plug-in was built for another ABI or version */
bool zoff_cuda_host_take(unsigned abi, const zoff_plugin_host *host);
void zoff_cuda_host_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Copy between two places in host memory, in the order of a stream.  @return cudaErrorMemoryAllocation: no host memory */
cudaError_t zoff_cuda_host_copy(cudaStream_t stream, void *dst, const void *src, size_t bytes);

#endif
