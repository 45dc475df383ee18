/* Continuous batching: requests come and go between the calls of a step, each taking pages as its
 * text grows. A new one is admitted if the free pages hold it; when pages run out the latest is
 * swapped out and waits. All can be saved to a file and go on elsewhere.
 *
 * Standard output holds the texts, one after the other. Each is compared with that of running the
 * request alone, token by token: they are the same to the byte. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "serve"
#include "common.h"
#include "llama.h"

/* tokens of a page; of a prompt in one step; requests; steps between two arrivals; in a saved
 * state: "PIMS", its version */
enum {
    PAGE = 16,
    PIECE = 32,
    MOST = EX_MAX_TEXTS,
    MOST_GAP = 1000,
    MAGIC = 0x534d4950,
    VERSION = 2
};

typedef enum phase { WAITING, RUNNING, SWAPPED, DONE } phase;

typedef struct request {
    uint32_t *tokens; /* [n_steps + 1] */
    uint32_t n_prompt, n_tokens, n_cached, arrives, phase;
    pimattn_seq seq; /* running or swapped out .. */
    void *memory;    /* .. to here */
    uint64_t memory_bytes;
} request;

typedef struct server {
    const llama_model *m;
    const llama_tokenizer *t;
    pimattn_engine *engine;
    llama_state state;
    request requests[MOST];
    uint32_t n_requests, n_steps, began, now;
    bool quiet;
    uint64_t most_running, most_pages, preempted, clocks;
} server;

static void tell(const server *v, uint32_t r, const char *what)
{
    pimattn_cache_info info;
    if (v->quiet) return;
    ex_check(v->engine, "query", pimattn_cache_query(v->engine, &info));
    fprintf(stderr,
            "step %" PRIu32 " request %" PRIu32 " %s, %" PRIu64 " of %" PRIu64 " pages free\n",
            v->now, r, what, info.pages_free, info.pages_total);
}

/* --- Pages --------------------------------------------------------------------------------- */

static uint64_t pages_of(const server *v, uint64_t n_tokens)
{
    return (n_tokens + PAGE - 1) / PAGE * v->m->n_layers * v->m->n_kv_heads;
}

/* Lets those in that came first, as long as the free pages hold all they have so far. */
static void admit(server *v)
{
    for (uint32_t i = 0; i < v->n_requests; i++) {
        request *r = &v->requests[i];
        pimattn_cache_info info;
        if (r->phase == RUNNING || r->phase == DONE) continue;
        ex_check(v->engine, "query", pimattn_cache_query(v->engine, &info));
        if (r->arrives > v->now || pages_of(v, r->n_tokens) > info.pages_free) return;
        if (r->phase == SWAPPED)
            ex_check(v->engine, "swap in",
                     pimattn_seq_swap_in(v->engine, r->seq, r->memory, r->memory_bytes, NULL));
        else
            ex_check(v->engine, "sequence", pimattn_seq_create(v->engine, &r->seq));
        ex_check(v->engine, "reserve",
                 pimattn_seq_reserve(v->engine, r->seq, r->n_tokens - r->n_cached));
        free(r->memory), r->memory = NULL;
        tell(v, i, r->phase == SWAPPED ? "is back" : "is admitted");
        r->phase = RUNNING;
    }
}

/* Swaps the latest of the running requests out. */
static void preempt(server *v)
{
    uint32_t i = v->n_requests - 1;
    while (v->requests[i].phase != RUNNING)
        i--;
    request *r = &v->requests[i];
    ex_check(v->engine, "state", pimattn_save(v->engine, &r->seq, 1, NULL, &r->memory_bytes));
    r->memory = ex_alloc(r->memory_bytes, 1);
    ex_check(v->engine, "swap out",
             pimattn_seq_swap_out(v->engine, r->seq, r->memory, r->memory_bytes, NULL));
    r->phase = SWAPPED;
    v->preempted++;
    tell(v, i, "is swapped out");
}

/* How many tokens a running request feeds in this step, their pages taken; 0: it was preempted. */
static uint32_t feed(server *v, request *r)
{
    uint32_t n = r->n_tokens - r->n_cached < PIECE ? r->n_tokens - r->n_cached : PIECE;
    while (r->phase == RUNNING) {
        pimattn_status status = pimattn_seq_reserve(v->engine, r->seq, n);
        if (status == PIMATTN_OK) return n;
        if (status != PIMATTN_ERR_PAGES) ex_check(v->engine, "reserve", status);
        preempt(v);
    }
    return 0;
}

/* --- Steps --------------------------------------------------------------------------------- */

