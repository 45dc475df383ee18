/* A model whose tokens live in three memories, HBM, DDR and SSD, the first two far too small: after
 * every layer's attention the tokens that matter move to where bandwidth is. The text stays what it
 * is with one memory; the picture shows where the tokens are and how many move. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "tiers"
#include "common.h"
#include "llama.h"

enum { N_TIERS = 3, MOST_SWAPS = 4096, MOST_SLOTS = 1 << 20 };

static const char *const presets[N_TIERS] = {"pam-hbm3", "pam-ddr4", "pam-ssd"};

/* A step, as it ended. */
typedef struct step {
    uint64_t used[N_TIERS], up[N_TIERS], down[N_TIERS]; /* up[i]: from tier i to the one before */
    double importance;                                  /* in the fastest tier, of 1 */
    double ns, idle[N_TIERS]; /* of a layer; ns with its share of what moves show */
} step;

typedef struct run {
    const llama_model *m;
    pimattn_engine *engine;
    pimattn_seq seq;
    uint32_t swaps, sparse;
    uint64_t n_swaps, stops[PIMATTN_N_STOP];
    pimattn_choice choice;
    float *score;
    uint8_t *tier;
    step *steps;
    size_t n_steps;
    double tokens_moved, tokens_there; /* of all steps and layers */
} run;

/* Before attention: which tokens take part. After it: their importance, and who changes places. */
static void on_layer(void *user, uint32_t layer, const float *q, bool attended)
{
    run *r = (run *)user;
    pimattn_swap swaps[MOST_SWAPS];
    uint32_t stop[N_TIERS - 1];
    uint64_t n = 0;
    size_t n_swaps = 0;
    if (!attended) {
        if (r->sparse > 1)
            ex_check(r->engine, "retrieve",
                     pimattn_retrieve(r->engine, r->seq, layer, &r->choice, NULL, q, r->sparse));
        return;
    }
    ex_check(r->engine, "tokens", pimattn_seq_tokens(r->engine, r->seq, layer, &n));
    ex_check(r->engine, "score",
             pimattn_probabilities(r->engine, r->seq, layer, r->score, q, PIMATTN_BY_SCORES));
    if (layer == 0) { /* where it was computed, before anything moves */
        ex_check(r->engine, "places", pimattn_tier_places(r->engine, r->seq, layer, r->tier, n));
        for (uint64_t i = 0; i < n; i++)
            if (r->tier[i] == 0) r->steps[r->n_steps].importance += (double)r->score[i];
    }
    ex_check(r->engine, "importance", pimattn_tier_score(r->engine, r->seq, layer, r->score, n));
    ex_check(r->engine, "propose",
             pimattn_tier_propose(r->engine, r->seq, layer, swaps, r->swaps, &n_swaps, stop));
    ex_check(r->engine, "commit",
             pimattn_tier_commit(r->engine, r->seq, layer, swaps, n_swaps, NULL));
    for (uint32_t i = 0; i + 1 < N_TIERS; i++)
        r->stops[stop[i]]++;
    r->n_swaps += n_swaps;
    r->tokens_moved += 2 * (double)n_swaps;
    r->tokens_there += (double)n;
}

/* What a step left behind. Readings of its first layer stand for all: moves of all are in them. */
static void end_step(run *r, const pimattn_readings *readings)
{
    step *s = &r->steps[r->n_steps++];
    const pimattn_step_reading *reading = pimattn_tier_readings(r->engine);
    s->ns = readings->layer_ns;
    for (uint32_t i = 0; i < N_TIERS; i++) {
        pimattn_tier_info info;
        ex_check(r->engine, "tier", pimattn_tier_query(r->engine, i, &info));
        s->used[i] = info.n_used;
        s->up[i] = info.n_faster;
        s->down[i] = info.n_slower;
        s->idle[i] = reading->idle_ns[i];
    }
    ex_check(r->engine, "step", pimattn_tier_step(r->engine));
}

