/* checker.h - judges a finished listing of pim_hw.h: constraints, rows, modes, refresh, the rules
 * of its controller, reasons, readings.
 *
 * By the rules of rules.h and what the controllers promise. A checker is the sink of a run and sees
 * every channel:
 *
 *     checker k;
 *     checker_begin(&k, &config);
 *     pimhw_sink sink = {checker_event, &k, NULL};
 *     .. run ..
 *     checker_end(&k, &readings);
 *     if (k.fault) puts(k.fault);
 *
 * What a listing alone does not say (what was asked for, barriers) is judged by
 * checker_in_order_of, which is told the instructions as well; dispatch and phases by the queue
 * oracle.
 */
#ifndef CHECKER_H
#define CHECKER_H

#include "rules.h"

enum { CHECKER_ENTRIES = 64, CHECKER_ENDS = 512, CHECKER_CLASSES = 3 };

/* The last command of a stream, class or entry; ck counts if command < PIMHW_N_COMMANDS. */
typedef struct checker_last {
    uint64_t ck;
    uint32_t command, bank;
} checker_last;

/* Row commands whose owner, the column command they are for, has not come yet. */
typedef struct checker_rows {
    uint32_t n;
    pimhw_event first;
    uint64_t table_ck; /* the first was allowed by the table then */
    uint32_t reasons;
} checker_rows;

typedef struct checker_channel {
    uint64_t n, end_ck, barrier_ck; /* effects of all, of the last barrier, are there */
    uint64_t count[PIMHW_N_COMMANDS], breakdown_ck[PIMHW_N_SPENT];
    rules_past past;
    pimhw_event last, mode; /* mode: a TMOD, judged with the command that needs it */
    bool has_mode, register_mode;
    bool closes;     /* the last command was a PREA that only a refresh can want */
    uint64_t due_ck; /* of the next refresh */
    uint64_t open_ck, active_ck;
    checker_rows rows;
    checker_last io, mac, any;
    uint64_t mac_stream_ck;
    checker_last tile_w[CHECKER_ENTRIES], tile_m[CHECKER_ENTRIES], out[CHECKER_ENTRIES];
    uint64_t ends_ck[CHECKER_CLASSES][CHECKER_ENDS]; /* ping-pong: of the latest W, M, R */
    uint32_t n_ends[CHECKER_CLASSES];
} checker_channel;

typedef struct checker {
    const pimhw_config *config;
    const char *fault; /* first thing wrong, NULL: nothing */
    pimhw_event at;    /* where */
    uint64_t n_events;
    bool reordered; /* a shared host's accesses go through queues of their own, beside all others */
    rules r;
    checker_channel channels[PIMHW_MAX_CHANNELS];
} checker;

static inline void checker_begin(checker *k, const pimhw_config *c)
{
    static const checker_last none = {0, PIMHW_N_COMMANDS, 0};
    memset(k, 0, offsetof(checker, channels));
    memset(k->channels, 0, c->n_channels * sizeof k->channels[0]);
    k->config = c;
    rules_init(&k->r, c);
    for (uint32_t i = 0; i < c->n_channels; i++) {
        checker_channel *ch = &k->channels[i];
        rules_past_init(&ch->past, c);
        ch->due_ck = c->refresh ? c->refresh_phase : UINT64_MAX;
        ch->io = ch->mac = ch->any = none;
        for (int e = 0; e < CHECKER_ENTRIES; e++)
            ch->tile_w[e] = ch->tile_m[e] = ch->out[e] = none;
    }
}

static inline bool checker_fault(checker *k, const pimhw_event *e, const char *what)
{
    if (!k->fault) k->fault = what, k->at = *e;
    return false;
}

static inline bool checker_any(checker_last last)
{
    return last.command < PIMHW_N_COMMANDS;
}

static inline checker_last checker_last_of(const pimhw_event *e)
{
    checker_last last = {e->issue_ck, e->command, e->bank};
    return last;
}

/* A lower bound of a clock, and what a wait for it may be called. */
typedef struct checker_bound {
    uint64_t ck;
    uint32_t reasons; /* bit per pimhw_spent */
} checker_bound;

static inline void checker_atleast(checker_bound *b, uint64_t ck, uint32_t reasons)
{
    if (ck < b->ck) return;
    if (ck > b->ck) b->reasons = 0;
    b->ck = ck;
    b->reasons |= reasons;
}

enum {
    CHECKER_LATE = 1u << PIMHW_WAIT_HOST | 1u << PIMHW_WAIT_EPU /* held back from outside */
};

/* Bit of what a wait for a command of class W, M or R is called. */
static inline uint32_t checker_wait_for(uint32_t command)
{
    return rules_class[command] == RULES_W   ? 1u << PIMHW_WAIT_INPUT
           : rules_class[command] == RULES_M ? 1u << PIMHW_WAIT_OPERAND
                                             : 1u << PIMHW_WAIT_OUTPUT;
}

/* The clocks from the last command to now_ck. */
static inline void checker_charge(const checker *k, checker_channel *ch, uint64_t now_ck,
                                  pimhw_spent rest)
{
    uint64_t span = now_ck - (ch->n ? ch->last.issue_ck : 0), busy = 0;
    if (ch->n) {
        busy = rules_busy_ck(k->config, ch->last.command);
        if (busy > span) busy = span;
        ch->breakdown_ck[rules_spent(ch->last.command)] += busy;
    }
    ch->breakdown_ck[rest] += span - busy;
}

