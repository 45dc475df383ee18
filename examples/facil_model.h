/* facil_model.h - FACIL's four platforms and the times of its four ways to answer a prompt.
 *
 *     soc      = weights / (u * bandwidth) + 2 * tokens * linear / (eta * flops)
 *     relayout = 2 * weights / (e * bandwidth)             read once, written once
 *     pim      = tokens * weights / (k * bandwidth)        a GEMV for each token
 *     other    = a ninth of soc's memory time: attention, norms: 10 % of a step [FACIL Fig. 2]
 *
 * Include it after pim_hw.h.
 */
#ifndef FACIL_MODEL_H
#define FACIL_MODEL_H

#include <math.h>

enum { FACIL_PLATFORMS = 4, FACIL_MATRICES = 6, FACIL_DRAWS = 64 };

/* rows of 0: none. The last one is the output head, of which a prompt needs one token. */
typedef struct facil_matrix {
    uint32_t rows, columns, times;
} facil_matrix;

/* Exact: [FACIL Table II], utilisation u of VI-C, the worst slowdown of Table III. */
typedef struct facil_platform {
    const char *name, *preset, *model;
    double flops, u, slowdown;
    facil_matrix matrices[FACIL_MATRICES];
} facil_platform;

static const facil_platform facil_platforms[FACIL_PLATFORMS] = {
    {"jetson",
     "lpddr5-jetson",
     "Llama3-8B",
     42.5e12,
     0.763,
     0.021,
     {{4096, 4096, 64},
      {1024, 4096, 64},
      {14336, 4096, 64},
      {4096, 14336, 32},
      {0, 0, 0},
      {128256, 4096, 1}}},
    {"macbook",
     "lpddr5-macbook",
     "Llama3-8B",
     28.4e12,
     0.883,
     0.001,
     {{4096, 4096, 64},
      {1024, 4096, 64},
      {14336, 4096, 64},
      {4096, 14336, 32},
      {0, 0, 0},
      {128256, 4096, 1}}},
    {"ideapad",
     "lpddr5-ideapad",
     "OPT-6.7B",
     5.6e12,
     0.333,
     0.011,
     {{4096, 4096, 128},
      {16384, 4096, 32},
      {4096, 16384, 32},
      {0, 0, 0},
      {0, 0, 0},
      {50272, 4096, 1}}},
    {"iphone",
     "lpddr5-iphone",
     "Phi-1.5",
     4.29e12,
     0.746,
     0.016,
     {{2048, 2048, 96},
      {8192, 2048, 24},
      {2048, 8192, 24},
      {0, 0, 0},
      {0, 0, 0},
      {51200, 2048, 1}}},
};

/* What the paper does not give. */
typedef struct facil_constants {
    double e;   /* re-layout's share of the bandwidth */
    double eta; /* GEMM's share of the peak */
    double k;   /* bandwidth of a GEMV by the units over that of the bus */
} facil_constants;

/* A platform with its numbers: bytes of all weights, parameters of the layers, bytes a second. */
typedef struct facil_times {
    const facil_platform *platform;
    facil_constants by;
    double weights, linear, bandwidth;
} facil_times;

static inline facil_times facil_times_of(const facil_platform *platform, double bandwidth,
                                         facil_constants by)
{
    facil_times t = {platform, by, 0, 0, bandwidth};
    for (int i = 0; i < FACIL_MATRICES; i++) {
        const facil_matrix *m = &platform->matrices[i];
        double n = (double)m->rows * m->columns * m->times;
        t.weights += 2 * n;
        t.linear += i < FACIL_MATRICES - 1 ? n : 0;
    }
    return t;
}

static inline double facil_memory(const facil_times *t)
{
    return t->weights / (t->platform->u * t->bandwidth);
}

static inline double facil_soc(const facil_times *t, double tokens)
{
    return facil_memory(t) + 2 * tokens * t->linear / (t->by.eta * t->platform->flops);
}

static inline double facil_relayout(const facil_times *t)
{
    return 2 * t->weights / (t->by.e * t->bandwidth);
}

static inline double facil_pim(const facil_times *t, double tokens)
{
    return tokens * t->weights / (t->by.k * t->bandwidth);
}

static inline double facil_other(const facil_times *t)
{
    return facil_memory(t) / 9;
}

/* Who answers: FACIL_STATIC hybrid and FACIL as in its Fig. 13; the other two choose SoC or PIM. */
typedef enum facil_way {
    FACIL_STATIC,
    FACIL_DYNAMIC,
    FACIL_SOC,
    FACIL_SHARED,
    FACIL_BEST,
    FACIL_WAYS
} facil_way;

static inline double facil_ttft(const facil_times *t, facil_way way, double tokens)
{
    double soc = facil_soc(t, tokens), shared = soc * (1 + t->platform->slowdown), prompt = soc;
    if (way == FACIL_STATIC || way == FACIL_DYNAMIC) prompt = soc + facil_relayout(t);
    if (way == FACIL_SHARED || way == FACIL_BEST) prompt = shared;
    if (way == FACIL_DYNAMIC || way == FACIL_BEST) prompt = fmin(prompt, facil_pim(t, tokens));
    return prompt + facil_other(t);
}

static inline double facil_ttlt(const facil_times *t, facil_way way, double tokens, double answer)
{
    double step = way == FACIL_SOC ? facil_soc(t, 1) : facil_pim(t, 1);
    return facil_ttft(t, way, tokens) + (answer - 1) * (step + facil_other(t));
}

/* Length number i of FACIL_DRAWS from a log-normal law, at the middle of equal shares of it. */
static inline double facil_length(double median, double sigma, int i)
{
    double share = (i + 0.5) / FACIL_DRAWS, low = -6, high = 6;
    for (int step = 0; step < 60; step++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < share)
            low = middle;
        else
            high = middle;
    }
    return fmax(1, floor(median * exp(sigma * low) + 0.5));
}

#endif
