/* aim_text.h - lines of the public AiM simulator's text traces to instructions and back.
 *
 *     AiM MAC_ABK 64 0xffffffff 3 # column=0 tile=0 out=1
 *
 * In the text bit 31 - i of a mask is channel i. What AiM's text lacks stands in a comment of ours;
 * an instruction without it is PIMHW_TIMING_ONLY.
 * The device it is for stands in comments before its first line:
 *
 *     # for aim-gddr6, 32 channels; softmax is a comment
 *     # set tRP=20
 *
 * For programs that have included pim_hw.h, and common.h if they take the device from options. */
#ifndef EX_AIM_TEXT_H
#define EX_AIM_TEXT_H

#include "pim_hw.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EX_AIM_LINE = 160, EX_AIM_CHANNELS = 32 };

/* Kinds of lines: s is op_size, g gpr, m mask, b bank, r row, c channel, n aux, v the last gpr. */
static const struct {
    const char *name, *operands;
} ex_aim_kinds[PIMHW_N_KINDS] = {
    [PIMHW_WR_GB] = {"WR_GB", "sgm"},
    [PIMHW_WR_BIAS] = {"WR_BIAS", "gm"},
    [PIMHW_MAC_ABK] = {"MAC_ABK", "smr"},
    [PIMHW_RD_MAC] = {"RD_MAC", "gm"},
    [PIMHW_MAC_SBK] = {"MAC_SBK", "smbr"},
    [PIMHW_EWMUL] = {"EWMUL", "smr"},
    [PIMHW_AF] = {"AF", "m"},
    [PIMHW_RD_AF] = {"RD_AF", "gm"},
    [PIMHW_COPY_BKGB] = {"COPY_BKGB", "smbr"},
    [PIMHW_COPY_GBBK] = {"COPY_GBBK", "smbr"},
    [PIMHW_WR_SBK] = {"WR_SBK", "gmbr"},
    [PIMHW_RD_SBK] = {"RD_SBK", "gmbr"},
    [PIMHW_WR_ABK] = {"WR_ABK", "gmr"},
    [PIMHW_MEM_WR] = {"MEM_WR", "cbr"},
    [PIMHW_MEM_RD] = {"MEM_RD", "cbr"},
    [PIMHW_EWADD] = {"EWADD", "sgn"},
    [PIMHW_GPR] = {"GPR", "g"},
    [PIMHW_CFR] = {"CFR", "nv"},
    [PIMHW_SYNC] = {"SYNC", ""},
    [PIMHW_EOC] = {"EOC", ""},
    [PIMHW_EPU] = {"EPU", ""},
    [PIMHW_EPU_WAIT] = {"EPU_WAIT", ""},
};

/* The next word of a line, blank-separated; a comment ends the line. */
static inline size_t ex_aim_word(const char **line, const char **word)
{
    *word = *line + strspn(*line, " \t\r\n");
    size_t n = strcspn(*word, " \t\r\n#");
    *line = *word + n;
    return n;
}

/* A decimal or 0x number below 2^32. */
static inline bool ex_aim_number(const char *word, size_t n, uint32_t *value)
{
    bool hex = n > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
    if (hex) {
        word += 2;
        n -= 2;
    }
    if (n == 0 || strspn(word, hex ? "0123456789abcdefABCDEF" : "0123456789") != n) return false;
    uint64_t total = strtoull(word, NULL, hex ? 16 : 10); /* too large: the largest there is */
    *value = (uint32_t)total;
    return total <= UINT32_MAX;
}

/* Channel i is bit 31 - i in the text. */
static inline uint64_t ex_aim_mirror(uint64_t mask)
{
    uint64_t out = 0;
    for (uint32_t i = 0; i < EX_AIM_CHANNELS; i++)
        out |= (mask >> i & 1) << (EX_AIM_CHANNELS - 1 - i);
    return out;
}

/* Whether it has fields that AiM's text lacks. */
static inline bool ex_aim_has_comment(uint32_t kind)
{
    bool hub = kind == PIMHW_EWADD || kind == PIMHW_GPR || kind == PIMHW_CFR;
    return *ex_aim_kinds[kind].operands && !hub;
}

