/* law_tiers - where tokens lie changes no byte, however they move; partials keep their bound. */
#define PIMATTN_IMPLEMENTATION
#include "attn.h"

static uint64_t rng_below(check_rng *rng, uint64_t n)
{
    return n ? rng_range(rng, 0, n - 1) : 0;
}

/* A scene: sequences with the same tokens in pages and in tiers. */
enum { N_SEQS = 3, N_LAYERS = 2 };

typedef struct scene {
    uint64_t bits[N_SEQS][3], positions[N_SEQS][3];
    pimattn_mask mask[N_SEQS]; /* without bits: none */
    pimattn_tiers tiers;
    pimattn_config config; /* with tiers */
    pimattn_engine *pages, *tiered;
    attn_kv kv[N_SEQS];
    pimattn_item item[N_SEQS], tiered_item[N_SEQS];
    float *q, *want, *out;
    size_t n_rows, out_floats;
} scene;

static const char *const kinds[] = {"pam-hbm3", "pam-ddr4", "aimx", "pam-ssd"};

/* A device with few bank groups, so that tests have several tokens in one. */
static void small_device(pimhw_config *device, uint32_t kind)
{
    CHECK_U(pimhw_config_init(device, kinds[kind % 4], NULL), PIMHW_OK);
    if (device->n_channels > 2) CHECK_U(pimhw_config_set(device, "n_channels", 2, NULL), PIMHW_OK);
}

static void tiers_of(pimattn_tiers *t, uint32_t n_tiers, uint64_t room, check_rng *rng)
{
    memset(t, 0, sizeof *t);
    t->n_tiers = n_tiers;
    for (uint32_t i = 0; i < n_tiers; i++) {
        small_device(&t->tier[i].device, i);
        t->tier[i].n_devices = 1 + (uint32_t)rng_below(rng, 2);
        t->tier[i].n_tokens = 1 + rng_below(rng, room / n_tiers);
    }
    t->tier[n_tiers - 1].n_tokens = room; /* all of them fit */
}

static void scene_make(scene *s, uint32_t n_tiers, bool partials, bool variants, check_rng *rng)
{
    static const uint32_t dims[] = {16, 20, 32};
    memset(s, 0, sizeof *s);
    pimattn_shape shape = shape_of(N_LAYERS, 4, 2, dims[rng_below(rng, 3)], 16);
    shape.k_type = (uint32_t)rng_below(rng, PIMATTN_N_TYPE);
    shape.v_type = (uint32_t)rng_below(rng, PIMATTN_N_TYPE);
    if (variants && rng_below(rng, 2)) shape.window = 1 + rng_below(rng, 900);
    if (shape.window && partials && rng_below(rng, 2))
        shape.sink_tokens = (uint32_t)rng_below(rng, 40);
    if (variants && rng_below(rng, 2)) shape.alibi_max_bias = 8;
    pimattn_config c = config_of(&shape);
    c.page_tokens = 16;
    s->pages = engine_new(&c);
    c.page_tokens = 0;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        uint64_t n = 1 + rng_below(rng, i == 0 ? 1200 : 200);
        s->kv[i] = kv_random(&shape, n, rng);
        const uint64_t n_new = s->item[i].n_tokens = 1 + rng_below(rng, n < 3 ? n : 3);
        const pimattn_mask tree = {s->bits[i], n_new, s->positions[i]};
        for (uint64_t k = 0; k < n_new; k++) {
            s->bits[i][k] = rng_u64(rng);
            s->positions[i][k] = n - n_new + rng_below(rng, k + 1);
        }
        if (variants && rng_below(rng, 2)) s->mask[i] = tree;
        s->n_rows += s->item[i].n_tokens;
        tokens += n * N_LAYERS;
    }
    tiers_of(&s->tiers, n_tiers, tokens, rng);
    s->tiers.partials = partials;
    c.tiers = &s->tiers;
    s->config = c;
    s->tiered = engine_new(&c);
    s->out_floats = s->n_rows * shape.n_heads * 16;
    s->q = (float *)check_alloc(s->n_rows * shape.n_heads * shape.head_dim, sizeof(float));
    s->want = (float *)check_alloc(s->out_floats, sizeof(float));
    s->out = (float *)check_alloc(s->out_floats, sizeof(float));
    fill_normal(s->q, s->n_rows * shape.n_heads * shape.head_dim, 1, rng);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        s->tiered_item[i] = s->item[i];
        CHECK_U(pimattn_seq_create(s->pages, &s->item[i].seq), PIMATTN_OK);
        CHECK_U(pimattn_seq_create(s->tiered, &s->tiered_item[i].seq), PIMATTN_OK);
    }
    for (uint32_t i = 0; i < N_SEQS; i++)
        for (uint64_t at = 0, n; at < s->kv[i].n_tokens; at += n) {
            n = 1 + rng_below(rng, s->kv[i].n_tokens - at);
            for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
                CHECK_U(kv_append(s->pages, s->item[i].seq, layer, &s->kv[i], at, n), PIMATTN_OK);
                CHECK_U(kv_append(s->tiered, s->tiered_item[i].seq, layer, &s->kv[i], at, n),
                        PIMATTN_OK);
            }
        }
}

static void scene_free(scene *s)
{
    pimattn_engine_destroy(s->pages);
    pimattn_engine_destroy(s->tiered);
    for (uint32_t i = 0; i < N_SEQS; i++)
        kv_free(&s->kv[i]);
    free(s->q);
    free(s->want);
    free(s->out);
}

static void attend(const scene *s, bool tiered, const pimattn_choice *choices, float *out)
{
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out;
    call.q = s->q;
    call.items = tiered ? s->tiered_item : s->item;
    call.n_items = N_SEQS;
    call.choices = choices;
    call.masks = s->mask;
    pimattn_engine *e = tiered ? s->tiered : s->pages;
    if (!CHECK_U(pimattn_attend(e, 1, &call, NULL), PIMATTN_OK))
        printf("%s\n", pimattn_engine_cause(e));
}

/* Every token is in one tier, and the tiers hold what sequences have. */
static void check_places(const scene *s)
{
    uint64_t held[PIMATTN_MAX_TIERS] = {0};
    for (uint32_t i = 0; i < N_SEQS; i++)
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            uint64_t n = s->kv[i].n_tokens;
            uint8_t *tier = (uint8_t *)check_alloc(n, 1);
            CHECK_U(pimattn_tier_places(s->tiered, s->tiered_item[i].seq, layer, tier, n),
                    PIMATTN_OK);
            for (uint64_t t = 0; t < n; t++)
                held[tier[t]]++;
            free(tier);
        }
    for (uint32_t i = 0; i < s->tiers.n_tiers; i++) {
        pimattn_tier_info info;
        CHECK_U(pimattn_tier_query(s->tiered, i, &info), PIMATTN_OK);
        CHECK_U(info.n_used, held[i]);
        CHECK(info.n_used <= info.n_tokens);
    }
}

/* Random wishes, of which the tiers may have too little room: then nothing moves. */
static void move_some(const scene *s, check_rng *rng)
{
    uint32_t i = (uint32_t)rng_below(rng, N_SEQS);
    uint64_t n = s->kv[i].n_tokens;
    uint8_t *tier = (uint8_t *)check_alloc(n, 1), *before = (uint8_t *)check_alloc(n, 1);
    pimattn_seq seq = s->tiered_item[i].seq;
    for (uint64_t t = 0; t < n; t++)
        tier[t] = (uint8_t)rng_below(rng, s->tiers.n_tiers + 2);
    CHECK_U(pimattn_tier_places(s->tiered, seq, 1, before, n), PIMATTN_OK);
    pimattn_status status = pimattn_tier_move(s->tiered, seq, 1, tier, n);
    CHECK(status == PIMATTN_OK || status == PIMATTN_ERR_PAGES);
    for (uint64_t t = 0; t < n; t++)
        if (tier[t] >= s->tiers.n_tiers || status != PIMATTN_OK) tier[t] = before[t];
    CHECK_U(pimattn_tier_places(s->tiered, seq, 1, before, n), PIMATTN_OK);
    CHECK_BYTES(before, tier, (size_t)n);
    free(tier);
    free(before);
}

