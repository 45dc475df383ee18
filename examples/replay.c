/* replay.c - captured queries, keys and values of a real model through the paged cache.
 *
 * The layout of a .attn file stands in capture.h. The answers are held against attention
 * in double precision over the stored values, and against what the model's own program computed.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "replay"
#include "common.h"
#include "capture.h"

/* What the replay found. */
typedef struct result {
    double exact_difference;    /* from double precision over the stored values */
    double captured_difference; /* from the captured outputs */
    uint64_t attention_ck;      /* all steps, all layers */
    pimattn_readings last;
    uint64_t kv_pages;
} result;

/* Largest |a - b|, and NaN once there was one. */
static double worse(double largest, double a, double b)
{
    double difference = fabs(a - b);
    return isnan(largest) || difference <= largest ? largest : difference;
}

/* Adds a token's K or V to the history of what the cache must hold. */
static void keep(float *history, const float *values, size_t n_values, bool f16)
{
    for (size_t i = 0; i < n_values; i++)
        history[i] = f16 ? ex_round_f16(values[i]) : values[i];
}

/* Compares one layer of one position. History of K and V: [position + 1][kv_floats]. */
static void compare(result *res, const capture *c, const float *out, const float *values,
                    const float *k, const float *v, size_t position, double *scratch)
{
    size_t dim = c->head_dim;
    double *exact = scratch;
    double *weights = scratch + dim;
    const float *captured = values + c->q_floats + 2 * c->kv_floats;
    for (size_t head = 0; head < c->n_heads; head++) {
        size_t kv = head / (c->n_heads / c->n_kv_heads) * dim;
        double max_score, max_v;
        ex_exact_attention(exact, &max_score, &max_v, weights, values + head * dim, k + kv, v + kv,
                           c->kv_floats, position + 1, dim);
        for (size_t j = 0; j < dim; j++) {
            double ours = (double)out[head * dim + j];
            res->exact_difference = worse(res->exact_difference, ours, exact[j]);
            res->captured_difference =
                worse(res->captured_difference, ours, (double)captured[head * dim + j]);
        }
    }
}

static void replay(result *res, const capture *c, const pimattn_config *config)
{
    pimattn_engine *engine = ex_engine(config);
    pimattn_seq seq;
    bool f16 = config->shape.k_type == PIMATTN_F16;
    size_t history = c->n_records * c->kv_floats;
    float *out = (float *)ex_alloc(c->q_floats, sizeof *out);
    float *k = (float *)ex_alloc((uint64_t)history * c->n_layers, sizeof *k);
    float *v = (float *)ex_alloc((uint64_t)history * c->n_layers, sizeof *v);
    double *scratch = (double *)ex_alloc(c->n_records + c->head_dim, sizeof *scratch);

    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    for (size_t p = 0; p < c->n_records; p++) {
        for (uint32_t layer = 0; layer < c->n_layers; layer++) {
            const float *values = capture_at(c, p, layer);
            const float *new_k = values + c->q_floats;
            const float *new_v = new_k + c->kv_floats;
            keep(k + layer * history + p * c->kv_floats, new_k, c->kv_floats, f16);
            keep(v + layer * history + p * c->kv_floats, new_v, c->kv_floats, f16);
            ex_check(engine, "append", pimattn_append(engine, seq, layer, new_k, new_v, 1, 0, 0));
            ex_check(engine, "attend",
                     pimattn_attend_one(engine, seq, layer, out, values,
                                        layer == 0 ? &res->last : NULL));
            compare(res, c, out, values, k + layer * history, v + layer * history, p, scratch);
        }
        res->attention_ck += res->last.step_ck;
    }
    res->kv_pages = pimattn_pages_used(engine);
    pimattn_engine_destroy(engine);
    free(out), free(k), free(v), free(scratch);
}

static void print_result(const result *res, const capture *c, const char *kv, bool json,
                         uint32_t tCK_ps)
{
    if (json) {
        printf("{\"schema\": %d, \"positions\": %zu, \"kv\": \"%s\", ", (int)EX_SCHEMA,
               c->n_records, kv);
        ex_json_number(stdout, "exact_difference", res->exact_difference);
        printf(", ");
        ex_json_number(stdout, "captured_difference", res->captured_difference);
        printf(", \"attention_ck\": %" PRIu64 ", \"kv_pages\": %" PRIu64 ", \"last_step\": ",
               res->attention_ck, res->kv_pages);
        ex_json_readings(stdout, &res->last, tCK_ps);
        printf("}\n");
        return;
    }
    printf("%zu positions (of %" PRIu32 " asked for), %" PRIu32 " layers, %" PRIu32
           " query heads, %" PRIu32 " KV heads of %" PRIu32 ", K and V in %s\n",
           c->n_records, c->n_steps, c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim, kv);
    printf("exact_difference     %.3g  from float64 over the values as stored\n",
           res->exact_difference);
    printf("captured_difference  %.3g  from the captured output\n", res->captured_difference);
    printf("attention_ck         %" PRIu64 "  all positions and layers, clocks of tCK_ps %" PRIu32
           "\n",
           res->attention_ck, tCK_ps);
    printf("kv_pages             %" PRIu64 "\n", res->kv_pages);
}

int main(int argc, char **argv)
{
    bool json = false;
    const char *path = NULL;
    uint32_t kv = PIMATTN_F32;
    pimattn_config config = {.max_seqs = 1};
    const ex_option options[] = {
        {.name = "--kv", .value = "f32|f16", .choice = &kv, .help = "type of K and V; f32"},
        {.name = "--page-tokens",
         .value = "N",
         .number = &config.page_tokens,
         .min = 1,
         .help = "tokens of a KV page; default 128"},
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &config.partition,
         .help = "default tcp"},
        {.name = "--json", .flag = &json, .help = "results and readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/replay [options] FILE.attn\n"
               "Feeds captured q, k, v through the paged cache and prints how far the outputs are\n"
               "from float64 attention and from the captured outputs.",
               options, EX_COUNT(options), &path, 1);
    capture c;
    result res = {0};
    capture_read(&c, path);
    config.shape.n_layers = c.n_layers;
    config.shape.n_heads = c.n_heads;
    config.shape.n_kv_heads = c.n_kv_heads;
    config.shape.head_dim = c.head_dim;
    config.shape.k_type = config.shape.v_type = kv;
    ex_device(&config.device, "aimx", 0, NULL);
    replay(&res, &c, &config);
    print_result(&res, &c, kv == PIMATTN_F16 ? "f16" : "f32", json, config.device.tCK_ps);
    free(c.bytes);
    return ex_done();
}
