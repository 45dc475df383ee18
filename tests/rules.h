/* rules.h - what an AiM device allows: how far its commands must be apart, which rows they need.
 *
 * Our own copy of the published rules of the AiM simulator [AIMSIM] in the fields of a device,
 * with those of refresh; the checker and the queue oracle judge by it. Nothing here comes from
 * the tables of pim_hw.h.
 */
#ifndef RULES_H
#define RULES_H

#include "../pim_hw.h"
#include "check.h"

enum { RULES_CHANNEL, RULES_GROUP, RULES_BANK, RULES_SCOPES };

/* Classes of commands: of the I/O stream (W, R), of the MAC stream (M), rows, all others. */
enum { RULES_W, RULES_M, RULES_R, RULES_ROW, RULES_MODE, RULES_OTHER };

static const uint8_t rules_class[PIMHW_N_COMMANDS] = {
    [PIMHW_CMD_ACT16] = RULES_ROW,   [PIMHW_CMD_PREA] = RULES_ROW,  [PIMHW_CMD_MAC16] = RULES_M,
    [PIMHW_CMD_WRGB] = RULES_W,      [PIMHW_CMD_WRMAC16] = RULES_W, [PIMHW_CMD_RDMAC16] = RULES_R,
    [PIMHW_CMD_TMOD] = RULES_MODE,   [PIMHW_CMD_EWMUL16] = RULES_M, [PIMHW_CMD_AF16] = RULES_M,
    [PIMHW_CMD_WRA16] = RULES_OTHER, [PIMHW_CMD_RDAF16] = RULES_R,  [PIMHW_CMD_REF] = RULES_ROW,
    [PIMHW_CMD_ACT] = RULES_ROW,     [PIMHW_CMD_PRE] = RULES_ROW,   [PIMHW_CMD_RD] = RULES_OTHER,
    [PIMHW_CMD_WR] = RULES_OTHER,    [PIMHW_CMD_MAC] = RULES_M,     [PIMHW_CMD_RDCP] = RULES_OTHER,
    [PIMHW_CMD_WRCP] = RULES_OTHER,
};

/* Sets of commands, a bit each. */
#define RULES_SET(command) (1u << PIMHW_CMD_##command)

enum {
    RULES_ANSWERS = RULES_SET(RDMAC16) | RULES_SET(RDAF16),
    RULES_SINGLE_READS = RULES_SET(RD) | RULES_SET(MAC) | RULES_SET(RDCP),
    RULES_SINGLE_WRITES = RULES_SET(WR) | RULES_SET(WRCP),
    RULES_UNITS = RULES_ANSWERS | RULES_SET(MAC16) | RULES_SET(EWMUL16),
    RULES_WIDE_WRITES = RULES_SET(WRA16) | RULES_SET(WRMAC16) | RULES_SET(EWMUL16),
    RULES_DATA_IN = RULES_SET(WR) | RULES_SET(WRA16) | RULES_SET(WRGB) | RULES_SET(WRMAC16),
    RULES_OPENING = RULES_SET(ACT) | RULES_SET(ACT16),
    RULES_CLOSING = RULES_SET(PRE) | RULES_SET(PREA),
    RULES_ONE_BANK = RULES_SET(ACT) | RULES_SET(PRE) | RULES_SINGLE_READS | RULES_SINGLE_WRITES,
    RULES_NEED_ROWS = RULES_SET(MAC16) | RULES_SET(EWMUL16) | RULES_SET(AF16) | RULES_SET(WRA16) |
                      RULES_SINGLE_READS | RULES_SINGLE_WRITES,
    RULES_REGISTERS = RULES_ANSWERS | RULES_SET(WRGB) | RULES_SET(WRMAC16),
    RULES_EVERY = (1u << PIMHW_N_COMMANDS) - 1
};

static inline bool rules_in(uint32_t command, uint32_t set)
{
    return set >> command & 1;
}

