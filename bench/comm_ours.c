/* comm_ours.c: zoff's operations over ranks as the engine calls them. They are not in the public headers, so this file uses
 * internal ones; no other file of bench/comm does. */
#include "comm_bench.h"

#include "comm.h"
#include "cpu_adam.h"

static int run(zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_work work = {0};
    return bench_told(zoff_comm_start(comm, call, &work)) == 0 ? bench_told(zoff_comm_wait(comm, &work)) : -1;
}

int comm_ours_gather(zoff_comm *comm, const comm_data *data)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_GATHER, .stream = ZOFF_COMM_WEIGHTS, .in = data->pieces, .out = data->whole};
    call.receive_bytes = data->bytes;
    return run(comm, &call);
}

/* Exchange 16-bit pieces and add them in fp32, in rank order. */
int comm_ours_scatter(zoff_comm *comm, const comm_data *data)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE, .stream = ZOFF_COMM_REDUCE, .in = data->whole, .out = data->pieces};
    call.send_bytes = call.receive_bytes = data->bytes;
    if (run(comm, &call) != 0)
        return -1;
    for (unsigned rank = 0; rank < zoff_comm_size(comm); rank++) {
        const zoff_accumulate_piece piece = {.count = data->share,
                                             .sum = data->sums,
                                             .grad = data->pieces + rank * data->share,
                                             .dtype = ZOFF_BF16,
                                             .first = rank == 0};
        zoff_adam_accumulate_run(1, &piece, 1, NULL, NULL);
    }
    return 0;
}
