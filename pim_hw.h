/* pim_hw.h - a processing-in-memory DRAM to describe, program and time.
 *
 * Version 0.1.0. C99 or C++11, libc only. In exactly one source file:
 *
 *     #define PIMHW_IMPLEMENTATION
 *     #include "pim_hw.h"
 *
 * The smallest complete program (one row of one bank set, 64 columns):
 *
 *     pimhw_config c;
 *     pimhw_device *d;
 *     pimhw_readings r;
 *     pimhw_instruction mac;
 *     memset(&mac, 0, sizeof mac);
 *     mac.kind = PIMHW_MAC_ABK, mac.mask = 1, mac.op_size = 64;
 *     pimhw_config_init(&c, "aimx", NULL);
 *     pimhw_device_create(&d, &c, NULL);
 *     pimhw_device_begin(d, NULL);
 *     pimhw_device_submit(d, &mac, NULL);
 *     pimhw_device_finish(d, &r, NULL);
 *     printf("%llu clocks\n", (unsigned long long)r.cycles);
 *     pimhw_device_destroy(d);
 *
 * Options, to define before the include:
 *
 *     PIMHW_IMPLEMENTATION  build the functions here (PIMATTN_IMPLEMENTATION implies it)
 *     PIMHW_STATIC          every function becomes a private copy of this source file
 *     PIMHW_ASSERT(x)       what checks our own invariants; default: assert
 *
 * Rooms. Front: [H1] options, [H2] foundations, [H4] parameters, [H5] programs, [H6] device,
 * [H7] readings. Back: [H8] cellar, [H9] tables, [H13] timing, [H15] controllers,
 * [H16] dispatcher, [H17] device.
 *
 * Papers and sources, as cited below: [AIMSIM] the public AiM simulator, commit 0f28a07;
 * [LOL] LoL-PIM; [PHONY] PIMphony; [CENT] CENT, commit 8c79786.
 *
 * Licence (MIT) at the end.
 */
#ifndef PIM_HW_H
#define PIM_HW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==========================================================================
 * [H1] OPTIONS: macros a user may set.
 * ========================================================================== */

#ifdef PIMHW_STATIC
#define PIMHW_API static inline
#else
#define PIMHW_API extern
#endif

/* ==========================================================================
 * [H2] FOUNDATIONS: version, status, cause, allocator.
 * ========================================================================== */

#define PIMHW_VERSION_MAJOR 0
#define PIMHW_VERSION_MINOR 1
#define PIMHW_VERSION_PATCH 0

typedef enum pimhw_status {
    PIMHW_OK = 0,
    PIMHW_ERR_ARGUMENT, /* a pointer, index or size of the call is wrong */
    PIMHW_ERR_CONFIG,   /* the device description contradicts itself; the cause names the field */
    PIMHW_ERR_NAME,     /* no preset or field of that name */
    PIMHW_ERR_MEMORY,   /* the allocator gave nothing */
    PIMHW_ERR_PROGRAM,  /* an instruction the device cannot do; the cause has its index and field */
    PIMHW_ERR_TEXT      /* a line of a text trace that does not parse */
} pimhw_status;

/* What a status means, in words; never NULL. */
PIMHW_API const char *pimhw_status_str(pimhw_status status);

/* Why a call failed: field, index or address in words. Filled on failure only; may be NULL. */
typedef struct pimhw_cause {
    char text[160];
} pimhw_cause;

/*
 * Writes a cause. The format knows %s (const char *) and %u (uint64_t); what does not fit is cut.
 * why may be NULL.
 */
PIMHW_API void pimhw_cause_write(pimhw_cause *why, const char *format, ...);

/* Both set or neither; neither is malloc and free. Sizes in bytes, align a power of two. */
typedef struct pimhw_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *ptr, size_t bytes);
    void *user;
} pimhw_allocator;

/* malloc and free. */
PIMHW_API pimhw_allocator pimhw_allocator_default(void);

/* ==========================================================================
 * [H4] PARAMETERS: what a device is: geometry, clocks, buffers, hub.
 * ========================================================================== */

enum { PIMHW_MAX_CHANNELS = 64, PIMHW_MAX_BANKS = 64 };

/* Who feeds the channels. */
typedef enum pimhw_front_end {
    PIMHW_PER_CHANNEL = 0, /* each channel its own stream; a read stalls nobody else */
    PIMHW_SHARED = 1       /* one stream, one instruction a tick, reads block [AIMSIM] */
} pimhw_front_end;

/* What empties an output entry before its first MAC. */
typedef enum pimhw_out_clear {
    PIMHW_CLEAR_READ = 0, /* RD_MAC empties it */
    PIMHW_CLEAR_BIAS = 1  /* WR_BIAS fills it: the AiM dialect */
} pimhw_out_clear;

/* Whether the softmax of one block hides behind the scores of the next. */
typedef enum pimhw_epu_overlap {
    PIMHW_EPU_NONE = 0, /* scores, softmax, values: one after the other */
    PIMHW_EPU_HEADS = 1 /* softmax of block i beside the scores of block i + 1 [LOL] */
} pimhw_epu_overlap;

/*
 * A device. pimhw_config_init fills every field from a preset; afterwards 0 is 0 and
 * pimhw_config_check judges it. Times are whole memory clocks of tCK_ps.
 */
typedef struct pimhw_config {
    char preset[24];           /* where the numbers came from */
    uint32_t n_channels;       /* 1 to 64 */
    uint32_t n_bank_groups;    /* per channel */
    uint32_t n_group_banks;    /* banks of one bank group */
    uint32_t n_rows;           /* of a bank; rows of a request's blocks are virtual: no limit */
    uint32_t row_bytes;        /* of one bank */
    uint32_t column_bytes;     /* one access: 16 lanes of 2 bytes in all presets */
    uint32_t element_bytes;    /* of a lane */
    uint32_t in_entries;       /* global buffer of a channel, in columns */
    uint32_t out_entries;      /* accumulators of a bank's unit */
    uint32_t out_clear;        /* pimhw_out_clear */
    uint32_t front_end;        /* pimhw_front_end */
    uint32_t queue_entries;    /* requests a channel queue holds (front_end shared) */
    uint32_t tCK_ps;           /* the one clock period */
    uint32_t tBL;              /* data burst */
    uint32_t tCCD_S;           /* column command to column command */
    uint32_t tCCD_L;           /* the same, between MAC, result and bias accesses */
    uint32_t tRCD_MAC;         /* ACT to MAC */
    uint32_t tRCD_RD;          /* ACT to RD */
    uint32_t tRCD_WR;          /* ACT to WR */
    uint32_t tRCD_AF;          /* ACT to AF */
    uint32_t tRCD_EWMUL;       /* ACT to EWMUL */
    uint32_t tRCD_RDCP;        /* ACT to RDCP: bank to global buffer */
    uint32_t tRCD_WRCP;        /* ACT to WRCP: global buffer to bank */
    uint32_t tRRD_S;           /* ACT to ACT */
    uint32_t tRRD_L;           /* ACT to ACT of one bank group */
    uint32_t tCL;              /* RD to data */
    uint32_t tCWL;             /* WR to data */
    uint32_t tWR;              /* end of a write's data to PRE */
    uint32_t tRP;              /* PRE to ACT */
    uint32_t tRAS;             /* ACT to PRE */
    uint32_t tRC;              /* ACT to ACT of one bank */
    uint32_t tRTP;             /* MAC to PRE */
    uint32_t tWTR_S;           /* end of a global buffer write to a result read */
    uint32_t tWTR_L;           /* end of a bias write to a result read */
    uint32_t tWPRE;            /* write preamble */
    uint32_t tCL_REG;          /* result read to data */
    uint32_t tCWL_REG;         /* bias write to data */
    uint32_t tCWL_GB;          /* global buffer write to data */
    uint32_t tMOD;             /* change between register mode and normal mode */
    uint32_t epu_lanes;        /* hub: elements the EPU takes at once */
    uint32_t epu_ck_per_op;    /* hub: clocks of one EPU operation on all its lanes */
    uint32_t epu_passes;       /* hub: passes of softmax over the scores */
    uint32_t epu_overlap;      /* pimhw_epu_overlap */
    pimhw_allocator allocator; /* default: malloc and free */
} pimhw_config;

/*
 * Fills *config from a preset: "aimx" (default of the library: one module of 16 channels, a
 * stream per channel [LOL]) or "aim-gddr6" (the public simulator: 32 channels, shared front end).
 *
 *   returns  PIMHW_ERR_NAME if there is no such preset; *config then unchanged
 */
PIMHW_API pimhw_status pimhw_config_init(pimhw_config *config, const char *preset,
                                         pimhw_cause *why);

/* Name of preset i, NULL beyond the last. */
PIMHW_API const char *pimhw_preset_name(uint32_t i);

/* Source key of a preset's value of a field, NULL if there is no such preset or field. */
PIMHW_API const char *pimhw_preset_source(const char *preset, const char *field);

/* Name of settable field i, NULL beyond the last. */
PIMHW_API const char *pimhw_config_field(uint32_t i);

/*
 * Sets one number by its field's name, e.g. ("tRP", 30); reads one back.
 *
 *   returns  PIMHW_ERR_NAME if there is no such field; *config then unchanged
 */
PIMHW_API pimhw_status pimhw_config_set(pimhw_config *config, const char *field, uint32_t value,
                                        pimhw_cause *why);
PIMHW_API pimhw_status pimhw_config_get(const pimhw_config *config, const char *field,
                                        uint32_t *value, pimhw_cause *why);

/*
 * Judges a description.
 *
 *   returns  PIMHW_ERR_CONFIG with the first wrong field, its value and its limits in *why
 */
PIMHW_API pimhw_status pimhw_config_check(const pimhw_config *config, pimhw_cause *why);

/* Banks of a channel; columns of a row; lanes of a unit. */
PIMHW_API uint32_t pimhw_config_banks(const pimhw_config *config);
PIMHW_API uint32_t pimhw_config_columns(const pimhw_config *config);
PIMHW_API uint32_t pimhw_config_lanes(const pimhw_config *config);

/* ==========================================================================
 * [H5] PROGRAMS: instructions, loops, requests.
 *
 * A program depends on device, plan and shape only. What differs between two decode steps
 * (lengths, which channel takes which block) is request data, so one program serves them all.
 * ========================================================================== */

typedef enum pimhw_kind {
    /* structure, in programs only */
    PIMHW_LOOP = 0, /* op_size: how often; to its PIMHW_END */
    PIMHW_LIST,     /* the blocks of the request, and aux further rounds; to its PIMHW_END */
    PIMHW_BLOCK,    /* inside a list: runs with the block of aux rounds ago, if there is one */
    PIMHW_END,      /* closes the innermost of the three */
    /* instructions */
    PIMHW_WR_GB,     /* W: op_size columns from the GPR into the global buffer at tile */
    PIMHW_WR_BIAS,   /* W: fills output entry out of every bank */
    PIMHW_MAC_ABK,   /* M: op_size columns of the row, times tiles from tile, into entry out */
    PIMHW_RD_MAC,    /* R: output entry out of every bank into the GPR */
    PIMHW_MAC_SBK,   /* M: as MAC_ABK, in one bank */
    PIMHW_EWMUL,     /* products of columns of neighbouring banks, op_size columns */
    PIMHW_AF,        /* activation function of every bank's entry, by the table row CFR 2 says */
    PIMHW_RD_AF,     /* R: result of AF out of every bank */
    PIMHW_COPY_BKGB, /* op_size columns of a bank into the global buffer at tile */
    PIMHW_COPY_GBBK, /* and back */
    PIMHW_WR_SBK,    /* one column from the GPR into a bank, through the ordinary write queue */
    PIMHW_RD_SBK,    /* one column of a bank into the GPR, through the ordinary read queue */
    PIMHW_WR_ABK,    /* one column into every bank of one channel; closes their rows */
    PIMHW_MEM_WR,    /* host write of one column: as WR_SBK */
    PIMHW_MEM_RD,    /* host read of one column: as RD_SBK */
    PIMHW_EWADD,     /* hub: sum of GPR blocks gpr and aux */
    PIMHW_GPR,       /* host access to block gpr, a write if out is 1 */
    PIMHW_CFR,       /* host access to register aux; a write (out 1) sets it to gpr */
    PIMHW_SYNC,      /* waits until all channels are done */
    PIMHW_EOC,       /* the same, and ends the stream */
    PIMHW_EPU,       /* hub: op_size elements of work, once everything before is done */
    PIMHW_EPU_WAIT,  /* waits for the oldest EPU work with PIMHW_AWAITED */
    PIMHW_N_KINDS
} pimhw_kind;

enum {
    PIMHW_DISTINCT = 1, /* WR_GB: channel i takes GPR block gpr + i, else all take the same */
    PIMHW_AWAITED = 2   /* EPU: a PIMHW_EPU_WAIT will wait for it */
};

/*
 * One instruction with its operands resolved. A field that its kind does not name is 0. Bit i of
 * mask is channel i; SYNC and EOC address all channels whatever it says.
 */
typedef struct pimhw_instruction {
    pimhw_kind kind;
    uint32_t flags;   /* PIMHW_DISTINCT, PIMHW_AWAITED */
    uint64_t mask;    /* channels */
    uint64_t op_size; /* columns; EPU: elements */
    uint32_t bank;
    uint32_t row;
    uint32_t column; /* first column of the row */
    uint32_t tile;   /* first entry of the global buffer */
    uint32_t out;    /* output entry */
    uint32_t gpr;
    uint32_t aux;
} pimhw_instruction;

enum {
    PIMHW_LOOPS = 6,  /* loops that can be nested, the list included */
    PIMHW_RESTS = 6,  /* numbers a block of a request carries */
    PIMHW_SPACES = 2, /* row spaces of a block, e.g. of K and of V */
    PIMHW_PROGRAM_ITEMS = 96,
    PIMHW_PROGRAM_OPERANDS = 80,
    PIMHW_PROGRAM_TAILS = 40
};

/*
 * What is left of a number of the request, in units:
 *
 *     left  = base + rests[rest] - channel_step * (channel / channel_div)
 *                  - sum over loops of step[loop] * index[loop]
 *     value = left <= 0 ? 0 : mul * ceil(left / unit)
 */
typedef struct pimhw_tail {
    uint64_t base;
    uint64_t unit; /* 0 counts as 1 */
    uint64_t mul;  /* 0 counts as 1 */
    uint64_t step[PIMHW_LOOPS];
    uint64_t channel_step;
    uint32_t channel_div; /* 0 counts as 1 */
    uint32_t rest;        /* number of the block, plus 1; 0: none */
} pimhw_tail;

/*
 * value = base + sum over loops of step[loop] * index[loop], but at most each named tail. Loop 0 is
 * the outermost open one; a list counts, a block does not.
 */
typedef struct pimhw_operand {
    uint64_t base;
    uint64_t step[PIMHW_LOOPS];
    uint8_t tail[2]; /* from pimhw_program_tail; 0: none */
    uint8_t reserved[6];
} pimhw_operand;

/* An instruction whose operands are named by pimhw_program_operand; 0 is the constant 0. */
typedef struct pimhw_item {
    uint64_t mask; /* channels that may take part */
    uint16_t end;  /* structure: index of its PIMHW_END, filled by the builder */
    uint8_t kind;
    uint8_t flags;
    uint8_t space; /* row space: the block's row_base[space] is added to row */
    uint8_t op_size;
    uint8_t bank;
    uint8_t row;
    uint8_t column;
    uint8_t tile;
    uint8_t out;
    uint8_t gpr;
    uint8_t aux; /* list and block: a constant */
} pimhw_item;

/*
 * A program: a plain value, no memory behind it. The first building call that fails leaves its
 * status and cause in the program; pimhw_program_check returns it.
 */
typedef struct pimhw_program {
    uint32_t n_items, n_operands, n_tails, depth;
    uint16_t open[2 * PIMHW_LOOPS]; /* structures not yet closed */
    pimhw_status status;
    pimhw_cause why;
    pimhw_item items[PIMHW_PROGRAM_ITEMS];
    pimhw_operand operands[PIMHW_PROGRAM_OPERANDS];
    pimhw_tail tails[PIMHW_PROGRAM_TAILS];
} pimhw_program;

PIMHW_API void pimhw_program_init(pimhw_program *program);

/* Names a tail, an operand or a constant; equal ones share a name. 0 when the program is full. */
PIMHW_API uint8_t pimhw_program_tail(pimhw_program *program, const pimhw_tail *tail);
PIMHW_API uint8_t pimhw_program_operand(pimhw_program *program, const pimhw_operand *operand);
PIMHW_API uint8_t pimhw_program_const(pimhw_program *program, uint64_t value);

/* Appends an item, or an instruction with constant operands. */
PIMHW_API void pimhw_program_item(pimhw_program *program, const pimhw_item *item);
PIMHW_API void pimhw_program_add(pimhw_program *program, const pimhw_instruction *instruction);

/*
 * Opens a loop for the channels of mask; rounds_name is a name, from pimhw_program_const or
 * pimhw_program_operand, not a number. end closes the innermost structure.
 */
PIMHW_API void pimhw_program_loop(pimhw_program *program, uint8_t rounds_name, uint64_t mask);
PIMHW_API void pimhw_program_end(pimhw_program *program);

/*
 * Judges a program for a device: structure, names and masks. What operands come to is judged when
 * it is timed.
 *
 *   returns  PIMHW_ERR_PROGRAM with the item's index and field in *why
 */
PIMHW_API pimhw_status pimhw_program_check(const pimhw_program *program, const pimhw_config *config,
                                           pimhw_cause *why);

/* Bytes of the program as stored: items, operands and tails in use. */
PIMHW_API uint64_t pimhw_program_bytes(const pimhw_program *program);

/* One block of work of a request, e.g. one KV head of one sequence. */
typedef struct pimhw_block {
    uint64_t rest[PIMHW_RESTS];      /* what tails draw on: tokens, queries, .. */
    uint32_t row_base[PIMHW_SPACES]; /* first row, per row space */
} pimhw_block;

/* Request data. All pointers are borrowed until the call returns. */
typedef struct pimhw_request {
    const pimhw_block *blocks; /* [n_blocks] */
    uint32_t n_blocks;
    const uint32_t *list_begin; /* NULL: every channel does all blocks, in order; else channel c
                                   does blocks[order[i]], list_begin[c] <= i < list_begin[c + 1] */
    const uint32_t *order;      /* [list_begin[n_channels]] */
    uint64_t useful_macs;       /* lane products the caller needs; the rest is padding */
} pimhw_request;

/* ==========================================================================
 * [H7] READINGS: what a run cost, where the time went, what happened when.
 * ========================================================================== */

/* Channel commands. "16" in the simulator's spelling: all banks of the channel. */
typedef enum pimhw_command {
    PIMHW_CMD_ACT16 = 0,
    PIMHW_CMD_PREA,
    PIMHW_CMD_MAC16,
    PIMHW_CMD_WRGB,
    PIMHW_CMD_WRMAC16,
    PIMHW_CMD_RDMAC16,
    PIMHW_CMD_TMOD,
    PIMHW_CMD_EWMUL16,
    PIMHW_CMD_AF16,
    PIMHW_CMD_WRA16,
    PIMHW_CMD_RDAF16,
    PIMHW_CMD_ACT, /* from here on of one bank */
    PIMHW_CMD_PRE,
    PIMHW_CMD_RD,
    PIMHW_CMD_WR,
    PIMHW_CMD_MAC,
    PIMHW_CMD_RDCP,
    PIMHW_CMD_WRCP,
    PIMHW_N_COMMANDS
} pimhw_command;

PIMHW_API const char *pimhw_command_str(pimhw_command command);

/* What a clock of the critical channel was spent on: a command, or waiting for something. */
typedef enum pimhw_spent {
    PIMHW_SPENT_WR_INP = 0, /* commands: class W */
    PIMHW_SPENT_MAC,        /* class M */
    PIMHW_SPENT_RD_OUT,     /* class R */
    PIMHW_SPENT_ACT,
    PIMHW_SPENT_PRE,
    PIMHW_SPENT_MODE,   /* mode change */
    PIMHW_SPENT_ACCESS, /* reads, writes and copies of rows */
    PIMHW_WAIT_INPUT,   /* for data on its way into the global buffer or the accumulators */
    PIMHW_WAIT_OUTPUT,  /* for a result being read */
    PIMHW_WAIT_OPERAND, /* for a MAC whose result is asked for */
    PIMHW_WAIT_ROW,     /* tRAS, tRC, tRTP: the row cannot change yet */
    PIMHW_WAIT_HOST,    /* for the host to send, or for other channels to be read */
    PIMHW_WAIT_EPU,     /* for the hub's softmax */
    PIMHW_WAIT_DRAIN,   /* after the last command */
    PIMHW_N_SPENT
} pimhw_spent;

PIMHW_API const char *pimhw_spent_str(pimhw_spent spent);

/* Readings of one run. Parts sum to the whole: breakdown_ck to cycles, useful and padding to
 * macs. */
