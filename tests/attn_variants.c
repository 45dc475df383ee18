/* Variants of attention and pages of the caller: every pair of variants against float64, over
 * lengths of many leaves, page sizes and kernels; and what must not change a bit. */
#define _DEFAULT_SOURCE
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum {
    WINDOW,
    WINDOWS,
    SINKS,
    LOGITS,
    CAP,
    RULE,
    SLOPES,
    MASK,
    TREE,
    V_IN_K,
    SCALE,
    DIMS,
    N_VARIANTS
};

static const char *const variant_names[] = {"window", "windows", "sinks",  "logits",
                                            "cap",    "rule",    "slopes", "mask",
                                            "tree",   "V in K",  "scale",  "dims"};

enum { LAYERS = 3, MOST_HEADS = 24, MOST_NEW = 70, MOST_WORDS = 2 };

/* One case: a shape with what its pointers need, tokens, queries, a mask. */
typedef struct scene {
    pimattn_shape shape;
    uint64_t windows[LAYERS];
    float slopes[MOST_HEADS], logits[MOST_HEADS];
    uint64_t mask[MOST_NEW * MOST_WORDS], positions[MOST_NEW];
    bool masked, tree;
    uint32_t layer;
    attn_kv kv;
    uint64_t n_new;
    float *q;
    uint32_t page_tokens;
} scene;

static uint64_t scene_window(const scene *s)
{
    return s->shape.windows ? s->windows[s->layer] : s->shape.window;
}

/* Where a token is, as windows and ALiBi see it. */
static uint64_t place_of(const scene *s, uint64_t t)
{
    uint64_t old = s->kv.n_tokens - s->n_new;
    return s->tree && t >= old ? s->positions[t - old] : t;
}

static pimattn_mask mask_of(const scene *s)
{
    pimattn_mask mask = {s->mask, s->n_new, s->tree ? s->positions : NULL};
    return mask;
}

/* Whether new token i sees token t. */
static bool sees(const scene *s, uint64_t i, uint64_t t)
{
    uint64_t old = s->kv.n_tokens - s->n_new, own = old + i, window = scene_window(s);
    if (!s->masked && t > own) return false;
    if (s->masked && t >= old) {
        uint64_t word = s->mask[i * ((s->n_new + 63) / 64) + (t - old) / 64];
        if (!(word >> (t - old) % 64 & 1)) return false;
    }
    return window == 0 || place_of(s, t) + window > place_of(s, own) ||
           place_of(s, t) < s->shape.sink_tokens;
}

/* The slopes of ggml, in its own words. */
static double slope_of(const pimattn_shape *s, uint32_t h)
{
    if (s->alibi_slopes) return (double)s->alibi_slopes[h];
    if (s->alibi_max_bias == 0) return 0;
    uint32_t n = 1u << (uint32_t)floor(log2(s->n_heads));
    double m0 = pow(2, -(double)s->alibi_max_bias / n);
    double m1 = pow(2, -((double)s->alibi_max_bias / 2) / n);
    return h < n ? pow(m0, h + 1) : pow(m1, 2 * (h - n) + 1);
}

/* A score in float64; *size: the largest number on its way. */
static double exact_score(const scene *s, uint64_t own, uint32_t head, uint64_t t, const float *q,
                          double *size)
{
    const pimattn_shape *shape = &s->shape;
    uint32_t kv_head = head / (shape->n_heads / shape->n_kv_heads);
    const double *k = s->kv.k_kept + t * s->kv.k_row + (size_t)kv_head * shape->head_dim;
    double scale = shape->scale != 0 ? (double)shape->scale : 1 / sqrt((double)shape->head_dim);
    double x = 0, terms = 0, distance = fabs((double)place_of(s, own) - (double)place_of(s, t));
    for (uint32_t i = 0; i < shape->head_dim; i++) {
        x += (double)q[i] * k[i] * scale;
        terms += fabs((double)q[i] * k[i] * scale);
    }
    if (shape->soft_cap > 0) x = (double)shape->soft_cap * tanh(x / (double)shape->soft_cap);
    double bias = slope_of(shape, head) * distance;
    *size = fmax(terms, bias);
    return x - bias;
}

/* What the lanes of a device may do to weights and sums, and to a score, each by its size. */
typedef struct rounding {
    double weight, score;
} rounding;

/* One query head in float64 against what came out. */
static void check_head(const scene *s, uint64_t i, uint32_t head, const float *out, float lse,
                       rounding by)
{
    const pimattn_shape *shape = &s->shape;
    uint32_t kv_head = head / (shape->n_heads / shape->n_kv_heads), dv = s->kv.dv;
    uint64_t n = s->kv.n_tokens, own = n - s->n_new + i;
    const float *q = s->q + (i * shape->n_heads + head) * shape->head_dim;
    double *score = (double *)check_alloc(n, sizeof(double));
    double *exact = (double *)check_alloc(dv, sizeof(double));
    double top = -HUGE_VAL, l = 0, most = 0, max_v = 0, size;
    for (uint64_t t = 0; t < n; t++) {
        score[t] = sees(s, i, t) ? exact_score(s, own, head, t, q, &size) : -HUGE_VAL;
        top = fmax(top, score[t]);
    }
    if (shape->sink_logits) top = fmax(top, (double)s->logits[head]);
    if (shape->sink_logits) l = exp((double)s->logits[head] - top);
    for (uint64_t t = 0; t < n && top > -HUGE_VAL; t++) {
        double p = exp(score[t] - top);
        const double *v = shape->v_in_k
                              ? s->kv.k_kept + t * s->kv.k_row + (size_t)kv_head * shape->head_dim
                              : s->kv.v_kept + t * s->kv.v_row + (size_t)kv_head * dv;
        l += p;
        for (uint32_t j = 0; j < dv && p > 0; j++) {
            exact[j] += p * v[j];
            max_v = fmax(max_v, fabs(v[j]));
        }
        if (p < 1e-12) continue; /* it says nothing of the bound */
        (void)exact_score(s, own, head, t, q, &size);
        most = fmax(most, size);
    }
    double bound = 2e-6 + 2e-7 * most + by.weight + expm1(2 * by.score * most);
    for (uint32_t j = 0; j < dv; j++)
        CHECK_NEAR(out[j], top > -HUGE_VAL ? exact[j] / l : 0, bound * max_v);
    CHECK_NEAR(lse, top > -HUGE_VAL ? top + log(l) : top, bound);
    free(score);
    free(exact);
}

static void add_variant(scene *s, int variant, check_rng *rng)
{
    pimattn_shape *shape = &s->shape;
    uint64_t n = s->kv.n_tokens;
    switch (variant) {
    case WINDOW: shape->window = rng_range(rng, 1, rng_range(rng, 0, 1) ? n : 40); break;
    case WINDOWS:
        for (int i = 0; i < LAYERS; i++)
            s->windows[i] = rng_range(rng, 0, 2) ? rng_range(rng, 1, n + 10) : 0;
        shape->windows = s->windows;
        break;
    case SINKS:
        shape->sink_tokens = rng_range(rng, 1, rng_range(rng, 0, 1) ? 20 : n);
        if (!shape->window) shape->window = rng_range(rng, 1, n);
        break;
    case LOGITS: shape->sink_logits = s->logits; break;
    case CAP: shape->soft_cap = rng_range(rng, 0, 1) ? 50 : rng_float(rng, 0.01, 5); break;
    case RULE: shape->alibi_max_bias = rng_range(rng, 0, 1) ? 8 : rng_float(rng, 0.1, 20); break;
    case SLOPES: shape->alibi_slopes = s->slopes; break;
    case MASK: s->masked = true; break;
    case TREE: s->masked = s->tree = true; break;
    case V_IN_K: shape->v_in_k = true; break;
    case SCALE: shape->scale = rng_float(rng, -0.5, 0.5); break;
    default: break;
    }
    if (shape->windows) shape->window = 0;
}

/* Two variants and their tokens. Dims in whole vectors or not; V no wider than K if it is in it. */
static void scene_of(scene *s, int a, int b, uint32_t most_kv_heads, check_rng *rng)
{
    static const uint32_t dims[] = {16, 32, 64, 48, 8, 19}, pages[] = {1, 7, 16, 24, 40, 64, 128};
    memset(s, 0, sizeof *s);
    uint32_t n_kv_heads = (uint32_t)rng_range(rng, 1, most_kv_heads);
    uint32_t group = rng_range(rng, 0, 1) ? 4 : 12;
    group = (uint32_t)rng_range(rng, 1, n_kv_heads > 2 ? MOST_HEADS / n_kv_heads : group);
    uint32_t n_heads = n_kv_heads * group;
    s->shape = shape_of(LAYERS, n_heads, n_kv_heads, dims[rng_range(rng, 0, 5)], 0);
    if (a == DIMS || b == DIMS) s->shape.head_dim_v = dims[rng_range(rng, 0, 5)];
    if (a == V_IN_K || b == V_IN_K)
        s->shape.head_dim_v = (uint32_t)rng_range(rng, 1, 2) * s->shape.head_dim / 2;
    s->shape.k_type = (uint32_t)rng_range(rng, 0, PIMATTN_N_TYPE - 1);
    s->shape.v_type = (uint32_t)rng_range(rng, 0, PIMATTN_N_TYPE - 1);
    if (a == V_IN_K || b == V_IN_K) s->shape.v_type = s->shape.k_type;
    s->page_tokens = pages[rng_range(rng, 0, COUNT(pages) - 1)];
    s->layer = (uint32_t)rng_range(rng, 0, LAYERS - 1);
    bool many = rng_range(rng, 0, 2) != 0;
    s->kv = kv_random(&s->shape, rng_range(rng, 1, many ? 3000 : 100), rng);
    s->n_new = rng_range(rng, 1, many ? 5 : rng_range(rng, 0, 3) ? 9 : MOST_NEW);
    if (s->n_new > s->kv.n_tokens) s->n_new = s->kv.n_tokens;
    for (size_t i = 0; i < COUNT(s->mask); i++)
        s->mask[i] = rng_u64(rng) & (rng_range(rng, 0, 3) ? rng_u64(rng) : 0);
    for (uint64_t i = 0, old = s->kv.n_tokens - s->n_new; i < s->n_new; i++)
        s->positions[i] = old + rng_range(rng, rng_range(rng, 0, 1) ? i / 2 : 0, i);
    for (uint32_t h = 0; h < n_heads; h++) {
        s->slopes[h] = rng_float(rng, -0.001, 0.02);
        s->logits[h] = rng_float(rng, -3, 5);
    }
    add_variant(s, a, rng);
    add_variant(s, b, rng);
    s->q = (float *)check_alloc((size_t)s->n_new * n_heads * s->shape.head_dim, sizeof(float));
    double size = rng_range(rng, 0, 2) ? 1 : 12;
    fill_normal(s->q, (size_t)s->n_new * n_heads * s->shape.head_dim, size, rng);
}

static void scene_make(scene *s, int a, int b, check_rng *rng)
{
    scene_of(s, a, b, 2, rng);
}

static void scene_free(scene *s)
{
    kv_free(&s->kv);
    free(s->q);
}

/* Outputs of a scene: [n_new][n_heads][dv], then log-sum-exps. */
static float *outputs_new(const scene *s)
{
    return (float *)check_alloc((size_t)s->n_new * s->shape.n_heads * (s->kv.dv + 1),
                                sizeof(float));
}

static size_t outputs_bytes(const scene *s)
{
    return (size_t)s->n_new * s->shape.n_heads * (s->kv.dv + 1) * sizeof(float);
}

static float *outputs_lse(const scene *s, float *out)
{
    return out + (size_t)s->n_new * s->shape.n_heads * s->kv.dv;
}

/* The items' call; q and outputs from new token `from` on. */
static pimattn_call call_of(const scene *s, const pimattn_item *item, const pimattn_mask *mask,
                            uint64_t from, float *out)
{
    pimattn_call call;
    memset(&call, 0, sizeof call);
    size_t rows = (size_t)from * s->shape.n_heads;
    call.out = out + rows * s->kv.dv;
    call.lse = outputs_lse(s, out) + rows;
    call.q = s->q + rows * s->shape.head_dim;
    call.items = item;
    call.n_items = 1;
    call.masks = s->masked ? mask : NULL;
    return call;
}

static void backwards(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    (void)user;
    for (size_t i = n; i > 0; i--)
        fn(arg, i - 1, i % 3);
}

