/* How near to the memory's bandwidth is decode attention? One query token, K and V cold: calls go
 * round over layers of 256 MiB and more. CSV: median time and GB/s of K and V, the fraction of a
 * plain read of the same bytes in the same order by as many threads (median of the rounds),
 * coefficient of variation, clean calls.
 *
 *     decode [--types f32,f16,..] [--groups 1,4,8] [--tokens 4096,..] [--pages 0,128,64]
 *            [--kernels avx512,avx2,scalar] [--threads 1,2] [--seqs N] [--dim 128] [--rounds N]
 *
 * groups: (heads, KV heads) = (32,32), (32,8), (64,8), else 8 KV heads; pages: tokens of shuffled
 * pages, 0: one page as long as it may be; seqs: sequences of that many tokens in one call; dim: of
 * heads, whose rows are read with what rounds them up. Default: 4096 tokens of one sequence;
 * --tokens 4103 has a last tile that is not full, as most steps of an engine have. Beyond the
 * documented calls it swaps kernels inside one engine, so that all variants read the very same
 * memory. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum {
    MOST_DIM = 256,
    MOST_HEADS = 64,
    MOST_SEQS = 256,
    MOST_PAGES = 4,
    MOST_LIST = 8,
    MOST_VARIANTS = 64,
    FILL_ROWS = 64
};

static const uint64_t cold_bytes = (uint64_t)256 << 20;

static float q[MOST_SEQS * MOST_HEADS * MOST_DIM], out[MOST_SEQS * MOST_HEADS * MOST_DIM],
    rows[2][FILL_ROWS * MOST_HEADS * MOST_DIM];
static bench_pool pool;
static uint64_t sink;
static bool wide; /* read by AVX-512 */
static uint32_t dim = 128;

/* --- Plain reads. --- */

#ifdef PIMATTN_I_AVX512
#define READ_512(W, i) s##i = _mm512_add_epi64(s##i, _mm512_loadu_si512(from + at + 64 * i));
PIMATTN_I_PLAIN_16 uint64_t read_512(const unsigned char *from, size_t bytes)
{
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0;
    __m512i s7 = s0;
    for (size_t at = 0; at + 512 <= bytes; at += 512) {
        PIMATTN_I_EACH8(READ_512, 16)
    }
    s0 = _mm512_add_epi64(_mm512_add_epi64(s0, s1), _mm512_add_epi64(s2, s3));
    s4 = _mm512_add_epi64(_mm512_add_epi64(s4, s5), _mm512_add_epi64(s6, s7));
    uint64_t x[8];
    _mm512_storeu_si512(x, _mm512_add_epi64(s0, s4));
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}
#endif

