/* Skipping equals walking: rounds of a list that repeat are multiplied, and every reading stays
 * what the walk gives. A sink makes the device walk. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#include "rules.h"

enum { SPANS = 6, BLOCKS = 6 * 32 };

static pimhw_program program;
static pimhw_block blocks[BLOCKS];
static uint32_t order[BLOCKS], list_begin[PIMHW_MAX_CHANNELS + 1];

static void ignore(void *user, const pimhw_event *event)
{
    (void)user;
    (void)event;
}

/* Refresh as often as the check lets it take place, or less. */
static void refresh_often(check_rng *rng, pimhw_config *c)
{
    c->refresh = 1;
    c->tREFI = rules_least_tREFI(*c);
    c->tREFI += (uint32_t)rng_range(rng, 0, rng_range(rng, 0, 1) ? 400 : 4000);
    c->refresh_phase = (uint32_t)rng_range(rng, 1, c->tREFI);
}

/* A device whose clocks no preset has. */
static pimhw_config odd_device(check_rng *rng)
{
    static const char *const fields[] = {"tRP",    "tRCD_MAC", "tRTP",   "tMOD",
                                         "tWTR_S", "tWTR_L",   "tCCD_L", "epu_ck_per_op"};
    pimhw_config c;
    pimhw_config_init(&c, rng_range(rng, 0, 1) ? "aimx" : "aim-gddr6", NULL);
    pimhw_config_set(&c, "refresh", 0, NULL);
    pimhw_config_set(&c, "controller", (uint32_t)rng_range(rng, 0, 3), NULL);
    pimhw_config_set(&c, "n_channels", (uint32_t)rng_range(rng, 1, 32), NULL);
    pimhw_config_set(&c, "epu_overlap", (uint32_t)rng_range(rng, 0, 1), NULL);
    const bool halves = c.controller == PIMHW_PING_PONG;
    pimhw_config_set(&c, "out_entries", (uint32_t)rng_range(rng, 1u + halves, 40), NULL);
    pimhw_config_set(&c, "obuf", c.out_entries, NULL);
    for (int i = 0; i < 8; i++)
        if (rng_range(rng, 0, 2) == 0)
            pimhw_config_set(&c, fields[i], (uint32_t)rng_range(rng, 1, 90), NULL);
    rules_long_not_shorter(&c);
    if (rng_range(rng, 0, 1)) refresh_often(rng, &c);
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
    skipped.walked_rounds += skipped.skipped_rounds;
    skipped.skipped_rounds = 0;
    return CHECK_BYTES(&walked, &skipped, sizeof walked);
}

static uint64_t one_case(uint64_t seed, bool lists)
{
    check_rng rng = {seed};
    pimattn_span spans[SPANS];
    pimattn_shape shape = {.n_layers = 1};
    pimattn_plan plan;
    pimhw_request request;
    pimhw_readings walked, skipped;
    pimhw_device *device;
    pimhw_cause why = {""};
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_config c = odd_device(&rng);
    if (lists) { /* fed by one host */
        pimhw_config_set(&c, "controller", PIMHW_IN_ORDER, NULL);
        pimhw_config_set(&c, "front_end", PIMHW_SHARED, NULL);
    }
    shape.n_kv_heads = (uint32_t)rng_range(&rng, 1, 16);
    shape.n_heads = shape.n_kv_heads * (uint32_t)rng_range(&rng, 1, 2);
    shape.head_dim = (uint32_t)rng_range(&rng, 1, 200);
    size_t n = random_spans(&rng, spans);
    uint32_t partition = !lists && rng_range(&rng, 0, 4) ? PIMATTN_TCP : PIMATTN_HFP;
    CHECK_U(pimattn_plan_init(&plan, &shape, &c, partition, 0, rng_range(&rng, 0, 1),
                              shape.n_heads / shape.n_kv_heads, &why),
            PIMATTN_OK);
    CHECK_U(pimattn_plan_lower(&plan, &program, &why), PIMATTN_OK);
    CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, list_begin, spans, n, &why),
            PIMATTN_OK);
    request.repeats = rng_range(&rng, 0, 3) ? 0 : (uint32_t)rng_range(&rng, 1, 3);
    for (uint32_t i = 0; i < request.n_blocks && seed % 3 == 0; i++)
        if (rng_range(&rng, 0, 9) == 0) blocks[i].row_base[rng_range(&rng, 0, 1)] += 7;
    if (seed % 3 == 1 && rng_range(&rng, 0, 1)) /* all in the same rows */
        for (uint32_t i = 1; i < request.n_blocks; i++)
            memcpy(blocks[i].row_base, blocks[0].row_base, sizeof blocks[i].row_base);
    for (uint32_t i = 0; i < request.n_blocks && seed % 3 == 2; i++) /* in any order */
        for (uint32_t k = 0; k < PIMHW_SPACES; k++)
            blocks[i].row_base[k] = 10 * (uint32_t)rng_range(&rng, 0, 30);
    CHECK_U(pimhw_device_create(&device, &c, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, &why), PIMHW_OK);
    if (!readings_agree(walked, skipped)) printf("  seed %u\n", (unsigned)seed);
    uint64_t rounds = skipped.skipped_rounds;
    n = random_spans(&rng, spans); /* of another step, whose spans are known by now */
    CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, list_begin, spans, n, &why),
            PIMATTN_OK);
    CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, &why), PIMHW_OK);
    if (!readings_agree(walked, skipped)) printf("  seed %u, next step\n", (unsigned)seed);
    pimhw_device_destroy(device);
    return rounds;
}

static uint64_t first_case = 1; /* an argument asks for other ones */

static void skipping_equals_walking(void)
{
    uint64_t n_skipping = 0, n = 600;
    for (uint64_t seed = first_case; seed < first_case + n; seed++)
        n_skipping += one_case(seed, false) > 0;
    printf("rounds were skipped in %u of %u cases\n", (unsigned)n_skipping, (unsigned)n);
    CHECK(n_skipping > n / 4 && n_skipping < n);
}

/* One host for channels that have lists of their own: blocks alike and not, channels without. */
static void skipping_equals_walking_in_lists(void)
{
    uint64_t n_skipping = 0, n = 400;
    for (uint64_t seed = first_case; seed < first_case + n; seed++)
        n_skipping += one_case(seed, true) > 0;
    printf("rounds were skipped in %u of %u cases\n", (unsigned)n_skipping, (unsigned)n);
    CHECK(n_skipping > n / 10 && n_skipping < n);
}

static uint8_t random_size(check_rng *rng, uint64_t most, uint32_t depth)
{
    pimhw_operand o = {.base = rng_range(rng, 1, most)};
    if (rng_range(rng, 0, 1)) {
        pimhw_tail t = {.base = rng_range(rng, 0, 2), .rest = 1, .unit = rng_range(rng, 1, 4)};
        t.channel_step = rng_range(rng, 0, 2);
        for (uint32_t l = rng_range(rng, 0, 9) ? 1 : 0; l < depth; l++)
            t.step[l] = rng_range(rng, 0, 2);
        o.tail[0] = pimhw_program_tail(&program, &t);
    }
    return pimhw_program_operand(&program, &o);
}

/* Instructions of any kind, mostly of those that skipping has to do with. */
static void random_body(check_rng *rng, uint64_t channels, uint32_t depth, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (depth < 4 && rng_range(rng, 0, 6) == 0) {
            pimhw_program_loop(&program, random_size(rng, 3, depth), channels);
            random_body(rng, channels, depth + 1, rng_range(rng, 1, 2));
            pimhw_program_end(&program);
            continue;
        }
        bool often = rng_range(rng, 0, 7) > 0;
        pimhw_item item = {.mask = rng_range(rng, 0, 1) ? channels : 1};
        item.kind = (uint8_t)(often ? rng_range(rng, PIMHW_WR_GB, PIMHW_RD_MAC)
                                    : rng_range(rng, PIMHW_MAC_SBK, PIMHW_SYNC));
        if (rng_range(rng, 0, 5) == 0)
            item.kind = (uint8_t)rng_range(rng, PIMHW_EPU, PIMHW_EPU_WAIT);
        if (item.kind == PIMHW_WR_ABK) item.mask = 1;
        if (item.kind == PIMHW_EPU) item.flags = PIMHW_AWAITED;
        item.op_size = random_size(rng, item.kind == PIMHW_EPU ? 2000 : 8, depth);
        if (item.kind != PIMHW_WR_GB && item.kind != PIMHW_MAC_ABK && item.kind != PIMHW_EPU)
            item.op_size = pimhw_program_const(&program, 1);
        item.row = pimhw_program_const(&program, rng_range(rng, 0, 2));
        item.space = (uint8_t)rng_range(rng, 0, 1);
        pimhw_program_item(&program, &item);
    }
}

/* Runs of equal blocks, their rows moving on by the same number, now and then not. */
static void random_blocks(check_rng *rng, uint32_t n)
{
    uint32_t step = rng_range(rng, 0, 1) ? 0 : (uint32_t)rng_range(rng, 1, 6);
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) blocks[i] = blocks[i - 1];
        if (i == 0 || rng_range(rng, 0, 14) == 0) blocks[i].rest[0] = rng_range(rng, 0, 20);
        for (int k = 0; k < 2; k++)
            blocks[i].row_base[k] += step + (rng_range(rng, 0, 40) == 0);
    }
}

/* Walks the program and skips what it can: both refuse it in the same words (NULL: any), or agree.
 * Rounds that were skipped. */