/* Attention of a scene by a managed cache; one_by_one: a token appended, then attended for. */
static void attend_scene(const scene *s, const pimattn_config *config, bool one_by_one, float *out)
{
    pimattn_engine *e = engine_new(config);
    pimattn_item item = {0, s->n_new};
    pimattn_mask mask = mask_of(s);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    uint64_t before = one_by_one ? s->kv.n_tokens - s->n_new : s->kv.n_tokens;
    CHECK_U(kv_append(e, item.seq, s->layer, &s->kv, 0, before), PIMATTN_OK);
    if (one_by_one) item.n_tokens = 1;
    for (uint64_t i = 0; i < (one_by_one ? s->n_new : 1); i++) {
        pimattn_call call = call_of(s, &item, &mask, i, out);
        if (one_by_one)
            CHECK_U(kv_append(e, item.seq, s->layer, &s->kv, before + i, 1), PIMATTN_OK);
        if (!CHECK_U(pimattn_attend(e, s->layer, &call, NULL), PIMATTN_OK))
            printf("  %s\n", pimattn_engine_cause(e));
    }
    pimattn_engine_destroy(e);
}

static void report(int a, int b, unsigned before)
{
    if (check_now.n_errors != before)
        printf("  with %s and %s\n", variant_names[a], variant_names[b]);
}

static void pairs(void)
{
    check_rng rng = {11 + engines_simd};
    for (int a = 0; a < N_VARIANTS; a++)
        for (int b = a; b < N_VARIANTS; b++) {
            if ((a == WINDOW || a == WINDOWS) && b == WINDOWS) b = a == b ? b : b + 1;
            if ((a == RULE && b == SLOPES) || (a == V_IN_K && b == DIMS)) continue;
            unsigned before = check_now.n_errors;
            scene s;
            scene_make(&s, a, b, &rng);
            pimattn_config c = config_of(&s.shape);
            float *out = outputs_new(&s), *lse = outputs_lse(&s, out);
            c.page_tokens = s.page_tokens;
            attend_scene(&s, &c, false, out);
            for (uint64_t i = 0; i < s.n_new; i += 1 + s.n_new / 8)
                for (uint32_t h = 0; h < s.shape.n_heads; h++) {
                    size_t row = (size_t)i * s.shape.n_heads + h;
                    check_head(&s, i, h, out + row * s.kv.dv, lse[row], (rounding){0, 0});
                }
            report(a, b, before);
            free(out);
            scene_free(&s);
        }
}

static void every_pair_of_variants_agrees_with_float64(void)
{
    over_kernels(pairs);
}

/* The least scratch_bytes of a configuration, as its check names it. */
static uint64_t least_scratch(pimattn_config c)
{
    pimhw_cause why = {""};
    c.scratch_bytes = 1;
    (void)pimattn_config_check(&c, &why);
    const char *not_one = strstr(why.text, "is 1, not ");
    return not_one ? strtoull(not_one + 10, NULL, 10) : 0;
}

/* Page sizes, workers, scratch and calls of one must not change a bit of what a pair gives. */
static void pair_bits(void)
{
    check_rng rng = {31 + engines_simd};
    for (int a = 0; a < N_VARIANTS; a++) {
        int b = (int)rng_range(&rng, 0, N_VARIANTS - 1);
        if ((a == WINDOW && b == WINDOWS) || (a == WINDOWS && b == WINDOW)) b = CAP;
        unsigned before = check_now.n_errors;
        scene s;
        scene_make(&s, a, b, &rng);
        float *want = outputs_new(&s), *out = outputs_new(&s);
        pimattn_config plain = config_of(&s.shape);
        attend_scene(&s, &plain, false, want);
        for (int how = 0; how < 4; how++) {
            pimattn_config c = plain;
            if (how == 0) c.page_tokens = s.page_tokens;
            if (how == 1) c.max_workers = 3, c.parallel_for = backwards;
            if (how == 2) c.scratch_bytes = least_scratch(c);
            if (how == 3 && s.masked) continue;
            memset(out, 0, outputs_bytes(&s));
            attend_scene(&s, &c, how == 3, out);
            if (!CHECK_BYTES(out, want, outputs_bytes(&s))) printf("  how %d\n", how);
        }
        report(a, b, before);
        free(want);
        free(out);
        scene_free(&s);
    }
}

static void bits_of_variants_do_not_hang_on_pages_workers_or_calls(void)
{
    over_kernels(pair_bits);
}

/* A sink counted for each leaf, or a run of them, would be off by much. */
static void sink_once(void)
{
    check_rng rng = {41};
    for (uint64_t n = 1; n <= 512 * 64; n = n * 8 + (n > 8 ? 3 : 0)) {
        pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
        float logits[2] = {2.5f, -1.0f}, q[32] = {0}, out[32], lse[2];
        shape.sink_logits = logits;
        attn_kv kv = kv_random(&shape, n, &rng);
        pimattn_config c = config_of(&shape);
        c.max_workers = 3, c.parallel_for = backwards;
        pimattn_engine *e = engine_new(&c);
        pimattn_item item = {0, 1};
        if (!e) return;
        logits[0] = 100; /* copied at creation: no longer looked at */
        CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(e, item.seq, 0, &kv, 0, n), PIMATTN_OK);
        pimattn_partial parts[2] = {{0, 0, out, 16}, {0, 0, out + 16, 16}};
        pimattn_call call;
        memset(&call, 0, sizeof call);
        call.out = out, call.lse = lse, call.q = q, call.items = &item, call.n_items = 1;
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        CHECK_NEAR(lse[0], log((double)n + exp(2.5)), 3e-6); /* scores are 0 */
        CHECK_NEAR(lse[1], log((double)n + exp(-1)), 3e-6);
        call.out = NULL, call.partials = parts, lse[0] = 0;
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        CHECK_NEAR(parts[0].l, n, 0); /* partials are without */
        CHECK_NEAR(lse[0], log((double)n + exp(2.5)), 3e-6);
        pimattn_engine_destroy(e);
        kv_free(&kv);
    }
}

static void a_sink_logit_counts_once_however_many_leaves(void)
{
    over_kernels(sink_once);
}

/* A row of the mask without a bit and no older token: zeros and -inf, or the logit. */
static void masked_rows(void)
{
    for (int with_logit = 0; with_logit < 2; with_logit++) {
        pimattn_shape shape = shape_of(1, 1, 1, 16, 0);
        float logit = 1.5f, k[48] = {0}, v[48], q[48] = {0}, out[48], lse[3];
        uint64_t bits[3] = {1, 0, 5};
        for (int i = 0; i < 48; i++)
            v[i] = i < 16 ? 1.0f : i < 32 ? bits_float(NAN_BITS) : 3.0f;
        if (with_logit) shape.sink_logits = &logit;
        pimattn_config c = config_of(&shape);
        pimattn_engine *e = engine_new(&c);
        pimattn_item item = {0, 3};
        pimattn_mask mask = {bits, 3, NULL};
        if (!e) return;
        CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
        CHECK_U(pimattn_append(e, item.seq, 0, k, v, 3, 0, 0), PIMATTN_OK);
        pimattn_call call;
        memset(&call, 0, sizeof call);
        call.out = out, call.lse = lse, call.q = q, call.items = &item, call.n_items = 1;
        call.masks = &mask;
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        double sink = with_logit ? exp(1.5) : 0;
        CHECK_NEAR(out[0], 1 / (1 + sink), 1e-6);
        CHECK_NEAR(out[16], 0, 0);
        CHECK_NEAR(lse[1], with_logit ? 1.5 : -HUGE_VAL, 0);
        CHECK_NEAR(out[32], 4 / (2 + sink), 1e-6); /* the NaN between them is not read */
        pimattn_engine_destroy(e);
    }
}

static void a_fully_masked_row_gives_zeros(void)
{
    over_kernels(masked_rows);
}

/* A tree of drafts gives each branch what it would have got by itself, if positions say so. */
static void branches(void)
{
    enum { OLD = 530, FIRST = 3, SECOND = 4, NEW = FIRST + SECOND, H = 4, D = 16 };
    check_rng rng = {77};
    for (int how = 0; how < 4; how++) {
        pimattn_shape shape = shape_of(1, H, 2, D, 0);
        if (how & 1) shape.alibi_max_bias = 8;
        if (how & 2) shape.window = 6;
        attn_kv kv = kv_random(&shape, OLD + NEW, &rng);
        float q[NEW * H * D], tree[NEW * H * D], line[NEW * H * D];
        fill_normal(q, COUNT(q), 1, &rng);
        pimattn_config c = config_of(&shape);
        pimattn_engine *e = engine_new(&c);
        pimattn_item item = {0, NEW};
        uint64_t bits[NEW], positions[NEW];
        for (uint64_t i = 0; i < NEW; i++) {
            uint64_t depth = i < FIRST ? i : i - FIRST;
            positions[i] = OLD + depth;
            bits[i] = (((uint64_t)2 << depth) - 1) << (i - depth);
        }
        pimattn_mask mask = {bits, NEW, positions};
        pimattn_call call = {.out = tree, .q = q, .items = &item, .n_items = 1, .masks = &mask};
        CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(e, item.seq, 0, &kv, 0, OLD + NEW), PIMATTN_OK);
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        for (int second = 0; second < 2; second++) {
            uint64_t from = second ? FIRST : 0;
            call.masks = NULL, call.q = q + from * H * D, call.out = line + from * H * D;
            item.n_tokens = second ? SECOND : FIRST;
            CHECK_U(pimattn_seq_truncate(e, item.seq, OLD), PIMATTN_OK);
            CHECK_U(kv_append(e, item.seq, 0, &kv, OLD + from, item.n_tokens), PIMATTN_OK);
            CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        }
        for (size_t i = 0; i < COUNT(tree); i++)
            CHECK_NEAR(tree[i], line[i], i < FIRST * H * D ? 0 : 4e-6);
        pimattn_engine_destroy(e);
        kv_free(&kv);
    }
}

static void branches_of_a_tree_are_as_if_alone(void)
{
    over_kernels(branches);
}

/* Positions far behind places: what the blocks of a tree reach, with first tokens among it. */
static void deep_trees(void)
{
    check_rng rng = {78 + engines_simd};
    for (int i = 0; i < 40; i++) {
        unsigned before = check_now.n_errors;
        scene s;
        memset(&s, 0, sizeof s);
        s.shape = shape_of(LAYERS, (uint32_t)rng_range(&rng, 1, 2), 1, 16, 0);
        s.shape.window = rng_range(&rng, 1, 24);
        if (i % 2 || i % 5 == 0) s.shape.sink_tokens = rng_range(&rng, 1, 30);
        if (i % 3 == 0) s.shape.alibi_max_bias = 4;
        s.kv = kv_random(&s.shape, rng_range(&rng, MOST_NEW, MOST_NEW + (i % 5 ? 60 : 3)), &rng);
        s.n_new = MOST_NEW;
        s.masked = s.tree = true;
        for (uint64_t k = 0, old = s.kv.n_tokens - MOST_NEW; k < MOST_NEW; k++) {
            s.positions[k] = old + rng_range(&rng, 0, rng_range(&rng, 0, 2) ? k / 3 : k);
            /* first tokens in the midst of the others */
            if (i % 5 == 0) s.positions[k] = old + (k < 40 ? 0 : k);
        }
        for (size_t k = 0; k < COUNT(s.mask); k++)
            s.mask[k] = rng_u64(&rng) | rng_u64(&rng);
        size_t floats = (size_t)MOST_NEW * s.shape.n_heads * s.shape.head_dim;
        s.q = (float *)check_alloc(floats, sizeof(float));
        fill_normal(s.q, floats, 1, &rng);
        pimattn_config c = config_of(&s.shape);
        float *out = outputs_new(&s), *lse = outputs_lse(&s, out);
        attend_scene(&s, &c, false, out);
        for (uint64_t k = 0; k < MOST_NEW; k++)
            for (uint32_t h = 0; h < s.shape.n_heads; h++) {
                size_t row = (size_t)k * s.shape.n_heads + h;
                check_head(&s, k, h, out + row * s.kv.dv, lse[row], (rounding){0, 0});
            }
        if (check_now.n_errors != before) printf("  tree %d\n", i);
        free(out);
        scene_free(&s);
    }
}

static void trees_reach_what_their_positions_say(void)
{
    over_kernels(deep_trees);
}

