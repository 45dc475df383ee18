/* What do readings cost the host? One Llama-3-8B layer (32 query heads, 8 KV heads of 128).
 *
 * decode: steps of 32 layers at 4,096 tokens, each step one token longer; every attend once
 * without and once with readings. unseen: one layer, from 16 tokens on, each step one token longer
 * than any before; median of the steps. first: the first step of an engine; median of engines.
 * remembered: one length again and again, calls in turn, medians.
 * Host microseconds. What we want: ratio at most 1.05, remembered 1.02, unseen and first extra_us
 * 20. */
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, TOKENS = 4096, STEPS = 2, LAYERS = 32, UNSEEN = 64 };

static float k[KV_HEADS * DIM], v[KV_HEADS * DIM], q[HEADS * DIM], out[HEADS * DIM];

static pimattn_engine *engine_of(const char *preset, uint32_t partition, uint32_t memo_entries)
{
    pimattn_config c;
    pimhw_cause why;
    memset(&c, 0, sizeof c);
    c.shape.n_layers = 1;
    c.shape.n_heads = HEADS;
    c.shape.n_kv_heads = KV_HEADS;
    c.shape.head_dim = DIM;
    c.partition = partition;
    c.memo_entries = memo_entries;
    bench_good(pimhw_config_init(&c.device, preset, &why) == PIMHW_OK, "preset", why.text);
    return bench_engine(&c);
}

static pimattn_seq sequence(pimattn_engine *e, int n_tokens)
{
    pimattn_seq s;
    bench_fill(q, HEADS * DIM, 1);
    bench_must(pimattn_seq_create(e, &s) == PIMATTN_OK, "sequence");
    for (int t = 0; t < n_tokens; t++) {
        bench_fill(k, KV_HEADS * DIM, 2 * (uint32_t)t);
        bench_fill(v, KV_HEADS * DIM, 2 * (uint32_t)t + 1);
        bench_must(pimattn_append(e, s, 0, k, v, 1, 0, 0) == PIMATTN_OK, "append");
    }
    return s;
}

static double attend_us(pimattn_engine *e, pimattn_seq s, pimattn_readings *r)
{
    bench_settle();
    double start = bench_now_us();
    bench_must(pimattn_attend_one(e, s, 0, out, q, r) == PIMATTN_OK, "attend");
    return bench_now_us() - start;
}

static void print(const char *what, const char *preset, uint32_t partition, int tokens,
                  double without, double with)
{
    printf("%s,%s,%s,%d,%.2f,%.2f,%.2f,%.4f\n", what, preset, partition ? "hfp" : "tcp", tokens,
           without, with, with - without, with / without);
}

static void decode(const char *preset, uint32_t partition)
{
    pimattn_engine *e = engine_of(preset, partition, 0);
    pimattn_seq s = sequence(e, TOKENS - 1);
    pimattn_readings r;
    double without = 0, with = 0;
    attend_us(e, s, NULL);
    for (int step = 0; step < STEPS; step++) {
        bench_must(pimattn_append(e, s, 0, k, v, 1, 0, 0) == PIMATTN_OK, "append");
        for (int layer = 0; layer < LAYERS; layer++) {
            if (layer % 2) with += attend_us(e, s, &r);
            without += attend_us(e, s, NULL);
            if (layer % 2 == 0) with += attend_us(e, s, &r);
            bench_must(r.remembered == (layer > 0), "memo");
        }
    }
    print("decode", preset, partition, TOKENS, without / STEPS, with / STEPS);
    pimattn_engine_destroy(e);
}

static void unseen(const char *preset, uint32_t partition)
{
    static double without[UNSEEN], with[UNSEEN];
    pimattn_readings r;
    pimattn_engine *e = engine_of(preset, partition, 0);
    pimattn_seq s = sequence(e, 15);
    for (int i = 0; i < UNSEEN; i++) {
        bench_must(pimattn_append(e, s, 0, k, v, 1, 0, 0) == PIMATTN_OK, "append");
        without[i] = attend_us(e, s, NULL);
        with[i] = attend_us(e, s, &r);
        bench_must(!r.remembered, "a new length");
    }
    print("unseen", preset, partition, 16, bench_median(without, UNSEEN),
          bench_median(with, UNSEEN));
    pimattn_engine_destroy(e);
    for (int i = 0; i < UNSEEN; i++) {
        e = engine_of(preset, partition, 0);
        s = sequence(e, 16);
        attend_us(e, s, NULL);
        without[i] = attend_us(e, s, NULL);
        with[i] = attend_us(e, s, &r);
        pimattn_engine_destroy(e);
    }
    print("first", preset, partition, 16, bench_median(without, UNSEEN),
          bench_median(with, UNSEEN));
}

static void remembered(int n_tokens)
{
    static double without[UNSEEN], with[UNSEEN];
    pimattn_engine *e = engine_of("aimx", PIMATTN_TCP, 0);
    pimattn_seq s = sequence(e, n_tokens);
    pimattn_readings r;
    attend_us(e, s, &r);
    for (int i = 0; i < UNSEEN; i++) {
        without[i] = attend_us(e, s, NULL);
        with[i] = attend_us(e, s, &r);
    }
    print("remembered", "aimx", PIMATTN_TCP, n_tokens, bench_median(without, UNSEEN),
          bench_median(with, UNSEEN));
    pimattn_engine_destroy(e);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    static const char *const presets[] = {"aimx", "aim-gddr6"};
    printf("case,device,partition,tokens,without_us,with_us,extra_us,ratio\n");
    for (int i = 0; i < 4; i++)
        unseen(presets[i / 2], (uint32_t)i % 2);
    remembered(128);
    remembered(TOKENS);
    decode("aimx", PIMATTN_TCP);
    decode("aimx", PIMATTN_HFP);
    return bench_done();
}
