/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.c: implements footprint.h. */
#include "footprint.h"

int footprint_look(const zoff_engine *engine, const zoff_accel *accel, footprint *f)
{
    zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
    zoff_accel_info device = ZOFF_ACCEL_INFO_INIT;
    if (zoff_engine_plan(engine, &plan) < 0 || zoff_accel_get_info(accel, &device) < 0)
        return -1;
    if (f->most == 0)
        f->sealed = device.allocated_bytes;
    f->planned = plan.device_bytes;
    f->most = device.allocated_bytes > f->most ? device.allocated_bytes : f->most;
    return 0;
}
