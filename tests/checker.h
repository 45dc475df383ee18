/* checker.h - judges a finished listing of pim_hw.h: constraints, rows, modes, reasons, readings.
 *
 * Its constraint table is its own copy of the published rules of the AiM simulator [AIMSIM]. A
 * checker is the sink of a run and sees every channel:
 *
 *     checker k;
 *     checker_begin(&k, &config);
 *     pimhw_sink sink = {checker_event, &k};
 *     .. run ..
 *     checker_end(&k, &readings);
 *     if (k.fault) puts(k.fault);
 */
#ifndef CHECKER_H
#define CHECKER_H

#include "../pim_hw.h"
#include "check.h"

typedef struct checker_channel {
    uint64_t n, end_ck;
    uint64_t last_ck[PIMHW_N_COMMANDS], count[PIMHW_N_COMMANDS]; /* last_ck counts if count does */
    uint64_t breakdown_ck[PIMHW_N_SPENT];
    pimhw_event last, pending; /* pending: a TMOD, judged with the command that needs it */
    bool has_pending, row_open, register_mode;
    uint32_t row;
} checker_channel;

typedef struct checker {
    const pimhw_config *config;
    const char *fault; /* first thing wrong, NULL: nothing */
    pimhw_event at;    /* where */
    uint64_t n_events;
    uint64_t gap[PIMHW_N_COMMANDS][PIMHW_N_COMMANDS]; /* 0: no constraint */
    checker_channel channels[PIMHW_MAX_CHANNELS];
} checker;

enum { CHECKER_W, CHECKER_M, CHECKER_R, CHECKER_ROW, CHECKER_MODE };

static const int checker_class[PIMHW_N_COMMANDS] = {
    [PIMHW_CMD_ACT16] = CHECKER_ROW, [PIMHW_CMD_PREA] = CHECKER_ROW,
    [PIMHW_CMD_MAC16] = CHECKER_M,   [PIMHW_CMD_WRGB] = CHECKER_W,
    [PIMHW_CMD_WRMAC16] = CHECKER_W, [PIMHW_CMD_RDMAC16] = CHECKER_R,
    [PIMHW_CMD_TMOD] = CHECKER_MODE,
};

static inline void checker_gap(checker *k, pimhw_command from, pimhw_command to, int64_t clocks)
{
    if (clocks > (int64_t)k->gap[from][to]) k->gap[from][to] = (uint64_t)clocks;
}

/* Section 2a of the rules, for the seven commands. */
static inline void checker_begin(checker *k, const pimhw_config *c)
{
    const pimhw_command ACT = PIMHW_CMD_ACT16, PRE = PIMHW_CMD_PREA, MAC = PIMHW_CMD_MAC16;
    const pimhw_command GB = PIMHW_CMD_WRGB, BIAS = PIMHW_CMD_WRMAC16, RD = PIMHW_CMD_RDMAC16;
    const pimhw_command writes[2] = {GB, BIAS}, results[2] = {RD, MAC};
    memset(k, 0, sizeof *k);
    k->config = c;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            checker_gap(k, writes[i], writes[j], c->tBL);
            checker_gap(k, writes[i], writes[j], c->tCCD_S);
            checker_gap(k, results[i], results[j], c->tCCD_S);
            checker_gap(k, results[i], results[j], c->tCCD_L);
        }
    checker_gap(k, BIAS, BIAS, c->tCCD_L);
    checker_gap(k, RD, RD, c->tBL);
    int64_t turn = (int64_t)c->tCL_REG + c->tBL + 3 + c->tWPRE;
    checker_gap(k, RD, GB, turn - c->tCWL_GB);
    checker_gap(k, RD, BIAS, turn - c->tCWL_REG);
    checker_gap(k, GB, RD, (int64_t)c->tCWL_GB + c->tBL + c->tWTR_S);
    checker_gap(k, BIAS, RD, (int64_t)c->tCWL_REG + c->tBL + c->tWTR_L);
    checker_gap(k, MAC, PRE, c->tRTP);
    checker_gap(k, ACT, PRE, c->tRAS);
    checker_gap(k, ACT, ACT, c->tRC);
    checker_gap(k, PRE, ACT, c->tRP);
    checker_gap(k, PRE, PRE, c->tRP);
    checker_gap(k, ACT, MAC, c->tRCD_MAC);
    for (int to = 0; to < PIMHW_N_COMMANDS; to++)
        if (to != PIMHW_CMD_TMOD) checker_gap(k, PIMHW_CMD_TMOD, (pimhw_command)to, c->tMOD);
}

static inline bool checker_fault(checker *k, const pimhw_event *e, const char *what)
{
    if (!k->fault) k->fault = what, k->at = *e;
    return false;
}