/* A scheduler's step on random scores. */
static void swap_some(const scene *s, check_rng *rng)
{
    uint32_t i = (uint32_t)rng_below(rng, N_SEQS);
    uint64_t n = s->kv[i].n_tokens;
    float *score = (float *)check_alloc(n, sizeof(float));
    pimattn_swap swaps[40];
    size_t n_swaps = 0, n_done = 0;
    pimattn_seq seq = s->tiered_item[i].seq;
    for (uint64_t t = 0; t < n; t++)
        score[t] = (float)rng_below(rng, 50);
    CHECK_U(pimattn_tier_score(s->tiered, seq, 1, score, n), PIMATTN_OK);
    CHECK_U(pimattn_tier_propose(s->tiered, seq, 1, swaps, 40, &n_swaps, NULL), PIMATTN_OK);
    CHECK_U(pimattn_tier_commit(s->tiered, seq, 1, swaps, n_swaps, &n_done), PIMATTN_OK);
    CHECK_U(n_done, n_swaps);
    free(score);
}

/* A quarter of the tokens, as their bounds say: the same in tiers as in pages of a tile. */
static void retrieve_some(const scene *s)
{
    enum { WORDS = 20 };
    pimattn_choice choices[2][N_SEQS];
    uint64_t *bits = (uint64_t *)check_alloc(2 * N_SEQS * 2 * WORDS, sizeof(uint64_t));
    for (uint32_t way = 0; way < 2; way++)
        for (uint32_t i = 0; i < N_SEQS; i++) {
            pimattn_choice *c = &choices[way][i];
            const pimattn_choice empty = {bits + (way * N_SEQS + i) * 2 * WORDS, 0, WORDS, 2};
            *c = empty;
            CHECK_U(pimattn_retrieve(way ? s->tiered : s->pages,
                                     way ? s->tiered_item[i].seq : s->item[i].seq, 1, c, NULL, s->q,
                                     4),
                    PIMATTN_OK);
        }
    CHECK_BYTES(bits, bits + N_SEQS * 2 * WORDS, N_SEQS * 2 * WORDS * sizeof *bits);
    float *want = (float *)check_alloc(s->out_floats, sizeof(float));
    attend(s, false, choices[0], want);
    attend(s, true, choices[1], s->out);
    CHECK_BYTES(s->out, want, s->out_floats * sizeof(float));
    free(want);
    free(bits);
}

static void placements(void)
{
    check_rng rng = {11};
    for (uint32_t n_tiers = 1; n_tiers <= PIMATTN_MAX_TIERS; n_tiers++)
        for (int round = 0; round < 3; round++) {
            scene s;
            scene_make(&s, n_tiers, false, true, &rng);
            attend(&s, false, NULL, s.want);
            for (int i = 0; i < 6; i++) {
                attend(&s, true, NULL, s.out);
                if (!CHECK_BYTES(s.out, s.want, s.out_floats * sizeof(float)))
                    printf("  %u tiers, after %d moves\n", n_tiers, i);
                check_places(&s);
                retrieve_some(&s);
                move_some(&s, &rng);
                swap_some(&s, &rng);
                CHECK_U(pimattn_tier_step(s.tiered), PIMATTN_OK);
            }
            scene_free(&s);
        }
}

static void leaves_gathered_from_any_place_give_the_bytes_of_pages(void)
{
    over_kernels(placements);
}

static void partial_bounds(void)
{
    check_rng rng = {12};
    for (uint32_t n_tiers = 1; n_tiers <= PIMATTN_MAX_TIERS; n_tiers += n_tiers < 3 ? 1 : 2)
        for (int round = 0; round < 2; round++) {
            scene s;
            scene_make(&s, n_tiers, true, false, &rng);
            for (int i = 0; i < 3; i++) {
                move_some(&s, &rng);
                attend(&s, true, NULL, s.out);
                size_t row = 0;
                for (uint32_t k = 0; k < N_SEQS; k++)
                    for (uint64_t t = 0; t < s.item[k].n_tokens; t++, row++) {
                        const attn_kv *kv = &s.kv[k];
                        uint64_t n = kv->n_tokens - s.item[k].n_tokens + t + 1;
                        const size_t q_row = 4 * (size_t)kv->shape.head_dim;
                        double exact[16], *scores = (double *)check_alloc(n, sizeof *scores);
                        for (uint32_t h = 0; h < 4; h++) {
                            attn_exact e =
                                exact_head(kv, n, h, s.q + row * q_row + h * kv->shape.head_dim,
                                           exact, scores);
                            double most = 0;
                            for (uint64_t at = 0; at < n * kv->v_row; at++)
                                most = fmax(most, fabs(kv->v_kept[at]));
                            for (uint32_t j = 0; j < 16; j++)
                                CHECK_NEAR(s.out[row * 64 + h * 16 + j], exact[j],
                                           e.bound + 1e-6 * most);
                        }
                        free(scores);
                    }
            }
            scene_free(&s);
        }
}

static void partials_of_bank_groups_keep_the_bound(void)
{
    over_kernels(partial_bounds);
}

/* Windows, sinks, ALiBi, masks and choices of single tokens: as in pages, which keep the bound
 * themselves. */
static void partial_variants(void)
{
    enum { WORDS = 20, HEADS = 4, DIM_V = 16 };
    check_rng rng = {13};
    for (int round = 0; round < 24; round++) {
        uint64_t bits[N_SEQS][2 * WORDS];
        pimattn_choice choices[N_SEQS];
        scene s;
        scene_make(&s, 1 + (uint32_t)rng_below(&rng, 4), true, true, &rng);
        const double slope = s.config.shape.alibi_max_bias > 0 ? 0.25 : 0; /* 2^-(8 / 4) */
        for (uint32_t i = 0; i < N_SEQS; i++) {
            const uint32_t n_kv_heads = 1 + (uint32_t)rng_below(&rng, 2);
            const pimattn_choice c = {bits[i], s.kv[i].n_tokens - s.item[i].n_tokens, WORDS,
                                      n_kv_heads};
            for (uint32_t w = 0; w < 2 * WORDS; w++)
                bits[i][w] = rng_u64(&rng);
            choices[i] = c;
        }
        for (int i = 0; i < 4; i++) {
            move_some(&s, &rng);
            attend(&s, false, i % 2 ? choices : NULL, s.want);
            attend(&s, true, i % 2 ? choices : NULL, s.out);
            size_t row = 0;
            for (uint32_t k = 0; k < N_SEQS; k++) {
                const attn_kv *kv = &s.kv[k];
                double out[DIM_V], *scores = (double *)check_alloc(kv->n_tokens, sizeof *scores);
                double most = 0;
                for (uint64_t at = 0; at < kv->n_tokens * kv->v_row; at++)
                    most = fmax(most, fabs(kv->v_kept[at]));
                for (uint64_t t = 0; t < s.item[k].n_tokens; t++, row++)
                    for (uint32_t h = 0; h < HEADS; h++) {
                        const float *q = s.q + (row * HEADS + h) * kv->shape.head_dim;
                        const attn_exact e = exact_head(kv, kv->n_tokens, h, q, out, scores);
                        const double moved = 2e-7 * slope * (double)kv->n_tokens * most;
                        const size_t at = (row * HEADS + h) * DIM_V;
                        for (size_t j = at; j < at + DIM_V; j++)
                            CHECK_NEAR(s.out[j], s.want[j], 2 * (e.bound + moved) + 1e-6 * most);
                    }
                free(scores);
            }
        }
        scene_free(&s);
    }
}

static void partials_of_variants_are_those_of_pages(void)
{
    over_kernels(partial_variants);
}

