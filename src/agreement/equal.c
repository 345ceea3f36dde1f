/* SPDX-License-Identifier: Apache-2.0 */
/* equal.c: compares a list of named values between ranks. Most comparisons find no difference, so each rank first sends one
 * checksum of its list. Only if checksums differ, rank 0 and the first rank that differs from it send their lists as text, and
 * the error names the values that differ and the ranks that have them. Every rank has the same checksums, so all take part in
 * the second exchange or none does, and all return the same error. */
#include "agreement.h"

#include "array.h"
#include "bits.h"
#include "try.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- build a list ---- */

static zoff_status add_string(zoff_fields *f, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    ZOFF_TRY(zoff_base_array_reserve(&f->text, f->bytes, &f->capacity, f->bytes + bytes, 1, "values of ranks"));
    memcpy(f->text + f->bytes, text, bytes);
    f->bytes += bytes;
    return ZOFF_OK;
}

static zoff_status add_text(zoff_fields *f, const char *name, const char *value)
{
    ZOFF_TRY(add_string(f, name));
    return add_string(f, value);
}

void zoff_agreement_equal_add(zoff_fields *f, const char *text, uint64_t number, const char *name, ...)
{
    char full_name[512], digits[32];
    va_list args;
    if (!f->as_text) {
        const uint64_t words[] = {f->sum, text ? zoff_offload_layout(text, strlen(text)) : number};
        f->sum = zoff_offload_layout(words, sizeof words);
        return;
    }
    va_start(args, name);
    vsnprintf(full_name, sizeof full_name, name, args);
    va_end(args);
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    if (f->status == ZOFF_OK)
        f->status = add_text(f, full_name, text ? text : digits);
}

/* ---- name what differs ---- */

/* Print the ranks whose checksum is that of `like`, as "rank 1" or "ranks 1, 2 and 4". A vote has each behind a status. */
static void print_ranks(const zoff_voters *v, unsigned like, char *dst, size_t dst_bytes)
{
    enum { MOST = 8 };
    const unsigned ranks = zoff_comm_size(v->comm);
    unsigned count = 0, shown = 0;
    for (unsigned rank = 0; rank < ranks; rank++)
        count += v->words[2 * rank + 1] == v->words[2 * like + 1];
    size_t used = (size_t)snprintf(dst, dst_bytes, count > 1 ? "ranks " : "rank ");
    for (unsigned rank = 0; rank < ranks && used < dst_bytes && shown < MOST; rank++) {
        if (v->words[2 * rank + 1] != v->words[2 * like + 1])
            continue;
        const char *between = shown == 0 ? "" : shown + 1 < count ? ", " : " and ";
        used += (size_t)snprintf(dst + used, dst_bytes - used, "%s%u", between, rank);
        shown++;
    }
    if (shown < count && used < dst_bytes)
        (void)snprintf(dst + used, dst_bytes - used, " and %u more", count - shown);
}

/* The list of a rank as text, and who has it. Values can be long: names given by the program, or lists. */
typedef struct side {
    const char *at, *end;
    char ranks[128];
} side;

enum { SHOWN_MAX = 8, VALUE_CHARS = 120, MORE_BYTES = 32 };

/* Name the values that differ, as many as fit into an error. */
static zoff_status name_differences(side ours, side theirs, const char *call, const char *advice)
{
    char text[1700] = "";
    const size_t most = sizeof text - MORE_BYTES; /* room for the text without the number of values that are not shown */
    size_t used = 0;
    unsigned shown = 0, more = 0;
    while (ours.at < ours.end && theirs.at < theirs.end && strcmp(ours.at, theirs.at) == 0) {
        const char *name = ours.at, *our_value = name + strlen(name) + 1, *their_value = theirs.at + strlen(name) + 1;
        const bool differs = strcmp(our_value, their_value) != 0;
        if (differs && shown < SHOWN_MAX && used < most - 400) {
            used += (size_t)snprintf(text + used, most - used, "%s%s is %.*s on %s and %.*s on %s", shown ? "; " : "", name,
                                     VALUE_CHARS, our_value, ours.ranks, VALUE_CHARS, their_value, theirs.ranks);
            used = zoff_base_bits_min(used, most - 1); /* the last value may have been cut */
            shown++;
        } else {
            more += differs;
        }
        ours.at = our_value + strlen(our_value) + 1;
        theirs.at = their_value + strlen(their_value) + 1;
    }
    /* One list has a name that the other lacks, so the ranks have different versions of the library. */
    if (shown == 0)
        snprintf(text, sizeof text,
                 "the list of %s has \"%s\" where that of %s has \"%s\": all ranks need the same version of zoff", ours.ranks,
                 ours.at < ours.end ? ours.at : "nothing", theirs.ranks, theirs.at < theirs.end ? theirs.at : "nothing");
    else if (more)
        snprintf(text + used, sizeof text - used, "; and %u more", more);
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s: %s. %s", call, text, advice);
}

/* Checksums differ, first on rank `other`: send the lists of two ranks to all, and fail. */
static zoff_status explain(zoff_voters *v, unsigned other, zoff_fields *own, const char *call, const char *advice)
{
    zoff_status status;
    side ours, theirs;
    char *texts = NULL;
    const unsigned rank = zoff_comm_rank(v->comm);
    print_ranks(v, 0, ours.ranks, sizeof ours.ranks);
    print_ranks(v, other, theirs.ranks, sizeof theirs.ranks);
    ZOFF_TRY(zoff_agreement_vote(v, own->status, &(uint64_t){own->bytes}, 1));
    const size_t our_bytes = (size_t)v->words[1], their_bytes = (size_t)v->words[2 * other + 1];
    status = zoff_base_mem_alloc(our_bytes + their_bytes + 1, 1, "values of ranks", &texts);
    ZOFF_TRY_OR(free_texts, zoff_agreement_vote_success(v, status));
    if (rank == 0 || rank == other)
        memcpy(texts + (rank ? our_bytes : 0), own->text, own->bytes);
    ZOFF_TRY_OR(free_texts, zoff_agreement_vote_share(v, 0, texts, our_bytes));
    ZOFF_TRY_OR(free_texts, zoff_agreement_vote_share(v, other, texts + our_bytes, their_bytes));
    ours.at = texts;
    ours.end = theirs.at = texts + our_bytes;
    theirs.end = theirs.at + their_bytes;
    status = name_differences(ours, theirs, call, advice);
free_texts:
    zoff_base_mem_free(texts);
    return status;
}

zoff_status zoff_agreement_equal(zoff_agreement *a, zoff_fields_list list, const void *ctx, const char *call,
                                 const char *advice)
{
    zoff_voters *v = &a->ranks;
    const unsigned ranks = zoff_comm_size(v->comm);
    zoff_fields own = {.as_text = false};
    unsigned other = 1;
    if (ranks == 1)
        return ZOFF_OK;
    list(ctx, &own);
    ZOFF_TRY(zoff_agreement_vote(v, ZOFF_OK, &own.sum, 1));
    while (other < ranks && v->words[2 * other + 1] == v->words[1])
        other++;
    if (other == ranks)
        return ZOFF_OK;
    own.as_text = true;
    list(ctx, &own);
    const zoff_status status = explain(v, other, &own, call, advice);
    zoff_base_mem_free(own.text);
    return status;
}
