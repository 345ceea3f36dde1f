/* aio_parts.c: the races. In each round every contestant has one turn, and the directions take turns, too. A shared disk drifts
 * within minutes, so contestants must run within seconds of each other. */
#include "aio_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double FOREIGN_SHARE =
    0.02;                            /* of a sample's bytes: the most that the disk may move for other processes meanwhile */
static const double FIO_START = 0.3; /* seconds until fio moves its first byte */
static const char *const WAY_NAMES[WAYS] = {"read", "write", "mix"};

/* --- matches --- */

const aio_match *aio_match_of(const aio_found *found, const char *name)
{
    const race *r = race_of(&found->book, name);
    return r ? r->user : NULL;
}

double aio_match_cpu(const aio_match *match, unsigned index)
{
    return bench_spread_of(match->r->entries[index].other, match->r->rounds).median / (1e-9 * (double)match->bytes);
}

int aio_match_best_fio(const aio_match *match, const bool taken[RACE_ENTRIES])
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

static void size_text(char *out, size_t bytes, uint64_t size)
{
    const bool mib = size % MIB == 0;
    snprintf(out, bytes, "%llu%s", (unsigned long long)(mib ? size / MIB : size / KIB), mib ? "m" : "k");
}

/* "fio libaio 1m x8", "zoff 16m by 2m x32", "zoff 16m" with the library's defaults. */
static void make_name(const aio_match *match, aio_line *line)
{
    char block[24] = "", request[24], depth[16] = "";
    if (line->block)
        size_text(block, sizeof block, line->block);
    if (line->depth)
        snprintf(depth, sizeof depth, " x%u", (unsigned)line->depth);
    size_text(request, sizeof request, line->request ? line->request : match->bytes);
    snprintf(line->name, sizeof line->name, "%s %s%s%s%s%s", line->engine ? "fio" : "zoff",
             line->engine ? line->engine : request,
             !line->block   ? ""
             : line->engine ? " "
                            : " by ",
             block, depth, line->small_pages ? " 4k pages" : "");
}

static void add(aio_match *match, aio_line line)
{
    aio_line *own = &match->lines[match->r->count];
    *own = line;
    make_name(match, own);
    const char *what = line.engine ? "fio" : line.request ? "four requests a wait" : "one request";
    race_add(match->r, &(race_line){own->name, what, 1}, (double)match->bytes, NULL, 1);
}

/* null: the library chooses. */
static json_t *chosen(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static void describe(const race *r, unsigned index, json_t *out)
{
    const aio_match *match = r->user;
    const aio_line *line = &match->lines[index];
    if (index == r->count) {
        const int best = aio_match_best_fio(match, NULL);
        json_object_update_new(out, json_pack("{s:s, s:I, s:o}", "way", r->label, "bytes", (json_int_t)match->bytes, "best_fio",
                                              best < 0 ? json_null() : json_string(match->lines[best].name)));
        return;
    }
    const uint64_t whole = match->way == WAY_MIX ? match->bytes / 2 : match->bytes;
    json_object_update_new(out,
                           json_pack("{s:s, s:o, s:o, s:b, s:i, s:o}", "program", line->engine ? "fio" : "zoff", "block_bytes",
                                     chosen(line->block), "depth", chosen(line->depth), "huge_pages", !line->small_pages,
                                     "samples", (int)bench_spread_of(r->entries[index].seconds, r->rounds).count,
                                     "cpu_s_per_gb", bench_report_number(aio_match_cpu(match, index))));
    if (line->engine)
        json_object_set_new(out, "engine", json_string(line->engine));
    else
        json_object_set_new(out, "request_bytes", json_integer((json_int_t)(line->request ? line->request : whole)));
}

/* Take one turn. 1: it counts; 0: the disk worked for other processes, too; -1: it failed. */
static int take_turn(const aio_match *match, const aio_line *line, double *seconds, double *cpu)
{
    const double before = disk_moved(match->place->path);
    int ret;
    if (!line->engine && match->pause > 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * match->pause)}, NULL);
    if (line->engine)
        ret = aio_fio_run(match->place, line, match->way, match->bytes, seconds, cpu);
    else
        ret = aio_ours_run(match->place, line, match->way, match->bytes, seconds, cpu);
    return ret != 0 ? -1 : !(disk_moved(match->place->path) - before > (1 + FOREIGN_SHARE) * (double)match->bytes);
}

/* fio may lack an engine or a right: then that line stays empty. A failure of our own queue is an error. */
static double sample(race *r, race_entry *e, double deadline)
{
    const aio_match *match = r->user;
    const aio_line *line = &match->lines[e - r->entries];
    double seconds, cpu;
    int ret = 0;
    for (unsigned try = 0; ret == 0 && try < match->tries && (!try || bench_now() < deadline); try++) {
        ret = take_turn(match, line, &seconds, &cpu);
        r->retried_samples += try > 0;
    }
    if (aio_stopped || ret < 0)
        return aio_stopped || !line->engine ? -1 : NAN; /* a round that is not complete does not count */
    e->other[r->rounds] = cpu;
    e->disturbed[r->rounds] = ret == 0;
    return seconds;
}

/* The matches of a part, one for each way. */
static aio_match *open_matches(aio_found *found, const char *part, uint64_t bytes, unsigned tries, double pause)
{
    aio_match *first = &found->matches[found->count];
    for (unsigned way = 0; way < WAYS; way++) {
        aio_match *m = &found->matches[found->count++];
        m->r = race_open(&found->book, part, "%s", WAY_NAMES[way]);
        m->r->sample = sample;
        m->r->describe = describe;
        m->r->user = m;
        m->place = &found->place;
        m->way = (aio_way)way;
        m->bytes = bytes;
        m->tries = tries;
        m->pause = pause;
        if (!found->fio_version[0])
            race_excuse(m->r, "fio, to compare with, cannot be run: apt-get install fio");
    }
    return first;
}