static uint64_t read_plain(const unsigned char *from, size_t bytes)
{
    uint64_t s[8] = {0}, x;
    for (size_t at = 0; at + 64 <= bytes; at += 64)
        for (size_t i = 0; i < 8; i++) {
            memcpy(&x, from + at + 8 * i, sizeof x);
            s[i] += x;
        }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

/* --- One engine: sequences in pages of a size, all variants on them. --- */

typedef struct cache {
    pimattn_engine *e;
    pimattn_item items[MOST_SEQS];
    uint32_t n_seqs, page_tokens, n_layers, layer;
    uint64_t bytes; /* of K, V and scales that attention of a layer reads */
} cache;

/* Takes n pages for as many short sequences and frees these in random order. */
static void shuffle_pages(cache *c, uint32_t n)
{
    uint32_t seed = 7;
    pimattn_seq *all = (pimattn_seq *)malloc(n * sizeof *all);
    bench_must(all != NULL, "memory");
    for (uint32_t i = 0; i < n; i++) {
        bench_must(pimattn_seq_create(c->e, &all[i]) == PIMATTN_OK, "create");
        bench_good(pimattn_seq_reserve(c->e, all[i], c->page_tokens) == PIMATTN_OK, "reserve",
                   pimattn_engine_cause(c->e));
    }
    for (uint32_t i = n; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t j = (uint32_t)((uint64_t)(seed >> 8) * i >> 24);
        bench_must(pimattn_seq_free(c->e, all[j]) == PIMATTN_OK, "free");
        all[j] = all[i - 1];
    }
    free(all);
}

static uint32_t longest_page(uint32_t n_tokens)
{
    return n_tokens < 65536 ? (n_tokens + 15) / 16 * 16 : 65536;
}

static uint32_t pages_of(uint32_t n_tokens, uint32_t page_tokens)
{
    return (n_tokens + page_tokens - 1) / page_tokens;
}

static cache cache_of(uint32_t type, uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_tokens,
                      uint32_t page_tokens, uint32_t n_seqs)
{
    cache c;
    pimattn_config config;
    memset(&c, 0, sizeof c);
    memset(&config, 0, sizeof config);
    bool shuffled = page_tokens != 0;
    if (!shuffled) page_tokens = longest_page(n_tokens);
    pimattn_shape shape = {.n_layers = 1,
                           .n_heads = n_heads,
                           .n_kv_heads = n_kv_heads,
                           .head_dim = dim,
                           .k_type = type,
                           .v_type = type};
    pimattn_i_layout lay;
    shape.head_dim_v = dim;
    pimattn_i_lay_out(&lay, &shape, page_tokens);
    c.page_tokens = page_tokens;
    c.n_seqs = n_seqs;
    const uint32_t n_pages = pages_of(n_tokens, page_tokens) * n_seqs;
    c.bytes =
        n_tokens / lay.run_tokens * lay.run_bytes + n_tokens % lay.run_tokens * lay.token_bytes;
    c.bytes *= n_kv_heads * n_seqs;
    c.n_layers = shape.n_layers = (uint32_t)(cold_bytes / c.bytes + 1);
    config.shape = shape;
    config.page_tokens = page_tokens;
    config.pool_bytes = ((uint64_t)n_pages * n_kv_heads * c.n_layers + 1) * lay.page_bytes;
    config.max_seqs = n_pages + n_seqs;
    config.memo_entries = 1;
    config.max_workers = BENCH_WORKERS;
    config.parallel_for = bench_pool_for;
    config.parallel_user = &pool;
    c.e = bench_engine(&config);
    if (shuffled) shuffle_pages(&c, n_pages);
    for (uint32_t i = 0; i < n_seqs; i++) {
        c.items[i].n_tokens = 1;
        bench_must(pimattn_seq_create(c.e, &c.items[i].seq) == PIMATTN_OK, "create");
    }
    for (uint64_t i = 0; i < (uint64_t)c.n_layers * n_seqs; i++)
        for (uint32_t t = 0; t < n_tokens; t += FILL_ROWS) {
            uint32_t n = n_tokens - t < FILL_ROWS ? n_tokens - t : FILL_ROWS;
            bench_good(pimattn_append(c.e, c.items[i % n_seqs].seq, (uint32_t)(i / n_seqs), rows[0],
                                      rows[1], n, 0, 0) == PIMATTN_OK,
                       "append", pimattn_engine_cause(c.e));
        }
    return c;
}

static uint64_t read_bytes(const unsigned char *from, uint64_t bytes)
{
    uint64_t sum = 0, whole = 0;
#ifdef PIMATTN_I_AVX512
    if (wide) {
        whole = bytes / 512 * 512;
        sum = read_512(from, (size_t)whole);
    }
#endif
    return sum + read_plain(from + whole, (size_t)(bytes - whole));
}

/* The tokens of a page; of a run that is not full, the rows and scales of those, in whole lines. */
static uint64_t read_page(const pimattn_i_layout *lay, const unsigned char *page, uint64_t n_tokens)
{
    const uint64_t left = n_tokens % lay->run_tokens;
    const unsigned char *run = page + n_tokens / lay->run_tokens * lay->run_bytes;
    uint64_t sum = read_bytes(page, (uint64_t)(run - page));
    if (left == 0) return sum;
    sum += read_bytes(run, left * lay->row[0]);
    sum += read_bytes(run + lay->offset[1], left * lay->row[1]);
    if (lay->dim[2] == 0) return sum;
    const uint64_t scales = (left * sizeof(float) + 63) / 64 * 64;
    sum += read_bytes(run + lay->offset[2], scales);
    return sum + read_bytes(run + lay->offset[3], scales);
}

static void read_head(void *user, size_t index, size_t worker)
{
    cache *c = (cache *)user;
    const pimattn_i_layout *lay = &c->e->layout;
    const uint32_t head = (uint32_t)(index % lay->n_kv_heads);
    const pimattn_i_seq *s = pimattn_i_seq_find(c->e, c->items[index / lay->n_kv_heads].seq);
    uint64_t sum = 0, at;
    (void)worker;
    for (uint64_t t = 0, left = s->tokens[c->layer]; left > 0;) {
        const unsigned char *page = pimattn_i_run(&c->e->pool, s, c->layer, head, t, &at);
        const uint64_t n = left < lay->page_tokens ? left : lay->page_tokens;
        sum += read_page(lay, page, n);
        t += n;
        left -= n;
    }
    __atomic_fetch_add(&sink, sum, __ATOMIC_RELAXED);
}

/* --- Variants: kernel NULL is the plain read. --- */

typedef struct variant {
    cache *c;
    const pimattn_i_kernel *kernel;
    uint32_t threads;
    bench_series series;
} variant;

static void run(void *user)
{
    variant *v = (variant *)user;
    cache *c = v->c;
    pimattn_engine *e = c->e;
    const size_t n_heads = (size_t)e->layout.n_kv_heads * c->n_seqs;
    pimattn_call call;
    c->layer = (c->layer + 1) % c->n_layers;
    if (!v->kernel && v->threads > 1) bench_pool_for(&pool, n_heads, read_head, c);
    for (size_t h = 0; !v->kernel && v->threads == 1 && h < n_heads; h++)
        read_head(c, h, 0);
    if (!v->kernel) return;
    e->kernel = v->kernel;
    e->config.max_workers = v->threads;
    e->config.parallel_for = v->threads > 1 ? bench_pool_for : NULL;
    memset(&call, 0, sizeof call);
    call.out = out, call.q = q, call.items = c->items, call.n_items = c->n_seqs;
    bench_must(pimattn_attend(e, c->layer, &call, NULL) == PIMATTN_OK, "attend");
    e->config.max_workers = BENCH_WORKERS;
}

static variant variants[MOST_VARIANTS];
static int n_variants;

static void add_variant(cache *c, const pimattn_i_kernel *kernel, uint32_t threads)
{
    bench_must(n_variants < MOST_VARIANTS, "room for one more variant");
    variant v = {c, kernel, threads, {{0}, 0}};
    variants[n_variants++] = v;
}

static void measure(int n_rounds)
{
    for (int round = -1; round < n_rounds; round++)
        for (int i = 0; i < n_variants; i++) {
            variant *v = &variants[i];
            double us = bench_time(run, v, v->threads > 1 ? &pool : NULL);
            if (round >= 0) v->series.us[v->series.n++] = us;
        }
}

static void print(const char *type, uint32_t n_heads, uint32_t n_kv_heads, uint64_t n_tokens)
{
    const variant *read = NULL;
    for (int i = 0; i < n_variants; i++) {
        const variant *v = &variants[i];
        int n_clean;
        if (!v->kernel) read = v;
        double us = bench_median(v->series.us, v->series.n), cv = bench_cv(&v->series, &n_clean);
        printf("%s,%u,%u,%llu,%u,%s,%u,%.1f,%.2f,%.3f,%.3f,%d\n", type, n_heads, n_kv_heads,
               (unsigned long long)n_tokens, v->c->page_tokens,
               v->kernel ? v->kernel->name : "read", v->threads, us,
               (double)v->c->bytes / us * 1e-3, bench_ratio(&read->series, &v->series), cv,
               n_clean);
        fflush(stdout);
    }
}

/* --- What to measure. --- */

typedef struct list {
    uint32_t of[MOST_LIST];
    size_t n;
} list;

static void wants(const char *name, const char *words)
{
    fprintf(stderr, "decode: %s: wants %s\n", name, words);
    exit(2);
}

/* Numbers from min to max, each once, with commas. */
static list list_of(const char *name, const char *text, uint32_t min, uint32_t max)
{
    list l = {{0}, 0};
    for (const char *at = text;; at++) {
        char number[16] = "";
        size_t length = strcspn(at, ",");
        if (length >= sizeof number || l.n == MOST_LIST) wants(name, "1 to 8 numbers");
        memcpy(number, at, length);
        l.of[l.n] = bench_number(name, number, min, max);
        for (size_t i = 0; i < l.n; i++)
            if (l.of[i] == l.of[l.n]) wants(name, "each number once");
        l.n++;
        at += length;
        if (!*at) return l;
    }
}

/* Whether a word is one of those with commas between them. */
static bool listed(const char *words, const char *word, size_t length)
{
    for (const char *at = words;; at++) {
        size_t n = strcspn(at, ",");
        if (n == length && memcmp(at, word, n) == 0) return true;
        at += n;
        if (!*at) return false;
    }
}

/* Words of known ones, with commas. */
static const char *words_of(const char *name, const char *text, const char *known)
{
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (!listed(known, at, length)) wants(name, known);
        at += length;
        if (!*at) return text;
    }
}

