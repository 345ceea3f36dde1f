/* rooms.c: connects other rooms to the fields and functions of the engine that they use. Those rooms do not know the engine. */
#include "engine_priv.h"

/* The poller of the open step, and of gradients. Another rank may send its weights only after it has memory for gradients, and
 * it gets that memory only after this rank has received some. Or it waits in the step for this one. */
static zoff_status pump(void *ctx)
{
    zoff_engine *e = ctx;
    (void)zoff_transfer_reduce_scatter_go_on(&e->transfer);
    return zoff_engine_overlap_go_on(e);
}

void zoff_engine_rooms_connect(zoff_engine *e)
{
    e->model.values = &e->settings.values;
    e->io.step = (zoff_poller){.pump = pump, .ctx = e};
    e->lending = (zoff_lending){.model = &e->model,
                                .plan = &e->plan,
                                .values = &e->settings.values.weights,
                                .channel = &e->channel,
                                .progress = &e->progress,
                                .pollers = {.stored = &e->io.weights,
                                            .reads = &e->io.weights,
                                            .ranks = &e->transfer.pollers.ranks,
                                            .device = &e->transfer.pollers.device,
                                            .step = &e->io.step}};
    e->transfer = (zoff_transfer){.model = &e->model,
                                  .plan = &e->plan,
                                  .lending = &e->lending,
                                  .values = &e->settings.values,
                                  .channel = &e->channel,
                                  .progress = &e->progress,
                                  .info = &e->run.info};
    e->agreement = (zoff_agreement){.model = &e->model, .plan = &e->plan, .channel = &e->channel, .transfer = &e->transfer};
}

void zoff_engine_rooms_attach(zoff_engine *e)
{
    e->model.in_place = zoff_accel_in_place(e->accel);
    e->lending.comm = e->transfer.comm = e->agreement.comm = e->comm;
    e->transfer.accel = e->lending.accel = e->accel;
}

zoff_engine_view zoff_engine_rooms_view(zoff_engine *e)
{
    return (zoff_engine_view){.model = &e->model,
                              .plan = &e->plan,
                              .values = &e->settings.values,
                              .agreement = &e->agreement,
                              .transfer = &e->transfer,
                              .lending = &e->lending,
                              .store = e->store,
                              .comm = e->comm,
                              .progress = &e->progress,
                              .guard = &e->io.guard,
                              .save_wait_seconds = &e->run.save_wait_seconds,
                              .configuration = e->settings.words.configuration,
                              .t = e->t,
                              .threads = e->settings.threads,
                              .tier = e->settings.tier};
}
