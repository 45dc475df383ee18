/* fuzz_tiers - random calls, often wrong ones, on an engine with tiers, beside an engine with pages
 * and a model of what is in which sequence. fuzz_tiers [engines [seed]] */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

enum { SEQS = 4, LAYERS = 2, MOST = 160, KV_HEADS = 2, DIM = 20, ITEMS = 3, NEW = 5, CALLS = 150 };
enum { ROW = KV_HEADS * DIM, Q_ROW = 4 * DIM, WORDS = (MOST + 63) / 64 + 1, ROWS = ITEMS * NEW };

/* What is in a layer of a sequence. */
typedef struct layer_model {
    uint64_t n, n_scored;
    float k[MOST][ROW], v[MOST][ROW]; /* packed by the shape's dims */
    float importance[MOST];
    bool active[MOST];
} layer_model;

typedef struct seq_model {
    pimattn_seq tiered, pages;
    bool alive;
    uint64_t held; /* slots in every layer */
    layer_model layer[LAYERS];
} seq_model;

typedef struct model {
    check_rng rng;
    check_heap heap;
    pimattn_tiers tiers;
    pimattn_config config;
    pimattn_engine *tiered, *pages;
    seq_model seq[SEQS];
    uint64_t n_active; /* of the step */
    uint32_t fail_in;  /* transfers until one fails; 0: none does */
    bool meddles;      /* transfers call the engine */
    double most_k, most_v, most_q;
} model;

static model now;
static uint64_t n_engines = 25, first_seed = 1;

static uint64_t below(model *m, uint64_t n)
{
    return n ? rng_range(&m->rng, 0, n - 1) : 0;
}

static bool chance(model *m, uint32_t one_in)
{
    return below(m, one_in) == 0;
}

static uint64_t odd_number(model *m)
{
    static const uint64_t odd[] = {0,          1,          63,           64,
                                   65,         1u << 20,   UINT32_MAX,   1ull << 32,
                                   1ull << 58, 1ull << 63, SIZE_MAX - 1, UINT64_MAX - 1,
                                   UINT64_MAX};
    return odd[below(m, sizeof odd / sizeof odd[0])];
}

/* -- configurations -- */

/* May meddle: nothing may come of it. */
static bool transfer(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    model *m = (model *)user;
    CHECK(from != to && from < m->tiers.n_tiers && to < m->tiers.n_tiers && bytes > 0);
    const seq_model *s = &m->seq[0];
    if (m->meddles && s->alive) {
        float x[ROW] = {0};
        pimattn_seq seq;
        CHECK(pimattn_seq_free(m->tiered, s->tiered) != PIMATTN_OK);
        CHECK(pimattn_append(m->tiered, s->tiered, 0, x, x, 1, 0, 0) != PIMATTN_OK);
        CHECK(pimattn_seq_truncate(m->tiered, s->tiered, 0) != PIMATTN_OK);
        CHECK(pimattn_attend_one(m->tiered, s->tiered, 0, x, x, NULL) != PIMATTN_OK);
        CHECK(pimattn_seq_create(m->tiered, &seq) != PIMATTN_OK);
        CHECK(pimattn_tier_step(m->tiered) != PIMATTN_OK);
    }
    if (m->fail_in == 0) return true;
    m->fail_in--;
    return m->fail_in > 0;
}

static void some_device(model *m, pimhw_config *device)
{
    static const char *const fields[] = {"n_bank_groups", "n_channels", "reduction_units",
                                         "cap_MFLOPS", "refresh"};
    const char *name = pimhw_preset_name((uint32_t)below(m, 15));
    if (!name || chance(m, 4)) name = "pam-ssd";
    CHECK_U(pimhw_config_init(device, name, NULL), PIMHW_OK);
    for (uint64_t i = below(m, 3); i > 0; i--) {
        pimhw_config before = *device;
        if (pimhw_config_set(device, fields[below(m, 5)], (uint32_t)below(m, 3), NULL) !=
                PIMHW_OK ||
            pimhw_config_check(device, NULL) != PIMHW_OK)
            *device = before;
    }
}

static void some_tiers(model *m)
{
    pimattn_tiers *t = &m->tiers;
    memset(t, 0, sizeof *t);
    t->n_tiers = 1 + (uint32_t)below(m, PIMATTN_MAX_TIERS);
    for (uint32_t i = 0; i < t->n_tiers; i++) {
        some_device(m, &t->tier[i].device);
        t->tier[i].n_devices = chance(m, 20) ? 65536 : 1 + (uint32_t)below(m, 3);
        t->tier[i].n_tokens = chance(m, 4) ? 1 : 1 + below(m, 100);
        t->ratio[i] = 0.1 + (double)below(m, 50);
    }
    if (!chance(m, 6)) t->tier[t->n_tiers - 1].n_tokens = 400 + below(m, 600);
    if (chance(m, 2)) memset(t->ratio, 0, sizeof t->ratio);
    t->partials = chance(m, 3);
    t->host_path = chance(m, 2);
    t->moves_wait = chance(m, 2);
    t->gqa_flops = chance(m, 2);
    t->mean = chance(m, 2);
    t->lambda = chance(m, 2) ? 0.0f : (float)rng_unit(&m->rng);
    t->transfer = chance(m, 3) ? NULL : transfer;
    t->transfer_user = m;
}

static void some_shape(model *m, pimattn_shape *s)
{
    static const uint32_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {4, 1}};
    static const uint32_t dims[] = {1, 16, 20};
    const uint32_t *h = heads[below(m, 4)];
    *s = shape_of(1 + (uint32_t)below(m, LAYERS), h[0], h[1], dims[below(m, 3)], 0);
    s->v_in_k = chance(m, 6);
    s->head_dim_v = chance(m, 2) ? s->head_dim : 1 + (uint32_t)below(m, s->head_dim);
    s->k_type = chance(m, 2) ? 0 : (uint32_t)below(m, PIMATTN_N_TYPE);
    s->v_type = s->v_in_k ? s->k_type : chance(m, 2) ? 0 : (uint32_t)below(m, PIMATTN_N_TYPE);
    if (chance(m, 3)) s->window = 1 + below(m, 60);
    if (s->window && chance(m, 2)) s->sink_tokens = below(m, 20);
    if (chance(m, 4)) s->alibi_max_bias = 8;
    if (chance(m, 4)) s->soft_cap = 5;
}

