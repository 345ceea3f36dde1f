/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: the judge of scripts/demo. It reads the JSON of its runs, compares them, prints the verdicts and a table, and
 * writes everything to one file. Exit status: 0 if all verdicts on bits and bytes hold, 1 if one does not, 2 if an input is
 * missing or wrong. Times decide nothing, because a busy machine has others. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The demo's promises. */
#define LEAST_NATS_BELOW 0.4   /* final loss below the entropy of single bytes */
#define MOST_PLAIN_DIFF 1e-5   /* relative difference over the first steps */
#define LEAST_RSS_SAVED 0.8    /* memory that states on NVMe save, as a share of the state bytes */
#define LEAST_STATE_MIB 512    /* least states of part two, in MiB */
#define MOST_BUDGET_MIB 64     /* largest budget of part two, in MiB */
#define LEAST_BUDGET_RATIO 4.0 /* ratio of states to the budget in part one */
#define LEAST_MOVED 0.99       /* share of the state bytes that each step of part two reads and writes */
#define LEAST_HIDDEN 0.95      /* share of the tokens/s with states in DRAM, where the forward pass is longer than the step */
#define LEAST_AHEAD 0.5        /* share of the buckets that are updated during the backward pass */
enum { PLAIN_STEPS = 50 };

enum role { PLAIN, DRAM, NVME, BIG_DRAM, BIG_NVME, HIDDEN, LONG_DRAM, LONG_HIDDEN, LONG_AHEAD, ROLES };
static const char *const role_names[ROLES] = {"plain",  "dram",      "nvme",        "big-dram",  "big-nvme",
                                              "hidden", "long-dram", "long-hidden", "long-ahead"};

typedef struct report {
    json_t *run[ROLES];
    json_t *checks;
    bool passed;
    bool is_slow; /* a time does not hold */
} report;

static double number(const report *r, enum role role, const char *key)
{
    return json_number_value(json_object_get(r->run[role], key));
}

static double mib(double bytes)
{
    return bytes / 1048576.0;
}

static double at(const report *r, enum role role, const char *key, size_t step)
{
    return json_number_value(json_array_get(json_object_get(r->run[role], key), step));
}

static size_t step_count(const report *r, enum role role)
{
    return json_array_size(json_object_get(r->run[role], "losses"));
}

static void print_check(report *r, bool decides, bool holds, const char *what, const char *format, va_list arguments)
{
    char words[256];
    vsnprintf(words, sizeof words, format, arguments);
    printf("  %-4s  %-59s %s\n", holds ? "ok" : decides ? "FAIL" : "slow", what, words);
    json_array_append_new(
        r->checks, json_pack("{s:s, s:s, s:b, s:b}", "what", what, "measured", words, "holds", holds, "decides", decides));
    r->passed = r->passed && (holds || !decides);
    r->is_slow = r->is_slow || !(holds || decides);
}

static void __attribute__((format(printf, 4, 5))) check(report *r, bool holds, const char *what, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_check(r, true, holds, what, format, arguments);
    va_end(arguments);
}

static void __attribute__((format(printf, 4, 5))) check_time(report *r, bool holds, const char *what, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_check(r, false, holds, what, format, arguments);
    va_end(arguments);
}

/* Number of first steps in which two runs agree to the last bit; one more than all steps if the weights agree, too. */
static size_t equal_steps(const report *r, enum role a, enum role b)
{
    const json_t *x = json_object_get(r->run[a], "loss_bits"), *y = json_object_get(r->run[b], "loss_bits");
    size_t step = 0;
    while (step < json_array_size(x) && json_equal(json_array_get(x, step), json_array_get(y, step)))
        step++;
    const bool all = step == json_array_size(x) && step == json_array_size(y);
    return step + (all && json_equal(json_object_get(r->run[a], "weights_hash"), json_object_get(r->run[b], "weights_hash")));
}

static bool check_identical(report *r, enum role a, enum role b, const char *what)
{
    const size_t steps = step_count(r, a), equal = equal_steps(r, a, b);
    const bool holds = steps > 0 && equal > steps;
    check(r, holds, what, holds ? "%zu of %zu steps, and the final weights" : "%zu of %zu steps; the final weights differ",
          equal < steps ? equal : steps, steps);
    return holds;
}

