/* The public AiM simulator's cycles and command counts, to the clock: every trace whose totals it
 * printed (../shared/oracle/aim.csv, or argv[1]), rebuilt here, against those totals; and without
 * them against closed forms and counts worked out here. Listings go to the checker, those of over
 * argv[2] commands (1.5 M) not. */
#define PIMHW_IMPLEMENTATION
#include "checker.h"

#include "../examples/aim_text.h"

enum { CHANNELS = 32, BANKS = 16 };

static const char *csv_path = "../shared/oracle/aim.csv";

/* In the order of pimhw_command. */
static const char *const names[PIMHW_N_COMMANDS] = {
    "ACT16",  "PREA", "MAC16", "WRGB", "WRMAC16", "RDMAC16", "TMOD", "EWMUL16", "AF16", "WRA16",
    "RDAF16", "REF",  "ACT",   "PRE",  "RD",      "WR",      "MAC",  "RDCP",    "WRCP"};

/* A device under test, or (none) what the stream must have cost in commands. */
typedef struct stream {
    pimhw_device *device; /* NULL: only count */
    bool failed;
    bool reordered; /* host accesses: the counts are not known */
    uint64_t count[PIMHW_N_COMMANDS], af_mode;
    uint64_t row[CHANNELS][BANKS]; /* + 1; 0: closed */
    bool uneven[CHANNELS];         /* not all banks are as bank 0 */
    bool register_mode[CHANNELS];
} stream;

static void open_all(stream *s, unsigned channel, uint64_t row)
{
    for (unsigned i = 0; i < BANKS; i++)
        s->row[channel][i] = row;
    s->uneven[channel] = false;
}

/* Commands that open a row in all banks. */
static void open_row(stream *s, unsigned channel, uint64_t row)
{
    bool other = false, closed = false;
    for (unsigned i = 0; i < (s->uneven[channel] ? BANKS : 1); i++) {
        other |= s->row[channel][i] && s->row[channel][i] != row + 1;
        closed |= !s->row[channel][i];
    }
    s->count[PIMHW_CMD_PREA] += other;
    s->count[PIMHW_CMD_ACT16] += other || closed;
    open_all(s, channel, row + 1);
}

static void open_bank_row(stream *s, unsigned channel, unsigned bank, uint64_t row)
{
    uint64_t *is = &s->row[channel][bank];
    s->count[PIMHW_CMD_PRE] += *is && *is != row + 1;
    s->count[PIMHW_CMD_ACT] += *is != row + 1;
    *is = row + 1;
    s->uneven[channel] = true;
}

static void count_on_channel(stream *s, unsigned i, const pimhw_instruction *in)
{
    static const uint8_t command[PIMHW_N_KINDS] = {
        [PIMHW_WR_GB] = PIMHW_CMD_WRGB,     [PIMHW_WR_BIAS] = PIMHW_CMD_WRMAC16,
        [PIMHW_MAC_ABK] = PIMHW_CMD_MAC16,  [PIMHW_RD_MAC] = PIMHW_CMD_RDMAC16,
        [PIMHW_MAC_SBK] = PIMHW_CMD_MAC,    [PIMHW_EWMUL] = PIMHW_CMD_EWMUL16,
        [PIMHW_AF] = PIMHW_CMD_AF16,        [PIMHW_RD_AF] = PIMHW_CMD_RDAF16,
        [PIMHW_COPY_BKGB] = PIMHW_CMD_RDCP, [PIMHW_COPY_GBBK] = PIMHW_CMD_WRCP,
        [PIMHW_WR_ABK] = PIMHW_CMD_WRA16};
    bool registers = in->kind == PIMHW_WR_GB || in->kind == PIMHW_WR_BIAS ||
                     in->kind == PIMHW_RD_MAC || in->kind == PIMHW_RD_AF;
    s->count[PIMHW_CMD_TMOD] += s->register_mode[i] != registers;
    s->register_mode[i] = registers;
    s->count[command[in->kind]] += in->op_size;
    if (in->kind == PIMHW_MAC_ABK || in->kind == PIMHW_EWMUL || in->kind == PIMHW_WR_ABK)
        open_row(s, i, in->row);
    if (in->kind == PIMHW_AF) open_row(s, i, (1u << 29) + s->af_mode);
    if (in->kind == PIMHW_MAC_SBK || in->kind == PIMHW_COPY_BKGB || in->kind == PIMHW_COPY_GBBK)
        open_bank_row(s, i, in->bank, in->row);
    if (in->kind == PIMHW_WR_ABK) open_all(s, i, 0); /* closes them itself */
}

