/* How fast and how exact beside ggml? One query token, head_dim 128, one thread, K and V cold:
 * calls go round over layers of 256 MiB and more, on huge pages on both sides. ggml's side is its
 * operation FLASH_ATTN_EXT without a mask, by a library of ggml that stands elsewhere:
 *
 *     ggml [LIBRARY [tokens, default 4096] [rounds, default 15]]
 *     ggml LIBRARY variants
 *
 * LIBRARY: the path of ggml's part for CPUs, such as libggml-cpu.so, with libggml-base.so where the
 * loader finds it; without it nothing is measured.
 *
 * Every type stores the very same values: multiples of 1/32 below 4, with one of the greatest in
 * each block, so that int8 and Q8_0, its peer, round none. CSV: median microseconds of each, the
 * median ratio ggml / pimattn in the same round, the greatest error of each (of the greatest |out|
 * of float64 attention over the stored values), coefficients of variation, rounds clean on both
 * sides.
 *
 * variants: does a shape mean what it means in ggml? 5 new tokens behind 300, f32. CSV: the
 * greatest difference to ggml's output, of the greatest |out|; and what it were if ours had these
 * heads and dims, but scores of 1 / sqrt(dim) alone, all seen. Fails above 1e-5, as ggml's own
 * error is 2e-6. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

#include <dlfcn.h>

enum { DIM = 128, MOST_HEADS = 64, STEPS = 127, BLOCK = 32, N_SIDE = 2 };

static const uint64_t cold_bytes = (uint64_t)256 << 20;

/* --- What of ggml is called, as its ggml.h and ggml-cpu.h have it. --- */

typedef struct ggml_place {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
} ggml_place;

typedef struct ggml_plan { /* later versions have more at its end */
    size_t work_size;
    unsigned char *work_data;
    int n_threads;
    void *threadpool, *later[8];
} ggml_plan;

static struct {
    void (*cpu_init)(void);
    void *(*init)(ggml_place place);
    void (*release)(void *context);
    void *(*tensor)(void *context, int type, int64_t ne0, int64_t ne1, int64_t ne2);
    void *(*data)(const void *tensor);
    void *(*attend)(void *context, void *q, void *k, void *v, void *mask, float scale, float bias,
                    float softcap);
    void (*sinks)(void *tensor, void *sinks);
    void *(*graph)(void *context);
    void (*expand)(void *graph, void *tensor);
    ggml_plan (*plan)(const void *graph, int n_threads, void *threadpool);
    int (*compute)(void *graph, ggml_plan *plan);
} ggml;

static void take(void *library, const char *name, void *at, size_t bytes)
{
    void *found = dlsym(library, name);
    bench_good(found != NULL, "ggml", name);
    memcpy(at, &found, bytes);
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    bench_good(library != NULL, "ggml", library ? "" : dlerror());
    take(library, "ggml_cpu_init", &ggml.cpu_init, sizeof ggml.cpu_init);
    take(library, "ggml_init", &ggml.init, sizeof ggml.init);
    take(library, "ggml_free", &ggml.release, sizeof ggml.release);
    take(library, "ggml_new_tensor_3d", &ggml.tensor, sizeof ggml.tensor);
    take(library, "ggml_get_data", &ggml.data, sizeof ggml.data);
    take(library, "ggml_flash_attn_ext", &ggml.attend, sizeof ggml.attend);
    take(library, "ggml_new_graph", &ggml.graph, sizeof ggml.graph);
    take(library, "ggml_build_forward_expand", &ggml.expand, sizeof ggml.expand);
    take(library, "ggml_graph_plan", &ggml.plan, sizeof ggml.plan);
    take(library, "ggml_graph_compute", &ggml.compute, sizeof ggml.compute);
    ggml.cpu_init();
    return library;
}

