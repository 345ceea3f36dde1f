/* aio_place.c: the one file that all contestants read and write, and the memory. First uses are slow: of blocks that were never
 * written, and of pages that the system has not yet allocated. So everything is used once before a measurement. */
#include "aio_bench.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char PAGES_FILE[] = "/proc/sys/vm/nr_hugepages";
enum { FIO_BYTES = 160 << 20 }; /* memory of fio's largest setting, with a margin */

/* --- huge pages that fio maps by itself --- */

static long read_pages(void)
{
    long pages = -1;
    bench_scan(PAGES_FILE, 1, "%ld", &pages);
    return pages;
}

static int write_pages(long pages)
{
    FILE *file = fopen(PAGES_FILE, "we");
    const int printed = file ? fprintf(file, "%ld\n", pages) : 0;
    return file && fclose(file) == 0 && printed > 0 ? 0 : -1;
}

/* Compute the pages that fio needs, and return whether they are free. */
static bool enough_pages(long *wanted)
{
    long free_pages = 0, kib = 0;
    bench_scan("/proc/meminfo", 1, "HugePages_Free: %ld", &free_pages);
    bench_scan("/proc/meminfo", 1, "Hugepagesize: %ld", &kib);
    *wanted = kib > 0 ? FIO_BYTES / 1024 / kib : 0;
    return *wanted && free_pages >= *wanted;
}

/* Touch the pages once: if a hypervisor has reclaimed a page, its first use is slow, and fio's clock must not see that. */
static void use_pages_once(void)
{
    char *base = mmap(NULL, FIO_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (base == MAP_FAILED)
        return;
    for (size_t i = 0; i < FIO_BYTES; i += 4096)
        base[i] = 1;
    munmap(base, FIO_BYTES);
}

static void set_pages_aside(aio_place *place)
{
    long wanted;
    place->pages_lock = open(PAGES_FILE, O_RDONLY | O_CLOEXEC);
    if (place->pages_lock >= 0 && flock(place->pages_lock, LOCK_EX | LOCK_NB) == 0 && !enough_pages(&wanted) && wanted) {
        const long before = read_pages();
        if (before >= 0 && write_pages(before + wanted) == 0)
            place->pages_before = before;
    }
    place->pages_for_fio = enough_pages(&wanted);
    if (place->pages_for_fio)
        use_pages_once();
}

/* Do not fill with zeros: some disks skip the work for those. */
static char *take_filled(bench_streams *mapping, uint64_t bytes)
{
    float *memory = bench_streams_take(mapping, bytes);
    bench_fill_float(memory, bytes / sizeof *memory, 0, 1);
    return (char *)memory;
}

/* --- the file --- */

static int write_file(const aio_options *options, aio_place *place)
{
    zoff_aio_info info = {.struct_size = sizeof info};
    const zoff_aio_opts opts = {.struct_size = sizeof opts, .writable = true, .create = true};
    zoff_aio *queue = NULL;
    uint64_t ticket;
    const bool ok = zoff_aio_open(place->path, &opts, &queue) == ZOFF_OK &&
                    zoff_aio_reserve(queue, options->bytes) == ZOFF_OK &&
                    zoff_aio_write(queue, 0, options->bytes, place->huge, &ticket) == ZOFF_OK &&
                    zoff_aio_wait(queue, ticket) == ZOFF_OK && zoff_aio_get_info(queue, &info) == ZOFF_OK;
    place->direct = info.direct; /* fio uses the same way */
    snprintf(place->backend, sizeof place->backend, "%s", ok ? info.backend : "");
    if (!ok)
        bench_fail("cannot make the file: %s; choose another folder with --folder", zoff_last_error());
    zoff_aio_close(queue);
    return ok ? 0 : -1;
}

int aio_place_open(const aio_options *options, bool fio, aio_place *out)
{
    *out = (aio_place){.pages_before = -1, .pages_lock = -1, .registered = true};
    snprintf(out->name, sizeof out->name, "zoff-bench-aio-%ld", (long)getpid());
    if (snprintf(out->path, sizeof out->path, "%s/%s", options->folder, out->name) >= AIO_PATH) {
        out->path[0] = 0;
        return bench_fail("--folder %s: too long a path", options->folder);
    }
    setenv("ZOFF_BENCH_FOLDER", options->folder, 1);
    if (bench_streams_open(options->bytes, 1, true, &out->mappings[0]) != 0 ||
        bench_streams_open(SMALL_BYTES, 1, false, &out->mappings[1]) != 0)
        return -1;
    out->huge = take_filled(&out->mappings[0], options->bytes);
    out->small = take_filled(&out->mappings[1], SMALL_BYTES);
    out->huge_bytes = bench_streams_huge_bytes();
    if (write_file(options, out) != 0)
        return -1;
    if (fio)
        set_pages_aside(out);
    return 0;
}

void aio_place_close(aio_place *place)
{
    if (place->path[0])
        unlink(place->path);
    if (place->pages_before >= 0 && write_pages(place->pages_before) != 0)
        bench_fail("cannot put %s back to %ld", PAGES_FILE, place->pages_before);
    if (place->pages_lock >= 0)
        close(place->pages_lock);
    bench_streams_close(&place->mappings[0]);
    bench_streams_close(&place->mappings[1]);
}
