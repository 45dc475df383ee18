/* What does attention over pages of the caller cost beside that over the cache's own? One query
 * token, 8 KV heads, shuffled pages, K and V cold: calls go round over layers of 256 MiB and more.
 * The caller's K and V are two arrays, [page][head][token] (hnd) or [page][token][head] (nhd), in
 * memory that begins and is advised as the cache's slabs are. CSV: median microseconds, the median
 * ratio to the cache in the same round, coefficient of variation, clean calls.
 *
 *     pages [tokens, default 4096] [tokens of a page, default 128] [rounds, default 40]
 *           [query heads of a KV head, default 4] [head_dim, default 128] */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum {
    MOST_GROUP = 16,
    KV_HEADS = 8,
    MOST_DIM = 256,
    FILL_ROWS = 64,
    MOST_TOKENS = 131072,
    N_HOW = 3
};

static const uint64_t cold_bytes = (uint64_t)256 << 20;
static const char *const hows[N_HOW] = {"cache", "hnd", "nhd"};
static float q[MOST_GROUP * KV_HEADS * MOST_DIM], out[MOST_GROUP * KV_HEADS * MOST_DIM];
static float rows[2][FILL_ROWS * KV_HEADS * MOST_DIM];
static uint32_t dim = 128;

typedef struct work {
    pimattn_engine *e;
    pimattn_seq seq;
    pimattn_pages pages;
    uint32_t *table; /* [layers][pages of a layer] */
    uint32_t n_layers, layer, n_tokens;
    size_t row_bytes, layer_pages;
    unsigned char *memory[4]; /* k, v, their scales */
    uint32_t how;
} work;

static void run(void *user)
{
    work *w = (work *)user;
    pimattn_item item = {w->seq, 1};
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out, call.q = q, call.items = &item, call.n_items = 1;
    w->layer = (w->layer + 1) % w->n_layers;
    w->pages.table = w->table + w->layer * w->layer_pages;
    pimattn_status status = w->how ? pimattn_attend_pages(w->e, w->layer, &w->pages, &call, NULL)
                                   : pimattn_attend(w->e, w->layer, &call, NULL);
    bench_must(status == PIMATTN_OK, "attend");
}

static void order(work *w, uint32_t how)
{
    pimattn_rows *to[4] = {&w->pages.k, &w->pages.v, &w->pages.k_scale, &w->pages.v_scale};
    w->pages.order = how == 2 ? PIMATTN_NHD : PIMATTN_HND;
    for (int i = 0; i < 4; i++) {
        memset(to[i], 0, sizeof *to[i]);
        if (i < 2 || w->row_bytes == dim) to[i]->at = w->memory[i]; /* int8 alone has scales */
    }
    w->how = how;
}

/* The cache, from its pages shuffled by short sequences freed in no order. */
static void fill_cache(work *w, uint32_t page_tokens)
{
    uint32_t n = (uint32_t)w->layer_pages, seed = 7;
    pimattn_seq *all = (pimattn_seq *)malloc(n * sizeof *all);
    bench_must(all != NULL, "memory");
    for (uint32_t i = 0; i < n; i++) {
        bench_must(pimattn_seq_create(w->e, &all[i]) == PIMATTN_OK, "create");
        bench_good(pimattn_seq_reserve(w->e, all[i], page_tokens) == PIMATTN_OK, "reserve",
                   pimattn_engine_cause(w->e));
    }
    for (uint32_t i = n; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t j = (uint32_t)((uint64_t)(seed >> 8) * i >> 24);
        bench_must(pimattn_seq_free(w->e, all[j]) == PIMATTN_OK, "free");
        all[j] = all[i - 1];
    }
    free(all);
    bench_must(pimattn_seq_create(w->e, &w->seq) == PIMATTN_OK, "create");
    for (uint32_t layer = 0; layer < w->n_layers; layer++)
        for (uint32_t t = 0; t < w->n_tokens; t += FILL_ROWS)
            bench_must(pimattn_append(w->e, w->seq, layer, rows[0], rows[1], FILL_ROWS, 0, 0) ==
                           PIMATTN_OK,
                       "append");
}

