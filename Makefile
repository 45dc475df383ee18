# make          the examples and benches into build/
# make demo     one decode step of a Llama-3-8B layer
# make test     every test; the last line sums them
# make bench    every bench, as CSV
# make check    the wide matrix: compilers, standards, sanitizers, architectures

CC      ?= cc
OPT     ?= -O2
BUILD   ?= build
DATA    ?= ../shared/data
WARN     = -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion \
           -Wcast-qual -Wcast-align -Wundef -Wpointer-arith -Wwrite-strings -Wvla -Wformat=2 \
           -Wstrict-prototypes -Wmissing-prototypes -Werror
# CFLAGS of the caller come on top: make CFLAGS="-O3 -march=native".
FLAGS    = -std=c99 $(OPT) -ffp-contract=off -I. $(WARN) $(CFLAGS)
JOBS    := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

OPENMP  := $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c -o /dev/null - 2>/dev/null && \
             echo -fopenmp)

# Opening a library is a library of its own in older libcs.
DL      := $(shell echo 'int main(void){return 0;}' | $(CC) -x c -o /dev/null - -ldl 2>/dev/null && \
             echo -ldl)

# merge_mpi is built where MPI is.
MPICC   := $(shell printf '\043include <mpi.h>\nint main(void){return MPI_Finalize();}' | \
             OMPI_CC="$(CC)" MPICH_CC="$(CC)" mpicc $(OPT) -x c -o /dev/null - 2>/dev/null && echo mpicc)
NO_MPI   = $(if $(MPICC),,examples/merge_mpi.c)

HEADERS  = pim_hw.h pimattn.h
EXAMPLES = $(patsubst examples/%.c,$(BUILD)/%,$(filter-out $(NO_MPI),$(wildcard examples/*.c)))
BENCHES  = $(patsubst bench/%.c,$(BUILD)/%,$(wildcard bench/*.c))
TESTS    = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/*.c))

# Programs build the headers' functions only if compiled by themselves; here one object has them
# for all, so that make takes less long. Those that look inside build their own. Tests themselves
# are as fast with -O1, and compile in two thirds of the time.
LIBRARY  = $(BUILD)/library.o
OWN      = $(BUILD)/append $(BUILD)/cache $(BUILD)/decode $(BUILD)/prefill \
           $(BUILD)/pages $(BUILD)/schedule $(BUILD)/tests/attn_schedule \
           $(BUILD)/tests/contract_cache $(BUILD)/tests/law_cache
SHARED   = $(filter-out $(OWN),$(EXAMPLES) $(BENCHES) $(TESTS))
# Of these tests attn_schedule, of which no kernel is asked, takes half as long to compile;
# contract_cache, which runs shortest, a third; law_cache, which is seldom in kernels, two thirds.
# What runs longest begins first, so that no core is left alone with it.
LONG     = $(patsubst %,$(BUILD)/tests/%,law_skip oracle_attention law_steady attn_variants hw_mapping)

all:
	@$(MAKE) --no-print-directory $(PARALLEL) everything

everything: $(EXAMPLES) $(BENCHES)

programs: $(filter $(OWN),$(TESTS)) $(EXAMPLES) $(TESTS)

demo: $(BUILD)/attention
	$(BUILD)/attention

test:
	@$(MAKE) -s $(PARALLEL) programs
	@sh tests/run.sh "sh tests/examples.sh $(BUILD) $(DATA)" $(LONG) \
	    $(filter-out $(LONG),$(TESTS)) "sh tests/form.sh"

bench: $(BENCHES)
	@for b in $(BENCHES); do echo "# $$b"; $$b || exit 1; done

check:
	@WARN="$(WARN)" DATA="$(DATA)" sh tests/check.sh

clean:
	rm -rf build

$(BUILD)/tests/%: tests/%.c $(HEADERS) $(wildcard tests/*.h examples/*.h)
	@mkdir -p $(BUILD)/tests
	$(CC) $(FLAGS) $(LDFLAGS) -pthread -o $@ $< $(USE) -lm

$(BUILD)/threads: OMP = $(OPENMP)
$(SHARED): USE = -DPIMHW_IMPLEMENTED -DPIMATTN_IMPLEMENTED $(SAVES) $(LIBRARY)
$(filter $(SHARED),$(TESTS)): SAVES = $(if $(filter -O2,$(OPT)$(CFLAGS)),-O1)
$(SHARED): $(LIBRARY)
$(BUILD)/tests/attn_schedule: USE = -O1 -DPIMATTN_SIMD=0
$(BUILD)/tests/contract_cache: USE = -O0 -DPIMATTN_SIMD=0
$(BUILD)/tests/law_cache: USE = -O1

$(LIBRARY): $(HEADERS)
	@mkdir -p $(BUILD)
	printf '#define PIMATTN_IMPLEMENTATION\n#include "pimattn.h"\n' | \
	    $(CC) $(FLAGS) -x c -c -o $@ -

$(BUILD)/%: examples/%.c $(HEADERS) $(wildcard examples/*.h)
	@mkdir -p $(BUILD)
	$(CC) $(FLAGS) $(OMP) $(LDFLAGS) -pthread -o $@ $< $(USE) -lm

$(BUILD)/merge_mpi: examples/merge_mpi.c $(HEADERS) $(wildcard examples/*.h)
	@mkdir -p $(BUILD)
	OMPI_CC="$(CC)" MPICH_CC="$(CC)" mpicc $(FLAGS) $(LDFLAGS) -o $@ $< $(USE) -lm

$(BUILD)/sparse: examples/common.h examples/capture.h
$(BUILD)/ggml: USE += $(DL)
$(BUILD)/%: bench/%.c $(HEADERS) $(wildcard bench/*.h) examples/pool.h
	@mkdir -p $(BUILD)
	$(CC) $(FLAGS) $(LDFLAGS) -pthread -o $@ $< $(USE) -lm

.PHONY: all everything programs demo test bench check clean
