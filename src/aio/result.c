/* result.c: the point that every result passes; see backend_priv.h for why it is alone in its file. */
#include "backend_priv.h"

int zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    (void)writes;
    (void)offset;
    (void)bytes;
    return res;
}
