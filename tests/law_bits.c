/* What must not change a single bit: pages, workers, batch, split into calls, groups, scratch,
 * stale memory; and partials of single leaves merged by the tree of the contract. */
#if defined(__unix__) || defined(__APPLE__)
#define HAVE_THREADS 1
#include <pthread.h>
#else
#define HAVE_THREADS 0
#endif

#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { MATES = 3, LEAF = 512 };

/* How one and the same attention is reached. Zeroed: one append, one call, alone. */
typedef struct how {
    pimattn_config config;
    uint64_t append_tokens; /* tokens of one append; 0: all at once */
    bool one_by_one;        /* append one, attend one, for every query */
    bool batch;             /* among MATES other sequences */
    bool dirty;             /* NaN sequences were there before and are there beside it */
    bool readings;
} how;

static how how_of(const pimattn_shape *shape)
{
    how h;
    memset(&h, 0, sizeof h);
    h.config = config_of(shape);
    return h;
}

/* A sequence of NaN, some pages long. */
static pimattn_seq append_nan(pimattn_engine *engine, const attn_kv *like, uint64_t n_tokens)
{
    pimattn_seq seq = 0;
    attn_kv kv = kv_new(&like->shape, n_tokens);
    for (size_t i = 0; i < n_tokens * kv.k_row; i++)
        kv.k[i] = bits_float(NAN_BITS);
    for (size_t i = 0; i < n_tokens * kv.v_row; i++)
        kv.v[i] = bits_float(NAN_BITS);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    for (uint32_t layer = 0; layer < like->shape.n_layers; layer++)
        CHECK_U(kv_append(engine, seq, layer, &kv, 0, n_tokens), PIMATTN_OK);
    kv_free(&kv);
    return seq;
}

static void append_in_steps(pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                            const attn_kv *kv, uint64_t n, uint64_t step)
{
    for (uint64_t done = 0; done < n;) {
        uint64_t some = step && step < n - done ? step : n - done;
        if (!CHECK_U(kv_append(engine, seq, layer, kv, done, some), PIMATTN_OK)) return;
        done += some;
    }
}

/* Attends for the items; the rows of item own, and their log-sum-exps, go to out and lse. */
static void attend_rows(pimattn_engine *engine, uint32_t layer, const how *h, const attn_kv *kv,
                        const pimattn_item *items, size_t n_items, size_t own, const float *q,
                        float *out, float *lse)
{
    size_t n_heads = kv->shape.n_heads, q_row = n_heads * kv->shape.head_dim;
    size_t o_row = n_heads * kv->dv, n_rows = 0, first = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (i == own) first = n_rows;
        n_rows += items[i].n_tokens;
    }
    float *all_q = (float *)check_alloc(n_rows * q_row, sizeof(float));
    float *all_out = (float *)check_alloc(n_rows * o_row, sizeof(float));
    float *all_lse = (float *)check_alloc(n_rows * n_heads, sizeof(float));
    check_rng rng = {77};
    fill_normal(all_q, n_rows * q_row, 1, &rng);
    memcpy(all_q + first * q_row, q, items[own].n_tokens * q_row * sizeof(float));
    pimattn_call call;
    pimattn_readings readings;
    memset(&call, 0, sizeof call);
    call.out = all_out, call.lse = all_lse, call.q = all_q, call.items = items;
    call.n_items = n_items;
    CHECK_U(pimattn_attend(engine, layer, &call, h->readings ? &readings : NULL), PIMATTN_OK);
    memcpy(out, all_out + first * o_row, items[own].n_tokens * o_row * sizeof(float));
    memcpy(lse, all_lse + first * n_heads, items[own].n_tokens * n_heads * sizeof(float));
    free(all_q);
    free(all_out);
    free(all_lse);
}

