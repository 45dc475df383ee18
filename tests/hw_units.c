/* [H12] Units: what every instruction does to bytes and numbers, worked out by hand; random
 * programs against an interpreter of the contract that does one instruction after the other; the
 * order of a controller that is broken on purpose; VA2PA. */
#define PIMATTN_IMPLEMENTATION
#include "attn.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { BANKS = 16, LANES = 16, COLUMNS = 8, ROWS = 8, TILES = 8, OUTS = 4, BLOCKS = 2048 };

/* A small device with its bytes. */
typedef struct rig {
    pimhw_config config;
    pimhw_device *device;
    pimhw_memory *memory;
    pimhw_units *units;
    pimhw_readings readings;
    pimhw_cause why;
} rig;

static pimhw_config rig_config(uint32_t controller)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.n_channels = 2;
    c.n_rows = ROWS;
    c.row_bytes = COLUMNS * LANES * 2;
    c.in_entries = TILES;
    c.out_entries = c.obuf = OUTS;
    c.gpr_blocks = BLOCKS;
    c.controller = controller;
    return c;
}

static rig rig_new(const pimhw_config *config)
{
    rig r;
    memset(&r, 0, sizeof r);
    r.config = *config;
    bool ok = CHECK_U(pimhw_device_create(&r.device, config, &r.why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_memory_create(&r.memory, config, PIMHW_CHUNK_AIM, &r.why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_units_create(&r.units, config, r.memory, &r.why), PIMHW_OK);
    if (!ok) {
        printf("%s\n", r.why.text);
        exit(1);
    }
    return r;
}

static void rig_free(rig *r)
{
    pimhw_units_destroy(r->units);
    pimhw_memory_destroy(r->memory);
    pimhw_device_destroy(r->device);
}

static uint16_t lane(const rig *r, double x)
{
    return pimhw_lane_round(r->config.lane_type, (float)x);
}

static double value(const rig *r, uint16_t x)
{
    return (double)pimhw_lane_value(r->config.lane_type, x);
}

static pimhw_da place_of(uint32_t channel, uint32_t bank, uint32_t row, uint32_t column)
{
    pimhw_da da = {channel, 0, bank, row, column, 0};
    return da;
}

/* Lane i of a column becomes first + i * step. */
static void put(rig *r, pimhw_da at, double first, double step)
{
    uint16_t lanes[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        lanes[i] = lane(r, first + i * step);
    CHECK_U(pimhw_memory_write(r->memory, &at, lanes, sizeof lanes, &r->why), PIMHW_OK);
}

static double get(rig *r, pimhw_da at, uint32_t i)
{
    uint16_t lanes[LANES];
    CHECK_U(pimhw_memory_read(r->memory, lanes, &at, sizeof lanes, &r->why), PIMHW_OK);
    return value(r, lanes[i]);
}

static void put_gpr(rig *r, uint32_t block, double first, double step)
{
    for (uint32_t i = 0; i < LANES; i++)
        pimhw_units_gpr(r->units, block)[i] = lane(r, first + i * step);
}

static double get_gpr(rig *r, uint32_t block, uint32_t i)
{
    return value(r, pimhw_units_gpr(r->units, block)[i]);
}

static pimhw_status run_all(rig *r, const pimhw_instruction *in, size_t n,
                            const pimhw_request *request)
{
    static pimhw_program program;
    pimhw_program_init(&program);
    for (size_t i = 0; i < n; i++) {
        pimhw_instruction its = in[i];
        if (!its.mask) its.mask = 3;
        if (!its.op_size) its.op_size = 1;
        pimhw_program_add(&program, &its);
    }
    return pimhw_device_run(r->device, &r->readings, r->units, &program, request, NULL, &r->why);
}

#define DO(r, ...)                                                                                 \
    do {                                                                                           \
        const pimhw_instruction do_[] = {__VA_ARGS__};                                             \
        if (!CHECK_U(run_all(r, do_, sizeof do_ / sizeof *do_, NULL), PIMHW_OK))                   \
            printf("  %s\n", (r)->why.text);                                                       \
    } while (0)

/* Of both channels and of one column, unless it says so. */
#define IN(...)                                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* --------------------------------------------------------------------------
 * By hand, under the controller in force.
 * -------------------------------------------------------------------------- */

static uint32_t controller_now;

static void over_controllers(void (*test)(void))
{
    for (controller_now = 0; controller_now < 4; controller_now++) {
        unsigned before = check_now.n_errors;
        test();
        if (check_now.n_errors != before)
            printf("  controller %s\n", pimhw_controller_str(controller_now));
    }
}

/* Bank b holds b + i and 1 in row 5, columns 3 and 4; inputs are i and, of channel c, 10 c + 2:
 * sum (b + i) i + 16 (10 c + 2) = 120 b + 1240 + 160 c + 32. */
static void sum_of_two_columns(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (uint32_t ch = 0; ch < 2; ch++)
        for (uint32_t b = 0; b < BANKS; b++) {
            put(&r, place_of(ch, b, 5, 3), b, 1);
            put(&r, place_of(ch, b, 5, 4), 1, 0);
        }
    put_gpr(&r, 7, 0, 1);
    put_gpr(&r, 8, 2, 0); /* distinct: channel 0 takes 8, channel 1 block 9 */
    put_gpr(&r, 9, 12, 0);
    DO(&r, IN(.kind = PIMHW_WR_GB, .tile = 2, .gpr = 7),
       IN(.kind = PIMHW_WR_GB, .tile = 3, .gpr = 8, .flags = PIMHW_DISTINCT),
       IN(.kind = PIMHW_MAC_ABK, .op_size = 2, .row = 5, .column = 3, .tile = 2, .out = 1),
       IN(.kind = PIMHW_RD_MAC, .out = 1, .gpr = 100),
       IN(.kind = PIMHW_RD_MAC, .out = 1, .gpr = 110));
    for (uint32_t ch = 0; ch < 2; ch++)
        for (uint32_t b = 0; b < BANKS; b++) {
            CHECK_NEAR(get_gpr(&r, 100 + ch, b), 120.0 * b + 1240 + 160.0 * ch + 32, b > 6 ? 1 : 0);
            CHECK_NEAR(get_gpr(&r, 110 + ch, b), 0, 0); /* reading has emptied it */
        }
    rig_free(&r);
}

/* Distinct columns lie one set of channels behind the other. */
static void distinct_inputs_of_several_columns(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (uint32_t ch = 0; ch < 2; ch++)
        for (uint32_t column = 0; column < 3; column++) {
            put(&r, place_of(ch, 0, 0, column), 1, 0);
            put_gpr(&r, 40 + 2 * column + ch, pow(4, column) * (ch + 1), 0);
        }
    DO(&r, IN(.kind = PIMHW_WR_GB, .op_size = 3, .gpr = 40, .flags = PIMHW_DISTINCT),
       IN(.kind = PIMHW_MAC_SBK, .op_size = 3), IN(.kind = PIMHW_RD_MAC, .gpr = 100));
    CHECK_NEAR(get_gpr(&r, 100, 0), 16 * 21, 0);
    CHECK_NEAR(get_gpr(&r, 101, 0), 2 * 16 * 21, 0);
    CHECK_NEAR(get_gpr(&r, 100, 1), 0, 0); /* MAC_SBK: one bank only */
    rig_free(&r);
}

/* 2^24 + 1 in pairs is 2^24 (even), but the pairs of ones beside it are 2, then 4, then 8: the tree
 * gives 2^24 + 14, one after the other would stay at 2^24; the next column's 3 makes 2^24 + 17,
 * a tie, to the even 2^24 + 16. */
static void sums_are_a_tree_and_f32(void)
{
    pimhw_config c = rig_config(controller_now);
    c.out_bits = 32;
    rig r = rig_new(&c);
    put(&r, place_of(0, 4, 1, 0), 1, 0);
    put(&r, place_of(0, 4, 1, 1), 1, 0);
    put_gpr(&r, 0, 1, 0);
    put_gpr(&r, 1, 0, 0);
    pimhw_da first = place_of(0, 4, 1, 0);
    uint16_t big = lane(&r, 4096), three = lane(&r, 3);
    CHECK_U(pimhw_memory_write(r.memory, &first, &big, 2, NULL), PIMHW_OK);
    pimhw_units_gpr(r.units, 0)[0] = big;
    pimhw_units_gpr(r.units, 1)[9] = three;
    DO(&r, IN(.kind = PIMHW_WR_GB, .op_size = 2), IN(.kind = PIMHW_MAC_ABK, .row = 1, .mask = 1),
       IN(.kind = PIMHW_RD_MAC, .gpr = 10, .mask = 1),
       IN(.kind = PIMHW_MAC_ABK, .op_size = 2, .row = 1, .mask = 1),
       IN(.kind = PIMHW_RD_MAC, .gpr = 20, .mask = 1));
    float sums[BANKS];
    memcpy(sums, pimhw_units_gpr(r.units, 10), sizeof sums);
    CHECK_NEAR(sums[4], 0x1p24 + 14, 0);
    memcpy(sums, pimhw_units_gpr(r.units, 20), sizeof sums);
    CHECK_NEAR(sums[4], 0x1p24 + 16, 0);
    CHECK_NEAR(sums[5], 0, 0);
    rig_free(&r);
}

/* The AiM dialect: the bias is where a sum begins, and a read leaves it as it is. */
static void bias_begins_a_sum(void)
{
    pimhw_config c = rig_config(controller_now);
    c.out_clear = PIMHW_CLEAR_BIAS;
    rig r = rig_new(&c);
    for (uint32_t b = 0; b < BANKS; b++)
        put(&r, place_of(1, b, 2, 0), b, 0);
    put_gpr(&r, 0, 1, 0);
    put_gpr(&r, 1, 5, 1);
    DO(&r, IN(.kind = PIMHW_WR_GB, .mask = 2), IN(.kind = PIMHW_WR_BIAS, .gpr = 1, .mask = 2),
       IN(.kind = PIMHW_MAC_ABK, .row = 2, .mask = 2),
       IN(.kind = PIMHW_RD_MAC, .gpr = 10, .mask = 2),
       IN(.kind = PIMHW_SYNC), /* ping-pong reads beside MACs: refused, were it the same sum */
       IN(.kind = PIMHW_MAC_ABK, .row = 2, .mask = 2),
       IN(.kind = PIMHW_RD_MAC, .gpr = 20, .mask = 2),
       IN(.kind = PIMHW_WR_BIAS, .gpr = 1, .mask = 2), IN(.kind = PIMHW_SYNC),
       IN(.kind = PIMHW_RD_MAC, .gpr = 30, .mask = 2));
    for (uint32_t b = 0; b < BANKS; b++) {
        CHECK_NEAR(get_gpr(&r, 11, b), 5.0 + b + 16 * b, 0); /* of channel 1: one block further */
        CHECK_NEAR(get_gpr(&r, 21, b), 5.0 + b + 32 * b, 0);
        CHECK_NEAR(get_gpr(&r, 31, b), 5.0 + b, 0);
    }
    rig_free(&r);
}

/* One bank holds high and low in two lanes, which meet the input: the sum and what is read of it.
 * 2049 and 2051 are ties of a half, 65519 is the last before infinity; 65792 is a tie of bf16. */
static void reads_round_to_the_lane(void)
{
    static const struct {
        uint32_t type;
        double high, low, input, read;
    } t[] = {{PIMHW_LANE_F16, 2048, 1, 1, 2048},
             {PIMHW_LANE_F16, 2048, 3, 1, 2052},
             {PIMHW_LANE_F16, 0x1p-12, 0, 0x1p-12, 0x1p-24},
             {PIMHW_LANE_F16, 0x1p-13, 0, 0x1p-12, 0},
             {PIMHW_LANE_F16, 65504, 15, 1, 65504},
             {PIMHW_LANE_F16, 65504, 16, 1, HUGE_VAL},
             {PIMHW_LANE_BF16, 256, 1, 256, 65536},
             {PIMHW_LANE_BF16, 256, 3, 256, 66560},
             {PIMHW_LANE_BF16, 0x1p-13, 0, 0x1p-12, 0x1p-25},
             {PIMHW_LANE_BF16, -65536, 1, 1, -65536}};
    for (uint32_t i = 0; i < sizeof t / sizeof *t; i++) {
        pimhw_config c = rig_config(controller_now);
        c.lane_type = t[i].type;
        rig r = rig_new(&c);
        uint16_t lanes[LANES] = {lane(&r, t[i].high), lane(&r, t[i].low)};
        pimhw_da at = place_of(0, i, 0, 0);
        CHECK_U(pimhw_memory_write(r.memory, &at, lanes, sizeof lanes, NULL), PIMHW_OK);
        put_gpr(&r, 0, t[i].input, 0);
        DO(&r, IN(.kind = PIMHW_WR_GB), IN(.kind = PIMHW_MAC_SBK, .bank = i, .mask = 1),
           IN(.kind = PIMHW_RD_MAC, .gpr = 10, .mask = 1));
        CHECK_NEAR(get_gpr(&r, 10, i), t[i].read, 0);
        rig_free(&r);
    }
}

/* Of bank groups of 4: banks 0 and 1 into bank 2, lane by lane. */
static void products_of_banks(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (uint32_t b = 0; b < BANKS; b++)
        put(&r, place_of(0, b, 3, 6), b + 1, 0.5);
    DO(&r, IN(.kind = PIMHW_EWMUL, .op_size = 2, .row = 3, .column = 6, .mask = 1));
    for (uint32_t b = 0; b < BANKS; b++)
        for (uint32_t i = 0; i < LANES; i++) {
            double x = b / 4 * 4 + 1 + i * 0.5, own = b + 1 + i * 0.5;
            CHECK_NEAR(get(&r, place_of(0, b, 3, 6), i), b % 4 == 2 ? x * (x + 1) : own, 0);
        }
    rig_free(&r);
}

static void af_goes_by_samples(void)
{
    static float squares[PIMHW_AF_SAMPLES], doubles[PIMHW_AF_SAMPLES];
    pimhw_config c = rig_config(controller_now);
    c.out_bits = 32;
    rig r = rig_new(&c);
    for (int i = 0; i < PIMHW_AF_SAMPLES; i++) {
        double x = (i - PIMHW_AF_SAMPLES / 2) / (double)PIMHW_AF_PER_ONE;
        squares[i] = (float)(x * x);
        doubles[i] = (float)(2 * x);
    }
    CHECK_U(pimhw_units_af(r.units, 3, squares), PIMHW_OK);
    CHECK_U(pimhw_units_af(r.units, 7, doubles), PIMHW_OK);
    CHECK_U(pimhw_units_af(r.units, PIMHW_AF_MODES, doubles), PIMHW_ERR_ARGUMENT);
    for (uint32_t b = 0; b < BANKS; b++)
        put(&r, place_of(0, b, 0, 0), (b - 8.0) + (b == 3 ? 1.0 / 128 : 0), 0);
    uint16_t *one = pimhw_units_gpr(r.units, 0);
    one[2] = lane(&r, 1.25);
    DO(&r, IN(.kind = PIMHW_WR_GB, .mask = 1), IN(.kind = PIMHW_MAC_ABK, .mask = 1),
       IN(.kind = PIMHW_CFR, .out = 1, .aux = 2, .gpr = 3), IN(.kind = PIMHW_AF, .mask = 1),
       IN(.kind = PIMHW_RD_AF, .gpr = 10, .mask = 1),
       IN(.kind = PIMHW_CFR, .out = 1, .aux = 2, .gpr = 7), IN(.kind = PIMHW_AF, .mask = 1),
       IN(.kind = PIMHW_RD_AF, .gpr = 20, .mask = 1),
       IN(.kind = PIMHW_RD_MAC, .gpr = 30, .mask = 1));
    float squared[BANKS], doubled[BANKS], sums[BANKS];
    memcpy(squared, pimhw_units_gpr(r.units, 10), sizeof squared);
    memcpy(doubled, pimhw_units_gpr(r.units, 20), sizeof doubled);
    memcpy(sums, pimhw_units_gpr(r.units, 30), sizeof sums);
    for (uint32_t b = 0; b < BANKS; b++) {
        double x = 1.25 * value(&r, lane(&r, (b - 8.0) + (b == 3 ? 1.0 / 128 : 0)));
        double low = fmin(fmax(floor(x * 64), -512), 511) / 64, high = low + 1.0 / 64;
        double line = low * low + (x - low) * 64 * (high * high - low * low);
        CHECK_NEAR(sums[b], x, 0);
        CHECK_NEAR(doubled[b], 2 * x, 0);
        CHECK_NEAR(squared[b], line, 2e-5);
        if (b == 3) CHECK(fabs((double)squared[b] - x * x) > 1e-5); /* it is a line, no square */
    }
    DO(&r, IN(.kind = PIMHW_RD_AF, .gpr = 10, .mask = 1)); /* of another run */
    memcpy(squared, pimhw_units_gpr(r.units, 10), sizeof squared);
    for (uint32_t b = 0; b < BANKS; b++)
        CHECK_NEAR(squared[b], 0, 0);
    rig_free(&r);
}

/* A line to both ends, and the corner of it: of sums as small and as large as there are. */
static void af_of_any_sum_is_on_the_line(void)
{
    static float relu[PIMHW_AF_SAMPLES], ones[PIMHW_AF_SAMPLES];
    static const float xs[BANKS] = {0,        -0x1p-60f, 0x1p-60f, -0x1p-16f, 0x1p-16f, -0x1p-7f,
                                    -8,       8,         -9,       100,       0x1p60f,  -0x1p60f,
                                    0x1p122f, -0x1p122f, 0x1p127f, -0x1p127f};
    pimhw_config c = rig_config(controller_now);
    c.lane_type = PIMHW_LANE_BF16;
    c.out_bits = 32;
    rig r = rig_new(&c);
    for (int i = 0; i < PIMHW_AF_SAMPLES; i++) {
        relu[i] = fmaxf(0, (float)(i - PIMHW_AF_SAMPLES / 2) / PIMHW_AF_PER_ONE);
        ones[i] = 1;
    }
    CHECK_U(pimhw_units_af(r.units, 3, relu), PIMHW_OK);
    CHECK_U(pimhw_units_af(r.units, 7, ones), PIMHW_OK);
    for (uint32_t b = 0; b < BANKS; b++)
        put(&r, place_of(0, b, 0, 0), (double)xs[b], 0);
    pimhw_units_gpr(r.units, 0)[2] = lane(&r, 1);
    DO(&r, IN(.kind = PIMHW_WR_GB, .mask = 1), IN(.kind = PIMHW_MAC_ABK, .mask = 1),
       IN(.kind = PIMHW_CFR, .out = 1, .aux = 2, .gpr = 3), IN(.kind = PIMHW_AF, .mask = 1),
       IN(.kind = PIMHW_RD_AF, .gpr = 10, .mask = 1),
       IN(.kind = PIMHW_CFR, .out = 1, .aux = 2, .gpr = 7), IN(.kind = PIMHW_AF, .mask = 1),
       IN(.kind = PIMHW_RD_AF, .gpr = 20, .mask = 1));
    float kept[BANKS], one[BANKS];
    memcpy(kept, pimhw_units_gpr(r.units, 10), sizeof kept);
    memcpy(one, pimhw_units_gpr(r.units, 20), sizeof one);
    for (uint32_t b = 0; b < BANKS; b++) {
        CHECK(kept[b] == fmaxf(0, xs[b]));
        CHECK(one[b] == 1);
    }
    rig_free(&r);
}

/* GPR to a bank and, of one channel, to all; bank to tile and back; bank to GPR. */
static void columns_move_by(uint32_t front_end)
{
    pimhw_config c = rig_config(controller_now);
    c.front_end = front_end;
    rig r = rig_new(&c);
    for (uint32_t b = 0; b < BANKS; b++)
        put_gpr(&r, 50 + b, 100 + b, 1);
    DO(&r, IN(.kind = PIMHW_WR_ABK, .gpr = 50, .row = 1, .column = 2, .mask = 2),
       IN(.kind = PIMHW_WR_SBK, .gpr = 53, .bank = 9, .row = 1, .column = 4, .mask = 3),
       IN(.kind = PIMHW_MEM_WR, .gpr = 54, .bank = 9, .row = 1, .column = 5, .mask = 2),
       IN(.kind = PIMHW_SYNC), IN(.kind = PIMHW_WR_GB, .op_size = 3, .gpr = 60),
       IN(.kind = PIMHW_COPY_BKGB, .op_size = 2, .bank = 9, .row = 1, .column = 4, .tile = 1),
       IN(.kind = PIMHW_COPY_GBBK, .op_size = 3, .bank = 0, .row = 2, .column = 0),
       IN(.kind = PIMHW_SYNC),
       IN(.kind = PIMHW_RD_SBK, .gpr = 80, .bank = 0, .row = 2, .column = 1),
       IN(.kind = PIMHW_MEM_RD, .gpr = 90, .bank = 7, .row = 1, .column = 2));
    for (uint32_t b = 0; b < BANKS; b++) {
        CHECK_NEAR(get(&r, place_of(1, b, 1, 2), 5), 105.0 + b, 0);
        CHECK_NEAR(get(&r, place_of(0, b, 1, 2), 5), 0, 0);
    }
    CHECK_NEAR(get(&r, place_of(0, 9, 1, 4), 1), 104, 0);
    CHECK_NEAR(get(&r, place_of(1, 0, 2, 0), 0), 110, 0); /* from GPR block 60 */
    CHECK_NEAR(get(&r, place_of(1, 0, 2, 1), 0), 103,
               0); /* over the tile that was written before */
    CHECK_NEAR(get(&r, place_of(1, 0, 2, 2), 0), 104, 0);
    CHECK_NEAR(get(&r, place_of(0, 0, 2, 2), 0), 0, 0);
    CHECK_NEAR(get_gpr(&r, 80, 3), 106, 0); /* to gpr + channel */
    CHECK_NEAR(get_gpr(&r, 81, 3), 106, 0);
    CHECK_NEAR(get_gpr(&r, 90, 3), 0, 0);
    CHECK_NEAR(get_gpr(&r, 91, 3), 110, 0);
    rig_free(&r);
}

static void columns_move(void)
{
    columns_move_by(PIMHW_PER_CHANNEL);
    if (controller_now == PIMHW_IN_ORDER) columns_move_by(PIMHW_SHARED);
}

static void registers_add(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    put_gpr(&r, 3, 1, 1);
    put_gpr(&r, 4, 2048, 0);
    put_gpr(&r, 30, 10, 0);
    put_gpr(&r, 31, 1, 0);
    DO(&r, IN(.kind = PIMHW_EWADD, .op_size = 2, .gpr = 3, .aux = 30));
    for (uint32_t i = 0; i < LANES; i++) {
        CHECK_NEAR(get_gpr(&r, 3, i), 11.0 + i, 0);
        CHECK_NEAR(get_gpr(&r, 4, i), 2048, 0); /* 2049 is a tie */
        CHECK_NEAR(get_gpr(&r, 30, i), 10, 0);
    }
    rig_free(&r);
}

/* What the host changes between two runs is what the second one finds; what CFR was told in the
 * first is forgotten, and a CFR that reads tells nothing. */
static void runs_begin_anew(void)
{
    static float threes[PIMHW_AF_SAMPLES];
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (int i = 0; i < PIMHW_AF_SAMPLES; i++)
        threes[i] = 3;
    CHECK_U(pimhw_units_af(r.units, 1, threes), PIMHW_OK);
    put_gpr(&r, 0, 1, 0);
    for (uint32_t run = 0; run < 2; run++) {
        const pimhw_instruction in[] = {IN(.kind = PIMHW_CFR, .out = 1 - run, .aux = 2, .gpr = 1),
                                        IN(.kind = PIMHW_CFR, .out = 0, .aux = 0,
                                           .gpr = 0), /* else banks would be multiplied */
                                        IN(.kind = PIMHW_WR_GB),
                                        IN(.kind = PIMHW_MAC_ABK, .row = 2, .column = 1),
                                        IN(.kind = PIMHW_AF),
                                        IN(.kind = PIMHW_RD_AF, .gpr = 20),
                                        IN(.kind = PIMHW_RD_MAC, .gpr = 10)};
        put(&r, place_of(1, 4, 2, 1), run + 2, 0);
        CHECK_U(run_all(&r, in, sizeof in / sizeof *in, NULL), PIMHW_OK);
        CHECK_NEAR(get_gpr(&r, 11, 4), 16 * (run + 2), 0);
        CHECK_NEAR(get_gpr(&r, 21, 4), run ? 0 : 3, 0);
    }
    rig_free(&r);
}

/* A sum that nobody has read keeps its accumulator over a SYNC, and goes on after it. */
static void sums_outlive_a_sync(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (uint32_t column = 0; column < 3; column++)
        put(&r, place_of(1, 4, 0, column), column + 1, 0);
    put_gpr(&r, 0, 1, 0);
    DO(&r, IN(.kind = PIMHW_WR_GB), IN(.kind = PIMHW_MAC_ABK, .column = 0, .out = 2),
       IN(.kind = PIMHW_SYNC), IN(.kind = PIMHW_MAC_ABK, .column = 1, .out = 0),
       IN(.kind = PIMHW_RD_MAC, .out = 0, .gpr = 10), IN(.kind = PIMHW_SYNC),
       IN(.kind = PIMHW_MAC_ABK, .column = 2, .out = 2),
       IN(.kind = PIMHW_RD_MAC, .out = 2, .gpr = 20));
    CHECK_NEAR(get_gpr(&r, 11, 4), 16 * 2, 0);
    CHECK_NEAR(get_gpr(&r, 21, 4), 16 * (1 + 3), 0);
    rig_free(&r);
}

/* Column 2^16 of row 0 is not column 0 of row 1, though 2^16 columns are fewer than a row has. */
static void long_rows_are_told_apart(void)
{
    pimhw_config c = rig_config(controller_now);
    c.row_bytes = 1u << 20, c.column_bytes = 8;
    c.n_bank_groups = c.n_group_banks = 1;
    rig r = rig_new(&c);
    const uint16_t one = lane(&r, 1), two = lane(&r, 2);
    const pimhw_da far = place_of(1, 0, 0, 1u << 16), near = place_of(1, 0, 1, 0);
    CHECK_U(pimhw_memory_write(r.memory, &far, &one, 2, &r.why), PIMHW_OK);
    CHECK_U(pimhw_memory_write(r.memory, &near, &two, 2, &r.why), PIMHW_OK);
    pimhw_units_gpr(r.units, 0)[0] = one;
    DO(&r, IN(.kind = PIMHW_WR_GB), IN(.kind = PIMHW_MAC_ABK, .column = 1u << 16),
       IN(.kind = PIMHW_RD_MAC, .gpr = 10), IN(.kind = PIMHW_MAC_ABK, .row = 1),
       IN(.kind = PIMHW_RD_MAC, .gpr = 20));
    CHECK_NEAR(value(&r, pimhw_units_gpr(r.units, 11)[0]), 1, 0);
    CHECK_NEAR(value(&r, pimhw_units_gpr(r.units, 21)[0]), 2, 0);
    rig_free(&r);
}

static void under_every_controller(void)
{
    over_controllers(sum_of_two_columns);
    over_controllers(distinct_inputs_of_several_columns);
    over_controllers(sums_are_a_tree_and_f32);
    over_controllers(bias_begins_a_sum);
    over_controllers(reads_round_to_the_lane);
    over_controllers(products_of_banks);
    over_controllers(af_goes_by_samples);
    over_controllers(af_of_any_sum_is_on_the_line);
    over_controllers(columns_move);
    over_controllers(registers_add);
    over_controllers(runs_begin_anew);
    over_controllers(sums_outlive_a_sync);
    over_controllers(long_rows_are_told_apart);
}

/* --------------------------------------------------------------------------
 * Lanes.
 * -------------------------------------------------------------------------- */

/* A lane's value from its bits, by definition. */
static double defined_value(uint32_t type, uint16_t x)
{
    int bits = type == PIMHW_LANE_F16 ? 10 : 7, bias = type == PIMHW_LANE_F16 ? 15 : 127;
    int exponent = (x & 0x7fff) >> bits, rest = x & ((1 << bits) - 1);
    double r =
        exponent ? ldexp((1 << bits) + rest, exponent - bias - bits) : ldexp(rest, 1 - bias - bits);
    if (exponent == 2 * bias + 1) r = rest ? (double)NAN : HUGE_VAL;
    return x & 0x8000 ? -r : r;
}

static bool is_nan_lane(uint32_t type, uint16_t x)
{
    return (x & 0x7fff) > (type == PIMHW_LANE_F16 ? 0x7c00 : 0x7f80);
}

/* Their bits, where the host takes subnormal floats for 0, too: those of f16 are normal in f32. */
static void lanes_do_not_hang_on_the_host(void)
{
#ifdef __SSE2__
    static uint32_t bits[2][0x10000];
    const uint32_t usual = _mm_getcsr(), zeros = 0x8040; /* flushed, and read as 0 */
    for (uint32_t mode = 0; mode < 2; mode++) {
        _mm_setcsr(mode ? usual | zeros : usual);
        for (uint32_t i = 0; i <= 0xffff; i++) {
            float is = pimhw_lane_value(PIMHW_LANE_F16, (uint16_t)i);
            memcpy(&bits[mode][i], &is, sizeof is);
        }
    }
    _mm_setcsr(usual);
    CHECK_BYTES(bits[0], bits[1], sizeof bits[0]);
#else
    skip("not a CPU of which this test knows how to set that");
#endif
}

/* All lanes there and back, and what lies half-way between two, and just beside it. */
static void every_lane_and_every_tie(void)
{
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t i = 0; i <= 0xffff; i++) {
            uint16_t x = (uint16_t)i;
            float is = pimhw_lane_value(type, x);
            double wanted = defined_value(type, x);
            if (is_nan_lane(type, x)) {
                const uint16_t quiet = type == PIMHW_LANE_F16 ? 0x200 : 0x40;
                CHECK(isnan(is));
                CHECK_U(pimhw_lane_round(type, is), x | quiet);
                continue;
            }
            CHECK(!isnan(is) && (double)is == wanted && (signbit(is) != 0) == (x >> 15));
            CHECK_U(pimhw_lane_round(type, is), x);
            uint16_t up = (uint16_t)(i + 1);
            double next = defined_value(type, up);
            if ((x & 0x7fff) == 0x7fff || isinf(is)) continue;
            if (isinf(next))
                next = ldexp(wanted < 0 ? -1.0 : 1.0, type == PIMHW_LANE_F16 ? 16 : 128);
            float middle = (float)(wanted / 2 + next / 2);
            CHECK_U(pimhw_lane_round(type, middle), x & 1 ? up : x);
            CHECK_U(pimhw_lane_round(type, nextafterf(middle, is)), x);
            CHECK_U(pimhw_lane_round(type,
                                     nextafterf(middle, is < 0 || x >> 15 ? -INFINITY : INFINITY)),
                    up);
        }
}

/* Of any length, from and to any address, each lane as it is alone; nothing beside them moves. */
static void arrays_are_their_lanes(void)
{
    enum { MOST = 70 };
    check_rng rng = {0xa44a7};
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t type = i % 2, n = i / 2 % MOST, at = (uint32_t)rng_range(&rng, 1, 7);
        uint8_t values[4 * MOST + 16], lanes[2 * MOST + 16], back[4 * MOST + 16];
        memset(lanes, 0x5a, sizeof lanes);
        memset(back, 0x5a, sizeof back);
        for (uint32_t j = 0; j < n; j++) {
            float x = bits_float((uint32_t)rng_u64(&rng));
            if (j % 3) x = rng_float(&rng, -1, 1) * ldexpf(1.0f, (int)rng_range(&rng, 0, 45) - 28);
            const uint32_t most = (uint32_t)rng_range(&rng, 0x38000000u, 0x47ffffffu);
            if (i % 4 > 1) x = bits_float(most | (uint32_t)(rng_u64(&rng) & 0x80000000u));
            memcpy(values + at + 4 * j, &x, sizeof x);
        }
        pimhw_lanes_round(type, lanes + at, values + at, n);
        pimhw_lanes_value(type, back + at, lanes + at, n);
        for (uint32_t j = 0; j < n; j++) {
            float x;
            memcpy(&x, values + at + 4 * j, sizeof x);
            const uint16_t lane = pimhw_lane_round(type, x);
            CHECK_BYTES(lanes + at + 2 * j, &lane, sizeof lane);
            x = pimhw_lane_value(type, lane);
            CHECK_BYTES(back + at + 4 * j, &x, sizeof x);
        }
        CHECK(lanes[at - 1] == 0x5a && lanes[at + 2 * n] == 0x5a);
        CHECK(back[at - 1] == 0x5a && back[at + 4 * n] == 0x5a);
    }
}

static void any_float_rounds_as_defined(void)
{
    check_rng rng = {0xf10a7};
    for (uint32_t i = 0; i < 400000; i++) {
        float x = bits_float((uint32_t)rng_u64(&rng));
        if (i % 2) x = (float)(rng_unit(&rng) * pow(2, (double)rng_range(&rng, 0, 45) - 28));
        if (!isfinite(x)) continue;
        CHECK((double)pimhw_lane_value(0, pimhw_lane_round(0, x)) == half_round((double)x));
        float brain = pimhw_lane_value(1, pimhw_lane_round(1, x));
        if (fabsf(x) < 0x1.ff0000p127f) CHECK((double)brain == brain_round(x));
    }
    for (uint32_t type = 0; type < 2; type++) {
        /* a NaN by bits that no lane has */
        CHECK(is_nan_lane(type, pimhw_lane_round(type, bits_float(0x7f800001))));
        CHECK(pimhw_lane_value(type, pimhw_lane_round(type, FLT_MAX)) == INFINITY);
        CHECK(pimhw_lane_value(type, pimhw_lane_round(type, -INFINITY)) == -INFINITY);
    }
}

/* --------------------------------------------------------------------------
 * Random programs, one instruction after the other.
 * -------------------------------------------------------------------------- */

typedef struct state {
    uint32_t type, out_bits, out_clear, af_mode;
    bool neighbours; /* CFR 0: MACs multiply banks 2 i and 2 i + 1 */
    uint16_t bank[2][ROWS][BANKS][COLUMNS][LANES];
    float tile[2][TILES][LANES];
    float sum[2][OUTS][BANKS], af[2][OUTS][BANKS];
    uint32_t named[2][OUTS]; /* gpr of the MAC that began the sum, plus 1 */
    uint16_t gpr[BLOCKS][LANES];
    float samples[PIMHW_AF_MODES][PIMHW_AF_SAMPLES];
} state;

static state plain;

static float up_to(uint16_t x)
{
    return pimhw_lane_value(plain.type, x);
}

static void plain_mac(const pimhw_instruction *in, uint32_t ch)
{
    bool one = in->kind == PIMHW_MAC_SBK;
    for (uint32_t c = 0; c < in->op_size; c++)
        for (uint32_t b = one ? in->bank : 0; b <= (one ? in->bank : BANKS - 1); b++) {
            const uint16_t *from = plain.bank[ch][in->row][b][in->column + c];
            const uint16_t *other = plain.bank[ch][in->row][b ^ 1][in->column + c];
            const float *tile = plain.tile[ch][in->tile + c];
            float x[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = up_to(from[i]) * (plain.neighbours ? up_to(other[i]) : tile[i]);
            for (uint32_t n = LANES; n > 1; n /= 2)
                for (uint32_t i = 0; i < n / 2; i++)
                    x[i] = x[2 * i] + x[2 * i + 1];
            plain.sum[ch][in->out][b] += x[0];
        }
    if (!plain.named[ch][in->out]) plain.named[ch][in->out] = in->gpr + 1;
}

static void plain_read(const pimhw_instruction *in, uint32_t ch)
{
    bool af = in->kind == PIMHW_RD_AF;
    const float *from = af ? plain.af[ch][in->out] : plain.sum[ch][in->out];
    uint32_t named = plain.named[ch][in->out], wide = plain.out_bits == 32 ? 2 : 1;
    uint16_t *to = plain.gpr[in->gpr + (named ? named - 1 : 0) + wide * ch];
    for (uint32_t b = 0; b < BANKS; b++)
        if (wide == 2)
            memcpy(to + 2 * b, &from[b], 4);
        else
            to[b] = pimhw_lane_round(plain.type, from[b]);
    if (af || plain.out_clear == PIMHW_CLEAR_BIAS) return;
    memset(plain.sum[ch][in->out], 0, sizeof plain.sum[ch][in->out]);
    plain.named[ch][in->out] = 0;
}

static void plain_af(const pimhw_instruction *in, uint32_t ch)
{
    const float *s = plain.samples[plain.af_mode];
    for (uint32_t b = 0; b < BANKS; b++) {
        double at = (double)plain.sum[ch][in->out][b] * PIMHW_AF_PER_ONE;
        double low = fmin(fmax(floor(at), -512), 511);
        int i = (int)low + 512;
        plain.af[ch][in->out][b] =
            (float)((double)s[i] + (at - low) * ((double)s[i + 1] - (double)s[i]));
    }
}

static void plain_column(const pimhw_instruction *in, uint32_t ch)
{
    for (uint32_t c = 0; c < in->op_size; c++) {
        uint16_t *column = plain.bank[ch][in->row][in->bank][in->column + c];
        float *tile = plain.tile[ch][in->tile + c];
        for (uint32_t i = 0; i < LANES; i++) {
            if (in->kind == PIMHW_COPY_BKGB) tile[i] = up_to(column[i]);
            if (in->kind == PIMHW_COPY_GBBK) column[i] = pimhw_lane_round(plain.type, tile[i]);
            if (in->kind == PIMHW_WR_SBK || in->kind == PIMHW_MEM_WR)
                column[i] = plain.gpr[in->gpr][i];
            if (in->kind == PIMHW_RD_SBK || in->kind == PIMHW_MEM_RD)
                plain.gpr[in->gpr + ch][i] = column[i];
        }
    }
}

static void plain_banks(const pimhw_instruction *in, uint32_t ch)
{
    for (uint32_t b = 0; b < BANKS && in->kind == PIMHW_WR_ABK; b++)
        memcpy(plain.bank[ch][in->row][b][in->column], plain.gpr[in->gpr + b], 2 * LANES);
    if (in->kind != PIMHW_EWMUL) return;
    for (uint32_t b = 0; b < BANKS; b += 4)
        for (uint32_t c = in->column; c < in->column + in->op_size; c++)
            for (uint32_t i = 0; i < LANES; i++)
                plain.bank[ch][in->row][b + 2][c][i] =
                    pimhw_lane_round(plain.type, up_to(plain.bank[ch][in->row][b][c][i]) *
                                                     up_to(plain.bank[ch][in->row][b + 1][c][i]));
}

static void plain_input(const pimhw_instruction *in, uint32_t ch)
{
    for (uint32_t c = 0; c < in->op_size && in->kind == PIMHW_WR_GB; c++) {
        bool distinct = in->flags & PIMHW_DISTINCT;
        const uint16_t *from = plain.gpr[in->gpr + (distinct ? 2 * c + ch : c)];
        for (uint32_t i = 0; i < LANES; i++)
            plain.tile[ch][in->tile + c][i] = up_to(from[i]);
    }
    if (in->kind != PIMHW_WR_BIAS) return;
    for (uint32_t b = 0; b < BANKS; b++)
        plain.sum[ch][in->out][b] = up_to(plain.gpr[in->gpr][b]);
    plain.named[ch][in->out] = 0;
}

static void plain_step(const pimhw_instruction *in)
{
    for (uint32_t ch = 0; ch < 2; ch++) {
        if (!(in->mask >> ch & 1)) continue;
        switch (in->kind) {
        case PIMHW_WR_GB:
        case PIMHW_WR_BIAS: plain_input(in, ch); break;
        case PIMHW_MAC_ABK:
        case PIMHW_MAC_SBK: plain_mac(in, ch); break;
        case PIMHW_RD_MAC:
        case PIMHW_RD_AF: plain_read(in, ch); break;
        case PIMHW_AF: plain_af(in, ch); break;
        case PIMHW_EWMUL:
        case PIMHW_WR_ABK: plain_banks(in, ch); break;
        case PIMHW_EWADD:
        case PIMHW_CFR:
        case PIMHW_SYNC: break;
        default: plain_column(in, ch);
        }
    }
    if (in->kind == PIMHW_CFR && in->aux == 2) plain.af_mode = in->gpr;
    if (in->kind == PIMHW_CFR && in->aux == 0) plain.neighbours = in->gpr == 0;
    for (uint32_t c = 0; c < in->op_size && in->kind == PIMHW_EWADD; c++)
        for (uint32_t i = 0; i < LANES; i++) {
            uint16_t *to = &plain.gpr[in->gpr + c][i];
            const float sum = up_to(*to) + up_to(plain.gpr[in->aux + c][i]);
            *to = pimhw_lane_round(plain.type, isnan(sum) ? bits_float(0x7fc00000) : sum);
        }
}

/* Registers below INPUTS are never written, those of instruction i from OUTPUTS + 16 i on by it
 * alone: what else one wants from another is behind a SYNC. */
enum { INPUTS = 64, OUTPUTS = 128, MOST = 90 };

static const pimhw_kind kinds[] = {
    PIMHW_WR_GB,  PIMHW_WR_GB,     PIMHW_MAC_ABK, PIMHW_MAC_ABK, PIMHW_MAC_ABK, PIMHW_RD_MAC,
    PIMHW_RD_MAC, PIMHW_MAC_SBK,   PIMHW_EWMUL,   PIMHW_AF,      PIMHW_RD_AF,   PIMHW_COPY_BKGB,
    PIMHW_WR_SBK, PIMHW_COPY_GBBK, PIMHW_RD_SBK,  PIMHW_WR_ABK,  PIMHW_MEM_WR,  PIMHW_MEM_RD,
    PIMHW_EWADD,  PIMHW_CFR,       PIMHW_WR_BIAS};

/* The first n_kinds of them; at most n_outs entries. */
static pimhw_instruction any_instruction(check_rng *rng, uint32_t i, size_t n_kinds,
                                         uint32_t n_outs)
{
    pimhw_instruction in = {.kind = kinds[rng_range(rng, 0, n_kinds - 1)]};
    bool host = in.kind == PIMHW_EWADD || in.kind == PIMHW_CFR, writes = false;
    in.mask = in.kind == PIMHW_WR_ABK ? rng_range(rng, 1, 2) : rng_range(rng, 1, 3);
    in.op_size = rng_range(rng, 1, 3);
    in.bank = (uint32_t)rng_range(rng, 0, BANKS - 1);
    in.row = (uint32_t)rng_range(rng, 0, 2);
    in.column = (uint32_t)rng_range(rng, 0, COLUMNS - in.op_size);
    in.tile = (uint32_t)rng_range(rng, 0, TILES - in.op_size);
    in.out = (uint32_t)rng_range(rng, 0, n_outs - 1);
    in.gpr = (uint32_t)rng_range(rng, 0, INPUTS - 16);
    switch (in.kind) {
    case PIMHW_RD_MAC:
    case PIMHW_RD_AF:
    case PIMHW_RD_SBK:
    case PIMHW_MEM_RD:
    case PIMHW_EWADD: writes = true; break;
    case PIMHW_MAC_ABK:
    case PIMHW_MAC_SBK: in.gpr = in.gpr % 4 * 4; break; /* results of two channels lie apart */
    case PIMHW_CFR:
        in.gpr %= PIMHW_AF_MODES;
        in.aux = (uint32_t)rng_range(rng, 0, 1) * 2;
        if (in.aux == 0) in.gpr %= 2;
        in.out = 1;
        break;
    case PIMHW_WR_GB: in.flags = rng_range(rng, 0, 1) ? PIMHW_DISTINCT : 0; break;
    default: break;
    }
    bool sized = in.kind == PIMHW_WR_GB || in.kind == PIMHW_MAC_ABK || in.kind == PIMHW_MAC_SBK ||
                 in.kind == PIMHW_EWMUL || in.kind == PIMHW_COPY_BKGB ||
                 in.kind == PIMHW_COPY_GBBK || in.kind == PIMHW_EWADD;
    if (!sized) in.op_size = 1;
    if (host) in.mask = 3;
    if (in.kind == PIMHW_EWADD) in.aux = OUTPUTS + 16 * (uint32_t)rng_range(rng, 0, i);
    if (writes) in.gpr = OUTPUTS + 16 * i;
    return in;
}

static void any_state(check_rng *rng, const pimhw_config *c)
{
    memset(&plain, 0, sizeof plain);
    plain.type = c->lane_type;
    plain.out_bits = c->out_bits;
    plain.out_clear = c->out_clear;
    uint16_t *lanes = &plain.bank[0][0][0][0][0];
    for (size_t i = 0; i < sizeof plain.bank / 2; i++)
        lanes[i] = pimhw_lane_round(c->lane_type, rng_float(rng, -2, 2));
    for (size_t i = 0; i < (size_t)INPUTS * LANES; i++)
        plain.gpr[i / LANES][i % LANES] = pimhw_lane_round(c->lane_type, rng_float(rng, -2, 2));
    for (uint32_t i = 0; i < PIMHW_AF_MODES * PIMHW_AF_SAMPLES; i++)
        plain.samples[i / PIMHW_AF_SAMPLES][i % PIMHW_AF_SAMPLES] = rng_float(rng, -1, 1);
}

static rig rig_of_state(const pimhw_config *c)
{
    rig r = rig_new(c);
    for (uint32_t ch = 0; ch < 2; ch++)
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t b = 0; b < BANKS; b++) {
                pimhw_da at = place_of(ch, b, row, 0);
                CHECK_U(pimhw_memory_write(r.memory, &at, plain.bank[ch][row][b],
                                           sizeof plain.bank[ch][row][b], NULL),
                        PIMHW_OK);
            }
    for (uint32_t i = 0; i < BLOCKS; i++)
        memcpy(pimhw_units_gpr(r.units, i), plain.gpr[i], sizeof plain.gpr[i]);
    for (uint32_t i = 0; i < PIMHW_AF_MODES; i++)
        CHECK_U(pimhw_units_af(r.units, i, plain.samples[i]), PIMHW_OK);
    return r;
}

static bool as_plain(rig *r)
{
    for (uint32_t ch = 0; ch < 2; ch++)
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t b = 0; b < BANKS; b++) {
                uint16_t is[COLUMNS][LANES];
                pimhw_da at = place_of(ch, b, row, 0);
                CHECK_U(pimhw_memory_read(r->memory, is, &at, sizeof is, NULL), PIMHW_OK);
                if (!CHECK_BYTES(is, plain.bank[ch][row][b], sizeof is)) return false;
            }
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (!CHECK_BYTES(pimhw_units_gpr(r->units, i), plain.gpr[i], sizeof plain.gpr[i])) {
            printf("  GPR block %u\n", i);
            return false;
        }
    return true;
}

