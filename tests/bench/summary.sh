#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# summary.sh PYTHON ROOT: checks that bench/summary drops only the samples, and that bench/results holds its output.
python=$1 root=$2 failed=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
check() { # title, input, expected output
    if ! "$python" "$root/bench/summary" "$2" >"$scratch/out" || ! diff "$3" "$scratch/out"; then
        echo "failed: $1"
        failed=1
    fi
}
cat >"$scratch/run.json" <<'JSON'
{"bench": "aio", "holds": true, "race": [{"name": "a", "median": 2.5, "seconds": [1, 2.5, 3]}, {"name": "b", "median": 4}],
 "seconds": [7], "floor": {"bytes": 12}}
JSON
cat >"$scratch/summary.json" <<'JSON'
{"bench": "aio", "holds": true,
 "race": [
  {"name": "a", "median": 2.5},
  {"name": "b", "median": 4}],
 "floor": {"bytes": 12}}
JSON
check "samples go, figures and verdicts stay" "$scratch/run.json" "$scratch/summary.json"
for kept in "$root"/bench/results/*.json; do
    check "$kept is no summary: bench/summary makes one" "$kept" "$kept"
done
echo '{' >"$scratch/broken.json"
if "$python" "$root/bench/summary" "$scratch/broken.json" 2>"$scratch/out" || ! grep -q broken.json "$scratch/out"; then
    echo "failed: a broken file is refused by its name"
    failed=1
fi
exit $failed
