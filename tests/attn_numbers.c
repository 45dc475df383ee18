/* Numbers: f16, exp, what is not finite, empty and poisoned partials. Black box throughout: with
 * one token and head_dim 1 the output is the stored value and the log-sum-exp the stored key. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static bool is_the_nan(float x)
{
    return float_bits(x) == NAN_BITS;
}

/* --------------------------------------------------------------------------
 * f16
 * -------------------------------------------------------------------------- */

/* A half from its bits, by the definition. */
static double half_value(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023), sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction > 0 ? (double)NAN : sign * HUGE_VAL;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* Values as V of one token of n <= 65536 dims: what the cache gives back. */
static void through_v(const float *x, float *back, uint32_t n, uint32_t type)
{
    pimattn_shape s = shape_of(1, 1, 1, 1, n);
    s.v_type = type;
    pimattn_config c = config_of(&s);
    c.page_tokens = 1;
    c.scratch_bytes = 64u << 20;
    pimattn_engine *engine = engine_new(&c);
    pimattn_seq seq = 0;
    float k = 0, q = 0;
    if (!engine) return;
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(engine, seq, 0, &k, x, 1, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(engine, seq, 0, back, &q, NULL), PIMATTN_OK);
    pimattn_engine_destroy(engine);
}

static void all_halves_come_back(void)
{
    static float x[65536], back[65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = (float)half_value(i);
    through_v(x, back, 65536, PIMATTN_F16);
    for (uint32_t i = 0; i < 65536; i++)
        if (isfinite(x[i]))
            CHECK_NEAR(back[i], x[i], 0);
        else
            CHECK_U(float_bits(back[i]), NAN_BITS);
}

/* Between each two neighbouring halves: the middle, just below and just above it; both signs. */
static void f16_rounds_to_nearest_even(void)
{
    static float x[65536], back[65536];
    uint32_t n = 0;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        double next = bits == 0x7bff ? 65536 : half_value(bits + 1);
        float middle = (float)((half_value(bits) + next) / 2), sign = bits % 3 ? 1.0f : -1.0f;
        if (bits < 0x7bff) x[n++] = sign * middle, x[n++] = sign * nextafterf(middle, 1e9f);
        x[n++] = sign * nextafterf(middle, 0);
        x[n++] = sign * (float)(half_value(bits) + (next - half_value(bits)) * 0.3);
        if (n + 4 <= 65536 && bits != 0x7bff) continue;
        through_v(x, back, n, PIMATTN_F16);
        for (uint32_t i = 0; i < n; i++)
            CHECK_NEAR(back[i], half_round((double)x[i]), 0);
        n = 0;
    }
    static const float small[] = {0.0f,     1e-45f,        -1e-45f,       1e-39f,
                                  2.98e-8f, 2.9802322e-8f, 2.9802326e-8f, -2.9802326e-8f,
                                  65504.0f, 65519.996f,    -65519.996f};
    through_v(small, back, COUNT(small), PIMATTN_F16);
    for (uint32_t i = 0; i < COUNT(small); i++)
        CHECK_NEAR(back[i], half_round((double)small[i]), 0);
}

static void f32_is_kept_to_the_bit(void)
{
    static const float x[] = {1.0f, -3e38f, 1e-45f, 1e-38f, -1e-39f, 16777217.0f, 0.1f, FLT_MAX};
    float back[COUNT(x)];
    through_v(x, back, COUNT(x), PIMATTN_F32);
    CHECK_BYTES(back, x, sizeof x);
}

