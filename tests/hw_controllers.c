/* [H15] The in-order controller, its mode changes, the queue and the host of the shared front end.
 * Clocks on aim-gddr6 (first command at 1) unless a test says otherwise. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

/* 1 TMOD .. 33 WRGB 34 TMOD .. 66 ACT .. 122 MAC 124 TMOD .. 156 RD: never beside a row change */
static void mode_changes_both_ways(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, 0), hw_rd(1, 0));
    CHECK_U(TMOD_AT(0), 1);
    CHECK_U(GB_AT(0), 33);
    CHECK_U(TMOD_AT(1), 34);
    CHECK_U(ACT_AT(0), 66);
    CHECK_U(MAC_AT(0), 122);
    CHECK_U(TMOD_AT(2), 124);
    CHECK_U(RD_AT(0), 156);
    CHECK_U(hw.r.cycles, 160);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MODE], 96);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_ACT], 56);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MAC], 2);
    CHECK_U(hw.r.commands[PIMHW_CMD_TMOD], 3);
}

/* MAC 122 .. RD 156 .. answer 158 .. TMOD 159 .. 191 MAC: the row is still open */
static void row_stays_open_over_a_read(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, 0), hw_rd(1, 0), hw_mac(1, 1, 0, 1));
    CHECK_U(TMOD_AT(3), 159);
    CHECK_U(MAC_AT(1), 191);
    CHECK_U(hw.r.commands[PIMHW_CMD_ACT16], 1);
    CHECK_U(hw.r.commands[PIMHW_CMD_PREA], 0);
}

/* decoded at 0, taken at 1, answered after 2 clocks */
static void eoc_alone_takes_two_clocks(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_all(PIMHW_EOC, 0xffffffff, 1));
    CHECK_U(hw.r.cycles, 2);
    CHECK_U(hw.r.macs, 0);
    hw_stream(&c, NULL, 0);
    CHECK_U(hw.r.cycles, 2);
    pimhw_config own = hw_config("aimx", 16);
    hw_stream(&own, NULL, 0);
    CHECK_U(hw.r.cycles, 0);
}

/* Between rows SYNC hides in tRTP; the answer of the last is what EOC waits for, 2 clocks. */
static void sync_between_rows_is_free(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    pimhw_instruction in[8];
    for (uint32_t i = 0; i < 4; i++)
        in[i] = hw_mac(0xffffffff, 64, i, 0);
    hw_stream(&c, in, 4);
    uint64_t without = hw.r.cycles;
    for (uint32_t i = 0; i < 4; i++) {
        in[2 * i] = hw_mac(0xffffffff, 64, i, 0);
        in[2 * i + 1] = hw_all(PIMHW_SYNC, 0xffffffff, 1);
    }
    hw_stream(&c, in, 8);
    CHECK_U(hw.r.cycles, without + 2);
}

/* A SYNC waits for a long MAC; reads whose rows it found open go meanwhile and have their data, but
 * answer behind it, one a clock, and so does EOC behind them. */
static void answers_behind_a_sync_come_one_a_clock(void)
{
    pimhw_config c = hw_config("aim-gddr6", 1);
    pimhw_instruction in[6] = {hw_mac(1, 1, 0, 0)};
    c.tCL_MAC = 400;
    for (uint32_t n = 1; n <= 4; n++) {
        pimhw_instruction read = {.kind = PIMHW_RD_SBK, .mask = 1, .op_size = 1, .row = 1};
        read.bank = 4 * n - 4;
        in[n] = read;
        in[n + 1] = hw_all(PIMHW_SYNC, 1, 0);
        hw_stream(&c, in, n + 2);
        CHECK_U(hw.r.cycles, MAC_AT(0) + 400 + 1 + n + 1);
    }
}