/* A sink of -inf is none, as ggml has it: also where nothing is seen. */
static void sinks_of_nothing(void)
{
    pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
    const float logits[2] = {-INFINITY, 1};
    float k[32] = {0}, q[64] = {0}, out[64], lse[4];
    const uint64_t bits[2] = {0, 3};
    shape.sink_logits = logits;
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, 2};
    const pimattn_mask mask = {bits, 2, NULL};
    pimattn_call call = {
        .out = out, .lse = lse, .q = q, .items = &item, .n_items = 1, .masks = &mask};
    for (int i = 0; i < 32; i++)
        k[i] = 1;
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, item.seq, 0, k, k, 2, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
    for (int head = 0; head < 2; head++) {
        CHECK_NEAR(out[16 * head], 0, 0);
        CHECK_NEAR(out[32 + 16 * head], head ? 2 / (2 + exp(1)) : 1, 1e-6);
    }
    CHECK_NEAR(lse[0], -HUGE_VAL, 0);
    CHECK_NEAR(lse[1], 1, 0);
    CHECK_NEAR(lse[2], log(2), 1e-6);
    CHECK_NEAR(lse[3], log(2 + exp(1)), 1e-6);
    pimattn_engine_destroy(e);
}

static void a_sink_of_minus_infinity_is_none(void)
{
    over_kernels(sinks_of_nothing);
}

/* Rows of a mask of 64 tokens are a word each: one that says what holds anyway changes no bit. */
static void a_mask_of_whole_words_has_no_other(void)
{
    enum { N = 64 };
    static float out[2][N * 16];
    pimattn_shape shape = shape_of(1, 1, 1, 16, 0);
    check_rng rng = {12};
    attn_kv kv = kv_random(&shape, N, &rng);
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, N};
    uint64_t bits[N];
    const pimattn_mask mask = {bits, N, NULL};
    for (uint32_t i = 0; i < N; i++)
        bits[i] = UINT64_MAX >> (N - 1 - i);
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(e, item.seq, 0, &kv, 0, N), PIMATTN_OK);
    for (int i = 0; i < 2; i++) {
        pimattn_call call = {.out = out[i], .q = kv.k, .items = &item, .n_items = 1};
        if (i) call.masks = &mask;
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
    }
    CHECK_BYTES(out[1], out[0], sizeof out[0]);
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* A score that overflows is NaN although the soft-cap would hide it. */
static void capped_overflow(void)
{
    pimattn_shape shape = shape_of(1, 1, 1, 16, 0);
    float k[16] = {3e38f}, v[16] = {1}, q[16] = {3e38f}, out[16];
    shape.soft_cap = 30;
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_seq seq = 0;
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
    CHECK_U(float_bits(out[0]), NAN_BITS);
    pimattn_engine_destroy(e);
}

static void an_overflowing_score_is_nan_under_a_soft_cap(void)
{
    over_kernels(capped_overflow);
}

/* Of a single token the log-sum-exp is the score: under a cap of 1, tanh of what each head asks. */
static void every_tanh(void)
{
    enum { N = 256 };
    static float q[2 * N], out[2 * N], lse[2 * N];
    pimattn_shape shape = shape_of(1, 2 * N, 1, 1, 0);
    float one = 1;
    double worst = 0;
    pimattn_call call;
    pimattn_item item = {0, 1};
    shape.soft_cap = 1;
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    memset(&call, 0, sizeof call);
    call.q = q, call.out = out, call.lse = lse, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, item.seq, 0, &one, &one, 1, 0, 0), PIMATTN_OK);
    for (uint32_t bits = 0x20000000u; bits < 0x42000000u; bits += 997 * N) {
        for (uint32_t i = 0; i < N; i++) {
            q[i] = i == N - 1 ? bits == 0x20000000u ? 0 : 1e30f : bits_float(bits + 997 * i);
            q[N + i] = -q[i];
        }
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        for (uint32_t i = 0; i < N; i++) {
            double exact = tanh((double)q[i]);
            if (q[i] > 0) worst = fmax(worst, fabs((double)lse[i] - exact) / exact);
            if (q[i] > 1e20f || q[i] == 0) CHECK_NEAR(lse[i], q[i] > 0 ? 1 : 0, 0);
            CHECK_NEAR(lse[N + i], -(double)lse[i], 0);
        }
    }
    CHECK_NEAR(worst, 0, 2e-7);
    pimattn_engine_destroy(e);
}

static void tanh_keeps_its_relative_bound(void)
{
    over_kernels(every_tanh);
}

/* --------------------------------------------------------------------------
 * Pages of the caller.
 * -------------------------------------------------------------------------- */

static const size_t type_bytes[] = {4, 2, 2, 1};

enum { ITEMS = 2, MOST_PAGES = 6100 };

/* Tokens of a scene in pages of our own, once for each item, in no order. */
typedef struct own_pages {
    pimattn_pages p;
    unsigned char *memory[4];
    uint32_t list[ITEMS * MOST_PAGES], indptr[ITEMS + 1], lengths[ITEMS], last[ITEMS];
    uint32_t table[ITEMS * MOST_PAGES];
    uint64_t first[ITEMS];
} own_pages;

/* Memory for rows of so many bytes, all bits set; strides random, or 0 where they are packed. */
static void own_rows(own_pages *o, int which, pimattn_rows *rows, size_t bytes, uint32_t n_heads,
                     check_rng *rng)
{
    size_t tokens = o->p.page_tokens, gap = rng_range(rng, 0, 2) ? 0 : rng_range(rng, 1, 9);
    size_t page_gap = rng_range(rng, 0, 1) ? rng_range(rng, 1, 70) : 0;
    bool hnd = o->p.order == PIMATTN_HND;
    size_t near = bytes + gap, wide = near * (hnd ? tokens : n_heads) + gap;
    size_t page = wide * (hnd ? n_heads : tokens) + page_gap, start = rng_range(rng, 0, 3);
    size_t all = page * (size_t)o->p.n_pages + start;
    o->memory[which] = (unsigned char *)check_alloc(all, 1);
    memset(o->memory[which], 0xff, all);
    rows->at = o->memory[which] + start;
    rows->token = hnd ? near : wide;
    rows->head = hnd ? wide : near;
    rows->page = page;
}

static unsigned char *own_at(const pimattn_rows *rows, uint32_t page, uint64_t at, uint32_t head)
{
    unsigned char *memory = (unsigned char *)(uintptr_t)rows->at;
    return memory + page * rows->page + at * rows->token + head * rows->head;
}

/* The bits of a binary16 value. */
static uint16_t half_bits(double x)
{
    int e = x == 0 || fabs(x) < 0x1p-14 ? -15 : ilogb(x);
    double rest = e < -14 ? ldexp(fabs(x), 24) : ldexp(fabs(x), 10 - e) - 1024;
    return (uint16_t)((signbit(x) ? 1u << 15 : 0) | (unsigned)(e + 15) << 10 | (unsigned)rest);
}

/* One row as the cache would hold it. */
static void own_store(const pimattn_rows *rows, const pimattn_rows *scales, uint32_t page,
                      uint64_t at, uint32_t head, const float *x, uint32_t dim, uint32_t type)
{
    unsigned char *to = own_at(rows, page, at, head);
    const float scale = int8_scale(x, dim), per_unit = 1.0f / scale;
    if (type == PIMATTN_F32) memcpy(to, x, dim * sizeof *x);
    if (type == PIMATTN_INT8) memcpy(own_at(scales, page, at, head), &scale, sizeof scale);
    for (uint32_t i = 0; i < dim && type != PIMATTN_F32; i++) {
        uint16_t half = 0;
        if (type == PIMATTN_F16) half = half_bits(half_round((double)x[i]));
        if (type == PIMATTN_BF16) half = (uint16_t)(float_bits((float)brain_round(x[i])) >> 16);
        if (type == PIMATTN_INT8)
            ((int8_t *)to)[i] = (int8_t)nearbyintf(x[i] * per_unit);
        else
            memcpy(to + 2 * i, &half, sizeof half);
    }
}

static void own_fill(own_pages *o, const scene *s, size_t item)
{
    const pimattn_shape *shape = &s->shape;
    for (uint64_t t = o->first[item]; t < s->kv.n_tokens; t++)
        for (uint32_t h = 0; h < shape->n_kv_heads; h++) {
            uint64_t index = t - o->first[item], at = index % o->p.page_tokens;
            uint32_t page = o->list[o->indptr[item] + index / o->p.page_tokens];
            own_store(&o->p.k, &o->p.k_scale, page, at, h,
                      s->kv.k + t * s->kv.k_row + (size_t)h * shape->head_dim, shape->head_dim,
                      shape->k_type);
            if (shape->v_in_k) continue;
            own_store(&o->p.v, &o->p.v_scale, page, at, h,
                      s->kv.v + t * s->kv.v_row + (size_t)h * s->kv.dv, s->kv.dv, shape->v_type);
        }
}

/* Lists of both items, in pages that a shuffle deals out; as CSR, or as a table. */
static void own_lists(own_pages *o, const scene *s, check_rng *rng)
{
    pimattn_pages *p = &o->p;
    uint64_t old = s->kv.n_tokens - s->n_new, window = scene_window(s), total = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        uint64_t begin = window && old >= window ? old - window + 1 : 0;
        o->first[i] = s->shape.sink_tokens ? 0 : rng_range(rng, 0, begin);
        uint64_t n = s->kv.n_tokens - o->first[i], pages = (n - 1) / p->page_tokens + 1;
        o->indptr[i] = (uint32_t)total;
        o->lengths[i] = (uint32_t)n;
        o->last[i] = (uint32_t)(n - (pages - 1) * p->page_tokens);
        total += pages;
    }
    o->indptr[ITEMS] = (uint32_t)total;
    p->n_pages = total + rng_range(rng, 0, 5);
    uint32_t *deal = (uint32_t *)check_alloc((size_t)p->n_pages, sizeof *deal);
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint32_t j = (uint32_t)rng_range(rng, 0, i);
        deal[i] = deal[j];
        deal[j] = i;
    }
    memcpy(o->list, deal, total * sizeof *deal);
    free(deal);
    p->first_position = o->first;
    if (rng_range(rng, 0, 1)) {
        p->indptr = o->indptr, p->indices = o->list, p->last_page_len = o->last;
        return;
    }
    memset(o->table, 0xff, sizeof o->table); /* beyond the lengths: no page */
    p->table = o->table, p->lengths = o->lengths, p->table_stride = MOST_PAGES;
    for (size_t i = 0; i < ITEMS; i++)
        memcpy(o->table + i * MOST_PAGES, o->list + o->indptr[i],
               (o->indptr[i + 1] - o->indptr[i]) * sizeof *o->list);
}

static own_pages *own_pages_new(const scene *s, uint32_t page_tokens, check_rng *rng)
{
    const pimattn_shape *shape = &s->shape;
    own_pages *o = (own_pages *)check_alloc(1, sizeof *o);
    o->p.page_tokens = page_tokens;
    o->p.order = (uint32_t)rng_range(rng, 0, 1);
    own_lists(o, s, rng);
    size_t k = (size_t)shape->head_dim * type_bytes[shape->k_type];
    size_t v = (size_t)s->kv.dv * type_bytes[shape->v_type];
    own_rows(o, 0, &o->p.k, k, shape->n_kv_heads, rng);
    own_rows(o, 1, &o->p.v, v, shape->n_kv_heads, rng);
    if (shape->k_type == PIMATTN_INT8)
        own_rows(o, 2, &o->p.k_scale, sizeof(float), shape->n_kv_heads, rng);
    if (shape->v_type == PIMATTN_INT8 && !shape->v_in_k)
        own_rows(o, 3, &o->p.v_scale, sizeof(float), shape->n_kv_heads, rng);
    for (size_t i = 0; i < ITEMS; i++)
        own_fill(o, s, i);
    return o;
}

static void own_free(own_pages *o)
{
    for (int i = 0; i < 4; i++)
        free(o->memory[i]);
    free(o);
}

/* The scene twice in one call over pages of our own. */
static void attend_own(const scene *s, const pimattn_config *config, const own_pages *o, float *out)
{
    pimattn_engine *e = engine_new(config);
    if (!e) return;
    size_t rows = (size_t)s->n_new * s->shape.n_heads, q_row = s->shape.head_dim;
    float *q = (float *)check_alloc(ITEMS * rows * q_row, sizeof(float));
    pimattn_item items[ITEMS] = {{0, s->n_new}, {0, s->n_new}};
    pimattn_mask masks[ITEMS] = {mask_of(s), mask_of(s)};
    for (size_t i = 0; i < ITEMS; i++)
        memcpy(q + i * rows * q_row, s->q, rows * q_row * sizeof *q);
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.lse = out + ITEMS * rows * s->kv.dv, call.q = q;
    call.items = items, call.n_items = ITEMS;
    call.masks = s->masked ? masks : NULL;
    if (!CHECK_U(pimattn_attend_pages(e, s->layer, &o->p, &call, NULL), PIMATTN_OK))
        printf("  %s\n", pimattn_engine_cause(e));
    CHECK_U(pimattn_pages_used(e), 0);
    pimattn_engine_destroy(e);
    free(q);
}

