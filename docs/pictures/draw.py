#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""draw.py [--check]: writes the pictures of docs/ARCHITECTURE.md beside itself, as SVG.

A picture is a list of boxes (x, y, width, height, colour, lines of text) and arrows (x1, y1, x2, y2, label). With the option
--check it compares the files with what it would write, and exits with 1 if they differ."""
import os
import sys
from html import escape

TRAINER, CODE, DRAM, DISK, RANK = "#dbe9f6", "#e6e6e6", "#dcefdc", "#f6e3cf", "#ece1f3"
STYLE = ("text{font:14px sans-serif;text-anchor:middle}.label{font-size:12px;fill:#444}"
         "rect{stroke:#555;rx:6px}line{stroke:#555;stroke-width:1.5;marker-end:url(#head)}")

PICTURES = {
    "tiers": (760, 250, [
        (20, 60, 190, 120, TRAINER, ["your trainer (C)", "weights", "gradients", "fp32, bf16 or fp16"]),
        (300, 60, 170, 120, CODE, ["zoff", "norm, clip, update", "in one pass over", "chunks of states"]),
        (570, 20, 170, 80, DRAM, ["DRAM", "master, m, v"]),
        (570, 150, 170, 80, DISK, ["files on NVMe", "master, m, v", "O_DIRECT, io_uring"]),
    ], [(210, 95, 298, 95, "gradients"), (300, 150, 212, 150, "new weights"), (470, 85, 568, 60, "cpu"),
        (470, 150, 568, 185, "nvme")]),
    "step": (760, 200, [
        (20, 40, 140, 50, DISK, ["read chunk 3"]), (180, 40, 140, 50, DISK, ["read chunk 4"]),
        (340, 40, 140, 50, DISK, ["read chunk 5"]),
        (180, 95, 140, 50, DRAM, ["update chunk 3"]), (340, 95, 140, 50, DRAM, ["update chunk 4"]),
        (500, 95, 140, 50, DRAM, ["update chunk 5"]),
        (340, 150, 140, 40, DISK, ["write chunk 3"]), (500, 150, 140, 40, DISK, ["write chunk 4"]),
    ], [(20, 20, 740, 20, "time: the disk is busy in both directions while the CPU updates")]),
    "ranks": (760, 260, [
        (20, 40, 220, 60, TRAINER, ["rank 0", "gradients of all parameters"]),
        (20, 160, 220, 60, TRAINER, ["rank 1", "gradients of all parameters"]),
        (380, 40, 160, 60, RANK, ["states of shard 0", "update"]),
        (380, 160, 160, 60, RANK, ["states of shard 1", "update"]),
        (640, 40, 100, 180, TRAINER, ["new weights", "on every", "rank"]),
    ], [(240, 70, 378, 70, "reduce-scatter"), (240, 180, 378, 90, ""), (240, 190, 378, 190, ""), (240, 80, 378, 170, ""),
        (540, 70, 638, 90, "all-gather"), (540, 190, 638, 170, "")]),
    "file": (760, 180, [
        (20, 60, 110, 60, CODE, ["header", "model, layout"]), (140, 60, 110, 60, CODE, ["records", "last commit"]),
        (260, 60, 150, 60, DISK, ["chunk 0", "copy A"]), (420, 60, 150, 60, DRAM, ["chunk 0", "copy B"]),
        (580, 60, 150, 60, DISK, ["chunk 1", "copy A ..."]),
    ], [(195, 150, 335, 124, "names the copy of the last complete step"), (495, 35, 495, 58, "the step in progress writes here")]),
}


def svg(width, height, boxes, arrows):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
           f'<style>{STYLE}</style><defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="3" orient="auto">'
           '<path d="M0,0 L8,3 L0,6 z" fill="#555"/></marker></defs>',
           f'<rect x="0" y="0" width="{width}" height="{height}" fill="white" style="stroke:none"/>']
    for x, y, w, h, colour, lines in boxes:
        out.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{colour}"/>')
        for number, line in enumerate(lines):
            at = y + h / 2 + 5 + 19 * (number - (len(lines) - 1) / 2)
            weight = ' font-weight="bold"' if number == 0 and len(lines) > 1 else ""
            out.append(f'<text x="{x + w / 2:g}" y="{at:g}"{weight}>{escape(line)}</text>')
    for x1, y1, x2, y2, label in arrows:
        out.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        if label:
            out.append(f'<text class="label" x="{(x1 + x2) / 2:g}" y="{min(y1, y2) + abs(y1 - y2) / 2 - 6:g}">{escape(label)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    folder, stale = os.path.dirname(os.path.abspath(__file__)), 0
    for name, picture in PICTURES.items():
        path, text = os.path.join(folder, name + ".svg"), svg(*picture)
        if "--check" in sys.argv[1:]:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    stale += 1
                    print(f"docs/pictures/{name}.svg is not what draw.py draws: run docs/pictures/draw.py")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
