/* A system prompt shared by 32 requests: the first one fills its pages and makes them known by its
 * tokens, the others begin with them. What that saves in pages, bytes and clocks. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "prefix"
#include "common.h"

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, STEP = 64, MOST = 1 << 15 };

static float k[STEP * KV_HEADS * DIM], v[STEP * KV_HEADS * DIM], q[HEADS * DIM], out[HEADS * DIM];

/* Keys and values of tokens: what a model would make of them. */
static void append(pimattn_engine *engine, pimattn_seq seq, const uint32_t *tokens, uint64_t n)
{
    uint32_t layers = pimattn_engine_config(engine)->shape.n_layers;
    for (uint64_t t = 0; t < n; t += STEP) {
        uint64_t step = n - t < STEP ? n - t : STEP;
        for (size_t i = 0; i < step * KV_HEADS * DIM; i++) {
            uint32_t x = (tokens[t + i / (KV_HEADS * DIM)] + (uint32_t)i) * 2654435761u;
            k[i] = (float)(x >> 8) / 8388608.0f - 1.0f;
            v[i] = -k[i];
        }
        for (uint32_t layer = 0; layer < layers; layer++)
            ex_check(engine, "append", pimattn_append(engine, seq, layer, k, v, step, 0, 0));
    }
}

/* Clocks of all layers' attention while a prompt is read in steps of 512 tokens. */
static uint64_t prompt_clocks(const pimattn_config *config, uint64_t n_tokens)
{
    uint64_t clocks = 0;
    for (uint64_t t = 0; t < n_tokens; t += 512) {
        uint64_t n = n_tokens - t < 512 ? n_tokens - t : 512;
        pimattn_span span = {t + n, n};
        pimattn_readings readings;
        pimhw_cause why;
        if (pimattn_estimate(&readings, config, &span, 1, &why) != PIMATTN_OK)
            ex_die("%s", why.text);
        clocks += readings.step_ck;
    }
    return clocks;
}

int main(int argc, char **argv)
{
    static uint32_t tokens[2 * MOST];
    uint32_t n_requests = 32, n_prompt = 4096, n_tail = 100, n_layers = 2;
    bool json = false;
    const ex_option options[] = {
        {.name = "--requests", .value = "N", .number = &n_requests, .min = 1, .help = "default 32"},
        {.name = "--prompt", .value = "N", .number = &n_prompt, .min = 1, .help = "default 4096"},
        {.name = "--tail", .value = "N", .number = &n_tail, .min = 1, .help = "default 100"},
        {.name = "--layers", .value = "N", .number = &n_layers, .min = 1, .help = "default 2"},
        {.name = "--json", .flag = &json, .help = "readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/prefix [options]\n"
               "A system prompt shared by requests of a Llama-3-8B-like model: what is saved.",
               options, EX_COUNT(options), NULL, 0);
    if (n_requests > 1024 || n_prompt > MOST || n_tail > MOST || n_layers > 32)
        ex_die("at most 1024 requests, %d tokens each of prompt and tail, 32 layers", (int)MOST);
    pimattn_config config = {.shape = {.n_layers = n_layers,
                                       .n_heads = HEADS,
                                       .n_kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .k_type = PIMATTN_F16,
                                       .v_type = PIMATTN_F16},
                             .pool_bytes = (uint64_t)1 << 34,
                             .max_seqs = n_requests};
    pimattn_engine *engine = ex_engine(&config);
    uint64_t alone = 0, known = 0, shared = 0, page = pimattn_engine_config(engine)->page_tokens;
    for (uint32_t i = 0; i < n_prompt + n_tail; i++)
        tokens[i] = i * 31 % 32000;
    for (uint32_t r = 0; r < n_requests; r++) {
        pimattn_seq seq;
        pimattn_seq_info info;
        for (uint32_t i = 0; i < n_tail; i++)
            tokens[n_prompt + i] = (i * 17 + r) % 32000;
        uint64_t n = n_prompt + n_tail;
        ex_check(engine, "start", pimattn_prefix_start(engine, &seq, tokens, n, 0, &known));
        append(engine, seq, tokens + known, n - known);
        ex_check(engine, "remember", pimattn_prefix_remember(engine, seq, tokens, n_prompt, 0));
        ex_check(engine, "attend", pimattn_attend_one(engine, seq, 0, out, q, NULL));
        ex_check(engine, "query", pimattn_seq_query(engine, seq, &info));
        alone += info.pages;
        if (r > 0) shared += known;
    }
    uint64_t used = pimattn_pages_used(engine), bytes = pimattn_page_bytes(engine);
    uint64_t sets = n_prompt / page + n_requests * ((n_prompt % page + n_tail + page - 1) / page);
    double ideal = (double)used / (double)(sets * n_layers * KV_HEADS);
    uint64_t clocks = shared ? prompt_clocks(&config, shared / (n_requests - 1)) : 0;
    uint64_t saved = clocks * (n_requests - 1);
    if (json)
        printf("{\"schema\": %d, \"requests\": %" PRIu32 ", \"pages\": %" PRIu64
               ", \"pages_alone\": %" PRIu64 ", \"bytes_saved\": %" PRIu64
               ", \"of_one_copy_and_tails\": %.4f, \"clocks_saved\": %" PRIu64 "}\n",
               (int)EX_SCHEMA, n_requests, used, alone, (alone - used) * bytes, ideal, saved);
    else
        printf("%" PRIu32 " requests hold %" PRIu64 " pages, without sharing %" PRIu64 ": %" PRIu64
               " bytes saved\n"
               "that is %.4f times the pages of one prompt and of the tails\n"
               "attention to the prompt is computed once: %" PRIu64 " clocks saved\n",
               n_requests, used, alone, (alone - used) * bytes, ideal, saved);
    pimattn_engine_destroy(engine);
    return ex_done();
}
