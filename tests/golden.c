/* The golden cases of the controllers, to the clock: small streams that were worked out by hand,
 * the layouts of V, what a row costs in the long run; and the laws that follow from the rules.
 * Every stream goes to the device and to the oracle of queues.h. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"
#include "queues.h"

enum { MOST = 4096, IN_ORDER = PIMHW_IN_ORDER, ST = PIMHW_STATIC_GAPS, PP = PIMHW_PING_PONG };
enum { DCS = PIMHW_DCS };

/* The stream being built. */
static struct {
    pimhw_instruction in[MOST];
    size_t n;
} stream;

static queues oracle;

static void add(pimhw_instruction in)
{
    if (CHECK(stream.n < MOST)) stream.in[stream.n++] = in;
}

static void restart(void)
{
    stream.n = 0;
}

/* n tiles from tile on; n MACs with them, from column 0; a result. */
static void W(uint32_t tile, uint64_t n)
{
    add(hw_gb(1, n, tile));
}

static void M(uint32_t tile, uint64_t n, uint32_t out, uint32_t row)
{
    pimhw_instruction in = hw_mac(1, n, row, out);
    in.tile = tile;
    add(in);
}

static void R(uint32_t out)
{
    add(hw_rd(1, out));
}

/* aimx, one channel, with the calibrated gaps, without refresh; outs accumulators everywhere. */
static pimhw_config device_with(uint32_t controller, uint32_t outs)
{
    pimhw_config c = hw_config("aimx", 1);
    if (controller == IN_ORDER) c = hw_config("aim-gddr6", 32);
    c.controller = controller;
    c.out_entries = c.obuf = outs;
    CHECK_U(c.tWR_INP, 40);
    CHECK_U(c.tMAC, 41);
    CHECK_U(c.tRD_OUT, 40);
    return c;
}

/* Clocks of the stream, on which device and oracle agree. */
static uint64_t clocks_of(const pimhw_config *c)
{
    if (c->controller == IN_ORDER) {
        hw_stream(c, stream.in, stream.n);
        return hw.r.cycles;
    }
    queues_begin(&oracle, c);
    for (size_t i = 0; i < stream.n; i++)
        queues_submit(&oracle, &stream.in[i]);
    queues_finish(&oracle);
    hw_stream(c, stream.in, stream.n);
    CHECK_U(hw.r.cycles, oracle.cycles);
    return hw.r.cycles;
}

/* The stream takes so long under a controller with so many accumulators. */
static void takes(uint32_t controller, uint32_t outs, uint64_t clocks)
{
    pimhw_config c = device_with(controller, outs);
    if (!CHECK_U(clocks_of(&c), clocks))
        printf("  %s, %u outputs\n", pimhw_controller_str(controller), outs);
}

/* --------------------------------------------------------------------------
 * The cases. Clocks in the comments: W inputs, M MACs, R results.
 * -------------------------------------------------------------------------- */

static void three_inputs_two_outputs(void)
{
    restart();
    W(0, 3), M(0, 3, 0, 0), R(0), M(0, 3, 1, 0), R(1);
}

/* Without rows: static 6 tCCD + W + 2 (M + R); halves 6 tCCD + W + 2 M + R; DCS W + 5 tCCD + M + R,
 * and 42 or 34 if no MAC follows another on its output at tCCD. */
static void case_0_figure_7(void)
{
    static const uint32_t sets[2][4] = {{1, 6, 6, 5}, {2, 2, 5, 5}};
    static const uint32_t controllers[3] = {ST, PP, DCS}, want[3] = {34, 29, 22};
    static const uint32_t one_by_one[2] = {42, 34};
    three_inputs_two_outputs();
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < 4; i++) {
            pimhw_config c = device_with(controllers[i % 3], 2);
            c.tBL = c.tCCD_S = c.tCCD_L = c.tCCD_MAC = sets[set][0];
            c.tWR_INP = sets[set][1], c.tMAC = sets[set][2], c.tRD_OUT = sets[set][3];
            c.row_opening = PIMHW_ROW_HIDDEN;
            c.tRCD_MAC = 1;
            if (i == 3) c.controller = DCS, c.is_mac = 0;
            CHECK_U(clocks_of(&c), i == 3 ? one_by_one[set] : want[i]);
        }
}

