/* [H9] Flash: its description, and the time of its pages. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

static pimhw_cause why;

static pimhw_config flash(uint32_t dies, uint32_t tR_ns, uint32_t MBps)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, "pam-ssd", &why), PIMHW_OK);
    c.flash_dies = dies, c.flash_tR_ns = tR_ns, c.flash_MBps = MBps;
    CHECK_U(pimhw_config_check(&c, &why), PIMHW_OK);
    return c;
}

/*
 * 4 dies, 64 pages: cells  |r0  |r1  | .. |r15 |
 *                   bus         |0123|       |15: 4 pages|
 * 16 rounds of 30 us, then 4 pages of 16384 B at 2.4 GB/s.
 */
static void pages_cross_the_channel_beside_the_next_cells(void)
{
    pimhw_config c = flash(4, 30000, 2400);
    CHECK_U(pimhw_flash_read_ps(&c, 64), 16u * 30000000u + 4u * 6826667u);
    CHECK_U(pimhw_flash_read_ps(&c, 0), 0);
    CHECK_U(pimhw_flash_read_ps(&c, 1), 30000000u + 6826667u);
    CHECK_U(pimhw_flash_read_ps(&c, 66), 17u * 30000000u + 2u * 6826667u);
    double limit = 64e6 * 16384 / ((double)pimhw_flash_read_ps(&c, 64000000) * 1e-12) / 1e9;
    CHECK_NEAR(limit, 4 * 16384 / 30e3, 1e-6); /* 2.18 GB/s */
}

/* The plainest code: dies and channel, page by page. */
static uint64_t by_the_page(const pimhw_config *c, uint64_t n, uint64_t page_ps)
{
    uint64_t cells_free = 0, bus_free = 0, before = 0;
    for (uint64_t at = 0; at < n; at += c->flash_dies) {
        uint64_t ready =
            (cells_free > before ? cells_free : before) + c->flash_tR_ns * UINT64_C(1000);
        before = bus_free; /* the second registers are free once the last round has left them */
        for (uint64_t i = at; i < n && i < at + c->flash_dies; i++)
            bus_free = (bus_free > ready ? bus_free : ready) + page_ps;
        cells_free = ready;
    }
    return bus_free;
}

/* Slow cells or a slow channel, full rounds or ragged ones. */
static void any_pages_take_what_a_walk_finds(void)
{
    static const uint32_t MBps[] = {2400, 64, 1024, 16384};
    for (uint32_t dies = 1; dies <= 9; dies++)
        for (uint32_t tR = 1; tR <= 64000; tR *= 4)
            for (int m = 0; m < 4; m++) {
                pimhw_config c = flash(dies, tR, MBps[m]);
                uint64_t page = (UINT64_C(16384000000) + MBps[m] / 2) / MBps[m];
                for (uint64_t n = 0; n < 40; n++)
                    if (!CHECK_U(pimhw_flash_read_ps(&c, n), by_the_page(&c, n, page))) return;
            }
}

static void writing_takes_tPROG(void)
{
    pimhw_config c = flash(4, 30000, 2400);
    CHECK_U(pimhw_flash_write_ps(&c, 8), 2 * UINT64_C(300000000) + 4 * 6826667);
    c.flash_tPROG_ns = c.flash_tR_ns;
    CHECK_U(pimhw_flash_write_ps(&c, 77), pimhw_flash_read_ps(&c, 77));
    CHECK_U(pimhw_flash_read_ps(&c, UINT64_MAX), UINT64_MAX);
    /* with the last pages more than 64 bits count, and not yet */
    uint64_t rounds = UINT64_MAX / 30000000;
    CHECK_U(pimhw_flash_read_ps(&c, 4 * rounds + 1), UINT64_MAX);
    CHECK_U(pimhw_flash_read_ps(&c, 4 * rounds - 4), (rounds - 1) * 30000000 + 4 * 6826667);
    CHECK_U(pimhw_flash_read_ps(NULL, 1), 0);
    c = hw_config("pam-hbm3", 1);
    CHECK_U(pimhw_flash_read_ps(&c, 1), 0);
}

static void what_has_no_banks_takes_no_programs(void)
{
    pimhw_config c = flash(4, 30000, 2400);
    pimhw_device *d = NULL;
    pimhw_memory *m = NULL;
    pimhw_geometry g;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "flash has no banks");
    CHECK(d == NULL);
    CHECK_U(pimhw_memory_create(&m, &c, PIMHW_CHUNK_AIM, &why), PIMHW_ERR_CONFIG);
    CHECK(m == NULL);
    CHECK_U(pimhw_geometry_init(&g, &c, PIMHW_CHUNK_AIM, &why), PIMHW_ERR_CONFIG);
    c.tRP = 30;
    CHECK_U(pimhw_config_check(&c, &why), PIMHW_ERR_CONFIG);
    CHECK_STR(why.text, "tRP is 30, but flash (flash_page_bytes is 16384) has none");
    c = flash(4, 30000, 2400);
    c.flash_dies = 0;
    CHECK_U(pimhw_config_check(&c, &why), PIMHW_ERR_CONFIG);
    CHECK_STR(why.text, "flash_dies is 0, not 1 to 1024");
    c = hw_config("pam-ddr4", 1);
    c.flash_dies = 4;
    CHECK_U(pimhw_config_check(&c, &why), PIMHW_ERR_CONFIG);
    CHECK_STR(why.text, "flash_dies is 4, but a DRAM (flash_page_bytes is 0) has none");
}

static void what_a_device_has_not_has_no_source(void)
{
    CHECK_STR(pimhw_preset_source("pam-ssd", "flash_tR_ns"), "PAM");
    CHECK_STR(pimhw_preset_source("pam-ssd", "flash_tPROG_ns"), "assumed");
    CHECK_STR(pimhw_preset_source("pam-ssd", "tRP"), "none");
    CHECK_STR(pimhw_preset_source("aimx", "flash_tR_ns"), "none");
    CHECK_STR(pimhw_preset_source("pam-hbm3", "cap_MFLOPS"), "PAM");
    CHECK_STR(pimhw_preset_source("pam-hbm3", "softmax_ck"), "assumed");
    /* FACIL's Table II has the peaks of its platforms; PAM's Table 1 5.2 Gb/s and DDR4-3200 */
    CHECK_STR(pimhw_preset_source("lpddr5-jetson", "link_MBps"), "FACIL");
    CHECK_STR(pimhw_preset_source("lpddr5-iphone", "link_MBps"), "FACIL");
    CHECK_STR(pimhw_preset_source("pam-hbm3", "link_MBps"), "PAM");
    CHECK_STR(pimhw_preset_source("pam-ddr4", "link_MBps"), "PAM");
    CHECK_STR(pimhw_preset_source("pam-ssd", "link_MBps"), "assumed");
}

int main(void)
{
    RUN(pages_cross_the_channel_beside_the_next_cells);
    RUN(any_pages_take_what_a_walk_finds);
    RUN(writing_takes_tPROG);
    RUN(what_has_no_banks_takes_no_programs);
    RUN(what_a_device_has_not_has_no_source);
    return check_end();
}
