/* The device's contract: every status and its cause, limits of every field, what a failure leaves
 * behind, the allocator, the text form of instructions. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

#include "../examples/aim_text.h"

static pimhw_cause why;

static pimhw_device *device_of(const char *preset)
{
    pimhw_config c = hw_config(preset, 8);
    pimhw_device *d = NULL;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    return d;
}

static void statuses_have_words(void)
{
    for (int i = PIMHW_OK; i <= PIMHW_ERR_TEXT; i++) {
        CHECK(strlen(pimhw_status_str((pimhw_status)i)) > 1);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(pimhw_status_str((pimhw_status)i), pimhw_status_str((pimhw_status)j)) !=
                  0);
    }
    CHECK(pimhw_status_str((pimhw_status)99) != NULL);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        CHECK(strlen(pimhw_command_str((pimhw_command)i)) > 1);
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        for (int j = 0; j < i; j++)
            CHECK(strcmp(pimhw_spent_str((pimhw_spent)i), pimhw_spent_str((pimhw_spent)j)) != 0);
    for (int i = 0; i < PIMHW_N_ENERGY; i++)
        for (int j = 0; j <= i; j++)
            CHECK((strcmp(pimhw_energy_str((pimhw_energy)i), pimhw_energy_str((pimhw_energy)j)) ==
                   0) == (i == j));
    CHECK_STR(pimhw_controller_str(PIMHW_IN_ORDER), "in-order");
    CHECK_STR(pimhw_controller_str(PIMHW_STATIC_GAPS), "static");
    CHECK_STR(pimhw_controller_str(PIMHW_PING_PONG), "ping-pong");
    CHECK_STR(pimhw_controller_str(PIMHW_DCS), "dcs");
    CHECK(pimhw_controller_str(4) == NULL);
    CHECK_STR(pimhw_command_str(PIMHW_CMD_RDMAC16), "RDMAC16");
}

static void causes_are_cut_not_overrun(void)
{
    struct {
        pimhw_cause cause;
        char behind;
    } x;
    char word[400];
    memset(word, 'w', sizeof word - 1);
    word[sizeof word - 1] = 0;
    x.behind = 77;
    pimhw_cause_write(&x.cause, "%s", word);
    CHECK_U(strlen(x.cause.text), sizeof x.cause.text - 1);
    CHECK_U(x.behind, 77);
    pimhw_cause_write(&x.cause, "%s is %u of %u", "field", UINT64_MAX, (uint64_t)0);
    CHECK_STR(x.cause.text, "field is 18446744073709551615 of 0");
    pimhw_cause_write(NULL, "%u", (uint64_t)1);
}

static void presets_are_known_by_name(void)
{
    pimhw_config c;
    memset(&c, 0x5a, sizeof c);
    pimhw_config before = c;
    CHECK_U(pimhw_config_init(&c, "gddr7", &why), PIMHW_ERR_NAME);
    CHECK_HAS(why.text, "gddr7");
    CHECK_BYTES(&c, &before, sizeof c);
    CHECK_U(pimhw_config_init(&c, NULL, NULL), PIMHW_ERR_NAME);
    CHECK_U(pimhw_config_init(NULL, "aimx", NULL), PIMHW_ERR_ARGUMENT);
    uint32_t n = 0;
    bool aimx = false, gddr6 = false;
    for (; pimhw_preset_name(n); n++) {
        const char *name = pimhw_preset_name(n);
        CHECK_U(pimhw_config_init(&c, name, &why), PIMHW_OK);
        CHECK_STR(c.preset, name);
        CHECK_U(pimhw_config_check(&c, &why), PIMHW_OK);
        aimx = aimx || strcmp(name, "aimx") == 0;
        gddr6 = gddr6 || strcmp(name, "aim-gddr6") == 0;
        for (uint32_t i = 0; pimhw_config_field(i); i++) {
            const char *source = pimhw_preset_source(name, pimhw_config_field(i));
            if (CHECK(source != NULL)) CHECK(*source);
        }
    }
    CHECK(aimx && gddr6);
    CHECK_U(n, 15);
    CHECK(pimhw_preset_name(n + 5) == NULL);
    CHECK(pimhw_preset_source("aimx", "tXYZ") == NULL);
    CHECK(pimhw_preset_source("gddr7", "tRP") == NULL);
    CHECK(pimhw_preset_source(NULL, NULL) == NULL);
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    CHECK_U(c.n_channels, 16);
    CHECK_U(c.front_end, PIMHW_PER_CHANNEL);
    CHECK_U(c.out_clear, PIMHW_CLEAR_READ);
    CHECK_U(c.out_entries, 2);
    CHECK_U(c.epu_overlap, PIMHW_EPU_HEADS);
    CHECK_U(c.epu_lanes, 16);
    CHECK_U(pimhw_config_banks(&c), 16);
    CHECK_U(pimhw_config_columns(&c), 64);
    CHECK_U(pimhw_config_lanes(&c), 16);
    CHECK_U(c.refresh, 1);
    CHECK_U(c.controller, PIMHW_IN_ORDER);
    CHECK_U(pimhw_config_outs(&c), 2);
    c.controller = PIMHW_DCS;
    CHECK_U(pimhw_config_outs(&c), 8);
    CHECK_U(pimhw_config_init(&c, "aim-gddr6", NULL), PIMHW_OK);
    CHECK_U(c.n_channels, 32);
    CHECK_U(c.front_end, PIMHW_SHARED);
    CHECK_U(c.out_clear, PIMHW_CLEAR_BIAS);
    CHECK_U(c.out_entries, 32);
    CHECK_U(c.queue_entries, 33);
    CHECK_U(c.refresh, 0);
    CHECK_U(c.tCK_ps, 500);
}

/* pam-ddr4 assumes AiM's energies, a byte of a row or column. */
static void assumed_energies_are_by_the_byte(void)
{
    static const char *const fields[] = {"eACT_fJ", "eREF_fJ", "eRD_fJ",
                                         "eWR_fJ",  "eMAC_fJ", "eWRGB_fJ"};
    pimhw_config aim, ddr;
    CHECK_U(pimhw_config_init(&aim, "aim-gddr6", NULL), PIMHW_OK);
    CHECK_U(pimhw_config_init(&ddr, "pam-ddr4", NULL), PIMHW_OK);
    for (int i = 0; i < 6; i++) {
        uint32_t a = 0, d = 0;
        CHECK_U(pimhw_config_get(&aim, fields[i], &a, NULL), PIMHW_OK);
        CHECK_U(pimhw_config_get(&ddr, fields[i], &d, NULL), PIMHW_OK);
        uint64_t its = i < 2 ? ddr.row_bytes : ddr.column_bytes;
        CHECK_U(d * (uint64_t)(i < 2 ? aim.row_bytes : aim.column_bytes), a * its);
        CHECK_STR(pimhw_preset_source("pam-ddr4", fields[i]), "assumed");
    }
}

/* Clocks as their sources print them; 0: not printed, and then the preset says that it assumes.
 * Every command of samsung-hbm2 addresses all bank groups: its tCCD_S is the long one. */
