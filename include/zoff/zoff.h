/* zoff.h: everything. */
#ifndef ZOFF_H
#define ZOFF_H

#include <zoff/accel.h>
#include <zoff/adam.h>
#include <zoff/aio.h>
#include <zoff/comm.h>
#include <zoff/config.h>
#include <zoff/engine.h>
#include <zoff/plugin.h>
#include <zoff/status.h>
#include <zoff/types.h>

#endif
