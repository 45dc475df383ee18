/* Random calls with random, often wrong, arguments. Nothing may assert or leak, a wrong call
 * changes nothing, and a model of lengths agrees throughout. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

enum { SEQS = 24, MOST_LAYERS = 3, MOST_TOKENS = 40, MOST_ITEMS = 4, ROW = 64, CALLS = 1500 };
enum { FRESH = 509 }; /* random numbers of a call; the others repeat them */

/* What the engine should know. */
typedef struct model {
    pimattn_engine *engine;
    pimattn_config config;
    check_rng rng;
    pimattn_seq seqs[SEQS]; /* every id ever given, alive or freed; a ring */
    bool alive[SEQS];
    uint64_t tokens[SEQS][MOST_LAYERS];
    size_t n_seqs, n_alive;
} model;

static float kv_data[MOST_TOKENS * (ROW + 3)];
static float q_data[MOST_ITEMS * MOST_TOKENS * (ROW + 3)];
static float out_data[MOST_ITEMS * MOST_TOKENS * (ROW + 3)];
static float lse_data[MOST_ITEMS * MOST_TOKENS * ROW];
static pimattn_partial partial_data[MOST_ITEMS * MOST_TOKENS * ROW];

static bool chance(model *m, uint32_t one_in)
{
    return rng_range(&m->rng, 0, one_in - 1) == 0;
}

static uint64_t odd_number(model *m)
{
    static const uint64_t odd[] = {
        0,         1, 2, 3, 4, 63, 64, 1u << 20, UINT32_MAX, 1ull << 40, 1ull << 62, UINT64_MAX - 1,
        UINT64_MAX};
    return odd[rng_range(&m->rng, 0, sizeof odd / sizeof odd[0] - 1)];
}

/* A number of tokens: mostly small, sometimes absurd, never so that the data would not do. */
static uint64_t some_tokens(model *m)
{
    if (chance(m, 12)) return odd_number(m) | 1ull << 40;
    return rng_range(&m->rng, 0, MOST_TOKENS);
}

static uint32_t some_layer(model *m)
{
    if (chance(m, 20)) return (uint32_t)odd_number(m);
    return (uint32_t)rng_range(&m->rng, 0, m->config.shape.n_layers - 1);
}

/* Index of a known sequence, alive or not, or SEQS with a wild id. */
static size_t some_seq(model *m, pimattn_seq *seq)
{
    if (m->n_seqs == 0 || chance(m, 20)) {
        *seq = chance(m, 2) ? odd_number(m) : rng_u64(&m->rng);
        for (size_t i = 0; i < m->n_seqs; i++)
            if (m->seqs[i] == *seq) return i;
        return SEQS;
    }
    size_t i = rng_range(&m->rng, 0, m->n_seqs - 1);
    if (!m->alive[i]) i = rng_range(&m->rng, 0, m->n_seqs - 1);
    *seq = m->seqs[i];
    return i;
}

/* A stride: packed, more, or wrong. */
static size_t some_stride(model *m, size_t row_floats, bool *wrong)
{
    size_t row = row_floats * sizeof(float);
    switch (rng_range(&m->rng, 0, 19)) {
    case 0: *wrong = true; return row - sizeof(float) ? row - sizeof(float) : 1;
    case 1: *wrong = true; return SIZE_MAX - 3;
    case 2:
    case 3:
    case 4: return row + rng_range(&m->rng, 1, 3) * sizeof(float);
    case 5: return row;
    default: return 0;
    }
}

static void fill(model *m, float *x, size_t n)
{
    static const float odd[] = {NAN,      INFINITY, -INFINITY, FLT_MAX,
                                -FLT_MAX, 1e-45f,   -0.0f,     70000.0f};
    const size_t fresh = n < FRESH ? n : FRESH;
    fill_normal(x, fresh, chance(m, 10) ? 1e20 : 1, &m->rng);
    for (size_t i = fresh; i < n; i++)
        x[i] = x[i - fresh];
    for (uint64_t k = chance(m, 6) ? rng_range(&m->rng, 1, 3) : 0; k; k--)
        x[rng_range(&m->rng, 0, n - 1)] = odd[rng_range(&m->rng, 0, 7)];
}