/* What a wait for the pair (from, to) is called. */
static inline pimhw_spent checker_bucket(pimhw_command from, pimhw_command to)
{
    if (from == PIMHW_CMD_TMOD) return PIMHW_SPENT_MODE;
    if (checker_class[from] == CHECKER_ROW || checker_class[to] == CHECKER_ROW)
        return PIMHW_WAIT_ROW;
    if (checker_class[from] == CHECKER_W) return PIMHW_WAIT_INPUT;
    return checker_class[from] == CHECKER_M ? PIMHW_WAIT_OPERAND : PIMHW_WAIT_OUTPUT;
}

static inline pimhw_spent checker_spent(const pimhw_config *c, pimhw_command command, uint64_t *ck)
{
    *ck = command == PIMHW_CMD_ACT16  ? c->tRCD_MAC
          : command == PIMHW_CMD_PREA ? c->tRP
          : command == PIMHW_CMD_TMOD ? c->tMOD
                                      : c->tCCD_S;
    switch (command) {
    case PIMHW_CMD_ACT16: return PIMHW_SPENT_ACT;
    case PIMHW_CMD_PREA: return PIMHW_SPENT_PRE;
    case PIMHW_CMD_MAC16: return PIMHW_SPENT_MAC;
    case PIMHW_CMD_RDMAC16: return PIMHW_SPENT_RD_OUT;
    case PIMHW_CMD_TMOD: return PIMHW_SPENT_MODE;
    default: return PIMHW_SPENT_WR_INP;
    }
}

/* The clocks from the last command to now_ck. */
static inline void checker_charge(const checker *k, checker_channel *ch, uint64_t now_ck,
                                  pimhw_spent rest)
{
    uint64_t span = now_ck - (ch->n ? ch->last.issue_ck : 0), busy = 0;
    if (ch->n) {
        pimhw_spent spent = checker_spent(k->config, ch->last.command, &busy);
        if (busy > span) busy = span;
        ch->breakdown_ck[spent] += busy;
    }
    ch->breakdown_ck[rest] += span - busy;
}

/* Row state and mode; e of kind TMOD is for the command needed. */
static inline bool checker_legal(checker *k, checker_channel *ch, const pimhw_event *e,
                                 pimhw_command needed)
{
    int class = checker_class[needed];
    bool wants_register = class == CHECKER_W || class == CHECKER_R;
    bool change = e->command == PIMHW_CMD_TMOD;
    if (needed == PIMHW_CMD_TMOD) return checker_fault(k, e, "TMOD after TMOD");
    if (change && wants_register == ch->register_mode)
        return checker_fault(k, e, "TMOD without need");
    if (!change && wants_register != ch->register_mode) return checker_fault(k, e, "wrong mode");
    if (needed == PIMHW_CMD_ACT16 && ch->row_open)
        return checker_fault(k, e, "ACT16 of open banks");
    if (needed == PIMHW_CMD_PREA && !ch->row_open)
        return checker_fault(k, e, "PREA of closed banks");
    if (needed == PIMHW_CMD_MAC16 && !ch->row_open)
        return checker_fault(k, e, "MAC16, no row open");
    if (e->command == PIMHW_CMD_MAC16 && e->row != ch->row)
        return checker_fault(k, e, "MAC16 in another row");
    if (change) ch->register_mode = !ch->register_mode;
    if (e->command == PIMHW_CMD_ACT16) ch->row_open = true, ch->row = e->row;
    if (e->command == PIMHW_CMD_PREA) ch->row_open = false;
    return true;
}

/* The constraints, and the reason against the one that binds. */
static inline bool checker_clock(checker *k, const checker_channel *ch, const pimhw_event *e,
                                 pimhw_command needed)
{
    uint64_t bound = 0;
    uint32_t binding = 0;
    if (ch->n && e->issue_ck <= ch->last.issue_ck)
        return checker_fault(k, e, "two commands in one clock");
    for (int from = 0; from < PIMHW_N_COMMANDS; from++) {
        uint64_t gap = k->gap[from][needed];
        if (!ch->count[from] || !gap) continue;
        uint64_t t = ch->last_ck[from] + gap;
        if (t > e->issue_ck) return checker_fault(k, e, "too early");
        if (t > bound) bound = t, binding = 0;
        if (t == bound) binding |= 1u << checker_bucket((pimhw_command)from, needed);
    }
    if (bound == e->issue_ck && bound)
        return (binding >> e->reason & 1) || checker_fault(k, e, "reason is not what binds");
    if (ch->n && e->issue_ck == ch->last.issue_ck + 1) return true; /* the command slot */
    if (e->issue_ck && e->reason != PIMHW_WAIT_HOST && e->reason != PIMHW_WAIT_EPU)
        return checker_fault(k, e, "late, but neither for host nor EPU");
    return true;
}

