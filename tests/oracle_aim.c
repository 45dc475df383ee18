/* The public AiM simulator's cycles and command counts, to the clock: its GEMV, QK and SV streams
 * and micro traces, against its printed rows (../shared/oracle/aim.csv, or argv[1]) and against
 * closed forms and counts worked out here. Every listing of moderate length goes to the checker. */
#define PIMHW_IMPLEMENTATION
#include "checker.h"

enum { CHECKED_COMMANDS = 2000000 };

static const char *csv_path = "../shared/oracle/aim.csv";

/* A device under test and what the stream must have cost in commands. */
typedef struct stream {
    pimhw_device *device; /* NULL: only count */
    bool failed;
    uint64_t count[PIMHW_N_COMMANDS], n_commands;
    uint32_t row[32]; /* + 1; 0: closed */
    bool register_mode[32];
} stream;

static void mode(stream *s, unsigned channel, bool register_mode)
{
    s->count[PIMHW_CMD_TMOD] += s->register_mode[channel] != register_mode;
    s->register_mode[channel] = register_mode;
}

/* text_mask as in a trace: bit 31 - i is channel i. */
static void send(stream *s, pimhw_kind kind, uint64_t op_size, uint32_t text_mask, uint64_t row)
{
    pimhw_instruction in = {.kind = kind, .op_size = op_size, .row = (uint32_t)row};
    for (unsigned i = 0; i < 32; i++) {
        if (!(text_mask >> (31 - i) & 1)) continue;
        in.mask |= UINT64_C(1) << i;
        if (kind == PIMHW_SYNC || kind == PIMHW_EOC) continue;
        mode(s, i, kind != PIMHW_MAC_ABK);
        if (kind == PIMHW_WR_GB) s->count[PIMHW_CMD_WRGB] += op_size;
        if (kind == PIMHW_WR_BIAS) s->count[PIMHW_CMD_WRMAC16]++;
        if (kind == PIMHW_RD_MAC) s->count[PIMHW_CMD_RDMAC16]++;
        if (kind != PIMHW_MAC_ABK) continue;
        s->count[PIMHW_CMD_PREA] += s->row[i] && s->row[i] != row + 1;
        s->count[PIMHW_CMD_ACT16] += s->row[i] != row + 1;
        s->count[PIMHW_CMD_MAC16] += op_size;
        s->row[i] = (uint32_t)row + 1;
    }
    if (kind == PIMHW_WR_BIAS || kind == PIMHW_RD_MAC) in.op_size = 1;
    if (s->device && !s->failed) {
        pimhw_cause why = {""};
        s->failed = !CHECK_U(pimhw_device_submit(s->device, &in, &why), PIMHW_OK);
        if (s->failed) printf("  %s\n", why.text);
    }
}

static uint64_t up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Channels 0 .. n - 1, and (in the GEMV streams) the last n. */
static uint32_t first_channels(uint64_t n)
{
    return n >= 32 ? 0xffffffffu : ((1u << n) - 1) << (32 - n);
}