/* One sequence of n tokens; n_tiers tiers of 64 slots, the last of 4096; one layer, one head. */
typedef struct plain {
    pimattn_tiers tiers;
    pimattn_config config;
    pimattn_engine *engine;
    pimattn_seq seq;
    attn_kv kv;
    float q[16], out[16];
} plain;

static void plain_make(plain *p, uint32_t n_tiers, uint64_t n_tokens)
{
    check_rng rng = {5};
    memset(p, 0, sizeof *p);
    pimattn_shape shape = shape_of(1, 1, 1, 16, 16);
    p->kv = kv_random(&shape, n_tokens, &rng);
    fill_normal(p->q, 16, 1, &rng);
    p->tiers.n_tiers = n_tiers;
    for (uint32_t i = 0; i < n_tiers; i++) {
        small_device(&p->tiers.tier[i].device, i);
        p->tiers.tier[i].n_devices = 1;
        p->tiers.tier[i].n_tokens = i + 1 < n_tiers ? 64 : 4096;
    }
    p->config = config_of(&shape);
    p->config.tiers = &p->tiers;
}

static void plain_start(plain *p)
{
    p->engine = engine_new(&p->config);
    CHECK_U(pimattn_seq_create(p->engine, &p->seq), PIMATTN_OK);
    CHECK_U(kv_append(p->engine, p->seq, 0, &p->kv, 0, p->kv.n_tokens), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(p->engine, p->seq, 0, p->out, p->q, NULL), PIMATTN_OK);
}

static void plain_free(plain *p)
{
    pimattn_engine_destroy(p->engine);
    kv_free(&p->kv);
}

static pimattn_tier_info info_of(const plain *p, uint32_t tier)
{
    pimattn_tier_info info;
    memset(&info, 0, sizeof info);
    CHECK_U(pimattn_tier_query(p->engine, tier, &info), PIMATTN_OK);
    return info;
}

static void new_tokens_push_what_matters_least(void)
{
    plain p;
    uint8_t tier[300];
    float score[300];
    plain_make(&p, 3, 300);
    plain_start(&p);
    CHECK_U(info_of(&p, 0).n_used, 64);
    CHECK_U(info_of(&p, 1).n_used, 64);
    CHECK_U(info_of(&p, 2).n_used, 172);
    CHECK_U(pimattn_tier_places(p.engine, p.seq, 0, tier, 300), PIMATTN_OK);
    for (uint32_t i = 0; i < 300; i++) /* without scores the newest stay where it is fast */
        CHECK_U(tier[i], i < 172 ? 2 : i < 236 ? 1 : 0);
    for (uint32_t i = 0; i < 300; i++)
        score[i] = i == 240 ? 0.5f : 1.0f;
    CHECK_U(pimattn_tier_score(p.engine, p.seq, 0, score, 300), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, 1), PIMATTN_OK);
    uint8_t after[301];
    CHECK_U(pimattn_tier_places(p.engine, p.seq, 0, after, 301), PIMATTN_OK);
    CHECK_U(after[300], 0);
    CHECK_U(after[240], 1); /* the least of the first tier */
    CHECK_U(after[172], 2); /* the oldest of equals in the second */
    plain_free(&p);
}

/* A tier whose tokens lie in the tiles that a window reaches, but not in the window. */
static void partials_of_what_nobody_sees_do_not_count(void)
{
    plain p;
    uint8_t to[300];
    float out[16];
    plain_make(&p, 4, 300);
    p.tiers.tier[3].n_tokens = 1024;
    p.tiers.partials = true;
    p.config.shape.window = 4;
    plain_start(&p);
    memset(to, 3, 296);
    memset(to + 296, 255, 4);
    CHECK_U(pimattn_tier_move(p.engine, p.seq, 0, to, 300), PIMATTN_OK);
    CHECK_U(pimattn_tier_step(p.engine), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, p.q, NULL), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).n_active, 4);
    CHECK(info_of(&p, 0).n_partials > 0);
    CHECK_U(info_of(&p, 3).n_active, 0);
    CHECK_U(info_of(&p, 3).n_partials, 0);
    plain_free(&p);
}

static void partials_and_tokens_of_each_tier_are_counted(void)
{
    plain p;
    plain_make(&p, 4, 300);
    p.tiers.tier[3].n_tokens = 1024;
    p.tiers.partials = true;
    plain_start(&p);
    CHECK_U(info_of(&p, 0).n_active, 64);
    CHECK_U(info_of(&p, 0).n_partials, info_of(&p, 0).n_groups < 64 ? info_of(&p, 0).n_groups : 64);
    CHECK_U(info_of(&p, 2).n_active, 64);
    CHECK_U(info_of(&p, 3).n_active, 300 - 192);
    pimattn_tier_info busy = info_of(&p, 3);
    CHECK(busy.busiest * busy.n_groups >= busy.n_active);
    uint8_t down[300];
    memset(down, 3, sizeof down); /* all into the last: three are empty */
    CHECK_U(pimattn_tier_move(p.engine, p.seq, 0, down, 300), PIMATTN_OK);
    CHECK_U(pimattn_tier_step(p.engine), PIMATTN_OK);
    CHECK_U(info_of(&p, 3).busiest, 0); /* of this step: nothing yet */
    float out[16];
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, p.q, NULL), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).n_partials, 0);
    CHECK_U(info_of(&p, 0).n_active, 0);
    CHECK_U(info_of(&p, 3).n_active, 300);
    for (uint32_t j = 0; j < 16; j++)
        CHECK_NEAR(out[j], p.out[j], 1e-5);
    plain_free(&p);
}

/* Of two layers: moves wait, or all of the step hides them. */
static void moves_are_in_a_step_once(const pimattn_readings *r, const pimattn_step_reading *step,
                                     double moves_ns, bool wait)
{
    double layers = 2 * (step->attention_ns + step->merge_ns), left = fmax(0, moves_ns - layers);
    CHECK_NEAR(r->step_us * 1e3, layers + (wait ? moves_ns : left), 1e-12 * r->step_us * 1e3);
    CHECK_NEAR(r->layer_ns * 2, r->step_us * 1e3, 1e-12 * r->step_us * 1e3);
    CHECK_NEAR(r->average_mW, r->step_pJ / (r->step_us * 1e3), 1e-12 * r->average_mW);
}