static unsigned n_ran[4], n_refused[4];

/* A program under one controller; ping-pong may refuse what its regions and accumulators cannot
 * hold, and a bias that is read without a MAC. */
static void any_program(check_rng *rng, uint32_t controller, size_t n_kinds)
{
    static pimhw_instruction in[MOST];
    pimhw_config c = rig_config(controller);
    c.out_bits = rng_range(rng, 0, 1) ? 16 : 32;
    c.lane_type = (uint32_t)rng_range(rng, 0, 1);
    c.out_clear = (uint32_t)rng_range(rng, 0, 1);
    c.front_end = (uint32_t)rng_range(rng, 0, 1);
    c.extra_region = (uint32_t)rng_range(rng, 0, 1);
    c.early_tiles = (uint32_t)rng_range(rng, 0, 1);
    c.is_mac = (uint32_t)rng_range(rng, 0, 1);
    /* accesses through the ordinary queues take place when those like: not in program order */
    if (c.front_end == PIMHW_SHARED && controller == PIMHW_IN_ORDER) n_kinds = 8;
    any_state(rng, &c);
    rig r = rig_of_state(&c);
    uint32_t n = (uint32_t)rng_range(rng, 1, MOST);
    for (uint32_t i = 0; i < n; i++) {
        bool halves = controller == PIMHW_PING_PONG;
        in[i] = any_instruction(rng, i, n_kinds, halves ? OUTS / 2 : OUTS);
        if (in[i].kind == PIMHW_EWADD && i > 0) {
            pimhw_instruction sync = {.kind = PIMHW_SYNC};
            pimhw_instruction sum = in[i];
            in[i++] = sync;
            if (i < n) in[i] = sum;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        plain_step(&in[i]);
    pimhw_status status = run_all(&r, in, n, NULL);
    bool may = controller == PIMHW_PING_PONG && status == PIMHW_ERR_HAZARD;
    if (!may && CHECK_U(status, PIMHW_OK)) {
        n_ran[controller]++;
        if (!as_plain(&r))
            printf("  %s, %u instructions, clear %u, front end %u\n",
                   pimhw_controller_str(controller), n, c.out_clear, c.front_end);
    } else {
        n_refused[controller]++;
        if (!may) printf("  %s: %s\n", pimhw_controller_str(controller), r.why.text);
    }
    rig_free(&r);
}

/* W, B, M, R: of a tile or output, so many columns. */
static pimhw_instruction short_of(char kind, uint32_t tile, uint32_t n, uint32_t out, uint32_t gpr)
{
    pimhw_instruction in = {.mask = 3, .op_size = n, .tile = tile, .out = out, .gpr = gpr};
    in.kind = kind == 'W'   ? PIMHW_WR_GB
              : kind == 'B' ? PIMHW_WR_BIAS
              : kind == 'M' ? PIMHW_MAC_ABK
                            : PIMHW_RD_MAC;
    return in;
}

/* As five characters: kind, tile, columns, output, GPR. */
static pimhw_instruction short_of_text(const char *is)
{
    uint32_t gpr = (uint32_t)(is[4] - '0');
    return short_of(is[0], (uint32_t)(is[1] - '0'), (uint32_t)(is[2] - '0'),
                    (uint32_t)(is[3] - '0'), is[0] == 'R' ? OUTPUTS + 16 * gpr : gpr);
}

/* Under ping-pong no write comes before MACs that want what it overwrites, though a group that no
 * MAC uses lies between; and a sum does not begin on what another left that was given up, or was
 * read and is kept. */
static void regions_and_accumulators_hold_what_is_due(void)
{
    static const struct {
        uint32_t clear;
        const char *of[10];
    } cases[] = {
        {PIMHW_CLEAR_READ, {"W0400", "M1100", "R0108", "W0204", "M1100", "R0109"}},
        {PIMHW_CLEAR_READ,
         {"W0400", "M2210", "B0100", "B0102", "R0118", "W0204", "M0110", "R0119"}},
        {PIMHW_CLEAR_READ,
         {"W0400", "B0100", "B0101", "M0100", "R0108", "M0100", "R0109", "M0100", "R0107"}},
        {PIMHW_CLEAR_READ, /* a bias gives an accumulator away before it issues */
         {"M2110", "B2115", "W2107", "M0110", "W0107", "M0100", "R0108", "R0119"}},
        {PIMHW_CLEAR_BIAS,
         {"W0105", "M2110", "W2100", "B0119", "B0103", "M2100", "M0110", "R0108", "R0119"}},
        {PIMHW_CLEAR_BIAS, {"W0100", "B0102", "M0100", "R0108", "W0101", "M0110", "R0119"}}};
    check_rng rng = {0x3113};
    for (uint32_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (uint32_t controller = 0; controller < 4; controller++) {
            pimhw_instruction in[10];
            uint32_t n = 0;
            pimhw_config c = rig_config(controller);
            c.in_entries = c.out_entries = c.obuf = 4;
            c.out_clear = cases[k].clear;
            c.refresh = 0;
            any_state(&rng, &c);
            rig r = rig_of_state(&c);
            for (const char *const *at = cases[k].of; n < 10 && *at; at++, n++) {
                in[n] = short_of_text(*at);
                plain_step(&in[n]);
            }
            if (!CHECK_U(run_all(&r, in, n, NULL), PIMHW_OK) || !as_plain(&r))
                printf("  case %u, %s: %s\n", k, pimhw_controller_str(controller), r.why.text);
            rig_free(&r);
        }
}

/*
 * Biases, MACs, reads of n sums, again and again; n is half the accumulators or fewer, or all where
 * phases hold half. A bias is written beside the phase before that of its MACs, when what was
 * summed before that phase has been read. Of 6 accumulators, n = 2 (o0, o1; a phase is three sums):
 *
 *     MACs         o0 o1 o0    o1 o0 o1      o0 o1 o0
 *     reads                    o0 o1 o0      o1 o0 o1
 *     biases       o1 o0 o1    o0 o1 o0      ..         before: o0 o1 o0
 */
static void a_bias_is_written_for_the_next_phase(void)
{
    enum { ROUNDS = 6, MOST_OUTS = 8 };
    check_rng rng = {0xb1a5};
    for (uint32_t outs = 2; outs <= MOST_OUTS; outs++)
        for (uint32_t n = 1; n <= outs && n <= OUTS; n++) {
            pimhw_instruction in[1 + 3 * ROUNDS * OUTS];
            uint32_t at = 0, k = 0;
            pimhw_config c = rig_config(PIMHW_PING_PONG);
            if (n > outs / 2 && (n < outs || outs % 2)) continue;
            c.in_entries = 4;
            c.out_entries = outs;
            c.out_clear = PIMHW_CLEAR_BIAS;
            c.refresh = 0;
            any_state(&rng, &c);
            rig r = rig_of_state(&c);
            in[at++] = short_of('W', 0, 1, 0, 4);
            for (uint32_t i = 0; i < 3 * ROUNDS; i++)
                for (uint32_t out = 0; out < n; out++) {
                    char kind = "BMR"[i % 3];
                    uint32_t gpr = kind == 'R' ? OUTPUTS + 16 * k++ : kind == 'B' ? i : 0;
                    in[at++] = short_of(kind, 0, 1, out, gpr);
                }
            for (uint32_t i = 0; i < at; i++)
                plain_step(&in[i]);
            if (!CHECK_U(run_all(&r, in, at, NULL), PIMHW_OK) || !as_plain(&r))
                printf("  %u sums in %u: %s\n", n, outs, r.why.text);
            rig_free(&r);
        }
}

/* A bias that no MAC goes on with is read as it is; one that waits for its MAC while others come
 * and go takes an accumulator of theirs. */
static void a_bias_may_wait_for_its_sum(void)
{
    static const char *const cases[][12] = {
        {"W0400", "B0102", "R0108", "M1100", "R0109"},
        {"B0101", "B0112", "R0118", "W0400", "M0100", "M0110", "R0119", "R0107"},
        {"W0400", "B0130", "B0101", "M0100", "R0108", "B0102", "M0100", "R0109", "B0104", "M0100",
         "R0107", "M0130"}};
    check_rng rng = {0x3114};
    for (uint32_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        pimhw_instruction in[13];
        uint32_t n = 0;
        pimhw_config c = rig_config(PIMHW_PING_PONG);
        c.in_entries = c.out_entries = 4;
        c.out_clear = PIMHW_CLEAR_BIAS;
        any_state(&rng, &c);
        rig r = rig_of_state(&c);
        for (; n < 12 && cases[k][n]; n++)
            in[n] = short_of_text(cases[k][n]);
        in[n++] = short_of('R', 0, 1, k == 2 ? 3 : 0, OUTPUTS + 16 * 6);
        for (uint32_t i = 0; i < n; i++)
            plain_step(&in[i]);
        if (!CHECK_U(run_all(&r, in, n, NULL), PIMHW_OK) || !as_plain(&r))
            printf("  case %u: %s\n", k, r.why.text);
        rig_free(&r);
    }
}

/* More columns at once than the queues of DCS hold, and their rings: all are told, in order. */
static void count_in_order(void *user, const pimhw_event *event)
{
    uint64_t *seen = (uint64_t *)user; /* commands, the last clock */
    CHECK(event->issue_ck >= seen[1]);
    seen[0]++;
    seen[1] = event->issue_ck;
}

static void long_instructions_fit_the_queues(void)
{
    static pimhw_program program;
    for (uint32_t controller = PIMHW_STATIC_GAPS; controller <= PIMHW_DCS; controller++)
        for (uint32_t n = 512; n <= 4096; n *= 2) {
            uint64_t seen[2] = {0, 0};
            pimhw_sink sink = {count_in_order, seen, NULL};
            pimhw_config c = rig_config(controller);
            pimhw_device *d;
            pimhw_readings r;
            pimhw_cause why;
            c.n_channels = 1;
            c.in_entries = 2 * n;
            c.row_bytes = n * LANES * 2;
            CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
            pimhw_program_init(&program);
            for (uint32_t i = 0; i < 6; i++) {
                pimhw_instruction in = short_of("WMR"[i % 3], 0, i % 3 < 2 ? n : 1, 0, 0);
                in.mask = 1;
                pimhw_program_add(&program, &in);
            }
            if (!CHECK_U(pimhw_device_time(d, &r, &program, NULL, &sink, &why), PIMHW_OK))
                printf("  %s\n", why.text);
            CHECK_U(r.commands[PIMHW_CMD_WRGB] + r.commands[PIMHW_CMD_MAC16], 4 * n);
            CHECK(seen[0] >= 4 * n + 2 && seen[1] < r.cycles);
            pimhw_device_destroy(d);
        }
}

static void programs_do_what_they_say_one_by_one(void)
{
    check_rng rng = {0x9406};
    for (uint32_t i = 0; i < 2000; i++)
        any_program(&rng, i % 4, i % 3 ? sizeof kinds / sizeof *kinds : 8);
    for (uint32_t i = 0; i < 4; i++) {
        printf("%s: %u programs ran, %u were refused\n", pimhw_controller_str(i), n_ran[i],
               n_refused[i]);
        CHECK(n_ran[i] > 100);
    }
}

/* --------------------------------------------------------------------------
 * A controller that breaks the order.
 * -------------------------------------------------------------------------- */

enum { LISTED = 64 };

typedef struct listing {
    pimhw_event at[LISTED];
    size_t n;
} listing;

static void list_event(void *user, const pimhw_event *event)
{
    listing *l = (listing *)user;
    if (l->n < LISTED) l->at[l->n++] = *event;
}

/* W0 W1, M of tile 0 (o0) and of tile 1 (o1), R of o0; W0 again, M of it into o0, R o0, R o1. */
static listing list_dcs(rig *r)
{
    static const pimhw_instruction in[] = {
        IN(.kind = PIMHW_WR_GB, .op_size = 2, .mask = 1, .gpr = 0),
        IN(.kind = PIMHW_MAC_ABK, .op_size = 1, .mask = 1, .row = 1),
        IN(.kind = PIMHW_MAC_ABK, .op_size = 1, .mask = 1, .row = 1, .tile = 1, .out = 1),
        IN(.kind = PIMHW_RD_MAC, .op_size = 1, .mask = 1, .gpr = 10),
        IN(.kind = PIMHW_WR_GB, .op_size = 1, .mask = 1, .gpr = 2),
        IN(.kind = PIMHW_MAC_ABK, .op_size = 1, .mask = 1, .row = 1),
        IN(.kind = PIMHW_RD_MAC, .op_size = 1, .mask = 1, .gpr = 11),
        IN(.kind = PIMHW_RD_MAC, .op_size = 1, .mask = 1, .gpr = 12, .out = 1)};
    static pimhw_program program;
    listing l = {.n = 0};
    pimhw_sink sink = {list_event, &l, NULL};
    pimhw_program_init(&program);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        pimhw_program_add(&program, &in[i]);
    CHECK_U(pimhw_device_time(r->device, &r->readings, &program, NULL, &sink, &r->why), PIMHW_OK);
    return l;
}

static size_t find_event(const listing *l, pimhw_command command, uint64_t serial)
{
    size_t i = 0;
    while (i < l->n && (l->at[i].command != command || l->at[i].serial != serial))
        i++;
    CHECK(i < l->n);
    return i;
}

/* Does the commands of a listing, of which the one at from comes where to is now. */
static pimhw_status broken(rig *r, const listing *l, size_t from, size_t to)
{
    listing b = *l;
    pimhw_event moved = b.at[from];
    memmove(&b.at[to + 1], &b.at[to], (from - to) * sizeof b.at[0]);
    b.at[to] = moved;
    pimhw_units_begin(r->units, NULL, NULL);
    for (size_t i = 0; i < b.n; i++)
        pimhw_units_command(r->units, &b.at[i]);
    return pimhw_units_end(r->units, &r->why);
}

/* A D-Table that forgets lets a command overtake one that it must wait for. */
static void a_broken_d_table_is_caught(void)
{
    static const struct {
        pimhw_command overtakes;
        uint64_t serial;
        pimhw_command of;
        uint64_t before;
        const char *words;
    } cases[] = {{PIMHW_CMD_WRGB, 4, PIMHW_CMD_MAC16, 1, "tile 0 was overwritten too early"},
                 {PIMHW_CMD_MAC16, 5, PIMHW_CMD_RDMAC16, 3, "entry 0 was used out of order"},
                 {PIMHW_CMD_MAC16, 5, PIMHW_CMD_WRGB, 4, "used tile 0 before it was written"},
                 {PIMHW_CMD_MAC16, 1, PIMHW_CMD_WRGB, 0, "used tile 0 before it was written"},
                 {PIMHW_CMD_RDMAC16, 3, PIMHW_CMD_MAC16, 1, "entry 0 was used out of order"},
                 {PIMHW_CMD_RDMAC16, 7, PIMHW_CMD_MAC16, 2, "entry 1 was used out of order"}};
    pimhw_config c = rig_config(PIMHW_DCS);
    rig r = rig_new(&c);
    listing l = list_dcs(&r);
    CHECK_U(broken(&r, &l, 0, 0), PIMHW_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t from = find_event(&l, cases[i].overtakes, cases[i].serial);
        size_t to = find_event(&l, cases[i].of, cases[i].before);
        if (!CHECK(to < from)) continue;
        CHECK_U(broken(&r, &l, from, to), PIMHW_ERR_HAZARD);
        CHECK_HAS(r.why.text, cases[i].words);
        CHECK_HAS(r.why.text, "channel 0");
    }
    /* entries and tiles that have nothing to do with each other may change places */
    size_t w = find_event(&l, PIMHW_CMD_WRGB, 4), m = find_event(&l, PIMHW_CMD_MAC16, 2);
    if (m < w) CHECK_U(broken(&r, &l, w, m), PIMHW_OK);
    /* an accumulator that holds an unread sum of another output, or that there is not */
    for (uint32_t i = 0; i < 2; i++) {
        listing taken = l;
        taken.at[m].entry = i ? 1000 : 0;
        CHECK_U(broken(&r, &taken, 0, 0), PIMHW_ERR_HAZARD);
        CHECK_HAS(r.why.text, i ? "no accumulator is left for output 1" : "unread");
    }
    rig_free(&r);
}

/* Another output takes the entry of a sum that nobody has read: told where that sum is used, but
 * not behind a bias of its own, wherever that adds up, before the other or after, or before the MAC
 * itself. Results of AF are not the sum. */
static void a_sum_that_is_lost_is_told_where_it_is_used(void)
{
    static const struct {
        bool told;
        const char *of; /* M: MAC, B: bias, R: read, A: read of AF; its output, entry, serial */
    } cases[] = {{true, "M000 M101 R012"},       {true, "M000 M101 M012"},
                 {true, "M000 A001 M102 R013"},  {true, "M000 B221 M102 R013"},
                 {true, "B010 M001 M102 R013"},  {false, "M000 M101"},
                 {false, "M000 R001 M102 R013"}, {false, "M000 B011 M102 R013"},
                 {false, "M000 M102 B011 R013"}, {false, "B011 M000 M102 R013"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pimhw_config c = rig_config(PIMHW_IN_ORDER);
        rig r = rig_new(&c);
        pimhw_units_begin(r.units, NULL, NULL);
        for (const char *is = cases[i].of; *is; is += is[4] ? 5 : 4) {
            pimhw_event event = {.command = *is == 'M'   ? PIMHW_CMD_MAC16
                                            : *is == 'B' ? PIMHW_CMD_WRMAC16
                                            : *is == 'R' ? PIMHW_CMD_RDMAC16
                                                         : PIMHW_CMD_RDAF16};
            event.out = (uint32_t)(is[1] - '0');
            event.entry = (uint32_t)(is[2] - '0');
            event.serial = (uint64_t)(is[3] - '0');
            pimhw_units_command(r.units, &event);
        }
        memcpy(r.why.text, "untouched", sizeof "untouched");
        CHECK_U(pimhw_units_end(r.units, &r.why), cases[i].told ? PIMHW_ERR_HAZARD : PIMHW_OK);
        CHECK_HAS(r.why.text, cases[i].told ? "took the entry of output 0, unread" : "untouched");
        rig_free(&r);
    }
}

/* --------------------------------------------------------------------------
 * VA2PA, and what is refused.
 * -------------------------------------------------------------------------- */

/* Rows 0 to 3 are virtual: chunks of 2 rows at 6 and 2; row 3 is really row 3, 0 is row 6. */
static void rows_are_where_va2pa_says(void)
{
    uint32_t chunks[2] = {6, 2};
    pimhw_block block = {{0}, {0}};
    pimhw_request request = {
        .blocks = &block, .n_blocks = 1, .chunks = chunks, .n_chunks = 2, .chunk_rows = 2};
    const pimhw_instruction in[] = {IN(.kind = PIMHW_WR_GB),
                                    IN(.kind = PIMHW_MAC_ABK, .row = 0),
                                    IN(.kind = PIMHW_RD_MAC, .gpr = 10),
                                    IN(.kind = PIMHW_MAC_ABK, .row = 3),
                                    IN(.kind = PIMHW_RD_MAC, .gpr = 20),
                                    IN(.kind = PIMHW_WR_SBK, .row = 2, .bank = 4, .gpr = 0)};
    pimhw_config c = rig_config(PIMHW_DCS);
    rig r = rig_new(&c);
    put(&r, place_of(1, 4, 6, 0), 3, 0);
    put(&r, place_of(1, 4, 3, 0), 5, 0);
    put_gpr(&r, 0, 1, 0);
    CHECK_U(run_all(&r, in, 6, &request), PIMHW_OK);
    CHECK_NEAR(get_gpr(&r, 11, 4), 48, 0);
    CHECK_NEAR(get_gpr(&r, 21, 4), 80, 0);
    CHECK_NEAR(get(&r, place_of(1, 4, 2, 0), 7), 1, 0);
    chunks[0] = 2, chunks[1] = 6; /* the entries swapped: row 0 is row 2, row 3 is row 7 */
    CHECK_U(run_all(&r, in, 5, &request), PIMHW_OK);
    CHECK_NEAR(get_gpr(&r, 11, 4), 16, 0);
    CHECK_NEAR(get_gpr(&r, 21, 4), 0, 0);
    rig_free(&r);
}

static void wrong_addresses_are_named(void)
{
    uint32_t chunks[2] = {PIMHW_UNMAPPED, ROWS - 1};
    uint32_t begin[3] = {0, 0, 2};
    pimhw_block block = {{0}, {0}};
    pimhw_request request = {
        .blocks = &block, .n_blocks = 1, .chunks = chunks, .n_chunks = 2, .chunk_rows = 2};
    pimhw_instruction mac = IN(.kind = PIMHW_MAC_ABK);
    pimhw_instruction gb = IN(.kind = PIMHW_WR_GB, .gpr = BLOCKS - 1, .op_size = 2);
    pimhw_instruction rd = IN(.kind = PIMHW_RD_MAC, .gpr = BLOCKS - 1);
    pimhw_instruction cfr = IN(.kind = PIMHW_CFR, .out = 1, .aux = 2, .gpr = PIMHW_AF_MODES);
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimhw_config c = rig_config(controller);
        rig r = rig_new(&c);
        r.readings.cycles = 77;
        mac.row = 1;
        CHECK_U(run_all(&r, &mac, 1, &request), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "channel 0: row 1 is in no chunk");
        mac.row = 4;
        CHECK_U(run_all(&r, &mac, 1, &request), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "row 4 is in no chunk");
        mac.row = 3;
        CHECK_U(run_all(&r, &mac, 1, &request), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "row 8 is not on the device");
        chunks[1] = UINT32_MAX - 1, request.chunk_rows = 16; /* not row 1 behind 2^32 */
        mac.row = 19;
        CHECK_U(run_all(&r, &mac, 1, &request), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "is not on the device");
        chunks[1] = ROWS - 1, request.chunk_rows = 2;
        request.chunk_begin = begin; /* channel 0 has none at all */
        mac.row = 2;
        CHECK_U(run_all(&r, &mac, 1, &request), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "channel 0: row 2");
        request.chunk_begin = NULL;
        CHECK_U(run_all(&r, &gb, 1, NULL), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "GPR block 2048, of 2048");
        CHECK_U(run_all(&r, &rd, 1, NULL), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "GPR block 2048");
        /* of both together, not of what is left of them below 2^32 */
        pimhw_instruction sum[2] = {{.kind = PIMHW_MAC_ABK, .gpr = 5},
                                    {.kind = PIMHW_RD_MAC, .gpr = UINT32_MAX}};
        CHECK_U(run_all(&r, sum, 2, NULL), PIMHW_ERR_ADDRESS);
        CHECK_HAS(r.why.text, "GPR block 4294967300");
        CHECK_U(run_all(&r, &cfr, 1, NULL), PIMHW_ERR_PROGRAM);
        CHECK_HAS(r.why.text, "AF mode 8");
        CHECK_U(r.readings.cycles, 77);
        mac.row = 0; /* after a failure all is as ever */
        CHECK_U(run_all(&r, &mac, 1, NULL), PIMHW_OK);
        CHECK(r.readings.cycles != 77);
        rig_free(&r);
    }
}

/* Of several blocks the last one counts, too. */
static void last_blocks_are_looked_at(void)
{
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    c.out_bits = 32; /* 2 blocks a channel */
    rig r = rig_new(&c);
    for (uint32_t beyond = 0; beyond < 2; beyond++) {
        const pimhw_status want = beyond ? PIMHW_ERR_ADDRESS : PIMHW_OK;
        const pimhw_instruction in[] = {
            IN(.kind = PIMHW_RD_MAC, .gpr = BLOCKS - 4 + beyond),
            IN(.kind = PIMHW_EWADD, .op_size = 2, .gpr = BLOCKS - 2 + beyond),
            IN(.kind = PIMHW_EWADD, .op_size = 2, .aux = BLOCKS - 2 + beyond)};
        for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
            CHECK_U(run_all(&r, &in[i], 1, NULL), want);
            if (beyond) CHECK_HAS(r.why.text, "GPR block 2048, of 2048");
        }
    }
    rig_free(&r);
}

static struct {
    uint32_t n, gpr[2], aux[2], flags[2], round[2];
} heard;

static void hear_output(void *user, const pimhw_event *event, const float *sums)
{
    (void)user, (void)sums;
    if (event->channel != 1 || heard.n == 2) return;
    heard.gpr[heard.n] = event->gpr, heard.aux[heard.n] = event->aux;
    heard.round[heard.n] = event->round;
    heard.flags[heard.n++] = event->flags;
}

/* A read that the hub hears of names the MAC that began its sum, not those that went on with it;
 * one of no sum names itself. */
static void reads_say_what_sum_it_was(void)
{
    static const pimhw_instruction in[] = {
        {.kind = PIMHW_MAC_ABK, .mask = 3, .op_size = 1, .gpr = 5, .aux = 30, .flags = 2},
        {.kind = PIMHW_MAC_ABK, .mask = 3, .op_size = 2, .gpr = 600, .aux = 700},
        {.kind = PIMHW_RD_MAC, .mask = 3, .op_size = 1, .gpr = 100, .aux = 7, .flags = 1},
        {.kind = PIMHW_RD_MAC, .mask = 3, .op_size = 1, .gpr = 200, .aux = 8, .flags = 1}};
    for (uint32_t controller = 0; controller < 4; controller++) {
        static pimhw_program program;
        pimhw_config c = rig_config(controller);
        rig r = rig_new(&c);
        const pimhw_hub hub = {NULL, NULL, hear_output, NULL};
        pimhw_program_init(&program);
        for (size_t i = 0; i < sizeof in / sizeof *in; i++)
            pimhw_program_add(&program, &in[i]);
        memset(&heard, 0, sizeof heard);
        CHECK_U(pimhw_device_run(r.device, &r.readings, r.units, &program, NULL, &hub, &r.why),
                PIMHW_OK);
        CHECK_U(heard.n, 2);
        CHECK_U(heard.gpr[0], 105);
        CHECK_U(heard.aux[0], 37);
        CHECK_U(heard.flags[0], 2);
        CHECK_U(heard.gpr[1], 200);
        CHECK_U(heard.aux[1], 8);
        CHECK_U(heard.flags[1], 1); /* of no sum: its own */
        rig_free(&r);
    }
}

/* The read of the second round hears of the sum that the first one began. */
static void reads_say_what_round_it_was(void)
{
    static pimhw_program program;
    const pimhw_block blocks[2] = {{{0}, {0}}, {{0}, {0}}};
    const pimhw_request request = {.blocks = blocks, .n_blocks = 2};
    const pimhw_hub hub = {NULL, NULL, hear_output, NULL};
    const pimhw_item list = {.kind = PIMHW_LIST, .mask = 3};
    const pimhw_instruction read = {.kind = PIMHW_RD_MAC, .mask = 3, .op_size = 1},
                            mac = {.kind = PIMHW_MAC_ABK, .mask = 3, .op_size = 1};
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimhw_config c = rig_config(controller);
        rig r = rig_new(&c);
        pimhw_program_init(&program);
        pimhw_program_item(&program, &list);
        pimhw_program_add(&program, &read);
        pimhw_program_add(&program, &mac);
        pimhw_program_end(&program);
        memset(&heard, 0, sizeof heard);
        CHECK_U(pimhw_device_run(r.device, &r.readings, r.units, &program, &request, &hub, &r.why),
                PIMHW_OK);
        CHECK_U(heard.n, 2);
        CHECK_U(heard.round[0], 0); /* of no sum: its own */
        CHECK_U(heard.round[1], 0);
        rig_free(&r);
    }
}

/* A MAC of one bank uses its tile, and so does a copy of it into a bank. */
static void any_use_of_a_tile_is_noticed(void)
{
    static const pimhw_command uses[] = {PIMHW_CMD_MAC16, PIMHW_CMD_MAC, PIMHW_CMD_WRCP};
    for (uint32_t i = 0; i < 2 * sizeof uses / sizeof *uses; i++) { /* of either region */
        pimhw_config c = rig_config(PIMHW_DCS);
        rig r = rig_new(&c);
        const pimhw_event use = {.command = uses[i / 2], .tile = 3, .serial = 5};
        pimhw_event fill = {.command = PIMHW_CMD_WRGB, .tile = 3, .serial = 4};
        fill.region = i % 2;
        pimhw_units_begin(r.units, NULL, NULL);
        pimhw_units_command(r.units, &use);
        pimhw_units_command(r.units, &fill);
        CHECK_U(pimhw_units_end(r.units, &r.why), PIMHW_ERR_HAZARD);
        CHECK_HAS(r.why.text, "used tile 3 before it was written");
        rig_free(&r);
    }
}

static void count_epu(void *user, const pimhw_instruction *in)
{
    (void)in;
    ++*(uint32_t *)user;
}

/* After a failure neither commands nor the hub do anything. */
static void nothing_is_done_after_a_failure(void)
{
    uint32_t n_epu = 0;
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    rig r = rig_new(&c);
    const pimhw_hub hub = {&n_epu, NULL, NULL, count_epu};
    const pimhw_instruction epu = {.kind = PIMHW_EPU, .op_size = 1},
                            add = {.kind = PIMHW_EWADD, .op_size = 1, .gpr = 1, .aux = 2};
    const pimhw_event beyond = {.command = PIMHW_CMD_RD, .row = ROWS},
                      read = {.command = PIMHW_CMD_RD, .gpr = 1};
    put_gpr(&r, 1, 7, 0), put_gpr(&r, 2, 1, 0);
    pimhw_units_begin(r.units, NULL, &hub);
    pimhw_units_hub(r.units, &epu);
    pimhw_units_command(r.units, &beyond);
    pimhw_units_command(r.units, &read);
    pimhw_units_hub(r.units, &epu);
    pimhw_units_hub(r.units, &add);
    CHECK_U(pimhw_units_end(r.units, &r.why), PIMHW_ERR_ADDRESS);
    CHECK_U(n_epu, 1);
    CHECK_NEAR(get_gpr(&r, 1, 0), 7, 0);
    /* so a table that cannot be is a failure at once */
    const uint32_t chunk = 0, begin[] = {0, 2, 1};
    pimhw_request request = {.chunks = &chunk, .n_chunks = 1};
    for (int k = 0; k < 2; k++) {
        pimhw_units_begin(r.units, &request, NULL);
        pimhw_units_command(r.units, &read);
        CHECK_U(pimhw_units_end(r.units, &r.why), PIMHW_ERR_ARGUMENT);
        CHECK_HAS(r.why.text, k ? "chunk_begin of channel 1" : "chunk_rows is 0");
        request.chunk_rows = 1;
        request.chunk_begin = begin;
    }
    rig_free(&r);
}

/* A write that a shared front end leaves in its queue reads the GPR when it is done: a result that
 * came to that block meanwhile is not what it should write. */
static void writes_that_wait_keep_their_values(void)
{
    for (uint32_t shared = 0; shared < 2; shared++)
        for (uint32_t block = 7; block < 9; block++) {
            pimhw_config c = rig_config(PIMHW_IN_ORDER);
            c.front_end = shared ? PIMHW_SHARED : PIMHW_PER_CHANNEL;
            rig r = rig_new(&c);
            put_gpr(&r, 7, 5, 0);
            const pimhw_instruction all[] = {
                /* reads keep the queues busy */
                IN(.kind = PIMHW_RD_SBK, .mask = 1, .gpr = 20, .bank = 4, .row = 1),
                IN(.kind = PIMHW_RD_SBK, .mask = 1, .gpr = 21, .bank = 8, .row = 1),
                IN(.kind = PIMHW_RD_SBK, .mask = 1, .gpr = 22, .bank = 12, .row = 1),
                IN(.kind = PIMHW_RD_SBK, .mask = 1, .gpr = 23, .bank = 5, .row = 1),
                IN(.kind = PIMHW_WR_SBK, .mask = 1, .gpr = 7, .bank = 2, .row = 3),
                IN(.kind = PIMHW_RD_MAC, .mask = 1, .gpr = block)};
            const bool told = shared && block == 7;
            CHECK_U(run_all(&r, all, 6, NULL), told ? PIMHW_ERR_HAZARD : PIMHW_OK);
            if (told) CHECK_HAS(r.why.text, "GPR block 7 is read after a later result");
            if (!told) CHECK_NEAR(get(&r, place_of(0, 2, 3, 0), 4), 5, 0);
            rig_free(&r);
        }
}

/* Events made by hand: a place that the device does not have is named where the command uses it. */
static void places_of_events_are_judged(void)
{
    enum { BANK = 1 << 1, COLUMN = 1 << 2, TILE = 1 << 3, OUT = 1 << 4 };
    static const unsigned uses[PIMHW_N_COMMANDS] = {[PIMHW_CMD_WRGB] = TILE,
                                                    [PIMHW_CMD_WRMAC16] = OUT,
                                                    [PIMHW_CMD_RDMAC16] = OUT,
                                                    [PIMHW_CMD_MAC16] = COLUMN | TILE | OUT,
                                                    [PIMHW_CMD_EWMUL16] = COLUMN,
                                                    [PIMHW_CMD_AF16] = OUT,
                                                    [PIMHW_CMD_WRA16] = COLUMN,
                                                    [PIMHW_CMD_RDAF16] = OUT,
                                                    [PIMHW_CMD_RD] = BANK | COLUMN,
                                                    [PIMHW_CMD_WR] = BANK | COLUMN,
                                                    [PIMHW_CMD_MAC] = BANK | COLUMN | TILE | OUT,
                                                    [PIMHW_CMD_RDCP] = BANK | COLUMN | TILE,
                                                    [PIMHW_CMD_WRCP] = BANK | COLUMN | TILE};
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    rig r = rig_new(&c);
    const uint32_t n[5] = {2, 16, COLUMNS, TILES, OUTS + 1}; /* one more for what has none */
    for (uint32_t i = 0; i < 10 * PIMHW_N_COMMANDS; i++) {
        const uint32_t place = i / 2 % 5;
        pimhw_event event = {.command = (pimhw_command)(i / 10)};
        uint32_t *const places[5] = {&event.channel, &event.bank, &event.column, &event.tile,
                                     &event.out};
        for (int good = 0; good < 2; good++) {
            *places[place] = i % 2 && !good ? UINT32_MAX : n[place] - (uint32_t)good;
            pimhw_units_begin(r.units, NULL, NULL);
            pimhw_units_command(r.units, &event);
            const bool used = place == 0 || uses[event.command] >> place & 1;
            const pimhw_status status = pimhw_units_end(r.units, &r.why);
            CHECK_U(status, good || !used ? PIMHW_OK : PIMHW_ERR_ADDRESS);
            if (!good && used) CHECK_HAS(r.why.text, ", of ");
        }
    }
    rig_free(&r);
}

/* More columns than the buffer has tiles, and operands that kinds do not have. */
static void operands_that_are_none_are_not_looked_at(void)
{
    enum { MANY = 2 * TILES };
    pimhw_config c = rig_config(controller_now);
    c.row_bytes = MANY * LANES * 2;
    rig r = rig_new(&c);
    for (uint32_t i = 0; i < MANY; i++) {
        put(&r, place_of(0, 0, 1, i), i, 0);
        put(&r, place_of(0, 1, 1, i), 2, 0);
    }
    put_gpr(&r, 3, 7, 0), put_gpr(&r, 4, 9, 0);
    DO(&r, IN(.kind = PIMHW_EWMUL, .op_size = MANY, .row = 1, .mask = 1, .bank = 99));
    CHECK_NEAR(get(&r, place_of(0, 2, 1, MANY - 1), 5), 2 * (MANY - 1), 0);
    DO(&r, IN(.kind = PIMHW_AF, .column = 99, .tile = 99, .bank = 99),
       IN(.kind = PIMHW_WR_SBK, .bank = 2, .row = 1, .tile = 99, .gpr = 3),
       IN(.kind = PIMHW_WR_ABK, .mask = 1, .row = 2, .bank = 99, .tile = 99, .gpr = 3),
       IN(.kind = PIMHW_SYNC), IN(.kind = PIMHW_RD_SBK, .bank = 2, .row = 1, .tile = 99, .gpr = 40),
       IN(.kind = PIMHW_RD_MAC, .tile = 99, .column = 99, .bank = 99, .gpr = 50));
    CHECK_NEAR(get_gpr(&r, 41, 5), 7, 0);
    /* WR_BIAS takes one block for all channels, whatever the flag says */
    DO(&r, IN(.kind = PIMHW_WR_BIAS, .flags = PIMHW_DISTINCT, .gpr = 3),
       IN(.kind = PIMHW_RD_MAC, .gpr = 60));
    CHECK_NEAR(get_gpr(&r, 60, 0), 7, 0);
    CHECK_NEAR(get_gpr(&r, 61, 0), 7, 0);
    rig_free(&r);
}

/* Of banks that are multiplied with their neighbours a last odd one has none. */
static void a_last_odd_bank_has_no_neighbour(void)
{
    pimhw_config c = rig_config(controller_now);
    c.n_bank_groups = 1, c.n_group_banks = 3;
    rig r = rig_new(&c);
    for (uint32_t b = 0; b < 3; b++)
        put(&r, place_of(0, b, 1, 0), b < 2 ? 2 : (double)INFINITY, 0);
    put_gpr(&r, 50, 99, 0);
    for (uint32_t i = 0; i < LANES; i++)
        pimhw_units_gpr(r.units, 60)[i] = lane(&r, -0.0);
    DO(&r, IN(.kind = PIMHW_CFR, .out = 1, .gpr = 0),
       IN(.kind = PIMHW_WR_BIAS, .mask = 1, .gpr = 60),
       IN(.kind = PIMHW_MAC_ABK, .mask = 1, .row = 1),
       IN(.kind = PIMHW_RD_MAC, .mask = 1, .gpr = 50));
    for (uint32_t b = 0; b < 3; b++)
        CHECK_NEAR(get_gpr(&r, 50, b), b < 2 ? 4 * LANES : 0, 0);
    CHECK_U(pimhw_units_gpr(r.units, 50)[2], 0); /* -0 and 0: no bit */
    rig_free(&r);
}

/* Two channels whose results one instruction puts into one block: which stays, no rule says. */
static void results_in_one_block_are_told(void)
{
    pimhw_config c = rig_config(controller_now);
    rig r = rig_new(&c);
    for (uint32_t apart = 0; apart < 2; apart++) {
        const pimhw_instruction in[] = {
            IN(.kind = PIMHW_WR_GB), IN(.kind = PIMHW_MAC_ABK, .mask = 1, .gpr = 1 + apart),
            IN(.kind = PIMHW_MAC_ABK, .mask = 2), IN(.kind = PIMHW_RD_MAC, .gpr = 20)};
        CHECK_U(run_all(&r, in, 4, NULL), apart ? PIMHW_OK : PIMHW_ERR_HAZARD);
        if (!apart) CHECK_HAS(r.why.text, "GPR block 21 has another channel's");
    }
    rig_free(&r);
}

static void what_is_named_under_every_controller(void)
{
    over_controllers(operands_that_are_none_are_not_looked_at);
    over_controllers(a_last_odd_bank_has_no_neighbour);
    over_controllers(results_in_one_block_are_told);
}

/* Memory and units of a device that names no allocator take malloc's. */
static void no_allocator_is_malloc(void)
{
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    memset(&c.allocator, 0, sizeof c.allocator);
    rig r = rig_new(&c);
    put(&r, place_of(0, 0, 0, 0), 3, 0);
    CHECK_NEAR(get(&r, place_of(0, 0, 0, 0), 1), 3, 0);
    rig_free(&r);
}

/* Outputs that no MAC came to are read as nothing, in any order: under ping-pong the one behind
 * does not wait for the phase of the sum before, and shares no accumulator with it. */
static void reads_of_nothing_have_no_order(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        pimhw_config c = rig_config(controller);
        rig r = rig_new(&c);
        put(&r, place_of(0, 0, 1, 0), 3, 0);
        put_gpr(&r, 0, 1, 0);
        put_gpr(&r, 20, 7, 0), put_gpr(&r, 30, 7, 0);
        DO(&r, IN(.kind = PIMHW_WR_GB), IN(.kind = PIMHW_MAC_ABK, .row = 1),
           IN(.kind = PIMHW_RD_MAC, .gpr = 10), IN(.kind = PIMHW_RD_MAC, .gpr = 20),
           IN(.kind = PIMHW_RD_MAC, .out = 1, .gpr = 30));
        CHECK_NEAR(get_gpr(&r, 10, 0), 3 * LANES, 0);
        CHECK_NEAR(get_gpr(&r, 20, 0), 0, 0);
        CHECK_NEAR(get_gpr(&r, 30, 0), 0, 0);
        rig_free(&r);
    }
}

