/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: the file of ZOFF_METRICS: a text file of Prometheus, replaced as a whole, or a CSV file that grows.
 *
 * Each engine has a file of its own, so engines need no lock: the first one has the name that the variable gives, the second
 * FILE.engine2.prom. With several ranks rank 0 writes, because its numbers are those of all. Processes that do not know each
 * other as ranks are told apart by the launcher's variables. A file that cannot be written is logged once, and ends. */
#include "trace_priv.h"

#include "clock.h"
#include "env.h"
#include "files.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 16 * 1024, ROW_MOST = 1024, ENGINES_MOST = 32 };

#define SECONDS_BETWEEN 1.0

struct zoff_metrics {
    bool is_csv, ended;
    unsigned process; /* zoff_base_fork_number() */
    unsigned engine;  /* number of the engine in this process, from 1 */
    unsigned rank;    /* number of the process among those of this host */
    double written;   /* when the file was written; 0: never */
    uint64_t updates, skipped, micro_steps;
    zoff_step_info last;       /* of the last step that updated or was skipped */
    zoff_step_bytes bytes;     /* sums over all steps */
    zoff_step_seconds seconds; /* sums over all steps */
    size_t used;
    char path[ZOFF_TRACE_PATH_BYTES], text[TEXT_BYTES];
};

/* Bits of the engines that have files now. */
static uint32_t engines;

/* ---- text ---- */

static void append(zoff_metrics *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(zoff_metrics *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(m->text + m->used, sizeof m->text - m->used, format, args);
    va_end(args);
    m->used += length > 0 && (size_t)length < sizeof m->text - m->used ? (size_t)length : 0;
}

/* Append a number with a decimal point, which the program's locale may have replaced. */
static void append_number(zoff_metrics *m, double number)
{
    const size_t from = m->used;
    append(m, "%.9g", number);
    for (char *c = m->text + from; c < m->text + m->used; c++)
        *c = *c == ',' ? '.' : *c;
}

/* ---- Prometheus ---- */

static void add_sample(zoff_metrics *m, const char *name, const char *type, const char *help, double value)
{
    append(m, "# HELP zoff_%s %s\n# TYPE zoff_%s %s\nzoff_%s{rank=\"%u\",engine=\"%u\"} ", name, help, name, type, name,
           m->rank, m->engine);
    append_number(m, value);
    append(m, "\n");
}

static void write_samples(zoff_metrics *m)
{
    const zoff_step_numbers *n = &m->last.numbers;
    const zoff_step_bytes *b = &m->bytes;
    const zoff_step_seconds *s = &m->seconds;
    const struct {
        const char *name, *help;
        double value;
    } gauges[] = {{"step", "Number of the last step.", (double)m->last.t},
                  {"learning_rate", "Learning rate of group 0.", n->lr},
                  {"loss_scale", "Loss scale of the last step.", n->loss_scale},
                  {"grad_norm", "Norm of all gradients before clipping.", n->grad_norm},
                  {"clip_factor", "Factor of clipping; 1: not clipped.", n->clip_factor},
                  {"last_step_seconds", "Seconds of the last step.", m->last.seconds.total}},
      counters[] = {{"updates_total", "Steps that updated.", (double)m->updates},
                    {"skipped_steps_total", "Steps skipped for a gradient that is not finite.", (double)m->skipped},
                    {"micro_steps_total", "All steps, also those that only add up gradients.", (double)m->micro_steps},
                    {"step_seconds_total", "Seconds of all steps.", s->total},
                    {"visible_seconds_total", "Part of them inside calls of the program.", s->visible},
                    {"measure_seconds_total", "Seconds of norms and sums of gradients.", s->measure},
                    {"update_seconds_total", "Seconds of updates.", s->update},
                    {"checksum_seconds_total", "Seconds of checksums.", s->checksum},
                    {"io_wait_seconds_total", "Seconds of waits for the disk.", s->io_wait},
                    {"device_wait_seconds_total", "Seconds of waits for the device.", s->device_wait},
                    {"comm_wait_seconds_total", "Seconds of waits for other ranks.", s->comm_wait},
                    {"save_wait_seconds_total", "Seconds of waits for a checkpoint.", s->save_wait},
                    {"host_read_bytes_total", "Bytes that kernels read from DRAM.", (double)b->host_read},
                    {"host_written_bytes_total", "Bytes that kernels wrote to DRAM.", (double)b->host_written},
                    {"nvme_read_bytes_total", "Bytes read from files.", (double)b->nvme_read},
                    {"nvme_written_bytes_total", "Bytes written to files.", (double)b->nvme_written},
                    {"device_read_bytes_total", "Bytes downloaded from the device.", (double)b->device_read},
                    {"device_written_bytes_total", "Bytes uploaded to the device.", (double)b->device_written},
                    {"sent_bytes_total", "Bytes sent to other ranks.", (double)b->sent},
                    {"received_bytes_total", "Bytes received from other ranks.", (double)b->received}};
    m->used = 0;
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++)
        add_sample(m, gauges[i].name, "gauge", gauges[i].help, gauges[i].value);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        add_sample(m, counters[i].name, "counter", counters[i].help, counters[i].value);
    if (s->orthogonalize > 0)
        add_sample(m, "orthogonalize_seconds_total", "counter", "Seconds of the orthogonalization of matrices.",
                   s->orthogonalize);
}

