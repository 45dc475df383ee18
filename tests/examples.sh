#!/bin/sh
# The example programs: help, wrong use, bad files, the expected texts of real models.
#   sh tests/examples.sh BUILD DATA
build=$1 data=$2
scratch=$build/tests/examples.tmp
passed=0 failed=0 skipped=0
mkdir -p "$scratch"

pass() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    echo "failed $*"
}

skip() {
    skipped=$((skipped + 1))
    echo "skipped $*"
}

# refuses NAME COMMAND..: exit status 2, nothing but one line on standard error.
refuses() {
    label=$1
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
    lines=$(wc -l <"$scratch/err")
    if [ $status -eq 2 ] && [ "$lines" -eq 1 ] && [ ! -s "$scratch/out" ]; then
        pass
    else
        fail "$label: status $status, $lines lines of error: $(head -n 2 "$scratch/err")"
    fi
}

# works NAME COMMAND..: exit status 0 and something on standard output.
works() {
    label=$1
    shift
    if "$@" >"$scratch/out" 2>"$scratch/err" </dev/null && [ -s "$scratch/out" ]; then
        pass
    else
        fail "$label: $(head -n 2 "$scratch/err")"
    fi
}

# is_json NAME COMMAND..: works, and braces and brackets of the output match, schema first.
is_json() {
    works "$@"
    if head -n 1 "$scratch/out" | grep -q '^{"schema": *[0-9]' &&
        awk '{ o += gsub(/[{[]/, ""); c += gsub(/[]}]/, "") } END { exit o != c }' "$scratch/out"
    then
        pass
    else
        fail "$1: not JSON: $(head -n 1 "$scratch/out")"
    fi
}

# same NAME FILE FILE
same() {
    if [ -s "$2" ] && cmp -s "$2" "$3"; then
        pass
    else
        fail "$1: $(diff "$2" "$3" | head -n 3)"
    fi
}

for source in examples/*.c; do
    name=$(basename "$source" .c)
    [ $name != merge_mpi ] || [ -x "$build/$name" ] || continue # where there is no MPI
    works "$name --help" "$build/$name" --help
    refuses "$name --nonsense" "$build/$name" --nonsense
done
for name in llama replay aim_trace; do
    refuses "$name without files" "$build/$name"
    refuses "$name of a missing file" "$build/$name" "$scratch/none" "$scratch/none"
done

# The README's first program prints what stands below it; make check builds it as it says.
fence() { # fence N: the N-th block between fences
    awk -v n="$1" '/^```/ { k++; next } k == 2 * n - 1' README.md
}
fence 1 >"$scratch/readme.c"
fence 2 >"$scratch/readme.want"
if ${CC:-cc} ${OPT:--O2} -DPIMHW_IMPLEMENTED -DPIMATTN_IMPLEMENTED -I. "$scratch/readme.c" \
    "$build/library.o" -o "$scratch/readme" -lm && "$scratch/readme" >"$scratch/out" &&
    [ -s "$scratch/out" ] && cmp -s "$scratch/out" "$scratch/readme.want"; then
    pass
else
    fail "the README's program: $(head -n 2 "$scratch/out")"
fi

# What the words of options and values may be.
refuses "unknown preset" "$build/estimate" --device nonsense
refuses "unknown field" "$build/estimate" --set nonsense=1
refuses "bad value of a field" "$build/estimate" --set n_channels=0
refuses "huge value of a field" "$build/estimate" --set n_channels=99999999999
refuses "unknown partition" "$build/estimate" --partition nonsense
refuses "no number" "$build/estimate" --context 12x
refuses "option without value" "$build/estimate" --context
refuses "heads that do not divide" "$build/estimate" --heads 8 --kv-heads 3
refuses "context of more digits than a number" "$build/estimate" \
    --context 40960000000000000000000000
refuses "context of more digits than a number" "$build/estimate" \
    --context 00000000000000000000123456
refuses "context beyond 2^32" "$build/estimate" --context 8000000000
refuses "no field to set" "$build/estimate" --set =
grep -q -e --set "$scratch/err" && pass || fail "no field to set: $(cat "$scratch/err")"
works "estimate of the longest keys" "$build/estimate" --layers 1 --head-dim 65536
works "estimate of the most layers" "$build/estimate" --layers 65536
works "estimate of the most heads" "$build/estimate" --layers 1 --heads 65536 --kv-heads 65536
for shape in '--layers 65536 --heads 65536 --kv-heads 65536 --head-dim 65536' \
    '--layers 65536 --heads 65536 --kv-heads 65536 --head-dim 1'; do
    refuses "estimate $shape" "$build/estimate" $shape
    grep -q -e --layers "$scratch/err" && pass || fail "estimate $shape: $(cat "$scratch/err")"
done
works "estimate --refresh off and what refresh forbids" "$build/estimate" --layers 1 --refresh off \
    --set tREFI=100
refuses "sources as JSON" "$build/estimate" --sources --json
refuses "sources of a device that cannot be" "$build/estimate" --sources --device aim-gddr6 \
    --refresh on --set tREFI=100
refuses "--hfp-unit of another partition" "$build/estimate" --hfp-unit query_head
refuses "flash without banks" "$build/device" --device pam-ssd
refuses "what only ping-pong refuses" "$build/device_attention" --set out_entries=1 --json
for options in '' '--window 1024' '--kv-type int8' '--head-dim-v 64'; do # each takes fewer clocks
    is_json "estimate $options" "$build/estimate" $options --json
    ck=$(sed 's/.*"cycles_ck": \([0-9]*\).*/\1/' "$scratch/out")
    [ -z "$options" ] && all_ck=$ck
    [ -z "$options" ] || [ "$ck" -lt "$all_ck" ] && pass || fail "estimate $options: $ck of $all_ck"
done
refuses "estimate of a type without lanes" "$build/estimate" --kv-type f32
works "estimate" "$build/estimate"
is_json "estimate --json" "$build/estimate" --json
# energies_sum WHAT TOTAL PARTS: of the JSON that was printed last.
energies_sum() {
    awk -v total="\"$2\": " -v parts=".*\"$3\": {" '{
        match($0, total "[0-9.e+]*"); is = substr($0, RSTART + length(total), RLENGTH - length(total))
        sub(parts, ""); sub(/}.*/, ""); n = split($0, part, /[:,]/)
        for (i = 2; i <= n; i += 2) sum += part[i] }
        END { e = is ? sum / is - 1 : 1; exit !(n > 2 && e < 1e-14 && e > -1e-14) }' "$scratch/out" &&
        pass || fail "$1: energies do not sum: $(cat "$scratch/out")"
}
energies_sum "estimate --json" step_pJ step_energy_pJ
energies_sum "estimate --json, a layer" total_pJ energy_pJ
is_json "device --json" "$build/device" --json
energies_sum "device --json" total_pJ energy_pJ
# 32 bytes an input, 16 banks of 2 a result.
awk '{ match($0, /"link_bytes": [0-9]*/); bytes = substr($0, RSTART + 14, RLENGTH - 14)
    match($0, /"WRGB": [0-9]*/); n = substr($0, RSTART + 8, RLENGTH - 8)
    match($0, /"RDMAC16": [0-9]*/); n += substr($0, RSTART + 11, RLENGTH - 11)
    exit !(n > 0 && bytes == 32 * n) }' "$scratch/out" && pass ||
    fail "device --json: other link_bytes: $(cat "$scratch/out")"
# What an estimate of the usual shape was when this was written: who changes a preset, a plan or a
# program sees it here.
for golden in 'in-order tcp 71487' 'in-order hfp 166133' 'static tcp 80824' 'static hfp 185080' \
    'ping-pong tcp 49067' 'ping-pong hfp 118210' 'dcs tcp 27878' 'dcs hfp 66998'; do
    set -- $golden
    ck=$("$build/estimate" --controller $1 --partition $2 | awk '$1 == "cycles_ck" { print $2 }')
    [ "$ck" = "$3" ] && pass || fail "estimate of $1, $2: $ck clocks, not $3 as it was"
done
# Queries of a KV head that open its rows one after the other open them more often.
opened() {
    "$build/estimate" "$@" | awk '$1 == "ACT16" { print $2 }'
}
[ "$(opened --no-row-reuse)" -gt "$(opened)" ] && pass ||
    fail "estimate --no-row-reuse: $(opened --no-row-reuse) rows, not more than $(opened)"
