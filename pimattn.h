/* pimattn.h - attention over a paged KV cache, and what it costs on a PIM memory.
 *
 * Version 0.1.0. C99 or C++11, libc and libm only; needs pim_hw.h beside it. In one source file:
 *
 *     #define PIMATTN_IMPLEMENTATION
 *     #include "pimattn.h"
 *
 * The smallest complete program (1 layer, 2 query heads, 1 KV head of 4):
 *
 *     pimattn_config c = {0};
 *     pimattn_engine *e;
 *     pimattn_seq s;
 *     pimattn_readings r;
 *     float k[4] = {1}, v[4] = {2}, q[8] = {1}, out[8];
 *     c.shape.n_layers = 1, c.shape.n_heads = 2, c.shape.n_kv_heads = 1, c.shape.head_dim = 4;
 *     pimattn_engine_create(&e, &c, NULL);
 *     pimattn_seq_create(e, &s);
 *     pimattn_append(e, s, 0, k, v, 1, 0, 0);
 *     pimattn_attend_one(e, s, 0, out, q, &r);
 *     printf("%g, %llu clocks\n", out[0], (unsigned long long)r.device.cycles);
 *     pimattn_engine_destroy(e);
 *
 * Build with -ffp-contract=off: without it a compiler may fuse multiplications into additions, and
 * two builds differ in the last bit. -ffast-math is refused, and its parts as far as the compiler
 * tells; pimattn_engine_create refuses a build that takes sums apart. The host's floating-point
 * environment is the usual one (to the nearest, subnormals kept, no traps). Options, to define
 * before the include:
 *
 *     PIMATTN_IMPLEMENTATION  build the functions here, and those of pim_hw.h
 *     PIMATTN_STATIC          every function becomes a private copy of this source file; add
 *                             PIMHW_STATIC for those of pim_hw.h
 *     PIMATTN_SIMD            most SIMD to build: 0 none, 1 AVX2 or NEON, 2 AVX-512 (default); what
 *                             the CPU lacks is left out when an engine is made
 *     PIMATTN_ASSERT(x)       what checks our own invariants; default: assert
 *
 * Rooms. Front: [A1] options, [A2] foundations, [A3] shapes, [A5] plan, [A9] readings,
 * [A6] attention, [A4] cache, [A7] tiers. Back: [A10] cellar, [A11] numbers, [A12] kernels,
 * [A13] partials, [A14] pages, [A15] partition, [A16] lowering, [A17] tiers, [A18] tier time,
 * [A19] places, [A20] planner, [A21] engine, [A22] sequences, [A23] append, [A24] life cycle,
 * [A25] states, [A26] jobs, [A27] calls, [A28] device way, [A29] attention.
 *
 * Papers, as cited below: [LOL] LoL-PIM; [PHONY] PIMphony; [CENT] CENT; [OS18] Milakov and
 * Gimelshein, Online normalizer calculation for softmax; [PAM] PAM.
 *
 * MIT licence, Copyright (c) 2026 the pimattn authors; its text, for both, ends pim_hw.h.
 */
#ifndef PIMATTN_H
#define PIMATTN_H

#include "pim_hw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==========================================================================
 * [A1] OPTIONS: macros a user may set.
 * ========================================================================== */

#ifndef PIMATTN_SIMD
#if defined(_WIN32) && !defined(__clang__) && !defined(__OPTIMIZE__)
#define PIMATTN_SIMD 1 /* gcc for Windows breaks down at 512 bits then */
#else
#define PIMATTN_SIMD 2
#endif
#endif

#ifdef PIMATTN_STATIC
#define PIMATTN_API static inline
#else
#define PIMATTN_API extern
#endif

/* ==========================================================================
 * [A2] FOUNDATIONS: version, status.
 * ========================================================================== */

#define PIMATTN_VERSION_MAJOR 0
#define PIMATTN_VERSION_MINOR 1
#define PIMATTN_VERSION_PATCH 0

typedef enum pimattn_status {
    PIMATTN_OK = 0,
    PIMATTN_ERR_ARGUMENT, /* a pointer, count, stride or layer of the call is wrong */
    PIMATTN_ERR_CONFIG,   /* the configuration contradicts itself; the cause names the field */
    PIMATTN_ERR_MEMORY,   /* the allocator gave nothing */
    PIMATTN_ERR_PAGES,    /* the configured page memory is used up */
    PIMATTN_ERR_SEQ,      /* no such sequence, or it is swapped out, or no slot for one more */
    PIMATTN_ERR_RANGE,    /* a finite value too large for the cache's type */
    PIMATTN_ERR_DEVICE,   /* the device cannot do the program; the cause has its words */
    PIMATTN_ERR_STATE     /* a saved state is cut short, damaged, or of another shape or version */
} pimattn_status;

/* What a status means; never NULL. A NULL that a call with status needs is PIMATTN_ERR_ARGUMENT. */
PIMATTN_API const char *pimattn_status_str(pimattn_status status);

/* Calls fn(arg, index, worker) for every index below n, with worker < max_workers and never two at
 * once under one worker; returns when all have, their writes visible. Must not call the engine. If
 * it leaves some out, attend returns PIMATTN_ERR_ARGUMENT, outputs written in part. fn takes some
 * 20 KB of stack, a call of ours 40 (built without optimisation up to 110). */
typedef void (*pimattn_parallel_for)(void *user, size_t n,
                                     void (*fn)(void *arg, size_t index, size_t worker), void *arg);

/* ==========================================================================
 * [A3] SHAPES: heads, head_dim, types.
 * ========================================================================== */

/* How K or V lies in the cache, rounded to the nearest, ties to even (int8: x times 1 / scale); in
 * banks (way device) as lane_type, whatever this says. */
typedef enum pimattn_type {
    PIMATTN_F32 = 0,
    PIMATTN_F16 = 1,
    PIMATTN_BF16 = 2,
    PIMATTN_INT8 = 3, /* -127 to 127 times an f32 scale of the token and head: max |row| / 127, and
                         at least FLT_MIN; a bit less if else 127 times it were infinite. A number
                         is x * (1 / scale), each in f32, to the nearest, ties to even. If K
                         and V both are, a timed unit has a lane a byte (assumed); units of tiers
                         have the lanes they have, whatever the type */
    PIMATTN_N_TYPE
} pimattn_type;

/* Attention of one model. Query head h reads KV head h / (n_heads / n_kv_heads). A score is scaled,
 * then soft-capped, then biased by ALiBi, then masked: a query sees the tokens up to its own, of
 * these the last `window` and the first `sink_tokens` of the sequence. Positions are absolute, and
 * nothing is rotated: RoPE is in q and K as they come. */
typedef struct pimattn_shape {
    uint32_t n_layers;   /* 1 to 65536 */
    uint32_t n_heads;    /* a multiple of n_kv_heads, at most 65536 */
    uint32_t n_kv_heads; /* 1 to 65536 */
    uint32_t head_dim;   /* of q and K; 1 to 65536 */
    uint32_t head_dim_v; /* of V and the output; 0: head_dim */
    uint32_t k_type;     /* pimattn_type in the cache; default f32 */
    uint32_t v_type;
    float scale;               /* score = scale * q.k; 0: 1 / sqrt(head_dim), which for v_in_k is
                                  not that of the model's own heads: give it */
    float soft_cap;            /* score = soft_cap * tanh(score / soft_cap); 0: none */
    float alibi_max_bias;      /* score -= slope * |distance|, by ggml's rule; 0: none; to 1024 */
    const float *alibi_slopes; /* .. or [n_heads] of them given, whatever the bias, below 1e25, as a
                                  shard of a model must; NULL: by the rule, of n_heads */
    const float *sink_logits;  /* [n_heads]: a score without a value, once in every row, as it is:
                                  not scaled, capped or biased (GPT-OSS); -inf or NULL: none */
    uint64_t window;           /* the query's own token among them (llama.cpp's n_swa, FlashInfer's
                                  window_left + 1); 0: all; at most 2^62 */
    const uint64_t *windows;   /* [n_layers]: of each layer, window is 0; NULL: window for all */
    uint64_t sink_tokens;      /* the first ones, with a window or keep (StreamingLLM); at most
                                  2^62; no pimattn_seq_keep lets them go; readings of pages from a
                                  later position on count them, too */
    bool v_in_k;      /* V is the first head_dim_v of K (MLA), of its type, not stored; host way */
    uint32_t io_type; /* of q, k, v and out of all calls: f32, so far nothing else */
} pimattn_shape;

/* ==========================================================================
 * [A5] PLAN: which channel and bank holds which tokens, and the program that follows.
 * ========================================================================== */

typedef enum pimattn_partition {
    PIMATTN_TCP = 0, /* token-centric: the tokens of every KV head over all channels [PHONY] */
    PIMATTN_HFP = 1  /* head-first: (sequence, head) pairs to channels, longest first */
} pimattn_partition;

typedef enum pimattn_hfp_unit {
    PIMATTN_BY_KV_HEAD = 0,   /* a KV head with all its query heads */
    PIMATTN_BY_QUERY_HEAD = 1 /* every query head by itself, with K and V of its own */
} pimattn_hfp_unit;

/* How V lies in the banks that share a KV head. Dims come in blocks of one a bank; a column of a
 * bank holds one dim of 16 (lanes) consecutive tokens; channel groups take the columns in turn. */
typedef enum pimattn_v_mapping {
    PIMATTN_V_A = 0,   /* the blocks of dims on different channels, which make a group [PHONY] */
    PIMATTN_V_B,       /* every channel a group with all blocks, a row of each after the other */
    PIMATTN_V_K,       /* as B, but all blocks share a row, and their sums stay till the end */
    PIMATTN_V_CHEAPEST /* the one with fewest clocks, of equals the one with least energy; not in
                          the device way */
} pimattn_v_mapping;

/* What a mapping is called ("A", "B", "K", "cheapest"); NULL beyond the last. */
PIMATTN_API const char *pimattn_v_mapping_str(uint32_t v_mapping);

/* One sequence of a step: its tokens in the cache, of which the last n_tokens are queries. Or what
 * the sequences begin with that follow and have as many query tokens together; their spans are then
 * of what comes behind. Its rows open once for the queries of all, and the hub adds its sums to
 * theirs; in layers with a window every sequence reads its own part of it. */
typedef struct pimattn_span {
    uint64_t context_tokens; /* with a prefix at most 2^32 */
    uint64_t n_tokens; /* 1 to context_tokens, at most 65535; or PIMATTN_PREFIX + 1 to 65535 */
} pimattn_span;

#define PIMATTN_PREFIX ((uint64_t)1 << 63)

/* How a shape lies on a device, and the order of its program.
 *
 * Order. in-order and static: the inputs of a block, then per sum its MACs and its read [CENT].
 * reads_late: an entry is read just before its next sum begins, the last ones at the end of the
 * phase, so that the inputs of the next query, block, strip or row always go out before the reads
 * that are still due (W first [PHONY]); scores whose sums begin with a bias, and take less time
 * than their reads, are read a set of queries at a time, of one query those of a row, or each
 * bias would wait. Sums take turns on all entries. Keys of several rows, or larger than the global
 * buffer, go by parts: queries that find an entry each, one token's, meet a part before the next.
 * inputs_late: a query's inputs go out just before its first MACs, not a block's at once. */
typedef struct pimattn_plan {
    pimattn_shape shape;
    uint32_t partition;     /* pimattn_partition */
    uint32_t hfp_unit;      /* pimattn_hfp_unit */
    bool row_reuse_off;     /* default: all queries of a KV head use a row before it closes */
    bool reads_late;        /* DCS; ping-pong reads a region's sums beside the next phase anyway */
    bool inputs_late;       /* DCS: a queue of inputs waits for entries one by one */
    uint32_t unit_channels; /* channels that share one KV head: all (TCP) or 1 (HFP) */
    uint32_t n_queries;     /* queries of one block the program is made for */
    uint32_t inputs;        /* global buffer entries to fill at once: a region under ping-pong */
    uint32_t sums;          /* output entries to sum into at once: likewise */
    uint32_t k_columns;     /* columns of one token's key */
    uint32_t k_row_tokens;  /* tokens of one bank row; 0: a token takes k_token_rows rows */
    uint32_t k_token_rows;
    uint32_t k_queries;     /* query block of the K phase; 1 if a key is larger than inputs */
    bool k_resident;        /* the queries stay in the global buffer for all rows; false then */
    uint32_t k_out_slots;   /* output entries of the K phase: for so many tokens of a bank .. */
    uint32_t k_out_queries; /* .. times so many queries; 1 x 1: all sums use entry 0 */
    uint32_t v_wanted;      /* pimattn_v_mapping asked for .. */
    uint32_t v_mapping;     /* .. and taken: K becomes A where it has too few entries */
    uint32_t v_blocks;      /* blocks of n_banks dims that cover head_dim_v */
    uint32_t v_spread;      /* channels of a group, each with other blocks of dims */
    uint32_t v_groups;      /* channel groups over tokens */
    uint32_t v_passes;      /* blocks of one channel: over the same tokens, one after the other */
    bool v_packed;          /* K: the blocks share a row, else each has rows of its own */
    uint32_t v_row_columns; /* columns of one block in a row */
    uint32_t v_queries;     /* query block of the V phase */
    uint32_t v_strip;       /* columns of probabilities in the global buffer at once, per query */
    bool v_hold;            /* sums stay in the output entries from row to row */
    uint32_t wanted_out;    /* output entries the plan would have used with enough of them .. */
    uint32_t used_out;      /* .. and uses; fewer: smaller blocks, another mapping, more openings */
    pimhw_config device;
    uint64_t seal; /* what the others came to as it was made: one changed by hand is refused */
} pimattn_plan;

/*
 * Plans blocks of up to n_queries queries: n_tokens * GQA group, or n_tokens by query head; V by A.
 * Lanes have device->element_bytes, 1 for int8, whatever the types of the shape.
 *
 *   memory   keeps what the shape points to
 *   returns  PIMATTN_ERR_CONFIG with the field in *why; *plan then unchanged
 */
PIMATTN_API pimattn_status pimattn_plan_init(pimattn_plan *plan, const pimattn_shape *shape,
                                             const pimhw_config *device, uint32_t partition,
                                             uint32_t hfp_unit, bool row_reuse_off,
                                             uint64_t n_queries, pimhw_cause *why);

/*
 * Lays V out by another mapping. K needs an output entry per block of dims and query, and an input
 * per query; with too few, or more blocks than a row has columns, the plan takes A and says so.
 *
 *   returns  PIMATTN_ERR_CONFIG if there is no such mapping, and for PIMATTN_V_CHEAPEST: that
 *            depends on lengths, so an engine or an estimate decides it; *plan then unchanged
 */
PIMATTN_API pimattn_status pimattn_plan_map_v(pimattn_plan *plan, uint32_t v_mapping,
                                              pimhw_cause *why);

/* Of a plan as it was made: rows of a chunk of device memory (1 MiB over the channels that share a
 * head, at least one row); chunks that so many tokens of one head, at most 2^32, take: K and V. */
PIMATTN_API uint32_t pimattn_plan_chunk_rows(const pimattn_plan *plan);
PIMATTN_API uint64_t pimattn_plan_chunks(const pimattn_plan *plan, uint64_t tokens);

/* The program of a plan: one layer's attention, for any batch of any lengths. Here and for requests
 * a plan that is not as it was made is PIMATTN_ERR_ARGUMENT. */
PIMATTN_API pimattn_status pimattn_plan_lower(const pimattn_plan *plan, pimhw_program *program,
                                              pimhw_cause *why);

/* Blocks and scratch that pimattn_plan_request needs for n_spans sequences. */
PIMATTN_API size_t pimattn_plan_blocks(const pimattn_plan *plan, size_t n_spans);

/*
 * Request data of a batch. With shape.window (windows are not looked at) it is of the tokens that
 * are seen, packed as in a cache that keeps no others.
 *
 *   shape    blocks, order: [pimattn_plan_blocks]; list_begin: [PIMHW_MAX_CHANNELS + 1]
 *   memory   keeps the three pointers in *request
 *   returns  PIMATTN_ERR_ARGUMENT (also for more queries than were planned), PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_plan_request(const pimattn_plan *plan, pimhw_request *request,
                                                pimhw_block *blocks, uint32_t *order,
                                                uint32_t *list_begin, const pimattn_span *spans,
                                                size_t n_spans, pimhw_cause *why);

/* ==========================================================================
 * [A9] READINGS: latency, energy, occupancy, what else would have done.
 * ========================================================================== */

/* What a layer's attention spends most of its time on. */
typedef enum pimattn_bound {
    PIMATTN_BOUND_MAC = 0, /* multiplying: as fast as the banks go, tCCD from MAC to MAC */
    PIMATTN_BOUND_ROW,     /* opening and closing rows */
    PIMATTN_BOUND_IO,      /* inputs and results of the channels, modes, waits: all else */
    PIMATTN_BOUND_SOFTMAX, /* waiting for the hub */
    PIMATTN_BOUND_REFRESH,
    PIMATTN_BOUND_LINK, /* q and out on their way take longer than all of that */
    PIMATTN_N_BOUND
} pimattn_bound;

/* What a bound is called; NULL beyond the last. */
PIMATTN_API const char *pimattn_bound_str(uint32_t bound);

/* What attention costs. A step is n_layers layers. With refresh, a single layer may be too short
 * to meet one: if it takes less than 16 tREFI, the step is timed as n_layers layers in one go,
 * which meet refreshes elsewhere than one does, else and without refresh as n_layers times the one
 * layer; layers of another window by themselves. So readings of one layer are enough for a step.
 * Writing K and V is in none of it. New tokens of a call take all that any of them sees; what
 * causality or a window hides is padding. Masks change nothing, nor windows in the device way. */
typedef struct pimattn_readings {
    uint32_t size;         /* bytes of this struct; as all of it, filled by the call */
    uint32_t version;      /* 1 */
    pimhw_readings device; /* attention of one layer for the whole batch alone, with softmax */
    uint32_t n_layers;
    uint32_t layers_timed; /* in one go for the step: all with the window of this one, or 1 */
    uint64_t step_ck;
    double step_us;
    double layer_ns;                  /* a layer of the step, on average: step_us / n_layers */
    double energy_pJ[PIMHW_N_ENERGY]; /* of the step; in this order they sum to step_pJ */
    double step_pJ;
    double layer_pJ;      /* step_pJ / n_layers */
    double token_pJ;      /* step_pJ / query tokens of the batch */
    double average_mW;    /* power over the step */
    double refresh_share; /* of the step's clocks on the critical channel: REF, and waits for it */
    double host_ns;       /* reading kv_bytes at the host's bandwidth (host_MBps) .. */
    double peak_ns;       /* .. and at the device's own: a column of every bank each tCCD_MAC */
    double link_ns;       /* a layer's q in and out back over link_MBps, element_bytes each: the
                             hub does softmax, so no score leaves the module */
    double speedup;       /* host_ns / (layer_ns + link_ns), host_ns of the mean layer */
    uint32_t bound;       /* pimattn_bound: why */
    uint32_t controller;  /* pimhw_controller */
    uint32_t partition;
    uint32_t v_mapping;  /* pimattn_v_mapping taken .. */
    uint32_t v_wanted;   /* .. and asked for */
    uint32_t wanted_out; /* see pimattn_plan */
    uint32_t used_out;
    uint64_t kv_tokens;   /* context tokens of the batch that are kept; of a call with choices, what
                             is timed and read: the tokens seen, at least the new, mean of KV
                             heads, up */
    uint64_t kv_bytes;    /* K and V that one layer of the batch reads, unpadded: of the tokens in
                             windows (device way: all), element_bytes each, or int8 and scale (host
                             way, no tiers); v_in_k: K, while the device is timed with a V too */
    uint64_t pages_used;  /* KV pages in use in the engine; of an estimate, or the device way, 0 */
    uint64_t pages_total; /* KV pages the configuration allows; likewise */
    bool remembered;      /* a batch of these lengths had been timed before */
    const char *kernel;   /* host kernel: "avx2", ..; "device"; "" for an estimate */
    /* device way */
    uint64_t chunks_used, chunks_total; /* of the device's rows, in use and in all; 0: host way */
    uint64_t chunk_bytes;               /* of one: its rows in all banks that share it */
    uint64_t memory_bytes;              /* host memory that models the banks */
    uint64_t append_ck;                 /* writing what was appended since the readings before .. */
    uint64_t append_commands;           /* .. one append after the other, of a shared front end
                                            but for what its queues hold in the end: commands .. */
    double append_pJ;                   /* .. and energy; in none of the numbers above */
} pimattn_readings;

/* ==========================================================================
 * [A6] ATTENTION: partials, engine, attend.
 * ========================================================================== */

/* (m, l, o) of a token subset for one query head: maximum score, sum of exp(score - m), sum of
 * exp(score - m) v. The empty partial is (-inf, 0, 0). m = NaN is poisoned: a visible score was not
 * finite; attention then gives l and o as NaN, too. o is caller's memory of dim floats. */
typedef struct pimattn_partial {
    float m, l;
    float *o;
    uint32_t dim;
} pimattn_partial;

PIMATTN_API void pimattn_partial_clear(pimattn_partial *partial);

/*
 * Folds src into dst, dst as the left operand: afterwards dst covers the tokens of both.
 *
 *   returns  PIMATTN_ERR_ARGUMENT if dim differs or an o is missing; dst then unchanged
 *   source   [OS18 3.1]
 */
PIMATTN_API pimattn_status pimattn_partial_merge(pimattn_partial *dst, const pimattn_partial *src);

/* Exits: out[j] = o[j] / l, 0 if empty, NaN if poisoned or not finite; m + log l, -inf or NaN. */
PIMATTN_API void pimattn_partial_output(const pimattn_partial *partial, float *out);
PIMATTN_API float pimattn_partial_lse(const pimattn_partial *partial);

/* The most SIMD an engine uses of what is there; numbers of the macro PIMATTN_SIMD are one less. */
typedef enum pimattn_simd {
    PIMATTN_SIMD_MOST = 0,
    PIMATTN_SIMD_NONE = 1, /* the scalar kernel */
    PIMATTN_SIMD_256 = 2,  /* AVX2 with FMA and F16C; NEON */
    PIMATTN_SIMD_512 = 3   /* AVX-512 F, BW, DQ, VL */
} pimattn_simd;

/* A kernel of this build and CPU. */
typedef struct pimattn_kernel_info {
    const char *name; /* "scalar", "neon", "avx2", "avx512" */
    uint32_t simd;    /* pimattn_simd it needs */
} pimattn_kernel_info;

/* What an engine with this pimattn_simd would use; asks the CPU, as every engine does once. */
PIMATTN_API void pimattn_kernel_select(uint32_t simd, pimattn_kernel_info *kernel);

/* Who computes. */
typedef enum pimattn_way {
    PIMATTN_HOST = 0, /* the CPU, on pages */
    PIMATTN_DEVICE    /* the modelled units, on the bytes in their banks */
} pimattn_way;

/* What happens to a KV page of the host way without tiers. When an engine is destroyed, those known
 * by their tokens are EVICTED and the others FREED. */
typedef enum pimattn_page_event {
    PIMATTN_PAGE_TAKEN = 0, /* from the pool */
    PIMATTN_PAGE_FREED,     /* nothing refers to it any more */
    PIMATTN_PAGE_EVICTED,   /* it was known by its tokens, no sequence held it: given up */
    PIMATTN_PAGE_MOVED      /* it has the number `to` now */
} pimattn_page_event;

/* Must not change the engine: refused. page: its number, of a layer and KV head; to: of MOVED. */
typedef void (*pimattn_page_fn)(void *user, pimattn_page_event event, uint32_t page, uint32_t to);

/* All 0 first (= {0}; C++: = {}): 0 means usual, but for layers, heads and head_dim of shape. */
typedef struct pimattn_config {
    pimattn_shape shape;
    uint32_t way;                      /* pimattn_way */
    uint32_t page_tokens;              /* of a KV page, up to 65536; 0: 128; no clock hangs on it */
    uint64_t pool_bytes;               /* most that KV pages take; 0: 1 GiB, or the least allowed */
    uint32_t max_seqs;                 /* sequences alive, and of one call; 0: 64, at most 65535;
                                          with share_rows 43690 */
    uint64_t reserve_tokens;           /* static: a sequence takes the pages of so many tokens when
                                          it begins, later only copies of shared ones it writes to,
                                          and has no more (PIMATTN_ERR_PAGES, whatever is free); 0:
                                          as tokens arrive */
    uint64_t scratch_bytes;            /* working memory; 0: 8 MiB, or if more 64 jobs a worker;
                                          the least allowed has one job, and runs serially */
    uint32_t memo_entries;             /* timed batches remembered; 0: 64 */
    uint32_t max_workers;              /* of parallel_for, if given, at most 4096; 0: 1 */
    pimattn_parallel_for parallel_for; /* NULL: a serial loop */
    void *parallel_user;
    uint32_t partition; /* pimattn_partition; default TCP */
    uint32_t hfp_unit;  /* pimattn_hfp_unit */
    uint32_t v_mapping; /* pimattn_v_mapping; default A */
    bool row_reuse_off;
    bool share_rows; /* readings: of items after one another that begin with the same pages, those
                        pages are a prefix ([A5]), if whole ones lie before all new tokens and
                        no first tokens went; else, and with choices, each reads them for itself */
    uint32_t simd;   /* pimattn_simd: the reading `kernel` names what it came to */
    pimhw_config device; /* from pimhw_config_init; all 0: "aimx"; its allocator is not used */
    pimhw_allocator allocator;
    pimattn_page_fn on_page; /* NULL: nobody listens */
    void *page_user;
    const struct pimattn_tiers *tiers; /* [A7]: tokens lie in these, not in pages; NULL: pages */
} pimattn_config;

/* Judges a configuration: PIMATTN_ERR_CONFIG with the first wrong field and its limits in *why. */
PIMATTN_API pimattn_status pimattn_config_check(const pimattn_config *config, pimhw_cause *why);

/* An engine does one call at a time: two threads may use two engines, or take turns on one. */
typedef struct pimattn_engine pimattn_engine;

/*
 *   config   with what it points to, but users and the allocator's, is copied
 *   returns  PIMATTN_ERR_CONFIG, PIMATTN_ERR_MEMORY; *engine is then NULL
 *   memory   scratch and tables here; pages as they are needed; attend allocates nothing, but in
 *            the device way, for scores, and with readings of tiers, what it gives back
 */
PIMATTN_API pimattn_status pimattn_engine_create(pimattn_engine **engine,
                                                 const pimattn_config *config, pimhw_cause *why);
PIMATTN_API void pimattn_engine_destroy(pimattn_engine *engine);

/* Why the last failing call on this engine failed; "" before the first. */
PIMATTN_API const char *pimattn_engine_cause(const pimattn_engine *engine);

/* The configuration with every 0 replaced by what it meant. */
PIMATTN_API const pimattn_config *pimattn_engine_config(const pimattn_engine *engine);

/* The banks of the device way, e.g. to look at them or to break them; NULL in the host way. */
PIMATTN_API pimhw_memory *pimattn_engine_memory(pimattn_engine *engine);

/* Names a sequence of its engine; 0 is never one, and a freed one's is not given out again. */
typedef uint64_t pimattn_seq;

/* One sequence of a batch: the last n_tokens of its tokens are the queries. */
typedef struct pimattn_item {
    pimattn_seq seq;   /* may stand in a batch more than once */
    uint64_t n_tokens; /* 1 to those it has from first_token (first_query) on, at most 65535 */
} pimattn_item;

/* Which of an item's new tokens its queries see, e.g. a tree of drafts, each behind its parent, of
 * which pimattn_seq_accept then keeps a branch: query i sees new token j, before or after its own,
 * if bit j % 64 of word i * ((n_tokens + 63) / 64) + j / 64 is set and no window hides it (which
 * hides only lower positions); of those before the new ones what it would see without. In a tree
 * siblings have one position, which their places in the cache do not say: with a window or ALiBi a
 * branch gets what plain decoding gives only if positions say it. */
typedef struct pimattn_mask {
    const uint64_t *bits;      /* NULL: up to its own */
    uint64_t n_tokens;         /* as in the item; without bits it may be 0 */
    const uint64_t *positions; /* [n_tokens] of the new tokens for windows, sink_tokens and ALiBi,
                                  beside bits alone, from the place of the first on, none behind
                                  its own place; NULL: their places, which choices and readings go
                                  by in any case */
} pimattn_mask;

/* Which tokens of a sequence take part, for each KV head: one that is not chosen is not visible, as
 * if masked, for every query of the item, its own included; it is never read, and the positions of
 * others stay. Windows, masks and causality hold beside it. Host way only.
 *
 * Token t of KV head h is chosen by bit t % 64 of word h * stride + t / 64. Tokens from n_tokens
 * on, such as those appended after the choice was made, are all chosen. */
typedef struct pimattn_choice {
    uint64_t *bits;      /* NULL, with n_tokens 0: all tokens */
    uint64_t n_tokens;   /* positions that bits are of, from 0 on */
    size_t stride;       /* words from one KV head to the next; 0: packed, (n_tokens + 63) / 64 */
    uint32_t n_kv_heads; /* as in the shape, or 1: the same for all KV heads */
} pimattn_choice;

/* A batch. Rows are packed by token over the items in order: row r of q is [n_heads][head_dim], of
 * out [n_heads][head_dim_v], of lse [n_heads]. Strides in bytes from one row to the next, 0:
 * packed. A query that sees nothing gets zeros and -inf; with a sink logit, zeros and that. q, out
 * and lse may have any alignment, all else has that of its type. */
typedef struct pimattn_call {
    float *out;                /* may be NULL if partials is not */
    float *lse;                /* natural log-sum-exp, sink logits in, beside either; or NULL */
    pimattn_partial *partials; /* [rows][n_heads] with o and dim = head_dim_v set; m, l and what o
                                  points to are overwritten; may be NULL. Without sink logits: who
                                  merges partials merges {logit, 1, zeros} once, at the end */
    const float *q;            /* outputs lie neither in it nor in each other: not looked at */
    const pimattn_item *items; /* [n_items] */
    size_t n_items;            /* 1 to max_seqs */
    const pimattn_mask *masks; /* [n_items] or NULL */
    const pimattn_choice *choices; /* [n_items] or NULL */
    size_t q_stride, out_stride;
} pimattn_call;

/*
 * Attention of one layer.
 *
 *   readings may be NULL: then nothing is timed
 *   returns  PIMATTN_ERR_ARGUMENT, PIMATTN_ERR_SEQ, PIMATTN_ERR_DEVICE (also of V by K in banks
 *            with too few entries for an item's queries, where an estimate takes A); in the device
 *            way also PIMATTN_ERR_RANGE (q beyond a lane), PIMATTN_ERR_MEMORY; outputs then stay
 *   error    host way: |out - exact| <= (2e-6 + 2e-7 max|score|) max|v| + 2^-140, where the sum
 *            of |scale q_i k_i| and |ALiBi| stands for |score| if terms cancel; for lse without
 *            max|v|. 2^-140, of int8 2^-133: below FLT_MIN each of 512 tokens of a leaf rounds
 *            p v, or p times the scale, to 2^-149. Data sought out to break it came to 1.3 times
 *            that, all other kept within. Where the sum of |v| over the tokens passes FLT_MAX, o
 *            can overflow, and out is NaN
 *   bits     host way: one kernel's of a query head hang on the tokens it sees, their places and,
 *            if given, positions; the device way rounds as its units and its plan do: of the batch
 *            and entries, of which some controllers have half
 *   NaN      a score that is not finite, or that was not before the soft-cap, before scale or, of
 *            int8, before the key's scale, makes out and lse of that head NaN; v[j] that is not
 *            finite makes out[j] NaN and nothing else; append keeps both; an int8 row with either
 *            has a scale of NaN, so all of the row is; in the device way v[j] of a token that is
 *            not seen does so too: its weight is 0, and 0 times NaN is NaN; and, where results have
 *            16 bits (out_bits) of f16, a q . k above 65,504, or a sum of p v: of 16 bits p goes
 *            to the units times 2^-n, and none reaches it with |v| up to 256
 */
PIMATTN_API pimattn_status pimattn_attend(pimattn_engine *engine, uint32_t layer,
                                          const pimattn_call *call, pimattn_readings *readings);

/* The same for the newest token of one sequence. */
PIMATTN_API pimattn_status pimattn_attend_one(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, float *out, const float *q,
                                              pimattn_readings *readings);

/* How rows of a page follow one another if strides are 0: tokens of all heads, or heads. */
typedef enum pimattn_order {
    PIMATTN_NHD = 0, /* [page_tokens][n_kv_heads][dim] */
    PIMATTN_HND      /* [n_kv_heads][page_tokens][dim] */
} pimattn_order;

/* Rows in pages of the caller, of the shape's types; bytes to the next one, 0: by the order, as of
 * an array of K (or V) alone, [n_pages][page_tokens][n_kv_heads][dim] in NHD. [2][n_pages][..], as
 * vLLM has it: v.at is the second half, strides are 0. [n_pages][2][..], as FlashInfer has it: v.at
 * is the second half of page 0, and page of both is the bytes of both. */
typedef struct pimattn_rows {
    const void *at; /* of page 0 */
    size_t page, token, head;
} pimattn_rows;

/* K and V of a batch in pages of the caller, as FlashInfer or vLLM keep them, a row in one piece
 * (so neither K cut up for a kernel, nor MLA in two tensors). The pages of item i are numbers
 * indptr[i] .. indptr[i + 1] - 1 of indices, its last page holds last_page_len[i] tokens; or, where
 * indptr is NULL, the first of row i of table, lengths[i] tokens. */
typedef struct pimattn_pages {
    pimattn_rows k, v;             /* any alignment; v_in_k: no v */
    pimattn_rows k_scale, v_scale; /* of int8 alone, else at NULL: f32, one for a token and head, in
                                      the order of K with a dim of 1; none stands for several */
    uint64_t n_pages;              /* page numbers up to the lengths are below it; at most 2^32 */
    uint32_t page_tokens;          /* any */
    uint32_t order;                /* pimattn_order */
    const uint32_t *indptr;        /* [n_items + 1] */
    const uint32_t *indices;
    const uint32_t *last_page_len;  /* [n_items], 1 to page_tokens */
    const uint32_t *table;          /* [n_items][table_stride] */
    const uint32_t *lengths;        /* [n_items] of tokens held, the new ones included */
    size_t table_stride;            /* pages of a row */
    const uint64_t *first_position; /* [n_items] of the first token held; NULL: 0; below 2^32; of
                                       sink_tokens those before are not attended to */
} pimattn_pages;

/*
 * Attention over pages that the caller owns, in the host way. A tile of 16 tokens, from a multiple
 * on, is read where it lies if it is in one page or in pages that follow one another as listed,
 * head dims are multiples of 16 and its first tokens alone are seen; of other dims from 8 on,
 * without choices, if all of it is seen and the rows behind its rows, without a gap. Else it is
 * copied, more slowly. Nothing beyond the tokens held is read, and none that no query sees.
 *
 *   call     as for pimattn_attend; items[i].seq is not used
 *   returns  also PIMATTN_ERR_ARGUMENT for pages: a number, a length, strides that overlap rows, or
 *            far more tokens than pool_bytes holds if scratch_bytes has no room for their partials
 *            (of the whole length, whatever windows and choices hide); in words; outputs then
 *            unchanged
 *   part     of a context: its whole length (its last tokens are the queries), any numbers below
 *            n_pages for what is not here, and call->choices, by absolute positions, of what is;
 *            partials merge with those of the rest, and lse but for sink logits, which each has
 *   bits     those of pimattn_attend over the same tokens
 *   source   FlashInfer's paged KV cache (indptr, indices, last_page_len; NHD, HND)
 */
PIMATTN_API pimattn_status pimattn_attend_pages(pimattn_engine *engine, uint32_t layer,
                                                const pimattn_pages *pages,
                                                const pimattn_call *call,
                                                pimattn_readings *readings);

/*
 * Chooses at least 1 / c of the tokens that the newest token's queries see, of each KV head by
 * itself, in whole pages (in tiers tiles of 16): the newest, then those with the largest bounds
 * until there are enough tokens, of equal ones the earlier. The bound of a page is the largest
 * score, with all that the shape says, that a query of the group can have with a key anywhere in it
 * whose dims lie between the least and the largest of those seen: no score that attention computes
 * is above it, but those that overflow. It is infinite where a key that is seen is not finite.
 *
 *   choice   bits, stride (not 0) and n_kv_heads are given; n_tokens becomes the length
 *   bounds   [n_kv_heads]: the largest that is left out, -inf if none is; may be NULL
 *   shape    q: [n_heads][head_dim]
 *   units    c: 1 leaves out nothing; 0: 8, which is usual [PAM]
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_DEVICE (host way only), PIMATTN_ERR_MEMORY,
 *            PIMATTN_ERR_ARGUMENT (a stride below the length, q not finite, no token)
 *   memory   gives back what it takes, but room for the bounds of all pages once somebody asks (64
 *            bytes and 2 keys in f32 a page); keys are read the first time they are asked for
 */
PIMATTN_API pimattn_status pimattn_retrieve(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                                            pimattn_choice *choice, float *bounds, const float *q,
                                            uint32_t c);

/* What says how much a token counts. */
typedef enum pimattn_source {
    PIMATTN_BY_SCORES = 0, /* exp(score - log-sum-exp), the mean over query heads */
    PIMATTN_BY_BOUNDS      /* as if each score were its page's bound, the mean over KV heads */
} pimattn_source;

/* How much each token counts for the newest one, by what it sees: probabilities, 0 of the others.
 * They sum to 1, less what sink logits take of scores. All NaN if a score or bound is not finite.
 * The bits are those of the scalar kernel. Returns and shapes as of pimattn_retrieve. */
PIMATTN_API pimattn_status pimattn_probabilities(pimattn_engine *engine, pimattn_seq seq,
                                                 uint32_t layer, float *of_tokens, const float *q,
                                                 uint32_t source);

/*
 * What attention of a batch would cost, without tensors or an engine: `device`, kv_bytes and what
 * is made of them are of layer 0. The configuration is judged as an engine's; whether the batch
 * fits max_seqs, and K and V a device or a pool, is not asked. By heads the batch is placed anew,
 * while banks of the device way keep heads where the first append put them. Tiers are judged, not
 * timed: pimattn_step_time does that.
 *
 *   returns  PIMATTN_ERR_CONFIG, PIMATTN_ERR_ARGUMENT, PIMATTN_ERR_MEMORY, PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_estimate(pimattn_readings *readings,
                                            const pimattn_config *config, const pimattn_span *spans,
                                            size_t n_spans, pimhw_cause *why);

/* ==========================================================================
 * [A4] CACHE: KV pages, block tables, sequences.
 *
 * A page holds page_tokens tokens of one KV head of one layer, in runs of 16 tokens (or of
 * page_tokens, if 16 does not divide it), K of the run and then V of the run; after rows of int8
 * the f32 scales of the run:
 *
 *     page_bytes = page_tokens / run * (up64(run * up16(head_dim) * k_bytes) [+ up64(run * 4)]
 *                                       + up64(run * up16(head_dim_v) * v_bytes) [+ up64(run * 4)])
 *
 * where up64 rounds up to a multiple of 64, up16 of 16. Pages come in slabs that begin at multiples
 * of 2 MiB, up to an eighth larger than they; Linux is asked to make these huge pages. A kernel
 * reads pages where they lie if page_tokens is a multiple of 16; else it works on copies of 16
 * tokens, more slowly. Pages are taken when their first token arrives. With v_in_k they have no V.
 *
 * Life cycle. The pages of all layers for the same tokens are shared and let go together, but for
 * pimattn_seq_drop_hidden; a shared page is copied before it is written. Calls on whole sequences,
 * but free and what asks for numbers, want tokens not swapped out (PIMATTN_ERR_SEQ) and, but
 * truncate and keep, equal lengths in all layers (PIMATTN_ERR_ARGUMENT names the layer); they do
 * all or nothing and cost O(pages touched); a table has 4 bytes a page from position 0 on, and
 * saving or restoring many sequences looks at all of them for each. The device way and tiers have
 * create, append, reserve, truncate (keep from 0 on too) and free so far: PIMATTN_ERR_DEVICE says
 * so.
 * ========================================================================== */

/*
 * A new, empty sequence; and its end: its pages go back to the pool.
 *
 *   returns  PIMATTN_ERR_SEQ if max_seqs are alive, or if there is no such sequence; with
 *            reserve_tokens also PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY
 */
PIMATTN_API pimattn_status pimattn_seq_create(pimattn_engine *engine, pimattn_seq *seq);
PIMATTN_API pimattn_status pimattn_seq_free(pimattn_engine *engine, pimattn_seq seq);

/*
 * A new sequence with the tokens of another: it shares all pages with tokens, and copies none but,
 * with reserve_tokens, the last one, if that is not full and it may grow; reserved pages stay.
 *
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_MEMORY, PIMATTN_ERR_ARGUMENT; with reserve_tokens also
 *            PIMATTN_ERR_PAGES
 */
PIMATTN_API pimattn_status pimattn_seq_fork(pimattn_engine *engine, pimattn_seq *child,
                                            pimattn_seq parent);

/*
 * Truncates to n_tokens tokens; or keeps only tokens first .. end - 1, and before them the first
 * sink_tokens of the shape. Attention then sees no others, positions stay what they were, and pages
 * wholly outside go back, those reserved too, but with reserve_tokens those behind; if no token is
 * left, the page stays that the next one goes to, unless it begins that. What is behind a window
 * stays, for a truncation would want it again: if all layers have one, keep from n_tokens - window
 * on after a step, and pages stay as many; else pimattn_seq_drop_hidden. Layers may have other
 * lengths before, so that a step of which one layer was refused is taken back.
 *
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (beyond a layer's length, before first_token, or
 *            an end before first_query)
 */
PIMATTN_API pimattn_status pimattn_seq_truncate(pimattn_engine *engine, pimattn_seq seq,
                                                uint64_t n_tokens);
PIMATTN_API pimattn_status pimattn_seq_keep(pimattn_engine *engine, pimattn_seq seq, uint64_t first,
                                            uint64_t end);

/*
 * Lets go of the pages that their layers' windows hide from all queries of tokens from `first` on,
 * such as n_tokens after a step; layers without a window keep theirs, and outputs do not change.
 * Earlier queries cannot be asked any more, tokens before not be truncated, accepted or remembered.
 * Pages stay that others hold by then (sequences, or the store of known ones), those of the first
 * sink_tokens, and for every page_tokens tokens one page of layer 0. States lack the rows, and go
 * into engines of the same windows. A first that is not above the one before changes nothing.
 *
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (beyond the length), PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_seq_drop_hidden(pimattn_engine *engine, pimattn_seq seq,
                                                   uint64_t first);

/*
 * Of the tokens from `first` on keeps those named, which then follow one another from there: the
 * accepted branch of a tree of drafts. The i'th lies at first + kept[i] and goes to first + i; rows
 * move as they are, so K was made for the position it gets. What follows goes as by a truncation to
 * first + n tokens. Shared pages are copied where rows come into them, and no others; if there is
 * no page for that, truncate behind the last one named before, which may free one.
 *
 *   shape    kept: [n], ascending, counted from first on; n 0: none
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (beyond the length, before first_token, an order
 *            that does not ascend, layers of other lengths), PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY
 *            (memory_bytes may have grown all the same), PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_seq_accept(pimattn_engine *engine, pimattn_seq seq,
                                              uint64_t first, const uint32_t *kept, size_t n);

/*
 * Makes the full pages of a sequence's first n_tokens tokens known by the caller's token ids, under
 * a salt (0 is one too). They stay known when the sequence goes, until their memory is wanted: then
 * those without a sequence for longest go first, of one sequence the last ones. Pages known already
 * under other tokens or another salt stay so, and those after them are left out, unless these
 * tokens are known by another page. Behind a page that was given up nothing is found until equal
 * tokens are remembered as far as that is wanted. A sequence that writes to a page that
 * is known writes to a copy; if no page is free for that, the page is known no longer.
 *
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_MEMORY, PIMATTN_ERR_ARGUMENT (beyond the length, or the
 *            first tokens are not kept)
 */
PIMATTN_API pimattn_status pimattn_prefix_remember(pimattn_engine *engine, pimattn_seq seq,
                                                   const uint32_t *tokens, uint64_t n_tokens,
                                                   uint64_t salt);

/* A new sequence that begins with the longest known prefix of the tokens, *n_known (maybe all): it
 * shares the pages. seq NULL: how long that is, and nothing changes. A hit is compared token by
 * token. Errors as of create, or no memory. */
PIMATTN_API pimattn_status pimattn_prefix_start(pimattn_engine *engine, pimattn_seq *seq,
                                                const uint32_t *tokens, uint64_t n_tokens,
                                                uint64_t salt, uint64_t *n_known);

/*
 * Takes the pages for n_tokens more tokens in all layers, with copies of shared ones, or none
 * (memory_bytes may have grown all the same). All layers have one length.
 *
 *   returns  PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY, PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (a layer
 *            of another length, or more than 2^32 tokens)
 */
PIMATTN_API pimattn_status pimattn_seq_reserve(pimattn_engine *engine, pimattn_seq seq,
                                               uint64_t n_tokens);

/* Tokens of a sequence in one layer: PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT. */
PIMATTN_API pimattn_status pimattn_seq_tokens(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, uint64_t *n_tokens);

/*
 * Appends tokens to one layer of a sequence. The pages of all layers are taken with the first
 * layer that needs them, so that no step is left half appended for want of pages; for another
 * reason, pimattn_seq_truncate takes it back. Layers grow by themselves: one that a step forgets
 * attends to a token less, which calls on whole sequences alone (reserve, fork) refuse.
 *
 *   shape    row r of k: [n_kv_heads][head_dim], of v: [n_kv_heads][head_dim_v]; v_in_k: no v
 *   units    strides in bytes from one row to the next, 0: packed; k and v have any alignment
 *   returns  PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY, PIMATTN_ERR_RANGE (f16, bf16: token, head and
 *            index in the cause), PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (layer, pointer, stride,
 *            more than 2^32 tokens); nothing is appended then
 */
PIMATTN_API pimattn_status pimattn_append(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                                          const float *k, const float *v, uint64_t n_tokens,
                                          size_t k_stride, size_t v_stride);

/* Over the device's link to the host (link_MBps; eLINK_fJ each 32 bytes). */
typedef struct pimattn_transfer {
    uint64_t bytes, ck; /* ck: begun clocks of the device */
    double ns, pJ;
} pimattn_transfer;

/*
 * Moves a sequence's tokens out into memory, as much as pimattn_save says, and back in, into pages
 * of its own: those it shared stay where they are and are not shared again. In between it keeps its
 * name and length, holds no page, and can only be freed, or asked for its numbers. What lies in
 * memory is a saved state of it, which pimattn_restore takes, too.
 *
 *   transfer may be NULL
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (out: too little memory; in: of one that is not
 *            out); in: PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY, PIMATTN_ERR_STATE (not what was
 *            moved out, or cut short): pages that nobody held may have been given up then
 */
PIMATTN_API pimattn_status pimattn_seq_swap_out(pimattn_engine *engine, pimattn_seq seq,
                                                void *memory, uint64_t bytes,
                                                pimattn_transfer *transfer);
PIMATTN_API pimattn_status pimattn_seq_swap_in(pimattn_engine *engine, pimattn_seq seq,
                                               const void *memory, uint64_t bytes,
                                               pimattn_transfer *transfer);

/* Where a state is written to or read from: bytes at memory, or the functions, which return whether
 * they moved all n bytes, and must not call the engine. */
typedef struct pimattn_stream {
    void *memory; /* NULL: the functions */
    uint64_t bytes;
    bool (*write)(void *user, const void *from, size_t n);
    bool (*read)(void *user, void *to, size_t n);
    void *user;
} pimattn_stream;

/*
 * Saves sequences (seqs NULL: all alive, of which none is swapped out, n_seqs then ignored, in no
 * order that is promised) and restores them as new ones, in the same order, by any engine with
 * n_layers, n_kv_heads, head dims (with v_in_k that of K) and types alike, whatever its
 * page_tokens, device or architecture; of sequences that keep first tokens alone and later ones,
 * also with the same sink_tokens. What one shares, from its first token on, with one no shorter
 * before it they mostly share again (the one that holds more of the other's tokens first, or a full
 * pool may lack pages for them); all alive come in such an order, but for two that share the middle
 * and of which neither holds all of the other.
 *
 *   bytes    what the state takes; may be NULL, and so may stream: then only this is asked
 *   seqs     of restore: [n_most], room for the new names
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT (one twice, too few names); PIMATTN_ERR_STATE
 *            (also if a function gives up); restore: PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY. It then
 *            leaves no sequence behind, but pages that nobody held may have been given up
 */
PIMATTN_API pimattn_status pimattn_save(pimattn_engine *engine, const pimattn_seq *seqs,
                                        size_t n_seqs, const pimattn_stream *stream,
                                        uint64_t *bytes);
PIMATTN_API pimattn_status pimattn_restore(pimattn_engine *engine, pimattn_seq *seqs, size_t n_most,
                                           size_t *n_seqs, const pimattn_stream *stream);

/* Moves pages out of the slabs that are not needed for all in use, the last ones, and returns those
 * to the allocator; pages in the others stay. *bytes_moved may be NULL. */
PIMATTN_API pimattn_status pimattn_cache_compact(pimattn_engine *engine, uint64_t *bytes_moved);

typedef struct pimattn_cache_info {
    uint64_t pages_total;     /* used + free; of one layer and KV head, in whole sets of all */
    uint64_t pages_used;      /* sequences hold them: sum of the pages each holds alone + shared */
    uint64_t pages_shared;    /* more than one sequence holds them */
    uint64_t pages_free;      /* what pool_bytes leaves to sequences: whether to admit one .. */
    uint64_t pages_known;     /* .. of which so many are known by tokens until then */
    uint64_t memory_bytes;    /* taken for pages from the allocator */
    uint64_t moved_bytes;     /* by compaction, since the engine was made */
    pimattn_transfer swapped; /* in both directions, since then */
} pimattn_cache_info;

PIMATTN_API pimattn_status pimattn_cache_query(pimattn_engine *engine, pimattn_cache_info *info);

typedef struct pimattn_seq_info {
    uint64_t first_token;  /* those before are not kept, but for sink_tokens; 0 if all are */
    uint64_t first_query;  /* of pimattn_seq_drop_hidden; 0: any */
    uint64_t n_tokens;     /* of layer 0, with those before */
    uint64_t pages;        /* it holds */
    uint64_t pages_shared; /* of them, with other sequences */
    uint64_t bytes;        /* of its pages */
    uint64_t layer_bytes;  /* a layer's share, on average */
    bool swapped_out;
} pimattn_seq_info;

PIMATTN_API pimattn_status pimattn_seq_query(pimattn_engine *engine, pimattn_seq seq,
                                             pimattn_seq_info *info);

/*
 * Bytes of K and V of a layer in every bank, in whole columns: where they lie in the device way,
 * else where the plan would put them (of "cheapest" mapping A; HFP: as if the sequence were alone).
 *
 *   shape    bytes: [n_channels][banks of a channel], n of them in all
 *   returns  PIMATTN_ERR_SEQ, PIMATTN_ERR_ARGUMENT
 */
PIMATTN_API pimattn_status pimattn_seq_banks(pimattn_engine *engine, pimattn_seq seq,
                                             uint32_t layer, uint64_t *bytes, size_t n);

/* KV pages that sequences hold, and the most there can be; bytes of one. In the device way here and
 * in all that is asked of the cache a page is a chunk of the device's rows. */
PIMATTN_API uint64_t pimattn_pages_used(const pimattn_engine *engine);
PIMATTN_API uint64_t pimattn_pages_total(const pimattn_engine *engine);
PIMATTN_API uint64_t pimattn_page_bytes(const pimattn_engine *engine);

/*
 * The program and request data that pimattn_attend times for these items without choices, e.g. to
 * export; of config.device, with element_bytes 1 for K and V of int8, also with tiers, whose
 * programs pimattn_tier_lower writes.
 *
 *   memory   both point into the engine and hold until its next call
 */
PIMATTN_API pimattn_status pimattn_engine_program(pimattn_engine *engine, uint32_t layer,
                                                  const pimattn_item *items, size_t n_items,
                                                  const pimhw_program **program,
                                                  const pimhw_request **request);

/* ==========================================================================
 * [A7] TIERS: devices of different kinds, each with tokens of its own of a sequence [PAM].
 *
 * A token of a layer lies in one tier with all its KV heads, in one bank group (of flash: one
 * channel) of one of the tier's devices. Tiers are ordered, the fastest first.
 * ========================================================================== */

enum { PIMATTN_MAX_TIERS = 8 };

/* Devices of one kind. */
typedef struct pimattn_tier {
    pimhw_config device; /* with units beside its banks, or flash with units in the controller; of
                            unit_MHz 0, which has none, reductions take no time */
    uint32_t n_devices;  /* alike, up to 65536; bank groups are numbered through all of them */
    uint64_t n_tokens;   /* slots of all of them together, one for a token and layer; of an engine
                            for all its sequences and layers, at most 2^32 - 1 */
} pimattn_tier;

/* -- which tokens change places -- */

enum { PIMATTN_TIER_STEPS = 10 }; /* that activation counts look back [PAM 6.1] */

/*
 * I = lambda S + (1 - lambda) I; of tokens from n_known on, I = S.
 *
 *   shape    importance, score: [n_tokens]
 *   returns  PIMATTN_ERR_ARGUMENT for a lambda outside 0 to 1 and for a score that is negative or
 *            not finite; importance is then unchanged
 *   source   [PAM 6.3.1]
 */
PIMATTN_API pimattn_status pimattn_importance(float *importance, const float *score,
                                              size_t n_tokens, size_t n_known, float lambda);

/* Two tokens of neighbouring tiers that change places: `down` is in `tier`, `up` in the next. */
typedef struct pimattn_swap {
    uint32_t down, up;
    uint32_t tier;
} pimattn_swap;

/* Why no more tokens of two neighbouring tiers are swapped. */
typedef enum pimattn_stop {
    PIMATTN_STOP_RATIO = 0, /* the ratio is met */
    PIMATTN_STOP_NO_GAIN,   /* none in the slower tier matters more than the least of the faster */
    PIMATTN_STOP_MOST,      /* the list is full */
    PIMATTN_STOP_EMPTY,     /* one of the two has no token */
    PIMATTN_N_STOP
} pimattn_stop;

/* What a stop is called; NULL beyond the last. */
PIMATTN_API const char *pimattn_stop_str(uint32_t stop);

/* What pimattn_schedule_swaps decides from. */
typedef struct pimattn_schedule {
    const float *importance; /* [n_tokens]; held to 2^-31 of the greatest that counts */
    const uint8_t *tier;     /* [n_tokens]; from PIMATTN_MAX_TIERS on: stays, and counts nowhere */
    size_t n_tokens;         /* below 2^32 */
    const double *ratio;     /* [n_tiers]; held to 2^-28 of the greatest, and at least that */
    uint32_t n_tiers;        /* 1 to PIMATTN_MAX_TIERS */
    bool mean;               /* importance of a tier: the mean of its tokens', not the sum */
    size_t n_most;           /* swaps */
    void *scratch;           /* pimattn_schedule_bytes(n_tokens), aligned as malloc does */
} pimattn_schedule;

PIMATTN_API size_t pimattn_schedule_bytes(size_t n_tokens);

/*
 * Which tokens change places so that the importance in the tiers stands as ratio[0] : ratio[1] ..:
 * from the slowest pair of tiers to the fastest, the most important of the slower one against the
 * least of the faster (of equals the lowest token), while all faster tiers together hold less than
 * their share beside the slower one and the swap is a gain. Nothing is moved.
 *
 *   swaps    [n_most], filled in order, *n_swaps of them
 *   stop     [n_tiers - 1]: pimattn_stop of tier i and the next
 *   returns  PIMATTN_ERR_ARGUMENT: a ratio that is not positive and finite, an importance that is
 *            negative or not finite, a tier beyond the last; nothing is then written
 *   source   [PAM Algorithm 2], strict and with products for quotients
 */
PIMATTN_API pimattn_status pimattn_schedule_swaps(const pimattn_schedule *schedule,
                                                  pimattn_swap *swaps, size_t *n_swaps,
                                                  uint32_t *stop, pimhw_cause *why);

/* A ratio to try, and what a step took with it in the mean. */
typedef struct pimattn_candidate {
    double ratio[PIMATTN_MAX_TIERS];     /* the caller's */
    double step_ns;                      /* the slowest tier, and what moved */
    double swaps[PIMATTN_MAX_TIERS - 1]; /* between tier i and the next; each moves two tokens */
} pimattn_candidate;

/* A recorded trace, and the tiers it is replayed on. */
typedef struct pimattn_profile {
    bool (*score)(void *user, uint64_t step, float *score); /* fills [n_tokens]; steps in order */
    void *user;
    uint64_t n_steps;
    uint64_t n_first; /* steps not counted: tokens still lie where the start put them */
    size_t n_tokens;
    float lambda;
    uint32_t sparsity; /* of so many tokens one takes part in a step, those of the best scores */
    uint32_t n_tiers;
    const uint64_t *room;    /* [n_tiers] tokens; at the start filled in order */
    const double *active_ns; /* [n_tiers] for each token that takes part */
    const double *swap_ns;   /* [n_tiers - 1] for each swap between tier i and the next */
    bool mean;               /* as in pimattn_schedule */
    size_t n_most;
    pimhw_allocator allocator; /* default: malloc and free */
} pimattn_profile;

/*
 * Replays the trace with each ratio, attention then swaps in every step; *best is the one whose
 * steps took least, of equals the first.
 *
 *   returns  PIMATTN_ERR_ARGUMENT: why names what; figures of candidates are then not to be used
 *   source   [PAM 6.3.2], which profiles offline and does not say how
 */
PIMATTN_API pimattn_status pimattn_tier_profile(const pimattn_profile *profile,
                                                pimattn_candidate *candidates, size_t n_candidates,
                                                size_t *best, pimhw_cause *why);

/* -- what a step on a tier costs --
 *
 * Attention of one layer as [PAM] does it: the units beside the banks do local attention of the
 * tokens in their own bank, softmax included (V of a token lies row-major as its K does); the
 * reduction unit of a bank group merges the partials of its banks, those of the device merge the
 * bank groups' ones, and one partial per query head leaves the device for the fastest tier. A
 * token of several chips is one of the bank they form together.
 *
 * It is timing only: commands of a program for one channel, under any controller, without data.
 * Per block (sequence, KV head): q into the global buffer, once per query; MACs of a row of K,
 * MACs of a row of V, until all rows are through; then o and (m, l) out of the units. Scores stay
 * in the unit: what its softmax takes beyond the change of rows (softmax_ck) is added. Tokens of a
 * block lie at equal rows and columns of all banks, so the fullest bank group sets the time.
 */

/* What a tier has to do in one layer. Tokens are pairs (token, KV head). */
typedef struct pimattn_tier_load {
    const uint64_t *blocks; /* [n_blocks] of the slowest channel: tokens in its fullest bank group;
                               of flash: on the channel */
    size_t n_blocks;
    uint32_t n_queries;      /* of a block: query tokens * GQA group */
    bool gqa_flops;          /* every query counts for cap_MFLOPS; default: KV bytes [PAM] */
    uint64_t tokens;         /* of the tier .. */
    uint64_t device_tokens;  /* .. and its fullest device */
    uint64_t groups;         /* (block, bank group) with tokens, of the tier; flash: channels .. */
    uint64_t device_groups;  /* .. and of its fullest device */
    uint64_t device_blocks;  /* blocks with tokens in the device that has most of them .. */
    uint64_t device_outputs; /* .. and in all devices, summed: partials that leave one */
    uint64_t channel_pages;  /* flash: pages read on the fullest channel .. */
    uint64_t pages;          /* .. and on all */
} pimattn_tier_load;

/* What it takes. In its order: local_ns + input_ns + reduce_ns + link_ns is ns, exactly. */
typedef struct pimattn_tier_reading {
    uint32_t size, version; /* of this struct; 1 */
    double ns;
    double local_ns;           /* the larger of program_ns and cap_ns */
    double input_ns;           /* units wait for q */
    double reduce_ns;          /* reduction units at work when the units no longer are */
    double link_ns;            /* the same: partials on the link */
    double program_ns, cap_ns; /* cap_ns: operations / cap_MFLOPS */
    double softmax_ns;         /* of program_ns: softmax that no change of rows hides */
    double reduce_work_ns;     /* of one bank group and of its device, hidden or not */
    double link_work_ns;
    double energy_pJ;      /* of the channel, where all banks work whether they hold a token or not,
                              by the tier's share of its tokens; 16 numbers of a partial are read
                              at the price of a result (assumed); flash: 0, no source says */
    uint64_t kv_bytes;     /* of the tokens .. */
    uint64_t read_bytes;   /* .. and what is read for them: flash reads whole pages, once */
    uint64_t group_bytes;  /* in the devices: q down to bank groups, a partial up; elements of 2 */
    uint64_t bare_bytes;   /* the same, had bank groups no reduction units: one up per bank */
    uint64_t link_bytes;   /* of all devices: q in, partials out in f32 */
    pimhw_readings device; /* the program on the slowest channel, joules as in a row; flash: 0 */
} pimattn_tier_reading;

/* One step over tiers. In its order: attention_ns + merge_ns + moves_ns is ns, exactly. */
typedef struct pimattn_step_reading {
    uint32_t size, version; /* of this struct; 1 */
    double ns;
    double attention_ns; /* of the slowest tier */
    double merge_ns;     /* partials of all tiers in the fastest; 0 if it has no reduction units */
    double moves_ns;     /* moving tokens, as far as the step does not hide it */
    uint32_t slowest;
    double idle_ns[PIMATTN_MAX_TIERS]; /* attention_ns - tiers[i].ns */
    pimattn_tier_reading tiers[PIMATTN_MAX_TIERS];
} pimattn_step_reading;

/* Time in 1e-12 s in which a reduction unit merges so many partials of head_dim_v, UINT64_MAX at
   most; 0: it has no clock or no lanes. */
PIMATTN_API uint64_t pimattn_reduction_ps(const pimhw_config *device, uint32_t head_dim_v,
                                          uint64_t n_partials);

/*
 * The program of a tier: of any load. Blocks of its request: rest[0] tokens of the fullest bank
 * group, rest[1] queries, row_base those of K and of V.
 *
 *   returns  PIMATTN_ERR_CONFIG with what does not fit a unit, and of flash
 */
PIMATTN_API pimattn_status pimattn_tier_lower(const pimattn_tier *tier, const pimattn_shape *shape,
                                              pimhw_program *program, pimhw_cause *why);

/*
 * Times a load. A program below 16 tREFI takes time and energy as many in a row, on average.
 *
 *   returns  PIMATTN_ERR_CONFIG with the field, PIMATTN_ERR_ARGUMENT, PIMATTN_ERR_MEMORY,
 *            PIMATTN_ERR_DEVICE (too many rows to time); *reading then unchanged
 *   memory   a device and its request, until it returns: from the device's allocator
 */
PIMATTN_API pimattn_status pimattn_tier_time(pimattn_tier_reading *reading,
                                             const pimattn_tier *tier, const pimattn_shape *shape,
                                             const pimattn_tier_load *load, pimhw_cause *why);

/* Times a step: loads[i] of tiers[i], the fastest first. Moves take moves_ns; beside_moves: they go
 * on beside the step, and only what is left of them then counts. */
PIMATTN_API pimattn_status pimattn_step_time(pimattn_step_reading *reading,
                                             const pimattn_tier *tiers, uint32_t n_tiers,
                                             const pimattn_shape *shape,
                                             const pimattn_tier_load *loads, double moves_ns,
                                             bool beside_moves, pimhw_cause *why);

/*
 * A load without an engine: one query token each of sequences of so many tokens in the tier, the
 * longest first. Channels take blocks in turn; with fewer blocks than channels, each block has
 * several. On flash the KV heads of a token lie together; scattered: a page holds one token that is
 * read.
 *
 *   shape    blocks: [n_seqs * n_kv_heads], in use as long as *load is
 *   returns  PIMATTN_ERR_CONFIG with the field, or tokens that are not longest first;
 *            PIMATTN_ERR_ARGUMENT
 */
PIMATTN_API pimattn_status pimattn_tier_spread(pimattn_tier_load *load, uint64_t *blocks,
                                               const pimattn_tier *tier, const pimattn_shape *shape,
                                               const uint64_t *tokens, size_t n_seqs,
                                               bool scattered, pimhw_cause *why);

/* How bytes go from tier to tier. */
typedef struct pimattn_relayout {
    bool by_host;          /* read, then written, each at host_percent; default: one pass through
                             the interface, at the least of source, link and target */
    uint32_t host_percent; /* of a tier's bandwidth; 0 is 10 [PAM 6.2] */
    uint32_t link_MBps;    /* between the tiers; 0: no limit */
    uint32_t start_ns;     /* of each run of bytes */
} pimattn_relayout;

typedef struct pimattn_relayout_reading {
    uint32_t size, version; /* of this struct; 1 */
    double ns, start_ns;    /* start_ns is in ns */
    double read_ns, link_ns, write_ns;
    uint64_t read_bytes, written_bytes; /* flash: whole pages, of each run */
} pimattn_relayout_reading;

/*
 * Time of moving bytes in n_runs equal runs, spread over all devices of both tiers. A DRAM takes
 * and gives link_MBps a device, flash no more than its channels and dies.
 *
 *   returns  PIMATTN_ERR_CONFIG with the field, PIMATTN_ERR_ARGUMENT for bytes without runs
 */
PIMATTN_API pimattn_status pimattn_relayout_time(pimattn_relayout_reading *reading,
                                                 const pimattn_tier *from, const pimattn_tier *to,
                                                 const pimattn_relayout *relayout, uint64_t bytes,
                                                 uint64_t n_runs, pimhw_cause *why);

/* -- tiers of an engine -- */

/* An engine with config.tiers keeps keys and values in them instead of pages, a token and layer in
 * one slot. A new token goes to the fastest tier; where that is full, what matters least there of
 * the same sequence and layer (of equals the oldest; tokens without a score matter most) makes
 * room, tier by tier; where the sequence has nothing there, it goes to the next tier. Of the calls
 * of [A4] such an engine has those that [A4] names for it and those that ask; the others return
 * PIMATTN_ERR_DEVICE. page_tokens is 0 or 1. Memory of all slots is taken with the engine;
 * pool_bytes and config.device, but host_MBps, are for pimattn_attend_pages. Tiers take memory from
 * the engine's allocator. Counts of pages are slots times n_kv_heads. 0 means usual.
 *
 * A step of decoding: append and attend with choices or without, layer by layer; where scores are
 * known, pimattn_tier_score, pimattn_tier_propose, pimattn_tier_commit; pimattn_tier_step.
 *
 * Reserved slots, and those of layers that wait for their append, lie in tiers, make room and are
 * counted as used as new tokens are; places, scores and swaps know only the tokens that are there.
 *
 * With readings, attend times a step on the tiers; pimattn_tier_readings says all of it, as if it
 * had this layer alone. All blocks count with the queries of the item that has most: prefill is
 * better a call of its own; and all layers as this one, whatever their windows, but for moves:
 * those since the readings before, of any layer, are in a step once. Of pimattn_readings, device is
 * the program of the slowest tier (of flash 0); step_ck, refresh_share, peak_ns, link_ns, bound and
 * the fields of a plan are 0. PIMATTN_ERR_DEVICE where a unit has no room for the shape, for
 * v_in_k, or for more than 65535 queries (n_tokens times the group), and PIMATTN_ERR_MEMORY.
 * Append, reserve and create may end in PIMATTN_ERR_DEVICE when a transfer fails; tokens that had
 * made room until then stay where they went.
 *
 * partials: the default gathers the rows of a leaf from wherever they lie, and the bytes of out are
 * those of pages. With partials every bank group (of flash: channel) forms one over its tokens, and
 * they merge as a tree, bank groups in order, then tiers: 1e-6 max|v| more of error, at most. */
typedef struct pimattn_tiers {
    pimattn_tier tier[PIMATTN_MAX_TIERS]; /* the fastest first */
    uint32_t n_tiers;                     /* 1 to PIMATTN_MAX_TIERS */
    bool partials;
    bool host_path;  /* tokens move through the host's CPU, not through the relayout interface */
    bool moves_wait; /* .. and a step waits for them; else they hide behind the next, and what it
                        hides is in no reading. Their energy is not counted */
    bool gqa_flops;  /* every query head counts against a unit's peak; else a KV byte once */
    bool mean;       /* see pimattn_schedule */
    float lambda;    /* see pimattn_importance; 0: 0.6 */
    double ratio[PIMATTN_MAX_TIERS]; /* x : y : .. : 1; all 0: of the last 1, of the others together
                                        56, shared out by bandwidth */
    /* asked before a token moves, with its bytes in the device it leaves; false: it fails,
       PIMATTN_ERR_DEVICE, and the token stays. Must not change the engine: refused */
    bool (*transfer)(void *user, uint32_t from, uint32_t to, uint64_t bytes);
    void *transfer_user;
} pimattn_tiers;

/*
 * Scores of a sequence's tokens in a layer, e.g. from pimattn_probabilities, into their importance.
 * A token that nothing attended to has 0, by which its importance decays.
 *
 *   shape    score: [n_tokens], the tokens the layer has
 *   returns  PIMATTN_ERR_SEQ; PIMATTN_ERR_ARGUMENT, also for what pimattn_importance refuses, and
 *            without tiers; nothing is then changed
 */
PIMATTN_API pimattn_status pimattn_tier_score(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, const float *score,
                                              uint64_t n_tokens);

/*
 * Swaps that bring the importance of a sequence's tokens in a layer nearer to the ratio, at most
 * n_most. Tokens without a score stay and count nowhere. Nothing moves before they are committed.
 *
 *   stop     [n_tiers - 1] as in pimattn_schedule_swaps; may be NULL
 *   memory   takes its scratch from the allocator and gives it back
 */
PIMATTN_API pimattn_status pimattn_tier_propose(pimattn_engine *engine, pimattn_seq seq,
                                                uint32_t layer, pimattn_swap *swaps, size_t n_most,
                                                size_t *n_swaps, uint32_t *stop);

/*
 * Swaps tokens. *n_done may be NULL; it says how many were swapped before a transfer failed.
 *
 *   returns  PIMATTN_ERR_SEQ; PIMATTN_ERR_ARGUMENT: a token that is not where the swap says, which
 *            is found before anything moves, or within pimattn_attend; PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_tier_commit(pimattn_engine *engine, pimattn_seq seq,
                                               uint32_t layer, const pimattn_swap *swaps,
                                               size_t n_swaps, size_t *n_done);

/*
 * The tier of every token of a sequence in a layer; and a wish: tokens go to tier[t] if that is a
 * tier, and stay if it is not.
 *
 *   shape    tier: [n_tokens], the tokens the layer has
 *   returns  as above; PIMATTN_ERR_PAGES if a tier has too few slots: nothing has moved then;
 *            PIMATTN_ERR_DEVICE if a transfer failed: others may have moved, or changed places
 */
PIMATTN_API pimattn_status pimattn_tier_places(pimattn_engine *engine, pimattn_seq seq,
                                               uint32_t layer, uint8_t *tier, uint64_t n_tokens);
PIMATTN_API pimattn_status pimattn_tier_move(pimattn_engine *engine, pimattn_seq seq,
                                             uint32_t layer, const uint8_t *tier,
                                             uint64_t n_tokens);

/* A tier of an engine; the counts are of the step that runs, of all its calls. */
typedef struct pimattn_tier_info {
    uint64_t n_tokens, n_used;      /* slots, and those with a token */
    uint64_t slot_bytes;            /* K and V of a token and layer, of all KV heads, as they lie in
                                         memory: each row takes a multiple of 64 bytes */
    uint32_t n_groups;              /* bank groups, or channels of flash, that can hold one */
    uint64_t id_bytes, count_bytes; /* bookkeeping as the paper counts: the bank group of every
                                         token; counters of the last 10 steps [PAM 6.1] */
    uint64_t n_active; /* tokens that took part, whatever masks say; each where it first did */
    uint64_t busiest;  /* of the bank group that counted most: tokens that took part in it, and what
                          tokens that were placed in it brought; a step of it at most 65,535 */
    uint64_t n_partials;                 /* formed, of a bank group and up to 16 queries each */
    uint64_t n_faster, n_slower;         /* tokens that went to the tier before, and to the next */
    uint64_t faster_bytes, slower_bytes; /* theirs, in elements of this tier's device */
} pimattn_tier_info;

PIMATTN_API pimattn_status pimattn_tier_query(pimattn_engine *engine, uint32_t tier,
                                              pimattn_tier_info *info);

/* What the last attend with readings cost, by tier, and moves since that before; NULL: no tiers. */
PIMATTN_API const pimattn_step_reading *pimattn_tier_readings(const pimattn_engine *engine);

/* Ends a step, usually a token of every layer: what was active is past, and counts begin anew. */
PIMATTN_API pimattn_status pimattn_tier_step(pimattn_engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* PIMATTN_H */

/* The back: outside the include guard, so that include order never matters. */
#if defined(PIMATTN_IMPLEMENTATION) && !defined(PIMATTN_IMPLEMENTED)
#define PIMATTN_IMPLEMENTED

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#ifdef MADV_HUGEPAGE
#define PIMATTN_I_HUGE MADV_HUGEPAGE
#elif !defined(__cplusplus) /* -std=c99 hides what Linux has all the same */
#define PIMATTN_I_HUGE 14
extern int madvise(void *at, size_t bytes, int advice);
#endif
#endif

#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "pimattn.h computes in float: -msse2 -mfpmath=sse; s390x: -fexcess-precision=fast"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==========================================================================
 * [A10] CELLAR: asserts, checked sums, memory.
 *       Knows nothing of attention.
 * ========================================================================== */

#ifndef PIMATTN_ASSERT
#include <assert.h>
#define PIMATTN_ASSERT(x) assert(x)
#endif

/* Goes on if a call was well, else returns its status. */
#define PIMATTN_I_TRY(call)                                                                        \
    do {                                                                                           \
        const pimattn_status was = (call);                                                         \
        if (was != PIMATTN_OK) return was;                                                         \
    } while (0)

static uint64_t pimattn_i_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t pimattn_i_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t pimattn_i_ceil_div(uint64_t a, uint64_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

/* Sums and products that stay at UINT64_MAX once they pass it. */
static uint64_t pimattn_i_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t pimattn_i_mul(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* a rounded up to a multiple of 64. */
static uint64_t pimattn_i_up64(uint64_t a)
{
    return a > UINT64_MAX - 63 ? UINT64_MAX : (a + 63) / 64 * 64;
}

/* A hash and one more word; of two words that differ, two hashes that differ. */
static uint64_t pimattn_i_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static void *pimattn_i_alloc(const pimhw_allocator *a, uint64_t bytes, size_t align)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    return a->alloc(a->user, (size_t)bytes, align);
}

static void *pimattn_i_zeroed(const pimhw_allocator *a, uint64_t n, uint64_t size)
{
    uint64_t bytes = pimattn_i_mul(n, size);
    void *ptr = pimattn_i_alloc(a, bytes, 64);
    if (ptr) memset(ptr, 0, (size_t)bytes);
    return ptr;
}

static void pimattn_i_release(const pimhw_allocator *a, void *ptr, uint64_t bytes)
{
    if (ptr) a->release(a->user, ptr, (size_t)bytes);
}

/* ==========================================================================
 * [A11] NUMBERS: types in memory, exp, NaN.
 *       Knows bits; nothing of tokens.
 * ========================================================================== */

/* What becomes a part of functions for other instruction sets; without -O it would be 6 MB. */
#if defined(__GNUC__) && defined(__OPTIMIZE__)
#define PIMATTN_I_INLINE            static inline __attribute__((always_inline))
#define PIMATTN_I_FETCH(p, cache)   __builtin_prefetch(p, 0, 4 - (cache))
#define PIMATTN_I_FETCH_TO_WRITE(p) __builtin_prefetch(p, 1, 2)
#else
#define PIMATTN_I_INLINE            static inline
#define PIMATTN_I_FETCH(p, cache)   ((void)(p))
#define PIMATTN_I_FETCH_TO_WRITE(p) ((void)(p))
#endif

PIMATTN_I_INLINE uint32_t pimattn_i_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

PIMATTN_I_INLINE float pimattn_i_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The one NaN the library gives out. */
static float pimattn_i_nan(void)
{
    return pimattn_i_from_bits(0x7fc00000u);
}

static bool pimattn_i_finite(float x)
{
    return (pimattn_i_bits(x) & 0x7f800000u) != 0x7f800000u;
}

static bool pimattn_i_is_nan(float x)
{
    return (pimattn_i_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

/* exp(x) for x <= 0, within 2e-7 of it relatively; 0 where it is below 2^-126. A polynomial of
 * degree 6 on |r| <= ln 2 / 2, so that results do not hang on the libc. */
PIMATTN_I_INLINE float pimattn_i_exp_normal(float x)
{
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest integer */
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * pimattn_i_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

static float pimattn_i_exp(float x)
{
    return x > -87.33654f ? pimattn_i_exp_normal(x) : 0.0f;
}

/* tanh(x), of NaN 1, within 2e-7 relatively: near 0 a series, further off by exp; both, and one of
 * them taken by its bits, as compilers make no vectors of branches. */
PIMATTN_I_INLINE float pimattn_i_tanh(float x)
{
    uint32_t sign = pimattn_i_bits(x) & 0x80000000u, size = pimattn_i_bits(x) ^ sign;
    size = size < 0x41200000u ? size : 0x41200000u;                      /* 10 is as good as more */
    uint32_t is_small = (uint32_t)((int32_t)(size - 0x3f200000u) >> 31); /* all ones below 0.625 */
    float a = pimattn_i_from_bits(size), s = a * a;
    float e = pimattn_i_exp_normal(-2.0f * a);
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    uint32_t series = pimattn_i_bits(p * s * a + a) & is_small;
    uint32_t other = pimattn_i_bits((1.0f - e) / (1.0f + e)) & ~is_small;
    return pimattn_i_from_bits(series | other | sign);
}

static uint32_t pimattn_i_type_bytes(uint32_t type)
{
    return type == PIMATTN_F32 ? 4 : type == PIMATTN_INT8 ? 1 : 2;
}

/* One row of n numbers as stored to f32; of int8 without their scale. */
static void pimattn_i_load_row(float *to, size_t n_floats, const unsigned char *from, uint32_t type,
                               uint32_t n)
{
    memset(to + n, 0, (n_floats - n) * sizeof *to);
    if (type == PIMATTN_F32 && n > 0) memcpy(to, from, n * sizeof *to);
    if (type == PIMATTN_F16) pimhw_lanes_value(PIMHW_LANE_F16, to, from, n);
    if (type == PIMATTN_BF16) pimhw_lanes_value(PIMHW_LANE_BF16, to, from, n);
    for (uint32_t i = 0; type == PIMATTN_INT8 && i < n; i++)
        to[i] = (float)((from[i] ^ 128) - 128);
}

/* The scale of an int8 row with its largest magnitude: that becomes 127. NaN if one is not finite;
 * never subnormal, so that p * scale keeps its digits, nor so large that 127 of it are infinite. */
static float pimattn_i_int8_scale(uint32_t magnitude_bits)
{
    if (magnitude_bits >= 0x7f800000u) return pimattn_i_nan();
    float scale = pimattn_i_from_bits(magnitude_bits) / 127.0f;
    if (scale * 127.0f > FLT_MAX) return pimattn_i_from_bits(pimattn_i_bits(scale) - 1);
    return scale < FLT_MIN ? FLT_MIN : scale;
}

/* A row to store; per_unit: 1 / scale of int8, which holds no NaN; other types do not use it. */
typedef struct pimattn_i_row {
    unsigned char *to;
    const unsigned char *from;
    float per_unit;
} pimattn_i_row;

/* n numbers of an int8 row: as many as compilers make vectors of, or one. */
PIMATTN_I_INLINE void pimattn_i_to_int8(const pimattn_i_row *row, uint32_t at, const uint32_t n)
{
    const unsigned char *from = row->from + 4 * (size_t)at;
    unsigned char lane[16];
    for (uint32_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, from + 4 * i, sizeof x);
        x = x * row->per_unit + 12582912.0f; /* the nearest integer is in the low bits */
        lane[i] = (unsigned char)pimattn_i_bits(x);
    }
    memcpy(row->to + at, lane, n);
}

static void pimattn_i_store_rows(const pimattn_i_row *rows, uint32_t n_rows, uint32_t type,
                                 uint32_t n)
{
    for (const pimattn_i_row *row = rows; row < rows + n_rows; row++) {
        uint32_t at = 0;
        if (type == PIMATTN_F32) memcpy(row->to, row->from, (size_t)n * sizeof(float));
        if (type == PIMATTN_F16) pimhw_lanes_round(PIMHW_LANE_F16, row->to, row->from, n);
        if (type == PIMATTN_BF16) pimhw_lanes_round(PIMHW_LANE_BF16, row->to, row->from, n);
        for (; type == PIMATTN_INT8 && n - at >= 16; at += 16)
            pimattn_i_to_int8(row, at, 16);
        for (; type == PIMATTN_INT8 && at < n; at++)
            pimattn_i_to_int8(row, at, 1);
    }
}

PIMATTN_I_INLINE int32_t pimattn_i_larger(int32_t most, const unsigned char *from)
{
    int32_t x;
    memcpy(&x, from, sizeof x);
    x &= 0x7fffffff;
    return x > most ? x : most;
}

/* The largest magnitude of a row, as bits: above 0x7f800000 if there is a NaN. */
static uint32_t pimattn_i_magnitude(const unsigned char *from, size_t n)
{
    int32_t most[16] = {0};
    for (; n >= 32; from += 128, n -= 32)
        for (int i = 0; i < 16; i++)
            most[i] = pimattn_i_larger(pimattn_i_larger(most[i], from + 4 * i), from + 64 + 4 * i);
    for (; n > 0; from += 4, n--)
        most[0] = pimattn_i_larger(most[0], from);
    for (int i = 1; i < 16; i++)
        most[0] = most[i] > most[0] ? most[i] : most[0];
    return (uint32_t)most[0];
}

/* ==========================================================================
 * [A12] KERNELS: a tile of tokens for the queries of one KV head.
 *       Knows rows and their types; nothing of pages, threads or leaves.
 * ========================================================================== */

enum { PIMATTN_I_TILE = 16, PIMATTN_I_LEAF = 512, PIMATTN_I_QUERY_BLOCK = 16 };

/* Partials of a query block: m of all queries, l of all, then o of each query. */
enum { PIMATTN_I_L = PIMATTN_I_QUERY_BLOCK, PIMATTN_I_O = 2 * PIMATTN_I_QUERY_BLOCK };

/* How what comes next is fetched, in this order. Both: the next tile into the first cache, what is
 * far into the second. Led: so, but where memory is not read in one go one line in four of what is
 * far, from farther; the CPU brings the others. Near: as both, but for a single query the next tile
 * alone. Deep: the second cache waits for many more lines than the first; where memory sets the
 * pace, all goes there. Where sums do (late), a near or deep CPU fetches only what is far. If a
 * single query reads rows one by one that follow one another, not by pieces (of f32 two at once), a
 * deep CPU keeps the pace led by one line in four of f32, by none of 16 bits in long pages. */
typedef enum pimattn_i_ahead {
    PIMATTN_I_BOTH,
    PIMATTN_I_LED,
    PIMATTN_I_NEAR,
    PIMATTN_I_DEEP,
    PIMATTN_I_DEEP_ROWS,
    PIMATTN_I_DEEP_PAGES
} pimattn_i_ahead;

/* Whether sums set a near or deep CPU's pace. What it fetches then lies in one piece. */
#define PIMATTN_I_LATE(n, type, how)                                                               \
    ((type) != PIMATTN_F32 && (n) >= ((how) >= PIMATTN_I_DEEP ? 4 : 8) && (how) >= PIMATTN_I_NEAR)

/* Rows to fetch: their bytes, 2^shift or (exact in 16 rows below 2^18 bytes) 2^40 / inverse, those
 * between them, 0: one piece, and a step that hits all lines of a row beginning at a multiple, or
 * all but one that the row behind has, too; likewise. */
typedef struct pimattn_i_wanted {
    size_t row, gap;
    uint64_t inverse, step_inverse;
    uint32_t shift, step;
} pimattn_i_wanted;

/* What a tile is: rows as the cache holds them, or f32 copies; bit t of visible: token t. Row i is
 * the i'th visible one's. Behind n_tokens of 16, K counts for nothing, and no V is read. */
typedef struct pimattn_i_tile {
    const unsigned char *k, *v;
    const float *k_scale, *v_scale; /* [16] if the cache's type is int8, else NULL */
    const unsigned char *fetch[4];  /* while K, while V is read; to fetch less near likewise */
    pimattn_i_wanted wanted[2];     /* of K and of V */
    size_t k_done;                  /* bytes of K fetched with pieces before */
    uint32_t ahead;                 /* pimattn_i_ahead */
    size_t led;                     /* bits of an offset: 0 where the less near is fetched */
    size_t k_stride, v_stride;      /* bytes from a row to the next */
    uint32_t k_type, v_type, dim_k, dim_v, visible, n_tokens;
    unsigned char place[16]; /* tokens of rows; not of a whole tile read where it lies */
    float scale;
} pimattn_i_tile;

static float pimattn_i_sum16(float x[16])
{
    for (uint32_t j = 0; j < 8; j++)
        x[j] += x[j + 8];
    for (uint32_t j = 0; j < 4; j++)
        x[j] += x[j + 4];
    return (x[0] + x[2]) + (x[1] + x[3]);
}

/* Dims that one accumulator per lane adds up. Where products are equal, each addition of a lane may
 * round the same way, so wider heads are sums of pieces, which keep what their additions lose. */
enum { PIMATTN_I_PIECE = 128 };

/* One accumulator per lane, then one fixed tree. */
static float pimattn_i_dot_piece(const float *a, const float *b, uint32_t n)
{
    float lane[16] = {0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (uint32_t j = 0; j < 16; j++)
            lane[j] += a[i + j] * b[i + j];
    for (uint32_t j = 0; i + j < n; j++)
        lane[j] += a[i + j] * b[i + j];
    return pimattn_i_sum16(lane);
}

static float pimattn_i_dot(const float *a, const float *b, uint32_t n)
{
    const uint32_t piece = PIMATTN_I_PIECE;
    float lost = 0, sum = pimattn_i_dot_piece(a, b, n < piece ? n : piece);
    if (n <= piece) return sum;
    for (uint32_t i = piece; i < n; i += piece) {
        const float part = pimattn_i_dot_piece(a + i, b + i, n - i < piece ? n - i : piece);
        const float all = sum + part, other = all - sum;
        lost += (sum - (all - other)) + (part - other); /* [Knuth, two-sum] */
        sum = all;
    }
    return sum + lost;
}

/* A row of K or V in an f32 copy. */
static const float *pimattn_i_row_at(const unsigned char *rows, size_t stride, uint32_t i)
{
    return (const float *)(const void *)(rows + i * stride);
}

/* What a variant makes of the scores of a block of queries. */
typedef struct pimattn_i_adjust {
    bool alibi;
    float soft_cap;
    float slope[PIMATTN_I_QUERY_BLOCK];
    float distance[PIMATTN_I_QUERY_BLOCK]; /* from the tile's first token to the query's own */
    bool moved; /* so are the positions of the tile's tokens, or 0, 1, 2, .. */
    float place[PIMATTN_I_TILE];
} pimattn_i_adjust;

/* Sums of a tile, [token][n queries from `first` on], to scores: scale, soft-cap, ALiBi. Loops over
 * 16 without branches become vectors as wide as the kernel's, of the same bits. n: 1, 2, 4 or 8. */
PIMATTN_I_INLINE void pimattn_i_adjust_scores(const pimattn_i_adjust *a, const pimattn_i_tile *tile,
                                              uint32_t first, uint32_t n, float *s)
{
    float slope[16], own[16], at[16]; /* of the queries of 16 scores; their tokens */
    const uint32_t n_tokens = PIMATTN_I_TILE / n;
    const float scale = tile->scale, cap = a->soft_cap;
    for (uint32_t i = 0; i < 16; i++) {
        slope[i] = a->slope[first + (i & (n - 1))];
        own[i] = a->distance[first + (i & (n - 1))];
        at[i] = (float)(i * n_tokens / 16);
    }
    for (uint32_t token = 0; token < PIMATTN_I_TILE; token += n_tokens, s += 16) {
        for (uint32_t i = 0; tile->k_scale && i < 16; i++)
            s[i] *= tile->k_scale[token + i * n_tokens / 16];
        for (uint32_t i = 0; i < 16; i++)
            s[i] *= scale;
        if (cap > 0)
            for (uint32_t i = 0; i < 16; i++) /* what is not finite becomes NaN */
                s[i] = cap * pimattn_i_tanh(s[i] / cap) + s[i] * 0.0f;
        for (uint32_t i = 0; a->moved && i < 16; i++)
            at[i] = a->place[token + i * n_tokens / 16] - (float)token;
        if (a->alibi)
            for (uint32_t i = 0; i < 16; i++)
                s[i] -= slope[i] * fabsf(own[i] - (at[i] + (float)token));
    }
}

/* Adds the tile's weighted V to n of the sums from dim j on. The tile is summed by itself, token
 * after token: 512 equal values added one by one would lose more than the promised error. */
static void pimattn_i_tile_mix(const pimattn_i_tile *tile, const float p[16], uint32_t j,
                               uint32_t n, float *o)
{
    float sum[16] = {0};
    for (uint32_t row = 0; row < tile->n_tokens; row++) {
        const uint32_t t = tile->place[row];
        const float *v = pimattn_i_row_at(tile->v, tile->v_stride, row) + j;
        float weight = tile->v_scale ? p[t] * tile->v_scale[t] : p[t];
        if (n == 16)
            for (uint32_t i = 0; i < 16; i++)
                sum[i] += weight * v[i];
        else
            for (uint32_t i = 0; i < n; i++)
                sum[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < n; i++)
        o[i] += sum[i];
}

/* Folds an f32 copy into m, l, o of one query: the scalar kernel, and the specification. */
static void pimattn_i_tile_scalar(const pimattn_i_tile *tile, const pimattn_i_adjust *adjust,
                                  uint32_t query, const float *q, float *m, float *l, float *o)
{
    float score[16] = {0}, p[16] = {0}, most = -HUGE_VALF;
    if (pimattn_i_is_nan(*m)) return;
    for (uint32_t i = 0; i < tile->n_tokens; i++)
        score[tile->place[i]] =
            pimattn_i_dot(q, pimattn_i_row_at(tile->k, tile->k_stride, i), tile->dim_k);
    pimattn_i_adjust_scores(adjust, tile, query, 1, score);
    for (uint32_t i = 0; i < tile->n_tokens; i++) {
        const float x = score[tile->place[i]];
        if (x > most) most = x;
        if (pimattn_i_finite(x)) continue;
        *m = *l = pimattn_i_nan();
        return;
    }
    if (most > *m) {
        float keep = *m == -HUGE_VALF ? 0.0f : pimattn_i_exp(*m - most);
        *l *= keep;
        for (uint32_t j = 0; j < tile->dim_v; j++)
            o[j] *= keep;
        *m = most;
    }
    for (uint32_t i = 0; i < tile->n_tokens; i++)
        p[tile->place[i]] = pimattn_i_exp(score[tile->place[i]] - *m);
    for (uint32_t j = 0; j < tile->dim_v; j += 16)
        pimattn_i_tile_mix(tile, p, j, (uint32_t)pimattn_i_min(16, tile->dim_v - j), o + j);
    *l += pimattn_i_sum16(p);
}

/* o = o * a + from * b. */
static void pimattn_i_blend(float *o, float a, const float *from, float b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        o[i] = o[i] * a + from[i] * b;
}

/* out = o / l, NaN where that is not finite; out may be unaligned. */
static void pimattn_i_divide(unsigned char *out, const float *o, float l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = o[i] / l;
        if (!pimattn_i_finite(x)) x = pimattn_i_nan();
        memcpy(out + 4 * i, &x, sizeof x);
    }
}

/* Working memory of a SIMD kernel: scores [token][query], weights likewise, what o keeps of it. */
enum { PIMATTN_I_WORK_W = 128, PIMATTN_I_WORK = 2 * PIMATTN_I_WORK_W + 16 };

/* A SIMD kernel works on whole tiles of rows of whole vectors for 1, 2, 4 or 8 (index 0 to 3)
 * queries at a time, which changes no bit of any of them:
 *
 *     dots   s[token][query] = q . k, as pimattn_i_dot_piece but for fused additions; if rows of
 *            two pieces are read at once, s[token], then those of the second
 *     soft   scores, maximum, weights, m and l; behind the weights, what o keeps
 *     mix    o = o * what it keeps + what pimattn_i_tile_mix says, fused
 *
 * The scalar kernel has none of these and takes f32 copies. Rows of any length for the rest. */
typedef struct pimattn_i_kernel {
    const char *name;
    uint32_t most_queries;
    void (*dots[PIMATTN_N_TYPE][4])(const pimattn_i_tile *tile, const float *q, size_t q_floats,
                                    float *s);
    void (*soft)(const pimattn_i_tile *tile, uint32_t n_queries, const float *s, float *weights,
                 float *m);
    void (*mix[PIMATTN_N_TYPE][4])(const pimattn_i_tile *tile, const float *weights, float *o,
                                   size_t o_floats);
    void (*load)(float *to, size_t n_floats, const unsigned char *from, uint32_t type,
                 uint32_t n); /* zeros behind n numbers; n_floats: whole vectors of 16 */
    void (*store)(const pimattn_i_row *rows, uint32_t n_rows, uint32_t type,
                  uint32_t n); /* of finite numbers, but for f32 */
    uint32_t (*magnitude)(const unsigned char *from, size_t n);
    void (*add)(float *sum, float *lost, const float *piece, uint32_t n); /* whole tiles */
    void (*blend)(float *o, float a, const float *from, float b, size_t n);
    void (*divide)(unsigned char *out, const float *o, float l, size_t n);
    void (*adjust)(const pimattn_i_adjust *a, const pimattn_i_tile *tile, uint32_t first,
                   uint32_t n, float *s);
    void (*bound)(const float *q, const float *low, size_t n, float sums[2][16]);
} pimattn_i_kernel;

/* Sums, and sums of sizes, of the larger products with the least and with the largest of keys. */
PIMATTN_I_INLINE void pimattn_i_bound_sums(const float *q, const float *low, size_t n,
                                           float sums[2][16])
{
    float of[2][16] = {{0}}; /* of their own: nothing else is written meanwhile */
    const float *high = low + n;
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 16; j++) {
            const float a = q[i + j] * low[i + j], b = q[i + j] * high[i + j];
            of[0][j] += a > b ? a : b;
            of[1][j] += fabsf(a) + fabsf(b);
        }
    memcpy(sums, of, sizeof of);
}

#define PIMATTN_I_KERNEL_OF(NAME, MOST, DOTS, SOFT, MIX, ADD, W)                                   \
    {                                                                                              \
        NAME, MOST, DOTS, SOFT, MIX, pimattn_i_load_row##W, pimattn_i_store_rows##W,               \
            pimattn_i_magnitude##W, ADD, pimattn_i_blend##W, pimattn_i_divide##W,                  \
            pimattn_i_adjust_scores##W, pimattn_i_bound_sums##W                                    \
    }

static const pimattn_i_kernel pimattn_i_kernel_scalar =
    PIMATTN_I_KERNEL_OF("scalar", 1, {{NULL}}, NULL, {{NULL}}, NULL, );

#if PIMATTN_SIMD > 0 && defined(__GNUC__) && defined(__x86_64__)
#define PIMATTN_I_X86
#define PIMATTN_I_REGISTER "v" /* in constraints, and what clears one: */
#define PIMATTN_I_CLEAR    "vxorps %0, %0, %0"
#if PIMATTN_SIMD > 1
#define PIMATTN_I_AVX512
#endif
#include <cpuid.h>
#include <immintrin.h>
#endif
#if PIMATTN_SIMD > 0 && defined(__GNUC__) && defined(__AARCH64EL__)
#define PIMATTN_I_NEON
#define PIMATTN_I_REGISTER "w"
#define PIMATTN_I_CLEAR    "movi %0.4s, #0"
#include <arm_neon.h>
#endif

#if defined(PIMATTN_I_X86) || defined(PIMATTN_I_NEON)

/* The bodies below are written once for vectors of W floats, with the operators that gcc and clang
 * give to vectors. What they need beside these of an instruction set:
 *
 *     PLAIN, TARGET    how a function is declared that is called, that is inlined
 *     SUMS, EACH       how many sums a block has; a macro for each of them
 *     QUAD             a sum folded to four lanes, beside others
 *     EIGHT, MORE      blocks of 8 queries, if they are worth it
 *     FMA, MAX, PEAK   MAX: NaN if b is; PEAK: the larger as integers
 *     AT               x[token] for every lane; the tokens lie within one vector
 *     F16, INT8, ..    numbers of other types; TO_F16: to it
 *     TO_HALF, TO_INT8 integers of two vectors, which hold no more than that
 *     pick             a half of every 2 * step lanes of a, then of b; the second is the other one
 *
 * Sums are variables of their own: compilers keep arrays of them on the stack. */
#define PIMATTN_I_EACH4(X, W) X(W, 0) X(W, 1) X(W, 2) X(W, 3)
#define PIMATTN_I_EACH8(X, W) X(W, 0) X(W, 1) X(W, 2) X(W, 3) X(W, 4) X(W, 5) X(W, 6) X(W, 7)
#define PIMATTN_I_EACH16(X, W)                                                                     \
    PIMATTN_I_EACH8(X, W)                                                                          \
    X(W, 8) X(W, 9) X(W, 10) X(W, 11) X(W, 12) X(W, 13) X(W, 14) X(W, 15)

/* Hides where a number comes from: what compilers would compute once, before a loop, and then lack
 * registers for, they keep in vectors, and it comes from there too late. */
#define PIMATTN_I_HIDE(x) __asm__("" : "+r"(x))

/* Fetches lines of what comes next, into the first cache or the second, and of what comes later. */
PIMATTN_I_INLINE void pimattn_i_fetch_lines(const unsigned char *next, const unsigned char *later,
                                            size_t bytes, const bool first, const bool both,
                                            size_t from, size_t led, const void *hot)
{
#ifdef __clang__
#pragma clang loop unroll(disable) /* a burst of fetches costs bandwidth */
#endif
    for (size_t i = 0; i < bytes; i += 64) {
        if (first)
            __builtin_prefetch(next + i, 0, 3);
        else
            __builtin_prefetch(next + i, 0, 2);
        if (both) __builtin_prefetch((from + i) & led ? hot : later + i, 0, 2);
    }
}

/* The same for several rows; by itself, or it would take registers, too. */
static __attribute__((noinline)) void pimattn_i_fetch_rows(const unsigned char *next,
                                                           const unsigned char *later, size_t bytes,
                                                           size_t row, size_t stride)
{
    for (size_t i = 0; i < bytes; i += row, next += stride, later += stride)
        pimattn_i_fetch_lines(next, later, row, true, true, 0, 0, next);
}

#define PIMATTN_I_FETCH_BOTH(W, i)                                                                 \
    if (i * 64 < bytes) {                                                                          \
        __builtin_prefetch(next + i * 64, 0, 3);                                                   \
        __builtin_prefetch((from + i * 64) & led ? hot : later + i * 64, 0, 2);                    \
    }

/* Fetches what lies `bytes` on from *at. Of one or few queries the memory's pace counts, and all
 * goes into the second cache where that has more slots. */
PIMATTN_I_INLINE void pimattn_i_fetch(const unsigned char *next, const unsigned char *later,
                                      const pimattn_i_wanted *of, const uint32_t ahead, size_t led,
                                      const void *hot, size_t *at, const size_t bytes,
                                      const uint32_t type, const uint32_t n, const bool late)
{
    size_t from = *at;
    if (type == PIMATTN_F32) led = 0;
    const bool single = n == 1 && type != PIMATTN_INT8, pair = n == 2 && type != PIMATTN_INT8;
    const bool few = single || (type == PIMATTN_F32 && n < 8);
    const uint32_t alone = type == PIMATTN_F32 ? PIMATTN_I_DEEP_ROWS : PIMATTN_I_DEEP_PAGES;
    *at += bytes;
    if (!late && __builtin_expect(of->gap > 0, 0)) { /* computed always, it takes registers */
        const bool first = !few || ahead < PIMATTN_I_DEEP;
        if (__builtin_expect(of->inverse > 0, 0)) {
            const size_t step = type == PIMATTN_F32 ? 64 : of->step, end = from + bytes;
            if (step != 64) from = (size_t)((from + step - 1) * of->step_inverse >> 40) * step;
            for (; from < end; from += step) {
                const size_t to = from + (size_t)(from * of->inverse >> 40) * of->gap;
                pimattn_i_fetch_lines(next + to, later + to, 64, first, true, 0, 0, hot);
            }
            return;
        }
        from += (from >> of->shift) * of->gap;
        if (n < 4 && bytes > of->row) {
            pimattn_i_fetch_rows(next + from, later + from, bytes, of->row, of->row + of->gap);
            return;
        }
    }
    next += from;
    later += from;
    if (late) {
        pimattn_i_fetch_lines(later, later, bytes, false, false, from, led, hot);
    } else if (single && ahead >= alone) {
        for (size_t i = 0; type == PIMATTN_F32 && i < bytes; i += 64)
            if (((uintptr_t)(next + i) & 255) < 64) __builtin_prefetch(next + i, 0, 2);
    } else if ((few && ahead >= PIMATTN_I_DEEP) || (pair && ahead == PIMATTN_I_DEEP)) {
        pimattn_i_fetch_lines(next, later, bytes, false, true, from, 0, hot);
    } else if (single && ahead == PIMATTN_I_NEAR) {
        pimattn_i_fetch_lines(next, later, bytes, true, false, from, 0, hot);
    } else if (single && type != PIMATTN_F32 && bytes <= 512) {
        PIMATTN_I_EACH8(PIMATTN_I_FETCH_BOTH, ) /* for so few sums a burst keeps the pace */
    } else {
        pimattn_i_fetch_lines(next, later, bytes, true, true, from, led, hot);
    }
}

static const int32_t pimattn_i_lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Vectors: v of floats, i and n of integers; u and h of floats and half words anywhere, hh and bb
 * of two vectors' half words and bytes. zero: a register of its own, as copies of one take as long
 * as sums. hold: a vector of a query, loaded once, not again for every token. */
#define PIMATTN_I_VECTOR(W)                                                                        \
    typedef float pimattn_i_v##W __attribute__((vector_size(4 * W)));                              \
    typedef int32_t pimattn_i_i##W __attribute__((vector_size(4 * W)));                            \
    typedef uint32_t pimattn_i_n##W __attribute__((vector_size(4 * W)));                           \
    typedef float pimattn_i_u##W __attribute__((vector_size(4 * W), aligned(1), may_alias));       \
    typedef uint16_t pimattn_i_h##W __attribute__((vector_size(2 * W), aligned(1), may_alias));    \
    typedef uint16_t pimattn_i_hh##W __attribute__((vector_size(4 * W), aligned(1), may_alias));   \
    typedef int8_t pimattn_i_bb##W __attribute__((vector_size(2 * W), aligned(1), may_alias));     \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_get_##W(const void *from)                        \
    {                                                                                              \
        return *(const pimattn_i_u##W *)from;                                                      \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_put_##W(void *to, pimattn_i_v##W x)                        \
    {                                                                                              \
        *(pimattn_i_u##W *)to = x;                                                                 \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_set1_##W(float x)                                \
    {                                                                                              \
        const pimattn_i_v##W zero = {0.0f};                                                        \
        return x - zero;                                                                           \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_zero_##W(void)                                   \
    {                                                                                              \
        pimattn_i_v##W x;                                                                          \
        __asm__ volatile(PIMATTN_I_CLEAR : "=" PIMATTN_I_REGISTER(x));                             \
        return x;                                                                                  \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_hold_##W(const float *q)                         \
    {                                                                                              \
        pimattn_i_v##W x = pimattn_i_get_##W(q);                                                   \
        __asm__("" : "+" PIMATTN_I_REGISTER(x));                                                   \
        return x;                                                                                  \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_select_##W(pimattn_i_i##W which,                 \
                                                             pimattn_i_v##W a, pimattn_i_v##W b)   \
    {                                                                                              \
        return (pimattn_i_v##W)((which & (pimattn_i_i##W)a) | (~which & (pimattn_i_i##W)b));       \
    }

/* W numbers of a type, and twice as many to store, which are finite. */
#define PIMATTN_I_TYPES(W)                                                                         \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_load_##W(const unsigned char *from,              \
                                                           const uint32_t type)                    \
    {                                                                                              \
        if (type == PIMATTN_F32) return pimattn_i_get_##W(from);                                   \
        if (type == PIMATTN_INT8) return PIMATTN_I_INT8_##W(from);                                 \
        const pimattn_i_h##W half = *(const pimattn_i_h##W *)(const void *)from;                   \
        if (type == PIMATTN_F16) return PIMATTN_I_F16_##W(half);                                   \
        return PIMATTN_I_BF16_##W(half);                                                           \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_store_##W(unsigned char *to, pimattn_i_v##W x,             \
                                                  pimattn_i_v##W y, const uint32_t type)           \
    {                                                                                              \
        pimattn_i_n##W n = (pimattn_i_n##W)x, m = (pimattn_i_n##W)y;                               \
        if (type == PIMATTN_F32) {                                                                 \
            pimattn_i_put_##W(to, x);                                                              \
            pimattn_i_put_##W(to + 4 * W, y);                                                      \
        } else if (type == PIMATTN_F16) {                                                          \
            *(pimattn_i_h##W *)(void *)to = PIMATTN_I_TO_F16_##W(x);                               \
            *(pimattn_i_h##W *)(void *)(to + 2 * W) = PIMATTN_I_TO_F16_##W(y);                     \
        } else if (type == PIMATTN_BF16) {                                                         \
            n = (n + (n >> 16 & 1) + 0x7fff) >> 16;                                                \
            m = (m + (m >> 16 & 1) + 0x7fff) >> 16;                                                \
            *(pimattn_i_hh##W *)(void *)to = PIMATTN_I_TO_HALF_##W(n, m);                          \
        } else { /* the nearest integers are in the low bits then */                               \
            n = (pimattn_i_n##W)(x + 12582912.0f) & 0xff;                                          \
            m = (pimattn_i_n##W)(y + 12582912.0f) & 0xff;                                          \
            *(pimattn_i_bb##W *)(void *)to = PIMATTN_I_TO_INT8_##W(n, m);                          \
        }                                                                                          \
    }

/* OP of lanes at a distance; of all lanes that stand for (token, query) over the tokens. */
#define PIMATTN_I_ADD(W, a, b)  (a) + (b)
#define PIMATTN_I_MOST(W, a, b) PIMATTN_I_MAX_##W(a, b)
#define PIMATTN_I_PEAK(W, a, b) PIMATTN_I_PEAK_##W(a, b)
#define PIMATTN_I_FOLD(W, NAME, OP)                                                                \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_##NAME##_##W(pimattn_i_v##W a, pimattn_i_v##W b, \
                                                               const int step)                     \
    {                                                                                              \
        return OP(W, pimattn_i_pick_##W(a, b, step, false), pimattn_i_pick_##W(a, b, step, true)); \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_##NAME##_tokens_##W(pimattn_i_v##W x,            \
                                                                      uint32_t n)                  \
    {                                                                                              \
        if (W == 16 && n <= 8) x = pimattn_i_##NAME##_##W(x, x, 8);                                \
        if (W >= 8 && n <= 4) x = pimattn_i_##NAME##_##W(x, x, 4);                                 \
        if (n <= 2) x = pimattn_i_##NAME##_##W(x, x, 2);                                           \
        if (n <= 1) x = pimattn_i_##NAME##_##W(x, x, 1);                                           \
        return x;                                                                                  \
    }

/* Tokens times queries of one block of sums; vectors h, h + 16 / W, .. of the rows. */
#define PIMATTN_I_ZERO(W, i) pimattn_i_v##W a##i = pimattn_i_zero_##W();
#define PIMATTN_I_QUERY(W, i)                                                                      \
    if (i < n) qs[i] = pimattn_i_hold_##W((i < 4 ? q : q4) + i % 4 * q_floats);
#define PIMATTN_I_DOT(W, i)                                                                        \
    a##i = PIMATTN_I_FMA_##W(pimattn_i_load_##W(k + (i / n) * stride, type), qs[i % n], a##i);
#define PIMATTN_I_SUM(W, i) sums[i] = a##i;
#define PIMATTN_I_ROW_DOT(W, j)                                                                    \
    if (j < n) a##j = PIMATTN_I_FMA_##W(x, pimattn_i_get_##W(of + j * q_floats), a##j);
#define PIMATTN_I_ROW_SUM(W, j)                                                                    \
    if (j < n) sums[h][i + j] = a##j;
#define PIMATTN_I_PART(W, h)                                                                       \
    if (h < 16 / W && !by_row)                                                                     \
        pimattn_i_sums_##W(tile, k + h * W * bytes, q + h * W, q_floats, sums[h % (16 / W)],       \
                           &fetched, type, n, h ? 0 : PIMATTN_I_SUMS_##W / n * 16 * bytes, late);

/* Scores: sums of 16 lanes each, in 16 / W vectors. Rows of a single query come one by one where
 * memory likes it so, and wide ones of few queries if the CPU is deep. */
#define PIMATTN_I_DOTS(W)                                                                          \
    PIMATTN_I_TARGET_##W void pimattn_i_sums_##W(                                                  \
        const pimattn_i_tile *tile, const unsigned char *k, const float *q, size_t q_floats,       \
        pimattn_i_v##W *sums, size_t *fetched, const uint32_t type, const uint32_t n,              \
        const size_t fetch, const bool late)                                                       \
    {                                                                                              \
        const size_t bytes = 16 * pimattn_i_type_bytes(type), stride = tile->k_stride;             \
        const unsigned char *next = tile->fetch[0], *later = tile->fetch[2];                       \
        const uint32_t ahead = tile->ahead;                                                        \
        const size_t led = W == 16 || n == 1 ? tile->led : 0;                                      \
        const unsigned char *end = k + tile->dim_k / 16 * bytes;                                   \
        pimattn_i_v##W qs[8];                                                                      \
        const float *q4 = n > 4 ? q + 4 * q_floats : q;                                            \
        PIMATTN_I_HIDE(q4);                                                                        \
        PIMATTN_I_EACH_##W(PIMATTN_I_ZERO, W);                                                     \
        for (; k != end; k += bytes, q += 16, q4 += 16) {                                          \
            pimattn_i_fetch(next, later, tile->wanted, ahead, led, tile, fetched, fetch, type, n,  \
                            late);                                                                 \
            PIMATTN_I_EACH8(PIMATTN_I_QUERY, W);                                                   \
            PIMATTN_I_EACH_##W(PIMATTN_I_DOT, W);                                                  \
        }                                                                                          \
        PIMATTN_I_EACH_##W(PIMATTN_I_SUM, W);                                                      \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_sums_by_row_##W(                                           \
        const pimattn_i_tile *tile, const unsigned char *k, const float *q, size_t q_floats,       \
        pimattn_i_v##W sums[][PIMATTN_I_SUMS_##W], size_t *fetched, const uint32_t type,           \
        const uint32_t n, const bool pair)                                                         \
    {                                                                                              \
        const size_t bytes = 16 * pimattn_i_type_bytes(type), row = tile->dim_k / 16 * bytes;      \
        const size_t piece = PIMATTN_I_PIECE / 16 * bytes;                                         \
        for (uint32_t i = 0; i < PIMATTN_I_SUMS_##W; i += n, k += tile->k_stride) {                \
            pimattn_i_fetch(tile->fetch[0], tile->fetch[2], tile->wanted, tile->ahead,             \
                            W == 16 || n == 1 ? tile->led : 0, tile, fetched, row, type, n, 0);    \
            for (uint32_t h = 0; h < (pair ? 2 : 16 / W); h++) {                                   \
                PIMATTN_I_EACH8(PIMATTN_I_ZERO, W);                                                \
                const float *of = q + h * (pair ? PIMATTN_I_PIECE : W);                            \
                const unsigned char *from = k + (pair ? 0 : h * W * pimattn_i_type_bytes(type));   \
                const size_t end = pair && h == 0 ? piece : row;                                   \
                for (size_t at = pair ? h * piece : 0; at != end; at += bytes, of += 16) {         \
                    const pimattn_i_v##W x = pimattn_i_load_##W(from + at, type);                  \
                    PIMATTN_I_EACH8(PIMATTN_I_ROW_DOT, W);                                         \
                }                                                                                  \
                PIMATTN_I_EACH8(PIMATTN_I_ROW_SUM, W);                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_across_##W(pimattn_i_v##W sums[][PIMATTN_I_SUMS_##W],      \
                                                   float *s)                                       \
    {                                                                                              \
        for (uint32_t i = 0; i < PIMATTN_I_SUMS_##W; i += W) {                                     \
            const pimattn_i_v##W low =                                                             \
                pimattn_i_add_##W(PIMATTN_I_QUAD_##W(i), PIMATTN_I_QUAD_##W(i + 1), 2);            \
            const pimattn_i_v##W high =                                                            \
                pimattn_i_add_##W(PIMATTN_I_QUAD_##W(i + 2), PIMATTN_I_QUAD_##W(i + 3), 2);        \
            pimattn_i_put_##W(s + i, pimattn_i_add_##W(low, high, 1));                             \
        }                                                                                          \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_dots_##W(const pimattn_i_tile *tile, const float *q,       \
                                                 size_t q_floats, float *s, const uint32_t type,   \
                                                 const uint32_t n, const bool late)                \
    {                                                                                              \
        /* stores of s could change *tile for all the compiler knows */                            \
        const size_t bytes = pimattn_i_type_bytes(type), stride = tile->k_stride;                  \
        const unsigned char *k = tile->k, *end = k + 16 * stride;                                  \
        if (tile->n_tokens < 16) end = k + tile->n_tokens * stride; /* so, the loop is as fast */  \
        size_t fetched = tile->k_done;                                                             \
        const uint32_t alone = W == 16 || type == PIMATTN_F32 ? PIMATTN_I_NEAR : PIMATTN_I_DEEP;   \
        for (; k < end; k += PIMATTN_I_SUMS_##W / n * stride, s += PIMATTN_I_SUMS_##W) {           \
            pimattn_i_v##W sums[W == 16 ? 2 : 16 / W][PIMATTN_I_SUMS_##W];                         \
            const bool pair =                                                                      \
                W == 16 && n == 1 && type == PIMATTN_F32 && tile->dim_k > PIMATTN_I_PIECE;         \
            const bool by_row =                                                                    \
                type != PIMATTN_INT8 &&                                                            \
                ((n == 1 && tile->ahead >= alone) || (n <= 4 && W == 16 && type == PIMATTN_F32 &&  \
                                                      tile->ahead >= PIMATTN_I_DEEP_ROWS));        \
            if (pair)                                                                              \
                pimattn_i_sums_by_row_##W(tile, k, q, q_floats, sums, &fetched, type, n, true);    \
            else if (by_row)                                                                       \
                pimattn_i_sums_by_row_##W(tile, k, q, q_floats, sums, &fetched, type, n, false);   \
            PIMATTN_I_EACH4(PIMATTN_I_PART, W)                                                     \
            pimattn_i_across_##W(sums, s);                                                         \
            if (pair) pimattn_i_across_##W(sums + 1, s + 16);                                      \
        }                                                                                          \
    }

/* exp as pimattn_i_exp says, but for fused additions; n is added to the exponent. */
#define PIMATTN_I_EXP(W)                                                                           \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_exp_##W(pimattn_i_v##W x)                        \
    {                                                                                              \
        const pimattn_i_v##W magic = pimattn_i_set1_##W(12582912.0f);                              \
        const pimattn_i_v##W bits = PIMATTN_I_FMA_##W(x, pimattn_i_set1_##W(1.44269504f), magic);  \
        const pimattn_i_v##W n = bits - magic;                                                     \
        pimattn_i_v##W r = PIMATTN_I_FMA_##W(n, pimattn_i_set1_##W(-0.693359375f), x);             \
        r = PIMATTN_I_FMA_##W(n, pimattn_i_set1_##W(2.12194440e-4f), r);                           \
        pimattn_i_v##W p = pimattn_i_set1_##W(1.9875691500e-4f);                                   \
        p = PIMATTN_I_FMA_##W(p, r, pimattn_i_set1_##W(1.3981999507e-3f));                         \
        p = PIMATTN_I_FMA_##W(p, r, pimattn_i_set1_##W(8.3334519073e-3f));                         \
        p = PIMATTN_I_FMA_##W(p, r, pimattn_i_set1_##W(4.1665795894e-2f));                         \
        p = PIMATTN_I_FMA_##W(p, r, pimattn_i_set1_##W(1.6666665459e-1f));                         \
        p = PIMATTN_I_FMA_##W(p, r, pimattn_i_set1_##W(5.0000001201e-1f));                         \
        p = PIMATTN_I_FMA_##W(p * r, r, r) + 1.0f;                                                 \
        return (pimattn_i_v##W)(((pimattn_i_n##W)p + ((pimattn_i_n##W)bits << 23)) &               \
                                (pimattn_i_n##W)(x > -87.33654f));                                 \
    }

/* Softmax of a tile, vertically: lane i of every vector belongs to query i % n, of which m and l
 * are lanes below n; the others there are kept. bad is 0, or NaN for a query with a score that is
 * not finite; it then stays in m and l, and what is in o does not matter. */
#define PIMATTN_I_SOFT(W)                                                                          \
    PIMATTN_I_TARGET_##W void pimattn_i_softmax_##W(const pimattn_i_tile *tile, const uint32_t n,  \
                                                    const float *s, float *weights, float *m)      \
    {                                                                                              \
        const uint32_t n_vectors = 16 * n / W;                                                     \
        const int shift = n == 8 ? 3 : (int)n / 2;                                                 \
        const pimattn_i_i##W lane = (pimattn_i_i##W)pimattn_i_get_##W(pimattn_i_lanes);            \
        const pimattn_i_i##W first = lane < (int32_t)n;                                            \
        const pimattn_i_v##W was = pimattn_i_get_##W(m), l = pimattn_i_get_##W(m + PIMATTN_I_L);   \
        const pimattn_i_v##W none = pimattn_i_set1_##W(-HUGE_VALF), zero = {0.0f};                 \
        pimattn_i_v##W most = pimattn_i_select_##W(first, was, none), x[128 / W];                  \
        pimattn_i_v##W bad = (pimattn_i_v##W)(most != most);                                       \
        for (uint32_t i = 0; i < n_vectors; i++) {                                                 \
            const pimattn_i_i##W token = (lane + (int32_t)(W * i)) >> shift;                       \
            x[i] = pimattn_i_get_##W(s + W * i);                                                   \
            if (tile->k_scale) x[i] = x[i] * PIMATTN_I_AT_##W(tile->k_scale, token);               \
            x[i] = x[i] * tile->scale;                                                             \
            if (tile->visible != 0xffff) {                                                         \
                const pimattn_i_i##W seen =                                                        \
                    ((lane - lane + (int32_t)tile->visible) >> token & 1) != 0;                    \
                bad = PIMATTN_I_FMA_##W(pimattn_i_select_##W(seen, x[i], zero), zero, bad);        \
                x[i] = pimattn_i_select_##W(seen, x[i], none);                                     \
            } else {                                                                               \
                bad = PIMATTN_I_FMA_##W(x[i], zero, bad);                                          \
            }                                                                                      \
            most = PIMATTN_I_MAX_##W(x[i], most);                                                  \
        }                                                                                          \
        bad = pimattn_i_add_tokens_##W(bad, n);                                                    \
        most = pimattn_i_most_tokens_##W(most, n);                                                 \
        for (uint32_t i = 0; i < n_vectors; i++) {                                                 \
            const pimattn_i_i##W token = (lane + (int32_t)(W * i)) >> shift;                       \
            pimattn_i_v##W weight = x[i] = pimattn_i_exp_##W(x[i] - most);                         \
            if (tile->v_scale) weight = weight * PIMATTN_I_AT_##W(tile->v_scale, token);           \
            pimattn_i_put_##W(weights + W * i, weight);                                            \
        }                                                                                          \
        const pimattn_i_v##W keep = pimattn_i_exp_##W(was - most);                                 \
        for (uint32_t i = n_vectors; i > 8; i /= 2)                                                \
            for (uint32_t j = 0; j < i / 2; j++)                                                   \
                x[j] = x[j] + x[j + i / 2];                                                        \
        if (n_vectors > 4) x[0] = x[0] + x[4], x[1] = x[1] + x[5];                                 \
        if (n_vectors > 4) x[2] = x[2] + x[6], x[3] = x[3] + x[7];                                 \
        if (n_vectors > 2) x[0] = x[0] + x[2], x[1] = x[1] + x[3];                                 \
        if (n_vectors > 1) x[0] = x[0] + x[1];                                                     \
        x[0] = pimattn_i_add_tokens_##W(x[0], n) + bad;                                            \
        pimattn_i_put_##W(m, pimattn_i_select_##W(first, most + bad, was));                        \
        pimattn_i_put_##W(m + PIMATTN_I_L, pimattn_i_select_##W(first, l * keep + x[0], l));       \
        pimattn_i_put_##W(weights + PIMATTN_I_WORK_W, keep);                                       \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_soft_##W(const pimattn_i_tile *tile, uint32_t n,            \
                                                const float *s, float *weights, float *m)          \
    {                                                                                              \
        if (W == 16 && n == 8)                                                                     \
            pimattn_i_softmax_##W(tile, 8, s, weights, m);                                         \
        else if (W == 16 && n == 4)                                                                \
            pimattn_i_softmax_##W(tile, 4, s, weights, m);                                         \
        else                                                                                       \
            pimattn_i_softmax_##W(tile, n, s, weights, m);                                         \
    }

/* C vectors of V's dims for all queries. */
#define PIMATTN_I_MIX_STEP(W, i)                                                                   \
    if (i < C * n)                                                                                 \
        a##i = PIMATTN_I_FMA_##W(pimattn_i_load_##W(v + (i % C) * bytes, type),                    \
                                 pimattn_i_set1_##W(weights[i / C]), a##i);
#define PIMATTN_I_MIX_TOKEN(W, j)                                                                  \
    if (j < turn) {                                                                                \
        PIMATTN_I_EACH_##W(PIMATTN_I_MIX_STEP, W);                                                 \
        v += tile->v_stride, weights += n;                                                         \
    }
#define PIMATTN_I_MIX_END(W, i)                                                                    \
    if (i < C * n) {                                                                               \
        if (i > 0 && i % C == 0) to += o_floats, kept++;                                           \
        PIMATTN_I_HIDE(to);                                                                        \
        pimattn_i_put_##W(to + i % C * W, PIMATTN_I_FMA_##W(pimattn_i_get_##W(to + i % C * W),     \
                                                            pimattn_i_set1_##W(*kept), a##i));     \
    }

#define PIMATTN_I_MIX(W)                                                                           \
    PIMATTN_I_TARGET_##W void pimattn_i_mix_part_##W(                                              \
        const pimattn_i_tile *tile, const float *weights, float *o, size_t o_floats, size_t dim,   \
        size_t *fetched, const uint32_t type, const uint32_t n, const uint32_t C, const bool late) \
    {                                                                                              \
        const size_t bytes = W * pimattn_i_type_bytes(type);                                       \
        const float *kept = weights + PIMATTN_I_WORK_W;                                            \
        const unsigned char *v = tile->v + dim * pimattn_i_type_bytes(type);                       \
        PIMATTN_I_EACH_##W(PIMATTN_I_ZERO, W);                                                     \
        /* tokens of a turn, which fetches a line at least */                                      \
        const uint32_t turn = C > 1 && C * bytes < 64 ? (uint32_t)(64 / (C * bytes)) : 1;          \
        uint32_t t = 0;                                                                            \
        for (; t + turn <= tile->n_tokens; t += turn) {                                            \
            pimattn_i_fetch(tile->fetch[1], tile->fetch[3], tile->wanted + 1, tile->ahead,         \
                            W == 16 || n == 1 ? tile->led : 0, tile, fetched, turn * C * bytes,    \
                            type, n, late);                                                        \
            PIMATTN_I_EACH4(PIMATTN_I_MIX_TOKEN, W)                                                \
        }                                                                                          \
        for (; turn > 1 && t < tile->n_tokens; t++)                                                \
            PIMATTN_I_MIX_TOKEN(W, 0)                                                              \
        float *to = o + dim;                                                                       \
        PIMATTN_I_EACH_##W(PIMATTN_I_MIX_END, W);                                                  \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_mix_##W(const pimattn_i_tile *tile, const float *weights,  \
                                                float *o, size_t o_floats, const uint32_t type,    \
                                                const uint32_t n, const bool late)                 \
    {                                                                                              \
        const uint32_t most = PIMATTN_I_SUMS_##W / n;                                              \
        const uint32_t C = n > 1 && most > 4 ? 4 : most > 8 ? 8 : most;                            \
        const bool half = type == PIMATTN_F16 || type == PIMATTN_BF16;                             \
        size_t fetched = 0;                                                                        \
        uint32_t j = 0;                                                                            \
        /* strips of one line or two, where the memory likes them */                               \
        const bool twos = tile->ahead == PIMATTN_I_LED || tile->ahead == PIMATTN_I_NEAR;           \
        const bool ones = n == 4 && type == PIMATTN_F32 && tile->ahead >= PIMATTN_I_DEEP;          \
        const bool narrow = W == 16 && (ones || (n == 1 && half && twos));                         \
        /* whole rows, one by one */                                                               \
        if (W == 16 && n == 1 && type == PIMATTN_F32 && tile->ahead >= PIMATTN_I_DEEP_ROWS) {      \
            for (; j + 16 * W <= tile->dim_v; j += 16 * W)                                         \
                pimattn_i_mix_part_##W(tile, weights, o, o_floats, j, &fetched, type, n, 16, 0);   \
            for (; j + 12 * W <= tile->dim_v; j += 12 * W)                                         \
                pimattn_i_mix_part_##W(tile, weights, o, o_floats, j, &fetched, type, n, 12, 0);   \
        }                                                                                          \
        for (; !narrow && j + C * W <= tile->dim_v; j += C * W)                                    \
            pimattn_i_mix_part_##W(tile, weights, o, o_floats, j, &fetched, type, n, C, late);     \
        for (; n == 1 && j + C / 2 * W <= tile->dim_v; j += C / 2 * W)                             \
            pimattn_i_mix_part_##W(tile, weights, o, o_floats, j, &fetched, type, n, C / 2, late); \
        for (; j < tile->dim_v; j += W)                                                            \
            pimattn_i_mix_part_##W(tile, weights, o, o_floats, j, &fetched, type, n, 1, late);     \
    }

/* Rows of any length, the sums and exits of partials, and scores adjusted. */
#define PIMATTN_I_ROWS(W)                                                                          \
    PIMATTN_I_TARGET_##W void pimattn_i_load_as_##W(                                               \
        float *to, size_t n_floats, const unsigned char *from, const uint32_t type, uint32_t n)    \
    {                                                                                              \
        const size_t bytes = pimattn_i_type_bytes(type);                                           \
        size_t i = 0;                                                                              \
        for (; i + W <= n; i += W)                                                                 \
            pimattn_i_put_##W(to + i, pimattn_i_load_##W(from + i * bytes, type));                 \
        for (size_t j = i; j < n_floats; j += W)                                                   \
            pimattn_i_put_##W(to + j, pimattn_i_zero_##W());                                       \
        if (i < n && n < W) pimattn_i_load_row(to, n, from, type, n);                              \
        if (i < n && n > W) /* some twice: one by one they took longer than all others */          \
            pimattn_i_put_##W(to + n - W, pimattn_i_load_##W(from + (n - W) * bytes, type));       \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_load_row_##W(                                               \
        float *to, size_t n_floats, const unsigned char *from, uint32_t type, uint32_t n)          \
    {                                                                                              \
        if (type == PIMATTN_F32) pimattn_i_load_as_##W(to, n_floats, from, PIMATTN_F32, n);        \
        if (type == PIMATTN_F16) pimattn_i_load_as_##W(to, n_floats, from, PIMATTN_F16, n);        \
        if (type == PIMATTN_BF16) pimattn_i_load_as_##W(to, n_floats, from, PIMATTN_BF16, n);      \
        if (type == PIMATTN_INT8) pimattn_i_load_as_##W(to, n_floats, from, PIMATTN_INT8, n);      \
    }                                                                                              \
    PIMATTN_I_TARGET_##W void pimattn_i_store_as_##W(const pimattn_i_row *rows, uint32_t n_rows,   \
                                                     const uint32_t type, uint32_t n)              \
    {                                                                                              \
        const uint32_t bytes = pimattn_i_type_bytes(type), last = n > 2 * W ? n - 2 * W : 0;       \
        unsigned char from[8 * W] = {0}, to[8 * W]; /* of a row that is shorter */                 \
        for (; n_rows > 0; n_rows--, rows++) {                                                     \
            const pimattn_i_row few = {to, from, rows->per_unit}, row = n < 2 * W ? few : *rows;   \
            const float unit = type == PIMATTN_INT8 ? row.per_unit : 1.0f;                         \
            if (n < 2 * W) memcpy(from, rows->from, 4 * (size_t)n);                                \
            for (uint32_t i = 0;; i = i + 2 * W < last ? i + 2 * W : last) {                       \
                const unsigned char *x = row.from + 4 * (size_t)i;                                 \
                pimattn_i_store_##W(row.to + (size_t)i * bytes, pimattn_i_get_##W(x) * unit,       \
                                    pimattn_i_get_##W(x + 4 * W) * unit, type);                    \
                if (i == last) break;                                                              \
            }                                                                                      \
            if (n < 2 * W) memcpy(rows->to, to, (size_t)n *bytes);                                 \
        }                                                                                          \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_store_rows_##W(const pimattn_i_row *rows, uint32_t n_rows,  \
                                                      uint32_t type, uint32_t n)                   \
    {                                                                                              \
        if (type == PIMATTN_F32) pimattn_i_store_as_##W(rows, n_rows, PIMATTN_F32, n);             \
        if (type == PIMATTN_F16) pimattn_i_store_as_##W(rows, n_rows, PIMATTN_F16, n);             \
        if (type == PIMATTN_BF16) pimattn_i_store_as_##W(rows, n_rows, PIMATTN_BF16, n);           \
        if (type == PIMATTN_INT8) pimattn_i_store_as_##W(rows, n_rows, PIMATTN_INT8, n);           \
    }                                                                                              \
    PIMATTN_I_TARGET_##W pimattn_i_v##W pimattn_i_abs_##W(const unsigned char *from)               \
    {                                                                                              \
        return (pimattn_i_v##W)((pimattn_i_i##W)pimattn_i_get_##W(from) & 0x7fffffff);             \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W uint32_t pimattn_i_magnitude_##W(const unsigned char *from, size_t n)      \
    {                                                                                              \
        size_t i = 0;                                                                              \
        pimattn_i_v##W most = {0.0f}, other = {0.0f};                                              \
        for (; i + 2 * W <= n; i += 2 * W) {                                                       \
            most = PIMATTN_I_PEAK_##W(most, pimattn_i_abs_##W(from + 4 * i));                      \
            other = PIMATTN_I_PEAK_##W(other, pimattn_i_abs_##W(from + 4 * (i + W)));              \
        }                                                                                          \
        most = PIMATTN_I_PEAK_##W(most, other);                                                    \
        most = pimattn_i_peak_tokens_##W(most, 1);                                                 \
        const uint32_t rest = i < n ? pimattn_i_magnitude(from + 4 * i, n - i) : 0;                \
        return pimattn_i_bits(most[0]) > rest ? pimattn_i_bits(most[0]) : rest;                    \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_add_pieces_##W(float *sum, float *lost, const float *piece, \
                                                      uint32_t n)                                  \
    {                                                                                              \
        for (uint32_t i = 0; i < n; i += W) {                                                      \
            const pimattn_i_v##W a = pimattn_i_get_##W(sum + i), b = pimattn_i_get_##W(piece + i); \
            const pimattn_i_v##W all = a + b, other = all - a;                                     \
            pimattn_i_put_##W(lost + i,                                                            \
                              pimattn_i_get_##W(lost + i) + ((a - (all - other)) + (b - other)));  \
            pimattn_i_put_##W(sum + i, all);                                                       \
        }                                                                                          \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_blend_##W(float *o, float a, const float *from, float b,    \
                                                 size_t n)                                         \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + W <= n; i += W)                                                                 \
            pimattn_i_put_##W(o + i,                                                               \
                              pimattn_i_get_##W(o + i) * a + pimattn_i_get_##W(from + i) * b);     \
        pimattn_i_blend(o + i, a, from + i, b, n - i);                                             \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_divide_##W(unsigned char *out, const float *o, float l,     \
                                                  size_t n)                                        \
    {                                                                                              \
        const pimattn_i_v##W zero = {0.0f}, nan = zero + pimattn_i_nan();                          \
        size_t i = 0;                                                                              \
        for (; i + W <= n; i += W) {                                                               \
            pimattn_i_v##W x = pimattn_i_get_##W(o + i) / l;                                       \
            pimattn_i_put_##W(out + 4 * i, pimattn_i_select_##W(x - x == zero, x, nan));           \
        }                                                                                          \
        pimattn_i_divide(out + 4 * i, o + i, l, n - i);                                            \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_adjust_scores_##W(const pimattn_i_adjust *a,                \
                                                         const pimattn_i_tile *tile,               \
                                                         uint32_t first, uint32_t n, float *s)     \
    {                                                                                              \
        const pimattn_i_i##W lane = (pimattn_i_i##W)pimattn_i_get_##W(pimattn_i_lanes);            \
        pimattn_i_tile plain = *tile;                                                              \
        plain.k_scale = NULL;                                                                      \
        for (uint32_t i = 0; tile->k_scale && i < 16 * n; i += W) {                                \
            const pimattn_i_i##W token = (lane + (int32_t)i) >> (n == 8 ? 3 : (int)n / 2);         \
            pimattn_i_put_##W(s + i,                                                               \
                              pimattn_i_get_##W(s + i) * PIMATTN_I_AT_##W(tile->k_scale, token));  \
        }                                                                                          \
        pimattn_i_adjust_scores(a, &plain, first, n, s);                                           \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_bound_sums_##W(const float *q, const float *low, size_t n,  \
                                                      float sums[2][16])                           \
    {                                                                                              \
        pimattn_i_bound_sums(q, low, n, sums);                                                     \
    }

#define PIMATTN_I_INSTANCE(W, T, N)                                                                \
    PIMATTN_I_PLAIN_##W void pimattn_i_dots_##W##_##T##_##N(                                       \
        const pimattn_i_tile *tile, const float *q, size_t q_floats, float *s)                     \
    {                                                                                              \
        (PIMATTN_I_LATE(N, PIMATTN_##T, tile->ahead) && tile->wanted[0].gap == 0)                  \
            ? pimattn_i_dots_##W(tile, q, q_floats, s, PIMATTN_##T, N, true)                       \
            : pimattn_i_dots_##W(tile, q, q_floats, s, PIMATTN_##T, N, false);                     \
    }                                                                                              \
    PIMATTN_I_PLAIN_##W void pimattn_i_mix_##W##_##T##_##N(                                        \
        const pimattn_i_tile *tile, const float *weights, float *o, size_t o_floats)               \
    {                                                                                              \
        (PIMATTN_I_LATE(N, PIMATTN_##T, tile->ahead) && tile->wanted[1].gap == 0)                  \
            ? pimattn_i_mix_##W(tile, weights, o, o_floats, PIMATTN_##T, N, true)                  \
            : pimattn_i_mix_##W(tile, weights, o, o_floats, PIMATTN_##T, N, false);                \
    }
#define PIMATTN_I_INSTANCES(W, N)                                                                  \
    PIMATTN_I_INSTANCE(W, F32, N)                                                                  \
    PIMATTN_I_INSTANCE(W, F16, N)                                                                  \
    PIMATTN_I_INSTANCE(W, BF16, N)                                                                 \
    PIMATTN_I_INSTANCE(W, INT8, N)

#define PIMATTN_I_TABLE(W, F, T)                                                                   \
    {                                                                                              \
        pimattn_i_##F##_##W##_##T##_1, pimattn_i_##F##_##W##_##T##_2,                              \
            pimattn_i_##F##_##W##_##T##_4, PIMATTN_I_EIGHT_##W(F, T)                               \
    }
#define PIMATTN_I_TABLES(W, F)                                                                     \
    {                                                                                              \
        PIMATTN_I_TABLE(W, F, F32), PIMATTN_I_TABLE(W, F, F16), PIMATTN_I_TABLE(W, F, BF16),       \
            PIMATTN_I_TABLE(W, F, INT8)                                                            \
    }

#define PIMATTN_I_KERNEL(W, NAME, MOST)                                                            \
    PIMATTN_I_TYPES(W)                                                                             \
    PIMATTN_I_FOLD(W, add, PIMATTN_I_ADD)                                                          \
    PIMATTN_I_FOLD(W, most, PIMATTN_I_MOST)                                                        \
    PIMATTN_I_FOLD(W, peak, PIMATTN_I_PEAK)                                                        \
    PIMATTN_I_DOTS(W)                                                                              \
    PIMATTN_I_EXP(W)                                                                               \
    PIMATTN_I_SOFT(W)                                                                              \
    PIMATTN_I_MIX(W)                                                                               \
    PIMATTN_I_ROWS(W)                                                                              \
    PIMATTN_I_INSTANCES(W, 1)                                                                      \
    PIMATTN_I_INSTANCES(W, 2)                                                                      \
    PIMATTN_I_INSTANCES(W, 4)                                                                      \
    PIMATTN_I_MORE_##W static const pimattn_i_kernel pimattn_i_kernel_##W =                        \
        PIMATTN_I_KERNEL_OF(NAME, MOST, PIMATTN_I_TABLES(W, dots), pimattn_i_soft_##W,             \
                            PIMATTN_I_TABLES(W, mix), pimattn_i_add_pieces_##W, _##W);

#endif

#ifdef PIMATTN_I_X86

/* --- AVX2, FMA and F16C: vectors of 8. --- */

#define PIMATTN_I_FOR_8    "avx2,fma,f16c"
#define PIMATTN_I_PLAIN_8  static __attribute__((target(PIMATTN_I_FOR_8)))
#define PIMATTN_I_TARGET_8 PIMATTN_I_INLINE __attribute__((target(PIMATTN_I_FOR_8)))

#define PIMATTN_I_SUMS_8        8
#define PIMATTN_I_EACH_8        PIMATTN_I_EACH8
#define PIMATTN_I_EIGHT_8(F, T) NULL /* two blocks of 4 are faster */
#define PIMATTN_I_MORE_8

#define PIMATTN_I_QUAD_8(i)                                                                        \
    pimattn_i_add_8(sums[0][i] + sums[1][i], sums[0][i + 4] + sums[1][i + 4], 4)
#define PIMATTN_I_FMA_8(a, b, c) _mm256_fmadd_ps(a, b, c)
#define PIMATTN_I_MAX_8(a, b)    _mm256_max_ps(a, b)
#define PIMATTN_I_PEAK_8(a, b)   (pimattn_i_v8) _mm256_max_epi32((__m256i)(a), (__m256i)(b))
#define PIMATTN_I_AT_8(x, token)                                                                   \
    _mm256_permutevar8x32_ps(pimattn_i_get_8(x + (token[0] & 8)), (__m256i)token)
#define PIMATTN_I_INT8_8(from)                                                                     \
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)))
#define PIMATTN_I_F16_8(half) _mm256_cvtph_ps((__m128i)half)
/* One instruction beside the load: half word i becomes the upper half of word i. */
#define PIMATTN_I_BF16_8(half)                                                                     \
    (pimattn_i_v8)                                                                                 \
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256((__m128i)half),                            \
                            _mm256_loadu_si256((const __m256i *)(const void *)pimattn_i_upper_8))
#define PIMATTN_I_TO_F16_8(x) (pimattn_i_h8) _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)
#define PIMATTN_I_TO_HALF_8(n, m)                                                                  \
    (pimattn_i_hh8) _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)n, (__m256i)m), 0xd8)
#define PIMATTN_I_TO_INT8_8(n, m) pimattn_i_to_int8_8((__m256i)PIMATTN_I_TO_HALF_8(n, m))

static const int8_t pimattn_i_upper_8[32] = {-1, -1, 0,  1,  -1, -1, 2,  3,  -1, -1, 4,
                                             5,  -1, -1, 6,  7,  -1, -1, 8,  9,  -1, -1,
                                             10, 11, -1, -1, 12, 13, -1, -1, 14, 15};

PIMATTN_I_VECTOR(8)

PIMATTN_I_TARGET_8 __m256 pimattn_i_pick_8(__m256 a, __m256 b, const int step, const bool second)
{
    if (step == 4) return second ? _mm256_permute2f128_ps(a, b, 0x21) : _mm256_blend_ps(a, b, 0xf0);
    if (step == 2) return second ? _mm256_shuffle_ps(a, b, 0x4e) : _mm256_blend_ps(a, b, 0xcc);
    return second ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
}
PIMATTN_I_TARGET_8 pimattn_i_bb8 pimattn_i_to_int8_8(__m256i half)
{
    return (pimattn_i_bb8)_mm_packus_epi16(_mm256_castsi256_si128(half),
                                           _mm256_extracti128_si256(half, 1));
}

PIMATTN_I_KERNEL(8, "avx2", 4)

#ifdef PIMATTN_I_AVX512

/* --- AVX-512: vectors of 16. Loops of a single query take up to a quarter longer where their code
 * does not begin at a whole line; those of AVX2 gained nothing by it. --- */

#define PIMATTN_I_FOR_16    "avx512f,avx512bw,avx512dq,avx512vl," PIMATTN_I_FOR_8
#define PIMATTN_I_PLAIN_16  static __attribute__((aligned(64), target(PIMATTN_I_FOR_16)))
#define PIMATTN_I_TARGET_16 PIMATTN_I_INLINE __attribute__((target(PIMATTN_I_FOR_16)))

#define PIMATTN_I_SUMS_16        16
#define PIMATTN_I_EACH_16        PIMATTN_I_EACH16
#define PIMATTN_I_EIGHT_16(F, T) pimattn_i_##F##_16_##T##_8
#define PIMATTN_I_MORE_16        PIMATTN_I_INSTANCES(16, 8)

#define PIMATTN_I_PAIR_16(i) pimattn_i_add_16(sums[0][i], sums[0][i + 4], 8)
#define PIMATTN_I_QUAD_16(i) pimattn_i_add_16(PIMATTN_I_PAIR_16(i), PIMATTN_I_PAIR_16(i + 8), 4)
/* With a mask of all lanes where the plain form begins with what gcc calls uninitialized. */
#define PIMATTN_I_FMA_16(a, b, c) _mm512_fmadd_ps(a, b, c)
#define PIMATTN_I_MAX_16(a, b)    _mm512_maskz_max_ps(0xffff, a, b)
#define PIMATTN_I_PEAK_16(a, b)                                                                    \
    (pimattn_i_v16) _mm512_maskz_max_epi32(0xffff, (__m512i)(a), (__m512i)(b))
#define PIMATTN_I_AT_16(x, token)                                                                  \
    _mm512_maskz_permutexvar_ps(0xffff, (__m512i)token, pimattn_i_get_16(x))
#define PIMATTN_I_INT8_16(from)                                                                    \
    _mm512_maskz_cvtepi32_ps(                                                                      \
        0xffff,                                                                                    \
        _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i *)(const void *)from)))
#define PIMATTN_I_F16_16(half) _mm512_maskz_cvtph_ps(0xffff, (__m256i)half)
/* One instruction: half word i becomes the upper half of word i. */
#define PIMATTN_I_BF16_16(half)                                                                    \
    (pimattn_i_v16)                                                                                \
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaau, _mm512_loadu_si512(pimattn_i_upper_16),        \
                                       _mm512_castsi256_si512((__m256i)half))
#define PIMATTN_I_TO_F16_16(x)                                                                     \
    (pimattn_i_h16) _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT)
#define PIMATTN_I_TO_HALF_16(n, m)                                                                 \
    (pimattn_i_hh16) _mm512_maskz_inserti64x4(                                                     \
        0xff, _mm512_castsi256_si512(_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)n)),             \
        _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)m), 1)
#define PIMATTN_I_TO_INT8_16(n, m)                                                                 \
    (pimattn_i_bb16) _mm256_inserti128_si256(                                                      \
        _mm256_castsi128_si256(_mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)n)),                    \
        _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)m), 1)
#define PIMATTN_I_PICK_16(F, FIRST, SECOND)                                                        \
    (second ? F(0xffff, a, b, SECOND) : F(0xffff, a, b, FIRST))
#define PIMATTN_I_CROSS_16(F, M) (second ? F(0xffff, a, b, 0x4e) : _mm512_mask_blend_ps(M, a, b))

static const uint16_t pimattn_i_upper_16[32] = {0, 0,  0, 1,  0, 2,  0, 3,  0, 4, 0,
                                                5, 0,  6, 0,  7, 0,  8, 0,  9, 0, 10,
                                                0, 11, 0, 12, 0, 13, 0, 14, 0, 15};

PIMATTN_I_VECTOR(16)

PIMATTN_I_TARGET_16 __m512 pimattn_i_pick_16(__m512 a, __m512 b, const int step, const bool second)
{
    if (step == 8) return PIMATTN_I_CROSS_16(_mm512_maskz_shuffle_f32x4, 0xff00);
    if (step == 4) return PIMATTN_I_PICK_16(_mm512_maskz_shuffle_f32x4, 0x88, 0xdd);
    if (step == 2) return PIMATTN_I_CROSS_16(_mm512_maskz_shuffle_ps, 0xcccc);
    return PIMATTN_I_PICK_16(_mm512_maskz_shuffle_ps, 0x88, 0xdd);
}

PIMATTN_I_KERNEL(16, "avx512", 8)

#endif /* PIMATTN_I_AVX512 */
#endif /* PIMATTN_I_X86 */

#ifdef PIMATTN_I_NEON

/* --- NEON: vectors of 4. --- */

#define PIMATTN_I_PLAIN_4       static
#define PIMATTN_I_TARGET_4      PIMATTN_I_INLINE
#define PIMATTN_I_SUMS_4        16
#define PIMATTN_I_EACH_4        PIMATTN_I_EACH16
#define PIMATTN_I_EIGHT_4(F, T) NULL
#define PIMATTN_I_MORE_4

#define PIMATTN_I_QUAD_4(i)      ((sums[0][i] + sums[2][i]) + (sums[1][i] + sums[3][i]))
#define PIMATTN_I_FMA_4(a, b, c) vfmaq_f32(c, a, b)
#define PIMATTN_I_MAX_4(a, b)    vmaxq_f32(a, b)
#define PIMATTN_I_F16_4(half)    vcvt_f32_f16((float16x4_t)half)
#define PIMATTN_I_BF16_4(half)   (pimattn_i_v4) vshll_n_u16((uint16x4_t)half, 16)
#define PIMATTN_I_INT8_4(from)   pimattn_i_int8_4(from)
#define PIMATTN_I_PEAK_4(a, b)   (pimattn_i_v4) vmaxq_s32((int32x4_t)(a), (int32x4_t)(b))
#define PIMATTN_I_AT_4(x, token) pimattn_i_at_4(x, token)
#define PIMATTN_I_TO_F16_4(x)    (pimattn_i_h4) vcvt_f16_f32(x)
#define PIMATTN_I_TO_HALF_4(n, m)                                                                  \
    (pimattn_i_hh4) vcombine_u16(vmovn_u32((uint32x4_t)n), vmovn_u32((uint32x4_t)m))
#define PIMATTN_I_TO_INT8_4(n, m) (pimattn_i_bb4) vmovn_u16((uint16x8_t)PIMATTN_I_TO_HALF_4(n, m))

PIMATTN_I_VECTOR(4)

PIMATTN_I_TARGET_4 float32x4_t pimattn_i_pick_4(float32x4_t a, float32x4_t b, const int step,
                                                const bool second)
{
    if (step == 1) return second ? vuzp2q_f32(a, b) : vuzp1q_f32(a, b);
    return second ? vcombine_f32(vget_high_f32(a), vget_high_f32(b))
                  : vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}
PIMATTN_I_TARGET_4 float32x4_t pimattn_i_at_4(const float *x, pimattn_i_i4 token)
{
    const float32x4_t each = {x[token[0]], x[token[1]], x[token[2]], x[token[3]]};
    return each;
}
PIMATTN_I_TARGET_4 float32x4_t pimattn_i_int8_4(const unsigned char *from)
{
    int8x8_t bytes = vdup_n_s8(0);
    memcpy(&bytes, from, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

PIMATTN_I_KERNEL(4, "neon", 4)

#endif /* PIMATTN_I_NEON */

/* The most of pimattn_simd that this build and CPU, and its system, have. */
static uint32_t pimattn_i_simd_most(void)
{
#ifdef PIMATTN_I_X86
    uint32_t a, b, c, d, low, high, more;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return PIMATTN_SIMD_NONE;
    if ((c & 0x38001000u) != 0x38001000u) return PIMATTN_SIMD_NONE; /* FMA, XGETBV, AVX, F16C */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &more, &c, &d)) return PIMATTN_SIMD_NONE;
    if (!(more & 0x20u)) return PIMATTN_SIMD_NONE;        /* AVX2 */
    bool wide = PIMATTN_SIMD > 1 && (low & 0xe6) == 0xe6; /* the system keeps 512 bits .. */
    return wide && (more & 0xc0030000u) == 0xc0030000u    /* .. of F, DQ, BW and VL */
               ? PIMATTN_SIMD_512
               : PIMATTN_SIMD_256;
#elif defined(PIMATTN_I_NEON)
    return PIMATTN_SIMD_256;
#else
    return PIMATTN_SIMD_NONE;
#endif
}

/* How the CPU likes to be fetched for: AMD near, but Zen 4 (AVX-512 before family 26) deep; Intel
 * led, but Ice Lake, Sapphire and Emerald Rapids both. */
static pimattn_i_ahead pimattn_i_cpu_ahead(void)
{
#ifdef PIMATTN_I_X86
    uint32_t a, b, c, d, maker, cpu;
    if (!__get_cpuid(0, &a, &maker, &c, &d) || !__get_cpuid(1, &cpu, &b, &c, &d))
        return PIMATTN_I_BOTH;
    uint32_t model = (cpu >> 12 & 240) | (cpu >> 4 & 15); /* as Intel counts */
    if (maker != 0x68747541u)                             /* "Auth.." */
        return model == 106 || model == 143 || model == 207 ? PIMATTN_I_BOTH : PIMATTN_I_LED;
    if ((cpu >> 8 & 15) + (cpu >> 20 & 255) < 26 && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
        (b & 0x10000u))
        return PIMATTN_I_DEEP;
#endif
    return PIMATTN_I_NEAR;
}

/* The kernel for at most this pimattn_simd; asks the CPU. */
static const pimattn_i_kernel *pimattn_i_kernel_take(uint32_t simd)
{
    uint32_t most = pimattn_i_simd_most();
    if (simd != PIMATTN_SIMD_MOST && simd < most) most = simd;
#ifdef PIMATTN_I_AVX512
    if (most == PIMATTN_SIMD_512) return &pimattn_i_kernel_16;
#endif
#ifdef PIMATTN_I_X86
    if (most == PIMATTN_SIMD_256) return &pimattn_i_kernel_8;
#elif defined(PIMATTN_I_NEON)
    if (most == PIMATTN_SIMD_256) return &pimattn_i_kernel_4;
#endif
    return &pimattn_i_kernel_scalar;
}

/* A kernel at work: [WORK] floats of its own, and the floats from one q or o to the next. */
typedef struct pimattn_i_folder {
    const pimattn_i_kernel *kernel;
    float *work;
    size_t q_floats, o_floats;
    pimattn_i_adjust adjust;
} pimattn_i_folder;

/* Scores of a tile for 1 << index queries, as pimattn_i_dot adds up pieces. */
static void pimattn_i_dots(const pimattn_i_folder *f, const pimattn_i_tile *tile, const float *q,
                           uint32_t index, float *s)
{
    const bool pair = tile->dim_k > PIMATTN_I_PIECE && tile->ahead >= PIMATTN_I_DEEP_ROWS;
    const size_t row = (size_t)PIMATTN_I_PIECE * pimattn_i_type_bytes(tile->k_type);
    const uint32_t n = ((tile->n_tokens << index) + 15) / 16 * 16;
    float more[PIMATTN_I_WORK_W], lost[PIMATTN_I_WORK_W];
    if (tile->dim_k <= PIMATTN_I_PIECE) {
        f->kernel->dots[tile->k_type][index](tile, q, f->q_floats, s);
        return;
    }
    pimattn_i_tile piece = *tile;
    memset(lost, 0, n * sizeof lost[0]);
    if (pair) { /* both pieces at once */
        f->kernel->dots[tile->k_type][index](tile, q, f->q_floats, s);
        f->kernel->add(s, lost, s + n, n);
    }
    for (uint32_t at = 0; at < tile->dim_k && !pair; at += PIMATTN_I_PIECE) {
        piece.dim_k = (uint32_t)pimattn_i_min(PIMATTN_I_PIECE, tile->dim_k - at);
        f->kernel->dots[tile->k_type][index](&piece, q + at, f->q_floats, at ? more : s);
        if (at > 0) f->kernel->add(s, lost, more, n);
        piece.k += row;
        piece.k_done += PIMATTN_I_TILE * row;
    }
    f->kernel->blend(s, 1.0f, lost, 1.0f, n);
}

/* Folds a tile, some of which is visible, into the partials of queries first .. first + n - 1. */
static void pimattn_i_fold(const pimattn_i_folder *f, const pimattn_i_tile *tile, const float *q,
                           uint32_t first, uint32_t n, float *block)
{
    float *s = f->work, *weights = f->work + PIMATTN_I_WORK_W;
    const bool some = f->adjust.soft_cap > 0 || f->adjust.alibi;
    const bool apart = (tile->visible & (tile->visible + 1)) != 0;
    const pimattn_i_tile *scored = tile;
    pimattn_i_tile adjusted;
    if (some) {
        adjusted = *tile;
        adjusted.k_scale = NULL;
        adjusted.scale = 1.0f;
        scored = &adjusted;
    }
    while (n > 0) {
        uint32_t index = 3;
        while (1u << index > n || 1u << index > f->kernel->most_queries)
            index--;
        const size_t size = sizeof *s << index;
        const float *of = q + first * f->q_floats;
        float *m = block + first, *o = block + PIMATTN_I_O + first * f->o_floats;
        if (f->kernel->soft) {
            pimattn_i_dots(f, tile, of, index, s);
            for (uint32_t i = tile->n_tokens; apart && i-- > 0;) /* to the places of their tokens */
                memmove(s + (tile->place[i] << index), s + (i << index), size);
            if (some) f->kernel->adjust(&f->adjust, tile, first, 1u << index, s);
            f->kernel->soft(scored, 1u << index, s, weights, m);
            for (uint32_t i = 0; apart && i < tile->n_tokens; i++) /* and back to their rows */
                memmove(weights + (i << index), weights + (tile->place[i] << index), size);
            f->kernel->mix[tile->v_type][index](tile, weights, o, f->o_floats);
        } else {
            pimattn_i_tile_scalar(tile, &f->adjust, first, of, m, m + PIMATTN_I_L, o);
        }
        first += 1u << index;
        n -= 1u << index;
    }
}

PIMATTN_API void pimattn_kernel_select(uint32_t simd, pimattn_kernel_info *kernel)
{
    uint32_t most = pimattn_i_simd_most();
    if (!kernel) return;
    kernel->simd = simd == PIMATTN_SIMD_MOST || simd > most ? most : simd;
    kernel->name = pimattn_i_kernel_take(kernel->simd)->name;
}

/* ==========================================================================
 * [A13] PARTIALS: fold, merge, exits.
 *       Knows (m, l, o); nothing of where it came from.
 * ========================================================================== */

PIMATTN_API void pimattn_partial_clear(pimattn_partial *partial)
{
    partial->m = -HUGE_VALF;
    partial->l = 0.0f;
    if (partial->o) memset(partial->o, 0, (size_t)partial->dim * sizeof(float));
}

static void pimattn_i_merge(const pimattn_i_kernel *kernel, pimattn_partial *dst,
                            const pimattn_partial *src)
{
    if (pimattn_i_is_nan(dst->m) || src->m == -HUGE_VALF) return;
    if (pimattn_i_is_nan(src->m)) {
        dst->m = dst->l = pimattn_i_nan();
        return;
    }
    if (dst->m == -HUGE_VALF) {
        dst->m = src->m;
        dst->l = src->l;
        memcpy(dst->o, src->o, (size_t)dst->dim * sizeof(float));
        return;
    }
    float m = dst->m > src->m ? dst->m : src->m;
    float a = pimattn_i_exp(dst->m - m);
    float b = pimattn_i_exp(src->m - m);
    dst->m = m;
    dst->l = dst->l * a + src->l * b;
    kernel->blend(dst->o, a, src->o, b, dst->dim);
}

PIMATTN_API pimattn_status pimattn_partial_merge(pimattn_partial *dst, const pimattn_partial *src)
{
    if (!dst || !src || dst->dim != src->dim || !dst->o || !src->o) return PIMATTN_ERR_ARGUMENT;
    pimattn_i_merge(&pimattn_i_kernel_scalar, dst, src);
    return PIMATTN_OK;
}

static void pimattn_i_output(const pimattn_i_kernel *kernel, const pimattn_partial *partial,
                             unsigned char *out)
{
    const float l = pimattn_i_is_nan(partial->m) ? partial->m : partial->l;
    if (partial->m == -HUGE_VALF)
        memset(out, 0, (size_t)partial->dim * sizeof(float));
    else
        kernel->divide(out, partial->o, l, partial->dim);
}

PIMATTN_API void pimattn_partial_output(const pimattn_partial *partial, float *out)
{
    pimattn_i_output(&pimattn_i_kernel_scalar, partial, (unsigned char *)out);
}

PIMATTN_API float pimattn_partial_lse(const pimattn_partial *partial)
{
    if (pimattn_i_is_nan(partial->m)) return pimattn_i_nan();
    if (partial->m == -HUGE_VALF) return partial->m;
    return (float)((double)partial->m + log((double)partial->l));
}

/* A view of query i of a block of partials. */
static pimattn_partial pimattn_i_view(float *b, uint32_t i, size_t o_floats, uint32_t dim)
{
    pimattn_partial view = {b[i], b[PIMATTN_I_L + i], b + PIMATTN_I_O + i * o_floats, dim};
    return view;
}

static void pimattn_i_clear(float *block, size_t block_floats)
{
    for (uint32_t i = 0; i < PIMATTN_I_L; i++)
        block[i] = -HUGE_VALF;
    memset(block + PIMATTN_I_L, 0, (block_floats - PIMATTN_I_L) * sizeof(float));
}

/* Blocks of partials that merge as a binary counter over all leaves; missing ones are empty. */
typedef struct pimattn_i_stack {
    const pimattn_i_kernel *kernel;
    float *base;
    size_t o_floats, block_floats;
    uint32_t n_queries, dim, levels;
    uint64_t leaf[64]; /* first that came into the block of a level */
} pimattn_i_stack;

static void pimattn_i_stack_fold(pimattn_i_stack *s)
{
    float *src = s->base + (s->levels - 1) * s->block_floats, *dst = src - s->block_floats;
    for (uint32_t i = 0; i < s->n_queries; i++) {
        pimattn_partial to = pimattn_i_view(dst, i, s->o_floats, s->dim);
        pimattn_partial from = pimattn_i_view(src, i, s->o_floats, s->dim);
        pimattn_i_merge(s->kernel, &to, &from);
        dst[i] = to.m;
        dst[PIMATTN_I_L + i] = to.l;
    }
    s->levels--;
}

/* Where a later leaf, or aligned block of leaves, goes. Two blocks are one first if the smallest
 * aligned block that holds both ends before it: their highest bit that differs is the lower one. */
static float *pimattn_i_stack_push(pimattn_i_stack *s, uint64_t leaf)
{
    while (s->levels > 1) {
        uint64_t a = s->leaf[s->levels - 2], b = s->leaf[s->levels - 1];
        if ((a ^ b) >= (a ^ leaf) || (a ^ b) >= (b ^ leaf)) break;
        pimattn_i_stack_fold(s);
    }
    s->leaf[s->levels] = leaf;
    return s->base + s->levels++ * s->block_floats;
}

/* What is left folds from the right; the result is at level 0, empty if nothing came. */
static void pimattn_i_stack_finish(pimattn_i_stack *s)
{
    if (s->levels == 0) pimattn_i_clear(s->base, s->block_floats);
    while (s->levels > 1)
        pimattn_i_stack_fold(s);
}

/* ==========================================================================
 * [A14] PAGES: pool, block tables, sequences.
 *       Knows bytes and tokens; never what they mean.
 * ========================================================================== */

enum { PIMATTN_I_SLAB = 2 << 20 };

#define PIMATTN_I_NO_PAGE UINT32_MAX /* in a table: windows hide it */

static uint64_t pimattn_i_window_of(const pimattn_shape *s, uint32_t layer)
{
    return s->windows ? s->windows[layer] : s->window;
}

/* First token in the window of the query whose own token is `own`. */
static uint64_t pimattn_i_window_begin(uint64_t window, uint64_t own)
{
    return window && own >= window ? own - window + 1 : 0;
}

/* At the first page of a set, what refers to it: sequences, and the store if it is known. */
typedef struct pimattn_i_ref {
    uint32_t count;  /* of the other pages 1; 0: the page is free */
    uint32_t entry;  /* of the store; 0: none. Of a free page the next free one, plus 1 .. */
    uint32_t before; /* .. and the one before */
} pimattn_i_ref;

/* A set that is known by its tokens. Behind it in its record: the tokens, then the pages. */
typedef struct pimattn_i_entry {
    uint64_t hash; /* of the set before, or the salt, and of the tokens */
    uint64_t salt;
    uint64_t serial;       /* never given out again; 0: a vacant record */
    uint64_t parent;       /* serial of the set before; 0: it is the first */
    uint32_t next;         /* of its bucket, or the next vacant one */
    uint32_t older, newer; /* while no sequence holds it; of entry 0 the newest and the oldest */
    uint32_t page_tokens;
} pimattn_i_entry;

/* Known sets. Entries by number, from 1 on; 0: none, at both ends of the row of idle ones. */
typedef struct pimattn_i_store {
    unsigned char *records;                   /* [n_most + 1][record_bytes], then the buckets */
    uint32_t *buckets;                        /* [n_most], a power of two */
    uint64_t record_bytes, n_most, n, n_idle; /* idle: no sequence holds it */
    uint64_t serial;
    uint32_t vacant;
} pimattn_i_store;

/* How rows lie in a page: runs of K rows, their scales if int8, V rows and theirs. A row takes
 * whole vectors, as kernels read it: what it has no number for are zeros at all times. */
typedef struct pimattn_i_layout {
    uint32_t page_tokens, run_tokens, n_layers, n_kv_heads;
    uint32_t dim[4], each[4];   /* K, V, their scales: numbers of a token, bytes of one .. */
    uint64_t row[4], offset[4]; /* .. bytes from a token to the next, where they begin in a run */
    uint64_t token_bytes, run_bytes; /* a token's without such zeros */
    uint64_t page_bytes, sink_tokens, sink_pages;
    bool padded; /* rows have such zeros */
    const pimattn_shape *shape;
} pimattn_i_layout;

/* Pages by number. The pages of all layers and KV heads for the same tokens are a set: they are
 * taken, shared and let go together, but for those that windows hide. */
typedef struct pimattn_i_pool {
    pimhw_allocator allocator;
    const pimattn_i_layout *layout;
    unsigned char **slabs; /* [n_slabs_most] */
    uint64_t page_bytes;
    uint32_t slab_pages; /* of every slab but the last possible one; 32 bits divide quicker */
    uint64_t set_pages, n_pages_most, n_slabs_most, n_slabs;
    uint64_t n_fresh; /* pages of slabs never taken yet begin here */
    uint64_t n_used;
    uint32_t free_head;  /* of returned pages, plus 1; 0: none */
    pimattn_i_ref *refs; /* [n_refs], at least for the pages of the slabs */
    uint64_t n_refs;
    pimattn_i_store store;
    unsigned char **bounds; /* [n_slabs_most], or NULL; of a slab: [slab_pages][bound_bytes] */
    uint64_t bound_bytes;
    pimattn_page_fn on_page;
    void *page_user;
    const char *within; /* what of the caller is running: on_page, a stream; or NULL */
} pimattn_i_pool;

static uint64_t pimattn_i_slab_bytes(const pimattn_i_pool *pool, uint64_t slab)
{
    uint64_t pages = pimattn_i_min(pool->slab_pages, pool->n_pages_most - slab * pool->slab_pages);
    uint64_t bytes = pages * pool->page_bytes;
    uint64_t whole = pimattn_i_ceil_div(bytes, PIMATTN_I_SLAB) * PIMATTN_I_SLAB;
    return whole - bytes <= bytes / 8 ? whole : bytes; /* only whole ones become huge pages */
}

static unsigned char *pimattn_i_page(const pimattn_i_pool *pool, uint32_t page)
{
    return pool->slabs[page / pool->slab_pages] + page % pool->slab_pages * pool->page_bytes;
}

/* How many tokens of a page its bounds are of, and behind that they; NULL: nobody has asked. */
static uint32_t *pimattn_i_page_bounds(const pimattn_i_pool *pool, uint32_t page)
{
    unsigned char *of_slab = pool->bounds ? pool->bounds[page / pool->slab_pages] : NULL;
    if (!of_slab) return NULL;
    return (uint32_t *)(void *)(of_slab + page % pool->slab_pages * pool->bound_bytes);
}

/* Rows of a page change from one on. */
static void pimattn_i_page_change(const pimattn_i_pool *pool, uint32_t page, uint64_t at)
{
    uint32_t *n_bound = pimattn_i_page_bounds(pool, page);
    if (n_bound && *n_bound > at) *n_bound = 0;
}

/* At a multiple of 2 MiB; rows in huge pages cost no page walk each. */
static unsigned char *pimattn_i_alloc_huge(const pimhw_allocator *a, uint64_t bytes)
{
    unsigned char *at = (unsigned char *)pimattn_i_alloc(a, bytes, PIMATTN_I_SLAB);
#ifdef PIMATTN_I_HUGE
    if (at && (uintptr_t)at % PIMATTN_I_SLAB == 0 && bytes >= PIMATTN_I_SLAB)
        (void)madvise(at, (size_t)(bytes / PIMATTN_I_SLAB * PIMATTN_I_SLAB), PIMATTN_I_HUGE);
#endif
    return at;
}

static bool pimattn_i_slab_add(pimattn_i_pool *pool)
{
    const pimhw_allocator *a = &pool->allocator;
    uint64_t pages = (pool->n_slabs + 1) * pool->slab_pages, n = pool->n_refs;
    if (pool->n_slabs == pool->n_slabs_most) return false;
    if (pages > n) {
        uint64_t most = pimattn_i_max(pages, 2 * n), size = sizeof *pool->refs;
        pimattn_i_ref *refs = (pimattn_i_ref *)pimattn_i_alloc(a, most * size, sizeof refs->count);
        if (!refs) return false;
        if (n) memcpy(refs, pool->refs, (size_t)(n * size));
        pimattn_i_release(a, pool->refs, n * size);
        pool->refs = refs;
        pool->n_refs = most;
    }
    uint64_t bytes = pimattn_i_slab_bytes(pool, pool->n_slabs);
    unsigned char *slab = pimattn_i_alloc_huge(a, bytes);
    if (!slab) return false;
    if (pool->layout->padded) memset(slab, 0, (size_t)bytes);
    pool->slabs[pool->n_slabs++] = slab;
    return true;
}

/* A free page, which is none then: the one wanted, if it is free. */
static uint32_t pimattn_i_page_pick(pimattn_i_pool *pool, uint64_t wanted)
{
    const bool has = wanted < pool->n_fresh && pool->refs[wanted].count == 0;
    if (!has && pool->free_head == 0) return (uint32_t)pool->n_fresh++;
    const uint32_t page = has ? (uint32_t)wanted : pool->free_head - 1;
    const pimattn_i_ref *ref = &pool->refs[page];
    if (ref->entry) pool->refs[ref->entry - 1].before = ref->before;
    *(ref->before ? &pool->refs[ref->before - 1].entry : &pool->free_head) = ref->entry;
    return page;
}

static void pimattn_i_page_free(pimattn_i_pool *pool, uint32_t page)
{
    const pimattn_i_ref ref = {0, pool->free_head, 0};
    if (ref.entry) pool->refs[ref.entry - 1].before = page + 1;
    pool->refs[page] = ref;
    pool->free_head = page + 1;
}

static void pimattn_i_page_tell(pimattn_i_pool *pool, pimattn_page_event event, uint32_t page,
                                uint32_t to)
{
    pool->within = "on_page";
    if (pool->on_page) pool->on_page(pool->page_user, event, page, to);
    pool->within = NULL;
}

static uint32_t pimattn_i_pool_take(pimattn_i_pool *pool, uint64_t wanted)
{
    uint32_t page = pimattn_i_page_pick(pool, wanted);
    pool->n_used++;
    pool->refs[page].count = 1;
    pool->refs[page].entry = 0;
    pimattn_i_page_change(pool, page, 0);
    pimattn_i_page_tell(pool, PIMATTN_PAGE_TAKEN, page, page);
    return page;
}

static pimattn_i_entry *pimattn_i_entry_at(const pimattn_i_store *st, uint32_t entry)
{
    return (pimattn_i_entry *)(void *)(st->records + entry * st->record_bytes);
}

static uint32_t *pimattn_i_entry_pages(pimattn_i_entry *e)
{
    return (uint32_t *)(void *)(e + 1) + e->page_tokens;
}

static void pimattn_i_entry_link(pimattn_i_store *st, uint32_t entry)
{
    pimattn_i_entry *e = pimattn_i_entry_at(st, entry);
    uint32_t *bucket = &st->buckets[e->hash & (st->n_most - 1)];
    e->next = *bucket;
    *bucket = entry;
}

/* Into the row of those that may be given up, as the newest; or out of it. */
static void pimattn_i_entry_idle(pimattn_i_store *st, uint32_t entry, bool idle)
{
    pimattn_i_entry *e = pimattn_i_entry_at(st, entry);
    if (idle) e->older = pimattn_i_entry_at(st, 0)->older, e->newer = 0;
    pimattn_i_entry_at(st, e->older)->newer = idle ? entry : e->newer;
    pimattn_i_entry_at(st, e->newer)->older = idle ? entry : e->older;
    st->n_idle = idle ? st->n_idle + 1 : st->n_idle - 1;
}

static pimattn_status pimattn_i_store_grow(pimattn_i_pool *pool, uint64_t n)
{
    pimattn_i_store *st = &pool->store;
    const pimattn_i_store old = *st;
    uint64_t most = 16, size = st->record_bytes + sizeof(uint32_t);
    while (most < n)
        most *= 2;
    if (n <= st->n_most) return PIMATTN_OK;
    unsigned char *records = (unsigned char *)pimattn_i_zeroed(&pool->allocator, most + 1, size);
    if (!records) return PIMATTN_ERR_MEMORY;
    st->records = records;
    st->buckets = (uint32_t *)(void *)(records + (most + 1) * st->record_bytes);
    st->n_most = most;
    if (old.records) memcpy(records, old.records, (size_t)((old.n_most + 1) * old.record_bytes));
    pimattn_i_release(&pool->allocator, old.records, (old.n_most + 1) * size);
    for (uint32_t i = 1; i <= old.n_most; i++)
        if (pimattn_i_entry_at(st, i)->serial) pimattn_i_entry_link(st, i);
    for (uint64_t i = most; i > old.n_most; i--) {
        pimattn_i_entry_at(st, (uint32_t)i)->next = st->vacant;
        st->vacant = (uint32_t)i;
    }
    return PIMATTN_OK;
}

/* Whether an entry is of these tokens, behind whatever entry. */
static bool pimattn_i_entry_says(const pimattn_i_entry *e, const pimattn_i_entry *like,
                                 const uint32_t *tokens)
{
    return e->hash == like->hash && e->salt == like->salt &&
           memcmp(e + 1, tokens, e->page_tokens * sizeof *tokens) == 0;
}

/* The entry of the next tokens of a chain, whose hash goes on with them; like: what it must be. */
static uint32_t pimattn_i_store_find(const pimattn_i_store *st, pimattn_i_entry *like,
                                     const uint32_t *tokens)
{
    for (uint32_t i = 0; i < like->page_tokens; i++)
        like->hash = pimattn_i_mix(like->hash, tokens[i]);
    uint32_t at = st->buckets[like->hash & (st->n_most - 1)];
    for (; at; at = pimattn_i_entry_at(st, at)->next) {
        pimattn_i_entry *e = pimattn_i_entry_at(st, at);
        if (e->parent == like->parent && pimattn_i_entry_says(e, like, tokens)) break;
    }
    return at;
}

/* One more holds a set. */
static void pimattn_i_set_share(pimattn_i_pool *pool, const uint32_t *pages)
{
    pimattn_i_ref *set = &pool->refs[pages[0]];
    if (set->entry && set->count == 1) pimattn_i_entry_idle(&pool->store, set->entry, false);
    set->count++;
}

static void pimattn_i_page_drop(pimattn_i_pool *pool, uint32_t page, pimattn_page_event event)
{
    if (page == PIMATTN_I_NO_PAGE) return;
    pool->n_used--;
    pimattn_i_page_free(pool, page);
    pimattn_i_page_tell(pool, event, page, page);
}

/* One less holds it; what nobody holds is free. */
static void pimattn_i_set_drop(pimattn_i_pool *pool, const uint32_t *set, pimattn_page_event event)
{
    pimattn_i_ref *ref = &pool->refs[set[0]];
    ref->count--;
    if (ref->entry && ref->count == 1) pimattn_i_entry_idle(&pool->store, ref->entry, true);
    for (uint64_t i = pool->set_pages; i > 0 && ref->count == 0; i--)
        pimattn_i_page_drop(pool, set[i - 1], event);
}

/* The set becomes known; there is room. What follows an entry that is gone is not found. */
static uint32_t pimattn_i_store_add(pimattn_i_pool *pool, const pimattn_i_entry *like,
                                    const uint32_t *tokens, const uint32_t *pages)
{
    pimattn_i_store *st = &pool->store;
    uint32_t at = st->vacant;
    pimattn_i_entry *e = pimattn_i_entry_at(st, at);
    st->vacant = e->next;
    *e = *like;
    e->serial = ++st->serial;
    memcpy(e + 1, tokens, e->page_tokens * sizeof *tokens);
    memcpy(pimattn_i_entry_pages(e), pages, (size_t)pool->set_pages * sizeof *pages);
    pimattn_i_entry_link(st, at);
    pimattn_i_set_share(pool, pages);
    pool->refs[pages[0]].entry = at;
    st->n++;
    return at;
}

/* Gives up a set; what a sequence has of it stays the sequence's. */
static void pimattn_i_store_evict(pimattn_i_pool *pool, uint32_t at)
{
    pimattn_i_store *st = &pool->store;
    pimattn_i_entry *e = pimattn_i_entry_at(st, at);
    pimattn_i_ref *first = &pool->refs[pimattn_i_entry_pages(e)[0]];
    uint32_t *link = &st->buckets[e->hash & (st->n_most - 1)];
    while (*link != at)
        link = &pimattn_i_entry_at(st, *link)->next;
    *link = e->next;
    if (first->count == 1) pimattn_i_entry_idle(st, at, false);
    first->entry = 0;
    pimattn_i_set_drop(pool, pimattn_i_entry_pages(e), PIMATTN_PAGE_EVICTED);
    e->serial = 0;
    e->next = st->vacant;
    st->vacant = at;
    st->n--;
}

/* Makes n pages available without taking them. What nobody holds is given up last. */
static pimattn_status pimattn_i_pool_prepare(pimattn_i_pool *pool, uint64_t n)
{
    for (;;) {
        uint64_t there = pimattn_i_min(pool->n_slabs * pool->slab_pages, pool->n_pages_most);
        uint64_t ready = there - pool->n_used;
        if (ready >= n) return PIMATTN_OK;
        if (pimattn_i_slab_add(pool)) continue;
        if (ready + pool->store.n_idle * pool->set_pages < n) return PIMATTN_ERR_MEMORY;
        pimattn_i_store_evict(pool, pimattn_i_entry_at(&pool->store, 0)->newer); /* the oldest */
    }
}

static uint64_t pimattn_i_pool_held(const pimattn_i_pool *pool)
{
    return pool->n_used - pool->store.n_idle * pool->set_pages;
}

/* Pages of a set from `end` on move to free ones; those that moved leave their numbers behind. */
static uint64_t pimattn_i_compact_move(pimattn_i_pool *pool, uint32_t *pages, uint64_t end)
{
    uint64_t n_moved = 0;
    for (uint64_t i = 0; i < pool->set_pages; i++) {
        if (pages[i] < end || pages[i] == PIMATTN_I_NO_PAGE) continue;
        unsigned char *old = pimattn_i_page(pool, pages[i]);
        pimattn_i_ref *ref = &pool->refs[pages[i]];
        if (ref->count) {
            uint32_t to = pimattn_i_page_pick(pool, UINT64_MAX);
            memcpy(pimattn_i_page(pool, to), old, (size_t)pool->page_bytes);
            memcpy(old, &to, sizeof to);
            pimattn_i_page_change(pool, to, 0);
            pool->refs[to] = *ref;
            ref->count = 0;
            pimattn_i_page_tell(pool, PIMATTN_PAGE_MOVED, pages[i], to);
            n_moved++;
        }
        memcpy(&pages[i], old, sizeof pages[i]);
    }
    return n_moved;
}

/* Slabs from page `end` on go to the allocator. */
static void pimattn_i_compact_end(pimattn_i_pool *pool, uint64_t end)
{
    for (; pool->n_slabs * pool->slab_pages > end; pool->n_slabs--) {
        const uint64_t last = pool->n_slabs - 1, bytes = pimattn_i_slab_bytes(pool, last);
        pimattn_i_release(&pool->allocator, pool->slabs[last], bytes);
        if (!pool->bounds) continue;
        pimattn_i_release(&pool->allocator, pool->bounds[last],
                          pool->slab_pages * pool->bound_bytes);
        pool->bounds[last] = NULL;
    }
}

/* One sequence: pages [page][layer][kv head], as many in every layer; tokens of each layer. */
typedef struct pimattn_i_seq {
    pimattn_seq id; /* 0: free */
    uint64_t generation;
    uint64_t begin; /* tokens before are gone but for sink_tokens, and so are pages of them alone */
    uint64_t hidden;  /* no query before is asked any more: what windows hide may be gone */
    uint64_t n_pages; /* per layer and KV head */
    uint64_t n_pages_most;
    uint32_t *table;
    uint64_t *tokens; /* [n_layers] */
    uint64_t swapped; /* hash of the state its tokens are in; 0: they are here */
    uint64_t arrival; /* while states are saved or restored: its number among them, from 1 */
} pimattn_i_seq;

/* K, its scales, V and its, as they lie and as states have them. */
static const int pimattn_i_parts[4] = {0, 2, 1, 3};

static void pimattn_i_lay_out(pimattn_i_layout *to, const pimattn_shape *s, uint32_t page_tokens)
{
    to->page_tokens = page_tokens;
    to->run_tokens = page_tokens % PIMATTN_I_TILE == 0 ? (uint32_t)PIMATTN_I_TILE : page_tokens;
    to->n_layers = s->n_layers;
    to->n_kv_heads = s->n_kv_heads;
    to->token_bytes = to->run_bytes = 0;
    const uint32_t type[4] = {s->k_type, s->v_type, PIMATTN_F32, PIMATTN_F32};
    const uint32_t dim[4] = {s->head_dim, s->v_in_k ? 0 : s->head_dim_v, s->k_type == PIMATTN_INT8,
                             s->v_type == PIMATTN_INT8 && !s->v_in_k};
    for (int part = 0; part < 4; part++) {
        const int i = pimattn_i_parts[part];
        to->dim[i] = dim[i];
        to->each[i] = pimattn_i_type_bytes(type[i]);
        to->row[i] = (i < 2 ? pimattn_i_ceil_div(dim[i], 16) * 16 : dim[i]) * to->each[i];
        to->offset[i] = to->run_bytes;
        to->token_bytes += dim[i] * to->each[i];
        to->run_bytes += pimattn_i_up64(to->run_tokens * to->row[i]);
    }
    for (int i = 1; i < 4 && s->v_in_k; i += 2) /* V are the rows of K, of its type */
        to->row[i] = to->row[i - 1], to->offset[i] = to->offset[i - 1];
    to->page_bytes = page_tokens / to->run_tokens * to->run_bytes;
    to->padded = (s->head_dim | s->head_dim_v) % 16 != 0;
    to->shape = s;
    to->sink_tokens = s->sink_tokens;
    to->sink_pages = pimattn_i_ceil_div(s->sink_tokens, page_tokens);
}

static uint32_t *pimattn_i_table_at(const pimattn_i_layout *lay, const pimattn_i_seq *seq,
                                    uint64_t page, uint32_t layer)
{
    return seq->table + (page * lay->n_layers + layer) * lay->n_kv_heads;
}

/* Where in its page the run of a token begins, and which of the run's tokens it is. */
static uint64_t pimattn_i_run_from(const pimattn_i_layout *lay, uint64_t token, uint64_t *at)
{
    uint32_t in_page = (uint32_t)(token % lay->page_tokens);
    *at = in_page % lay->run_tokens;
    return in_page / lay->run_tokens * lay->run_bytes;
}

/* The run that holds a token, and which of its tokens that is. */
PIMATTN_I_INLINE unsigned char *pimattn_i_run(const pimattn_i_pool *pool, const pimattn_i_seq *seq,
                                              uint32_t layer, uint32_t kv_head, uint64_t token,
                                              uint64_t *at)
{
    const pimattn_i_layout *lay = pool->layout;
    uint32_t page = pimattn_i_table_at(lay, seq, token / lay->page_tokens, layer)[kv_head];
    return pimattn_i_page(pool, page) + pimattn_i_run_from(lay, token, at);
}

static pimattn_status pimattn_i_table_grow(const pimattn_i_pool *pool, pimattn_i_seq *s, uint64_t n)
{
    const uint64_t set_bytes = pool->set_pages * sizeof(uint32_t);
    if (n <= s->n_pages_most) return PIMATTN_OK;
    uint64_t most = pimattn_i_max(n, 2 * s->n_pages_most), bytes = pimattn_i_mul(most, set_bytes);
    uint32_t *table = (uint32_t *)pimattn_i_alloc(&pool->allocator, bytes, 64);
    if (!table) return PIMATTN_ERR_MEMORY;
    if (s->table) memcpy(table, s->table, (size_t)(s->n_pages_most * set_bytes));
    pimattn_i_release(&pool->allocator, s->table, s->n_pages_most * set_bytes);
    s->table = table;
    s->n_pages_most = most;
    return PIMATTN_OK;
}

/* The page, or the next one that is there: between the first tokens and `begin` there are none. */
static uint64_t pimattn_i_seq_next(const pimattn_i_layout *lay, const pimattn_i_seq *seq,
                                   uint64_t page)
{
    return page < lay->sink_pages ? page : pimattn_i_max(page, seq->begin / lay->page_tokens);
}

/* Tokens of a sequence that are gone between its first ones and `begin`. */
static uint64_t pimattn_i_seq_gone(const pimattn_i_layout *lay, const pimattn_i_seq *seq)
{
    return seq->begin - pimattn_i_min(seq->begin, lay->sink_tokens);
}

/* From where on, behind the first tokens, a layer's are seen by what is asked still. */
static uint64_t pimattn_i_seq_sees(const pimattn_i_layout *lay, const pimattn_i_seq *seq,
                                   uint32_t layer)
{
    return pimattn_i_window_begin(pimattn_i_window_of(lay->shape, layer), seq->hidden);
}

/* Whether nothing sees page i of a set. Not the first, which says who holds the set. */
static bool pimattn_i_seq_hides(const pimattn_i_layout *lay, const pimattn_i_seq *seq, uint64_t set,
                                uint64_t i)
{
    const uint64_t sees = pimattn_i_seq_sees(lay, seq, (uint32_t)(i / lay->n_kv_heads));
    return i > 0 && set >= lay->sink_pages && (set + 1) * lay->page_tokens <= sees;
}

/* Pages to take before tokens from .. to - 1 are written: new ones, and for shared ones; *known of
 * them need not be taken if the store lets go of what the sequence shares with it alone. */
static uint64_t pimattn_i_seq_fresh(const pimattn_i_pool *pool, const pimattn_i_seq *seq,
                                    uint64_t from, uint64_t to, uint64_t *known)
{
    const pimattn_i_layout *lay = pool->layout;
    uint64_t need = pimattn_i_ceil_div(to, lay->page_tokens);
    uint64_t sets = need > seq->n_pages ? need - seq->n_pages : 0;
    *known = 0;
    for (uint64_t i = from / lay->page_tokens; from < to && i < need && i < seq->n_pages; i++) {
        const pimattn_i_ref *ref = &pool->refs[*pimattn_i_table_at(lay, seq, i, 0)];
        sets += ref->count > 1;
        if (ref->entry && ref->count == 2) *known += pool->set_pages;
    }
    uint64_t fresh = pimattn_i_mul(sets, pool->set_pages);
    for (uint32_t i = 0; seq->hidden > 0 && need > seq->n_pages && i < lay->n_layers; i++) {
        const uint64_t begin = pimattn_i_max(seq->n_pages, lay->sink_pages);
        const uint64_t end =
            pimattn_i_min(need, pimattn_i_seq_sees(lay, seq, i) / lay->page_tokens);
        if (end > begin) fresh -= (end - begin) * (lay->n_kv_heads - (i == 0));
    }
    return fresh;
}

/* Makes tokens from .. to - 1 of all layers the sequence's own, or nothing; the pool allows it. */
static pimattn_status pimattn_i_seq_hold(pimattn_i_pool *pool, pimattn_i_seq *seq, uint64_t from,
                                         uint64_t to)
{
    const pimattn_i_layout *lay = pool->layout;
    uint64_t need = pimattn_i_ceil_div(to, lay->page_tokens), known;
    uint64_t fresh = pimattn_i_seq_fresh(pool, seq, from, to, &known);
    if (fresh == 0) return PIMATTN_OK;
    const bool lacks = fresh > pool->n_pages_most - pimattn_i_pool_held(pool);
    PIMATTN_I_TRY(pimattn_i_table_grow(pool, seq, need));
    PIMATTN_I_TRY(pimattn_i_pool_prepare(pool, lacks ? fresh - known : fresh));
    for (uint64_t i = from / lay->page_tokens; from < to && i < need && i < seq->n_pages; i++) {
        uint32_t *pages = pimattn_i_table_at(lay, seq, i, 0), shared = pages[0];
        const pimattn_i_ref *ref = &pool->refs[shared];
        if (lacks && ref->entry && ref->count == 2) pimattn_i_store_evict(pool, ref->entry);
        if (ref->count == 1) continue;
        /* a set of its own in place of the shared one, with the sequence's tokens there */
        const uint64_t first = i * lay->page_tokens, end = pimattn_i_max(first, seq->tokens[0]);
        const uint64_t tokens = pimattn_i_min(end - first, lay->page_tokens);
        const uint64_t bytes = pimattn_i_ceil_div(tokens, lay->run_tokens) * lay->run_bytes;
        for (uint64_t k = 0; k < pool->set_pages; k++) {
            if (pages[k] == PIMATTN_I_NO_PAGE) continue;
            const unsigned char *old = pimattn_i_page(pool, pages[k]);
            pages[k] = pimattn_i_pool_take(pool, UINT64_MAX);
            memcpy(pimattn_i_page(pool, pages[k]), old, (size_t)bytes);
        }
        pimattn_i_set_drop(pool, &shared, PIMATTN_PAGE_FREED); /* others hold it still */
    }
    /* those of a head one behind the other: they are read faster so */
    for (uint64_t i = 0; i < pool->set_pages; i++)
        for (uint64_t k = seq->n_pages; k < need; k++) {
            uint32_t *at = pimattn_i_table_at(lay, seq, k, 0) + i;
            const uint64_t wanted = k ? UINT64_C(1) + *(at - pool->set_pages) : UINT64_MAX;
            *at = pimattn_i_seq_hides(lay, seq, k, i) ? PIMATTN_I_NO_PAGE
                                                      : pimattn_i_pool_take(pool, wanted);
        }
    seq->n_pages = pimattn_i_max(seq->n_pages, need);
    return PIMATTN_OK;
}

/* One more set, which others hold too; there is room. */
static void pimattn_i_seq_take(pimattn_i_pool *pool, pimattn_i_seq *seq, const uint32_t *pages)
{
    memcpy(seq->table + seq->n_pages++ * pool->set_pages, pages,
           (size_t)pool->set_pages * sizeof *pages);
    pimattn_i_set_share(pool, pages);
}

/* Pages of the first tokens of another sequence, for one that has none. */
static pimattn_status pimattn_i_seq_share(pimattn_i_pool *pool, pimattn_i_seq *seq,
                                          const pimattn_i_seq *from, uint64_t tokens)
{
    const uint64_t end = pimattn_i_ceil_div(tokens, pool->layout->page_tokens);
    PIMATTN_I_TRY(pimattn_i_table_grow(pool, seq, end));
    while ((seq->n_pages = pimattn_i_seq_next(pool->layout, seq, seq->n_pages)) < end)
        pimattn_i_seq_take(pool, seq, pimattn_i_table_at(pool->layout, from, seq->n_pages, 0));
    return PIMATTN_OK;
}

/* Lets go of what is there of pages begin .. end - 1, the last one first. */
static void pimattn_i_seq_cut(pimattn_i_pool *pool, const pimattn_i_seq *seq, uint64_t begin,
                              uint64_t end)
{
    const pimattn_i_layout *lay = pool->layout;
    while (end-- > begin)
        if (pimattn_i_seq_next(lay, seq, end) == end)
            pimattn_i_set_drop(pool, pimattn_i_table_at(lay, seq, end, 0), PIMATTN_PAGE_FREED);
        else
            end = pimattn_i_max(begin, lay->sink_pages); /* between there is none */
}

static void pimattn_i_seq_empty(pimattn_i_pool *pool, pimattn_i_seq *seq)
{
    pimattn_i_seq_cut(pool, seq, 0, seq->n_pages);
    pimattn_i_release(&pool->allocator, seq->table,
                      seq->n_pages_most * pool->set_pages * sizeof(uint32_t));
    seq->table = NULL;
    seq->n_pages = seq->n_pages_most = 0;
}

/* ==========================================================================
 * [A15] PARTITION: which channel and bank holds which tokens.
 *       Knows shapes and geometry; nothing of programs.
 * ========================================================================== */

/* A status, its cause written: a text and its words and uint64_t; of the next two one number. */
#define PIMATTN_I_FAIL(code, why, ...) (pimhw_cause_write(why, __VA_ARGS__), code)
#define PIMATTN_I_REFUSE(why, is, n)   PIMATTN_I_FAIL(PIMATTN_ERR_ARGUMENT, why, is, (uint64_t)(n))
#define PIMATTN_I_LACK(why, is, n)     PIMATTN_I_FAIL(PIMATTN_ERR_MEMORY, why, is, (uint64_t)(n))
#define PIMATTN_I_WRONG(e, ...)        PIMATTN_I_FAIL(PIMATTN_ERR_ARGUMENT, &(e)->why, __VA_ARGS__)
#define PIMATTN_I_UNABLE(e, ...)       PIMATTN_I_FAIL(PIMATTN_ERR_DEVICE, &(e)->why, __VA_ARGS__)
#define PIMATTN_I_FULL(e, ...)         PIMATTN_I_FAIL(PIMATTN_ERR_PAGES, &(e)->why, __VA_ARGS__)
#define PIMATTN_I_UNFIT(why, ...)      PIMATTN_I_FAIL(PIMATTN_ERR_CONFIG, why, __VA_ARGS__)
#define PIMATTN_I_BROKEN(e, ...)       PIMATTN_I_FAIL(PIMATTN_ERR_STATE, &(e)->why, __VA_ARGS__)

/* What a status of the device means: well, no memory, or what else is wrong. */
static pimattn_status pimattn_i_made(pimhw_status status, pimattn_status wrong)
{
    if (status == PIMHW_OK) return PIMATTN_OK;
    return status == PIMHW_ERR_MEMORY ? PIMATTN_ERR_MEMORY : wrong;
}

/* Judges a number; in words what it must be, NULL: least to most. */
static pimattn_status pimattn_i_within(pimhw_cause *why, const char *field, uint64_t is,
                                       uint64_t least, uint64_t most, const char *must)
{
    if (is >= least && is <= most) return PIMATTN_OK;
    if (must) return PIMATTN_I_UNFIT(why, "%s is %u, not %s", field, is, must);
    return PIMATTN_I_UNFIT(why, "%s is %u, not %u to %u", field, is, least, most);
}

/* .. and returns if it is not. */
#define PIMATTN_I_WITHIN(...) PIMATTN_I_TRY(pimattn_i_within(__VA_ARGS__))

/* Judges a shape and fills what 0 stands for. */
static pimattn_status pimattn_i_shape_check(pimattn_shape *s, pimhw_cause *why)
{
    PIMATTN_I_WITHIN(why, "shape.n_layers", s->n_layers, 1, 65536, NULL);
    PIMATTN_I_WITHIN(why, "shape.n_kv_heads", s->n_kv_heads, 1, 65536, NULL);
    PIMATTN_I_WITHIN(why, "shape.head_dim", s->head_dim, 1, 65536, NULL);
    PIMATTN_I_WITHIN(why, "shape.head_dim_v", s->head_dim_v, 0, 65536, NULL);
    if (s->n_heads < 1 || s->n_heads > 65536 || s->n_heads % s->n_kv_heads != 0)
        return PIMATTN_I_UNFIT(
            why, "shape.n_heads is %u, not 1 to 65536 and a multiple of n_kv_heads %u",
            (uint64_t)s->n_heads, (uint64_t)s->n_kv_heads);
    const char *types = "0 (f32), 1 (f16), 2 (bf16) or 3 (int8)";
    PIMATTN_I_WITHIN(why, "shape.k_type", s->k_type, 0, PIMATTN_N_TYPE - 1, types);
    PIMATTN_I_WITHIN(why, "shape.v_type", s->v_type, 0, PIMATTN_N_TYPE - 1, types);
    PIMATTN_I_WITHIN(why, "shape.io_type", s->io_type, 0, PIMATTN_F32, "0 (f32)");
    if (s->head_dim_v == 0) s->head_dim_v = s->head_dim;
    if (s->v_in_k) {
        PIMATTN_I_WITHIN(why, "shape.head_dim_v", s->head_dim_v, 1, s->head_dim,
                         "at most head_dim, as v_in_k asks");
        PIMATTN_I_WITHIN(why, "shape.v_type", s->v_type, s->k_type, s->k_type,
                         "k_type, as v_in_k asks");
    }
    if (s->scale == 0.0f) s->scale = (float)(1.0 / sqrt((double)s->head_dim));
    /* what it says of scores and of what is seen; the first field last, to be named */
    const uint64_t most = (uint64_t)1 << 62;
    const char *bad = s->sink_tokens > most ? "sink_tokens is not 0 to 2^62" : NULL;
    for (uint32_t i = 0; s->windows && i < s->n_layers; i++)
        if (s->windows[i] > most) bad = "windows has one that is not 0 to 2^62";
    if (s->window && s->windows) bad = "window is not 0 beside windows";
    if (s->window > most) bad = "window is not 0 to 2^62";
    if (!(s->alibi_max_bias >= 0 && s->alibi_max_bias <= 1024))
        bad = "alibi_max_bias is not 0 to 1024";
    if (!(s->soft_cap >= 0 && s->soft_cap <= FLT_MAX)) bad = "soft_cap is not 0 or a number above";
    if (!pimattn_i_finite(s->scale)) bad = "scale is not finite";
    if (bad) return PIMATTN_I_UNFIT(why, "shape.%s", bad);
    for (uint64_t h = 0; h < s->n_heads; h++) {
        if (s->sink_logits && !(s->sink_logits[h] <= FLT_MAX)) bad = "sink_logits";
        if (s->alibi_slopes && !(fabsf(s->alibi_slopes[h]) < 1e25f)) bad = "alibi_slopes";
        if (bad)
            return PIMATTN_I_UNFIT(why, "shape.%s of head %u is NaN, or from %s up", bad, h,
                                   bad[0] == 's' ? "infinity" : "1e25");
    }
    return PIMATTN_OK;
}

/* Query tokens of a span. */
static uint64_t pimattn_i_span_asks(const pimattn_span *span)
{
    return span->n_tokens & ~PIMATTN_PREFIX;
}

/* A span as its layer has it: with a window sequences have the prefix before them, which is none
 * then: false. *before is {0} at the first span. */
static bool pimattn_i_span_take(const pimattn_shape *s, pimattn_span *span, pimattn_span *before)
{
    const uint64_t asks = pimattn_i_span_asks(span);
    if (s->window == 0) return true;
    if (asks != span->n_tokens) {
        before->context_tokens = span->context_tokens;
        before->n_tokens = asks;
        return false;
    }
    if (before->n_tokens == 0) return true;
    span->context_tokens += before->context_tokens;
    before->n_tokens -= asks;
    return true;
}

/* Tokens that the queries of a span see, together. */
static uint64_t pimattn_i_span_sees(const pimattn_shape *s, const pimattn_span *span)
{
    uint64_t from = pimattn_i_window_begin(s->window, span->context_tokens - span->n_tokens);
    return span->context_tokens - from + pimattn_i_min(from, s->sink_tokens);
}

/* .. and each by itself, added up; no more than a window and the first tokens hold. */
static uint64_t pimattn_i_span_pairs(const pimattn_shape *s, const pimattn_span *span)
{
    uint64_t n = pimattn_i_span_asks(span), last = span->context_tokens, first = last - n;
    if (span->n_tokens & PIMATTN_PREFIX) return n * last;
    uint64_t most = s->window ? pimattn_i_add(s->window, s->sink_tokens) : UINT64_MAX;
    uint64_t rising = most > first ? pimattn_i_min(most - first, n) : 0;
    return rising * first + rising * (rising + 1) / 2 + (n - rising) * pimattn_i_min(most, last);
}

/* Whether the K phase goes through a key by parts, of a row and of the global buffer at most. */
static bool pimattn_i_k_parts(const pimattn_plan *p)
{
    return p->k_columns > p->inputs || p->k_token_rows > 1;
}

/* Queries that use a row before the next one opens: a block, or all if keys go by parts. */
static uint64_t pimattn_i_k_all(const pimattn_plan *p)
{
    return p->row_reuse_off || !pimattn_i_k_parts(p) ? p->k_queries : p->n_queries;
}

/* K: whole tokens in a bank row, or whole rows of one token. */
static void pimattn_i_plan_k(pimattn_plan *p)
{
    const uint32_t columns = pimhw_config_columns(&p->device);
    const uint32_t outs = p->sums < UINT16_MAX ? p->sums : UINT16_MAX; /* steps are below 2^32 */
    p->k_columns = (uint32_t)pimattn_i_ceil_div(p->shape.head_dim, pimhw_config_lanes(&p->device));
    p->k_row_tokens = columns / p->k_columns;
    p->k_token_rows = (uint32_t)pimattn_i_ceil_div(p->k_columns, columns);
    const uint32_t fit = p->inputs / p->k_columns;
    p->k_queries = (uint32_t)pimattn_i_min(p->n_queries, pimattn_i_max(1, fit));
    p->k_resident = fit > 0 && (p->row_reuse_off || p->n_queries <= p->k_queries);
    p->k_out_slots = p->k_out_queries = 1;
    if (!p->reads_late && !pimattn_i_k_parts(p)) return;
    /* blocks after one another fill whole sets of entries */
    if (p->n_queries > p->k_queries && p->k_queries > outs) p->k_queries -= p->k_queries % outs;
    p->k_out_queries = (uint32_t)pimattn_i_min(pimattn_i_k_all(p), outs);
    if (!pimattn_i_k_parts(p))
        p->k_out_slots = (uint32_t)pimattn_i_min(p->k_row_tokens, outs / p->k_out_queries);
}

/* One number for all that programs and requests of a plan follow from. */
static uint64_t pimattn_i_plan_seal(const pimattn_plan *p)
{
    const pimattn_shape *s = &p->shape;
    const uint32_t numbers[] = {
        s->n_heads,      s->n_kv_heads,    s->head_dim,   s->head_dim_v,  p->partition,
        p->hfp_unit,     p->row_reuse_off, p->reads_late, p->inputs_late, p->unit_channels,
        p->n_queries,    p->inputs,        p->sums,       p->k_columns,   p->k_row_tokens,
        p->k_token_rows, p->k_queries,     p->k_resident, p->k_out_slots, p->k_out_queries,
        p->v_mapping,    p->v_blocks,      p->v_spread,   p->v_groups,    p->v_passes,
        p->v_packed,     p->v_row_columns, p->v_queries,  p->v_strip,     p->v_hold};
    enum { FIRST = offsetof(pimhw_config, n_channels), LAST = offsetof(pimhw_config, flash_MBps) };
    uint32_t device[(LAST - FIRST) / 4 + 1];
    memcpy(device, (const char *)&p->device + FIRST, sizeof device);
    uint64_t seal = 1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        seal = pimattn_i_mix(seal, numbers[i]);
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        seal = pimattn_i_mix(seal, device[i]);
    return seal;
}

/* V: a bank holds one dim of each block, a column 16 tokens. */
static void pimattn_i_plan_v(pimattn_plan *p, uint32_t v_mapping)
{
    const uint32_t columns = pimhw_config_columns(&p->device);
    const uint64_t queries = p->row_reuse_off ? 1 : p->n_queries;
    p->v_wanted = p->v_mapping = v_mapping;
    p->v_blocks = (uint32_t)pimattn_i_ceil_div(p->shape.head_dim_v, pimhw_config_banks(&p->device));
    /* every block of dims takes a column of a row, and its sums an entry per query */
    if (v_mapping == PIMATTN_V_K && (p->v_blocks > columns || queries > p->inputs ||
                                     pimattn_i_mul(queries, p->v_blocks) > p->sums))
        p->v_mapping = PIMATTN_V_A;
    p->v_packed = p->v_mapping == PIMATTN_V_K;
    const uint32_t spread = p->v_mapping == PIMATTN_V_A ? p->unit_channels : 1;
    p->v_spread = (uint32_t)pimattn_i_min(p->v_blocks, spread);
    p->v_groups = p->unit_channels / p->v_spread;
    p->v_passes = (uint32_t)pimattn_i_ceil_div(p->v_blocks, p->v_spread);
    /* one block of queries holds the sums of all passes */
    bool one_block = p->row_reuse_off || p->n_queries <= p->k_queries;
    uint64_t wanted = one_block ? pimattn_i_mul(p->k_queries, p->v_passes) : pimattn_i_k_all(p);
    if (v_mapping == PIMATTN_V_K)
        wanted = pimattn_i_mul(p->row_reuse_off ? p->k_queries : p->n_queries, p->v_blocks);
    p->wanted_out = (uint32_t)pimattn_i_min(wanted, UINT32_MAX);
    const uint32_t in_row = p->v_packed ? p->v_passes : 1;
    p->v_row_columns = columns / in_row;
    p->v_queries = (uint32_t)pimattn_i_min(p->k_queries, p->sums / in_row);
    if (p->v_packed && !p->row_reuse_off) p->v_queries = p->n_queries;
    uint64_t strip = pimattn_i_min(p->inputs / p->v_queries, p->v_row_columns);
    /* where they are written beside MACs, strips of a row are as long as each other */
    if (p->device.controller == PIMHW_PING_PONG || p->device.controller == PIMHW_DCS)
        strip = pimattn_i_ceil_div(p->v_row_columns, pimattn_i_ceil_div(p->v_row_columns, strip));
    p->v_strip = (uint32_t)strip;
    one_block = p->row_reuse_off || p->n_queries <= p->v_queries;
    p->v_hold = one_block && (uint64_t)p->v_queries * p->v_passes <= p->sums;
    p->used_out = p->v_hold ? p->v_queries * p->v_passes : p->v_queries;
    if (pimattn_i_k_parts(p)) p->used_out = (uint32_t)pimattn_i_max(p->used_out, p->k_out_queries);
    p->seal = pimattn_i_plan_seal(p);
}

PIMATTN_API const char *pimattn_v_mapping_str(uint32_t v_mapping)
{
    static const char names[4][12] = {"A", "B", "K", "cheapest"};
    return v_mapping < 4 ? names[v_mapping] : NULL;
}

/* Sums that a program may hold at once: ping-pong reads one half beside the other. */
static uint32_t pimattn_i_sums(const pimhw_config *device)
{
    return pimhw_config_outs(device) / (device->controller == PIMHW_PING_PONG ? 2 : 1);
}

PIMATTN_API pimattn_status pimattn_plan_init(pimattn_plan *plan, const pimattn_shape *shape,
                                             const pimhw_config *device, uint32_t partition,
                                             uint32_t hfp_unit, bool row_reuse_off,
                                             uint64_t n_queries, pimhw_cause *why)
{
    pimattn_plan p;
    if (!plan || !shape || !device)
        return PIMATTN_I_REFUSE(why, "plan, shape or device is NULL", 0);
    memset(&p, 0, sizeof p);
    p.shape = *shape;
    p.device = *device;
    PIMATTN_I_TRY(pimattn_i_shape_check(&p.shape, why));
    if (pimhw_config_check(device, why) != PIMHW_OK) return PIMATTN_ERR_CONFIG;
    PIMATTN_I_WITHIN(why, "flash_page_bytes", device->flash_page_bytes, 0, 0,
                     "0: only a tier can be flash");
    PIMATTN_I_WITHIN(why, "partition", partition, 0, PIMATTN_HFP, "0 (tcp) or 1 (hfp)");
    PIMATTN_I_WITHIN(why, "hfp_unit", hfp_unit, 0, PIMATTN_BY_QUERY_HEAD,
                     "0 (kv_head) or 1 (query_head)");
    PIMATTN_I_WITHIN(why, "queries of a block", n_queries, 1, UINT32_MAX, "1 to 2^32 - 1");
    p.partition = partition;
    p.hfp_unit = hfp_unit;
    p.row_reuse_off = row_reuse_off;
    p.unit_channels = partition == PIMATTN_TCP ? device->n_channels : 1;
    p.n_queries = (uint32_t)n_queries;
    p.inputs_late = p.reads_late = device->controller == PIMHW_DCS;
    p.inputs = pimhw_config_in_region(device);
    p.sums = pimattn_i_sums(device);
    pimattn_i_plan_k(&p);
    pimattn_i_plan_v(&p, PIMATTN_V_A);
    *plan = p;
    return PIMATTN_OK;
}

/* A plan is as it was made: what is made of it divides by its numbers. */
static pimattn_status pimattn_i_plan_judge(const pimattn_plan *plan, pimhw_cause *why)
{
    if (plan && plan->seal == pimattn_i_plan_seal(plan)) return PIMATTN_OK;
    return PIMATTN_I_REFUSE(why, plan ? "plan is not of pimattn_plan_init" : "plan is NULL", 0);
}

PIMATTN_API pimattn_status pimattn_plan_map_v(pimattn_plan *plan, uint32_t v_mapping,
                                              pimhw_cause *why)
{
    PIMATTN_I_TRY(pimattn_i_plan_judge(plan, why));
    PIMATTN_I_WITHIN(why, "v_mapping", v_mapping, 0, PIMATTN_V_K, "0 (A), 1 (B) or 2 (K)");
    pimattn_i_plan_v(plan, v_mapping);
    return PIMATTN_OK;
}

/* Tokens of a slot: one in every bank. */
static uint64_t pimattn_i_k_lanes(const pimattn_plan *p)
{
    return (uint64_t)pimhw_config_banks(&p->device) * p->unit_channels;
}

/* V columns of a channel group. */
static uint64_t pimattn_i_v_columns(const pimattn_plan *p, uint64_t tokens, uint64_t group)
{
    uint64_t lanes = pimhw_config_lanes(&p->device), before = group * lanes;
    return tokens > before ? pimattn_i_ceil_div(tokens - before, lanes * p->v_groups) : 0;
}

/* Rows of the busiest bank that K (0) or V (1) of so many tokens take. */
static uint64_t pimattn_i_plan_rows(const pimattn_plan *p, uint32_t which, uint64_t tokens)
{
    uint64_t slots = pimattn_i_ceil_div(tokens, pimattn_i_k_lanes(p));
    uint64_t columns = pimattn_i_v_columns(p, tokens, 0);
    if (which == 0)
        return pimattn_i_ceil_div(slots, pimattn_i_max(1, p->k_row_tokens)) * p->k_token_rows;
    return pimattn_i_ceil_div(columns, p->v_row_columns) * (p->v_packed ? 1 : p->v_passes);
}

PIMATTN_API uint32_t pimattn_plan_chunk_rows(const pimattn_plan *plan)
{
    uint64_t row = (uint64_t)plan->device.row_bytes * pimhw_config_banks(&plan->device);
    return (uint32_t)pimattn_i_max(1, ((uint64_t)1 << 20) / (row * plan->unit_channels));
}

static uint64_t pimattn_i_chunks_of(const pimattn_plan *p, uint32_t which, uint64_t tokens)
{
    return pimattn_i_ceil_div(pimattn_i_plan_rows(p, which, tokens), pimattn_plan_chunk_rows(p));
}

PIMATTN_API uint64_t pimattn_plan_chunks(const pimattn_plan *plan, uint64_t tokens)
{
    return pimattn_i_chunks_of(plan, 0, tokens) + pimattn_i_chunks_of(plan, 1, tokens);
}

/* Where a column of a key, or of 16 tokens' values of one dim, lies. */
typedef struct pimattn_i_place {
    uint32_t channel; /* of the unit */
    uint32_t bank, column;
    uint64_t row; /* of the head's K or V */
} pimattn_i_place;

static pimattn_i_place pimattn_i_place_k(const pimattn_plan *p, uint64_t token, uint32_t column)
{
    uint32_t banks = pimhw_config_banks(&p->device), columns = pimhw_config_columns(&p->device);
    uint64_t lanes = pimattn_i_k_lanes(p), slot = token / lanes;
    uint64_t row_tokens = pimattn_i_max(1, p->k_row_tokens);
    pimattn_i_place at;
    at.channel = (uint32_t)(token % lanes / banks);
    at.bank = (uint32_t)(token % banks);
    at.row = slot / row_tokens * p->k_token_rows + column / columns;
    at.column = (uint32_t)(slot % row_tokens * p->k_columns + column % columns);
    return at;
}

static pimattn_i_place pimattn_i_place_v(const pimattn_plan *p, uint64_t token, uint32_t dim)
{
    uint32_t banks = pimhw_config_banks(&p->device), block = dim / banks;
    uint64_t column = token / pimhw_config_lanes(&p->device);
    uint64_t group = column % p->v_groups, j = column / p->v_groups;
    uint32_t pass = block / p->v_spread, in_row = (uint32_t)(j % p->v_row_columns);
    pimattn_i_place at;
    at.channel = (uint32_t)group * p->v_spread + block % p->v_spread;
    at.bank = dim % banks;
    at.row = j / p->v_row_columns * (p->v_packed ? 1 : p->v_passes) + (p->v_packed ? 0 : pass);
    at.column = p->v_packed ? pass * p->v_row_columns + in_row : in_row;
    return at;
}

/* Adds bytes of the columns of K and V of a head; bytes: of the first bank of its channels. */
static void pimattn_i_banks_add(const pimattn_plan *p, uint64_t *bytes, uint64_t tokens)
{
    uint64_t banks = pimhw_config_banks(&p->device), lanes = pimattn_i_k_lanes(p);
    uint64_t column = p->device.column_bytes;
    for (uint64_t lane = 0; lane < lanes && lane < tokens; lane++)
        bytes[lane] += pimattn_i_ceil_div(tokens - lane, lanes) * p->k_columns * column;
    for (uint64_t g = 0; g < p->v_groups; g++)
        for (uint32_t dim = 0; dim < p->shape.head_dim_v; dim++) {
            pimattn_i_place at = pimattn_i_place_v(p, g * pimhw_config_lanes(&p->device), dim);
            bytes[at.channel * banks + at.bank] += pimattn_i_v_columns(p, tokens, g) * column;
        }
}

/* ==========================================================================
 * [A16] LOWERING: plan to program and request data; tier to program.
 *       Knows layouts and instructions; never clocks or values.
 * ========================================================================== */

/* Numbers of a block, see pimhw_tail.rest; the EPU goes through SOFTMAX, adds and scales SUMS. */
enum { PIMATTN_I_TOKENS = 1, PIMATTN_I_QUERIES, PIMATTN_I_SOFTMAX, PIMATTN_I_SUMS };

/* A program being written: the loops around the next item. */
typedef struct pimattn_i_writer {
    pimhw_program *program;
    const pimattn_plan *plan; /* NULL: of a tier */
    uint32_t level;           /* of the next loop */
    uint64_t mask;
    uint8_t rounds[2 * PIMHW_LOOPS]; /* of each loop: the operand's name */
} pimattn_i_writer;

static pimhw_operand pimattn_i_operand(uint64_t base)
{
    pimhw_operand o = {base, {0}, {0}, {0}};
    return o;
}

static pimhw_tail pimattn_i_tail(uint32_t rest, uint64_t base, uint64_t unit, uint64_t mul)
{
    pimhw_tail t = {base, unit, mul, {0}, 0, 0, rest};
    return t;
}

/* Levels: of the outermost loop; of one that would have one round, which is not written. */
enum { PIMATTN_I_IN_LIST = 1, PIMATTN_I_NO_LOOP = PIMHW_LOOPS };

static void pimattn_i_step(uint64_t *step, uint32_t level, uint64_t value)
{
    if (level != PIMATTN_I_NO_LOOP) step[level] = value;
}

/* Tokens of a channel's share, in units: K by lanes of banks, V by channel groups. */
static pimhw_tail pimattn_i_tokens(const pimattn_plan *p, bool is_v, uint64_t unit)
{
    pimhw_tail t = pimattn_i_tail(PIMATTN_I_TOKENS, 0, unit, 1);
    if ((is_v ? p->v_groups : p->unit_channels) == 1) return t;
    if (is_v) t.channel_div = p->v_spread;
    t.channel_step = is_v ? pimhw_config_lanes(&p->device) : pimhw_config_banks(&p->device);
    return t;
}

/* The tail that a round of a loop takes so much from. */
static pimhw_tail pimattn_i_less(pimhw_tail tail, uint32_t level, uint64_t step)
{
    pimattn_i_step(tail.step, level, step);
    return tail;
}

static void pimattn_i_limit(pimattn_i_writer *w, pimhw_operand *o, pimhw_tail tail)
{
    int at = o->tail[0] ? 1 : 0;
    PIMATTN_ASSERT(!o->tail[at]);
    o->tail[at] = pimhw_program_tail(w->program, &tail);
}

static uint32_t pimattn_i_loop(pimattn_i_writer *w, pimhw_operand rounds)
{
    w->rounds[w->level] = pimhw_program_operand(w->program, &rounds);
    pimhw_program_loop(w->program, w->rounds[w->level], w->mask);
    return w->level++;
}

/* Ends the loop of a level and all inside of it. */
static void pimattn_i_end(pimattn_i_writer *w, uint32_t level)
{
    for (; w->level > level; w->level--)
        pimhw_program_end(w->program);
}

/* Ends the loop of a level and all inside of it, and begins them again. */
static void pimattn_i_again(pimattn_i_writer *w, uint32_t level)
{
    const uint32_t inner = w->level;
    pimattn_i_end(w, level);
    while (w->level < inner)
        pimhw_program_loop(w->program, w->rounds[w->level++], w->mask);
}

/* A loop over what a tail counts, at most `most`. */
static uint32_t pimattn_i_loop_tail(pimattn_i_writer *w, uint64_t most, pimhw_tail tail)
{
    pimhw_operand rounds = pimattn_i_operand(most);
    pimattn_i_limit(w, &rounds, tail);
    return pimattn_i_loop(w, rounds);
}

static uint32_t pimattn_i_loop_times(pimattn_i_writer *w, uint64_t times)
{
    return times == 1 ? (uint32_t)PIMATTN_I_NO_LOOP : pimattn_i_loop(w, pimattn_i_operand(times));
}

static pimhw_tail pimattn_i_queries(uint64_t unit)
{
    return pimattn_i_tail(PIMATTN_I_QUERIES, 0, unit, 1);
}

/* A loop over the queries of a block. */
static uint32_t pimattn_i_loop_queries(pimattn_i_writer *w, uint32_t block_level, uint32_t queries)
{
    pimhw_tail left = pimattn_i_less(pimattn_i_queries(1), block_level, queries);
    return pimattn_i_loop_tail(w, queries, left);
}

/* Operands of an instruction to write, in the order of an item; those not set are 0. */
typedef struct pimattn_i_operands {
    pimhw_operand op_size, bank, row, column, tile, out, gpr, aux;
} pimattn_i_operands;

static void pimattn_i_write(pimattn_i_writer *w, pimhw_kind kind, uint32_t flags, uint32_t space,
                            const pimattn_i_operands *o)
{
    pimhw_item item;
    const pimhw_operand zero = pimattn_i_operand(0), *from = (const pimhw_operand *)(const void *)o;
    uint8_t *to = (uint8_t *)&item + offsetof(pimhw_item, op_size);
    memset(&item, 0, sizeof item);
    for (size_t i = 0; i < sizeof *o / sizeof *from; i++)
        if (memcmp(from + i, &zero, sizeof zero) != 0)
            to[i] = pimhw_program_operand(w->program, from + i);
    item.mask = w->mask;
    item.kind = (uint8_t)kind;
    item.flags = (uint8_t)flags;
    item.space = (uint8_t)space;
    pimhw_program_item(w->program, &item);
}

/* Operands of so many columns, or none. */
static pimattn_i_operands pimattn_i_sized(uint64_t op_size)
{
    pimattn_i_operands o;
    memset(&o, 0, sizeof o);
    o.op_size.base = op_size;
    return o;
}

/* An item that names no operand but aux. */
static void pimattn_i_plain(pimattn_i_writer *w, pimhw_kind kind, uint64_t aux)
{
    pimattn_i_operands o = pimattn_i_sized(0);
    o.aux = pimattn_i_operand(aux);
    pimattn_i_write(w, kind, 0, 0, &o);
}

/* Levels of the loops around an instruction: rows; query blocks; of K slots in runs and queries in
 * sets, of V columns in strips (run), passes (set) and queries. */
typedef struct pimattn_i_loops {
    uint32_t row, block, run, slot, set, query;
    uint32_t part; /* of keys by parts: of a row, or of a set of queries */
    bool is_v;
    uint64_t unit;           /* tokens of a slot or column, all channels together */
    uint64_t in_row, in_run; /* slots or columns */
} pimattn_i_loops;

/* What a round of each loop adds to an operand, or takes from a tail. */
static void pimattn_i_steps(uint64_t *step, const pimattn_i_loops *at, uint64_t row, uint64_t block,
                            uint64_t run, uint64_t slot, uint64_t set, uint64_t query)
{
    const uint32_t level[6] = {at->row, at->block, at->run, at->slot, at->set, at->query};
    const uint64_t value[6] = {row, block, run, slot, set, query};
    for (int i = 0; i < 6; i++)
        pimattn_i_step(step, level[i], value[i]);
}

static uint32_t pimattn_i_loop_passes(pimattn_i_writer *w)
{
    const pimattn_plan *p = w->plan;
    pimhw_tail t = pimattn_i_tail(0, p->v_blocks, p->v_spread, 1);
    if (p->v_passes == 1 || p->v_spread == 1) return pimattn_i_loop_times(w, p->v_passes);
    t.channel_step = 1; /* one group: its last channels may have a block less */
    return pimattn_i_loop_tail(w, UINT64_MAX, t);
}

/* Loops over rows, their passes and query blocks, outermost first: row-reuse keeps the row open. */
static pimattn_i_loops pimattn_i_loop_rows(pimattn_i_writer *w, bool is_v)
{
    const pimattn_plan *p = w->plan;
    const uint64_t queries = is_v ? p->v_queries : pimattn_i_k_all(p);
    const bool blocks = p->n_queries > queries;
    const pimhw_tail block = pimattn_i_queries(queries);
    const uint32_t none = PIMATTN_I_NO_LOOP;
    pimattn_i_loops at = {none, none, none, none, none, none, none, is_v, 0, 0, 0};
    at.unit = is_v ? (uint64_t)pimhw_config_lanes(&p->device) * p->v_groups : pimattn_i_k_lanes(p);
    at.in_row = is_v ? p->v_row_columns : pimattn_i_max(1, p->k_row_tokens);
    at.in_run = is_v ? p->v_strip : p->k_out_slots;
    if (blocks && p->row_reuse_off) at.block = pimattn_i_loop_tail(w, UINT64_MAX, block);
    at.row = pimattn_i_loop_tail(w, UINT64_MAX, pimattn_i_tokens(p, is_v, at.unit * at.in_row));
    if (is_v && !p->v_packed) at.set = pimattn_i_loop_passes(w);
    if (blocks && !p->row_reuse_off) at.block = pimattn_i_loop_tail(w, UINT64_MAX, block);
    return at;
}

/* What comes before the first MAC of a sum into entry out: RD_MAC, the read of the sum before it,
 * where reads are late and there was one in an earlier round of a loop; then WR_BIAS, where reading
 * does not clear. fresh: 1 where a sum begins, else 0; NULL, of a bias: always 1. */
static void pimattn_i_begin(pimattn_i_writer *w, const pimattn_i_loops *at, pimhw_kind kind,
                            const pimhw_operand *out, const pimhw_tail *fresh)
{
    const bool read = kind == PIMHW_RD_MAC, hold = at->is_v && w->plan->v_hold;
    const pimhw_operand zero = pimattn_i_operand(0);
    pimattn_i_operands o = pimattn_i_sized(!read);
    if (!(read ? w->plan->reads_late : w->plan->device.out_clear == PIMHW_CLEAR_BIAS)) return;
    if (read) pimattn_i_steps(o.op_size.step, at, !hold, 1, !at->is_v, 0, !hold, 0);
    if (memcmp(&o.op_size, &zero, sizeof zero) == 0) return;
    o.out = *out;
    if (fresh) pimattn_i_limit(w, &o.op_size, *fresh);
    pimattn_i_write(w, kind, 0, at->is_v, &o);
}

/* Runs of a row that hold tokens of this channel's group. */
static void pimattn_i_loop_runs(pimattn_i_writer *w, pimattn_i_loops *at)
{
    pimhw_tail left = pimattn_i_tokens(w->plan, at->is_v, at->unit * at->in_run);
    left = pimattn_i_less(left, at->row, at->unit * at->in_row);
    if (at->in_run < at->in_row)
        at->run = pimattn_i_loop_tail(w, pimattn_i_ceil_div(at->in_row, at->in_run), left);
}

/* Slots or columns of a run that do. */
static pimhw_operand pimattn_i_run_size(pimattn_i_writer *w, const pimattn_i_loops *at)
{
    pimhw_operand o = pimattn_i_operand(at->in_run);
    pimhw_tail left = pimattn_i_tail(0, at->in_row, 1, 1);
    pimhw_tail tokens = pimattn_i_tokens(w->plan, at->is_v, at->unit);
    pimattn_i_steps(tokens.step, at, at->unit * at->in_row, 0, at->unit * at->in_run, 0, 0, 0);
    pimattn_i_limit(w, &o, tokens);
    if (at->in_row % at->in_run) pimattn_i_limit(w, &o, pimattn_i_less(left, at->run, at->in_run));
    return o;
}

/* The queries of a block, or where inputs are late the one query of these loops, before its first
 * token; where they stay for all rows, only in the first. */
static void pimattn_i_lower_k_input(pimattn_i_writer *w, const pimattn_i_loops *at)
{
    const pimattn_plan *p = w->plan;
    uint64_t block = (uint64_t)p->k_queries * p->k_columns;
    uint64_t size = p->inputs_late ? p->k_columns : block, set = p->k_out_queries * size;
    pimattn_i_operands o = pimattn_i_sized(size);
    pimhw_tail once = pimattn_i_tail(0, 1, 1, size);
    pimhw_tail left = pimattn_i_tail(PIMATTN_I_QUERIES, 0, 1, p->k_columns);
    pimattn_i_step(left.step, at->block, p->k_queries);
    pimattn_i_steps(once.step, at, p->k_resident, 0, 1, 1, 0, 0);
    pimattn_i_steps(o.tile.step, at, 0, 0, 0, 0, set, size);
    pimattn_i_steps(o.gpr.step, at, 0, block, 0, 0, set, size);
    if (!p->inputs_late) pimattn_i_limit(w, &o.op_size, left);
    if (p->inputs_late || p->k_resident) pimattn_i_limit(w, &o.op_size, once);
    pimattn_i_write(w, PIMHW_WR_GB, 0, 0, &o);
}

/* Reads the sums of queries one by one; those of a round of another loop lie further on. */
static void pimattn_i_lower_reads(pimattn_i_writer *w, uint32_t space, uint32_t query,
                                  uint32_t loop, uint64_t further)
{
    pimattn_i_operands o = pimattn_i_sized(0);
    pimattn_i_step(o.out.step, query, 1);
    pimattn_i_step(o.out.step, loop, further);
    pimattn_i_write(w, PIMHW_RD_MAC, 0, space, &o);
}

/* Scores of a query block whose keys fit the global buffer: W, then slots x queries of M, R; the
 * queries in sets that find an output entry each. */
static void pimattn_i_lower_k(pimattn_i_writer *w)
{
    const pimattn_plan *p = w->plan;
    uint64_t columns = p->k_columns, queries = p->k_out_queries, all = p->k_queries;
    uint64_t set = p->reads_late ? queries : all;
    pimhw_tail each = pimattn_i_queries(1);
    const pimhw_tail once = pimattn_i_tail(0, 1, 1, 1);
    pimattn_i_loops at = pimattn_i_loop_rows(w, false);
    if (!p->inputs_late) pimattn_i_lower_k_input(w, &at);
    pimattn_i_loop_runs(w, &at);
    if (at.in_run > 1) at.slot = pimattn_i_loop(w, pimattn_i_run_size(w, &at));
    pimhw_tail sets = pimattn_i_less(pimattn_i_queries(set), at.block, all);
    if (set < all) at.set = pimattn_i_loop_tail(w, pimattn_i_ceil_div(all, set), sets);
    pimattn_i_steps(each.step, &at, 0, all, 0, 0, set, 0);
    at.query = pimattn_i_loop_tail(w, set, each);
    pimattn_i_operands o = pimattn_i_sized(columns);
    pimattn_i_steps(o.out.step, &at, 0, 0, 0, queries, 0, p->reads_late);
    if (p->inputs_late) pimattn_i_lower_k_input(w, &at);
    /* a bias waits for the read of its entry: if longer than MACs take, sets or runs go first */
    const bool bias = p->reads_late && p->device.out_clear == PIMHW_CLEAR_BIAS &&
                      columns * p->device.tCCD_MAC < p->device.tRD_OUT;
    const bool apart = bias && set > 1, alone = bias && all == 1 && p->k_out_slots > 1;
    if (apart) pimattn_i_again(w, at.query);
    pimattn_i_begin(w, &at, PIMHW_RD_MAC, &o.out, &once);
    if (apart || alone) pimattn_i_again(w, alone ? at.slot : at.query);
    pimattn_i_begin(w, &at, PIMHW_WR_BIAS, &o.out, NULL);
    pimattn_i_step(o.row.step, at.row, 1);
    pimattn_i_steps(o.column.step, &at, 0, 0, p->k_out_slots * columns, columns, 0, 0);
    pimattn_i_steps(o.tile.step, &at, 0, 0, 0, 0, queries * columns, columns);
    /* the sum is the score of query gpr and of the tokens of slot aux */
    pimattn_i_steps(o.gpr.step, &at, 0, p->k_queries, 0, 0, queries, 1);
    pimattn_i_steps(o.aux.step, &at, p->k_row_tokens, 0, p->k_out_slots, 1, 0, 0);
    pimattn_i_write(w, PIMHW_MAC_ABK, 0, 0, &o);
    if (!p->reads_late) pimattn_i_plain(w, PIMHW_RD_MAC, 0);
}

/* MACs of a part of keys, whose op_size and tile are set; a sum begins in the first part. */
static void pimattn_i_lower_k_part(pimattn_i_writer *w, const pimattn_i_loops *at,
                                   pimattn_i_operands o, uint64_t go, uint64_t pass)
{
    const pimattn_plan *p = w->plan;
    const uint64_t in_row = pimhw_config_columns(&p->device), columns = p->k_columns;
    const uint64_t set = p->k_out_queries;
    pimhw_tail first = pimattn_i_tail(0, 1, 1, 1);
    pimattn_i_steps(first.step, at, 0, 0, 0, 1, 0, 0);
    pimattn_i_step(first.step, at->part, go > 0);
    pimattn_i_step(o.out.step, at->part, pass);
    pimattn_i_step(o.out.step, at->query, 1);
    pimattn_i_begin(w, at, PIMHW_RD_MAC, &o.out, &first);
    pimattn_i_begin(w, at, PIMHW_WR_BIAS, &o.out, &first);
    if (p->k_resident) pimattn_i_steps(o.tile.step, at, 0, 0, 0, in_row, set * columns, columns);
    o.gpr = o.out; /* entry n is of query n of the set */
    pimattn_i_steps(o.gpr.step, at, 0, pimattn_i_k_all(p), 0, 0, set, 1);
    pimattn_i_steps(o.aux.step, at, at->in_row, 0, 1, 0, 0, 0);
    pimattn_i_steps(o.row.step, at, p->k_token_rows, 0, 0, 1, 0, 0);
    pimattn_i_step(o.column.step, at->run, columns);
    pimattn_i_step(o.column.step, at->part, go);
    pimattn_i_write(w, PIMHW_MAC_ABK, 0, 0, &o);
}

/* Scores of keys that go by parts: a set of queries that find an output entry each meets one part
 * before the next, or rows would open once a query. Queries that do not stay in the global buffer
 * go there by parts, too, of as many queries at a time as fit. */
static void pimattn_i_lower_k_parts(pimattn_i_writer *w)
{
    const pimattn_plan *p = w->plan;
    const bool late = p->reads_late, resident = p->k_resident;
    const uint64_t columns = p->k_columns, in_row = pimhw_config_columns(&p->device);
    const uint64_t all = pimattn_i_k_all(p), set = p->k_out_queries;
    const uint64_t of_row = pimattn_i_min(columns, in_row), part = pimattn_i_min(of_row, p->inputs);
    const uint64_t fit = resident ? set : p->inputs / part; /* 1 if a row is several parts */
    const uint64_t turn = fit == 1 ? set : pimattn_i_min(fit, set);
    const uint64_t go = part < of_row ? part : 0, pass = turn < set ? turn : 0;
    pimhw_tail each = pimattn_i_queries(1);
    pimattn_i_loops at = pimattn_i_loop_rows(w, false);
    if (resident && !late) pimattn_i_lower_k_input(w, &at);
    pimattn_i_loop_runs(w, &at);
    pimhw_tail left = pimattn_i_less(pimattn_i_queries(set), at.block, all);
    if (set < all) at.set = pimattn_i_loop_tail(w, pimattn_i_ceil_div(all, set), left);
    pimattn_i_steps(each.step, &at, 0, all, 0, 0, set, 0);
    const uint32_t inner = w->level;
    at.slot = pimattn_i_loop_times(w, p->k_token_rows);
    at.part = pimattn_i_loop_times(w, pimattn_i_ceil_div(of_row, part));
    left = each;
    left.unit = turn;
    if (pass) at.part = pimattn_i_loop_tail(w, pimattn_i_ceil_div(set, turn), left);
    pimhw_operand rounds = pimattn_i_operand(turn);
    pimattn_i_limit(w, &rounds, pimattn_i_less(each, at.part, pass));
    pimattn_i_limit(w, &rounds, pimattn_i_less(pimattn_i_tail(0, set, 1, 1), at.part, pass));
    at.query = pimattn_i_loop(w, rounds);
    pimattn_i_operands o = pimattn_i_sized(part);
    left = pimattn_i_less(pimattn_i_tail(0, columns, 1, 1), at.slot, in_row);
    pimattn_i_limit(w, &o.op_size, pimattn_i_less(left, at.part, go));
    pimattn_i_limit(w, &o.op_size, pimattn_i_less(pimattn_i_tail(0, of_row, 1, 1), at.part, go));
    pimattn_i_steps(o.gpr.step, &at, 0, all * columns, 0, in_row, set * columns, columns);
    pimattn_i_step(o.gpr.step, at.part, go + pass * columns);
    pimattn_i_step(o.tile.step, at.query, fit == 1 ? 0 : part);
    if (resident && late) pimattn_i_lower_k_input(w, &at);
    if (!resident) pimattn_i_write(w, PIMHW_WR_GB, 0, 0, &o);
    if (!resident && !late && fit > 1) pimattn_i_again(w, at.query);
    pimattn_i_lower_k_part(w, &at, o, go, pass);
    pimattn_i_end(w, inner);
    if (!late) pimattn_i_lower_reads(w, 0, pimattn_i_loop_tail(w, set, each), PIMATTN_I_NO_LOOP, 0);
}

/* Values: of every strip and query W, then the MACs; blocks of dims that share a row innermost. */
static void pimattn_i_lower_v(pimattn_i_writer *w)
{
    const pimattn_plan *p = w->plan;
    const bool one_block = p->row_reuse_off || p->n_queries <= p->v_queries;
    const bool packed = p->v_packed, hold = p->v_hold;
    pimattn_i_loops at = pimattn_i_loop_rows(w, true);
    const uint32_t inner = w->level;
    pimattn_i_loop_runs(w, &at);
    at.query = pimattn_i_loop_queries(w, at.block, p->v_queries);
    /* probabilities of a query for one strip, each channel group its own */
    pimattn_i_operands o = pimattn_i_sized(0);
    pimhw_tail once = pimattn_i_less(pimattn_i_tail(0, 1, 1, p->v_strip), at.set, 1);
    o.op_size = pimattn_i_run_size(w, &at);
    if (p->v_strip == p->v_row_columns && one_block && at.set != PIMATTN_I_NO_LOOP)
        pimattn_i_limit(w, &o.op_size, once);
    pimattn_i_step(o.tile.step, at.query, p->v_strip);
    pimattn_i_steps(o.gpr.step, &at, 0, p->v_queries, 0, 0, 0, 1);
    pimattn_i_steps(o.aux.step, &at, p->v_row_columns, 0, p->v_strip, 0, 0, 0);
    pimattn_i_write(w, PIMHW_WR_GB, PIMHW_DISTINCT, 1, &o);
    if (!p->inputs_late) pimattn_i_again(w, at.query);
    if (packed) at.set = pimattn_i_loop_passes(w);
    pimhw_tail fresh = pimattn_i_tail(0, 1, 1, 1);
    pimattn_i_steps(fresh.step, &at, hold, 0, 1, 0, 0, 0);
    pimattn_i_steps(o.out.step, &at, 0, 0, 0, 0, hold ? p->v_queries : 0, 1);
    pimattn_i_begin(w, &at, PIMHW_RD_MAC, &o.out, &fresh);
    pimattn_i_begin(w, &at, PIMHW_WR_BIAS, &o.out, &fresh);
    o.op_size = pimattn_i_run_size(w, &at);
    pimattn_i_steps(o.row.step, &at, packed ? 1 : p->v_passes, 0, 0, 0, !packed, 0);
    pimattn_i_steps(o.column.step, &at, 0, 0, p->v_strip, 0, packed ? p->v_row_columns : 0, 0);
    o.aux = pimattn_i_operand(0);
    pimattn_i_step(o.aux.step, at.set, 1); /* the sum of query gpr, block aux */
    pimattn_i_write(w, PIMHW_MAC_ABK, 0, 1, &o);
    pimattn_i_end(w, inner);
    /* sums are read in the row, those that stay after the last one, late ones after all blocks */
    const bool after = hold || p->reads_late;
    if (after) pimattn_i_end(w, p->reads_late ? (uint32_t)PIMATTN_I_IN_LIST : at.row);
    const uint32_t none = PIMATTN_I_NO_LOOP, pass = hold ? pimattn_i_loop_passes(w) : none;
    pimhw_tail left = pimattn_i_queries(1), any = pimattn_i_tokens(p, true, UINT64_MAX);
    pimhw_operand rounds = pimattn_i_operand(p->v_queries);
    any.mul = p->v_queries;
    if (!p->reads_late) left = pimattn_i_less(left, at.block, p->v_queries);
    pimattn_i_limit(w, &rounds, left);
    if (after) pimattn_i_limit(w, &rounds, any); /* or there are rows, and tokens in them */
    pimattn_i_lower_reads(w, 1, pimattn_i_loop(w, rounds), pass, p->v_queries);
}

/* What the hub does once all loops of a phase are done; its block ends. */
static void pimattn_i_lower_hub(pimattn_i_writer *w, uint32_t rest, uint32_t flags)
{
    pimattn_i_end(w, PIMATTN_I_IN_LIST);
    pimattn_i_operands o = pimattn_i_sized(UINT64_MAX);
    pimattn_i_limit(w, &o.op_size, pimattn_i_tail(rest, 0, 1, 1));
    pimattn_i_write(w, PIMHW_EPU, flags, 0, &o);
    pimhw_program_end(w->program);
}

/* Where softmax hides behind the next block's scores, its values come one round later. */
PIMATTN_API pimattn_status pimattn_plan_lower(const pimattn_plan *plan, pimhw_program *program,
                                              pimhw_cause *why)
{
    if (!program) return PIMATTN_I_REFUSE(why, "program is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_plan_judge(plan, why));
    uint64_t lag = plan->device.epu_overlap == PIMHW_EPU_HEADS ? 1 : 0;
    uint64_t all = UINT64_MAX >> (64 - plan->device.n_channels) % 64;
    pimattn_i_writer w = {program, plan, PIMATTN_I_IN_LIST, all, {0}};
    pimhw_program_init(program);
    pimattn_i_plain(&w, PIMHW_LIST, lag);
    pimattn_i_plain(&w, PIMHW_BLOCK, 0);
    (pimattn_i_k_parts(plan) ? pimattn_i_lower_k_parts : pimattn_i_lower_k)(&w);
    if (plan->reads_late) { /* those still due: of every entry that a token and a query had */
        pimattn_i_end(&w, PIMATTN_I_IN_LIST);
        pimhw_tail tokens = pimattn_i_tokens(plan, false, pimattn_i_k_lanes(plan));
        uint32_t slot = pimattn_i_loop_tail(&w, plan->k_out_slots, tokens);
        uint32_t query = pimattn_i_loop_tail(&w, plan->k_out_queries, pimattn_i_queries(1));
        pimattn_i_lower_reads(&w, 0, query, slot, plan->k_out_queries);
    }
    pimattn_i_lower_hub(&w, PIMATTN_I_SOFTMAX, PIMHW_AWAITED);
    pimattn_i_plain(&w, PIMHW_BLOCK, lag);
    pimattn_i_plain(&w, PIMHW_EPU_WAIT, 0);
    if (plan->unit_channels > 1) w.mask &= UINT64_MAX >> (64 - plan->v_groups * plan->v_spread);
    pimattn_i_lower_v(&w);
    w.mask = all;
    pimattn_i_lower_hub(&w, PIMATTN_I_SUMS, 0);
    pimhw_program_end(program);
    return pimattn_i_made(pimhw_program_check(program, &plan->device, why), PIMATTN_ERR_DEVICE);
}

/* Blocks of a span: KV heads, or query heads. */
static uint32_t pimattn_i_units(const pimattn_plan *p)
{
    bool single = p->partition == PIMATTN_HFP && p->hfp_unit == PIMATTN_BY_QUERY_HEAD;
    return single ? p->shape.n_heads : p->shape.n_kv_heads;
}

PIMATTN_API size_t pimattn_plan_blocks(const pimattn_plan *plan, size_t n_spans)
{
    return (size_t)pimattn_i_min(SIZE_MAX, pimattn_i_mul(pimattn_i_units(plan), n_spans));
}

/* Gives a block its rows, from one on; the first one behind them. */
static uint64_t pimattn_i_block_rows(const pimattn_plan *p, pimhw_block *b, uint64_t row)
{
    for (uint32_t which = 0; which < 2; which++) {
        b->row_base[which] = (uint32_t)row;
        row = pimattn_i_add(row, pimattn_i_plan_rows(p, which, b->rest[PIMATTN_I_TOKENS - 1]));
    }
    return row;
}

/* Sorts ids in place; after: whether a must not stand before b. */
static void pimattn_i_sort(uint32_t *ids, size_t n, const void *of,
                           bool (*after)(const void *of, uint32_t a, uint32_t b))
{
    size_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < n; i++) {
            uint32_t id = ids[i];
            size_t j = i;
            for (; j >= gap && after(of, ids[j - gap], id); j -= gap)
                ids[j] = ids[j - gap];
            ids[j] = id;
        }
}

/* Longest first, ties to the lowest number. */
static bool pimattn_i_shorter(const void *of, uint32_t a, uint32_t b)
{
    const pimhw_block *blocks = (const pimhw_block *)of;
    uint64_t of_a = blocks[a].rest[PIMATTN_I_TOKENS - 1];
    uint64_t of_b = blocks[b].rest[PIMATTN_I_TOKENS - 1];
    return of_a < of_b || (of_a == of_b && a > b);
}

/* HFP: every block to the channel with the least tokens so far. Rows of the one that has most. */
static uint64_t pimattn_i_assign(const pimattn_plan *p, pimhw_block *blocks, uint32_t *order,
                                 uint32_t *list_begin, size_t n_spans)
{
    enum { NTH = PIMATTN_I_SUMS, CHANNEL }; /* numbers behind the others, 0 in the end */
    uint64_t load[PIMHW_MAX_CHANNELS] = {0}, next_row[PIMHW_MAX_CHANNELS] = {0};
    uint32_t units = pimattn_i_units(p), n_channels = p->device.n_channels;
    size_t n_blocks = n_spans * units;
    uint64_t most = 0;
    for (size_t i = 0; i < n_spans; i++)
        order[i] = (uint32_t)(i * units); /* blocks of a span are alike: only the first is sorted */
    pimattn_i_sort(order, n_spans, blocks, pimattn_i_shorter);
    memset(list_begin, 0, (n_channels + 1u) * sizeof *list_begin);
    for (size_t i = 0; i < n_blocks; i++) {
        pimhw_block *b = &blocks[order[i / units] + i % units];
        uint32_t c = 0;
        for (uint32_t other = 1; other < n_channels; other++)
            if (load[other] < load[c]) c = other;
        load[c] += b->rest[PIMATTN_I_TOKENS - 1];
        b->rest[CHANNEL] = c;
        b->rest[NTH] = list_begin[c + 1]++;
        next_row[c] = pimattn_i_block_rows(p, b, next_row[c]);
        most = pimattn_i_max(most, next_row[c]);
    }
    for (uint32_t c = 0; c < n_channels; c++)
        list_begin[c + 1] += list_begin[c];
    for (size_t i = 0; i < n_blocks; i++) {
        uint64_t *rest = blocks[i].rest;
        order[list_begin[rest[CHANNEL]] + rest[NTH]] = (uint32_t)i;
        rest[NTH] = rest[CHANNEL] = 0; /* blocks that do the same are equal */
    }
    return most;
}

enum { PIMATTN_I_MAX_SEQS = 65535, PIMATTN_I_MAX_QUERY_TOKENS = 65535 };

/* Longest context a call may have; all sums of a block then fit 64 bits. */
#define PIMATTN_I_MAX_TOKENS ((uint64_t)1 << 32)

static pimattn_status pimattn_i_spans_check(const pimattn_span *spans, size_t n_spans,
                                            pimhw_cause *why)
{
    if (!spans || n_spans == 0) return PIMATTN_I_REFUSE(why, "the batch is NULL or empty", 0);
    if (n_spans > PIMATTN_I_MAX_SEQS)
        return PIMATTN_I_REFUSE(why, "the batch has %u sequences, more than 65535", n_spans);
    uint64_t due = 0, before = 0; /* query tokens that the prefix has still; its tokens */
    for (uint64_t i = 0; i < n_spans; i++) {
        const uint64_t n = pimattn_i_span_asks(&spans[i]), context = spans[i].context_tokens;
        const bool prefix = n != spans[i].n_tokens;
        if (due == 0) before = 0;
        if (context > PIMATTN_I_MAX_TOKENS - before)
            return PIMATTN_I_FAIL(PIMATTN_ERR_ARGUMENT, why,
                                  "item %u: context_tokens is %u, not at most 2^32", i, context);
        const uint64_t room = prefix && context ? UINT64_MAX : context;
        const uint64_t most = pimattn_i_min(room, PIMATTN_I_MAX_QUERY_TOKENS);
        const char *text = most ? "item %u: n_tokens is %u, not 1 to %u; it has %u tokens"
                                : "item %u: n_tokens is %u, but it has no tokens of context";
        if (n < 1 || n > most)
            return PIMATTN_I_FAIL(PIMATTN_ERR_ARGUMENT, why, text, i, n, most, context);
        if (due > 0 && (prefix || n > due))
            return PIMATTN_I_REFUSE(why, "item %u is more than the prefix before has queries", i);
        if (prefix) before = context;
        due = prefix ? n : due - pimattn_i_min(n, due);
    }
    if (due > 0) return PIMATTN_I_REFUSE(why, "a prefix has %u queries that do not follow", due);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_plan_request(const pimattn_plan *plan, pimhw_request *request,
                                                pimhw_block *blocks, uint32_t *order,
                                                uint32_t *list_begin, const pimattn_span *spans,
                                                size_t n_spans, pimhw_cause *why)
{
    if (!request || !blocks || !order || !list_begin)
        return PIMATTN_I_REFUSE(why, "request or an array is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_plan_judge(plan, why));
    PIMATTN_I_TRY(pimattn_i_spans_check(spans, n_spans, why));
    const pimattn_shape *s = &plan->shape;
    const uint64_t units = pimattn_i_units(plan), dims = (uint64_t)s->head_dim + s->head_dim_v;
    const bool lists = plan->partition == PIMATTN_HFP;
    uint64_t rows = 0, useful = 0;
    size_t n = 0;
    pimattn_span before = {0, 0};
    for (size_t i = 0; i < n_spans; i++) {
        pimattn_span span = spans[i];
        const uint64_t asks = pimattn_i_span_asks(&span), prefix = asks != span.n_tokens;
        const uint64_t queries = pimattn_i_mul(asks, s->n_heads / units);
        if (!pimattn_i_span_take(s, &span, &before)) continue;
        if (queries > plan->n_queries)
            return PIMATTN_I_FAIL(PIMATTN_ERR_ARGUMENT, why,
                                  "item %u: %u tokens make more than the %u queries planned for",
                                  (uint64_t)i, asks, (uint64_t)plan->n_queries);
        const uint64_t tokens = pimattn_i_span_sees(s, &span);
        const uint64_t scores = pimattn_i_mul(queries, tokens);
        const uint64_t pairs = pimattn_i_mul(pimattn_i_span_pairs(s, &span), s->n_heads);
        uint64_t sums = prefix; /* of one (query, dim), that the hub adds up */
        for (uint64_t g = 0; g < plan->v_groups; g++) {
            uint64_t columns = pimattn_i_v_columns(plan, tokens, g);
            uint64_t reads = pimattn_i_ceil_div(columns, plan->v_row_columns);
            sums += plan->v_hold ? pimattn_i_min(reads, 1) : reads;
        }
        useful = pimattn_i_add(useful, pimattn_i_mul(pairs, dims));
        pimhw_block *b = blocks + n++ * units;
        for (uint64_t unit = 0; unit < units; unit++, b++) {
            memset(b, 0, sizeof *b);
            b->rest[PIMATTN_I_TOKENS - 1] = tokens;
            b->rest[PIMATTN_I_QUERIES - 1] = queries;
            b->rest[PIMATTN_I_SOFTMAX - 1] = pimattn_i_mul(scores, plan->device.epu_passes);
            b->rest[PIMATTN_I_SUMS - 1] = pimattn_i_mul(queries * s->head_dim_v, sums);
            if (!lists) rows = pimattn_i_block_rows(plan, b, rows);
        }
    }
    if (lists) rows = pimattn_i_assign(plan, blocks, order, list_begin, n);
    if (rows > UINT32_MAX)
        return PIMATTN_I_FAIL(PIMATTN_ERR_DEVICE, why,
                              "the batch needs more than 2^32 rows of a bank");
    memset(request, 0, sizeof *request);
    request->blocks = blocks;
    request->n_blocks = (uint32_t)(n * units);
    request->list_begin = lists ? list_begin : NULL;
    request->order = lists ? order : NULL;
    request->useful_macs = useful;
    return PIMATTN_OK;
}

/* How a shape lies in the units of a device. */
typedef struct pimattn_i_local {
    pimattn_shape shape; /* complete */
    uint32_t k_columns, v_columns;
    uint32_t tokens;  /* of a bank's row, K or V */
    uint32_t queries; /* that share a row: as the global buffer and the accumulators hold */
} pimattn_i_local;

/* Bank groups of a channel; flash counts channels. */
static uint32_t pimattn_i_channel_groups(const pimattn_tier *t)
{
    return t->device.flash_page_bytes ? 1 : t->device.n_bank_groups;
}

static pimattn_status pimattn_i_tier_check(const pimattn_tier *t, pimhw_cause *why)
{
    if (pimhw_config_check(&t->device, why) != PIMHW_OK) return PIMATTN_ERR_CONFIG;
    return pimattn_i_within(why, "n_devices", t->n_devices, 1, UINT32_MAX, "1 or more");
}

static pimattn_status pimattn_i_local_init(pimattn_i_local *l, const pimattn_tier *t,
                                           const pimattn_shape *shape, pimhw_cause *why)
{
    memset(l, 0, sizeof *l);
    l->shape = *shape;
    pimattn_shape *s = &l->shape;
    PIMATTN_I_TRY(pimattn_i_shape_check(s, why));
    PIMATTN_I_TRY(pimattn_i_tier_check(t, why));
    PIMATTN_I_WITHIN(why, "shape.v_in_k", s->v_in_k, 0, 0, "0: units read K and V");
    if (t->device.flash_page_bytes) return PIMATTN_OK;
    uint32_t lanes = pimhw_config_lanes(&t->device), row = pimhw_config_columns(&t->device);
    uint32_t inputs = pimhw_config_in_region(&t->device);
    uint32_t most = (uint32_t)pimattn_i_min(inputs, row);
    l->k_columns = (uint32_t)pimattn_i_ceil_div(s->head_dim, lanes);
    l->v_columns = (uint32_t)pimattn_i_ceil_div(s->head_dim_v, lanes);
    uint32_t widest = (uint32_t)pimattn_i_max(l->k_columns, l->v_columns);
    if (widest > most)
        return PIMATTN_I_UNFIT(why,
                               "shape.head_dim or head_dim_v takes %u columns; a unit's buffer and "
                               "a row of its bank hold %u (in_entries, row_bytes)",
                               (uint64_t)widest, (uint64_t)most);
    l->tokens = row / widest;
    l->queries = (uint32_t)pimattn_i_min(inputs / l->k_columns, pimattn_i_sums(&t->device));
    return PIMATTN_OK;
}

/* A query block's inputs; of every row MACs of K (space 0), then of V, for all tokens of a bank all
 * queries; its sums: o and one more column of (m, l). */
PIMATTN_API pimattn_status pimattn_tier_lower(const pimattn_tier *tier, const pimattn_shape *shape,
                                              pimhw_program *program, pimhw_cause *why)
{
    pimattn_i_local l;
    pimattn_i_writer w = {program, NULL, PIMATTN_I_IN_LIST, 1, {0}};
    if (!tier || !shape || !program)
        return PIMATTN_I_REFUSE(why, "tier, shape or program is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_local_init(&l, tier, shape, why));
    PIMATTN_I_WITHIN(why, "flash_page_bytes", tier->device.flash_page_bytes, 0, 0,
                     "0: flash takes no program");
    const uint64_t banks = tier->device.n_group_banks, row_tokens = banks * l.tokens;
    const uint64_t inputs = (uint64_t)l.queries * l.k_columns;
    pimhw_tail input = pimattn_i_tail(PIMATTN_I_QUERIES, 0, 1, l.k_columns);
    pimhw_tail rows = pimattn_i_tail(PIMATTN_I_TOKENS, 0, row_tokens, 1);
    pimattn_i_operands o = pimattn_i_sized(inputs);
    pimhw_program_init(program);
    pimattn_i_plain(&w, PIMHW_LIST, 0);
    pimattn_i_plain(&w, PIMHW_BLOCK, 0);
    uint32_t block = pimattn_i_loop_tail(&w, UINT64_MAX, pimattn_i_queries(l.queries));
    pimattn_i_limit(&w, &o.op_size, pimattn_i_less(input, block, l.queries));
    pimattn_i_step(o.gpr.step, block, inputs);
    pimattn_i_write(&w, PIMHW_WR_GB, 0, 0, &o);
    uint32_t query, row = pimattn_i_loop_tail(&w, UINT64_MAX, rows);
    for (uint32_t space = 0; space < 2; space++) {
        const uint32_t columns = space == 0 ? l.k_columns : l.v_columns;
        pimhw_tail tokens = pimattn_i_tail(PIMATTN_I_TOKENS, 0, banks, 1);
        uint32_t slot = pimattn_i_loop_tail(&w, l.tokens, pimattn_i_less(tokens, row, row_tokens));
        query = pimattn_i_loop_queries(&w, block, l.queries);
        o = pimattn_i_sized(columns);
        pimattn_i_step(o.row.step, row, 1);
        pimattn_i_step(o.column.step, slot, columns);
        if (space == 0) pimattn_i_step(o.tile.step, query, columns);
        pimattn_i_step(o.out.step, query, 1);
        pimattn_i_write(&w, PIMHW_MAC_ABK, 0, space, &o);
        pimattn_i_end(&w, slot);
    }
    pimattn_i_end(&w, row);
    query = pimattn_i_loop_queries(&w, block, l.queries);
    pimattn_i_lower_reads(&w, 0, query, pimattn_i_loop_times(&w, (uint64_t)l.v_columns + 1), 0);
    pimattn_i_end(&w, block);
    pimhw_program_end(program);
    pimhw_program_end(program);
    return pimattn_i_made(pimhw_program_check(program, &tier->device, why), PIMATTN_ERR_DEVICE);
}

/* ==========================================================================
 * [A17] TIERS: which tokens change places between tiers, and bank groups.
 *       Knows counts, scores and the times it is told; no keys, no values, no devices.
 * ========================================================================== */

PIMATTN_API pimattn_status pimattn_importance(float *importance, const float *score,
                                              size_t n_tokens, size_t n_known, float lambda)
{
    if (n_tokens > 0 && (!importance || !score)) return PIMATTN_ERR_ARGUMENT;
    bool good = lambda >= 0 && lambda <= 1;
    for (size_t i = 0; i < n_tokens; i++)
        good &= score[i] >= 0 && score[i] <= FLT_MAX;
    if (!good) return PIMATTN_ERR_ARGUMENT;
    /* In double: in float two values near FLT_MAX might sum to infinity. */
    double now = (double)lambda, before = 1 - now;
    size_t known = n_known < n_tokens ? n_known : n_tokens;
    for (size_t i = 0; i < known; i++)
        importance[i] = (float)(now * (double)score[i] + before * (double)importance[i]);
    if (known < n_tokens)
        memcpy(importance + known, score + known, (n_tokens - known) * sizeof *score);
    return PIMATTN_OK;
}

PIMATTN_API const char *pimattn_stop_str(uint32_t stop)
{
    static const char names[][12] = {"ratio met", "no gain", "list full", "tier empty"};
    return stop < PIMATTN_N_STOP ? names[stop] : NULL;
}

/* x = x by + y, NULL: 0; no limb can overflow its carry. Numbers in limbs of 32 bits, the lowest
 * first, at most 322 bits: 8 times a sum (63), ratios (32), tokens of 7 tiers (32 each). */
static void pimattn_i_exact_fuse(uint32_t x[12], uint32_t by, const uint32_t *y)
{
    uint64_t carry = 0;
    for (int i = 0; i < 12; i++) {
        carry += (uint64_t)x[i] * by + (y ? y[i] : 0);
        x[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* What the tiers hold, in integers, so that no sum hangs on its order: importance in units of 2^-31
 * of the power of two above the greatest, below 2^63 for all tokens together. */
typedef struct pimattn_i_shares {
    double per_unit;
    uint8_t *tier; /* [n_tokens] as they will be; from PIMATTN_MAX_TIERS on: this */
    uint64_t sum[PIMATTN_MAX_TIERS];
    uint32_t n[PIMATTN_MAX_TIERS];
    uint32_t over[PIMATTN_MAX_TIERS];  /* what a sum is divided by: 1, or its tokens */
    uint32_t ratio[PIMATTN_MAX_TIERS]; /* below 2^29, so that 8 add up */
} pimattn_i_shares;

static uint32_t pimattn_i_share_units(const pimattn_i_shares *s, float importance)
{
    return (uint32_t)((double)importance * s->per_unit + 0.5);
}

/* Whether tiers 0 to t together hold less than their share beside tier t + 1: sum / over times the
 * ratio of the other side, of both times over[0] .. over[t + 1]. */
static bool pimattn_i_is_short(const pimattn_i_shares *s, uint32_t t)
{
    uint32_t sum[12] = {0}, ratio = 0;
    for (uint32_t i = 0; i <= t + 1; i++) {
        uint32_t x[12] = {(uint32_t)s->sum[i], (uint32_t)(s->sum[i] >> 32)};
        for (uint32_t other = 0; other <= t + 1; other++)
            if (other != i && s->over[other] > 1) pimattn_i_exact_fuse(x, s->over[other], NULL);
        for (int k = 0; k < 12 && i > t; k++)
            sum[k] = ~sum[k]; /* -sum - 1 */
        pimattn_i_exact_fuse(x, i <= t ? s->ratio[t + 1] : ratio, sum);
        memcpy(sum, x, sizeof sum);
        ratio += s->ratio[i];
    }
    return sum[11] >> 31 == 0; /* slower - faster - 1 is not negative */
}

/* Tokens, the one with the least key first. */
typedef struct pimattn_i_heap {
    uint64_t *key; /* [n] */
    size_t n;
} pimattn_i_heap;

/* In the order of importance and, of equals, of tokens; falling: the most important first. */
static uint64_t pimattn_i_key(float importance, size_t token, bool falling)
{
    uint32_t bits = pimattn_i_bits(importance + 0.0f);   /* -0 is 0 */
    bits ^= bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31; /* in the order of numbers */
    return (uint64_t)(falling ? ~bits : bits) << 32 | token;
}

static void pimattn_i_heap_sink(const pimattn_i_heap *h, size_t at)
{
    uint64_t key = h->key[at];
    for (size_t child = 2 * at + 1; child < h->n; child = 2 * at + 1) {
        if (child + 1 < h->n) child += h->key[child + 1] < h->key[child];
        if (h->key[child] > key) break;
        h->key[at] = h->key[child];
        at = child;
    }
    h->key[at] = key;
}

static void pimattn_i_heap_build(const pimattn_i_heap *h)
{
    for (size_t i = h->n / 2; i-- > 0;)
        pimattn_i_heap_sink(h, i);
}

static uint32_t pimattn_i_heap_take(pimattn_i_heap *h)
{
    uint32_t token = (uint32_t)h->key[0];
    h->key[0] = h->key[--h->n];
    pimattn_i_heap_sink(h, 0);
    return token;
}

/* Swaps between tier t and the next. Let d1 <= d2 .. be the importance in the faster tier and s1 >=
 * s2 .. in the slower. After k swaps what went down, d1 .. dk, is at most what is left above, what
 * came up, s1 .. sk, at least what is left below; dk < sk. So the next is d(k+1) against s(k+1) if
 * both are there and it is a gain, else none. No token is swapped twice; heaps only shrink. */
static pimattn_stop pimattn_i_pair(const pimattn_schedule *s, pimattn_i_shares *shares, uint32_t t,
                                   pimattn_swap *swaps, size_t *n_swaps)
{
    uint8_t *const tier = shares->tier;
    pimattn_i_heap fast = {(uint64_t *)s->scratch, shares->n[t]};
    pimattn_i_heap slow = {NULL, shares->n[t + 1]};
    if (!pimattn_i_is_short(shares, t)) return PIMATTN_STOP_RATIO;
    if (fast.n == 0) return PIMATTN_STOP_EMPTY; /* a slower one without tokens has its share */
    uint64_t *to_fast = fast.key, *to_slow = slow.key = fast.key + fast.n + 1;
    /* Both are written, one is kept: tiers come in no order that a branch could guess. */
    for (size_t i = 0; i < s->n_tokens; i++) {
        *to_fast = pimattn_i_key(s->importance[i], i, false);
        *to_slow = pimattn_i_key(s->importance[i], i, true);
        to_fast += tier[i] == t;
        to_slow += tier[i] == t + 1;
    }
    pimattn_i_heap_build(&fast);
    pimattn_i_heap_build(&slow);
    do {
        if (fast.n == 0 || slow.n == 0) return PIMATTN_STOP_NO_GAIN;
        pimattn_swap swap = {pimattn_i_heap_take(&fast), pimattn_i_heap_take(&slow), t};
        float down = s->importance[swap.down], up = s->importance[swap.up];
        if (!(up > down)) return PIMATTN_STOP_NO_GAIN;
        if (*n_swaps == s->n_most) return PIMATTN_STOP_MOST;
        swaps[(*n_swaps)++] = swap;
        tier[swap.down] = (uint8_t)(t + 1);
        tier[swap.up] = (uint8_t)t;
        uint64_t gain = pimattn_i_share_units(shares, up) - pimattn_i_share_units(shares, down);
        shares->sum[t] += gain;
        shares->sum[t + 1] -= gain;
    } while (pimattn_i_is_short(shares, t));
    return PIMATTN_STOP_RATIO;
}

/* Judges a schedule; what its tiers hold, if it can be done. */
static pimattn_status pimattn_i_shares_init(pimattn_i_shares *shares, const pimattn_schedule *s,
                                            pimhw_cause *why)
{
    int exponent;
    double most = 0, top = 0; /* importance, ratio */
    if (s->n_tiers < 1 || s->n_tiers > PIMATTN_MAX_TIERS)
        return PIMATTN_I_REFUSE(why, "n_tiers %u: 1 to 8", s->n_tiers);
    if (s->n_tokens > UINT32_MAX)
        return PIMATTN_I_REFUSE(why, "n_tokens %u: below 2^32", s->n_tokens);
    if (!s->ratio || (s->n_tokens > 0 && (!s->importance || !s->tier || !s->scratch)))
        return PIMATTN_I_REFUSE(why, "importance, tier, ratio or scratch missing", 0);
    for (uint32_t i = 0; i < s->n_tiers; i++) {
        if (!(s->ratio[i] > 0 && s->ratio[i] <= DBL_MAX))
            return PIMATTN_I_REFUSE(why, "ratio[%u] not positive and finite", i);
        top = fmax(top, s->ratio[i]);
    }
    for (size_t i = 0; i < s->n_tokens; i++) {
        float x = s->importance[i];
        if (!(x >= 0 && x <= FLT_MAX))
            return PIMATTN_I_REFUSE(why, "importance[%u] negative or not finite", i);
        if (s->tier[i] >= s->n_tiers && s->tier[i] < PIMATTN_MAX_TIERS)
            return PIMATTN_I_REFUSE(why, "tier[%u] beyond the last", i);
        if (s->tier[i] < s->n_tiers && (double)x > most) most = (double)x;
    }
    memset(shares, 0, sizeof *shares);
    (void)frexp(most, &exponent);
    shares->per_unit = ldexp(1, 31 - exponent);
    if (s->scratch) shares->tier = (uint8_t *)s->scratch + 8 * (s->n_tokens + 2);
    for (size_t i = 0; i < s->n_tokens; i++) {
        uint64_t t = pimattn_i_min(s->tier[i], PIMATTN_MAX_TIERS);
        shares->tier[i] = (uint8_t)t;
        if (t == PIMATTN_MAX_TIERS) continue;
        shares->sum[t] += pimattn_i_share_units(shares, s->importance[i]);
        shares->n[t]++;
    }
    (void)frexp(top, &exponent);
    for (uint32_t i = 0; i < s->n_tiers; i++) {
        shares->ratio[i] = (uint32_t)fmax(1, ldexp(s->ratio[i], 29 - exponent));
        shares->over[i] = s->mean && shares->n[i] > 0 ? shares->n[i] : 1;
    }
    return PIMATTN_OK;
}

/* Of the scratch the heaps take 8 (n_tokens + 2) bytes, the tiers as they will be the rest. */
PIMATTN_API size_t pimattn_schedule_bytes(size_t n_tokens)
{
    return (size_t)pimattn_i_min(SIZE_MAX, pimattn_i_add(pimattn_i_mul(n_tokens, 9), 16));
}

PIMATTN_API pimattn_status pimattn_schedule_swaps(const pimattn_schedule *s, pimattn_swap *swaps,
                                                  size_t *n_swaps, uint32_t *stop, pimhw_cause *why)
{
    pimattn_i_shares shares;
    if (!s || !n_swaps || (s->n_most > 0 && !swaps) || (s->n_tiers > 1 && !stop))
        return PIMATTN_I_REFUSE(why, "schedule, swaps, n_swaps or stop missing", 0);
    PIMATTN_I_TRY(pimattn_i_shares_init(&shares, s, why));
    *n_swaps = 0;
    for (uint32_t t = s->n_tiers - 1; t-- > 0;)
        stop[t] = (uint32_t)pimattn_i_pair(s, &shares, t, swaps, n_swaps);
    return PIMATTN_OK;
}

/* Every step with every candidate: attention where the tokens lie, then swaps. Arrays: swaps, of a
 * pair at most the fewer tokens; importance, score; what takes part, 0 or 1; tiers by candidate. */
static pimattn_status pimattn_i_replay(const pimattn_profile *p, pimattn_candidate *candidates,
                                       size_t n_candidates, void *scratch, void *arrays,
                                       pimhw_cause *why)
{
    const size_t n = p->n_tokens, most = p->n_most < n ? p->n_most : n;
    pimattn_swap *swaps = (pimattn_swap *)arrays;
    float *importance = (float *)(void *)(swaps + n), *score = importance + n;
    uint8_t *takes_part = (uint8_t *)(score + n);
    uint32_t stop[PIMATTN_MAX_TIERS];
    for (uint64_t step = 0; step < p->n_steps; step++) {
        bool good = p->score(p->user, step, score) &&
                    pimattn_importance(importance, score, n, step ? n : 0, p->lambda) == PIMATTN_OK;
        if (!good) return PIMATTN_I_REFUSE(why, "step %u: no score, a wrong one, or lambda", step);
        pimattn_i_heap h = {(uint64_t *)scratch, n}; /* the best take part */
        for (size_t i = 0; i < n; i++)
            h.key[i] = pimattn_i_key(score[i], i, true);
        pimattn_i_heap_build(&h);
        memset(takes_part, 0, n);
        for (uint64_t left = pimattn_i_ceil_div(n, p->sparsity); left > 0; left--)
            takes_part[pimattn_i_heap_take(&h)] = 1;
        const bool counts = step >= p->n_first;
        uint8_t *tier = takes_part + n;
        for (pimattn_candidate *c = candidates; c < candidates + n_candidates; c++, tier += n) {
            const pimattn_schedule s = {importance, tier,    n,    c->ratio,
                                        p->n_tiers, p->mean, most, scratch};
            uint64_t active[PIMATTN_MAX_TIERS] = {0};
            double slowest = 0;
            size_t n_swaps;
            for (size_t i = 0; i < n; i++)
                active[tier[i]] += takes_part[i];
            for (uint32_t t = 0; t < p->n_tiers; t++)
                slowest = fmax(slowest, (double)active[t] * p->active_ns[t]);
            PIMATTN_I_TRY(pimattn_schedule_swaps(&s, swaps, &n_swaps, stop, why));
            for (const pimattn_swap *swap = swaps; swap < swaps + n_swaps; swap++) {
                tier[swap->down] = (uint8_t)(swap->tier + 1);
                tier[swap->up] = (uint8_t)swap->tier;
                c->swaps[swap->tier] += counts;
                slowest += p->swap_ns[swap->tier];
            }
            if (counts) c->step_ns += slowest;
        }
    }
    return PIMATTN_OK;
}

/* What is wrong of all that pimattn_schedule_swaps does not check; NULL: nothing. */
static const char *pimattn_i_profile_fault(const pimattn_profile *p)
{
    uint64_t room = 0;
    if (!p->score || !p->room || !p->active_ns) return "score, room or active_ns is NULL";
    if (p->n_steps <= p->n_first) return "n_steps is not above n_first";
    if (p->n_tokens < 1 || p->n_tokens > UINT32_MAX) return "n_tokens is not 1 to 2^32 - 1";
    if (p->sparsity < 1) return "sparsity is 0";
    if (p->n_tiers < 1 || p->n_tiers > PIMATTN_MAX_TIERS) return "n_tiers is not 1 to 8";
    if (p->n_tiers > 1 && !p->swap_ns) return "swap_ns is NULL";
    for (uint32_t t = 0; t < p->n_tiers; t++) {
        double swap_ns = t + 1 < p->n_tiers ? p->swap_ns[t] : 0;
        if (!(p->active_ns[t] >= 0 && p->active_ns[t] <= DBL_MAX)) return "active_ns is no time";
        if (!(swap_ns >= 0 && swap_ns <= DBL_MAX)) return "swap_ns is no time";
        room = pimattn_i_add(room, p->room[t]);
    }
    if (room < p->n_tokens) return "room is less than n_tokens";
    return !p->allocator.alloc == !p->allocator.release ? NULL : "allocator is half there";
}

PIMATTN_API pimattn_status pimattn_tier_profile(const pimattn_profile *p,
                                                pimattn_candidate *candidates, size_t n_candidates,
                                                size_t *best, pimhw_cause *why)
{
    if (!p || !candidates || !best)
        return PIMATTN_I_REFUSE(why, "profile, candidates or best is NULL", 0);
    const char *fault = n_candidates ? pimattn_i_profile_fault(p) : "n_candidates is 0";
    if (fault) return PIMATTN_I_REFUSE(why, fault, 0);
    pimhw_allocator a = p->allocator.alloc ? p->allocator : pimhw_allocator_default();
    uint64_t n = p->n_tokens, scratch = pimattn_i_up64(pimattn_schedule_bytes(p->n_tokens));
    uint64_t fixed = scratch + n * (sizeof(pimattn_swap) + 2 * sizeof(float) + 1);
    uint64_t bytes = pimattn_i_add(fixed, pimattn_i_mul(n, n_candidates));
    unsigned char *memory = (unsigned char *)pimattn_i_alloc(&a, bytes, 64);
    if (!memory) return PIMATTN_I_LACK(why, "no memory for %u candidates", n_candidates);
    for (size_t i = 0; i < n_candidates; i++) {
        candidates[i].step_ns = 0;
        memset(candidates[i].swaps, 0, sizeof candidates[i].swaps);
        unsigned char *to = memory + fixed + i * n;
        for (uint64_t t = 0, left = n, some; left > 0; t++, left -= some, to += some) {
            some = pimattn_i_min(p->room[t], left);
            memset(to, (int)t, (size_t)some);
        }
    }
    pimattn_status status =
        pimattn_i_replay(p, candidates, n_candidates, memory, memory + scratch, why);
    pimattn_i_release(&a, memory, bytes);
    if (status != PIMATTN_OK) return status;
    double counted = (double)(p->n_steps - p->n_first);
    *best = 0;
    for (size_t i = 0; i < n_candidates; i++) {
        candidates[i].step_ns /= counted;
        for (uint32_t t = 0; t + 1 < PIMATTN_MAX_TIERS; t++)
            candidates[i].swaps[t] /= counted;
        if (candidates[i].step_ns < candidates[*best].step_ns) *best = i;
    }
    return PIMATTN_OK;
}

/* The bank groups of a tier's devices, and how often tokens of each took part in the last steps
 * [PAM 6.1]. What a token weighs is in its window: bit i is set if it took part i steps ago. */
typedef struct pimattn_i_groups {
    uint32_t n_groups;
    uint32_t at;         /* the step that runs, in ring */
    uint64_t n_tokens;   /* room of all; the first groups have one more if it does not divide */
    uint32_t *residents; /* [n_groups] */
    uint32_t *sums;      /* [n_groups]: of a ring */
    uint32_t *best;      /* [2 n_groups]: [i] the cheaper of [2i], [2i + 1]; [n_groups + g] is g */
    uint16_t *ring;      /* [n_groups][PIMATTN_TIER_STEPS]: tokens that took part in a step */
    bool stale;          /* best does not stand */
} pimattn_i_groups;

static uint64_t pimattn_i_groups_bytes(uint32_t n_groups)
{
    return n_groups * (uint64_t)(4 * sizeof(uint32_t) + PIMATTN_TIER_STEPS * sizeof(uint16_t));
}

/* Empty groups in memory of pimattn_i_groups_bytes, aligned for uint32_t; n_groups is not 0. */
static void pimattn_i_groups_init(pimattn_i_groups *g, void *memory, uint32_t n_groups,
                                  uint64_t n_tokens)
{
    memset(g, 0, sizeof *g);
    memset(memory, 0, (size_t)pimattn_i_groups_bytes(n_groups));
    g->n_groups = n_groups;
    g->n_tokens = n_tokens;
    g->residents = (uint32_t *)memory;
    g->sums = g->residents + n_groups;
    g->best = g->sums + n_groups;
    for (uint32_t i = 0; i < n_groups; i++)
        g->best[(size_t)n_groups + i] = i;
    g->ring = (uint16_t *)(void *)(g->best + 2 * (size_t)n_groups);
    g->stale = true;
}

/* What the paper counts: which group each token is in, and counters and a sum of 16 bits each. */
static void pimattn_i_groups_book(uint32_t n_groups, uint64_t n_tokens, uint64_t *id_bytes,
                                  uint64_t *count_bytes)
{
    uint64_t id_bits = 0;
    while ((uint64_t)1 << id_bits < n_groups)
        id_bits++;
    *id_bytes = pimattn_i_ceil_div(pimattn_i_mul(n_tokens, id_bits), 8);
    *count_bytes = n_groups * (uint64_t)(PIMATTN_TIER_STEPS + 1) * sizeof(uint16_t);
}

/* What decides between two groups: one that is not full, the least sum, the fewest residents. */
static uint64_t pimattn_i_groups_cost(const pimattn_i_groups *g, uint32_t group)
{
    const uint64_t room = g->n_tokens / g->n_groups + (group < g->n_tokens % g->n_groups);
    const uint64_t full = g->residents[group] >= room; /* sums are below 2^20 */
    return full << 63 | (uint64_t)g->sums[group] << 32 | g->residents[group];
}

/* Puts best right above one group, or everywhere if it is stale; of equals the lowest. */
static void pimattn_i_groups_settle(pimattn_i_groups *g, uint32_t group)
{
    size_t from = g->stale ? g->n_groups - 1 : ((size_t)g->n_groups + group) / 2;
    for (size_t i = from; i > 0; i = g->stale ? i - 1 : i / 2) {
        const uint32_t a = g->best[2 * i], b = g->best[2 * i + 1];
        const uint64_t of_a = pimattn_i_groups_cost(g, a), of_b = pimattn_i_groups_cost(g, b);
        g->best[i] = of_a < of_b || (of_a == of_b && a < b) ? a : b;
    }
    g->stale = false;
}

/* Adds by, 1 or -1, at each step of the window; a counter stays at its ends, its sum with it. */
static void pimattn_i_groups_count(pimattn_i_groups *g, uint32_t group, uint32_t window, int by)
{
    for (uint32_t ago = 0; ago < PIMATTN_TIER_STEPS; ago++) {
        uint32_t slot = (g->at + PIMATTN_TIER_STEPS - ago) % PIMATTN_TIER_STEPS;
        uint16_t *count = &g->ring[(size_t)group * PIMATTN_TIER_STEPS + slot];
        if (!(window >> ago & 1) || *count == (by > 0 ? UINT16_MAX : 0)) continue;
        *count = (uint16_t)(*count + by);
        g->sums[group] += (uint32_t)by;
    }
}

/* Puts a token with this window into the cheapest group; false if all are full. It weighs its
 * window and 1, else idle tokens would pile up in one group. The 1 is a count of the step that runs
 * and leaves with it after PIMATTN_TIER_STEPS steps, even if the token left earlier. */
static bool pimattn_i_groups_place(pimattn_i_groups *g, uint32_t window, uint32_t *group)
{
    if (g->stale) pimattn_i_groups_settle(g, 0);
    uint32_t to = g->best[1];
    if (pimattn_i_groups_cost(g, to) >> 63) return false; /* full */
    pimattn_i_groups_count(g, to, window, 1);
    pimattn_i_groups_count(g, to, 1, 1);
    g->residents[to]++;
    pimattn_i_groups_settle(g, to);
    *group = to;
    return true;
}

/* A token leaves and takes what is in its window. */
static void pimattn_i_groups_leave(pimattn_i_groups *g, uint32_t group, uint32_t window)
{
    PIMATTN_ASSERT(g->residents[group] > 0);
    pimattn_i_groups_count(g, group, window, -1);
    g->residents[group]--;
    if (!g->stale) pimattn_i_groups_settle(g, group);
}

/* The next step begins; what was PIMATTN_TIER_STEPS steps ago is forgotten. */
static void pimattn_i_groups_step(pimattn_i_groups *g)
{
    g->at = (g->at + 1) % PIMATTN_TIER_STEPS;
    for (uint32_t i = 0; i < g->n_groups; i++) {
        uint16_t *count = &g->ring[(size_t)i * PIMATTN_TIER_STEPS + g->at];
        g->sums[i] -= *count;
        *count = 0;
    }
    g->stale = true;
}

/* ==========================================================================
 * [A18] TIER TIME: what a step on a tier costs, and moving to it.
 *       Knows devices and loads; not which tokens those are.
 * ========================================================================== */

PIMATTN_API uint64_t pimattn_reduction_ps(const pimhw_config *device, uint32_t head_dim_v,
                                          uint64_t n_partials)
{
    if (!device || !device->unit_MHz || !device->reduction_lanes) return 0;
    uint64_t steps = pimattn_i_ceil_div(head_dim_v, device->reduction_lanes);
    uint64_t clocks = pimattn_i_mul(steps, pimattn_i_add(n_partials, 1)), MHz = device->unit_MHz;
    return pimattn_i_add(pimattn_i_mul(clocks / MHz, 1000000), clocks % MHz * 1000000 / MHz);
}

/* What one partial takes where there is such a unit. */
static double pimattn_i_partial_ns(const pimhw_config *device, uint32_t head_dim_v)
{
    return (double)pimattn_i_ceil_div(head_dim_v, device->reduction_lanes) * 1e3 / device->unit_MHz;
}

/* Whether bank groups merge; else each bank's partial leaves the device. */
static bool pimattn_i_reduces(const pimattn_tier *t)
{
    return t->device.unit_MHz && t->device.reduction_lanes && t->device.reduction_units;
}

/* Units that share a bank group; of flash, a channel. */
static uint64_t pimattn_i_group_units(const pimattn_tier *t)
{
    if (!t->device.flash_page_bytes) return t->device.n_group_banks;
    return pimattn_i_max(1, t->device.flash_units / t->device.n_channels);
}

/* The program on one channel: once, and for its share of refreshes as often as 16 tREFI take. */
static pimattn_status pimattn_i_program_time(pimattn_tier_reading *r, const pimattn_tier *t,
                                             const pimattn_shape *s, pimhw_request *request,
                                             pimhw_cause *why)
{
    pimhw_program program;
    pimhw_readings row, *own = &r->device;
    pimhw_device *device;
    pimattn_tier one = *t;
    one.device.n_channels = 1;
    PIMATTN_I_TRY(pimattn_tier_lower(&one, s, &program, why));
    pimhw_status made = pimhw_device_create(&device, &one.device, why);
    PIMATTN_I_TRY(pimattn_i_made(made, PIMATTN_ERR_DEVICE));
    bool timed = pimhw_device_time(device, own, &program, request, NULL, why) == PIMHW_OK;
    uint64_t most = 16 * (uint64_t)t->device.tREFI;
    row = *own, request->repeats = 1;
    if (timed && t->device.refresh && own->cycles > 0 && own->cycles < most) {
        request->repeats = (uint32_t)pimattn_i_ceil_div(most, own->cycles);
        timed = pimhw_device_time(device, &row, &program, request, NULL, why) == PIMHW_OK;
    }
    pimhw_device_destroy(device);
    if (!timed) return PIMATTN_ERR_DEVICE;
    r->program_ns = row.ns / request->repeats;
    own->average_mW = row.average_mW, own->total_pJ = 0;
    for (int k = 0; k < PIMHW_N_ENERGY; k++)
        own->total_pJ += own->energy_pJ[k] = row.energy_pJ[k] / request->repeats;
    return PIMATTN_OK;
}

/* A DRAM's local attention: program, softmax that opening the next row does not hide, energy. */
static pimattn_status pimattn_i_dram_time(pimattn_tier_reading *r, const pimattn_tier *t,
                                          const pimattn_i_local *l, const pimattn_tier_load *load,
                                          pimhw_cause *why)
{
    pimhw_request request;
    const pimhw_config *c = &t->device;
    pimhw_allocator a = c->allocator.alloc ? c->allocator : pimhw_allocator_default();
    uint64_t row_tokens = (uint64_t)c->n_group_banks * l->tokens, all = 0;
    uint64_t hidden = (uint64_t)c->tRTP + c->tRP + c->tRCD_MAC;
    if (c->controller == PIMHW_STATIC_GAPS && c->row_opening == PIMHW_ROW_HIDDEN) hidden = 0;
    double tokens = 0;
    pimhw_block *blocks = (pimhw_block *)pimattn_i_zeroed(&a, load->n_blocks, sizeof *blocks);
    if (!blocks) return PIMATTN_I_LACK(why, "no memory for %u blocks of a tier", load->n_blocks);
    for (size_t i = 0; i < load->n_blocks; i++) {
        all += pimattn_i_ceil_div(load->blocks[i], row_tokens);
        tokens += (double)load->blocks[i] * c->n_bank_groups;
        blocks[i].row_base[1] = UINT32_MAX / 2; /* of V; a block has no more of K, nor tokens */
        blocks[i].rest[PIMATTN_I_TOKENS - 1] = load->blocks[i];
        blocks[i].rest[PIMATTN_I_QUERIES - 1] = load->n_queries;
    }
    memset(&request, 0, sizeof request);
    request.blocks = blocks;
    request.n_blocks = (uint32_t)load->n_blocks;
    pimattn_status status = pimattn_i_program_time(r, t, &l->shape, &request, why);
    pimattn_i_release(&a, blocks, load->n_blocks * sizeof *blocks);
    all = pimattn_i_mul(all, pimattn_i_ceil_div(load->n_queries, l->queries));
    if (c->softmax_ck > hidden)
        r->softmax_ns = (double)all * (double)(c->softmax_ck - hidden) * c->tCK_ps / 1e3;
    r->program_ns += r->softmax_ns;
    r->energy_pJ = r->device.total_pJ * (double)load->tokens / tokens;
    return status;
}

/* Partials that leave devices. */
static uint64_t pimattn_i_outputs(const pimattn_tier *t, const pimattn_tier_load *load)
{
    if (pimattn_i_reduces(t)) return load->device_outputs;
    return pimattn_i_mul(load->groups, pimattn_i_group_units(t));
}

enum { PIMATTN_I_STAGES = 5 }; /* q in, local attention, bank group, device, partials out */

/* What leaves and reaches devices and bank groups, and when: blocks one by one through the stages,
 * in a part per query block; a part waits for its stage. */
static void pimattn_i_tier_pipe(pimattn_tier_reading *r, const pimattn_tier *t,
                                const pimattn_i_local *l, const pimattn_tier_load *load)
{
    const pimhw_config *c = &t->device;
    const bool reduces = pimattn_i_reduces(t);
    const uint64_t dk = l->shape.head_dim, partial = (uint64_t)l->shape.head_dim_v + 2;
    const uint64_t n = load->n_queries, units = pimattn_i_group_units(t);
    const uint64_t groups = pimattn_i_mul(load->groups, n * c->element_bytes);
    r->bare_bytes = pimattn_i_mul(groups, dk + units * partial);
    r->group_bytes = reduces ? pimattn_i_mul(groups, dk + partial) : r->bare_bytes;
    r->link_bytes =
        pimattn_i_add(pimattn_i_mul(load->device_outputs, n * dk * c->element_bytes),
                      pimattn_i_mul(pimattn_i_outputs(t, load), n * partial * sizeof(float)));
    double end[PIMATTN_I_STAGES] = {0}, ns[PIMATTN_I_STAGES] = {0}, tokens = 0;
    uint64_t parts = l->queries ? pimattn_i_ceil_div(n, l->queries) : 1;
    double n_parts = (double)load->n_blocks * (double)parts, q = load->n_queries;
    double partials = (double)load->device_groups, blocks = (double)load->device_blocks;
    double out = reduces ? blocks : partials * (double)units; /* partials that leave */
    double link = c->link_MBps / 1e3;
    ns[0] = blocks * q * l->shape.head_dim * c->element_bytes / link / n_parts;
    if (reduces) {
        double lanes_ns = pimattn_i_partial_ns(c, l->shape.head_dim_v);
        ns[2] = (double)load->n_blocks * q * ((double)units + 1) * lanes_ns / n_parts;
        ns[3] = q * (partials + blocks) * lanes_ns / c->reduction_units / n_parts;
    }
    ns[4] = out * q * (double)partial * sizeof(float) / link / n_parts;
    for (size_t i = 0; i < load->n_blocks; i++)
        tokens += (double)load->blocks[i];
    for (size_t i = 0; i < load->n_blocks * parts; i++) {
        ns[1] = r->local_ns * ((double)load->blocks[i / parts] / tokens / (double)parts);
        double ready = 0; /* when the stage before is through */
        for (int k = 0; k < PIMATTN_I_STAGES; k++)
            ready = end[k] = (ready > end[k] ? ready : end[k]) + ns[k];
    }
    r->reduce_work_ns = n_parts * (ns[2] + ns[3]);
    r->link_work_ns = n_parts * (ns[0] + ns[4]);
    r->input_ns = end[1] > r->local_ns ? end[1] - r->local_ns : 0;
    r->reduce_ns = end[3] - end[1];
    r->link_ns = end[4] - end[3];
    r->ns = r->local_ns + r->input_ns + r->reduce_ns + r->link_ns;
}

/* Judges a load: something to do in every count, not more of it in a device than in all. */
static pimattn_status pimattn_i_load_check(const pimattn_tier_load *load, bool flash,
                                           pimhw_cause *why)
{
    const struct {
        char name[16];
        uint64_t of_one, of_all;
    } counts[] = {{"tokens", load->device_tokens, load->tokens},
                  {"groups", load->device_groups, load->groups},
                  {"blocks", load->device_blocks, load->device_outputs},
                  {"pages", flash ? load->channel_pages : 1, flash ? load->pages : 1}};
    PIMATTN_I_WITHIN(why, "load.n_queries", load->n_queries, 1, 65535, NULL);
    PIMATTN_I_WITHIN(why, "load.n_blocks", load->n_blocks, 0, load->blocks ? UINT32_MAX / 2 : 0,
                     "as blocks are");
    for (size_t i = 0; i < load->n_blocks; i++)
        PIMATTN_I_WITHIN(why, "tokens of a block", load->blocks[i], 1, UINT32_MAX / 2,
                         "1 to 2^31 - 1");
    for (int i = 0; i < 4 && load->n_blocks > 0; i++)
        if (counts[i].of_one < 1 || counts[i].of_one > counts[i].of_all)
            return PIMATTN_I_UNFIT(why, "load: %u %s in its fullest part, %u in all",
                                   counts[i].of_one, counts[i].name, counts[i].of_all);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_time(pimattn_tier_reading *reading,
                                             const pimattn_tier *tier, const pimattn_shape *shape,
                                             const pimattn_tier_load *load, pimhw_cause *why)
{
    pimattn_i_local l;
    pimattn_tier_reading r;
    if (!reading || !tier || !shape || !load)
        return PIMATTN_I_REFUSE(why, "reading, tier, shape or load is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_local_init(&l, tier, shape, why));
    const pimhw_config *c = &tier->device;
    const bool flash = c->flash_page_bytes > 0;
    PIMATTN_I_TRY(pimattn_i_load_check(load, flash, why));
    memset(&r, 0, sizeof r);
    r.size = sizeof r, r.version = 1;
    if (load->n_blocks > 0) {
        const uint64_t dims = (uint64_t)l.shape.head_dim + l.shape.head_dim_v;
        const double tokens = (double)load->device_tokens;
        double flops = 2 * tokens * (double)dims * (load->gqa_flops ? load->n_queries : 1);
        r.kv_bytes = pimattn_i_mul(load->tokens, dims * c->element_bytes);
        r.read_bytes = flash ? pimattn_i_mul(load->pages, c->flash_page_bytes) : r.kv_bytes;
        if (flash) { /* pages of the fullest channel, or the controller's units, if slower */
            double macs = tokens * load->n_queries * (double)dims;
            double rate = (double)c->flash_units * pimhw_config_lanes(c) * c->unit_MHz; /* per us */
            r.program_ns = (double)pimhw_flash_read_ps(c, load->channel_pages) / 1e3;
            if (rate > 0) r.program_ns = fmax(r.program_ns, macs / rate * 1e3);
        } else {
            PIMATTN_I_TRY(pimattn_i_dram_time(&r, tier, &l, load, why));
        }
        if (c->cap_MFLOPS) r.cap_ns = flops * 1e3 / c->cap_MFLOPS;
        r.local_ns = fmax(r.program_ns, r.cap_ns);
        pimattn_i_tier_pipe(&r, tier, &l, load);
    }
    *reading = r;
    return PIMATTN_OK;
}

/* A status of tier i, whose cause does not say which tier it is about. */
static pimattn_status pimattn_i_of_tier(pimattn_status status, uint32_t i, pimhw_cause *why)
{
    if (status == PIMATTN_OK || !why) return status;
    const pimhw_cause what = *why;
    return PIMATTN_I_FAIL(status, why, "tier[%u]: %s", (uint64_t)i, what.text);
}

PIMATTN_API pimattn_status pimattn_step_time(pimattn_step_reading *reading,
                                             const pimattn_tier *tiers, uint32_t n_tiers,
                                             const pimattn_shape *shape,
                                             const pimattn_tier_load *loads, double moves_ns,
                                             bool beside_moves, pimhw_cause *why)
{
    pimattn_step_reading r;
    if (!reading || !tiers || !loads)
        return PIMATTN_I_REFUSE(why, "reading, tiers or loads is NULL", 0);
    if (n_tiers < 1 || n_tiers > PIMATTN_MAX_TIERS)
        return PIMATTN_I_REFUSE(why, "n_tiers is %u, not 1 to 8", n_tiers);
    if (!(moves_ns >= 0 && moves_ns <= DBL_MAX))
        return PIMATTN_I_REFUSE(why, "moves_ns is negative or not finite", 0);
    memset(&r, 0, sizeof r);
    r.size = sizeof r, r.version = 1;
    double partials = 0;
    for (uint32_t i = 0; i < n_tiers; i++) {
        pimattn_status status = pimattn_tier_time(&r.tiers[i], &tiers[i], shape, &loads[i], why);
        if (status != PIMATTN_OK) return pimattn_i_of_tier(status, i, why);
        if (r.tiers[i].ns > r.tiers[r.slowest].ns) r.slowest = i;
        if (loads[i].n_blocks > 0)
            partials += (double)pimattn_i_outputs(&tiers[i], &loads[i]) * loads[i].n_queries;
    }
    uint32_t dims = shape->head_dim_v ? shape->head_dim_v : shape->head_dim;
    r.attention_ns = r.tiers[r.slowest].ns;
    for (uint32_t i = 0; i < n_tiers; i++)
        r.idle_ns[i] = r.attention_ns - r.tiers[i].ns;
    if (pimattn_i_reduces(&tiers[0]))
        r.merge_ns = partials * pimattn_i_partial_ns(&tiers[0].device, dims) /
                     tiers[0].device.reduction_units / tiers[0].n_devices;
    r.moves_ns = beside_moves ? fmax(0.0, moves_ns - (r.attention_ns + r.merge_ns)) : moves_ns;
    r.ns = r.attention_ns + r.merge_ns + r.moves_ns;
    *reading = r;
    return PIMATTN_OK;
}

/* Deals units (blocks; of flash sequences with all KV heads) to channels, the longest first. If a
 * channel has whole units, neighbours are on different devices; else each has channels of its own,
 * side by side. Device 0 and its channel 0 get no fewer tokens than others; of bank groups another
 * may have more, where a unit has fewer channels than one that is a little shorter. */
static void pimattn_i_deal(pimattn_tier_load *to, uint64_t *list, const pimattn_tier *tier,
                           const pimattn_shape *s, const uint64_t *tokens, size_t n_seqs,
                           bool scattered)
{
    const uint64_t page_bytes = tier->device.flash_page_bytes, n_devices = tier->n_devices;
    const uint64_t token_bytes = (uint64_t)s->n_kv_heads * tier->device.element_bytes *
                                 ((uint64_t)s->head_dim + s->head_dim_v);
    const uint64_t page_tokens = scattered ? 1 : pimattn_i_max(1, page_bytes / token_bytes);
    const uint64_t token_pages = page_bytes ? pimattn_i_ceil_div(token_bytes, page_bytes) : 0;
    const uint64_t units = page_bytes ? 1 : s->n_kv_heads, heads = s->n_kv_heads / units;
    const uint64_t each = tier->device.n_channels, channels = n_devices * each;
    const uint64_t spread = pimattn_i_max(1, channels / pimattn_i_max(1, n_seqs * units));
    const uint64_t all_groups = pimattn_i_channel_groups(tier);
    uint64_t counted = 0, n_groups = 0, n_blocks = 0; /* of a device */
    for (uint64_t unit = 0; unit < n_seqs * units; unit++) {
        uint64_t channel = unit * spread, before = UINT64_MAX; /* device of the channel before */
        for (uint64_t n, left = tokens[unit / units]; left > 0; left -= n, channel++) {
            n = pimattn_i_min(pimattn_i_ceil_div(tokens[unit / units], spread), left);
            const uint64_t device = spread == 1 ? unit % n_devices : channel / each;
            const uint64_t groups = pimattn_i_min(n, all_groups) * heads;
            const uint64_t blocks = device == before ? 0 : heads;
            const uint64_t pages = pimattn_i_mul(pimattn_i_ceil_div(n, page_tokens), token_pages);
            before = device;
            to->tokens += n * heads;
            to->groups += groups;
            to->device_outputs += blocks;
            to->pages += pages;
            if (channel % channels == 0) {
                to->channel_pages += pages;
                for (uint64_t head = 0; head < heads; head++)
                    list[to->n_blocks++] = pimattn_i_ceil_div(n, all_groups);
            }
            if (device == 0) to->device_tokens += n * heads;
            if (spread == 1 && device > 0) continue; /* device 0 has no less */
            if (device != counted) n_groups = n_blocks = 0;
            counted = device;
            to->device_groups = pimattn_i_max(to->device_groups, n_groups += groups);
            to->device_blocks = pimattn_i_max(to->device_blocks, n_blocks += blocks);
        }
    }
}

PIMATTN_API pimattn_status pimattn_tier_spread(pimattn_tier_load *load, uint64_t *blocks,
                                               const pimattn_tier *tier, const pimattn_shape *shape,
                                               const uint64_t *tokens, size_t n_seqs,
                                               bool scattered, pimhw_cause *why)
{
    pimattn_i_local l;
    if (!load || !tier || !shape || (n_seqs > 0 && (!blocks || !tokens)))
        return PIMATTN_I_REFUSE(why, "load, blocks, tier, shape or tokens is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_local_init(&l, tier, shape, why));
    for (size_t i = 0; i < n_seqs; i++)
        PIMATTN_I_WITHIN(why, "tokens of a sequence", tokens[i], 0,
                         i ? tokens[i - 1] : UINT32_MAX / 2,
                         "below 2^31 and at most those of the one before");
    while (n_seqs > 0 && tokens[n_seqs - 1] == 0)
        n_seqs--;
    memset(load, 0, sizeof *load);
    load->blocks = blocks;
    load->n_queries = l.shape.n_heads / l.shape.n_kv_heads;
    pimattn_i_deal(load, blocks, tier, &l.shape, tokens, n_seqs, scattered);
    return PIMATTN_OK;
}

/* Time of equal runs out of a tier or into it, over all its devices and channels; *bytes becomes
 * those of the whole pages that they touch. */
static double pimattn_i_runs_ns(const pimattn_tier *t, uint64_t *bytes, uint64_t n_runs, bool write)
{
    const pimhw_config *c = &t->device;
    const uint64_t page = c->flash_page_bytes, channels = (uint64_t)t->n_devices * c->n_channels;
    uint64_t ps = 0;
    if (page > 0) {
        uint64_t n_pages = pimattn_i_ceil_div(pimattn_i_ceil_div(*bytes, n_runs), page);
        *bytes = pimattn_i_mul(n_runs, pimattn_i_mul(n_pages, page));
        n_pages = pimattn_i_ceil_div(*bytes / page, channels);
        ps = write ? pimhw_flash_write_ps(c, n_pages) : pimhw_flash_read_ps(c, n_pages);
    }
    return fmax((double)ps / 1e3, (double)*bytes / ((double)t->n_devices * c->link_MBps) * 1e3);
}

PIMATTN_API pimattn_status pimattn_relayout_time(pimattn_relayout_reading *r,
                                                 const pimattn_tier *from, const pimattn_tier *to,
                                                 const pimattn_relayout *relayout, uint64_t bytes,
                                                 uint64_t n_runs, pimhw_cause *why)
{
    if (!r || !from || !to || !relayout)
        return PIMATTN_I_REFUSE(why, "reading, from, to or relayout is NULL", 0);
    if (bytes > 0 && n_runs == 0)
        return PIMATTN_I_REFUSE(why, "n_runs is 0, but %u bytes are moved", bytes);
    PIMATTN_I_TRY(pimattn_i_tier_check(from, why));
    PIMATTN_I_TRY(pimattn_i_tier_check(to, why));
    PIMATTN_I_WITHIN(why, "host_percent", relayout->host_percent, 0, 100, NULL);
    memset(r, 0, sizeof *r);
    r->size = sizeof *r, r->version = 1;
    r->read_bytes = r->written_bytes = bytes;
    r->read_ns = pimattn_i_runs_ns(from, &r->read_bytes, n_runs, false);
    r->write_ns = pimattn_i_runs_ns(to, &r->written_bytes, n_runs, true);
    if (bytes > 0) r->start_ns = (double)n_runs * relayout->start_ns;
    if (relayout->by_host) {
        double slower = 100.0 / (relayout->host_percent ? relayout->host_percent : 10);
        r->read_ns *= slower, r->write_ns *= slower;
        r->ns = r->start_ns + (r->read_ns + r->write_ns);
    } else {
        if (relayout->link_MBps) r->link_ns = (double)bytes * 1e3 / relayout->link_MBps;
        r->ns = r->start_ns + fmax(r->link_ns, fmax(r->read_ns, r->write_ns));
    }
    return PIMATTN_OK;
}

/* Bytes in 1e-12 s that the units of a tier can take in: of banks or flash, within their peak. */
static double pimattn_i_tier_rate(const pimattn_tier *t)
{
    const pimhw_config *d = &t->device;
    double rate, cap = d->cap_MFLOPS * 1e-6 * d->element_bytes / 2; /* 2 FLOP an element */
    if (d->flash_page_bytes) {
        double cells = (double)d->flash_dies * d->flash_page_bytes / (1e3 * d->flash_tR_ns);
        rate = d->n_channels * fmin(cells, d->flash_MBps * 1e-6);
    } else {
        double columns = (double)d->n_channels * pimhw_config_banks(d) * d->column_bytes;
        rate = columns / ((double)d->tCCD_MAC * d->tCK_ps);
    }
    return t->n_devices * (cap > 0 && cap < rate ? cap : rate);
}

/* ==========================================================================
 * [A19] PLACES: where the tokens of a sequence lie in tiers, and their moves.
 *       Knows slots, activity and importance; nothing of what the bytes in a slot mean.
 * ========================================================================== */

/* A token of a layer. */
typedef struct pimattn_i_token {
    uint32_t slot;   /* in its tier: bank groups take turns */
    uint32_t step;   /* when `active` was last looked at */
    uint16_t active; /* bit j: it took part j steps before that; only 10 are looked at */
    uint8_t tier;
} pimattn_i_token;

/* The tokens of a sequence in a layer. New ones matter most, until they have a score. */
typedef struct pimattn_i_table {
    pimattn_i_token *token; /* [n_most], with a slot each below n; memory of all three */
    float *importance;      /* [n_most], of the first n_scored */
    uint32_t *sorted;       /* [n_most]: by tier, bank group, position; for one call */
    uint64_t n, n_most, n_scored;
} pimattn_i_table;

/* What a token takes in these. */
enum { PIMATTN_I_TOKEN_BYTES = sizeof(pimattn_i_token) + sizeof(float) + sizeof(uint32_t) };

/* What a tier holds. */
typedef struct pimattn_i_bin {
    const pimattn_tier *tier; /* among the rules */
    uint64_t n_used;
    unsigned char *bytes;  /* [n_tokens][slot_bytes]; memory of all arrays here */
    uint64_t memory_bytes; /* of these */
    uint32_t *next;        /* [n_tokens]: vacant slots of a bank group behind one another */
    uint32_t *vacant;      /* [n_groups] the first */
    uint32_t *begin;       /* [n_groups + 1] of its tokens in a table's `sorted` */
    uint32_t *page_mark;   /* flash, [n_tokens]: the call that last read a page */
    uint64_t *channels;    /* [2][n_groups] of a call: tokens, and pages, of each channel */
    uint64_t *devices;     /* [3 * n_devices]: tokens, bank groups and blocks of each */
    uint64_t token_bytes;  /* what units read and ways carry for a slot: elements of the device */
    uint64_t partials, active; /* of this step */
    pimattn_i_groups groups;
    uint64_t moves[2]; /* of this step: to the tier before, and to the next */
    uint64_t due[2];   /* moves that no reading has had yet */
} pimattn_i_bin;

typedef struct pimattn_i_tiered {
    const pimhw_allocator *allocator;
    uint64_t memory_bytes; /* of this and the arrays here */
    pimattn_tiers rules;
    uint64_t slot_bytes, n_slots, n_tables;
    uint32_t step;
    pimattn_i_bin bins[PIMATTN_MAX_TIERS];
    pimattn_i_table *tables; /* [n_tables] */
    unsigned char *bounce;   /* [slot_bytes] */
    uint64_t *blocks;        /* [n_tiers][max_seqs * n_kv_heads], of the slowest channel of each */
    uint64_t n_blocks;
    uint32_t mark;                      /* number of a call */
    bool asking;                        /* transfer is running */
    uint64_t oldest[PIMATTN_MAX_TIERS]; /* of a table that is extended: no earlier one is there */
    pimattn_step_reading reading;
    pimhw_cause *why;
} pimattn_i_tiered;

static uint32_t pimattn_i_tier_groups(const pimattn_tier *t)
{
    uint64_t n = (uint64_t)t->n_devices * t->device.n_channels * pimattn_i_channel_groups(t);
    return (uint32_t)pimattn_i_min(n, t->n_tokens);
}

static uint32_t pimattn_i_group_of(const pimattn_i_bin *b, uint32_t slot)
{
    return slot % b->groups.n_groups;
}

static unsigned char *pimattn_i_slot(const pimattn_i_tiered *st, const pimattn_i_token *t)
{
    return st->bins[t->tier].bytes + t->slot * st->slot_bytes;
}

/* Brings a token's activity to this step; its counts leave a group's window by themselves. */
static void pimattn_i_token_now(const pimattn_i_tiered *st, pimattn_i_token *t)
{
    const uint32_t ago = st->step - t->step;
    t->active = (uint16_t)(ago < PIMATTN_TIER_STEPS ? (uint32_t)t->active << ago : 0);
    t->step = st->step;
}

/* Gives a token a slot of a tier that has one, and says where that is. */
static unsigned char *pimattn_i_token_place(pimattn_i_tiered *st, pimattn_i_token *t, uint32_t tier)
{
    pimattn_i_bin *b = &st->bins[tier];
    uint32_t group = 0;
    PIMATTN_ASSERT(b->n_used < b->tier->n_tokens); /* so one is placed */
    (void)pimattn_i_groups_place(&b->groups, t->active, &group);
    t->tier = (uint8_t)tier;
    t->slot = b->vacant[group];
    b->vacant[group] = b->next[t->slot];
    b->n_used++;
    return pimattn_i_slot(st, t);
}

static void pimattn_i_token_leave(pimattn_i_tiered *st, pimattn_i_token *t)
{
    pimattn_i_bin *b = &st->bins[t->tier];
    uint32_t group = pimattn_i_group_of(b, t->slot);
    pimattn_i_token_now(st, t);
    pimattn_i_groups_leave(&b->groups, group, t->active);
    b->next[t->slot] = b->vacant[group];
    b->vacant[group] = t->slot;
    b->n_used--;
}

/* Whether the way from one tier to another works; asked before anything changes. */
static pimattn_status pimattn_i_transfer_ask(pimattn_i_tiered *st, uint32_t from, uint32_t to)
{
    if (!st->rules.transfer) return PIMATTN_OK;
    st->asking = true;
    bool works = st->rules.transfer(st->rules.transfer_user, from, to, st->bins[from].token_bytes);
    st->asking = false;
    if (works) return PIMATTN_OK;
    return PIMATTN_I_FAIL(PIMATTN_ERR_DEVICE, st->why, "a transfer from tier %u to tier %u failed",
                          (uint64_t)from, (uint64_t)to);
}

static void pimattn_i_moved(pimattn_i_tiered *st, uint32_t from, uint32_t to)
{
    for (uint32_t t = from; t != to; t = to > t ? t + 1 : t - 1) {
        st->bins[t].moves[to > t]++; /* over tiers in between: step by step */
        st->bins[t].due[to > t]++;
    }
}

/* Moves a token into a tier that has room, or where `back`, which goes back, makes it; either may
 * get any bank group that has room. */
static pimattn_status pimattn_i_token_move(pimattn_i_tiered *st, pimattn_i_token *t, uint32_t to,
                                           pimattn_i_token *back)
{
    const uint32_t from = t->tier;
    PIMATTN_I_TRY(pimattn_i_transfer_ask(st, from, to));
    if (back) PIMATTN_I_TRY(pimattn_i_transfer_ask(st, to, from));
    const void *bytes = pimattn_i_slot(st, t);
    pimattn_i_token_leave(st, t); /* another tier's slot: the bytes stay what they are */
    if (back) {
        const unsigned char *its = pimattn_i_slot(st, back);
        bytes = memcpy(st->bounce, bytes, (size_t)st->slot_bytes);
        pimattn_i_token_leave(st, back);
        memcpy(pimattn_i_token_place(st, back, from), its, (size_t)st->slot_bytes);
        pimattn_i_moved(st, to, from);
    }
    memcpy(pimattn_i_token_place(st, t, to), bytes, (size_t)st->slot_bytes);
    pimattn_i_moved(st, from, to);
    return PIMATTN_OK;
}

/* Lets tokens of a table from n on go; slots before `kept` stay, as if their tokens were new. */
static void pimattn_i_table_cut(pimattn_i_tiered *st, pimattn_i_table *table, uint64_t n,
                                uint64_t kept)
{
    while (table->n > kept)
        pimattn_i_token_leave(st, &table->token[--table->n]);
    for (uint64_t i = n; i < table->n; i++) {
        pimattn_i_token *t = &table->token[i];
        pimattn_i_bin *b = &st->bins[t->tier];
        pimattn_i_token_now(st, t);
        pimattn_i_groups_count(&b->groups, pimattn_i_group_of(b, t->slot), t->active, -1);
        b->groups.stale = true;
        t->active = 0;
    }
    table->n_scored = pimattn_i_min(table->n_scored, n);
}

static pimattn_status pimattn_i_table_room(pimattn_i_tiered *st, pimattn_i_table *table, uint64_t n)
{
    pimattn_i_table to = *table;
    if (n <= table->n_most) return PIMATTN_OK;
    to.n_most = pimattn_i_up64(pimattn_i_max(n, 2 * table->n_most));
    to.token = (pimattn_i_token *)pimattn_i_zeroed(st->allocator, to.n_most, PIMATTN_I_TOKEN_BYTES);
    if (!to.token) return PIMATTN_I_LACK(st->why, "no memory for a table of %u tokens", n);
    to.importance = (float *)(void *)(to.token + to.n_most);
    to.sorted = (uint32_t *)(void *)(to.importance + to.n_most);
    if (table->n) memcpy(to.token, table->token, (size_t)table->n * sizeof *to.token);
    if (table->n) memcpy(to.importance, table->importance, (size_t)table->n * sizeof(float));
    pimattn_i_release(st->allocator, table->token, table->n_most * PIMATTN_I_TOKEN_BYTES);
    *table = to;
    return PIMATTN_OK;
}

/* Sorts the first n tokens. Afterwards the tokens of bank group g end at begin[g] of its bin. */
static void pimattn_i_table_sort(pimattn_i_tiered *st, pimattn_i_table *table, uint64_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < st->rules.n_tiers; i++)
        memset(st->bins[i].begin, 0, (st->bins[i].groups.n_groups + 1u) * sizeof(uint32_t));
    for (uint64_t t = 0; t < n; t++) {
        pimattn_i_bin *b = &st->bins[table->token[t].tier];
        b->begin[pimattn_i_group_of(b, table->token[t].slot) + 1]++;
    }
    for (pimattn_i_bin *b = st->bins; b < st->bins + st->rules.n_tiers; b++) {
        b->begin[0] = at; /* where group 0 begins; filling turns begins into ends */
        for (uint32_t g = 0; g < b->groups.n_groups; g++)
            at = b->begin[g + 1] += b->begin[g];
    }
    for (uint64_t t = 0; t < n; t++) {
        pimattn_i_bin *b = &st->bins[table->token[t].tier];
        table->sorted[b->begin[pimattn_i_group_of(b, table->token[t].slot)]++] = (uint32_t)t;
    }
}

/* From a tier on, the fastest with room for one more token, or that can make it: what matters least
 * of the table's own there, the oldest of equals, moves on likewise. One of these tiers has room.
 * Only tokens with a score are looked through: a long prefill stays linear. */
static pimattn_status pimattn_i_make_room(pimattn_i_tiered *st, pimattn_i_table *table,
                                          uint32_t *tier)
{
    for (; st->bins[*tier].n_used == st->bins[*tier].tier->n_tokens; ++*tier) {
        PIMATTN_ASSERT(*tier + 1 < st->rules.n_tiers);
        uint32_t to = *tier + 1;
        uint64_t least = st->oldest[*tier];
        while (least < table->n && table->token[least].tier != *tier)
            least++;
        st->oldest[*tier] = least;
        for (uint64_t i = least; i < table->n_scored; i++)
            if (table->token[i].tier == *tier && table->importance[i] < table->importance[least])
                least = i;
        if (least == table->n) continue;
        PIMATTN_I_TRY(pimattn_i_make_room(st, table, &to));
        st->oldest[to] = pimattn_i_min(st->oldest[to], least);
        return pimattn_i_token_move(st, &table->token[least], to, NULL);
    }
    return PIMATTN_OK;
}

/* New tokens up to n, each into the fastest tier there is room in. */
static pimattn_status pimattn_i_table_extend(pimattn_i_tiered *st, pimattn_i_table *table,
                                             uint64_t n)
{
    memset(st->oldest, 0, sizeof st->oldest);
    for (; table->n < n; table->n++) {
        pimattn_i_token *t = &table->token[table->n];
        uint32_t tier = 0;
        memset(t, 0, sizeof *t);
        t->step = st->step;
        PIMATTN_I_TRY(pimattn_i_make_room(st, table, &tier));
        (void)pimattn_i_token_place(st, t, tier);
    }
    return PIMATTN_OK;
}

static void pimattn_i_tiered_free(pimattn_i_tiered *st, const pimhw_allocator *a)
{
    if (!st) return;
    for (uint64_t i = 0; i < st->n_tables; i++)
        pimattn_i_release(a, st->tables[i].token, st->tables[i].n_most * PIMATTN_I_TOKEN_BYTES);
    for (uint32_t i = 0; i < st->rules.n_tiers; i++)
        pimattn_i_release(a, st->bins[i].bytes, st->bins[i].memory_bytes);
    pimattn_i_release(a, st, st->memory_bytes);
}

/* All slots of a tier vacant. */
static bool pimattn_i_bin_init(pimattn_i_bin *b, const pimattn_tier *t, uint64_t slot_bytes,
                               const pimhw_allocator *a)
{
    const uint64_t n = t->n_tokens, slots = pimattn_i_mul(n, slot_bytes);
    const uint32_t n_groups = pimattn_i_tier_groups(t);
    const uint64_t words = 2 * (uint64_t)n_groups + 3 * (uint64_t)t->n_devices;
    const uint64_t halves = 2 * n + 2 * (uint64_t)n_groups + 1;
    b->tier = t;
    b->memory_bytes = pimattn_i_add(slots, words * sizeof(uint64_t) + halves * sizeof(uint32_t) +
                                               pimattn_i_groups_bytes(n_groups));
    b->bytes = pimattn_i_alloc_huge(a, b->memory_bytes);
    if (!b->bytes) return false;
    b->channels = (uint64_t *)(void *)(b->bytes + slots);
    b->devices = b->channels + 2 * (size_t)n_groups;
    b->next = (uint32_t *)(void *)(b->channels + words);
    b->page_mark = b->next + n;
    b->vacant = b->page_mark + n;
    b->begin = b->vacant + n_groups;
    pimattn_i_groups_init(&b->groups, b->begin + n_groups + 1, n_groups, n);
    memset(b->page_mark, 0, (size_t)n * sizeof *b->page_mark);
    for (uint32_t g = 0; g < n_groups; g++)
        b->vacant[g] = g;
    for (uint64_t i = 0; i < n; i++)
        b->next[i] = (uint32_t)i + n_groups;
    return true;
}

/* The configuration has ours then. A failure leaves what there is to _tiered_free. */
static pimattn_status pimattn_i_tiered_create(pimattn_i_tiered **store, pimattn_config *c,
                                              uint64_t slot_bytes, pimhw_cause *why)
{
    const pimattn_tiers *rules = c->tiers;
    const pimhw_allocator *a = &c->allocator;
    const uint64_t n_tables = pimattn_i_mul(c->max_seqs, c->shape.n_layers);
    const uint64_t n_blocks = (uint64_t)c->max_seqs * c->shape.n_kv_heads;
    const uint64_t words = pimattn_i_mul(n_blocks, rules->n_tiers);
    uint64_t bytes = pimattn_i_mul(n_tables, sizeof(pimattn_i_table));
    bytes = pimattn_i_add(bytes, pimattn_i_mul(words, sizeof(uint64_t)));
    bytes = pimattn_i_add(bytes, sizeof(pimattn_i_tiered) + slot_bytes);
    pimattn_i_tiered *st = (pimattn_i_tiered *)pimattn_i_zeroed(a, 1, bytes);
    *store = st;
    if (!st) return PIMATTN_I_LACK(why, "no memory for the tiers", 0);
    st->allocator = a;
    st->memory_bytes = bytes;
    st->rules = *rules;
    c->tiers = &st->rules;
    st->slot_bytes = slot_bytes;
    st->n_tables = n_tables;
    st->n_blocks = n_blocks;
    if (st->rules.lambda == 0.0f) st->rules.lambda = 0.6f;
    if (rules->ratio[0] == 0) { /* 56, shared out by bandwidth, and 1 for the slowest */
        double sum = 0;
        for (uint32_t i = 0; i + 1 < rules->n_tiers; i++)
            sum += pimattn_i_tier_rate(&rules->tier[i]);
        for (uint32_t i = 0; i + 1 < rules->n_tiers; i++)
            st->rules.ratio[i] = 56 * pimattn_i_tier_rate(&rules->tier[i]) / sum;
        st->rules.ratio[rules->n_tiers - 1] = 1;
    }
    st->tables = (pimattn_i_table *)(void *)(st + 1);
    st->blocks = (uint64_t *)(void *)(st->tables + n_tables);
    st->bounce = (unsigned char *)(st->blocks + words);
    for (uint32_t i = 0; i < rules->n_tiers; i++) {
        st->rules.tier[i].device.allocator = *a;
        st->n_slots += rules->tier[i].n_tokens;
        st->bins[i].token_bytes =
            (uint64_t)c->shape.n_kv_heads * st->rules.tier[i].device.element_bytes *
            ((uint64_t)c->shape.head_dim + (c->shape.v_in_k ? 0 : c->shape.head_dim_v));
        if (!pimattn_i_bin_init(&st->bins[i], &st->rules.tier[i], slot_bytes, a))
            return PIMATTN_I_LACK(why, "no memory for the tiers", 0);
    }
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A20] PLANNER: what a batch costs: its plan, programs, clocks and readings.
 *       Knows plans, devices and how long rows are; nothing of pages, sequences or values.
 * ========================================================================== */

/* What times a batch: plans, programs, request data, device. */
typedef struct pimattn_i_planner {
    pimattn_config config;
    pimhw_cause *why;
    pimhw_device *device;
    const pimattn_span *spans; /* of the batch, [n_spans] */
    size_t n_spans;
    size_t (*spans_of)(void *user, const pimattn_span **spans); /* of `layer`; NULL: all alike */
    void *spans_user;
    uint64_t planned_queries; /* what plans and programs are made for; 0: nothing yet */
    uint32_t n_plans;         /* 1, or the mappings of V to choose from */
    uint32_t taken;           /* the plan that request is of */
    uint32_t layer;           /* of the call under way; its window holds */
    uint32_t io_bytes;        /* of an element of q and out on the link */
    pimattn_plan plans[PIMATTN_V_CHEAPEST];
    pimhw_program programs[PIMATTN_V_CHEAPEST];
    pimhw_request request;
    uint64_t table_bytes; /* of blocks and order */
    pimhw_block *blocks;
    uint32_t *order;
    uint32_t list_begin[PIMHW_MAX_CHANNELS + 1];
} pimattn_i_planner;

static void pimattn_i_planner_free(pimattn_i_planner *p)
{
    pimhw_device_destroy(p->device);
    pimattn_i_release(&p->config.allocator, p->blocks, p->table_bytes);
}

/* Queries that one token makes in a block. */
static uint64_t pimattn_i_token_queries(const pimattn_config *c)
{
    bool single = c->partition == PIMATTN_HFP && c->hfp_unit == PIMATTN_BY_QUERY_HEAD;
    return single ? 1 : c->shape.n_heads / c->shape.n_kv_heads;
}

/* Leaves what it allocated to pimattn_i_planner_free, also when it fails. */
static pimattn_status pimattn_i_planner_init(pimattn_i_planner *p, const pimattn_config *config,
                                             size_t max_spans, pimhw_cause *why)
{
    memset(p, 0, sizeof *p);
    p->config = *config;
    p->why = why;
    if (config->way == PIMATTN_DEVICE) { /* tokens stay where they are in the banks */
        p->config.shape.window = 0;
        p->config.shape.windows = NULL;
    }
    const pimattn_shape *s = &config->shape;
    if (s->k_type == PIMATTN_INT8 && s->v_type == PIMATTN_INT8 && config->way == PIMATTN_HOST)
        p->config.device.element_bytes = 1; /* as many lanes as a column has bytes; q stays */
    p->io_bytes = config->device.element_bytes;
    p->config.device.allocator = config->allocator;
    uint64_t n_blocks = pimattn_i_mul(max_spans, config->shape.n_heads);
    p->table_bytes = pimattn_i_mul(n_blocks, sizeof *p->blocks + sizeof *p->order);
    p->blocks = (pimhw_block *)pimattn_i_alloc(&config->allocator, p->table_bytes, 64);
    if (!p->blocks)
        return PIMATTN_I_LACK(why, "no memory for the blocks of %u sequences", max_spans);
    p->order = (uint32_t *)(void *)(p->blocks + n_blocks);
    return pimattn_i_made(pimhw_device_create(&p->device, &p->config.device, why),
                          PIMATTN_ERR_CONFIG);
}

/* Whether two plans put V into the same places. */
static bool pimattn_i_same_v(const pimattn_plan *a, const pimattn_plan *b)
{
    return a->v_spread == b->v_spread && (a->v_packed == b->v_packed || a->v_passes == 1);
}

/* Plans and programs of all mappings that may be taken; the first is always there. */
static pimattn_status pimattn_i_planner_plan(pimattn_i_planner *p, uint64_t queries)
{
    const pimattn_config *c = &p->config;
    const bool all = c->v_mapping == PIMATTN_V_CHEAPEST;
    p->planned_queries = p->n_plans = 0;
    for (uint32_t v = PIMATTN_V_A; v < PIMATTN_V_CHEAPEST; v++) {
        if (!all && v != c->v_mapping) continue;
        pimattn_plan *to = &p->plans[p->n_plans];
        PIMATTN_I_TRY(pimattn_plan_init(to, &c->shape, &c->device, c->partition, c->hfp_unit,
                                        c->row_reuse_off, queries, p->why));
        pimattn_i_plan_v(to, v);
        bool new_one = !all || to->v_mapping == v;
        for (const pimattn_plan *of = p->plans; of < to; of++)
            new_one = new_one && (!pimattn_i_same_v(to, of) || to->v_queries != of->v_queries);
        if (new_one) PIMATTN_I_TRY(pimattn_plan_lower(to, &p->programs[p->n_plans], p->why));
        if (all) to->v_wanted = PIMATTN_V_CHEAPEST;
        p->n_plans += new_one;
    }
    p->planned_queries = queries;
    return PIMATTN_OK;
}

/* Times what is requested. */
static pimattn_status pimattn_i_planner_clock(pimattn_i_planner *p, pimhw_readings *r)
{
    pimhw_status status =
        pimhw_device_time(p->device, r, &p->programs[p->taken], &p->request, NULL, p->why);
    return status == PIMHW_OK ? PIMATTN_OK : PIMATTN_ERR_DEVICE;
}

/* One layer of the batch by plan i; r, if it is not NULL: timed. */
static pimattn_status pimattn_i_planner_run(pimattn_i_planner *p, uint32_t i, pimhw_readings *r)
{
    p->taken = i;
    p->plans[i].shape.window = pimattn_i_window_of(&p->config.shape, p->layer);
    PIMATTN_I_TRY(pimattn_plan_request(&p->plans[i], &p->request, p->blocks, p->order,
                                       p->list_begin, p->spans, p->n_spans, p->why));
    return r ? pimattn_i_planner_clock(p, r) : PIMATTN_OK;
}

/* The same by the cheapest plan; of several each is timed. */
static pimattn_status pimattn_i_planner_best(pimattn_i_planner *p, pimhw_readings *r)
{
    pimhw_readings least, its;
    uint32_t best = 0;
    uint64_t queries = 0;
    const bool window = pimattn_i_window_of(&p->config.shape, p->layer) > 0;
    for (size_t i = 0; i < p->n_spans; i++)
        if (!window || !(p->spans[i].n_tokens & PIMATTN_PREFIX))
            queries = pimattn_i_max(queries, pimattn_i_span_asks(&p->spans[i]));
    queries *= pimattn_i_token_queries(&p->config);
    if (queries != p->planned_queries) PIMATTN_I_TRY(pimattn_i_planner_plan(p, queries));
    if (p->n_plans == 1) return pimattn_i_planner_run(p, 0, r);
    for (uint32_t i = 0; i < p->n_plans; i++) {
        PIMATTN_I_TRY(pimattn_i_planner_run(p, i, &its));
        bool less = i == 0 || its.cycles < least.cycles ||
                    (its.cycles == least.cycles && its.total_pJ < least.total_pJ);
        if (less) least = its, best = i;
    }
    if (r) *r = least;
    return best == p->taken ? PIMATTN_OK : pimattn_i_planner_run(p, best, NULL);
}

/* Makes plan, program and request data for a batch, the cheapest if there is a choice; r, if it is
 * not NULL: one layer of it. The programs outlive batch after batch. */
static pimattn_status pimattn_i_planner_take(pimattn_i_planner *p, pimhw_readings *r,
                                             const pimattn_span *spans, size_t n_spans)
{
    p->spans = spans;
    p->n_spans = n_spans;
    return pimattn_i_planner_best(p, r);
}

static void pimattn_i_planner_go(pimattn_i_planner *p, uint32_t layer)
{
    p->layer = layer;
    if (p->spans_of) p->n_spans = p->spans_of(p->spans_user, &p->spans);
}

/* Bytes of K and V that the layer of the request sees, as they are read: int8 with its scales. */
static uint64_t pimattn_i_layer_bytes(const pimattn_i_planner *p)
{
    const pimattn_shape *s = &p->plans[p->taken].shape;
    const uint32_t type[] = {s->k_type, s->v_type}, dim[] = {s->head_dim, s->head_dim_v};
    uint64_t tokens = 0, each = 0;
    for (int i = 0; i < (s->v_in_k ? 1 : 2); i++) {
        bool int8 = type[i] == PIMATTN_INT8 && p->config.way == PIMATTN_HOST;
        each += int8 ? dim[i] + sizeof(float) : (uint64_t)dim[i] * p->config.device.element_bytes;
    }
    pimattn_span before = {0, 0};
    for (size_t i = 0; i < p->n_spans; i++) {
        pimattn_span span = p->spans[i];
        if (pimattn_i_span_take(s, &span, &before)) tokens += pimattn_i_span_sees(s, &span);
    }
    return tokens * s->n_kv_heads * each;
}

/* Where most clocks of a run went, by kinds. Of those that waited for a MAC, as many multiply as
 * the channel's MACs take beyond what is theirs: the others wait for a sum. */
static uint32_t pimattn_i_bound_of(const pimhw_readings *run, const pimhw_config *d)
{
    const uint64_t *of = run->breakdown_ck, own = of[PIMHW_SPENT_MAC];
    const uint64_t each = pimattn_i_max(d->tCCD_MAC, pimattn_i_max(d->tCCD_S, d->tCCD_L));
    const uint64_t take = pimattn_i_max(pimattn_i_mul(run->critical_macs, each), own);
    const uint64_t mac = own + pimattn_i_min(of[PIMHW_WAIT_OPERAND], take - own);
    const uint64_t softmax = of[PIMHW_WAIT_EPU];
    const uint64_t row = of[PIMHW_SPENT_ACT] + of[PIMHW_SPENT_PRE] + of[PIMHW_WAIT_ROW];
    const uint64_t refresh = of[PIMHW_SPENT_REF] + of[PIMHW_WAIT_REFRESH];
    const uint64_t io = run->cycles - (mac + row + softmax + refresh); /* all else */
    const uint64_t ck[PIMATTN_N_BOUND] = {mac, row, io, softmax, refresh, 0};
    uint32_t most = PIMATTN_BOUND_MAC;
    for (uint32_t i = 0; i < PIMATTN_N_BOUND; i++)
        if (ck[i] > ck[most]) most = i;
    return most;
}

/* The step: layers of every window by themselves, in one go or as so many times the one. */
static pimattn_status pimattn_i_planner_step(pimattn_i_planner *p, pimattn_readings *r,
                                             double *mean_kv_bytes)
{
    const pimattn_shape *s = &p->config.shape;
    const pimhw_config *d = &p->config.device;
    const uint32_t own = p->layer, n_layers = s->n_layers;
    for (uint32_t i = 0; i < n_layers; i++) {
        const uint64_t window = pimattn_i_window_of(s, i);
        uint32_t first = 0, n = 0;
        while (pimattn_i_window_of(s, first) != window)
            first++;
        if (first < i) continue; /* it was among those of `first` */
        for (uint32_t k = i; k < n_layers; k++)
            n += pimattn_i_window_of(s, k) == window;
        pimhw_readings its = r->device;
        uint32_t times = n;
        pimattn_i_planner_go(p, i);
        if (s->windows) PIMATTN_I_TRY(pimattn_i_planner_best(p, &its));
        if (d->refresh && n > 1 && its.cycles < 16 * (uint64_t)d->tREFI) {
            p->request.repeats = n;
            PIMATTN_I_TRY(pimattn_i_planner_clock(p, &its));
            times = 1;
        }
        r->step_ck = pimattn_i_add(r->step_ck, pimattn_i_mul(its.cycles, times));
        r->step_us += its.ns * 1e-3 * times;
        r->refresh_share += (double)its.breakdown_ck[PIMHW_SPENT_REF] * times; /* clocks so far */
        r->refresh_share += (double)its.breakdown_ck[PIMHW_WAIT_REFRESH] * times;
        for (int k = 0; k < PIMHW_N_ENERGY; k++)
            r->energy_pJ[k] += its.energy_pJ[k] * times;
        const uint64_t kv_bytes = pimattn_i_layer_bytes(p);
        *mean_kv_bytes += (double)kv_bytes * n / n_layers;
        if (pimattn_i_window_of(s, own) != window) continue;
        r->kv_bytes = kv_bytes;
        r->bound = pimattn_i_bound_of(&its, d);
        r->layers_timed = n / times;
    }
    pimattn_i_planner_go(p, own);
    if (r->step_ck) r->refresh_share /= (double)r->step_ck;
    r->layer_ns = r->step_us * 1e3 / n_layers;
    return PIMATTN_OK;
}

/* What follows from the time and energy of a step, and what it reads; its query tokens. */
static double pimattn_i_readings_sum(pimattn_readings *r, const pimattn_config *c,
                                     const pimattn_span *spans, size_t n_spans)
{
    uint64_t query_tokens = 0;
    r->size = (uint32_t)sizeof *r, r->version = 1;
    r->n_layers = c->shape.n_layers;
    for (size_t i = 0; i < n_spans; i++) {
        r->kv_tokens += spans[i].context_tokens;
        query_tokens += spans[i].n_tokens & PIMATTN_PREFIX ? 0 : spans[i].n_tokens;
    }
    for (uint32_t i = 0; i < PIMHW_N_ENERGY; i++)
        r->step_pJ += r->energy_pJ[i];
    r->layer_pJ = r->step_pJ / r->n_layers;
    r->token_pJ = r->step_pJ / (double)query_tokens;
    r->average_mW = r->step_us > 0 ? r->step_pJ / r->step_us * 1e-3 : 0;
    r->host_ns = (double)r->kv_bytes * 1e3 / c->device.host_MBps;
    return (double)query_tokens;
}

/* All of the readings of the batch, one layer of which has been timed or run. */
static pimattn_status pimattn_i_planner_report(pimattn_i_planner *p, const pimhw_readings *layer,
                                               pimattn_readings *readings)
{
    const pimattn_config *c = &p->config;
    const pimhw_config *d = &c->device;
    pimattn_readings r;
    double mean_kv_bytes = 0;
    memset(&r, 0, sizeof r);
    r.device = *layer;
    const pimattn_plan *plan = &p->plans[p->taken]; /* until other layers take another */
    r.controller = d->controller;
    r.partition = c->partition;
    r.v_mapping = plan->v_mapping;
    r.v_wanted = plan->v_wanted;
    r.wanted_out = plan->wanted_out;
    r.used_out = plan->used_out;
    PIMATTN_I_TRY(pimattn_i_planner_step(p, &r, &mean_kv_bytes));
    r.kernel = "";
    double query_tokens = pimattn_i_readings_sum(&r, c, p->spans, p->n_spans);
    /* the layer beside the other ways to read the same K and V */
    double dims = (double)c->shape.n_heads * ((double)c->shape.head_dim + c->shape.head_dim_v);
    double peak_bytes = (double)d->n_channels * pimhw_config_banks(d) * d->column_bytes;
    r.peak_ns = (double)r.kv_bytes / peak_bytes * d->tCCD_MAC * d->tCK_ps * 1e-3;
    r.link_ns = query_tokens * dims * p->io_bytes * 1e3 / d->link_MBps;
    r.speedup = mean_kv_bytes * 1e3 / d->host_MBps / (r.layer_ns + r.link_ns);
    if (r.link_ns > r.layer_ns) r.bound = PIMATTN_BOUND_LINK;
    *readings = r;
    return PIMATTN_OK;
}

static pimattn_status pimattn_i_planner_time(pimattn_i_planner *p, pimattn_readings *readings,
                                             const pimattn_span *spans, size_t n_spans)
{
    pimhw_readings layer;
    pimattn_status status = pimattn_i_planner_take(p, &layer, spans, n_spans);
    return status == PIMATTN_OK ? pimattn_i_planner_report(p, &layer, readings) : status;
}

/* ==========================================================================
 * [A21] ENGINE: names, configuration, estimates; what an engine holds, from create to destroy.
 *       Knows the size of everything it holds and how it begins; appends and attends nothing.
 * ========================================================================== */

PIMATTN_API const char *pimattn_status_str(pimattn_status status)
{
    static const char names[][44] = {"ok",
                                     "wrong argument",
                                     "wrong configuration",
                                     "out of memory",
                                     "out of KV pages",
                                     "no such sequence in memory, or no free slot",
                                     "value too large for the cache's type",
                                     "the device cannot do it",
                                     "not a whole saved state of this shape"};
    return (uint32_t)status <= PIMATTN_ERR_STATE ? names[status] : "unknown status";
}

PIMATTN_API const char *pimattn_bound_str(uint32_t bound)
{
    static const char names[][12] = {"MAC", "row", "I/O", "softmax", "refresh", "link"};
    return bound < PIMATTN_N_BOUND ? names[bound] : NULL;
}

/* Bank groups of a tier have so many bits in the number of a partial, and tiers the rest. */
enum { PIMATTN_I_GROUP_BITS = 20 };

typedef struct pimattn_i_memo {
    size_t n_spans; /* 0: empty */
    uint64_t window;
    pimattn_readings readings;
} pimattn_i_memo;

/* One run of leaves of one query block: a job of a worker. */
typedef struct pimattn_i_job {
    const pimattn_i_seq *seq; /* NULL: pages of the caller .. */
    const uint32_t *pages;    /* .. by number .. */
    uint64_t origin;          /* .. from this position on; or the first token there is */
    uint64_t behind;          /* the first one behind those gone between */
    const uint64_t *mask;     /* among the query tokens, or NULL */
    const uint64_t *position; /* of the query tokens, or NULL */
    const uint64_t *chosen;   /* bits of tokens before n_chosen, or NULL */
    uint64_t n_chosen;        /* 0: all are chosen */
    uint64_t first_row;       /* of q, of the sequence's first query token */
    uint64_t n_tokens;        /* query tokens of the sequence */
    uint64_t tokens;          /* position after the last */
    uint64_t query;           /* first query of the block: token * group + head of the group */
    /* tokens that some query of the block sees: from origin to kept, and from begin to end; all
       see those from whole_begin to whole_end, and of the kept ones those before whole_end */
    uint64_t kept, begin, end, whole_begin, whole_end;
    uint32_t n_queries, rows; /* rows: as kernels take them */
    uint32_t kv_head;
    uint64_t leaf_begin, leaf_end;
    uint32_t runs_left; /* runs of the same block from here on */
    uint32_t n_gang;    /* jobs that go with this one; 0: this one goes with another, or is done */
} pimattn_i_job;

/* Chunks of K or V of one head of one sequence in one layer, in the order of their rows. */
typedef struct pimattn_i_list {
    uint32_t first, n;
    uint32_t unit; /* channel, or 0: all; decided with the first chunk */
} pimattn_i_list;

/* What the hub knows of a block under way. */
typedef struct pimattn_i_work {
    uint64_t key;      /* its round, plus 1; 0: none */
    bool mixing;       /* its softmax is done */
    pimattn_i_job job; /* all its queries */
    float *scores;     /* [queries][tokens]; then the probabilities, rounded as they go out */
    float *sums;       /* [queries][groups][dims in whole blocks] */
    float *m, *l;      /* [queries]; m NaN: a score was not finite */
    float *part;       /* [queries]: 2^-n, what the units have of p */
} pimattn_i_work;

typedef struct pimattn_i_module {
    pimhw_memory *memory;
    pimhw_units *units;
    const pimattn_plan *plan;          /* of the engine */
    uint32_t n_heads;                  /* blocks of a sequence */
    size_t n_lists;                    /* of a sequence: [n_layers][n_heads][2] */
    uint32_t n_units;                  /* that have chunks of their own: 1, or the channels */
    uint32_t chunk_rows, n_chunks;     /* of a unit */
    uint32_t n_used;                   /* of all units .. */
    uint32_t used[PIMHW_MAX_CHANNELS]; /* .. and of each */
    uint64_t table_bytes;              /* of all tables, of which lists is the first */
    pimattn_i_list *lists;             /* [max_seqs][n_lists] */
    uint32_t *next;                    /* [n_units * n_chunks] of a list; UINT32_MAX: free */
    uint32_t *chunks;                  /* VA2PA of a call, [va2pa_entries] */
    uint32_t chunk_begin[PIMHW_MAX_CHANNELS + 1];
    pimattn_i_work work[2 * PIMHW_MAX_CHANNELS];
    uint64_t append_ck, append_commands;
    double append_pJ;
} pimattn_i_module;

/* Working memory: what a worker needs, what a job needs, the least of all. */
typedef struct pimattn_i_sizes {
    size_t q_floats, o_floats; /* dims in whole vectors */
    size_t block_floats, worker_floats;
    size_t query_floats, rest_floats; /* of a gang's query; for queries and partials */
    uint32_t stack_levels;
    uint64_t job_bytes, least, wide; /* with one job; and room for gangs */
} pimattn_i_sizes;

struct pimattn_engine {
    pimattn_config config; /* complete: no 0 left that stands for something */
    pimhw_cause why;
    pimattn_i_planner planner;
    pimattn_plan plan; /* where tokens lie in banks, for any number of queries; "cheapest": by A */
    pimattn_i_module *module; /* NULL: the host way */
    pimattn_i_tiered *tiered; /* NULL: pages, or banks */
    pimattn_i_pool pool;
    pimattn_i_layout layout;
    uint64_t moved_bytes;     /* by compaction */
    pimattn_transfer swapped; /* so far */
    uint64_t table_bytes;     /* of memo, spans, tokens, seqs and what the shape points to */
    pimattn_i_seq *seqs;      /* [max_seqs] */
    uint32_t first_free;      /* of seqs: those before are alive */
    uint64_t *tokens;         /* [max_seqs][n_layers] */
    pimattn_i_memo *memo;     /* [memo_entries] */
    pimattn_span *spans;      /* [memo_entries + 2][most_spans]: of the memo, of a call, as timed */
    pimattn_span *batch;      /* of these, what the call under way has */
    uint64_t most_spans;
    uint32_t memo_next;
    const pimattn_i_kernel *kernel;
    uint32_t gqa_group;
    pimattn_i_ahead ahead; /* both, near or deep; what else there is are tiles' */
    uint64_t piece_bytes;  /* of a call: what lies together of a KV head, a page's K and V */
    pimattn_i_sizes size;
    size_t n_jobs_most, n_jobs; /* of a wave at most; of this one */
    uint64_t n_left;            /* of a call: indices that parallel_for did not run */
    pimattn_i_job *jobs;        /* [n_jobs_most] */
    uint32_t *order;            /* [n_jobs_most] in which jobs are done */
    float *results;             /* [n_jobs_most][block_floats] */
    float *workers;             /* [max_workers] working memory; jobs and results in one piece */
    const pimattn_call *call;
    pimattn_pages *pages; /* of the caller; NULL: of the pool */
    uint32_t joined;      /* tokens up to which pages in a row are looked for; 0: none lie so */
};

/* Jobs that go by turns, their leaves and blocks of partials to merge those; floats for queries. */
enum { PIMATTN_I_GANG = 16, PIMATTN_I_GANG_LEAVES = 8, PIMATTN_I_GANG_LEVELS = 4 };
enum { PIMATTN_I_GANG_QUERIES = 4 * PIMATTN_I_QUERY_BLOCK, PIMATTN_I_GANG_FLOATS = 1 << 17 };

/* Bytes of a page of every layer and KV head. */
static uint64_t pimattn_i_least_pool(const pimattn_config *c)
{
    pimattn_i_layout lay;
    pimattn_i_lay_out(&lay, &c->shape, c->page_tokens);
    return pimattn_i_mul(lay.page_bytes, (uint64_t)c->shape.n_layers * c->shape.n_kv_heads);
}

static pimattn_i_sizes pimattn_i_sizes_of(const pimattn_config *c)
{
    pimattn_i_sizes z;
    uint64_t tokens = pimattn_i_mul(c->pool_bytes / pimattn_i_least_pool(c) + 1, c->page_tokens);
    for (uint32_t i = 0; c->tiers && i < c->tiers->n_tiers; i++)
        tokens = pimattn_i_add(tokens, c->tiers->tier[i].n_tokens);
    z.q_floats = ((size_t)c->shape.head_dim + 15) / 16 * 16;
    z.o_floats = ((size_t)c->shape.head_dim_v + 15) / 16 * 16;
    z.block_floats = PIMATTN_I_O + PIMATTN_I_QUERY_BLOCK * z.o_floats;
    /* leaves may lie across powers of two, and those of kept tokens apart: even of few tokens 3 */
    z.stack_levels = 4;
    for (uint64_t leaves = pimattn_i_max(tokens / PIMATTN_I_LEAF, 1); leaves; leaves /= 2)
        z.stack_levels++;
    if (c->tiers)
        z.stack_levels = (uint32_t)pimattn_i_max(z.stack_levels, PIMATTN_I_GROUP_BITS + 5);
    z.job_bytes = z.block_floats * sizeof(float) + sizeof(pimattn_i_job) + sizeof(uint32_t);
    z.query_floats = z.q_floats + PIMATTN_I_GANG_LEVELS * (PIMATTN_I_O + z.o_floats);
    /* the kernel's, a copy of a tile and its scales; queries before their partials */
    const size_t fixed = PIMATTN_I_WORK + PIMATTN_I_TILE * (z.q_floats + z.o_floats + 2);
    const size_t alone = PIMATTN_I_QUERY_BLOCK * z.q_floats + z.stack_levels * z.block_floats;
    uint64_t gang = pimattn_i_min(PIMATTN_I_GANG_QUERIES * z.query_floats, PIMATTN_I_GANG_FLOATS);
    gang = pimattn_i_max(gang, alone);
    z.wide = c->max_workers * pimattn_i_up64(fixed + gang) * sizeof(float) + z.job_bytes;
    z.rest_floats = c->scratch_bytes > 0 && z.wide > c->scratch_bytes ? alone : (size_t)gang;
    z.worker_floats = (size_t)pimattn_i_up64(fixed + z.rest_floats);
    z.least = c->max_workers * (uint64_t)z.worker_floats * sizeof(float) + z.job_bytes;
    return z;
}

static pimattn_status pimattn_i_tier_judge(const pimattn_tier *t, bool partials, pimhw_cause *why)
{
    const uint64_t groups = partials ? pimattn_i_tier_groups(t) : 1;
    if (pimhw_config_check(&t->device, why) != PIMHW_OK) return PIMATTN_ERR_CONFIG;
    PIMATTN_I_WITHIN(why, "n_devices", t->n_devices, 1, 65536, NULL);
    PIMATTN_I_WITHIN(why, "n_tokens", t->n_tokens, 1, UINT32_MAX, NULL);
    return pimattn_i_within(why, "bank groups (with partials)", groups, 1,
                            1u << PIMATTN_I_GROUP_BITS, NULL);
}

/* The tiers of an engine; the sizes of ratios are judged with the rest of them. */
static pimattn_status pimattn_i_tiers_judge(const pimattn_config *c, pimhw_cause *why)
{
    const pimattn_tiers *r = c->tiers;
    PIMATTN_I_WITHIN(why, "tiers.n_tiers", r->n_tiers, 1, PIMATTN_MAX_TIERS, NULL);
    PIMATTN_I_WITHIN(why, "page_tokens (with tiers)", c->page_tokens, 0, 1, NULL);
    PIMATTN_I_WITHIN(why, "way (with tiers)", c->way, 0, 0, NULL);
    if (!(r->lambda >= 0 && r->lambda <= 1))
        return PIMATTN_I_UNFIT(why, "tiers.lambda is not 0 to 1");
    bool ratios = false;
    for (uint32_t i = 0; i < r->n_tiers; i++)
        ratios = ratios || r->ratio[i] != 0;
    for (uint32_t i = 0; i < r->n_tiers; i++) {
        PIMATTN_I_TRY(
            pimattn_i_of_tier(pimattn_i_tier_judge(&r->tier[i], r->partials, why), i, why));
        if (ratios && !(r->ratio[i] > 0 && r->ratio[i] <= DBL_MAX))
            return PIMATTN_I_UNFIT(why, "tiers.ratio[%u] is not positive and finite", (uint64_t)i);
    }
    return PIMATTN_OK;
}

/* Judges a configuration and fills scratch_bytes, which hangs on all else. */
static pimattn_status pimattn_i_config_judge(pimattn_config *c, pimhw_cause *why)
{
    pimattn_plan plan;
    const uint64_t page_set = (uint64_t)c->shape.n_layers * c->shape.n_kv_heads;
    const uint64_t least_pool = pimattn_i_least_pool(c), most_pool = (uint64_t)1 << 46;
    const uint64_t pages = c->pool_bytes / (least_pool / page_set), most = PIMATTN_I_MAX_TOKENS;
    PIMATTN_I_WITHIN(why, "page_tokens", c->page_tokens, 0, 65536, NULL);
    PIMATTN_I_WITHIN(why, "pool_bytes for a page of every layer and KV head", least_pool, 0,
                     most_pool, NULL);
    PIMATTN_I_WITHIN(why, "pool_bytes", c->pool_bytes, least_pool, most_pool, NULL);
    PIMATTN_I_WITHIN(why, "pages in pool_bytes", pages, page_set, UINT32_MAX, NULL);
    const uint64_t most_seqs = PIMATTN_I_MAX_SEQS / 3 * (c->share_rows ? 2 : 3);
    PIMATTN_I_WITHIN(why, "max_seqs", c->max_seqs, 0, most_seqs, NULL);
    PIMATTN_I_WITHIN(why, "memo_entries", c->memo_entries, 0, 1u << 20, NULL);
    PIMATTN_I_WITHIN(why, "simd", c->simd, 0, PIMATTN_SIMD_512, NULL);
    PIMATTN_I_WITHIN(why, "way", c->way, 0, PIMATTN_DEVICE, NULL);
    PIMATTN_I_WITHIN(why, "max_workers", c->max_workers, 0, 4096, NULL);
    PIMATTN_I_WITHIN(why, "reserve_tokens", c->reserve_tokens, 0, most, NULL);
    const uint64_t held = pimattn_i_ceil_div(c->reserve_tokens, c->page_tokens);
    if (c->way == PIMATTN_HOST && !c->tiers)
        PIMATTN_I_WITHIN(why, "pool pages for reserve_tokens", held, 0, pages / page_set, NULL);
    if (c->way == PIMATTN_DEVICE && c->shape.v_in_k)
        return PIMATTN_I_UNFIT(why, "shape.v_in_k is set: banks hold V by itself (way 1, device)");
    if (c->way == PIMATTN_DEVICE && c->device.epu_passes == 0)
        return PIMATTN_I_UNFIT(why, "epu_passes is 0: the hub has softmax to do (way 1, device)");
    if (c->way == PIMATTN_DEVICE && c->v_mapping == PIMATTN_V_CHEAPEST)
        return PIMATTN_I_UNFIT(
            why, "v_mapping is 3 (cheapest): data in banks needs 0 (A), 1 (B) or 2 (K)");
    if (c->tiers) PIMATTN_I_TRY(pimattn_i_tiers_judge(c, why));
    const pimattn_i_sizes z = pimattn_i_sizes_of(c);
    const uint64_t usual = pimattn_i_add(z.least, pimattn_i_mul(64 * z.job_bytes, c->max_workers));
    const uint64_t scratch = c->scratch_bytes ? c->scratch_bytes : z.least;
    PIMATTN_I_WITHIN(why, "scratch_bytes", scratch, z.least, SIZE_MAX, NULL);
    if (!c->scratch_bytes)
        c->scratch_bytes = pimattn_i_min(pimattn_i_max(8u << 20, usual), SIZE_MAX);
    PIMATTN_I_WITHIN(why, "v_mapping", c->v_mapping, 0, PIMATTN_V_CHEAPEST,
                     "0 (A), 1 (B), 2 (K) or 3 (cheapest)");
    PIMATTN_I_TRY(pimattn_plan_init(&plan, &c->shape, &c->device, c->partition, c->hfp_unit,
                                    c->row_reuse_off, 1, why));
    const pimhw_config *d = &c->device;
    const uint64_t units = d->n_channels / plan.unit_channels, n_rows = d->n_rows;
    if (c->way == PIMATTN_HOST) return PIMATTN_OK;
    PIMATTN_I_WITHIN(why, "device.element_bytes", d->element_bytes, 2, 2,
                     "2, in which banks compute");
    const uint64_t chunks = units * (n_rows / pimattn_plan_chunk_rows(&plan));
    const uint64_t token = 2ull * c->shape.n_layers * pimattn_i_units(&plan);
    if (chunks >> 32)
        return PIMATTN_I_UNFIT(why, "device.n_rows is %u, not below 2^32 chunks", n_rows);
    if (chunks < token)
        return PIMATTN_I_UNFIT(why, "device.n_rows is %u, %u chunks: a token takes %u", n_rows,
                               chunks, token);
    return PIMATTN_OK;
}

/* A complete copy of a configuration. */
static pimattn_status pimattn_i_config_take(pimattn_config *c, const pimattn_config *config,
                                            pimhw_cause *why)
{
    if (!config) return PIMATTN_I_REFUSE(why, "config is NULL", 0);
    *c = *config;
    PIMATTN_I_TRY(pimattn_i_shape_check(&c->shape, why));
    if (!c->page_tokens) c->page_tokens = c->tiers ? 1 : 128;
    if (!c->pool_bytes) c->pool_bytes = pimattn_i_max(pimattn_i_least_pool(c), (uint64_t)1 << 30);
    if (!c->max_seqs) c->max_seqs = 64;
    if (!c->memo_entries) c->memo_entries = 64;
    if (!c->max_workers) c->max_workers = 1;
    /* a device without a preset is the default one; fields set by hand would be lost */
    const bool preset = c->device.preset[0] != 0;
    const char *field;
    for (uint32_t i = 0, value; !preset && (field = pimhw_config_field(i)) != NULL; i++)
        if (pimhw_config_get(&c->device, field, &value, NULL) == PIMHW_OK && value != 0)
            return PIMATTN_I_UNFIT(why, "device.%s is set, but no preset: pimhw_config_init first",
                                   field);
    if (!preset) pimhw_config_init(&c->device, "aimx", NULL);
    if (!c->allocator.alloc != !c->allocator.release)
        return PIMATTN_I_UNFIT(why, "allocator has only one of alloc and release");
    if (!c->allocator.alloc) c->allocator = pimhw_allocator_default();
    return pimattn_i_config_judge(c, why);
}

PIMATTN_API pimattn_status pimattn_config_check(const pimattn_config *config, pimhw_cause *why)
{
    pimattn_config c;
    return pimattn_i_config_take(&c, config, why);
}

PIMATTN_API pimattn_status pimattn_estimate(pimattn_readings *readings,
                                            const pimattn_config *config, const pimattn_span *spans,
                                            size_t n_spans, pimhw_cause *why)
{
    if (!readings || !config) return PIMATTN_I_REFUSE(why, "readings or config is NULL", 0);
    pimattn_config c;
    PIMATTN_I_TRY(pimattn_i_config_take(&c, config, why));
    PIMATTN_I_TRY(pimattn_i_spans_check(spans, n_spans, why));
    pimattn_i_planner *p = (pimattn_i_planner *)pimattn_i_alloc(&c.allocator, sizeof *p, 64);
    if (!p) return PIMATTN_I_LACK(why, "no memory for an estimate", 0);
    pimattn_status status = pimattn_i_planner_init(p, &c, n_spans, why);
    if (status == PIMATTN_OK) status = pimattn_i_planner_time(p, readings, spans, n_spans);
    pimattn_i_planner_free(p);
    pimattn_i_release(&c.allocator, p, sizeof *p);
    return status;
}

/* Copies what the shape points to, and makes slopes by ggml's rule: powers of one base for as many
 * heads as a power of two has, of its root between. Its pointers are ours then. */
static void pimattn_i_variant_keep(pimattn_shape *s, uint64_t *windows)
{
    float *slopes = (float *)(void *)(windows + (s->windows ? s->n_layers : 0));
    float *logits = slopes + s->n_heads;
    uint32_t heads = 1;
    while (2 * heads <= s->n_heads)
        heads *= 2;
    if (s->windows) memcpy(windows, s->windows, s->n_layers * sizeof *windows);
    for (uint32_t h = 0; h < s->n_heads; h++) {
        const bool low = h < heads;
        const double step = (double)s->alibi_max_bias / heads / (low ? 1 : 2);
        const float slope = (float)pow(2.0, -step * (low ? h + 1 : 2 * (h - heads) + 1));
        slopes[h] = s->alibi_slopes ? s->alibi_slopes[h] : slope;
        logits[h] = s->sink_logits ? s->sink_logits[h] : 0;
    }
    if (s->windows) s->windows = windows;
    if (s->alibi_slopes || s->alibi_max_bias > 0) s->alibi_slopes = slopes;
    if (s->sink_logits) s->sink_logits = logits;
}

/* Memory, units and tables of the device way; a failure leaves what there is to _destroy. */
static pimattn_status pimattn_i_module_create(pimattn_engine *e, pimhw_cause *why)
{
    const pimhw_allocator *a = &e->config.allocator;
    const pimattn_plan *plan = &e->plan;
    const pimhw_config *d = &plan->device;
    pimattn_i_module *m = (pimattn_i_module *)pimattn_i_zeroed(a, 1, sizeof *m);
    e->module = m;
    if (!m) return PIMATTN_I_LACK(why, "no memory for the tables of the device", 0);
    m->plan = plan;
    m->n_heads = pimattn_i_units(plan);
    m->n_lists = (size_t)plan->shape.n_layers * m->n_heads * 2;
    m->chunk_rows = pimattn_plan_chunk_rows(plan);
    m->n_units = d->n_channels / plan->unit_channels;
    m->n_chunks = d->n_rows / m->chunk_rows;
    uint64_t n = (uint64_t)m->n_units * m->n_chunks;
    uint64_t lists = pimattn_i_mul(e->config.max_seqs, m->n_lists);
    m->table_bytes = pimattn_i_add(pimattn_i_mul(lists, sizeof *m->lists),
                                   (n + d->va2pa_entries) * sizeof(uint32_t));
    m->lists = (pimattn_i_list *)pimattn_i_zeroed(a, 1, m->table_bytes);
    if (!m->lists) return PIMATTN_I_LACK(why, "no memory for the chunk tables of the device", 0);
    m->next = (uint32_t *)(void *)(m->lists + lists);
    memset(m->next, 0xff, (size_t)n * sizeof *m->next);
    m->chunks = m->next + n;
    pimhw_status made = pimhw_memory_create(&m->memory, d, PIMHW_CHUNK_AIM, why);
    if (made == PIMHW_OK) made = pimhw_units_create(&m->units, d, m->memory, why);
    return pimattn_i_made(made, PIMATTN_ERR_CONFIG);
}

PIMATTN_API void pimattn_engine_destroy(pimattn_engine *e)
{
    if (!e) return;
    const pimattn_config *c = &e->config;
    pimhw_allocator a = c->allocator;
    if (e->module) {
        pimhw_units_destroy(e->module->units);
        pimhw_memory_destroy(e->module->memory);
        pimattn_i_release(&a, e->module->lists, e->module->table_bytes);
        pimattn_i_release(&a, e->module, sizeof *e->module);
    }
    pimattn_i_tiered_free(e->tiered, &a);
    for (uint32_t i = 0; e->seqs && i < c->max_seqs; i++)
        if (e->seqs[i].id) pimattn_i_seq_empty(&e->pool, &e->seqs[i]);
    while (e->pool.store.n_idle > 0)
        pimattn_i_store_evict(&e->pool, pimattn_i_entry_at(&e->pool.store, 0)->newer);
    pimattn_i_release(&a, e->pool.refs, e->pool.n_refs * sizeof *e->pool.refs);
    pimattn_i_compact_end(&e->pool, 0);
    pimattn_i_release(&a, e->pool.slabs, e->pool.n_slabs_most * sizeof *e->pool.slabs);
    pimattn_i_release(&a, e->pool.bounds, e->pool.n_slabs_most * sizeof *e->pool.bounds);
    pimattn_i_release(&a, e->pool.store.records,
                      (e->pool.store.n_most + 1) * (e->pool.store.record_bytes + sizeof(uint32_t)));
    pimattn_i_release(&a, e->memo, e->table_bytes);
    pimattn_i_release(&a, e->workers, c->scratch_bytes);
    pimattn_i_planner_free(&e->planner);
    pimattn_i_release(&a, e, sizeof *e);
}

static void pimattn_i_pool_init(pimattn_i_pool *pool, const pimattn_i_layout *lay,
                                const pimattn_config *c)
{
    pool->allocator = c->allocator;
    pool->layout = lay;
    pool->page_bytes = lay->page_bytes;
    pool->set_pages = (uint64_t)lay->n_layers * lay->n_kv_heads;
    pool->store.record_bytes = pimattn_i_up64(
        sizeof(pimattn_i_entry) + (c->page_tokens + pool->set_pages) * sizeof(uint32_t));
    pool->on_page = c->on_page;
    pool->page_user = c->page_user;
    pool->n_pages_most = c->pool_bytes / pool->page_bytes / pool->set_pages * pool->set_pages;
    pool->slab_pages = (uint32_t)pimattn_i_max(1, PIMATTN_I_SLAB / pool->page_bytes);
    while (pool->slab_pages < 16 && pimattn_i_slab_bytes(pool, 0) % PIMATTN_I_SLAB != 0)
        pool->slab_pages++;
    pool->n_slabs_most = pimattn_i_ceil_div(pool->n_pages_most, pool->slab_pages);
    pool->slabs = (unsigned char **)pimattn_i_zeroed(&pool->allocator, pool->n_slabs_most,
                                                     sizeof *pool->slabs);
    pool->bound_bytes = 64 + 2 * pimattn_i_up64((uint64_t)c->shape.head_dim * sizeof(float));
}

/* All that an engine holds; a failure leaves what there is to _destroy. */
static pimattn_status pimattn_i_engine_fill(pimattn_engine *e, pimhw_cause *why)
{
    const pimattn_config *c = &e->config;
    const char *text = "no memory for the tables of an engine";
    pimattn_i_lay_out(&e->layout, &c->shape, c->page_tokens);
    uint64_t seqs = c->max_seqs, tokens = seqs * c->shape.n_layers;
    e->most_spans = seqs + (c->share_rows ? seqs / 2 : 0); /* a prefix of two items or more */
    uint64_t spans = (c->memo_entries + (uint64_t)2) * e->most_spans;
    e->table_bytes = (uint64_t)c->memo_entries * sizeof *e->memo + spans * sizeof *e->spans +
                     tokens * sizeof *e->tokens + seqs * sizeof *e->seqs +
                     (c->shape.windows ? c->shape.n_layers * sizeof(uint64_t) : 0) +
                     2 * c->shape.n_heads * sizeof(float);
    e->memo = (pimattn_i_memo *)pimattn_i_zeroed(&c->allocator, 1, e->table_bytes);
    if (!e->memo) return PIMATTN_I_LACK(why, text, 0);
    e->spans = (pimattn_span *)(void *)(e->memo + c->memo_entries);
    e->batch = e->spans + c->memo_entries * e->most_spans;
    e->tokens = (uint64_t *)(void *)(e->spans + spans);
    e->seqs = (pimattn_i_seq *)(void *)(e->tokens + tokens);
    pimattn_i_variant_keep(&e->config.shape, (uint64_t *)(void *)(e->seqs + seqs));
    pimattn_i_pool_init(&e->pool, &e->layout, c);
    e->size = pimattn_i_sizes_of(c);
    e->n_jobs_most = 1 + (size_t)((c->scratch_bytes - e->size.least) / e->size.job_bytes);
    e->workers = (float *)pimattn_i_alloc(&c->allocator, c->scratch_bytes, 64);
    if (!e->pool.slabs || !e->workers) return PIMATTN_I_LACK(why, text, 0);
    e->results = e->workers + c->max_workers * e->size.worker_floats;
    e->jobs = (pimattn_i_job *)(void *)(e->results + e->n_jobs_most * e->size.block_floats);
    e->order = (uint32_t *)(void *)(e->jobs + e->n_jobs_most);
    PIMATTN_I_TRY(pimattn_i_planner_init(&e->planner, c, (size_t)e->most_spans, why));
    PIMATTN_I_TRY(pimattn_plan_init(&e->plan, &c->shape, &e->planner.config.device, c->partition,
                                    c->hfp_unit, c->row_reuse_off, pimattn_i_token_queries(c),
                                    why));
    if (c->v_mapping != PIMATTN_V_CHEAPEST) pimattn_i_plan_v(&e->plan, c->v_mapping);
    if (c->way == PIMATTN_DEVICE) PIMATTN_I_TRY(pimattn_i_module_create(e, why));
    if (!c->tiers) return PIMATTN_OK;
    const uint64_t slot_bytes = e->layout.page_bytes * c->shape.n_kv_heads;
    PIMATTN_I_TRY(pimattn_i_tiered_create(&e->tiered, &e->config, slot_bytes, why));
    e->tiered->why = &e->why;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_engine_create(pimattn_engine **engine,
                                                 const pimattn_config *config, pimhw_cause *why)
{
    if (!engine) return PIMATTN_I_REFUSE(why, "engine is NULL", 0);
    *engine = NULL;
    pimattn_config c;
    PIMATTN_I_TRY(pimattn_i_config_take(&c, config, why));
    volatile float given = 0.3f; /* if sums are taken apart; clang has no macro that says so */
    if ((given + 12582912.0f) - 12582912.0f != 0)
        return PIMATTN_I_UNFIT(why, "built with -funsafe-math-optimizations");
    pimattn_engine *e = (pimattn_engine *)pimattn_i_zeroed(&c.allocator, 1, sizeof *e);
    if (!e) return PIMATTN_I_LACK(why, "no memory for an engine", 0);
    e->config = c;
    e->kernel = pimattn_i_kernel_take(c.simd);
    e->gqa_group = c.shape.n_heads / c.shape.n_kv_heads;
    e->ahead = pimattn_i_cpu_ahead();
    const pimattn_status status = pimattn_i_engine_fill(e, why);
    e->planner.why = &e->why;
    if (status == PIMATTN_OK) *engine = e;
    if (status != PIMATTN_OK) pimattn_engine_destroy(e);
    return status;
}

PIMATTN_API const char *pimattn_engine_cause(const pimattn_engine *engine)
{
    return engine ? engine->why.text : "engine is NULL";
}

PIMATTN_API const pimattn_config *pimattn_engine_config(const pimattn_engine *engine)
{
    return &engine->config;
}

PIMATTN_API pimhw_memory *pimattn_engine_memory(pimattn_engine *engine)
{
    return engine->module ? engine->module->memory : NULL;
}

/* Of tiers: a slot is a page of every KV head. */
PIMATTN_API uint64_t pimattn_pages_used(const pimattn_engine *engine)
{
    const pimattn_i_tiered *st = engine->tiered;
    if (engine->module) return engine->module->n_used;
    uint64_t n = pimattn_i_pool_held(&engine->pool); /* of tiers 0 */
    for (uint32_t i = 0; st && i < st->rules.n_tiers; i++)
        n += st->bins[i].n_used * engine->config.shape.n_kv_heads;
    return n;
}

PIMATTN_API uint64_t pimattn_pages_total(const pimattn_engine *engine)
{
    if (engine->module) return (uint64_t)engine->module->n_units * engine->module->n_chunks;
    if (engine->tiered) return engine->tiered->n_slots * engine->config.shape.n_kv_heads;
    return engine->pool.n_pages_most;
}

PIMATTN_API uint64_t pimattn_page_bytes(const pimattn_engine *engine)
{
    const pimhw_config *d = &engine->plan.device;
    const uint64_t row = (uint64_t)d->row_bytes * pimhw_config_banks(d);
    if (!engine->module) return engine->layout.page_bytes;
    return row * engine->plan.unit_channels * engine->module->chunk_rows;
}

/* ==========================================================================
 * [A22] SEQUENCES: handles and lengths; pages, chunks and slots taken and given back.
 *       Knows how many tokens there are, and where they go; writes no key or value.
 * ========================================================================== */

/* What is wrong with a call; without an engine nobody can ask. */
static pimattn_status pimattn_i_wrong(pimattn_engine *e, const char *what, uint64_t is)
{
    return PIMATTN_I_REFUSE(e ? &e->why : NULL, what, is);
}

/* The living sequence of an id; NULL, and its cause, if there is none. */
static pimattn_i_seq *pimattn_i_seq_find(pimattn_engine *e, pimattn_seq seq)
{
    uint64_t slot = seq & 0xffff;
    if (seq != 0 && slot < e->config.max_seqs && e->seqs[slot].id == seq) return &e->seqs[slot];
    pimhw_cause_write(&e->why, "sequence %u was freed or never created", seq);
    return NULL;
}

/* Whether a function of the caller calls from within a call of ours; and its cause. */
static bool pimattn_i_is_busy(pimattn_engine *e)
{
    const char *what = e->call ? "an attend" : e->pool.within;
    if (e->tiered && e->tiered->asking) what = "a transfer";
    if (what) pimhw_cause_write(&e->why, "%s is under way", what);
    return what != NULL;
}

/* The tokens of a sequence in a layer, in tiers. */
static pimattn_i_table *pimattn_i_table_of(const pimattn_engine *e, const pimattn_i_seq *s,
                                           uint32_t layer)
{
    return e->tiered->tables + (s->id & 0xffff) * e->config.shape.n_layers + layer;
}

/* Lists of one head: K, then V; those of the next heads and layers follow. */
static pimattn_i_list *pimattn_i_lists_of(const pimattn_engine *e, const pimattn_i_seq *s,
                                          uint32_t layer, uint32_t head)
{
    const pimattn_i_module *m = e->module;
    return m->lists + (size_t)(s - e->seqs) * m->n_lists + ((size_t)layer * m->n_heads + head) * 2;
}

/* A list becomes n chunks long, the lowest free ones, with memory: no append fails half-way. */
static pimattn_status pimattn_i_list_grow(pimattn_engine *e, pimattn_i_list *list, uint32_t n)
{
    const uint16_t zero = 0;
    pimattn_i_module *m = e->module;
    uint32_t *link = &list->first, chunk = list->unit * m->n_chunks, end = chunk + m->n_chunks;
    for (uint32_t k = 0; k < list->n && list->n < n; k++)
        link = &m->next[*link];
    while (list->n < n) {
        while (chunk < end && m->next[chunk] != UINT32_MAX)
            chunk++;
        if (chunk == end) return PIMATTN_ERR_PAGES;
        *link = chunk;
        link = &m->next[chunk];
        *link = 0; /* taken */
        list->n++;
        m->n_used++;
        m->used[list->unit]++;
        pimhw_da at = {list->unit, 0, 0, chunk % m->n_chunks * m->chunk_rows, 0, 0};
        for (uint32_t row = 0; row < m->chunk_rows; row++, at.row++)
            if (pimhw_memory_write(m->memory, &at, &zero, sizeof zero, &e->why) != PIMHW_OK)
                return PIMATTN_ERR_MEMORY;
    }
    return PIMATTN_OK;
}

/* Returns all chunks but the first n. */
static void pimattn_i_list_keep(pimattn_i_module *m, pimattn_i_list *list, uint32_t n)
{
    for (uint32_t k = 0, i = list->first, after; k < list->n; k++, i = after) {
        after = m->next[i];
        if (k < n) continue;
        m->next[i] = UINT32_MAX;
        m->n_used--;
        m->used[list->unit]--;
    }
    list->n = (uint32_t)pimattn_i_min(n, list->n);
}

/* HFP: of the channels with room for so many chunks the one with the fewest tokens of a layer so
 * far, of equals with the fewest chunks of all layers, ties to the lowest number. */
static uint32_t pimattn_i_emptiest(const pimattn_engine *e, uint32_t layer, uint64_t chunks)
{
    const pimattn_i_module *m = e->module;
    uint64_t load[PIMHW_MAX_CHANNELS] = {0};
    uint32_t low = 0;
    for (uint32_t i = 0; i < e->config.max_seqs; i++)
        for (uint32_t h = 0; e->seqs[i].id && h < m->n_heads; h++) {
            const pimattn_i_list *list = pimattn_i_lists_of(e, &e->seqs[i], layer, h);
            if (list->n) load[list->unit] += e->seqs[i].tokens[layer] + 1;
        }
    for (uint32_t u = 0; u < m->n_units; u++)
        if (m->used[u] + chunks > m->n_chunks) load[u] = UINT64_MAX;
    for (uint32_t u = 1; u < m->n_units; u++)
        if (load[u] < load[low] || (load[u] == load[low] && m->used[u] < m->used[low])) low = u;
    return low;
}

/* Takes the chunks for a sequence of so many tokens, which it may hold, in all layers, or none. */
static pimattn_status pimattn_i_module_hold(pimattn_engine *e, pimattn_i_seq *s, uint64_t tokens)
{
    pimattn_i_module *m = e->module;
    pimattn_i_list *lists = pimattn_i_lists_of(e, s, 0, 0), *list = lists;
    const uint32_t had[2] = {lists[0].n, lists[1].n};
    uint32_t wanted[2];
    uint64_t more = 0;
    for (uint32_t i = 0; i < 2; i++) {
        wanted[i] = (uint32_t)pimattn_i_min(pimattn_i_chunks_of(m->plan, i, tokens), UINT32_MAX);
        more += wanted[i] > had[i] ? wanted[i] - had[i] : 0;
    }
    /* before host memory is taken for what cannot be */
    bool fits = pimattn_i_mul(more, m->n_lists / 2) <= pimattn_pages_total(e) - m->n_used;
    pimattn_status status = fits ? PIMATTN_OK : PIMATTN_ERR_PAGES;
    for (size_t i = 0; i < m->n_lists && status == PIMATTN_OK; i++, list++) {
        if (i % 2 == 0 && list->n == 0 && wanted[0] > 0)
            list->unit = list[1].unit = pimattn_i_emptiest(e, (uint32_t)(i / 2 / m->n_heads), more);
        status = pimattn_i_list_grow(e, list, wanted[i % 2]);
    }
    if (status == PIMATTN_OK) return status;
    for (size_t i = 0; i < m->n_lists; i++)
        pimattn_i_list_keep(m, &lists[i], had[i % 2]);
    if (status == PIMATTN_ERR_MEMORY) return status;
    const char *text = "%u tokens need %u and %u chunks in each layer of every head that is a"
                       " unit, on channels that have them; %u of the device's %u are taken";
    return PIMATTN_I_FULL(e, text, tokens, (uint64_t)wanted[0], (uint64_t)wanted[1],
                          (uint64_t)m->n_used, pimattn_pages_total(e));
}

PIMATTN_API pimattn_status pimattn_seq_tokens(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, uint64_t *n_tokens)
{
    if (!engine || !n_tokens) return pimattn_i_wrong(engine, "n_tokens is NULL", 0);
    if (layer >= engine->config.shape.n_layers)
        return pimattn_i_wrong(engine, "layer %u is not below n_layers", layer);
    pimattn_i_seq *s = pimattn_i_seq_find(engine, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    *n_tokens = s->tokens[layer];
    return PIMATTN_OK;
}

/* The living sequence of an id whose tokens are here; NULL, and its cause, if there is none. */
static pimattn_i_seq *pimattn_i_seq_here(pimattn_engine *e, pimattn_seq seq)
{
    pimattn_i_seq *s = pimattn_i_is_busy(e) ? NULL : pimattn_i_seq_find(e, seq);
    if (!s || !s->swapped) return s;
    pimhw_cause_write(&e->why, "sequence %u is swapped out", seq);
    return NULL;
}

/* The same of one with as many tokens in every layer. */
static pimattn_status pimattn_i_seq_even(pimattn_engine *e, pimattn_seq seq, pimattn_i_seq **s)
{
    *s = pimattn_i_seq_here(e, seq);
    if (!*s) return PIMATTN_ERR_SEQ;
    for (uint32_t i = 1; i < e->config.shape.n_layers; i++)
        if ((*s)->tokens[i] != (*s)->tokens[0])
            return pimattn_i_wrong(e, "layer %u has another length than layer 0", i);
    return PIMATTN_OK;
}

static void pimattn_i_seq_length(const pimattn_engine *e, pimattn_i_seq *s, uint64_t tokens)
{
    for (uint32_t i = 0; i < e->config.shape.n_layers; i++)
        s->tokens[i] = tokens;
}

/* Takes the slots of tokens up to `to` in all layers, or none. */
static pimattn_status pimattn_i_tiered_hold(pimattn_engine *e, const pimattn_i_seq *s, uint64_t to)
{
    pimattn_i_table *tables = pimattn_i_table_of(e, s, 0);
    uint32_t n_layers = e->config.shape.n_layers;
    uint64_t before = tables[0].n; /* in all layers as many */
    uint64_t room = (pimattn_pages_total(e) - pimattn_pages_used(e)) / e->config.shape.n_kv_heads;
    if (to <= before) return PIMATTN_OK;
    if (pimattn_i_mul(to - before, n_layers) > room)
        return PIMATTN_I_FULL(e, "%u more tokens in every layer: the tiers have room for %u",
                              to - before, room / n_layers);
    pimattn_status status = PIMATTN_OK;
    for (uint32_t i = 0; i < n_layers && status == PIMATTN_OK; i++)
        status = pimattn_i_table_room(e->tiered, &tables[i], to);
    for (uint32_t i = 0; i < n_layers && status == PIMATTN_OK; i++)
        status = pimattn_i_table_extend(e->tiered, &tables[i], to);
    for (uint32_t i = 0; i < n_layers && status != PIMATTN_OK; i++)
        pimattn_i_table_cut(e->tiered, &tables[i], before, before);
    return status;
}

/* Makes tokens from .. to - 1 of all layers a sequence's own, or nothing; why not, in words. */
static pimattn_status pimattn_i_hold(pimattn_engine *e, pimattn_i_seq *s, uint64_t from,
                                     uint64_t to)
{
    const uint64_t most = e->config.reserve_tokens;
    if (most && to > most)
        return PIMATTN_I_FULL(e, "%u tokens are more than the %u of reserve_tokens", to, most);
    if (e->tiered) return pimattn_i_tiered_hold(e, s, to);
    if (e->module) return pimattn_i_module_hold(e, s, to);
    const uint64_t free_pages = e->pool.n_pages_most - pimattn_i_pool_held(&e->pool);
    uint64_t known, fresh = pimattn_i_seq_fresh(&e->pool, s, from, to, &known);
    if (fresh - known > free_pages)
        return PIMATTN_I_FULL(e, "%u tokens need %u more KV pages; %u of %u of pool_bytes are free",
                              to, fresh, free_pages, e->pool.n_pages_most);
    pimattn_status status = pimattn_i_seq_hold(&e->pool, s, from, to);
    if (status != PIMATTN_ERR_MEMORY) return status;
    return PIMATTN_I_LACK(&e->why, "no memory for KV pages of %u tokens", to);
}

/* The same; at least what every sequence takes. */
static pimattn_status pimattn_i_fit(pimattn_engine *e, pimattn_i_seq *s, uint64_t from, uint64_t to)
{
    return pimattn_i_hold(e, s, from, pimattn_i_max(to, e->config.reserve_tokens));
}

PIMATTN_API pimattn_status pimattn_seq_reserve(pimattn_engine *e, pimattn_seq seq, uint64_t tokens)
{
    pimattn_i_seq *s;
    if (!e) return PIMATTN_ERR_ARGUMENT;
    PIMATTN_I_TRY(pimattn_i_seq_even(e, seq, &s));
    const uint64_t end = pimattn_i_add(s->tokens[0], tokens);
    if (end > PIMATTN_I_MAX_TOKENS)
        return pimattn_i_wrong(e, "a sequence of %u tokens is more than 2^32", end);
    return pimattn_i_hold(e, s, s->tokens[0], end);
}

/* A slot for a new sequence, with no token and no page. */
static pimattn_status pimattn_i_seq_new(pimattn_engine *e, pimattn_i_seq **s)
{
    for (uint32_t i = e->first_free; i < e->config.max_seqs; i++) {
        if (e->seqs[i].id) continue;
        e->first_free = i + 1;
        *s = &e->seqs[i];
        (*s)->id = ++(*s)->generation << 16 | i;
        (*s)->begin = (*s)->hidden = (*s)->swapped = (*s)->arrival = 0;
        (*s)->tokens = e->tokens + (size_t)i * e->config.shape.n_layers;
        pimattn_i_seq_length(e, *s, 0);
        return PIMATTN_OK;
    }
    return PIMATTN_I_FAIL(PIMATTN_ERR_SEQ, &e->why, "all %u sequences of max_seqs are alive",
                          (uint64_t)e->config.max_seqs);
}

/* Lets go of the chunks, or slots, of tokens from n on; what holds those before `kept` stays. */
static void pimattn_i_seq_trim(pimattn_engine *e, const pimattn_i_seq *s, uint64_t n, uint64_t kept)
{
    for (size_t i = 0; e->module && i < e->module->n_lists; i++)
        pimattn_i_list_keep(e->module, pimattn_i_lists_of(e, s, 0, 0) + i,
                            (uint32_t)pimattn_i_chunks_of(&e->plan, i % 2, kept));
    for (uint32_t i = 0; e->tiered && i < e->config.shape.n_layers; i++)
        pimattn_i_table_cut(e->tiered, pimattn_i_table_of(e, s, i), n, kept);
}

static void pimattn_i_seq_end(pimattn_engine *e, pimattn_i_seq *s)
{
    pimattn_i_seq_trim(e, s, 0, 0);
    pimattn_i_seq_empty(&e->pool, s);
    s->id = 0;
    e->first_free = (uint32_t)pimattn_i_min(e->first_free, (uint64_t)(s - e->seqs));
}

/* Names a new sequence, or ends it if it could not be made. */
static pimattn_status pimattn_i_seq_made(pimattn_engine *e, pimattn_i_seq *s, pimattn_status status,
                                         pimattn_seq *seq)
{
    if (status == PIMATTN_ERR_MEMORY)
        pimhw_cause_write(&e->why, "no memory for the pages of a new sequence");
    if (status == PIMATTN_OK) *seq = s->id;
    if (status != PIMATTN_OK) pimattn_i_seq_end(e, s);
    return status;
}

PIMATTN_API pimattn_status pimattn_seq_create(pimattn_engine *engine, pimattn_seq *seq)
{
    pimattn_i_seq *s;
    if (!engine || !seq) return pimattn_i_wrong(engine, "seq is NULL", 0);
    if (pimattn_i_is_busy(engine)) return PIMATTN_ERR_SEQ;
    PIMATTN_I_TRY(pimattn_i_seq_new(engine, &s));
    return pimattn_i_seq_made(engine, s, pimattn_i_fit(engine, s, 0, 0), seq);
}

PIMATTN_API pimattn_status pimattn_seq_free(pimattn_engine *engine, pimattn_seq seq)
{
    if (!engine) return PIMATTN_ERR_ARGUMENT;
    pimattn_i_seq *s = pimattn_i_is_busy(engine) ? NULL : pimattn_i_seq_find(engine, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    pimattn_i_seq_end(engine, s);
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A23] APPEND: rows of new tokens into pages, banks and the slots of tiers.
 *       Knows types and places; nothing of queries.
 * ========================================================================== */

/* Bytes from one row of heads of f32 to the next, 0: packed; n of them must be in memory. */
static pimattn_status pimattn_i_stride(pimattn_engine *e, const char *of, size_t *stride,
                                       uint64_t heads, uint64_t dim, uint64_t n)
{
    uint64_t row = 4 * heads * dim, is = *stride ? *stride : row;
    *stride = (size_t)is;
    if (is >= row && pimattn_i_mul(is, n) <= SIZE_MAX / 2) return PIMATTN_OK;
    if (is < row) return PIMATTN_I_WRONG(e, "%s_stride is %u, a row has %u bytes", of, is, row);
    return PIMATTN_I_WRONG(e, "%s_stride of %u reaches beyond memory", of, is);
}

enum { PIMATTN_I_HEADS = 16 }; /* whose rows are stored at once */

/* Rows of a call, [heads][dim] of each token. */
typedef struct pimattn_i_rows {
    const unsigned char *from;
    size_t stride;
    uint32_t heads, dim, type;
    const char *what;
    bool plain; /* none is beyond the type; not looked at in f32 and int8, which hold all */
} pimattn_i_rows;

/* Names a finite value that the type cannot hold, in words for what, token, head, index, type. */
static pimattn_status pimattn_i_range_check(pimattn_engine *e, pimattn_i_rows *rows, uint64_t n,
                                            const char *text)
{
    /* bits of the least magnitude that becomes infinity */
    const uint32_t limit = rows->type == PIMATTN_F16 ? 0x477ff000u : 0x7f7f8000u;
    const size_t all = (size_t)rows->heads * rows->dim;
    rows->plain = true;
    if (rows->type == PIMATTN_F32 || rows->type == PIMATTN_INT8) return PIMATTN_OK;
    for (uint64_t t = 0; t < n; t++) {
        const unsigned char *row = rows->from + (size_t)t * rows->stride;
        if (e->kernel->magnitude(row, all) < limit) continue;
        rows->plain = false;
        for (size_t i = 0; i < all; i++) {
            const uint32_t magnitude = pimattn_i_magnitude(row + 4 * i, 1);
            if (magnitude < limit || magnitude >= 0x7f800000u) continue;
            return PIMATTN_I_FAIL(PIMATTN_ERR_RANGE, &e->why, text, rows->what, t,
                                  (uint64_t)(i / rows->dim), (uint64_t)(i % rows->dim),
                                  rows->type == PIMATTN_F16 ? "f16" : "bf16");
        }
    }
    return PIMATTN_OK;
}

/* Rows of a token, of KV heads from `head` on: to their runs, the at'th of these. Of int8 scales
 * first. One call for all, for between stores to memory others would take their place in line. */
static void pimattn_i_append_rows(const pimattn_engine *e, const pimattn_i_rows *rows,
                                  uint64_t token, uint32_t head, uint32_t n_heads,
                                  unsigned char *const *runs, bool is_v, uint64_t at)
{
    const pimattn_i_layout *lay = &e->layout;
    const uint64_t to = lay->offset[is_v] + at * lay->row[is_v];
    const uint64_t scale_to = lay->offset[2 + is_v] + at * lay->row[2 + is_v];
    const unsigned char *from = rows->from + (size_t)token * rows->stride;
    const pimattn_i_kernel *kernel = rows->plain ? e->kernel : &pimattn_i_kernel_scalar;
    pimattn_i_row list[PIMATTN_I_HEADS];
    uint32_t most[PIMATTN_I_HEADS] = {0}, n = 0;
    from += 4 * (size_t)head * rows->dim;
    /* all of them before any scale, so that none waits for another */
    for (uint32_t h = 0; h < n_heads && rows->type == PIMATTN_INT8; h++)
        most[h] = kernel->magnitude(from + 4 * (size_t)h * rows->dim, rows->dim);
    for (uint32_t h = 0; h < n_heads; h++) {
        pimattn_i_row row = {runs[h] + to, from + 4 * (size_t)h * rows->dim, 1.0f};
        if (rows->type == PIMATTN_INT8) {
            const float scale = pimattn_i_int8_scale(most[h]);
            memcpy(runs[h] + scale_to, &scale, sizeof scale);
            row.per_unit = 1.0f / scale;
            if (pimattn_i_is_nan(scale)) {
                memset(row.to, 0, rows->dim);
                continue;
            }
        }
        list[n++] = row;
    }
    kernel->store(list, n, rows->type, rows->dim);
}

/* Stores to memory in no cache wait in a short line: it is fetched ahead, into the second cache,
 * for the first has too few slots for a token's rows. Inlined: gcc drops calls of no more. */
PIMATTN_I_INLINE void pimattn_i_fetch_run(const pimattn_i_layout *lay, const unsigned char *run,
                                          uint64_t at)
{
    for (int i = 0; i < 2; i++)
        for (uint64_t b = 0; b < lay->row[i]; b += 64)
            PIMATTN_I_FETCH_TO_WRITE(run + lay->offset[i] + at * lay->row[i] + b);
}

static void pimattn_i_append_tokens(pimattn_engine *e, pimattn_i_seq *s, uint32_t layer,
                                    const pimattn_i_rows *k, const pimattn_i_rows *v, uint64_t n)
{
    const pimattn_i_layout *lay = &e->layout;
    for (uint64_t t = 0; t < n; t++) {
        uint64_t token = s->tokens[layer] + t, page = token / lay->page_tokens, at;
        unsigned char *runs[PIMATTN_I_HEADS], *slot = NULL; /* of tiers: a token is a run */
        if (e->tiered)
            slot = pimattn_i_slot(e->tiered, &pimattn_i_table_of(e, s, layer)->token[token]);
        const uint32_t *pages = slot ? NULL : pimattn_i_table_at(lay, s, page, layer);
        const uint64_t from = pimattn_i_run_from(lay, token, &at);
        for (uint32_t head = 0, most; head < lay->n_kv_heads; head += most) {
            most = (uint32_t)pimattn_i_min(lay->n_kv_heads - head, PIMATTN_I_HEADS);
            for (uint32_t h = 0; h < most; h++) {
                runs[h] = slot ? slot + (head + h) * lay->page_bytes
                               : pimattn_i_page(&e->pool, pages[head + h]) + from;
                if (e->pool.bounds)
                    pimattn_i_page_change(&e->pool, pages[head + h], token % lay->page_tokens);
                if (slot || t > 0) pimattn_i_fetch_run(lay, runs[h], at);
            }
            pimattn_i_append_rows(e, k, t, head, most, runs, false, at);
            if (!e->config.shape.v_in_k) pimattn_i_append_rows(e, v, t, head, most, runs, true, at);
        }
    }
}

/* One column, or some lanes of it, into a bank: bytes at once, and a command to time. */
static bool pimattn_i_write_column(pimattn_engine *e, const pimattn_i_list *list,
                                   const pimattn_i_place *at, const uint16_t *lanes, uint32_t first,
                                   uint32_t n)
{
    pimattn_i_module *m = e->module;
    const pimhw_config *d = &m->plan->device;
    const uint32_t banks = pimhw_config_banks(d) / d->n_ranks; /* of a rank */
    uint32_t chunk = list->first;
    for (uint64_t before = at->row / m->chunk_rows; before > 0; before--)
        chunk = m->next[chunk];
    const uint32_t row = chunk % m->n_chunks * m->chunk_rows + (uint32_t)(at->row % m->chunk_rows);
    const pimhw_da to = {
        at->channel + list->unit, at->bank / banks, at->bank % banks, row, at->column, first * 2};
    if (pimhw_memory_write(m->memory, &to, lanes, n * 2, &e->why) != PIMHW_OK) return false;
    pimhw_instruction in;
    memset(&in, 0, sizeof in);
    in.mask = (uint64_t)1 << to.channel;
    in.op_size = 1;
    in.bank = at->bank;
    in.row = row;
    in.column = at->column;
    /* a shared front end answers reads by the writes that wait, so SYNC goes before */
    static const pimhw_kind kinds[] = {PIMHW_SYNC, PIMHW_RD_SBK, PIMHW_WR_SBK};
    bool reads = n < pimhw_config_lanes(d) && d->partial_write, done = true;
    for (int i = reads ? d->front_end != PIMHW_SHARED : 2; i < 3 && done; i++)
        in.kind = kinds[i], done = !pimhw_device_submit(e->planner.device, &in, &e->why);
    return done;
}

static uint32_t pimattn_i_lane_type(const pimattn_engine *e)
{
    return e->config.device.lane_type == PIMHW_LANE_F16 ? PIMATTN_F16 : PIMATTN_BF16;
}

/* One head's rows from token `before` on: K by tokens, V by columns, of zeros if rows is NULL. */
static bool pimattn_i_append_head(pimattn_engine *e, const pimattn_i_list *list, bool is_v,
                                  const pimattn_i_rows *rows, size_t head, uint64_t before,
                                  uint64_t n)
{
    const pimattn_i_module *m = e->module;
    const uint32_t lanes = pimhw_config_lanes(&m->plan->device), type = m->plan->device.lane_type;
    const uint32_t dim = is_v ? m->plan->shape.head_dim_v : m->plan->shape.head_dim;
    const unsigned char *from = rows ? rows[is_v].from + 4 * head * dim : NULL;
    uint16_t column[512]; /* the most lanes it has */
    for (uint64_t t = 0, some = 1; t < n; t += some) {
        const uint32_t first = is_v ? (uint32_t)((before + t) % lanes) : 0;
        if (is_v) some = pimattn_i_min(lanes - first, n - t);
        for (uint32_t c = 0; c < (is_v ? dim : m->plan->k_columns); c++) {
            pimattn_i_place at = is_v ? pimattn_i_place_v(m->plan, before + t, c)
                                      : pimattn_i_place_k(m->plan, before + t, c);
            memset(column, 0, sizeof column);
            for (uint64_t i = 0; is_v && from && i < some; i++) /* a dim of tokens; or of a token */
                pimhw_lanes_round(type, column + i, from + (t + i) * rows[1].stride + 4 * c, 1);
            if (!is_v)
                pimhw_lanes_round(type, column, from + t * rows[0].stride + 4 * (size_t)lanes * c,
                                  (size_t)pimattn_i_min(lanes, dim - c * lanes));
            /* the first token of a column of V writes zeros behind it */
            if (!pimattn_i_write_column(e, list, &at, column, first,
                                        first ? (uint32_t)some : lanes))
                return false;
        }
    }
    return true;
}

/* Rows of K and V of all heads into the banks, or zeros of V, and what that costs. */
static pimattn_status pimattn_i_module_append(pimattn_engine *e, pimattn_i_seq *s, uint32_t layer,
                                              const pimattn_i_rows *rows, uint64_t before,
                                              uint64_t n)
{
    pimattn_i_module *m = e->module;
    pimhw_readings r;
    uint32_t group = m->n_heads / e->config.shape.n_kv_heads;
    bool done = pimhw_device_begin(e->planner.device, NULL) == PIMHW_OK;
    for (uint32_t h = 0; h < m->n_heads && done; h++)
        for (uint32_t which = rows ? 0 : 1; which < 2 && done; which++)
            done = pimattn_i_append_head(e, pimattn_i_lists_of(e, s, layer, h) + which, which == 1,
                                         rows, h / group, before, n);
    if (!done) return PIMATTN_ERR_MEMORY;
    if (pimhw_device_finish(e->planner.device, &r, &e->why) != PIMHW_OK) return PIMATTN_ERR_DEVICE;
    m->append_ck += r.cycles;
    m->append_pJ += r.total_pJ;
    for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++)
        m->append_commands += r.commands[i];
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_append(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                          const float *k, const float *v, uint64_t n_tokens,
                                          size_t k_stride, size_t v_stride)
{
    if (!e) return PIMATTN_ERR_ARGUMENT;
    const pimattn_shape *shape = &e->config.shape;
    if (layer >= shape->n_layers)
        return pimattn_i_wrong(e, "layer %u is not below n_layers", layer);
    pimattn_i_seq *s = pimattn_i_seq_here(e, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    if (n_tokens == 0) return PIMATTN_OK;
    if (!k || (!v && !shape->v_in_k))
        return pimattn_i_wrong(e, "k or v is NULL for %u tokens", n_tokens);
    uint64_t before = s->tokens[layer], tokens = pimattn_i_add(before, n_tokens);
    if (tokens > PIMATTN_I_MAX_TOKENS) /* not to be blamed on a stride */
        return pimattn_i_wrong(e, "a sequence of %u tokens is more than 2^32", tokens);
    const bool banks = e->module != NULL; /* there both are of the lanes' type */
    const uint32_t heads = shape->n_kv_heads, n_rows = shape->v_in_k ? 1 : 2;
    const uint32_t k_type = banks ? pimattn_i_lane_type(e) : shape->k_type;
    const uint32_t v_type = banks ? k_type : shape->v_type;
    pimattn_i_rows rows[2] = {
        {(const unsigned char *)k, k_stride, heads, shape->head_dim, k_type, "k", false},
        {(const unsigned char *)v, v_stride, heads, shape->head_dim_v, v_type, "v", false}};
    for (pimattn_i_rows *r = rows; r < rows + n_rows; r++)
        PIMATTN_I_TRY(pimattn_i_stride(e, r->what, &r->stride, heads, r->dim, n_tokens));
    /* rows of the first token, if it has pages, of banks and tiers none: while it is checked */
    uint64_t page = before / e->layout.page_tokens, at;
    for (uint32_t h = 0; page < s->n_pages && h < heads; h++) {
        const unsigned char *run = pimattn_i_run(&e->pool, s, layer, h, before, &at);
        pimattn_i_fetch_run(&e->layout, run, at);
    }
    const char *text = "%s of token %u of this append, KV head %u, index %u is beyond %s";
    for (uint32_t i = 0; i < n_rows; i++)
        PIMATTN_I_TRY(pimattn_i_range_check(e, &rows[i], n_tokens, text));
    PIMATTN_I_TRY(pimattn_i_hold(e, s, before, tokens));
    if (banks)
        PIMATTN_I_TRY(pimattn_i_module_append(e, s, layer, rows, before, n_tokens));
    else
        pimattn_i_append_tokens(e, s, layer, &rows[0], &rows[1], n_tokens);
    s->tokens[layer] += n_tokens;
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A24] LIFE CYCLE: fork, keep, truncate, prefixes, compaction; what is where.
 *       Knows pages, chunks, slots and banks, and who holds them; nothing of what values mean.
 * ========================================================================== */

/* What the device way and tiers do not have yet. */
static pimattn_status pimattn_i_paged(pimattn_engine *e)
{
    if (!e || pimattn_i_is_busy(e)) return PIMATTN_ERR_ARGUMENT;
    if (!e->module && !e->tiered) return PIMATTN_OK;
    return PIMATTN_I_UNABLE(
        e, "the device way and tiers have only create, append, reserve, truncate and free so far");
}

PIMATTN_API pimattn_status pimattn_seq_fork(pimattn_engine *e, pimattn_seq *child,
                                            pimattn_seq parent)
{
    pimattn_i_seq *from, *s;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    if (!child) return pimattn_i_wrong(e, "child is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_seq_even(e, parent, &from));
    PIMATTN_I_TRY(pimattn_i_seq_new(e, &s));
    s->begin = from->begin;
    s->hidden = from->hidden;
    pimattn_i_seq_length(e, s, from->tokens[0]);
    pimattn_status status = pimattn_i_seq_share(&e->pool, s, from, s->tokens[0]);
    if (status == PIMATTN_OK) status = pimattn_i_fit(e, s, s->tokens[0], s->tokens[0]);
    return pimattn_i_seq_made(e, s, status, child);
}

PIMATTN_API pimattn_status pimattn_seq_keep(pimattn_engine *e, pimattn_seq seq, uint64_t first,
                                            uint64_t end)
{
    if (!e) return PIMATTN_ERR_ARGUMENT;
    const pimattn_shape *shape = &e->config.shape;
    pimattn_i_seq *s = pimattn_i_seq_here(e, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        if (end > s->tokens[i])
            return PIMATTN_I_WRONG(e, "%u tokens are beyond the %u of layer %u", end, s->tokens[i],
                                   (uint64_t)i);
    if (first > end) return pimattn_i_wrong(e, "first token %u is beyond the end", first);
    if (first < s->begin) return pimattn_i_wrong(e, "token %u is gone", first);
    if (end < s->hidden)
        return PIMATTN_I_WRONG(e, "to %u tokens: queries before token %u are gone", end, s->hidden);
    if (first <= shape->sink_tokens) first = 0;
    if (first > 0) PIMATTN_I_TRY(pimattn_i_paged(e));
    /* what is left of V's last column in banks gets zeros behind, for 0 times NaN is not 0 */
    const uint32_t lanes = pimhw_config_lanes(&e->plan.device);
    for (uint32_t i = 0; e->module && i < shape->n_layers; i++) {
        const uint64_t rest = pimattn_i_min((lanes - end % lanes) % lanes, s->tokens[i] - end);
        if (rest) PIMATTN_I_TRY(pimattn_i_module_append(e, s, i, NULL, end, rest));
    }
    const uint64_t kept = pimattn_i_max(end, e->config.reserve_tokens);
    pimattn_i_seq_trim(e, s, end, kept);
    /* banks and tiers have no pages */
    const uint64_t page = e->layout.page_tokens;
    const uint64_t last = pimattn_i_min(pimattn_i_ceil_div(kept, page), s->n_pages);
    pimattn_i_seq_cut(&e->pool, s, last, s->n_pages);
    pimattn_i_seq_cut(&e->pool, s, e->layout.sink_pages, pimattn_i_min(first / page, last));
    s->n_pages = pimattn_i_max(last, first / page);
    s->begin = first;
    pimattn_i_seq_length(e, s, end);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_seq_truncate(pimattn_engine *e, pimattn_seq seq, uint64_t tokens)
{
    const pimattn_i_seq *s = e ? pimattn_i_seq_here(e, seq) : NULL;
    if (s && tokens < s->begin)
        return PIMATTN_I_WRONG(e, "to %u tokens: those before token %u are gone", tokens, s->begin);
    return pimattn_seq_keep(e, seq, s ? s->begin : 0, tokens);
}

PIMATTN_API pimattn_status pimattn_seq_drop_hidden(pimattn_engine *e, pimattn_seq seq,
                                                   uint64_t first)
{
    pimattn_i_seq *s;
    uint64_t widest = 0;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    PIMATTN_I_TRY(pimattn_i_seq_even(e, seq, &s));
    const pimattn_i_layout *lay = &e->layout;
    if (first > s->tokens[0])
        return PIMATTN_I_WRONG(e, "token %u is beyond the %u there are", first, s->tokens[0]);
    for (uint32_t i = 0; i < lay->n_layers; i++)
        widest = pimattn_i_max(widest, pimattn_i_window_of(lay->shape, i));
    if (widest == 0 || first <= s->hidden) return PIMATTN_OK;
    /* before that all layers were looked at */
    uint64_t at = pimattn_i_window_begin(widest, s->hidden) / lay->page_tokens;
    s->hidden = first;
    for (; (at = pimattn_i_seq_next(lay, s, at)) * lay->page_tokens < first; at++) {
        uint32_t *set = pimattn_i_table_at(lay, s, at, 0);
        for (uint64_t i = e->pool.set_pages; i > 0 && e->pool.refs[*set].count == 1; i--)
            if (pimattn_i_seq_hides(lay, s, at, i - 1)) {
                pimattn_i_page_drop(&e->pool, set[i - 1], PIMATTN_PAGE_FREED);
                set[i - 1] = PIMATTN_I_NO_PAGE;
            }
    }
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_seq_accept(pimattn_engine *e, pimattn_seq seq, uint64_t first,
                                              const uint32_t *kept, size_t n)
{
    pimattn_i_seq *s;
    const char *text = "kept[%u] is %u: not above the one before, or beyond the %u that follow";
    uint64_t i = 0;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    PIMATTN_I_TRY(pimattn_i_seq_even(e, seq, &s));
    const uint64_t tokens = s->tokens[0];
    if (!kept && n > 0) return pimattn_i_wrong(e, "kept is NULL for %u tokens", n);
    const uint64_t least = pimattn_i_max(s->begin, s->hidden);
    if (first < least || first > tokens)
        return PIMATTN_I_WRONG(e, "first is %u, not %u to %u", first, least, tokens);
    if (n > tokens - first)
        return PIMATTN_I_WRONG(e, "n is %u, of %u tokens", (uint64_t)n, tokens - first);
    for (; i < n; i++)
        if (kept[i] >= tokens - first || (i > 0 && kept[i] <= kept[i - 1]))
            return PIMATTN_I_WRONG(e, text, i, (uint64_t)kept[i], tokens - first);
    for (i = 0; i < n && kept[i] == i;)
        i++; /* these stay where they are */
    PIMATTN_I_TRY(pimattn_i_hold(e, s, first + i, first + n));
    const pimattn_i_layout *lay = &e->layout;
    for (; i < n; i++) /* rows and their scales, of heads of layer 0, then of the next */
        for (uint32_t head = 0; head < e->pool.set_pages; head++) {
            uint64_t to = first + i, page = to / lay->page_tokens, at, was;
            unsigned char *run = pimattn_i_run(&e->pool, s, 0, head, to, &at);
            const unsigned char *old = pimattn_i_run(&e->pool, s, 0, head, first + kept[i], &was);
            for (uint32_t part = 0; part < 4; part++)
                memcpy(run + lay->offset[part] + at * lay->row[part],
                       old + lay->offset[part] + was * lay->row[part], (size_t)lay->row[part]);
            pimattn_i_page_change(&e->pool, pimattn_i_table_at(lay, s, page, 0)[head],
                                  to % lay->page_tokens);
        }
    return pimattn_seq_keep(e, seq, s->begin, first + n);
}

static pimattn_i_entry pimattn_i_chain_of(const pimattn_engine *e, uint64_t salt)
{
    pimattn_i_entry like = {pimattn_i_mix(0, salt), salt, 0, 0, 0, 0, 0, e->layout.page_tokens};
    return like;
}

PIMATTN_API pimattn_status pimattn_prefix_remember(pimattn_engine *e, pimattn_seq seq,
                                                   const uint32_t *tokens, uint64_t n_tokens,
                                                   uint64_t salt)
{
    pimattn_i_seq *s;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    PIMATTN_I_TRY(pimattn_i_seq_even(e, seq, &s));
    if (!tokens && n_tokens > 0) return pimattn_i_wrong(e, "tokens is NULL", 0);
    if (n_tokens > s->tokens[0])
        return PIMATTN_I_WRONG(e, "%u tokens are beyond the %u there are", n_tokens, s->tokens[0]);
    const uint64_t gone = pimattn_i_max(s->begin, s->hidden);
    if (gone > 0) return pimattn_i_wrong(e, "of the tokens before %u some are gone", gone);
    uint64_t n = n_tokens / e->layout.page_tokens;
    pimattn_i_store *st = &e->pool.store;
    if (pimattn_i_store_grow(&e->pool, st->n + n) != PIMATTN_OK)
        return PIMATTN_I_LACK(&e->why, "no memory to remember %u pages", n);
    pimattn_i_entry like = pimattn_i_chain_of(e, salt);
    for (uint64_t i = 0; i < n; i++, tokens += like.page_tokens) {
        const uint32_t *pages = pimattn_i_table_at(&e->layout, s, i, 0);
        uint32_t at = pimattn_i_store_find(st, &like, tokens);
        const uint32_t own = e->pool.refs[*pages].entry;
        if (!at && own && !pimattn_i_entry_says(pimattn_i_entry_at(st, own), &like, tokens)) break;
        if (!at) at = own ? own : pimattn_i_store_add(&e->pool, &like, tokens, pages);
        pimattn_i_entry_at(st, at)->parent = like.parent; /* anew if that was given up */
        like.parent = pimattn_i_entry_at(st, at)->serial;
    }
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_prefix_start(pimattn_engine *e, pimattn_seq *seq,
                                                const uint32_t *tokens, uint64_t n_tokens,
                                                uint64_t salt, uint64_t *n_known)
{
    pimattn_i_seq *s = NULL;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    if (!n_known || (!tokens && n_tokens > 0))
        return pimattn_i_wrong(e, "tokens or n_known is NULL", 0);
    if (seq) PIMATTN_I_TRY(pimattn_i_seq_new(e, &s));
    const pimattn_i_store *st = &e->pool.store;
    uint64_t known = 0, n = pimattn_i_min(n_tokens / e->layout.page_tokens, st->n);
    pimattn_i_entry like = pimattn_i_chain_of(e, salt);
    pimattn_status status = s ? pimattn_i_table_grow(&e->pool, s, n) : PIMATTN_OK;
    for (; n > 0 && status == PIMATTN_OK; n--, known += like.page_tokens) {
        uint32_t at = pimattn_i_store_find(st, &like, tokens + known);
        if (!at) break;
        if (s) pimattn_i_seq_take(&e->pool, s, pimattn_i_entry_pages(pimattn_i_entry_at(st, at)));
        like.parent = pimattn_i_entry_at(st, at)->serial;
    }
    if (s) {
        pimattn_i_seq_length(e, s, known);
        if (status == PIMATTN_OK) status = pimattn_i_fit(e, s, known, known);
        status = pimattn_i_seq_made(e, s, status, seq);
    }
    if (status == PIMATTN_OK) *n_known = known;
    return status;
}

PIMATTN_API pimattn_status pimattn_cache_compact(pimattn_engine *e, uint64_t *bytes_moved)
{
    PIMATTN_I_TRY(pimattn_i_paged(e));
    pimattn_i_pool *pool = &e->pool;
    uint64_t moved = 0, end = pimattn_i_ceil_div(pool->n_used, pool->slab_pages) * pool->slab_pages;
    pool->n_fresh = pimattn_i_min(pool->n_fresh, end);
    pool->free_head = 0; /* only free pages before `end` are picked now, the lowest first */
    for (uint64_t page = pool->n_fresh; page > 0; page--)
        if (pool->refs[page - 1].count == 0) pimattn_i_page_free(pool, (uint32_t)page - 1);
    for (const pimattn_i_seq *s = e->seqs; s < e->seqs + e->config.max_seqs; s++)
        for (uint64_t i = 0; (i = pimattn_i_seq_next(&e->layout, s, i)) < s->n_pages; i++)
            moved += pimattn_i_compact_move(pool, pimattn_i_table_at(&e->layout, s, i, 0), end);
    for (uint32_t i = 1; i <= pool->store.n_most; i++) {
        pimattn_i_entry *entry = pimattn_i_entry_at(&pool->store, i);
        if (entry->serial) moved += pimattn_i_compact_move(pool, pimattn_i_entry_pages(entry), end);
    }
    pimattn_i_compact_end(pool, end);
    e->moved_bytes += moved * pool->page_bytes;
    if (bytes_moved) *bytes_moved = moved * pool->page_bytes;
    return PIMATTN_OK;
}

/* Pages of a sequence that no other one holds; *all: and those that others hold too. */
static uint64_t pimattn_i_seq_own(const pimattn_engine *e, const pimattn_i_seq *s, uint64_t *all)
{
    const pimattn_i_layout *lay = &e->layout;
    uint64_t own = 0;
    *all = 0;
    for (uint64_t i = 0; (i = pimattn_i_seq_next(lay, s, i)) < s->n_pages; i++) {
        const uint32_t *set = pimattn_i_table_at(lay, s, i, 0);
        pimattn_i_ref ref = e->pool.refs[*set];
        uint64_t n = e->pool.set_pages;
        for (uint64_t k = e->pool.set_pages; k > 0 && s->hidden > 0; k--)
            n -= set[k - 1] == PIMATTN_I_NO_PAGE;
        if (ref.count - (ref.entry != 0) == 1) own += n;
        *all += n;
    }
    return own;
}

PIMATTN_API pimattn_status pimattn_cache_query(pimattn_engine *engine, pimattn_cache_info *info)
{
    if (!engine || !info) return pimattn_i_wrong(engine, "info is NULL", 0);
    const pimattn_i_pool *pool = &engine->pool; /* banks and tiers have no pages there */
    uint64_t all;
    memset(info, 0, sizeof *info);
    info->pages_total = pimattn_pages_total(engine);
    info->pages_used = pimattn_pages_used(engine);
    info->pages_free = info->pages_total - info->pages_used;
    info->pages_shared = pimattn_i_pool_held(pool);
    info->pages_known = pool->n_used - info->pages_shared;
    for (const pimattn_i_seq *s = engine->seqs; s < engine->seqs + engine->config.max_seqs; s++)
        if (s->id) info->pages_shared -= pimattn_i_seq_own(engine, s, &all);
    if (engine->tiered) info->memory_bytes = info->pages_total * engine->layout.page_bytes;
    if (engine->module) info->memory_bytes = pimhw_memory_bytes(engine->module->memory);
    for (uint64_t i = 0; i < pool->n_slabs; i++)
        info->memory_bytes += pimattn_i_slab_bytes(pool, i);
    info->moved_bytes = engine->moved_bytes;
    info->swapped = engine->swapped;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_seq_query(pimattn_engine *engine, pimattn_seq seq,
                                             pimattn_seq_info *info)
{
    if (!engine || !info) return pimattn_i_wrong(engine, "info is NULL", 0);
    const pimattn_i_seq *s = pimattn_i_seq_find(engine, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    memset(info, 0, sizeof *info);
    info->first_token = s->begin;
    info->first_query = s->hidden;
    info->n_tokens = s->tokens[0];
    const uint64_t own = pimattn_i_seq_own(engine, s, &info->pages);
    info->pages_shared = info->pages - own;
    for (uint32_t i = 0; engine->tiered && i < engine->config.shape.n_layers; i++)
        info->pages += pimattn_i_table_of(engine, s, i)->n * engine->config.shape.n_kv_heads;
    for (size_t i = 0; engine->module && i < engine->module->n_lists; i++)
        info->pages += pimattn_i_lists_of(engine, s, 0, 0)[i].n;
    info->bytes = info->pages * pimattn_page_bytes(engine);
    info->layer_bytes = info->bytes / engine->config.shape.n_layers;
    info->swapped_out = s->swapped != 0;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_seq_banks(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                             uint64_t *bytes, size_t n)
{
    if (!e) return PIMATTN_ERR_ARGUMENT;
    const pimattn_config *c = &e->config;
    const pimattn_i_seq *s = pimattn_i_seq_find(e, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    if (layer >= c->shape.n_layers)
        return pimattn_i_wrong(e, "layer %u is not below n_layers", layer);
    uint64_t banks = pimhw_config_banks(&c->device), all = c->device.n_channels * banks;
    if (!bytes || n != all)
        return PIMATTN_I_WRONG(e, "bytes is NULL, or has %u places, not %u", (uint64_t)n, all);
    memset(bytes, 0, n * sizeof *bytes);
    for (uint32_t h = 0; h < pimattn_i_units(&e->plan); h++) {
        size_t unit = e->plan.unit_channels > 1 ? 0 : h % c->device.n_channels;
        if (e->module) unit = pimattn_i_lists_of(e, s, layer, h)->unit;
        pimattn_i_banks_add(&e->plan, bytes + unit * banks,
                            s->tokens[layer] - pimattn_i_seq_gone(&e->layout, s));
    }
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A25] STATES: sequences saved and restored, swapped out and in.
 *       Knows rows, lengths and shared pages; a state goes to memory or a stream, over the link.
 * ========================================================================== */

/* A state on its way, little-endian. Words of 8 bytes, and the hash of all before: what it is and
 * its shape; then of every sequence its head and hash, its rows and hash. Rows: of every layer and
 * head all K, scales of K, V, scales of V. Any bit that changes changes the hash. */
typedef struct pimattn_i_flow {
    pimattn_stream stream;
    const char **within; /* of the pool */
    bool reading, failed;
    uint64_t at, hash;
} pimattn_i_flow;

enum { PIMATTN_I_STATE_VERSION = 4, PIMATTN_I_FLOW = 1024 };
enum { PIMATTN_I_STATE_WORDS = 9, PIMATTN_I_STATE_SEQ = 8 }; /* before their hash */

#define PIMATTN_I_STATE_MAGIC 0x6e747461006d6970u /* "pim", 0, "attn" */

/* Numbers of `size` bytes into a state or out of it, and its hash with their bytes there: four
 * words of 8 bytes at a time, that do not wait for each other, then one after the other. */
static void pimattn_i_flow_copy(pimattn_i_flow *f, unsigned char *there, unsigned char *here,
                                size_t bytes, size_t size)
{
    const uint16_t one = 1;
    const bool little = *(const unsigned char *)&one == 1;
    const unsigned char *from = f->reading ? there : here;
    unsigned char *to = f->reading ? here : there;
    uint64_t word[4], a = f->hash, b = 1, c = 2, d = 3;
    size_t i = 0;
    for (; little && i + sizeof word <= bytes; i += sizeof word) {
        memcpy(word, from + i, sizeof word);
        memcpy(to + i, word, sizeof word);
        a = pimattn_i_mix(a, word[0]);
        b = pimattn_i_mix(b, word[1]);
        c = pimattn_i_mix(c, word[2]);
        d = pimattn_i_mix(d, word[3]);
    }
    uint64_t lane[4] = {a, b, c, d};
    for (uint64_t last = 0; i < bytes; i++) {
        size_t at = little ? i : i / size * size + size - 1 - i % size;
        to[f->reading ? at : i] = from[f->reading ? i : at];
        last |= (uint64_t)there[i] << i % 8 * 8;
        if (i % 8 < 7 && i + 1 < bytes) continue;
        lane[i / 8 % 4] = pimattn_i_mix(lane[i / 8 % 4], last);
        last = 0;
    }
    for (size_t k = 1; k < 4; k++)
        lane[0] = pimattn_i_mix(lane[0], lane[k]);
    f->hash = lane[0];
}

/* Moves n numbers of so many bytes. */
static void pimattn_i_flow_move(pimattn_i_flow *f, void *data, size_t n, size_t size)
{
    const pimattn_stream *s = &f->stream;
    unsigned char buffer[PIMATTN_I_FLOW], *here = (unsigned char *)data;
    for (size_t left = n * size, k; left > 0 && !f->failed; left -= k, here += k) {
        unsigned char *there = s->memory ? (unsigned char *)s->memory + f->at : buffer;
        k = (size_t)pimattn_i_min(left, PIMATTN_I_FLOW / size * size);
        *f->within = "a stream";
        if (s->memory)
            f->failed = k > s->bytes - f->at;
        else if (f->reading)
            f->failed = !s->read(s->user, buffer, k);
        f->at += k;
        if (!f->failed) pimattn_i_flow_copy(f, there, here, k, size);
        if (!f->failed && !s->memory && !f->reading) f->failed = !s->write(s->user, buffer, k);
        *f->within = NULL;
    }
}

/* The hash of all before. */
static pimattn_status pimattn_i_flow_sum(pimattn_engine *e, pimattn_i_flow *f)
{
    uint64_t hash = f->hash, there = hash;
    pimattn_i_flow_move(f, &there, 1, sizeof there);
    f->hash = pimattn_i_mix(hash, 1); /* a hash mixed with itself is 0 */
    if (!f->failed && there == hash) return PIMATTN_OK;
    if (!f->failed) return PIMATTN_I_BROKEN(e, "the state is damaged before byte %u", f->at);
    if (f->reading) return PIMATTN_I_BROKEN(e, "the state ends before byte %u", f->at);
    return PIMATTN_I_BROKEN(e, "write gave up before byte %u", f->at);
}

static void pimattn_i_unmark(pimattn_engine *e)
{
    for (uint32_t i = 0; i < e->config.max_seqs; i++)
        e->seqs[i].arrival = 0;
}

static pimattn_status pimattn_i_flow_head(pimattn_engine *e, pimattn_i_flow *f, uint64_t *n_seqs)
{
    static const char names[PIMATTN_I_STATE_WORDS][12] = {
        "", "version", "", "n_layers", "n_kv_heads", "head_dim", "head_dim_v", "k_type", "v_type"};
    const pimattn_shape *s = &e->config.shape;
    uint64_t want[PIMATTN_I_STATE_WORDS] = {
        PIMATTN_I_STATE_MAGIC, PIMATTN_I_STATE_VERSION,       *n_seqs,   s->n_layers, s->n_kv_heads,
        s->head_dim,           s->v_in_k ? 0 : s->head_dim_v, s->k_type, s->v_type};
    uint64_t is[PIMATTN_I_STATE_WORDS];
    if (f->reading) pimattn_i_unmark(e); /* none has arrived */
    memcpy(is, want, sizeof is);
    pimattn_i_flow_move(f, is, PIMATTN_I_STATE_WORDS, sizeof *is);
    *n_seqs = want[2] = is[2];
    if (f->failed) return pimattn_i_flow_sum(e, f);
    for (uint32_t i = 0; i < PIMATTN_I_STATE_WORDS; i++) {
        if (i == 2) PIMATTN_I_TRY(pimattn_i_flow_sum(e, f)); /* another version may have others */
        if (is[i] == want[i]) continue;
        const char *text = i ? "the state has %s %u, not %u" : "%sthis is no saved state";
        return PIMATTN_I_BROKEN(e, text, names[i], is[i], want[i]);
    }
    return PIMATTN_OK;
}

/* Bytes of the rows of a sequence in a state that has its first tokens already. */
static uint64_t pimattn_i_flow_bytes(const pimattn_engine *e, const pimattn_i_seq *s, uint64_t has)
{
    const uint64_t sinks = s->begin - pimattn_i_seq_gone(&e->layout, s), tokens = s->tokens[0];
    const uint64_t first = pimattn_i_max(s->begin, has);
    const uint64_t from = pimattn_i_max(first, e->layout.sink_tokens);
    uint64_t n = 0;
    for (uint32_t i = 0; i < e->layout.n_layers; i++) {
        const uint64_t sees = pimattn_i_seq_sees(&e->layout, s, i);
        n += sinks - pimattn_i_min(sinks, has) + tokens - first - (sees > from ? sees - from : 0);
    }
    return n * e->layout.n_kv_heads * e->layout.token_bytes;
}

static void pimattn_i_flow_rows(const pimattn_engine *e, pimattn_i_flow *f, const pimattn_i_seq *s,
                                uint64_t first, uint64_t end)
{
    const pimattn_i_layout *lay = &e->layout;
    uint64_t at = 0;
    for (uint64_t part = 0; part < 4 * e->pool.set_pages; part++) {
        const uint32_t head = (uint32_t)(part / 4); /* of layer 0, then of the next */
        const int i = pimattn_i_parts[part % 4];
        const uint64_t sees = pimattn_i_seq_sees(lay, s, head / lay->n_kv_heads);
        unsigned char *run = NULL;
        for (uint64_t t = first; t < end && lay->dim[i] > 0 && !f->failed; t++, at++) {
            const bool gone = t >= lay->sink_tokens && t < sees;
            if (gone) t = sees;
            if (t == end) break;
            if (!run || gone || at == lay->run_tokens)
                run = pimattn_i_run(&e->pool, s, 0, head, t, &at);
            pimattn_i_flow_move(f, run + lay->offset[i] + at * lay->row[i], lay->dim[i],
                                lay->each[i]);
        }
    }
}

/* The sequence that is the i'th of a state under way, from 1 on; NULL. */
static pimattn_i_seq *pimattn_i_arrived(pimattn_engine *e, uint64_t i)
{
    for (uint32_t slot = 0; slot < e->config.max_seqs; slot++)
        if (i > 0 && e->seqs[slot].id && e->seqs[slot].arrival == i) return &e->seqs[slot];
    return NULL;
}

static uint64_t pimattn_i_flow_windows(const pimattn_engine *e)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < e->layout.n_layers; i++)
        hash = pimattn_i_mix(hash, pimattn_i_window_of(&e->config.shape, i));
    return hash;
}

/* Makes room for the tokens of a head that was read, and takes those that another has. */
static pimattn_status pimattn_i_flow_room(pimattn_engine *e, pimattn_i_seq *s,
                                          const uint64_t head[PIMATTN_I_STATE_SEQ])
{
    const char *text = "a sequence of the state has its first %u tokens, sink_tokens is %u";
    uint64_t begin = head[1], tokens = head[2], has = head[4], sinks = e->layout.sink_tokens;
    const pimattn_i_seq *from = pimattn_i_arrived(e, head[3]);
    bool shares = from && from != s && has <= from->tokens[0] &&
                  (has <= sinks || (from->begin <= begin && has > begin)) &&
                  from->hidden <= head[6];
    if (begin > tokens || has > tokens || tokens > PIMATTN_I_MAX_TOKENS || (has > 0 && !shares) ||
        head[6] > tokens)
        return PIMATTN_I_BROKEN(e, "a sequence of the state cannot be");
    if (head[6] > 0 && head[7] != pimattn_i_flow_windows(e))
        return PIMATTN_I_BROKEN(e, "a sequence of the state lacks what other windows hid");
    if (head[5] != (begin ? sinks : 0) || (begin > 0 && begin <= sinks))
        return PIMATTN_I_BROKEN(e, text, head[5], sinks);
    s->begin = begin;
    s->hidden = head[6];
    pimattn_i_seq_length(e, s, tokens);
    if (has > 0) PIMATTN_I_TRY(pimattn_i_seq_share(&e->pool, s, from, has));
    PIMATTN_I_TRY(pimattn_i_hold(e, s, has, head[5])); /* first tokens that are not shared */
    s->n_pages = pimattn_i_seq_next(&e->layout, s, s->n_pages);
    return pimattn_i_fit(e, s, pimattn_i_max(has, begin), tokens);
}

/* Says where most of a sequence's tokens are, if an earlier one of the state shares their pages. */
static void pimattn_i_flow_source(const pimattn_engine *e, const pimattn_i_seq *s, uint64_t *head)
{
    const pimattn_i_layout *lay = &e->layout;
    for (const pimattn_i_seq *with = e->seqs; with < e->seqs + e->config.max_seqs; with++) {
        if (!with->id || with->arrival == 0 || with->arrival >= s->arrival) continue;
        if (with->hidden > s->hidden) continue;    /* it may lack more */
        const bool sinks = with->begin > s->begin; /* it may not have pages behind them, or any */
        uint64_t i = pimattn_i_seq_next(lay, s, 0), n = pimattn_i_min(s->n_pages, with->n_pages);
        if (sinks) n = pimattn_i_min(n, lay->sink_pages);
        while (i < n && *pimattn_i_table_at(lay, s, i, 0) == *pimattn_i_table_at(lay, with, i, 0))
            i = pimattn_i_seq_next(lay, s, i + 1);
        n = pimattn_i_min(i * lay->page_tokens, pimattn_i_min(s->tokens[0], with->tokens[0]));
        if (sinks || n <= s->begin) n = pimattn_i_min(n, lay->sink_tokens);
        if (n <= head[4]) continue;
        head[3] = with->arrival;
        head[4] = n;
    }
}

/* A sequence of a state: written from s, or read into s, which has no pages. */
static pimattn_status pimattn_i_flow_seq(pimattn_engine *e, pimattn_i_flow *f, pimattn_i_seq *s)
{
    uint64_t sinks = s->begin - pimattn_i_seq_gone(&e->layout, s);
    uint64_t head[PIMATTN_I_STATE_SEQ] = {s->id, s->begin, s->tokens[0], 0,
                                          0,     sinks,    s->hidden,    pimattn_i_flow_windows(e)};
    if (!f->reading) pimattn_i_flow_source(e, s, head);
    pimattn_i_flow_move(f, head, PIMATTN_I_STATE_SEQ, sizeof *head);
    PIMATTN_I_TRY(pimattn_i_flow_sum(e, f));
    if (f->reading) PIMATTN_I_TRY(pimattn_i_flow_room(e, s, head));
    pimattn_i_flow_rows(e, f, s, head[4], head[5]);
    pimattn_i_flow_rows(e, f, s, pimattn_i_max(head[1], head[4]), s->tokens[0]);
    return pimattn_i_flow_sum(e, f);
}

/* Says what a state takes and writes it; *hash: of it. */
static pimattn_status pimattn_i_save(pimattn_engine *e, const pimattn_seq *seqs, size_t n_seqs,
                                     const pimattn_stream *stream, uint64_t *bytes, uint64_t *hash)
{
    uint64_t n = 0;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    pimattn_i_unmark(e);
    *bytes = (PIMATTN_I_STATE_WORDS + 1) * sizeof(uint64_t);
    if (seqs && n_seqs > e->config.max_seqs)
        return pimattn_i_wrong(e, "n_seqs is %u, more than max_seqs", n_seqs);
    /* numbers the sequences, first those that others can share with */
    for (size_t i = 0; i < (seqs ? n_seqs : e->config.max_seqs); i++) {
        pimattn_i_seq *s, *next = NULL;
        for (s = e->seqs; s < e->seqs + e->config.max_seqs && !seqs; s++)
            if (s->id && !s->arrival &&
                (!next || s->begin < next->begin ||
                 (s->begin == next->begin && s->tokens[0] > next->tokens[0])))
                next = s;
        if (!seqs && !next) break;
        PIMATTN_I_TRY(pimattn_i_seq_even(e, seqs ? seqs[i] : next->id, &s));
        if (s->arrival) return pimattn_i_wrong(e, "sequence %u is there twice", s->id);
        uint64_t head[PIMATTN_I_STATE_SEQ] = {0};
        s->arrival = ++n;
        pimattn_i_flow_source(e, s, head);
        *bytes += (PIMATTN_I_STATE_SEQ + 2) * sizeof(uint64_t);
        *bytes += pimattn_i_flow_bytes(e, s, head[4]);
    }
    if (!stream) return PIMATTN_OK;
    if (!stream->memory && !stream->write)
        return pimattn_i_wrong(e, "stream has neither memory nor write", 0);
    if (stream->memory && stream->bytes < *bytes)
        return pimattn_i_wrong(e, "the state takes %u bytes, more than there are", *bytes);
    pimattn_i_flow f = {*stream, &e->pool.within, false, false, 0, 0};
    PIMATTN_I_TRY(pimattn_i_flow_head(e, &f, &n));
    for (uint64_t i = 1; i <= n; i++)
        PIMATTN_I_TRY(pimattn_i_flow_seq(e, &f, pimattn_i_arrived(e, i)));
    *hash = f.hash | 1;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_save(pimattn_engine *e, const pimattn_seq *seqs, size_t n_seqs,
                                        const pimattn_stream *stream, uint64_t *bytes)
{
    uint64_t need, hash;
    if (e && !stream && !bytes) return pimattn_i_wrong(e, "stream and bytes are NULL", 0);
    pimattn_status status = pimattn_i_save(e, seqs, n_seqs, stream, &need, &hash);
    if (status == PIMATTN_OK && bytes) *bytes = need;
    return status;
}

PIMATTN_API pimattn_status pimattn_restore(pimattn_engine *e, pimattn_seq *seqs, size_t n_most,
                                           size_t *n_seqs, const pimattn_stream *stream)
{
    uint64_t n = 0;
    PIMATTN_I_TRY(pimattn_i_paged(e));
    if (!n_seqs || (!seqs && n_most > 0)) return pimattn_i_wrong(e, "seqs or n_seqs is NULL", 0);
    if (!stream || (!stream->memory && !stream->read))
        return pimattn_i_wrong(e, "stream has neither memory nor read", 0);
    pimattn_i_flow f = {*stream, &e->pool.within, true, false, 0, 0};
    pimattn_status status = pimattn_i_flow_head(e, &f, &n);
    if (status == PIMATTN_OK && n > n_most)
        return pimattn_i_wrong(e, "the state has %u sequences, more than seqs has room for", n);
    for (uint64_t i = 1; i <= n && status == PIMATTN_OK; i++) {
        pimattn_i_seq *s;
        status = pimattn_i_seq_new(e, &s);
        if (status != PIMATTN_OK) break;
        s->arrival = i;
        status = pimattn_i_flow_seq(e, &f, s);
    }
    for (pimattn_i_seq *s = e->seqs; s < e->seqs + e->config.max_seqs; s++)
        if (s->id && s->arrival) status = pimattn_i_seq_made(e, s, status, &seqs[s->arrival - 1]);
    if (status == PIMATTN_OK) *n_seqs = (size_t)n;
    return status;
}

static void pimattn_i_charge(pimattn_engine *e, const pimattn_i_seq *s, pimattn_transfer *transfer)
{
    pimattn_transfer t;
    t.bytes = pimattn_i_flow_bytes(e, s, 0);
    t.ns = (double)t.bytes * 1e3 / e->config.device.link_MBps;
    t.ck = (uint64_t)ceil((double)t.bytes * 1e6 /
                          ((double)e->config.device.link_MBps * e->config.device.tCK_ps));
    t.pJ = (double)pimattn_i_ceil_div(t.bytes, 32) * e->config.device.eLINK_fJ * 1e-3;
    e->swapped.bytes += t.bytes;
    e->swapped.ck += t.ck;
    e->swapped.ns += t.ns;
    e->swapped.pJ += t.pJ;
    if (transfer) *transfer = t;
}

PIMATTN_API pimattn_status pimattn_seq_swap_out(pimattn_engine *e, pimattn_seq seq, void *memory,
                                                uint64_t bytes, pimattn_transfer *transfer)
{
    pimattn_stream stream = {memory, bytes, NULL, NULL, NULL};
    uint64_t need, hash;
    if (e && !memory) return pimattn_i_wrong(e, "memory is NULL", 0);
    PIMATTN_I_TRY(pimattn_i_save(e, &seq, 1, &stream, &need, &hash));
    pimattn_i_seq *s = pimattn_i_seq_find(e, seq);
    pimattn_i_seq_empty(&e->pool, s);
    s->swapped = hash;
    pimattn_i_charge(e, s, transfer);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_seq_swap_in(pimattn_engine *e, pimattn_seq seq,
                                               const void *memory, uint64_t bytes,
                                               pimattn_transfer *transfer)
{
    PIMATTN_I_TRY(pimattn_i_paged(e));
    pimattn_i_seq *s = pimattn_i_seq_find(e, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    if (!memory) return pimattn_i_wrong(e, "memory is NULL", 0);
    if (!s->swapped) return pimattn_i_wrong(e, "sequence %u is not swapped out", seq);
    pimattn_stream from = {(void *)(uintptr_t)memory, bytes, NULL, NULL, NULL};
    pimattn_i_flow f = {from, &e->pool.within, true, false, 0, 0};
    uint64_t n = 0, begin = s->begin, tokens = s->tokens[0], hidden = s->hidden;
    pimattn_status status = pimattn_i_flow_head(e, &f, &n);
    if (status == PIMATTN_OK) status = pimattn_i_flow_seq(e, &f, s);
    if (status == PIMATTN_OK && s->swapped != (f.hash | 1))
        status = PIMATTN_I_BROKEN(e, "this is not what was swapped out of sequence %u", seq);
    if (status != PIMATTN_OK) pimattn_i_seq_empty(&e->pool, s);
    s->begin = begin;
    s->hidden = hidden;
    pimattn_i_seq_length(e, s, tokens);
    if (status != PIMATTN_OK) return status;
    s->swapped = 0;
    pimattn_i_charge(e, s, transfer);
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A26] JOBS: attention on the host: tiles of a block of queries, leaves, waves of jobs.
 *       Knows where rows lie and what is visible; nothing of clocks.
 * ========================================================================== */

/* The most bytes that the second cache is ahead of the first; those of a short and a long page. */
enum { PIMATTN_I_FAR = 4224, PIMATTN_I_SHORT_PAGE = 64 << 10, PIMATTN_I_LONG_PAGE = 512 << 10 };

/* Where a token's rows lie. */
typedef struct pimattn_i_spot {
    const unsigned char *at[4]; /* K, V; of int8 their scales */
    uint64_t token, in_page;    /* from it on in its page; those of a tile at one stride */
    uint64_t tile;              /* of a course: that begins here, or would behind the end */
    uint32_t among;             /* tokens of the tile that somebody sees */
    const unsigned char *(*rows)[PIMATTN_I_TILE]; /* .. and where each is, if not at one stride */
} pimattn_i_spot;

static const pimattn_rows *pimattn_i_rows_of(const pimattn_pages *p, int i)
{
    return i == 0 ? &p->k : i == 1 ? &p->v : i == 2 ? &p->k_scale : &p->v_scale;
}

/* Into *to, for a spot that is returned is copied at once, which CPUs wait for. */
static void pimattn_i_spot_of(const pimattn_engine *e, const pimattn_i_job *job, uint64_t token,
                              pimattn_i_spot *to)
{
    const pimattn_pages *p = e->pages;
    const pimattn_i_layout *lay = &e->layout;
    uint64_t at = 0; /* in tiers a token is a run */
    to->token = token;
    if (job->pages) {
        const uint64_t index = token - job->origin;
        const uint32_t *page = &job->pages[index / p->page_tokens];
        at = index % p->page_tokens;
        for (int i = 0; i < 4; i++) {
            const pimattn_rows *rows = pimattn_i_rows_of(p, i);
            const size_t offset =
                (size_t)*page * rows->page + (size_t)at * rows->token + job->kv_head * rows->head;
            to->at[i] = rows->at ? (const unsigned char *)rows->at + offset : NULL;
        }
        to->in_page = p->page_tokens - at;
        const uint64_t most = pimattn_i_min(job->tokens - token, e->joined);
        for (; to->in_page < most && page[1] == page[0] + UINT64_C(1); page++)
            to->in_page += p->page_tokens;
        return;
    }
    const uint32_t layer = e->planner.layer, head = job->kv_head;
    const unsigned char *k =
        e->tiered
            ? pimattn_i_slot(e->tiered, &pimattn_i_table_of(e, job->seq, layer)->token[token]) +
                  head * lay->page_bytes
            : pimattn_i_run(&e->pool, job->seq, layer, head, token, &at);
    for (int i = 0; i < 4; i++)
        to->at[i] = k + lay->offset[i] + at * lay->row[i];
    to->in_page = e->tiered ? 1 : lay->page_tokens - token % lay->page_tokens;
}

/* Where the tokens of a spot's tile lie that are seen: others may have no page any more. */
static void pimattn_i_spot_rows(const pimattn_engine *e, const pimattn_i_job *job,
                                const pimattn_i_spot *spot)
{
    const uint64_t first = spot->token / PIMATTN_I_TILE * PIMATTN_I_TILE;
    pimattn_i_spot at = *spot;
    for (uint64_t t = spot->token; t < first + PIMATTN_I_TILE; t++) {
        if (!(spot->among >> (t - first) & 1)) continue;
        if (t - at.token >= at.in_page) pimattn_i_spot_of(e, job, t, &at);
        for (int i = 0; i < 4; i++) {
            const size_t row = (size_t)e->layout.row[i];
            const size_t stride = e->pages ? pimattn_i_rows_of(e->pages, i)->token : row;
            spot->rows[i][t - first] = at.at[i] ? at.at[i] + (t - at.token) * stride : NULL;
        }
    }
}

/* What is fetched during a tile: K or V (row 0, 1) of one so many tiles on, and bytes from it. */
typedef struct pimattn_i_fetched {
    uint32_t tile, row;
    size_t offset;
} pimattn_i_fetched;

typedef struct pimattn_i_hand {
    const pimattn_engine *e;
    const pimattn_i_job *job, *after; /* what this worker does next, or may do, or NULL */
    float *q, *k, *v, *scales;        /* queries, a copied tile and its scales */
    pimattn_i_folder folder;
    pimattn_i_tile tile, copied;  /* where its rows lie; a copy, in f32 or of rows as they are */
    size_t strides[4];            /* bytes to the next token: K, V, their scales .. */
    size_t from[4];               /* .. and from where its gang's first head has a token */
    const pimattn_i_spot *spot;   /* of this tile and of those after it, of that head */
    const uint64_t *tokens;       /* of its rows, if not those from the first one on; or NULL */
    pimattn_i_fetched fetched[4]; /* while K is read, while V is; what is far likewise */
    uint32_t ahead;               /* tiles that is */
    size_t turn, n_turns;         /* its place in its gang, and how many are in it */
    bool beyond;                  /* tiles may be read in place from which vectors reach beyond */
} pimattn_i_hand;

/* Bytes of a row of K or V as it lies, without what fills up vectors. */
static size_t pimattn_i_row_bytes(const pimattn_engine *e, int i)
{
    const int of = e->config.shape.v_in_k ? 0 : i;
    return (size_t)(e->layout.dim[of] * e->layout.each[of]);
}

static bool pimattn_i_sees(const pimattn_i_job *job, uint64_t t)
{
    return t < job->kept ? t >= job->origin : t >= job->begin && t < job->end;
}

/* Bits of a tile's tokens from one position up to another. */
static uint32_t pimattn_i_bits_between(uint64_t first, uint64_t from, uint64_t to)
{
    uint64_t low = from > first ? pimattn_i_min(from - first, PIMATTN_I_TILE) : 0;
    uint64_t high = to > first ? pimattn_i_min(to - first, PIMATTN_I_TILE) : 0;
    return high > low ? (1u << high) - (1u << low) : 0;
}

static uint32_t pimattn_i_chosen(const pimattn_i_job *job, uint64_t first)
{
    if (!job->chosen || first >= job->n_chosen) return 0xffffu;
    return (uint32_t)(job->chosen[first / 64] >> first % 64 & 0xffffu) |
           pimattn_i_bits_between(first, job->n_chosen, UINT64_MAX);
}

/* Tokens of a tile that some query of a block sees. */
static uint32_t pimattn_i_seen(const pimattn_i_job *job, uint64_t first)
{
    uint32_t bits = pimattn_i_bits_between(first, job->begin, job->end) |
                    pimattn_i_bits_between(first, job->origin, job->kept);
    return bits ? bits & pimattn_i_chosen(job, first) : 0;
}

/* Lists the bits that are set. */
static uint32_t pimattn_i_places(uint32_t bits, unsigned char place[16])
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < PIMATTN_I_TILE; t++) { /* without branches, of which some would fail */
        place[n & 15] = (unsigned char)t;
        n += bits >> t & 1;
    }
    return n;
}

/* A tile that is copied: rows as far apart as the cache has them; in f32 for the scalar kernel. */
static pimattn_i_tile *pimattn_i_tile_begin(pimattn_i_hand *hand, uint32_t visible)
{
    const pimattn_engine *e = hand->e;
    const bool v_in_k = e->config.shape.v_in_k, wide = !e->kernel->soft;
    pimattn_i_tile *const tile = &hand->copied;
    *tile = hand->tile;
    tile->visible = visible;
    tile->n_tokens = pimattn_i_places(visible, tile->place);
    tile->k = tile->fetch[0] = tile->fetch[2] = (const unsigned char *)hand->k;
    tile->v = tile->fetch[1] = tile->fetch[3] = (const unsigned char *)(v_in_k ? hand->k : hand->v);
    tile->k_stride = wide ? 4 * e->size.q_floats : (size_t)e->layout.row[0];
    tile->v_stride = wide ? 4 * e->size.o_floats : (size_t)e->layout.row[1];
    if (v_in_k) tile->v_stride = tile->k_stride;
    if (wide) tile->k_type = tile->v_type = PIMATTN_F32;
    tile->wanted[0].gap = tile->wanted[1].gap = 0;
    tile->ahead = PIMATTN_I_NEAR; /* all is near */
    return tile;
}

/* Copies a row and fills up its vectors; fetches another one. */
PIMATTN_I_INLINE void pimattn_i_row_gather(unsigned char *to, const unsigned char *from,
                                           const unsigned char *later, size_t bytes, size_t row)
{
    size_t b = 0;
    for (; b + 64 <= bytes; b += 64) {
        PIMATTN_I_FETCH(later + b, 2);
        memcpy(to + b, from + b, 64);
    }
    if (b < bytes) PIMATTN_I_FETCH(later + b, 2);
    for (; b + 16 <= bytes; b += 16)
        memcpy(to + b, from + b, 16);
    if (bytes == row) return;
    memcpy(to + b, from + b, bytes - b);
    memset(to + bytes, 0, row - bytes);
}

/* Where rows of a spot's tile lie, of a hand's head: n of them, the others as the last one. */
PIMATTN_I_INLINE void pimattn_i_spot_list(const pimattn_i_hand *hand, const pimattn_i_spot *spot,
                                          int i, const unsigned char place[16], uint32_t n,
                                          const unsigned char *list[16])
{
    const size_t stride = hand->strides[i], from = hand->from[i];
    const uint32_t first = (uint32_t)(spot->token % PIMATTN_I_TILE);
    const bool rows = spot->in_page < PIMATTN_I_TILE, all = rows && n == PIMATTN_I_TILE;
    for (uint32_t t = 0; t < PIMATTN_I_TILE && all; t++) /* in vectors */
        list[t] = spot->rows[i][t] + from;
    for (uint32_t t = 0; t < n && !all; t++)
        list[t] =
            (rows ? spot->rows[i][place[t]] : spot->at[i] + (place[t] - first) * stride) + from;
    for (uint32_t t = n; t < PIMATTN_I_TILE; t++)
        list[t] = list[n - 1];
}

/* The visible tokens of a tile; what is seen next goes to the second cache [measured]. */
static const pimattn_i_tile *pimattn_i_tile_gather(pimattn_i_hand *hand, uint32_t visible)
{
    const pimattn_engine *e = hand->e;
    const pimattn_i_spot *spot = hand->spot, *then = spot + 1;
    const pimattn_shape *s = &e->config.shape;
    const pimattn_i_tile *tile = pimattn_i_tile_begin(hand, visible);
    const size_t k_row = tile->k_stride, v_row = tile->v_stride;
    const size_t bytes[2] = {pimattn_i_row_bytes(e, 0), pimattn_i_row_bytes(e, 1)};
    const bool there[4] = {true, tile->v != tile->k, tile->k_scale != NULL, tile->v_scale != NULL};
    const unsigned char *from[4][16], *later[4][16], *place = tile->place;
    unsigned char *k = (unsigned char *)hand->k, *v = (unsigned char *)hand->v, place_then[16];
    const uint32_t n = tile->n_tokens;
    const bool own = then->tile < hand->job->leaf_end * PIMATTN_I_LEAF;
    const uint32_t seen = own ? pimattn_i_seen(hand->job, then->tile) : 0xffffu;
    uint32_t n_later = pimattn_i_places(then->among & seen, place_then);
    if (n_later == 0) then = spot, n_later = n, memcpy(place_then, place, sizeof place_then);
    for (int i = 0; i < 4; i++) {
        if (!there[i]) continue;
        pimattn_i_spot_list(hand, spot, i, place, n, from[i]);
        pimattn_i_spot_list(hand, then, i, place_then, n_later, later[i]);
    }
    for (uint32_t t = 0; t < n; t++, k += k_row, v += v_row) {
        if (!e->kernel->soft) {
            e->kernel->load((float *)(void *)k, e->size.q_floats, from[0][t], s->k_type,
                            s->head_dim);
            if (there[1])
                e->kernel->load((float *)(void *)v, e->size.o_floats, from[1][t], s->v_type,
                                s->head_dim_v);
            continue;
        }
        pimattn_i_row_gather(k, from[0][t], later[0][t], bytes[0], k_row);
        if (there[1]) pimattn_i_row_gather(v, from[1][t], later[1][t], bytes[1], v_row);
    }
    for (int i = 0; i < 2; i++)
        for (uint32_t t = n; t < n_later && there[i]; t++)
            for (size_t at = 0; at < bytes[i]; at += 64)
                PIMATTN_I_FETCH(later[i][t] + at, 2);
    for (int i = 2; i < 4; i++)
        for (uint32_t t = 0; t < PIMATTN_I_TILE && there[i]; t++) {
            PIMATTN_I_FETCH(later[i][t], 1);
            if (t < n) memcpy(&hand->scales[(i - 2) * PIMATTN_I_TILE + place[t]], from[i][t], 4);
        }
    return tile;
}

/* Whether a KV head shares memory pages with others: between its rows lie theirs. */
static bool pimattn_i_apart(const pimattn_engine *e)
{
    const pimattn_pages *p = e->pages;
    return p ? p->k.head < p->k.token || p->page_tokens < PIMATTN_I_TILE : e->tiered != NULL;
}

/* Whether vectors reach beyond a row of the caller's no farther than into the next one, of a token
 * or a head. K there meets zeros of q, and what comes of V is not looked at; where that K is no
 * number scores are none either, and the job is done over with copies. */
static bool pimattn_i_packed(const pimattn_engine *e)
{
    const pimattn_pages *p = e->pages;
    const pimattn_shape *s = &e->config.shape;
    const uint64_t k = pimattn_i_row_bytes(e, 0), v = pimattn_i_row_bytes(e, 1);
    return p && e->layout.padded && pimattn_i_min(s->head_dim, s->head_dim_v) >= 8 &&
           ((p->k.token == k && p->v.token == v) || (p->k.head == k && p->v.head == v));
}

/* Whether what follows each row of a tile that is seen is one that is seen, too. */
static bool pimattn_i_follows(const pimattn_i_hand *hand, uint64_t first)
{
    const pimattn_i_job *job = hand->job;
    const pimattn_pages *p = hand->e->pages;
    const uint64_t n = hand->e->config.shape.n_kv_heads, page = p->page_tokens;
    const uint64_t in_page = hand->spot->in_page, end = first + PIMATTN_I_TILE;
    const bool other = job->kv_head + 1 < n,
               next = in_page > PIMATTN_I_TILE && end < job->whole_end;
    const uint64_t k = pimattn_i_row_bytes(hand->e, 0), v = pimattn_i_row_bytes(hand->e, 1);
    if (p->k.token == k && p->v.token == v)
        return next || (in_page == PIMATTN_I_TILE && other && end - page >= job->whole_begin &&
                        p->k.head == page * k && p->v.head == page * v);
    if (other) return in_page >= PIMATTN_I_TILE;
    return next && p->k.token == n * k && p->v.token == n * v;
}

/* The scales of a tile's tokens, of K, then of V; those of a later one would come late if they were
 * asked for with it. Of lines that heads of a gang have together each fetches some. */
static void pimattn_i_tile_scales(const pimattn_i_hand *hand)
{
    const pimattn_i_spot *spot = hand->spot;
    const size_t n = hand->tile.n_tokens;
    float *to = hand->scales;
    for (int i = 2; i < 4; i++, to += PIMATTN_I_TILE) {
        const size_t stride = hand->strides[i], step = (size_t)pimattn_i_max(stride, 64);
        if (!(i == 2 ? hand->tile.k_scale : hand->tile.v_scale)) continue;
        const unsigned char *from = spot->at[i] + hand->from[i], *later = spot[hand->ahead].at[i];
        if (n == PIMATTN_I_TILE && stride == sizeof *to)
            memcpy(to, from, PIMATTN_I_TILE * sizeof *to);
        else
            for (size_t t = 0; t < n; t++)
                memcpy(&to[t], from + t * stride, sizeof *to);
        for (size_t at = hand->turn * step; at < PIMATTN_I_TILE * stride;
             at += hand->n_turns * step)
            PIMATTN_I_FETCH(later + hand->from[i] + at, 1);
    }
}

/* Whether a led CPU is led: pages of a KV head do not follow one another as far as a long one, or
 * sums of eight queries are slow enough [measured]. */
static bool pimattn_i_jumps(const pimattn_engine *e, const pimattn_i_job *job)
{
    const uint64_t size = e->layout.page_tokens;
    const uint64_t more = (PIMATTN_I_LONG_PAGE / 2 - 1) / pimattn_i_max(e->piece_bytes, 1);
    if (job->rows >= 8 || more == 0 || e->pages || e->tiered) return job->rows >= 8 || more > 0;
    const uint64_t page = pimattn_i_max(job->begin, job->leaf_begin * PIMATTN_I_LEAF) / size;
    if ((page + more) * size >= job->end) return true;
    const uint32_t *first = pimattn_i_table_at(&e->layout, job->seq, page, e->planner.layer);
    return first[job->kv_head + more * e->pool.set_pages] - first[job->kv_head] != more;
}

/* What all tiles of a job that are read where they lie have in common. */
static void pimattn_i_tile_init(pimattn_i_hand *hand, const pimattn_i_job *lead)
{
    const pimattn_engine *e = hand->e;
    const pimattn_shape *s = &e->config.shape;
    const pimattn_pages *p = e->pages;
    pimattn_i_tile *tile = &hand->tile;
    for (int i = 0; i < 4; i++) {
        const pimattn_rows none = {NULL, 0, (size_t)e->layout.row[i], (size_t)e->layout.page_bytes};
        const pimattn_rows *rows = p ? pimattn_i_rows_of(p, i) : &none;
        hand->strides[i] = rows->token;
        hand->from[i] = (hand->job->kv_head - lead->kv_head) * rows->head;
    }
    tile->k_stride = hand->strides[0];
    tile->v_stride = hand->strides[1];
    tile->k_type = s->k_type;
    tile->v_type = s->v_type;
    tile->dim_k = e->kernel->soft ? (uint32_t)e->size.q_floats : s->head_dim;
    tile->dim_v = e->kernel->soft ? (uint32_t)e->size.o_floats : s->head_dim_v;
    tile->scale = s->scale;
    tile->k_scale = s->k_type == PIMATTN_INT8 ? hand->scales : NULL;
    tile->v_scale = s->v_type == PIMATTN_INT8 ? hand->scales + PIMATTN_I_TILE : NULL;
    tile->ahead = e->ahead;
    const bool wide = s->k_type == PIMATTN_F32 || s->v_type == PIMATTN_F32;
    const bool apart = pimattn_i_apart(e), led = e->ahead == PIMATTN_I_LED;
    const bool brief = e->piece_bytes < (uint64_t)PIMATTN_I_LONG_PAGE; /* [measured] */
    tile->led = led && !apart && !wide && pimattn_i_jumps(e, hand->job) ? 192 : 0;
    /* AVX-512 has sums enough to read wide f32 rows of one query as they lie */
    const bool whole = hand->job->n_queries == 1 && e->kernel->most_queries == 8 &&
                       s->k_type == PIMATTN_F32 && s->v_type == PIMATTN_F32;
    const uint64_t dim = pimattn_i_max(s->head_dim, s->head_dim_v);
    if (e->ahead == PIMATTN_I_DEEP && !apart && dim <= (whole ? 2 : 1) * PIMATTN_I_PIECE)
        tile->ahead = brief ? PIMATTN_I_DEEP_ROWS : PIMATTN_I_DEEP_PAGES;
    for (int i = 0; i < 2; i++) {
        pimattn_i_wanted *to = &tile->wanted[i];
        const size_t row = to->row = (size_t)e->layout.row[i];
        while ((size_t)2 << to->shift <= row)
            to->shift++;
        if (row > (size_t)1 << to->shift) to->inverse = (UINT64_C(1) << 40) / row + 1;
    }
}

static bool pimattn_i_late(const pimattn_i_job *job, const pimattn_engine *e, uint32_t type)
{
    const uint64_t n = pimattn_i_min(job->rows, e->kernel->most_queries);
    return PIMATTN_I_LATE(n, type, e->ahead);
}

/* What hand i of a gang of n fetches. far: the tile `ahead` on; else beyond the next 4 KiB, or what
 * comes after the next K or V. all: tokens of all heads lie side by side, and each fetches some.
 * beside: in the order of turns, half a turn on into the first cache, two into the second. */
static void pimattn_i_hand_fetch(pimattn_i_hand *hands, size_t i, size_t n, bool all, bool beside)
{
    pimattn_i_hand *hand = &hands[i];
    const pimattn_engine *e = hand->e;
    pimattn_i_wanted *const wanted = hand->tile.wanted;
    const size_t k_row = pimattn_i_row_bytes(e, 0), v_row = pimattn_i_row_bytes(e, 1);
    const size_t k = hand->from[0], v = hand->from[1];
    const bool far_k = PIMATTN_I_TILE * wanted[0].row > PIMATTN_I_FAR;
    const bool far_v = PIMATTN_I_TILE * wanted[1].row > PIMATTN_I_FAR;
    /* two tiles on; so are long rows some of which are left out, of a led CPU those in short pages,
     * of a near one of several queries there, or of K and V in places of their own [measured] */
    const bool brief = e->piece_bytes <= PIMATTN_I_SHORT_PAGE;
    const bool spread = e->ahead == PIMATTN_I_NEAR ? e->pages || (brief && hand->job->n_queries > 1)
                                                   : brief && e->ahead == PIMATTN_I_LED;
    const bool late = pimattn_i_late(hand->job, e, hand->tile.k_type) ||
                      pimattn_i_late(hand->job, e, hand->tile.v_type);
    const bool on =
        e->ahead == PIMATTN_I_DEEP || late || (far_k && (hand->job->chosen || (spread && !all)));
    const uint32_t ahead = hand->ahead;
    pimattn_i_fetched usual[4] = {{1, 0, k}, {1, 1, v}, {ahead, 0, k}, {ahead, 1, v}};
    const size_t *one = hands[(i + 1) % n].from, *other = hands[(i + 2) % n].from;
    const pimattn_i_fetched by_turn[4] = {
        {0, 1, v}, {i + 1 >= n, 0, one[0]}, {i + 2 >= n, 0, other[0]}, {i + 2 >= n, 1, other[1]}};
    if ((all || !pimattn_i_apart(e)) && !on && hand->tile.led == 0) {
        const pimattn_i_fetched first = {1, !far_k, far_k ? k + PIMATTN_I_FAR : v};
        const pimattn_i_fetched then = {far_v ? 1 : ahead, far_v, far_v ? v + PIMATTN_I_FAR : k};
        usual[2] = first, usual[3] = then;
    }
    memcpy(hand->fetched, beside ? by_turn : usual, sizeof usual);
    if (beside && hand->tile.ahead == PIMATTN_I_NEAR && hand->job->rows < 4)
        hand->tile.ahead = PIMATTN_I_BOTH; /* of one query, too, what is far */
    for (pimattn_i_fetched *to = hand->fetched; all && to < hand->fetched + 4; to++)
        to->offset += hand->job->kv_head * (PIMATTN_I_TILE - 1) * (to->row ? v_row : k_row);
    for (int j = 0; j < 2; j++) {
        const size_t row = j ? v_row : k_row, whole = wanted[j].row;
        const size_t of = beside ? (i + (size_t)j) % n : i; /* whose the first cache gets */
        uint32_t *const step = &wanted[j].step;
        wanted[j].gap = all || hand->strides[j] == row ? 0 : hand->strides[j] - whole;
        for (*step = 64; row % *step != 0;)
            *step /= 2;
        *step = (uint32_t)pimattn_i_min(*step + whole - row, 64);
        if (of + 1 < n && hands[of + 1].from[j] == hands[of].from[j] + row) *step = 64;
        while (whole % *step != 0)
            --*step;
        wanted[j].step_inverse = (UINT64_C(1) << 40) / *step + 1;
    }
    hand->turn = i;
    hand->n_turns = n;
}

/* The tile where it lies, if its first tokens alone are visible. The cache has all rows of a tile,
 * and K of the others counts for nothing; of the caller's pages they are copied, and so are rows
 * of dims from which vectors reach beyond what is seen. */
static const pimattn_i_tile *pimattn_i_tile_direct(pimattn_i_hand *hand, uint32_t visible,
                                                   bool within)
{
    const pimattn_engine *e = hand->e;
    const pimattn_i_spot *spot = hand->spot;
    pimattn_i_tile *tile = &hand->tile, *copied = &hand->copied;
    tile->k = spot->at[0] + hand->from[0];
    tile->v = spot->at[1] + hand->from[1];
    tile->visible = visible;
    tile->n_tokens = visible == 0xffffu ? 16 : pimattn_i_places(visible, tile->place);
    const pimattn_i_fetched *of = hand->fetched;
    for (int i = 0; i < 4; i++, of++)
        tile->fetch[i] = spot[of->tile].at[of->row] + of->offset;
    if (tile->k_scale || tile->v_scale) pimattn_i_tile_scales(hand);
    if (!e->pages || (tile->n_tokens == PIMATTN_I_TILE && (within || !e->layout.padded)))
        return tile;
    (void)pimattn_i_tile_gather(hand, visible);
    memcpy(copied->fetch, tile->fetch, sizeof tile->fetch); /* what others of the gang wait for */
    memcpy(copied->wanted, tile->wanted, sizeof tile->wanted);
    copied->ahead = tile->ahead;
    return copied;
}

/* The position of a token of a job, as windows and ALiBi see it. */
static uint64_t pimattn_i_position(const pimattn_i_job *job, uint64_t token)
{
    const uint64_t old = job->tokens - job->n_tokens;
    return job->position && token >= old ? job->position[token - old] : token;
}

/* Which tokens of a tile query token `of` of a job sees. */
static uint32_t pimattn_i_visible(const pimattn_engine *e, const pimattn_i_job *job, uint64_t of,
                                  uint64_t first)
{
    const pimattn_shape *s = &e->config.shape;
    uint64_t old = job->tokens - job->n_tokens, own = pimattn_i_position(job, old + of);
    uint64_t end = job->mask ? job->tokens : own + 1;
    uint64_t begin = pimattn_i_window_begin(pimattn_i_window_of(s, e->planner.layer), own);
    uint32_t bits = pimattn_i_bits_between(first, pimattn_i_max(begin, job->behind), end) |
                    pimattn_i_bits_between(first, job->origin, pimattn_i_min(s->sink_tokens, end));
    const uint64_t *row = job->mask ? job->mask + of * ((job->n_tokens + 63) / 64) : NULL;
    for (uint64_t t = pimattn_i_max(old, first); row && t < first + PIMATTN_I_TILE && t < end;
         t++) {
        const uint64_t place = pimattn_i_position(job, t);
        const bool in = place >= begin || place < s->sink_tokens;
        const uint32_t bit = 1u << (t - first);
        bits = in && row[(t - old) / 64] >> (t - old) % 64 & 1 ? bits | bit : bits & ~bit;
    }
    return bits & pimattn_i_chosen(job, first);
}

/* What the queries of a block see, of which the least position and the last place say all. */
static void pimattn_i_job_reach(const pimattn_engine *e, pimattn_i_job *job)
{
    const pimattn_shape *s = &e->config.shape;
    uint64_t window = pimattn_i_window_of(s, e->planner.layer), old = job->tokens - job->n_tokens;
    uint64_t first = old + job->query / e->gqa_group;
    uint64_t last = old + (job->query + job->n_queries - 1) / e->gqa_group;
    uint64_t least = first;
    for (uint64_t t = first; job->position && t <= last; t++)
        least = pimattn_i_min(least, pimattn_i_position(job, t));
    job->begin = pimattn_i_max(pimattn_i_window_begin(window, least), job->behind);
    if (job->position) job->begin = pimattn_i_min(job->begin, old);
    job->whole_begin = pimattn_i_max(pimattn_i_window_begin(window, last), job->behind);
    job->end = job->mask ? job->tokens : last + 1;
    job->whole_end = job->mask ? old : first + 1;
    job->kept = pimattn_i_min(s->sink_tokens, job->end);
    if (job->kept >= job->begin) job->begin = job->origin;
    if (job->begin == job->origin || job->kept <= job->origin) job->kept = 0; /* none apart */
    /* as kernels take them, 3 or 7 queries in parts take longer than one more would; of f32 so do 5
       and 6, of 16 bits 6 on a led CPU; what is over is the last one again, and goes nowhere */
    const uint32_t n = job->n_queries, rest = n % e->kernel->most_queries, type = s->k_type;
    const bool led = e->ahead == PIMATTN_I_LED && rest == 6 && type != PIMATTN_INT8;
    const bool more = rest % 4 == 3 || led || (rest > 4 && type == PIMATTN_F32);
    job->rows = n - rest + (more ? (rest | 3) + 1 : rest);
}

/* From which token on a query of the block may see some of a tile, of the first one from `tile` on
 * and before the end; UINT64_MAX if there is none. */
static uint64_t pimattn_i_next(const pimattn_i_job *job, uint64_t tile, uint64_t end)
{
    for (end = pimattn_i_min(end, job->end); tile < end; tile += PIMATTN_I_TILE) {
        const uint64_t from = tile < job->kept ? job->origin : job->begin;
        tile = pimattn_i_max(tile, from / PIMATTN_I_TILE * PIMATTN_I_TILE);
        if (tile < end && pimattn_i_chosen(job, tile)) return pimattn_i_max(tile, from);
    }
    return UINT64_MAX;
}

/* Row and head of query i of a job in the call. */
static size_t pimattn_i_query_row(const pimattn_engine *e, const pimattn_i_job *job, uint32_t i,
                                  uint32_t *head)
{
    *head = job->kv_head * e->gqa_group + (uint32_t)((job->query + i) % e->gqa_group);
    return (size_t)(job->first_row + (job->query + i) / e->gqa_group);
}

/* What a variant makes of the scores of a job; and of those of a tile. */
static void pimattn_i_adjust_init(const pimattn_engine *e, const pimattn_i_job *job,
                                  pimattn_i_adjust *a)
{
    const pimattn_shape *s = &e->config.shape;
    uint32_t head;
    memset(a, 0, sizeof *a);
    a->soft_cap = s->soft_cap;
    a->alibi = s->alibi_slopes != NULL;
    for (uint32_t i = 0; a->alibi && i < job->n_queries; i++) {
        (void)pimattn_i_query_row(e, job, i, &head);
        a->slope[i] = s->alibi_slopes[head];
    }
}

static void pimattn_i_adjust_at(const pimattn_engine *e, const pimattn_i_job *job, uint64_t first,
                                const uint64_t *tokens, pimattn_i_adjust *a)
{
    const uint64_t old = job->tokens - job->n_tokens;
    if (!a->alibi) return;
    for (uint32_t i = 0; i < job->n_queries; i++) {
        const uint64_t own = pimattn_i_position(job, old + (job->query + i) / e->gqa_group);
        a->distance[i] = (float)(int64_t)(own - first);
    }
    a->moved = tokens || (job->position && first + PIMATTN_I_TILE > old);
    for (uint32_t t = 0; a->moved && t < PIMATTN_I_TILE; t++) {
        const uint64_t token = tokens ? tokens[t] : first + t;
        if (token < job->tokens)
            a->place[t] = (float)(int64_t)(pimattn_i_position(job, token) - first);
    }
}

/* Of a job of one query: sums of q and the keys of all tokens become scores, -inf where none is
 * seen. Returns the largest, NaN if one that is seen is not finite. */
static float pimattn_i_scores(const pimattn_engine *e, const pimattn_i_job *job, float *s)
{
    float m = -HUGE_VALF;
    pimattn_i_adjust adjust;
    pimattn_i_tile tile;
    memset(&tile, 0, sizeof tile);
    tile.scale = e->config.shape.scale;
    pimattn_i_adjust_init(e, job, &adjust);
    for (uint64_t t = 0; t < job->tokens; t += PIMATTN_I_TILE) {
        float some[PIMATTN_I_TILE] = {0};
        size_t n = (size_t)pimattn_i_min(PIMATTN_I_TILE, job->tokens - t);
        uint32_t visible = pimattn_i_visible(e, job, job->query / e->gqa_group, t);
        memcpy(some, s + t, n * sizeof *s);
        pimattn_i_adjust_at(e, job, t, NULL, &adjust);
        if (visible) pimattn_i_adjust_scores(&adjust, &tile, 0, 1, some);
        for (size_t k = 0; k < n; k++) {
            const bool seen = visible >> k & 1;
            s[t + k] = seen ? some[k] : -HUGE_VALF;
            if (seen && !pimattn_i_finite(some[k])) m = pimattn_i_nan();
            if (s[t + k] > m) m = s[t + k]; /* never again if it is NaN */
        }
    }
    return m;
}

/* What query token `of` sees of a hand's tile. */
static uint32_t pimattn_i_tile_visible(const pimattn_i_hand *hand, uint64_t of, uint64_t first)
{
    uint32_t bits = 0;
    if (!hand->tokens) return pimattn_i_visible(hand->e, hand->job, of, first);
    for (uint32_t t = 0; t < PIMATTN_I_TILE; t++) {
        const uint64_t in = hand->tokens[t] % PIMATTN_I_TILE;
        bits |= (pimattn_i_visible(hand->e, hand->job, of, hand->tokens[t] - in) >> in & 1) << t;
    }
    return bits;
}

/* A tile for all queries of a job: those that see the same of it together. */
static void pimattn_i_tile_fold(pimattn_i_hand *hand, uint64_t first, float *block)
{
    const pimattn_engine *e = hand->e;
    const pimattn_i_job *job = hand->job;
    uint32_t group = e->gqa_group, n;
    const uint64_t *tokens = hand->tokens,
                   last = tokens ? tokens[PIMATTN_I_TILE - 1] : first + PIMATTN_I_TILE - 1;
    /* whole: all see all of it */
    const bool begun = first >= job->whole_begin || (last < job->kept && first >= job->origin);
    const bool all = last < job->whole_end && begun;
    const bool whole = all && (tokens || pimattn_i_chosen(job, first) == 0xffffu);
    const bool seen = all && !job->chosen && first >= job->whole_begin;
    const bool within = hand->beyond && seen && pimattn_i_follows(hand, first);
    const uint32_t among = tokens ? hand->spot->among : 0xffffu;
    uint32_t visible = among;
    if (!whole) visible &= pimattn_i_tile_visible(hand, job->query / group, first);
    pimattn_i_adjust_at(e, job, first, tokens, &hand->folder.adjust);
    for (uint32_t i = 0; i < job->n_queries; i += n) {
        const uint32_t of_all = visible;
        n = whole ? job->n_queries : group - (uint32_t)((job->query + i) % group);
        while (i + n < job->n_queries && visible == of_all) {
            visible = among & pimattn_i_tile_visible(hand, (job->query + i + n) / group, first);
            if (visible == of_all) n += group;
        }
        n = (uint32_t)pimattn_i_min(n, job->n_queries - i);
        if (n == job->n_queries) n = job->rows;
        if (!of_all) continue;
        const bool direct = e->kernel->soft && hand->spot->in_page >= PIMATTN_I_TILE &&
                            (of_all & (of_all + 1)) == 0;
        const pimattn_i_tile *tile = direct ? pimattn_i_tile_direct(hand, of_all, within)
                                            : pimattn_i_tile_gather(hand, of_all);
        pimattn_i_fold(&hand->folder, tile, hand->q, i, n, block);
    }
}

/* Cuts a worker's memory and copies the queries of the job, in whole vectors. */
static void pimattn_i_hand_init(pimattn_i_hand *hand, const pimattn_engine *e,
                                const pimattn_i_job *job, const pimattn_i_job *lead, size_t worker,
                                uint32_t before)
{
    const pimattn_shape *s = &e->config.shape;
    pimattn_i_folder *folder = &hand->folder;
    memset(hand, 0, sizeof *hand);
    hand->e = e;
    hand->job = job;
    folder->kernel = e->kernel;
    folder->work = e->workers + worker * e->size.worker_floats;
    folder->q_floats = e->size.q_floats;
    folder->o_floats = e->size.o_floats;
    pimattn_i_adjust_init(e, job, &folder->adjust);
    hand->k = folder->work + PIMATTN_I_WORK;
    hand->v = hand->k + PIMATTN_I_TILE * e->size.q_floats;
    hand->scales = hand->v + PIMATTN_I_TILE * e->size.o_floats;
    hand->q = hand->scales + 2 * PIMATTN_I_TILE + before * e->size.q_floats;
    pimattn_i_tile_init(hand, lead);
    for (uint32_t i = 0; i < job->rows; i++) {
        uint32_t head, is = (uint32_t)pimattn_i_min(i, job->n_queries - 1);
        size_t row = pimattn_i_query_row(e, job, is, &head);
        const unsigned char *from = (const unsigned char *)e->call->q + row * e->call->q_stride;
        e->kernel->load(hand->q + i * e->size.q_floats, e->size.q_floats,
                        from + 4 * (size_t)head * s->head_dim, PIMATTN_F32, s->head_dim);
    }
}

static void pimattn_i_stack_init(pimattn_i_stack *stack, const pimattn_engine *e,
                                 const pimattn_i_job *job, float *base)
{
    stack->kernel = e->kernel;
    stack->base = base;
    stack->o_floats = e->size.o_floats;
    stack->block_floats = PIMATTN_I_O + job->rows * e->size.o_floats;
    stack->n_queries = job->n_queries;
    stack->dim = e->config.shape.head_dim_v;
    stack->levels = 0;
}

/* How many jobs go together from a place of the order on: those on the same leaves whose heads
 * share memory pages, by turns, so that a page is read once; workers get two gangs or more. */
static size_t pimattn_i_gang(const pimattn_engine *e, size_t place)
{
    const pimattn_i_job *job = &e->jobs[e->order[place]];
    const bool one = job->n_tokens * e->gqa_group <= PIMATTN_I_QUERY_BLOCK;
    const uint32_t queries = one ? job->rows : (uint32_t)PIMATTN_I_QUERY_BLOCK;
    const uint64_t workers = e->config.max_workers;
    uint64_t n = 1, most = e->size.rest_floats / e->size.query_floats;
    if (!pimattn_i_apart(e) || job->leaf_end - job->leaf_begin > PIMATTN_I_GANG_LEAVES) return 1;
    most = pimattn_i_min(pimattn_i_min(most, PIMATTN_I_GANG_QUERIES) / queries, PIMATTN_I_GANG);
    if (workers > 1) most = pimattn_i_max(1, pimattn_i_min(most, e->n_jobs / workers / 2));
    for (; n < most && place + n < e->n_jobs; n++) {
        const pimattn_i_job *other = &e->jobs[e->order[place + n]];
        if (other->first_row != job->first_row || other->leaf_begin != job->leaf_begin) break;
        if (other->leaf_end != job->leaf_end) break;
    }
    return (size_t)n;
}

/* What one worker does at once: a gang by turns, or one job. */
typedef struct pimattn_i_team {
    size_t n, tiles;          /* hands; tiles of a turn */
    pimattn_i_spot course[5]; /* where the tiles of a turn lie and those after them */
    const unsigned char *rows[5][4][PIMATTN_I_TILE];
    pimattn_i_hand hands[PIMATTN_I_GANG];
    pimattn_i_stack stacks[PIMATTN_I_GANG];
    float *blocks[PIMATTN_I_GANG]; /* of a leaf, where something of it is seen */
} pimattn_i_team;

/* Goes on by a tile: the course ends with the next one a hand sees, and where what is seen of it
 * begins: the rest may have no page any more. Behind the end lie the tiles of the job after, so
 * that it does not begin by waiting for memory. */
static void pimattn_i_team_step(pimattn_i_team *team)
{
    const pimattn_i_hand *hands = team->hands;
    const pimattn_i_job *job = hands->job;
    const uint64_t end = job->leaf_end * PIMATTN_I_LEAF;
    pimattn_i_spot *course = team->course, *to = &course[2 * team->tiles];
    uint64_t token = UINT64_MAX;
    const unsigned char *(*const rows)[PIMATTN_I_TILE] = course->rows;
    for (size_t i = 0; i < 2 * team->tiles; i++)
        course[i] = course[i + 1];
    to->rows = rows;
    to->among = 0;
    const uint64_t tile = to->tile + PIMATTN_I_TILE; /* of the one before */
    for (size_t i = 0; i < team->n; i++)
        token = pimattn_i_min(token, pimattn_i_next(hands[i].job, tile, token));
    to->tile = token / PIMATTN_I_TILE * PIMATTN_I_TILE;
    if (token == UINT64_MAX) {
        to->tile = pimattn_i_max(tile, end);
        if (!hands->after) return;
        job = hands->after;
        token = pimattn_i_next(job, job->leaf_begin * PIMATTN_I_LEAF, UINT64_MAX);
        for (uint64_t at = end; at < to->tile && token < UINT64_MAX; at += PIMATTN_I_TILE) {
            const uint64_t last = token / PIMATTN_I_TILE * PIMATTN_I_TILE;
            token = pimattn_i_next(job, last + PIMATTN_I_TILE, UINT64_MAX);
        }
    }
    if (token == UINT64_MAX) return;
    pimattn_i_spot_of(hands->e, job, token, to);
    const uint64_t first = token / PIMATTN_I_TILE * PIMATTN_I_TILE;
    to->among = 0xffffu << (token - first) & 0xffffu;
    if (to->in_page >= PIMATTN_I_TILE) return;
    uint32_t seen = 0;
    for (size_t i = 0; i < team->n; i++)
        seen |= pimattn_i_seen(job == hands->job ? hands[i].job : job, first);
    to->among = seen;
    pimattn_i_spot_rows(hands->e, job, to);
}

static void pimattn_i_team_init(pimattn_i_team *team, const pimattn_engine *e, size_t place,
                                size_t worker, bool beyond)
{
    const uint32_t *order = e->order + place;
    const pimattn_i_job *job = &e->jobs[*order];
    const size_t n = team->n = job->n_gang;
    const pimattn_shape *s = &e->config.shape;
    const uint64_t k_row = pimattn_i_row_bytes(e, 0), v_row = pimattn_i_row_bytes(e, 1);
    const bool heads =
        n > 1 && e->pages && job->kv_head == 0 && e->jobs[order[n - 1]].kv_head == n - 1;
    const bool all = heads && n * k_row == e->pages->k.token && n * v_row == e->pages->v.token &&
                     k_row == e->pages->k.head && v_row == e->pages->v.head;
    /* late: two tiles a turn, and all together fetch what is two on, of int8 three [measured] */
    const bool twos = all && pimattn_i_late(job, e, s->k_type) && pimattn_i_late(job, e, s->v_type);
    /* while K is read V is fetched, and the other way; a near CPU was slower so of two heads, and
     * of one with one query or int8 */
    const bool few = job->n_queries == 1 || s->k_type == PIMATTN_INT8 || pimattn_i_apart(e);
    const size_t least = e->ahead == PIMATTN_I_NEAR ? (few ? 3 : 1) : 2;
    const bool beside = n >= least && e->pages && !twos && k_row == v_row && !s->v_in_k &&
                        e->pages->k.token == e->pages->v.token;
    uint32_t before = 0;
    team->tiles = twos ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        pimattn_i_hand *hand = &team->hands[i];
        pimattn_i_hand_init(hand, e, &e->jobs[order[i]], job, worker, before);
        hand->beyond = beyond;
        hand->ahead = twos && s->k_type == PIMATTN_INT8 && s->v_type == PIMATTN_INT8 ? 3 : 2;
        before += hand->job->rows;
    }
    float *base = team->hands[0].q + before * e->size.q_floats;
    for (size_t i = 0; i < n; i++) {
        pimattn_i_hand_fetch(team->hands, i, n, all && !beside, beside);
        pimattn_i_stack_init(&team->stacks[i], e, team->hands[i].job, base);
        base += PIMATTN_I_GANG_LEVELS * team->stacks[i].block_floats;
    }
    if (n == 1 && place + e->config.max_workers < e->n_jobs)
        team->hands[0].after = &e->jobs[order[e->config.max_workers]]; /* they are taken in turn */
    memset(team->course, 0, sizeof team->course);
    for (int i = 0; i < 5; i++)
        team->course[i].rows = team->rows[i];
    team->course[2 * team->tiles].tile = job->leaf_begin * PIMATTN_I_LEAF - PIMATTN_I_TILE;
    for (size_t i = 0; i <= team->tiles; i++)
        pimattn_i_team_step(team);
}

/* If the job before has not fetched the first tokens, of turns of two all heads would wait for what
 * they miss: it is read, at the pace of memory, for of so many fetches at once a CPU drops some. */
static void pimattn_i_team_warm(const pimattn_i_team *team, const pimattn_i_job *before)
{
    const pimattn_i_hand *hand = team->hands;
    const pimattn_i_job *job = hand->job;
    const pimattn_i_spot *spot = &team->course[team->tiles];
    const uint64_t stop = spot->token < job->kept ? job->kept : job->end; /* beyond none is seen */
    const uint64_t some = pimattn_i_min(spot->in_page, hand->ahead * PIMATTN_I_TILE);
    const uint64_t rows = pimattn_i_min(some, stop - spot->token);
    const bool on = before && hand->e->config.max_workers == 1 &&
                    before->first_row == job->first_row && before->leaf_end == job->leaf_begin;
    for (int i = 0; i < 2 && !on && team->tiles > 1 && !job->chosen && !job->mask; i++)
        for (size_t at = 0; at < rows * hand->strides[i]; at += 64)
            (void)*(const volatile unsigned char *)(spot->at[i] + at);
}

/* The leaf of the next tile. */
static void pimattn_i_team_leaf(pimattn_i_team *team)
{
    const size_t n = team->n, tiles = team->tiles;
    const pimattn_i_spot *course = team->course, *next = course + tiles;
    const uint64_t leaf = next->tile / PIMATTN_I_LEAF, begin = leaf * PIMATTN_I_LEAF;
    for (size_t i = 0; i < n; i++) {
        const pimattn_i_job *job = team->hands[i].job;
        pimattn_i_stack *stack = &team->stacks[i];
        if (pimattn_i_next(job, begin, begin + PIMATTN_I_LEAF) == UINT64_MAX) continue;
        team->blocks[i] = pimattn_i_stack_push(stack, leaf);
        pimattn_i_clear(team->blocks[i], stack->block_floats);
    }
    while (next->tile / PIMATTN_I_LEAF == leaf) {
        size_t turn = tiles; /* where it begins: a leaf may end within one */
        for (; turn > 0 && next->tile / PIMATTN_I_LEAF == leaf; turn--)
            pimattn_i_team_step(team);
        for (size_t i = 0; i < n; i++)
            for (size_t j = turn; j < tiles; j++) {
                team->hands[i].spot = &course[j];
                pimattn_i_tile_fold(&team->hands[i], course[j].tile, team->blocks[i]);
            }
    }
}

/* A job, or a gang, its leaves merged as the tree says. */
static void pimattn_i_job_run(void *arg, size_t place, size_t worker)
{
    pimattn_engine *e = (pimattn_engine *)arg;
    if (place >= e->n_jobs || worker >= e->config.max_workers) return; /* and so is not done */
    pimattn_i_job *job = &e->jobs[e->order[place]];
    pimattn_i_team team;
    bool beyond = pimattn_i_packed(e), again;
    if (job->n_gang == 0) return;
    do {
        pimattn_i_team_init(&team, e, place, worker, beyond);
        pimattn_i_team_warm(&team, place > 0 ? &e->jobs[e->order[place - 1]] : NULL);
        while (team.course[team.tiles].tile < job->leaf_end * PIMATTN_I_LEAF) {
            pimattn_i_team_leaf(&team);
            PIMATTN_ASSERT(team.stacks[0].levels <=
                           (team.n == 1 ? e->size.stack_levels : (uint32_t)PIMATTN_I_GANG_LEVELS));
        }
        again = false;
        for (size_t i = 0; i < team.n; i++) {
            pimattn_i_stack_finish(&team.stacks[i]);
            for (uint32_t j = 0; j < team.hands[i].job->n_queries; j++)
                again |= beyond && pimattn_i_is_nan(team.stacks[i].base[j]); /* m */
        }
        beyond = false;
    } while (again);
    for (size_t i = 0; i < team.n; i++)
        memcpy(e->results + e->order[place + i] * e->size.block_floats, team.stacks[i].base,
               team.stacks[i].block_floats * sizeof(float));
    job->n_gang = 0;
}

/* Hands one query head's partial to the caller. */
static void pimattn_i_give(pimattn_engine *e, const pimattn_i_job *job, uint32_t i, float *block)
{
    const pimattn_call *call = e->call;
    uint32_t head, n_heads = e->config.shape.n_heads, dim = e->config.shape.head_dim_v;
    size_t row = pimattn_i_query_row(e, job, i, &head);
    pimattn_partial view = pimattn_i_view(block, i, e->size.o_floats, dim);
    if (pimattn_i_is_nan(view.m)) view.m = view.l = pimattn_i_nan();
    if (call->partials) {
        pimattn_partial *to = &call->partials[row * n_heads + head];
        to->m = view.m;
        to->l = view.l;
        for (uint32_t j = 0; j < dim; j++) /* of a poisoned one kernels leave this and that */
            to->o[j] = pimattn_i_is_nan(view.m) || pimattn_i_is_nan(view.o[j]) ? pimattn_i_nan()
                                                                               : view.o[j];
    }
    if (e->config.shape.sink_logits && !pimattn_i_is_nan(view.m)) { /* a token without a value */
        const float logit = e->config.shape.sink_logits[head], m = view.m > logit ? view.m : logit;
        const float keep = pimattn_i_exp(view.m - m);
        view.m = m;
        view.l = view.l * keep + pimattn_i_exp(logit - m);
        e->kernel->blend(view.o, keep, view.o, 0.0f, dim);
    }
    if (call->out)
        pimattn_i_output(e->kernel, &view,
                         (unsigned char *)call->out + row * call->out_stride +
                             4 * (size_t)head * dim);
    if (call->lse) {
        float lse = pimattn_partial_lse(&view);
        memcpy((unsigned char *)call->lse + 4 * (row * n_heads + head), &lse, sizeof lse);
    }
}

/* Runs of one query block merge as the tree goes on: in place, left to right. */
static void pimattn_i_block_finish(pimattn_engine *e, size_t first)
{
    const pimattn_i_job *job = &e->jobs[first];
    float *base = e->results + first * e->size.block_floats;
    pimattn_i_stack stack;
    pimattn_i_stack_init(&stack, e, job, base);
    stack.block_floats = e->size.block_floats;
    for (uint32_t run = 0; run < job->runs_left; run++) {
        float *from = base + run * e->size.block_floats;
        float *to = pimattn_i_stack_push(&stack, job[run].leaf_begin);
        if (to != from)
            memcpy(to, from, (PIMATTN_I_O + job->n_queries * e->size.o_floats) * sizeof *to);
    }
    pimattn_i_stack_finish(&stack);
    for (uint32_t i = 0; i < job->n_queries; i++)
        pimattn_i_give(e, job, i, stack.base);
}

/* Jobs on the same leaves one after the other: what the first has read, the cache has. */
static bool pimattn_i_job_after(const void *of, uint32_t a, uint32_t b)
{
    const pimattn_engine *e = (const pimattn_engine *)of;
    const pimattn_i_job *x = &e->jobs[a], *y = &e->jobs[b];
    if (x->first_row != y->first_row) return false;
    if (x->leaf_begin == y->leaf_begin || (x->kv_head != y->kv_head && !pimattn_i_apart(e)))
        return x->kv_head > y->kv_head;
    return x->leaf_begin > y->leaf_begin;
}

/* A wave: as many jobs as there is memory for, then their outputs. */
static void pimattn_i_wave(pimattn_engine *e)
{
    const pimattn_config *c = &e->config;
    const size_t n_jobs = e->n_jobs;
    for (size_t i = 0; i < n_jobs; i++)
        e->order[i] = (uint32_t)i;
    pimattn_i_sort(e->order, n_jobs, e, pimattn_i_job_after);
    for (size_t i = 0, n; i < n_jobs; i += n) {
        n = pimattn_i_gang(e, i);
        e->jobs[e->order[i]].n_gang = (uint32_t)n;
    }
    if (c->parallel_for && n_jobs > 1)
        c->parallel_for(c->parallel_user, n_jobs, pimattn_i_job_run, e);
    else
        for (size_t i = 0; i < n_jobs; i++)
            pimattn_i_job_run(e, i, 0);
    for (size_t i = 0; i < n_jobs; i++)
        e->n_left += e->jobs[i].n_gang > 0;
    for (size_t i = 0; i < n_jobs && !e->n_left; i += e->jobs[i].runs_left)
        pimattn_i_block_finish(e, i);
    e->n_jobs = 0;
}

/* Aligned runs of leaves a block sees some of: n_kept from first, n in all, others from begin. */
typedef struct pimattn_i_runs {
    uint64_t first, n_kept, begin, n;
} pimattn_i_runs;

static pimattn_i_runs pimattn_i_runs_of(const pimattn_i_job *job, uint64_t leaves)
{
    uint64_t tokens = leaves * PIMATTN_I_LEAF, end = pimattn_i_ceil_div(job->end, tokens);
    pimattn_i_runs r = {job->origin / tokens, 0, job->begin / tokens, 0};
    if (job->kept > job->origin) r.n_kept = pimattn_i_ceil_div(job->kept, tokens) - r.first;
    r.begin = pimattn_i_max(r.begin, r.first + r.n_kept);
    r.n = r.n_kept + end - r.begin;
    return r;
}

/* As many leaves a worker's stack can always merge, wherever they lie. */
static uint64_t pimattn_i_stack_leaves(const pimattn_engine *e)
{
    return (uint64_t)1 << (e->size.stack_levels - 3);
}

/* Leaves of one run: a power of two, so that runs are blocks of the tree, and no more than a stack
 * can merge. Heads alone often keep workers busy; of 8 jobs for each, one held up does less. */
static uint64_t pimattn_i_run_leaves(const pimattn_engine *e, const pimattn_i_job *block)
{
    uint64_t jobs = e->config.max_workers == 1 ? 1 : 8 * (uint64_t)e->config.max_workers;
    const bool apart = pimattn_i_apart(e);
    const uint64_t heads = e->config.shape.n_kv_heads, deepest = pimattn_i_stack_leaves(e);
    uint64_t most = pimattn_i_ceil_div(jobs, apart ? 1 : heads), run = 1; /* a gang has all heads */
    const uint64_t room = pimattn_i_min(e->n_jobs_most / (apart ? heads : 1) + 1, e->n_jobs_most);
    if (block->n_tokens > PIMATTN_I_QUERY_BLOCK) most = UINT64_MAX; /* many blocks read each leaf */
    most = pimattn_i_min(most, room);
    for (;; run *= 2) {
        const uint64_t n = pimattn_i_runs_of(block, run).n;
        if (run == deepest && pimattn_i_runs_of(block, 1).n > deepest) return run;
        if (n <= most || (apart && run == PIMATTN_I_GANG_LEAVES && n <= room)) return run;
    }
}

/* Adds the runs of one query block to the wave; a wave that is full is done first. */
static void pimattn_i_block_jobs(pimattn_engine *e, const pimattn_i_job *block)
{
    uint64_t run = pimattn_i_run_leaves(e, block);
    pimattn_i_runs r = pimattn_i_runs_of(block, run);
    if (e->n_jobs + r.n > e->n_jobs_most) pimattn_i_wave(e);
    PIMATTN_ASSERT(e->n_jobs + r.n <= e->n_jobs_most);
    for (uint64_t i = 0; i < r.n; i++) {
        uint64_t at = i < r.n_kept ? r.first + i : r.begin + i - r.n_kept;
        pimattn_i_job *job = &e->jobs[e->n_jobs++];
        *job = *block;
        job->leaf_begin = at * run;
        job->leaf_end = (at + 1) * run;
        job->runs_left = (uint32_t)(r.n - i);
    }
}

static const uint32_t *pimattn_i_pages_list(const pimattn_pages *p, size_t i)
{
    return p->indptr ? p->indices + p->indptr[i] : p->table + i * p->table_stride;
}

/* What all blocks of item i have in common. */
static pimattn_i_job pimattn_i_job_item(pimattn_engine *e, const pimattn_call *call, size_t i)
{
    pimattn_i_job job;
    memset(&job, 0, sizeof job);
    job.n_tokens = e->batch[i].n_tokens;
    job.mask = call->masks ? call->masks[i].bits : NULL;
    job.position = call->masks ? call->masks[i].positions : NULL;
    if (e->pages) {
        job.pages = pimattn_i_pages_list(e->pages, i);
        job.origin = e->pages->first_position ? e->pages->first_position[i] : 0;
    } else {
        job.seq = pimattn_i_seq_find(e, call->items[i].seq);
        job.origin = e->config.shape.sink_tokens > 0 ? 0 : job.seq->begin;
    }
    job.behind = e->pages ? job.origin : job.seq->begin;
    job.tokens = e->batch[i].context_tokens +
                 (e->pages ? job.origin : pimattn_i_seq_gone(&e->layout, job.seq));
    return job;
}

/* All queries of item i as one block. */
static pimattn_i_job pimattn_i_job_whole(pimattn_engine *e, const pimattn_call *call, size_t i)
{
    pimattn_i_job job = pimattn_i_job_item(e, call, i);
    job.n_queries = (uint32_t)job.n_tokens * e->gqa_group;
    pimattn_i_job_reach(e, &job);
    return job;
}

/* A block is of another item or KV head. */
static void pimattn_i_job_choose(const pimattn_engine *e, pimattn_i_job *job, size_t i)
{
    const pimattn_choice *c = e->call->choices ? &e->call->choices[i] : NULL;
    job->n_chosen = c ? c->n_tokens : 0;
    job->chosen = job->n_chosen ? c->bits : NULL;
    if (!job->n_chosen || c->n_kv_heads == 1) return;
    job->chosen += job->kv_head * (c->stride ? c->stride : pimattn_i_ceil_div(c->n_tokens, 64));
}

/* Tokens of bank groups, tile after tile: of one that is there, and of the next one. */
typedef struct pimattn_i_walk {
    const uint32_t *token, *end; /* of the sorted table: left of a bank group .. */
    uint64_t number;             /* .. and its place in the tree */
    uint32_t tier, group, turn;  /* the next group; whose turn it is of these two: */
    uint64_t numbers[2], tokens[2][PIMATTN_I_TILE]; /* in order; the last ones are one */
    const unsigned char *rows[2][4][PIMATTN_I_TILE];
    pimattn_i_spot spot[2];
} pimattn_i_walk;

/* Goes on by a tile, of tokens that some query of a block sees; false: there is none. */
static bool pimattn_i_walk_step(pimattn_i_walk *w, const pimattn_engine *e,
                                const pimattn_i_job *block)
{
    const pimattn_i_tiered *st = e->tiered;
    const uint32_t *const sorted = pimattn_i_table_of(e, block->seq, e->planner.layer)->sorted;
    pimattn_i_spot *spot = &w->spot[1];
    uint64_t *const to = w->tokens[w->turn];
    uint32_t n = 0;
    w->spot[0] = *spot;
    while (n == 0 && (w->token < w->end || w->tier < st->rules.n_tiers)) {
        if (w->token == w->end) {
            const pimattn_i_bin *bin = &st->bins[w->tier];
            w->number = (uint64_t)w->tier << PIMATTN_I_GROUP_BITS | w->group;
            w->end = sorted + bin->begin[w->group++];
            if (w->group == bin->groups.n_groups) w->tier++, w->group = 0;
        }
        for (; w->token < w->end && n < PIMATTN_I_TILE; w->token++) {
            const uint64_t t = *w->token, in = t % PIMATTN_I_TILE;
            if (!pimattn_i_sees(block, t) || !(pimattn_i_chosen(block, t - in) >> in & 1)) continue;
            pimattn_i_spot_of(e, block, t, spot);
            for (int i = 0; i < 4; i++)
                w->rows[w->turn][i][n] = spot->at[i];
            to[n++] = t;
        }
    }
    spot->rows = w->rows[w->turn];
    spot->among = (1u << n) - 1;
    w->numbers[w->turn] = w->number;
    w->turn ^= 1;
    for (; n > 0 && n < PIMATTN_I_TILE; n++)
        to[n] = to[n - 1];
    return w->spot[0].among != 0;
}

/* A block by partials of bank groups, where the seen tokens lie; the table is sorted. */
static void pimattn_i_block_tiers(pimattn_engine *e, const pimattn_i_job *block)
{
    pimattn_i_tiered *st = e->tiered;
    uint64_t number = UINT64_MAX;
    float *to = NULL;
    pimattn_i_hand hand;
    pimattn_i_walk walk;
    pimattn_i_stack stack;
    memset(&walk, 0, sizeof walk);
    walk.token = walk.end = pimattn_i_table_of(e, block->seq, e->planner.layer)->sorted;
    pimattn_i_hand_init(&hand, e, block, block, 0, 0);
    pimattn_i_stack_init(&stack, e, block, hand.q + PIMATTN_I_QUERY_BLOCK * e->size.q_floats);
    hand.spot = walk.spot;
    (void)pimattn_i_walk_step(&walk, e, block);
    while (pimattn_i_walk_step(&walk, e, block)) {
        if (number != walk.numbers[walk.turn]) {
            number = walk.numbers[walk.turn];
            to = pimattn_i_stack_push(&stack, number);
            pimattn_i_clear(to, stack.block_floats);
            st->bins[number >> PIMATTN_I_GROUP_BITS].partials++;
        }
        hand.tokens = walk.tokens[walk.turn];
        pimattn_i_tile_fold(&hand, hand.tokens[0], to);
    }
    pimattn_i_stack_finish(&stack);
    for (uint32_t i = 0; i < block->n_queries; i++)
        pimattn_i_give(e, block, i, stack.base);
}

static pimattn_status pimattn_i_compute(pimattn_engine *e)
{
    const pimattn_call *call = e->call;
    bool tiers = e->tiered && !e->pages && e->tiered->rules.partials;
    uint64_t row = 0;
    e->n_left = 0;
    for (size_t i = 0; i < call->n_items; i++) {
        pimattn_i_job block = pimattn_i_job_item(e, call, i);
        block.first_row = row;
        row += block.n_tokens;
        if (tiers)
            pimattn_i_table_sort(e->tiered, pimattn_i_table_of(e, block.seq, e->planner.layer),
                                 block.tokens);
        uint64_t queries = block.n_tokens * e->gqa_group;
        for (block.kv_head = 0; block.kv_head < e->config.shape.n_kv_heads; block.kv_head++) {
            pimattn_i_job_choose(e, &block, i);
            for (block.query = 0; block.query < queries; block.query += PIMATTN_I_QUERY_BLOCK) {
                block.n_queries =
                    (uint32_t)pimattn_i_min(PIMATTN_I_QUERY_BLOCK, queries - block.query);
                pimattn_i_job_reach(e, &block);
                if (tiers)
                    pimattn_i_block_tiers(e, &block);
                else
                    pimattn_i_block_jobs(e, &block);
            }
        }
    }
    pimattn_i_wave(e);
    if (!e->n_left) return PIMATTN_OK;
    return pimattn_i_wrong(e, "parallel_for left %u indices out, or a worker too high", e->n_left);
}

/* ==========================================================================
 * [A27] CALLS: whether a call can be, and what it costs.
 *       Knows spans, strides, page lists and what tiers have to do; computes no attention.
 * ========================================================================== */

/* Tokens of a block in the fullest bank group of a channel; begin[g] of them in group g. */
static uint64_t pimattn_i_channel_fullest(const pimattn_i_bin *b, uint32_t channel)
{
    uint64_t most = 0, groups = pimattn_i_channel_groups(b->tier), at = channel * groups;
    for (uint64_t g = at; g < at + groups && g < b->groups.n_groups; g++)
        most = pimattn_i_max(most, b->begin[g]);
    return most;
}

/* Adds a block to a tier's work, for all KV heads like it. */
static void pimattn_i_load_add(pimattn_i_bin *b, pimattn_tier_load *load, uint64_t times)
{
    uint32_t groups = pimattn_i_channel_groups(b->tier);
    uint32_t each = groups * b->tier->device.n_channels; /* of a device */
    for (uint32_t g = 0, last = UINT32_MAX; g < b->groups.n_groups; g++) {
        uint32_t n = b->begin[g], device = g / each;
        if (n == 0) continue;
        const uint64_t blocks = device == last ? 0 : times;
        uint64_t *of = b->devices + 3 * (size_t)device;
        load->device_tokens = pimattn_i_max(load->device_tokens, of[0] += n * times);
        load->device_groups = pimattn_i_max(load->device_groups, of[1] += times);
        load->device_blocks = pimattn_i_max(load->device_blocks, of[2] += blocks);
        load->device_outputs += blocks;
        load->tokens += n * times;
        load->groups += times;
        last = device;
    }
    for (uint32_t c = 0; c * groups < b->groups.n_groups; c++)
        b->channels[c] += times * pimattn_i_channel_fullest(b, c);
}

/* A token of flash takes part: its pages are read once for all of a call. */
static void pimattn_i_page_read(const pimattn_i_tiered *st, pimattn_i_bin *b,
                                pimattn_tier_load *load, uint32_t group, uint32_t slot)
{
    uint64_t page_bytes = b->tier->device.flash_page_bytes, n_groups = b->groups.n_groups;
    uint64_t in_page = pimattn_i_max(1, page_bytes / b->token_bytes);
    uint32_t *mark = &b->page_mark[slot / n_groups / in_page * n_groups + group];
    if (*mark == st->mark) return;
    *mark = st->mark;
    const uint64_t n = pimattn_i_ceil_div(b->token_bytes, page_bytes);
    load->pages += n;
    load->channel_pages = pimattn_i_max(load->channel_pages, b->channels[n_groups + group] += n);
}

/* Counts what a block sees in every bank group, and of flash the pages; or it is active now. */
static void pimattn_i_tier_count(pimattn_engine *e, const pimattn_i_job *job,
                                 pimattn_tier_load *loads)
{
    pimattn_i_tiered *st = e->tiered;
    pimattn_i_table *table = pimattn_i_table_of(e, job->seq, e->planner.layer);
    for (uint32_t i = 0; i < st->rules.n_tiers; i++)
        memset(st->bins[i].begin, 0, (st->bins[i].groups.n_groups + 1u) * sizeof(uint32_t));
    for (uint64_t first = 0; first < job->end; first += PIMATTN_I_TILE) {
        uint32_t bits = pimattn_i_seen(job, first);
        for (uint32_t t = 0; bits >> t; t++) {
            if (!(bits >> t & 1)) continue;
            pimattn_i_token *token = &table->token[first + t];
            pimattn_i_bin *b = &st->bins[token->tier];
            uint32_t group = pimattn_i_group_of(b, token->slot);
            b->begin[group]++;
            if (loads && b->tier->device.flash_page_bytes)
                pimattn_i_page_read(st, b, &loads[token->tier], group, token->slot);
            if (loads) continue;
            pimattn_i_token_now(st, token);
            if (token->active & 1) continue;
            token->active |= 1;
            b->active++;
            pimattn_i_groups_count(&b->groups, group, 1, 1);
            b->groups.stale = true;
        }
    }
}

/* Goes through the blocks of a call: all query tokens of an item, a KV head or all alike. Without
 * loads: they were active. Else it adds each block to what the tiers have to do; or `lists` what
 * the slowest channel of each tier has of it. */
static void pimattn_i_tier_blocks(pimattn_engine *e, pimattn_tier_load *loads, bool lists)
{
    pimattn_i_tiered *st = e->tiered;
    uint32_t n_kv_heads = e->config.shape.n_kv_heads, heads = e->call->choices ? n_kv_heads : 1;
    uint32_t alike = n_kv_heads / heads, slowest[PIMATTN_MAX_TIERS] = {0}; /* channel of each */
    for (uint32_t k = 0; lists && k < st->rules.n_tiers; k++)
        for (uint32_t c = 1; c < st->bins[k].groups.n_groups; c++)
            if (st->bins[k].channels[c] > st->bins[k].channels[slowest[k]]) slowest[k] = c;
    for (size_t i = 0; i < e->call->n_items; i++) {
        pimattn_i_job job = pimattn_i_job_whole(e, e->call, i);
        for (job.kv_head = 0; job.kv_head < heads; job.kv_head++) {
            pimattn_i_job_choose(e, &job, i);
            pimattn_i_tier_count(e, &job, loads);
            for (uint32_t k = 0; loads && k < st->rules.n_tiers; k++) {
                uint64_t n = lists ? pimattn_i_channel_fullest(&st->bins[k], slowest[k]) : 0;
                loads[k].n_queries = (uint32_t)pimattn_i_max(loads[k].n_queries, job.n_queries);
                if (!lists) pimattn_i_load_add(&st->bins[k], &loads[k], alike);
                for (uint32_t h = 0; n > 0 && h < alike; h++)
                    st->blocks[k * st->n_blocks + loads[k].n_blocks++] = n;
            }
        }
    }
}

/* Tokens in whole pages that two items begin with both, before all new tokens. */
static uint64_t pimattn_i_common(pimattn_engine *e, size_t a, size_t b)
{
    const uint32_t *list[2];
    const size_t item[2] = {a, b};
    uint64_t n = UINT64_MAX, i = 0, step = 1, page = e->layout.page_tokens;
    for (int k = 0; k < 2; k++) {
        const pimattn_span *span = &e->batch[item[k]];
        n = pimattn_i_min(n, span->context_tokens - span->n_tokens);
        if (e->pages) {
            list[k] = pimattn_i_pages_list(e->pages, item[k]);
            page = e->pages->page_tokens;
        } else {
            const pimattn_i_seq *s = pimattn_i_seq_find(e, e->call->items[item[k]].seq);
            list[k] = s->table;
            step = e->pool.set_pages;
            if (s->begin > 0 || !s->table) return 0;
        }
    }
    while (i < n / page && list[0][i * step] == list[1][i * step])
        i++;
    return i * page;
}

/* The batch with the prefixes that its items share; a run of them shares all that its first two do.
 * Returns how many spans. */
static size_t pimattn_i_spans_share(pimattn_engine *e, pimattn_span *to)
{
    const size_t n_items = e->call->n_items;
    size_t n = 0, end;
    for (size_t i = 0; i < n_items; i = end) {
        uint64_t common = 0, asks = e->batch[i].n_tokens;
        for (end = i + 1; end < n_items; asks += e->batch[end++].n_tokens) {
            const uint64_t its = pimattn_i_common(e, i, end);
            const uint64_t more = asks + e->batch[end].n_tokens;
            if (its == 0 || its < common || more > PIMATTN_I_MAX_QUERY_TOKENS) break;
            if (end == i + 1) common = its;
        }
        if (common > 0) {
            to[n].context_tokens = common;
            to[n++].n_tokens = PIMATTN_PREFIX | asks;
        }
        for (size_t k = i; k < end; k++, n++) {
            to[n].context_tokens = e->batch[k].context_tokens - common;
            to[n].n_tokens = e->batch[k].n_tokens;
        }
    }
    return n;
}

/* Lengths for readings: of items with choices tokens chosen and seen, averaged over KV heads; else
 * of items that share pages, if that is asked for; how many. */
static size_t pimattn_i_spans_read(void *engine, const pimattn_span **spans)
{
    pimattn_engine *e = (pimattn_engine *)engine;
    const pimattn_shape *s = &e->config.shape;
    const size_t n_items = e->call->n_items;
    pimattn_span *to = e->batch + e->most_spans;
    const bool share = e->config.share_rows && !e->call->choices;
    *spans = e->call->choices || share ? to : e->batch;
    if (!e->call->choices) return share ? pimattn_i_spans_share(e, to) : n_items;
    for (size_t i = 0; i < n_items; i++) {
        uint64_t n = 0;
        pimattn_i_job job = pimattn_i_job_whole(e, e->call, i);
        for (job.kv_head = 0; job.kv_head < s->n_kv_heads; job.kv_head++) {
            pimattn_i_job_choose(e, &job, i);
            for (uint64_t k = job.origin / PIMATTN_I_TILE; k * PIMATTN_I_TILE < job.end; k++)
                for (uint32_t b = pimattn_i_seen(&job, k * PIMATTN_I_TILE); b; b &= b - 1)
                    n++;
        }
        to[i].context_tokens = pimattn_i_max(pimattn_i_ceil_div(n, s->n_kv_heads), job.n_tokens);
        to[i].n_tokens = job.n_tokens;
    }
    return n_items;
}

/* Readings of a batch: remembered, or timed and remembered in the oldest place. */
static pimattn_status pimattn_i_read(pimattn_engine *e, pimattn_readings *readings)
{
    const pimattn_span *spans;
    const size_t n = pimattn_i_spans_read(e, &spans), most = (size_t)e->most_spans;
    const uint64_t window = pimattn_i_window_of(&e->config.shape, e->planner.layer);
    const bool apart = e->call->choices && e->config.shape.windows; /* other layers see others */
    e->planner.spans_of = apart ? pimattn_i_spans_read : NULL;
    e->planner.spans_user = e;
    if (apart) return pimattn_i_planner_time(&e->planner, readings, spans, n);
    for (uint32_t i = 0; i < e->config.memo_entries; i++) {
        const pimattn_i_memo *m = &e->memo[i];
        if (m->n_spans != n || m->window != window ||
            memcmp(e->spans + i * most, spans, n * sizeof *spans) != 0)
            continue;
        *readings = m->readings;
        readings->remembered = true;
        return PIMATTN_OK;
    }
    PIMATTN_I_TRY(pimattn_i_planner_time(&e->planner, readings, spans, n));
    pimattn_i_memo *m = &e->memo[e->memo_next];
    memcpy(e->spans + e->memo_next * most, spans, n * sizeof *spans);
    m->n_spans = n;
    m->window = window;
    m->readings = *readings;
    e->memo_next = (e->memo_next + 1) % e->config.memo_entries;
    return PIMATTN_OK;
}

/* Times a call on the tiers: a layer of the step is as this one; in readings the slowest tier. */
static pimattn_status pimattn_i_tier_read(pimattn_engine *e, pimattn_readings *r)
{
    pimattn_i_tiered *st = e->tiered;
    const pimattn_config *c = &e->config;
    const pimattn_relayout how = {st->rules.host_path, 0, 0, 0};
    pimattn_tier_load loads[PIMATTN_MAX_TIERS];
    pimattn_relayout_reading move;
    double moves_ns = 0; /* of those that are due; ways in both directions take turns */
    memset(loads, 0, sizeof loads);
    st->mark++;
    for (uint32_t i = 0; i < st->rules.n_tiers; i++) {
        const pimattn_i_bin *b = &st->bins[i];
        memset(b->channels, 0, 2 * (size_t)b->groups.n_groups * sizeof *b->channels);
        memset(b->devices, 0, 3 * (size_t)b->tier->n_devices * sizeof *b->devices);
        loads[i].blocks = st->blocks + i * st->n_blocks;
        loads[i].gqa_flops = st->rules.gqa_flops;
        for (uint32_t way = 0; way < 2; way++) {
            const uint64_t n = b->due[way];
            if (n == 0) continue;
            PIMATTN_I_TRY(pimattn_relayout_time(&move, b->tier, way ? b->tier + 1 : b->tier - 1,
                                                &how, n * b->token_bytes, n, &e->why));
            moves_ns += move.ns;
        }
    }
    pimattn_i_tier_blocks(e, loads, false);
    pimattn_i_tier_blocks(e, loads, true);
    const pimattn_status status =
        pimattn_step_time(&st->reading, st->rules.tier, st->rules.n_tiers, &c->shape, loads,
                          moves_ns, !st->rules.moves_wait, &e->why);
    PIMATTN_I_TRY(status == PIMATTN_ERR_CONFIG ? PIMATTN_ERR_DEVICE : status); /* shape or q */
    const pimattn_step_reading *step = &st->reading;
    memset(r, 0, sizeof *r);
    r->device = step->tiers[step->slowest].device;
    r->layers_timed = 1;
    double layers_ns = (step->attention_ns + step->merge_ns) * c->shape.n_layers;
    if (!st->rules.moves_wait) moves_ns = fmax(0.0, moves_ns - layers_ns);
    r->step_us = (layers_ns + moves_ns) / 1e3;
    r->layer_ns = (layers_ns + moves_ns) / c->shape.n_layers;
    for (uint32_t i = 0; i < st->rules.n_tiers; i++) {
        const pimattn_tier_reading *tier = &step->tiers[i];
        double share = tier->energy_pJ > 0 ? tier->energy_pJ / tier->device.total_pJ : 0;
        for (uint32_t k = 0; k < PIMHW_N_ENERGY; k++)
            r->energy_pJ[k] += tier->device.energy_pJ[k] * share * c->shape.n_layers;
        r->kv_bytes += tier->kv_bytes;
        memset(st->bins[i].due, 0, sizeof st->bins[i].due);
    }
    const pimattn_span *spans;
    const size_t n_spans = pimattn_i_spans_read(e, &spans);
    (void)pimattn_i_readings_sum(r, c, spans, n_spans);
    r->speedup = r->layer_ns > 0 ? r->host_ns / r->layer_ns : 0;
    return PIMATTN_OK;
}

/* Strides of 0 by the order; whether rows of n_pages pages fit memory and do not overlap. */
static pimattn_status pimattn_i_rows_check(pimattn_engine *e, const pimattn_pages *p,
                                           pimattn_rows *rows, const char *what, uint64_t bytes)
{
    const uint64_t heads = e->config.shape.n_kv_heads, hnd = p->order == PIMATTN_HND;
    if (!rows->at) return PIMATTN_I_WRONG(e, "pages.%s is NULL", what);
    if (!rows->token) rows->token = (size_t)(hnd ? bytes : heads * bytes);
    if (!rows->head) rows->head = (size_t)(hnd ? p->page_tokens * bytes : bytes);
    if (!rows->page) rows->page = (size_t)(heads * p->page_tokens * bytes);
    static const char *const of[3] = {"token", "head", "page"};
    const uint64_t step[3] = {rows->token, rows->head, rows->page};
    const uint64_t n[3] = {p->page_tokens, heads, p->n_pages};
    uint64_t all = bytes;
    for (int i = 0; i < 3; i++) {
        uint64_t room = bytes; /* of what lies inside a step, at lesser ones */
        for (int j = 0; j < 3; j++)
            if (j != i && n[j] > 1 && (step[j] < step[i] || (step[j] == step[i] && j < i)))
                room = pimattn_i_add(room, pimattn_i_mul(step[j], n[j] - 1));
        all = pimattn_i_add(all, pimattn_i_mul(step[i], n[i] - 1));
        if (n[i] == 1 || step[i] >= room) continue;
        return PIMATTN_I_WRONG(e,
                               "strides of pages.%s overlap rows: of a %s it is %u, less than the "
                               "%u bytes within; of a token %u, a head %u, a page %u",
                               what, of[i], step[i], room, step[0], step[1], step[2]);
    }
    if (p->page_tokens == 1) rows->token = rows->page;
    if (rows->page != p->page_tokens * rows->token) e->joined = 0;
    if (all <= SIZE_MAX / 2) return PIMATTN_OK;
    return PIMATTN_I_WRONG(e, "strides of pages.%s reach beyond memory", what);
}

/* Length and page numbers of item i; *most becomes one of these if it is less. */
static pimattn_status pimattn_i_list_check(pimattn_engine *e, const pimattn_pages *p, uint64_t i,
                                           uint64_t *tokens, uint64_t *most)
{
    const uint64_t first = p->first_position ? p->first_position[i] : 0;
    const uint64_t last = p->indptr ? p->last_page_len[i] : 1, full = p->page_tokens;
    if (last < 1 || last > full)
        return PIMATTN_I_WRONG(e, "pages.last_page_len of item %u is %u, not 1 to page_tokens", i,
                               last);
    *tokens = p->indptr ? (p->indptr[i + 1] - p->indptr[i] - 1) * full + last : p->lengths[i];
    const uint64_t n_pages = pimattn_i_ceil_div(*tokens, full);
    if (!p->indptr && n_pages > p->table_stride)
        return PIMATTN_I_WRONG(e, "pages.lengths of item %u takes %u pages, table_stride less", i,
                               n_pages);
    if (pimattn_i_add(*tokens, first) > PIMATTN_I_MAX_TOKENS)
        return pimattn_i_wrong(e, "the tokens of item %u end beyond position 2^32", i);
    uint64_t leaves = *tokens / PIMATTN_I_LEAF + 2, deep = pimattn_i_stack_leaves(e);
    const uint64_t n_jobs = leaves > deep ? leaves / deep + 2 : 0;
    uint64_t bytes = e->size.least + (n_jobs - 1) * e->size.job_bytes;
    if (bytes >= e->size.wide) bytes += e->size.wide - e->size.least; /* gangs take theirs then */
    if (n_jobs > e->n_jobs_most)
        return PIMATTN_I_WRONG(e, "the tokens of item %u need scratch_bytes of %u", i, bytes);
    const uint32_t *list = pimattn_i_pages_list(p, (size_t)i);
    for (uint64_t k = 0; k < n_pages; k++) {
        const uint64_t page = list[k];
        *most = pimattn_i_max(*most, page);
        if (page >= p->n_pages)
            return PIMATTN_I_WRONG(e, "page %u of item %u is %u, not below n_pages", k, i, page);
    }
    return PIMATTN_OK;
}

/* Judges pages for a batch; fills strides, and its lengths. */
static pimattn_status pimattn_i_pages_check(pimattn_engine *e, pimattn_pages *p, size_t n_items)
{
    const pimattn_shape *s = &e->config.shape;
    pimattn_rows *rows[4] = {&p->k, &p->v, &p->k_scale, &p->v_scale};
    const char *const names[4] = {"k", "v", "k_scale", "v_scale"};
    uint64_t most = 0;
    e->joined = 4 * PIMATTN_I_TILE;
    if (e->module) return pimattn_i_wrong(e, "pages of the caller need the host way", 0);
    if (p->order > PIMATTN_HND) return pimattn_i_wrong(e, "pages.order %u is not 0 or 1", p->order);
    if (p->page_tokens < 1) return pimattn_i_wrong(e, "pages.page_tokens is 0", 0);
    if (p->n_pages < 1 || p->n_pages > (uint64_t)1 << 32)
        return pimattn_i_wrong(e, "pages.n_pages %u is 0 or beyond 2^32", p->n_pages);
    const char *lacks = p->indptr ? "indices or last_page_len" : "indptr, or table, lengths";
    if (p->indptr ? !p->indices || !p->last_page_len : !p->table || !p->lengths)
        return PIMATTN_I_WRONG(e, "pages lack %s", lacks);
    if (!p->indptr && p->table_stride > SIZE_MAX / 8 / n_items)
        return pimattn_i_wrong(e, "pages.table_stride %u reaches beyond memory", p->table_stride);
    for (int i = 0; i < 4; i++)
        if (s->v_in_k && i % 2 == 1)
            *rows[i] = *rows[i - 1];
        else if (e->layout.dim[i])
            PIMATTN_I_TRY(pimattn_i_rows_check(e, p, rows[i], names[i],
                                               (size_t)e->layout.dim[i] * e->layout.each[i]));
        else if (rows[i]->at)
            return PIMATTN_I_WRONG(e, "pages.%s is given, but %s is not int8", names[i],
                                   names[i - 2]);
    for (size_t i = 0; i < n_items && p->indptr; i++) /* before any of indices is read */
        if (p->indptr[i] >= p->indptr[i + 1])
            return pimattn_i_wrong(e, "pages.indptr does not grow: item %u has no page", i);
    for (size_t i = 0; i < n_items; i++)
        PIMATTN_I_TRY(pimattn_i_list_check(e, p, i, &e->batch[i].context_tokens, &most));
    /* of [pages][2][..] with the stride of one half, every page but the first is another's */
    const uintptr_t k = (uintptr_t)p->k.at, v = (uintptr_t)p->v.at;
    if (s->v_in_k || most == 0 || (v - k != p->k.page && k - v != p->v.page)) return PIMATTN_OK;
    return PIMATTN_I_WRONG(e,
                           "pages.%s begins one page stride, %u, behind pages.%s: page 1 is both",
                           v > k ? "v" : "k", (uint64_t)(v > k ? v - k : k - v), v > k ? "k" : "v");
}

/* Judges a batch; its layer and lengths. */
static pimattn_status pimattn_i_call_spans(pimattn_engine *e, uint32_t layer,
                                           const pimattn_item *items, size_t n_items)
{
    if (layer >= e->config.shape.n_layers)
        return pimattn_i_wrong(e, "layer %u is not below n_layers", layer);
    if (!items) return pimattn_i_wrong(e, "items is NULL for a batch of %u", n_items);
    if (n_items == 0 || n_items > e->config.max_seqs)
        return PIMATTN_I_WRONG(e, "a batch of %u items is not 1 to %u, max_seqs", (uint64_t)n_items,
                               (uint64_t)e->config.max_seqs);
    if (e->pages) PIMATTN_I_TRY(pimattn_i_pages_check(e, e->pages, n_items));
    for (size_t i = 0; i < n_items; i++) {
        e->batch[i].n_tokens = items[i].n_tokens;
        if (e->pages) continue;
        const pimattn_i_seq *s = pimattn_i_seq_here(e, items[i].seq);
        if (!s) return PIMATTN_ERR_SEQ;
        e->batch[i].context_tokens = s->tokens[layer] - pimattn_i_seq_gone(&e->layout, s);
        const uint64_t gone = pimattn_i_max(s->begin, s->hidden);
        if (gone > 0 && items[i].n_tokens > s->tokens[layer] - gone)
            return pimattn_i_wrong(e, "item %u has more queries than tokens after those gone", i);
    }
    e->planner.layer = layer;
    return pimattn_i_spans_check(e->batch, n_items, &e->why);
}

/* Pointers, strides and partials of a call; fills strides of 0. */
static pimattn_status pimattn_i_call_check(pimattn_engine *e, pimattn_call *call)
{
    const pimattn_shape *s = &e->config.shape;
    uint64_t rows = 0;
    if (!call->q) return pimattn_i_wrong(e, "q is NULL for %u items", call->n_items);
    if (!call->out && !call->partials)
        return pimattn_i_wrong(e, "out and partials are NULL for %u items", call->n_items);
    for (size_t i = 0; i < call->n_items; i++)
        rows += e->batch[i].n_tokens;
    PIMATTN_I_TRY(pimattn_i_stride(e, "q", &call->q_stride, s->n_heads, s->head_dim, rows));
    PIMATTN_I_TRY(pimattn_i_stride(e, "out", &call->out_stride, s->n_heads, s->head_dim_v, rows));
    for (uint64_t i = 0; call->masks && i < call->n_items; i++) {
        const pimattn_i_job job = pimattn_i_job_item(e, call, (size_t)i);
        const uint64_t old = job.tokens - job.n_tokens, n = call->masks[i].n_tokens;
        if ((job.mask || n) && n != job.n_tokens)
            return PIMATTN_I_WRONG(e, "mask of item %u is of %u tokens, not of its n_tokens", i, n);
        if (job.position && !job.mask)
            return pimattn_i_wrong(e, "mask of item %u has positions and no bits", i);
        for (uint64_t t = 0; job.position && t < n; t++)
            if (job.position[t] < old || job.position[t] > old + t)
                return PIMATTN_I_WRONG(e, "mask of item %u: position %u is %u, not %u to %u", i, t,
                                       job.position[t], old, old + t);
    }
    for (size_t i = 0; call->choices && i < call->n_items; i++) {
        const pimattn_choice *c = &call->choices[i];
        if (c->n_tokens == 0) continue;
        if (!c->bits) return pimattn_i_wrong(e, "choice of item %u has no bits", i);
        if (c->n_kv_heads != 1 && c->n_kv_heads != s->n_kv_heads)
            return PIMATTN_I_WRONG(e, "choice of item %u is of %u KV heads, not of 1 or all",
                                   (uint64_t)i, (uint64_t)c->n_kv_heads);
        uint64_t least = pimattn_i_ceil_div(c->n_tokens, 64), words = c->stride ? c->stride : least;
        if (words < least)
            return PIMATTN_I_WRONG(e,
                                   "choice of item %u has a stride of %u words; its tokens take %u",
                                   (uint64_t)i, (uint64_t)c->stride, least);
        if (pimattn_i_mul(words, 8 * (c->n_kv_heads - (uint64_t)1)) > SIZE_MAX / 2 ||
            c->n_tokens > PIMATTN_I_MAX_TOKENS)
            return pimattn_i_wrong(e, "choice of item %u reaches beyond memory", i);
        if (e->module) return PIMATTN_I_UNABLE(e, "choices need the host way");
    }
    for (uint64_t i = 0; call->partials && i < rows * s->n_heads; i++)
        if (!call->partials[i].o || call->partials[i].dim != s->head_dim_v)
            return pimattn_i_wrong(e, "partial %u has no o or another dim than head_dim_v", i);
    const unsigned char *at = (const unsigned char *)call->q;
    const uint32_t lane = pimattn_i_lane_type(e);
    pimattn_i_rows q = {at, call->q_stride, s->n_heads, s->head_dim, lane, "q", false};
    if (!e->module) return PIMATTN_OK;
    return pimattn_i_range_check(e, &q, rows,
                                 "%s of token %u of this call, head %u, index %u is beyond a lane");
}

/* ==========================================================================
 * [A28] DEVICE WAY: attention by a program on the banks, the hub's part of it; programs given out.
 *       Knows the works of a program and hands on its readings; decides no clock.
 * ========================================================================== */

/* Request data of a batch on the banks: rows by VA2PA, and HFP's lists by where the heads are. */
static pimattn_status pimattn_i_module_request(pimattn_engine *e, const pimattn_item *items)
{
    pimattn_i_module *m = e->module;
    pimattn_i_planner *p = &e->planner;
    pimhw_request *request = &p->request;
    uint32_t n = 0, at = 0;
    m->chunk_begin[0] = p->list_begin[0] = 0;
    if (!pimattn_i_same_v(&p->plans[p->taken], m->plan))
        return PIMATTN_I_UNABLE(e, "v_mapping K has too few output entries for %u queries",
                                p->planned_queries);
    for (uint32_t u = 0; u < m->n_units; u++) {
        for (uint32_t b = 0; b < request->n_blocks; b++) {
            const pimattn_i_seq *s = pimattn_i_seq_find(e, items[b / m->n_heads].seq);
            const pimattn_i_list *list = pimattn_i_lists_of(e, s, p->layer, b % m->n_heads);
            if (m->n_units > 1 && list->unit != u) continue;
            for (uint32_t which = 0; which < 2; which++, list++) {
                if (list->n > e->config.device.va2pa_entries - n)
                    return PIMATTN_I_UNABLE(e, "item %u: VA2PA holds %u chunks, too few",
                                            (uint64_t)(b / m->n_heads),
                                            (uint64_t)e->config.device.va2pa_entries);
                p->blocks[b].row_base[which] = (n - m->chunk_begin[u]) * m->chunk_rows;
                for (uint32_t i = list->first, k = 0; k < list->n; k++, i = m->next[i])
                    m->chunks[n++] = i % m->n_chunks * m->chunk_rows;
            }
            p->order[at++] = b;
        }
        p->list_begin[u + 1] = at;
        m->chunk_begin[u + 1] = n;
    }
    request->chunks = m->chunks;
    request->n_chunks = n;
    request->chunk_rows = m->chunk_rows;
    request->chunk_begin = m->n_units > 1 ? m->chunk_begin : NULL;
    return PIMATTN_OK;
}

/* Query i of a block. */
static pimattn_i_job pimattn_i_job_of(const pimattn_engine *e, const pimattn_i_work *w, uint32_t i)
{
    pimattn_i_job job = w->job;
    job.n_queries = 1;
    job.query += (uint64_t)i * (e->module->n_heads / e->config.shape.n_kv_heads);
    return job;
}

/* The block of a channel's round, which begins if it is a new one. */
static pimattn_i_work *pimattn_i_work_of(pimattn_engine *e, uint32_t channel, uint32_t round)
{
    pimattn_i_module *m = e->module;
    uint32_t unit = channel / m->plan->unit_channels;
    uint32_t group = m->n_heads / e->config.shape.n_kv_heads;
    pimattn_i_work *w = &m->work[2 * unit + round % 2];
    if (w->key == (uint64_t)round + 1) return w;
    uint32_t block = e->planner.order[e->planner.list_begin[unit] + round];
    uint32_t item = block / m->n_heads, head = block % m->n_heads;
    w->key = (uint64_t)round + 1;
    w->mixing = false;
    w->job = pimattn_i_job_item(e, e->call, item);
    for (uint32_t k = 0; k < item; k++)
        w->job.first_row += e->call->items[k].n_tokens;
    w->job.n_queries = (uint32_t)e->planner.blocks[block].rest[PIMATTN_I_QUERIES - 1];
    w->job.kv_head = head / group;
    w->job.query = head % group;
    return w;
}

/* Lanes that a WR_GB wants: of the queries, or of the probabilities. WR_BIAS: zeros. */
static void pimattn_i_hub_input(void *user, const pimhw_event *event, uint16_t *lanes)
{
    pimattn_engine *e = (pimattn_engine *)user;
    const pimattn_plan *p = &e->planner.plans[e->planner.taken];
    uint32_t n = pimhw_config_lanes(&p->device);
    bool bias = event->command == PIMHW_CMD_WRMAC16;
    memset(lanes, 0, (bias ? pimhw_config_banks(&p->device) : n) * sizeof *lanes);
    if (bias) return;
    pimattn_i_work *w = pimattn_i_work_of(e, event->channel, event->round);
    if (!w->mixing) {
        uint32_t at = event->gpr + event->index, dim = p->shape.head_dim, head;
        if (at / p->k_columns >= w->job.n_queries) return;
        pimattn_i_job job = pimattn_i_job_of(e, w, at / p->k_columns);
        size_t row = pimattn_i_query_row(e, &job, 0, &head);
        const unsigned char *q = (const unsigned char *)e->call->q + row * e->call->q_stride;
        const uint32_t d = at % p->k_columns * n;
        pimhw_lanes_round(p->device.lane_type, lanes, q + 4 * ((size_t)head * dim + d),
                          d < dim ? (size_t)pimattn_i_min(n, dim - d) : 0);
        return;
    }
    uint32_t group = event->channel % p->unit_channels / p->v_spread;
    uint64_t t = (((uint64_t)event->aux + event->index) * p->v_groups + group) * n;
    if (t < w->job.tokens)
        pimhw_lanes_round(p->device.lane_type, lanes, w->scores + event->gpr * w->job.tokens + t,
                          (size_t)pimattn_i_min(n, w->job.tokens - t));
}

static uint32_t pimattn_i_work_dims(const pimattn_plan *p)
{
    return p->v_passes * p->v_spread * pimhw_config_banks(&p->device);
}

/* A result of every bank: scores of the tokens of a slot, or sums of a block of dims. */
static void pimattn_i_hub_output(void *user, const pimhw_event *event, const float *sums)
{
    pimattn_engine *e = (pimattn_engine *)user;
    const pimattn_plan *p = &e->planner.plans[e->planner.taken];
    pimattn_i_work *w = pimattn_i_work_of(e, event->channel, event->round);
    uint32_t banks = pimhw_config_banks(&p->device), channel = event->channel % p->unit_channels;
    if (event->gpr >= w->job.n_queries) return;
    if (!w->mixing) {
        uint64_t t = ((uint64_t)event->aux * p->unit_channels + channel) * banks;
        for (uint32_t b = 0; b < banks && t < w->job.tokens; b++, t++)
            w->scores[event->gpr * w->job.tokens + t] = sums[b];
        return;
    }
    size_t at = (size_t)event->gpr * p->v_groups + channel / p->v_spread;
    float *to = w->sums + at * pimattn_i_work_dims(p) +
                ((size_t)event->aux * p->v_spread + channel % p->v_spread) * banks;
    for (uint32_t b = 0; b < banks; b++)
        to[b] += sums[b];
}

/* Softmax of one query in f32, of tokens it sees; a part of p goes out rounded; l is its sum. */
static void pimattn_i_hub_softmax(const pimattn_engine *e, pimattn_i_work *w, uint32_t i,
                                  const pimattn_i_job *job)
{
    const uint64_t tokens = job->tokens;
    const uint32_t type = e->config.device.lane_type;
    float *s = w->scores + i * tokens, l = 0.0f, part = 1.0f;
    const float m = pimattn_i_scores(e, job, s);
    double sum = 0.0;
    for (uint64_t t = 0; t < tokens; t++)
        sum += (double)(s[t] = pimattn_i_exp(s[t] - m)); /* 0 where none is seen, and of NaN */
    /* the most of all p that units have if sums come in 16 bits: p v fits f16 where |v| <= 256 */
    while (e->config.device.out_bits == 16 && sum * (double)part > 255)
        part /= 2;
    for (uint64_t t = 0; t < tokens;) {
        float leaf = 0.0f; /* sums of leaves, so that long ones stay exact enough */
        for (uint64_t end = pimattn_i_min(tokens, t + PIMATTN_I_LEAF); t < end; t++)
            leaf += s[t] = pimhw_lane_value(type, pimhw_lane_round(type, s[t] * part));
        l += leaf;
    }
    w->m[i] = m;
    w->l[i] = l / part;
    w->part[i] = part;
}

/* Softmax of a round; or sums of its channel groups in their order, which go to the caller. */
static void pimattn_i_hub_epu(void *user, const pimhw_instruction *in)
{
    pimattn_engine *e = (pimattn_engine *)user;
    const pimattn_i_planner *p = &e->planner;
    const pimattn_plan *plan = &p->plans[p->taken];
    const size_t dims = pimattn_i_work_dims(plan), floats = plan->v_groups * dims;
    float *block = e->results, *o = block + PIMATTN_I_O;
    for (uint32_t u = 0; u < e->module->n_units; u++) {
        if (!(in->mask >> u & 1) || in->round >= p->list_begin[u + 1] - p->list_begin[u]) continue;
        pimattn_i_work *w = pimattn_i_work_of(e, u, in->round);
        for (uint32_t i = 0; i < w->job.n_queries; i++) {
            const pimattn_i_job job = pimattn_i_job_of(e, w, i);
            if (in->flags & PIMHW_AWAITED) {
                pimattn_i_hub_softmax(e, w, i, &job);
                continue;
            }
            pimattn_i_clear(block, e->size.block_floats);
            block[0] = w->m[i];
            block[PIMATTN_I_L] = w->l[i];
            for (uint32_t g = 0; g < plan->v_groups; g++)
                for (uint32_t j = 0; j < plan->shape.head_dim_v; j++)
                    o[j] += w->sums[i * floats + g * dims + j] / w->part[i];
            pimattn_i_give(e, &job, 0, block);
        }
        w->mixing = true;
        memset(w->sums, 0, w->job.n_queries * floats * sizeof *w->sums);
    }
}

/* Attention of a layer on the device: its program runs, the hub has the queries and the scores. */
static pimattn_status pimattn_i_module_attend(pimattn_engine *e, pimattn_readings *readings)
{
    pimattn_i_module *m = e->module;
    pimattn_i_planner *p = &e->planner;
    size_t n = e->call->n_items;
    pimhw_readings layer;
    uint64_t scores = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t queries = e->batch[i].n_tokens * pimattn_i_token_queries(&e->config);
        scores = pimattn_i_max(scores, pimattn_i_mul(queries, e->batch[i].context_tokens));
    }
    PIMATTN_I_TRY(pimattn_i_planner_take(p, NULL, e->batch, n));
    const pimattn_plan *plan = &p->plans[p->taken];
    const uint64_t queries = p->planned_queries;
    PIMATTN_I_TRY(pimattn_i_module_request(e, e->call->items));
    uint64_t sums = pimattn_i_mul(queries, (uint64_t)plan->v_groups * pimattn_i_work_dims(plan));
    uint64_t floats = pimattn_i_add(pimattn_i_add(scores, sums), 3 * queries);
    uint64_t n_work = 2 * m->n_units;
    float *memory = (float *)pimattn_i_zeroed(&e->config.allocator, floats, n_work * sizeof(float));
    if (!memory) return PIMATTN_I_LACK(&e->why, "no memory for the scores of %u sequences", n);
    memset(m->work, 0, sizeof m->work);
    for (uint64_t i = 0; i < n_work; i++) {
        pimattn_i_work *w = &m->work[i];
        w->scores = memory + i * floats;
        w->sums = w->scores + scores;
        w->m = w->sums + sums;
        w->l = w->m + queries;
        w->part = w->l + queries;
    }
    pimhw_hub hub = {e, pimattn_i_hub_input, pimattn_i_hub_output, pimattn_i_hub_epu};
    pimhw_status ran = pimhw_device_run(p->device, &layer, m->units, &p->programs[p->taken],
                                        &p->request, &hub, &e->why);
    pimattn_i_release(&e->config.allocator, memory, floats * n_work * sizeof(float));
    if (ran != PIMHW_OK) return PIMATTN_ERR_DEVICE;
    if (!readings) return PIMATTN_OK;
    PIMATTN_I_TRY(pimattn_i_planner_report(p, &layer, readings));
    readings->chunks_used = m->n_used;
    readings->chunks_total = pimattn_pages_total(e);
    readings->chunk_bytes = pimattn_page_bytes(e);
    readings->memory_bytes = pimhw_memory_bytes(m->memory);
    readings->append_ck = m->append_ck;
    readings->append_commands = m->append_commands;
    readings->append_pJ = m->append_pJ;
    readings->kernel = "device";
    m->append_ck = m->append_commands = 0;
    m->append_pJ = 0;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_engine_program(pimattn_engine *engine, uint32_t layer,
                                                  const pimattn_item *items, size_t n_items,
                                                  const pimhw_program **program,
                                                  const pimhw_request **request)
{
    if (!engine || !program || !request)
        return pimattn_i_wrong(engine, "program or request is NULL", 0);
    if (pimattn_i_is_busy(engine)) return PIMATTN_ERR_ARGUMENT;
    PIMATTN_I_TRY(pimattn_i_call_spans(engine, layer, items, n_items));
    PIMATTN_I_TRY(pimattn_i_planner_take(&engine->planner, NULL, engine->batch, n_items));
    if (engine->module) PIMATTN_I_TRY(pimattn_i_module_request(engine, items));
    *program = &engine->planner.programs[engine->planner.taken];
    *request = &engine->planner.request;
    return PIMATTN_OK;
}

/* ==========================================================================
 * [A29] ATTENTION: the calls of tiers and attention; which tokens count.
 *       Knows everything above.
 * ========================================================================== */

/* Tokens of a sequence in a layer, if nothing is wrong; an array has n entries, or all: as many. */
static pimattn_status pimattn_i_tier_table(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                           const void *array, uint64_t n, bool all,
                                           pimattn_i_table **table)
{
    if (!e || !e->tiered) return pimattn_i_wrong(e, "the engine has no tiers", 0);
    if (pimattn_i_is_busy(e)) return PIMATTN_ERR_ARGUMENT;
    const pimattn_i_seq *s = pimattn_i_seq_find(e, seq);
    if (!s) return PIMATTN_ERR_SEQ;
    if (layer >= e->config.shape.n_layers)
        return pimattn_i_wrong(e, "layer %u is not below n_layers", layer);
    if (all && n != s->tokens[layer])
        return pimattn_i_wrong(e, "n_tokens is %u, not the tokens of the layer", n);
    if (!array && n > 0) return pimattn_i_wrong(e, "an array of the call is NULL", 0);
    *table = pimattn_i_table_of(e, s, layer);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_score(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, const float *score, uint64_t n_tokens)
{
    pimattn_i_table *table;
    PIMATTN_I_TRY(pimattn_i_tier_table(engine, seq, layer, score, n_tokens, true, &table));
    if (pimattn_importance(table->importance, score, (size_t)n_tokens, (size_t)table->n_scored,
                           engine->tiered->rules.lambda) != PIMATTN_OK)
        return pimattn_i_wrong(engine, "a score is negative or not finite", 0);
    table->n_scored = n_tokens;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_propose(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                                pimattn_swap *swaps, size_t n_most, size_t *n_swaps,
                                                uint32_t *stop)
{
    pimattn_i_table *table;
    uint32_t stops[PIMATTN_MAX_TIERS];
    PIMATTN_I_TRY(pimattn_i_tier_table(e, seq, layer, swaps, n_most, false, &table));
    if (!n_swaps) return pimattn_i_wrong(e, "n_swaps is NULL", 0);
    size_t n = (size_t)table->n_scored, bytes = pimattn_schedule_bytes(n);
    unsigned char *scratch =
        (unsigned char *)pimattn_i_alloc(&e->config.allocator, pimattn_i_add(bytes, n), 64);
    if (!scratch) return PIMATTN_I_LACK(&e->why, "no memory to schedule %u tokens", n);
    for (size_t i = 0; i < n; i++)
        scratch[bytes + i] = table->token[i].tier;
    const pimattn_tiers *r = &e->tiered->rules;
    const pimattn_schedule schedule = {table->importance, scratch + bytes, n,      r->ratio,
                                       r->n_tiers,        r->mean,         n_most, scratch};
    pimattn_status status =
        pimattn_schedule_swaps(&schedule, swaps, n_swaps, stop ? stop : stops, &e->why);
    pimattn_i_release(&e->config.allocator, scratch, bytes + n);
    return status;
}

PIMATTN_API pimattn_status pimattn_tier_commit(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                               const pimattn_swap *swaps, size_t n_swaps,
                                               size_t *n_done)
{
    pimattn_i_table *table;
    if (n_done) *n_done = 0;
    PIMATTN_I_TRY(pimattn_i_tier_table(e, seq, layer, swaps, n_swaps, false, &table));
    uint64_t n = pimattn_i_seq_find(e, seq)->tokens[layer]; /* slots may be reserved for more */
    pimattn_i_token *token = table->token;
    size_t fine = 0; /* swaps that can be done: they are, in the table alone, and then undone */
    for (; fine < n_swaps; fine++) {
        const pimattn_swap *w = &swaps[fine];
        if (w->down >= n || w->up >= n || token[w->down].tier != w->tier) break;
        if (token[w->up].tier != w->tier + 1) break;
        token[w->down].tier++;
        token[w->up].tier--;
    }
    for (size_t i = fine; i-- > 0;) {
        token[swaps[i].down].tier--;
        token[swaps[i].up].tier++;
    }
    if (fine < n_swaps) return pimattn_i_wrong(e, "swap %u: a token is not where it says", fine);
    for (size_t i = 0; i < n_swaps; i++) {
        const pimattn_swap *w = &swaps[i];
        PIMATTN_I_TRY(pimattn_i_token_move(e->tiered, &token[w->down], w->tier + 1, &token[w->up]));
        if (n_done) *n_done = i + 1;
    }
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_places(pimattn_engine *engine, pimattn_seq seq,
                                               uint32_t layer, uint8_t *tier, uint64_t n_tokens)
{
    pimattn_i_table *table;
    PIMATTN_I_TRY(pimattn_i_tier_table(engine, seq, layer, tier, n_tokens, true, &table));
    for (uint64_t i = 0; i < n_tokens; i++)
        tier[i] = table->token[i].tier;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_query(pimattn_engine *engine, uint32_t tier,
                                              pimattn_tier_info *info)
{
    const pimattn_i_tiered *st = engine ? engine->tiered : NULL;
    if (!st) return pimattn_i_wrong(engine, "the engine has no tiers", 0);
    if (!info) return pimattn_i_wrong(engine, "info is NULL", 0);
    if (tier >= st->rules.n_tiers) return pimattn_i_wrong(engine, "there is no tier %u", tier);
    const pimattn_i_bin *b = &st->bins[tier];
    memset(info, 0, sizeof *info);
    info->n_tokens = b->tier->n_tokens;
    info->n_used = b->n_used;
    info->slot_bytes = st->slot_bytes;
    info->n_groups = b->groups.n_groups;
    pimattn_i_groups_book(info->n_groups, b->tier->n_tokens, &info->id_bytes, &info->count_bytes);
    info->n_active = b->active;
    const uint16_t *ring = b->groups.ring + b->groups.at; /* of the step that runs */
    for (uint32_t g = 0; g < info->n_groups; g++)
        info->busiest = pimattn_i_max(info->busiest, ring[(size_t)g * PIMATTN_TIER_STEPS]);
    info->n_partials = b->partials;
    info->n_faster = b->moves[0];
    info->n_slower = b->moves[1];
    info->faster_bytes = b->moves[0] * b->token_bytes;
    info->slower_bytes = b->moves[1] * b->token_bytes;
    return PIMATTN_OK;
}

PIMATTN_API const pimattn_step_reading *pimattn_tier_readings(const pimattn_engine *engine)
{
    return engine && engine->tiered ? &engine->tiered->reading : NULL;
}

PIMATTN_API pimattn_status pimattn_tier_step(pimattn_engine *engine)
{
    pimattn_i_tiered *st = engine ? engine->tiered : NULL;
    if (!st) return pimattn_i_wrong(engine, "the engine has no tiers", 0);
    if (pimattn_i_is_busy(engine)) return PIMATTN_ERR_ARGUMENT;
    st->step++;
    for (pimattn_i_bin *b = st->bins; b < st->bins + st->rules.n_tiers; b++) {
        pimattn_i_groups_step(&b->groups);
        b->partials = b->active = 0;
        memset(b->moves, 0, sizeof b->moves);
    }
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_tier_move(pimattn_engine *engine, pimattn_seq seq,
                                             uint32_t layer, const uint8_t *tier, uint64_t n_tokens)
{
    pimattn_i_table *table;
    uint64_t more[PIMATTN_MAX_TIERS] = {0}, other[PIMATTN_MAX_TIERS] = {0};
    PIMATTN_I_TRY(pimattn_i_tier_table(engine, seq, layer, tier, n_tokens, true, &table));
    pimattn_i_tiered *st = engine->tiered;
    pimattn_i_token *token = table->token;
    const uint32_t n_tiers = st->rules.n_tiers; /* a token stays where it is in one beyond */
    for (uint64_t i = 0; i < n_tokens; i++) {
        if (tier[i] >= n_tiers) continue;
        more[tier[i]]++;
        more[token[i].tier]--;
    }
    for (uint32_t i = 0; i < n_tiers; i++)
        if (st->bins[i].n_used + more[i] > st->bins[i].tier->n_tokens)
            return PIMATTN_I_FULL(engine, "tier %u has %u slots, not %u", (uint64_t)i,
                                  st->bins[i].tier->n_tokens, st->bins[i].n_used + more[i]);
    for (uint64_t i = 0; i < n_tokens; i++) {
        if (tier[i] >= n_tiers || tier[i] == token[i].tier) continue;
        const bool full = st->bins[tier[i]].n_used == st->bins[tier[i]].tier->n_tokens;
        /* a full tier: one of its tokens wants to leave, behind those that were swapped in */
        uint64_t *at = &other[tier[i]];
        while (full && (token[*at].tier != tier[i] || tier[*at] >= n_tiers || tier[*at] == tier[i]))
            *at = *at + 1 < n_tokens ? *at + 1 : 0;
        PIMATTN_I_TRY(pimattn_i_token_move(st, &token[i], tier[i], full ? &token[*at] : NULL));
    }
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_attend(pimattn_engine *e, uint32_t layer,
                                          const pimattn_call *call, pimattn_readings *readings)
{
    if (!e || !call) return pimattn_i_wrong(e, "call is NULL", 0);
    if (pimattn_i_is_busy(e)) return PIMATTN_ERR_ARGUMENT;
    pimattn_call filled = *call;
    PIMATTN_I_TRY(pimattn_i_call_spans(e, layer, call->items, call->n_items));
    PIMATTN_I_TRY(pimattn_i_call_check(e, &filled));
    pimattn_status status = PIMATTN_OK;
    const bool tiers = e->tiered && !e->pages;
    e->piece_bytes = e->layout.page_bytes / e->layout.page_tokens *
                     (e->pages ? e->pages->page_tokens : e->layout.page_tokens);
    e->call = &filled;
    if (e->module)
        status = pimattn_i_module_attend(e, readings);
    else if (readings)
        status = tiers ? pimattn_i_tier_read(e, readings) : pimattn_i_read(e, readings);
    if (status == PIMATTN_OK && !e->module) status = pimattn_i_compute(e);
    if (status == PIMATTN_OK && tiers) pimattn_i_tier_blocks(e, NULL, false);
    e->call = NULL;
    if (status != PIMATTN_OK || !readings || e->module) return status;
    readings->pages_used = pimattn_pages_used(e);
    readings->pages_total = pimattn_pages_total(e);
    readings->kernel = e->kernel->name;
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_attend_pages(pimattn_engine *e, uint32_t layer,
                                                const pimattn_pages *pages,
                                                const pimattn_call *call,
                                                pimattn_readings *readings)
{
    if (!e || !pages) return pimattn_i_wrong(e, "pages is NULL", 0);
    if (pimattn_i_is_busy(e)) return PIMATTN_ERR_ARGUMENT;
    pimattn_pages filled = *pages;
    e->pages = &filled;
    pimattn_status status = pimattn_attend(e, layer, call, readings);
    e->pages = NULL;
    return status;
}

PIMATTN_API pimattn_status pimattn_attend_one(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, float *out, const float *q,
                                              pimattn_readings *readings)
{
    const pimattn_item item = {seq, 1};
    const pimattn_call call = {out, NULL, NULL, q, &item, 1, NULL, NULL, 0, 0};
    return pimattn_attend(engine, layer, &call, readings);
}

/* -- which tokens count -- */

/* A page, what the newest queries of a KV head see of it, and the bound of its scores. */
typedef struct pimattn_i_candidate {
    uint64_t page, n_tokens;
    float bound;
} pimattn_i_candidate;

/* The newest queries of a KV head, and memory; rows are of q_floats. */
typedef struct pimattn_i_newest {
    pimattn_i_job job;
    float *q;                   /* [n_heads] rows */
    float *row;                 /* a key, and what low and high are of pages that keep none */
    float *low;                 /* least of every dim, and behind these the largest */
    float *scores;              /* [tokens in whole tiles] */
    uint64_t *order, n_pages;   /* [n_pages] */
    pimattn_i_candidate *pages; /* [n_kv_heads][n_pages]; what has no other place is one piece */
    uint64_t page_tokens;       /* that have a bound together: a page, or in tiers a tile */
    uint64_t bytes;
} pimattn_i_newest;

/* Judges; takes memory, and what pages keep their bounds in if that is asked. */
static pimattn_status pimattn_i_newest_init(pimattn_engine *e, pimattn_i_newest *w, pimattn_seq seq,
                                            uint32_t layer, const float *q, bool bounds)
{
    const pimattn_shape *s = &e->config.shape;
    pimattn_i_pool *pool = &e->pool;
    const pimattn_item item = {seq, 1};
    const pimattn_call call = {NULL, NULL, NULL, q, &item, 1, NULL, NULL, 0, 0};
    if (pimattn_i_is_busy(e)) return PIMATTN_ERR_ARGUMENT;
    PIMATTN_I_TRY(pimattn_i_call_spans(e, layer, &item, 1));
    bounds = bounds && !e->tiered;
    if (e->module) return PIMATTN_I_UNABLE(e, "which tokens count is known in the host way alone");
    for (size_t i = 0; i < (size_t)s->n_heads * s->head_dim; i++)
        if (!q || !pimattn_i_finite(q[i]))
            return pimattn_i_wrong(e, q ? "q[%u] is not finite" : "q is NULL", i);
    w->job = pimattn_i_job_whole(e, &call, 0);
    w->job.n_queries = 1;
    const uint64_t scores = pimattn_i_up64(w->job.tokens), rows = (uint64_t)s->n_heads + 3;
    w->page_tokens = e->tiered ? (uint64_t)PIMATTN_I_TILE : e->layout.page_tokens;
    w->n_pages = pimattn_i_ceil_div(w->job.tokens, w->page_tokens);
    w->bytes = w->n_pages * (s->n_kv_heads * sizeof *w->pages + sizeof *w->order) +
               (scores + rows * e->size.q_floats) * sizeof(float);
    w->pages = (pimattn_i_candidate *)pimattn_i_alloc(&e->config.allocator, w->bytes, 64);
    if (bounds && w->pages && !pool->bounds)
        pool->bounds = (unsigned char **)pimattn_i_zeroed(&e->config.allocator, pool->n_slabs_most,
                                                          sizeof *pool->bounds);
    bool enough = w->pages && (!bounds || pool->bounds);
    for (uint64_t i = 0; i < pool->n_slabs && bounds && enough; i++) {
        if (!pool->bounds[i])
            pool->bounds[i] = (unsigned char *)pimattn_i_zeroed(
                &e->config.allocator, pool->slab_pages, pool->bound_bytes);
        enough = pool->bounds[i] != NULL;
    }
    if (!enough) {
        pimattn_i_release(&e->config.allocator, w->pages, w->bytes);
        return PIMATTN_I_LACK(&e->why, "no memory for scores of %u tokens", w->job.tokens);
    }
    w->scores = (float *)(void *)(w->pages + s->n_kv_heads * w->n_pages);
    w->q = w->scores + scores;
    w->row = w->q + s->n_heads * e->size.q_floats;
    w->order = (uint64_t *)(void *)(w->q + rows * e->size.q_floats);
    for (uint32_t h = 0; h < s->n_heads; h++, q += s->head_dim)
        e->kernel->load(w->q + h * e->size.q_floats, e->size.q_floats, (const unsigned char *)q,
                        PIMATTN_F32, s->head_dim);
    e->kernel->blend(w->q, s->scale < 0 ? -1.0f : 1.0f, w->q, 0.0f, s->n_heads * e->size.q_floats);
    return PIMATTN_OK;
}

/* A key in f32, in whole vectors; returns its scale, which int8 alone has. */
static float pimattn_i_key_load(const pimattn_engine *e, const pimattn_i_job *job, uint64_t token,
                                float *to)
{
    const pimattn_shape *s = &e->config.shape;
    float scale = 1.0f;
    pimattn_i_spot spot;
    pimattn_i_spot_of(e, job, token, &spot);
    e->kernel->load(to, e->size.q_floats, spot.at[0], s->k_type, s->head_dim);
    if (s->k_type == PIMATTN_INT8) memcpy(&scale, spot.at[2], sizeof scale);
    return scale;
}

/* Least and largest of the keys that are seen of a page; false: one is not finite. If that is all
 * there is of it, the page keeps them, and only what came since is read the next time. */
static bool pimattn_i_extremes(const pimattn_engine *e, pimattn_i_newest *w, pimattn_i_candidate *c)
{
    const pimattn_shape *s = &e->config.shape;
    const pimattn_i_job *job = &w->job;
    const uint64_t first = c->page * w->page_tokens;
    const uint64_t end = pimattn_i_min(first + w->page_tokens, job->tokens);
    bool finite = true;
    uint32_t none = 0, *n_bound = &none;
    w->low = w->row + e->size.q_floats;
    if (!e->tiered && (first >= job->begin || (first >= job->origin && end <= job->kept))) {
        const uint32_t *pages = pimattn_i_table_at(&e->layout, job->seq, c->page, e->planner.layer);
        n_bound = pimattn_i_page_bounds(&e->pool, pages[job->kv_head]);
        w->low = (float *)(void *)(n_bound + 16);
        pages += pimattn_i_sees(job, first + w->page_tokens) ? e->pool.set_pages : 0;
        const uint32_t *later = pimattn_i_page_bounds(&e->pool, pages[job->kv_head]);
        for (uint64_t b = 0; b < e->pool.bound_bytes; b += 64)
            PIMATTN_I_FETCH((const unsigned char *)later + b, 1);
    }
    float *high = w->low + e->size.q_floats;
    c->n_tokens = *n_bound <= end - first ? *n_bound : 0;
    for (uint64_t t = first + c->n_tokens; t < end; t++) {
        if (!pimattn_i_sees(job, t)) continue;
        float *x = c->n_tokens++ ? w->row : w->low, scale = pimattn_i_key_load(e, job, t, x);
        if (s->k_type == PIMATTN_INT8) e->kernel->blend(x, scale, x, 0.0f, s->head_dim);
        finite = finite && e->kernel->magnitude((unsigned char *)x, s->head_dim) < 0x7f800000u;
        if (x == w->low) memcpy(high, x, e->size.q_floats * sizeof *x);
        for (size_t i = 0; i < e->size.q_floats && x == w->row; i += 16)
            for (size_t j = i; j < i + 16; j++) {
                w->low[j] = x[j] < w->low[j] ? x[j] : w->low[j];
                high[j] = x[j] > high[j] ? x[j] : high[j];
            }
    }
    *n_bound = finite ? (uint32_t)c->n_tokens : 0;
    return finite;
}

/* The bound of a query head. A kernel, and this, rounds products, dim / 16 sums of a lane, 4 of the
 * tree and what is scaled: each by 2^-24 of the sum of all sizes, or by half of the least number; a
 * key of int8 was rounded above. More than twice that is added, and likewise for what follows. */
static float pimattn_i_bound(const pimattn_engine *e, const pimattn_i_newest *w, uint32_t head,
                             uint64_t page)
{
    const pimattn_shape *s = &e->config.shape;
    const double scale = fabs((double)s->scale), cap = (double)s->soft_cap, tiny = 1.5e-45;
    float sums[2][16];
    e->kernel->bound(w->q + head * e->size.q_floats, w->low, e->size.q_floats, sums);
    double x = scale * (double)pimattn_i_sum16(sums[0]), bias = 0;
    double size = scale * (double)pimattn_i_sum16(sums[1]);
    x += size * (s->head_dim / 16 + 16) / (1 << 22) + (scale * s->head_dim + 1) * 2 * tiny;
    if (!(size <= (double)FLT_MAX)) return HUGE_VALF;
    if (cap > 0) /* of 10 and more tanh is 1 */
        x = cap * (double)pimattn_i_tanh((float)fmax(-10.0, fmin(x / cap, 10.0)));
    if (s->alibi_slopes) {
        double slope = (double)s->alibi_slopes[head], own = (double)w->job.tokens - 1;
        double first = (double)(page * w->page_tokens), last = first + (double)w->page_tokens - 1;
        bias = slope * (slope < 0 ? own - first : fmax(own - last, 0.0));
    }
    x += (fabs(x) + fabs(bias) + cap * tiny) * 1e-6 - bias;
    return x > (double)FLT_MAX ? HUGE_VALF : x < -(double)FLT_MAX ? -FLT_MAX : (float)x;
}

/* All pages of which a token is seen, the newest one last; of all heads, as they lie in memory. */
static uint64_t pimattn_i_candidates(const pimattn_engine *e, pimattn_i_newest *w)
{
    uint64_t n = 0;
    for (uint64_t page = w->job.origin / w->page_tokens; page < w->n_pages; page++) {
        const uint64_t first = page * w->page_tokens;
        if (first >= w->job.kept && first + w->page_tokens <= w->job.begin) continue;
        for (uint32_t h = 0; h < e->config.shape.n_kv_heads; h++) {
            pimattn_i_candidate *c = &w->pages[h * w->n_pages + n];
            w->job.kv_head = h;
            c->page = page;
            c->bound = pimattn_i_extremes(e, w, c) ? -HUGE_VALF : HUGE_VALF;
            for (uint32_t i = 0; i < e->gqa_group && c->bound < HUGE_VALF; i++) {
                float bound = pimattn_i_bound(e, w, h * e->gqa_group + i, page);
                if (bound > c->bound) c->bound = bound;
            }
        }
        n++;
    }
    return n;
}

PIMATTN_API pimattn_status pimattn_retrieve(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                            pimattn_choice *choice, float *bounds, const float *q,
                                            uint32_t c)
{
    pimattn_i_newest w;
    uint64_t length = 0;
    PIMATTN_I_TRY(pimattn_seq_tokens(e, seq, layer, &length));
    const uint32_t heads = e->config.shape.n_kv_heads;
    const uint64_t words = pimattn_i_ceil_div(length, 64);
    if (c == 0) c = 8;
    if (!choice || !choice->bits) return pimattn_i_wrong(e, "choice or choice.bits is NULL", 0);
    if (choice->n_kv_heads != heads)
        return pimattn_i_wrong(e, "choice.n_kv_heads is %u, not all", choice->n_kv_heads);
    if (choice->stride < words)
        return pimattn_i_wrong(e, "choice.stride is below the %u words of a KV head", words);
    if (pimattn_i_mul(choice->stride, 8 * (heads - (uint64_t)1)) > SIZE_MAX / 2)
        return pimattn_i_wrong(e, "choice.stride is %u: beyond memory", choice->stride);
    PIMATTN_I_TRY(pimattn_i_newest_init(e, &w, seq, layer, q, true));
    const size_t n = (size_t)pimattn_i_candidates(e, &w);
    for (uint32_t head = 0; head < heads; head++) {
        uint64_t *bits = choice->bits + head * choice->stride, all = 0;
        pimattn_i_heap h = {w.order, n};
        const pimattn_i_candidate *pages = &w.pages[head * w.n_pages];
        for (size_t i = 0; i < n; i++) {
            h.key[i] = pimattn_i_key(pages[i].bound, i, true);
            all += pages[i].n_tokens;
        }
        h.key[n - 1] = n - 1; /* the newest one first */
        pimattn_i_heap_build(&h);
        memset(bits, 0, (size_t)words * sizeof *bits);
        for (uint64_t left = pimattn_i_ceil_div(all, c); h.n > 0 && left > 0;) {
            const pimattn_i_candidate *page = &pages[pimattn_i_heap_take(&h)];
            const uint64_t end = (page->page + 1) * w.page_tokens;
            for (uint64_t t = page->page * w.page_tokens; t < end; t++)
                if (pimattn_i_sees(&w.job, t)) bits[t / 64] |= (uint64_t)1 << t % 64;
            left -= pimattn_i_min(page->n_tokens, left);
        }
        if (bounds) bounds[head] = h.n ? pages[(uint32_t)h.key[0]].bound : -HUGE_VALF;
    }
    choice->n_tokens = length;
    pimattn_i_release(&e->config.allocator, w.pages, w.bytes);
    return PIMATTN_OK;
}

PIMATTN_API pimattn_status pimattn_probabilities(pimattn_engine *e, pimattn_seq seq, uint32_t layer,
                                                 float *of_tokens, const float *q, uint32_t source)
{
    pimattn_i_newest w;
    if (!e || !of_tokens) return pimattn_i_wrong(e, "of_tokens is NULL", 0);
    if (source > PIMATTN_BY_BOUNDS) return pimattn_i_wrong(e, "source %u is not 0 or 1", source);
    const bool bounds = source == PIMATTN_BY_BOUNDS;
    PIMATTN_I_TRY(pimattn_i_newest_init(e, &w, seq, layer, q, bounds));
    const pimattn_shape *s = &e->config.shape;
    const uint32_t n = bounds ? s->n_kv_heads : s->n_heads, group = n / s->n_kv_heads;
    const uint64_t n_pages = bounds ? pimattn_i_candidates(e, &w) : 0;
    memset(of_tokens, 0, (size_t)w.job.tokens * sizeof *of_tokens);
    for (uint32_t h = 0; h < n; h++) {
        w.job.kv_head = h / group;
        w.job.query = h % group;
        for (uint64_t t = 0; t < w.job.tokens; t++) {
            w.scores[t] = -HUGE_VALF;
            if (bounds || !pimattn_i_sees(&w.job, t)) continue;
            const float scale = pimattn_i_key_load(e, &w.job, t, w.row);
            w.scores[t] = pimattn_i_dot(q + (size_t)h * s->head_dim, w.row, s->head_dim) * scale;
        }
        float most = bounds ? -HUGE_VALF : pimattn_i_scores(e, &w.job, w.scores);
        for (uint64_t i = 0; i < n_pages; i++) { /* every token's score is its page's bound */
            const pimattn_i_candidate *c = &w.pages[h * w.n_pages + i];
            const uint64_t end = (c->page + 1) * w.page_tokens;
            if (c->bound > most || pimattn_i_is_nan(c->bound)) most = c->bound;
            for (uint64_t t = c->page * w.page_tokens; t < end; t++)
                if (pimattn_i_sees(&w.job, t)) w.scores[t] = c->bound;
        }
        const float sink = s->sink_logits && !bounds ? s->sink_logits[h] : -HUGE_VALF;
        if (sink > most) most = sink;
        double sum = (double)pimattn_i_exp(sink - most); /* 0 without one */
        for (uint64_t t = 0; t < w.job.tokens; t++)
            sum += (double)(w.scores[t] = pimattn_i_exp(w.scores[t] - most));
        if (!(most <= FLT_MAX)) sum = (double)pimattn_i_nan();
        for (uint64_t t = 0; t < w.job.tokens; t++)
            of_tokens[t] += (float)((double)w.scores[t] / (sum * n));
    }
    pimattn_i_release(&e->config.allocator, w.pages, w.bytes);
    return PIMATTN_OK;
}

#ifdef __cplusplus
}
#endif

#endif /* PIMATTN_IMPLEMENTED */
