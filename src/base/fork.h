/* SPDX-License-Identifier: Apache-2.0 */
/* fork.h: keep locks on files out of the children that the program makes by fork(). A lock by flock() belongs to the open file,
 * which parent and child share. So it would last as long as the child lives. */
#ifndef ZOFF_BASE_FORK_H
#define ZOFF_BASE_FORK_H

#include <zoff/status.h>

typedef struct zoff_fork_guard zoff_fork_guard;

/* The number of forks between this process and the first one that called this. */
unsigned zoff_base_fork_number(void);

/* From now on a child closes `fd` before fork() returns in the child. */
zoff_status zoff_base_fork_guard(int fd, zoff_fork_guard **out);

/* The descriptor; -1 in a child, where it is closed. */
int zoff_base_fork_descriptor(const zoff_fork_guard *guard);

/* Close the descriptor, unless this is a child, which has closed it. Accepts NULL. */
void zoff_base_fork_close(zoff_fork_guard *guard);

#endif
