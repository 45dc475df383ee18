#!/bin/sh
# Runs every test command given, as many at a time as there are cores, and sums their
# "N passed, N failed, N skipped". A program that ends without that line, or badly with it, counts
# as one failure more.
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0 started=0 shown=0
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# Waits for the oldest test that runs, shows what it printed and counts it.
collect() {
    shown=$((shown + 1))
    read -r pid ran <"$dir/$shown.test"
    wait "$pid"
    status=$?
    echo "$ran"
    line=$(tail -n 1 "$dir/$shown.out")
    sed -e '$d' -e '/^$/d' "$dir/$shown.out"
    counts=$(printf '%s\n' "$line" |
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ -z "$counts" ]; then
        printf '%s\n%s: ended with status %s and no summary\n' "$line" "$ran" "$status"
        counts='0 1 0'
    elif [ "$status" -ne 0 ] && [ "${counts#* 0 }" != "$counts" ]; then
        echo "$ran: status $status but nothing failed"
        counts="${counts%% *} 1 ${counts##* }"
    fi
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

for test in "$@"; do
    [ $((started - shown)) -lt "$jobs" ] || collect
    started=$((started + 1))
    $test >"$dir/$started.out" 2>&1 </dev/null &
    echo "$! $test" >"$dir/$started.test"
done
while [ $shown -lt $started ]; do
    collect
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