/* Engines of both kinds; false: the tiers are refused, which says why. */
static bool start(model *m, uint64_t seed)
{
    static const uint32_t page[] = {1, 7, 16, 128};
    pimhw_cause why = {""};
    memset(m, 0, sizeof *m);
    m->rng.state = seed;
    some_tiers(m);
    some_shape(m, &m->config.shape);
    m->config.simd = (uint32_t)below(m, 4);
    m->config.max_seqs = SEQS;
    m->config.scratch_bytes = chance(m, 2) ? 0 : 1u << 20;
    if (chance(m, 4)) m->config.reserve_tokens = 1 + below(m, MOST / 2);
    pimattn_config c = m->config;
    c.page_tokens = page[below(m, 4)];
    m->pages = engine_new(&c);
    m->config.tiers = &m->tiers;
    m->config.allocator = heap_allocator(&m->heap);
    pimattn_status good = pimattn_config_check(&m->config, &why);
    pimattn_status status = pimattn_engine_create(&m->tiered, &m->config, &why);
    CHECK_U(status, good);
    CHECK(status == PIMATTN_OK || why.text[0]);
    return status == PIMATTN_OK && m->pages;
}

static void finish(model *m)
{
    pimattn_engine_destroy(m->tiered);
    pimattn_engine_destroy(m->pages);
    CHECK_U(m->heap.n_live, 0);
    CHECK_U(m->heap.n_wrong, 0);
}

/* -- what must hold after every call -- */

static void check_all(model *m)
{
    uint64_t held[PIMATTN_MAX_TIERS] = {0}, used = 0, want = 0, active = 0, reserved = 0;
    for (uint32_t i = 0; i < SEQS; i++)
        for (uint32_t l = 0; l < m->config.shape.n_layers; l++) {
            const seq_model *s = &m->seq[i];
            uint8_t tier[MOST];
            uint64_t n = UINT64_MAX;
            pimattn_status status = pimattn_seq_tokens(m->tiered, s->tiered, l, &n);
            CHECK_U(status, s->alive ? PIMATTN_OK : PIMATTN_ERR_SEQ);
            if (!s->alive) continue;
            if (!CHECK_U(n, s->layer[l].n)) return;
            CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, tier, n), PIMATTN_OK);
            for (uint64_t t = 0; t < n; t++)
                if (CHECK(tier[t] < m->tiers.n_tiers)) held[tier[t]]++;
            want += s->held;
            reserved += s->held - n;
        }
    for (uint32_t i = 0; i < m->tiers.n_tiers; i++) {
        pimattn_tier_info info;
        CHECK_U(pimattn_tier_query(m->tiered, i, &info), PIMATTN_OK);
        CHECK(info.n_used <= info.n_tokens);
        CHECK(info.n_used >= held[i] && info.n_used <= held[i] + reserved);
        CHECK(info.busiest <= UINT16_MAX && info.n_groups >= 1);
        used += info.n_used;
        active += info.n_active;
    }
    CHECK_U(used, want);
    CHECK_U(active, m->n_active);
    CHECK_U(pimattn_pages_used(m->tiered), want * m->config.shape.n_kv_heads);
}

/* A sequence, perhaps a dead one. */
static seq_model *some_seq(model *m)
{
    seq_model *s = &m->seq[below(m, SEQS)];
    return s->alive ? s : &m->seq[below(m, SEQS)];
}

static uint64_t room(const model *m)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->tiers.n_tiers; i++)
        n += m->tiers.tier[i].n_tokens;
    for (uint32_t i = 0; i < SEQS; i++)
        n -= m->seq[i].alive ? m->seq[i].held * m->config.shape.n_layers : 0;
    return n;
}

/* Whether a sequence can have so many slots; what the status has to be if nothing else is wrong. */
static pimattn_status fits(const model *m, uint64_t held, uint64_t to)
{
    uint64_t most = m->config.reserve_tokens;
    if (to > (uint64_t)1 << 32) return PIMATTN_ERR_ARGUMENT;
    if (most && to > most) return PIMATTN_ERR_PAGES;
    if (to > held && (to - held) * m->config.shape.n_layers > room(m)) return PIMATTN_ERR_PAGES;
    return PIMATTN_OK;
}

/* -- calls -- */

static void try_create(model *m)
{
    seq_model *s = NULL;
    pimattn_seq seq = UINT64_MAX;
    for (uint32_t i = 0; i < SEQS; i++)
        if (!m->seq[i].alive) s = &m->seq[i];
    pimattn_status want = s ? fits(m, 0, m->config.reserve_tokens) : PIMATTN_ERR_SEQ;
    pimattn_status status = pimattn_seq_create(m->tiered, &seq);
    CHECK(status == want || (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) ||
          status == PIMATTN_ERR_DEVICE);
    if (status != PIMATTN_OK) return;
    memset(s, 0, sizeof *s);
    s->tiered = seq;
    s->alive = true;
    s->held = m->config.reserve_tokens;
    CHECK_U(pimattn_seq_create(m->pages, &s->pages), PIMATTN_OK);
}

static void try_free(model *m)
{
    seq_model *s = some_seq(m);
    CHECK_U(pimattn_seq_free(m->tiered, s->tiered), s->alive ? PIMATTN_OK : PIMATTN_ERR_SEQ);
    if (s->alive) CHECK_U(pimattn_seq_free(m->pages, s->pages), PIMATTN_OK);
    s->alive = false;
}

/* Room for a token in a tier, as the contract says; used: slots of all sequences. */
static bool make_room(const model *m, const layer_model *layer, uint64_t n, uint64_t *used,
                      uint8_t *place, uint32_t tier)
{
    uint64_t least = n;
    if (used[tier] < m->tiers.tier[tier].n_tokens) return true;
    for (uint64_t i = n; i-- > 0;)
        if (place[i] == tier && (least == n || layer->importance[i] <= layer->importance[least]))
            least = i;
    for (uint32_t to = tier + 1; to < m->tiers.n_tiers && least < n; to++)
        if (make_room(m, layer, n, used, place, to)) {
            used[place[least]]--;
            place[least] = (uint8_t)to;
            used[to]++;
            return true;
        }
    return false;
}

/* Where tokens lie after n more. */
static void place_more(const model *m, const layer_model *layer, uint64_t n, uint64_t *used,
                       uint8_t *place)
{
    for (uint64_t t = layer->n; t < layer->n + n; t++) {
        uint32_t tier = 0;
        while (tier < m->tiers.n_tiers && !make_room(m, layer, t, used, place, tier))
            tier++;
        place[t] = (uint8_t)tier;
        used[tier]++;
    }
}

