#!/bin/sh
# The wide matrix of make check. Runs what is installed and says what it skipped. WARN: warnings.
# Every step writes a log into build/check; failing ones are shown.
dir=build/check
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
warn=$WARN
warn_cpp=$(echo "$WARN" | sed 's/-Wstrict-prototypes//; s/-Wmissing-prototypes//')
passed=0 failed=0 skipped=0 running=0
rm -rf "$dir"
mkdir -p "$dir"

has() {
    command -v "$1" >/dev/null 2>&1
}

skip() {
    skipped=$((skipped + 1))
    echo "skipped $1: $2"
}

# Counts the steps that have ended; shows the end of the logs of those that failed.
gather() {
    for result in "$dir"/*.result; do
        [ -e "$result" ] || return 0
        name=$(basename "$result" .result)
        read -r status seconds <"$result"
        if [ "$status" = 0 ]; then
            passed=$((passed + 1))
            echo "ok $name, $seconds s"
        else
            failed=$((failed + 1))
            echo "failed $name, $seconds s"
            grep -E 'fail|rror|no summary|fault' "$dir/$name.log" | head -n 12 | sed 's/^/    /'
            tail -n 4 "$dir/$name.log" | sed 's/^/    /'
        fi
        rm "$result"
        running=$((running - 1))
    done
}

collect() {
    wait
    gather
}

# step NAME COMMAND..: beside others, as many as there are cores.
step() {
    while [ $running -ge "$jobs" ]; do
        sleep 1
        gather
    done
    step_name=$1
    begun=$(date +%s)
    shift
    (
        "$@" >"$dir/$step_name.log" 2>&1 </dev/null
        echo "$? $(($(date +%s) - begun))" >"$dir/$step_name.ended"
        mv "$dir/$step_name.ended" "$dir/$step_name.result"
    ) &
    running=$((running + 1))
}

# alone NAME COMMAND..: with nothing beside it.
alone() {
    collect
    step "$@"
    collect
}

# --- Sources of the header matrix ---------------------------------------------------------

functions() {
    sed -n "s/^$2 .*[ *]\\($1_[a-z0-9_]*\\)(.*/\\1/p" "$3" | grep -v _i_ | sort -u
}

# A table with the address of every public function: all are declared, defined and linked.
table() {
    echo 'typedef void (*any_function)(void);'
    echo 'extern any_function all_functions[];'
    echo 'any_function all_functions[] = {'
    for function in $1; do
        echo "    (any_function)$function,"
    done
    echo '};'
}

hw=$(functions pimhw PIMHW_API pim_hw.h)
attn=$(functions pimattn PIMATTN_API pimattn.h)
main='int main(void) { return all_functions[0] == 0; }'

echo '#include "pim_hw.h"' >"$dir/hw_alone.c"
echo '#include "pimattn.h"' >"$dir/attn_alone.c"
printf '#define PIMHW_IMPLEMENTATION\n#include "pim_hw.h"\n' >"$dir/hw_built.c"
printf '#define PIMATTN_IMPLEMENTATION\n#include "pimattn.h"\n' >"$dir/attn_built.c"
cat >"$dir/takes_apart.c" <<'END'
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
int main(void)
{
    pimattn_engine *e;
    pimattn_config c = {.shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16}};
    return pimattn_engine_create(&e, &c, NULL) != PIMATTN_ERR_CONFIG;
}
END
printf '#define PIMATTN_IMPLEMENTATION\n#include "pim_hw.h"\n#include "pimattn.h"\n' >"$dir/hw_first.c"
printf '#include "pimattn.h"\n#define PIMHW_IMPLEMENTATION\n#include "pim_hw.h"\n%s\n%s\n%s\n' \
    '#define PIMATTN_IMPLEMENTATION' '#include "pimattn.h"' '#include "pim_hw.h"' >"$dir/attn_first.c"
{
    printf '#define PIMHW_STATIC\n#define PIMHW_IMPLEMENTATION\n#include "pim_hw.h"\n'
    table "$hw"
} >"$dir/hw_static.c"
{
    printf '#define PIMHW_STATIC\n#define PIMATTN_STATIC\n#define PIMATTN_IMPLEMENTATION\n'
    printf '#include "pimattn.h"\n'
    table "$hw $attn"
} >"$dir/attn_static.c"
{
    printf '#include "pimattn.h"\n'
    table "$hw $attn"
    echo "$main"
} >"$dir/user.c"

