/* pam_model.h - PAM's platform and its rivals as one model with switches: what a decode step takes.
 *
 *     step      = fully connected layers on the GPUs + attention of every layer
 *     attention = of tiers: pimattn_step_time, programs timed over what each tier holds;
 *                 of GPUs: K and V over the bandwidth they are read at
 *
 * Which tokens lie in which tier comes from a synthetic trace, replayed with the rooms that a batch
 * leaves each of its sequences. Include it after common.h.
 */
#ifndef PAM_MODEL_H
#define PAM_MODEL_H

#include "pam_replay.h"

enum { PAM_MOST_HISTORIES = 16, PAM_MOST_REPLAYS = 4096 };

enum { PAM_GPUS = 8 };       /* of an instance [PAM 7.1] */
#define PAM_GPU_FLOPS 989e12 /* fp16, dense: PAM names the H100, not what it does */

/* -- what is assumed -- */

/* Numbers that the paper does not fix; all may be set. */
typedef struct pam_assumed {
    double eta_c, eta_m, hbm_use, pcie_GBps, ssd_GBps, vllm_sparse;
    double sparsity, lambda, fastest, steps, seed;
    double queries, moves, scattered;
    double arxiv, write, longest;
} pam_assumed;

typedef struct pam_name {
    const char *name;
    size_t offset;
    bool whole;
    double usual, least, most;
    const char *source, *what;
} pam_name;

#define PAM_AT(field) #field, offsetof(pam_assumed, field)

static const pam_name pam_names[] = {
    {PAM_AT(eta_c), false, 0.7, 0.01, 1, "assumed",
     "share of the GPUs' peak in fully connected layers"},
    {PAM_AT(eta_m), false, 0.8, 0.01, 1, "assumed", "share of the HBM's bandwidth that GPUs reach"},
    {PAM_AT(hbm_use), false, 0.9, 0.6, 1, "assumed", "share of HBM for weights and KV"},
    {PAM_AT(pcie_GBps), false, 256, 1, 1e5, "assumed", "host memory to all GPUs"},
    {PAM_AT(ssd_GBps), false, 28, 0.1, 1e5, "assumed", "drives to all GPUs"},
    {PAM_AT(vllm_sparse), true, 1, 0, 1, "PAM 7.1", "1: vLLM fetches and reads only active tokens"},
    {PAM_AT(sparsity), false, 8, 1, 64, "PAM 7.1", "of so many tokens one is active"},
    {PAM_AT(lambda), false, 0.6, 0, 1, "PAM 6.3.1", "of I = lambda S + (1 - lambda) I"},
    {PAM_AT(fastest), false, 56, 0.1, 1e4, "calibrated",
     "x + y; x : y as the bandwidths of full tiers, timed"},
    {PAM_AT(steps), true, 299, 1, 1000, "PAM 7.1", "decode steps of the trace: PAM's mean output"},
    {PAM_AT(seed), true, 1, 0, 1e9, "assumed", "of the trace"},
    {PAM_AT(queries), true, 0, 0, 2, "assumed",
     "heads of a KV head: 0 share each MAC, 1 a MAC each, 2 count for the cap too"},
    {PAM_AT(moves), true, 0, 0, 2, "assumed",
     "moved tokens cost 0 nothing, 1 full pages of flash, 2 a page each"},
    {PAM_AT(scattered), true, 0, 0, 1, "assumed",
     "flash reads 0 full pages, 1 a page for each token"},
    {PAM_AT(arxiv), true, 8000, 16, 32768, "assumed",
     "tokens of a request of Arxiv_sum: of 1500 to 8000 [PAM 7.1] the most"},
    {PAM_AT(write), true, 8000, 16, 32768, "assumed", "of write_doc: the same"},
    {PAM_AT(longest), true, 8000, 16, 32768, "PAM 7.1", "tokens of a request of the ablation"},
};

static inline double *pam_field(pam_assumed *a, const pam_name *name)
{
    return (double *)(void *)((char *)a + name->offset);
}