static void presets_have_the_numbers_of_their_sources(void)
{
    static const char *const presets[] = {"aim-gddr6",   "attacc-hbm3", "samsung-hbm2",
                                          "newton-hbm2", "pam-hbm3",    "pam-ddr4"};
    static const struct {
        char field[12];
        uint32_t value[6];
    } t[] = {{"tCCD_S", {2, 2, 4, 1, 2, 4}},        {"tCCD_L", {2, 4, 4, 2, 4, 8}},
             {"tRCD_RD", {36, 19, 14, 14, 19, 24}}, {"tRCD_WR", {28, 19, 10, 14, 19, 24}},
             {"tRP", {32, 19, 14, 14, 19, 24}},     {"tRAS", {54, 45, 33, 34, 45, 0}},
             {"tRC", {89, 63, 47, 48, 0, 76}},      {"tRRD_S", {5, 2, 4, 4, 0, 4}},
             {"tRRD_L", {6, 4, 6, 6, 4, 6}},        {"tCL", {50, 19, 20, 14, 0, 24}},
             {"tCWL", {6, 6, 8, 4, 0, 0}},          {"tWR", {33, 21, 16, 16, 21, 0}},
             {"tRTP", {12, 8, 5, 6, 0, 0}},         {"tWTR_S", {9, 8, 4, 6, 0, 0}},
             {"tWTR_L", {11, 11, 9, 8, 0, 0}},      {"tREFI", {0, 5070, 3900, 3900, 5070, 0}},
             {"tRFC", {0, 455, 350, 260, 0, 0}},    {"tCK_ps", {500, 769, 1000, 1000, 769, 625}}};
    static const char *const of[] = {"lpddr5-jetson", "lpddr5-macbook", "lpddr5-ideapad",
                                     "lpddr5-iphone"};
    /* [FACIL]: MB/s, and how many 1/1000 of it the host was measured to use */
    static const uint32_t facil[][2] = {{204800, 763}, {409600, 883}, {59700, 333}, {51200, 746}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (size_t p = 0; p < 6; p++) {
            uint32_t value = 0;
            pimhw_config c = hw_config(presets[p], 1);
            bool assumed = strcmp(pimhw_preset_source(presets[p], t[i].field), "assumed") == 0;
            CHECK_U(pimhw_config_get(&c, t[i].field, &value, NULL), PIMHW_OK);
            if (!CHECK_U(assumed, t[i].value[p] == 0) ||
                (!assumed && !CHECK_U(value, t[i].value[p])))
                printf("  %s of %s\n", t[i].field, presets[p]);
        }
    for (size_t i = 0; i < 4; i++) {
        pimhw_config c = hw_config(of[i], 1);
        CHECK_U(c.link_MBps, facil[i][0]);
        CHECK_U(c.host_MBps, (facil[i][0] * facil[i][1] + 500) / 1000);
    }
    CHECK_U(hw_config("cent", 1).out_entries, 32); /* as aim-gddr6, whose dialect it speaks */
}

/* No paper prints them: DCS' entries follow from the 576 bytes of its tables [PHONY VII-C], where a
 * row begins to open from what FFN1 and FFN2 save [LOL Fig. 7]. PIMphony's own controllers without
 * DCS are static. */
static void sources_are_named_for_what_they_print(void)
{
    static const char *const aim[] = {"aim-gddr6", "aimx", "cent", "neupims"};
    for (size_t i = 0; i < 4; i++)
        CHECK_STR(pimhw_preset_source(aim[i], "row_opening"), "calibrated");
    CHECK_STR(pimhw_preset_source("lpddr5-jetson", "row_opening"), "assumed");
    for (size_t i = 1; i < 4; i += 2) {
        pimhw_config c = hw_config(aim[i], 1);
        CHECK_STR(pimhw_preset_source(aim[i], "obuf"), "calibrated");
        CHECK_U(8 * (c.in_entries + c.obuf), 576);
    }
    CHECK_STR(pimhw_preset_source("neupims", "controller"), "assumed");
}

/* CENT's near-memory units, 3 TFLOPS in all [PHONY Table IV]; no other hub's are given. */
static void the_hub_of_cent_is_the_published_one(void)
{
    pimhw_config c = hw_config("cent", 1);
    CHECK_U(1000000 / c.tCK_ps * (uint64_t)c.epu_lanes / c.epu_ck_per_op, 3000000);
    CHECK_STR(pimhw_preset_source("cent", "epu_lanes"), "PHONY");
    CHECK_STR(pimhw_preset_source("neupims", "epu_lanes"), "assumed");
}

/* GB of a device: [LOL Table 5, 7.2], [PHONY Table IV], [FACIL Table II], [PAM Table 1]. */
static void presets_hold_what_their_sources_say(void)
{
    static const struct {
        const char *preset;
        uint64_t GB;
    } t[] = {{"aimx", 8},           {"cent", 16},           {"neupims", 32},
             {"lpddr5-jetson", 64}, {"lpddr5-macbook", 64}, {"lpddr5-ideapad", 32},
             {"lpddr5-iphone", 8},  {"pam-hbm3", 16},       {"pam-ddr4", 32}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        pimhw_config c;
        CHECK_U(pimhw_config_init(&c, t[i].preset, NULL), PIMHW_OK);
        uint64_t banks = (uint64_t)c.n_channels * pimhw_config_banks(&c);
        if (!CHECK_U(banks * c.n_rows * c.row_bytes, t[i].GB << 30)) printf("  %s\n", t[i].preset);
    }
}

/* fJ a bit of HBM3 [ATTACC]; a path from cell to hub has each of them once. */
enum { CELL = 440, COLUMN_MUX = 1010, GLOBAL_MUX = 1230, TSV = 500, INTERPOSER = 300 };

static void energies_are_those_of_their_sources(void)
{
    static const char *const hbm3[] = {"attacc-hbm3", "attacc-hbm3-nolimit", "pam-hbm3"};
    for (int i = 0; i < 3; i++) {
        pimhw_config c = hw_config(hbm3[i], 1);
        uint32_t units = (CELL + COLUMN_MUX) * 256;
        CHECK_U(c.eACT_fJ, 110 * 8 * c.row_bytes);
        CHECK_U(c.eRD_fJ, (CELL + COLUMN_MUX + GLOBAL_MUX) * 256);
        CHECK_U(c.eWR_fJ, c.eRD_fJ);
        CHECK_U(c.eMAC_fJ, i < 2 ? units + 16 * 320 : 3 * units);
        CHECK_U(c.eWRGB_fJ, GLOBAL_MUX * 256);
        CHECK_U(c.eRDMAC_fJ, GLOBAL_MUX * 16 * pimhw_config_banks(&c));
        CHECK_U(c.eLINK_fJ, (TSV + INTERPOSER) * 256);
    }
    pimhw_config hbm2 = hw_config("newton-hbm2", 1); /* [NEU]: 64 bytes, a buffer of 1 KiB */
    CHECK_U(hbm2.eRD_fJ, 804000 / 2);
    CHECK_U(hbm2.eWR_fJ, 1068000 / 2);
    CHECK_U(hbm2.eWRGB_fJ * hbm2.in_entries, 12900000);
    CHECK_U(hbm2.eRDMAC_fJ, 804000);
    for (int i = 0; i < 3; i++) {
        pimhw_config c = hw_config(pimhw_preset_name((uint32_t)i), 1);
        CHECK_U((c.eACT_fJ + 500) / 1000, 2950); /* 66.3 mW * 44.5 ns */
        CHECK_U(c.eRD_fJ, 548000);
        CHECK_U(c.eWR_fJ, 691000);
        CHECK_U(c.eMAC_fJ * 16, 1314000);
        CHECK_U(c.eLINK_fJ, 5500 * 256);
        CHECK_U(c.eREQ_fJ + c.eCMD_fJ, 66900 + 95300);
        CHECK_U(c.pACTIVE_uW - c.pIDLE_uW, 263750 - 183150);
    }
}

/* A column in, a result of every bank out: bytes on the link, in 32. */
static void link_energy_goes_by_bytes(void)
{
    static const struct {
        const char *preset;
        uint32_t out_bits, bytes;
    } runs[] = {{"aimx", 16, 32 + 32},         {"aimx", 32, 32 + 64},
                {"attacc-hbm3", 16, 32 + 128}, {"newton-hbm2", 16, 32 + 64},
                {"samsung-hbm2", 16, 32 + 16}, {"pam-ddr4", 16, 64 + 32}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        pimhw_config c = hw_config(runs[i].preset, 1);
        c.out_bits = runs[i].out_bits;
        HW_STREAM(c, hw_gb(1, 1, 0), hw_mac(1, 1, 0, 0), hw_rd(1, 0));
        CHECK_NEAR(hw.r.energy_pJ[PIMHW_ENERGY_LINK], runs[i].bytes / 32. * c.eLINK_fJ * 1e-3,
                   1e-9 * c.eLINK_fJ);
    }
    pimhw_config c = hw_config("aimx", 1);
    c.element_bytes = 1; /* a bias is two bytes of every bank all the same */
    HW_STREAM(c, hw_bias(1, 0));
    CHECK_NEAR(hw.r.energy_pJ[PIMHW_ENERGY_LINK], 32 / 32. * c.eLINK_fJ * 1e-3, 1e-9 * c.eLINK_fJ);
}

/* Every field is set and read back by name, and touches nothing else. */
static void fields_are_set_by_name(void)
{
    pimhw_config c = hw_config("aimx", 16), before = c;
    uint32_t value = 9, n = 0;
    CHECK_U(pimhw_config_set(&c, "tREFL", 1, &why), PIMHW_ERR_NAME);
    CHECK_HAS(why.text, "tREFL");
    CHECK_U(pimhw_config_set(&c, NULL, 1, &why), PIMHW_ERR_NAME);
    CHECK_HAS(why.text, "NULL");
    CHECK_U(pimhw_config_get(&c, "trp", &value, &why), PIMHW_ERR_NAME);
    CHECK_U(pimhw_config_set(&c, "tccd", 1, &why), PIMHW_ERR_NAME); /* a beginning, in any case */
    CHECK_HAS(why.text, "tCCD_S, tCCD_L and tCCD_MAC");
    CHECK_U(pimhw_config_set(NULL, "tRP", 1, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_config_get(&c, "tRP", NULL, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(value, 9);
    CHECK_BYTES(&c, &before, sizeof c);
    for (; pimhw_config_field(n); n++) {
        const char *field = pimhw_config_field(n);
        uint32_t old = 0;
        CHECK_U(pimhw_config_get(&c, field, &old, NULL), PIMHW_OK);
        CHECK_U(pimhw_config_set(&c, field, old + 12345, NULL), PIMHW_OK);
        CHECK_U(pimhw_config_get(&c, field, &value, NULL), PIMHW_OK);
        CHECK_U(value, old + 12345);
        CHECK_U(pimhw_config_set(&c, field, old, NULL), PIMHW_OK);
        CHECK_BYTES(&c, &before, sizeof c);
    }
    CHECK_U(n, 90);
    CHECK(pimhw_config_field(n + 1) == NULL);
    CHECK_U(pimhw_config_set(&c, "tRP", 30, NULL), PIMHW_OK);
    CHECK_U(c.tRP, 30);
}

/* Refused, by check and create alike, with the field's name. */
static void refused(const pimhw_config *c, const char *name)
{
    pimhw_device *d = (pimhw_device *)(uintptr_t)1;
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_config_check(c, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, name);
    CHECK_U(pimhw_config_check(c, NULL), PIMHW_ERR_CONFIG);
    pimhw_memory *m = (pimhw_memory *)(uintptr_t)1;
    CHECK_U(pimhw_device_create(&d, c, &why), PIMHW_ERR_CONFIG);
    CHECK(d == NULL);
    CHECK_U(pimhw_memory_create(&m, c, PIMHW_CHUNK_AIM, &why), PIMHW_ERR_CONFIG);
    CHECK(m == NULL);
}

/* Energies, powers and bandwidths: any 32-bit number. */
static bool has_no_most(const char *field)
{
    if (strcmp(field, "flash_MBps") == 0) return false;
    return strstr(field, "_fJ") || strstr(field, "_uW") || strstr(field, "_MBps");
}

static void bad_fields_are_named(void)
{
    static const char *const not_0[] = {
        "n_channels",   "n_bank_groups", "n_group_banks", "n_rows",      "row_bytes",
        "column_bytes", "element_bytes", "in_entries",    "out_entries", "queue_entries",
        "tCK_ps",       "tBL",           "tCCD_S",        "tCCD_L",      "tRCD_MAC",
        "tRP",          "tRAS",          "tRC",           "epu_lanes",   "obuf",
        "tCCD_MAC",     "tCL_MAC",       "tWR_INP",       "tMAC",        "tRD_OUT",
        "tREFI",        "tRFC",          "refresh_phase", "link_MBps",   "host_MBps"};
    static const char *const at_most_1[] = {"out_clear", "front_end", "extra_region", "early_tiles",
                                            "is_mac",    "refresh",   "epu_overlap"};
    pimhw_config zero;
    memset(&zero, 0, sizeof zero);
    CHECK_U(pimhw_config_check(&zero, &why), PIMHW_ERR_CONFIG);
    for (size_t i = 0; i < sizeof not_0 / sizeof *not_0; i++) {
        pimhw_config c = hw_config("aimx", 16);
        CHECK_U(pimhw_config_set(&c, not_0[i], 0, NULL), PIMHW_OK);
        refused(&c, not_0[i]);
    }
    for (size_t i = 0; i < sizeof at_most_1 / sizeof *at_most_1; i++) {
        pimhw_config c = hw_config("aimx", 16);
        CHECK_U(pimhw_config_set(&c, at_most_1[i], 2, NULL), PIMHW_OK);
        refused(&c, at_most_1[i]);
    }
    for (uint32_t i = 0; pimhw_config_field(i); i++) {
        pimhw_config c = hw_config("aimx", 16);
        CHECK_U(pimhw_config_set(&c, pimhw_config_field(i), UINT32_MAX, NULL), PIMHW_OK);
        if (has_no_most(pimhw_config_field(i)))
            CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
        else
            refused(&c, pimhw_config_field(i));
    }
    pimhw_config c = hw_config("aimx", 65);
    refused(&c, "n_channels");
    c = hw_config("aimx", 64);
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c.tRAS = c.tRC + 1;
    refused(&c, "tRAS");
    c = hw_config("aimx", 16);
    c.tCCD_S = 3; /* more than the long one */
    refused(&c, "tCCD_S, 3, is more than tCCD_L, 2");
    c.tCCD_S = 2, c.tRRD_L = 4;
    refused(&c, "tRRD_S, 5, is more than tRRD_L, 4");
    c.tRRD_L = 5, c.tWTR_S = 12;
    refused(&c, "tWTR_S, 12, is more than tWTR_L, 11");
    c = hw_config("aimx", 16);
    c.controller = 4;
    refused(&c, "controller");
    c = hw_config("aimx", 16);
    c.row_opening = 3;
    refused(&c, "row_opening");
    c = hw_config("aimx", 16);
    c.refresh = 1, c.tREFI = c.tRFC + 100; /* rows would be closed before they are read */
    refused(&c, "tREFI");
    c.refresh = 0;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c = hw_config("aimx", 16);
    c.controller = PIMHW_DCS, c.refresh = 1, c.tMAC = c.tREFI; /* two refreshes in one wait */
    refused(&c, "tREFI");
    c.controller = PIMHW_IN_ORDER;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c = hw_config("aim-gddr6", 16);
    c.refresh = 1, c.tMOD = 2000; /* there and back, no time is left for a command */
    refused(&c, "tREFI");
    c = hw_config("aimx", 16);
    c.row_bytes = 2047;
    refused(&c, "row_bytes");
    c = hw_config("aimx", 16);
    c.row_bytes = 30;
    c.column_bytes = 32;
    refused(&c, "row_bytes");
    c = hw_config("aimx", 16);
    c.element_bytes = 3;
    refused(&c, "element_bytes");
    c = hw_config("aimx", 16);
    c.out_bits = 24;
    refused(&c, "out_bits");
    c = hw_config("aimx", 16);
    c.in_entries = c.out_entries = 1;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c.controller = PIMHW_PING_PONG; /* what is one has no halves */
    refused(&c, "in_entries");
    c.extra_region = 1;
    refused(&c, "out_entries");
    c.out_entries = 2;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c.extra_region = 0, c.in_entries = 2;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c = hw_config("aimx", 16);
    c.allocator.release = NULL;
    refused(&c, "allocator");
    CHECK_U(pimhw_config_check(NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_create(NULL, &c, &why), PIMHW_ERR_ARGUMENT);
    pimhw_device *d;
    CHECK_U(pimhw_device_create(&d, NULL, &why), PIMHW_ERR_ARGUMENT);
}

/* What does not fit between two refreshes would be closed before it is read, again and again. */
static void refreshes_leave_time_for_every_row(void)
{
    static const char *const fields[] = {"tRFC",      "tRC",     "tRP",        "tRRD_L",
                                         "tRTP",      "tCL",     "tWR",        "tMOD",
                                         "tRCD_MAC",  "tRCD_AF", "tRCD_EWMUL", "tRCD_RDCP",
                                         "tRCD_WRCP", "tWR_INP", "tMAC",       "tRD_OUT"};
    for (uint32_t controller = 0; controller < 4; controller++)
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            pimhw_config c = hw_config("aim-gddr6", 1);
            bool gap = i >= 13;
            c.controller = controller;
            c.refresh = 1, c.tREFI = 1000;
            CHECK_U(pimhw_config_check(&c, &why), PIMHW_OK);
            CHECK_U(pimhw_config_set(&c, fields[i], 1000, NULL), PIMHW_OK);
            if (gap && controller == PIMHW_IN_ORDER)
                CHECK_U(pimhw_config_check(&c, &why), PIMHW_OK);
            else
                refused(&c, "is more than tREFI, 1000");
            c.refresh = 0;
            CHECK_U(pimhw_config_check(&c, &why), PIMHW_OK);
        }
}

/* Numbers that meet, and numbers that tables of ours have room for. */
static void bounds_of_fields_are_met(void)
{
    static const struct {
        char field[16];
        uint32_t least, most;
    } t[] = {{"n_channels", 1, 64},     {"queue_entries", 2, 64}, {"in_entries", 1, 65536},
             {"out_entries", 1, 65536}, {"obuf", 1, 65536},       {"controller", 0, 3}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (uint32_t beyond = 0; beyond < 2; beyond++) {
            pimhw_config c = hw_config("aimx", 16);
            CHECK_U(pimhw_config_set(&c, t[i].field, t[i].most + beyond, NULL), PIMHW_OK);
            CHECK_U(pimhw_config_check(&c, &why), beyond ? PIMHW_ERR_CONFIG : PIMHW_OK);
            c = hw_config("aimx", 16);
            CHECK_U(pimhw_config_set(&c, t[i].field, t[i].least - beyond, NULL), PIMHW_OK);
            CHECK_U(pimhw_config_check(&c, &why), beyond ? PIMHW_ERR_CONFIG : PIMHW_OK);
        }
    pimhw_config c = hw_config("aimx", 16);
    c.n_bank_groups = 16;
    CHECK_U(pimhw_config_check(&c, NULL), PIMHW_OK);
    c.n_bank_groups = 13, c.n_group_banks = 5;
    refused(&c, "n_bank_groups * n_group_banks is 65, not 1 to 64");
    c = hw_config("aimx", 16);
    c.n_ranks = 3; /* of 16 banks */
    refused(&c, "16 banks do not fill n_ranks 3");
    c = hw_config("aimx", 16);
    c.tRCD_RD = c.tRAS + 1;
    refused(&c, "tRCD_RD");
    c = hw_config("aimx", 16);
    c.tRCD_WR = c.tRAS + 1;
    refused(&c, "tRCD_WR");
}

/* One allocation, given back whole; both hooks or neither; nothing else allocates. */
static void memory_comes_from_the_allocator(void)
{
    check_heap heap = {0};
    pimhw_config c = hw_config("aim-gddr6", 32);
    pimhw_device *d;
    pimhw_readings r;
    const pimhw_allocator own = {heap_alloc, heap_release, &heap}, none = {NULL, NULL, NULL};
    const pimhw_instruction mac = hw_mac(3, 64, 9, 1);
    c.allocator = own;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    memset(&c, 0, sizeof c); /* the device has its copy */
    uint64_t calls = heap.n_calls;
    CHECK(calls >= 1);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &mac, &why), PIMHW_OK);
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_OK);
    CHECK_U(heap.n_calls, calls);
    CHECK_U(pimhw_device_config(d)->n_channels, 32);
    pimhw_device_destroy(d);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
    for (uint64_t i = 1; i <= calls; i++) {
        check_heap failing = {.fail_at = i};
        const pimhw_allocator bad = {heap_alloc, heap_release, &failing};
        c = hw_config("aimx", 16);
        c.allocator = bad;
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_ERR_MEMORY);
        CHECK(d == NULL);
        CHECK_HAS(why.text, "memory");
        CHECK_U(failing.n_live, 0);
    }
    c = hw_config("aimx", 16);
    c.allocator = none;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    pimhw_device_destroy(d);
    pimhw_device_destroy(NULL);
}

/* A device is one piece, as large as the contract says, and is given back as it was taken. */
static void a_device_is_one_piece_of_memory(void)
{
    for (uint32_t i = 0; i < 4 * 14; i++) {
        check_heap heap = {0};
        const pimhw_allocator own = {heap_alloc, heap_release, &heap};
        const uint32_t controller = i % 4;
        pimhw_config c;
        pimhw_device *d = NULL;
        CHECK_U(pimhw_config_init(&c, pimhw_preset_name(i / 4), &why), PIMHW_OK);
        c.allocator = own;
        c.controller = controller;
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        CHECK_U(heap.n_calls, 1);
        const uint64_t most = controller == PIMHW_IN_ORDER ? 16000000 : 31000000;
        if (!CHECK(heap.live_bytes < most)) printf("  %u\n", (unsigned)heap.live_bytes);
        pimhw_device_destroy(d);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
    }
}

/* Gives one place to all, as it was left. */
static void *same_place(void *user, size_t bytes, size_t align)
{
    (void)align;
    return bytes <= *(size_t *)user ? (char *)user + 64 : NULL;
}

static void leave_it(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)ptr;
    (void)bytes;
}

