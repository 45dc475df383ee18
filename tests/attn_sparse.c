/* Sparse attention: a choice of tokens against float64 and against the same tokens seen for other
 * reasons; retrieval by page bounds; probabilities. */
#define _DEFAULT_SOURCE
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { MOST_HEADS = 20, MOST_NEW = 40 };

/* A shape, its tokens, queries for the newest, and which tokens take part. */
typedef struct scene {
    pimattn_shape shape;
    uint32_t page_tokens;
    attn_kv kv;
    uint64_t n_new;
    float *q;
    float slopes[MOST_HEADS];
    pimattn_choice choice;
} scene;

static bool chosen(const pimattn_choice *c, uint32_t kv_head, uint64_t t)
{
    size_t stride = c->stride ? c->stride : (size_t)(c->n_tokens + 63) / 64;
    if (t >= c->n_tokens) return true;
    return c->bits[(c->n_kv_heads == 1 ? 0 : kv_head) * stride + t / 64] >> t % 64 & 1;
}

static bool in_window(const pimattn_shape *s, uint64_t own, uint64_t t)
{
    return t <= own && (s->window == 0 || t + s->window > own || t < s->sink_tokens);
}

static void choose(pimattn_choice *c, uint32_t kv_head, uint64_t t, bool on)
{
    uint64_t *word = &c->bits[kv_head * c->stride + t / 64], bit = (uint64_t)1 << t % 64;
    *word = on ? *word | bit : *word & ~bit;
}

/* Room for n tokens of every KV head, none of them chosen, and some words between. */
static pimattn_choice choice_new(const pimattn_shape *s, uint64_t n)
{
    pimattn_choice c = {NULL, n, (size_t)(n + 63) / 64 + 1, s->n_kv_heads};
    c.bits = (uint64_t *)check_alloc(c.stride * s->n_kv_heads, sizeof(uint64_t));
    memset(c.bits, 0, c.stride * s->n_kv_heads * sizeof(uint64_t));
    return c;
}

/* One in so many tokens, or runs of them; 0: none. */
static void choose_some(pimattn_choice *c, uint64_t one_in, check_rng *rng)
{
    for (uint32_t h = 0; h < c->n_kv_heads; h++)
        for (uint64_t t = 0, n; t < c->n_tokens; t += n) {
            bool on = one_in && rng_range(rng, 1, one_in) == 1;
            n = rng_range(rng, 0, 1) ? rng_range(rng, 1, 90) : 1;
            for (uint64_t i = t; i < t + n && i < c->n_tokens; i++)
                choose(c, h, i, on);
        }
}

static scene scene_new(const pimattn_shape *shape, uint64_t n_tokens, uint64_t n_new,
                       check_rng *rng)
{
    scene s;
    memset(&s, 0, sizeof s);
    s.shape = *shape;
    s.kv = kv_random(shape, n_tokens, rng);
    s.n_new = n_new;
    s.q = (float *)check_alloc(n_new * shape->n_heads * shape->head_dim, sizeof(float));
    fill_normal(s.q, n_new * shape->n_heads * shape->head_dim, 1, rng);
    s.choice = choice_new(shape, n_tokens);
    return s;
}

static void scene_free(scene *s)
{
    kv_free(&s->kv);
    free(s->q);
    free(s->choice.bits);
}

/* Any shape that a choice must get along with. */
static scene scene_random(check_rng *rng)
{
    static const uint32_t dims[] = {1, 7, 16, 32, 64, 80};
    static const uint32_t pages[] = {1, 7, 16, 24, 40, 64, 128, 256};
    uint32_t kv_heads = (uint32_t)rng_range(rng, 1, 3), group = (uint32_t)rng_range(rng, 1, 2);
    pimattn_shape shape = shape_of(1, kv_heads * group, kv_heads, dims[rng_range(rng, 0, 5)],
                                   dims[rng_range(rng, 0, 5)]);
    shape.k_type = (uint32_t)rng_range(rng, 0, 3);
    shape.v_type = (uint32_t)rng_range(rng, 0, 3);
    if (rng_range(rng, 0, 2) == 0) shape.window = rng_range(rng, 1, 900);
    if (shape.window && rng_range(rng, 0, 1)) shape.sink_tokens = rng_range(rng, 1, 40);
    if (rng_range(rng, 0, 2) == 0) shape.soft_cap = 5.0f;
    if (rng_range(rng, 0, 2) == 0) shape.alibi_max_bias = 1.0f;
    uint64_t n = rng_range(rng, 0, 3) ? rng_range(rng, 1, 700) : rng_range(rng, 600, 2300);
    uint64_t most_new = n < MOST_NEW ? n : MOST_NEW;
    scene s = scene_new(&shape, n, rng_range(rng, 0, 1) ? 1 : rng_range(rng, 1, most_new), rng);
    s.page_tokens = pages[rng_range(rng, 0, 7)];
    if (rng_range(rng, 0, 3) == 0) s.choice.n_kv_heads = 1;
    if (rng_range(rng, 0, 3) == 0) s.choice.n_tokens = rng_range(rng, 0, n);
    if (rng_range(rng, 0, 3) == 0) s.choice.stride = (size_t)(s.choice.n_tokens + 63) / 64;
    choose_some(&s.choice, rng_range(rng, 0, 1) ? rng_range(rng, 0, 3) : 60, rng);
    return s;
}

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
static double exact_score(const scene *s, uint64_t own, uint32_t head, uint64_t t, double *size)
{
    const pimattn_shape *shape = &s->shape;
    uint32_t group = shape->n_heads / shape->n_kv_heads, dim = shape->head_dim;
    const float *q = s->q + ((own - (s->kv.n_tokens - s->n_new)) * shape->n_heads + head) * dim;
    const double *k = s->kv.k_kept + t * s->kv.k_row + (size_t)(head / group) * dim;
    double scale = shape->scale != 0 ? (double)shape->scale : 1 / sqrt((double)dim);
    double x = 0, terms = 0, bias = slope_of(shape, head) * (double)(own - t);
    for (uint32_t i = 0; i < dim; i++) {
        x += (double)q[i] * k[i] * scale;
        terms += fabs((double)q[i] * k[i] * scale);
    }
    if (shape->soft_cap > 0) x = (double)shape->soft_cap * tanh(x / (double)shape->soft_cap);
    *size = fmax(terms, bias);
    return x - bias;
}

/* Probabilities of one query and head in float64 over what it sees; the number seen. */
static uint64_t exact_weights(const scene *s, uint64_t i, uint32_t head, double *p, double *size)
{
    uint64_t own = s->kv.n_tokens - s->n_new + i, n = 0;
    uint32_t kv_head = head / (s->shape.n_heads / s->shape.n_kv_heads);
    double top = -HUGE_VAL, l = 0, its;
    *size = 0;
    for (uint64_t t = 0; t < s->kv.n_tokens; t++) {
        bool seen = in_window(&s->shape, own, t) && chosen(&s->choice, kv_head, t);
        p[t] = seen ? exact_score(s, own, head, t, &its) : -HUGE_VAL;
        if (!seen) continue;
        n++;
        top = fmax(top, p[t]);
        *size = fmax(*size, its);
    }
    for (uint64_t t = 0; t < s->kv.n_tokens; t++)
        l += p[t] = n ? exp(p[t] - top) : 0;
    for (uint64_t t = 0; t < s->kv.n_tokens; t++)
        p[t] = n ? p[t] / l : 0;
    return n;
}

