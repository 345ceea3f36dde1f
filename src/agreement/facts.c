/* facts.c: compares a list between ranks. Each rank sends one checksum to all. Only if checksums differ do two ranks send their
 * lists, so that the error can name the items, their values and the ranks. */
#include "agreement.h"

#include "array.h"
#include "bits.h"
#include "try.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 512 };

/* ---- build a list ---- */

static zoff_status add_word(zoff_facts *f, uint64_t word)
{
    ZOFF_TRY(zoff_base_array_reserve(&f->words, f->word_count, &f->word_capacity, f->word_count + 1, sizeof *f->words,
                                     "values of ranks"));
    f->words[f->word_count++] = word;
    return ZOFF_OK;
}

static zoff_status add_string(zoff_facts *f, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    ZOFF_TRY(zoff_base_array_reserve(&f->text, f->text_bytes, &f->text_capacity, f->text_bytes + bytes, 1, "values of ranks"));
    memcpy(f->text + f->text_bytes, text, bytes);
    f->text_bytes += bytes;
    return ZOFF_OK;
}

static zoff_status add_named(zoff_facts *f, const char *value, const char *format, va_list args)
{
    char name[NAME_BYTES];
    vsnprintf(name, sizeof name, format, args);
    ZOFF_TRY(add_string(f, name));
    return add_string(f, value);
}

zoff_status zoff_agreement_facts_add_text(zoff_facts *f, const char *value, const char *format, ...)
{
    if (!f->as_text)
        return add_word(f, zoff_offload_layout(value, strlen(value)));
    va_list args;
    va_start(args, format);
    const zoff_status status = add_named(f, value, format, args);
    va_end(args);
    return status;
}

zoff_status zoff_agreement_facts_add_count(zoff_facts *f, uint64_t value, const char *format, ...)
{
    char text[32];
    if (!f->as_text)
        return add_word(f, value);
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    va_list args;
    va_start(args, format);
    const zoff_status status = add_named(f, text, format, args);
    va_end(args);
    return status;
}

static void free_facts(zoff_facts *f)
{
    zoff_base_mem_free(f->text);
    zoff_base_mem_free(f->words);
    *f = (zoff_facts){.as_text = false};
}

/* ---- hyper-parameters ---- */

typedef enum field_kind { NUMBER, DECAY, OPTIMIZER, FLAG, FLAGS } field_kind;

static const struct {
    const char *name;
    size_t offset;
    field_kind kind;
} FIELDS[] = {
#define FIELD(name_, kind_)                                                                                                    \
    {                                                                                                                          \
#name_, offsetof(zoff_optimizer_hyper, name_), kind_                                                                   \
    }
    FIELD(lr, NUMBER),     FIELD(beta1, NUMBER),        FIELD(beta2, NUMBER),        FIELD(eps, NUMBER),
    FIELD(decay, DECAY),   FIELD(momentum, NUMBER),     FIELD(dampening, NUMBER),    FIELD(lr_decay, NUMBER),
    FIELD(nesterov, FLAG), FIELD(optimizer, OPTIMIZER), FIELD(weight_decay, NUMBER), FIELD(flags, FLAGS),
#undef FIELD
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };
_Static_assert(sizeof(zoff_optimizer_hyper) == offsetof(zoff_optimizer_hyper, flags) + sizeof(uint64_t),
               "add the new field to the list");

size_t zoff_agreement_facts_hyper_count(void)
{
    return FIELD_COUNT;
}

void zoff_agreement_facts_hyper_words(const zoff_optimizer_hyper *h, uint64_t *out)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const char *field = (const char *)h + FIELDS[i].offset;
        out[i] = 0;
        if (FIELDS[i].kind == NUMBER || FIELDS[i].kind == FLAGS)
            memcpy(&out[i], field, sizeof out[i]);
        else if (FIELDS[i].kind == FLAG)
            out[i] = *(const bool *)field;
        else
            out[i] = FIELDS[i].kind == DECAY ? (uint64_t)h->decay : (uint64_t)h->optimizer;
    }
}

