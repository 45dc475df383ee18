/* Attention computed by the modelled units, against float64 and against the same arithmetic
 * written out by hand.
 *
 * The bound. Rounding is half a unit in the last place of what is kept: u = 2^-24 (f32),
 * U = 2^-11 (f16 lanes) or 2^-8 (bf16), N half the least subnormal of a lane; n roundings in a row
 * are within g(n) = n u / (1 - n u). q, k, v are the lanes' own numbers, products of two are exact
 * in f32. For one query and head, over the tokens i that it sees:
 *
 *   score     S_i = sum of q k: log2(lanes) additions in the tree, one a column but the first:
 *             off by r = g(log2(lanes) + columns - 1) sum |q k|; read in 16 bits: and by
 *             max(U |S|, N); times scale in f32: s_i is off by c_i = |scale| r + u |scale S|
 *   p_i       exp(s_i - m), m the maximum as the device has it (a factor of all p and of l, so
 *             which m it is changes nothing): exp to 2e-7, its argument off by c_i + u |s_i - m|;
 *             then 2^-n of it to a lane: max(U p, N 2^n). Together e_i. n is 0, but if sums are
 *             read in 16 bits the least with which what the units have of sum p is within 255
 *   l         sum of the rounded p in f32: g(n), n the additions (512 a leaf and the leaves)
 *   sums      of one bank, over the tokens R that it has between two reads: products exact,
 *             g(log2(lanes) + columns - 1) sum |p v|; read in 16 bits: max(U |S_R|, N 2^n) each;
 *             in f32 the hub adds reads and channel groups: g(reads) sum |S_R|
 *   out       o / l, once rounded
 *
 * With w = sum p v / sum p exact, sum p (v - w) is 0, so of e_i only sum e_i |v_i - w| / sum p is
 * left. All terms but products of two errors are added, those by the factor 1.01. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "device.h"

enum { MOST_READS = 600, LEAF = 512 };

static const double U32 = 0x1p-24;

static double several(double n)
{
    return n * U32 / (1 - n * U32);
}

/* Where values lie, as the specification has it; whether sums stay, as the plan says. */
typedef struct layout {
    uint32_t lanes, banks, k_columns, groups, row_columns, n_rows;
    bool hold;
} layout;

static layout layout_of(const device_case *d, uint64_t tokens)
{
    const pimattn_config *c = &d->config;
    const pimhw_config *hw = &c->device;
    pimattn_plan plan;
    uint64_t most = 0;
    for (size_t i = 0; i < d->n_items; i++)
        most = d->items[i].n_tokens > most ? d->items[i].n_tokens : most;
    bool single = c->partition == PIMATTN_HFP && c->hfp_unit == PIMATTN_BY_QUERY_HEAD;
    uint64_t queries = most * (single ? 1 : c->shape.n_heads / c->shape.n_kv_heads);
    CHECK_U(pimattn_plan_init(&plan, &c->shape, hw, c->partition, c->hfp_unit, c->row_reuse_off,
                              queries, NULL),
            PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&plan, c->v_mapping, NULL), PIMATTN_OK);
    layout at = {.lanes = hw->column_bytes / 2, .banks = hw->n_bank_groups * hw->n_group_banks};
    uint32_t dv = shape_dv(&c->shape), columns = hw->row_bytes / hw->column_bytes;
    uint32_t channels = c->partition == PIMATTN_TCP ? hw->n_channels : 1;
    uint32_t blocks = (dv + at.banks - 1) / at.banks;
    at.k_columns = (c->shape.head_dim + at.lanes - 1) / at.lanes;
    at.groups = blocks <= channels ? channels / blocks : 1;
    if (plan.v_mapping != PIMATTN_V_A) at.groups = channels;
    at.row_columns = plan.v_mapping == PIMATTN_V_K ? columns / blocks : columns;
    uint64_t in_all = (tokens + at.lanes - 1) / at.lanes;
    uint64_t of_group = (in_all + at.groups - 1) / at.groups;
    at.n_rows = (uint32_t)((of_group + at.row_columns - 1) / at.row_columns);
    at.hold = plan.v_hold;
    if (at.hold) at.n_rows = 1;
    CHECK(at.n_rows * at.groups <= MOST_READS);
    return at;
}

