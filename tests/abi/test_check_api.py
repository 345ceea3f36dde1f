#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_api.py: check_api.py notices each kind of mistake in api.json."""
import copy
import json
import sys

from check_api import arguments, complaints


def field(api, name):
    return next(field for field in api["structs"]["zoff_step_info"]["fields"] if field["name"] == name)


# Changes, each with a word of the complaint.
MUTANTS = {
    "an offset": (lambda api: field(api, "t").update(offset=28), "zoff_step_info::t"),
    "a size": (lambda api: field(api, "t").update(size=4), "zoff_step_info::t"),
    "a type": (lambda api: field(api, "micro_step").update(type="int32_t"), "zoff_step_info::micro_step"),
    "an array": (lambda api: api["structs"]["zoff_norm_sum"]["fields"][0].update(array=81), "zoff_norm_sum::words"),
    "a callback": (lambda api: api["structs"]["zoff_nccl_opts"]["fields"][5]["callback"].update(result="void"), "zoff_nccl_opts::broadcast"),
    "a missing field": (lambda api: api["structs"]["zoff_step_info"]["fields"].pop(), "names"),
    "a struct's size": (lambda api: api["structs"]["zoff_plan_info"].update(size=200), "zoff_plan_info"),
    "an alignment": (lambda api: api["structs"]["zoff_step_culprit"].update(align=4), "zoff_step_culprit"),
    "an enumerator": (lambda api: api["enums"]["zoff_status"]["values"][3].update(value=-4), "ZOFF_ERR_STATE"),
    "a missing enumerator": (lambda api: api["enums"]["zoff_tier"]["values"].pop(), "ZOFF_TIER_NVME"),
    "a macro": (lambda api: api["macros"]["ZOFF_OFF"].update(value=-2.0), "ZOFF_OFF"),
    "a pointer": (lambda api: api["macros"]["ZOFF_STREAM_DEFAULT"].update(value=2), "ZOFF_STREAM_DEFAULT"),
    "a macro's call": (lambda api: api["macros"]["zoff_engine_open"].update(args=["opts", "params", "count"]), "zoff_engine_open"),
    "an argument": (lambda api: api["calls"]["zoff_step"]["args"][1].update(type="zoff_step_args *"), "zoff_step"),
    "a result": (lambda api: api["calls"]["zoff_version"].update(result="int"), "zoff_version"),
    "a callback type": (lambda api: api["callbacks"]["zoff_progress_fn"]["args"].pop(), "zoff_progress_fn"),
    "a missing call": (lambda api: api["calls"].pop("zoff_isa"), "zoff_isa: not in the JSON"),
    "an init macro": (lambda api: api["structs"]["zoff_step_args"].update(init="ZOFF_STEP_INFO_INIT"), "ZOFF_STEP_INFO_INIT"),
}


def main():
    args = arguments(__doc__)
    with open(args.api, encoding="utf-8") as file:
        api = json.load(file)
    bad = 0
    for name, (change, word) in MUTANTS.items():
        mutant = copy.deepcopy(api)
        change(mutant)
        found = complaints(mutant, args.cxx, args.include, args.symbols)
        if not any(word in complaint for complaint in found):
            print(f"{name} passes, or without \"{word}\": {found}")
            bad += 1
    print(f"{len(MUTANTS)} mutants, {bad} of them not noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