/* Of a pair (from, to) at one scope: t(to) >= t(from) + gap; 0: nothing. */
typedef struct rules_pair {
    uint32_t gap_ck;
    uint32_t reasons; /* bit per pimhw_spent: what a wait for this gap may be called */
    uint16_t order;   /* of the first line that gives it: of equal clocks the lowest counts */
    uint8_t first;    /* its reason */
} rules_pair;

typedef struct rules {
    rules_pair pair[RULES_SCOPES][PIMHW_N_COMMANDS][PIMHW_N_COMMANDS];
    uint32_t before[RULES_SCOPES][PIMHW_N_COMMANDS]; /* set: those with a gap to a command */
    uint32_t n_lines;
} rules;

static inline void rules_line(rules *r, int scope, uint32_t from, uint32_t to, int64_t clocks,
                              pimhw_spent reason)
{
    uint16_t order = (uint16_t)(1000 * (uint32_t)scope + r->n_lines++);
    for (uint32_t i = 0; i < PIMHW_N_COMMANDS && clocks > 0; i++)
        for (uint32_t j = 0; j < PIMHW_N_COMMANDS && rules_in(i, from); j++) {
            rules_pair *p = &r->pair[scope][i][j];
            uint32_t gap_ck = (uint32_t)clocks;
            if (!rules_in(j, to) || gap_ck < p->gap_ck) continue;
            if (gap_ck > p->gap_ck) {
                p->gap_ck = gap_ck;
                p->reasons = 0;
                p->order = order;
                p->first = (uint8_t)reason;
            }
            p->reasons |= 1u << reason;
            r->before[scope][j] |= 1u << i;
        }
}

/* What a wait for a result on its way is called, and for one of a unit at work. */
static inline void rules_line_of_reads(rules *r, int scope, uint32_t from, uint32_t to,
                                       int64_t clocks)
{
    rules_line(r, scope, from & ~(uint32_t)RULES_ANSWERS, to, clocks, PIMHW_WAIT_OPERAND);
    rules_line(r, scope, from & RULES_ANSWERS, to, clocks, PIMHW_WAIT_OUTPUT);
}

static inline void rules_of_columns(rules *r, const pimhw_config *c)
{
    const int all = RULES_CHANNEL;
    const uint32_t reads = RULES_SINGLE_READS | RULES_SET(MAC16) | RULES_ANSWERS;
    const uint32_t answers = RULES_SET(RD) | RULES_ANSWERS;
    const uint32_t columns_in = RULES_DATA_IN | RULES_SET(WRCP);
    rules_line(r, all, answers, answers, c->tBL, PIMHW_WAIT_OUTPUT);
    rules_line(r, all, RULES_DATA_IN, RULES_DATA_IN, c->tBL, PIMHW_WAIT_INPUT);
    rules_line_of_reads(r, all, reads, reads, c->tCCD_S);
    rules_line(r, all, columns_in, columns_in, c->tCCD_S, PIMHW_WAIT_INPUT);
    rules_line_of_reads(r, all, RULES_SINGLE_READS | RULES_UNITS, RULES_UNITS, c->tCCD_L);
    rules_line_of_reads(r, all, RULES_UNITS, RULES_SINGLE_READS, c->tCCD_L);
    rules_line(r, all, RULES_SINGLE_WRITES | RULES_WIDE_WRITES, RULES_WIDE_WRITES, c->tCCD_L,
               PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_WIDE_WRITES, RULES_SINGLE_WRITES, c->tCCD_L, PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_SET(MAC16), RULES_SET(MAC16), c->tCCD_MAC, PIMHW_WAIT_OPERAND);
    rules_line(r, all, RULES_SET(MAC16), RULES_SET(WRGB), c->tMTW, PIMHW_WAIT_OPERAND);
    const int scope = RULES_GROUP;
    rules_line(r, scope, RULES_SINGLE_READS, RULES_SINGLE_READS, c->tCCD_L, PIMHW_WAIT_OPERAND);
    rules_line(r, scope, RULES_SINGLE_WRITES, RULES_SINGLE_WRITES, c->tCCD_L, PIMHW_WAIT_INPUT);
}

