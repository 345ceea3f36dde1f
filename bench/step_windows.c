/* step_windows.c: what must cost no more than its bytes. A step on the NVMe tier with all states in DRAM, beside one on the
 * DRAM tier; and all states read, and written, through windows, in bytes of the files. */
#include "step_bench.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CHUNKS = 1024, CHUNK_LEAST = 1024 };

/* Bytes that the kernel moved between disks and this process. */
static int read_traffic(uint64_t *read_bytes, uint64_t *write_bytes)
{
    char line[128];
    int found = 0;
    FILE *io = fopen("/proc/self/io", "r");
    while (io && fgets(line, sizeof line, io)) {
        found += sscanf(line, "read_bytes: %" SCNu64, read_bytes);
        found += sscanf(line, "write_bytes: %" SCNu64, write_bytes);
    }
    if (io)
        fclose(io);
    return found == 2 ? 0 : -1;
}

static int race_residents(const step_options *options, const step_model *m, const char *folder, step_book *book)
{
    const char *const paths[] = {folder};
    const size_t chunk = m->elements / CHUNKS < CHUNK_LEAST ? CHUNK_LEAST : m->elements / CHUNKS;
    const step_engine_opts dram_opts = {.chunk_elements = chunk};
    const step_engine_opts nvme_opts = {
        .paths = paths, .path_count = 1, .chunk_elements = chunk, .host_bytes = 36ull * m->elements + (64ull << 20)};
    step_engine dram = {.engine = NULL}, nvme = {.engine = NULL};
    race *r = &book->residents;
    r->part = "windows";
    snprintf(r->label, sizeof r->label, "all states in DRAM");
    int ret = step_engine_open(m, "residents", &nvme_opts, &nvme);
    ret = ret == 0 ? step_engine_open(m, "dram", &dram_opts, &dram) : ret;
    if (ret == 0) {
        book->resident = nvme.plan;
        race_add(r, (race_entry){.name = "zoff_resident",
                                 .what = "zoff's step, NVMe tier, all chunks resident",
                                 .elements = (double)m->elements,
                                 .bytes = 28,
                                 .yardstick = -1,
                                 .work = step_engine_step,
                                 .ctx = &nvme});
        race_add(r, (race_entry){.name = "zoff_dram",
                                 .what = "zoff's step, DRAM tier",
                                 .elements = (double)m->elements,
                                 .bytes = 28,
                                 .yardstick = -1,
                                 .work = step_engine_step,
                                 .ctx = &dram});
        race_run(r, options->run.rounds, 0, bench_stopwatch_now() + 0.1 * options->run.seconds);
        ret = nvme.failed || dram.failed ? -1 : 0;
    } else {
        fprintf(stderr, "step: %s%s\n", nvme.reason, dram.reason);
    }
    step_engine_close(&nvme);
    step_engine_close(&dram);
    return ret;
}

/* All windows of some kinds, the kinds of a window one after the other. */
static int move_kinds(const step_engine *e, size_t elements, size_t window, float *buffer, bool write, int from, int to)
{
    for (size_t first = 0; first < elements; first += window) {
        const size_t count = elements - first < window ? elements - first : window;
        for (int kind = from; kind <= to; kind++) {
            const zoff_status status = write
                                           ? zoff_state_write(e->engine, e->param, (zoff_state_kind)kind, first, count, buffer)
                                           : zoff_state_read(e->engine, e->param, (zoff_state_kind)kind, first, count, buffer);
            if (status != ZOFF_OK)
                return -1;
        }
    }
    return 0;
}

/* The two orders that engine.h names: all kinds of a window before the next window, or one kind of all windows before the next
 * kind. Windows are no larger than half a chunk. */
static int move_all(const step_engine *e, size_t elements, size_t window, float *buffer, bool write, bool by_kind)
{
    int ret = 0;
    if (!by_kind)
        ret = move_kinds(e, elements, window, buffer, write, ZOFF_STATE_MASTER, ZOFF_STATE_V);
    for (int kind = ZOFF_STATE_MASTER; by_kind && ret == 0 && kind <= ZOFF_STATE_V; kind++)
        ret = move_kinds(e, elements, window, buffer, write, kind, kind);
    return ret == 0 && write && zoff_state_flush(e->engine) != ZOFF_OK ? -1 : ret;
}