static void try_create(model *m)
{
    pimattn_seq seq = UINT64_MAX;
    bool room = m->n_alive < m->config.max_seqs;
    pimattn_status status = pimattn_seq_create(m->engine, &seq);
    CHECK_U(status, room ? PIMATTN_OK : PIMATTN_ERR_SEQ);
    if (status != PIMATTN_OK) return;
    size_t at = m->n_seqs < SEQS ? m->n_seqs++ : rng_range(&m->rng, 0, SEQS - 1);
    while (m->alive[at])
        at = (at + 1) % SEQS;
    for (size_t i = 0; i < m->n_seqs; i++)
        CHECK(i == at || m->seqs[i] != seq);
    m->seqs[at] = seq;
    m->alive[at] = true;
    m->n_alive++;
    memset(m->tokens[at], 0, sizeof m->tokens[at]);
}

static void try_free(model *m)
{
    pimattn_seq seq;
    size_t i = some_seq(m, &seq);
    bool good = i < SEQS && m->alive[i];
    CHECK_U(pimattn_seq_free(m->engine, seq), good ? PIMATTN_OK : PIMATTN_ERR_SEQ);
    if (!good) return;
    m->alive[i] = false;
    m->n_alive--;
    if (m->n_alive == 0) CHECK_U(pimattn_pages_used(m->engine), 0);
}

static void try_reserve(model *m)
{
    pimattn_seq seq;
    size_t i = some_seq(m, &seq);
    uint64_t used = pimattn_pages_used(m->engine);
    pimattn_status status = pimattn_seq_reserve(m->engine, seq, some_tokens(m));
    if (i == SEQS || !m->alive[i]) CHECK_U(status, PIMATTN_ERR_SEQ);
    if (status != PIMATTN_OK) CHECK_U(pimattn_pages_used(m->engine), used);
}

static void try_append(model *m)
{
    const pimattn_shape *s = &m->config.shape;
    pimattn_seq seq;
    size_t i = some_seq(m, &seq);
    uint32_t layer = some_layer(m);
    uint64_t n = some_tokens(m), used = pimattn_pages_used(m->engine);
    bool wrong = layer >= s->n_layers || n > MOST_TOKENS;
    size_t k_stride = some_stride(m, (size_t)s->n_kv_heads * s->head_dim, &wrong);
    size_t v_stride = some_stride(m, (size_t)s->n_kv_heads * shape_dv(s), &wrong);
    const float *k = kv_data, *v = kv_data;
    if (chance(m, 40)) k = NULL, wrong = true;
    if (chance(m, 40)) v = NULL, wrong = true;
    fill(m, kv_data, sizeof kv_data / sizeof(float));
    pimattn_status status = pimattn_append(m->engine, seq, layer, k, v, n, k_stride, v_stride);
    bool known = i < SEQS && m->alive[i];
    if (!known || (wrong && n > 1)) CHECK(status != PIMATTN_OK);
    if (status == PIMATTN_OK && known && layer < s->n_layers) m->tokens[i][layer] += n;
    if (status != PIMATTN_OK) {
        CHECK_U(pimattn_pages_used(m->engine), used);
        CHECK(pimattn_engine_cause(m->engine)[0] != 0);
        bool half = s->k_type == PIMATTN_F16 || s->v_type == PIMATTN_F16 ||
                    s->k_type == PIMATTN_BF16 || s->v_type == PIMATTN_BF16;
        bool expected = !known || wrong || n == 0 || status == PIMATTN_ERR_PAGES ||
                        (half && status == PIMATTN_ERR_RANGE);
        CHECK(expected);
    }
}

/* Items, how many rows they make, and whether all are there. */
static size_t some_items(model *m, pimattn_item *items, uint32_t layer, uint64_t *n_rows,
                         bool *wrong)
{
    size_t n_items = rng_range(&m->rng, chance(m, 20) ? 0 : 1, MOST_ITEMS);
    *n_rows = 0;
    *wrong = layer >= m->config.shape.n_layers || n_items > m->config.max_seqs;
    for (size_t k = 0; k < n_items; k++) {
        size_t i = some_seq(m, &items[k].seq);
        uint64_t length = 0;
        if (i < SEQS && m->alive[i] && layer < m->config.shape.n_layers)
            length = m->tokens[i][layer];
        if (length == 0) *wrong = true;
        items[k].n_tokens =
            length ? rng_range(&m->rng, 1, length < MOST_TOKENS ? length : MOST_TOKENS) : 1;
        if (chance(m, 20)) items[k].n_tokens = length + 1 + odd_number(m) / 2, *wrong = true;
        *n_rows += items[k].n_tokens;
    }
    return n_items;
}