static uint64_t both_ways(const pimhw_config *c, const pimhw_request *request, const char *words,
                          uint64_t seed, uint64_t *n_timed)
{
    pimhw_readings walked, skipped = {.skipped_rounds = 0};
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_device *device;
    pimhw_cause why[2] = {{""}, {""}};
    CHECK_U(pimhw_device_create(&device, c, NULL), PIMHW_OK);
    pimhw_status status = pimhw_device_time(device, &walked, &program, request, &sink, &why[0]);
    CHECK_U(pimhw_device_time(device, &skipped, &program, request, NULL, &why[1]), status);
    CHECK_STR(why[1].text, why[0].text);
    if (words) CHECK_STR(why[0].text, words);
    if (status == PIMHW_OK && !readings_agree(walked, skipped))
        printf("  seed %u\n", (unsigned)seed);
    if (status == PIMHW_OK && request && request->n_blocks > 1) { /* known spans, other blocks */
        pimhw_readings other;
        pimhw_block first = blocks[0];
        blocks[0] = blocks[request->n_blocks - 1];
        blocks[request->n_blocks - 1] = first;
        blocks[request->n_blocks / 2].row_base[0] += 3;
        pimhw_status then = pimhw_device_time(device, &other, &program, request, NULL, &why[1]);
        CHECK_U(pimhw_device_time(device, &walked, &program, request, &sink, &why[0]), then);
        if (then == PIMHW_OK && !readings_agree(walked, other))
            printf("  seed %u, other blocks\n", (unsigned)seed);
    }
    if (n_timed) *n_timed += status == PIMHW_OK;
    pimhw_device_destroy(device);
    return status == PIMHW_OK ? skipped.skipped_rounds : 0;
}

/* So many random programs of a kind, of which more than a part are timed, and skip rounds; returns
 * how many were timed. */
static uint64_t cases(uint64_t (*one)(uint64_t seed, uint64_t *n_timed), uint64_t n,
                      uint64_t timed_part, uint64_t skipping_part)
{
    uint64_t n_skipping = 0, n_timed = 0;
    for (uint64_t seed = first_case; seed < first_case + n; seed++)
        n_skipping += one(seed, &n_timed) > 0;
    printf("%u of %u programs ran, %u skipped rounds\n", (unsigned)n_timed, (unsigned)n,
           (unsigned)n_skipping);
    CHECK(n_timed > n / timed_part && n_skipping > n / skipping_part);
    return n_timed;
}

static uint64_t hand_built_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c = odd_device(&rng);
    pimhw_config_set(&c, "n_channels", (uint32_t)rng_range(&rng, 1, 4), NULL);
    uint64_t channels = (UINT64_C(1) << c.n_channels) - 1, lag = rng_range(&rng, 0, 2);
    pimhw_request request = {.blocks = blocks, .n_blocks = (uint32_t)rng_range(&rng, 1, 40)};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    request.repeats = rng_range(&rng, 0, 7) ? 0 : (uint32_t)rng_range(&rng, 1, 30);
    random_blocks(&rng, request.n_blocks);
    pimhw_program_init(&program);
    list.aux = pimhw_program_const(&program, lag);
    pimhw_program_item(&program, &list);
    for (uint64_t b = rng_range(&rng, 1, 2); b > 0; b--) {
        if (rng_range(&rng, 0, 5) == 0) random_body(&rng, channels, 1, 1);
        block.aux = pimhw_program_const(&program, rng_range(&rng, 0, lag));
        pimhw_program_item(&program, &block);
        random_body(&rng, channels, 1, rng_range(&rng, 1, 4));
        pimhw_program_end(&program);
    }
    pimhw_program_end(&program);
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void skipping_equals_walking_by_hand(void)
{
    cases(hand_built_case, 3000, 4, 40);
}

/* MACs in a loop, as many as the channel has left: each may take its own time. */
static void uneven_work(check_rng *rng, uint64_t channels)
{
    pimhw_tail left = {.rest = 1, .base = rng_range(rng, 0, 60), .unit = rng_range(rng, 1, 4)};
    pimhw_operand rounds = {.base = UINT64_MAX}, row = {.step = {0, 1}};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = channels};
    if (rng_range(rng, 0, 2)) left.channel_step = rng_range(rng, 1, 12);
    rounds.tail[0] = pimhw_program_tail(&program, &left);
    if (rng_range(rng, 0, 9) == 0) rounds.base = rng_range(rng, 0, 9), rounds.step[0] = 1;
    mac.space = (uint8_t)rng_range(rng, 0, 1);
    mac.op_size = pimhw_program_const(&program, rng_range(rng, 1, 12));
    if (rng_range(rng, 0, 1)) mac.row = pimhw_program_operand(&program, &row);
    pimhw_program_loop(&program, pimhw_program_operand(&program, &rounds), channels);
    pimhw_program_item(&program, &mac);
    pimhw_program_end(&program);
}

/* Many blocks alike, and work of a hub that is as fast as the channels, or much faster: those with
 * less to do are ahead until it makes them wait, of late, or never. */
static uint64_t hub_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c = odd_device(&rng);
    c.n_channels = (uint32_t)rng_range(&rng, 1, 4);
    if (rng_range(&rng, 0, 3)) c.refresh = 0;
    uint64_t all = (UINT64_C(1) << c.n_channels) - 1, lag = rng_range(&rng, 0, 2);
    pimhw_request request = {.blocks = blocks, .n_blocks = (uint32_t)rng_range(&rng, 1, BLOCKS)};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    pimhw_item wait = {.kind = PIMHW_EPU_WAIT}, epu = {.kind = PIMHW_EPU};
    random_blocks(&rng, request.n_blocks);
    pimhw_program_init(&program);
    list.aux = pimhw_program_const(&program, lag);
    pimhw_program_item(&program, &list);
    for (uint64_t b = 0; b < 2; b++) {
        pimhw_tail work = {.rest = 1, .mul = rng_range(&rng, 1, 200)};
        pimhw_operand size = {.base =
                                  rng_range(&rng, 0, 1) ? UINT64_MAX : rng_range(&rng, 1, 5000)};
        block.aux = pimhw_program_const(&program, b * lag);
        pimhw_program_item(&program, &block);
        wait.mask = rng_range(&rng, 0, 5) ? all : rng_range(&rng, 1, all);
        if (b == 1) pimhw_program_item(&program, &wait);
        uneven_work(&rng, rng_range(&rng, 0, 5) ? all : rng_range(&rng, 1, all));
        if (rng_range(&rng, 0, 9) == 0) random_body(&rng, all, 1, 1);
        size.tail[0] = pimhw_program_tail(&program, &work);
        epu.mask = rng_range(&rng, 0, 5) ? all : rng_range(&rng, 1, all);
        epu.flags = b == 0 ? PIMHW_AWAITED : 0;
        epu.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_item(&program, &epu);
        pimhw_program_end(&program);
    }
    pimhw_program_end(&program);
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void rounds_with_hub_work_are_skipped(void)
{
    cases(hub_case, 2000, 2, 2);
}

/* A first block of which one channel has so much more to do that it is behind, for many rounds or
 * until both wait for each other; for one size of its hub work that is free as much later after the
 * next round as the other channel is, though it does not wait for that one, or has just done so. */
static void who_is_last_may_change(void)
{
    pimhw_request request = {.blocks = blocks, .n_blocks = 40};
    const pimhw_item list = {.kind = PIMHW_LIST, .mask = 3};
    const pimhw_instruction sync = {.kind = PIMHW_SYNC, .mask = 3, .op_size = 1};
    for (uint32_t i = 0; i < 2 * 2 * 2 * 300; i++) {
        static const uint64_t rounds[] = {40, 30, 0};
        const bool syncs = i / 300 % 2;
        const uint64_t more = i / 1200 ? 1 : 2;
        pimhw_config c;
        pimhw_config_init(&c, "aimx", NULL);
        c.controller = i / 600 % 2 ? PIMHW_STATIC_GAPS : PIMHW_IN_ORDER;
        c.n_channels = 2;
        c.refresh = 0;
        c.epu_ck_per_op = 1;
        memset(blocks, 0, sizeof blocks);
        for (uint32_t b = 0; b < request.n_blocks; b++)
            blocks[b].rest[1] = 30 * c.epu_lanes;
        blocks[0].rest[0] = syncs ? 20 : 200;
        blocks[request.n_blocks - 1].rest[0] = syncs ? 1000 : 0;
        blocks[0].rest[1] = i % 300 * c.epu_lanes;
        pimhw_program_init(&program);
        pimhw_program_item(&program, &list);
        if (syncs) pimhw_program_add(&program, &sync);
        for (uint32_t k = 0; k < 3; k++) {
            pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = k ? more : 3 - more};
            const pimhw_tail tail = {.rest = 1};
            pimhw_operand n = {.base = k < 2 ? rounds[k] : UINT64_MAX};
            if (k == 2) n.tail[0] = pimhw_program_tail(&program, &tail);
            mac.op_size = pimhw_program_const(&program, 1);
            pimhw_program_loop(&program, pimhw_program_operand(&program, &n), mac.mask);
            pimhw_program_item(&program, &mac);
            pimhw_program_end(&program);
        }
        const pimhw_tail tail = {.rest = 2};
        pimhw_operand size = {.base = UINT64_MAX};
        pimhw_item epu = {.kind = PIMHW_EPU, .mask = 3};
        size.tail[0] = pimhw_program_tail(&program, &tail);
        epu.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_item(&program, &epu);
        pimhw_program_end(&program);
        both_ways(&c, &request, "", i, NULL);
    }
}

