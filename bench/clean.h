/* clean.h - what the benches share: the command line, the end of the output, and times of calls
 * that had their core for themselves.
 *
 * Every call is timed alone and counts only if the CPU time of every thread in it is at least
 * 96.5 % of its wall time and a loop of additions before and behind it keeps its pace: where a
 * core is two threads, of which another machine may have one, no clock shows what the other takes.
 * Variants take turns in rounds, so that a ratio is one of the same round; figures are medians.
 */
#ifndef BENCH_CLEAN_H
#define BENCH_CLEAN_H

#ifndef PIMATTN_H
#error "include pimattn.h with PIMATTN_IMPLEMENTATION first"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "../examples/pool.h"

enum { BENCH_ROUNDS = 400, BENCH_WORKERS = 2 };

static inline double bench_clock_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline double bench_now_us(void)
{
    return bench_clock_us(CLOCK_MONOTONIC);
}

static const char *bench_name = "bench"; /* the program's, once it looked at its arguments */

static inline void bench_must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "%s: %s failed\n", bench_name, what);
    exit(1);
}

/* What the library refuses ends the program in its words: sizes it was given are beyond it. */
static inline void bench_good(bool ok, const char *what, const char *why)
{
    if (ok) return;
    fprintf(stderr, "%s: %s: %s\n", bench_name, what, why);
    exit(2);
}

/* Zeros where KV pages lie, too: on huge pages. */
static inline unsigned char *bench_huge(size_t bytes)
{
    const size_t size = (size_t)2 << 20;
    void *at = NULL;
    bytes = (bytes + size - 1) / size * size;
    bench_must(posix_memalign(&at, size, bytes) == 0, "memory");
#ifdef MADV_HUGEPAGE
    (void)madvise(at, bytes, MADV_HUGEPAGE);
#endif
    memset(at, 0, bytes);
    return (unsigned char *)at;
}

static inline pimattn_engine *bench_engine(const pimattn_config *config)
{
    pimattn_engine *e = NULL;
    pimhw_cause why = {{0}};
    bench_good(pimattn_engine_create(&e, config, &why) == PIMATTN_OK, "engine", why.text);
    return e;
}

/* Ends a bench that went well; rows that could not be written did not. */
static inline int bench_done(void)
{
    bench_must(fflush(stdout) == 0 && ferror(stdout) == 0, "writing standard output");
    return 0;
}

/* At most n_most words behind the program's name; --help, anywhere, says which. */
static inline void bench_takes(int argc, char **argv, int n_most, const char *words)
{
    const char *slash = strrchr(argv[0], '/');
    bool help = false;
    bench_name = slash ? slash + 1 : argv[0];
    for (int i = 1; i < argc; i++)
        help = help || strcmp(argv[i], "--help") == 0;
    if (!help && argc - 1 <= n_most) return;
    fprintf(help ? stdout : stderr, "usage: %s %s\n", argv[0], words);
    if (help)
        puts(
            "What is timed, and what the columns say, stands at the head of its source in bench/.\n"
            "nan: no call had its core for itself.");
    exit(help ? bench_done() : 2);
}

/* A number of the command line, or the end of the program. */
static inline uint32_t bench_number(const char *name, const char *text, uint32_t min, uint32_t max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && value >= min && value <= max)
        return (uint32_t)value;
    fprintf(stderr, "%s: %s: '%s' is not a number from %u to %u\n", bench_name, name, text, min,
            max);
    exit(2);
}

/* The times of one variant; NaN: that round's call was disturbed. */
typedef struct bench_series {
    double us[BENCH_ROUNDS];
    int n;
} bench_series;

/* Whether the thread had its core since it began. */
typedef struct bench_watch {
    double cpu_us, wall_us;
} bench_watch;

static inline bench_watch bench_begin(void)
{
    bench_watch w = {bench_clock_us(CLOCK_THREAD_CPUTIME_ID), bench_now_us()};
    return w;
}

static inline bool bench_alone(bench_watch since)
{
    bench_watch now = bench_begin();
    return now.cpu_us - since.cpu_us >= 0.965 * (now.wall_us - since.wall_us) - 0.2;
}

/* The least of three times of a loop of additions; 0 where compilers would not leave it alone. One
 * loop for all who ask: copies of it that lie elsewhere are up to half as fast again. */