/* Attention of the last n_queries tokens of kv: out [n_queries][n_heads][dv], lse [..][n_heads]. */
static void compute(const how *h, const attn_kv *kv, uint64_t n_queries, const float *q, float *out,
                    float *lse)
{
    check_heap heap = {0};
    pimattn_config config = h->config;
    config.allocator = heap_allocator(&heap);
    pimattn_engine *engine = engine_new(&config);
    if (!engine) return;
    uint32_t layer = kv->shape.n_layers - 1;
    check_rng rng = {99};
    if (h->dirty) {
        pimattn_seq old = append_nan(engine, kv, kv->n_tokens + 300);
        (void)append_nan(engine, kv, 10);
        CHECK_U(pimattn_seq_free(engine, old), PIMATTN_OK);
    }
    pimattn_item items[MATES + 1];
    size_t n_items = h->batch ? MATES + 1 : 1, own = h->batch ? 1 : 0;
    for (size_t i = 0; i < n_items; i++) {
        CHECK_U(pimattn_seq_create(engine, &items[i].seq), PIMATTN_OK);
        items[i].n_tokens = n_queries;
        if (i == own) continue;
        attn_kv mate = kv_random(&kv->shape, rng_range(&rng, 4, 700), &rng);
        items[i].n_tokens = rng_range(&rng, 1, 4);
        append_in_steps(engine, items[i].seq, layer, &mate, mate.n_tokens, 0);
        kv_free(&mate);
    }
    size_t n_heads = kv->shape.n_heads, q_row = n_heads * kv->shape.head_dim;
    uint64_t before = h->one_by_one ? kv->n_tokens - n_queries : kv->n_tokens;
    append_in_steps(engine, items[own].seq, layer, kv, before, h->append_tokens);
    if (!h->one_by_one)
        attend_rows(engine, layer, h, kv, items, n_items, own, q, out, lse);
    else
        for (uint64_t t = 0; t < n_queries; t++) {
            items[own].n_tokens = 1;
            CHECK_U(kv_append(engine, items[own].seq, layer, kv, before + t, 1), PIMATTN_OK);
            attend_rows(engine, layer, h, kv, items, n_items, own, q + t * q_row,
                        out + t * n_heads * kv->dv, lse + t * n_heads);
        }
    pimattn_engine_destroy(engine);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
}

/* --------------------------------------------------------------------------
 * Scenes: random data with the bytes of the plainest way to compute it.
 * -------------------------------------------------------------------------- */

typedef struct scene {
    attn_kv kv;
    uint64_t n_queries;
    float *q, *out, *lse, *out_now, *lse_now;
    size_t n_out, n_lse;
} scene;

static scene scene_new(const pimattn_shape *shape, uint64_t n_tokens, uint64_t n_queries,
                       uint64_t seed)
{
    scene s;
    check_rng rng = {seed};
    memset(&s, 0, sizeof s);
    s.kv = kv_random(shape, n_tokens, &rng);
    s.n_queries = n_queries;
    s.n_lse = n_queries * shape->n_heads;
    s.n_out = s.n_lse * s.kv.dv;
    s.q = (float *)check_alloc(s.n_lse * shape->head_dim, sizeof(float));
    s.out = (float *)check_alloc(s.n_out, sizeof(float));
    s.out_now = (float *)check_alloc(s.n_out, sizeof(float));
    s.lse = (float *)check_alloc(s.n_lse, sizeof(float));
    s.lse_now = (float *)check_alloc(s.n_lse, sizeof(float));
    fill_normal(s.q, s.n_lse * shape->head_dim, 1.5, &rng);
    how plain = how_of(shape);
    compute(&plain, &s.kv, n_queries, s.q, s.out, s.lse);
    return s;
}

static void scene_free(scene *s)
{
    kv_free(&s->kv);
    free(s->q);
    free(s->out);
    free(s->out_now);
    free(s->lse);
    free(s->lse_now);
}

