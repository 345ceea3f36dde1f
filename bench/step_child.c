/* step_child.c: programs that this one runs: tools of the system, and itself for what must not be measured in a process that
 * has done other things before. */
#include "step_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The parent waits for signals in a thread and has them blocked; a child takes them as usual. */
static int spawn(char *const argv[], int output, bool errors_too, pid_t *out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (errors_too)
        posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawnp(out, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int step_child_run(char *const argv[], bool errors_too, char *line, size_t line_bytes)
{
    char rest[256];
    int ends[2], status = 0;
    pid_t child;
    line[0] = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(line, line_bytes, "%s: %s", argv[0], strerror(errno));
        return -1;
    }
    const int error = spawn(argv, ends[1], errors_too, &child);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    if (error || !from) {
        snprintf(line, line_bytes, "%s: %s", argv[0], strerror(error ? error : errno));
        if (from)
            fclose(from);
        return -1;
    }
    if (fgets(line, (int)line_bytes, from))
        line[strcspn(line, "\n")] = 0;
    while (fgets(rest, sizeof rest, from)) {
    }
    fclose(from);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (!line[0])
        snprintf(line, line_bytes, "%s ended with status 0x%x", argv[0], (unsigned)status);
    return -1;
}