/* What a device learnt of a program is not known to another, slower one in its place. */
static void a_device_forgets_the_one_before(void)
{
    static pimhw_program p;
    const size_t bytes = 40000000;
    char *raw = (char *)check_alloc(1, bytes + 128);
    char *place = raw + (64 - (uintptr_t)raw % 64);
    const pimhw_instruction mac = hw_mac(1, 8, 0, 0);
    const pimhw_request request = {.repeats = 1};
    pimhw_readings r[2];
    memcpy(place, &bytes, sizeof bytes);
    pimhw_program_init(&p);
    pimhw_program_loop(&p, pimhw_program_const(&p, 100), 1);
    pimhw_program_add(&p, &mac);
    pimhw_program_end(&p);
    for (int slow = 0; slow < 2; slow++) {
        const pimhw_allocator own = {same_place, leave_it, place};
        pimhw_config c = hw_config("aimx", 1);
        pimhw_device *d = NULL;
        if (slow) c.tCCD_MAC = c.tCCD_L = 9;
        c.allocator = own;
        if (!CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK)) break;
        CHECK_U(pimhw_device_time(d, &r[slow], &p, &request, NULL, &why), PIMHW_OK);
        CHECK(r[slow].walked_rounds > 0);
        pimhw_device_destroy(d);
    }
    CHECK(r[1].cycles > 800 * 9 - 100);
    free(raw);
}

/* A refused instruction ends the stream; the next begin starts afresh. */
static void refuse(pimhw_device *d, pimhw_instruction in, const char *words)
{
    pimhw_readings r;
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    if (!CHECK_U(pimhw_device_submit(d, &in, &why), PIMHW_ERR_PROGRAM)) printf("  %s\n", words);
    CHECK_HAS(why.text, words);
    pimhw_instruction fine = hw_gb(1, 1, 0);
    CHECK_U(pimhw_device_submit(d, &fine, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_finish(d, &r, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &in, NULL), PIMHW_ERR_PROGRAM); /* no cause wanted */
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &fine, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_finish(d, &r, NULL), PIMHW_OK);
    CHECK_U(r.commands[PIMHW_CMD_WRGB], 1);
}

static void bad_instructions_are_refused(void)
{
    static const char *const presets[] = {"aimx", "aim-gddr6"};
    static const pimhw_kind single[] = {PIMHW_WR_BIAS, PIMHW_RD_MAC, PIMHW_AF,
                                        PIMHW_RD_AF,   PIMHW_WR_SBK, PIMHW_RD_SBK,
                                        PIMHW_WR_ABK,  PIMHW_MEM_WR, PIMHW_MEM_RD};
    for (int p = 0; p < 2; p++) {
        pimhw_device *d = device_of(presets[p]);
        const pimhw_config *c = pimhw_device_config(d);
        pimhw_instruction in = hw_gb(1, 1, 0);
        for (size_t i = 0; i < sizeof single / sizeof *single; i++)
            refuse(d, hw_all(single[i], 1, 2), "op_size is 2, the device allows at most 1");
        in.kind = PIMHW_LOOP;
        refuse(d, in, "kind");
        in.kind = PIMHW_N_KINDS;
        refuse(d, in, "kind");
        refuse(d, hw_gb(0, 1, 0), "mask");
        refuse(d, hw_gb(UINT64_C(1) << 8, 1, 0), "mask");
        refuse(d, hw_gb(UINT64_C(1) << 63 | 1, 1, 0), "mask");
        refuse(d, hw_gb(1, 0, 0), "op_size");
        refuse(d, hw_gb(1, 65, 0), "op_size");
        refuse(d, hw_gb(1, 2, 63), "tile");
        refuse(d, hw_gb(1, 1, UINT32_MAX), "tile");
        refuse(d, hw_gb(1, UINT64_MAX, 1), "op_size");
        refuse(d, hw_mac(1, 0, 0, 0), "op_size");
        refuse(d, hw_mac(1, 65, 0, 0), "op_size");
        refuse(d, hw_mac(1, 1, c->n_rows, 0), "row");
        refuse(d, hw_mac(1, 1, 0, c->out_entries), "out");
        refuse(d, hw_bias(1, c->out_entries), "out");
        refuse(d, hw_rd(1, UINT32_MAX), "out");
        in = hw_mac(1, 4, 0, 0);
        in.column = 61;
        refuse(d, in, "column");
        in.column = 0;
        in.tile = 61;
        refuse(d, in, "tile");
        in.column = UINT32_MAX;
        refuse(d, in, "");
        refuse(d, hw_all(PIMHW_WR_ABK, 3, 1), "channels of the mask is 2");
        in = hw_mac(1, 4, c->n_rows - 1, c->out_entries - 1); /* the last of everything */
        in.column = in.tile = 60;
        CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_submit(d, &in, &why), PIMHW_OK);
        pimhw_device_destroy(d);
    }
}

/* What a kind does not use may be anything: no clock hangs on it, in any controller. */
static void fields_of_no_use_are_not_looked_at(void)
{
    enum { BANK = 1, ROW = 2, COLUMN = 4, TILE = 8, OUT = 16 };
    static const struct {
        pimhw_kind kind;
        uint32_t uses;
    } kinds[] = {{PIMHW_WR_GB, TILE},
                 {PIMHW_WR_BIAS, OUT},
                 {PIMHW_MAC_ABK, ROW | COLUMN | TILE | OUT},
                 {PIMHW_RD_MAC, OUT},
                 {PIMHW_MAC_SBK, BANK | ROW | COLUMN | TILE | OUT},
                 {PIMHW_EWMUL, ROW | COLUMN},
                 {PIMHW_AF, OUT},
                 {PIMHW_RD_AF, OUT},
                 {PIMHW_COPY_BKGB, BANK | ROW | COLUMN | TILE},
                 {PIMHW_COPY_GBBK, BANK | ROW | COLUMN | TILE},
                 {PIMHW_WR_SBK, BANK | ROW | COLUMN},
                 {PIMHW_RD_SBK, BANK | ROW | COLUMN},
                 {PIMHW_WR_ABK, ROW | COLUMN},
                 {PIMHW_MEM_WR, BANK | ROW | COLUMN},
                 {PIMHW_MEM_RD, BANK | ROW | COLUMN},
                 {PIMHW_GPR, 0},
                 {PIMHW_SYNC, 0},
                 {PIMHW_EPU_WAIT, 0}};
    for (size_t i = 0; i < 5 * sizeof kinds / sizeof *kinds; i++) {
        pimhw_config c = hw_config("aimx", 1);
        pimhw_readings r[2];
        const uint32_t uses = kinds[i / 5].uses;
        c.controller = i % 5 < 4 ? (uint32_t)i % 5 : PIMHW_IN_ORDER;
        c.front_end = i % 5 == 4;
        pimhw_device *d = NULL;
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        for (uint32_t k = 0; k < 2; k++) {
            pimhw_instruction in = {.kind = kinds[i / 5].kind, .mask = 1, .op_size = 1};
            const pimhw_instruction mac = hw_mac(1, 1, 0, 0), rd = hw_rd(1, 0);
            const uint32_t any = k ? UINT32_MAX : 0;
            in.bank = uses & BANK ? 1 : any;
            in.row = uses & ROW ? 1 : any;
            in.column = uses & COLUMN ? 1 : any;
            in.tile = uses & TILE ? 1 : any;
            in.out = uses & OUT ? 1 : any;
            in.gpr = in.flags = in.round = in.aux = any;
            CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
            CHECK_U(pimhw_device_submit(d, &mac, &why), PIMHW_OK);
            if (!CHECK_U(pimhw_device_submit(d, &in, &why), PIMHW_OK)) printf("  %s\n", why.text);
            CHECK_U(pimhw_device_submit(d, &rd, &why), PIMHW_OK);
            CHECK_U(pimhw_device_finish(d, &r[k], &why), PIMHW_OK);
        }
        CHECK_BYTES(&r[1], &r[0], sizeof r[0]);
        pimhw_device_destroy(d);
    }
}

static void streams_have_an_order(void)
{
    pimhw_device *d = device_of("aim-gddr6");
    pimhw_readings r, before;
    const pimhw_instruction gb = hw_gb(1, 1, 0), eoc = hw_all(PIMHW_EOC, 0xff, 1);
    memset(&r, 0x5a, sizeof r);
    before = r;
    CHECK_U(pimhw_device_submit(d, &gb, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_ARGUMENT);
    CHECK_BYTES(&r, &before, sizeof r);
    CHECK_U(pimhw_device_begin(NULL, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(NULL, &gb, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_submit(d, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_submit(d, &eoc, &why), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &gb, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "EOC");
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &eoc, &why), PIMHW_OK);
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_OK);
    CHECK_U(r.cycles, 2);
    CHECK_U(r.size, sizeof r);
    CHECK_U(r.version, 1);
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_finish(d, NULL, &why), PIMHW_ERR_ARGUMENT);
    pimhw_instruction epu = hw_all(PIMHW_EPU, 1, 1);
    epu.flags = PIMHW_AWAITED;
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    for (int i = 0; i < 8; i++)
        CHECK_U(pimhw_device_submit(d, &epu, &why), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &epu, &why), PIMHW_ERR_PROGRAM); /* the ninth */
    CHECK_HAS(why.text, "more than 8 works");
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_ARGUMENT);
    pimhw_device_destroy(d);
}

static bool count(void *user, const pimhw_instruction *in)
{
    (void)in;
    return ++*(uint64_t *)user < 3;
}

