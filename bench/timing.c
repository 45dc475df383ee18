/* How fast is the timing itself? CSV.
 *
 * gemv: 12288 x 12288, order B, 32 channels; qk: QK^T of 131,072 tokens, 64 heads of 8 KV heads, 32
 * channels (both rows of the AiM simulator's oracle); each also with its first channel alone: the
 * rate of the walk itself, as a command of 32 channels is 32 calls of the sink; attention: a
 * Llama-3-8B layer on AiMX, one sequence; step: a layer of Llama-3-8B (times 32) and 70B (times 80)
 * for 64 ragged sequences.
 *
 * mode: submit   every instruction by pimhw_device_submit, no sink
 *       walked   a program with loops and a sink that keeps a clock: nothing is skipped
 *       skipped  the same program without a sink, on a device that has not seen it
 *       again    and on one that has; of a step: planned anew for sequences that are each one
 *                token longer, as an engine's next step
 *       estimate a call of pimattn_estimate: plan, program, device and all
 *
 * host_us is the median of several runs. What we want: 20 commands/us walked, gemv 2 ms walked and
 * 50 us skipped, qk 100 us skipped, attention of 4 M tokens skipped in 3 times the time of 128 K,
 * a step's estimate in 1 ms, and the next; limit_us is that limit, within whether it is kept. */
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "clean.h"

enum { MOST_RUNS = 15, LEAST_RUNS = 3, SEQUENCES = 64, INSTRUCTIONS = 60000, WALKED = 131072 };

static const double enough_us = 150e3, too_long_us = 300e3;

typedef enum mode { SUBMIT, WALK, SKIP, AGAIN, ESTIMATE } mode;

static const char *const mode_names[] = {"submit", "walked", "skipped", "again", "estimate"};

/* What is timed. */
typedef struct job {
    const char *name;
    uint64_t tokens;
    mode how;
    pimattn_config config; /* estimate; the device is that of all */
    pimattn_span spans[SEQUENCES];
    size_t n_spans;
    pimhw_device *device;
    pimhw_program program;
    pimhw_request request;
    pimhw_block *blocks;
    uint32_t *order, list_begin[PIMHW_MAX_CHANNELS + 1];
    pimhw_instruction *instructions;
    size_t n_instructions;
    uint64_t last_ck; /* of the newest command */
    unsigned n_wrong; /* modes that did not agree */
    pimhw_readings r;
} job;

static job now;

/* The least that a sink can do; a sum in memory takes longer than the walk. */
static void keep_clock(void *user, const pimhw_event *event)
{
    uint64_t *last_ck = (uint64_t *)user;
    *last_ck = event->issue_ck;
}

static bool keep_instruction(void *user, const pimhw_instruction *instruction)
{
    (void)user;
    bench_must(now.n_instructions < INSTRUCTIONS, "too many instructions");
    now.instructions[now.n_instructions++] = *instruction;
    return true;
}

/* Program and request of one layer, for the modes without pimattn_estimate. */
static void plan_layer(void)
{
    static pimattn_plan plan;
    pimhw_cause why = {""};
    const pimattn_config *c = &now.config;
    bench_good(pimattn_plan_init(&plan, &c->shape, &c->device, c->partition, c->hfp_unit, false,
                                 c->shape.n_heads / c->shape.n_kv_heads, &why) == PIMATTN_OK,
               "plan", why.text);
    bench_good(pimattn_plan_lower(&plan, &now.program, &why) == PIMATTN_OK, "lower", why.text);
    size_t n = pimattn_plan_blocks(&plan, now.n_spans);
    free(now.blocks);
    free(now.order);
    now.blocks = (pimhw_block *)calloc(n, sizeof *now.blocks);
    now.order = (uint32_t *)calloc(n, sizeof *now.order);
    bench_must(now.blocks && now.order, "memory");
    bench_good(pimattn_plan_request(&plan, &now.request, now.blocks, now.order, now.list_begin,
                                    now.spans, now.n_spans, &why) == PIMATTN_OK,
               "request", why.text);
}

