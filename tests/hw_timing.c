/* [H13] The clock of every command, by the constraints. Clocks on aim-gddr6: the host's first
 * instruction reaches its channel at clock 1. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

/* The table in numbers, as the simulator prints it, against the formulas in fields. */
static void constraints_have_the_published_numbers(void)
{
    static const struct {
        pimhw_command from, to;
        uint64_t gap;
    } t[] = {
        {PIMHW_CMD_RDMAC16, PIMHW_CMD_RDMAC16, 2},  {PIMHW_CMD_WRGB, PIMHW_CMD_WRGB, 2},
        {PIMHW_CMD_WRGB, PIMHW_CMD_WRMAC16, 2},     {PIMHW_CMD_WRMAC16, PIMHW_CMD_WRGB, 2},
        {PIMHW_CMD_MAC16, PIMHW_CMD_MAC16, 2},      {PIMHW_CMD_MAC16, PIMHW_CMD_RDMAC16, 2},
        {PIMHW_CMD_RDMAC16, PIMHW_CMD_MAC16, 2},    {PIMHW_CMD_RDMAC16, PIMHW_CMD_WRGB, 5},
        {PIMHW_CMD_RDMAC16, PIMHW_CMD_WRMAC16, 5},  {PIMHW_CMD_WRGB, PIMHW_CMD_RDMAC16, 12},
        {PIMHW_CMD_WRMAC16, PIMHW_CMD_RDMAC16, 14}, {PIMHW_CMD_MAC16, PIMHW_CMD_PREA, 12},
        {PIMHW_CMD_ACT16, PIMHW_CMD_ACT16, 89},     {PIMHW_CMD_ACT16, PIMHW_CMD_PREA, 54},
        {PIMHW_CMD_PREA, PIMHW_CMD_ACT16, 32},      {PIMHW_CMD_PREA, PIMHW_CMD_PREA, 32},
        {PIMHW_CMD_ACT16, PIMHW_CMD_MAC16, 56},     {PIMHW_CMD_TMOD, PIMHW_CMD_MAC16, 32},
        {PIMHW_CMD_TMOD, PIMHW_CMD_ACT16, 32},      {PIMHW_CMD_TMOD, PIMHW_CMD_WRGB, 32},
        {PIMHW_CMD_MAC16, PIMHW_CMD_WRGB, 0},       {PIMHW_CMD_MAC16, PIMHW_CMD_TMOD, 0},
        {PIMHW_CMD_WRGB, PIMHW_CMD_MAC16, 0},
    };
    static const char *const presets[] = {"aim-gddr6", "aimx"};
    static rules r;
    for (int p = 0; p < 2; p++) {
        pimhw_config c = hw_config(presets[p], 1);
        rules_init(&r, &c);
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)
            CHECK_U(r.pair[RULES_CHANNEL][t[i].from][t[i].to].gap_ck, t[i].gap);
    }
}

/* 1 ACT .. 57 MAC 59 MAC 61 MAC; nothing of the row is needed again */
static void mac_waits_tRCD_then_tCCD(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_mac(1, 3, 9, 0), hw_mac(1, 1, 9, 0));
    CHECK_U(ACT_AT(0), 1);
    CHECK_U(MAC_AT(0), 57);
    CHECK_U(MAC_AT(1), 59);
    CHECK_U(MAC_AT(2), 61);
    CHECK_U(MAC_AT(3), 63);
    CHECK_U(PRE_AT(0), UINT64_MAX);
    CHECK_U(hw.r.cycles, 65);
}

/* 1 ACT .. 57 MAC .. 69 PREA (tRTP 12) .. 101 ACT (tRP 32) .. 157 MAC */
static void row_change_waits_tRTP_tRP_tRCD(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_mac(1, 1, 0, 0), hw_mac(1, 1, 1, 0));
    CHECK_U(PRE_AT(0), 69);
    CHECK_U(ACT_AT(1), 101);
    CHECK_U(MAC_AT(1), 157);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_PRE], 32);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_ACT], 112);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_ROW], 10); /* 69 - 57 - tCCD */
}