/* The likeliest text; in tiers if r is given. Returns its tokens. */
static size_t generate(run *r, const llama_model *m, pimattn_engine *engine, uint32_t *tokens,
                       size_t n_tokens, size_t n_steps)
{
    llama_state s;
    pimattn_readings readings;
    pimattn_seq seq;
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    if (r) r->seq = seq;
    const pimattn_item item = {seq, 1};
    llama_state_make(&s, m, 1);
    for (size_t position = 0; position < n_steps; position++) {
        llama_batch b = {
            .tokens = tokens + position, .positions = &position, .items = &item, .n_items = 1};
        if (r) {
            b.on_layer = on_layer;
            b.user = r;
            b.choices = r->sparse > 1 ? &r->choice : NULL;
        }
        llama_forward(m, &s, engine, &b, r ? &readings : NULL);
        if (r) end_step(r, &readings);
        if (position + 1 < n_tokens) continue;
        uint32_t next = llama_likeliest(s.logits, m->n_pieces);
        if (next == LLAMA_BOS) break;
        tokens[n_tokens++] = next;
    }
    llama_state_free(&s);
    return n_tokens;
}

/* --- Picture ------------------------------------------------------------------------------- */

enum { LEFT = 60, WIDTH = 800, TOP = 30, HEIGHT = 240, GAP = 50, BARS = 140 };

static const char *const colours[N_TIERS] = {"#c0392b", "#2980b9", "#7f8c8d"};

/* Tokens per tier as areas above one another, then moves of each step as bars. */
static void draw(FILE *f, const run *r)
{
    double most = 1, moves = 1, x = (double)WIDTH / (double)r->n_steps;
    for (size_t i = 0; i < r->n_steps; i++) {
        const step *s = &r->steps[i];
        most = fmax(most, (double)(s->used[0] + s->used[1] + s->used[2]));
        moves = fmax(moves, (double)(s->up[1] + s->up[2]));
    }
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<text x=\"%d\" y=\"20\">tokens of all layers in each tier, by step (most %.0f)</text>\n",
        LEFT + WIDTH + 120, TOP + HEIGHT + GAP + BARS + 30, LEFT, most);
    for (uint32_t tier = 0; tier < N_TIERS; tier++) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>",
                LEFT + WIDTH + 10, TOP + 20 * (int)tier, colours[tier]);
        fprintf(f, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT + WIDTH + 28,
                TOP + 20 * (int)tier + 11, presets[tier]);
        for (size_t i = 0; i < r->n_steps; i++) {
            const step *s = &r->steps[i];
            double below = 0, height = (double)s->used[tier] / most * HEIGHT;
            for (uint32_t k = 0; k < tier; k++)
                below += (double)s->used[k] / most * HEIGHT;
            if (height > 0)
                fprintf(
                    f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n",
                    LEFT + x * (double)i, TOP + HEIGHT - below - height, x, height, colours[tier]);
        }
    }
    const int base = TOP + HEIGHT + GAP + BARS;
    fprintf(f,
            "<text x=\"%d\" y=\"%d\">tokens that moved up, to HBM and to DDR (most %.0f)</text>\n",
            LEFT, TOP + HEIGHT + GAP - 10, moves);
    for (size_t i = 0; i < r->n_steps; i++) {
        double at = 0;
        for (uint32_t tier = 1; tier < N_TIERS; tier++) {
            double height = (double)r->steps[i].up[tier] / moves * BARS;
            at += height;
            if (height > 0)
                fprintf(
                    f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n",
                    LEFT + x * (double)i, base - at, x * 0.8, height, colours[tier - 1]);
        }
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%d\">step 0</text>\n<text x=\"%d\" y=\"%d\">%zu</text>\n</svg>\n",
            LEFT, base + 16, LEFT + WIDTH - 20, base + 16, r->n_steps);
}

/* --- Report -------------------------------------------------------------------------------- */