/* Channel 1 waits at a SYNC for channel 0's 64 columns; without it, it goes at once. */
static void sync_waits_for_all_channels(void)
{
    static const char *const presets[] = {"aim-gddr6", "aimx"};
    for (int p = 0; p < 2; p++) {
        pimhw_config c = hw_config(presets[p], 16);
        HW_STREAM(c, hw_mac(1, 64, 0, 0), hw_all(PIMHW_SYNC, 0xffff, 1), hw_mac(2, 1, 0, 0));
        uint64_t last = MAC_AT(63);
        CHECK(hw_at(1, PIMHW_CMD_ACT16, 0) >= last + 1);
        CHECK(hw_at(1, PIMHW_CMD_ACT16, 0) <= last + 4);
        HW_STREAM(c, hw_mac(1, 8, 0, 0), hw_mac(2, 1, 0, 0));
        CHECK(hw_at(1, PIMHW_CMD_ACT16, 0) <= 2);
    }
}

/* 33 of 64 writes wait in channel 0's queue; the 31st leaves at 33 + 2 * 30 = 93, its place is
 * taken in tick 93, the host decodes for channel 1 in tick 94: clock 95. */
static void queue_of_33_holds_the_host(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 33, 0), hw_gb(2, 1, 0));
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 2);
    HW_STREAM(c, hw_gb(1, 34, 0), hw_gb(2, 1, 0));
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 35);
    HW_STREAM(c, hw_gb(1, 64, 0), hw_gb(2, 1, 0));
    CHECK_U(GB_AT(30), 93);
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 95);
    CHECK_U(hw_at(1, PIMHW_CMD_WRGB, 0), 127);
    c.queue_entries = 40;
    HW_STREAM(c, hw_gb(1, 40, 0), hw_gb(2, 1, 0));
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 2);
}

/* Clock n of the host takes instruction n: channel i begins at 1 + i. */
static void host_decodes_one_a_clock(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_gb(2, 1, 0), hw_gb(4, 1, 0));
    for (uint32_t i = 0; i < 3; i++)
        CHECK_U(hw_at(i, PIMHW_CMD_TMOD, 0), 1 + i);
    CHECK_U(hw.r.critical_channel, 2);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 3);
}

/* A read of channel 0 keeps the shared host from channel 1, not a stream of its own. */
static void reads_block_only_the_shared_host(void)
{
    pimhw_config shared = hw_config("aim-gddr6", 16), own = hw_config("aimx", 16);
    HW_STREAM(shared, hw_rd(1, 0), hw_gb(2, 1, 0));
    CHECK_U(RD_AT(0), 33);
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 36);
    HW_STREAM(own, hw_rd(1, 0), hw_gb(2, 1, 0));
    CHECK_U(hw_at(1, PIMHW_CMD_TMOD, 0), 0);
}

/* 0 TMOD .. 32 W .. 33 TMOD .. 65 ACT .. 121 MAC 123 TMOD .. 155 RD, done 157 */
static void streams_of_their_own_begin_at_clock_0(void)
{
    pimhw_config c = hw_config("aimx", 16);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, 0), hw_rd(1, 0));
    CHECK_U(TMOD_AT(0), 0);
    CHECK_U(MAC_AT(0), 121);
    CHECK_U(RD_AT(0), 155);
    CHECK_U(hw.r.cycles, 157);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 0);
}

/* The critical channel is the one whose commands end last, not one that never had any. */
static void critical_channel_has_work(void)
{
    pimhw_config c = hw_config("aim-gddr6", 32);
    HW_STREAM(c, hw_gb(0xff00, 1, 0), hw_mac(0xff00, 64, 0, 0), hw_rd(0xff00, 0));
    CHECK_U(hw.r.critical_channel, 8);
    CHECK_U(hw.r.n_busy_channels, 8);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MAC], 128);
}