/* tRCD 5:  1 ACT .. 6 MAC .. 55 PREA (tRAS 54) .. 90 ACT (tRC 89, not 55 + 32) */
static void short_row_waits_tRAS_and_tRC(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    c.tRCD_MAC = 5;
    HW_STREAM(c, hw_mac(1, 1, 0, 0), hw_mac(1, 1, 1, 0));
    CHECK_U(MAC_AT(0), 6);
    CHECK_U(PRE_AT(0), 55);
    CHECK_U(ACT_AT(1), 90);
    CHECK_U(MAC_AT(1), 95);
}

/* 1 TMOD .. 33 WRGB .. 36 done, 37 clocks in all */
static void first_write_waits_for_the_mode(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 1, 0));
    CHECK_U(TMOD_AT(0), 1);
    CHECK_U(GB_AT(0), 33);
    CHECK_U(hw.r.cycles, 37);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MODE], 32);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_WR_INP], 2);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 1);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_DRAIN], 2);
}

/* 33 WRGB .. 45 RD (12);  33 WRMAC16 .. 47 RD (14) */
static void read_waits_for_the_write_before(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_rd(1, 0));
    CHECK_U(GB_AT(0), 33);
    CHECK_U(RD_AT(0), 45);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_INPUT], 10);
    HW_STREAM(c, hw_bias(1, 0), hw_rd(1, 0));
    CHECK_U(BIAS_AT(0), 33);
    CHECK_U(RD_AT(0), 47);
}

/* 33 RD .. 38 WRGB (5) 40 WRMAC16;  on the shared front end the write arrives at 36 */
static void write_waits_for_the_read_before(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_rd(1, 0), hw_gb(1, 1, 0), hw_bias(1, 0));
    CHECK_U(RD_AT(0), 33);
    CHECK_U(GB_AT(0), 38);
    CHECK_U(BIAS_AT(0), 40);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_OUTPUT], 3);
}

/* per channel, from clock 0:  0 TMOD .. 32 RD 34 RD;  shared: 33 RD, answer at 35, 36 RD */
static void reads_in_a_row(void)
{
    pimhw_config c = hw_config("aimx", 16), shared = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_rd(1, 0), hw_rd(1, 0));
    CHECK_U(RD_AT(0), 32);
    CHECK_U(RD_AT(1), 34);
    HW_STREAM(shared, hw_rd(1, 0), hw_rd(1, 0));
    CHECK_U(RD_AT(0), 33);
    CHECK_U(RD_AT(1), 36);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 2);
}

/* Columns 6 apart: 0 ACT .. 56 MAC 62 MAC 68 MAC; without modes a W 16 after the last, at 84 */
static void macs_wait_tCCD_MAC_and_writes_tMTW(void)
{
    pimhw_config c = hw_config("aimx", 1);
    c.tMOD = 0, c.tCCD_MAC = 6, c.tMTW = 16, c.tCL_MAC = 30;
    HW_STREAM(c, hw_mac(1, 3, 0, 0), hw_gb(1, 1, 0));
    CHECK_U(MAC_AT(0), 56);
    CHECK_U(MAC_AT(2), 68);
    CHECK_U(GB_AT(0), 84);
    CHECK_U(hw.r.cycles, 98); /* the sum is there at 68 + tCL_MAC */
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MAC], 18);
}

