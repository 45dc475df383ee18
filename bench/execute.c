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

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, CHUNK = 1024, RUNS = 3 };

static float k[CHUNK * KV_HEADS * DIM], v[CHUNK * KV_HEADS * DIM], q[HEADS * DIM], out[HEADS * DIM];

static double cpu_us(void)
{
    return bench_clock_us(CLOCK_PROCESS_CPUTIME_ID);
}

/* Least of a few calls. */
static double best_us(pimattn_engine *e, pimattn_seq seq, pimattn_readings *r)
{
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        double start = cpu_us();
        bench_good(pimattn_attend_one(e, seq, 0, out, q, r) == PIMATTN_OK, "attend",
                   pimattn_engine_cause(e));
        double us = cpu_us() - start;
        if (i == 0 || us < best) best = us;
    }
    return best;
}

static void one_case(uint32_t controller, int n_tokens)
{
    pimattn_config c;
    pimattn_seq seq;
    pimattn_readings r;
    pimhw_cause why = {{0}};
    memset(&c, 0, sizeof c);
    c.shape.n_layers = 1;
    c.shape.n_heads = HEADS;
    c.shape.n_kv_heads = KV_HEADS;
    c.shape.head_dim = DIM;
    c.way = PIMATTN_DEVICE;
    c.max_seqs = 1;
    bench_good(pimhw_config_init(&c.device, "aimx", &why) == PIMHW_OK, "preset", why.text);
    c.device.controller = controller;
    pimattn_engine *e = bench_engine(&c);
    bench_must(pimattn_seq_create(e, &seq) == PIMATTN_OK, "sequence");
    bench_fill(q, HEADS * DIM, 1);
    bench_fill(k, CHUNK * KV_HEADS * DIM, 2);
    bench_fill(v, CHUNK * KV_HEADS * DIM, 3);
    for (int t = 0; t < n_tokens; t += CHUNK)
        bench_good(pimattn_append(e, seq, 0, k, v, CHUNK, 0, 0) == PIMATTN_OK, "append",
                   pimattn_engine_cause(e));
    double us = best_us(e, seq, &r), start = cpu_us();
    pimattn_span span = {(uint64_t)n_tokens, 1};
    pimattn_readings alone;
    bench_good(pimattn_estimate(&alone, &c, &span, 1, &why) == PIMATTN_OK, "estimate", why.text);
    double timing = cpu_us() - start;
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
