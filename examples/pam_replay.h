/* pam_replay.h - a synthetic trace of one sequence and layer (pam_trace.h), and in which tiers its
 * tokens lie from step to step: pimattn_schedule_swaps decides. Include it after common.h.
 */
#ifndef PAM_REPLAY_H
#define PAM_REPLAY_H

#include "pam_trace.h"

enum { PAM_TIERS = 3, PAM_MOST_GROUPS = 64 };

/* A trace of one sequence and layer, with what of it does not depend on where tokens lie. */
typedef struct pam_history {
    size_t n_tokens, n_active, n_steps;
    uint64_t seed;
    float *importance;     /* [n_steps][n_tokens] */
    unsigned char *active; /* [n_steps][n_tokens] 0 or 1 */
    uint32_t *order;       /* [n_tokens], the most important first, at step 0 */
} pam_history;

/* The n-th greatest; shuffles x. */
static inline float pam_nth(float *x, size_t n_all, size_t n)
{
    size_t low = 0, high = n_all - 1;
    while (low < high) {
        float pivot = x[(low + high) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i >= j) break;
            float swapped = x[i];
            x[i++] = x[j];
            x[j--] = swapped;
        }
        if (x[j] < pivot) j--;
        if (n - 1 <= j)
            high = j;
        else
            low = j + 1;
    }
    return x[low];
}

typedef struct pam_ranked {
    float importance;
    uint32_t token;
} pam_ranked;

