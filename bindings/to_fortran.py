# SPDX-License-Identifier: Apache-2.0
"""to_fortran.py: the API as a Fortran module by iso_c_binding, and a program that compares its layout with that of C."""
import re
import textwrap

from shared import SizeOf, flags_field, ordered, sized_macros

KINDS = {"int": "integer(c_int)", "unsigned": "integer(c_int)", "uint32_t": "integer(c_int32_t)", "int64_t": "integer(c_int64_t)",
         "uint64_t": "integer(c_int64_t)", "size_t": "integer(c_size_t)", "double": "real(c_double)", "float": "real(c_float)",
         "bool": "logical(c_bool)", "char": "character(kind=c_char)"}
# The value of a component that a program does not set.
ZERO = {"integer": "0", "real": "0", "logical": ".false.", "character": "c_null_char", "c_ptr": "c_null_ptr", "c_funptr": "c_null_funptr"}
HEAD = """! SPDX-License-Identifier: Apache-2.0
! zoff.f90: the C API of zoff. Written by bindings/make.py from share/zoff/api.json.
!
! Handles are of type(c_ptr), enumerations are integers, and unsigned numbers have the bits of signed ones. A structure begins
! with its struct_size, and everything else is zero, so set only what you need. An argument that may be NULL in C is optional.
! A text that goes to C ends with c_null_char. The module needs Fortran 2018. The manual pages of section 3 describe the calls.
module zoff
   use, intrinsic :: iso_c_binding
   implicit none
"""
TAIL = """contains
   !> Copy a text of C, such as that of zoff_last_error().
   function zoff_text(text) result(copy)
      type(c_ptr), intent(in) :: text
      character(len=:), allocatable :: copy
      character(kind=c_char), pointer :: letters(:)
      integer :: i, length
      interface
         pure function strlen(text) result(length) bind(c)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: length
         end function
      end interface
      length = 0
      if (c_associated(text)) length = int(strlen(text))
      if (length > 0) call c_f_pointer(text, letters, [length])
      allocate (character(len=length) :: copy)
      do i = 1, length
         copy(i:i) = letters(i)
      end do
   end function
"""


def lines(text, indent, mark="!>"):
    """A comment, in lines that Fortran allows."""
    return textwrap.wrap(text.split("\n")[0], 120, initial_indent=f"{indent}{mark} ", subsequent_indent=f"{indent}!  ") if text else []


def folded(code, indent="   "):
    """A statement, in lines that Fortran allows."""
    return " &\n".join(textwrap.wrap(code, 116, initial_indent=indent, subsequent_indent=indent + "   "))