/* Keys round like values: the log-sum-exp of a single token with q = scale = 1 is its key. */
static void f16_keys_round_like_values(void)
{
    enum { HEADS = 4096 };
    static float k[HEADS], v[HEADS], q[HEADS], out[HEADS], lse[HEADS];
    check_rng rng = {7};
    pimattn_shape s = shape_of(1, HEADS, HEADS, 1, 1);
    s.k_type = PIMATTN_F16;
    s.scale = 1;
    pimattn_config c = config_of(&s);
    pimattn_item item = {0, 1};
    for (uint32_t i = 0; i < HEADS; i++) {
        k[i] = (float)ldexp((double)rng_normal(&rng), (int)rng_range(&rng, 0, 38) - 26);
        q[i] = 1;
    }
    c.page_tokens = 1;
    pimattn_engine *engine = engine_new(&c);
    if (!engine) return;
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.lse = lse, call.q = q, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(engine, item.seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
    for (uint32_t i = 0; i < HEADS; i++)
        CHECK_NEAR(lse[i], half_round((double)k[i]), 0);
    pimattn_engine_destroy(engine);
}

/* One finite value out of range, at one place of k or v: named, and nothing is appended. */
static void overflow_case(bool in_v, float value)
{
    enum { HEADS = 3, DIM = 5, TOKENS = 40 };
    static float k[TOKENS * HEADS * DIM], v[TOKENS * HEADS * DIM], q[HEADS * DIM];
    float before[HEADS * DIM], after[HEADS * DIM];
    pimattn_shape s = shape_of(2, HEADS, HEADS, DIM, 0);
    s.k_type = s.v_type = PIMATTN_F16;
    pimattn_config c = config_of(&s);
    c.page_tokens = 7;
    pimattn_engine *engine = engine_new(&c);
    pimattn_seq seq = 0;
    uint64_t n = 99;
    if (!engine) return;
    for (size_t i = 0; i < COUNT(k); i++)
        k[i] = v[i] = (float)(i % 13);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    float *at = (in_v ? v : k) + (37 * HEADS + 2) * DIM + 4, was = *at;
    *at = value;
    CHECK_U(pimattn_append(engine, seq, 0, k, v, TOKENS, 0, 0), PIMATTN_ERR_RANGE);
    const char *why = pimattn_engine_cause(engine);
    CHECK_HAS(why, "token 37");
    CHECK_HAS(why, "head 2");
    CHECK_HAS(why, "index 4");
    CHECK_U(pimattn_seq_tokens(engine, seq, 0, &n), PIMATTN_OK);
    CHECK_U(n, 0);
    *at = was;
    for (uint32_t layer = 0; layer < 2; layer++)
        CHECK_U(pimattn_append(engine, seq, layer, k, v, 3, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(engine, seq, 0, before, q, NULL), PIMATTN_OK);
    *at = value;
    CHECK_U(pimattn_append(engine, seq, 0, k, v, TOKENS, 0, 0), PIMATTN_ERR_RANGE);
    CHECK_U(pimattn_seq_tokens(engine, seq, 0, &n), PIMATTN_OK);
    CHECK_U(n, 3);
    CHECK_U(pimattn_attend_one(engine, seq, 0, after, q, NULL), PIMATTN_OK);
    CHECK_BYTES(after, before, sizeof after);
    pimattn_engine_destroy(engine);
}

static void f16_overflow_is_named_and_appends_nothing(void)
{
    static const float values[] = {65520.0f, -65520.0f, 1e6f, FLT_MAX, -FLT_MAX};
    for (size_t i = 0; i < COUNT(values); i++) {
        overflow_case(false, values[i]);
        overflow_case(true, values[i]);
    }
}

/* --------------------------------------------------------------------------
 * exp: with keys {0, x} and values {0, 1} the partial's o is exp(x).
 * -------------------------------------------------------------------------- */

static void exp_keeps_its_relative_bound(void)
{
    enum { HEADS = 4096 };
    static float k[2 * HEADS], v[2 * HEADS], q[HEADS], o[HEADS];
    static pimattn_partial partials[HEADS];
    check_rng rng = {8};
    pimattn_shape s = shape_of(1, HEADS, HEADS, 1, 1);
    s.scale = 1;
    pimattn_config c = config_of(&s);
    c.page_tokens = 2;
    for (uint32_t i = 0; i < HEADS; i++) {
        partials[i].o = o + i;
        partials[i].dim = 1;
        q[i] = 1;
        v[HEADS + i] = 1;
        k[HEADS + i] =
            i < 2048 ? rng_float(&rng, -87, 0) : (float)-ldexp(rng_unit(&rng), -(int)(i % 40));
    }
    static const float far[] = {-88.0f,  -100.0f, -103.9f, -104.5f,
                                -200.0f, -1e4f,   -1e30f,  -FLT_MAX};
    memcpy(k + HEADS, far, sizeof far);
    pimattn_engine *engine = engine_new(&c);
    pimattn_item item = {0, 1};
    if (!engine) return;
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.partials = partials, call.q = q, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(engine, item.seq, 0, k, v, 2, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
    for (uint32_t i = 0; i < HEADS; i++) {
        double x = (double)k[HEADS + i], exact = exp(x);
        CHECK_NEAR(o[i], exact, (2e-6 + 2e-7 * fabs(x)) * exact + (double)FLT_MIN);
        CHECK(o[i] >= 0 && o[i] <= 1);
        CHECK_NEAR(partials[i].m, 0, 0);
        CHECK_NEAR(partials[i].l, 1 + exact, 4e-7);
    }
    pimattn_engine_destroy(engine);
}

/* --------------------------------------------------------------------------
 * bf16 and int8
 * -------------------------------------------------------------------------- */

static void all_brains_come_back(void)
{
    static float x[65536], back[65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = bits_float(i << 16);
    through_v(x, back, 65536, PIMATTN_BF16);
    for (uint32_t i = 0; i < 65536; i++)
        if (isfinite(x[i]))
            CHECK_NEAR(back[i], x[i], 0);
        else
            CHECK_U(float_bits(back[i]), NAN_BITS);
    /* NaN by bits that bf16 has not, or that rounding would carry into the sign */
    const float bad[] = {bits_float(0x7f800001), bits_float(0x7fffffff), bits_float(0xffffffffu)};
    through_v(bad, back, 3, PIMATTN_BF16);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_U(float_bits(back[i]), NAN_BITS);
}

/* Middles of neighbours, and what is just beside them; of both signs. */
static void bf16_rounds_to_nearest_even(void)
{
    static float x[65536], back[65536];
    static const uint32_t low[] = {0x7fff, 0x8000, 0x8001, 0x4567};
    uint32_t n = 0;
    for (uint32_t high = 0; high < 0x7f7f; high += 2 + high % 3)
        for (size_t i = 0; i < COUNT(low) && n < 65536; i++)
            x[n++] = bits_float((high % 5 ? high : high | 0x8000) << 16 | low[i]);
    through_v(x, back, n, PIMATTN_BF16);
    for (uint32_t i = 0; i < n; i++)
        CHECK_NEAR(back[i], brain_round(x[i]), 0);
}

static void int8_keeps_127_steps_of_the_largest(void)
{
    check_rng rng = {17};
    for (int i = 0; i < 200; i++) {
        float x[67], back[67], most = 0;
        double kept[67], size = ldexp(1, (int)rng_range(&rng, 0, 240) - 125);
        uint32_t n = (uint32_t)rng_range(&rng, 1, 67);
        fill_normal(x, n, size, &rng);
        through_v(x, back, n, PIMATTN_INT8);
        int8_round(kept, x, n);
        for (uint32_t j = 0; j < n; j++)
            most = fmaxf(most, fabsf(x[j]));
        for (uint32_t j = 0; j < n; j++) {
            CHECK_NEAR(back[j], (float)kept[j], 0);
            /* half a step, and the rounding of the scale; or half of the least scale */
            CHECK_NEAR(kept[j], x[j], 0.50001 * fmax((double)most / 127, (double)FLT_MIN));
        }
    }
}

static void an_int8_row_of_zeros_gives_zeros(void)
{
    static const float zeros[40] = {0, -0.0f};
    float back[40];
    through_v(zeros, back, 40, PIMATTN_INT8);
    for (uint32_t j = 0; j < 40; j++)
        CHECK_NEAR(back[j], 0, 0);
}

/* One scale for the row: it is NaN, and so is everything of the row. */
static void an_int8_row_that_is_not_finite_is_nan(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(bad); i++) {
        float x[40] = {1, 2, 3}, back[40];
        x[i == 0 ? 0 : 38] = bad[i];
        through_v(x, back, 40, PIMATTN_INT8);
        for (uint32_t j = 0; j < 40; j++)
            CHECK_U(float_bits(back[j]), NAN_BITS);
    }
}

static void bf16_overflow_is_named(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 20, 0);
    s.k_type = s.v_type = PIMATTN_BF16;
    pimattn_config c = config_of(&s);
    pimattn_engine *engine = engine_new(&c);
    pimattn_seq seq = 0;
    float k[20] = {0}, v[20] = {0};
    if (!engine) return;
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    k[19] = bits_float(0x7f7f7fff); /* rounds down */
    CHECK_U(pimattn_append(engine, seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
    v[18] = bits_float(0xff7f8000u);
    CHECK_U(pimattn_append(engine, seq, 0, k, v, 1, 0, 0), PIMATTN_ERR_RANGE);
    CHECK_HAS(pimattn_engine_cause(engine), "v of token 0");
    CHECK_HAS(pimattn_engine_cause(engine), "index 18 is beyond bf16");
    v[18] = INFINITY;
    CHECK_U(pimattn_append(engine, seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
    pimattn_engine_destroy(engine);
}

/* --------------------------------------------------------------------------
 * Not finite: 4 query heads on 2 KV heads, 20 tokens, 3 queries.
 * -------------------------------------------------------------------------- */

enum { N_HEADS = 4, N_KV = 2, N_DIM = 32, N_DV = 16, N_TOKENS = 20, N_QUERIES = 3 };

typedef struct world {
    attn_kv kv;
    float q[N_QUERIES * N_HEADS * N_DIM];
    float out[N_QUERIES][N_HEADS][N_DV];
    float lse[N_QUERIES][N_HEADS];
} world;

static void world_init(world *w)
{
    check_rng rng = {9};
    pimattn_shape s = shape_of(1, N_HEADS, N_KV, N_DIM, N_DV);
    w->kv = kv_random(&s, N_TOKENS, &rng);
    fill_normal(w->q, COUNT(w->q), 1, &rng);
}

static void world_attend(world *w)
{
    pimattn_config c = config_of(&w->kv.shape);
    pimattn_engine *engine = engine_new(&c);
    pimattn_item item = {0, N_QUERIES};
    if (!engine) return;
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = w->out[0][0], call.lse = w->lse[0], call.q = w->q;
    call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, item.seq, 0, &w->kv, 0, N_TOKENS), PIMATTN_OK);
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
    pimattn_engine_destroy(engine);
}

/* Changed against good: query rows first .. and heads of the mask are all NaN, others the same. */
static void check_heads_nan(const world *now, const world *good, int first_row, unsigned heads)
{
    for (int r = 0; r < N_QUERIES; r++)
        for (int h = 0; h < N_HEADS; h++) {
            bool nan = r >= first_row && (heads >> h & 1);
            for (int j = 0; j < N_DV && nan; j++)
                CHECK_U(float_bits(now->out[r][h][j]), NAN_BITS);
            if (nan) CHECK_U(float_bits(now->lse[r][h]), NAN_BITS);
            if (nan) continue;
            CHECK_BYTES(now->out[r][h], good->out[r][h], sizeof now->out[r][h]);
            CHECK_BYTES(&now->lse[r][h], &good->lse[r][h], sizeof(float));
        }
}

static const float bad_floats[] = {NAN, -NAN, INFINITY, -INFINITY};

static void a_bad_key_makes_the_heads_that_see_it_nan(void)
{
    static world good, now;
    world_init(&good);
    world_attend(&good);
    now = good;
    for (size_t i = 0; i < COUNT(bad_floats); i++) {
        size_t at = 4 * now.kv.k_row + N_DIM + 2, last = 19 * now.kv.k_row + 2;
        float was = now.kv.k[at], was_last = now.kv.k[last];
        now.kv.k[at] = bad_floats[i];
        world_attend(&now);
        check_heads_nan(&now, &good, 0, 0xc);
        now.kv.k[at] = was;
        now.kv.k[last] = bad_floats[i]; /* only the last query sees the last token */
        world_attend(&now);
        check_heads_nan(&now, &good, 2, 0x3);
        now.kv.k[last] = was_last;
    }
    kv_free(&good.kv);
}

static void a_bad_query_makes_its_head_nan(void)
{
    static world good, now;
    world_init(&good);
    world_attend(&good);
    for (size_t i = 0; i < COUNT(bad_floats); i++) {
        now = good;
        now.q[(N_HEADS + 2) * N_DIM + 1] = bad_floats[i];
        now.q[(2 * N_HEADS + 2) * N_DIM + 5] = bad_floats[i];
        world_attend(&now);
        check_heads_nan(&now, &good, 1, 0x4);
    }
    kv_free(&good.kv);
}

static void an_overflowing_score_makes_its_head_nan(void)
{
    static world good, now;
    world_init(&good);
    for (size_t i = 0; i < N_DIM; i++)
        good.kv.k[3 * good.kv.k_row + i] = 0; /* token 3 of KV head 0 */
    world_attend(&good);
    for (int sign = -1; sign <= 1; sign += 2) {
        now = good;
        float *q = now.q + 2 * N_HEADS * N_DIM, *k = now.kv.k + 3 * now.kv.k_row;
        float was = k[0];
        q[0] = 1e30f; /* row 2, head 0 */
        k[0] = (float)sign * 1e30f;
        world_attend(&now);
        for (int j = 0; j < N_DV; j++)
            CHECK_U(float_bits(now.out[2][0][j]), NAN_BITS);
        CHECK_U(float_bits(now.lse[2][0]), NAN_BITS);
        CHECK(isfinite(now.out[2][2][0]) && isfinite(now.lse[2][2]));
        CHECK_BYTES(now.out[2][2], good.out[2][2], sizeof now.out[2][2]);
        k[0] = was;
    }
    kv_free(&good.kv);
}

/* Scores of +-3e38, finite, in one tile and in two leaves: the difference overflows, exp is 0. */
static void finite_scores_may_lie_far_apart(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 1, 1);
    s.scale = 1;
    pimattn_config c = config_of(&s);
    for (int up = 0; up < 2; up++)
        for (uint64_t n = 2; n <= 1026; n += 512) {
            attn_kv kv = kv_new(&s, n);
            for (uint64_t t = 0; t < n; t++) {
                kv.k[t] = up ? -3e38f : 3e38f;
                kv.v[t] = 1;
            }
            kv.k[n - 1] = up ? 3e38f : -3e38f;
            kv.v[n - 1] = 5;
            pimattn_engine *engine = engine_new(&c);
            pimattn_seq seq = 0;
            float q = 1, out = 0;
            if (!engine) return;
            CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
            CHECK_U(kv_append(engine, seq, 0, &kv, 0, n), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(engine, seq, 0, &out, &q, NULL), PIMATTN_OK);
            CHECK_NEAR(out, up ? 5 : 1, 0);
            pimattn_engine_destroy(engine);
            kv_free(&kv);
        }
}

/* Token 4 of KV head 1: value j alone turns NaN, in the two heads that read it. */
static void a_bad_value_makes_one_output_nan(void)
{
    static world good, now;
    world_init(&good);
    world_attend(&good);
    for (size_t i = 0; i < COUNT(bad_floats); i++) {
        now = good;
        float *v = now.kv.v + 4 * now.kv.v_row + N_DV + 3, was = *v;
        *v = bad_floats[i];
        world_attend(&now);
        *v = was;
        for (int r = 0; r < N_QUERIES; r++)
            for (int h = 0; h < N_HEADS; h++)
                for (int j = 0; j < N_DV; j++)
                    CHECK_U(float_bits(now.out[r][h][j]),
                            h >= 2 && j == 3 ? NAN_BITS : float_bits(good.out[r][h][j]));
        CHECK_BYTES(now.lse, good.lse, sizeof now.lse);
    }
    kv_free(&good.kv);
}

/* Even where exp underflows to 0, in this leaf or another. */
static void a_bad_value_counts_without_weight(void)
{
    enum { FAR = 1500 };
    pimattn_shape s = shape_of(1, 1, 1, 1, 2);
    s.scale = 1;
    pimattn_config c = config_of(&s);
    static const uint64_t places[] = {0, 1, 14, 511, 512, 700, 1023, 1024, 1498};
    for (size_t place = 0; place < COUNT(places); place++)
        for (size_t i = 0; i < COUNT(bad_floats); i++) {
            attn_kv kv = kv_new(&s, FAR);
            for (uint64_t t = 0; t < FAR; t++)
                kv.v[2 * t] = kv.v[2 * t + 1] = 1;
            kv.k[FAR - 1] = 1000;
            kv.v[2 * places[place] + 1] = bad_floats[i];
            pimattn_engine *engine = engine_new(&c);
            pimattn_seq seq = 0;
            float q = 1, out[2] = {0, 0};
            if (!engine) return;
            CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
            CHECK_U(kv_append(engine, seq, 0, &kv, 0, FAR), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(engine, seq, 0, out, &q, NULL), PIMATTN_OK);
            CHECK_NEAR(out[0], 1, 0);
            CHECK_U(float_bits(out[1]), NAN_BITS);
            pimattn_engine_destroy(engine);
            kv_free(&kv);
        }
}

/* Infinite and NaN are values of f16, not an overflow. */
static void f16_keeps_what_is_not_finite(void)
{
    float back[5];
    static const float x[5] = {1.0f, INFINITY, NAN, -INFINITY, -2.0f};
    through_v(x, back, 5, PIMATTN_F16);
    CHECK_NEAR(back[0], 1, 0);
    CHECK(is_the_nan(back[1]) && is_the_nan(back[2]) && is_the_nan(back[3]));
    CHECK_NEAR(back[4], -2, 0);
}

/* Scores {0, 0, 0, 0}: the sum of 3e38 passes FLT_MAX, one 3e38 among zeros does not. */
static void an_overflowing_sum_is_nan(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 1, 2);
    pimattn_config c = config_of(&s);
    pimattn_engine *engine = engine_new(&c);
    pimattn_seq seq = 0;
    float k[4] = {0}, q = 1, out[2];
    float v[8] = {3e38f, 3e38f, 3e38f, 0, 3e38f, 0, 3e38f, 0};
    if (!engine) return;
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(engine, seq, 0, k, v, 4, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(engine, seq, 0, out, &q, NULL), PIMATTN_OK);
    CHECK_U(float_bits(out[0]), NAN_BITS);
    CHECK_NEAR(out[1], 0.75e38, 1e32);
    pimattn_engine_destroy(engine);
}

/* --------------------------------------------------------------------------
 * Partials
 * -------------------------------------------------------------------------- */

static void empty_partials_change_nothing(void)
{
    float oa[3] = {9, 9, 9}, ob[3] = {9, 9, 9}, out[3] = {9, 9, 9};
    pimattn_partial a = {9, 9, oa, 3}, b = {9, 9, ob, 3};
    pimattn_partial_clear(&a);
    pimattn_partial_clear(&b);
    CHECK(isinf(a.m) && a.m < 0 && a.l <= 0 && a.l >= 0);
    for (int j = 0; j < 3; j++)
        CHECK_U(float_bits(oa[j]), 0);
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK);
    CHECK(isinf(a.m) && a.m < 0 && a.l <= 0);
    pimattn_partial_output(&a, out);
    for (int j = 0; j < 3; j++)
        CHECK_U(float_bits(out[j]), 0);
    CHECK_U(float_bits(pimattn_partial_lse(&a)), float_bits(-INFINITY));
    static const float full[3] = {1.5f, -2e-3f, 7e7f};
    memcpy(ob, full, sizeof full);
    b.m = -3.25f, b.l = 2.7f;
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK); /* empty on the left */
    CHECK(a.m >= -3.25f && a.m <= -3.25f && a.l >= 2.7f && a.l <= 2.7f);
    CHECK_BYTES(oa, full, sizeof full);
    pimattn_partial_clear(&b);
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK); /* empty on the right */
    CHECK(a.m >= -3.25f && a.m <= -3.25f && a.l >= 2.7f && a.l <= 2.7f);
    CHECK_BYTES(oa, full, sizeof full);
}