/* The largest relative difference of two losses over the first steps. */
static double plain_difference(const report *r)
{
    double most = 0.0;
    for (size_t step = 0; step < step_count(r, PLAIN) && step < PLAIN_STEPS; step++) {
        const double a = at(r, PLAIN, "losses", step), b = at(r, DRAM, "losses", step);
        const double difference = fabs(a - b) / fabs(a);
        most = difference > most || isnan(difference) ? difference : most;
    }
    return most;
}

/* Least share of the state bytes that a step moved, by the kernel's count, from step `first` on. */
static double least_moved(const report *r, enum role role, const char *key, size_t first)
{
    double least = INFINITY;
    for (size_t step = first; step < step_count(r, role); step++)
        least = fmin(least, at(r, role, key, step));
    return least / number(r, role, "state_bytes");
}

static void judge_learning(report *r, json_t *out)
{
    const double unigram = number(r, NVME, "unigram_entropy_nats"), state = number(r, NVME, "state_bytes");
    const double window = number(r, NVME, "state_host_bytes"), difference = plain_difference(r);
    double loss = number(r, PLAIN, "final_loss");
    loss = fmax(loss, fmax(number(r, DRAM, "final_loss"), number(r, NVME, "final_loss")));
    printf("\nPart one, learning\n");
    const bool identical = check_identical(r, DRAM, NVME, "losses of DRAM and NVMe are equal to the last bit");
    check(r, window > 0 && window * LEAST_BUDGET_RATIO <= state, "the NVMe run holds at most a quarter of its states in DRAM",
          "%.2f of %.2f MiB", mib(window), mib(state));
    check(r, difference <= MOST_PLAIN_DIFF, "the plain loop agrees over the first 50 steps to 1e-5", "%.2g", difference);
    check(r, unigram - loss >= LEAST_NATS_BELOW, "the final loss is 0.4 nat below the entropy of single bytes",
          "%.4f; entropy %.4f; %.4f below", loss, unigram, unigram - loss);
    json_object_set_new(out, "bit_identical", json_boolean(identical));
    json_object_set_new(out, "plain_rel_diff", json_real(difference));
    json_object_set_new(out, "final_loss", json_real(loss));
    json_object_set_new(out, "unigram_entropy_nats", json_real(unigram));
    json_object_set_new(out, "nats_below_unigram", json_real(unigram - loss));
}