/* From reading to writing and back. */
static inline void rules_of_turns(rules *r, const pimhw_config *c)
{
    const int all = RULES_CHANNEL;
    const int64_t pause = (int64_t)c->tBL + 3 + c->tWPRE;
    const uint32_t results = RULES_ANSWERS, wide = RULES_SET(WR) | RULES_SET(WRA16);
    const uint32_t from[2] = {RULES_SET(RD), results};
    const int64_t latency[2] = {c->tCL, c->tCL_REG}, bl = c->tBL;
    for (int i = 0; i < 2; i++) {
        int64_t busy = latency[i] + pause;
        rules_line(r, all, from[i], wide, busy - c->tCWL, PIMHW_WAIT_OUTPUT);
        rules_line(r, all, from[i], RULES_SET(WRGB), busy - c->tCWL_GB, PIMHW_WAIT_OUTPUT);
        rules_line(r, all, from[i], RULES_SET(WRMAC16), busy - c->tCWL_REG, PIMHW_WAIT_OUTPUT);
    }
    const uint32_t any = RULES_SET(RD) | results;
    rules_line(r, all, RULES_SET(WR), RULES_SET(RD), c->tCWL + bl + c->tWTR_S, PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_SET(WR), results, c->tCWL + bl + c->tWTR_L, PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_SET(WRA16), any, c->tCWL + bl + c->tWTR_L, PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_SET(WRGB), any, c->tCWL_GB + bl + c->tWTR_S, PIMHW_WAIT_INPUT);
    rules_line(r, all, RULES_SET(WRMAC16), any, c->tCWL_REG + bl + c->tWTR_L, PIMHW_WAIT_INPUT);
    rules_line(r, RULES_GROUP, RULES_SET(WR), RULES_SET(RD), c->tCWL + bl + c->tWTR_L,
               PIMHW_WAIT_INPUT);
}

static inline void rules_of_closing(rules *r, const pimhw_config *c)
{
    const int all = RULES_CHANNEL;
    const pimhw_spent row = PIMHW_WAIT_ROW;
    const int64_t written = (int64_t)c->tCWL + c->tBL + c->tWR;
    const uint32_t columns = RULES_SET(MAC16) | RULES_SET(AF16), prea = RULES_SET(PREA);
    rules_line(r, all, columns, RULES_CLOSING, c->tRTP, row);
    rules_line(r, all, RULES_SINGLE_READS, prea, c->tRTP, row);
    rules_line(r, all, RULES_SET(EWMUL16), RULES_CLOSING, (int64_t)c->tCWL + c->tWR, row);
    rules_line(r, all, RULES_SINGLE_WRITES, prea, written, row);
    rules_line(r, all, RULES_OPENING, prea, c->tRAS, row);
    rules_line(r, all, RULES_SET(ACT16), RULES_SET(PRE), c->tRAS, row);
    rules_line(r, all, RULES_CLOSING, prea, c->tRP, row);
    rules_line(r, all, prea, RULES_SET(PRE), c->tRP, row);
    rules_line(r, RULES_BANK, RULES_SINGLE_READS, RULES_SET(PRE), c->tRTP, row);
    rules_line(r, RULES_BANK, RULES_SINGLE_WRITES, RULES_SET(PRE), written, row);
    rules_line(r, RULES_BANK, RULES_SET(ACT), RULES_SET(PRE), c->tRAS, row);
    rules_line(r, RULES_BANK, RULES_SET(PRE), RULES_SET(PRE), c->tRP, row);
}

