/* The device way: what must not matter (controller, where chunks are, rows, walked or skipped) and
 * what must (every bit of the bytes that a head reads); and calls that fail. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "device.h"

/* --------------------------------------------------------------------------
 * Programs on units of the test's own, whose hub writes down what comes back.
 * -------------------------------------------------------------------------- */

enum { MOST_SUMS = 1 << 18, MOST_BLOCKS = 64 };

typedef struct notes {
    uint32_t lanes, banks, lane_type;
    uint64_t hash[PIMHW_MAX_CHANNELS]; /* of all results of a channel, in their order */
    uint64_t n_results;
} notes;

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Inputs hang on nothing but what the instruction says they are. */
static void note_input(void *user, const pimhw_event *e, uint16_t *lanes)
{
    const notes *n = (const notes *)user;
    bool bias = e->command == PIMHW_CMD_WRMAC16, distinct = e->flags & PIMHW_DISTINCT;
    uint64_t of = mix(mix(mix(distinct ? e->channel : 99, e->gpr), e->aux + e->index), e->round);
    check_rng rng = {of};
    for (uint32_t i = 0; i < (bias ? n->banks : n->lanes); i++)
        lanes[i] = bias ? 0 : pimhw_lane_round(n->lane_type, rng_float(&rng, -1, 1));
}

static void note_output(void *user, const pimhw_event *e, const float *sums)
{
    notes *n = (notes *)user;
    uint64_t *hash = &n->hash[e->channel];
    *hash = mix(mix(mix(*hash, e->gpr), e->aux), e->round);
    for (uint32_t b = 0; b < n->banks; b++)
        *hash = mix(*hash, float_bits(sums[b]));
    n->n_results++;
}

/* Runs a program on a memory under a controller. */
static pimhw_status noted_run(notes *n, pimhw_readings *r, const pimhw_config *config,
                              pimhw_memory *memory, const pimhw_program *program,
                              const pimhw_request *request, pimhw_cause *why)
{
    pimhw_device *device = NULL;
    pimhw_units *units = NULL;
    pimhw_hub hub = {n, note_input, note_output, NULL};
    memset(n, 0, sizeof *n);
    n->lanes = pimhw_config_lanes(config);
    n->banks = pimhw_config_banks(config);
    n->lane_type = config->lane_type;
    CHECK_U(pimhw_device_create(&device, config, why), PIMHW_OK);
    CHECK_U(pimhw_units_create(&units, config, memory, why), PIMHW_OK);
    pimhw_status status = pimhw_device_run(device, r, units, program, request, &hub, why);
    pimhw_units_destroy(units);
    pimhw_device_destroy(device);
    return status;
}

/* Random lanes in the rows of all banks that a program may use. */
static void fill_rows(pimhw_memory *memory, const pimhw_config *c, uint32_t n_rows, check_rng *rng)
{
    uint32_t banks = pimhw_config_banks(c);
    uint16_t *row = (uint16_t *)check_alloc(c->row_bytes, 1);
    for (uint32_t ch = 0; ch < c->n_channels; ch++)
        for (uint32_t r = 0; r < n_rows; r++)
            for (uint32_t b = 0; b < banks; b++) {
                pimhw_da at = {ch, b / (banks / c->n_ranks), b % (banks / c->n_ranks), r, 0, 0};
                for (uint32_t i = 0; i < c->row_bytes / 2; i++) {
                    uint32_t bits = (uint32_t)rng_u64(rng); /* of magnitude 1/4 to 2 */
                    row[i] = (uint16_t)((bits & 0x83ffu) | (13 + (bits >> 16) % 3) << 10);
                }
                CHECK_U(pimhw_memory_write(memory, &at, row, c->row_bytes, NULL), PIMHW_OK);
            }
    free(row);
}

static pimhw_block blocks[MOST_BLOCKS];
static uint32_t order[MOST_BLOCKS], list_begin[PIMHW_MAX_CHANNELS + 1];

static pimattn_config any_small(check_rng *rng)
{
    static const char *const presets[] = {"aimx", "aim-gddr6", "samsung-hbm2", "pam-ddr4"};
    static const uint32_t dims[] = {8, 24, 64, 100, 128};
    uint32_t kv_heads = (uint32_t)rng_range(rng, 1, 2), g = (uint32_t)rng_range(rng, 1, 5);
    pimattn_config c =
        device_config(presets[rng_range(rng, 0, 3)], (uint32_t)rng_range(rng, 1, 4), g * kv_heads,
                      kv_heads, dims[rng_range(rng, 0, 4)], dims[rng_range(rng, 0, 4)]);
    c.device.row_bytes = (uint32_t)rng_range(rng, 0, 1) ? 512 : 1024;
    c.device.n_rows = 1u << 14;
    c.device.refresh = (uint32_t)rng_range(rng, 0, 1);
    c.device.out_bits = rng_range(rng, 0, 1) ? 16 : 32;
    c.device.controller = (uint32_t)rng_range(rng, 0, 3);
    c.partition = (uint32_t)rng_range(rng, 0, 1);
    c.hfp_unit = (uint32_t)rng_range(rng, 0, 1);
    c.v_mapping = (uint32_t)rng_range(rng, 0, 2);
    c.row_reuse_off = rng_range(rng, 0, 3) == 0;
    return c;
}

static uint64_t queries_of(const pimattn_config *c)
{
    bool single = c->partition == PIMATTN_HFP && c->hfp_unit == PIMATTN_BY_QUERY_HEAD;
    return single ? 1 : c->shape.n_heads / c->shape.n_kv_heads;
}