/* ggml's number of a type, and the bytes of a row. */
static const struct {
    int number;
    size_t row_bytes;
} peers[PIMATTN_N_TYPE] = {[PIMATTN_F32] = {0, 4 * DIM},
                           [PIMATTN_F16] = {1, 2 * DIM},
                           [PIMATTN_BF16] = {30, 2 * DIM},
                           [PIMATTN_INT8] = {8, DIM / BLOCK *(2 + BLOCK)}};

/* --- The problem: rows of n_tokens tokens, and what float64 makes of them. --- */

typedef struct problem {
    uint32_t type, n_heads, n_kv_heads, n_tokens, n_layers, layer;
    float *k, *v; /* [token][KV head][DIM] */
    double *want, most;
    float q[MOST_HEADS * DIM];
    pimattn_engine *e;
    pimattn_seq seq;
    float out[MOST_HEADS * DIM];
    void *memory, *context, **graphs, **outs;
    ggml_plan plan;
} problem;

static float *rows_of(const problem *p, uint32_t *seed)
{
    size_t n = (size_t)p->n_tokens * p->n_kv_heads * DIM;
    float *x = (float *)malloc(n * sizeof *x);
    bench_must(x != NULL, "memory");
    for (size_t i = 0; i < n; i++) {
        float step = fminf(fmaxf(rintf(32 * bench_random(seed)), -STEPS), STEPS);
        x[i] = (i % BLOCK ? step : copysignf(STEPS, step)) / 32;
    }
    return x;
}

static void reference(problem *p)
{
    double *score = (double *)malloc(p->n_tokens * sizeof *score);
    p->want = (double *)calloc((size_t)p->n_heads * DIM, sizeof *p->want);
    bench_must(score != NULL && p->want != NULL, "memory");
    for (uint32_t head = 0; head < p->n_heads; head++) {
        size_t kv = head / (p->n_heads / p->n_kv_heads), step = (size_t)p->n_kv_heads * DIM;
        double *want = p->want + (size_t)head * DIM, most = -INFINITY, sum = 0;
        for (uint32_t t = 0; t < p->n_tokens; t++) {
            score[t] = 0;
            for (size_t d = 0; d < DIM; d++)
                score[t] += (double)p->q[head * DIM + d] * (double)p->k[t * step + kv * DIM + d];
            score[t] /= sqrt(DIM);
            most = fmax(most, score[t]);
        }
        for (uint32_t t = 0; t < p->n_tokens; t++) {
            double weight = exp(score[t] - most);
            sum += weight;
            for (size_t d = 0; d < DIM; d++)
                want[d] += weight * (double)p->v[t * step + kv * DIM + d];
        }
        for (size_t d = 0; d < DIM; d++)
            want[d] /= sum, p->most = fmax(p->most, fabs(want[d]));
    }
    free(score);
}

static double error_of(const problem *p, const float *out)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)p->n_heads * DIM; i++) {
        double error = fabs((double)out[i] - p->want[i]) / p->most;
        if (isnan(error) || error > worst) worst = error; /* a NaN stays */
    }
    return worst;
}

/* --- Ours. --- */

static void fill_ours(problem *p)
{
    pimattn_config config;
    memset(&config, 0, sizeof config);
    config.shape.n_layers = p->n_layers;
    config.shape.n_heads = p->n_heads;
    config.shape.n_kv_heads = p->n_kv_heads;
    config.shape.head_dim = config.shape.head_dim_v = DIM;
    config.shape.k_type = config.shape.v_type = p->type;
    config.max_seqs = 1;
    config.memo_entries = 1;
    config.pool_bytes = (uint64_t)16 << 30; /* taken as tokens arrive */
    p->e = bench_engine(&config);
    bench_must(pimattn_seq_create(p->e, &p->seq) == PIMATTN_OK, "create");
    for (uint32_t layer = 0; layer < p->n_layers; layer++)
        bench_good(pimattn_append(p->e, p->seq, layer, p->k, p->v, p->n_tokens, 0, 0) == PIMATTN_OK,
                   "append", pimattn_engine_cause(p->e));
}