static inline void rules_of_opening(rules *r, const pimhw_config *c)
{
    const int all = RULES_CHANNEL, bank = RULES_BANK;
    const pimhw_spent row = PIMHW_WAIT_ROW;
    const uint32_t act = RULES_SET(ACT), act16 = RULES_SET(ACT16);
    const int64_t written = (int64_t)c->tCWL + c->tBL + c->tWR;
    rules_line(r, all, act, act, c->tRRD_S, row);
    rules_line(r, RULES_GROUP, act, act, c->tRRD_L, row);
    rules_line(r, all, RULES_OPENING, act16, c->tRC, row);
    rules_line(r, all, act16, act, c->tRC, row);
    rules_line(r, bank, act, act, c->tRC, row);
    rules_line(r, all, RULES_CLOSING, act16, c->tRP, row);
    rules_line(r, all, RULES_SET(PREA), act, c->tRP, row);
    rules_line(r, bank, RULES_SET(PRE), act, c->tRP, row);
    rules_line(r, all, RULES_SET(WRA16), RULES_OPENING, written + c->tRP, row);
    rules_line(r, all, RULES_OPENING, RULES_SET(MAC16), c->tRCD_MAC, row);
    rules_line(r, all, RULES_OPENING, RULES_SET(AF16), c->tRCD_AF, row);
    rules_line(r, all, RULES_OPENING, RULES_SET(EWMUL16), c->tRCD_EWMUL, row);
    rules_line(r, all, RULES_OPENING, RULES_SET(WRA16), c->tRCD_WR, row);
    const uint32_t columns[5] = {RULES_SET(MAC), RULES_SET(RDCP), RULES_SET(RD), RULES_SET(WR),
                                 RULES_SET(WRCP)};
    const uint32_t clocks[5] = {c->tRCD_MAC, c->tRCD_RDCP, c->tRCD_RD, c->tRCD_WR, c->tRCD_WRCP};
    for (int i = 0; i < 5; i++) {
        rules_line(r, all, act16, columns[i], clocks[i], row);
        rules_line(r, bank, act, columns[i], clocks[i], row);
    }
}

static inline void rules_of_refresh_and_modes(rules *r, const pimhw_config *c)
{
    const int all = RULES_CHANNEL;
    const int64_t written = (int64_t)c->tCWL + c->tBL + c->tWR;
    const uint32_t ref = RULES_SET(REF), mode = RULES_SET(TMOD);
    rules_line(r, all, RULES_SET(WRA16), ref, written + c->tRP, PIMHW_WAIT_ROW);
    rules_line(r, all, RULES_CLOSING, ref, c->tRP, PIMHW_WAIT_ROW);
    rules_line(r, all, ref, RULES_EVERY, c->tRFC, PIMHW_WAIT_REFRESH);
    rules_line(r, all, mode, RULES_EVERY & ~mode, c->tMOD, PIMHW_SPENT_MODE);
}

static inline void rules_init(rules *r, const pimhw_config *c)
{
    memset(r, 0, sizeof *r);
    rules_of_columns(r, c);
    rules_of_turns(r, c);
    rules_of_closing(r, c);
    rules_of_opening(r, c);
    rules_of_refresh_and_modes(r, c);
}

/* --------------------------------------------------------------------------
 * What has happened on a channel: when commands came last, which rows are open.
 * -------------------------------------------------------------------------- */

typedef struct rules_past {
    uint64_t last_ck[RULES_SCOPES][PIMHW_MAX_BANKS][PIMHW_N_COMMANDS];
    uint32_t seen[RULES_SCOPES][PIMHW_MAX_BANKS]; /* set: whose last_ck counts */
    uint64_t open[PIMHW_MAX_BANKS];               /* row + 1; 0: closed */
    uint32_t n_banks, n_group_banks, n_open;
    bool uneven; /* not all banks need be as bank 0 */
} rules_past;

static inline void rules_past_init(rules_past *past, const pimhw_config *c)
{
    memset(past, 0, sizeof *past);
    past->n_banks = c->n_bank_groups * c->n_group_banks;
    past->n_group_banks = c->n_group_banks;
}

static inline bool rules_any_open(const rules_past *past)
{
    return past->n_open > 0;
}

/* Earliest clock of a command by the lines whose commands are in `of` (either side). */
typedef struct rules_clock {
    uint64_t ck;
    uint32_t reasons, order; /* of the lines that set it, if ck > 0 */
    uint8_t first;
} rules_clock;

