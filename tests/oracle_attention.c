/* Attention against float64 over many shapes, and the cases that break weak arithmetic. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static uint32_t pick(check_rng *rng, const uint32_t *from, size_t n)
{
    return from[rng_range(rng, 0, n - 1)];
}

/* Appends kv in random chunks of rows that may lie apart. */
static void append_chunks(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                          const attn_kv *kv, check_rng *rng)
{
    for (uint64_t done = 0, n; done < kv->n_tokens; done += n) {
        n = rng_range(rng, 1, rng_range(rng, 0, 3) ? kv->n_tokens - done : 3);
        if (n > kv->n_tokens - done) n = kv->n_tokens - done;
        size_t k_gap = rng_range(rng, 0, 5), v_gap = rng_range(rng, 0, 5);
        size_t k_step = kv->k_row + k_gap, v_step = kv->v_row + v_gap;
        float *k = (float *)check_alloc(n * k_step, sizeof(float));
        float *v = (float *)check_alloc(n * v_step, sizeof(float));
        for (uint64_t t = 0; t < n; t++) {
            memcpy(k + t * k_step, kv->k + (done + t) * kv->k_row, kv->k_row * sizeof(float));
            memcpy(v + t * v_step, kv->v + (done + t) * kv->v_row, kv->v_row * sizeof(float));
        }
        size_t k_stride = k_gap ? k_step * sizeof(float) : 0;
        size_t v_stride = v_gap ? v_step * sizeof(float) : 0;
        CHECK_U(pimattn_append(engine, seq, layer, k, v, n, k_stride, v_stride), PIMATTN_OK);
        free(k);
        free(v);
    }
}

enum { BATCH = 3 };

/* One engine, one batch of random sequences, every output row against float64. */
static void one_case(pimattn_config config, uint64_t longest, uint64_t most_queries, double q_size,
                     check_rng *rng)
{
    const pimattn_shape *s = &config.shape;
    uint32_t dv = shape_dv(s), layer = (uint32_t)rng_range(rng, 0, s->n_layers - 1);
    size_t n_items = rng_range(rng, 1, BATCH), n_rows = 0;
    attn_kv kv[BATCH];
    pimattn_item items[BATCH];
    pimattn_engine *engine = engine_new(&config);
    if (!engine) return;
    for (size_t i = 0; i < n_items; i++) {
        kv[i] = kv_random(s, rng_range(rng, 1, longest), rng);
        uint64_t most = kv[i].n_tokens < most_queries ? kv[i].n_tokens : most_queries;
        items[i].n_tokens = rng_range(rng, 1, most);
        n_rows += items[i].n_tokens;
        CHECK_U(pimattn_seq_create(engine, &items[i].seq), PIMATTN_OK);
        append_chunks(engine, items[i].seq, layer, &kv[i], rng);
    }
    size_t q_row = (size_t)s->n_heads * s->head_dim, o_row = (size_t)s->n_heads * dv;
    size_t q_step = q_row + rng_range(rng, 0, 1) * 3, o_step = o_row + rng_range(rng, 0, 1) * 2;
    float *q = (float *)check_alloc(n_rows * q_step, sizeof(float));
    float *out = (float *)check_alloc(n_rows * o_step, sizeof(float));
    float *lse = (float *)check_alloc(n_rows * s->n_heads, sizeof(float));
    fill_normal(q, n_rows * q_step, q_size, rng);
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.lse = lse, call.q = q, call.items = items, call.n_items = n_items;
    call.q_stride = q_step == q_row ? 0 : q_step * sizeof(float);
    call.out_stride = o_step == o_row ? 0 : o_step * sizeof(float);
    if (CHECK_U(pimattn_attend(engine, layer, &call, NULL), PIMATTN_OK))
        for (size_t i = 0, row = 0; i < n_items; i++)
            for (uint64_t t = 0; t < items[i].n_tokens; t++, row++)
                check_row(&kv[i], kv[i].n_tokens - items[i].n_tokens + t + 1, q + row * q_step,
                          out + row * o_step, lse + row * s->n_heads);
    for (size_t i = 0; i < n_items; i++)
        kv_free(&kv[i]);
    free(q);
    free(out);
    free(lse);
    pimattn_engine_destroy(engine);
}

static pimattn_config random_config(check_rng *rng)
{
    static const uint32_t dims[] = {1, 3, 8, 16, 17, 64, 100, 128, 256};
    static const uint32_t pages[] = {1, 7, 16, 24, 40, 64, 128, 0};
    uint32_t n_kv_heads = (uint32_t)rng_range(rng, 1, 4);
    uint32_t n_heads = n_kv_heads * (uint32_t)rng_range(rng, 1, 20 / n_kv_heads);
    uint32_t dv = rng_range(rng, 0, 1) ? pick(rng, dims, COUNT(dims)) : 0;
    pimattn_shape s = shape_of((uint32_t)rng_range(rng, 1, 2), n_heads, n_kv_heads,
                               pick(rng, dims, COUNT(dims)), dv);
    s.k_type = (uint32_t)rng_range(rng, 0, PIMATTN_N_TYPE - 1);
    s.v_type = (uint32_t)rng_range(rng, 0, PIMATTN_N_TYPE - 1);
    if (rng_range(rng, 0, 3) == 0) s.scale = rng_float(rng, -0.5, 0.5);
    pimattn_config c = config_of(&s);
    c.page_tokens = pick(rng, pages, COUNT(pages));
    return c;
}