static void count(stream *s, const pimhw_instruction *in)
{
    if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 2) s->af_mode = in->gpr;
    s->reordered |= in->kind == PIMHW_WR_SBK || in->kind == PIMHW_RD_SBK ||
                    in->kind == PIMHW_MEM_WR || in->kind == PIMHW_MEM_RD;
    if (in->kind >= PIMHW_EWADD || s->reordered) return;
    for (unsigned i = 0; i < CHANNELS; i++)
        if (in->mask >> i & 1) count_on_channel(s, i, in);
}

static void send_instruction(stream *s, const pimhw_instruction *in)
{
    pimhw_cause why = {""};
    if (!s->device) {
        count(s, in);
        return;
    }
    if (s->failed) return;
    s->failed = !CHECK_U(pimhw_device_submit(s->device, in, &why), PIMHW_OK);
    if (s->failed) printf("  %s\n", why.text);
}

/* text_mask as in a trace: bit 31 - i is channel i. */
static void send(stream *s, pimhw_kind kind, uint64_t op_size, uint32_t text_mask, uint64_t row)
{
    pimhw_instruction in = {.kind = kind, .op_size = op_size, .row = (uint32_t)row};
    for (unsigned i = 0; i < CHANNELS; i++)
        if (text_mask >> (31 - i) & 1) in.mask |= UINT64_C(1) << i;
    send_instruction(s, &in);
}

