/* SPDX-License-Identifier: Apache-2.0 */
/* libzip_absent.c: the verbs for files of PyTorch and DeepSpeed's universal checkpoint folders in a build without libzip. */
#include "torch_contents.h"
#include "universal_verbs.h"
#include "verbs.h"

static int refuse(void)
{
    return failed("this zoff was built without libzip, which reads and writes the files of PyTorch; install it (on Debian or "
                  "Ubuntu: apt-get install libzip-dev), configure again, and build");
}

int universal_import(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return refuse();
}

int universal_export(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return refuse();
}

int verb_import_torch(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return refuse();
}

bool torch_contents_kind(const char *path, torch_kind *out_kind)
{
    (void)path;
    (void)out_kind;
    return false;
}