/* static  W 0-4; ACT 44; M 100-104; R 145; M 185-189; R 230
 * DCS     ACT 0; W 0-4; M 56-66; R 101, 107
 * halves  W 0-4; M 56-60; 101: M 101-105, R 101; 146: R 146
 * order   TMOD 1; W 33-37; TMOD 38; ACT 70; M 126-130; TMOD 132; R 164; .. R 237 */
static void case_1_figure_7_with_rows(void)
{
    three_inputs_two_outputs();
    takes(IN_ORDER, 2, 241);
    takes(ST, 2, 270);
    takes(PP, 2, 186);
    takes(DCS, 2, 147);
}

/* Groups of 8 outputs, one row each 8: 8 M and their R. */
static void scores(uint32_t n_rows, uint32_t outs, uint32_t first_tile)
{
    for (uint32_t i = 0; i < 8 * n_rows; i++)
        M(first_tile, 8, i % outs, i / 8), R(i % outs);
}

static void matrix_of_128(uint32_t outs)
{
    restart();
    W(0, 8), scores(1, outs, 0);
}

/* static  ACT 54; M 110; 8 x (14 + 41 + 40)
 * DCS     2 outputs: pairs at 56 + 95 k, last M 371, R 412; 8: M 56-182, R 223
 * halves  56 + 8 (14 + 41) + 40; 8 outputs, 2 phases of 4: 56 + 2 (62 + 41) + 6 + 40
 * order   first R 184, 83 each; with WR_BIAS 16 + 174 + 7 x 86 */
static void case_2_matrix_of_128(void)
{
    matrix_of_128(2);
    takes(IN_ORDER, 2, 769);
    takes(ST, 2, 870);
    takes(PP, 2, 536);
    takes(DCS, 2, 452);
    matrix_of_128(8);
    takes(ST, 8, 870);
    takes(PP, 8, 308);
    takes(DCS, 8, 263);
    restart();
    W(0, 8);
    for (uint32_t i = 0; i < 8; i++)
        add(hw_bias(1, i)), M(0, 8, i, 0), R(i);
    takes(IN_ORDER, 8, 792);
}

static void case_3_inputs_only(void)
{
    restart();
    W(0, 5);
    takes(IN_ORDER, 2, 45);
    takes(ST, 2, 48);
    takes(DCS, 2, 48);
}

/* static  ACT 40; M 96; 98: PREA 108; ACT 140; M 196; R 237
 * DCS     M 56; PREA 68; ACT 100; M 156; R 197 */
static void case_4_other_row(void)
{
    restart();
    W(0, 1), M(0, 1, 0, 0), M(0, 1, 0, 1), R(0);
    takes(IN_ORDER, 2, 260);
    takes(ST, 2, 277);
    takes(PP, 2, 237);
    takes(DCS, 2, 237);
}

/* static  M 96; W 137; M 177; R 218
 * DCS     M 56; W 97; M 137; R 178; free at + tCCD: W 58, M 98, R 139
 * halves  M 56 beside W; 97: M 97; 138: R */
static void case_5_overwritten_tile(void)
{
    restart();
    W(0, 1), M(0, 1, 0, 0), W(0, 1), M(0, 1, 0, 0), R(0);
    takes(IN_ORDER, 2, 226);
    takes(ST, 2, 258);
    takes(PP, 2, 178);
    takes(DCS, 2, 218);
    pimhw_config c = device_with(DCS, 2);
    c.early_tiles = 1;
    CHECK_U(clocks_of(&c), 179);
}