/* .. of this many tokens through the host: less than a layer, more, and more than both. */
static void moves_hide_behind_all_layers(void)
{
    static const uint32_t tokens[3] = {2, 20, 64};
    for (uint32_t i = 0; i < 3; i++) {
        double moves_ns = 0, layers_ns = 0;
        for (uint32_t hide = 0; hide < 2; hide++) {
            plain p;
            pimattn_readings r;
            uint8_t wish[300];
            plain_make(&p, 2, 300);
            p.tiers.moves_wait = !hide;
            p.tiers.host_path = true;
            p.config.shape.n_layers = 2;
            plain_start(&p);
            CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
            memset(wish, 0xff, sizeof wish);
            memset(wish + 300 - tokens[i], 1, tokens[i]);
            CHECK_U(pimattn_tier_move(p.engine, p.seq, 0, wish, 300), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
            const pimattn_step_reading *step = pimattn_tier_readings(p.engine);
            if (!hide) moves_ns = step->moves_ns;
            layers_ns = 2 * (step->attention_ns + step->merge_ns);
            moves_are_in_a_step_once(&r, step, moves_ns, !hide);
            plain_free(&p);
        }
        CHECK((moves_ns > layers_ns / 2) == (i > 0));
        CHECK((moves_ns > layers_ns) == (i > 1));
    }
}

static void a_step_is_its_slowest_tier_and_what_nothing_hides(void)
{
    plain p;
    pimattn_readings r;
    float out[16];
    plain_make(&p, 4, 300);
    p.tiers.moves_wait = true;
    p.config.shape.n_layers = 2;
    plain_start(&p);
    for (int i = 0; i < 3; i++) {
        CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, p.q, &r), PIMATTN_OK);
        const pimattn_step_reading *step = pimattn_tier_readings(p.engine);
        double most = 0, bytes = 0, joules = 0, sum = 0;
        for (uint32_t t = 0; t < 4; t++) {
            joules += step->tiers[t].energy_pJ;
            const pimattn_tier_reading *tier = &step->tiers[t];
            CHECK(tier->ns == tier->local_ns + tier->input_ns + tier->reduce_ns + tier->link_ns);
            CHECK(step->idle_ns[t] == step->attention_ns - tier->ns);
            CHECK(tier->ns > 0);
            most = fmax(most, tier->ns);
            bytes += (double)tier->kv_bytes;
        }
        CHECK(step->attention_ns == most);
        CHECK(step->ns == step->attention_ns + step->merge_ns + step->moves_ns);
        CHECK(i == 0 || (step->moves_ns > 0) == (i == 1)); /* appended; moved; neither */
        CHECK_U(bytes, 300 * 16 * 2 * 2);                  /* 2 bytes an element, K and V */
        moves_are_in_a_step_once(&r, step, step->moves_ns, true);
        CHECK_NEAR(r.host_ns, bytes * 1e3 / pimattn_engine_config(p.engine)->device.host_MBps,
                   1e-12 * r.host_ns);
        CHECK_NEAR(r.speedup, r.host_ns / r.layer_ns, 1e-12 * r.speedup);
        for (uint32_t k = 0; k < PIMHW_N_ENERGY; k++)
            sum += r.energy_pJ[k];
        CHECK(r.step_pJ == sum && r.layer_pJ == sum / r.n_layers);
        CHECK_NEAR(r.layer_pJ, joules, 1e-12 * joules);
        CHECK_U(r.kv_tokens, 300);
        if (i == 0) {
            pimattn_swap swap = {299, 130, 0};
            uint8_t now[300];
            CHECK_U(pimattn_tier_places(p.engine, p.seq, 0, now, 300), PIMATTN_OK);
            while (now[swap.up] != 1)
                swap.up++;
            CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &swap, 1, NULL), PIMATTN_OK);
        }
    }
    plain_free(&p);
}

static void readings_of_tiers_are_of_the_tokens_chosen(void)
{
    plain p;
    uint64_t bits[5] = {0x5555555555555555u, 0, 0, 7, UINT64_MAX};
    pimattn_choice choice = {bits, 300, 0, 1};
    pimattn_readings r;
    float out[16];
    plain_make(&p, 3, 300);
    plain_start(&p);
    pimattn_item item = {p.seq, 1};
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.q = p.q, call.items = &item, call.n_items = 1, call.choices = &choice;
    CHECK_U(pimattn_attend(p.engine, 0, &call, &r), PIMATTN_OK);
    CHECK_U(r.kv_tokens, 32 + 3 + 300 - 256);
    CHECK_U(r.kv_bytes, r.kv_tokens * 16 * 2 * 2);
    plain_free(&p);
}

/* Lets so many transfers through. */
static bool some_fail(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    uint32_t *left = (uint32_t *)user;
    (void)from, (void)to, (void)bytes;
    if (*left == 0) return false;
    (*left)--;
    return true;
}

static bool goes_slower(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    *(uint64_t *)user += bytes;
    return to == from + 1;
}

static void transfers_are_told_where_they_go(void)
{
    uint64_t bytes = 0;
    plain p;
    plain_make(&p, 3, 300);
    p.tiers.transfer = goes_slower;
    p.tiers.transfer_user = &bytes;
    plain_start(&p);
    CHECK_U(bytes, info_of(&p, 0).slower_bytes + info_of(&p, 1).slower_bytes);
    plain_free(&p);
}

/* Of a token whose V is the first of its K, K alone moves. */
static void what_is_in_k_moves_with_it(void)
{
    uint64_t bytes = 0;
    plain p;
    plain_make(&p, 2, 100);
    p.config.shape.v_in_k = true;
    p.tiers.transfer = goes_slower;
    p.tiers.transfer_user = &bytes;
    plain_start(&p);
    CHECK_U(bytes, (100 - 64) * 16 * 2);
    CHECK_U(info_of(&p, 0).slower_bytes, bytes);
    plain_free(&p);
}

static void a_failed_transfer_loses_nothing(void)
{
    uint32_t left = UINT32_MAX;
    plain p;
    plain_make(&p, 3, 300);
    p.tiers.transfer = some_fail;
    p.tiers.transfer_user = &left;
    plain_start(&p);
    for (uint32_t most = 0; most < 40; most++) {
        check_rng rng = {most};
        uint8_t tier[300];
        float out[16], score[300];
        pimattn_swap swaps[300];
        size_t n = 0, done = 0;
        uint64_t tokens;
        for (uint32_t i = 0; i < 300; i++) {
            tier[i] = (uint8_t)rng_below(&rng, 3);
            score[i] = (float)rng_below(&rng, 100);
        }
        left = most;
        pimattn_status status = pimattn_tier_move(p.engine, p.seq, 0, tier, 300);
        CHECK(status == PIMATTN_ERR_DEVICE || status == PIMATTN_ERR_PAGES);
        CHECK_U(pimattn_tier_score(p.engine, p.seq, 0, score, 300), PIMATTN_OK);
        CHECK_U(pimattn_tier_propose(p.engine, p.seq, 0, swaps, 300, &n, NULL), PIMATTN_OK);
        left = most;
        status = pimattn_tier_commit(p.engine, p.seq, 0, swaps, n, &done);
        CHECK_U(status, done < n ? PIMATTN_ERR_DEVICE : PIMATTN_OK);
        CHECK_U(done, n < most / 2 ? n : most / 2);
        left = most % 3;
        status = kv_append(p.engine, p.seq, 0, &p.kv, 0, 20);
        CHECK_U(status, PIMATTN_ERR_DEVICE);
        CHECK_HAS(pimattn_engine_cause(p.engine), "a transfer from tier");
        CHECK_U(pimattn_seq_tokens(p.engine, p.seq, 0, &tokens), PIMATTN_OK);
        CHECK_U(tokens, 300);
        CHECK_U(info_of(&p, 0).n_used + info_of(&p, 1).n_used + info_of(&p, 2).n_used, 300);
        CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, p.q, NULL), PIMATTN_OK);
        CHECK_BYTES(out, p.out, sizeof out);
    }
    plain_free(&p);
}

static void every_allocation_may_fail(void)
{
    for (uint64_t fail_at = 1;; fail_at++) {
        check_heap heap;
        memset(&heap, 0, sizeof heap);
        plain p;
        plain_make(&p, 3, 300);
        pimhw_cause why;
        heap.fail_at = fail_at;
        p.config.allocator = heap_allocator(&heap);
        pimattn_status status = pimattn_engine_create(&p.engine, &p.config, &why);
        uint64_t tokens = 0;
        for (uint64_t at = 0; at < 300 && status == PIMATTN_OK; at += 100) {
            if (at == 0) status = pimattn_seq_create(p.engine, &p.seq);
            if (status == PIMATTN_OK) status = kv_append(p.engine, p.seq, 0, &p.kv, at, 100);
            if (status == PIMATTN_OK) tokens += 100;
        }
        if (status == PIMATTN_OK) {
            float score[300] = {0};
            pimattn_swap swaps[4];
            size_t n;
            CHECK_U(pimattn_tier_score(p.engine, p.seq, 0, score, 300), PIMATTN_OK);
            status = pimattn_tier_propose(p.engine, p.seq, 0, swaps, 4, &n, NULL);
        }
        if (status == PIMATTN_OK) {
            pimattn_readings r;
            uint64_t before = heap.n_calls;
            status = pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r);
            CHECK(heap.n_calls > before);
        }
        bool failed = heap.n_calls >= fail_at;
        CHECK_U(status, failed ? PIMATTN_ERR_MEMORY : PIMATTN_OK);
        if (p.engine && p.seq) {
            uint64_t has = 0;
            CHECK_U(pimattn_seq_tokens(p.engine, p.seq, 0, &has), PIMATTN_OK);
            CHECK_U(has, tokens);
            CHECK_U(info_of(&p, 0).n_used + info_of(&p, 1).n_used + info_of(&p, 2).n_used, tokens);
        }
        plain_free(&p);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
        if (!failed) break;
    }
}