static void random_shapes(void)
{
    check_rng rng = {1 + engines_simd};
    for (int i = 0; i < 70; i++) {
        double q_size = rng_range(&rng, 0, 3) ? 1 : 20;
        one_case(random_config(&rng), rng_range(&rng, 0, 2) ? 90 : 1500, 7, q_size, &rng);
    }
}

static void random_shapes_agree_with_float64(void)
{
    over_kernels(random_shapes);
}

static void lengths_around_tiles(void)
{
    static const uint64_t lengths[] = {1,  2,   15,  16,  17,   31,   32,
                                       33, 511, 512, 513, 1023, 1024, 1025};
    check_rng rng = {2};
    pimattn_shape s = shape_of(1, 2, 1, 5, 4);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        attn_kv kv = kv_random(&s, lengths[i], &rng);
        pimattn_config c = config_of(&s);
        c.page_tokens = 24;
        pimattn_engine *engine = engine_new(&c);
        pimattn_seq seq = 0;
        float q[10], out[8];
        if (!engine) return;
        fill_normal(q, 10, 2, &rng);
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, seq, 0, &kv, 0, lengths[i]), PIMATTN_OK);
        if (CHECK_U(pimattn_attend_one(engine, seq, 0, out, q, NULL), PIMATTN_OK))
            check_row(&kv, lengths[i], q, out, NULL);
        pimattn_engine_destroy(engine);
        kv_free(&kv);
    }
}

static void lengths_around_tiles_and_leaves_agree(void)
{
    over_kernels(lengths_around_tiles);
}

static void five_thousand_tokens(void)
{
    check_rng rng = {3};
    for (uint32_t i = 0; i < 2 * PIMATTN_N_TYPE; i++) {
        pimattn_shape s = shape_of(1, 4, 2, i & 1 ? 128 : 17, 0);
        s.k_type = s.v_type = i >> 1;
        pimattn_config c = config_of(&s);
        c.page_tokens = i & 1 ? 128 : 40;
        one_case(c, 5000, 3, 1, &rng);
    }
}

static void five_thousand_tokens_agree_with_float64(void)
{
    over_kernels(five_thousand_tokens);
}

static void whole_prompt(void)
{
    check_rng rng = {4};
    pimattn_shape s = shape_of(1, 4, 2, 16, 0);
    pimattn_config c = config_of(&s);
    for (int i = 0; i < 3; i++)
        one_case(c, 560, 560, 1, &rng);
}

static void a_whole_prompt_in_one_call_agrees_with_float64(void)
{
    over_kernels(whole_prompt);
}

/* --------------------------------------------------------------------------
 * Cases that break weak arithmetic: head_dim 128, a kv and a q made by the case.
 * -------------------------------------------------------------------------- */

enum { HARD_DIM = 128, HARD_TOKENS = 1100 };

static void hard_case(void (*make)(attn_kv *kv, float *q, check_rng *rng), uint32_t type)
{
    check_rng rng = {5};
    pimattn_shape s = shape_of(1, 1, 1, HARD_DIM, 0);
    s.k_type = s.v_type = type;
    attn_kv kv = kv_random(&s, HARD_TOKENS, &rng);
    float q[HARD_DIM], out[HARD_DIM], lse;
    fill_normal(q, HARD_DIM, 1, &rng);
    make(&kv, q, &rng);
    kv_keep(&kv);
    pimattn_config c = config_of(&s);
    pimattn_engine *engine = engine_new(&c);
    pimattn_item item = {0, 1};
    if (!engine) return;
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, item.seq, 0, &kv, 0, HARD_TOKENS), PIMATTN_OK);
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.lse = &lse, call.q = q, call.items = &item, call.n_items = 1;
    if (CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK))
        check_row(&kv, HARD_TOKENS, q, out, &lse);
    pimattn_engine_destroy(engine);
    kv_free(&kv);
}

static void make_dominating(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < HARD_DIM; i++)
        kv->k[700 * kv->k_row + i] = 5 * q[i];
}

static void make_ten_thousand(attn_kv *kv, float *q, check_rng *rng)
{
    (void)kv, (void)rng;
    for (uint32_t i = 0; i < HARD_DIM; i++)
        q[i] *= 3000;
}

/* 1e4 + N(0,1): a constant lane carries the offset; the scale is 1/sqrt(128). */
static void make_offset(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    q[0] = 1000 * 11.3137085f;
    for (uint64_t t = 0; t < kv->n_tokens; t++)
        kv->k[t * kv->k_row] = 10;
}