typedef struct wanted {
    const char *types, *kernels;
    list groups, tokens, pages, threads;
    uint32_t seqs;
    int rounds;
} wanted;

static bool has_kernel(const wanted *w, uint32_t simd)
{
    const char *name = pimattn_i_kernel_take(simd)->name;
    return listed(w->kernels, name, strlen(name));
}

/* Heads come in whole groups; some page and some kernel is left. */
static void judge(const wanted *w)
{
    bool any = false;
    for (uint32_t simd = PIMATTN_SIMD_NONE; simd <= PIMATTN_SIMD_512; simd++)
        any = any || has_kernel(w, simd);
    if (!any) wants("--kernels", "one this CPU has");
    if (w->pages.n > MOST_PAGES) wants("--pages", "1 to 4 numbers");
    for (size_t g = 0; g < w->groups.n; g++)
        if (32 % w->groups.of[g] && w->groups.of[g] > 8) wants("--groups", "1 to 8, 16 or 32");
    for (size_t t = 0; t < w->tokens.n; t++) {
        uint32_t n = w->tokens.of[t];
        any = false;
        for (size_t i = 0; i < w->pages.n; i++) {
            uint32_t page = w->pages.of[i] ? w->pages.of[i] : longest_page(n);
            if (((uint64_t)pages_of(n, page) + 1) * w->seqs > PIMATTN_I_MAX_SEQS)
                wants("--tokens", "fewer than 65535 pages, of all --seqs");
            any = any || !w->pages.of[i] || page <= n;
        }
        if (!any) wants("--pages", "one that --tokens fill");
    }
}