/* 100 elements on 16 lanes: 7 clocks of the EPU from the read's end (157); the next W waits. */
static void epu_holds_who_waits_for_it(void)
{
    pimhw_config c = hw_config("aimx", 16);
    const pimhw_instruction gb = hw_gb(1, 1, 0), mac = hw_mac(1, 1, 0, 0), rd = hw_rd(1, 0);
    const pimhw_instruction epu = hw_all(PIMHW_EPU, 1, 10000), wait = hw_all(PIMHW_EPU_WAIT, 1, 1);
    HW_STREAM(c, gb, mac, rd, epu, wait, gb);
    CHECK_U(hw.r.epu_ck, 625);
    CHECK_U(GB_AT(1), 157 + 625);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_EPU], 157 + 625 - 155 - 2);
    HW_STREAM(c, gb, mac, rd, epu, gb, wait);
    CHECK_U(GB_AT(1), 160);
    HW_STREAM(c, gb, mac, rd, epu);
    CHECK_U(hw.r.cycles, 157 + 625);
}

/* One host waits; what it sends afterwards waits for the host, on the other channel too. */
static void epu_holds_the_host_that_waits_for_it(void)
{
    pimhw_config c = hw_config("aim-gddr6", 2);
    const pimhw_instruction gb = hw_gb(1, 1, 0), other = hw_gb(2, 1, 0);
    const pimhw_instruction epu = hw_all(PIMHW_EPU, 1, 10000), wait = hw_all(PIMHW_EPU_WAIT, 1, 1);
    HW_STREAM(c, gb, epu, wait, gb);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_EPU], 627); /* of 666 */
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 1);
    HW_STREAM(c, gb, epu, wait, gb, other);
    CHECK_U(hw.r.critical_channel, 1);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_EPU], 0);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_HOST], 663); /* of 699 */
}

/* Two channels with lists of their own have work at the same clock: channel 0's is done first, so
 * that channel 1 ends last. */
static void epu_serves_the_lowest_channel_first(void)
{
    static const uint32_t begin[] = {0, 1, 2}, order[] = {0, 1};
    static const pimhw_block blocks[2];
    const pimhw_request request = {
        .blocks = blocks, .n_blocks = 2, .list_begin = begin, .order = order};
    const pimhw_item list = {.kind = PIMHW_LIST};
    const pimhw_instruction gb = hw_gb(3, 1, 0), wait = hw_all(PIMHW_EPU_WAIT, 3, 1);
    pimhw_instruction epu = hw_all(PIMHW_EPU, 3, 1600);
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    epu.flags = PIMHW_AWAITED;
    pimhw_program_init(&p);
    pimhw_program_item(&p, &list);
    pimhw_program_add(&p, &gb);
    pimhw_program_add(&p, &epu);
    pimhw_program_add(&p, &wait);
    pimhw_program_add(&p, &gb);
    pimhw_program_end(&p);
    if (!hw_program(&c, &p, &request)) return;
    CHECK_U(hw.r.epu_ck, 200);
    CHECK_U(hw.r.critical_channel, 1);
}

/* A work that nobody waits for is over with its run: none of the 8 places stays taken. */
static void works_end_with_their_run(void)
{
    const pimhw_request request = {.repeats = 20};
    const pimhw_instruction gb = hw_gb(1, 1, 0);
    pimhw_instruction epu = hw_all(PIMHW_EPU, 1, 1600);
    pimhw_config c = hw_config("aimx", 1);
    pimhw_program p;
    epu.flags = PIMHW_AWAITED;
    pimhw_program_init(&p);
    pimhw_program_add(&p, &gb);
    pimhw_program_add(&p, &epu);
    if (!hw_program(&c, &p, &request)) return;
    CHECK_U(hw.r.epu_ck, 20 * 100);
}

/* aimx, refreshed at clock 100 and then every 3800. */
static pimhw_config refreshed(uint32_t controller)
{
    pimhw_config c = hw_config("aimx", 1);
    c.controller = controller;
    c.refresh = 1;
    c.refresh_phase = 100;
    return c;
}

#define REF_AT(i) hw_at(0, PIMHW_CMD_REF, i)

