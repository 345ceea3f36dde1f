/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c: figures of a run. The kernel's own books (/proc/self) are read beside those of the library, so that one can be
 * held against the other. */
#include "stats.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

enum { FDS = 4096 };

double gpt_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The number after `key` in a file of "key: number" lines; 0 when there is none. */
static uint64_t read_number(const char *path, const char *key, int base)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    char line[256];
    uint64_t number = 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) {
            number = strtoull(line + strlen(key), NULL, base);
            break;
        }
    fclose(file);
    return number;
}

int gpt_stats_begin(size_t steps, gpt_stats *out)
{
    gpt_stats stats = {.records = calloc(steps, sizeof *stats.records), .fds_before = calloc(FDS, 1)};
    if (!stats.records || !stats.fds_before) {
        fprintf(stderr, "gpt: no memory for the records of %zu steps\n", steps);
        gpt_stats_free(&stats);
        return -1;
    }
    for (int fd = 0; fd < FDS; fd++)
        stats.fds_before[fd] = fcntl(fd, F_GETFD) != -1;
    stats.open_seconds = gpt_seconds();
    *out = stats;
    return 0;
}

/* Count the state files: regular files that came with the optimizer, open for writing. One that is open twice (once to hold its
 * lock, once to move data) is one file, and direct when one of the two is. */
static void count_files(gpt_stats *stats)
{
    enum { FILES = 64 };
    struct {
        dev_t device;
        ino_t inode;
        bool direct;
    } files[FILES];
    size_t count = 0;
    for (int fd = 0; fd < FDS; fd++) {
        struct stat status;
        char path[64];
        if (stats->fds_before[fd] || fstat(fd, &status) || !S_ISREG(status.st_mode))
            continue;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        const uint64_t flags = read_number(path, "flags:", 8);
        if ((flags & O_ACCMODE) == O_RDONLY)
            continue;
        size_t i = 0;
        while (i < count && (files[i].device != status.st_dev || files[i].inode != status.st_ino))
            i++;
        if (i == FILES)
            continue;
        if (i == count) {
            files[count].device = status.st_dev;
            files[count].inode = status.st_ino;
            files[count++].direct = false;
        }
        files[i].direct = files[i].direct || (flags & O_DIRECT);
    }
    stats->state_file_count = count;
    for (size_t i = 0; i < count; i++)
        stats->direct_file_count += files[i].direct;
}

int gpt_stats_opened(gpt_stats *stats, const gpt_model *model, const zoff_engine *engine)
{
    stats->open_seconds = gpt_seconds() - stats->open_seconds;
    stats->plan.struct_size = sizeof stats->plan;
    stats->plan.tier = ZOFF_TIER_HOST; /* the plain optimizer has two moments in DRAM */
    stats->plan.elements = model->parameter_count;
    stats->plan.state_bytes = stats->plan.host_bytes = model->parameter_count * 2 * sizeof(float);
    if (engine && zoff_engine_plan(engine, &stats->plan) < 0) {
        fprintf(stderr, "gpt: %s\n", zoff_last_error());
        return -1;
    }
    count_files(stats);
    stats->process_read_bytes = read_number("/proc/self/io", "read_bytes:", 10);
    stats->process_write_bytes = read_number("/proc/self/io", "write_bytes:", 10);
    return 0;
}

void gpt_stats_step(gpt_stats *stats, size_t step, double loss, gpt_times seconds, const zoff_step_info *info)
{
    const uint64_t read_bytes = read_number("/proc/self/io", "read_bytes:", 10);
    const uint64_t write_bytes = read_number("/proc/self/io", "write_bytes:", 10);
    stats->records[stats->count++] = (gpt_record){.step = step,
                                                  .loss = loss,
                                                  .grad_norm = info->numbers.grad_norm,
                                                  .clip_factor = info->numbers.clip_factor,
                                                  .seconds = seconds,
                                                  .buckets = info->buckets,
                                                  .state_read_bytes = info->bytes.nvme_read,
                                                  .state_write_bytes = info->bytes.nvme_written,
                                                  .process_read_bytes = read_bytes - stats->process_read_bytes,
                                                  .process_write_bytes = write_bytes - stats->process_write_bytes};
    stats->process_read_bytes = read_bytes;
    stats->process_write_bytes = write_bytes;
}

