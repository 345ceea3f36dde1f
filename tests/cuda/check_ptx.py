#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_ptx.py: checks that the kernels compute as the CPU does. In the PTX of the plug-in no operations are fused
unless the source says so, no result is flushed to zero, and division and square root are rounded correctly. Usage:
check_ptx.py FILE.ptx"""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    text = f.read()
found = set(re.findall(r"\b((?:add|sub|mul|fma|mad|div|sqrt|rcp|rsqrt|ex2|lg2|cvt)\.[a-z0-9._]*f(?:16|32|64)[a-z0-9._]*)", text))
# Without .rn the driver may fuse a product and a sum when it compiles the PTX for its GPU.
allowed = {"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "fma.rn.f32", "div.rn.f32", "sqrt.rn.f32", "add.rn.f64", "mul.rn.f64",
           "cvt.f64.f32", "cvt.rn.f32.u32", "cvt.rn.f32.u16", "cvt.rn.f32.s32", "cvt.rn.f32.s64", "cvt.rn.f64.s32", "cvt.rn.f32.f64"}
needed = {"fma.rn.f32", "div.rn.f32", "sqrt.rn.f32", "mul.rn.f32"}
complaints = [f"{sys.argv[1]}: {name}: not an operation of the CPU with one rounding" for name in sorted(found - allowed)]
complaints += [f"{sys.argv[1]}: no {name}: this is not the PTX of the kernels" for name in sorted(needed - found)]
for entry in ("zoff_update", "zoff_update_q8", "zoff_accumulate", "zoff_add_bins", "zoff_cast", "zoff_square_sum"):
    if not re.search(rf"\.entry {entry}\b", text):
        complaints.append(f"{sys.argv[1]}: no kernel {entry}")
print("\n".join(complaints) or f"{len(found)} kinds of arithmetic, all rounded as on the CPU: {', '.join(sorted(found))}")
sys.exit(bool(complaints))
