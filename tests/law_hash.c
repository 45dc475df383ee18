/* The bytes of the scalar kernel are the same on every compiler and architecture: pinned here. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

static uint64_t hash_floats(uint64_t hash, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ ((float_bits(x[i]) >> shift) & 0xff)) * 0x100000001b3u;
    return hash;
}

/* FNV-1a over outputs, and m, l, o of the partials; log-sum-exp is left out: log is the libc's. */
static uint64_t hash_case(uint32_t k_type, uint32_t v_type, uint32_t dim, uint32_t dv, uint64_t n)
{
    enum { HEADS = 4, QUERIES = 3, MOST = 64 };
    static float out[QUERIES * HEADS * MOST], o[QUERIES * HEADS * MOST], q[QUERIES * HEADS * MOST];
    pimattn_partial partials[QUERIES * HEADS];
    pimattn_shape s = shape_of(1, HEADS, 2, dim, dv);
    s.k_type = k_type, s.v_type = v_type;
    check_rng rng = {dim};
    attn_kv kv = kv_random(&s, n, &rng);
    pimattn_config config = config_of(&s);
    config.page_tokens = 24;
    config.simd = PIMATTN_SIMD_NONE;
    pimattn_engine *engine = engine_new(&config);
    pimattn_item item = {0, QUERIES};
    if (!engine) return 0;
    fill_normal(q, QUERIES * HEADS * (size_t)dim, 1.5, &rng);
    for (uint32_t i = 0; i < QUERIES * HEADS; i++) {
        pimattn_partial p = {0, 0, o + i * dv, dv};
        partials[i] = p;
    }
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, item.seq, 0, &kv, 0, n), PIMATTN_OK);
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.partials = partials, call.q = q, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
    uint64_t hash = hash_floats(0xcbf29ce484222325u, out, QUERIES * HEADS * (size_t)dv);
    for (uint32_t i = 0; i < QUERIES * HEADS; i++) {
        float ml[2] = {partials[i].m, partials[i].l};
        hash = hash_floats(hash_floats(hash, ml, 2), partials[i].o, dv);
    }
    pimattn_engine_destroy(engine);
    kv_free(&kv);
    return hash;
}

static void scalar_bytes_are_the_pinned_ones(void)
{
    uint64_t hash = hash_case(PIMATTN_F32, PIMATTN_F32, 40, 24, 1300);
    hash ^= hash_case(PIMATTN_F16, PIMATTN_F32, 64, 17, 600) * 3;
    hash ^= hash_case(PIMATTN_F16, PIMATTN_F16, 17, 64, 50) * 5;
    hash ^= hash_case(PIMATTN_F32, PIMATTN_F16, 1, 3, 2100) * 7;
    printf("bits %016llx\n", (unsigned long long)hash);
    CHECK_U(hash, 0xdab11516833926c3u);
}

static void scalar_bytes_of_bf16_and_int8_are_the_pinned_ones(void)
{
    uint64_t hash = hash_case(PIMATTN_BF16, PIMATTN_INT8, 40, 24, 1300);
    hash ^= hash_case(PIMATTN_INT8, PIMATTN_BF16, 64, 17, 600) * 3;
    hash ^= hash_case(PIMATTN_INT8, PIMATTN_INT8, 17, 64, 50) * 5;
    printf("bits %016llx\n", (unsigned long long)hash);
    CHECK_U(hash, 0x82bd752dec2f65afu);
}

int main(void)
{
    RUN(scalar_bytes_are_the_pinned_ones);
    RUN(scalar_bytes_of_bf16_and_int8_are_the_pinned_ones);
    return check_end();
}