/* One host: what it waited for before the program began once more is not what it was in before. */
static void repeats_begin_anew(void)
{
    for (uint32_t n_rounds = 1; n_rounds < 30; n_rounds++) {
        pimhw_config c;
        pimhw_request request = {.blocks = blocks, .n_blocks = 3, .repeats = 20};
        const pimhw_item list = {.kind = PIMHW_LIST, .mask = 1};
        const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 1, .op_size = 2};
        pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
        pimhw_config_init(&c, "aim-gddr6", NULL);
        c.n_channels = 1;
        memset(blocks, 0, sizeof blocks);
        pimhw_program_init(&program);
        pimhw_program_item(&program, &list);
        pimhw_program_add(&program, &gb);
        pimhw_program_loop(&program, pimhw_program_const(&program, n_rounds), 1);
        mac.op_size = pimhw_program_const(&program, 30);
        pimhw_program_item(&program, &mac);
        pimhw_program_end(&program);
        pimhw_program_end(&program);
        both_ways(&c, &request, "", n_rounds, NULL);
    }
}

/* An item of such an op_size, at most what is left of a number of the block; 0: all of it. */
static void add_sized(pimhw_kind kind, uint64_t mask, uint64_t most, uint8_t rest)
{
    pimhw_tail left = {.rest = rest};
    pimhw_operand size = {.base = most ? most : UINT64_MAX};
    pimhw_item item = {.kind = (uint8_t)kind, .mask = mask};
    if (rest) size.tail[0] = pimhw_program_tail(&program, &left);
    item.op_size = pimhw_program_operand(&program, &size);
    if (kind == PIMHW_EPU) item.flags = PIMHW_AWAITED;
    pimhw_program_item(&program, &item);
}

static void hub_and_wait(uint64_t mask, uint64_t size)
{
    add_sized(PIMHW_EPU, mask, size, 0);
    add_sized(PIMHW_EPU_WAIT, mask, 1, 0);
}

/* Of like blocks, rounds differ by what one before did: the mode of AF; a row that is of no block,
 * which theirs reach; the end of the stream; or the end comes before the hub's long work does. */
static void blocks_do_not_tell_all(void)
{
    for (uint32_t i = 0; i < 4 * 4; i++) {
        pimhw_config c;
        pimhw_request request = {.blocks = blocks, .n_blocks = i / 4 < 2 ? 40 : 8};
        const pimhw_item list = {.kind = PIMHW_LIST, .mask = 1};
        const pimhw_instruction af = {.kind = PIMHW_AF, .mask = 1, .op_size = 1};
        const pimhw_instruction eoc = {.kind = PIMHW_EOC, .mask = 1, .op_size = 1};
        const pimhw_tail mode = {.rest = 1};
        pimhw_operand of = {.base = UINT64_MAX};
        pimhw_item cfr = {.kind = PIMHW_CFR, .mask = 1};
        pimhw_config_init(&c, "aimx", NULL);
        c.controller = i % 4;
        c.n_channels = 1;
        c.refresh = 0;
        memset(blocks, 0, sizeof blocks);
        for (uint32_t b = 0; b < request.n_blocks; b++) {
            blocks[b].row_base[0] = (i / 4 == 1 ? (1u << 29) - 20 : 100) + b;
            blocks[b].row_base[1] = blocks[b].row_base[0];
            blocks[b].rest[0] = i / 4 == 2 ? b < 7 : 1 + (b > 0);
            blocks[b].rest[1] = b > 0 && b < 7;
        }
        pimhw_program_init(&program);
        of.tail[0] = pimhw_program_tail(&program, &mode);
        cfr.aux = pimhw_program_const(&program, 2), cfr.out = pimhw_program_const(&program, 1);
        cfr.gpr = pimhw_program_operand(&program, &of);
        pimhw_program_item(&program, &list);
        if (i / 4 < 2) pimhw_program_add(&program, &af);
        if (i / 4 == 0) pimhw_program_item(&program, &cfr);
        if (i / 4 == 0) pimhw_program_add(&program, &af);
        if (i / 4 == 2) pimhw_program_loop(&program, pimhw_program_operand(&program, &of), 1);
        add_sized(PIMHW_MAC_ABK, 1, 4, 0);
        if (i / 4 < 3)
            hub_and_wait(1, 4000);
        else
            add_sized(PIMHW_EPU, 1, UINT64_C(1) << 60, 0);
        if (i / 4 == 2) {
            const pimhw_tail ends = {.rest = 2};
            of.tail[0] = pimhw_program_tail(&program, &ends);
            pimhw_program_end(&program);
            pimhw_program_loop(&program, pimhw_program_operand(&program, &of), 1);
        }
        if (i / 4 > 1) pimhw_program_add(&program, &eoc);
        if (i / 4 == 2) pimhw_program_end(&program);
        pimhw_program_end(&program);
        both_ways(&c, &request, NULL, i, NULL);
    }
}

/* Channels part and join within a round, and a group counts what others did: as a whole it is
 * right, and a channel that was busy stays one. */
static void groups_count_for_others(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 8};
    const pimhw_item list = {.kind = PIMHW_LIST, .mask = 15};
    const pimhw_instruction rd = {.kind = PIMHW_RD_MAC, .mask = 12, .op_size = 1};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 4;
    c.refresh = 0;
    c.controller = PIMHW_IN_ORDER;
    memset(blocks, 0, sizeof blocks);
    blocks[0].rest[1] = 4, blocks[0].rest[2] = 5, blocks[0].rest[3] = 1;
    for (uint32_t b = 1; b < 7; b++)
        blocks[b].rest[0] = blocks[b].rest[3] = 1;
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    add_sized(PIMHW_MAC_ABK, 12, 9, 2);
    add_sized(PIMHW_MAC_ABK, 3, 9, 3);
    add_sized(PIMHW_WR_GB, 15, 1, 0);
    for (uint64_t k = 0; k < 3; k++)
        add_sized(PIMHW_WR_GB, k == 0 ? 4 : k, 1, 1);
    hub_and_wait(15, 16000);
    add_sized(PIMHW_WR_GB, 6, 1, 1);
    add_sized(PIMHW_LOOP, 6, 2, 1);
    add_sized(PIMHW_WR_GB, 6, 1, 0);
    pimhw_program_end(&program);
    add_sized(PIMHW_WR_GB, 2, 1, 1);
    hub_and_wait(15, 16000);
    add_sized(PIMHW_WR_GB, 15, 1, 0);
    hub_and_wait(15, 16000);
    add_sized(PIMHW_MAC_ABK, 3, 1, 4);
    pimhw_program_add(&program, &rd);
    hub_and_wait(15, 16000);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* 2^20 rounds of 2^44 clocks, in each of which channel and hub wait for each other, behind the few
 * that are walked: 2^64 clocks are not 0. */
static void clocks_of_equal_rounds_do_not_wrap(void)
{
    enum { MANY = (1 << 20) + 8 };
    pimhw_block *many = (pimhw_block *)calloc(MANY, sizeof *many);
    CHECK(many != NULL);
    for (uint32_t few = 0; few < 8; few++) {
        pimhw_request request = {.blocks = many, .n_blocks = (1u << 20) + few};
        const pimhw_item list = {.kind = PIMHW_LIST, .mask = 1};
        pimhw_config c;
        pimhw_device *device;
        pimhw_readings r;
        pimhw_cause why = {""};
        pimhw_config_init(&c, "aimx", NULL);
        c.n_channels = 1;
        c.refresh = 0;
        c.epu_ck_per_op = 1;
        pimhw_program_init(&program);
        pimhw_program_item(&program, &list);
        add_sized(PIMHW_WR_GB, 1, 1, 0);
        hub_and_wait(1, (UINT64_C(1) << 44) * c.epu_lanes);
        pimhw_program_end(&program);
        CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &r, &program, &request, NULL, &why), PIMHW_ERR_PROGRAM);
        CHECK_STR(why.text, "the run takes 2^46 clocks or rounds, or more");
        pimhw_device_destroy(device);
    }
    free(many);
}

/* Equal blocks, but rows that grow with the round, sizes that stay the same for a while, or sizes
 * that all differ: of those nothing may be skipped. */
static void rounds_may_count(void)
{
    pimhw_config c;
    pimhw_device *device;
    pimhw_readings walked, skipped;
    pimhw_request request = {.blocks = blocks, .n_blocks = 40};
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
    pimhw_operand row = {.step = {1}}, size = {.base = 8};
    pimhw_tail one = {.base = 1, .unit = 16, .step = {0}};
    memset(blocks, 0, sizeof blocks);
    for (int tails = 0; tails < 3; tails++) {
        pimhw_program_init(&program);
        one.step[0] = tails > 0;
        one.base = tails == 2 ? 50 : 20;
        one.unit = tails == 2 ? 1 : 16;
        size.base = tails == 2 ? 64 : 8;
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
        if (tails == 2) CHECK_U(skipped.skipped_rounds, 0);
        readings_agree(walked, skipped);
        pimhw_device_destroy(device);
    }
}

/* Loops of some channels each, one after the other, again and again: what the others wait for may
 * grow without end, and matters once they take part. */
