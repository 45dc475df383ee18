/* What does appending a token cost beside a plain copy of its bytes? (32,8) heads of 128; every
 * append goes to another of 256 layers, whose pages are in no cache then. CSV: median microseconds
 * of one append and of copying as many bytes, already in the cache's type, of int8 with scales, to
 * the same kind of places known beforehand; and the median ratio of the rounds. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, LAYERS = 256, ROUNDS = 60, ROOM = 4 * ROUNDS + 2 };

static float k[KV_HEADS * DIM], v[KV_HEADS * DIM];

typedef struct work {
    pimattn_engine *e;
    pimattn_seq seq;
    unsigned char *to[LAYERS][KV_HEADS][2], *scale_to[LAYERS][KV_HEADS][2];
    size_t row_bytes;
    bool scaled;
} work;

static void append(void *user)
{
    work *w = (work *)user;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        bench_must(pimattn_append(w->e, w->seq, layer, k, v, 1, 0, 0) == PIMATTN_OK, "append");
}

static void copy(void *user)
{
    work *w = (work *)user;
    const unsigned char *from[2] = {(const unsigned char *)k, (const unsigned char *)v};
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t h = 0; h < KV_HEADS; h++)
            for (int i = 0; i < 2; i++)
                memcpy(w->to[layer][h][i], from[i] + h * w->row_bytes, w->row_bytes);
        for (uint32_t h = 0; h < KV_HEADS && w->scaled; h++)
            for (int i = 0; i < 2; i++)
                memcpy(w->scale_to[layer][h][i], from[i], sizeof(float));
    }
}

/* Where the next token goes. */
static void find(work *w)
{
    const pimattn_i_layout *lay = &w->e->layout;
    const pimattn_i_seq *s = pimattn_i_seq_find(w->e, w->seq);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t h = 0; h < KV_HEADS; h++) {
            uint64_t at;
            unsigned char *run = pimattn_i_run(&w->e->pool, s, layer, h, s->tokens[layer], &at);
            w->to[layer][h][0] = run + at * lay->row[0];
            w->to[layer][h][1] = run + lay->offset[1] + at * lay->row[1];
            w->scale_to[layer][h][0] = run + lay->offset[2] + at * sizeof(float);
            w->scale_to[layer][h][1] = run + lay->offset[3] + at * sizeof(float);
        }
}

static void one_type(uint32_t type, uint32_t simd)
{
    static work w;
    static bench_series appends, copies;
    pimattn_config c;
    appends.n = copies.n = 0;
    memset(&c, 0, sizeof c);
    pimattn_shape shape = {.n_layers = LAYERS,
                           .n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .k_type = type,
                           .v_type = type};
    c.shape = shape;
    c.simd = simd;
    c.memo_entries = 1;
    w.e = bench_engine(&c);
    bench_must(pimattn_seq_create(w.e, &w.seq) == PIMATTN_OK, "sequence");
    bench_must(pimattn_seq_reserve(w.e, w.seq, ROOM) == PIMATTN_OK, "reserve");
    w.row_bytes = (size_t)w.e->layout.row[0];
    w.scaled = type == PIMATTN_INT8;
    for (uint32_t i = 0; i < w.e->pool.n_slabs; i++)
        memset(w.e->pool.slabs[i], 0, (size_t)pimattn_i_slab_bytes(&w.e->pool, i));
    for (int round = 0; round < ROUNDS; round++) {
        append(&w); /* before either the same */
        appends.us[appends.n++] = bench_time(append, &w, NULL);
        append(&w);
        find(&w);
        copies.us[copies.n++] = bench_time(copy, &w, NULL);
        append(&w); /* over what the copy wrote */
    }
    int n_clean;
    double cv = bench_cv(&appends, &n_clean);
    printf("%s,%s,%zu,%.3f,%.3f,%.2f,%.3f,%d\n", bench_types[type], w.e->kernel->name,
           2 * KV_HEADS * (w.row_bytes + (w.scaled ? sizeof(float) : 0)),
           bench_median(appends.us, appends.n) / LAYERS, bench_median(copies.us, copies.n) / LAYERS,
           bench_ratio(&appends, &copies), cv, n_clean);
    pimattn_engine_destroy(w.e);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    bench_fill(k, KV_HEADS * DIM, 1);
    bench_fill(v, KV_HEADS * DIM, 2);
    printf("type,kernel,bytes,append_us,copy_us,ratio,cv,clean\n");
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t simd = PIMATTN_SIMD_512; simd >= PIMATTN_SIMD_NONE; simd--)
            one_type(type, simd);
    return bench_done();
}
