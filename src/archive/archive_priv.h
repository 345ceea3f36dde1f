/* archive_priv.h: what the files of this room share. */
#ifndef ZOFF_ARCHIVE_PRIV_H
#define ZOFF_ARCHIVE_PRIV_H

#include "archive.h"

/* The end of a manifest, around the 16 digits of its checksum. */
#define ZOFF_ARCHIVE_CHECKSUM_BEFORE ",\n  \"checksum\": \""
#define ZOFF_ARCHIVE_CHECKSUM_AFTER "\"\n}\n"

/* The most bytes of a manifest that are read. */
#define ZOFF_ARCHIVE_MANIFEST_MOST ((size_t)4 << 30)

/* Words in a manifest. */
const char *zoff_archive_manifest_kind(unsigned kind);
const char *zoff_archive_manifest_dtype(zoff_dtype dtype);

/* folder.c: read all of these bytes.  @return ERR_IO; ERR_CORRUPT where the file ends before */
zoff_status zoff_archive_folder_pread(int fd, const char *path, uint64_t offset, void *dst, size_t bytes);

#endif
