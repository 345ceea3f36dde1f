/* transport.c: opens a communicator over the transport of the program or of a plug-in. */
#include "comm.h"

#include "bits.h"
#include "structs.h"
#include "try.h"

#include <string.h>

zoff_status zoff_comm_open_transport(const zoff_comm_opts *opts, const zoff_comm_transport *transport, zoff_comm **out)
{
    zoff_comm_opts known;
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    ZOFF_FAIL_IF(!out || !transport, ZOFF_ERR_INVALID, "zoff_comm_open_transport: transport and out must not be NULL");
    ZOFF_TRY(zoff_comm_opts_take(opts, "zoff_comm_open_transport", &known));
    ZOFF_TRY(zoff_base_structs_read("zoff_comm_transport", "ZOFF_COMM_TRANSPORT_INIT", transport, &t, sizeof t));
    ZOFF_FAIL_IF(t.failure, ZOFF_ERR_UNSUPPORTED, "%s", t.failure);
    ZOFF_FAIL_IF(!t.name || !t.send || !t.receive || !t.test || !t.cancel || !t.error || !t.close, ZOFF_ERR_INVALID,
                 "zoff_comm_open_transport: the transport lacks its name or one of its functions");
    ZOFF_FAIL_IF(t.rank >= t.size, ZOFF_ERR_INVALID, "zoff_comm_open_transport: rank %u of %u", t.rank, t.size);
    ZOFF_TRY(zoff_comm_world_check(t.name, t.world_size));
    return zoff_comm_messages_open(&known, &t, out);
}
