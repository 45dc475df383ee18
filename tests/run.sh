#!/bin/sh
# Runs every test command given, as many at a time as there are cores, then shows what they printed
# and sums their "N passed, N failed, N skipped". A program that ends without that line, or badly
# with it, counts as one failure more.
if [ "$1" = --one ]; then # --one FILE COMMAND
    $3 >"$2.out" 2>&1 </dev/null
    echo $? >"$2.status"
    exit 0
fi
# glibc keeps what tests give back: half of their time went into memory asked for anew.
export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0 n=0
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

for test in "$@"; do
    n=$((n + 1))
    printf '%s\0%s\0' "$dir/$n" "$test"
done | xargs -0 -n 2 -P "$jobs" sh "$0" --one

n=0
for test in "$@"; do
    n=$((n + 1))
    status=$(cat "$dir/$n.status")
    echo "$test"
    line=$(tail -n 1 "$dir/$n.out")
    sed -e '$d' -e '/^$/d' "$dir/$n.out"
    counts=$(printf '%s\n' "$line" |
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ -z "$counts" ]; then
        printf '%s\n%s: ended with status %s and no summary\n' "$line" "$test" "$status"
        counts='0 1 0'
    elif [ "$status" -ne 0 ] && [ "${counts#* 0 }" != "$counts" ]; then
        echo "$test: status $status but nothing failed"
        counts="${counts%% *} 1 ${counts##* }"
    fi
    passed=$((passed + ${counts%% *})) skipped=$((skipped + ${counts##* }))
    counts=${counts#* }
    failed=$((failed + ${counts%% *}))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
