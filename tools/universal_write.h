/* SPDX-License-Identifier: Apache-2.0 */
/* universal_write.h: writes a universal checkpoint folder after the pattern of another one. */
#ifndef ZOFF_TOOL_UNIVERSAL_WRITE_H
#define ZOFF_TOOL_UNIVERSAL_WRITE_H

#include "progress.h"
#include "universal.h"

/* Gives elements of a state of parameter `index` of the pattern, in order. */
typedef bool (*universal_source)(void *ctx, size_t index, zoff_state_kind kind, size_t first, size_t count, float *dst,
                                 fault *f);

typedef struct universal_order {
    const universal_folder *like; /* pattern, whose files are copied with other elements, steps and loss scale */
    const char *out;              /* a new folder */
    int64_t step;
    const zoff_loss_scaler *scaler; /* loss scale; NULL: that of `like` */
    universal_source source;
    void *ctx;
    progress *progress;
} universal_order;

/* Write the folder. It is OUT.part until it is complete and durable. Then it gets its name, which latest_universal beside it
 * contains. After an error nothing is left. A process that is killed leaves OUT.part, which the next export names and does not
 * touch. */
bool universal_folder_write(const universal_order *order, fault *f);

#endif
