/* system_model.h - a decode step of a language model on many PIM modules: tensor and pipeline
 * parallel, requests in micro-batches, K and V in what the weights leave.
 *
 * Attention is pimattn_estimate of one module's heads, FC layers are programs of works.h, both
 * timed, or the roofline of an xPU; what moves between modules is bytes over a link. Not counted:
 * embedding, logits, norms, activations, prefill. Include it after pimattn.h and common.h.
 */
#ifndef SYSTEM_MODEL_H
#define SYSTEM_MODEL_H

#include "lengths.h"
#include "works.h"

enum { SYS_HEAD_DIM = 128, SYS_ELEMENT = 2 };
enum { SYS_MOST_BATCH = 16384, SYS_RUNS = 4, SYS_ENOUGH = 2000 };

typedef struct sys_llm {
    const char *name;
    uint32_t n_layers, d_model, n_heads, n_kv_heads, ffn, vocab;
} sys_llm;

enum { SYS_QWEN_7B, SYS_QWEN_14B, SYS_QWEN_72B, SYS_LLAMA_8B, SYS_LLAMA_70B };

static const sys_llm sys_llms[] = {{"Qwen1.5-7B", 32, 4096, 32, 32, 11008, 151936},
                                   {"Qwen1.5-14B", 40, 5120, 40, 40, 13696, 152064},
                                   {"Qwen1.5-72B", 80, 8192, 64, 64, 24576, 152064},
                                   {"Llama3.1-8B", 32, 4096, 32, 8, 14336, 128256},
                                   {"Llama3.1-70B", 80, 8192, 64, 8, 28672, 128256}};

/* Of the columns that examples print. */
#define SYS_LEGEND                                                                                 \
    "requests: as many as have room at once, each a token a step; util: multiplications that "     \
    "the\n"                                                                                        \
    "model needs (with an xPU those of attention alone), of what all units do at most; FC, "       \
    "attn,\n"                                                                                      \
    "moving: shares of a stage's time. Not counted: embedding, logits, norms, activations, "       \
    "prefill."

/* What the modules are, and how they are joined. */
typedef struct sys_machine {
    const char *preset;
    const ex_texts *sets; /* fields of the device, over all else; or NULL */
    uint32_t n_modules, node_modules;
    double node_Bps;  /* between nodes */
    double xpu_flops; /* of a module's xPU, which does softmax, at no cost, and has the FC layers:
                         weights come as fast as the channels give them to a host; 0: no xPU */
} sys_machine;

/* How they are used. */
typedef struct sys_way {
    const char *name;
    uint32_t partition, hfp_unit;
    uint32_t controller;
    bool extra_region; /* of input buffers, under ping-pong */
    bool lazy;         /* chunks as tokens come, else room for the window */
    bool one_by_one;   /* micro-batches of one request, else as many as stages */
} sys_way;

/* Of a stage with all micro-batches: where its time goes; of all modules: what that takes. */
typedef struct sys_parts {
    double fc_ns, attention_ns, moving_ns;
    double attention_pJ, standby_pJ; /* all; of it standby and refresh */
    double fc_pJ;                    /* of the units; an xPU's and the links' is not known */
    double macs;                     /* that the model needs of the units */
    double tokens;                   /* that were made */
} sys_parts;

/* What a cut gives, on average over some batches. */
typedef struct sys_result {
    uint32_t tp, pp;
    double tokens_s;
    double utilisation; /* of all units' peak, by macs */
    sys_parts parts;    /* of a step; tokens are as many as requests */
} sys_result;

typedef struct sys {
    const sys_llm *llm;
    const sys_machine *machine;
    const sys_way *way;
    pimhw_config device;
    uint64_t window; /* tokens */
    uint32_t tp, pp;
    uint64_t tokens[SYS_MOST_BATCH]; /* of the requests of a batch */
    pimattn_span spans[SYS_MOST_BATCH];
    struct {
        double ns, pJ;
    } fc[SYS_MOST_BATCH + 1]; /* of a layer on one module, by requests; 0: not known yet */
} sys;