static void bad_config(const pimattn_config *c, const char *words)
{
    pimhw_cause why = {""};
    CHECK_U(pimattn_config_check(c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, words);
}

static void bad_tiers_are_named(void)
{
    plain p;
    plain_make(&p, 3, 10);
    const pimattn_tiers fine = p.tiers;
    p.tiers.n_tiers = 0;
    bad_config(&p.config, "tiers.n_tiers");
    p.tiers.n_tiers = 9;
    bad_config(&p.config, "tiers.n_tiers");
    p.tiers = fine;
    p.tiers.tier[1].n_tokens = 0;
    bad_config(&p.config, "tier[1]: n_tokens");
    p.tiers.tier[1].n_tokens = UINT64_C(1) << 32;
    bad_config(&p.config, "tier[1]: n_tokens");
    p.tiers = fine;
    p.tiers.tier[2].n_devices = 0;
    bad_config(&p.config, "tier[2]: n_devices");
    p.tiers = fine;
    p.tiers.tier[1].device.tCK_ps = 0;
    bad_config(&p.config, "tier[1]: tCK_ps"); /* not config.device's */
    const float lambdas[] = {-0.1f, 1.5f, (float)NAN};
    for (int i = 0; i < 3; i++) {
        p.tiers = fine;
        p.tiers.lambda = lambdas[i];
        bad_config(&p.config, "lambda");
    }
    const double ratios[] = {0, -1, (double)NAN, HUGE_VAL};
    const char *const names[] = {"ratio[0]", "ratio[1]", "ratio[2]"};
    for (int i = 0; i < 4; i++)
        for (uint32_t at = 0; at < 3; at++) {
            p.tiers = fine;
            for (uint32_t k = 0; k < 3; k++)
                p.tiers.ratio[k] = k == at ? ratios[i] : 1;
            bad_config(&p.config, names[at]);
        }
    p.tiers = fine;
    p.config.page_tokens = 128;
    bad_config(&p.config, "page_tokens");
    p.config.page_tokens = 0;
    p.config.way = PIMATTN_DEVICE;
    bad_config(&p.config, "way");
    plain_free(&p);
}

static void too_few_slots_are_a_status(void)
{
    plain p;
    plain_make(&p, 2, 300);
    p.tiers.tier[1].n_tokens = 100;
    p.engine = engine_new(&p.config);
    CHECK_U(pimattn_seq_create(p.engine, &p.seq), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, 165), PIMATTN_ERR_PAGES);
    CHECK_HAS(pimattn_engine_cause(p.engine), "room for 164");
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, 164), PIMATTN_OK);
    pimattn_seq other;
    CHECK_U(pimattn_seq_create(p.engine, &other), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, other, 0, &p.kv, 0, 1), PIMATTN_ERR_PAGES);
    CHECK_U(pimattn_seq_truncate(p.engine, p.seq, 100), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, other, 0, &p.kv, 0, 64), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(p.engine, p.seq), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).n_used + info_of(&p, 1).n_used, 64);
    p.config.reserve_tokens = 165; /* static: asks for all at once */
    pimattn_engine *fixed = engine_new(&p.config);
    CHECK_U(pimattn_seq_create(fixed, &other), PIMATTN_ERR_PAGES);
    pimattn_engine_destroy(fixed);
    plain_free(&p);
}

/* Rows of 16 heads are stored at once: those of the others go behind them. */
static void many_heads_share_a_slot(void)
{
    enum { HEADS = 20, TOKENS = 5 };
    pimattn_shape shape = shape_of(1, HEADS, HEADS, 16, 0);
    check_rng rng = {8};
    attn_kv kv = kv_random(&shape, TOKENS, &rng);
    float q[HEADS * 16], out[2][HEADS * 16];
    plain p;
    plain_make(&p, 2, 1);
    fill_normal(q, HEADS * 16, 1, &rng);
    p.config.shape = shape;
    for (int i = 0; i < 2; i++) {
        if (i) p.config.tiers = NULL;
        pimattn_engine *e = engine_new(&p.config);
        pimattn_seq seq = 0;
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 0, &kv, 0, TOKENS), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out[i], q, NULL), PIMATTN_OK);
        pimattn_engine_destroy(e);
    }
    CHECK_BYTES(out[0], out[1], sizeof out[0]);
    kv_free(&kv);
    plain_free(&p);
}

/* A token takes a slot in every layer, whatever its heads: said before any token makes room. */
static void slots_are_of_all_layers(void)
{
    plain p;
    plain_make(&p, 2, 300);
    p.tiers.tier[1].n_tokens = 100;
    p.config.shape = shape_of(2, 2, 2, 16, 16);
    p.engine = engine_new(&p.config);
    CHECK_U(pimattn_seq_create(p.engine, &p.seq), PIMATTN_OK);
    CHECK_U(pimattn_append(p.engine, p.seq, 0, p.kv.k, p.kv.v, 83, 0, 0), PIMATTN_ERR_PAGES);
    CHECK_HAS(pimattn_engine_cause(p.engine), "room for 82");
    CHECK_U(info_of(&p, 0).n_slower, 0);
    CHECK_U(pimattn_append(p.engine, p.seq, 0, p.kv.k, p.kv.v, 82, 0, 0), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).n_used + info_of(&p, 1).n_used, 164);
    pimattn_readings r;
    float q[2 * 16] = {1}, out[2 * 16];
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, q, &r), PIMATTN_OK);
    CHECK(r.layer_ns > 0); /* and a step is all layers, one as the other */
    CHECK_NEAR(r.step_us, 2 * r.layer_ns / 1e3, 1e-9 * r.step_us);
    plain_free(&p);
}

