/* hw.h - what the device tests share: instructions in short, runs with their listing. */
#ifndef HW_H
#define HW_H

#include "checker.h"

enum { HW_EVENTS = 8192 };

/* One run and what it was judged on. */
typedef struct hw_run {
    pimhw_config config;
    pimhw_readings r;
    pimhw_event events[HW_EVENTS]; /* the first of them */
    size_t n_events;
    checker k;
} hw_run;

static hw_run hw;

static inline pimhw_instruction hw_gb(uint64_t mask, uint64_t op_size, uint32_t tile)
{
    pimhw_instruction in = {.kind = PIMHW_WR_GB, .mask = mask, .op_size = op_size, .tile = tile};
    return in;
}

static inline pimhw_instruction hw_bias(uint64_t mask, uint32_t out)
{
    pimhw_instruction in = {.kind = PIMHW_WR_BIAS, .mask = mask, .op_size = 1, .out = out};
    return in;
}

static inline pimhw_instruction hw_mac(uint64_t mask, uint64_t op_size, uint32_t row, uint32_t out)
{
    pimhw_instruction in = {
        .kind = PIMHW_MAC_ABK, .mask = mask, .op_size = op_size, .row = row, .out = out};
    return in;
}

static inline pimhw_instruction hw_rd(uint64_t mask, uint32_t out)
{
    pimhw_instruction in = {.kind = PIMHW_RD_MAC, .mask = mask, .op_size = 1, .out = out};
    return in;
}

/* SYNC, EOC, EPU_WAIT; EPU with its elements. */
static inline pimhw_instruction hw_all(pimhw_kind kind, uint64_t mask, uint64_t op_size)
{
    pimhw_instruction in = {.kind = kind, .mask = mask, .op_size = op_size};
    if (kind == PIMHW_EPU) in.flags = PIMHW_AWAITED;
    return in;
}

static inline void hw_sink(void *user, const pimhw_event *event)
{
    hw_run *run = (hw_run *)user;
    if (run->n_events < HW_EVENTS) run->events[run->n_events] = *event;
    run->n_events++;
    checker_event(&run->k, event);
}

/* A preset, without refresh. */
static inline pimhw_config hw_config(const char *preset, uint32_t n_channels)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, preset, NULL), PIMHW_OK);
    c.n_channels = n_channels;
    c.refresh = 0;
    return c;
}

static inline pimhw_sink hw_begin(const pimhw_config *config)
{
    memset(&hw.r, 0, sizeof hw.r);
    hw.n_events = 0;
    hw.config = *config;
    checker_begin(&hw.k, &hw.config);
    pimhw_sink sink = {hw_sink, &hw, NULL};
    return sink;
}

static inline bool hw_end(void)
{
    checker_end(&hw.k, &hw.r);
    return CHECK(checker_agrees(&hw.k, check_now.name));
}