static bool plan_of(pimattn_plan *plan, pimhw_program *program, const pimattn_config *c)
{
    return CHECK_U(pimattn_plan_init(plan, &c->shape, &c->device, c->partition, c->hfp_unit,
                                     c->row_reuse_off, queries_of(c), NULL),
                   PIMATTN_OK) &&
           CHECK_U(pimattn_plan_map_v(plan, c->v_mapping, NULL), PIMATTN_OK) &&
           CHECK_U(pimattn_plan_lower(plan, program, NULL), PIMATTN_OK);
}

/* A plan in program order fits all controllers with as many entries, one with late reads those
 * without regions. */
static void one_program_gives_one_result_under_all_controllers(void)
{
    static pimattn_plan plan;
    static pimhw_program program;
    check_rng rng = {0x4c0};
    unsigned n_runs = 0;
    for (uint32_t i = 0; i < 28; i++) {
        pimattn_config c = any_small(&rng);
        notes first, other;
        pimhw_readings r;
        pimhw_cause why = {""};
        pimhw_memory *memory = NULL;
        bool late = i % 4 == 3;
        c.device.in_entries = 32;
        c.device.out_entries = c.device.obuf = 8;
        c.device.extra_region = 0;
        c.device.controller = late ? PIMHW_DCS : PIMHW_PING_PONG;
        pimattn_span spans[2] = {{rng_range(&rng, 1, 600), 1}, {rng_range(&rng, 1, 90), 1}};
        pimhw_request request;
        if (!plan_of(&plan, &program, &c)) continue;
        if (!CHECK_U(
                pimattn_plan_request(&plan, &request, blocks, order, list_begin, spans, 2, &why),
                PIMATTN_OK))
            continue;
        CHECK_U(pimhw_memory_create(&memory, &c.device, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
        fill_rows(memory, &c.device, 40, &rng);
        for (uint32_t k = 0; k < 4; k++) {
            static const uint32_t in_turn[] = {PIMHW_IN_ORDER, PIMHW_STATIC_GAPS, PIMHW_DCS,
                                               PIMHW_PING_PONG};
            c.device.controller = in_turn[k];
            if (late && k == 3) break;
            pimhw_status status =
                noted_run(k ? &other : &first, &r, &c.device, memory, &program, &request, &why);
            if (!CHECK_U(status, PIMHW_OK)) printf("  %s\n", why.text);
            if (k) CHECK_BYTES(other.hash, first.hash, sizeof first.hash);
            CHECK(first.n_results > 0);
            n_runs++;
        }
        pimhw_memory_destroy(memory);
    }
    CHECK_U(n_runs, 105);
}

/* What the host adds is the same, too, where sums stay as long: one engine for each controller. */
static void engines_of_all_controllers_agree(void)
{
    check_rng rng = {0xa11};
    for (uint32_t i = 0; i < 16; i++) {
        pimattn_config c = any_small(&rng);
        uint64_t tokens[2] = {rng_range(&rng, 1, 500), rng_range(&rng, 1, 60)};
        float *first = NULL;
        c.device.out_entries = c.device.obuf = 128;
        c.device.in_entries = 128;
        device_case d = device_case_new(&c, tokens, 2, &rng);
        device_case_item(&d, 0, 1);
        device_case_item(&d, 1, 1);
        device_case_queries(&d, &rng);
        size_t bytes = d.n_rows * d.out_floats * sizeof(float);
        first = (float *)check_alloc(bytes, 1);
        for (uint32_t k = 0; k < 4; k++) {
            d.config.device.controller = k;
            d.config.shape.k_type = k; /* banks hold lanes, whatever pages would */
            d.config.shape.v_type = 3 - k;
            pimattn_engine *engine = engine_new(&d.config);
            if (!engine) break;
            bool ran = device_case_append(&d, engine, &rng) && device_case_attend(&d, engine, NULL);
            if (ran && k == 0) memcpy(first, d.out, bytes);
            if (ran && k > 0) CHECK_BYTES(d.out, first, bytes);
            pimattn_engine_destroy(engine);
        }
        free(first);
        device_case_free(&d);
    }
}

/* --------------------------------------------------------------------------
 * Chunks.
 * -------------------------------------------------------------------------- */

/* Sequences of others that come and go, so that free chunks are holes between theirs. */
static void make_holes(pimattn_engine *engine, const pimattn_config *c, check_rng *rng)
{
    pimattn_seq seq[4];
    attn_kv kv = kv_random(&c->shape, 8500, rng);
    for (int i = 0; i < 4; i++)
        CHECK_U(pimattn_seq_create(engine, &seq[i]), PIMATTN_OK);
    for (uint64_t n = 0; n < 8500; n += 4250)
        for (int i = 0; i < 4; i++)
            CHECK_U(kv_append(engine, seq[i], 0, &kv, n, 4250), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(engine, seq[2]), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(engine, seq[0]), PIMATTN_OK);
    kv_free(&kv);
}

/* HFP: heads for each channel as many, so that those of others weigh on all alike. */
static void fragmented_chunks_change_nothing(void)
{
    check_rng rng = {0xf7a6};
    for (uint32_t i = 0; i < 4; i++) {
        pimattn_config c = any_small(&rng);
        pimattn_readings r[2];
        uint64_t tokens = rng_range(&rng, 8200, 9000); /* chunks of 4096 */
        c.device.n_channels = 2;
        c.shape.n_kv_heads = c.shape.n_heads = i % 2 + 1;
        c.shape.head_dim = c.shape.head_dim_v = 128;
        c.partition = i % 2;
        c.hfp_unit = PIMATTN_BY_KV_HEAD;
        c.device.controller = (i + 1) % 4;
        device_case d = device_case_new(&c, &tokens, 1, &rng);
        device_case_item(&d, 0, 1);
        device_case_queries(&d, &rng);
        size_t bytes = d.n_rows * d.out_floats * sizeof(float);
        float *first = (float *)check_alloc(bytes, 1);
        bool apart = false;
        for (int k = 0; k < 2; k++) {
            const pimhw_program *program;
            const pimhw_request *request;
            pimattn_engine *engine = engine_new(&c);
            if (!engine) break;
            if (k == 1) make_holes(engine, &c, &rng);
            bool ran =
                device_case_append(&d, engine, &rng) && device_case_attend(&d, engine, &r[k]);
            if (ran && k == 0) memcpy(first, d.out, bytes);
            if (ran && k == 1) CHECK_BYTES(d.out, first, bytes);
            CHECK_U(pimattn_engine_program(engine, 0, d.items, 1, &program, &request), PIMATTN_OK);
            for (uint32_t x = 1; x < request->n_chunks && k == 1; x++)
                apart = apart || request->chunks[x] != request->chunks[x - 1] + request->chunk_rows;
            pimattn_engine_destroy(engine);
        }
        CHECK(apart);
        CHECK(memcmp(&r[0].device, &r[1].device, sizeof r[0].device) == 0);
        CHECK(r[0].step_ck == r[1].step_ck && r[0].step_pJ == r[1].step_pJ);
        CHECK(r[1].chunks_used > r[0].chunks_used);
        free(first);
        device_case_free(&d);
    }
}

/* A row of every bank, somewhere else in another memory. */
static void move_row(pimhw_memory *to, const pimhw_memory *from, const pimhw_config *c,
                     uint32_t channel, uint32_t to_row, uint32_t from_row)
{
    uint32_t of_rank = pimhw_config_banks(c) / c->n_ranks;
    unsigned char row[1024];
    for (uint32_t b = 0; b < pimhw_config_banks(c); b++) {
        pimhw_da at = {channel, b / of_rank, b % of_rank, from_row, 0, 0}, its = at;
        its.row = to_row;
        CHECK_U(pimhw_memory_read(from, row, &at, c->row_bytes, NULL), PIMHW_OK);
        CHECK_U(pimhw_memory_write(to, &its, row, c->row_bytes, NULL), PIMHW_OK);
    }
}

/* The chunks of a request, each somewhere else in another memory; first rows, to be freed. */
static uint32_t *shuffle_chunks(pimhw_memory *to, const pimhw_memory *from, const pimhw_config *c,
                                const pimhw_request *request, check_rng *rng)
{
    uint32_t most = c->n_rows / request->chunk_rows;
    uint32_t *chunks = (uint32_t *)check_alloc(request->n_chunks, sizeof *chunks);
    bool *taken = (bool *)check_alloc(most, sizeof *taken);
    for (uint32_t k = 0; k < request->n_chunks; k++) {
        uint32_t at, begin = 0, end = c->n_channels;
        do
            at = (uint32_t)rng_range(rng, 0, most - 1);
        while (taken[at]);
        taken[at] = true;
        chunks[k] = at * request->chunk_rows;
        while (request->chunk_begin && k >= request->chunk_begin[begin + 1])
            begin++;
        if (request->chunk_begin) end = begin + 1;
        for (uint32_t ch = begin; ch < end; ch++)
            for (uint32_t row = 0; row < request->chunk_rows; row++)
                move_row(to, from, c, ch, chunks[k] + row, request->chunks[k] + row);
    }
    free(taken);
    return chunks;
}

/* Every chunk anywhere: what an engine would give out last, first, or in between. */
static void chunks_in_any_order_change_nothing(void)
{
    check_rng rng = {0x123};
    for (uint32_t i = 0; i < 8; i++) {
        pimattn_config c = any_small(&rng);
        c.device.controller = i % 4;
        c.partition = i / 4;
        c.device.row_bytes = 1024;
        uint64_t tokens[2] = {rng_range(&rng, 3000, 9000), rng_range(&rng, 1, 5000)};
        device_case d = device_case_new(&c, tokens, 2, &rng);
        device_case_item(&d, 0, 1);
        device_case_item(&d, 1, 1);
        device_case_queries(&d, &rng);
        const pimhw_program *program;
        const pimhw_request *request;
        pimhw_memory *shuffled = NULL;
        pimhw_readings r[2];
        pimhw_cause why = {""};
        notes n[2];
        pimattn_engine *engine = engine_new(&c);
        if (!engine || !device_case_append(&d, engine, &rng)) break;
        CHECK_U(pimattn_engine_program(engine, 0, d.items, 2, &program, &request), PIMATTN_OK);
        CHECK_U(pimhw_memory_create(&shuffled, &c.device, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
        pimhw_memory *memory = pimattn_engine_memory(engine);
        uint32_t *chunks = shuffle_chunks(shuffled, memory, &c.device, request, &rng);
        pimhw_request other = *request;
        other.chunks = chunks;
        CHECK_U(noted_run(&n[0], &r[0], &c.device, memory, program, request, &why), PIMHW_OK);
        CHECK_U(noted_run(&n[1], &r[1], &c.device, shuffled, program, &other, &why), PIMHW_OK);
        CHECK(n[0].n_results > 0);
        CHECK_BYTES(n[0].hash, n[1].hash, sizeof n[0].hash);
        CHECK_BYTES(&r[0], &r[1], sizeof r[0]);
        free(chunks);
        pimhw_memory_destroy(shuffled);
        pimattn_engine_destroy(engine);
        device_case_free(&d);
    }
}

/* --------------------------------------------------------------------------
 * One program.
 * -------------------------------------------------------------------------- */

static bool count_one(void *user, const pimhw_instruction *in)
{
    (void)in;
    ++*(uint64_t *)user;
    return true;
}

/* Its bytes stay, those of its instructions one by one grow with the tokens. */
static void one_program_serves_all_lengths(void)
{
    static const uint64_t run[] = {1, 2, 17, 255, 256, 257, 1000, 4097, 5000};
    static const uint64_t timed[] = {10000, 65536, 131072, 1000000};
    static pimattn_plan plan;
    static pimhw_program program, before;
    check_rng rng = {0x09e};
    for (uint32_t i = 0; i < 4; i++) {
        pimattn_config c = device_config("aimx", 4, 2, 1, 64, 64);
        pimhw_request request;
        pimhw_readings r, long_r;
        pimhw_cause why = {""};
        pimhw_memory *memory = NULL;
        notes n;
        c.device.controller = i;
        c.partition = i % 2;
        if (!plan_of(&plan, &program, &c)) return;
        before = program;
        CHECK_U(pimhw_memory_create(&memory, &c.device, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
        fill_rows(memory, &c.device, 4, &rng);
        uint64_t bytes = 0, cycles = 0;
        for (size_t t = 0; t < sizeof run / sizeof *run; t++) {
            pimattn_span span = {run[t], 1};
            CHECK_U(
                pimattn_plan_request(&plan, &request, blocks, order, list_begin, &span, 1, &why),
                PIMATTN_OK);
            if (!CHECK_U(noted_run(&n, &r, &c.device, memory, &program, &request, &why), PIMHW_OK))
                printf("  %s\n", why.text);
            if (bytes) CHECK_U(r.program_bytes, bytes);
            bytes = r.program_bytes;
            CHECK(r.cycles + c.device.tRFC >= cycles);
            cycles = r.cycles;
        }
        pimhw_device *device = NULL;
        double of_token = 0;
        CHECK_U(pimhw_device_create(&device, &c.device, &why), PIMHW_OK);
        for (size_t t = 0; t < sizeof timed / sizeof *timed; t++) {
            pimattn_span span = {timed[t], 1};
            CHECK_U(
                pimattn_plan_request(&plan, &request, blocks, order, list_begin, &span, 1, &why),
                PIMATTN_OK);
            CHECK_U(pimhw_device_time(device, &long_r, &program, &request, NULL, &why), PIMHW_OK);
            CHECK_U(long_r.program_bytes, bytes);
            uint64_t n_sent = 0, unrolled = 0;
            CHECK_U(pimhw_device_resolve(device, &program, &request, count_one, &n_sent, &why),
                    PIMHW_OK);
            CHECK_U(pimhw_program_unroll(device, &unrolled, &program, &request, &why), PIMHW_OK);
            CHECK_U(unrolled, 32 * n_sent);
            double per_token = (double)unrolled / (double)timed[t];
            if (t == 0) of_token = per_token;
            CHECK_NEAR(per_token, of_token, 0.02 * of_token); /* the ends of 10,000 tokens */
            CHECK(long_r.cycles > cycles);
            cycles = long_r.cycles;
        }
        CHECK_BYTES(&program, &before, sizeof program);
        pimhw_device_destroy(device);
        pimhw_memory_destroy(memory);
    }
}

/* Readings of the execution are those of timing alone. */
static void timed_is_executed(void)
{
    check_rng rng = {0x71e};
    for (uint32_t i = 0; i < 40; i++) {
        pimattn_config c = any_small(&rng);
        uint64_t tokens[2] = {rng_range(&rng, 1, 400), rng_range(&rng, 1, 40)};
        const pimhw_program *program;
        const pimhw_request *request;
        pimattn_readings r;
        pimhw_readings timed;
        pimhw_device *device = NULL;
        c.device.controller = i % 4;
        if (rng_range(&rng, 0, 1)) c.device.tREFI = c.device.refresh_phase = 2000;
        device_case d = device_case_new(&c, tokens, 2, &rng);
        device_case_item(&d, 0, 1);
        device_case_item(&d, 1, 1);
        device_case_queries(&d, &rng);
        pimattn_engine *engine = engine_new(&c);
        if (engine && device_case_append(&d, engine, &rng) && device_case_attend(&d, engine, &r)) {
            CHECK_U(pimattn_engine_program(engine, 0, d.items, 2, &program, &request), PIMATTN_OK);
            CHECK_U(pimhw_device_create(&device, &c.device, NULL), PIMHW_OK);
            CHECK_U(pimhw_device_time(device, &timed, program, request, NULL, NULL), PIMHW_OK);
            timed.skipped_rounds = r.device.skipped_rounds;
            timed.walked_rounds = r.device.walked_rounds;
            CHECK_BYTES(&timed, &r.device, sizeof timed);
            pimhw_device_destroy(device);
        }
        pimattn_engine_destroy(engine);
        device_case_free(&d);
    }
}

/* --------------------------------------------------------------------------
 * It is real.
 * -------------------------------------------------------------------------- */

/* Two sequences of 3 KV heads of 2 query heads each, on 4 channels of aimx. */
static device_case real_case(uint32_t partition, check_rng *rng)
{
    const uint64_t tokens[2] = {300, 200};
    pimattn_config c = device_config("aimx", 4, 6, 3, 32, 48);
    c.partition = partition;
    c.device.controller = PIMHW_DCS;
    c.device.out_bits = 32;
    device_case d = device_case_new(&c, tokens, 2, rng);
    device_case_item(&d, 0, 1);
    device_case_item(&d, 1, 1);
    device_case_queries(&d, rng);
    return d;
}

/* The channel of a block, or 0 where all share it. */
static uint32_t channel_of(const pimhw_request *r, uint32_t block)
{
    uint32_t c = 0, i = 0;
    if (!r->list_begin) return 0;
    while (r->order[i] != block)
        i++;
    while (r->list_begin[c + 1] <= i)
        c++;
    return c;
}

/* Where row `row` of K (0) or V (1) of a block is, by VA2PA; channel: within its unit. */
static pimhw_da real_place(const pimhw_request *r, uint32_t block, uint32_t space, uint32_t channel,
                           uint32_t bank, uint32_t row, uint32_t column)
{
    uint32_t unit = channel_of(r, block), at = r->blocks[block].row_base[space] + row;
    const uint32_t *chunks = r->chunks + (r->chunk_begin ? r->chunk_begin[unit] : 0);
    pimhw_da da = {unit + channel, 0, bank, chunks[at / r->chunk_rows] + at % r->chunk_rows,
                   column,         0};
    return da;
}

static void flip(pimhw_memory *memory, pimhw_da at, uint32_t lane, uint32_t bit)
{
    uint16_t x;
    at.byte = 2 * lane;
    CHECK_U(pimhw_memory_read(memory, &x, &at, sizeof x, NULL), PIMHW_OK);
    x = (uint16_t)(x ^ 1u << bit);
    CHECK_U(pimhw_memory_write(memory, &at, &x, sizeof x, NULL), PIMHW_OK);
}

/* Which of the heads [12] differ, and how many dims of each. */
static void compare_heads(const device_case *d, const float *first, uint32_t changed[12])
{
    for (uint32_t h = 0; h < 12; h++) {
        changed[h] = 0;
        for (uint32_t j = 0; j < 48; j++)
            changed[h] += float_bits(d->out[h * 48 + j]) != float_bits(first[h * 48 + j]);
    }
}

/* K: the score of a token is in every weight, so all of a head changes; V[t][j] is in o[j] only. */
static void a_bit_changes_what_reads_it(void)
{
    check_rng rng = {0xb17};
    for (uint32_t i = 0; i < 12; i++) {
        device_case d = real_case(i % 2, &rng);
        const pimhw_program *program;
        const pimhw_request *r;
        float first[12 * 48];
        uint32_t changed[12], is_v = i / 2 % 2, seq = (uint32_t)rng_range(&rng, 0, 1);
        uint32_t head = (uint32_t)rng_range(&rng, 0, 2), dim = (uint32_t)rng_range(&rng, 0, 31);
        uint32_t t = (uint32_t)rng_range(&rng, 0, seq ? 199 : 299), unit = i % 2 ? 1 : 4;
        pimattn_engine *engine = engine_new(&d.config);
        if (!engine || !device_case_append(&d, engine, &rng)) return;
        if (!device_case_attend(&d, engine, NULL)) return;
        memcpy(first, d.out, sizeof first);
        CHECK_U(pimattn_engine_program(engine, 0, d.items, 2, &program, &r), PIMATTN_OK);
        pimhw_memory *memory = pimattn_engine_memory(engine);
        /* K: 2 columns a token, 32 tokens a row; V: 3 blocks of dims, A: one group of 3 channels */
        uint32_t slot = t / (16 * unit), column = t / 16;
        pimhw_da at = is_v ? real_place(r, seq * 3 + head, 1, unit > 1 ? dim / 16 : 0, dim % 16,
                                        unit > 1 ? 0 : dim / 16, column)
                           : real_place(r, seq * 3 + head, 0, t / 16 % unit, t % 16, slot / 32,
                                        slot % 32 * 2 + dim / 16);
        flip(memory, at, is_v ? t % 16 : dim % 16, is_v ? 14 : 9);
        if (!device_case_attend(&d, engine, NULL)) return;
        compare_heads(&d, first, changed);
        for (uint32_t h = 0; h < 12; h++) {
            bool reads = h / 6 == seq && h % 6 / 2 == head;
            if (!reads) CHECK_U(changed[h], 0);
            if (reads && is_v) CHECK_U(changed[h], 1);
            if (reads && !is_v) CHECK(changed[h] > 40); /* a few may round to what they were */
        }
        flip(memory, at, is_v ? t % 16 : dim % 16, is_v ? 14 : 9);
        if (!device_case_attend(&d, engine, NULL)) return;
        CHECK_BYTES(d.out, first, sizeof first);
        pimattn_engine_destroy(engine);
        device_case_free(&d);
    }
}

/* Chunks of two sequences change places in VA2PA: each gets the other's bytes. */
static void swapped_chunks_change_the_result(void)
{
    check_rng rng = {0x5a9};
    for (uint32_t partition = 0; partition < 2; partition++) {
        device_case d = real_case(partition, &rng);
        const pimhw_program *program;
        const pimhw_request *given;
        pimhw_readings r;
        pimhw_cause why = {""};
        notes n[3];
        pimattn_engine *engine = engine_new(&d.config);
        if (!engine || !device_case_append(&d, engine, &rng)) return;
        CHECK_U(pimattn_engine_program(engine, 0, d.items, 2, &program, &given), PIMATTN_OK);
        pimhw_memory *memory = pimattn_engine_memory(engine);
        uint32_t chunks[64];
        pimhw_request request = *given;
        if (!CHECK(given->n_chunks <= 64 && given->n_chunks == 12)) return;
        memcpy(chunks, given->chunks, given->n_chunks * sizeof chunks[0]);
        request.chunks = chunks;
        for (int k = 0; k < 3; k++) {
            uint32_t first = chunks[0]; /* of K of a block, of V of the same */
            if (k > 0) chunks[0] = chunks[1], chunks[1] = first;
            CHECK_U(noted_run(&n[k], &r, &d.config.device, memory, program, &request, &why),
                    PIMHW_OK);
        }
        CHECK(memcmp(n[0].hash, n[1].hash, sizeof n[0].hash) != 0);
        CHECK_BYTES(n[2].hash, n[0].hash, sizeof n[0].hash);
        chunks[1] = PIMHW_UNMAPPED;
        CHECK_U(noted_run(&n[0], &r, &d.config.device, memory, program, &request, &why),
                PIMHW_ERR_ADDRESS);
        CHECK_HAS(why.text, "is in no chunk");
        pimattn_engine_destroy(engine);
        device_case_free(&d);
    }
}

static void fill_device(pimattn_engine *engine, uint32_t first, uint32_t n_rows)
{
    static unsigned char row[8192];
    const pimhw_config *c = &pimattn_engine_config(engine)->device;
    uint32_t banks = pimhw_config_banks(c) / c->n_ranks;
    memset(row, 0xff, sizeof row);
    for (uint32_t ch = 0; ch < c->n_channels; ch++)
        for (uint32_t b = 0; b < pimhw_config_banks(c); b++)
            for (uint32_t r = first; r < first + n_rows; r++) {
                pimhw_da at = {ch, b / banks, b % banks, r, 0, 0};
                CHECK_U(
                    pimhw_memory_write(pimattn_engine_memory(engine), &at, row, c->row_bytes, NULL),
                    PIMHW_OK);
            }
}

/* What was in a chunk before is read by no MAC whose sum is used. */
static void recycled_chunks_full_of_nan_change_nothing(void)
{
    check_rng rng = {0x0a0};
    for (uint32_t i = 0; i < 24; i++) {
        pimattn_config c = any_small(&rng);
        uint64_t tokens = rng_range(&rng, 1, 300);
        c.device.n_channels = (uint32_t)rng_range(&rng, 1, 3);
        c.device.row_bytes = 256;
        c.device.n_rows = 1u << 14;
        device_case d = device_case_new(&c, &tokens, 1, &rng);
        device_case_item(&d, 0, c.v_mapping == PIMATTN_V_K || tokens < 3 ? 1 : 3);
        device_case_queries(&d, &rng);
        size_t bytes = d.n_rows * d.out_floats * sizeof(float);
        float *first = (float *)check_alloc(bytes, 1);
        pimattn_engine *engine = engine_new(&c);
        if (!engine || !device_case_append(&d, engine, &rng)) return;
        if (!device_case_attend(&d, engine, NULL)) return;
        memcpy(first, d.out, bytes);
        for (size_t x = 0; x < d.n_rows * d.out_floats; x++)
            CHECK(isfinite(d.out[x]));
        const pimhw_program *program;
        const pimhw_request *r;
        CHECK_U(pimattn_engine_program(engine, 0, d.items, 1, &program, &r), PIMATTN_OK);
        for (uint32_t k = 0; k < r->n_chunks; k++)
            if (i % 3 || k < 2)
                fill_device(engine, r->chunks[k], r->chunk_rows < 8 ? r->chunk_rows : 8);
        CHECK_U(pimattn_seq_free(engine, d.seq[0]), PIMATTN_OK);
        if (!device_case_append(&d, engine, &rng) || !device_case_attend(&d, engine, NULL)) return;
        CHECK_BYTES(d.out, first, bytes);
        pimattn_engine_destroy(engine);
        free(first);
        device_case_free(&d);
    }
}

/* --------------------------------------------------------------------------
 * Calls that fail leave everything as it was.
 * -------------------------------------------------------------------------- */

static uint64_t chunks_used(device_case *d, pimattn_engine *engine)
{
    pimattn_readings r;
    memset(&r, 0, sizeof r);
    device_case_attend(d, engine, &r);
    return r.chunks_used;
}

/* One sequence in the cache and one to fail: 2 layers, so that chunks are those of both. */
static device_case failing_case(pimattn_config *c, check_rng *rng)
{
    const uint64_t tokens[2] = {40, 3000};
    *c = device_config("aimx", 2, 4, 2, 16, 16);
    c->shape.n_layers = 2;
    c->device.n_rows = 192; /* 12 chunks of 16 rows, of which 8 are taken by the first */
    c->device.controller = PIMHW_DCS;
    c->pool_bytes = 1 << 20;
    c->scratch_bytes = 1 << 16;
    c->max_seqs = 2;
    device_case d = device_case_new(c, tokens, 2, rng);
    device_case_item(&d, 0, 1);
    device_case_queries(&d, rng);
    return d;
}

static bool append_first(device_case *d, pimattn_engine *engine)
{
    bool ok = CHECK_U(pimattn_seq_create(engine, &d->seq[0]), PIMATTN_OK) &&
              CHECK_U(kv_append(engine, d->seq[0], 0, &d->kv[0], 0, 40), PIMATTN_OK) &&
              CHECK_U(kv_append(engine, d->seq[0], 1, &d->kv[0], 0, 40), PIMATTN_OK) &&
              CHECK_U(pimattn_seq_create(engine, &d->seq[1]), PIMATTN_OK);
    d->items[0].seq = d->seq[0];
    return ok;
}

static void a_full_device_is_as_before(void)
{
    check_rng rng = {0xf11};
    for (uint32_t partition = 0; partition < 2; partition++) {
        pimattn_config c;
        device_case d = failing_case(&c, &rng);
        c.partition = partition;
        pimattn_engine *engine = engine_new(&c);
        uint64_t n = 9;
        if (!engine || !append_first(&d, engine)) return;
        uint64_t before = chunks_used(&d, engine);
        float first[64];
        memcpy(first, d.out, sizeof first);
        CHECK_U(kv_append(engine, d.seq[1], 0, &d.kv[1], 0, 3000), PIMATTN_ERR_PAGES);
        CHECK_HAS(pimattn_engine_cause(engine), "3000 tokens need");
        CHECK_HAS(pimattn_engine_cause(engine), "of the device's");
        CHECK_U(pimattn_seq_reserve(engine, d.seq[1], 1000000), PIMATTN_ERR_PAGES);
        CHECK_U(pimattn_seq_reserve(engine, d.seq[0], 1000000), PIMATTN_ERR_PAGES);
        CHECK_U(pimattn_seq_tokens(engine, d.seq[1], 0, &n), PIMATTN_OK);
        CHECK_U(n, 0);
        CHECK_U(chunks_used(&d, engine), before);
        CHECK_BYTES(d.out, first, sizeof first);
        CHECK_U(pimattn_seq_free(engine, d.seq[0]), PIMATTN_OK);
        CHECK_U(kv_append(engine, d.seq[1], 0, &d.kv[0], 0, 40), PIMATTN_OK); /* there was room */
        d.items[0].seq = d.seq[1];
        CHECK_U(chunks_used(&d, engine), before);
        CHECK_BYTES(d.out, first, sizeof first);
        pimattn_engine_destroy(engine);
        device_case_free(&d);
    }
}

/* Every allocation of create, append and attend fails once. */
static void every_allocation_may_fail(void)
{
    check_rng rng = {0xa110c};
    for (uint32_t partition = 0; partition < 2; partition++) {
        pimattn_config c;
        check_heap heap = {0};
        device_case d = failing_case(&c, &rng);
        c.partition = partition;
        c.device.n_rows = 4096;
        c.allocator = heap_allocator(&heap);
        pimattn_engine *engine = NULL;
        pimhw_cause why = {""};
        unsigned n_failed[3] = {0};
        for (heap.fail_at = 1;; heap.fail_at = heap.n_calls + ++n_failed[0] + 1) {
            uint64_t from = heap.n_calls;
            heap.fail_at = from + n_failed[0] + 1;
            pimattn_status status = pimattn_engine_create(&engine, &c, &why);
            if (status == PIMATTN_OK) break;
            CHECK_U(status, PIMATTN_ERR_MEMORY);
            CHECK(!engine && heap.n_live == 0 && why.text[0]);
        }
        heap.fail_at = 0;
        if (!append_first(&d, engine)) return;
        float first[64];
        uint64_t before = chunks_used(&d, engine);
        memcpy(first, d.out, sizeof first);
        for (;; n_failed[1]++) {
            heap.fail_at = heap.n_calls + n_failed[1] + 1;
            pimattn_status status = kv_append(engine, d.seq[1], 0, &d.kv[1], 0, 3000);
            heap.fail_at = 0;
            if (status == PIMATTN_OK) break;
            CHECK_U(status, PIMATTN_ERR_MEMORY);
            CHECK_HAS(pimattn_engine_cause(engine), "memory");
            CHECK_U(chunks_used(&d, engine), before);
            CHECK_BYTES(d.out, first, sizeof first);
        }
        for (;; n_failed[2]++) {
            pimattn_call call = {.out = d.out, .q = d.q, .items = d.items, .n_items = 1};
            heap.fail_at = heap.n_calls + n_failed[2] + 1;
            memset(d.out, 0x55, sizeof first);
            pimattn_status status = pimattn_attend(engine, 0, &call, NULL);
            heap.fail_at = 0;
            if (status == PIMATTN_OK) break;
            CHECK_U(status, PIMATTN_ERR_MEMORY);
            CHECK_U(float_bits(d.out[0]), 0x55555555);
        }
        CHECK_BYTES(d.out, first, sizeof first);
        CHECK(n_failed[0] > 8 && n_failed[1] > 0 && n_failed[2] > 0);
        pimattn_engine_destroy(engine);
        CHECK(heap.n_live == 0 && heap.n_wrong == 0);
        device_case_free(&d);
    }
}

/* Host memory for all rows of a chunk is there before one is written, however small its pages. */
static void no_append_fails_half_way(void)
{
    enum { N = 600 };
    check_rng rng = {0xba1f};
    check_heap heap = {0};
    pimattn_config c = device_config("aimx", 16, 1, 1, 128, 128);
    attn_kv kv = kv_random(&c.shape, N, &rng);
    pimattn_seq seq;
    uint32_t n_failed = 0;
    c.partition = PIMATTN_HFP;
    c.allocator = heap_allocator(&heap);
    pimattn_engine *engine = engine_new(&c);
    CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
    for (;; n_failed++) {
        heap.fail_at = heap.n_calls + n_failed + 1;
        pimattn_status status = kv_append(engine, seq, 0, &kv, 0, N);
        heap.fail_at = 0;
        if (status == PIMATTN_OK) break;
        CHECK_U(status, PIMATTN_ERR_MEMORY);
        CHECK_U(pimattn_pages_used(engine), 0);
    }
    CHECK(n_failed > 2);
    pimattn_engine_destroy(engine);
    CHECK(heap.n_live == 0 && heap.n_wrong == 0);
    kv_free(&kv);
}

/* Of K there are more chunks than of V, or the other way: each keeps those it had. */
static void a_failed_reservation_leaves_as_many_chunks_of_each(void)
{
    for (uint32_t more_v = 0; more_v < 2; more_v++) {
        check_heap heap = {0};
        pimattn_config c = device_config("aimx", 1, 1, 1, more_v ? 16 : 128, more_v ? 128 : 16);
        pimattn_seq seq;
        pimattn_status status;
        uint32_t n_failed = 0;
        c.allocator = heap_allocator(&heap);
        pimattn_engine *engine = engine_new(&c);
        CHECK_U(pimattn_seq_create(engine, &seq), PIMATTN_OK);
        CHECK_U(pimattn_seq_reserve(engine, seq, 5000), PIMATTN_OK);
        CHECK_U(pimattn_pages_used(engine), 3);
        do {
            heap.fail_at = heap.n_calls + ++n_failed;
            status = pimattn_seq_reserve(engine, seq, 40000);
            heap.fail_at = 0;
            if (status == PIMATTN_OK) break;
            CHECK_U(status, PIMATTN_ERR_MEMORY);
            CHECK_U(pimattn_pages_used(engine), 3);
        } while (n_failed < 100);
        CHECK(n_failed > 3);
        CHECK_U(status, PIMATTN_OK);
        CHECK_U(pimattn_pages_used(engine), 10 + 2);
        pimattn_engine_destroy(engine);
        CHECK(heap.n_live == 0 && heap.n_wrong == 0);
    }
}

static void numbers_beyond_a_lane_are_named(void)
{
    check_rng rng = {0x655};
    pimattn_config c;
    device_case d = failing_case(&c, &rng);
    pimattn_engine *engine = engine_new(&c);
    if (!engine || !append_first(&d, engine)) return;
    uint64_t before = chunks_used(&d, engine);
    float first[64], *k = d.kv[1].k, *v = d.kv[1].v, was = k[5 * 32 + 16 + 3];
    memcpy(first, d.out, sizeof first);
    k[5 * 32 + 16 + 3] = 65520;
    CHECK_U(kv_append(engine, d.seq[1], 0, &d.kv[1], 0, 9), PIMATTN_ERR_RANGE);
    CHECK_HAS(pimattn_engine_cause(engine), "k of token 5 of this append, KV head 1, index 3");
    k[5 * 32 + 16 + 3] = was;
    v[7 * 32 + 2] = -1e30f;
    CHECK_U(kv_append(engine, d.seq[1], 0, &d.kv[1], 0, 9), PIMATTN_ERR_RANGE);
    CHECK_HAS(pimattn_engine_cause(engine), "v of token 7 of this append, KV head 0, index 2");
    d.q[16 + 9] = 70000;
    pimattn_call call = {.out = d.out, .q = d.q, .items = d.items, .n_items = 1};
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_ERR_RANGE);
    CHECK_HAS(pimattn_engine_cause(engine), "q of token 0 of this call, head 1, index 9");
    CHECK_BYTES(d.out, first, sizeof first);
    d.q[16 + 9] = (float)NAN; /* that is no matter of range: one head is NaN */
    CHECK_U(chunks_used(&d, engine), before);
    for (uint32_t i = 0; i < 64; i++)
        CHECK_U(float_bits(d.out[i]), i / 16 == 1 ? (uint32_t)NAN_BITS : float_bits(first[i]));
    pimattn_engine_destroy(engine);
    device_case_free(&d);
}

static void what_the_device_cannot_do_is_named(void)
{
    check_rng rng = {0xbad};
    pimattn_config c;
    pimhw_cause why = {""};
    pimattn_engine *engine = NULL;
    device_case d = failing_case(&c, &rng);
    c.v_mapping = PIMATTN_V_CHEAPEST;
    CHECK_U(pimattn_engine_create(&engine, &c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "v_mapping");
    c.v_mapping = PIMATTN_V_A;
    const uint32_t passes = c.device.epu_passes;
    c.device.epu_passes = 0; /* an instruction of nothing would leave softmax out */
    CHECK_U(pimattn_engine_create(&engine, &c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "epu_passes is 0");
    c.device.epu_passes = passes;
    c.way = 2;
    CHECK_U(pimattn_engine_create(&engine, &c, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "way is 2");
    c.way = PIMATTN_DEVICE;
    c.device.va2pa_entries = 3; /* K and V of two heads are four chunks */
    engine = engine_new(&c);
    if (!engine || !append_first(&d, engine)) return;
    pimattn_call call = {.out = d.out, .q = d.q, .items = d.items, .n_items = 1};
    CHECK_U(pimattn_attend(engine, 0, &call, NULL), PIMATTN_ERR_DEVICE);
    CHECK_HAS(pimattn_engine_cause(engine), "item 0: VA2PA holds 3 chunks");
    const pimhw_program *program;
    const pimhw_request *request;
    CHECK_U(pimattn_engine_program(engine, 0, d.items, 1, &program, &request), PIMATTN_ERR_DEVICE);
    pimattn_engine_destroy(engine);
    c.device.va2pa_entries = 4;
    c.v_mapping = PIMATTN_V_K; /* one block of dims: two queries of a token fit 8 entries, 10 not */
    c.shape.head_dim_v = 32;
    c.device.obuf = 4;
    engine = engine_new(&c);
    CHECK(engine && pimattn_engine_memory(engine));
    attn_kv kv = kv_random(&c.shape, 40, &rng);
    float q[5 * 4 * 16] = {1}, out[5 * 4 * 32];
    pimattn_item item = {0, 5};
    pimattn_call rows = {.out = out, .q = q, .items = &item, .n_items = 1};
    CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(engine, item.seq, 0, &kv, 0, 40), PIMATTN_OK);
    CHECK_U(pimattn_attend(engine, 0, &rows, NULL), PIMATTN_ERR_DEVICE);
    CHECK_HAS(pimattn_engine_cause(engine), "too few output entries for 10 queries");
    item.n_tokens = 1;
    CHECK_U(pimattn_attend(engine, 0, &rows, NULL), PIMATTN_OK);
    kv_free(&kv);
    pimattn_engine_destroy(engine);
    c.way = PIMATTN_HOST;
    engine = engine_new(&c);
    CHECK(engine && !pimattn_engine_memory(engine));
    pimattn_engine_destroy(engine);
    device_case_free(&d);
}

int main(void)
{
    RUN(one_program_gives_one_result_under_all_controllers);
    RUN(engines_of_all_controllers_agree);
    RUN(fragmented_chunks_change_nothing);
    RUN(chunks_in_any_order_change_nothing);
    RUN(one_program_serves_all_lengths);
    RUN(timed_is_executed);
    RUN(a_bit_changes_what_reads_it);
    RUN(swapped_chunks_change_the_result);
    RUN(recycled_chunks_full_of_nan_change_nothing);
    RUN(a_full_device_is_as_before);
    RUN(every_allocation_may_fail);
    RUN(no_append_fails_half_way);
    RUN(a_failed_reservation_leaves_as_many_chunks_of_each);
    RUN(numbers_beyond_a_lane_are_named);
    RUN(what_the_device_cannot_do_is_named);
    return check_end();
}