/* Run all directions, round after round, while one more is likely to end in time. Run at least one round. */
static int run_rounds(aio_match *matches, uint64_t rounds, double deadline)
{
    const double start = bench_now();
    int ret = 0;
    for (unsigned k = 0; ret == 0 && k < rounds; k++) {
        const double now = bench_now();
        if (k && now + (now - start) / k > deadline)
            break;
        for (unsigned way = 0; ret == 0 && way < WAYS; way++)
            ret = race_round(matches[way].r, deadline);
    }
    return ret;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- the contest --- */

static void add_ours(aio_match *match, const aio_options *options)
{
    add(match, (aio_line){.block = options->block, .depth = options->depth});
    add(match, (aio_line){.block = options->block, .depth = options->depth, .request = REQUEST_BYTES});
}

/* Add the settings of fio that may be the best; fewer of them if time is short. */
static void add_settings(aio_match *match, bool quick)
{
    static const char *const ENGINES[] = {"io_uring", "libaio"};
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 4 * MIB}, DEPTHS[] = {8, 16, 32};
    for (unsigned i = 0; i < 18; i++) {
        const unsigned b = i / 3 % 3, d = i % 3;
        if (!quick || (b == 1 && d == 1) || (b == 2 && d != 1))
            add(match, (aio_line){.engine = ENGINES[i / 9], .block = BLOCKS[b], .depth = DEPTHS[d]});
    }
}

/* Take fio's fastest lines of one race over into another. */
static void take_best(const aio_match *from, unsigned wanted, aio_match *to)
{
    bool taken[RACE_ENTRIES] = {false};
    for (int best; wanted-- && (best = aio_match_best_fio(from, taken)) >= 0; taken[best] = true)
        add(to, from->lines[best]);
}

int aio_contest(const aio_options *options, double deadline, aio_found *found)
{
    const bool quick = options->run.quick;
    aio_match *scouts = NULL;
    if (found->fio_version[0]) {
        scouts = open_matches(found, "scouting", quick ? options->bytes / 4 : options->bytes, 2, 0);
        for (unsigned way = 0; way < WAYS; way++)
            add_settings(&scouts[way], quick);
        const double left = deadline - bench_now();
        if (run_rounds(scouts, quick ? 1 : at_most(options->run.rounds, 3), deadline - 0.6 * left) != 0)
            return -1;
    }
    aio_match *matches = open_matches(found, "contest", options->bytes, 3, 0);
    for (unsigned way = 0; way < WAYS; way++) {
        add_ours(&matches[way], options);
        take_best(scouts ? &scouts[way] : NULL, quick ? 2 : 4, &matches[way]);
    }
    return run_rounds(matches, options->run.rounds, deadline);
}

/* Race against fio's best settings of the contest. The kernel gives a cgroup some extra after idle time. So every contestant
 * starts from a pause, as fio does from its start. */
int aio_throttle(const aio_options *options, double deadline, aio_found *found)
{
    aio_match *matches = open_matches(found, "throttle", options->bytes, 1, FIO_START);
    if (!found->fio_version[0])
        return 0;
    if (throttle_open(&disk_throttle, found->place.path, BOUND) != 0) {
        for (unsigned way = 0; way < WAYS; way++)
            race_excuse(matches[way].r, "%s", disk_throttle.reason);
        return 0;
    }
    for (unsigned way = 0; way < WAYS; way++) {
        char name[32];
        snprintf(name, sizeof name, "contest/%s", WAY_NAMES[way]);
        const aio_match *contest = aio_match_of(found, name);
        add_ours(&matches[way], options);
        take_best(contest, 1, &matches[way]);
        if (!contest)
            add(&matches[way], (aio_line){.engine = "io_uring", .block = MIB, .depth = 16});
    }
    const int ret = run_rounds(matches, at_most(options->run.rounds, 5), deadline);
    throttle_close(&disk_throttle);
    return ret;
}

/* --- figures without a limit --- */

/* Memory in 4 KiB pages: ours, and fio moving data as DeepSpeed's defaults do (libaio, 1 MiB, 8 in flight). */
int aio_pages(const aio_options *options, double deadline, aio_found *found)
{
    const uint64_t quarter = options->bytes / 4 / FILE_UNIT * FILE_UNIT;
    aio_match *matches = open_matches(found, "pages",
                                      !options->run.quick ? options->bytes
                                      : quarter           ? quarter
                                                          : FILE_UNIT,
                                      2, 0);
    for (unsigned way = 0; way < WAYS; way++) {
        aio_line ours = {.block = options->block, .depth = options->depth, .request = REQUEST_BYTES};
        add(&matches[way], ours);
        ours.small_pages = true;
        add(&matches[way], ours);
        if (found->fio_version[0])
            add(&matches[way], (aio_line){.engine = "libaio", .block = MIB, .depth = 8, .small_pages = true});
    }
    return run_rounds(matches, at_most(options->run.rounds, 5), deadline);
}

/* Our queue by the size of its pieces and their number in flight. */
int aio_sweep(const aio_options *options, double deadline, aio_found *found)
{
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 2 * MIB, 4 * MIB, 16 * MIB}, DEPTHS[] = {8, 16, 32, 64};
    aio_match *matches = open_matches(found, "sweep", options->bytes, 2, 0);
    for (unsigned i = 0; i < WAYS * 20; i++)
        add(&matches[i / 20], (aio_line){.block = BLOCKS[i % 20 / 4], .depth = DEPTHS[i % 4]});
    return run_rounds(matches, at_most(options->run.rounds, 5), deadline);
}