static inline rules_clock rules_earliest(const rules *r, const rules_past *past, uint32_t command,
                                         uint32_t bank, uint32_t of)
{
    rules_clock at = {0, 0, UINT32_MAX, PIMHW_WAIT_HOST};
    const uint32_t n_scopes = rules_in(command, RULES_ONE_BANK) ? RULES_SCOPES : 1;
    const uint32_t wheres[RULES_SCOPES] = {0, bank / past->n_group_banks, bank};
    for (uint32_t scope = 0; scope < n_scopes; scope++) {
        uint32_t where = wheres[scope];
        uint32_t left = r->before[scope][command] & past->seen[scope][where];
        if (!rules_in(command, of)) left &= of;
        for (; left; left &= left - 1) {
            const uint32_t from = (uint32_t)__builtin_ctz(left);
            const rules_pair *p = &r->pair[scope][from][command];
            uint64_t ck = past->last_ck[scope][where][from] + p->gap_ck;
            if (ck < at.ck) continue;
            if (ck > at.ck) at.ck = ck, at.reasons = 0, at.order = UINT32_MAX;
            at.reasons |= p->reasons;
            if (p->order < at.order) at.order = p->order, at.first = p->first;
        }
    }
    return at;
}

/* The command that must come next, so that this one can: itself, or one that switches rows. */
static inline uint32_t rules_needed(const rules_past *past, uint32_t command, uint32_t bank,
                                    uint64_t row)
{
    bool closed = false;
    if (!rules_in(command, RULES_NEED_ROWS)) return command;
    if (rules_in(command, RULES_ONE_BANK)) {
        if (!past->open[bank]) return PIMHW_CMD_ACT;
        return past->open[bank] == row + 1 ? command : (uint32_t)PIMHW_CMD_PRE;
    }
    for (uint32_t i = 0; i < (past->uneven ? past->n_banks : 1); i++) {
        if (past->open[i] && past->open[i] != row + 1) return PIMHW_CMD_PREA;
        closed |= !past->open[i];
    }
    return closed ? (uint32_t)PIMHW_CMD_ACT16 : command;
}

static inline void rules_happened(rules_past *past, uint32_t command, uint32_t bank, uint64_t row,
                                  uint64_t ck)
{
    const uint32_t where[RULES_SCOPES] = {0, bank / past->n_group_banks, bank};
    for (int scope = 0; scope < RULES_SCOPES; scope++) {
        past->last_ck[scope][where[scope]][command] = ck;
        past->seen[scope][where[scope]] |= 1u << command;
        if (!rules_in(command, RULES_ONE_BANK)) break;
    }
    if (command == PIMHW_CMD_ACT || command == PIMHW_CMD_PRE) {
        bool was_open = past->open[bank] > 0, is_open = command == PIMHW_CMD_ACT;
        past->open[bank] = is_open ? row + 1 : 0;
        past->n_open = past->n_open - was_open + is_open;
        past->uneven = true;
    }
    bool opens = command == PIMHW_CMD_ACT16;
    if (!opens && command != PIMHW_CMD_PREA && command != PIMHW_CMD_WRA16) return;
    for (uint32_t i = 0; i < past->n_banks; i++)
        past->open[i] = opens ? row + 1 : 0;
    past->n_open = opens ? past->n_banks : 0;
    past->uneven = false;
}

/* The command of a kind; PIMHW_N_COMMANDS: none on a channel. */
static inline uint32_t rules_command(pimhw_kind kind)
{
    switch (kind) {
    case PIMHW_WR_GB: return PIMHW_CMD_WRGB;
    case PIMHW_WR_BIAS: return PIMHW_CMD_WRMAC16;
    case PIMHW_MAC_ABK: return PIMHW_CMD_MAC16;
    case PIMHW_RD_MAC: return PIMHW_CMD_RDMAC16;
    case PIMHW_MAC_SBK: return PIMHW_CMD_MAC;
    case PIMHW_EWMUL: return PIMHW_CMD_EWMUL16;
    case PIMHW_AF: return PIMHW_CMD_AF16;
    case PIMHW_RD_AF: return PIMHW_CMD_RDAF16;
    case PIMHW_COPY_BKGB: return PIMHW_CMD_RDCP;
    case PIMHW_COPY_GBBK: return PIMHW_CMD_WRCP;
    case PIMHW_WR_SBK:
    case PIMHW_MEM_WR: return PIMHW_CMD_WR;
    case PIMHW_RD_SBK:
    case PIMHW_MEM_RD: return PIMHW_CMD_RD;
    case PIMHW_WR_ABK: return PIMHW_CMD_WRA16;
    default: return PIMHW_N_COMMANDS;
    }
}

