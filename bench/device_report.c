/* device_report.c: the table for people and the JSON for programs. */
#include "device_bench.h"
#include "json.h"

static void print_race(FILE *out, const race *r)
{
    fprintf(out, "\n%s: %u rounds\n%-12s %10s %10s %10s %8s\n", r->label, r->rounds, "", "min ms", "median ms", "max ms",
            "GB/s");
    for (unsigned i = 0; r->rounds && i < r->count; i++) {
        const race_entry *e = &r->entries[i];
        unsigned count;
        const bench_spread s = race_spread(r, (int)i, &count);
        fprintf(out, "%-12s %10.2f %10.2f %10.2f ", e->name, 1e3 * s.min, 1e3 * s.median, 1e3 * s.max);
        if (e->bytes > 0)
            fprintf(out, "%8.2f  %s\n", 1e-9 * e->bytes * e->elements / s.median, e->what);
        else
            fprintf(out, "%8s  %s\n", "", e->what);
    }
}

static void print_table(FILE *out, const device_book *book, const bench_figures *figures)
{
    const device_model *m = &book->model;
    fprintf(out, "%s (%s); %zu elements of bf16, %zu layers of width %zu in %zu slices; %u threads, %s kernels\n",
            book->about.name, book->about.backend, m->elements, m->layers, m->width, m->slices, book->plan.threads, zoff_isa());
    fprintf(out, "GB/s are bytes between the device and the host; the backward pass of \"visible\" takes %.1f ms\n",
            1e3 * book->backward);
    print_race(out, &book->race);
    fprintf(out, "\nratios, medians of paired rounds\n");
    bench_figures_print(out, figures);
}

static json_t *race_object(const race *r)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++) {
        const race_entry *e = &r->entries[i];
        unsigned count;
        const bench_spread spread = race_spread(r, (int)i, &count);
        json_t *row = json_pack("{s:s, s:s, s:f}", "name", e->name, "what", e->what, "bytes_per_element", e->bytes);
        bench_json_spread(row, spread);
        json_object_set_new(row, "bytes_per_second", bench_json_number(e->bytes * e->elements / spread.median));
        json_object_set_new(row, "seconds", bench_json_samples(r, i));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:s, s:i, s:o}", "part", r->part, "label", r->label, "rounds", (int)r->rounds, "rows", rows);
}

static json_t *about_object(const zoff_accel_info *a)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I}", "backend", a->backend, "name", a->name, "index", a->index,
                     "numa_node", a->numa_node, "memory_bytes", (json_int_t)a->memory_bytes, "pinned_bytes",
                     (json_int_t)a->pinned_bytes, "pin_refused_bytes", (json_int_t)a->pin_refused_bytes, "bounced_bytes",
                     (json_int_t)a->bounced_bytes, "pageable_copies", (json_int_t)a->pageable_copies);
}

static json_t *step_object(const zoff_step_info *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "seconds", s->seconds, "measure_seconds", s->measure_seconds,
                     "update_seconds", s->update_seconds, "device_wait_seconds", s->device_wait_seconds, "elements_updated",
                     (json_int_t)s->elements_updated, "device_read_bytes", (json_int_t)s->device_read_bytes,
                     "device_write_bytes", (json_int_t)s->device_write_bytes);
}

static int write_json(const device_options *options, const device_book *book, const bench_figures *figures)
{
    const device_model *m = &book->model;
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:b, s:f, s:f, s:[o]}", "bench", "device", "machine",
                  bench_json_machine(), "accelerator", about_object(&book->about), "elements", (json_int_t)m->elements,
                  "layers", (json_int_t)m->layers, "slices", (json_int_t)m->slices, "host_bytes",
                  (json_int_t)(book->plan.host_bytes + book->plan.device_host_bytes), "threads", (int)book->plan.threads, "isa",
                  zoff_isa(), "quick", options->run.quick, "backward_seconds", book->backward, "seconds",
                  bench_stopwatch_now() - options->run.start, "races", race_object(&book->race));
    if (root) {
        json_object_set_new(root, "last_step", step_object(&book->info));
        json_object_set_new(root, "last_update", step_object(&book->host_info));
        bench_figures_put(root, figures, "rounds");
    }
    return bench_json_write(root, options->run.json_path);
}

int device_report(const device_options *options, const device_book *book)
{
    FILE *out = bench_run_table(&options->run);
    bench_figures figures;
    device_judge(options, book, &figures);
    print_table(out, book, &figures);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->run.start);
    if (options->run.json_path && write_json(options, book, &figures) != 0)
        return 1;
    return bench_figures_any(&figures) ? 0 : 3;
}
