/* cores.h: the cores that a benchmark runs on. */
#ifndef ZOFF_BENCH_CORES_H
#define ZOFF_BENCH_CORES_H

/* Keep the process on `wanted` of the CPUs that it may use, one hardware thread of a core first; 0: on one of each core. The
 * library's own team then has as many threads as the loops that it is compared with. The number; 0 with errno set, or with
 * errno 0 when there are fewer than `wanted`. */
unsigned bench_cores_pin(unsigned wanted);

/* How many CPUs this process may use. */
unsigned bench_cores_allowed(void);

#endif