/* --------------------------------------------------------------------------
 * Rows, modes, refresh.
 * -------------------------------------------------------------------------- */

static inline bool checker_hidden(const checker *k, const pimhw_event *e)
{
    return k->config->controller == PIMHW_STATIC_GAPS &&
           k->config->row_opening == PIMHW_ROW_HIDDEN && rules_class[e->command] == RULES_M;
}

/* Row state; e is no TMOD. */
static inline bool checker_rows_allow(checker *k, const checker_channel *ch, const pimhw_event *e)
{
    const rules_past *past = &ch->past;
    if (e->command == PIMHW_CMD_ACT && past->open[e->bank])
        return checker_fault(k, e, "ACT of an open bank");
    if (e->command == PIMHW_CMD_PRE && !past->open[e->bank])
        return checker_fault(k, e, "PRE of a closed bank");
    if (e->command == PIMHW_CMD_PREA && !rules_any_open(past))
        return checker_fault(k, e, "PREA of closed banks");
    if (e->command == PIMHW_CMD_REF && rules_any_open(past))
        return checker_fault(k, e, "REF with an open row");
    for (uint32_t i = 0; i < past->n_banks && e->command == PIMHW_CMD_ACT16; i++)
        if (past->open[i] && past->open[i] != (uint64_t)e->row + 1)
            return checker_fault(k, e, "ACT16 over another row");
    if (e->command == PIMHW_CMD_ACT16 &&
        rules_needed(past, PIMHW_CMD_MAC16, 0, e->row) == PIMHW_CMD_MAC16)
        return checker_fault(k, e, "ACT16 of open banks");
    if (checker_hidden(k, e)) return true;
    if (rules_needed(past, e->command, e->bank, e->row) != (uint32_t)e->command)
        return checker_fault(k, e, "its row is not open");
    return true;
}

/* The modes of in-order; e of kind TMOD is for the command needed, if it came before a refresh. */
static inline bool checker_modes_allow(checker *k, checker_channel *ch, const pimhw_event *e,
                                       uint32_t needed)
{
    const pimhw_config *c = k->config;
    bool modes = c->controller == PIMHW_IN_ORDER && c->tMOD > 0;
    bool change = e->command == PIMHW_CMD_TMOD, unknown = needed == PIMHW_N_COMMANDS;
    bool wants_register = unknown ? !ch->register_mode : modes && rules_in(needed, RULES_REGISTERS);
    if (change && !modes) return checker_fault(k, e, "TMOD without modes");
    if (needed == PIMHW_CMD_TMOD) return checker_fault(k, e, "TMOD after TMOD");
    if (change && wants_register == ch->register_mode)
        return checker_fault(k, e, "TMOD without need");
    if (change) ch->register_mode = !ch->register_mode;
    if (change || wants_register == ch->register_mode || needed == PIMHW_CMD_REF) return true;
    ch->closes = needed == PIMHW_CMD_PREA; /* a refresh does not mind the mode */
    return ch->closes || checker_fault(k, e, "wrong mode");
}

/* PREA and REF of a refresh come as soon as it is due and the table lets them. */
static inline bool checker_refresh(checker *k, checker_channel *ch, const pimhw_event *e)
{
    rules_clock at = rules_earliest(&k->r, &ch->past, e->command, 0, RULES_EVERY);
    uint64_t from = at.ck > ch->due_ck ? at.ck : ch->due_ck;
    if (e->issue_ck != from) return checker_fault(k, e, "refresh too early or too late");
    if (at.ck > ch->due_ck && !(at.reasons >> e->reason & 1))
        return checker_fault(k, e, "reason of a refresh is not what binds");
    return true;
}

/* --------------------------------------------------------------------------
 * Clocks and reasons, by controller. A bound holds all that the listing tells.
 * -------------------------------------------------------------------------- */

static inline void checker_by_table(const checker *k, const checker_channel *ch,
                                    const pimhw_event *e, uint32_t command, uint32_t of,
                                    checker_bound *b)
{
    rules_clock at = rules_earliest(&k->r, &ch->past, command, e->bank, of);
    if (at.ck) checker_atleast(b, at.ck, at.reasons);
}

/* Distance of two commands of one stream. */
static inline uint64_t checker_gap_ck(const checker *k, checker_last a, const pimhw_event *e)
{
    const rules *r = &k->r;
    uint64_t gap = k->config->tCCD_S, banks = k->config->n_group_banks;
    if (rules_class[a.command] != rules_class[e->command]) return gap;
    uint64_t line = r->pair[RULES_CHANNEL][a.command][e->command].gap_ck;
    if (line > gap) gap = line;
    bool single = rules_in(a.command, RULES_ONE_BANK) && rules_in(e->command, RULES_ONE_BANK);
    line = r->pair[RULES_GROUP][a.command][e->command].gap_ck;
    return single && a.bank / banks == e->bank / banks && line > gap ? line : gap;
}

/* Static: the time s at which a command is eligible. head: what its row waits for instead. */
static inline void checker_static(const checker *k, const checker_channel *ch, const pimhw_event *e,
                                  bool head, checker_bound *b)
{
    if (!checker_any(ch->any)) return;
    bool same = rules_class[ch->any.command] == rules_class[e->command];
    uint64_t gap = same ? checker_gap_ck(k, ch->any, e) : rules_ends_ck(k->config, ch->any.command);
    checker_atleast(b, ch->any.ck + (head ? 0 : gap), checker_wait_for(ch->any.command));
}

