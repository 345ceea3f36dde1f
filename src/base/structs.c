/* SPDX-License-Identifier: Apache-2.0 */
/* structs.c: structs that programs pass to the library, which grow at their end. */
#include "structs.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* No struct of any version is as large, so such a struct_size was never set. */
enum { MOST_BYTES = 1 << 16 };

static size_t size_of(const void *given)
{
    size_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    return bytes;
}

zoff_status zoff_base_structs_check_out(const char *name, const char *start, const void *out)
{
    const size_t bytes = size_of(out);
    ZOFF_FAIL_IF(bytes < sizeof bytes || bytes > MOST_BYTES, ZOFF_ERR_INVALID,
                 "%s.struct_size is %zu; start from %s, which sets it to sizeof(%s)", name, bytes, start, name);
    return ZOFF_OK;
}

zoff_status zoff_base_structs_check(const char *name, const char *start, const void *given, size_t known_bytes)
{
    ZOFF_TRY(zoff_base_structs_check_out(name, start, given));
    const size_t bytes = size_of(given);
    const unsigned char *all = given;
    for (size_t i = known_bytes; i < bytes; i++) {
        ZOFF_FAIL_IF(all[i], ZOFF_ERR_UNSUPPORTED,
                     "%s has a field at byte %zu that zoff %u.%u.%u does not know, and it is not zero. Link the version that "
                     "the program was compiled for, or start from %s",
                     name, i, (unsigned)ZOFF_VERSION_MAJOR, (unsigned)ZOFF_VERSION_MINOR, (unsigned)ZOFF_VERSION_PATCH, start);
    }
    return ZOFF_OK;
}

zoff_status zoff_base_structs_read(const char *name, const char *start, const void *given, void *known, size_t known_bytes)
{
    ZOFF_TRY(zoff_base_structs_check(name, start, given, known_bytes));
    memcpy(known, given, zoff_base_bits_min(size_of(given), known_bytes));
    memcpy(known, &known_bytes, sizeof known_bytes);
    return ZOFF_OK;
}

void zoff_base_structs_write(const void *known, size_t known_bytes, void *out)
{
    const size_t bytes = size_of(out), head = sizeof bytes, common = zoff_base_bits_min(bytes, known_bytes);
    memcpy((char *)out + head, (const char *)known + head, common - head);
    memset((char *)out + common, 0, bytes - common);
}