double gpt_stats_final_loss(const gpt_stats *stats)
{
    size_t last = stats->count / 10;
    last = last < 1 ? 1 : last > 20 ? 20 : last;
    if (stats->count == 0)
        return 0.0;
    double sum = 0.0;
    for (size_t i = stats->count - last; i < stats->count; i++)
        sum += stats->records[i].loss;
    return sum / (double)last;
}

static void print_text(FILE *file, const char *key, const char *text)
{
    fprintf(file, "  \"%s\": \"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if (iscntrl((unsigned char)*text))
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fputc(*text, file);
    }
    fputs("\",\n", file);
}

static void print_step(FILE *file, const gpt_record *record)
{
    fprintf(file, "%zu", record->step);
}

static void print_bits(FILE *file, const gpt_record *record)
{
    uint64_t bits;
    memcpy(&bits, &record->loss, sizeof bits);
    fprintf(file, "\"%016" PRIx64 "\"", bits);
}

static void print_loss(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.17g", record->loss);
}

static void print_norm(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.9g", record->grad_norm);
}

static void print_clip_factor(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.9g", record->clip_factor);
}

static void print_forward(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.6f", record->seconds.forward);
}

static void print_backward(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.6f", record->seconds.backward);
}

static void print_optimizer(FILE *file, const gpt_record *record)
{
    fprintf(file, "%.6f", record->seconds.optimizer);
}

static void print_buckets(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->buckets.all);
}

static void print_ahead(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->buckets.speculated);
}

static void print_redone(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->buckets.redone);
}

static void print_state_read(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->state_read_bytes);
}

static void print_state_write(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->state_write_bytes);
}

static void print_process_read(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->process_read_bytes);
}

static void print_process_write(FILE *file, const gpt_record *record)
{
    fprintf(file, "%" PRIu64, record->process_write_bytes);
}

static void print_each(FILE *file, const gpt_stats *stats, const char *key, void (*print)(FILE *, const gpt_record *))
{
    fprintf(file, "  \"%s\": [", key);
    for (size_t i = 0; i < stats->count; i++) {
        fputs(i ? ", " : "", file);
        print(file, &stats->records[i]);
    }
    fputs("],\n", file);
}

static void print_model(FILE *file, const gpt_stats *stats, const gpt_options *o, const gpt_model *model, const gpt_text *text)
{
    print_text(file, "name", o->name);
    print_text(file, "optimizer", o->with_zoff ? "zoff" : "plain");
    print_text(file, "config", o->config ? o->config : "");
    print_text(file, "dtype", o->bf16 ? "bf16" : "fp32");
    fprintf(file, "  \"layers\": %zu, \"heads\": %zu, \"width\": %zu, \"context\": %zu, \"batch\": %zu,\n", o->shape.layers,
            o->shape.heads, o->shape.width, o->shape.context, o->shape.batch);
    fprintf(file, "  \"sequences\": %zu, \"rank\": %u, \"ranks\": %u,\n", model->shape.batch, stats->rank,
            stats->ranks ? stats->ranks : 1);
    fprintf(file, "  \"part\": %u, \"parts\": %u,\n", model->parallel->part, model->parallel->parts);
    fprintf(file, "  \"parameters\": %zu, \"seed\": %" PRIu64 ", \"threads\": %d,\n", model->parameter_count, o->seed,
            model->threads);
    fprintf(file, "  \"text_bytes\": %zu, \"unigram_entropy_nats\": %.9g,\n", text->count, gpt_text_entropy(text));
}

