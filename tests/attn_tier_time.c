/* [A18] What a step on a tier costs: [PAM]'s flow, timed. */
#define PIMATTN_IMPLEMENTATION
#include "attn.h"

static pimhw_cause why;

static pimattn_shape layer_of(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim)
{
    pimattn_shape s;
    memset(&s, 0, sizeof s);
    s.n_layers = 1, s.n_heads = n_heads, s.n_kv_heads = n_kv_heads, s.head_dim = head_dim;
    return s;
}

static pimattn_tier tier_of(const char *preset, uint32_t n_devices)
{
    pimattn_tier t;
    memset(&t, 0, sizeof t);
    CHECK_U(pimhw_config_init(&t.device, preset, &why), PIMHW_OK);
    t.n_devices = n_devices;
    return t;
}

/* A load of one channel. */
static pimattn_tier_load load_of(const uint64_t *blocks, size_t n_blocks, uint32_t n_queries,
                                 const pimattn_tier *t)
{
    pimattn_tier_load l;
    memset(&l, 0, sizeof l);
    l.blocks = blocks, l.n_blocks = n_blocks, l.n_queries = n_queries;
    for (size_t i = 0; i < n_blocks; i++)
        l.tokens += blocks[i] * t->device.n_bank_groups;
    l.device_tokens = l.tokens;
    l.groups = l.device_groups = n_blocks * t->device.n_bank_groups;
    l.device_blocks = l.device_outputs = n_blocks;
    return l;
}

static pimattn_tier_reading time_of(const pimattn_tier *t, const pimattn_shape *s,
                                    const pimattn_tier_load *l)
{
    pimattn_tier_reading r;
    memset(&r, 0, sizeof r);
    if (!CHECK_U(pimattn_tier_time(&r, t, s, l, &why), PIMATTN_OK)) printf("  %s\n", why.text);
    CHECK(r.ns == r.local_ns + r.input_ns + r.reduce_ns + r.link_ns);
    CHECK(r.local_ns == (r.program_ns > r.cap_ns ? r.program_ns : r.cap_ns));
    return r;
}

/* pam-facil.md 3.4, case 22 */
static void counts_of_PAM(void)
{
    static const struct {
        uint32_t heads, kv_heads, layers;
        uint64_t bytes;
    } models[] = {{40, 8, 64, 262144}, {64, 8, 80, 327680}, {96, 96, 96, 4718592}};
    pimattn_tier hbm = tier_of("pam-hbm3", 5), ddr = tier_of("pam-ddr4", 40);
    uint64_t one = 1;
    for (int i = 0; i < 3; i++) {
        pimattn_shape s = layer_of(models[i].heads, models[i].kv_heads, 128);
        pimattn_tier_load l = load_of(&one, 1, 1, &hbm);
        l.tokens = s.n_kv_heads;
        CHECK_U(time_of(&hbm, &s, &l).kv_bytes * models[i].layers, models[i].bytes);
    }
    CHECK_U(hbm.n_devices * hbm.device.n_channels * hbm.device.n_bank_groups, 1280);
    uint32_t chips = ddr.device.column_bytes / (4 * ddr.device.element_bytes); /* of 4 lanes each */
    CHECK_U(ddr.n_devices * ddr.device.n_channels * ddr.device.n_bank_groups * chips, 1280);
    pimattn_tier ssd = tier_of("pam-ssd", 1);
    pimattn_shape s = layer_of(8, 8, 128);
    pimattn_tier_load l = load_of(&one, 1, 1, &ddr);
    l.channel_pages = l.pages = 64, l.device_tokens = 1;
    pimattn_tier_reading r = time_of(&ssd, &s, &l);
    CHECK_NEAR(r.program_ns, 16 * 30000 + 4 * 16384 / 2.4, 0.01); /* 507.3 us */
    CHECK_U(r.read_bytes, 64 * 16384);
}

/* Cases 23 and 24. */
static void relayouts_of_PAM_and_FACIL(void)
{
    pimattn_tier ddr = tier_of("pam-ddr4", 1), jetson = tier_of("lpddr5-jetson", 1);
    pimattn_relayout way;
    pimattn_relayout_reading r, host;
    memset(&way, 0, sizeof way);
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ddr, &way, 1 << 20, 1, &why), PIMATTN_OK);
    CHECK_NEAR(r.ns, 40960, 1e-9);
    way.by_host = true;
    CHECK_U(pimattn_relayout_time(&host, &ddr, &ddr, &way, 1 << 20, 1, &why), PIMATTN_OK);
    CHECK_NEAR(host.ns, 819200, 1e-9);
    CHECK_NEAR(host.ns / r.ns, 20, 1e-12);
    way.host_percent = 75;
    CHECK_U(pimattn_relayout_time(&r, &jetson, &jetson, &way, 1 << 30, 1, &why), PIMATTN_OK);
    CHECK_NEAR(r.ns, 2 * 1073741824.0 / 153.6, 1e-3); /* 13.98 ms */
    CHECK_U(pimattn_relayout_time(&r, &jetson, &jetson, &way, UINT64_C(15010000000), 1, &why),
            PIMATTN_OK);
    CHECK_NEAR(r.ns, 195.4e6, 0.1e6);
}