static inline void checker_entry(const checker *k, checker_last last, uint64_t early_ck,
                                 checker_bound *b)
{
    if (!checker_any(last)) return;
    uint64_t gap = early_ck ? early_ck : rules_ends_ck(k->config, last.command);
    checker_atleast(b, last.ck + gap, checker_wait_for(last.command));
}

/* Of W, M and R: EWMUL takes banks, and leaves its products in one. */
static inline bool checker_has_out(uint32_t command)
{
    return command != PIMHW_CMD_WRGB && command != PIMHW_CMD_EWMUL16;
}

/* DCS: the last command on the same tile and on the same output. */
static inline void checker_entries(const checker *k, const checker_channel *ch,
                                   const pimhw_event *e, checker_bound *b)
{
    const pimhw_config *c = k->config;
    bool writes = e->command == PIMHW_CMD_WRGB, outs = checker_has_out(e->command);
    bool reads = e->command == PIMHW_CMD_MAC16 || e->command == PIMHW_CMD_MAC;
    if (e->tile >= CHECKER_ENTRIES || e->out >= CHECKER_ENTRIES) return;
    if (writes || reads) checker_entry(k, ch->tile_w[e->tile], 0, b);
    if (writes) checker_entry(k, ch->tile_m[e->tile], c->early_tiles ? c->tCCD_S : 0, b);
    const checker_last *out = &ch->out[e->out];
    bool sums = checker_any(*out) && rules_class[out->command] == RULES_M &&
                rules_class[e->command] == RULES_M;
    if (outs && !(sums && c->is_mac)) checker_entry(k, *out, 0, b);
}

/* W, M, R and their rows under the fixed controllers. */
static inline checker_bound checker_fixed(const checker *k, const checker_channel *ch,
                                          const pimhw_event *e)
{
    checker_bound b = {ch->barrier_ck, CHECKER_LATE};
    int class = rules_class[e->command];
    bool row = class == RULES_ROW, io = class == RULES_W || class == RULES_R;
    bool two = k->config->controller != PIMHW_STATIC_GAPS;
    const checker_last *last = io ? &ch->io : &ch->mac;
    if (two && row) checker_atleast(&b, ch->mac_stream_ck, 1u << PIMHW_WAIT_OPERAND);
    if (two && !row && checker_any(*last))
        checker_atleast(&b, last->ck + checker_gap_ck(k, *last, e), checker_wait_for(e->command));
    if (!two && !row) checker_static(k, ch, e, false, &b);
    if (k->config->controller == PIMHW_DCS && !row) checker_entries(k, ch, e, &b);
    bool table = !io && !checker_hidden(k, e);
    checker_by_table(k, ch, e, e->command, table ? RULES_EVERY : RULES_SET(REF), &b);
    return b;
}

/* Ping-pong: whether a phase can start then, because commands of the class of that reason end. */
static inline bool checker_starts(const checker_channel *ch, const pimhw_event *e)
{
    static const uint8_t waits[CHECKER_CLASSES] = {PIMHW_WAIT_INPUT, PIMHW_WAIT_OPERAND,
                                                   PIMHW_WAIT_OUTPUT};
    for (int class = 0; class < CHECKER_CLASSES; class ++)
        for (uint32_t i = 0; i < CHECKER_ENDS && i < ch->n_ends[class]; i++)
            if (waits[class] == e->reason && ch->ends_ck[class][i] == e->issue_ck) return true;
    return false;
}

/* A clock and its reason against the bound. */
static inline bool checker_judge_clock(checker *k, const checker_channel *ch, const pimhw_event *e,
                                       checker_bound b)
{
    bool in_order = k->config->controller == PIMHW_IN_ORDER;
    uint32_t reason = 1u << e->reason;
    if (e->issue_ck < b.ck) return checker_fault(k, e, "too early");
    if (e->issue_ck == 0) return true;
    if (e->issue_ck == b.ck && reason & b.reasons) return true;
    /* at equal clocks what holds the channel back from outside goes first */
    if (reason & CHECKER_LATE && (e->issue_ck > b.ck || !in_order)) return true;
    if (k->config->controller == PIMHW_PING_PONG && checker_starts(ch, e)) return true;
    return checker_fault(k, e,
                         e->issue_ck == b.ck ? "reason is not what binds"
                                             : "late, but neither for host nor EPU");
}

/* Rows of a MAC under static, whose eligibility is known with the MAC. */
static inline bool checker_owner(checker *k, checker_channel *ch, const pimhw_event *e)
{
    const pimhw_config *c = k->config;
    checker_rows rows = ch->rows;
    ch->rows.n = 0;
    if (rows.n == 0 || c->controller != PIMHW_STATIC_GAPS || rules_class[e->command] != RULES_M)
        return true;
    checker_bound b = {ch->barrier_ck, CHECKER_LATE};
    checker_static(k, ch, e, c->row_opening == PIMHW_ROW_HEAD, &b);
    checker_atleast(&b, rows.table_ck, rows.reasons);
    return checker_judge_clock(k, ch, &rows.first, b);
}

/* In-order: the whole table, one command a clock. */
static inline bool checker_in_order(checker *k, const checker_channel *ch, const pimhw_event *e,
                                    uint32_t needed)
{
    checker_bound b = {0, 0};
    if (ch->n && e->issue_ck <= ch->last.issue_ck)
        return checker_fault(k, e, "two commands in one clock");
    if (needed == PIMHW_N_COMMANDS) return true;
    checker_by_table(k, ch, e, needed, RULES_EVERY, &b);
    bool slot = ch->n && e->issue_ck == ch->last.issue_ck + 1 && b.ck < e->issue_ck;
    return slot || checker_judge_clock(k, ch, e, b);
}

