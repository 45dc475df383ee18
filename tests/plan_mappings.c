/* [A5] [A15] [A16] [A9] Mappings of V, regions, program order, and the readings beside the clocks.
 *
 * One KV head of 128 dims on 16 channels of 16 banks: every channel does the same, so the clocks of
 * a phase are those of channel 0's instructions sent to a device of one channel. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { STREAM = 1 << 16, BLOCKS = 64, GAPS = PIMHW_IN_ORDER + 1 }; /* GAPS: controller static */

/* What a plan comes to: one phase of channel 0. */
typedef struct phase {
    bool is_v;              /* wanted: values, else scores */
    bool behind;            /* the softmax is done */
    size_t n;               /* instructions */
    uint64_t w, m, r, rows; /* columns, columns, results, changes of row */
    uint32_t row;
    uint64_t sums; /* elements the hub adds up */
    pimattn_plan plan;
} phase;

static pimhw_instruction stream[STREAM];
static uint64_t masks[STREAM];  /* before they became channel 0's */
static bool reuse_off;          /* of phases */
static uint32_t key_dims = 128; /* likewise */

static bool keep(void *user, const pimhw_instruction *in)
{
    phase *p = (phase *)user;
    if (in->kind == PIMHW_EPU_WAIT) p->behind = true;
    if (in->kind == PIMHW_EPU && p->behind) p->sums = in->op_size;
    if (in->kind == PIMHW_EPU || in->kind == PIMHW_EPU_WAIT || p->behind != p->is_v) return true;
    if (!(in->mask & 1)) return true;
    if (!CHECK(p->n < STREAM)) return false;
    if (in->kind == PIMHW_WR_GB) p->w += in->op_size;
    if (in->kind == PIMHW_RD_MAC) p->r++;
    if (in->kind == PIMHW_MAC_ABK) {
        p->rows += p->m == 0 || in->row != p->row;
        p->row = in->row;
        p->m += in->op_size;
    }
    masks[p->n] = in->mask;
    stream[p->n] = *in;
    stream[p->n++].mask = 1;
    return true;
}

static pimhw_config device_of(const char *preset, uint32_t controller)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, preset, NULL), PIMHW_OK);
    c.controller = controller;
    c.refresh = 0;
    c.epu_overlap = PIMHW_EPU_NONE; /* all scores, then all values */
    return c;
}

/* The phase of one KV head with so many query heads over so many tokens, into stream. */
static phase phase_of(const pimhw_config *c, bool is_v, uint32_t v_mapping, uint32_t queries,
                      uint64_t tokens)
{
    static pimhw_program program;
    static pimhw_block blocks[BLOCKS];
    static uint32_t order[BLOCKS], begin[PIMHW_MAX_CHANNELS + 1];
    pimattn_shape s = shape_of(1, queries, 1, key_dims, 128);
    pimattn_span span = {tokens, 1};
    pimhw_request request;
    pimhw_device *device;
    pimhw_cause why = {""};
    phase p;
    memset(&p, 0, sizeof p);
    p.is_v = is_v;
    CHECK_U(pimattn_plan_init(&p.plan, &s, c, PIMATTN_TCP, 0, reuse_off, queries, &why),
            PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p.plan, v_mapping, &why), PIMATTN_OK);
    CHECK_U(pimattn_plan_lower(&p.plan, &program, &why), PIMATTN_OK);
    CHECK_U(pimattn_plan_request(&p.plan, &request, blocks, order, begin, &span, 1, &why),
            PIMATTN_OK);
    CHECK_U(pimhw_device_create(&device, c, &why), PIMHW_OK);
    CHECK_U(pimhw_device_resolve(device, &program, &request, keep, &p, &why), PIMHW_OK);
    pimhw_device_destroy(device);
    if (why.text[0]) printf("  %s\n", why.text);
    return p;
}

static uint64_t clocks_of(const pimhw_config *c, const phase *p)
{
    pimhw_config one = *c;
    pimhw_device *device;
    pimhw_readings r = {0};
    one.n_channels = 1;
    CHECK_U(pimhw_device_create(&device, &one, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_begin(device, NULL), PIMHW_OK);
    for (size_t i = 0; i < p->n; i++)
        CHECK_U(pimhw_device_submit(device, &stream[i], NULL), PIMHW_OK);
    CHECK_U(pimhw_device_finish(device, &r, NULL), PIMHW_OK);
    CHECK_U(r.commands[PIMHW_CMD_MAC16], p->m);
    pimhw_device_destroy(device);
    return r.cycles;
}

/* --------------------------------------------------------------------------
 * Layouts
 * -------------------------------------------------------------------------- */

/* W T/32, T/256, T/256; M T/32; R 1, 8 a row of tokens, 8; rows T/2048, 8 T/16384, T/2048. */
static void one_query_moves_what_the_table_says(void)
{
    enum { T = 65536 };
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    const uint32_t obuf[3] = {8, 7, 8}; /* B: one too few to keep all sums */
    const uint64_t w[3] = {T / 32, T / 256, T / 256}, r[3] = {1, 8 * T / 16384, 8};
    const uint64_t rows[3] = {T / 2048, 8 * T / 16384, T / 2048};
    for (uint32_t v = 0; v < 3; v++) {
        c.obuf = obuf[v];
        phase p = phase_of(&c, true, v, 1, T);
        CHECK_U(p.plan.v_mapping, v);
        CHECK_U(p.w, w[v]);
        CHECK_U(p.m, T / 32);
        CHECK_U(p.r, r[v]);
        CHECK_U(p.rows, rows[v]);
        CHECK_U(pimattn_plan_chunks(&p.plan, T), 2 * T / 4096); /* of 2 rows, of K and of V */
        /* one sum a channel, but B reads once a row of tokens: 4 of them */
        CHECK_U(p.sums, 128 * (v == PIMATTN_V_A ? 2 : v == PIMATTN_V_B ? 16 * 4 : 16));
    }
}

/* W g T/32, g T/32, g T/256; M g T/32; K: R 8 g in all, from 8 g entries. */
static void a_group_of_queries_moves_what_the_table_says(void)
{
    enum { T = 65536, G = 8 };
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    const uint64_t w[3] = {G * T / 32, G * T / 32, G * T / 256};
    const uint64_t r[3] = {G, 8 * G * T / 16384, 8 * G};
    const uint64_t rows[3] = {T / 2048, 8 * T / 16384, T / 2048};
    for (uint32_t v = 0; v < 3; v++) {
        c.obuf = v == PIMATTN_V_K ? 8 * G : G;
        phase p = phase_of(&c, true, v, G, T);
        CHECK_U(p.plan.v_mapping, v);
        CHECK_U(p.w, w[v]);
        CHECK_U(p.m, G * T / 32);
        CHECK_U(p.r, r[v]);
        CHECK_U(p.rows, rows[v]);
    }
}

/* What fits the buffer is sent once, else once a row: 32 rows of 8 tokens, 8 tiles a query. */
static void queries_are_sent_no_oftener_than_they_must(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimhw_config c = device_of("aimx", controller);
        uint32_t most = controller == PIMHW_PING_PONG ? 4 : 8;
        for (uint32_t queries = 1; queries <= 12; queries++) {
            phase p = phase_of(&c, false, PIMATTN_V_A, queries, 65536);
            CHECK_U(p.w, (queries <= most ? 1 : 32) * queries * 8);
            CHECK_U(p.m, 32 * 8 * 8 * queries);
            CHECK_U(p.r, 32 * 8 * queries);
            CHECK_U(p.rows, 32);
            reuse_off = true; /* all rows for a block, then the next block */
            p = phase_of(&c, false, PIMATTN_V_A, queries, 65536);
            reuse_off = false;
            CHECK_U(p.w, queries * 8);
            CHECK_U(p.m, 32 * 8 * 8 * queries);
            CHECK_U(p.rows, 32 * ((queries + most - 1) / most));
        }
    }
}

