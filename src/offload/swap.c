/* SPDX-License-Identifier: Apache-2.0 */
/* swap.c: the tier that stores chunks in files and streams them through a ring of slots in DRAM. It reads ahead of the caller
 * and writes in the background.
 *
 *      FREE -- read --> READING -- fetch, done --> LENT -- flush --> WRITING -- done --> FREE
 *       ^                                           |                  |
 *       +----------------- release -----------------+                  +-- failed --> DIRTY -- retry --> WRITING
 *
 * A read goes on when nobody waits for it any more; its slot is taken by the next one who needs it.
 *
 *      LENT -- keep --> KEPT -- fetch --> LENT; or, if its slot is needed, FREE
 *      LENT -- keep, changed --> DIRTY -- fetch --> LENT; or, if its slot is needed or by drain, WRITING --> KEPT
 *
 * A slot holds the requested arrays of its chunk. A fetch of other arrays reads them into the same slot: KEPT and DIRTY become
 * READING. If the read fails, the content of a DIRTY slot is put off again.
 *
 * The tier takes memory for the slots, for any size of the model. If the budget has room, it also takes memory for residents:
 * chunks that stay in DRAM. A resident has memory of its own, its home. It is written only if files persist, and then at each
 * flush. Each chunk lies in one file. An array that was never flushed still has its initial content: only its front is read,
 * the rest is zero.
 *
 * A chunk may get a second content before it is known whether that counts (swap_second.c). It is written beside the first one.
 *
 * A flush computes a checksum of each array. A fetch compares it with the bytes that were read, before it lends them. */
#include "swap_priv.h"

static zoff_status swap_retry(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    for (size_t i = 0; s->has_failed && i < s->ring_count + s->home_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_DIRTY && !slot->changed)
            ZOFF_TRY(zoff_offload_swap_move_start_write(s, slot, slot->moving));
    }
    s->has_failed = false;
    for (unsigned i = 0; i < s->ring_count; i++)
        if (s->slots[i].state == ZOFF_SLOT_READING)
            s->slots[i].ahead = true; /* if it fails, the error may be an old one, so the demand reads again */
    return s->store.unproven ? zoff_offload_swap_keep_rewrite(s) : ZOFF_OK;
}

const zoff_store_ops zoff_offload_swap_ops = {.opening = {.find = zoff_offload_swap_life_find,
                                                          .verify = zoff_offload_swap_reopen_verify,
                                                          .fill = zoff_offload_swap_life_fill},
                                              .close = zoff_offload_swap_life_close,
                                              .has_place = zoff_offload_swap_lend_has_place,
                                              .clear = zoff_offload_swap_lend_clear,
                                              .hint = zoff_offload_swap_lend_hint,
                                              .fetch = zoff_offload_swap_lend_fetch,
                                              .claim = zoff_offload_swap_lend_claim,
                                              .check = zoff_offload_swap_lend_check,
                                              .settle = zoff_offload_swap_sum_settle,
                                              .flush = zoff_offload_swap_lend_flush,
                                              .keep = zoff_offload_swap_put_off_keep,
                                              .release = zoff_offload_swap_lend_release,
                                              .pump = zoff_offload_swap_wait_pump,
                                              .wait = zoff_offload_swap_wait_any,
                                              .drain = zoff_offload_swap_wait_drain,
                                              .busy = zoff_offload_swap_wait_busy,
                                              .commits = {.settled = zoff_offload_swap_wait_settled,
                                                          .record = zoff_offload_swap_keep_record,
                                                          .confirm = zoff_offload_swap_keep_confirm,
                                                          .rollback = zoff_offload_swap_keep_rollback,
                                                          .retry = swap_retry},
                                              .seconds = {.begin = zoff_offload_swap_second_begin,
                                                          .put = zoff_offload_swap_second_put,
                                                          .adopt = zoff_offload_swap_second_adopt,
                                                          .discard = zoff_offload_swap_second_discard},
                                              .resident = zoff_offload_swap_lend_resident,
                                              .source = zoff_offload_swap_lend_source};
