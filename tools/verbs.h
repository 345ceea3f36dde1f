/* verbs.h: what the files of the zoff command share. */
#ifndef ZOFF_TOOL_VERBS_H
#define ZOFF_TOOL_VERBS_H

#include <zoff/types.h>

/* How the command ends. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Each takes the words behind the verb and returns how the command ends. */
int verb_check(int argc, char **argv);
int verb_info(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_reference(int argc, char **argv);
int verb_tune(int argc, char **argv);

/* Say on stderr how the command is used wrongly; returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Say on stderr what the library says; returns EXIT_FAILED. */
int library_error(void);

/* Read the configuration at `path` ("-": standard input) under `sets`, which are KEY=VALUE and are cut at their "=". Nothing in
 * *out where it fails. */
int open_config(const char *path, char **sets, int set_count, zoff_config **out);

/* The value of --ranks. */
int read_ranks(const char *text, unsigned *out);

/* Print the log lines of the library on stderr, or drop them. */
void set_log(bool prints);

/* Flush stdout; a full disk or a closed pipe behind it is a failure. */
int finish_output(void);

#endif