static uint32_t last_channels(uint64_t n)
{
    return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

typedef struct gemv_shape {
    uint64_t c, g, chunks,
        last; /* channels, groups a channel, chunks of 1024, columns of the last */
} gemv_shape;

static gemv_shape gemv_of(uint64_t m, uint64_t n, uint64_t channels)
{
    gemv_shape s = {.c = up(m, 16) < channels ? up(m, 16) : channels, .chunks = up(n, 1024)};
    s.g = up(up(m, 16), s.c);
    s.last = up(n - 1024 * (s.chunks - 1), 16);
    return s;
}

static void gemv_c(stream *s, gemv_shape v)
{
    uint32_t mask = last_channels(v.c);
    for (uint64_t r = 0; r < v.g; r++) {
        send(s, PIMHW_WR_BIAS, 1, mask, 0);
        for (uint64_t k = 0; k < v.chunks; k++) {
            uint64_t op = k + 1 == v.chunks ? v.last : 64;
            send(s, PIMHW_WR_GB, op, mask, 0);
            send(s, PIMHW_MAC_ABK, op, mask, r * v.chunks + k);
        }
        send(s, PIMHW_RD_MAC, 1, mask, 0);
    }
}

/* Orders A (batches of one output) and B (of at most 32). */
static void gemv_ab(stream *s, gemv_shape v, uint64_t most)
{
    uint32_t mask = last_channels(v.c);
    uint64_t size = up(v.g, up(v.g, most));
    for (uint64_t k = 0; k < v.chunks; k++) {
        uint64_t op = k + 1 == v.chunks ? v.last : 64;
        send(s, PIMHW_WR_GB, op, mask, 0);
        for (uint64_t b = 0; b < v.g; b += size) {
            uint64_t n = v.g - b < size ? v.g - b : size;
            for (uint64_t j = 0; j < n; j++)
                send(s, PIMHW_WR_BIAS, 1, mask, 0);
            for (uint64_t j = 0; j < n; j++)
                send(s, PIMHW_MAC_ABK, op, mask, (b + j) * v.chunks + k);
            for (uint64_t j = 0; j < n; j++)
                send(s, PIMHW_RD_MAC, 1, mask, 0);
        }
    }
}

static uint64_t gemv_cycles(gemv_shape v, char order)
{
    uint64_t sum = 0, size = up(v.g, up(v.g, order == 'B' ? 32 : 1));
    for (uint64_t k = 0; k < v.chunks; k++) {
        uint64_t n = k + 1 == v.chunks ? v.last : 64;
        if (order == 'C') {
            sum += v.g * (k ? 150 + 4 * n : 158 + 4 * n);
            continue;
        }
        sum += 2 * n;
        for (uint64_t b = 0; b < v.g; b += size)
            sum += 158 + 2 * n + ((v.g - b < size ? v.g - b : size) - 1) * (103 + 2 * n);
    }
    return sum;
}

typedef struct heads_shape {
    uint64_t t, rep, kv_heads, cpb; /* tokens, query heads a KV head, .., channels a block */
} heads_shape;

static void bias_mac_read(stream *s, uint64_t op, uint32_t mask, uint64_t row)
{
    send(s, PIMHW_WR_BIAS, 1, mask, 0);
    send(s, PIMHW_MAC_ABK, op, mask, row);
    send(s, PIMHW_RD_MAC, 1, mask, 0);
}

static uint64_t qk(stream *s, heads_shape v)
{
    uint64_t rows = up(128 * v.kv_heads, 1024), steps = up(v.t, v.cpb * 16);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t step = 0; step < steps; step++) {
            uint64_t left = step + 1 == steps ? up(v.t - 16 * v.cpb * step, 16) : v.cpb;
            uint32_t mask = first_channels(32 / left * left);
            for (uint64_t i = 0; i < v.rep; i++) {
                send(s, PIMHW_WR_GB, 64, mask, 0);
                for (int head = 0; head < 8; head++)
                    bias_mac_read(s, 8, mask, step * rows + row);
            }
        }
    return rows * steps * (128 * v.rep + 174 + 86 * (8 * v.rep - 1));
}

static uint64_t sv(stream *s, heads_shape v)
{
    uint64_t rows = up(v.t, 1024), dim_rows = up(v.t < 4096 ? 4096 : v.t, 1024), sum = 0;
    uint32_t mask = first_channels(32 / v.cpb * v.cpb);
    for (uint64_t h = 0; h < up(v.kv_heads, v.cpb); h++)
        for (uint64_t i = 0; i < v.rep; i++)
            for (uint64_t row = 0; row < rows; row++) {
                uint64_t op = row + 1 == rows ? up(v.t - row * 1024, 16) : 64;
                send(s, PIMHW_WR_GB, op, mask, 0);
                for (uint64_t d = 0; d < 8; d++)
                    bias_mac_read(s, op, mask, h * 8 * dim_rows + d * dim_rows + row);
                sum += 2 * op + 8 * (158 + 2 * op);
            }
    return sum;
}

/* Traces of one or a few lines, repeated: their lines, and cycles a round + the rest. */
typedef struct micro {
    const char *name;
    uint64_t rounds, per_round;
    int64_t rest;
    struct {
        pimhw_kind kind;
        uint64_t op_size, row, row_step;
    } line[4];
} micro;

