# SPDX-License-Identifier: Apache-2.0
"""torch_venv.py: a Python that has PyTorch, for the tests that need one."""
import os
import shutil
import subprocess
import sys
import time

SKIP = 77
INSTALL_SECONDS = 900
DISK_BYTES = 12 << 30  # PyPI's wheel for x86-64 includes GPU libraries
INSIDE = "ZOFF_TEST_TORCH_VENV"


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def can_import(python):
    return subprocess.run([python, "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def install(venv):
    """Return the Python of VENV_DIR, with PyTorch installed in it."""
    python = os.path.join(venv, "bin", "python")
    if os.path.exists(python) and can_import(python):
        return python
    os.makedirs(venv, exist_ok=True)
    free = shutil.disk_usage(venv).free
    if free < DISK_BYTES:
        skip(f"PyTorch is not installed, and {venv} has {free >> 30} GiB free; an installation needs {DISK_BYTES >> 30} GiB")
    started = time.monotonic()
    for command in ([sys.executable, "-m", "venv", "--clear", venv],
                    [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "torch", "numpy"]):
        left = INSTALL_SECONDS - (time.monotonic() - started)
        try:
            done = subprocess.run(command, timeout=left, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired:
            skip(f"PyTorch is not installed, and installing it took more than {INSTALL_SECONDS} s")
        if done.returncode:
            lines = [line for line in done.stdout.strip().splitlines() if line.strip()] or ["no output"]
            skip(f"PyTorch is not installed, and '{' '.join(command)}' failed: {lines[-1]}")
    print(f"installed PyTorch from PyPI into {venv} in {time.monotonic() - started:.0f} s")
    if not can_import(python):
        skip("PyTorch from PyPI was installed but does not import")
    return python


def need_torch(venv, installs=True):
    """Import torch, or run this program again by the Python of VENV_DIR. Without `installs`, skip where it has none yet."""
    try:
        import torch
        return torch
    except ImportError:
        if os.environ.get(INSIDE) == venv:
            skip("PyTorch does not import from its own virtual environment")
    if not installs and not os.path.exists(os.path.join(venv, "bin", "python")):
        skip(f"PyTorch is not installed, and only a full run (ZOFF_TEST_FULL=1) installs it into {venv}")
    python = install(venv)
    os.environ[INSIDE] = venv
    os.execv(python, [python, *map(os.path.abspath, sys.argv[:1]), *sys.argv[1:]])
