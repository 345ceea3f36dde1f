/* commit.c: states that persist are recorded after a step or a pass. With several ranks no one records before all have written.
 */
#include "engine_priv.h"

#include "try.h"

static bool is_common(const zoff_engine *e)
{
    return zoff_transfer_ranks_several(&e->transfer) && e->settings.values.persist;
}

static zoff_status poll_commit(void *ctx)
{
    zoff_engine *e = ctx;
    return zoff_comm_poll(e->comm, &e->run.talks.commit);
}

zoff_status zoff_engine_commit_step(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    if (is_common(e) && !run->talks.commit_asked) {
        const zoff_comm_call call = {
            .kind = ZOFF_COMM_BARRIER, .channel = &e->channel, .item = {.about = ZOFF_COMM_ABOUT_COMMIT}};
        ZOFF_TRY(zoff_comm_start(e->comm, &call, &run->talks.commit));
        run->talks.commit_asked = true;
    }
    if (run->talks.commit_asked)
        ZOFF_TRY(zoff_transfer_wire_wait_until(&e->transfer, poll_commit, e));
    return zoff_engine_stores_commit(e, run->t);
}

zoff_status zoff_engine_commit_pass(zoff_engine *e, zoff_status own)
{
    ZOFF_TRY(is_common(e) ? zoff_engine_consensus_success(e, own) : own);
    return zoff_engine_stores_commit(e, e->t);
}
