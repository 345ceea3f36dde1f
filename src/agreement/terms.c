/* terms.c: compares the inputs of a step's update, other than gradients and states, between ranks. Each vote contains their
 * checksum, so a step of ranks that agree needs no extra operation. If checksums differ the ranks exchange the words, and the
 * error names the differences, before anything is updated. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* Words of the step, which precede those of the groups. */
enum { T, CLIP, GRAD_SCALE, FLAGS, LOSS_SCALE, ITERATIONS, LAST_OVERFLOW, HYSTERESIS, WEIGHTS, NORM_SUM, TERMS };
static const struct {
    const char *name;
    bool is_number; /* a double; otherwise an integer */
} NAMES[TERMS] = {
    {"zoff_step_args.t (or the number of updates made)", false},
    {"zoff_step_args.clip_norm (or gradient_clipping)", true},
    {"zoff_step_args.grad_scale", true},
    {"zoff_step_args.flags", false},
    {"zoff_loss_scaler.scale", true},
    {"zoff_loss_scaler.iterations", false},
    {"zoff_loss_scaler.last_overflow", false},
    {"zoff_loss_scaler.hysteresis", false},
    {"the sum of the weights of all micro-batches (zoff_grad_weight())", true},
    {"zoff_step_args.norm_sum (as a checksum)", false},
};

static uint64_t word_of(double number)
{
    uint64_t word;
    memcpy(&word, &number, sizeof word);
    return word;
}

/* One word per hyper-parameter, and a checksum of the constants computed from them. The checksum catches a difference in a
 * field that is missing in the list. */
static size_t words_of_group(void)
{
    return zoff_agreement_facts_hyper_count() + 1;
}

static size_t count_words(const zoff_agreement *a)
{
    return TERMS + a->model->group_count * words_of_group();
}

static void add_group(const zoff_agreement *a, const zoff_step_terms *step, size_t group, uint64_t *out)
{
    zoff_adam_consts consts;
    memset(out, 0, words_of_group() * sizeof *out);
    if (!a->model->groups[group].used) /* no parameter is updated with it */
        return;
    memset(&consts, 0, sizeof consts);
    zoff_adam_hyper_consts(&step->hyper[group], step->t, 1.0, &consts);
    zoff_agreement_facts_hyper_words(&step->hyper[group], out);
    out[words_of_group() - 1] = zoff_offload_layout(&consts, sizeof consts);
}

zoff_status zoff_agreement_terms_open(zoff_agreement *a)
{
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    return zoff_base_mem_alloc(3 * count_words(a), sizeof *a->step_terms, "values of ranks", &a->step_terms);
}

void zoff_agreement_terms_close(zoff_agreement *a)
{
    zoff_base_mem_free(a->step_terms);
    a->step_terms = NULL;
}

uint64_t zoff_agreement_terms_digest(zoff_agreement *a, const zoff_step_terms *step)
{
    const zoff_loss_scaler *s = &a->model->scaler;
    uint64_t *words = a->step_terms;
    if (!words) /* a single rank */
        return 0;
    words[T] = (uint64_t)step->t;
    words[CLIP] = word_of(step->clip_norm > 0 ? step->clip_norm : 0); /* negative and 0 both mean: no clipping */
    words[GRAD_SCALE] = word_of(step->grad_scale);
    words[FLAGS] = step->flags;
    words[LOSS_SCALE] = word_of(step->loss_scale);
    words[ITERATIONS] = (uint64_t)s->iterations;
    words[LAST_OVERFLOW] = (uint64_t)s->last_overflow;
    words[HYSTERESIS] = s->hysteresis;
    words[WEIGHTS] = word_of(step->weight);
    words[NORM_SUM] = step->norm_sum;
    for (size_t group = 0; group < a->model->group_count; group++)
        add_group(a, step, group, words + TERMS + group * words_of_group());
    return zoff_offload_layout(words, count_words(a) * sizeof *words);
}

/* ---- differences ---- */

