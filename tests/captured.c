/* Tensors captured from real models (../shared/data), through the cache, against float64. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"
#define EX_NAME "captured"
#include "../examples/common.h"
#include "../examples/capture.h"

/* Largest difference of one head from float64 over what the cache keeps. */
static double head_error(const attn_kv *kv, uint64_t n, uint32_t head, const float *q,
                         const float *out, double *exact, double *scores)
{
    double worst = 0;
    exact_head(kv, n, head, q, exact, scores);
    for (uint32_t j = 0; j < kv->dv; j++) {
        double error = fabs((double)out[j] - exact[j]);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

/* Decodes one layer of a capture, token by token; the largest difference from float64. */
static double layer_error(const capture *c, pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                          const pimattn_shape *s)
{
    uint64_t n = c->n_records;
    size_t q_row = (size_t)s->n_heads * s->head_dim, k_row = (size_t)s->n_kv_heads * s->head_dim;
    attn_kv kv = kv_new(s, n);
    double *exact = (double *)check_alloc(s->head_dim, sizeof(double)), worst = 0;
    double *scores = (double *)check_alloc(n, sizeof(double));
    float *out = (float *)check_alloc(q_row, sizeof(float));
    for (uint64_t t = 0; t < n; t++) {
        memcpy(kv.k + t * k_row, capture_at(c, t, layer) + q_row, k_row * sizeof(float));
        memcpy(kv.v + t * k_row, capture_at(c, t, layer) + q_row + k_row, k_row * sizeof(float));
    }
    kv_keep(&kv);
    for (uint64_t t = 0; t < n; t++) {
        const float *q = capture_at(c, t, layer);
        if (!CHECK_U(kv_append(engine, seq, layer, &kv, t, 1), PIMATTN_OK)) break;
        if (!CHECK_U(pimattn_attend_one(engine, seq, layer, out, q, NULL), PIMATTN_OK)) break;
        for (uint32_t h = 0; h < s->n_heads; h++) {
            double error = head_error(&kv, t + 1, h, q + (size_t)h * s->head_dim,
                                      out + (size_t)h * s->head_dim, exact, scores);
            if (!(error <= worst)) worst = error;
        }
    }
    kv_free(&kv);
    free(exact);
    free(scores);
    free(out);
    return worst;
}

/* False, and a test skipped, where there are no data. */
static bool read_if_there(capture *c, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        skip("no ../shared/data");
        return false;
    }
    fclose(f);
    capture_read(c, path);
    return true;
}

static void replay(const char *path, uint32_t type, double allowed)
{
    capture c;
    if (!read_if_there(&c, path)) return;
    pimattn_shape s = shape_of(c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, 0);
    s.k_type = s.v_type = type;
    pimattn_config config = config_of(&s);
    pimattn_engine *engine = engine_new(&config);
    pimattn_seq seq = 0;
    if (engine) {
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        for (uint32_t layer = 0; layer < s.n_layers; layer++)
            CHECK_NEAR(layer_error(&c, engine, seq, layer, &s), 0, allowed);
    }
    pimattn_engine_destroy(engine);
    free(c.bytes);
}

/*
 * The law of retrieval on one layer: of the tokens left out at a step, the largest float64 score of
 * a head is not above its bound; returns how many were left out.
 */
static uint64_t layer_misses(const capture *c, pimattn_engine *engine, pimattn_seq seq,
                             uint32_t layer, uint32_t part)
{
    const pimattn_shape *s = &pimattn_engine_config(engine)->shape;
    uint64_t n = c->n_records, n_left = 0;
    size_t q_row = (size_t)s->n_heads * s->head_dim, k_row = (size_t)s->n_kv_heads * s->head_dim;
    attn_kv kv = kv_new(s, n);
    double *exact = (double *)check_alloc(s->head_dim, sizeof(double));
    double *scores = (double *)check_alloc(n, sizeof(double));
    pimattn_choice choice = {NULL, 0, (size_t)n / 64 + 1, s->n_kv_heads};
    choice.bits = (uint64_t *)check_alloc(choice.stride * s->n_kv_heads, sizeof(uint64_t));
    float *bounds = (float *)check_alloc(s->n_kv_heads, sizeof(float));
    for (uint64_t t = 0; t < n; t++)
        memcpy(kv.k + t * k_row, capture_at(c, t, layer) + q_row, k_row * sizeof(float));
    kv_keep(&kv);
    for (uint64_t t = 0; t < n; t++) {
        const float *q = capture_at(c, t, layer);
        if (!CHECK_U(kv_append(engine, seq, layer, &kv, t, 1), PIMATTN_OK)) break;
        CHECK_U(pimattn_retrieve(engine, seq, layer, &choice, bounds, q, part), PIMATTN_OK);
        for (uint32_t h = 0; h < s->n_heads; h++) {
            uint32_t kv_head = h / (s->n_heads / s->n_kv_heads);
            exact_head(&kv, t + 1, h, q + (size_t)h * s->head_dim, exact, scores);
            for (uint64_t i = 0; i <= t; i++) {
                if (choice.bits[kv_head * choice.stride + i / 64] >> i % 64 & 1) continue;
                n_left++;
                CHECK(scores[i] <= (double)bounds[kv_head]);
            }
        }
    }
    kv_free(&kv);
    free(exact);
    free(scores);
    free(choice.bits);
    free(bounds);
    return n_left;
}

static void law(const char *path)
{
    capture c;
    if (!read_if_there(&c, path)) return;
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
        pimattn_shape s = shape_of(c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, 0);
        s.k_type = type;
        pimattn_config config = config_of(&s);
        config.page_tokens = 8;
        pimattn_engine *engine = engine_new(&config);
        pimattn_seq seq = 0;
        if (!engine) break;
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        for (uint32_t layer = 0; layer < s.n_layers; layer++)
            CHECK(layer_misses(&c, engine, seq, layer, 2u << layer % 4) > 1000);
        pimattn_engine_destroy(engine);
    }
    free(c.bytes);
}

#define DATA "../shared/data/"

static void once_f32(void)
{
    replay(DATA "stories260K_once_n256.attn", PIMATTN_F32, 3e-6);
}

static void once_f16(void)
{
    replay(DATA "stories260K_once_n256.attn", PIMATTN_F16, 5e-6);
}

static void dog_f32(void)
{
    replay(DATA "stories260K_dog_n256.attn", PIMATTN_F32, 3e-6);
}

static void dog_f16(void)
{
    replay(DATA "stories260K_dog_n256.attn", PIMATTN_F16, 5e-6);
}

static void dream_f32(void)
{
    replay(DATA "aidreams260K_dream_n100.attn", PIMATTN_F32, 3e-6);
}

static void dream_f16(void)
{
    replay(DATA "aidreams260K_dream_n100.attn", PIMATTN_F16, 5e-6);
}

static void once_retrieval_misses_no_better_token(void)
{
    law(DATA "stories260K_once_n256.attn");
}

static void dream_retrieval_misses_no_better_token(void)
{
    law(DATA "aidreams260K_dream_n100.attn");
}

int main(void)
{
    RUN(once_f32);
    RUN(once_f16);
    RUN(dog_f32);
    RUN(dog_f16);
    RUN(dream_f32);
    RUN(dream_f16);
    RUN(once_retrieval_misses_no_better_token);
    RUN(dream_retrieval_misses_no_better_token);
    return check_end();
}