static zoff_status replace_file(zoff_metrics *m)
{
    char early[ZOFF_TRACE_PATH_BYTES + 32];
    const char *failed;
    write_samples(m);
    snprintf(early, sizeof early, "%s.%ld", m->path, (long)getpid()); /* not *.prom, which Prometheus would read */
    const int error = zoff_base_files_replace(early, m->path, 0666, m->text, m->used, false, &failed);
    ZOFF_FAIL_IF(error, ZOFF_ERR_IO, "ZOFF_METRICS: cannot %s '%.2000s': %s; no more metrics are written", failed, m->path,
                 zoff_base_status_errno(error));
    return ZOFF_OK;
}

/* ---- CSV ---- */

/* Columns that DeepSpeed's monitor has are named as there. */
static void add_row(zoff_metrics *m)
{
    const zoff_step_info *i = &m->last;
    const double values[] = {i->numbers.lr,
                             i->numbers.loss_scale,
                             i->seconds.total * 1e3,
                             i->seconds.visible * 1e3,
                             i->numbers.grad_norm,
                             i->numbers.clip_factor,
                             i->skipped,
                             (double)i->bytes.nvme_read,
                             (double)i->bytes.nvme_written};
    append(m, "%lld", (long long)i->t);
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
        append(m, ",");
        append_number(m, values[k]);
    }
    append(m, "\n");
}

static zoff_status write_rows(zoff_metrics *m)
{
    static const char HEAD[] = "step,lr,loss_scale,elapsed_time_ms_step,visible_time_ms_step,grad_norm,clip_factor,skipped,"
                               "nvme_read_bytes,nvme_written_bytes\n";
    const int fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const off_t at = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    bool done = fd >= 0 && zoff_base_files_fits((uint64_t)(at > 0 ? at : 0) + m->used + sizeof HEAD);
    if (done && at <= 0) /* a run that goes on adds to its file */
        done = write(fd, HEAD, sizeof HEAD - 1) == (ssize_t)sizeof HEAD - 1;
    done = done && write(fd, m->text, m->used) == (ssize_t)m->used;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    m->used = 0;
    ZOFF_FAIL_IF(!done, ZOFF_ERR_IO, "ZOFF_METRICS: cannot write '%.2000s': %s; no more metrics are written", m->path,
                 zoff_base_status_errno(error ? error : ENOSPC));
    return ZOFF_OK;
}

/* ---- the life of an engine's file ---- */

static void write_file(zoff_metrics *m)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if ((m->is_csv ? write_rows(m) : replace_file(m)) < 0) {
        m->ended = true;
        ZOFF_WARN("%s", zoff_last_error());
    }
    m->written = zoff_base_clock_seconds();
    zoff_base_status_restore(&saved);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Take the lowest number, from 1, that no engine has; 0: there are too many. */
