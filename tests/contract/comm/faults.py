#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py MPIRUN PROGRAM [step | levels]: runs jobs of four ranks in which one misbehaves. The other ranks must report it in
time and name the operation, its number and size, and the rank. No process may be left behind. This script continues
ranks that stop themselves. With "step" the program trains, and the rank stops in some phase of a step. With
"levels" it does so on two nodes of two ranks: its node, its rail, and one that is in neither must name it."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

RANKS, DEADLINE, GRACE = 4, 1.0, 5.0
ROUNDS = 20
STEP_ROUNDS = 20 if os.environ.get("ZOFF_TEST_FULL") else 10
complaints = []


def expect(condition, words):
    if not condition:
        complaints.append(words)
        print(words, flush=True)


def lines_of(folder, rank):
    try:
        with open(os.path.join(folder, str(rank)), encoding="utf-8") as f:
            return [line.rstrip("\n").split("|") for line in f if line.endswith("\n")]
    except OSError:
        return []


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def pids(folder):
    return [int(lines[0][1]) for lines in (lines_of(folder, rank) for rank in range(RANKS)) if lines]


def job(case, limit, meanwhile=lambda folder: None):
    """Run a job of that case; return (exit status or None, seconds, {rank: lines})."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with open(os.path.join(folder, "output"), "w", encoding="utf-8") as output:
            with subprocess.Popen([sys.argv[1], "-n", str(RANKS), sys.argv[2], case, folder, str(DEADLINE)], stdout=output,
                                  stderr=subprocess.STDOUT) as p:
                status = None
                while status is None and time.monotonic() - began < limit:
                    meanwhile(folder)
                    time.sleep(0.02)
                    status = p.poll()
                took = time.monotonic() - began
                if status is None:
                    for pid in pids(folder):
                        if state_of(pid) == "T":
                            os.kill(pid, signal.SIGKILL)
                    p.terminate()
        for _ in range(100):  # mpirun waits for most processes that it kills
            left = [pid for pid in pids(folder) if state_of(pid) not in (None, "Z")]
            if not left:
                break
            time.sleep(0.05)
        expect(not left, f"{case}: processes left behind: {left}")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if status is None:
            with open(os.path.join(folder, "output"), encoding="utf-8") as f:
                expect(False, f"{case}: not over after {limit} s\n{f.read()}")
        print(f"{case}: status {status} after {took:.1f} s", flush=True)
        return status, took, {rank: lines_of(folder, rank)[1:] for rank in range(RANKS)}


def wake(folder):
    """Continue the last rank when every other rank has reported the round in which it stopped."""
    last = lines_of(folder, RANKS - 1)
    if last and state_of(last[0][1]) == "T":
        if all(len(lines_of(folder, rank)) > len(last) for rank in range(RANKS - 1)):
            os.kill(int(last[0][1]), signal.SIGCONT)


def check_mixed():
    status, _, told = job("mixed", 90, wake)
    expect(status == 0, f"mixed: status {status}")
    for rank in range(RANKS):
        expect(len(told[rank]) == ROUNDS, f"mixed: rank {rank} reported {len(told[rank])} rounds of {ROUNDS}")
        for title, code, seconds, lets_go, words in told[rank]:
            kind, fault = title.split()
            where = f"mixed: rank {rank}: {title}: {words}"
            # The rank that continues after the others gave up may find everything that a barrier or broadcast needs, and
            # succeed.
            expect(code == "-9" or code == "0" and fault == "stopped" and rank == RANKS - 1 and kind in ("barrier", "broadcast"), where)
            expect(lets_go == "1", f"{where}: memory is still in use")
            if fault == "stopped" and rank < RANKS - 1:
                # Another rank's deadline may have started, and been reported, a little earlier.
                expect(DEADLINE / 2 <= float(seconds) <= DEADLINE + GRACE, f"{where}: took {seconds} s")
                expect(re.search(rf"{kind} number 2 of the gradients \(\d+ bytes\) has waited for {DEADLINE:g} s: rank 3 of 4 did not arrive", words), where)
            elif fault == "stopped" and code != "0":
                expect("did not arrive" in words, where)
            elif fault == "other":
                expect(float(seconds) <= DEADLINE + GRACE, f"{where}: took {seconds} s")
                expect(re.search(rf"rank \d calls \S+ number 2 of the gradients \(\d+ bytes\) while rank \d calls \S+ number 2 of the gradients "
                                 r"\(\d+ bytes\): every rank", words), where)


def check_step(case):
    """Weights must match the reported outcome on every rank, and a rank that could not end its step must say why."""
    status, _, told = job(case, 120, wake)
    expect(status == 0, f"{case}: status {status}")
    seen = {}
    for rank in range(RANKS):
        expect(len(told[rank]) == STEP_ROUNDS, f"{case}: rank {rank} reported {len(told[rank])} rounds of {STEP_ROUNDS}")
        for title, code, seconds, _, words in told[rank]:
            phase, outcome, weights = title.split()
            where = f"{case}: rank {rank}: {title}: {code}: {words}"
            expect(weights == "right", where)
            if rank == RANKS - 1:
                continue
            seen.setdefault(phase, set()).add(outcome)
            # The messages are votes, flags, the last gradients or new weights. A rank that has received everything it needs
            # ends its step, even if another rank stops then.
            in_wait = phase.endswith("_message")
            expect(code == "-9" or code == "0" and outcome == "AFTER" and in_wait, where)
            expect(float(seconds) <= DEADLINE + GRACE, f"{where}: took {seconds} s")
            if code == "-9":
                expect(outcome == "BEFORE" or in_wait and outcome == "TORN", where)
                expect(re.search(r"(all_to_all|all_gather|sum|broadcast|barrier) number \d+ of the [a-z]+ of engine 1 \(\"param0\"\)( among ranks [^(]+)? \(\d+ bytes\)", words), where)
                # Where ranks share cores, another rank may have been late, too.
                expect(re.search(r"ranks? (\d, )*3 of 4 (did not arrive|stopped before it was done)", words), where)
    some = {"BEFORE", "TORN"} if case == "step" else {"BEFORE"}  # over two levels a rank sends fewer messages
    expect(some <= seen["early_message"] | seen["late_message"], f"{case}: outcomes seen: {seen}")
    print(f"outcomes on the others: { {phase: sorted(outcomes) for phase, outcomes in seen.items()} }")


def check_leave():
    status, _, told = job("leave", 20)
    expect(status == 0, f"leave: status {status}")
    for rank in range(RANKS - 1):
        lines = told[rank]
        expect(len(lines) == 1 and "rank 3 has left the group" in lines[0][4], f"leave: rank {rank}: {lines}")


def check_end(case):
    """MPI itself ends the job; the messages of the other ranks are not checked."""
    status, took, _ = job(case, 20)
    expect(status not in (0, None), f"{case}: status {status}")
    expect(took <= 10, f"{case}: took {took:.1f} s")


def main():
    global DEADLINE
    if sys.argv[3:]:
        DEADLINE = 2.0  # a step takes longer than one operation
        check_step(sys.argv[3])
        print("\n".join(complaints) or "every step reported its outcome, and the weights matched it")
        return 1 if complaints else 0
    check_mixed()
    check_leave()
    check_end("exit")
    check_end("die")
    print("\n".join(complaints) or "every fault was reported in time, and no process was left behind")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