/* The token after the last one of a request that has all its tokens in the cache. */
static void extend(server *v, uint32_t i, const float *logits)
{
    request *r = &v->requests[i];
    uint32_t next = llama_likeliest(logits, v->m->n_pieces);
    if (next != LLAMA_BOS) r->tokens[r->n_tokens++] = next;
    if (next != LLAMA_BOS && r->n_cached < v->n_steps) return;
    ex_check(v->engine, "free", pimattn_seq_free(v->engine, r->seq));
    r->phase = DONE;
    tell(v, i, "is done");
}

/* One call of the model for all that run. */
static void step(server *v)
{
    uint32_t tokens[MOST * PIECE], who[MOST];
    size_t positions[MOST * PIECE], rows = 0, n = 0;
    pimattn_item items[MOST];
    pimattn_readings readings;
    for (uint32_t i = 0; i < v->n_requests; i++) {
        request *r = &v->requests[i];
        uint32_t n_tokens = feed(v, r);
        if (n_tokens == 0) continue;
        for (uint32_t t = 0; t < n_tokens; t++, rows++) {
            positions[rows] = r->n_cached + t;
            tokens[rows] = r->tokens[r->n_cached + t];
        }
        items[n].seq = r->seq, items[n].n_tokens = n_tokens, who[n++] = i;
    }
    uint64_t pages = pimattn_pages_used(v->engine);
    if (pages > v->most_pages) v->most_pages = pages;
    if (n > v->most_running) v->most_running = n;
    v->now++;
    if (n == 0) return;
    const llama_batch b = {.tokens = tokens, .positions = positions, .items = items, .n_items = n};
    llama_forward(v->m, &v->state, v->engine, &b, &readings);
    v->clocks += readings.step_ck;
    for (size_t k = 0, row = 0; k < n; k++) {
        request *r = &v->requests[who[k]];
        row += (size_t)items[k].n_tokens;
        r->n_cached += (uint32_t)items[k].n_tokens;
        if (r->n_cached == r->n_tokens)
            extend(v, who[k], v->state.logits + (row - 1) * v->m->n_pieces);
    }
}

static bool all_done(const server *v)
{
    uint32_t n = 0;
    while (n < v->n_requests && v->requests[n].phase == DONE)
        n++;
    return n == v->n_requests;
}

/* --- Saved state --------------------------------------------------------------------------- */

/* Our part of a file, before the cache's: little-endian words, the hash of all before as the last.
 * One function writes and reads it. */
typedef struct record {
    FILE *file;
    const char *path;
    bool writing;
    uint64_t at;
    uint32_t hash; /* FNV-1a */
} record;

static void word(record *f, const char *name, uint32_t *value, uint64_t min, uint64_t max)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(*value >> 8 * i & 0xff);
    if (f->writing) fwrite(bytes, 1, sizeof bytes, f->file);
    size_t n = f->writing ? sizeof bytes : fread(bytes, 1, sizeof bytes, f->file);
    if (!f->writing && ferror(f->file)) ex_die("--restore: %s: %s", f->path, strerror(errno));
    if (n != sizeof bytes)
        ex_die("%s: byte %" PRIu64 ": the file ends before %s", f->path, f->at, name);
    *value = ex_le32(bytes);
    if (*value < min || *value > max)
        ex_die("%s: byte %" PRIu64 ": %s is %" PRIu32 ", not %" PRIu64 " to %" PRIu64, f->path,
               f->at, name, *value, min, max);
    for (int i = 0; i < 4; i++)
        f->hash = (f->hash ^ bytes[i]) * 16777619u;
    f->at += sizeof bytes;
}

static void same(record *f, const char *what, uint32_t hash)
{
    uint32_t kept = hash;
    word(f, what, &kept, 0, UINT32_MAX);
    if (kept != hash) ex_die("%s: the state is of another %s", f->path, what);
}

static uint32_t weights_hash(const llama_model *m)
{
    uint32_t hash = 2166136261u;
    for (uint64_t i = LLAMA_HEADER; i < llama_bytes(m); i += 4) {
        uint32_t bits;
        memcpy(&bits, m->bytes + i, sizeof bits);
        hash = (hash ^ bits) * 16777619u;
    }
    return hash;
}

static uint32_t pieces_hash(const llama_tokenizer *t)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < t->n_pieces; i++) {
        hash = (hash ^ t->pieces[i].length) * 16777619u;
        for (uint32_t k = 0; k < t->pieces[i].length; k++)
            hash = (hash ^ t->pieces[i].text[k]) * 16777619u;
    }
    return hash;
}

/* Everything but K and V. What is swapped out goes back to the waiting: computed again from its
 * tokens, in larger pieces, K and V have on one machine the same bytes. */
