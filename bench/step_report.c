/* step_report.c: the table for people and the JSON for programs. */
#include "json.h"
#include "step_bench.h"

#include <math.h>

static const double MIB = 1 << 20;

static void print_race(FILE *out, const race *r)
{
    if (!r->rounds)
        return;
    fprintf(out, "\n%s, %s: %u rounds, %u of them clean\n%-22s %10s %10s %10s %8s\n", r->part, r->label, r->rounds,
            r->clean_rounds, "", "min s", "median s", "max s", "GB/s");
    for (unsigned i = 0; i < r->count; i++) {
        const race_entry *e = &r->entries[i];
        unsigned count;
        const bench_spread spread = race_spread(r, (int)i, &count);
        if (!count) {
            fprintf(out, "%-22s no clean sample\n", e->name);
            continue;
        }
        fprintf(out, "%-22s %10.4f %10.4f %10.4f %8.2f  %s\n", e->name, spread.min, spread.median, spread.max,
                1e-9 * e->elements * e->bytes / spread.median, e->what);
    }
}

void step_report_table(FILE *out, const step_options *options, const step_book *book, const bench_figures *figures)
{
    const zoff_plan_info *small = &book->small;
    fprintf(out, "%zu weights and gradients of bf16, %.0f MiB of states", options->elements,
            12.0 * (double)options->elements / MIB);
    if (small->chunk_count)
        fprintf(out, " in %llu chunks through %u slots, %.0f MiB of DRAM; %u threads, %s kernels",
                (unsigned long long)small->chunk_count, small->slots, (double)small->host_bytes / MIB, book->threads,
                zoff_isa());
    fprintf(out, "\nGB/s are bytes read and written in files\n");
    print_race(out, &book->free_race);
    print_race(out, &book->rivals);
    print_race(out, &book->extra);
    print_race(out, &book->throttled);
    print_race(out, &book->paths);
    print_race(out, &book->small_loop);
    print_race(out, &book->large_loop);
    print_race(out, &book->residents);
    if (book->agree >= 0)
        fprintf(out, "\nstates: %s\n", book->agree ? "all contestants have the same bits" : book->disagree);
    if (book->rss[1] > 0)
        fprintf(out, "memory beside weights and gradients: %.1f MiB, of ten times the model %.1f MiB\n", book->rss[0],
                book->rss[1]);
    fprintf(out, "\nratios, medians of paired rounds\n");
    bench_figures_print(out, figures);
    if (!step_judge_enough(book))
        fprintf(out, "Some figures come from fewer than %d clean rounds: run again on a quieter machine.\n", ENOUGH_ROUNDS);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->run.start);
}

static json_t *race_object(const race *r)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++) {
        const race_entry *e = &r->entries[i];
        unsigned count;
        const bench_spread spread = race_spread(r, (int)i, &count);
        json_t *row = json_pack("{s:s, s:s, s:f}", "name", e->name, "what", e->what, "bytes_per_element", e->bytes);
        json_object_set_new(row, "seconds_median", bench_json_number(spread.median));
        json_object_set_new(row, "gb_per_s", bench_json_number(1e-9 * e->elements * e->bytes / spread.median));
        json_object_set_new(row, "seconds", bench_json_samples(r, i));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:s, s:i, s:i, s:o}", "part", r->part, "label", r->label, "rounds", (int)r->rounds, "clean_rounds",
                     (int)r->clean_rounds, "rows", rows);
}

static json_t *plan_object(const zoff_plan_info *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "state_bytes", (json_int_t)p->state_bytes, "host_bytes",
                     (json_int_t)p->host_bytes, "resident_bytes", (json_int_t)p->resident_bytes, "nvme_bytes",
                     (json_int_t)p->nvme_bytes, "chunk_count", (json_int_t)p->chunk_count, "chunk_bytes",
                     (json_int_t)p->chunk_bytes, "slots", (int)p->slots);
}

static void put_findings(json_t *root, const step_book *book)
{
    json_t *races = json_array();
    const race *const all[] = {&book->free_race, &book->rivals,     &book->extra,      &book->throttled,
                               &book->paths,     &book->small_loop, &book->large_loop, &book->residents};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->count)
            json_array_append_new(races, race_object(all[i]));
    }
    json_object_set_new(root, "races", races);
    json_object_set_new(root, "enough_clean_rounds", json_boolean(step_judge_enough(book)));
    json_object_set_new(root, "plan", plan_object(&book->small));
    json_object_set_new(root, "plan_cached50", plan_object(&book->cached));
    json_object_set_new(root, "step_read_bytes", json_integer((json_int_t)book->step_bytes));
    json_object_set_new(root, "direct_io", json_boolean(book->direct));
    json_object_set_new(root, "states_agree", book->agree < 0 ? json_null() : json_boolean(book->agree));
    json_object_set_new(root, "states_compared", json_integer(book->compared));
    if (book->agree == 0)
        json_object_set_new(root, "states_differ", json_string(book->disagree));
    if (!book->no_rivals[0] && book->buffer_bytes)
        json_object_set_new(root, "libaio_buffers",
                            json_pack("{s:I, s:I, s:I, s:b}", "bytes", (json_int_t)book->buffer_bytes, "plain_in_huge_pages",
                                      (json_int_t)book->plain_huge, "thp_in_huge_pages", (json_int_t)book->thp_huge, "locked",
                                      book->locked));
    json_object_set_new(root, "rss_mib",
                        json_pack("{s:o, s:o}", "model", bench_json_number(book->rss[0] > 0 ? book->rss[0] : NAN),
                                  "ten_times_the_model", bench_json_number(book->rss[1] > 0 ? book->rss[1] : NAN)));
}

int step_report_json(const step_options *options, const step_book *book, const bench_figures *figures)
{
    json_t *root =
        json_pack("{s:s, s:o, s:I, s:i, s:s, s:b, s:s, s:f}", "bench", "step", "machine", bench_json_machine(), "elements",
                  (json_int_t)options->elements, "threads", (int)book->threads, "isa", zoff_isa(), "quick", options->run.quick,
                  "path", options->path, "seconds", bench_stopwatch_now() - options->run.start);
    bench_figures_put(root, figures, "rounds");
    put_findings(root, book);
    return bench_json_write(root, options->run.json_path);
}