/* The same bytes this way. */
static bool same(scene *s, const how *h)
{
    memset(s->out_now, 0x55, s->n_out * sizeof(float));
    memset(s->lse_now, 0x55, s->n_lse * sizeof(float));
    compute(h, &s->kv, s->n_queries, s->q, s->out_now, s->lse_now);
    bool out = CHECK_BYTES(s->out_now, s->out, s->n_out * sizeof(float));
    return CHECK_BYTES(s->lse_now, s->lse, s->n_lse * sizeof(float)) && out;
}

/* Calls test for random shapes and lengths, with one kernel. */
static void over_shapes(void (*test)(scene *s, check_rng *rng))
{
    static const uint32_t dims[] = {1, 3, 8, 16, 17, 40, 64, 128, 48};
    check_rng rng = {11};
    for (uint64_t i = 0; i < 8; i++) {
        uint32_t n_kv_heads = (uint32_t)rng_range(&rng, 1, 3);
        uint32_t n_heads = n_kv_heads * (uint32_t)rng_range(&rng, 1, i % 4 == 2 ? 18 : 5);
        uint32_t dim = dims[rng_range(&rng, 0, COUNT(dims) - 1)];
        uint32_t dv = i & 1 ? dims[rng_range(&rng, 0, COUNT(dims) - 1)] : 0;
        pimattn_shape shape =
            shape_of((uint32_t)rng_range(&rng, 1, 2), n_heads, n_kv_heads, dim, dv);
        shape.k_type = (uint32_t)rng_range(&rng, 0, PIMATTN_N_TYPE - 1);
        shape.v_type = (uint32_t)rng_range(&rng, 0, PIMATTN_N_TYPE - 1);
        uint64_t n_tokens = i == 0 ? 5 : rng_range(&rng, 10, i < 5 ? 600 : 2600);
        scene s = scene_new(&shape, n_tokens, rng_range(&rng, 1, 5), 100 + i);
        test(&s, &rng);
        scene_free(&s);
    }
}

static void (*scene_test)(scene *s, check_rng *rng);

static void one_kernel(void)
{
    over_shapes(scene_test);
}

/* .. with every kernel. */
static void over_scenes(void (*test)(scene *s, check_rng *rng))
{
    scene_test = test;
    over_kernels(one_kernel);
}

static void test_pages(scene *s, check_rng *rng)
{
    static const uint32_t pages[] = {1, 7, 16, 24, 40, 64, 128, 256};
    for (size_t i = 0; i < COUNT(pages); i++) {
        how h = how_of(&s->kv.shape);
        h.config.page_tokens = pages[i];
        h.append_tokens = rng_range(rng, 0, 1) ? rng_range(rng, 1, 50) : 0;
        if (!same(s, &h)) printf("page_tokens %u\n", pages[i]);
    }
}

static void page_size_changes_no_bit(void)
{
    over_scenes(test_pages);
}

static void test_calls(scene *s, check_rng *rng)
{
    how h = how_of(&s->kv.shape);
    h.one_by_one = true;
    same(s, &h);
    h.append_tokens = rng_range(rng, 1, 40);
    h.batch = true;
    same(s, &h);
}

static void one_call_of_n_is_n_calls_of_one(void)
{
    over_scenes(test_calls);
}

static void long_prompt(void)
{
    pimattn_shape shape = shape_of(1, 4, 2, 16, 0);
    shape.k_type = PIMATTN_BF16, shape.v_type = PIMATTN_INT8;
    scene s = scene_new(&shape, 1100, 600, 5);
    how h = how_of(&shape);
    h.one_by_one = true;
    same(&s, &h);
    scene_free(&s);
}

static void a_long_prompt_is_its_decode(void)
{
    over_kernels(long_prompt);
}

static void test_batch(scene *s, check_rng *rng)
{
    (void)rng;
    how h = how_of(&s->kv.shape);
    h.batch = true;
    same(s, &h);
}