const char *zoff_agreement_facts_hyper_print(size_t field, uint64_t word, char *dst, size_t dst_bytes)
{
    static const char *const OPTIMIZERS[] = {"Adam", "Adagrad", "Lion", "SGD"};
    double number;
    memcpy(&number, &word, sizeof number);
    if (FIELDS[field].kind == NUMBER)
        snprintf(dst, dst_bytes, "%.17g", number);
    else if (FIELDS[field].kind == FLAGS)
        snprintf(dst, dst_bytes, "%#llx", (unsigned long long)word);
    else if (FIELDS[field].kind == FLAG)
        snprintf(dst, dst_bytes, "%s", word ? "true" : "false");
    else if (FIELDS[field].kind == DECAY)
        snprintf(dst, dst_bytes, "%s", word == ZOFF_DECAY_L2 ? "L2" : "decoupled");
    else
        snprintf(dst, dst_bytes, "%s", word < 4 ? OPTIMIZERS[word] : "unknown");
    return FIELDS[field].name;
}

/* ---- compare ---- */

typedef struct head {
    uint64_t digest, text_bytes;
} head;

void zoff_agreement_facts_print_ranks(unsigned ranks, bool (*is_one)(const void *ctx, unsigned rank), const void *ctx,
                                      char *dst, size_t dst_bytes)
{
    enum { MOST = 8 };
    unsigned count = 0, shown = 0;
    size_t used = 0;
    for (unsigned rank = 0; rank < ranks; rank++)
        count += is_one(ctx, rank);
    used = (size_t)snprintf(dst, dst_bytes, count > 1 ? "ranks " : "rank ");
    for (unsigned rank = 0; rank < ranks && used < dst_bytes; rank++) {
        if (!is_one(ctx, rank) || shown > MOST)
            continue;
        if (shown == MOST)
            used += (size_t)snprintf(dst + used, dst_bytes - used, " and %u more", count - shown);
        else
            used += (size_t)snprintf(dst + used, dst_bytes - used, "%s%u",
                                     shown == 0          ? ""
                                     : shown + 1 < count ? ", "
                                                         : " and ",
                                     rank);
        shown++;
    }
}

/* Selects the ranks that have the same checksum as `rank`. */
typedef struct like {
    const head *heads;
    unsigned rank;
} like;

static bool is_like(const void *ctx, unsigned rank)
{
    const like *of = ctx;
    return of->heads[rank].digest == of->heads[of->rank].digest;
}

/* Values can be long: names given by the program, or lists. */
enum { SHOWN_MAX = 8, VALUE_CHARS = 120, MORE_BYTES = 32 };

/* Name the items that differ, as many as fit into an error. */
static zoff_status name_differences(const char *ours, size_t our_bytes, const char *theirs, size_t their_bytes,
                                    const char *our_ranks, const char *their_ranks, const char *call, const char *advice)
{
    const char *our_end = ours + our_bytes, *their_end = theirs + their_bytes;
    char text[1700];
    const size_t most = sizeof text - MORE_BYTES; /* the rest is for the number of items that are not shown */
    size_t used = 0;
    unsigned shown = 0, more = 0;
    text[0] = 0;
    while (ours < our_end && theirs < their_end && strcmp(ours, theirs) == 0) {
        const char *name = ours, *our_value = ours + strlen(ours) + 1, *their_value = theirs + strlen(theirs) + 1;
        const bool differs = strcmp(our_value, their_value) != 0;
        if (differs && shown < SHOWN_MAX && used < most - 400) {
            used += (size_t)snprintf(text + used, most - used, "%s%s is %.*s on %s and %.*s on %s", shown ? "; " : "", name,
                                     VALUE_CHARS, our_value, our_ranks, VALUE_CHARS, their_value, their_ranks);
            used = zoff_base_bits_min(used, most - 1); /* the last item may have been cut */
            shown++;
        } else {
            more += differs;
        }
        ours = our_value + strlen(our_value) + 1;
        theirs = their_value + strlen(their_value) + 1;
    }
    /* One list has an item that the other lacks: the ranks have different versions of the library. */
    if (shown == 0)
        snprintf(text, sizeof text,
                 "the list of %s has \"%s\" where that of %s has \"%s\": all ranks need the same version of zoff", our_ranks,
                 ours < our_end ? ours : "nothing", their_ranks, theirs < their_end ? theirs : "nothing");
    else if (more)
        snprintf(text + used, sizeof text - used, "; and %u more", more);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s: %s. %s", call, text, advice);
}