/* DCS  W 0, 2; M 56, 58; R 99: static cannot tell it from case 5 */
static void case_6_other_tile(void)
{
    restart();
    W(0, 1), M(0, 1, 0, 0), W(1, 1), M(1, 1, 0, 0), R(0);
    takes(IN_ORDER, 2, 226);
    takes(ST, 2, 258);
    takes(PP, 2, 178);
    takes(DCS, 2, 139);
}

/* static  96 + 4 (41 + 40)
 * DCS     2 outputs: M 56, 58; R 97, 99; M 137, 139; R 178, 180; 1: 56 + 4 x 41 + 4 x 40
 * halves  56 + 4 x 41 + 40 */
static void case_7_outputs(void)
{
    for (uint32_t outs = 1; outs <= 2; outs++) {
        restart();
        W(0, 1);
        for (uint32_t i = 0; i < 4; i++)
            M(0, 1, i % outs, 0), R(i % outs);
        takes(ST, outs, 420);
        takes(DCS, outs, outs == 1 ? 380 : 220);
    }
    takes(IN_ORDER, 2, 367);
    takes(PP, 2, 260);
}

/* static  M 98, 100; R 141; W 181, 183; M 223, 225; R 266
 * DCS     M 56, 58; R 99 keeps W waiting until 101, 103; M 141, 143; R 184
 * halves  M 56, 58 beside W 42, 44; 99: M 99, 101, R 99; 142: R */
static void case_8_result_first(void)
{
    restart();
    W(0, 1), W(1, 1), M(0, 1, 0, 0), M(1, 1, 0, 0), R(0);
    W(2, 1), W(3, 1), M(2, 1, 1, 0), M(3, 1, 1, 0), R(1);
    takes(ST, 2, 306);
    takes(PP, 2, 182);
    takes(DCS, 2, 224);
}

/* DCS  W 0-6; M 56-62; R 99, 103; static  W 141, 143; R 183; M 223, 225; R 266 */
static void case_9_inputs_first(void)
{
    restart();
    W(0, 1), W(1, 1), M(0, 1, 0, 0), M(1, 1, 0, 0);
    W(2, 1), W(3, 1), R(0), M(2, 1, 1, 0), M(3, 1, 1, 0), R(1);
    takes(ST, 2, 306);
    takes(PP, 2, 182);
    takes(DCS, 2, 143);
}

/* static ACT 54, M 110-124, R 165; DCS M 56-70, R 111; in order ACT 80, M 136-150, R 184 */
static void case_10_one_score(void)
{
    restart();
    W(0, 8), M(0, 8, 0, 0), R(0);
    takes(IN_ORDER, 2, 188);
    takes(ST, 2, 205);
    takes(PP, 2, 151);
    takes(DCS, 2, 151);
}

/* static ACT 40, M 96, R 137; DCS M 56, R 97; in order M 122, TMOD 124, R 156 */
static void case_11_one_value(void)
{
    restart();
    W(0, 1), M(0, 1, 0, 0), R(0);
    takes(IN_ORDER, 2, 160);
    takes(ST, 2, 177);
    takes(PP, 2, 137);
    takes(DCS, 2, 137);
}

/* Mapping A: per row 64 inputs and MACs; one result in the end. */
static void values_a(uint32_t n_rows)
{
    restart();
    for (uint32_t row = 0; row < n_rows; row++)
        W(0, 64), M(0, 64, 0, row);
    R(0);
}

/* static  W 0-126; ACT 166; M 222-348; W 389-515; 555 PREA; ACT 587; M 643-769; R 810
 * DCS     M 56-182; W 128-254; PREA 194; ACT 226; M 282-408; R 449
 * halves  102: M 102-164; 205: M 205-267, PREA 279, ACT 311; M 367-429; 470: M -532; 573: R
 * order   M 248-374; W 407-533; PREA 566; ACT 598; M 654-780; R 814 */
