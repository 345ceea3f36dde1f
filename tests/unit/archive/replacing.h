/* SPDX-License-Identifier: Apache-2.0 */
// replacing.h: lets the writer of checkpoints replace one of the same name, as a save of an engine does. Add replacing.cc to
// the sources of a test, and -Wl,--wrap= for zoff_archive_publish_begin and zoff_archive_publish_manifest to its LINKS.
#ifndef ZOFF_ARCHIVE_REPLACING_H
#define ZOFF_ARCHIVE_REPLACING_H

namespace zoff_test
{
// The writer replaces checkpoints from its construction to its end. Only one object may exist at a time.
struct replacing {
    replacing();
    ~replacing();
    replacing(const replacing &) = delete;
};
} // namespace zoff_test

#endif
