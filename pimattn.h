/* pimattn.h - attention over a paged KV cache, and what it costs on a PIM memory.
 *
 * Version 0.1.0. C99 or C++11, libc and libm only; needs pim_hw.h beside it. In exactly one
 * source file:
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
 * Build with -ffp-contract=off; -ffast-math is refused. Options, to define before the include:
 *
 *     PIMATTN_IMPLEMENTATION  build the functions here, and those of pim_hw.h
 *     PIMATTN_STATIC          every function becomes a private copy of this source file
 *     PIMATTN_ASSERT(x)       what checks our own invariants; default: assert
 *
 * Rooms. Front: [A1] options, [A2] foundations, [A3] shapes, [A5] plan, [A9] readings,
 * [A6] attention, [A4] cache. Back: [A10] cellar, [A11] numbers, [A12] kernels, [A13] partials,
 * [A14] pages, [A15] partition, [A16] lowering, [A19] engine.
 *
 * Papers, as cited below: [LOL] LoL-PIM; [PHONY] PIMphony; [CENT] CENT; [OS18] Milakov and
 * Gimelshein, Online normalizer calculation for softmax; [PAM] PAM.
 *
 * Licence (MIT) at the end.
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
    PIMATTN_ERR_SEQ,      /* no such sequence, or no slot for one more */
    PIMATTN_ERR_RANGE,    /* a finite value too large for the cache's type */
    PIMATTN_ERR_DEVICE    /* the device cannot do the program; the cause has its words */
} pimattn_status;

/* What a status means, in words; never NULL. */
PIMATTN_API const char *pimattn_status_str(pimattn_status status);

/*
 * Calls fn(arg, index, worker) for every index below n, with worker < max_workers and never two
 * calls at once under one worker, and returns when all have returned and their writes are visible.
 */
typedef void (*pimattn_parallel_for)(void *user, size_t n,
                                     void (*fn)(void *arg, size_t index, size_t worker), void *arg);

/* ==========================================================================
 * [A3] SHAPES: heads, head_dim, types.
 * ========================================================================== */

typedef enum pimattn_type { PIMATTN_F32 = 0, PIMATTN_F16 = 1 } pimattn_type;

/* Attention of one model. Query head h reads KV head h / (n_heads / n_kv_heads). */
typedef struct pimattn_shape {
    uint32_t n_layers;   /* 1 to 65536 */
    uint32_t n_heads;    /* a multiple of n_kv_heads, at most 65536 */
    uint32_t n_kv_heads; /* 1 or more */
    uint32_t head_dim;   /* of q and K; 1 to 65536 */
    uint32_t head_dim_v; /* of V and the output; 0: head_dim */
    uint32_t k_type;     /* pimattn_type in the cache; default f32 */
    uint32_t v_type;
    float scale; /* score = scale * q.k; 0: 1 / sqrt(head_dim) */
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
    PIMATTN_BY_QUERY_HEAD = 1 /* every query head by itself */
} pimattn_hfp_unit;

/* One sequence of a step: its tokens in the cache, of which the last n_tokens are queries. */
typedef struct pimattn_span {
    uint64_t context_tokens;
    uint64_t n_tokens;
} pimattn_span;

