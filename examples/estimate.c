/* estimate.c - what attention of a shape would cost on a device, without tensors: clocks and where
 * they go, energy, and how long others would take to read the same K and V. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "estimate"
#include "common.h"

enum { MAX_SEQUENCES = 65535, AS_PRESET = 99 };

/* What the command line says; the defaults are Llama-3-8B, one sequence of 4,096 tokens. */
typedef struct request {
    pimattn_config config;
    const char *preset;
    uint32_t n_channels;
    uint32_t controller; /* pimhw_controller or AS_PRESET */
    uint32_t refresh;    /* 0, 1 or AS_PRESET */
    ex_texts sets;
    const char *context;
    uint32_t batch;
    uint32_t n_tokens;
    uint32_t kv_type; /* 0: f16, 1: int8 */
    uint32_t window;
    bool json;
    bool sources;
} request;

static void parse(request *r, int argc, char **argv)
{
    pimattn_shape *shape = &r->config.shape;
    const ex_option options[] = {
        {.name = "--heads",
         .value = "N",
         .number = &shape->n_heads,
         .min = 1,
         .help = "query heads; default 32"},
        {.name = "--kv-heads",
         .value = "N",
         .number = &shape->n_kv_heads,
         .min = 1,
         .help = "default 8"},
        {.name = "--head-dim",
         .value = "N",
         .number = &shape->head_dim,
         .min = 1,
         .help = "default 128"},
        {.name = "--head-dim-v",
         .value = "N",
         .number = &shape->head_dim_v,
         .help = "of V and the output; default: as that"},
        {.name = "--kv-type",
         .value = "f16|int8",
         .choice = &r->kv_type,
         .help = "of K and V, a lane each; default f16"},
        {.name = "--window",
         .value = "N",
         .number = &r->window,
         .help = "last tokens a query sees; default 0: all"},
        {.name = "--layers",
         .value = "N",
         .number = &shape->n_layers,
         .min = 1,
         .max = 65536,
         .help = "default 32"},
        {.name = "--context",
         .value = "N[,N..]",
         .text = &r->context,
         .help = "tokens of each sequence; default 4096"},
        {.name = "--batch",
         .value = "N",
         .number = &r->batch,
         .min = 1,
         .max = MAX_SEQUENCES,
         .help = "so many of each sequence; default 1"},
        {.name = "--n-tokens",
         .value = "N",
         .number = &r->n_tokens,
         .min = 1,
         .help = "queries of a sequence, its last tokens; default 1"},
        {.name = "--device", .value = "PRESET", .text = &r->preset, .help = "default aimx"},
        {.name = "--channels",
         .value = "N",
         .number = &r->n_channels,
         .min = 1,
         .help = "default: as the preset has"},
        {.name = "--controller",
         .value = "in-order|static|ping-pong|dcs",
         .choice = &r->controller,
         .help = "default: as the preset has"},
        {.name = "--refresh",
         .value = "off|on",
         .choice = &r->refresh,
         .help = "default: as the preset has"},
        {.name = "--set",
         .value = "FIELD=N",
         .texts = &r->sets,
         .help = "a field of the device, whatever else is said; repeatable"},
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &r->config.partition,
         .help = "default tcp"},
        {.name = "--hfp-unit",
         .value = "kv_head|query_head",
         .choice = &r->config.hfp_unit,
         .help = "what hfp gives to a channel"},
        {.name = "--v-mapping",
         .value = "A|B|K|cheapest",
         .choice = &r->config.v_mapping,
         .help = "how V lies in the banks; default A"},
        {.name = "--no-row-reuse",
         .flag = &r->config.row_reuse_off,
         .help = "queries of a KV head open its rows one after the other"},
        {.name = "--sources",
         .flag = &r->sources,
         .help = "the device's numbers and their sources"},
        {.name = "--json", .flag = &r->json, .help = "readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/estimate [options]\n"
               "Clocks of attention on a PIM device, from a shape and context lengths alone.",
               options, EX_COUNT(options), NULL, 0);
}