/* Pages of the caller beside the cache. */
static void own_case(scene *s, uint32_t page_tokens, check_rng *rng)
{
    own_pages *o = own_pages_new(s, page_tokens, rng);
    pimattn_config c = config_of(&s->shape);
    float *want = outputs_new(s);
    float *out = (float *)check_alloc(ITEMS, outputs_bytes(s));
    attend_scene(s, &c, false, want);
    if (rng_range(rng, 0, 1)) c.max_workers = 3, c.parallel_for = backwards;
    attend_own(s, &c, o, out);
    size_t rows = (size_t)s->n_new * s->shape.n_heads, floats = rows * s->kv.dv;
    for (size_t item = 0; item < ITEMS; item++) {
        CHECK_BYTES(out + item * floats, want, floats * sizeof *out);
        CHECK_BYTES(out + ITEMS * floats + item * rows, want + floats, rows * sizeof *out);
    }
    own_free(o);
    free(want);
    free(out);
    scene_free(s);
}

static void own_equals_managed(uint32_t most_kv_heads, int n)
{
    static const uint32_t sizes[] = {1, 7, 16, 24, 32, 40, 128, 1000};
    check_rng rng = {51 + engines_simd};
    for (int i = 0; i < n; i++) {
        int a = (int)rng_range(&rng, 0, N_VARIANTS - 1), b = (int)rng_range(&rng, 0, 1) ? a : DIMS;
        if (a == V_IN_K) b = a;
        unsigned before = check_now.n_errors;
        scene s;
        scene_of(&s, a, b, most_kv_heads, &rng);
        own_case(&s, sizes[rng_range(&rng, 0, COUNT(sizes) - 1)], &rng);
        report(a, b, before);
    }
}

static void few_heads(void)
{
    own_equals_managed(2, 60);
}

static void many_heads(void)
{
    own_equals_managed(20, 20);
}

static void pages_of_the_caller_give_the_bytes_of_the_cache(void)
{
    over_kernels(few_heads);
}

/* Rows of K that are longer than those of V, which lie in them, whatever becomes of their tiles. */
static void heads_of_v_in_k(void)
{
    static const uint32_t sizes[] = {1, 7, 16, 24}, dims[][2] = {{64, 16}, {576, 512}, {40, 24}};
    check_rng rng = {71};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (size_t i = 0; i < COUNT(sizes) * COUNT(dims); i++) {
            const uint32_t *dim = dims[i / COUNT(sizes)], page_tokens = sizes[i % COUNT(sizes)];
            unsigned before = check_now.n_errors;
            scene s;
            memset(&s, 0, sizeof s);
            s.shape = shape_of(1, 4, 1, dim[0], dim[1]);
            s.shape.k_type = s.shape.v_type = type, s.shape.v_in_k = true;
            s.kv = kv_random(&s.shape, rng_range(&rng, 1, 60), &rng);
            s.n_new = 1;
            s.q = (float *)check_alloc(4, dim[0] * sizeof(float));
            fill_normal(s.q, 4 * dim[0], 1, &rng);
            own_case(&s, page_tokens, &rng);
            if (check_now.n_errors != before)
                printf("  with type %u, dims %u and %u, pages of %u\n", type, dim[0], dim[1],
                       page_tokens);
        }
}

static void v_in_k_in_pages_of_the_caller(void)
{
    over_kernels(heads_of_v_in_k);
}

/* Heads of a token side by side, and more of them than take turns at a time. */
static void many_heads_take_turns(void)
{
    over_kernels(many_heads);
}

#ifdef MAP_ANONYMOUS
/* n bytes that end where the next page of the system is none of ours. */
static unsigned char *guarded(size_t n, unsigned char **map, size_t *bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), most = (n + page - 1) / page * page;
    *bytes = most + page;
    void *at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *map = (unsigned char *)at;
    if (at == MAP_FAILED || mprotect(*map + most, page, PROT_NONE) != 0) return NULL;
    return *map + most - n;
}

/* The last token of the last page ends at the guard: what lies behind is never read. */
static void last_page_case(uint32_t dim, uint32_t type, uint32_t page_tokens, uint64_t n_tokens)
{
    check_rng rng = {61};
    scene s;
    own_pages *o = (own_pages *)check_alloc(1, sizeof *o);
    unsigned char *maps[4];
    size_t map_bytes[4], rows[4];
    pimattn_rows *to[4] = {&o->p.k, &o->p.v, &o->p.k_scale, &o->p.v_scale};
    memset(&s, 0, sizeof s);
    s.shape = shape_of(1, 4, 1, dim, 0);
    s.shape.k_type = s.shape.v_type = type;
    s.kv = kv_random(&s.shape, n_tokens, &rng);
    s.n_new = 1;
    s.q = (float *)check_alloc(4, dim * sizeof(float));
    fill_normal(s.q, 4 * dim, 1, &rng);
    rows[0] = rows[1] = dim * type_bytes[type];
    rows[2] = rows[3] = sizeof(float);
    o->p.page_tokens = page_tokens;
    o->p.n_pages = (n_tokens - 1) / page_tokens + 1;
    for (int i = 0; i < 4; i++) {
        to[i]->at = guarded((size_t)n_tokens * rows[i], &maps[i], &map_bytes[i]);
        if (!CHECK(to[i]->at != NULL)) return;
        to[i]->token = to[i]->head = rows[i];
        to[i]->page = rows[i] * page_tokens;
        if (i >= 2 && type != PIMATTN_INT8) to[i]->at = NULL;
    }
    for (size_t i = 0; i < ITEMS; i++) {
        for (uint32_t k = 0; k < o->p.n_pages; k++)
            o->list[k] = k;
        o->indptr[i + 1] = (uint32_t)o->p.n_pages; /* the second item begins anew, see below */
        o->lengths[i] = (uint32_t)n_tokens;
    }
    own_fill(o, &s, 0);
    memcpy(o->table, o->list, sizeof o->table / ITEMS);
    memcpy(o->table + MOST_PAGES, o->list, sizeof o->table / ITEMS);
    o->p.table = o->table, o->p.lengths = o->lengths, o->p.table_stride = MOST_PAGES;
    float *want = outputs_new(&s), *out = (float *)check_alloc(ITEMS, outputs_bytes(&s));
    pimattn_config c = config_of(&s.shape);
    attend_scene(&s, &c, false, want);
    attend_own(&s, &c, o, out);
    CHECK_BYTES(out, want, 4 * dim * sizeof *out);
    for (int i = 0; i < 4; i++)
        munmap(maps[i], map_bytes[i]);
    free(want);
    free(out);
    free(o);
    scene_free(&s);
}

static void guards(void)
{
    static const uint32_t dims[] = {16, 64, 19};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (size_t i = 0; i < COUNT(dims); i++) {
            last_page_case(dims[i], type, 16, 96);
            last_page_case(dims[i], type, 32, 91);
            last_page_case(dims[i], type, 7, 600);
        }
}
#endif

static void nothing_behind_the_last_token_is_read(void)
{
#ifdef MAP_ANONYMOUS
    over_kernels(guards);
#else
    skip("no mmap");
#endif
}

/* --------------------------------------------------------------------------
 * The tree: what a window leaves of absolute leaves, merged as all of them would be.
 * -------------------------------------------------------------------------- */

enum { LEAF = 512, TREE_DIM = 16, TREE_LEAVES = 16 };

/* Of leaves first .. first + n - 1, the left half first; those not there change nothing. */
static void tree(pimattn_partial *to, pimattn_partial *leaves, uint64_t first, uint64_t n)
{
    float o[TREE_DIM] = {0};
    pimattn_partial right = {-HUGE_VALF, 0, o, TREE_DIM};
    if (n == 1) {
        (void)pimattn_partial_merge(to, &leaves[first]);
        return;
    }
    tree(to, leaves, first, n / 2);
    tree(&right, leaves, first + n / 2, n / 2);
    (void)pimattn_partial_merge(to, &right);
}

/* The partial of the tokens from begin to end, as pages of the caller that hold no others. */
static void leaf_partial(pimattn_engine *e, const attn_kv *kv, uint64_t begin, uint64_t end,
                         const float *q, pimattn_partial *to)
{
    static uint32_t table[LEAF];
    uint32_t n = (uint32_t)(end - begin);
    pimattn_pages pages;
    pimattn_item item = {0, 1};
    pimattn_call call;
    memset(&pages, 0, sizeof pages);
    memset(&call, 0, sizeof call);
    pages.k.at = kv->k + begin * kv->k_row;
    pages.v.at = kv->v + begin * kv->v_row;
    pages.page_tokens = n, pages.n_pages = 1, pages.table = table, pages.table_stride = 1;
    pages.lengths = &n, pages.first_position = &begin;
    call.partials = to, call.q = q, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK);
}

static void window_tree(void)
{
    check_rng rng = {91};
    pimattn_shape shape = shape_of(1, 1, 1, TREE_DIM, 0);
    attn_kv kv = kv_random(&shape, TREE_LEAVES * LEAF, &rng);
    pimattn_config plain = config_of(&shape);
    pimattn_engine *leaf = engine_new(&plain);
    for (int i = 0; i < 12 && leaf; i++) {
        uint64_t n = rng_range(&rng, 2000, kv.n_tokens), begin = n - rng_range(&rng, 1, n);
        uint64_t kept = rng_range(&rng, 0, 1) ? rng_range(&rng, 1, 1200) : 0;
        static float o[TREE_LEAVES][TREE_DIM];
        float q[TREE_DIM], out[TREE_DIM], want[TREE_DIM] = {0};
        pimattn_partial leaves[TREE_LEAVES], all = {-HUGE_VALF, 0, want, TREE_DIM};
        fill_normal(q, TREE_DIM, 2, &rng);
        for (uint64_t k = 0; k < TREE_LEAVES; k++) {
            uint64_t first = k * LEAF, last = first + LEAF < n ? first + LEAF : n;
            pimattn_partial none = {-HUGE_VALF, 0, o[k], TREE_DIM};
            leaves[k] = none;
            if (kept > first && kept < begin)
                last = kept < last ? kept : last;
            else if (begin > first && kept <= first)
                first = begin;
            bool mixed = kept > k * LEAF && kept < begin && begin < (k + 1) * LEAF && begin < n;
            if (mixed) kept = begin; /* a leaf with a gap is no page list */
            if (mixed) last = (k + 1) * LEAF < n ? (k + 1) * LEAF : n;
            if (first < last) leaf_partial(leaf, &kv, first, last, q, &leaves[k]);
        }
        tree(&all, leaves, 0, TREE_LEAVES);
        pimattn_partial_output(&all, want);
        pimattn_config c = plain;
        c.shape.window = n - begin, c.shape.sink_tokens = kept;
        if (rng_range(&rng, 0, 1)) c.max_workers = 3, c.parallel_for = backwards;
        pimattn_engine *e = engine_new(&c);
        pimattn_seq seq = 0;
        if (!e) break;
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 0, &kv, 0, n), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
        CHECK_BYTES(out, want, sizeof out);
        pimattn_engine_destroy(e);
    }
    pimattn_engine_destroy(leaf);
    kv_free(&kv);
}

static void windows_merge_by_the_tree_of_absolute_leaves(void)
{
    over_kernels(window_tree);
}

/* --------------------------------------------------------------------------
 * Bad input, and the device way.
 * -------------------------------------------------------------------------- */

typedef struct bad_pages {
    pimattn_pages p;
    uint32_t indptr[2], indices[3], last[1], table[3], lengths[1];
    uint64_t first[1];
    float k[3 * 16 * 2 * 8], q[2 * 2 * 8], out[2 * 2 * 8];
} bad_pages;

