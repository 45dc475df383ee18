/* Tensors captured from real models (../shared/data), through the cache, against float64. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

typedef struct capture {
    int32_t head[6]; /* n_layers, n_heads, n_kv_heads, head_dim, steps, 0 */
    long n_records;
    size_t record_floats; /* of one layer: q, k, v, out */
    float *data;          /* [n_records][n_layers][record_floats] */
} capture;

static bool capture_read(capture *c, const char *path)
{
    char magic[4];
    memset(c, 0, sizeof *c);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool ok = fread(magic, 4, 1, f) == 1 && memcmp(magic, "PKVC", 4) == 0 &&
              fread(c->head, sizeof c->head, 1, f) == 1;
    CHECK(ok);
    size_t n_layers = (size_t)c->head[0];
    c->record_floats = (size_t)(2 * c->head[1] + 2 * c->head[2]) * (size_t)c->head[3];
    size_t layer_bytes = c->record_floats * sizeof(float), row = n_layers * c->record_floats;
    c->data = (float *)check_alloc((size_t)c->head[4] * row, sizeof(float));
    int32_t token;
    while (ok && c->n_records < c->head[4] && fread(&token, sizeof token, 1, f) == 1) {
        if (fread(c->data + (size_t)c->n_records * row, layer_bytes, n_layers, f) != n_layers)
            break;
        c->n_records++;
    }
    fclose(f);
    return CHECK(c->n_records > 0);
}

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
    uint64_t n = (uint64_t)c->n_records;
    size_t q_row = (size_t)s->n_heads * s->head_dim, k_row = (size_t)s->n_kv_heads * s->head_dim;
    attn_kv kv = kv_new(s, n);
    double *exact = (double *)check_alloc(s->head_dim, sizeof(double)), worst = 0;
    double *scores = (double *)check_alloc(n, sizeof(double));
    float *out = (float *)check_alloc(q_row, sizeof(float));
    const float *first = c->data + layer * c->record_floats;
    size_t step = s->n_layers * c->record_floats;
    for (uint64_t t = 0; t < n; t++) {
        memcpy(kv.k + t * k_row, first + t * step + q_row, k_row * sizeof(float));
        memcpy(kv.v + t * k_row, first + t * step + q_row + k_row, k_row * sizeof(float));
    }
    kv_keep(&kv);
    for (uint64_t t = 0; t < n; t++) {
        const float *q = first + t * step;
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

static void replay(const char *path, uint32_t type, double allowed)
{
    capture c;
    if (!capture_read(&c, path)) {
        skip("no ../shared/data");
        return;
    }
    pimattn_shape s = shape_of((uint32_t)c.head[0], (uint32_t)c.head[1], (uint32_t)c.head[2],
                               (uint32_t)c.head[3], 0);
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
    free(c.data);
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

int main(void)
{
    RUN(once_f32);
    RUN(once_f16);
    RUN(dog_f32);
    RUN(dog_f16);
    RUN(dream_f32);
    RUN(dream_f16);
    return check_end();
}
