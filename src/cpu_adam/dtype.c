/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c: size and name of an element type. */
#include "update_priv.h"

size_t zoff_adam_dtype_bytes(zoff_dtype dtype)
{
    switch (dtype) {
    case ZOFF_F32:
        return 4;
    case ZOFF_F16:
    case ZOFF_BF16:
        return 2;
    case ZOFF_DTYPE_DEFAULT:
        break;
    }
    return 0;
}

const char *zoff_adam_dtype_name(zoff_dtype dtype)
{
    switch (dtype) {
    case ZOFF_F32:
        return "fp32";
    case ZOFF_F16:
        return "fp16";
    case ZOFF_BF16:
        return "bf16";
    case ZOFF_DTYPE_DEFAULT:
        return "default";
    }
    return "unknown";
}
