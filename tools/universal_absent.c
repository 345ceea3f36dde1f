/* universal_absent.c: the verbs for DeepSpeed's universal checkpoint folders in a build without libzip. */
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
