#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_nvme.py: runs tests on a machine with an NVMe drive and two NUMA nodes, emulated by qemu.

run_nvme.py WORK_DIR NAME=PROGRAM...

Two guests boot a Debian kernel in qemu. Their file system contains only the programs, the libraries they load, mkfs.ext4 and
busybox:

  whole   an ext4 on a working drive. Tests queues, stores and engines with O_DIRECT over NVMe, pages and threads on two nodes, and
          states that outlive a killed process.
  broken  a drive with a bad sector that is switched on and off; at the end the drive is removed. Tests steps that fail and are
          finished later.

WORK_DIR keeps the logs of the last run, but not the drives. The folder above it keeps the kernel image, which is extracted once
from a Debian package and never installed. Exits with 77 and a reason if a tool or the kernel image is missing.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))
from guest import INIT_HEAD, SAYS, Archive, check_tools, fail, kernel_image

LIMIT_SECONDS = 540  # below ctest's own limit, so that the log is printed
GUEST_MIB = 2048
MKFS = "/sbin/mkfs.ext4"
QEMU = "qemu-system-x86_64"
TOOLS = ((QEMU, "qemu-system-x86"), (MKFS, "e2fsprogs"))
KERNEL_OPTIONS = "console=ttyS0 panic=-1 loglevel=3 mitigations=off random.trust_cpu=on"

MIB = 1 << 20
DRIVE_BYTES = 2048 * MIB  # a sparse file
# The drive that breaks is small, so that a state file covers its middle. Its end is not part of the file system.
BROKEN_BYTES = 10 * MIB
BROKEN_EXT4 = "-O ^has_journal -m 0 -b 4096"  # one block group, so that no file is split by the tables of a second group
BROKEN_KIB = 8 * 1024
BAD_BYTE = 5 * MIB
SECTOR = 512

# The tests of each guest: (program, Google Test filter, least number of tests). None of them may be skipped. Tests that do not
# depend on a drive are left out, and so are cells of the parity matrix that differ from these only in arithmetic. numa_places
# runs first, while each node has free memory.
WHOLE = (
    ("numa_places", "*", 5),
    ("nvme_drive", "*Drive.*", 4),
    ("aio_backend_contract", "*_direct-*MoreThan4GiB*:*1GiB*/threads*:*1GiB*/posix*", 49),
    ("offload_contract", "*-Placement.*:*/host:*/sample:*/unverified:*AFolderInMemory*:*BothHave/1:*AnythingMayFail*", 130),
    ("e2e_parity", "*/nvme_*adamw*-*fp16_grad_fp16*", 16),
    ("e2e_persist", "Persist.*:ReadAhead.*", 9),
    ("e2e_kill", "*/power_two_paths_residents", 1),
)
BROKEN = (
    ("nvme_drive", "*Media.A*", 6),
    ("nvme_drive", "*Media.TheDriveIsPulled/io_uring", 1),
)

GUEST_INIT = """\
say "booted after $(cut -d ' ' -f 1 /proc/uptime) s with $(ls -d /sys/devices/system/node/node* | wc -l) nodes, $(nproc) CPUs"
ulimit -l unlimited
mkdir /drive
mkfs.ext4 -q {mkfs} && mount -t ext4 -o noinit_itable /dev/nvme0n1 /drive && say "drive $(cat /sys/block/nvme0n1/device/model)"
echo 0 > /sys/fs/ext4/nvme0n1/extent_max_zeroout_kb # like noinit_itable: no zeroes but those that a test asks for
export GTEST_COLOR=no ZOFF_TEST_DIR=/drive ZOFF_TEST_DRIVE=/dev/nvme0n1 ZOFF_TEST_BAD_BYTE={bad_byte}
cd /tmp
run() {{ # number, program, filter
    timeout {limit} /programs/$2 --gtest_filter="$3"
    say "ran $1 code $? at $(cut -d ' ' -f 1 /proc/uptime)"
}}
{runs}
say end
poweroff -f
"""
PROGRAM_SECONDS = 200


def initramfs(path, programs, tests, mkfs):
    """Build the guest's file system, with an init that makes an ext4 on the drive and runs the tests on it."""
    archive = Archive()
    archive.add_program(MKFS, "bin/mkfs.ext4")
    for name in {test[0] for test in tests}:
        archive.add_program(programs[name], f"programs/{name}")
    # e2e_kill starts this program by its path in the build folder.
    archive.add_program(programs["kill_victim"], programs["kill_victim"])
    runs = "\n".join(f"run {number} {name} '{pattern}'" for number, (name, pattern, _) in enumerate(tests))
    archive.add("init", (INIT_HEAD + GUEST_INIT.format(mkfs=mkfs, bad_byte=BAD_BYTE, limit=PROGRAM_SECONDS, runs=runs)).encode())
    with open(path, "wb") as file:
        file.write(archive.content())