static void calls_with_bad_input_change_nothing(void)
{
    plain p;
    float score[100] = {0};
    uint8_t tier[100] = {0};
    pimattn_swap swaps[2] = {{0, 1, 0}, {0, 1, 0}};
    size_t n = 0;
    plain_make(&p, 3, 100);
    plain_start(&p);
    pimattn_engine *e = p.engine;
    CHECK_U(pimattn_tier_score(e, p.seq, 1, score, 100), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_score(e, p.seq, 0, score, 99), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_score(e, p.seq, 0, NULL, 100), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_score(e, 12345, 0, score, 100), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_tier_score(NULL, p.seq, 0, score, 100), PIMATTN_ERR_ARGUMENT);
    score[50] = (float)NAN;
    CHECK_U(pimattn_tier_score(e, p.seq, 0, score, 100), PIMATTN_ERR_ARGUMENT);
    score[50] = -1;
    CHECK_U(pimattn_tier_score(e, p.seq, 0, score, 100), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_propose(e, p.seq, 0, NULL, 2, &n, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_propose(e, p.seq, 0, swaps, 2, NULL, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_commit(e, p.seq, 0, swaps, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "swap 0");
    swaps[0].down = 99;
    swaps[0].up = 0; /* in the second tier: right; and again: wrong by then */
    swaps[1] = swaps[0];
    n = 9;
    CHECK_U(pimattn_tier_commit(e, p.seq, 0, swaps, 2, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(e), "swap 1");
    CHECK_U(n, 0);
    swaps[0].tier = 2;
    CHECK_U(pimattn_tier_commit(e, p.seq, 0, swaps, 1, &n), PIMATTN_ERR_ARGUMENT);
    swaps[0].up = 100;
    CHECK_U(pimattn_tier_commit(e, p.seq, 0, swaps, 1, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_move(e, p.seq, 0, tier, 100), PIMATTN_ERR_PAGES);
    CHECK_U(pimattn_tier_move(e, p.seq, 0, NULL, 100), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_places(e, p.seq, 0, NULL, 100), PIMATTN_ERR_ARGUMENT);
    pimattn_seq child;
    CHECK_U(pimattn_seq_fork(e, &child, p.seq), PIMATTN_ERR_DEVICE);
    CHECK_U(pimattn_seq_keep(e, p.seq, 1, 100), PIMATTN_ERR_DEVICE);
    CHECK_U(pimattn_seq_accept(e, p.seq, 0, NULL, 0), PIMATTN_ERR_DEVICE);
    CHECK_U(pimattn_seq_keep(e, p.seq, 0, 100), PIMATTN_OK); /* all of it: a truncation */
    float out[16];
    CHECK_U(pimattn_attend_one(e, p.seq, 0, out, p.q, NULL), PIMATTN_OK);
    CHECK_BYTES(out, p.out, sizeof out);
    CHECK_U(pimattn_seq_free(e, p.seq), PIMATTN_OK); /* while a list is open */
    CHECK_U(pimattn_tier_commit(e, p.seq, 0, swaps, 1, &n), PIMATTN_ERR_SEQ);
    plain_free(&p);
}

/* Scores ln w of tokens with one value each. */
static pimattn_partial partial_of(float *o, const double *weights, const double *values, int n)
{
    pimattn_partial all = {0, 0, o, 1};
    pimattn_partial_clear(&all);
    for (int i = 0; i < n; i++) {
        float v = (float)values[i];
        pimattn_partial one = {(float)log(weights[i]), 1, &v, 1};
        CHECK_U(pimattn_partial_merge(&all, &one), PIMATTN_OK);
    }
    return all;
}

static void check_partial(const pimattn_partial *p, double weight, double l, double o)
{
    CHECK_NEAR(p->m, log(weight), 1e-6);
    CHECK_NEAR(p->l, l, 1e-6);
    CHECK_NEAR(p->o[0], o, 4e-6);
}

/* So many tokens of 128 bytes from one tier to another. */
static double way_ns(const plain *p, uint32_t from, uint32_t to, uint64_t n)
{
    pimattn_relayout how;
    pimattn_relayout_reading r;
    const pimattn_tier *tier = p->tiers.tier;
    memset(&how, 0, sizeof how);
    how.by_host = p->tiers.host_path;
    CHECK_U(pimattn_relayout_time(&r, &tier[from], &tier[to], &how, 64 * n, n, NULL), PIMATTN_OK);
    return r.ns;
}

/* What moves, pushed out by a new token or sent over tiers in between, takes the time of each of
 * its ways, once: the next reading has none of it. Writing flash is not reading it. */
static void moves_take_the_time_of_their_ways(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        plain p;
        uint8_t wish[66];
        plain_make(&p, 3, 66);
        CHECK_U(pimhw_config_init(&p.tiers.tier[1].device, "pam-ssd", NULL), PIMHW_OK);
        p.tiers.moves_wait = true;
        p.tiers.host_path = i > 0;
        plain_start(&p);
        CHECK(way_ns(&p, 0, 1, 1) > way_ns(&p, 1, 0, 1));
        memset(wish, 0xff, sizeof wish);
        wish[65] = 2; /* the newest, which is in the fastest */
        const double want[4] = {way_ns(&p, 0, 1, 2), 0, way_ns(&p, 0, 1, 1) + way_ns(&p, 1, 2, 1),
                                0};
        for (uint32_t k = 0; k < 4; k++) {
            pimattn_readings r;
            if (k == 2) CHECK_U(pimattn_tier_move(p.engine, p.seq, 0, wish, 66), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
            CHECK_NEAR(pimattn_tier_readings(p.engine)->moves_ns, want[k], 1e-9 * want[k]);
        }
        plain_free(&p);
    }
}

/* The load of an engine is that of its places: tokens take bank groups in turn, those of the first
 * device first; more than one each, or none in the second device. */
static void loads_are_those_of_the_places(void)
{
    for (uint64_t n = 1; n < 150; n += 7) {
        plain p;
        pimattn_readings r;
        pimattn_tier_reading want;
        plain_make(&p, 1, n);
        p.tiers.tier[0].n_devices = 2;
        plain_start(&p);
        CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
        const pimhw_config *hbm = &p.tiers.tier[0].device;
        uint64_t half = (uint64_t)hbm->n_channels * hbm->n_bank_groups, block = 0;
        pimattn_tier_load load;
        memset(&load, 0, sizeof load);
        load.blocks = &block, load.n_blocks = 1;
        load.n_queries = 1;
        load.tokens = n;
        load.groups = n < 2 * half ? n : 2 * half;
        load.device_groups = n < half ? n : half;
        load.device_blocks = 1;
        load.device_outputs = n > half ? 2 : 1;
        for (uint64_t i = 0; i < n; i++) {
            load.device_tokens += i % (2 * half) < half;
            block += i % (2 * half) == 0;
        }
        CHECK_U(pimattn_tier_time(&want, &p.tiers.tier[0], &p.config.shape, &load, NULL),
                PIMATTN_OK);
        CHECK_BYTES(&pimattn_tier_readings(p.engine)->tiers[0], &want, sizeof want);
        plain_free(&p);
    }
}

/* 256 tokens in a page, whatever the host keeps them as: those of a channel lie together and are
 * read once in a call. */
static void pages_of_flash_are_read_once(void)
{
    for (uint32_t i = 0; i < 2 * PIMATTN_N_TYPE; i++) {
        plain p;
        pimattn_readings r;
        plain_make(&p, 2, 64 + 513);
        p.config.shape.k_type = p.config.shape.v_type = i / 2;
        CHECK_U(pimhw_config_init(&p.tiers.tier[1].device, "pam-ssd", NULL), PIMHW_OK);
        p.tiers.tier[1].device.n_channels = 2;
        plain_start(&p);
        for (uint32_t k = 0; k <= i % 2; k++)
            CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
        const pimattn_tier_reading *t = &pimattn_tier_readings(p.engine)->tiers[1];
        const pimhw_config *ssd = &p.tiers.tier[1].device;
        CHECK_U(t->read_bytes, 3 * 16384); /* 257 tokens on one channel, 256 on the other */
        CHECK_NEAR(t->program_ns, (double)pimhw_flash_read_ps(ssd, 2) / 1e3, 1e-6);
        plain_free(&p);
    }
}

/* A token of two pages is as many. */
static void tokens_may_be_longer_than_pages_of_flash(void)
{
    plain p;
    check_rng rng = {5};
    pimattn_readings r;
    float q[256], out[256];
    plain_make(&p, 2, 64);
    kv_free(&p.kv);
    pimattn_shape shape = shape_of(1, 1, 1, 256, 256);
    p.kv = kv_random(&shape, 64 + 10, &rng);
    p.config.shape = shape;
    fill_normal(q, 256, 1, &rng);
    CHECK_U(pimhw_config_init(&p.tiers.tier[1].device, "pam-ssd", NULL), PIMHW_OK);
    p.tiers.tier[1].device.flash_page_bytes = 512;
    p.engine = engine_new(&p.config);
    CHECK_U(pimattn_seq_create(p.engine, &p.seq), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, p.kv.n_tokens), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, q, &r), PIMATTN_OK);
    CHECK_U(pimattn_tier_readings(p.engine)->tiers[1].read_bytes, 10 * 2 * 512);
    plain_free(&p);
}

/* Ratios not given: 1 for the slowest and 56 among the others as their bandwidth is. 40 stacks of
 * HBM at 1.6 TB/s, capped, beside 40 modules of DDR at 0.204, or drives of 8 channels, each of 4
 * dies of 16 KB in 30 us: 444 : 57 : 1 in those of PAM. aimx has no cap: 16 banks of 2 channels
 * take 32 bytes each tCCD of 2 clocks of 500 ps. */
static void ratios_not_given_are_as_the_bandwidths(void)
{
    static const double TB_s[4] = {1.6, 0.204, 2 * 16 * 32 / 1000.0, 8 * 4 * 16384 / 30e6};
    static const uint32_t n_devices[4] = {40, 40, 3, 8};
    static const uint32_t orders[3][3] = {{0, 1, 3}, {0, 3, 1}, {2, 0, 1}};
    for (int k = 0; k < 3; k++) {
        plain p;
        double sum = 0;
        plain_make(&p, 3, 1);
        for (int i = 0; i < 3; i++) {
            uint32_t kind = orders[k][i];
            CHECK_U(pimhw_config_init(&p.tiers.tier[i].device, kinds[kind], NULL), PIMHW_OK);
            if (kind == 2) p.tiers.tier[i].device.n_channels = 2;
            p.tiers.tier[i].n_devices = n_devices[kind];
            if (i < 2) sum += TB_s[kind] * n_devices[kind];
        }
        plain_start(&p);
        const double *ratio = pimattn_engine_config(p.engine)->tiers->ratio;
        for (int i = 0; i < 2; i++) {
            uint32_t kind = orders[k][i];
            CHECK_NEAR(ratio[i], 56 * TB_s[kind] * n_devices[kind] / sum, 1e-12 * 56);
        }
        CHECK(ratio[2] == 1);
        CHECK(pimattn_engine_config(p.engine)->tiers->lambda == 0.6f);
        pimattn_engine_destroy(p.engine);
        kv_free(&p.kv);
    }
}

/* PAM's Algorithm 1 as printed divides by a logarithm: 8.0939 for the first of these. */
static void merges_of_tiers_divide_by_the_sum(void)
{
    float o[3], out;
    pimattn_partial a = partial_of(&o[0], (double[]){1, 2}, (double[]){3, 6}, 2);
    pimattn_partial b = partial_of(&o[1], (double[]){4}, (double[]){12}, 1);
    check_partial(&a, 2, 1.5, 7.5);
    CHECK_U(pimattn_partial_merge(&a, &b), PIMATTN_OK);
    check_partial(&a, 4, 1.75, 15.75);
    pimattn_partial_output(&a, &out);
    CHECK_NEAR(out, 9, 1e-5);
    CHECK_NEAR(pimattn_partial_lse(&a), 1.945910149, 1e-6);
    pimattn_partial h = partial_of(&o[0], (double[]){8}, (double[]){1}, 1);
    pimattn_partial d = partial_of(&o[1], (double[]){4, 2}, (double[]){5, 7}, 2);
    pimattn_partial s = partial_of(&o[2], (double[]){2}, (double[]){12}, 1);
    check_partial(&d, 4, 1.5, 8.5);
    CHECK_U(pimattn_partial_merge(&h, &d), PIMATTN_OK);
    CHECK_U(pimattn_partial_merge(&h, &s), PIMATTN_OK);
    check_partial(&h, 8, 2, 8.25);
    pimattn_partial_output(&h, &out);
    CHECK_NEAR(out, 4.125, 1e-6);
    CHECK_NEAR(pimattn_partial_lse(&h), log(16), 1e-6);
    const float before[3] = {h.m, h.l, h.o[0]};
    float none = 0;
    pimattn_partial empty = {0, 0, &none, 1};
    pimattn_partial_clear(&empty);
    CHECK_U(pimattn_partial_merge(&h, &empty), PIMATTN_OK);
    CHECK(h.m == before[0] && h.l == before[1] && h.o[0] == before[2]);
    CHECK_U(pimattn_partial_merge(&empty, &h), PIMATTN_OK);
    CHECK(empty.m == before[0] && empty.l == before[1] && none == before[2]);
    for (int i = 0; i < 3; i++) {
        pimattn_partial_clear(&empty);
        pimattn_partial other = {0, 0, &o[1], 1};
        pimattn_partial_clear(&other);
        CHECK_U(pimattn_partial_merge(&empty, &other), PIMATTN_OK);
        pimattn_partial_output(&empty, &out);
        CHECK(out == 0 && pimattn_partial_lse(&empty) == -HUGE_VALF);
    }
}

/* Tries to swap in the middle of an attend. */
static plain *inside;

static void swap_inside(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    pimattn_swap swap = {99, 0, 0};
    (void)user;
    CHECK_U(pimattn_tier_commit(inside->engine, inside->seq, 0, &swap, 1, NULL),
            PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(pimattn_engine_cause(inside->engine), "under way");
    for (size_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

static void no_swap_during_an_attend(void)
{
    plain p;
    float out[16];
    plain_make(&p, 3, 1200);
    p.config.parallel_for = swap_inside;
    p.config.max_workers = 2;
    inside = &p;
    plain_start(&p);
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, out, p.q, NULL), PIMATTN_OK);
    CHECK_BYTES(out, p.out, sizeof out);
    plain_free(&p);
}

/* A reading that fails leaves moves to be paid for, and what is active, as they were. */
static void a_failed_reading_changes_nothing(void)
{
    plain p;
    check_heap heap = {0};
    pimattn_readings r;
    plain_make(&p, 3, 300);
    p.tiers.moves_wait = true;
    p.config.allocator = heap_allocator(&heap);
    p.engine = engine_new(&p.config);
    CHECK_U(pimattn_seq_create(p.engine, &p.seq), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, 300), PIMATTN_OK);
    heap.fail_at = heap.n_calls + 1;
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_ERR_MEMORY);
    CHECK_U(info_of(&p, 0).n_active + info_of(&p, 2).n_active, 0);
    CHECK(p.out[0] == 0);
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, &r), PIMATTN_OK);
    CHECK(pimattn_tier_readings(p.engine)->moves_ns > 0);
    CHECK_U(info_of(&p, 2).n_active, 172);
    plain_free(&p);
    CHECK_U(heap.n_live, 0);
}