static void check_against_float64(const scene *s, const float *out, const float *lse)
{
    const pimattn_shape *shape = &s->shape;
    uint32_t group = shape->n_heads / shape->n_kv_heads, dv = s->kv.dv;
    double *p = (double *)check_alloc(s->kv.n_tokens, sizeof(double)), size;
    for (uint64_t i = 0; i < s->n_new; i++)
        for (uint32_t h = 0; h < shape->n_heads; h++) {
            uint64_t n = exact_weights(s, i, h, p, &size);
            if (n == 0) CHECK(lse[i * shape->n_heads + h] == -HUGE_VALF);
            for (uint32_t j = 0; j < dv; j++) {
                double x = 0, max_v = 0;
                for (uint64_t t = 0; t < s->kv.n_tokens; t++) {
                    double v = s->kv.v_kept[t * s->kv.v_row + (size_t)(h / group) * dv + j];
                    if (p[t] > 0) x += p[t] * v;
                    if (p[t] > 0) max_v = fmax(max_v, fabs(v));
                }
                CHECK_NEAR(out[(i * shape->n_heads + h) * dv + j], x, (2e-6 + 2e-7 * size) * max_v);
            }
        }
    free(p);
}

static pimattn_engine *scene_engine(const scene *s, pimattn_seq *seq)
{
    pimattn_config config = config_of(&s->shape);
    config.page_tokens = s->page_tokens;
    pimattn_engine *engine = engine_new(&config);
    if (!engine) return NULL;
    CHECK_U(pimattn_seq_create(engine, seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, *seq, 0, &s->kv, 0, s->kv.n_tokens), PIMATTN_OK);
    return engine;
}

static pimattn_call scene_call(const scene *s, const pimattn_item *item, float *out, float *lse)
{
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out;
    call.lse = lse;
    call.q = s->q;
    call.items = item;
    call.n_items = 1;
    call.choices = &s->choice;
    return call;
}

static float *rows_new(const scene *s)
{
    return (float *)check_alloc(s->n_new * s->shape.n_heads * (s->kv.dv + 1), sizeof(float));
}

static size_t rows_bytes(const scene *s)
{
    return s->n_new * s->shape.n_heads * (s->kv.dv + 1) * sizeof(float);
}

/* Outputs, then log-sum-exps. */
static float *scene_attend(const scene *s)
{
    pimattn_item item = {0, s->n_new};
    pimattn_engine *engine = scene_engine(s, &item.seq);
    float *out = rows_new(s);
    pimattn_call call = scene_call(s, &item, out, out + s->n_new * s->shape.n_heads * s->kv.dv);
    if (engine) CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
    pimattn_engine_destroy(engine);
    return out;
}

/* -- choices -- */

static void equals_float64(void)
{
    check_rng rng = {71};
    for (int i = 0; i < 60; i++) {
        scene s = scene_random(&rng);
        float *out = scene_attend(&s);
        check_against_float64(&s, out, out + s.n_new * s.shape.n_heads * s.kv.dv);
        free(out);
        scene_free(&s);
    }
}

static void chosen_tokens_equal_float64(void)
{
    over_kernels(equals_float64);
}

/* What no head chose may hold anything, and pages of any size give the same bits. */
static void bits(void)
{
    static const uint32_t pages[] = {1, 7, 16, 24, 128, 256};
    check_rng rng = {72};
    for (int i = 0; i < 12; i++) {
        scene s = scene_random(&rng);
        float *first = scene_attend(&s);
        for (uint64_t t = 0; t < s.kv.n_tokens; t++)
            for (uint32_t h = 0; h < s.shape.n_kv_heads; h++) {
                if (chosen(&s.choice, h, t)) continue;
                s.kv.k[t * s.kv.k_row + (size_t)h * s.shape.head_dim] = bits_float(NAN_BITS);
                s.kv.v[t * s.kv.v_row + (size_t)h * s.kv.dv] = bits_float(NAN_BITS);
            }
        for (size_t p = 0; p < COUNT(pages); p++) {
            s.page_tokens = pages[p];
            float *out = scene_attend(&s);
            CHECK_BYTES(out, first, rows_bytes(&s));
            free(out);
        }
        free(first);
        scene_free(&s);
    }
}

static void tokens_not_chosen_are_not_read(void)
{
    over_kernels(bits);
}

/* The last tokens by a window, and by a choice; the sinks too. */
static void a_window_is_a_choice(void)
{
    check_rng rng = {73};
    for (uint32_t i = 0; i < 20; i++) {
        pimattn_shape shape = shape_of(1, 4, 2, i % 2 ? 32 : 20, 0);
        shape.k_type = i % 4;
        uint64_t n = rng_range(&rng, 1, 1800);
        scene s = scene_new(&shape, n, 1, &rng);
        s.shape.window = rng_range(&rng, 1, n);
        s.shape.sink_tokens = rng_range(&rng, 0, 30);
        pimattn_choice choice = s.choice, all = {NULL, 0, 0, 0};
        for (uint64_t t = 0; t < n; t++)
            for (uint32_t h = 0; h < 2; h++)
                choose(&choice, h, t, in_window(&s.shape, n - 1, t));
        s.choice = all;
        float *by_window = scene_attend(&s);
        s.choice = choice;
        s.shape.window = s.shape.sink_tokens = 0;
        float *by_choice = scene_attend(&s);
        CHECK_BYTES(by_choice, by_window, rows_bytes(&s));
        free(by_window);
        free(by_choice);
        scene_free(&s);
    }
}

/* All tokens are queries and the last one's mask says what the choice says. */
static void a_mask_is_a_choice(void)
{
    check_rng rng = {74};
    for (int i = 0; i < 10; i++) {
        pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
        uint64_t n = rng_range(&rng, 1, 600);
        scene s = scene_new(&shape, n, 1, &rng), wide;
        choose_some(&s.choice, 3, &rng);
        float *by_choice = scene_attend(&s);
        wide = s;
        wide.n_new = n;
        wide.q = (float *)check_alloc(n * 32, sizeof(float));
        for (uint64_t t = 0; t < n; t++)
            memcpy(wide.q + t * 32, s.q, 32 * sizeof(float));
        size_t words = (size_t)(n + 63) / 64;
        pimattn_mask mask = {(uint64_t *)check_alloc(n * words, sizeof(uint64_t)), n, NULL};
        for (uint64_t t = 0; t < n; t++)
            memcpy((uint64_t *)(uintptr_t)mask.bits + t * words, s.choice.bits,
                   words * sizeof(uint64_t));
        pimattn_item item = {0, n};
        pimattn_engine *engine = scene_engine(&s, &item.seq);
        float *out = rows_new(&wide);
        pimattn_call call = scene_call(&wide, &item, out, out + n * 32);
        call.choices = NULL;
        call.masks = &mask;
        if (engine) CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        CHECK_BYTES(by_choice, out + (n - 1) * 32, 32 * sizeof(float));
        pimattn_engine_destroy(engine);
        free((uint64_t *)(uintptr_t)mask.bits);
        free(wide.q);
        free(out);
        free(by_choice);
        scene_free(&s);
    }
}

/* Workers that come in the wrong order. */
static void backwards(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    for (size_t i = n; i > 0; i--)
        fn(arg, i - 1, (i * 7) % *(size_t *)user);
}

static void threads_and_batches_change_no_bit(void)
{
    check_rng rng = {75};
    size_t workers = 5;
    for (int i = 0; i < 10; i++) {
        scene s = scene_random(&rng);
        float *alone = scene_attend(&s), *out = (float *)check_alloc(2, rows_bytes(&s));
        pimattn_config config = config_of(&s.shape);
        config.max_workers = (uint32_t)workers;
        config.parallel_for = backwards;
        config.parallel_user = &workers;
        pimattn_engine *engine = engine_new(&config);
        pimattn_item items[2] = {{0, s.n_new}, {0, s.n_new}};
        pimattn_choice choices[2] = {{NULL, 0, 0, 0}, s.choice}; /* the mate sees all */
        size_t q = s.n_new * s.shape.n_heads * s.shape.head_dim, row = s.shape.n_heads * s.kv.dv;
        float *twice = (float *)check_alloc(2 * q, sizeof(float));
        memcpy(twice, s.q, q * sizeof(float));
        memcpy(twice + q, s.q, q * sizeof(float));
        pimattn_call call = scene_call(&s, items, out, NULL);
        call.q = twice;
        call.n_items = 2;
        call.choices = choices;
        if (engine) {
            CHECK_U(pimattn_seq_create(engine, &items[0].seq), PIMATTN_OK);
            items[1].seq = items[0].seq;
            CHECK_U(kv_append(engine, items[0].seq, 0, &s.kv, 0, s.kv.n_tokens), PIMATTN_OK);
            CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
            CHECK_BYTES(out + s.n_new * row, alone, s.n_new * row * sizeof(float));
        }
        pimattn_engine_destroy(engine);
        free(twice);
        free(alone);
        free(out);
        scene_free(&s);
    }
}