/* So if a key takes 3 rows of 8 columns, or a buffer of 16 holds less than one: 256 keys. A set of
 * queries with an entry each meets a row before the next one opens. */
static void keys_of_several_rows_are_met_by_sets_of_queries(void)
{
    static const uint32_t entries[4] = {2, 2, 1, 8};
    key_dims = 19 * 16;
    for (uint32_t i = 0; i < 4 * 2 * 2; i++)
        for (uint32_t queries = 1; queries <= 11; queries++) {
            pimhw_config c = device_of("aimx", i % 4);
            const uint32_t set = entries[i % 4], inputs = i / 4 % 2 ? 64 : 16;
            uint32_t most = (c.controller == PIMHW_PING_PONG ? inputs / 2 : inputs) / 19;
            c.row_bytes = 8 * 32;
            c.in_entries = inputs;
            c.out_clear = i / 8;
            phase p = phase_of(&c, false, PIMATTN_V_A, queries, 65536);
            CHECK_U(p.w, (queries <= most ? 1 : 256) * queries * 19);
            CHECK_U(p.m, 256 * queries * 19);
            CHECK_U(p.r, 256 * queries);
            CHECK_U(p.rows, 256 * 3 * ((queries + set - 1) / set));
            CHECK_U(p.plan.k_out_queries, queries < set ? queries : set);
            CHECK(p.plan.used_out >= p.plan.k_out_queries && p.plan.wanted_out >= queries);
            reuse_off = true; /* all keys for a block of queries that fit */
            p = phase_of(&c, false, PIMATTN_V_A, queries, 65536);
            reuse_off = false;
            if (queries > most && most > set) most -= most % set; /* whole sets */
            uint64_t n_sets = most ? queries / most * ((most + set - 1) / set) : queries;
            if (most) n_sets += (queries % most + set - 1) / set;
            CHECK_U(p.w, (most ? 1 : 256) * queries * 19);
            CHECK_U(p.m, 256 * queries * 19);
            CHECK_U(p.rows, 256 * 3 * n_sets);
        }
    key_dims = 128;
}

/* The longest keys, most entries, more queries still: a step of a set's columns is below 2^32. */
static void the_largest_sets_can_be_lowered(void)
{
    static pimhw_program program;
    pimhw_config c = device_of("aimx", PIMHW_IN_ORDER);
    pimattn_shape s = shape_of(1, 2, 1, 65536, 16);
    pimattn_plan plan;
    c.column_bytes = 2, c.row_bytes = 64, c.out_entries = 65536;
    CHECK_U(pimattn_plan_init(&plan, &s, &c, PIMATTN_TCP, 0, false, 65538, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_lower(&plan, &program, NULL), PIMATTN_OK);
}

/* A row of K holds 8 blocks of 8 columns: 8 tokens more than fit take a second row. */
static void rows_of_a_mapping_are_what_its_tokens_need(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    static const uint64_t tokens[] = {1, 256, 257, 2048, 2049, 16384, 16385};
    static const uint64_t rows[3][7] = {
        {1, 1, 1, 1, 2, 8, 9}, {8, 8, 8, 8, 8, 8, 16}, {1, 1, 1, 1, 2, 8, 9}};
    for (uint32_t v = 0; v < 3; v++)
        for (size_t i = 0; i < COUNT(tokens); i++)
            CHECK_U(phase_of(&c, true, v, 1, tokens[i]).rows, rows[v][i]);
}

/* Mapping K takes A where it has too few entries for all queries, or more blocks than columns. */
static void k_says_when_it_does_not_fit(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    pimattn_plan p;
    pimattn_shape s = shape_of(1, 4, 1, 128, 0);
    c.obuf = 32;
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, 4, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_K, NULL), PIMATTN_OK);
    CHECK_U(p.v_mapping, PIMATTN_V_K);
    CHECK_U(p.used_out, 32);
    CHECK_U(p.wanted_out, 32);
    c.obuf = 31;
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, 4, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_K, NULL), PIMATTN_OK);
    CHECK_U(p.v_mapping, PIMATTN_V_A);
    CHECK_U(p.v_wanted, PIMATTN_V_K);
    CHECK_U(p.wanted_out, 32);
    CHECK(p.used_out < p.wanted_out);
    /* query by query it needs fewer */
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, true, 4, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_K, NULL), PIMATTN_OK);
    CHECK_U(p.v_mapping, PIMATTN_V_K);
    CHECK_U(p.used_out, 24);
    s.head_dim_v = 64 * 16;
    c.obuf = 4096;
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, 4, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_K, NULL), PIMATTN_OK);
    CHECK_U(p.v_mapping, PIMATTN_V_K);
    s.head_dim_v = 64 * 16 + 1;
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, 4, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_K, NULL), PIMATTN_OK);
    CHECK_U(p.v_mapping, PIMATTN_V_A);
    CHECK_U(p.v_wanted, PIMATTN_V_K);
}

/* Keys and values lie as mapping K wants; a step of more queries than it has entries for cannot. */
static void k_in_banks_has_queries_it_can_do(void)
{
    pimattn_config c;
    pimattn_seq seq;
    float rows[2 * 128], q[2 * 4 * 128], out[2 * 4 * 128];
    const pimattn_shape s = shape_of(1, 4, 1, 128, 0);
    memset(rows, 0, sizeof rows);
    memset(q, 0, sizeof q);
    c = config_of(&s);
    c.device = device_of("aimx", PIMHW_DCS);
    c.device.obuf = 32; /* of 4 queries and 8 blocks of dims */
    c.way = PIMATTN_DEVICE;
    c.v_mapping = PIMATTN_V_K;
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_append(e, seq, 0, rows, rows, 2, 0, 0), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
    const pimattn_item item = {seq, 2};
    const pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1};
    CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_DEVICE);
    CHECK_HAS(pimattn_engine_cause(e), "v_mapping K has too few output entries for 8 queries");
    pimattn_engine_destroy(e);
}

/* Sums of all passes over the tokens stay in entries, if there are enough: 8 blocks of dims on one
 * channel are 8 passes. */
static void a_plan_says_what_entries_it_would_use(void)
{
    static const uint32_t channels[] = {1, 3, 16};
    pimattn_shape s = shape_of(1, 4, 1, 128, 0);
    for (uint32_t v = PIMATTN_V_A; v <= PIMATTN_V_K; v++)
        for (size_t i = 0; i < COUNT(channels); i++)
            for (uint32_t queries = 1; queries <= 16; queries += 3) {
                pimhw_config c = device_of("aimx", PIMHW_IN_ORDER);
                pimattn_plan p, with;
                c.n_channels = channels[i];
                CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, queries, NULL), 0);
                CHECK_U(pimattn_plan_map_v(&p, v, NULL), PIMATTN_OK);
                c.out_entries = 65536;
                CHECK_U(pimattn_plan_init(&with, &s, &c, PIMATTN_TCP, 0, false, queries, NULL), 0);
                CHECK_U(pimattn_plan_map_v(&with, v, NULL), PIMATTN_OK);
                CHECK(p.used_out <= 2 && p.used_out <= p.wanted_out);
                CHECK_U(with.used_out, p.wanted_out);
                CHECK_U(with.wanted_out, p.wanted_out);
            }
}