/* Clocks from a command to its end: by the device, and by the gaps of the fixed controllers. */
static inline uint64_t rules_ends_ck(const pimhw_config *c, uint32_t command)
{
    bool in_order = c->controller == PIMHW_IN_ORDER;
    switch (command) {
    case PIMHW_CMD_WRGB: return in_order ? c->tCWL_GB + c->tBL : c->tWR_INP;
    case PIMHW_CMD_WRMAC16: return in_order ? c->tCWL_REG + c->tBL : c->tWR_INP;
    case PIMHW_CMD_MAC16: return in_order ? c->tCL_MAC : c->tMAC;
    case PIMHW_CMD_MAC:
    case PIMHW_CMD_EWMUL16:
    case PIMHW_CMD_AF16: return in_order ? 1 : c->tMAC;
    case PIMHW_CMD_RDMAC16:
    case PIMHW_CMD_RDAF16: return in_order ? c->tCL_REG + c->tBL : c->tRD_OUT;
    case PIMHW_CMD_RD: return c->tCL + c->tBL;
    case PIMHW_CMD_WR: return c->tCWL + c->tBL;
    case PIMHW_CMD_WRA16: return c->tCWL + c->tBL + c->tRP;
    default: return 1;
    }
}

/* What the clocks after a command are first charged to, and how many of them. */
static inline uint64_t rules_busy_ck(const pimhw_config *c, uint32_t command)
{
    switch (command) {
    case PIMHW_CMD_ACT16:
    case PIMHW_CMD_ACT: return c->tRCD_MAC;
    case PIMHW_CMD_PREA:
    case PIMHW_CMD_PRE: return c->tRP;
    case PIMHW_CMD_REF: return c->tRFC;
    case PIMHW_CMD_TMOD: return c->tMOD;
    case PIMHW_CMD_MAC16: return c->tCCD_MAC;
    default: return c->tCCD_S;
    }
}

static inline pimhw_spent rules_spent(uint32_t command)
{
    switch (command) {
    case PIMHW_CMD_ACT16:
    case PIMHW_CMD_ACT: return PIMHW_SPENT_ACT;
    case PIMHW_CMD_PREA:
    case PIMHW_CMD_PRE: return PIMHW_SPENT_PRE;
    case PIMHW_CMD_REF: return PIMHW_SPENT_REF;
    case PIMHW_CMD_TMOD: return PIMHW_SPENT_MODE;
    default: break;
    }
    switch (rules_class[command]) {
    case RULES_W: return PIMHW_SPENT_WR_INP;
    case RULES_M: return PIMHW_SPENT_MAC;
    case RULES_R: return PIMHW_SPENT_RD_OUT;
    default: return PIMHW_SPENT_ACCESS;
    }
}

/* Makes long times as long as short ones: the check asks for it. */
static inline void rules_long_not_shorter(pimhw_config *c)
{
    if (c->tCCD_L < c->tCCD_S) c->tCCD_L = c->tCCD_S;
    if (c->tRRD_L < c->tRRD_S) c->tRRD_L = c->tRRD_S;
    if (c->tWTR_L < c->tWTR_S) c->tWTR_L = c->tWTR_S;
}

/* The least tREFI with which a device is taken, all else as it is: what the check itself says. */
static inline uint32_t rules_least_tREFI(pimhw_config c)
{
    uint32_t least = 1, most = 1u << 20;
    c.refresh = c.refresh_phase = 1;
    while (least < most) {
        c.tREFI = (least + most) / 2;
        if (pimhw_config_check(&c, NULL) == PIMHW_OK)
            most = c.tREFI;
        else
            least = c.tREFI + 1;
    }
    return least;
}

#endif