static void record_requests(server *v, record *f)
{
    uint32_t magic = MAGIC, version = VERSION, hash;
    f->hash = 2166136261u;
    word(f, "what marks a saved state", &magic, MAGIC, MAGIC);
    word(f, "version", &version, VERSION, VERSION);
    same(f, "model", weights_hash(v->m));
    same(f, "tokenizer", pieces_hash(v->t));
    word(f, "n_steps", &v->n_steps, 1, v->m->seq_len);
    word(f, "n_requests", &v->n_requests, 1, MOST);
    word(f, "steps done", &v->now, 0, UINT32_MAX);
    for (uint32_t i = 0; i < v->n_requests; i++) {
        request *r = &v->requests[i];
        uint32_t p = r->phase == SWAPPED ? WAITING : r->phase;
        if (r->phase == SWAPPED) r->n_cached = 0;
        word(f, "phase", &p, WAITING, DONE);
        r->phase = p;
        word(f, "arrival", &r->arrives, 0, (uint64_t)MOST_GAP * (MOST - 1));
        word(f, "n_prompt", &r->n_prompt, 1, v->n_steps);
        word(f, "n_tokens", &r->n_tokens, r->n_prompt, v->n_steps + (p == DONE));
        word(f, "n_cached", &r->n_cached, 0, p == WAITING ? 0 : r->n_tokens - (p == RUNNING));
        if (!f->writing)
            r->tokens = (uint32_t *)ex_alloc((uint64_t)v->n_steps + 1, sizeof *r->tokens);
        for (uint32_t t = 0; t < r->n_tokens; t++)
            word(f, "token", &r->tokens[t], 0, v->m->n_pieces - 1);
    }
    hash = f->hash;
    word(f, "hash", &hash, f->hash, f->hash);
}

static bool write_bytes(void *user, const void *from, size_t n)
{
    return fwrite(from, 1, n, (FILE *)user) == n;
}

static bool read_bytes(void *user, void *to, size_t n)
{
    return fread(to, 1, n, (FILE *)user) == n;
}

static void save(server *v, const char *path, FILE *file)
{
    record f = {.file = file, .path = path, .writing = true};
    const pimattn_stream stream = {.write = write_bytes, .user = f.file};
    pimattn_seq seqs[MOST];
    size_t n = 0;
    record_requests(v, &f);
    for (uint32_t i = 0; i < v->n_requests; i++)
        if (v->requests[i].phase == RUNNING) seqs[n++] = v->requests[i].seq;
    pimattn_status status = pimattn_save(v->engine, seqs, n, &stream, NULL);
    if (!ferror(f.file)) ex_check(v->engine, path, status); /* else the file is to blame */
    ex_close("--save", path, f.file);
}

/* The cache's part of a file, which follows ours. */
static void restore(server *v, const record *f)
{
    const pimattn_stream stream = {.read = read_bytes, .user = f->file};
    pimattn_seq seqs[MOST];
    size_t n_seqs = 0, n = 0;
    ex_check(v->engine, f->path, pimattn_restore(v->engine, seqs, MOST, &n_seqs, &stream));
    for (uint32_t i = 0; i < v->n_requests; i++) {
        request *r = &v->requests[i];
        uint64_t n_tokens = 0;
        if (r->phase != RUNNING) continue;
        if (n < n_seqs) {
            r->seq = seqs[n++];
            ex_check(v->engine, "tokens", pimattn_seq_tokens(v->engine, r->seq, 0, &n_tokens));
        }
        if (n_tokens != r->n_cached)
            ex_die("%s: request %" PRIu32 " has %" PRIu64 " tokens of K and V, not %" PRIu32,
                   f->path, i, n_tokens, r->n_cached);
    }
    if (n != n_seqs || fgetc(f->file) != EOF) ex_die("%s: more than its requests", f->path);
    fclose(f->file);
}

/* --- Alone --------------------------------------------------------------------------------- */

/* Requests whose text is another when they run alone; the clocks of attention are added. */
static uint32_t others_alone(const server *v, const pimattn_config *config, uint64_t *clocks)
{
    uint32_t n_others = 0;
    uint32_t *tokens = (uint32_t *)ex_alloc((uint64_t)v->n_steps + 1, sizeof *tokens);
    pimattn_engine *engine = ex_engine(config);
    for (uint32_t i = 0; i < v->n_requests; i++) {
        const request *r = &v->requests[i];
        pimattn_seq seq;
        memcpy(tokens, r->tokens, r->n_prompt * sizeof *tokens);
        ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
        size_t n = llama_greedy(v->m, engine, seq, tokens, r->n_prompt, v->n_steps, clocks);
        ex_check(engine, "free", pimattn_seq_free(engine, seq));
        bool same = n == r->n_tokens && memcmp(tokens, r->tokens, n * sizeof *tokens) == 0;
        if (!same) fprintf(stderr, "serve: request %" PRIu32 " has another text alone\n", i);
        n_others += !same;
    }
    pimattn_engine_destroy(engine);
    free(tokens);
    return n_others;
}

