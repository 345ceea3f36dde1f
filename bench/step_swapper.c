/* step_swapper.c: the optimizer step over files as DeepSpeed's two swappers order it: one file for each tensor of a sub-group,
 * opened and closed by each request; blocks of 1 MiB, its default queue depth of 8, buffers of plain pages locked in memory.
 * The update is zoff's own, so that only the way of the bytes differs; its Python is left out, and so is the norm. */
#include "step_bench.h"

#include "libaio_pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATES = 3, GRAD = STATES, TENSORS, SETS = 3, BLOCK = 1 << 20, DEPTH = 8, DEEP = 32 };

/* What holds a sub-group: p, m, v and its fp32 gradient. */
typedef struct buffer_set {
    libaio_buffer tensors[TENSORS];
} buffer_set;

typedef enum order {
    PATTERN,        /* PartitionedOptimizerSwapper: read, wait, update, write, wait */
    PATTERN_GRADS,  /* the same with its fp32 gradients, which go to the disk and come back */
    PIPELINED,      /* PipelinedOptimizerSwapper: the next is read and the last one written meanwhile */
    PIPELINED_QD32, /* with four times its default queue depth */
    PIPELINED_THP,  /* with huge pages for its buffers */
    ORDERS
} order;

typedef struct turn {
    struct swapper *swapper;
    order order;
} turn;

typedef struct swapper {
    const step_model *model;
    char folder[STEP_PATH];
    size_t group_elements, group_count;
    buffer_set plain[SETS], huge[SETS];
    libaio_handle *read, *write, *deep_read, *deep_write;
    size_t plain_huge_bytes, thp_huge_bytes, buffer_bytes;
    turn turns[ORDERS];
    int64_t steps;
    bool failed, locked;
} swapper;

static size_t elements_of(const swapper *s, size_t group)
{
    const size_t left = s->model->elements - group * s->group_elements;
    return left < s->group_elements ? left : s->group_elements;
}

