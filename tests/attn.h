/* attn.h - what the attention tests share: tokens in plain arrays, a float64 reference, engines. */
#ifndef ATTN_H
#define ATTN_H

#include "../pimattn.h"
#include "check.h"

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { NAN_BITS = 0x7fc00000 };

/* The nearest binary16 value, ties to even, from its definition; infinite from 65520 on. */
static inline double half_round(double x)
{
    if (!isfinite(x) || x == 0) return x;
    int exponent;
    (void)frexp(x, &exponent);
    double grid = ldexp(1.5, exponent - 11 < -24 ? 52 - 24 : 52 + exponent - 11);
    double r = fabs((x + grid) - grid); /* to the nearest, of two the even one */
    return copysign(r > 65504 ? HUGE_VAL : r, x);
}

/* Tokens of one layer of one sequence, as given and as the cache should hold them. */
typedef struct attn_kv {
    pimattn_shape shape;
    uint32_t dv;
    uint64_t n_tokens;
    size_t k_row, v_row;     /* floats of a token */
    float *k, *v;            /* given */
    double *k_kept, *v_kept; /* what the cache's type makes of them */
} attn_kv;

static inline uint32_t shape_dv(const pimattn_shape *shape)
{
    return shape->head_dim_v ? shape->head_dim_v : shape->head_dim;
}

static inline attn_kv kv_new(const pimattn_shape *shape, uint64_t n_tokens)
{
    attn_kv kv = {*shape, shape_dv(shape), n_tokens, 0, 0, NULL, NULL, NULL, NULL};
    kv.k_row = (size_t)shape->n_kv_heads * shape->head_dim;
    kv.v_row = (size_t)shape->n_kv_heads * kv.dv;
    kv.k = (float *)check_alloc(n_tokens * kv.k_row, sizeof(float));
    kv.v = (float *)check_alloc(n_tokens * kv.v_row, sizeof(float));
    kv.k_kept = (double *)check_alloc(n_tokens * kv.k_row, sizeof(double));
    kv.v_kept = (double *)check_alloc(n_tokens * kv.v_row, sizeof(double));
    return kv;
}

static inline void kv_free(attn_kv *kv)
{
    free(kv->k);
    free(kv->v);
    free(kv->k_kept);
    free(kv->v_kept);
}

/* The nearest bfloat16 value, ties to even: a float whose low half is 0. */
static inline double brain_round(float x)
{
    if (!isfinite(x) || x == 0) return (double)x;
    double quantum = ldexp(1, fabsf(x) < FLT_MIN ? -133 : ilogbf(x) - 7);
    return nearbyint((double)x / quantum) * quantum;
}

/* Scale of a row of int8: max / 127 as a float, at least FLT_MIN; NaN if one is not finite. */
static inline float int8_scale(const float *x, size_t n)
{
    float most = 0;
    bool bad = false;
    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(x[i]));
        bad = bad || !isfinite(x[i]);
    }
    return bad ? NAN : fmaxf(most / 127.0f, FLT_MIN);
}

static inline void int8_round(double *to, const float *x, size_t n)
{
    float scale = int8_scale(x, n), per_unit = 1.0f / scale;
    for (size_t i = 0; i < n; i++)
        to[i] = (double)nearbyintf(x[i] * per_unit) * (double)scale;
}

static inline void keep_rows(double *to, const float *x, size_t n_rows, size_t dim, uint32_t type)
{
    for (size_t r = 0; type == PIMATTN_INT8 && r < n_rows; r++)
        int8_round(to + r * dim, x + r * dim, dim);
    for (size_t i = 0; type != PIMATTN_INT8 && i < n_rows * dim; i++)
        to[i] = type == PIMATTN_F16    ? half_round((double)x[i])
                : type == PIMATTN_BF16 ? brain_round(x[i])
                                       : (double)x[i];
}

/* After a change of k or v. */
static inline void kv_keep(attn_kv *kv)
{
    size_t n_rows = kv->n_tokens * kv->shape.n_kv_heads;
    keep_rows(kv->k_kept, kv->k, n_rows, kv->shape.head_dim, kv->shape.k_type);
    keep_rows(kv->v_kept, kv->v, n_rows, kv->dv, kv->shape.v_type);
}

static inline void fill_normal(float *x, size_t n, double size, check_rng *rng)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(size * (double)rng_normal(rng));
}

static inline attn_kv kv_random(const pimattn_shape *shape, uint64_t n_tokens, check_rng *rng)
{
    attn_kv kv = kv_new(shape, n_tokens);
    fill_normal(kv.k, n_tokens * kv.k_row, 1, rng);
    fill_normal(kv.v, n_tokens * kv.v_row, 1, rng);
    kv_keep(&kv);
    return kv;
}

/* What the contract allows beside float64 attention of one query head. */
typedef struct attn_exact {
    double lse;
    double bound;     /* (2e-6 + 2e-7 max|score|) max|v| */
    double lse_bound; /* 2e-6 + 2e-7 max(sum |q k|): what cancels in a score is in its log too */
} attn_exact;

