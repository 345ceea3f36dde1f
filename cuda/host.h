/* host.h: what both plug-ins have of zoff and of the host's memory. A plug-in links nothing of zoff: what it says goes back
 * through the table that it was given. */
#ifndef ZOFF_CUDA_HOST_H
#define ZOFF_CUDA_HOST_H

#include "try.h"

#include "plugin_built_in.h"
#include <cuda_runtime_api.h>

#include <zoff/plugin.h>

/* Keep the table.  @return false for an abi or a version that the plug-in was not built with */
bool zoff_cuda_host_take(unsigned abi, const zoff_plugin_host *host);
void zoff_cuda_host_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Copy between two places of the host's memory, in its turn in a stream.  @return cudaErrorMemoryAllocation: of the host's */
cudaError_t zoff_cuda_host_copy(cudaStream_t stream, void *dst, const void *src, size_t bytes);

#endif