/* Poisoned on the left, on the right, with an empty one, and again after that. */
static void poison_stays(void)
{
    for (int side = 0; side < 4; side++) {
        float oa[2] = {1, 2}, ob[2] = {3, 4}, out[2];
        pimattn_partial a = {0.5f, 1, oa, 2}, b = {0.25f, 1, ob, 2};
        if (side & 1) pimattn_partial_clear(side & 2 ? &b : &a);
        (side & 2 ? &a : &b)->m = bits_float(NAN_BITS);
        CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK);
        CHECK(isnan(a.m));
        float oc[2] = {5, 6};
        pimattn_partial good = {1e9f, 1, oc, 2};
        CHECK_U(pimattn_partial_merge(&a, &good), PIMATTN_OK);
        CHECK(isnan(a.m));
        pimattn_partial_output(&a, out);
        CHECK(is_the_nan(out[0]) && is_the_nan(out[1]));
        CHECK(is_the_nan(pimattn_partial_lse(&a)));
    }
}

static void a_merge_refuses_other_dims(void)
{
    float oa[2] = {1, 2}, ob[3] = {3, 4, 5};
    pimattn_partial a = {0.5f, 1, oa, 2}, b = {0.25f, 1, ob, 3};
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_ERR_ARGUMENT);
    CHECK(a.m >= 0.5f && a.m <= 0.5f && a.l >= 1 && a.l <= 1);
    CHECK(oa[0] >= 1 && oa[0] <= 1 && oa[1] >= 2 && oa[1] <= 2);
    CHECK_U(pimattn_partial_merge(NULL, &b), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_partial_merge(&a, NULL), PIMATTN_ERR_ARGUMENT);
    b.o = NULL;
    b.dim = 2;
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_partial_merge(&b, &a), PIMATTN_ERR_ARGUMENT);
    a.dim = b.dim = 0;
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_ERR_ARGUMENT);
}

