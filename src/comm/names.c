/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: describes operations, items, channels and calls in words, for error messages. */
#include "comm.h"

#include <stdio.h>
#include <string.h>

const char *zoff_comm_names_kind(zoff_comm_kind kind, bool adds)
{
    static const char *const NAMES[] = {"all_to_all", "all_gather", "sum", "broadcast", "barrier"};
    return adds ? "reduce_scatter" : NAMES[kind]; /* an all_to_all that adds up is a reduce-scatter */
}

void zoff_comm_names_channel(const zoff_comm *comm, uint32_t id, char *dst, size_t dst_bytes)
{
    const zoff_comm_channel *channel = zoff_comm_channel_find(comm, id);
    if (channel && channel->name[0])
        snprintf(dst, dst_bytes, "engine %u (\"%s\")", id, channel->name);
    else
        snprintf(dst, dst_bytes, "engine %u", id);
}

static void name_param(const zoff_comm *comm, uint32_t channel, uint32_t param, char *dst, size_t dst_bytes)
{
    const zoff_comm_channel *c = zoff_comm_channel_find(comm, channel);
    const char *name = c && c->param_name ? c->param_name(c->ctx, param) : NULL;
    if (name)
        snprintf(dst, dst_bytes, "%s", name);
    else
        snprintf(dst, dst_bytes, "parameter %u", param);
}

static void name_elements(const zoff_comm_item *item, const char *param, char *dst, size_t dst_bytes)
{
    static const char *const WHAT[] = {"of the master weights of ", "of the first moments of ", "of the second moments of ",
                                       "of "};
    snprintf(dst, dst_bytes, "%llu elements from %llu on %s%s", (unsigned long long)item->extra,
             (unsigned long long)item->index, WHAT[item->about - ZOFF_COMM_ABOUT_MASTER], param);
}

/* Whether the words of a subject go before a number. */
static bool takes_number(const char *words)
{
    const char *last = strrchr(words, ' ');
    return last && (!strcmp(last, " bucket") || !strcmp(last, " batch"));
}

void zoff_comm_names_item(const zoff_comm *comm, uint32_t channel, const zoff_comm_item *item, char *dst, size_t dst_bytes)
{
    static const char *const WORDS[ZOFF_COMM_ABOUTS] = {[ZOFF_COMM_ABOUT_CHANNEL] = "the engine to seal",
                                                        [ZOFF_COMM_ABOUT_AGREEMENT] = "values that ranks compare",
                                                        [ZOFF_COMM_ABOUT_FIRST_WEIGHTS] = "first weights of batch",
                                                        [ZOFF_COMM_ABOUT_GRADIENTS] = "gradients of bucket",
                                                        [ZOFF_COMM_ABOUT_BATCH] = "the weights of micro-batches",
                                                        [ZOFF_COMM_ABOUT_ORDER] = "the order of buckets",
                                                        [ZOFF_COMM_ABOUT_PARTICIPATION] = "the slices with a gradient",
                                                        [ZOFF_COMM_ABOUT_VOTE] = "the norm of the gradients",
                                                        [ZOFF_COMM_ABOUT_COMMIT] = "the commit",
                                                        [ZOFF_COMM_ABOUT_WEIGHTS] = "new weights of bucket",
                                                        [ZOFF_COMM_ABOUT_SUMS] = "sums of gradients of bucket",
                                                        [ZOFF_COMM_ABOUT_SECONDARY] = "secondary shards of bucket",
                                                        [ZOFF_COMM_ABOUT_HOSTS] = "the hosts of the ranks"};
    char param[112];
    dst[0] = 0;
    if (item->about == ZOFF_COMM_ABOUT_NOTHING)
        return;
    name_param(comm, channel, item->param, param, sizeof param);
    if (item->about >= ZOFF_COMM_ABOUTS)
        snprintf(dst, dst_bytes, "an item that this version of zoff does not know");
    else if (item->about == ZOFF_COMM_ABOUT_SLICE && item->extra != ZOFF_COMM_ALL)
        snprintf(dst, dst_bytes, "slice %llu of %s in bucket %llu", (unsigned long long)item->index, param,
                 (unsigned long long)item->extra);
    else if (item->about == ZOFF_COMM_ABOUT_SLICE)
        snprintf(dst, dst_bytes, "slice %llu of %s", (unsigned long long)item->index, param);
    else if (item->about == ZOFF_COMM_ABOUT_MATRICES)
        snprintf(dst, dst_bytes, "%s of round %llu of matrices", item->index % 2 ? "orthogonal directions" : "directions",
                 (unsigned long long)(item->index / 2));
    else if (item->about >= ZOFF_COMM_ABOUT_MASTER)
        name_elements(item, param, dst, dst_bytes);
    else if (item->index == ZOFF_COMM_ALL || !takes_number(WORDS[item->about]))
        snprintf(dst, dst_bytes, "%s", WORDS[item->about]);
    else
        snprintf(dst, dst_bytes, "%s %llu", WORDS[item->about], (unsigned long long)item->index);
}

void zoff_comm_names_visit(const zoff_comm *comm, const zoff_comm_visit *visit, char *dst, size_t dst_bytes)
{
    static const char *const CALLS[ZOFF_COMM_IN_CALLS] = {"a call",
                                                          "zoff_engine_seal()",
                                                          "zoff_step_begin()",
                                                          "zoff_step_wait()",
                                                          "zoff_param_fetch()",
                                                          "zoff_param_read()",
                                                          "zoff_state_read()",
                                                          "zoff_param_write()",
                                                          "zoff_state_write()",
                                                          "zoff_params_push()",
                                                          "zoff_params_pull() or zoff_param_pull()",
                                                          "zoff_grads_drop()",
                                                          "zoff_step_count_set()",
                                                          "zoff_state_flush()",
                                                          "zoff_checkpoint_save() or zoff_checkpoint_begin()",
                                                          "zoff_checkpoint_poll() or zoff_checkpoint_wait()",
                                                          "zoff_checkpoint_load()",
                                                          "zoff_persist_data()"};
    const uint32_t bare = visit->call & 0xff;
    const char *call = visit->call & ZOFF_COMM_IN_STEP    ? "zoff_step()"
                       : visit->call & ZOFF_COMM_IN_RETRY ? "zoff_step_retry()"
                                                          : CALLS[bare < ZOFF_COMM_IN_CALLS ? bare : 0];
    char item[240], whose[128] = "";
    zoff_comm_names_item(comm, visit->channel, &visit->item, item, sizeof item);
    if (visit->channel) {
        memcpy(whose, " of ", 4);
        zoff_comm_names_channel(comm, visit->channel, whose + 4, sizeof whose - 4);
    }
    snprintf(dst, dst_bytes, "%s%s%s%s", call, whose, item[0] ? " for " : "", item);
}