/* A command of a barrier: after everything before it. */
static inline bool checker_barrier(checker *k, const checker_channel *ch, const pimhw_event *e)
{
    checker_bound b = {ch->end_ck, CHECKER_LATE};
    bool again = ch->n && ch->last.command == e->command; /* of the same instruction, perhaps */
    if (again) b.ck = ch->last.issue_ck + 1;
    checker_by_table(k, ch, e, e->command, RULES_EVERY, &b);
    return checker_judge_clock(k, ch, e, b);
}

static inline bool checker_clock(checker *k, checker_channel *ch, const pimhw_event *e,
                                 uint32_t needed)
{
    int class = rules_class[e->command];
    if (k->config->controller == PIMHW_IN_ORDER) return checker_in_order(k, ch, e, needed);
    if (ch->n && e->issue_ck < ch->last.issue_ck) return checker_fault(k, e, "out of order");
    if (class == RULES_OTHER) return checker_barrier(k, ch, e);
    checker_bound b = checker_fixed(k, ch, e);
    bool owned = k->config->controller == PIMHW_STATIC_GAPS && class == RULES_ROW;
    if (!owned) return checker_judge_clock(k, ch, e, b);
    /* when the row of static is looked at is judged with its MAC; here only its table */
    if (e->issue_ck < b.ck) return checker_fault(k, e, "too early");
    if (ch->rows.n++) return e->issue_ck == b.ck || checker_fault(k, e, "row later than it could");
    ch->rows.first = *e;
    ch->rows.table_ck = b.ck;
    ch->rows.reasons = b.reasons;
    return true;
}

/* --------------------------------------------------------------------------
 * Events.
 * -------------------------------------------------------------------------- */

static inline void checker_streams(const checker *k, checker_channel *ch, const pimhw_event *e)
{
    static const checker_last none = {0, PIMHW_N_COMMANDS, 0};
    int class = rules_class[e->command];
    checker_last last = checker_last_of(e);
    uint64_t end_ck = e->issue_ck + rules_ends_ck(k->config, e->command);
    bool entry = e->tile < CHECKER_ENTRIES && e->out < CHECKER_ENTRIES;
    if (class == RULES_M || class == RULES_ROW) ch->mac_stream_ck = e->issue_ck;
    if (class == RULES_OTHER) {
        ch->io = ch->mac = ch->any = none;
        ch->barrier_ck = end_ck;
    }
    if (class > RULES_R) return;
    *(class == RULES_M ? &ch->mac : &ch->io) = ch->any = last;
    ch->ends_ck[class][ch->n_ends[class]++ % CHECKER_ENDS] = end_ck;
    if (!entry) return;
    if (e->command == PIMHW_CMD_WRGB) ch->tile_w[e->tile] = last;
    if (checker_has_out(e->command)) ch->out[e->out] = last;
    if (e->command == PIMHW_CMD_MAC16 || e->command == PIMHW_CMD_MAC) ch->tile_m[e->tile] = last;
}

static inline void checker_takes(checker *k, checker_channel *ch, const pimhw_event *e)
{
    bool open = rules_any_open(&ch->past), in_order = k->config->controller == PIMHW_IN_ORDER;
    int class = rules_class[e->command];
    uint64_t end_ck = e->issue_ck + rules_ends_ck(k->config, e->command);
    uint64_t row = e->row;
    checker_charge(k, ch, e->issue_ck, e->reason);
    if (end_ck > ch->end_ck) ch->end_ck = end_ck;
    /* under the fixed controllers W and R meet the table no more */
    if (in_order || (class != RULES_W && class != RULES_R))
        rules_happened(&ch->past, e->command, e->bank, row, e->issue_ck);
    if (!open && rules_any_open(&ch->past)) ch->open_ck = e->issue_ck;
    if (open && !rules_any_open(&ch->past)) ch->active_ck += e->issue_ck - ch->open_ck;
    if (!in_order) checker_streams(k, ch, e);
    ch->count[e->command]++;
    ch->last = *e;
    ch->n++;
}

static inline void checker_judge(checker *k, checker_channel *ch, const pimhw_event *e,
                                 uint32_t needed)
{
    bool refreshes = e->command == PIMHW_CMD_REF;
    bool closes = e->command == PIMHW_CMD_PREA && e->issue_ck >= ch->due_ck;
    if (ch->closes && !refreshes) {
        checker_fault(k, e, "a PREA that nobody wanted");
        return;
    }
    ch->closes = closes;
    if (!refreshes && !closes && e->issue_ck >= ch->due_ck) {
        checker_fault(k, e, "a refresh is overdue");
        return;
    }
    if (e->command != PIMHW_CMD_TMOD && !checker_rows_allow(k, ch, e)) return;
    if (refreshes || closes) {
        if (!checker_refresh(k, ch, e)) return;
        if (refreshes) ch->due_ck += k->config->tREFI;
        if (refreshes) ch->rows.n = 0; /* their rows are closed again */
    } else {
        if (!checker_modes_allow(k, ch, e, needed) || !checker_clock(k, ch, e, needed)) return;
        if (rules_class[e->command] != RULES_ROW && !checker_owner(k, ch, e)) return;
    }
    checker_takes(k, ch, e);
}