/* Usual values, then "NAME=VALUE" texts. */
static inline void pam_assume(pam_assumed *a, const ex_texts *sets)
{
    for (size_t i = 0; i < EX_COUNT(pam_names); i++)
        *pam_field(a, &pam_names[i]) = pam_names[i].usual;
    for (size_t s = 0; s < sets->n_texts; s++) {
        const char *text = sets->text[s];
        size_t length = strcspn(text, "="), i = 0;
        while (i < EX_COUNT(pam_names) && (strlen(pam_names[i].name) != length ||
                                           memcmp(pam_names[i].name, text, length) != 0))
            i++;
        if (i == EX_COUNT(pam_names) || text[length] == 0)
            ex_die("--set: '%s' is not NAME=VALUE of a name that is printed", text);
        char *end;
        double value = strtod(text + length + 1, &end);
        bool number = end != text + length + 1 && *end == 0;
        if (!number || !(value >= pam_names[i].least && value <= pam_names[i].most) ||
            (pam_names[i].whole && value != floor(value)))
            ex_die("--set: %s is a %snumber from %g to %g", pam_names[i].name,
                   pam_names[i].whole ? "whole " : "", pam_names[i].least, pam_names[i].most);
        *pam_field(a, &pam_names[i]) = value;
    }
}

/* -- models, systems, the platform -- */

typedef struct pam_llm {
    const char *name;
    uint32_t n_layers, n_heads, n_kv_heads; /* of 128 */
    double parameters, weight_bytes;
} pam_llm;

static const pam_llm pam_llms[] = {{"Qwen2.5-32B", 64, 40, 8, 32.5e9, 65e9},
                                   {"LLaMA3-70B", 80, 64, 8, 70.6e9, 141e9},
                                   {"OPT-175B", 96, 96, 96, 175e9, 350e9}};

static inline pimattn_shape pam_shape(const pam_llm *llm)
{
    pimattn_shape s;
    memset(&s, 0, sizeof s);
    s.n_layers = llm->n_layers;
    s.n_heads = llm->n_heads;
    s.n_kv_heads = llm->n_kv_heads;
    s.head_dim = 128;
    return s;
}

/* K and V of a token in one layer; fp16. */
static inline double pam_layer_bytes(const pam_llm *llm)
{
    return llm->n_kv_heads * 128.0 * 2 * 2;
}

/* A system is which of these it does. */
typedef struct pam_system {
    const char *name;
    bool gpu;      /* attention on the GPUs, which fetch K and V; else where they lie */
    bool hbm_only; /* no KV elsewhere */
    bool dense;    /* all tokens are active */
    bool sorted;   /* tokens are placed by importance at first; else as they come */
    bool swaps;    /* and change tiers later on */
    bool balanced; /* a token that moves goes to the bank group with least to do */
    bool overlap;  /* tiers compute at the same time; else one after the other */
    bool reduces;  /* reduction units; else the partial of every bank leaves its device */
} pam_system;

typedef enum pam_who {
    PAM_VLLM,
    PAM_ATTACC,
    PAM_L_PIM,
    PAM_LS_PIM,
    PAM_PAM,
    PAM_NO_ATTENTION,
    PAM_NO_MAPPING,
    PAM_NO_SCHEDULING,
    PAM_SYSTEMS
} pam_who;

static const pam_system pam_systems[PAM_SYSTEMS] = {
    {"vLLM", true, false, false, false, false, false, false, false},
    {"AttAcc", false, true, true, false, false, false, true, true},
    {"L-PIM", false, false, true, false, false, false, true, true},
    {"LS-PIM", false, false, false, false, false, false, true, true},
    {"PAM", false, false, false, true, true, true, true, true},
    {"no PAMattn", false, false, false, true, true, true, false, false},
    {"no mapping", false, false, false, true, true, false, true, true},
    {"no sched", false, false, false, true, false, true, true, true}};

typedef struct pam_machine {
    pimattn_tier tier[PAM_TIERS];
    double bytes[PAM_TIERS]; /* for KV, HBM with the weights */
    double flops, hbm_Bps;   /* of all GPUs */
} pam_machine;

/* PAM's Table 1 and 7.1, so many times. */
static inline void pam_machine_init(pam_machine *m, uint32_t n_instances)
{
    static const char *const presets[PAM_TIERS] = {"pam-hbm3", "pam-ddr4", "pam-ssd"};
    static const uint32_t n_devices[PAM_TIERS] = {40, 40, 8};
    static const double device_GB[PAM_TIERS] = {16, 32, 8 * 256};
    memset(m, 0, sizeof *m);
    for (int t = 0; t < PAM_TIERS; t++) {
        ex_device(&m->tier[t].device, presets[t], 0, NULL);
        m->tier[t].n_devices = n_devices[t] * n_instances;
        m->bytes[t] = device_GB[t] * 1e9 * m->tier[t].n_devices;
    }
    m->bytes[1] -= 8e9 * n_instances; /* the host's own [PAM 4.2.2] */
    m->flops = PAM_GPUS * PAM_GPU_FLOPS * n_instances;
    m->hbm_Bps = m->tier[0].device.link_MBps * 1e6 * m->tier[0].n_devices;
}