typedef struct pimhw_readings {
    uint32_t size;    /* bytes of this struct */
    uint32_t version; /* 1 */
    uint64_t cycles;  /* clocks from the start to the end of the slowest channel or the hub */
    double ns;        /* cycles * tCK */
    uint64_t commands[PIMHW_N_COMMANDS];  /* over all channels */
    uint64_t breakdown_ck[PIMHW_N_SPENT]; /* of the critical channel */
    uint32_t critical_channel;            /* latest end, lowest number */
    uint32_t n_busy_channels;             /* channels that did a MAC */
    uint64_t macs;                        /* lane products done: banks * lanes a MAC16 */
    uint64_t useful_macs;                 /* of the request; 0 if it said nothing */
    uint64_t padding_macs;                /* macs - useful_macs */
    double mac_utilisation;               /* MAC16 * tCCD_S / (cycles * channels) */
    uint64_t epu_ck;                      /* the hub's EPU was busy */
    uint64_t n_instructions;              /* resolved, as sent */
    uint64_t skipped_rounds;              /* of the list: like the one before, so not walked */
    uint64_t program_bytes;               /* 0 for a submitted stream */
    uint64_t request_bytes;               /* blocks and lists */
} pimhw_readings;

/*
 * One command of one channel. reason: the rule that set issue_ck. In breakdown_ck the clocks that
 * the command before it occupies count for that command, only the rest for the reason.
 */
typedef struct pimhw_event {
    uint64_t issue_ck;
    uint32_t channel;
    pimhw_command command;
    uint32_t bank;   /* commands of one bank */
    uint32_t row;    /* of commands that open or need one, else 0 */
    uint32_t column; /* MAC16 */
    uint32_t tile;   /* WRGB, MAC16 */
    uint32_t out;    /* MAC16, WRMAC16, RDMAC16 */
    pimhw_spent reason;
} pimhw_event;

/* Receives every command; per channel in order of issue. */
typedef struct pimhw_sink {
    void (*command)(void *user, const pimhw_event *event);
    void *user;
} pimhw_sink;

/* ==========================================================================
 * [H6] DEVICE: create, send instructions, time programs.
 * ========================================================================== */

typedef struct pimhw_device pimhw_device;

/*
 *   returns  PIMHW_ERR_CONFIG as pimhw_config_check, PIMHW_ERR_MEMORY
 *   memory   the only call that allocates
 */
PIMHW_API pimhw_status pimhw_device_create(pimhw_device **device, const pimhw_config *config,
                                           pimhw_cause *why);
PIMHW_API void pimhw_device_destroy(pimhw_device *device);
PIMHW_API const pimhw_config *pimhw_device_config(const pimhw_device *device);

/*
 * Times a stream of instructions sent one by one: begin, submit .., finish. A stream without an
 * EOC is ended by one. After a failure the stream is over: only begin helps.
 *
 *   returns  submit: PIMHW_ERR_PROGRAM with field and limit, PIMHW_ERR_ARGUMENT after an EOC
 *   memory   allocates nothing; the sink is borrowed until finish
 */
PIMHW_API pimhw_status pimhw_device_begin(pimhw_device *device, const pimhw_sink *sink);
PIMHW_API pimhw_status pimhw_device_submit(pimhw_device *device,
                                           const pimhw_instruction *instruction, pimhw_cause *why);
PIMHW_API pimhw_status pimhw_device_finish(pimhw_device *device, pimhw_readings *readings,
                                           pimhw_cause *why);

/*
 * Times a program on a request (NULL: none, all rests are 0).
 *
 *   returns  PIMHW_ERR_PROGRAM with the item's index; *readings then unchanged
 */
PIMHW_API pimhw_status pimhw_device_time(pimhw_device *device, pimhw_readings *readings,
                                         const pimhw_program *program, const pimhw_request *request,
                                         const pimhw_sink *sink, pimhw_cause *why);

/*
 * Hands every resolved instruction of a program to emit, all channels in lock-step: instruction i
 * of every channel under one mask where the operands agree. emit returns false to stop.
 */
PIMHW_API pimhw_status pimhw_device_resolve(
    pimhw_device *device, const pimhw_program *program, const pimhw_request *request,
    bool (*emit)(void *user, const pimhw_instruction *instruction), void *user, pimhw_cause *why);

/*
 * One line of an AiM text trace ("AiM MAC_ABK 64 0xffffffff 3") to an instruction and back. In
 * the text bit 31 - i of a mask is channel i. Blank lines and comments give *found = false.
 *
 *   returns  parse: PIMHW_ERR_TEXT with the reason. format: PIMHW_ERR_PROGRAM if the text has no
 *            form for it (more than 32 channels); EPU work becomes a comment
 */
PIMHW_API pimhw_status pimhw_aim_parse(const char *line, pimhw_instruction *instruction,
                                       bool *found, pimhw_cause *why);
PIMHW_API pimhw_status pimhw_aim_format(const pimhw_instruction *instruction, char line[160],
                                        pimhw_cause *why);

#ifdef __cplusplus
}
#endif

#endif /* PIM_HW_H */

/* The back: outside the include guard, so that include order never matters. */
#if defined(PIMATTN_IMPLEMENTATION) && !defined(PIMHW_IMPLEMENTATION)
#define PIMHW_IMPLEMENTATION
#endif
#if defined(PIMHW_IMPLEMENTATION) && !defined(PIMHW_IMPLEMENTED)
#define PIMHW_IMPLEMENTED

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "pim_hw.h and pimattn.h need strict floating point: build without -ffast-math"
#endif

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==========================================================================
 * [H8] CELLAR: asserts, bits, words, memory.
 *      Knows nothing of devices.
 * ========================================================================== */

#ifndef PIMHW_ASSERT
#include <assert.h>
#define PIMHW_ASSERT(x) assert(x)
#endif