# What other headers define, those of Windows above all.
{
    printf '#include <%s.h>\n' assert float math stdarg stdlib string
    printf '#define %s\n' near far IN OUT 'small char' 'interface struct' 'I 1' 'linux 1' 'unix 1' \
        'min(a, b) ((a) < (b) ? (a) : (b))' 'max(a, b) ((a) > (b) ? (a) : (b))'
    printf '#define PIMATTN_IMPLEMENTATION\n#include "pimattn.h"\n'
} >"$dir/macros.c"

# compiles CC STD LANGUAGE WARNINGS: every source of the matrix, and both of two source files. Of
# standards after the first what includes all functions as public and as static ones.
compiles() {
    base="$1 -std=$2 -x $3 -ffp-contract=off -I. $4"
    more=
    level=-O0
    if [ "$2" = c99 ]; then
        more='hw_built hw_static hw_first attn_first macros'
        level=-O2
    fi
    for source in hw_alone attn_alone attn_built attn_static user $more; do
        case $source in *_first | macros) level=-O0 ;; esac # the same functions once more
        $base $level -c -o "$dir/$1-$2-$source.o" "$dir/$source.c" || return 1
    done
    $1 -o "$dir/$1-$2-two" "$dir/$1-$2-user.o" "$dir/$1-$2-attn_built.o" -lm -lstdc++ 2>/dev/null ||
        $1 -o "$dir/$1-$2-two" "$dir/$1-$2-user.o" "$dir/$1-$2-attn_built.o" -lm || return 1
    "$dir/$1-$2-two"
}

# A C++ user of functions built as C.
mixed() {
    $1 -o "$dir/$1-mixed" "$dir/$1-c++11-user.o" "$dir/$1-c99-attn_built.o" -lm && "$dir/$1-mixed"
}

# Nothing but our prefixes outside, no writable data, nothing of the system that style.md forbids.
symbols() {
    for source in hw_built attn_built; do
        object="$dir/$1-plain-$source.o"
        $1 -std=c99 -O2 -ffp-contract=off -fno-pic -fno-pie -I. -c -o "$object" "$dir/$source.c" ||
            return 1
        if nm -g --defined-only "$object" | awk 'NF == 3 { print $3 }' |
            grep -v -e '^pimhw_' -e '^pimattn_'; then
            echo "$source: these names have no prefix"
            return 1
        fi
        if nm -g --defined-only "$object" | awk '{ print $3 }' | grep -e '_i_'; then
            echo "$source: these internal names are visible"
            return 1
        fi
        if nm -u "$object" | awk '{ print $2 }' | grep -x -E \
            'v?f?printf|puts|putchar|fopen|exit|abort|getenv|setlocale|time|clock|rand|pthread.*'; then
            echo "$source: the headers must not use these"
            return 1
        fi
        size -A "$object" | awk '/^\.(data|bss|tdata|tbss)/ { n += $2; print } END { exit n > 0 }' ||
            return 1
    done
    nm -g --defined-only "$dir/$1-plain-attn_built.o" | awk '{ print $3 }' | sort >"$dir/$1-defined"
    echo "$hw $attn" | tr ' ' '\n' | sort | cmp - "$dir/$1-defined"
}

# Without asserts, and as a debugger wants it, no warning comes that -O2 does not give.
released() {
    for options in '-O2 -DNDEBUG' '-O3 -DNDEBUG' '-Og -DNDEBUG' -Og; do
        $1 -std=c99 $options -DPIMATTN_SIMD=0 -I. $warn -c -o "$dir/$1-released.o" \
            "$dir/attn_built.c" || return 1
    done
}

# later CC STANDARD LANGUAGE WARNINGS: standards after those promised warn of nothing.
later() {
    $1 -std=$2 -x $3 -I. $4 -fsyntax-only "$dir/attn_built.c"
}

refuses_fast_math() {
    ! $1 -std=c99 -ffast-math -I. -fsyntax-only "$dir/attn_built.c" &&
        if [ "$1" = gcc ]; then
            ! gcc -std=c99 -funsafe-math-optimizations -I. -fsyntax-only "$dir/attn_built.c"
        else # its macros do not say: the first that asks for an engine is told
            $1 -O2 -funsafe-math-optimizations -I. "$dir/takes_apart.c" -o "$dir/takes_apart" -lm &&
                "$dir/takes_apart"
        fi
}

# The README's first program, built as it says, prints what stands below it.
readme() {
    awk '/^```/ { k++; next } k == 1' README.md >"$dir/readme.c"
    awk '/^```/ { k++; next } k == 3' README.md >"$dir/readme.want"
    cc -O2 -ffp-contract=off -I. "$dir/readme.c" -o "$dir/readme" -lm && [ -s "$dir/readme.want" ] &&
        "$dir/readme" | cmp - "$dir/readme.want"
}