static const micro micros[] = {
    {"micro_macab_1024_16banks", 1024, 226, -41, {{PIMHW_MAC_ABK, 64, 0, 1}}},
    {"micro_rdmac_1024_16banks", 1024, 3, 34, {{PIMHW_RD_MAC, 1, 0, 0}}},
    {"micro_wrbias_1024_16banks", 1024, 2, 35, {{PIMHW_WR_BIAS, 1, 0, 0}}},
    {"micro_wrbias_mac_rdmac_mac_16banks",
     1024,
     563,
     -30,
     {{PIMHW_WR_BIAS, 1, 0, 0},
      {PIMHW_MAC_ABK, 64, 0, 0},
      {PIMHW_RD_MAC, 1, 0, 0},
      {PIMHW_MAC_ABK, 64, 1, 0}}},
    {"x_wrgb_64x256", 256, 128, 35, {{PIMHW_WR_GB, 64, 0, 0}}},
    {"x_macabk_1col_256rows", 256, 100, -41, {{PIMHW_MAC_ABK, 1, 0, 1}}},
    {"x_macabk_samerow_4096cols", 64, 128, 57, {{PIMHW_MAC_ABK, 64, 7, 0}}},
    {"x_macabk_1op_samerow_512", 512, 2, 57, {{PIMHW_MAC_ABK, 1, 7, 0}}},
    {"x_mac_sync_256", 256, 226, -39, {{PIMHW_MAC_ABK, 64, 0, 1}, {PIMHW_SYNC, 1, 0, 0}}},
    {"x_eoc_only", 0, 0, 2, {{PIMHW_SYNC, 1, 0, 0}}},
};
enum { N_MICROS = sizeof micros / sizeof *micros };

static uint64_t run_micro(stream *s, const micro *m)
{
    for (uint64_t i = 0; i < m->rounds; i++)
        for (int j = 0; j < 4 && m->line[j].kind; j++)
            send(s, m->line[j].kind, m->line[j].op_size, 0xffffffffu,
                 m->line[j].row + i * m->line[j].row_step);
    return (uint64_t)((int64_t)(m->rounds * m->per_round) + m->rest);
}

/* Sends the stream of a name. False if it holds instructions we do not have. */
static bool send_named(stream *s, const char *name, uint64_t *cycles)
{
    unsigned m, n, channels, cpb;
    char order, heads[8];
    if (sscanf(name, "gemv_%ux%u_ch%u_%c", &m, &n, &channels, &order) == 4) {
        gemv_shape v = gemv_of(m, n, channels);
        if (order == 'C')
            gemv_c(s, v);
        else
            gemv_ab(s, v, order == 'B' ? 32 : 1);
        *cycles = gemv_cycles(v, order);
        return true;
    }
    if (sscanf(name, "%*2[a-z]_%7[a-z0-9]_T%u_cpb%u", heads, &n, &cpb) == 3) {
        bool mha = strcmp(heads, "mha") == 0, g4 = strcmp(heads, "g4") == 0;
        heads_shape v = {n, mha ? 1 : g4 ? 4 : 8, mha ? 32 : 8, cpb};
        *cycles = name[0] == 'q' ? qk(s, v) : sv(s, v);
        return true;
    }
    for (int i = 0; i < N_MICROS; i++)
        if (strcmp(micros[i].name, name) == 0) {
            *cycles = run_micro(s, &micros[i]);
            return true;
        }
    return false;
}

static const char *const names[PIMHW_N_COMMANDS] = {"ACT16",   "PREA",    "MAC16", "WRGB",
                                                    "WRMAC16", "RDMAC16", "TMOD"};

/* Runs one stream and compares; cycles 0 and commands NULL: with the closed form and the counts. */
static void check_stream(pimhw_device *device, const char *name, uint64_t cycles,
                         const char *commands)
{
    static checker k;
    stream s = {0};
    pimhw_sink sink = {checker_event, &k};
    pimhw_readings r;
    pimhw_cause why = {""};
    uint64_t form = 0;
    if (!send_named(&s, name, &form)) return;
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        s.n_commands += s.count[i];
    bool checked = s.n_commands <= CHECKED_COMMANDS;
    checker_begin(&k, pimhw_device_config(device));
    CHECK_U(pimhw_device_begin(device, checked ? &sink : NULL), PIMHW_OK);
    stream sent = {.device = device};
    send_named(&sent, name, &form);
    bool ok = CHECK_U(pimhw_device_finish(device, &r, &why), PIMHW_OK);
    if (!ok || sent.failed) {
        printf("  %s: %s\n", name, why.text);
        return;
    }
    ok = CHECK_U(r.cycles, form);
    if (commands) ok &= CHECK_U(r.cycles, cycles);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++) {
        ok &= CHECK_U(r.commands[i], s.count[i]);
        if (!commands) continue;
        char key[16];
        snprintf(key, sizeof key, "%s=", names[i]);
        const char *at = commands;
        while ((at = strstr(at, key)) && at != commands && at[-1] != ' ')
            at++;
        ok &= CHECK_U(r.commands[i], at ? strtoull(at + strlen(key), NULL, 10) : 0);
    }
    if (checked) {
        checker_end(&k, &r);
        ok &= CHECK(checker_agrees(&k, name));
    }
    if (!ok) printf("  in %s\n", name);
}