static void random_merges_agree_with_float64(void)
{
    check_rng rng = {10};
    for (int i = 0; i < 20000; i++) {
        double size = ldexp(1, (int)rng_range(&rng, 0, 14) - 4);
        float oa[2], ob[2], out[2];
        pimattn_partial a = {(float)size * rng_normal(&rng), rng_float(&rng, 1, 512), oa, 2};
        pimattn_partial b = {(float)size * rng_normal(&rng), rng_float(&rng, 1, 512), ob, 2};
        for (int j = 0; j < 2; j++) {
            oa[j] = a.l * rng_float(&rng, -1, 1);
            ob[j] = b.l * rng_float(&rng, -1, 1);
        }
        double m = fmax((double)a.m, (double)b.m),
               bound = 2e-6 + 2e-7 * fmax(fabs((double)a.m), fabs((double)b.m));
        double wa = exp((double)a.m - m), wb = exp((double)b.m - m);
        double l = wa * (double)a.l + wb * (double)b.l;
        double o[2] = {wa * (double)oa[0] + wb * (double)ob[0],
                       wa * (double)oa[1] + wb * (double)ob[1]};
        CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK);
        CHECK_NEAR(a.m, m, 0);
        pimattn_partial_output(&a, out);
        for (int j = 0; j < 2; j++)
            CHECK_NEAR(out[j], o[j] / l, bound);
        CHECK_NEAR(pimattn_partial_lse(&a), m + log(l), bound);
    }
}