#if defined(__unix__) || defined(__APPLE__)
/* Pages of the caller of which those without a chosen token cannot be read at all. */
static void unread_pages_may_be_unreadable(void)
{
    enum { PAGE = 64, DIM = 32, N_PAGES = 40, TOKENS = N_PAGES * PAGE - 5 };
    check_rng rng = {76};
    size_t step = (size_t)sysconf(_SC_PAGESIZE);
    if (!CHECK(step % (PAGE * DIM * sizeof(float)) == 0 || step >= 4096)) return;
    while (step < PAGE * DIM * sizeof(float))
        step *= 2;
    pimattn_shape shape = shape_of(1, 2, 1, DIM, 0);
    scene s = scene_new(&shape, TOKENS, 1, &rng);
    unsigned char *memory = (unsigned char *)mmap(NULL, 2 * N_PAGES * step, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(memory != (unsigned char *)MAP_FAILED)) return;
    uint32_t indptr[2] = {0, N_PAGES}, indices[N_PAGES], last = PAGE - 5;
    for (uint32_t p = 0; p < N_PAGES; p++) {
        uint64_t n = p + 1 < N_PAGES ? PAGE : last;
        bool on = p % 3 == 1;
        indices[p] = p;
        memcpy(memory + p * step, s.kv.k + p * PAGE * DIM, n * DIM * sizeof(float));
        memcpy(memory + (N_PAGES + p) * step, s.kv.v + p * PAGE * DIM, n * DIM * sizeof(float));
        for (uint64_t t = 0; t < n && on; t++)
            choose(&s.choice, 0, p * PAGE + t, t % 48 != 5);
        if (on) continue;
        CHECK(mprotect(memory + p * step, step, PROT_NONE) == 0);
        CHECK(mprotect(memory + (N_PAGES + p) * step, step, PROT_NONE) == 0);
    }
    pimattn_pages pages;
    memset(&pages, 0, sizeof pages);
    pages.k.at = memory;
    pages.v.at = memory + N_PAGES * step;
    pages.k.page = pages.v.page = step;
    pages.n_pages = N_PAGES;
    pages.page_tokens = PAGE;
    pages.indptr = indptr;
    pages.indices = indices;
    pages.last_page_len = &last;
    float *cached = scene_attend(&s), *out = rows_new(&s);
    pimattn_item item = {0, 1};
    pimattn_call call = scene_call(&s, &item, out, out + 2 * DIM);
    pimattn_engine *engine = scene_engine(&s, &item.seq);
    if (engine) CHECK_U(pimattn_attend_pages(engine, 0, &pages, &call, NULL), PIMATTN_OK);
    CHECK_BYTES(out, cached, rows_bytes(&s));
    pimattn_engine_destroy(engine);
    munmap(memory, 2 * N_PAGES * step);
    free(cached);
    free(out);
    scene_free(&s);
}
#endif

/* Tokens dealt to four choices make four partials of one attention; one of them is empty. */
static void partials_of_choices_merge(void)
{
    enum { HEADS = 4, DIM = 24, TOKENS = 1500, PARTS = 4 };
    check_rng rng = {77};
    pimattn_shape shape = shape_of(1, HEADS, 2, DIM, 0);
    scene s = scene_new(&shape, TOKENS, 1, &rng);
    pimattn_choice parts[PARTS];
    pimattn_partial sum[HEADS], its[HEADS];
    float o[2][HEADS][DIM], out[HEADS * DIM], lse[HEADS];
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = choice_new(&shape, TOKENS);
    for (uint64_t t = 0; t < TOKENS; t++) {
        uint64_t part = rng_range(&rng, 0, PARTS - 2);
        for (uint32_t h = 0; h < 2; h++)
            choose(&parts[part], h, t, true);
    }
    pimattn_item item = {0, 1};
    pimattn_engine *engine = scene_engine(&s, &item.seq);
    for (uint32_t h = 0; h < HEADS; h++) {
        pimattn_partial to = {0, 0, o[0][h], DIM}, from = {0, 0, o[1][h], DIM};
        pimattn_partial_clear(&to);
        sum[h] = to;
        its[h] = from;
    }
    for (uint32_t i = 0; i < PARTS && engine; i++) {
        pimattn_call call = scene_call(&s, &item, NULL, NULL);
        call.partials = its;
        call.choices = &parts[i];
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        for (uint32_t h = 0; h < HEADS; h++) {
            CHECK((its[h].l == 0.0f) == (i == PARTS - 1));
            CHECK_U(pimattn_partial_merge(&sum[h], &its[h]), PIMATTN_OK);
        }
    }
    for (uint32_t h = 0; h < HEADS; h++) {
        pimattn_partial_output(&sum[h], out + h * DIM);
        lse[h] = pimattn_partial_lse(&sum[h]);
    }
    check_row(&s.kv, TOKENS, s.q, out, lse);
    pimattn_engine_destroy(engine);
    for (uint32_t i = 0; i < PARTS; i++)
        free(parts[i].bits);
    scene_free(&s);
}