static uint64_t nests_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c = odd_device(&rng);
    pimhw_request request = {.repeats = (uint32_t)rng_range(&rng, 1, 12)};
    if (rng_range(&rng, 0, 3))
        pimhw_config_init(&c, rng_range(&rng, 0, 1) ? "aim-gddr6" : "cent", NULL);
    if (rng_range(&rng, 0, 1)) refresh_often(&rng, &c);
    pimhw_config_set(&c, "n_channels", (uint32_t)rng_range(&rng, 2, 4), NULL);
    uint64_t most = (UINT64_C(1) << c.n_channels) - 1;
    pimhw_program_init(&program);
    for (uint64_t n = rng_range(&rng, 2, 5); n > 0; n--) {
        uint64_t mask = rng_range(&rng, 1, most);
        bool loop = rng_range(&rng, 0, 4) > 0;
        pimhw_operand row = {.base = rng_range(&rng, 0, 2), .step = {rng_range(&rng, 0, 1)}};
        if (loop)
            pimhw_program_loop(&program, pimhw_program_const(&program, rng_range(&rng, 1, 60)),
                               mask);
        for (uint64_t i = rng_range(&rng, 1, 4); i > 0; i--) {
            pimhw_item item = {.mask = rng_range(&rng, 0, 3) ? mask : rng_range(&rng, 1, most)};
            item.kind = (uint8_t)rng_range(&rng, PIMHW_WR_GB, PIMHW_RD_MAC);
            bool wide = item.kind == PIMHW_WR_GB || item.kind == PIMHW_MAC_ABK;
            item.op_size = pimhw_program_const(&program, wide ? rng_range(&rng, 1, 30) : 1);
            if (item.kind == PIMHW_MAC_ABK && loop)
                item.row = pimhw_program_operand(&program, &row);
            pimhw_program_item(&program, &item);
        }
        if (loop) pimhw_program_end(&program);
    }
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void nests_are_of_some_channels(void)
{
    cases(nests_case, 2000, 2, 4);
}

/* Few rows, so that the one that is open is often the one a loop asks for: first, later or never,
 * of one space or both; MACs that have nothing to do in the first rounds may be the first later. */
static uint64_t rows_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c = odd_device(&rng);
    pimhw_request request = {.blocks = blocks, .n_blocks = (uint32_t)rng_range(&rng, 1, 30)};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    uint64_t channels = rng_range(&rng, 1, 3), spaces = rng_range(&rng, 0, 1);
    if (rng_range(&rng, 0, 1)) refresh_often(&rng, &c);
    pimhw_config_set(&c, "n_channels", 2, NULL);
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < request.n_blocks; i++)
        for (int k = 0; k < 2; k++)
            blocks[i].row_base[k] = (uint32_t)rng_range(&rng, 0, 5);
    for (uint32_t i = 0; i < request.n_blocks; i++)
        blocks[i].rest[0] = rng_range(&rng, 0, 2);
    pimhw_program_init(&program);
    const pimhw_tail rest = {.rest = 1};
    uint8_t tail = pimhw_program_tail(&program, &rest);
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &block);
    for (uint64_t l = 0; l < 2; l++)
        pimhw_program_loop(&program, pimhw_program_const(&program, rng_range(&rng, 1, l ? 4 : 9)),
                           channels);
    for (uint64_t n = rng_range(&rng, 1, 9), least = rng_range(&rng, 0, 1); n > 0; n--) {
        pimhw_item item = {.kind = PIMHW_MAC_ABK, .mask = channels};
        pimhw_operand row = {.base = rng_range(&rng, 0, 5)};
        pimhw_operand size = {.base = rng_range(&rng, least, 2)};
        if (rng_range(&rng, 0, 2)) size.tail[0] = tail;
        if (rng_range(&rng, 0, 2) == 0) row.step[2] = 1;
        if (rng_range(&rng, 0, 1)) size.step[2] = 1;
        if (rng_range(&rng, 0, 3) == 0) item.kind = PIMHW_WR_GB;
        item.op_size = pimhw_program_operand(&program, &size);
        item.row = pimhw_program_operand(&program, &row);
        item.space = (uint8_t)rng_range(&rng, 0, spaces);
        pimhw_program_item(&program, &item);
    }
    for (uint32_t l = 0; l < 4; l++)
        pimhw_program_end(&program);
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void the_open_row_is_the_first_or_not(void)
{
    cases(rows_case, 2000, 2, 4);
}

/* A tail of which a loop may take some. */
static uint8_t random_tail(check_rng *rng, int depth, bool units)
{
    pimhw_tail tail = {.base = rng_range(rng, 1, 90)};
    tail.unit = units ? rng_range(rng, 1, 12) : rng_range(rng, 0, 1);
    tail.mul = rng_range(rng, 0, 7) ? 1 : 2;
    tail.rest = rng_range(rng, 0, 2) ? 0 : 1;
    for (int l = 0; l < depth; l++)
        if (rng_range(rng, 0, 2)) tail.step[l] = rng_range(rng, 1, 16);
    return pimhw_program_tail(&program, &tail);
}

/* Loops with as many rounds as there is left, around MACs as wide as there is left: some reach
 * beyond the row. Skipping must know as well as the walk which do. */
static uint64_t columns_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c;
    pimhw_block of = {.rest = {rng_range(&rng, 1, 60)}};
    pimhw_request request = {.blocks = &of, .n_blocks = 1};
    pimhw_operand column = {.base = rng_range(&rng, 0, 24)},
                  size = {.base = rng_range(&rng, 1, 24)};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1}, block = {.kind = PIMHW_BLOCK};
    pimhw_item list = {.kind = PIMHW_LIST};
    int depth = (int)rng_range(&rng, 1, 3);
    pimhw_config_init(&c, "aimx", NULL);
    pimhw_config_set(&c, "controller", (uint32_t)rng_range(&rng, 0, 3), NULL);
    pimhw_config_set(&c, "n_channels", 1, NULL);
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &block);
    for (int l = 0; l < depth; l++) {
        pimhw_item loop = {.kind = PIMHW_LOOP, .mask = 1};
        pimhw_operand rounds = {.base = rng_range(&rng, 1, l ? 12 : 60)};
        for (int k = 0; k < 2; k++)
            if (rng_range(&rng, 0, 1)) rounds.tail[k] = random_tail(&rng, l + 1, true);
        loop.op_size = pimhw_program_operand(&program, &rounds);
        pimhw_program_item(&program, &loop);
        if (rng_range(&rng, 0, 2)) column.step[l + 1] = rng_range(&rng, 1, l ? 12 : 3);
    }
    for (int k = 0; k < 2; k++)
        if (rng_range(&rng, 0, 1))
            size.tail[k] = random_tail(&rng, depth + 1, rng_range(&rng, 0, 1));
    mac.column = pimhw_program_operand(&program, &column);
    mac.op_size = pimhw_program_operand(&program, &size);
    pimhw_program_item(&program, &mac);
    for (int l = 0; l < depth + 2; l++)
        pimhw_program_end(&program);
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void columns_end_where_nothing_is_left(void)
{
    const uint64_t n = 3000;
    CHECK(cases(columns_case, n, 4, 20) < n * 9 / 10);
}

/* What is left of one number, in other units for every operand and as far as each goes: some of
 * them tell all that others do, some nothing. */
static uint8_t random_kin(check_rng *rng, const pimhw_tail *of, uint64_t least, uint64_t most)
{
    pimhw_tail tail = *of;
    pimhw_operand o = {.base = rng_range(rng, least, most)};
    tail.unit = rng_range(rng, 0, 2) ? UINT64_C(1) << rng_range(rng, 0, 3) : rng_range(rng, 0, 9);
    tail.mul = rng_range(rng, 0, 3) ? 1 : rng_range(rng, 0, 5);
    if (rng_range(rng, 0, 4) == 0) tail.step[2] = rng_range(rng, 0, 3);
    if (rng_range(rng, 0, 6) == 0) tail.channel_step = rng_range(rng, 0, 3);
    if (rng_range(rng, 0, 6)) o.tail[0] = pimhw_program_tail(&program, &tail);
    return pimhw_program_operand(&program, &o);
}

static uint64_t kin_case(uint64_t seed, uint64_t *n_timed)
{
    check_rng rng = {seed};
    pimhw_config c = odd_device(&rng);
    pimhw_config_set(&c, "n_channels", (uint32_t)rng_range(&rng, 1, 6), NULL);
    uint64_t channels = (UINT64_C(1) << c.n_channels) - 1;
    pimhw_request request = {.blocks = blocks, .n_blocks = (uint32_t)rng_range(&rng, 1, 30)};
    pimhw_item list = {.kind = PIMHW_LIST}, block = {.kind = PIMHW_BLOCK};
    pimhw_tail of = {.rest = 1, .channel_step = rng_range(&rng, 0, 2)};
    of.channel_div = (uint32_t)rng_range(&rng, 0, 3);
    for (uint32_t l = 0; l < 2; l++)
        of.step[1 + l] = rng_range(&rng, 0, 8);
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < request.n_blocks; i++)
        blocks[i].rest[0] = rng_range(&rng, 0, rng_range(&rng, 0, 200));
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &block);
    for (uint32_t l = 0; l < 2; l++)
        pimhw_program_loop(&program, random_kin(&rng, &of, 1, l ? 6 : 60), channels);
    for (uint64_t n = rng_range(&rng, 1, 5); n > 0; n--) {
        pimhw_item item = {.mask = channels};
        item.kind = (uint8_t)rng_range(&rng, PIMHW_WR_GB, PIMHW_RD_MAC);
        bool sized = item.kind == PIMHW_WR_GB || item.kind == PIMHW_MAC_ABK;
        item.op_size = sized ? random_kin(&rng, &of, 0, 6) : 0;
        pimhw_program_item(&program, &item);
    }
    for (uint32_t l = 0; l < 4; l++)
        pimhw_program_end(&program);
    return both_ways(&c, &request, NULL, seed, n_timed);
}

static void terms_may_imply_each_other(void)
{
    cases(kin_case, 1500, 2, 4);
}

/* Rows that no whole number of tokens fills: their ends are known to be within them. Blocks of V
 * that no whole number of fills the channels: those left over do not matter. */