/* o = NaN of a source whose weight underflows is still NaN; the other outputs stay. */
static void a_bad_value_survives_merges(void)
{
    for (int side = 0; side < 2; side++) {
        float oa[2] = {1, 2}, ob[2] = {3, 4}, out[2];
        pimattn_partial a = {0, 1, oa, 2}, b = {-500, 1, ob, 2};
        if (side) a.m = -500, b.m = 0;
        (side ? oa : ob)[1] = bits_float(NAN_BITS);
        CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK);
        pimattn_partial_output(&a, out);
        CHECK_NEAR(out[0], side ? 3 : 1, 0);
        CHECK_U(float_bits(out[1]), NAN_BITS);
    }
}

/* All products of a row are equal, so that additions round the same way: lse of one token is its
 * score; outputs of two, of which one has other products, the tanh of half their difference. */
static void equal_products_of_wide_heads_keep_the_bound(void)
{
    static const uint32_t dims[] = {128, 144, 256, 320, 576, 1024, 4096};
    static float k[4096], q[4096];
    for (size_t d = 0; d < COUNT(dims); d++) {
        pimattn_shape s = shape_of(1, 1, 1, dims[d], 1);
        pimattn_config c = config_of(&s);
        c.page_tokens = 16;
        pimattn_engine *e = engine_new(&c);
        pimattn_seq seq = 0;
        float lse = 0, out = 0, one = 1, minus = -1;
        double scale = (double)(float)(1 / sqrt(dims[d]));
        if (!e) return;
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        pimattn_item item = {seq, 1};
        pimattn_call call;
        memset(&call, 0, sizeof call);
        call.items = &item, call.n_items = 1, call.q = q, call.out = &out, call.lse = &lse;
        for (int i = 0; i < 400; i++) {
            float size = i % 2 ? 8 : 1, a = size * (0.5f + (float)i / 400);
            double first = 0, second = 0;
            for (uint32_t j = 0; j < dims[d]; j++) {
                q[j] = size, k[j] = a;
                first += scale * (double)size * (double)a;
            }
            CHECK_U(pimattn_append(e, seq, 0, k, &one, 1, 0, 0), PIMATTN_OK);
            CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
            CHECK_NEAR(lse, first, 2e-6 + 2e-7 * first);
            for (uint32_t j = 0; j < dims[d]; j++) {
                k[j] = j / 16 % 2 ? a * 1.4f : a * 0.6f;
                second += scale * (double)size * (double)k[j];
            }
            CHECK_U(pimattn_append(e, seq, 0, k, &minus, 1, 0, 0), PIMATTN_OK);
            CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
            CHECK_NEAR(out, tanh((first - second) / 2), 2e-6 + 2e-7 * fmax(first, second));
            CHECK_U(pimattn_seq_truncate(e, seq, 0), PIMATTN_OK);
        }
        pimattn_engine_destroy(e);
    }
}