static void bad_init(bad_pages *b)
{
    memset(b, 0, sizeof *b);
    b->indptr[1] = 3, b->last[0] = 5, b->lengths[0] = 37;
    for (uint32_t i = 0; i < 3; i++)
        b->indices[i] = b->table[i] = 2 - i;
    b->p.k.at = b->p.v.at = b->k;
    b->p.n_pages = 3, b->p.page_tokens = 16, b->p.table_stride = 3;
    b->p.indptr = b->indptr, b->p.indices = b->indices, b->p.last_page_len = b->last;
}

static void bad_call(bad_pages *b, const char *words, int line)
{
    pimattn_shape shape = shape_of(1, 2, 2, 8, 0);
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, 1};
    pimattn_call call;
    if (!e) return;
    memset(&call, 0, sizeof call);
    call.out = b->out, call.q = b->q, call.items = &item, call.n_items = 1;
    b->out[3] = 77;
    pimattn_status want = words ? PIMATTN_ERR_ARGUMENT : PIMATTN_OK;
    if (!CHECK_U(pimattn_attend_pages(e, 0, &b->p, &call, NULL), want) ||
        (words && !CHECK_HAS(pimattn_engine_cause(e), words)))
        printf("  line %d: %s\n", line, pimattn_engine_cause(e));
    if (words) CHECK_NEAR(b->out[3], 77, 0);
    pimattn_engine_destroy(e);
}

#define BAD(words, change)                                                                         \
    do {                                                                                           \
        bad_pages b;                                                                               \
        bad_init(&b);                                                                              \
        change;                                                                                    \
        bad_call(&b, words, __LINE__);                                                             \
    } while (0)

static void bad_pages_are_refused_in_words(void)
{
    BAD(NULL, (void)0);
    BAD(NULL, (b.p.indptr = NULL, b.p.table = b.table, b.p.lengths = b.lengths));
    BAD("page 1 of item 0 is 3", b.indices[1] = 3);
    BAD("page 2 of item 0 is 4294967295", b.indices[2] = UINT32_MAX);
    BAD("last_page_len", b.last[0] = 0);
    BAD("last_page_len", b.last[0] = 17);
    BAD("indptr", b.indptr[0] = 3);
    BAD("indptr", b.indptr[0] = 4);
    /* [pages][2][page_tokens][heads][dim], by the stride of one half; and as it should be */
    BAD("pages.v begins one page stride, 1024, behind pages.k", b.p.v.at = b.k + 256);
    BAD("pages.k begins one page stride, 1024, behind pages.v", b.p.k.at = b.k + 256);
    BAD(NULL,
        (b.p.v.at = b.k + 256, b.p.k.page = b.p.v.page = 2048, b.indptr[1] = 1, b.indices[0] = 0));
    BAD(NULL, (b.p.v.at = b.k + 256, b.indptr[1] = 1, b.indices[0] = 0)); /* no page 1 */
    BAD("n_pages", b.p.n_pages = 0);
    BAD("n_pages", b.p.n_pages = (1ull << 32) + 1);
    if (sizeof(size_t) == 8) BAD(NULL, b.p.n_pages = 1ull << 32);
    BAD("page_tokens", b.p.page_tokens = 0);
    BAD("order", b.p.order = 2);
    BAD("pages.k is NULL", b.p.k.at = NULL);
    BAD("pages.v is NULL", b.p.v.at = NULL);
    BAD("pages.k_scale is given, but k is not int8", b.p.k_scale.at = b.k);
    BAD("pages.v_scale is given, but v is not int8", b.p.v_scale.at = b.k);
    BAD("lack indices or last_page_len", b.p.indices = NULL);
    BAD("lack indices or last_page_len", b.p.last_page_len = NULL);
    BAD("lack indptr, or table, lengths", b.p.indptr = NULL);
    BAD("lack indptr, or table, lengths", (b.p.indptr = NULL, b.p.table = b.table));
    BAD("lengths",
        (b.p.indptr = NULL, b.p.table = b.table, b.p.lengths = b.lengths, b.lengths[0] = 49));
    BAD("table_stride", (b.p.indptr = NULL, b.p.table = b.table, b.p.lengths = b.lengths,
                         b.p.table_stride = SIZE_MAX / 4 + 2));
    BAD("no tokens of context",
        (b.p.indptr = NULL, b.p.table = b.table, b.p.lengths = b.lengths, b.lengths[0] = 0));
    BAD("pages.k overlap rows: of a head it is 31, less than the 32", b.p.k.head = 31);
    BAD("pages.v overlap rows: of a token it is 63, less than the 64", b.p.v.token = 63);
    BAD("pages.v overlap rows: of a page it is 1000, less than the 1024", b.p.v.page = 1000);
    BAD("pages.k overlap rows: of a head it is 64, less than the 992",
        (b.p.k.token = 64, b.p.k.head = 64));
    BAD("beyond memory", b.p.k.page = SIZE_MAX / 4);
    BAD("position 2^32", (b.first[0] = 1ull << 32, b.p.first_position = b.first));
    BAD("position 2^32", (b.first[0] = UINT64_MAX, b.p.first_position = b.first));
}

static void int8_pages_without_scales_are_refused(void)
{
    bad_pages b;
    pimattn_shape shape = shape_of(1, 2, 2, 8, 0);
    shape.k_type = PIMATTN_INT8;
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, 1};
    pimattn_call call;
    if (!e) return;
    bad_init(&b);
    memset(&call, 0, sizeof call);
    call.out = b.out, call.q = b.q, call.items = &item, call.n_items = 1;
    b.p.k_scale.at = NULL;
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "k_scale");
    CHECK_U(pimattn_attend_pages(e, 0, NULL, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, NULL, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend_pages(NULL, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend_pages(e, 1, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    pimattn_mask mask = {(const uint64_t[2]){1, 1}, 2, NULL};
    b.p.k_scale.at = b.k;
    call.masks = &mask;
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "mask of item 0");
    mask.bits = NULL; /* a size without bits is one, too */
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "mask of item 0");
    mask.n_tokens = 0;
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_OK);
    pimattn_seq seq; /* and then the engine works on its own again */
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, seq, 0, b.k, b.k, 1, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, b.out, b.q, NULL), PIMATTN_OK);
    pimattn_engine_destroy(e);
}

/* Of 37 tokens the new ones are 35 and 36. */
static void bad_positions_are_refused_in_words(void)
{
    static const uint64_t bits[2] = {1, 3};
    bad_pages b;
    pimattn_shape shape = shape_of(1, 2, 2, 8, 0);
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    const pimattn_item item = {0, 2};
    pimattn_mask mask = {NULL, 0, bits};
    if (!e) return;
    bad_init(&b);
    const pimattn_call call = {
        .out = b.out, .q = b.q, .items = &item, .n_items = 1, .masks = &mask};
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "mask of item 0 has positions and no bits");
    mask.bits = bits, mask.n_tokens = 2;
    for (uint64_t is = 33; is < 39; is++)
        for (int which = 0; which < 2; which++) {
            const uint64_t positions[2] = {which ? 35 : is, which ? is : 35};
            const bool right = is == 35 || (which && is == 36);
            mask.positions = positions;
            CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL),
                    right ? PIMATTN_OK : PIMATTN_ERR_ARGUMENT);
            if (!right)
                CHECK_HAS(pimattn_engine_cause(e), which ? "mask of item 0: position 1 is"
                                                         : "mask of item 0: position 0 is");
        }
    pimattn_engine_destroy(e);
}

/* indices end where indptr's last says, whatever it says before. */
static void indptr_is_judged_before_indices_are_read(void)
{
    bad_pages b;
    const uint32_t indptr[3] = {0, 6, 3}, last[2] = {1, 1};
    uint32_t indices[6] = {0, 1, 2, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    pimattn_shape shape = shape_of(1, 2, 2, 8, 0);
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_item items[2] = {{0, 1}, {0, 1}};
    pimattn_call call;
    if (!e) return;
    bad_init(&b);
    b.p.indptr = indptr, b.p.indices = indices, b.p.last_page_len = last;
    memset(&call, 0, sizeof call);
    call.out = b.out, call.q = b.q, call.items = items, call.n_items = 2;
    CHECK_U(pimattn_attend_pages(e, 0, &b.p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "indptr does not grow: item 1");
    pimattn_engine_destroy(e);
}

static void bad_shape(const pimattn_shape *shape, uint32_t way, const char *words)
{
    pimattn_config c = config_of(shape);
    pimhw_cause why = {""};
    c.way = way;
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, words);
}

#define BAD_SHAPE(words, way, change)                                                              \
    do {                                                                                           \
        pimattn_shape s = shape_of(2, 4, 2, 16, 0);                                                \
        change;                                                                                    \
        bad_shape(&s, way, words);                                                                 \
    } while (0)

/* A query that a mask lets see a token behind its own is as far from it as the other way. */
static void alibi_counts_both_ways(void)
{
    static const float slope = 1, q[2] = {1, 1}, k[2] = {0, 0}, v[2] = {0, 1};
    static const uint64_t bits[2] = {3, 3};
    pimattn_shape s = shape_of(1, 1, 1, 1, 1);
    s.alibi_slopes = &slope;
    pimattn_config c = config_of(&s);
    pimattn_engine *e = engine_new(&c);
    const pimattn_mask mask = {bits, 2, NULL};
    pimattn_item item = {0, 2};
    float out[2];
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, item.seq, 0, k, v, 2, 0, 0), PIMATTN_OK);
    const pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1, .masks = &mask};
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
    CHECK_NEAR(out[0], exp(-1) / (1 + exp(-1)), 1e-6);
    CHECK_NEAR(out[1], 1 / (1 + exp(-1)), 1e-6);
    pimattn_engine_destroy(e);
}

static void alibi_counts_both_ways_in_every_kernel(void)
{
    over_kernels(alibi_counts_both_ways);
}

static void bad_variants_are_named(void)
{
    static const float slopes[4] = {0, 1, 1e25f, 0}, logits[5] = {0, 0, 0, INFINITY, 0};
    static const uint64_t windows[3] = {3, (1ull << 62) + 1, 3};
    BAD_SHAPE("window", 0, s.window = (1ull << 62) + 1);
    BAD_SHAPE("windows", 0, s.windows = windows);
    BAD_SHAPE("windows", 0, s.windows = windows + 1);
    BAD_SHAPE("window", 0, (s.windows = windows, s.window = 4));
    BAD_SHAPE("sink_tokens", 0, s.sink_tokens = (1ull << 62) + 1);
    BAD_SHAPE("soft_cap", 0, s.soft_cap = -1);
    BAD_SHAPE("soft_cap", 0, s.soft_cap = NAN);
    BAD_SHAPE("soft_cap", 0, s.soft_cap = INFINITY);
    BAD_SHAPE("alibi_max_bias", 0, s.alibi_max_bias = -1);
    BAD_SHAPE("alibi_max_bias", 0, s.alibi_max_bias = NAN);
    BAD_SHAPE("alibi_max_bias", 0, s.alibi_max_bias = nextafterf(1024, INFINITY));
    BAD_SHAPE("head 2 is NaN, or from 1e25 up", 0, s.alibi_slopes = slopes);
    BAD_SHAPE("alibi_slopes of head 2", 0, s.alibi_slopes = slopes);
    BAD_SHAPE("sink_logits of head 3 is NaN, or from infinity up", 0, s.sink_logits = logits);
    /* of several the first */
    BAD_SHAPE("scale", 0, (s.scale = NAN, s.soft_cap = -1));
    BAD_SHAPE("soft_cap", 0, (s.soft_cap = -1, s.alibi_max_bias = -1));
    BAD_SHAPE("alibi_max_bias", 0, (s.alibi_max_bias = -1, s.window = (1ull << 62) + 1));
    BAD_SHAPE("window is not 0 to", 0, (s.window = (1ull << 62) + 1, s.windows = windows));
    BAD_SHAPE("windows", 0, (s.windows = windows, s.sink_tokens = (1ull << 62) + 1));
    BAD_SHAPE("alibi_slopes", 0, (s.alibi_slopes = slopes, s.sink_logits = logits + 1));
    BAD_SHAPE("head_dim_v", 0, (s.v_in_k = true, s.head_dim_v = 17));
    BAD_SHAPE("v_type", 0, (s.v_in_k = true, s.v_type = PIMATTN_F16));
    BAD_SHAPE("v_in_k", PIMATTN_DEVICE, s.v_in_k = true);
    pimattn_shape most = shape_of(2, 4, 2, 16, 0);
    most.window = most.sink_tokens = 1ull << 62;
    most.alibi_max_bias = 1024;
    most.soft_cap = FLT_MAX;
    pimattn_config c = config_of(&most);
    CHECK_U(pimattn_config_check(&c, NULL), PIMATTN_OK);
}