static void case_12_two_rows_of_values(void)
{
    values_a(2);
    takes(IN_ORDER, 2, 818);
    takes(ST, 2, 850);
    takes(PP, 2, 613);
    takes(DCS, 2, 489);
    pimhw_config c = device_with(PP, 2);
    c.extra_region = 1;
    CHECK_U(clocks_of(&c), 599);
}

/* static  ACT 54; M 110-236; R 277-291;  DCS  M 56-182; last R 223 */
static void case_13_values_in_8_outputs(void)
{
    restart();
    W(0, 8);
    for (uint32_t i = 0; i < 8; i++)
        M(0, 8, i, 0);
    for (uint32_t i = 0; i < 8; i++)
        R(i);
    takes(ST, 8, 331);
    takes(DCS, 8, 263);
}

/* static  870 + 3 (14 + 40 + 760);  DCS  R 223, W 225.., M 265..: 209 each
 * halves  all W first: 102, 8 phases of 4 outputs 62 + 41, then 6 + 40 */
static void case_14_four_queries(void)
{
    restart();
    for (uint32_t i = 0; i < 4; i++)
        W(8 * i, 8), scores(1, 8, 8 * i);
    takes(ST, 8, 3312);
    takes(DCS, 8, 890);
    restart();
    W(0, 32);
    for (uint32_t i = 0; i < 4; i++)
        scores(1, 8, 8 * i);
    takes(PP, 8, 972);
}

/* static  a row 8 x 95 + 88;  DCS  8 outputs: 128 + 98 */
static void case_15_two_rows_of_scores(void)
{
    for (uint32_t outs = 2; outs <= 8; outs += 6) {
        restart();
        W(0, 8), scores(2, outs, 0);
        takes(ST, outs, 1718);
        takes(PP, outs, outs == 2 ? 1035 : 573);
        takes(DCS, outs, outs == 2 ? 867 : 489);
    }
}

/* --------------------------------------------------------------------------
 * Calibration, steady rows, the layouts of V.
 * -------------------------------------------------------------------------- */

/* 14 + tWR_INP + tRCD + 8 (14 + tMAC + tRD_OUT), by where the opening of the row begins. */
static void static_meets_its_calibration(void)
{
    matrix_of_128(2);
    for (uint32_t i = 0; i < 60; i++) {
        pimhw_config c = device_with(ST, 2);
        c.tWR_INP = 10 + i, c.tMAC = 20 + i % 7 * 5, c.tRD_OUT = 15 + i % 11 * 4;
        uint64_t sum = 8 * (14 + (uint64_t)c.tMAC + c.tRD_OUT), w = c.tWR_INP;
        CHECK_U(clocks_of(&c), 14 + w + 56 + sum);
        c.row_opening = PIMHW_ROW_HEAD;
        CHECK_U(clocks_of(&c), 14 + (w > 56 ? w : 56) + sum);
        c.row_opening = PIMHW_ROW_HIDDEN;
        CHECK_U(clocks_of(&c), 14 + w + sum);
    }
    pimhw_config c = device_with(ST, 2);
    CHECK_NEAR(128. / (double)clocks_of(&c), 0.1471, 0.00005);
    c.row_opening = PIMHW_ROW_HEAD, c.tMAC = c.tRD_OUT = 43;
    CHECK_NEAR((double)clocks_of(&c), 871, 3);
    c.row_opening = PIMHW_ROW_HIDDEN, c.tWR_INP = 41, c.tMAC = c.tRD_OUT = 44;
    CHECK_NEAR((double)clocks_of(&c), 871, 3);
}

/* What one more row costs once many have gone by. */
static void row_costs(uint32_t controller, uint32_t outs, bool values, uint32_t extra,
                      uint64_t clocks)
{
    uint64_t took[2];
    pimhw_config c = device_with(controller, outs);
    c.extra_region = extra;
    for (uint32_t i = 0; i < 2; i++) {
        restart();
        if (values)
            values_a(6 + i);
        else
            W(0, 8), scores(6 + i, outs, 0);
        took[i] = clocks_of(&c);
    }
    if (!CHECK_U(took[1] - took[0], clocks))
        printf("  %s, %u outputs, %s\n", pimhw_controller_str(controller), outs,
               values ? "values" : "scores");
}

