/* facts_priv.h: a list of what ranks must have alike, each item with its name; part of engine_priv.h. */
#ifndef ZOFF_FACTS_PRIV_H
#define ZOFF_FACTS_PRIV_H

#include <zoff/engine.h>

/* Built twice: as words, of which a checksum is compared; and, where checksums differ, as text, so that an error can name the
 * item and its values. */
typedef struct zoff_facts {
    bool as_text;
    char *text; /* "name\0value\0name\0value\0" */
    size_t text_bytes, text_capacity;
    uint64_t *words;
    size_t word_count, word_capacity;
} zoff_facts;

typedef zoff_status (*zoff_facts_list)(const zoff_engine *e, zoff_facts *out);

/* facts.c */
/* Compare a list between all ranks.  @blocks until all have come
 * @return ERR_INVALID on every rank where two differ: it names items, values and ranks. `call` and `advice` begin and end it */
zoff_status zoff_engine_facts_compare(zoff_engine *e, zoff_facts_list list, const char *call, const char *advice);
/* The hyper-parameters of a group, by the names of zoff_adam_hyper. One word each. */
size_t zoff_engine_facts_hyper_count(void);
void zoff_engine_facts_hyper_words(const zoff_adam_hyper *h, uint64_t *out);
/* Write a value as text; the name of field number `field`. */
const char *zoff_engine_facts_hyper_print(size_t field, uint64_t word, char *dst, size_t dst_bytes);
/* Ranks that fulfil `is_one`, as "rank 1" or "ranks 1, 2 and 4". */
void zoff_engine_facts_print_ranks(unsigned ranks, bool (*is_one)(const void *ctx, unsigned rank), const void *ctx, char *dst,
                                   size_t dst_bytes);

/* listed.c: what ranks compare at seal */
/* ERR_INVALID on every rank if configuration, options, parameters or groups differ.  @blocks yes */
zoff_status zoff_engine_listed_agree_settings(zoff_engine *e);
/* The same for the plan that each rank has made of them. */
zoff_status zoff_engine_listed_agree_plan(zoff_engine *e);
zoff_status zoff_engine_listed_weights(const zoff_engine *e, zoff_facts *out); /* first weights of the engine */
/* What listed.c adds: a name by format, and a value. */
zoff_status zoff_engine_facts_add_text(zoff_facts *f, const char *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
zoff_status zoff_engine_facts_add_count(zoff_facts *f, uint64_t value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* terms.c: what the update of a step uses, in words: t, clipping, scales, flags, the loss scaler, the hyper-parameters of each
 * group */
size_t zoff_engine_terms_count(const zoff_engine *e);
zoff_status zoff_engine_terms_open(zoff_engine *e); /* reserve memory for those of several ranks */
void zoff_engine_terms_close(zoff_engine *e);
/* Fill e->agreement.step_terms, and give its checksum. */
uint64_t zoff_engine_terms_digest(zoff_engine *e);
/* All votes are there: where their checksums differ, exchange the words and name what differs.
 * @blocks then  @return ERR_INVALID on every rank */
zoff_status zoff_engine_terms_compare(zoff_engine *e);

#endif
