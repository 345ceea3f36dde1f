# SPDX-License-Identifier: Apache-2.0
"""operators.py: possible mistakes in a C file, one small change at a time. Each operator yields the places where it
applies and the text to put there. Comments and string literals are never changed."""
import hashlib
import re

IDENTIFIER = r"[A-Za-z_]\w*(?:(?:->|\.)[A-Za-z_]\w*)*"
WAITS = re.compile(r"wait|await|sync\b|sync\(|synchronize|drain|fence|barrier|poll_all", re.I)
FLUSHES = re.compile(r"flush|fsync|fdatasync|sync_file_range|sync_range|sync_folder", re.I)


class Mutant:
    """One change: `text` replaces [start, end) of the file at `path`."""

    def __init__(self, path, source, operator, start, end, text):
        self.path, self.operator, self.start, self.end, self.text = path, operator, start, end, text
        self.line = source.count("\n", 0, start) + 1
        self.before = source[start:end]
        # The name must not change when lines above the place change. It is made from the text of the line and the number of
        # equal lines before it.
        from_, to = source.rfind("\n", 0, start) + 1, source.find("\n", end)
        words = f"{operator}|{source[from_:to].strip()}|{start - from_}|{source[:from_].count(source[from_:to])}"
        self.name = f"{path.replace('/', '.')}-{operator}-{hashlib.sha1(words.encode()).hexdigest()[:8]}"

    def apply(self, source):
        return source[:self.start] + self.text + source[self.end:]

    def describe(self):
        def short(text):
            text = " ".join(text.split())
            return text if len(text) <= 60 else text[:57] + "..."
        return f"{short(self.before)}  ->  {short(self.text) or 'nothing'}"