/* The in-order cases of the golden table: cycles of streams with one free parameter each. */
static void golden_streams(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    const pimhw_instruction gb = hw_gb(1, 1, 0), mac = hw_mac(1, 1, 0, 0), rd = hw_rd(1, 0);
    HW_STREAM(c, hw_gb(1, 3, 0), hw_mac(1, 3, 0, 0), rd, hw_mac(1, 3, 0, 1), hw_rd(1, 1));
    CHECK_U(hw.r.cycles, 241);
    HW_STREAM(c, hw_gb(1, 5, 0));
    CHECK_U(hw.r.cycles, 45);
    HW_STREAM(c, gb, mac, hw_mac(1, 1, 1, 0), rd);
    CHECK_U(hw.r.cycles, 260);
    CHECK_U(PRE_AT(0), 134);
    CHECK_U(ACT_AT(1), 166);
    CHECK_U(RD_AT(0), 256);
    HW_STREAM(c, gb, mac, gb, mac, rd);
    CHECK_U(hw.r.cycles, 226);
    HW_STREAM(c, gb, mac, hw_gb(1, 1, 1), mac, rd);
    CHECK_U(hw.r.cycles, 226);
    HW_STREAM(c, gb, mac, rd, mac, hw_rd(1, 1), mac, rd, mac, hw_rd(1, 1));
    CHECK_U(hw.r.cycles, 367);
    HW_STREAM(c, hw_gb(1, 8, 0), hw_mac(1, 8, 0, 0), rd);
    CHECK_U(hw.r.cycles, 188);
    HW_STREAM(c, gb, mac, rd);
    CHECK_U(hw.r.cycles, 160);
    HW_STREAM(c, hw_gb(1, 64, 0), hw_mac(1, 64, 0, 0), hw_gb(1, 64, 0), hw_mac(1, 64, 1, 0), rd);
    CHECK_U(hw.r.cycles, 818);
    CHECK_U(MAC_AT(63), 374);
    CHECK_U(TMOD_AT(2), 375);
    CHECK_U(GB_AT(127), 533);
    CHECK_U(PRE_AT(0), 566);
    CHECK_U(ACT_AT(1), 598);
    CHECK_U(RD_AT(0), 814);
    pimhw_instruction gemv[17] = {hw_gb(1, 8, 0)};
    for (uint32_t i = 0; i < 8; i++)
        gemv[1 + 2 * i] = hw_mac(1, 8, 0, i % 2), gemv[2 + 2 * i] = hw_rd(1, i % 2);
    hw_stream(&c, gemv, 17);
    CHECK_U(hw.r.cycles, 769);
}

/* Every timing field sets a clock somewhere: a stream of all pairs gets longer with it. */
static void every_field_counts(void)
{
    static const char *const fields[] = {"tRCD_MAC", "tRP",      "tRAS",    "tRC",
                                         "tRTP",     "tWTR_S",   "tWTR_L",  "tWPRE",
                                         "tCL_REG",  "tCWL_REG", "tCWL_GB", "tMOD"};
    const pimhw_instruction gb = hw_gb(1, 2, 0), bias = hw_bias(1, 0), rd = hw_rd(1, 0);
    const pimhw_instruction stream[] = {
        hw_mac(1, 1, 0, 0), hw_mac(1, 1, 1, 0), rd, rd, gb, rd, bias, rd, gb, bias};
    pimhw_config c = hw_config("aimx", 1);
    c.tRCD_MAC = 30, c.tRC = 86; /* so that tRAS and tRC bind as they are */
    c.tWTR_L = 30;               /* so that tWTR_S may grow */
    hw_stream(&c, stream, sizeof stream / sizeof *stream);
    uint64_t usual = hw.r.cycles;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        pimhw_config more = c;
        uint32_t value = 0;
        CHECK_U(pimhw_config_get(&c, fields[i], &value, NULL), PIMHW_OK);
        CHECK_U(pimhw_config_set(&more, fields[i], value + 20, NULL), PIMHW_OK);
        if (more.tRAS > more.tRC) more.tRC = more.tRAS;
        more.tCWL_REG = more.tCWL_GB = /* after a read the two are not told apart */
            more.tCWL_REG > more.tCWL_GB ? more.tCWL_REG : more.tCWL_GB;
        hw_stream(&more, stream, sizeof stream / sizeof *stream);
        if (!CHECK(hw.r.cycles > usual)) printf("  %s\n", fields[i]);
    }
}

int main(void)
{
    RUN(constraints_have_the_published_numbers);
    RUN(mac_waits_tRCD_then_tCCD);
    RUN(row_change_waits_tRTP_tRP_tRCD);
    RUN(short_row_waits_tRAS_and_tRC);
    RUN(first_write_waits_for_the_mode);
    RUN(read_waits_for_the_write_before);
    RUN(write_waits_for_the_read_before);
    RUN(reads_in_a_row);
    RUN(macs_wait_tCCD_MAC_and_writes_tMTW);
    RUN(golden_streams);
    RUN(every_field_counts);
    return check_end();
}