/* Readings are those of as many tokens as the heads choose on average. */
static void readings_are_of_the_tokens_chosen(void)
{
    check_rng rng = {78};
    for (uint32_t i = 0; i < 6; i++) {
        pimattn_shape shape = shape_of(1, 8, 4, 64, 0);
        shape.window = i % 2 ? 700 : 0;
        scene s = scene_new(&shape, 1000 + 300 * i, 1 + i % 3, &rng);
        choose_some(&s.choice, i == 5 ? 0 : 4, &rng);
        uint64_t n = 0, last = s.kv.n_tokens - 1;
        for (uint64_t t = 0; t <= last; t++)
            for (uint32_t h = 0; h < 4; h++) {
                bool seen = in_window(&shape, last, t) || in_window(&shape, last - s.n_new + 1, t);
                n += (seen || t > last - s.n_new) && chosen(&s.choice, h, t);
            }
        pimattn_span span = {(n + 3) / 4 > s.n_new ? (n + 3) / 4 : s.n_new, s.n_new};
        pimattn_item item = {0, s.n_new};
        pimattn_readings r, want;
        pimattn_config config = config_of(&shape);
        pimattn_engine *engine = scene_engine(&s, &item.seq);
        float *out = rows_new(&s);
        pimattn_call call = scene_call(&s, &item, out, NULL);
        if (engine) CHECK_U(pimattn_attend(engine, 0, &call, &r), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&want, &config, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(r.kv_tokens, span.context_tokens);
        CHECK_U(r.kv_bytes, want.kv_bytes);
        CHECK_U(r.kv_bytes, span.context_tokens * 4 * 128 * 2);
        CHECK_U(r.device.cycles, want.device.cycles);
        CHECK_U(r.step_ck, want.step_ck);
        free(out);
        pimattn_engine_destroy(engine);
        scene_free(&s);
    }
}

/* A step is of what layers of every window see of the choice, whichever layer is asked. */
static void layers_of_another_window_see_more_of_a_choice(void)
{
    check_rng rng = {79};
    static const uint64_t windows[2] = {64, 0};
    for (uint32_t all = 0; all < 2; all++) {
        pimattn_shape shape = shape_of(2, 1, 1, 16, 0);
        scene s = scene_new(&shape, 5000, 1, &rng);
        s.shape.windows = windows;
        choose_some(&s.choice, 3, &rng);
        if (all) s.choice.n_tokens = 0;
        pimattn_item item = {0, 1};
        pimattn_engine *engine = scene_engine(&s, &item.seq);
        if (!engine) return;
        CHECK_U(kv_append(engine, item.seq, 1, &s.kv, 0, 5000), PIMATTN_OK);
        uint64_t seen[2] = {0, 0}, step_ck = 0, bytes = 0;
        for (uint64_t t = 0; t < 5000; t++)
            for (uint32_t i = 0; i < 2; i++)
                seen[i] += (i == 1 || t >= 5000 - 64) && chosen(&s.choice, 0, t);
        for (uint32_t i = 0; i < 2; i++) {
            pimattn_config config = config_of(&shape);
            pimattn_span span = {seen[i], 1};
            pimattn_readings want;
            CHECK_U(pimattn_estimate(&want, &config, &span, 1, NULL), PIMATTN_OK);
            step_ck += want.device.cycles;
            bytes += want.kv_bytes;
        }
        float *out = rows_new(&s);
        pimattn_call call = scene_call(&s, &item, out, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            pimattn_readings r;
            CHECK_U(pimattn_attend(engine, i % 2, &call, &r), PIMATTN_OK);
            CHECK_U(r.step_ck, step_ck);
            CHECK_U(r.kv_tokens, seen[i % 2]);
            CHECK_NEAR(r.speedup,
                       (double)bytes / 2 * 1e3 / pimattn_engine_config(engine)->device.host_MBps /
                           (r.layer_ns + r.link_ns),
                       1e-9);
        }
        free(out);
        pimattn_engine_destroy(engine);
        scene_free(&s);
    }
}

static void bad_choices_are_refused(void)
{
    check_rng rng = {79};
    pimattn_shape shape = shape_of(1, 4, 2, 16, 0);
    scene s = scene_new(&shape, 200, 1, &rng);
    pimattn_item item = {0, 1};
    pimattn_engine *engine = scene_engine(&s, &item.seq);
    float *out = rows_new(&s), *before = rows_new(&s);
    fill_normal(out, rows_bytes(&s) / sizeof(float), 1, &rng);
    memcpy(before, out, rows_bytes(&s));
    pimattn_call call = scene_call(&s, &item, out, out + 64);
    const pimattn_choice good = s.choice;
    uint64_t *const words = good.bits;
    const pimattn_choice bad[] = {{NULL, 200, 0, 2},         {words, 200, 0, 0},
                                  {words, 200, 0, 3},        {words, 200, 3, 2},
                                  {words, 200, 3, 1},        {words, (1ull << 32) + 1, 0, 1},
                                  {words, UINT64_MAX, 0, 2}, {words, 200, SIZE_MAX, 2}};
    const char *const say[] = {"no bits", "KV heads", "KV heads",      "stride",
                               "stride",  "beyond",   "beyond memory", "beyond memory"};
    for (size_t i = 0; i < COUNT(bad) && engine; i++) {
        s.choice = bad[i];
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
        CHECK_HAS(pimattn_engine_cause(engine), say[i]);
        CHECK_BYTES(out, before, rows_bytes(&s));
    }
    s.choice = good;
    pimattn_engine_destroy(engine);
    pimattn_config config = config_of(&shape);
    config.way = PIMATTN_DEVICE;
    engine = engine_new(&config);
    if (engine) {
        CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, item.seq, 0, &s.kv, 0, 200), PIMATTN_OK);
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_ERR_DEVICE);
        CHECK_HAS(pimattn_engine_cause(engine), "host way");
        CHECK_BYTES(out, before, rows_bytes(&s));
    }
    pimattn_engine_destroy(engine);
    free(out);
    free(before);
    scene_free(&s);
}

/* -- pages by bounds -- */

/* One query; no choice yet; sometimes a negative scale and slopes of any sign. */
static scene scene_newest(check_rng *rng)
{
    scene s = scene_random(rng);
    size_t q_row = (size_t)s.shape.n_heads * s.shape.head_dim;
    memmove(s.q, s.q + (s.n_new - 1) * q_row, q_row * sizeof(float));
    s.n_new = 1;
    free(s.choice.bits);
    s.choice = choice_new(&s.shape, s.kv.n_tokens);
    if (rng_range(rng, 0, 3) == 0) s.shape.scale = -0.3f;
    if (rng_range(rng, 0, 3)) return s;
    for (uint32_t h = 0; h < s.shape.n_heads; h++)
        s.slopes[h] = rng_float(rng, -0.1, 0.1);
    s.shape.alibi_max_bias = 0;
    return s;
}

/* The caller's slopes lie in the scene. */
static const scene *scene_slopes(scene *s)
{
    for (uint32_t h = 0; h < s->shape.n_heads; h++)
        if (s->slopes[h] != 0.0f) s->shape.alibi_slopes = s->slopes;
    s->kv.shape = s->shape;
    return s;
}

/*
 * The bound of a page as its definition says, in float64; *n: tokens seen of it; *room, if given:
 * rounding and what is added for it, of the least and largest products and of what follows.
 */
static double page_bound(const scene *s, uint32_t kv_head, uint64_t page, uint64_t *n, double *room)
{
    const pimattn_shape *shape = &s->shape;
    uint32_t group = shape->n_heads / shape->n_kv_heads, dim = shape->head_dim;
    uint64_t own = s->kv.n_tokens - 1, first = page * s->page_tokens, end = first + s->page_tokens;
    double scale = shape->scale != 0 ? (double)shape->scale : 1 / sqrt((double)dim);
    double most = -HUGE_VAL;
    *n = 0;
    for (uint64_t t = first; t < end; t++)
        *n += in_window(shape, own, t);
    for (uint32_t h = kv_head * group; h < (kv_head + 1) * group && *n; h++) {
        double x = 0, size = 0, slope = slope_of(shape, h);
        for (uint32_t i = 0; i < dim; i++) {
            double best = -HUGE_VAL, least = HUGE_VAL;
            for (uint64_t t = first; t < end; t++) {
                if (!in_window(shape, own, t)) continue;
                double product = scale * (double)s->q[h * dim + i] *
                                 s->kv.k_kept[t * s->kv.k_row + kv_head * dim + i];
                best = fmax(best, product);
                least = fmin(least, product);
            }
            x += best;
            size += fabs(best) + fabs(least);
        }
        if (shape->soft_cap > 0) x = (double)shape->soft_cap * tanh(x / (double)shape->soft_cap);
        double near = end - 1 < own ? (double)(own - end + 1) : 0, far = (double)(own - first);
        double bias = slope < 0 ? slope * far : slope * near;
        double slack = size * (dim / 16 + 16) / (1 << 21) + 2e-6 * (fabs(x) + fabs(bias));
        if (room) *room = fmax(*room, slack);
        most = fmax(most, x - bias);
    }
    return most;
}

/* Whether a choice is of whole pages, of the best ones, and of no more than it takes. */
static void check_retrieved(const scene *s, uint32_t kv_head, uint32_t c, double left_out)
{
    uint64_t own = s->kv.n_tokens - 1, all = 0, taken = 0, last = 0, n,
             newest = own / s->page_tokens;
    double worst_taken = HUGE_VAL, best_left = -HUGE_VAL, room = 0;
    for (uint64_t page = 0; page <= newest; page++) {
        double bound = page_bound(s, kv_head, page, &n, &room);
        uint64_t on = 0;
        for (uint64_t t = page * s->page_tokens; t < (page + 1) * s->page_tokens; t++)
            on += t <= own && chosen(&s->choice, kv_head, t);
        CHECK(on == 0 || on == n);
        all += n;
        taken += on;
        if (page == newest) CHECK(on == n);
        if (n && on == 0) best_left = fmax(best_left, bound);
        if (on == 0 || page == newest || bound > worst_taken) continue;
        worst_taken = bound;
        last = n;
    }
    uint64_t wanted = (all + c - 1) / c;
    CHECK(taken >= wanted && (last == 0 || taken - last < wanted));
    CHECK(best_left <= worst_taken + room);
    CHECK(left_out >= best_left && (all == taken || left_out <= best_left + room));
    CHECK((all == taken) == (left_out == -HUGE_VAL));
}