static void try_attend(model *m)
{
    const pimattn_shape *s = &m->config.shape;
    uint32_t layer = some_layer(m);
    pimattn_item items[MOST_ITEMS];
    pimattn_readings readings;
    uint64_t n_rows;
    bool wrong;
    size_t n_items = some_items(m, items, layer, &n_rows, &wrong);
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.items = items, call.n_items = n_items, call.q = q_data, call.out = out_data;
    call.lse = chance(m, 2) ? lse_data : NULL;
    bool bad_stride = false;
    call.q_stride = some_stride(m, (size_t)s->n_heads * s->head_dim, &bad_stride);
    call.out_stride = some_stride(m, (size_t)s->n_heads * shape_dv(s), &bad_stride);
    if (chance(m, 4)) call.partials = partial_data;
    if (chance(m, 8)) call.out = NULL;
    if (chance(m, 40)) call.q = NULL, wrong = true;
    if (!call.out && !call.partials) wrong = true;
    for (size_t i = 0; i < MOST_ITEMS * MOST_TOKENS * (size_t)s->n_heads && call.partials; i++) {
        pimattn_partial p = {0, 0, out_data, shape_dv(s)};
        partial_data[i] = p; /* all over one another: only the memory must be there */
    }
    if (call.partials && chance(m, 10)) partial_data[0].dim++, wrong = true;
    fill(m, q_data, sizeof q_data / sizeof(float));
    pimattn_status status =
        pimattn_attend(m->engine, layer, &call, chance(m, 4) ? &readings : NULL);
    if (wrong && n_items) CHECK(status != PIMATTN_OK);
    if (!wrong && !bad_stride && n_items) {
        if (!CHECK_U(status, PIMATTN_OK)) printf("  %s\n", pimattn_engine_cause(m->engine));
    }
    const pimhw_program *program;
    const pimhw_request *request;
    status = pimattn_engine_program(m->engine, layer, items, n_items, &program, &request);
    if (status == PIMATTN_OK) CHECK(program->n_items > 0);
}

static void check_model(model *m)
{
    CHECK(pimattn_pages_used(m->engine) <= pimattn_pages_total(m->engine));
    for (size_t i = 0; i < m->n_seqs; i++)
        for (uint32_t layer = 0; layer < m->config.shape.n_layers; layer++) {
            uint64_t n = 0;
            pimattn_status status = pimattn_seq_tokens(m->engine, m->seqs[i], layer, &n);
            CHECK_U(status, m->alive[i] ? PIMATTN_OK : PIMATTN_ERR_SEQ);
            if (m->alive[i]) CHECK_U(n, m->tokens[i][layer]);
        }
}

static void one_engine(uint64_t seed)
{
    model m;
    check_heap heap = {0};
    memset(&m, 0, sizeof m);
    m.rng.state = seed;
    uint32_t n_kv_heads = (uint32_t)rng_range(&m.rng, 1, 2);
    pimattn_shape s = shape_of(
        (uint32_t)rng_range(&m.rng, 1, MOST_LAYERS), n_kv_heads * (uint32_t)rng_range(&m.rng, 1, 4),
        n_kv_heads, (uint32_t)rng_range(&m.rng, 1, 8), (uint32_t)rng_range(&m.rng, 0, 8));
    s.k_type = (uint32_t)rng_range(&m.rng, 0, PIMATTN_N_TYPE - 1);
    s.v_type = (uint32_t)rng_range(&m.rng, 0, PIMATTN_N_TYPE - 1);
    m.config = config_of(&s);
    m.config.page_tokens = (uint32_t)rng_range(&m.rng, 1, 40);
    m.config.simd = (uint32_t)rng_range(&m.rng, 0, PIMATTN_SIMD_512);
    m.config.max_seqs = (uint32_t)rng_range(&m.rng, 1, 6);
    m.config.memo_entries = (uint32_t)rng_range(&m.rng, 0, 3);
    m.config.partition = (uint32_t)rng_range(&m.rng, 0, 1);
    m.config.hfp_unit = (uint32_t)rng_range(&m.rng, 0, 1);
    m.config.pool_bytes = rng_range(&m.rng, 20000, 400000);
    m.config.allocator = heap_allocator(&heap);
    m.engine = engine_new(&m.config);
    for (int i = 0; i < CALLS && m.engine; i++) {
        heap.fail_at = 0;
        switch (rng_range(&m.rng, 0, 9)) {
        case 0:
        case 1: try_create(&m); break;
        case 2: try_free(&m); break;
        case 3: try_reserve(&m); break;
        case 4:
        case 5:
        case 6: try_append(&m); break;
        default: try_attend(&m); break;
        }
        if (i % 16 == 0) check_model(&m);
        if (check_now.n_errors > CHECK_PRINTED) break;
    }
    pimattn_engine_destroy(m.engine);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
    if (check_now.n_errors) printf("  engine seed %llu\n", (unsigned long long)seed);
}

