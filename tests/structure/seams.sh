#!/bin/sh
# seams.sh CC CXX ROOT LIBRARY: checks that the headers of seams/ compile alone, and that the library does not implement them
# yet.
cc=$1 cxx=$2 root=$3 library=$4 failed=0
for header in "$root"/seams/*.h; do
    "$cc" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$root/include" -x c "$header" || failed=1
    "$cxx" -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I"$root/include" -x c++ "$header" || failed=1
done
exported=$(nm -D --defined-only "$library" | sed 's/.* //')
for name in $(sed -n 's/^[a-z][a-z_ ]*[ *]\(zoff_[a-z_]*\)(.*/\1/p' "$root"/seams/*.h); do
    if echo "$exported" | grep -qx "$name"; then
        echo "$name is in the library: take it out of seams/"
        failed=1
    fi
    count=$((count + 1))
done
[ "${count:-0}" -gt 4 ] || { echo "seams/ declares ${count:-0} functions: the pattern finds none"; failed=1; }
exit $failed