/* The law: no token left out has a score above the bound that comes with the choice. */
static void better_tokens(void)
{
    static const uint32_t some_c[] = {1, 2, 3, 0, 1000}; /* 0 is 8 */
    check_rng rng = {81};
    uint64_t n_left = 0;
    for (int i = 0; i < 60; i++) {
        scene s = scene_newest(&rng);
        scene_slopes(&s);
        pimattn_seq seq;
        uint32_t c = some_c[i % 5], group = s.shape.n_heads / s.shape.n_kv_heads;
        float bounds[MOST_HEADS];
        pimattn_engine *engine = scene_engine(&s, &seq);
        double size;
        memset(s.choice.bits, 0xff, s.choice.stride * sizeof(uint64_t));
        CHECK_U(pimattn_retrieve(engine, seq, 0, &s.choice, bounds, s.q, c), PIMATTN_OK);
        for (uint32_t h = 0; h < s.shape.n_heads; h++)
            for (uint64_t t = 0; t < s.kv.n_tokens; t++) {
                bool on = chosen(&s.choice, h / group, t);
                if (!in_window(&s.shape, s.kv.n_tokens - 1, t)) {
                    CHECK(!on);
                } else if (!on) {
                    n_left++;
                    CHECK(exact_score(&s, s.kv.n_tokens - 1, h, t, &size) <=
                          (double)bounds[h / group]);
                }
            }
        for (uint32_t h = 0; h < s.shape.n_kv_heads; h++)
            check_retrieved(&s, h, c ? c : 8, (double)bounds[h]);
        pimattn_engine_destroy(engine);
        scene_free(&s);
    }
    CHECK(n_left > 1000);
}

static void retrieval_misses_no_better_token(void)
{
    over_kernels(better_tokens);
}

/*
 * Pages of one token: the bound of the one left out is its score, but for what is added for
 * rounding; the log-sum-exp of that token alone is the score that attention computes. Keys and
 * queries whose terms cancel, of any size.
 */
static void tight_bounds(void)
{
    check_rng rng = {82};
    for (uint32_t i = 0; i < 120; i++) {
        uint32_t dim = (uint32_t)rng_range(&rng, 1, 300);
        pimattn_shape shape = shape_of(1, 1, 1, dim, 1);
        shape.k_type = i % 4;
        shape.scale = i % 3 == 0 ? -1.0f : rng_float(&rng, 0.01, 2);
        shape.soft_cap = i % 5 == 0 ? 30.0f : 0;
        shape.alibi_max_bias = i % 7 == 0 ? 8.0f : 0;
        scene s = scene_new(&shape, 2, 1, &rng);
        s.page_tokens = 1;
        for (uint32_t d = 0; d < dim; d++) {
            float size = (float)pow(10, (double)rng_float(&rng, -3, 1.5));
            s.q[d] *= size * (i % 11 == 0 ? 1e-30f : 1);
            s.kv.k[d] = (d % 2 ? 1.0f : -1.0f) / size * (i % 13 == 0 ? 1e-15f : 1);
        }
        kv_keep(&s.kv);
        pimattn_item item = {0, 1};
        pimattn_engine *engine = scene_engine(&s, &item.seq);
        float bound = 0, out, lse, size = 0;
        CHECK_U(pimattn_retrieve(engine, item.seq, 0, &s.choice, &bound, s.q, 2), PIMATTN_OK);
        CHECK_U(s.choice.bits[0], 2);
        s.choice.bits[0] = 1;
        pimattn_call call = scene_call(&s, &item, &out, &lse);
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        for (uint32_t d = 0; d < dim; d++)
            size += fabsf(s.q[d] * (float)s.kv.k_kept[d] * shape.scale);
        CHECK(lse <= bound);
        CHECK(bound - lse <= 3e-5f * (size + 1));
        pimattn_engine_destroy(engine);
        scene_free(&s);
    }
}

static void bounds_hold_for_computed_scores(void)
{
    over_kernels(tight_bounds);
}

/* Dense attention to the byte. */
static void all_of_the_pages_are_dense(void)
{
    check_rng rng = {83};
    for (int i = 0; i < 10; i++) {
        scene s = scene_newest(&rng);
        scene_slopes(&s);
        pimattn_seq seq;
        pimattn_engine *engine = scene_engine(&s, &seq);
        float bounds[MOST_HEADS];
        CHECK_U(pimattn_retrieve(engine, seq, 0, &s.choice, bounds, s.q, 1), PIMATTN_OK);
        pimattn_engine_destroy(engine);
        CHECK_U(s.choice.n_tokens, s.kv.n_tokens);
        for (uint32_t h = 0; h < s.shape.n_kv_heads; h++)
            CHECK(bounds[h] == -HUGE_VALF);
        float *some = scene_attend(&s);
        s.choice.n_tokens = 0;
        float *dense = scene_attend(&s);
        CHECK_BYTES(some, dense, rows_bytes(&s));
        free(some);
        free(dense);
        scene_free(&s);
    }
}

/* What a sequence retrieves, and its probabilities by bounds, are those of a new one like it. */
static void check_like_new(pimattn_engine *engine, pimattn_seq seq, scene *s, uint64_t n)
{
    pimattn_engine *fresh = engine_new(pimattn_engine_config(engine));
    pimattn_seq like;
    float bounds[2][MOST_HEADS] = {{0}};
    pimattn_choice a = choice_new(&s->shape, n), b = choice_new(&s->shape, n);
    float *x = (float *)check_alloc(2 * n, sizeof(float));
    CHECK_U(pimattn_seq_create(fresh, &like), PIMATTN_OK);
    CHECK_U(kv_append(fresh, like, 0, &s->kv, 0, n), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, seq, 0, &a, bounds[0], s->q, 4), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(fresh, like, 0, &b, bounds[1], s->q, 4), PIMATTN_OK);
    CHECK_U(pimattn_probabilities(engine, seq, 0, x, s->q, PIMATTN_BY_BOUNDS), PIMATTN_OK);
    CHECK_U(pimattn_probabilities(fresh, like, 0, x + n, s->q, PIMATTN_BY_BOUNDS), PIMATTN_OK);
    CHECK_BYTES(a.bits, b.bits, a.stride * s->shape.n_kv_heads * sizeof(uint64_t));
    CHECK_BYTES(bounds[0], bounds[1], sizeof bounds[0]);
    CHECK_BYTES(x, x + n, n * sizeof(float));
    pimattn_engine_destroy(fresh);
    free(a.bits);
    free(b.bits);
    free(x);
}