static void every_head_dim_is_skipped(void)
{
    static const char *const presets[] = {"aimx", "aim-gddr6", "cent"};
    static const uint32_t dims[] = {64, 80, 96, 100, 112, 128, 160, 192, 256};
    static const uint32_t heads[][2] = {{1, 1}, {8, 8}, {32, 8}, {28, 4}, {71, 1}};
    const pimattn_span span = {1 << 20, 1};
    for (uint32_t i = 0; i < 3 * 4 * 5 * 9; i++) {
        pimattn_config c = {.shape = {.n_layers = 1}, .partition = i % 2};
        pimattn_readings r;
        c.shape.n_heads = heads[i / 9 % 5][0], c.shape.n_kv_heads = heads[i / 9 % 5][1];
        c.shape.head_dim = dims[i % 9];
        pimhw_config_init(&c.device, presets[i / 180], NULL);
        pimhw_config_set(&c.device, "refresh", 0, NULL);
        pimhw_config_set(&c.device, "controller", i / 45 % 4, NULL);
        CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
        CHECK(r.device.skipped_rounds > 10 * r.device.walked_rounds);
        if (r.device.skipped_rounds <= 10 * r.device.walked_rounds)
            printf("  case %u\n", (unsigned)i);
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
    for (uint32_t controller = 0; controller < 4; controller++) { /* the hub's work, too */
        uint64_t walked[2];
        for (uint32_t k = 0; k < 2; k++) {
            pimhw_config_init(&c.device, "aimx", NULL);
            c.device.controller = controller;
            c.device.refresh = 0;
            c.shape.n_heads = c.shape.n_kv_heads = 32u << k;
            CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
            walked[k] = r.device.walked_rounds;
        }
        CHECK_U(walked[1], walked[0]);
    }
}

/* Channels of one host whose blocks have ended do not matter to those that go on. */
static void long_blocks_beside_short_ones_are_skipped(void)
{
    static const pimattn_span spans[3] = {{1 << 19, 1}, {1000, 1}, {70000, 1}};
    for (uint32_t i = 0; i < 2 * 2 * 3; i++) {
        pimattn_config c = {.shape = {.n_layers = 1, .head_dim = 128}, .partition = PIMATTN_HFP};
        pimattn_readings r;
        c.shape.n_kv_heads = 1u << i / 4, c.shape.n_heads = 2 * c.shape.n_kv_heads;
        pimhw_config_init(&c.device, i % 2 ? "cent" : "aim-gddr6", NULL);
        c.device.refresh = i / 2 % 2;
        CHECK_U(pimattn_estimate(&r, &c, spans, 3, NULL), PIMATTN_OK);
        CHECK(r.device.skipped_rounds > 10 * r.device.walked_rounds);
    }
}

/* What a device learnt of a program holds the next time, too. */
static void what_was_timed_before_is_skipped(void)
{
    const pimattn_shape shape = {.n_layers = 1, .n_heads = 8, .n_kv_heads = 8, .head_dim = 128};
    const pimattn_span span = {20000, 1};
    for (uint32_t i = 0; i < 8; i++) {
        pimattn_plan plan;
        pimhw_config c;
        pimhw_device *device;
        pimhw_request request;
        pimhw_readings once, again;
        pimhw_config_init(&c, "aimx", NULL);
        c.controller = i / 2;
        c.refresh = i % 2;
        CHECK_U(pimattn_plan_init(&plan, &shape, &c, PIMATTN_TCP, 0, false, 1, NULL), PIMATTN_OK);
        CHECK_U(pimattn_plan_lower(&plan, &program, NULL), PIMATTN_OK);
        CHECK_U(pimattn_plan_request(&plan, &request, blocks, order, list_begin, &span, 1, NULL),
                PIMATTN_OK);
        CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &once, &program, &request, NULL, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &again, &program, &request, NULL, NULL), PIMHW_OK);
        CHECK(again.walked_rounds < once.walked_rounds);
        CHECK_U(again.cycles, once.cycles);
        pimhw_device_destroy(device);
    }
}

/* More spans than a device keeps (32,768): it forgets them all, and goes on. */
static void more_spans_than_a_device_keeps(void)
{
    enum { MANY = 8192 };
    static pimattn_span spans[MANY];
    static pimhw_block many[MANY];
    static uint32_t many_order[MANY];
    const pimattn_shape shape = {.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = 128};
    check_rng rng = {1};
    pimattn_plan plan;
    pimhw_config c;
    pimhw_device *device;
    pimhw_request request;
    pimhw_readings walked, skipped;
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_config_init(&c, "aimx", NULL);
    c.controller = PIMHW_STATIC_GAPS;
    c.tREFI = 1301;
    for (size_t i = 0; i < MANY; i++) {
        spans[i].context_tokens = rng_range(&rng, 1, 3000);
        spans[i].n_tokens = 1;
    }
    CHECK_U(pimattn_plan_init(&plan, &shape, &c, PIMATTN_TCP, 0, false, 1, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_lower(&plan, &program, NULL), PIMATTN_OK);
    CHECK(pimattn_plan_blocks(&plan, MANY) <= MANY);
    CHECK_U(pimattn_plan_request(&plan, &request, many, many_order, list_begin, spans, MANY, NULL),
            PIMATTN_OK);
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, NULL), PIMHW_OK);
    CHECK(readings_agree(walked, skipped));
    CHECK(skipped.skipped_rounds > skipped.walked_rounds);
    pimhw_device_destroy(device);
}

/* MACs that a refresh held back wait for rows of their own, while the open one is of a block
 * before: where that lies beside the next block belongs to the state. */
static void rows_that_wait_are_seen_from_the_open_one(void)
{
    static const uint8_t rows[47] = {16, 20, 16, 26, 6,  22, 19, 11, 30, 24, 25, 10, 10, 21, 14, 8,
                                     7,  24, 28, 25, 24, 0,  18, 6,  12, 12, 17, 4,  23, 23, 15, 27,
                                     10, 2,  25, 25, 27, 4,  19, 7,  8,  3,  0,  9,  27, 5,  18};
    static const uint64_t op_size[3] = {12, 18, 14}, base[3] = {0, 2, 0}, step[3] = {1, 0, 0};
    pimhw_config c;
    pimhw_item item;
    pimhw_request request;
    pimhw_device *device;
    pimhw_readings walked, skipped;
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_cause why = {""};
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.n_channels = 1;
    c.controller = PIMHW_DCS;
    memset(&item, 0, sizeof item);
    memset(&request, 0, sizeof request);
    memset(blocks, 0, sizeof blocks);
    pimhw_program_init(&program);
    item.kind = PIMHW_LIST, item.mask = 1;
    pimhw_program_item(&program, &item);
    pimhw_program_loop(&program, pimhw_program_const(&program, 2), 1);
    for (int i = 0; i < 3; i++) {
        pimhw_operand row;
        memset(&row, 0, sizeof row);
        row.base = base[i], row.step[1] = step[i];
        item.kind = PIMHW_MAC_ABK;
        item.op_size = pimhw_program_const(&program, op_size[i]);
        item.row = pimhw_program_operand(&program, &row);
        pimhw_program_item(&program, &item);
    }
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    for (uint32_t i = 0; i < 47; i++)
        blocks[i].row_base[0] = 10u * rows[i];
    request.blocks = blocks, request.n_blocks = 47;
    CHECK_U(pimhw_device_create(&device, &c, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, &why), PIMHW_OK);
    readings_agree(walked, skipped);
    pimhw_device_destroy(device);
}

/* A shared front end takes a tick for each value of an operand, even of one no clock hangs on. */
static void values_of_channels_take_ticks(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 3};
    pimhw_item list = {.kind = PIMHW_LIST}, bias = {.kind = PIMHW_WR_BIAS, .mask = 7};
    pimhw_tail tail = {.base = 3, .step = {1}, .channel_step = 1};
    pimhw_operand gpr = {.base = 3};
    const pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = 4, .op_size = 1};
    const pimhw_instruction af = {.kind = PIMHW_AF, .mask = 7, .op_size = 1};
    const pimhw_instruction rd = {.kind = PIMHW_RD_AF, .mask = 7, .op_size = 1};
    pimhw_config_init(&c, "aim-gddr6", NULL);
    c.n_channels = 3;
    memset(blocks, 0, sizeof blocks);
    pimhw_program_init(&program);
    gpr.tail[0] = pimhw_program_tail(&program, &tail);
    bias.gpr = pimhw_program_operand(&program, &gpr);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_const(&program, 2), 7);
    pimhw_program_item(&program, &bias);
    pimhw_program_end(&program);
    pimhw_program_add(&program, &mac);
    pimhw_program_loop(&program, pimhw_program_const(&program, 34), 7);
    pimhw_program_add(&program, &af);
    pimhw_program_end(&program);
    pimhw_program_add(&program, &rd);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Round 20 alone finds its second row open: rows that move apart make no rounds alike. */
static void rows_that_move_apart_are_told(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    pimhw_item first = {.kind = PIMHW_MAC_ABK, .mask = 1}, second = first;
    pimhw_operand row = {.step = {1}};
    pimhw_config_init(&c, "aimx", NULL);
    pimhw_program_init(&program);
    first.op_size = second.op_size = pimhw_program_const(&program, 1);
    first.row = pimhw_program_operand(&program, &row);
    second.row = pimhw_program_const(&program, 20);
    pimhw_program_loop(&program, pimhw_program_const(&program, 64), 1);
    pimhw_program_item(&program, &first);
    pimhw_program_item(&program, &second);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Refreshes let a channel that did a MAC and one that did none come into one state. */
static void a_busy_channel_stays_one(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    const pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = 1, .op_size = 1};
    const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 3, .op_size = 1};
    const pimhw_instruction wait = {.kind = PIMHW_EPU_WAIT, .mask = 3, .op_size = 1};
    pimhw_instruction epu = {
        .kind = PIMHW_EPU, .mask = 3, .op_size = 320000, .flags = PIMHW_AWAITED};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 2;
    c.refresh = 1;
    pimhw_program_init(&program);
    pimhw_program_add(&program, &mac);
    pimhw_program_add(&program, &epu);
    pimhw_program_add(&program, &wait);
    for (int i = 0; i < 3; i++) {
        pimhw_program_loop(&program, pimhw_program_const(&program, 64), 3);
        pimhw_program_add(&program, &gb);
        pimhw_program_end(&program);
    }
    both_ways(&c, &request, "", 0, NULL);
}

