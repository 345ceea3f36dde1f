/* fork.h: what a child that the program makes by fork() must not have of its parent: the locks on its files. A lock by flock()
 * belongs to the open file, which parent and child share: it would last as long as the child lives. */
#ifndef ZOFF_BASE_FORK_H
#define ZOFF_BASE_FORK_H

#include <zoff/status.h>

typedef struct zoff_fork_guard zoff_fork_guard;

/* How many forks this process is away from the first one that asked. */
unsigned zoff_base_fork_number(void);

/* From now on a child closes `fd` before fork() returns in it. */
zoff_status zoff_base_fork_guard(int fd, zoff_fork_guard **out);

/* The descriptor; -1 in a child, which has closed it. */
int zoff_base_fork_descriptor(const zoff_fork_guard *guard);

/* Close the descriptor, unless this is a child that has. NULL is allowed. */
void zoff_base_fork_close(zoff_fork_guard *guard);

#endif