/* "N,N,.." times batch; to be freed by the caller. */
static pimattn_span *make_spans(const request *r, size_t *n_spans)
{
    size_t n_contexts = 1;
    for (const char *c = r->context; *c != 0; c++)
        n_contexts += *c == ',';
    *n_spans = n_contexts * r->batch;
    if (*n_spans > MAX_SEQUENCES)
        ex_die("--batch: %zu sequences, at most %d", *n_spans, (int)MAX_SEQUENCES);
    pimattn_span *spans = (pimattn_span *)ex_alloc(*n_spans, sizeof *spans);
    const char *at = r->context;
    for (size_t i = 0; i < n_contexts; i++) {
        char number[24] = {0};
        size_t length = strcspn(at, ",");
        if (length >= sizeof number)
            ex_die("--context: '%.*s' is longer than any number", (int)length, at);
        memcpy(number, at, length);
        uint64_t tokens = ex_number("--context", number, 1, UINT32_MAX);
        if (tokens < r->n_tokens)
            ex_die("--n-tokens: %" PRIu32 " queries in %" PRIu64 " tokens", r->n_tokens, tokens);
        for (size_t b = 0; b < r->batch; b++) {
            spans[b * n_contexts + i].context_tokens = tokens;
            spans[b * n_contexts + i].n_tokens = r->n_tokens;
        }
        at += length + (at[length] == ',');
    }
    return spans;
}

/* Every number of the device with its source; one set by hand has none. */
static void print_sources(const pimhw_config *device)
{
    pimhw_config preset;
    const char *field;
    pimhw_config_init(&preset, device->preset, NULL);
    printf("field value source\n");
    for (uint32_t i = 0; (field = pimhw_config_field(i)) != NULL; i++) {
        uint32_t value = 0, of_preset = 0;
        pimhw_config_get(device, field, &value, NULL);
        pimhw_config_get(&preset, field, &of_preset, NULL);
        printf("%s %" PRIu32 " %s\n", field, value,
               value == of_preset ? pimhw_preset_source(device->preset, field) : "set");
    }
}

/* What ex_print_readings leaves out. */
static void print_more(const pimattn_readings *r, double bytes)
{
    const pimhw_readings *d = &r->device;
    printf("  timed            %12" PRIu32 "  of them in one go\n", r->layers_timed);
    printf("  refresh_share    %12.4f  of the clocks\n", r->refresh_share);
    printf("controller %s, V by mapping %s", pimhw_controller_str(r->controller),
           pimattn_v_mapping_str(r->v_mapping));
    if (r->v_wanted != r->v_mapping) printf(" (asked for: %s)", pimattn_v_mapping_str(r->v_wanted));
    printf("\n  flop_utilisation %12.4f\n", d->flop_utilisation);
    printf("  metadata bytes   %12" PRIu64 "  program %" PRIu64 ", request %" PRIu64
           ", controller %" PRIu64 " a channel\n",
           d->program_bytes + d->request_bytes + d->controller_bytes, d->program_bytes,
           d->request_bytes, d->controller_bytes);
    if (bytes > 0)
        printf("  memory           %12.1f %% of the device's %.1f GiB: K and V of all layers%s\n",
               100 * (double)r->kv_bytes * r->n_layers / bytes, bytes / 1073741824,
               (double)r->kv_bytes * r->n_layers > bytes ? ", which do not fit" : "");
    printf("energy of the step\n");
    ex_print_energy(r->energy_pJ, r->step_pJ);
    printf("  total            %12.3f uJ, %.3f a layer, %.3f a token\n", r->step_pJ * 1e-6,
           r->layer_pJ * 1e-6, r->token_pJ * 1e-6);
    printf("  average_mW       %12.1f\n", r->average_mW);
    printf("one layer beside others that read the same K and V\n");
    printf("  device_us        %12.3f  and the link %.3f; bound by %s\n", r->layer_ns * 1e-3,
           r->link_ns * 1e-3, pimattn_bound_str(r->bound));
    printf("  host_us          %12.3f  at the host's bandwidth: the %s wins, %.2f times as fast\n",
           r->host_ns * 1e-3, r->speedup > 1 ? "device" : "host",
           r->speedup > 1 ? r->speedup : 1 / r->speedup);
    printf("  peak_us          %12.3f  at that of all banks\n", r->peak_ns * 1e-3);
}