/* Nothing comes after EOC, a loop least of all. */
static void loops_after_the_end_are_refused(void)
{
    pimhw_config c;
    const pimhw_instruction eoc = {.kind = PIMHW_EOC};
    const pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = 1, .op_size = 4};
    pimhw_request request = {.repeats = 2};
    pimhw_config_init(&c, "aimx", NULL);
    for (int last = 0; last < 2; last++) {
        pimhw_program_init(&program);
        if (!last) pimhw_program_add(&program, &eoc);
        pimhw_program_loop(&program, pimhw_program_const(&program, 10), 1);
        pimhw_program_add(&program, &mac);
        pimhw_program_end(&program);
        if (last) pimhw_program_add(&program, &eoc);
        both_ways(&c, last ? &request : NULL,
                  last ? "item 1: an instruction after EOC" : "item 2: an instruction after EOC", 0,
                  NULL);
    }
}

/* A loop has rounds; what else its item names says nothing about them. */
static void rounds_are_the_op_size_of_a_loop(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 10};
    pimhw_item list = {.kind = PIMHW_LIST}, loop = {.kind = PIMHW_LOOP, .mask = 1};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
    pimhw_tail tail = {.step = {0, 3}, .rest = 1};
    pimhw_operand size = {.base = 4};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    pimhw_program_init(&program);
    size.tail[0] = pimhw_program_tail(&program, &tail);
    mac.op_size = pimhw_program_operand(&program, &size);
    loop.op_size = pimhw_program_const(&program, 20);
    loop.bank = pimhw_program_const(&program, 1);
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &loop);
    pimhw_program_item(&program, &mac);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < 10; i++)
        blocks[i].rest[0] = i < 9 ? 10 : 50;
    both_ways(&c, &request, "", 0, NULL);
}

/* A list may name a block again and again: it has more rounds than there are blocks. */
static void lists_may_be_longer_than_the_blocks(void)
{
    static const uint32_t begin[2] = {0, 10}, again[10] = {0};
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 1, .list_begin = begin, .order = again};
    pimhw_item list = {.kind = PIMHW_LIST}, rd = {.kind = PIMHW_RD_MAC, .mask = 1};
    pimhw_operand out = {.step = {1}};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    memset(blocks, 0, sizeof blocks);
    pimhw_program_init(&program);
    rd.out = pimhw_program_operand(&program, &out);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_const(&program, 1), 1);
    pimhw_program_item(&program, &rd);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "item 2: RD_MAC: out is 2, the device allows at most 1", 0, NULL);
}

/* Of 13 tails the last one alone tells two blocks apart: more than a span has terms for. */
static void more_tails_than_a_span_has_terms(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 2};
    pimhw_item list = {.kind = PIMHW_LIST}, gb = {.kind = PIMHW_WR_GB, .mask = 1};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    memset(blocks, 0, sizeof blocks);
    blocks[0].rest[1] = 2, blocks[1].rest[1] = 40;
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_const(&program, 2), 1);
    for (uint32_t i = 0; i < 13; i++) {
        pimhw_tail tail = {.base = 20 + i, .rest = i < 12 ? 1 : 2};
        pimhw_operand size = {.base = 64};
        size.tail[0] = pimhw_program_tail(&program, &tail);
        gb.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_item(&program, &gb);
    }
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Sizes that grow up to 4 units of 3 columns, not to 4 columns; once more, and all are known. */
static void growth_ends_at_its_limit(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 2};
    pimhw_item gb = {.kind = PIMHW_WR_GB, .mask = 1};
    const pimhw_tail limit = {.base = 4, .mul = 3};
    pimhw_operand size = {.base = 1, .step = {1}};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    pimhw_program_init(&program);
    size.tail[0] = pimhw_program_tail(&program, &limit);
    gb.op_size = pimhw_program_operand(&program, &size);
    pimhw_program_loop(&program, pimhw_program_const(&program, 40), 1);
    pimhw_program_loop(&program, pimhw_program_const(&program, 2), 1);
    pimhw_program_item(&program, &gb);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    CHECK(both_ways(&c, &request, "", 0, NULL) > 20);
}

