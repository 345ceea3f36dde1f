/* disk.h: what the kernel counts for a disk. */
#ifndef ZOFF_BENCH_DISK_H
#define ZOFF_BENCH_DISK_H

/* Bytes that were read from and written to the disk with a file or folder, since the system has started: of the whole disk,
 * also if the file is on a partition. NAN if the kernel has no count, as for a file system in memory or one made of layers. */
double bench_disk_moved(const char *path);

#endif
