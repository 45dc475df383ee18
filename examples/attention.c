/* attention.c - the demo: one decode step of a Llama-3-8B layer, computed, checked and timed.
 *
 * The numbers are real: attention over a paged f16 cache, held against double precision. The
 * clocks are of the same attention on a PIM memory, for two ways of spreading it over channels.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "attention"
#include "common.h"

enum { HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, HEAD_TOKENS = 2048, BATCH_HEADS = 16 };
enum { Q_FLOATS = HEADS * HEAD_DIM, KV_FLOATS = KV_HEADS * HEAD_DIM };

/* How near the outputs are to double precision over the stored values. */
typedef struct accuracy {
    double error;              /* largest over all heads */
    double bound;              /* least over all heads */
    bool within;               /* every head within its own bound */
    pimattn_readings readings; /* of the attend itself */
} accuracy;

/* --- The step ------------------------------------------------------------------------------ */

/* The next of a sequence of 32-bit numbers (splitmix64). */
static uint32_t draw(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* Values nearly normal, mean 0 and variance 1: sums of twelve uniform ones. */
static void fill(float *values, size_t n_values, uint64_t *random)
{
    for (size_t i = 0; i < n_values; i++) {
        double sum = -6.0;
        for (int j = 0; j < 12; j++)
            sum += (double)draw(random) / 4294967296.0;
        values[i] = (float)sum;
    }
}

/* Holds every head of out against double precision over k and v, which are as stored. */
static void compare(accuracy *a, const float *out, const float *q, const float *k, const float *v,
                    size_t n_tokens)
{
    double exact[HEAD_DIM];
    double *weights = (double *)ex_alloc(n_tokens, sizeof *weights);
    a->error = 0;
    a->bound = HUGE_VAL;
    a->within = true;
    for (size_t head = 0; head < HEADS; head++) {
        size_t kv = head / (HEADS / KV_HEADS) * HEAD_DIM;
        double max_score, max_v;
        ex_exact_attention(exact, &max_score, &max_v, weights, q + head * HEAD_DIM, k + kv, v + kv,
                           KV_FLOATS, n_tokens, HEAD_DIM);
        double bound = (2e-6 + 2e-7 * max_score) * max_v;
        for (size_t j = 0; j < HEAD_DIM; j++) {
            double difference = fabs((double)out[head * HEAD_DIM + j] - exact[j]);
            if (isnan(difference) || difference > a->error) a->error = difference; /* NaN stays */
            if (!(difference <= bound)) a->within = false;
        }
        a->bound = fmin(a->bound, bound);
    }
    free(weights);
}

/* Appends n_tokens made-up tokens, attends with the last one, compares. */
static void decode_step(accuracy *a, const pimattn_config *config, size_t n_tokens, uint64_t seed)
{
    uint64_t random = seed;
    size_t n_values = n_tokens * KV_FLOATS;
    float *k = (float *)ex_alloc(n_values, sizeof *k);
    float *v = (float *)ex_alloc(n_values, sizeof *v);
    float q[Q_FLOATS], out[Q_FLOATS];
    pimattn_engine *engine = ex_engine(config);
    pimattn_seq seq;
    fill(k, n_values, &random);
    fill(v, n_values, &random);
    fill(q, Q_FLOATS, &random);
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    ex_check(engine, "append", pimattn_append(engine, seq, 0, k, v, n_tokens, 0, 0));
    ex_check(engine, "attend", pimattn_attend_one(engine, seq, 0, out, q, &a->readings));
    pimattn_engine_destroy(engine);
    for (size_t i = 0; i < n_values; i++) {
        k[i] = ex_round_f16(k[i]);
        v[i] = ex_round_f16(v[i]);
    }
    compare(a, out, q, k, v, n_tokens);
    free(k);
    free(v);
}

/* --- Clocks -------------------------------------------------------------------------------- */

/* The same attention by TCP and by HFP. */
typedef struct pair {
    const char *name;
    const char *words;
    pimattn_readings by[2]; /* indexed by pimattn_partition */
    uint64_t memory_ck[2];
} pair;

static pair estimate(const char *name, const char *words, const pimattn_config *config,
                     uint32_t n_heads, uint32_t n_kv_heads, uint64_t n_tokens)
{
    pair p = {.name = name, .words = words};
    pimattn_config c = *config;
    pimattn_span span = {n_tokens, 1};
    pimhw_cause why = {{0}};
    c.shape.n_heads = n_heads;
    c.shape.n_kv_heads = n_kv_heads;
    for (uint32_t partition = PIMATTN_TCP; partition <= PIMATTN_HFP; partition++) {
        c.partition = partition;
        pimattn_status status = pimattn_estimate(&p.by[partition], &c, &span, 1, &why);
        if (status != PIMATTN_OK) ex_die("%s: %s: %s", name, pimattn_status_str(status), why.text);
        p.memory_ck[partition] = ex_memory_ck(&c, n_tokens, 1);
    }
    return p;
}

static double ratio(uint64_t hfp_ck, uint64_t tcp_ck)
{
    return (double)hfp_ck / (double)tcp_ck;
}

static void print_pair(const pair *p)
{
    printf("\n%s\n", p->words);
    printf(
        "  partition  busy channels    cycles_ck    time_us  memory_ck (no softmax)  MAC util.\n");
    for (uint32_t i = 0; i < 2; i++) {
        const pimhw_readings *d = &p->by[i].device;
        printf("  %-9s  %13" PRIu32 " %12" PRIu64 " %10.2f %23" PRIu64 " %9.1f%%\n",
               ex_partition_str(i), d->n_busy_channels, d->cycles, d->ns / 1000.0, p->memory_ck[i],
               100.0 * d->mac_utilisation);
    }
    printf("  hfp / tcp                %12.2fx %34.2fx\n",
           ratio(p->by[1].device.cycles, p->by[0].device.cycles),
           ratio(p->memory_ck[1], p->memory_ck[0]));
}

static void print_breakdowns(const pair *p)
{
    for (uint32_t i = 0; i < 2; i++) {
        printf("\n  %s:\n", ex_partition_str(i));
        ex_print_breakdown(&p->by[i].device);
    }
}

/* Its energy, and what others take to read the same K and V. */
static void print_beside(const pair *p)
{
    const pimattn_readings *r = p->by;
    printf("\n  energy: tcp %.1f uJ, hfp %.1f uJ\n", r[0].layer_pJ * 1e-6, r[1].layer_pJ * 1e-6);
    printf(
        "  reading the same K and V: %.1f us for the host (%.2fx tcp's time with the link's %.1f "
        "us), %.1f us for all banks\n",
        r[0].host_ns * 1e-3, r[0].speedup, r[0].link_ns * 1e-3, r[0].peak_ns * 1e-3);
}

static void print_all(const accuracy *a, const pair *pairs, size_t n_pairs,
                      const pimhw_config *device, uint32_t n_tokens)
{
    printf("One decode step of a Llama-3-8B layer: %d query heads, %d KV heads of %d, %" PRIu32
           " tokens,\nK and V in f16 in KV pages, against plain float64 attention over the same "
           "values.\n",
           (int)HEADS, (int)KV_HEADS, (int)HEAD_DIM, n_tokens);
    printf("  max error %.3g, allowed %.3g (2e-6 + 2e-7 max|score|) max|v|: %s\n", a->error,
           a->bound, a->within ? "within" : "ABOVE");
    printf(
        "\nWhat it would cost on %s: %" PRIu32 " channels of %" PRIu32
        " banks, a clock is tCK_ps %" PRIu32 ".\n"
        "tcp spreads the tokens of every head over all channels; hfp gives each channel heads.\n",
        device->preset, device->n_channels, pimhw_config_banks(device), device->tCK_ps);
    for (size_t i = 0; i < n_pairs; i++) {
        print_pair(&pairs[i]);
        if (i > 0) continue;
        print_breakdowns(&pairs[i]);
        print_beside(&pairs[i]);
    }
}

static void json_all(const accuracy *a, const pair *pairs, size_t n_pairs,
                     const pimhw_config *device, uint32_t n_tokens)
{
    printf("{\"schema\": %d, \"device\": \"%s\", \"tokens\": %" PRIu32 ", ", (int)EX_SCHEMA,
           device->preset, n_tokens);
    ex_json_number(stdout, "max_error", a->error);
    printf(", ");
    ex_json_number(stdout, "bound", a->bound);
    printf(", \"within_bound\": %s, \"attend\": ", a->within ? "true" : "false");
    ex_json_readings(stdout, &a->readings, device->tCK_ps);
    for (size_t i = 0; i < n_pairs; i++) {
        for (uint32_t partition = 0; partition < 2; partition++) {
            printf(", \"%s_%s_memory_ck\": %" PRIu64, pairs[i].name, ex_partition_str(partition),
                   pairs[i].memory_ck[partition]);
            printf(", \"%s_%s\": ", pairs[i].name, ex_partition_str(partition));
            ex_json_readings(stdout, &pairs[i].by[partition], device->tCK_ps);
        }
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    bool json = false;
    uint32_t n_tokens = 4096, seed = 1;
    const char *preset = "aimx";
    const ex_option options[] = {
        {.name = "--tokens",
         .value = "N",
         .number = &n_tokens,
         .min = 1,
         .max = 1 << 18,
         .help = "tokens in the cache; default 4096"},
        {.name = "--device", .value = "PRESET", .text = &preset, .help = "default aimx"},
        {.name = "--seed", .value = "N", .number = &seed, .help = "of the data; default 1"},
        {.name = "--json", .flag = &json, .help = "results and readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/attention [options]\n"
               "One decode step of attention: checked against float64, timed on a PIM memory.\n"
               "Exit status 1 if the error is above its bound.",
               options, EX_COUNT(options), NULL, 0);
    pimattn_config config = {.shape = {.n_layers = 1,
                                       .n_heads = HEADS,
                                       .n_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .k_type = PIMATTN_F16,
                                       .v_type = PIMATTN_F16},
                             .pool_bytes = (uint64_t)2 << 30,
                             .max_seqs = 1};
    accuracy a;
    ex_device(&config.device, preset, 0, NULL);
    decode_step(&a, &config, n_tokens, seed);
    const pair pairs[] = {
        estimate("layer", "The layer above:", &config, HEADS, KV_HEADS, n_tokens),
        estimate("one_head", "One KV head of 2,048 tokens: hfp leaves all channels but one idle.",
                 &config, 1, 1, HEAD_TOKENS),
        estimate("balanced",
                 "16 KV heads of 2,048 tokens each: balanced if the channels divide 16.", &config,
                 BATCH_HEADS, BATCH_HEADS, HEAD_TOKENS)};
    if (json)
        json_all(&a, pairs, EX_COUNT(pairs), &config.device, n_tokens);
    else
        print_all(&a, pairs, EX_COUNT(pairs), &config.device, n_tokens);
    int failed = ex_done();
    return a.within ? failed : 1;
}