def mask(source):
    """Return the source with comments, literals and preprocessor lines blanked; all positions stay the same."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    token = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*"
    return re.sub(token, blank, source, flags=re.S | re.M)


def closing(bare, opening):
    """Return the position after the parenthesis that closes the one at `opening`, or None."""
    depth = 0
    for i in range(opening, len(bare)):
        depth += (bare[i] == "(") - (bare[i] == ")")
        if depth == 0:
            return i + 1
    return None


def statements(bare):
    """(start, end, name) of each statement that is one call: `f(...);`, `ZOFF_TRY(f(...));`, `(void)f(...);`."""
    for match in re.finditer(r"(?m)^[ \t]+((?:\(void\))?(?:ZOFF_TRY\()?)([a-z_]\w*)\(", bare):
        start, opening = match.start(1), match.end() - 1
        if match.group(1).endswith("ZOFF_TRY("):
            opening = match.end(1) - 1
        end = closing(bare, opening)
        if end is not None and bare[end:end + 1] == ";" and match.group(2) not in ("if", "for", "while", "switch", "return", "sizeof"):
            yield start, end, match.group(2)


def drop_wait(source, bare):
    for start, end, name in statements(bare):
        if WAITS.search(name + "(") and not FLUSHES.search(name):
            yield start, end, "(void)0"


def drop_flush(source, bare):
    for start, end, name in statements(bare):
        if FLUSHES.search(name):
            yield start, end, "(void)0"
    for match in re.finditer(r"\b(?:fsync|fdatasync|sync_file_range|zoff_offload_store_flush|flush_drive|flush)\(", bare):
        end = closing(bare, match.end() - 1)
        line = bare[bare.rfind("\n", 0, match.start()) + 1:match.start()]
        if end is not None and line.strip() and re.match(r"[ \t]", line):
            yield match.start(), end, "(0)"


def drop_check(source, bare):
    """An error that is not noticed: the condition is compiled, but is never true."""
    for match in re.finditer(r"\bZOFF_FAIL_IF\(", bare):
        depth, i = 0, match.end()
        while i < len(bare) and not (depth == 0 and bare[i] == ","):
            depth += (bare[i] in "([{") - (bare[i] in ")]}")
            i += 1
        yield match.end(), i, f"0 && ({source[match.end():i].strip()})"
    leaves = r"(?:return zoff_base_status_fail|return false|return ZOFF_ERR|goto )"
    for match in re.finditer(r"\bif (\()(?=[^\n;{]*\)\s*\n?\s*" + leaves + ")", bare):
        end = closing(bare, match.start(1))
        if end is not None:
            yield match.start(1), end, f"(0 && {source[match.start(1):end]})"


def ignore_status(source, bare):
    for match in re.finditer(r"\bZOFF_TRY(\()", bare):
        end = closing(bare, match.start(1))
        if end is not None:
            yield match.start(), end, f"(void){source[match.start(1):end]}"
    for match in re.finditer(r"(?m)^[ \t]+(status = )([a-z_]\w*\()", bare):
        end = closing(bare, match.end() - 1)
        if end is not None and bare[end] == ";":
            yield match.start(1), end, f"(void){source[match.start(2):end]}"


def off_by_one(source, bare):
    for match in re.finditer(rf"{IDENTIFIER}(?:\[[^\]\n]*\]|\(\))? (<=|>=|<|>) (?={IDENTIFIER}|\d)", bare):
        line = bare[bare.rfind("\n", 0, match.start()) + 1:match.start()]
        if not re.match(r"\s*typedef|\s*#", line):
            other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match.group(1)]
            yield match.start(1), match.end(1), other
    for match in re.finditer(rf"(?<=[\w\])])( [+-] 1)\b(?![.\w])", bare):
        yield match.start(1), match.end(1), ""


def swap_operands(source, bare):
    for match in re.finditer(rf"(?<![\w.>*/%&\-+)\]] )(?<![\w.>])({IDENTIFIER}) ([-/%]) ({IDENTIFIER})(?![\w\[(.]|->| [*/%])", bare):
        a, sign, b = match.groups()
        if a != b and a not in ("return", "sizeof", "case", "else"):
            yield match.start(), match.end(), f"{b} {sign} {a}"
    # Swap two adjacent arguments of a call that are plain names or members.
    for match in re.finditer(rf"(?<=[(,] |.\()({IDENTIFIER}), ({IDENTIFIER})(?=[,)])", bare):
        a, b = match.groups()
        line = bare[bare.rfind("\n", 0, match.start()) + 1:match.start()]
        if a != b and re.match(r"[ \t]", line):
            yield match.start(), match.end(), f"{b}, {a}"


def swap_ranks(source, bare):
    for match in re.finditer(r"(?<![\w.>&*])((?:\w+(?:->|\.))*(?:comm|ranks|self|m|n|c)(?:->|\.))rank\b(?!\s*=[^=])", bare):
        yield match.start(), match.end(), f"({match.group(1)}size - 1 - {match.group(1)}rank)"
    for match in re.finditer(r"\brank (==|!=) (?=[\w(])", bare):
        yield match.start(1), match.end(1), {"==": "!=", "!=": "=="}[match.group(1)]


def swap_streams(source, bare):
    step, reduce, weights = "ZOFF_COMM_STEP", "ZOFF_COMM_REDUCE", "ZOFF_COMM_WEIGHTS"
    for here, there in ((step, reduce), (reduce, step), (weights, step)):
        for match in re.finditer(rf"\b{here}\b(?!\s*[:,]\s*\n|\s*=)", bare):
            yield match.start(), match.end(), there
    for match in re.finditer(r"(?:->|\.)(down|up|compute)\b(?=[,)])", bare):
        yield match.start(1), match.end(1), {"down": "up", "up": "down", "compute": "down"}[match.group(1)]


OPERATORS = (drop_wait, drop_flush, drop_check, ignore_status, off_by_one, swap_operands, swap_ranks, swap_streams)


def mutants_of(path, source):
    """Every mutant of one file, each place and text once."""
    bare, seen = mask(source), set()
    for operator in OPERATORS:
        for start, end, text in operator(source, bare):
            if (start, end, text) not in seen and source[start:end] != text:
                seen.add((start, end, text))
                yield Mutant(path, source, operator.__name__, start, end, text)
