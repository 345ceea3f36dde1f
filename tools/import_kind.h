/* SPDX-License-Identifier: Apache-2.0 */
/* import_kind.h: names what a file or folder is that somebody wants to import or to open, and what reads or converts it. */
#ifndef ZOFF_TOOL_IMPORT_KIND_H
#define ZOFF_TOOL_IMPORT_KIND_H

/* Refuse a path that another verb reads, or that must be converted first. A path that does not exist or is of no known kind is
 * left to the verb.
 * @param verb "safetensors", "torch", "universal", or "optimizer" for the option of that name  @return the exit status */
int import_kind_check(const char *path, const char *verb);

/* Tell what the path is, and what reads or converts it.  @return EXIT_FAILED */
int import_kind_tell(const char *path);

/* Add a note where no checkpoint was found at the path, if it is known to be something else, such as state files. */
void import_kind_note(const char *path);

/* Print the error of the library about a checkpoint that was not opened, and such a note.  @return EXIT_FAILED */
int import_kind_no_checkpoint(const char *path);

#endif
