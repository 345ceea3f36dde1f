/* SPDX-License-Identifier: Apache-2.0 */
/* out_file.h: a file that appears under its name once it is complete and durable. */
#ifndef ZOFF_TOOL_OUT_FILE_H
#define ZOFF_TOOL_OUT_FILE_H

#include <stddef.h>
#include <stdio.h>

/* The end of a temporary name, which no other program uses: downloads that are cut end in ".part". */
#define OUT_FILE_PART ".zoff-part"

/* A file that is being written. All zero: none. */
typedef struct out_file {
    FILE *to;
    char *path, *part; /* final name, and temporary name, which ends in OUT_FILE_PART */
} out_file;

/* Begin to write a file. A file that a killed command has left under the temporary name is overwritten, and one that another
 * command writes is refused.  @return the exit status */
int out_file_open(out_file *f, const char *path);

/* Write bytes behind those written before.  @return the exit status */
int out_file_write(out_file *f, const void *bytes, size_t count);

/* Make the file durable, and give it its name in place of an older file.  @return the exit status */
int out_file_commit(out_file *f);

/* Make the name of a file or folder durable, by a flush of the folder it is in.  @return the exit status */
int out_file_sync_name(const char *path);

/* Remove a file that a killed command has left under its temporary name `part`; refuse one that another command writes.
 * @return the exit status */
int out_file_remove_left(const char *part);

/* Close a file; without a commit before, remove it. */
void out_file_close(out_file *f);

#endif
