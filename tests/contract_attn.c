/* The contract: every status, every bad argument, every failing allocation. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { LAYERS = 3, HEADS = 4, KV_HEADS = 2, DIM = 8, PAGE = 4, MOST = 64 };

/* A small engine on a counting heap, with data for MOST tokens. */
typedef struct rig {
    check_heap heap;
    pimattn_config config;
    pimattn_engine *engine;
    attn_kv kv;
    float q[MOST * HEADS * DIM];
    float out[MOST * HEADS * DIM];
} rig;

static rig shared_rig;

static rig *rig_new(uint64_t pool_pages)
{
    rig *r = &shared_rig;
    check_rng rng = {3};
    pimattn_shape s = shape_of(LAYERS, HEADS, KV_HEADS, DIM, 0);
    memset(r, 0, sizeof *r);
    r->config = config_of(&s);
    r->config.page_tokens = PAGE;
    r->config.max_seqs = 3;
    r->config.allocator = heap_allocator(&r->heap);
    r->config.pool_bytes = pool_pages * 512; /* a page: K 4 x 16 x 4 bytes, V the same */
    r->kv = kv_random(&s, MOST, &rng);
    fill_normal(r->q, COUNT(r->q), 1, &rng);
    r->engine = engine_new(&r->config);
    return r;
}

static void rig_end(rig *r)
{
    pimattn_engine_destroy(r->engine);
    CHECK_U(r->heap.n_live, 0);
    CHECK_U(r->heap.live_bytes, 0);
    CHECK_U(r->heap.n_wrong, 0);
    kv_free(&r->kv);
}

static pimattn_seq rig_seq(rig *r)
{
    pimattn_seq seq = 0;
    CHECK_U(pimattn_seq_create(r->engine, &seq), PIMATTN_OK);
    return seq;
}

static void rig_append(rig *r, pimattn_seq seq, uint64_t first, uint64_t n)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        CHECK_U(kv_append(r->engine, seq, layer, &r->kv, first, n), PIMATTN_OK);
}

static uint64_t rig_tokens(rig *r, pimattn_seq seq, uint32_t layer)
{
    uint64_t n = UINT64_MAX;
    CHECK_U(pimattn_seq_tokens(r->engine, seq, layer, &n), PIMATTN_OK);
    return n;
}

static pimattn_call rig_call(rig *r, const pimattn_item *items, size_t n_items)
{
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = r->out, call.q = r->q, call.items = items, call.n_items = n_items;
    return call;
}

/* --------------------------------------------------------------------------
 * Words and configurations
 * -------------------------------------------------------------------------- */

static void every_status_has_words_of_its_own(void)
{
    for (int i = 0; i <= PIMATTN_ERR_STATE; i++) {
        const char *words = pimattn_status_str((pimattn_status)i);
        if (!CHECK(words && words[0])) continue;
        for (int j = 0; j < i; j++)
            CHECK(strcmp(words, pimattn_status_str((pimattn_status)j)) != 0);
    }
    CHECK(pimattn_status_str((pimattn_status)99) != NULL);
}

/* At most what is asked for, and that by its name: else tests of every kernel have one. */
static void kernels_are_those_asked_for(void)
{
    pimattn_kernel_info most, k;
    pimattn_kernel_select(PIMATTN_SIMD_MOST, &most);
    for (uint32_t simd = PIMATTN_SIMD_NONE; simd <= PIMATTN_SIMD_512 + 1; simd++) {
        pimattn_kernel_select(simd, &k);
        CHECK_U(k.simd, simd < most.simd ? simd : most.simd);
        CHECK((k.simd == PIMATTN_SIMD_NONE) == (strcmp(k.name, "scalar") == 0));
        CHECK((k.simd == most.simd) == (strcmp(k.name, most.name) == 0));
    }
    pimattn_kernel_select(PIMATTN_SIMD_MOST, NULL);
}

static pimattn_config good_config(void)
{
    pimattn_shape s = shape_of(2, 4, 2, 16, 0);
    return config_of(&s);
}

static void bad_field(const pimattn_config *c, const char *field, int line)
{
    pimhw_cause why = {""};
    pimattn_engine *engine = (pimattn_engine *)(void *)&why;
    if (!CHECK_U(pimattn_config_check(c, &why), PIMATTN_ERR_CONFIG) || !CHECK_HAS(why.text, field))
        printf("  the case of line %d\n", line);
    CHECK_U(pimattn_config_check(c, NULL), PIMATTN_ERR_CONFIG);
    CHECK_U(pimattn_engine_create(&engine, c, NULL), PIMATTN_ERR_CONFIG);
    CHECK(engine == NULL);
}

/* Each with one statement that spoils a good configuration. */
#define BAD(field, spoil)                                                                          \
    do {                                                                                           \
        pimattn_config c = good_config();                                                          \
        spoil;                                                                                     \
        bad_field(&c, field, __LINE__);                                                            \
    } while (0)

static void the_check_names_the_field(void)
{
    pimattn_config good = good_config();
    CHECK_U(pimattn_config_check(&good, NULL), PIMATTN_OK);
    BAD("n_layers", memset(&c, 0, sizeof c));
    BAD("device.n_channels is set", c.device.n_channels = 4);
    BAD("device.link_MBps is set", c.device.link_MBps = 1);
    BAD("n_layers", c.shape.n_layers = 0);
    BAD("n_layers", c.shape.n_layers = 65537);
    BAD("n_heads", c.shape.n_heads = 0);
    BAD("n_heads", c.shape.n_heads = 5);
    BAD("n_heads", c.shape.n_heads = 65538);
    BAD("n_heads", c.shape.n_heads = UINT32_MAX - 1);
    BAD("n_kv_heads", c.shape.n_kv_heads = 0);
    BAD("head_dim", c.shape.head_dim = 0);
    BAD("head_dim", c.shape.head_dim = 65537);
    BAD("head_dim", c.shape.head_dim = UINT32_MAX);
    BAD("head_dim_v", c.shape.head_dim_v = 65537);
    BAD("head_dim_v", c.shape.head_dim_v = UINT32_MAX);
    BAD("k_type", c.shape.k_type = PIMATTN_N_TYPE);
    BAD("io_type", c.shape.io_type = PIMATTN_F16);
    BAD("v_type", c.shape.v_type = UINT32_MAX);
    BAD("simd", c.simd = PIMATTN_SIMD_512 + 1);
    BAD("scale", c.shape.scale = NAN);
    BAD("scale", c.shape.scale = INFINITY);
    BAD("page_tokens", c.page_tokens = UINT32_MAX);
    BAD("pool_bytes", c.pool_bytes = 1);
    BAD("pool_bytes for a page", c.shape = shape_of(65536, 65536, 65536, 65536, 0));
    BAD("pages in pool_bytes",
        (c.shape.head_dim = c.page_tokens = 1, c.pool_bytes = UINT64_C(1) << 46));
    BAD("max_seqs", c.max_seqs = 65536);
    BAD("scratch_bytes", c.scratch_bytes = 1);
    BAD("reserve_tokens", c.reserve_tokens = (UINT64_C(1) << 32) + 1);
    BAD("pool pages for reserve_tokens is 2, not 0 to 1",
        (c.reserve_tokens = 129, c.pool_bytes = 7 * 128 * 2 * 16 * 4));
    BAD("partition", c.partition = 2);
    BAD("hfp_unit", c.hfp_unit = 2);
    BAD("allocator", c.allocator.alloc = heap_alloc);
    BAD("allocator", c.allocator.release = heap_release);
    BAD("n_channels", pimhw_config_init(&c.device, "aimx", NULL); c.device.n_channels = 65);
    BAD("tRP", pimhw_config_init(&c.device, "aimx", NULL); c.device.tRP = 0);
}

