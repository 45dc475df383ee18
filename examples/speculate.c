/* Speculation: a tree of drafts is tried in one call, the rejected tokens are truncated. The drafts
 * are what followed the last tokens earlier in the text.
 *
 * The outcome is plain decoding's to the byte, text and cache: a token is accepted only by a row
 * that has in the cache before it exactly what plain decoding has. Where the model leaves the first
 * branch for another, that branch is truncated too, and stands first in the next call. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "speculate"
#include "common.h"
#include "llama.h"

enum { MOST = 64, NONE = MOST, LONGEST_MATCH = 3 }; /* a row of the mask is one word */

/* Node 0 is the oldest token not in the cache; a node stands behind its parent. */
typedef struct tree {
    uint32_t tokens[MOST], parents[MOST];
    size_t positions[MOST];
    uint64_t sees[MOST]; /* itself and what it descends from */
    uint32_t n;
} tree;

static uint32_t child_of(const tree *t, uint32_t parent, uint32_t token)
{
    for (uint32_t i = parent + 1; i < t->n; i++)
        if (t->parents[i] == parent && t->tokens[i] == token) return i;
    return NONE;
}

static void add(tree *t, uint32_t parent, uint32_t token, size_t position)
{
    t->tokens[t->n] = token;
    t->parents[t->n] = parent;
    t->positions[t->n] = position;
    t->sees[t->n] = (t->n > 0 ? t->sees[parent] : 0) | (uint64_t)1 << t->n;
    t->n++;
}

/* Adds what followed earlier occurrences of the end of the text, longest and latest match first. */
static void draft(tree *t, const uint32_t *text, size_t n_text, uint32_t branches, uint32_t depth,
                  size_t n_steps)
{
    uint32_t end = t->n - 1;
    for (size_t length = LONGEST_MATCH; length > 0; length--)
        for (size_t at = n_text - 1; at >= length && branches > 0; at--) {
            const uint32_t *last = text + n_text - length;
            if (memcmp(text + at - length, last, length * sizeof *text) != 0) continue;
            uint32_t node = end, before = t->n;
            for (size_t i = at; i < n_text && i < at + depth; i++) {
                uint32_t next = child_of(t, node, text[i]);
                size_t position = t->positions[node] + 1;
                if (next == NONE && (t->n == MOST || position >= n_steps)) break;
                if (next == NONE) add(t, node, text[i], position), next = t->n - 1;
                node = next;
            }
            branches -= t->n > before;
        }
}

typedef struct outcome {
    size_t n_tokens; /* of the text */
    uint64_t calls, rows, clocks, state_bytes;
    uint64_t again, as_expected; /* tokens first seen on another branch, then in place */
    unsigned char *state;        /* of the cache */
} outcome;

typedef struct options {
    uint32_t n_steps, branches, depth;
} options;

/* As llama_greedy, in fewer calls. text: [n_steps + 1 + MOST] */
static outcome speculate(const llama_model *m, pimattn_engine *engine, pimattn_seq seq,
                         uint32_t *text, size_t n_known, const options *o)
{
    llama_state s;
    outcome got = {0};
    size_t n_cached = 0, n_text = n_known; /* behind the known tokens: expected ones */
    bool ended = false;
    llama_state_make(&s, m, MOST);
    while (!ended) {
        tree t = {.n = 0};
        pimattn_readings r;
        for (size_t i = n_cached; i < n_text && i < o->n_steps && t.n < MOST; i++)
            add(&t, t.n > 0 ? t.n - 1 : 0, text[i], i);
        if (n_cached + t.n == n_text) draft(&t, text, n_text, o->branches, o->depth, o->n_steps);
        const pimattn_item item = {seq, t.n};
        /* llama2.c has neither windows nor ALiBi, which would ask for positions here */
        const pimattn_mask mask = {t.sees, t.n, NULL};
        const llama_batch b = {.tokens = t.tokens,
                               .positions = t.positions,
                               .items = &item,
                               .n_items = 1,
                               .masks = &mask};
        llama_forward(m, &s, engine, &b, &r);
        got.calls++, got.rows += t.n, got.clocks += r.step_ck;

        uint32_t at = (uint32_t)(n_known - n_cached < t.n ? n_known - n_cached : t.n) - 1, next;
        for (;; at++) {
            next = llama_likeliest(s.logits + at * m->n_pieces, m->n_pieces);
            if (n_cached + at + 1 < n_known) break; /* a prompt of several calls */
            got.again += n_known < n_text;
            got.as_expected += n_known < n_text && text[n_known] == next;
            ended = next == LLAMA_BOS || n_cached + at + 1 == o->n_steps;
            if (next != LLAMA_BOS) text[n_known++] = next;
            if (ended || child_of(&t, at, next) != at + 1) break;
        }
        ex_check(engine, "truncate", pimattn_seq_truncate(engine, seq, n_cached + at + 1));
        n_cached += at + 1;
        n_text = n_known;
        while (!ended && (at = child_of(&t, at, next)) != NONE) { /* along another branch */
            next = llama_likeliest(s.logits + at * m->n_pieces, m->n_pieces);
            text[n_text++] = next;
        }
    }
    llama_state_free(&s);
    got.n_tokens = n_known;
    return got;
}