# For programs that use functions built elsewhere.
built='-DPIMHW_IMPLEMENTED -DPIMATTN_IMPLEMENTED'

# tests NAME CC OPTIONS [LDFLAGS]: make test in a directory of its own.
tests() {
    CC=$2 OPT=$3 BUILD="$dir/$1.build" make -s test JOBS="$jobs" CC="$2" OPT="$3" LDFLAGS="$LDFLAGS $4" \
        BUILD="$dir/$1.build"
}

# Linked with the address sanitizer, which else took half an hour.
kept="$dir/kept.o -Wl,--wrap=malloc,--wrap=realloc,--wrap=free"

# Benches compile, and say what they take; --nonsense and 0 ends them with words and status 2.
benches() {
    make -s all JOBS=1 BUILD="$dir/all.build" || return 1
    status=0
    for bench in $(basename -s .c bench/*.c); do
        "$dir/all.build/$bench" --help | grep -q "^usage: .*/$bench" || status=1
        wrong --nonsense 0 || status=1
    done
    bench=decode
    for option in types groups tokens pages kernels threads seqs dim rounds; do
        wrong --$option && wrong --$option x && wrong --$option 1,, || status=1
    done
    for option in '--groups 0' '--groups 9' '--groups 64' '--dim 0' '--dim 257' \
        '--tokens 0' '--tokens 1048577' \
        '--threads 0' '--threads 3' '--rounds 0' '--rounds 2x' '--types f16,' '--pages 8192' \
        '--threads 1,1' '--pages 1 --tokens 65536' '--types bf1' '--seqs 257'; do
        wrong $option || status=1
    done
    "$dir/all.build/decode" --rounds 1 --help | grep -q '^usage: ' || status=1
    few='--tokens 64 --pages 0 --groups 8 --threads 1 --rounds 1'
    "$dir/all.build/decode" --types bf16,f16 $few >"$dir/bench.out" || status=1
    grep -q '^f16,' "$dir/bench.out" && grep -q '^bf16,' "$dir/bench.out" || status=1
    # a page and a tile that are not full
    "$dir/all.build/decode" --types int8 $few --tokens 70 --pages 24,0 >"$dir/bench.out" || status=1
    [ "$(grep -c '^int8,64,8,70,' "$dir/bench.out")" -ge 4 ] || status=1
    grep -q ',neon,' "$dir/bench.out" || wrong --kernels neon || status=1
    bench=prefill
    wrong --new && wrong --new 16x && wrong --context 100 --new 16 || status=1
    bench=pages
    wrong 64x && wrong 64 64 1 17 && wrong 64 64 1 1 15 && wrong 64 64 1 1 1 1 && wrong 64 7 &&
        wrong 1048576 && wrong 131072 1 || status=1
    bench=ggml
    wrong "$dir" && wrong "$dir" 0 && wrong "$dir" variants || status=1
    bench=sparse
    wrong "$dir" || status=1
    printf 'PKVC\377\377\377\177\1\0\0\0\1\0\0\0\1\0\0\0\377\377\377\177\0\0\0\0' \
        >"$dir/stories260K_once_n256.attn"
    wrong "$dir" || status=1
    grep -q 'byte 4: n_layers' "$dir/bench.err" || status=1
    "$dir/all.build/prefill" --context 0 --new 64 --rounds 1 >"$dir/bench.out" || status=1
    if [ -e /dev/full ]; then
        "$dir/all.build/prefill" --context 0 --new 64 --rounds 1 >/dev/full 2>"$dir/bench.err" &&
            echo "prefill: a full disk is taken for good" && status=1
        "$dir/all.build/decode" --help >/dev/full 2>"$dir/bench.err" &&
            echo "decode --help: a full disk is taken for good" && status=1
    fi
    return $status
}

wrong() { # wrong OPTIONS..: of $bench
    "$dir/all.build/$bench" "$@" >"$dir/bench.out" 2>"$dir/bench.err" </dev/null
    [ $? -eq 2 ] && [ "$(wc -l <"$dir/bench.err")" -eq 1 ] && [ ! -s "$dir/bench.out" ] && return
    echo "$bench $*: taken: $(head -n 1 "$dir/bench.err")"
    return 1
}

works_with() {
    echo 'int main(void) { return 0; }' >"$dir/probe.c"
    "$@" -o "$dir/probe" "$dir/probe.c" >/dev/null 2>&1 && "$dir/probe" >/dev/null 2>&1
}

# --- The steps ----------------------------------------------------------------------------

for cc in gcc clang; do
    if ! has $cc; then
        skip "$cc" "not installed"
        continue
    fi
    for std in c99 c11; do
        step "headers_${cc}_$std" compiles $cc $std c "$warn"
    done
    echo '#include <cstddef>' >"$dir/probe.cpp"
    if $cc -std=c++11 -x c++ -fsyntax-only "$dir/probe.cpp" 2>/dev/null; then
        step "headers_${cc}_c++11" compiles $cc c++11 c++ "$warn_cpp"
        collect
        step "mixed_$cc" mixed $cc
    else
        skip "headers_${cc}_c++11" "no C++ library"
    fi
    step "symbols_$cc" symbols $cc
    step "released_$cc" released $cc
    step "later_${cc}_c17" later $cc c17 c "$warn"
    if $cc -std=c++20 -x c++ -fsyntax-only "$dir/probe.cpp" 2>/dev/null; then
        step "later_${cc}_c++20" later $cc c++20 c++ "$warn_cpp"
    else
        skip "later_${cc}_c++20" "no C++20"
    fi
    step "fast_math_refused_$cc" refuses_fast_math $cc
done
step benches benches
step readme readme
if has x86_64-w64-mingw32-gcc; then
    mkdir -p "$dir/windows"
    windows() {
        for opt in -O0 -O2; do
            x86_64-w64-mingw32-gcc -std=c99 $opt $warn -Werror -ffp-contract=off -I. -c \
                -o "$dir/windows/built.o" "$dir/attn_built.c" || return 1
        done
        for test in $of_windows; do
            use="$built $dir/windows/built.o"
            [ "${test%_cache}" = "$test" ] || use= # looks inside
            x86_64-w64-mingw32-gcc -std=c99 -O2 -ffp-contract=off -I. -o "$dir/windows/$test.exe" \
                tests/$test.c $use -lm || return 1
        done
    }
    windows_run() { # in one session: a server of wine that ends takes the next program with it
        for test in $of_windows; do
            echo "@$dir/windows/$test.exe" | tr / '\\'
            echo '@echo status %errorlevel%'
        done >"$dir/windows/run.bat"
        "$wine" cmd /c "$dir\\windows\\run.bat" >"$dir/windows/out" 2>"$dir/windows/err"
        cat "$dir/windows/out"
        [ "$(grep -c '^status 0' "$dir/windows/out")" -eq 3 ]
    }
    of_windows='law_bits contract_cache golden'
    wine=$(command -v wine64 || command -v wine || echo /usr/lib/wine/wine64)
    alone windows windows
    if [ -x "$wine" ]; then
        step windows_run windows_run
    else
        skip windows_run "no wine"
    fi
else
    skip windows "no gcc for Windows"
fi
if has clang-format; then
    step clang_format clang-format --dry-run -Werror $(find . -maxdepth 1 -name '*.h') \
        $(find examples tests bench -name '*.[ch]')
else
    skip clang_format "not installed"
fi
collect

if works_with gcc -fsanitize=address; then
    gcc -std=c99 -O2 $warn -x c -c -o "$dir/kept.o" tests/kept.h || exit 1
fi
for cc in gcc clang; do
    has $cc || continue
    # make test has run with -O2; -O0 by one compiler is enough for the hour, addresses by one, too
    [ $cc = gcc ] && opt=-O0 san=address,undefined link=$kept || opt=-O2 san=undefined link=
    sanitize="-fsanitize=$san -fno-sanitize-recover=all -fno-omit-frame-pointer"
    alone "tests_$cc$opt" tests "$cc$opt" $cc $opt
    if works_with $cc $sanitize; then
        alone "tests_${cc}_sanitized" tests "$cc-sanitized" $cc "-O1 -g $sanitize" "$link"
    else
        skip "tests_${cc}_sanitized" "no sanitizer library"
    fi
done

# What each of the following takes of make test's.
alone programs make -s build/tests/oracle_aim build/tests/law_skip build/timeline build/serve

if works_with gcc -fsanitize=thread; then
    threads() {
        gcc -std=c99 -O1 -g -fsanitize=thread -ffp-contract=off -I. -pthread -o "$dir/threads" \
            tests/law_bits.c -lm && "$dir/threads" alone
    }
    step threads_sanitized threads
else
    skip threads_sanitized "no thread sanitizer"
fi

if works_with gcc -fsanitize=address; then
    lives() {
        gcc -std=c99 -O1 -g -fsanitize=address -ffp-contract=off -I. -pthread -o "$dir/lives" \
            tests/law_cache.c $kept -lm && "$dir/lives" 1000000
    }
    step lives_sanitized lives
else
    skip lives_sanitized "no address sanitizer"
fi

# Every listing of the simulator's rows is judged; make test leaves out the longest.
listings() {
    build/tests/oracle_aim "$DATA/../oracle/aim.csv" 99999999999
}
if [ -f "$DATA/../oracle/aim.csv" ]; then
    step listings listings
else
    skip listings "no $DATA/../oracle/aim.csv"
fi

# Programs that make test has no time for: its cases are from 1 on.
skips() {
    for first in 10001 20001 30001 40001 50001 60001 70001 80001; do
        build/tests/law_skip $first || return 1
    done
}
step skips skips

# Rows fetched as on the other kind of CPU, as the kernels are used: make test asks at -O1.
fetching() {
    for cc in gcc clang; do
        has $cc || continue
        $cc -std=c99 -O2 -ffp-contract=off -I. -o "$dir/fetching" tests/law_cache.c -lm &&
            "$dir/fetching" 500 || return 1
    done
}
step fetching fetching

if has chromium || has chromium-browser || has google-chrome; then
    alone timeline_page sh tests/timeline_page.sh build
else
    skip timeline_page "no chromium"
fi

# Other architectures: the same bytes (law_hash is pinned) and the same rules.
# A story that goes on by turns here and on another architecture, from saved state to saved state:
# the text, also of what was swapped out meanwhile, is the expected one. Each end of it compares the
# texts with those of running alone.
relay() {
    here="build/serve --quiet" there="qemu-$1 $dir/$1-serve --quiet"
    model="--model $DATA/stories260K.bin --tokenizer $DATA/tok512.bin --pool 400" f="$dir/$1.relay"
    cat "$DATA/expected_stories260K_once_n256.txt" "$DATA/expected_stories260K_dog_n256.txt" \
        >"$f.want"
    $here $model -n 256 -p 'Once upon a time' -p 'One day, a dog' --stop 60 --save "$f.60" &&
        $there $model --restore "$f.60" --stop 120 --save "$f.120" &&
        $here $model --restore "$f.120" --stop 180 --save "$f.180" &&
        $there $model --restore "$f.180" --stop 240 --save "$f.240" &&
        $here $model --restore "$f.240" >"$f.here" && cmp "$f.want" "$f.here" &&
        $there $model --restore "$f.180" >"$f.there" && cmp "$f.want" "$f.there"
}

gcc_of() { # of 32 bits arm
    [ "$1" = arm ] && echo arm-linux-gnueabihf-gcc || echo "$1-linux-gnu-gcc"
}

# On s390x -std=c99 alone makes gcc compute floats in double.
emulated() {
    compile="$(gcc_of "$1") -static -std=c99 -O2 -ffp-contract=off $warn -I. -pthread"
    [ "$1" != s390x ] || compile="$compile -fexcess-precision=fast"
    $compile -c -o "$dir/$1.o" "$dir/attn_built.c" || return 1
    [ "$1" != arm ] || compile="$compile -Wno-conversion" # sizes of tests are not cast
    if [ -f "$DATA/stories260K.bin" ]; then
        $compile -o "$dir/$1-serve" examples/serve.c $built "$dir/$1.o" -lm && relay "$1" || return 1
    fi
    tests="law_hash attn_numbers contract_attn contract_cache"
    [ "$1" != aarch64 ] || tests="$tests law_bits law_cache oracle_attention" # a kernel of its own
    for test in $tests; do
        use="$built $dir/$1.o"
        [ "${test%_cache}" = "$test" ] || use= # looks inside
        $compile -o "$dir/$1-$test" tests/$test.c $use -lm && "qemu-$1" "$dir/$1-$test" || return 1
    done
    # states saved there and here are the same bytes, and each restores the other's
    here="$dir/state" there="qemu-$1 $dir/$1-contract_cache" f="$dir/$1.state"
    $here save "$f.here" && $there restore "$f.here" && $there save "$f.there" &&
        $here restore "$f.there" && cmp "$f.here" "$f.there"
}
alone state cc -std=c99 -O2 -ffp-contract=off -I. -pthread -o "$dir/state" tests/contract_cache.c -lm
[ -f "$DATA/stories260K.bin" ] || skip stories_emulated "no $DATA"
for arch in aarch64 s390x riscv64 arm; do
    if has $(gcc_of $arch) && has qemu-$arch; then
        step "emulated_$arch" emulated $arch
    else
        skip "emulated_$arch" "no $(gcc_of $arch) or no qemu-$arch"
    fi
done
collect

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
