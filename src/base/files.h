/* files.h: files that zoff makes. */
#ifndef ZOFF_BASE_FILES_H
#define ZOFF_BASE_FILES_H

#include <sys/stat.h>

/* Let the owner read and write a file that was just made. Under a umask that takes these rights away, the file could not be
 * opened again. */
static inline void zoff_base_files_own(int fd)
{
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0600) != 0600)
        (void)fchmod(fd, (st.st_mode & 0777) | 0600);
}

#endif