/* The read that token t is in: group * n_rows + row. */
static uint32_t read_of(const layout *at, uint64_t t)
{
    uint64_t column = t / at->lanes, j = column / at->groups;
    uint32_t row = at->hold ? 0 : (uint32_t)(j / at->row_columns);
    return (uint32_t)(column % at->groups) * at->n_rows + row;
}

/* One query head of a batch. */
typedef struct head {
    const device_case *d;
    const attn_kv *kv;
    layout at;
    uint64_t seen, tokens;
    uint32_t kv_head;
    float scale;
    double q[DEVICE_DIMS]; /* in lanes */
    size_t row;            /* of lse and partials */
} head;

/* --------------------------------------------------------------------------
 * float64 over rounded numbers, and the bound.
 * -------------------------------------------------------------------------- */

/* 2^n, of p so far above what the units have of it. */
static double times_of(const head *h, double sum)
{
    double times = 1;
    while (h->d->config.device.out_bits == 16 && sum > 255 * times)
        times *= 2;
    return times;
}

static double worst[2][2]; /* error / bound, by lane type and by out_bits */

/* The exact score, and how far off the device's may be. */
static double exact_score(const head *h, uint64_t t, double *off)
{
    const pimhw_config *hw = &h->d->config.device;
    uint32_t dk = h->kv->shape.head_dim, type = hw->lane_type;
    const double *k = h->kv->k_kept + t * h->kv->k_row + (size_t)h->kv_head * dk;
    double sum = 0, terms = 0, scale = (double)h->scale;
    for (uint32_t i = 0; i < dk; i++) {
        double x = h->q[i] * k[i];
        sum += x;
        terms += fabs(x);
    }
    double r = several(log2(h->at.lanes) + h->at.k_columns - 1) * terms;
    if (hw->out_bits == 16) r += fmax(lane_unit(type) * (fabs(sum) + r), lane_least(type));
    *off = fabs(scale) * r + U32 * (fabs(scale * sum) + fabs(scale) * r);
    return scale * sum;
}

/* Exact weights [seen] and what they may be off; their sums. */
typedef struct weights {
    double *p, *off;
    double sum, sum_off, times;
} weights;

static weights exact_weights(const head *h, double m)
{
    uint32_t type = h->d->config.device.lane_type;
    weights w = {(double *)check_alloc(h->seen, sizeof(double)),
                 (double *)check_alloc(h->seen, sizeof(double)), 0, 0, 1};
    double top = -HUGE_VAL, top_off = 0;
    for (uint64_t t = 0; t < h->seen; t++) {
        double off, s = exact_score(h, t, &off);
        double argument = off + U32 * (fabs(s - m) + off);
        w.p[t] = exp(s - m);
        w.off[t] = w.p[t] * (exp(argument) * (1 + 2e-7) - 1) + 0x1p-126;
        w.sum += w.p[t];
        w.sum_off += w.off[t];
        top = fmax(top, s);
        top_off = fmax(top_off, off);
    }
    w.times = times_of(h, w.sum + w.sum_off);
    w.sum_off = 0;
    for (uint64_t t = 0; t < h->seen; t++) {
        w.off[t] += fmax(lane_unit(type) * (w.p[t] + w.off[t]), lane_least(type) * w.times);
        w.sum_off += w.off[t];
    }
    CHECK_NEAR(m, top, top_off);
    return w;
}

/* Bound of one dim, whose exact output is *out. */
static double bound_of(const head *h, const weights *w, const double *v, double *out)
{
    double read[MOST_READS] = {0}, sum = 0, terms = 0, spread = 0, read_off = 0, reads = 0;
    uint32_t n_reads = h->at.n_rows * h->at.groups, type = h->d->config.device.lane_type;
    for (uint64_t t = 0; t < h->seen; t++) {
        double x = w->p[t] * v[t * h->kv->v_row];
        sum += x;
        terms += fabs(x);
        read[read_of(&h->at, t)] += x;
    }
    *out = sum / w->sum;
    for (uint64_t t = 0; t < h->seen; t++) {
        spread += w->off[t] * fabs(v[t * h->kv->v_row] - *out);
        read_off += w->off[t] * fabs(v[t * h->kv->v_row]);
    }
    for (uint32_t r = 0; r < n_reads; r++)
        reads += fabs(read[r]);
    double of_group = ceil(ceil((double)h->tokens / h->at.lanes) / h->at.groups);
    double columns = h->at.hold ? of_group : fmin(of_group, h->at.row_columns);
    double off = several(log2(h->at.lanes) + columns - 1) * terms;
    if (h->d->config.device.out_bits == 16)
        off += lane_unit(type) * (reads + read_off) + n_reads * lane_least(type) * w->times;
    off += several(n_reads) * (reads + read_off);
    double in_l = several(LEAF + ceil((double)h->tokens / LEAF));
    return 1.01 * ((spread + off) / (w->sum - w->sum_off) + (in_l + U32) * fabs(*out));
}