static inline void checker_event(void *user, const pimhw_event *e)
{
    checker *k = (checker *)user;
    k->n_events++;
    if (k->fault) return;
    if (e->channel >= k->config->n_channels || (unsigned)e->command >= PIMHW_N_COMMANDS ||
        (unsigned)e->reason >= PIMHW_N_SPENT || e->bank >= PIMHW_MAX_BANKS) {
        checker_fault(k, e, "no such channel, command, bank or reason");
        return;
    }
    checker_channel *ch = &k->channels[e->channel];
    if (ch->has_mode) {
        bool refresh = (e->command == PIMHW_CMD_PREA || e->command == PIMHW_CMD_REF) &&
                       e->issue_ck >= ch->due_ck;
        bool unknown = refresh || k->reordered; /* what the TMOD was for comes later */
        ch->has_mode = false;
        ch->mode.bank = e->bank; /* in which the command is needed */
        checker_judge(k, ch, &ch->mode, unknown ? PIMHW_N_COMMANDS : (uint32_t)e->command);
    }
    if (e->command == PIMHW_CMD_TMOD)
        ch->mode = *e, ch->has_mode = true;
    else if (!k->fault)
        checker_judge(k, ch, e, e->command);
}

/* --------------------------------------------------------------------------
 * The readings of the run.
 * -------------------------------------------------------------------------- */

static inline bool checker_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (fabs(a) + fabs(b));
}

/* Bytes between the hub and the channels. */
static inline double checker_link_bytes(const pimhw_config *c, const uint64_t *count)
{
    const double banks = c->n_bank_groups * c->n_group_banks;
    double columns = (double)(count[PIMHW_CMD_WRGB] + count[PIMHW_CMD_RD] + count[PIMHW_CMD_WR]);
    double results = (double)(count[PIMHW_CMD_RDMAC16] + count[PIMHW_CMD_RDAF16]);
    columns += banks * (double)count[PIMHW_CMD_WRA16];
    return c->column_bytes * columns +
           banks * (2 * (double)count[PIMHW_CMD_WRMAC16] + c->out_bits / 8 * results);
}

/* Energy from counts, clocks with an open row and refreshes due; in the readings' order. */
static inline void checker_energy(const pimhw_config *c, const uint64_t *count, uint64_t active_ck,
                                  uint64_t cycles, double pJ[PIMHW_N_ENERGY])
{
    double banks = c->n_bank_groups * c->n_group_banks, n[PIMHW_N_COMMANDS];
    double all = 0, asked = 0, due = 0;
    for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++) {
        n[i] = (double)count[i];
        all += n[i];
        if (rules_in(i, RULES_NEED_ROWS | RULES_REGISTERS)) asked += n[i];
    }
    if (c->refresh && cycles >= c->refresh_phase)
        due = (double)((cycles - c->refresh_phase) / c->tREFI + 1);
    double units = banks * (n[PIMHW_CMD_MAC16] + n[PIMHW_CMD_EWMUL16] + n[PIMHW_CMD_AF16]);
    double written = banks * n[PIMHW_CMD_WRA16] + n[PIMHW_CMD_WR] + n[PIMHW_CMD_WRCP];
    double clock_us = (double)c->tCK_ps * 1e-6;
    double idle_ck = (double)(cycles * c->n_channels - active_ck);
    pJ[PIMHW_ENERGY_ROW] = 1e-3 * c->eACT_fJ * (banks * n[PIMHW_CMD_ACT16] + n[PIMHW_CMD_ACT]);
    pJ[PIMHW_ENERGY_MAC] = 1e-3 * c->eMAC_fJ * (units + n[PIMHW_CMD_MAC]);
    pJ[PIMHW_ENERGY_ACCESS] =
        1e-3 * (c->eRD_fJ * (n[PIMHW_CMD_RD] + n[PIMHW_CMD_RDCP]) + c->eWR_fJ * written);
    pJ[PIMHW_ENERGY_INPUT] = 1e-3 * c->eWRGB_fJ * (n[PIMHW_CMD_WRGB] + n[PIMHW_CMD_WRMAC16]);
    pJ[PIMHW_ENERGY_OUTPUT] = 1e-3 * c->eRDMAC_fJ * (n[PIMHW_CMD_RDMAC16] + n[PIMHW_CMD_RDAF16]);
    pJ[PIMHW_ENERGY_LINK] = 1e-3 * c->eLINK_fJ * checker_link_bytes(c, count) / 32;
    pJ[PIMHW_ENERGY_CONTROL] = 1e-3 * (c->eREQ_fJ * asked + c->eCMD_fJ * all);
    pJ[PIMHW_ENERGY_ACTIVE] = (double)active_ck * clock_us * c->pACTIVE_uW;
    pJ[PIMHW_ENERGY_IDLE] = idle_ck * clock_us * c->pIDLE_uW;
    pJ[PIMHW_ENERGY_REFRESH] = 1e-3 * c->eREF_fJ * due * banks * c->n_channels;
}

static inline void checker_end_energy(checker *k, const pimhw_readings *r, const uint64_t *count,
                                      uint64_t active_ck)
{
    double pJ[PIMHW_N_ENERGY], total = 0;
    pimhw_event end = {0};
    checker_energy(k->config, count, active_ck, r->cycles, pJ);
    if (active_ck != r->active_ck) checker_fault(k, &end, "readings: active_ck");
    if ((uint64_t)checker_link_bytes(k->config, count) != r->link_bytes)
        checker_fault(k, &end, "readings: link_bytes");
    for (int i = 0; i < PIMHW_N_ENERGY; i++) {
        end.bank = (uint32_t)i;
        total += r->energy_pJ[i];
        if (!checker_near(pJ[i], r->energy_pJ[i])) checker_fault(k, &end, "readings: energy_pJ");
    }
    if (total > r->total_pJ || total < r->total_pJ) /* not even by a bit */
        checker_fault(k, &end, "readings: total_pJ");
    if (r->ns > 0 && !checker_near(r->average_mW, total / r->ns))
        checker_fault(k, &end, "readings: average_mW");
}

