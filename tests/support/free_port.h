/* SPDX-License-Identifier: Apache-2.0 */
// free_port.h: a port at which the ranks of a test meet.
#ifndef ZOFF_FREE_PORT_H
#define ZOFF_FREE_PORT_H

#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

namespace zoff_test
{
// Whether somebody can listen at a port, and be reached there.
inline bool is_free(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool works = bind(fd, (const sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0 &&
                       connect(other, (const sockaddr *)&at, sizeof at) == 0;
    close(other);
    close(fd);
    return works;
}

// A port of this host that is free, as the next one is, at which ranks of UCX meet. It is below those that the kernel gives to
// connections. 0: there is none, or the loopback network is down.
inline int free_port()
{
    std::random_device source;
    for (int tries = 0; tries < 100; tries++) {
        const int port = 10000 + (int)(source() % 10000) * 2;
        if (is_free(port) && is_free(port + 1))
            return port;
    }
    return 0;
}
} // namespace zoff_test

#endif
