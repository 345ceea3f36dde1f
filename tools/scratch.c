/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.c: temporary folders of the zoff command. */
#include "verbs.h"

#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

int make_scratch(const char *in, char out[SCRATCH_BYTES])
{
    const char *temporary = in ? in : getenv("TMPDIR");
    temporary = temporary && *temporary ? temporary : "/tmp";
    /* Make the path absolute, because a relative one could begin as JSON does, and be read as a list. */
    const int length = snprintf(out, SCRATCH_BYTES, "%s%s/zoff-XXXXXX", *temporary == '/' ? "" : "./", temporary);
    if (length >= SCRATCH_BYTES || !mkdtemp(out))
        return failed("cannot make the folder %s: %s one that can be written", out, in ? "name" : "set TMPDIR to");
    return EXIT_DONE;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

void remove_scratch(const char *folder)
{
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