/* A file holds whole pages. */
static size_t bytes_of(const swapper *s, size_t group)
{
    enum { PAGE = 4096 };
    return (elements_of(s, group) * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static int name_file(const swapper *s, size_t group, unsigned tensor, char *out)
{
    static const char *const NAMES[TENSORS] = {"", "exp_avg-", "exp_avg_sq-", "gradient-"};
    return (size_t)snprintf(out, STEP_PATH, "%s/%s%zu.tensor.swp", s->folder, NAMES[tensor], group) < STEP_PATH ? 0 : -1;
}

static int start(const swapper *s, libaio_handle *handle, size_t group, unsigned tensor, void *buffer, bool writes)
{
    char path[STEP_PATH];
    return name_file(s, group, tensor, path) == 0 ? libaio_handle_start(handle, path, buffer, bytes_of(s, group), writes) : -1;
}

/* Hand over the first `tensors` of a sub-group. */
static int start_group(const swapper *s, libaio_handle *handle, size_t group, unsigned tensors, const buffer_set *set,
                       bool writes)
{
    for (unsigned i = 0; i < tensors; i++) {
        if (start(s, handle, group, i, set->tensors[i].base, writes) != 0)
            return -1;
    }
    return 0;
}

static int update(const swapper *s, size_t group, const buffer_set *set, bool grads)
{
    const size_t first = group * s->group_elements;
    const zoff_adam_tensor tensor = {.struct_size = sizeof tensor,
                                     .count = elements_of(s, group),
                                     .master = set->tensors[ZOFF_STATE_MASTER].base,
                                     .m = set->tensors[ZOFF_STATE_M].base,
                                     .v = set->tensors[ZOFF_STATE_V].base,
                                     .grad = grads ? set->tensors[GRAD].base : s->model->grads + first,
                                     .grad_dtype = grads ? ZOFF_F32 : ZOFF_BF16,
                                     .copy_out = s->model->weights + first};
    if (zoff_adam_step(&s->model->hyper, s->steps, 1, &tensor) == ZOFF_OK)
        return 0;
    fprintf(stderr, "step: %s\n", zoff_last_error());
    return -1;
}

/* --- PartitionedOptimizerSwapper --- */

static int step_in_order(swapper *s, bool grads)
{
    const buffer_set *set = &s->plain[0];
    for (size_t i = 0; i < s->group_count; i++) {
        if (start_group(s, s->read, i, grads ? TENSORS : STATES, set, false) != 0 || libaio_handle_wait(s->read) != 0 ||
            update(s, i, set, grads) != 0 || start_group(s, s->read, i, STATES, set, true) != 0 ||
            libaio_handle_wait(s->read) != 0)
            return -1;
    }
    return 0;
}

static void widen(float *to, const uint16_t *from, size_t count)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Before the step all gradients go to the disk as fp32, through whatever buffers are there, which is a set of four. */
static int spill_gradients(swapper *s)
{
    for (size_t i = 0; i < s->group_count; i++) {
        float *const buffer = s->plain[0].tensors[i % TENSORS].base;
        if (i && i % TENSORS == 0 && libaio_handle_wait(s->read) != 0)
            return -1;
        widen(buffer, s->model->grads + i * s->group_elements, elements_of(s, i));
        if (start(s, s->read, i, GRAD, buffer, true) != 0)
            return -1;
    }
    return libaio_handle_wait(s->read);
}

/* --- PipelinedOptimizerSwapper --- */

static int step_pipelined(swapper *s, libaio_handle *read, libaio_handle *write, const buffer_set sets[SETS])
{
    if (start_group(s, read, 0, STATES, &sets[0], false) != 0)
        return -1;
    for (size_t i = 0; i < s->group_count; i++) {
        const buffer_set *set = &sets[i % SETS], *next = &sets[(i + 1) % SETS];
        if (libaio_handle_wait(read) != 0)
            return -1;
        if (i + 1 < s->group_count && start_group(s, read, i + 1, STATES, next, false) != 0)
            return -1;
        if (update(s, i, set, false) != 0 || libaio_handle_wait(write) != 0 || start_group(s, write, i, STATES, set, true) != 0)
            return -1;
    }
    return libaio_handle_wait(write);
}

/* --- contestants --- */

static void take_turn(void *ctx)
{
    const turn *t = ctx;
    swapper *s = t->swapper;
    int ret = 0;
    if (s->failed)
        return;
    s->steps++;
    switch (t->order) {
    case PATTERN_GRADS:
        ret = spill_gradients(s);
        ret = ret == 0 ? step_in_order(s, true) : ret;
        break;
    case PIPELINED:
        ret = step_pipelined(s, s->read, s->write, s->plain);
        break;
    case PIPELINED_QD32:
        ret = step_pipelined(s, s->deep_read, s->deep_write, s->plain);
        break;
    case PIPELINED_THP:
        ret = step_pipelined(s, s->read, s->write, s->huge);
        break;
    case PATTERN:
    case ORDERS:
        ret = step_in_order(s, false);
        break;
    }
    if (ret != 0) {
        s->failed = true;
        fprintf(stderr, "step: a libaio yardstick failed: %s\n", strerror(errno));
    }
}

static void take_turn_in_order(void *ctx)
{
    take_turn(&((swapper *)ctx)->turns[PATTERN]);
}

static void enter(swapper *s, step_book *book)
{
    static const struct {
        order order;
        const char *name, *what;
        double bytes;
        unsigned calls;
        bool told; /* and not judged */
    } LINES[ORDERS] = {
        /* The closest one next to zoff, and for as long. */
        {PIPELINED_THP, "libaio_pipelined_thp", "libaio_pipelined with buffers in huge pages", 24, 2, false},
        {PATTERN, "libaio_pattern", "sub-group by sub-group: read, update, write", 24, 1, false},
        {PIPELINED, "libaio_pipelined", "next read and last write during the update", 24, 1, false},
        {PATTERN_GRADS, "libaio_pattern_grads", "libaio_pattern, fp32 gradients by way of the disk too", 32, 1, true},
        {PIPELINED_QD32, "libaio_pipelined_qd32", "libaio_pipelined with a queue depth of 32", 24, 1, true},
    };
    for (unsigned i = 0; i < ORDERS; i++)
        race_add(LINES[i].told ? &book->extra : &book->rivals, (race_entry){.name = LINES[i].name,
                                                                            .what = LINES[i].what,
                                                                            .elements = (double)s->model->elements,
                                                                            .bytes = LINES[i].bytes,
                                                                            .yardstick = -1,
                                                                            .work = take_turn,
                                                                            .ctx = &s->turns[LINES[i].order],
                                                                            .calls = LINES[i].calls,
                                                                            .fixed = true});
}

/* --- life --- */

static int open_buffers(swapper *s)
{
    s->locked = true;
    for (unsigned huge = 0; huge < 2; huge++) {
        const size_t before = bench_streams_huge_bytes();
        for (unsigned i = 0; i < SETS * TENSORS; i++) {
            libaio_buffer *buffer = &(huge ? s->huge : s->plain)[i / TENSORS].tensors[i % TENSORS];
            if (libaio_buffer_open(bytes_of(s, 0), huge, buffer) != 0)
                return -1;
            s->locked = s->locked && buffer->locked;
        }
        const size_t after = bench_streams_huge_bytes();
        *(huge ? &s->thp_huge_bytes : &s->plain_huge_bytes) = after > before ? after - before : 0;
    }
    s->buffer_bytes = SETS * TENSORS * bytes_of(s, 0);
    return 0;
}

/* Every file is written once in full before anything is timed: the first write to new blocks of a file is slow. */
static int fill_files(swapper *s)
{
    for (size_t group = 0; group < s->group_count; group++) {
        const buffer_set *set = &s->plain[0];
        float *const master = set->tensors[ZOFF_STATE_MASTER].base;
        for (size_t i = 0; i < elements_of(s, group); i++)
            master[i] = step_model_weight(group * s->group_elements + i);
        for (unsigned i = 0; i < TENSORS; i++) {
            if (i)
                memset(set->tensors[i].base, 0, bytes_of(s, group));
            if (start(s, s->read, group, i, set->tensors[i].base, true) != 0)
                return -1;
        }
        if (libaio_handle_wait(s->read) != 0)
            return -1;
    }
    return 0;
}

static int read_states(void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    const swapper *s = ctx;
    while (count) {
        char path[STEP_PATH];
        const size_t group = first / s->group_elements, at = first % s->group_elements;
        const size_t left = elements_of(s, group) - at, taken = left < count ? left : count;
        const int fd = name_file(s, group, (unsigned)kind, path) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
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

static void close_swapper(void *ctx)
{
    swapper *s = ctx;
    libaio_handle *const handles[] = {s->read, s->write, s->deep_read, s->deep_write};
    for (unsigned i = 0; i < sizeof handles / sizeof handles[0]; i++)
        libaio_handle_close(handles[i]);
    for (unsigned i = 0; i < SETS * TENSORS; i++) {
        libaio_buffer_close(&s->plain[i / TENSORS].tensors[i % TENSORS]);
        libaio_buffer_close(&s->huge[i / TENSORS].tensors[i % TENSORS]);
    }
    free(s);
}

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_book *book, step_states *out)
{
    swapper *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(book->no_rivals, sizeof book->no_rivals, "%s", strerror(errno));
        return -1;
    }
    s->model = m;
    s->group_elements = group_elements;
    s->group_count = (m->elements + group_elements - 1) / group_elements;
    for (unsigned i = 0; i < ORDERS; i++)
        s->turns[i] = (turn){.swapper = s, .order = (order)i};
    if ((size_t)snprintf(s->folder, sizeof s->folder, "%s/libaio", folder) >= sizeof s->folder || mkdir(s->folder, 0700) != 0 ||
        open_buffers(s) != 0 || libaio_handle_open(BLOCK, DEPTH, &s->read) != 0 ||
        libaio_handle_open(BLOCK, DEPTH, &s->write) != 0 || libaio_handle_open(BLOCK, DEEP, &s->deep_read) != 0 ||
        libaio_handle_open(BLOCK, DEEP, &s->deep_write) != 0 || fill_files(s) != 0) {
        snprintf(book->no_rivals, sizeof book->no_rivals, "the libaio yardsticks cannot run in this folder: %s",
                 strerror(errno));
        close_swapper(s);
        return -1;
    }
    enter(s, book);
    take_turn(&s->turns[PIPELINED_THP]);
    book->locked = s->locked;
    book->plain_huge = s->plain_huge_bytes;
    book->thp_huge = s->thp_huge_bytes;
    book->buffer_bytes = s->buffer_bytes;
    *out = (step_states){.name = "libaio",
                         .ctx = s,
                         .step = take_turn_in_order,
                         .read = read_states,
                         .close = close_swapper,
                         .steps = &s->steps,
                         .failed = &s->failed};
    return 0;
}