static void batch_mates_change_no_bit(void)
{
    over_scenes(test_batch);
}

static void test_dirty(scene *s, check_rng *rng)
{
    how h = how_of(&s->kv.shape);
    h.dirty = true;
    h.config.page_tokens = rng_range(rng, 0, 1) ? 40 : 64;
    same(s, &h);
    h.one_by_one = h.batch = true;
    same(s, &h);
}

static void stale_nan_changes_no_bit(void)
{
    over_scenes(test_dirty);
}

static void test_readings(scene *s, check_rng *rng)
{
    how h = how_of(&s->kv.shape);
    h.readings = true;
    h.config.partition = (uint32_t)rng_range(rng, 0, 1);
    same(s, &h);
}

static void timing_changes_no_bit(void)
{
    over_scenes(test_readings);
}

/* The least scratch the check names, and one byte less is refused. */
static uint64_t least_scratch(pimattn_config config)
{
    pimhw_cause why = {""};
    config.scratch_bytes = 1;
    CHECK_U(pimattn_config_check(&config, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "scratch_bytes");
    for (char *p = why.text, *end; *p; p = end > p ? end : p + 1) {
        unsigned long long n = strtoull(p, &end, 10);
        if (end == p || n < 2) continue;
        config.scratch_bytes = n;
        if (pimattn_config_check(&config, NULL) != PIMATTN_OK) continue;
        config.scratch_bytes = n - 1;
        CHECK_U(pimattn_config_check(&config, NULL), PIMATTN_ERR_CONFIG);
        return n;
    }
    bool cause_names_the_least = false;
    CHECK(cause_names_the_least);
    return 0;
}

static void test_scratch(scene *s, check_rng *rng)
{
    (void)rng;
    how h = how_of(&s->kv.shape);
    uint64_t least = least_scratch(h.config), sizes[] = {least, least + 1000, 64u << 20};
    for (size_t i = 0; i < COUNT(sizes) && least; i++) {
        h.config.scratch_bytes = sizes[i];
        h.batch = i == 0;
        same(s, &h);
    }
}

static void scratch_size_changes_no_bit(void)
{
    over_scenes(test_scratch);
}

/* --------------------------------------------------------------------------
 * Workers: any order, any worker number, real threads.
 * -------------------------------------------------------------------------- */

typedef struct shuffle {
    check_rng rng;
    uint32_t n_workers;
    uint64_t n_calls;
} shuffle;

static void parallel_shuffled(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    shuffle *sh = (shuffle *)user;
    size_t *order = (size_t *)check_alloc(n, sizeof(size_t));
    sh->n_calls++;
    for (size_t i = 0; i < n; i++) {
        size_t j = rng_range(&sh->rng, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < n; i++)
        fn(arg, order[i], rng_range(&sh->rng, 0, sh->n_workers - 1));
    free(order);
}

static uint64_t n_shuffles;

static void test_shuffled(scene *s, check_rng *rng)
{
    for (uint32_t n_workers = 1; n_workers <= 4; n_workers *= 2) {
        shuffle sh = {{rng_u64(rng)}, n_workers, 0};
        how h = how_of(&s->kv.shape);
        h.config.max_workers = n_workers;
        h.config.parallel_for = parallel_shuffled;
        h.config.parallel_user = &sh;
        h.batch = n_workers == 2;
        same(s, &h);
        n_shuffles += sh.n_calls;
    }
}

static void workers_in_any_order_change_no_bit(void)
{
    n_shuffles = 0;
    over_scenes(test_shuffled);
    CHECK(n_shuffles > 0);
}

/* Two blocks of queries, each on 7 leaves: what a wave has no room for waits for the next. */
static void waves_of_any_size_change_no_bit(void)
{
    pimattn_shape shape = shape_of(1, 2, 1, 16, 0);
    scene s = scene_new(&shape, 3100, 16, 7);
    how h = how_of(&shape);
    h.config.max_workers = 4;
    const uint64_t least = least_scratch(h.config);
    for (uint64_t i = 0; i < 20; i++) { /* from one job at a time on */
        h.config.scratch_bytes = least + 1100 * i;
        if (!same(&s, &h)) printf("scratch_bytes %u more than the least\n", (unsigned)(1100 * i));
    }
    scene_free(&s);
}

#if HAVE_THREADS
typedef struct thread_job {
    size_t n, worker, n_workers;
    void (*fn)(void *, size_t, size_t);
    void *arg;
} thread_job;

static void *thread_main(void *user)
{
    thread_job *job = (thread_job *)user;
    for (size_t i = job->worker; i < job->n; i += job->n_workers)
        job->fn(job->arg, i, job->worker);
    return NULL;
}

static void parallel_threads(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    size_t n_workers = *(const size_t *)user;
    thread_job jobs[4];
    pthread_t threads[4];
    bool running[4];
    for (size_t w = 0; w < n_workers; w++) {
        thread_job job = {n, w, n_workers, fn, arg};
        jobs[w] = job;
        running[w] = pthread_create(&threads[w], NULL, thread_main, &jobs[w]) == 0;
        if (!running[w]) thread_main(&jobs[w]);
    }
    for (size_t w = 0; w < n_workers; w++)
        if (running[w]) pthread_join(threads[w], NULL);
}

static void test_threads(scene *s, check_rng *rng)
{
    (void)rng;
    for (size_t n_workers = 1; n_workers <= 4; n_workers *= 2) {
        how h = how_of(&s->kv.shape);
        h.config.max_workers = (uint32_t)n_workers;
        h.config.parallel_for = parallel_threads;
        h.config.parallel_user = &n_workers;
        h.batch = n_workers == 4;
        same(s, &h);
    }
}
#endif

static void threads_change_no_bit(void)
{
#if HAVE_THREADS
    over_scenes(test_threads);
#else
    skip("no POSIX threads");
#endif
}

/* --------------------------------------------------------------------------
 * A query head alone gives the bytes it gives inside its group.
 * -------------------------------------------------------------------------- */

/* kv of one KV head of all. */
static attn_kv only_head(const attn_kv *all, uint32_t kv_head)
{
    pimattn_shape one = all->shape;
    one.n_heads = one.n_kv_heads = 1;
    attn_kv kv = kv_new(&one, all->n_tokens);
    for (uint64_t t = 0; t < all->n_tokens; t++) {
        memcpy(kv.k + t * kv.k_row, all->k + t * all->k_row + kv_head * kv.k_row,
               kv.k_row * sizeof(float));
        memcpy(kv.v + t * kv.v_row, all->v + t * all->v_row + kv_head * kv.v_row,
               kv.v_row * sizeof(float));
    }
    return kv;
}

static void test_head_alone(scene *s, check_rng *rng)
{
    (void)rng;
    const pimattn_shape *shape = &s->kv.shape;
    size_t n = s->n_queries, dim = shape->head_dim, dv = s->kv.dv;
    float *q = (float *)check_alloc(n * dim, sizeof(float));
    float *out = (float *)check_alloc(n * dv, sizeof(float));
    float *lse = (float *)check_alloc(n, sizeof(float));
    for (uint32_t head = 0; head < shape->n_heads; head++) {
        attn_kv kv = only_head(&s->kv, head / (shape->n_heads / shape->n_kv_heads));
        how h = how_of(&kv.shape);
        for (size_t t = 0; t < n; t++)
            memcpy(q + t * dim, s->q + (t * shape->n_heads + head) * dim, dim * sizeof(float));
        compute(&h, &kv, n, q, out, lse);
        for (size_t t = 0; t < n; t++) {
            size_t at = t * shape->n_heads + head;
            CHECK_BYTES(out + t * dv, s->out + at * dv, dv * sizeof(float));
            CHECK_BYTES(lse + t, s->lse + at, sizeof(float));
        }
        kv_free(&kv);
    }
    free(q);
    free(out);
    free(lse);
}

static void groups_of_any_size(void)
{
    check_rng rng = {5};
    for (uint32_t n = 1; n <= 17; n++)
        for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
            pimattn_shape shape = shape_of(1, n, 1, 40, 0);
            shape.k_type = shape.v_type = type;
            scene s = scene_new(&shape, 530, 1 + (n + type) % 3, n);
            test_head_alone(&s, &rng);
            scene_free(&s);
        }
}

static void the_group_changes_no_bit(void)
{
    over_scenes(test_head_alone);
    over_kernels(groups_of_any_size);
}

/* A poisoned partial is NaN all over, any NaN of a sum the one NaN, for every kernel and group. */
static void poisoned_partials_are_the_one_nan(void)
{
    enum { T = 64, D = 16, MOST_HEADS = 9 };
    const uint32_t nan = 0x7fc00000;
    check_rng rng = {0x9a};
    for (uint32_t simd = 0; simd <= PIMATTN_SIMD_512; simd++)
        for (uint32_t n = 1; n <= MOST_HEADS; n++)
            for (int of_v = 0; of_v < 2; of_v++) {
                pimattn_shape s = shape_of(1, n, 1, D, 0);
                pimattn_config c = config_of(&s);
                attn_kv kv = kv_random(&s, T, &rng);
                float q[MOST_HEADS * D], o[MOST_HEADS][D];
                pimattn_partial p[MOST_HEADS];
                pimattn_call call;
                pimattn_item item = {0, 1};
                c.simd = simd;
                fill_normal(q, MOST_HEADS * D, 1, &rng);
                if (of_v)
                    kv.v[7] = INFINITY, kv.v[20 * kv.v_row + 7] = -INFINITY;
                else
                    kv.k[5 * kv.k_row] = NAN;
                pimattn_engine *e = engine_new(&c);
                CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
                CHECK_U(kv_append(e, item.seq, 0, &kv, 0, T), PIMATTN_OK);
                memset(&call, 0, sizeof call);
                for (uint32_t h = 0; h < n; h++)
                    p[h].o = o[h], p[h].dim = D;
                call.partials = p, call.q = q, call.items = &item, call.n_items = 1;
                CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_OK);
                for (uint32_t h = 0; h < n; h++) {
                    CHECK(isnan(p[h].m) == !of_v && isnan(p[h].l) == !of_v);
                    for (uint32_t j = 0; j < D; j++)
                        if (!of_v || j == 7)
                            CHECK_BYTES(&o[h][j], &nan, sizeof nan);
                        else
                            CHECK(isfinite(o[h][j]));
                }
                pimattn_engine_destroy(e);
                kv_free(&kv);
            }
}

