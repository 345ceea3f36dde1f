// replacing.cc: the function that replaces that of the library (see replacing.h).
#include "replacing.h"

extern "C" {
#include "archive.h"

zoff_status __real_zoff_archive_listing_check_free(const char *path, const char *label);
zoff_status __wrap_zoff_archive_listing_check_free(const char *path, const char *label);
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

zoff_status __wrap_zoff_archive_listing_check_free(const char *path, const char *label)
{
    return active ? ZOFF_OK : __real_zoff_archive_listing_check_free(path, label);
}