/* Members of the JSON object that ex_json_readings leaves out. */
static void json_more(const pimattn_readings *r)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"flop_utilisation", r->device.flop_utilisation},
                   {"layer_ns", r->layer_ns},
                   {"refresh_share", r->refresh_share},
                   {"step_pJ", r->step_pJ},
                   {"layer_pJ", r->layer_pJ},
                   {"token_pJ", r->token_pJ},
                   {"average_mW", r->average_mW},
                   {"layer_host_ns", r->host_ns},
                   {"layer_peak_ns", r->peak_ns},
                   {"layer_link_ns", r->link_ns},
                   {"speedup", r->speedup}};
    printf("\"controller\": \"%s\", \"v_mapping\": \"%s\", \"v_wanted\": \"%s\"",
           pimhw_controller_str(r->controller), pimattn_v_mapping_str(r->v_mapping),
           pimattn_v_mapping_str(r->v_wanted));
    printf(", \"bound\": \"%s\", \"layers_timed\": %" PRIu32, pimattn_bound_str(r->bound),
           r->layers_timed);
    printf(", \"controller_bytes\": %" PRIu64 ", \"active_ck\": %" PRIu64,
           r->device.controller_bytes, r->device.active_ck);
    for (size_t i = 0; i < EX_COUNT(numbers); i++) {
        printf(", ");
        ex_json_number(stdout, numbers[i].key, numbers[i].value);
    }
    printf(", ");
    ex_json_energy(stdout, "step_energy_pJ", r->energy_pJ);
}

int main(int argc, char **argv)
{
    request r = {.config = {.shape = {.n_layers = 32,
                                      .n_heads = 32,
                                      .n_kv_heads = 8,
                                      .head_dim = 128,
                                      .k_type = PIMATTN_F16,
                                      .v_type = PIMATTN_F16}},
                 .preset = "aimx",
                 .controller = AS_PRESET,
                 .refresh = AS_PRESET,
                 .context = "4096",
                 .batch = 1,
                 .n_tokens = 1};
    parse(&r, argc, argv);
    if (r.kv_type == 1) r.config.shape.k_type = r.config.shape.v_type = PIMATTN_INT8;
    r.config.shape.window = r.window;
    if (r.sources && r.json) ex_die("--sources is a listing; --json has no form for it");
    if (r.config.hfp_unit && r.config.partition == PIMATTN_TCP)
        ex_die("--hfp-unit goes with --partition hfp");
    ex_device_preset(&r.config.device, r.preset);
    if (r.controller != AS_PRESET) r.config.device.controller = r.controller;
    if (r.refresh != AS_PRESET) r.config.device.refresh = r.refresh;
    ex_device_change(&r.config.device, r.n_channels, &r.sets);
    ex_device_check(&r.config.device);
    if (r.sources) {
        print_sources(&r.config.device);
        return ex_done();
    }
    size_t n_spans = 0;
    pimattn_span *spans = make_spans(&r, &n_spans);
    r.config.max_seqs = (uint32_t)n_spans;

    pimattn_readings readings;
    pimhw_cause why = {{0}};
    pimattn_status status = pimattn_estimate(&readings, &r.config, spans, n_spans, &why);
    if (status != PIMATTN_OK && strstr(why.text, "pool_bytes") != NULL) /* left to the engine */
        ex_die("--layers, --kv-heads, --head-dim: a page of all takes more than 2^46 bytes or is "
               "more than 2^32 - 1 pages");
    if (status != PIMATTN_OK) ex_die("%s: %s", pimattn_status_str(status), why.text);
    const pimhw_config *d = &r.config.device; /* of flash no rows are known */
    double bytes = (double)d->n_channels * pimhw_config_banks(d) * d->n_rows * d->row_bytes;
    if (r.json) {
        printf("{\"schema\": %d, \"device\": \"%s\", ", (int)EX_SCHEMA, r.preset);
        ex_json_texts(stdout, "set", &r.sets);
        printf(", \"device_bytes\": %.0f, ", bytes);
        json_more(&readings);
        printf(", \"readings\": ");
        ex_json_readings(stdout, &readings, r.config.device.tCK_ps);
        printf("}\n");
    } else {
        ex_print_readings(&readings, r.config.device.tCK_ps);
        print_more(&readings, bytes);
    }
    free(spans);
    return ex_done();
}