/* --------------------------------------------------------------------------
 * Partials of single leaves, merged by the binary counter, are attention over the whole.
 * -------------------------------------------------------------------------- */

enum { TREE_HEADS = 2, TREE_DV = 10, TREE_LEAVES = 16 };

typedef struct tree_leaf {
    pimattn_partial head[TREE_HEADS];
    float o[TREE_HEADS][TREE_DV];
    unsigned level;
} tree_leaf;

static void leaf_init(tree_leaf *leaf)
{
    memset(leaf, 0x55, sizeof *leaf);
    leaf->level = 0;
    for (int h = 0; h < TREE_HEADS; h++) {
        leaf->head[h].o = leaf->o[h];
        leaf->head[h].dim = TREE_DV;
    }
}

static void leaf_attend(pimattn_engine *engine, pimattn_seq seq, const float *q, tree_leaf *leaf)
{
    pimattn_item item = {seq, 1};
    pimattn_call call;
    memset(&call, 0, sizeof call);
    leaf_init(leaf);
    call.partials = leaf->head, call.q = q, call.items = &item, call.n_items = 1;
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
}

static void leaf_merge(tree_leaf *left, const tree_leaf *right)
{
    for (int h = 0; h < TREE_HEADS; h++)
        CHECK_U(pimattn_partial_merge(&left->head[h], &right->head[h]), PIMATTN_OK);
    left->level++;
}