def breaking(image):
    """A drive whose sector is in turn good, not writable, and not readable. Each command to write zeroes moves on to the
    next condition."""
    def fails(state, iotype):
        return {"event": "pwritev_zero", "state": state, "sector": BAD_BYTE // SECTOR, "iotype": iotype, "errno": 5, "once": False}
    # A rule that applies replaces the previous one. So the last condition needs a rule as well: for a request type that is
    # never used.
    return {"driver": "blkdebug", "node-name": "drive", "image": image,
            "set-state": [{"event": "pwritev_zero", "state": state, "new_state": state % 3 + 1} for state in (1, 2, 3)],
            "inject-error": [fails(1, "write"), fails(2, "read"), fails(3, "discard")]}


def boot(work, name, kernel, image_bytes, drive, limit):
    """Run qemu until the guest powers off. Return its serial output and the reason why qemu stopped."""
    image = os.path.join(work, f"{name}.img")
    with open(image, "wb") as file:
        file.truncate(image_bytes)
    blockdev = drive({"driver": "file", "filename": image, "node-name": "file", "cache": {"no-flush": True}})
    half = GUEST_MIB // 2
    command = [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "4,sockets=2,cores=2", "-m", f"{GUEST_MIB}M",
               "-object", f"memory-backend-ram,id=m0,size={half}M", "-object", f"memory-backend-ram,id=m1,size={half}M",
               "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1", "-numa", "dist,src=0,dst=1,val=21",
               "-blockdev", json.dumps(blockdev), "-device", f"nvme,serial=zoff,drive={blockdev['node-name']}",
               "-kernel", kernel, "-initrd", os.path.join(work, f"{name}.cpio"), "-append", KERNEL_OPTIONS,
               "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"]
    started = time.monotonic()
    # The serial line is a pipe that must always be read: the guest blocks while qemu writes to it.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as qemu:
        try:
            out, words = qemu.communicate(timeout=limit)
            # Errors that were injected on purpose are left out.
            lines = [line for line in words.decode(errors="replace").splitlines() if "aio failed" not in line]
            why = " ".join([f"qemu ended with {qemu.returncode}", *lines])
        except subprocess.TimeoutExpired:
            qemu.kill()
            out, _ = qemu.communicate()
            why = f"the guest did not finish within {limit:.0f} s"
        finally:
            os.remove(image)
    with open(os.path.join(work, f"{name}.txt"), "wb") as file:
        file.write(out)
    return out.decode(errors="replace").replace("\r", ""), f"{why}; {time.monotonic() - started:.1f} s"


def judge(name, log, why, tests):
    """Return the faults of a boot as texts; an empty list if every program did what it should."""
    if "guest: drive QEMU NVMe Ctrl" not in log:
        return [f"{name}: the guest has not found its drive: {why}"]
    wrong, begin = [], 0
    for number, (program, pattern, wanted) in enumerate(tests):
        ended = re.compile(rf"^{SAYS}ran {number} code (\d+) at (\S+)$", re.MULTILINE).search(log, begin)
        if not ended:
            return [*wrong, f"{name}: {program} {pattern} did not end: {why}"]
        part, begin = log[begin:ended.start()], ended.end()
        passed = sum(int(count) for count in re.findall(r"^\[  PASSED  \] (\d+) tests?\.", part, re.MULTILINE))
        asked = sum(int(count) for count in re.findall(r"^\[==========\] Running (\d+) tests?", part, re.MULTILINE))
        print(f"{name}: {program} {pattern}: {passed} tests passed, at {ended.group(2)} s of the guest's time")
        if ended.group(1) != "0":
            wrong.append(f"{name}: {program} {pattern} ended with {ended.group(1)}")
        elif passed < asked or passed < wanted:
            wrong.append(f"{name}: {program} {pattern}: {passed} of {max(asked, wanted)} tests passed")
    return wrong


def main():
    work = os.path.abspath(sys.argv[1])
    programs = dict(argument.split("=", 1) for argument in sys.argv[2:])
    started = time.monotonic()
    check_tools(TOOLS, "on Debian")
    os.makedirs(work, exist_ok=True)
    kernel = kernel_image(os.path.dirname(work))
    boots = (("whole", WHOLE, "/dev/nvme0n1", DRIVE_BYTES, lambda file: file),
             ("broken", BROKEN, f"{BROKEN_EXT4} /dev/nvme0n1 {BROKEN_KIB}k", BROKEN_BYTES, breaking))
    for name, tests, mkfs, _, _ in boots:
        initramfs(os.path.join(work, f"{name}.cpio"), programs, tests, mkfs)
    with concurrent.futures.ThreadPoolExecutor(len(boots)) as pool:
        limit = LIMIT_SECONDS - (time.monotonic() - started)
        ended = list(pool.map(lambda each: boot(work, each[0], kernel, each[3], each[4], limit), boots))
    wrong = []
    for (name, tests, *_), (log, why) in zip(boots, ended):
        print(f"{name}: {os.path.basename(kernel)} in qemu: {why}", flush=True)
        found = judge(name, log, why, tests)
        if found:
            print(log, flush=True)
        wrong += found
    if wrong:
        fail("\nFAILED: ".join(wrong))
    print(f"PASSED in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