static void units_fit_their_device(void)
{
    static const struct {
        const char *name;
        uint32_t value;
    } fields[] = {{"n_channels", 4}, {"n_ranks", 2},     {"n_bank_groups", 8},
                  {"n_rows", 16},    {"row_bytes", 512}, {"column_bytes", 64}};
    pimhw_config c = rig_config(PIMHW_DCS), other = c;
    rig r = rig_new(&c);
    pimhw_units *units = NULL;
    pimhw_program program;
    pimhw_program_init(&program);
    other.element_bytes = 1;
    CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_ERR_CONFIG);
    CHECK_HAS(r.why.text, "element_bytes");
    CHECK(!units);
    static const char *const of_units[] = {"in_entries", "out_clear", "out_bits", "lane_type"};
    const uint32_t values[] = {2 * c.in_entries, !c.out_clear, 48 - c.out_bits, !c.lane_type};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) { /* a memory has none of them */
        other = c;
        CHECK_U(pimhw_config_set(&other, of_units[i], values[i], &r.why), PIMHW_OK);
        CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_OK);
        CHECK_U(pimhw_device_run(r.device, &r.readings, units, &program, NULL, NULL, &r.why),
                PIMHW_ERR_ARGUMENT);
        CHECK_HAS(r.why.text, of_units[i]);
        pimhw_units_destroy(units);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        other = c;
        CHECK_U(pimhw_config_set(&other, fields[i].name, fields[i].value, &r.why), PIMHW_OK);
        CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_ERR_ARGUMENT);
        CHECK_HAS(r.why.text, "memory is of another geometry");
        CHECK(!units);
        rig its = rig_new(&other);
        CHECK_U(pimhw_device_run(r.device, &r.readings, its.units, &program, NULL, NULL, &r.why),
                PIMHW_ERR_ARGUMENT);
        CHECK_HAS(r.why.text, "units have another");
        CHECK_HAS(r.why.text, fields[i].name);
        rig_free(&its);
    }
    other = c;
    other.n_bank_groups *= 2, other.n_group_banks /= 2; /* as many banks, grouped otherwise */
    CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_OK);
    CHECK_U(pimhw_device_run(r.device, &r.readings, units, &program, NULL, NULL, &r.why),
            PIMHW_ERR_ARGUMENT);
    pimhw_units_destroy(units);
    /* ping-pong takes an accumulator more than those of its outputs, which stays empty */
    pimhw_device *device;
    other = c;
    other.out_entries = other.obuf = 2;
    CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_OK);
    other.controller = PIMHW_PING_PONG;
    other.out_entries = 3;
    CHECK_U(pimhw_device_create(&device, &other, &r.why), PIMHW_OK);
    CHECK_U(pimhw_device_run(device, &r.readings, units, &program, NULL, NULL, &r.why),
            PIMHW_ERR_ARGUMENT);
    CHECK_HAS(r.why.text, "fewer accumulators");
    pimhw_device_destroy(device);
    pimhw_units_destroy(units);
    check_heap heap = {.fail_at = 1};
    other = c;
    other.allocator = heap_allocator(&heap);
    CHECK_U(pimhw_units_create(&units, &other, r.memory, &r.why), PIMHW_ERR_MEMORY);
    CHECK(!units && heap.n_live == 0);
    CHECK(!pimhw_units_gpr(r.units, BLOCKS));
    rig_free(&r);
}

