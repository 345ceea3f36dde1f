/* step_swapper.c: the optimizer step over files as DeepSpeed's two swappers order it: one file for each tensor of a sub-group,
 * opened and closed by each request; blocks of 1 MiB, its default queue depth of 8, buffers of plain pages locked in memory.
 * The update is zoff's own, so that only the way of the bytes differs; its Python is left out, and so is the norm. */
#include "step_bench.h"

#ifndef BENCH_HAVE_LIBAIO

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_found *found, step_states *out)
{
    (void)m, (void)folder, (void)group_elements, (void)out;
    snprintf(found->no_rivals, sizeof found->no_rivals,
             "built without libaio, which the yardstick is made of: install libaio-dev and configure again");
    return -1;
}

void step_swapper_close(void) {}

#else

#include "libaio_pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATES = 3, GRAD = STATES, TENSORS, SETS = 3, BLOCK = 1 << 20, DEPTH = 8 };

typedef enum order {
    PATTERN,       /* PartitionedOptimizerSwapper: read, wait, update, write, wait */
    PATTERN_GRADS, /* the same with its fp32 gradients, which go to the disk and come back */
    PIPELINED,     /* PipelinedOptimizerSwapper: the next is read and the last one written meanwhile */
    PIPELINED_THP, /* with huge pages for its buffers */
    ORDERS
} order;

/* What holds a sub-group: p, m, v and its fp32 gradient. */
typedef libaio_buffer buffer_set[TENSORS];

static struct {
    const step_model *model;
    char folder[STEP_PATH];
    size_t group_elements, group_count;
    buffer_set plain[SETS], huge[SETS];
    libaio_handle *read, *write;
    int64_t steps;
} own;

static size_t elements_of(size_t group)
{
    const size_t left = own.model->elements - group * own.group_elements;
    return left < own.group_elements ? left : own.group_elements;
}