/* 0 ACT .. 56-98 MAC, 100 due .. 110 PREA (tRTP) .. 142 REF (tRP) .. 352 ACT (tRFC) .. 408 MAC */
static void refresh_closes_the_row_and_waits(void)
{
    pimhw_config c = refreshed(PIMHW_IN_ORDER);
    HW_STREAM(c, hw_mac(1, 64, 0, 0));
    CHECK_U(MAC_AT(21), 98);
    CHECK_U(PRE_AT(0), 110);
    CHECK_U(REF_AT(0), 142);
    CHECK_U(ACT_AT(1), 352);
    CHECK_U(MAC_AT(22), 408);
    CHECK_U(hw.r.cycles, 408 + 2 * 41 + 1);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_REF], 210);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_MAC], 2 * 22 + 2 * 41 + 1);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_ROW], 10);
    CHECK_U(hw.r.active_ck, 110 + (491 - 352));
    HW_STREAM(c, hw_mac(1, 22, 0, 0)); /* over before it is due */
    CHECK_U(hw.r.commands[PIMHW_CMD_REF], 0);
}

/* Nothing to do from 35 on, until the hub is ready at 10035: 100, 3900 and 7700 REF .. 10035 W */
static void refreshes_go_on_while_a_channel_waits(void)
{
    pimhw_config c = refreshed(PIMHW_IN_ORDER);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_all(PIMHW_EPU, 1, 160000), hw_all(PIMHW_EPU_WAIT, 1, 1),
              hw_gb(1, 1, 0));
    CHECK_U(REF_AT(0), 100);
    CHECK_U(REF_AT(1), 3900);
    CHECK_U(REF_AT(2), 7700);
    CHECK_U(REF_AT(3), UINT64_MAX);
    CHECK_U(GB_AT(1), 10035);
    CHECK_U(hw.r.breakdown_ck[PIMHW_SPENT_REF], 3 * 210);
    CHECK_U(hw.r.breakdown_ck[PIMHW_WAIT_EPU], 10035 - 34 - 3 * 210);
}

/* static: 0 W .. 40 ACT .. 96, 98 MAC, 100 due .. 110 PREA .. 142 REF .. 352 ACT .. 408 MAC */
static void refresh_under_static(void)
{
    pimhw_config c = refreshed(PIMHW_STATIC_GAPS);
    HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 3, 0, 0), hw_rd(1, 0));
    CHECK_U(ACT_AT(0), 40);
    CHECK_U(MAC_AT(1), 98);
    CHECK_U(PRE_AT(0), 110);
    CHECK_U(ACT_AT(1), 352);
    CHECK_U(MAC_AT(2), 408);
    CHECK_U(RD_AT(0), 408 + 41);
}

/* DCS: 0-98 W beside 56-70 MAC; 100 PREA .. 132 REF .. 342 W, ACT .. 362 W of tile 60 .. 402 MAC */
static void refresh_stops_both_streams(void)
{
    pimhw_config c = refreshed(PIMHW_DCS);
    pimhw_instruction mac = hw_mac(1, 1, 0, 0);
    mac.tile = 60;
    HW_STREAM(c, hw_gb(1, 8, 0), hw_mac(1, 8, 0, 0), hw_gb(1, 56, 8), mac);
    CHECK_U(MAC_AT(7), 70);
    CHECK_U(GB_AT(49), 98);
    CHECK_U(PRE_AT(0), 100);
    CHECK_U(REF_AT(0), 132);
    CHECK_U(GB_AT(50), 342);
    CHECK_U(ACT_AT(1), 342);
    CHECK_U(MAC_AT(8), 402);
}