/*
 * q, K and V are the lanes' numbers. Weights are rounded to them, above and below the line (2 u; of
 * f16 also by half its least number); with out_bits 16 so are scores and sums of o as they are
 * read.
 */
static void device_variant(int variant, int other, uint32_t how, check_rng *rng)
{
    unsigned before = check_now.n_errors;
    const bool brain = how & 2, narrow = how & 4;
    const double u = brain ? 0x1p-8 : 0x1p-11;
    scene s;
    scene_make(&s, variant, other, rng);
    while (s.kv.n_tokens > 700 || s.n_new > 9) {
        scene_free(&s);
        scene_make(&s, variant, other, rng);
    }
    for (size_t k = 0; k < (size_t)s.n_new * s.shape.n_heads * s.shape.head_dim; k++)
        s.q[k] = (float)(brain ? brain_round(s.q[k]) : half_round((double)s.q[k]));
    s.shape.k_type = s.shape.v_type = brain ? PIMATTN_BF16 : PIMATTN_F16;
    s.kv.shape = s.shape;
    kv_keep(&s.kv);
    pimattn_config c = config_of(&s.shape);
    c.way = PIMATTN_DEVICE;
    c.partition = how & 1;
    c.hfp_unit = (uint32_t)rng_range(rng, 0, 1);
    CHECK_U(pimhw_config_init(&c.device, "aimx", NULL), PIMHW_OK);
    c.device.lane_type = brain ? PIMHW_LANE_BF16 : PIMHW_LANE_F16;
    c.device.out_bits = narrow ? 16 : 32;
    rounding by = {2.01 * u, narrow ? u : 0};
    if (narrow) by.weight += u;
    if (!brain) by.weight += 0x1p-24 * (double)s.kv.n_tokens;
    float *out = outputs_new(&s), *lse = outputs_lse(&s, out);
    attend_scene(&s, &c, false, out);
    for (uint64_t i = 0; i < s.n_new; i++)
        for (uint32_t h = 0; h < s.shape.n_heads; h++) {
            size_t row = (size_t)i * s.shape.n_heads + h;
            check_head(&s, i, h, out + row * s.kv.dv, lse[row], by);
        }
    report(variant, other, before);
    free(out);
    scene_free(&s);
}

static void the_device_way_has_the_same_variants(void)
{
    static const int variants[] = {WINDOW, WINDOWS, SINKS, LOGITS, CAP, RULE, SLOPES, MASK};
    check_rng rng = {71};
    for (size_t i = 0; i < COUNT(variants); i++)
        for (uint32_t how = 0; how < 8; how++)
            device_variant(variants[i], variants[i], how, &rng);
    for (uint32_t how = 0; how < 8; how++)
        device_variant(TREE, how & 4 ? WINDOW : RULE, how, &rng);
}

/* --------------------------------------------------------------------------
 * Estimates.
 * -------------------------------------------------------------------------- */

static pimattn_readings estimate(const pimattn_shape *shape, uint64_t tokens, uint64_t n_new)
{
    pimattn_config c = config_of(shape);
    pimattn_span span = {tokens, n_new};
    pimattn_readings r;
    pimhw_cause why = {""};
    memset(&r, 0, sizeof r);
    if (!CHECK_U(pimattn_estimate(&r, &c, &span, 1, &why), PIMATTN_OK)) printf("  %s\n", why.text);
    return r;
}

static void the_host_reads_what_all_layers_see(void)
{
    static const uint64_t windows[4] = {0, 16, 16, 300};
    pimattn_shape shape = shape_of(4, 8, 2, 64, 0);
    double host_ns = 0;
    for (int i = 0; i < 4; i++) {
        shape.window = windows[i];
        host_ns += estimate(&shape, 4096, 1).host_ns / 4;
    }
    shape.window = 0;
    shape.windows = windows;
    pimattn_readings r = estimate(&shape, 4096, 1);
    CHECK_NEAR(r.speedup, host_ns / (r.layer_ns + r.link_ns), 1e-12);
}

static void a_window_costs_what_its_tokens_cost(void)
{
    pimattn_shape shape = shape_of(2, 8, 2, 64, 0);
    for (uint64_t n_new = 1; n_new < 4; n_new++) {
        shape.window = 1000, shape.sink_tokens = 4;
        pimattn_readings of_window = estimate(&shape, 30000, n_new);
        pimattn_readings all = estimate(&shape, 900, n_new);
        shape.window = shape.sink_tokens = 0;
        CHECK_U(of_window.device.cycles, estimate(&shape, 1003 + n_new, n_new).device.cycles);
        CHECK_U(of_window.kv_bytes, (1003 + n_new) * 2 * 128 * 2);
        CHECK_U(of_window.kv_tokens, 30000);
        CHECK_U(all.step_ck, estimate(&shape, 900, n_new).step_ck);
    }
}

/* Layers of one window and those of another: the step is their sum. */
static void windows_of_layers_sum_up(void)
{
    static const uint64_t windows[5] = {0, 512, 0, 512, 512};
    pimattn_shape shape = shape_of(5, 8, 2, 64, 0);
    shape.windows = windows;
    pimattn_readings mixed = estimate(&shape, 9000, 1);
    shape.windows = NULL;
    shape.n_layers = 2;
    pimattn_readings full = estimate(&shape, 9000, 1);
    shape.n_layers = 3;
    shape.window = 512;
    pimattn_readings some = estimate(&shape, 9000, 1);
    CHECK_U(mixed.step_ck, full.step_ck + some.step_ck);
    CHECK_NEAR(mixed.step_pJ, full.step_pJ + some.step_pJ, 1e-9 * mixed.step_pJ);
    CHECK_NEAR(mixed.step_us, full.step_us + some.step_us, 1e-9 * mixed.step_us);
    CHECK_U(mixed.device.cycles, full.device.cycles);
    CHECK_U(mixed.n_layers, 5);
}

/* The cheapest mapping is that of each window: which layer comes first does not matter. */
static void every_window_takes_its_cheapest_mapping(void)
{
    static const uint64_t windows[2][2] = {{40, 0}, {0, 40}}, tokens[] = {13500, 1500};
    for (uint32_t i = 0; i < 2; i++) {
        pimattn_readings r[2];
        pimattn_shape shape = shape_of(2, 2, 2, i ? 64 : 32, 0);
        uint64_t least[2] = {0, 0};
        for (uint32_t k = 0; k < 4; k++) {
            pimattn_config c = config_of(&shape);
            pimattn_span span = {tokens[i], 1};
            CHECK_U(pimhw_config_init(&c.device, "aim-gddr6", NULL), PIMHW_OK);
            c.partition = PIMATTN_HFP;
            c.v_mapping = PIMATTN_V_CHEAPEST;
            if (k < 2) {
                c.shape.windows = windows[k];
                CHECK_U(pimattn_estimate(&r[k], &c, &span, 1, NULL), PIMATTN_OK);
                continue;
            }
            pimattn_readings alone;
            c.shape.n_layers = 1;
            c.shape.window = windows[0][k - 2];
            CHECK_U(pimattn_estimate(&alone, &c, &span, 1, NULL), PIMATTN_OK);
            least[k - 2] = alone.device.cycles;
            CHECK_U(r[k - 2].v_mapping, alone.v_mapping);
        }
        CHECK_U(r[0].step_ck, least[0] + least[1]);
        CHECK_U(r[1].step_ck, least[0] + least[1]);
    }
}

/* attend times the window of its own layer, and remembers both. */
static void readings_of_a_layer_are_of_its_window(void)
{
    static const uint64_t windows[2] = {100, 0};
    check_rng rng = {81};
    pimattn_shape shape = shape_of(2, 2, 1, 16, 0);
    shape.windows = windows;
    attn_kv kv = kv_random(&shape, 3000, &rng);
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_seq seq = 0;
    pimattn_readings r[4];
    float q[32] = {0}, out[32];
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    for (uint32_t i = 0; i < 4; i++) {
        if (i < 2) CHECK_U(kv_append(e, seq, i, &kv, 0, 3000), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, i % 2, out, q, &r[i]), PIMATTN_OK);
        CHECK_U(r[i].remembered, i > 1);
    }
    CHECK(r[0].device.cycles * 4 < r[1].device.cycles);
    CHECK_U(r[2].device.cycles, r[0].device.cycles);
    CHECK_U(r[3].device.cycles, r[1].device.cycles);
    CHECK_U(r[0].step_ck, r[1].step_ck);
    CHECK_U(r[0].kv_bytes, 100 * 32 * 2);
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* A prefix reads its rows once for the queries of all, and multiplies no less. */
static void a_prefix_opens_its_rows_once(void)
{
    const uint64_t windows[2] = {0, 3000};
    const pimattn_span alone[4] = {{90, 3}, {4196, 1}, {4100, 1}, {5000, 1}};
    const pimattn_span apart[4] = {{90, 3}, {100, 1}, {4, 1}, {904, 1}};
    const pimattn_span once = {4096, 3};
    const pimattn_span shared[5] = {
        {90, 3}, {4096, PIMATTN_PREFIX + 3}, {100, 1}, {4, 1}, {904, 1}};
    pimattn_shape shape = shape_of(1, 4, 2, 64, 0);
    pimattn_config c = config_of(&shape);
    pimattn_readings r[3], rest, prefix;
    CHECK_U(pimhw_config_init(&c.device, "aimx", NULL), PIMHW_OK);
    c.device.refresh = 0; /* it opens rows again */
    for (uint32_t partition = 0; partition < 2; partition++) {
        c.partition = partition;
        CHECK_U(pimattn_estimate(&r[0], &c, alone, 4, NULL), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&r[1], &c, shared, 5, NULL), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&rest, &c, apart, 4, NULL), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&prefix, &c, &once, 1, NULL), PIMATTN_OK);
        const uint32_t act = PIMHW_CMD_ACT16;
        CHECK_U(r[1].device.commands[act], rest.device.commands[act] + prefix.device.commands[act]);
        CHECK(r[1].device.commands[act] < r[0].device.commands[act] * 3 / 4);
        CHECK_U(r[1].device.useful_macs, r[0].device.useful_macs);
        CHECK_U(r[1].kv_bytes, r[0].kv_bytes - 2 * 4096 * 2 * 128 * 2);
        CHECK_U(r[1].kv_bytes, rest.kv_bytes + prefix.kv_bytes);
        CHECK_U(r[1].kv_tokens, 4096 + 100 + 4 + 904 + 90);
        CHECK_NEAR(r[1].link_ns, r[0].link_ns, 1e-12);
        CHECK_NEAR(r[1].token_pJ * 6, r[1].step_pJ, 1e-9 * r[1].step_pJ);
    }
    /* where there is a window, sequences read what of it they see */
    c.shape.window = 3000;
    c.shape.n_heads = 32; /* of which three tokens make more queries than the buffer holds */
    c.device.controller = PIMHW_DCS;
    CHECK_U(pimattn_estimate(&r[0], &c, alone + 1, 3, NULL), PIMATTN_OK);
    CHECK_U(pimattn_estimate(&r[2], &c, shared + 1, 4, NULL), PIMATTN_OK);
    CHECK_U(r[2].device.cycles, r[0].device.cycles);
    CHECK_U(r[2].kv_bytes, r[0].kv_bytes);
    CHECK_NEAR(r[2].step_pJ, r[0].step_pJ, 0);
    /* .. in that layer alone */
    c.shape.window = 0;
    CHECK_U(pimattn_estimate(&r[1], &c, shared + 1, 4, NULL), PIMATTN_OK);
    c.shape.n_layers = 2;
    c.shape.windows = windows;
    CHECK_U(pimattn_estimate(&r[0], &c, shared + 1, 4, NULL), PIMATTN_OK);
    CHECK_U(r[0].device.cycles, r[1].device.cycles);
    CHECK_U(r[0].step_ck, r[1].device.cycles + r[2].device.cycles);
}

static void same_costs(const pimattn_readings *r, const pimattn_config *c,
                       const pimattn_span *spans, size_t n_spans)
{
    pimattn_readings of;
    CHECK_U(pimattn_estimate(&of, c, spans, n_spans, NULL), PIMATTN_OK);
    CHECK_U(r->step_ck, of.step_ck);
    CHECK_U(r->device.cycles, of.device.cycles);
    CHECK_U(r->kv_tokens, of.kv_tokens);
    CHECK_U(r->kv_bytes, of.kv_bytes);
    CHECK_NEAR(r->step_pJ, of.step_pJ, 0);
    CHECK_NEAR(r->token_pJ, of.token_pJ, 0);
}

