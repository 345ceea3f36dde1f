/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: the ranks that make a slice whole: all ranks, or those of a group (secondary.c). Each member has one part, or, in a
 * group, the parts of several consecutive ranks. */
#include "lending.h"

size_t zoff_lending_group_share(const zoff_lending *l, const zoff_plan *plan, const zoff_plan_piece *run, unsigned rank,
                                size_t *out_first)
{
    const unsigned parts = l->group.parts, from = (rank - l->group.first) * parts;
    size_t count = zoff_zero_plan_share(plan, run, from, out_first);
    for (unsigned i = 1; i < parts; i++) {
        size_t first;
        const size_t more = zoff_zero_plan_share(plan, run, from + i, &first);
        if (more && !count)
            *out_first = first;
        count += more;
    }
    return count;
}