/* Slots that stay reserved after a truncation hold nothing of the tokens that were there. */
static void reserved_slots_forget_their_tokens(void)
{
    plain p;
    float score[100] = {0};
    pimattn_swap swaps[50];
    size_t n = 99;
    plain_make(&p, 2, 100);
    p.tiers.tier[0].n_tokens = 20;
    p.config.reserve_tokens = 100;
    plain_start(&p);
    score[49] = 1; /* the rest could go for it */
    CHECK_U(pimattn_tier_score(p.engine, p.seq, 0, score, 100), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(p.engine, p.seq, 10), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).n_used + info_of(&p, 1).n_used, 100);
    CHECK_U(pimattn_tier_propose(p.engine, p.seq, 0, swaps, 50, &n, NULL), PIMATTN_OK);
    CHECK_U(n, 0);
    pimattn_swap swap = {0, 0, 0}; /* of two reserved ones */
    uint8_t tier[100];
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 10, 90), PIMATTN_OK);
    CHECK_U(pimattn_tier_places(p.engine, p.seq, 0, tier, 100), PIMATTN_OK);
    while (tier[swap.down] != 0)
        swap.down++;
    while (tier[swap.up] != 1)
        swap.up++;
    CHECK_U(pimattn_seq_truncate(p.engine, p.seq, 0), PIMATTN_OK);
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &swap, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, NULL, 0, &n), PIMATTN_OK);
    /* what they were active for leaves the bank groups with them */
    CHECK_U(pimattn_tier_step(p.engine), PIMATTN_OK);
    CHECK_U(info_of(&p, 1).busiest, 0);
    CHECK_U(kv_append(p.engine, p.seq, 0, &p.kv, 0, 100), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, NULL), PIMATTN_OK);
    CHECK(info_of(&p, 1).busiest > 0);
    CHECK_U(pimattn_seq_truncate(p.engine, p.seq, 0), PIMATTN_OK);
    CHECK_U(info_of(&p, 1).busiest, 0);
    plain_free(&p);
}