/* Forks of one sequence in readings: a prefix, if that is asked for. */
static void items_that_share_pages_can_share_rows(void)
{
    enum { PAGE = 32, N = 1000, FORKS = 5 };
    static const uint64_t windows[2] = {0, 100};
    check_rng rng = {83};
    pimattn_shape shape = shape_of(2, 2, 1, 16, 0);
    shape.windows = windows;
    attn_kv kv = kv_random(&shape, N, &rng);
    pimattn_config c = config_of(&shape);
    c.page_tokens = PAGE;
    float q[FORKS * 2 * 2 * 16] = {0}, out[FORKS * 2 * 2 * 16];
    for (uint32_t share = 0; share < 2; share++) {
        c.share_rows = share;
        pimattn_engine *e = engine_new(&c);
        pimattn_seq s[FORKS] = {0};
        pimattn_readings r, again;
        if (!e) break;
        /* of 700 tokens 21 whole pages; the last item shares 10 of them with the one before */
        CHECK_U(pimattn_seq_create(e, &s[0]), PIMATTN_OK);
        for (uint32_t layer = 0; layer < 2; layer++)
            CHECK_U(kv_append(e, s[0], layer, &kv, 0, 700), PIMATTN_OK);
        for (int i = 1; i < FORKS; i++) {
            CHECK_U(pimattn_seq_fork(e, &s[i], s[0]), PIMATTN_OK);
            if (i == FORKS - 1) CHECK_U(pimattn_seq_truncate(e, s[i], 320), PIMATTN_OK);
            for (uint32_t layer = 0; layer < 2; layer++)
                CHECK_U(kv_append(e, s[i], layer, &kv, 0, (uint64_t)(10 * i)), PIMATTN_OK);
        }
        pimattn_item items[FORKS] = {{s[1], 2}, {s[2], 1}, {s[3], 1}, {s[4], 1}, {s[0], 1}};
        const pimattn_span alone[FORKS] = {{710, 2}, {720, 1}, {730, 1}, {360, 1}, {700, 1}};
        const pimattn_span shared[] = {{672, PIMATTN_PREFIX + 4}, {38, 2}, {48, 1}, {58, 1},
                                       {320, PIMATTN_PREFIX + 2}, {40, 1}, {380, 1}};
        pimattn_call call = {.items = items, .n_items = FORKS, .q = q, .out = out};
        for (uint32_t layer = 0; layer < 2; layer++) {
            CHECK_U(pimattn_attend(e, layer, &call, &r), PIMATTN_OK);
            CHECK_U(pimattn_attend(e, layer, &call, &again), PIMATTN_OK);
            CHECK(!r.remembered && again.remembered);
            CHECK_U(again.step_ck, r.step_ck);
            if (layer == 1) break; /* an estimate is of layer 0 */
            same_costs(&r, &c, share ? shared : alone, share ? COUNT(shared) : FORKS);
        }
        /* all of a run share what its first two do */
        items[0] = items[4];
        items[1] = items[3];
        call.n_items = 3;
        const pimattn_span run[] = {{320, PIMATTN_PREFIX + 3}, {380, 1}, {40, 1}, {410, 1}};
        const pimattn_span each[] = {{700, 1}, {360, 1}, {730, 1}};
        CHECK_U(pimattn_attend(e, 0, &call, &r), PIMATTN_OK);
        same_costs(&r, &c, share ? run : each, share ? 4 : 3);
        /* what begins later shares nothing */
        for (int i = 0; i < FORKS; i++)
            CHECK_U(pimattn_seq_keep(e, s[i], 64, i == 4 ? 360 : 700), PIMATTN_OK);
        const pimattn_span kept[] = {{636, 1}, {296, 1}, {636, 1}};
        CHECK_U(pimattn_attend(e, 0, &call, &r), PIMATTN_OK);
        same_costs(&r, &c, kept, 3);
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
}

/* .. and lists of the caller's pages. */
static void lists_that_share_pages_can_share_rows(void)
{
    enum { PAGE = 4, PAGES = 40 };
    static float rows[PAGES * PAGE * 16], q[5 * 2 * 16], out[5 * 2 * 16];
    uint32_t table[3][PAGES], lengths[3] = {150, 132, 130};
    pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
    pimattn_config c = config_of(&shape);
    c.share_rows = true;
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t k = 0; k < 3; k++)
            table[k][i] = i * 7 % PAGES;
    table[2][31] = 0;
    pimattn_pages p = {.k = {.at = rows}, .v = {.at = rows}, .n_pages = PAGES, .page_tokens = PAGE};
    p.table = table[0];
    p.table_stride = PAGES;
    p.lengths = lengths;
    const pimattn_item items[3] = {{0, 1}, {0, 3}, {0, 1}};
    const pimattn_span two[] = {{128, PIMATTN_PREFIX + 4}, {22, 1}, {4, 3}, {130, 1}};
    const pimattn_span three[] = {{128, PIMATTN_PREFIX + 5}, {22, 1}, {4, 3}, {2, 1}};
    pimattn_call call = {.items = items, .n_items = 3, .q = q, .out = out};
    pimattn_readings r;
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, &r), PIMATTN_OK);
    same_costs(&r, &c, two, COUNT(two));
    table[2][31] = table[1][31];
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, &r), PIMATTN_OK);
    same_costs(&r, &c, three, COUNT(three));
    pimattn_engine_destroy(e);
}

static void bytes_read_follow_int8_and_v_in_k(void)
{
    pimattn_shape shape = shape_of(1, 16, 1, 576, 512);
    CHECK_U(estimate(&shape, 1000, 1).kv_bytes, 1000 * (576 + 512) * 2);
    shape.v_in_k = true;
    CHECK_U(estimate(&shape, 1000, 1).kv_bytes, 1000 * 576 * 2);
    shape.k_type = shape.v_type = PIMATTN_INT8;
    CHECK_U(estimate(&shape, 1000, 1).kv_bytes, 1000 * (576 + 4));
    shape.v_in_k = false;
    CHECK_U(estimate(&shape, 1000, 1).kv_bytes, 1000 * (576 + 512 + 8));
}

/* A byte a lane: half the MACs, and clocks less than f16's but for what both wait for. */
static void int8_is_another_program(void)
{
    pimattn_shape shape = shape_of(1, 8, 8, 128, 128);
    shape.k_type = shape.v_type = PIMATTN_F16;
    pimattn_readings f16 = estimate(&shape, 8192, 1);
    shape.k_type = shape.v_type = PIMATTN_INT8;
    pimattn_readings int8 = estimate(&shape, 8192, 1);
    CHECK(int8.device.commands[PIMHW_CMD_MAC16] > 0);
    CHECK_U(2 * int8.device.commands[PIMHW_CMD_MAC16], f16.device.commands[PIMHW_CMD_MAC16]);
    CHECK(int8.device.cycles < f16.device.cycles);
    shape.v_type = PIMATTN_F16; /* lanes are of one kind */
    CHECK_U(estimate(&shape, 8192, 1).device.cycles, f16.device.cycles);
}

static void v_in_k_stores_no_v(void)
{
    pimattn_shape shape = shape_of(1, 4, 1, 64, 32);
    shape.k_type = shape.v_type = PIMATTN_F16;
    shape.v_in_k = true;
    pimattn_config c = config_of(&shape);
    pimattn_engine *e = engine_new(&c);
    pimattn_seq seq = 0;
    float k[64] = {0};
    if (!e) return;
    CHECK_U(pimattn_page_bytes(e), 128 * 64 * 2);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, seq, 0, k, NULL, 1, 0, 4), PIMATTN_OK); /* a stride of nothing */
    pimattn_engine_destroy(e);
}

/* What no query will see again may go: positions, and so ALiBi and the tree, stay. */
static void kept_range(void)
{
    check_rng rng = {101};
    for (int i = 0; i < 8; i++) {
        scene s;
        uint32_t pages[] = {7, 16, 128};
        do {
            scene_make(&s, WINDOW, i % 2 ? RULE : CAP, &rng);
            if (s.kv.n_tokens > s.n_new + 1) break;
            scene_free(&s);
        } while (true);
        s.shape.n_layers = 1, s.layer = 0;
        uint64_t n = s.kv.n_tokens, old = n - s.n_new, window = s.shape.window;
        uint64_t begin = old >= window ? old - window + 1 : 0;
        s.shape.sink_tokens = i % 4 < 2 ? rng_range(&rng, 0, begin) : 0;
        pimattn_config c = config_of(&s.shape);
        c.page_tokens = pages[i % 3];
        pimattn_engine *e = engine_new(&c);
        pimattn_item item = {0, s.n_new};
        float *want = outputs_new(&s), *out = outputs_new(&s);
        if (!e) return;
        CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(e, item.seq, 0, &s.kv, 0, n), PIMATTN_OK);
        pimattn_call call = call_of(&s, &item, NULL, 0, want);
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(e, item.seq, begin, n), PIMATTN_OK);
        call = call_of(&s, &item, NULL, 0, out);
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
        CHECK_BYTES(out, want, outputs_bytes(&s));
        pimattn_engine_destroy(e);
        free(want);
        free(out);
        scene_free(&s);
    }
}

static void tokens_behind_a_window_may_go(void)
{
    over_kernels(kept_range);
}

/* A saved state holds K alone, and another shape's engine refuses it. */
static void states_of_v_in_k(void)
{
    check_rng rng = {111};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
        pimattn_shape shape = shape_of(1, 2, 1, 32, 16);
        shape.v_in_k = true, shape.k_type = shape.v_type = type;
        attn_kv kv = kv_random(&shape, 200, &rng);
        pimattn_config c = config_of(&shape);
        pimattn_engine *e[3];
        pimattn_seq seq = 0, other = 0;
        float q[64], out[2][32];
        static unsigned char memory[40000];
        pimattn_stream stream;
        uint64_t bytes = 0;
        size_t n_seqs = 0;
        memset(&stream, 0, sizeof stream);
        stream.memory = memory, stream.bytes = sizeof memory;
        fill_normal(q, 64, 1, &rng);
        for (int i = 0; i < 3; i++) {
            c.shape.v_in_k = i < 2;
            c.page_tokens = i ? 24 : 16;
            e[i] = engine_new(&c);
            if (!e[i]) return;
        }
        CHECK_U(pimattn_seq_create(e[0], &seq), PIMATTN_OK);
        CHECK_U(kv_append(e[0], seq, 0, &kv, 0, 200), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e[0], seq, 0, out[0], q, NULL), PIMATTN_OK);
        CHECK_U(pimattn_save(e[0], &seq, 1, NULL, &bytes), PIMATTN_OK);
        CHECK(bytes < 200 * (32 * type_bytes[type] + 4) + 400);
        stream.bytes = bytes;
        CHECK_U(pimattn_save(e[0], &seq, 1, &stream, NULL), PIMATTN_OK);
        CHECK_U(pimattn_restore(e[1], &other, 1, &n_seqs, &stream), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e[1], other, 0, out[1], q, NULL), PIMATTN_OK);
        CHECK_BYTES(out[1], out[0], sizeof out[0]);
        CHECK_U(pimattn_restore(e[2], &other, 1, &n_seqs, &stream), PIMATTN_ERR_STATE);
        CHECK_HAS(pimattn_engine_cause(e[2]), "head_dim_v");
        for (int i = 0; i < 3; i++)
            pimattn_engine_destroy(e[i]);
        kv_free(&kv);
    }
}

/* Heads whose rows lie side by side take turns on a leaf, or each has many leaves by itself: as
 * there is memory for jobs. */
static void pages_are_read_the_same_with_little_scratch(void)
{
    enum { PAGE = 16, PAGES = 193, N = PAGE * PAGES, HEADS = 2 };
    static uint32_t table[PAGES];
    const uint32_t length = N;
    pimattn_shape shape = shape_of(1, HEADS, HEADS, 16, 0);
    check_rng rng = {14};
    attn_kv kv = kv_random(&shape, N, &rng);
    float q[HEADS * 16], out[2][HEADS * 16];
    pimattn_item item = {0, 1};
    pimattn_pages p = {.n_pages = PAGES, .page_tokens = PAGE, .table_stride = PAGES};
    p.k.at = kv.k, p.v.at = kv.v, p.table = table, p.lengths = &length;
    for (uint32_t i = 0; i < PAGES; i++)
        table[i] = i;
    fill_normal(q, COUNT(q), 1, &rng);
    pimattn_config c = config_of(&shape);
    const uint64_t least = least_scratch(c);
    for (uint64_t i = 0; i < 20; i++) {
        pimattn_call call = {.out = out[i > 0], .q = q, .items = &item, .n_items = 1};
        if (i) c.scratch_bytes = least + 1100 * (i - 1);
        pimattn_engine *e = engine_new(&c);
        CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL), PIMATTN_OK);
        if (i) CHECK_BYTES(out[1], out[0], sizeof out[0]);
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
}