/* Counts are of this process: of the steps from v->began on. */
static void report(const server *v, uint64_t alone_ck, bool json)
{
    pimattn_cache_info info;
    ex_check(v->engine, "query", pimattn_cache_query(v->engine, &info));
    fprintf(stderr,
            json ? "{\"schema\": 1, \"requests\": %" PRIu32 ", \"first_step\": %" PRIu32
                   ", \"last_step\": %" PRIu32 ", \"most_running\": %" PRIu64
                   ", \"most_pages\": %" PRIu64 ", \"pages_total\": %" PRIu64
                   ", \"preempted\": %" PRIu64 ", \"swapped_bytes\": %" PRIu64
                   ", \"attention_ck\": %" PRIu64 ", \"alone_ck\": %" PRIu64 "}\n"
                 : "%" PRIu32 " requests, all with the text they have alone\n"
                   "steps %" PRIu32 " to %" PRIu32 ", at most %" PRIu64 " requests and %" PRIu64
                   " of %" PRIu64 " pages in one\n"
                   "preempted %" PRIu64 ", %" PRIu64 " bytes swapped out and in\n"
                   "attention_ck %" PRIu64 " in these steps; alone, from first to last, %" PRIu64
                   "\n",
            v->n_requests, v->began, v->now, v->most_running, v->most_pages, info.pages_total,
            v->preempted, info.swapped.bytes, v->clocks, alone_ck);
}

/* --- Requests ------------------------------------------------------------------------------ */

typedef struct arguments {
    const char *model, *tokenizer, *save, *restore;
    ex_texts prompts;
    uint32_t seed, n_steps, gap, pool_tokens, stop;
    bool quiet, json;
    FILE *save_file;
} arguments;

static void enqueue(server *v, const arguments *a, const llama_tokenizer *t)
{
    static const ex_texts usual = {{"Once upon a time", "One day, a dog", "Lily", "The sun was",
                                    "A boy named Tom", "Mom said", "There was a big cat",
                                    "In the park"},
                                   8};
    const ex_texts *prompts = a->prompts.n_texts > 0 ? &a->prompts : &usual;
    v->n_requests = (uint32_t)prompts->n_texts;
    v->n_steps = a->n_steps != 0 ? a->n_steps : 128;
    if (v->n_steps > v->m->seq_len)
        ex_die("-n: %" PRIu32 " steps, but the model has %zu positions", v->n_steps, v->m->seq_len);
    for (uint32_t i = 0; i < v->n_requests; i++) {
        request *r = &v->requests[i];
        size_t n = 0;
        uint32_t *ids = llama_encode(t, &n, prompts->text[i], v->n_steps);
        r->tokens = (uint32_t *)ex_alloc((uint64_t)v->n_steps + 1, sizeof *ids);
        memcpy(r->tokens, ids, n * sizeof *ids);
        r->n_prompt = r->n_tokens = (uint32_t)n;
        r->arrives = (uint32_t)((uint64_t)i * a->gap);
        free(ids);
    }
}

static void parse(arguments *a, int argc, char **argv)
{
    const ex_option options[] = {
        {.name = "--model",
         .value = "FILE",
         .text = &a->model,
         .help = "a llama2.c checkpoint; default: random weights"},
        {.name = "--tokenizer", .value = "FILE", .text = &a->tokenizer, .help = "belongs to it"},
        {.name = "--seed", .value = "N", .number = &a->seed, .help = "of weights; default 1"},
        {.name = "-p",
         .value = "PROMPT",
         .texts = &a->prompts,
         .help = "of a request; repeatable; default: eight"},
        {.name = "-n", .value = "STEPS", .number = &a->n_steps, .min = 1, .help = "default 128"},
        {.name = "--gap",
         .value = "STEPS",
         .number = &a->gap,
         .max = MOST_GAP,
         .help = "from one arrival to the next; default 4"},
        {.name = "--pool",
         .value = "TOKENS",
         .number = &a->pool_tokens,
         .min = 1,
         .help = "room in the cache; default: that of 2.5 requests"},
        {.name = "--stop", .value = "STEP", .number = &a->stop, .min = 1, .help = "and save there"},
        {.name = "--save", .value = "FILE", .text = &a->save, .help = "no text is printed then"},
        {.name = "--restore", .value = "FILE", .text = &a->restore, .help = "and go on"},
        {.name = "--quiet", .flag = &a->quiet, .help = "the summary only, no line an event"},
        {.name = "--json", .flag = &a->json, .help = "the summary as JSON, on standard error"}};
    ex_options(argc, argv,
               "usage: build/serve [options]\n"
               "Serves requests by continuous batching from a small cache. Texts on standard\n"
               "output, what happened on standard error.",
               options, EX_COUNT(options), NULL, 0);
    if ((a->save == NULL) != (a->stop == 0)) ex_die("--save and --stop go together");
    if (a->save != NULL && a->json) ex_die("--json is a report at the end; --save stops before it");
    const char *paths[] = {a->model, a->tokenizer, a->save};
    if (a->save != NULL) ex_distinct(paths, EX_COUNT(paths));
    if (a->restore != NULL && (a->prompts.n_texts > 0 || a->n_steps != 0 || a->gap != UINT32_MAX))
        ex_die("-p, -n and --gap stand in the state that --restore reads");
    if (a->gap == UINT32_MAX) a->gap = 4;
}

