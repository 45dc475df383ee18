/* What do the calls on whole sequences cost? 32 layers, 8 KV heads, pages of 128 tokens. CSV:
 * median and least microseconds of a fork of 32 K tokens, of its end, of truncating it by a page,
 * of remembering and finding 8 K tokens, of accepting 8 of 64 drafts, none of which lies where it
 * goes; of compaction half of whose pages are holes, of moving a sequence out and in: GB/s, and the
 * ratio to copying as many bytes in the same run. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { LAYERS = 32, KV_HEADS = 8, LONG = 32768, PREFIX = 8192, ROUNDS = 40, PAGE = 128 };

static uint32_t tokens[LONG];

typedef struct work {
    pimattn_engine *e;
    pimattn_seq seq, made;
    uint64_t n_known;
    unsigned char *memory;
    uint64_t bytes;
} work;

static pimattn_engine *engine_of(uint32_t dim, uint64_t pool_bytes)
{
    pimattn_config c;
    memset(&c, 0, sizeof c);
    pimattn_shape shape = {.n_layers = LAYERS,
                           .n_heads = KV_HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = dim,
                           .k_type = PIMATTN_F16,
                           .v_type = PIMATTN_F16};
    c.shape = shape;
    c.pool_bytes = pool_bytes;
    c.memo_entries = 1;
    return bench_engine(&c);
}

/* A sequence whose tokens are whatever lay in the pages. */
static pimattn_seq sequence(pimattn_engine *e, uint64_t n_tokens)
{
    pimattn_seq seq;
    bench_must(pimattn_seq_create(e, &seq) == PIMATTN_OK, "sequence");
    bench_must(pimattn_seq_reserve(e, seq, n_tokens) == PIMATTN_OK, "reserve");
    pimattn_i_seq_length(e, pimattn_i_seq_find(e, seq), n_tokens);
    return seq;
}

static void fork_it(void *user)
{
    work *w = (work *)user;
    bench_must(pimattn_seq_fork(w->e, &w->made, w->seq) == PIMATTN_OK, "fork");
}

static void cut_it(void *user)
{
    work *w = (work *)user;
    bench_must(pimattn_seq_truncate(w->e, w->made, LONG - PAGE) == PIMATTN_OK, "truncate");
}

static void end_it(void *user)
{
    work *w = (work *)user;
    bench_must(pimattn_seq_free(w->e, w->made) == PIMATTN_OK, "free");
}

static void remember(void *user)
{
    work *w = (work *)user;
    bench_must(pimattn_prefix_remember(w->e, w->seq, tokens, PREFIX, 0) == PIMATTN_OK, "remember");
}

static void start(void *user)
{
    work *w = (work *)user;
    pimattn_status status = pimattn_prefix_start(w->e, &w->made, tokens, PREFIX, 0, &w->n_known);
    bench_must(status == PIMATTN_OK && w->n_known == PREFIX, "hit");
}

static void line(const char *what, bench_series *s)
{
    printf("%s,%.1f,%.1f,,\n", what, bench_median(s->us, s->n), bench_least(s));
}

static void tables(void)
{
    static bench_series forks, cuts, ends, first, hits;
    work w;
    memset(&w, 0, sizeof w);
    w.e = engine_of(1, (uint64_t)1 << 30); /* tables are alike for any head_dim */
    w.seq = sequence(w.e, LONG);
    for (uint32_t i = 0; i < LONG; i++)
        tokens[i] = i * 2654435761u;
    for (int i = 0; i < ROUNDS; i++) {
        forks.us[forks.n++] = bench_time(fork_it, &w, NULL);
        cuts.us[cuts.n++] = bench_time(cut_it, &w, NULL);
        ends.us[ends.n++] = bench_time(end_it, &w, NULL);
        if (i == 0) first.us[first.n++] = bench_time(remember, &w, NULL);
        hits.us[hits.n++] = bench_time(start, &w, NULL);
        end_it(&w);
    }
    line("fork of 32 K tokens", &forks);
    line("truncate by a page", &cuts);
    line("free of 32 K shared tokens", &ends);
    line("remember 8 K tokens", &first);
    line("start with 8 K known tokens", &hits);
    pimattn_engine_destroy(w.e);
}

/* Rows of 128 dims, in the second cache or beyond. */
static void accepting(void)
{
    enum { DRAFTS = 64, ACCEPTED = 8 };
    static bench_series s;
    uint32_t kept[ACCEPTED];
    pimattn_engine *e = engine_of(128, (uint64_t)1 << 30);
    pimattn_seq seq = sequence(e, 0);
    for (uint32_t i = 0; i < ACCEPTED; i++)
        kept[i] = 7 * i + 3;
    for (uint64_t n = 0; s.n < ROUNDS; n += ACCEPTED) {
        bench_must(pimattn_seq_reserve(e, seq, DRAFTS) == PIMATTN_OK, "reserve");
        pimattn_i_seq_length(e, pimattn_i_seq_find(e, seq), n + DRAFTS);
        double start_us = bench_now_us();
        pimattn_status status = pimattn_seq_accept(e, seq, n, kept, ACCEPTED);
        s.us[s.n++] = bench_now_us() - start_us;
        bench_must(status == PIMATTN_OK, "accept");
    }
    line("accept 8 of 64 drafts", &s);
    pimattn_engine_destroy(e);
}

