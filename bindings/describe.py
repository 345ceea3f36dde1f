# SPDX-License-Identifier: Apache-2.0
"""describe.py: the public C API as one dictionary: names, types and comments from the headers, numbers from the compiler.

The headers keep a fixed form, which docs/man/make_pages.py reads, too. A declaration in another form is an error here, so that
nothing is left out silently."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "docs", "man"))
from make_pages import HEADERS, INCLUDE, ITEM, paragraphs  # noqa: E402
from written import read  # noqa: E402

COMMENT = re.compile(r"/\*.*?\*/", re.S)
# A comment in front of declarations, a declaration (an enumerator ends with a comma), and a comment behind it.
FIELD = re.compile(r"/\*\*(?!<)(?P<before>.*?)\*/|(?P<code>[^;/]+)(?:;|$)\s*(?:/\*\*<(?P<doc>.*?)\*/)?", re.S)
VALUE = re.compile(r"(?P<name>\w+)\s*=[^,/]*,?\s*(?:/\*\*<(?P<doc>.*?)\*/)?", re.S)
MACRO = re.compile(r"(?:/\*\*(?P<doc>(?:(?!\*/).)*)\*/\s*\n)?#define (?P<name>\w+)(?:\((?P<args>[^)]*)\))?[ \t]+(?P<text>[^\n]+)", re.S)
NO_MACROS = ("ZOFF_API", "ZOFF_SIZED", "ZOFF_STATUS_MAP", "XX")  # means of the headers themselves


class Unknown(Exception):
    """A declaration that this program cannot describe."""


def words(comment):
    """One line of a comment that may have several."""
    return " ".join(re.sub(r"\n\s*\*(?!/)", " ", comment or "").split())


def comment_of(text):
    """The text of a comment, and its tags: {"doc", "params", "owns", ...}. A tag that is absent means none."""
    found, params = {"doc": []}, {}
    for lines, literal in paragraphs(text):
        if literal:
            found["doc"].append("\n".join(line.rstrip() for line in lines))
            continue
        first, *tags = re.split(r"(?:^|\s+)@(?=\w)", " ".join(lines))
        if first:
            found["doc"].append(first)
        for tag in tags:
            name, _, rest = tag.partition(" ")
            if name == "param":
                name, _, rest = rest.strip().partition(" ")
                params[name] = rest.strip()
            elif name in ("units", "owns", "threads", "blocks", "return"):
                found[name] = rest.strip()
            else:
                raise Unknown(f"@{name}: no tag of the public headers")
    found["doc"] = "\n\n".join(found["doc"])
    return found, params


def split(text):
    """Parts between commas that are in no parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def declared(text):
    """The names that a declaration declares: {"name", "type"}, perhaps "array" or "callback"."""
    text = " ".join(COMMENT.sub(" ", text).split())
    pointer = re.fullmatch(r"(.+?)\(\*(\w+)\)\((.*)\)", text)
    if pointer:
        callback = signature(pointer[1], pointer[3])
        arguments = ", ".join(arg["type"] for arg in callback["args"]) or "void"
        return [{"name": pointer[2], "type": f"{callback['result']} (*)({arguments})", "callback": callback}]
    base = re.match(r"(?:const )?\w+", text)
    found = []
    for part in split(text[base.end():]) if base else []:
        match = re.fullmatch(r"((?:\s*\*\s*(?:const\b)?)*)\s*(\w+)\s*(?:\[(\w+)\])?", part)
        if not match:
            break
        stars = re.sub(r"\s+", "", match[1]).replace("const", "const ")
        found.append({"name": match[2], "type": f"{base[0]} {stars}".rstrip(), **({"array": int(match[3])} if match[3] else {})})
    else:
        if found:
            return found
    raise Unknown(f"cannot read the declaration \"{text}\"")


def signature(result, arguments):
    """The type of a function."""
    arguments = [] if arguments.strip() == "void" else split(arguments)
    return {"result": declared(result.strip() + " x")[0]["type"], "args": [declared(argument)[0] for argument in arguments]}