for preset in $("$build/device" --device '' 2>&1 | sed 's/.* none of //; s/,//g'); do
    [ $preset = pam-ssd ] || works "device --device $preset" "$build/device" --device $preset
done
works "device with a small buffer" "$build/device" --set in_entries=3 --set controller=2
grep -q '^    MAC16 *512$' "$scratch/out" && pass || fail "device with a small buffer: other MACs"
"$build/device" --help | grep -q "default aimx" && pass || fail "device --help: no default"
is_json "embed --json" "$build/embed" --json
is_json "attention --json" "$build/attention" --tokens 600 --json
works "attention on aim-gddr6" "$build/attention" --tokens 600 --device aim-gddr6
grep -q 'balanced on 16' "$scratch/out" && fail "attention: 32 channels are not 16" || pass
works "threads" "$build/threads" --tokens 1300 --workers 3
if OMP_THREAD_LIMIT=1 "$build/threads" --tokens 64 --workers 3 >"$scratch/out" &&
    ! grep '^openmp  *[^1 ]' "$scratch/out" >"$scratch/err" && grep -q 'least of' "$scratch/out"; then
    pass
else
    fail "threads under a limit: $(head -n 1 "$scratch/err")"
fi
works "most workers" "$build/threads" --tokens 64 --workers 64
refuses "no workers" "$build/threads" --workers 0
refuses "too many workers" "$build/threads" --workers 65
works "predict" "$build/predict"
[ "$(grep -c '^ph.f18 ' "$scratch/out")" -eq 10 ] && pass || fail "predict: $(grep ph.f18 "$scratch/out")"
is_json "predict --json" "$build/predict" --json
works "predict --csv" "$build/predict" --csv
awk -F, 'NR == 1 { n = NF } $1 !~ /^lol.f7.ffn/ && $2 ~ /exact|calibrated/ && ($5 > 1 || $5 < -1) { bad = 1 }
    NR > 1 { rows++; gsub(/"[^"]*"/, "") } NF != n { bad = 1 }
    END { exit bad || rows < 100 }' "$scratch/out" && pass || fail "predict --csv: $(head -n 2 "$scratch/out")"
grep -q '^ph.meta,calibrated,576,576,' "$scratch/out" && pass || fail "predict --csv: no ph.meta"
# row_opening was chosen for FFN1 and FFN2.
grep -q '^lol.f7.ffn[12],calibrated,' "$scratch/out" && ! grep '^lol.f7.ffn' "$scratch/out" |
    grep -q ,predicted, && pass || fail "predict --csv: $(grep -m 1 '^lol.f7.ffn' "$scratch/out")"
works "facil" "$build/facil"
grep -q '300 of 300 sums alike' "$scratch/out" && pass || fail "facil: $(head -n 3 "$scratch/out")"
is_json "facil --json" "$build/facil" --json
[ "$(grep -c '"holds": true' "$scratch/out")" -ge 14 ] && ! grep -q '"holds": false' "$scratch/out" &&
    pass || fail "facil: $(grep '"holds": false' "$scratch/out" | head -n 2)"
# Fig. 3: the prompt of the PIM's side is the SoC's, 148.6 ms; the NPU is its rival.
grep -q '"facil.f3".*"ours": 3.3967' "$scratch/out" && pass || fail "facil: $(grep facil.f3 "$scratch/out")"
is_json "prefix --json" "$build/prefix" --prompt 4000 --layers 1 --json
awk -F'"of_one_copy_and_tails": ' '{ exit !($2 + 0 >= 1 && $2 + 0 <= 1.05) }' "$scratch/out" &&
    pass || fail "prefix: $(cat "$scratch/out")"
refuses "too many requests" "$build/prefix" --requests 1025

# Speculation: exits badly where it comes to other bytes than plain decoding.
# fewer_calls NAME AGAIN: by the last JSON; and with a wrong mask of other branches less than nine in
# ten of at least AGAIN tokens would come out alike
fewer_calls() {
    awk -F'[:,]' -v least="$2" '{ exit !($6 + 0 < $4 + 0 && $6 + 0 > 0 && $10 + 0 >= least &&
        $12 * 10 >= $10 * 9) }' "$scratch/out" && pass || fail "$1: $(cat "$scratch/out")"
}
for seed in 1 2 3 4 5; do
    is_json "speculate --seed $seed" "$build/speculate" --seed $seed --json
    fewer_calls "speculate --seed $seed" 0
done
for options in '--branches 0' '--depth 0' '-n 1 -p A' '--branches 64 --depth 64' '--depth 1'; do
    works "speculate $options" "$build/speculate" $options -p ''
done
works "speculate from a prompt of several calls" "$build/speculate" -p "$(printf %0150d 7)"
refuses "speculate with a model alone" "$build/speculate" --model "$scratch/none"
refuses "speculate with a missing model" "$build/speculate" --model "$scratch/none" --tokenizer x
# too_long NAME COMMAND..: a prompt of more tokens than steps is refused, by all in the same words.
too_long() {
    refuses "$@" -n 3 -p 'much more than three'
    grep -q "'much more than three' has \(at least \)\{0,1\}[0-9]* tokens, more than -n 3" "$scratch/err" && pass ||
        fail "$1: $(cat "$scratch/err")"
}
for name in speculate serve tiers; do
    too_long "$name with a long prompt" "$build/$name"
    refuses "$name: a prompt of a control character" "$build/$name" -p "$(printf 'a\001')"
done
refuses "speculate: a very long prompt" "$build/speculate" -p "$(printf %0100000d 7)"
grep -q "has at least 100002 tokens" "$scratch/err" && pass ||
    fail "speculate: a very long prompt: $(tail -c 99 "$scratch/err")"
refuses "speculate: a prompt without pieces" "$build/speculate" -p "$(printf '\303\244')"
refuses "speculate beyond the positions" "$build/speculate" -n 5000
refuses "speculate without steps" "$build/speculate" -n 0

# Serving: exits badly where a request has another text alone. Small pools preempt.
texts_of() { # texts_of NAME FILE COMMAND..: its standard output
    label=$1 file=$2
    shift 2
    works "$label" "$@"
    cp "$scratch/out" "$file"
}
serve=$build/serve
texts_of "serve" "$scratch/served" "$serve"
for pool in 128 145 200 5000; do
    for gap in 0 1 9; do
        texts_of "serve --pool $pool --gap $gap" "$scratch/text" "$serve" --pool $pool --gap $gap \
            --json
        preempted=$(sed -n 's/.*"preempted": \([0-9]*\).*/\1/p' "$scratch/err")
        same "serve --pool $pool --gap $gap" "$scratch/served" "$scratch/text"
        grep -q '"last_step": [0-9]' "$scratch/err" || fail "serve --json: no last step"
        [ $pool = 5000 ] && [ "$preempted" = 0 ] || [ $pool = 128 ] || [ "${preempted:-0}" -gt 0 ] &&
            pass || fail "serve --pool $pool --gap $gap: preempted $preempted"
    done
done
prompt=$(printf %0150d 7)
works "serve prompts of several steps" "$serve" -p "$prompt" -p "$prompt" -n 200 --gap 1 --pool 320
# saves NAME FILE OPTIONS..: a state, and nothing is printed
saves() {
    label=$1 file=$2
    shift 2
    "$serve" "$@" --quiet --save "$file" >"$scratch/out" 2>"$scratch/err" && [ -s "$file" ] &&
        [ ! -s "$scratch/out" ] && pass || fail "$label: $(head -n 1 "$scratch/err")"
}
for stop in 1 30 49 53 150 400; do
    saves "serve --stop $stop" "$scratch/state" --stop $stop
    texts_of "serve --restore from $stop" "$scratch/text" "$serve" --restore "$scratch/state"
    same "serve --restore from $stop" "$scratch/served" "$scratch/text"
done
saves "serve --stop 40" "$scratch/state" --stop 40 --pool 200
saves "serve --stop 50 after 40" "$scratch/state2" --restore "$scratch/state" --stop 50 --pool 200
texts_of "serve --restore from 50" "$scratch/text" "$serve" --restore "$scratch/state2" --pool 300
same "serve --restore from 50" "$scratch/served" "$scratch/text"
refuses "serve --restore into a small pool" "$serve" --restore "$scratch/state" --pool 130
refuses "serve --restore by another model" "$serve" --restore "$scratch/state" --seed 2
refuses "serve --restore with prompts" "$serve" --restore "$scratch/state" -p A
refuses "serve --restore with a gap" "$serve" --restore "$scratch/state" --gap 4
refuses "serve --restore beyond --stop" "$serve" --restore "$scratch/state" --stop 3 \
    --save "$scratch/state2"