static uint64_t pimhw_i_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t pimhw_i_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t pimhw_i_ceil_div(uint64_t a, uint64_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

/* The lowest n bits. */
static uint64_t pimhw_i_low_bits(uint32_t n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static uint32_t pimhw_i_count(uint64_t mask)
{
    uint32_t n = 0;
    for (; mask; mask &= mask - 1)
        n++;
    return n;
}

/* Number of the lowest bit; mask is not 0. */
static uint32_t pimhw_i_lowest(uint64_t mask)
{
#if defined(__GNUC__)
    return (uint32_t)__builtin_ctzll(mask);
#else
    uint32_t i = 0;
    for (; !(mask & 1); mask >>= 1)
        i++;
    return i;
#endif
}

/* Number of the highest bit; mask is not 0. */
static uint32_t pimhw_i_highest(uint64_t mask)
{
#if defined(__GNUC__)
    return 63 - (uint32_t)__builtin_clzll(mask);
#else
    uint32_t i = 0;
    while (mask >>= 1)
        i++;
    return i;
#endif
}

/* Decimal digits of value, most significant first; returns how many. */
static size_t pimhw_i_digits(char digits[20], uint64_t value)
{
    char reverse[20];
    size_t n = 0;
    do {
        reverse[n++] = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value);
    for (size_t i = 0; i < n; i++)
        digits[i] = reverse[n - 1 - i];
    return n;
}

static size_t pimhw_i_append(char *text, size_t size, size_t at, const char *from, size_t n)
{
    for (size_t i = 0; i < n && at + 1 < size; i++)
        text[at++] = from[i];
    text[at] = '\0';
    return at;
}

/* printf would do more than is needed and depends on the locale. */
static void pimhw_i_format(char *text, size_t size, const char *format, va_list values)
{
    size_t at = 0;
    text[0] = '\0';
    for (const char *f = format; *f; f++) {
        if (f[0] == '%' && f[1] == 's') {
            const char *word = va_arg(values, const char *);
            at = pimhw_i_append(text, size, at, word, strlen(word));
            f++;
        } else if (f[0] == '%' && f[1] == 'u') {
            char digits[20];
            at = pimhw_i_append(text, size, at, digits,
                                pimhw_i_digits(digits, va_arg(values, uint64_t)));
            f++;
        } else {
            at = pimhw_i_append(text, size, at, f, 1);
        }
    }
}

PIMHW_API void pimhw_cause_write(pimhw_cause *why, const char *format, ...)
{
    va_list values;
    if (!why) return;
    va_start(values, format);
    pimhw_i_format(why->text, sizeof why->text, format, values);
    va_end(values);
}

/* Memory of the default allocator: malloc's pointer is kept in front of the aligned one. */
static void *pimhw_i_default_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    size_t extra = align + sizeof(void *);
    if (bytes > SIZE_MAX - extra) return NULL;
    char *raw = (char *)malloc(bytes + extra);
    if (!raw) return NULL;
    uintptr_t start = ((uintptr_t)raw + sizeof(void *) + align - 1) / align * align;
    char *aligned = raw + (start - (uintptr_t)raw);
    memcpy(aligned - sizeof(void *), &raw, sizeof raw);
    return aligned;
}

static void pimhw_i_default_release(void *user, void *ptr, size_t bytes)
{
    void *raw;
    (void)user;
    (void)bytes;
    memcpy(&raw, (char *)ptr - sizeof(void *), sizeof raw);
    free(raw);
}

PIMHW_API pimhw_allocator pimhw_allocator_default(void)
{
    pimhw_allocator a;
    a.alloc = pimhw_i_default_alloc;
    a.release = pimhw_i_default_release;
    a.user = NULL;
    return a;
}

PIMHW_API const char *pimhw_status_str(pimhw_status status)
{
    switch (status) {
    case PIMHW_OK: return "ok";
    case PIMHW_ERR_ARGUMENT: return "wrong argument";
    case PIMHW_ERR_CONFIG: return "wrong device description";
    case PIMHW_ERR_NAME: return "no such name";
    case PIMHW_ERR_MEMORY: return "out of memory";
    case PIMHW_ERR_PROGRAM: return "instruction or program the device cannot do";
    case PIMHW_ERR_TEXT: return "line that does not parse";
    }
    return "unknown status";
}

/* ==========================================================================
 * [H9] TABLES: presets, fields, commands, constraints, names.
 *      Data only: a device family is rows here, not code elsewhere.
 * ========================================================================== */

enum { PIMHW_I_AIM_GDDR6 = 0, PIMHW_I_AIMX, PIMHW_I_N_PRESETS };

static const char PIMHW_I_PRESETS[PIMHW_I_N_PRESETS][16] = {"aim-gddr6", "aimx"};

/* A settable number: where it is, its limits, its value and source in each preset. */
typedef struct pimhw_i_field {
    char name[16];
    size_t offset;
    uint32_t least, most;
    uint32_t value[PIMHW_I_N_PRESETS];
    char source[PIMHW_I_N_PRESETS][12];
} pimhw_i_field;

/* clang-format off */
#define PIMHW_I_FIELD(name, least, most, v0, v1, s0, s1) \
    {#name, offsetof(pimhw_config, name), least, most, {v0, v1}, {s0, s1}}
/* clang-format on */

static const pimhw_i_field PIMHW_I_FIELDS[] = {
    PIMHW_I_FIELD(n_channels, 1, PIMHW_MAX_CHANNELS, 32, 16, "AIMSIM", "LOL"),
    PIMHW_I_FIELD(n_bank_groups, 1, 64, 4, 4, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(n_group_banks, 1, 64, 4, 4, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(n_rows, 1, 1u << 28, 16384, 16384, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(row_bytes, 2, 1u << 20, 2048, 2048, "AIMSIM", "LOL"),
    PIMHW_I_FIELD(column_bytes, 2, 1u << 10, 32, 32, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(element_bytes, 1, 4, 2, 2, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(in_entries, 1, 1u << 16, 64, 64, "AIMSIM", "LOL"),
    PIMHW_I_FIELD(out_entries, 1, 1u << 16, 32, 2, "CENT", "LOL"),
    PIMHW_I_FIELD(out_clear, 0, 1, PIMHW_CLEAR_BIAS, PIMHW_CLEAR_READ, "AIMSIM", "LOL"),
    PIMHW_I_FIELD(front_end, 0, 1, PIMHW_SHARED, PIMHW_PER_CHANNEL, "AIMSIM", "LOL"),
    PIMHW_I_FIELD(queue_entries, 2, 64, 33, 33, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCK_ps, 1, 1000000, 500, 500, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tBL, 1, 1000, 2, 2, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCCD_S, 1, 1000, 2, 2, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCCD_L, 1, 1000, 2, 2, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_MAC, 1, 100000, 56, 56, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_RD, 1, 100000, 36, 36, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_WR, 1, 100000, 28, 28, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_AF, 1, 100000, 86, 86, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_EWMUL, 1, 100000, 25, 25, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_RDCP, 1, 100000, 66, 66, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRCD_WRCP, 1, 100000, 48, 48, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRRD_S, 1, 100000, 5, 5, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRRD_L, 1, 100000, 6, 6, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCL, 0, 1000, 50, 50, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCWL, 0, 1000, 6, 6, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tWR, 0, 100000, 33, 33, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRP, 1, 100000, 32, 32, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRAS, 1, 100000, 54, 54, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRC, 1, 100000, 89, 89, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tRTP, 0, 100000, 12, 12, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tWTR_S, 0, 100000, 9, 9, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tWTR_L, 0, 100000, 11, 11, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tWPRE, 0, 1000, 1, 1, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCL_REG, 0, 1000, 0, 0, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCWL_REG, 0, 1000, 1, 1, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tCWL_GB, 0, 1000, 1, 1, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(tMOD, 1, 100000, 32, 32, "AIMSIM", "AIMSIM"),
    PIMHW_I_FIELD(epu_lanes, 1, 1u << 16, 16, 16, "assumed", "assumed"),
    PIMHW_I_FIELD(epu_ck_per_op, 0, 1u << 16, 1, 1, "assumed", "assumed"),
    PIMHW_I_FIELD(epu_passes, 0, 1u << 8, 3, 3, "assumed", "assumed"),
    PIMHW_I_FIELD(epu_overlap, 0, 1, PIMHW_EPU_NONE, PIMHW_EPU_HEADS, "assumed", "LOL"),
};

enum { PIMHW_I_N_FIELDS = sizeof PIMHW_I_FIELDS / sizeof PIMHW_I_FIELDS[0] };

/* A command: what it is charged to and for how long, when its effect is there, what it needs. */
typedef struct pimhw_i_command {
    char name[12];
    uint8_t spent;      /* pimhw_spent */
    bool register_mode; /* else normal mode */

    bool needs_row;
    char occupies[12]; /* clocks: sums of fields and numbers, here and below */
    char completes[20];
} pimhw_i_command;

static const pimhw_i_command PIMHW_I_COMMANDS[PIMHW_N_COMMANDS] = {
    {"ACT16", PIMHW_SPENT_ACT, false, false, "tRCD_MAC", "1"},
    {"PREA", PIMHW_SPENT_PRE, false, false, "tRP", "1"},
    {"MAC16", PIMHW_SPENT_MAC, false, true, "tCCD_S", "1"},
    {"WRGB", PIMHW_SPENT_WR_INP, true, false, "tCCD_S", "tCWL_GB+tBL"},
    {"WRMAC16", PIMHW_SPENT_WR_INP, true, false, "tCCD_S", "tCWL_REG+tBL"},
    {"RDMAC16", PIMHW_SPENT_RD_OUT, true, false, "tCCD_S", "tCL_REG+tBL"},
    {"TMOD", PIMHW_SPENT_MODE, false, false, "tMOD", "1"},
    {"EWMUL16", PIMHW_SPENT_MAC, false, true, "tCCD_S", "1"},
    {"AF16", PIMHW_SPENT_MAC, false, true, "tCCD_S", "1"},
    {"WRA16", PIMHW_SPENT_ACCESS, false, true, "tCCD_S", "tCWL+tBL+tRP"},
    {"RDAF16", PIMHW_SPENT_RD_OUT, true, false, "tCCD_S", "tCL_REG+tBL"},
    {"ACT", PIMHW_SPENT_ACT, false, false, "tRCD_MAC", "1"},
    {"PRE", PIMHW_SPENT_PRE, false, false, "tRP", "1"},
    {"RD", PIMHW_SPENT_ACCESS, false, true, "tCCD_S", "tCL+tBL"},
    {"WR", PIMHW_SPENT_ACCESS, false, true, "tCCD_S", "tCWL+tBL"},
    {"MAC", PIMHW_SPENT_MAC, false, true, "tCCD_S", "1"},
    {"RDCP", PIMHW_SPENT_ACCESS, false, true, "tCCD_S", "1"},
    {"WRCP", PIMHW_SPENT_ACCESS, false, true, "tCCD_S", "1"},
};

static bool pimhw_i_one_bank(uint32_t command)
{
    return command >= PIMHW_CMD_ACT;
}

/* Where a constraint holds. Commands of the whole channel meet at the channel only. */
enum { PIMHW_I_CHANNEL = 0, PIMHW_I_GROUP, PIMHW_I_BANKS, PIMHW_I_N_LEVELS };

#define PIMHW_I_BIT(command) (1u << PIMHW_CMD_##command)

enum {
    PIMHW_I_RESULT = PIMHW_I_BIT(RDMAC16) | PIMHW_I_BIT(RDAF16),
    PIMHW_I_READS = PIMHW_I_BIT(RD) | PIMHW_I_RESULT,
    PIMHW_I_COMPUTE = PIMHW_I_BIT(MAC16) | PIMHW_I_BIT(EWMUL16) | PIMHW_I_RESULT,
    PIMHW_I_BANK_READS = PIMHW_I_BIT(RD) | PIMHW_I_BIT(MAC) | PIMHW_I_BIT(RDCP),
    PIMHW_I_ALL_READS = PIMHW_I_BANK_READS | PIMHW_I_BIT(MAC16) | PIMHW_I_RESULT,
    PIMHW_I_BUS_WRITES =
        PIMHW_I_BIT(WR) | PIMHW_I_BIT(WRA16) | PIMHW_I_BIT(WRGB) | PIMHW_I_BIT(WRMAC16),
    PIMHW_I_BANK_WRITES = PIMHW_I_BIT(WR) | PIMHW_I_BIT(WRCP),
    PIMHW_I_FILLS = PIMHW_I_BIT(WRA16) | PIMHW_I_BIT(WRMAC16) | PIMHW_I_BIT(EWMUL16),
    PIMHW_I_OPENS = PIMHW_I_BIT(ACT) | PIMHW_I_BIT(ACT16),
    PIMHW_I_NOT_MODE = (PIMHW_I_BIT(WRCP) * 2 - 1) & ~PIMHW_I_BIT(TMOD)
};

/* t(next) >= t(last) + clocks; reason: what the wait counts as where this row sets the clock. */
typedef struct pimhw_i_constraint {
    uint8_t level;
    uint8_t reason; /* pimhw_spent */
    uint32_t last, next;
    char clocks[36];
} pimhw_i_constraint;

/* [AIMSIM] */
#define PIMHW_I_RULE(level, reason, last, next, clocks)                                            \
    {                                                                                              \
        PIMHW_I_##level, PIMHW_##reason, last, next, clocks                                        \
    }

static const pimhw_i_constraint PIMHW_I_CONSTRAINTS[] = {
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_READS, PIMHW_I_READS, "tBL"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BUS_WRITES, PIMHW_I_BUS_WRITES, "tBL"),
    PIMHW_I_RULE(CHANNEL, WAIT_OPERAND, PIMHW_I_ALL_READS & ~PIMHW_I_RESULT, PIMHW_I_ALL_READS,
                 "tCCD_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_RESULT, PIMHW_I_ALL_READS, "tCCD_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BUS_WRITES | PIMHW_I_BIT(WRCP),
                 PIMHW_I_BUS_WRITES | PIMHW_I_BIT(WRCP), "tCCD_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_OPERAND, (PIMHW_I_BANK_READS | PIMHW_I_COMPUTE) & ~PIMHW_I_RESULT,
                 PIMHW_I_COMPUTE, "tCCD_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_OPERAND, PIMHW_I_COMPUTE & ~PIMHW_I_RESULT, PIMHW_I_BANK_READS,
                 "tCCD_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_RESULT, PIMHW_I_BANK_READS | PIMHW_I_COMPUTE,
                 "tCCD_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BANK_WRITES | PIMHW_I_FILLS, PIMHW_I_FILLS, "tCCD_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_FILLS, PIMHW_I_BANK_WRITES, "tCCD_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_BIT(RD), PIMHW_I_BIT(WR) | PIMHW_I_BIT(WRA16),
                 "tCL+tBL+3-tCWL+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_BIT(RD), PIMHW_I_BIT(WRGB),
                 "tCL+tBL+3-tCWL_GB+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_BIT(RD), PIMHW_I_BIT(WRMAC16),
                 "tCL+tBL+3-tCWL_REG+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_RESULT, PIMHW_I_BIT(WR) | PIMHW_I_BIT(WRA16),
                 "tCL_REG+tBL+3-tCWL+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_RESULT, PIMHW_I_BIT(WRGB),
                 "tCL_REG+tBL+3-tCWL_GB+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_OUTPUT, PIMHW_I_RESULT, PIMHW_I_BIT(WRMAC16),
                 "tCL_REG+tBL+3-tCWL_REG+tWPRE"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BIT(WR), PIMHW_I_BIT(RD), "tCWL+tBL+tWTR_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BIT(WR), PIMHW_I_RESULT, "tCWL+tBL+tWTR_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BIT(WRA16), PIMHW_I_READS, "tCWL+tBL+tWTR_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BIT(WRGB), PIMHW_I_READS, "tCWL_GB+tBL+tWTR_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_INPUT, PIMHW_I_BIT(WRMAC16), PIMHW_I_READS, "tCWL_REG+tBL+tWTR_L"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BANK_READS | PIMHW_I_BIT(MAC16) | PIMHW_I_BIT(AF16),
                 PIMHW_I_BIT(PREA), "tRTP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(MAC16) | PIMHW_I_BIT(AF16), PIMHW_I_BIT(PRE),
                 "tRTP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(EWMUL16), PIMHW_I_BIT(PREA) | PIMHW_I_BIT(PRE),
                 "tCWL+tWR"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BANK_WRITES, PIMHW_I_BIT(PREA), "tCWL+tBL+tWR"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(ACT), "tRRD_S"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(ACT16), "tRC"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(ACT), "tRC"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(PREA), "tRAS"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(PRE), "tRAS"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(PRE) | PIMHW_I_BIT(PREA),
                 PIMHW_I_BIT(ACT16) | PIMHW_I_BIT(PREA), "tRP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(PREA), PIMHW_I_BIT(ACT) | PIMHW_I_BIT(PRE), "tRP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(MAC16), "tRCD_MAC"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(AF16), "tRCD_AF"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(EWMUL16), "tRCD_EWMUL"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_OPENS, PIMHW_I_BIT(WRA16), "tRCD_WR"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(MAC), "tRCD_MAC"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(RDCP), "tRCD_RDCP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(RD), "tRCD_RD"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(WR), "tRCD_WR"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(ACT16), PIMHW_I_BIT(WRCP), "tRCD_WRCP"),
    PIMHW_I_RULE(CHANNEL, WAIT_ROW, PIMHW_I_BIT(WRA16), PIMHW_I_OPENS, "tCWL+tBL+tWR+tRP"),
    PIMHW_I_RULE(CHANNEL, SPENT_MODE, PIMHW_I_BIT(TMOD), PIMHW_I_NOT_MODE, "tMOD"),
    PIMHW_I_RULE(GROUP, WAIT_OPERAND, PIMHW_I_BANK_READS, PIMHW_I_BANK_READS, "tCCD_L"),
    PIMHW_I_RULE(GROUP, WAIT_INPUT, PIMHW_I_BANK_WRITES, PIMHW_I_BANK_WRITES, "tCCD_L"),
    PIMHW_I_RULE(GROUP, WAIT_INPUT, PIMHW_I_BIT(WR), PIMHW_I_BIT(RD), "tCWL+tBL+tWTR_L"),
    PIMHW_I_RULE(GROUP, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(ACT), "tRRD_L"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(MAC), "tRCD_MAC"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(RDCP), "tRCD_RDCP"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(RD), "tRCD_RD"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(WRCP), "tRCD_WRCP"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(WR), "tRCD_WR"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(PRE), "tRAS"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(ACT), PIMHW_I_BIT(ACT), "tRC"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BANK_READS, PIMHW_I_BIT(PRE), "tRTP"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BANK_WRITES, PIMHW_I_BIT(PRE), "tCWL+tBL+tWR"),
    PIMHW_I_RULE(BANKS, WAIT_ROW, PIMHW_I_BIT(PRE), PIMHW_I_BIT(ACT) | PIMHW_I_BIT(PRE), "tRP"),
};

enum { PIMHW_I_N_CONSTRAINTS = sizeof PIMHW_I_CONSTRAINTS / sizeof PIMHW_I_CONSTRAINTS[0] };

/* Who takes an instruction. */
enum {
    PIMHW_I_BY_NOBODY = 0, /* structure */
    PIMHW_I_BY_CHANNELS,   /* in order, through the PIM queue */
    PIMHW_I_BY_QUEUES,     /* through the ordinary read and write queues */
    PIMHW_I_BY_HOST        /* nothing is sent */
};

/* An instruction: its name and operands in text traces, who takes it, the command it becomes. */
typedef struct pimhw_i_kind {
    char name[12];
    char text[8]; /* s op_size, g gpr, m mask, b bank, r row, n aux */
    uint8_t taker;
    uint8_t command; /* pimhw_command */
    bool sized;      /* op_size columns, else one command */
    bool has_row;    /* names a row */
    bool blocks;     /* on a shared front end the next one waits for its answer */
} pimhw_i_kind;

static const pimhw_i_kind PIMHW_I_KINDS[PIMHW_N_KINDS] = {
    {"LOOP", "", PIMHW_I_BY_NOBODY, 0, false, false, false},
    {"LIST", "", PIMHW_I_BY_NOBODY, 0, false, false, false},
    {"BLOCK", "", PIMHW_I_BY_NOBODY, 0, false, false, false},
    {"END", "", PIMHW_I_BY_NOBODY, 0, false, false, false},
    {"WR_GB", "sgm", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRGB, true, false, false},
    {"WR_BIAS", "gm", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRMAC16, false, false, false},
    {"MAC_ABK", "smr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_MAC16, true, true, false},
    {"RD_MAC", "gm", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDMAC16, false, false, true},
    {"MAC_SBK", "smbr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_MAC, true, true, false},
    {"EWMUL", "smr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_EWMUL16, true, true, false},
    {"AF", "m", PIMHW_I_BY_CHANNELS, PIMHW_CMD_AF16, false, false, false},
    {"RD_AF", "gm", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDAF16, false, false, true},
    {"COPY_BKGB", "smbr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDCP, true, true, false},
    {"COPY_GBBK", "smbr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRCP, true, true, false},
    {"WR_SBK", "gmbr", PIMHW_I_BY_QUEUES, PIMHW_CMD_WR, false, true, false},
    {"RD_SBK", "gmbr", PIMHW_I_BY_QUEUES, PIMHW_CMD_RD, false, true, false},
    {"WR_ABK", "gmr", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRA16, false, true, false},
    {"MEM_WR", "", PIMHW_I_BY_QUEUES, PIMHW_CMD_WR, false, true, false},
    {"MEM_RD", "", PIMHW_I_BY_QUEUES, PIMHW_CMD_RD, false, true, false},
    {"EWADD", "sgn", PIMHW_I_BY_HOST, 0, false, false, false},
    {"GPR", "", PIMHW_I_BY_HOST, 0, false, false, false},
    {"CFR", "", PIMHW_I_BY_HOST, 0, false, false, false},
    {"SYNC", "", PIMHW_I_BY_CHANNELS, 0, false, false, true},
    {"EOC", "", PIMHW_I_BY_CHANNELS, 0, false, false, true},
    {"EPU", "", PIMHW_I_BY_HOST, 0, true, false, false},
    {"EPU_WAIT", "", PIMHW_I_BY_HOST, 0, false, false, false},
};

PIMHW_API const char *pimhw_command_str(pimhw_command command)
{
    return (uint32_t)command < PIMHW_N_COMMANDS ? PIMHW_I_COMMANDS[command].name : "?";
}

PIMHW_API const char *pimhw_spent_str(pimhw_spent spent)
{
    switch (spent) {
    case PIMHW_SPENT_WR_INP: return "WR_INP";
    case PIMHW_SPENT_MAC: return "MAC";
    case PIMHW_SPENT_RD_OUT: return "RD_OUT";
    case PIMHW_SPENT_ACT: return "ACT";
    case PIMHW_SPENT_PRE: return "PRE";
    case PIMHW_SPENT_MODE: return "mode";
    case PIMHW_SPENT_ACCESS: return "access";
    case PIMHW_WAIT_INPUT: return "wait_input";
    case PIMHW_WAIT_OUTPUT: return "wait_output";
    case PIMHW_WAIT_OPERAND: return "wait_operand";
    case PIMHW_WAIT_ROW: return "wait_row";
    case PIMHW_WAIT_HOST: return "wait_host";
    case PIMHW_WAIT_EPU: return "wait_epu";
    case PIMHW_WAIT_DRAIN: return "drain";
    case PIMHW_N_SPENT: break;
    }
    return "?";
}

static uint32_t pimhw_i_field_get(const pimhw_config *config, const pimhw_i_field *field)
{
    uint32_t value;
    memcpy(&value, (const char *)config + field->offset, sizeof value);
    return value;
}

static void pimhw_i_field_set(pimhw_config *config, const pimhw_i_field *field, uint32_t value)
{
    memcpy((char *)config + field->offset, &value, sizeof value);
}

static const pimhw_i_field *pimhw_i_field_find(const char *name, size_t length)
{
    for (size_t i = 0; i < PIMHW_I_N_FIELDS; i++) {
        const char *field = PIMHW_I_FIELDS[i].name;
        if (strlen(field) == length && memcmp(field, name, length) == 0) return &PIMHW_I_FIELDS[i];
    }
    return NULL;
}

/* Value of a sum of fields and numbers such as "tCWL_GB+tBL+3"; below 0 counts as 0. */
static uint32_t pimhw_i_sum(const pimhw_config *config, const char *sum)
{
    int64_t total = 0;
    while (*sum) {
        int64_t sign = *sum == '-' ? -1 : 1;
        if (*sum == '+' || *sum == '-') sum++;
        size_t n = strcspn(sum, "+-");
        if (*sum >= '0' && *sum <= '9') {
            total += sign * (int64_t)strtoul(sum, NULL, 10);
        } else {
            const pimhw_i_field *field = pimhw_i_field_find(sum, n);
            PIMHW_ASSERT(field);
            total += sign * (int64_t)pimhw_i_field_get(config, field);
        }
        sum += n;
    }
    return total > 0 ? (uint32_t)total : 0;
}

static int pimhw_i_preset_find(const char *name)
{
    for (int i = 0; name && i < PIMHW_I_N_PRESETS; i++)
        if (strcmp(PIMHW_I_PRESETS[i], name) == 0) return i;
    return -1;
}

PIMHW_API const char *pimhw_preset_name(uint32_t i)
{
    return i < PIMHW_I_N_PRESETS ? PIMHW_I_PRESETS[i] : NULL;
}

PIMHW_API const char *pimhw_config_field(uint32_t i)
{
    return i < PIMHW_I_N_FIELDS ? PIMHW_I_FIELDS[i].name : NULL;
}

PIMHW_API const char *pimhw_preset_source(const char *preset, const char *field)
{
    int p = pimhw_i_preset_find(preset);
    const pimhw_i_field *f = field ? pimhw_i_field_find(field, strlen(field)) : NULL;
    return p >= 0 && f ? f->source[p] : NULL;
}

PIMHW_API pimhw_status pimhw_config_init(pimhw_config *config, const char *preset, pimhw_cause *why)
{
    int p = pimhw_i_preset_find(preset);
    if (!config) return PIMHW_ERR_ARGUMENT;
    if (p < 0) {
        char names[120] = "";
        size_t at = 0;
        for (int i = 0; i < PIMHW_I_N_PRESETS; i++) {
            at = pimhw_i_append(names, sizeof names, at, i ? ", " : "", i ? 2 : 0);
            at = pimhw_i_append(names, sizeof names, at, PIMHW_I_PRESETS[i],
                                strlen(PIMHW_I_PRESETS[i]));
        }
        pimhw_cause_write(why, "preset \"%s\" is none of %s", preset ? preset : "(null)", names);
        return PIMHW_ERR_NAME;
    }
    memset(config, 0, sizeof *config);
    memcpy(config->preset, PIMHW_I_PRESETS[p], sizeof PIMHW_I_PRESETS[p]);
    for (size_t i = 0; i < PIMHW_I_N_FIELDS; i++)
        pimhw_i_field_set(config, &PIMHW_I_FIELDS[i], PIMHW_I_FIELDS[i].value[p]);
    config->allocator = pimhw_allocator_default();
    return PIMHW_OK;
}

/* Letters to change, add or drop between two short words. */
static uint32_t pimhw_i_distance(const char *a, const char *b)
{
    enum { MOST = 24 };
    uint32_t row[MOST + 1];
    size_t n = (size_t)pimhw_i_min(strlen(b), MOST);
    for (size_t j = 0; j <= n; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 0; a[i] && i < MOST; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i + 1;
        for (size_t j = 1; j <= n; j++) {
            uint32_t change = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            uint32_t one_side = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < one_side ? change : one_side;
        }
    }
    return row[n];
}

static const pimhw_i_field *pimhw_i_field_named(const char *name, pimhw_cause *why)
{
    const pimhw_i_field *f = name ? pimhw_i_field_find(name, strlen(name)) : NULL;
    const pimhw_i_field *near[2] = {&PIMHW_I_FIELDS[0], &PIMHW_I_FIELDS[1]};
    if (f || !name) {
        if (!f) pimhw_cause_write(why, "no field \"(null)\" in a device");
        return f;
    }
    for (size_t i = 1; i < PIMHW_I_N_FIELDS; i++) {
        const pimhw_i_field *other = &PIMHW_I_FIELDS[i];
        uint32_t distance = pimhw_i_distance(name, other->name);
        if (distance < pimhw_i_distance(name, near[0]->name)) {
            near[1] = near[0];
            near[0] = other;
        } else if (i > 1 && distance < pimhw_i_distance(name, near[1]->name)) {
            near[1] = other;
        }
    }
    pimhw_cause_write(why, "no field \"%s\" in a device; the nearest are %s and %s", name,
                      near[0]->name, near[1]->name);
    return NULL;
}

PIMHW_API pimhw_status pimhw_config_set(pimhw_config *config, const char *field, uint32_t value,
                                        pimhw_cause *why)
{
    if (!config) return PIMHW_ERR_ARGUMENT;
    const pimhw_i_field *f = pimhw_i_field_named(field, why);
    if (!f) return PIMHW_ERR_NAME;
    pimhw_i_field_set(config, f, value);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_config_get(const pimhw_config *config, const char *field,
                                        uint32_t *value, pimhw_cause *why)
{
    if (!config || !value) return PIMHW_ERR_ARGUMENT;
    const pimhw_i_field *f = pimhw_i_field_named(field, why);
    if (!f) return PIMHW_ERR_NAME;
    *value = pimhw_i_field_get(config, f);
    return PIMHW_OK;
}

PIMHW_API uint32_t pimhw_config_banks(const pimhw_config *config)
{
    return config->n_bank_groups * config->n_group_banks;
}

PIMHW_API uint32_t pimhw_config_columns(const pimhw_config *config)
{
    return config->row_bytes / config->column_bytes;
}

PIMHW_API uint32_t pimhw_config_lanes(const pimhw_config *config)
{
    return config->column_bytes / config->element_bytes;
}

PIMHW_API pimhw_status pimhw_config_check(const pimhw_config *config, pimhw_cause *why)
{
    if (!config) {
        pimhw_cause_write(why, "config is NULL");
        return PIMHW_ERR_ARGUMENT;
    }
    for (size_t i = 0; i < PIMHW_I_N_FIELDS; i++) {
        const pimhw_i_field *f = &PIMHW_I_FIELDS[i];
        uint64_t value = pimhw_i_field_get(config, f);
        if (value >= f->least && value <= f->most) continue;
        pimhw_cause_write(why, "%s is %u, not %u to %u", f->name, value, (uint64_t)f->least,
                          (uint64_t)f->most);
        return PIMHW_ERR_CONFIG;
    }
    uint64_t banks = (uint64_t)config->n_bank_groups * config->n_group_banks;
    if (banks > PIMHW_MAX_BANKS) {
        pimhw_cause_write(why, "n_bank_groups * n_group_banks is %u, not 1 to %u", banks,
                          (uint64_t)PIMHW_MAX_BANKS);
        return PIMHW_ERR_CONFIG;
    }
    if (config->row_bytes % config->column_bytes != 0) {
        pimhw_cause_write(why, "row_bytes %u is not a multiple of column_bytes %u",
                          (uint64_t)config->row_bytes, (uint64_t)config->column_bytes);
        return PIMHW_ERR_CONFIG;
    }
    if (config->column_bytes % config->element_bytes != 0) {
        pimhw_cause_write(why, "column_bytes %u is not a multiple of element_bytes %u",
                          (uint64_t)config->column_bytes, (uint64_t)config->element_bytes);
        return PIMHW_ERR_CONFIG;
    }
    if (config->tRAS < config->tRCD_RD || config->tRAS < config->tRCD_WR) {
        pimhw_cause_write(why, "tRAS %u is less than tRCD_RD %u or tRCD_WR %u: no row is ever read",
                          (uint64_t)config->tRAS, (uint64_t)config->tRCD_RD,
                          (uint64_t)config->tRCD_WR);
        return PIMHW_ERR_CONFIG;
    }
    if (config->tRAS > config->tRC) {
        pimhw_cause_write(why, "tRAS %u is more than tRC %u", (uint64_t)config->tRAS,
                          (uint64_t)config->tRC);
        return PIMHW_ERR_CONFIG;
    }
    if (!config->allocator.alloc != !config->allocator.release) {
        pimhw_cause_write(why, "allocator has only one of alloc and release");
        return PIMHW_ERR_CONFIG;
    }
    return PIMHW_OK;
}

/* ==========================================================================
 * [H13] TIMING: the earliest clock at which a command may issue.
 *       Knows parameters and past commands; never stored data.
 * ========================================================================== */

/* The constraint table of one device, evaluated. */
typedef struct pimhw_i_rules {
    uint64_t key[PIMHW_I_N_LEVELS][PIMHW_N_COMMANDS][PIMHW_N_COMMANDS]; /* last, next; 0: none */
    uint64_t again_ck[PIMHW_N_COMMANDS];    /* to the next of its kind, same bank; 1 or more */
    uint8_t again_reason[PIMHW_N_COMMANDS]; /* pimhw_spent */
    uint32_t occupies[PIMHW_N_COMMANDS];
    uint32_t completes[PIMHW_N_COMMANDS];
    uint32_t n_group_banks;
    uint64_t all_banks; /* bit per bank */
} pimhw_i_rules;

/*
 * A clock and the table row that sets it as one number: of two, the larger is the later clock,
 * and of equal clocks the earlier row.
 */
static uint64_t pimhw_i_key(uint64_t clock, uint32_t row)
{
    return clock << 8 | (255 - row);
}

/* The strictest row of a level for a pair of commands, 0 if there is none. */
static uint64_t pimhw_i_pair(const uint32_t clocks[PIMHW_I_N_CONSTRAINTS], uint32_t level,
                             uint32_t last, uint32_t next)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < PIMHW_I_N_CONSTRAINTS; i++) {
        const pimhw_i_constraint *c = &PIMHW_I_CONSTRAINTS[i];
        if (c->level != level || !(c->last >> last & 1) || !(c->next >> next & 1)) continue;
        if (clocks[i]) key = pimhw_i_max(key, pimhw_i_key(clocks[i], i));
    }
    return key;
}

static void pimhw_i_rules_init(pimhw_i_rules *rules, const pimhw_config *config)
{
    uint32_t clocks[PIMHW_I_N_CONSTRAINTS];
    memset(rules, 0, sizeof *rules);
    for (uint32_t i = 0; i < PIMHW_I_N_CONSTRAINTS; i++)
        clocks[i] = pimhw_i_sum(config, PIMHW_I_CONSTRAINTS[i].clocks);
    for (uint32_t last = 0; last < PIMHW_N_COMMANDS; last++) {
        uint64_t again = 0;
        for (uint32_t level = 0; level < PIMHW_I_N_LEVELS; level++) {
            for (uint32_t next = 0; next < PIMHW_N_COMMANDS; next++)
                rules->key[level][last][next] = pimhw_i_pair(clocks, level, last, next);
            again = pimhw_i_max(again, rules->key[level][last][last]);
        }
        rules->again_ck[last] = pimhw_i_max(again >> 8, 1);
        rules->again_reason[last] =
            again ? PIMHW_I_CONSTRAINTS[255 - (again & 255)].reason : (uint8_t)PIMHW_WAIT_HOST;
        rules->occupies[last] = pimhw_i_sum(config, PIMHW_I_COMMANDS[last].occupies);
        rules->completes[last] = pimhw_i_sum(config, PIMHW_I_COMMANDS[last].completes);
    }
    rules->n_group_banks = config->n_group_banks;
    rules->all_banks = pimhw_i_low_bits(pimhw_config_banks(config));
}

/* Commands of one instruction on one channel, for the queue of the shared front end. */
typedef struct pimhw_i_run {
    uint64_t last_ck;
    uint64_t step_ck;
    uint64_t n;
} pimhw_i_run;

enum { PIMHW_I_QUEUE = 64 /* the largest queue_entries */ };

/* One column to read or write, from the ordinary queues. */
typedef struct pimhw_i_access {
    uint64_t order;
    uint32_t bank, row;
    uint32_t command; /* PIMHW_CMD_RD or PIMHW_CMD_WR */
} pimhw_i_access;

typedef struct pimhw_i_accesses {
    uint32_t n;
    pimhw_i_access at[PIMHW_I_QUEUE];
} pimhw_i_accesses;

/* What a channel knows bank by bank, once a command of one bank has come. */
typedef struct pimhw_i_banks {
    uint64_t open;                 /* bit per bank */
    uint64_t row[PIMHW_MAX_BANKS]; /* of an open bank */
    uint64_t group_ready[PIMHW_MAX_BANKS][PIMHW_N_COMMANDS];
    uint64_t bank_ready[PIMHW_MAX_BANKS][PIMHW_N_COMMANDS];
    uint64_t clock_ck; /* the ordinary queues have been served up to here */
    uint64_t order;
    pimhw_i_accesses queue[2]; /* reads, writes */
    pimhw_i_accesses active;   /* whose row has been opened */
    bool write_mode;
} pimhw_i_banks;

/* State of the channels of mask, which have received the same instructions at the same clocks. */
typedef struct pimhw_i_channel {
    uint64_t mask;
    uint64_t ready[PIMHW_N_COMMANDS]; /* pimhw_i_key of the earliest clock by the channel's rows */
    uint64_t now_ck;                  /* the command bus is free from here on */
    uint64_t last_ck;                 /* of the last command */
    uint64_t end_ck;                  /* when all effects are there */
    uint64_t pending_ck;              /* the same, of all but reads */
    uint64_t answer_ck;               /* of the last read or SYNC, to the host */
    uint64_t n_answers;               /* of reads */
    uint64_t left_ck;                 /* the last instruction left the PIM queue */
    uint64_t hold_ck;                 /* told to wait, for hold_reason */
    uint64_t row;                     /* of all banks, unless banked */
    uint8_t hold_reason;
    uint8_t last_command; /* PIMHW_N_COMMANDS before the first */
    bool row_open;
    bool register_mode;
    bool banked; /* *banks holds */
    uint32_t newest_run;
    uint64_t commands[PIMHW_N_COMMANDS];  /* of one channel */
    uint64_t issued_ck[PIMHW_N_COMMANDS]; /* the last of each */
    uint64_t spent_ck[PIMHW_N_SPENT];
    pimhw_i_banks *banks;
    pimhw_i_run runs[PIMHW_I_QUEUE];
} pimhw_i_channel;

static void pimhw_i_channel_init(pimhw_i_channel *ch, uint64_t mask, pimhw_i_banks *banks)
{
    memset(ch, 0, sizeof *ch);
    ch->mask = mask;
    ch->banks = banks;
    ch->last_command = PIMHW_N_COMMANDS;
    ch->hold_reason = PIMHW_WAIT_HOST;
}

/*
 * What a command at clock t makes others wait for, at one level. Where there is no constraint the
 * key is 0: then t itself, which the command bus passes anyway.
 */
static void pimhw_i_raise(const uint64_t key[PIMHW_N_COMMANDS], uint32_t from, uint32_t to,
                          uint64_t ready[PIMHW_N_COMMANDS], uint64_t t)
{
    for (uint32_t next = from; next < to; next++)
        ready[next] = pimhw_i_max(ready[next], (t << 8) + key[next]);
}

/* From here on the channel is looked at bank by bank. */
static void pimhw_i_bank_by_bank(const pimhw_i_rules *rules, pimhw_i_channel *ch)
{
    if (ch->banked) return;
    memset(ch->banks, 0, sizeof *ch->banks);
    ch->banked = true;
    ch->banks->open = ch->row_open ? rules->all_banks : 0;
    for (uint32_t i = 0; i < PIMHW_MAX_BANKS; i++)
        ch->banks->row[i] = ch->row;
    /* so far nobody asked when commands of one bank may come */
    for (uint32_t last = 0; last < PIMHW_N_COMMANDS; last++)
        if (ch->commands[last])
            pimhw_i_raise(rules->key[PIMHW_I_CHANNEL][last], PIMHW_CMD_ACT, PIMHW_N_COMMANDS,
                          ch->ready, ch->issued_ck[last]);
    if (ch->last_command < PIMHW_N_COMMANDS) ch->banks->clock_ck = ch->last_ck;
}

/* Charges the clocks from the last command to t: first to that command, the rest to reason. */
static void pimhw_i_charge(const pimhw_i_rules *rules, pimhw_i_channel *ch, uint64_t t,
                           uint32_t reason)
{
    uint64_t span = t - ch->last_ck;
    if (ch->last_command < PIMHW_N_COMMANDS) {
        uint64_t busy = pimhw_i_min(span, rules->occupies[ch->last_command]);
        ch->spent_ck[PIMHW_I_COMMANDS[ch->last_command].spent] += busy;
        span -= busy;
    }
    ch->spent_ck[reason] += span;
}

/* Earliest clock of a command and what sets it: a constraint, or else bus, host or hub. */
static uint64_t pimhw_i_earliest(const pimhw_i_rules *rules, const pimhw_i_channel *ch,
                                 uint32_t command, uint32_t bank, uint32_t *reason)
{
    uint64_t key = ch->ready[command];
    if (pimhw_i_one_bank(command)) {
        key = pimhw_i_max(key, ch->banks->group_ready[bank / rules->n_group_banks][command]);
        key = pimhw_i_max(key, ch->banks->bank_ready[bank][command]);
    }
    uint64_t t = key >> 8;
    if (pimhw_i_max(ch->now_ck, ch->hold_ck) <= t && t > 0) {
        *reason = PIMHW_I_CONSTRAINTS[255 - (key & 255)].reason;
        return t;
    }
    *reason = ch->hold_ck > ch->now_ck ? ch->hold_reason : (uint32_t)PIMHW_WAIT_HOST;
    return pimhw_i_max(t, pimhw_i_max(ch->now_ck, ch->hold_ck));
}

/* Rows that a command opens or closes. */
static void pimhw_i_rows(const pimhw_i_rules *rules, pimhw_i_channel *ch, uint32_t command,
                         uint32_t bank, uint64_t row)
{
    pimhw_i_banks *b = ch->banks;
    switch (command) {
    case PIMHW_CMD_ACT16:
        ch->row_open = true;
        ch->row = row;
        if (!ch->banked) break;
        b->open = rules->all_banks;
        for (uint32_t i = 0; i < PIMHW_MAX_BANKS; i++)
            b->row[i] = row;
        break;
    case PIMHW_CMD_PREA:
    case PIMHW_CMD_WRA16:
        ch->row_open = false;
        if (ch->banked) b->open = 0;
        break;
    case PIMHW_CMD_ACT:
        b->open |= (uint64_t)1 << bank;
        b->row[bank] = row;
        break;
    case PIMHW_CMD_PRE: b->open &= ~((uint64_t)1 << bank); break;
    default: break;
    }
}

/* Issues n commands of one kind from clock t on, as close as their own constraint lets them. */
static void pimhw_i_issue(const pimhw_i_rules *rules, pimhw_i_channel *ch, uint32_t command,
                          uint32_t bank, uint64_t row, uint64_t t, uint64_t n, uint32_t reason)
{
    uint64_t step = rules->again_ck[command];
    uint64_t last = t + (n - 1) * step;
    uint64_t busy = pimhw_i_min(step, rules->occupies[command]);
    pimhw_i_charge(rules, ch, t, reason);
    ch->spent_ck[PIMHW_I_COMMANDS[command].spent] += (n - 1) * busy;
    ch->spent_ck[rules->again_reason[command]] += (n - 1) * (step - busy);
    ch->commands[command] += n;
    ch->last_command = (uint8_t)command;
    ch->last_ck = last;
    ch->now_ck = last + 1;
    ch->end_ck = pimhw_i_max(ch->end_ck, last + rules->completes[command]);
    ch->issued_ck[command] = last;
    pimhw_i_raise(rules->key[PIMHW_I_CHANNEL][command], 0, PIMHW_CMD_ACT, ch->ready, last);
    if (ch->banked)
        pimhw_i_raise(rules->key[PIMHW_I_CHANNEL][command], PIMHW_CMD_ACT, PIMHW_N_COMMANDS,
                      ch->ready, last);
    if (pimhw_i_one_bank(command)) {
        uint32_t group = bank / rules->n_group_banks;
        pimhw_i_raise(rules->key[PIMHW_I_GROUP][command], PIMHW_CMD_ACT, PIMHW_N_COMMANDS,
                      ch->banks->group_ready[group], last);
        pimhw_i_raise(rules->key[PIMHW_I_BANKS][command], PIMHW_CMD_ACT, PIMHW_N_COMMANDS,
                      ch->banks->bank_ready[bank], last);
    }
    pimhw_i_rows(rules, ch, command, bank, row);
}

/* ==========================================================================
 * [H15] CONTROLLERS: in-order: program order, the constraint table only.
 *       Knows instructions and channel state; never stored data.
 * ========================================================================== */

typedef struct pimhw_i_issuer {
    const pimhw_i_rules *rules;
    const pimhw_sink *sink; /* may be NULL */
} pimhw_i_issuer;

/* What a channel is asked to do: commands of one kind on one row. */
typedef struct pimhw_i_work {
    uint32_t command; /* the last one it needs */
    uint32_t bank;
    uint64_t row;
    uint32_t column, tile, out;
} pimhw_i_work;

static void pimhw_i_tell(const pimhw_i_issuer *to, const pimhw_i_channel *ch, uint32_t command,
                         uint64_t t, uint64_t n, const pimhw_i_work *work, uint32_t reason)
{
    bool last = command == work->command;
    bool tiles = last && PIMHW_I_KINDS[PIMHW_WR_GB].command == command;
    bool columns = last && PIMHW_I_COMMANDS[command].needs_row;
    bool opens = command == PIMHW_CMD_ACT || command == PIMHW_CMD_ACT16;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t left = ch->mask; left; left &= left - 1) {
            pimhw_event e;
            e.issue_ck = t + i * to->rules->again_ck[command];
            e.channel = pimhw_i_lowest(left);
            e.command = (pimhw_command)command;
            e.bank = pimhw_i_one_bank(command) ? work->bank : 0;
            e.row = opens || PIMHW_I_COMMANDS[command].needs_row ? (uint32_t)work->row : 0;
            e.column = columns ? work->column + (uint32_t)i : 0;
            e.tile = tiles || columns ? work->tile + (uint32_t)i : 0;
            e.out = work->out;
            e.reason = (pimhw_spent)(i > 0 ? to->rules->again_reason[command] : reason);
            to->sink->command(to->sink->user, &e);
        }
}

/* The command that must come next, so that the work's own can come. */
static uint32_t pimhw_i_needed(const pimhw_i_rules *rules, const pimhw_i_channel *ch,
                               const pimhw_i_work *work)
{
    const pimhw_i_command *meta = &PIMHW_I_COMMANDS[work->command];
    const pimhw_i_banks *b = ch->banks;
    if (!meta->needs_row) return work->command;
    if (pimhw_i_one_bank(work->command)) {
        if (!(b->open >> work->bank & 1)) return PIMHW_CMD_ACT;
        return b->row[work->bank] == work->row ? work->command : (uint32_t)PIMHW_CMD_PRE;
    }
    if (!ch->banked) {
        if (!ch->row_open) return PIMHW_CMD_ACT16;
        return ch->row == work->row ? work->command : (uint32_t)PIMHW_CMD_PREA;
    }
    for (uint64_t left = b->open; left; left &= left - 1)
        if (b->row[pimhw_i_lowest(left)] != work->row) return PIMHW_CMD_PREA;
    return b->open == rules->all_banks ? work->command : (uint32_t)PIMHW_CMD_ACT16;
}

/* Issues a command at clock t, or the change of mode it needs; true if it was the command. */
static bool pimhw_i_send(const pimhw_i_issuer *to, pimhw_i_channel *ch, uint32_t command,
                         uint64_t t, uint64_t n, const pimhw_i_work *work, uint32_t reason)
{
    bool changes = ch->register_mode != PIMHW_I_COMMANDS[command].register_mode;
    if (changes) {
        /* the mode changes in the clock in which the command itself could have gone */
        command = PIMHW_CMD_TMOD;
        n = 1;
        ch->register_mode = !ch->register_mode;
    }
    pimhw_i_issue(to->rules, ch, command, work->bank, work->row, t, n, reason);
    if (to->sink) pimhw_i_tell(to, ch, command, t, n, work, reason);
    return !changes;
}

/* The effect of a work's own command on what the host waits for. */
static void pimhw_i_completed(const pimhw_i_rules *rules, pimhw_i_channel *ch, uint32_t command)
{
    uint64_t done = ch->last_ck + rules->completes[command];
    if (PIMHW_I_READS >> command & 1) /* answers leave in the order of the reads, one a clock */
    {
        ch->answer_ck = pimhw_i_max(done, ch->answer_ck + 1);
        ch->n_answers++;
    } else
        ch->pending_ck = pimhw_i_max(ch->pending_ck, done);
}

static pimhw_i_work pimhw_i_access_work(const pimhw_i_access *a)
{
    pimhw_i_work work;
    memset(&work, 0, sizeof work);
    work.command = a->command;
    work.bank = a->bank;
    work.row = a->row;
    return work;
}

/*
 * The access of a list that goes first: of those whose next command may issue by clock t the
 * oldest. *soonest is the earliest clock of any.
 */
static int pimhw_i_best(const pimhw_i_rules *rules, const pimhw_i_channel *ch,
                        const pimhw_i_accesses *list, uint64_t t, uint64_t *soonest)
{
    int best = -1;
    *soonest = UINT64_MAX;
    for (uint32_t i = 0; i < list->n; i++) {
        pimhw_i_work work = pimhw_i_access_work(&list->at[i]);
        uint32_t next = pimhw_i_needed(rules, ch, &work), reason;

        uint64_t ready = pimhw_i_earliest(rules, ch, next, work.bank, &reason);
        *soonest = pimhw_i_min(*soonest, ready);
        if (ready > t) continue;
        if (best < 0 || list->at[i].order < list->at[best].order) best = (int)i;
    }
    return best;
}

static void pimhw_i_remove(pimhw_i_accesses *list, int at)
{
    list->n--;
    for (uint32_t i = (uint32_t)at; i < list->n; i++)
        list->at[i] = list->at[i + 1];
}

/* Whether an active access waits for this very bank: then its row is not closed. */
static bool pimhw_i_guarded(const pimhw_i_channel *ch, uint32_t command, uint32_t bank, int self)
{
    if (command != PIMHW_CMD_PRE) return false;
    for (uint32_t i = 0; i < ch->banks->active.n; i++)
        if ((int)i != self && ch->banks->active.at[i].bank == bank) return true;
    return false;
}

/* Sends the next command of an access at clock t. */
static void pimhw_i_serve(const pimhw_i_issuer *to, pimhw_i_channel *ch, pimhw_i_accesses *list,
                          int at, uint64_t t)
{
    pimhw_i_banks *b = ch->banks;
    pimhw_i_access access = list->at[at];
    pimhw_i_work work = pimhw_i_access_work(&access);
    uint32_t next = pimhw_i_needed(to->rules, ch, &work), reason;
    if (pimhw_i_guarded(ch, next, work.bank, list == &b->active ? at : -1)) return;
    uint64_t ready = pimhw_i_earliest(to->rules, ch, next, work.bank, &reason);
    if (ready < t) reason = PIMHW_WAIT_HOST;
    if (!pimhw_i_send(to, ch, next, t, 1, &work, reason)) return;
    if (next == work.command) {
        pimhw_i_completed(to->rules, ch, next);
        pimhw_i_remove(list, at);
    } else if (next == PIMHW_CMD_ACT && list != &b->active && b->active.n < PIMHW_I_QUEUE) {
        pimhw_i_remove(list, at);
        b->active.at[b->active.n++] = access;
    }
}

/* Whether the ordinary controller writes now: a burst of writes, or no reads. */
static bool pimhw_i_write_mode(pimhw_i_banks *b, uint32_t queue_entries)
{
    uint32_t reads = b->queue[0].n, writes = b->queue[1].n, size = queue_entries - 1;
    if (!b->write_mode)
        b->write_mode = 10 * writes > 8 * size || reads == 0;
    else
        b->write_mode = !(10 * writes < 2 * size && reads != 0);
    return b->write_mode;
}

/* Serves the ordinary queues and the active list clock by clock; the PIM queue is empty. */
static void pimhw_i_advance(const pimhw_i_issuer *to, pimhw_i_channel *ch, uint64_t until_ck,
                            uint32_t queue_entries)
{
    pimhw_i_banks *b = ch->banks;
    uint64_t soonest;
    ch->hold_ck = 0;
    while (b->clock_ck < until_ck && b->active.n + b->queue[0].n + b->queue[1].n > 0) {
        uint64_t t = ++b->clock_ck;
        pimhw_i_accesses *list = &b->active;
        int best = pimhw_i_best(to->rules, ch, list, t, &soonest);
        if (best < 0) {
            list = &b->queue[pimhw_i_write_mode(b, queue_entries)];
            best = pimhw_i_best(to->rules, ch, list, t, &soonest);
        }
        if (best >= 0) pimhw_i_serve(to, ch, list, best, t);
    }
    b->clock_ck = pimhw_i_max(b->clock_ck, until_ck);
}

/* An active access that may go by clock t, or must before the command, goes first; else false. */
static bool pimhw_i_active_first(const pimhw_i_issuer *to, pimhw_i_channel *ch, uint32_t command,
                                 uint32_t bank, uint64_t t)
{
    pimhw_i_banks *b = ch->banks;
    uint64_t hold = ch->hold_ck, soonest;
    if (!ch->banked || b->active.n == 0) return false;
    ch->hold_ck = b->clock_ck + 1;
    int best = pimhw_i_best(to->rules, ch, &b->active, t, &soonest);
    if (best < 0 && soonest < UINT64_MAX && pimhw_i_guarded(ch, command, bank, -1)) t = soonest;
    if (soonest <= t) {
        best = pimhw_i_best(to->rules, ch, &b->active, soonest, &soonest);
        pimhw_i_serve(to, ch, &b->active, best, soonest);
        b->clock_ck = ch->last_ck;
        best = 0;
    } else {
        best = -1;
    }
    ch->hold_ck = hold;
    return best == 0;
}

static void pimhw_i_queue(pimhw_i_channel *ch, uint64_t last_ck, uint64_t step_ck, uint64_t n)
{
    ch->newest_run = (ch->newest_run + 1) % PIMHW_I_QUEUE;
    pimhw_i_run *run = &ch->runs[ch->newest_run];
    run->last_ck = last_ck;
    run->step_ck = step_ck;
    run->n = n;
}

/* Does n times the work of one instruction. */
static void pimhw_i_in_order(const pimhw_i_issuer *to, pimhw_i_channel *ch,
                             const pimhw_i_work *work, uint64_t n)
{
    if (pimhw_i_one_bank(work->command)) pimhw_i_bank_by_bank(to->rules, ch);
    while (n > 0) {
        uint32_t reason, next = pimhw_i_needed(to->rules, ch, work);
        uint64_t t = pimhw_i_earliest(to->rules, ch, next, work->bank, &reason);
        if (pimhw_i_active_first(to, ch, next, work->bank, t)) continue;
        bool alone = !ch->banked || ch->banks->active.n == 0;
        uint64_t together = next == work->command && alone ? n : 1;
        if (!pimhw_i_send(to, ch, next, t, together, work, reason)) continue;
        if (next != work->command) continue;
        n -= together;
        uint64_t step = to->rules->again_ck[next];
        pimhw_i_queue(ch, ch->last_ck, step, together);
    }
    ch->left_ck = ch->last_ck;
    if (ch->banked) ch->banks->clock_ck = ch->last_ck;
    pimhw_i_completed(to->rules, ch, work->command);
}

/* Clock at which the request `entries` before the newest left the queue; 0 if there is none. */
static uint64_t pimhw_i_queue_left_ck(const pimhw_i_channel *ch, uint64_t entries)
{
    for (uint32_t i = 0; i < PIMHW_I_QUEUE; i++) {
        const pimhw_i_run *run = &ch->runs[(ch->newest_run + PIMHW_I_QUEUE - i) % PIMHW_I_QUEUE];
        if (run->n > entries) return run->last_ck - entries * run->step_ck;
        entries -= run->n;
    }
    return 0;
}

/* The clock from which on the PIM queue takes instructions: the ordinary queues are empty. */
static uint64_t pimhw_i_take_ck(const pimhw_i_issuer *to, pimhw_i_channel *ch, uint64_t from_ck,
                                uint32_t queue_entries)
{
    if (!ch->banked) return from_ck;
    pimhw_i_advance(to, ch, from_ck, queue_entries);
    /* empty ones take at once, however far its own commands have moved the channel's clock */
    if (ch->banks->queue[0].n + ch->banks->queue[1].n == 0) return from_ck;
    while (ch->banks->queue[0].n + ch->banks->queue[1].n > 0)
        pimhw_i_advance(to, ch, ch->banks->clock_ck + 1, queue_entries);
    return ch->banks->clock_ck;
}

/* Puts an access into its queue when the PIM queue is empty and there is room; returns when. */
static uint64_t pimhw_i_access_ck(const pimhw_i_issuer *to, pimhw_i_channel *ch,
                                  const pimhw_i_work *work, uint64_t from_ck,
                                  uint32_t queue_entries)
{
    pimhw_i_bank_by_bank(to->rules, ch);
    pimhw_i_banks *b = ch->banks;
    pimhw_i_accesses *list = &b->queue[work->command == PIMHW_CMD_WR];
    uint64_t t = pimhw_i_max(from_ck, ch->left_ck);
    pimhw_i_advance(to, ch, t, queue_entries);
    if (work->command == PIMHW_CMD_RD && b->queue[1].n > 0) {
        /* the simulator forwards any read from the write queue */
        ch->answer_ck = pimhw_i_max(t + 1, ch->answer_ck + 1);
        ch->n_answers++;
        return t;
    }
    while (list->n >= queue_entries)
        pimhw_i_advance(to, ch, ++t, queue_entries);
    pimhw_i_access *a = &list->at[list->n++];
    a->order = b->order++;
    a->bank = work->bank;
    a->row = (uint32_t)work->row;
    a->command = work->command;
    return t;
}

/* ==========================================================================
 * [H16] DISPATCHER: program and request to instructions, one at a time.
 *       Knows loops and operands; never clocks.
 * ========================================================================== */

PIMHW_API void pimhw_program_init(pimhw_program *program)
{
    memset(program, 0, sizeof *program);
}

static void pimhw_i_program_fail(pimhw_program *program, const char *text, uint64_t most)
{
    if (program->status != PIMHW_OK) return;
    program->status = PIMHW_ERR_PROGRAM;
    pimhw_cause_write(&program->why, text, most);
}

PIMHW_API uint8_t pimhw_program_tail(pimhw_program *program, const pimhw_tail *tail)
{
    for (uint32_t i = 0; i < program->n_tails; i++)
        if (memcmp(&program->tails[i], tail, sizeof *tail) == 0) return (uint8_t)(i + 1);
    if (program->n_tails == PIMHW_PROGRAM_TAILS) {
        pimhw_i_program_fail(program, "more than %u tails in a program", PIMHW_PROGRAM_TAILS);
        return 0;
    }
    program->tails[program->n_tails] = *tail;
    return (uint8_t)++program->n_tails;
}

PIMHW_API uint8_t pimhw_program_operand(pimhw_program *program, const pimhw_operand *operand)
{
    for (uint32_t i = 0; i < program->n_operands; i++)
        if (memcmp(&program->operands[i], operand, sizeof *operand) == 0) return (uint8_t)(i + 1);
    if (program->n_operands == PIMHW_PROGRAM_OPERANDS) {
        pimhw_i_program_fail(program, "more than %u operands in a program", PIMHW_PROGRAM_OPERANDS);
        return 0;
    }
    program->operands[program->n_operands] = *operand;
    return (uint8_t)++program->n_operands;
}

PIMHW_API uint8_t pimhw_program_const(pimhw_program *program, uint64_t value)
{
    pimhw_operand o;
    if (value == 0) return 0;
    memset(&o, 0, sizeof o);
    o.base = value;
    return pimhw_program_operand(program, &o);
}

static bool pimhw_i_opens(uint32_t kind)
{
    return kind == PIMHW_LOOP || kind == PIMHW_LIST || kind == PIMHW_BLOCK;
}

PIMHW_API void pimhw_program_item(pimhw_program *program, const pimhw_item *item)
{
    if (program->n_items == PIMHW_PROGRAM_ITEMS) {
        pimhw_i_program_fail(program, "more than %u items in a program", PIMHW_PROGRAM_ITEMS);
        return;
    }
    uint32_t at = program->n_items;
    if (pimhw_i_opens(item->kind) && program->depth == 2 * PIMHW_LOOPS) {
        pimhw_i_program_fail(program, "more than %u structures nested", 2 * PIMHW_LOOPS);
        return;
    }
    if (item->kind == PIMHW_END && program->depth == 0) {
        pimhw_i_program_fail(program, "item %u: END closes nothing", at);
        return;
    }
    program->items[at] = *item;
    program->n_items++;
    if (pimhw_i_opens(item->kind)) {
        program->open[program->depth++] = (uint16_t)at;
    } else if (item->kind == PIMHW_END) {
        uint16_t opener = program->open[--program->depth];
        program->items[at].end = opener;
        program->items[opener].end = (uint16_t)at;
    }
}

PIMHW_API void pimhw_program_add(pimhw_program *program, const pimhw_instruction *instruction)
{
    pimhw_item item;
    memset(&item, 0, sizeof item);
    item.mask = instruction->mask;
    item.kind = (uint8_t)instruction->kind;
    item.flags = (uint8_t)instruction->flags;
    item.op_size = pimhw_program_const(program, instruction->op_size);
    item.bank = pimhw_program_const(program, instruction->bank);
    item.row = pimhw_program_const(program, instruction->row);
    item.column = pimhw_program_const(program, instruction->column);
    item.tile = pimhw_program_const(program, instruction->tile);
    item.out = pimhw_program_const(program, instruction->out);
    item.gpr = pimhw_program_const(program, instruction->gpr);
    item.aux = pimhw_program_const(program, instruction->aux);
    pimhw_program_item(program, &item);
}

PIMHW_API void pimhw_program_loop(pimhw_program *program, uint8_t rounds_name, uint64_t mask)
{
    pimhw_item item;
    memset(&item, 0, sizeof item);
    item.kind = PIMHW_LOOP;
    item.mask = mask;
    item.op_size = rounds_name;
    pimhw_program_item(program, &item);
}

PIMHW_API void pimhw_program_end(pimhw_program *program)
{
    pimhw_item item;
    memset(&item, 0, sizeof item);
    item.kind = PIMHW_END;
    pimhw_program_item(program, &item);
}

PIMHW_API uint64_t pimhw_program_bytes(const pimhw_program *program)
{
    return (uint64_t)program->n_items * sizeof(pimhw_item) +
           (uint64_t)program->n_operands * sizeof(pimhw_operand) +
           (uint64_t)program->n_tails * sizeof(pimhw_tail);
}

/* Fields of an item that are operands. */
enum {
    PIMHW_I_OP_SIZE = 0,
    PIMHW_I_BANK,
    PIMHW_I_ROW,
    PIMHW_I_COLUMN,
    PIMHW_I_TILE,
    PIMHW_I_OUT,
    PIMHW_I_GPR, /* from here on timing does not need them */
    PIMHW_I_AUX
};

static void pimhw_i_item_operands(const pimhw_item *item, uint8_t names[8])
{
    const uint8_t fields[8] = {item->op_size, item->bank, item->row, item->column,
                               item->tile,    item->out,  item->gpr, item->aux};
    memcpy(names, fields, sizeof fields);
}

/* Steps below 2^32 and rounds below 2^28: no sum of products reaches 2^64. */
enum { PIMHW_I_NESTED = 2 * PIMHW_LOOPS, PIMHW_I_MOST_BITS = 32, PIMHW_I_MOST_ROUND_BITS = 28 };

/* Whether all steps are below 2^32. */
static bool pimhw_i_steps_fit(const uint64_t step[PIMHW_LOOPS])
{
    for (uint32_t i = 0; i < PIMHW_LOOPS; i++)
        if (step[i] >> PIMHW_I_MOST_BITS) return false;
    return true;
}

/* What is wrong with an operand; NULL: nothing. */
static const char *pimhw_i_operand_fault(const pimhw_program *p, const pimhw_operand *o)
{
    bool grows = false;
    if (!pimhw_i_steps_fit(o->step)) return "a step of 2^32 or more";
    for (uint32_t i = 0; i < PIMHW_LOOPS; i++)
        grows = grows || o->step[i];
    if (grows && o->base >> 62) return "a base of 2^62 or more that grows";
    for (int i = 0; i < 2; i++) {
        if (o->tail[i] > p->n_tails) return "a tail that is not there";
        if (o->tail[i] == 0) continue;
        const pimhw_tail *t = &p->tails[o->tail[i] - 1];
        if (t->rest > PIMHW_RESTS) return "a tail of a number no block has";
        if (!pimhw_i_steps_fit(t->step) || t->channel_step >> PIMHW_I_MOST_BITS ||
            t->mul >> PIMHW_I_MOST_BITS)
            return "a step or factor of 2^32 or more";
    }
    return NULL;
}

static const char *pimhw_i_operands_fault(const pimhw_program *p, const pimhw_item *item)
{
    uint8_t names[8];
    pimhw_i_item_operands(item, names);
    for (int i = 0; i < 8; i++) {
        if (names[i] > p->n_operands) return "an operand that is not there";
        const char *fault = names[i] ? pimhw_i_operand_fault(p, &p->operands[names[i] - 1]) : NULL;
        if (fault) return fault;
    }
    return item->space < PIMHW_SPACES ? NULL : "a row space that is not there";
}

/* The structures around an item, outermost first. */
typedef struct pimhw_i_nest {
    uint32_t open[PIMHW_I_NESTED];
    uint32_t depth, loops;
    bool in_block;
} pimhw_i_nest;

/* The rounds that a list or block names; UINT64_MAX if they are not a constant. */
static uint64_t pimhw_i_aux(const pimhw_program *p, const pimhw_item *item)
{
    if (item->aux == 0) return 0;
    const pimhw_operand *o = &p->operands[item->aux - 1];
    for (uint32_t i = 0; i < PIMHW_LOOPS; i++)
        if (o->step[i]) return UINT64_MAX;
    return o->tail[0] || o->tail[1] ? UINT64_MAX : o->base;
}

/* What is wrong with an item that opens or closes a structure; NULL: nothing. */
static const char *pimhw_i_nest_fault(const pimhw_program *p, uint32_t i, pimhw_i_nest *nest)
{
    const pimhw_item *item = &p->items[i];
    bool in_list = p->items[0].kind == PIMHW_LIST;
    if (item->kind == PIMHW_END) {
        if (nest->depth == 0) return "closes nothing";
        uint32_t opener = nest->open[--nest->depth];
        if (item->end != opener || p->items[opener].end != i) return "closes another structure";
        if (p->items[opener].kind == PIMHW_BLOCK)
            nest->in_block = false;
        else
            nest->loops--;
        return NULL;
    }
    if (nest->depth == PIMHW_I_NESTED) return "nested too deep";
    nest->open[nest->depth++] = i;
    if (item->kind != PIMHW_LOOP && pimhw_i_aux(p, item) >> PIMHW_I_MOST_ROUND_BITS)
        return "aux is not a constant below 2^28";
    if (item->kind == PIMHW_BLOCK) {
        if (nest->in_block) return "a block inside a block";
        if (!in_list) return "a block outside a list";
        if (pimhw_i_aux(p, item) > pimhw_i_aux(p, &p->items[0]))
            return "aux is more than the list's";
        nest->in_block = true;
        return NULL;
    }
    if (item->kind == PIMHW_LIST && i != 0) return "a list that is not the first item";
    return nest->loops++ == PIMHW_LOOPS ? "loops nested too deep" : NULL;
}

/* What is wrong with item i; NULL: nothing. */
static const char *pimhw_i_item_fault(const pimhw_program *p, uint32_t i, uint64_t channels,
                                      pimhw_i_nest *nest)
{
    const pimhw_item *item = &p->items[i];
    if (item->kind >= PIMHW_N_KINDS) return "no such kind";
    if (i > 0 && p->items[0].kind == PIMHW_LIST && i > p->items[0].end) return "after the list";
    const char *fault = pimhw_i_operands_fault(p, item);
    if (fault) return fault;
    bool structure = pimhw_i_opens(item->kind) || item->kind == PIMHW_END;
    if (structure) fault = pimhw_i_nest_fault(p, i, nest);
    if (fault || (structure && item->kind != PIMHW_LOOP)) return fault;
    if (item->kind == PIMHW_SYNC || item->kind == PIMHW_EOC) return NULL;
    if (!(item->mask & channels)) return "mask: no channel";
    if (item->mask & ~channels) return "mask: a channel the device lacks";
    return PIMHW_I_KINDS[item->kind].sized && item->op_size == 0 ? "op_size is 0" : NULL;
}

PIMHW_API pimhw_status pimhw_program_check(const pimhw_program *program, const pimhw_config *config,
                                           pimhw_cause *why)
{
    const pimhw_program *p = program;
    pimhw_i_nest nest;
    if (!p || !config) return PIMHW_ERR_ARGUMENT;
    if (p->status != PIMHW_OK) {
        if (why) *why = p->why;
        return p->status;
    }
    if (p->n_items > PIMHW_PROGRAM_ITEMS || p->n_operands > PIMHW_PROGRAM_OPERANDS ||
        p->n_tails > PIMHW_PROGRAM_TAILS) {
        pimhw_cause_write(why, "the program was not made by the builder");
        return PIMHW_ERR_PROGRAM;
    }
    memset(&nest, 0, sizeof nest);
    for (uint32_t i = 0; i < p->n_items; i++) {
        const char *fault = pimhw_i_item_fault(p, i, pimhw_i_low_bits(config->n_channels), &nest);
        if (!fault) continue;
        pimhw_cause_write(why, "item %u: %s", (uint64_t)i, fault);
        return PIMHW_ERR_PROGRAM;
    }
    if (nest.depth == 0) return PIMHW_OK;
    pimhw_cause_write(why, "item %u: not closed", (uint64_t)nest.open[nest.depth - 1]);
    return PIMHW_ERR_PROGRAM;
}

/* Rows of ordinary use: half the way to where the rows of AF begin. */
enum { PIMHW_I_PLAIN_ROWS = 1 << 28 };

/* What walking needs to know of a program again and again. */

typedef struct pimhw_i_sketch {
    uint8_t operand_loops[PIMHW_PROGRAM_OPERANDS]; /* bit l: grows with loop l */
    uint8_t tail_loops[PIMHW_PROGRAM_TAILS];
    uint8_t tail_shift[PIMHW_PROGRAM_TAILS];     /* the unit is 2^shift; 64: it is not */
    bool uneven_operand[PIMHW_PROGRAM_OPERANDS]; /* differs from channel to channel */
    uint8_t uneven[PIMHW_PROGRAM_ITEMS];         /* bit f: field f does */
    uint8_t dynamic[PIMHW_PROGRAM_ITEMS];        /* bit f: field f of the item is not a constant */
    uint64_t value[PIMHW_PROGRAM_ITEMS][8];      /* the constants, by field */
    uint8_t names[PIMHW_PROGRAM_ITEMS][8];       /* the operands, by field */
    bool lists;                                  /* channels have lists of their own */
    bool by_round; /* something grows with the outermost loop, or a row is not an ordinary one */
} pimhw_i_sketch;

static uint8_t pimhw_i_loops_of(const uint64_t step[PIMHW_LOOPS])
{
    uint32_t loops = 0;
    for (uint32_t l = 0; l < PIMHW_LOOPS; l++)
        loops |= (uint32_t)(step[l] != 0) << l;
    return (uint8_t)loops;
}

static void pimhw_i_sketch_init(pimhw_i_sketch *s, const pimhw_program *p,
                                const pimhw_request *request)
{
    s->lists = request && request->list_begin;
    s->by_round = false;
    for (uint32_t i = 0; i < p->n_tails; i++) {
        uint64_t unit = pimhw_i_max(p->tails[i].unit, 1);
        s->tail_loops[i] = pimhw_i_loops_of(p->tails[i].step);
        s->by_round = s->by_round || (s->tail_loops[i] & 1);
        s->tail_shift[i] = (uint8_t)(unit & (unit - 1) ? 64 : pimhw_i_lowest(unit));
    }
    for (uint32_t i = 0; i < p->n_operands; i++) {
        const pimhw_operand *o = &p->operands[i];
        s->operand_loops[i] = pimhw_i_loops_of(o->step);
        s->by_round = s->by_round || (s->operand_loops[i] & 1);
        s->uneven_operand[i] = false;
        for (int k = 0; k < 2; k++) {
            if (!o->tail[k]) continue;
            const pimhw_tail *t = &p->tails[o->tail[k] - 1];
            if (t->channel_step || (s->lists && t->rest)) s->uneven_operand[i] = true;
        }
    }
    for (uint32_t i = 0; i < p->n_items; i++) {
        const pimhw_item *item = &p->items[i];
        uint8_t *names = s->names[i];
        pimhw_i_item_operands(item, names);
        /* blocks of different channels lie in different rows, lists differ in length */
        bool blocks = PIMHW_I_KINDS[item->kind].has_row || item->kind == PIMHW_LIST;
        s->uneven[i] = s->lists && blocks ? (uint8_t)(1u << PIMHW_I_ROW) : (uint8_t)0;
        s->dynamic[i] = 0;
        for (uint32_t f = 0; f < 8; f++) {
            s->value[i][f] = names[f] ? p->operands[names[f] - 1].base : 0;
            if (names[f] == 0) continue;
            const pimhw_operand *o = &p->operands[names[f] - 1];
            bool constant = !s->operand_loops[names[f] - 1] && !o->tail[0] && !o->tail[1];
            if (!constant) s->dynamic[i] |= (uint8_t)(1u << f);
            if (s->uneven_operand[names[f] - 1]) s->uneven[i] |= (uint8_t)(1u << f);
            if (f == PIMHW_I_ROW && o->base >= PIMHW_I_PLAIN_ROWS) s->by_round = true;
        }
    }
}

/* Where a set of channels is in a program, in lock-step. */
typedef struct pimhw_i_walker {
    const pimhw_program *program;
    const pimhw_request *request; /* NULL: none */
    const pimhw_i_sketch *sketch;
    uint64_t mask;            /* channels that take part here */
    uint64_t outer;           /* those outside the block */
    uint64_t todo;            /* those the current item still has to reach */
    uint64_t lag;             /* of the block: rounds ago */
    const pimhw_block *block; /* of all channels, where they share a list */
    uint32_t pc, depth;
    uint32_t at;    /* item of the last instruction */
    uint8_t fields; /* that are wanted, besides those that tell channels apart */
    uint64_t index[PIMHW_LOOPS];
    uint64_t bound[PIMHW_LOOPS]; /* rounds of the channel with most */
    uint64_t enter[PIMHW_LOOPS];
    bool even[PIMHW_LOOPS];                 /* all channels do bound rounds; else: */
    uint64_t (*rounds)[PIMHW_MAX_CHANNELS]; /* [PIMHW_LOOPS], rounds of each channel */
} pimhw_i_walker;

/* Blocks in the list of a channel. */
static uint64_t pimhw_i_blocks(const pimhw_request *request, uint32_t channel)
{
    if (!request) return 0;
    if (!request->list_begin) return request->n_blocks;
    return request->list_begin[channel + 1] - request->list_begin[channel];
}

/* The block a channel works on; NULL if there is none. */
static const pimhw_block *pimhw_i_block_of(const pimhw_i_walker *w, uint32_t channel)
{
    bool in_list = w->program->n_items > 0 && w->program->items[0].kind == PIMHW_LIST;
    uint64_t i = in_list && w->depth > 0 ? w->index[0] - w->lag : 0;
    if (i >= pimhw_i_blocks(w->request, channel)) return NULL;
    if (!w->request->list_begin) return &w->request->blocks[i];
    return &w->request->blocks[w->request->order[w->request->list_begin[channel] + i]];
}

/* The same; where all channels share a list it was found when the block began. */
static const pimhw_block *pimhw_i_block(const pimhw_i_walker *w, uint32_t channel)
{
    return w->sketch->lists ? pimhw_i_block_of(w, channel) : w->block;
}

static void pimhw_i_walker_init(pimhw_i_walker *w, const pimhw_program *program,
                                const pimhw_request *request, const pimhw_i_sketch *sketch,
                                uint64_t mask, uint32_t fields,
                                uint64_t (*rounds)[PIMHW_MAX_CHANNELS])
{
    memset(w, 0, sizeof *w);
    w->program = program;
    w->request = request;
    w->sketch = sketch;
    w->mask = mask;
    w->fields = (uint8_t)fields;
    w->rounds = rounds;
    w->block = pimhw_i_block_of(w, 0);
}

/* Sum of the steps of the loops, those under way that are in `loops`. */
static uint64_t pimhw_i_steps(const pimhw_i_walker *w, const uint64_t step[PIMHW_LOOPS],
                              uint32_t loops)
{
    uint64_t sum = 0;
    for (uint64_t left = loops & ((1u << w->depth) - 1); left; left &= left - 1) {
        uint32_t l = pimhw_i_lowest(left);
        sum += step[l] * w->index[l];
    }
    return sum;
}

static uint64_t pimhw_i_tail_value(const pimhw_i_walker *w, uint32_t i, uint32_t channel,
                                   const pimhw_block *block)
{
    const pimhw_tail *t = &w->program->tails[i];
    uint64_t left = t->base;
    uint64_t gone = pimhw_i_steps(w, t->step, w->sketch->tail_loops[i]);
    if (t->rest && block) {
        uint64_t rest = block->rest[t->rest - 1];
        left = rest > UINT64_MAX - left ? UINT64_MAX : left + rest;
    }
    if (t->channel_step)
        gone += t->channel_step * (t->channel_div > 1 ? channel / t->channel_div : channel);
    if (left <= gone) return 0;
    left -= gone;
    uint32_t shift = w->sketch->tail_shift[i];
    left = shift < 64 ? ((left - 1) >> shift) + 1 : pimhw_i_ceil_div(left, t->unit);
    if (t->mul <= 1) return left;
    return left >> PIMHW_I_MOST_BITS && left > UINT64_MAX / t->mul ? UINT64_MAX : left * t->mul;
}

static uint64_t pimhw_i_value(const pimhw_i_walker *w, uint8_t name, uint32_t channel,
                              const pimhw_block *block)
{
    if (name == 0) return 0;
    const pimhw_operand *o = &w->program->operands[name - 1];
    uint64_t value = o->base + pimhw_i_steps(w, o->step, w->sketch->operand_loops[name - 1]);
    for (int k = 0; k < 2 && value; k++)
        if (o->tail[k])
            value = pimhw_i_min(value, pimhw_i_tail_value(w, o->tail[k] - 1u, channel, block));
    return value;
}

static uint64_t pimhw_i_rounds(const pimhw_i_walker *w, const pimhw_item *item, uint32_t channel)
{
    if (item->kind == PIMHW_LOOP)
        return pimhw_i_value(w, item->op_size, channel, pimhw_i_block(w, channel));
    uint64_t n = pimhw_i_blocks(w->request, channel);
    return n ? n + pimhw_i_value(w, item->aux, channel, NULL) : 0;
}

/* Channels of mask that still do round i of loop level. */
static uint64_t pimhw_i_in_round(const pimhw_i_walker *w, uint32_t level, uint64_t mask, uint64_t i)
{
    uint64_t in = mask;
    if (w->even[level]) return i < w->bound[level] ? mask : 0;
    for (uint64_t left = mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        if (i >= w->rounds[level][c]) in &= ~((uint64_t)1 << c);
    }
    return in;
}

/* Rounds of each channel of mask, into w->rounds and w->bound; false if all do the same. */
static bool pimhw_i_uneven_rounds(pimhw_i_walker *w, const pimhw_item *item, uint64_t mask)
{
    uint64_t *rounds = w->rounds[w->depth];
    uint32_t first = pimhw_i_lowest(mask), last = pimhw_i_highest(mask);
    uint64_t most = w->bound[w->depth] = pimhw_i_rounds(w, item, first);
    if (!w->sketch->uneven[w->pc] || first == last) return false;
    /* of one block, no channel has more left than a lower one */
    if (!w->sketch->lists && most == pimhw_i_rounds(w, item, last)) return false;
    for (uint64_t left = mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        rounds[c] = most == 0 && !w->sketch->lists ? 0 : pimhw_i_rounds(w, item, c);
        if (!w->sketch->lists) most = rounds[c];
        w->bound[w->depth] = pimhw_i_max(w->bound[w->depth], rounds[c]);
    }
    return true;
}

/* False if a channel would do 2^28 rounds or more. */
static bool pimhw_i_enter_loop(pimhw_i_walker *w, const pimhw_item *item)
{
    uint32_t level = w->depth;
    uint64_t mask = item->kind == PIMHW_LOOP ? w->mask & item->mask : w->mask;
    w->bound[level] = 0;
    w->even[level] = mask == 0 || !pimhw_i_uneven_rounds(w, item, mask);
    if (w->bound[level] == 0) {
        w->pc = item->end + 1u;
        return true;
    }
    if (w->bound[level] >> PIMHW_I_MOST_ROUND_BITS) return false;
    w->enter[level] = w->mask;
    w->index[level] = 0;
    w->mask = pimhw_i_in_round(w, level, mask, 0);
    w->depth++;
    w->pc++;
    if (item->kind == PIMHW_LIST) w->block = pimhw_i_block_of(w, 0);
    return true;
}

static void pimhw_i_enter_block(pimhw_i_walker *w, const pimhw_item *item)
{
    uint64_t lag = pimhw_i_value(w, item->aux, 0, NULL);
    uint64_t in = 0;
    for (uint64_t left = w->mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        uint64_t i = w->index[0];
        if (i >= lag && i - lag < pimhw_i_blocks(w->request, c)) in |= (uint64_t)1 << c;
    }
    if (!in) {
        w->pc = item->end + 1u;
        return;
    }
    w->outer = w->mask;
    w->mask = in;
    w->lag = lag;
    w->block = pimhw_i_block_of(w, 0);
    w->pc++;
}

static void pimhw_i_leave(pimhw_i_walker *w, const pimhw_item *end)
{
    const pimhw_item *opener = &w->program->items[end->end];
    w->pc++;
    if (opener->kind == PIMHW_BLOCK) {
        w->mask = w->outer;
        w->lag = 0;
        w->block = pimhw_i_block_of(w, 0);
        return;
    }
    uint32_t level = w->depth - 1;
    bool is_list = opener->kind == PIMHW_LIST;
    uint64_t mask = opener->kind == PIMHW_LOOP ? w->enter[level] & opener->mask : w->enter[level];
    if (++w->index[level] < w->bound[level]) {
        w->mask = pimhw_i_in_round(w, level, mask, w->index[level]);
        w->pc = end->end + 1u;
        if (is_list) w->block = pimhw_i_block_of(w, 0);
        return;
    }
    w->mask = w->enter[level];
    w->depth--;
}

/* Values of some fields of an item for one channel; constants only where no block moves them. */
static void pimhw_i_fields(const pimhw_i_walker *w, const pimhw_item *item, uint32_t channel,
                           uint32_t fields, uint64_t value[8])
{
    const pimhw_block *block = pimhw_i_block(w, channel);
    bool has_row = PIMHW_I_KINDS[item->kind].has_row && (fields >> PIMHW_I_ROW & 1);
    const uint8_t *names = w->sketch->names[w->pc];
    if (has_row) value[PIMHW_I_ROW] = w->sketch->value[w->pc][PIMHW_I_ROW];
    for (uint64_t left = fields & w->sketch->dynamic[w->pc]; left; left &= left - 1) {
        uint32_t f = pimhw_i_lowest(left);
        value[f] = pimhw_i_value(w, names[f], channel, block);
    }
    if (has_row && block && value[PIMHW_I_ROW] <= UINT32_MAX)
        value[PIMHW_I_ROW] += block->row_base[item->space];
}

/* The hub has one unit: work of channels that each have a list of their own adds up there. */
static void pimhw_i_add_up(const pimhw_i_walker *w, const pimhw_item *item, uint64_t mask,
                           uint64_t value[8])
{
    for (uint64_t left = mask & (mask - 1); left && w->sketch->lists; left &= left - 1) {
        uint64_t its[8];
        its[PIMHW_I_OP_SIZE] = w->sketch->value[w->pc][PIMHW_I_OP_SIZE];
        pimhw_i_fields(w, item, pimhw_i_lowest(left), 1u << PIMHW_I_OP_SIZE, its);
        uint64_t most = UINT64_MAX - value[PIMHW_I_OP_SIZE];
        value[PIMHW_I_OP_SIZE] += pimhw_i_min(most, its[PIMHW_I_OP_SIZE]);
    }
}

/* Whether a channel gets the same values. */
static bool pimhw_i_same_fields(const pimhw_i_walker *w, const pimhw_item *item, uint32_t channel,
                                const uint64_t value[8])
{
    uint64_t its[8];
    memcpy(its, value, sizeof its);
    pimhw_i_fields(w, item, channel, w->sketch->uneven[w->pc], its);
    return memcmp(its, value, sizeof its) == 0;
}

/* The channels of mask that share the values of its lowest; of hub work, all. */
static uint64_t pimhw_i_sharers(const pimhw_i_walker *w, const pimhw_item *item, uint64_t mask,
                                uint64_t value[8])
{
    uint64_t sharers = mask & (~mask + 1);
    if (item->kind == PIMHW_EPU) {
        pimhw_i_add_up(w, item, mask, value);
        return mask;
    }
    if (!w->sketch->uneven[w->pc] || sharers == mask) return mask;
    /* of one block, the values of the channels between two equal ones are the same */
    if (!w->sketch->lists && pimhw_i_same_fields(w, item, pimhw_i_highest(mask), value))
        return mask;
    for (uint64_t left = mask & (mask - 1); left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        if (pimhw_i_same_fields(w, item, c, value)) sharers |= (uint64_t)1 << c;
    }
    return sharers;
}

/* The instruction of the lowest channel in w->todo and those that share its operands. */
static bool pimhw_i_take(pimhw_i_walker *w, const pimhw_item *item, pimhw_instruction *in)
{
    uint64_t value[8];
    memcpy(value, w->sketch->value[w->pc], sizeof value);
    uint32_t fields = w->fields | w->sketch->uneven[w->pc];
    if (item->kind == PIMHW_CFR) fields = 255; /* its value is what it does */
    pimhw_i_fields(w, item, pimhw_i_lowest(w->todo), fields, value);
    in->mask = pimhw_i_sharers(w, item, w->todo, value);
    w->todo &= ~in->mask;
    in->kind = (pimhw_kind)item->kind;
    in->flags = item->flags;
    in->op_size = item->op_size ? value[PIMHW_I_OP_SIZE] : 1;
    in->bank = (uint32_t)value[PIMHW_I_BANK];
    in->row = (uint32_t)value[PIMHW_I_ROW];
    in->column = (uint32_t)value[PIMHW_I_COLUMN];
    in->tile = (uint32_t)value[PIMHW_I_TILE];
    in->out = (uint32_t)value[PIMHW_I_OUT];
    in->gpr = (uint32_t)value[PIMHW_I_GPR];
    in->aux = (uint32_t)value[PIMHW_I_AUX];
    uint64_t all = 0;
    for (uint32_t i = PIMHW_I_BANK; i < 8; i++)
        all |= value[i];
    return all <= UINT32_MAX;
}

typedef enum pimhw_i_step {
    PIMHW_I_GIVEN,
    PIMHW_I_ROUND, /* a round of the list begins */
    PIMHW_I_DONE,
    PIMHW_I_WRONG
} pimhw_i_step;

/* The next instruction of the walker's channels. */
static pimhw_i_step pimhw_i_next(pimhw_i_walker *w, pimhw_instruction *in)
{
    while (w->pc < w->program->n_items) {
        const pimhw_item *item = &w->program->items[w->pc];
        if (item->kind == PIMHW_LOOP || item->kind == PIMHW_LIST) {
            w->at = w->pc;
            if (!pimhw_i_enter_loop(w, item)) return PIMHW_I_WRONG;
            if (item->kind == PIMHW_LIST) return PIMHW_I_ROUND;
        } else if (item->kind == PIMHW_BLOCK) {
            pimhw_i_enter_block(w, item);
        } else if (item->kind == PIMHW_END) {
            uint32_t loops = w->depth;
            pimhw_i_leave(w, item);
            bool again = w->depth == loops && w->program->items[item->end].kind == PIMHW_LIST;
            if (again) return PIMHW_I_ROUND;
        } else {
            w->at = w->pc;
            bool everybody = item->kind == PIMHW_SYNC || item->kind == PIMHW_EOC;
            if (!w->todo) w->todo = everybody ? w->mask : w->mask & item->mask;
            bool any = w->todo != 0;
            if (any && !pimhw_i_take(w, item, in)) return PIMHW_I_WRONG;
            if (!w->todo) w->pc++;
            if (any && in->op_size > 0) return PIMHW_I_GIVEN;
        }
    }
    return PIMHW_I_DONE;
}

/* What is wrong with a resolved instruction on this device; NULL: nothing. */
static const char *pimhw_i_instruction_fault(const pimhw_config *c, uint64_t columns,
                                             const pimhw_instruction *in, uint64_t *is,
                                             uint64_t *most)
{
    uint64_t all = pimhw_i_low_bits(c->n_channels);
    *is = 0;
    *most = 0;
    if ((uint32_t)in->kind < PIMHW_WR_GB || (uint32_t)in->kind >= PIMHW_N_KINDS)
        return "kind (structure of programs only)";
    if (in->kind == PIMHW_SYNC || in->kind == PIMHW_EOC) return NULL;
    if (!in->mask) return "mask: no channel";
    *most = c->n_channels - 1u;
    if (in->mask & ~all) {
        *is = pimhw_i_lowest(in->mask & ~all);
        return "mask: channel";
    }
    if (PIMHW_I_KINDS[in->kind].taker == PIMHW_I_BY_HOST) return NULL;
    const pimhw_i_command *command = &PIMHW_I_COMMANDS[PIMHW_I_KINDS[in->kind].command];
    bool tiles = in->kind == PIMHW_WR_GB || in->kind == PIMHW_MAC_ABK ||
                 in->kind == PIMHW_MAC_SBK || in->kind == PIMHW_COPY_BKGB ||
                 in->kind == PIMHW_COPY_GBBK;
    *is = in->op_size;
    *most = !PIMHW_I_KINDS[in->kind].sized ? 1 : command->needs_row ? columns : c->in_entries;
    if (in->op_size == 0 || in->op_size > *most) return "op_size";
    *is = (uint64_t)in->tile + in->op_size;
    *most = c->in_entries;
    if (tiles && *is > *most) return "tile + op_size";
    *is = (uint64_t)in->column + in->op_size;
    *most = columns;
    if (command->needs_row && *is > *most) return "column + op_size";
    *is = in->out;
    *most = c->out_entries - 1u;
    if (*is > *most) return "out";
    if (pimhw_i_one_bank(PIMHW_I_KINDS[in->kind].command)) {
        *is = in->bank;
        *most = pimhw_config_banks(c) - 1u;
        if (*is > *most) return "bank";
    }
    if (in->kind != PIMHW_WR_ABK) return NULL;
    *is = pimhw_i_count(in->mask);
    *most = 1;
    return *is > *most ? "channels of the mask" : NULL;
}

/* Letters of an AiM text trace, blank-separated; a comment ends it. */
static size_t pimhw_i_word(const char **line, const char **word)
{
    const char *p = *line;
    while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')
        p++;
    *word = p;
    size_t n = *p == '#' ? 0 : strcspn(p, " \t\r\n#");
    *line = p + n;
    return n;
}

static bool pimhw_i_word_is(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(word, name, n) == 0;
}

/* A decimal or 0x number below 2^32. */
static bool pimhw_i_number(const char *word, size_t n, uint32_t *value)
{
    uint64_t total = 0;
    uint32_t base = 10;
    size_t i = 0;
    if (n > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X')) {
        base = 16;
        i = 2;
    }
    if (i == n) return false;
    for (; i < n; i++) {
        char ch = word[i];
        uint32_t digit = 99;
        if (ch >= '0' && ch <= '9') digit = (uint32_t)(ch - '0');
        if (ch >= 'a' && ch <= 'f') digit = (uint32_t)(ch - 'a') + 10;
        if (ch >= 'A' && ch <= 'F') digit = (uint32_t)(ch - 'A') + 10;
        if (digit >= base) return false;
        total = total * base + digit;
        if (total > UINT32_MAX) return false;
    }
    *value = (uint32_t)total;
    return true;
}

/* Channel i is bit 31 - i in the text. */
static uint64_t pimhw_i_mirror(uint64_t mask)
{
    uint64_t out = 0;
    for (uint32_t i = 0; i < 32; i++)
        if (mask >> i & 1) out |= (uint64_t)1 << (31 - i);
    return out;
}

/* The fields AiM's text lacks, where a comment of ours gives them. */
static void pimhw_i_comment_fields(const char *line, pimhw_instruction *in)
{
    static const char names[4][12] = {"column=", "tile=", "out=", "distinct="};
    uint32_t *to[4] = {&in->column, &in->tile, &in->out, &in->flags};
    const char *hash = strchr(line, '#');
    for (int i = 0; hash && i < 4; i++) {
        const char *at = strstr(hash, names[i]);
        if (!at || (at[-1] != ' ' && at[-1] != '#')) continue;
        at += strlen(names[i]);
        if (!pimhw_i_number(at, strcspn(at, " \t\r\n"), to[i])) *to[i] = 0;
        if (to[i] == &in->flags) in->flags = in->flags ? PIMHW_DISTINCT : 0;
    }
}

static const char *pimhw_i_operand_name(char form)
{
    switch (form) {
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

/* Reads operands by a form: one letter each, as in pimhw_i_operand_name; v is the last gpr. */
static pimhw_status pimhw_i_parse_operands(const char *line, const char *name, const char *form,
                                           pimhw_instruction *in, pimhw_cause *why)
{
    const char *word;
    for (; *form; form++) {
        uint32_t value;
        size_t n = pimhw_i_word(&line, &word);
        if (n == 0 || !pimhw_i_number(word, n, &value)) {
            pimhw_cause_write(why, "%s: %s is missing or not a number below 2^32", name,
                              pimhw_i_operand_name(*form));
            return PIMHW_ERR_TEXT;
        }
        if (*form == 's') in->op_size = value;
        if (*form == 'g' || *form == 'v') in->gpr = value;
        if (*form == 'm') in->mask = pimhw_i_mirror(value);
        if (*form == 'b') in->bank = value;
        if (*form == 'r') in->row = value;
        if (*form == 'n') in->aux = value;
        if (*form == 'c' && value >= 32) {
            pimhw_cause_write(why, "%s: channel is %u, not 0 to 31", name, (uint64_t)value);
            return PIMHW_ERR_TEXT;
        }
        if (*form == 'c') in->mask = (uint64_t)1 << value;
    }
    if (pimhw_i_word(&line, &word) > 0) {
        pimhw_cause_write(why, "%s: an operand too many", name);
        return PIMHW_ERR_TEXT;
    }
    pimhw_i_comment_fields(line, in);
    return PIMHW_OK;
}

/* Lines of the host: W or R, then MEM, GPR or CFR. */
typedef struct pimhw_i_host_line {
    char what[4];
    bool write;
    uint8_t kind;
    char form[4];
} pimhw_i_host_line;

static const pimhw_i_host_line PIMHW_I_HOST_LINES[] = {
    {"MEM", true, PIMHW_MEM_WR, "cbr"}, {"MEM", false, PIMHW_MEM_RD, "cbr"},
    {"GPR", true, PIMHW_GPR, "g"},      {"GPR", false, PIMHW_GPR, "g"},
    {"CFR", true, PIMHW_CFR, "nv"},     {"CFR", false, PIMHW_CFR, "nv"},
};

static pimhw_status pimhw_i_parse_host(const char *line, bool write, pimhw_instruction *in,
                                       pimhw_cause *why)
{
    const char *word;
    size_t n = pimhw_i_word(&line, &word);
    for (size_t i = 0; i < sizeof PIMHW_I_HOST_LINES / sizeof PIMHW_I_HOST_LINES[0]; i++) {
        const pimhw_i_host_line *host = &PIMHW_I_HOST_LINES[i];
        if (host->write != write || !pimhw_i_word_is(word, n, host->what)) continue;
        in->kind = (pimhw_kind)host->kind;
        in->out = write && (host->kind == PIMHW_GPR || host->kind == PIMHW_CFR);
        in->mask = pimhw_i_low_bits(32);
        return pimhw_i_parse_operands(line, host->what, host->form, in, why);
    }
    pimhw_cause_write(why, "%s is followed by none of MEM, GPR, CFR", write ? "W" : "R");
    return PIMHW_ERR_TEXT;
}

static pimhw_status pimhw_i_parse_isr(const char *line, pimhw_instruction *in, pimhw_cause *why)
{
    const char *word;
    size_t n = pimhw_i_word(&line, &word);
    if (n > 4 && memcmp(word, "ISR_", 4) == 0) {
        word += 4;
        n -= 4;
    }
    for (uint32_t kind = PIMHW_WR_GB; kind <= PIMHW_EOC; kind++) {
        const pimhw_i_kind *k = &PIMHW_I_KINDS[kind];
        bool in_text = k->text[0] || kind == PIMHW_SYNC || kind == PIMHW_EOC;
        if (!in_text || !pimhw_i_word_is(word, n, k->name)) continue;
        in->kind = (pimhw_kind)kind;
        if (!strchr(k->text, 'm')) in->mask = pimhw_i_low_bits(32);
        return pimhw_i_parse_operands(line, k->name, k->text, in, why);
    }
    char name[24];
    name[pimhw_i_append(name, sizeof name, 0, word, n)] = '\0';
    pimhw_cause_write(why, "there is no instruction \"%s\"", name);
    return PIMHW_ERR_TEXT;
}

PIMHW_API pimhw_status pimhw_aim_parse(const char *line, pimhw_instruction *instruction,
                                       bool *found, pimhw_cause *why)
{
    const char *word;
    pimhw_instruction in;
    pimhw_status status = PIMHW_ERR_TEXT;
    if (!line || !instruction || !found) return PIMHW_ERR_ARGUMENT;
    size_t n = pimhw_i_word(&line, &word);
    *found = n > 0;
    if (n == 0) return PIMHW_OK;
    memset(&in, 0, sizeof in);
    in.op_size = 1;
    if (pimhw_i_word_is(word, n, "AiM"))
        status = pimhw_i_parse_isr(line, &in, why);
    else if (pimhw_i_word_is(word, n, "W") || pimhw_i_word_is(word, n, "R"))
        status = pimhw_i_parse_host(line, word[0] == 'W', &in, why);
    else
        pimhw_cause_write(why, "the line begins with none of AiM, W, R");
    if (status == PIMHW_OK) *instruction = in;
    return status;
}

static size_t pimhw_i_put(char *line, size_t at, const char *word, uint64_t value)
{
    char digits[20];
    at = pimhw_i_append(line, 160, at, word, strlen(word));
    return pimhw_i_append(line, 160, at, digits, pimhw_i_digits(digits, value));
}

/* Writes operands by a form, as pimhw_i_parse_operands reads them. */
static size_t pimhw_i_put_operands(char *line, size_t at, const char *form,
                                   const pimhw_instruction *in)
{
    static const char hex[] = "0123456789abcdef";
    uint64_t bits = pimhw_i_mirror(in->mask);
    for (; *form; form++) {
        if (*form == 's') at = pimhw_i_put(line, at, " ", in->op_size);
        if (*form == 'g' || *form == 'v') at = pimhw_i_put(line, at, " ", in->gpr);
        if (*form == 'b') at = pimhw_i_put(line, at, " ", in->bank);
        if (*form == 'r') at = pimhw_i_put(line, at, " ", in->row);
        if (*form == 'n') at = pimhw_i_put(line, at, " ", in->aux);
        if (*form == 'c') at = pimhw_i_put(line, at, " ", pimhw_i_lowest(in->mask));
        if (*form != 'm') continue;
        at = pimhw_i_append(line, 160, at, " 0x", 3);
        for (int k = 28; k >= 0; k -= 4)
            at = pimhw_i_append(line, 160, at, &hex[bits >> k & 15], 1);
    }
    return at;
}

/* The text's form of an instruction of the host: NULL if it is none. */
static const pimhw_i_host_line *pimhw_i_host_line_of(const pimhw_instruction *in)
{
    for (size_t i = 0; i < sizeof PIMHW_I_HOST_LINES / sizeof PIMHW_I_HOST_LINES[0]; i++) {
        const pimhw_i_host_line *host = &PIMHW_I_HOST_LINES[i];
        bool memory = host->kind == PIMHW_MEM_WR || host->kind == PIMHW_MEM_RD;
        if (host->kind == in->kind && (memory || host->write == (in->out == 1))) return host;
    }
    return NULL;
}

PIMHW_API pimhw_status pimhw_aim_format(const pimhw_instruction *instruction, char line[160],
                                        pimhw_cause *why)
{
    const pimhw_instruction *in = instruction;
    if (!in || !line || (uint32_t)in->kind < PIMHW_WR_GB || (uint32_t)in->kind >= PIMHW_N_KINDS)
        return PIMHW_ERR_ARGUMENT;
    const char *name = PIMHW_I_KINDS[in->kind].name;
    const pimhw_i_host_line *host = pimhw_i_host_line_of(in);
    bool hub = in->kind == PIMHW_EPU || in->kind == PIMHW_EPU_WAIT;
    bool one = in->mask && (in->mask & (in->mask - 1)) == 0;
    if (!hub && (in->mask >> 32 || in->op_size >> 32 || (host && host->form[0] == 'c' && !one))) {
        pimhw_cause_write(why, "%s: the text has 32 channels, op_size below 2^32, MEM one channel",
                          name);
        return PIMHW_ERR_PROGRAM;
    }
    if (host) {
        size_t at = pimhw_i_append(line, 160, 0, host->write ? "W " : "R ", 2);
        at = pimhw_i_append(line, 160, at, host->what, 3);
        pimhw_i_put_operands(line, at, host->form, in);
        return PIMHW_OK;
    }
    const char *form = PIMHW_I_KINDS[in->kind].text;
    size_t at = pimhw_i_append(line, 160, 0, hub ? "# " : "AiM ", hub ? 2 : 4);
    at = pimhw_i_append(line, 160, at, name, strlen(name));
    if (in->kind == PIMHW_EPU) pimhw_i_put(line, at, " elements=", in->op_size);
    at = pimhw_i_put_operands(line, at, form, in);
    if (!*form || in->kind == PIMHW_EWADD) return PIMHW_OK;
    at = pimhw_i_put(line, at, " # column=", in->column);
    at = pimhw_i_put(line, at, " tile=", in->tile);
    at = pimhw_i_put(line, at, " out=", in->out);
    if (in->flags & PIMHW_DISTINCT) pimhw_i_put(line, at, " distinct=", 1);
    return PIMHW_OK;
}

/* ==========================================================================
 * [H17] DEVICE: public functions; the host, the hub and the channels together.
 * ========================================================================== */

enum { PIMHW_I_JOBS = 8 }; /* EPU works of one stream on their way */

/* A run of so many clocks is refused: keys have room for 256 times as many. */
#define PIMHW_I_MOST_CK ((uint64_t)1 << 46)

/* Works of one stream at the hub. */
typedef struct pimhw_i_jobs {
    uint64_t ready_ck[PIMHW_I_JOBS]; /* of works not yet done, oldest first */
    uint64_t cost_ck[PIMHW_I_JOBS];
    bool awaited[PIMHW_I_JOBS];
    uint32_t n;
    uint64_t done_ck[PIMHW_I_JOBS]; /* of awaited works that are done, oldest first */
    uint32_t n_done;
} pimhw_i_jobs;

/* One stream of instructions: its place in the program, its works at the hub. */
typedef struct pimhw_i_stream {
    pimhw_i_walker walker;
    pimhw_i_jobs jobs;
    pimhw_instruction in; /* the instruction that waits for the hub */
    bool waits, over;
} pimhw_i_stream;

typedef enum pimhw_i_phase { PIMHW_I_IDLE, PIMHW_I_OPEN, PIMHW_I_ENDED } pimhw_i_phase;

/* The device at the head of a round of the list. */
typedef struct pimhw_i_head {
    bool taken;
    uint64_t round;
    uint64_t front_ck, decode_ck;
    uint8_t decode_reason;
    uint64_t epu_free_ck, epu_ck, n_instructions;
    uint32_t n_groups;
    pimhw_i_jobs jobs;
    pimhw_i_channel groups[PIMHW_MAX_CHANNELS]; /* without their runs */
} pimhw_i_head;

struct pimhw_device {
    pimhw_config config;
    uint32_t columns; /* of a row */
    pimhw_i_rules rules;
    pimhw_sink sink;
    pimhw_i_issuer issuer;
    pimhw_i_phase phase;
    uint64_t decode_ck;    /* shared front end: the next instruction is decoded */
    uint8_t decode_reason; /* why not earlier */
    uint64_t epu_free_ck;
    uint64_t epu_ck;
    uint64_t skipped_rounds;
    bool endless; /* the hub passed PIMHW_I_MOST_CK */
    uint64_t n_instructions;
    uint32_t n_groups;
    uint32_t n_streams;
    uint8_t group_of[PIMHW_MAX_CHANNELS]; /* of each channel */
    uint32_t af_mode;                     /* what CFR 2 holds: the row of AF */
    pimhw_i_channel groups[PIMHW_MAX_CHANNELS];
    pimhw_i_banks banks[PIMHW_MAX_CHANNELS]; /* of the groups */
    pimhw_i_head head;
    pimhw_i_stream streams[PIMHW_MAX_CHANNELS];
    uint64_t rounds[PIMHW_LOOPS][PIMHW_MAX_CHANNELS];
    pimhw_i_sketch sketch;
};

PIMHW_API pimhw_status pimhw_device_create(pimhw_device **device, const pimhw_config *config,
                                           pimhw_cause *why)
{
    if (!device) return PIMHW_ERR_ARGUMENT;
    *device = NULL;
    pimhw_status status = pimhw_config_check(config, why);
    if (status != PIMHW_OK) return status;
    pimhw_allocator a = config->allocator;
    if (!a.alloc) a = pimhw_allocator_default();
    pimhw_device *d = (pimhw_device *)a.alloc(a.user, sizeof *d, 64);
    if (!d) {
        pimhw_cause_write(why, "no memory for a device: %u bytes", (uint64_t)sizeof *d);
        return PIMHW_ERR_MEMORY;
    }
    memset(d, 0, offsetof(pimhw_device, groups)); /* the rest is filled as it comes into use */
    d->config = *config;
    d->config.allocator = a;
    pimhw_i_rules_init(&d->rules, config);
    d->issuer.rules = &d->rules;
    d->columns = pimhw_config_columns(config);
    *device = d;
    return PIMHW_OK;
}

PIMHW_API void pimhw_device_destroy(pimhw_device *device)
{
    if (!device) return;
    pimhw_allocator a = device->config.allocator;
    a.release(a.user, device, sizeof *device);
}

PIMHW_API const pimhw_config *pimhw_device_config(const pimhw_device *device)
{
    return &device->config;
}

/*
 * The group of the lowest channel in *left, without those of its channels that are not in *left:
 * they become a group of their own. Takes its channels from *left.
 */
static pimhw_i_channel *pimhw_i_group(pimhw_device *d, uint64_t *left)
{
    pimhw_i_channel *ch = &d->groups[d->group_of[pimhw_i_lowest(*left)]];
    uint64_t outside = ch->mask & ~*left;
    *left &= ~ch->mask;
    if (!outside) return ch;
    PIMHW_ASSERT(d->n_groups < PIMHW_MAX_CHANNELS);
    pimhw_i_channel *other = &d->groups[d->n_groups];
    *other = *ch;
    other->banks = &d->banks[d->n_groups];
    if (ch->banked) *other->banks = *ch->banks;
    other->mask = outside;
    ch->mask &= ~outside;
    for (; outside; outside &= outside - 1)
        d->group_of[pimhw_i_lowest(outside)] = (uint8_t)d->n_groups;
    d->n_groups++;
    return ch;
}

/* Does the work that was ready first, of all streams; ties to the lowest stream. */
static bool pimhw_i_epu_serve(pimhw_device *d)
{
    pimhw_i_jobs *first = NULL;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        pimhw_i_jobs *jobs = &d->streams[i].jobs;
        if (jobs->n && (!first || jobs->ready_ck[0] < first->ready_ck[0])) first = jobs;
    }
    if (!first) return false;
    d->epu_free_ck = pimhw_i_max(d->epu_free_ck, first->ready_ck[0]) + first->cost_ck[0];
    d->epu_ck += first->cost_ck[0];
    if (d->epu_free_ck >= PIMHW_I_MOST_CK) {
        d->endless = true;
        d->epu_free_ck = PIMHW_I_MOST_CK;
    }
    if (first->awaited[0]) first->done_ck[first->n_done++] = d->epu_free_ck;
    first->n--;
    for (uint32_t i = 0; i < first->n; i++) {
        first->ready_ck[i] = first->ready_ck[i + 1];
        first->cost_ck[i] = first->cost_ck[i + 1];
        first->awaited[i] = first->awaited[i + 1];
    }
    return true;
}

/* New work at the hub, ready when all before it on its channels is done. */
static void pimhw_i_epu_post(pimhw_device *d, pimhw_i_jobs *jobs, const pimhw_instruction *in)
{
    const pimhw_config *c = &d->config;
    uint64_t ready = d->decode_ck;
    uint64_t ops = pimhw_i_ceil_div(in->op_size, c->epu_lanes);
    uint64_t left = in->mask;
    while (left)
        ready = pimhw_i_max(ready, pimhw_i_group(d, &left)->end_ck);
    jobs->ready_ck[jobs->n] = ready;
    /* beyond the most clocks there can be it makes no difference how far */
    jobs->cost_ck[jobs->n] = pimhw_i_min(ops, PIMHW_I_MOST_CK) * c->epu_ck_per_op;
    jobs->awaited[jobs->n] = (in->flags & PIMHW_AWAITED) != 0;
    jobs->n++;
}

/* Lets the channels of the instruction, or the host, wait for the oldest awaited work. */
static void pimhw_i_epu_wait(pimhw_device *d, pimhw_i_jobs *jobs, uint64_t mask)
{
    if (jobs->n_done == 0) return;
    uint64_t done = jobs->done_ck[0];
    jobs->n_done--;
    for (uint32_t i = 0; i < jobs->n_done; i++)
        jobs->done_ck[i] = jobs->done_ck[i + 1];
    if (d->config.front_end == PIMHW_SHARED) {
        if (done > d->decode_ck) d->decode_reason = PIMHW_WAIT_EPU;
        d->decode_ck = pimhw_i_max(d->decode_ck, done);
        return;
    }
    while (mask) {
        pimhw_i_channel *ch = pimhw_i_group(d, &mask);
        if (done <= ch->hold_ck) continue;
        ch->hold_ck = done;
        ch->hold_reason = PIMHW_WAIT_EPU;
    }
}

/*
 * A SYNC or EOC goes through a channel's PIM queue; returns when its answer comes: after all
 * answers before it, and when no write is under way. It does not wait for accesses whose row is
 * still being opened, but those that go meanwhile hold it up.
 */
static uint64_t pimhw_i_sync_ck(pimhw_device *d, pimhw_i_channel *ch)
{
    uint32_t entries = d->config.queue_entries;
    uint64_t taken = pimhw_i_take_ck(&d->issuer, ch, d->decode_ck, entries) + 1;
    do
        taken = pimhw_i_max(taken, ch->now_ck);
    while (pimhw_i_active_first(&d->issuer, ch, PIMHW_CMD_TMOD, 0, taken));
    ch->now_ck = taken + 1;
    ch->left_ck = taken;
    if (ch->banked) ch->banks->clock_ck = taken;
    uint64_t before_ck = ch->answer_ck, n_before = ch->n_answers;
    uint64_t answer = pimhw_i_max(taken, before_ck) + 1;
    for (;;) {
        if (ch->banked) pimhw_i_advance(&d->issuer, ch, answer - 1, entries);
        if (answer > ch->pending_ck) break;
        answer = ch->banked ? answer + 1 : ch->pending_ck + 1;
    }
    /* answers to reads that went meanwhile come after it, one a clock */
    ch->answer_ck = pimhw_i_max(answer + (ch->n_answers - n_before), ch->answer_ck);
    return answer;
}

/* SYNC and EOC: all channels empty their queues; then the host, or each channel, goes on. */
static void pimhw_i_sync(pimhw_device *d)
{
    bool shared = d->config.front_end == PIMHW_SHARED;
    uint64_t answer = 0;
    for (uint32_t g = 0; g < d->n_groups; g++) {
        pimhw_i_channel *ch = &d->groups[g];
        uint64_t end = shared ? pimhw_i_sync_ck(d, ch) : pimhw_i_max(ch->end_ck, ch->hold_ck);
        answer = pimhw_i_max(answer, end);
    }
    if (shared) d->decode_ck = answer;
    for (uint32_t g = 0; g < d->n_groups && !shared; g++) {
        if (d->groups[g].hold_ck >= answer) continue;
        d->groups[g].hold_ck = answer;
        d->groups[g].hold_reason = PIMHW_WAIT_HOST;
    }
}

/* What an instruction asks of a channel. */
static pimhw_i_work pimhw_i_work_of(const pimhw_device *d, const pimhw_instruction *in)
{
    pimhw_i_work work;
    work.command = PIMHW_I_KINDS[in->kind].command;
    work.bank = in->bank;
    /* AF opens a row of its own, beyond all others */
    work.row = in->kind == PIMHW_AF ? ((uint64_t)1 << 29) + d->af_mode : in->row;
    work.column = in->column;
    work.tile = in->tile;
    work.out = in->out;
    return work;
}

/* An instruction on one channel of a shared front end; returns when the host may go on. */
static uint64_t pimhw_i_hand_over(pimhw_device *d, pimhw_i_channel *ch, const pimhw_instruction *in,
                                  const pimhw_i_work *work)
{
    const pimhw_i_kind *kind = &PIMHW_I_KINDS[in->kind];
    uint32_t entries = d->config.queue_entries;
    if (kind->taker == PIMHW_I_BY_QUEUES)
        return pimhw_i_access_ck(&d->issuer, ch, work, d->decode_ck, entries);
    uint64_t taken = pimhw_i_take_ck(&d->issuer, ch, d->decode_ck, entries);
    ch->hold_ck = taken + 1;
    ch->hold_reason = d->decode_reason;
    pimhw_i_in_order(&d->issuer, ch, work, in->op_size);
    /* a read's answer frees the host in the clock after it */
    if (kind->blocks) return ch->answer_ck - 1;
    return pimhw_i_max(taken, pimhw_i_queue_left_ck(ch, entries));
}

/* Sends a command instruction to its channels and, on a shared front end, lets the host go on. */
static void pimhw_i_send_all(pimhw_device *d, const pimhw_instruction *in)
{
    bool shared = d->config.front_end == PIMHW_SHARED;
    uint64_t next = d->decode_ck;
    pimhw_i_work work = pimhw_i_work_of(d, in);
    for (uint64_t left = in->mask; left;) {
        pimhw_i_channel *ch = pimhw_i_group(d, &left);
        if (shared)
            next = pimhw_i_max(next, pimhw_i_hand_over(d, ch, in, &work));
        else
            pimhw_i_in_order(&d->issuer, ch, &work, in->op_size);
    }
    if (shared) d->decode_ck = next + 1;
    d->decode_reason = PIMHW_WAIT_HOST;
}

/* An instruction of the host alone: one clock of it. */
static void pimhw_i_host(pimhw_device *d, const pimhw_instruction *in)
{
    if (d->config.front_end == PIMHW_SHARED) d->decode_ck++;
    d->decode_reason = PIMHW_WAIT_HOST;
    if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 2) d->af_mode = in->gpr;
}

/* Whether an instruction must wait for the hub to do some work first. */
static bool pimhw_i_must_wait(const pimhw_i_jobs *jobs, const pimhw_instruction *in)
{
    if (in->kind == PIMHW_EPU) return jobs->n + jobs->n_done >= PIMHW_I_JOBS;
    return in->kind == PIMHW_EPU_WAIT && jobs->n_done == 0 && jobs->n > 0;
}

/* One instruction of a stream; false if it must wait for the hub, then nothing happened. */
static bool pimhw_i_execute(pimhw_device *d, pimhw_i_stream *s, const pimhw_instruction *in)
{
    if (pimhw_i_must_wait(&s->jobs, in)) return false;
    switch (in->kind) {
    case PIMHW_EPU: pimhw_i_epu_post(d, &s->jobs, in); break;
    case PIMHW_EPU_WAIT: pimhw_i_epu_wait(d, &s->jobs, in->mask); break;
    case PIMHW_SYNC:
    case PIMHW_EOC:
        pimhw_i_sync(d);
        if (in->kind == PIMHW_EOC) d->phase = PIMHW_I_ENDED;
        break;
    case PIMHW_EWADD:
    case PIMHW_GPR:
    case PIMHW_CFR: pimhw_i_host(d, in); break;
    default: pimhw_i_send_all(d, in);
    }
    d->n_instructions++;
    return true;
}

static void pimhw_i_start(pimhw_device *d, const pimhw_sink *sink, uint32_t n_streams)
{
    if (sink) d->sink = *sink;
    d->issuer.sink = sink && sink->command ? &d->sink : NULL;
    d->phase = PIMHW_I_OPEN;
    d->decode_ck = 0;
    d->decode_reason = PIMHW_WAIT_HOST;
    d->epu_free_ck = 0;
    d->epu_ck = 0;
    d->endless = false;
    d->skipped_rounds = 0;
    d->n_instructions = 0;
    d->af_mode = 0;
    d->n_groups = 1;
    d->n_streams = n_streams;
    memset(d->group_of, 0, sizeof d->group_of);
    pimhw_i_channel_init(&d->groups[0], pimhw_i_low_bits(d->config.n_channels), &d->banks[0]);
    for (uint32_t i = 0; i < n_streams; i++)
        d->streams[i].jobs.n = d->streams[i].jobs.n_done = 0;
}

PIMHW_API pimhw_status pimhw_device_begin(pimhw_device *device, const pimhw_sink *sink)
{
    if (!device) return PIMHW_ERR_ARGUMENT;
    pimhw_i_start(device, sink, 1);
    return PIMHW_OK;
}

/* real_rows: the row is one of the device, not of a block. */
static pimhw_status pimhw_i_refuse(const pimhw_device *d, const pimhw_instruction *in,
                                   bool real_rows, pimhw_cause *why)
{
    uint64_t is, most;
    const char *fault = pimhw_i_instruction_fault(&d->config, d->columns, in, &is, &most);
    if (!fault && real_rows && PIMHW_I_KINDS[in->kind].has_row && in->row >= d->config.n_rows) {
        fault = "row";
        is = in->row;
        most = d->config.n_rows - 1u;
    }
    if (!fault) return PIMHW_OK;
    pimhw_cause_write(why, "%s: %s is %u, the device allows at most %u",
                      (uint32_t)in->kind < PIMHW_N_KINDS ? PIMHW_I_KINDS[in->kind].name : "?",
                      fault, is, most);
    return PIMHW_ERR_PROGRAM;
}

PIMHW_API pimhw_status pimhw_device_submit(pimhw_device *device,
                                           const pimhw_instruction *instruction, pimhw_cause *why)
{
    if (!device || !instruction || device->phase != PIMHW_I_OPEN) {
        pimhw_cause_write(why, device && device->phase == PIMHW_I_ENDED
                                   ? "an instruction after EOC"
                                   : "no stream has begun, or it ended at a failure");
        return PIMHW_ERR_ARGUMENT;
    }
    pimhw_status status = pimhw_i_refuse(device, instruction, true, why);
    if (status != PIMHW_OK) {
        device->phase = PIMHW_I_IDLE;
        return status;
    }
    while (!pimhw_i_execute(device, &device->streams[0], instruction)) {
        bool served = pimhw_i_epu_serve(device);
        if (served) continue;
        pimhw_cause_write(why, "EPU: more than %u works that nothing waits for",
                          (uint64_t)PIMHW_I_JOBS);
        device->phase = PIMHW_I_IDLE;
        return PIMHW_ERR_PROGRAM;
    }
    return PIMHW_OK;
}

/* The channel that ends last, of equals the lowest. */
static const pimhw_i_channel *pimhw_i_critical(const pimhw_device *d)
{
    const pimhw_i_channel *critical = &d->groups[0];
    for (uint32_t g = 1; g < d->n_groups; g++) {
        const pimhw_i_channel *ch = &d->groups[g];
        bool lower = pimhw_i_lowest(ch->mask) < pimhw_i_lowest(critical->mask);
        if (ch->end_ck > critical->end_ck || (ch->end_ck == critical->end_ck && lower))
            critical = ch;
    }
    return critical;
}

/* What all channels did. */
static void pimhw_i_collect(const pimhw_device *d, pimhw_readings *r)
{
    const pimhw_config *c = &d->config;
    for (uint32_t g = 0; g < d->n_groups; g++) {
        const pimhw_i_channel *ch = &d->groups[g];
        uint64_t n = pimhw_i_count(ch->mask);
        for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++)
            r->commands[i] += n * ch->commands[i];
        if (ch->commands[PIMHW_CMD_MAC16]) r->n_busy_channels += (uint32_t)n;
    }
    r->macs = r->commands[PIMHW_CMD_MAC16] * pimhw_config_banks(c) * pimhw_config_lanes(c);
    r->padding_macs = r->macs;
    if (r->cycles)
        r->mac_utilisation = (double)(r->commands[PIMHW_CMD_MAC16] * c->tCCD_S) /
                             ((double)r->cycles * (double)c->n_channels);
}

PIMHW_API pimhw_status pimhw_device_finish(pimhw_device *device, pimhw_readings *readings,
                                           pimhw_cause *why)
{
    pimhw_device *d = device;
    pimhw_readings r;
    if (!d || !readings || d->phase == PIMHW_I_IDLE) {
        pimhw_cause_write(why, d && !readings ? "readings is NULL"
                                              : "no stream has begun, or it ended at a failure");
        return PIMHW_ERR_ARGUMENT;
    }
    if (d->config.front_end == PIMHW_SHARED) {
        if (d->phase == PIMHW_I_OPEN) pimhw_i_sync(d);
        for (uint32_t g = 0; g < d->n_groups; g++)
            if (d->groups[g].banked)
                pimhw_i_advance(&d->issuer, &d->groups[g], d->decode_ck, d->config.queue_entries);
    }
    while (pimhw_i_epu_serve(d))
        continue;
    d->phase = PIMHW_I_IDLE;
    if (d->endless) {
        pimhw_cause_write(why, "the run takes 2^46 clocks or more");
        return PIMHW_ERR_PROGRAM;
    }
    memset(&r, 0, sizeof r);
    r.size = sizeof r;
    r.version = 1;
    pimhw_i_channel last = *pimhw_i_critical(d);
    /* the host's end is its answer, whatever is still on its way */
    uint64_t drained = d->config.front_end == PIMHW_SHARED ? d->decode_ck : last.end_ck;
    r.cycles = pimhw_i_max(drained, d->epu_free_ck);
    r.ns = (double)r.cycles * (double)d->config.tCK_ps * 1e-3;
    r.critical_channel = pimhw_i_lowest(last.mask);
    pimhw_i_charge(&d->rules, &last, drained, PIMHW_WAIT_DRAIN);
    memcpy(r.breakdown_ck, last.spent_ck, sizeof r.breakdown_ck);
    r.breakdown_ck[PIMHW_WAIT_EPU] += r.cycles - drained;
    r.epu_ck = d->epu_ck;
    r.n_instructions = d->n_instructions;
    r.skipped_rounds = d->skipped_rounds;
    pimhw_i_collect(d, &r);
    *readings = r;
    return PIMHW_OK;
}

static pimhw_status pimhw_i_request_check(const pimhw_device *d, const pimhw_request *request,
                                          pimhw_cause *why)
{
    if (!request) return PIMHW_OK;
    if (request->n_blocks && !request->blocks) {
        pimhw_cause_write(why, "request: blocks is NULL");
        return PIMHW_ERR_ARGUMENT;
    }
    if (!request->list_begin) return PIMHW_OK;
    for (uint32_t c = 0; c < d->config.n_channels; c++) {
        if (request->list_begin[c] <= request->list_begin[c + 1]) continue;
        pimhw_cause_write(why, "request: list_begin falls at channel %u", (uint64_t)c);
        return PIMHW_ERR_ARGUMENT;
    }
    for (uint32_t i = request->list_begin[0]; i < request->list_begin[d->config.n_channels]; i++) {
        if (request->order && request->order[i] < request->n_blocks) continue;
        pimhw_cause_write(why, "request: order[%u] is no block", (uint64_t)i);
        return PIMHW_ERR_ARGUMENT;
    }
    return PIMHW_OK;
}

/* A clock as a channel that issues at now or later sees it: the past is all the same. */
static uint64_t pimhw_i_ahead(uint64_t clock, uint64_t now)
{
    return clock < now ? 0 : clock - now + 1;
}

/* A channel that did nothing in the round: it waits as before, only its hold may have moved. */
static bool pimhw_i_still(const pimhw_i_channel *a, const pimhw_i_channel *b, uint64_t clocks)
{
    return a->mask == b->mask && !a->banked && !b->banked && a->now_ck == b->now_ck &&
           a->row == b->row && a->row_open == b->row_open &&
           memcmp(a->commands, b->commands, sizeof a->commands) == 0 &&
           a->hold_reason == b->hold_reason &&
           (a->hold_ck + clocks == b->hold_ck || a->hold_ck == b->hold_ck);
}

/*
 * Whether a channel will do after clock b what it did from a on, with rows that lie `rows`
 * further: b is a, later by `clocks`.
 */
static bool pimhw_i_same_channel(const pimhw_i_channel *a, const pimhw_i_channel *b,
                                 uint64_t clocks, uint64_t rows)
{
    if (a->mask != b->mask || a->banked || b->banked || a->row_open != b->row_open ||
        a->register_mode != b->register_mode || a->last_command != b->last_command)
        return false;
    if (a->row_open && a->row + rows != b->row) return false;
    if (a->now_ck + clocks != b->now_ck || a->last_ck + clocks != b->last_ck ||
        a->end_ck + clocks != b->end_ck)
        return false;
    uint64_t hold = pimhw_i_ahead(a->hold_ck, a->now_ck);
    if (hold != pimhw_i_ahead(b->hold_ck, b->now_ck)) return false;
    if (hold && a->hold_reason != b->hold_reason) return false;
    for (uint32_t i = 0; i < PIMHW_CMD_ACT; i++) {
        uint64_t ready = pimhw_i_ahead(a->ready[i] >> 8, a->now_ck);
        if (ready != pimhw_i_ahead(b->ready[i] >> 8, b->now_ck)) return false;
        if (ready && ((a->ready[i] ^ b->ready[i]) & 255)) return false;
    }
    return true;
}

/* Whether the host sees a channel the same way: its queue is empty, its answers are given. */
static bool pimhw_i_same_queue(const pimhw_i_channel *a, uint64_t a_decode,
                               const pimhw_i_channel *b, uint64_t b_decode)
{
    return a->left_ck <= a_decode && b->left_ck <= b_decode && a->answer_ck <= a_decode &&
           b->answer_ck <= b_decode &&
           pimhw_i_ahead(a->pending_ck, a_decode) == pimhw_i_ahead(b->pending_ck, b_decode);
}

static bool pimhw_i_same_jobs(const pimhw_i_jobs *a, const pimhw_i_jobs *b, uint64_t clocks)
{
    if (a->n != b->n || a->n_done != b->n_done) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->ready_ck[i] + clocks != b->ready_ck[i] || a->cost_ck[i] != b->cost_ck[i] ||
            a->awaited[i] != b->awaited[i])
            return false;
    for (uint32_t i = 0; i < a->n_done; i++)
        if (a->done_ck[i] + clocks != b->done_ck[i]) return false;
    return true;
}

/* The clock of the channel that is furthest. */
static uint64_t pimhw_i_front_ck(const pimhw_device *d)
{
    uint64_t front = 0;
    for (uint32_t g = 0; g < d->n_groups; g++)
        front = pimhw_i_max(front, d->groups[g].now_ck);
    return front;
}

/* Whether the device at this head is the one at the head before, later and `rows` further. */
static bool pimhw_i_same_head(const pimhw_device *d, uint64_t clocks, uint64_t rows)
{
    const pimhw_i_head *h = &d->head;
    if (h->n_groups != d->n_groups || h->epu_free_ck + clocks != d->epu_free_ck) return false;
    if (!pimhw_i_same_jobs(&h->jobs, &d->streams[0].jobs, clocks)) return false;
    bool shared = d->config.front_end == PIMHW_SHARED;
    if (shared && (h->decode_ck + clocks != d->decode_ck || h->decode_reason != d->decode_reason))
        return false;
    for (uint32_t g = 0; g < d->n_groups; g++)
        if (shared && !pimhw_i_same_queue(&h->groups[g], h->decode_ck, &d->groups[g], d->decode_ck))
            return false;
    for (uint32_t g = 0; g < d->n_groups; g++)
        if (!pimhw_i_still(&h->groups[g], &d->groups[g], clocks) &&
            !pimhw_i_same_channel(&h->groups[g], &d->groups[g], clocks, rows))
            return false;
    return true;
}

static void pimhw_i_take_head(pimhw_device *d, uint64_t round, uint64_t front)
{
    pimhw_i_head *h = &d->head;
    h->taken = true;
    h->round = round;
    h->front_ck = front;
    h->decode_ck = d->decode_ck;
    h->decode_reason = d->decode_reason;
    h->epu_free_ck = d->epu_free_ck;
    h->epu_ck = d->epu_ck;
    h->n_instructions = d->n_instructions;
    h->n_groups = d->n_groups;
    h->jobs = d->streams[0].jobs;
    for (uint32_t g = 0; g < d->n_groups; g++)
        memcpy(&h->groups[g], &d->groups[g], offsetof(pimhw_i_channel, runs));
}

/* Adds n rounds like the last one to a channel, each so many clocks and rows. */
static void pimhw_i_repeat_channel(pimhw_i_channel *ch, const pimhw_i_channel *before, uint64_t n,
                                   uint64_t clocks, uint64_t rows)
{
    bool held = ch->hold_ck != before->hold_ck;
    if (held) ch->hold_ck += n * clocks;
    if (pimhw_i_still(before, ch, held ? ch->hold_ck - before->hold_ck : 0)) return;
    for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++) {
        ch->commands[i] += n * (ch->commands[i] - before->commands[i]);
        ch->issued_ck[i] += ch->issued_ck[i] == before->issued_ck[i] ? 0 : n * clocks;
        ch->ready[i] += n * clocks << 8;
    }
    for (uint32_t i = 0; i < PIMHW_N_SPENT; i++)
        ch->spent_ck[i] += n * (ch->spent_ck[i] - before->spent_ck[i]);
    ch->now_ck += n * clocks;
    ch->last_ck += n * clocks;
    ch->end_ck += n * clocks;
    ch->pending_ck += n * clocks;
    ch->row += n * rows;
}

static void pimhw_i_repeat(pimhw_device *d, uint64_t n, uint64_t clocks, uint64_t rows)
{
    const pimhw_i_head *h = &d->head;
    pimhw_i_jobs *jobs = &d->streams[0].jobs;
    for (uint32_t g = 0; g < d->n_groups; g++)
        pimhw_i_repeat_channel(&d->groups[g], &h->groups[g], n, clocks, rows);
    for (uint32_t i = 0; i < jobs->n; i++)
        jobs->ready_ck[i] += n * clocks;
    for (uint32_t i = 0; i < jobs->n_done; i++)
        jobs->done_ck[i] += n * clocks;
    d->epu_free_ck += n * clocks;
    if (d->config.front_end == PIMHW_SHARED) d->decode_ck += n * clocks;
    d->epu_ck += n * (d->epu_ck - h->epu_ck);
    d->n_instructions += n * (d->n_instructions - h->n_instructions);
    d->skipped_rounds += n;
}

/* Whether block b + 1 is block b with rows so much further, below those of AF. */
static bool pimhw_i_like_next(const pimhw_block *b, uint64_t rows)
{
    return memcmp(b[0].rest, b[1].rest, sizeof b->rest) == 0 &&
           b[1].row_base[0] < PIMHW_I_PLAIN_ROWS && b[1].row_base[1] < PIMHW_I_PLAIN_ROWS &&
           b[1].row_base[0] - (uint64_t)b[0].row_base[0] == rows &&
           b[1].row_base[1] - (uint64_t)b[0].row_base[1] == rows;
}

/*
 * At the head of a round: if the device is where it was one round ago, and the blocks to come are
 * like those of that round, the rounds to come are like it too and need not be walked.
 */
static void pimhw_i_skip(pimhw_device *d, pimhw_i_walker *w)
{
    const pimhw_request *request = w->request;
    uint64_t round = w->index[0], lag = pimhw_i_value(w, w->program->items[0].aux, 0, NULL);
    if (d->n_streams > 1 || d->issuer.sink || !request || request->list_begin ||
        w->sketch->by_round || round >= request->n_blocks)
        return;
    uint64_t front = pimhw_i_front_ck(d), n = 0;
    if (d->head.taken && d->head.round + 1 == round && round >= lag + 2) {
        const pimhw_block *first = &request->blocks[round - lag - 2];
        uint64_t rows = first[1].row_base[0] - (uint64_t)first[0].row_base[0];
        bool like = true;
        for (uint64_t i = 0; like && i <= lag; i++)
            like = pimhw_i_like_next(first + i, rows);
        const pimhw_block *b = first + lag + 1;
        for (; like && round + n < request->n_blocks && round + n + 1 < w->bound[0]; n++)
            if (!pimhw_i_like_next(b + n, rows)) break;
        uint64_t clocks = front - d->head.front_ck;
        uint64_t furthest = pimhw_i_max(front, pimhw_i_max(d->epu_free_ck, d->decode_ck));
        if (clocks > 0 && furthest < PIMHW_I_MOST_CK)
            n = pimhw_i_min(n, (PIMHW_I_MOST_CK - furthest) / clocks);
        if (n > 0 && pimhw_i_same_head(d, clocks, rows)) {
            pimhw_i_repeat(d, n, clocks, rows);
            w->index[0] += n;
            w->block = pimhw_i_block_of(w, 0);
            d->head.taken = false;
            return;
        }
    }
    pimhw_i_take_head(d, round, front);
}

/* The next instruction of a stream, if the device can do it. */
static pimhw_status pimhw_i_fetch(pimhw_device *d, pimhw_i_stream *s, pimhw_cause *why)
{
    pimhw_cause what;
    pimhw_status status = PIMHW_ERR_PROGRAM;
    pimhw_i_step step = pimhw_i_next(&s->walker, &s->in);
    for (; step == PIMHW_I_ROUND; step = pimhw_i_next(&s->walker, &s->in))
        pimhw_i_skip(d, &s->walker);
    s->over = step == PIMHW_I_DONE;
    if (s->over) return PIMHW_OK;
    if (step == PIMHW_I_WRONG)
        pimhw_cause_write(&what, "2^28 rounds or more, or an operand of 2^32 or more");
    else if (d->phase == PIMHW_I_ENDED)
        pimhw_cause_write(&what, "an instruction after EOC");
    else
        status = pimhw_i_refuse(d, &s->in, !s->walker.request, &what);
    if (status != PIMHW_OK)
        pimhw_cause_write(why, "item %u: %s", (uint64_t)s->walker.at, what.text);
    return status;
}

/* Steps one stream until it ends, waits for the hub, or fails. */
static pimhw_status pimhw_i_stream_run(pimhw_device *d, pimhw_i_stream *s, pimhw_cause *why)
{
    while (!s->over) {
        if (!s->waits) {
            pimhw_status status = pimhw_i_fetch(d, s, why);
            if (status != PIMHW_OK || s->over) return status;
        }
        s->waits = !pimhw_i_execute(d, s, &s->in);
        if (s->waits) return PIMHW_OK;
    }
    return PIMHW_OK;
}

/* Channels with lists of their own run apart, unless one host feeds them all. */
static uint32_t pimhw_i_streams_init(pimhw_device *d, const pimhw_program *program,
                                     const pimhw_request *request)
{
    bool apart = d->config.front_end == PIMHW_PER_CHANNEL && request && request->list_begin;
    uint32_t n = apart ? d->config.n_channels : 1;
    pimhw_i_sketch_init(&d->sketch, program, request);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mask = apart ? (uint64_t)1 << i : pimhw_i_low_bits(d->config.n_channels);
        d->streams[i].waits = d->streams[i].over = false;
        pimhw_i_walker_init(&d->streams[i].walker, program, request, &d->sketch, mask,
                            (1u << PIMHW_I_GPR) - 1, d->rounds);
    }
    return n;
}

static pimhw_status pimhw_i_streams_run(pimhw_device *d, pimhw_cause *why)
{
    for (;;) {
        bool waits = false;
        for (uint32_t i = 0; i < d->n_streams; i++) {
            pimhw_status status = pimhw_i_stream_run(d, &d->streams[i], why);
            if (status != PIMHW_OK) return status;
            waits = waits || d->streams[i].waits;
        }
        if (!waits) return PIMHW_OK;
        /* no stream can send earlier work any more: the oldest is next */
        if (!pimhw_i_epu_serve(d)) {
            pimhw_cause_write(why, "EPU: more than %u works that nothing waits for",
                              (uint64_t)PIMHW_I_JOBS);
            return PIMHW_ERR_PROGRAM;
        }
    }
}

/* SYNC and EOC speak of all channels at once: they have no place in streams that run apart. */
static pimhw_status pimhw_i_apart_check(const pimhw_program *program, pimhw_cause *why)
{
    for (uint32_t i = 0; i < program->n_items; i++) {
        uint32_t kind = program->items[i].kind;
        if (kind != PIMHW_SYNC && kind != PIMHW_EOC) continue;
        pimhw_cause_write(why, "item %u: %s, where channels have lists of their own", (uint64_t)i,
                          PIMHW_I_KINDS[kind].name);
        return PIMHW_ERR_PROGRAM;
    }
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_device_time(pimhw_device *device, pimhw_readings *readings,
                                         const pimhw_program *program, const pimhw_request *request,
                                         const pimhw_sink *sink, pimhw_cause *why)
{
    pimhw_readings r;
    if (!device || !readings || !program) return PIMHW_ERR_ARGUMENT;
    pimhw_status status = pimhw_program_check(program, &device->config, why);
    if (status == PIMHW_OK) status = pimhw_i_request_check(device, request, why);
    if (status != PIMHW_OK) return status;
    uint32_t n_streams = pimhw_i_streams_init(device, program, request);
    if (n_streams > 1) status = pimhw_i_apart_check(program, why);
    if (status != PIMHW_OK) return status;
    pimhw_i_start(device, sink, n_streams);
    device->head.taken = false;
    status = pimhw_i_streams_run(device, why);
    if (status == PIMHW_OK) status = pimhw_device_finish(device, &r, why);
    device->phase = PIMHW_I_IDLE;
    if (status != PIMHW_OK) return status;
    r.program_bytes = pimhw_program_bytes(program);
    if (request) {
        uint64_t order = request->list_begin ? request->list_begin[device->config.n_channels] : 0;
        uint64_t lists = request->list_begin ? device->config.n_channels + 1u : 0;
        r.request_bytes = request->n_blocks * (uint64_t)sizeof(pimhw_block) + 4 * (order + lists);
        if (request->useful_macs > r.macs) {
            pimhw_cause_write(why, "request: useful_macs %u, the program does %u",
                              request->useful_macs, r.macs);
            return PIMHW_ERR_PROGRAM;
        }
        r.useful_macs = request->useful_macs;
        r.padding_macs = r.macs - r.useful_macs;
    }
    *readings = r;
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_device_resolve(
    pimhw_device *device, const pimhw_program *program, const pimhw_request *request,
    bool (*emit)(void *user, const pimhw_instruction *instruction), void *user, pimhw_cause *why)
{
    pimhw_instruction in;
    if (!device || !program || !emit) return PIMHW_ERR_ARGUMENT;
    pimhw_status status = pimhw_program_check(program, &device->config, why);
    if (status == PIMHW_OK) status = pimhw_i_request_check(device, request, why);
    if (status != PIMHW_OK) return status;
    device->phase = PIMHW_I_IDLE;
    pimhw_i_walker *w = &device->streams[0].walker;
    pimhw_i_sketch_init(&device->sketch, program, request);
    pimhw_i_walker_init(w, program, request, &device->sketch,
                        pimhw_i_low_bits(device->config.n_channels), 255, device->rounds);
    for (;;) {
        pimhw_i_step step = pimhw_i_next(w, &in);
        if (step == PIMHW_I_ROUND) continue;
        if (step == PIMHW_I_DONE) return PIMHW_OK;
        if (step == PIMHW_I_WRONG)
            pimhw_cause_write(why, "2^28 rounds or more, or an operand of 2^32 or more");
        if (step == PIMHW_I_WRONG) return PIMHW_ERR_PROGRAM;
        status = pimhw_i_refuse(device, &in, !request, why);
        if (status != PIMHW_OK) return status;
        if (!emit(user, &in)) return PIMHW_OK;
    }
}

#ifdef __cplusplus
}
#endif

#endif /* PIMHW_IMPLEMENTED */

/*
 * MIT License
 *
 * Copyright (c) 2026 the pimattn authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
