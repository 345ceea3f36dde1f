#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""two_hosts.py MPIRUN PROGRAM: runs the parity program with two ranks on each of two hosts, and with four on each of four.
The hosts are network namespaces of this machine, joined by cables to a switch, and messages use TCP. Runs at full rate and
with a limited rate, and counts what weights in groups of two ranks, and gradients over two levels, send over the cables."""
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
CABLE = "10.77.0"
AGENT = """#!/bin/sh
# What mpirun takes for ssh: AGENT [options] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
space=SPACE$((${1##*.} - 1))
shift
exec ip netns exec $space unshare --uts --ipc sh -c "hostname $space; exec /bin/sh -c '$*'"
"""


def run(*command, check=True, **more):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def skip(words):
    print("skipped: " + words)
    sys.exit(SKIPPED)


def lay_cables(spaces, switch):
    for space in spaces + [switch]:
        run("ip", "netns", "add", space)
    run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
    run("ip", "-n", switch, "link", "set", "switch", "up")
    for i, space in enumerate(spaces):
        run("ip", "link", "add", f"v{i}", "netns", space, "type", "veth", "peer", "name", f"p{i}", "netns", switch)
        run("ip", "-n", switch, "link", "set", f"p{i}", "master", "switch", "up")
        run("ip", "-n", space, "addr", "add", f"{CABLE}.{i + 1}/24", "dev", f"v{i}")
        for link in ("lo", f"v{i}"):
            run("ip", "-n", space, "link", "set", link, "up")


def crossed(space):
    """Return the number of bytes sent over the cable."""
    return int(run("ip", "netns", "exec", space, "cat", "/sys/class/net/v0/statistics/tx_bytes").stdout)


def take(mpirun, program, spaces, agent, filter_, tells="", hosts=2):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", ZOFF_LOG_LEVEL="warn",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_plm_rsh_agent=agent, OMPI_MCA_plm_rsh_no_tree_spawn="1",
                       OMPI_MCA_pml="ob1", OMPI_MCA_btl="tcp,vader,self", OMPI_MCA_btl_tcp_if_include=f"{CABLE}.0/24",
                       OMPI_MCA_oob_tcp_if_include=f"{CABLE}.0/24", ZOFF_TEST_CABLE="v")
    places = ",".join(f"{CABLE}.{i + 1}:{hosts}" for i in range(hosts))
    ranks = hosts * hosts
    command = f"hostname {spaces[0]}; exec '{mpirun}' -host {places} -n {ranks} -x ZOFF_TEST_CABLE '{program}' '--gtest_filter={filter_}'"
    before = crossed(spaces[0])
    done = run("timeout", "--kill-after=10", "300", "ip", "netns", "exec", spaces[0], "unshare", "--uts", "sh", "-c", command,
               check=False, env=environment)
    bytes_ = crossed(spaces[0]) - before
    passed = done.stdout.count("[  PASSED  ]")
    if done.returncode != 0 or passed != ranks or bytes_ < 1_000_000:
        print(done.stdout[-6000:])
        print(f"status {done.returncode}, {passed} of {ranks} ranks passed, {bytes_} bytes sent over the cable")
        return False
    print(f"{filter_}: all {ranks} ranks passed, {bytes_} bytes sent over the cable")
    for line in done.stdout.splitlines() if tells else []:
        if tells in line:
            print(line)
    return True


def main(mpirun, program):
    missing = [name for name in ("ip", "tc", "unshare") if not shutil.which(name)]
    if missing:
        skip("not installed: " + " ".join(missing) + " (iproute2, util-linux)")
    base = f"zoff{os.getpid()}-"
    spaces, switch = [base + str(i) for i in range(4)], base + "s"
    folder = tempfile.mkdtemp(prefix="zoff-hosts-")
    agent = os.path.join(folder, "agent")
    with open(agent, "w", encoding="utf-8") as f:
        f.write(AGENT.replace("SPACE", base))
    os.chmod(agent, 0o755)
    try:
        try:
            lay_cables(spaces, switch)
        except subprocess.CalledProcessError as e:
            skip("network namespaces are not permitted here: " + e.stdout.strip())
        ok = take(mpirun, program, spaces, agent, "*stage?_*_bf16_world4_accumulate3*")
        ok = take(mpirun, program, spaces, agent, "RanksHosts.*", "over the cable, both ways") and ok
        try:
            for i, space in enumerate(spaces):
                run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", f"v{i}", "root", "tbf", "rate", "200mbit", "burst",
                    "64kb", "latency", "50ms")
        except subprocess.CalledProcessError as e:
            print("not limited: " + e.stdout.strip())
        ok = take(mpirun, program, spaces, agent, "*stage2_*_fp16_world4_accumulate1*:*world4*weightsInFiles") and ok
        ok = take(mpirun, program, spaces, agent, "RanksHosts.*", "of flat", hosts=4) and ok
    finally:
        for space in spaces + [switch]:
            run("ip", "netns", "del", space, check=False)
        shutil.rmtree(folder)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