static void keep_row_of_af(void *user, const pimhw_event *event)
{
    if (event->command == PIMHW_CMD_AF16) *(uint32_t *)user = event->row;
}

/* AF opens a row beyond those of the device, whatever CFR 2 holds. */
static void af_has_a_row_of_its_own(void)
{
    static const uint32_t modes[] = {0, 7, 1u << 29, 7u << 29, UINT32_MAX};
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    rig r = rig_new(&c);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const pimhw_instruction mode = {
            .kind = PIMHW_CFR, .mask = 1, .out = 1, .aux = 2, .gpr = modes[i]};
        const pimhw_instruction af = {.kind = PIMHW_AF, .mask = 1, .op_size = 1};
        uint32_t row = 0;
        const pimhw_sink sink = {keep_row_of_af, &row, NULL};
        pimhw_program program;
        pimhw_program_init(&program);
        pimhw_program_add(&program, &mode);
        pimhw_program_add(&program, &af);
        CHECK_U(pimhw_device_time(r.device, &r.readings, &program, NULL, &sink, &r.why), PIMHW_OK);
        CHECK(row >= 1u << 29);
        if (modes[i] < 8) CHECK_U(row, (1u << 29) + modes[i]);
    }
    rig_free(&r);
}

/* Six lanes: (0 + 1) + (2 + 3), then 4 + 5. Those of 2^24, 1, 1, 1, 1, 0 make 2^24, 2 and 1: the
 * first two 2^24 + 2, with 1 a tie, to the even 2^24 + 4. In order they would stay at 2^24. */