static void huge_settings_are_a_status(void)
{
    pimattn_engine *engine = NULL;
    for (int i = 0; i < 6; i++) {
        pimattn_config c = good_config();
        if (i == 0) c.memo_entries = UINT32_MAX;
        if (i == 1) c.max_workers = UINT32_MAX;
        if (i == 2) c.scratch_bytes = UINT64_MAX;
        if (i == 3) c.page_tokens = 1, c.shape.n_layers = 65536, c.max_seqs = 65535;
        if (i == 4) c.pool_bytes = UINT64_MAX;
        if (i == 5) c.shape = shape_of(65536, 65536, 65536, 65536, 65536);
        check_heap heap = {0};
        heap.fail_at = 1;
        heap.fail_after = true; /* nothing this big is really wanted */
        c.allocator = heap_allocator(&heap);
        pimattn_status status = pimattn_engine_create(&engine, &c, NULL);
        CHECK(status == PIMATTN_ERR_CONFIG || status == PIMATTN_ERR_MEMORY);
        CHECK(engine == NULL);
    }
}

static void *modest_alloc(void *user, size_t bytes, size_t align)
{
    return bytes > 1u << 30 ? NULL : heap_alloc(user, bytes, align);
}

/* Chunks of a device have numbers of 32 bits. */
static void more_chunks_than_numbers_are_named(void)
{
    pimattn_config c = good_config();
    pimattn_engine *engine = NULL;
    pimhw_cause why = {""};
    check_heap heap = {0};
    CHECK_U(pimhw_config_init(&c.device, "aimx", NULL), PIMHW_OK);
    c.device.n_channels = 64;
    c.device.n_rows = 1u << 28;
    c.device.row_bytes = 32768; /* 2 rows of 16 banks a chunk */
    c.way = PIMATTN_DEVICE;
    c.partition = PIMATTN_HFP;
    c.allocator = heap_allocator(&heap);
    c.allocator.alloc = modest_alloc;
    CHECK_U(pimattn_engine_create(&engine, &c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "n_rows is 268435456, not below 2^32 chunks");
    CHECK(engine == NULL);
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    c.device.n_rows = (1u << 27) - 1;
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_OK);
    c.device.n_channels = c.device.n_rows = 1; /* of 2 a chunk */
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "n_rows is 1, 0 chunks: a token takes 8");
    c.device.n_rows = 15; /* of K and of V, 2 layers of 2 KV heads */
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    c.device.n_rows = 16;
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_OK);
    c.device.element_bytes = 4; /* units know lanes of 2 bytes alone */
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "element_bytes is 4, not 2");
    CHECK_U(heap.n_live + heap.n_wrong, 0);
}

static void zero_means_usual_and_is_reported(void)
{
    pimattn_config c = good_config();
    pimattn_engine *engine = engine_new(&c);
    if (!engine) return;
    const pimattn_config *full = pimattn_engine_config(engine);
    CHECK_U(full->page_tokens, 128);
    CHECK_U(full->pool_bytes, 1u << 30);
    CHECK_U(full->max_seqs, 64);
    CHECK_U(full->scratch_bytes, 8u << 20);
    CHECK_U(full->memo_entries, 64);
    CHECK_U(full->max_workers, 1);
    CHECK_U(full->shape.head_dim_v, 16);
    CHECK_NEAR(full->shape.scale, 0.25, 0);
    CHECK_STR(full->device.preset, "aimx");
    CHECK_U(full->device.n_channels, 16);
    CHECK_STR(pimattn_engine_cause(engine), "");
    CHECK_U(pimattn_page_bytes(engine), 8 * (16 * 16 * 4 + 16 * 16 * 4));
    CHECK_U(pimattn_pages_total(engine), (1u << 30) / pimattn_page_bytes(engine));
    CHECK_U(pimattn_pages_used(engine), 0);
    pimattn_engine_destroy(engine);
    pimattn_engine_destroy(NULL);
    /* the usual pool has a page of every layer and head, also where that is more: GPT-3 */
    pimattn_readings readings;
    const pimattn_span span = {2048, 1};
    memset(&c, 0, sizeof c);
    c.shape.n_layers = c.shape.n_heads = c.shape.n_kv_heads = 96, c.shape.head_dim = 128;
    CHECK_U(pimattn_config_check(&c, NULL), PIMATTN_OK);
    CHECK_U(pimattn_estimate(&readings, &c, &span, 1, NULL), PIMATTN_OK);
    c.pool_bytes = 1ull << 30;
    CHECK_U(pimattn_config_check(&c, NULL), PIMATTN_ERR_CONFIG);
    /* and the usual working memory is what is needed, where that is more: MLA of 128 heads */
    memset(&c, 0, sizeof c);
    c.shape.n_layers = c.shape.n_kv_heads = 1, c.shape.n_heads = 128;
    c.shape.head_dim = 576, c.shape.head_dim_v = 512, c.shape.v_in_k = true;
    c.max_workers = 32;
    CHECK_U(pimattn_estimate(&readings, &c, &span, 1, NULL), PIMATTN_OK);
    engine = engine_new(&c);
    if (!engine) return;
    CHECK(pimattn_engine_config(engine)->scratch_bytes > 8u << 20);
    pimattn_engine_destroy(engine);
    c.scratch_bytes = 8u << 20;
    CHECK_U(pimattn_config_check(&c, NULL), PIMATTN_ERR_CONFIG);
}

