/* aio_parts.c: the races. In each round everybody has one turn, in an order drawn anew; the ways take turns too. A disk that is
 * shared drifts within minutes, so what is to be compared must run within seconds. */
#include "aio_bench.h"
#include "throttle.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static const uint64_t BOUND = 1000 * 1000 * 1000; /* bytes a second each way, of the disk of known speed */
static const double FOREIGN_SHARE = 0.02;         /* of a sample's bytes, that the disk may move for others meanwhile */
static const double FIO_START = 0.3;              /* seconds that fio takes before it moves anything */

/* --- rounds --- */

/* How a race is run. */
typedef struct pace {
    unsigned rounds;
    unsigned tries; /* for a sample, until the disk works for us alone */
    double pause;   /* seconds before each of our samples */
    double deadline;
} pace;

static void shuffle(unsigned *order, unsigned count)
{
    static uint32_t state = 2463534242u;
    for (unsigned i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        const unsigned other = state % (i + 1);
        order[i] = order[other];
        order[other] = i;
    }
}

static void wait_for(double seconds)
{
    if (seconds > 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

/* One turn. 1: it says something; 0: the disk worked for somebody else too; -1: it failed. */
static int take_turn(const bench_match *match, const bench_line *line, double pause, bench_place *place, bench_sample_io *out)
{
    const double before = bench_place_moved(place);
    if (line->engine ? bench_fio_run(place, line, match->way, match->bytes, out) != 0
                     : (wait_for(pause), bench_ours_run(place, line, match->way, match->bytes, out)) != 0)
        return -1;
    return !(bench_place_moved(place) - before > (1 + FOREIGN_SHARE) * (double)match->bytes);
}

/* fio may lack an engine or a right: then that line stays empty. Our own queue has no such excuse. */
static int run_round(bench_match *match, const pace *p, bench_place *place)
{
    unsigned order[RACE_ENTRIES], clean = 0;
    const unsigned round = match->r.rounds;
    shuffle(order, match->r.count);
    for (unsigned i = 0; i < match->r.count; i++)
        match->r.entries[i].seconds[round] = match->cpu[i][round] = NAN;
    for (unsigned k = 0; k < match->r.count && !bench_stopped; k++) {
        const unsigned i = order[k];
        bench_sample_io sample;
        int ret = 0;
        for (unsigned try = 0; ret == 0 && try < p->tries && (!try || !bench_over(p->deadline)); try++) {
            ret = take_turn(match, &match->lines[i], p->pause, place, &sample);
            match->r.retried_samples += try > 0;
        }
        if (ret < 0 && !match->lines[i].engine && !bench_stopped)
            return -1;
        if (ret >= 0) {
            match->r.entries[i].seconds[round] = sample.seconds;
            match->cpu[i][round] = sample.cpu;
            match->busy[i][round] = ret == 0;
            clean += ret == 1;
        }
    }
    if (bench_stopped)
        return 0; /* half a round is none */
    match->r.rounds++;
    match->r.clean_rounds += clean == match->r.count;
    return 0;
}

/* All ways, round after round, while another round is likely to end in time; one round in any case. */
static int run_rounds(bench_match *matches[WAYS], const pace *p, bench_place *place)
{
    const double start = bench_stopwatch_now();
    int ret = 0;
    for (unsigned k = 0; ret == 0 && k < p->rounds && !bench_stopped; k++) {
        const double now = bench_stopwatch_now();
        if (k && now + (now - start) / k > p->deadline)
            break;
        for (unsigned way = 0; ret == 0 && way < WAYS; way++)
            ret = run_round(matches[way], p, place);
    }
    return ret;
}

static int open_races(bench_book *book, const char *part, uint64_t bytes, bench_match *out[WAYS])
{
    for (unsigned way = 0; way < WAYS; way++) {
        out[way] = bench_book_open(book, part, (bench_way)way, bytes);
        if (!out[way])
            return -1;
    }
    return 0;
}

static unsigned at_most(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* --- the contest --- */

static void add_ours(bench_match *match, const bench_options *options)
{
    bench_match_add(match, (bench_line){.block = options->block, .depth = options->depth});
    bench_match_add(match, (bench_line){.block = options->block, .depth = options->depth, .request = REQUEST_BYTES});
}

/* The settings of fio that may be its best; a thinner choice when there is little time. */
static void add_settings(bench_match *match, int quick)
{
    static const char *const ENGINES[] = {"io_uring", "libaio"};
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 4 * MIB};
    static const unsigned DEPTHS[] = {8, 16, 32};
    for (unsigned e = 0; e < 2; e++) {
        for (unsigned b = 0; b < 3; b++) {
            for (unsigned d = 0; d < 3; d++) {
                if (!quick || (b == 1 && d == 1) || (b == 2 && d != 1))
                    bench_match_add(match, (bench_line){.engine = ENGINES[e], .block = BLOCKS[b], .depth = DEPTHS[d]});
            }
        }
    }
}

/* The fastest lines of fio in one race are taken over into another. */
static void take_best(const bench_match *from, unsigned wanted, bench_match *to)
{
    int taken[RACE_ENTRIES] = {0};
    for (unsigned n = 0; n < wanted; n++) {
        int best = -1;
        for (unsigned i = 0; from && i < from->r.count; i++) {
            const bench_line *line = &from->lines[i];
            const double rate = bench_match_rate(from, (int)i);
            if (line->engine && !line->small_pages && !taken[i] && !isnan(rate) &&
                (best < 0 || rate > bench_match_rate(from, best)))
                best = (int)i;
        }
        if (best < 0)
            return;
        taken[best] = 1;
        bench_match_add(to, from->lines[best]);
    }
}

int bench_contest(const bench_options *options, double deadline, bench_book *book)
{
    bench_match *scouts[WAYS], *races[WAYS];
    const unsigned finalists = options->run.quick ? 2 : 4;
    int ret = 0;
    if (book->fio_version[0]) {
        if (open_races(book, "scouting", options->run.quick ? options->bytes / 4 : options->bytes, scouts) != 0)
            return -1;
        for (unsigned way = 0; way < WAYS; way++)
            add_settings(scouts[way], options->run.quick);
        const double left = deadline - bench_stopwatch_now();
        ret = run_rounds(scouts,
                         &(pace){.rounds = options->run.quick ? 1 : at_most(options->run.rounds, 3),
                                 .tries = 2,
                                 .deadline = deadline - 0.6 * left},
                         &book->place);
    }
    if (ret != 0 || open_races(book, "contest", options->bytes, races) != 0)
        return -1;
    for (unsigned way = 0; way < WAYS; way++) {
        add_ours(races[way], options);
        if (book->fio_version[0])
            take_best(scouts[way], finalists, races[way]);
    }
    return run_rounds(races, &(pace){.rounds = options->run.rounds, .tries = 3, .deadline = deadline}, &book->place);
}

/* --- on a disk of known speed --- */

/* Against the best of the contest, which is not run anew with all its settings. The kernel lets whoever was idle catch up a
 * little: so everybody comes from a pause, fio from that of its start. */
int bench_throttle(const bench_options *options, double deadline, bench_book *book)
{
    bench_match *races[WAYS];
    throttle bound;
    if (!book->fio_version[0])
        return 0;
    if (throttle_open(&bound, book->place.path, BOUND) != 0) {
        snprintf(book->no_throttle, sizeof book->no_throttle, "%s", bound.reason);
        return 0;
    }
    int ret = open_races(book, "throttle", options->bytes, races);
    for (unsigned way = 0; ret == 0 && way < WAYS; way++) {
        const bench_match *contest = bench_book_find(book, "contest", (bench_way)way);
        add_ours(races[way], options);
        if (contest)
            take_best(contest, 1, races[way]);
        else
            bench_match_add(races[way], (bench_line){.engine = "io_uring", .block = MIB, .depth = 16});
    }
    if (ret == 0)
        ret = run_rounds(
            races, &(pace){.rounds = at_most(options->run.rounds, 5), .tries = 1, .pause = FIO_START, .deadline = deadline},
            &book->place);
    throttle_close(&bound);
    return ret;
}

/* --- what is told beside --- */

/* Memory of 4 KiB pages: ours, and fio as DeepSpeed's defaults move data (libaio, 1 MiB, 8 in flight). */
int bench_pages(const bench_options *options, double deadline, bench_book *book)
{
    bench_match *races[WAYS];
    const uint64_t quarter = options->bytes / 4 / FILE_UNIT * FILE_UNIT;
    if (open_races(book, "pages", !options->run.quick ? options->bytes : quarter ? quarter : FILE_UNIT, races) != 0)
        return -1;
    for (unsigned way = 0; way < WAYS; way++) {
        bench_match_add(races[way], (bench_line){.block = options->block, .depth = options->depth, .request = REQUEST_BYTES});
        bench_match_add(
            races[way],
            (bench_line){.block = options->block, .depth = options->depth, .request = REQUEST_BYTES, .small_pages = 1});
        if (book->fio_version[0])
            bench_match_add(races[way], (bench_line){.engine = "libaio", .block = MIB, .depth = 8, .small_pages = 1});
    }
    return run_rounds(races, &(pace){.rounds = at_most(options->run.rounds, 5), .tries = 2, .deadline = deadline},
                      &book->place);
}

/* Our queue by the size of its pieces and their number in flight. */
int bench_sweep(const bench_options *options, double deadline, bench_book *book)
{
    static const uint64_t BLOCKS[] = {512 * KIB, MIB, 2 * MIB, 4 * MIB, 16 * MIB};
    static const unsigned DEPTHS[] = {8, 16, 32, 64};
    bench_match *races[WAYS];
    if (open_races(book, "sweep", options->bytes, races) != 0)
        return -1;
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned b = 0; b < sizeof BLOCKS / sizeof BLOCKS[0]; b++) {
            for (unsigned d = 0; d < sizeof DEPTHS / sizeof DEPTHS[0]; d++)
                bench_match_add(races[way], (bench_line){.block = BLOCKS[b], .depth = DEPTHS[d]});
        }
    }
    return run_rounds(races, &(pace){.rounds = at_most(options->run.rounds, 5), .tries = 2, .deadline = deadline},
                      &book->place);
}