/* One token in a leaf has nearly all of the weight, and the others are all alike: below FLT_MIN
 * each of them rounds to a multiple of 2^-149, the same way; of int8, then times up to 127. */
static void values_below_the_normal_lose_no_more_than_a_leaf_does(void)
{
    enum { LEAF = 512, TOKENS = 4 * LEAF, CASES = 36 };
    static float k[TOKENS * CASES], v[TOKENS * CASES];
    static const uint32_t types[] = {PIMATTN_F32, PIMATTN_BF16, PIMATTN_INT8};
    static const float far[] = {-3.5f, -5.3f, -7.0f, -9.0f, -11.0f};
    float stored[CASES], out[CASES], q[CASES];
    for (size_t i = 0; i < COUNT(types) * COUNT(far); i++) {
        const float score = far[i / COUNT(types)];
        pimattn_shape s = shape_of(1, CASES, CASES, 1, 1);
        s.v_type = types[i % COUNT(types)];
        pimattn_config c = config_of(&s);
        pimattn_engine *e = engine_new(&c);
        pimattn_seq seq = 0;
        if (!e) return;
        for (int j = 0; j < TOKENS * CASES; j++) {
            k[j] = j / CASES % LEAF ? score : 0;
            v[j] = (float)ldexp(1.36, j % CASES - 149);
            q[j % CASES] = 1;
        }
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(pimattn_append(e, seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, stored, q, NULL), PIMATTN_OK);
        CHECK_U(pimattn_append(e, seq, 0, k + CASES, v + CASES, TOKENS - 1, 0, 0), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
        double least = ldexp(1, s.v_type == PIMATTN_INT8 ? -133 : -140);
        for (int j = 0; j < CASES; j++)
            CHECK_NEAR(out[j], stored[j],
                       (2e-6 - 2e-7 * (double)score) * (double)stored[j] + least);
        pimattn_engine_destroy(e);
    }
}

/* FLT_MAX / 127 may round up: 127 such steps must not become infinite. */
static void an_int8_row_of_the_largest_numbers_stays_finite(void)
{
    static const float largest[3] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2};
    float back[3];
    through_v(largest, back, 3, PIMATTN_INT8);
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(back[i], largest[i], (double)FLT_MAX / 127);
}