static void steady_rows(void)
{
    row_costs(ST, 2, false, 0, 848);
    row_costs(PP, 2, false, 0, 499);
    row_costs(PP, 8, false, 0, 265);
    row_costs(DCS, 2, false, 0, 415);
    row_costs(DCS, 8, false, 0, 226);
    row_costs(ST, 2, true, 0, 421);
    row_costs(PP, 2, true, 0, 265);
    row_costs(PP, 2, true, 1, 226);
    row_costs(DCS, 2, true, 0, 226);
}

/* Units of work: inputs, MACs in a row, a result; the inputs of the next before the result. */
static void values_in_units(uint32_t n_units, uint32_t units_a_row, uint64_t columns, bool w_first)
{
    restart();
    W(0, columns);
    for (uint32_t i = 0; i < n_units; i++) {
        bool more = i + 1 < n_units;
        M(0, columns, i % 8, i / units_a_row);
        if (more && w_first) W(0, columns);
        R(i % 8);
        if (more && !w_first) W(0, columns);
    }
}

/* Mapping B: 8 rows, one a dimension, read the same inputs. */
static void values_b(uint32_t n_blocks, uint64_t columns)
{
    restart();
    W(0, columns);
    for (uint32_t i = 0; i < 8 * n_blocks; i++) {
        M(0, columns, i % 8, i);
        if (i % 8 == 7 && i + 1 < 8 * n_blocks) W(0, columns);
        R(i % 8);
    }
}

/* Mapping K: a row is 8 dimensions of some tokens; the inputs of a unit before the MACs of the one
 * before it; all sums stay to the end. */
static void values_k(uint32_t n_rows, uint32_t queries, uint64_t columns)
{
    uint32_t n_units = n_rows * queries, tiles = (uint32_t)columns;
    restart();
    W(0, columns);
    for (uint32_t i = 0; i < n_units; i++) {
        if (i + 1 < n_units) W((i + 1) % 8 * tiles, columns);
        for (uint32_t k = 0; k < 8; k++)
            M(i % 8 * tiles, columns, i % queries * 8 + k, i / queries);
    }
    for (uint32_t i = 0; i < 8 * queries; i++)
        R(i);
}

static void values_take(uint32_t outs, uint64_t under_static, uint64_t under_dcs)
{
    takes(ST, outs, under_static);
    takes(DCS, outs, under_dcs);
}

/* 128 dimensions, 16 channels of 16 banks, T tokens of one head; one query. */
static void values_of_one_query(void)
{
    restart(), W(0, 1), M(0, 1, 0, 0), R(0);
    values_take(2, 177, 137); /* T = 32 */
    values_b(1, 1);
    values_take(8, 1360, 837);
    values_k(1, 1, 1);
    values_take(8, 205, 151);
    values_a(2);
    values_take(2, 850, 489); /* T = 4096 */
    values_b(1, 16);
    values_take(8, 1630, 1077);
    values_k(2, 1, 8);
    values_take(8, 573, 489);
    values_a(8);
    values_take(2, 3376, 1845); /* T = 16384 */
    values_b(1, 64);
    values_take(8, 2494, 1845);
    values_k(8, 1, 8);
    values_take(8, 2427, 1845);
    values_a(32);
    values_take(2, 13480, 7269); /* T = 65536 */
    values_b(4, 64);
    values_take(8, 10072, 7269);
    values_k(32, 1, 8);
    values_take(8, 9843, 7269);
}

