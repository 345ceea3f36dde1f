/* hosts.c: checks that ranks fit into the memory of their host together. Each rank has checked only its own need. Ranks share
 * the machine, and each cgroup that contains several of them. */
#include "agreement.h"

#include "bits.h"
#include "budget.h"
#include "try.h"

#include <stdio.h>

/* Message of a rank to the others: its need, and its memory limits. */
typedef struct share {
    uint64_t need, levels;
    zoff_budget_level level[ZOFF_BUDGET_LEVELS];
} share;

/* The need of all ranks that share a memory limit, and the available memory. */
typedef struct total {
    uint64_t need, have;
    unsigned ranks;
} total;

static const zoff_budget_level *find(const share *s, uint64_t id)
{
    for (size_t i = 0; i < s->levels; i++) {
        if (s->level[i].id == id)
            return &s->level[i];
    }
    return NULL;
}

static total add_up(const share *all, unsigned ranks, uint64_t id)
{
    total t = {.have = UINT64_MAX};
    for (unsigned rank = 0; rank < ranks; rank++) {
        const zoff_budget_level *level = find(&all[rank], id);
        if (!level)
            continue;
        t.need += all[rank].need;
        t.have = level->bytes < t.have ? level->bytes : t.have;
        t.ranks++;
    }
    return t;
}

/* "rank 0 772.0 MiB, rank 1 772.0 MiB and 6 more" */
static void list_ranks(const share *all, unsigned ranks, uint64_t id, char *dst, size_t dst_bytes)
{
    enum { NAMED = 8 };
    unsigned named = 0, more = 0;
    size_t used = 0;
    dst[0] = 0;
    for (unsigned rank = 0; rank < ranks; rank++) {
        if (!find(&all[rank], id))
            continue;
        if (named == NAMED) {
            more++;
            continue;
        }
        const int written = snprintf(dst + used, dst_bytes - used, "%srank %u %s", named ? ", " : "", rank,
                                     zoff_base_words_bytes(all[rank].need));
        used = zoff_base_bits_min(used + (size_t)written, dst_bytes - 1);
        named++;
    }
    if (more)
        (void)snprintf(dst + used, dst_bytes - used, " and %u more", more);
}

static zoff_status compare(const zoff_agreement *a, const share *all, const char *advice)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    const share *own = &all[zoff_comm_rank(a->comm)];
    char list[512];
    for (size_t i = 0; i < own->levels; i++) {
        const total t = add_up(all, ranks, own->level[i].id);
        if (t.ranks < 2 || t.need <= t.have)
            continue; /* the need of a single rank was checked before */
        list_ranks(all, ranks, own->level[i].id, list, sizeof list);
        return zoff_base_status_fail(
            ZOFF_ERR_NO_MEMORY,
            "zoff_engine_seal: not enough DRAM for the %u ranks that share %s: together they need %s (%s), have %s (%s); start "
            "fewer ranks there, %s",
            t.ranks, i ? "this cgroup" : "this host", zoff_base_words_bytes(t.need), list, zoff_base_words_bytes(t.have),
            i ? "cgroup limit" : "MemAvailable", advice);
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_hosts_check(zoff_agreement *a, uint64_t need_bytes, const char *advice)
{
    share *all = NULL;
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    zoff_status status = zoff_base_mem_alloc(zoff_comm_size(a->comm), sizeof *all, "memory needs of ranks", &all);
    status = zoff_agreement_consensus_success(a, status);
    if (status < 0) {
        zoff_base_mem_free(all);
        return status;
    }
    share *own = &all[zoff_comm_rank(a->comm)];
    own->need = need_bytes;
    own->levels = zoff_base_budget_levels(own->level);
    status = zoff_agreement_consensus_gather(a, all, sizeof *all);
    if (status == ZOFF_OK)
        status = zoff_agreement_consensus_success(a, compare(a, all, advice)); /* ranks on other hosts must learn of it */
    zoff_base_mem_free(all);
    return status;
}
