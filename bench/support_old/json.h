/* json.h: the JSON of a benchmark: numbers, samples, the machine, and the file that all of it goes to. */
#ifndef ZOFF_BENCH_JSON_H
#define ZOFF_BENCH_JSON_H

#include "race.h"

#include <jansson.h>
#include <stddef.h>

/* A number, or null where it is not finite. */
json_t *bench_json_number(double value);

/* Put "seconds_min", "seconds_median" and "seconds_max" into `row`. */
void bench_json_spread(json_t *row, bench_spread spread);

/* The samples of an entry in the order of the rounds, null for one that was not clean. */
json_t *bench_json_samples(const race *r, unsigned entry);

/* The processor's name, as the system tells it. */
void bench_json_cpu(char *name, size_t bytes);

/* Processor, architecture and kernel of this machine. */
json_t *bench_json_machine(void);

/* Write to `path`, or to standard output where it is "-", and free `root`; NULL is one that could not be made. 0, or -1 with a
 * message. */
int bench_json_write(json_t *root, const char *path);

#endif