/* A program that the device cannot do: item and field in the cause, readings as they were. */
static void bad_program(pimhw_device *d, const pimhw_program *p, const pimhw_request *request,
                        const char *words)
{
    pimhw_readings r, before;
    uint64_t n = 0;
    memset(&r, 0x5a, sizeof r);
    before = r;
    CHECK_U(pimhw_device_time(d, &r, p, request, NULL, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, words);
    CHECK_BYTES(&r, &before, sizeof r);
    CHECK_U(pimhw_device_resolve(d, p, request, count, &n, &why), PIMHW_ERR_PROGRAM);
}

static void bad_programs_are_refused(void)
{
    pimhw_device *d = device_of("aimx");
    static pimhw_program p;
    pimhw_instruction gb = hw_gb(1, 1, 0);
    pimhw_program_init(&p);
    pimhw_program_end(&p);
    bad_program(d, &p, NULL, "END");
    pimhw_program_init(&p);
    pimhw_program_loop(&p, pimhw_program_const(&p, 2), 1);
    pimhw_program_add(&p, &gb);
    bad_program(d, &p, NULL, "not closed");
    pimhw_program_init(&p);
    pimhw_item item = {.kind = PIMHW_WR_GB, .mask = 1, .op_size = 7};
    pimhw_program_item(&p, &item);
    bad_program(d, &p, NULL, "operand");
    pimhw_program_init(&p);
    pimhw_operand o = {.base = 1, .tail = {9, 0}};
    item.op_size = pimhw_program_operand(&p, &o);
    pimhw_program_item(&p, &item);
    bad_program(d, &p, NULL, "tail");
    pimhw_program_init(&p);
    pimhw_operand far = {.base = 1, .step = {1, 1}};
    pimhw_program_loop(&p, pimhw_program_const(&p, 2), 1);
    item.op_size = pimhw_program_operand(&p, &far);
    pimhw_program_item(&p, &item);
    pimhw_program_end(&p);
    bad_program(d, &p, NULL, "item 1: a step of a loop that is not open");
    for (int more = 0; more < 2; more++) {
        pimhw_operand high = {.base = ((UINT64_C(1) << 62) - 1) + (uint64_t)more, .step = {1}};
        pimhw_program_init(&p);
        pimhw_program_loop(&p, pimhw_program_const(&p, 2), 1);
        item.op_size = pimhw_program_operand(&p, &high);
        pimhw_program_item(&p, &item);
        pimhw_program_end(&p);
        if (more) bad_program(d, &p, NULL, "item 1: a base of 2^62 or more that grows");
        if (!more) CHECK_U(pimhw_program_check(&p, pimhw_device_config(d), &why), PIMHW_OK);
    }
    pimhw_program_init(&p);
    const pimhw_tail nowhere = {.rest = PIMHW_RESTS + 1};
    o.tail[0] = pimhw_program_tail(&p, &nowhere);
    item.op_size = pimhw_program_operand(&p, &o);
    pimhw_program_item(&p, &item);
    bad_program(d, &p, NULL, "item 0: a tail of a number no block has");
    pimhw_program_init(&p);
    item.op_size = 0;
    item.space = PIMHW_SPACES;
    pimhw_program_item(&p, &item);
    bad_program(d, &p, NULL, "item 0");
    pimhw_program_init(&p);
    item.space = 0;
    item.kind = PIMHW_N_KINDS;
    pimhw_program_item(&p, &item);
    bad_program(d, &p, NULL, "kind");
    pimhw_program_init(&p);
    gb.mask = UINT64_C(1) << 20;
    pimhw_program_add(&p, &gb);
    bad_program(d, &p, NULL, "mask: a channel the device lacks");
    pimhw_program_init(&p);
    gb = hw_gb(1, 65, 0);
    pimhw_program_add(&p, &gb);
    bad_program(d, &p, NULL, "op_size");
    pimhw_program_init(&p);
    gb = hw_gb(1, 1, 0);
    pimhw_program_add(&p, &gb);
    item.kind = PIMHW_LIST;
    pimhw_program_item(&p, &item);
    pimhw_program_end(&p);
    bad_program(d, &p, NULL, "list");
    pimhw_program_init(&p);
    item.kind = PIMHW_BLOCK;
    pimhw_program_item(&p, &item);
    pimhw_program_end(&p);
    bad_program(d, &p, NULL, "block");
    pimhw_program_init(&p);
    p.n_items = UINT32_MAX;
    bad_program(d, &p, NULL, "builder");
    pimhw_device_destroy(d);
}

/* What a builder could not take is said in the words of the first fault, whatever comes after. */
static void the_first_fault_of_a_builder_stays(void)
{
    static pimhw_program p;
    const pimhw_config c = hw_config("aimx", 2);
    const pimhw_instruction gb = hw_gb(1, 1, 0);
    pimhw_program_init(&p);
    pimhw_program_add(&p, &gb);
    for (int i = 0; i <= 2 * PIMHW_LOOPS; i++)
        pimhw_program_loop(&p, 0, 1);
    CHECK_U(p.n_items, 2 * PIMHW_LOOPS + 1);
    for (uint64_t i = 1; i <= PIMHW_PROGRAM_OPERANDS + 1; i++)
        pimhw_program_const(&p, i);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_STR(why.text, "more than 12 structures nested");
    CHECK_U(pimhw_program_check(&p, &c, NULL), PIMHW_ERR_PROGRAM);
    pimhw_program_init(&p);
    for (int i = 0; i < 2 * PIMHW_LOOPS; i++)
        pimhw_program_loop(&p, 0, 1);
    for (int i = 2 * PIMHW_LOOPS; i < PIMHW_PROGRAM_ITEMS; i++)
        pimhw_program_add(&p, &gb);
    pimhw_program_loop(&p, 0, 1);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_STR(why.text, "more than 96 items in a program");
}

/* What the builder is given is what the program holds. */
static void builders_keep_what_they_are_given(void)
{
    static pimhw_program p;
    const pimhw_tail tail = {.base = 5};
    pimhw_operand o = {.base = 9};
    pimhw_instruction gb = hw_gb(1, 1, 0);
    gb.flags = PIMHW_DISTINCT;
    pimhw_program_init(&p);
    o.tail[0] = pimhw_program_tail(&p, &tail);
    pimhw_program_operand(&p, &o);
    CHECK_U(pimhw_program_tail(&p, &tail), 1);
    CHECK_U(pimhw_program_operand(&p, &o), 1);
    pimhw_program_add(&p, &gb);
    CHECK_U(p.items[0].flags, PIMHW_DISTINCT);
    CHECK_U(pimhw_program_bytes(&p),
            sizeof(pimhw_item) + 2 * sizeof(pimhw_operand) + sizeof(pimhw_tail));
}

/* An operand in one loop: "": it is fine. */
static void operands_are_judged(void)
{
    const uint64_t much = UINT64_C(1) << 32;
    const struct {
        pimhw_operand o;
        pimhw_tail tail;
        const char *words;
    } sorts[] = {
        {{.step = {much}}, {0}, "a step of 2^32 or more"},
        {{.step = {much - 1}}, {0}, ""},
        {{.base = UINT64_MAX}, {0}, ""},
        {{.tail = {2}}, {0}, "a tail that is not there"},
        {{.tail = {1, 2}}, {0}, "a tail that is not there"},
        {{.tail = {1}}, {.rest = PIMHW_RESTS}, ""},
        {{.tail = {0, 1}}, {.rest = PIMHW_RESTS + 1}, "a tail of a number no block has"},
        {{.tail = {1}}, {.step = {0, 0, much}}, "a step or factor of 2^32 or more"},
        {{.tail = {1}}, {.channel_step = much}, "a step or factor of 2^32 or more"},
        {{.tail = {1}}, {.mul = much}, "a step or factor of 2^32 or more"},
        {{.tail = {1}}, {.step = {much - 1}, .channel_step = much - 1, .mul = much - 1}, ""},
    };
    static pimhw_program p;
    const pimhw_config c = hw_config("aimx", 1);
    for (size_t i = 0; i < 2 * sizeof sorts / sizeof *sorts; i++) {
        const char *words = sorts[i / 2].words;
        pimhw_item item = {.kind = PIMHW_WR_GB, .mask = 1};
        char cause[96] = "";
        pimhw_program_init(&p);
        pimhw_program_tail(&p, &sorts[i / 2].tail);
        uint8_t name = pimhw_program_operand(&p, &sorts[i / 2].o);
        item.op_size = pimhw_program_const(&p, 1);
        *(i % 2 ? &item.bank : &item.aux) = name; /* whether it is used or not */
        pimhw_program_loop(&p, item.op_size, 1);
        pimhw_program_item(&p, &item);
        pimhw_program_end(&p);
        why.text[0] = 0;
        CHECK_U(pimhw_program_check(&p, &c, &why), *words ? PIMHW_ERR_PROGRAM : PIMHW_OK);
        if (*words) snprintf(cause, sizeof cause, "item 1: %s", words);
        CHECK_STR(why.text, cause);
    }
}

/* L, B, O, E: list, block, loop, end; S: SYNC. op_size is 1 in all. */
static void structures_are_judged(void)
{
    static const struct {
        const char *words, *kinds; /* "": it is fine */
        uint8_t aux[4];            /* 28: 2^28 */
        bool grows;                /* aux of the first is no constant */
    } sorts[] = {
        {"", "LBEBEE", {2, 2, 0, 1}, false},
        {"item 1: aux is more than the list's", "LBEE", {2, 3}, false},
        {"item 2: a block inside a block", "LBBEEE", {0}, false},
        {"item 3: a block inside a block", "LBOBEEEE", {0}, false},
        {"item 1: a block outside a list", "OBEE", {0}, false},
        {"item 1: a list that is not the first item", "LLEE", {0}, false},
        {"item 2: a list that is not the first item", "OOLEEE", {0}, false},
        {"item 2: after the list", "LES", {0}, false},
        {"item 0: aux is not a constant below 2^28", "LE", {28}, false},
        {"item 0: aux is not a constant below 2^28", "LE", {0}, true},
        {"item 1: not closed", "OO", {0}, false},
        {"item 1: not closed", "LO", {0}, false},
        {"item 0: not closed", "LS", {0}, false},
        {"item 0: not closed", "OOE", {0}, false},
        {"", "OOOOOOEEEEEE", {0}, false},
        {"", "LOBOOOOEEEEEEE", {0}, false},
        {"item 6: loops nested too deep", "LOOOOOOEEEEEEE", {0}, false},
    };
    static const char letters[] = "OLBE";
    static pimhw_program p;
    const pimhw_config c = hw_config("aimx", 1);
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        const pimhw_tail tail = {.rest = 1};
        pimhw_operand left = {.base = 1};
        pimhw_program_init(&p);
        left.tail[1] = pimhw_program_tail(&p, &tail);
        for (int k = 0; sorts[i].kinds[k]; k++) {
            const char *letter = strchr(letters, sorts[i].kinds[k]);
            uint64_t aux = k < 4 ? sorts[i].aux[k] : 0;
            pimhw_item item = {.kind = PIMHW_SYNC, .mask = 1};
            if (letter) item.kind = (uint8_t)(letter - letters);
            item.op_size = pimhw_program_const(&p, 1);
            item.aux = pimhw_program_const(&p, aux == 28 ? UINT64_C(1) << aux : aux);
            if (sorts[i].grows && k == 0) item.aux = pimhw_program_operand(&p, &left);
            pimhw_program_item(&p, &item);
        }
        why.text[0] = 0;
        pimhw_status want = *sorts[i].words ? PIMHW_ERR_PROGRAM : PIMHW_OK;
        CHECK_U(pimhw_program_check(&p, &c, &why), want);
        CHECK_STR(why.text, sorts[i].words);
    }
}

/* Names and masks of one instruction, or of a loop. */
static void items_are_judged(void)
{
    static pimhw_program p;
    pimhw_config c = hw_config("aimx", 3);
    const struct {
        pimhw_item item;
        const char *words; /* "": it is fine */
    } sorts[] = {
        {{.kind = PIMHW_SYNC}, ""},
        {{.kind = PIMHW_EOC}, ""},
        {{.kind = PIMHW_RD_MAC}, "item 0: mask: no channel"},
        {{.kind = PIMHW_LOOP}, "item 0: mask: no channel"},
        {{.kind = PIMHW_LOOP, .mask = 8}, "item 0: mask: a channel the device lacks"},
        {{.kind = PIMHW_RD_MAC, .mask = 7}, ""},
        {{.kind = PIMHW_WR_GB, .mask = 1}, "item 0: op_size is 0"},
        {{.kind = PIMHW_EPU, .mask = 1}, "item 0: op_size is 0"},
        {{.kind = PIMHW_EWMUL, .mask = 1, .op_size = 1},
         "item 0: EWMUL: n_group_banks is less than the 3 it takes"},
    };
    c.n_bank_groups = 8, c.n_group_banks = 2;
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        pimhw_program_init(&p);
        pimhw_program_const(&p, 1);
        pimhw_program_item(&p, &sorts[i].item);
        if (sorts[i].item.kind == PIMHW_LOOP) pimhw_program_end(&p);
        why.text[0] = 0;
        pimhw_status want = *sorts[i].words ? PIMHW_ERR_PROGRAM : PIMHW_OK;
        CHECK_U(pimhw_program_check(&p, &c, &why), want);
        CHECK_STR(why.text, sorts[i].words);
    }
    for (size_t f = offsetof(pimhw_item, op_size); f <= offsetof(pimhw_item, aux); f++)
        for (uint8_t name = 1; name < 3; name++) {
            pimhw_item item = {.kind = PIMHW_MAC_ABK, .mask = 1, .op_size = 1};
            ((uint8_t *)&item)[f] = name;
            pimhw_program_init(&p);
            pimhw_program_const(&p, 1);
            pimhw_program_item(&p, &item);
            pimhw_status want = name == 2 ? PIMHW_ERR_PROGRAM : PIMHW_OK;
            CHECK_U(pimhw_program_check(&p, &c, &why), want);
            if (name == 2) CHECK_HAS(why.text, "item 0: an operand that is not there");
        }
}

/* A program is a plain value: what no builder leaves behind is told, not walked. */
static void programs_of_no_builder_are_refused(void)
{
    static pimhw_program p;
    const pimhw_config c = hw_config("aimx", 1);
    for (int sort = 0; sort < 6; sort++) {
        pimhw_program_init(&p);
        for (int i = 0; i < 2; i++)
            pimhw_program_loop(&p, pimhw_program_const(&p, 2), 1);
        for (int i = 0; i < 2; i++)
            pimhw_program_end(&p);
        CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_OK);
        if (sort == 0) p.n_items = PIMHW_PROGRAM_ITEMS + 1;
        if (sort == 1) p.n_operands = PIMHW_PROGRAM_OPERANDS + 1;
        if (sort == 2) p.n_tails = PIMHW_PROGRAM_TAILS + 1;
        if (sort == 2) p.status = (pimhw_status)77; /* nor is this looked at then */
        if (sort == 3) p.items[2].end = 0;
        if (sort == 4) p.items[1].end = 3;
        if (sort == 5) p.items[0].kind = PIMHW_END;
        CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
        CHECK_STR(why.text, sort < 3   ? "the program was not made by the builder"
                            : sort < 5 ? "item 2: closes another structure"
                                       : "item 0: closes nothing");
    }
}

static void see_nothing(void *user, const pimhw_event *event)
{
    (void)user;
    (void)event;
}

/* Refused in these words, and the readings as they were. */
static void endless(pimhw_device *d, const pimhw_program *p, const char *words)
{
    pimhw_readings r, before;
    memset(&r, 0x5a, sizeof r);
    before = r;
    CHECK_U(pimhw_device_time(d, &r, p, NULL, NULL, &why), PIMHW_ERR_PROGRAM);
    CHECK_STR(why.text, words);
    CHECK_BYTES(&r, &before, sizeof r);
}

/* Loops without an instruction; instructions in loops; work of the hub that ends no sooner, with
 * nothing behind it and with. */