static void count_joins(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    ++*(size_t *)user;
    for (size_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

/* The usual working memory has room for all jobs of a call, however much workers themselves take:
 * there is one join, and no serial loop. */
static void no_worker_is_idle_by_default(void)
{
    enum { CALLERS = 96, WIDE = 512, TOKENS = 1024 };
    static float kv[TOKENS * WIDE], out[CALLERS * WIDE], q[CALLERS * WIDE];
    for (uint32_t workers = 2; workers <= CALLERS; workers += 47) {
        size_t n_joins = 0;
        pimattn_config c = good_config();
        c.shape = shape_of(1, 1, 1, WIDE, 0);
        c.pool_bytes = 16u << 20;
        c.max_seqs = CALLERS;
        c.max_workers = workers, c.parallel_for = count_joins, c.parallel_user = &n_joins;
        pimattn_engine *engine = engine_new(&c);
        pimattn_item items[CALLERS];
        if (!engine) return;
        CHECK_U(pimattn_seq_create(engine, &items[0].seq), PIMATTN_OK);
        CHECK_U(pimattn_append(engine, items[0].seq, 0, kv, kv, TOKENS, 0, 0), PIMATTN_OK);
        for (size_t i = 0; i < CALLERS; i++) {
            if (i) CHECK_U(pimattn_seq_fork(engine, &items[i].seq, items[0].seq), PIMATTN_OK);
            items[i].n_tokens = 1;
        }
        const pimattn_call call = {.items = items, .n_items = CALLERS, .q = q, .out = out};
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        CHECK_U(n_joins, 1);
        pimattn_engine_destroy(engine);
    }
}

/* Nor does it refuse lengths that the usual pool has pages for, of which its owner keeps others. */
static void usual_lengths_of_pages_fit_by_default(void)
{
    enum { K = 576, PAGE_TOKENS = 128, PAGES = 256 };
    static float page[PAGE_TOKENS * K], q[K], out[512];
    static uint32_t table[PAGES]; /* the same page again and again */
    const uint32_t length = PAGE_TOKENS * PAGES;
    pimattn_config c = good_config();
    c.shape = shape_of(61, 1, 1, K, 512);
    c.shape.v_in_k = true;
    c.max_workers = 64;
    for (int small = 0; small < 2; small++) { /* the pool, which is of no use here */
        if (small) c.page_tokens = 16, c.pool_bytes = 16 * 61 * 16 * (K * 4 + 64);
        pimattn_engine *engine = engine_new(&c);
        const pimattn_item item = {0, 1};
        const pimattn_call call = {.items = &item, .n_items = 1, .q = q, .out = out};
        pimattn_pages p = {.n_pages = 1, .page_tokens = PAGE_TOKENS, .table_stride = PAGES};
        p.k.at = page, p.table = table, p.lengths = &length;
        if (!engine) return;
        CHECK_U(pimattn_attend_pages(engine, 0, &p, &call, NULL), PIMATTN_OK);
        pimattn_engine_destroy(engine);
    }
}

/* A parallel_for that does not do what it must. */
typedef enum amiss { ALL_TWICE = 0, NONE, NOT_LAST, WRONG_WORKER, N_AMISS } amiss;

static uint32_t n_joins_amiss;

static void run_amiss(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    n_joins_amiss++;
    const amiss how = *(const amiss *)user;
    for (size_t i = 0; i < n && how != NONE; i++) {
        if (how == NOT_LAST && i + 1 == n) continue;
        fn(arg, i, how == WRONG_WORKER && i == 1 ? 2 : 0);
        if (how == ALL_TWICE) fn(arg, i, 1);
    }
    if (how != NONE) fn(arg, n, 0); /* beyond the last */
}

static void a_parallel_for_that_leaves_some_out_is_named(void)
{
    enum { TOKENS = 4000 };
    static float kv[TOKENS * 2 * 16];
    float q[4 * 16], out[2][4 * 16];
    check_rng rng = {9};
    fill_normal(kv, COUNT(kv), 1, &rng);
    fill_normal(q, COUNT(q), 1, &rng);
    for (int waves = 0; waves < 2; waves++) { /* all jobs at once, or some */
        amiss how = ALL_TWICE;
        pimattn_seq s = 0;
        pimattn_config c = good_config();
        c.max_workers = 2, c.parallel_for = run_amiss, c.parallel_user = &how;
        if (waves) c.scratch_bytes = 56 << 10;
        pimattn_engine *e = engine_new(&c);
        if (!e) return;
        CHECK_U(pimattn_seq_create(e, &s), PIMATTN_OK);
        CHECK_U(pimattn_append(e, s, 0, kv, kv, TOKENS, 0, 0), PIMATTN_OK);
        n_joins_amiss = 0;
        CHECK_U(pimattn_attend_one(e, s, 0, out[0], q, NULL), PIMATTN_OK);
        CHECK(waves ? n_joins_amiss > 1 : n_joins_amiss == 1);
        for (how = NONE; how < N_AMISS; how = (amiss)(how + 1)) {
            out[1][5] = 77;
            CHECK_U(pimattn_attend_one(e, s, 0, out[1], q, NULL), PIMATTN_ERR_ARGUMENT);
            CHECK_HAS(pimattn_engine_cause(e), "parallel_for left");
            if (how == NONE) CHECK_NEAR(out[1][5], 77, 0);
        }
        how = ALL_TWICE;
        CHECK_U(pimattn_attend_one(e, s, 0, out[1], q, NULL), PIMATTN_OK);
        CHECK_BYTES(out[0], out[1], sizeof out[0]);
        pimattn_engine_destroy(e);
    }
}

static uint64_t up64(uint64_t x)
{
    return (x + 63) / 64 * 64;
}

static void page_bytes_follow_the_formula(void)
{
    static const uint32_t pages[] = {1, 7, 16, 24, 40, 64, 128};
    for (size_t i = 0; i < COUNT(pages); i++) {
        pimattn_shape s = shape_of(1, 2, 1, 5, 17);
        s.k_type = PIMATTN_F16;
        pimattn_config c = config_of(&s);
        c.page_tokens = pages[i];
        pimattn_engine *engine = engine_new(&c);
        if (!engine) return;
        uint64_t run = pages[i] % 16 ? pages[i] : 16;
        CHECK_U(pimattn_page_bytes(engine),
                pages[i] / run * (up64(run * 16 * 2) + up64(run * 32 * 4)));
        pimattn_engine_destroy(engine);
        c.shape.k_type = PIMATTN_INT8, c.shape.v_type = PIMATTN_INT8;
        engine = engine_new(&c);
        if (!engine) return;
        CHECK_U(pimattn_page_bytes(engine),
                pages[i] / run * (up64(run * 16) + up64(run * 32) + 2 * up64(run * 4)));
        pimattn_engine_destroy(engine);
    }
}

/* --------------------------------------------------------------------------
 * Arguments
 * -------------------------------------------------------------------------- */

static void null_pointers_are_a_status(void)
{
    rig *r = rig_new(100);
    pimattn_engine *e = r->engine;
    pimattn_seq s = rig_seq(r);
    uint64_t n;
    float *k = r->kv.k, *v = r->kv.v;
    const pimhw_program *program;
    const pimhw_request *request;
    rig_append(r, s, 0, 5);
    CHECK_U(pimattn_config_check(NULL, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_create(NULL, &r->config, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_create(&e, NULL, NULL), PIMATTN_ERR_ARGUMENT);
    e = r->engine;
    CHECK_U(pimattn_seq_create(NULL, &s), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_create(e, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_free(NULL, s), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_reserve(NULL, s, 1), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_tokens(NULL, s, 0, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_tokens(e, s, 0, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(NULL, s, 0, k, v, 1, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(e, s, 0, NULL, v, 1, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(e, s, 0, k, NULL, 1, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(e, s, 0, NULL, NULL, 0, 0, 0), PIMATTN_OK); /* needs none */
    CHECK_U(pimattn_attend_one(NULL, s, 0, r->out, r->q, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend_one(e, s, 0, NULL, r->q, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend_one(e, s, 0, r->out, NULL, NULL), PIMATTN_ERR_ARGUMENT);
    pimattn_item item = {s, 1};
    pimattn_call call = rig_call(r, &item, 1);
    CHECK_U(pimattn_attend(NULL, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_attend(e, 0, NULL, NULL), PIMATTN_ERR_ARGUMENT);
    call.q = NULL;
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    call = rig_call(r, NULL, 1);
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    call = rig_call(r, &item, 1);
    call.out = NULL;
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    pimattn_partial partials[HEADS] = {{0, 0, NULL, DIM}};
    call.partials = partials; /* o is NULL, dim of three is 0 */
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_program(NULL, 0, &item, 1, &program, &request), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_program(e, 0, NULL, 1, &program, &request), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_program(e, 0, &item, 1, NULL, &request), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_program(e, 0, &item, 1, &program, NULL), PIMATTN_ERR_ARGUMENT);
    pimattn_readings readings;
    pimattn_span span = {5, 1};
    CHECK_U(pimattn_estimate(NULL, &r->config, &span, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_estimate(&readings, NULL, &span, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_estimate(&readings, &r->config, NULL, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(rig_tokens(r, s, 0), 5);
    rig_end(r);
}

/* The failing call leaves the output as it was. */
static void check_refused(rig *r, uint32_t layer, const pimattn_call *call, pimattn_status status)
{
    memset(r->out, 0x5a, sizeof r->out);
    if (!CHECK_U(pimattn_attend(r->engine, layer, call, NULL), status))
        printf("  %s\n", pimattn_engine_cause(r->engine));
    CHECK(pimattn_engine_cause(r->engine)[0] != 0);
    for (size_t i = 0; i < sizeof r->out; i += sizeof(float))
        if (!CHECK_U(((const unsigned char *)r->out)[i], 0x5a)) return;
}

static void attend_refuses_what_does_not_fit(void)
{
    rig *r = rig_new(100);
    pimattn_item items[5] = {{rig_seq(r), 2}, {rig_seq(r), 1}, {rig_seq(r), 1}, {1, 1}, {1, 1}};
    pimattn_call call = rig_call(r, items, 2);
    rig_append(r, items[0].seq, 0, 6);
    rig_append(r, items[1].seq, 2, 3);
    CHECK_U(pimattn_attend(r->engine, 0, &call, NULL), PIMATTN_OK);
    check_refused(r, LAYERS, &call, PIMATTN_ERR_ARGUMENT);
    check_refused(r, UINT32_MAX, &call, PIMATTN_ERR_ARGUMENT);
    items[1].n_tokens = 4;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    items[1].n_tokens = UINT64_MAX;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    items[1].n_tokens = 1;
    call.n_items = 3; /* the third sequence is empty */
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.n_items = SIZE_MAX;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.n_items = 4; /* one more than max_seqs */
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(r->engine), "max_seqs");
    call.n_items = 2;
    size_t q_row = HEADS * DIM * sizeof(float);
    call.q_stride = q_row - 4;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.q_stride = SIZE_MAX - 3;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.q_stride = 0;
    call.out_stride = q_row - 4;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.out_stride = SIZE_MAX - 3;
    check_refused(r, 0, &call, PIMATTN_ERR_ARGUMENT);
    call.out_stride = q_row;
    items[1].seq = 123456789;
    check_refused(r, 0, &call, PIMATTN_ERR_SEQ);
    items[1].seq = 0;
    if (items[0].seq && items[2].seq) check_refused(r, 0, &call, PIMATTN_ERR_SEQ);
    items[1].seq = UINT64_MAX;
    check_refused(r, 0, &call, PIMATTN_ERR_SEQ);
    items[1].seq = items[2].seq;
    CHECK_U(kv_append(r->engine, items[2].seq, 0, &r->kv, 0, 1), PIMATTN_OK);
    CHECK_U(pimattn_attend(r->engine, 0, &call, NULL), PIMATTN_OK);
    check_refused(r, 1, &call, PIMATTN_ERR_ARGUMENT); /* no token in that layer yet */
    rig_end(r);
}

static void partials_must_fit(void)
{
    rig *r = rig_new(100);
    pimattn_item item = {rig_seq(r), 1};
    pimattn_partial partials[HEADS];
    float o[HEADS][DIM], good[HEADS][DIM];
    rig_append(r, item.seq, 0, 9);
    for (uint32_t h = 0; h < HEADS; h++) {
        pimattn_partial p = {0, 0, o[h], DIM};
        partials[h] = p;
    }
    pimattn_call call = rig_call(r, &item, 1);
    call.out = NULL, call.partials = partials;
    CHECK_U(pimattn_attend(r->engine, 0, &call, NULL), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(r->engine, item.seq, 0, &good[0][0], r->q, NULL), PIMATTN_OK);
    for (uint32_t h = 0; h < HEADS; h++) {
        float out[DIM];
        pimattn_partial_output(&partials[h], out);
        CHECK_BYTES(out, good[h], sizeof out);
    }
    partials[HEADS - 1].dim = DIM - 1;
    memset(o, 0x5a, sizeof o);
    CHECK_U(pimattn_attend(r->engine, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(float_bits(o[0][0]), 0x5a5a5a5a);
    rig_end(r);
}

static void append_refuses_what_does_not_fit(void)
{
    rig *r = rig_new(100);
    pimattn_seq s = rig_seq(r);
    float *k = r->kv.k, *v = r->kv.v;
    size_t row = KV_HEADS * DIM * sizeof(float);
    rig_append(r, s, 0, 5);
    uint64_t pages = pimattn_pages_used(r->engine);
    CHECK_U(pimattn_append(r->engine, s, LAYERS, k, v, 1, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, UINT32_MAX, k, v, 1, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, row - 4, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, 0, row - 4), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, SIZE_MAX - 3, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, 0, SIZE_MAX - 3), PIMATTN_ERR_ARGUMENT);
    const size_t half = SIZE_MAX / 2 + 1; /* twice that is 0 */
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, half, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s, 0, k, v, 2, 0, half), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_append(r->engine, s + 1000, 0, k, v, 1, 0, 0), PIMATTN_ERR_SEQ);
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 4, 1ull << 63, 1ull << 40};
    for (size_t i = 0; i < COUNT(huge); i++) {
        pimattn_status status = pimattn_append(r->engine, s, 0, k, v, huge[i], 0, 0);
        CHECK_U(status, PIMATTN_ERR_ARGUMENT);
        CHECK_HAS(pimattn_engine_cause(r->engine), "tokens is more than 2^32");
        status = pimattn_seq_reserve(r->engine, s, huge[i]);
        CHECK_U(status, PIMATTN_ERR_ARGUMENT);
        CHECK_HAS(pimattn_engine_cause(r->engine), "tokens is more than 2^32");
    }
    CHECK_U(rig_tokens(r, s, 0), 5);
    CHECK_U(pimattn_pages_used(r->engine), pages);
    CHECK_U(pimattn_seq_tokens(r->engine, s, LAYERS, &pages), PIMATTN_ERR_ARGUMENT);
    rig_end(r);
}

static void freed_ids_stay_dead(void)
{
    rig *r = rig_new(100);
    pimattn_seq a = rig_seq(r), b = rig_seq(r), none = 0;
    uint64_t n;
    rig_append(r, a, 0, 5);
    rig_append(r, b, 0, 9);
    uint64_t both = pimattn_pages_used(r->engine);
    CHECK_U(both, (2 + 3) * LAYERS * KV_HEADS);
    CHECK_U(pimattn_seq_free(r->engine, a), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r->engine), 3 * LAYERS * KV_HEADS);
    pimattn_seq c = rig_seq(r);
    CHECK(c != a && c != b);
    CHECK_U(rig_tokens(r, c, 0), 0);
    CHECK_U(pimattn_seq_free(r->engine, a), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_reserve(r->engine, a, 1), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_tokens(r->engine, a, 0, &n), PIMATTN_ERR_SEQ);
    CHECK_U(kv_append(r->engine, a, 0, &r->kv, 0, 1), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_attend_one(r->engine, a, 0, r->out, r->q, NULL), PIMATTN_ERR_SEQ);
    (void)rig_seq(r);
    CHECK_U(pimattn_seq_create(r->engine, &none), PIMATTN_ERR_SEQ); /* max_seqs is 3 */
    CHECK(pimattn_engine_cause(r->engine)[0] != 0);
    CHECK_U(pimattn_seq_free(r->engine, b), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(r->engine, &none), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r->engine), 0);
    rig_end(r);
}

/* Layer 1 lags behind: its own length counts there, and reserve names it. */
static void layers_may_differ_while_a_step_is_under_way(void)
{
    rig *r = rig_new(100);
    pimattn_seq s = rig_seq(r);
    rig_append(r, s, 0, 3);
    CHECK_U(kv_append(r->engine, s, 0, &r->kv, 3, 2), PIMATTN_OK);
    CHECK_U(rig_tokens(r, s, 0), 5);
    CHECK_U(rig_tokens(r, s, 1), 3);
    if (CHECK_U(pimattn_attend_one(r->engine, s, 1, r->out, r->q, NULL), PIMATTN_OK))
        check_row(&r->kv, 3, r->q, r->out, NULL);
    if (CHECK_U(pimattn_attend_one(r->engine, s, 0, r->out, r->q, NULL), PIMATTN_OK))
        check_row(&r->kv, 5, r->q, r->out, NULL);
    CHECK(pimattn_seq_reserve(r->engine, s, 1) != PIMATTN_OK);
    CHECK_HAS(pimattn_engine_cause(r->engine), "layer");
    CHECK_U(kv_append(r->engine, s, 1, &r->kv, 3, 2), PIMATTN_OK);
    CHECK_U(kv_append(r->engine, s, 2, &r->kv, 3, 2), PIMATTN_OK);
    CHECK_U(pimattn_seq_reserve(r->engine, s, 1), PIMATTN_OK);
    rig_end(r);
}

/* --------------------------------------------------------------------------
 * Pages
 * -------------------------------------------------------------------------- */

/* 13 pages would be two logical pages of 3 layers x 2 KV heads, and one page that helps nobody. */
static void a_step_takes_its_pages_in_all_layers_or_none(void)
{
    rig *r = rig_new(13);
    pimattn_seq s = rig_seq(r), t = rig_seq(r);
    float before[HEADS * DIM];
    CHECK_U(pimattn_pages_total(r->engine), 12);
    CHECK_U(kv_append(r->engine, s, 0, &r->kv, 0, 1), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r->engine), 6);
    CHECK_U(kv_append(r->engine, s, 1, &r->kv, 0, 1), PIMATTN_OK);
    CHECK_U(kv_append(r->engine, s, 2, &r->kv, 0, 1), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r->engine), 6);
    CHECK_U(pimattn_attend_one(r->engine, s, 2, before, r->q, NULL), PIMATTN_OK);
    CHECK_U(kv_append(r->engine, s, 0, &r->kv, 1, 8), PIMATTN_ERR_PAGES);
    CHECK(pimattn_engine_cause(r->engine)[0] != 0);
    CHECK_U(pimattn_seq_reserve(r->engine, s, 8), PIMATTN_ERR_PAGES);
    CHECK_U(pimattn_pages_used(r->engine), 6);
    CHECK_U(rig_tokens(r, s, 0), 1);
    rig_append(r, s, 1, 7);
    CHECK_U(pimattn_pages_used(r->engine), 12);
    CHECK_U(kv_append(r->engine, s, 0, &r->kv, 8, 1), PIMATTN_ERR_PAGES);
    CHECK_U(kv_append(r->engine, t, 0, &r->kv, 0, 1), PIMATTN_ERR_PAGES);
    CHECK_U(pimattn_pages_used(r->engine), 12);
    CHECK_U(rig_tokens(r, t, 0), 0);
    CHECK_U(pimattn_attend_one(r->engine, s, 2, r->out, r->q, NULL), PIMATTN_OK);
    check_row(&r->kv, 8, r->q, r->out, NULL);
    CHECK_U(pimattn_seq_free(r->engine, s), PIMATTN_OK);
    rig_append(r, t, 0, 1);
    CHECK_U(pimattn_attend_one(r->engine, t, 2, r->out, r->q, NULL), PIMATTN_OK);
    CHECK_BYTES(r->out, before, sizeof before);
    rig_end(r);
}

static void reserved_pages_are_there_for_the_append(void)
{
    rig *r = rig_new(18);
    pimattn_seq s = rig_seq(r), t = rig_seq(r);
    CHECK_U(pimattn_seq_reserve(r->engine, s, 8), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r->engine), 12);
    CHECK_U(rig_tokens(r, s, 0), 0);
    CHECK_U(kv_append(r->engine, t, 0, &r->kv, 0, 5), PIMATTN_ERR_PAGES);
    CHECK_U(kv_append(r->engine, t, 0, &r->kv, 0, 4), PIMATTN_OK);
    uint64_t n_calls = r->heap.n_calls;
    rig_append(r, s, 0, 8);
    CHECK_U(r->heap.n_calls, n_calls);
    CHECK_U(pimattn_pages_used(r->engine), 18);
    rig_end(r);
}

/* --------------------------------------------------------------------------
 * Allocations failing in turn
 * -------------------------------------------------------------------------- */

static void create_survives_every_failing_allocation(void)
{
    for (uint64_t n = 1; n < 1000; n++) {
        check_heap heap = {0};
        pimhw_cause why = {""};
        pimattn_config c = good_config();
        pimattn_engine *engine = (pimattn_engine *)(void *)&heap;
        c.allocator = heap_allocator(&heap);
        heap.fail_at = n;
        pimattn_status status = pimattn_engine_create(&engine, &c, &why);
        if (status == PIMATTN_OK) {
            CHECK(n > 1);
            pimattn_engine_destroy(engine);
            CHECK_U(heap.n_live, 0);
            CHECK_U(heap.n_wrong, 0);
            return;
        }
        CHECK_U(status, PIMATTN_ERR_MEMORY);
        CHECK(engine == NULL && why.text[0]);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
    }
    bool ever_enough = false;
    CHECK(ever_enough);
}

/* Grows one sequence by append or reserve with the n-th allocation failing, for all n. */
static void grow_failing(bool by_reserve)
{
    for (uint64_t n = 1; n < 1000; n++) {
        rig *r = rig_new(100000);
        pimattn_seq s = rig_seq(r);
        float before[HEADS * DIM];
        rig_append(r, s, 0, 3);
        uint64_t pages = pimattn_pages_used(r->engine), live = r->heap.live_bytes;
        CHECK_U(pimattn_attend_one(r->engine, s, 1, before, r->q, NULL), PIMATTN_OK);
        r->heap.fail_at = r->heap.n_calls + n;
        pimattn_status status = by_reserve ? pimattn_seq_reserve(r->engine, s, 50000)
                                           : kv_append(r->engine, s, 0, &r->kv, 3, 61);
        r->heap.fail_at = 0;
        if (status == PIMATTN_OK) {
            CHECK(n > 1 || !by_reserve);
            rig_end(r);
            return;
        }
        CHECK_U(status, PIMATTN_ERR_MEMORY);
        CHECK(pimattn_engine_cause(r->engine)[0] != 0);
        CHECK_U(pimattn_pages_used(r->engine), pages);
        CHECK(r->heap.live_bytes >= live);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            CHECK_U(rig_tokens(r, s, layer), 3);
        CHECK_U(pimattn_attend_one(r->engine, s, 1, r->out, r->q, NULL), PIMATTN_OK);
        CHECK_BYTES(r->out, before, sizeof before);
        rig_append(r, s, 3, 61);
        CHECK_U(pimattn_attend_one(r->engine, s, 2, r->out, r->q, NULL), PIMATTN_OK);
        check_row(&r->kv, 64, r->q, r->out, NULL);
        rig_end(r);
    }
    bool ever_enough = false;
    CHECK(ever_enough);
}

static void append_survives_every_failing_allocation(void)
{
    grow_failing(false);
}

static void reserve_survives_every_failing_allocation(void)
{
    grow_failing(true);
}

static void a_fork_without_memory_says_so(void)
{
    rig *r = rig_new(100);
    pimattn_seq s = rig_seq(r), child = 77;
    rig_append(r, s, 0, 5);
    r->heap.fail_at = r->heap.n_calls + 1;
    CHECK_U(pimattn_seq_fork(r->engine, &child, s), PIMATTN_ERR_MEMORY);
    CHECK_HAS(pimattn_engine_cause(r->engine), "no memory");
    CHECK_U(child, 77);
    rig_end(r);
}

static void estimate_survives_every_failing_allocation(void)
{
    for (uint64_t n = 1; n < 1000; n++) {
        check_heap heap = {0};
        pimattn_config c = good_config();
        pimattn_span spans[2] = {{100, 1}, {700, 3}};
        pimattn_readings readings;
        memset(&readings, 0x5a, sizeof readings);
        c.allocator = heap_allocator(&heap);
        heap.fail_at = n;
        pimattn_status status = pimattn_estimate(&readings, &c, spans, 2, NULL);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
        if (status == PIMATTN_OK) {
            CHECK(n > 1);
            return;
        }
        CHECK_U(status, PIMATTN_ERR_MEMORY);
        CHECK_U(readings.size, 0x5a5a5a5a);
    }
    bool ever_enough = false;
    CHECK(ever_enough);
}

static void attend_allocates_nothing(void)
{
    rig *r = rig_new(100);
    pimattn_item items[2] = {{rig_seq(r), 20}, {rig_seq(r), 1}};
    pimattn_call call = rig_call(r, items, 2);
    pimattn_readings readings;
    rig_append(r, items[0].seq, 0, 20);
    rig_append(r, items[1].seq, 0, 3);
    uint64_t n_calls = r->heap.n_calls;
    CHECK_U(pimattn_attend(r->engine, 0, &call, &readings), PIMATTN_OK);
    CHECK_U(pimattn_attend(r->engine, 1, &call, NULL), PIMATTN_OK);
    CHECK_U(r->heap.n_calls, n_calls);
    rig_end(r);
}

/* --------------------------------------------------------------------------
 * Readings and estimates
 * -------------------------------------------------------------------------- */

static void check_readings(const pimattn_readings *r, uint32_t n_layers)
{
    uint64_t spent = 0;
    CHECK_U(r->size, sizeof *r);
    CHECK_U(r->version, 1);
    CHECK_U(r->device.size, sizeof r->device);
    CHECK_U(r->device.version, 1);
    CHECK(r->device.cycles > 0);
    /* layers in one go close the rows of the one before, and meet refreshes */
    CHECK(r->layers_timed == 1 || r->layers_timed == n_layers);
    if (r->layers_timed == 1)
        CHECK_U(r->step_ck, n_layers * r->device.cycles);
    else
        CHECK(r->step_ck >= n_layers * r->device.cycles && r->device.cycles < 16 * 3800);
    CHECK_U(r->n_layers, n_layers);
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        spent += r->device.breakdown_ck[i];
    CHECK_U(spent, r->device.cycles);
    CHECK_U(r->device.useful_macs + r->device.padding_macs, r->device.macs);
}

/* What readings say of the device alone. */
static pimattn_readings of_device(const pimattn_readings *r)
{
    pimattn_readings device = *r;
    device.pages_used = device.pages_total = 0;
    device.remembered = false;
    device.kernel = NULL;
    return device;
}

/* The estimate of a batch is the reading of attending it, whatever the pages. */
static void estimate_equals_attend(void)
{
    static const uint32_t pages[] = {PAGE, 1, 7, 64};
    rig *r = rig_new(100);
    pimattn_readings of_pages = {0}, device;
    for (uint32_t i_case = 0; i_case < 16; i_case++) {
        pimattn_config c = r->config;
        c.partition = i_case >> 2 & 1;
        c.hfp_unit = i_case >> 3;
        c.page_tokens = pages[i_case & 3];
        c.pool_bytes = 0;
        pimattn_engine *engine = engine_new(&c);
        pimattn_item items[2] = {{0, 2}, {0, 1}};
        pimattn_span spans[2] = {{40, 2}, {7, 1}};
        pimattn_readings attended, estimated;
        if (!engine) break;
        for (size_t i = 0; i < 2; i++) {
            CHECK_U(pimattn_seq_create(engine, &items[i].seq), PIMATTN_OK);
            CHECK_U(kv_append(engine, items[i].seq, 0, &r->kv, 0, spans[i].context_tokens),
                    PIMATTN_OK);
        }
        pimattn_call call = rig_call(r, items, 2);
        CHECK_U(pimattn_attend(engine, 0, &call, &attended), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&estimated, &c, spans, 2, NULL), PIMATTN_OK);
        check_readings(&attended, LAYERS);
        check_readings(&estimated, LAYERS);
        CHECK(!attended.remembered);
        CHECK_U(attended.kv_tokens, 47);
        device = of_device(&attended);
        if (c.page_tokens == PAGE) of_pages = device;
        CHECK_BYTES(&device, &of_pages, sizeof device);
        device = of_device(&estimated);
        CHECK_BYTES(&device, &of_pages, sizeof device);
        CHECK_U(attended.pages_used, pimattn_pages_used(engine));
        CHECK_U(estimated.pages_used, 0);
        CHECK_STR(estimated.kernel, "");
        CHECK(attended.kernel && attended.kernel[0]);
        CHECK_U(pimattn_attend(engine, 0, &call, &attended), PIMATTN_OK);
        CHECK(attended.remembered);
        device = of_device(&attended);
        CHECK_BYTES(&device, &of_pages, sizeof device);
        pimattn_engine_destroy(engine);
    }
    rig_end(r);
}

/* Of as many batches as there are entries the times are kept; the oldest makes room for a new one,
 * whether it was asked for since or not. */
static void the_oldest_batch_is_forgotten(void)
{
    static const struct {
        uint8_t seq, remembered;
    } asked[] = {{0, 0}, {1, 0}, {0, 1}, {2, 0}, {1, 1}, {2, 1}, {0, 0}, {2, 1}, {1, 0}, {0, 1}};
    rig *r = rig_new(100);
    pimattn_config c = r->config;
    c.memo_entries = 2;
    pimattn_engine *engine = engine_new(&c);
    pimattn_item items[3];
    for (size_t i = 0; i < 3; i++) {
        items[i].n_tokens = 1;
        CHECK_U(pimattn_seq_create(engine, &items[i].seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, items[i].seq, 0, &r->kv, 0, 5 + 9 * i), PIMATTN_OK);
    }
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        pimattn_readings readings;
        pimattn_call call = rig_call(r, &items[asked[i].seq], 1);
        CHECK_U(pimattn_attend(engine, 0, &call, &readings), PIMATTN_OK);
        CHECK_U(readings.remembered, asked[i].remembered);
        CHECK_U(readings.kv_tokens, 5 + 9 * (uint64_t)asked[i].seq);
    }
    pimattn_engine_destroy(engine);
    rig_end(r);
}

/* Nor is one that another batch begins with that batch. */
static void a_batch_is_not_its_beginning(void)
{
    rig *r = rig_new(100);
    pimattn_item items[2] = {{rig_seq(r), 1}, {rig_seq(r), 1}};
    rig_append(r, items[0].seq, 0, 5);
    rig_append(r, items[1].seq, 0, 9);
    for (size_t n = 2; n > 0; n--) {
        pimattn_readings readings;
        pimattn_call call = rig_call(r, items, n);
        CHECK_U(pimattn_attend(r->engine, 0, &call, &readings), PIMATTN_OK);
        CHECK(!readings.remembered);
        CHECK_U(readings.kv_tokens, n == 2 ? 5 + 9 : 5);
        CHECK_U(readings.pages_used, pimattn_pages_used(r->engine));
        CHECK_U(readings.pages_total, pimattn_pages_total(r->engine));
    }
    rig_end(r);
}

/* The program that is exported sees what its layer sees, whatever the last call was of. */
static void a_program_is_of_its_layer(void)
{
    enum { TOKENS = 3000 };
    static const uint64_t windows[2] = {16, 0};
    pimattn_shape s = shape_of(2, 1, 1, 16, 0);
    s.windows = windows;
    pimattn_config c = config_of(&s);
    check_rng rng = {9};
    attn_kv kv = kv_random(&s, TOKENS, &rng);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, 1};
    float q[16] = {1}, out[16];
    pimattn_readings r[2];
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    for (uint32_t layer = 0; layer < 2; layer++) {
        CHECK_U(kv_append(e, item.seq, layer, &kv, 0, TOKENS), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, item.seq, layer, out, q, &r[layer]), PIMATTN_OK);
    }
    CHECK(r[0].device.cycles < r[1].device.cycles);
    for (uint32_t layer = 0; layer < 2; layer++) {
        const pimhw_program *program;
        const pimhw_request *request;
        pimhw_device *device;
        pimhw_readings its;
        CHECK_U(pimattn_engine_program(e, layer, &item, 1, &program, &request), PIMATTN_OK);
        const pimhw_config *config = &pimattn_engine_config(e)->device;
        if (!CHECK_U(pimhw_device_create(&device, config, NULL), PIMHW_OK)) break;
        CHECK_U(pimhw_device_time(device, &its, program, request, NULL, NULL), PIMHW_OK);
        CHECK_U(its.cycles, r[layer].device.cycles);
        pimhw_device_destroy(device);
    }
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

static void estimate_refuses_absurd_values(void)
{
    pimattn_config c = good_config();
    pimattn_readings readings;
    pimhw_cause why;
    static const pimattn_span absurd[] = {{UINT64_MAX, 1}, {UINT64_MAX, UINT64_MAX}, {5, 6}, {0, 1},
                                          {1ull << 63, 1}, {5, UINT64_MAX}};
    for (size_t i = 0; i < COUNT(absurd); i++) {
        memset(&readings, 0x5a, sizeof readings);
        why.text[0] = 0;
        CHECK(pimattn_estimate(&readings, &c, &absurd[i], 1, &why) != PIMATTN_OK);
        CHECK(why.text[0] != 0);
        CHECK_U(readings.size, 0x5a5a5a5a);
    }
    /* a prefix is of as many query tokens as follow it */
    static const struct {
        pimattn_span spans[4];
        const char *text;
    } prefixes[] = {
        {{{5, PIMATTN_PREFIX + 1}}, "a prefix has 1 queries that do not follow"},
        {{{5, PIMATTN_PREFIX}, {5, 1}}, "item 0: n_tokens is 0, not 1 to 65535"},
        {{{5, PIMATTN_PREFIX + 65536}, {5, 1}}, "item 0: n_tokens is 65536"},
        {{{0, PIMATTN_PREFIX + 1}, {5, 1}}, "item 0: n_tokens is 1, but it has no tokens"},
        {{{5, PIMATTN_PREFIX + 3}, {5, 1}, {5, 1}}, "a prefix has 1 queries that do not follow"},
        {{{5, PIMATTN_PREFIX + 2}, {5, 1}, {5, 2}}, "item 2 is more than the prefix before"},
        {{{5, PIMATTN_PREFIX + 2}, {5, PIMATTN_PREFIX + 1}, {5, 1}}, "item 1 is more than the"},
        {{{5, PIMATTN_PREFIX + 1}, {1ull << 32, 1}}, "item 1: context_tokens is 4294967296"},
        {{{1ull << 32, PIMATTN_PREFIX + 1}, {1, 1}}, "item 1: context_tokens is 1, not"},
    };
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        size_t n = 0;
        while (n < 4 && prefixes[i].spans[n].n_tokens)
            n++;
        CHECK_U(pimattn_estimate(&readings, &c, prefixes[i].spans, n, &why), PIMATTN_ERR_ARGUMENT);
        if (!CHECK_HAS(why.text, prefixes[i].text)) printf("  %s\n", why.text);
        CHECK_U(readings.size, 0x5a5a5a5a);
    }
    const pimattn_span whole[3] = {{4294967295u, PIMATTN_PREFIX + 1}, {1, 1}, {1ull << 32, 1}};
    CHECK_U(pimattn_estimate(&readings, &c, whole, 3, &why), PIMATTN_OK);
    memset(&readings, 0x5a, sizeof readings);
    c.share_rows = true; /* two thirds of the numbers that spans have */
    c.max_seqs = 43690;
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_OK);
    c.max_seqs++;
    CHECK_U(pimattn_config_check(&c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "max_seqs is 43691, not 0 to 43690");
    c.max_seqs = 0;
    pimattn_span span = {100, 1}, two[2] = {{1ull << 63, 1}, {1ull << 63, 1}};
    CHECK(pimattn_estimate(&readings, &c, two, 2, NULL) != PIMATTN_OK);
    CHECK(pimattn_estimate(&readings, &c, &span, SIZE_MAX, NULL) != PIMATTN_OK);
    c.shape.n_heads = 3;
    CHECK_U(pimattn_estimate(&readings, &c, &span, 1, NULL), PIMATTN_ERR_CONFIG);
    CHECK_U(readings.size, 0x5a5a5a5a);
}

static void a_batch_has_no_more_sequences_than_an_engine(void)
{
    static pimattn_span spans[65536];
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    const pimattn_config c = config_of(&s);
    pimattn_readings readings;
    pimhw_cause why = {""};
    for (size_t i = 0; i < COUNT(spans); i++)
        spans[i].context_tokens = spans[i].n_tokens = 1;
    CHECK_U(pimattn_estimate(&readings, &c, spans, 65536, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "65536 sequences");
    CHECK_U(pimattn_estimate(&readings, &c, spans, 65535, &why), PIMATTN_OK);
}

/* 2^32 tokens of 8 heads of 65536: more bank rows than there are numbers for. */
static void more_rows_than_numbers_is_a_device_error(void)
{
    pimattn_shape s = shape_of(1, 8, 8, 65536, 0);
    pimattn_config c = config_of(&s);
    c.scratch_bytes = 1u << 30;
    c.pool_bytes = 1ull << 40;
    pimattn_readings readings;
    pimhw_cause why = {""};
    pimattn_span span = {1ull << 32, 1};
    CHECK_U(pimattn_estimate(&readings, &c, &span, 1, &why), PIMATTN_ERR_DEVICE);
    CHECK(why.text[0] != 0);
    /* by heads: of the channel that has most, not of that which got the last one */
    const pimattn_span spans[2] = {span, {1, 1}};
    c.partition = PIMATTN_HFP;
    c.shape.n_heads = c.shape.n_kv_heads = 1;
    CHECK_U(pimattn_estimate(&readings, &c, spans, 2, &why), PIMATTN_ERR_DEVICE);
    CHECK_HAS(why.text, "2^32 rows");
    /* of the layers of any window, and not forgotten for those of the next one */
    static const uint64_t windows[3] = {1, 0, 2};
    c.partition = PIMATTN_TCP;
    c.shape = shape_of(3, 8, 8, 65536, 0);
    c.shape.windows = windows;
    CHECK_U(pimattn_estimate(&readings, &c, &span, 1, &why), PIMATTN_ERR_DEVICE);
}

static void the_program_of_a_batch_is_there_to_export(void)
{
    rig *r = rig_new(100);
    pimattn_item item = {rig_seq(r), 1};
    const pimhw_program *program = NULL;
    const pimhw_request *request = NULL;
    rig_append(r, item.seq, 0, 20);
    CHECK_U(pimattn_engine_program(r->engine, 0, &item, 1, &program, &request), PIMATTN_OK);
    if (CHECK(program && request)) {
        const pimhw_config *device = &pimattn_engine_config(r->engine)->device;
        CHECK_U(pimhw_program_check(program, device, NULL), PIMHW_OK);
        CHECK(program->n_items > 0 && request->n_blocks > 0);
    }
    item.n_tokens = 21;
    CHECK_U(pimattn_engine_program(r->engine, 0, &item, 1, &program, &request),
            PIMATTN_ERR_ARGUMENT);
    rig_end(r);
}

static void plans_name_what_is_null(void)
{
    static pimattn_plan plan;
    static pimhw_program program;
    pimattn_config c = {0};
    pimhw_cause why = {""};
    CHECK_U(pimattn_plan_init(NULL, &c.shape, &c.device, 0, 0, false, 1, &why),
            PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "plan");
    why.text[0] = 0;
    CHECK_U(pimattn_plan_map_v(NULL, 0, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "plan");
    why.text[0] = 0;
    CHECK_U(pimattn_plan_lower(NULL, &program, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "plan");
    why.text[0] = 0;
    CHECK_U(pimattn_plan_request(&plan, NULL, NULL, NULL, NULL, NULL, 0, &why),
            PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "request");
    why.text[0] = 0;
    CHECK_U(pimattn_engine_create(NULL, &c, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "engine");
    CHECK_U(pimattn_tier_lower(NULL, &c.shape, &program, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "tier");
    why.text[0] = 0;
    CHECK_U(pimattn_tier_spread(NULL, NULL, NULL, &c.shape, NULL, 0, false, &why),
            PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "load");
}

/* A plan that somebody made or changed by hand is refused, whatever is in it; changed back it is
 * taken. Numbers of the device and shape count too. */
static void plans_made_by_hand_are_refused(void)
{
    static pimhw_program program;
    pimattn_shape s = shape_of(1, 4, 2, 64, 0);
    pimhw_config device;
    const pimattn_span span = {5, 2};
    for (uint32_t v = 0; v <= PIMATTN_V_K; v++)
        for (uint32_t partition = 0; partition < 2; partition++) {
            pimattn_plan plan, none;
            pimhw_request request;
            pimhw_block blocks[2];
            uint32_t order[2], begin[PIMHW_MAX_CHANNELS + 1];
            pimhw_cause why = {""};
            CHECK_U(pimhw_config_init(&device, v ? "aimx" : "attacc-hbm3", NULL), PIMHW_OK);
            device.controller = v ? PIMHW_DCS : PIMHW_PING_PONG;
            CHECK_U(pimattn_plan_init(&plan, &s, &device, partition, 0, false, 8, NULL),
                    PIMATTN_OK);
            CHECK_U(pimattn_plan_map_v(&plan, v, NULL), PIMATTN_OK);
            memset(&none, 0, sizeof none);
            CHECK_U(pimattn_plan_lower(&none, &program, &why), PIMATTN_ERR_ARGUMENT);
            CHECK_HAS(why.text, "not of pimattn_plan_init");
            CHECK_U(pimattn_plan_map_v(&none, v, &why), PIMATTN_ERR_ARGUMENT);
            uint32_t *const numbers[] = {&plan.unit_channels,
                                         &plan.inputs,
                                         &plan.sums,
                                         &plan.k_columns,
                                         &plan.k_row_tokens,
                                         &plan.k_token_rows,
                                         &plan.k_queries,
                                         &plan.k_out_slots,
                                         &plan.k_out_queries,
                                         &plan.v_mapping,
                                         &plan.v_blocks,
                                         &plan.v_spread,
                                         &plan.v_groups,
                                         &plan.v_passes,
                                         &plan.v_row_columns,
                                         &plan.v_queries,
                                         &plan.v_strip,
                                         &plan.partition,
                                         &plan.hfp_unit,
                                         &plan.n_queries,
                                         &plan.device.n_channels,
                                         &plan.device.row_bytes,
                                         &plan.device.flash_MBps,
                                         &plan.shape.n_heads,
                                         &plan.shape.n_kv_heads,
                                         &plan.shape.head_dim,
                                         &plan.shape.head_dim_v,
                                         &plan.v_wanted,
                                         &plan.wanted_out,
                                         &plan.used_out};
            for (uint32_t i = 0; i < 3 * COUNT(numbers); i++) {
                const uint32_t was = *numbers[i / 3];
                const uint32_t other[3] = {0, was + 1, UINT32_MAX};
                *numbers[i / 3] = other[i % 3];
                const pimattn_status status = pimattn_plan_lower(&plan, &program, &why);
                /* which mapping was wanted, and how many entries, changes nothing */
                const bool told = was != other[i % 3] && i / 3 < COUNT(numbers) - 3;
                CHECK_U(status, told ? PIMATTN_ERR_ARGUMENT : PIMATTN_OK);
                CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, begin, &span, 1, &why),
                        status);
                *numbers[i / 3] = was;
            }
            plan.v_hold = !plan.v_hold;
            CHECK_U(pimattn_plan_lower(&plan, &program, &why), PIMATTN_ERR_ARGUMENT);
            CHECK_HAS(why.text, "not of pimattn_plan_init");
            plan.v_hold = !plan.v_hold;
            CHECK_U(pimattn_plan_lower(&plan, &program, &why), PIMATTN_OK);
            CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, begin, &span, 1, &why),
                    PIMATTN_OK);
        }
}

/* What no batch has would else be planned, with a window for more tokens than there are. */
static void requests_keep_to_the_limits_of_spans(void)
{
    const pimattn_span bad[] = {{5, 0}, {0, 0}, {0, 1}, {3, 4}, {(1ull << 32) + 1, 1}};
    for (uint32_t i = 0; i < 2 * COUNT(bad); i++) {
        pimattn_shape s = shape_of(1, 4, 2, 64, 0);
        pimattn_plan plan;
        pimhw_config device;
        pimhw_request request;
        pimhw_block blocks[2];
        uint32_t order[2], begin[PIMHW_MAX_CHANNELS + 1];
        pimhw_cause why = {""};
        s.window = 4 * (i % 2);
        CHECK_U(pimhw_config_init(&device, "aimx", NULL), PIMHW_OK);
        CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 8, NULL), PIMATTN_OK);
        memset(&request, 0x5a, sizeof request);
        CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, begin, &bad[i / 2], 1, &why),
                PIMATTN_ERR_ARGUMENT);
        CHECK_HAS(why.text, "item 0");
        CHECK_U(request.n_blocks, 0x5a5a5a5a);
    }
    pimattn_shape s = shape_of(1, 4, 2, 64, 0);
    static pimattn_plan plan;
    pimhw_config device;
    pimhw_request request;
    pimhw_block blocks[2];
    uint32_t order[2], begin[PIMHW_MAX_CHANNELS + 1];
    const pimattn_span span = {5, 2}; /* of 2 queries each */
    pimhw_cause why = {""};
    CHECK_U(pimhw_config_init(&device, "aimx", NULL), PIMHW_OK);
    CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 3, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, begin, &span, 1, &why),
            PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "item 0: 2 tokens make more than the 3 queries planned for");
    CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 0, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "queries of a block");
    CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 1ull << 32, &why),
            PIMATTN_ERR_CONFIG);
    device.n_channels = 64; /* a row of all is 2 MiB */
    CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 1, &why), PIMATTN_OK);
    CHECK_U(pimattn_plan_chunk_rows(&plan), 1);
    CHECK_U(pimhw_config_init(&device, "pam-ssd", NULL), PIMHW_OK);
    CHECK_U(pimattn_plan_init(&plan, &s, &device, 0, 0, false, 3, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "only a tier can be flash");
}