/* One value everywhere, whose 512 single additions round the same way every time. */
static void make_constant(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < HARD_DIM; i++)
        q[i] = 0;
    for (size_t i = 0; i < kv->n_tokens * kv->v_row; i++)
        kv->v[i] = 1.0f + 0x1p-16f - 0x1p-23f;
}

static void make_equal(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < HARD_DIM; i++)
        q[i] = 0;
    for (size_t i = 0; i < kv->n_tokens * kv->v_row; i++)
        kv->v[i] = 1 + 0.01f * kv->v[i];
}

static void make_half_subnormal(attn_kv *kv, float *q, check_rng *rng)
{
    (void)q, (void)rng;
    for (size_t i = 0; i < kv->n_tokens * kv->v_row; i++)
        kv->v[i] *= 1e-6f;
}

static void make_float_subnormal(attn_kv *kv, float *q, check_rng *rng)
{
    (void)q, (void)rng;
    for (size_t i = 0; i < kv->n_tokens * kv->v_row; i++)
        kv->v[i] *= 1e-39f;
}

static void make_tiny_keys(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    for (size_t i = 0; i < kv->n_tokens * kv->k_row; i++)
        kv->k[i] *= 1e-6f;
    for (uint32_t i = 0; i < HARD_DIM; i++)
        q[i] *= 1e6f;
}

/* The maximum grows with every token, so that every fold rescales. */
static void make_rising(attn_kv *kv, float *q, check_rng *rng)
{
    (void)rng;
    q[0] = 11.3137085f;
    for (uint64_t t = 0; t < kv->n_tokens; t++)
        kv->k[t * kv->k_row] = 0.25f * (float)t;
}

static void hard_cases(void)
{
    for (uint32_t type = PIMATTN_F32; type < PIMATTN_N_TYPE; type++) {
        hard_case(make_dominating, type);
        hard_case(make_ten_thousand, type);
        hard_case(make_offset, type);
        hard_case(make_equal, type);
        hard_case(make_constant, type);
        hard_case(make_half_subnormal, type);
        hard_case(make_tiny_keys, type);
        hard_case(make_rising, type);
    }
    hard_case(make_float_subnormal, PIMATTN_F32);
    hard_case(make_float_subnormal, PIMATTN_BF16);
    hard_case(make_float_subnormal, PIMATTN_INT8);
}

static void hard_cases_keep_the_bound(void)
{
    over_kernels(hard_cases);
}

/* N(0, 1): 5e-6 of the largest output, for every type and kernel over the same numbers. */
static void normal_case(attn_kv *kv, const float *q)
{
    static double exact[HARD_DIM];
    double *scores = (double *)check_alloc(kv->n_tokens, sizeof(double)), most = 0;
    kv_keep(kv);
    exact_head(kv, kv->n_tokens, 0, q, exact, scores);
    for (uint32_t j = 0; j < HARD_DIM; j++)
        most = fmax(most, fabs(exact[j]));
    for (uint32_t simd = PIMATTN_SIMD_NONE; simd <= PIMATTN_SIMD_512; simd++) {
        pimattn_config c = config_of(&kv->shape);
        float out[HARD_DIM];
        pimattn_seq seq = 0;
        c.simd = simd;
        pimattn_engine *engine = engine_new(&c);
        if (!engine) break;
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, seq, 0, kv, 0, kv->n_tokens), PIMATTN_OK);
        if (CHECK_U(pimattn_attend_one(engine, seq, 0, out, q, NULL), PIMATTN_OK))
            for (uint32_t j = 0; j < HARD_DIM; j++)
                CHECK_NEAR(out[j], exact[j], 5e-6 * most);
        pimattn_engine_destroy(engine);
    }
    free(scores);
}

static void normal_numbers_keep_their_own_bound(void)
{
    static const uint64_t lengths[] = {4096, 131072};
    check_rng rng = {6};
    pimattn_shape s = shape_of(1, 1, 1, HARD_DIM, 0);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        attn_kv kv = kv_random(&s, lengths[i], &rng);
        float q[HARD_DIM];
        fill_normal(q, HARD_DIM, 1, &rng);
        for (kv.shape.k_type = 0; kv.shape.k_type < PIMATTN_N_TYPE; kv.shape.k_type++) {
            kv.shape.v_type = kv.shape.k_type;
            normal_case(&kv, q);
        }
        kv_free(&kv);
    }
}

int main(void)
{
    RUN(random_shapes_agree_with_float64);
    RUN(lengths_around_tiles_and_leaves_agree);
    RUN(five_thousand_tokens_agree_with_float64);
    RUN(a_whole_prompt_in_one_call_agrees_with_float64);
    RUN(hard_cases_keep_the_bound);
    RUN(normal_numbers_keep_their_own_bound);
    return check_end();
}
