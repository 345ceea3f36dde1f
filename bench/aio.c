/* SPDX-License-Identifier: Apache-2.0 */
/* aio.c: the speed of the file queue beside fio, on the same file, in the same seconds. In each round every contestant has one
 * turn, and the directions take turns, too: a shared disk drifts within minutes, so contestants must run within seconds of each
 * other. Parts whose figures have limits come first, so that a lack of time
 * costs only the others. */
#include "aio_bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define REQUEST_BYTES (16 * MIB) /* bytes of the smaller of the two judged requests */
#define SMALL_BYTES (4 * REQUEST_BYTES)
#define FILE_UNIT (64 * MIB)          /* unit of the file's size, so that all its parts are cut evenly */
#define BOUND (1000ull * 1000 * 1000) /* bytes per second in each direction, of the limited disk */

/* The options, the file, the memory and their properties. */
static struct {
    uint64_t bytes, block, depth; /* size of the file; the pieces of our queue, as in a line */
    const char *parent, *path;    /* folder of the file, as in the options; name of the file */
    char *huge;                   /* memory as large as the file, in huge pages if the system gives them */
    char *small;                  /* memory of SMALL_BYTES in ordinary pages */
    size_t huge_bytes;            /* bytes that the process has in huge pages */
    bool pages_for_fio;           /* enough huge pages are free for fio's memory */
    bool direct, registered;      /* facts about our queues */
    char backend[32], fio[64];    /* fio's version; "": there is none */
} place = {.bytes = GIB, .registered = true};

/* --- the file and the memory --- */

/* First uses are slow: of blocks that were never written, and of pages that the system has not yet allocated. So everything is
 * used once before a measurement. */
static const char PAGES_FILE[] = "/proc/sys/vm/nr_hugepages";
enum { FIO_BYTES = 160 << 20 }; /* memory of fio's largest setting, with a margin */

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

/* Touch the pages once, because the first use of a page that a hypervisor has reclaimed is slow, which fio would count. */
static void use_pages_once(void)
{
    char *base = mmap(NULL, FIO_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (base == MAP_FAILED)
        return;
    for (size_t i = 0; i < FIO_BYTES; i += 4096)
        base[i] = 1;
    munmap(base, FIO_BYTES);
}

/* Two runs would restore each other's values, so the file is locked until this process ends. */
static long pages_before = -1;

static void restore_pages(void)
{
    if (pages_before >= 0 && write_pages(pages_before) != 0)
        bench_fail("cannot put %s back to %ld", PAGES_FILE, pages_before);
    pages_before = -1;
}

static void close_pages(void *ctx, size_t lock)
{
    restore_pages();
    close((int)lock);
}

static void set_pages_aside(void)
{
    long wanted, before;
    const int lock = open(PAGES_FILE, O_RDONLY | O_CLOEXEC);
    if (lock >= 0)
        bench_later(close_pages, NULL, (size_t)lock);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && !enough_pages(&wanted) && wanted) {
        if (bench_scan(PAGES_FILE, 1, "%ld", &before) && write_pages(before + wanted) == 0)
            pages_before = before;
    }
    place.pages_for_fio = enough_pages(&wanted);
    if (place.pages_for_fio)
        use_pages_once();
}

/* --- the memory and the file --- */

/* Do not fill with zeros: some disks skip the work for those. */
static char *make_filled(uint64_t bytes, bool huge)
{
    float *memory = bench_array(bytes, huge);
    bench_fill_float(memory, bytes / sizeof *memory, 0, 1);
    return (char *)memory;
}

static void write_file(void)
{
    zoff_aio_info info = {.struct_size = sizeof info};
    const zoff_aio_opts opts = {.struct_size = sizeof opts, .writable = true, .create = true};
    zoff_aio *queue = NULL;
    uint64_t ticket;
    if (zoff_aio_open(place.path, &opts, &queue) != ZOFF_OK || zoff_aio_reserve(queue, place.bytes) != ZOFF_OK ||
        zoff_aio_write(queue, 0, place.bytes, place.huge, &ticket) != ZOFF_OK || zoff_aio_wait(queue, ticket) != ZOFF_OK ||
        zoff_aio_get_info(queue, &info) != ZOFF_OK)
        bench_die("cannot make the file: %s; choose another folder with --folder", zoff_last_error());
    place.direct = info.direct; /* fio uses the same way */
    snprintf(place.backend, sizeof place.backend, "%s", info.backend);
    zoff_aio_close(queue);
}

