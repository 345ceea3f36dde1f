# SPDX-License-Identifier: Apache-2.0
"""prose.py: the English of a tree, cut into sentences: comments, messages in the code, and pages.

A piece is (kind, file, line, text). Kinds are "comment", "message" (a text of src/, plugins/, cuda/ or tools/ that a user
reads) and "page" (a paragraph, list item, heading or table cell of Markdown)."""
import io
import re
import tokenize

import check_rooms

C_LIKE = (".c", ".h", ".cc", ".cu", ".inc")
HASHED = (".cmake", ".sh", ".py")
SPEAKING = ("src/", "plugins/", "cuda/", "tools/")
CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
TAG = re.compile(r"@(?:param\s+\S+|[a-z]+)")
FENCE = re.compile(r"^\s*(?:```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
ROW = re.compile(r"^\s*\|")
MARKUP = re.compile(r"[`*]|\]\([^)]*\)|!?\[")
# A sentence ends at a full stop before a capital, a quote or a tag; abbreviations and file names do not end one.
END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9`\"'(@*\[])")
SHORT = re.compile(r"\b(?:e\.g|i\.e|cf|vs|etc|et al)\.$")


def files(root):
    """The files of the tree, in a clone and in an unpacked release."""
    return check_rooms.Tree(root).files


def sentences(text):
    """The sentences of one piece, without markup."""
    found, begun = [], ""
    for part in END.split(TAG.sub(lambda tag: ". " + tag.group(0) + " ", MARKUP.sub("", text))):
        begun = f"{begun} {part}".strip() if begun else part.strip()
        if not SHORT.search(begun):
            found.append(begun)
            begun = ""
    return [sentence.strip(" .") for sentence in found + [begun] if sentence.strip(" .")]


def words(sentence):
    return [word for word in TAG.sub("", sentence).split() if re.search(r"[A-Za-z0-9]", word)]


def blocks(lines):
    """Paragraphs of a comment: (offset, text). Lines that are indented by four more are code or a formula."""
    found, begun, at = [], [], 0
    for offset, line in enumerate(lines):
        bare = line.strip()
        if not bare or re.match(r"\s{4,}", line) or re.fullmatch(r"[-=*/#+ |]+", bare) or "clang-format" in bare:
            if begun:
                found.append((at, " ".join(begun)))
            begun = []
            continue
        if begun and (ITEM.match(line) or re.match(r"@", bare)):
            found.append((at, " ".join(begun)))
            begun = []
        if not begun:
            at = offset
        begun.append(ITEM.sub("", bare))
    return found + ([(at, " ".join(begun))] if begun else [])


def comment_lines(text):
    """The lines of one C comment without its marks."""
    if text.startswith("//"):
        return [text[2:].lstrip("/!< ")]
    body = re.sub(r"^/\*[*!]?<?", "", text)[:-2].rstrip("*")
    return [re.sub(r"^\s*\*? ?", "", line) if number and "*" in line[:line.find(line.strip()[:1]) + 1] else
            (line.strip() if not number else re.sub(r"^ {0,4}", "", line)) for number, line in enumerate(body.split("\n"))]


def of_c(name, text):
    pieces, last = [], None
    for match in CODE.finditer(text):
        token, line = match.group(0), text.count("\n", 0, match.start()) + 1
        before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if token.startswith("//"):
            column = len(before)
            if last and last[1] == line - 1 and last[2] == column and last[3] == bool(before.strip()) or \
                    last and last[1] == line - 1 and not before.strip() and last[3] and last[2] == column:
                last[0].append(comment_lines(token)[0])
                last[1] = line
            else:
                last = [comment_lines(token), line, column, bool(before.strip())]
                pieces.append(["comment", line, last[0]])
        elif token.startswith("/*"):
            pieces.append(["comment", line, comment_lines(token)])
        elif token.startswith('"') and name.startswith(SPEAKING):
            between = text[pieces[-1][3]:match.start()] if pieces and pieces[-1][0] == "message" else "?"
            if not between.strip() and len(pieces[-1]) == 4:
                pieces[-1][2][0] += token[1:-1]
                pieces[-1][3] = match.end()
            else:
                pieces.append(["message", line, [token[1:-1]], match.end()])
    for kind, line, lines, *_ in pieces:
        if kind == "message":
            if len(lines[0].split()) >= 3:
                yield kind, name, line, re.sub(r"\\[nt]", " ", lines[0]).replace('\\"', '"')
        else:
            for offset, block in blocks(lines):
                yield kind, name, line + offset, block


def of_python(name, text):
    run, first, last = [], 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            if token.start[0] != last + 1:
                for offset, block in blocks(run):
                    yield "comment", name, first + offset, block
                run, first = [], token.start[0]
            run.append(re.sub(r"^# ?", "", token.string))
            last = token.start[0]
        elif token.type == tokenize.STRING and token.string.startswith('"""') and not token.line[:token.start[1]].strip():
            for offset, block in blocks(re.sub(r"^ {0,4}", "", token.string[3:-3], flags=re.M).split("\n")):
                yield "comment", name, token.start[0] + offset, block
    for offset, block in blocks(run):
        yield "comment", name, first + offset, block


def of_hashed(name, text):
    run, first = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        found = re.match(r"\s*# ?(?!!)(.*)", line)
        if found:
            first = first if run else number
            run.append(found.group(1))
        elif run:
            for offset, block in blocks(run):
                yield "comment", name, first + offset, block
            run = []


def of_markdown(name, text):
    begun, at, fenced = [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        if FENCE.match(line):
            fenced = not fenced
        bare = line.strip()
        ends = fenced or not bare or FENCE.match(line) or ITEM.match(line) or ROW.match(line) or bare.startswith("#")
        if begun and ends:
            yield "page", name, at, " ".join(begun)
            begun = []
        if fenced or not bare or FENCE.match(line) or bare.startswith("<"):
            continue
        if ROW.match(line):
            for cell in re.split(r"(?<!\\)\|", bare.strip("|")):
                if re.search(r"[A-Za-z]", cell):
                    yield "page", name, number, cell.strip()
        elif bare.startswith("#"):
            yield "page", name, number, bare.lstrip("# ")
        elif begun or ITEM.match(line) or not line.startswith("    "):
            at = at if begun else number
            begun.append(ITEM.sub("", line).strip())


def of_file(root, name):
    """The pieces of one file; nothing for a kind of file that has no English."""
    reader = (of_c if name.endswith(C_LIKE) else of_markdown if name.endswith(".md") else of_python if name.endswith(".py") else
              of_hashed if name.endswith(HASHED) or name.endswith("CMakeLists.txt") or name.startswith("scripts/") else None)
    if reader is None:
        return []
    with open(f"{root}/{name}", encoding="utf-8") as file:
        return list(reader(name, file.read()))