static pimhw_device *aim_device(void)
{
    pimhw_config c;
    pimhw_device *device = NULL;
    CHECK_U(pimhw_config_init(&c, "aim-gddr6", NULL), PIMHW_OK);
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    return device;
}

/* Every row of the simulator whose name begins so; their number. */
static void check_rows(const char *prefix, unsigned n_wanted)
{
    FILE *csv = fopen(csv_path, "r");
    if (!csv) {
        skip("no simulator rows here");
        return;
    }
    pimhw_device *device = aim_device();
    char line[1024];
    unsigned n = 0;
    while (device && fgets(line, sizeof line, csv)) {
        stream count_only = {0};
        uint64_t cycles;
        char *commands = strrchr(line, ',');
        if (!commands || strncmp(line, prefix, strlen(prefix)) != 0) continue;
        *commands++ = 0;
        char *number = strrchr(line, ',');
        if (!number) continue;
        *strchr(line, ',') = 0;
        if (!send_named(&count_only, line, &cycles)) continue;
        check_stream(device, line, strtoull(number + 1, NULL, 10), commands);
        n++;
    }
    CHECK_U(n, n_wanted);
    pimhw_device_destroy(device);
    fclose(csv);
}

static void gemv_rows_are_the_simulators(void)
{
    check_rows("gemv_", 63);
}

static void qk_rows_are_the_simulators(void)
{
    check_rows("qk_", 36);
}

static void sv_rows_are_the_simulators(void)
{
    check_rows("sv_", 36);
}

static void micro_rows_are_the_simulators(void)
{
    check_rows("micro_", 4);
    check_rows("x_", 6);
}

static void gemv_meets_its_closed_form(void)
{
    static const unsigned m[] = {1, 16, 40, 256, 520, 1040, 4096},
                          n[] = {16, 300, 1024, 1500, 4096};
    static const unsigned channels[] = {1, 3, 16, 32};
    pimhw_device *device = aim_device();
    for (unsigned i = 0; i < 7 * 5 * 4 * 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "gemv_%ux%u_ch%u_%c", m[i % 7], n[i / 7 % 5],
                 channels[i / 35 % 4], "ABC"[i / 140]);
        check_stream(device, name, 0, NULL);
    }
    pimhw_device_destroy(device);
}

static void qk_and_sv_meet_their_closed_form(void)
{
    static const unsigned t[] = {1, 17, 100, 256, 513, 1000, 1500, 4096}, cpb[] = {8, 10, 32};
    static const char *const heads[] = {"mha", "g4", "g8"};
    pimhw_device *device = aim_device();
    for (unsigned i = 0; i < 8 * 3 * 3 * 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s_T%u_cpb%u", i / 72 ? "sv" : "qk", heads[i / 24 % 3],
                 t[i % 8], cpb[i / 8 % 3]);
        check_stream(device, name, 0, NULL);
    }
    pimhw_device_destroy(device);
}

static void micro_traces_meet_their_closed_form(void)
{
    pimhw_device *device = aim_device();
    for (int i = 0; i < N_MICROS; i++)
        check_stream(device, micros[i].name, 0, NULL);
    pimhw_device_destroy(device);
}

int main(int argc, char **argv)
{
    if (argc > 1) csv_path = argv[1];
    RUN(gemv_meets_its_closed_form);
    RUN(qk_and_sv_meet_their_closed_form);
    RUN(micro_traces_meet_their_closed_form);
    RUN(gemv_rows_are_the_simulators);
    RUN(qk_rows_are_the_simulators);
    RUN(sv_rows_are_the_simulators);
    RUN(micro_rows_are_the_simulators);
    return check_end();
}