int main(void)
{
    RUN(requests_keep_to_the_limits_of_spans);
    RUN(plans_name_what_is_null);
    RUN(plans_made_by_hand_are_refused);
    RUN(every_status_has_words_of_its_own);
    RUN(kernels_are_those_asked_for);
    RUN(the_check_names_the_field);
    RUN(huge_settings_are_a_status);
    RUN(more_chunks_than_numbers_are_named);
    RUN(zero_means_usual_and_is_reported);
    RUN(no_worker_is_idle_by_default);
    RUN(usual_lengths_of_pages_fit_by_default);
    RUN(a_parallel_for_that_leaves_some_out_is_named);
    RUN(page_bytes_follow_the_formula);
    RUN(null_pointers_are_a_status);
    RUN(attend_refuses_what_does_not_fit);
    RUN(partials_must_fit);
    RUN(append_refuses_what_does_not_fit);
    RUN(freed_ids_stay_dead);
    RUN(layers_may_differ_while_a_step_is_under_way);
    RUN(a_step_takes_its_pages_in_all_layers_or_none);
    RUN(reserved_pages_are_there_for_the_append);
    RUN(create_survives_every_failing_allocation);
    RUN(append_survives_every_failing_allocation);
    RUN(reserve_survives_every_failing_allocation);
    RUN(a_fork_without_memory_says_so);
    RUN(estimate_survives_every_failing_allocation);
    RUN(attend_allocates_nothing);
    RUN(estimate_equals_attend);
    RUN(the_oldest_batch_is_forgotten);
    RUN(a_batch_is_not_its_beginning);
    RUN(a_program_is_of_its_layer);
    RUN(estimate_refuses_absurd_values);
    RUN(a_batch_has_no_more_sequences_than_an_engine);
    RUN(more_rows_than_numbers_is_a_device_error);
    RUN(the_program_of_a_batch_is_there_to_export);
    return check_end();
}