static void run_ours(void *user)
{
    problem *p = (problem *)user;
    p->layer = (p->layer + 1) % p->n_layers;
    bench_must(pimattn_attend_one(p->e, p->seq, p->layer, p->out, p->q, NULL) == PIMATTN_OK,
               "attend");
}

/* --- ggml's. --- */

/* A number that f16 holds, whose exponent is less by 112. */
static uint16_t f16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (isinf(x)) return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | (magnitude ? (magnitude - (112u << 23)) >> 13 : 0));
}

/* A row as ggml stores it, of a processor with the low byte first. No value is rounded: bf16 is the
 * upper half of f32, Q8_0 is blocks of a scale in f16 (here 1/32, 0x2800) and 32 int8. */
static void store(unsigned char *to, const float *row, uint32_t type)
{
    static const unsigned char scale[2] = {0, 0x28};
    for (size_t d = 0; d < DIM; d++) {
        unsigned char *block = to + d / BLOCK * (2 + BLOCK);
        uint32_t bits;
        memcpy(&bits, &row[d], sizeof bits);
        uint16_t half = type == PIMATTN_F16 ? f16_of(row[d]) : (uint16_t)(bits >> 16);
        if (type == PIMATTN_INT8 && d % BLOCK == 0) memcpy(block, scale, sizeof scale);
        if (type == PIMATTN_INT8)
            block[2 + d % BLOCK] = (unsigned char)(int)(row[d] * 32);
        else if (type == PIMATTN_F32)
            memcpy(to + 4 * d, &bits, sizeof bits);
        else
            memcpy(to + 2 * d, &half, sizeof half);
    }
}

/* A tensor whose data begin a line of the cache: what lies before the next is filled first. */
static void *tensor_of(const problem *p, const float *rows)
{
    enum { I8 = 24, LINE = 64, LEAST = 16 };
    uintptr_t a = (uintptr_t)ggml.data(ggml.tensor(p->context, I8, LEAST, 1, 1));
    uintptr_t b = (uintptr_t)ggml.data(ggml.tensor(p->context, I8, LEAST, 1, 1));
    uintptr_t end = b + 2 * (b - a) - LEAST; /* of the next, if it held nothing */
    (void)ggml.tensor(p->context, I8, (int64_t)(LINE - end % LINE), 1, 1);
    void *tensor = ggml.tensor(p->context, peers[p->type].number, DIM, p->n_tokens, p->n_kv_heads);
    unsigned char *data = (unsigned char *)ggml.data(tensor);
    bench_must((uintptr_t)data % LINE == 0, "aligning ggml's tensor");
    for (size_t kv = 0; kv < p->n_kv_heads; kv++)
        for (size_t t = 0; t < p->n_tokens; t++)
            store(data + (kv * p->n_tokens + t) * peers[p->type].row_bytes,
                  rows + (t * p->n_kv_heads + kv) * DIM, p->type);
    return tensor;
}

static void fill_ggml(problem *p, uint64_t layer_bytes)
{
    ggml_place place = {0, NULL, false};
    place.mem_size = (size_t)(p->n_layers * (layer_bytes + (1 << 20)) + (1 << 24));
    p->memory = bench_huge(place.mem_size);
    place.mem_buffer = p->memory;
    p->context = ggml.init(place);
    p->graphs = (void **)calloc(p->n_layers, sizeof *p->graphs);
    p->outs = (void **)calloc(p->n_layers, sizeof *p->outs);
    bench_must(p->context && p->graphs && p->outs, "ggml_init");
    void *q = ggml.tensor(p->context, peers[PIMATTN_F32].number, DIM, 1, p->n_heads);
    memcpy(ggml.data(q), p->q, (size_t)p->n_heads * DIM * sizeof *p->q);
    for (uint32_t layer = 0; layer < p->n_layers; layer++) {
        void *k = tensor_of(p, p->k), *v = tensor_of(p, p->v);
        p->outs[layer] = ggml.attend(p->context, q, k, v, NULL, 1 / sqrtf(DIM), 0, 0);
        p->graphs[layer] = ggml.graph(p->context);
        ggml.expand(p->graphs[layer], p->outs[layer]);
    }
    p->plan = ggml.plan(p->graphs[0], 1, NULL);
    p->plan.work_data = (unsigned char *)malloc(p->plan.work_size + 1);
    bench_must(p->plan.work_data != NULL, "memory");
}

