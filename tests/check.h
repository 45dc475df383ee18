/* check.h - the harness of every test: C99 and libc only.
 *
 *     static void rows_add_up(void) { CHECK_U(1 + 1, 2); }
 *     int main(void) { RUN(rows_add_up); return check_end(); }
 *
 * Counts are per RUN. A failed CHECK marks its test and goes on; ten are printed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_PRINTED = 10 };

typedef struct check_tally {
    unsigned n_passed, n_failed, n_skipped;
    unsigned n_errors; /* of the running test */
    bool skipped;
    const char *name;
} check_tally;

static check_tally check_now;

/* True if this failure is still to be printed; the place is then on the line. */
static inline bool check_fail(const char *file, int line, const char *what)
{
    check_now.n_errors++;
    if (check_now.n_errors == CHECK_PRINTED + 1) printf("  ..\n");
    if (check_now.n_errors > CHECK_PRINTED) return false;
    printf("%s:%d: %s: %s", file, line, check_now.name ? check_now.name : "?", what);
    return true;
}

static inline bool check_true(bool ok, const char *what, const char *file, int line)
{
    if (!ok && check_fail(file, line, what)) printf("\n");
    return ok;
}

static inline bool check_u(uint64_t a, uint64_t b, const char *what, const char *file, int line)
{
    if (a != b && check_fail(file, line, what))
        printf(": %llu, want %llu\n", (unsigned long long)a, (unsigned long long)b);
    return a == b;
}

/* |a - b| <= bound; a NaN fails. */
static inline bool check_near(double a, double b, double bound, const char *what, const char *file,
                              int line)
{
    bool ok = a == b || fabs(a - b) <= bound;
    if (!ok && check_fail(file, line, what))
        printf(": %.9g, want %.9g, off by %.3g, allowed %.3g\n", a, b, fabs(a - b), bound);
    return ok;
}

static inline bool check_str(const char *a, const char *b, const char *what, const char *file,
                             int line)
{
    bool ok = a && b && strcmp(a, b) == 0;
    if (!ok && check_fail(file, line, what))
        printf(": \"%s\", want \"%s\"\n", a ? a : "(null)", b ? b : "(null)");
    return ok;
}

/* a holds the words of part. */
static inline bool check_has(const char *a, const char *part, const char *what, const char *file,
                             int line)
{
    bool ok = a && strstr(a, part);
    if (!ok && check_fail(file, line, what))
        printf(": \"%s\" lacks \"%s\"\n", a ? a : "(null)", part);
    return ok;
}

static inline bool check_bytes(const void *a, const void *b, size_t bytes, const char *what,
                               const char *file, int line)
{
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    for (size_t i = 0; i < bytes; i++) {
        if (x[i] == y[i]) continue;
        if (check_fail(file, line, what))
            printf(": byte %zu of %zu is %02x, want %02x\n", i, bytes, x[i], y[i]);
        return false;
    }
    return true;
}

/* All give true if they hold, so that a test can leave early. */
#define CHECK(x)      check_true((x) ? true : false, #x, __FILE__, __LINE__)
#define CHECK_U(a, b) check_u((uint64_t)(a), (uint64_t)(b), #a, __FILE__, __LINE__)
#define CHECK_NEAR(a, b, tol)                                                                      \
    check_near((double)(a), (double)(b), (double)(tol), #a, __FILE__, __LINE__)
#define CHECK_STR(a, b)      check_str((a), (b), #a, __FILE__, __LINE__)
#define CHECK_HAS(a, part)   check_has((a), (part), #a, __FILE__, __LINE__)
#define CHECK_BYTES(a, b, n) check_bytes((a), (b), (n), #a, __FILE__, __LINE__)

/* The running test does not apply here; return after it. */
static inline void skip(const char *reason)
{
    check_now.skipped = true;
    printf("skipped %s: %s\n", check_now.name, reason);
}

static inline void check_run(const char *name, void (*test)(void))
{
    check_now.name = name;
    check_now.n_errors = 0;
    check_now.skipped = false;
    test();
    if (check_now.n_errors) {
        check_now.n_failed++;
        printf("failed %s: %u errors\n", name, check_now.n_errors);
    } else if (check_now.skipped) {
        check_now.n_skipped++;
    } else {
        check_now.n_passed++;
    }
    fflush(stdout);
}

#define RUN(test) check_run(#test, test)

/* The last line of a test program, and its exit status. */
static inline int check_end(void)
{
    printf("%u passed, %u failed, %u skipped\n", check_now.n_passed, check_now.n_failed,
           check_now.n_skipped);
    return check_now.n_failed ? 1 : 0;
}

/* malloc that ends the program; for the tests' own data. */
static inline void *check_alloc(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes ? bytes : 1);
    if (!p) {
        printf("test out of memory\n");
        exit(1);
    }
    return p;
}