/* MACs, their share of the time, and what the controller keeps. */
static inline void checker_end_use(checker *k, const pimhw_readings *r, const uint64_t *count)
{
    const pimhw_config *c = k->config;
    pimhw_event end = {0};
    uint64_t lanes = c->column_bytes / c->element_bytes;
    uint64_t banks = (uint64_t)c->n_bank_groups * c->n_group_banks;
    uint64_t macs = banks * count[PIMHW_CMD_MAC16] + count[PIMHW_CMD_MAC]; /* of a bank */
    double all = (double)r->cycles * c->n_channels;
    double products = (double)(r->useful_macs ? r->useful_macs : r->macs);
    double peak = all / c->tCCD_MAC * (double)(banks * lanes);
    if (!checker_near(r->mac_utilisation * all * (double)banks, (double)(macs * c->tCCD_MAC)))
        checker_fault(k, &end, "readings: mac_utilisation");
    if (!checker_near(r->flop_utilisation * peak, products))
        checker_fault(k, &end, "readings: flop_utilisation");
    if (r->macs != macs * lanes) checker_fault(k, &end, "readings: macs");
    if (r->useful_macs + r->padding_macs != r->macs) checker_fault(k, &end, "readings: padding");
    if (!checker_near(r->ns, (double)r->cycles * c->tCK_ps / 1000))
        checker_fault(k, &end, "readings: ns");
    uint64_t table = c->controller == PIMHW_DCS ? 8 * (uint64_t)(c->in_entries + c->obuf) : 0;
    if (r->controller_bytes != table) checker_fault(k, &end, "readings: controller_bytes");
}

/* Where the clocks of the critical channel went. */
static inline void checker_end_breakdown(checker *k, const pimhw_readings *r)
{
    pimhw_event end = {0};
    uint64_t sum = 0;
    checker_channel ch = k->channels[r->critical_channel % PIMHW_MAX_CHANNELS];
    bool shared = k->config->front_end == PIMHW_SHARED && k->config->controller == PIMHW_IN_ORDER;
    uint64_t drained_ck = shared ? r->cycles : ch.end_ck;
    checker_charge(k, &ch, drained_ck, PIMHW_WAIT_DRAIN);
    ch.breakdown_ck[PIMHW_WAIT_EPU] += r->cycles - drained_ck;
    if (r->cycles > drained_ck && !r->epu_ck) checker_fault(k, &end, "readings: cycles");
    if (shared && r->epu_ck && ch.n &&
        r->breakdown_ck[PIMHW_WAIT_DRAIN] < ch.breakdown_ck[PIMHW_WAIT_DRAIN]) {
        /* the hub may end last: the clocks after the channel's end are its own */
        uint64_t hub = ch.breakdown_ck[PIMHW_WAIT_DRAIN] - r->breakdown_ck[PIMHW_WAIT_DRAIN];
        if (hub > r->cycles - ch.end_ck) checker_fault(k, &end, "readings: drain too short");
        ch.breakdown_ck[PIMHW_WAIT_DRAIN] -= hub;
        ch.breakdown_ck[PIMHW_WAIT_EPU] += hub;
    }
    for (int j = 0; j < PIMHW_N_SPENT; j++) {
        sum += r->breakdown_ck[j];
        end.reason = (pimhw_spent)j;
        if (r->breakdown_ck[j] > r->cycles) checker_fault(k, &end, "readings: a part above all");
        if (ch.n && ch.breakdown_ck[j] != r->breakdown_ck[j])
            checker_fault(k, &end, "readings: breakdown");
    }
    if (sum != r->cycles) checker_fault(k, &end, "readings: breakdown does not sum to cycles");
}