/* A line of a trace. */
static void send_text(stream *s, const char *line)
{
    pimhw_instruction in;
    pimhw_cause why = {""};
    bool found = false;
    if (!CHECK_U(ex_aim_parse(line, &in, &found, &why), PIMHW_OK))
        printf("  %s: %s\n", line, why.text);
    else if (CHECK(found))
        send_instruction(s, &in);
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

/* Lines, repeated: in round i, $i is i, and more as in number_of. Cycles: a round's and the rest; 0
 * and 0 where no form is published. */
typedef struct repeated {
    const char *name;
    uint64_t rounds, per_round;
    int64_t rest;
    const char *lines;
} repeated;

/* All channels, in the text's masks. */
#define ALL "0xffffffff"

static const char all_isr[] =
    "W MEM 0 2 8\nW MEM 1 2 9\nW MEM 2 2 10\nW MEM 3 2 11\n"
    "W GPR 0\nW GPR 1\nW GPR 2\nW GPR 3\nW GPR 4\nW GPR 5\nW GPR 6\nW GPR 7\n"
    "AiM WR_SBK 0 1 0 0\nAiM WR_SBK 0 2 0 0\nAiM WR_SBK 0 4 0 0\nAiM WR_SBK 0 8 0 0\n"
    "AiM WR_SBK 1 1 0 0\nAiM WR_SBK 1 2 0 0\nAiM WR_SBK 1 4 0 0\nAiM WR_SBK 1 8 0 0\n"
    "AiM WR_GB 2 2 15\nAiM WR_BIAS 4 15\n"
    "W CFR 0 1\nAiM MAC_ABK 2 15 0\nW CFR 0 0\nAiM MAC_ABK 2 15 0\n"
    "W CFR 0 1\nAiM MAC_SBK 2 15 0 0\nW CFR 0 0\nAiM MAC_SBK 2 15 0 0\n"
    "W CFR 1 1\nAiM EWMUL 2 15 0\nW CFR 1 0\nAiM EWMUL 2 15 0\n"
    "W CFR 2 1\nAiM AF 15\nAiM RD_MAC 8 15\nAiM RD_AF 12 15\nAiM EWADD 4 8 12\n"
    "AiM COPY_BKGB 2 15 0 0\nAiM COPY_GBBK 2 15 0 0\n"
    "AiM RD_SBK 20 1 0 0\nAiM RD_SBK 21 1 0 0\nAiM RD_SBK 22 2 0 0\nAiM RD_SBK 23 2 0 0\n"
    "AiM RD_SBK 24 4 0 0\nAiM RD_SBK 25 4 0 0\nAiM RD_SBK 26 8 0 0\nAiM RD_SBK 27 8 0 0\n"
    "AiM WR_ABK 4 1 5\nAiM WR_ABK 5 2 5\nAiM WR_ABK 6 4 5\nAiM WR_ABK 7 8 5";

static const repeated repeats[] = {
    {"all_isr", 1, 689, 0, all_isr},
    {"micro_macab_1024_16banks", 1024, 226, -41, "AiM MAC_ABK 64 " ALL " $i"},
    {"micro_ewmul_16banks", 1024, 222, -68, "AiM EWMUL 64 " ALL " $i"},
    {"micro_wrab_1024_1bank", 1024, 101, -31, "AiM WR_ABK 0 0x80000000 $i"},
    {"micro_rdmac_1024_16banks", 1024, 3, 34, "AiM RD_MAC 0 " ALL},
    {"micro_wrbias_1024_16banks", 1024, 2, 35, "AiM WR_BIAS 0 " ALL},
    {"micro_wrbias_mac_af_rdaf_16banks", 1024, 415, 0,
     "AiM WR_BIAS 0 " ALL "\nAiM MAC_ABK 64 " ALL " 0\nAiM AF " ALL "\nAiM RD_AF 0 " ALL},
    {"micro_wrbias_mac_rdmac_mac_16banks", 1024, 563, -30,
     "AiM WR_BIAS 0 " ALL "\nAiM MAC_ABK 64 " ALL " 0\nAiM RD_MAC 0 " ALL "\nAiM MAC_ABK 64 " ALL
     " 1"},
    {"micro_wrgb_gbbk_bggb_16banks", 1024, 623, -62,
     "AiM WR_GB 64 0 " ALL "\nAiM COPY_GBBK 64 " ALL " 0 $i\nAiM COPY_BKGB 64 " ALL " 8 $i"},
    {"x_wmem_1bank_1row_64", 64, 2, 36, "W MEM 0 0 0"},
    {"x_rmem_1bank_1row_64", 64, 2, 88, "R MEM 0 0 0"},
    {"x_wmem_1bank_64rows", 64, 101, -98, "W MEM 0 0 $i"},
    {"x_rmem_1bank_64rows", 64, 89, -86, "R MEM 0 0 $i"},
    {"x_rmem_16banks_1024", 1024, 0, 0, "R MEM 0 $b $r"},
    {"x_wmem_16banks_1024", 1024, 0, 0, "W MEM 0 $b $r"},
    {"x_rmem_32ch_16banks_64cols", 32768, 1, 53, "R MEM $c $B 0"},
    {"x_wmem_then_rmem_64", 128, 0, 0, "$d MEM 0 0 0"},
    {"x_wrsbk_rdsbk_sync", 16, 0, 0,
     "AiM WR_SBK 0 " ALL " $i 3\nAiM SYNC\nAiM RD_SBK 0 " ALL " $i 3\nAiM SYNC"},
    {"x_macsbk_64x256", 256, 0, 0, "AiM MAC_SBK 64 " ALL " $b $r"},
    {"x_macsbk_samebank_64x64", 64, 226, -41, "AiM MAC_SBK 64 " ALL " 0 $i"},
    {"x_copybkgb_64x64", 64, 236, -41, "AiM COPY_BKGB 64 " ALL " 0 $i"},
    {"x_copygbbk_64x64", 64, 247, -70, "AiM COPY_GBBK 64 " ALL " 0 $i"},
    {"x_wrgb_64x256", 256, 128, 35, "AiM WR_GB 64 0 " ALL},
    {"x_macabk_1col_256rows", 256, 100, -41, "AiM MAC_ABK 1 " ALL " $i"},
    {"x_macabk_samerow_4096cols", 64, 128, 57, "AiM MAC_ABK 64 " ALL " 7"},
    {"x_macabk_1op_samerow_512", 512, 2, 57, "AiM MAC_ABK 1 " ALL " 7"},
    {"x_af_rdaf_256", 256, 68, 56, "AiM AF " ALL "\nAiM RD_AF 0 " ALL},
    {"x_mac_sync_256", 256, 226, -39, "AiM MAC_ABK 64 " ALL " $i\nAiM SYNC"},
    {"x_noop_ewadd_gpr_1000", 250, 4, 2, "AiM EWADD 64 0 0\nW GPR 0\nR GPR 0\nW CFR 0 1"},
    {"x_eoc_only", 0, 0, 2, ""},
    {"x_mac_then_wmem", 200, 0, 0, "AiM MAC_ABK 16 " ALL " $i\nW MEM $c $b $i\nR MEM $C $t $i"},
};
enum { N_REPEATS = sizeof repeats / sizeof *repeats };

/* What $letter is in a round. */
static unsigned long long number_of(char letter, uint64_t round)
{
    switch (letter) {
    case 'b': return round % 16;
    case 'r': return round / 16;
    case 'c': return round % 32;
    case 'C': return round * 7 % 32;
    case 't': return round * 3 % 16;
    case 'B': return round / 2048; /* 64 rounds of 32 channels */
    default: return round;
    }
}

/* Fills a line for a round; returns where the next begins. */
static const char *line_of(const char *lines, uint64_t round, char line[160])
{
    size_t n = 0;
    for (; *lines && *lines != '\n'; lines++) {
        if (*lines != '$') {
            line[n++] = *lines;
            continue;
        }
        lines++;
        if (*lines == 'd') /* 64 writes, then reads */
            line[n++] = round < 64 ? 'W' : 'R';
        else
            n += (size_t)snprintf(line + n, 160 - n, "%llu", number_of(*lines, round));
    }
    line[n] = 0;
    return *lines ? lines + 1 : lines;
}

static uint64_t send_repeated(stream *s, const repeated *m)
{
    char line[160];
    for (uint64_t i = 0; i < m->rounds; i++)
        for (const char *at = m->lines; *at;) {
            at = line_of(at, i, line);
            send_text(s, line);
        }
    return (uint64_t)((int64_t)(m->rounds * m->per_round) + m->rest);
}

static uint32_t lcg_draw(uint64_t *x, uint32_t n)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 33) % n;
}

