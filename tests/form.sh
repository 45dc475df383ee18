#!/bin/sh
# What every source keeps to: lengths, ASCII, one wall a room. In make test, so that a line too long
# is seen within a second; make check asks clang-format, whose versions differ.
passed=0 failed=0

judge() { # judge NAME WHAT-IS-WRONG: nothing is, if it is empty
    [ -z "$2" ] && passed=$((passed + 1)) && return
    printf '%s\n' "$2"
    echo "failed $1"
    failed=$((failed + 1))
}

judge columns "$(awk 'length > 100 { print FILENAME ":" FNR ": over 100 columns" }' \
    pim_hw.h pimattn.h examples/*.[ch] tests/*.[ch] bench/*.[ch])"
for header in pim_hw.h pimattn.h; do
    lines=$(($(wc -l <$header)))
    [ $lines -le 5000 ] || echo "$header: over 5,000 lines, to be simplified: $lines"
    judge "lines $header" "$([ $lines -le 10080 ] || echo "$header: over 10,080 lines: $lines")"
    judge "ascii $header" "$(LC_ALL=C grep -n '[^ -~]' $header)"
    judge "walls $header" "$(grep -o '^ \* \[[HA][0-9]*\] [A-Z]' $header | sort | uniq -d)"
    judge "words $header" "$(grep -n -w -e restrict -e goto -e TODO $header)"
done
# CFLAGS of the caller come on top of what headers and bits need; the last -O counts.
judge "make CFLAGS=" "$(MAKEFLAGS= OPT=-O2 make -n -B CFLAGS=-O0 demo 2>&1 | awk '
    / -c | examples\// { n++; if (!/ -I\. / || !/ -ffp-contract=off / || !/-O2 .*-O0 /) print }
    END { if (n != 2) print n " compilations instead of 2" }')"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