static void print_figures(FILE *file, const gpt_stats *stats, const gpt_model *model)
{
    double optimizer = 0.0;
    for (size_t i = 0; i < stats->count; i++)
        optimizer += stats->records[i].seconds.optimizer;
    const size_t tokens = model->shape.batch * model->shape.context * stats->count;
    struct rusage usage;
    const uint64_t maxrss_bytes = getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
    const zoff_plan_info *plan = &stats->plan;
    char loss[32] = "null";
    if (stats->count)
        snprintf(loss, sizeof loss, "%.17g", gpt_stats_final_loss(stats));
    fprintf(file, "  \"steps\": %zu, \"final_loss\": %s, \"weights_hash\": \"%016" PRIx64 "\",\n", stats->count, loss,
            gpt_model_hash(model));
    if (stats->held_out_loss > 0)
        fprintf(file, "  \"held_out_loss\": %.17g,\n", stats->held_out_loss);
    fprintf(file, "  \"replicated_hash\": \"%016" PRIx64 "\",\n", gpt_model_hash_replicated(model));
    fprintf(file, "  \"open_seconds\": %.6f, \"first_step_seconds\": %.6f, \"seconds\": %.6f, \"tokens_per_second\": %.6g,\n",
            stats->open_seconds, stats->first_seconds, stats->seconds, stats->count ? (double)tokens / stats->seconds : 0.0);
    fprintf(file, "  \"optimizer_seconds\": %.6f, \"optimizer_share\": %.6f,\n", optimizer,
            stats->count ? optimizer / stats->seconds : 0.0);
    fprintf(file, "  \"state_tier\": \"%s\", \"state_bytes\": %" PRIu64 ", \"state_host_bytes\": %" PRIu64 ",\n",
            plan->tier == ZOFF_TIER_NVME ? "nvme" : "host", plan->state_bytes, plan->host_bytes);
    fprintf(file, "  \"state_nvme_bytes\": %" PRIu64 ", \"accumulator_bytes\": %" PRIu64 ",\n", plan->nvme_bytes,
            plan->accumulator_bytes);
    fprintf(file, "  \"weight_host_bytes\": %" PRIu64 ", \"exchange_bytes\": %" PRIu64 ",\n", plan->weight_host_bytes,
            plan->exchange_bytes);
    fprintf(file, "  \"speculation_bytes\": %" PRIu64 ",\n", plan->speculation_bytes);
    fprintf(file, "  \"chunk_count\": %" PRIu64 ", \"slots\": %u, \"update_threads\": %u,\n", plan->chunk_count, plan->slots,
            plan->threads);
    fprintf(file, "  \"state_files\": %zu, \"state_files_direct\": %zu,\n", stats->state_file_count, stats->direct_file_count);
    fprintf(file, "  \"peak_rss_bytes\": %" PRIu64 ", \"maxrss_bytes\": %" PRIu64 ",\n",
            read_number("/proc/self/status", "VmHWM:", 10) * 1024, maxrss_bytes);
}

int gpt_stats_write(const gpt_stats *stats, const gpt_options *options, const gpt_model *model, const gpt_text *text)
{
    FILE *file = fopen(options->json, "w");
    if (!file) {
        fprintf(stderr, "gpt: cannot write %s: %s\n", options->json, strerror(errno));
        return -1;
    }
    fputs("{\n", file);
    print_model(file, stats, options, model, text);
    print_figures(file, stats, model);
    print_each(file, stats, "step_numbers", print_step);
    print_each(file, stats, "losses", print_loss);
    print_each(file, stats, "loss_bits", print_bits);
    print_each(file, stats, "grad_norms", print_norm);
    print_each(file, stats, "clip_factors", print_clip_factor);
    print_each(file, stats, "forward_seconds", print_forward);
    print_each(file, stats, "backward_seconds", print_backward);
    print_each(file, stats, "step_seconds", print_optimizer);
    print_each(file, stats, "buckets", print_buckets);
    print_each(file, stats, "buckets_ahead", print_ahead);
    print_each(file, stats, "buckets_redone", print_redone);
    print_each(file, stats, "state_read_bytes", print_state_read);
    print_each(file, stats, "state_write_bytes", print_state_write);
    print_each(file, stats, "process_read_bytes", print_process_read);
    print_each(file, stats, "process_write_bytes", print_process_write);
    fputs("  \"version\": 1\n}\n", file);
    const int failed = ferror(file) | fclose(file);
    if (failed)
        fprintf(stderr, "gpt: cannot write %s: %s\n", options->json, strerror(errno));
    return failed ? -1 : 0;
}

void gpt_stats_free(gpt_stats *stats)
{
    free(stats->records);
    free(stats->fds_before);
    *stats = (gpt_stats){0};
}