/* How a shape lies on a device. Layouts of K and V: mapping A [PHONY]. */
typedef struct pimattn_plan {
    pimattn_shape shape;
    uint32_t partition;     /* pimattn_partition */
    uint32_t hfp_unit;      /* pimattn_hfp_unit */
    bool row_reuse_off;     /* default: all queries of a KV head use a row before it closes */
    uint32_t unit_channels; /* channels that share one KV head: all (TCP) or 1 (HFP) */
    uint32_t n_queries;     /* queries of one block the program is made for */
    uint32_t k_columns;     /* columns of one token's key */
    uint32_t k_row_tokens;  /* tokens of one bank row; 0: a token takes k_token_rows rows */
    uint32_t k_token_rows;
    uint32_t k_queries;  /* query block of the K phase */
    bool k_resident;     /* the queries stay in the global buffer for all rows */
    uint32_t v_blocks;   /* blocks of n_banks dims that cover head_dim_v */
    uint32_t v_groups;   /* channel groups over tokens */
    uint32_t v_passes;   /* passes over the same tokens */
    uint32_t v_queries;  /* query block of the V phase */
    uint32_t v_strip;    /* columns of probabilities in the global buffer at once, per query */
    bool v_hold;         /* sums stay in the output entries from row to row */
    uint32_t wanted_out; /* output entries the plan would have used with enough of them .. */
    uint32_t used_out;   /* .. and uses: fewer means it fell back to smaller query blocks */
    pimhw_config device;
} pimattn_plan;

/*
 * Plans blocks of up to n_queries queries (n_tokens * GQA group, or n_tokens by query head).
 *
 *   returns  PIMATTN_ERR_CONFIG with the field in *why; *plan then unchanged
 */
PIMATTN_API pimattn_status pimattn_plan_init(pimattn_plan *plan, const pimattn_shape *shape,
                                             const pimhw_config *device, uint32_t partition,
                                             uint32_t hfp_unit, bool row_reuse_off,
                                             uint64_t n_queries, pimhw_cause *why);

/* The program of a plan: one layer's attention, for any batch of any lengths. */
PIMATTN_API pimattn_status pimattn_plan_lower(const pimattn_plan *plan, pimhw_program *program,
                                              pimhw_cause *why);

/* Blocks and scratch that pimattn_plan_request needs for n_spans sequences. */
PIMATTN_API size_t pimattn_plan_blocks(const pimattn_plan *plan, size_t n_spans);

/*
 * Request data of a batch.
 *
 *   shape    blocks, order: [pimattn_plan_blocks]; list_begin: [PIMHW_MAX_CHANNELS + 1]
 *   memory   keeps the three pointers in *request
 */
PIMATTN_API pimattn_status pimattn_plan_request(const pimattn_plan *plan, pimhw_request *request,
                                                pimhw_block *blocks, uint32_t *order,
                                                uint32_t *list_begin, const pimattn_span *spans,
                                                size_t n_spans, pimhw_cause *why);

/* ==========================================================================
 * [A9] READINGS: latency, occupancy.
 * ========================================================================== */

typedef struct pimattn_readings {
    uint32_t size;         /* bytes of this struct */
    uint32_t version;      /* 1 */
    pimhw_readings device; /* attention of one layer for the whole batch, softmax included */
    uint64_t memory_ck;    /* the same program if softmax took no time */
    uint64_t step_ck;      /* n_layers * device.cycles */
    double step_us;
    uint32_t n_layers;
    uint32_t partition;
    uint64_t kv_tokens;   /* context tokens of the batch */
    uint64_t kv_bytes;    /* K and V the device holds for one layer of the batch, unpadded */
    uint64_t pages_used;  /* KV pages in use in the engine; 0 for an estimate */
    uint64_t pages_total; /* KV pages the configuration allows */
    uint32_t wanted_out;  /* see pimattn_plan */
    uint32_t used_out;
    bool remembered;    /* a batch of these lengths had been timed before */
    const char *kernel; /* host kernel, "" for an estimate */
} pimattn_readings;

/* ==========================================================================
 * [A6] ATTENTION: partials, engine, attend.
 * ========================================================================== */

/*
 * (m, l, o) of a token subset for one query head: maximum score, sum of exp(score - m), sum of
 * exp(score - m) v. The empty partial is (-inf, 0, 0). m = NaN is poisoned: a visible score was
 * not finite. o is caller's memory of dim floats.
 */
typedef struct pimattn_partial {
    float m;
    float l;
    float *o;
    uint32_t dim;
} pimattn_partial;

PIMATTN_API void pimattn_partial_clear(pimattn_partial *partial);