/* Through truncation, a fork that goes on, other pages, memory and back; also over old rows. */
static void bounds_follow_the_tokens(void)
{
    enum { TOKENS = 300, PAGE = 16 };
    check_rng rng = {84};
    pimattn_shape shape = shape_of(1, 4, 2, 32, 0);
    scene s = scene_new(&shape, TOKENS, 1, &rng), other = scene_new(&shape, TOKENS, 1, &rng);
    s.page_tokens = other.page_tokens = PAGE;
    pimattn_seq seq, first, child, back, less;
    pimattn_engine *engine = scene_engine(&other, &first);
    size_t n_back;
    uint64_t bytes = 0, moved = 0;
    check_like_new(engine, first, &other, TOKENS);
    for (int i = 0; i < 15; i++) /* more than a slab, so that compaction moves those behind */
        CHECK_U(kv_append(engine, first, 0, &s.kv, 0, TOKENS), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, seq, 0, &other.kv, 0, TOKENS), PIMATTN_OK);
    check_like_new(engine, seq, &other, TOKENS);
    CHECK_U(pimattn_seq_truncate(engine, seq, 0), PIMATTN_OK);
    CHECK_U(kv_append(engine, seq, 0, &s.kv, 0, 250), PIMATTN_OK);
    CHECK_U(pimattn_seq_fork(engine, &child, seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, child, 0, &s.kv, 250, 50), PIMATTN_OK);
    check_like_new(engine, child, &s, TOKENS);
    CHECK_U(pimattn_seq_truncate(engine, child, 200), PIMATTN_OK);
    CHECK_U(kv_append(engine, child, 0, &other.kv, 200, 90), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, child, 0, &s.choice, NULL, s.q, 4), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(engine, child, 198), PIMATTN_OK);
    CHECK_U(kv_append(engine, child, 0, &s.kv, 198, 10), PIMATTN_OK);
    check_like_new(engine, seq, &s, 250);
    check_like_new(engine, child, &s, 208);
    CHECK_U(pimattn_seq_truncate(engine, child, 206), PIMATTN_OK); /* one key in another's place */
    CHECK_U(kv_append(engine, child, 0, &other.kv, 206, 1), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, child, 0, &s.choice, NULL, s.q, 4), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(engine, child, 206), PIMATTN_OK);
    CHECK_U(kv_append(engine, child, 0, &s.kv, 206, 1), PIMATTN_OK);
    check_like_new(engine, child, &s, 207);
    CHECK_U(kv_append(engine, child, 0, &s.kv, 207, 1), PIMATTN_OK);
    CHECK_U(kv_append(engine, child, 0, &other.kv, 208, 4), PIMATTN_OK); /* of a full page, .. */
    CHECK_U(kv_append(engine, child, 0, &s.kv, 208, 20), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, child, 0, &s.choice, NULL, s.q, 4), PIMATTN_OK);
    uint32_t accepted[20]; /* .. and it is full again */
    for (uint32_t i = 0; i < 20; i++)
        accepted[i] = 4 + i;
    CHECK_U(pimattn_seq_accept(engine, child, 208, accepted, 20), PIMATTN_OK);
    check_like_new(engine, child, &s, 228);
    CHECK_U(pimattn_seq_truncate(engine, child, 208), PIMATTN_OK);
    CHECK_U(pimattn_seq_fork(engine, &less, seq), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(engine, less, 243), PIMATTN_OK); /* in a page that both have */
    check_like_new(engine, less, &s, 243);
    check_like_new(engine, seq, &s, 250);
    CHECK_U(pimattn_seq_free(engine, first), PIMATTN_OK);
    CHECK_U(pimattn_cache_compact(engine, &moved), PIMATTN_OK);
    CHECK(moved > 0);
    check_like_new(engine, seq, &s, 250);
    CHECK_U(pimattn_save(engine, &child, 1, NULL, &bytes), PIMATTN_OK);
    pimattn_stream stream = {check_alloc(bytes, 1), bytes, NULL, NULL, NULL};
    CHECK_U(pimattn_save(engine, &child, 1, &stream, NULL), PIMATTN_OK);
    CHECK_U(pimattn_restore(engine, &back, 1, &n_back, &stream), PIMATTN_OK);
    check_like_new(engine, back, &s, 208);
    CHECK_U(pimattn_seq_swap_out(engine, child, stream.memory, bytes, NULL), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, child, 0, &s.choice, NULL, s.q, 4), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_swap_in(engine, child, stream.memory, bytes, NULL), PIMATTN_OK);
    check_like_new(engine, child, &s, 208);
    pimattn_engine_destroy(engine);
    free(stream.memory);
    scene_free(&s);
    scene_free(&other);
}

/* Rows of 16 heads are stored at once: the bounds of all heads follow. */
static void bounds_follow_the_tokens_of_many_heads(void)
{
    enum { TOKENS = 40, KEPT = 20 };
    check_rng rng = {91};
    pimattn_shape shape = shape_of(1, MOST_HEADS, MOST_HEADS, 16, 0);
    scene s = scene_new(&shape, TOKENS, 1, &rng), other = scene_new(&shape, TOKENS, 1, &rng);
    s.page_tokens = other.page_tokens = 16;
    pimattn_seq seq;
    memcpy(s.kv.k, other.kv.k, KEPT * s.kv.k_row * sizeof *s.kv.k);
    pimattn_engine *engine = scene_engine(&other, &seq);
    check_like_new(engine, seq, &other, TOKENS);
    CHECK_U(pimattn_seq_truncate(engine, seq, KEPT), PIMATTN_OK);
    CHECK_U(kv_append(engine, seq, 0, &s.kv, KEPT, TOKENS - KEPT), PIMATTN_OK);
    check_like_new(engine, seq, &s, TOKENS);
    pimattn_engine_destroy(engine);
    scene_free(&s);
    scene_free(&other);
}

/* Of sink tokens in several leaves the first leaf is not chosen, or gone: the others are seen. */
static void sinks_behind_a_leaf_not_chosen_are_seen(void)
{
    enum { LEAF = 512, TOKENS = 6 * LEAF, NEAR = 20 };
    check_rng rng = {93};
    pimattn_shape shape = shape_of(1, 1, 1, 16, 0);
    shape.window = NEAR;
    shape.sink_tokens = 3 * LEAF;
    scene s = scene_new(&shape, TOKENS, 1, &rng);
    s.page_tokens = 128;
    memset(s.q, 0, 16 * sizeof *s.q); /* the mean of what is seen */
    for (uint64_t t = 0; t < TOKENS; t++) {
        choose(&s.choice, 0, t, t >= LEAF);
        s.kv.v[16 * t] = t < 3 * LEAF;
    }
    pimattn_seq seq;
    pimattn_engine *engine = scene_engine(&s, &seq);
    pimattn_item item = {seq, 1};
    float out[16];
    pimattn_call call = {.out = out, .q = s.q, .items = &item, .n_items = 1};
    for (int gone = 0; gone < 2; gone++) {
        call.choices = gone ? NULL : &s.choice;
        if (gone) CHECK_U(pimattn_seq_keep(engine, seq, 4 * LEAF, TOKENS), PIMATTN_OK);
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        const double sinks = (gone ? 3 : 2) * LEAF; /* without those not chosen */
        CHECK_NEAR(out[0], sinks / (sinks + NEAR), 2e-6);
    }
    pimattn_engine_destroy(engine);
    scene_free(&s);
}

/* Compaction gives back the bounds of slabs, and slabs that come again have bounds of their own. */
static void bounds_go_with_their_slabs(void)
{
    enum { TOKENS = 300, TIMES = 30 }; /* more than a slab of pages */
    check_rng rng = {85};
    check_heap heap = {0};
    pimattn_shape shape = shape_of(1, 4, 2, 32, 0);
    scene s = scene_new(&shape, TOKENS, 1, &rng);
    pimattn_config config = config_of(&shape);
    pimattn_choice choice = choice_new(&shape, TOKENS * TIMES);
    pimattn_seq seq;
    config.page_tokens = 16;
    config.allocator = heap_allocator(&heap);
    pimattn_engine *engine = engine_new(&config);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    uint64_t begun = heap.live_bytes;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TIMES; i++)
            CHECK_U(kv_append(engine, seq, 0, &s.kv, 0, TOKENS), PIMATTN_OK);
        CHECK_U(pimattn_retrieve(engine, seq, 0, &choice, NULL, s.q, 4), PIMATTN_OK);
        CHECK(heap.live_bytes - begun > (4u << 20));
        CHECK_U(pimattn_seq_truncate(engine, seq, 0), PIMATTN_OK);
        CHECK_U(pimattn_cache_compact(engine, NULL), PIMATTN_OK);
        CHECK(heap.live_bytes - begun < (1u << 20));
    }
    pimattn_engine_destroy(engine);
    CHECK_U(heap.n_live + heap.live_bytes + heap.n_wrong, 0);
    free(choice.bits);
    scene_free(&s);
}