/* Any instruction, mostly those of attention. */
static pimhw_instruction random_instruction(const pimhw_config *c, check_rng *rng)
{
    pimhw_instruction in = {.op_size = 1};
    uint64_t all = (UINT64_C(1) << c->n_channels) - 1;
    in.kind = (pimhw_kind)rng_range(rng, PIMHW_WR_GB, PIMHW_RD_MAC);
    if (rng_range(rng, 0, 4) == 0) in.kind = (pimhw_kind)rng_range(rng, PIMHW_MAC_SBK, PIMHW_SYNC);
    in.mask = rng_range(rng, 0, 2)
                  ? all
                  : (rng_u64(rng) & all) | UINT64_C(1) << rng_range(rng, 0, c->n_channels - 1);
    if (in.kind == PIMHW_WR_ABK) in.mask = UINT64_C(1) << rng_range(rng, 0, c->n_channels - 1);
    if (in.kind == PIMHW_CFR) in.aux = 2, in.gpr = (uint32_t)rng_range(rng, 0, 1);
    bool sized = in.kind == PIMHW_WR_GB || in.kind == PIMHW_MAC_ABK || in.kind == PIMHW_MAC_SBK ||
                 in.kind == PIMHW_EWMUL || in.kind == PIMHW_COPY_BKGB || in.kind == PIMHW_COPY_GBBK;
    in.out = (uint32_t)rng_range(rng, 0, pimhw_config_outs(c) - 1);
    in.bank = (uint32_t)rng_range(rng, 0, rng_range(rng, 0, 2) ? 2 : 15);
    in.row = (uint32_t)rng_range(rng, 0, 2);
    if (sized) {
        in.op_size = rng_range(rng, 0, 1) ? rng_range(rng, 1, 64) : rng_range(rng, 1, 4);
        in.tile = (uint32_t)rng_range(rng, 0, 64 - in.op_size);
        in.column = (uint32_t)rng_range(rng, 0, 64 - in.op_size);
    }
    return in;
}

/* The checker in HW_STREAM judges order, constraints, refresh, reasons, breakdown and energy. */
static void random_streams_keep_every_rule(void)
{
    check_rng rng = {11};
    for (int round = 0; round < 5000; round++) {
        pimhw_instruction in[40];
        pimhw_config c = hw_odd_config(&rng);
        size_t n = (size_t)rng_range(&rng, 1, c.n_channels > 2 ? 12 : 40);
        for (size_t i = 0; i < n; i++)
            in[i] = random_instruction(&c, &rng);
        unsigned before = check_now.n_errors;
        hw_stream(&c, in, n);
        if (check_now.n_errors > before && before < CHECK_PRINTED)
            printf("  round %d, %s, front end %u\n", round, pimhw_controller_str(c.controller),
                   c.front_end);
    }
}

/* A run on a random device of some controller; its listing is in hw. */
static bool random_run(check_rng *rng, uint32_t controller)
{
    pimhw_instruction in[40];
    pimhw_config c = hw_odd_config(rng);
    size_t n = (size_t)rng_range(rng, 10, 40);
    c.n_channels = 1;
    c.controller = controller;
    if (c.refresh) hw_refresh_often(rng, &c);
    c.front_end = PIMHW_PER_CHANNEL;
    for (size_t i = 0; i < n; i++)
        in[i] = random_instruction(&c, rng);
    return hw_stream(&c, in, n) && hw.n_events > 5 && hw.n_events <= HW_EVENTS;
}

/* Judges hw's listing once more, as that of another device. */
static bool is_accepted(const pimhw_config *c)
{
    static checker again;
    checker_begin(&again, c);
    for (size_t i = 0; i < hw.n_events; i++)
        checker_event(&again, &hw.events[i]);
    checker_end(&again, &hw.r);
    return again.fault == NULL;
}