/* A device knows the program it timed last; of this it knows nothing after another. */
static void forget(void)
{
    static pimhw_program other;
    pimhw_item item = {.kind = PIMHW_SYNC, .mask = 1};
    pimhw_cause why = {""};
    pimhw_program_init(&other);
    pimhw_program_item(&other, &item);
    bench_good(pimhw_device_time(now.device, &now.r, &other, NULL, NULL, &why) == PIMHW_OK,
               "forget", why.text);
}

static void run_once(void)
{
    pimhw_cause why = {""};
    pimhw_sink sink = {keep_clock, &now.last_ck, NULL};
    pimattn_readings readings;
    if (now.how == ESTIMATE) {
        pimattn_status status =
            pimattn_estimate(&readings, &now.config, now.spans, now.n_spans, &why);
        bench_good(status == PIMATTN_OK, "estimate", why.text);
        now.r = readings.device;
    } else if (now.how == SUBMIT) {
        bench_must(pimhw_device_begin(now.device, NULL) == PIMHW_OK, "begin");
        for (size_t i = 0; i < now.n_instructions; i++)
            bench_good(pimhw_device_submit(now.device, &now.instructions[i], &why) == PIMHW_OK,
                       "submit", why.text);
        bench_good(pimhw_device_finish(now.device, &now.r, &why) == PIMHW_OK, "finish", why.text);
    } else {
        for (size_t i = 0; i < now.n_spans && now.how == AGAIN; i++)
            now.spans[i].context_tokens++;
        if (now.n_spans > 0 && now.how == AGAIN) plan_layer();
        bench_good(pimhw_device_time(now.device, &now.r, &now.program, &now.request,
                                     now.how == WALK ? &sink : NULL, &why) == PIMHW_OK,
                   "time", why.text);
    }
}

static double median_us(void)
{
    double us[MOST_RUNS], total = 0;
    int n = 0;
    while (n < MOST_RUNS && (n < LEAST_RUNS || total < enough_us) &&
           (n == 0 || total < too_long_us)) {
        if (now.how == SKIP) forget();
        bench_settle();
        double start = bench_now_us();
        run_once();
        us[n] = bench_now_us() - start;
        total += us[n++];
    }
    return bench_median(us, n);
}

/* Times the job in a mode and prints it; returns host_us. limit_us 0: none. */
static double print(mode how, double limit_us)
{
    const pimhw_config *c = &now.config.device;
    uint64_t n = 0, cycles = now.r.cycles;
    bool longer = how == AGAIN && now.n_spans > 0;
    now.how = how;
    double us = median_us();
    if (cycles != 0 && cycles != now.r.cycles && !longer) {
        fprintf(stderr, "timing: %s, %s: %llu cycles, and %llu in the mode before\n", now.name,
                mode_names[how], (unsigned long long)now.r.cycles, (unsigned long long)cycles);
        now.n_wrong++;
    }
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        n += now.r.commands[i];
    if (how == WALK && limit_us == 0) limit_us = (double)n / 20;
    printf("%s,%llu,%u,%s,%s,%s,%llu,%llu,%llu,%.1f,%.2f,%.2f,%.0f,%llu,%llu,", now.name,
           (unsigned long long)now.tokens, c->n_channels, pimhw_controller_str(c->controller),
           c->refresh ? "on" : "off", mode_names[how], (unsigned long long)now.r.cycles,
           (unsigned long long)n, (unsigned long long)n / c->n_channels, us, (double)n / us,
           (double)n / c->n_channels / us, (double)now.r.cycles / us,
           (unsigned long long)now.r.skipped_rounds, (unsigned long long)now.r.walked_rounds);
    if (limit_us > 0)
        printf("%.1f,%s\n", limit_us, us <= limit_us ? "yes" : "no");
    else
        printf(",\n");
    fflush(stdout);
    return us;
}