refuses "serve --restore of no file" "$serve" --restore "$scratch/none"
refuses "serve --restore of another file" "$serve" --restore README.md
refuses "serve --save with --json" "$serve" --stop 3 --save "$scratch/state2" --json
refuses "serve --save into nowhere" "$serve" --stop 3 --save "$scratch/none/file"
refuses "serve --restore of a directory" "$serve" --restore "$scratch"
grep -q directory "$scratch/err" && pass || fail "serve --restore of a directory: $(cat "$scratch/err")"
if [ -e /dev/full ]; then
    refuses "serve --save on a full disk" "$serve" --quiet --stop 9 --save /dev/full
    grep -q 'cannot be written' "$scratch/err" && pass ||
        fail "serve --save on a full disk: $(cat "$scratch/err")"
fi
# What is printed to a closed stream goes nowhere, and not into the file that is opened next.
"$serve" -n 20 -p A --stop 9 --save "$scratch/state" 2>"$scratch/err"
"$serve" -n 20 -p A --stop 9 --save "$scratch/state2" 2>&-
[ $? -eq 2 ] && pass || fail "serve --save without standard error"
same "serve --save without standard error" "$scratch/state" "$scratch/state2"
# byte 35: of the arrival of the first request, so that it would not come for 2^30 steps
printf '\100' | dd of="$scratch/state" bs=1 seek=35 conv=notrunc 2>"$scratch/err"
refuses "serve --restore of a late arrival" "$serve" --restore "$scratch/state"
grep -q arrival "$scratch/err" && pass || fail "serve --restore of a late arrival: $(cat "$scratch/err")"
refuses "serve --save without --stop" "$serve" --save "$scratch/text"
refuses "serve --stop without --save" "$serve" --stop 3
for n in 4 5 6 7; do # the usual pool holds at least one request
    works "serve of few steps" "$serve" -n $n -p A
done
refuses "serve with a pool too small" "$serve" --pool 127
refuses "serve with a model alone" "$serve" --model "$scratch/none"
saves "serve of two" "$scratch/state" --stop 9 -n 20 -p A -p B --gap 1
size=$(wc -c <"$scratch/state")
for bytes in 0 3 4 100 200 $((size / 2)) $((size - 1)); do
    head -c $bytes "$scratch/state" >"$scratch/bad"
    refuses "serve --restore of $bytes bytes" "$serve" --restore "$scratch/bad"
done
cat "$scratch/state" "$scratch/state" >"$scratch/bad"
refuses "serve --restore of two states" "$serve" --restore "$scratch/bad"
for at in 0 5 9 13 17 21 25 40 60 101 160 $((size / 3)) $((size / 2)) $((size - 9)) $((size - 1)); do
    byte=$(od -An -tu1 -j $at -N 1 "$scratch/state")
    cp "$scratch/state" "$scratch/bad"
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$scratch/bad" bs=1 seek=$at conv=notrunc 2>"$scratch/err"
    refuses "serve --restore with byte $at changed" "$serve" --restore "$scratch/bad"
done

# Tiers: exits badly where tokens in tiers give another text than in pages.
for options in '' '--hbm 1 --ddr 1' '--hbm 1 --ddr 1 --partials' '--ratio 1,1,1 --swaps 3' \
    '--ratio 1000,0.001,1 --host-path' '--swaps 0' '--hbm 5000' '--partials --swaps 1' '-n 3 -p A'; do
    works "tiers $options" "$build/tiers" $options
done
is_json "tiers --json" "$build/tiers" --json --sparse 4
# What moves after a step's attention was where it was in that step.
for swaps in 0 9; do
    works "tiers --swaps $swaps" "$build/tiers" -p '' -n 2 --hbm 1 --ddr 9 --ratio 100,10,1 --json \
        --swaps $swaps
    sed 's/.*\("in_fastest": [0-9.]*\).*/\1/' "$scratch/out" >"$scratch/in.$swaps"
done
same "tiers: the share in the fastest" "$scratch/in.0" "$scratch/in.9"
works "tiers --svg" "$build/tiers" --svg "$scratch/tiers.svg"
grep -q '</svg>' "$scratch/tiers.svg" && pass || fail "tiers --svg: no picture"
refuses "tiers of no ratio" "$build/tiers" --svg "$scratch/tiers.svg" --ratio 4,,4
grep -q "'4,,4'" "$scratch/err" && pass || fail "tiers --ratio: $(cat "$scratch/err")"
grep -q '</svg>' "$scratch/tiers.svg" && pass || fail "tiers --ratio: the picture is gone"
"$build/tiers" -n 5 -p A 2>"$scratch/err" --svg "$scratch/want" >"$scratch/out"
"$build/tiers" -n 5 -p A 2>"$scratch/err" --svg "$scratch/got" >&-
[ $? -eq 2 ] && pass || fail "tiers --svg without standard output"
same "tiers --svg without standard output" "$scratch/want" "$scratch/got"
refuses "tiers without room" "$build/tiers" --hbm 10 --ddr 10 --ssd 10
refuses "tiers with slots beyond memory" "$build/tiers" --hbm 4294967295
refuses "tiers with half a ratio" "$build/tiers" --ratio 3,1
refuses "tiers with a ratio of nothing" "$build/tiers" --ratio 3,0,1
refuses "tiers with a ratio of words" "$build/tiers" --ratio 3,nan,1
refuses "tiers with too many swaps" "$build/tiers" --swaps 5000
refuses "tiers by a missing model" "$build/tiers" --model "$scratch/none" --tokenizer x
refuses "tiers: a picture nowhere" "$build/tiers" --svg "$scratch/none/file"

refuses "two forms of output" "$build/predict" --json --csv
refuses "predict with a file" "$build/predict" file

# Ranks that own leaves: the bytes of one process, whatever their number.
ranks() { # ranks N OPTIONS..
    n=$1
    shift
    # MPI keeps memory until the end: no leak of ours; containers may forbid its single copies
    OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0 mpirun $as_root --oversubscribe -n "$n" "$build/merge_mpi" "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    grep '^outputs .* the bytes of one process$' "$scratch/out" >"$scratch/ranks.$n" && pass ||
        fail "merge_mpi on $n ranks $*: $(head -n 3 "$scratch/out" "$scratch/err")"
}
if [ ! -x "$build/merge_mpi" ]; then
    skip "merge_mpi: no mpicc"
elif ! command -v mpirun >/dev/null; then
    skip "merge_mpi: no mpirun"
