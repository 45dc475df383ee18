/* device_attention - one decode step whose attention the modelled memory computes by itself: its
 * units multiply the bytes in their banks, command by command, in the order of each controller.
 * Values, clocks and joules are of that one execution; beside them the host's result and float64.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "device_attention"
#include "common.h"
#include "published.h"

typedef struct step {
    pimattn_config config;
    size_t n_tokens, q_floats, kv_floats;
    float *k, *v, *q; /* as f16 holds them */
    double *exact;    /* [n_heads][head_dim] */
    double max_v;
} step;

/* Values nearly normal, as f16 holds them. */
static void fill(float *values, size_t n_values, uint64_t *random)
{
    for (size_t i = 0; i < n_values; i++) {
        float sum = -6.0f;
        for (int j = 0; j < 12; j++) {
            *random = *random * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(*random >> 40) / 16777216.0f;
        }
        values[i] = ex_round_f16(sum);
    }
}

static void make_step(step *s, uint64_t seed)
{
    const pimattn_shape *shape = &s->config.shape;
    s->q_floats = (size_t)shape->n_heads * shape->head_dim;
    s->kv_floats = (size_t)shape->n_kv_heads * shape->head_dim;
    s->k = (float *)ex_alloc(s->n_tokens * s->kv_floats, sizeof *s->k);
    s->v = (float *)ex_alloc(s->n_tokens * s->kv_floats, sizeof *s->v);
    s->q = (float *)ex_alloc(s->q_floats, sizeof *s->q);
    s->exact = (double *)ex_alloc(s->q_floats, sizeof *s->exact);
    fill(s->k, s->n_tokens * s->kv_floats, &seed);
    fill(s->v, s->n_tokens * s->kv_floats, &seed);
    fill(s->q, s->q_floats, &seed);
    double *weights = (double *)ex_alloc(s->n_tokens, sizeof *weights);
    for (uint32_t head = 0; head < shape->n_heads; head++) {
        double max_score, max_v;
        size_t kv = head / (shape->n_heads / shape->n_kv_heads) * (size_t)shape->head_dim;
        ex_exact_attention(s->exact + head * (size_t)shape->head_dim, &max_score, &max_v, weights,
                           s->q + head * (size_t)shape->head_dim, s->k + kv, s->v + kv,
                           s->kv_floats, s->n_tokens, shape->head_dim);
        s->max_v = fmax(s->max_v, max_v);
    }
    free(weights);
}

/* The larger difference, and NaN once there was one. */
static double worse(double largest, double difference)
{
    return isnan(largest) || difference <= largest ? largest : difference;
}

/* One step by one engine; returns the largest difference from float64. */
static double attend(const step *s, const pimattn_config *config, float *out, pimattn_readings *r)
{
    pimattn_engine *engine = ex_engine(config);
    pimattn_seq seq;
    double error = 0;
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    ex_check(engine, "append", pimattn_append(engine, seq, 0, s->k, s->v, s->n_tokens, 0, 0));
    ex_check(engine, "attend", pimattn_attend_one(engine, seq, 0, out, s->q, r));
    pimattn_engine_destroy(engine);
    for (size_t i = 0; i < s->q_floats; i++)
        error = worse(error, fabs((double)out[i] - s->exact[i]));
    return error;
}

static void print_title(const step *s, const char *preset, bool json)
{
    const pimattn_config *c = &s->config;
    if (json) {
        printf("{\"schema\": %d, \"device\": \"%s\", \"controllers\": [", (int)EX_SCHEMA, preset);
        return;
    }
    printf("One decode step, 32 query heads, 8 KV heads of 128, %zu tokens, on %s, %s:\n"
           "K and V in its banks, %s lanes, sums read in %" PRIu32 " bits; largest |v| %.3g.\n\n"
           "  controller   max error  bytes   cycles_ck   time_us  MAC util.   energy_uJ\n",
           s->n_tokens, preset, ex_partition_str(c->partition),
           c->device.lane_type == PIMHW_LANE_F16 ? "fp16" : "bf16", c->device.out_bits, s->max_v);
}

/* One controller's execution as a member of a JSON array. */
static void json_row(const char *name, double error, const pimattn_readings *r, bool same,
                     uint32_t tCK_ps)
{
    printf("{\"controller\": \"%s\", ", name);
    ex_json_number(stdout, "max_error", error);
    printf(", \"same_bytes\": %s, ", same ? "true" : "false");
    ex_json_number(stdout, "energy_pJ", r->device.total_pJ);
    printf(", \"readings\": ");
    ex_json_readings(stdout, r, tCK_ps);
    printf("}");
}

static void print_row(const char *name, double error, const pimattn_readings *r, bool same)
{
    const pimhw_readings *d = &r->device;
    printf("  %-10s %12.3g  %-5s %11" PRIu64 " %9.2f %8.1f%% %11.2f\n", name, error,
           same ? "same" : "other", d->cycles, d->ns / 1000, 100 * d->mac_utilisation,
           d->total_pJ * 1e-6);
}

/* What the hub holds of one layer's attention: the program, resolved there and unrolled. Returns
 * the bytes of all but the latter. */