static void group(const wanted *w, uint32_t type, uint32_t g, uint32_t n_tokens)
{
    static cache caches[MOST_PAGES];
    uint32_t n_kv_heads = g != 8 && 32 % g == 0 ? 32 / g : 8, n_heads = n_kv_heads * g;
    n_variants = 0;
    size_t n_caches = 0;
    for (size_t i = 0; i < w->pages.n && i < MOST_PAGES; i++) {
        if (w->pages.of[i] > n_tokens) continue;
        cache *c = &caches[n_caches++];
        *c = cache_of(type, n_heads, n_kv_heads, n_tokens, w->pages.of[i], w->seqs);
        for (size_t t = 0; t < w->threads.n; t++) {
            const pimattn_i_kernel *last = NULL;
            add_variant(c, NULL, w->threads.of[t]);
            for (uint32_t simd = PIMATTN_SIMD_512; simd >= PIMATTN_SIMD_NONE; simd--) {
                const pimattn_i_kernel *kernel = pimattn_i_kernel_take(simd);
                if (kernel != last && has_kernel(w, simd)) add_variant(c, kernel, w->threads.of[t]);
                last = kernel;
            }
        }
    }
    measure(w->rounds);
    print(bench_types[type], n_heads, n_kv_heads, n_tokens);
    for (size_t i = 0; i < n_caches; i++)
        pimattn_engine_destroy(caches[i].e);
}

int main(int argc, char **argv)
{
    wanted w = {"f32,f16,bf16,int8",
                "avx512,avx2,neon",
                {{1, 4, 8}, 3},
                {{4096}, 1},
                {{0, 128, 64}, 3},
                {{1, 2}, 2},
                1,
                15};
    uint32_t seed = 1;
    bench_takes(argc, argv, 99,
                "[--types LIST] [--groups LIST] [--tokens LIST] [--pages LIST] [--kernels LIST] "
                "[--threads LIST] [--seqs N] [--dim N] [--rounds N]");
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--types"))
            w.types = words_of(argv[i], value, "f32,f16,bf16,int8");
        else if (!strcmp(argv[i], "--kernels"))
            w.kernels = words_of(argv[i], value, "avx512,avx2,neon,scalar");
        else if (!strcmp(argv[i], "--groups"))
            w.groups = list_of(argv[i], value, 1, 32);
        else if (!strcmp(argv[i], "--tokens"))
            w.tokens = list_of(argv[i], value, 1, 1 << 20);
        else if (!strcmp(argv[i], "--pages"))
            w.pages = list_of(argv[i], value, 0, 65536);
        else if (!strcmp(argv[i], "--threads"))
            w.threads = list_of(argv[i], value, 1, BENCH_WORKERS);
        else if (!strcmp(argv[i], "--seqs"))
            w.seqs = bench_number(argv[i], value, 1, MOST_SEQS);
        else if (!strcmp(argv[i], "--dim"))
            dim = bench_number(argv[i], value, 1, MOST_DIM);
        else if (!strcmp(argv[i], "--rounds"))
            w.rounds = (int)bench_number(argv[i], value, 1, BENCH_ROUNDS);
        else {
            fprintf(stderr, "decode: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    judge(&w);
    wide = pimattn_i_simd_most() == PIMATTN_SIMD_512;
    ex_pool_start(&pool.pool, BENCH_WORKERS);
    bench_fill(q, MOST_SEQS * MOST_HEADS * MOST_DIM, 1);
    for (int i = 0; i < 2; i++)
        bench_fill(rows[i], FILL_ROWS * MOST_HEADS * MOST_DIM, ++seed);
    printf("type,heads,kv_heads,tokens,page_tokens,kernel,threads,us,GBps,of_read,cv,clean\n");
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
        if (!listed(w.types, bench_types[type], strlen(bench_types[type]))) continue;
        for (size_t t = 0; t < w.tokens.n; t++)
            for (size_t g = 0; g < w.groups.n; g++)
                group(&w, type, w.groups.of[g], w.tokens.of[t]);
    }
    ex_pool_stop(&pool.pool);
    return bench_done();
}
