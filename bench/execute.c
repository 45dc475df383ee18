/* How fast does the modelled device compute, and how much host memory do its banks take?
 *
 * run: attention of one Llama-3-8B layer (32 query heads, 8 KV heads of 128) on preset aimx, way
 * device, under each controller; lane products a second of the call on one core. time: the same
 * call's clocks alone, without values. memory: after 131,072 tokens, the host memory behind the
 * banks over the bytes of K and V.
 * Limits of the library: 200 million MACs/s, memory 1.2.
 *
 * Columns: controller, tokens, million MACs/s executed, us of CPU time of the call, of its timing
 * alone, memory ratio. */
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, CHUNK = 1024, RUNS = 3 };

static float k[CHUNK * KV_HEADS * DIM], v[CHUNK * KV_HEADS * DIM], q[HEADS * DIM], out[HEADS * DIM];

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void fill(float *x, int n, uint32_t *seed)
{
    for (int i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = (float)(*seed >> 8) / 8388608.0f - 1.0f;
    }
}

static void must(bool ok, const pimattn_engine *e, const char *what)
{
    if (ok) return;
    fprintf(stderr, "device: %s: %s\n", what, e ? pimattn_engine_cause(e) : "");
    exit(1);
}

/* Least of a few calls. */
static double best_us(pimattn_engine *e, pimattn_seq seq, pimattn_readings *r)
{
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        double start = now_us();
        must(pimattn_attend_one(e, seq, 0, out, q, r) == PIMATTN_OK, e, "attend");
        double us = now_us() - start;
        if (i == 0 || us < best) best = us;
    }
    return best;
}

static void one_case(uint32_t controller, int n_tokens)
{
    pimattn_config c;
    pimattn_engine *e;
    pimattn_seq seq;
    pimattn_readings r;
    pimhw_cause why = {{0}};
    uint32_t seed = 1;
    memset(&c, 0, sizeof c);
    c.shape.n_layers = 1;
    c.shape.n_heads = HEADS;
    c.shape.n_kv_heads = KV_HEADS;
    c.shape.head_dim = DIM;
    c.way = PIMATTN_DEVICE;
    c.max_seqs = 1;
    pimhw_config_init(&c.device, "aimx", &why);
    c.device.controller = controller;
    must(pimattn_engine_create(&e, &c, &why) == PIMATTN_OK, NULL, why.text);
    must(pimattn_seq_create(e, &seq) == PIMATTN_OK, e, "sequence");
    fill(q, HEADS * DIM, &seed);
    fill(k, CHUNK * KV_HEADS * DIM, &seed);
    fill(v, CHUNK * KV_HEADS * DIM, &seed);
    for (int t = 0; t < n_tokens; t += CHUNK)
        must(pimattn_append(e, seq, 0, k, v, CHUNK, 0, 0) == PIMATTN_OK, e, "append");
    double us = best_us(e, seq, &r), start = now_us();
    pimattn_span span = {(uint64_t)n_tokens, 1};
    pimattn_readings alone;
    must(pimattn_estimate(&alone, &c, &span, 1, &why) == PIMATTN_OK, NULL, why.text);
    double timing = now_us() - start;
    printf("%s,%d,%.0f,%.0f,%.0f,%.3f\n", pimhw_controller_str(controller), n_tokens,
           (double)r.device.macs / us, us, timing, (double)r.memory_bytes / (double)r.kv_bytes);
    pimattn_engine_destroy(e);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    printf("controller,tokens,million_macs_per_s,run_us,time_us,memory_ratio\n");
    for (uint32_t controller = 0; pimhw_controller_str(controller); controller++)
        one_case(controller, 8 * CHUNK);
    one_case(0, 128 * CHUNK);
    return bench_done();
}