/*
 * The fields AiM's text lacks, where a comment of ours gives them; in another's comment the same
 * words may stand before anything else. False: a number that is none below 2^32.
 */
static inline bool ex_aim_comment_fields(const char *line, const char *name, pimhw_instruction *in,
                                         pimhw_cause *why)
{
    enum { NEEDED = 3, N = 6 };
    static const char names[N][12] = {"column=", "tile=", "out=", "gpr=", "aux=", "distinct="};
    uint32_t *to[N] = {&in->column, &in->tile, &in->out, &in->gpr, &in->aux, &in->flags};
    const char *hash = strchr(line, '#');
    int n_needed = 0;
    for (int i = 0; hash && i < N; i++) {
        const char *at = strstr(hash, names[i]);
        if (!at || (at[-1] != ' ' && at[-1] != '#')) continue;
        if (to[i] == &in->gpr && strchr(ex_aim_kinds[in->kind].operands, 'g')) continue;
        at += strlen(names[i]);
        if (*at < '0' || *at > '9') continue;
        n_needed += i < NEEDED;
        if (!ex_aim_number(at, strcspn(at, " \t\r\n"), to[i])) {
            pimhw_cause_write(why, "%s: %s in the comment is not a number below 2^32", name,
                              names[i]);
            return false;
        }
        if (to[i] == &in->flags) in->flags = in->flags ? PIMHW_DISTINCT : 0;
    }
    if (n_needed < NEEDED) in->flags |= PIMHW_TIMING_ONLY;
    return true;
}

static inline const char *ex_aim_operand_name(char letter)
{
    switch (letter) {
    case 's': return "op_size";
    case 'g': return "gpr";
    case 'm': return "mask";
    case 'b': return "bank";
    case 'r': return "row";
    case 'c': return "channel";
    case 'n': return "register number";
    default: return "value";
    }
}

static inline pimhw_status ex_aim_read_operands(const char *line, const char *name,
                                                const char *operands, pimhw_instruction *in,
                                                pimhw_cause *why)
{
    const char *word;
    for (const char *o = operands; *o; o++) {
        uint32_t value;
        size_t n = ex_aim_word(&line, &word);
        if (n == 0 || !ex_aim_number(word, n, &value)) {
            pimhw_cause_write(why, "%s: %s is missing or not a number below 2^32", name,
                              ex_aim_operand_name(*o));
            return PIMHW_ERR_TEXT;
        }
        if (*o == 's') in->op_size = value;
        if (*o == 'g' || *o == 'v') in->gpr = value;
        if (*o == 'm') in->mask = ex_aim_mirror(value);
        if (*o == 'b') in->bank = value;
        if (*o == 'r') in->row = value;
        if (*o == 'n') in->aux = value;
        if (*o == 'c' && value >= EX_AIM_CHANNELS) {
            pimhw_cause_write(why, "%s: channel is %u, not 0 to 31", name, (uint64_t)value);
            return PIMHW_ERR_TEXT;
        }
        if (*o == 'c') in->mask = (uint64_t)1 << value;
    }
    if (ex_aim_word(&line, &word) > 0) {
        pimhw_cause_write(why, "%s: an operand too many", name);
        return PIMHW_ERR_TEXT;
    }
    if (!ex_aim_has_comment(in->kind)) return PIMHW_OK;
    return ex_aim_comment_fields(line, name, in, why) ? PIMHW_OK : PIMHW_ERR_TEXT;
}

/* Lines of the host are W or R, then MEM, GPR or CFR: the first three letters of their kinds. */
static inline bool ex_aim_is_host_line(uint32_t kind)
{
    return kind == PIMHW_MEM_WR || kind == PIMHW_MEM_RD || kind == PIMHW_GPR || kind == PIMHW_CFR;
}

/* The kind of a line that begins with AiM, W or R, by its second word; 0 if there is none. */
static inline uint32_t ex_aim_kind_of(char head, const char *word, size_t n)
{
    for (uint32_t kind = PIMHW_WR_GB; kind <= PIMHW_EOC; kind++) {
        const char *name = ex_aim_kinds[kind].name;
        bool host = ex_aim_is_host_line(kind);
        if (kind == (head == 'W' ? PIMHW_MEM_RD : PIMHW_MEM_WR) || host != (head != 'A')) continue;
        if (n == (host ? 3 : strlen(name)) && memcmp(word, name, n) == 0) return kind;
    }
    return 0;
}