static void lanes_need_be_no_power_of_two(void)
{
    enum { SIX = 6 };
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    c.column_bytes = 2 * SIX, c.row_bytes = 4 * c.column_bytes, c.out_bits = 32;
    rig r = rig_new(&c);
    const pimhw_da at = place_of(0, 3, 1, 0);
    const uint16_t big = lane(&r, 4096), one = lane(&r, 1);
    const uint16_t row[SIX] = {big, one, one, one, one, 0};
    CHECK_U(pimhw_memory_write(r.memory, &at, row, sizeof row, &r.why), PIMHW_OK);
    memcpy(pimhw_units_gpr(r.units, 0), row, sizeof row);
    DO(&r, IN(.kind = PIMHW_WR_GB, .mask = 1), IN(.kind = PIMHW_MAC_ABK, .row = 1, .mask = 1),
       IN(.kind = PIMHW_RD_MAC, .gpr = 10, .mask = 1));
    float sums[BANKS];
    memcpy(sums, pimhw_units_gpr(r.units, 10), sizeof sums);
    CHECK_NEAR(sums[3], 0x1p24 + 4, 0);
    CHECK_NEAR(sums[2], 0, 0);
    rig_free(&r);
}

/* Bank groups of two have no third bank for the products. */
static void products_need_three_banks(void)
{
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    c.n_group_banks = 2;
    const pimhw_instruction in = IN(.kind = PIMHW_EWMUL, .mask = 1, .op_size = 1);
    const pimhw_event event = {.command = PIMHW_CMD_EWMUL16};
    static pimhw_program program;
    rig r = rig_new(&c);
    CHECK_U(run_all(&r, &in, 1, NULL), PIMHW_ERR_PROGRAM);
    CHECK_HAS(r.why.text, "item 0: EWMUL: n_group_banks");
    pimhw_program_init(&program);
    pimhw_program_add(&program, &in);
    CHECK_U(pimhw_program_check(&program, &c, &r.why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(r.why.text, "item 0: EWMUL: n_group_banks");
    CHECK_U(pimhw_device_time(r.device, &r.readings, &program, NULL, NULL, &r.why),
            PIMHW_ERR_PROGRAM);
    CHECK_HAS(r.why.text, "item 0: EWMUL: n_group_banks");
    CHECK_U(pimhw_device_begin(r.device, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(r.device, &in, &r.why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(r.why.text, "EWMUL: n_group_banks");
    pimhw_units_begin(r.units, NULL, NULL); /* which take any event */
    pimhw_units_command(r.units, &event);
    CHECK_U(pimhw_units_end(r.units, &r.why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(r.why.text, "EWMUL: bank groups have 2 banks, of 3 needed");
    rig_free(&r);
}

/* The shared front end goes by what is ready, not by address: where that changes bytes, a run says
 * so. Four reads keep the bus busy until a MAC's row is open; 15 have a row open in the others. */
static void accesses_that_are_overtaken_are_told(void)
{
    static const struct {
        pimhw_instruction waits, then;
        uint32_t n_reads; /* in front of them */
        bool pairs, hazard;
    } cases[] = {
#define WRITES IN(.kind = PIMHW_WR_SBK, .bank = 1, .row = 6, .column = 2)
#define READS  IN(.kind = PIMHW_RD_SBK, .gpr = 40, .bank = 1, .row = 6, .column = 2)
        {WRITES, IN(.kind = PIMHW_MAC_SBK, .bank = 1, .row = 6, .column = 2), 4, false, true},
        {WRITES, IN(.kind = PIMHW_MAC_SBK, .bank = 1, .row = 6, .op_size = 3), 4, false, true},
        {WRITES, IN(.kind = PIMHW_MAC_SBK, .bank = 1, .row = 6, .op_size = 2), 4, false, false},
        {WRITES, IN(.kind = PIMHW_MAC_SBK, .bank = 0, .row = 6, .column = 2), 4, false, false},
        {WRITES, IN(.kind = PIMHW_MAC_SBK, .bank = 0, .row = 6, .column = 2), 4, true, true},
        {WRITES, IN(.kind = PIMHW_COPY_BKGB, .bank = 1, .row = 6, .column = 2), 4, false, true},
        {WRITES, IN(.kind = PIMHW_COPY_BKGB, .bank = 2, .row = 6, .column = 2), 4, false, false},
        {WRITES, IN(.kind = PIMHW_COPY_GBBK, .bank = 1, .row = 6, .column = 2), 4, false, true},
        {READS, IN(.kind = PIMHW_COPY_BKGB, .bank = 1, .row = 6, .column = 2), 4, false, false},
        {READS, IN(.kind = PIMHW_WR_SBK, .bank = 1, .row = 6, .column = 2), 0, false, true},
        {READS, IN(.kind = PIMHW_WR_SBK, .bank = 1, .row = 6, .column = 3), 0, false, false},
        {READS, IN(.kind = PIMHW_RD_SBK, .bank = 1, .row = 6, .column = 2), 0, false, false},
        {READS, IN(.kind = PIMHW_EWMUL, .row = 6, .column = 2), 15, false, false},
        {IN(.kind = PIMHW_RD_SBK, .gpr = 40, .bank = 2, .row = 6, .column = 2),
         IN(.kind = PIMHW_EWMUL, .row = 6, .column = 2), 15, false, true},
        {IN(.kind = PIMHW_WR_SBK, .bank = 9, .row = 6, .column = 2),
         IN(.kind = PIMHW_EWMUL, .row = 6, .column = 2), 15, false, true},
        {READS, IN(.kind = PIMHW_WR_ABK, .mask = 1, .row = 6, .column = 2), 15, false, true},
        {READS, IN(.kind = PIMHW_WR_ABK, .mask = 1, .row = 6, .column = 3), 15, false, false},
        {WRITES, IN(.kind = PIMHW_MAC_ABK, .row = 6, .column = 2), 15, false, true},
        {READS, IN(.kind = PIMHW_MAC_ABK, .row = 6, .column = 2), 15, false, false},
#undef WRITES
#undef READS
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t front_end = 0; front_end < 2; front_end++) {
            pimhw_config c;
            CHECK_U(pimhw_config_init(&c, "aim-gddr6", NULL), PIMHW_OK);
            c.front_end = front_end;
            rig r = rig_new(&c);
            pimhw_instruction all[18] = {IN(.kind = PIMHW_CFR, .out = 1, .gpr = !cases[i].pairs)};
            const uint32_t four[4] = {4, 8, 12, 5}, own = cases[i].waits.bank;
            const bool row = cases[i].n_reads == 15;                /* 6 is open in all banks */
            const bool copies = cases[i].then.kind == PIMHW_WR_ABK; /* reads would hold it off */
            uint32_t n = 1;
            for (uint32_t k = 0; k < cases[i].n_reads; k++, n++) {
                const pimhw_instruction in =
                    IN(.kind = copies ? PIMHW_COPY_BKGB : PIMHW_RD_SBK, .gpr = 80 + 64 * k,
                       .row = row ? 6 : 1, .bank = row ? k + (k >= own) : four[k]);
                all[n] = in;
            }
            all[n++] = cases[i].waits;
            all[n++] = cases[i].then;
            bool told = front_end == PIMHW_SHARED && cases[i].hazard;
            if (!CHECK_U(run_all(&r, all, n, NULL), told ? PIMHW_ERR_HAZARD : PIMHW_OK))
                printf("  case %u: %s\n", (unsigned)i, r.why.text);
            char words[64];
            sprintf(words, "bank %u, row 6, column 2 was overtaken", (unsigned)cases[i].waits.bank);
            if (told) CHECK_HAS(r.why.text, words);
            rig_free(&r);
        }
}

/* A result that goes back in as an input, before it is there: wherever a controller does not keep
 * that order it says so, ping-pong does not; after a SYNC all have one value. Nor does a run see
 * what the run before it used. */
static void results_used_too_early_are_told(void)
{
    double want = 0;
    for (uint32_t controller = 0; controller < 4; controller++)
        for (int waits = 1; waits >= 0; waits--) {
            pimhw_config c = rig_config(controller);
            rig r = rig_new(&c);
            put_gpr(&r, 0, 1, 0);
            for (uint32_t b = 0; b < 16; b++) {
                put(&r, place_of(0, b, 1, 0), 1, b);
                put(&r, place_of(0, b, 2, 0), b, 0.5);
            }
            const pimhw_instruction all[] = {
                IN(.kind = PIMHW_WR_GB, .mask = 1),
                IN(.kind = PIMHW_MAC_ABK, .mask = 1, .row = 1),
                IN(.kind = PIMHW_RD_MAC, .mask = 1, .gpr = 100),
                IN(.kind = PIMHW_SYNC),
                IN(.kind = PIMHW_WR_GB, .mask = 1, .tile = 1, .gpr = 100),
                IN(.kind = PIMHW_MAC_ABK, .mask = 1, .row = 2, .tile = 1),
                IN(.kind = PIMHW_RD_MAC, .mask = 1, .gpr = 120)};
            pimhw_instruction some[7];
            uint32_t n = 0;
            for (uint32_t i = 0; i < 7; i++)
                if (waits || all[i].kind != PIMHW_SYNC) some[n++] = all[i];
            for (int again = 0; again < 2; again++) {
                const pimhw_status status = run_all(&r, some, n, NULL);
                const bool told = !waits && controller == PIMHW_PING_PONG;
                CHECK_U(status, told ? PIMHW_ERR_HAZARD : PIMHW_OK);
                if (told) CHECK_HAS(r.why.text, "GPR block 100 is written after later ones");
                if (controller == 0 && waits) want = get_gpr(&r, 120, 3);
                if (!told) CHECK_NEAR(get_gpr(&r, 120, 3), want, 0);
            }
            CHECK(want != 0);
            rig_free(&r);
        }
}

/* What a shared front end leaves in its queues at the end is done, and counted nowhere. */
static void what_is_left_at_the_end_is_done(void)
{
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    c.front_end = PIMHW_SHARED;
    rig r = rig_new(&c);
    put_gpr(&r, 7, 5, 1);
    DO(&r, IN(.kind = PIMHW_WR_SBK, .gpr = 7, .bank = 2, .row = 3, .column = 1));
    CHECK_U(r.readings.commands[PIMHW_CMD_WR], 0);
    CHECK_NEAR(get(&r, place_of(0, 2, 3, 1), 4), 9, 0);
    CHECK_NEAR(get(&r, place_of(1, 2, 3, 1), 4), 9, 0);
    DO(&r, IN(.kind = PIMHW_RD_SBK, .gpr = 20, .bank = 2, .row = 3, .column = 1));
    CHECK_NEAR(get_gpr(&r, 21, 4), 9, 0);
    /* a read that meets writes is no command; with a SYNC it is */
    const pimhw_instruction meets[] = {IN(.kind = PIMHW_WR_SBK, .gpr = 7, .bank = 4, .row = 1),
                                       IN(.kind = PIMHW_WR_SBK, .gpr = 7, .bank = 4, .row = 2),
                                       IN(.kind = PIMHW_RD_SBK, .gpr = 30, .bank = 2, .row = 3),
                                       IN(.kind = PIMHW_RD_SBK, .gpr = 34, .bank = 5, .row = 3)};
    CHECK_U(run_all(&r, meets, 4, NULL), PIMHW_ERR_HAZARD); /* the first of them is told */
    CHECK_HAS(r.why.text, "the read of bank 2, row 3, column 0 met writes");
    DO(&r, meets[0], meets[1], IN(.kind = PIMHW_SYNC), meets[2]);
    rig_free(&r);
}

/* Of whatever NaN an element is made, it is one of the same bits. */
static void results_have_one_nan(void)
{
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t bits = 16; bits <= 32; bits += 16) {
            pimhw_config c = rig_config(PIMHW_IN_ORDER);
            c.lane_type = type, c.out_bits = bits;
            rig r = rig_new(&c);
            const uint16_t its = type == PIMHW_LANE_F16 ? 0x7e00 : 0x7fc0;
            const uint16_t odd = type == PIMHW_LANE_F16 ? 0xfe93 : 0xffb3;
            const uint16_t inf = type == PIMHW_LANE_F16 ? 0xfc00 : 0xff80;
            uint16_t lanes[2][LANES] = {{odd}, {inf}};
            for (uint32_t b = 0; b < BANKS; b++) {
                const pimhw_da at = place_of(0, b, 1, 0);
                CHECK_U(pimhw_memory_write(r.memory, &at, lanes[b & 1], sizeof lanes[0], &r.why),
                        PIMHW_OK);
            }
            put_gpr(&r, 0, 0, 0); /* 0 times infinity */
            memcpy(pimhw_units_gpr(r.units, 60), lanes, sizeof lanes[0]);
            put_gpr(&r, 61, 1, 0);
            DO(&r, IN(.kind = PIMHW_WR_GB, .mask = 1), IN(.kind = PIMHW_MAC_ABK, .row = 1),
               IN(.kind = PIMHW_AF, .mask = 1), IN(.kind = PIMHW_RD_AF, .gpr = 20, .mask = 1),
               IN(.kind = PIMHW_RD_MAC, .gpr = 10, .mask = 1),
               IN(.kind = PIMHW_EWMUL, .row = 1, .mask = 1),
               IN(.kind = PIMHW_EWADD, .gpr = 61, .aux = 60));
            for (uint32_t i = 0; i < 2 * BANKS; i++) { /* sums, then what AF makes of them */
                const uint16_t *sums = pimhw_units_gpr(r.units, i < BANKS ? 10 : 20);
                uint32_t b = i % BANKS, one = sums[b];
                if (bits == 32) memcpy(&one, sums + 2 * b, sizeof one);
                CHECK_U(one, bits == 32 ? 0x7fc00000u : its);
            }
            const pimhw_da product = place_of(0, 2, 1, 0);
            CHECK_U(pimhw_memory_read(r.memory, lanes[0], &product, sizeof lanes[0], &r.why),
                    PIMHW_OK);
            CHECK_U(lanes[0][0], its);
            CHECK_U(pimhw_units_gpr(r.units, 61)[0], its);
            CHECK_NEAR(get_gpr(&r, 61, 1), 1, 0);
            rig_free(&r);
        }
}

/* A row that is opened the first time takes memory. */
static void rows_without_memory_end_a_run(void)
{
    check_heap heap = {0};
    pimhw_config c = rig_config(PIMHW_IN_ORDER);
    const pimhw_instruction in = IN(.kind = PIMHW_WR_SBK, .row = 5);
    c.allocator = heap_allocator(&heap);
    rig r = rig_new(&c);
    heap.fail_at = heap.n_calls + 1;
    CHECK_U(run_all(&r, &in, 1, NULL), PIMHW_ERR_MEMORY);
    CHECK_HAS(r.why.text, "memory");
    CHECK_U(run_all(&r, &in, 1, NULL), PIMHW_OK);
    rig_free(&r);
    CHECK_U(heap.n_live, 0);
}

int main(void)
{
    RUN(lanes_need_be_no_power_of_two);
    RUN(products_need_three_banks);
    RUN(accesses_that_are_overtaken_are_told);
    RUN(a_sum_that_is_lost_is_told_where_it_is_used);
    RUN(results_used_too_early_are_told);
    RUN(writes_that_wait_keep_their_values);
    RUN(places_of_events_are_judged);
    RUN(what_is_named_under_every_controller);
    RUN(what_is_left_at_the_end_is_done);
    RUN(results_have_one_nan);
    RUN(rows_without_memory_end_a_run);
    RUN(under_every_controller);
    RUN(every_lane_and_every_tie);
    RUN(arrays_are_their_lanes);
    RUN(lanes_do_not_hang_on_the_host);
    RUN(any_float_rounds_as_defined);
    RUN(regions_and_accumulators_hold_what_is_due);
    RUN(a_bias_is_written_for_the_next_phase);
    RUN(a_bias_may_wait_for_its_sum);
    RUN(long_instructions_fit_the_queues);
    RUN(programs_do_what_they_say_one_by_one);
    RUN(a_broken_d_table_is_caught);
    RUN(rows_are_where_va2pa_says);
    RUN(wrong_addresses_are_named);
    RUN(last_blocks_are_looked_at);
    RUN(reads_say_what_sum_it_was);
    RUN(reads_say_what_round_it_was);
    RUN(any_use_of_a_tile_is_noticed);
    RUN(nothing_is_done_after_a_failure);
    RUN(no_allocator_is_malloc);
    RUN(reads_of_nothing_have_no_order);
    RUN(units_fit_their_device);
    RUN(af_has_a_row_of_its_own);
    return check_end();
}
