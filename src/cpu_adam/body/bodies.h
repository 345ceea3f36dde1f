/* SPDX-License-Identifier: Apache-2.0 */
/* bodies.h: every kernel, over the vocabulary that was included before. */
#ifndef ZOFF_BODIES_H
#define ZOFF_BODIES_H

#include "dither.h"
#include "q8.h"

#include "body_types.h"

#include "body_rules.h"

#include "body_lanes.h"

#include "body_accumulate.h"
#include "body_cast.h"

#include "body_bins.h"

#include "body_bins_span.h"

#include "body_norm.h"
#include "body_product.h"
#include "body_q8.h"
#include "body_span.h"

#include "body_update.h"

#include "body_apart.h"

#endif