static unsigned take_number(void)
{
    uint32_t taken = __atomic_load_n(&engines, __ATOMIC_RELAXED);
    while (taken != UINT32_MAX) {
        const unsigned bit = (unsigned)__builtin_ctz(~taken);
        if (__atomic_compare_exchange_n(&engines, &taken, taken | 1u << bit, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return bit + 1;
    }
    return 0;
}

static zoff_status name_file(zoff_metrics *m, const char *value)
{
    char own[ZOFF_TRACE_PATH_BYTES];
    zoff_env_ranks ranks;
    zoff_base_env_ranks(&ranks);
    m->rank = ranks.index;
    m->is_csv = ends_with(value, ".csv");
    ZOFF_FAIL_IF((!m->is_csv && !ends_with(value, ".prom")) || strlen(value) >= sizeof m->path, ZOFF_ERR_INVALID,
                 "ZOFF_METRICS is \"%.300s\"; it may be FILE.prom, for Prometheus, or FILE.csv. No metrics are written", value);
    snprintf(m->path, sizeof m->path, "%s", value);
    const unsigned numbers[] = {m->rank ? m->rank : 0, m->engine > 1 ? m->engine : 0};
    const char *const words[] = {"rank", "engine"};
    for (size_t i = 0; i < 2; i++) {
        if (!numbers[i])
            continue;
        ZOFF_FAIL_IF(!zoff_trace_engines_name(m->path, words[i], numbers[i], own, sizeof own), ZOFF_ERR_INVALID,
                     "ZOFF_METRICS: the name of the file is too long. No metrics are written");
        memcpy(m->path, own, sizeof own);
    }
    return ZOFF_OK;
}

zoff_metrics *zoff_trace_metrics_open(const zoff_trace_rank *who)
{
    const char *value = zoff_base_env_get(ZOFF_ENV_METRICS);
    zoff_metrics *m = NULL;
    zoff_saved_error saved;
    if (!value || who->rank != 0)
        return NULL;
    zoff_base_status_save(&saved);
    zoff_status status = zoff_base_mem_alloc(1, sizeof *m, "the metrics of an engine", &m);
    if (status == ZOFF_OK) {
        m->process = zoff_base_fork_number();
        m->engine = take_number();
        status = m->engine ? name_file(m, value)
                           : zoff_base_status_fail(ZOFF_ERR_NO_SPACE,
                                                   "ZOFF_METRICS: %d engines of this process have files; this "
                                                   "one gets none",
                                                   ENGINES_MOST);
    }
    if (status < 0) {
        ZOFF_WARN("%s", zoff_last_error());
        if (m)
            m->ended = true;
    }
    zoff_base_status_restore(&saved);
    return m;
}

static void add_up(zoff_metrics *m, const zoff_step_info *info)
{
    const zoff_step_bytes *b = &info->bytes;
    const zoff_step_seconds *s = &info->seconds;
    m->micro_steps++;
    m->updates += !info->accumulated && !info->skipped;
    m->skipped += info->skipped;
    m->bytes.host_read += b->host_read, m->bytes.host_written += b->host_written;
    m->bytes.nvme_read += b->nvme_read, m->bytes.nvme_written += b->nvme_written;
    m->bytes.device_read += b->device_read, m->bytes.device_written += b->device_written;
    m->bytes.sent += b->sent, m->bytes.received += b->received;
    m->seconds.total += s->total, m->seconds.visible += s->visible;
    m->seconds.measure += s->measure, m->seconds.update += s->update, m->seconds.checksum += s->checksum;
    m->seconds.orthogonalize += s->orthogonalize;
    m->seconds.io_wait += s->io_wait, m->seconds.device_wait += s->device_wait;
    m->seconds.comm_wait += s->comm_wait, m->seconds.save_wait += s->save_wait;
    if (!info->accumulated)
        m->last = *info;
}

void zoff_trace_metrics_step(zoff_metrics *m, const zoff_step_info *info)
{
    if (!m || m->ended || m->process != zoff_base_fork_number())
        return;
    add_up(m, info);
    if (info->accumulated)
        return;
    if (m->is_csv)
        add_row(m);
    if (zoff_base_clock_seconds() - m->written >= SECONDS_BETWEEN || m->used + ROW_MOST > sizeof m->text)
        write_file(m);
}

void zoff_trace_metrics_close(zoff_metrics *m)
{
    if (!m)
        return;
    if (!m->ended && m->process == zoff_base_fork_number() && m->micro_steps)
        write_file(m);
    if (m->engine)
        __atomic_fetch_and(&engines, ~(1u << (m->engine - 1)), __ATOMIC_ACQ_REL);
    zoff_base_mem_free(m);
}
