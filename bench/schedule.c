/* What does it cost the host to choose tokens that change places? Three tiers, shares 30/50/20, a
 * million tokens, one core. CSV: microseconds (median and least of the rounds) of the importance
 * update, of the schedule and of both, for scores that no swap would help, for at most 64 moves and
 * for as many as the ratio asks for. The aim is a step in 20 ms. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { TOKENS = 1000000, ROUNDS = 40, MOST = TOKENS };

typedef struct work {
    pimattn_schedule s;
    float *importance, *score;
    uint8_t *tier;
    pimattn_swap *swaps;
    size_t n_swaps;
    uint32_t stop[2];
} work;

static void *take(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);
    bench_must(p != NULL, "memory");
    return p;
}

static void update(void *user)
{
    work *w = (work *)user;
    pimattn_status status = pimattn_importance(w->importance, w->score, TOKENS, TOKENS, 0.6f);
    bench_must(status == PIMATTN_OK, "importance");
}

static void schedule(void *user)
{
    work *w = (work *)user;
    pimattn_status status = pimattn_schedule_swaps(&w->s, w->swaps, &w->n_swaps, w->stop, NULL);
    bench_must(status == PIMATTN_OK, "schedule");
}

static void step(void *user)
{
    update(user);
    schedule(user);
}

/* A new step's scores: log-normal, so that a few tokens hold most of the sum. */
static void draw(work *w, uint32_t *seed)
{
    for (size_t i = 0; i < TOKENS; i++)
        w->score[i] = expf(2 * bench_random(seed));
}

/* Tiers in no order, of the shares the study uses. */
static void place(work *w, uint32_t *seed)
{
    for (size_t i = 0; i < TOKENS; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        uint32_t percent = (*seed >> 8) % 100;
        w->tier[i] = (uint8_t)(percent < 30 ? 0 : percent < 80 ? 1 : 2);
    }
}

static void commit(work *w)
{
    for (size_t i = 0; i < w->n_swaps; i++) {
        w->tier[w->swaps[i].down] = (uint8_t)(w->swaps[i].tier + 1);
        w->tier[w->swaps[i].up] = (uint8_t)w->swaps[i].tier;
    }
}

/* w: what the last step scheduled; NULL: nothing was. */
static void line(const char *what, const work *w, const bench_series *s)
{
    if (w)
        printf("%s,%zu,%s,%s,", what, w->n_swaps, pimattn_stop_str(w->stop[0]),
               pimattn_stop_str(w->stop[1]));
    else
        printf("%s,,,,", what);
    printf("%.0f,%.0f\n", bench_median(s->us, s->n), bench_least(s));
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    static const double even[] = {1, 100, 1e4}, paper[] = {50, 6.25, 1}, steep[] = {444, 57, 1};
    static bench_series updates, met, few, all, first;
    static work w;
    uint32_t seed = 1;
    w.importance = (float *)take(TOKENS, sizeof(float));
    w.score = (float *)take(TOKENS, sizeof(float));
    w.tier = (uint8_t *)take(TOKENS, 1);
    w.swaps = (pimattn_swap *)take(MOST, sizeof(pimattn_swap));
    w.s.scratch = take(pimattn_schedule_bytes(TOKENS), 1);
    w.s.importance = w.importance;
    w.s.tier = w.tier;
    w.s.n_tokens = TOKENS;
    w.s.n_tiers = 3;
    printf("step,swaps,stop 0,stop 1,median us,least us\n");
    for (int i = 0; i < ROUNDS; i++) {
        draw(&w, &seed);
        updates.us[updates.n++] = bench_time(update, &w, NULL);
    }
    line("importance alone", NULL, &updates);
    w.s.ratio = even;
    w.s.n_most = 0;
    place(&w, &seed);
    for (int i = 0; i < ROUNDS; i++) {
        draw(&w, &seed);
        met.us[met.n++] = bench_time(step, &w, NULL);
    }
    line("ratio met", &w, &met);
    w.s.ratio = steep;
    w.s.n_most = 64;
    for (int i = 0; i < ROUNDS; i++) {
        draw(&w, &seed);
        few.us[few.n++] = bench_time(step, &w, NULL);
        commit(&w);
    }
    line("at most 64", &w, &few);
    w.s.ratio = paper;
    w.s.n_most = MOST;
    for (int i = 0; i < ROUNDS; i++) {
        place(&w, &seed);
        draw(&w, &seed);
        first.us[first.n++] = bench_time(step, &w, NULL);
    }
    line("tiers at random", &w, &first);
    for (int i = 0; i < ROUNDS; i++) {
        draw(&w, &seed);
        all.us[all.n++] = bench_time(step, &w, NULL);
        commit(&w);
    }
    line("as many as the ratio asks", &w, &all);
    free(w.importance);
    free(w.score);
    free(w.tier);
    free(w.swaps);
    free(w.s.scratch);
    return bench_done();
}