/* The slowest of source, link and target; whole pages of flash; a start a run. */
static void relayouts_are_as_fast_as_their_slowest_part(void)
{
    pimattn_tier hbm = tier_of("pam-hbm3", 4), ddr = tier_of("pam-ddr4", 2);
    pimattn_tier ssd = tier_of("pam-ssd", 8);
    pimattn_relayout way;
    pimattn_relayout_reading r;
    memset(&way, 0, sizeof way);
    CHECK_U(pimattn_relayout_time(&r, &hbm, &ddr, &way, 51200, 1, &why), PIMATTN_OK);
    CHECK(r.size == sizeof r && r.version == 1);
    CHECK_NEAR(r.ns, 1000, 1e-9); /* two modules of 25.6 GB/s */
    way.link_MBps = 5120, way.start_ns = 7;
    CHECK_U(pimattn_relayout_time(&r, &ddr, &hbm, &way, 51200, 3, &why), PIMATTN_OK);
    CHECK_NEAR(r.ns, 10021, 1e-9);
    CHECK(r.link_ns > r.read_ns && r.read_ns > r.write_ns && r.start_ns == 21);
    way.link_MBps = 0;
    CHECK_U(pimattn_relayout_time(&r, &ssd, &ddr, &way, 512, 1, &why), PIMATTN_OK);
    CHECK_U(r.read_bytes, 16384);
    CHECK_U(r.written_bytes, 512);
    CHECK_NEAR(r.ns, 7 + 30000 + 16384 / 2.4, 0.01);
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 512 * 100, 100, &why), PIMATTN_OK);
    CHECK_U(r.written_bytes, 100 * 16384);
    CHECK_NEAR(r.write_ns, 300000 + 2 * 16384 / 2.4, 0.01); /* 64 channels, up to 2 pages each */
    pimattn_tier far = ssd;
    far.device.link_MBps = 1;
    CHECK_U(pimattn_relayout_time(&r, &far, &ddr, &way, 1 << 20, 1, &why), PIMATTN_OK);
    CHECK_NEAR(r.read_ns, (1 << 20) * 1e3 / 8, 1e-3); /* 8 drives */
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 0, 0, &why), PIMATTN_OK);
    CHECK(r.ns == 0 && r.written_bytes == 0);
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 0, 3, &why), PIMATTN_OK);
    CHECK(r.ns == 0 && r.start_ns == 0); /* no bytes are no run */
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 1, 0, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "n_runs is 0");
    CHECK_U(pimattn_relayout_time(&r, &ddr, NULL, &way, 1, 1, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "relayout is NULL");
    way.host_percent = 100;
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 1, 1, &why), PIMATTN_OK);
    way.host_percent = 101;
    CHECK_U(pimattn_relayout_time(&r, &ddr, &ssd, &way, 1, 1, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "host_percent");
}

/*
 * pam-hbm3, head_dim 128: 8 columns a token, 4 tokens a row, one query. A row of K, then one of V:
 *
 *     ACT .19. MAC x 32, 4 clocks apart .8. PRE .19. ACT ..      19 + 31 * 4 + 8 + 19 = 170
 */
static void a_row_of_each_bank_takes_its_macs_and_its_change(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(1, 1, 128);
    uint64_t tokens[2] = {64, 80}, ck[2];
    t.device.refresh = 0;
    for (int i = 0; i < 2; i++) {
        pimattn_tier_load l = load_of(&tokens[i], 1, 1, &t);
        pimattn_tier_reading r = time_of(&t, &s, &l);
        ck[i] = r.device.cycles;
        CHECK_NEAR(r.program_ns, (double)ck[i] * 0.769, 1e-6);
        CHECK_U(r.device.commands[PIMHW_CMD_ACT16], tokens[i] / 16 * 2);
    }
    CHECK_U(ck[1] - ck[0], 2 * 170);
}

typedef struct seen {
    uint32_t reads[6][32][3]; /* row, column, query */
    uint32_t wrong;
} seen;

/* Of 3 queries, two share the buffer and the rows; then the third has them to itself. */
static void see(void *user, const pimhw_event *e)
{
    seen *to = (seen *)user;
    if (e->command != PIMHW_CMD_MAC16) return;
    uint32_t query = e->out;
    if (query == 0 && to->reads[e->row][e->column][0]) query = 2;
    if (e->row < 3 && e->tile != e->out * 8 + e->column % 8) to->wrong++;
    to->reads[e->row][e->column][query]++;
}

/* 37 tokens of a bank group: up to 10 of a bank, in rows of 4, K in rows 0 to 2, V in 3 to 5. */
static void every_column_of_a_token_is_read_once_for_each_query(void)
{
    static pimhw_program program;
    static seen all;
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(3, 1, 128);
    pimhw_block block;
    pimhw_request request;
    pimhw_device *d;
    pimhw_readings r;
    pimhw_sink sink = {see, &all, NULL};
    memset(&block, 0, sizeof block);
    memset(&request, 0, sizeof request);
    block.rest[0] = 37, block.rest[1] = 3, block.row_base[1] = 3;
    request.blocks = &block, request.n_blocks = 1;
    t.device.n_channels = 1;
    CHECK_U(pimattn_tier_lower(&t, &s, &program, &why), PIMATTN_OK);
    for (t.device.controller = 0; t.device.controller < 4; t.device.controller++) {
        if (t.device.controller == PIMHW_PING_PONG) continue; /* half the buffer: one query */
        memset(&all, 0, sizeof all);
        CHECK_U(pimhw_device_create(&d, &t.device, &why), PIMHW_OK);
        CHECK_U(pimhw_device_time(d, &r, &program, &request, &sink, &why), PIMHW_OK);
        pimhw_device_destroy(d);
        CHECK_U(all.wrong, 0);
        for (uint32_t row = 0; row < 6; row++)
            for (uint32_t column = 0; column < 32; column++)
                for (int q = 0; q < 3; q++)
                    CHECK_U(all.reads[row][column][q], row % 3 * 4 + column / 8 < 10);
    }
}

static void count_homeless(void *user, const pimhw_event *e)
{
    *(uint32_t *)user += e->command == PIMHW_CMD_MAC16 && e->entry == UINT32_MAX;
}