/* Send the list of one rank to all. */
static zoff_status send(zoff_agreement *a, unsigned root, const zoff_facts *own, char *text, size_t bytes)
{
    zoff_comm_work work = {.active = false};
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .out = text,
                                 .count = bytes,
                                 .root = root};
    if (zoff_comm_rank(a->comm) == root)
        memcpy(text, own->text, bytes);
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &work));
    return zoff_comm_wait(a->comm, &work);
}

/* Checksums differ, first on rank `other`: exchange the lists and fail. */
static zoff_status explain(zoff_agreement *a, const head *heads, unsigned other, const zoff_facts *own, const char *call,
                           const char *advice)
{
    zoff_status status;
    char *first = NULL, *second = NULL, our_ranks[128], their_ranks[128];
    const unsigned ranks = zoff_comm_size(a->comm);
    const size_t first_bytes = heads[0].text_bytes, second_bytes = heads[other].text_bytes;
    status = zoff_base_mem_alloc(first_bytes + 1, 1, "values of ranks", &first);
    if (status == ZOFF_OK)
        status = zoff_base_mem_alloc(second_bytes + 1, 1, "values of ranks", &second);
    ZOFF_TRY_OR(free_texts, zoff_agreement_consensus_success(a, status));
    ZOFF_TRY_OR(free_texts, send(a, 0, own, first, first_bytes));
    ZOFF_TRY_OR(free_texts, send(a, other, own, second, second_bytes));
    zoff_agreement_facts_print_ranks(ranks, is_like, &(like){heads, 0}, our_ranks, sizeof our_ranks);
    zoff_agreement_facts_print_ranks(ranks, is_like, &(like){heads, other}, their_ranks, sizeof their_ranks);
    status = name_differences(first, first_bytes, second, second_bytes, our_ranks, their_ranks, call, advice);
free_texts:
    zoff_base_mem_free(first);
    zoff_base_mem_free(second);
    return status;
}

/* The first rank that differs from rank 0; `ranks` if none does. */
static unsigned first_other(const head *heads, unsigned ranks)
{
    unsigned rank = 1;
    while (rank < ranks && heads[rank].digest == heads[0].digest)
        rank++;
    return rank;
}

/* Compare checksums, after every rank has made its list. */
static zoff_status compare(zoff_agreement *a, zoff_facts_list list, const void *ctx, zoff_facts *own, head *heads,
                           const char *call, const char *advice)
{
    const unsigned ranks = zoff_comm_size(a->comm), rank = zoff_comm_rank(a->comm);
    heads[rank] = (head){.digest = zoff_offload_layout(own->words, own->word_count * sizeof *own->words)};
    ZOFF_TRY(zoff_agreement_consensus_gather(a, heads, sizeof *heads));
    const unsigned other = first_other(heads, ranks);
    if (other == ranks)
        return ZOFF_OK;
    own->as_text = true;
    ZOFF_TRY(zoff_agreement_consensus_success(a, list(ctx, own)));
    heads[rank].text_bytes = own->text_bytes;
    ZOFF_TRY(zoff_agreement_consensus_gather(a, heads, sizeof *heads));
    return explain(a, heads, other, own, call, advice);
}

zoff_status zoff_agreement_facts_compare(zoff_agreement *a, zoff_facts_list list, const void *ctx, const char *call,
                                         const char *advice)
{
    zoff_facts own = {.as_text = false};
    head *heads = NULL;
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    zoff_status status = zoff_base_mem_alloc(zoff_comm_size(a->comm), sizeof *heads, "values of ranks", &heads);
    if (status == ZOFF_OK)
        status = list(ctx, &own);
    status = zoff_agreement_consensus_success(a, status);
    if (status == ZOFF_OK)
        status = compare(a, list, ctx, &own, heads, call, advice);
    free_facts(&own);
    zoff_base_mem_free(heads);
    return status;
}
