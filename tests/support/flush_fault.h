/* SPDX-License-Identifier: Apache-2.0 */
// flush_fault.h: makes flushes of a drive fail. Add flush_fault.cc to the sources of a test, and -Wl,--wrap=fdatasync to its
// LINKS.
#ifndef ZOFF_FLUSH_FAULT_H
#define ZOFF_FLUSH_FAULT_H

namespace zoff_test
{
extern int failing_flushes; // number of flushes that will fail from now on
}

#endif