static pimattn_plan plan_of(const pimhw_config *c, uint32_t head_dim, uint32_t v, bool off,
                            uint32_t queries)
{
    pimattn_shape s = shape_of(1, queries, 1, head_dim, 128);
    pimattn_plan p;
    CHECK_U(pimattn_plan_init(&p, &s, c, PIMATTN_TCP, 0, off, queries, NULL), PIMATTN_OK);
    CHECK_U(pimattn_plan_map_v(&p, v, NULL), PIMATTN_OK);
    return p;
}

/* A buffer of 64 columns holds a key of 64, 8 queries of 8, and one column of 64 probabilities. */
static void what_just_fits_is_planned(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    c.obuf = 6;
    CHECK(plan_of(&c, 1024, PIMATTN_V_A, false, 1).k_resident);
    CHECK(!plan_of(&c, 1025, PIMATTN_V_A, false, 1).k_resident);
    CHECK_U(plan_of(&c, 16, PIMATTN_V_A, false, 64).k_queries, 64);
    CHECK_U(plan_of(&c, 16, PIMATTN_V_A, false, 65).k_queries, 60); /* 10 sets of 6 entries */
    c.obuf = 4096;
    CHECK_U(plan_of(&c, 128, PIMATTN_V_K, false, 64).v_mapping, PIMATTN_V_K);
    CHECK_U(plan_of(&c, 128, PIMATTN_V_K, false, 65).v_mapping, PIMATTN_V_A);
    /* without reuse a block of queries is all there is: 8 queries, of 8 passes or blocks */
    CHECK_U(plan_of(&c, 128, PIMATTN_V_K, true, 16).wanted_out, 8 * 8);
    CHECK_U(plan_of(&c, 128, PIMATTN_V_B, true, 16).wanted_out, 8 * 8);
    CHECK_U(plan_of(&c, 128, PIMATTN_V_A, true, 16).wanted_out, 8);
}

/* Softmax of all heads but the last hides behind scores of the next, or these behind it. */
static void softmax_hides_behind_the_next_head(void)
{
    for (uint32_t controller = 0; controller < 4; controller++)
        for (uint32_t n_kv_heads = 1; n_kv_heads <= 8; n_kv_heads += 7) {
            pimattn_shape s = shape_of(1, 4 * n_kv_heads, n_kv_heads, 128, 0);
            pimattn_config c = config_of(&s);
            pimattn_span span = {4096, 1};
            pimattn_readings alone, beside;
            c.device = device_of("aimx", controller);
            CHECK_U(pimattn_estimate(&alone, &c, &span, 1, NULL), PIMATTN_OK);
            c.device.epu_overlap = PIMHW_EPU_HEADS;
            CHECK_U(pimattn_estimate(&beside, &c, &span, 1, NULL), PIMATTN_OK);
            const uint64_t one = alone.device.breakdown_ck[PIMHW_WAIT_EPU] / n_kv_heads;
            CHECK(one > 0 && alone.device.cycles >= beside.device.cycles);
            CHECK(n_kv_heads == 1 || alone.device.cycles - beside.device.cycles > 4 * one);
        }
}

/* 44 channels are 5 groups of 8 for blocks of 16 dims: the last 4 have no values. */
static void channels_beyond_the_groups_have_no_values(void)
{
    pimhw_config c = device_of("aimx", PIMHW_IN_ORDER);
    c.n_channels = 44;
    phase p = phase_of(&c, true, PIMATTN_V_A, 1, 5000);
    CHECK(p.n > 0);
    for (size_t i = 0; i < p.n; i++)
        CHECK_U(masks[i] >> 40, 0);
}

