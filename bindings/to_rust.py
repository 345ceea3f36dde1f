# SPDX-License-Identifier: Apache-2.0
"""to_rust.py: the API as declarations of Rust, and a test that compares their layout with that of C."""
import re

from shared import SizeOf, flags_field, sized_macros

KINDS = {"int": "c_int", "unsigned": "c_uint", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "usize", "double": "f64",
         "float": "f32", "bool": "bool", "char": "c_char", "void": "c_void"}
KEYWORDS = ("as", "box", "dyn", "fn", "impl", "in", "loop", "match", "mod", "move", "mut", "pub", "ref", "self", "trait", "type", "use", "where")
HEAD = """// SPDX-License-Identifier: Apache-2.0
//! Declarations of zoff, a library that keeps the optimizer states of a training run in DRAM or on NVMe and steps them there.
//!
//! Written by bindings/make.py from share/zoff/api.json. Needs Rust 1.63 and no other crate. A struct by `Default` has its
//! `struct_size`, and everything else is zero, which is the default of each field. Enumerations are integers, because a later
//! version of the library may have more of their values. A handle is used by one thread at a time.
#![allow(non_camel_case_types, rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_int, c_uint, c_void};
"""
TEST_HEAD = """// SPDX-License-Identifier: Apache-2.0
//! The layout of each struct is that of C, and libzoff has each call. Written by bindings/make.py.
use std::mem::{align_of, size_of, MaybeUninit};
use std::ptr::addr_of;
use zoff_sys::*;

fn size_of_target<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! layout {
    ($name:ident, $size:literal, $align:literal, $($field:ident at $offset:literal of $bytes:literal,)*) => {
        assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $align), stringify!($name));
        let whole = MaybeUninit::<$name>::uninit();
        let base = whole.as_ptr();
        $(let field = unsafe { addr_of!((*base).$field) };
        assert_eq!((field as usize - base as usize, size_of_target(field)), ($offset, $bytes), concat!(stringify!($name), ".", stringify!($field)));)*
    };
}
"""


def doc(entry, indent=""):
    parts = [entry.get("doc", "")] + [f"{tag.capitalize()}: {entry[tag]}" for tag in ("units", "owns", "threads", "blocks", "return") if tag in entry]
    for number, line in enumerate("\n\n".join(part for part in parts if part).split("\n")):
        yield f"{indent}/// {line}".rstrip() if number or line else ""


def word(name):
    return "r#" + name if name in KEYWORDS else name


class Crate:
    def __init__(self, api):
        self.api = api

    def kind(self, entry):
        if "callback" in entry:
            return self.function(entry["callback"])
        text, mutable = entry["type"], True
        base = re.match(r"(const )?(\w+) ?", text)
        found, mutable = KINDS.get(base[2], base[2]), not base[1]
        for star in re.findall(r"\*(const)?", text[base.end():]):
            found = f"*{'mut' if mutable else 'const'} {found}"
            mutable = not star
        return f"[{found}; {entry['array']}]" if not isinstance(entry.get("array", True), bool) else found

    def arguments(self, call):
        return ", ".join(f"{word(argument['name'])}: {self.kind(argument)}" for argument in call["args"])

    def result(self, call):
        return "" if call["result"] == "void" else f" -> {self.kind({'type': call['result']})}"

    def function(self, callback):
        return f"Option<unsafe extern \"C\" fn({self.arguments(callback)}){self.result(callback)}>"

    def constants(self):
        for name, macro in self.api["macros"].items():
            if "value" in macro:
                yield from doc(macro)
                cast = " as *mut c_void" if macro["type"] == "void *" else ""
                yield f"pub const {name}: {self.kind(macro)} = {macro['value']}{cast};"
        for name, enum in self.api["enums"].items():
            field = flags_field(self.api, name)
            kind = self.kind(field) if field else name
            if not field:
                yield ""
                yield from doc(enum)
                yield f"pub type {name} = c_int;"
            for value in enum["values"]:
                yield from doc(value)
                yield f"pub const {value['name']}: {kind} = {value['value']};"

    def types(self):
        for name, alias in self.api["types"].items():
            yield ""
            yield from doc(alias)
            yield f"pub type {name} = {self.kind(alias)};"
        for name, callback in self.api["callbacks"].items():
            yield ""
            yield from doc(callback)
            yield f"pub type {name} = {self.function(callback)};"
        for name, handle in self.api["handles"].items():
            yield ""
            yield from doc(handle)
            yield f"#[repr(C)]\npub struct {name} {{\n    _data: [u8; 0],\n    _marker: PhantomData<(*mut u8, PhantomPinned)>,\n}}"
        for name, struct in self.api["structs"].items():
            yield ""
            yield from doc(struct)
            yield f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {name} {{"
            for field in struct["fields"]:
                yield from (line for line in doc(field, "    ") if line)
                yield f"    pub {word(field['name'])}: {self.kind(field)},"
            sized = struct["fields"][0]["name"] == "struct_size"
            yield (f"}}\nimpl Default for {name} {{\n    fn default() -> Self {{\n"
                   f"        let {'mut ' if sized else ''}its: Self = unsafe {{ std::mem::zeroed() }}; // zeros, null and None\n"
                   + ("        its.struct_size = std::mem::size_of::<Self>();\n" if sized else "") + "        its\n    }\n}")

    def calls(self):
        yield "\n#[link(name = \"zoff\")]\nextern \"C\" {"
        for name, call in self.api["calls"].items():
            yield from doc(call, "    ")
            yield f"    pub fn {name}({self.arguments(call)}){self.result(call)};"
        yield "}"

    def macros(self):
        """Macros that pass the size of a struct."""
        for name, macro, call, passed in sized_macros(self.api):
            words = ", ".join(f"std::mem::size_of::<{part.struct}>()" if isinstance(part, SizeOf) else part for part in passed)
            yield (f"\n/// `{macro['call']}()` with the size of the struct.\n///\n/// # Safety\n/// As of that call.\n#[inline]\n"
                   f"pub unsafe fn {name}({self.arguments(call)}){self.result(call)} {{\n"
                   f"    {macro['call']}({words})\n}}")


def declarations(api):
    crate = Crate(api)
    return "\n".join([HEAD, *crate.constants(), *crate.types(), *crate.calls(), *crate.macros()]) + "\n"


def layout(api):
    parts = [TEST_HEAD, "#[test]\nfn structs() {"]
    for name, struct in api["structs"].items():
        fields = " ".join(f"{word(field['name'])} at {field['offset']} of {field['size']}," for field in struct["fields"])
        parts.append(f"    layout!({name}, {struct['size']}, {struct['align']}, {fields});")
    parts.append("}\n\n#[test]\nfn calls() {\n    let calls = [")
    parts += [f"        {name} as *const ()," for name in api["calls"]]
    parts.append("    ];\n    assert!(calls.iter().all(|call| !call.is_null()));\n}")
    return "\n".join(parts) + "\n"
