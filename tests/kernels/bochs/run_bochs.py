#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_bochs.py: runs kernels as machine code on an emulated CPU: AVX-512 in the emulator bochs.

run_bochs.py WORK_DIR PROGRAM...

Each PROGRAM is linked statically and is called as PROGRAM ISA FILE. It writes to FILE the results of all kernels of ISA on
inputs of its own choice, and exits with 0. First it runs on this machine with the scalar kernels. Then a Debian kernel boots in
bochs; its file system holds only the programs and busybox. There the programs run with AVX-512, and also with AVX2 if this CPU
lacks it. The test passes if every file of the guest has the same checksum as the scalar results of this CPU. If one differs, the
guest also computes the scalar results and shows the first bytes that differ.

WORK_DIR keeps the logs of the last run. The folder above it keeps the kernel image, which is extracted once from a Debian
package and never installed.

Exits with 77 and a reason if this CPU itself has AVX-512 (ZOFF_TEST_BOCHS=1 runs the test anyway), or if a tool or the kernel
image is missing.
"""
import gzip
import hashlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "support"))
from guest import INIT_HEAD, SAYS, Archive, check_tools, fail, kernel_image, read_text, said, skip

REFERENCE = "scalar"
# CPU features that zoff requires before it uses the kernels of an ISA, by the names of Linux.
ISAS = {"avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
LIMIT_SECONDS = 480  # below ctest's own limit, so that the log is printed
GUEST_MIB = 512

# A file or command, and the package of Debian and Ubuntu that contains it.
ISOLINUX = "/usr/lib/ISOLINUX/isolinux.bin"
LDLINUX = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
BIOS = "/usr/share/bochs/BIOS-bochs-latest"
VGABIOS = "/usr/share/bochs/VGABIOS-lgpl-latest"
TOOLS = (("bochs", "bochs"), (BIOS, "bochsbios"), (VGABIOS, "vgabios"), (ISOLINUX, "isolinux"),
         (LDLINUX, "syslinux-common"), ("xorriso", "xorriso"))

# noxsaves and clearcpuid=321,323 switch off XSAVEC and XSAVES. Otherwise Linux finds bochs' compacted XSAVE area too small and
# disables AVX completely. The other options save time.
KERNEL_OPTIONS = ("console=ttyS0 panic=-1 loglevel=4 noxsaves clearcpuid=321,323 mitigations=off nokaslr tsc=reliable lpj=1000000 "
                  "random.trust_cpu=on")

# The display is a text screen on a pseudo-terminal. No other display of bochs works without X or a network port.
BOCHSRC = """\
plugin_ctrl: biosdev=1, extfpuirq=0, speaker=0, sb16=0, es1370=0, usb_uhci=0
config_interface: textconfig
display_library: term
cpu: model=corei7_skylake_x, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest={mib}, host={mib}
romimage: file={bios}, options=fastboot
vgaromimage: file={vgabios}
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path="boot.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial.txt
log: bochs.log
panic: action=report
error: action=report
info: action=ignore
debug: action=ignore
clock: sync=none, time0=local, rtc_sync=0
private_colormap: enabled=0
sound: driver=dummy
"""

GUEST_INIT = """\
say "system $(cat /sys/class/dmi/id/bios_vendor)"
say "cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo)"
say "flags $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo)"
say "booted after $(cut -d ' ' -f 1 /proc/uptime) s of its own time"
mkdir /results
cd /results
run() {{ # program, isa, checksum of the reference
    /programs/$1 $2 $2
    code=$?
    say "ran $1 $2 code $code"
    [ $code = 0 ] || return
    sum=$(md5sum < $2 | cut -d ' ' -f 1)
    say "sum $1 $2 $sum"
    if [ $sum != $3 ] && /programs/$1 {reference} {reference}; then
        echo "the first bytes that differ (place, {reference} in the guest, $2 in the guest):"
        cmp -l {reference} $2 | head -n 10
    fi
    rm -f $2 {reference}
}}
{runs}
say end
sleep 10 # the serial line takes its time
poweroff -f
"""


def cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.split(":")[1].split())
    return set()


def check_bochs():
    check_tools(TOOLS, "on Debian where the CPU has no AVX-512")
    words = subprocess.run(["bochs", "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    version = re.search(r"Bochs x86 Emulator (\S+)", words.stdout)
    if version and version.group(1) == "3.0":
        skip("bochs 3.0 does not boot Debian's kernels; 2.7 does")


def make_iso(work, kernel, programs, runs):
    """Build boot.iso in WORK_DIR: a boot loader, a kernel, and an initramfs with busybox, the programs and an init that runs
    them."""
    archive = Archive()
    for program in programs:
        archive.add_file(program, "programs/" + os.path.basename(program))
    calls = "\n".join(f"run {name} {isa} {checksum}" for name, isa, checksum in runs)
    init = INIT_HEAD + GUEST_INIT.format(reference=REFERENCE, runs=calls)
    archive.add("init", init.encode())

    tree = os.path.join(work, "iso")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    for path, name in ((ISOLINUX, "isolinux.bin"), (LDLINUX, "ldlinux.c32"), (kernel, "vmlinuz")):
        shutil.copyfile(path, os.path.join(tree, name))
    with open(os.path.join(tree, "initrd.gz"), "wb") as file:
        file.write(gzip.compress(archive.content(), 1))
    with open(os.path.join(tree, "isolinux.cfg"), "w", encoding="utf-8") as file:
        file.write(f"DEFAULT guest\nPROMPT 0\nTIMEOUT 1\nLABEL guest\n KERNEL /vmlinuz\n INITRD /initrd.gz\n APPEND {KERNEL_OPTIONS}\n")
    done = subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", os.path.join(work, "boot.iso"), "-b", "isolinux.bin",
                           "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", tree],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        fail(f"xorriso could not write boot.iso: {said(done)}")


def boot(work, limit):
    """Run bochs in WORK_DIR until the guest prints "end". Return its serial output and the reason why bochs stopped."""
    with open(os.path.join(work, "bochsrc"), "w", encoding="utf-8") as file:
        file.write(BOCHSRC.format(mib=GUEST_MIB, bios=BIOS, vgabios=VGABIOS))
    with open(os.path.join(work, "continue"), "w", encoding="utf-8") as file:
        file.write("c\n")  # Debian's bochs has a debugger, which waits for a command before the first instruction
    serial = os.path.join(work, "serial.txt")
    for old in (serial, os.path.join(work, "boot.iso.lock")):
        if os.path.exists(old):
            os.remove(old)
    # bochs leads the session of its terminal: if this script is killed, the terminal closes and bochs ends.
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.chdir(work)
            os.environ["TERM"] = "vt100"
            os.execvp("bochs", ["bochs", "-q", "-f", "bochsrc", "-unlock", "-rc", "continue"])
        finally:
            os._exit(127)
    why, started, shown = None, time.monotonic(), b""
    while why is None:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                shown = (shown + os.read(terminal, 65536))[-100000:]  # read the output, or bochs would block
            except OSError:
                why = "bochs ended by itself"
        log = read_text(serial)
        if f"{SAYS}end\n" in log:
            why = "the guest has finished"
        elif "Kernel panic" in log:
            why = "the kernel of the guest gave up"
        elif time.monotonic() - started > limit:
            why = f"the guest did not finish within {limit:.0f} s"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    with open(os.path.join(work, "screen.txt"), "wb") as file:
        file.write(shown)
    return read_text(serial), why


def reference(work, program):
    """Return the checksum of the results of the scalar kernels on this CPU."""
    result = os.path.join(work, "reference")
    if subprocess.run([program, REFERENCE, result], check=False).returncode:
        fail(f"{program} {REFERENCE} failed on this machine")
    with open(result, "rb") as file:
        checksum = hashlib.md5(file.read()).hexdigest()
    print(f"{REFERENCE} kernels on this CPU: {os.path.getsize(result)} bytes, md5 {checksum}", flush=True)
    os.remove(result)
    return checksum


def judge(lines, why, work, runs):
    """End the test with an error unless the guest printed what it should."""
    words = dict(line.split(" ", 1) for line in lines if " " in line)
    if "bochs" not in words.get("system", "bochs").lower():
        fail(f"the guest did not run in bochs but on {words['system']!r}")
    for name, isa, checksum in runs:
        lacking = ISAS[isa] - set(words.get("flags", " ".join(ISAS[isa])).split())
        if lacking:
            fail(f"the CPU of the guest lacks {' '.join(sorted(lacking))}")
        sums = [line.split()[-1] for line in lines if line.startswith(f"sum {name} {isa} ")]
        if sums and sums != [checksum]:
            fail(f"{name}: the {isa} kernels in the guest gave other bits than the {REFERENCE} kernels on this CPU")
        if not sums and f"ran {name} {isa}" in " ".join(lines):
            fail(f"{name} {isa} did not end well in the guest")
        if not sums:
            fail(f"{name} {isa} did not run to its end in the guest: {why}; see the messages of bochs in bochs.log and screen.txt of {work}")


def main():
    work, programs = os.path.abspath(sys.argv[1]), [os.path.abspath(path) for path in sys.argv[2:]]
    started = time.monotonic()
    flags = cpu_flags()
    if ISAS["avx512"] <= flags and os.environ.get("ZOFF_TEST_BOCHS") != "1":
        skip("this CPU runs AVX-512 itself")
    if not programs:
        skip("this compiler cannot link a program with OpenMP statically")
    check_bochs()
    os.makedirs(work, exist_ok=True)
    kernel = kernel_image(os.path.dirname(work))
    isas = [isa for isa in ISAS if isa == "avx512" or not ISAS[isa] <= flags]
    checksums = [(os.path.basename(program), reference(work, program)) for program in programs]
    runs = [(name, isa, checksum) for name, checksum in checksums for isa in isas]
    make_iso(work, kernel, programs, runs)

    prepared = time.monotonic()
    log, why = boot(work, LIMIT_SECONDS - (prepared - started))
    print(f"{os.path.basename(kernel)} in bochs: {why}; {prepared - started:.1f} s to prepare, {time.monotonic() - prepared:.1f} s to run")
    print(log, flush=True)
    judge([line[len(SAYS):] for line in log.splitlines() if line.startswith(SAYS)], why, work, runs)
    print(f"PASSED: {', '.join(isas)} in bochs: the same bits as {REFERENCE} on this CPU")


main()