/*
 * Folds src into dst, dst as the left operand: afterwards dst covers the tokens of both.
 *
 *   returns  PIMATTN_ERR_ARGUMENT if dim differs; dst then unchanged
 *   source   [OS18 3.1]
 */
PIMATTN_API pimattn_status pimattn_partial_merge(pimattn_partial *dst, const pimattn_partial *src);

/* Exits: out[j] = o[j] / l (0 if empty, NaN if poisoned or not finite), and m + log l (-inf, NaN). */
PIMATTN_API void pimattn_partial_output(const pimattn_partial *partial, float *out);
PIMATTN_API float pimattn_partial_lse(const pimattn_partial *partial);

/* 0 means usual everywhere but in shape. */
typedef struct pimattn_config {
    pimattn_shape shape;
    uint32_t page_tokens;   /* tokens of a KV page; 0: 128 */
    uint64_t pool_bytes;    /* most memory for KV pages; 0: 1 GiB */
    uint32_t max_seqs;      /* sequences alive, and of one call; 0: 64, at most 65535 */
    uint64_t scratch_bytes; /* working memory; 0: 8 MiB; the check names the least */
    uint32_t memo_entries;  /* timed batches remembered; 0: 64 */
    uint32_t max_workers;   /* workers of parallel_for; 0: 1 */
    pimattn_parallel_for parallel_for; /* NULL: a serial loop */
    void *parallel_user;
    uint32_t partition; /* pimattn_partition; default TCP */
    uint32_t hfp_unit;  /* pimattn_hfp_unit */
    bool row_reuse_off;
    pimhw_config device; /* preset[0] == 0: preset "aimx" */
    pimhw_allocator allocator;
} pimattn_config;

/* Judges a configuration: PIMATTN_ERR_CONFIG with the first wrong field and its limits in *why. */
PIMATTN_API pimattn_status pimattn_config_check(const pimattn_config *config, pimhw_cause *why);

typedef struct pimattn_engine pimattn_engine;

/*
 *   returns  PIMATTN_ERR_CONFIG, PIMATTN_ERR_MEMORY; *engine is then NULL
 *   memory   scratch and tables here; pages as they are needed; attend allocates nothing
 */
PIMATTN_API pimattn_status pimattn_engine_create(pimattn_engine **engine,
                                                 const pimattn_config *config, pimhw_cause *why);
PIMATTN_API void pimattn_engine_destroy(pimattn_engine *engine);

/* Why the last failing call on this engine failed; "" before the first. */
PIMATTN_API const char *pimattn_engine_cause(const pimattn_engine *engine);

/* The configuration with every 0 replaced by what it meant. */
PIMATTN_API const pimattn_config *pimattn_engine_config(const pimattn_engine *engine);

typedef uint64_t pimattn_seq;

/* One sequence of a batch: the last n_tokens of its tokens are the queries. */
typedef struct pimattn_item {
    pimattn_seq seq;
    uint64_t n_tokens;
} pimattn_item;

/*
 * A batch. Rows are packed by token over the items in order: row r of q is
 * [n_heads][head_dim], of out [n_heads][head_dim_v], of lse [n_heads]. Strides in bytes from one
 * row to the next, 0: packed. Query i of an item sees the tokens up to and with its own.
 */
typedef struct pimattn_call {
    float *out;                 /* may be NULL if partials is not */
    float *lse;                 /* log-sum-exp; may be NULL */
    pimattn_partial *partials;  /* [rows * n_heads] with o and dim set; may be NULL */
    const float *q;
    const pimattn_item *items;  /* [n_items] */
    size_t n_items;
    size_t q_stride;
    size_t out_stride;
} pimattn_call;