static void judge_memory(report *r, json_t *out)
{
    const double state = number(r, BIG_NVME, "state_bytes"), window = number(r, BIG_NVME, "state_host_bytes");
    const double saved = number(r, BIG_DRAM, "peak_rss_bytes") - number(r, BIG_NVME, "peak_rss_bytes");
    const double read = least_moved(r, BIG_NVME, "process_read_bytes", 1); /* the first step finds no moments to read */
    const double written = least_moved(r, BIG_NVME, "process_write_bytes", 0);
    const double files = number(r, BIG_NVME, "state_files"), direct = number(r, BIG_NVME, "state_files_direct");
    printf("\nPart two, memory\n");
    const bool identical = check_identical(r, BIG_DRAM, BIG_NVME, "losses of DRAM and NVMe are equal to the last bit");
    check(r, mib(state) >= LEAST_STATE_MIB && window > 0 && mib(window) <= MOST_BUDGET_MIB,
          "at least 512 MiB of states in at most 64 MiB of DRAM", "%.1f in %.1f MiB", mib(state), mib(window));
    check(r, saved >= LEAST_RSS_SAVED * state, "peak memory is lower by at least 0.8 of the state bytes",
          "%.1f MiB, %.3f of the states", mib(saved), saved / state);
    check(r, step_count(r, BIG_NVME) > 1 && read >= LEAST_MOVED, "each step reads the states (/proc/self/io)",
          "at least %.3f of them", read);
    check(r, written >= LEAST_MOVED, "each step writes the states (/proc/self/io)", "at least %.3f of them", written);
    check(r, files > 0 && direct == files, "state files are open with O_DIRECT (/proc/self/fdinfo)", "%.0f of %.0f", direct,
          files);
    json_object_set_new(out, "bit_identical", json_boolean(identical && json_is_true(json_object_get(out, "bit_identical"))));
    json_object_set_new(out, "rss_saved_over_state", json_real(saved / state));
    json_object_set_new(out, "read_over_state", json_real(read));
    json_object_set_new(out, "written_over_state", json_real(written));
    json_object_set_new(out, "direct_io", json_boolean(files > 0 && direct == files));
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The seconds of a step as the sum of `count` of its times: the median over the steps but the first, which finds cold caches,
 * and the last, after which no pass comes. */
static double median_seconds(const json_t *run, const char *const *keys, size_t count)
{
    enum { MOST = 1000 };
    double sums[MOST] = {0};
    size_t steps = json_array_size(json_object_get(run, keys[0]));
    steps = steps > MOST + 2 ? MOST : steps > 2 ? steps - 2 : 0;
    for (size_t step = 0; step < steps; step++)
        for (size_t k = 0; k < count; k++)
            sums[step] += json_number_value(json_array_get(json_object_get(run, keys[k]), step + 1));
    qsort(sums, steps, sizeof *sums, compare);
    return steps ? (sums[(steps - 1) / 2] + sums[steps / 2]) / 2 : NAN;
}

static double seconds_of(const json_t *run, const char *key)
{
    return median_seconds(run, &key, 1);
}

static double iteration(const json_t *run)
{
    static const char *const KEYS[] = {"forward_seconds", "backward_seconds", "step_seconds"};
    return median_seconds(run, KEYS, sizeof KEYS / sizeof *KEYS);
}

/* Judge steps in turns with the passes, and steps beside the next forward pass, with the context of part two. */
static bool judge_hidden(report *r, json_t *out)
{
    json_t *const *run = r->run;
    const double forward = seconds_of(run[BIG_DRAM], "forward_seconds"), step = seconds_of(run[BIG_NVME], "step_seconds");
    const double backward = seconds_of(run[BIG_DRAM], "backward_seconds"), wall = iteration(run[HIDDEN]);
    const double bound = backward + fmax(forward, step);
    const bool identical = check_identical(r, BIG_DRAM, HIDDEN, "losses of DRAM and of hidden steps are equal to the last bit");
    printf("        forward %.3f s, backward %.3f s, a step with states in files %.3f s: backward and the longer of\n"
           "        the others %.3f s; measured %.3f s, %.2f of it. In turns they took %.3f s\n",
           forward, backward, step, bound, wall, wall / bound, iteration(run[BIG_NVME]));
    json_object_set_new(out, "forward_seconds", json_real(forward));
    json_object_set_new(out, "backward_seconds", json_real(backward));
    json_object_set_new(out, "step_seconds", json_real(step));
    json_object_set_new(out, "hidden_over_bound", json_real(wall / bound));
    return identical;
}

static double sum_of(const report *r, enum role role, const char *key)
{
    double sum = 0.0;
    for (size_t step = 0; step < step_count(r, role); step++)
        sum += at(r, role, key, step);
    return sum;
}

/* Judge passes that are longer than a step. The bound of both ways is then the passes alone. */
static bool judge_long(report *r, json_t *out)
{
    json_t *const *run = r->run;
    const double step = seconds_of(run[BIG_NVME], "step_seconds"), dram = iteration(run[LONG_DRAM]);
    const double forward = seconds_of(run[LONG_DRAM], "forward_seconds");
    const double backward = seconds_of(run[LONG_DRAM], "backward_seconds");
    const double hidden = dram / iteration(run[LONG_HIDDEN]), ahead = dram / iteration(run[LONG_AHEAD]);
    const double all = sum_of(r, LONG_AHEAD, "buckets"), updated = sum_of(r, LONG_AHEAD, "buckets_ahead");
    const double again = sum_of(r, LONG_AHEAD, "buckets_redone"), staging = number(r, LONG_AHEAD, "speculation_bytes");
    const bool first = check_identical(r, LONG_DRAM, LONG_HIDDEN, "the same with a longer context");
    const bool second = check_identical(r, LONG_DRAM, LONG_AHEAD, "the same with buckets updated during the backward pass");
    printf("        forward %.3f s, backward %.3f s: together %.3f s; measured %.3f s beside the next forward pass, %.2f of\n"
           "        it, and %.3f s where updates begin during the backward pass, %.2f of it\n",
           forward, backward, forward + backward, iteration(run[LONG_HIDDEN]),
           iteration(run[LONG_HIDDEN]) / (forward + backward), iteration(run[LONG_AHEAD]),
           iteration(run[LONG_AHEAD]) / (forward + backward));
    const double hidden_mib = mib(number(r, LONG_HIDDEN, "state_host_bytes"));
    const double ahead_mib = mib(number(r, LONG_AHEAD, "state_host_bytes"));
    check(r, hidden_mib <= MOST_BUDGET_MIB && ahead_mib <= MOST_BUDGET_MIB, "both hold at most 64 MiB of states in DRAM",
          "%.1f and %.1f MiB, and %.1f for new weights", hidden_mib, ahead_mib, mib(staging));
    check(r, updated > 0 && again == 0, "buckets are updated during the backward pass, none twice", "%.0f of %.0f, %.0f twice",
          updated, all, again);
    check_time(r, updated >= LEAST_AHEAD * all, "at least half of the buckets are updated then", "%.2f of them", updated / all);
    check_time(r, forward >= step && hidden >= LEAST_HIDDEN, "tokens/s over those of DRAM, forward pass longer than step",
               "%.3f of at least %.2f; the pass takes %.2f steps", hidden, LEAST_HIDDEN, forward / step);
    check_time(r, forward >= step && ahead >= LEAST_HIDDEN, "the same with updates during the backward pass",
               "%.3f of at least %.2f", ahead, LEAST_HIDDEN);
    json_object_set_new(out, "hidden_over_dram", json_real(hidden));
    json_object_set_new(out, "ahead_over_dram", json_real(ahead));
    json_object_set_new(out, "ahead_over_bound", json_real(iteration(run[LONG_AHEAD]) / (forward + backward)));
    json_object_set_new(out, "buckets_ahead_over_all", json_real(updated / all));
    return first && second;
}

static void judge_time(report *r, json_t *out)
{
    printf("\nPart three, time\n");
    const bool first = judge_hidden(r, out), second = judge_long(r, out);
    json_object_set_new(out, "bit_identical",
                        json_boolean(first && second && json_is_true(json_object_get(out, "bit_identical"))));
}

/* A multiple of the context of two runs, with states in DRAM and in files. With it a forward pass takes 3.5 times as long as a
 * step with states in files: a step takes some CPU time from the pass, too. */
static int print_context(const char *dram_path, const char *nvme_path)
{
    enum { MOST = 1024 };
    json_error_t error;
    json_t *dram = json_load_file(dram_path, 0, &error), *nvme = json_load_file(nvme_path, 0, &error);
    const double forward = seconds_of(dram, "forward_seconds"), step = seconds_of(nvme, "step_seconds");
    const double context = json_number_value(json_object_get(dram, "context"));
    const double times = fmin(fmax(ceil(3.5 * step / forward), 1), MOST / context);
    json_decref(dram);
    json_decref(nvme);
    if (!(times * context > 0)) {
        fprintf(stderr, "gpt-report: %s and %s are not the --json of runs of gpt with three steps or more\n", dram_path,
                nvme_path);
        return 2;
    }
    printf("%.0f\n", floor(times) * context);
    return 0;
}

static void print_table(const report *r)
{
    printf("\n%-11s %-5s %6s %9s %9s %10s %11s %11s %10s %11s %11s\n", "run", "dtype", "steps", "loss", "tokens/s", "optimizer",
           "states", "states", "peak", "read", "written");
    printf("%-11s %-5s %6s %9s %9s %10s %11s %11s %10s %11s %11s\n", "", "", "", "nat", "", "share", "DRAM MiB", "NVMe MiB",
           "RSS MiB", "MiB/step", "MiB/step");
    for (enum role role = PLAIN; role < ROLES; role++) {
        const size_t steps = step_count(r, role);
        double read = 0.0, written = 0.0;
        for (size_t step = 0; step < steps; step++) {
            read += at(r, role, "process_read_bytes", step);
            written += at(r, role, "process_write_bytes", step);
        }
        printf("%-11s %-5s %6zu %9.4f %9.0f %9.1f%% %11.2f %11.2f %10.1f %11.2f %11.2f\n", role_names[role],
               json_string_value(json_object_get(r->run[role], "dtype")), steps, number(r, role, "final_loss"),
               number(r, role, "tokens_per_second"), 100.0 * number(r, role, "optimizer_share"),
               mib(number(r, role, "state_host_bytes")), mib(number(r, role, "state_nvme_bytes")),
               mib(number(r, role, "peak_rss_bytes")), mib(read / (double)steps), mib(written / (double)steps));
    }
}

static bool load(report *r, const char *argument)
{
    const char *equals = strchr(argument, '=');
    for (enum role role = PLAIN; equals && role < ROLES; role++) {
        if (strlen(role_names[role]) != (size_t)(equals - argument) ||
            strncmp(role_names[role], argument, (size_t)(equals - argument)))
            continue;
        json_error_t error;
        json_decref(r->run[role]);
        r->run[role] = json_load_file(equals + 1, 0, &error);
        if (!r->run[role])
            fprintf(stderr, "gpt-report: %s:%d: %s\n", equals + 1, error.line, error.text);
        else if (step_count(r, role) == 0)
            fprintf(stderr, "gpt-report: %s is not the --json of a run of gpt\n", equals + 1);
        return r->run[role] && step_count(r, role) > 0;
    }
    fprintf(stderr,
            "gpt-report: what is '%s'? Expected ROLE=FILE with role plain, dram, nvme, big-dram, big-nvme, hidden, "
            "long-dram, long-hidden or long-ahead\n",
            argument);
    return false;
}

static int judge(report *r, const char *path)
{
    json_t *out = json_object(), *runs = json_array();
    for (enum role role = PLAIN; role < ROLES; role++)
        json_array_append(runs, r->run[role]);
    judge_learning(r, out);
    judge_memory(r, out);
    judge_time(r, out);
    print_table(r);
    json_object_set_new(out, "passed", json_boolean(r->passed));
    json_object_set(out, "checks", r->checks);
    json_object_set_new(out, "runs", runs);
    const int failed = json_dump_file(out, path, JSON_INDENT(1));
    json_decref(out);
    if (failed) {
        fprintf(stderr, "gpt-report: cannot write %s\n", path);
        return 2;
    }
    if (r->is_slow)
        printf(
            "\nRows with 'slow' are times. This machine is too busy or too slow for them, which says nothing of the results.\n"
            "On an idle machine, build/bench/step --quick --only ahead,hidden measures them (ninja -C build bench)\n");
    printf("\n%s; all figures are in %s\n",
           !r->passed   ? "Something above does not hold"
           : r->is_slow ? "All bits and bytes hold"
                        : "All of it holds",
           path);
    return r->passed ? 0 : 1;
}

int main(int argc, char **argv)
{
    report r = {.passed = true};
    int result = 2;
    if (argc == 4 && strcmp(argv[1], "--context") == 0)
        return print_context(argv[2], argv[3]);
    if (argc != 2 + ROLES) {
        fprintf(stderr, "Usage: gpt-report OUT plain=FILE dram=FILE nvme=FILE big-dram=FILE big-nvme=FILE hidden=FILE \\\n"
                        "                  long-dram=FILE long-hidden=FILE long-ahead=FILE\n"
                        "       gpt-report --context BIG-DRAM BIG-NVME\n");
        return result;
    }
    r.checks = json_array();
    bool loaded = true;
    for (int i = 2; i < argc && loaded; i++)
        loaded = load(&r, argv[i]);
    for (enum role role = PLAIN; role < ROLES && loaded; role++)
        if (!r.run[role]) {
            fprintf(stderr, "gpt-report: no file for role %s\n", role_names[role]);
            loaded = false;
        }
    if (loaded)
        result = judge(&r, argv[1]);
    for (enum role role = PLAIN; role < ROLES; role++)
        json_decref(r.run[role]);
    json_decref(r.checks);
    return result;
}
