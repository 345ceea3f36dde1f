/* aio_fio.c: the yardstick: fio, started for each sample in its fastest settings: memory in huge pages, registered with the
 * kernel if the engine can, without statistics of single requests, without changes to the written data. Its own report is used,
 * and its start is not counted. */
#include "aio_bench.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static double figure(const json_t *job, const char *part, const char *key)
{
    return json_number_value(json_object_get(part ? json_object_get(job, part) : job, key));
}

/* fio's clock counts milliseconds. The two directions of a mix take about the same time: the longer one counts. */
static int understand(const char *text, uint64_t bytes, double *seconds, double *cpu)
{
    const char *brace = strchr(text, '{');
    json_t *root = brace ? json_loads(brace, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    const double moved = figure(job, "read", "io_bytes") + figure(job, "write", "io_bytes");
    const double ms = fmax(figure(job, "read", "runtime"), figure(job, "write", "runtime"));
    const bool ok = job && figure(job, NULL, "error") == 0 && ms > 0 && moved == (double)bytes;
    *seconds = 1e-3 * ms;
    *cpu = 1e-5 * figure(job, NULL, "job_runtime") * (figure(job, NULL, "usr_cpu") + figure(job, NULL, "sys_cpu"));
    json_decref(root);
    return ok ? 0 : -1;
}

int aio_fio_run(const aio_place *place, const aio_line *line, aio_way way, uint64_t bytes, double *seconds, double *cpu)
{
    static const char *const WAY_NAMES[WAYS] = {"read", "write", "rw"};
    static char text[1 << 20];
    /* Small pages stand for a user who changes no default. Registering memory needs a right that other users may lack. */
    const bool best = !line->small_pages, fixed = best && strcmp(line->engine, "io_uring") == 0 && geteuid() == 0;
    const int ret = bench_command(
        text, sizeof text,
        "cd \"$ZOFF_BENCH_FOLDER\" && exec fio --name=aio --filename=%s --rw=%s --ioengine=%s --bs=%llu --iodepth=%u "
        "--size=%llu "
        "--time_based=0 --direct=%d --allow_file_create=0 --thread --disk_util=0 --eta=never --output-format=json "
        "--clocksource=clock_gettime%s%s%s 2>&1", /* fio calibrates its other clock at each start */
        place->name, WAY_NAMES[way], line->engine, (unsigned long long)line->block, (unsigned)line->depth,
        (unsigned long long)bytes, place->direct, best ? " --gtod_reduce=1 --scramble_buffers=0" : "",
        best && place->pages_for_fio ? " --iomem=mmaphuge" : "", fixed ? " --fixedbufs=1 --registerfiles=1" : "");
    if (ret == 0 && understand(text, bytes, seconds, cpu) == 0)
        return 0;
    return aio_stopped ? -1 : bench_fail("%s gave no result: %.*s", line->name, (int)strcspn(text, "\n"), text);
}
