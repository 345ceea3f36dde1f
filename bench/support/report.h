/* report.h: the common report of the benchmarks: a table for people, and JSON for programs. */
#ifndef ZOFF_BENCH_REPORT_H
#define ZOFF_BENCH_REPORT_H

#include "figures.h"
#include "program.h"

/* A number, or null if it is not finite. */
json_t *bench_report_number(double value);
/* Processor, architecture and kernel of this machine. */
json_t *bench_report_machine(void);

/* Print all races and figures, and write the JSON if it was asked for. It consists of `root`, which is freed, the races, and
 * facts of the run. Verdicts name their rounds `rounds_name`. Returns the exit status. 1: the JSON could not be written; 3: no
 * figure with a limit was measured. */
int bench_report(const bench_run *run, json_t *root, const race_book *book, const bench_figures *figures,
                 const char *rounds_name);

#endif