static int count_windows(const step_options *options, const step_model *m, const char *folder, step_book *book)
{
    const char *const paths[] = {folder};
    const uint64_t states = 12ull * m->elements;
    const step_engine_opts opts = {
        .paths = paths, .path_count = 1, .host_bytes = states / options->budget_share, .persist = true};
    step_engine e = {.engine = NULL};
    uint64_t read[2], written[2];
    bool counts = true;
    if (step_engine_open(m, "windows", &opts, &e) != 0) {
        snprintf(book->no_windows, sizeof book->no_windows, "%s", e.reason);
        return 0;
    }
    const size_t window = e.plan.chunk_bytes / 24;
    float *buffer = calloc(window, sizeof *buffer);
    int ret = buffer ? 0 : -1;
    for (unsigned pass = 0; pass < 4 && ret == 0 && counts; pass++) {
        const bool write = pass & 1, by_kind = pass & 2;
        step_engine_step(&e); /* the moments are more than zeros */
        counts = read_traffic(&read[0], &written[0]) == 0;
        ret = e.failed ? -1 : move_all(&e, m->elements, window, buffer, write, by_kind);
        counts = counts && read_traffic(&read[1], &written[1]) == 0;
        const uint64_t moved = !counts ? 0 : write ? written[1] - written[0] : read[1] - read[0];
        book->windows[by_kind][write] = (double)moved / (double)states;
        counts = counts && moved;
    }
    if (!counts)
        snprintf(book->no_windows, sizeof book->no_windows, "the kernel counts no transfers of this process (/proc/self/io)");
    if (ret != 0)
        fprintf(stderr, "step: windows: %s\n", buffer ? zoff_last_error() : "no memory for a window");
    free(buffer);
    step_engine_close(&e);
    return ret;
}

int step_windows(const step_options *options, const char *folder, step_book *book)
{
    step_model m;
    if (step_model_open(options->elements, &m) != 0)
        return -1;
    int ret = race_residents(options, &m, folder, book);
    ret = ret == 0 ? count_windows(options, &m, folder, book) : ret;
    step_model_close(&m);
    return ret;
}

void step_windows_judge(const step_options *options, const step_book *book, bench_figures *out)
{
    static const char LEFT_OUT[] = "not among the parts of this run, or no round in its time";
    const char *why = book->no_windows[0] ? book->no_windows : LEFT_OUT;
    enum { LEAST_ELEMENTS = 16 << 20 };
    bench_figure *f = bench_figures_add(out, "resident_over_dram", -1, 1.3,
                                        "step on the NVMe tier with 1,024 chunks, all in DRAM / on the DRAM tier", LEFT_OUT);
    bench_figures_set_pair(f, &book->residents, "zoff_resident", "zoff_dram");
    if (bench_figures_measured(f) && book->resident.chunk_count < CHUNKS)
        bench_figures_spoil(f, "%llu chunks; what is asked is about %d", (unsigned long long)book->resident.chunk_count,
                            CHUNKS);
    if (bench_figures_measured(f) && f->rounds < ENOUGH_ROUNDS)
        bench_figures_spoil(f, "%u rounds are too few", f->rounds);
    static const struct {
        const char *name, *what;
    } MOVED[2][2] = {
        {{"windows_read_over_state", "bytes read to save all states, window by window / their bytes"},
         {"windows_write_over_state", "bytes written to load all states, window by window / their bytes"}},
        {{"kinds_read_over_state", "bytes read to save all states through windows, kind by kind / their bytes"},
         {"kinds_write_over_state", "bytes written to load all states through windows, kind by kind / their bytes"}}};
    for (unsigned i = 0; i < 4; i++) {
        const bool by_kind = i / 2, write = i % 2;
        bench_figure *moved = bench_figures_add(out, MOVED[by_kind][write].name, -1, 1.1, MOVED[by_kind][write].what, why);
        if (!book->no_windows[0] && book->windows[by_kind][write] > 0)
            bench_figures_set(moved, book->windows[by_kind][write], 1);
        if (bench_figures_measured(moved) && options->elements < LEAST_ELEMENTS)
            bench_figures_spoil(moved, "measured with %zu elements; what is asked is about %d", options->elements,
                                LEAST_ELEMENTS);
    }
}
