/* The same attention by one thread, by a pool of POSIX threads and by an OpenMP loop: same bytes.
 *
 * A parallel_for only has to call fn(arg, index, worker) for every index, with a worker number that
 * no other call has at that moment, and return when all are done. OpenMP where the compiler has it
 * (-fopenmp). */
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "threads"
#include "common.h"
#include "pool.h"

#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, CHUNK = 64, CALLS = 40 };

static float k[CHUNK * KV_HEADS * DIM], v[CHUNK * KV_HEADS * DIM], q[HEADS * DIM];

#ifdef _OPENMP
/* user: how many workers are wanted, and from then on how many there are. */
static void openmp_for(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    int *n_workers = (int *)user;
#pragma omp parallel num_threads(*n_workers)
    {
#pragma omp single nowait
        *n_workers = omp_get_num_threads();
#pragma omp for schedule(dynamic, 1)
        for (long i = 0; i < (long)n; i++)
            fn(arg, (size_t)i, (size_t)omp_get_thread_num());
    }
}
#endif

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Attends to n_tokens tokens; the shortest call in us. */
static double attend(float *out, uint32_t n_tokens, uint32_t n_workers, pimattn_parallel_for loop,
                     void *user)
{
    pimattn_config config = {.shape = {.n_layers = 1,
                                       .n_heads = HEADS,
                                       .n_kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .k_type = PIMATTN_BF16,
                                       .v_type = PIMATTN_BF16},
                             .max_workers = n_workers,
                             .parallel_for = loop,
                             .parallel_user = user};
    pimattn_engine *engine = ex_engine(&config);
    pimattn_seq seq;
    double best = 1e30;
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    for (uint32_t t = 0; t < n_tokens; t += CHUNK) {
        uint32_t n = n_tokens - t < CHUNK ? n_tokens - t : CHUNK;
        fill(k, sizeof k / sizeof *k, 2 * t + 1);
        fill(v, sizeof v / sizeof *v, 2 * t + 2);
        ex_check(engine, "append", pimattn_append(engine, seq, 0, k, v, n, 0, 0));
    }
    for (int i = 0; i < CALLS; i++) {
        double start = now_us();
        ex_check(engine, "attend", pimattn_attend_one(engine, seq, 0, out, q, NULL));
        double us = now_us() - start;
        if (us < best) best = us;
    }
    pimattn_engine_destroy(engine);
    return best;
}

static void report(const char *name, uint32_t n_workers, double us, const float *out,
                   const float *alone)
{
    printf("%-8s %2" PRIu32 " workers  %8.1f us (least of %d)  ", name, n_workers, us, (int)CALLS);
    if (memcmp(out, alone, HEADS * DIM * sizeof *out) != 0) ex_die("%s: other bytes", name);
    printf("same bytes\n");
}

int main(int argc, char **argv)
{
    static float alone[HEADS * DIM], out[HEADS * DIM];
    uint32_t n_workers = 2, n_tokens = 4096;
    const ex_option options[] = {
        {.name = "--workers", .value = "N", .number = &n_workers, .min = 1, .help = "default 2"},
        {.name = "--tokens", .value = "N", .number = &n_tokens, .min = 1, .help = "default 4096"}};
    ex_options(argc, argv,
               "usage: build/threads [options]\n"
               "Decode attention of a Llama-3-8B layer by several threads.",
               options, EX_COUNT(options), NULL, 0);
    if (n_workers > EX_POOL_MOST || n_tokens > 1u << 18)
        ex_die("at most %d workers and 262144 tokens", (int)EX_POOL_MOST);
    fill(q, HEADS * DIM, 99);
    report("alone", 1, attend(alone, n_tokens, 1, NULL, NULL), alone, alone);
    ex_pool pool;
    ex_pool_start(&pool, n_workers);
    report("pool", (uint32_t)pool.n_workers,
           attend(out, n_tokens, (uint32_t)pool.n_workers, ex_pool_for, &pool), out, alone);
    ex_pool_stop(&pool);
#ifdef _OPENMP
    int n_threads = (int)n_workers;
    double us = attend(out, n_tokens, n_workers, openmp_for, &n_threads);
    report("openmp", (uint32_t)n_threads, us, out, alone);
#endif
    return ex_done();
}