static inline sys *sys_new(const sys_llm *llm, const sys_machine *machine, const sys_way *way,
                           uint64_t window, bool refresh)
{
    sys *s = (sys *)ex_alloc(1, sizeof *s);
    s->llm = llm, s->machine = machine, s->way = way, s->window = window;
    ex_device_preset(&s->device, machine->preset);
    s->device.controller = way->controller;
    s->device.extra_region = way->extra_region;
    if (!refresh) s->device.refresh = 0;
    if (machine->xpu_flops > 0) s->device.epu_ck_per_op = 0;
    ex_device_change(&s->device, 0, machine->sets);
    ex_device_check(&s->device);
    return s;
}

static inline void sys_cut(sys *s, uint32_t tp)
{
    s->tp = tp;
    s->pp = s->machine->n_modules / tp;
    memset(s->fc, 0, sizeof s->fc);
}

/* A cut has whole heads and whole layers. */
static inline bool sys_can_cut(const sys_llm *llm, uint32_t n_modules, uint32_t tp)
{
    return tp <= llm->n_kv_heads && n_modules % tp == 0 && n_modules / tp <= llm->n_layers;
}

/* Multiplications of a layer's matrices for one token. */
static inline double sys_weights(const sys_llm *m)
{
    double d = m->d_model, kv = 2.0 * m->n_kv_heads * SYS_HEAD_DIM;
    return d * (d + kv) + d * d + 3 * d * m->ffn;
}

/* Those of all layers for one token of a request. */
static inline double sys_macs(const sys_llm *m, uint64_t tokens)
{
    return m->n_layers * (sys_weights(m) + 2.0 * m->n_heads * SYS_HEAD_DIM * (double)tokens);
}

/* What all units multiply in a second at most. */
static inline double sys_peak(const sys *s)
{
    const pimhw_config *c = &s->device;
    double lanes = (double)c->n_channels * pimhw_config_banks(c) * pimhw_config_lanes(c);
    return s->machine->n_modules * lanes / (1e-12 * c->tCK_ps * c->tCCD_MAC);
}

static inline double sys_module_bytes(const sys *s)
{
    const pimhw_config *c = &s->device;
    return (double)c->n_channels * pimhw_config_banks(c) * c->n_rows * c->row_bytes;
}

/* Of a stage; of a module. */
static inline uint32_t sys_layers(const sys *s)
{
    return (uint32_t)up(s->llm->n_layers, s->pp);
}

static inline uint32_t sys_heads(const sys *s)
{
    return (uint32_t)up(s->llm->n_kv_heads, s->tp);
}

static inline pimattn_shape sys_shape(const sys *s)
{
    uint32_t group = s->llm->n_heads / s->llm->n_kv_heads;
    pimattn_shape shape = {.n_layers = 1, .n_kv_heads = sys_heads(s), .head_dim = SYS_HEAD_DIM};
    shape.n_heads = shape.n_kv_heads * group;
    return shape;
}

static inline pimattn_plan sys_plan(const sys *s)
{
    pimattn_plan plan;
    pimattn_shape shape = sys_shape(s);
    pimhw_cause why = {{0}};
    if (pimattn_plan_init(&plan, &shape, &s->device, s->way->partition, s->way->hfp_unit, false, 1,
                          &why) != PIMATTN_OK)
        ex_die("plan: %s", why.text);
    return plan;
}

/* Bytes of a module that so many tokens of a request take. */
static inline double sys_kv_bytes(const sys *s, const pimattn_plan *plan, uint64_t tokens)
{
    double heads = (double)sys_layers(s) * sys_heads(s);
    if (!s->way->lazy) return heads * 2 * SYS_HEAD_DIM * SYS_ELEMENT * (double)s->window;
    double chunk = (double)pimattn_plan_chunk_rows(plan) * s->device.row_bytes *
                   pimhw_config_banks(&s->device) * plan->unit_channels;
    return heads * chunk * (double)pimattn_plan_chunks(plan, tokens);
}

/* A module's part of a layer's matrices: outputs of Q, K, V and of gate and up are split over the
 * modules, inputs of the other two [LOL 4.1], by whole heads. */
typedef struct sys_matrices {
    uint64_t inputs[4], outputs[4];
} sys_matrices;

static inline sys_matrices sys_split(const sys *s)
{
    uint64_t d = s->llm->d_model, ffn = up(s->llm->ffn, s->tp);
    uint64_t q = (uint64_t)sys_shape(s).n_heads * SYS_HEAD_DIM;
    uint64_t kv = 2 * (uint64_t)sys_heads(s) * SYS_HEAD_DIM;
    return (sys_matrices){{d, q, d, ffn}, {q + kv, d, 2 * ffn, d}};
}