static void check_exact(const head *h)
{
    const device_case *d = h->d;
    uint32_t dv = h->kv->dv;
    const float *got = d->out + h->row * dv;
    const pimattn_partial *partial = &d->partials[h->row];
    weights w = exact_weights(h, (double)partial->m);
    double in_l = several(LEAF + ceil((double)h->tokens / LEAF)) * (w.sum + w.sum_off);
    CHECK_NEAR(partial->l, w.sum, w.sum_off + in_l);
    double lse = (double)partial->m + log((double)partial->l);
    CHECK_NEAR(d->lse[h->row], lse, U32 * fabs(lse));
    double *place = &worst[d->config.device.lane_type][d->config.device.out_bits == 32];
    for (uint32_t j = 0; j < dv; j++) {
        double exact, bound;
        bound = bound_of(h, &w, h->kv->v_kept + (size_t)h->kv_head * dv + j, &exact);
        CHECK_NEAR(got[j], exact, bound);
        *place = fmax(*place, fabs((double)got[j] - exact) / bound);
        CHECK_NEAR(partial->o[j] / partial->l, got[j], 0);
    }
    free(w.p);
    free(w.off);
}

/* --------------------------------------------------------------------------
 * The same arithmetic by hand: every byte is known.
 * -------------------------------------------------------------------------- */

/* x[0..n) pairwise, neighbours first; n is a power of two. */
static float tree(float *x, uint32_t n)
{
    for (; n > 1; n /= 2)
        for (uint32_t i = 0; i < n / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
    return x[0];
}

static float as_read(const head *h, float sum)
{
    const pimhw_config *hw = &h->d->config.device;
    return hw->out_bits == 16 ? (float)lane_of(hw->lane_type, (double)sum) : sum;
}

static float hand_score(const head *h, uint64_t t)
{
    uint32_t dk = h->kv->shape.head_dim, n = h->at.lanes;
    const double *k = h->kv->k_kept + t * h->kv->k_row + (size_t)h->kv_head * dk;
    float sum = 0, x[64];
    for (uint32_t c = 0; c < h->at.k_columns; c++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = c * n + i;
            x[i] = at < dk ? (float)h->q[at] * (float)k[at] : 0;
        }
        sum += tree(x, n);
    }
    return as_read(h, sum) * h->scale;
}