static void report(const run *r, bool same, bool json)
{
    uint64_t up[N_TIERS] = {0}, down[N_TIERS] = {0};
    double ns = 0, idle[N_TIERS] = {0}, held = 0;
    const pimattn_tiers *rules = pimattn_engine_config(r->engine)->tiers;
    for (size_t i = 0; i < r->n_steps; i++) {
        ns += r->steps[i].ns;
        held += r->steps[i].importance;
        for (uint32_t t = 0; t < N_TIERS; t++) {
            up[t] += r->steps[i].up[t];
            down[t] += r->steps[i].down[t];
            idle[t] += r->steps[i].idle[t];
        }
    }
    const double steps = (double)r->n_steps;
    if (json) printf("{\"schema\": %d, \"steps\": %zu, \"tiers\": [", (int)EX_SCHEMA, r->n_steps);
    for (uint32_t t = 0; t < N_TIERS; t++) {
        const uint64_t *used = r->steps[r->n_steps - 1].used;
        if (json)
            printf("%s{\"device\": \"%s\", \"slots\": %" PRIu64 ", \"used\": %" PRIu64
                   ", \"to_faster\": %" PRIu64 ", \"to_slower\": %" PRIu64 ", \"ratio\": %.4f"
                   ", \"idle_ns\": %.1f}",
                   t ? ", " : "", presets[t], rules->tier[t].n_tokens, used[t], up[t], down[t],
                   rules->ratio[t], idle[t] / steps);
        else
            printf("%-9s slots %6" PRIu64 "  used %6" PRIu64 "  ratio %7.3f  to faster %6" PRIu64
                   "  to slower %6" PRIu64 "  idle %8.1f ns a layer\n",
                   presets[t], rules->tier[t].n_tokens, used[t], rules->ratio[t], up[t], down[t],
                   idle[t] / steps);
    }
    if (json)
        printf("], \"swaps\": %" PRIu64
               ", \"moved\": %.6f, \"in_fastest\": %.4f, \"layer_ns\": %.1f, "
               "\"same_text\": %s}\n",
               r->n_swaps, r->tokens_moved / r->tokens_there, held / steps, ns / steps,
               same ? "true" : "false");
    else {
        printf("swaps %" PRIu64 ": %.2f %% of the tokens a step and layer; ended by", r->n_swaps,
               100 * r->tokens_moved / r->tokens_there);
        for (uint32_t i = 0; i < PIMATTN_N_STOP; i++)
            printf("%s %s %" PRIu64, i ? "," : "", pimattn_stop_str(i), r->stops[i]);
        printf("\nattention that was in %s: %.1f %% of a step's (first layer)\n", presets[0],
               100 * held / steps);
        printf("a layer %.1f ns; text %s\n", ns / steps,
               r->sparse > 1 ? (same ? "the same, though sparse" : "another: sparse")
                             : (same ? "the same" : "ANOTHER"));
    }
}

typedef struct options {
    const char *model, *tokenizer, *prompt, *svg, *ratio;
    uint32_t n_steps, seed, slots[N_TIERS], swaps, sparse;
    bool json, partials, host_path, quiet;
} options;

/* "8,4,1": what the importance in the tiers should be. */
static void read_ratio(const char *text, double *ratio)
{
    const char *at = text;
    for (uint32_t i = 0; i < N_TIERS; i++) {
        char *end = NULL;
        ratio[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < N_TIERS ? ',' : 0))
            ex_die("--ratio: '%s' is not three numbers with commas", text);
        at = end + 1;
    }
}

static bool compare(const options *o, const llama_model *m, const llama_tokenizer *t)
{
    pimattn_config c = {.shape = llama_shape(m, PIMATTN_F32), .max_seqs = 1};
    pimattn_tiers tiers = {.n_tiers = N_TIERS, .partials = o->partials, .host_path = o->host_path};
    pimattn_engine *plain = ex_engine(&c);
    pimhw_cause why;
    for (uint32_t i = 0; i < N_TIERS; i++) {
        if (pimhw_config_init(&tiers.tier[i].device, presets[i], &why) != PIMHW_OK)
            ex_die("%s", why.text);
        tiers.tier[i].n_devices = 1;
        tiers.tier[i].n_tokens = o->slots[i] ? o->slots[i] : (uint64_t)o->n_steps * m->n_layers;
    }
    if (o->ratio) read_ratio(o->ratio, tiers.ratio);
    c.tiers = &tiers;
    run r = {.m = m, .engine = ex_engine(&c), .swaps = o->swaps, .sparse = o->sparse};
    const size_t words = (o->n_steps + 63) / 64;
    size_t n_prompt = 0, n[2];
    uint32_t *tokens[2];
    r.score = (float *)ex_alloc(o->n_steps, sizeof *r.score);
    r.tier = (uint8_t *)ex_alloc(o->n_steps, 1);
    r.steps = (step *)ex_alloc(o->n_steps, sizeof *r.steps);
    r.choice.bits = (uint64_t *)ex_alloc(words * m->n_kv_heads, sizeof(uint64_t));
    r.choice.stride = words;
    r.choice.n_kv_heads = (uint32_t)m->n_kv_heads;
    uint32_t *prompt = llama_encode(t, &n_prompt, o->prompt, o->n_steps);
    FILE *svg = o->svg ? ex_open("--svg", o->svg) : NULL; /* the command line is good */
    for (int way = 0; way < 2; way++) {
        tokens[way] = (uint32_t *)ex_alloc((uint64_t)o->n_steps + 1, sizeof(uint32_t));
        memcpy(tokens[way], prompt, n_prompt * sizeof *prompt);
        n[way] =
            generate(way ? &r : NULL, m, way ? r.engine : plain, tokens[way], n_prompt, o->n_steps);
    }
    bool same = n[0] == n[1] && memcmp(tokens[0], tokens[1], n[0] * sizeof *tokens[0]) == 0;
    for (size_t i = 1; !o->json && !o->quiet && i < n[1]; i++)
        llama_print(t, tokens[1][i - 1], tokens[1][i]);
    if (!o->json && !o->quiet) printf("\n");
    report(&r, same, o->json);
    if (svg) {
        draw(svg, &r);
        ex_close("--svg", o->svg, svg);
    }
    free(tokens[0]), free(tokens[1]), free(prompt), free(r.choice.bits);
    free(r.score), free(r.tier), free(r.steps);
    pimattn_engine_destroy(plain);
    pimattn_engine_destroy(r.engine);
    return same || o->sparse > 1;
}

