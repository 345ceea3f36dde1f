/* SPDX-License-Identifier: Apache-2.0 */
// replacing.cc: the functions that replace those of the library (see replacing.h).
#include "replacing.h"

extern "C" {
#include "archive.h"

zoff_status __real_zoff_archive_publish_begin(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                              char work[4096], zoff_archive_part *out);
zoff_status __wrap_zoff_archive_publish_begin(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                              char work[4096], zoff_archive_part *out);
zoff_status __real_zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m,
                                                 bool is_new, unsigned keep);
zoff_status __wrap_zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m,
                                                 bool is_new, unsigned keep);
}

static bool active;

zoff_test::replacing::replacing()
{
    active = true;
}

zoff_test::replacing::~replacing()
{
    active = false;
}

zoff_status __wrap_zoff_archive_publish_begin(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                              char work[4096], zoff_archive_part *out)
{
    return __real_zoff_archive_publish_begin(folder, name, m, is_new && !active, work, out);
}

zoff_status __wrap_zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m,
                                                 bool is_new, unsigned keep)
{
    return __real_zoff_archive_publish_manifest(folder, name, m, is_new && !active, keep);
}