/* Of ping-pong, too, which has half of them for what runs beside the other half. */
static void every_sum_has_an_accumulator(void)
{
    static const char *const presets[2] = {"pam-hbm3", "pam-ddr4"};
    static pimhw_program program;
    for (uint32_t i = 0; i < 2 * 4 * 8; i++) {
        pimattn_tier t = tier_of(presets[i % 2], 1);
        uint32_t homeless = 0, queries = 1 + i / 8;
        pimattn_shape s = layer_of(queries, 1, 128);
        pimhw_block block;
        pimhw_request request;
        pimhw_device *d;
        pimhw_readings r;
        pimhw_sink sink = {count_homeless, &homeless, NULL};
        memset(&block, 0, sizeof block);
        memset(&request, 0, sizeof request);
        block.rest[0] = 200, block.rest[1] = queries, block.row_base[1] = 100;
        request.blocks = &block, request.n_blocks = 1;
        t.device.n_channels = 1;
        t.device.controller = i / 2 % 4;
        CHECK_U(pimattn_tier_lower(&t, &s, &program, &why), PIMATTN_OK);
        CHECK_U(pimhw_device_create(&d, &t.device, &why), PIMHW_OK);
        CHECK_U(pimhw_device_time(d, &r, &program, &request, &sink, &why), PIMHW_OK);
        pimhw_device_destroy(d);
        CHECK_U(homeless, 0);
        CHECK(r.commands[PIMHW_CMD_MAC16] > 0);
    }
}

/* A short program pays its share: of 5070 clocks a refresh takes 455 and a change of rows. */
static void short_programs_meet_refreshes_on_average(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1), without = t;
    pimattn_shape s = layer_of(1, 1, 128);
    uint64_t blocks[640];
    without.device.refresh = 0;
    for (int i = 0; i < 640; i++)
        blocks[i] = 20;
    pimattn_tier_load one = load_of(blocks, 1, 1, &t), many = load_of(blocks, 640, 1, &t);
    CHECK(time_of(&without, &s, &one).program_ns < 5070 * 0.769 / 4); /* by itself it meets none */
    double never = time_of(&without, &s, &many).program_ns / 640;
    double share = time_of(&t, &s, &one).program_ns, least = 5070.0 / (5070 - 455);
    CHECK(share > never * least && share < never * (least + 0.04));
    CHECK_NEAR(time_of(&t, &s, &many).program_ns / 640, share, 0.02 * share);
    /* in energy, too: one of all banks in every 5070 clocks */
    pimattn_tier_reading few = time_of(&t, &s, &one), all = time_of(&t, &s, &many);
    double due = few.program_ns / (5070 * 0.769), sum = 0;
    double pJ = due * t.device.eREF_fJ * 1e-3 * pimhw_config_banks(&t.device);
    CHECK_NEAR(few.device.energy_pJ[PIMHW_ENERGY_REFRESH], pJ, 0.05 * pJ);
    CHECK_NEAR(all.energy_pJ / 640, few.energy_pJ, 0.01 * few.energy_pJ);
    for (int i = 0; i < PIMHW_N_ENERGY; i++)
        sum += few.device.energy_pJ[i];
    CHECK(sum == few.device.total_pJ);
    CHECK_NEAR(few.device.average_mW, sum / few.program_ns, 1e-9 * few.device.average_mW);
}

/* Of the channel that is timed by its tokens' share of all. */
static void energy_is_of_all_channels(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(1, 1, 128);
    const uint64_t tokens[2] = {80, 20};
    pimattn_tier_load l = load_of(tokens, 2, 1, &t);
    pimattn_tier_reading r = time_of(&t, &s, &l);
    CHECK_NEAR(r.energy_pJ, r.device.total_pJ, 1e-9 * r.energy_pJ);
    l.tokens *= 3;
    CHECK_NEAR(time_of(&t, &s, &l).energy_pJ, 3 * r.energy_pJ, 3e-9 * r.energy_pJ);
}

/* No row of V is one of K, whichever block is longest: every change of rows opens 4 banks. */
static void rows_of_keys_and_values_are_apart(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(1, 1, 128);
    const uint64_t tokens[2] = {32, 16};
    t.device.refresh = 0;
    pimattn_tier_load l = load_of(tokens, 2, 1, &t);
    CHECK_U(time_of(&t, &s, &l).device.commands[PIMHW_CMD_ACT16], 2 * (2 + 1));
    s.head_dim = 64, s.head_dim_v = 128; /* a row has as many keys as values */
    CHECK_U(time_of(&t, &s, &l).device.commands[PIMHW_CMD_ACT16], 2 * (2 + 1));
}

/* Every token's K and V once for every query, q once, o and (m, l) once; under any controller. */
static void commands_are_those_of_the_tokens(void)
{
    static const char *const presets[] = {"pam-hbm3", "pam-ddr4", "aimx", "aim-gddr6"};
    static const uint64_t tokens[] = {1, 3, 4, 5, 17, 700, 32};
    for (int p = 0; p < 4; p++)
        for (uint32_t controller = 0; controller < 4; controller++)
            for (uint32_t q = 1; q <= 5; q += 2) {
                pimattn_tier t = tier_of(presets[p], 1);
                pimattn_shape s = layer_of(q, 1, 96);
                t.device.controller = controller;
                pimattn_tier_load l = load_of(tokens, 7, q, &t);
                pimattn_tier_reading r = time_of(&t, &s, &l);
                uint64_t columns =
                    (96 + pimhw_config_lanes(&t.device) - 1) / pimhw_config_lanes(&t.device);
                uint64_t slots = 0;
                for (int i = 0; i < 7; i++)
                    slots += (tokens[i] + 3) / 4; /* 4 banks */
                CHECK_U(r.device.commands[PIMHW_CMD_MAC16], 2 * slots * columns * q);
                CHECK_U(r.device.commands[PIMHW_CMD_WRGB], 7 * columns * q);
                CHECK_U(r.device.commands[PIMHW_CMD_RDMAC16], 7 * (columns + 1) * q);
                CHECK(r.program_ns >= (double)(2 * slots * columns * q - 1) * t.device.tCCD_MAC *
                                          t.device.tCK_ps / 1e3);
            }
}

