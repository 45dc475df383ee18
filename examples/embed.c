/* embed.c - the twenty lines an inference engine copies: create, append, attend, read cycles. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "embed"
#include "common.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, STEPS = 100 };

/* Stands for the engine's own projections: something to attend to. */
static void project(float *values, int n_values, int step)
{
    for (int i = 0; i < n_values; i++)
        values[i] = (float)((i * 7 + step * 13) % 32) / 16.0f - 1.0f;
}

static void decode(pimattn_readings *readings, const pimattn_config *config)
{
    float q[HEADS * HEAD_DIM], k[KV_HEADS * HEAD_DIM], v[KV_HEADS * HEAD_DIM];
    float out[HEADS * HEAD_DIM];
    pimattn_engine *engine = ex_engine(config);
    pimattn_seq seq;
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    for (int step = 0; step < STEPS; step++) {
        ex_check(engine, "reserve", pimattn_seq_reserve(engine, seq, 1));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            project(q, HEADS * HEAD_DIM, step);
            project(k, KV_HEADS * HEAD_DIM, step + 1);
            project(v, KV_HEADS * HEAD_DIM, step + 2);
            ex_check(engine, "append", pimattn_append(engine, seq, layer, k, v, 1, 0, 0));
            ex_check(engine, "attend",
                     pimattn_attend_one(engine, seq, layer, out, q, layer == 0 ? readings : NULL));
        }
    }
    ex_check(engine, "free", pimattn_seq_free(engine, seq));
    pimattn_engine_destroy(engine);
}

int main(int argc, char **argv)
{
    bool json = false;
    const ex_option options[] = {{.name = "--json", .flag = &json, .help = "readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/embed [--json]\n"
               "Decodes 100 made-up tokens through a paged cache; prints the last step's cost.",
               options, EX_COUNT(options), NULL, 0);
    pimattn_config config = {.shape = {.n_layers = LAYERS,
                                       .n_heads = HEADS,
                                       .n_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .k_type = PIMATTN_F16,
                                       .v_type = PIMATTN_F16}};
    pimattn_readings readings;
    ex_device(&config.device, "aimx", 0, NULL);
    decode(&readings, &config);
    if (json) {
        printf("{\"schema\": %d, \"kv_pages\": %" PRIu64 ", \"readings\": ", (int)EX_SCHEMA,
               readings.pages_used);
        ex_json_readings(stdout, &readings, config.device.tCK_ps);
        printf("}\n");
    } else {
        printf("step %d: attention of %d layers takes step_ck %" PRIu64 " (tCK_ps %" PRIu32
               "), step_us %.3f; kv_pages %" PRIu64 "\n",
               (int)STEPS, (int)LAYERS, readings.step_ck, config.device.tCK_ps, readings.step_us,
               readings.pages_used);
    }
    return ex_done();
}