static inline double sys_split_weights(const sys *s)
{
    sys_matrices m = sys_split(s);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)m.inputs[i] * (double)m.outputs[i];
    return sum;
}

/* Bytes of a module that weights leave; those of the vocabulary are spread over all. */
static inline double sys_room(const sys *s)
{
    double of_layers = sys_layers(s) * sys_split_weights(s);
    double others = 2.0 * s->llm->vocab * s->llm->d_model / s->machine->n_modules;
    return sys_module_bytes(s) - SYS_ELEMENT * (of_layers + others);
}

/* Requests come until the next one does not fit. */
static inline size_t sys_fill(sys *s, const lengths *of, uint64_t *random)
{
    pimattn_plan plan = sys_plan(s);
    double left = sys_room(s);
    for (size_t n = 0; n < SYS_MOST_BATCH; n++) {
        s->tokens[n] = lengths_draw(of, random);
        left -= sys_kv_bytes(s, &plan, s->tokens[n]);
        if (left < 0) return n;
    }
    ex_die("there is room for more than %d requests", (int)SYS_MOST_BATCH);
    return 0;
}

/* The matrices of a layer for n requests: into s->fc[n]. */
static inline void sys_fc(sys *s, size_t n)
{
    const pimhw_config *c = &s->device;
    sys_matrices m = sys_split(s);
    if (s->fc[n].ns > 0) return;
    if (s->machine->xpu_flops > 0) {
        double bytes_ns = 1e3 * c->n_channels * c->column_bytes / ((double)c->tCCD_S * c->tCK_ps);
        s->fc[n].ns = fmax(2e9 * sys_split_weights(s) * (double)n / s->machine->xpu_flops,
                           SYS_ELEMENT * sys_split_weights(s) / bytes_ns);
        return;
    }
    for (int i = 0; i < 4; i++) {
        work works[2];
        pimhw_readings r = time_works(c, works, fc_works(works, c, m.inputs[i], m.outputs[i], n));
        s->fc[n].ns += r.ns;
        s->fc[n].pJ += r.total_pJ;
    }
}

/* Attention of one layer for requests of a batch, on one module. */
static inline pimhw_readings sys_attention(sys *s, size_t first, size_t n)
{
    pimattn_config c = {.shape = sys_shape(s), .partition = s->way->partition};
    pimattn_readings r;
    pimhw_cause why = {{0}};
    c.device = s->device;
    c.hfp_unit = s->way->hfp_unit;
    for (size_t i = 0; i < n; i++)
        s->spans[i].context_tokens = s->tokens[first + i], s->spans[i].n_tokens = 1;
    if (pimattn_estimate(&r, &c, s->spans, n, &why) != PIMATTN_OK)
        ex_die("attention: %s", why.text);
    return r.device;
}

/* Most nodes that the modules of a stage are in: modules are taken in order. */
static inline uint32_t sys_stage_nodes(const sys *s)
{
    uint32_t most = 0, of = s->machine->node_modules;
    for (uint32_t first = 0; first < s->tp * s->pp; first += s->tp) {
        uint32_t nodes = (first + s->tp - 1) / of - first / of + 1;
        most = nodes > most ? nodes : most;
    }
    return most;
}

/* Sums over the modules that share a layer, twice a layer: over their links to the node's switch
 * and back, between nodes in a ring. */
static inline double sys_moving_ns(const sys *s, size_t n)
{
    double bytes = (double)n * s->llm->d_model * SYS_ELEMENT, nodes = sys_stage_nodes(s);
    double of_link = 2 / (1e6 * s->device.link_MBps);
    if (s->tp == 1) return 0;
    return 2e9 * bytes * (of_link + 2 * (nodes - 1) / nodes / s->machine->node_Bps);
}