/*
 * Reads one line. Blank lines and comments give *found = false.
 *
 *   returns  PIMHW_ERR_TEXT with the reason; *instruction then unchanged
 */
static inline pimhw_status ex_aim_parse(const char *line, pimhw_instruction *instruction,
                                        bool *found, pimhw_cause *why)
{
    const char *word;
    char name[24];
    if (!line || !instruction || !found) return PIMHW_ERR_ARGUMENT;
    size_t n = ex_aim_word(&line, &word);
    *found = n > 0;
    if (n == 0) return PIMHW_OK;
    char head = word[0];
    bool aim = n == 3 && memcmp(word, "AiM", 3) == 0;
    if (!aim && (n > 1 || (head != 'W' && head != 'R'))) {
        pimhw_cause_write(why, "the line begins with none of AiM, W, R");
        return PIMHW_ERR_TEXT;
    }
    n = ex_aim_word(&line, &word);
    if (aim && n > 4 && memcmp(word, "ISR_", 4) == 0) {
        word += 4;
        n -= 4;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    uint32_t kind = ex_aim_kind_of(head, word, n);
    if (kind == 0) {
        if (aim)
            pimhw_cause_write(why, "there is no instruction \"%s\"", name);
        else
            pimhw_cause_write(why, "%s is followed by none of MEM, GPR, CFR",
                              head == 'W' ? "W" : "R");
        return PIMHW_ERR_TEXT;
    }
    pimhw_instruction in = {.kind = (pimhw_kind)kind, .op_size = 1};
    in.out = head == 'W' && kind != PIMHW_MEM_WR;
    const char *operands = ex_aim_kinds[kind].operands;
    bool hub = kind == PIMHW_EWADD || kind == PIMHW_GPR || kind == PIMHW_CFR;
    if (!strchr(operands, 'm')) in.mask = hub ? 1 : UINT32_MAX; /* any channel; all channels */
    pimhw_status status = ex_aim_read_operands(line, name, operands, &in, why);
    if (status == PIMHW_OK) *instruction = in;
    return status;
}

static inline size_t ex_aim_put(char line[EX_AIM_LINE], size_t at, const char *word, uint64_t value)
{
    return at + (size_t)snprintf(line + at, EX_AIM_LINE - at, "%s%" PRIu64, word, value);
}

/* Writes operands as ex_aim_read_operands reads them. */
static inline size_t ex_aim_put_operands(char line[EX_AIM_LINE], size_t at, const char *operands,
                                         const pimhw_instruction *in)
{
    uint32_t channel = 0;
    while (channel + 1 < EX_AIM_CHANNELS && !(in->mask >> channel & 1))
        channel++;
    for (const char *o = operands; *o; o++) {
        if (*o == 's') at = ex_aim_put(line, at, " ", in->op_size);
        if (*o == 'g' || *o == 'v') at = ex_aim_put(line, at, " ", in->gpr);
        if (*o == 'b') at = ex_aim_put(line, at, " ", in->bank);
        if (*o == 'r') at = ex_aim_put(line, at, " ", in->row);
        if (*o == 'n') at = ex_aim_put(line, at, " ", in->aux);
        if (*o == 'c') at = ex_aim_put(line, at, " ", channel);
        if (*o != 'm') continue;
        at +=
            (size_t)snprintf(line + at, EX_AIM_LINE - at, " 0x%08" PRIx64, ex_aim_mirror(in->mask));
    }
    return at;
}

/*
 * Writes the line of an instruction; work of the EPU becomes a comment.
 *
 *   returns  PIMHW_ERR_PROGRAM if the text has no form for it: more than 32 channels
 */
static inline pimhw_status ex_aim_format(const pimhw_instruction *instruction,
                                         char line[EX_AIM_LINE], pimhw_cause *why)
{
    const pimhw_instruction *in = instruction;
    if (!in || !line || (uint32_t)in->kind < PIMHW_WR_GB || (uint32_t)in->kind >= PIMHW_N_KINDS)
        return PIMHW_ERR_ARGUMENT;
    const char *name = ex_aim_kinds[in->kind].name, *operands = ex_aim_kinds[in->kind].operands;
    bool host = ex_aim_is_host_line(in->kind);
    bool write = in->kind == PIMHW_MEM_WR || (in->kind != PIMHW_MEM_RD && in->out == 1);
    bool hub = in->kind == PIMHW_EPU || in->kind == PIMHW_EPU_WAIT;
    bool one = in->mask && (in->mask & (in->mask - 1)) == 0;
    if (!hub && (in->mask >> 32 || in->op_size >> 32 || (operands[0] == 'c' && !one))) {
        pimhw_cause_write(why, "%s: the text has 32 channels, op_size below 2^32, MEM one channel",
                          name);
        return PIMHW_ERR_PROGRAM;
    }
    const char *head = host ? write ? "W" : "R" : hub ? "#" : "AiM";
    size_t at = (size_t)snprintf(line, EX_AIM_LINE, "%s %.*s", head, host ? 3 : 9, name);
    if (in->kind == PIMHW_EPU) ex_aim_put(line, at, " elements=", in->op_size);
    at = ex_aim_put_operands(line, at, operands, in);
    if (!ex_aim_has_comment(in->kind) || in->flags & PIMHW_TIMING_ONLY) return PIMHW_OK;
    at = ex_aim_put(line, at, " # column=", in->column);
    at = ex_aim_put(line, at, " tile=", in->tile);
    at = ex_aim_put(line, at, " out=", in->out);
    if (in->gpr && !strchr(operands, 'g')) at = ex_aim_put(line, at, " gpr=", in->gpr);
    if (in->aux) at = ex_aim_put(line, at, " aux=", in->aux);
    if (in->flags & PIMHW_DISTINCT) ex_aim_put(line, at, " distinct=", 1);
    return PIMHW_OK;
}

/* What follows "# set ", of a device that has been told or not; then words alone are a comment. */
static inline pimhw_status ex_aim_read_set(pimhw_config *config, bool told, const char *text,
                                           pimhw_cause *why)
{
    char name[64];
    uint32_t value = 0;
    size_t n = strcspn(text, "=\n"), n_digits = strcspn(text + n, " \t\r\n");
    bool whole =
        n < sizeof name && n_digits > 0 && ex_aim_number(text + n + 1, n_digits - 1, &value);
    if (!whole && !told) return PIMHW_OK;
    if (!told) pimhw_cause_write(why, "\"# set\" before \"# for PRESET, N channels\"");
    if (!whole) pimhw_cause_write(why, "\"# set\" is followed by no FIELD=NUMBER below 2^32");
    if (!whole || !told) return PIMHW_ERR_TEXT;
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    return pimhw_config_set(config, name, value, why);
}

/*
 * The device a trace says it was written for, in the comments before its first line, as
 * ex_aim_write_device writes them. *told is false, and *config as it was, if they say nothing of
 * the kind.
 *
 *   returns  what is wrong with line *n_lines
 */
static inline pimhw_status ex_aim_read_device(pimhw_config *config, bool *told, uint64_t *n_lines,
                                              const char *trace, pimhw_cause *why)
{
    pimhw_status status = PIMHW_OK;
    *told = false;
    *n_lines = 0;
    for (; status == PIMHW_OK; trace += *trace == '\n') {
        char name[64] = "", number[24] = "";
        uint32_t value = 0;
        int end = 0;
        const char *text = trace + strspn(trace, " \t\r");
        if (*text != '#' && *text != '\n') break;
        ++*n_lines;
        trace = text + strcspn(text, "\n");
        if (*text++ == '\n') continue;
        text += strspn(text, " \t");
        if (strncmp(text, "set ", 4) == 0) status = ex_aim_read_set(config, *told, text + 4, why);
        if (*told) continue;
        int n = sscanf(text, "for %63[^,\n], %23[^ \n] channels%n", name, number, &end);
        if (n != 2 || end == 0) continue;
        *told = true;
        if (!ex_aim_number(number, strlen(number), &value)) {
            pimhw_cause_write(why, "\"%s\" channels is not a number below 2^32", number);
            return PIMHW_ERR_TEXT;
        }
        status = pimhw_config_init(config, name, why);
        if (status == PIMHW_OK) config->n_channels = value;
    }
    return status;
}

/* A trace being written, one line an instruction; begin with the file and the rest 0. Without a
 * file nothing is written: whether it could be is in status. */
typedef struct ex_aim_trace {
    FILE *file;
    bool ended; /* an EOC was the last */
    pimhw_status status;
    pimhw_cause why;
} ex_aim_trace;

/* For pimhw_device_resolve, with an ex_aim_trace. */
static inline bool ex_aim_write(void *user, const pimhw_instruction *instruction)
{
    ex_aim_trace *t = (ex_aim_trace *)user;
    char line[EX_AIM_LINE];
    t->status = ex_aim_format(instruction, line, &t->why);
    if (t->status != PIMHW_OK) return false;
    t->ended = instruction->kind == PIMHW_EOC;
    return t->file == NULL || fprintf(t->file, "%s\n", line) > 0;
}

/* First of all: the device, a comment for its preset and one for each field that differs. */
static inline void ex_aim_write_device(ex_aim_trace *t, const pimhw_config *config)
{
    pimhw_config preset;
    const char *field;
    t->status = pimhw_config_init(&preset, config->preset, &t->why);
    if (t->status != PIMHW_OK || t->file == NULL) return;
    fprintf(t->file, "# for %s, %" PRIu32 " channels; softmax is a comment\n", config->preset,
            config->n_channels);
    preset.n_channels = config->n_channels;
    for (uint32_t i = 0; (field = pimhw_config_field(i)) != NULL; i++) {
        uint32_t value = 0, usual = 0;
        pimhw_config_get(config, field, &value, NULL);
        pimhw_config_get(&preset, field, &usual, NULL);
        if (value != usual) fprintf(t->file, "# set %s=%" PRIu32 "\n", field, value);
    }
}

/* All of a program. Where t->ended is false then, the caller writes "AiM EOC" behind it. */
static inline pimhw_status ex_aim_write_program(ex_aim_trace *t, const pimhw_config *config,
                                                const pimhw_program *program,
                                                const pimhw_request *request)
{
    pimhw_device *device = NULL;
    ex_aim_write_device(t, config);
    if (t->status != PIMHW_OK) return t->status;
    pimhw_status status = pimhw_device_create(&device, config, &t->why);
    if (status == PIMHW_OK)
        status = pimhw_device_resolve(device, program, request, ex_aim_write, t, &t->why);
    pimhw_device_destroy(device);
    return status == PIMHW_OK ? t->status : status;
}

#ifdef EX_COMMON_H

/* Says what of a trace is not timed: the hub's softmax, which ex_aim_format makes comments of. A 0
 * may have taken the place of a newline. */
static inline void ex_aim_print_untimed(const char *trace, size_t n_bytes)
{
    static const char start[] = "# EPU elements=";
    const size_t length = sizeof start - 1;
    uint64_t n = 0;
    for (size_t at = 0; at + length <= n_bytes; at++)
        n += (at == 0 || trace[at - 1] == '\n' || trace[at - 1] == 0) &&
             memcmp(trace + at, start, length) == 0;
    if (n > 0)
        printf("# %" PRIu64 " works of the hub (softmax, sums) are comments: not timed\n", n);
}

/* The device of a trace: that of its first lines unless a preset is given, the usual one if there
 * are none; then channels (0: as that has) and fields as ex_device takes them. */
static inline void ex_aim_device(pimhw_config *config, const char *path, const char *trace,
                                 const char *preset, const char *usual, uint32_t n_channels,
                                 const ex_texts *sets)
{
    uint64_t n_lines = 0;
    bool told = false;
    pimhw_cause why = {{0}};
    if (preset == NULL && ex_aim_read_device(config, &told, &n_lines, trace, &why) != PIMHW_OK)
        ex_die("%s: line %" PRIu64 ": %s", path, n_lines, why.text);
    if (!told) ex_device_preset(config, preset != NULL ? preset : usual);
    ex_device_change(config, n_channels, sets);
    ex_device_check(config);
}

#endif /* EX_COMMON_H */

#endif /* EX_AIM_TEXT_H */