static void open_place(void)
{
    disk_folder_make("folder", place.parent, (double)place.bytes, restore_pages);
    place.path = bench_text("%s/file", disk.folder);
    place.huge = make_filled(place.bytes, true);
    place.small = make_filled(SMALL_BYTES, false);
    place.huge_bytes = bench_streams_huge_bytes();
    write_file();
    if (place.fio[0])
        set_pages_aside();
}

static const double FOREIGN_SHARE = 0.02; /* share of a sample's bytes that the disk may move for others meanwhile */
static const double FIO_START = 0.3;      /* seconds until fio moves its first byte */
static const char *const WAY_NAMES[WAYS] = {"read", "write", "mix"};

/* --- the yardstick --- */

/* fio is started for each sample in its fastest settings: memory in huge pages, registered with the kernel if the engine can,
 * without statistics of single requests, without changes to the written data. Its own report is used, and its start is not
 * counted. */
static double figure(const json_t *job, const char *part, const char *key)
{
    return json_number_value(json_object_get(part ? json_object_get(job, part) : job, key));
}

/* fio's clock counts milliseconds. The two directions of a mix take about the same time: the longer one counts. */
static int understand(const char *text, aio_transfer *t)
{
    const char *brace = strchr(text, '{');
    json_t *root = brace ? json_loads(brace, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    const double moved = figure(job, "read", "io_bytes") + figure(job, "write", "io_bytes");
    const double ms = fmax(figure(job, "read", "runtime"), figure(job, "write", "runtime"));
    const bool ok = job && figure(job, NULL, "error") == 0 && ms > 0 && moved == (double)t->bytes;
    t->seconds = 1e-3 * ms;
    t->cpu = 1e-5 * figure(job, NULL, "job_runtime") * (figure(job, NULL, "usr_cpu") + figure(job, NULL, "sys_cpu"));
    json_decref(root);
    return ok ? 0 : -1;
}

static int run_fio(const aio_line *line, aio_transfer *t)
{
    static const char *const WAYS_OF_FIO[WAYS] = {"read", "write", "rw"};
    static char text[1 << 20];
    /* Small pages stand for a user who changes no default. Registering memory needs a right that other users may lack. */
    const bool best = !line->small_pages, fixed = best && strcmp(line->engine, "io_uring") == 0 && geteuid() == 0;
    const int ret = bench_command(
        text, sizeof text,
        bench_text(
            "cd \"$ZOFF_BENCH_FOLDER\" && exec fio --name=aio --filename=file --rw=%s --ioengine=%s --bs=%llu --iodepth=%u "
            "--size=%llu --time_based=0 --direct=%d --allow_file_create=0 --thread --disk_util=0 --eta=never "
            "--output-format=json --clocksource=clock_gettime%s%s%s 2>&1", /* fio calibrates its other clock at each start */
            WAYS_OF_FIO[t->way], line->engine, (unsigned long long)line->block, (unsigned)line->depth,
            (unsigned long long)t->bytes, place.direct, best ? " --gtod_reduce=1 --scramble_buffers=0" : "",
            best && place.pages_for_fio ? " --iomem=mmaphuge" : "", fixed ? " --fixedbufs=1 --registerfiles=1" : ""));
    if (ret == 0 && understand(text, t) == 0)
        return 0;
    return bench_fail("%s gave no result: %.*s", line->name, (int)strcspn(text, "\n"), text);
}

/* --- matches --- */

/* A race in one direction, whose `user` it is. The second figure of its samples is CPU seconds of the contestant's process, and
 * a sample is disturbed if the disk worked for other processes, and again when it was repeated. */
typedef struct aio_match {
    race *r;
    aio_way way;
    uint64_t bytes; /* bytes of a sample */
    unsigned tries; /* tries of a sample, until the disk works for us alone */
    double pause;   /* seconds before each of our samples */
    aio_line lines[RACE_ENTRIES];
} aio_match;

/* The match of a race with this name, as race_of() finds it; NULL: there is none. */
static const aio_match *match_of(const char *name)
{
    const race *r = race_of(name);
    return r ? r->user : NULL;
}

/* CPU seconds of a line for 1e9 bytes, median; NAN without a sample. */
static double cpu_of(const aio_match *match, unsigned index)
{
    return bench_spread_of(match->r->entries[index].other, match->r->rounds).median / (1e-9 * (double)match->bytes);
}

/* The line of fio with the highest median rate. Lines with small pages, and those in `taken`, do not count. -1: none. */
static int best_fio(const aio_match *match, const bool taken[RACE_ENTRIES])
{
    int best = -1;
    double least = INFINITY;
    for (unsigned i = 0; match && i < match->r->count; i++) {
        const aio_line *line = &match->lines[i];
        const double seconds = race_median(match->r, line->name);
        if (line->engine && !line->small_pages && !(taken && taken[i]) && seconds < least) {
            least = seconds;
            best = (int)i;
        }
    }
    return best;
}

static const char *size_text(uint64_t size)
{
    const bool mib = size % MIB == 0;
    return bench_text("%llu%s", (unsigned long long)(mib ? size / MIB : size / KIB), mib ? "m" : "k");
}

/* "fio libaio 1m x8", "zoff 16m by 2m x32", "zoff 16m" with the library's defaults. */
static const char *make_name(const aio_match *match, const aio_line *line)
{
    return bench_text("%s %s%s%s%s%s", line->engine ? "fio" : "zoff",
                      line->engine ? line->engine : size_text(line->request ? line->request : match->bytes),
                      !line->block   ? ""
                      : line->engine ? " "
                                     : " by ",
                      line->block ? size_text(line->block) : "", line->depth ? bench_text(" x%u", (unsigned)line->depth) : "",
                      line->small_pages ? " 4k pages" : "");
}

static void add(aio_match *match, aio_line line)
{
    aio_line *own = &match->lines[match->r->count];
    *own = line;
    own->name = make_name(match, own);
    const char *what = line.engine ? "fio" : line.request ? "four requests a wait" : "one request";
    race_add(match->r, &(race_line){own->name, what, 1}, (double)match->bytes, NULL, 1);
}

static void add_to_all(aio_match *matches, aio_line line)
{
    for (unsigned way = 0; way < WAYS; way++)
        add(&matches[way], line);
}

/* null: the library chooses. */
static json_t *chosen(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static void describe_row(const race *r, unsigned index, json_t *out)
{
    const aio_match *match = r->user;
    const aio_line *line = &match->lines[index];
    if (index == r->count) {
        const int best = best_fio(match, NULL);
        json_object_update_new(out, json_pack("{s:s, s:I, s:o}", "way", r->label, "bytes", (json_int_t)match->bytes, "best_fio",
                                              best < 0 ? json_null() : json_string(match->lines[best].name)));
        return;
    }
    const uint64_t whole = match->way == WAY_MIX ? match->bytes / 2 : match->bytes;
    json_object_update_new(out,
                           json_pack("{s:s, s:o, s:o, s:b, s:i, s:o}", "program", line->engine ? "fio" : "zoff", "block_bytes",
                                     chosen(line->block), "depth", chosen(line->depth), "huge_pages", !line->small_pages,
                                     "samples", (int)bench_spread_of(r->entries[index].seconds, r->rounds).count,
                                     "cpu_s_per_gb", bench_report_number(cpu_of(match, index))));
    if (line->engine)
        json_object_set_new(out, "engine", json_string(line->engine));
    else
        json_object_set_new(out, "request_bytes", json_integer((json_int_t)(line->request ? line->request : whole)));
}

/* The disk may work for other processes, too: then repeat the sample. fio may lack an engine or a right: then that line stays
 * empty, and a round that is not complete does not count. */
static double sample(race *r, race_entry *e, double deadline)
{
    const aio_match *match = r->user;
    const aio_line *line = &match->lines[e - r->entries];
    aio_transfer t = {.path = place.path,
                      .memory = line->small_pages ? place.small : place.huge,
                      .way = match->way,
                      .bytes = match->bytes,
                      .registered = true};
    bool alone = false;
    for (unsigned try = 0; !alone && try < match->tries && (!try || bench_now() < deadline); try++) {
        const double before = disk_moved(place.path);
        if (!line->engine) {
            bench_sleep(match->pause);
            aio_ours_run(line, &t);
        } else if (run_fio(line, &t) != 0) {
            return NAN;
        }
        alone = !(disk_moved(place.path) - before > (1 + FOREIGN_SHARE) * (double)match->bytes);
        r->retried_samples += try > 0;
    }
    place.registered = place.registered && t.registered;
    e->other[r->rounds] = t.cpu;
    e->disturbed[r->rounds] = !alone;
    return t.seconds;
}

/* The matches of a part, one for each way. */
static aio_match *open_matches(const char *part, uint64_t bytes, unsigned tries, double pause)
{
    aio_match *matches = calloc(WAYS, sizeof *matches);
    if (!matches)
        bench_die("no memory for the matches");
    for (unsigned way = 0; way < WAYS; way++) {
        race *r = race_open(part, WAY_NAMES[way]);
        r->sample = sample;
        r->describe = describe_row;
        r->user = &matches[way];
        matches[way] = (aio_match){.r = r, .way = (aio_way)way, .bytes = bytes, .tries = tries, .pause = pause};
        if (!place.fio[0])
            r->missing = "fio, to compare with, cannot be run: apt-get install fio";
    }
    return matches;
}

/* Run all directions, round after round, while one more is likely to end in time. Run at least one round. */
static void run_rounds(aio_match *matches, uint64_t rounds, double deadline)
{
    const double start = bench_now();
    for (unsigned k = 0; k < rounds && (!k || bench_now() + (bench_now() - start) / k <= deadline); k++) {
        for (unsigned way = 0; way < WAYS; way++)
            race_round(matches[way].r, deadline);
    }
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void add_ours(aio_match *match)
{
    add(match, (aio_line){.block = place.block, .depth = place.depth});
    add(match, (aio_line){.block = place.block, .depth = place.depth, .request = REQUEST_BYTES});
}

/* Add the settings of fio that may be the best; fewer of them if time is short. */
static void add_settings(aio_match *matches)
{
    static const char *const ENGINES[] = {"io_uring", "libaio"};
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 4 * MIB}, DEPTHS[] = {8, 16, 32};
    for (unsigned i = 0; i < 18; i++) {
        const unsigned b = i / 3 % 3, d = i % 3;
        if (!bench.quick || (b == 1 && d == 1) || (b == 2 && d != 1))
            add_to_all(matches, (aio_line){.engine = ENGINES[i / 9], .block = BLOCKS[b], .depth = DEPTHS[d]});
    }
}

/* Take fio's fastest lines of one race over into another. */
static void take_best(const aio_match *from, unsigned wanted, aio_match *to)
{
    bool taken[RACE_ENTRIES] = {false};
    for (int best; wanted-- && (best = best_fio(from, taken)) >= 0; taken[best] = true)
        add(to, from->lines[best]);
}

static void run_contest(const bench_part *part)
{
    aio_match *scouts = NULL;
    if (place.fio[0]) {
        scouts = open_matches("scouting", bench.quick ? place.bytes / 4 : place.bytes, 2, 0);
        add_settings(scouts);
        const double left = bench.deadline - bench_now();
        run_rounds(scouts, bench.quick ? 1 : at_most(bench.rounds, 3), bench.deadline - 0.6 * left);
    }
    aio_match *matches = open_matches(part->name, place.bytes, 3, 0);
    for (unsigned way = 0; way < WAYS; way++) {
        add_ours(&matches[way]);
        take_best(scouts ? &scouts[way] : NULL, bench.quick ? 2 : 4, &matches[way]);
    }
    run_rounds(matches, bench.rounds, bench.deadline);
}

/* Race against fio's best settings of the contest. The kernel gives a cgroup some extra after idle time. So every contestant
 * starts from a pause, as fio does from its start. */
static void run_throttle(const bench_part *part)
{
    aio_match *matches = open_matches(part->name, place.bytes, 1, FIO_START);
    for (unsigned way = 0; way < WAYS && place.fio[0]; way++) {
        const aio_match *contest = match_of(bench_text("contest/%s", WAY_NAMES[way]));
        if (way == 0 && !disk_hold(matches[way].r, place.path, BOUND)) {
            matches[1].r->missing = matches[2].r->missing = matches[0].r->missing;
            return;
        }
        add_ours(&matches[way]);
        take_best(contest, 1, &matches[way]);
        if (!contest)
            add(&matches[way], (aio_line){.engine = "io_uring", .block = MIB, .depth = 16});
    }
    if (place.fio[0])
        run_rounds(matches, at_most(bench.rounds, 5), bench.deadline);
}

/* --- figures without a limit --- */

/* Memory in 4 KiB pages: ours, and fio moving data as DeepSpeed's defaults do (libaio, 1 MiB, 8 in flight). */
static void run_pages(const bench_part *part)
{
    const uint64_t quarter = place.bytes / 4 / FILE_UNIT * FILE_UNIT;
    const uint64_t bytes = !bench.quick ? place.bytes : quarter ? quarter : FILE_UNIT;
    aio_match *matches = open_matches(part->name, bytes, 2, 0);
    aio_line ours = {.block = place.block, .depth = place.depth, .request = REQUEST_BYTES};
    add_to_all(matches, ours);
    ours.small_pages = true;
    add_to_all(matches, ours);
    if (place.fio[0])
        add_to_all(matches, (aio_line){.engine = "libaio", .block = MIB, .depth = 8, .small_pages = true});
    run_rounds(matches, at_most(bench.rounds, 5), bench.deadline);
}

/* Our queue by the size of its pieces and their number in flight. */
static void run_sweep(const bench_part *part)
{
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 2 * MIB, 4 * MIB, 16 * MIB}, DEPTHS[] = {8, 16, 32, 64};
    aio_match *matches = open_matches(part->name, place.bytes, 2, 0);
    for (unsigned i = 0; i < 20; i++)
        add_to_all(matches, (aio_line){.block = BLOCKS[i / 4], .depth = DEPTHS[i % 4]});
    run_rounds(matches, at_most(bench.rounds, 5), bench.deadline);
}

/* --- figures --- */

/* A figure is about the file and our memory; about fio at its best. */
enum { WHOLE = 1, FIO = 2, ENOUGH = 5 };

/* Speed of our line over that of another line in the same race. On the limited disk one round is enough. */
enum { BEST = -1 /* line of fio */ };
/* clang-format off */
static const struct speed {
    bench_asked asked;
    int ours, rival; /* numbers of both in the race */
} SPEEDS[] = {
    {{"read_vs_fio_1gib", 1, 0.92, "bytes a second of one read of the whole file / of fio's best setting", "contest/read", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"read_vs_fio_16mib", 1, 0.92, "the same, reads of 16 MiB, 4 for each wait", "contest/read", NULL, WHOLE | FIO, ENOUGH}, 1, BEST},
    {{"write_vs_fio_1gib", 1, 0.97, "the same, one write", "contest/write", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"write_vs_fio_16mib", 1, 0.97, "the same, writes of 16 MiB, 4 for each wait", "contest/write", NULL, WHOLE | FIO, ENOUGH}, 1, BEST},
    {{"mix_vs_fio_1gib", 1, 0.95, "the same, a read of one half and a write of the other in flight at once", "contest/mix", NULL, WHOLE | FIO, ENOUGH}, 0, BEST},
    {{"mix_vs_fio_16mib", 1, 0.95, "the same, 2 reads and 2 writes of 16 MiB for each wait", "contest/mix", NULL, WHOLE | FIO, ENOUGH}, 1, BEST}};

/* The same for each way, whose name stands for %s. */
static const struct speed EACH_WAY[] = {
    {{"throttled_%s_vs_fio_whole", 1, 0.98, "bytes a second / fio's on a disk held at 1 GB/s each way (cgroup), one request", "throttle/%s", NULL, WHOLE | FIO, 1}, 0, BEST},
    {{"throttled_%s_vs_fio_16mib", 1, 0.98, "the same on a disk held at 1 GB/s each way, 16 MiB, 4 for each wait", "throttle/%s", NULL, WHOLE | FIO, 1}, 1, BEST},
    {{"%s_vs_libaio_4k_pages", 0, 0, "16 MiB requests / fio with libaio, 1 MiB, 8 in flight, 4 KiB pages", "pages/%s", NULL, 0, 1}, 0, 2},
    {{"%s_4k_pages_vs_huge", 0, 0, "16 MiB requests, memory of 4 KiB pages / of huge pages", "pages/%s", NULL, 0, 1}, 1, 0}};

static const bench_asked COSTS[] = {
    {"cpu_s_per_gb_1gib", -1, 0.010, "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", NULL, NULL, WHOLE, ENOUGH},
    {"cpu_s_per_gb_16mib", -1, 0.010, "CPU seconds of our process for 1e9 bytes moved, the dearest of the three ways", NULL, NULL, WHOLE, ENOUGH}};
/* clang-format on */

/* A limit that did not bind proves nothing. */
static void check_bound(bench_figure *f, const aio_match *match, int best)
{
    const double ways = match->way == WAY_MIX ? 2 : 1;
    const double rate = (double)match->bytes / race_median(match->r, match->lines[best].name) / ways, bound = (double)BOUND;
    if (rate < 0.97 * bound || rate > 1.15 * bound)
        bench_figures_spoil(f, bench_text("the disk was to give 1 GB/s each way, but gave fio %.2f", 1e-9 * rate));
}

static void judge_speed(const struct speed *speed, const char *way)
{
    bench_asked asked = speed->asked;
    asked.name = bench_text(asked.name, way);
    asked.race = bench_text(asked.race, way);
    const aio_match *match = match_of(asked.race);
    const int rival = speed->rival == BEST ? best_fio(match, NULL) : speed->rival;
    if (match && rival >= 0 && rival < (int)match->r->count)
        asked.formula = bench_text("'%s' / '%s'", match->lines[rival].name, match->lines[speed->ours].name);
    bench_figure *f = bench_figures_add(&asked, 1);
    if (strncmp(asked.race, "throttle", 8) != 0 || !asked.formula)
        return;
    check_bound(f, match, rival);
    if (f->value >= asked.limit) /* a disk with twice that bandwidth serves other processes, too */
        f->disturbed = 0;
}

/* The direction with the highest cost counts. */
static void judge_costs(void)
{
    static const char *const RACES[] = {"contest/read", "contest/write", "contest/mix"};
    bench_figure *f = bench_figures_add(COSTS, BENCH_COUNT(COSTS));
    for (unsigned i = 0; i < BENCH_COUNT(COSTS) * WAYS; i++) {
        const aio_match *match = match_of(RACES[i % WAYS]);
        if (match)
            bench_figures_set(&f[i / WAYS], fmax(cpu_of(match, i / WAYS), f[i / WAYS].value), match->r->rounds);
    }
}

static void judge(void)
{
    bench_figures.missing = "not among the parts of this run, or no round of it ended in its time";
    for (unsigned i = 0; i < BENCH_COUNT(SPEEDS); i++)
        judge_speed(&SPEEDS[i], "");
    for (unsigned i = 0; i < 2 * WAYS * 2; i++) /* a part has two figures in each way */
        judge_speed(&EACH_WAY[i / (2 * WAYS) * 2 + i % 2], WAY_NAMES[i / 2 % WAYS]);
    judge_costs();
    if (place.bytes != GIB)
        bench_figures_void(WHOLE, bench_text("measured on a file of %llu MiB; what is asked is about 1 GiB",
                                             (unsigned long long)(place.bytes / MIB)));
    if (!place.direct)
        bench_figures_void(WHOLE, "the file system has no O_DIRECT: that is the speed of the page cache");
    if (place.huge_bytes < place.bytes * 9 / 10)
        bench_figures_void(WHOLE, "our memory did not come in huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
    if (!place.pages_for_fio)
        bench_figures_void(FIO,
                           "fio had no huge pages, so it was not at its best; run as root, or raise vm.nr_hugepages by 80");
    bench_figures_check_quiet("the disk worked for others");
}

static json_t *describe(FILE *out)
{
    bool enough = true;
    for (EACH_FIGURE(f))
        enough = enough && (!f->asked.sense || !bench_figures_measured(f) || f->rounds >= f->asked.enough);
    fprintf(out, "%s, %s, memory %s with the kernel, %zu MiB in huge pages; fio: %s, %s\n", place.backend,
            place.direct ? "O_DIRECT" : "page cache", place.registered ? "registered" : "not registered",
            place.huge_bytes >> 20, place.fio[0] ? place.fio : "none", place.pages_for_fio ? "huge pages" : "no huge pages");
    json_t *setting = bench_report_machine();
    json_object_update_new(setting,
                           json_pack("{s:s, s:b, s:b, s:I, s:I, s:b, s:s}", "backend", place.backend, "direct", place.direct,
                                     "registered", place.registered, "file_bytes", (json_int_t)place.bytes, "huge_page_bytes",
                                     (json_int_t)place.huge_bytes, "fio_huge_pages", place.pages_for_fio, "fio", place.fio));
    return json_pack("{s:o, s:b}", "setting", setting, "enough_rounds", enough);
}

/* --- the program --- */

static void begin(char **argv)
{
    static char folder[4096]; /* the disk that people build on, and no tmpfs */
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash = length > 0 ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = 0;
    place.parent = place.parent ? place.parent : slash ? folder : ".";
    if (bench_command(place.fio, sizeof place.fio, "fio --version 2>/dev/null") != 0)
        place.fio[0] = 0;
    place.fio[strcspn(place.fio, "\n")] = 0;
    open_place();
}

enum { PART_CONTEST = 1, PART_THROTTLE = 2, PART_PAGES = 4, PART_SWEEP = 8, PART_ANY = 15 };

int main(int argc, char **argv)
{
    /* clang-format off */
    static const bench_option OPTIONS[] = {
        {"folder", "DIR", "where the file is made and removed (default: the folder of this program)", .text = &place.parent},
        {"size", "N", "bytes of the file, like 512Mi or 2Gi, a multiple of 64Mi (default 1Gi; others are void)", .number = &place.bytes, .least = FILE_UNIT, .most = 64 * GIB, .unit = FILE_UNIT},
        {"block", "N", "bytes of a piece of our queue, like 1Mi (default: the library's default)", .number = &place.block, .least = 4 * KIB, .most = GIB, .unit = 4 * KIB},
        {"depth", "N", "pieces in flight of our queue (default: the library's default)", .number = &place.depth, .least = 1, .most = 4096},
        {NULL}};
    /* clang-format on */
    static const bench_part PARTS[] = {{"contest", PART_CONTEST, run_contest, {0.5, 0.77}},
                                       {"throttle", PART_THROTTLE, run_throttle, {0.2, 0.19}},
                                       {"pages", PART_PAGES, run_pages, {0.1, 0.04}},
                                       {"sweep", PART_SWEEP, run_sweep, {0.2, 0.2}},
                                       {NULL}};
    static const bench_spec SPEC = {
        .usage = "usage: aio [OPTION]...\n"
                 "Times zoff's file queue beside fio at its best on one file, whole and in requests of 16 MiB; and again on a\n"
                 "disk that a cgroup holds at 1 GB/s each way. As root fio has huge pages (vm.nr_hugepages, put back in the\n"
                 "end) and that cgroup is to be had; else those figures are void or not measured, with the reason.\n"
                 "With --quick the part sweep runs only if --only names it.\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {PART_ANY, 15, 600},
        .quick = {PART_ANY & ~PART_SWEEP, 15, 47},
        .begin = begin,
        .judge = judge,
        .describe = describe};
    return bench_main(argc, argv, &SPEC);
}