/* Sends a stream; its listing, readings and verdict are in hw. */
static inline bool hw_stream(const pimhw_config *config, const pimhw_instruction *in, size_t n)
{
    pimhw_device *device;
    pimhw_cause why = {""};
    pimhw_sink sink = hw_begin(config);
    if (!CHECK_U(pimhw_device_create(&device, config, &why), PIMHW_OK)) {
        printf("  %s\n", why.text);
        return false;
    }
    bool ok = CHECK_U(pimhw_device_begin(device, &sink), PIMHW_OK);
    for (size_t i = 0; i < n && config->front_end == PIMHW_SHARED; i++)
        hw.k.reordered |= in[i].kind == PIMHW_WR_SBK || in[i].kind == PIMHW_RD_SBK ||
                          in[i].kind == PIMHW_MEM_WR || in[i].kind == PIMHW_MEM_RD;
    for (size_t i = 0; i < n && ok; i++)
        ok = CHECK_U(pimhw_device_submit(device, &in[i], &why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_device_finish(device, &hw.r, &why), PIMHW_OK);
    if (!ok) printf("  %s\n", why.text);
    pimhw_device_destroy(device);
    if (!ok || !hw_end() || hw.n_events > HW_EVENTS) return ok && !hw.k.fault;
    return CHECK(checker_in_order_of(&hw.config, in, n, hw.events, hw.n_events));
}

#define HW_STREAM(config, ...)                                                                     \
    do {                                                                                           \
        const pimhw_instruction stream_[] = {__VA_ARGS__};                                         \
        hw_stream(&(config), stream_, sizeof stream_ / sizeof *stream_);                           \
    } while (0)

/* Times a program; as above. */
static inline bool hw_program(const pimhw_config *config, const pimhw_program *program,
                              const pimhw_request *request)
{
    pimhw_device *device;
    pimhw_cause why = {""};
    pimhw_sink sink = hw_begin(config);
    bool ok = CHECK_U(pimhw_device_create(&device, config, &why), PIMHW_OK);
    if (!ok) return false;
    ok = CHECK_U(pimhw_device_time(device, &hw.r, program, request, &sink, &why), PIMHW_OK);
    if (!ok) printf("  %s\n", why.text);
    pimhw_device_destroy(device);
    return ok && hw_end();
}

/* Clock of command number i of a kind on a channel; UINT64_MAX: there is none. */
static inline uint64_t hw_at(uint32_t channel, pimhw_command command, unsigned i)
{
    for (size_t j = 0; j < hw.n_events && j < HW_EVENTS; j++) {
        const pimhw_event *e = &hw.events[j];
        if (e->channel == channel && e->command == command && i-- == 0) return e->issue_ck;
    }
    return UINT64_MAX;
}

#define ACT_AT(i)  hw_at(0, PIMHW_CMD_ACT16, i)
#define PRE_AT(i)  hw_at(0, PIMHW_CMD_PREA, i)
#define MAC_AT(i)  hw_at(0, PIMHW_CMD_MAC16, i)
#define GB_AT(i)   hw_at(0, PIMHW_CMD_WRGB, i)
#define BIAS_AT(i) hw_at(0, PIMHW_CMD_WRMAC16, i)
#define RD_AT(i)   hw_at(0, PIMHW_CMD_RDMAC16, i)
#define TMOD_AT(i) hw_at(0, PIMHW_CMD_TMOD, i)

/* Refresh as often as the check lets it take place. */
static inline void hw_refresh_often(check_rng *rng, pimhw_config *c)
{
    c->refresh = 1;
    c->tREFI = rules_least_tREFI(*c) + (uint32_t)rng_range(rng, 0, 300);
    c->refresh_phase = (uint32_t)rng_range(rng, 1, c->tREFI);
}

/* Any device that the check lets pass, with odd timings. */
static inline pimhw_config hw_odd_config(check_rng *rng)
{
    pimhw_config c =
        hw_config(rng_range(rng, 0, 1) ? "aimx" : "aim-gddr6", (uint32_t)rng_range(rng, 1, 8));
    uint32_t *const ck[] = {
        &c.tBL,       &c.tCCD_S,    &c.tCCD_L,  &c.tRCD_MAC, &c.tRP,      &c.tRAS,    &c.tRTP,
        &c.tWTR_S,    &c.tWTR_L,    &c.tWPRE,   &c.tCL_REG,  &c.tCWL_REG, &c.tMOD,    &c.tCCD_MAC,
        &c.tMTW,      &c.tCL_MAC,   &c.tWR_INP, &c.tMAC,     &c.tRD_OUT,  &c.tRRD_S,  &c.tRRD_L,
        &c.tCL,       &c.tCWL,      &c.tWR,     &c.tRFC,     &c.tRCD_AF,  &c.tRCD_WR, &c.tRCD_EWMUL,
        &c.tRCD_RDCP, &c.tRCD_WRCP, &c.tCWL_GB};
    c.controller = rng_range(rng, 0, 1) ? (uint32_t)rng_range(rng, 1, 3) : PIMHW_IN_ORDER;
    if (rng_range(rng, 0, 2) > 0) {
        for (size_t i = 0; i < sizeof ck / sizeof *ck; i++)
            if (rng_range(rng, 0, 1)) *ck[i] = (uint32_t)rng_range(rng, 1, rng_range(rng, 1, 70));
        if (rng_range(rng, 0, 4) == 0) c.tMOD = 0;
        rules_long_not_shorter(&c);
        if (c.tRAS < c.tRCD_RD) c.tRAS = c.tRCD_RD; /* the check asks for it */
        if (c.tRAS < c.tRCD_WR) c.tRAS = c.tRCD_WR;
        c.tRC = c.tRAS + (uint32_t)rng_range(rng, 0, 60);
        c.queue_entries = (uint32_t)rng_range(rng, 2, 40);
        c.front_end = (uint32_t)rng_range(rng, 0, 1);
        c.obuf = (uint32_t)rng_range(rng, 1, 8);
        c.row_opening = (uint32_t)rng_range(rng, 0, 2);
        c.extra_region = (uint32_t)rng_range(rng, 0, 1);
        c.early_tiles = (uint32_t)rng_range(rng, 0, 1);
        c.is_mac = (uint32_t)rng_range(rng, 0, 1);
    }
    if (rng_range(rng, 0, 1)) hw_refresh_often(rng, &c);
    return c;
}

#endif