else
    as_root=
    [ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
    for n in 1 2 3 4; do
        ranks $n
        same "merge_mpi on $n ranks" "$scratch/ranks.1" "$scratch/ranks.$n"
    done
    ranks 3 --tokens 1020 --steps 9
    ranks 4 --tokens 1 --steps 3
    ranks 3 --tokens 20480 --steps 1
    refuses "merge_mpi without tokens" "$build/merge_mpi" --tokens 0
    refuses "merge_mpi with a file" "$build/merge_mpi" file
fi

# A trace line that is wrong is named by its number.
trace() {
    printf '%s\n' "$@" >"$scratch/trace"
}
trace "AiM WR_GB 64 0 0x80000000" "AiM MAC_ABK 64 0x80000000 3" "AiM RD_MAC 0 0x80000000" "AiM EOC"
works "a good trace" "$build/aim_trace" "$scratch/trace"
is_json "aim_trace --json" "$build/aim_trace" --json "$scratch/trace"
{ echo '# for the paper, by us'; cat "$scratch/trace"; } >"$scratch/words"
works "a trace that begins with words" "$build/aim_trace" "$scratch/words"
# said NAME WORD: the last refusal says it.
said() {
    grep -q -e "$2" "$scratch/err" && pass || fail "$1: $(cat "$scratch/err")"
}
# The device stands in comments before the first line, wherever there.
for head in '# for aimx, 16 channels' ' #  for aimx, 16 channels; by us' '#for aimx, 16 channels'; do
    trace "# Our trace" "" "$head" "# of a row" "# set tRCD_MAC=57" "AiM MAC_ABK 1 0x80000000 3"
    for program in "$build/aim_trace" "$build/timeline --trace"; do
        works "$program of $head" $program "$scratch/trace"
        grep -q '^\(cycles\|in-order *\) *58' "$scratch/out" && pass || fail "$program of $head"
    done
done
trace "AiM MAC_ABK 1 0x80000000 3"
: >"$scratch/one"
refuses "timeline --json and --svg into one file" "$build/timeline" --json "$scratch/one" \
    --svg "$scratch/../examples.tmp/one"
works "timeline of a trace for no device" "$build/timeline" --trace "$scratch/trace"
grep -q '^on aim-gddr6' "$scratch/out" && pass || fail "timeline of a trace for no device"
trace "# set tRCD_MAC=57" "AiM EOC"
refuses "aim_trace that sets without a device" "$build/aim_trace" "$scratch/trace"
said "aim_trace that sets without a device" 'line 1: "# set" before'
trace "# for aim-gddr7, 32 channels; by us" "AiM EOC"
refuses "aim_trace for an unknown preset" "$build/aim_trace" "$scratch/trace"
said "aim_trace for an unknown preset" 'line 1: preset "aim-gddr7"'
works "aim_trace of another preset" "$build/aim_trace" --device aim-gddr6 "$scratch/trace"
trace "# for aim-gddr6, -3 channels; by us" "AiM EOC"
refuses "aim_trace for less than no channels" "$build/aim_trace" "$scratch/trace"
said "aim_trace for less than no channels" 'line 1'
for set in tRP tRP= tRP=x nonsense=1 tRP=99999999999; do
    trace "# for aim-gddr6, 32 channels; by us" "# set tRAS=60" "# set $set" "AiM EOC"
    for program in "$build/aim_trace" "$build/timeline --trace"; do
        refuses "$program with $set" $program "$scratch/trace"
        said "$program with $set" 'line 3'
    done
done
trace "# nothing"
refuses "aim_trace of nothing" "$build/aim_trace" "$scratch/trace"
trace "AiM SYNC" "AiM NONSENSE 1 2" "AiM EOC"
refuses "unknown instruction" "$build/aim_trace" "$scratch/trace"
grep -q 2 "$scratch/err" || fail "unknown instruction: no line number: $(cat "$scratch/err")"
trace "AiM SYNC" "" "AiM MAC_ABK 64"
refuses "short instruction" "$build/aim_trace" "$scratch/trace"
grep -q 3 "$scratch/err" || fail "short instruction: no line number: $(cat "$scratch/err")"

# Timelines: of every program and controller a trace, a picture and a page, judged as such.
judges() { # judges NAME KIND FILE
    if "$build/tests/timeline_json" "$2" "$3" >"$scratch/out" 2>&1; then
        pass
    else
        fail "$1: $(head -n 1 "$scratch/out")"
    fi
}
page_data() {
    sed -n "/id='data'>/,/<\/script>/p" "$1" | sed -e 1d -e '$d' >"$scratch/data.json"
}
timeline=$build/timeline line=$scratch/line
for options in '--example fig7' '--example gemv128 --own-plans' '--tokens 1024' \
    '--tokens 5000 --kv-heads 2 --set out_entries=8' '--tokens 700 --partition hfp --kv-heads 3' \
    '--tokens 300 --device aim-gddr6 --all-channels' '--tokens 4000 --device attacc-hbm3' \
    '--tokens 500 --channel 3 --from 100 --to 300'; do
    for controller in in-order static ping-pong dcs; do
        works "timeline $options $controller" "$timeline" $options --controller $controller \
            --json "$line.json" --svg "$line.svg"
        judges "timeline $options $controller" trace "$line.json"
        judges "timeline $options $controller" xml "$line.svg"
    done
    works "timeline $options --html" "$timeline" $options --html "$line.html" \
        --json "$line.json" --svg "$line.svg"
    page_data "$line.html"
    judges "timeline $options --html" json "$scratch/data.json"
done
if grep -E -n 'https?:|src=|@import|url\(|fetch\(|XMLHttp' "$line.html"; then
    fail "timeline: the page asks for more than itself"
else
    pass
fi
if command -v python3 >/dev/null; then
    for file in "$line.json" "$scratch/data.json"; do
        python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$file" 2>"$scratch/err" &&
            pass || fail "timeline: python3 on $file: $(tail -n 1 "$scratch/err")"
    done
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$line.svg" \
        2>"$scratch/err" && pass || fail "timeline: python3 on SVG: $(tail -n 1 "$scratch/err")"
else
    skip "timeline by a second reader: no python3"
fi

# clocks NAME WANTED OPTIONS..: what static, ping-pong and dcs take, as worked out by hand.
clocks() {
    label=$1 wanted=$2
    shift 2
    got=$("$timeline" "$@" | awk '/^(static|ping-pong|dcs) / { printf "%s ", $2 }')
    if [ "$got" = "$wanted " ]; then
        pass
    else
        fail "timeline $label: $got, want $wanted"
    fi
}
clocks fig7 "270 186 147" --example fig7
clocks gemv128 "870 536 452" --example gemv128
clocks "gemv128, own plans" "870 536 263" --example gemv128 --own-plans
clocks "gemv128, 8 outputs" "870 308 263" --example gemv128 --set out_entries=8
clocks "fig7 as drawn" "34 29 22" --example fig7 --set row_opening=2 --set tWR_INP=2 --set tMAC=5 \
    --set tRD_OUT=5 --set tRCD_MAC=1 --set refresh=0

"$timeline" >"$scratch/want"
"$timeline" --example attention >"$scratch/out"
same "timeline --example attention" "$scratch/want" "$scratch/out"

# A trace says what device it is for, so that it takes the same clocks anywhere.
for controller in in-order static ping-pong dcs; do
    for example in fig7 'gemv128 --set tRP=60 --device aim-gddr6'; do
        options="--example $example --controller $controller"
        works "timeline $options" "$timeline" $options --export "$line.aim"
        sed -e 1,2d -e '/^with /d' "$scratch/out" >"$scratch/want"
        wanted=$(awk -v c=$controller '$1 == c { print $2 }' "$scratch/out")
        works "timeline --trace of $options" "$timeline" --trace "$line.aim"
        sed 1,2d "$scratch/out" >"$scratch/got"
        same "timeline --trace of $options" "$scratch/want" "$scratch/got"
        listed=$("$build/aim_trace" "$line.aim" | awk '$1 == "cycles" { print $2 }')
        [ "$listed" = "$wanted" ] && pass || fail "aim_trace of $options: $listed, not $wanted"
    done
done
"$build/aim_trace" --set controller=0 --set tRP=14 --set tRCD_MAC=99 "$line.aim" >"$scratch/got"
cmp -s "$scratch/want" "$scratch/got" && fail "aim_trace --set: nothing" || pass

# What fails leaves a file as it was.
for wrong in '--set n_channels=64 --kv-heads 64 --partition hfp' '--svg '"$line.svg"' --from 99999999'; do
    echo kept >"$line.aim"
    refuses "timeline --export, $wrong" "$timeline" $wrong --export "$line.aim"
    grep -q '^kept$' "$line.aim" && pass || fail "timeline --export, $wrong: the file is gone"
done
for option in '--from 1' '--to 9' --all-channels '--svg -' "--json $line.json --html $line.json" \
    '--example fig7 --tokens 9' '--example gemv128 --one-plan' \
    '--device pam-ssd --example fig7' '--device pam-ssd --example gemv128'; do
    refuses "timeline $option" "$timeline" $option
done
trace "# for aim-gddr6, 32 channels; by us" "AiM EOC"
for option in '--tokens 9' '--group 2' '--kv-heads 1' '--head-dim 8' '--partition tcp' --one-plan; do
    refuses "timeline --trace $option" "$timeline" --trace "$scratch/trace" $option
done

# What it exports is the same program; its trace has the commands of aim_trace's listing.
for options in '--tokens 300' '--tokens 2000 --partition hfp --kv-heads 3'; do
    aim="--device aim-gddr6 --set epu_ck_per_op=0"
    works "timeline --export $options" "$timeline" $aim $options --export "$line.aim" \
        --json "$line.json" --all-channels
    in_order=$(awk '$1 == "in-order" { print $2 }' "$scratch/out")
    works "timeline --trace $options" "$timeline" $aim --trace "$line.aim"
    traced=$(awk '$1 == "in-order" { print $2 }' "$scratch/out")
    listed=$("$build/aim_trace" "$line.aim" | awk '$1 == "cycles" { print $2 }')
    for program in "$build/aim_trace" "$timeline --trace"; do
        [ "$($program "$line.aim" | grep -c '^# .* comments: not timed$')" -eq 1 ] && pass ||
            fail "$program of $options: nothing about softmax"
    done
    if [ -n "$in_order" ] && [ "$in_order" = "$traced" ] && [ "$in_order" = "$listed" ]; then
        pass
    else
        fail "timeline --export $options: $in_order clocks, as a trace $traced, aim_trace $listed"
    fi
    "$build/aim_trace" --clocks "$line.aim" | awk 'NF == 9 { print $1, $2, $3 }' | sort >"$line.want"
    sed -n 's/.*"X", "pid": \([0-9]*\).*"name": "\([A-Z0-9]*\)".*"clock": \([0-9]*\).*reason.*/\3 \1 \2/p' \
        "$line.json" | awk '{ print $1, $2 - 1, $3 }' | sort >"$line.got"
    same "timeline --json $options" "$line.want" "$line.got"
done
"$timeline" --trace - <"$line.aim" --device aim-gddr6 >"$scratch/out" 2>&1 && pass ||
    fail "timeline of standard input: $(cat "$scratch/out")"
trace "AiM SYNC" "" "AiM MAC_ABK 64"
refuses "timeline of a short instruction" "$timeline" --trace "$scratch/trace"
grep -q 'line 3' "$scratch/err" || fail "timeline of a short instruction: $(cat "$scratch/err")"
trace "AiM WR_GB 64 0 0x80000000" "AiM MAC_ABK 65 0x80000000 3"
refuses "timeline of a long instruction" "$timeline" --trace "$scratch/trace"
grep -q 'line 2' "$scratch/err" || fail "timeline of a long instruction: $(cat "$scratch/err")"
trace "# nothing"
refuses "timeline of nothing" "$timeline" --trace "$scratch/trace"
refuses "timeline of a missing trace" "$timeline" --trace "$scratch/none"
refuses "timeline: two programs" "$timeline" --example fig7 --trace "$line.aim"
refuses "timeline: plans of a trace" "$timeline" --trace "$line.aim" --own-plans
refuses "timeline: both plans" "$timeline" --one-plan --own-plans
refuses "timeline: unknown example" "$timeline" --example nonsense
refuses "timeline: unknown controller" "$timeline" --controller nonsense
refuses "timeline: unknown preset" "$timeline" --device nonsense
refuses "timeline: unknown field" "$timeline" --set nonsense=1
refuses "timeline: no such channel" "$timeline" --channel 16
refuses "timeline: from after to" "$timeline" --from 9 --to 9
refuses "timeline: from beyond the end" "$timeline" --svg "$line.svg" --from 99999999
refuses "timeline: no tokens" "$timeline" --tokens 0
for option in --json --svg --html --export; do
    refuses "timeline $option into nowhere" "$timeline" $option "$scratch/none/file"
done

works "device_attention" "$build/device_attention" --tokens 300
[ "$(grep -c '  same  ' "$scratch/out")" -eq 4 ] && pass || fail "device_attention: other bytes"
grep -q 'lol.disp  *counted' "$scratch/out" && pass || fail "device_attention: $(tail -n 1 "$scratch/out")"
for partition in tcp hfp; do # request data is what an estimate says it is
    works "device_attention --partition $partition" "$build/device_attention" --tokens 16 \
        --partition $partition
    held=$(sed -n 's/^ *4096 tokens: .*lists *\([0-9]*\),.*/\1/p' "$scratch/out")
    works "estimate --partition $partition" "$build/estimate" --partition $partition
    grep -q " and $held of request data" "$scratch/out" && pass ||
        fail "device_attention --partition $partition: $held bytes of blocks and lists"
done
is_json "device_attention --json" "$build/device_attention" --tokens 16 --json
[ "$(grep -o controller\" "$scratch/out" | wc -l)" -eq 4 ] && pass || fail "device_attention --json: not 4 controllers"
refuses "device_attention on flash" "$build/device_attention" --tokens 16 --device pam-ssd
refuses "device_attention without room" "$build/device_attention" --tokens 16 --set va2pa_entries=1
works "capacity" "$build/capacity"
awk '/^  [0-9]+B/ && !/Hotpot/ { x = $(NF - 5) + 0; if (x < low || !low) low = x; if (x > high) high = x }
    /static.min/ && !min { min = $4 } /static.max/ && !max { max = $4 }
    END { exit !(min > low - 0.1 && min < low + 0.1 && max > high - 0.1 && max < high + 0.1) }' "$scratch/out" &&
    pass || fail "capacity: least and most of the workloads: $(grep f19 "$scratch/out")"
[ "$(grep -c published "$scratch/out")" -eq 15 ] && pass || fail "capacity: $(cat "$scratch/out")"
awk '/^  7[0-9]*B, / { more = $NF + 0; if (more > most) most = more }
    /lol.f4.batch/ && !seen { ours = $4; seen = 1 }
    END { exit !(seen && ours > most - 1 && ours < most + 1) }' "$scratch/out" && pass ||
    fail "capacity: LoL-PIM's figure beside other workloads: $(tail -n 1 "$scratch/out")"
# As its Fig. 4: of 80 n - 14 GiB a window takes 16 and 4096 n tokens 2 n.
[ "$(awk '/lol.f4.batch/ && n++ { printf "%s ", $4 }' "$scratch/out")" = "725 300 100 0 " ] && pass ||
    fail "capacity: LoL-PIM's Fig. 4: $(tail -n 4 "$scratch/out")"

# Systems: every figure is there, in two forms the same.
is_json "predict_system --json" "$build/predict_system" --json
[ "$(grep -c '"published"' "$scratch/out")" -eq 37 ] && pass || fail "predict_system: $(grep -c published "$scratch/out") figures"
sed -n 's/^ {"figure": "\([a-z0-9.]*\)", "ours_is".*"ours": \([0-9.e+]*\), "pub.*/\1 \2/p' "$scratch/out" >"$scratch/system"
# Of the baselines a rule was chosen with these in view.
[ "$(grep -c '"figure": "[a-z0-9.]*", "ours_is": "calibrated"' "$scratch/out")" -eq 19 ] && ! grep -E '"(lol.t8[a-z0-9.]*base|ph.f17[a-z.]*)"' "$scratch/out" |
    grep -q predicted && pass || fail "predict_system: $(grep -c calibrated "$scratch/out") calibrated"
works "predict_system" "$build/predict_system"
awk 'NR == FNR { ours[$1] = $2; n++; next }
    $1 in ours { seen++; d = $4 - ours[$1]; if (d * d > 1e-8 * $4 * $4) { print; bad = 1 } }
    /GFLOP.* counted$/ { need++; d = $2 / $(NF - 1) - 1; if (d * d > 0.002 * 0.002) { print; bad = 1 } }
    END { exit bad || n != 37 || seen != n || need != 3 }' "$scratch/system" "$scratch/out" >"$scratch/found" &&
    pass || fail "predict_system: text and JSON: $(head -n 1 "$scratch/found")"
# Attention of one module is an estimate, throughput and utilisation are one thing.
value='function value(key) { return match($0, "\"" key "\": [0-9.e+]*") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 : 0 }'
is_json "system of one module" "$build/system" --json --device cent --modules 1 --window 4096
cp "$scratch/out" "$scratch/system"
works "estimate: memory" "$build/estimate" --context 8192 # 2 * 32 * 8 * 128 * 2 bytes a token, of 8 GiB
grep -q '^  memory  *12.5 % of the device.s 8.0 GiB: K and V of all layers$' "$scratch/out" && pass || fail "estimate: $(grep memory "$scratch/out")"
works "estimate: no room" "$build/estimate" --context 65536 --batch 2
grep -q '^  memory  *200.0 % .*which do not fit$' "$scratch/out" && pass || fail "estimate: $(grep memory "$scratch/out")"
is_json "estimate --set" "$build/estimate" --set tRP=30 --set tRCD_RD=40 --json
grep -q '"set": \["tRP=30", "tRCD_RD=40"\]' "$scratch/out" && pass || fail "estimate --set: $(head -n 1 "$scratch/out")"
works "its estimate" "$build/estimate" --device cent --controller dcs --refresh off --context 4096 --batch 2 --json
awk "$value"'
    NR == FNR && /"tp"/ { ns = value("attention_ns"); sum = ns + value("fc_ns"); n = value("requests")
        tokens = value("tokens_per_s"); util = value("utilisation"); pJ = value("attention_pJ"); fc = value("fc_pJ") }
    NR != FNR && /"step_us"/ { us = value("step_us"); step = value("step_pJ") }
    END { # 32 layers: Q and K and V, out, gate and up and down, 4096 tokens of 32 heads
        macs = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096 * 4096)
        peak = 32 * 16 * 16 / 1e-9
        exit !(n == 2 && fc > pJ && pJ > 0.9999 * step && pJ < 1.0001 * step && ns > 999.99 * us && ns < 1000.01 * us && tokens * sum > 1.9999e9 &&
            tokens * sum < 2.0001e9 && util > 0.9999 * tokens * macs / peak && util < 1.0001 * tokens * macs / peak) }' \
    "$scratch/system" "$scratch/out" && pass || fail "system of one module: $(tail -n 2 "$scratch/system")"
