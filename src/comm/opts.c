/* opts.c: reads zoff_comm_opts. The program's struct may be shorter or longer, if it was compiled with another version of zoff.
 */
#include "comm.h"

#include "bits.h"
#include "structs.h"
#include "try.h"

#include <math.h>
#include <string.h>

zoff_status zoff_comm_opts_take(const zoff_comm_opts *opts, const char *call, zoff_comm_opts *out)
{
    *out = (zoff_comm_opts)ZOFF_COMM_OPTS_INIT;
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_comm_opts", "ZOFF_COMM_OPTS_INIT", opts, out, sizeof *out));
    ZOFF_FAIL_IF(isnan(out->timeout_seconds), ZOFF_ERR_INVALID, "%s: timeout_seconds is not a number", call);
    out->timeout_seconds = out->timeout_seconds == 0 ? ZOFF_COMM_TIMEOUT_SECONDS : out->timeout_seconds;
    return ZOFF_OK;
}