/*
 * Attention of one layer.
 *
 *   readings may be NULL: then nothing is timed
 *   returns  PIMATTN_ERR_ARGUMENT, PIMATTN_ERR_SEQ, PIMATTN_ERR_DEVICE; outputs then unchanged
 *   error    |out - exact| <= (2e-6 + 2e-7 max|score|) max|v|; o overflows, and out is NaN, where
 *            the sum of |v| over the tokens passes FLT_MAX
 */
PIMATTN_API pimattn_status pimattn_attend(pimattn_engine *engine, uint32_t layer,
                                          const pimattn_call *call, pimattn_readings *readings);

/* The same for the newest token of one sequence. */
PIMATTN_API pimattn_status pimattn_attend_one(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, float *out, const float *q,
                                              pimattn_readings *readings);

/*
 * What attention of a batch would cost, without tensors or an engine.
 *
 *   returns  PIMATTN_ERR_CONFIG, PIMATTN_ERR_ARGUMENT, PIMATTN_ERR_MEMORY, PIMATTN_ERR_DEVICE
 */
PIMATTN_API pimattn_status pimattn_estimate(pimattn_readings *readings,
                                            const pimattn_config *config,
                                            const pimattn_span *spans, size_t n_spans,
                                            pimhw_cause *why);

/* ==========================================================================
 * [A4] CACHE: KV pages, block tables, sequences.
 *
 * A page holds page_tokens tokens of one KV head of one layer, in runs of 16 tokens (or of
 * page_tokens, if 16 does not divide it), K of the run and then V of the run:
 *
 *     page_bytes = page_tokens / run * (up64(run * head_dim * k_bytes)
 *                                       + up64(run * head_dim_v * v_bytes))
 *
 * where up64 rounds up to a multiple of 64. Pages are taken when their first token arrives.
 * ========================================================================== */

PIMATTN_API pimattn_status pimattn_seq_create(pimattn_engine *engine, pimattn_seq *seq);
PIMATTN_API pimattn_status pimattn_seq_free(pimattn_engine *engine, pimattn_seq seq);

/*
 * Takes the pages for n_tokens more tokens in all layers, or none.
 *
 *   returns  PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY, PIMATTN_ERR_SEQ
 */
PIMATTN_API pimattn_status pimattn_seq_reserve(pimattn_engine *engine, pimattn_seq seq,
                                               uint64_t n_tokens);

/* Tokens of a sequence in one layer. */
PIMATTN_API pimattn_status pimattn_seq_tokens(pimattn_engine *engine, pimattn_seq seq,
                                              uint32_t layer, uint64_t *n_tokens);

/*
 * Appends tokens to one layer of a sequence. The pages of all layers are taken with the first
 * layer that needs them, so that no step is left half appended.
 *
 *   shape    row r of k: [n_kv_heads][head_dim], of v: [n_kv_heads][head_dim_v]
 *   units    strides in bytes from one row to the next, 0: packed
 *   returns  PIMATTN_ERR_PAGES, PIMATTN_ERR_MEMORY, PIMATTN_ERR_RANGE (f16: token, head and index
 *            in the cause); nothing is appended then
 */
PIMATTN_API pimattn_status pimattn_append(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                                          const float *k, const float *v, uint64_t n_tokens,
                                          size_t k_stride, size_t v_stride);

/* KV pages in use, and the most there can be; bytes of one. */
PIMATTN_API uint64_t pimattn_pages_used(const pimattn_engine *engine);
PIMATTN_API uint64_t pimattn_pages_total(const pimattn_engine *engine);
PIMATTN_API uint64_t pimattn_page_bytes(const pimattn_engine *engine);

/*
 * The program and request data that pimattn_attend times for these items, e.g. to export.
 *
 *   memory   both point into the engine and hold until its next call
 */
PIMATTN_API pimattn_status pimattn_engine_program(pimattn_engine *engine, uint32_t layer,
                                                  const pimattn_item *items, size_t n_items,
                                                  const pimhw_program **program,
                                                  const pimhw_request **request);

#ifdef __cplusplus
}
#endif

#endif /* PIMATTN_H */