static inline int pam_by_importance(const void *a, const void *b)
{
    const pam_ranked *x = (const pam_ranked *)a, *y = (const pam_ranked *)b;
    if (x->importance != y->importance) return x->importance < y->importance ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static inline void pam_history_rank(pam_history *h)
{
    pam_ranked *ranked = (pam_ranked *)ex_alloc(h->n_tokens, sizeof *ranked);
    for (size_t i = 0; i < h->n_tokens; i++) {
        ranked[i].importance = h->importance[i];
        ranked[i].token = (uint32_t)i;
    }
    qsort(ranked, h->n_tokens, sizeof *ranked, pam_by_importance);
    for (size_t i = 0; i < h->n_tokens; i++)
        h->order[i] = ranked[i].token;
    free(ranked);
}

static inline void pam_history_make(pam_history *h, size_t n_tokens, size_t n_steps,
                                    double sparsity, double lambda, uint64_t seed)
{
    pam_trace trace;
    size_t n = n_tokens;
    double *drift = (double *)ex_alloc(n, sizeof *drift);
    float *score = (float *)ex_alloc(2 * n, sizeof *score), *sorted = score + n;
    h->n_tokens = n;
    h->n_active = (size_t)ceil((double)n / sparsity);
    h->n_steps = n_steps;
    h->seed = seed;
    h->importance = (float *)ex_alloc((uint64_t)n * h->n_steps, sizeof *h->importance);
    h->active = (unsigned char *)ex_alloc((uint64_t)n * h->n_steps, 1);
    h->order = (uint32_t *)ex_alloc(n, sizeof *h->order);
    pam_trace_start(&trace, drift, n, seed);
    for (size_t step = 0; step < h->n_steps; step++) {
        float *now = h->importance + step * n;
        pam_trace_step(&trace, score);
        if (step > 0) memcpy(now, now - n, n * sizeof *now);
        if (pimattn_importance(now, score, n, step ? n : 0, (float)lambda) != PIMATTN_OK)
            ex_die("lambda");
        memcpy(sorted, score, n * sizeof *score);
        float least = pam_nth(sorted, n, h->n_active);
        for (size_t i = 0, left = h->n_active; i < n && left > 0; i++)
            left -= h->active[step * n + i] = score[i] >= least;
    }
    pam_history_rank(h);
    free(drift);
    free(score);
}

/* -- where tokens lie -- */

/* What a replay is of; compared as bytes. */
typedef struct pam_replay {
    const pam_history *history;
    uint64_t room[PAM_TIERS];   /* tokens of a sequence; all fit */
    double ratio[PAM_TIERS];    /* x : y : 1 */
    uint32_t groups[PAM_TIERS]; /* bank groups of a block */
    bool sorted, swaps, balanced;
} pam_replay;

/* And what it gives, in the mean of all steps. */
typedef struct pam_use {
    double active[PAM_TIERS]; /* of the active tokens */
    double crowd[PAM_TIERS];  /* those of the fullest bank group over the mean of all groups */
    double swaps[PAM_TIERS];  /* between tier t and the next */
} pam_use;

/* A replay at some step. */
typedef struct pam_places {
    const pam_replay *how;
    uint8_t *tier, *group;
    uint16_t *window; /* bit i: active i steps ago */
    uint32_t load[PAM_TIERS][PAM_MOST_GROUPS], residents[PAM_TIERS][PAM_MOST_GROUPS];
    uint32_t placed[PIMATTN_TIER_STEPS][PAM_TIERS][PAM_MOST_GROUPS]; /* in the last steps */
} pam_places;

static inline uint32_t pam_ones(uint32_t bits)
{
    uint32_t n = 0;
    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

/* Tiers fill up in order; in each, groups take turns: of idle tokens every rule does that. */
static inline void pam_places_fill(pam_places *p)
{
    uint64_t used = 0;
    uint8_t tier = 0;
    for (size_t i = 0; i < p->how->history->n_tokens; i++, used++) {
        for (; used == p->how->room[tier]; used = 0)
            tier++;
        size_t token = p->how->sorted ? p->how->history->order[i] : i;
        p->tier[token] = tier;
        p->group[token] = (uint8_t)(used % p->how->groups[tier]);
    }
}

/* What the windows of each bank group's tokens hold, and 1 for each placed in the last steps. */
static inline void pam_places_weigh(pam_places *p)
{
    memset(p->load, 0, sizeof p->load);
    memset(p->residents, 0, sizeof p->residents);
    for (size_t i = 0; i < p->how->history->n_tokens; i++) {
        p->residents[p->tier[i]][p->group[i]]++;
        if (p->window[i] != 0) p->load[p->tier[i]][p->group[i]] += pam_ones(p->window[i]);
    }
    for (int ago = 0; ago < PIMATTN_TIER_STEPS; ago++)
        for (int t = 0; t < PAM_TIERS; t++)
            for (uint32_t g = 0; g < p->how->groups[t]; g++)
                p->load[t][g] += p->placed[ago][t][g];
}

/* Counts a step's active tokens by bank group. */
static inline void pam_places_count(const pam_places *p, size_t step, pam_use *use)
{
    uint32_t now[PAM_TIERS][PAM_MOST_GROUPS];
    size_t n = p->how->history->n_tokens;
    const unsigned char *active = p->how->history->active + step * n;
    memset(now, 0, sizeof now);
    for (size_t i = 0; i < n; i++) {
        p->window[i] = (uint16_t)((p->window[i] << 1 | active[i]) & 1023);
        now[p->tier[i]][p->group[i]] += active[i];
    }
    for (int t = 0; t < PAM_TIERS; t++) {
        uint32_t most = 0;
        for (uint32_t g = 0; g < p->how->groups[t]; g++) {
            use->active[t] += now[t][g];
            most = now[t][g] > most ? now[t][g] : most;
        }
        use->crowd[t] += most;
    }
}

/* Of two bank groups of a tier the one with less in its window, then with fewer tokens. */
static inline uint32_t pam_places_better(const pam_places *p, uint32_t tier, uint32_t a, uint32_t b)
{
    const uint32_t *load = p->load[tier], *residents = p->residents[tier];
    if (load[a] != load[b]) return load[a] < load[b] ? a : b;
    return residents[a] <= residents[b] ? a : b;
}

/*
 * Two tokens change tiers: each into the other's place, or into the bank group with least in its
 * window, where it weighs 1 more than its own [PAM 6.1]; groups are taken to have room.
 */
static inline void pam_places_swap(pam_places *p, size_t step, const pimattn_swap *swap)
{
    uint32_t token[2] = {swap->down, swap->up}, best[2], weight[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t group = p->group[token[i]];
        best[1 - i] = group;
        weight[i] = pam_ones(p->window[token[i]]);
        p->load[swap->tier + i][group] -= weight[i];
        p->residents[swap->tier + i][group]--;
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t to = swap->tier + 1 - i;
        for (uint32_t g = 0; g < p->how->groups[to] && p->how->balanced; g++)
            best[i] = pam_places_better(p, to, g > 0 ? best[i] : 0, g);
        p->load[to][best[i]] += weight[i] + 1;
        p->residents[to][best[i]]++;
        p->placed[step % PIMATTN_TIER_STEPS][to][best[i]]++;
        p->group[token[i]] = (uint8_t)best[i];
        p->tier[token[i]] = (uint8_t)to;
    }
}

static inline void pam_places_schedule(pam_places *p, size_t step, pam_use *use, void *scratch,
                                       pimattn_swap *swaps)
{
    const pam_history *h = p->how->history;
    pimattn_schedule s;
    pimhw_cause why = {{0}};
    size_t n_swaps;
    uint32_t stop[PAM_TIERS];
    memset(&s, 0, sizeof s);
    s.importance = h->importance + step * h->n_tokens;
    s.tier = p->tier;
    s.n_tokens = h->n_tokens;
    s.ratio = p->how->ratio;
    s.n_tiers = PAM_TIERS;
    s.n_most = h->n_tokens;
    s.scratch = scratch;
    if (pimattn_schedule_swaps(&s, swaps, &n_swaps, stop, &why) != PIMATTN_OK)
        ex_die("swaps: %s", why.text);
    memset(p->placed[step % PIMATTN_TIER_STEPS], 0, sizeof p->placed[0]);
    if (n_swaps > 0 && p->how->balanced) pam_places_weigh(p);
    for (size_t i = 0; i < n_swaps; i++) {
        pam_places_swap(p, step, &swaps[i]);
        use->swaps[swaps[i].tier]++;
    }
}

/* All steps: what is active where, then swaps. A step's sums are rounded once, at the end. */
static inline pam_use pam_replay_run(const pam_replay *how)
{
    const pam_history *h = how->history;
    pam_use use;
    pam_places p;
    memset(&use, 0, sizeof use);
    memset(&p, 0, sizeof p);
    p.how = how;
    p.tier = (uint8_t *)ex_alloc(h->n_tokens, 2);
    p.group = p.tier + h->n_tokens;
    p.window = (uint16_t *)ex_alloc(h->n_tokens, sizeof *p.window);
    void *scratch = ex_alloc(pimattn_schedule_bytes(h->n_tokens), 1);
    pimattn_swap *swaps = (pimattn_swap *)ex_alloc(h->n_tokens, sizeof *swaps);
    pam_places_fill(&p);
    for (size_t step = 0; step < h->n_steps; step++) {
        pam_places_count(&p, step, &use);
        if (how->swaps) pam_places_schedule(&p, step, &use, scratch, swaps);
    }
    for (int t = 0; t < PAM_TIERS; t++) {
        use.crowd[t] = use.active[t] > 0 ? use.crowd[t] * how->groups[t] / use.active[t] : 1;
        use.active[t] /= (double)h->n_active * (double)h->n_steps;
        use.swaps[t] /= (double)h->n_steps;
    }
    free(p.tier);
    free(p.window);
    free(scratch);
    free(swaps);
    return use;
}

#endif