# Room: 8 modules of 16 GiB without the weights, a window of 128 Ki tokens takes 16 GiB of it.
works "system by window" "$build/system" --device cent --window 131072 --memory window
[ "$(awk '/^[ *]+[1-8] +[1-8] / { sub(/\*/, ""); printf "%s ", $3 }' "$scratch/out")" = "7.0 7.0 7.0 7.0 " ] && pass ||
    fail "system by window: $(cat "$scratch/out")"
# Fewer requests than stages: each goes through all layers alone; 40 layers are 20 stages of 2 in 32.
for run in "32 3 8b --device cent --modules 4 --window 131072 --context 131072" \
    "40 4 14b --modules 32 --context 32768" "40 4 14b --modules 32 --context 32768 --micro single"; do
    set -- $run
    layers=$1 most=$2
    shift 2
    is_json "system --model $*" "$build/system" --json --memory window --model "$@"
    awk -v layers="$layers" -v most="$most" "$value"'
        /"tp"/ { n = value("requests"); own = int((layers + value("pp") - 1) / value("pp")); stages = layers / own
            if (n > stages || n > value("pp")) next
            rows++; all = (value("fc_ns") + value("attention_ns") + value("moving_ns")) / n * stages
            x = value("tokens_per_s") * all * 1e-9 / n; if (x < 0.9999 || x > 1.0001) { print; bad = 1 } }
        END { exit bad || rows < 1 || rows > most }' "$scratch/out" >"$scratch/found" && pass ||
        fail "system --model $*: $(head -n 1 "$scratch/found")"