/* A window leaves tokens behind, in pages of which some are still seen; so do sinks. */
static void bounds_follow_a_window(void)
{
    check_rng rng = {90};
    pimattn_shape shape = shape_of(1, 4, 2, 20, 0);
    shape.window = 40;
    shape.sink_tokens = 21;
    scene s = scene_new(&shape, 200, 1, &rng);
    s.page_tokens = 16;
    pimattn_seq seq;
    pimattn_engine *engine = scene_engine(&s, &seq);
    CHECK_U(pimattn_seq_truncate(engine, seq, 0), PIMATTN_OK);
    for (uint64_t n = 0; n < 200; n += 5) {
        CHECK_U(kv_append(engine, seq, 0, &s.kv, n, 5), PIMATTN_OK);
        check_like_new(engine, seq, &s, n + 5);
    }
    pimattn_engine_destroy(engine);
    scene_free(&s);
}

/* Tokens before the first kept one have no bytes any more. */
static void tokens_that_are_gone_are_not_chosen(void)
{
    check_rng rng = {85};
    pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
    scene s = scene_new(&shape, 500, 1, &rng);
    s.page_tokens = 64;
    pimattn_seq seq;
    pimattn_engine *engine = scene_engine(&s, &seq);
    float *p = (float *)check_alloc(500, sizeof(float));
    double sum = 0;
    CHECK_U(pimattn_seq_keep(engine, seq, 100, 500), PIMATTN_OK);
    CHECK_U(pimattn_retrieve(engine, seq, 0, &s.choice, NULL, s.q, 1), PIMATTN_OK);
    for (uint64_t t = 0; t < 500; t++)
        CHECK(chosen(&s.choice, 0, t) == (t >= 100));
    for (uint32_t source = 0; source < 2; source++, sum = 0) {
        CHECK_U(pimattn_probabilities(engine, seq, 0, p, s.q, source), PIMATTN_OK);
        for (uint64_t t = 0; t < 500; t++) {
            CHECK(t >= 100 || p[t] == 0.0f);
            sum += (double)p[t];
        }
        CHECK_NEAR(sum, 1, 1e-5);
    }
    pimattn_engine_destroy(engine);
    free(p);
    scene_free(&s);
}

static void keys_that_are_not_finite_come_first(void)
{
    check_rng rng = {86};
    pimattn_shape shape = shape_of(1, 2, 2, 16, 0);
    scene s = scene_new(&shape, 200, 1, &rng);
    s.page_tokens = 10;
    s.kv.k[57 * 32 + 3] = bits_float(NAN_BITS);
    s.kv.k[123 * 32 + 5] = -HUGE_VALF;
    s.kv.k[31 * 32 + 16] = HUGE_VALF;
    for (int d = 0; d < 16; d++) { /* a page of finite keys, whose sums are not */
        s.q[16 + d] = 10;
        for (int t = 70; t < 80; t++)
            s.kv.k[t * 32 + 16 + d] = d % 2 ? 3e38f : -3e38f;
    }
    pimattn_seq seq;
    pimattn_engine *engine = scene_engine(&s, &seq);
    float bounds[2], p[200];
    for (int i = 0; i < 2; i++) { /* the newest page and one more */
        CHECK_U(pimattn_retrieve(engine, seq, 0, &s.choice, bounds, s.q, 10), PIMATTN_OK);
        CHECK(chosen(&s.choice, 0, 57) && chosen(&s.choice, 1, 31) && !chosen(&s.choice, 1, 77));
        CHECK(bounds[0] == HUGE_VALF && bounds[1] == HUGE_VALF);
    }
    for (uint32_t source = 0; source < 2; source++) {
        CHECK_U(pimattn_probabilities(engine, seq, 0, p, s.q, source), PIMATTN_OK);
        CHECK(isnan(p[0]) && isnan(p[199]));
    }
    pimattn_engine_destroy(engine);
    scene_free(&s);
}

/* -- how much tokens count -- */

static void probabilities(void)
{
    check_rng rng = {87};
    for (int i = 0; i < 40; i++) {
        scene s = scene_newest(&rng);
        scene_slopes(&s);
        pimattn_seq seq;
        float logits[MOST_HEADS];
        uint64_t n = s.kv.n_tokens;
        for (uint32_t h = 0; h < s.shape.n_heads; h++)
            logits[h] = rng_float(&rng, -1, 3);
        if (i % 4 == 0) s.shape.sink_logits = logits;
        s.choice.n_tokens = 0; /* all */
        pimattn_engine *engine = scene_engine(&s, &seq);
        float *p = (float *)check_alloc(n, sizeof(float));
        double *exact = (double *)check_alloc(n, sizeof(double)), sum = 0, size, worst = 0;
        double *want = (double *)check_alloc(n, sizeof(double)), want_sum = 0, its;
        for (uint32_t h = 0; h < s.shape.n_heads; h++) {
            exact_weights(&s, 0, h, exact, &size);
            worst = fmax(worst, size);
            double own = exact_score(&s, n - 1, h, n - 1, &its), sink = 1;
            if (s.shape.sink_logits) sink += exact[n - 1] * exp((double)logits[h] - own);
            for (uint64_t t = 0; t < n; t++)
                want[t] += exact[t] / sink / s.shape.n_heads;
        }
        CHECK_U(pimattn_probabilities(engine, seq, 0, p, s.q, PIMATTN_BY_SCORES), PIMATTN_OK);
        for (uint64_t t = 0; t < n; t++) {
            CHECK_NEAR(p[t], want[t], 2e-6 + 4e-7 * worst);
            sum += (double)p[t];
            want_sum += want[t];
        }
        CHECK_NEAR(sum, want_sum, 2e-6 + 4e-7 * worst);
        pimattn_engine_destroy(engine);
        free(p);
        free(exact);
        free(want);
        scene_free(&s);
    }
}

static void probabilities_equal_float64(void)
{
    over_kernels(probabilities);
}

static void probabilities_by_bounds_equal_float64(void)
{
    check_rng rng = {88};
    for (int i = 0; i < 30; i++) {
        scene s = scene_newest(&rng);
        scene_slopes(&s);
        pimattn_seq seq;
        uint64_t length = s.kv.n_tokens, n;
        pimattn_engine *engine = scene_engine(&s, &seq);
        float *p = (float *)check_alloc(length, sizeof(float));
        double *want = (double *)check_alloc(length, sizeof(double)), total = 0;
        for (uint32_t h = 0; h < s.shape.n_kv_heads; h++) {
            double most = -HUGE_VAL, sum = 0;
            for (int pass = 0; pass < 3; pass++)
                for (uint64_t page = 0; page * s.page_tokens < length; page++) {
                    double bound = page_bound(&s, h, page, &n, NULL), w = n ? exp(bound - most) : 0;
                    if (pass == 0) most = fmax(most, bound);
                    if (pass == 1) sum += (double)n * w;
                    for (uint64_t t = page * s.page_tokens; pass == 2 && t < length; t++) {
                        if (t == (page + 1) * s.page_tokens) break;
                        if (!in_window(&s.shape, length - 1, t)) continue;
                        want[t] += w / sum / s.shape.n_kv_heads;
                    }
                }
        }
        CHECK_U(pimattn_probabilities(engine, seq, 0, p, s.q, PIMATTN_BY_BOUNDS), PIMATTN_OK);
        for (uint64_t t = 0; t < length; t++) {
            CHECK_NEAR(p[t], want[t], 1e-6 + 3e-4 * want[t]);
            total += (double)p[t];
        }
        CHECK_NEAR(total, 1, 1e-5);
        pimattn_engine_destroy(engine);
        free(p);
        free(want);
        scene_free(&s);
    }
}

/* A sink logit is a score's; by bounds the tokens have all there is. */
static void a_sink_logit_takes_nothing_of_bounds(void)
{
    enum { TOKENS = 50 };
    static const float sinks[4] = {3, 4, 5, 6};
    check_rng rng = {92};
    pimattn_shape shape = shape_of(1, 4, 2, 16, 0);
    shape.sink_logits = sinks;
    scene s = scene_new(&shape, TOKENS, 1, &rng);
    s.page_tokens = 16;
    pimattn_seq seq;
    pimattn_engine *engine = scene_engine(&s, &seq);
    float p[TOKENS];
    for (uint32_t by = PIMATTN_BY_SCORES; by <= PIMATTN_BY_BOUNDS; by++) {
        double sum = 0;
        CHECK_U(pimattn_probabilities(engine, seq, 0, p, s.q, by), PIMATTN_OK);
        for (uint32_t t = 0; t < TOKENS; t++)
            sum += (double)p[t];
        CHECK(by == PIMATTN_BY_SCORES ? sum < 0.9 : fabs(sum - 1) < 1e-5);
    }
    pimattn_engine_destroy(engine);
    scene_free(&s);
}

