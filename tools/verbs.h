/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h: functions that the files of the zoff command share. */
#ifndef ZOFF_TOOL_VERBS_H
#define ZOFF_TOOL_VERBS_H

#include <stdio.h>
#include <zoff/engine.h>

/* Exit status of the command. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* The verbs. Each takes the arguments behind its name, and returns the exit status. */
int verb_api(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_checkpoint(int argc, char **argv);
int verb_checkpoint_inspect(int argc, char **argv);
int verb_checkpoint_list(int argc, char **argv);
int verb_checkpoint_reshard(int argc, char **argv);
int verb_checkpoint_scrub(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_import(int argc, char **argv);
int verb_import_safetensors(int argc, char **argv);
int verb_import_torch(int argc, char **argv);
int verb_info(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_reference(int argc, char **argv);
int verb_schema(int argc, char **argv);
int verb_selftest(int argc, char **argv);
int verb_tune(int argc, char **argv);

/* Print formatted text. Names out of files may have any bytes: control characters, line ends among them, and bytes that are no
 * UTF-8 become \xNN, so that a terminal sees no command and a line stays one line. The second function adds a line
 * end. All messages below print in this way. */
void print_text(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void print_line(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print text on stdout in the same way, but with its line ends. */
void print_lines(const char *text);

/* Print a text of JSON on stdout of which each character stands for one byte. */
void print_json_text(const char *text);

/* Print an error about the arguments on stderr; returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print "error: " and a message on stderr; returns EXIT_FAILED. */
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print zoff_last_error() on stderr; returns EXIT_FAILED. */
int library_error(void);

/* Set the values in `sets`, then read the configuration at `path` ("-" means standard input). Each of the `sets` is KEY=VALUE,
 * and is cut at its "=". On success the caller closes *out; on a failure *out is not written.  @return the exit status */
int open_config(const char *path, char **sets, int set_count, zoff_config **out);

/* Read the value of --ranks.  @return the exit status */
int read_ranks(const char *text, unsigned *out);

/* plan.c: plan parameters with an engine that is never sealed, so nothing is allocated and no folder is touched. The engine
 * is rank 0 of `ranks`, at most MOST_RANKS, in nodes of `node_ranks`; 0: unknown. `device` may be NULL.  @return the exit
 * status */
enum { MOST_RANKS = 16384 };
int plan_params(zoff_config *config, unsigned ranks, unsigned node_ranks, zoff_accel *device, const zoff_param_desc *params,
                size_t count, zoff_plan_info *info);

/* Remove the names of matrices from a configuration, because an engine of other parameters refuses them. */
bool drop_matrix_names(zoff_config *config);

/* scratch.c: make a folder in `in`; NULL: in TMPDIR, or /tmp.  @return the exit status */
enum { SCRATCH_BYTES = 4096 };
int make_scratch(const char *in, char out[SCRATCH_BYTES]);

/* Remove such a folder with all that is in it. */
void remove_scratch(const char *folder);

/* Print the log lines of the library on stderr, or drop them. */
void set_log(bool prints);

/* Flush stdout.  @return EXIT_FAILED if the output cannot be written, for example on a full disk or a closed pipe */
int finish_output(void);

#endif
