/* SPDX-License-Identifier: Apache-2.0 */
// flush_fault.cc: the function that replaces that of the system (see flush_fault.h).
#include "flush_fault.h"

#include <errno.h>

extern "C" {
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
}

int zoff_test::failing_flushes;

int __wrap_fdatasync(int fd)
{
    if (zoff_test::failing_flushes && zoff_test::failing_flushes--) {
        errno = EIO;
        return -1;
    }
    return __real_fdatasync(fd);
}