/* A file holds whole pages. */
static size_t bytes_of(size_t group)
{
    enum { PAGE = 4096 };
    return (elements_of(group) * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static const char *name_of(size_t group, unsigned tensor)
{
    static const char *const NAMES[TENSORS] = {"", "exp_avg-", "exp_avg_sq-", "gradient-"};
    static char path[STEP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s%zu.tensor.swp", own.folder, NAMES[tensor], group);
    return path;
}

static int start(libaio_handle *handle, size_t group, unsigned tensor, void *buffer, bool writes)
{
    return libaio_handle_start(handle, name_of(group, tensor), buffer, bytes_of(group), writes);
}

/* Hand over the first `tensors` of a sub-group. */
static int start_group(libaio_handle *handle, size_t group, unsigned tensors, buffer_set set, bool writes)
{
    int ret = 0;
    for (unsigned i = 0; i < tensors && ret == 0; i++)
        ret = start(handle, group, i, set[i].base, writes);
    return ret;
}

static int update(size_t group, buffer_set set, bool grads)
{
    const size_t first = group * own.group_elements;
    const zoff_adam_tensor tensor = {.struct_size = sizeof tensor,
                                     .count = elements_of(group),
                                     .master = set[ZOFF_STATE_MASTER].base,
                                     .m = set[ZOFF_STATE_M].base,
                                     .v = set[ZOFF_STATE_V].base,
                                     .grad = grads ? set[GRAD].base : own.model->grads + first,
                                     .grad_dtype = grads ? ZOFF_F32 : ZOFF_BF16,
                                     .copy_out = own.model->weights + first};
    return bench_told(zoff_adam_step(&own.model->hyper, own.steps, 1, &tensor));
}

/* --- the orders --- */

static int step_in_order(bool grads)
{
    buffer_set *set = &own.plain[0];
    for (size_t i = 0; i < own.group_count; i++) {
        if (start_group(own.read, i, grads ? TENSORS : STATES, *set, false) != 0 || libaio_handle_wait(own.read) != 0 ||
            update(i, *set, grads) != 0 || start_group(own.read, i, STATES, *set, true) != 0 ||
            libaio_handle_wait(own.read) != 0)
            return -1;
    }
    return 0;
}

/* Before the step all gradients go to the disk as fp32, through whatever buffers are there, which is a set of four. */
static int spill_gradients(void)
{
    for (size_t i = 0; i < own.group_count; i++) {
        float *const buffer = own.plain[0][i % TENSORS].base;
        const uint16_t *grads = own.model->grads + i * own.group_elements;
        const size_t count = elements_of(i);
        if (i && i % TENSORS == 0 && libaio_handle_wait(own.read) != 0)
            return -1;
#pragma omp parallel for schedule(static)
        for (size_t k = 0; k < count; k++) {
            const uint32_t bits = (uint32_t)grads[k] << 16;
            memcpy(&buffer[k], &bits, sizeof bits);
        }
        if (start(own.read, i, GRAD, buffer, true) != 0)
            return -1;
    }
    return libaio_handle_wait(own.read);
}

static int step_pipelined(buffer_set sets[SETS])
{
    if (start_group(own.read, 0, STATES, sets[0], false) != 0)
        return -1;
    for (size_t i = 0; i < own.group_count; i++) {
        if (libaio_handle_wait(own.read) != 0)
            return -1;
        if (i + 1 < own.group_count && start_group(own.read, i + 1, STATES, sets[(i + 1) % SETS], false) != 0)
            return -1;
        if (update(i, sets[i % SETS], false) != 0 || libaio_handle_wait(own.write) != 0 ||
            start_group(own.write, i, STATES, sets[i % SETS], true) != 0)
            return -1;
    }
    return libaio_handle_wait(own.write);
}

static int take_turn(void *ctx, int which)
{
    int ret = 0;
    (void)ctx;
    own.steps++;
    if (which == PATTERN_GRADS)
        ret = spill_gradients();
    if (ret == 0 && (which == PATTERN || which == PATTERN_GRADS))
        ret = step_in_order(which == PATTERN_GRADS);
    else if (ret == 0)
        ret = step_pipelined(which == PIPELINED_THP ? own.huge : own.plain);
    return ret == 0 ? 0 : bench_fail("a libaio yardstick failed: %s", strerror(errno));
}

/* --- life --- */

static void enter(step_found *found)
{
    static const struct {
        order order;
        const char *part, *name, *what;
        double bytes;
        unsigned calls;
    } LINES[ORDERS] = {
        /* The closest one next to zoff, and for as long. */
        {PIPELINED_THP, "rivals", "libaio_pipelined_thp", "libaio_pipelined with buffers in huge pages", 24, 2},
        {PATTERN, "rivals", "libaio_pattern", "sub-group by sub-group: read, update, write", 24, 1},
        {PIPELINED, "rivals", "libaio_pipelined", "next read and last write during the update", 24, 1},
        {PATTERN_GRADS, "extra", "libaio_pattern_grads", "libaio_pattern, fp32 gradients by way of the disk too", 32, 1}};
    for (unsigned i = 0; i < ORDERS; i++)
        race_add(race_open(&found->book, LINES[i].part, "%zu elements", own.model->elements),
                 (race_entry){.name = LINES[i].name,
                              .what = LINES[i].what,
                              .elements = (double)own.model->elements,
                              .bytes = LINES[i].bytes,
                              .work = {take_turn, NULL, (int)LINES[i].order},
                              .calls = LINES[i].calls});
}

static int open_buffers(step_found *found)
{
    found->locked = true;
    for (unsigned huge = 0; huge < 2; huge++) {
        const size_t before = bench_streams_huge_bytes();
        for (unsigned i = 0; i < SETS * TENSORS; i++) {
            libaio_buffer *buffer = &(huge ? own.huge : own.plain)[i / TENSORS][i % TENSORS];
            if (libaio_buffer_open(bytes_of(0), huge, buffer) != 0)
                return -1;
            found->locked = found->locked && buffer->locked;
        }
        const size_t after = bench_streams_huge_bytes();
        *(huge ? &found->thp_huge : &found->plain_huge) = after > before ? after - before : 0;
    }
    found->buffer_bytes = SETS * TENSORS * bytes_of(0);
    return 0;
}

/* Every file is written once in full before anything is timed: the first write to new blocks of a file is slow. */
static int fill_files(void)
{
    buffer_set *set = &own.plain[0];
    for (size_t group = 0; group < own.group_count; group++) {
        float *const master = (*set)[ZOFF_STATE_MASTER].base;
        for (size_t i = 0; i < elements_of(group); i++)
            master[i] = bench_from_bf16(bench_bf16(bench_value(group * own.group_elements + i, STEP_WEIGHT)));
        for (unsigned i = 1; i < TENSORS; i++)
            memset((*set)[i].base, 0, bytes_of(group));
        if (start_group(own.read, group, TENSORS, *set, true) != 0 || libaio_handle_wait(own.read) != 0)
            return -1;
    }
    return 0;
}

static int read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    (void)ctx;
    while (count) {
        const size_t group = first / own.group_elements, at = first % own.group_elements;
        const size_t left = elements_of(group) - at, taken = left < count ? left : count;
        const int fd = open(name_of(group, (unsigned)kind), O_RDONLY | O_CLOEXEC);
        const ssize_t got = fd < 0 ? -1 : pread(fd, dst, taken * sizeof *dst, (off_t)(at * sizeof *dst));
        if (fd >= 0)
            close(fd);
        if (got != (ssize_t)(taken * sizeof *dst))
            return -1;
        first += taken;
        count -= taken;
        dst += taken;
    }
    return 0;
}

void step_swapper_close(void)
{
    libaio_handle_close(own.read);
    libaio_handle_close(own.write);
    for (unsigned i = 0; i < SETS * TENSORS; i++) {
        libaio_buffer_close(&own.plain[i / TENSORS][i % TENSORS]);
        libaio_buffer_close(&own.huge[i / TENSORS][i % TENSORS]);
    }
    own.read = own.write = NULL;
}

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_found *found, step_states *out)
{
    own.model = m;
    own.group_elements = group_elements;
    own.group_count = (m->elements + group_elements - 1) / group_elements;
    snprintf(own.folder, sizeof own.folder, "%s/libaio", folder);
    if (mkdir(own.folder, 0700) != 0 || open_buffers(found) != 0 || libaio_handle_open(BLOCK, DEPTH, &own.read) != 0 ||
        libaio_handle_open(BLOCK, DEPTH, &own.write) != 0 || fill_files() != 0) {
        snprintf(found->no_rivals, STEP_REASON, "the libaio yardsticks cannot run in this folder: %s", strerror(errno));
        return -1;
    }
    enter(found);
    *out = (step_states){"libaio", NULL, take_turn, read_states, &own.steps};
    return take_turn(NULL, PIPELINED_THP);
}

#endif
