/* aio_fio.c: fio as the yardstick: started for each sample, in the settings in which it is fastest (memory in huge pages, which
 * the kernel knows beforehand where the engine can; no statistics of single requests, no changing of what is written), and
 * believed what it says about itself. Its start is not part of its time. */
#include "aio_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_ARGUMENTS = 40, OUTPUT_BYTES = 1 << 20 };

/* --- a program and all that it says --- */

static char *read_all(int fd)
{
    char *text = malloc(OUTPUT_BYTES);
    size_t used = 0;
    while (text) {
        const ssize_t got = read(fd, text + used, OUTPUT_BYTES - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    if (text)
        text[used] = 0;
    return text;
}

/* The text of both its streams, to be freed; NULL where it cannot be started. `status` as of waitpid(). */
static char *capture(char **argv, int *status)
{
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char *text = error ? NULL : read_all(ends[0]);
    close(ends[0]);
    while (!error && waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return text;
}

int bench_fio_find(char *version, size_t bytes, char *why, size_t why_bytes)
{
    char *argv[] = {"fio", "--version", NULL};
    int status = 0;
    char *text = capture(argv, &status);
    if (text && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        text[strcspn(text, "\n")] = 0;
        snprintf(version, bytes, "%s", text);
    } else {
        version[0] = 0;
        snprintf(why, why_bytes, "fio, to compare with, cannot be run (%s): apt-get install fio",
                 text ? "it fails" : strerror(errno));
    }
    free(text);
    return version[0] ? 0 : -1;
}

/* --- its arguments --- */

typedef struct arguments {
    char text[MOST_ARGUMENTS][2 * BENCH_PATH];
    char *argv[MOST_ARGUMENTS + 1];
    unsigned count;
} arguments;

__attribute__((format(printf, 2, 3))) static void say(arguments *a, const char *format, ...)
{
    va_list rest;
    if (a->count == MOST_ARGUMENTS)
        abort(); /* a mistake in this file */
    va_start(rest, format);
    vsnprintf(a->text[a->count], sizeof a->text[0], format, rest);
    va_end(rest);
    a->argv[a->count] = a->text[a->count];
    a->argv[++a->count] = NULL;
}

/* fio takes a colon for the end of one of several names. */
static void say_path(arguments *a, const char *path)
{
    char escaped[2 * BENCH_PATH - 16];
    size_t n = 0;
    for (; *path && n + 3 < sizeof escaped; path++) {
        if (*path == ':' || *path == '\\')
            escaped[n++] = '\\';
        escaped[n++] = *path;
    }
    escaped[n] = 0;
    say(a, "--filename=%s", escaped);
}

static void make_arguments(arguments *a, const bench_place *place, const bench_line *line, bench_way way, uint64_t bytes)
{
    static const char *const WAY_NAMES[WAYS] = {"read", "write", "rw"};
    say(a, "fio");
    say(a, "--name=aio");
    say_path(a, place->path);
    say(a, "--rw=%s", WAY_NAMES[way]);
    say(a, "--ioengine=%s", line->engine);
    say(a, "--bs=%llu", (unsigned long long)line->block);
    say(a, "--iodepth=%u", line->depth);
    say(a, "--size=%llu", (unsigned long long)bytes);
    say(a, "--time_based=0");
    say(a, "--direct=%d", place->direct);
    say(a, "--allow_file_create=0");
    say(a, "--thread");
    say(a, "--disk_util=0");
    say(a, "--eta=never");
    say(a, "--clocksource=clock_gettime"); /* the other one is tried out first, at each start */
    say(a, "--output-format=json");
    if (line->small_pages)
        return; /* as somebody would run it who thinks no more about it */
    say(a, "--gtod_reduce=1");
    say(a, "--scramble_buffers=0");
    if (place->pages_for_fio)
        say(a, "--iomem=mmaphuge");
    if (strcmp(line->engine, "io_uring") == 0 && geteuid() == 0) { /* others may lack the right to pin so much */
        say(a, "--fixedbufs=1");
        say(a, "--registerfiles=1");
    }
}

/* --- its answer --- */

static double figure(const json_t *job, const char *part, const char *key)
{
    return json_number_value(json_object_get(part ? json_object_get(job, part) : job, key));
}

/* Its clock counts milliseconds. The two directions of a mix run for about the same time: the longer one counts. */
static int understand(const char *text, uint64_t bytes, bench_sample_io *out)
{
    const char *brace = strchr(text, '{');
    json_t *root = brace ? json_loads(brace, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    const double moved = figure(job, "read", "io_bytes") + figure(job, "write", "io_bytes");
    const double ms = fmax(figure(job, "read", "runtime"), figure(job, "write", "runtime"));
    const double cpu_share = 0.01 * (figure(job, NULL, "usr_cpu") + figure(job, NULL, "sys_cpu"));
    const int ok = job && figure(job, NULL, "error") == 0 && ms > 0 && moved == (double)bytes;
    if (ok) {
        out->seconds = 1e-3 * ms;
        out->cpu = 1e-3 * figure(job, NULL, "job_runtime") * cpu_share;
    }
    json_decref(root);
    return ok ? 0 : -1;
}

int bench_fio_run(const bench_place *place, const bench_line *line, bench_way way, uint64_t bytes, bench_sample_io *out)
{
    arguments *a = calloc(1, sizeof *a);
    int status = 0;
    if (!a)
        return -1;
    make_arguments(a, place, line, way, bytes);
    char *text = capture(a->argv, &status);
    const int ret = text ? understand(text, bytes, out) : -1;
    if (ret != 0 && !bench_stopped) {
        const size_t length = text ? strcspn(text, "\n") : 0;
        fprintf(stderr, "aio: %s gave no result: %.*s\n", line->name, (int)(length < 400 ? length : 400), text ? text : "");
    }
    free(text);
    free(a);
    return ret;
}
