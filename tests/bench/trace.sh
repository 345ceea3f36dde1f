#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trace.sh PYTHON ROOT STEP: a trace of the benchmark of the whole step is sound. Reads, updates and writes are beside the
# program's work. bench/check-trace refuses traces that are not. bench/plot_trace draws two of the steps.
python=$1 root=$2 step=$3 failed=0
scratch=$(mktemp -d "${ZOFF_TEST_DIR:-.}/zoff-trace-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

refuses() { # words of the complaint, options, events
    echo "{\"traceEvents\": [$3]}" >"$scratch/bad.json"
    if "$python" "$root/bench/check-trace" $2 "$scratch/bad.json" >"$scratch/out" || ! grep -q "$1" "$scratch/out"; then
        echo "failed: '$1' is not the complaint about $3"
        cat "$scratch/out"
        failed=1
    fi
}
names='{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
       {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "t"}}'
span() { # name, begin, duration, more
    echo "{\"ph\": \"X\", \"name\": \"$1\", \"cat\": \"row\", \"pid\": 1, \"tid\": 1, \"ts\": $2, \"dur\": $3$4}"
}
args=', "args": {"step": 1, "bucket": 0}'
refuses 'phase of' '' '{"ph": "Q"}'
refuses 'X without dur' '' '{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1}'
refuses 'ts is -1' '' "$(span a -1 1)"
refuses 'has no name' '' "$(span a 1 1)"
refuses 'overlaps the end of' '' "$names, $(span a 1 2), $(span b 2 2)"
refuses 'does not end' '' "$names, {\"ph\": \"b\", \"name\": \"a\", \"cat\": \"c\", \"id\": \"1\", \"pid\": 1, \"tid\": 1, \"ts\": 1}"
refuses 'did not begin' '' "$names, {\"ph\": \"e\", \"name\": \"a\", \"cat\": \"c\", \"id\": \"1\", \"pid\": 1, \"tid\": 1, \"ts\": 1}"
refuses 'has the rows' '--rows fetch,update' "$names, $(span update 1 1 "$args")"
refuses 'no row is in the trace' '--rows update' "$names"
refuses 'no step of an engine' '--under' "$names, $(span update 1 1 "$args")"
echo '{"traceEvents": [' >"$scratch/bad.json"
"$python" "$root/bench/check-trace" "$scratch/bad.json" >/dev/null
[ $? -eq 2 ] || { echo "failed: half a file is no trace" && failed=1; }
for program in check-trace plot_trace; do
    sed 's/"version": 1}/"version": 2}/' "$root/tests/golden/trace.json" >"$scratch/new.json"
    "$python" "$root/bench/$program" "$scratch/new.json" >"$scratch/out" 2>&1 &&
        echo "failed: $program reads a newer trace" && failed=1
    grep -q 'new.json: .*it has version 2, and this program reads up to 1: use a newer one' "$scratch/out" ||
        { cat "$scratch/out" && failed=1; }
done
"$python" "$root/bench/check-trace" "$root/tests/golden/trace.json" || failed=1

ZOFF_TRACE="$scratch/t.json:10-12" "$step" --elements 2Mi --seconds 8 --only hidden --path "$scratch" >"$scratch/out" 2>&1
if [ ! -s "$scratch/t.json" ]; then
    cat "$scratch/out"
    exit 1
fi
if ! grep -q '"zoff_param_wait"' "$scratch/t.json"; then
    echo "skipped: the disk cannot be throttled here: $(grep -i throttle "$scratch/out" | head -1)"
    [ $failed -eq 0 ] && exit 77
    exit 1
fi
"$python" "$root/bench/check-trace" --under --rows measure,gate,fetch,update,flush "$scratch/t.json" || failed=1
"$python" "$root/bench/plot_trace" --out "$scratch/t.svg" "$scratch/t.json" || failed=1
[ "$(grep -c '<title>zoff_step_wait' "$scratch/t.svg")" -eq 2 ] || { echo "failed: the picture has not two steps" && failed=1; }
exit $failed