/* 8 queries a row, T = 65536: A and B rewrite their inputs, so they are one stream. */
static void values_of_eight_queries(void)
{
    values_in_units(256, 8, 64, true);
    values_take(8, 98272, 35941);
    pimhw_config c = device_with(DCS, 8);
    CHECK_NEAR(2. * 256 * 64 / (double)clocks_of(&c), 0.91, 0.005);
    values_in_units(256, 8, 64, false);
    CHECK_NEAR(2. * 256 * 64 / (double)clocks_of(&c), 0.60, 0.01);
    values_k(32, 8, 8);
    values_take(64, 59449, 35941);
}

/* T = 32, 4 queries, mapping A: overwriting one tile, DCS falls behind ping-pong. */
static void short_values_of_four_queries(void)
{
    values_in_units(4, 4, 1, true);
    takes(DCS, 8, 380);
    restart();
    W(0, 1);
    for (uint32_t i = 0; i < 4; i++) {
        M(0, 1, i % 2, 0);
        if (i < 3) W(0, 1);
        R(i % 2);
    }
    takes(PP, 2, 262);
}

/* --------------------------------------------------------------------------
 * Laws, on random streams of one channel.
 * -------------------------------------------------------------------------- */

/* What has happened to an entry since it was last read by a MAC, or filled by one. */
typedef struct entries {
    bool written[64], read[64];
} entries;

/* W, M and R of few entries and rows. once: no tile is written and no output read twice without a
 * MAC between. */
static void random_stream(check_rng *rng, uint32_t outs, bool once)
{
    entries e = {{false}, {false}};
    restart();
    for (uint64_t i = rng_range(rng, 1, 40); i > 0; i--) {
        uint32_t n = (uint32_t)rng_range(rng, 1, rng_range(rng, 1, 16));
        uint32_t tile = (uint32_t)rng_range(rng, 0, rng_range(rng, 0, 1) ? 64 - n : 2);
        uint32_t out = (uint32_t)rng_range(rng, 0, outs - 1);
        uint64_t kind = rng_range(rng, 0, 2);
        bool twice = kind == 2 && e.read[out];
        for (uint32_t k = tile; k < tile + n && kind == 0; k++)
            twice |= e.written[k];
        if (twice && once) continue;
        if (kind == 0) W(tile, n);
        if (kind == 1) M(tile, n, out, (uint32_t)rng_range(rng, 0, rng_range(rng, 0, 2)));
        if (kind == 2) R(out);
        for (uint32_t k = tile; k < tile + n; k++)
            e.written[k] = kind == 0 || (kind == 2 && e.written[k]);
        if (kind > 0) e.read[out] = kind == 2;
    }
}

/* Every clock of a run; 0 past the last. */
static uint64_t listing_hash(const pimhw_config *c)
{
    uint64_t hash = clocks_of(c);
    for (size_t i = 0; i < hw.n_events; i++) {
        const pimhw_event *e = &hw.events[i];
        hash = hash * 0x9e3779b97f4a7c15u + (e->issue_ck << 8 | (uint64_t)e->command) + e->row;
    }
    return hash;
}

/* Other tiles, other outputs, more of them: the same clocks. */
static void static_knows_no_entries(void)
{
    check_rng rng = {31};
    for (int i = 0; i < 1000; i++) {
        pimhw_config c = device_with(ST, 2);
        c.row_opening = (uint32_t)rng_range(&rng, 0, 2);
        random_stream(&rng, 2, false);
        uint64_t hash = listing_hash(&c);
        c.out_entries = c.obuf = (uint32_t)rng_range(&rng, 4, 32);
        for (size_t k = 0; k < stream.n; k++) {
            pimhw_instruction *in = &stream.in[k];
            bool tiles = in->kind != PIMHW_RD_MAC, outs = in->kind != PIMHW_WR_GB;
            if (tiles) in->tile = (uint32_t)rng_range(&rng, 0, 64 - in->op_size);
            if (outs) in->out = (uint32_t)rng_range(&rng, 0, c.out_entries - 1);
        }
        CHECK_U(listing_hash(&c), hash);
    }
}

