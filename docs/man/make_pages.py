#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_pages.py [--check]: writes the manual pages of section 3 from the public headers, one page for each header.

The comment at the top of a header becomes the description. Each function is a section with its comment. Structs, enums and
macros follow as they are in the header. --check compares the pages with what would be written, and exits with 1 if they
differ."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from written import read, write  # noqa: E402

INCLUDE = os.path.join(HERE, "..", "..", "include", "zoff")
HEADERS = ("accel", "aio", "checkpoint", "comm", "config", "engine", "optimizer", "state", "status", "step", "types")
DATE = "November 24, 2026"
ITEM = re.compile(r"/\*\*(?P<doc>(?:(?!\*/).)*)\*/\s*\n(?P<code>(?:ZOFF_API[^;]*;|(?:typedef )?(?:struct|enum)\b[^{;\n]*\{(?:[^\n]*\}|.*?\n\})[^;]*;|typedef[^;{]*;)"
                  r"(?:\n#define ZOFF_\w+_INIT [^\n]*)?)", re.S)
TAGS = {"owns": "Ownership:", "threads": "Threads:", "units": "Units:", "blocks": "Blocks", "return": "Returns"}


def roff(text):
    """Escape what mdoc takes for a request or for an escape."""
    text = text.replace("\\", "\\e").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", text)


def paragraphs(comment):
    """(text, is literal) of a comment without its stars; a line that is indented by four or more is literal."""
    lines = [re.sub(r"^\s*\*? ?(?: (?=\S))?", "", line) if not re.match(r"^\s*\*\s{5,}\S", line) else
             re.sub(r"^\s*\* {2}", "", line) for line in comment.split("\n")]
    found, begun, literal = [], [], False
    for line in lines + [""]:
        here = bool(re.match(r"\s{3,}\S", line))
        tag = re.match(r"\s*(?:@|- )", line)
        if begun and (not line.strip() or here != literal or tag):
            found.append((begun, literal))
            begun = []
        if line.strip():
            literal = here
            begun.append(line.rstrip() if here else line.strip())
    return found


def body(comment):
    for lines, literal in paragraphs(comment):
        if literal:
            yield from (".Bd -literal -offset indent", *(roff(line) for line in lines), ".Ed")
            continue
        text = re.sub(r"\s+@(?=\w)", "\n@", " ".join(lines))
        for part in text.split("\n"):
            yield ".Pp"
            part = re.sub(r"^@param\s+(\w+)", r"\1:", part.strip())
            part = re.sub(r"^@(\w+)", lambda tag: TAGS.get(tag.group(1), tag.group(1)), part)
            yield from (roff(line) for line in re.sub(r"(?<=[^\s.][.;:]) (?=[A-Z*]|zoff_)", "\n", part).split("\n"))


def top_comment(text):
    """The purpose that a header's first comment names, and the rest of that comment."""
    top = re.match(r"/\*\s*(.*?)\*/", text.partition("\n")[2], re.S).group(1)
    first, *rest = re.split(r"\n\s*\*\s*\n", top, maxsplit=1)
    return re.sub(r"\s*\n\s*\*\s*", " ", first.partition(": ")[2]), "\n".join(rest)


def page(header, text):
    first, rest = top_comment(text)
    functions, types = [], []
    for match in ITEM.finditer(text):
        code = match["code"].strip()
        name = re.search(r"(zoff_\w+)\(", code) if code.startswith("ZOFF_API") else None
        (functions if name else types).append((name and name.group(1).replace("_sized", ""), match["doc"], code))
    names = [name for name, _, _ in functions]
    out = ['.\\" Written by docs/man/make_pages.py from include/zoff/' + header + ".h.", ".Dd " + DATE,
           f".Dt ZOFF_{header.upper()} 3", ".Os zoff", ".Sh NAME"]
    listed = [f"zoff_{header}"] + [name for name in names if name != f"zoff_{header}"]
    out += [f".Nm {name}" + (" ," if name != listed[-1] else "") for name in listed]
    out += [".Nd " + roff(first.rstrip(".")), ".Sh SYNOPSIS", ".In zoff/zoff.h", ".Bd -literal"]
    out += [roff(line) for _, _, code in functions for line in re.sub(r"^ZOFF_API ", "", code).split("\n")]
    out += [".Ed", ".Sh DESCRIPTION"]
    described = list(body(rest)) if rest.strip() else [".Pp", roff(first)]
    out += described[1:] if described and described[0] == ".Pp" else described
    for name, doc, _ in functions:
        lines = list(body(doc))
        out += [f".Ss {name}()"] + (lines[1:] if lines and lines[0] == ".Pp" else lines)
    if types:
        out.append(".Sh TYPES")
        for number, (_, doc, code) in enumerate(types):
            lines = list(body(doc))
            out += lines[1:] if not number and lines and lines[0] == ".Pp" else lines
            out += [".Bd -literal", *(roff(line.rstrip().replace("\t", "    ")) for line in code.split("\n")), ".Ed"]
    out += [".Sh SEE ALSO", ".Xr zoff 1 ,", ".Xr zoff 7"]
    return "\n".join(out) + "\n"


def main():
    stale = 0
    for header in HEADERS:
        source = os.path.join(INCLUDE, header + ".h")
        stale += write(os.path.join(HERE, f"zoff_{header}.3"), page(header, read(source)), f"include/zoff/{header}.h", "docs/man/make_pages.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