done
# Of five modules in a row some are in two nodes of eight, of four none.
for near in 8 5; do
    is_json "system of nodes of $near" "$build/system" --model 14b --modules 40 --node-modules $near --json
    cp "$scratch/out" "$scratch/nodes$near"
done
awk "$value"'
    /"tp"/ { if (NR == FNR) moving[value("tp")] = value("moving_ns"); else if (value("tp") == 5) near = value("moving_ns") }
    END { exit !(moving[5] > 3 * near && near > 0 && moving[4] < moving[5]) }' "$scratch/nodes8" "$scratch/nodes5" && pass ||
    fail "system across nodes: $(grep '"tp": 5' "$scratch/nodes8" "$scratch/nodes5")"
# A device and a model of one's own: half the channels take twice as long for FC layers.
is_json "system of halves" "$build/system" --kv-heads 4 --layers 4 --tp 4 --set n_channels=8 --context 8192 --set n_rows=32768 --json
cp "$scratch/out" "$scratch/system"
is_json "system of wholes" "$build/system" --kv-heads 4 --layers 4 --tp 4 --context 8192 --json
awk "$value"'
    /"tp"/ { each[NR == FNR] = value("fc_ns") / value("requests"); rows++ }
    END { x = each[1] / each[0]; exit !(rows == 2 && x > 1.999 && x < 2.001) }' "$scratch/system" "$scratch/out" && pass ||
    fail "system of halves: $(grep '"tp"' "$scratch/system" "$scratch/out")"
grep -q '"set": \["n_channels=8", "n_rows=32768"\]' "$scratch/system" && pass || fail "system --set: $(head -n 1 "$scratch/system")"
# A trace: 20 steps of two requests, of which one leaves after 10, and after a pause 5 of another.
printf '# ms, prompt, output\n0 1000 10\n\n0 1000 20\n500 3000 5\n' >"$scratch/trace"
is_json "system --trace" "$build/system" --trace "$scratch/trace" --json
awk "$value"'
    /"tp"/ { rows++; idle = value("seconds") - value("busy_s"); sub(/.*"served"/, "")
        if (value("tokens") != 35 || value("steps") != 25 || value("seconds") < 0.5 || value("seconds") > 0.6 || idle < 0.4 ||
            value("mean_wait_s") != 0 || value("latency_99_s") < value("mean_latency_s")) { print; bad = 1 } }
    END { exit bad || rows != 4 }' "$scratch/out" >"$scratch/found" && pass || fail "system --trace: $(cat "$scratch/found")"
works "system --serve" "$build/system" --serve 32 --output 8 --refresh on --spread 1000
awk '/requests served/ { on = 1 } on && /^[ *]+[1-8] +[1-8] / { rows++; if (/\*/) stars++; sub(/\*/, ""); x = $3 * $6; if (x < 255 || x > 257) bad = 1 }
    END { exit bad || rows != 4 || stars != 1 }' "$scratch/out" && pass || fail "system --serve: $(tail -n 8 "$scratch/out")"
for line in '0 5' '0 5 0' '1 2 3 4' 'x 1 2' '0 32000 800' '0 -1 5' '-1 1 5' 'nan 1 1' '' '0 1 99999999999999999999' '0x10 0 1' '1e3 0 1' '5 1 1
4 1 1'; do
    echo "$line" >"$scratch/trace"
    refuses "system --trace '$line'" "$build/system" --trace "$scratch/trace"
done
printf '0 5 1\0\n0 5 1\n' >"$scratch/trace"
refuses "system --trace of bytes" "$build/system" --trace "$scratch/trace"
refuses "system: spread" "$build/system" --window 1 --spread 1
refuses "system: no cut" "$build/system" --modules 37
refuses "system: no such cut" "$build/system" --tp 3
refuses "system: heads" "$build/system" --heads 33
refuses "system: too many requests" "$build/system" --model 72b --modules 4096 --context 100 --window 200 --memory window
refuses "system without room" "$build/system" --model 72b
grep -q 'takes 5120 MiB of a module, of which weights leave 0 ' "$scratch/err" && pass || fail "system without room: $(cat "$scratch/err")"
echo "0 1000000 1" >"$scratch/trace"
refuses "system: a request without room" "$build/system" --device cent --modules 1 --context 1000 --window 1048576 --trace "$scratch/trace"
grep -q 'for each of the requests' "$scratch/err" && pass || fail "system: a request without room: $(cat "$scratch/err")"
refuses "system: context beyond the window" "$build/system" --window 100 --context 101
refuses "system: output beyond the window" "$build/system" --serve 1 --window 16384 --context 16384 --output 1
refuses "system: unknown device" "$build/system" --device nonesuch
refuses "system: unknown field" "$build/system" --set nonesuch=1
refuses "system: two kinds of run" "$build/system" --serve 1 --trace "$scratch/trace"

# Figures of the papers are copied rightly.
papers=$data/../papers/published.csv
sed -n 's/^ *{"\([a-z0-9.]*\)", PUBLISHED_[A-Z]*, -*[0-9]*, \([-0-9.]*\),.*/\1 \2/p' \
    examples/published.h >"$scratch/ids"
if [ -f "$papers" ]; then
    awk -F '[ ,]' 'NR == FNR { ours[$1] = $2; next }
        $1 in ours { split($0, field, ","); n++; if (ours[$1] + 0 != field[5] + 0) { print; bad = 1 } }
        END { exit bad || n < 80 }' "$scratch/ids" "$papers" >"$scratch/out" && pass ||
        fail "published.h: $(head -n 1 "$scratch/out")"
else
    skip "published figures: no $papers"
fi

# PAM: every published figure printed, counts exact, out of memory where KV cannot fit HBM.
refuses "pam_study: unknown name" "$build/pam_study" --set nonsense=1
refuses "pam_study: no value" "$build/pam_study" --set eta_c
refuses "pam_study: no number" "$build/pam_study" --set eta_c=x
refuses "pam_study: out of range" "$build/pam_study" --set steps=0
refuses "pam_study: not whole" "$build/pam_study" --set steps=1.5
works "pam_study" "$build/pam_study" --set steps=100
cp "$scratch/out" "$scratch/pam"
for id in f9.qwen f9.llama f9.opt f9.lspim f10.llama.arxiv f10.llama.write f10.opt.arxiv \
    f10.opt.write f12.small f12.large f12.small.noattn f12.small.nomap f12.small.nosched \
    f12.large.noattn f12.large.nomap f12.large.nosched ru.transfer ru.latency ru.bw.low ru.bw.high \
    if map.bytes map.track sched.moves sched.ssd scale.min scale.max; do
    awk -v id="pam.$id" '$1 == id && $3 == "ours" && $5 == "published" && $4 ~ /^[0-9.]+$/ { n++ }
        END { exit n != 1 }' "$scratch/pam" && pass || fail "pam_study: no pam.$id"
