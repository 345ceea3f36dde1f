#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_ranks.py RANKS PROGRAM [ARGUMENT...]: starts RANKS processes of a program that join over NCCL, as torchrun would.

If there are more ranks than GPUs, ranks share them. NCCL refuses two ranks on one device of a host, so each rank is told that
it is a host of its own. Ranks then talk over sockets of the loopback interface, and never over a fabric between hosts. Exits
with 77 if the program prints "skipped: why"; all ranks must then do so."""
import os
import socket
import subprocess
import sys
import tempfile
import time

LIMIT = 600
SKIPPED = 77


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(rank, ranks, port):
    mine = dict(os.environ)
    for name in ("NCCL_COMM_ID", "TORCHELASTIC_USE_AGENT_STORE"):
        mine.pop(name, None)
    mine.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), NCCL_HOSTID=f"host-{rank}-of-{port}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_NET="Socket",
                NCCL_MNNVL_ENABLE="0")
    mine.setdefault("NCCL_DEBUG", "WARN")
    return mine


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for rank in range(ranks):
            with open(os.path.join(folder, str(rank)), "w", encoding="utf-8") as output:
                running.append(subprocess.Popen(command, env=environment(rank, ranks, port), stdout=output, stderr=subprocess.STDOUT))
        until = time.monotonic() + LIMIT
        while any(p.poll() is None for p in running) and time.monotonic() < until:
            time.sleep(0.05)
        late = [rank for rank, p in enumerate(running) if p.poll() is None]
        for rank in late:
            running[rank].kill()
        ends = [p.wait() for p in running]
        for rank in range(ranks):
            with open(os.path.join(folder, str(rank)), encoding="utf-8", errors="replace") as output:
                for line in output:
                    print(line.rstrip() if ranks == 1 or all(end == SKIPPED for end in ends) and rank == 0 else f"[{rank}] {line.rstrip()}")
    if late:
        print(f"ranks {late} of {ranks} had not ended after {LIMIT} s")
        return 1
    if all(end == SKIPPED for end in ends):
        return SKIPPED
    if any(ends):
        print(f"ranks ended with {ends}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