/* The caller's pages: bytes of no meaning but small ones, in page numbers dealt out. */
static void fill_pages(work *w, uint32_t page_tokens, uint32_t type)
{
    size_t n = w->layer_pages * w->n_layers;
    size_t bytes = n * page_tokens * KV_HEADS * w->row_bytes;
    float *scale;
    for (int i = 0; i < 4; i++)
        w->memory[i] = bench_huge(i < 2 ? bytes : n * page_tokens * KV_HEADS * sizeof *scale);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at + w->row_bytes <= bytes; at += w->row_bytes) {
            const pimattn_i_row row = {w->memory[i] + at, (const unsigned char *)rows[i], 30};
            pimattn_i_kernel_scalar.store(&row, 1, type, dim);
        }
    scale = (float *)(void *)w->memory[2];
    for (size_t i = 0; i < n * page_tokens * KV_HEADS; i++)
        scale[i] = ((float *)(void *)w->memory[3])[i] = 0.03f;
    w->table = (uint32_t *)malloc(n * sizeof *w->table);
    bench_must(w->table != NULL, "memory");
    uint32_t seed = 9;
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t j = (uint32_t)((uint64_t)(seed >> 8) * (i + 1) >> 24);
        w->table[i] = w->table[j];
        w->table[j] = i;
    }
    w->pages.n_pages = n;
    w->pages.page_tokens = page_tokens;
    w->pages.lengths = &w->n_tokens;
    w->pages.table_stride = w->layer_pages;
}

static void one_type(uint32_t type, uint32_t n_tokens, uint32_t page_tokens, int n_rounds,
                     uint32_t group)
{
    static bench_series series[N_HOW];
    work w;
    pimattn_config c;
    memset(&w, 0, sizeof w);
    memset(&c, 0, sizeof c);
    w.n_tokens = n_tokens;
    w.row_bytes = (size_t)dim * pimattn_i_type_bytes(type);
    w.layer_pages = n_tokens / page_tokens;
    w.n_layers = (uint32_t)(cold_bytes / (2 * KV_HEADS * n_tokens * w.row_bytes) + 1);
    c.shape.n_layers = w.n_layers, c.shape.n_heads = group * KV_HEADS;
    c.shape.n_kv_heads = KV_HEADS;
    c.shape.head_dim = dim, c.shape.k_type = c.shape.v_type = type;
    c.page_tokens = page_tokens;
    c.pool_bytes = (uint64_t)2 << 30;
    c.max_seqs = (uint32_t)w.layer_pages + 1;
    c.memo_entries = 1;
    w.e = bench_engine(&c);
    fill_cache(&w, page_tokens);
    fill_pages(&w, page_tokens, type);
    memset(series, 0, sizeof series);
    for (int round = -1; round < n_rounds; round++)
        for (uint32_t how = 0; how < N_HOW; how++) {
            order(&w, how);
            double us = bench_time(run, &w, NULL);
            if (round >= 0) series[how].us[series[how].n++] = us;
        }
    for (uint32_t how = 0; how < N_HOW; how++) {
        int n_clean;
        double cv = bench_cv(&series[how], &n_clean);
        printf("%s,%s,%s,%u,%u,%u,%u,%.1f,%.3f,%.3f,%d\n", bench_types[type], hows[how],
               w.e->kernel->name, group, dim, n_tokens, page_tokens,
               bench_median(series[how].us, series[how].n), bench_ratio(&series[how], &series[0]),
               cv, n_clean);
        fflush(stdout);
    }
    for (int i = 0; i < 4; i++)
        free(w.memory[i]);
    free(w.table);
    pimattn_engine_destroy(w.e);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 5, "[TOKENS [PAGE_TOKENS [ROUNDS [GROUP [HEAD_DIM]]]]]");
    uint32_t n_tokens = argc > 1 ? bench_number("TOKENS", argv[1], FILL_ROWS, MOST_TOKENS) : 4096;
    uint32_t page = argc > 2 ? bench_number("PAGE_TOKENS", argv[2], 1, 65536) : 128;
    uint32_t n_rounds = argc > 3 ? bench_number("ROUNDS", argv[3], 1, BENCH_ROUNDS) : 40;
    uint32_t group = argc > 4 ? bench_number("GROUP", argv[4], 1, MOST_GROUP) : 4;
    dim = argc > 5 ? bench_number("HEAD_DIM", argv[5], 16, MOST_DIM) : 128;
    bench_good(n_tokens % FILL_ROWS == 0 && n_tokens % page == 0, "TOKENS",
               "not a multiple of 64 and of PAGE_TOKENS");
    bench_good(n_tokens / page < PIMATTN_I_MAX_SEQS, "TOKENS", "65535 pages and more");
    bench_fill(q, sizeof q / sizeof q[0], 1);
    bench_fill(rows[0], FILL_ROWS * KV_HEADS * MOST_DIM, 2);
    bench_fill(rows[1], FILL_ROWS * KV_HEADS * MOST_DIM, 3);
    printf("type,pages,kernel,group,head_dim,tokens,page_tokens,us,ratio,cv,clean\n");
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        one_type(type, n_tokens, page, (int)n_rounds, group);
    return bench_done();
}