static void run_ggml(void *user)
{
    problem *p = (problem *)user;
    bench_must(ggml.compute(p->graphs[p->layer], &p->plan) == 0, "ggml_graph_compute");
}

/* --- Both. --- */

static void compare(uint32_t type, uint32_t group, uint32_t n_tokens, int rounds)
{
    static bench_series sides[N_SIDE];
    problem p;
    uint32_t seed = 1;
    int n_clean[N_SIDE + 1];
    pimattn_kernel_info kernel;
    double us[N_SIDE], cv[N_SIDE];
    memset(&p, 0, sizeof p);
    pimattn_kernel_select(PIMATTN_SIMD_MOST, &kernel);
    p.type = type, p.n_tokens = n_tokens;
    p.n_heads = group == 8 ? 64 : 32, p.n_kv_heads = p.n_heads / group;
    uint64_t layer_bytes = 2 * (uint64_t)n_tokens * p.n_kv_heads * peers[type].row_bytes;
    p.n_layers = (uint32_t)(cold_bytes / layer_bytes + 1);
    bench_fill(p.q, p.n_heads * DIM, 7);
    p.k = rows_of(&p, &seed), p.v = rows_of(&p, &seed);
    reference(&p);
    fill_ours(&p);
    fill_ggml(&p, layer_bytes);
    free(p.k), free(p.v);
    for (int side = 0; side < N_SIDE; side++)
        sides[side].n = 0;
    for (int round = -1; round < rounds; round++)
        for (int side = 0; side < N_SIDE; side++) {
            double t = bench_time(side ? run_ggml : run_ours, &p, NULL);
            if (round >= 0) sides[side].us[sides[side].n++] = t;
        }
    for (int side = 0; side < N_SIDE; side++) {
        us[side] = bench_median(sides[side].us, rounds);
        cv[side] = bench_cv(&sides[side], &n_clean[side]);
    }
    n_clean[N_SIDE] = 0;
    for (int i = 0; i < rounds; i++)
        n_clean[N_SIDE] += !isnan(sides[0].us[i] + sides[1].us[i]);
    printf("%s,%u,%u,%u,%s,%.1f,%.1f,%.2f,%.2g,%.2g,%.3f,%.3f,%d\n", bench_types[type], p.n_heads,
           p.n_kv_heads, n_tokens, kernel.name, us[0], us[1], bench_ratio(&sides[1], &sides[0]),
           error_of(&p, p.out), error_of(&p, (const float *)ggml.data(p.outs[p.layer])), cv[0],
           cv[1], n_clean[N_SIDE]);
    fflush(stdout);
    pimattn_engine_destroy(p.e);
    ggml.release(p.context);
    free(p.memory), free(p.graphs), free(p.outs), free(p.plan.work_data), free(p.want);
}

/* --- What variants mean. --- */

enum { PAST = 300, NEW = 5, ALL = PAST + NEW, MASK_ROWS = 64, Q_ROW = 16 * 576, KV_ROW = 40 * 64 };

typedef struct variant {
    const char *name;
    uint32_t n_heads, n_kv_heads, dim, dim_v, window;
    float soft_cap, bias, scale;
    bool sinks, v_in_k;
} variant;

static float logits[MOST_HEADS];

