/* nomath_body.h: the kernels of nomath.h for one width of vectors and one depth of unrolling. A file that includes it defines
 *
 *      NOMATH_NAME    of the table
 *      LANES          floats in a vector
 *      GROUP          vectors of one stream that are handled together; even
 *      STREAM(to, x)  store past the caches; left undefined where the machine has no such store
 *      FENCE()        what ends a run of them
 */
#include "nomath.h"

#include <string.h>

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(2), may_alias));
enum { STEP = LANES * GROUP }; /* elements of one turn of a loop */

#define AT(pointer, k) (*(vec *)((pointer) + (k)*LANES))
#define READ(pointer, k) (*(const vec *)((pointer) + (k)*LANES))
#define BITS(pointer, k) (*(bits *)((pointer) + (k)*LANES))
#define READ_BITS(pointer, k) (*(const bits *)((pointer) + (k)*LANES))
#define READ_HALVES(pointer, k) (*(const bits *)((pointer) + 2 * (k)*LANES)) /* two elements in each lane */
#define HALVES(pointer, k) (*(bits *)((pointer) + 2 * (k)*LANES))

static const uint32_t HIGH = 0xffff0000u;

/* Something that depends on the old value and the gradient, and shrinks: one fused multiply-add. */
#define MIX(x, g) (0.9f * (x) + (g))

/* The few elements after the last whole turn. */
static uint32_t tail(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)
{
    uint32_t seen = 0;
    for (size_t i = begin; i < end; i++) {
        switch (kind) {
        case NOMATH_FP32:
        case NOMATH_ONE_STATE:
        case NOMATH_NO_STATE:
            s->p[i] = MIX(s->p[i], s->g[i]);
            if (kind != NOMATH_NO_STATE)
                s->m[i] = MIX(s->m[i], s->g[i]);
            if (kind == NOMATH_FP32)
                s->v[i] = MIX(s->v[i], s->g[i] * s->g[i]);
            break;
        case NOMATH_HALF_OUT:
        case NOMATH_HALF_KEEP: {
            const uint32_t wide = (uint32_t)s->g16[i] << 16;
            float g;
            memcpy(&g, &wide, sizeof g);
            s->m[i] = MIX(s->m[i], g);
            s->v[i] = MIX(s->v[i], g * g);
            if (kind == NOMATH_HALF_OUT)
                s->p[i] = MIX(s->p[i], g);
            s->w16[i] = kind == NOMATH_HALF_OUT ? s->g16[i] : (uint16_t)(s->w16[i] ^ (s->g16[i] & 1u));
            break;
        }
        case NOMATH_WIDEN: {
            const uint32_t wide = (uint32_t)s->g16[i] << 16;
            memcpy(&s->wide[i], &wide, sizeof wide);
            break;
        }
        case NOMATH_READ32:
            seen |= s->wide[i] != 0;
            break;
        case NOMATH_READ16:
            seen |= s->g16[i];
            break;
        case NOMATH_TOUCH:
            s->wide[i] = -s->wide[i];
            break;
        case NOMATH_NARROW: {
            uint32_t wide;
            memcpy(&wide, &s->p[i], sizeof wide);
            s->w16[i] = (uint16_t)(wide >> 16);
            break;
        }
        case NOMATH_TRIAD:
            s->wide[i] = s->g[i] + 0.5f * s->p[i];
            break;
        case NOMATH_COPY:
            s->wide[i] = s->g[i];
            break;
        case NOMATH_KINDS:
            break;
        }
    }
    return seen;
}

/* The loop of every kernel: `i` runs over turns, TURN is done in each. */
#define KERNEL(name, kind, TURN)                                                                                               \
    static uint32_t name(const nomath_streams *s, size_t begin, size_t end)                                                    \
    {                                                                                                                          \
        float *const p = s->p, *const m = s->m, *const v = s->v, *const wide = s->wide;                                        \
        const float *const g = s->g;                                                                                           \
        const uint16_t *const g16 = s->g16;                                                                                    \
        uint16_t *const w16 = s->w16;                                                                                          \
        size_t i = begin;                                                                                                      \
        for (; i + STEP <= end; i += STEP) {                                                                                   \
            TURN                                                                                                               \
        }                                                                                                                      \
        (void)p, (void)m, (void)v, (void)g, (void)g16, (void)w16, (void)wide;                                                  \
        return tail(kind, s, i, end);                                                                                          \
    }
#define EACH(count) for (int k = 0; k < (count); k++)

/* Gradients of a turn, spread to floats; which lane is whose does not matter here. */
#define SPREAD                                                                                                                 \
    vec x[GROUP];                                                                                                              \
    EACH(GROUP / 2)                                                                                                            \
    {                                                                                                                          \
        const bits pair = READ_HALVES(g16 + i, k);                                                                             \
        x[2 * k] = (vec)(pair << 16);                                                                                          \
        x[2 * k + 1] = (vec)(pair & HIGH);                                                                                     \
    }
#define STATES(array, rule) EACH(GROUP) AT(array + i, k) = rule;

KERNEL(fp32, NOMATH_FP32, {
    vec x[GROUP];
    EACH(GROUP) x[k] = READ(g + i, k);
    STATES(p, MIX(READ(p + i, k), x[k]))
    STATES(m, MIX(READ(m + i, k), x[k]))
    STATES(v, MIX(READ(v + i, k), x[k] * x[k]))
})

KERNEL(one_state, NOMATH_ONE_STATE, {
    vec x[GROUP];
    EACH(GROUP) x[k] = READ(g + i, k);
    STATES(p, MIX(READ(p + i, k), x[k]))
    STATES(m, MIX(READ(m + i, k), x[k]))
})

KERNEL(no_state, NOMATH_NO_STATE, {STATES(p, MIX(READ(p + i, k), READ(g + i, k)))})