def fields_of(body):
    found, before = [], ""
    for match in FIELD.finditer(body):
        if match["before"] is not None:
            before = match["before"]
        elif match["code"].strip():
            found += [{**field, "doc": words(match["doc"] or before)} for field in declared(match["code"])]
            before = "" if match["doc"] else before
    return found


def values_of(body, text):
    if "ZOFF_STATUS_MAP" in body:
        return [{"name": "ZOFF_" + name, "doc": doc} for name, doc in re.findall(r"XX\((\w+), *-?\d+, *\"(.*?)\"\)", text)]
    return [{"name": match["name"], "doc": words(match["doc"])} for match in VALUE.finditer(body)]


def is_array(argument, all_arguments):
    """Whether a pointer is one to several structs or handles: its comment says so, or a stride follows."""
    strides = [other["name"][:-len("_stride")] for other in all_arguments if other["name"].endswith("_stride")]
    return argument["type"].endswith("*") and (argument["name"].rstrip("s") in strides or bool(re.search("`(count|size)`", argument.get("doc", ""))))


def take(api, header, text, doc, code):
    """Enter one declaration."""
    about, params = comment_of(doc)
    about["header"] = f"zoff/{header}.h"
    plain = " ".join(COMMENT.sub(" ", code).split())
    if code.startswith("ZOFF_API"):
        match = re.fullmatch(r"ZOFF_API (.+?)(\w+)\((.*)\);", plain)
        call = signature(match[1], match[3])
        for argument in call["args"]:
            argument.update({"doc": params.pop(argument["name"])} if argument["name"] in params else {})
            argument.update({"array": True} if is_array(argument, call["args"]) else {})
        if params:
            raise Unknown(f"{match[2]} has no argument {', '.join(params)}")
        api["calls"][match[2]] = {**call, **about, "collective": "Collective over the ranks" in about["doc"]}
        return
    if match := re.fullmatch(r"typedef struct (\w+) \1;", plain):
        api["handles"][match[1]] = about
    elif match := re.match(r"typedef struct (\w+) \{(.*)\n\} \1;", code, re.S):
        api["structs"][match[1]] = {**about, "fields": fields_of(match[2])}
    elif match := re.match(r"(?:typedef )?enum ?(\w*) \{(.*)\}[^;}]*;", code, re.S):
        name = match[1] or re.sub(r"Flags of (\w+)\.", r"\1.flags", about["doc"])
        api["enums"][name] = {**about, "values": values_of(match[2], text)}
    elif match := re.fullmatch(r"typedef (.*?)\(\*(\w+)\)\((.*)\);", plain):
        callback = signature(match[1], match[3])
        for argument in callback["args"]:
            argument.update({"doc": params[argument["name"]]} if argument["name"] in params else {})
        api["callbacks"][match[2]] = {**callback, **about}
    elif match := re.fullmatch(r"typedef (\w+) (\w+);", plain):
        api["types"][match[2]] = {"type": match[1], **about}
    else:
        raise Unknown(f"cannot read the declaration \"{plain}\"")


def take_macros(api, header, text):
    for match in MACRO.finditer(text.replace("\\\n", " ")):
        sized = re.fullmatch(r"ZOFF_SIZED\((\w+)\)", match["text"])
        if match["name"] in NO_MACROS:
            continue
        if sized:
            api["structs"][sized[1]]["init"] = match["name"]
            continue
        about = {**comment_of(match["doc"] or "")[0], "header": f"zoff/{header}.h"}
        if pointer := re.fullmatch(r"\(\(void \*\)(\d+)\)", match["text"].strip()):
            about.update(value=int(pointer[1]), type="void *")
        elif match["args"] is not None:
            about.update(args=split(match["args"]), text=match["text"].strip(), call=re.match(r"\w+", match["text"])[0])
        api["macros"][match["name"]] = about


