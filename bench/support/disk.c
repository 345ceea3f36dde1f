/* disk.c: the kernel's count of bytes on a disk: the numbers of /proc/diskstats, in the file of one disk. */
#include "disk.h"

#include "program.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

double bench_disk_moved(const char *path)
{
    enum { SECTOR = 512 }; /* whatever the disk has */
    struct stat about;
    char name[64];
    double reads, writes;
    if (stat(path, &about) != 0)
        return NAN;
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/partition", major(about.st_dev), minor(about.st_dev));
    const char *up = access(name, F_OK) == 0 ? "../" : "";
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/%sstat", major(about.st_dev), minor(about.st_dev), up);
    return bench_scan(name, 2, "%*s %*s %lf %*s %*s %*s %lf", &reads, &writes) ? SECTOR * (reads + writes) : NAN;
}
