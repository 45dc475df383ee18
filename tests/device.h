/* device.h - what the tests of the device way share: number formats, cases, engines, a reference.
 *
 * The number formats, the layout and the arithmetic are written anew, from their definitions. */
#ifndef DEVICE_H
#define DEVICE_H

#include "attn.h"

enum { DEVICE_SEQS = 4, DEVICE_DIMS = 288 };

/* What a lane keeps of a finite number: to nearest, ties to even, subnormals kept. */
static inline double lane_of(uint32_t type, double x)
{
    return type == PIMHW_LANE_F16 ? half_round(x) : brain_round((float)x);
}

/* Half a unit in the last place, relatively, and half the least subnormal. */
static inline double lane_unit(uint32_t type)
{
    return type == PIMHW_LANE_F16 ? 0x1p-11 : 0x1p-8;
}

static inline double lane_least(uint32_t type)
{
    return type == PIMHW_LANE_F16 ? 0x1p-25 : 0x1p-134;
}

/* Sequences of one layer on one engine, and the queries of a batch. */
typedef struct device_case {
    pimattn_config config;
    size_t n_seqs;
    attn_kv kv[DEVICE_SEQS];
    pimattn_seq seq[DEVICE_SEQS];
    pimattn_item items[DEVICE_SEQS + 1]; /* the first sequence may come twice */
    size_t at[DEVICE_SEQS + 1];          /* the sequence of an item */
    size_t n_items, n_rows, row_floats, out_floats;
    float *q, *out, *lse, *o;
    pimattn_partial *partials;
} device_case;

static inline pimattn_config device_config(const char *preset, uint32_t n_channels,
                                           uint32_t n_heads, uint32_t n_kv_heads, uint32_t dk,
                                           uint32_t dv)
{
    pimattn_shape s = shape_of(1, n_heads, n_kv_heads, dk, dv);
    pimattn_config c = config_of(&s);
    CHECK_U(pimhw_config_init(&c.device, preset, NULL), PIMHW_OK);
    c.device.n_channels = n_channels;
    c.device.n_rows = 1u << 15;
    c.way = PIMATTN_DEVICE;
    c.max_seqs = 8;
    c.memo_entries = 4;
    return c;
}

/* K and V as the banks should hold them: in lanes. */
static inline void device_keep(attn_kv *kv, uint32_t lane_type)
{
    for (size_t i = 0; i < kv->n_tokens * kv->k_row; i++)
        kv->k_kept[i] = lane_of(lane_type, (double)kv->k[i]);
    for (size_t i = 0; i < kv->n_tokens * kv->v_row; i++)
        kv->v_kept[i] = lane_of(lane_type, (double)kv->v[i]);
}

static inline device_case device_case_new(const pimattn_config *config, const uint64_t *tokens,
                                          size_t n_seqs, check_rng *rng)
{
    device_case d;
    memset(&d, 0, sizeof d);
    d.config = *config;
    d.n_seqs = n_seqs;
    d.row_floats = (size_t)config->shape.n_heads * config->shape.head_dim;
    d.out_floats = (size_t)config->shape.n_heads * shape_dv(&config->shape);
    for (size_t i = 0; i < n_seqs; i++) {
        d.kv[i] = kv_random(&config->shape, tokens[i], rng);
        device_keep(&d.kv[i], config->device.lane_type);
    }
    return d;
}

/* Adds the last n_tokens of a sequence to the batch. */
static inline void device_case_item(device_case *d, size_t seq, uint64_t n_tokens)
{
    d->at[d->n_items] = seq;
    d->items[d->n_items++].n_tokens = n_tokens;
    d->n_rows += (size_t)n_tokens;
}

/* After the last item: queries and room for results. */
static inline void device_case_queries(device_case *d, check_rng *rng)
{
    size_t heads = d->n_rows * d->config.shape.n_heads, dv = shape_dv(&d->config.shape);
    d->q = (float *)check_alloc(d->n_rows * d->row_floats, sizeof(float));
    d->out = (float *)check_alloc(d->n_rows * d->out_floats, sizeof(float));
    d->lse = (float *)check_alloc(heads, sizeof(float));
    d->o = (float *)check_alloc(d->n_rows * d->out_floats, sizeof(float));
    d->partials = (pimattn_partial *)check_alloc(heads, sizeof(pimattn_partial));
    for (size_t i = 0; i < heads; i++) {
        d->partials[i].o = d->o + i * dv;
        d->partials[i].dim = (uint32_t)dv;
    }
    fill_normal(d->q, d->n_rows * d->row_floats, 1, rng);
}

static inline void device_case_free(device_case *d)
{
    for (size_t i = 0; i < d->n_seqs; i++)
        kv_free(&d->kv[i]);
    free(d->q);
    free(d->out);
    free(d->lse);
    free(d->o);
    free(d->partials);
}

/* Appends all sequences, in pieces of any size that take turns. */
static inline bool device_case_append(device_case *d, pimattn_engine *engine, check_rng *rng)
{
    uint64_t done[DEVICE_SEQS] = {0};
    for (size_t i = 0; i < d->n_seqs; i++)
        if (!CHECK_U(pimattn_seq_create(engine, &d->seq[i]), PIMATTN_OK)) return false;
    for (size_t left = d->n_seqs, i = 0; left > 0; i = (i + 1) % d->n_seqs) {
        uint64_t rest = d->kv[i].n_tokens - done[i], most = rng_range(rng, 0, 2) ? rest : 20;
        if (rest == 0) continue;
        uint64_t n = rng_range(rng, 1, most < rest ? most : rest);
        if (!CHECK_U(kv_append(engine, d->seq[i], 0, &d->kv[i], done[i], n), PIMATTN_OK)) {
            printf("  %s\n", pimattn_engine_cause(engine));
            return false;
        }
        done[i] += n;
        left -= done[i] == d->kv[i].n_tokens;
    }
    for (size_t i = 0; i < d->n_items; i++)
        d->items[i].seq = d->seq[d->at[i]];
    return true;
}

static inline bool device_case_attend(device_case *d, pimattn_engine *engine,
                                      pimattn_readings *readings)
{
    pimattn_call call = {.out = d->out,
                         .lse = d->lse,
                         .partials = d->partials,
                         .q = d->q,
                         .items = d->items,
                         .n_items = d->n_items};
    memset(d->out, 0xff, d->n_rows * d->out_floats * sizeof(float));
    memset(d->o, 0xff, d->n_rows * d->out_floats * sizeof(float));
    if (CHECK_U(pimattn_attend(engine, 0, &call, readings), PIMATTN_OK)) return true;
    printf("  %s\n", pimattn_engine_cause(engine));
    return false;
}

#endif