/* float64 attention of one query head over the first n tokens; out: [dv], scores: [n]. */
static inline attn_exact exact_head(const attn_kv *kv, uint64_t n, uint32_t head, const float *q,
                                    double *out, double *scores)
{
    const pimattn_shape *s = &kv->shape;
    uint32_t kv_head = head / (s->n_heads / s->n_kv_heads);
    double scale = s->scale != 0 ? (double)s->scale : 1 / sqrt((double)s->head_dim);
    double top = -HUGE_VAL, max_score = 0, max_terms = 0, max_v = 0, l = 0;
    for (uint64_t t = 0; t < n; t++) {
        const double *k = kv->k_kept + t * kv->k_row + (size_t)kv_head * s->head_dim;
        double dot = 0, terms = 0;
        for (uint32_t i = 0; i < s->head_dim; i++) {
            dot += (double)q[i] * k[i];
            terms += fabs((double)q[i] * k[i]);
        }
        scores[t] = dot * scale;
        max_terms = fmax(max_terms, terms * fabs(scale));
        top = fmax(top, scores[t]);
        max_score = fmax(max_score, fabs(scores[t]));
    }
    for (uint32_t j = 0; j < kv->dv; j++)
        out[j] = 0;
    for (uint64_t t = 0; t < n; t++) {
        const double *v = kv->v_kept + t * kv->v_row + (size_t)kv_head * kv->dv;
        double p = exp(scores[t] - top);
        l += p;
        for (uint32_t j = 0; j < kv->dv; j++) {
            out[j] += p * v[j];
            if (max_v < fabs(v[j])) max_v = fabs(v[j]);
        }
    }
    for (uint32_t j = 0; j < kv->dv; j++)
        out[j] /= l;
    attn_exact e = {top + log(l), (2e-6 + 2e-7 * max_score) * max_v, 2e-6 + 2e-7 * max_terms};
    return e;
}

/* One row of outputs, [n_heads][dv], and its log-sum-exps (or NULL) against float64. */
static inline void check_row(const attn_kv *kv, uint64_t n, const float *q, const float *out,
                             const float *lse)
{
    const pimattn_shape *s = &kv->shape;
    double *exact = (double *)check_alloc(kv->dv, sizeof(double));
    double *scores = (double *)check_alloc(n, sizeof(double));
    for (uint32_t h = 0; h < s->n_heads; h++) {
        attn_exact e = exact_head(kv, n, h, q + (size_t)h * s->head_dim, exact, scores);
        for (uint32_t j = 0; j < kv->dv; j++)
            CHECK_NEAR(out[(size_t)h * kv->dv + j], exact[j], e.bound);
        if (lse) CHECK_NEAR(lse[h], e.lse, e.lse_bound);
    }
    free(exact);
    free(scores);
}

/* The most SIMD of the engines that tests make; 0: all there is. */
static uint32_t engines_simd;

static const char *const type_names[] = {"f32", "f16", "bf16", "int8"};

/* Calls test once for every kernel of this build and CPU. */
static inline void over_kernels(void (*test)(void))
{
    for (uint32_t simd = PIMATTN_SIMD_NONE; simd <= PIMATTN_SIMD_512; simd++) {
        pimattn_kernel_info k, before;
        pimattn_kernel_select(simd, &k);
        pimattn_kernel_select(simd - 1, &before);
        if (simd > PIMATTN_SIMD_NONE && k.simd == before.simd) continue;
        unsigned n_errors = check_now.n_errors;
        engines_simd = simd;
        test();
        if (check_now.n_errors != n_errors) printf("  with kernel %s\n", k.name);
    }
    engines_simd = 0;
}

/* An engine or NULL with a failed check. */
static inline pimattn_engine *engine_new(const pimattn_config *config)
{
    pimattn_engine *engine = NULL;
    pimhw_cause why = {""};
    pimattn_config c = *config;
    if (c.simd == 0) c.simd = engines_simd;
    if (!CHECK_U(pimattn_engine_create(&engine, &c, &why), PIMATTN_OK)) printf("%s\n", why.text);
    return engine;
}

static inline pimattn_shape shape_of(uint32_t n_layers, uint32_t n_heads, uint32_t n_kv_heads,
                                     uint32_t head_dim, uint32_t head_dim_v)
{
    pimattn_shape s;
    memset(&s, 0, sizeof s);
    s.n_layers = n_layers;
    s.n_heads = n_heads;
    s.n_kv_heads = n_kv_heads;
    s.head_dim = head_dim;
    s.head_dim_v = head_dim_v;
    return s;
}

static inline pimattn_config config_of(const pimattn_shape *shape)
{
    pimattn_config c;
    memset(&c, 0, sizeof c);
    c.shape = *shape;
    return c;
}

static inline pimhw_allocator heap_allocator(check_heap *heap)
{
    pimhw_allocator a = {heap_alloc, heap_release, heap};
    return a;
}

/* Appends tokens first .. first + n - 1 of kv to one layer, packed. */
static inline pimattn_status kv_append(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                                       const attn_kv *kv, uint64_t first, uint64_t n)
{
    return pimattn_append(engine, seq, layer, kv->k + first * kv->k_row, kv->v + first * kv->v_row,
                          n, 0, 0);
}

#endif