/* 2^32 tokens, all in one page: of the least memory for jobs they ask too much. */
static void tokens_beyond_the_scratch_are_refused(void)
{
    enum { PAGE = 1 << 16, PAGES = 1 << 16 };
    static float rows[PAGE];
    static uint32_t table[PAGES];
    pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 1};
    pimattn_config c = config_of(&shape);
    c.scratch_bytes = least_scratch(c);
    pimattn_engine *e = engine_new(&c);
    pimattn_pages p = {.k = {.at = rows}, .v = {.at = rows}, .n_pages = 1, .page_tokens = PAGE};
    const pimattn_item item = {0, 1};
    uint32_t length = UINT32_MAX;
    float q = 1, out = 7;
    pimattn_call call = {.out = &out, .q = &q, .items = &item, .n_items = 1};
    p.table = table, p.table_stride = PAGES, p.lengths = &length;
    if (!e) return;
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "the tokens of item 0 need scratch_bytes of ");
    CHECK_NEAR(out, 7, 0);
    length = 3 * PAGE;
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL), PIMATTN_OK);
    CHECK_NEAR(out, 0, 0);
    pimattn_engine_destroy(e);
    c.pool_bytes = 1 << 16; /* so that little is enough, and is what the cause says */
    c.scratch_bytes = least_scratch(c);
    if (!(e = engine_new(&c))) return;
    length = 1 << 20;
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL), PIMATTN_ERR_ARGUMENT);
    const char *bytes = strrchr(pimattn_engine_cause(e), ' ');
    c.scratch_bytes = bytes ? strtoull(bytes, NULL, 10) : 0;
    pimattn_engine_destroy(e);
    for (int less = 0; less < 2; less++, c.scratch_bytes--) {
        if (!(e = engine_new(&c))) return;
        CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL),
                less ? PIMATTN_ERR_ARGUMENT : PIMATTN_OK);
        pimattn_engine_destroy(e);
    }
}

/* Equal scores, V the position: the output is the mean of what is seen. Behind the
 * first ones so many are held, and of these so many are seen. */
static void stream_tokens(pimattn_engine *e, pimattn_seq seq, uint32_t held, uint32_t seen,
                          uint32_t last, float out[16])
{
    const uint64_t stay = pimattn_engine_config(e)->shape.sink_tokens;
    float q[16] = {0}, k[16] = {0}, v[16];
    pimattn_readings r;
    for (uint32_t t = 0; t < last; t++) {
        double sum = 0, n = 0;
        for (uint32_t i = 0; i <= t; i++)
            if (i < stay || i + seen > t) sum += i, n++;
        for (uint32_t j = 0; j < 16; j++)
            v[j] = (float)t;
        CHECK_U(pimattn_append(e, seq, 0, k, v, 1, 0, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(e, seq, t < held ? 0 : t - held + 1, t + 1), PIMATTN_OK);
        if (!CHECK_U(pimattn_attend_one(e, seq, 0, out, q, &r), PIMATTN_OK)) break;
        CHECK_NEAR(out[0], sum / n, 2e-6 * t);
        CHECK_U(r.device.useful_macs, 2 * 16 * (uint64_t)n);
    }
}

/* A window and the first tokens go on for ever in so many pages, whatever else is let go. */
static void first_tokens_stay_behind_a_window(void)
{
    enum { STAY = 20, NEAR = 4, HELD = 64, LAST = 3000, PAGES = HELD / 16 + 2 + 2 };
    pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16};
    pimattn_config c = config_of(&shape);
    float q[16] = {0}, out[16];
    pimattn_seq seq = 0;
    pimattn_seq_info info;
    c.shape.window = NEAR, c.shape.sink_tokens = STAY;
    c.page_tokens = 16;
    c.pool_bytes = PAGES * 16 * 128;
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    stream_tokens(e, seq, HELD, NEAR, LAST, out);
    CHECK_U(pimattn_seq_query(e, seq, &info), PIMATTN_OK);
    CHECK_U(info.first_token, LAST - HELD);
    CHECK_U(info.pages, 2 + 5); /* 2936 to 2999 */
    static unsigned char memory[1 << 16];
    pimattn_stream stream = {.memory = memory, .bytes = sizeof memory};
    size_t n_seqs = 0;
    uint64_t bytes = 0;
    CHECK_U(pimattn_save(e, &seq, 1, &stream, &bytes), PIMATTN_OK);
    CHECK(bytes > (STAY + HELD) * 128 && bytes < (STAY + HELD) * 128 + 256);
    for (int other = 0; other < 2; other++) { /* one that would not keep them */
        c.shape.sink_tokens = other ? 0 : STAY;
        pimattn_engine *to = engine_new(&c);
        pimattn_seq back = 0;
        if (!to) break;
        pimattn_status status = pimattn_restore(to, &back, 1, &n_seqs, &stream);
        CHECK_U(status, other ? PIMATTN_ERR_STATE : PIMATTN_OK);
        if (other) CHECK_HAS(pimattn_engine_cause(to), "first 20 tokens, sink_tokens is 0");
        float again[16];
        if (!other && CHECK_U(pimattn_attend_one(to, back, 0, again, q, NULL), PIMATTN_OK))
            CHECK_BYTES(again, out, sizeof out);
        CHECK_U(pimattn_pages_used(to), other ? 0 : 7);
        pimattn_engine_destroy(to);
    }
    CHECK_U(pimattn_seq_truncate(e, seq, LAST - HELD), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "more queries");
    pimattn_engine_destroy(e);
}

/* The same in fewer tokens than a leaf has: they lie in three, and memory is the least for jobs. */
static void few_tokens_lie_in_three_leaves(void)
{
    enum { STAY = 16, HELD = 200, LAST = 1124 };
    pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16};
    pimattn_config c = config_of(&shape);
    float out[16];
    pimattn_seq seq = 0;
    c.shape.sink_tokens = STAY;
    c.page_tokens = 16;
    c.pool_bytes = 20 * 16 * 128;
    c.scratch_bytes = least_scratch(c);
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    stream_tokens(e, seq, HELD, HELD, LAST, out);
    pimattn_engine_destroy(e);
}

/* Children that share their first tokens, and nothing else, share these again after a state. */
static void first_tokens_are_shared_again(void)
{
    enum { STAY = 256, CHILDREN = 8, MORE = 64, NEAR = 16 };
    static float k[STAY][16], v[STAY][16];
    static unsigned char memory[1 << 16];
    pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16};
    pimattn_config c = config_of(&shape);
    pimattn_seq parent, child[CHILDREN], back[CHILDREN];
    pimattn_stream stream = {.memory = memory, .bytes = sizeof memory};
    size_t n = 0;
    c.shape.sink_tokens = STAY, c.shape.window = NEAR;
    c.page_tokens = 16;
    c.pool_bytes = (STAY / 16 + 2 * CHILDREN + 4) * 16 * 128;
    pimattn_engine *e = engine_new(&c), *to = engine_new(&c);
    if (!e || !to) return;
    CHECK_U(pimattn_seq_create(e, &parent), PIMATTN_OK);
    CHECK_U(pimattn_append(e, parent, 0, k[0], v[0], STAY, 0, 0), PIMATTN_OK);
    for (int i = 0; i < CHILDREN; i++)
        CHECK_U(pimattn_seq_fork(e, &child[i], parent), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(e, parent), PIMATTN_OK);
    for (int i = 0; i < CHILDREN; i++) {
        const uint64_t end = STAY + MORE + (uint64_t)i;
        CHECK_U(pimattn_append(e, child[i], 0, k[0], v[0], end - STAY, 0, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(e, child[i], end - NEAR, end), PIMATTN_OK);
    }
    CHECK_U(pimattn_save(e, NULL, 0, &stream, NULL), PIMATTN_OK);
    CHECK_U(pimattn_restore(to, back, CHILDREN, &n, &stream), PIMATTN_OK);
    CHECK_U(n, CHILDREN);
    CHECK_U(pimattn_pages_used(to), pimattn_pages_used(e));
    pimattn_engine_destroy(e);
    pimattn_engine_destroy(to);
}

/* Likewise: kept tokens end between the first token held and the window, far from position 0, and
 * there is the least memory for jobs. */
static void kept_tokens_end_among_those_held(void)
{
    enum { KEPT = 3000, NEAR = 4, HELD = 64 };
    static float k[HELD][16], v[HELD][16];
    pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 16};
    pimattn_config c = config_of(&shape);
    float q[16] = {0}, out[16];
    c.shape.window = NEAR, c.shape.sink_tokens = KEPT;
    c.scratch_bytes = least_scratch(c);
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    pimattn_pages p;
    pimattn_item item = {0, 1};
    pimattn_call call;
    uint32_t table[4] = {0, 1, 2, 3}, length = HELD;
    uint64_t position = KEPT - 20;
    memset(&p, 0, sizeof p);
    memset(&call, 0, sizeof call);
    for (uint32_t t = 0; t < HELD; t++)
        for (uint32_t j = 0; j < 16; j++)
            v[t][j] = (float)t;
    p.k.at = k, p.v.at = v, p.n_pages = HELD / 16, p.page_tokens = 16;
    p.table = table, p.lengths = &length, p.table_stride = 4, p.first_position = &position;
    call.items = &item, call.n_items = 1, call.q = q, call.out = out;
    CHECK_U(pimattn_attend_pages(e, 0, &p, &call, NULL), PIMATTN_OK);
    CHECK_NEAR(out[0], (190 + 60 + 61 + 62 + 63) / 24.0, 1e-4);
    pimattn_engine_destroy(e);
}

int main(void)
{
    RUN(tanh_keeps_its_relative_bound);
    RUN(every_pair_of_variants_agrees_with_float64);
    RUN(bits_of_variants_do_not_hang_on_pages_workers_or_calls);
    RUN(a_sink_logit_counts_once_however_many_leaves);
    RUN(a_fully_masked_row_gives_zeros);
    RUN(a_mask_of_whole_words_has_no_other);
    RUN(branches_of_a_tree_are_as_if_alone);
    RUN(trees_reach_what_their_positions_say);
    RUN(a_sink_of_minus_infinity_is_none);
    RUN(an_overflowing_score_is_nan_under_a_soft_cap);
    RUN(pages_of_the_caller_give_the_bytes_of_the_cache);
    RUN(v_in_k_in_pages_of_the_caller);
    RUN(many_heads_take_turns);
    RUN(nothing_behind_the_last_token_is_read);
    RUN(windows_merge_by_the_tree_of_absolute_leaves);
    RUN(pages_are_read_the_same_with_little_scratch);
    RUN(tokens_beyond_the_scratch_are_refused);
    RUN(kept_tokens_end_among_those_held);
    RUN(first_tokens_stay_behind_a_window);
    RUN(few_tokens_lie_in_three_leaves);
    RUN(first_tokens_are_shared_again);
    RUN(bad_pages_are_refused_in_words);
    RUN(indptr_is_judged_before_indices_are_read);
    RUN(bad_positions_are_refused_in_words);
    RUN(int8_pages_without_scales_are_refused);
    RUN(alibi_counts_both_ways_in_every_kernel);
    RUN(bad_variants_are_named);
    RUN(the_device_way_has_the_same_variants);
    RUN(a_window_costs_what_its_tokens_cost);
    RUN(the_host_reads_what_all_layers_see);
    RUN(windows_of_layers_sum_up);
    RUN(every_window_takes_its_cheapest_mapping);
    RUN(readings_of_a_layer_are_of_its_window);
    RUN(a_prefix_opens_its_rows_once);
    RUN(items_that_share_pages_can_share_rows);
    RUN(lists_that_share_pages_can_share_rows);
    RUN(bytes_read_follow_int8_and_v_in_k);
    RUN(int8_is_another_program);
    RUN(v_in_k_stores_no_v);
    RUN(tokens_behind_a_window_may_go);
    RUN(states_of_v_in_k);
    return check_end();
}