static void random_calls_agree_with_a_model(void)
{
    for (uint64_t seed = 1; seed <= 24 && !check_now.n_errors; seed++)
        one_engine(seed);
}

/* Gives at most 16 MiB at once. */
static void *small_alloc(void *user, size_t bytes, size_t align)
{
    return bytes > 16u << 20 ? NULL : heap_alloc(user, bytes, align);
}

static void random_configurations_end_in_a_status(void)
{
    model m = {0};
    m.rng.state = 4711;
    for (int i = 0; i < 4000 && check_now.n_errors < 3; i++) {
        check_heap heap = {0};
        pimattn_shape s = shape_of(2, 4, 2, 8, 0);
        pimattn_config c = config_of(&s);
        pimattn_engine *engine = NULL;
        pimattn_readings readings;
        pimhw_cause why = {""};
        uint32_t *fields[] = {&c.shape.n_layers, &c.shape.n_heads,    &c.shape.n_kv_heads,
                              &c.shape.head_dim, &c.shape.head_dim_v, &c.shape.k_type,
                              &c.shape.v_type,   &c.page_tokens,      &c.max_seqs,
                              &c.memo_entries,   &c.max_workers,      &c.partition,
                              &c.hfp_unit};
        if (chance(&m, 3))
            CHECK_U(pimhw_config_init(&c.device, pimhw_preset_name(chance(&m, 2)), NULL), PIMHW_OK);
        for (uint64_t k = rng_range(&m.rng, 1, 3); k; k--) {
            uint32_t *field = fields[rng_range(&m.rng, 0, 12)];
            *field = chance(&m, 2) ? (uint32_t)odd_number(&m) : (uint32_t)rng_range(&m.rng, 0, 300);
        }
        if (chance(&m, 4)) c.pool_bytes = odd_number(&m);
        if (chance(&m, 4)) c.scratch_bytes = odd_number(&m);
        if (chance(&m, 8)) {
            uint32_t bits = (uint32_t)rng_u64(&m.rng);
            memcpy(&c.shape.scale, &bits, sizeof bits);
        }
        const char *field = pimhw_config_field((uint32_t)rng_range(&m.rng, 0, 30));
        if (c.device.preset[0] && field && chance(&m, 2))
            (void)pimhw_config_set(&c.device, field, (uint32_t)odd_number(&m), NULL);
        c.allocator.alloc = small_alloc;
        c.allocator.release = heap_release;
        c.allocator.user = &heap;
        pimattn_status good = pimattn_config_check(&c, &why);
        CHECK(good == PIMATTN_OK || (good == PIMATTN_ERR_CONFIG && why.text[0]));
        pimattn_status status = pimattn_engine_create(&engine, &c, NULL);
        CHECK(status == good || status == PIMATTN_ERR_MEMORY);
        CHECK((engine != NULL) == (status == PIMATTN_OK));
        pimattn_engine_destroy(engine);
        pimattn_span spans[2] = {{rng_range(&m.rng, 0, 3000), rng_range(&m.rng, 0, 3)}, {40, 1}};
        status = pimattn_estimate(&readings, &c, spans, rng_range(&m.rng, 0, 2), &why);
        if (good != PIMATTN_OK) CHECK(status != PIMATTN_OK);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
        if (check_now.n_errors) printf("  configuration %d: %s\n", i, why.text);
    }
}

int main(void)
{
    RUN(random_calls_agree_with_a_model);
    RUN(random_configurations_end_in_a_status);
    return check_end();
}