def rest_of(text):
    """The code of a header behind its declarations, which must be nothing but the frame that all headers have."""
    text = re.sub(r"^#ifdef __cplusplus\n(?:(?!#endif).)*?^#(?:else|endif)", "", ITEM.sub("", text), flags=re.S | re.M)
    return re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", COMMENT.sub("", text), flags=re.M).strip()


def measure(api, cc):
    """Sizes, offsets, values and the types of macros, as the compiler has them."""
    lines, entries = [], []

    def ask(entry, **numbers):
        for key, expression in numbers.items():
            lines.append(f'    NUMBER({expression});')
            entries.append((entry, key))

    for name, struct in api["structs"].items():
        ask(struct, size=f"sizeof({name})", align=f"_Alignof({name})")
        for field in struct["fields"]:
            ask(field, offset=f"offsetof({name}, {field['name']})", size=f"sizeof((({name} *)0)->{field['name']})")
    for enum in api["enums"].values():
        for value in enum["values"]:
            ask(value, value=value["name"])
    for name, macro in api["macros"].items():
        if "text" not in macro and "value" not in macro:
            ask(macro, value=name)
            lines.append(f'    puts(_Generic(({name}), int: "int", unsigned: "unsigned", double: "double"));')
            entries.append((macro, "type"))
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "measure.c"), os.path.join(folder, "measure")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <stdio.h>\n#include <zoff/plugin.h>\n#include <zoff/zoff.h>\n"
                       '#define NUMBER(x) printf(_Generic((x), double: "%.17g\\n", default: "%.0f\\n"), (double)(x))\n'
                       "int main(void)\n{\n" + "\n".join(lines) + "\n}\n")
        if subprocess.run([cc, "-std=c11", f"-I{os.path.dirname(INCLUDE)}", source, "-o", program], check=False).returncode:
            raise Unknown("the compiler refuses what was read from include/zoff, such as a macro that is no number")
        had = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    for (entry, key), word in zip(entries, had, strict=True):
        entry[key] = word if key == "type" else int(word) if word.lstrip("-").isdigit() else float(word)
    for macro in api["macros"].values():
        if macro.get("type") == "double":
            macro["value"] = float(macro["value"])


def close_handles(api):
    """The call that ends the life of each handle: the @owns of the call that makes it names it, or it is called so."""
    for name, handle in api["handles"].items():
        for call in api["calls"].values():
            owner = re.match(r"caller; (zoff_\w+)\(\)", call.get("owns", ""))
            if owner and any(argument["type"] == name + " **" for argument in call["args"]):
                handle["closed_by"] = owner[1]
        handle.setdefault("closed_by", name + "_close")
        if handle["closed_by"] not in api["calls"]:
            raise Unknown(f"no call closes {name}")


def describe(cc):
    """The API of include/zoff, except for mpi.h, whose code is compiled into the program."""
    api = {"version": None,
           "about": "The C API of zoff, for generators of bindings. Sizes, alignments and offsets are bytes, on 64-bit Linux. A tag "
                    "(units, owns, threads, blocks, return) that a call lacks means none: it does not block, for example. "
                    "A struct with \"init\" begins with struct_size, and everything else is zero.",
           "macros": {}, "types": {}, "enums": {}, "handles": {}, "callbacks": {}, "structs": {}, "calls": {}}
    for header in (*HEADERS, "plugin"):
        text = read(os.path.join(INCLUDE, header + ".h"))
        if rest := rest_of(text):
            raise Unknown(f"include/zoff/{header}.h: no comment of the form /** */ in front of: {rest.splitlines()[0]}")
        try:
            for match in ITEM.finditer(text):
                # A macro may stand between the comment and what it describes, or behind it.
                take(api, header, text, match["doc"], re.sub(r"\n#define [^\n]*", "", match["code"].strip()))
            take_macros(api, header, text)
        except Unknown as error:
            raise Unknown(f"include/zoff/{header}.h: {error}") from error
    measure(api, cc)
    close_handles(api)
    api["version"] = ".".join(str(api["macros"][f"ZOFF_VERSION_{part}"]["value"]) for part in ("MAJOR", "MINOR", "PATCH"))
    return api