static void try_append(model *m)
{
    seq_model *s = some_seq(m);
    const pimattn_shape *shape = &m->config.shape;
    uint32_t l = (uint32_t)below(m, shape->n_layers);
    layer_model *layer = &s->layer[l];
    uint64_t n = below(m, chance(m, 3) ? 60 : 6);
    size_t k_row = shape->n_kv_heads * shape->head_dim, v_row = shape->n_kv_heads * shape_dv(shape);
    static float k[MOST * ROW], v[MOST * ROW];
    if (layer->n + n > MOST) return;
    if (chance(m, 20)) {
        uint64_t wrong = odd_number(m);
        if (wrong > 65 && s->alive && !m->config.reserve_tokens)
            CHECK(pimattn_append(m->tiered, s->tiered, l, k, v, wrong, SIZE_MAX / 2, 0) !=
                  PIMATTN_OK);
        return;
    }
    fill_normal(k, n * k_row, 1, &m->rng);
    fill_normal(v, n * v_row, 1, &m->rng);
    uint64_t used[PIMATTN_MAX_TIERS + 1] = {0};
    uint8_t place[MOST], after[MOST];
    pimattn_tier_info info;
    for (uint32_t i = 0; i < m->tiers.n_tiers; i++) {
        CHECK_U(pimattn_tier_query(m->tiered, i, &info), PIMATTN_OK);
        used[i] = info.n_used;
    }
    if (s->alive)
        CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, place, layer->n), PIMATTN_OK);
    pimattn_status want =
        s->alive ? n ? fits(m, s->held, layer->n + n) : PIMATTN_OK : PIMATTN_ERR_SEQ;
    pimattn_status status = pimattn_append(m->tiered, s->tiered, l, k, v, n, 0, 0);
    CHECK(status == want || (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) ||
          status == PIMATTN_ERR_DEVICE);
    if (status != PIMATTN_OK) return;
    CHECK_U(pimattn_append(m->pages, s->pages, l, k, v, n, 0, 0), PIMATTN_OK);
    for (uint64_t i = layer->n; i < layer->n + n; i++)
        layer->importance[i] = FLT_MAX;
    if (shape->n_layers == 1 && s->held == layer->n) { /* no slots that only the engine knows */
        place_more(m, layer, n, used, place);
        CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, after, layer->n + n), PIMATTN_OK);
        CHECK_BYTES(after, place, (size_t)(layer->n + n));
    }
    for (uint64_t i = 0; i < n; i++) {
        memcpy(layer->k[layer->n + i], k + i * k_row, k_row * sizeof *k);
        memcpy(layer->v[layer->n + i], v + i * v_row, v_row * sizeof *v);
        layer->active[layer->n + i] = false;
    }
    layer->n += n;
    if (layer->n > s->held) s->held = layer->n;
}

static bool is_even(const model *m, const seq_model *s)
{
    return m->config.shape.n_layers == 1 || s->layer[0].n == s->layer[1].n;
}

/* Layers of unequal length are wrong; what is to be kept of tokens, or come. */
static void try_length(model *m, bool reserve)
{
    seq_model *s = some_seq(m);
    uint64_t held = s->layer[0].n, n = chance(m, 10) ? odd_number(m) : below(m, held + 2);
    pimattn_status want = PIMATTN_OK, status;
    if (!s->alive)
        want = PIMATTN_ERR_SEQ;
    else if (reserve && !is_even(m, s))
        want = PIMATTN_ERR_ARGUMENT;
    if (reserve) {
        uint64_t to = n > UINT64_MAX - held ? UINT64_MAX : n + held;
        if (to < m->config.reserve_tokens) to = m->config.reserve_tokens;
        if (want == PIMATTN_OK) want = fits(m, s->held, to);
        status = pimattn_seq_reserve(m->tiered, s->tiered, n);
        CHECK(status == want || (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) ||
              status == PIMATTN_ERR_DEVICE);
        if (status == PIMATTN_OK && to > s->held) s->held = to;
        return;
    }
    for (uint32_t l = 0; l < m->config.shape.n_layers; l++)
        if (want == PIMATTN_OK && n > s->layer[l].n) want = PIMATTN_ERR_ARGUMENT;
    if (!CHECK_U(pimattn_seq_truncate(m->tiered, s->tiered, n), want) || want != PIMATTN_OK) return;
    CHECK_U(pimattn_seq_truncate(m->pages, s->pages, n), PIMATTN_OK);
    uint64_t kept = n > m->config.reserve_tokens ? n : m->config.reserve_tokens;
    if (s->held > kept) s->held = kept;
    for (uint32_t l = 0; l < m->config.shape.n_layers; l++) {
        s->layer[l].n = n;
        if (s->layer[l].n_scored > n) s->layer[l].n_scored = n;
    }
}

static void try_score(model *m)
{
    seq_model *s = some_seq(m);
    uint32_t l = (uint32_t)below(m, m->config.shape.n_layers);
    layer_model *layer = &s->layer[l];
    float score[MOST + 1];
    bool wrong = chance(m, 10);
    uint64_t n = layer->n;
    for (uint64_t t = 0; t <= MOST; t++)
        score[t] = chance(m, 30) ? 0.0f : rng_float(&m->rng, 0, 1);
    if (wrong && n) score[below(m, n)] = chance(m, 2) ? -1.0f : (float)NAN;
    if (wrong && !n) n = odd_number(m) | 1;
    pimattn_status want = !s->alive ? PIMATTN_ERR_SEQ : wrong ? PIMATTN_ERR_ARGUMENT : PIMATTN_OK;
    if (!CHECK_U(pimattn_tier_score(m->tiered, s->tiered, l, score, n), want) || want) return;
    float lambda = pimattn_engine_config(m->tiered)->tiers->lambda;
    CHECK_U(pimattn_importance(layer->importance, score, n, layer->n_scored, lambda), PIMATTN_OK);
    layer->n_scored = n;
    CHECK(pimattn_tier_score(m->tiered, s->tiered, l, score, UINT64_MAX) != PIMATTN_OK);
}

/* Proposals are those of the schedule over the model's importance; perhaps they are committed. */
static void try_swaps(model *m)
{
    seq_model *s = some_seq(m);
    uint32_t l = (uint32_t)below(m, m->config.shape.n_layers);
    const layer_model *layer = &s->layer[l];
    pimattn_swap swaps[MOST], want[MOST];
    uint64_t scratch[MOST * 2];
    uint32_t stop[PIMATTN_MAX_TIERS], want_stop[PIMATTN_MAX_TIERS];
    size_t n = 0, n_want = 0, n_done = 0, n_most = below(m, MOST);
    uint8_t tier[MOST], after[MOST];
    if (!s->alive) return;
    CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, tier, layer->n), PIMATTN_OK);
    pimattn_schedule plan = {layer->importance,
                             tier,
                             (size_t)layer->n_scored,
                             pimattn_engine_config(m->tiered)->tiers->ratio,
                             m->tiers.n_tiers,
                             m->tiers.mean,
                             n_most,
                             scratch};
    pimattn_status status = pimattn_tier_propose(m->tiered, s->tiered, l, swaps, n_most, &n, stop);
    if (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) return;
    if (!CHECK_U(status, PIMATTN_OK)) printf("  %s\n", pimattn_engine_cause(m->tiered));
    CHECK_U(pimattn_schedule_swaps(&plan, want, &n_want, want_stop, NULL), PIMATTN_OK);
    if (!CHECK_U(n, n_want)) return;
    CHECK_BYTES(swaps, want, n * sizeof *swaps);
    CHECK_BYTES(stop, want_stop, (m->tiers.n_tiers - 1) * sizeof *stop);
    if (n > 0 && chance(m, 6)) {
        swaps[n - 1].up = chance(m, 2) ? (uint32_t)layer->n : (uint32_t)odd_number(m) | 1u << 20;
        CHECK_U(pimattn_tier_commit(m->tiered, s->tiered, l, swaps, n, &n_done),
                PIMATTN_ERR_ARGUMENT);
        CHECK_U(n_done, 0);
        return;
    }
    status = pimattn_tier_commit(m->tiered, s->tiered, l, swaps, n, &n_done);
    if (status != PIMATTN_ERR_DEVICE) CHECK_U(status, PIMATTN_OK);
    CHECK(status == PIMATTN_OK ? n_done == n : n_done < n);
    for (size_t i = 0; i < n_done; i++) {
        tier[swaps[i].down]++;
        tier[swaps[i].up]--;
    }
    CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, after, layer->n), PIMATTN_OK);
    CHECK_BYTES(after, tier, (size_t)layer->n);
}