/* The checker of a device with one clock more does not accept what this one does. */
static void another_device_is_noticed(void)
{
    static const struct {
        uint32_t controller;
        const char *field;
    } other[] = {{0, "tRCD_MAC"}, {0, "tRP"},         {0, "tRTP"},     {0, "tWTR_S"},
                 {0, "tMOD"},     {0, "tMTW"},        {0, "tCCD_MAC"}, {0, "tCL"},
                 {0, "tRFC"},     {0, "tREFI"},       {0, "tRRD_L"},   {0, "tWR"},
                 {0, "eACT_fJ"},  {0, "eMAC_fJ"},     {0, "eLINK_fJ"}, {0, "pIDLE_uW"},
                 {1, "tWR_INP"},  {1, "tMAC"},        {1, "tRD_OUT"},  {1, "tCCD_MAC"},
                 {1, "tRAS"},     {1, "row_opening"}, {1, "tRFC"},     {1, "tRCD_EWMUL"},
                 {2, "tMAC"},     {2, "tCCD_L"},      {2, "tRP"},      {2, "refresh_phase"},
                 {2, "eREF_fJ"},  {2, "pACTIVE_uW"},  {3, "tWR_INP"},  {3, "tMAC"},
                 {3, "tRD_OUT"},  {3, "early_tiles"}, {3, "is_mac"},   {3, "tCCD_S"},
                 {3, "tREFI"},    {3, "obuf"},        {3, "eWRGB_fJ"}, {3, "tRC"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        check_rng rng = {i};
        bool noticed = false;
        for (int run = 0; run < 300 && !noticed; run++) {
            uint32_t value = 0;
            if (!random_run(&rng, other[i].controller)) continue;
            pimhw_config c = hw.config;
            CHECK_U(pimhw_config_get(&c, other[i].field, &value, NULL), PIMHW_OK);
            CHECK_U(pimhw_config_set(&c, other[i].field, value + 1, NULL), PIMHW_OK);
            CHECK(is_accepted(&hw.config));
            noticed = !is_accepted(&c);
        }
        if (!CHECK(noticed)) printf("  %u: %s\n", other[i].controller, other[i].field);
    }
}

enum { LOST, DOUBLED, EARLIER, LATER, OTHER_REASON, OTHER_ROW, OTHER_COMMAND, N_DAMAGES };

/* Changes one event of hw's listing; false if this one cannot be changed so. */
static bool damage(check_rng *rng, int how)
{
    size_t i = (size_t)rng_range(rng, 1, hw.n_events - 2);
    pimhw_event *e = &hw.events[i];
    switch (how) {
    case LOST: memmove(e, e + 1, (--hw.n_events - i) * sizeof *e); return true;
    case DOUBLED:
        if (hw.n_events == HW_EVENTS) return false;
        memmove(e + 1, e, (hw.n_events++ - i) * sizeof *e);
        return true;
    case EARLIER: e->issue_ck--; return true;
    case LATER: e->issue_ck++; return true;
    case OTHER_REASON:
        e->reason =
            (pimhw_spent)((e->reason + rng_range(rng, 1, PIMHW_N_SPENT - 1)) % PIMHW_N_SPENT);
        return e->issue_ck > e[-1].issue_ck;
    case OTHER_ROW: e->row++; return rules_in(e->command, RULES_NEED_ROWS | RULES_OPENING);
    default:
        e->command = (pimhw_command)((e->command + rng_range(rng, 1, PIMHW_N_COMMANDS - 1)) %
                                     PIMHW_N_COMMANDS);
        return true;
    }
}

/* In a hundred damaged listings the checker finds the damage in so many at least. */
static void damage_is_noticed(void)
{
    static const unsigned least[N_DAMAGES] = {100, 100, 100, 100, 80, 80, 100};
    for (uint32_t controller = 0; controller < 4; controller++)
        for (int how = 0; how < N_DAMAGES; how++) {
            check_rng rng = {(uint64_t)how};
            unsigned n = 0, n_noticed = 0;
            while (n < 100) {
                if (!random_run(&rng, controller) || !damage(&rng, how)) continue;
                n_noticed += !is_accepted(&hw.config);
                n++;
            }
            if (!CHECK(n_noticed >= least[how]))
                printf("  damage %d, %s: %u of %u\n", how, pimhw_controller_str(controller),
                       n_noticed, n);
        }
}

/* EWMUL waits for no output entry, and takes none. */
static void elementwise_products_need_no_output(void)
{
    for (uint32_t controller = 1; controller < 4; controller++) {
        uint64_t cycles[2][2];
        for (uint32_t out = 0; out < 2; out++) {
            pimhw_config c = hw_config("aimx", 1);
            pimhw_instruction ewmul = {.kind = PIMHW_EWMUL, .mask = 1, .op_size = 1};
            c.refresh = 0;
            c.controller = controller;
            c.out_entries = 4;
            HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, out), hw_rd(1, out), ewmul);
            cycles[0][out] = hw.r.cycles;
            HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, out), ewmul, hw_mac(1, 1, 0, out + 1));
            cycles[1][out] = hw.r.cycles;
        }
        CHECK_U(cycles[0][1], cycles[0][0]);
        CHECK_U(cycles[1][1], cycles[1][0]);
    }
}

