/* report.h: what every benchmark tells in the same way: a table for people, and JSON for programs. */
#ifndef ZOFF_BENCH_REPORT_H
#define ZOFF_BENCH_REPORT_H

#include "figures.h"
#include "program.h"

/* A number, or null where it is not finite. */
json_t *bench_report_number(double value);
/* Processor, architecture and kernel of this machine. */
json_t *bench_report_machine(void);

/* Print all races and figures, and write the JSON that was asked for: `root` with them, and what all benchmarks tell of a run;
 * it is freed. A verdict tells its rounds under `rounds_name`. The exit status: 1: the JSON could not be written; 3: nothing
 * was measured that is asked of the project. */
int bench_report(const bench_run *run, json_t *root, const race_book *book, const bench_figures *figures,
                 const char *rounds_name);

#endif