/* A cache with room for so many tokens. */
static pimattn_engine *cache_of(const server *v, const pimattn_config *usual, uint32_t pool_tokens)
{
    pimattn_config config = *usual;
    if (pool_tokens / PAGE * PAGE < v->n_steps)
        ex_die("--pool: %" PRIu32 " tokens in pages of %d, but one request may come to %" PRIu32,
               pool_tokens, (int)PAGE, v->n_steps);
    pimattn_engine *engine = ex_engine(&config); /* which knows the bytes of a page */
    config.pool_bytes = pages_of(v, pool_tokens / PAGE * PAGE) * pimattn_page_bytes(engine);
    pimattn_engine_destroy(engine);
    return ex_engine(&config);
}

/* Until all are done, or the state is to be saved; whether every text is as it should be. */
static bool serve(server *v, const arguments *a, const llama_tokenizer *t,
                  const pimattn_config *config)
{
    uint64_t alone_ck = 0;
    while (!all_done(v) && (a->stop == 0 || v->now < a->stop)) {
        admit(v);
        step(v);
    }
    if (a->save != NULL) {
        save(v, a->save, a->save_file);
        return true;
    }
    for (uint32_t i = 0; i < v->n_requests; i++) {
        const request *r = &v->requests[i];
        for (uint32_t k = 1; k < r->n_tokens; k++)
            llama_print(t, r->tokens[k - 1], r->tokens[k]);
        printf("\n");
    }
    if (others_alone(v, config, &alone_ck) > 0) return false;
    report(v, alone_ck, a->json);
    return true;
}

int main(int argc, char **argv)
{
    static server v;
    arguments a = {.seed = LLAMA_SEED, .gap = UINT32_MAX}; /* not given */
    llama_model m = {0};
    llama_tokenizer t = {0};
    record f = {0};
    parse(&a, argc, argv);
    llama_open(&m, &t, a.model, a.tokenizer, a.seed);
    v.m = &m, v.t = &t;
    v.quiet = a.quiet || a.json;
    if (a.restore != NULL) {
        f.path = a.restore, f.file = fopen(f.path, "rb");
        if (f.file == NULL) ex_die("--restore: %s: %s", f.path, strerror(errno));
        record_requests(&v, &f);
        v.began = v.now;
        if (a.stop != 0 && a.stop <= v.now)
            ex_die("--stop: step %" PRIu32 ", but the state is of step %" PRIu32, a.stop, v.now);
    } else {
        enqueue(&v, &a, &t);
    }
    const pimattn_config config = {.shape = llama_shape(&m, PIMATTN_F32), .page_tokens = PAGE};
    uint32_t usual_tokens = v.n_steps * 5 / 2 > PAGE ? v.n_steps * 5 / 2 : PAGE;
    v.engine = cache_of(&v, &config, a.pool_tokens != 0 ? a.pool_tokens : usual_tokens);
    if (a.restore != NULL) restore(&v, &f);
    if (a.save != NULL) a.save_file = ex_open("--save", a.save); /* now, not after the work */
    llama_state_make(&v.state, &m, (size_t)v.n_requests * PIECE);
    bool well = serve(&v, &a, &t, &config);
    for (uint32_t i = 0; i < v.n_requests; i++)
        free(v.requests[i].tokens), free(v.requests[i].memory);
    pimattn_engine_destroy(v.engine);
    llama_state_free(&v.state);
    llama_close(&m, &t);
    return well ? ex_done() : 1;
}