/* One test with every kernel. */
static void (*kernel_test)(void);

static void every_kernel(void)
{
    over_kernels(kernel_test);
}

#define KERNELS(test) (kernel_test = test, check_run(#test, every_kernel))

int main(void)
{
    KERNELS(all_halves_come_back);
    KERNELS(f16_rounds_to_nearest_even);
    KERNELS(f32_is_kept_to_the_bit);
    KERNELS(f16_keys_round_like_values);
    KERNELS(f16_overflow_is_named_and_appends_nothing);
    KERNELS(exp_keeps_its_relative_bound);
    KERNELS(all_brains_come_back);
    KERNELS(bf16_rounds_to_nearest_even);
    KERNELS(int8_keeps_127_steps_of_the_largest);
    KERNELS(an_int8_row_of_zeros_gives_zeros);
    KERNELS(an_int8_row_that_is_not_finite_is_nan);
    KERNELS(an_int8_row_of_the_largest_numbers_stays_finite);
    KERNELS(equal_products_of_wide_heads_keep_the_bound);
    KERNELS(values_below_the_normal_lose_no_more_than_a_leaf_does);
    KERNELS(bf16_overflow_is_named);
    KERNELS(a_bad_key_makes_the_heads_that_see_it_nan);
    KERNELS(a_bad_query_makes_its_head_nan);
    KERNELS(an_overflowing_score_makes_its_head_nan);
    KERNELS(finite_scores_may_lie_far_apart);
    KERNELS(a_bad_value_makes_one_output_nan);
    KERNELS(a_bad_value_counts_without_weight);
    KERNELS(f16_keeps_what_is_not_finite);
    KERNELS(an_overflowing_sum_is_nan);
    RUN(empty_partials_change_nothing);
    RUN(poison_stays);
    RUN(a_merge_refuses_other_dims);
    RUN(random_merges_agree_with_float64);
    RUN(a_bad_value_survives_merges);
    return check_end();
}