/* Whether every tier has slots for those that come if those that go are gone. */
static bool wishes_fit(const model *m, const uint8_t *wish, const uint8_t *is, uint64_t n)
{
    bool fit = true;
    for (uint32_t i = 0; i < m->tiers.n_tiers; i++) {
        pimattn_tier_info info;
        CHECK_U(pimattn_tier_query(m->tiered, i, &info), PIMATTN_OK);
        for (uint64_t t = 0; t < n; t++) {
            if (wish[t] >= m->tiers.n_tiers) continue;
            info.n_used += wish[t] == i;
            info.n_used -= is[t] == i;
        }
        fit = fit && info.n_used <= info.n_tokens;
    }
    return fit;
}

static void try_move(model *m)
{
    seq_model *s = some_seq(m);
    uint32_t l = (uint32_t)below(m, m->config.shape.n_layers);
    uint64_t n = s->layer[l].n;
    uint8_t wish[MOST], before[MOST], after[MOST];
    if (!s->alive) return;
    for (uint64_t t = 0; t < n; t++)
        wish[t] = (uint8_t)(chance(m, 3) ? 255 : below(m, m->tiers.n_tiers + 1));
    CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, before, n), PIMATTN_OK);
    if (chance(m, 3)) /* a shuffle always fits */
        for (uint64_t t = 0; t < n; t++)
            wish[t] = before[t];
    for (uint64_t t = 0; n > 1 && t < n; t++) {
        uint64_t other = below(m, n);
        uint8_t x = wish[t];
        wish[t] = wish[other];
        wish[other] = x;
    }
    bool room = wishes_fit(m, wish, before, n);
    pimattn_status status = pimattn_tier_move(m->tiered, s->tiered, l, wish, n);
    CHECK_U(pimattn_tier_places(m->tiered, s->tiered, l, after, n), PIMATTN_OK);
    if (status == PIMATTN_ERR_DEVICE) return;
    CHECK_U(status, room ? PIMATTN_OK : PIMATTN_ERR_PAGES);
    for (uint64_t t = 0; t < n; t++)
        if (status != PIMATTN_OK || wish[t] >= m->tiers.n_tiers) wish[t] = before[t];
    CHECK_BYTES(after, wish, (size_t)n);
    CHECK(pimattn_tier_move(m->tiered, s->tiered, l, wish, UINT64_MAX) == PIMATTN_ERR_ARGUMENT);
}

/* -- attend -- */

/* A batch, for both engines. */
typedef struct batch {
    uint32_t layer;
    size_t n_items, n_rows;
    seq_model *seq[ITEMS];
    pimattn_item tiered[ITEMS], pages[ITEMS];
    pimattn_mask mask[ITEMS];
    pimattn_choice choice[ITEMS];
    uint64_t mask_bits[ITEMS][NEW], bits[ITEMS][KV_HEADS * (WORDS + 1)];
    float q[ROWS * Q_ROW];
} batch;

static bool some_batch(model *m, batch *b)
{
    memset(b, 0, sizeof *b);
    b->layer = (uint32_t)below(m, m->config.shape.n_layers);
    uint64_t n_items = 1 + below(m, ITEMS);
    for (uint64_t i = 0; i < n_items; i++) {
        seq_model *s = some_seq(m);
        uint64_t n = s->layer[b->layer].n;
        if (!s->alive || n == 0) continue;
        pimattn_item *item = &b->tiered[b->n_items];
        pimattn_mask *mask = &b->mask[b->n_items];
        pimattn_choice *c = &b->choice[b->n_items];
        uint64_t *bits = b->bits[b->n_items];
        b->seq[b->n_items] = s;
        item->seq = s->tiered;
        item->n_tokens = 1 + below(m, n < NEW ? n : NEW);
        b->pages[b->n_items] = *item;
        b->pages[b->n_items].seq = s->pages;
        for (uint32_t w = 0; w < NEW; w++)
            b->mask_bits[b->n_items][w] = rng_u64(&m->rng);
        if (chance(m, 2)) mask->bits = b->mask_bits[b->n_items];
        mask->n_tokens = item->n_tokens;
        for (uint32_t w = 0; w < KV_HEADS * (WORDS + 1); w++)
            bits[w] = chance(m, 3) ? rng_u64(&m->rng) : rng_u64(&m->rng) & rng_u64(&m->rng);
        if (chance(m, 3)) memset(bits, 0, sizeof b->bits[0]);
        if (!chance(m, 4)) {
            c->bits = bits;
            c->n_tokens = below(m, chance(m, 2) ? n + 1 : MOST + 32);
            c->n_kv_heads = chance(m, 2) ? 1 : m->config.shape.n_kv_heads;
            c->stride = chance(m, 2) ? 0 : WORDS + below(m, 2);
        }
        b->n_rows += item->n_tokens;
        b->n_items++;
    }
    fill_normal(b->q, b->n_rows * m->config.shape.n_heads * m->config.shape.head_dim, 1, &m->rng);
    return b->n_items > 0;
}