/* What CFR 2 holds is the row of AF: the third round finds it open, as the second did not. */
static void modes_of_af_are_rows(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    pimhw_item cfr = {.kind = PIMHW_CFR, .mask = 1}, af = {.kind = PIMHW_AF, .mask = 1};
    const pimhw_tail limit = {.base = 1};
    pimhw_operand mode = {.step = {1}};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    c.refresh = 0;
    pimhw_program_init(&program);
    mode.tail[0] = pimhw_program_tail(&program, &limit);
    cfr.gpr = pimhw_program_operand(&program, &mode);
    cfr.out = pimhw_program_const(&program, 1);
    cfr.aux = pimhw_program_const(&program, 2);
    pimhw_program_loop(&program, pimhw_program_const(&program, 4), 1);
    pimhw_program_item(&program, &cfr);
    pimhw_program_loop(&program, pimhw_program_const(&program, 40), 1);
    pimhw_program_item(&program, &af);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Four rounds that wait as long, three of them for the hub, the last for its host alone: what is
 * waited for belongs to the state.
 *
 *     GPR 300 + 10 i, EPU 10 (3 - i), EPU_WAIT, WR_GB
 */
static void what_the_host_waited_for_is_told(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    pimhw_item gpr = {.kind = PIMHW_GPR, .mask = 1}, wait = {.kind = PIMHW_EPU_WAIT, .mask = 1};
    pimhw_item epu = {.kind = PIMHW_EPU, .mask = 1, .flags = PIMHW_AWAITED};
    const pimhw_tail left = {.base = 3, .step = {1}, .mul = 160};
    const pimhw_operand ticks = {.base = 300, .step = {10}};
    pimhw_operand size = {.base = UINT64_MAX};
    const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 1, .op_size = 1};
    pimhw_config_init(&c, "aim-gddr6", NULL);
    c.n_channels = 1;
    c.epu_lanes = 16, c.epu_ck_per_op = 1;
    pimhw_program_init(&program);
    size.tail[0] = pimhw_program_tail(&program, &left);
    epu.op_size = pimhw_program_operand(&program, &size);
    pimhw_program_loop(&program, pimhw_program_const(&program, 4), 1);
    pimhw_program_loop(&program, pimhw_program_operand(&program, &ticks), 1);
    pimhw_program_item(&program, &gpr);
    pimhw_program_end(&program);
    pimhw_program_item(&program, &epu);
    pimhw_program_item(&program, &wait);
    pimhw_program_loop(&program, pimhw_program_const(&program, 2), 1);
    pimhw_program_add(&program, &gb);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Rows that move on up to a last one, which then stays open. */
static void rows_that_end_are_told(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
    const pimhw_tail limit = {.base = 20};
    pimhw_operand row = {.step = {1}};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    c.refresh = 0;
    pimhw_program_init(&program);
    row.tail[1] = pimhw_program_tail(&program, &limit);
    mac.row = pimhw_program_operand(&program, &row);
    mac.op_size = pimhw_program_const(&program, 4);
    pimhw_program_loop(&program, pimhw_program_const(&program, 60), 1);
    pimhw_program_item(&program, &mac);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* 8 rounds on an entry of their own, then some on that which others use: nothing else differs. */
static void entries_tell_rounds_apart(void)
{
    for (int i = 0; i < 4; i++) {
        pimhw_config c;
        pimhw_request request = {.repeats = 1};
        pimhw_item gb = {.kind = PIMHW_WR_GB, .mask = 1}, mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
        const pimhw_instruction rd = {.kind = PIMHW_RD_MAC, .mask = 1, .op_size = 1};
        const pimhw_tail left = {.base = 8, .step = {1}};
        pimhw_operand entry = {.base = 1};
        pimhw_config_init(&c, "aimx", NULL);
        c.n_channels = 1;
        c.refresh = 0;
        c.controller = i % 2 ? PIMHW_DCS : PIMHW_PING_PONG;
        c.out_entries = 8;
        pimhw_program_init(&program);
        entry.tail[0] = pimhw_program_tail(&program, &left);
        *(i < 2 ? &mac.out : &gb.tile) = pimhw_program_operand(&program, &entry);
        gb.op_size = mac.op_size = pimhw_program_const(&program, 1);
        pimhw_program_loop(&program, pimhw_program_const(&program, 30), 1);
        pimhw_program_loop(&program, pimhw_program_const(&program, 4), 1);
        pimhw_program_item(&program, &gb);
        pimhw_program_item(&program, &mac);
        pimhw_program_add(&program, &rd);
        pimhw_program_end(&program);
        pimhw_program_end(&program);
        both_ways(&c, &request, "", 0, NULL);
    }
}

/* The same program with lists, without and with them again: nothing of one is taken for another. */
static void lists_come_and_go(void)
{
    static const uint32_t begin[] = {0, 3, 4}, of_lists[] = {0, 1, 0, 1};
    pimhw_config c;
    pimhw_device *device;
    pimhw_request request = {.blocks = blocks, .n_blocks = 2};
    pimhw_item list = {.kind = PIMHW_LIST}, mac = {.kind = PIMHW_MAC_ABK, .mask = 3};
    const pimhw_tail tail = {.rest = 1};
    pimhw_operand rounds = {.base = 64};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 2;
    memset(blocks, 0, sizeof blocks);
    blocks[0].rest[0] = 40, blocks[1].rest[0] = 100;
    pimhw_program_init(&program);
    rounds.tail[0] = pimhw_program_tail(&program, &tail);
    mac.op_size = pimhw_program_const(&program, 2);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_operand(&program, &rounds), 3);
    pimhw_program_item(&program, &mac);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    for (int i = 0; i < 4; i++) {
        pimhw_readings walked, skipped;
        pimhw_sink sink = {ignore, NULL, NULL};
        request.list_begin = i % 2 ? NULL : begin;
        request.order = of_lists;
        CHECK_U(pimhw_device_time(device, &skipped, &program, &request, NULL, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_time(device, &walked, &program, &request, &sink, NULL), PIMHW_OK);
        readings_agree(walked, skipped);
        CHECK_U(walked.commands[PIMHW_CMD_MAC16], 2 * (i % 2 ? 2 * 104 : 2 * 40 + 2 * 64));
    }
    pimhw_device_destroy(device);
}

/* The row that is open behind a loop is the one its last round opened, however it came to it. */
static void rows_behind_loops_are_open(void)
{
    for (uint32_t i = 0; i < 4 * 2 * 8; i++) {
        pimhw_config c;
        pimhw_request request = {.repeats = 1};
        pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
        const pimhw_operand row = {.step = {1}};
        const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 1, .op_size = 3};
        const pimhw_instruction rd = {.kind = PIMHW_RD_MAC, .mask = 1, .op_size = 1};
        pimhw_config_init(&c, "aimx", NULL);
        c.n_channels = 1;
        c.controller = i % 4;
        c.refresh = i / 4 % 2;
        pimhw_program_init(&program);
        mac.op_size = pimhw_program_const(&program, 1 + i / 8);
        mac.row = pimhw_program_operand(&program, &row);
        pimhw_program_loop(&program, pimhw_program_const(&program, 300), 1);
        pimhw_program_add(&program, &gb);
        pimhw_program_item(&program, &mac);
        pimhw_program_add(&program, &rd);
        pimhw_program_end(&program);
        mac.row = pimhw_program_const(&program, 299);
        pimhw_program_item(&program, &mac);
        both_ways(&c, &request, "", 0, NULL);
    }
}

/* Refreshes make rounds alike to those some before, not to the last: rows move by all of them. */
static void rows_move_by_whole_cycles(void)
{
    for (uint32_t size = 1; size < 9; size++) {
        pimhw_config c;
        pimhw_request request = {.repeats = 1};
        pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
        const pimhw_operand row = {.step = {1}};
        const pimhw_instruction bias = {.kind = PIMHW_WR_BIAS, .mask = 1, .op_size = 1};
        const pimhw_instruction rd = {.kind = PIMHW_RD_MAC, .mask = 1, .op_size = 1};
        pimhw_config_init(&c, "aim-gddr6", NULL);
        c.n_channels = 1;
        c.tRCD_MAC = 87, c.tWTR_L = 65;
        c.refresh = 1, c.tREFI = 876, c.refresh_phase = 335;
        pimhw_program_init(&program);
        mac.op_size = pimhw_program_const(&program, size);
        mac.row = pimhw_program_operand(&program, &row);
        pimhw_program_loop(&program, pimhw_program_const(&program, 351), 1);
        pimhw_program_add(&program, &bias);
        pimhw_program_add(&program, &rd);
        pimhw_program_item(&program, &mac);
        pimhw_program_end(&program);
        mac.row = pimhw_program_const(&program, 350);
        pimhw_program_item(&program, &mac);
        CHECK(both_ways(&c, &request, "", 0, NULL) > 0);
    }
}

/* Rows of the second space lie below those of the first: the open one is seen all the same. */
static void rows_of_both_spaces_are_seen(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 6};
    pimhw_item list = {.kind = PIMHW_LIST}, mac = {.kind = PIMHW_MAC_ABK, .mask = 1, .space = 1};
    const pimhw_tail left = {.base = 3, .step = {1}};
    pimhw_operand row = {.base = 3};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    c.refresh = 0;
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < 6; i++)
        blocks[i].row_base[0] = 1000, blocks[i].row_base[1] = 10;
    pimhw_program_init(&program);
    row.tail[0] = pimhw_program_tail(&program, &left);
    mac.op_size = pimhw_program_const(&program, 2);
    mac.row = pimhw_program_operand(&program, &row); /* 3, 2, 1, then 0, as in the loop */
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &mac);
    pimhw_program_loop(&program, pimhw_program_const(&program, 3), 1);
    mac.row = 0;
    for (uint8_t space = 2; space-- > 0;) {
        mac.space = space;
        pimhw_program_item(&program, &mac);
    }
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* A result that takes long, of the first two rounds, hides when the MACs behind it end. */
static void what_ends_late_hides_what_ends(void)
{
    pimhw_config c;
    pimhw_request request = {.repeats = 1};
    pimhw_item rd = {.kind = PIMHW_RD_MAC, .mask = 1};
    const pimhw_tail left = {.base = 2, .step = {1}};
    pimhw_operand size = {.base = 1};
    const pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = 1, .op_size = 2};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    c.refresh = 0;
    c.tCL_REG = 900, c.tCWL = c.tCWL_REG = c.tCWL_GB = 1000; /* nothing waits for the result */
    pimhw_program_init(&program);
    size.tail[0] = pimhw_program_tail(&program, &left);
    rd.op_size = pimhw_program_operand(&program, &size);
    pimhw_program_loop(&program, pimhw_program_const(&program, 90), 1);
    pimhw_program_item(&program, &rd);
    for (int i = 0; i < 2; i++) {
        pimhw_program_add(&program, &mac);
        if (i == 0) pimhw_program_loop(&program, pimhw_program_const(&program, 9), 1);
    }
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Channels 1 and 2 have as much to do for 70 rounds of 100: their steps go by pairs from channel 0
 * on, of which this loop is not. */
static void pairs_of_channels_begin_at_the_first(void)
{
    for (uint32_t shared = 0; shared < 2; shared++) {
        pimhw_config c;
        pimhw_request request = {.repeats = 2};
        pimhw_item gb = {.kind = PIMHW_WR_GB, .mask = 7};
        const pimhw_tail tail = {
            .base = 500, .unit = 100, .step = {1}, .channel_step = 30, .channel_div = 2};
        pimhw_operand size = {.base = 64};
        pimhw_config_init(&c, shared ? "aim-gddr6" : "aimx", NULL);
        c.n_channels = 3;
        c.refresh = 0;
        pimhw_program_init(&program);
        size.tail[0] = pimhw_program_tail(&program, &tail);
        gb.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_loop(&program, pimhw_program_const(&program, 600), 6);
        pimhw_program_item(&program, &gb);
        pimhw_program_end(&program);
        both_ways(&c, &request, "", 0, NULL);
    }
}

/* One host, two channels in one group while their blocks are alike. Then those of channel 0 lie
 * apart in another way, or the last channel has less to do: no longer what is known of both. */
static void alike_is_alike_in_all_channels(void)
{
    static const uint32_t begin[] = {0, 6, 12}, own[] = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0};
    for (int less = 0; less < 2; less++) {
        static const uint32_t same[] = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1};
        pimhw_config c;
        pimhw_request request = {.blocks = blocks, .n_blocks = 2, .list_begin = begin};
        pimhw_item list = {.kind = PIMHW_LIST}, mac = {.kind = PIMHW_MAC_ABK, .mask = 3};
        const pimhw_tail tail = {.rest = 1, .channel_step = 5};
        pimhw_operand size = {.base = 8};
        pimhw_config_init(&c, "aim-gddr6", NULL);
        c.n_channels = 2;
        memset(blocks, 0, sizeof blocks);
        blocks[0].rest[0] = 100, blocks[1].rest[0] = less ? 10 : 100;
        blocks[0].row_base[1] = 100, blocks[1].row_base[1] = less ? 100 : 200;
        request.order = less ? same : own;
        pimhw_program_init(&program);
        size.tail[0] = pimhw_program_tail(&program, &tail);
        mac.op_size = pimhw_program_operand(&program, &size);
        pimhw_program_item(&program, &list);
        pimhw_program_loop(&program, pimhw_program_const(&program, 3), 3);
        for (mac.space = 0; mac.space < 2; mac.space++)
            pimhw_program_item(&program, &mac);
        pimhw_program_end(&program);
        mac.space = 1; /* whose row is open */
        pimhw_program_item(&program, &mac);
        pimhw_program_end(&program);
        both_ways(&c, &request, "", 0, NULL);
    }
}

/* Four channels in one group, their blocks alike; then each takes what it writes from elsewhere.
 * The host takes a tick for each source, though no clock of a channel hangs on it. */
static void sources_of_blocks_take_ticks(void)
{
    static const uint32_t begin[] = {0, 6, 12, 18, 24};
    static uint32_t lists[24];
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 4, .list_begin = begin, .order = lists};
    pimhw_item list = {.kind = PIMHW_LIST}, gb = {.kind = PIMHW_WR_GB, .mask = 15};
    const pimhw_tail tail = {.rest = 1};
    pimhw_operand source = {.base = 1000};
    pimhw_config_init(&c, "aim-gddr6", NULL);
    c.n_channels = 4;
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < 24; i++)
        lists[i] = i % 6 < 4 ? 0 : i / 6;
    for (uint32_t i = 0; i < 4; i++)
        blocks[i].rest[0] = 10 + i;
    pimhw_program_init(&program);
    source.tail[0] = pimhw_program_tail(&program, &tail);
    gb.op_size = pimhw_program_const(&program, 1);
    gb.gpr = pimhw_program_operand(&program, &source);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_const(&program, 100), 15);
    pimhw_program_item(&program, &gb);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    CHECK(both_ways(&c, &request, "", 0, NULL) > 1000);
}