static void wrong_mappings_are_a_status(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    pimhw_cause why = {""};
    pimattn_plan p, before;
    pimattn_shape s = shape_of(1, 1, 1, 128, 0);
    pimattn_config config = config_of(&s);
    CHECK_U(pimattn_plan_init(&p, &s, &c, PIMATTN_TCP, 0, false, 1, NULL), PIMATTN_OK);
    before = p;
    CHECK_U(pimattn_plan_map_v(&p, PIMATTN_V_CHEAPEST, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "v_mapping");
    CHECK_BYTES(&p, &before, sizeof p);
    CHECK_U(pimattn_plan_map_v(NULL, PIMATTN_V_A, NULL), PIMATTN_ERR_ARGUMENT);
    config.v_mapping = 4;
    CHECK_U(pimattn_config_check(&config, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "v_mapping is 4");
    CHECK_STR(pimattn_v_mapping_str(PIMATTN_V_K), "K");
    CHECK(pimattn_v_mapping_str(4) == NULL);
}

/* Llama-3-8B's layer: a channel of its own per head leaves no channels to spread dims over. */
static void one_channel_makes_a_and_b_the_same(void)
{
    pimattn_shape s = shape_of(1, 32, 8, 128, 0);
    pimattn_config config = config_of(&s);
    pimattn_span span = {700, 1};
    pimattn_readings r[2];
    config.device = device_of("aimx", PIMHW_DCS);
    config.partition = PIMATTN_HFP;
    for (uint32_t v = 0; v < 2; v++) {
        config.v_mapping = v;
        CHECK_U(pimattn_estimate(&r[v], &config, &span, 1, NULL), PIMATTN_OK);
    }
    CHECK_U(r[0].device.cycles, r[1].device.cycles);
    CHECK_BYTES(r[0].device.commands, r[1].device.commands, sizeof r[0].device.commands);
}

/* --------------------------------------------------------------------------
 * Clocks
 * -------------------------------------------------------------------------- */

/* Mapping A, B, K by tokens 32, 4096, 16384, 65536 and one query, without refresh. */
static void one_query_takes_the_golden_clocks(void)
{
    static const uint64_t tokens[4] = {32, 4096, 16384, 65536};
    static const uint64_t dcs[3][4] = {
        {137, 489, 1845, 7269}, {837, 1077, 1845, 7269}, {151, 489, 1845, 7269}};
    static const uint64_t fixed[3][4] = {
        {177, 850, 3376, 13480}, {1360, 1630, 2494, 10072}, {205, 573, 2427, 9843}};
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    for (uint32_t v = 0; v < 3; v++)
        for (int i = 0; i < 4; i++) {
            phase p = phase_of(&c, true, v, 1, tokens[i]);
            CHECK_U(clocks_of(&c, &p), dcs[v][i]);
        }
    c.controller = GAPS;
    c.out_entries = 8;
    for (uint32_t v = 0; v < 3; v++)
        for (int i = 0; i < 4; i++) {
            c.out_entries = v == PIMATTN_V_K ? 8 : 2;
            phase p = phase_of(&c, true, v, 1, tokens[i]);
            /* the golden stream of K sends the inputs of the first two rows together */
            uint64_t later = v == PIMATTN_V_K && i > 0 ? 41 + 40 + 14 - 16 - 12 : 0;
            CHECK_U(clocks_of(&c, &p), fixed[v][i] + later);
        }
}

/* 8 queries, 65,536 tokens: all mappings are at the banks' rate under DCS. */
static void eight_queries_take_the_golden_clocks(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    for (uint32_t v = 0; v < 3; v++) {
        c.obuf = v == PIMATTN_V_K ? 64 : 8;
        phase p = phase_of(&c, true, v, 8, 65536);
        CHECK_U(p.plan.v_mapping, v);
        CHECK_U(clocks_of(&c, &p), 35941);
    }
}

/* Scores, rows of 8 tokens: what each more takes. 8 entries of 8 MACs and a row change: 226. */
static void a_row_of_keys_takes_the_golden_clocks(void)
{
    static const struct {
        uint32_t controller;
        uint32_t out_entries;
        uint64_t row_ck;
    } cases[] = {
        {GAPS, 2, 848}, {PIMHW_PING_PONG, 2, 499}, {PIMHW_PING_PONG, 8, 265}, {PIMHW_DCS, 2, 226}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        pimhw_config c = device_of("aimx", cases[i].controller);
        c.out_entries = cases[i].out_entries;
        uint64_t ck[2];
        for (uint64_t rows = 0; rows < 2; rows++) {
            phase p = phase_of(&c, false, PIMATTN_V_A, 1, 2048 * (9 + rows));
            ck[rows] = clocks_of(&c, &p);
        }
        CHECK_U(ck[1] - ck[0], cases[i].row_ck);
    }
}

/* DCS, 16 queries of 8 tiles, 8 entries: two blocks overwrite one another's tiles in every row,
 * and still the banks never wait but for rows (98 clocks each). Values: the same in strips. */
static void inputs_go_out_before_reads(void)
{
    pimhw_config c = device_of("aimx", PIMHW_DCS);
    phase k = phase_of(&c, false, PIMATTN_V_A, 16, 65536);
    CHECK_U(k.m, 32 * 8 * 16 * 8);
    CHECK(clocks_of(&c, &k) < 2 * k.m + 32 * 98 + 100);
    phase v = phase_of(&c, true, PIMATTN_V_A, 16, 65536);
    CHECK_U(v.m, 32 * 64 * 16);
    CHECK(clocks_of(&c, &v) < 2 * v.m + 32 * 98 + 100);
}

/* DCS with sums that begin with a bias: that waits for the read of its entry, 40 clocks, where the
 * MACs of a sum take 16. Read a set at a time, or a row of one query, sums cost what they do where
 * reads clear, to 1 in 20. */
static void biases_do_not_wait_for_reads_one_by_one(void)
{
    for (uint32_t queries = 1; queries <= 4; queries++)
        for (uint64_t tokens = 16384; tokens <= 32768; tokens += 4097) {
            pimhw_config c = device_of("cent", PIMHW_DCS);
            phase k = phase_of(&c, false, PIMATTN_V_A, queries, tokens);
            uint64_t with_bias = clocks_of(&c, &k);
            c.out_clear = PIMHW_CLEAR_READ;
            k = phase_of(&c, false, PIMATTN_V_A, queries, tokens);
            if (!CHECK(20 * with_bias < 21 * clocks_of(&c, &k)))
                printf("  %u queries: %llu clocks\n", queries, (unsigned long long)with_bias);
        }
}

/* --------------------------------------------------------------------------
 * Regions and order
 * -------------------------------------------------------------------------- */

static void ping_pong_plans_in_regions(void)
{
    pimhw_config c = device_of("aimx", PIMHW_PING_PONG);
    CHECK_U(phase_of(&c, false, PIMATTN_V_A, 8, 100).plan.k_queries, 4);
    c.out_entries = 9;
    pimattn_plan p = phase_of(&c, true, PIMATTN_V_A, 8, 100).plan;
    CHECK_U(p.inputs, 32);
    CHECK_U(p.sums, 4);
    CHECK_U(p.v_queries, 4);
    CHECK_U(p.v_strip, 8);
    c.extra_region = 1;
    p = phase_of(&c, true, PIMATTN_V_A, 8, 100).plan;
    CHECK_U(p.inputs, 64);
    CHECK_U(p.k_queries, 8);
    c.in_entries = c.out_entries = 2;
    c.extra_region = 0;
    p = phase_of(&c, true, PIMATTN_V_A, 1, 100).plan;
    CHECK_U(p.inputs, 1);
    CHECK_U(p.sums, 1);
    c = device_of("aimx", PIMHW_DCS);
    p = phase_of(&c, true, PIMATTN_V_A, 8, 100).plan;
    CHECK_U(p.inputs, 64);
    CHECK_U(p.sums, 8);
    /* strips of a row are as long as each other: of 64 columns not 48 and 16 */
    c = device_of("aimx", PIMHW_PING_PONG);
    c.in_entries = 96;
    CHECK_U(phase_of(&c, true, PIMATTN_V_A, 1, 100).plan.v_strip, 32);
    for (uint32_t controller = 0; controller < 4; controller++) { /* else as many as fit [spec] */
        c = device_of("aimx", controller);
        c.in_entries = controller == PIMHW_PING_PONG ? 128 : 64;
        c.out_entries = c.obuf = 16;
        p = phase_of(&c, true, PIMATTN_V_A, 3, 100).plan;
        CHECK_U(p.v_queries, 3);
        CHECK_U(p.v_strip, controller < PIMHW_PING_PONG ? 21 : 16);
    }
}

/* A score is read right behind its MACs; only DCS uses all entries in turn. */
static void scores_take_turns_on_the_entries(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimhw_config c = device_of("aimx", controller);
        c.out_entries = 6;
        c.obuf = 5;
        phase p = phase_of(&c, false, PIMATTN_V_A, 1, 2048);
        uint32_t n_outs = controller == PIMHW_DCS ? 5 : 1;
        uint32_t n_macs = 0;
        for (size_t i = 0; i < p.n; i++) {
            if (stream[i].kind == PIMHW_MAC_ABK) CHECK_U(stream[i].out, n_macs++ % n_outs);
            if (n_outs == 1 && i > 1) CHECK(stream[i].kind != stream[i - 1].kind);
        }
        CHECK_U(n_macs, 8);
        CHECK_U(p.r, 8);
    }
}

/* The same MACs, inputs and results under every controller with the same entries. */
static void order_changes_no_count(void)
{
    for (uint32_t v = 0; v < 3; v++)
        for (uint32_t queries = 1; queries <= 9; queries += 4) {
            phase first = {0};
            for (uint32_t controller = 0; controller < 4; controller++) {
                pimhw_config c = device_of("aimx", controller);
                c.extra_region = 1;
                c.out_entries = controller == PIMHW_PING_PONG ? 16 : 8;
                phase p = phase_of(&c, true, v, queries, 5000);
                if (controller == 0) first = p;
                CHECK_U(p.m, first.m);
                CHECK_U(p.w, first.w);
                CHECK_U(p.r, first.r);
                CHECK_U(p.sums, first.sums);
            }
        }
}

/* --------------------------------------------------------------------------
 * The cheapest
 * -------------------------------------------------------------------------- */

static void the_cheapest_is_the_least_of_all(void)
{
    check_rng rng = {11};
    unsigned n_taken[3] = {0};
    for (int i = 0; i < 150; i++) {
        uint32_t n_kv_heads = (uint32_t)rng_range(&rng, 1, 2);
        pimattn_shape s = shape_of(1, n_kv_heads * (uint32_t)rng_range(&rng, 1, 4), n_kv_heads,
                                   (uint32_t)rng_range(&rng, 1, 200), 0);
        pimattn_config c = config_of(&s);
        pimattn_span span = {rng_range(&rng, 2, rng_range(&rng, 0, 1) ? 300 : 30000), 1};
        pimattn_readings least, r;
        uint64_t best = UINT64_MAX;
        c.device = device_of(pimhw_preset_name((uint32_t)rng_range(&rng, 0, 13)),
                             (uint32_t)rng_range(&rng, 0, 3));
        const bool halves = c.device.controller == PIMHW_PING_PONG;
        c.device.out_entries = (uint32_t)rng_range(&rng, 1u + halves, 64);
        c.device.epu_ck_per_op = (uint32_t)rng_range(&rng, 0, 1);
        c.device.n_channels = (uint32_t)rng_range(&rng, 1, 16);
        c.partition = (uint32_t)rng_range(&rng, 0, 1);
        c.v_mapping = PIMATTN_V_CHEAPEST;
        if (!CHECK_U(pimattn_estimate(&least, &c, &span, 1, NULL), PIMATTN_OK)) return;
        CHECK_U(least.v_wanted, PIMATTN_V_CHEAPEST);
        for (c.v_mapping = 0; c.v_mapping < PIMATTN_V_CHEAPEST; c.v_mapping++) {
            CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
            if (r.device.cycles < best) best = r.device.cycles;
            if (c.v_mapping == least.v_mapping) CHECK_U(r.device.cycles, least.device.cycles);
            if (r.device.cycles == least.device.cycles) /* then energy decides */
                CHECK(r.device.total_pJ >= least.device.total_pJ);
        }
        CHECK_U(least.device.cycles, best);
        n_taken[least.v_mapping]++;
    }
    for (int v = 0; v < 3; v++)
        CHECK(n_taken[v] > 3);
}

/* One block of dims on one channel lies the same by A and K, but K keeps the sums of all queries
 * where A takes the blocks of queries of the K phase one after the other. */
static void the_cheapest_knows_programs_that_differ_in_queries(void)
{
    pimattn_shape s = shape_of(1, 26, 2, 267, 11);
    pimattn_config c = config_of(&s);
    pimattn_span span = {66, 2};
    pimattn_readings least, k;
    c.device = device_of("neupims", PIMHW_IN_ORDER);
    c.device.n_channels = 1;
    c.device.out_entries = 80;
    c.v_mapping = PIMATTN_V_K;
    CHECK_U(pimattn_estimate(&k, &c, &span, 1, NULL), PIMATTN_OK);
    CHECK_U(k.v_mapping, PIMATTN_V_K);
    c.v_mapping = PIMATTN_V_CHEAPEST;
    CHECK_U(pimattn_estimate(&least, &c, &span, 1, NULL), PIMATTN_OK);
    CHECK(least.device.cycles <= k.device.cycles);
}

/* With refresh short layers are timed in one go: of the mapping taken, too. */
static void a_step_of_the_cheapest_is_that_of_its_mapping(void)
{
    check_rng rng = {12};
    unsigned n_taken[3] = {0};
    for (int i = 0; i < 60; i++) {
        pimattn_shape s =
            shape_of(3, (uint32_t)rng_range(&rng, 1, 4), 1, (uint32_t)rng_range(&rng, 1, 200), 0);
        pimattn_config c = config_of(&s);
        pimattn_span span = {rng_range(&rng, 2, 3000), 1};
        pimattn_readings least, r;
        c.device = device_of("aimx", (uint32_t)rng_range(&rng, 0, 3));
        c.device.refresh = 1;
        c.device.out_entries = (uint32_t)rng_range(&rng, 2, 64);
        c.device.epu_ck_per_op = (uint32_t)rng_range(&rng, 0, 1);
        c.device.n_channels = (uint32_t)rng_range(&rng, 1, 16);
        c.v_mapping = PIMATTN_V_CHEAPEST;
        if (!CHECK_U(pimattn_estimate(&least, &c, &span, 1, NULL), PIMATTN_OK)) return;
        c.v_mapping = least.v_mapping;
        CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(least.layers_timed, r.layers_timed);
        CHECK_U(least.step_ck, r.step_ck);
        CHECK(least.step_pJ == r.step_pJ);
        n_taken[least.v_mapping]++;
    }
    CHECK(n_taken[0] && n_taken[1] && n_taken[2]);
}

/* The program that is exported is the one that was timed and taken, from the memo or not. */
static void the_cheapest_program_is_there_to_export(void)
{
    static const uint64_t tokens[2] = {20, 9000};
    check_rng rng = {4};
    pimattn_shape s = shape_of(1, 1, 1, 128, 0);
    pimattn_config c = config_of(&s);
    c.device = device_of("aimx", GAPS);
    c.device.out_entries = 8;
    c.v_mapping = PIMATTN_V_CHEAPEST;
    attn_kv kv = kv_random(&s, tokens[1], &rng);
    pimattn_engine *engine = engine_new(&c);
    float q[128] = {1}, out[128];
    uint32_t taken[2];
    for (int i = 0; i < 2; i++) {
        pimattn_item item = {0, 1};
        pimattn_readings r;
        const pimhw_program *program;
        const pimhw_request *request;
        pimhw_device *device;
        pimhw_readings again;
        CHECK_U(pimattn_seq_create(engine, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(engine, item.seq, 0, &kv, 0, tokens[i]), PIMATTN_OK);
        for (int memo = 0; memo < 2; memo++) {
            CHECK_U(pimattn_attend_one(engine, item.seq, 0, out, q, &r), PIMATTN_OK);
            CHECK_U(r.remembered, memo);
            CHECK_U(pimattn_engine_program(engine, 0, &item, 1, &program, &request), PIMATTN_OK);
            CHECK_U(pimhw_device_create(&device, &c.device, NULL), PIMHW_OK);
            CHECK_U(pimhw_device_time(device, &again, program, request, NULL, NULL), PIMHW_OK);
            CHECK_U(again.cycles, r.device.cycles);
            CHECK_BYTES(again.commands, r.device.commands, sizeof again.commands);
            pimhw_device_destroy(device);
        }
        taken[i] = r.v_mapping;
    }
    CHECK(taken[0] != taken[1]);
    pimattn_engine_destroy(engine);
    kv_free(&kv);
}

/* --------------------------------------------------------------------------
 * Readings
 * -------------------------------------------------------------------------- */

/* Llama-3-8B's heads, or one KV head of them. */
static pimattn_readings llama_heads(uint32_t controller, uint32_t refresh, uint32_t n_layers,
                                    uint64_t tokens, uint32_t n_kv_heads)
{
    pimattn_shape s = shape_of(n_layers, 4 * n_kv_heads, n_kv_heads, 128, 0);
    pimattn_config c = config_of(&s);
    pimattn_span span = {tokens, 1};
    pimattn_readings r;
    memset(&r, 0, sizeof r);
    c.device = device_of("aimx", controller);
    c.device.refresh = refresh;
    CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
    CHECK_U(r.controller, controller);
    return r;
}

static pimattn_readings llama(uint32_t controller, uint32_t refresh, uint32_t n_layers,
                              uint64_t tokens)
{
    return llama_heads(controller, refresh, n_layers, tokens, 8);
}

static void energy_parts_sum_to_the_whole(void)
{
    for (uint32_t i = 0; i < 16; i++) {
        pimattn_readings r = llama(i % 4, i / 4 % 2, 3, i / 8 ? 9000 : 200);
        double sum = 0;
        for (int e = 0; e < PIMHW_N_ENERGY; e++) {
            CHECK(r.energy_pJ[e] >= 0);
            sum += r.energy_pJ[e];
        }
        CHECK_NEAR(sum, r.step_pJ, 0);
        CHECK_NEAR(r.layer_pJ, r.step_pJ / 3, 1e-9 * r.step_pJ);
        CHECK_NEAR(r.token_pJ, r.step_pJ, 0);
        CHECK_NEAR(r.average_mW * r.step_us, r.step_pJ * 1e-3, 1e-9 * r.step_pJ);
        CHECK_NEAR(r.step_us, (double)r.step_ck * 0.0005, 1e-9 * r.step_us);
        CHECK_NEAR(r.layer_ns, r.step_us / 3 * 1e3, 1e-6);
        CHECK(r.energy_pJ[PIMHW_ENERGY_MAC] > 0 && r.energy_pJ[PIMHW_ENERGY_ROW] > 0);
    }
}

/* Two queries of one sequence, one of another: 3 tokens that share the energy. */
static void energy_is_shared_by_the_query_tokens(void)
{
    pimattn_shape s = shape_of(2, 4, 2, 64, 0);
    pimattn_config c = config_of(&s);
    pimattn_span spans[2] = {{100, 2}, {70, 1}};
    pimattn_readings r;
    CHECK_U(pimattn_estimate(&r, &c, spans, 2, NULL), PIMATTN_OK);
    CHECK_NEAR(r.token_pJ, r.step_pJ / 3, 1e-9 * r.step_pJ);
}

static void a_step_without_refresh_is_its_layers(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimattn_readings r = llama(controller, 0, 32, 500);
        CHECK_U(r.layers_timed, 1);
        CHECK_U(r.step_ck, 32 * r.device.cycles);
        CHECK_NEAR(r.step_pJ, 32 * r.device.total_pJ, 1e-9 * r.step_pJ);
        CHECK_NEAR(r.refresh_share, 0, 0);
        CHECK_NEAR(r.energy_pJ[PIMHW_ENERGY_REFRESH], 0, 0);
    }
}

/* 100 tokens of a head meet no refresh in one layer, but in 32: some 210 of every 3800 clocks. */
static void a_short_step_with_refresh_is_timed_at_once(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimattn_readings r = llama_heads(controller, 1, 32, 100, 1);
        if (!CHECK(r.device.cycles < 3800)) continue;
        CHECK_U(r.device.commands[PIMHW_CMD_REF], 0);
        CHECK_U(r.layers_timed, 32);
        CHECK(r.step_ck > 31 * r.device.cycles && r.step_ck < 37 * r.device.cycles);
        CHECK(r.refresh_share > 0.04 && r.refresh_share < 0.07);
        CHECK(r.energy_pJ[PIMHW_ENERGY_REFRESH] > 0);
        pimattn_readings one = llama_heads(controller, 1, 1, 100, 1);
        CHECK_U(one.layers_timed, 1);
        CHECK_U(one.step_ck, one.device.cycles);
    }
}