static inline void checker_judge(checker *k, checker_channel *ch, const pimhw_event *e,
                                 pimhw_command needed)
{
    /* after its last command: MAC16 1, writes 3, results 2 clocks with the usual numbers */
    const pimhw_config *c = k->config;
    uint64_t latency = e->command == PIMHW_CMD_WRGB      ? c->tCWL_GB + c->tBL
                       : e->command == PIMHW_CMD_WRMAC16 ? c->tCWL_REG + c->tBL
                       : e->command == PIMHW_CMD_RDMAC16 ? c->tCL_REG + c->tBL
                                                         : 1;
    if (!checker_legal(k, ch, e, needed) || !checker_clock(k, ch, e, needed)) return;
    checker_charge(k, ch, e->issue_ck, e->reason);
    if (e->issue_ck + latency > ch->end_ck) ch->end_ck = e->issue_ck + latency;
    ch->last_ck[e->command] = e->issue_ck;
    ch->count[e->command]++;
    ch->last = *e;
    ch->n++;
}

static inline void checker_event(void *user, const pimhw_event *e)
{
    checker *k = (checker *)user;
    k->n_events++;
    if (k->fault) return;
    if (e->channel >= k->config->n_channels || (unsigned)e->command >= PIMHW_N_COMMANDS ||
        (unsigned)e->reason >= PIMHW_N_SPENT) {
        checker_fault(k, e, "no such channel, command or reason");
        return;
    }
    checker_channel *ch = &k->channels[e->channel];
    if (ch->has_pending) {
        ch->has_pending = false;
        checker_judge(k, ch, &ch->pending, e->command);
    }
    if (e->command == PIMHW_CMD_TMOD)
        ch->pending = *e, ch->has_pending = true;
    else if (!k->fault)
        checker_judge(k, ch, e, e->command);
}

/* Against the readings of the run: counts, breakdown, utilisation. */
static inline void checker_end(checker *k, const pimhw_readings *r)
{
    const pimhw_config *c = k->config;
    pimhw_event end = {0};
    uint64_t count[PIMHW_N_COMMANDS] = {0}, sum = 0, lanes = c->column_bytes / c->element_bytes;
    uint32_t critical = 0, n_busy = 0;
    if (k->fault) return;
    for (uint32_t i = 0; i < c->n_channels; i++) {
        const checker_channel *ch = &k->channels[i];
        end.channel = i;
        if (ch->has_pending) checker_fault(k, &end, "TMOD is the last command");
        if (ch->end_ck > r->cycles) checker_fault(k, &end, "commands end after the run");
        if (ch->end_ck > k->channels[critical].end_ck) critical = i;
        n_busy += ch->count[PIMHW_CMD_MAC16] > 0;
        for (int j = 0; j < PIMHW_N_COMMANDS; j++)
            count[j] += ch->count[j];
    }
    if (k->fault) return;
    for (int j = 0; j < PIMHW_N_COMMANDS; j++)
        if (count[j] != r->commands[j]) checker_fault(k, &end, "readings: commands");
    if (n_busy != r->n_busy_channels) checker_fault(k, &end, "readings: n_busy_channels");
    checker_channel ch = k->channels[r->critical_channel % PIMHW_MAX_CHANNELS];
    checker_charge(k, &ch, r->cycles, PIMHW_WAIT_DRAIN);
    if (r->epu_ck && ch.n &&
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
        if (ch.n && ch.breakdown_ck[j] != r->breakdown_ck[j])
            checker_fault(k, &end, "readings: breakdown");
    }
    if (sum != r->cycles) checker_fault(k, &end, "readings: breakdown does not sum to cycles");
    uint64_t macs = count[PIMHW_CMD_MAC16];
    double all = (double)r->cycles * c->n_channels, used = (double)(macs * c->tCCD_S);
    if (fabs(r->mac_utilisation * all - used) > 1e-9 * (used + 1))
        checker_fault(k, &end, "readings: mac_utilisation");
    if (r->macs != macs * lanes * c->n_bank_groups * c->n_group_banks)
        checker_fault(k, &end, "readings: macs");
    if (r->useful_macs + r->padding_macs != r->macs) checker_fault(k, &end, "readings: padding");
    if (k->n_events && critical != r->critical_channel)
        checker_fault(k, &end, "readings: critical_channel");
    if (fabs(r->ns - (double)r->cycles * c->tCK_ps / 1000) > 1e-9 * r->ns)
        checker_fault(k, &end, "readings: ns");
}

/* True if nothing was wrong; else the first fault is printed. */
static inline bool checker_agrees(const checker *k, const char *what)
{
    if (!k->fault) return true;
    if (check_now.n_errors >= CHECK_PRINTED) return false;
    printf("  %s: checker: %s (channel %u, clock %llu, %s, row %u, reason %s)\n", what, k->fault,
           k->at.channel, (unsigned long long)k->at.issue_ck, pimhw_command_str(k->at.command),
           k->at.row, pimhw_spent_str(k->at.reason));
    return false;
}

#endif