/* One program for any lengths; the list is request data. */
static void one_program_serves_any_load(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1), ssd = tier_of("pam-ssd", 1);
    pimattn_shape s = layer_of(8, 1, 128);
    static pimhw_program program;
    CHECK_U(pimattn_tier_lower(&t, &s, &program, &why), PIMATTN_OK);
    CHECK_U(pimhw_program_check(&program, &t.device, &why), PIMHW_OK);
    CHECK(pimhw_program_bytes(&program) < 4096);
    CHECK_U(pimattn_tier_lower(&ssd, &s, &program, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "flash");
    uint64_t tokens[2] = {5, 50000};
    pimattn_tier_load few = load_of(tokens, 1, 1, &t), many = load_of(tokens, 2, 8, &t);
    CHECK_U(time_of(&t, &s, &few).device.program_bytes,
            time_of(&t, &s, &many).device.program_bytes);
}

/* In order, without refresh: a token more never takes less. */
static void more_tokens_never_take_less(void)
{
    static const char *const presets[] = {"pam-hbm3", "pam-ddr4"};
    for (int p = 0; p < 2; p++)
        for (uint32_t q = 1; q <= 3; q++) {
            pimattn_tier t = tier_of(presets[p], 1);
            pimattn_shape s = layer_of(q, 1, 128);
            double last = 0;
            t.device.refresh = 0;
            for (uint64_t n = 1; n < 200; n++) {
                uint64_t blocks[3] = {n, 7, n};
                pimattn_tier_load l = load_of(blocks, 3, q, &t);
                pimattn_tier_reading r = time_of(&t, &s, &l);
                if (!CHECK(r.local_ns >= last)) return;
                last = r.local_ns;
            }
        }
}

/* Softmax hides behind tRTP + tRP + tRCD = 46 clocks; what is longer shows once a row of K. */
static void softmax_beyond_a_change_of_rows_shows(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(3, 1, 128);
    uint64_t tokens[2] = {33, 16};
    pimattn_tier_load l = load_of(tokens, 2, 3, &t);
    double before = time_of(&t, &s, &l).program_ns;
    CHECK(time_of(&t, &s, &l).softmax_ns == 0);
    t.device.softmax_ck = 46;
    CHECK(time_of(&t, &s, &l).program_ns == before);
    t.device.softmax_ck = 56; /* 3 + 1 rows, queries in blocks of 2 */
    CHECK_NEAR(time_of(&t, &s, &l).softmax_ns, 4 * 2 * 10 * 0.769, 1e-9);
    CHECK_NEAR(time_of(&t, &s, &l).program_ns, before + 4 * 2 * 10 * 0.769, 1e-6);
    t.device.row_opening = PIMHW_ROW_HIDDEN; /* static alone knows it */
    CHECK_NEAR(time_of(&t, &s, &l).softmax_ns, 4 * 2 * 10 * 0.769, 1e-9);
    t.device.controller = PIMHW_STATIC_GAPS;
    t.device.row_opening = 0;
    CHECK_NEAR(time_of(&t, &s, &l).softmax_ns, 4 * 2 * 10 * 0.769, 1e-9);
    t.device.row_opening = PIMHW_ROW_HIDDEN; /* nothing to hide behind */
    CHECK_NEAR(time_of(&t, &s, &l).softmax_ns, 4 * 2 * 56 * 0.769, 1e-9);
}

/* pam-facil.md 1.4 */
static void reduction_units_of_PAM(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1), bare = t;
    const pimhw_config *c = &t.device;
    CHECK_U(pimattn_reduction_ps(c, 128, 4), 40000000 / 666); /* 4 * 8 + 8 clocks */
    CHECK_U(pimattn_reduction_ps(c, 100, 4), 35000000 / 666);
    CHECK_U(pimattn_reduction_ps(NULL, 128, 4), 0);
    CHECK_U(pimattn_reduction_ps(c, 128, 666 * (1ull << 34) - 1), (8ull << 34) * 1000000);
    CHECK_U(pimattn_reduction_ps(c, 128, 1ull << 60), UINT64_MAX);
    uint64_t tokens = 32;
    pimattn_shape s = layer_of(1, 1, 128);
    pimattn_tier_load l = load_of(&tokens, 1, 1, &t);
    pimattn_tier_reading r = time_of(&t, &s, &l);
    CHECK_NEAR(1 - (double)r.group_bytes / (double)r.bare_bytes, 0.602, 0.0005);
    CHECK_U(r.group_bytes, 8 * (128 + 130) * 2);
    CHECK_U(r.link_bytes, 128 * 2 + 130 * 4);
    double group_rate = (double)c->n_channels * c->n_bank_groups * c->reduction_lanes * 2 *
                        c->unit_MHz; /* bytes a us */
    double die_rate = (double)c->reduction_units * c->reduction_lanes * 2 * c->unit_MHz;
    CHECK_NEAR(group_rate / c->link_MBps, 8.2, 0.05);
    CHECK_NEAR((group_rate + die_rate) / c->link_MBps, 12.3, 0.05);
    bare.device.reduction_lanes = 0;
    pimattn_tier_reading without = time_of(&bare, &s, &l);
    CHECK_U(without.group_bytes, r.bare_bytes);
    CHECK_U(without.link_bytes, 128 * 2 + 32 * 130 * 4); /* 32 banks */
    CHECK(without.reduce_ns == 0 && without.link_ns > 10 * r.link_ns);
}