/* -- a step -- */

/* All that is computed once and asked for again. */
typedef struct pam_study {
    pam_assumed by;
    pam_machine machine;
    pam_history histories[PAM_MOST_HISTORIES];
    pam_replay replays[PAM_MOST_REPLAYS];
    pam_use uses[PAM_MOST_REPLAYS];
    double tier_Bps[EX_COUNT(pam_llms)][PAM_TIERS]; /* timed */
    double ratio[EX_COUNT(pam_llms)][PAM_TIERS];    /* x : y : 1 */
    size_t n_histories, n_replays;
} pam_study;

/* One system, model, batch of equal contexts. */
typedef struct pam_case {
    const pam_system *system;
    const pam_llm *llm;
    uint64_t batch, context;
} pam_case;

typedef struct pam_step {
    bool fits;
    double seconds, fc_s, attention_s;
    uint64_t room[PAM_TIERS]; /* tokens of each sequence */
    pam_use use;
    pimattn_step_reading layer; /* of tiers */
} pam_step;

static inline void pam_study_free(pam_study *s)
{
    for (size_t i = 0; i < s->n_histories; i++) {
        free(s->histories[i].importance);
        free(s->histories[i].active);
        free(s->histories[i].order);
    }
    free(s);
}

static inline const pam_history *pam_history_of(pam_study *s, size_t n_tokens, uint64_t seed)
{
    size_t i = 0;
    while (i < s->n_histories &&
           (s->histories[i].n_tokens != n_tokens || s->histories[i].seed != seed))
        i++;
    if (i == PAM_MOST_HISTORIES) ex_die("more than %d traces", (int)PAM_MOST_HISTORIES);
    if (i == s->n_histories) {
        pam_history_make(&s->histories[i], n_tokens, (size_t)s->by.steps, s->by.sparsity,
                         s->by.lambda, seed);
        s->n_histories++;
    }
    return &s->histories[i];
}

static inline pam_use pam_use_of(pam_study *s, const pam_replay *how)
{
    size_t i = 0;
    while (i < s->n_replays && memcmp(&s->replays[i], how, sizeof *how) != 0)
        i++;
    if (i < s->n_replays) return s->uses[i];
    pam_use use = pam_replay_run(how);
    if (i == PAM_MOST_REPLAYS) return use;
    s->replays[i] = *how;
    s->uses[i] = use;
    s->n_replays++;
    return use;
}

/* Tokens of a sequence that each tier has room for; false if they do not fit. */
static inline bool pam_rooms(const pam_study *s, const pam_case *c, uint64_t *room)
{
    const pam_machine *m = &s->machine;
    double token = (double)c->batch * pam_layer_bytes(c->llm) * c->llm->n_layers;
    uint64_t left = c->context;
    if (m->bytes[0] * s->by.hbm_use < c->llm->weight_bytes) return false;
    for (int t = 0; t < PAM_TIERS; t++) {
        double bytes = t == 0 ? m->bytes[0] * s->by.hbm_use - c->llm->weight_bytes : m->bytes[t];
        if (c->system->hbm_only && t > 0) bytes = 0;
        double most = floor(bytes / token);
        room[t] = most < (double)left ? (uint64_t)most : left;
        left -= room[t];
    }
    return left == 0;
}

/* Times a tier's load of so many active tokens, shared out evenly. */
static inline void pam_load(const pam_study *s, const pam_case *c, int t, double active,
                            double crowd, pimattn_tier_load *load, uint64_t **blocks)
{
    pimattn_shape shape = pam_shape(c->llm);
    pimhw_cause why = {{0}};
    uint64_t *tokens = (uint64_t *)ex_alloc(c->batch, sizeof *tokens);
    uint64_t all = (uint64_t)(active * (double)c->batch + 0.5);
    *blocks = (uint64_t *)ex_alloc(c->batch * shape.n_kv_heads, sizeof **blocks);
    for (uint64_t i = 0; i < c->batch; i++)
        tokens[i] = all / c->batch + (i < all % c->batch);
    bool scattered = s->by.scattered > 0 && !c->system->dense;
    if (pimattn_tier_spread(load, *blocks, &s->machine.tier[t], &shape, tokens, c->batch, scattered,
                            &why) != PIMATTN_OK)
        ex_die("load: %s", why.text);
    uint64_t *own = *blocks + (load->n_blocks ? load->blocks - *blocks : 0);
    for (size_t i = 0; i < load->n_blocks && crowd > 1; i++)
        own[i] = (uint64_t)ceil((double)own[i] * crowd);
    if (s->by.queries < 1) load->n_queries = 1;
    load->gqa_flops = s->by.queries > 1;
    free(tokens);
}

