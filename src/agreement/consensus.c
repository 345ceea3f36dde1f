/* consensus.c: ranks exchange small values outside of steps, and learn whether all of them succeeded. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_agreement_consensus_open(zoff_agreement *a)
{
    zoff_consensus *c = &a->consensus;
    const unsigned ranks = zoff_comm_size(a->comm);
    if (!c->results)
        ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *c->results, "values of ranks", &c->results));
    if (!c->numbers)
        ZOFF_TRY(zoff_base_mem_alloc(ranks * ZOFF_CONSENSUS_NUMBERS, sizeof *c->numbers, "values of ranks", &c->numbers));
    return c->each ? ZOFF_OK : zoff_base_mem_alloc(ranks, sizeof *c->each, "values of ranks", &c->each);
}

void zoff_agreement_consensus_close(zoff_agreement *a)
{
    zoff_base_mem_free(a->consensus.results);
    zoff_base_mem_free(a->consensus.each);
    zoff_base_mem_free(a->consensus.numbers);
    a->consensus = (zoff_consensus){.results = NULL};
}

zoff_status zoff_agreement_consensus_gather(zoff_agreement *a, void *all, size_t bytes)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    size_t *each = a->consensus.each;
    zoff_comm_work work = {.active = false};
    for (unsigned i = 0; i < ranks; i++)
        each[i] = bytes;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .in = (char *)all + zoff_comm_rank(a->comm) * bytes,
                                 .out = all,
                                 .receive_bytes = each};
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &work));
    return zoff_comm_wait(a->comm, &work);
}

zoff_status zoff_agreement_consensus_share(zoff_agreement *a, void *bytes, size_t count)
{
    zoff_comm_work work = {.active = false};
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .out = bytes,
                                 .count = count};
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &work));
    return zoff_comm_wait(a->comm, &work);
}

zoff_status zoff_agreement_consensus_least(zoff_agreement *a, uint64_t *numbers, size_t count)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    uint64_t *all = a->consensus.numbers;
    if (ranks == 1)
        return ZOFF_OK;
    memcpy(all + zoff_comm_rank(a->comm) * count, numbers, count * sizeof *numbers);
    ZOFF_TRY(zoff_agreement_consensus_gather(a, all, count * sizeof *all));
    for (size_t i = 0; i < ranks * count; i++)
        numbers[i % count] = zoff_base_bits_min(numbers[i % count], all[i]);
    return ZOFF_OK;
}

/* If this rank failed, its own error message is kept. */
zoff_status zoff_agreement_consensus_success(zoff_agreement *a, zoff_status own)
{
    const unsigned ranks = zoff_comm_size(a->comm), rank = zoff_comm_rank(a->comm);
    zoff_saved_error saved;
    int *all = a->consensus.results, failed = -1;
    if (ranks == 1)
        return own;
    zoff_base_status_save(&saved);
    all[rank] = own;
    zoff_status status = zoff_agreement_consensus_gather(a, all, sizeof *all);
    for (unsigned i = 0; status == ZOFF_OK && i < ranks; i++)
        failed = failed < 0 && all[i] < 0 ? (int)i : failed;
    if (own < 0) {
        zoff_base_status_restore(&saved);
        return own;
    }
    ZOFF_TRY(status);
    ZOFF_FAIL_IF(failed >= 0, ZOFF_ERR_COMM,
                 "rank %d has failed, and this one has not: see the message of that rank for the cause", failed);
    return ZOFF_OK;
}