/* --------------------------------------------------------------------------
 * An allocator that counts, fails at a chosen call and poisons what it gives.
 * pimhw_allocator a = {heap_alloc, heap_release, &heap};
 * -------------------------------------------------------------------------- */

typedef struct check_heap {
    uint64_t n_calls; /* allocations asked for */
    uint64_t fail_at; /* this one fails, counted from 1; 0: none */
    bool fail_after;  /* all later ones fail too */
    uint64_t n_live;
    uint64_t live_bytes;
    uint64_t peak_bytes;
    uint64_t n_wrong; /* releases with wrong bytes, or of nothing */
} check_heap;

/* 0xff makes every float, half and double a NaN. What is given back is poisoned where it begins. */
enum { HEAP_POISON = 0xff, HEAP_HEADER = 64, HEAP_FREED = 1 << 16 };

static inline void *heap_alloc(void *user, size_t bytes, size_t align)
{
    check_heap *heap = (check_heap *)user;
    heap->n_calls++;
    if (heap->n_calls == heap->fail_at) return NULL;
    if (heap->fail_after && heap->fail_at && heap->n_calls > heap->fail_at) return NULL;
    if (align == 0 || (align & (align - 1))) heap->n_wrong++;
    if (bytes > SIZE_MAX - align - HEAP_HEADER) return NULL;
    unsigned char *raw = (unsigned char *)malloc(bytes + align + HEAP_HEADER);
    if (!raw) return NULL;
    uintptr_t past = (uintptr_t)raw + HEAP_HEADER;
    size_t shift = HEAP_HEADER + (size_t)(align - past % align) % align;
    unsigned char *p = raw + shift;
    uint64_t note[2] = {shift, bytes};
    memcpy(p - sizeof note, note, sizeof note);
    memset(p, HEAP_POISON, bytes);
    heap->n_live++;
    heap->live_bytes += bytes;
    if (heap->live_bytes > heap->peak_bytes) heap->peak_bytes = heap->live_bytes;
    return p;
}

static inline void heap_release(void *user, void *ptr, size_t bytes)
{
    check_heap *heap = (check_heap *)user;
    if (!ptr) return;
    uint64_t note[2];
    unsigned char *p = (unsigned char *)ptr;
    memcpy(note, p - sizeof note, sizeof note);
    if (note[1] != bytes || heap->n_live == 0) heap->n_wrong++;
    heap->n_live--;
    heap->live_bytes -= note[1];
    memset(p, HEAP_POISON, note[1] < HEAP_FREED ? (size_t)note[1] : HEAP_FREED);
    free(p - note[0]);
}

/* --------------------------------------------------------------------------
 * Random numbers: splitmix64.
 * -------------------------------------------------------------------------- */

typedef struct check_rng {
    uint64_t state;
} check_rng;

static inline uint64_t rng_u64(check_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* first to last, both included. */
static inline uint64_t rng_range(check_rng *rng, uint64_t first, uint64_t last)
{
    uint64_t n = last - first + 1;
    return n ? first + rng_u64(rng) % n : rng_u64(rng);
}

/* Uniform in [0, 1). */
static inline double rng_unit(check_rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

static inline float rng_float(check_rng *rng, double low, double high)
{
    return (float)(low + (high - low) * rng_unit(rng));
}

/* Mean 0, variance 1 (twelve uniforms: no libm, so the same everywhere). */
static inline float rng_normal(check_rng *rng)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rng_unit(rng);
    return (float)sum;
}

#endif