/* Moving what a step swaps in one layer, both ways. */
static inline double pam_moves_ns(const pam_study *s, const pam_case *c, const double *swaps)
{
    pimattn_relayout way;
    double ns = 0;
    memset(&way, 0, sizeof way);
    for (int t = 0; t + 1 < PAM_TIERS && s->by.moves > 0; t++)
        for (int up = 0; up < 2; up++) {
            pimattn_relayout_reading r;
            pimhw_cause why = {{0}};
            uint64_t tokens = (uint64_t)ceil(swaps[t] * (double)c->batch);
            uint64_t bytes = tokens * (uint64_t)pam_layer_bytes(c->llm);
            uint64_t runs = s->by.moves > 1 ? tokens : (bytes + 16383) / 16384;
            const pimattn_tier *tier = s->machine.tier;
            if (pimattn_relayout_time(&r, &tier[t + up], &tier[t + 1 - up], &way, bytes, runs,
                                      &why) != PIMATTN_OK)
                ex_die("moves: %s", why.text);
            ns += r.ns;
        }
    return ns;
}

/* Bandwidth of a tier when many tokens of every sequence are active in it, timed. */
static inline double pam_tier_Bps(const pam_study *s, const pam_llm *llm, int t)
{
    pam_case c = {&pam_systems[PAM_PAM], llm, 256, 4096};
    pimattn_shape shape = pam_shape(llm);
    pimattn_tier_load load;
    pimattn_tier_reading r;
    pimhw_cause why = {{0}};
    uint64_t *blocks;
    pam_load(s, &c, t, 512, 1, &load, &blocks);
    if (pimattn_tier_time(&r, &s->machine.tier[t], &shape, &load, &why) != PIMATTN_OK)
        ex_die("tier: %s", why.text);
    free(blocks);
    return (double)r.kv_bytes / r.ns * 1e9;
}

static inline pam_study *pam_study_new(void)
{
    pam_study *s = (pam_study *)ex_alloc(1, sizeof *s);
    pam_machine_init(&s->machine, 1);
    return s;
}

/* Traces stay: only what they are made of must be as before. */
static inline void pam_study_assume(pam_study *s, const pam_assumed *by)
{
    s->by = *by;
    for (size_t i = 0; i < EX_COUNT(pam_llms); i++) {
        double *rate = s->tier_Bps[i];
        for (int t = 0; t < PAM_TIERS; t++)
            rate[t] = pam_tier_Bps(s, &pam_llms[i], t);
        s->ratio[i][0] = by->fastest * rate[0] / (rate[0] + rate[1]);
        s->ratio[i][1] = by->fastest - s->ratio[i][0];
        s->ratio[i][2] = 1;
    }
}

/* Where the active tokens of a sequence are; of dense attention, all. */
static inline pam_use pam_used(pam_study *s, const pam_case *c, const uint64_t *room,
                               const double *ratio)
{
    pam_use use;
    pam_replay how;
    memset(&use, 0, sizeof use);
    memset(&how, 0, sizeof how); /* it is compared as bytes */
    for (int t = 0; t < PAM_TIERS; t++) {
        how.room[t] = room[t];
        if (c->system->swaps) how.ratio[t] = ratio[t];
        how.groups[t] = t < 2 ? s->machine.tier[t].device.n_bank_groups : 1;
        use.active[t] = (double)room[t] / (double)c->context;
        use.crowd[t] = 1;
    }
    if (c->system->dense) return use;
    how.history = pam_history_of(s, c->context, (uint64_t)s->by.seed);
    how.sorted = c->system->sorted;
    how.swaps = c->system->swaps;
    how.balanced = c->system->balanced;
    return pam_use_of(s, &how);
}

