# SPDX-License-Identifier: Apache-2.0
"""to_python.py: the API as declarations of ctypes, for the package in python/."""
from shared import flags_field, ordered

KINDS = {"int": "c_int", "unsigned": "c_uint", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t",
         "double": "c_double", "float": "c_float", "bool": "c_bool", "char": "c_char", "void": "None", "const char *": "c_char_p"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""_api.py: the C API of zoff as declarations of ctypes. Written by bindings/make.py from share/zoff/api.json.

A struct that is made by its class has its struct_size, and everything else is zero; one in an array has all zeros. Handles,
memory and numbers that a call sets are c_void_p, which takes an address, None, or byref(). The manual pages of section 3
describe the calls."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint,
                    c_uint32, c_uint64, c_void_p, sizeof)
'''
STRUCT = '''

class Struct(Structure):
    """A struct of zoff."""

    def __init__(self, **fields):
        super().__init__(**fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = sizeof(self)'''
TAIL = '''

def declare(library):
    """Give each function of a library that ctypes has loaded its types."""
    for name, (result, arguments) in CALLS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
'''


class Declarations:
    def __init__(self, api):
        self.api = api

    def kind(self, entry, structs=True):
        """The type of a value. In callbacks, pointers to structs are addresses."""
        name, callback = entry["type"], entry.get("callback") or self.api["callbacks"].get(entry["type"])
        if callback:
            return self.function(callback)
        array = entry.get("array", True)
        if not isinstance(array, bool):
            return f"{self.kind({'type': name})} * {array}"
        target = name.replace("const ", "").rstrip("* ")
        if name in KINDS:
            return KINDS[name]
        if name.endswith("*"):
            return f"POINTER({target})" if structs and target in self.api["structs"] and name.count("*") == 1 else "c_void_p"
        if name in self.api["structs"]:
            return name
        return "c_int" if name in self.api["enums"] else KINDS[self.api["types"][name]["type"]]

    def function(self, callback):
        return f"CFUNCTYPE({', '.join([self.kind({'type': callback['result']}), *(self.kind(a, False) for a in callback['args'])])})"

    def constants(self):
        yield f"VERSION = \"{self.api['version']}\""
        for name, macro in self.api["macros"].items():
            if "value" in macro:
                yield f"{name} = {macro['value']}"
        for name, enum in self.api["enums"].items():
            yield f"# {flags_field(self.api, name)['name']} of {name.partition('.')[0]}" if "." in name else f"# {name}"
            for value in enum["values"]:
                yield f"{value['name']} = {value['value']}"

    def types(self):
        yield ""
        for name in self.api["callbacks"]:
            yield f"{name} = {self.kind({'type': name})}"
        yield STRUCT
        for name, struct in ordered(self.api):
            yield f"\n\nclass {name}(Struct):\n    _fields_ = ["
            for field in struct["fields"]:
                yield f"        (\"{field['name']}\", {self.kind(field)}),"
            yield "    ]"

    def calls(self):
        yield "\n\nCALLS = {"
        for name, call in self.api["calls"].items():
            arguments = "".join(f"{self.kind(argument)}, " for argument in call["args"])
            yield f"    \"{name}\": ({self.kind({'type': call['result']})}, ({arguments.strip() if len(call['args']) == 1 else arguments[:-2]})),"
        yield "}"


def declarations(api):
    its = Declarations(api)
    return "\n".join([HEAD, *its.constants(), *its.types(), *its.calls(), TAIL])