/* -- bad input -- */

/* Refuses and leaves what there was. */
static void check_refused(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                          const pimattn_choice *choice, const float *q, uint32_t c, uint32_t source,
                          pimattn_status status, const char *say)
{
    enum { WORDS = 2 * 8 };
    uint64_t words[WORDS], was[WORDS];
    float p[300], old[300], bounds[2] = {7, 8};
    memset(words, 0x5a, sizeof words);
    memset(p, 0x5a, sizeof p);
    memcpy(was, words, sizeof words);
    memcpy(old, p, sizeof p);
    pimattn_choice its = *choice;
    if (its.bits) its.bits = words;
    pimattn_choice before = its;
    bool retrieve = c < UINT32_MAX;
    if (retrieve)
        CHECK_U(pimattn_retrieve(engine, seq, layer, &its, bounds, q, c), status);
    else
        CHECK_U(pimattn_probabilities(engine, seq, layer, p, q, source), status);
    CHECK_HAS(pimattn_engine_cause(engine), say);
    CHECK(bounds[0] == 7 && bounds[1] == 8);
    CHECK_BYTES(words, was, sizeof words);
    CHECK_BYTES(p, old, sizeof p);
    CHECK_BYTES(&its, &before, sizeof its);
}

static void bad_questions_are_refused(void)
{
    check_rng rng = {89};
    pimattn_shape shape = shape_of(2, 4, 2, 16, 0);
    scene s = scene_new(&shape, 300, 1, &rng);
    pimattn_seq seq, empty, gone;
    pimattn_config config = config_of(&shape);
    check_heap heap;
    memset(&heap, 0, sizeof heap);
    config.allocator = heap_allocator(&heap);
    pimattn_engine *e = engine_new(&config);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &gone), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(e, gone), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(e, &empty), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(kv_append(e, seq, 0, &s.kv, 0, 300), PIMATTN_OK);
    pimattn_choice good = {s.choice.bits, 0, 5, 2}, no_bits = {NULL, 0, 5, 2};
    pimattn_choice narrow = {s.choice.bits, 300, 4, 2}, heads = {s.choice.bits, 0, 8, 1};
    pimattn_choice wide = {s.choice.bits, 300, SIZE_MAX / 16 + 1, 2};
    const uint32_t p = UINT32_MAX; /* asks for probabilities */
    const pimattn_status wrong = PIMATTN_ERR_ARGUMENT;
    check_refused(e, seq, 0, &no_bits, s.q, 8, 0, wrong, "choice.bits is NULL");
    check_refused(e, seq, 0, &narrow, s.q, 8, 0, wrong, "stride is below the 5");
    check_refused(e, seq, 0, &heads, s.q, 8, 0, wrong, "n_kv_heads is 1");
    check_refused(e, seq, 0, &wide, s.q, 8, 0, wrong, "beyond memory");
    check_refused(e, seq, 0, &good, s.q, p, 2, wrong, "source");
    for (uint32_t c = 8;; c = p) {
        check_refused(e, seq, 2, &good, s.q, c, 0, wrong, "layer 2");
        check_refused(e, seq, 0, &good, NULL, c, 0, wrong, "q is NULL");
        check_refused(e, empty, 0, &good, s.q, c, 0, wrong, "no tokens of context");
        check_refused(e, seq, 1, &good, s.q, c, 0, wrong, "no tokens of context");
        check_refused(e, gone, 0, &good, s.q, c, 0, PIMATTN_ERR_SEQ, "freed");
        s.q[17] = bits_float(NAN_BITS);
        check_refused(e, seq, 0, &good, s.q, c, 0, wrong, "q[17]");
        s.q[17] = HUGE_VALF;
        check_refused(e, seq, 0, &good, s.q, c, 0, wrong, "q[17]");
        s.q[17] = 1;
        uint64_t calls = heap.n_calls, live = heap.n_live;
        for (uint64_t nth = 1; nth <= (c == p ? 1 : 3); nth++) { /* scores; bounds; of a slab */
            heap.fail_at = heap.n_calls + nth;
            check_refused(e, seq, 0, &good, s.q, c, 0, PIMATTN_ERR_MEMORY, "memory");
        }
        CHECK_U(heap.n_calls, calls + (c == p ? 1 : 6));
        heap.fail_at = 0;
        CHECK_U(heap.n_live, live + (c != p)); /* the list of bounds is there to stay */
        if (c == p) break;
    }
    float of_tokens[300];
    uint64_t calls = heap.n_calls, live = heap.n_live;
    for (int i = 0; i < 2; i++) {
        CHECK_U(pimattn_retrieve(e, seq, 0, &good, NULL, s.q, 8), PIMATTN_OK);
        CHECK_U(pimattn_probabilities(e, seq, 0, of_tokens, s.q, 0), PIMATTN_OK);
        CHECK_U(pimattn_probabilities(e, seq, 0, of_tokens, s.q, 1), PIMATTN_OK);
        CHECK_U(heap.n_calls, calls + 4 + 3 * (uint64_t)i); /* each of which failed above */
        CHECK_U(heap.n_live, live + 1);                     /* bounds stay */
    }
    CHECK_U(pimattn_probabilities(e, seq, 0, NULL, s.q, 0), wrong);
    CHECK_U(pimattn_retrieve(e, seq, 0, NULL, NULL, s.q, 8), wrong);
    CHECK_U(pimattn_probabilities(NULL, seq, 0, of_tokens, s.q, 0), wrong);
    CHECK_U(pimattn_retrieve(NULL, seq, 0, &good, NULL, s.q, 8), wrong);
    pimattn_engine_destroy(e);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
    config = config_of(&shape);
    config.way = PIMATTN_DEVICE;
    e = engine_new(&config);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(kv_append(e, seq, 0, &s.kv, 0, 300), PIMATTN_OK);
    check_refused(e, seq, 0, &good, s.q, 8, 0, PIMATTN_ERR_DEVICE, "host way");
    check_refused(e, seq, 0, &good, s.q, p, 0, PIMATTN_ERR_DEVICE, "host way");
    pimattn_engine_destroy(e);
    scene_free(&s);
}

int main(void)
{
    RUN(chosen_tokens_equal_float64);
    RUN(tokens_not_chosen_are_not_read);
    RUN(a_window_is_a_choice);
    RUN(a_mask_is_a_choice);
    RUN(threads_and_batches_change_no_bit);
#if defined(__unix__) || defined(__APPLE__)
    RUN(unread_pages_may_be_unreadable);
#endif
    RUN(partials_of_choices_merge);
    RUN(readings_are_of_the_tokens_chosen);
    RUN(layers_of_another_window_see_more_of_a_choice);
    RUN(bad_choices_are_refused);
    RUN(retrieval_misses_no_better_token);
    RUN(bounds_hold_for_computed_scores);
    RUN(all_of_the_pages_are_dense);
    RUN(bounds_follow_the_tokens);
    RUN(bounds_follow_the_tokens_of_many_heads);
    RUN(sinks_behind_a_leaf_not_chosen_are_seen);
    RUN(bounds_go_with_their_slabs);
    RUN(bounds_follow_a_window);
    RUN(tokens_that_are_gone_are_not_chosen);
    RUN(keys_that_are_not_finite_come_first);
    RUN(probabilities_equal_float64);
    RUN(probabilities_by_bounds_equal_float64);
    RUN(a_sink_logit_takes_nothing_of_bounds);
    RUN(bad_questions_are_refused);
    return check_end();
}