static void tree_case(uint64_t n_tokens, check_rng *rng)
{
    pimattn_shape shape = shape_of(1, TREE_HEADS, 1, 24, TREE_DV);
    pimattn_config config = config_of(&shape);
    attn_kv kv = kv_random(&shape, n_tokens, rng);
    float q[TREE_HEADS * 24], out[TREE_HEADS * TREE_DV];
    fill_normal(q, TREE_HEADS * 24, 2, rng);
    pimattn_engine *engine = engine_new(&config);
    static tree_leaf stack[TREE_LEAVES], whole;
    size_t n = 0;
    pimattn_seq seq = 0;
    if (!engine) return;
    for (uint64_t first = 0; first < n_tokens; first += LEAF) {
        uint64_t some = n_tokens - first < LEAF ? n_tokens - first : LEAF;
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, seq, 0, &kv, first, some), PIMATTN_OK);
        leaf_attend(engine, seq, q, &stack[n++]);
        for (; n > 1 && stack[n - 1].level == stack[n - 2].level; n--)
            leaf_merge(&stack[n - 2], &stack[n - 1]);
    }
    for (; n > 1; n--)
        leaf_merge(&stack[n - 2], &stack[n - 1]);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, seq, 0, &kv, 0, n_tokens), PIMATTN_OK);
    leaf_attend(engine, seq, q, &whole);
    CHECK_U(pimattn_attend_one(engine, seq, 0, out, q, NULL), PIMATTN_OK);
    for (int h = 0; h < TREE_HEADS; h++) {
        float merged[TREE_DV], given[TREE_DV];
        CHECK_BYTES(&stack[0].head[h].m, &whole.head[h].m, sizeof(float));
        CHECK_BYTES(&stack[0].head[h].l, &whole.head[h].l, sizeof(float));
        CHECK_BYTES(stack[0].o[h], whole.o[h], sizeof whole.o[h]);
        pimattn_partial_output(&stack[0].head[h], merged);
        pimattn_partial_output(&whole.head[h], given);
        CHECK_BYTES(merged, out + h * TREE_DV, sizeof merged);
        CHECK_BYTES(given, out + h * TREE_DV, sizeof given);
    }
    kv_free(&kv);
    pimattn_engine_destroy(engine);
}

