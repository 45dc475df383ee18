/* Speculation: a tree of drafts is tried in one call, and those accepted are kept. The drafts are
 * what followed the last tokens earlier in the text. Two ways:
 *
 * The first branch alone is accepted: the outcome is plain decoding's to the byte, text and cache,
 * for every row has in the cache before it exactly what plain decoding has. Where the model leaves
 * the first branch for another, that one goes too, and stands first in the next call.
 *
 * Whichever branch the model takes is accepted, as engines do: no row is tried twice. What a row of
 * another branch sees lies elsewhere in the cache, so its sums are rounded otherwise. */
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

typedef enum ways { PLAIN, FIRST_BRANCH, ANY_BRANCH, N_WAYS } ways;

/* As llama_greedy, in fewer calls. text: [n_steps + 1 + MOST] */
static outcome speculate(const llama_model *m, pimattn_engine *engine, pimattn_seq seq,
                         uint32_t *text, size_t n_known, const options *o, ways way)
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

        uint32_t kept[MOST], n_kept = 0, at, next;
        at = (uint32_t)(n_known - n_cached < t.n ? n_known - n_cached : t.n) - 1;
        while (n_kept <= at)
            kept[n_kept] = n_kept, n_kept++;
        for (;; kept[n_kept++] = at) {
            next = llama_likeliest(s.logits + at * m->n_pieces, m->n_pieces);
            if (t.positions[at] + 1 < n_known) break; /* a prompt of several calls */
            got.again += n_known < n_text;
            got.as_expected += n_known < n_text && text[n_known] == next;
            ended = next == LLAMA_BOS || t.positions[at] + 1 == o->n_steps;
            if (next != LLAMA_BOS) text[n_known++] = next;
            const uint32_t child = child_of(&t, at, next);
            if (ended || child == NONE || (way == FIRST_BRANCH && child != at + 1)) break;
            at = child;
        }
        ex_check(engine, "accept", pimattn_seq_accept(engine, seq, n_cached, kept, n_kept));
        n_cached += n_kept;
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

/* One of the ways from a prompt, in a cache of its own, whose state is to be freed. */
static outcome run(const llama_model *m, uint32_t *text, size_t n_prompt, const options *o,
                   ways way)
{
    const pimattn_config config = {.shape = llama_shape(m, PIMATTN_F32), .max_seqs = 1};
    pimattn_engine *engine = ex_engine(&config);
    pimattn_seq seq;
    outcome got = {0};
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    if (way == PLAIN) {
        got.n_tokens = llama_greedy(m, engine, seq, text, n_prompt, o->n_steps, &got.clocks);
        ex_check(engine, "tokens", pimattn_seq_tokens(engine, seq, 0, &got.calls));
    } else {
        got = speculate(m, engine, seq, text, n_prompt, o, way);
    }
    ex_check(engine, "save", pimattn_save(engine, &seq, 1, NULL, &got.state_bytes));
    got.state = (unsigned char *)ex_alloc(got.state_bytes, 1);
    const pimattn_stream stream = {.memory = got.state, .bytes = got.state_bytes};
    ex_check(engine, "save", pimattn_save(engine, &seq, 1, &stream, NULL));
    pimattn_engine_destroy(engine);
    return got;
}

/* Bytes in which two states of equal lengths differ, their hashes among them. */
static uint64_t differing(const outcome *a, const outcome *b)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < a->state_bytes; i++)
        n += a->state[i] != b->state[i];
    return n;
}

static void report(const outcome got[N_WAYS], bool same_text, bool json)
{
    const outcome *first = &got[FIRST_BRANCH], *any = &got[ANY_BRANCH];
    const bool alike = any->state_bytes == first->state_bytes;
    uint64_t n = got[PLAIN].calls, bytes = first->state_bytes;
    if (json) {
        printf("{\"schema\": %d, \"positions\": %" PRIu64 ", \"calls\": %" PRIu64
               ", \"tokens_tried\": %" PRIu64 ", \"again\": %" PRIu64 ", \"as_expected\": %" PRIu64
               ", \"state_bytes\": %" PRIu64 ", \"plain_ck\": %" PRIu64
               ", \"speculative_ck\": %" PRIu64 ", \"any_branch_calls\": %" PRIu64
               ", \"any_branch_ck\": %" PRIu64 ", \"any_branch_same_text\": %s}\n",
               (int)EX_SCHEMA, n, first->calls, first->rows, first->again, first->as_expected,
               bytes, got[PLAIN].clocks, first->clocks, any->calls, any->clocks,
               same_text ? "true" : "false");
        return;
    }
    printf("plain decoding: %" PRIu64 " calls of one token, attention %" PRIu64 " clocks\n"
           "speculation, the first branch: %" PRIu64
           " calls, %.2f tokens a call kept of %.2f tried, %" PRIu64 " clocks\n"
           "of %" PRIu64 " tokens on other branches, in place %" PRIu64 " come out alike\n"
           "the same text, and the same %" PRIu64 " bytes of a saved state, K and V\n",
           n, got[PLAIN].clocks, first->calls, (double)n / (double)first->calls,
           (double)first->rows / (double)first->calls, first->clocks, first->again,
           first->as_expected, bytes);
    printf("any branch: %" PRIu64 " calls, %.2f tokens a call kept of %.2f tried, %" PRIu64
           " clocks\n%s text",
           any->calls, (double)n / (double)any->calls, (double)any->rows / (double)any->calls,
           any->clocks, same_text ? "the same" : "another");
    if (alike) printf(", %" PRIu64 " other bytes of it", differing(first, any));
    printf("\n");
}

/* All ways from the same prompt; whether the first branch comes out as plain decoding. */
static bool compare(const llama_model *m, const llama_tokenizer *t, const char *prompt,
                    const options *o, bool json)
{
    size_t n_prompt = 0;
    uint32_t *ids = llama_encode(t, &n_prompt, prompt, o->n_steps), *text[N_WAYS];
    outcome got[N_WAYS];
    bool same[N_WAYS];
    for (size_t i = 0; i < N_WAYS; i++) {
        text[i] = (uint32_t *)ex_alloc((uint64_t)o->n_steps + 1 + MOST, sizeof *ids);
        memcpy(text[i], ids, n_prompt * sizeof *ids);
        got[i] = run(m, text[i], n_prompt, o, (ways)i);
        same[i] = got[i].n_tokens == got[0].n_tokens &&
                  memcmp(text[i], text[0], got[0].n_tokens * sizeof *ids) == 0;
    }
    same[FIRST_BRANCH] = same[FIRST_BRANCH] && got[0].state_bytes == got[1].state_bytes &&
                         memcmp(got[0].state, got[1].state, (size_t)got[0].state_bytes) == 0;
    for (size_t i = 1; i < got[1].n_tokens && !json; i++)
        llama_print(t, text[1][i - 1], text[1][i]);
    if (!json) printf("\n");
    if (same[FIRST_BRANCH]) report(got, same[ANY_BRANCH], json);
    for (size_t i = 0; i < N_WAYS; i++)
        free(got[i].state), free(text[i]);
    free(ids);
    return same[FIRST_BRANCH];
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