/* In banks all tokens are read, whatever a layer's window hides, in the lanes that banks have. */
static void the_device_way_times_all_tokens_in_its_lanes(void)
{
    static const uint64_t windows[2] = {5, 70};
    const pimattn_span span = {3000, 1};
    pimattn_readings all, r;
    pimattn_shape s = shape_of(2, 8, 2, 128, 0);
    pimattn_config c = config_of(&s);
    c.way = PIMATTN_DEVICE;
    CHECK_U(pimattn_estimate(&all, &c, &span, 1, NULL), PIMATTN_OK);
    for (int i = 0; i < 3; i++) {
        c.shape = s;
        if (i == 0) c.shape.windows = windows;
        if (i == 1) c.shape.window = 5;
        if (i == 2) c.shape.k_type = c.shape.v_type = PIMATTN_INT8;
        CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(r.device.cycles, all.device.cycles);
        CHECK_U(r.step_ck, all.step_ck);
        CHECK_U(r.kv_bytes, all.kv_bytes);
    }
    CHECK_U(all.kv_bytes, 3000 * 2 * 2 * 128 * 2); /* K and V of 2 heads, 2 bytes an element */
}

/* From 16 tREFI a layer on it meets enough of them by itself. */
static void a_long_step_with_refresh_is_its_layers(void)
{
    pimattn_readings r = llama(PIMHW_IN_ORDER, 1, 32, 8192);
    CHECK(r.device.cycles >= 16 * 3800);
    CHECK_U(r.layers_timed, 1);
    CHECK_U(r.step_ck, 32 * r.device.cycles);
    CHECK(r.refresh_share > 0.04 && r.refresh_share < 0.07);
    unsigned n_near = 0;
    for (uint64_t tokens = 4800; tokens < 5600; tokens += 100) {
        r = llama(PIMHW_DCS, 1, 2, tokens);
        CHECK_U(r.layers_timed, r.device.cycles < 16 * 3800 ? 2 : 1);
        n_near += r.device.cycles >= 15 * 3800 && r.device.cycles < 16 * 3800;
    }
    CHECK(n_near > 0);
}