/* Reduction of a head hides behind the next: alone it shows, in a queue of heads only the last. */
static void only_the_last_reduction_shows(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(1, 1, 128);
    uint64_t tokens[64];
    double alone = 0;
    for (int i = 0; i < 64; i++)
        tokens[i] = 16; /* 256 active tokens of a head on the 64 banks of two pseudo-channels */
    for (size_t n = 1; n <= 64; n++) {
        pimattn_tier_load l = load_of(tokens, n, 1, &t);
        pimattn_tier_reading r = time_of(&t, &s, &l);
        if (n == 1) alone = r.reduce_ns;
        if (n == 1)
            printf("  one head: reduction %.1f of %.1f ns, %.1f %%\n", r.reduce_ns,
                   r.local_ns + r.reduce_ns, 100 * r.reduce_ns / (r.local_ns + r.reduce_ns));
        CHECK_NEAR(r.reduce_ns, alone, 1e-6);
        CHECK_NEAR(r.reduce_work_ns, (double)n * alone, 1e-3);
        if (n >= 11) CHECK(r.reduce_ns < 0.02 * r.ns);
    }
    CHECK_NEAR(alone, (40 + 9 * 8 / 128.0) / 0.666, 0.01); /* device: 9 partials, 128 units */
    t.device.unit_MHz = 20; /* slower than the heads: what does not hide shows */
    pimattn_tier_load l = load_of(tokens, 64, 1, &t);
    pimattn_tier_reading r = time_of(&t, &s, &l);
    double head = r.local_ns / 64, unit = 40 * 50;
    CHECK(unit > head);
    CHECK_NEAR(r.reduce_ns, 64 * unit + head - r.local_ns, unit);
}