/* Against the readings of the run: counts, breakdown, utilisation, time with open rows, energy. */
static inline void checker_end(checker *k, const pimhw_readings *r)
{
    const pimhw_config *c = k->config;
    pimhw_event end = {0};
    uint64_t count[PIMHW_N_COMMANDS] = {0}, active_ck = 0;
    uint32_t critical = 0, n_busy = 0;
    if (k->fault) return;
    for (uint32_t i = 0; i < c->n_channels; i++) {
        checker_channel *ch = &k->channels[i];
        end.channel = i;
        if (ch->has_mode && !k->reordered) checker_fault(k, &end, "TMOD is the last command");
        if (ch->has_mode) checker_judge(k, ch, &ch->mode, PIMHW_N_COMMANDS);
        if (ch->closes) checker_fault(k, &end, "PREA is the last command");
        /* for what stays queued: under way at the end */
        bool behind = k->reordered && ch->last.issue_ck + c->tRFC > r->cycles;
        if (ch->n && ch->last.command == PIMHW_CMD_REF && !behind)
            checker_fault(k, &end, "REF is the last command");
        if (ch->rows.n) checker_fault(k, &end, "rows are opened for nobody");
        if (ch->end_ck > r->cycles && !k->reordered)
            checker_fault(k, &end, "commands end after the run");
        if (ch->end_ck > k->channels[critical].end_ck) critical = i;
        n_busy += ch->count[PIMHW_CMD_MAC16] + ch->count[PIMHW_CMD_MAC] > 0;
        active_ck += ch->active_ck;
        if (rules_any_open(&ch->past) && r->cycles > ch->open_ck)
            active_ck += r->cycles - ch->open_ck;
        for (int j = 0; j < PIMHW_N_COMMANDS; j++)
            count[j] += ch->count[j];
    }
    if (k->fault) return;
    for (int j = 0; j < PIMHW_N_COMMANDS; j++)
        if (count[j] != r->commands[j]) checker_fault(k, &end, "readings: commands");
    if (n_busy != r->n_busy_channels) checker_fault(k, &end, "readings: n_busy_channels");
    if (k->n_events && critical != r->critical_channel)
        checker_fault(k, &end, "readings: critical_channel");
    const checker_channel *slowest = &k->channels[r->critical_channel % PIMHW_MAX_CHANNELS];
    if (slowest->count[PIMHW_CMD_MAC16] + slowest->count[PIMHW_CMD_MAC] != r->critical_macs)
        checker_fault(k, &end, "readings: critical_macs");
    checker_end_breakdown(k, r);
    checker_end_use(k, r, count);
    checker_end_energy(k, r, count, active_ck);
}

/* --------------------------------------------------------------------------
 * The listing against the instructions that were sent.
 * -------------------------------------------------------------------------- */

/* A column command of one channel that the program asks for, and its event once found. */
typedef struct checker_wanted {
    uint32_t command, bank, row, column, tile, out;
    const pimhw_event *event;
    bool table_row; /* AF: whose row the listing alone knows */
} checker_wanted;

typedef struct checker_order {
    const pimhw_config *config;
    const char *fault;
    uint32_t channel;
    uint64_t clock;
} checker_order;

/* Which of the streams that keep their order: all in one; or MACs, and I/O beside them. */
static inline int checker_stream(const pimhw_config *c, uint32_t command)
{
    bool two = c->controller == PIMHW_DCS || c->controller == PIMHW_PING_PONG;
    return two && (rules_class[command] == RULES_W || rules_class[command] == RULES_R);
}

static inline bool checker_same(const checker_wanted *w, const pimhw_event *e)
{
    int class = rules_class[w->command];
    bool reads = w->command == PIMHW_CMD_MAC16 || w->command == PIMHW_CMD_MAC;
    bool tiles = w->command == PIMHW_CMD_WRGB || reads;
    bool outs = class <= RULES_R && checker_has_out(w->command);
    return w->command == (uint32_t)e->command &&
           (!rules_in(w->command, RULES_ONE_BANK) || w->bank == e->bank) &&
           (!rules_in(w->command, RULES_NEED_ROWS) || w->table_row || w->row == e->row) &&
           (!tiles || w->tile == e->tile) && (!outs || w->out == e->out) &&
           (w->command != PIMHW_CMD_MAC16 || w->column == e->column);
}

/* Finds the event's command: the next of its stream, or where order is free the next like it. */
static inline bool checker_find(const pimhw_config *c, checker_wanted *wanted, size_t n,
                                size_t *from, const pimhw_event *e)
{
    int stream = checker_stream(c, e->command);
    bool host = c->controller == PIMHW_IN_ORDER && c->front_end == PIMHW_SHARED;
    bool access = host && (e->command == PIMHW_CMD_RD || e->command == PIMHW_CMD_WR);
    bool free_order = access || (c->controller == PIMHW_PING_PONG && stream);
    while (*from < n && wanted[*from].event)
        ++*from;
    for (size_t i = *from; i < n; i++) {
        if (wanted[i].event) continue;
        if (!free_order && checker_stream(c, wanted[i].command) != stream) continue;
        if (checker_same(&wanted[i], e)) return wanted[i].event = e, true;
        bool waits =
            host && (wanted[i].command == PIMHW_CMD_RD || wanted[i].command == PIMHW_CMD_WR);
        if (!free_order && !waits) return false;
    }
    return false;
}

/* What instruction in asks of the channel, appended to wanted if it is not NULL; how much. */
static inline size_t checker_expand(const pimhw_instruction *in, uint32_t channel,
                                    checker_wanted *wanted)
{
    uint32_t command = rules_command(in->kind);
    if (command == PIMHW_N_COMMANDS || !(in->mask >> channel & 1)) return 0;
    for (uint32_t i = 0; i < in->op_size && wanted; i++) {
        checker_wanted w = {command,      in->bank, in->row, in->column + i,
                            in->tile + i, in->out,  NULL,    in->kind == PIMHW_AF};
        wanted[i] = w;
    }
    return (size_t)in->op_size;
}

static inline bool checker_all(pimhw_kind kind)
{
    return kind == PIMHW_SYNC || kind == PIMHW_EOC || kind == PIMHW_CFR;
}