/* Asked of any layer, a step is the same; bytes and how it was timed are of that layer's window. */
static void readings_are_of_the_layer_asked(void)
{
    static const uint64_t windows[3] = {0, 16, 0};
    pimattn_shape s = shape_of(3, 2, 1, 128, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {5};
    pimattn_readings r[3];
    pimattn_seq seq;
    float q[2 * 128] = {1}, out[2 * 128];
    c.shape.windows = windows;
    c.device = device_of("aimx", PIMHW_IN_ORDER);
    c.device.refresh = 1;
    attn_kv kv = kv_random(&s, 200, &rng);
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    for (uint32_t layer = 0; layer < 3; layer++)
        CHECK_U(kv_append(e, seq, layer, &kv, 0, 200), PIMATTN_OK);
    for (uint32_t layer = 3; layer-- > 0;) { /* the last first: later ones may be remembered */
        CHECK_U(pimattn_attend_one(e, seq, layer, out, q, &r[layer]), PIMATTN_OK);
        CHECK_U(r[layer].step_ck, r[2].step_ck);
        CHECK_NEAR(r[layer].step_pJ, r[2].step_pJ, 0);
        CHECK_U(r[layer].layers_timed, layer == 1 ? 1 : 2);
        CHECK_U(r[layer].kv_bytes, (layer == 1 ? 16 : 200) * 2 * 128 * 2);
        CHECK_U(r[layer].bound, r[2].bound);
    }
    CHECK(r[1].device.cycles < r[0].device.cycles && r[2].device.cycles == r[0].device.cycles);
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* What was planned for more queries before changes nothing. */
static void readings_are_of_the_queries_asked(void)
{
    pimattn_shape s = shape_of(1, 8, 1, 128, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {6};
    pimattn_readings r, want;
    float q[5 * 8 * 128] = {1}, out[5 * 8 * 128];
    c.device = device_of("aimx", PIMHW_IN_ORDER);
    attn_kv kv = kv_random(&s, 3000, &rng);
    pimattn_engine *e = engine_new(&c);
    pimattn_item item = {0, 1};
    CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
    CHECK_U(kv_append(e, item.seq, 0, &kv, 0, 3000), PIMATTN_OK);
    for (uint64_t i = 0; i < 3; i++) {
        item.n_tokens = 5 - 2 * i;
        const pimattn_span span = {3000, item.n_tokens};
        const pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1};
        CHECK_U(pimattn_attend(e, 0, &call, &r), PIMATTN_OK);
        CHECK_U(pimattn_estimate(&want, &c, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(r.device.cycles, want.device.cycles);
        pimattn_plan p;
        CHECK_U(pimattn_plan_init(&p, &s, &c.device, 0, 0, false, 8 * item.n_tokens, NULL), 0);
        CHECK_U(r.wanted_out, p.wanted_out);
        CHECK_U(r.used_out, p.used_out);
        CHECK(p.used_out < p.wanted_out);
    }
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* Whichever of the layers the readings are of: refresh is what all of the step waits for. */
static void refresh_is_shared_by_layers_of_any_window(void)
{
    const uint64_t windows[2][2] = {{0, 16}, {16, 0}};
    pimattn_readings r[2], layer[2];
    pimattn_span span = {60000, 1};
    double refresh_ck = 0;
    for (int i = 0; i < 2; i++) {
        pimattn_shape s = shape_of(2, 32, 8, 128, 0);
        pimattn_config c = config_of(&s);
        c.device = device_of("aimx", PIMHW_IN_ORDER);
        c.device.refresh = 1;
        c.shape.windows = windows[i];
        CHECK_U(pimattn_estimate(&r[i], &c, &span, 1, NULL), PIMATTN_OK);
        c.shape.windows = NULL;
        c.shape.window = windows[0][i];
        c.shape.n_layers = 1;
        CHECK_U(pimattn_estimate(&layer[i], &c, &span, 1, NULL), PIMATTN_OK);
        refresh_ck += (double)(layer[i].device.breakdown_ck[PIMHW_SPENT_REF] +
                               layer[i].device.breakdown_ck[PIMHW_WAIT_REFRESH]);
    }
    CHECK_U(r[0].step_ck, layer[0].step_ck + layer[1].step_ck);
    CHECK_U(r[1].step_ck, r[0].step_ck);
    CHECK_NEAR(r[0].refresh_share, refresh_ck / (double)r[0].step_ck, 1e-12);
    CHECK_NEAR(r[1].refresh_share, r[0].refresh_share, 0);
    CHECK(r[0].refresh_share > 0.04);
}

/* 16 MiB; 307.2 GB/s: 54.6 us; 16 x 16 banks, 32 bytes a ns: 2048 ns; 8 KiB in and out each at
 * 64 GB/s: 256 ns. */
static void baselines_are_bytes_over_bandwidth(void)
{
    pimattn_readings r = llama(PIMHW_DCS, 0, 2, 4096);
    CHECK_U(r.kv_bytes, 4096 * 8 * 256 * 2);
    CHECK_NEAR(r.host_ns, 16777216 / 307.2, 1e-6);
    CHECK_NEAR(r.peak_ns, 2048, 1e-6);
    CHECK_NEAR(r.link_ns, 2 * 32 * 128 * 2 / 64.0, 1e-6);
    CHECK_NEAR(r.speedup, r.host_ns / (r.device.ns + r.link_ns), 1e-9);
    CHECK(r.layer_ns > r.peak_ns);
    /* of each of 3 + 2 query tokens and 6 heads 128 dims in and 64 out; K and V are read once */
    pimattn_shape shape = shape_of(1, 6, 2, 128, 64);
    pimattn_config c = config_of(&shape);
    pimattn_span spans[2] = {{700, 3}, {90, 2}};
    c.device = device_of("aimx", PIMHW_DCS);
    CHECK_U(pimattn_estimate(&r, &c, spans, 2, NULL), PIMATTN_OK);
    CHECK_U(r.kv_bytes, 790 * 2 * (128 + 64) * 2);
    CHECK_NEAR(r.link_ns, 5 * 6 * (128 + 64) * 2 / 64.0, 1e-6);
    c.shape.k_type = c.shape.v_type = PIMATTN_INT8; /* q and out are no shorter for it */
    CHECK_U(pimattn_estimate(&r, &c, spans, 2, NULL), PIMATTN_OK);
    CHECK_NEAR(r.link_ns, 5 * 6 * (128 + 64) * 2 / 64.0, 1e-6);
    c.shape.k_type = c.shape.v_type = PIMATTN_F32;
    CHECK_U(pimattn_estimate(&r, &c, spans, 2, NULL), PIMATTN_OK);
    CHECK_NEAR(r.token_pJ, r.step_pJ / 5, 1e-9 * r.step_pJ);
}

/* One number of the device at a time makes another part the slowest. */
static void the_bound_says_why(void)
{
    static const struct {
        const char *field;
        uint32_t value, bound;
    } cases[] = {{"tCCD_MAC", 40, PIMATTN_BOUND_MAC},   {"tRP", 4000, PIMATTN_BOUND_ROW},
                 {"tWR_INP", 2000, PIMATTN_BOUND_IO},   {"epu_lanes", 1, PIMATTN_BOUND_SOFTMAX},
                 {"tRFC", 3000, PIMATTN_BOUND_REFRESH}, {"link_MBps", 100, PIMATTN_BOUND_LINK},
                 {"tCCD_L", 40, PIMATTN_BOUND_MAC},     {"tMAC", 4000, PIMATTN_BOUND_IO},
                 {"tRTP", 4000, PIMATTN_BOUND_ROW}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        pimattn_shape s = shape_of(4, 32, 8, 128, 0);
        pimattn_config c = config_of(&s);
        pimattn_span span = {4096, 1};
        pimattn_readings r;
        c.device = device_of("aimx", GAPS);
        CHECK_U(pimhw_config_set(&c.device, cases[i].field, cases[i].value, NULL), PIMHW_OK);
        c.device.refresh = cases[i].bound == PIMATTN_BOUND_REFRESH;
        CHECK_U(pimattn_estimate(&r, &c, &span, 1, NULL), PIMATTN_OK);
        if (!CHECK_STR(pimattn_bound_str(r.bound), pimattn_bound_str(cases[i].bound)))
            printf("  with %s %u\n", cases[i].field, cases[i].value);
    }
    CHECK(pimattn_bound_str(PIMATTN_N_BOUND) == NULL);
    /* a layer that meets no refresh by itself is part of a step that does */
    pimattn_shape few = shape_of(32, 4, 1, 128, 0);
    pimattn_config often = config_of(&few);
    pimattn_span short_one = {100, 1};
    pimattn_readings step;
    often.device = device_of("aimx", GAPS);
    often.device.refresh = 1;
    often.device.tRFC = 3000;
    CHECK_U(pimattn_estimate(&step, &often, &short_one, 1, NULL), PIMATTN_OK);
    CHECK_U(step.device.commands[PIMHW_CMD_REF], 0);
    CHECK_STR(pimattn_bound_str(step.bound), pimattn_bound_str(PIMATTN_BOUND_REFRESH));
    /* beside inputs and results fewer clocks are a MAC's own, but MACs set the pace */
    pimattn_shape shape = shape_of(1, 32, 8, 128, 0);
    pimattn_config config = config_of(&shape);
    pimattn_span all = {16384, 1};
    pimattn_readings fast;
    config.device = device_of("aimx", PIMHW_DCS);
    config.device.epu_ck_per_op = 0;
    config.device.tCCD_L = 4;
    CHECK_U(pimattn_estimate(&fast, &config, &all, 1, NULL), PIMATTN_OK);
    CHECK(2 * fast.device.breakdown_ck[PIMHW_SPENT_MAC] < fast.device.cycles);
    CHECK_STR(pimattn_bound_str(fast.bound), "MAC");
    shape.n_heads = 4, shape.n_kv_heads = 1; /* of a channel that works, not of all */
    config.shape = shape;
    config.partition = PIMATTN_HFP;
    CHECK_U(pimattn_estimate(&fast, &config, &all, 1, NULL), PIMATTN_OK);
    CHECK_U(fast.device.n_busy_channels, 1);
    CHECK(2 * fast.device.breakdown_ck[PIMHW_SPENT_MAC] < fast.device.cycles);
    CHECK_STR(pimattn_bound_str(fast.bound), "MAC");
    /* of the layer asked, whatever the last one does; the link only where it takes longer */
    static const uint64_t windows[2][3] = {{0, 1, 1}, {1, 1, 0}};
    pimattn_readings r[2], one[2];
    for (int i = 0; i < 2; i++) {
        pimattn_shape s = shape_of(3, 32, 8, 128, 0);
        pimattn_config c = config_of(&s);
        pimattn_span span = {60000, 1};
        c.device = device_of("aimx", GAPS);
        c.device.refresh = c.device.epu_lanes = 1;
        c.shape.windows = windows[i];
        CHECK_U(pimattn_estimate(&r[i], &c, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(r[i].layers_timed, 1 + (uint32_t)i);
        c.shape.windows = NULL;
        c.shape.n_layers = 1;
        c.shape.window = windows[i][0];
        CHECK_U(pimattn_estimate(&one[i], &c, &span, 1, NULL), PIMATTN_OK);
        CHECK_U(r[i].bound, one[i].bound);
        c.device.link_MBps =
            (uint32_t)(c.device.link_MBps * one[i].link_ns / one[i].layer_ns * 1.4);
        CHECK_U(pimattn_estimate(&one[i], &c, &span, 1, NULL), PIMATTN_OK);
        CHECK(one[i].link_ns > 0.7 * one[i].layer_ns && one[i].bound != PIMATTN_BOUND_LINK);
    }
    CHECK(r[0].bound != r[1].bound);
}

/* What short requests on other channels do is not asked. */
static void the_slowest_channel_says_what_binds(void)
{
    pimattn_shape shape = shape_of(1, 16, 4, 128, 0);
    pimattn_config c = config_of(&shape);
    const pimattn_span spans[] = {{5435, 1}, {1, 1}};
    pimattn_readings alone, beside;
    c.device = device_of("aim-gddr6", PIMHW_PING_PONG);
    c.partition = PIMATTN_HFP;
    CHECK_U(pimattn_estimate(&alone, &c, spans, 1, NULL), PIMATTN_OK);
    CHECK_U(pimattn_estimate(&beside, &c, spans, 2, NULL), PIMATTN_OK);
    CHECK_U(beside.device.cycles, alone.device.cycles);
    CHECK(beside.device.n_busy_channels > alone.device.n_busy_channels);
    CHECK_U(beside.device.critical_macs, alone.device.critical_macs);
    CHECK_U(alone.device.critical_macs * alone.device.n_busy_channels,
            alone.device.commands[PIMHW_CMD_MAC16]);
    CHECK_STR(pimattn_bound_str(beside.bound), "MAC");
}

/* Every preset takes Llama-3-8B's layer under every controller and mapping. */
static void every_preset_does_it_under_every_controller(void)
{
    const char *preset;
    for (uint32_t i = 0; (preset = pimhw_preset_name(i)) != NULL; i++)
        for (uint32_t controller = 0; controller < 4; controller++)
            for (uint32_t v = 0; v <= PIMATTN_V_CHEAPEST; v++) {
                pimattn_shape s = shape_of(2, 32, 8, 128, 0);
                pimattn_config c = config_of(&s);
                pimattn_span span = {300, 1};
                pimattn_readings r;
                pimhw_cause why = {""};
                CHECK_U(pimhw_config_init(&c.device, preset, NULL), PIMHW_OK);
                if (c.device.flash_page_bytes) continue;
                c.device.controller = controller;
                c.v_mapping = v;
                if (!CHECK_U(pimattn_estimate(&r, &c, &span, 1, &why), PIMATTN_OK))
                    printf("  %s, %s: %s\n", preset, pimhw_controller_str(controller), why.text);
            }
}

int main(void)
{
    RUN(one_query_moves_what_the_table_says);
    RUN(a_group_of_queries_moves_what_the_table_says);
    RUN(queries_are_sent_no_oftener_than_they_must);
    RUN(keys_of_several_rows_are_met_by_sets_of_queries);
    RUN(the_largest_sets_can_be_lowered);
    RUN(rows_of_a_mapping_are_what_its_tokens_need);
    RUN(k_says_when_it_does_not_fit);
    RUN(k_in_banks_has_queries_it_can_do);
    RUN(a_plan_says_what_entries_it_would_use);
    RUN(what_just_fits_is_planned);
    RUN(softmax_hides_behind_the_next_head);
    RUN(channels_beyond_the_groups_have_no_values);
    RUN(wrong_mappings_are_a_status);
    RUN(one_channel_makes_a_and_b_the_same);
    RUN(one_query_takes_the_golden_clocks);
    RUN(eight_queries_take_the_golden_clocks);
    RUN(a_row_of_keys_takes_the_golden_clocks);
    RUN(inputs_go_out_before_reads);
    RUN(biases_do_not_wait_for_reads_one_by_one);
    RUN(ping_pong_plans_in_regions);
    RUN(scores_take_turns_on_the_entries);
    RUN(order_changes_no_count);
    RUN(the_cheapest_is_the_least_of_all);
    RUN(the_cheapest_knows_programs_that_differ_in_queries);
    RUN(a_step_of_the_cheapest_is_that_of_its_mapping);
    RUN(the_cheapest_program_is_there_to_export);
    RUN(energy_parts_sum_to_the_whole);
    RUN(energy_is_shared_by_the_query_tokens);
    RUN(a_step_without_refresh_is_its_layers);
    RUN(a_short_step_with_refresh_is_timed_at_once);
    RUN(the_device_way_times_all_tokens_in_its_lanes);
    RUN(a_long_step_with_refresh_is_its_layers);
    RUN(readings_are_of_the_layer_asked);
    RUN(readings_are_of_the_queries_asked);
    RUN(refresh_is_shared_by_layers_of_any_window);
    RUN(baselines_are_bytes_over_bandwidth);
    RUN(the_bound_says_why);
    RUN(the_slowest_channel_says_what_binds);
    RUN(every_preset_does_it_under_every_controller);
    return check_end();
}