/* n_channels 0: those of the preset */
static void use_device(const char *preset, uint32_t n_channels, uint32_t controller, bool refresh)
{
    pimhw_cause why = {""};
    pimhw_config *c = &now.config.device;
    bench_good(pimhw_config_init(c, preset, &why) == PIMHW_OK, "preset", why.text);
    c->controller = controller;
    c->refresh = refresh;
    if (n_channels > 0) c->n_channels = n_channels;
    pimhw_device_destroy(now.device);
    bench_good(pimhw_device_create(&now.device, c, &why) == PIMHW_OK, "device", why.text);
    now.r.cycles = 0;
    memset(&now.request, 0, sizeof now.request);
}

/* --- The two streams of the oracle ----------------------------------------------------------- */

static uint32_t all_channels(void)
{
    return UINT32_MAX >> (32 - now.config.device.n_channels);
}

static void add_loop(uint64_t rounds)
{
    pimhw_program_loop(&now.program, pimhw_program_const(&now.program, rounds), all_channels());
}

/* steps: of loops 0, 1, 2 */
static uint8_t steps(uint64_t first, uint64_t second, uint64_t third)
{
    pimhw_operand o;
    memset(&o, 0, sizeof o);
    o.step[0] = first;
    o.step[1] = second;
    o.step[2] = third;
    return pimhw_program_operand(&now.program, &o);
}

static void add(pimhw_kind kind, uint64_t op_size, uint8_t row, uint8_t tile, uint8_t out)
{
    pimhw_item item;
    memset(&item, 0, sizeof item);
    item.kind = (uint8_t)kind;
    item.mask = all_channels();
    item.op_size = pimhw_program_const(&now.program, op_size);
    item.row = row;
    item.tile = tile;
    if (kind == PIMHW_MAC_ABK) item.column = tile;
    item.out = out;
    pimhw_program_item(&now.program, &item);
}

/* Per chunk of 1024 inputs: 24 outputs of every bank, each with an accumulator. */
static void gemv_program(void)
{
    enum { CHUNKS = 12, OUTPUTS = 24 };
    pimhw_program_init(&now.program);
    add_loop(CHUNKS);
    add(PIMHW_WR_GB, 64, 0, 0, 0);
    add_loop(OUTPUTS);
    add(PIMHW_WR_BIAS, 1, 0, 0, steps(0, 1, 0));
    pimhw_program_end(&now.program);
    add_loop(OUTPUTS);
    add(PIMHW_MAC_ABK, 64, steps(1, CHUNKS, 0), 0, steps(0, 1, 0));
    pimhw_program_end(&now.program);
    add_loop(OUTPUTS);
    add(PIMHW_RD_MAC, 1, 0, 0, steps(0, 1, 0));
    pimhw_program_end(&now.program);
    pimhw_program_end(&now.program);
}

/* Per row of all banks (512 tokens of 8 KV heads): 8 queries of each of the heads. */
static void qk_program(void)
{
    enum { ROWS = 131072 / 512, GROUP = 8, KV_HEADS = 8, HEAD_COLUMNS = 8 };
    pimhw_program_init(&now.program);
    add_loop(ROWS);
    add_loop(GROUP);
    add(PIMHW_WR_GB, 64, 0, 0, 0);
    add_loop(KV_HEADS);
    add(PIMHW_WR_BIAS, 1, 0, 0, steps(0, 0, 1));
    add(PIMHW_MAC_ABK, HEAD_COLUMNS, steps(1, 0, 0), steps(0, 0, HEAD_COLUMNS), steps(0, 0, 1));
    add(PIMHW_RD_MAC, 1, 0, 0, steps(0, 0, 1));
    pimhw_program_end(&now.program);
    pimhw_program_end(&now.program);
    pimhw_program_end(&now.program);
}