/* Neither of the two may be a slot that is reserved alone. */
static void swaps_are_of_tokens_that_are_there(void)
{
    plain p;
    uint8_t wish[100];
    plain_make(&p, 2, 100);
    p.tiers.tier[0].n_tokens = 20;
    p.config.reserve_tokens = 100;
    plain_start(&p);
    memset(wish, 9, sizeof wish);
    wish[0] = 0;
    wish[99] = 1;
    CHECK_U(pimattn_tier_move(p.engine, p.seq, 0, wish, 100), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(p.engine, p.seq, 50), PIMATTN_OK);
    const pimattn_swap up = {0, 99, 0}, down = {98, 1, 0}, fine = {0, 1, 0};
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &up, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &down, 1, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &fine, 1, NULL), PIMATTN_OK);
    plain_free(&p);
}

/* All blocks count with the queries of the item that has most, wherever that stands. */
static void the_order_of_items_hardly_counts(void)
{
    plain p;
    pimattn_readings r[2];
    pimattn_seq other;
    float q[4 * 16] = {1}, out[4 * 16];
    plain_make(&p, 2, 100);
    plain_start(&p);
    CHECK_U(pimattn_seq_create(p.engine, &other), PIMATTN_OK);
    CHECK_U(kv_append(p.engine, other, 0, &p.kv, 0, 100), PIMATTN_OK);
    const pimattn_item items[3] = {{p.seq, 1}, {other, 3}, {p.seq, 1}};
    for (int i = 0; i < 2; i++) {
        pimattn_call call = {.out = out, .q = q, .items = &items[i], .n_items = 2};
        CHECK_U(pimattn_attend(p.engine, 0, &call, &r[i]), PIMATTN_OK);
        for (uint32_t k = 0; i == 0 && k < 2; k++) /* what moved is paid for */
            CHECK_U(pimattn_attend(p.engine, 0, &call, &r[i]), PIMATTN_OK);
    }
    CHECK_NEAR(r[0].layer_ns, r[1].layer_ns, 0.01 * r[1].layer_ns);
    CHECK(r[0].layer_ns > 0);
    const pimattn_step_reading *step = pimattn_tier_readings(p.engine);
    CHECK_U(step->slowest, 1);
    CHECK(step->tiers[0].device.cycles != step->tiers[1].device.cycles);
    CHECK_U(r[1].device.cycles, step->tiers[1].device.cycles);
    plain_free(&p);
}

/* One token of one bank group takes part, whichever that is; and a step's counts end with it. */
static void counts_are_of_the_step_that_runs(void)
{
    plain p;
    uint64_t bits[2] = {0};
    plain_make(&p, 2, 100);
    plain_start(&p);
    CHECK(info_of(&p, 0).n_groups > 1);
    CHECK_U(info_of(&p, 0).n_slower, 100 - 64);
    CHECK_U(info_of(&p, 0).slower_bytes, (100 - 64) * (16 + 16) * 2); /* elements of 2 bytes */
    CHECK_U(info_of(&p, 0).n_faster + info_of(&p, 0).faster_bytes, 0);
    CHECK_U(info_of(&p, 1).n_faster + info_of(&p, 1).n_slower, 0);
    for (uint32_t t = 97; t < 100; t++) { /* the newest are in the first tier */
        const pimattn_choice choice = {bits, 100, 0, 1};
        const pimattn_item item = {p.seq, 1};
        pimattn_call call = {.out = p.out, .q = p.q, .items = &item, .n_items = 1};
        CHECK_U(pimattn_tier_step(p.engine), PIMATTN_OK);
        CHECK_U(info_of(&p, 0).n_slower + info_of(&p, 0).busiest, 0);
        bits[1] = (uint64_t)1 << (t - 64);
        call.choices = &choice;
        CHECK_U(pimattn_attend(p.engine, 0, &call, NULL), PIMATTN_OK);
        CHECK_U(info_of(&p, 0).n_active, 1);
        CHECK_U(info_of(&p, 0).busiest, 1);
    }
    /* what moves later brings that it took part to the step before, and 1 to the one that runs */
    const pimattn_swap swap = {99, 0, 0};
    CHECK_U(pimattn_attend_one(p.engine, p.seq, 0, p.out, p.q, NULL), PIMATTN_OK);
    CHECK_U(pimattn_tier_step(p.engine), PIMATTN_OK);
    CHECK_U(pimattn_tier_commit(p.engine, p.seq, 0, &swap, 1, NULL), PIMATTN_OK);
    CHECK_U(info_of(&p, 0).busiest, 1);
    CHECK_U(info_of(&p, 1).busiest, 1);
    plain_free(&p);
}

/* Slots are what a caller who admits sequences counts. */
static void queries_count_slots(void)
{
    plain p;
    pimattn_cache_info cache;
    pimattn_seq_info seq;
    plain_make(&p, 2, 100);
    plain_start(&p);
    CHECK_U(pimattn_cache_query(p.engine, &cache), PIMATTN_OK);
    CHECK_U(cache.pages_total, 64 + 4096);
    CHECK_U(cache.pages_used, 100);
    CHECK_U(cache.pages_free, 64 + 4096 - 100);
    CHECK_U(cache.pages_shared, 0);
    CHECK_U(info_of(&p, 0).n_tokens, 64);
    CHECK_U(info_of(&p, 1).n_tokens, 4096);
    CHECK_U(cache.memory_bytes, (64 + 4096) * info_of(&p, 0).slot_bytes);
    CHECK_U(pimattn_seq_query(p.engine, p.seq, &seq), PIMATTN_OK);
    CHECK_U(seq.pages, 100);
    CHECK_U(seq.bytes, 100 * info_of(&p, 0).slot_bytes);
    CHECK_U(pimattn_pages_total(p.engine), cache.pages_total);
    p.tiers.partials = true; /* partials have numbers of 20 bits in a tier */
    CHECK_U(pimhw_config_init(&p.tiers.tier[0].device, "pam-hbm3", NULL), PIMHW_OK);
    p.tiers.tier[0].n_devices = 65536;
    p.tiers.tier[0].n_tokens = (1u << 20) + 1;
    bad_config(&p.config, "tier[0]: bank groups");
    p.tiers.tier[0].n_tokens = 1u << 20;
    p.config.scratch_bytes = 1u << 30;
    CHECK_U(pimattn_config_check(&p.config, NULL), PIMATTN_OK);
    plain_free(&p);
}

int main(void)
{
    RUN(leaves_gathered_from_any_place_give_the_bytes_of_pages);
    RUN(partials_of_bank_groups_keep_the_bound);
    RUN(partials_of_variants_are_those_of_pages);
    RUN(new_tokens_push_what_matters_least);
    RUN(partials_of_what_nobody_sees_do_not_count);
    RUN(partials_and_tokens_of_each_tier_are_counted);
    RUN(a_step_is_its_slowest_tier_and_what_nothing_hides);
    RUN(moves_hide_behind_all_layers);
    RUN(readings_of_tiers_are_of_the_tokens_chosen);
    RUN(transfers_are_told_where_they_go);
    RUN(what_is_in_k_moves_with_it);
    RUN(a_failed_transfer_loses_nothing);
    RUN(every_allocation_may_fail);
    RUN(bad_tiers_are_named);
    RUN(too_few_slots_are_a_status);
    RUN(many_heads_share_a_slot);
    RUN(slots_are_of_all_layers);
    RUN(calls_with_bad_input_change_nothing);
    RUN(merges_of_tiers_divide_by_the_sum);
    RUN(moves_take_the_time_of_their_ways);
    RUN(loads_are_those_of_the_places);
    RUN(pages_of_flash_are_read_once);
    RUN(tokens_may_be_longer_than_pages_of_flash);
    RUN(ratios_not_given_are_as_the_bandwidths);
    RUN(no_swap_during_an_attend);
    RUN(a_failed_reading_changes_nothing);
    RUN(reserved_slots_forget_their_tokens);
    RUN(swaps_are_of_tokens_that_are_there);
    RUN(the_order_of_items_hardly_counts);
    RUN(counts_are_of_the_step_that_runs);
    RUN(queries_count_slots);
    return check_end();
}