/* A stage's layers for a micro-batch, and the slowest way to a next stage. */
static inline double sys_stage_ns(sys *s, size_t first, size_t n, sys_parts *parts)
{
    const sys_llm *m = s->llm;
    double layers = sys_layers(s);
    pimhw_readings r = sys_attention(s, first, n);
    sys_fc(s, n);
    double fc = layers * s->fc[n].ns, moving = layers * sys_moving_ns(s, n);
    bool crosses = s->machine->n_modules > s->machine->node_modules;
    double hop = crosses ? s->machine->node_Bps : 1e6 * s->device.link_MBps / 2;
    if (s->pp > 1) moving += 1e9 * (double)n * m->d_model * SYS_ELEMENT / hop;
    /* of all heads of all layers */
    double energies = (double)m->n_layers * m->n_kv_heads / sys_heads(s);
    parts->fc_ns += fc;
    parts->attention_ns += layers * r.ns;
    parts->moving_ns += moving;
    parts->fc_pJ += (double)m->n_layers * s->tp * s->fc[n].pJ;
    parts->attention_pJ += energies * r.total_pJ;
    parts->standby_pJ +=
        energies * (r.energy_pJ[PIMHW_ENERGY_ACTIVE] + r.energy_pJ[PIMHW_ENERGY_IDLE] +
                    r.energy_pJ[PIMHW_ENERGY_REFRESH]);
    for (size_t i = first; i < first + n; i++)
        parts->macs += sys_macs(m, s->tokens[i]) -
                       (s->machine->xpu_flops > 0 ? m->n_layers * sys_weights(m) : 0);
    parts->tokens += (double)n;
    return fc + layers * r.ns + moving;
}

/* Seconds of a step of n requests, one token of each: the largest stage has all micro-batches to
 * do, each micro-batch goes through all layers. */
static inline double sys_seconds(sys *s, size_t n, sys_parts *parts)
{
    size_t micro = n < s->pp || s->way->one_by_one ? n : s->pp;
    double sum = 0, most = 0;
    for (size_t i = 0; i < micro; i++) {
        size_t first = i * n / micro;
        double ns = sys_stage_ns(s, first, (i + 1) * n / micro - first, parts);
        sum += ns;
        most = fmax(most, ns);
    }
    return 1e-9 * fmax(sum, most * s->llm->n_layers / sys_layers(s));
}

/* A cut, over several batches: fewer if they have thousands of requests. All 0: none had room for
 * a request. */
static inline sys_result sys_run(sys *s, uint32_t tp, const lengths *of, uint64_t seed)
{
    sys_result r;
    double seconds = 0;
    uint32_t runs = 0;
    memset(&r, 0, sizeof r);
    sys_cut(s, tp);
    for (int i = 0; i < SYS_RUNS && r.parts.tokens < SYS_ENOUGH; i++) {
        size_t n = sys_fill(s, of, &seed);
        if (n > 0) seconds += sys_seconds(s, n, &r.parts);
        runs += n > 0;
    }
    r.tp = s->tp, r.pp = s->pp;
    if (runs == 0) return r;
    r.tokens_s = r.parts.tokens / seconds;
    r.utilisation = r.parts.macs / seconds / sys_peak(s);
    double *parts[] = {&r.parts.fc_ns,        &r.parts.attention_ns, &r.parts.moving_ns,
                       &r.parts.attention_pJ, &r.parts.standby_pJ,   &r.parts.fc_pJ,
                       &r.parts.macs,         &r.parts.tokens};
    for (size_t i = 0; i < EX_COUNT(parts); i++)
        *parts[i] /= runs;
    return r;
}

enum { SYS_MOST_CUTS = 64 };

/* Cuts, fewest modules a stage first; the number of the best and how many there are. */
typedef struct sys_cuts {
    sys_result of[SYS_MOST_CUTS];
    size_t n, best; /* of n 0 there is no best */
} sys_cuts;

static inline sys_cuts sys_all_cuts(const sys_llm *llm, const sys_machine *machine,
                                    const sys_way *way, const lengths *of, uint64_t window,
                                    uint64_t seed, bool refresh)
{
    sys_cuts cuts;
    sys *s = sys_new(llm, machine, way, window, refresh);
    memset(&cuts, 0, sizeof cuts);
    for (uint32_t tp = 1; tp <= machine->n_modules && cuts.n < SYS_MOST_CUTS; tp++) {
        if (!sys_can_cut(llm, machine->n_modules, tp)) continue;
        cuts.of[cuts.n] = sys_run(s, tp, of, seed);
        if (cuts.of[cuts.n].tokens_s > cuts.of[cuts.best].tokens_s) cuts.best = cuts.n;
        cuts.n++;
    }
    free(s);
    return cuts;
}

#endif
