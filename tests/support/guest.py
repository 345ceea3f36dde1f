# SPDX-License-Identifier: Apache-2.0
"""guest.py: shared by the tests that boot a Debian kernel in an emulator: the kernel image, and a file system of busybox
and test programs. Such a test exits with 77 and a reason if a tool or the kernel image is missing."""
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

SKIP = 77
BUSYBOX = "/bin/busybox"
METAPACKAGE = "linux-image-cloud-amd64"
# Lines of the guest for these scripts start with this prefix. All other lines are for people.
SAYS = "guest: "

# The beginning of each /init.
INIT_HEAD = f"""\
#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox --install -s /bin
say() {{ echo "{SAYS}$*"; }}
"""


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def fail(reason):
    print("FAILED:", reason)
    sys.exit(1)


def check_tools(tools, where):
    """Skip the test unless all tools exist: (file or command, the package of Debian and Ubuntu that contains it). Busybox is
    always checked."""
    missing = [package for place, package in (*tools, (BUSYBOX, "busybox-static"))
               if not (os.path.exists(place) if "/" in place else shutil.which(place))]
    if missing:
        skip(f"needs the packages {' '.join(missing)} (scripts/install-deps installs them {where})")
    with open(BUSYBOX, "rb") as file:
        if b"/ld-linux" in file.read(4096):
            skip(f"{BUSYBOX} needs shared libraries; the package busybox-static has one that does not")


def said(done):
    """The most informative line of a finished command's output."""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E: ")]
    return (errors or lines or ["no message"])[-1]


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().replace("\r", "")
    except FileNotFoundError:
        return ""


def kernel_image(folder):
    """Return the path of a Debian kernel image: the one in the folder, or one from the package to which the metapackage
    points today."""
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several tests run at the same time, and one download is enough
        kept = sorted(glob.glob(os.path.join(folder, "vmlinuz-*")))
        return kept[-1] if kept else fetch_image(folder)


def fetch_image(folder):
    missing = [tool for tool in ("apt-cache", "apt-get", "dpkg-deb") if not shutil.which(tool)]
    if missing:
        skip(f"no kernel image to boot: it comes from a Debian package, and there is no {' '.join(missing)}")
    asked = subprocess.run(["apt-cache", "depends", METAPACKAGE], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    package = re.search(r"Depends: (linux-image-\S+)", asked.stdout)
    if not package:
        skip(f"no kernel image to boot: apt knows no package {METAPACKAGE}, which Debian has (is an apt-get update due?)")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = ["apt-get", "-q", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30",
                   "download", package.group(1)]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=100, env={**os.environ, "LC_ALL": "C"})
        except subprocess.TimeoutExpired:
            skip(f"no kernel image to boot: apt-get download {package.group(1)} took more than 100 s")
        debs = glob.glob(os.path.join(scratch, "*.deb"))
        if done.returncode or not debs:
            skip(f"no kernel image to boot: apt-get download {package.group(1)}: {said(done)}")
        image = take_image(debs[0], scratch)
        if not image:
            skip(f"no kernel image to boot: none in {os.path.basename(debs[0])}")
        path = os.path.join(folder, os.path.basename(image))
        os.replace(image, path)  # rename it, so that a partial image is never used
        return path


def take_image(deb, folder):
    """Return the file boot/vmlinuz-* of a package, without unpacking its hundreds of modules."""
    image = None
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as archive:
        with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
            for member in tar:
                name = re.fullmatch(r"(?:\./)?boot/(vmlinuz-[^/]+)", member.name)
                if name and member.isfile():
                    image = os.path.join(folder, name.group(1))
                    with open(image, "wb") as out:
                        shutil.copyfileobj(tar.extractfile(member), out)
                    break
        archive.kill()  # the rest is not read
    return image


def libraries(program):
    """Return the shared libraries that a program loads, and its loader, as ldd prints them."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    missing = re.search(r"(\S+) => not found", told.stdout)
    if missing:
        fail(f"{program} needs {missing.group(1)}, which this machine lacks")
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", told.stdout, re.MULTILINE)


class Archive:
    """The files of an initramfs, starting with busybox."""

    def __init__(self):
        self.entries = {}  # name to (mode, content)
        self.add_file(BUSYBOX, BUSYBOX)

    def add(self, name, content, mode=0o100755):
        name = name.lstrip("/")
        above = os.path.dirname(name)
        if above and above not in self.entries:
            self.add(above, b"", 0o040755)
        self.entries[name] = (mode, content)

    def add_file(self, path, name):
        with open(path, "rb") as file:
            self.add(name, file.read())

    def add_program(self, path, name):
        """Add a program, and the shared libraries that it loads at the paths where its loader searches."""
        self.add_file(path, name)
        for library in libraries(path):
            if library.lstrip("/") not in self.entries:
                self.add_file(library, library)

    def content(self):
        """Return the archive in the kernel's format, cpio ("newc")."""
        parts = []
        for number, (name, (mode, content)) in enumerate([*self.entries.items(), ("TRAILER!!!", (0, b""))], 1):
            head = b"070701" + b"".join(b"%08x" % field for field in
                                        (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0))
            for part in (head + name.encode() + b"\0", content):
                parts.append(part + b"\0" * (-len(part) % 4))
        return b"".join(parts)