static void endless_programs_are_refused(void)
{
    static const uint64_t rounds[2] = {1 << 27, 1 << 18};
    static pimhw_program p;
    pimhw_readings r;
    const pimhw_instruction gb = hw_gb(1, 1, 0), wait = hw_all(PIMHW_EPU_WAIT, 1, 1);
    pimhw_instruction epu = hw_all(PIMHW_EPU, 1, (uint64_t)1 << 61);
    pimhw_device *d = device_of("aimx");
    for (int k = 0; k < 2; k++) {
        pimhw_program_init(&p);
        pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 27), 1);
        pimhw_program_loop(&p, pimhw_program_const(&p, rounds[k]), 1);
        for (int i = 0; k == 1 && i < 2; i++) /* 2^45 clocks each, at least */
            pimhw_program_add(&p, &gb);
        pimhw_program_end(&p);
        pimhw_program_end(&p);
        endless(d, &p,
                k == 0 ? "item 1: the run takes 2^46 clocks or rounds, or more"
                       : "item 3: the run takes 2^46 clocks or rounds, or more");
    }
    pimhw_program_init(&p); /* 2^44 rounds of 4 instructions, each of a channel of its own */
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 22), 15);
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 22), 15);
    for (int i = 0; i < 4; i++) {
        const pimhw_instruction its = hw_gb((uint64_t)1 << i, 1, 0);
        pimhw_program_add(&p, &its);
    }
    pimhw_program_end(&p);
    pimhw_program_end(&p);
    CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &why), PIMHW_OK);
    CHECK(r.cycles > (uint64_t)1 << 44 && r.cycles < (uint64_t)1 << 46);
    pimhw_program_init(&p); /* 2^46 rounds and not one more: 2^23 of a loop with 2^23 - 1 */
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 23), 1);
    pimhw_program_loop(&p, pimhw_program_const(&p, (1 << 23) - 1), 1);
    pimhw_program_add(&p, &gb);
    pimhw_program_end(&p);
    pimhw_program_end(&p);
    endless(d, &p, "item 1: the run takes 2^46 clocks or rounds, or more");
    pimhw_program_init(&p); /* 2^44 rounds of 5 instructions that no channel of the loop does */
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 22), 2);
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 22), 3);
    for (int i = 0; i < 5; i++)
        pimhw_program_add(&p, &gb);
    pimhw_program_end(&p);
    pimhw_program_end(&p);
    CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &why), PIMHW_OK);
    CHECK_U(r.cycles, 0);
    for (int k = 0; k < 3; k++) { /* rounds that the request says, and the program again */
        pimhw_block block = {.rest = {1 << 27}};
        pimhw_request request = {.blocks = &block, .n_blocks = 1};
        pimhw_tail rest = {.rest = 1, .unit = 1};
        pimhw_operand o = {.base = UINT64_MAX};
        pimhw_program_init(&p);
        o.tail[0] = pimhw_program_tail(&p, &rest);
        uint8_t rounds_name = pimhw_program_operand(&p, &o);
        for (int i = 0; i < 3; i++)
            pimhw_program_loop(&p, k == 0 ? rounds_name : pimhw_program_const(&p, 1 << 9), 1);
        if (k == 2) pimhw_program_add(&p, &gb);
        for (int i = 0; i < 3; i++)
            pimhw_program_end(&p);
        request.repeats = k == 2 ? UINT32_MAX : 1;
        pimhw_status want = k == 1 ? PIMHW_OK : PIMHW_ERR_PROGRAM;
        CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), want);
        if (k != 1) CHECK_STR(why.text, "the run takes 2^46 clocks or rounds, or more");
    }
    for (uint32_t n = 0; n < 2; n++) { /* in a list, and each command told: nothing is skipped */
        const pimhw_block block = {.rest = {0}};
        const pimhw_request request = {.blocks = &block, .n_blocks = n};
        const pimhw_sink sink = {.command = see_nothing};
        const pimhw_item list = {.kind = PIMHW_LIST};
        pimhw_program_init(&p);
        pimhw_program_item(&p, &list);
        pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 27), 1);
        pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 27), 1);
        pimhw_program_add(&p, &gb);
        for (int i = 0; i < 3; i++)
            pimhw_program_end(&p);
        CHECK_U(pimhw_device_time(d, &r, &p, &request, &sink, &why),
                n ? PIMHW_ERR_PROGRAM : PIMHW_OK);
        if (n) CHECK_STR(why.text, "item 2: the run takes 2^46 clocks or rounds, or more");
    }
    pimhw_program_init(&p);
    pimhw_program_add(&p, &epu);
    endless(d, &p, "the run takes 2^46 clocks or rounds, or more");
    epu.flags = PIMHW_AWAITED;
    pimhw_program_init(&p);
    pimhw_program_add(&p, &epu);
    pimhw_program_add(&p, &wait);
    pimhw_program_add(&p, &gb);
    endless(d, &p, "the run takes 2^46 clocks or rounds, or more");
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &epu, &why), PIMHW_OK);
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "2^46 clocks");
    pimhw_sink sink = {hw_sink, &hw, NULL}; /* which would be told of 2^34 refreshes */
    CHECK_U(pimhw_device_begin(d, &sink), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &epu, &why), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &wait, &why), PIMHW_OK);
    CHECK_U(pimhw_device_submit(d, &gb, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "2^46 clocks");
    CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_ARGUMENT);
    pimhw_device_destroy(d);
}

/* Rounds that the request says, nested: what they come to does not wrap, and is refused at once,
 * the next time too; then the device is as it was. */
static void nested_rounds_of_a_request_end(void)
{
    static pimhw_program p;
    for (uint32_t controller = 0; controller < 4; controller++)
        for (int depth = 2; depth <= PIMHW_LOOPS; depth++) {
            pimhw_block block = {.rest = {(1 << 28) - 1}};
            const pimhw_request request = {.blocks = &block, .n_blocks = 1};
            const pimhw_tail rest = {.rest = 1};
            const pimhw_instruction mac = hw_mac(1, 64, 0, 0);
            pimhw_operand rounds = {.base = UINT64_MAX};
            pimhw_config c = hw_config("aimx", 1);
            pimhw_readings r;
            pimhw_device *d = NULL;
            c.controller = controller;
            pimhw_program_init(&p);
            rounds.tail[0] = pimhw_program_tail(&p, &rest);
            for (int i = 0; i < depth; i++)
                pimhw_program_loop(&p, pimhw_program_operand(&p, &rounds), 1);
            pimhw_program_add(&p, &mac);
            for (int i = 0; i < depth; i++)
                pimhw_program_end(&p);
            CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
            for (int k = 0; k < 2; k++) {
                CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_PROGRAM);
                CHECK_STR(why.text, "the run takes 2^46 clocks or rounds, or more");
            }
            block.rest[0] = 1;
            CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
            CHECK_U(r.commands[PIMHW_CMD_MAC16], 64);
            pimhw_device_destroy(d);
        }
}

/* What a controller held back until the end counts, too: a MAC that the hub keeps from beginning
 * until 100 clocks before 2^46, or 1,000. */
static void the_last_commands_may_be_too_late(void)
{
    for (uint32_t i = 0; i < 16; i++) {
        pimhw_config c = hw_config("aimx", 1);
        pimhw_instruction in[] = {hw_all(PIMHW_EPU, 1, 0), hw_all(PIMHW_EPU_WAIT, 1, 1),
                                  hw_mac(1, 64, 0, 0)};
        const uint64_t most = UINT64_C(1) << 46, left = i & 8 ? 100 : 1000;
        pimhw_readings r;
        pimhw_device *d = NULL;
        c.controller = i % 4;
        c.refresh = i >> 2 & 1;
        in[0].op_size = c.epu_lanes * (most - left);
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
        for (int k = 0; k < 3; k++)
            CHECK_U(pimhw_device_submit(d, &in[k], &why), PIMHW_OK);
        if (left == 1000) {
            CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_OK);
            CHECK(r.cycles < most && r.cycles > most - left);
        } else {
            CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_ERR_PROGRAM);
            CHECK_STR(why.text, "the run takes 2^46 clocks or rounds, or more");
        }
        pimhw_device_destroy(d);
    }
}

/* Rounds of a loop that no channel comes to do not count. */
static void loops_of_nobody_take_nothing(void)
{
    static pimhw_program p;
    pimhw_readings r;
    pimhw_device *d = device_of("aimx");
    pimhw_program_init(&p);
    for (int i = 0; i < 2; i++)
        pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 24), 1u << i);
    for (int i = 0; i < 2; i++)
        pimhw_program_end(&p);
    CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &why), PIMHW_OK);
    CHECK_U(r.cycles, 0);
    pimhw_device_destroy(d);
}

/* 64 columns a round, tCCD_S apart: so many loops, the outermost of the rounds that the request
 * says. */
static pimhw_status long_run(pimhw_readings *r, uint32_t tCCD_S, uint64_t outer, uint64_t inner)
{
    static pimhw_program p;
    const pimhw_block block = {.rest = {outer}};
    const pimhw_request request = {.blocks = &block, .n_blocks = 1};
    const pimhw_tail rest = {.rest = 1};
    const pimhw_instruction gb = hw_gb(1, 64, 0);
    pimhw_operand rounds = {.base = UINT64_MAX};
    pimhw_config c = hw_config("aimx", 1);
    pimhw_device *d = NULL;
    c.refresh = 0;
    c.tCCD_S = c.tCCD_L = tCCD_S;
    pimhw_program_init(&p);
    rounds.tail[0] = pimhw_program_tail(&p, &rest);
    pimhw_program_loop(&p, pimhw_program_operand(&p, &rounds), 1);
    for (int i = 0; i < 2; i++)
        pimhw_program_loop(&p, pimhw_program_const(&p, inner), 1);
    pimhw_program_add(&p, &gb);
    for (int i = 0; i < 3; i++)
        pimhw_program_end(&p);
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    pimhw_status status = pimhw_device_time(d, r, &p, &request, NULL, &why);
    pimhw_device_destroy(d);
    return status;
}

/* 2^45 clocks a round of the outermost loop; or 2^39, and all of them 2^64 and some. */
static void clocks_of_all_rounds_count(void)
{
    pimhw_readings r;
    CHECK_U(long_run(&r, 2, 1, 1 << 19), PIMHW_OK);
    CHECK(r.cycles >= UINT64_C(1) << 45 && r.cycles < (UINT64_C(1) << 45) + 100);
    for (uint64_t more = 0; more < 12; more++) {
        bool wraps = more > 0;
        uint64_t outer = wraps ? (1 << 25) + more : 2, inner = wraps ? 1 << 12 : 1 << 19;
        CHECK_U(long_run(&r, wraps ? 512 : 2, outer, inner), PIMHW_ERR_PROGRAM);
        CHECK_STR(why.text, "the run takes 2^46 clocks or rounds, or more");
    }
}

