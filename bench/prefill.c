/* How near to the FMA peak is prefill? 512 new tokens over 4,096 (options change both), causal,
 * (heads, KV heads) = (32,8), head_dim 128, one thread. CSV: median time of the call, GFLOP/s of
 * the products it needs (4 head_dim a query head and visible token), the peak of a loop of nothing
 * but FMAs of the kernel's width in the same round, and the median of their ratio.
 *
 *     prefill [--new N] [--context N] [--rounds N]
 */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, CHUNK = 64, MOST = 8192, PEAK_STEPS = 200000 };

static float rows[2][CHUNK * KV_HEADS * DIM], *q, *out;

typedef struct variant {
    const pimattn_i_kernel *kernel;
    pimattn_engine *e;
    pimattn_item item;
    bench_series call, peak;
} variant;

static void attend(void *user)
{
    variant *v = (variant *)user;
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.q = q, call.items = &v->item, call.n_items = 1;
    v->e->kernel = v->kernel;
    bench_must(pimattn_attend(v->e, 0, &call, NULL) == PIMATTN_OK, "attend");
}

#define PEAK(W, i) a##i = PIMATTN_I_FMA_##W(a##i, x, y);
#define PEAK_LOOP(W)                                                                               \
    PIMATTN_I_PLAIN_##W float peak_##W(void)                                                       \
    {                                                                                              \
        const pimattn_i_v##W x = pimattn_i_set1_##W(0.999f), y = pimattn_i_set1_##W(0.1f);         \
        PIMATTN_I_EACH8(PIMATTN_I_ZERO, W);                                                        \
        for (int n = 0; n < PEAK_STEPS; n++) {                                                     \
            PIMATTN_I_EACH8(PEAK, W);                                                              \
        }                                                                                          \
        a0 = ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7));                                    \
        return a0[0];                                                                              \
    }
#ifdef PIMATTN_I_AVX512
PEAK_LOOP(16)
#endif
#ifdef PIMATTN_I_X86
PEAK_LOOP(8)
#endif
#ifdef PIMATTN_I_NEON
PEAK_LOOP(4)
#endif

static volatile float sink;

static void peak(void *user)
{
    const variant *v = (const variant *)user;
    (void)v;
#ifdef PIMATTN_I_AVX512
    if (!strcmp(v->kernel->name, "avx512")) sink = peak_16();
#endif
#ifdef PIMATTN_I_X86
    if (!strcmp(v->kernel->name, "avx2")) sink = peak_8();
#endif
#ifdef PIMATTN_I_NEON
    if (!strcmp(v->kernel->name, "neon")) sink = peak_4();
#endif
}

static void one_type(uint32_t type, uint32_t context, uint32_t n_new, int rounds)
{
    static variant v[2];
    int n = 0;
    pimattn_config c;
    memset(&c, 0, sizeof c);
    pimattn_shape shape = {.n_layers = 1,
                           .n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .k_type = type,
                           .v_type = type};
    c.shape = shape;
    c.memo_entries = 1;
    pimattn_engine *e = bench_engine(&c);
    pimattn_item item = {0, n_new};
    bench_must(pimattn_seq_create(e, &item.seq) == PIMATTN_OK, "sequence");
    for (uint32_t t = 0; t < context + n_new; t += CHUNK)
        bench_must(pimattn_append(e, item.seq, 0, rows[0], rows[1], CHUNK, 0, 0) == PIMATTN_OK,
                   "append");
    for (uint32_t simd = PIMATTN_SIMD_512; simd > PIMATTN_SIMD_NONE && n < 2; simd--) {
        const pimattn_i_kernel *kernel = pimattn_i_kernel_take(simd);
        if (!kernel->soft || (n > 0 && v[n - 1].kernel == kernel)) continue;
        variant one = {kernel, e, item, {{0}, 0}, {{0}, 0}};
        v[n++] = one;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < n; i++) {
            v[i].call.us[v[i].call.n++] = bench_time(attend, &v[i], NULL);
            v[i].peak.us[v[i].peak.n++] = bench_time(peak, &v[i], NULL);
        }
    double tokens = (double)n_new * context + (double)n_new * (n_new + 1) / 2;
    double flop = tokens * HEADS * 4 * DIM;
    for (int i = 0; i < n; i++) {
        double width = !strcmp(v[i].kernel->name, "avx512") ? 16
                       : v[i].kernel->name[0] == 'a'        ? 8
                                                            : 4;
        double peak_flop = 2.0 * PEAK_STEPS * 8 * width;
        double us = bench_median(v[i].call.us, v[i].call.n);
        double peak_us = bench_median(v[i].peak.us, v[i].peak.n);
        double of_peak = bench_ratio(&v[i].peak, &v[i].call) * flop / peak_flop;
        int n_clean;
        double cv = bench_cv(&v[i].call, &n_clean);
        printf("%s,%u,%u,%s,%.0f,%.1f,%.1f,%.3f,%.3f,%d\n", bench_types[type], context, n_new,
               v[i].kernel->name, us, flop / us * 1e-3, peak_flop / peak_us * 1e-3, of_peak, cv,
               n_clean);
    }
    pimattn_engine_destroy(e);
}

int main(int argc, char **argv)
{
    uint32_t context = 4096, n_new = 512;
    uint32_t rounds = 5;
    bench_takes(argc, argv, 6, "[--new N] [--context N] [--rounds N]");
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--new"))
            n_new = bench_number(argv[i], value, 1, MOST);
        else if (!strcmp(argv[i], "--context"))
            context = bench_number(argv[i], value, 0, MOST);
        else if (!strcmp(argv[i], "--rounds"))
            rounds = bench_number(argv[i], value, 1, BENCH_ROUNDS);
        else {
            fprintf(stderr, "prefill: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if ((context + n_new) % CHUNK) {
        fprintf(stderr, "prefill: --context and --new together are not a multiple of 64\n");
        return 2;
    }
    q = (float *)malloc((size_t)n_new * HEADS * DIM * sizeof *q);
    out = (float *)malloc((size_t)n_new * HEADS * DIM * sizeof *out);
    bench_must(q && out, "memory");
    bench_fill(q, (size_t)n_new * HEADS * DIM, 1);
    bench_fill(rows[0], CHUNK * KV_HEADS * DIM, 2);
    bench_fill(rows[1], CHUNK * KV_HEADS * DIM, 3);
    printf("type,context,new,kernel,us,GFLOPs,peak_GFLOPs,of_peak,cv,clean\n");
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        one_type(type, context, n_new, (int)rounds);
    free(q);
    free(out);
    return bench_done();
}