done
pam_is() { # pam_is ID KIND OURS
    awk -v id="$1" -v kind="$2" -v ours="$3" '$1 == id { seen = $2 == kind && $4 == ours }
        END { exit !seen }' "$scratch/pam" && pass || fail "pam_study: $(grep "$1" "$scratch/pam")"
}
pam_is pam.kv.opt counted 2473.9
grep -q 'moved a step: calibrated to' "$scratch/pam" && pass || fail "pam_study: what is calibrated"
works "pam_study where nothing is in time" "$build/pam_study" --set steps=1 --set eta_m=0.01
grep -q 'ours *none' "$scratch/out" && ! grep -E -q '[ -](nan|inf)' "$scratch/out" && pass ||
    fail "pam_study where nothing is in time: $(grep -E '[ -](nan|inf)' "$scratch/out" | head -n 1)"
works "pam_study --set queries=2" "$build/pam_study" --set steps=10 --set queries=2
grep -q '(queries 2, moves 2,$' "$scratch/out" && pass || fail "pam_study --set queries=2: other queries"
pam_is pam.map.bytes calibrated 2.816
pam_is pam.map.track counted 28.16
pam_is pam.if counted 20
pam_is pam.ru.transfer counted 60.1852
pam_is pam.ru.bw.low counted 8.19692
pam_is pam.ru.bw.high counted 12.2954
[ "$(grep -c '\(Arxiv_sum\|write_doc\) .* OOM ' "$scratch/pam")" -eq 12 ] && pass ||
    fail "pam_study: AttAcc has room: $(grep Arxiv_sum "$scratch/pam" | head -n 2)"
awk '/^Fig. 12/ { in12 = 1 } /^Fig. 13/ { in12 = 0 } in12 && $2 ~ /^[0-9]+$/ {
    n++; if ($6 != "1.00x" || $4 + 0 <= 1 || $8 + 0 < 1 || $12 + 0 <= 1) bad = 1 }
    END { exit bad || n != 6 }' "$scratch/pam" && pass || fail "pam_study: $(grep -A8 '^Fig. 12' "$scratch/pam")"
is_json "pam_study --json" "$build/pam_study" --json --set steps=10 --set write=2000
[ "$(grep -c '"holds": true' "$scratch/out")" -eq 6 ] && ! grep -q '"holds": false' "$scratch/out" &&
    pass || fail "pam_study: $(grep '"holds": false' "$scratch/out" | head -n 2)"
grep -c '"system": "AttAcc".*"context": 2000.*"tokens_per_s": [0-9]' "$scratch/out" >"$scratch/n"
[ "$(cat "$scratch/n")" -ge 2 ] && pass || fail "pam_study: AttAcc never fits"

if [ ! -f "$data/stories260K.bin" ]; then
    skip "models and captures: no $data"
    rm -rf "$scratch"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
fi

# text EXPECTED MODEL TOKENIZER ARGUMENTS..: standard output to the byte.
text() {
    expected=$1 model=$2 tokenizer=$3
    shift 3
    if "$build/llama" "$data/$model" "$data/$tokenizer" "$@" >"$scratch/out" 2>"$scratch/err" &&
        cmp -s "$scratch/out" "$data/expected_$expected.txt"
    then
        pass
    else
        fail "llama $model $*: other text: $(head -n 1 "$scratch/err")"
    fi
}
story() {
    text "stories260K_$@"
}
# turns WORD PROMPT LEAST OPTIONS..: the first token that is not the expected one is printed; it does
# not come before LEAST. The text itself agrees.
turns() {
    want=$data/expected_stories260K_$1_n256.txt prompt=$2 least=$3
    shift 3
    works "llama $*" "$build/llama" "$data/$s" "$data/$t" -n 256 -p "$prompt" --expect "$want" "$@"
    other=$(sed -n 's/^first_other_token //p' "$scratch/err")
    echo "llama $* ($prompt): first other token $other"
    case $other in
    '0 (none)') cmp -s "$scratch/out" "$want" && pass || fail "llama $*: other text, not seen" ;;
    *) [ "${other:-0}" -ge $least ] && pass || fail "llama $*: other text from token $other" ;;
    esac
}

once='Once upon a time' dog='One day, a dog' dream='I dream'
s=stories260K.bin t=tok512.bin
story once_n64 $s $t -n 64 -p "$once"
story once_n256 $s $t -n 256 -p "$once"
story once_n512 $s $t -n 512 -p "$once"
story dog_n64 $s $t -n 64 -p "$dog"
story dog_n256 $s $t -n 256 -p "$dog" --quiet
text aidreams260K_dream_n100 aidreams260K.bin aidreams_tok512.bin -n 100 -p "$dream"
for options in '--kv f16' '--page-tokens 1 --partition hfp' '--page-tokens 7 --channels 1' \
    '--page-tokens 16 --kv f16 --channels 3' '--channels 32 --partition hfp --kv f16' \
    '--page-tokens 128 --channels 16' '--device aim-gddr6 --no-readings' \
    '--page-tokens 8 --sparse 1'; do
    story once_n64 $s $t -n 64 -p "$once" $options
done
for simd in none 256 512; do
    for kv in f32 f16; do
        options="--simd $simd --kv $kv --no-readings"
        story once_n512 $s $t -n 512 -p "$once" $options
        story dog_n256 $s $t -n 256 -p "$dog" $options
        text aidreams260K_dream_n100 aidreams260K.bin aidreams_tok512.bin -n 100 -p "$dream" $options
    done
    # Coarser types may take another turn: where, is printed; the text begins as it should.
    for kv in bf16 int8; do
        turns once "$once" 30 --simd $simd --kv $kv --no-readings
    done
done
story once_n256 $s $t -n 256 -p "$once" --kv f16 --page-tokens 7 --partition hfp
story dog_n256 $s $t -n 256 -p "$dog" --kv f16 --page-tokens 1 --channels 3
text aidreams260K_dream_n100 aidreams260K.bin aidreams_tok512.bin -n 100 -p "$dream" --kv f16 \
    --partition hfp

# Pages in use are as many at each token and at the end, chunks of the device way too.
for way in host device; do
    "$build/llama" "$data/$s" "$data/$t" -n 6 -p "$once" --way $way 2>&1 >"$scratch/out" |
        grep -o 'kv_pages [0-9]*' | tail -n 2 | uniq >"$scratch/text"
    [ "$(grep -c . "$scratch/text")" -eq 1 ] && ! grep -q ' 0$' "$scratch/text" && pass ||
        fail "llama --way $way: $(cat "$scratch/text")"
done
refuses "a seed beside a model" "$build/speculate" --model "$data/$s" --tokenizer "$data/$t" \
    --seed 4

# Speculation and serving come to the same texts.
for word in once dog; do
    prompt=$once
    [ $word = once ] || prompt=$dog
    want=$data/expected_stories260K_${word}_n256.txt
    for options in '' '--branches 1 --depth 30' '--branches 0'; do
        works "speculate $word $options" "$build/speculate" --model "$data/$s" \
            --tokenizer "$data/$t" -p "$prompt" $options
        head -c "$(wc -c <"$want")" "$scratch/out" >"$scratch/text"
        same "speculate $word $options" "$want" "$scratch/text"
    done
    is_json "speculate $word" "$build/speculate" --model "$data/$s" --tokenizer "$data/$t" \
        -p "$prompt" --json
    fewer_calls "speculate $word" 10
    grep -q '"any_branch_same_text": true' "$scratch/out" && pass || fail "speculate $word: another text"
    sed 's/[^0-9:]//g; s/:/ /g' "$scratch/out" | awk '{ exit !($11 > 0 && $11 < $9) }' && pass ||
        fail "speculate $word: no fewer clocks: $(cat "$scratch/out")"
    for options in '' '--hbm 5 --ddr 9' '--partials' '--ratio 1,1,1' '--ratio 444,57,1 --swaps 2'; do
        works "tiers $word $options" "$build/tiers" --model "$data/$s" --tokenizer "$data/$t" \
            -p "$prompt" -n 256 $options
        head -c "$(wc -c <"$want")" "$scratch/out" >"$scratch/text"
        same "tiers $word $options" "$want" "$scratch/text"
    done