/* One way or the other from a prompt, in a cache of its own, whose state is to be freed. */
static outcome run(const llama_model *m, uint32_t *text, size_t n_prompt, const options *o,
                   bool plain)
{
    const pimattn_config config = {.shape = llama_shape(m, PIMATTN_F32), .max_seqs = 1};
    pimattn_engine *engine = ex_engine(&config);
    pimattn_seq seq;
    outcome got = {0};
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    if (plain) {
        got.n_tokens = llama_greedy(m, engine, seq, text, n_prompt, o->n_steps, &got.clocks);
        ex_check(engine, "tokens", pimattn_seq_tokens(engine, seq, 0, &got.calls));
    } else {
        got = speculate(m, engine, seq, text, n_prompt, o);
    }
    ex_check(engine, "save", pimattn_save(engine, &seq, 1, NULL, &got.state_bytes));
    got.state = (unsigned char *)ex_alloc(got.state_bytes, 1);
    const pimattn_stream stream = {.memory = got.state, .bytes = got.state_bytes};
    ex_check(engine, "save", pimattn_save(engine, &seq, 1, &stream, NULL));
    pimattn_engine_destroy(engine);
    return got;
}

static void report(const outcome *plain, const outcome *got, bool json)
{
    uint64_t n = plain->calls, bytes = got->state_bytes;
    if (json) {
        printf("{\"schema\": %d, \"positions\": %" PRIu64 ", \"calls\": %" PRIu64
               ", \"tokens_tried\": %" PRIu64 ", \"again\": %" PRIu64 ", \"as_expected\": %" PRIu64
               ", \"state_bytes\": %" PRIu64 ", \"plain_ck\": %" PRIu64
               ", \"speculative_ck\": %" PRIu64 "}\n",
               (int)EX_SCHEMA, n, got->calls, got->rows, got->again, got->as_expected, bytes,
               plain->clocks, got->clocks);
        return;
    }
    printf("plain decoding: %" PRIu64 " calls of one token, attention %" PRIu64 " clocks\n"
           "speculation: %" PRIu64 " calls, %.2f tokens a call kept of %.2f tried, %" PRIu64
           " clocks\n"
           "of %" PRIu64 " tokens on other branches, in place %" PRIu64 " come out alike\n"
           "the same text, and the same %" PRIu64 " bytes of K and V\n",
           n, plain->clocks, got->calls, (double)n / (double)got->calls,
           (double)got->rows / (double)got->calls, got->clocks, got->again, got->as_expected,
           bytes);
}

/* Both ways from the same prompt; whether they came out alike. */
static bool compare(const llama_model *m, const llama_tokenizer *t, const char *prompt,
                    const options *o, bool json)
{
    size_t n_prompt = 0;
    uint32_t *ids = llama_encode(t, &n_prompt, prompt, o->n_steps), *text[2];
    outcome got[2];
    for (size_t i = 0; i < 2; i++) {
        text[i] = (uint32_t *)ex_alloc((uint64_t)o->n_steps + 1 + MOST, sizeof *ids);
        memcpy(text[i], ids, n_prompt * sizeof *ids);
        got[i] = run(m, text[i], n_prompt, o, i == 0);
    }
    bool same = got[0].n_tokens == got[1].n_tokens && got[0].state_bytes == got[1].state_bytes &&
                memcmp(text[0], text[1], got[0].n_tokens * sizeof *ids) == 0 &&
                memcmp(got[0].state, got[1].state, (size_t)got[0].state_bytes) == 0;
    for (size_t i = 1; i < got[1].n_tokens && !json; i++)
        llama_print(t, text[1][i - 1], text[1][i]);
    if (!json) printf("\n");
    if (same) report(&got[0], &got[1], json);
    free(got[0].state), free(got[1].state), free(ids), free(text[0]), free(text[1]);
    return same;
}

int main(int argc, char **argv)
{
    const char *model = NULL, *tokenizer = NULL, *prompt = "Once upon a time";
    options o = {256, 4, 8};
    uint32_t seed = LLAMA_SEED;
    bool json = false;
    const ex_option list[] = {
        {.name = "--model",
         .value = "FILE",
         .text = &model,
         .help = "a llama2.c checkpoint; default: random weights"},
        {.name = "--tokenizer", .value = "FILE", .text = &tokenizer, .help = "that belongs to it"},
        {.name = "--seed", .value = "N", .number = &seed, .help = "of random weights; default 1"},
        {.name = "-p", .value = "PROMPT", .text = &prompt, .help = "default: Once upon a time"},
        {.name = "-n", .value = "STEPS", .number = &o.n_steps, .min = 1, .help = "default 256"},
        {.name = "--branches", .value = "N", .number = &o.branches, .help = "default 4"},
        {.name = "--depth", .value = "N", .number = &o.depth, .help = "of a branch; default 8"},
        {.name = "--json", .flag = &json, .help = "readings as JSON, no text"}};
    llama_model m = {0};
    llama_tokenizer t = {0};
    ex_options(
        argc, argv,
        "usage: build/speculate [options]\n"
        "A tree of drafts in one call, beside plain decoding: the same bytes in fewer calls.",
        list, EX_COUNT(list), NULL, 0);
    llama_open(&m, &t, model, tokenizer, seed);
    if (o.n_steps > m.seq_len)
        ex_die("-n: %" PRIu32 " steps, but the model has %zu positions", o.n_steps, m.seq_len);
    bool same = compare(&m, &t, prompt, &o, json);
    llama_close(&m, &t);
    if (!same) fprintf(stderr, "speculate: other bytes than plain decoding\n");
    return same ? ex_done() : 1;
}