/* Ours; K and V: [token][KV head][dim]. */
static void attend_ours(const variant *x, const float *q, const float *k, const float *v,
                        float *out)
{
    pimattn_item item = {0, NEW};
    pimattn_config config;
    memset(&config, 0, sizeof config);
    pimattn_shape *s = &config.shape;
    s->n_layers = 1, s->n_heads = x->n_heads, s->n_kv_heads = x->n_kv_heads;
    s->head_dim = x->dim, s->head_dim_v = x->dim_v, s->v_in_k = x->v_in_k;
    s->soft_cap = x->soft_cap, s->alibi_max_bias = x->bias, s->window = x->window;
    s->scale = x->scale, s->sink_logits = x->sinks ? logits : NULL;
    config.max_seqs = 1;
    config.memo_entries = 1;
    pimattn_engine *e = bench_engine(&config);
    bench_must(pimattn_seq_create(e, &item.seq) == PIMATTN_OK, "create");
    bench_must(pimattn_append(e, item.seq, 0, k, v, ALL, 0, 0) == PIMATTN_OK, "append");
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.q = q, call.items = &item, call.n_items = 1;
    bench_good(pimattn_attend(e, 0, &call, NULL) == PIMATTN_OK, "attend", pimattn_engine_cause(e));
    pimattn_engine_destroy(e);
}

/* A tensor [heads][tokens][dim] of rows [token][head][stride]. */
static void *tensor_f32(void *context, const float *rows, uint32_t tokens, uint32_t heads,
                        uint32_t dim, uint32_t stride)
{
    void *tensor = ggml.tensor(context, 0, dim, tokens, heads);
    float *to = (float *)ggml.data(tensor);
    for (size_t head = 0; head < heads; head++)
        for (size_t i = 0; i < tokens; i++, to += dim)
            memcpy(to, rows + (i * heads + head) * stride, dim * sizeof *to);
    return tensor;
}

/* ggml's: the mask hides what comes later or is too far, as llama.cpp fills it, and says how far
 * the others are. */
static void attend_ggml(const variant *x, const float *q, const float *k, const float *v,
                        float *out)
{
    ggml_place place = {(size_t)64 << 20, NULL, false};
    void *context = ggml.init(place), *mask, *graph;
    bench_must(context != NULL, "ggml_init");
    mask = ggml.tensor(context, peers[PIMATTN_F16].number, ALL, MASK_ROWS, 1);
    uint16_t *to = (uint16_t *)ggml.data(mask);
    for (uint32_t row = 0; row < MASK_ROWS; row++)
        for (uint32_t t = 0; t < ALL; t++) {
            const uint32_t own = PAST + row;
            bool seen = row < NEW && t <= own && (x->window == 0 || own - t < x->window);
            *to++ = f16_of(!seen ? -INFINITY : x->bias > 0 ? -(float)(own - t) : 0);
        }
    void *result = ggml.attend(context, tensor_f32(context, q, NEW, x->n_heads, x->dim, x->dim),
                               tensor_f32(context, k, ALL, x->n_kv_heads, x->dim, x->dim),
                               tensor_f32(context, x->v_in_k ? k : v, ALL, x->n_kv_heads, x->dim_v,
                                          x->v_in_k ? x->dim : x->dim_v),
                               mask, x->scale, x->bias, x->soft_cap);
    if (x->sinks) {
        void *sinks = ggml.tensor(context, 0, x->n_heads, 1, 1);
        memcpy(ggml.data(sinks), logits, x->n_heads * sizeof *logits);
        ggml.sinks(result, sinks);
    }
    graph = ggml.graph(context);
    ggml.expand(graph, result);
    ggml_plan plan = ggml.plan(graph, 1, NULL);
    plan.work_data = (unsigned char *)malloc(plan.work_size + 1);
    bench_must(plan.work_data && ggml.compute(graph, &plan) == 0, "ggml_graph_compute");
    memcpy(out, ggml.data(result), (size_t)NEW * x->n_heads * x->dim_v * sizeof *out);
    free(plan.work_data);
    ggml.release(context);
}

static double difference(const float *a, const float *b, size_t n)
{
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* a NaN stays */
        most = fmax(most, fabs((double)b[i]));
    }
    return worst / most;
}