static void oracle_stream(const char *name, uint32_t n_channels, uint64_t tokens,
                          void (*program)(void), double walked_us, double skipped_us)
{
    pimhw_cause why = {""};
    now.name = name;
    now.tokens = tokens;
    for (uint32_t controller = 0; controller < 4; controller++)
        for (int refresh = 0; refresh < 2; refresh++) {
            use_device("aim-gddr6", n_channels, controller, refresh);
            program();
            bench_good(pimhw_program_check(&now.program, &now.config.device, &why) == PIMHW_OK,
                       "program", why.text);
            now.n_instructions = 0;
            bench_good(pimhw_device_resolve(now.device, &now.program, NULL, keep_instruction, NULL,
                                            &why) == PIMHW_OK,
                       "resolve", why.text);
            print(SUBMIT, walked_us);
            print(WALK, walked_us);
            print(SKIP, skipped_us);
            print(AGAIN, 0);
        }
}

/* --- Attention ------------------------------------------------------------------------------- */

static void use_shape(uint32_t n_layers, uint32_t n_heads)
{
    now.config.shape.n_layers = n_layers;
    now.config.shape.n_heads = n_heads;
    now.config.shape.n_kv_heads = 8;
    now.config.shape.head_dim = 128;
}

static void contexts(uint32_t controller, bool refresh)
{
    double usual_us = 0;
    now.name = "attention";
    use_shape(32, 32);
    now.n_spans = 1;
    for (uint64_t tokens = 256; tokens <= 4u << 20; tokens *= tokens < WALKED / 2 ? 4 : 2) {
        now.tokens = tokens;
        now.spans[0].context_tokens = tokens;
        now.spans[0].n_tokens = 1;
        use_device("aimx", 0, controller, refresh);
        plan_layer();
        if (tokens <= WALKED) print(WALK, 0);
        double us = print(SKIP, tokens == 4u << 20 ? 3 * usual_us : 0);
        if (tokens == WALKED) usual_us = us;
        print(ESTIMATE, 0);
    }
}

/* 64 sequences of 256 to 32,768 tokens. */
static void ragged(const char *name, uint32_t n_layers, uint32_t n_heads, uint32_t controller,
                   bool refresh)
{
    uint32_t seed = 1;
    now.name = name;
    use_shape(n_layers, n_heads);
    now.n_spans = SEQUENCES;
    now.config.max_seqs = SEQUENCES;
    now.tokens = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        seed = seed * 1664525u + 1013904223u;
        now.spans[i].context_tokens = 256 + (seed >> 8) % (32768 - 256 + 1);
        now.spans[i].n_tokens = 1;
        now.tokens += now.spans[i].context_tokens;
    }
    use_device("aimx", 0, controller, refresh);
    plan_layer();
    if (n_layers < 40 && now.config.partition == PIMATTN_TCP) print(WALK, 0);
    print(SKIP, 0);
    print(ESTIMATE, 1000);
    print(AGAIN, 1000);
}

int main(int argc, char **argv)
{
    bench_takes(argc, argv, 0, "");
    now.instructions = (pimhw_instruction *)calloc(INSTRUCTIONS, sizeof *now.instructions);
    bench_must(now.instructions != NULL, "memory");
    printf("stream,tokens,channels,controller,refresh,mode,cycles,commands,commands_of_a_channel,"
           "host_us,commands_per_us,commands_of_a_channel_per_us,cycles_per_us,skipped_rounds,"
           "walked_rounds,limit_us,within\n");
    oracle_stream("gemv", 32, 0, gemv_program, 2000, 50);
    oracle_stream("qk", 32, 131072, qk_program, 0, 100);
    oracle_stream("gemv", 1, 0, gemv_program, 0, 50);
    oracle_stream("qk", 1, 131072, qk_program, 0, 100);
    for (uint32_t controller = 0; controller < 4; controller++)
        for (int refresh = 0; refresh < 2; refresh++) {
            contexts(controller, refresh);
            now.config.partition = PIMATTN_TCP;
            ragged("step 8B", 32, 32, controller, refresh);
            ragged("step 70B", 80, 64, controller, refresh);
            now.config.partition = PIMATTN_HFP;
            ragged("step 8B hfp", 32, 32, controller, refresh);
            now.config.partition = PIMATTN_TCP;
        }
    pimhw_device_destroy(now.device);
    free(now.blocks);
    free(now.order);
    free(now.instructions);
    return bench_done() || now.n_wrong > 0;
}