/* A refresh that an access brings with it may come after the host's answer: it is in the time. */
static void no_command_comes_after_the_end(void)
{
    pimhw_config c = hw_config("aim-gddr6", 2);
    pimhw_instruction mem = {.kind = PIMHW_MEM_RD, .mask = 3, .op_size = 1};
    pimhw_instruction rd = hw_rd(1, 0);
    c.refresh = 1;
    for (c.refresh_phase = 1; c.refresh_phase < 160; c.refresh_phase++) {
        HW_STREAM(c, mem, rd);
        uint64_t sum = 0;
        for (int i = 0; i < PIMHW_N_SPENT; i++) {
            CHECK(hw.r.breakdown_ck[i] <= hw.r.cycles);
            sum += hw.r.breakdown_ck[i];
        }
        CHECK_U(sum, hw.r.cycles);
        for (size_t i = 0; i < hw.n_events; i++)
            CHECK(hw.events[i].issue_ck <= hw.r.cycles);
    }
}

static void count_ewadd(void *user, const pimhw_instruction *in)
{
    *(uint64_t *)user += in->kind == PIMHW_EWADD ? in->gpr : 0;
}

/* A hub that hears no commands hears of all its own. */
static void a_hub_alone_hears_every_round(void)
{
    static pimhw_program p;
    uint64_t sum = 0;
    pimhw_config c = hw_config("aimx", 1);
    pimhw_sink sink = {NULL, &sum, count_ewadd};
    pimhw_item add = {.kind = PIMHW_EWADD, .mask = 1};
    pimhw_operand gpr = {.step = {1}};
    pimhw_device *device;
    pimhw_readings r;
    pimhw_program_init(&p);
    pimhw_program_loop(&p, pimhw_program_const(&p, 1000), 1);
    add.gpr = pimhw_program_operand(&p, &gpr);
    pimhw_program_item(&p, &add);
    pimhw_program_end(&p);
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_time(device, &r, &p, NULL, &sink, NULL), PIMHW_OK);
    CHECK_U(sum, 499500);
    pimhw_device_destroy(device);
}

/* To channels with streams of their own, one mask is as good as one instruction each. */
static void masks_are_a_short_form(void)
{
    check_rng rng = {12};
    for (int round = 0; round < 200; round++) {
        pimhw_instruction in[10], apart[80];
        pimhw_config c = hw_odd_config(&rng);
        c.front_end = PIMHW_PER_CHANNEL;
        size_t n = (size_t)rng_range(&rng, 1, 10), m = 0;
        for (size_t i = 0; i < n; i++) {
            in[i] = random_instruction(&c, &rng);
            for (uint32_t ch = 0; ch < c.n_channels; ch++) {
                bool all = in[i].kind == PIMHW_SYNC || in[i].kind == PIMHW_CFR;
                if (!(in[i].mask >> ch & 1) || (all && in[i].mask >> ch >> 1)) continue;
                apart[m] = in[i];
                apart[m++].mask = UINT64_C(1) << ch;
            }
        }
        hw_stream(&c, in, n);
        pimhw_readings together = hw.r;
        hw_stream(&c, apart, m);
        CHECK_U(hw.r.cycles, together.cycles);
        CHECK_BYTES(hw.r.commands, together.commands, sizeof together.commands);
        CHECK_BYTES(hw.r.breakdown_ck, together.breakdown_ck, sizeof together.breakdown_ck);
    }
}

