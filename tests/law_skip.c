/* Skipping equals walking: rounds of a list that repeat are multiplied, and every reading stays
 * what the walk gives. A sink makes the device walk. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#include "check.h"

enum { SPANS = 6, BLOCKS = 6 * 32 };

static pimhw_program program;
static pimhw_block blocks[BLOCKS];
static uint32_t order[BLOCKS], list_begin[PIMHW_MAX_CHANNELS + 1];

static void ignore(void *user, const pimhw_event *event)
{
    (void)user;
    (void)event;
}

/* A device whose clocks no preset has. */
static pimhw_config odd_device(check_rng *rng)
{
    static const char *const fields[] = {"tRP",    "tRCD_MAC", "tRTP",   "tMOD",
                                         "tWTR_S", "tWTR_L",   "tCCD_L", "epu_ck_per_op"};
    pimhw_config c;
    pimhw_config_init(&c, rng_range(rng, 0, 1) ? "aimx" : "aim-gddr6", NULL);
    pimhw_config_set(&c, "n_channels", (uint32_t)rng_range(rng, 1, 32), NULL);
    pimhw_config_set(&c, "epu_overlap", (uint32_t)rng_range(rng, 0, 1), NULL);
    pimhw_config_set(&c, "out_entries", (uint32_t)rng_range(rng, 1, 40), NULL);
    for (int i = 0; i < 8; i++)
        if (rng_range(rng, 0, 2) == 0)
            pimhw_config_set(&c, fields[i], (uint32_t)rng_range(rng, 1, 90), NULL);
    return c;
}

/* Few lengths, so that blocks repeat; a third of the cases moves some rows to break the pattern. */
static size_t random_spans(check_rng *rng, pimattn_span *spans)
{
    size_t n = rng_range(rng, 1, SPANS);
    uint64_t longest = rng_range(rng, 0, 3) ? 300 : 5000;
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0 && rng_range(rng, 0, 2) > 0;
        spans[i].context_tokens = same ? spans[i - 1].context_tokens : rng_range(rng, 1, longest);
        spans[i].n_tokens = 1;
    }
    return n;
}

static bool readings_agree(pimhw_readings walked, pimhw_readings skipped)
{
    skipped.skipped_rounds = walked.skipped_rounds;
    return CHECK_BYTES(&walked, &skipped, sizeof walked);
}

static uint64_t one_case(uint64_t seed)
{
    check_rng rng = {seed};
    pimattn_span spans[SPANS];
    pimattn_shape shape = {.n_layers = 1};
    pimattn_plan plan;
    pimhw_request request;
    pimhw_readings walked, skipped;
    pimhw_device *device;
    pimhw_cause why = {""};
    pimhw_sink sink = {ignore, NULL};
    pimhw_config c = odd_device(&rng);
    shape.n_kv_heads = (uint32_t)rng_range(&rng, 1, 16);
    shape.n_heads = shape.n_kv_heads * (uint32_t)rng_range(&rng, 1, 2);
    shape.head_dim = (uint32_t)rng_range(&rng, 1, 200);
    size_t n = random_spans(&rng, spans);
    uint32_t partition = rng_range(&rng, 0, 4) ? PIMATTN_TCP : PIMATTN_HFP;
    CHECK_U(pimattn_plan_init(&plan, &shape, &c, partition, 0, rng_range(&rng, 0, 1),
                              shape.n_heads / shape.n_kv_heads, &why),
            PIMATTN_OK);
    CHECK_U(pimattn_plan_lower(&plan, &program, &why), PIMATTN_OK);
    CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, list_begin, spans, n, &why),
            PIMATTN_OK);
    for (uint32_t i = 0; i < request.n_blocks && seed % 3 == 0; i++)
        if (rng_range(&rng, 0, 9) == 0) blocks[i].row_base[rng_range(&rng, 0, 1)] += 7;
    if (seed % 3 == 1 && rng_range(&rng, 0, 1)) /* all in the same rows */
        for (uint32_t i = 1; i < request.n_blocks; i++)
            memcpy(blocks[i].row_base, blocks[0].row_base, sizeof blocks[i].row_base);
    CHECK_U(pimhw_device_create(&device, &c, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, &why), PIMHW_OK);
    if (!readings_agree(walked, skipped)) printf("  seed %u\n", (unsigned)seed);
    pimhw_device_destroy(device);
    return skipped.skipped_rounds;
}

static void skipping_equals_walking(void)
{
    uint64_t n_skipping = 0, n = 3000;
    for (uint64_t seed = 1; seed <= n; seed++)
        n_skipping += one_case(seed) > 0;
    printf("rounds were skipped in %u of %u cases\n", (unsigned)n_skipping, (unsigned)n);
    CHECK(n_skipping > n / 4 && n_skipping < n);
}

/* Equal blocks, but a row that grows with the round: nothing may be skipped. */
static void rounds_that_count_are_walked(void)
{
    pimhw_config c;
    pimhw_device *device;
    pimhw_readings walked, skipped;
    pimhw_request request = {blocks, 40, NULL, NULL, 0};
    pimhw_sink sink = {ignore, NULL};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
    pimhw_operand row = {.step = {1}}, size = {.base = 8};
    pimhw_tail one = {.base = 1, .unit = 16, .step = {0}};
    memset(blocks, 0, sizeof blocks);
    for (int tails = 0; tails < 2; tails++) {
        pimhw_program_init(&program);
        one.step[0] = (uint64_t)tails;
        one.base = 20;
        size.tail[0] = pimhw_program_tail(&program, &one);
        mac.row = tails ? 0 : pimhw_program_operand(&program, &row);
        mac.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_item(&program, &list);
        pimhw_program_item(&program, &block);
        pimhw_program_item(&program, &mac);
        pimhw_program_end(&program);
        pimhw_program_end(&program);
        pimhw_config_init(&c, "aimx", NULL);
        CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, NULL), PIMHW_OK);
        CHECK_U(skipped.skipped_rounds, 0);
        readings_agree(walked, skipped);
        pimhw_device_destroy(device);
    }
}

/* 32 equal heads: walked once or twice, then multiplied. */
static void equal_heads_are_skipped(void)
{
    pimattn_config c = {.shape = {.n_layers = 1, .n_heads = 32, .n_kv_heads = 32, .head_dim = 128}};
    pimattn_span span = {4096, 1};
    pimattn_readings r;
    CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
    CHECK(r.device.skipped_rounds >= 20);
}

int main(void)
{
    RUN(skipping_equals_walking);
    RUN(rounds_that_count_are_walked);
    RUN(equal_heads_are_skipped);
    return check_end();
}
