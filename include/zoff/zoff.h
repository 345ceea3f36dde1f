/* SPDX-License-Identifier: Apache-2.0 */
/* zoff.h: the whole public API but zoff/mpi.h, which needs an MPI, and zoff/plugin.h, which is for plug-ins. */
#ifndef ZOFF_H
#define ZOFF_H

#include <zoff/accel.h>
#include <zoff/aio.h>
#include <zoff/checkpoint.h>
#include <zoff/comm.h>
#include <zoff/config.h>
#include <zoff/engine.h>
#include <zoff/optimizer.h>
#include <zoff/state.h>
#include <zoff/status.h>
#include <zoff/step.h>
#include <zoff/types.h>

#endif