static void rate(const char *what, double bytes, double us, double copy_us)
{
    printf("%s,%.1f,,%.2f,%.2f\n", what, us, bytes * 1e-3 / us, copy_us / us);
}

/* Pages of two sequences lie in turn; one of them ends, the other moves together. */
static void compaction(void)
{
    enum { SETS = 32 };
    double best = HUGE_VAL, copy = HUGE_VAL;
    uint64_t moved = 0;
    for (int round = 0; round < 5; round++) {
        work w;
        memset(&w, 0, sizeof w);
        w.e = engine_of(128, (uint64_t)1 << 30);
        pimattn_seq holes = sequence(w.e, 0);
        w.seq = sequence(w.e, 0);
        for (uint64_t n = PAGE; n <= SETS / 2 * PAGE; n += PAGE) {
            for (int i = 0; i < 2; i++) {
                pimattn_seq seq = i ? w.seq : holes;
                bench_must(pimattn_seq_reserve(w.e, seq, PAGE) == PIMATTN_OK, "reserve");
                pimattn_i_seq_length(w.e, pimattn_i_seq_find(w.e, seq), n);
            }
        }
        for (uint64_t i = 0; i < w.e->pool.n_slabs; i++)
            memset(w.e->pool.slabs[i], 1, (size_t)pimattn_i_slab_bytes(&w.e->pool, i));
        bench_must(pimattn_seq_free(w.e, holes) == PIMATTN_OK, "free");
        uint64_t slabs = w.e->pool.n_slabs;
        double start_us = bench_now_us(); /* the same bytes, slab by slab, first and last half */
        for (uint64_t i = 0; i < slabs / 4; i++)
            memcpy(w.e->pool.slabs[i], w.e->pool.slabs[slabs - 1 - i],
                   (size_t)pimattn_i_slab_bytes(&w.e->pool, i));
        double us = bench_now_us() - start_us;
        if (us < copy) copy = us;
        /* the free pages were written over: their list goes with compaction anyway */
        start_us = bench_now_us();
        bench_must(pimattn_cache_compact(w.e, &moved) == PIMATTN_OK, "compact");
        us = bench_now_us() - start_us;
        if (us < best) best = us;
        bench_must(w.e->pool.n_slabs == slabs / 2, "compaction to half the slabs");
        bench_must(moved == slabs / 4 * pimattn_i_slab_bytes(&w.e->pool, 0), "half moves");
        pimattn_engine_destroy(w.e);
    }
    rate("compaction", (double)moved, best, copy);
}

static void swapping(void)
{
    double out = HUGE_VAL, in = HUGE_VAL, copy = HUGE_VAL;
    work w;
    memset(&w, 0, sizeof w);
    w.e = engine_of(128, (uint64_t)1 << 30);
    w.seq = sequence(w.e, 16 * PAGE);
    bench_must(pimattn_save(w.e, &w.seq, 1, NULL, &w.bytes) == PIMATTN_OK, "size");
    w.memory = (unsigned char *)malloc(2 * w.bytes);
    bench_must(w.memory != NULL, "memory");
    memset(w.memory, 1, 2 * w.bytes);
    for (int round = 0; round < 5; round++) {
        double t0 = bench_now_us();
        memcpy(w.memory + w.bytes, w.memory, w.bytes);
        double t1 = bench_now_us();
        pimattn_status gone = pimattn_seq_swap_out(w.e, w.seq, w.memory, w.bytes, NULL);
        double t2 = bench_now_us();
        pimattn_status back = pimattn_seq_swap_in(w.e, w.seq, w.memory, w.bytes, NULL);
        double t3 = bench_now_us();
        bench_must(gone == PIMATTN_OK && back == PIMATTN_OK, "swap");
        if (t1 - t0 < copy) copy = t1 - t0;
        if (t2 - t1 < out) out = t2 - t1;
        if (t3 - t2 < in) in = t3 - t2;
    }
    rate("swap out", (double)w.bytes, out, copy);
    rate("swap in", (double)w.bytes, in, copy);
    free(w.memory);
    pimattn_engine_destroy(w.e);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    printf("call,median_us,least_us,GBps,of_copy\n");
    tables();
    accepting();
    compaction();
    swapping();
    return bench_done();
}