static bool is_like_first(const void *ctx, unsigned rank)
{
    const zoff_vote *votes = ctx;
    return votes[rank].terms == votes[0].terms;
}

static bool is_other(const void *ctx, unsigned rank)
{
    return !is_like_first(ctx, rank);
}

/* Send the words of one rank to all. */
static zoff_status send(zoff_agreement *a, unsigned root, uint64_t *words)
{
    zoff_comm_work work = {.active = false};
    const size_t bytes = count_words(a) * sizeof *words;
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .out = words,
                                 .count = bytes,
                                 .root = root};
    if (a->plan->rank == root)
        memcpy(words, a->step_terms, bytes);
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &work));
    return zoff_comm_wait(a->comm, &work);
}

static void print_word(size_t index, uint64_t word, char *dst, size_t dst_bytes)
{
    double number;
    memcpy(&number, &word, sizeof number);
    if (index >= TERMS)
        (void)zoff_agreement_facts_hyper_print((index - TERMS) % words_of_group(), word, dst, dst_bytes);
    else if (NAMES[index].is_number)
        snprintf(dst, dst_bytes, "%.17g", number);
    else
        snprintf(dst, dst_bytes, "%lld", (long long)word);
}

static void print_name(size_t index, char *dst, size_t dst_bytes)
{
    char ignored[64];
    const size_t field = (index - TERMS) % words_of_group(), group = (index - TERMS) / words_of_group();
    if (index < TERMS)
        snprintf(dst, dst_bytes, "%s", NAMES[index].name);
    else
        snprintf(dst, dst_bytes, "zoff_optimizer_hyper.%s of group %zu, after the schedule,",
                 zoff_agreement_facts_hyper_print(field, 0, ignored, sizeof ignored), group);
}

static bool is_constants(size_t index)
{
    return index >= TERMS && (index - TERMS) % words_of_group() == words_of_group() - 1;
}

static zoff_status name_differences(const zoff_agreement *a, const zoff_vote *votes, unsigned other, const uint64_t *first,
                                    const uint64_t *second)
{
    enum { SHOWN_MAX = 6 };
    char text[1400] = "", others[128], like[128];
    size_t used = 0;
    unsigned shown = 0, more = 0;
    zoff_agreement_facts_print_ranks(zoff_comm_size(a->comm), is_like_first, votes, like, sizeof like);
    zoff_agreement_facts_print_ranks(zoff_comm_size(a->comm), is_other, votes, others, sizeof others);
    for (size_t i = 0; i < count_words(a); i++) {
        char name[128], ours[64], theirs[64];
        if (first[i] == second[i] || is_constants(i))
            continue;
        more += shown == SHOWN_MAX;
        if (shown == SHOWN_MAX)
            continue;
        print_name(i, name, sizeof name);
        print_word(i, first[i], ours, sizeof ours);
        print_word(i, second[i], theirs, sizeof theirs);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s is %s on rank 0 and %s on rank %u", shown ? "; " : "",
                                 name, ours, theirs, other);
        shown++;
    }
    for (size_t i = 0; !shown && i < count_words(a); i++) {
        if (first[i] != second[i])
            snprintf(text, sizeof text, "the constants of group %zu differ on ranks 0 and %u", (i - TERMS) / words_of_group(),
                     other);
    }
    if (more)
        snprintf(text + used, sizeof text - used, "; and %u more", more);
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "ranks take different steps: %s (%s against %s). Call zoff_grads_drop() on every rank, and repeat the step "
        "with the same values",
        text, like, others);
}

/* Every rank has the same votes, so either all ranks exchange their words or none does. */
zoff_status zoff_agreement_terms_compare(zoff_agreement *a, const zoff_vote *votes)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    unsigned other = 1;
    while (other < ranks && is_like_first(votes, other))
        other++;
    if (other >= ranks)
        return ZOFF_OK;
    uint64_t *first = a->step_terms + count_words(a), *second = first + count_words(a);
    ZOFF_TRY(send(a, 0, first));
    ZOFF_TRY(send(a, other, second));
    return name_differences(a, votes, other, first, second);
}