static void lcg_accesses(stream *s, uint64_t *x, char letter, uint32_t n)
{
    char line[160];
    while (n-- > 0) {
        uint32_t channel = lcg_draw(x, 2), bank = lcg_draw(x, 16), row = lcg_draw(x, 3);
        snprintf(line, sizeof line, "%c MEM %u %u %u", letter, channel, bank, row);
        send_text(s, line);
    }
}

/* What an operation is in the text; $ is its letters, as in lcg_line. */
static const char *const lcg_ops[18] = {"AiM WR_SBK 0 $m $b $r",
                                        "AiM RD_SBK 0 $m $b $r",
                                        "AiM WR_ABK 0 $1 $r",
                                        "AiM WR_GB $n 0 $m",
                                        "AiM WR_BIAS 0 $m",
                                        "AiM RD_MAC 0 $m",
                                        "AiM RD_AF 0 $m",
                                        "AiM COPY_BKGB $n $m $b $r",
                                        "AiM COPY_GBBK $n $m $b $r",
                                        "AiM MAC_SBK $n $m $b $r",
                                        "AiM MAC_ABK $n $m $r",
                                        "AiM AF $m",
                                        "AiM EWMUL $n $m $r",
                                        "AiM EWADD 4 0 1",
                                        "AiM SYNC",
                                        "W MEM",
                                        "R MEM",
                                        "W CFR 2 $a"};

