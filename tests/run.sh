#!/bin/sh
# Runs every test command given and sums their "N passed, N failed, N skipped".
# A program that ends without that line, or badly with it, counts as one failure more.
passed=0 failed=0 skipped=0
for test in "$@"; do
    echo "$test"
    out=$($test 2>&1)
    status=$?
    line=$(printf '%s\n' "$out" | tail -n 1)
    printf '%s\n' "$out" | sed -e '$d' -e '/^$/d'
    counts=$(printf '%s\n' "$line" |
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ -z "$counts" ]; then
        printf '%s\n%s: ended with status %s and no summary\n' "$line" "$test" "$status"
        counts='0 1 0'
    elif [ "$status" -ne 0 ] && [ "${counts#* 0 }" != "$counts" ]; then
        echo "$test: status $status but nothing failed"
        counts="${counts%% *} 1 ${counts##* }"
    fi
    set -- $counts "$@" # the list of the loop is already fixed
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    shift 3
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