/* Marks what took part: those in reach of the queries and chosen for a KV head. */
static void mark_active(model *m, const batch *b, bool choices, bool masks)
{
    const pimattn_shape *shape = &m->config.shape;
    for (size_t i = 0; i < b->n_items; i++) {
        layer_model *layer = &b->seq[i]->layer[b->layer];
        const pimattn_choice *c = &b->choice[i];
        uint64_t first_own = layer->n - b->tiered[i].n_tokens;
        uint64_t stride = c->n_kv_heads == 1 ? 0 : c->stride ? c->stride : (c->n_tokens + 63) / 64;
        uint64_t begin =
            shape->window && shape->window <= first_own ? first_own + 1 - shape->window : 0;
        for (uint64_t t = 0; t < layer->n; t++) {
            bool is = !choices || t >= c->n_tokens;
            for (uint32_t h = 0; h < shape->n_kv_heads && !is; h++)
                is = c->bits[h * stride + t / 64] >> t % 64 & 1;
            is = is && (t >= begin || t < shape->sink_tokens);
            if (!is || layer->active[t]) continue;
            layer->active[t] = true;
            m->n_active++;
        }
    }
    (void)masks;
}

/* Bytes of both, or the bound. */
static void compare(const model *m, const float *out, const float *want, size_t n, double bound)
{
    if (!m->tiers.partials) {
        CHECK_BYTES(out, want, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!CHECK_NEAR(out[i], want[i], bound)) return;
}

static void check_reading(const model *m, const batch *b, const pimattn_readings *r)
{
    uint64_t n_alike = 1; /* items of one sequence: of flash a page is read for them all at once */
    for (size_t i = 0; i < b->n_items; i++) {
        uint64_t n = 0;
        for (size_t k = 0; k < b->n_items; k++)
            n += b->seq[k] == b->seq[i];
        if (n > n_alike) n_alike = n;
    }
    const pimattn_step_reading *step = pimattn_tier_readings(m->tiered);
    CHECK(step->attention_ns + step->merge_ns + step->moves_ns == step->ns && step->ns < 1e15);
    /* moves are in a step of n layers once: behind it, or beside all of it */
    double alone = step->attention_ns + step->merge_ns, n = r->n_layers, want = alone;
    if (m->tiers.moves_wait) want += step->moves_ns / n;
    if (!m->tiers.moves_wait && step->moves_ns > 0) want = fmax(alone, step->ns / n);
    CHECK_NEAR(r->layer_ns, want, 1e-9 * want);
    for (uint32_t i = 0; i < m->tiers.n_tiers; i++) {
        const pimattn_tier_reading *t = &step->tiers[i];
        CHECK(t->ns == t->local_ns + t->input_ns + t->reduce_ns + t->link_ns);
        CHECK(t->input_ns >= 0 && t->reduce_ns >= 0 && t->link_ns >= 0 && t->energy_pJ >= 0);
        CHECK(n_alike * t->read_bytes >= t->kv_bytes);
    }
}

static void try_attend(model *m)
{
    enum { OUT = ROWS * Q_ROW };
    static batch b;
    static float out[2][OUT], lse[2][ROWS * 4];
    pimattn_readings r;
    const pimattn_shape *shape = &m->config.shape;
    if (!some_batch(m, &b)) return;
    pimattn_call call[2];
    bool masks = chance(m, 2), choices = chance(m, 2), timed = chance(m, 3);
    size_t n = b.n_rows * shape->n_heads * shape_dv(shape);
    for (int way = 0; way < 2; way++) {
        memset(&call[way], 0, sizeof call[way]);
        call[way].out = out[way];
        call[way].lse = lse[way];
        call[way].q = b.q;
        call[way].items = way ? b.pages : b.tiered;
        call[way].n_items = b.n_items;
        call[way].masks = masks ? b.mask : NULL;
        call[way].choices = choices ? b.choice : NULL;
    }
    pimattn_status status = pimattn_attend(m->tiered, b.layer, &call[0], timed ? &r : NULL);
    if (status == PIMATTN_ERR_DEVICE && timed) return; /* units that the shape does not fit */
    if (status == PIMATTN_ERR_MEMORY && timed && m->heap.fail_at) return;
    if (!CHECK_U(status, PIMATTN_OK)) {
        printf("  %s\n", pimattn_engine_cause(m->tiered));
        return;
    }
    if (timed) check_reading(m, &b, &r);
    if (timed) CHECK_NEAR(r.token_pJ * (double)b.n_rows, r.step_pJ, 1e-12 * r.step_pJ);
    mark_active(m, &b, choices, masks);
    CHECK_U(pimattn_attend(m->pages, b.layer, &call[1], NULL), PIMATTN_OK);
    compare(m, out[0], out[1], n, 2e-3 * 0.01);
    compare(m, lse[0], lse[1], b.n_rows * shape->n_heads, 1e-4);
}

/* Bad calls: a status, and outputs as before. */
static void try_bad_attend(model *m)
{
    static batch b;
    static float out[ROWS * Q_ROW], before[ROWS * Q_ROW];
    pimattn_call call;
    if (!some_batch(m, &b)) return;
    memset(&call, 0, sizeof call);
    call.out = out;
    call.q = b.q;
    call.items = b.tiered;
    call.n_items = b.n_items;
    call.choices = b.choice;
    uint32_t i = (uint32_t)below(m, b.n_items);
    uint64_t wrong = (uint64_t)1 << 58 | odd_number(m);
    uint32_t layer = b.layer;
    pimattn_choice *c = &b.choice[i];
    c->bits = b.bits[i];
    c->n_tokens = c->n_tokens ? c->n_tokens : 1;
    c->n_kv_heads = 1;
    c->stride = 0;
    memcpy(before, out, sizeof out);
    switch (below(m, 9)) {
    case 0: c->bits = NULL; break;
    case 1: c->n_kv_heads = (uint32_t)odd_number(m) | 1u << 8; break;
    case 2:
        c->n_tokens = 65;
        c->stride = 1;
        break;
    case 3:
        c->n_tokens = UINT64_MAX;
        c->stride = 1;
        break;
    case 4: layer = (uint32_t)wrong | 1u << 16; break;
    case 5: call.q_stride = SIZE_MAX - 3; break;
    case 6: b.tiered[i].n_tokens = wrong; break;
    case 7: b.tiered[i].seq ^= (uint64_t)1 << 40; break;
    default:
        if (m->config.shape.n_kv_heads == 1) return;
        c->n_kv_heads = m->config.shape.n_kv_heads;
        c->stride = SIZE_MAX - 3;
    }
    pimattn_status status = pimattn_attend(m->tiered, layer, &call, NULL);
    CHECK(status == PIMATTN_ERR_ARGUMENT || status == PIMATTN_ERR_SEQ);
    CHECK(pimattn_engine_cause(m->tiered)[0] != 0);
    CHECK_BYTES(out, before, sizeof out);
}

/* The model's own tokens as pages, of f32. */
static void try_pages(model *m)
{
    static batch b;
    static float out[2][ROWS * Q_ROW];
    pimattn_pages p;
    pimattn_call call;
    uint32_t table[MOST], lengths[1];
    const pimattn_shape *shape = &m->config.shape;
    if (shape->k_type || shape->v_type || !some_batch(m, &b)) return;
    const layer_model *layer = &b.seq[0]->layer[b.layer];
    memset(&p, 0, sizeof p);
    for (uint32_t t = 0; t < MOST; t++)
        table[t] = t;
    lengths[0] = (uint32_t)layer->n;
    p.k.at = layer->k;
    p.v.at = layer->v;
    p.k.page = p.v.page = ROW * sizeof(float);
    p.n_pages = layer->n;
    p.page_tokens = 1;
    p.table = table;
    p.table_stride = MOST;
    p.lengths = lengths;
    memset(&call, 0, sizeof call);
    call.out = out[0];
    call.q = b.q;
    call.items = b.tiered;
    call.n_items = 1;
    call.choices = chance(m, 2) ? b.choice : NULL;
    pimattn_readings r;
    bool reads = chance(m, 4);
    if (!CHECK_U(pimattn_attend_pages(m->tiered, b.layer, &p, &call, reads ? &r : NULL),
                 PIMATTN_OK))
        printf("  %s\n", pimattn_engine_cause(m->tiered));
    else if (reads)
        CHECK(r.pages_used == pimattn_pages_used(m->tiered) &&
              r.pages_total == pimattn_pages_total(m->tiered));
    call.out = out[1];
    call.items = b.pages;
    CHECK_U(pimattn_attend(m->pages, b.layer, &call, NULL), PIMATTN_OK);
    CHECK_BYTES(out[0], out[1],
                b.tiered[0].n_tokens * shape->n_heads * shape_dv(shape) * sizeof(float));
}

/* What counts: the same in tiers as in pages, of bounds if a page is a tile. */
static void try_counts(model *m)
{
    static batch b;
    float of_tokens[2][MOST], bounds[2][KV_HEADS];
    uint64_t bits[2][KV_HEADS * WORDS];
    pimattn_choice c[2];
    if (!some_batch(m, &b)) return;
    const uint64_t n = b.seq[0]->layer[b.layer].n;
    const bool tiles = pimattn_engine_config(m->pages)->page_tokens == 16;
    uint32_t share = 1 + (uint32_t)below(m, 9), source = (uint32_t)below(m, tiles ? 2 : 1);
    double sum = 0;
    memset(bits, 0, sizeof bits);
    for (int way = 0; way < 2; way++) {
        pimattn_engine *e = way ? m->pages : m->tiered;
        pimattn_seq seq = way ? b.pages[0].seq : b.tiered[0].seq;
        memset(&c[way], 0, sizeof c[way]);
        c[way].bits = bits[way];
        c[way].stride = WORDS;
        c[way].n_kv_heads = m->config.shape.n_kv_heads;
        pimattn_status status = pimattn_retrieve(e, seq, b.layer, &c[way], bounds[way], b.q, share);
        if (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) return;
        CHECK_U(status, PIMATTN_OK);
        status = pimattn_probabilities(e, seq, b.layer, of_tokens[way], b.q, source);
        if (status == PIMATTN_ERR_MEMORY && m->heap.fail_at) return;
        CHECK_U(status, PIMATTN_OK);
    }
    CHECK_U(c[0].n_tokens, n);
    CHECK_BYTES(of_tokens[0], of_tokens[1], (size_t)n * sizeof(float));
    for (uint64_t t = 0; t < n; t++)
        sum += (double)of_tokens[0][t];
    CHECK_NEAR(sum, 1, 1e-5);
    for (uint32_t h = 0; h < m->config.shape.n_kv_heads; h++)
        CHECK(bits[0][h * WORDS + (n - 1) / 64] >> (n - 1) % 64 & 1);
    if (tiles) CHECK_BYTES(bits[0], bits[1], sizeof bits[0]);
    if (tiles) CHECK_BYTES(bounds[0], bounds[1], m->config.shape.n_kv_heads * sizeof(float));
}

static void try_step(model *m)
{
    CHECK_U(pimattn_tier_step(m->tiered), PIMATTN_OK);
    m->n_active = 0;
    for (uint32_t i = 0; i < SEQS; i++)
        for (uint32_t l = 0; l < LAYERS; l++)
            memset(m->seq[i].layer[l].active, 0, sizeof m->seq[i].layer[l].active);
}

static void one_call(model *m)
{
    switch (below(m, 16)) {
    case 0: try_create(m); break;
    case 1: chance(m, 4) ? try_free(m) : try_create(m); break;
    case 2: try_length(m, true); break;
    case 3: chance(m, 2) ? try_length(m, false) : try_length(m, true); break;
    case 4:
    case 5:
    case 6:
    case 7: try_append(m); break;
    case 8: try_score(m); break;
    case 9: try_swaps(m); break;
    case 10: try_move(m); break;
    case 11: try_bad_attend(m); break;
    case 12: try_pages(m); break;
    case 13: try_counts(m); break;
    case 14: chance(m, 3) ? try_step(m) : try_attend(m); break;
    default: try_attend(m);
    }
}

static void random_calls_agree_with_a_model(void)
{
    uint64_t n_made = 0;
    for (uint64_t i = 0; i < n_engines && !check_now.n_errors; i++) {
        model *m = &now;
        if (!start(m, first_seed + i)) {
            finish(m);
            continue;
        }
        n_made++;
        for (int k = 0; k < CALLS && !check_now.n_errors; k++) {
            m->fail_in = chance(m, 4) ? 1 + (uint32_t)below(m, 5) : 0;
            m->meddles = chance(m, 8);
            m->heap.fail_at = chance(m, 8) ? m->heap.n_calls + 1 + below(m, 2) : 0;
            one_call(m);
            m->fail_in = 0;
            m->meddles = false;
            check_all(m);
            if (check_now.n_errors)
                printf("  seed %llu, call %d\n", (unsigned long long)(first_seed + i), k);
        }
        finish(m);
    }
    if (!check_now.n_errors) CHECK(n_made > n_engines / 2);
}

/* -- calls without an engine -- */

static void *small_alloc(void *user, size_t bytes, size_t align)
{
    return bytes > 64u << 20 ? NULL : heap_alloc(user, bytes, align);
}

static uint64_t some_number(model *m)
{
    return chance(m, 8) ? odd_number(m) : below(m, chance(m, 3) ? 100000 : 40);
}

static void some_load(model *m, pimattn_tier_load *load, uint64_t *blocks, size_t n)
{
    memset(load, 0, sizeof *load);
    for (size_t i = 0; i < n; i++)
        blocks[i] = chance(m, 30) ? odd_number(m) : 1 + below(m, 300);
    load->blocks = blocks;
    load->n_blocks = chance(m, 20) ? 0 : below(m, n);
    load->n_queries = (uint32_t)(chance(m, 9) ? odd_number(m) : 1 + below(m, 20));
    load->gqa_flops = chance(m, 2);
    uint64_t *const counts[] = {&load->tokens, &load->groups, &load->device_outputs, &load->pages};
    uint64_t *const parts[] = {&load->device_tokens, &load->device_groups, &load->device_blocks,
                               &load->channel_pages};
    for (int i = 0; i < 4; i++) {
        *parts[i] = chance(m, 2) ? 1 + below(m, 500) : some_number(m);
        *counts[i] = chance(m, 2) ? *parts[i] + below(m, 500) : some_number(m);
    }
}

static void check_tier_reading(const pimattn_tier_reading *r)
{
    CHECK(r->ns == r->local_ns + r->input_ns + r->reduce_ns + r->link_ns);
    CHECK(r->ns >= 0 && r->ns < 1e30 && r->energy_pJ >= 0 && r->energy_pJ < 1e300);
    CHECK(r->input_ns >= 0 && r->reduce_ns >= 0 && r->link_ns >= 0 && r->softmax_ns >= 0);
}

/* What a spread gives can be timed, and has the tokens that went in, each read once. */
static void try_spread(model *m, const pimattn_tier *tier, const pimattn_shape *shape)
{
    uint64_t tokens[6], blocks[6 * KV_HEADS], all = 0, token_pages = 1;
    pimattn_tier_load load;
    pimattn_tier_reading r;
    size_t n = below(m, 7);
    bool scattered = chance(m, 2);
    pimhw_cause why = {""};
    for (size_t i = 0; i < n; i++) {
        tokens[i] = chance(m, 30) ? odd_number(m) : below(m, i ? tokens[i - 1] + 1 : 5000);
        all += tokens[i];
    }
    pimattn_status status =
        pimattn_tier_spread(&load, blocks, tier, shape, tokens, n, scattered, &why);
    CHECK(status == PIMATTN_OK || (status == PIMATTN_ERR_CONFIG && why.text[0]));
    if (status != PIMATTN_OK) return;
    CHECK_U(load.tokens, all * shape->n_kv_heads);
    uint64_t bytes = (uint64_t)shape->n_kv_heads * tier->device.element_bytes *
                     (shape->head_dim + shape_dv(shape));
    if (tier->device.flash_page_bytes)
        token_pages = (bytes + tier->device.flash_page_bytes - 1) / tier->device.flash_page_bytes;
    CHECK(load.pages <= all * token_pages && load.channel_pages <= load.pages);
    if (scattered && tier->device.flash_page_bytes) CHECK_U(load.pages, all * token_pages);
    if (all > 200000) return;
    status = pimattn_tier_time(&r, tier, shape, &load, &why);
    if (CHECK_U(status, PIMATTN_OK))
        check_tier_reading(&r);
    else
        printf("  %s\n", why.text);
}

static void try_times(model *m, const pimattn_tier *tiers, uint32_t n_tiers,
                      const pimattn_shape *shape)
{
    static uint64_t blocks[PIMATTN_MAX_TIERS][9];
    pimattn_tier_load loads[PIMATTN_MAX_TIERS];
    pimattn_step_reading step;
    pimattn_relayout how;
    pimattn_relayout_reading moved;
    pimhw_cause why = {""};
    memset(&loads, 0, sizeof loads);
    for (uint32_t i = 0; i < n_tiers; i++)
        some_load(m, &loads[i], blocks[i], 9);
    pimattn_status status = pimattn_step_time(&step, tiers, n_tiers, shape, loads,
                                              (double)below(m, 100000), chance(m, 2), &why);
    CHECK(status == PIMATTN_OK || (status == PIMATTN_ERR_CONFIG && why.text[0]));
    for (uint32_t i = 0; status == PIMATTN_OK && i < n_tiers; i++)
        check_tier_reading(&step.tiers[i]);
    if (status == PIMATTN_OK)
        CHECK(step.ns == step.attention_ns + step.merge_ns + step.moves_ns && step.moves_ns >= 0);
    how.by_host = chance(m, 2);
    how.host_percent = (uint32_t)some_number(m);
    how.link_MBps = (uint32_t)some_number(m);
    how.start_ns = (uint32_t)some_number(m);
    uint64_t bytes = some_number(m), runs = some_number(m);
    memset(&why, 0, sizeof why);
    status = pimattn_relayout_time(&moved, &tiers[0], &tiers[n_tiers - 1], &how, bytes, runs, &why);
    CHECK(status == PIMATTN_OK || why.text[0]);
    if (status == PIMATTN_OK) CHECK(moved.ns >= moved.start_ns && moved.ns < 1e30);
    if (status == PIMATTN_OK) CHECK(moved.read_bytes >= bytes && moved.written_bytes >= bytes);
}

/* Swaps of random importance: what they say of tiers is true, and no list is overrun. */
static void try_schedule(model *m)
{
    enum { N = 40 };
    float importance[N];
    uint8_t tier[N];
    double ratio[PIMATTN_MAX_TIERS];
    uint64_t scratch[N * 2];
    pimattn_swap swaps[N + 1];
    uint32_t stop[PIMATTN_MAX_TIERS], n_tiers = 1 + (uint32_t)below(m, PIMATTN_MAX_TIERS);
    size_t n = below(m, N + 1), n_swaps = 0;
    pimhw_cause why = {""};
    for (size_t i = 0; i < n; i++) {
        importance[i] = chance(m, 9) ? (chance(m, 2) ? FLT_MAX : 1e-45f) : rng_float(&m->rng, 0, 9);
        tier[i] = (uint8_t)(chance(m, 9) ? PIMATTN_MAX_TIERS + below(m, 9) : below(m, n_tiers));
    }
    for (uint32_t i = 0; i < PIMATTN_MAX_TIERS; i++)
        ratio[i] = chance(m, 9) ? (chance(m, 2) ? DBL_MAX : DBL_MIN) : 0.1 + (double)below(m, 9);
    if (n && chance(m, 9)) importance[below(m, n)] = chance(m, 2) ? (float)NAN : -1.0f;
    if (chance(m, 19)) ratio[below(m, n_tiers)] = chance(m, 2) ? (double)NAN : 0.0;
    memset(&swaps, 0, sizeof swaps);
    const pimattn_schedule plan = {importance,      tier,   n, ratio, n_tiers, chance(m, 2),
                                   below(m, N + 1), scratch};
    pimattn_status status = pimattn_schedule_swaps(&plan, swaps, &n_swaps, stop, &why);
    CHECK(status == PIMATTN_OK || (why.text[0] && n_swaps == 0));
    if (!CHECK(n_swaps <= plan.n_most)) return;
    for (size_t i = 0; i < n_swaps; i++) {
        const pimattn_swap w = swaps[i];
        if (!CHECK(w.down < n && w.up < n && tier[w.down] == w.tier && tier[w.up] == w.tier + 1))
            return;
        CHECK(importance[w.up] > importance[w.down]);
        tier[w.down]++;
        tier[w.up]--;
    }
    for (uint32_t i = 0; status == PIMATTN_OK && i + 1 < n_tiers; i++)
        CHECK(pimattn_stop_str(stop[i]) != NULL);
}

static bool trace(void *user, uint64_t step, float *score)
{
    model *m = (model *)user;
    for (uint32_t i = 0; i < 20; i++)
        score[i] = rng_float(&m->rng, 0, 1);
    return step < 5 || !chance(m, 9);
}

static void try_profile(model *m)
{
    pimattn_candidate candidates[3];
    uint64_t room[PIMATTN_MAX_TIERS];
    double active_ns[PIMATTN_MAX_TIERS], swap_ns[PIMATTN_MAX_TIERS];
    pimattn_profile p;
    pimhw_cause why = {""};
    size_t best = 99, n = below(m, 4);
    memset(&p, 0, sizeof p);
    memset(&candidates, 0, sizeof candidates);
    for (uint32_t i = 0; i < PIMATTN_MAX_TIERS; i++) {
        room[i] = chance(m, 4) ? odd_number(m) : below(m, 20);
        active_ns[i] = chance(m, 19) ? -1.0 : (double)below(m, 100);
        swap_ns[i] = chance(m, 19) ? (double)NAN : (double)below(m, 100);
        for (size_t k = 0; k < n; k++)
            candidates[k].ratio[i] = chance(m, 30) ? 0.0 : 1.0 + (double)below(m, 9);
    }
    p.score = trace;
    p.user = m;
    p.n_steps = below(m, 9);
    p.n_first = below(m, 4);
    p.n_tokens = chance(m, 9) ? (size_t)odd_number(m) : 20;
    p.lambda = rng_float(&m->rng, 0, 1.05);
    p.sparsity = (uint32_t)some_number(m);
    p.n_tiers = (uint32_t)below(m, 10);
    p.room = room;
    p.active_ns = active_ns;
    p.swap_ns = swap_ns;
    p.mean = chance(m, 2);
    p.n_most = (size_t)some_number(m);
    p.allocator.alloc = small_alloc;
    p.allocator.release = heap_release;
    p.allocator.user = &m->heap;
    if (p.n_tokens != 20 && p.n_tokens < UINT32_MAX) return; /* more than trace fills */
    if (chance(m, 19)) n = SIZE_MAX / 2;
    pimattn_status status = pimattn_tier_profile(&p, candidates, n, &best, &why);
    CHECK(status == PIMATTN_OK ? best < n : why.text[0] != 0);
    for (size_t i = 0; status == PIMATTN_OK && i < n; i++)
        CHECK(candidates[i].step_ns >= candidates[best].step_ns);
    CHECK_U(m->heap.n_live, 0);
}

/* Fields of tiers that are odd: a status that says which. */
static void try_config(model *m)
{
    pimhw_cause why = {""};
    pimattn_engine *e = NULL;
    static const double odd[] = {-1, 0, 1e-300, 1, 1e300};
    for (uint64_t k = 1 + below(m, 3); k > 0; k--) {
        pimattn_tier *t = &m->tiers.tier[below(m, PIMATTN_MAX_TIERS)];
        switch (below(m, 9)) {
        case 0: m->tiers.n_tiers = (uint32_t)some_number(m); break;
        case 1: t->n_devices = (uint32_t)some_number(m); break;
        case 2: t->n_tokens = some_number(m); break;
        case 3: m->tiers.lambda = chance(m, 2) ? (float)NAN : rng_float(&m->rng, -1, 2); break;
        case 4: m->tiers.ratio[below(m, 8)] = chance(m, 3) ? (double)NAN : odd[below(m, 5)]; break;
        case 5: m->config.page_tokens = (uint32_t)some_number(m); break;
        case 6: m->config.way = (uint32_t)below(m, 3); break;
        case 7: m->config.reserve_tokens = some_number(m); break;
        default:
            (void)pimhw_config_set(&t->device, pimhw_config_field((uint32_t)below(m, 60)),
                                   (uint32_t)some_number(m), NULL);
        }
    }
    m->config.tiers = &m->tiers;
    m->config.max_seqs = SEQS;
    m->config.allocator.alloc = small_alloc;
    m->config.allocator.release = heap_release;
    m->config.allocator.user = &m->heap;
    pimattn_status good = pimattn_config_check(&m->config, &why);
    CHECK(good == PIMATTN_OK || (good == PIMATTN_ERR_CONFIG && why.text[0]));
    pimattn_status status = pimattn_engine_create(&e, &m->config, &why);
    CHECK(status == good || (good == PIMATTN_OK && status == PIMATTN_ERR_MEMORY));
    for (uint32_t i = 0; e && i < m->tiers.n_tiers; i++)
        CHECK(pimattn_engine_config(e)->tiers->ratio[i] > 0 &&
              pimattn_engine_config(e)->tiers->ratio[i] <= DBL_MAX);
    pimattn_engine_destroy(e);
    CHECK_U(m->heap.n_live, 0);
    CHECK_U(m->heap.n_wrong, 0);
}

static void times_of_random_loads_are_sums_or_a_status(void)
{
    for (uint64_t i = 0; i < 8 * n_engines && !check_now.n_errors; i++) {
        model *m = &now;
        memset(m, 0, sizeof *m);
        m->rng.state = first_seed + i;
        some_tiers(m);
        some_shape(m, &m->config.shape);
        uint32_t n_tiers = (uint32_t)(1 + below(m, m->tiers.n_tiers));
        if (chance(m, 9)) m->tiers.tier[0].n_devices = (uint32_t)odd_number(m);
        try_spread(m, &m->tiers.tier[0], &m->config.shape);
        try_times(m, m->tiers.tier, n_tiers, &m->config.shape);
        for (int k = 0; k < 20; k++)
            try_schedule(m);
        for (int k = 0; k < 5; k++)
            try_profile(m);
        for (int k = 0; k < 5; k++) {
            const pimhw_config *d = &m->tiers.tier[0].device;
            uint64_t n = some_number(m), less = n / 2;
            CHECK(pimhw_flash_read_ps(d, n) >= pimhw_flash_read_ps(d, less));
            CHECK(pimhw_flash_write_ps(d, n) >= pimhw_flash_write_ps(d, less));
            (void)pimattn_reduction_ps(d, (uint32_t)some_number(m), some_number(m));
        }
        try_config(m);
        if (check_now.n_errors) printf("  seed %llu\n", (unsigned long long)(first_seed + i));
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) n_engines = strtoull(argv[1], NULL, 10);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    RUN(random_calls_agree_with_a_model);
    RUN(times_of_random_loads_are_sums_or_a_status);
    return check_end();
}