/* Fixed controllers: nothing before the end of a barrier; operands and sums are there in time. */
static inline void checker_in_time(checker_order *o, const pimhw_instruction *in, size_t n,
                                   const checker_wanted *wanted, const uint64_t *held_ck)
{
    const pimhw_config *c = o->config;
    uint64_t tile_ck[CHECKER_ENTRIES] = {0}, out_ck[CHECKER_ENTRIES] = {0};
    uint64_t hold_ck = 0, end_ck = 0;
    for (size_t i = 0; i < n; i++) {
        size_t commands = checker_expand(&in[i], o->channel, NULL);
        bool barrier = commands && rules_class[wanted->command] > RULES_R;
        if (barrier && end_ck > hold_ck) hold_ck = end_ck;
        if (checker_all(in[i].kind) && held_ck[i] > hold_ck) hold_ck = held_ck[i];
        for (; commands > 0; commands--, wanted++) {
            uint64_t ck = wanted->event->issue_ck, end = ck + rules_ends_ck(c, wanted->command);
            bool reads = wanted->command == PIMHW_CMD_MAC16 || wanted->command == PIMHW_CMD_MAC;
            uint32_t tile = wanted->tile % CHECKER_ENTRIES, out = wanted->out % CHECKER_ENTRIES;
            int class = rules_class[wanted->command];
            bool late = (reads && ck < tile_ck[tile]) || (class == RULES_R && ck < out_ck[out]);
            if (ck < hold_ck || late) {
                o->fault = late ? "before its operand is there" : "before a barrier is over";
                o->clock = ck;
                return;
            }
            if (wanted->command == PIMHW_CMD_WRGB) tile_ck[tile] = end;
            if (class == RULES_M && checker_has_out(wanted->command)) out_ck[out] = end;
            if (end > end_ck) end_ck = end;
        }
        if (barrier && end_ck > hold_ck) hold_ck = end_ck;
    }
}

/* Gives every command of the channel its event. */
static inline void checker_match(checker_order *o, const pimhw_instruction *in, size_t n,
                                 const pimhw_event *events, size_t n_events, checker_wanted *wanted)
{
    const pimhw_config *c = o->config;
    bool forwards = c->controller == PIMHW_IN_ORDER && c->front_end == PIMHW_SHARED;
    size_t n_wanted = 0, from = 0;
    for (size_t i = 0; i < n; i++)
        n_wanted += checker_expand(&in[i], o->channel, &wanted[n_wanted]);
    for (size_t i = 0; i < n_events; i++) {
        const pimhw_event *e = &events[i];
        int class = rules_class[e->command];
        if (e->channel != o->channel || class == RULES_ROW || class == RULES_MODE) continue;
        if (checker_find(c, wanted, n_wanted, &from, e)) continue;
        o->fault = "not what the program asks for next";
        o->clock = e->issue_ck;
        return;
    }
    for (size_t i = 0; i < n_wanted; i++) {
        bool access = wanted[i].command == PIMHW_CMD_RD || wanted[i].command == PIMHW_CMD_WR;
        /* a shared host forwards reads, and does not wait for every access */
        if (!wanted[i].event && !(forwards && access)) o->fault = "a command never came";
    }
}

/* Raises the ends that SYNC, EOC and CFR wait for by those of this channel. */
static inline void checker_ends(const checker_order *o, const pimhw_instruction *in, size_t n,
                                const checker_wanted *wanted, uint64_t *held_ck)
{
    uint64_t end_ck = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = checker_expand(&in[i], o->channel, NULL); k > 0; k--, wanted++) {
            uint64_t end = wanted->event->issue_ck + rules_ends_ck(o->config, wanted->command);
            if (end > end_ck) end_ck = end;
        }
        if (checker_all(in[i].kind) && end_ck > held_ck[i]) held_ck[i] = end_ck;
    }
}

/*
 * Whether the listing holds what the instructions ask for, no more, and in an order that the
 * controller may give it.
 */
static inline checker_order checker_judge_order(const pimhw_config *c, const pimhw_instruction *in,
                                                size_t n, const pimhw_event *events,
                                                size_t n_events)
{
    checker_order o = {c, NULL, 0, 0};
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += (size_t)in[i].op_size;
    checker_wanted *wanted = (checker_wanted *)check_alloc(most, sizeof *wanted);
    uint64_t *held_ck = (uint64_t *)check_alloc(n, sizeof *held_ck);
    bool in_order = c->controller == PIMHW_IN_ORDER;
    for (int pass = 0; pass < (in_order ? 1 : 2); pass++)
        for (uint32_t i = 0; i < c->n_channels && !o.fault; i++) {
            o.channel = i;
            checker_match(&o, in, n, events, n_events, wanted);
            if (o.fault || in_order) continue;
            if (pass == 0)
                checker_ends(&o, in, n, wanted, held_ck);
            else
                checker_in_time(&o, in, n, wanted, held_ck);
        }
    free(wanted);
    free(held_ck);
    return o;
}

/* True if so; else where not is printed. */
static inline bool checker_in_order_of(const pimhw_config *c, const pimhw_instruction *in, size_t n,
                                       const pimhw_event *events, size_t n_events)
{
    checker_order o = checker_judge_order(c, in, n, events, n_events);
    if (o.fault && check_now.n_errors < CHECK_PRINTED)
        printf("  channel %u, clock %llu: %s\n", o.channel, (unsigned long long)o.clock, o.fault);
    return o.fault == NULL;
}

/* True if nothing was wrong; else the first fault is printed. */
static inline bool checker_agrees(const checker *k, const char *what)
{
    if (!k->fault) return true;
    if (check_now.n_errors >= CHECK_PRINTED) return false;
    printf("  %s: checker: %s (channel %u, clock %llu, %s, bank %u, row %u, reason %s)\n", what,
           k->fault, k->at.channel, (unsigned long long)k->at.issue_ck,
           pimhw_command_str(k->at.command), k->at.bank, k->at.row, pimhw_spent_str(k->at.reason));
    return false;
}

#endif