/* One host and lists: the first run parts two channels in a loop, the next begins with them in one
 * group, of which that loop is not known. */
static void channels_that_parted_begin_together(void)
{
    static const uint32_t begin[] = {0, 2, 4}, lists[] = {0, 1, 0, 1};
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 2, .list_begin = begin, .order = lists};
    pimhw_item list = {.kind = PIMHW_LIST};
    const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 3, .op_size = 4};
    const pimhw_instruction bias = {.kind = PIMHW_WR_BIAS, .mask = 1, .op_size = 1};
    pimhw_config_init(&c, "aim-gddr6", NULL);
    c.n_channels = 2;
    memset(blocks, 0, sizeof blocks);
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    pimhw_program_loop(&program, pimhw_program_const(&program, 3), 3);
    pimhw_program_add(&program, &gb);
    pimhw_program_add(&program, &bias);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* Where rows are looked at once the MAC is next, ACT goes in the clock of the command before it:
 * before all that is counted from the next clock on. */
static void rows_may_open_before_the_base(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 2};
    const pimhw_instruction gb = {.kind = PIMHW_WR_GB, .mask = 1, .op_size = 1};
    const pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = 1, .op_size = 1};
    pimhw_config_init(&c, "aimx", NULL);
    c.n_channels = 1;
    c.controller = PIMHW_STATIC_GAPS;
    c.row_opening = PIMHW_ROW_HEAD;
    memset(blocks, 0, sizeof blocks);
    pimhw_program_init(&program);
    pimhw_program_add(&program, &gb);
    pimhw_program_loop(&program, pimhw_program_const(&program, 3), 1);
    pimhw_program_add(&program, &mac);
    pimhw_program_end(&program);
    both_ways(&c, &request, "", 0, NULL);
}

/* One loop after the other, each of some channels, whose refreshes are due at different times: that
 * they are in one state does not say how far off those are. */
static void refreshes_of_channels_may_be_apart(void)
{
    static const struct {
        uint8_t kind, mask, n, row, step; /* LOOP: so many rounds */
    } list[] = {
        {PIMHW_LOOP, 4, 49, 0, 0},    {PIMHW_MAC_ABK, 4, 13, 1, 1}, {PIMHW_WR_BIAS, 4, 1, 0, 0},
        {PIMHW_END, 0, 0, 0, 0},      {PIMHW_LOOP, 11, 56, 0, 0},   {PIMHW_WR_BIAS, 11, 1, 0, 0},
        {PIMHW_WR_BIAS, 11, 1, 0, 0}, {PIMHW_MAC_ABK, 8, 5, 0, 1},  {PIMHW_END, 0, 0, 0, 0},
        {PIMHW_MAC_ABK, 2, 26, 0, 0}, {PIMHW_MAC_ABK, 2, 19, 0, 0}, {PIMHW_WR_GB, 2, 21, 0, 0},
        {PIMHW_LOOP, 13, 18, 0, 0},   {PIMHW_RD_MAC, 13, 1, 0, 0},  {PIMHW_END, 0, 0, 0, 0},
    };
    pimhw_config c;
    pimhw_request request = {.repeats = 10};
    pimhw_config_init(&c, "aim-gddr6", NULL);
    c.n_channels = 4;
    c.refresh = 1, c.tREFI = 2257, c.refresh_phase = 13;
    pimhw_program_init(&program);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        pimhw_item item = {.kind = list[i].kind, .mask = list[i].mask};
        const pimhw_operand row = {.base = list[i].row, .step = {list[i].step}};
        item.op_size = pimhw_program_const(&program, list[i].n);
        if (list[i].kind == PIMHW_MAC_ABK) item.row = pimhw_program_operand(&program, &row);
        pimhw_program_item(&program, &item);
    }
    both_ways(&c, &request, "", 0, NULL);
}

/* A loop that begins while all is over, in which all is over again and again: what it first waited
 * for is not what it waits for later. */
static void only_the_first_wait_is_for_the_hub(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 4};
    pimhw_item list = {.kind = PIMHW_LIST}, work = {.kind = PIMHW_EPU, .mask = 1};
    const pimhw_instruction wait = {.kind = PIMHW_EPU_WAIT, .mask = 1};
    const pimhw_instruction write = {.kind = PIMHW_WR_ABK, .mask = 1, .op_size = 1};
    const pimhw_tail rest = {.rest = 1}, less = {.base = 50, .step = {0, 1}};
    pimhw_operand size = {.base = 100000}, columns = {.base = 50};
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
    pimhw_config_init(&c, "aimx", NULL);
    pimhw_config_set(&c, "refresh", 0, NULL);
    c.n_channels = 1;
    c.controller = PIMHW_STATIC_GAPS;
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < request.n_blocks; i++)
        blocks[i].rest[0] = 1000 + 3000 * i;
    pimhw_program_init(&program);
    size.tail[0] = pimhw_program_tail(&program, &rest);
    work.op_size = pimhw_program_operand(&program, &size);
    work.flags = PIMHW_AWAITED;
    pimhw_program_item(&program, &list);
    pimhw_program_item(&program, &work);
    pimhw_program_add(&program, &wait);
    columns.tail[0] = pimhw_program_tail(&program, &less);
    mac.op_size = pimhw_program_operand(&program, &columns);
    pimhw_program_loop(&program, pimhw_program_const(&program, 40), 1);
    pimhw_program_item(&program, &mac); /* in each round fewer */
    pimhw_program_add(&program, &write);
    pimhw_program_end(&program);
    pimhw_program_end(&program);
    CHECK(both_ways(&c, &request, "", 0, NULL) > 60);
}

/* A loop that asks for five rows, of which blocks have the first four or not; it begins while all
 * is over, and its fifth row is open or another. */
static void the_fifth_row_may_be_the_first(void)
{
    pimhw_config c;
    pimhw_request request = {.blocks = blocks, .n_blocks = 12};
    pimhw_item list = {.kind = PIMHW_LIST};
    const pimhw_instruction work = {
        .kind = PIMHW_EPU, .mask = 1, .op_size = 9000, .flags = PIMHW_AWAITED};
    const pimhw_instruction wait = {.kind = PIMHW_EPU_WAIT, .mask = 1};
    pimhw_config_init(&c, "aimx", NULL);
    pimhw_config_set(&c, "refresh", 0, NULL);
    c.n_channels = 1;
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < request.n_blocks; i++)
        blocks[i].rest[1] = i % 4 < 2;
    pimhw_program_init(&program);
    pimhw_program_item(&program, &list);
    pimhw_program_add(&program, &work);
    pimhw_program_add(&program, &wait);
    for (uint32_t row = 0; row < 6; row++) {
        const pimhw_tail rest = {.rest = (uint8_t)(row < 4 ? 1 : 2)};
        pimhw_operand size = {.base = 1};
        pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1};
        if (row % 5 == 0) pimhw_program_loop(&program, pimhw_program_const(&program, 30), 1);
        if (row != 4) size.tail[0] = pimhw_program_tail(&program, &rest);
        mac.op_size = pimhw_program_operand(&program, &size);
        mac.row = pimhw_program_const(&program, row);
        pimhw_program_item(&program, &mac);
        if (row >= 4) pimhw_program_end(&program);
    }
    pimhw_program_end(&program);
    CHECK(both_ways(&c, &request, "", 0, NULL) > 300);
}

int main(int argc, char **argv)
{
    if (argc > 1) first_case = strtoull(argv[1], NULL, 10);
    RUN(lists_may_be_longer_than_the_blocks);
    RUN(values_of_channels_take_ticks);
    RUN(loops_after_the_end_are_refused);
    RUN(rounds_are_the_op_size_of_a_loop);
    RUN(rows_that_wait_are_seen_from_the_open_one);
    RUN(rows_that_move_apart_are_told);
    RUN(a_busy_channel_stays_one);
    RUN(more_tails_than_a_span_has_terms);
    RUN(growth_ends_at_its_limit);
    RUN(modes_of_af_are_rows);
    RUN(refreshes_of_channels_may_be_apart);
    RUN(channels_that_parted_begin_together);
    RUN(rows_may_open_before_the_base);
    RUN(only_the_first_wait_is_for_the_hub);
    RUN(the_fifth_row_may_be_the_first);
    RUN(alike_is_alike_in_all_channels);
    RUN(sources_of_blocks_take_ticks);
    RUN(pairs_of_channels_begin_at_the_first);
    RUN(rows_of_both_spaces_are_seen);
    RUN(what_ends_late_hides_what_ends);
    RUN(rows_move_by_whole_cycles);
    RUN(rows_behind_loops_are_open);
    RUN(lists_come_and_go);
    RUN(rows_that_end_are_told);
    RUN(entries_tell_rounds_apart);
    RUN(what_the_host_waited_for_is_told);
    RUN(skipping_equals_walking);
    RUN(skipping_equals_walking_in_lists);
    RUN(skipping_equals_walking_by_hand);
    RUN(rounds_with_hub_work_are_skipped);
    RUN(who_is_last_may_change);
    RUN(repeats_begin_anew);
    RUN(blocks_do_not_tell_all);
    RUN(groups_count_for_others);
    RUN(clocks_of_equal_rounds_do_not_wrap);
    RUN(rounds_may_count);
    RUN(nests_are_of_some_channels);
    RUN(the_open_row_is_the_first_or_not);
    RUN(columns_end_where_nothing_is_left);
    RUN(terms_may_imply_each_other);
    RUN(every_head_dim_is_skipped);
    RUN(equal_heads_are_skipped);
    RUN(long_blocks_beside_short_ones_are_skipped);
    RUN(what_was_timed_before_is_skipped);
    RUN(more_spans_than_a_device_keeps);
    return check_end();
}