done

cat "$data/expected_stories260K_once_n256.txt" "$data/expected_stories260K_dog_n256.txt" >"$scratch/want"
stories="--model $data/$s --tokenizer $data/$t"
for pool in 256 400 512; do
    texts_of "serve stories --pool $pool" "$scratch/text" "$serve" $stories --pool $pool -n 256 \
        -p "$once" -p "$dog"
    same "serve stories --pool $pool" "$scratch/want" "$scratch/text"
done
saves "serve stories --stop 60" "$scratch/state" $stories --pool 400 -n 256 -p "$once" -p "$dog" --stop 60
refuses "serve --restore by another tokenizer" "$serve" --model "$data/stories260K.bin" \
    --tokenizer "$data/aidreams_tok512.bin" --restore "$scratch/state"
for stop in 120 180 240; do
    saves "serve stories --stop $stop" "$scratch/state2" $stories --pool 400 --restore "$scratch/state" \
        --stop $stop
    mv "$scratch/state2" "$scratch/state"
done
texts_of "serve stories to the end" "$scratch/text" "$serve" $stories --restore "$scratch/state"
same "serve stories to the end" "$scratch/want" "$scratch/text"

too_long "llama with a long prompt" "$build/llama" "$data/$s" "$data/$t"
# An output that is one of the inputs, by another name too, is refused, and the input stays.
cp "$data/$s" "$scratch/model" && cp "$data/$t" "$scratch/tokens" && ln -f "$scratch/model" "$scratch/link"
for into in "$scratch/model" "$scratch/link" "$scratch/../examples.tmp/tokens"; do
    refuses "llama --export into an input" "$build/llama" "$scratch/model" "$scratch/tokens" -n 2 --export "$into"
    refuses "serve --save into an input" "$serve" --model "$scratch/model" --tokenizer "$scratch/tokens" \
        --stop 2 --save "$into"
    refuses "tiers --svg into an input" "$build/tiers" --model "$scratch/model" \
        --tokenizer "$scratch/tokens" --svg "$into"
done
same "a model that was to be an output" "$data/$s" "$scratch/model"
refuses "llama --way device --page-tokens" "$build/llama" "$data/$s" "$data/$t" -n 9 --way device \
    --page-tokens 3
if [ -e /dev/full ]; then
    "$build/llama" "$data/$s" "$data/$t" -n 9 --json >"$scratch/out" 2>/dev/full
    [ $? -eq 2 ] && pass || fail "llama: readings that cannot be written"
fi
# a NaN (0x7fc00000) in q of the first record's first layer
{
    head -c 40 "$data/stories260K_dog_n256.attn"
    printf '\000\000\300\177'
    tail -c +45 "$data/stories260K_dog_n256.attn"
} >"$scratch/nan.attn"
works "replay of a NaN" "$build/replay" "$scratch/nan.attn"
grep -q '^exact_difference *nan' "$scratch/out" && pass || fail "replay of a NaN: $(cat "$scratch/out")"

# The modelled device computes: its own arithmetic, fp16 lanes.
for bits in 16 32; do
    options="--way device --set out_bits=$bits --quiet"
    story once_n512 $s $t -n 512 -p "$once" $options
    story dog_n256 $s $t -n 256 -p "$dog" $options
    text aidreams260K_dream_n100 aidreams260K.bin aidreams_tok512.bin -n 100 -p "$dream" $options
    for controller in 1 2 3; do
        story once_n64 $s $t -n 64 -p "$once" $options --set controller=$controller
    done
done
for options in '--channels 1' '--channels 3 --partition hfp' '--channels 32 --set controller=3' \
    '--device aim-gddr6'; do
    story dog_n64 $s $t -n 64 -p "$dog" --way device $options
done
turns once "$once" 100 --way device --set lane_type=1
turns dog "$dog" 100 --way device --set lane_type=1

for capture in stories260K_once_n256 stories260K_dog_n256 aidreams260K_dream_n100; do
    for kv in f32 f16; do
        bound=3e-6
        [ $kv = f16 ] && bound=5e-6
        works "replay $capture $kv" "$build/replay" "$data/$capture.attn" --kv $kv
        awk -v bound=$bound '$1 == "exact_difference" { seen = $2 ~ /^[0-9]/ && $2 + 0 <= bound + 0 }
            END { exit !seen }' "$scratch/out" && pass || fail "replay $capture $kv: $(cat "$scratch/out")"
    done
done

# Files cut short or with absurd headers. head_is FILE BYTES..: octal escapes over its first bytes.
cut_to() {
    dd if="$data/$1" of="$scratch/bad" bs=1 count="$2" 2>/dev/null
}
head_is() {
    cp "$data/$1" "$scratch/bad"
    printf "$2" | dd of="$scratch/bad" bs=1 seek="$3" conv=notrunc 2>/dev/null
}
for bytes in 0 4 27 28 1000 70001; do
    cut_to $s $bytes
    refuses "checkpoint of $bytes bytes" "$build/llama" "$scratch/bad" "$data/$t"
    cut_to stories260K_once_n256.attn $bytes
    refuses "capture of $bytes bytes" "$build/replay" "$scratch/bad"
done
for bytes in 0 3 11 6000; do
    cut_to $t $bytes
    refuses "tokenizer of $bytes bytes" "$build/llama" "$data/$s" "$scratch/bad"
done
for word in 0 1 2 3 4 5 6; do
    for value in '\377\377\377\177' '\000\000\000\000' '\000\000\000\200'; do
        head_is $s "$value" $((4 * word))
        refuses "checkpoint header word $word $value" "$build/llama" "$scratch/bad" "$data/$t" -n 4
    done
done
head_is $s '\003\000\000\000' 16 # 8 heads, 3 KV heads
refuses "checkpoint whose heads do not divide" "$build/llama" "$scratch/bad" "$data/$t" -n 4
for word in 0 1 2 3 4; do
    for value in '\377\377\377\177' '\000\000\000\000' '\377\377\377\377'; do
        [ $word = 0 ] || [ "$value" != '\000' ] || continue
        head_is stories260K_once_n256.attn "$value" $((4 * word))
        refuses "capture header word $word $value" "$build/replay" "$scratch/bad"
    done
done
head_is $t '\377\377\377\177' 8 # length of the first piece
refuses "tokenizer with an absurd length" "$build/llama" "$data/$s" "$scratch/bad" -n 4
{ printf '\0\0\0\0' && tail -c +5 "$data/$t"; } >"$scratch/bad"
refuses "tokenizer of empty pieces" "$build/llama" "$data/$s" "$scratch/bad" -n 4 -p x
refuses "more steps than positions" "$build/llama" "$data/$s" "$data/$t" -n 100000
refuses "a type of pages for banks" "$build/llama" "$data/$s" "$data/$t" --way device --kv f16
refuses "a trace of chosen tokens" "$build/llama" "$data/$s" "$data/$t" --sparse 4 --export \
    "$scratch/last.aim"
refuses "no channels" "$build/llama" "$data/$s" "$data/$t" --channels 0
refuses "too many channels" "$build/llama" "$data/$s" "$data/$t" --channels 65

# The memory clocks llama prints for its last step are those of the trace it exports.
for options in '-n 1' '-n 40' '-n 40 --set tRP=60' '-n 200' '-n 33 --partition hfp' '-n 40 --channels 3 --page-tokens 7' \
    '-n 100 --channels 1' '-n 300 --channels 16 --partition hfp'; do
    prompt=$once
    [ "$options" != '-n 1' ] || prompt=
    "$build/llama" "$data/$s" "$data/$t" -p "$prompt" --device aim-gddr6 $options --quiet \
        --export "$scratch/last.aim" >/dev/null 2>"$scratch/err"
    printed=$(awk '$1 == "memory_ck" { print $2 }' "$scratch/err")
    device=$(echo "$options" | sed -n 's/.*\(--channels [0-9]*\).*/\1/p')
    traced=$("$build/aim_trace" $device "$scratch/last.aim" | awk '$1 == "cycles" { print $2 }')
    if [ -n "$printed" ] && [ "$printed" = "$traced" ]; then
        pass
    else
        fail "export $options: llama says memory_ck $printed, aim_trace cycles $traced"
    fi
done

rm -rf "$scratch"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