class Module:
    def __init__(self, api):
        self.api = api

    def kind(self, entry):
        """The type of a value."""
        name = entry["type"]
        if "callback" in entry or name in self.api["callbacks"]:
            return "type(c_funptr)"
        if name.endswith("*"):
            return "type(c_ptr)"
        if name in self.api["structs"]:
            return f"type({name})"
        if name in self.api["enums"]:
            return KINDS["int"]
        return KINDS[self.api["types"].get(name, entry)["type"]]

    def constants(self):
        for name, macro in self.api["macros"].items():
            if macro.get("type") == "void *":
                yield from lines(macro["doc"], "   ")
                yield f"   type(c_ptr), parameter :: {name} = transfer({macro['value']}_c_intptr_t, c_null_ptr)"
            elif "value" in macro:
                value = macro["value"] - (1 << 32) if macro["value"] >= 1 << 31 else macro["value"]
                yield from lines(macro["doc"], "   ")
                yield f"   {KINDS[macro['type']]}, parameter :: {name} = {value}{'_c_double' if macro['type'] == 'double' else ''}"
        for name, enum in self.api["enums"].items():
            yield ""
            yield from lines(enum["doc"], "   ")
            field = flags_field(self.api, name)
            kind = self.kind(field) if field else KINDS["int"]
            for value in enum["values"]:
                yield f"   {kind}, parameter :: {value['name']} = {value['value']}"
                yield from lines(value["doc"], "      ", "!<")

    def types(self):
        for name, struct in ordered(self.api):
            yield ""
            yield from lines(struct["doc"], "   ")
            yield f"   type, bind(c) :: {name}"
            for field in struct["fields"]:
                kind = self.kind(field)
                zero = "" if kind == f"type({field['type']})" else " = " + ZERO[re.sub(r"type\((\w+)\)", r"\1", kind).partition("(")[0]]
                zero = f" = {struct['size']}" if field["name"] == "struct_size" else zero
                array = f"({field['array']})" if "array" in field else ""
                yield f"      {kind} :: {field['name']}{array}{zero}"
                yield from lines(field["doc"], "         ", "!<")
            yield f"   end type {name}"

    def dummy(self, argument):
        """The declaration of an argument."""
        name, kind = argument["name"], argument["type"]
        target = kind.replace("const ", "").rstrip("*").rstrip()
        stars = kind.count("*")
        if "callback" in argument or not stars:
            return f"{self.kind(argument)}, value :: {name}"
        if stars == 2:
            return f"type(c_ptr), intent({'in' if kind.endswith('const *') else 'out'}) :: {name}{'(*)' if argument.get('array') else ''}"
        if target in self.api["handles"] or target == "void":
            return f"type(c_ptr), value :: {name}"
        intent = "in" if kind.startswith("const") else "inout" if target in self.api["structs"] else "out"
        several = "(*)" if argument.get("array") or target in ("char", "float") else ""
        return f"{self.kind({'type': target})}, intent({intent}){'' if target == 'float' else ', optional'} :: {name}{several}"

    def procedure(self, name, call, bind, indent):
        """The head of a procedure, its declarations, and its last line."""
        function = call["result"] != "void"
        names = ", ".join(argument["name"] for argument in call["args"])
        yield folded(f"{'function' if function else 'subroutine'} {name}({names}){' result(its_result)' if function else ''}{bind}", indent)
        if bind:
            yield f"{indent}   import"
        for argument in call["args"]:
            yield f"{indent}   {self.dummy(argument)}"
        if function:
            yield f"{indent}   {self.kind({'type': call['result']})} :: its_result"

    def calls(self):
        yield "\n   interface"
        for name, call in self.api["calls"].items():
            yield from lines(re.split(r"(?<=[a-z)])[.:] ", call["doc"])[0].rstrip("."), "      ")
            yield from self.procedure(name, call, " bind(c)", "      ")
            yield f"      end {'function' if call['result'] != 'void' else 'subroutine'}"
        yield "   end interface\n"

    def macros(self):
        """Macros that pass the size of a struct."""
        for name, macro, call, passed in sized_macros(self.api):
            yield f"\n   !> {macro['call']}() with the size of the structure."
            yield from self.procedure(name, call, "", "   ")
            words = ", ".join(f"{self.api['structs'][part.struct]['size']}_c_size_t" if isinstance(part, SizeOf) else part for part in passed)
            invoked = f"{macro['call']}({words})"
            yield folded(f"its_result = {invoked}" if call["result"] != "void" else f"call {invoked}", "      ")
            yield f"   end {'function' if call['result'] != 'void' else 'subroutine'}"

    def text(self):
        parts = [HEAD, *self.constants(), *self.types(), *self.calls(), TAIL + "\n".join(self.macros()), "end module zoff"]
        return "\n".join(parts) + "\n"

    def layout(self):
        yield "! SPDX-License-" "Identifier: Apache-2.0"  # in two parts for tools that look for it
        yield "! layout.f90: compares sizes and offsets of zoff.f90 with those of C. Written by bindings/make.py."
        yield "program layout\n   use zoff\n   implicit none\n   integer :: wrong = 0"
        for name in self.api["structs"]:
            yield f"   type({name}), target :: the_{name[5:]}"
        for name, struct in self.api["structs"].items():
            its = f"the_{name[5:]}"
            yield f"   call compare(\"{name}\", 0, 0, int(c_sizeof({its})), {struct['size']})"
            for field in struct["fields"]:
                place = f"{its}%{field['name']}"
                yield folded(f"call compare(\"{name}%{field['name']}\", away(c_loc({place}), c_loc({its})), {field['offset']}, "
                             f"int(c_sizeof({place})), {field['size']})")
        yield LAYOUT_TAIL


LAYOUT_TAIL = """   if (wrong > 0) stop 1
   print '(a)', "the layout is that of C"
contains
   integer function away(field, struct)
      type(c_ptr), intent(in) :: field, struct
      away = int(transfer(field, 0_c_intptr_t) - transfer(struct, 0_c_intptr_t))
   end function
   subroutine compare(what, offset, c_offset, bytes, c_bytes)
      character(len=*), intent(in) :: what
      integer, intent(in) :: offset, c_offset, bytes, c_bytes
      if (offset == c_offset .and. bytes == c_bytes) return
      print '(a, 4(a, i0))', what, " has ", bytes, " bytes at ", offset, ", in C ", c_bytes, " at ", c_offset
      wrong = wrong + 1
   end subroutine
end program layout"""


def module(api):
    names = [name.lower() for part in ("structs", "calls", "macros") for name in api[part]]
    names += [value["name"].lower() for enum in api["enums"].values() for value in enum["values"]]
    if len(set(names)) != len(names):
        raise ValueError(f"the same name for Fortran, which ignores case: {sorted(name for name in names if names.count(name) > 1)}")
    return Module(api).text()


def layout(api):
    return "\n".join(Module(api).layout()) + "\n"
