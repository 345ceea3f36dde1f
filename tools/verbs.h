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

/* --set KEY=VALUE; the argument is cut at its "=". */
int set_key(zoff_config *config, char *argument);

/* Flush stdout; a full disk or a closed pipe behind it is a failure. */
int finish_output(void);

#endif