/* A run leaves nothing behind in the device: not its row, nor its mode, nor its clock. */
static void runs_do_not_meet(void)
{
    pimhw_config c = hw_config("aim-gddr6", 4);
    pimhw_device *device;
    pimhw_readings first, again;
    const pimhw_instruction in[] = {hw_gb(3, 8, 0), hw_mac(1, 8, 5, 1), hw_rd(1, 1)};
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    for (int run = 0; run < 3; run++) {
        CHECK_U(pimhw_device_begin(device, NULL), PIMHW_OK);
        for (int i = 0; i < 3; i++)
            CHECK_U(pimhw_device_submit(device, &in[i], NULL), PIMHW_OK);
        CHECK_U(pimhw_device_finish(device, run ? &again : &first, NULL), PIMHW_OK);
        if (run) CHECK_BYTES(&again, &first, sizeof first);
    }
    pimhw_device_destroy(device);
}

/* A read waits for tRRD_L to open its bank again, longer than ACT16 for tRC: its row is taken, and
 * it closes it by itself.
 *
 *     RD b0   ACT 1 .. RD 37 |                 |
 *     RD b1                  | ACT 121         |            PRE 264 .. ACT 299 .. RD 335
 *     MAC                    |        PREA 175 | ACT16 210                               PREA 353
 */
static void a_row_that_was_taken_is_opened_again(void)
{
    pimhw_config c = hw_config("aim-gddr6", 1);
    pimhw_instruction rd[2] = {{.kind = PIMHW_RD_SBK, .mask = 1, .op_size = 1, .row = 1}};
    c.tCCD_S = c.tCCD_L = 200; /* from the first RD to the second */
    c.tRRD_L = 120;
    rd[1] = rd[0];
    rd[1].bank = 1;
    HW_STREAM(c, rd[0], rd[1], hw_mac(1, 1, 2, 0));
    CHECK_U(ACT_AT(0), 210);
    CHECK_U(hw_at(0, PIMHW_CMD_PRE, 0), 264);
    CHECK_U(hw_at(0, PIMHW_CMD_ACT, 2), 299);
    CHECK_U(hw_at(0, PIMHW_CMD_RD, 1), 335);
    CHECK_U(ACT_AT(1), 388);
}

int main(void)
{
    RUN(mode_changes_both_ways);
    RUN(row_stays_open_over_a_read);
    RUN(eoc_alone_takes_two_clocks);
    RUN(sync_between_rows_is_free);
    RUN(answers_behind_a_sync_come_one_a_clock);
    RUN(sync_waits_for_all_channels);
    RUN(queue_of_33_holds_the_host);
    RUN(host_decodes_one_a_clock);
    RUN(reads_block_only_the_shared_host);
    RUN(streams_of_their_own_begin_at_clock_0);
    RUN(critical_channel_has_work);
    RUN(epu_holds_who_waits_for_it);
    RUN(epu_holds_the_host_that_waits_for_it);
    RUN(epu_serves_the_lowest_channel_first);
    RUN(works_end_with_their_run);
    RUN(refresh_closes_the_row_and_waits);
    RUN(refreshes_go_on_while_a_channel_waits);
    RUN(refresh_under_static);
    RUN(refresh_stops_both_streams);
    RUN(random_streams_keep_every_rule);
    RUN(another_device_is_noticed);
    RUN(damage_is_noticed);
    RUN(elementwise_products_need_no_output);
    RUN(no_command_comes_after_the_end);
    RUN(a_hub_alone_hears_every_round);
    RUN(masks_are_a_short_form);
    RUN(runs_do_not_meet);
    RUN(a_row_that_was_taken_is_opened_again);
    return check_end();
}