/* One step of an LCG mix: the draws, in the order of section 5d. */
static void lcg_step(stream *s, uint64_t *x)
{
    static const uint32_t sizes[5] = {1, 2, 8, 40, 64}, counts[3] = {1, 5, 50};
    uint32_t op = lcg_draw(x, 18), n = sizes[lcg_draw(x, 5)], row = lcg_draw(x, 3);
    uint32_t bank = lcg_draw(x, 16), kind = lcg_draw(x, 3), one = 1u << lcg_draw(x, 32);
    uint32_t accesses = counts[lcg_draw(x, 3)];
    uint32_t mask = kind == 0 ? one : kind == 1 ? 0xffffffffu : 0xf0000000u;
    char line[160];
    size_t at = 0;
    if (op == 15 || op == 16) {
        lcg_accesses(s, x, op == 15 ? 'W' : 'R', accesses);
        return;
    }
    for (const char *p = lcg_ops[op]; *p; p++) {
        if (*p != '$') {
            line[at++] = *p;
            continue;
        }
        p++;
        uint32_t value = *p == 'm'   ? mask
                         : *p == '1' ? one
                         : *p == 'b' ? bank
                         : *p == 'r' ? row
                                     : n;
        if (*p == 'a') value = lcg_draw(x, 3);
        at += (size_t)snprintf(line + at, sizeof line - at, "%u", value);
    }
    line[at] = 0;
    send_text(s, line);
}

/* Sends the stream of a name; *cycles: its closed form, 0: there is none. False: no such name. */
static bool send_named(stream *s, const char *name, uint64_t *cycles)
{
    unsigned m, n, channels, cpb;
    char order, heads[8];
    *cycles = 0;
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
    for (int i = 0; i < N_REPEATS; i++)
        if (strcmp(repeats[i].name, name) == 0) {
            *cycles = send_repeated(s, &repeats[i]);
            return true;
        }
    m = 1500;
    if (sscanf(name, "x_lcg_seed%u_%usteps", &n, &m) < 1) return false;
    uint64_t x = n;
    while (m-- > 0)
        lcg_step(s, &x);
    return true;
}

/* Against the simulator's line: "ACT16=32 MAC16=128 ..", commands without a number are 0. */
static bool check_commands(const pimhw_readings *r, const char *line)
{
    uint64_t want[PIMHW_N_COMMANDS] = {0};
    bool ok = true;
    char name[16];
    unsigned long long number;
    for (int n = 0; sscanf(line, " %15[A-Z0-9]=%llu%n", name, &number, &n) == 2; line += n) {
        int i = 0;
        while (i < PIMHW_N_COMMANDS && strcmp(names[i], name) != 0)
            i++;
        if (!CHECK(i < PIMHW_N_COMMANDS)) return false;
        want[i] = number;
    }
    ok &= CHECK_U(line[strspn(line, " \r\n")], 0);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        ok &= CHECK_U(r->commands[i], want[i]);
    return ok;
}

/* Listings of up to so many commands are checked; longer ones repeat what these have. */
static uint64_t most_checked = 1500000;
static unsigned n_checked, n_streams;