/* Each controller looks at its own number of accumulators only, and none has a host. */
static void other_fields_do_not_matter(void)
{
    check_rng rng = {32};
    for (int i = 0; i < 600; i++) {
        pimhw_config c = device_with(ST + (uint32_t)i % 3, 4);
        random_stream(&rng, 4, false);
        uint64_t hash = listing_hash(&c);
        *(c.controller == DCS ? &c.out_entries : &c.obuf) = (uint32_t)rng_range(&rng, 1, 64);
        c.front_end = PIMHW_SHARED;
        c.tMOD = (uint32_t)rng_range(&rng, 0, 90);
        c.tCL_MAC = (uint32_t)rng_range(&rng, 1, 90);
        c.tMTW = (uint32_t)rng_range(&rng, 0, 90);
        c.tWTR_S = (uint32_t)rng_range(&rng, 0, 40);
        c.tWTR_L = c.tWTR_S + (uint32_t)rng_range(&rng, 0, 40);
        c.tWPRE = (uint32_t)rng_range(&rng, 0, 20);
        c.tCL_REG = (uint32_t)rng_range(&rng, 1, 90);
        c.tCWL_REG = (uint32_t)rng_range(&rng, 1, 90);
        c.tCWL_GB = (uint32_t)rng_range(&rng, 1, 90);
        if (c.controller != PP) c.extra_region = 1;
        if (c.controller != DCS) c.early_tiles = 1, c.is_mac = 0;
        if (c.controller != ST) c.row_opening = (uint32_t)rng_range(&rng, 0, 2);
        CHECK_U(listing_hash(&c), hash);
    }
}

static void dcs_takes_no_longer_than_static(void)
{
    check_rng rng = {33};
    uint64_t n_shorter = 0;
    for (int i = 0; i < 4000; i++) {
        uint32_t outs = (uint32_t)rng_range(&rng, 1, 8);
        pimhw_config c = device_with(ST, outs);
        random_stream(&rng, outs, true);
        uint64_t under_static = clocks_of(&c);
        c.controller = DCS;
        if (!CHECK(clocks_of(&c) <= under_static)) printf("  stream %d\n", i);
        n_shorter += clocks_of(&c) < under_static;
    }
    CHECK(n_shorter > 2000);
}

/* Scores, and values from 1024 tokens of the channel on, inputs first. */
static void dcs_takes_no_longer_than_ping_pong(void)
{
    for (uint32_t i = 0; i < 24; i++) {
        uint32_t rows = 1 + i % 6, outs = i < 12 ? 2 : 8;
        pimhw_config c = device_with(PP, outs);
        if (i % 12 < 6)
            restart(), W(0, 8), scores(rows, outs, 0);
        else
            values_a(rows);
        uint64_t under_ping_pong = clocks_of(&c);
        c.controller = DCS;
        CHECK(clocks_of(&c) <= under_ping_pong);
    }
}

int main(void)
{
    RUN(case_0_figure_7);
    RUN(case_1_figure_7_with_rows);
    RUN(case_2_matrix_of_128);
    RUN(case_3_inputs_only);
    RUN(case_4_other_row);
    RUN(case_5_overwritten_tile);
    RUN(case_6_other_tile);
    RUN(case_7_outputs);
    RUN(case_8_result_first);
    RUN(case_9_inputs_first);
    RUN(case_10_one_score);
    RUN(case_11_one_value);
    RUN(case_12_two_rows_of_values);
    RUN(case_13_values_in_8_outputs);
    RUN(case_14_four_queries);
    RUN(case_15_two_rows_of_scores);
    RUN(static_meets_its_calibration);
    RUN(steady_rows);
    RUN(values_of_one_query);
    RUN(values_of_eight_queries);
    RUN(short_values_of_four_queries);
    RUN(static_knows_no_entries);
    RUN(other_fields_do_not_matter);
    RUN(dcs_takes_no_longer_than_static);
    RUN(dcs_takes_no_longer_than_ping_pong);
    return check_end();
}