#ifdef __GNUC__
static __attribute__((noinline, unused)) double bench_additions_us(void)
{
    double least = 0;
    size_t a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < 3; i++) {
        const double start = bench_now_us();
        for (int j = 0; j < 8000; j++) {
            a++, b++, c++, d++;
            __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
        }
        const double us = bench_now_us() - start;
        if (i == 0 || us < least) least = us;
    }
    return least;
}
#else
static inline double bench_additions_us(void)
{
    return 0;
}
#endif

/* Whether additions take less than 5/4 of the least they took so far: beside another thread of the
 * core they take 1.6 times as long, and rarely anything between (measured on a Zen 4). */
static inline bool bench_in_pace(void)
{
    static double least = 0;
    const double us = bench_additions_us();
    if (least == 0 || us < least) least = us;
    return us <= 1.25 * least;
}

/* Waits a while until they do. */
static inline void bench_settle(void)
{
    const double start = bench_now_us();
    while (!bench_in_pace() && bench_now_us() - start < 20e3)
        continue;
}

/* A parallel_for that also watches every thread. */
typedef struct bench_pool {
    ex_pool pool;
    void (*fn)(void *, size_t, size_t);
    void *arg;
    bool disturbed[BENCH_WORKERS];
} bench_pool;

static inline void bench_pool_item(void *user, size_t index, size_t worker)
{
    bench_pool *p = (bench_pool *)user;
    bench_watch w = bench_begin();
    p->fn(p->arg, index, worker);
    if (!bench_alone(w)) p->disturbed[worker] = true;
}

static inline void bench_pool_for(void *user, size_t n, void (*fn)(void *, size_t, size_t),
                                  void *arg)
{
    bench_pool *p = (bench_pool *)user;
    p->fn = fn;
    p->arg = arg;
    ex_pool_for(&p->pool, n, bench_pool_item, p);
}

/* Times one call; NaN if it was disturbed. */
static inline double bench_time(void (*call)(void *), void *arg, bench_pool *pool)
{
    if (pool) memset(pool->disturbed, 0, sizeof pool->disturbed);
    bench_settle();
    bench_watch w = bench_begin();
    double start = bench_now_us();
    call(arg);
    double us = bench_now_us() - start;
    bool clean = bench_alone(w) && bench_in_pace();
    for (int i = 0; pool && i < BENCH_WORKERS; i++)
        clean = clean && !pool->disturbed[i];
    return clean ? us : (double)NAN;
}

static inline int bench_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the n that are numbers; NaN if there are none. Sorts a copy. */
static inline double bench_median(const double *x, int n)
{
    static double sorted[BENCH_ROUNDS];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) sorted[m++] = x[i];
    qsort(sorted, (size_t)m, sizeof *sorted, bench_by_size);
    return m ? (sorted[m / 2] + sorted[(m - 1) / 2]) / 2 : (double)NAN;
}

/* Median of a / b over the rounds in which both were clean. */
static inline double bench_ratio(const bench_series *a, const bench_series *b)
{
    static double ratio[BENCH_ROUNDS];
    int n = a->n < b->n ? a->n : b->n;
    for (int i = 0; i < n; i++)
        ratio[i] = a->us[i] / b->us[i];
    return bench_median(ratio, n);
}

/* The least of the clean calls; NaN if there are none. */
static inline double bench_least(const bench_series *s)
{
    double least = (double)NAN;
    for (int i = 0; i < s->n; i++)
        least = fmin(least, s->us[i]); /* of a NaN and a number: the number */
    return least;
}

/* Coefficient of variation of the clean calls, and how many there are; NaN if there are none. */
static inline double bench_cv(const bench_series *s, int *n_clean)
{
    double sum = 0, squares = 0;
    *n_clean = 0;
    for (int i = 0; i < s->n; i++) {
        if (isnan(s->us[i])) continue;
        ++*n_clean;
        sum += s->us[i];
        squares += s->us[i] * s->us[i];
    }
    if (*n_clean == 0) return (double)NAN; /* 0 / 0 would be printed as -nan */
    double mean = sum / *n_clean;
    return sqrt(fmax(0, squares / *n_clean - mean * mean)) / mean;
}

static inline float bench_random(uint32_t *seed)
{
    float sum = 0; /* of four uniform numbers: near enough to N(0, 1) */
    for (int i = 0; i < 4; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        sum += (float)(*seed >> 8) / 8388608.0f - 1.0f;
    }
    return sum * 0.866f;
}

static inline void bench_fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = bench_random(&seed);
}

static const char *const bench_types[] = {"f32", "f16", "bf16", "int8"};

#endif