#define HALF_OUT_STATES                                                                                                        \
    SPREAD                                                                                                                     \
    STATES(p, MIX(READ(p + i, k), x[k]))                                                                                       \
    STATES(m, MIX(READ(m + i, k), x[k]))                                                                                       \
    STATES(v, MIX(READ(v + i, k), x[k] * x[k]))
KERNEL(half_out, NOMATH_HALF_OUT, {
    HALF_OUT_STATES
    EACH(GROUP / 2) HALVES(w16 + i, k) = READ_HALVES(g16 + i, k);
})

KERNEL(half_keep, NOMATH_HALF_KEEP, {
    SPREAD
    EACH(GROUP / 2) HALVES(w16 + i, k) ^= READ_HALVES(g16 + i, k) & 0x00010001u;
    STATES(m, MIX(READ(m + i, k), x[k]))
    STATES(v, MIX(READ(v + i, k), x[k] * x[k]))
})

KERNEL(widen, NOMATH_WIDEN, {
    SPREAD
    EACH(GROUP) AT(wide + i, k) = x[k];
})

KERNEL(touch, NOMATH_TOUCH, { EACH(GROUP) BITS(wide + i, k) = READ_BITS(wide + i, k) ^ 0x80000000u; })

#define NARROW(k) ((READ_BITS(p + i, 2 * (k)) & HIGH) | (READ_BITS(p + i, 2 * (k) + 1) >> 16))
KERNEL(narrow, NOMATH_NARROW, { EACH(GROUP / 2) HALVES(w16 + i, k) = NARROW(k); })

KERNEL(triad, NOMATH_TRIAD, { EACH(GROUP) AT(wide + i, k) = READ(g + i, k) + 0.5f * READ(p + i, k); })

static uint32_t copy(const nomath_streams *s, size_t begin, size_t end)
{
    memcpy(s->wide + begin, s->g + begin, (end - begin) * sizeof *s->g);
    return 0;
}

/* What is only read goes into as many sums as there are vectors in a turn, so that none waits for another. */
#define READER(name, kind, COUNT, LOAD)                                                                                        \
    static uint32_t name(const nomath_streams *s, size_t begin, size_t end)                                                    \
    {                                                                                                                          \
        enum { TURN = 8 };                                                                                                     \
        bits seen[TURN] = {0};                                                                                                 \
        size_t i = begin;                                                                                                      \
        for (; i + TURN * COUNT <= end; i += TURN * COUNT)                                                                     \
            EACH(TURN) seen[k] |= LOAD;                                                                                        \
        EACH(TURN - 1) seen[0] |= seen[k + 1];                                                                                 \
        uint32_t all = tail(kind, s, i, end);                                                                                  \
        EACH(LANES) all |= seen[0][k];                                                                                         \
        return all;                                                                                                            \
    }
READER(read32, NOMATH_READ32, LANES, READ_BITS(s->wide + i, k))
READER(read16, NOMATH_READ16, (2 * LANES), READ_HALVES(s->g16 + i, k))

#ifdef STREAM
KERNEL(half_out_streaming, NOMATH_HALF_OUT, {
    HALF_OUT_STATES
    EACH(GROUP / 2) STREAM(w16 + i + 2 * k * LANES, READ_HALVES(g16 + i, k));
})
KERNEL(widen_streaming, NOMATH_WIDEN, {
    SPREAD
    EACH(GROUP) STREAM(wide + i + k * LANES, (bits)x[k]);
})
KERNEL(narrow_streaming, NOMATH_NARROW, { EACH(GROUP / 2) STREAM(w16 + i + 2 * k * LANES, NARROW(k)); })
KERNEL(triad_streaming, NOMATH_TRIAD, {
    EACH(GROUP) STREAM(wide + i + k * LANES, (bits)(READ(g + i, k) + 0.5f * READ(p + i, k)));
})
KERNEL(copy_streaming, NOMATH_COPY, { EACH(GROUP) STREAM(wide + i + k * LANES, READ_BITS(g + i, k)); })
#define FENCED(name)                                                                                                           \
    static uint32_t name##_fenced(const nomath_streams *s, size_t begin, size_t end)                                           \
    {                                                                                                                          \
        const uint32_t seen = name(s, begin, end);                                                                             \
        FENCE();                                                                                                               \
        return seen;                                                                                                           \
    }
FENCED(half_out_streaming)
FENCED(widen_streaming)
FENCED(narrow_streaming)
FENCED(triad_streaming)
FENCED(copy_streaming)
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
const nomath_table JOIN(nomath_table_, NOMATH_NAME) = {
    .name = TEXT(NOMATH_NAME),
    .streaming_name = TEXT(NOMATH_NAME) ", streaming stores",
    .plain = {[NOMATH_FP32] = fp32,
              [NOMATH_HALF_OUT] = half_out,
              [NOMATH_HALF_KEEP] = half_keep,
              [NOMATH_ONE_STATE] = one_state,
              [NOMATH_NO_STATE] = no_state,
              [NOMATH_WIDEN] = widen,
              [NOMATH_READ32] = read32,
              [NOMATH_READ16] = read16,
              [NOMATH_TOUCH] = touch,
              [NOMATH_NARROW] = narrow,
              [NOMATH_TRIAD] = triad,
              [NOMATH_COPY] = copy},
#ifdef STREAM
    .streaming = {[NOMATH_HALF_OUT] = half_out_streaming_fenced,
                  [NOMATH_WIDEN] = widen_streaming_fenced,
                  [NOMATH_NARROW] = narrow_streaming_fenced,
                  [NOMATH_TRIAD] = triad_streaming_fenced,
                  [NOMATH_COPY] = copy_streaming_fenced},
#endif
};