/* Runs one stream and compares; commands NULL: with the closed form and the counts only. */
static void check_stream(pimhw_device *device, const char *name, uint64_t cycles,
                         const char *commands)
{
    static checker k;
    stream s = {0}, sent = {.device = device};
    pimhw_sink sink = {checker_event, &k, NULL};
    pimhw_readings r;
    pimhw_cause why = {""};
    uint64_t form = 0;
    if (!CHECK(send_named(&s, name, &form))) return;
    checker_begin(&k, pimhw_device_config(device));
    k.reordered = s.reordered;
    uint64_t n_commands = 0;
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        n_commands += s.count[i];
    const bool checked = n_commands <= most_checked;
    n_streams++;
    n_checked += checked;
    CHECK_U(pimhw_device_begin(device, checked ? &sink : NULL), PIMHW_OK);
    send_named(&sent, name, &form);
    bool ok = CHECK_U(pimhw_device_finish(device, &r, &why), PIMHW_OK);
    if (!ok || sent.failed) {
        printf("  %s: %s\n", name, why.text);
        return;
    }
    if (form) ok = CHECK_U(r.cycles, form);
    if (commands) {
        ok &= CHECK_U(r.cycles, cycles);
        ok &= check_commands(&r, commands);
    }
    for (int i = 0; i < PIMHW_N_COMMANDS && !s.reordered; i++)
        ok &= CHECK_U(r.commands[i], s.count[i]);
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

enum { SIMULATOR_ROWS = 171 }; /* that we were given; the whole file has more */

static unsigned n_rows_tried;

static void one_row(pimhw_device *device, char *line)
{
    char *commands = strrchr(line, ',');
    if (!CHECK(commands)) return;
    *commands++ = 0;
    char *cycles = strrchr(line, ',');
    if (!CHECK(cycles)) return;
    *strchr(line, ',') = 0;
    unsigned n_errors = check_now.n_errors;
    check_stream(device, line, strtoull(cycles + 1, NULL, 10), commands);
    if (check_now.n_errors != n_errors) printf("  row %s\n", line);
    n_rows_tried++;
}

/* Tries every row of the simulator whose name begins so; false if there are no rows here. */
static bool check_rows(const char *prefix)
{
    FILE *csv = fopen(csv_path, "r");
    char line[1024];
    if (!csv) {
        skip("no simulator rows here");
        return false;
    }
    pimhw_device *device = aim_device();
    while (device && fgets(line, sizeof line, csv))
        if (strncmp(line, prefix, strlen(prefix)) == 0) one_row(device, line);
    pimhw_device_destroy(device);
    fclose(csv);
    return true;
}

static void gemv_rows_are_the_simulators(void)
{
    check_rows("gemv_");
}

static void qk_rows_are_the_simulators(void)
{
    check_rows("qk_");
}

static void sv_rows_are_the_simulators(void)
{
    check_rows("sv_");
}

static void micro_rows_are_the_simulators(void)
{
    if (check_rows("micro_")) check_rows("all_isr");
}

static void mixed_rows_are_the_simulators(void)
{
    check_rows("x_");
}

/* After the others: rows of the file that none of them took. */
static void every_row_was_tried(void)
{
    FILE *csv = fopen(csv_path, "r");
    char line[1024];
    unsigned n_rows = 0;
    if (!csv) {
        skip("no simulator rows here");
        return;
    }
    CHECK(fgets(line, sizeof line, csv) != NULL); /* the header */
    while (fgets(line, sizeof line, csv))
        n_rows += line[strspn(line, " \r\n")] != 0;
    CHECK_U(n_rows_tried, n_rows);
    CHECK(n_rows >= SIMULATOR_ROWS);
    fclose(csv);
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

static void published_totals_are_met(void)
{
    pimhw_device *device = aim_device();
    for (int i = 0; i < N_REPEATS; i++)
        check_stream(device, repeats[i].name, 0, NULL);
    pimhw_device_destroy(device);
}

int main(int argc, char **argv)
{
    if (argc > 1) csv_path = argv[1];
    if (argc > 2) most_checked = strtoull(argv[2], NULL, 10);
    RUN(gemv_meets_its_closed_form);
    RUN(qk_and_sv_meet_their_closed_form);
    RUN(published_totals_are_met);
    RUN(gemv_rows_are_the_simulators);
    RUN(qk_rows_are_the_simulators);
    RUN(sv_rows_are_the_simulators);
    RUN(micro_rows_are_the_simulators);
    RUN(mixed_rows_are_the_simulators);
    RUN(every_row_was_tried);
    printf("%u streams, of %u the listing was checked\n", n_streams, n_checked);
    return check_end();
}