static void bad_requests_are_refused(void)
{
    pimhw_device *d = device_of("aimx");
    static pimhw_program p;
    pimhw_block block = {.rest = {5}};
    uint32_t begin[9] = {0}, order[1] = {0};
    pimhw_readings r;
    pimhw_instruction mac = hw_mac(1, 1, 0, 0);
    pimhw_program_init(&p);
    pimhw_program_add(&p, &mac);
    pimhw_request request = {.n_blocks = 1};
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "blocks");
    request.blocks = &block;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    CHECK_U(r.macs, 256);
    request.useful_macs = 256;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    CHECK_U(r.padding_macs, 0);
    request.useful_macs = 257;
    CHECK(pimhw_device_time(d, &r, &p, &request, NULL, &why) != PIMHW_OK);
    request.repeats = 2; /* of one run, still */
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_PROGRAM);
    CHECK_STR(why.text, "request: useful_macs 257, the program does 256");
    request.useful_macs = 256;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    CHECK_U(r.useful_macs, 512);
    CHECK_U(r.padding_macs, 0);
    request.useful_macs = request.repeats = 0;
    request.list_begin = begin;
    begin[8] = 1;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    request.order = order;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    order[0] = 1;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "order");
    for (uint32_t k = 0; k < 8; k++)
        begin[k] = 1; /* what is before the first list is in none */
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    memset(begin, 0, 8 * sizeof *begin);
    order[0] = 0;
    begin[3] = 1;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "list_begin");
    begin[3] = 0;
    const pimhw_instruction sync = hw_all(PIMHW_SYNC, 1, 1);
    pimhw_program_add(&p, &sync);
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "item 1: SYNC, where channels have lists of their own");
    for (uint32_t k = 0; k < 2; k++) {
        const pimhw_instruction of_all = hw_all(k ? PIMHW_EWADD : PIMHW_CFR, 1, 1);
        pimhw_program_init(&p);
        pimhw_program_add(&p, &of_all);
        CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_PROGRAM);
        CHECK_HAS(why.text, "where channels have lists of their own");
    }
    pimhw_program_init(&p);
    pimhw_program_add(&p, &mac);
    request.list_begin = NULL;
    request.chunks = order, request.n_chunks = 1;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "chunk_rows is 0");
    request.chunk_rows = 1, request.chunk_begin = begin; /* of the last channel: 1 */
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_OK);
    begin[8] = 2;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "chunk_begin of channel 8");
    begin[8] = 0, begin[2] = 1;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "chunk_begin of channel 3");
    request.n_chunks = UINT32_MAX;
    CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "4294967295 chunks");
    CHECK_U(pimhw_device_time(d, NULL, &p, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_time(d, &r, NULL, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_time(NULL, &r, &p, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_resolve(d, &p, NULL, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    pimhw_device_destroy(d);
}

/* 35 clocks of memory, then 100 of the EPU; or none, if its operations take no clocks */
static void epu_can_take_no_time(void)
{
    const pimhw_instruction gb = hw_gb(1, 1, 0), epu = hw_all(PIMHW_EPU, 1, 1600);
    const pimhw_instruction wait = hw_all(PIMHW_EPU_WAIT, 1, 1);
    for (int free = 0; free < 2; free++) {
        pimhw_config c = hw_config("aimx", 8);
        if (free) c.epu_ck_per_op = 0;
        HW_STREAM(c, gb, epu);
        CHECK_U(hw.r.epu_ck, free ? 0 : 100);
        CHECK_U(hw.r.cycles, free ? 35 : 135);
        HW_STREAM(c, gb, epu, wait, gb);
        CHECK_U(hw.r.cycles, free ? 38 : 138);
    }
}

static void emit_can_stop_a_program(void)
{
    pimhw_device *d = device_of("aimx");
    static pimhw_program p;
    uint64_t n = 0;
    pimhw_instruction gb = hw_gb(1, 1, 0);
    pimhw_program_init(&p);
    pimhw_program_loop(&p, pimhw_program_const(&p, UINT64_C(1) << 27), 1);
    pimhw_program_add(&p, &gb);
    pimhw_program_end(&p);
    CHECK_U(pimhw_device_resolve(d, &p, NULL, count, &n, &why), PIMHW_OK);
    CHECK_U(n, 3);
    pimhw_device_destroy(d);
}

static void text(const char *line, pimhw_instruction want)
{
    pimhw_instruction in;
    bool found = false;
    if (!CHECK_U(ex_aim_parse(line, &in, &found, &why), PIMHW_OK) || !CHECK(found))
        printf("  %s: %s\n", line, why.text);
    bool same = in.kind == want.kind && in.mask == want.mask && in.op_size == want.op_size &&
                in.row == want.row && in.column == want.column && in.tile == want.tile &&
                in.out == want.out && in.gpr == want.gpr && in.bank == want.bank &&
                in.aux == want.aux && in.flags == want.flags;
    if (!CHECK(same)) printf("  %s\n", line);
}

/* A line without the fields that AiM's text lacks. */
static void bare(const char *line, pimhw_instruction want)
{
    want.flags = PIMHW_TIMING_ONLY;
    text(line, want);
}

/* In the text bit 31 - i is channel i. */
static void text_lines_parse(void)
{
    bool found = true;
    pimhw_instruction in, untouched;
    bare("AiM WR_GB 64 0 0xffffffff\n", hw_gb(0xffffffff, 64, 0));
    bare("  AiM\tMAC_ABK 8 0x80000000 77 \r\n", hw_mac(1, 8, 77, 0));
    bare("AiM ISR_MAC_ABK 8 0x1 0x10", hw_mac(UINT64_C(1) << 31, 8, 16, 0));
    bare("AiM WR_BIAS 0 0xC0000000 # a comment", hw_bias(3, 0));
    text("R GPR 7 # out=1",
         (pimhw_instruction){.kind = PIMHW_GPR, .mask = 1, .op_size = 1, .gpr = 7});
    bare("AiM RD_MAC 0 4026531840", hw_rd(15, 0));
    text("AiM EOC", hw_all(PIMHW_EOC, 0xffffffff, 1));
    text("AiM SYNC", hw_all(PIMHW_SYNC, 0xffffffff, 1));
    pimhw_instruction full = hw_mac(1, 8, 77, 3);
    bare("AiM MAC_ABK 8 0x80000000 77 # tile=four out=", hw_mac(1, 8, 77, 0));
    full.column = 16, full.tile = 24;
    text("AiM MAC_ABK 8 0x80000000 77 # column=16 tile=24 out=3", full);
    memset(&in, 0x5a, sizeof in);
    untouched = in;
    static const char *const nothing[] = {"", "\n", "   \t\r\n", "# AiM EOC", "  # x"};
    for (int i = 0; i < 5; i++) {
        found = true;
        CHECK_U(ex_aim_parse(nothing[i], &in, &found, &why), PIMHW_OK);
        CHECK(!found);
    }
    static const char *const bad[] = {"MAC_ABK 8 0x1 1",
                                      "AiM",
                                      "AiM MAC_SBK 8 0x1 0",
                                      "AiM mac_abk 8 0x1 1",
                                      "AiM MAC_ABKX 8 0x1 1",
                                      "AiM MAC_ABK 8 0x1",
                                      "AiM MAC_ABK 8 0x1 1 2",
                                      "AiM MAC_ABK -8 0x1 1",
                                      "AiM MAC_ABK 8 0x1 1x",
                                      "AiM MAC_ABK 8 0x 1",
                                      "AiM MAC_ABK 8 0x100000000 1",
                                      "AiM MAC_ABK 99999999999999999999999 0x1 1",
                                      "AiM WR_GB 8 0x1",
                                      "AiM EOC 1",
                                      "W MEM 0 0",
                                      "R MEM 32 0 0",
                                      "R MEM 0 0 x",
                                      "W GPR",
                                      "W XYZ 0",
                                      "\xff\xfe",
                                      "AiM RD_MAC 0 0x1 # column=0 out=99999999999",
                                      "AiM RD_MAC 0 0x1 # out=1x",
                                      "AiM EPU 5",
                                      "AiM LOOP 5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&why, 0, sizeof why);
        if (!CHECK_U(ex_aim_parse(bad[i], &in, &found, &why), PIMHW_ERR_TEXT))
            printf("  %s\n", bad[i]);
        CHECK(strlen(why.text) > 5);
        CHECK_BYTES(&in, &untouched, sizeof in);
    }
    CHECK_U(ex_aim_parse(NULL, &in, &found, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(ex_aim_parse("AiM EOC", NULL, &found, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(ex_aim_parse("AiM EOC", &in, NULL, &why), PIMHW_ERR_ARGUMENT);
}

/* Lines that name no channel go to a device of any number of them, and cost the same. */
static void text_lines_without_channels_suit_any_device(void)
{
    static const char *const lines[] = {"W GPR 0",   "R GPR 1",  "W CFR 0 1", "AiM EWADD 4 0 1",
                                        "R CFR 2 0", "AiM SYNC", "AiM EOC"};
    for (uint32_t n = 1; n <= 33; n += 8) {
        pimhw_config c = hw_config("aim-gddr6", n);
        pimhw_readings r[2];
        pimhw_device *d = NULL;
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        for (int all = 0; all < 2; all++) {
            CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
            for (int i = 0; i < 7; i++) {
                pimhw_instruction in;
                bool found;
                CHECK_U(ex_aim_parse(lines[i], &in, &found, &why), PIMHW_OK);
                if (all) in.mask = (UINT64_C(1) << n) - 1;
                if (!CHECK_U(pimhw_device_submit(d, &in, &why), PIMHW_OK))
                    printf("  %u channels, %s: %s\n", n, lines[i], why.text);
            }
            CHECK_U(pimhw_device_finish(d, &r[all], &why), PIMHW_OK);
        }
        CHECK_U(r[0].cycles, r[1].cycles);
        CHECK_BYTES(r[0].commands, r[1].commands, sizeof r[0].commands);
        pimhw_device_destroy(d);
    }
}

/* What is written is read back; the hub's work is a comment. */
/* What each kind of line says, after its name; a kind without an entry has no line. */
static const struct {
    pimhw_kind kind;
    bool op_size, mask, bank, row, gpr, aux, comment, one_channel;
} says[] = {
    {PIMHW_WR_GB, true, true, false, false, true, false, true, false},
    {PIMHW_WR_BIAS, false, true, false, false, true, false, true, false},
    {PIMHW_MAC_ABK, true, true, false, true, false, false, true, false},
    {PIMHW_RD_MAC, false, true, false, false, true, false, true, false},
    {PIMHW_MAC_SBK, true, true, true, true, false, false, true, false},
    {PIMHW_EWMUL, true, true, false, true, false, false, true, false},
    {PIMHW_AF, false, true, false, false, false, false, true, false},
    {PIMHW_RD_AF, false, true, false, false, true, false, true, false},
    {PIMHW_COPY_BKGB, true, true, true, true, false, false, true, false},
    {PIMHW_COPY_GBBK, true, true, true, true, false, false, true, false},
    {PIMHW_WR_SBK, false, true, true, true, true, false, true, false},
    {PIMHW_RD_SBK, false, true, true, true, true, false, true, false},
    {PIMHW_WR_ABK, false, true, false, true, true, false, true, false},
    {PIMHW_MEM_WR, false, true, true, true, false, false, true, true},
    {PIMHW_MEM_RD, false, true, true, true, false, false, true, true},
    {PIMHW_EWADD, true, false, false, false, true, true, false, false},
    {PIMHW_GPR, false, false, false, false, true, false, false, false},
    {PIMHW_CFR, false, false, false, false, true, true, false, false},
    {PIMHW_SYNC, false, false, false, false, false, false, false, false},
    {PIMHW_EOC, false, false, false, false, false, false, false, false},
};

static void text_lines_come_back(void)
{
    check_rng rng = {5};
    char line[160];
    for (int i = 0; i < 5000; i++) {
        uint64_t k = rng_range(&rng, 0, sizeof says / sizeof *says - 1);
        pimhw_instruction in = {.kind = says[k].kind, .op_size = 1, .mask = 0xffffffff};
        if (says[k].aux || in.kind == PIMHW_GPR) in.mask = 1; /* of the hub: any channel */
        if (says[k].mask) in.mask = rng_range(&rng, 1, 0xffffffff);
        if (says[k].one_channel) in.mask = UINT64_C(1) << rng_range(&rng, 0, 31);
        if (says[k].op_size) in.op_size = rng_range(&rng, 1, UINT32_MAX);
        if (says[k].bank) in.bank = (uint32_t)rng_u64(&rng);
        if (says[k].row) in.row = (uint32_t)rng_u64(&rng);
        if (says[k].gpr || says[k].comment) in.gpr = (uint32_t)rng_u64(&rng);
        if (says[k].aux || says[k].comment) in.aux = (uint32_t)rng_u64(&rng);
        if (says[k].comment) in.column = (uint32_t)rng_u64(&rng);
        if (says[k].comment) in.tile = (uint32_t)rng_u64(&rng);
        if (says[k].comment) in.out = (uint32_t)rng_u64(&rng);
        if (says[k].comment) in.flags = rng_range(&rng, 0, 1) ? PIMHW_DISTINCT : 0;
        if (in.kind == PIMHW_GPR || in.kind == PIMHW_CFR) in.out = rng_range(&rng, 0, 1) == 1;
        CHECK_U(ex_aim_format(&in, line, &why), PIMHW_OK);
        CHECK(strlen(line) < sizeof line);
        text(line, in);
    }
    pimhw_instruction in = hw_all(PIMHW_EPU, 1, 4096), back;
    bool found = true;
    CHECK_U(ex_aim_format(&in, line, &why), PIMHW_OK);
    CHECK_HAS(line, "4096");
    CHECK_U(ex_aim_parse(line, &back, &found, &why), PIMHW_OK);
    CHECK(!found);
    in = hw_gb(UINT64_C(1) << 32, 1, 0);
    CHECK_U(ex_aim_format(&in, line, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "32");
    CHECK_U(ex_aim_format(NULL, line, &why), PIMHW_ERR_ARGUMENT);
    in.kind = PIMHW_LOOP;
    CHECK_U(ex_aim_format(&in, line, &why), PIMHW_ERR_ARGUMENT);
}

/* Lines of AiM alone are timed; units execute them if they say all. */
static void text_lines_without_data_are_timed_alone(void)
{
    static const char *const lines[2][4] = {{"AiM WR_GB 4 0 0x80000000", "AiM WR_BIAS 0 0x80000000",
                                             "AiM MAC_ABK 4 0x80000000 0",
                                             "AiM RD_MAC 9 0x80000000"},
                                            {"AiM WR_GB 4 0 0x80000000 # column=0 tile=0 out=0",
                                             "AiM WR_BIAS 0 0x80000000 # column=0 tile=0 out=0",
                                             "AiM MAC_ABK 4 0x80000000 0 # column=0 tile=0 out=0",
                                             "AiM RD_MAC 9 0x80000000 # column=0 tile=0 out=0"}};
    pimhw_config c = hw_config("aim-gddr6", 1);
    pimhw_readings r[2];
    pimhw_device *d = NULL;
    pimhw_memory *m = NULL;
    pimhw_units *u = NULL;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_create(&m, &c, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
    CHECK_U(pimhw_units_create(&u, &c, m, &why), PIMHW_OK);
    for (int told = 0; told < 2; told++) {
        pimhw_program p;
        pimhw_program_init(&p);
        for (int i = 0; i < 4; i++) {
            pimhw_instruction in;
            bool found;
            CHECK_U(ex_aim_parse(lines[told][i], &in, &found, &why), PIMHW_OK);
            pimhw_program_add(&p, &in);
        }
        memset(&why, 0, sizeof why);
        CHECK_U(pimhw_device_time(d, &r[0], &p, NULL, NULL, &why), PIMHW_OK);
        CHECK_U(pimhw_device_run(d, &r[1], u, &p, NULL, NULL, &why),
                told ? PIMHW_OK : PIMHW_ERR_PROGRAM);
        if (!told) CHECK_HAS(why.text, "timing only");
    }
    CHECK_U(r[1].cycles, r[0].cycles);
    pimhw_units_destroy(u);
    pimhw_memory_destroy(m);
    pimhw_device_destroy(d);
}

/* Any bytes are a line or an error. */
static void random_lines_do_no_harm(void)
{
    static const char words[][12] = {
        "AiM", "MAC_ABK", "WR_GB", "0x", "0xffffffff",  "8",    " ",     "\t",
        "#",   "out=",    "EOC",   "-",  "99999999999", "ISR_", "tile=1"};
    check_rng rng = {6};
    for (int i = 0; i < 20000; i++) {
        char line[128] = "";
        pimhw_instruction in;
        bool found;
        for (uint64_t n = rng_range(&rng, 0, 8); n--;) {
            strcat(line, words[rng_range(&rng, 0, 14)]);
            if (rng_range(&rng, 0, 3)) strcat(line, " ");
        }
        pimhw_status status = ex_aim_parse(line, &in, &found, &why);
        CHECK(status == PIMHW_OK || status == PIMHW_ERR_TEXT);
    }
}

/* A SYNC and an EOC are for all channels, by whatever way they come and whatever their masks. */
static void sync_counts_for_all_channels(void)
{
    pimhw_config c = hw_config("aim-gddr6", 8);
    pimhw_instruction in[2] = {{.kind = PIMHW_SYNC, .mask = 1}, {.kind = PIMHW_EOC}};
    pimhw_readings sent, timed;
    pimhw_program p;
    pimhw_device *d = NULL;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    pimhw_program_init(&p);
    for (int i = 0; i < 2; i++) {
        CHECK_U(pimhw_device_submit(d, &in[i], &why), PIMHW_OK);
        in[i].mask = 255; /* which a program wants */
        pimhw_program_add(&p, &in[i]);
    }
    CHECK_U(pimhw_device_finish(d, &sent, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(d, &timed, &p, NULL, NULL, &why), PIMHW_OK);
    CHECK_U(sent.n_instructions, 16);
    CHECK_U(timed.n_instructions, 16);
    pimhw_device_destroy(d);
}

/* The hub does an instruction once, however many channels its mask has, walked or skipped. */
static void the_hub_counts_once(void)
{
    static const pimhw_kind kinds[] = {PIMHW_GPR, PIMHW_CFR, PIMHW_EWADD, PIMHW_EPU,
                                       PIMHW_EPU_WAIT};
    static pimhw_program p;
    pimhw_block block = {.rest = {0}};
    uint32_t order[] = {0, 0, 0}, begin[] = {0, 1, 2, 3};
    const pimhw_request lists = {
        .blocks = &block, .n_blocks = 1, .list_begin = begin, .order = order};
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        pimhw_config c = hw_config(i % 2 ? "aimx" : "aim-gddr6", 3);
        pimhw_instruction in = hw_all(kinds[i / 2], 7, 1);
        const pimhw_instruction gb = hw_gb(7, 1, 0);
        bool alone = in.kind == PIMHW_CFR || in.kind == PIMHW_EWADD;
        pimhw_sink sink = {hw_sink, &hw, NULL};
        pimhw_readings r;
        pimhw_device *d = NULL;
        in.flags = 0;
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
        CHECK_U(pimhw_device_submit(d, &in, &why), PIMHW_OK);
        CHECK_U(pimhw_device_finish(d, &r, &why), PIMHW_OK);
        CHECK_U(r.n_instructions, 1);
        pimhw_program_init(&p);
        pimhw_program_loop(&p, pimhw_program_const(&p, 200), 7);
        pimhw_program_add(&p, &gb);
        pimhw_program_add(&p, &in);
        pimhw_program_end(&p);
        CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &why), PIMHW_OK);
        CHECK_U(r.n_instructions, 200 * 4);
        hw_begin(&c);
        CHECK_U(pimhw_device_time(d, &r, &p, NULL, &sink, &why), PIMHW_OK);
        CHECK_U(r.n_instructions, 200 * 4);
        if (!alone && i % 2) { /* every channel has a stream of its own */
            CHECK_U(pimhw_device_time(d, &r, &p, &lists, NULL, &why), PIMHW_OK);
            CHECK_U(r.n_instructions, 200 * 6);
        }
        pimhw_device_destroy(d);
    }
}

/* What a program can come to is not more than what its bounds say: it would not be judged. */
static void bounds_are_not_below_what_comes(void)
{
    static pimhw_program p;
    for (int i = 0; i < 4; i++) {
        pimhw_config c = hw_config("aimx", 1);
        const uint32_t columns = pimhw_config_columns(&c);
        pimhw_block block = {.row_base = {0, UINT32_MAX}};
        pimhw_request request = {.blocks = &block, .n_blocks = 1};
        pimhw_device *d = NULL;
        pimhw_readings r;
        pimhw_operand some = {.base = columns}, from = {.base = columns - 4}, rounds = {.base = 99},
                      tile = {.base = c.in_entries - 6, .step = {6}};
        const pimhw_tail wide = {.base = 2, .mul = 4}, left = {.base = 5, .unit = 4};
        pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1}, list = {.kind = PIMHW_LIST};
        pimhw_program_init(&p);
        some.tail[0] = pimhw_program_tail(&p, &wide);
        rounds.tail[0] = pimhw_program_tail(&p, &left);
        mac.op_size = pimhw_program_const(&p, 1);
        if (i == 0) /* 8 columns from the last 4 on */
            mac.op_size = pimhw_program_operand(&p, &some),
            mac.column = pimhw_program_operand(&p, &from);
        if (i == 1 || i == 2) mac.tile = pimhw_program_operand(&p, &tile);
        if (i == 3) mac.space = 1, mac.row = pimhw_program_const(&p, 1);
        list.aux = pimhw_program_const(&p, i == 2);
        if (i == 2) pimhw_program_item(&p, &list); /* of a round more than blocks */
        if (i == 1) pimhw_program_loop(&p, pimhw_program_operand(&p, &rounds), 1);
        if (i == 3) pimhw_program_loop(&p, pimhw_program_const(&p, 2), 1);
        pimhw_program_item(&p, &mac);
        if (i > 0) pimhw_program_end(&p);
        CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
        CHECK_U(pimhw_device_time(d, &r, &p, &request, NULL, &why), PIMHW_ERR_PROGRAM);
        pimhw_device_destroy(d);
    }
}

static void causes_name_what_is_null(void)
{
    pimhw_config c = hw_config("aimx", 2);
    pimhw_readings r;
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_device_create(NULL, &c, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_device_time(NULL, &r, NULL, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_program_check(NULL, &c, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_program_unroll(NULL, NULL, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_units_end(NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    memset(&why, 0, sizeof why);
    CHECK_U(pimhw_device_run(NULL, &r, NULL, NULL, NULL, NULL, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "NULL");
    const pimhw_da at = {0};
    pimhw_memory *memory;
    CHECK_U(pimhw_memory_read(NULL, &r, &at, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "memory is NULL");
    CHECK_U(pimhw_memory_create(&memory, &c, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_read(memory, NULL, &at, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "bytes is NULL");
    CHECK_U(pimhw_memory_write(memory, &at, NULL, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "bytes is NULL");
    pimhw_memory_destroy(memory);
}

/* What no clock hangs on is judged all the same, with a sink and without. */
static void operands_no_clock_hangs_on_are_judged(void)
{
    pimhw_config c;
    pimhw_device *d;
    pimhw_readings r;
    pimhw_program p;
    pimhw_sink sink;
    memset(&sink, 0, sizeof sink);
    sink.command = see_nothing;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.n_channels = 1;
    CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK);
    for (int grows = 0; grows < 2; grows++) {
        pimhw_tail five;
        pimhw_operand gpr;
        pimhw_item item;
        memset(&five, 0, sizeof five);
        memset(&gpr, 0, sizeof gpr);
        memset(&item, 0, sizeof item);
        pimhw_program_init(&p);
        five.base = 5;
        gpr.base = grows ? 1 : UINT64_C(1) << 32; /* which is at most 5 */
        if (grows) gpr.step[0] = UINT32_MAX;      /* 2^32 in round 1 */
        if (!grows) gpr.tail[0] = pimhw_program_tail(&p, &five);
        item.kind = PIMHW_RD_MAC, item.mask = 1;
        item.gpr = pimhw_program_operand(&p, &gpr);
        pimhw_program_loop(&p, pimhw_program_const(&p, 3), 1);
        pimhw_program_item(&p, &item);
        pimhw_program_end(&p);
        for (int looks = 0; looks < 2; looks++) {
            pimhw_status status = pimhw_device_time(d, &r, &p, NULL, looks ? &sink : NULL, &why);
            CHECK_U(status, grows ? PIMHW_ERR_PROGRAM : PIMHW_OK);
            if (grows) CHECK_HAS(why.text, "item 1");
        }
    }
    pimhw_device_destroy(d);
}

static bool see_one(void *user, const pimhw_instruction *in)
{
    (void)user;
    (void)in;
    return true;
}

/* Item 2 or 1 asks for an output there is not, or a row; nothing that is not judged hides it. */
static void out_of_bounds_program(pimhw_program *p, pimhw_block *block, int sort)
{
    pimhw_operand rounds = {.base = 1000}, out = {.step = {1, 1}}, row = {.base = UINT64_MAX};
    pimhw_tail tail = {.rest = 1, .step = {0, 1}}; /* of the outer loop, by the inner one's index */
    pimhw_item mac = {.kind = PIMHW_MAC_ABK, .mask = 1}, list = {.kind = PIMHW_LIST, .mask = 1};
    memset(block, 0, sizeof *block);
    pimhw_program_init(p);
    mac.op_size = pimhw_program_const(p, 1);
    if (sort == 0) {
        block->rest[0] = 2;
        rounds.tail[0] = pimhw_program_tail(p, &tail);
        mac.out = pimhw_program_operand(p, &out);
        pimhw_program_loop(p, pimhw_program_operand(p, &rounds), 1);
        pimhw_program_loop(p, pimhw_program_const(p, 60), 1);
    } else if (sort == 1) {
        block->row_base[0] = 5;
        mac.row = pimhw_program_operand(p, &row);
        pimhw_program_loop(p, pimhw_program_const(p, 4), 1);
    } else {
        out.step[1] = 0;
        mac.out = pimhw_program_operand(p, &out);
        list.op_size = pimhw_program_const(p, UINT64_MAX); /* not used */
        list.aux = pimhw_program_const(p, 2);
        pimhw_program_item(p, &list);
        pimhw_program_loop(p, pimhw_program_const(p, 3), 1);
    }
    pimhw_program_item(p, &mac);
    pimhw_program_end(p);
    if (sort != 1) pimhw_program_end(p);
}

/* Bounds of operands are those of every round, so that only what is safe goes unjudged. */
static void operands_out_of_bounds_are_refused(void)
{
    static pimhw_block blocks[60];
    pimhw_sink sink = {.command = see_nothing};
    pimhw_readings r;
    pimhw_program p;
    for (uint32_t i = 0; i < 3 * 4; i++) {
        pimhw_request request = {.blocks = blocks, .n_blocks = i % 3 == 2 ? 60 : 1};
        pimhw_config c;
        pimhw_cause what = {""};
        pimhw_device *d;
        CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
        c.controller = (pimhw_controller)(i / 3);
        if (!CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK)) return;
        out_of_bounds_program(&p, &blocks[0], (int)(i % 3));
        for (uint32_t k = 1; k < 60; k++)
            blocks[k] = blocks[0];
        CHECK_U(pimhw_device_resolve(d, &p, &request, see_one, NULL, &what), PIMHW_ERR_PROGRAM);
        CHECK_HAS(what.text, i % 3 == 1 ? "an operand, or a row with its row_base, of 2^32"
                                        : "MAC_ABK: out is");
        for (int looks = 0; looks < 2; looks++) {
            CHECK_U(pimhw_device_time(d, &r, &p, &request, looks ? &sink : NULL, &why),
                    PIMHW_ERR_PROGRAM);
            if (!CHECK(strcmp(why.text, what.text) == 0)) printf("  %s, %s\n", why.text, what.text);
        }
        pimhw_device_destroy(d);
    }
}

/* A device that is called by what it calls, and a program to call it with. */
typedef struct caller {
    pimhw_device *device;
    pimhw_program *program;
    uint32_t n_calls;
    pimhw_units *units;
} caller;

static void call_back(caller *c)
{
    pimhw_cause what = {""};
    pimhw_readings r;
    pimhw_instruction in;
    memset(&in, 0, sizeof in);
    in.kind = PIMHW_SYNC;
    in.mask = 1;
    CHECK_U(pimhw_device_begin(c->device, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_submit(c->device, &in, &what), PIMHW_ERR_ARGUMENT);
    CHECK(strstr(what.text, "called by what it calls") != NULL);
    CHECK_U(pimhw_device_finish(c->device, &r, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_time(c->device, &r, c->program, NULL, NULL, NULL), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_device_resolve(c->device, c->program, NULL, see_one, NULL, NULL),
            PIMHW_ERR_ARGUMENT);
    if (c->units)
        CHECK_U(pimhw_device_run(c->device, &r, c->units, c->program, NULL, NULL, NULL),
                PIMHW_ERR_ARGUMENT);
    c->n_calls++;
}

static void call_back_for_event(void *user, const pimhw_event *event)
{
    (void)event;
    call_back((caller *)user);
}

static void call_back_for_hub(void *user, const pimhw_instruction *in)
{
    (void)in;
    call_back((caller *)user);
}

static void call_back_for_input(void *user, const pimhw_event *event, uint16_t *lanes)
{
    (void)event;
    (void)lanes;
    call_back((caller *)user);
}

static bool call_back_to_go_on(void *user, const pimhw_instruction *in)
{
    (void)in;
    call_back((caller *)user);
    return true;
}

static void what_a_device_calls_does_not_call_it(void)
{
    static pimhw_program p;
    pimhw_readings alone, watched;
    pimhw_instruction in;
    caller c = {device_of("aim-gddr6"), &p, 0, NULL};
    pimhw_sink sink = {call_back_for_event, &c, call_back_for_hub};
    pimhw_hub hub = {&c, call_back_for_input, NULL, NULL};
    pimhw_config config = hw_config("aim-gddr6", 8);
    pimhw_memory *memory = NULL;
    pimhw_program_init(&p);
    const pimhw_item cfr = {.kind = PIMHW_CFR, .mask = 255};
    pimhw_item write = {.kind = PIMHW_WR_GB, .mask = 255};
    write.op_size = pimhw_program_const(&p, 4);
    pimhw_program_item(&p, &cfr);
    pimhw_program_item(&p, &write);
    CHECK_U(pimhw_device_time(c.device, &alone, &p, NULL, NULL, &why), PIMHW_OK);
    CHECK_U(pimhw_device_time(c.device, &watched, &p, NULL, &sink, &why), PIMHW_OK);
    CHECK_U(watched.cycles, alone.cycles);
    CHECK_U(c.n_calls, 1 + 5 * 8); /* the mode, then four columns, in each channel */
    CHECK_U(pimhw_device_resolve(c.device, &p, NULL, call_back_to_go_on, &c, &why), PIMHW_OK);
    CHECK_U(c.n_calls, 1 + 5 * 8 + 2);
    memset(&in, 0, sizeof in);
    in.kind = PIMHW_WR_GB, in.mask = 1, in.op_size = 1;
    CHECK_U(pimhw_device_begin(c.device, &sink), PIMHW_OK);
    CHECK_U(pimhw_device_submit(c.device, &in, &why), PIMHW_OK);
    CHECK_U(pimhw_device_finish(c.device, &watched, &why), PIMHW_OK);
    CHECK_U(c.n_calls, 1 + 5 * 8 + 2 + 2);
    CHECK_U(pimhw_memory_create(&memory, &config, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
    CHECK_U(pimhw_units_create(&c.units, &config, memory, &why), PIMHW_OK);
    c.n_calls = 0;
    CHECK_U(pimhw_device_run(c.device, &watched, c.units, &p, NULL, &hub, &why), PIMHW_OK);
    CHECK_U(c.n_calls, 4 * 8);
    pimhw_units_destroy(c.units);
    pimhw_memory_destroy(memory);
    pimhw_device_destroy(c.device);
}

/* What resolve hands out is what is timed, and its causes are those. */
static void resolve_refuses_what_time_refuses(void)
{
    const pimhw_instruction ends[2] = {{.kind = PIMHW_EOC, .mask = 1},
                                       {.kind = PIMHW_RD_MAC, .mask = 1}};
    const pimhw_instruction far = {.kind = PIMHW_RD_MAC, .mask = 1, .out = 9};
    pimhw_config c;
    pimhw_device *d;
    pimhw_readings r;
    pimhw_program p;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    if (!CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK)) return;
    for (int sort = 0; sort < 2; sort++) {
        pimhw_cause what = {""};
        pimhw_program_init(&p);
        for (int i = 0; i < (sort ? 1 : 2); i++)
            pimhw_program_add(&p, sort ? &far : &ends[i]);
        CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &what), PIMHW_ERR_PROGRAM);
        CHECK_U(pimhw_device_resolve(d, &p, NULL, see_one, NULL, &why), PIMHW_ERR_PROGRAM);
        CHECK(strcmp(why.text, what.text) == 0);
        CHECK_HAS(why.text, sort ? "item 0" : "item 1");
    }
    pimhw_device_destroy(d);
}

/* Limits that hold one by one and not together. */
static void numbers_that_meet_are_judged_together(void)
{
    pimhw_config c;
    pimhw_geometry g = {1024, 1024, 1024, 1u << 28, 1u << 20, 64, 1, 1u << 20, UINT64_C(1) << 50};
    pimhw_da da;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.tRRD_L = 100000; /* a refresh falls between every ACT and what it is for */
    refused(&c, "tRRD_L");
    CHECK_U(pimhw_map_da(&da, &g, 0, 0, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "n_rows");
    pimhw_instruction in;
    pimhw_program p;
    memset(&in, 0, sizeof in);
    in.kind = (pimhw_kind)(256 + PIMHW_MAC_ABK), in.mask = 1, in.op_size = 1;
    pimhw_program_init(&p);
    pimhw_program_add(&p, &in);
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    if (sizeof in.kind > 1) /* of a byte, it is MAC_ABK */
        CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_U(pimhw_config_init(&c, "pam-ssd", NULL), PIMHW_OK);
    c.flash_page_bytes = 1, c.flash_MBps = UINT32_MAX, c.flash_tR_ns = 0;
    CHECK_U(pimhw_flash_read_ps(&c, 1), 0);
}

/* 2^49 MACs, each of 64 banks of 1,024 lanes. */
static void more_products_than_64_bits_count_are_the_largest_number(void)
{
    static pimhw_program p;
    pimhw_instruction mac = {.kind = PIMHW_MAC_ABK, .mask = UINT64_MAX, .op_size = 64};
    pimhw_config c;
    pimhw_readings r;
    CHECK_U(pimhw_config_init(&c, "aim-gddr6", NULL), PIMHW_OK);
    c.n_channels = 64, c.n_bank_groups = 8, c.n_group_banks = 8, c.element_bytes = 1;
    c.column_bytes = 1024, c.row_bytes = 64 * c.column_bytes, c.refresh = 0;
    pimhw_device *d = NULL;
    if (!CHECK_U(pimhw_device_create(&d, &c, &why), PIMHW_OK)) return;
    pimhw_program_init(&p);
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 27), UINT64_MAX);
    pimhw_program_loop(&p, pimhw_program_const(&p, 1 << 10), UINT64_MAX);
    pimhw_program_add(&p, &mac);
    pimhw_program_end(&p);
    pimhw_program_end(&p);
    if (!CHECK_U(pimhw_device_time(d, &r, &p, NULL, NULL, &why), PIMHW_OK)) puts(why.text);
    CHECK_U(r.commands[PIMHW_CMD_MAC16], UINT64_C(1) << 49);
    CHECK_U(r.macs, UINT64_MAX);
    CHECK_U(r.padding_macs, UINT64_MAX);
    pimhw_device_destroy(d);
}

/* Every pointer of a call that has a status, but those that may be NULL. */
static void every_null_is_refused(void)
{
    static pimhw_program p;
    pimhw_config c;
    const pimhw_chunk chunk = PIMHW_CHUNK_AIM;
    pimhw_geometry g;
    pimhw_placement place;
    pimhw_da da = {0};
    pimhw_memory *m = NULL, *none;
    pimhw_device *d = NULL;
    pimhw_units *units = NULL;
    pimhw_readings r;
    pimhw_instruction in = {0};
    void *pointer;
    uint64_t n;
    uint32_t value;
    float samples[1] = {0};
    char bytes[4] = {0};
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    CHECK_U(pimhw_geometry_init(&g, &c, chunk, NULL), PIMHW_OK);
    CHECK_U(pimhw_memory_create(&m, &c, chunk, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_create(&d, &c, NULL), PIMHW_OK);
    CHECK_U(pimhw_units_create(&units, &c, m, NULL), PIMHW_OK);
    CHECK_U(pimhw_device_begin(d, NULL), PIMHW_OK);
    pimhw_program_init(&p);
    const pimhw_status refused[] = {
        pimhw_config_init(NULL, "aimx", NULL),
        pimhw_config_set(NULL, "tRP", 1, NULL),
        pimhw_config_get(NULL, "tRP", &value, NULL),
        pimhw_config_get(&c, "tRP", NULL, NULL),
        pimhw_config_check(NULL, NULL),
        pimhw_geometry_init(NULL, &c, chunk, NULL),
        pimhw_geometry_init(&g, NULL, chunk, NULL),
        pimhw_map_ids(NULL, &value, &value, NULL),
        pimhw_map_select(NULL, &g, 4, 4, 2, NULL),
        pimhw_map_select(&place, NULL, 4, 4, 2, NULL),
        pimhw_map_da(NULL, &g, 0, 0, NULL),
        pimhw_map_da(&da, NULL, 0, 0, NULL),
        pimhw_map_pa(NULL, &g, 0, &da, NULL),
        pimhw_map_pa(&n, NULL, 0, &da, NULL),
        pimhw_map_pa(&n, &g, 0, NULL, NULL),
        pimhw_program_check(NULL, &c, NULL),
        pimhw_program_check(&p, NULL, NULL),
        pimhw_memory_create(NULL, &c, chunk, NULL),
        pimhw_memory_create(&none, NULL, chunk, NULL),
        pimhw_memory_read(NULL, bytes, &da, 4, NULL),
        pimhw_memory_read(m, NULL, &da, 4, NULL),
        pimhw_memory_read(m, bytes, NULL, 4, NULL),
        pimhw_memory_write(NULL, &da, bytes, 4, NULL),
        pimhw_memory_write(m, NULL, bytes, 4, NULL),
        pimhw_memory_write(m, &da, NULL, 4, NULL),
        pimhw_alloc(NULL, &pointer, 64, 0, NULL),
        pimhw_alloc(m, NULL, 64, 0, NULL),
        pimhw_free(NULL, bytes, NULL),
        pimhw_memory_find(NULL, &n, &value, bytes, NULL),
        pimhw_device_create(NULL, &c, NULL),
        pimhw_device_begin(NULL, NULL),
        pimhw_device_submit(NULL, &in, NULL),
        pimhw_device_submit(d, NULL, NULL),
        pimhw_device_finish(NULL, &r, NULL),
        pimhw_device_finish(d, NULL, NULL),
        pimhw_device_time(NULL, &r, &p, NULL, NULL, NULL),
        pimhw_device_time(d, NULL, &p, NULL, NULL, NULL),
        pimhw_device_time(d, &r, NULL, NULL, NULL, NULL),
        pimhw_units_create(NULL, &c, m, NULL),
        pimhw_units_af(NULL, 0, samples),
        pimhw_units_af(units, 0, NULL),
        pimhw_units_end(NULL, NULL),
        pimhw_device_run(NULL, &r, units, &p, NULL, NULL, NULL),
        pimhw_device_run(d, NULL, units, &p, NULL, NULL, NULL),
        pimhw_device_run(d, &r, NULL, &p, NULL, NULL, NULL),
        pimhw_device_run(d, &r, units, NULL, NULL, NULL, NULL),
        pimhw_device_resolve(NULL, &p, NULL, see_one, NULL, NULL),
        pimhw_device_resolve(d, NULL, NULL, see_one, NULL, NULL),
        pimhw_device_resolve(d, &p, NULL, NULL, NULL, NULL),
        pimhw_program_unroll(NULL, &n, &p, NULL, NULL),
        pimhw_program_unroll(d, NULL, &p, NULL, NULL),
        pimhw_program_unroll(d, &n, NULL, NULL, NULL),
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (!CHECK_U(refused[i], PIMHW_ERR_ARGUMENT)) printf("  call %u\n", (unsigned)i);
    CHECK_U(pimhw_config_set(&c, NULL, 1, NULL), PIMHW_ERR_NAME);
    CHECK_U(pimhw_config_get(&c, NULL, &value, NULL), PIMHW_ERR_NAME);
    CHECK_U(pimhw_free(m, NULL, NULL), PIMHW_ERR_ADDRESS);
    CHECK_U(pimhw_config_init(&c, NULL, NULL), PIMHW_ERR_NAME);
    pimhw_units_destroy(units);
    pimhw_device_destroy(d);
    pimhw_memory_destroy(m);
    pimhw_units_destroy(NULL);
    pimhw_device_destroy(NULL);
    pimhw_memory_destroy(NULL);
}

int main(void)
{
    RUN(operands_no_clock_hangs_on_are_judged);
    RUN(operands_out_of_bounds_are_refused);
    RUN(resolve_refuses_what_time_refuses);
    RUN(what_a_device_calls_does_not_call_it);
    RUN(numbers_that_meet_are_judged_together);
    RUN(more_products_than_64_bits_count_are_the_largest_number);
    RUN(statuses_have_words);
    RUN(causes_are_cut_not_overrun);
    RUN(presets_are_known_by_name);
    RUN(assumed_energies_are_by_the_byte);
    RUN(presets_have_the_numbers_of_their_sources);
    RUN(sources_are_named_for_what_they_print);
    RUN(the_hub_of_cent_is_the_published_one);
    RUN(presets_hold_what_their_sources_say);
    RUN(energies_are_those_of_their_sources);
    RUN(link_energy_goes_by_bytes);
    RUN(fields_are_set_by_name);
    RUN(bad_fields_are_named);
    RUN(refreshes_leave_time_for_every_row);
    RUN(bounds_of_fields_are_met);
    RUN(memory_comes_from_the_allocator);
    RUN(a_device_is_one_piece_of_memory);
    RUN(a_device_forgets_the_one_before);
    RUN(bad_instructions_are_refused);
    RUN(fields_of_no_use_are_not_looked_at);
    RUN(streams_have_an_order);
    RUN(sync_counts_for_all_channels);
    RUN(the_hub_counts_once);
    RUN(bounds_are_not_below_what_comes);
    RUN(causes_name_what_is_null);
    RUN(bad_programs_are_refused);
    RUN(the_first_fault_of_a_builder_stays);
    RUN(builders_keep_what_they_are_given);
    RUN(operands_are_judged);
    RUN(structures_are_judged);
    RUN(items_are_judged);
    RUN(programs_of_no_builder_are_refused);
    RUN(endless_programs_are_refused);
    RUN(nested_rounds_of_a_request_end);
    RUN(the_last_commands_may_be_too_late);
    RUN(loops_of_nobody_take_nothing);
    RUN(clocks_of_all_rounds_count);
    RUN(bad_requests_are_refused);
    RUN(epu_can_take_no_time);
    RUN(emit_can_stop_a_program);
    RUN(text_lines_parse);
    RUN(text_lines_come_back);
    RUN(text_lines_without_channels_suit_any_device);
    RUN(text_lines_without_data_are_timed_alone);
    RUN(random_lines_do_no_harm);
    RUN(every_null_is_refused);
    return check_end();
}