static bool variants(void)
{
    static const variant list[] = {
        {"GQA", 8, 2, 64, 64, 0, 0, 0, .125f, false, false},
        {"scale", 8, 2, 64, 64, 0, 0, 0, .3f, false, false},
        {"head_dim_v", 8, 4, 192, 128, 0, 0, 0, .07f, false, false},
        {"V in K (MLA)", 16, 1, 576, 512, 0, 0, 0, .04f, false, true},
        {"ALiBi", 8, 8, 64, 64, 0, 0, 8, .125f, false, false},
        {"ALiBi", 12, 4, 64, 64, 0, 0, 8, .125f, false, false},
        {"ALiBi", 40, 40, 64, 64, 0, 0, 16, .125f, false, false},
        {"soft-cap", 8, 4, 256, 256, 0, 20, 0, .2f, false, false},
        {"window", 8, 2, 64, 64, 100, 0, 0, .125f, false, false},
        {"sink logits", 64, 8, 64, 64, 0, 0, 0, .125f, true, false},
        {"sink logits and window", 64, 8, 64, 64, 128, 0, 0, .125f, true, false},
        {"soft-cap and ALiBi", 8, 4, 128, 128, 0, 5, 8, .2f, false, false},
        {"soft-cap and sink logits", 8, 4, 128, 128, 0, 5, 0, .2f, true, false},
        {"all of them", 12, 4, 128, 128, 77, 5, 8, .2f, true, false}};
    static float q[NEW * Q_ROW], out[3][NEW * Q_ROW], k[ALL * KV_ROW], v[ALL * KV_ROW];
    bool good = true;
    bench_fill(logits, MOST_HEADS, 3);
    for (size_t i = 0; i < MOST_HEADS; i++)
        logits[i] += 4;
    puts("variant,heads,kv_heads,dim,dim_v,difference,plain_scores");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const variant *x = &list[i];
        const size_t rows = (size_t)ALL * x->n_kv_heads, n = (size_t)NEW * x->n_heads * x->dim_v;
        variant plain = {"", x->n_heads, x->n_kv_heads, x->dim,   x->dim_v, 0, 0,
                         0,  0,          false,         x->v_in_k};
        bench_fill(q, (size_t)NEW * x->n_heads * x->dim, (uint32_t)i + 1);
        bench_fill(k, rows * x->dim, (uint32_t)i + 100);
        bench_fill(v, rows * x->dim_v, (uint32_t)i + 200);
        attend_ours(x, q, k, v, out[0]);
        attend_ggml(x, q, k, v, out[1]);
        attend_ours(&plain, q, k, v, out[2]);
        const double is = difference(out[0], out[1], n);
        good = good && is <= 1e-5;
        printf("%s,%u,%u,%u,%u,%.2g,%.2g\n", x->name, x->n_heads, x->n_kv_heads, x->dim, x->dim_v,
               is, difference(out[2], out[1], n));
    }
    return good;
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 3, "[LIBRARY [variants | [tokens] [rounds]]]");
    if (argc < 2) {
        puts("# skipped: no library of ggml is named (its part for CPUs, libggml-cpu*.so)");
        return bench_done();
    }
    if (argc == 3 && strcmp(argv[2], "variants") == 0) {
        take(load(argv[1]), "ggml_flash_attn_ext_add_sinks", &ggml.sinks, sizeof ggml.sinks);
        bench_good(variants(), "ggml", "a difference above 1e-5");
        return bench_done();
    }
    uint32_t n_tokens = argc > 2 ? bench_number("tokens", argv[2], 1, 131072) : 4096;
    int rounds = argc > 3 ? (int)bench_number("rounds", argv[3], 1, BENCH_ROUNDS) : 15;
    load(argv[1]);
    printf(
        "type,heads,kv_heads,tokens,kernel,us,ggml_us,times,error,ggml_error,cv,ggml_cv,clean\n");
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t group = 1; group <= 8; group = group == 1 ? 4 : 2 * group)
            compare(type, group, n_tokens, rounds);
    return bench_done();
}
