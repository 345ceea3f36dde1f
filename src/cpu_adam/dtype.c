/* dtype.c: size and name of an element type, and the layout of moments. */
#include "q8.h"
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

size_t zoff_adam_moments_size(zoff_moments moments, zoff_moment which, size_t count)
{
    const size_t width = zoff_adam_update_moment_width(moments, which);
    const size_t blocks = count / ZOFF_NORM_BLOCK + (count % ZOFF_NORM_BLOCK != 0);
    return width == 1 ? count + blocks * Q8_HEADER : count * width;
}

size_t zoff_adam_moments_offset(zoff_moments moments, zoff_moment which, size_t first)
{
    const size_t width = zoff_adam_update_moment_width(moments, which);
    return width == 1 ? q8_block_at(first) : first * width;
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