/* Stages one by one, as defined: a part leaves a stage after the one before it and itself. */
static void parts_of_a_step_sum_to_it(void)
{
    pimattn_tier tiers[3] = {tier_of("pam-hbm3", 2), tier_of("pam-ddr4", 2), tier_of("pam-ssd", 1)};
    pimattn_shape s = layer_of(16, 4, 64);
    uint64_t lengths[3][2] = {{900, 300}, {400, 0}, {90, 80}}, blocks[3][8];
    pimattn_tier_load loads[3];
    pimattn_step_reading r, moved;
    for (int i = 0; i < 3; i++)
        CHECK_U(
            pimattn_tier_spread(&loads[i], blocks[i], &tiers[i], &s, lengths[i], 2, false, &why),
            PIMATTN_OK);
    CHECK_U(pimattn_step_time(&r, tiers, 3, &s, loads, 0, false, &why), PIMATTN_OK);
    CHECK(r.size == sizeof r && r.version == 1);
    CHECK(r.tiers[1].size == sizeof r.tiers[1] && r.tiers[1].version == 1);
    double most = 0;
    for (int i = 0; i < 3; i++) {
        pimattn_tier_reading alone = time_of(&tiers[i], &s, &loads[i]);
        CHECK(alone.ns == r.tiers[i].ns);
        CHECK(r.idle_ns[i] == r.attention_ns - alone.ns && r.idle_ns[i] >= 0);
        if (alone.ns > most) most = alone.ns;
    }
    CHECK(r.attention_ns == most && r.idle_ns[r.slowest] == 0);
    /* a partial of 64 dims of each of 4 query heads takes a reduction unit of the HBM 64 / lanes
     * clocks, in whole 1e-12 s */
    const pimhw_config *hbm = &tiers[0].device;
    double clocks = 64.0 / hbm->reduction_lanes, partials = 0;
    for (int i = 0; i < 3; i++)
        partials += 4 * (double)loads[i].device_outputs;
    CHECK_NEAR(r.merge_ns, partials * clocks * 1e3 / hbm->unit_MHz / (2.0 * hbm->reduction_units),
               1e-3);
    CHECK(r.ns == r.attention_ns + r.merge_ns + r.moves_ns && r.moves_ns == 0);
    double long_move = r.ns + 1000, short_move = r.ns / 2;
    CHECK_U(pimattn_step_time(&moved, tiers, 3, &s, loads, long_move, false, &why), PIMATTN_OK);
    CHECK(moved.ns == r.attention_ns + r.merge_ns + long_move);
    CHECK_U(pimattn_step_time(&moved, tiers, 3, &s, loads, long_move, true, &why), PIMATTN_OK);
    CHECK_NEAR(moved.ns, long_move, 1e-6);
    CHECK(moved.ns == moved.attention_ns + moved.merge_ns + moved.moves_ns);
    CHECK_U(pimattn_step_time(&moved, tiers, 3, &s, loads, short_move, true, &why), PIMATTN_OK);
    CHECK(moved.ns == r.ns && moved.moves_ns == 0);
    loads[1].n_blocks = 0; /* an empty tier idles all the time */
    CHECK_U(pimattn_step_time(&r, tiers, 3, &s, loads, 0, false, &why), PIMATTN_OK);
    CHECK(r.tiers[1].ns == 0 && r.idle_ns[1] == r.attention_ns);
    CHECK_NEAR(r.merge_ns,
               (partials - 4 * (double)loads[1].device_outputs) * clocks * 1e3 / hbm->unit_MHz /
                   (2.0 * hbm->reduction_units),
               1e-3);  /* of others alone */
    s.head_dim_v = 32; /* dims of a partial are those of V */
    pimattn_step_reading half;
    CHECK_U(pimattn_step_time(&half, tiers, 3, &s, loads, 0, false, &why), PIMATTN_OK);
    CHECK_NEAR(half.merge_ns, r.merge_ns / 2, 1e-3);
    s.head_dim_v = 0;
    tiers[1].device.tRP = 0; /* whose fault it is */
    CHECK_U(pimattn_step_time(&half, tiers, 3, &s, loads, 0, false, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "tier[1]: tRP");
    /* of equals the first is the slowest */
    tiers[1] = tiers[0], loads[1] = loads[0];
    CHECK_U(pimattn_step_time(&r, tiers, 2, &s, loads, 0, false, &why), PIMATTN_OK);
    CHECK_U(r.slowest, 0);
    for (uint32_t n = 0; n <= 9; n += 9) {
        CHECK_U(pimattn_step_time(&r, tiers, n, &s, loads, 0, false, &why), PIMATTN_ERR_ARGUMENT);
        CHECK_HAS(why.text, n ? "n_tiers is 9" : "n_tiers is 0");
    }
    CHECK_U(pimattn_step_time(&r, tiers, 3, &s, NULL, 0, false, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "loads is NULL");
    CHECK_U(pimattn_step_time(&r, tiers, 3, &s, loads, -1, false, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_HAS(why.text, "moves_ns");
}

/* Large batches: 64, 8.16 and 0.144 TB/s are the caps; which of them a tier reaches. */
static void tiers_come_near_their_caps(void)
{
    static const struct {
        const char *preset;
        uint32_t n_devices;
        double cap, least; /* TB/s; of the cap */
        bool capped;
    } t[] = {{"pam-hbm3", 40, 64, 0.99, true},
             {"pam-ddr4", 40, 8.16, 0.85, false}, /* tCCD_L, rows, refresh */
             {"pam-ssd", 8, 0.144, 0.96, false}}; /* tR */
    pimattn_shape s = layer_of(96, 96, 128);
    static uint64_t tokens[256], blocks[256 * 96];
    for (int i = 0; i < 256; i++)
        tokens[i] = 512;
    for (int i = 0; i < 3; i++) {
        pimattn_tier tier = tier_of(t[i].preset, t[i].n_devices);
        pimattn_tier_load l;
        CHECK_U(pimattn_tier_spread(&l, blocks, &tier, &s, tokens, 256, false, &why), PIMATTN_OK);
        pimattn_tier_reading r = time_of(&tier, &s, &l);
        double rate = (double)r.kv_bytes / r.local_ns / 1e3;
        printf("  %s: %.3f TB/s, program %.3f TB/s\n", t[i].preset, rate,
               (double)r.kv_bytes / r.program_ns / 1e3);
        CHECK(rate > t[i].least * t[i].cap && rate < t[i].cap * (1 + 1e-9));
        CHECK((r.cap_ns > r.program_ns) == t[i].capped);
        CHECK(r.reduce_ns < 0.02 * r.ns);
        CHECK(tier.device.flash_page_bytes ? r.energy_pJ == 0 : r.energy_pJ > 0);
        double cap_ns = r.cap_ns;
        l.n_queries = 8;
        CHECK_NEAR(time_of(&tier, &s, &l).cap_ns, cap_ns, 1e-3);
        l.gqa_flops = true;
        CHECK_NEAR(time_of(&tier, &s, &l).cap_ns, 8 * cap_ns, 1e-3);
    }
}

/* Sums over all channels, by the plainest walk; no channel or device has more than the first. */
static void spread_deals_every_token(void)
{
    check_rng rng = {11};
    for (int round = 0; round < 6000; round++) {
        pimattn_tier t =
            tier_of(round % 3 ? "pam-hbm3" : "pam-ssd", (uint32_t)rng_range(&rng, 1, 5));
        t.device.n_channels = (uint32_t)rng_range(&rng, 1, 9);
        bool flash = t.device.flash_page_bytes != 0;
        pimattn_shape s = layer_of(6, (uint32_t)rng_range(&rng, 1, 3), 64);
        s.n_heads = 2 * s.n_kv_heads;
        uint64_t tokens[30], blocks[90], n = rng_range(&rng, 0, 30), sum = 0;
        for (uint64_t i = 0, most = round % 2 ? 5000 : 1 + (uint64_t)round % 60; i < n; i++)
            tokens[i] = most = rng_range(&rng, 0, most), sum += most * s.n_kv_heads;
        uint64_t used = n;
        while (used > 0 && tokens[used - 1] == 0)
            used--;
        pimattn_tier_load l;
        CHECK_U(pimattn_tier_spread(&l, blocks, &t, &s, tokens, n, false, &why), PIMATTN_OK);
        uint64_t units = used * (flash ? 1 : s.n_kv_heads), n_channels = t.device.n_channels;
        uint64_t channels = t.n_devices * n_channels, spread = units ? channels / units : 1;
        uint64_t heads = flash ? s.n_kv_heads : 1, in_device[5] = {0}, on[45] = {0};
        uint64_t groups = flash ? 1 : t.device.n_bank_groups, n_groups = 0, n_outputs = 0;
        uint64_t device_groups[5] = {0}, device_blocks[5] = {0}, last_unit[5] = {0};
        if (spread == 0) spread = 1;
        for (uint64_t u = 0; u < units; u++)
            for (uint64_t j = 0; j < spread; j++) {
                uint64_t at = spread > 1 ? u * spread + j : u % channels;
                uint64_t of = tokens[u * heads / s.n_kv_heads];
                uint64_t share = (of + spread - 1) / spread;
                uint64_t left = of > share * j ? of - share * j : 0;
                uint64_t device = spread > 1 ? at / n_channels : at % t.n_devices;
                uint64_t here = left < share ? left : share;
                bool first = here > 0 && last_unit[device] != u + 1;
                in_device[device] += here * heads;
                on[at] += here * heads;
                n_groups += (here < groups ? here : groups) * heads;
                device_groups[device] += (here < groups ? here : groups) * heads;
                n_outputs += first ? heads : 0;
                device_blocks[device] += first ? heads : 0;
                if (first) last_unit[device] = u + 1;
            }
        uint64_t most_groups = 0, most_blocks = 0;
        for (uint64_t i = 0; i < t.n_devices; i++) {
            CHECK(in_device[i] <= in_device[0]);
            if (device_groups[i] > most_groups) most_groups = device_groups[i];
            if (device_blocks[i] > most_blocks) most_blocks = device_blocks[i];
        }
        CHECK_U(l.groups, n_groups);
        CHECK_U(l.device_groups, most_groups);
        CHECK_U(l.device_blocks, most_blocks);
        CHECK_U(l.device_outputs, n_outputs);
        for (uint64_t i = 0; i < channels; i++)
            CHECK(on[i] <= on[0]);
        CHECK_U(l.tokens, sum);
        CHECK_U(l.device_tokens, in_device[0]);
        CHECK_U(l.n_queries, 2);
        uint64_t on_channel = 0;
        for (size_t i = 0; i < l.n_blocks; i++)
            on_channel += blocks[i] * groups;
        if (!CHECK(on_channel >= on[0] && on_channel < on[0] + (l.n_blocks + 1) * groups)) return;
        uint64_t token_bytes = s.n_kv_heads * 256;
        if (flash) CHECK(l.pages * t.device.flash_page_bytes >= sum / s.n_kv_heads * token_bytes);
        if (flash) CHECK(l.channel_pages * channels >= l.pages);
        if (n == 0) CHECK(time_of(&t, &s, &l).ns == 0);
    }
}

/* 4 tokens of LLaMA3-70B's layer in a page: read alone, each takes a page. */
static void scattered_tokens_read_whole_pages(void)
{
    pimattn_tier t = tier_of("pam-ssd", 1);
    pimattn_shape s = layer_of(64, 8, 128);
    uint64_t tokens = 800, blocks[8];
    pimattn_tier_load dense, scattered;
    CHECK_U(pimattn_tier_spread(&dense, blocks, &t, &s, &tokens, 1, false, &why), PIMATTN_OK);
    pimattn_tier_reading a = time_of(&t, &s, &dense);
    CHECK_U(pimattn_tier_spread(&scattered, blocks, &t, &s, &tokens, 1, true, &why), PIMATTN_OK);
    pimattn_tier_reading b = time_of(&t, &s, &scattered);
    CHECK_U(a.kv_bytes, 800 * 4096);
    CHECK_U(a.read_bytes, 200 * 16384);
    CHECK_U(b.read_bytes, 4 * a.read_bytes);
    CHECK_NEAR(b.program_ns, 25 * 30000 + 4 * 16384 / 2.4, 0.01); /* 100 pages a channel */
}

/* Rows of K and of V in one loop: what repeats is not walked, however long the context. */
static void long_loads_are_skipped(void)
{
    static const char *const presets[] = {"pam-hbm3", "pam-ddr4", "aimx"};
    pimattn_shape s = layer_of(8, 1, 128);
    for (int i = 0; i < 3; i++) {
        pimattn_tier t = tier_of(presets[i], 1);
        uint64_t tokens = UINT64_C(1) << 26;
        pimattn_tier_load l = load_of(&tokens, 1, 8, &t);
        pimattn_tier_reading r = time_of(&t, &s, &l);
        CHECK(r.device.skipped_rounds > 1000 * r.device.walked_rounds);
    }
}

static void bad_input_is_named(void)
{
    pimattn_tier t = tier_of("pam-hbm3", 1), bad;
    pimattn_shape s = layer_of(8, 1, 128), wrong = s;
    uint64_t tokens[2] = {5, 9}, blocks[16];
    pimattn_tier_load l = load_of(tokens, 2, 8, &t), no = l;
    pimattn_tier_reading r, before;
    memset(&r, 0x5a, sizeof r);
    before = r;
    CHECK_U(pimattn_tier_time(&r, NULL, &s, &l, &why), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_tier_time(NULL, &t, &s, &l, &why), PIMATTN_ERR_ARGUMENT);
#define BAD(status, word, ...)                                                                     \
    do {                                                                                           \
        bad = t, wrong = s, no = l;                                                                \
        __VA_ARGS__;                                                                               \
        CHECK_U(pimattn_tier_time(&r, &bad, &wrong, &no, &why), status);                           \
        CHECK_HAS(why.text, word);                                                                 \
    } while (0)
    BAD(PIMATTN_ERR_CONFIG, "n_devices", bad.n_devices = 0);
    BAD(PIMATTN_ERR_CONFIG, "tRP", bad.device.tRP = 0);
    BAD(PIMATTN_ERR_CONFIG, "shape.head_dim", wrong.head_dim = 0);
    BAD(PIMATTN_ERR_CONFIG, "17 columns", wrong.head_dim = 257);
    BAD(PIMATTN_ERR_CONFIG, "v_in_k", wrong.v_in_k = true);
    BAD(PIMATTN_ERR_CONFIG, "n_queries", no.n_queries = 0);
    BAD(PIMATTN_ERR_CONFIG, "n_queries is 65536, not 1 to 65535", no.n_queries = 65536);
    BAD(PIMATTN_ERR_CONFIG, "n_blocks", no.blocks = NULL);
    BAD(PIMATTN_ERR_CONFIG, "load: 112 tokens in its fullest part, 1 in all", no.tokens = 1);
    BAD(PIMATTN_ERR_CONFIG, "load: 0 groups", no.device_groups = 0);
    BAD(PIMATTN_ERR_CONFIG, "load: 0 pages", pimhw_config_init(&bad.device, "pam-ssd", NULL));
    BAD(PIMATTN_ERR_CONFIG, "tokens of a block", tokens[1] = 0);
    BAD(PIMATTN_ERR_DEVICE, "2^28 rounds", (wrong.head_dim = 256, tokens[1] = UINT32_MAX / 2));
    tokens[1] = 9;
    CHECK_BYTES(&r, &before, sizeof r);
    no = l, no.n_queries = 65535;
    CHECK(time_of(&t, &s, &no).ns > 0);
    CHECK_U(pimattn_tier_spread(&no, blocks, &t, &s, tokens, 2, false, &why), PIMATTN_ERR_CONFIG);
    CHECK_HAS(why.text, "tokens of a sequence is 9");
    for (uint64_t at = 1; at <= 3; at++) {
        check_heap heap;
        memset(&heap, 0, sizeof heap);
        heap.fail_at = at;
        bad = t;
        bad.device.allocator = heap_allocator(&heap);
        uint32_t status = pimattn_tier_time(&r, &bad, &s, &l, &why);
        CHECK_U(status, at < 3 ? PIMATTN_ERR_MEMORY : PIMATTN_OK);
        CHECK_U(heap.live_bytes, 0);
    }
}

/* Channels of flash that share a unit give a partial each, as those with a unit of their own. */
static void channels_that_share_a_unit_give_a_partial_each(void)
{
    uint64_t tokens[2] = {900, 300}, blocks[16];
    pimattn_shape s = layer_of(32, 8, 128);
    pimattn_tier_reading r[2];
    for (int own = 0; own < 2; own++) {
        pimattn_tier t = tier_of("pam-ssd", 1);
        pimattn_tier_load l;
        t.device.flash_units = own ? t.device.n_channels : 1;
        CHECK_U(pimattn_tier_spread(&l, blocks, &t, &s, tokens, 2, false, &why), PIMATTN_OK);
        r[own] = time_of(&t, &s, &l);
    }
    CHECK_U(r[0].bare_bytes, r[1].bare_bytes);
    CHECK_U(r[0].group_bytes, r[1].group_bytes);
    CHECK_U(r[0].link_bytes, r[1].link_bytes);
    CHECK(r[0].link_work_ns == r[1].link_work_ns);
}

/* Units of flash that take longer than its pages set the time. */
static void slow_units_of_flash_show(void)
{
    uint64_t tokens = 900, blocks[8];
    pimattn_tier t = tier_of("pam-ssd", 1);
    pimattn_shape s = layer_of(32, 8, 128);
    pimattn_tier_load l;
    t.device.flash_units = t.device.unit_MHz = 1;
    CHECK_U(pimattn_tier_spread(&l, blocks, &t, &s, &tokens, 1, false, &why), PIMATTN_OK);
    double macs = 900.0 * 8 * 4 * 2 * 128, lanes = pimhw_config_lanes(&t.device);
    CHECK_NEAR(time_of(&t, &s, &l).program_ns, macs / lanes * 1e3, 1e-3);
}

/* Units wait for the first block of queries alone: the others come while they work. */
static void blocks_of_queries_follow_one_another(void)
{
    uint64_t tokens = 4096;
    pimattn_tier t = tier_of("pam-hbm3", 1);
    pimattn_shape s = layer_of(1, 1, 128);
    pimattn_tier_load l = load_of(&tokens, 1, 2, &t);
    pimattn_tier_reading two = time_of(&t, &s, &l); /* of 8 columns each in 16 entries */
    l.n_queries = 8;
    pimattn_tier_reading eight = time_of(&t, &s, &l);
    CHECK(two.input_ns > 0);
    CHECK_NEAR(eight.input_ns, two.input_ns, 1e-6);
    CHECK_NEAR(eight.link_work_ns, 4 * two.link_work_ns, 1e-6);
}

/* A unit of a tier has the lanes it has: int8 is timed as f16 is. */
static void the_type_of_pages_is_not_that_of_lanes(void)
{
    static const char *const presets[] = {"pam-hbm3", "pam-ddr4", "pam-ssd"};
    uint64_t tokens[2] = {900, 300}, blocks[16];
    for (size_t i = 0; i < 3; i++) {
        pimattn_tier t = tier_of(presets[i], 1);
        pimattn_shape s = layer_of(32, 8, 128);
        pimattn_tier_load l;
        pimattn_tier_reading r[2];
        for (int n = 0; n < 2; n++) {
            s.k_type = s.v_type = n ? PIMATTN_INT8 : PIMATTN_F16;
            CHECK_U(pimattn_tier_spread(&l, blocks, &t, &s, tokens, 2, false, &why), PIMATTN_OK);
            r[n] = time_of(&t, &s, &l);
        }
        CHECK(r[1].ns == r[0].ns);
        CHECK_U(r[1].kv_bytes, r[0].kv_bytes);
        CHECK_U(r[0].kv_bytes, (uint64_t)1200 * 8 * 2 * 128 * t.device.element_bytes);
    }
}

int main(void)
{
    RUN(the_type_of_pages_is_not_that_of_lanes);
    RUN(counts_of_PAM);
    RUN(relayouts_of_PAM_and_FACIL);
    RUN(relayouts_are_as_fast_as_their_slowest_part);
    RUN(a_row_of_each_bank_takes_its_macs_and_its_change);
    RUN(every_column_of_a_token_is_read_once_for_each_query);
    RUN(every_sum_has_an_accumulator);
    RUN(short_programs_meet_refreshes_on_average);
    RUN(energy_is_of_all_channels);
    RUN(rows_of_keys_and_values_are_apart);
    RUN(commands_are_those_of_the_tokens);
    RUN(one_program_serves_any_load);
    RUN(more_tokens_never_take_less);
    RUN(softmax_beyond_a_change_of_rows_shows);
    RUN(reduction_units_of_PAM);
    RUN(only_the_last_reduction_shows);
    RUN(parts_of_a_step_sum_to_it);
    RUN(tiers_come_near_their_caps);
    RUN(spread_deals_every_token);
    RUN(scattered_tokens_read_whole_pages);
    RUN(slow_units_of_flash_show);
    RUN(blocks_of_queries_follow_one_another);
    RUN(channels_that_share_a_unit_give_a_partial_each);
    RUN(long_loads_are_skipped);
    RUN(bad_input_is_named);
    return check_end();
}
