/* pam_trace.h - scores of tokens over decode steps as PAM assumes them: what mattered in one step
 * still does in the next. Synthetic: no recorded trace is published.
 *
 * The logarithm of a token's score drifts (autoregressive of first order: spread PAM_SPREAD, and
 * PAM_MEMORY of it lasts into the next step); each step adds noise of its own; the scores of a step
 * sum to 1. The numbers were chosen, by others and before, so that PAM's moves per step come out
 * [PAM 6.3.2]: a calibration and no evidence. The same seed gives the same trace.
 */
#ifndef PAM_TRACE_H
#define PAM_TRACE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define PAM_SPREAD 2.0  /* standard deviation of the drifting logarithm: assumed */
#define PAM_MEMORY 0.98 /* its correlation from step to step: assumed */
#define PAM_NOISE  0.3  /* standard deviation of what a step adds: assumed */

typedef struct pam_trace {
    double *log_score; /* [n_tokens], the caller's */
    size_t n_tokens;
    uint64_t state;
} pam_trace;

/* Uniform in (0, 1]: splitmix64. */
static inline double pam_trace_unit(pam_trace *t)
{
    uint64_t z = t->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)((z >> 11) + 1) * (1.0 / 9007199254740992.0);
}

/* Two independent normal numbers [Box and Muller]. */
static inline void pam_trace_normals(pam_trace *t, double *a, double *b)
{
    double radius = sqrt(-2 * log(pam_trace_unit(t)));
    double angle = 6.283185307179586 * pam_trace_unit(t);
    *a = radius * cos(angle);
    *b = radius * sin(angle);
}

/* A trace before its first step; log_score: [n_tokens], its to use. */
static inline void pam_trace_start(pam_trace *t, double *log_score, size_t n_tokens, uint64_t seed)
{
    t->log_score = log_score;
    t->n_tokens = n_tokens;
    t->state = seed;
    for (size_t i = 0; i < n_tokens; i++) {
        double a, unused;
        pam_trace_normals(t, &a, &unused);
        log_score[i] = PAM_SPREAD * a;
    }
}

/* The next step's scores; score: [n_tokens]. */
static inline void pam_trace_step(pam_trace *t, float *score)
{
    double fresh = PAM_SPREAD * sqrt(1 - PAM_MEMORY * PAM_MEMORY), sum = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        double drift, noise;
        pam_trace_normals(t, &drift, &noise);
        t->log_score[i] = PAM_MEMORY * t->log_score[i] + fresh * drift;
        score[i] = (float)exp(t->log_score[i] + PAM_NOISE * noise);
        sum += (double)score[i];
    }
    for (size_t i = 0; i < t->n_tokens; i++)
        score[i] = (float)((double)score[i] / sum);
}

#endif