/* Attention of a layer in the tiers. */
static inline void pam_attend(const pam_study *s, const pam_case *c, pam_step *step)
{
    pimattn_shape shape = pam_shape(c->llm);
    pimattn_tier tiers[PAM_TIERS];
    pimattn_tier_load loads[PAM_TIERS];
    pimhw_cause why = {{0}};
    uint64_t *blocks[PAM_TIERS];
    double tokens =
        c->system->dense ? (double)c->context : ceil((double)c->context / s->by.sparsity);
    for (int t = 0; t < PAM_TIERS; t++) {
        tiers[t] = s->machine.tier[t];
        if (!c->system->reduces) tiers[t].device.reduction_units = 0;
        pam_load(s, c, t, tokens * step->use.active[t], step->use.crowd[t], &loads[t], &blocks[t]);
    }
    /* moves have the layer's share of the GPUs' work to hide behind, too */
    double moves_ns = pam_moves_ns(s, c, step->use.swaps) - step->fc_s * 1e9 / c->llm->n_layers;
    if (pimattn_step_time(&step->layer, tiers, PAM_TIERS, &shape, loads, fmax(0, moves_ns), true,
                          &why) != PIMATTN_OK)
        ex_die("step: %s", why.text);
    double ns = step->layer.ns;
    for (int t = 0; t < PAM_TIERS && !c->system->overlap; t++)
        ns += step->layer.tiers[t].ns - (t == 0 ? step->layer.attention_ns : 0);
    step->attention_s = ns * c->llm->n_layers / 1e9;
    for (int t = 0; t < PAM_TIERS; t++)
        free(blocks[t]);
}

/* The same on the GPUs. */
static inline double pam_fetch_s(const pam_study *s, const pam_case *c, const uint64_t *room)
{
    double token = (double)c->batch * pam_layer_bytes(c->llm) * c->llm->n_layers;
    double resident = token * (double)room[0] / (s->by.eta_m * s->machine.hbm_Bps);
    double host = token * (double)room[1] / (s->by.pcie_GBps * 1e9);
    double drives = token * (double)room[2] / (s->by.ssd_GBps * 1e9);
    return (resident + fmax(host, drives)) / (s->by.vllm_sparse > 0 ? s->by.sparsity : 1);
}

/* A decode step with these first rooms, whatever the capacity. */
static inline pam_step pam_step_in(pam_study *s, const pam_case *c, const uint64_t *room)
{
    pam_step step;
    memset(&step, 0, sizeof step);
    const pam_machine *m = &s->machine;
    step.fits = true;
    step.fc_s = fmax(2 * c->llm->parameters * (double)c->batch / (s->by.eta_c * m->flops),
                     c->llm->weight_bytes / (s->by.eta_m * m->hbm_Bps));
    memcpy(step.room, room, sizeof step.room);
    if (c->system->gpu) {
        step.attention_s = pam_fetch_s(s, c, room);
    } else {
        step.use = pam_used(s, c, room, s->ratio[c->llm - pam_llms]);
        pam_attend(s, c, &step);
    }
    step.seconds = step.fc_s + step.attention_s;
    return step;
}

static inline pam_step pam_step_of(pam_study *s, pam_who who, size_t llm, uint64_t batch,
                                   double context)
{
    pam_case c = {&pam_systems[who], &pam_llms[llm], batch, (uint64_t)context};
    uint64_t room[PAM_TIERS];
    if (pam_rooms(s, &c, room)) return pam_step_in(s, &c, room);
    pam_step none;
    memset(&none, 0, sizeof none);
    return none;
}

/* Whether a step fits and takes so long at most. */
static inline bool pam_within(const pam_step *step, double limit_s)
{
    return step->fits && step->seconds <= limit_s;
}

/*
 * The largest batch whose step takes so long at most: to 1 in 32, or its step to 1 in 64. *batch
 * is one that does, or 0, and *best its step; both are replaced.
 */
static inline void pam_largest(pam_study *s, pam_who who, size_t llm, double context,
                               double limit_s, uint64_t *batch, pam_step *best)
{
    uint64_t high = *batch > 0 ? 2 * *batch : 1;
    pam_step over = pam_step_of(s, who, llm, high, context);
    for (; pam_within(&over, limit_s); over = pam_step_of(s, who, llm, high, context)) {
        *best = over;
        *batch = high;
        high *= 2;
    }
    while (high - *batch > 1 + *batch / 32 && !(best->seconds > limit_s * 63 / 64)) {
        double wide = (double)(high - *batch), at = 0.5;
        if (over.fits && *batch > 0) /* a step grows nearly as a line does */
            at = (limit_s * 127 / 128 - best->seconds) / (over.seconds - best->seconds);
        uint64_t middle = *batch + (uint64_t)(wide * fmin(fmax(at, 0.05), 0.95) + 0.5);
        middle = middle == *batch ? middle + 1 : middle == high ? high - 1 : middle;
        pam_step step = pam_step_of(s, who, llm, middle, context);
        if (pam_within(&step, limit_s))
            *best = step, *batch = middle;
        else
            over = step, high = middle;
    }
}

#endif
