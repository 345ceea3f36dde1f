/* SPDX-License-Identifier: Apache-2.0 */
/* result.c: the function that every result passes; backend_priv.h says why it has a file of its own. */
#include "backend_priv.h"

int zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    return res;
}