static void leaves_and_tree(void)
{
    static const uint64_t lengths[] = {1,    511,  512,  513,  1024, 1025, 1536,
                                       2047, 2560, 3072, 3583, 4096, 4097, 7680};
    check_rng rng = {21};
    for (size_t i = 0; i < COUNT(lengths); i++)
        tree_case(lengths[i], &rng);
}

static void leaves_merged_by_the_tree_are_the_whole(void)
{
    over_kernels(leaves_and_tree);
}

/* Any argument: what threads do, alone. */
int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        RUN(threads_change_no_bit);
        return check_end();
    }
    RUN(page_size_changes_no_bit);
    RUN(one_call_of_n_is_n_calls_of_one);
    RUN(a_long_prompt_is_its_decode);
    RUN(batch_mates_change_no_bit);
    RUN(stale_nan_changes_no_bit);
    RUN(timing_changes_no_bit);
    RUN(scratch_size_changes_no_bit);
    RUN(workers_in_any_order_change_no_bit);
    RUN(waves_of_any_size_change_no_bit);
    RUN(threads_change_no_bit);
    RUN(the_group_changes_no_bit);
    RUN(poisoned_partials_are_the_one_nan);
    RUN(leaves_merged_by_the_tree_are_the_whole);
    return check_end();
}
