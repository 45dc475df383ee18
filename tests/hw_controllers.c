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

static pimhw_instruction random_instruction(const pimhw_config *c, check_rng *rng)
{
    pimhw_instruction in = {.op_size = 1};
    uint64_t all = (UINT64_C(1) << c->n_channels) - 1;
    in.kind = (pimhw_kind)rng_range(rng, PIMHW_WR_GB, PIMHW_RD_MAC);
    if (rng_range(rng, 0, 19) == 0) in.kind = PIMHW_SYNC;
    in.mask = rng_range(rng, 0, 2)
                  ? all
                  : (rng_u64(rng) & all) | UINT64_C(1) << rng_range(rng, 0, c->n_channels - 1);
    in.out = (uint32_t)rng_range(rng, 0, c->out_entries - 1);
    if (in.kind == PIMHW_WR_GB || in.kind == PIMHW_MAC_ABK) {
        in.op_size = rng_range(rng, 0, 1) ? rng_range(rng, 1, 64) : rng_range(rng, 1, 4);
        in.tile = (uint32_t)rng_range(rng, 0, 64 - in.op_size);
    }
    if (in.kind == PIMHW_MAC_ABK) {
        in.column = (uint32_t)rng_range(rng, 0, 64 - in.op_size);
        in.row = (uint32_t)rng_range(rng, 0, 2);
    }
    return in;
}

/* Each channel's column and register commands are the instructions sent to it, in that order. */
static bool in_program_order(const pimhw_instruction *in, size_t n, uint32_t n_channels)
{
    size_t at[PIMHW_MAX_CHANNELS] = {0};
    uint64_t done[PIMHW_MAX_CHANNELS] = {0};
    static const pimhw_command command[PIMHW_N_KINDS] = {[PIMHW_WR_GB] = PIMHW_CMD_WRGB,
                                                         [PIMHW_WR_BIAS] = PIMHW_CMD_WRMAC16,
                                                         [PIMHW_MAC_ABK] = PIMHW_CMD_MAC16,
                                                         [PIMHW_RD_MAC] = PIMHW_CMD_RDMAC16};
    for (size_t i = 0; i < hw.n_events; i++) {
        const pimhw_event *e = &hw.events[i];
        uint32_t c = e->channel;
        if (e->command == PIMHW_CMD_ACT16 || e->command == PIMHW_CMD_PREA ||
            e->command == PIMHW_CMD_TMOD)
            continue;
        while (at[c] < n && (!(in[at[c]].mask >> c & 1) || in[at[c]].kind == PIMHW_SYNC ||
                             done[c] == in[at[c]].op_size))
            at[c]++, done[c] = 0;
        if (at[c] == n) return false;
        const pimhw_instruction *now = &in[at[c]];
        if (e->command != command[now->kind]) return false;
        bool mac = now->kind == PIMHW_MAC_ABK;
        if (mac && (e->row != now->row || e->column != now->column + done[c])) return false;
        if ((mac || now->kind == PIMHW_WR_GB) && e->tile != now->tile + done[c]) return false;
        if (now->kind != PIMHW_WR_GB && e->out != now->out) return false;
        done[c]++;
    }
    for (uint32_t c = 0; c < n_channels; c++)
        for (; at[c] < n; at[c]++, done[c] = 0)
            if (in[at[c]].mask >> c & 1 && in[at[c]].kind != PIMHW_SYNC &&
                done[c] != in[at[c]].op_size)
                return false;
    return true;
}

/* The checker in HW_STREAM judges constraints, reasons, breakdown and counts. */
static void random_streams_keep_every_rule(void)
{
    check_rng rng = {11};
    for (int round = 0; round < 5000; round++) {
        pimhw_instruction in[40];
        pimhw_config c = hw_odd_config(&rng);
        size_t n = (size_t)rng_range(&rng, 1, c.n_channels > 2 ? 12 : 40);
        for (size_t i = 0; i < n; i++)
            in[i] = random_instruction(&c, &rng);
        if (!hw_stream(&c, in, n) || hw.n_events > HW_EVENTS) continue;
        CHECK(in_program_order(in, n, c.n_channels));
    }
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
                if (!(in[i].mask >> ch & 1) || (in[i].kind == PIMHW_SYNC && in[i].mask >> ch >> 1))
                    continue;
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

int main(void)
{
    RUN(mode_changes_both_ways);
    RUN(row_stays_open_over_a_read);
    RUN(eoc_alone_takes_two_clocks);
    RUN(sync_between_rows_is_free);
    RUN(sync_waits_for_all_channels);
    RUN(queue_of_33_holds_the_host);
    RUN(host_decodes_one_a_clock);
    RUN(reads_block_only_the_shared_host);
    RUN(streams_of_their_own_begin_at_clock_0);
    RUN(critical_channel_has_work);
    RUN(epu_holds_who_waits_for_it);
    RUN(random_streams_keep_every_rule);
    RUN(masks_are_a_short_form);
    RUN(runs_do_not_meet);
    return check_end();
}