static uint64_t print_program(const pimattn_config *config, uint64_t n_tokens)
{
    pimattn_plan plan;
    pimhw_program program;
    pimhw_request request;
    pimhw_block blocks[8];
    uint32_t order[8], list_begin[PIMHW_MAX_CHANNELS + 1];
    pimattn_span span = {n_tokens, 1};
    pimhw_device *device;
    pimhw_cause why = {{0}};
    uint64_t unrolled = 0;
    const pimattn_shape *s = &config->shape;
    if (pimattn_plan_init(&plan, s, &config->device, config->partition, 0, false,
                          s->n_heads / s->n_kv_heads, &why) != PIMATTN_OK ||
        pimattn_plan_lower(&plan, &program, &why) != PIMATTN_OK ||
        pimattn_plan_request(&plan, &request, blocks, order, list_begin, &span, 1, &why) !=
            PIMATTN_OK ||
        pimhw_device_create(&device, &config->device, &why) != PIMHW_OK ||
        pimhw_program_unroll(device, &unrolled, &program, &request, &why) != PIMHW_OK)
        ex_die("program: %s", why.text);
    uint32_t n_channels = config->device.n_channels;
    uint64_t held = pimhw_program_bytes(&program), lists = request.n_blocks * sizeof *blocks;
    uint64_t va2pa = 6 * s->n_kv_heads * pimattn_plan_chunks(&plan, n_tokens);
    if (request.list_begin) lists += 4 * ((uint64_t)n_channels + 1 + list_begin[n_channels]);
    printf("  %8" PRIu64 " tokens: program %5" PRIu64 " bytes, blocks and lists %4" PRIu64
           ", VA2PA %6" PRIu64 "; unrolled %10" PRIu64 " bytes\n",
           n_tokens, held, lists, va2pa, unrolled);
    pimhw_device_destroy(device);
    return held + lists + va2pa;
}

/* The step under every controller; readings are those of the last, *first the first's output. */
static void run_controllers(const step *s, const char *preset, bool json, float *out, float *first,
                            pimattn_readings *r)
{
    pimattn_config config = s->config;
    config.way = PIMATTN_DEVICE;
    for (uint32_t c = 0; pimhw_controller_str(c) != NULL; c++) {
        config.device.controller = c;
        ex_device_check(&config.device); /* before anything is printed */
    }
    for (uint32_t c = 0; pimhw_controller_str(c) != NULL; c++) {
        const char *name = pimhw_controller_str(c);
        config.device.controller = c;
        double error = attend(s, &config, out, r);
        if (c == 0) memcpy(first, out, s->q_floats * sizeof *out);
        bool same = memcmp(out, first, s->q_floats * sizeof *out) == 0;
        if (c == 0) print_title(s, preset, json); /* now, not before what may fail */
        if (json && c > 0) printf(", ");
        if (json)
            json_row(name, error, r, same, config.device.tCK_ps);
        else
            print_row(name, error, r, same);
    }
    if (json) printf("]}\n");
}

/* Beside the host's result, what the memory and the hub hold. */
static void print_rest(const step *s, const float *device, const pimattn_readings *r)
{
    float *host = (float *)ex_alloc(s->q_floats, sizeof *host);
    pimattn_readings host_r;
    double between = 0, host_error = attend(s, &s->config, host, &host_r);
    for (size_t i = 0; i < s->q_floats; i++)
        between = worse(between, fabs((double)host[i] - (double)device[i]));
    printf("  host (%s) %.3g from float64; the device is %.3g from the host\n\n"
           "bytes: same as in-order's. Controllers whose plans keep sums over rows, or not, round\n"
           "them at other places; one program gives the same bytes under all of them.\n",
           host_r.kernel, host_error, between);
    printf("chunks of %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " in use; K and V alone %" PRIu64
           " bytes\nappending all of it: %" PRIu64 " commands, %" PRIu64 " clocks, %.2f uJ\n",
           r->chunk_bytes, r->chunks_used, r->chunks_total, r->kv_bytes, r->append_commands,
           r->append_ck, r->append_pJ * 1e-6);
    uint64_t held = 0;
    printf("\nWhat the hub holds of it, of one layer; published is the room for it:\n");
    for (uint64_t tokens = 4096; tokens <= 1 << 20; tokens *= 4)
        held = print_program(&s->config, tokens);
    published_print(stdout, published_find("lol.disp"), (double)held / 1e3);
    free(host);
}

int main(int argc, char **argv)
{
    bool json = false;
    uint32_t n_tokens = 2048, n_channels = 0;
    const char *preset = "aimx";
    ex_texts sets = {0};
    step s = {.config = {.shape = {.n_layers = 1,
                                   .n_heads = 32,
                                   .n_kv_heads = 8,
                                   .head_dim = 128,
                                   .k_type = PIMATTN_F16,
                                   .v_type = PIMATTN_F16},
                         .max_seqs = 1}};
    const ex_option options[] = {
        {.name = "--tokens",
         .value = "N",
         .number = &n_tokens,
         .min = 1,
         .max = 1 << 17,
         .help = "tokens in the cache; default 2048"},
        {.name = "--device", .value = "PRESET", .text = &preset, .help = "default aimx"},
        {.name = "--channels",
         .value = "N",
         .number = &n_channels,
         .min = 1,
         .help = "default: as the device has"},
        {.name = "--set", .value = "FIELD=N", .texts = &sets, .help = "e.g. out_bits=32"},
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &s.config.partition,
         .help = "default tcp"},
        {.name = "--json", .flag = &json, .help = "readings of every controller as JSON"}};
    ex_options(argc, argv,
               "usage: build/device_attention [options]\n"
               "A decode step of a Llama-3-8B layer, computed on the modelled memory.",
               options, EX_COUNT(options), NULL, 0);
    ex_device(&s.config.device, preset, n_channels, &sets);
    s.n_tokens = n_tokens;
    make_step(&s, 1);
    float *out = (float *)ex_alloc(2 * s.q_floats, sizeof *out), *first = out + s.q_floats;
    pimattn_readings r;
    run_controllers(&s, preset, json, out, first, &r);
    if (!json) print_rest(&s, first, &r);
    free(out), free(s.k), free(s.v), free(s.q), free(s.exact);
    return ex_done();
}