int main(int argc, char **argv)
{
    options o = {.prompt = "Once upon a time",
                 .n_steps = 128,
                 .seed = LLAMA_SEED,
                 .slots = {80, 160, 0},
                 .swaps = MOST_SWAPS,
                 .sparse = 1};
    const ex_option list[] = {
        {.name = "--model",
         .value = "FILE",
         .text = &o.model,
         .help = "a llama2.c checkpoint; default: random weights"},
        {.name = "--tokenizer",
         .value = "FILE",
         .text = &o.tokenizer,
         .help = "that belongs to it"},
        {.name = "--seed", .value = "N", .number = &o.seed, .help = "of random weights; default 1"},
        {.name = "-p", .value = "PROMPT", .text = &o.prompt, .help = "default: Once upon a time"},
        {.name = "-n", .value = "STEPS", .number = &o.n_steps, .min = 1, .help = "default 128"},
        {.name = "--hbm",
         .value = "N",
         .number = &o.slots[0],
         .min = 1,
         .max = MOST_SLOTS,
         .help = "slots; default 80"},
        {.name = "--ddr",
         .value = "N",
         .number = &o.slots[1],
         .min = 1,
         .max = MOST_SLOTS,
         .help = "default 160"},
        {.name = "--ssd",
         .value = "N",
         .number = &o.slots[2],
         .max = MOST_SLOTS,
         .help = "default 0: all tokens fit"},
        {.name = "--ratio", .value = "X,Y,1", .text = &o.ratio, .help = "default: by bandwidth"},
        {.name = "--swaps",
         .value = "N",
         .number = &o.swaps,
         .max = MOST_SWAPS,
         .help = "most in a step and layer; default 4096"},
        {.name = "--sparse",
         .value = "C",
         .number = &o.sparse,
         .min = 1,
         .help = "1/C of the tokens take part; default 1, all"},
        {.name = "--partials", .flag = &o.partials, .help = "each bank group forms a partial"},
        {.name = "--host-path", .flag = &o.host_path, .help = "moves go through the host's CPU"},
        {.name = "--svg", .value = "FILE", .text = &o.svg, .help = "picture"},
        {.name = "--quiet", .flag = &o.quiet, .help = "no text"},
        {.name = "--json", .flag = &o.json, .help = "readings as JSON, no text"}};
    llama_model m = {0};
    llama_tokenizer t = {0};
    ex_options(argc, argv,
               "usage: build/tiers [options]\n"
               "Tokens in HBM, DDR and SSD, moved after every step: the text of one memory.",
               list, EX_COUNT(list), NULL, 0);
    const char *paths[] = {o.model, o.tokenizer, o.svg};
    if (o.svg != NULL) ex_distinct(paths, EX_COUNT(paths));
    llama_open(&m, &t, o.model, o.tokenizer, o.seed);
    if (o.n_steps > m.seq_len)
        ex_die("-n: %" PRIu32 " steps, but the model has %zu positions", o.n_steps, m.seq_len);
    bool same = compare(&o, &m, &t);
    llama_close(&m, &t);
    if (!same) fprintf(stderr, "tiers: another text than from one memory\n");
    return same ? ex_done() : 1;
}