/* exp(x), x <= 0: 2^n times a polynomial of what is left [Cephes], 0 below the normal numbers. */
static float exp_of(float x)
{
    static const float factors[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                    4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    const float n = rintf(x * 1.44269504f), r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0;
    for (int i = 0; i < 6; i++)
        p = p * r + factors[i];
    return x > -87.33654f ? ldexpf(p * (r * r) + r + 1, (int)n) : 0;
}

/* Weights as they go into the lanes, [tokens in whole columns]; m, l, and p by those weights. */
static float *hand_weights(const head *h, float *m, float *l, float *times)
{
    float *p = (float *)check_alloc(h->tokens + h->at.lanes, sizeof(float));
    uint32_t type = h->d->config.device.lane_type;
    double sum = 0;
    *m = -INFINITY;
    *l = 0;
    for (uint64_t t = 0; t < h->seen; t++) {
        p[t] = hand_score(h, t);
        if (p[t] > *m) *m = p[t];
    }
    for (uint64_t t = 0; t < h->seen; t++) {
        p[t] = exp_of(p[t] - *m);
        sum += (double)p[t];
    }
    *times = (float)times_of(h, sum);
    for (uint64_t t = 0; t < h->seen;) {
        float part = 0;
        for (uint64_t end = t + LEAF; t < end && t < h->seen; t++) {
            p[t] = (float)lane_of(type, (double)(p[t] / *times));
            part += p[t];
        }
        *l += part;
    }
    *l *= *times;
    return p;
}

/* One dim: bank by bank, row by row, group by group. */
static float hand_sum(const head *h, const float *p, const double *v)
{
    const layout *at = &h->at;
    float o = 0, x[64];
    uint64_t columns = (h->tokens + at->lanes - 1) / at->lanes;
    for (uint32_t g = 0; g < at->groups; g++) {
        float group = 0, sum = 0;
        for (uint64_t j = 0; j * at->groups + g < columns; j++) {
            if (j > 0 && j % at->row_columns == 0 && !at->hold) {
                group += as_read(h, sum);
                sum = 0;
            }
            for (uint32_t i = 0; i < at->lanes; i++) {
                uint64_t t = (j * at->groups + g) * at->lanes + i;
                x[i] = t < h->tokens ? p[t] * (float)v[t * h->kv->v_row] : 0;
            }
            sum += tree(x, at->lanes);
        }
        group += as_read(h, sum);
        o += group;
    }
    return o;
}

static void check_hand(const head *h)
{
    uint32_t dv = h->kv->dv;
    const pimattn_partial *partial = &h->d->partials[h->row];
    float m, l, times, out[DEVICE_DIMS], o[DEVICE_DIMS];
    float *p = hand_weights(h, &m, &l, &times);
    for (uint32_t j = 0; j < dv; j++) {
        o[j] = times * hand_sum(h, p, h->kv->v_kept + (size_t)h->kv_head * dv + j);
        out[j] = o[j] / l;
    }
    CHECK_BYTES(&partial->m, &m, sizeof m);
    CHECK_BYTES(&partial->l, &l, sizeof l);
    CHECK_BYTES(partial->o, o, dv * sizeof o[0]);
    CHECK_BYTES(h->d->out + h->row * dv, out, dv * sizeof out[0]);
    free(p);
}

/* --------------------------------------------------------------------------
 * Cases.
 * -------------------------------------------------------------------------- */

/* Checks every query head of a batch that was computed. */
static void check_case(const device_case *d, bool exact, bool by_hand)
{
    const pimattn_shape *s = &d->config.shape;
    head h = {.d = d};
    h.scale = s->scale != 0 ? s->scale : (float)(1 / sqrt((double)s->head_dim));
    size_t row = 0;
    for (size_t i = 0; i < d->n_items; i++) {
        h.kv = &d->kv[d->at[i]];
        h.tokens = h.kv->n_tokens;
        h.at = layout_of(d, h.tokens);
        for (uint64_t n = 0; n < d->items[i].n_tokens; n++, row++)
            for (uint32_t q = 0; q < s->n_heads; q++) {
                h.seen = h.tokens - d->items[i].n_tokens + n + 1;
                h.kv_head = q / (s->n_heads / s->n_kv_heads);
                const float *given = d->q + row * d->row_floats + (size_t)q * s->head_dim;
                for (uint32_t x = 0; x < s->head_dim; x++)
                    h.q[x] = lane_of(d->config.device.lane_type, (double)given[x]);
                h.row = row * s->n_heads + q;
                if (exact) check_exact(&h);
                if (by_hand) check_hand(&h);
            }
    }
}

static void print_case(const device_case *d)
{
    const pimattn_config *c = &d->config;
    printf("  %s, %u channels, %s, %s %u, mapping %s, heads %u/%u, dims %u/%u, lanes %u, out %u;",
           c->device.preset, c->device.n_channels, pimhw_controller_str(c->device.controller),
           c->partition == PIMATTN_TCP ? "TCP" : "HFP", c->hfp_unit,
           pimattn_v_mapping_str(c->v_mapping), c->shape.n_heads, c->shape.n_kv_heads,
           c->shape.head_dim, c->shape.head_dim_v, c->device.lane_type, c->device.out_bits);
    for (size_t i = 0; i < d->n_items; i++)
        printf(" %u of %u", (unsigned)d->items[i].n_tokens, (unsigned)d->kv[d->at[i]].n_tokens);
    printf("\n");
}

/* Runs a case under its controller, or if it is that of another run: wants its bytes. */
static void run_case(device_case *d, bool exact, bool by_hand, check_rng *rng)
{
    pimattn_engine *engine = engine_new(&d->config);
    pimattn_readings r;
    unsigned before = check_now.n_errors;
    if (engine && device_case_append(d, engine, rng) && device_case_attend(d, engine, &r)) {
        check_case(d, exact, by_hand);
        CHECK(r.device.cycles > 0 && r.chunks_used > 0 && r.chunks_used <= r.chunks_total);
        CHECK(r.append_ck > 0 && r.append_commands > 0);
        CHECK_STR(r.kernel, "device");
    }
    if (check_now.n_errors != before) print_case(d);
    pimattn_engine_destroy(engine);
}

static uint32_t pick(check_rng *rng, const uint32_t *from, size_t n)
{
    return from[rng_range(rng, 0, n - 1)];
}

#define PICK(rng, ...)                                                                             \
    pick(rng, (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* A device and a shape of any kind the list of the issue names. */
static pimattn_config any_config(check_rng *rng, uint32_t i)
{
    static const char *const presets[] = {"aimx",         "aim-gddr6", "aimx",    "aim-gddr6",
                                          "samsung-hbm2", "pam-ddr4",  "neupims", "cent"};
    static const uint32_t dims[] = {8, 16, 64, 100, 128, 256};
    uint32_t g = PICK(rng, 1, 2, 3, 4, 5, 7, 8), kv_heads = PICK(rng, 1, 1, 2, 3);
    uint32_t dk = dims[i % 6], dv = rng_range(rng, 0, 1) ? dk : pick(rng, dims, 6);
    pimattn_config c = device_config(presets[rng_range(rng, 0, 7)], PICK(rng, 1, 3, 16, 32),
                                     g * kv_heads, kv_heads, dk, dv);
    c.device.controller = i / 6 % 4;
    c.device.out_bits = PICK(rng, 16, 32);
    c.device.lane_type = PICK(rng, PIMHW_LANE_F16, PIMHW_LANE_BF16);
    c.device.partial_write = PICK(rng, 0, 1);
    c.device.extra_region = PICK(rng, 0, 1);
    c.device.early_tiles = PICK(rng, 0, 1);
    c.device.epu_overlap = PICK(rng, 0, 1);
    c.device.refresh = PICK(rng, 0, 1);
    c.partition = PICK(rng, PIMATTN_TCP, PIMATTN_HFP);
    c.hfp_unit = PICK(rng, PIMATTN_BY_KV_HEAD, PIMATTN_BY_QUERY_HEAD);
    c.v_mapping = PICK(rng, PIMATTN_V_A, PIMATTN_V_A, PIMATTN_V_B, PIMATTN_V_K);
    c.row_reuse_off = PICK(rng, 0, 0, 1) != 0;
    return c;
}

/* K for one token a sequence may need more entries for several: then one is what there is. */
static bool one_query_only(const pimattn_config *c)
{
    return c->v_mapping == PIMATTN_V_K;
}

static void any_batch(check_rng *rng, uint32_t i, uint64_t most)
{
    pimattn_config c = any_config(rng, i);
    uint64_t tokens[DEVICE_SEQS];
    size_t n_seqs = (size_t)rng_range(rng, 1, DEVICE_SEQS);
    for (size_t s = 0; s < n_seqs; s++)
        tokens[s] = rng_range(rng, 1, rng_range(rng, 0, 1) ? most : 40);
    device_case d = device_case_new(&c, tokens, n_seqs, rng);
    for (size_t s = 0; s < n_seqs; s++) {
        uint64_t most_queries = tokens[s] < 5 ? tokens[s] : 5;
        bool one = one_query_only(&c) || rng_range(rng, 0, 1);
        device_case_item(&d, s, one ? 1 : rng_range(rng, 1, most_queries));
    }
    if (rng_range(rng, 0, 1)) device_case_item(&d, 0, 1);
    device_case_queries(&d, rng);
    run_case(&d, true, true, rng);
    device_case_free(&d);
}

static void batches_of_any_kind(void)
{
    check_rng rng = {0x0dd};
    for (uint32_t i = 0; i < 96; i++)
        any_batch(&rng, i, 300);
}

/* Contexts of several rows, by every controller, partition and mapping. */
static void long_contexts(void)
{
    check_rng rng = {0x10c};
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t channels = i % 4 == 3 ? 3 : 16;
        pimattn_config c = device_config("aimx", channels, i & 2 ? 8 : 2, 1, 128, 128);
        if (i % 4 == 1) c.shape.head_dim_v = 64;
        c.device.controller = i % 4;
        c.partition = i / 4 % 2;
        c.v_mapping = i / 4 % 3;
        c.device.out_bits = i & 8 ? 32 : 16;
        c.device.lane_type = i % 3 == 2;
        uint64_t tokens = i == 0 ? 5000 : rng_range(&rng, 1200, 2500);
        device_case d = device_case_new(&c, &tokens, 1, &rng);
        device_case_item(&d, 0, 1);
        device_case_queries(&d, &rng);
        run_case(&d, true, i % 4 == 1, &rng);
        device_case_free(&d);
    }
}

/* p goes to the lanes as it is where sums are read in 32 bits: exp(-9) of f16 is no subnormal, but
 * with 2^-n of it, as for 16 bits, it would be, and 1 % off. */
static void small_weights_keep_their_digits(void)
{
    enum { N = 4000, DIM = 16 };
    static float k[(N + 1) * DIM], v[(N + 1) * DIM];
    float q[DIM] = {1}, out[DIM];
    pimattn_config c = device_config("aimx", 2, 1, 1, DIM, DIM);
    pimattn_seq seq = 0;
    c.device.out_bits = 32;
    c.shape.scale = 1;
    k[0] = -9;
    v[0] = 30000;
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, seq, 0, k, v, N + 1, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
    double p = lane_of(PIMHW_LANE_F16, exp(-9));
    CHECK_NEAR((double)out[0], p * 30000 / (N + p), 4e-10); /* a few roundings of 9e-4 to f32 */
    pimattn_engine_destroy(e);
}

/* Every length up to where all banks and channels, columns and rows have begun. */
static void lengths_one_by_one(void)
{
    check_rng rng = {0x1e5};
    pimattn_config c = device_config("aimx", 3, 4, 2, 24, 40);
    c.device.row_bytes = 256; /* rows of 8 columns */
    c.device.controller = PIMHW_DCS;
    for (uint32_t partition = 0; partition < 2; partition++) {
        c.partition = partition;
        for (uint64_t tokens = 1; tokens < 420; tokens += tokens < 50 ? 1 : 19) {
            device_case d = device_case_new(&c, &tokens, 1, &rng);
            device_case_item(&d, 0, tokens < 3 ? tokens : 3);
            device_case_queries(&d, &rng);
            run_case(&d, true, true, &rng);
            device_case_free(&d);
        }
    }
}

/* Keys and values of more dims than a row of a bank, or than the global buffer, holds. */
static void heads_larger_than_rows(void)
{
    check_rng rng = {0xb16};
    for (uint32_t i = 0; i < 24; i++) {
        pimattn_config c = device_config("aimx", PICK(&rng, 1, 3, 16), 4, 2, 200, 144);
        c.device.controller = i % 4;
        c.device.row_bytes = PICK(&rng, 64, 128, 256);
        c.device.n_rows = 1u << 18;
        c.device.in_entries = PICK(&rng, 2, 4, 16);
        c.partition = i / 4 % 2;
        c.v_mapping = PICK(&rng, PIMATTN_V_A, PIMATTN_V_B);
        uint64_t tokens[2] = {rng_range(&rng, 1, 200), rng_range(&rng, 1, 200)};
        device_case d = device_case_new(&c, tokens, 2, &rng);
        device_case_item(&d, 0, 1);
        device_case_item(&d, 1, tokens[1] < 2 ? 1 : 2);
        device_case_queries(&d, &rng);
        run_case(&d, true, true, &rng);
        device_case_free(&d);
    }
}

/* Sums of p v that f16 does not hold are read in parts: equal scores, each v 256. */
static void sums_of_many_tokens_fit(void)
{
    enum { TOKENS = 3000, DIM = 16 };
    static float kv[2][TOKENS * DIM];
    const float q[DIM] = {0};
    for (size_t i = 0; i < TOKENS * DIM; i++)
        kv[1][i] = 256;
    for (uint32_t v_mapping = PIMATTN_V_A; v_mapping <= PIMATTN_V_K; v_mapping++) {
        pimattn_config c = device_config("aimx", 1, 1, 1, DIM, DIM);
        c.v_mapping = v_mapping;
        pimattn_engine *engine = engine_new(&c);
        pimattn_seq seq;
        float out[DIM] = {0}, lse = 0, o[DIM];
        pimattn_partial partial = {0, 0, o, DIM};
        pimattn_call call = {.q = q, .out = out, .lse = &lse, .partials = &partial, .n_items = 1};
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        CHECK_U(pimattn_append(engine, seq, 0, kv[0], kv[1], TOKENS, 0, 0), PIMATTN_OK);
        pimattn_item item = {seq, 1};
        call.items = &item;
        CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_OK);
        CHECK_NEAR(lse, log(TOKENS), 1e-6);
        CHECK_NEAR(partial.l, TOKENS, 0);
        for (uint32_t j = 0; j < DIM; j++) {
            CHECK_NEAR(out[j], 256, 256 * lane_unit(PIMHW_LANE_F16));
            CHECK_NEAR(o[j], 256.0 * TOKENS, 256.0 * TOKENS * lane_unit(PIMHW_LANE_F16));
        }
        pimattn_engine_destroy(engine);
    }
}

static void print_worst(void)
{
    for (int type = 0; type < 2; type++)
        for (int wide = 0; wide < 2; wide++) {
            printf("worst error / bound, %s lanes, out_bits %d: %.3f\n", type ? "bf16" : "f16",
                   wide ? 32 : 16, worst[type][wide]);
            CHECK(worst[type][wide] > 0.02);
        }
}

/* Appending K writes its columns into one bank, V one column a dim; the first token of a column
 * writes all of it, later ones some lanes: that reads it first where the device cannot mask. Every
 * append finds all rows closed, and a bank that K opened is closed for V. */
static void appends_write_what_the_layout_asks(void)
{
    static const struct {
        uint64_t n_tokens, k_writes, k_banks, whole, partial;
    } steps[] = {{1, 2, 1, 1, 0},    /* token 0: of 20 dims, 2 columns; lane 0 of V */
                 {1, 2, 1, 0, 1},    /* token 1: lane 1 */
                 {14, 28, 14, 0, 1}, /* up to 15: the same column once more */
                 {3, 6, 3, 1, 0},    /* up to 18: one that is new */
                 {14, 28, 14, 1, 1}, /* up to 32: its rest, and the next one */
                 {20, 40, 16, 1, 1}};
    uint64_t masked[6] = {0};
    check_rng rng = {21};
    for (uint32_t kind = 0; kind < 4; kind++) {
        const uint32_t reads_first = kind & 1, shared = kind >> 1;
        pimattn_config c = device_config("aimx", 1, 1, 1, 20, 16);
        uint64_t n = 0, n_tokens = 53;
        float q[20], out[16];
        c.device.refresh = 0;
        c.device.partial_write = reads_first;
        c.device.front_end = shared ? PIMHW_SHARED : PIMHW_PER_CHANNEL;
        pimattn_engine *e = engine_new(&c);
        attn_kv kv = kv_random(&c.shape, n_tokens, &rng);
        pimattn_seq seq;
        pimattn_readings r;
        fill_normal(q, 20, 1, &rng);
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; n += steps[i++].n_tokens) {
            uint64_t writes = steps[i].k_writes, opened = steps[i].k_banks;
            CHECK_U(kv_append(e, seq, 0, &kv, n, steps[i].n_tokens), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(e, seq, 0, out, q, &r), PIMATTN_OK);
            writes += 16 * (steps[i].whole + steps[i].partial);
            if (reads_first) writes += 16 * steps[i].partial;
            if (!shared) CHECK_U(r.append_commands, writes + opened + opened + 16);
            if (!reads_first) masked[i] = r.append_commands;
            /* a shared front end may open rows in another order */
            CHECK_NEAR(r.append_commands, masked[i] + reads_first * 16 * steps[i].partial,
                       shared ? 4 : 0);
            CHECK(r.append_ck > writes && r.append_pJ > 0);
        }
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, &r), PIMATTN_OK);
        CHECK(r.append_commands == 0 && r.append_ck == 0 && r.append_pJ == 0);
        kv_free(&kv);
        pimattn_engine_destroy(e);
    }
}

int main(void)
{
    RUN(batches_of_any_kind);
    RUN(long_contexts);
    RUN(small_weights_keep_their_digits);
    RUN(lengths_one_by_one);
    RUN(heads_larger_than_rows);
    RUN(appends_write_what_the_layout_asks);
    RUN(sums_of_many_tokens_fit);
    RUN(print_worst);
    return check_end();
}
