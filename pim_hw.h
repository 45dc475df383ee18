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
 * Rooms. Front: [H1] options, [H2] foundations, [H3] geometry, [H4] parameters, [H5] programs,
 * [H6] device, [H7] readings. Back: [H8] cellar, [H9] tables, [H10] mapping, [H11] cells,
 * [H12] units, [H13] timing, [H15] controllers, [H16] dispatcher, [H17] device, [H18] spans,
 * [H19] runs.
 *
 * Papers and sources, as cited below: [AIMSIM] the public AiM simulator, commit 0f28a07;
 * [LOL] LoL-PIM; [PHONY] PIMphony; [FACIL], [PAM] the papers; [CENT] CENT, commit 8c79786;
 * [ATTACC] AttAcc's simulator, c600051; [SAIT] Samsung's, b464dde; [NEU] NeuPIMs, f299af3.
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
    PIMHW_ERR_HAZARD,   /* an entry or column was used out of order, or no entry is left */
    PIMHW_ERR_PROGRAM,  /* an instruction the device cannot do; the cause has its index and field */
    PIMHW_ERR_ADDRESS,  /* beyond the device, or not from pimhw_alloc; the cause names it */
    PIMHW_ERR_FULL,     /* no free page left on the device */
    PIMHW_ERR_TEXT      /* a line of a text trace that does not parse: examples/aim_text.h */
} pimhw_status;

/* What a status means, in words; never NULL. */
PIMHW_API const char *pimhw_status_str(pimhw_status status);

/* Why a call failed: field, index or address in words. Filled on failure only; may be NULL. Any
 * other NULL is PIMHW_ERR_ARGUMENT where a call has a status (a name: PIMHW_ERR_NAME; an address of
 * the host: PIMHW_ERR_ADDRESS), and must not be where it has none. */
typedef struct pimhw_cause {
    char text[288];
} pimhw_cause;

/* Writes a cause. The format knows %s (const char *) and %u (uint64_t); what does not fit is cut.
 * why may be NULL. */
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
 * [H3] GEOMETRY: where a byte lies: channel to column, MapID.
 *
 * A physical address becomes a place in the DRAM by the mapping of its page. The MapIDs of [FACIL]
 * keep a matrix row-major for the host and whole rows of it in one bank for the units.
 * ========================================================================== */

/* What one unit takes at once: rows and columns of a matrix [FACIL II-C]. */
typedef enum pimhw_chunk {
    PIMHW_CHUNK_AIM = 0, /* one row, as many bytes of it as a DRAM row has */
    PIMHW_CHUNK_HBM_PIM  /* 8 rows, 8 transfers of each; only where a DRAM row has these 64 */
} pimhw_chunk;

/* A MapID is four bits [FACIL V-A]. From 0 to PIMHW_MAP_LAST: so many address bits stand between
 * the columns of a chunk and the channel, rank and bank bits. Those need powers of two; the other
 * two take any geometry. */
enum {
    PIMHW_MAP_LAST = 13,
    PIMHW_MAP_ROWS = 14, /* row:bank:rank:channel:column; also of pages that nobody allocated */
    PIMHW_MAP_HOST = 15, /* row:rank:column:bank:channel, the conventional one */
    PIMHW_N_MAPS
};

/* Sizes that mappings draw on. A page holds whole rows of all banks. */
typedef struct pimhw_geometry {
    uint32_t n_channels;
    uint32_t n_ranks;        /* of a channel */
    uint32_t n_banks;        /* of a rank */
    uint32_t n_rows;         /* of a bank */
    uint32_t row_bytes;      /* of one bank */
    uint32_t transfer_bytes; /* one column */
    uint32_t chunk_rows;     /* matrix rows of a chunk */
    uint32_t chunk_bytes;    /* of each of them */
    uint64_t page_bytes;     /* one page, one MapID */
} pimhw_geometry;

/* A place in the DRAM. Bank i of a channel, in instructions, is bank i % n_banks of rank
 * i / n_banks. */
typedef struct pimhw_da {
    uint32_t channel;
    uint32_t rank;
    uint32_t bank; /* of the rank */
    uint32_t row;
    uint32_t column;
    uint32_t byte; /* of the transfer */
} pimhw_da;

/* How a matrix lies in memory. */
typedef struct pimhw_placement {
    uint32_t map_id;
    uint32_t n_parts;      /* channels, then ranks, that share a row: the host adds their sums */
    uint32_t chunk_rows;   /* matrix rows in a chunk: fewer than the unit's if a row is split */
    uint64_t stride_bytes; /* row to row for the host, a power of two */
    uint64_t page_rows;    /* matrix rows of a page */
    uint64_t n_pages;
    uint64_t bytes; /* of the pages */
} pimhw_placement;

struct pimhw_config;

/* Geometry of a device. A page is 2 MB [FACIL], where a row of all banks is no power of two the
 * most such rows that fit, and one row where not even that does. */
PIMHW_API pimhw_status pimhw_geometry_init(pimhw_geometry *geometry,
                                           const struct pimhw_config *config, pimhw_chunk chunk,
                                           pimhw_cause *why);

/*
 * How many MapIDs there are: *bound is the paper's upper bound of a MapID, *last the last one that
 * can be placed (chunk columns and rows take bits too); either may be NULL.
 *
 *   returns  PIMHW_ERR_CONFIG with the field that is no power of two or contradicts another
 *   source   [FACIL IV-B]
 */
PIMHW_API pimhw_status pimhw_map_ids(const pimhw_geometry *geometry, uint32_t *bound,
                                     uint32_t *last, pimhw_cause *why);

/*
 * Chooses how a matrix is placed. Columns are padded to a power of two and to a chunk. Whether the
 * device has so many pages is not asked: pimhw_alloc says it.
 *
 *   returns  as pimhw_map_ids; PIMHW_ERR_ARGUMENT with rows, columns or element_bytes where they
 *            are 0 or cannot be placed; *placement then unchanged
 *   source   [FACIL Fig. 9, Fig. 10], in bytes throughout
 */
PIMHW_API pimhw_status pimhw_map_select(pimhw_placement *placement, const pimhw_geometry *geometry,
                                        uint64_t rows, uint64_t columns, uint32_t element_bytes,
                                        pimhw_cause *why);

/*
 * Physical address to place and back, exact inverses.
 *
 *   returns  as pimhw_map_ids; PIMHW_ERR_ADDRESS with what is beyond the device, be it the place or
 *            the address (of a page that rows do not fill, some are); PIMHW_ERR_ARGUMENT with a
 *            MapID beyond the last; output then unchanged
 */
PIMHW_API pimhw_status pimhw_map_da(pimhw_da *da, const pimhw_geometry *geometry, uint32_t map_id,
                                    uint64_t pa, pimhw_cause *why);
PIMHW_API pimhw_status pimhw_map_pa(uint64_t *pa, const pimhw_geometry *geometry, uint32_t map_id,
                                    const pimhw_da *da, pimhw_cause *why);

/* ==========================================================================
 * [H4] PARAMETERS: what a device is: geometry, clocks, buffers, hub.
 * ========================================================================== */

enum { PIMHW_MAX_CHANNELS = 64, PIMHW_MAX_BANKS = 64 };

/* Who feeds the channels. */
typedef enum pimhw_front_end {
    PIMHW_PER_CHANNEL = 0, /* each channel its own stream; a read stalls nobody else */
    PIMHW_SHARED = 1       /* one stream, one instruction a tick, reads block [AIMSIM]; controllers
                              but in-order are always fed channel by channel */
} pimhw_front_end;

/* What empties an output entry before its first MAC. */
typedef enum pimhw_out_clear {
    PIMHW_CLEAR_READ = 0, /* RD_MAC empties it */
    PIMHW_CLEAR_BIAS = 1  /* WR_BIAS fills it: the AiM dialect. A sum without one goes on from what
                             is there, and timing does not notice */
} pimhw_out_clear;

/* Whether the softmax of one block hides behind the scores of the next. */
typedef enum pimhw_epu_overlap {
    PIMHW_EPU_NONE = 0, /* scores, softmax, values: one after the other; the hub's sums of values
                           beside the scores of the next block all the same */
    PIMHW_EPU_HEADS = 1 /* softmax of block i beside the scores of block i + 1 [LOL] */
} pimhw_epu_overlap;

/* What a lane holds. */
typedef enum pimhw_lane_type { PIMHW_LANE_F16 = 0, PIMHW_LANE_BF16 = 1 } pimhw_lane_type;

/* Which rule gives the commands of a channel their clocks. In-order takes the whole table of
 * constraints. Under the others W, M and R (of pimhw_kind) take from it what is between neighbours
 * of a class in their stream (tBL, tCCD_S, tCCD_L, tCCD_MAC; between MACs also over R and W, but
 * for PIMHW_ROW_HIDDEN), of rows and of refresh; from class to class there are tWR_INP, tMAC and
 * tRD_OUT. Nothing that is timed by W, M and R alone then hangs on tWTR_S, tWTR_L, tWPRE, tMTW,
 * tMOD, tCL_MAC, tCL_REG, tCWL_REG or tCWL_GB, and two commands may issue in one clock: of the two
 * streams of ping-pong or DCS; there what opens a row and the MAC before it; and PREA or ACT16
 * under static gaps and PIMHW_ROW_HEAD beside the one before. What is none of W, M and R waits for
 * all before it, for W and R by tWR_INP and tRD_OUT, and goes by the table; what follows waits for
 * it. */
typedef enum pimhw_controller {
    PIMHW_IN_ORDER = 0, /* program order, the constraint table only [AIMSIM]: nothing waits for the
                           data of what it uses */
    PIMHW_STATIC_GAPS,  /* program order, a fixed gap after a change of class [PHONY] */
    PIMHW_PING_PONG,    /* I/O on one half of the buffers beside MACs on the other [LOL]; the row
                           of the next phase opens beside this one, if that has a MAC. A phase
                           holds 64 instructions that write inputs, 64 of MACs and 64 that read:
                           more are of the next, however empty its half is */
    PIMHW_DCS           /* an I/O queue and a MAC queue of 128 commands each, filled in order;
                           entries tracked one by one [PHONY] */
} pimhw_controller;

/* Controller static: when a MAC's row is looked at. */
typedef enum pimhw_row_opening {
    PIMHW_ROW_ELIGIBLE = 0, /* once the gap before the MAC is over */
    PIMHW_ROW_HEAD,         /* once the MAC is the next command */
    PIMHW_ROW_HIDDEN        /* rows cost nothing: there are no ACT and PRE, nor their energy */
} pimhw_row_opening;

/* A device. pimhw_config_init fills every field from a preset; afterwards 0 is 0 and
 * pimhw_config_check judges it. Times are whole memory clocks of tCK_ps. Of flash, fields of banks,
 * rows, clocks and programs are 0; of a DRAM, those of flash. No field moves another: with tREFI
 * goes refresh_phase, with tRAS or tRP tRC, with tCCD_S and tCCD_L tCCD_MAC, by which utilisation
 * is counted, with all three tWR_INP, tMAC and tRD_OUT, with banks the standby powers. Not
 * modelled: tFAW and tPPD (ACT16 opens all banks at once), refresh bank by bank or put off,
 * power-down, the hub's own energy. */
typedef struct pimhw_config {
    char preset[24];           /* where the numbers came from; stays as fields are set */
    uint32_t n_channels;       /* 1 to 64 */
    uint32_t n_bank_groups;    /* per channel */
    uint32_t n_group_banks;    /* banks of one bank group */
    uint32_t n_ranks;          /* the banks of a channel are in so many ranks; for mapping: to go
                                  from rank to rank takes no clock */
    uint32_t n_rows;           /* of a bank; rows of a request's blocks are virtual: no limit */
    uint32_t row_bytes;        /* of one bank */
    uint32_t column_bytes;     /* one access: lanes of element_bytes */
    uint32_t element_bytes;    /* of a lane */
    uint32_t in_entries;       /* global buffer of a channel, in columns */
    uint32_t out_entries;      /* accumulators of a bank's unit */
    uint32_t obuf;             /* the same, under controller DCS */
    uint32_t out_clear;        /* pimhw_out_clear */
    uint32_t lane_type;        /* pimhw_lane_type; sums are f32 */
    uint32_t out_bits;         /* of a sum as it is read: 16 (rounded to the lane type) or 32; a
                                  read of all banks takes as long, however many bytes they give */
    uint32_t partial_write;    /* of part of a column: 0 masked, 1 by reading it first */
    uint32_t gpr_blocks;       /* hub: registers of column_bytes each, for pimhw_device_run */
    uint32_t va2pa_entries;    /* hub: chunks that the table of a request can map */
    uint32_t front_end;        /* pimhw_front_end */
    uint32_t queue_entries;    /* requests a channel queue holds (front_end shared) */
    uint32_t controller;       /* pimhw_controller */
    uint32_t row_opening;      /* pimhw_row_opening (static) */
    uint32_t extra_region;     /* ping-pong: 1 a second input buffer, 0 halves of the one, which
                                  has 2 entries or more; out_entries too, which are always halved */
    uint32_t early_tiles;      /* DCS: 1 a tile is free tCCD_S after its MAC, 0 after tMAC */
    uint32_t is_mac;           /* DCS: 1 a MAC follows one on its entry at tCCD, 0 at tMAC */
    uint32_t tCK_ps;           /* the one clock period */
    uint32_t tBL;              /* data burst */
    uint32_t tCCD_S;           /* column command to column command: among reads, results and MACs,
                                  and among writes; AF takes no part in order */
    uint32_t tCCD_L;           /* the same, where one is of all banks (of a bias and the global
                                  buffer tCCD_S), or both of a bank group; EWMUL is among reads
                                  and, but for the global buffer, among writes */
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
    uint32_t tWR;              /* end of a write's data to PRE; of EWMUL tCWL after it */
    uint32_t tRP;              /* PRE to ACT */
    uint32_t tRAS;             /* ACT to PRE */
    uint32_t tRC;              /* ACT to ACT of one bank */
    uint32_t tRTP;             /* MAC, RD, RDCP and AF to PRE */
    uint32_t tWTR_S;           /* end of a write's data to RD or a result read: of the global
                                  buffer; and of WR to RD of another bank group */
    uint32_t tWTR_L;           /* the same: of a bias, of WR_ABK, and of any other WR */
    uint32_t tWPRE;            /* write preamble: so much and 3 clocks lie between the data of a
                                  read and that of a write [AIMSIM] */
    uint32_t tCL_REG;          /* result read to data */
    uint32_t tCWL_REG;         /* bias write to data */
    uint32_t tCWL_GB;          /* global buffer write to data */
    uint32_t tCCD_MAC;         /* MAC to MAC, all banks; tCCD_S and tCCD_L hold, too */
    uint32_t tMTW;             /* MAC of all banks to global buffer write */
    uint32_t tCL_MAC;          /* in-order: last MAC_ABK to the end (other M: 1 clock); no read
                                  waits so long [AIMSIM] */
    uint32_t tMOD;             /* change between register mode and normal mode; 0: no modes */
    uint32_t tWR_INP;          /* static, ping-pong, DCS: input write to its use */
    uint32_t tMAC;             /* the same: MAC to the read of its sum */
    uint32_t tRD_OUT;          /* the same: result read to the next use of its entry */
    uint32_t refresh;          /* 1: due, no other command issues; PREA if a row is open, REF tRP
                                  later, the next command tRFC after that */
    uint32_t tREFI;            /* refresh to refresh */
    uint32_t tRFC;             /* refresh to any command */
    uint32_t refresh_phase;    /* clock of the first refresh */
    uint32_t epu_lanes;        /* hub: elements the EPU takes at once */
    uint32_t epu_ck_per_op;    /* hub: clocks of one EPU operation on all its lanes */
    uint32_t epu_passes;       /* hub: passes of softmax over the scores; sums of o come on top; 0:
                                  of no cost, where it is only timed */
    uint32_t epu_overlap;      /* pimhw_epu_overlap */
    uint32_t eACT_fJ;          /* row opened and closed, one bank; energies in 1e-15 J */
    uint32_t eRD_fJ;           /* column read, one bank */
    uint32_t eWR_fJ;           /* column written, one bank */
    uint32_t eMAC_fJ;          /* column multiplied and accumulated, one bank; EWMUL, AF likewise */
    uint32_t eWRGB_fJ;         /* column from the hub into a channel's global buffer; a bias. Of
                                  a copy eRD or eWR alone: the way to the buffer is in them */
    uint32_t eRDMAC_fJ;        /* one result of every bank of a channel, of AF too */
    uint32_t eLINK_fJ;         /* 32 bytes between hub and channel */
    uint32_t eREQ_fJ;          /* controller: a command of a channel that an instruction asks for */
    uint32_t eCMD_fJ;          /* controller: a command */
    uint32_t eREF_fJ;          /* one bank in one refresh */
    uint32_t pACTIVE_uW;       /* standby of a channel with an open row; power in 1e-6 W */
    uint32_t pIDLE_uW;         /* standby of a channel without */
    uint32_t link_MBps;        /* hub to host; bandwidth in 1e6 bytes a second */
    uint32_t host_MBps;        /* the host's own DRAM, for comparison */
    uint32_t unit_MHz;         /* what merges partials in local attention [PAM], and MACs of
                                  flash; 0: there are none */
    uint32_t softmax_ck;       /* the same: last score of a row to its probability */
    uint32_t reduction_units;  /* that merge partials of the device; each bank group has one more */
    uint32_t reduction_lanes;  /* elements each of them takes at once */
    uint32_t cap_MFLOPS;       /* most that all units of the device do; 0: no cap */
    uint32_t flash_page_bytes; /* 0: a DRAM, else flash: no banks, no programs, no clocks */
    uint32_t flash_dies;       /* of a channel */
    uint32_t flash_units;      /* in the controller, for all channels */
    uint32_t flash_tR_ns;      /* cells of a page to the register of its die */
    uint32_t flash_tPROG_ns;   /* and back */
    uint32_t flash_MBps;       /* of a channel */
    pimhw_allocator allocator; /* default: malloc and free */
} pimhw_config;

/*
 * Fills *config from a preset: "aimx" (default of the library: one module of 16 channels, a
 * stream per channel [LOL]), "aim-gddr6" (the public simulator: 32 channels, shared front end, no
 * refresh), or another that pimhw_preset_name lists.
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
 * Sets one number by its field's name, e.g. ("tRP", 30), whatever it is: pimhw_config_check judges
 * it. Reads one back.
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

/* Of a description that is right: banks of a channel; columns of a row; lanes of a unit;
 * accumulators under its controller. */
PIMHW_API uint32_t pimhw_config_banks(const pimhw_config *config);
PIMHW_API uint32_t pimhw_config_columns(const pimhw_config *config);
PIMHW_API uint32_t pimhw_config_lanes(const pimhw_config *config);
PIMHW_API uint32_t pimhw_config_outs(const pimhw_config *config);

/* Columns of input a controller can fill at once: under ping-pong half the global buffer, unless
   there is an extra_region. */
PIMHW_API uint32_t pimhw_config_in_region(const pimhw_config *config);

/* What a controller is called ("in-order", "static", "ping-pong", "dcs"); NULL beyond the last. */
PIMHW_API const char *pimhw_controller_str(uint32_t controller);

/*
 * Time in 1e-12 s of reading pages of one flash channel: its dies read a page each, all at the same
 * time; the pages cross the channel one after the other while the dies read the next ones. Writing
 * is the same backwards, and takes tPROG for tR.
 *
 *   returns  0 for no page, and of a device that is no flash; UINT64_MAX if it is more
 *   source   [PAM Table 1]; two registers a die are assumed
 */
PIMHW_API uint64_t pimhw_flash_read_ps(const pimhw_config *config, uint64_t n_pages);
PIMHW_API uint64_t pimhw_flash_write_ps(const pimhw_config *config, uint64_t n_pages);

/* ==========================================================================
 * [H5] PROGRAMS: instructions, loops, requests.
 *
 * A program depends on device, plan and shape only. What differs between two decode steps
 * (lengths, which channel takes which block) is request data, so one program serves them all.
 *
 * Operands and numbers of rounds are names. 64 rows of every bank of channel 0 times a vector, both
 * of 64 columns, to be timed (p: a pimhw_program; instructions say what is constant, items what is
 * not; on units each result and bias wants GPR blocks of its own, so these are items there, too):
 *
 *     pimhw_instruction wr_gb, bias, rd_mac;  (all 0 first)
 *     wr_gb.kind = PIMHW_WR_GB, bias.kind = PIMHW_WR_BIAS, rd_mac.kind = PIMHW_RD_MAC;
 *     wr_gb.mask = bias.mask = rd_mac.mask = 1, wr_gb.op_size = 64;
 *     pimhw_operand row = {0, {1}, {0}, {0}};  (0, and 1 more in every round of loop 0)
 *     pimhw_item mac;
 *     memset(&mac, 0, sizeof mac);
 *     mac.kind = PIMHW_MAC_ABK, mac.mask = 1;
 *     pimhw_program_init(&p);
 *     mac.op_size = pimhw_program_const(&p, 64), mac.row = pimhw_program_operand(&p, &row);
 *     pimhw_program_add(&p, &wr_gb);
 *     pimhw_program_loop(&p, pimhw_program_const(&p, 64), 1);
 *     pimhw_program_add(&p, &bias);
 *     pimhw_program_item(&p, &mac);
 *     pimhw_program_add(&p, &rd_mac);
 *     pimhw_program_end(&p);
 * ========================================================================== */

typedef enum pimhw_kind {
    /* structure, in programs only */
    PIMHW_LOOP = 0, /* op_size: how often; to its PIMHW_END */
    PIMHW_LIST,     /* the blocks of the request and, if there are any, aux further rounds; to its
                       PIMHW_END. It is all of its program: nothing before or behind it */
    PIMHW_BLOCK,    /* inside a list: runs with the block of aux rounds ago, if there is one; aux is
                       at most the list's */
    PIMHW_END,      /* closes the innermost of the three */
    /* instructions */
    PIMHW_WR_GB,   /* W: op_size columns from the GPR into the global buffer at tile; it waits for
                        no result on its way to the GPR, a SYNC before it does */
    PIMHW_WR_BIAS, /* W: fills output entry out of every bank; under ping-pong for the phase of its
                        first MAC, beside the one before */
    PIMHW_MAC_ABK, /* M: op_size columns of the row, times tiles from tile, into entry out; where
                        it begins a sum, gpr and aux say to RD_MAC what sum it is */
    PIMHW_RD_MAC,  /* R: output entry out of every bank into the GPR; under ping-pong one that no
                        MAC came to goes before those that wait for MACs */
    PIMHW_MAC_SBK, /* M: as MAC_ABK, in one bank */
    PIMHW_EWMUL,   /* M: products of columns of neighbouring banks, op_size columns; only of
                        bank groups of 3 or more. A MAC on them does not wait for them */
    PIMHW_AF,      /* M: activation function of every bank's entry, by the table row CFR 2 says,
                        which opens row 2^29 | that one; units have 8 */
    PIMHW_RD_AF,   /* R: result of AF out of every bank */
    PIMHW_COPY_BKGB, /* op_size columns of a bank into the global buffer at tile; a NaN
                        becomes a quiet one. Copies are done a clock after they issue [AIMSIM]:
                        what waits for one does not wait for its data */
    PIMHW_COPY_GBBK, /* and back */
    PIMHW_WR_SBK,    /* one column from the GPR into a bank; a shared front end has a write queue
                        for it, a channel of its own does it before what follows */
    PIMHW_RD_SBK,    /* one column of a bank into the GPR; likewise, a read queue */
    PIMHW_WR_ABK,    /* one column into every bank of one channel; closes their rows */
    PIMHW_MEM_WR,    /* host write of one column: as WR_SBK */
    PIMHW_MEM_RD,    /* host read of one column: as RD_SBK */
    PIMHW_EWADD,     /* hub: sum of GPR blocks gpr and aux; as GPR it waits for no result, as WR_GB
                        does not. EWADD, GPR and CFR take clocks of a shared front end alone */
    PIMHW_GPR,       /* host access to block gpr, a write if out is 1 */
    PIMHW_CFR,       /* host access to register aux; a write (out 1) sets it to gpr */
    PIMHW_SYNC,      /* waits until all channels are done; a shared front end does not wait for the
                        ordinary queues, and what is left in them at the end is not counted, and
                        done by pimhw_device_run alone */
    PIMHW_EOC,       /* the same, and ends the stream */
    PIMHW_EPU,       /* hub: op_size elements of work, once everything before on the channels of
                        mask is done but what SYNC does not wait for. What follows there issues
                        behind all of that under DCS, and is a phase behind it under ping-pong */
    PIMHW_EPU_WAIT,  /* they, or the shared front end, wait for the oldest EPU work with
                        PIMHW_AWAITED */
    PIMHW_N_KINDS
} pimhw_kind;

enum {
    PIMHW_DISTINCT = 1,   /* WR_GB: channel i takes GPR block gpr + i, of the next column n_channels
                             on; else all take the same */
    PIMHW_AWAITED = 2,    /* EPU: a PIMHW_EPU_WAIT will wait for it, of at most 8 */
    PIMHW_TIMING_ONLY = 4 /* its data are not known: units refuse it */
};

/*
 * One instruction with its operands resolved; what the units do with them stands before
 * pimhw_units, which alone know of GPR blocks, AF modes and registers: timing takes any. A field
 * that its kind does not use is not looked at, but op_size has to be 1 in all that a channel takes
 * and that stands here without it. Bit i of mask is channel i, and no other may be set; SYNC and
 * EOC address all channels whatever it says; EWADD, GPR and CFR need some bit. Kinds use:
 *
 *     WR_GB                 op_size tile gpr flags
 *     WR_BIAS RD_MAC RD_AF  out gpr (RD_MAC, RD_AF also aux); AF: out
 *     MAC_ABK MAC_SBK       op_size row column tile out gpr aux; MAC_SBK also bank
 *     EWMUL                 op_size row column
 *     COPY_BKGB COPY_GBBK   op_size bank row column tile
 *     WR_SBK RD_SBK MEM_WR  bank row column gpr; MEM_RD also; WR_ABK: row column gpr
 *     EWADD GPR CFR EPU     op_size gpr aux; gpr out; aux gpr out; op_size flags
 */
typedef struct pimhw_instruction {
    pimhw_kind kind;
    uint32_t flags;   /* PIMHW_DISTINCT, PIMHW_AWAITED, PIMHW_TIMING_ONLY */
    uint64_t mask;    /* channels */
    uint64_t op_size; /* columns; EPU: elements */
    uint32_t bank;
    uint32_t row;
    uint32_t column; /* first column of the row */
    uint32_t tile;   /* first entry of the global buffer */
    uint32_t out;    /* output entry */
    uint32_t gpr;
    uint32_t aux;
    uint32_t round; /* of the list: the block of the request, or of the channel's list, it is about;
                       0 outside a list */
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
 *     left  = min(base + rests[rest], 2^64 - 1) - channel_step * (channel / channel_div)
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

/* value = base + sum over loops of step[loop] * index[loop], but at most each named tail. Loop 0 is
 * the outermost open one; a list counts, a block does not. An item may only name an operand whose
 * steps are of loops that are open there. Nothing wraps: a step of 2^32 or more, here or in a tail,
 * is refused, and so are a tail's mul and, of a sum that grows, a base as large as 2^62. */
typedef struct pimhw_operand {
    uint64_t base;
    uint64_t step[PIMHW_LOOPS];
    uint8_t tail[2]; /* from pimhw_program_tail; 0: none */
    uint8_t reserved[6];
} pimhw_operand;

/* An instruction whose operands are named by pimhw_program_operand; 0 names 0. Without a name
 * op_size is 1; but kinds of columns and EPU need one, and a loop without runs no round. Where
 * op_size comes to 0 there is no instruction. */
typedef struct pimhw_item {
    uint64_t mask; /* channels that may take part; of a list or block nothing is asked */
    uint16_t end;  /* structure: index of its PIMHW_END, filled by the builder */
    uint8_t kind, flags;
    uint8_t space; /* row space: the block's row_base[space] is added to row */
    uint8_t op_size, bank, row, column, tile, out, gpr;
    uint8_t aux; /* list and block: the name of a constant */
} pimhw_item;

/* A program: a plain value from pimhw_program_init on, no memory behind it. The first building
 * call that fails leaves its status and cause in the program; pimhw_program_check returns it. */
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

/* Appends an item, or an instruction with constant operands, of whose flags 8 bits; there op_size
 * 0 is 1 in those that have no other. */
PIMHW_API void pimhw_program_item(pimhw_program *program, const pimhw_item *item);
PIMHW_API void pimhw_program_add(pimhw_program *program, const pimhw_instruction *instruction);

/* Opens a loop for the channels of mask, to which what is inside is limited; rounds_name is a name,
 * from pimhw_program_const or pimhw_program_operand, not a number. end closes the innermost
 * structure. */
PIMHW_API void pimhw_program_loop(pimhw_program *program, uint8_t rounds_name, uint64_t mask);
PIMHW_API void pimhw_program_end(pimhw_program *program);

/*
 * Judges a program for a device: structure, names and masks. What operands come to is judged when
 * it is timed: an operand below 2^32, a loop of fewer than 2^28 rounds.
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

/* No physical chunk. */
#define PIMHW_UNMAPPED UINT32_MAX

/* Request data. All pointers are borrowed until the call returns. */
typedef struct pimhw_request {
    const pimhw_block *blocks; /* [n_blocks]; outside a list the first counts */
    uint32_t n_blocks;
    const uint32_t *list_begin; /* NULL: every channel does all blocks, in order; else channel c
                                   does blocks[order[i]], list_begin[c] <= i < list_begin[c + 1];
                                   without a shared front end no SYNC, EOC, CFR or EWADD then */
    const uint32_t *order;      /* [list_begin[n_channels]] */
    uint64_t useful_macs;       /* lane products the caller needs; the rest is padding */
    uint32_t repeats;           /* the program runs so often, each time once the last is over; 0
                                   is once. None is skipped whole, 10^7 take seconds. useful_macs:
                                   of one */
    /* VA2PA [LOL]: where rows of blocks really are, for pimhw_device_run. Row r of a channel is
       row chunks[r / chunk_rows] + r % chunk_rows. */
    const uint32_t *chunks;      /* first rows, PIMHW_UNMAPPED: none; NULL: rows are physical */
    const uint32_t *chunk_begin; /* NULL: one table of n_chunks for all channels; else channel c's
                                    are chunks[chunk_begin[c]] to chunks[chunk_begin[c + 1] - 1] */
    uint32_t n_chunks, chunk_rows;
} pimhw_request;

/* ==========================================================================
 * [H7] READINGS: what a run cost, where the time went, what happened when.
 * ========================================================================== */

/* Channel commands. "16" in the simulator's spelling: all banks of the channel; ACT16 where some
 * have that row open already, too. */
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
    PIMHW_CMD_REF,
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
    PIMHW_SPENT_REF,    /* refresh */
    PIMHW_WAIT_INPUT,   /* for data on its way into the global buffer or the accumulators */
    PIMHW_WAIT_OUTPUT,  /* for a result being read */
    PIMHW_WAIT_OPERAND, /* for a MAC: for its result, or, as the next MAC does, for tCCD */
    PIMHW_WAIT_ROW,     /* for a row that cannot change (tRAS, tRC, tRTP) or be used yet (tRCD) */
    PIMHW_WAIT_REFRESH, /* for a refresh to end, beyond its own clocks */
    PIMHW_WAIT_HOST,    /* for the host to send, or for other channels to be read; and, but in
                           order, for all before what is none of W, M and R */
    PIMHW_WAIT_EPU,     /* for the hub's softmax */
    PIMHW_WAIT_DRAIN,   /* after the last command */
    PIMHW_N_SPENT
} pimhw_spent;

PIMHW_API const char *pimhw_spent_str(pimhw_spent spent);

/* What energy went to. */
typedef enum pimhw_energy {
    PIMHW_ENERGY_ROW = 0, /* rows opened and closed */
    PIMHW_ENERGY_MAC,     /* MAC, EWMUL, AF */
    PIMHW_ENERGY_ACCESS,  /* columns read, written, copied */
    PIMHW_ENERGY_INPUT,   /* global buffer and bias writes */
    PIMHW_ENERGY_OUTPUT,  /* result reads */
    PIMHW_ENERGY_LINK,    /* hub to channels and back */
    PIMHW_ENERGY_CONTROL, /* controllers */
    PIMHW_ENERGY_ACTIVE,  /* standby while a row is open */
    PIMHW_ENERGY_IDLE,    /* standby while none is */
    PIMHW_ENERGY_REFRESH, /* refresh, as often as it was due in the time and at its end: after a
                             channel's last command too, where none is issued */
    PIMHW_N_ENERGY
} pimhw_energy;

PIMHW_API const char *pimhw_energy_str(pimhw_energy energy);

/* Readings of one run. Parts sum to the whole: breakdown_ck to cycles, useful and padding to
 * macs, energy_pJ in its order to total_pJ. */
typedef struct pimhw_readings {
    uint32_t size;    /* bytes of this struct */
    uint32_t version; /* 1 */
    uint64_t cycles;  /* clocks from the start to the end of the slowest channel, when its last
                         commands have written (WR_ABK: and tRP more), read or summed, or the
                         hub; below 2^46: what takes longer is refused */
    double ns;        /* cycles * tCK */
    uint64_t commands[PIMHW_N_COMMANDS];  /* over all channels */
    uint64_t breakdown_ck[PIMHW_N_SPENT]; /* of the critical channel */
    uint32_t critical_channel;            /* latest end, lowest number */
    uint32_t n_busy_channels;             /* channels that did a MAC or MAC16 */
    uint64_t critical_macs;               /* MAC and MAC16 of the critical channel */
    uint64_t macs;                        /* lane products: banks * lanes a MAC16, lanes a MAC */
    uint64_t useful_macs;                 /* of the request; 0 if it said nothing */
    uint64_t padding_macs;                /* macs - useful_macs */
    double mac_utilisation;               /* MAC16 * tCCD_MAC / (cycles * channels), and a MAC 1 of
                                             banks of that; above 1 where tCCD_MAC is longer than
                                             what a MAC takes, and a run is short or static gaps do
                                             not ask the table */
    uint64_t epu_ck;                      /* the hub's EPU was busy */
    uint64_t n_instructions;              /* that each channel received, or, once, the hub */
    uint64_t skipped_rounds;              /* of loops, by channel: like others, of this program's
                                             earlier requests too, so not walked */
    uint64_t walked_rounds;               /* the others */
    uint64_t program_bytes;               /* 0 for a submitted stream */
    uint64_t request_bytes;               /* blocks and lists */
    uint64_t va2pa_bytes;                 /* 6 for each chunk of the request; 0 if it has none */
    uint64_t link_bytes;                  /* inputs, results and columns read and written, between
                                             the hub and all channels */
    uint64_t controller_bytes;            /* DCS: D-Table and S-Table of one channel */
    uint64_t active_ck;                   /* channels' time with an open row, summed */
    double flop_utilisation;              /* useful or all lane products / peak of the time */
    double energy_pJ[PIMHW_N_ENERGY];
    double total_pJ;
    double average_mW; /* total_pJ / ns */
} pimhw_readings;

/* One command of one channel. reason: the rule that set issue_ck. In breakdown_ck the clocks that
 * the command before it occupies count for that command, only the rest for the reason: ACT and
 * ACT16 tRCD_MAC, PRE and PREA tRP, MAC16 tCCD_MAC, TMOD tMOD, REF tRFC, all others tCCD_S. One
 * that issues within them ends them, so beside I/O a MAC has fewer, as the channel's end does. */
typedef struct pimhw_event {
    uint64_t issue_ck;
    uint32_t channel;
    pimhw_command command;
    uint32_t bank;   /* commands of one bank */
    uint32_t row;    /* of commands that open or need one, else 0 */
    uint32_t column; /* of commands that need a row */
    uint32_t tile;   /* WRGB and those */
    uint32_t out;    /* class W, M, R */
    pimhw_spent reason;
    /* of the instruction it belongs to */
    uint32_t index;  /* WRGB: which of its columns */
    uint32_t region; /* ping-pong: half of the global buffer the controller has put tile in */
    uint32_t entry;  /* the accumulator: out, but under ping-pong every sum takes a free one
                        (UINT32_MAX: there is none, and no pimhw_device_run) .. */
    bool fresh;      /* .. and here begins on it: what another left there does not count */
    uint32_t flags, gpr, aux, round;
    uint64_t serial; /* its number among those that channels take, from 0 */
} pimhw_event;

/* Receives every command, per channel in order of issue; and, if it wants them, what the hub does
 * (EPU, EWADD, GPR, CFR, EPU_WAIT), after all commands it waits for. With it no round is skipped.
 * What a device calls (command, hub, emit, a pimhw_hub) must not call that device, or it is told
 * PIMHW_ERR_ARGUMENT; and must return. */
typedef struct pimhw_sink {
    void (*command)(void *user, const pimhw_event *event);
    void *user;
    void (*hub)(void *user, const pimhw_instruction *instruction); /* may be NULL */
} pimhw_sink;

/* ==========================================================================
 * [H6] DEVICE: create, store, send instructions, time programs.
 * ========================================================================== */

typedef struct pimhw_memory pimhw_memory;

/*
 * The bytes of a device, in physical order: pages are taken as they are written, the rest reads as
 * zeros. One copy for host and units: pimhw_alloc gives the host an ordinary pointer.
 *
 *   returns  PIMHW_ERR_CONFIG as pimhw_config_check and for flash, PIMHW_ERR_MEMORY
 *   memory   16 bytes a page of the device; then pages, in write and in pimhw_alloc
 */
PIMHW_API pimhw_status pimhw_memory_create(pimhw_memory **memory, const pimhw_config *config,
                                           pimhw_chunk chunk, pimhw_cause *why);
PIMHW_API void pimhw_memory_destroy(pimhw_memory *memory);
PIMHW_API const pimhw_geometry *pimhw_memory_geometry(const pimhw_memory *memory);

/* Bytes taken from the allocator, the table of pages included. */
PIMHW_API uint64_t pimhw_memory_bytes(const pimhw_memory *memory);

/*
 * Reads or writes bytes of one row of one bank from a place on, for tests and tools. A byte of a
 * page that was never written is 0.
 *
 *   returns  PIMHW_ERR_ADDRESS with what is beyond the device or the row; PIMHW_ERR_MEMORY if a
 *            page cannot be taken; nothing is read or written then
 */
PIMHW_API pimhw_status pimhw_memory_read(const pimhw_memory *memory, void *bytes,
                                         const pimhw_da *from, uint32_t n_bytes, pimhw_cause *why);
PIMHW_API pimhw_status pimhw_memory_write(pimhw_memory *memory, const pimhw_da *to,
                                          const void *bytes, uint32_t n_bytes, pimhw_cause *why);

/*
 * FACIL's pimalloc: whole pages of one MapID, zeroed, one behind the other for the host. On the
 * device they are the lowest free ones, adjacent or not; pimhw_memory_find says which.
 *
 *   returns  PIMHW_ERR_ARGUMENT with a MapID that the geometry has not, or 0 bytes; PIMHW_ERR_FULL;
 *            PIMHW_ERR_MEMORY; memory and *pointer are then unchanged
 */
PIMHW_API pimhw_status pimhw_alloc(pimhw_memory *memory, void **pointer, uint64_t bytes,
                                   uint32_t map_id, pimhw_cause *why);

/*   returns  PIMHW_ERR_ADDRESS if the pointer is not from pimhw_alloc, or freed already */
PIMHW_API pimhw_status pimhw_free(pimhw_memory *memory, void *pointer, pimhw_cause *why);

/* Physical address and MapID of a host address inside of an allocation, as an MMU has them; either
 * may be NULL. PIMHW_ERR_ADDRESS if it is in none. */
PIMHW_API pimhw_status pimhw_memory_find(const pimhw_memory *memory, uint64_t *pa, uint32_t *map_id,
                                         const void *pointer, pimhw_cause *why);

typedef struct pimhw_device pimhw_device;

/*
 *   returns  PIMHW_ERR_CONFIG as pimhw_config_check and for flash, PIMHW_ERR_MEMORY
 *   memory   the only call that allocates, in one piece, touched as it comes into use: 15 MB, of a
 *            preset under DCS and ping-pong up to twice as much; 64 channels with 65,536 entries
 *            of each kind take 220 MB under ping-pong
 */
PIMHW_API pimhw_status pimhw_device_create(pimhw_device **device, const pimhw_config *config,
                                           pimhw_cause *why);
PIMHW_API void pimhw_device_destroy(pimhw_device *device);
PIMHW_API const pimhw_config *pimhw_device_config(const pimhw_device *device);

/*
 * Times a stream of instructions sent one by one: begin, submit .., finish. A stream without an
 * EOC is ended by one. After a failure, but of an argument, the stream is over: only begin helps.
 * With a sink of pimhw_units_command and pimhw_units_hub, user the units (between their begin and
 * end), what is submitted is executed, too.
 *
 *   returns  submit: PIMHW_ERR_PROGRAM with field and limit, PIMHW_ERR_ARGUMENT after an EOC;
 *            both: PIMHW_ERR_PROGRAM of 2^46 clocks or more
 *   memory   allocates nothing; the sink is borrowed until finish
 */
PIMHW_API pimhw_status pimhw_device_begin(pimhw_device *device, const pimhw_sink *sink);
PIMHW_API pimhw_status pimhw_device_submit(pimhw_device *device,
                                           const pimhw_instruction *instruction, pimhw_cause *why);
PIMHW_API pimhw_status pimhw_device_finish(pimhw_device *device, pimhw_readings *readings,
                                           pimhw_cause *why);

/*
 * Times a program on a request (NULL: none, all rests are 0). A device keeps what it learns of the
 * loops of a program until it times another: the next request has less to walk, and but for
 * skipped_rounds and walked_rounds the readings of a device that knows nothing. Round by round it
 * walks loops with the hub's instructions, SYNC, EOC or AF in them, but for the list's if nothing
 * is refreshed, no CFR, EOC or AF is in it, channels have no lists of their own, and blocks differ
 * in their rows alone, all by as many; and with commands of one bank all of the program. Whether a
 * controller overwrites what is still due is not looked at, nor where rows lie (chunks): all are
 * taken to be there. pimhw_device_run finds both.
 *
 *   returns  PIMHW_ERR_PROGRAM with the item's index, or of useful_macs or all of the run (2^46
 *            clocks or more, or loops of as many rounds, which may take no clock);
 *            PIMHW_ERR_ARGUMENT of the request, PIMHW_ERR_ADDRESS of more chunks than the table
 *            (va2pa_entries) holds; *readings then unchanged
 */
PIMHW_API pimhw_status pimhw_device_time(pimhw_device *device, pimhw_readings *readings,
                                         const pimhw_program *program, const pimhw_request *request,
                                         const pimhw_sink *sink, pimhw_cause *why);

/* Rounds to a lane, to nearest, ties to even, beyond its range to infinity; and back. Or n f32 to
 * as many lanes, and back, from and to memory at any addresses, which do not overlap. */
PIMHW_API uint16_t pimhw_lane_round(uint32_t lane_type, float value);
PIMHW_API float pimhw_lane_value(uint32_t lane_type, uint16_t lane);
PIMHW_API void pimhw_lanes_round(uint32_t lane_type, void *lanes, const void *values, size_t n);
PIMHW_API void pimhw_lanes_value(uint32_t lane_type, void *values, const void *lanes, size_t n);

/*
 * What the units beside the banks hold: global buffers, output entries, the table of AF; and the
 * hub's registers (GPR). They do the commands of a listing on the bytes of a memory:
 *
 *     MAC        products of the lanes in f32 (of f16 exact), added pairwise: neighbours, sums of
 *                neighbours and so on, an odd one as it is; the sum added to the entry; of the
 *                tile, or after CFR 0 = 0 of banks 2 i and 2 i + 1, for both of them (MAC_SBK: for
 *                its own; a last odd bank: 0)
 *     EWMUL      banks 0 and 1 of every bank group, into bank 2
 *     AF         by the samples of the mode that CFR 2 holds, linear in between and beyond, in
 *                f64, rounded once
 *     WR_GB      GPR block gpr + index; PIMHW_DISTINCT: gpr + index * n_channels + channel
 *     WR_BIAS    2 bytes a bank, an element, from GPR block gpr on
 *     RD_MAC     an element of out_bits a bank, all of them in n = ceil(banks * out_bits / 16 /
 *                lanes) GPR blocks, from gpr + n * channel on, 32 bits as a float of the host in
 *                two elements; gpr and aux of the MAC that began the sum are added to its own
 *     RD_AF      likewise, by the sum that is in the entry by then
 *     WR_SBK     GPR block gpr; WR_ABK: bank i takes gpr + i; RD_SBK: to gpr + channel
 *     EWADD      GPR blocks gpr on += blocks aux on
 *
 * A NaN that MAC, EWMUL, AF or EWADD make is 0x7fc00000, rounded to the element.
 *
 *   returns  PIMHW_ERR_CONFIG as pimhw_config_check, or if elements have not 2 bytes;
 *            PIMHW_ERR_ARGUMENT if the memory is of another geometry; PIMHW_ERR_MEMORY
 *   memory   borrows *memory until destroy
 */
typedef struct pimhw_units pimhw_units;
PIMHW_API pimhw_status pimhw_units_create(pimhw_units **units, const pimhw_config *config,
                                          pimhw_memory *memory, pimhw_cause *why);
PIMHW_API void pimhw_units_destroy(pimhw_units *units);

/* The elements of a GPR block [lanes]; NULL beyond the last. */
PIMHW_API uint16_t *pimhw_units_gpr(pimhw_units *units, uint32_t block);

enum { PIMHW_AF_MODES = 8, PIMHW_AF_PER_ONE = 64, PIMHW_AF_SAMPLES = 16 * PIMHW_AF_PER_ONE + 1 };

/* Sets an activation function: its values at -8, -8 + 1/64, .. 8; all modes begin as 0. */
PIMHW_API pimhw_status pimhw_units_af(pimhw_units *units, uint32_t mode, const float *samples);

/* A hub in place of the GPR. An event is that of the command, its index says which column of the
 * instruction. Each may be NULL: then the GPR does it, or nothing. */
typedef struct pimhw_hub {
    void *user;
    /* WRGB: [lanes of a unit]; WRMAC16: [banks] */
    void (*input)(void *user, const pimhw_event *event, uint16_t *lanes);
    /* RDMAC16, RDAF16: [banks]; flags and round of the event: of the MAC that began the sum */
    void (*output)(void *user, const pimhw_event *event, const float *sums);
    void (*epu)(void *user, const pimhw_instruction *instruction); /* EPU */
} pimhw_hub;

/*
 * Executes one command after the other: buffers begin as zeros, the GPR stays. command and hub are
 * those of a sink, of a device like the units'; pimhw_device_run does all of it. After a failure
 * commands do nothing.
 *
 *   returns  end: the first failure. PIMHW_ERR_ADDRESS (a row in no chunk, any place or GPR block
 *            beyond the device), PIMHW_ERR_HAZARD (with the event's serial), PIMHW_ERR_MEMORY,
 *            PIMHW_ERR_PROGRAM;
 *            PIMHW_ERR_ARGUMENT of the request's chunks
 *   memory   borrows request and hub until end; what commands have read of the units' memory is
 *            kept, so until then commands alone write to it
 */
PIMHW_API void pimhw_units_begin(pimhw_units *units, const pimhw_request *request,
                                 const pimhw_hub *hub);
PIMHW_API void pimhw_units_command(void *units, const pimhw_event *event);
PIMHW_API void pimhw_units_hub(void *units, const pimhw_instruction *instruction);
PIMHW_API pimhw_status pimhw_units_end(pimhw_units *units, pimhw_cause *why);

/*
 * Times a program and executes it on the units, each command as the controller issues it. The
 * readings are those of pimhw_device_time, but for the rounds that this one skips. A read that the
 * shared front end takes while writes wait on its channel is answered by their queue, whatever it
 * asks for [AIMSIM]: it is no command and brings nothing, so SYNC goes before a read. Nor does that
 * front end keep accesses to one column in order, SYNC or not. Both end in PIMHW_ERR_HAZARD.
 *
 * A matrix times a vector: rows by pimhw_alloc under the mapping of pimhw_map_select, whose banks
 * and rows pimhw_memory_find and pimhw_map_da tell; x in GPR blocks (pimhw_units_gpr); a program
 * that for every row of the banks does WR_GB of x, MAC_ABK and RD_MAC (examples/facil.c).
 *
 *   returns  as pimhw_device_time and pimhw_units_end; PIMHW_ERR_PROGRAM for PIMHW_TIMING_ONLY;
 *            PIMHW_ERR_ARGUMENT if the units are of another geometry, out_clear, out_bits or
 *            lane_type; PIMHW_ERR_HAZARD also where ping-pong cannot: MACs go back to inputs whose
 *            region is filled again, or on with a sum that is being read, or more sums are held
 *            than there are entries, each until the phase after its read; or where a GPR block is
 *            used out of the order of the program, but by EWADD, or gets results of two channels
 *            from one instruction; *readings then unchanged, but not the bytes that the commands
 *            before wrote
 */
PIMHW_API pimhw_status pimhw_device_run(pimhw_device *device, pimhw_readings *readings,
                                        pimhw_units *units, const pimhw_program *program,
                                        const pimhw_request *request, const pimhw_hub *hub,
                                        pimhw_cause *why);

/*
 * Hands every resolved instruction of a program, run once, to emit, all channels in lock-step:
 * instruction i of every channel under one mask where the operands agree; works of the EPU for
 * lists of their own become one, of all their elements. emit returns false to stop. A stream under
 * way is over then. examples/aim_text.h makes lines of an AiM trace of them.
 *
 *   returns  as pimhw_device_time, but for what is refused of a run as a whole: its clocks, EPU
 *            works, useful_macs, what has no place beside lists of channels
 */
PIMHW_API pimhw_status pimhw_device_resolve(
    pimhw_device *device, const pimhw_program *program, const pimhw_request *request,
    bool (*emit)(void *user, const pimhw_instruction *instruction), void *user, pimhw_cause *why);

/* Bytes of one instruction whose operands are numbers: 8 of mask, 4 each of row, gpr and aux, 2
   each of kind and flags, op_size, bank, column, tile and out. */
enum { PIMHW_INSTRUCTION_BYTES = 32 };

/* What a program would take if a hub could not resolve it: every instruction by itself, as
 * pimhw_device_resolve hands them out, which this calls. With DPA it is pimhw_program_bytes at any
 * length. */
PIMHW_API pimhw_status pimhw_program_unroll(pimhw_device *device, uint64_t *bytes,
                                            const pimhw_program *program,
                                            const pimhw_request *request, pimhw_cause *why);

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

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||     \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
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

/* Sums and products of what may be without limit. */
static uint64_t pimhw_i_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t pimhw_i_times(uint64_t a, uint64_t b)
{
    return (a | b) >> 32 && a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static uint64_t pimhw_i_low_bits(uint32_t n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static uint32_t pimhw_i_count(uint64_t mask)
{
    mask -= mask >> 1 & UINT64_C(0x5555555555555555); /* in twos, in fours, in bytes, in all */
    mask = (mask & UINT64_C(0x3333333333333333)) + (mask >> 2 & UINT64_C(0x3333333333333333));
    mask = (mask + (mask >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(mask * UINT64_C(0x0101010101010101) >> 56);
}

/* Number of the lowest bit; mask is not 0. */
static uint32_t pimhw_i_lowest(uint64_t mask)
{
#if defined(__GNUC__)
    return (uint32_t)__builtin_ctzll(mask);
#else
    return pimhw_i_count(~mask & (mask - 1));
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

/* printf would do more than is needed and depends on the locale. */
PIMHW_API void pimhw_cause_write(pimhw_cause *why, const char *format, ...)
{
    if (!why) return;
    va_list values;
    char digits[20];
    size_t at = 0;
    va_start(values, format);
    for (const char *f = format; *f; f++) {
        const char *word = f;
        size_t n = 1;
        if (f[0] == '%' && f[1] == 's') {
            word = va_arg(values, const char *);
            n = strlen(word);
            f++;
        } else if (f[0] == '%' && f[1] == 'u') {
            uint64_t value = va_arg(values, uint64_t);
            for (n = 0; n == 0 || value; value /= 10)
                digits[sizeof digits - ++n] = (char)('0' + (int)(value % 10));
            word = digits + sizeof digits - n;
            f++;
        }
        for (; n > 0 && at + 1 < sizeof why->text; n--)
            why->text[at++] = *word++;
    }
    va_end(values);
    why->text[at] = '\0';
}

static const char PIMHW_I_NULL[] = "a pointer is NULL";

/* A status, its cause written: a text and its words and uint64_t. */
#define PIMHW_I_FAIL(why, status, ...) (pimhw_cause_write(why, __VA_ARGS__), status)
#define PIMHW_I_WRONG(why, ...)        PIMHW_I_FAIL(why, PIMHW_ERR_ARGUMENT, __VA_ARGS__)
#define PIMHW_I_UNFIT(why, ...)        PIMHW_I_FAIL(why, PIMHW_ERR_CONFIG, __VA_ARGS__)
#define PIMHW_I_UNABLE(why, ...)       PIMHW_I_FAIL(why, PIMHW_ERR_PROGRAM, __VA_ARGS__)

/* Goes on if a call was well, else returns its status. */
#define PIMHW_I_TRY(call)                                                                          \
    do {                                                                                           \
        const pimhw_status was = (call);                                                           \
        if (was != PIMHW_OK) return was;                                                           \
    } while (0)

/* A table of n entries behind a struct, which may be NULL, at `at`; then that of the next one. */
#define PIMHW_I_PART(owner, type, name, n)                                                         \
    if (owner) (owner)->name = (n) > 0 ? (type *)(void *)((char *)(owner) + at) : NULL;            \
    at += ((n) * sizeof(type) + 7) / 8 * 8;

/* Memory of the default allocator: malloc's pointer is kept in front of the aligned one. */
static void *pimhw_i_default_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    size_t extra = align + sizeof(void *);
    if (bytes > SIZE_MAX - extra) return NULL;
    char *raw = (char *)malloc(bytes + extra);
    if (!raw) return NULL;
    char *aligned = raw + extra - ((uintptr_t)raw + extra) % align;
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
    pimhw_allocator a = {pimhw_i_default_alloc, pimhw_i_default_release, NULL};
    return a;
}

PIMHW_API const char *pimhw_status_str(pimhw_status status)
{
    static const char names[][48] = {"ok",
                                     "wrong argument",
                                     "wrong device description",
                                     "no such name",
                                     "out of memory",
                                     "entry or column used out of order",
                                     "instruction or program the device cannot do",
                                     "address that is not there",
                                     "device memory full",
                                     "line that does not parse"};
    return (uint32_t)status <= PIMHW_ERR_TEXT ? names[status] : "unknown status";
}

/* ==========================================================================
 * [H9] TABLES: presets, fields, commands, constraints, names.
 *      Data only: a device family is rows here, not code elsewhere.
 * ========================================================================== */

/* The last preset is flash. Fields that only a DRAM has name no source for it, and hold 0 there;
   those that only flash has name no source for the others. */
enum { PIMHW_I_N_PRESETS = 15, PIMHW_I_FLASH = PIMHW_I_N_PRESETS - 1 };

static const char PIMHW_I_PRESETS[PIMHW_I_N_PRESETS][24] = {
    "aim-gddr6",           "aimx",          "cent",        "neupims",       "attacc-hbm3",
    "attacc-hbm3-nolimit", "samsung-hbm2",  "newton-hbm2", "lpddr5-jetson", "lpddr5-macbook",
    "lpddr5-ideapad",      "lpddr5-iphone", "pam-hbm3",    "pam-ddr4",      "pam-ssd",
};

/* Where a number comes from, by its letter in the table of fields. */
static const struct {
    char letter;
    char key[12];
} PIMHW_I_SOURCES[] = {
    {'G', "AIMSIM"}, {'L', "LOL"},     {'P', "PHONY"},      {'F', "FACIL"},
    {'M', "PAM"},    {'A', "ATTACC"},  {'S', "SAIT"},       {'N', "NEU"},
    {'C', "CENT"},   {'?', "assumed"}, {'*', "calibrated"}, {'\0', "none"},
};

/* A settable number: where it is, its limits, its value and source in each preset. */
typedef struct pimhw_i_field {
    char name[20];
    size_t offset;
    uint32_t least, most;
    char source[PIMHW_I_N_PRESETS + 1]; /* a letter a preset */
    uint32_t value[PIMHW_I_N_PRESETS];
} pimhw_i_field;

/* clang-format off */
#define PIMHW_F(name, least, most, sources, ...) \
    {#name, offsetof(pimhw_config, name), least, most, sources, {__VA_ARGS__}}
/* Repeated values: of the four AiM or LPDDR5 presets; of all; of families of presets. */
#define PIMHW_4(x) x, x, x, x
#define PIMHW_14(x) PIMHW_4(x), PIMHW_4(x), PIMHW_4(x), x, x
#define PIMHW_UNITS(hbm3, ddr4, ssd) PIMHW_4(0), PIMHW_4(0), PIMHW_4(0), hbm3, ddr4, ssd
#define PIMHW_NONE "\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define PIMHW_3(aim, hbm3, hbm2, ddr4) PIMHW_7(aim, hbm3, hbm2, hbm2, aim, aim, ddr4)
#define PIMHW_7(aim, hbm3, samsung, newton, lpddr5, ideapad, ddr4) \
    PIMHW_4(aim), hbm3, hbm3, samsung, newton, lpddr5, lpddr5, ideapad, lpddr5, hbm3, ddr4

/* In the order of the presets. What calibrated rests on: tWR_INP, tMAC, tRD_OUT on the MAC
 * utilisation of a GEMV under static gaps [PHONY]; row_opening on what FFN1 and FFN2 save [LOL Fig.
 * 7]; obuf of aimx and neupims on the 576 bytes of DCS' tables [PHONY VII-C]; tCL_MAC and
 * out_entries of attacc-hbm3 on the clocks of its shortest context. AttAcc's energies are its pJ a
 * bit times the bits. NeuPIMs' buffer write, as much as 16 reads of 64 bytes, fills the buffer: a
 * column is 1 of 32. Every command of samsung-hbm2 addresses all bank groups, so its tCCD_S is
 * [SAIT]'s tCCD_L. A row and a column of pam-ddr4 cost what AiM's do a byte, but for results.
 * softmax_ck is 12 clocks of a unit: 8 to rescale 128 dims, 4 for maximum and exponential.
 * epu_lanes of cent: 3 TFLOPS at one operation a lane and clock. */
static const pimhw_i_field PIMHW_I_FIELDS[] = {
    PIMHW_F(n_channels, 1, PIMHW_MAX_CHANNELS, "GLPPAASN????M?M", 32, 16, 32, 32, 16, 16, 64, 32,
            16, 32, 4, 4, 32, 1, 8),
    PIMHW_F(n_bank_groups, 1, 64, "GGG?AASNFFFFMM", 4, 4, 4, 8, 16, 16, 4, 8, 8, 8, 8, 8, 8, 4),
    PIMHW_F(n_group_banks, 1, 64, "GGG?AASNFFFFMM", PIMHW_7(4, 4, 2, 4, 4, 4, 4)),
    PIMHW_F(n_ranks, 1, 64, "????????FFFFMM", PIMHW_4(1), 1, 1, 1, 1, PIMHW_4(2), 2, 2),
    PIMHW_F(n_rows, 1, 1u << 28, "GGGP??????????", PIMHW_4(16384), 16384, 16384, 16384, 32768,
            65536, 32768, 131072, 32768, 16384, 262144),
    PIMHW_F(row_bytes, 2, 1u << 20, "GLGGAASN??????", PIMHW_3(2048, 1024, 1024, 8192)),
    PIMHW_F(column_bytes, 2, 1u << 10, "GGGGAAS?????M?M", PIMHW_3(32, 32, 32, 64), 32),
    PIMHW_F(element_bytes, 1, 4, "GGGGAASNFFFFMMM", PIMHW_14(2), 2),
    PIMHW_F(in_entries, 1, 1u << 16, "GLGL??SNFFFFMM", PIMHW_4(64), 64, 64, 8, 32, PIMHW_4(64), 16,
            16),
    PIMHW_F(out_entries, 1, 65536, "CLC?**S???????", 32, 2, 32, 2, 64, 64, 8, 2, 2, 2, 2, 2, 2, 2),
    PIMHW_F(obuf, 1, 1u << 16, "C*C***S???????", 32, 8, 32, 8, 64, 64, 8, 8, 8, 8, 8, 8, 8, 8),
    PIMHW_F(out_clear, 0, 1, "GLG???????????", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    PIMHW_F(lane_type, 0, 1, "??????????????", PIMHW_14(0)),
    PIMHW_F(out_bits, 16, 32, "?L????????????", PIMHW_14(16)),
    PIMHW_F(partial_write, 0, 1, "??????????????", PIMHW_14(0)),
    PIMHW_F(gpr_blocks, 1, 1u << 24, "?L????????????", PIMHW_14(16384)),
    PIMHW_F(va2pa_entries, 1, 1u << 28, "?L????????????", PIMHW_14(16384)),
    PIMHW_F(front_end, 0, 1, "GLC???????????", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    PIMHW_F(queue_entries, 2, 64, "GGG???????????", PIMHW_14(33)),
    PIMHW_F(controller, 0, 3, "GLC???????????", PIMHW_14(0)),
    PIMHW_F(row_opening, 0, 2, "****??????????", PIMHW_14(0)),
    PIMHW_F(extra_region, 0, 1, "PPPPPPPPPPPPPP", PIMHW_14(0)),
    PIMHW_F(early_tiles, 0, 1, "??????????????", PIMHW_14(0)),
    PIMHW_F(is_mac, 0, 1, "PPPPPPPPPPPPPP", PIMHW_14(1)),
    PIMHW_F(tCK_ps, 1, 1000000, "GGGGAASNFFFFMM", PIMHW_7(500, 769, 1000, 1000, 1250, 1071, 625)),
    PIMHW_F(tBL, 1, 1000, "GGGGAASN????MM", PIMHW_4(2), 2, 2, 2, 2, PIMHW_4(2), 4, 4),
    PIMHW_F(tCCD_S, 1, 1000, "GGGGAASN????MM", PIMHW_7(2, 2, 4, 1, 2, 2, 4)),
    PIMHW_F(tCCD_L, 1, 1000, "GGGGAASN????MM", PIMHW_7(2, 4, 4, 2, 4, 4, 8)),
    PIMHW_F(tCCD_MAC, 1, 1000, "GGGGAASN????MM", 2, 2, 2, 2, 6, 4, 4, 2, 4, 4, 4, 4, 4, 8),
    PIMHW_F(tRCD_MAC, 1, 100000, "GGGGAASN????MM", PIMHW_7(56, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRCD_RD, 1, 100000, "GGGGAASN????MM", PIMHW_7(36, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRCD_WR, 1, 100000, "GGGGAASN????MM", PIMHW_7(28, 19, 10, 14, 15, 17, 24)),
    PIMHW_F(tRCD_AF, 1, 100000, "GGGG??????????", PIMHW_7(86, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRCD_EWMUL, 1, 100000, "GGGG??????????", PIMHW_7(25, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRCD_RDCP, 1, 100000, "GGGG??????????", PIMHW_7(66, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRCD_WRCP, 1, 100000, "GGGG??????????", PIMHW_7(48, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRRD_S, 1, 100000, "GGGGAASN?????M", PIMHW_7(5, 2, 4, 4, 4, 5, 4)),
    PIMHW_F(tRRD_L, 1, 100000, "GGGGAASN????MM", PIMHW_7(6, 4, 6, 6, 4, 5, 6)),
    PIMHW_F(tCL, 0, 1000, "GGGGAASN?????M", PIMHW_7(50, 19, 20, 14, 17, 20, 24)),
    PIMHW_F(tCWL, 0, 1000, "GGGGAASN??????", PIMHW_7(6, 6, 8, 4, 9, 11, 16)),
    PIMHW_F(tWR, 0, 100000, "GGGGAASN????M?", PIMHW_7(33, 21, 16, 16, 28, 32, 24)),
    PIMHW_F(tRP, 1, 100000, "GGGGAASN????MM", PIMHW_7(32, 19, 14, 14, 15, 17, 24)),
    PIMHW_F(tRAS, 1, 100000, "GGGGAASN????M?", PIMHW_7(54, 45, 33, 34, 34, 40, 52)),
    PIMHW_F(tRC, 1, 100000, "GGGGAASN?????M", PIMHW_4(89), 63, 63, 47, 48, 49, 49, 57, 49, 64, 76),
    PIMHW_F(tRTP, 0, 100000, "GGGGAASN??????", PIMHW_7(12, 8, 5, 6, 6, 7, 12)),
    PIMHW_F(tWTR_S, 0, 100000, "GGGGAASN??????", PIMHW_7(9, 8, 4, 6, 5, 6, 4)),
    PIMHW_F(tWTR_L, 0, 100000, "GGGGAASN??????", PIMHW_7(11, 11, 9, 8, 10, 12, 12)),
    PIMHW_F(tWPRE, 0, 1000, "GGGG??????????", PIMHW_14(1)),
    PIMHW_F(tCL_REG, 0, 1000, "GGGG??????????", PIMHW_14(0)),
    PIMHW_F(tCWL_REG, 0, 1000, "GGGG??????????", PIMHW_14(1)),
    PIMHW_F(tCWL_GB, 0, 1000, "GGGG??????????", PIMHW_14(1)),
    PIMHW_F(tMTW, 0, 1000, "GGGG??S???????", PIMHW_7(0, 0, 16, 0, 0, 0, 0)),
    PIMHW_F(tCL_MAC, 1, 1000, "GGGG**????????", 1, 1, 1, 1, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1),
    PIMHW_F(tMOD, 0, 100000, "GGGG??????????", PIMHW_7(32, 0, 0, 0, 0, 0, 0)),
    PIMHW_F(tWR_INP, 1, 100000, "****??????????", PIMHW_7(40, 26, 20, 20, 16, 19, 32)),
    PIMHW_F(tMAC, 1, 100000, "****??????????", PIMHW_7(41, 26, 20, 20, 16, 19, 32)),
    PIMHW_F(tRD_OUT, 1, 100000, "****??????????", PIMHW_7(40, 26, 20, 20, 16, 19, 32)),
    PIMHW_F(refresh, 0, 1, "G?????????????", 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    PIMHW_F(tREFI, 1, 1u << 30, "????AASN????M?", PIMHW_7(3800, 5070, 3900, 3900, 3125, 3646,
            12480)),
    PIMHW_F(tRFC, 1, 1u << 30, "????AASN??????", PIMHW_7(210, 455, 350, 260, 224, 262, 560)),
    PIMHW_F(refresh_phase, 1, 1u << 30, "??????????????", PIMHW_7(3800, 5070, 3900, 3900, 3125,
            3646, 12480)),
    PIMHW_F(epu_lanes, 1, 1u << 16, "??P???????????", 16, 16, 1500, 16, 16, 16, 16, 16, 16, 16, 16,
            16, 16, 16),
    PIMHW_F(epu_ck_per_op, 0, 1u << 16, "??????????????", PIMHW_14(1)),
    PIMHW_F(epu_passes, 0, 1u << 8, "??????????????", PIMHW_14(3)),
    PIMHW_F(epu_overlap, 0, 1, "?L????????????", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    PIMHW_F(eACT_fJ, 0, UINT32_MAX, "CCC?AANN??????", PIMHW_3(2950000, 901120, 828000, 11800000)),
    PIMHW_F(eRD_fJ, 0, UINT32_MAX, "CCC?AANN??????", PIMHW_3(548000, 686080, 402000, 1096000)),
    PIMHW_F(eWR_fJ, 0, UINT32_MAX, "CCC?AANN??????", PIMHW_3(691000, 686080, 534000, 1382000)),
    PIMHW_F(eMAC_fJ, 0, UINT32_MAX, "CCC?AANN????M?", PIMHW_4(82125), 376320, 376320, 201250,
            201250, PIMHW_4(82125), 1113600, 164250),
    PIMHW_F(eWRGB_fJ, 0, UINT32_MAX, "????AANN??????", PIMHW_3(691000, 314880, 403125, 1382000)),
    PIMHW_F(eRDMAC_fJ, 0, UINT32_MAX, "????AANN??????", PIMHW_4(548000), 1259520, 1259520, 804000,
            804000, PIMHW_4(548000), 629760, 548000),
    PIMHW_F(eLINK_fJ, 0, UINT32_MAX, "CCC?AA????????", PIMHW_3(1408000, 204800, 1408000, 1408000)),
    PIMHW_F(eREQ_fJ, 0, UINT32_MAX, "CCC???????????", PIMHW_14(66900)),
    PIMHW_F(eCMD_fJ, 0, UINT32_MAX, "CCC???????????", PIMHW_14(95300)),
    PIMHW_F(eREF_fJ, 0, UINT32_MAX, "??????????????", PIMHW_3(5900000, 1802240, 1656000, 23600000)),
    PIMHW_F(pACTIVE_uW, 0, UINT32_MAX, "CCC???NN??????", PIMHW_7(263750, 132000, 66000, 132000,
            263750, 263750, 263750)),
    PIMHW_F(pIDLE_uW, 0, UINT32_MAX, "CCC???NN??????", PIMHW_7(183150, 96000, 48000, 96000, 183150,
            183150, 183150)),
    PIMHW_F(link_MBps, 1, UINT32_MAX, "?LC?????FFFFMM?", PIMHW_4(64000), 665600, 665600, 1024000,
            512000, 204800, 409600, 59700, 51200, 665600, 25600, 3500),
    PIMHW_F(host_MBps, 1, UINT32_MAX, "????????FFFF???", PIMHW_4(307200), 307200, 307200, 307200,
            307200, 156262, 361677, 19880, 38195, 307200, 307200, 307200),
    PIMHW_F(unit_MHz, 0, 100000, "????????????MMM", PIMHW_UNITS(666, 500, 1000)),
    PIMHW_F(softmax_ck, 0, 1u << 16, "??????????????", PIMHW_UNITS(24, 39, 0)),
    PIMHW_F(reduction_units, 0, 1u << 16, "????????????MMM", PIMHW_UNITS(128, 4, 8)),
    PIMHW_F(reduction_lanes, 0, 1u << 16, "????????????MMM", PIMHW_UNITS(16, 16, 16)),
    PIMHW_F(cap_MFLOPS, 0, 1000000000, "????????????MMM", PIMHW_UNITS(1600000, 204000, 18000)),
    PIMHW_F(flash_page_bytes, 512, 1u << 24, PIMHW_NONE "M", PIMHW_14(0), 16384),
    PIMHW_F(flash_dies, 1, 1024, PIMHW_NONE "M", PIMHW_14(0), 4),
    PIMHW_F(flash_units, 1, 1u << 16, PIMHW_NONE "M", PIMHW_14(0), 64),
    PIMHW_F(flash_tR_ns, 1, 1000000000, PIMHW_NONE "M", PIMHW_14(0), 30000),
    PIMHW_F(flash_tPROG_ns, 1, 1000000000, PIMHW_NONE "?", PIMHW_14(0), 300000),
    PIMHW_F(flash_MBps, 1, 1000000, PIMHW_NONE "M", PIMHW_14(0), 2400),
};
#undef PIMHW_F
#undef PIMHW_4
#undef PIMHW_14
#undef PIMHW_UNITS
#undef PIMHW_NONE
#undef PIMHW_3
#undef PIMHW_7
/* clang-format on */

enum { PIMHW_I_N_FIELDS = sizeof PIMHW_I_FIELDS / sizeof PIMHW_I_FIELDS[0] };

/* A command: what it is charged to and for how long, when its effect is there, what it needs. */
typedef struct pimhw_i_command {
    char name[12];
    uint8_t spent;      /* pimhw_spent */
    bool register_mode; /* else normal mode */
    bool needs_row;
    bool switches;     /* opens or closes a row */
    char occupies[12]; /* clocks: sums of fields and numbers, here and below */
    char completes[20];
    uint8_t energy;  /* pimhw_energy */
    char joules[12]; /* field: of a bank, or of the channel */
    bool every_bank; /* joules: times the banks */
    bool linked;     /* columns or results come from the hub or go there */
} pimhw_i_command;

/* clang-format off */
#define PIMHW_C(name, spent, in_register_mode, with_row, moves_rows, busy, \
                done, energy, joules, every, from_hub) \
    {#name, PIMHW_SPENT_##spent, in_register_mode, with_row, moves_rows, busy, done, \
     PIMHW_ENERGY_##energy, joules, every, from_hub}

static const pimhw_i_command PIMHW_I_COMMANDS[PIMHW_N_COMMANDS] = {
    PIMHW_C(ACT16, ACT, 0, 0, 1, "tRCD_MAC", "1", ROW, "eACT_fJ", 1, 0),
    PIMHW_C(PREA, PRE, 0, 0, 1, "tRP", "1", ROW, "", 0, 0),
    PIMHW_C(MAC16, MAC, 0, 1, 0, "tCCD_MAC", "tCL_MAC", MAC, "eMAC_fJ", 1, 0),
    PIMHW_C(WRGB, WR_INP, 1, 0, 0, "tCCD_S", "tCWL_GB+tBL", INPUT, "eWRGB_fJ", 0, 1),
    PIMHW_C(WRMAC16, WR_INP, 1, 0, 0, "tCCD_S", "tCWL_REG+tBL", INPUT, "eWRGB_fJ", 0, 1),
    PIMHW_C(RDMAC16, RD_OUT, 1, 0, 0, "tCCD_S", "tCL_REG+tBL", OUTPUT, "eRDMAC_fJ", 0, 1),
    PIMHW_C(TMOD, MODE, 0, 0, 0, "tMOD", "1", CONTROL, "", 0, 0),
    PIMHW_C(EWMUL16, MAC, 0, 1, 0, "tCCD_S", "1", MAC, "eMAC_fJ", 1, 0),
    PIMHW_C(AF16, MAC, 0, 1, 0, "tCCD_S", "1", MAC, "eMAC_fJ", 1, 0),
    PIMHW_C(WRA16, ACCESS, 0, 1, 1, "tCCD_S", "tCWL+tBL+tRP", ACCESS, "eWR_fJ", 1, 1),
    PIMHW_C(RDAF16, RD_OUT, 1, 0, 0, "tCCD_S", "tCL_REG+tBL", OUTPUT, "eRDMAC_fJ", 0, 1),
    PIMHW_C(REF, REF, 0, 0, 0, "tRFC", "1", REFRESH, "", 0, 0),
    PIMHW_C(ACT, ACT, 0, 0, 1, "tRCD_MAC", "1", ROW, "eACT_fJ", 0, 0),
    PIMHW_C(PRE, PRE, 0, 0, 1, "tRP", "1", ROW, "", 0, 0),
    PIMHW_C(RD, ACCESS, 0, 1, 0, "tCCD_S", "tCL+tBL", ACCESS, "eRD_fJ", 0, 1),
    PIMHW_C(WR, ACCESS, 0, 1, 0, "tCCD_S", "tCWL+tBL", ACCESS, "eWR_fJ", 0, 1),
    PIMHW_C(MAC, MAC, 0, 1, 0, "tCCD_S", "1", MAC, "eMAC_fJ", 0, 0),
    PIMHW_C(RDCP, ACCESS, 0, 1, 0, "tCCD_S", "1", ACCESS, "eRD_fJ", 0, 0),
    PIMHW_C(WRCP, ACCESS, 0, 1, 0, "tCCD_S", "1", ACCESS, "eWR_fJ", 0, 0),
};
#undef PIMHW_C
/* clang-format on */

static bool pimhw_i_one_bank(uint32_t command)
{
    return command >= PIMHW_CMD_ACT;
}

/* Where a constraint holds. Where one of two commands is of the whole channel, it is there. */
enum { PIMHW_I_CHANNEL = 0, PIMHW_I_GROUP, PIMHW_I_BANKS, PIMHW_I_N_LEVELS };

#define PIMHW_B(command) (1u << PIMHW_CMD_##command)

enum {
    PIMHW_I_RESULT = PIMHW_B(RDMAC16) | PIMHW_B(RDAF16),
    PIMHW_I_READS = PIMHW_B(RD) | PIMHW_I_RESULT,
    PIMHW_I_BANK_READS = PIMHW_B(RD) | PIMHW_B(MAC) | PIMHW_B(RDCP),
    PIMHW_I_ALL_READS = PIMHW_I_BANK_READS | PIMHW_B(MAC16) | PIMHW_I_RESULT,
    PIMHW_I_READS_L = PIMHW_I_ALL_READS | PIMHW_B(EWMUL16), /* those that know tCCD_L */
    PIMHW_I_BUS_WRITES = PIMHW_B(WR) | PIMHW_B(WRA16) | PIMHW_B(WRGB) | PIMHW_B(WRMAC16),
    PIMHW_I_BANK_WRITES = PIMHW_B(WR) | PIMHW_B(WRCP),
    PIMHW_I_WRITES_L = PIMHW_I_BANK_WRITES | PIMHW_B(WRA16) | PIMHW_B(WRMAC16) | PIMHW_B(EWMUL16),
    PIMHW_I_OPENS = PIMHW_B(ACT) | PIMHW_B(ACT16),
    PIMHW_I_CLOSES = PIMHW_B(PRE) | PIMHW_B(PREA),
    PIMHW_I_ANY = PIMHW_B(WRCP) * 2 - 1,
    /* what on units uses the bank, column, tile or output of its event */
    PIMHW_I_BANK_USES = PIMHW_I_BANK_READS | PIMHW_I_BANK_WRITES,
    PIMHW_I_COLUMN_USES = PIMHW_I_BANK_USES | PIMHW_B(MAC16) | PIMHW_B(EWMUL16) | PIMHW_B(WRA16),
    PIMHW_I_TILE_USES =
        PIMHW_B(WRGB) | PIMHW_B(MAC16) | PIMHW_B(MAC) | PIMHW_B(RDCP) | PIMHW_B(WRCP),
    PIMHW_I_OUT_USES = PIMHW_B(AF16) | PIMHW_B(RDAF16) | PIMHW_B(MAC16) | PIMHW_B(MAC) |
                       PIMHW_B(WRMAC16) | PIMHW_B(RDMAC16)
};

/* t(next) >= t(last) + clocks; reason: what the wait counts as where this row sets the clock. */
typedef struct pimhw_i_constraint {
    uint8_t level;
    uint8_t reason; /* pimhw_spent */
    uint32_t last, next;
    char clocks[36];
} pimhw_i_constraint;

/* [AIMSIM] */
/* clang-format off */
#define PIMHW_R(level, reason, last, next, clocks) \
    {PIMHW_I_##level, PIMHW_WAIT_##reason, last, next, clocks}

static const pimhw_i_constraint PIMHW_I_CONSTRAINTS[] = {
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_READS, PIMHW_I_READS, "tBL"),
    PIMHW_R(CHANNEL, INPUT, PIMHW_I_BUS_WRITES, PIMHW_I_BUS_WRITES, "tBL"),
    PIMHW_R(CHANNEL, OPERAND, PIMHW_I_ALL_READS & ~PIMHW_I_RESULT, PIMHW_I_ALL_READS, "tCCD_S"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_RESULT, PIMHW_I_ALL_READS, "tCCD_S"),
    PIMHW_R(CHANNEL, INPUT, PIMHW_I_BUS_WRITES | PIMHW_B(WRCP), PIMHW_I_BUS_WRITES | PIMHW_B(WRCP),
            "tCCD_S"),
    PIMHW_R(GROUP, OPERAND, PIMHW_I_READS_L & ~PIMHW_I_RESULT, PIMHW_I_READS_L, "tCCD_L"),
    PIMHW_R(CHANNEL, OPERAND, PIMHW_B(MAC16), PIMHW_B(MAC16), "tCCD_MAC"),
    PIMHW_R(CHANNEL, OPERAND, PIMHW_B(MAC16), PIMHW_B(WRGB), "tMTW"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_RESULT, PIMHW_I_READS_L, "tCCD_L"),
    PIMHW_R(GROUP, INPUT, PIMHW_I_WRITES_L, PIMHW_I_WRITES_L, "tCCD_L"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_B(RD), PIMHW_B(WR) | PIMHW_B(WRA16), "tCL+tBL+3-tCWL+tWPRE"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_B(RD), PIMHW_B(WRGB), "tCL+tBL+3-tCWL_GB+tWPRE"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_B(RD), PIMHW_B(WRMAC16), "tCL+tBL+3-tCWL_REG+tWPRE"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_RESULT, PIMHW_B(WR) | PIMHW_B(WRA16),
            "tCL_REG+tBL+3-tCWL+tWPRE"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_RESULT, PIMHW_B(WRGB), "tCL_REG+tBL+3-tCWL_GB+tWPRE"),
    PIMHW_R(CHANNEL, OUTPUT, PIMHW_I_RESULT, PIMHW_B(WRMAC16), "tCL_REG+tBL+3-tCWL_REG+tWPRE"),
    PIMHW_R(CHANNEL, INPUT, PIMHW_B(WR), PIMHW_B(RD), "tCWL+tBL+tWTR_S"),
    PIMHW_R(GROUP, INPUT, PIMHW_B(WR) | PIMHW_B(WRA16), PIMHW_I_READS, "tCWL+tBL+tWTR_L"),
    PIMHW_R(CHANNEL, INPUT, PIMHW_B(WRGB), PIMHW_I_READS, "tCWL_GB+tBL+tWTR_S"),
    PIMHW_R(CHANNEL, INPUT, PIMHW_B(WRMAC16), PIMHW_I_READS, "tCWL_REG+tBL+tWTR_L"),
    PIMHW_R(BANKS, ROW, PIMHW_I_BANK_READS | PIMHW_B(MAC16) | PIMHW_B(AF16), PIMHW_I_CLOSES,
            "tRTP"),
    PIMHW_R(CHANNEL, ROW, PIMHW_B(EWMUL16), PIMHW_I_CLOSES, "tCWL+tWR"),
    PIMHW_R(BANKS, ROW, PIMHW_I_BANK_WRITES, PIMHW_I_CLOSES, "tCWL+tBL+tWR"),
    PIMHW_R(CHANNEL, ROW, PIMHW_B(ACT), PIMHW_B(ACT), "tRRD_S"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_I_OPENS, "tRC"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_I_CLOSES, "tRAS"),
    PIMHW_R(BANKS, ROW, PIMHW_I_CLOSES, PIMHW_I_OPENS | PIMHW_I_CLOSES | PIMHW_B(REF), "tRP"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_B(MAC16) | PIMHW_B(MAC), "tRCD_MAC"),
    PIMHW_R(CHANNEL, ROW, PIMHW_I_OPENS, PIMHW_B(AF16), "tRCD_AF"),
    PIMHW_R(CHANNEL, ROW, PIMHW_I_OPENS, PIMHW_B(EWMUL16), "tRCD_EWMUL"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_B(WRA16) | PIMHW_B(WR), "tRCD_WR"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_B(RDCP), "tRCD_RDCP"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_B(RD), "tRCD_RD"),
    PIMHW_R(BANKS, ROW, PIMHW_I_OPENS, PIMHW_B(WRCP), "tRCD_WRCP"),
    PIMHW_R(CHANNEL, ROW, PIMHW_B(WRA16), PIMHW_I_OPENS | PIMHW_B(REF), "tCWL+tBL+tWR+tRP"),
    PIMHW_R(CHANNEL, REFRESH, PIMHW_B(REF), PIMHW_I_ANY, "tRFC"),
    {PIMHW_I_CHANNEL, PIMHW_SPENT_MODE, PIMHW_B(TMOD), PIMHW_I_ANY & ~PIMHW_B(TMOD), "tMOD"},
    PIMHW_R(GROUP, ROW, PIMHW_B(ACT), PIMHW_B(ACT), "tRRD_L"),
};
#undef PIMHW_B
#undef PIMHW_R
/* clang-format on */

enum {
    PIMHW_I_BY_NOBODY = 0, /* structure */
    PIMHW_I_BY_HOST,       /* nothing is sent */
    PIMHW_I_BY_ALL,        /* channels, whatever the mask; no command */
    PIMHW_I_BY_CHANNELS,   /* in order, through the PIM queue */
    PIMHW_I_BY_QUEUES      /* through the ordinary read and write queues */
};

/* An instruction: its name, who takes it, the command it becomes. */
typedef struct pimhw_i_kind {
    char name[12];
    uint8_t taker;
    uint8_t command; /* pimhw_command */
    bool sized;      /* op_size columns, else one command */
    bool has_row;    /* names a row */
} pimhw_i_kind;

static const pimhw_i_kind PIMHW_I_KINDS[PIMHW_N_KINDS] = {
    {"LOOP", PIMHW_I_BY_NOBODY, 0, false, false},
    {"LIST", PIMHW_I_BY_NOBODY, 0, false, false},
    {"BLOCK", PIMHW_I_BY_NOBODY, 0, false, false},
    {"END", PIMHW_I_BY_NOBODY, 0, false, false},
    {"WR_GB", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRGB, true, false},
    {"WR_BIAS", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRMAC16, false, false},
    {"MAC_ABK", PIMHW_I_BY_CHANNELS, PIMHW_CMD_MAC16, true, true},
    {"RD_MAC", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDMAC16, false, false},
    {"MAC_SBK", PIMHW_I_BY_CHANNELS, PIMHW_CMD_MAC, true, true},
    {"EWMUL", PIMHW_I_BY_CHANNELS, PIMHW_CMD_EWMUL16, true, true},
    {"AF", PIMHW_I_BY_CHANNELS, PIMHW_CMD_AF16, false, false},
    {"RD_AF", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDAF16, false, false},
    {"COPY_BKGB", PIMHW_I_BY_CHANNELS, PIMHW_CMD_RDCP, true, true},
    {"COPY_GBBK", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRCP, true, true},
    {"WR_SBK", PIMHW_I_BY_QUEUES, PIMHW_CMD_WR, false, true},
    {"RD_SBK", PIMHW_I_BY_QUEUES, PIMHW_CMD_RD, false, true},
    {"WR_ABK", PIMHW_I_BY_CHANNELS, PIMHW_CMD_WRA16, false, true},
    {"MEM_WR", PIMHW_I_BY_QUEUES, PIMHW_CMD_WR, false, true},
    {"MEM_RD", PIMHW_I_BY_QUEUES, PIMHW_CMD_RD, false, true},
    {"EWADD", PIMHW_I_BY_HOST, 0, false, false},
    {"GPR", PIMHW_I_BY_HOST, 0, false, false},
    {"CFR", PIMHW_I_BY_HOST, 0, false, false},
    {"SYNC", PIMHW_I_BY_ALL, 0, false, false},
    {"EOC", PIMHW_I_BY_ALL, 0, false, false},
    {"EPU", PIMHW_I_BY_HOST, 0, true, false},
    {"EPU_WAIT", PIMHW_I_BY_HOST, 0, false, false},
};

PIMHW_API const char *pimhw_command_str(pimhw_command command)
{
    return (uint32_t)command < PIMHW_N_COMMANDS ? PIMHW_I_COMMANDS[command].name : "?";
}

PIMHW_API const char *pimhw_spent_str(pimhw_spent spent)
{
    static const char names[PIMHW_N_SPENT][16] = {
        "WR_INP",       "MAC",       "RD_OUT",     "ACT",         "PRE",          "mode",
        "access",       "refresh",   "wait_input", "wait_output", "wait_operand", "wait_row",
        "wait_refresh", "wait_host", "wait_epu",   "drain"};
    return (uint32_t)spent < PIMHW_N_SPENT ? names[spent] : "?";
}

PIMHW_API const char *pimhw_energy_str(pimhw_energy energy)
{
    static const char names[PIMHW_N_ENERGY][16] = {
        "row",  "mac",     "access",         "input",        "output",
        "link", "control", "active_standby", "idle_standby", "refresh"};
    return (uint32_t)energy < PIMHW_N_ENERGY ? names[energy] : "?";
}

PIMHW_API const char *pimhw_controller_str(uint32_t controller)
{
    static const char names[4][12] = {"in-order", "static", "ping-pong", "dcs"};
    return controller < 4 ? names[controller] : NULL;
}

static uint32_t pimhw_i_field_get(const pimhw_config *config, const pimhw_i_field *field)
{
    uint32_t value;
    memcpy(&value, (const char *)config + field->offset, sizeof value);
    return value;
}

static const pimhw_i_field *pimhw_i_field_find(const char *name, size_t length)
{
    for (const pimhw_i_field *f = PIMHW_I_FIELDS; f < PIMHW_I_FIELDS + PIMHW_I_N_FIELDS; f++) {
        if (f->name[0] != name[0] || f->name[1] != name[1]) continue; /* most, without a call */
        if (strncmp(f->name, name, length) == 0 && !f->name[length]) return f;
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
        const pimhw_i_field *field = pimhw_i_field_find(sum, n);
        PIMHW_ASSERT(field || (*sum >= '0' && *sum <= '9'));
        uint64_t value = field ? pimhw_i_field_get(config, field) : strtoul(sum, NULL, 10);
        total += sign * (int64_t)value;
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
    for (size_t i = 0; p >= 0 && f && i < sizeof PIMHW_I_SOURCES / sizeof PIMHW_I_SOURCES[0]; i++)
        if (PIMHW_I_SOURCES[i].letter == f->source[p]) return PIMHW_I_SOURCES[i].key;
    return NULL;
}

PIMHW_API pimhw_status pimhw_config_init(pimhw_config *config, const char *preset, pimhw_cause *why)
{
    int p = pimhw_i_preset_find(preset);
    if (!config) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    if (p < 0) {
        pimhw_cause names = {{0}}, some;
        for (int i = 0; i < PIMHW_I_N_PRESETS; i++) {
            some = names;
            pimhw_cause_write(&names, i ? "%s, %s" : "%s%s", some.text, PIMHW_I_PRESETS[i]);
        }
        return PIMHW_I_FAIL(why, PIMHW_ERR_NAME, "preset \"%s\" is none of %s",
                            preset ? preset : "(null)", names.text);
    }
    memset(config, 0, sizeof *config);
    memcpy(config->preset, PIMHW_I_PRESETS[p], sizeof PIMHW_I_PRESETS[p]);
    for (const pimhw_i_field *f = PIMHW_I_FIELDS; f < PIMHW_I_FIELDS + PIMHW_I_N_FIELDS; f++)
        memcpy((char *)config + f->offset, &f->value[p], sizeof f->value[p]);
    config->allocator = pimhw_allocator_default();
    return PIMHW_OK;
}

/* Letters of the longer word that two do not share at their begin and end. */
static uint32_t pimhw_i_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = n < m ? n : m, head = 0, tail = 0;
    while (head < least && (a[head] | 32) == (b[head] | 32))
        head++;
    if (head == n) return 0; /* b goes on from a, in whatever case */
    while (tail < least - head && a[n - 1 - tail] == b[m - 1 - tail])
        tail++;
    return (uint32_t)((n > m ? n : m) - head - tail);
}

/* A field by its name; NULL: there is none, the cause says which names are nearest. */
static const pimhw_i_field *pimhw_i_field_named(const char *name, pimhw_cause *why)
{
    const pimhw_i_field *f = name ? pimhw_i_field_find(name, strlen(name)) : NULL;
    const char *nearest[3] = {NULL, NULL, NULL};
    if (!name) pimhw_cause_write(why, PIMHW_I_NULL);
    if (f || !name) return f;
    for (size_t i = 0; i < 3 * PIMHW_I_N_FIELDS; i++) {
        const char *field = PIMHW_I_FIELDS[i % PIMHW_I_N_FIELDS].name;
        const char **best = &nearest[i / PIMHW_I_N_FIELDS];
        if (field == nearest[0] || field == nearest[1]) continue;
        if (!*best || pimhw_i_distance(name, field) < pimhw_i_distance(name, *best)) *best = field;
    }
    pimhw_cause_write(why, "no field \"%s\" in a device; the nearest are %s, %s and %s", name,
                      nearest[0], nearest[1], nearest[2]);
    return NULL;
}

PIMHW_API pimhw_status pimhw_config_set(pimhw_config *config, const char *field, uint32_t value,
                                        pimhw_cause *why)
{
    if (!config) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    const pimhw_i_field *f = pimhw_i_field_named(field, why);
    if (!f) return PIMHW_ERR_NAME;
    memcpy((char *)config + f->offset, &value, sizeof value);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_config_get(const pimhw_config *config, const char *field,
                                        uint32_t *value, pimhw_cause *why)
{
    if (!config || !value) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
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

PIMHW_API uint32_t pimhw_config_in_region(const pimhw_config *config)
{
    bool halves = config->controller == PIMHW_PING_PONG && !config->extra_region;
    return halves ? config->in_entries / 2 : config->in_entries;
}

PIMHW_API uint32_t pimhw_config_outs(const pimhw_config *config)
{
    return config->controller == PIMHW_DCS ? config->obuf : config->out_entries;
}

/* What must not be more than what; the last two with refresh, the last under gaps. */
static const struct {
    char less[108], more[8];
} PIMHW_I_ORDER[] = {
    {"tRCD_RD", "tRAS"}, /* else no row is ever read */
    {"tRCD_WR", "tRAS"},
    {"tRAS", "tRC"},
    {"tCCD_S", "tCCD_L"},
    {"tRRD_S", "tRRD_L"},
    {"tWTR_S", "tWTR_L"},
    /* rows that refresh closes are open again, and read in either mode, before the next refresh */
    {"tRFC+tRC+tRAS+tRP+tRRD_S+tRRD_L+tRTP+tCL+tWR+tMOD+tMOD+tRCD_MAC+tRCD_AF+tRCD_EWMUL+"
     "tRCD_RDCP+tRCD_WRCP+1",
     "tREFI"},
    {"tWR_INP+tMAC+tRD_OUT+1", "tREFI"},
};

PIMHW_API pimhw_status pimhw_config_check(const pimhw_config *c, pimhw_cause *why)
{
    if (!c) return PIMHW_I_WRONG(why, "config is NULL");
    bool flash = c->flash_page_bytes != 0;
    for (const pimhw_i_field *f = PIMHW_I_FIELDS; f < PIMHW_I_FIELDS + PIMHW_I_N_FIELDS; f++) {
        uint64_t value = pimhw_i_field_get(c, f);
        if (!f->source[flash ? PIMHW_I_FLASH : 0]) {
            if (value == 0) continue;
            return PIMHW_I_UNFIT(why, "%s is %u, but %s (flash_page_bytes is %u) has none", f->name,
                                 value, flash ? "flash" : "a DRAM", (uint64_t)c->flash_page_bytes);
        }
        if (value < f->least || value > f->most)
            return PIMHW_I_UNFIT(why, "%s is %u, not %u to %u", f->name, value, (uint64_t)f->least,
                                 (uint64_t)f->most);
    }
    if (!c->allocator.alloc != !c->allocator.release)
        return PIMHW_I_UNFIT(why, "allocator has only one of alloc and release");
    if (c->column_bytes % c->element_bytes)
        return PIMHW_I_UNFIT(why, "column_bytes %u, element_bytes %u: not a multiple",
                             (uint64_t)c->column_bytes, (uint64_t)c->element_bytes);
    if (flash) return PIMHW_OK;
    /* what only banks can contradict */
    size_t without = !c->refresh ? 2 : c->controller == PIMHW_IN_ORDER; /* of PIMHW_I_ORDER */
    uint64_t banks = (uint64_t)c->n_bank_groups * c->n_group_banks;
    if (banks > PIMHW_MAX_BANKS)
        return PIMHW_I_UNFIT(why, "n_bank_groups * n_group_banks is %u, not 1 to %u", banks,
                             (uint64_t)PIMHW_MAX_BANKS);
    if (c->row_bytes % c->column_bytes)
        return PIMHW_I_UNFIT(why, "row_bytes %u, column_bytes %u: not a multiple",
                             (uint64_t)c->row_bytes, (uint64_t)c->column_bytes);
    if (banks % c->n_ranks)
        return PIMHW_I_UNFIT(why, "%u banks do not fill n_ranks %u", banks, (uint64_t)c->n_ranks);
    if (c->out_bits != 16 && c->out_bits != 32)
        return PIMHW_I_UNFIT(why, "out_bits is %u, not 16 or 32", (uint64_t)c->out_bits);
    if (pimhw_config_in_region(c) == 0)
        return PIMHW_I_UNFIT(why, "in_entries is 1: ping-pong without extra_region halves it");
    if (c->controller == PIMHW_PING_PONG && c->out_entries < 2)
        return PIMHW_I_UNFIT(why, "out_entries is 1: ping-pong halves it");
    for (size_t i = 0; i + without < sizeof PIMHW_I_ORDER / sizeof PIMHW_I_ORDER[0]; i++) {
        const char *less = PIMHW_I_ORDER[i].less, *more = PIMHW_I_ORDER[i].more;
        uint64_t a = pimhw_i_sum(c, less), b = pimhw_i_sum(c, more);
        if (a > b) return PIMHW_I_UNFIT(why, "%s, %u, is more than %s, %u", less, a, more, b);
    }
    return PIMHW_OK;
}

/* That a description is right, and of a device that takes programs. */
static pimhw_status pimhw_i_config_dram(const pimhw_config *config, pimhw_cause *why)
{
    PIMHW_I_TRY(pimhw_config_check(config, why));
    if (!config->flash_page_bytes) return PIMHW_OK;
    return PIMHW_I_UNFIT(why, "flash_page_bytes is %u: flash has no banks and takes no programs",
                         (uint64_t)config->flash_page_bytes);
}

/* Rounds of all dies; the last round's pages go last, or first where cells come after. */
static uint64_t pimhw_i_flash_ps(const pimhw_config *c, uint64_t n_pages, uint64_t cells_ns)
{
    if (!c || !c->flash_page_bytes || !c->flash_dies || !c->flash_MBps || n_pages == 0) return 0;
    uint64_t cells = cells_ns * 1000, dies = c->flash_dies;
    uint64_t page = ((uint64_t)c->flash_page_bytes * 1000000 + c->flash_MBps / 2) / c->flash_MBps;
    uint64_t rounds = (n_pages - 1) / dies, last = n_pages - rounds * dies;
    uint64_t round = pimhw_i_max(pimhw_i_max(cells, page * dies), 1), once = cells + last * page;
    return rounds > (UINT64_MAX - once) / round ? UINT64_MAX : rounds * round + once;
}

PIMHW_API uint64_t pimhw_flash_read_ps(const pimhw_config *config, uint64_t n_pages)
{
    return pimhw_i_flash_ps(config, n_pages, config ? config->flash_tR_ns : 0);
}

PIMHW_API uint64_t pimhw_flash_write_ps(const pimhw_config *config, uint64_t n_pages)
{
    return pimhw_i_flash_ps(config, n_pages, config ? config->flash_tPROG_ns : 0);
}

/* ==========================================================================
 * [H10] MAPPING: physical address to place in the DRAM and back.
 *       Knows geometry only; never stored data.
 * ========================================================================== */

enum {
    PIMHW_I_CHANNEL_OF = 0,
    PIMHW_I_RANK_OF,
    PIMHW_I_BANK_OF,
    PIMHW_I_ROW_OF,
    PIMHW_I_COLUMN_OF,
    PIMHW_I_BYTE_OF,
    PIMHW_I_N_PLACES, /* the fields of pimhw_da, in its order */
    PIMHW_I_DIGITS = 10
};

/* A mapping writes an address as digits of mixed radix. pa / step % n is a digit, and counts weight
 * in its field of the place. Where all n are powers of two it permutes bits. */
typedef struct pimhw_i_digit {
    uint32_t place, weight;
    uint64_t n, step;
} pimhw_i_digit;

typedef struct pimhw_i_map {
    uint32_t run; /* so many columns from 0 on lie side by side */
    uint32_t n_digits;
    pimhw_i_digit digits[PIMHW_I_DIGITS];
} pimhw_i_map;

/* What a field of a place adds to the address. */
static uint64_t pimhw_i_map_step(const pimhw_i_map *map, uint32_t place, uint32_t value)
{
    uint64_t pa = 0;
    for (uint32_t i = 0; i < map->n_digits; i++) {
        const pimhw_i_digit *d = &map->digits[i];
        if (d->place == place) pa += value / d->weight % d->n * d->step;
    }
    return pa;
}

static uint64_t pimhw_i_stripe_bytes(const pimhw_geometry *g)
{
    return (uint64_t)g->n_channels * g->n_ranks * g->n_banks * g->row_bytes;
}

static const struct {
    char name[16];
    uint32_t offset, most;
} PIMHW_I_SIZES[] = {
    {"n_channels", offsetof(pimhw_geometry, n_channels), 1u << 10},
    {"n_ranks", offsetof(pimhw_geometry, n_ranks), 1u << 10},
    {"n_banks", offsetof(pimhw_geometry, n_banks), 1u << 10},
    {"row_bytes", offsetof(pimhw_geometry, row_bytes), 1u << 20},
    {"transfer_bytes", offsetof(pimhw_geometry, transfer_bytes), 1u << 10},
    {"chunk_rows", offsetof(pimhw_geometry, chunk_rows), 1u << 10},
    {"chunk_bytes", offsetof(pimhw_geometry, chunk_bytes), 1u << 20},
    {"n_rows", offsetof(pimhw_geometry, n_rows), 1u << 28}, /* the only one of any size */
};

/* Sizes as every mapping needs them, or as MapIDs do. */
static pimhw_status pimhw_i_geometry_check(const pimhw_geometry *g, bool powers, pimhw_cause *why)
{
    const size_t n = sizeof PIMHW_I_SIZES / sizeof PIMHW_I_SIZES[0];
    if (!g) return PIMHW_I_WRONG(why, "geometry is NULL");
    for (size_t i = 0; i < n; i++) {
        const char *name = PIMHW_I_SIZES[i].name;
        uint64_t most = PIMHW_I_SIZES[i].most;
        uint32_t size;
        memcpy(&size, (const char *)g + PIMHW_I_SIZES[i].offset, sizeof size);
        if (size == 0 || size > most)
            return PIMHW_I_UNFIT(why, "%s is %u, not 1 to %u", name, (uint64_t)size, most);
        if (powers && i + 1 < n && (size & (size - 1)))
            return PIMHW_I_UNFIT(why, "%s is %u, not a power of two", name, (uint64_t)size);
    }
    uint64_t stripe = pimhw_i_stripe_bytes(g), chunk = (uint64_t)g->chunk_rows * g->chunk_bytes;
    if (pimhw_i_times(stripe, g->n_rows) >> 63)
        return PIMHW_I_UNFIT(why, "n_rows %u of %u bytes in all banks are 2^63 or more",
                             (uint64_t)g->n_rows, stripe);
    if (g->row_bytes % g->transfer_bytes != 0)
        return PIMHW_I_UNFIT(why, "row_bytes %u is not a multiple of transfer_bytes %u",
                             (uint64_t)g->row_bytes, (uint64_t)g->transfer_bytes);
    if (g->page_bytes < stripe || g->page_bytes % stripe != 0 ||
        (powers && (g->page_bytes & (g->page_bytes - 1))))
        return PIMHW_I_UNFIT(why, "page_bytes %u does not hold whole rows of all banks, %u",
                             g->page_bytes, stripe);
    if (powers && (g->chunk_bytes < g->transfer_bytes || chunk > g->row_bytes))
        return PIMHW_I_UNFIT(why,
                             "chunk_rows * chunk_bytes %u exceeds row_bytes %u, or "
                             "chunk_bytes is less than a transfer",
                             chunk, (uint64_t)g->row_bytes);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_geometry_init(pimhw_geometry *g, const pimhw_config *config,
                                           pimhw_chunk chunk, pimhw_cause *why)
{
    if (!g) return PIMHW_I_WRONG(why, "geometry is NULL");
    if ((uint32_t)chunk > PIMHW_CHUNK_HBM_PIM)
        return PIMHW_I_WRONG(why, "chunk is %u, not 0 or 1", (uint64_t)chunk);
    PIMHW_I_TRY(pimhw_i_config_dram(config, why));
    g->n_channels = config->n_channels;
    g->n_ranks = config->n_ranks;
    g->n_banks = pimhw_config_banks(config) / config->n_ranks;
    g->n_rows = config->n_rows;
    g->row_bytes = config->row_bytes;
    g->transfer_bytes = config->column_bytes;
    g->chunk_rows = chunk == PIMHW_CHUNK_AIM ? 1 : 8;
    g->chunk_bytes = chunk == PIMHW_CHUNK_AIM ? config->row_bytes : 8 * config->column_bytes;
    uint64_t stripe = pimhw_i_stripe_bytes(g);
    g->page_bytes = stripe * pimhw_i_max(1, (1u << 21) / stripe);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_map_ids(const pimhw_geometry *g, uint32_t *bound, uint32_t *last,
                                     pimhw_cause *why)
{
    PIMHW_I_TRY(pimhw_i_geometry_check(g, true, why));
    uint64_t per_bank = g->page_bytes / (pimhw_i_stripe_bytes(g) / g->row_bytes);
    uint32_t bits = pimhw_i_highest(per_bank / g->chunk_rows / g->chunk_bytes);
    if (bound) *bound = pimhw_i_highest(per_bank / g->transfer_bytes);
    if (last) *last = (uint32_t)pimhw_i_min(bits, PIMHW_MAP_LAST);
    return PIMHW_OK;
}

/* If the geometry has this MapID. Bits left over are columns first, then rows [FACIL IV-B]. */
static pimhw_status pimhw_i_map_build(pimhw_i_map *map, const pimhw_geometry *g, uint32_t map_id,
                                      pimhw_cause *why)
{
    bool host = map_id == PIMHW_MAP_HOST, facil = !host && map_id != PIMHW_MAP_ROWS;
    uint32_t last = 0;
    PIMHW_I_TRY(facil ? pimhw_map_ids(g, NULL, &last, why) : pimhw_i_geometry_check(g, false, why));
    if (facil && map_id > last)
        return PIMHW_I_WRONG(why, "map_id is %u, not 0 to %u, %u or %u", (uint64_t)map_id,
                             (uint64_t)last, (uint64_t)PIMHW_MAP_ROWS, (uint64_t)PIMHW_MAP_HOST);
    uint32_t columns = g->row_bytes / g->transfer_bytes, between = 1, rows = 1;
    uint32_t low = host ? 1 : columns, chunk = low;
    if (facil) {
        low = g->chunk_bytes / g->transfer_bytes;
        chunk = low * g->chunk_rows;
        between = (uint32_t)pimhw_i_min(columns / chunk, (uint64_t)1 << map_id);
        rows = (1u << map_id) / between;
    }
    const pimhw_i_digit digits[] = {
        {PIMHW_I_BYTE_OF, 1, g->transfer_bytes, 0},
        {PIMHW_I_COLUMN_OF, 1, low, 0},
        {PIMHW_I_COLUMN_OF, chunk, between, 0},
        {PIMHW_I_ROW_OF, 1, rows, 0},
        {PIMHW_I_COLUMN_OF, low, chunk / low, 0},
        {PIMHW_I_CHANNEL_OF, 1, g->n_channels, 0},
        {PIMHW_I_RANK_OF, 1, host ? 1 : g->n_ranks, 0},
        {PIMHW_I_BANK_OF, 1, g->n_banks, 0},
        {PIMHW_I_COLUMN_OF, chunk * between, columns / chunk / between, 0},
        {PIMHW_I_RANK_OF, 1, host ? g->n_ranks : 1, 0},
        {PIMHW_I_ROW_OF, rows, UINT64_MAX, 0},
    };
    uint64_t step = 1;
    map->run = low;
    map->n_digits = 0;
    for (size_t i = 0; i < sizeof digits / sizeof digits[0]; i++) {
        if (digits[i].n == 1) continue;
        map->digits[map->n_digits] = digits[i];
        map->digits[map->n_digits++].step = step;
        step *= digits[i].n;
    }
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_map_select(pimhw_placement *placement, const pimhw_geometry *g,
                                        uint64_t rows, uint64_t columns, uint32_t element_bytes,
                                        pimhw_cause *why)
{
    uint32_t last = 0;
    if (!placement) return PIMHW_I_WRONG(why, "placement is NULL");
    PIMHW_I_TRY(pimhw_map_ids(g, NULL, &last, why));
    uint64_t e = element_bytes, shares = (uint64_t)g->n_channels * g->n_ranks;
    uint64_t per_bank = g->page_bytes / shares / g->n_banks;
    if (e == 0 || (e & (e - 1)) || e > g->transfer_bytes)
        return PIMHW_I_WRONG(why, "element_bytes is %u, not a power of two up to %u", e,
                             (uint64_t)g->transfer_bytes);
    if (rows == 0) return PIMHW_I_WRONG(why, "rows is 0");
    uint64_t most = per_bank * shares / e;
    if (columns == 0 || columns > most)
        return PIMHW_I_WRONG(why,
                             "columns is %u, not 1 to %u, what one bank of every rank "
                             "has in a page",
                             columns, most);
    uint64_t padded = columns == 1 ? 1 : (uint64_t)2 << pimhw_i_highest(columns - 1);
    uint64_t stride = pimhw_i_max(padded * e, g->chunk_bytes);
    uint64_t page_rows = g->page_bytes / stride, n_pages = pimhw_i_ceil_div(rows, page_rows);
    bool whole = stride * g->chunk_rows <= per_bank;
    uint64_t between = whole ? stride : per_bank / g->chunk_rows;
    uint32_t map_id = pimhw_i_highest(between / g->chunk_bytes);
    if (map_id > last)
        return PIMHW_I_WRONG(why, "columns is %u: of MapID %u, beyond the last, %u", columns,
                             (uint64_t)map_id, (uint64_t)last);
    if (n_pages > UINT64_MAX / g->page_bytes)
        return PIMHW_I_WRONG(why, "rows is %u: more bytes than 64 bits address", rows);
    placement->map_id = map_id;
    placement->n_parts = whole ? 1 : (uint32_t)pimhw_i_ceil_div(stride, per_bank);
    placement->chunk_rows = whole ? g->chunk_rows : (uint32_t)pimhw_i_max(1, per_bank / stride);
    placement->stride_bytes = stride;
    placement->page_rows = page_rows;
    placement->n_pages = n_pages;
    placement->bytes = n_pages * g->page_bytes;
    return PIMHW_OK;
}

static pimhw_status pimhw_i_da_check(const pimhw_geometry *g, const pimhw_da *da, pimhw_cause *why)
{
    static const char names[PIMHW_I_N_PLACES][8] = {"channel", "rank",   "bank",
                                                    "row",     "column", "byte"};
    if (!da) return PIMHW_I_WRONG(why, "da is NULL");
    const uint32_t below[PIMHW_I_N_PLACES] = {
        g->n_channels,    g->n_ranks, g->n_banks, g->n_rows, g->row_bytes / g->transfer_bytes,
        g->transfer_bytes};
    uint32_t at[PIMHW_I_N_PLACES];
    memcpy(at, da, sizeof at);
    for (uint32_t i = 0; i < PIMHW_I_N_PLACES; i++)
        if (at[i] >= below[i])
            return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS, "%s %u is not below %u", names[i],
                                (uint64_t)at[i], (uint64_t)below[i]);
    return PIMHW_OK;
}

static pimhw_status pimhw_i_pa_check(const pimhw_geometry *g, uint64_t pa, pimhw_cause *why)
{
    uint64_t below = g->n_rows * pimhw_i_stripe_bytes(g);
    if (pa < below) return PIMHW_OK;
    return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS, "physical address %u is not below %u", pa, below);
}

PIMHW_API pimhw_status pimhw_map_da(pimhw_da *da, const pimhw_geometry *geometry, uint32_t map_id,
                                    uint64_t pa, pimhw_cause *why)
{
    pimhw_i_map map;
    uint32_t at[PIMHW_I_N_PLACES] = {0};
    PIMHW_I_TRY(pimhw_i_map_build(&map, geometry, map_id, why));
    if (!da) return PIMHW_I_WRONG(why, "da is NULL");
    PIMHW_I_TRY(pimhw_i_pa_check(geometry, pa, why));
    for (uint32_t i = 0; i < map.n_digits; i++) {
        const pimhw_i_digit *d = &map.digits[i];
        at[d->place] += (uint32_t)(pa / d->step % d->n) * d->weight;
    }
    pimhw_da place;
    memcpy(&place, at, sizeof at);                        /* the same order */
    PIMHW_I_TRY(pimhw_i_da_check(geometry, &place, why)); /* the last page may be short of rows */
    *da = place;
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_map_pa(uint64_t *pa, const pimhw_geometry *geometry, uint32_t map_id,
                                    const pimhw_da *da, pimhw_cause *why)
{
    pimhw_i_map map;
    if (!pa) return PIMHW_I_WRONG(why, "pa is NULL");
    PIMHW_I_TRY(pimhw_i_map_build(&map, geometry, map_id, why));
    PIMHW_I_TRY(pimhw_i_da_check(geometry, da, why));
    uint32_t at[PIMHW_I_N_PLACES];
    memcpy(at, da, sizeof at);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < PIMHW_I_N_PLACES; i++)
        sum += pimhw_i_map_step(&map, i, at[i]);
    PIMHW_I_TRY(pimhw_i_pa_check(geometry, sum, why));
    *pa = sum;
    return PIMHW_OK;
}

/* ==========================================================================
 * [H11] CELLS: the bytes in the banks, a page at a time.
 *       Knows no clocks.
 * ========================================================================== */

typedef struct pimhw_i_page {
    uint8_t *bytes; /* NULL: absent, all zeros */
    uint32_t n_run; /* pages of the allocation, at its first one */
    bool given;     /* by pimhw_alloc; else somebody wrote to it */
    uint8_t map_id; /* if it is given; else its columns are a run, as those of absent pages */
} pimhw_i_page;

struct pimhw_memory {
    pimhw_geometry geometry;
    pimhw_allocator allocator;
    uint64_t n_pages;
    uint64_t n_taken; /* pages that have bytes */
    uint32_t page_rows;
    size_t bytes;        /* of this struct, the table and the zeros */
    pimhw_i_page *pages; /* [n_pages]; the last may be short of rows */
    uint8_t *zeros;      /* [row_bytes] */
    pimhw_i_map maps[PIMHW_N_MAPS];
};

typedef struct pimhw_i_row {
    uint8_t *bytes; /* of bank 0, column 0; zeros of an absent page, not to be written */
    size_t rank_step, bank_step;
    const pimhw_geometry *geometry;
    const pimhw_i_map *map;
} pimhw_i_row;

/* Address of a column of a bank; the next run columns, if it is a multiple of run, follow it. */
static uint8_t *pimhw_i_row_at(const pimhw_i_row *row, uint32_t bank, uint32_t column)
{
    uint32_t n = row->geometry->n_banks; /* of a rank */
    uint8_t *at = row->bytes + bank / n * row->rank_step + bank % n * row->bank_step;
    if (column < row->map->run) return at + (size_t)column * row->geometry->transfer_bytes;
    return at + (size_t)pimhw_i_map_step(row->map, PIMHW_I_COLUMN_OF, column);
}

PIMHW_API pimhw_status pimhw_memory_create(pimhw_memory **memory, const pimhw_config *config,
                                           pimhw_chunk chunk, pimhw_cause *why)
{
    pimhw_geometry g = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    if (!memory) return PIMHW_I_WRONG(why, "memory is NULL");
    *memory = NULL;
    PIMHW_I_TRY(pimhw_geometry_init(&g, config, chunk, why));
    pimhw_allocator a = config->allocator;
    if (!a.alloc) a = pimhw_allocator_default();
    uint32_t page_rows = (uint32_t)(g.page_bytes / pimhw_i_stripe_bytes(&g));
    uint64_t n_pages = pimhw_i_ceil_div(g.n_rows, page_rows);
    uint64_t bytes = sizeof(pimhw_memory) + n_pages * sizeof(pimhw_i_page) + g.row_bytes;
    void *raw = bytes <= SIZE_MAX ? a.alloc(a.user, (size_t)bytes, 64) : NULL;
    if (!raw)
        return PIMHW_I_FAIL(why, PIMHW_ERR_MEMORY, "no %u bytes for a table of %u pages", bytes,
                            n_pages);
    memset(raw, 0, (size_t)bytes);
    pimhw_memory *m = (pimhw_memory *)raw;
    m->geometry = g;
    m->allocator = a;
    m->n_pages = n_pages;
    m->page_rows = page_rows;
    m->bytes = (size_t)bytes;
    m->pages = (pimhw_i_page *)(void *)(m + 1);
    m->zeros = (uint8_t *)(m->pages + n_pages);
    for (uint32_t id = 0; id < PIMHW_N_MAPS; id++)
        (void)pimhw_i_map_build(&m->maps[id], &g, id, NULL); /* where there is one */
    *memory = m;
    return PIMHW_OK;
}

PIMHW_API const pimhw_geometry *pimhw_memory_geometry(const pimhw_memory *memory)
{
    return &memory->geometry;
}

PIMHW_API uint64_t pimhw_memory_bytes(const pimhw_memory *memory)
{
    return memory->bytes + memory->n_taken * memory->geometry.page_bytes;
}

/* Gives up the pages of an allocation, or one that was written. */
static void pimhw_i_pages_release(pimhw_memory *m, uint64_t first)
{
    uint8_t *bytes = m->pages[first].bytes;
    uint32_t n = (uint32_t)pimhw_i_max(1, m->pages[first].n_run);
    size_t page_bytes = (size_t)m->geometry.page_bytes, at = 0;
    m->allocator.release(m->allocator.user, bytes, n * page_bytes);
    m->n_taken -= n;
    for (uint64_t i = first; at < n * page_bytes; i++) {
        if (m->pages[i].bytes != bytes + at) continue;
        memset(&m->pages[i], 0, sizeof m->pages[i]);
        at += page_bytes;
    }
}

PIMHW_API void pimhw_memory_destroy(pimhw_memory *memory)
{
    if (!memory) return;
    for (uint64_t i = 0; i < memory->n_pages; i++)
        if (memory->pages[i].bytes) pimhw_i_pages_release(memory, i);
    memory->allocator.release(memory->allocator.user, memory, memory->bytes);
}

static uint8_t *pimhw_i_pages_take(pimhw_memory *m, uint64_t n, pimhw_cause *why)
{
    void *bytes = NULL;
    if (n <= SIZE_MAX / m->geometry.page_bytes)
        bytes = m->allocator.alloc(m->allocator.user, (size_t)(n * m->geometry.page_bytes), 64);
    if (!bytes) {
        pimhw_cause_write(why, "no memory for %u pages of %u bytes", n, m->geometry.page_bytes);
        return NULL;
    }
    memset(bytes, 0, (size_t)(n * m->geometry.page_bytes));
    m->n_taken += n;
    return (uint8_t *)bytes;
}

/* A row; where writer is set, which is the memory then, its page is taken if it is absent. */
static pimhw_status pimhw_i_row_open(const pimhw_memory *m, pimhw_memory *writer, pimhw_i_row *row,
                                     uint32_t channel, uint32_t number, pimhw_cause *why)
{
    pimhw_i_page *page = &m->pages[number / m->page_rows];
    if (writer && !page->bytes) page->bytes = pimhw_i_pages_take(writer, 1, why);
    if (writer && !page->bytes) return PIMHW_ERR_MEMORY;
    row->geometry = &m->geometry;
    row->map = &m->maps[page->given ? page->map_id : (uint32_t)PIMHW_MAP_ROWS];
    row->rank_step = page->bytes ? (size_t)pimhw_i_map_step(row->map, PIMHW_I_RANK_OF, 1) : 0;
    row->bank_step = page->bytes ? (size_t)pimhw_i_map_step(row->map, PIMHW_I_BANK_OF, 1) : 0;
    row->bytes = m->zeros;
    if (page->bytes)
        row->bytes = page->bytes + pimhw_i_map_step(row->map, PIMHW_I_CHANNEL_OF, channel) +
                     pimhw_i_map_step(row->map, PIMHW_I_ROW_OF, number % m->page_rows);
    return PIMHW_OK;
}

/* Moves n bytes from a place on, out of the row or, where writer is set, into it. */
static pimhw_status pimhw_i_bytes_move(const pimhw_memory *m, pimhw_memory *writer,
                                       const pimhw_da *da, void *out, const void *in, uint32_t n,
                                       pimhw_cause *why)
{
    pimhw_i_row row;
    if (!m || (!out && !in)) return PIMHW_I_WRONG(why, "%s is NULL", m ? "bytes" : "memory");
    const pimhw_geometry *g = &m->geometry;
    PIMHW_I_TRY(pimhw_i_da_check(g, da, why));
    if (n == 0) return PIMHW_OK;
    uint32_t byte = da->byte, column = da->column, bank = da->rank * g->n_banks + da->bank;
    uint64_t end = (uint64_t)column * g->transfer_bytes + byte + n;
    if (end > g->row_bytes)
        return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS, "byte %u of row %u, which has %u", end - 1,
                            (uint64_t)da->row, (uint64_t)g->row_bytes);
    PIMHW_I_TRY(pimhw_i_row_open(m, writer, &row, da->channel, da->row, why));
    for (uint32_t i = 0, k; i < n; i += k, column++, byte = 0) {
        uint8_t *at = pimhw_i_row_at(&row, bank, column) + byte;
        k = (uint32_t)pimhw_i_min(n - i, g->transfer_bytes - byte);
        memcpy(writer ? at : (uint8_t *)out + i, writer ? (const uint8_t *)in + i : at, k);
    }
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_memory_read(const pimhw_memory *memory, void *bytes,
                                         const pimhw_da *from, uint32_t n_bytes, pimhw_cause *why)
{
    return pimhw_i_bytes_move(memory, NULL, from, bytes, NULL, n_bytes, why);
}

PIMHW_API pimhw_status pimhw_memory_write(pimhw_memory *memory, const pimhw_da *to,
                                          const void *bytes, uint32_t n_bytes, pimhw_cause *why)
{
    return pimhw_i_bytes_move(memory, memory, to, NULL, bytes, n_bytes, why);
}

PIMHW_API pimhw_status pimhw_alloc(pimhw_memory *m, void **pointer, uint64_t bytes, uint32_t map_id,
                                   pimhw_cause *why)
{
    pimhw_i_map map;
    if (!m || !pointer) return PIMHW_I_WRONG(why, "%s is NULL", m ? "pointer" : "memory");
    if (bytes == 0) return PIMHW_I_WRONG(why, "bytes is 0");
    if (pimhw_i_map_build(&map, &m->geometry, map_id, why)) return PIMHW_ERR_ARGUMENT;
    uint64_t page_bytes = m->geometry.page_bytes, n_free = 0, k = 0;
    uint64_t n = pimhw_i_ceil_div(bytes, page_bytes);
    uint64_t n_whole = m->geometry.n_rows / m->page_rows; /* have all rows; free: absent ones */
    for (uint64_t i = 0; i < n_whole && n_free < n; i++)
        n_free += !m->pages[i].bytes;
    if (n_free < n) return PIMHW_I_FAIL(why, PIMHW_ERR_FULL, "%u pages wanted, %u free", n, n_free);
    uint8_t *taken = pimhw_i_pages_take(m, n, why);
    if (!taken) return PIMHW_ERR_MEMORY;
    for (uint64_t i = 0; k < n; i++) {
        if (m->pages[i].bytes) continue;
        m->pages[i].bytes = taken + (size_t)(k * page_bytes);
        m->pages[i].n_run = k++ == 0 ? (uint32_t)n : 0;
        m->pages[i].given = true;
        m->pages[i].map_id = (uint8_t)map_id;
    }
    *pointer = taken;
    return PIMHW_OK;
}

static pimhw_status pimhw_i_page_find(const pimhw_memory *m, const void *pointer, uint64_t *page,
                                      uint64_t *at, const char *else_what, pimhw_cause *why)
{
    uint64_t address = (uintptr_t)pointer;
    if (!m) return PIMHW_I_WRONG(why, "memory is NULL");
    for (*page = 0; *page < m->n_pages; ++*page) {
        *at = address - (uintptr_t)m->pages[*page].bytes;
        if (m->pages[*page].given && *at < m->geometry.page_bytes) return PIMHW_OK;
    }
    return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS, "host address %u is not from pimhw_alloc%s",
                        address, else_what);
}

PIMHW_API pimhw_status pimhw_free(pimhw_memory *memory, void *pointer, pimhw_cause *why)
{
    uint64_t page = 0, at = 0;
    PIMHW_I_TRY(pimhw_i_page_find(memory, pointer, &page, &at, ", or freed already", why));
    if (at || !memory->pages[page].n_run)
        return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS,
                            "host address %u is inside of an allocation, at physical address %u",
                            (uint64_t)(uintptr_t)pointer, page * memory->geometry.page_bytes + at);
    pimhw_i_pages_release(memory, page);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_memory_find(const pimhw_memory *memory, uint64_t *pa, uint32_t *map_id,
                                         const void *pointer, pimhw_cause *why)
{
    uint64_t page = 0, at = 0;
    PIMHW_I_TRY(pimhw_i_page_find(memory, pointer, &page, &at, "", why));
    if (pa) *pa = page * memory->geometry.page_bytes + at;
    if (map_id) *map_id = memory->pages[page].map_id;
    return PIMHW_OK;
}

/* ==========================================================================
 * [H12] UNITS: buffers and arithmetic beside the banks, and the hub's registers.
 *       Knows commands and bytes; never clocks.
 * ========================================================================== */

static float pimhw_i_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* a where all bits of `which` are set, b where none is: compilers make no vectors of branches. */
static inline uint32_t pimhw_i_select(uint32_t which, uint32_t a, uint32_t b)
{
    return (a & which) | (b & ~which);
}

/* All bits if a < b, else none; both below 2^31. */
static inline uint32_t pimhw_i_below(uint32_t a, uint32_t b)
{
    return (uint32_t)((int32_t)(a - b) >> 31);
}

/* A magnitude from 2^-14 to 65536, which is infinite, rounded to f16. */
static inline uint32_t pimhw_i_normal_f16(uint32_t a)
{
    return (a + (a >> 13 & 1u) + 0xfffu - (112u << 23)) >> 13;
}

/* The bits of an f32 to a lane: those above the lane type's are lost; a NaN stays one. */
static inline uint16_t pimhw_i_to_f16(uint32_t bits)
{
    uint32_t a = bits & 0x7fffffffu, tiny, nan = 0x7e00u | (a >> 13 & 0x3ffu);
    uint32_t most = pimhw_i_select(pimhw_i_below(a, 0x47800000u), a, 0x47800000u);
    float moved = pimhw_i_float(most) + 0.5f; /* units of 2^-24 are the lowest bits now */
    memcpy(&tiny, &moved, sizeof tiny);
    uint32_t lane = pimhw_i_normal_f16(most);
    lane = pimhw_i_select(pimhw_i_below(a, 0x38800000u), tiny - 0x3f000000u, lane);
    lane = pimhw_i_select(pimhw_i_below(0x7f800000u, a), nan, lane);
    return (uint16_t)((bits >> 16 & 0x8000u) | lane);
}

static inline uint16_t pimhw_i_to_bf16(uint32_t bits)
{
    uint32_t nan = pimhw_i_below(0x7f800000u, bits & 0x7fffffffu);
    return (uint16_t)(pimhw_i_select(nan, bits | 0x400000u, bits + 0x7fffu + (bits >> 16 & 1u)) >>
                      16);
}

static inline float pimhw_i_of_f16(uint16_t lane)
{
    uint32_t bits = lane, rest = (bits & 0x7fffu) << 13, up = 112u << 23, few;
    float tiny = pimhw_i_float(0x3f000000u | rest >> 13) - 0.5f; /* hosts may lose subnormals */
    memcpy(&few, &tiny, sizeof few);
    uint32_t many = rest + up + (up & ~pimhw_i_below(rest, 0x7c00u << 13));
    rest = pimhw_i_select(pimhw_i_below(rest, 0x400u << 13), few, many);
    return pimhw_i_float((bits & 0x8000u) << 16 | rest);
}

PIMHW_API uint16_t pimhw_lane_round(uint32_t lane_type, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return lane_type == PIMHW_LANE_F16 ? pimhw_i_to_f16(bits) : pimhw_i_to_bf16(bits);
}

PIMHW_API float pimhw_lane_value(uint32_t lane_type, uint16_t lane)
{
    return lane_type == PIMHW_LANE_F16 ? pimhw_i_of_f16(lane) : pimhw_i_float((uint32_t)lane << 16);
}

PIMHW_API void pimhw_lanes_round(uint32_t lane_type, void *lanes, const void *values, size_t n)
{
    uint8_t *to = (uint8_t *)lanes;
    const uint8_t *from = (const uint8_t *)values;
    for (; n >= 16; n -= 16, to += 32, from += 64) { /* as many as gcc -O2 makes vectors of */
        uint32_t bits[16], rare = 0; /* magnitudes that are no normal f16 when rounded, by sign */
        uint16_t lane[16];
        memcpy(bits, from, sizeof bits);
        for (int i = 0; lane_type == PIMHW_LANE_F16 && i < 16; i++) {
            const uint32_t a = bits[i] & 0x7fffffffu;
            lane[i] = (uint16_t)((bits[i] >> 16 & 0x8000u) | pimhw_i_normal_f16(a));
            rare |= (a - 0x38800000u) | (0x477fffffu - a);
        }
        for (int i = 0; rare >> 31 && i < 16; i++)
            lane[i] = pimhw_i_to_f16(bits[i]);
        for (int i = 0; lane_type != PIMHW_LANE_F16 && i < 16; i++)
            lane[i] = pimhw_i_to_bf16(bits[i]);
        memcpy(to, lane, sizeof lane);
    }
    for (; n > 0; n--, to += 2, from += 4) {
        float value;
        memcpy(&value, from, sizeof value);
        uint16_t lane = pimhw_lane_round(lane_type, value);
        memcpy(to, &lane, sizeof lane);
    }
}

PIMHW_API void pimhw_lanes_value(uint32_t lane_type, void *values, const void *lanes, size_t n)
{
    uint8_t *to = (uint8_t *)values;
    const uint8_t *from = (const uint8_t *)lanes;
    for (; n >= 16; n -= 16, to += 64, from += 32) {
        float value[16];
        uint16_t lane[16];
        memcpy(lane, from, sizeof lane);
        for (int i = 0; lane_type == PIMHW_LANE_F16 && i < 16; i++)
            value[i] = pimhw_i_of_f16(lane[i]);
        for (int i = 0; lane_type != PIMHW_LANE_F16 && i < 16; i++)
            value[i] = pimhw_i_float((uint32_t)lane[i] << 16);
        memcpy(to, value, sizeof value);
    }
    for (; n > 0; n--, to += 4, from += 2) {
        uint16_t lane;
        memcpy(&lane, from, sizeof lane);
        float value = pimhw_lane_value(lane_type, lane);
        memcpy(to, &value, sizeof value);
    }
}

enum { PIMHW_I_FILLS_KEPT = 4 };

/* Serials, plus 1, of the instructions that last filled and used a tile, and filled it before. */
typedef struct pimhw_i_tile {
    uint64_t filled, used;
    uint64_t lost[PIMHW_I_FILLS_KEPT], n_lost;
} pimhw_i_tile;

/* An output entry of a channel: who uses it, and what the sum in it is. Of the output of this
 * number: who used its AF, its last bias (serials, plus 1), and whether another took its sum. */
typedef struct pimhw_i_account {
    uint64_t used, af_used, bias;
    bool begun, unread, lost;
    pimhw_event first; /* the MAC that began it: of the same output as all of the sum */
} pimhw_i_account;

/* Which instruction read a GPR block last, and wrote it; of all runs, from 1 on. */
typedef struct pimhw_i_use {
    uint64_t read, written;
} pimhw_i_use;

/* Columns of a channel that are kept as floats, and banks that are summed at a time. */
enum { PIMHW_I_COLUMNS = 64, PIMHW_I_WIDE = 16 };

struct pimhw_units {
    pimhw_config config;
    pimhw_memory *memory;
    size_t bytes;
    uint32_t n_banks, n_lanes, n_columns;
    uint32_t n_outs;       /* that any controller uses, and one that stays empty, for ping-pong */
    uint32_t wide_banks;   /* n_banks in whole vectors */
    uint64_t base, latest; /* numbers of instructions: of runs before, and so far */
    const pimhw_request *request; /* may be NULL; from here on 0 at the start */
    pimhw_hub hub;
    pimhw_status status; /* the first failure */
    pimhw_cause why;
    uint32_t af_mode;
    bool neighbours;        /* MACs multiply pairs of banks, not the tile; to here */
    uint64_t *column_tag;   /* [channels][PIMHW_I_COLUMNS] row and column, plus 1; 0: empty */
    float *columns;         /* [channels][PIMHW_I_COLUMNS][lanes][wide_banks] */
    pimhw_i_tile *tile_use; /* [channels][tiles] */
    pimhw_i_account *sums;  /* [channels][outs] */
    float *tiles;           /* [channels][tiles][lanes] */
    float *sum, *af;        /* [channels][outs][banks] */
    float *samples;         /* [PIMHW_AF_MODES][PIMHW_AF_SAMPLES] */
    pimhw_i_use *gpr_use;   /* [gpr_blocks] */
    uint16_t *gpr;          /* [gpr_blocks][lanes] */
};

/* Points the tables of the units into the memory behind them; returns the bytes of both. */
static uint64_t pimhw_i_units_point(pimhw_units *u, const pimhw_units *of)
{
    const pimhw_config *c = &of->config;
    uint64_t channels = c->n_channels, lanes = of->n_lanes, banks = of->n_banks;
    uint64_t tiles = channels * 2 * c->in_entries, outs = channels * of->n_outs;
    uint64_t at = (sizeof *u + 63) / 64 * 64;
    PIMHW_I_PART(u, float, columns, channels *PIMHW_I_COLUMNS *lanes * of->wide_banks)
    PIMHW_I_PART(u, uint64_t, column_tag, channels * PIMHW_I_COLUMNS)
    PIMHW_I_PART(u, pimhw_i_tile, tile_use, tiles)
    PIMHW_I_PART(u, pimhw_i_account, sums, outs)
    PIMHW_I_PART(u, float, tiles, tiles *lanes)
    PIMHW_I_PART(u, float, sum, outs *banks)
    PIMHW_I_PART(u, float, af, outs *banks)
    PIMHW_I_PART(u, float, samples, (uint64_t)PIMHW_AF_MODES *PIMHW_AF_SAMPLES)
    PIMHW_I_PART(u, pimhw_i_use, gpr_use, c->gpr_blocks)
    PIMHW_I_PART(u, uint16_t, gpr, (uint64_t)c->gpr_blocks * lanes)
    return at;
}

PIMHW_API pimhw_status pimhw_units_create(pimhw_units **units, const pimhw_config *config,
                                          pimhw_memory *memory, pimhw_cause *why)
{
    if (!units || !config || !memory) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    *units = NULL;
    pimhw_geometry g = memory->geometry;
    PIMHW_I_TRY(pimhw_geometry_init(&g, config, PIMHW_CHUNK_AIM, why));
    if (config->element_bytes != 2)
        return PIMHW_I_UNFIT(why, "element_bytes is %u: units compute on 2",
                             (uint64_t)config->element_bytes);
    if (memcmp(&g, &memory->geometry, offsetof(pimhw_geometry, chunk_rows)) != 0)
        return PIMHW_I_WRONG(why, "the memory is of another geometry");
    pimhw_units of;
    memset((void *)&of, 0, sizeof of);
    of.config = *config;
    if (!config->allocator.alloc) of.config.allocator = pimhw_allocator_default();
    of.memory = memory;
    of.n_banks = pimhw_config_banks(config);
    of.n_lanes = pimhw_config_lanes(config);
    of.n_columns = pimhw_config_columns(config);
    of.n_outs = (uint32_t)pimhw_i_max(config->out_entries, config->obuf) + 1;
    of.wide_banks = (uint32_t)pimhw_i_ceil_div(of.n_banks, PIMHW_I_WIDE) * PIMHW_I_WIDE;
    uint64_t bytes = pimhw_i_units_point(NULL, &of);
    const pimhw_allocator *a = &of.config.allocator;
    void *u = bytes <= SIZE_MAX ? a->alloc(a->user, (size_t)bytes, 64) : NULL;
    if (!u) return PIMHW_I_FAIL(why, PIMHW_ERR_MEMORY, "no memory for units of %u bytes", bytes);
    of.bytes = (size_t)bytes;
    memset(u, 0, of.bytes);
    memcpy(u, &of, sizeof of);
    *units = (pimhw_units *)u;
    pimhw_i_units_point(*units, &of);
    return PIMHW_OK;
}

PIMHW_API void pimhw_units_destroy(pimhw_units *units)
{
    if (units) units->config.allocator.release(units->config.allocator.user, units, units->bytes);
}

/* The first failure stays; what follows it does nothing. */
static void pimhw_i_units_fail(pimhw_units *u, pimhw_status status, const char *text, uint64_t a,
                               uint64_t b)
{
    if (u->status != PIMHW_OK) return;
    u->status = status;
    pimhw_cause_write(&u->why, text, a, b);
}

/* Judges the table of a request. */
static pimhw_status pimhw_i_chunks_check(const pimhw_request *request, uint32_t n_channels,
                                         pimhw_cause *why)
{
    const uint32_t *begin = request->chunk_begin;
    if (request->chunks && request->chunk_rows == 0)
        return PIMHW_I_WRONG(why, "request: chunk_rows is 0");
    for (uint32_t c = 0; begin && c < n_channels; c++)
        if (begin[c] > begin[c + 1] || begin[c + 1] > request->n_chunks)
            return PIMHW_I_WRONG(why,
                                 "request: chunk_begin of channel %u falls, or is beyond n_chunks",
                                 (uint64_t)c + 1);
    return PIMHW_OK;
}

/* The row of an event, where VA2PA has it, in all banks of its channel; false if it is nowhere. */
static bool pimhw_i_open(pimhw_units *u, const pimhw_event *e, bool write, pimhw_i_row *at)
{
    const pimhw_request *r = u->request;
    const uint32_t c = e->channel;
    uint64_t row = e->row;
    if (u->status == PIMHW_OK && r && r->chunks) {
        uint64_t chunk = row / r->chunk_rows;
        uint32_t first = r->chunk_begin ? r->chunk_begin[c] : 0;
        uint32_t n = r->chunk_begin ? r->chunk_begin[c + 1] - first : r->n_chunks;
        uint32_t begin = chunk < n ? r->chunks[first + chunk] : PIMHW_UNMAPPED;
        const char *fault = "channel %u: row %u is in no chunk";
        if (begin == PIMHW_UNMAPPED) pimhw_i_units_fail(u, PIMHW_ERR_ADDRESS, fault, c, row);
        row = pimhw_i_min(begin + row % r->chunk_rows, UINT32_MAX);
    }
    if (row >= u->config.n_rows)
        pimhw_i_units_fail(u, PIMHW_ERR_ADDRESS, "channel %u: row %u is not on the device", c, row);
    if (u->status != PIMHW_OK) return false;
    pimhw_memory *writer = write ? u->memory : NULL;
    uint64_t *kept = u->column_tag + (size_t)c * PIMHW_I_COLUMNS;
    u->status = pimhw_i_row_open(u->memory, writer, at, c, (uint32_t)row, &u->why);
    if (write) memset(kept, 0, PIMHW_I_COLUMNS * sizeof *kept); /* it may be old */
    return u->status == PIMHW_OK;
}

/* A block of the hub's registers; NULL if there is none. */
static uint16_t *pimhw_i_gpr(pimhw_units *u, uint64_t block, uint64_t n)
{
    if (n <= u->config.gpr_blocks && block <= u->config.gpr_blocks - n)
        return u->gpr + block * u->n_lanes;
    pimhw_i_units_fail(u, PIMHW_ERR_ADDRESS, "GPR block %u, of %u", block + n - 1,
                       u->config.gpr_blocks);
    return NULL;
}

/* An access to a tile, entry or GPR block out of the order of the program. */
static void pimhw_i_hazard(pimhw_units *u, const char *text, const pimhw_event *e, uint32_t of)
{
    if (u->status != PIMHW_OK) return;
    pimhw_cause what;
    pimhw_cause_write(&what, text, (uint64_t)e->channel, (uint64_t)of);
    u->status = PIMHW_ERR_HAZARD;
    pimhw_cause_write(&u->why, "instruction %u, %s", e->serial, what.text);
}

/* The same for an event: a use out of the order of the program, or of lists as they are stepped, is
 * a hazard. */
static uint16_t *pimhw_i_gpr_of(pimhw_units *u, const pimhw_event *e, uint64_t block, uint64_t n,
                                bool write)
{
    uint16_t *at = pimhw_i_gpr(u, block, n);
    const char *text = write ? "channel %u: GPR block %u is written after later ones used it"
                             : "channel %u: GPR block %u is read after a later result";
    const uint64_t now = u->base + e->serial + 1;
    u->latest = pimhw_i_max(u->latest, now);
    for (uint64_t b = block; at && b < block + n; b++) {
        pimhw_i_use *use = &u->gpr_use[b];
        if (use->written > now || (write && use->read > now))
            pimhw_i_hazard(u, text, e, (uint32_t)b);
        if (write && use->written == now)
            pimhw_i_hazard(u, "channel %u: GPR block %u has another channel's result of this", e,
                           (uint32_t)b);
        uint64_t *latest = write ? &use->written : &use->read;
        *latest = pimhw_i_max(*latest, now);
    }
    return at;
}

PIMHW_API uint16_t *pimhw_units_gpr(pimhw_units *units, uint32_t block)
{
    return units && block < units->config.gpr_blocks ? units->gpr + (size_t)block * units->n_lanes
                                                     : NULL;
}

PIMHW_API pimhw_status pimhw_units_af(pimhw_units *units, uint32_t mode, const float *samples)
{
    if (!units || !samples || mode >= PIMHW_AF_MODES) return PIMHW_ERR_ARGUMENT;
    memcpy(units->samples + (size_t)mode * PIMHW_AF_SAMPLES, samples,
           PIMHW_AF_SAMPLES * sizeof *samples);
    return PIMHW_OK;
}

/* The tile of an event, to fill or to use: the newest that was filled before it. */
static float *pimhw_i_tile_of(pimhw_units *u, const pimhw_event *e, bool fill)
{
    size_t n = u->config.in_entries, i = 2 * n * e->channel + e->tile;
    uint64_t now = e->serial + 1, one = u->tile_use[i].filled, two = u->tile_use[i + n].filled;
    bool second = fill ? e->region : two && two <= now && (two > one || one > now);
    pimhw_i_tile *t = &u->tile_use[second ? i + n : i], *t2 = &u->tile_use[second ? i : i + n];
    if (fill && (t->used > now || t2->used > now))
        pimhw_i_hazard(u, "channel %u: a MAC has used tile %u before it was written", e, e->tile);
    bool lost = t->filled > now; /* or something newer was in one of the two up to now */
    for (uint32_t k = 0; k < PIMHW_I_FILLS_KEPT && !fill && !lost; k++)
        lost = (t->lost[k] > t->filled && t->lost[k] <= now) ||
               (t2->lost[k] > t->filled && t2->lost[k] <= now);
    if (lost) pimhw_i_hazard(u, "channel %u: tile %u was overwritten too early", e, e->tile);
    if (fill) t->lost[t->n_lost++ % PIMHW_I_FILLS_KEPT] = t->filled;
    *(fill ? &t->filled : &t->used) = now;
    return u->tiles + (size_t)(t - u->tile_use) * u->n_lanes;
}

/* The entry of an event, used in the order of the program. */
static pimhw_i_account *pimhw_i_sum_of(pimhw_units *u, const pimhw_event *e, float **values)
{
    bool none = e->entry >= u->n_outs;
    size_t i = (size_t)e->channel * u->n_outs + (none ? 0 : e->entry);
    pimhw_i_account *s = &u->sums[i], *sums = &u->sums[(size_t)e->channel * u->n_outs];
    if (none) pimhw_i_hazard(u, "channel %u: no accumulator is left for output %u", e, e->out);
    if (s->used > e->serial + 1 && !e->fresh)
        pimhw_i_hazard(u, "channel %u: output entry %u was used out of order", e, e->out);
    /* another output takes it: nobody wants that sum if a bias comes before the next use of its own
     * output, or has come: it may issue before MACs that precede it */
    if (s->unread && s->first.out != e->out) {
        sums[s->first.out].lost = sums[s->first.out].bias <= s->used;
        s->unread = false;
    }
    if (e->command == PIMHW_CMD_WRMAC16) {
        sums[e->out].bias = e->serial + 1;
        sums[e->out].lost = false;
    }
    if (sums[e->out].lost)
        pimhw_i_hazard(u, "channel %u: another output took the entry of output %u, unread", e,
                       e->out);
    s->used = e->serial + 1;
    *values = u->sum + i * u->n_banks;
    if (e->fresh) memset(*values, 0, u->n_banks * sizeof **values);
    s->begun = s->begun && !e->fresh;
    return s;
}

/* The results of AF of an output, written and read in the order of the program. */
static float *pimhw_i_af_of(pimhw_units *u, const pimhw_event *e)
{
    size_t i = (size_t)e->channel * u->n_outs + e->out;
    if (u->sums[i].af_used > e->serial + 1)
        pimhw_i_hazard(u, "channel %u: AF of output %u was overwritten too early", e, e->out);
    u->sums[i].af_used = e->serial + 1;
    return u->af + i * u->n_banks;
}

/* A result: CPUs and compilers give NaN different bits. */
static float pimhw_i_result(float x)
{
    return x == x ? x : pimhw_i_float(0x7fc00000u);
}

static float pimhw_i_lane_at(const pimhw_units *u, const uint8_t *at)
{
    uint16_t lane;
    memcpy(&lane, at, 2);
    return pimhw_lane_value(u->config.lane_type, lane);
}

/* The column of an event in all banks, [lanes][wide_banks]; NULL if it is nowhere. */
static const float *pimhw_i_column_of(pimhw_units *u, const pimhw_event *e)
{
    size_t slot = (size_t)e->channel * PIMHW_I_COLUMNS + e->column % PIMHW_I_COLUMNS;
    float *column = u->columns + slot * u->n_lanes * u->wide_banks;
    uint64_t tag = ((uint64_t)e->row << 32 | e->column) + 1;
    if (u->column_tag[slot] == tag) return column;
    pimhw_i_row row;
    if (!pimhw_i_open(u, e, false, &row)) return NULL;
    for (uint32_t b = 0; b < u->n_banks; b++) {
        float lanes[512]; /* the most there are */
        pimhw_lanes_value(u->config.lane_type, lanes, pimhw_i_row_at(&row, b, e->column),
                          u->n_lanes);
        for (uint32_t i = 0; i < u->n_lanes; i++)
            column[(size_t)i * u->wide_banks + b] = lanes[i];
    }
    u->column_tag[slot] = tag;
    return column;
}

/* Products of the lanes, exact in f32, added pairwise, neighbours first; some banks at a time. As
 * in a binary counter, sums of 1, 2, 4, .. lanes wait for their neighbour. */
static void pimhw_i_dots(float sums[PIMHW_I_WIDE], const float *tile, const float *column,
                         uint32_t lanes, uint32_t step)
{
    float waiting[10][PIMHW_I_WIDE], p[PIMHW_I_WIDE];
    uint32_t n = 0;
    for (uint32_t i = 0; i < lanes; i++, n++) {
        const float *lane = column + (size_t)i * step;
        for (uint32_t b = 0; tile && b < PIMHW_I_WIDE; b++)
            p[b] = tile[i] * lane[b];
        for (uint32_t b = 0; !tile && b < PIMHW_I_WIDE; b++)
            p[b] = lane[b] * lane[b ^ 1];
        for (uint32_t done = i; done & 1; done >>= 1, n--)
            for (uint32_t b = 0; b < PIMHW_I_WIDE; b++)
                p[b] = waiting[n - 1][b] + p[b];
        memcpy(waiting[n], p, sizeof p);
    }
    while (--n > 0)
        for (uint32_t b = 0; b < PIMHW_I_WIDE; b++)
            waiting[n - 1][b] += waiting[n][b];
    memcpy(sums, waiting[0], sizeof waiting[0]);
}

static void pimhw_i_do_mac(pimhw_units *u, const pimhw_event *e)
{
    float *values, sums[PIMHW_I_WIDE];
    const float *tile = u->neighbours ? NULL : pimhw_i_tile_of(u, e, false);
    pimhw_i_account *s = pimhw_i_sum_of(u, e, &values);
    const float *column = pimhw_i_column_of(u, e);
    if (!column) return;
    s->unread = true;
    if (!s->begun) s->first = *e;
    s->begun = true;
    for (uint32_t first = 0; first < u->n_banks; first += PIMHW_I_WIDE) {
        pimhw_i_dots(sums, tile, column + first, u->n_lanes, u->wide_banks);
        for (uint32_t b = first; b < u->n_banks && b < first + PIMHW_I_WIDE; b++)
            if (e->command == PIMHW_CMD_MAC16 || b == e->bank)
                values[b] += tile || (b ^ 1) < u->n_banks ? sums[b - first] : 0.0f;
    }
}

static void pimhw_i_do_input(pimhw_units *u, const pimhw_event *e)
{
    uint16_t lanes[512];
    bool bias = e->command == PIMHW_CMD_WRMAC16, distinct = !bias && e->flags & PIMHW_DISTINCT;
    uint32_t n = bias ? u->n_banks : u->n_lanes;
    uint64_t n_blocks = pimhw_i_ceil_div(n, u->n_lanes), block = (uint64_t)e->gpr + e->index;
    if (distinct) block = e->gpr + (uint64_t)e->index * u->config.n_channels + e->channel;
    const uint16_t *from = u->hub.input ? lanes : pimhw_i_gpr_of(u, e, block, n_blocks, false);
    if (u->hub.input) u->hub.input(u->hub.user, e, lanes);
    if (!from) return;
    float *to;
    if (bias)
        pimhw_i_sum_of(u, e, &to)->begun = false;
    else
        to = pimhw_i_tile_of(u, e, true);
    pimhw_lanes_value(u->config.lane_type, to, from, n);
}

static void pimhw_i_do_output(pimhw_units *u, const pimhw_event *e)
{
    float *values, given[PIMHW_MAX_BANKS];
    pimhw_event its = *e;
    pimhw_i_account *s = pimhw_i_sum_of(u, e, &values);
    bool af = e->command == PIMHW_CMD_RDAF16, narrow = u->config.out_bits == 16;
    const float *from = af ? pimhw_i_af_of(u, e) : values;
    if (s->begun) {
        its.flags = s->first.flags;
        its.gpr += s->first.gpr;
        its.aux += s->first.aux;
        its.round = s->first.round;
    }
    uint64_t n = pimhw_i_ceil_div((uint64_t)u->n_banks * (narrow ? 1 : 2), u->n_lanes);
    uint64_t block = (uint64_t)e->gpr + (s->begun ? s->first.gpr : 0) + n * e->channel;
    uint16_t *to = u->hub.output ? NULL : pimhw_i_gpr_of(u, e, block, n, true);
    if (!to && !u->hub.output) return;
    for (uint32_t b = 0; b < u->n_banks; b++) {
        float sum = pimhw_i_result(from[b]);
        uint16_t lane = pimhw_lane_round(u->config.lane_type, sum);
        given[b] = narrow ? pimhw_lane_value(u->config.lane_type, lane) : sum;
        if (to && narrow) to[b] = lane;
    }
    if (to && !narrow) memcpy(to, given, u->n_banks * sizeof given[0]);
    if (u->hub.output) u->hub.output(u->hub.user, &its, given);
    s->unread = s->unread && af;
    if (af || u->config.out_clear != PIMHW_CLEAR_READ) return;
    memset(values, 0, u->n_banks * sizeof *values);
    s->begun = false;
}

/* Columns between the GPR or the global buffer and one bank, or all of them. */
static void pimhw_i_do_column(pimhw_units *u, const pimhw_event *e)
{
    pimhw_i_row row;
    bool reads = e->command == PIMHW_CMD_RD || e->command == PIMHW_CMD_RDCP;
    bool copies = e->command == PIMHW_CMD_RDCP || e->command == PIMHW_CMD_WRCP;
    bool all = e->command == PIMHW_CMD_WRA16;
    if (!pimhw_i_open(u, e, !reads, &row)) return;
    for (uint32_t b = all ? 0 : e->bank; b <= (all ? u->n_banks - 1 : e->bank); b++) {
        uint8_t *column = pimhw_i_row_at(&row, b, e->column);
        uint64_t block = (uint64_t)e->gpr + (reads ? e->channel : all ? b : 0);
        float *tile = copies ? pimhw_i_tile_of(u, e, reads) : NULL;
        uint16_t *gpr = copies ? NULL : pimhw_i_gpr_of(u, e, block, 1, reads);
        if (!copies && !gpr) return;
        if (reads && copies) pimhw_lanes_value(u->config.lane_type, tile, column, u->n_lanes);
        if (reads && !copies) memcpy(gpr, column, 2 * (size_t)u->n_lanes);
        if (!reads && copies) pimhw_lanes_round(u->config.lane_type, column, tile, u->n_lanes);
        if (!reads && !copies) memcpy(column, gpr, 2 * (size_t)u->n_lanes);
    }
}

/* Of each bank group, bank 0 times bank 1 into bank 2 [AIMSIM]. */
static void pimhw_i_do_ewmul(pimhw_units *u, const pimhw_event *e)
{
    pimhw_i_row row;
    uint32_t group = u->config.n_group_banks;
    if (group < 3)
        pimhw_i_units_fail(u, PIMHW_ERR_PROGRAM, "EWMUL: bank groups have %u banks, of %u needed",
                           group, 3);
    if (!pimhw_i_open(u, e, true, &row)) return;
    for (uint32_t b = 0; b < u->n_banks; b += group) {
        const uint8_t *x = pimhw_i_row_at(&row, b, e->column);
        const uint8_t *y = pimhw_i_row_at(&row, b + 1, e->column);
        uint8_t *to = pimhw_i_row_at(&row, b + 2, e->column);
        for (uint32_t i = 0; i < 2 * u->n_lanes; i += 2) {
            float product = pimhw_i_lane_at(u, x + i) * pimhw_i_lane_at(u, y + i);
            uint16_t lane = pimhw_lane_round(u->config.lane_type, pimhw_i_result(product));
            memcpy(to + i, &lane, 2);
        }
    }
}

/* Linear between the samples, and beyond them as between the last two; nothing overflows before. */
static void pimhw_i_do_af(pimhw_units *u, const pimhw_event *e)
{
    const int middle = PIMHW_AF_SAMPLES / 2;
    float *values, *to = pimhw_i_af_of(u, e);
    pimhw_i_sum_of(u, e, &values);
    for (uint32_t b = 0; b < u->n_banks; b++) {
        double at = (double)values[b] * (double)PIMHW_AF_PER_ONE;
        int i = !(at >= -middle) ? -middle : at >= middle - 1 ? middle - 1 : (int)at;
        if (i > -middle && at < i) i--;
        const float *s = u->samples + (size_t)u->af_mode * PIMHW_AF_SAMPLES + (middle + i);
        double step = (double)s[1] - (double)s[0];
        to[b] = step == 0 ? s[0] : (float)((double)s[0] + (at - i) * step);
        if (at != at) to[b] = values[b];
    }
}

PIMHW_API void pimhw_units_command(void *units, const pimhw_event *event)
{
    pimhw_units *u = (pimhw_units *)units;
    const struct {
        const char *beyond;
        uint32_t of, is, n; /* of: commands that use it */
    } places[5] = {{"channel %u, of %u", UINT32_MAX, event->channel, u->config.n_channels},
                   {"bank %u, of %u", PIMHW_I_BANK_USES, event->bank, u->n_banks},
                   {"column %u, of %u", PIMHW_I_COLUMN_USES, event->column, u->n_columns},
                   {"tile %u, of %u", PIMHW_I_TILE_USES, event->tile, u->config.in_entries},
                   {"output %u, of %u", PIMHW_I_OUT_USES, event->out, u->n_outs}};
    for (int i = 0; i < 5 && event->command < PIMHW_N_COMMANDS; i++)
        if (places[i].of >> event->command & 1 && places[i].is >= places[i].n)
            pimhw_i_units_fail(u, PIMHW_ERR_ADDRESS, places[i].beyond, places[i].is, places[i].n);
    if (event->flags & PIMHW_TIMING_ONLY)
        pimhw_i_units_fail(u, PIMHW_ERR_PROGRAM, "channel %u: instruction %u is for timing only",
                           event->channel, event->serial);
    if (u->status != PIMHW_OK) return;
    switch (event->command) {
    case PIMHW_CMD_MAC16:
    case PIMHW_CMD_MAC: pimhw_i_do_mac(u, event); break;
    case PIMHW_CMD_WRGB:
    case PIMHW_CMD_WRMAC16: pimhw_i_do_input(u, event); break;
    case PIMHW_CMD_RDMAC16:
    case PIMHW_CMD_RDAF16: pimhw_i_do_output(u, event); break;
    case PIMHW_CMD_EWMUL16: pimhw_i_do_ewmul(u, event); break;
    case PIMHW_CMD_AF16: pimhw_i_do_af(u, event); break;
    case PIMHW_CMD_WRA16:
    case PIMHW_CMD_RD:
    case PIMHW_CMD_WR:
    case PIMHW_CMD_RDCP:
    case PIMHW_CMD_WRCP: pimhw_i_do_column(u, event); break;
    default: break; /* rows are where they are: only timing opens and closes them */
    }
}

PIMHW_API void pimhw_units_hub(void *units, const pimhw_instruction *in)
{
    pimhw_units *u = (pimhw_units *)units;
    if (u->status != PIMHW_OK) return;
    if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 0) {
        u->neighbours = in->gpr == 0;
    } else if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 2) {
        u->af_mode = in->gpr;
        if (in->gpr >= PIMHW_AF_MODES)
            pimhw_i_units_fail(u, PIMHW_ERR_PROGRAM, "CFR 2: AF mode %u, of %u", in->gpr,
                               PIMHW_AF_MODES);
    } else if (in->kind == PIMHW_EWADD) {
        uint16_t *to = pimhw_i_gpr(u, in->gpr, in->op_size);
        const uint16_t *from = to ? pimhw_i_gpr(u, in->aux, in->op_size) : NULL;
        uint32_t type = u->config.lane_type;
        for (uint64_t i = 0; from && i < in->op_size * u->n_lanes; i++)
            to[i] = pimhw_lane_round(type, pimhw_i_result(pimhw_lane_value(type, to[i]) +
                                                          pimhw_lane_value(type, from[i])));
    } else if (in->kind == PIMHW_EPU && u->hub.epu) {
        u->hub.epu(u->hub.user, in);
    }
}

PIMHW_API void pimhw_units_begin(pimhw_units *units, const pimhw_request *request,
                                 const pimhw_hub *hub)
{
    if (!units) return;
    units->base = units->latest;
    const size_t run = offsetof(pimhw_units, request);
    memset(units->column_tag, 0, (size_t)((char *)units->samples - (char *)units->column_tag));
    memset((char *)units + run, 0, offsetof(pimhw_units, column_tag) - run);
    if (hub) units->hub = *hub;
    units->request = request;
    if (request)
        units->status = pimhw_i_chunks_check(request, units->config.n_channels, &units->why);
}

PIMHW_API pimhw_status pimhw_units_end(pimhw_units *units, pimhw_cause *why)
{
    if (!units) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    units->request = NULL;
    if (units->status != PIMHW_OK && why) *why = units->why;
    return units->status;
}

/* ==========================================================================
 * [H13] TIMING: the earliest clock at which a command may issue.
 *       Knows parameters and past commands; never stored data.
 * ========================================================================== */

/* Classes of commands, the first three as pimhw_spent; controllers with gaps know no others. */
enum { PIMHW_I_W = 0, PIMHW_I_M, PIMHW_I_R, PIMHW_I_OTHER };

/* The constraint table of one device, evaluated. */
typedef struct pimhw_i_rules {
    pimhw_config config;
    /* last, next: clock << 8 | 255 - row of the table, so that of equal clocks the first row holds;
       0: none */
    uint64_t key[PIMHW_I_N_LEVELS][PIMHW_N_COMMANDS][PIMHW_N_COMMANDS];
    uint64_t waits[PIMHW_N_COMMANDS];       /* bit per command of all banks that the table holds */
    uint64_t again_ck[PIMHW_N_COMMANDS];    /* to the next of its kind, same bank; 1 or more */
    uint8_t again_reason[PIMHW_N_COMMANDS]; /* pimhw_spent */
    uint32_t occupies[PIMHW_N_COMMANDS];
    uint32_t joules_fJ[PIMHW_N_COMMANDS];
    uint32_t completes[PIMHW_N_COMMANDS]; /* with gaps, of W, M and R: t_exec */
    uint32_t ruled; /* bit per command: the table holds after it; with gaps not after W and R */
    bool modes;     /* register mode and normal mode */
    uint32_t outs, in_region, most_gap;
    uint8_t class_of[PIMHW_N_COMMANDS];
    uint32_t gap_ck[PIMHW_N_COMMANDS][PIMHW_N_COMMANDS]; /* of one stream: last, next */
    uint64_t all_banks;                                  /* bit per bank */
} pimhw_i_rules;

/* What a wait for an earlier command of a class counts as. */
static const uint8_t PIMHW_I_GAP_REASON[3] = {PIMHW_WAIT_INPUT, PIMHW_WAIT_OPERAND,
                                              PIMHW_WAIT_OUTPUT};

/* The key of the later clock; of equal ones the first, which is of the wider level. */
static uint64_t pimhw_i_later(uint64_t key, uint64_t other)
{
    return other >> 8 > key >> 8 ? other : key;
}

static void pimhw_i_rules_init(pimhw_i_rules *rules, const pimhw_config *config)
{
    memset(rules, 0, sizeof *rules);
    rules->config = *config;
    rules->ruled = PIMHW_I_ANY;
    for (uint32_t i = 0; i < sizeof PIMHW_I_CONSTRAINTS / sizeof PIMHW_I_CONSTRAINTS[0]; i++) {
        const pimhw_i_constraint *c = &PIMHW_I_CONSTRAINTS[i];
        uint64_t clocks = pimhw_i_sum(config, c->clocks);
        for (uint64_t last = clocks ? c->last : 0; last; last &= last - 1)
            for (uint64_t next = c->next; next; next &= next - 1) {
                uint32_t from = pimhw_i_lowest(last), to = pimhw_i_lowest(next);
                bool one_bank = pimhw_i_one_bank(from) && pimhw_i_one_bank(to);
                uint64_t *key = &rules->key[one_bank ? c->level : 0u][from][to];
                *key = pimhw_i_max(*key, clocks << 8 | (255 - i)); /* the strictest row stays */
            }
    }
    for (uint32_t last = 0; last < PIMHW_N_COMMANDS; last++) {
        uint64_t again = 0;
        for (uint32_t next = 0; next < PIMHW_CMD_ACT; next++)
            if (rules->key[PIMHW_I_CHANNEL][last][next]) rules->waits[last] |= 1u << next;
        rules->class_of[last] = (uint8_t)pimhw_i_min(PIMHW_I_COMMANDS[last].spent, PIMHW_I_OTHER);
        for (uint32_t level = 0; level < PIMHW_I_N_LEVELS; level++)
            again = pimhw_i_later(again, rules->key[level][last][last]);
        rules->again_ck[last] = pimhw_i_max(again >> 8, 1);
        rules->again_reason[last] =
            again ? PIMHW_I_CONSTRAINTS[255 - (again & 255)].reason : (uint8_t)PIMHW_WAIT_HOST;
        rules->joules_fJ[last] = pimhw_i_sum(config, PIMHW_I_COMMANDS[last].joules);
        rules->occupies[last] = pimhw_i_sum(config, PIMHW_I_COMMANDS[last].occupies);
        rules->completes[last] = pimhw_i_sum(config, PIMHW_I_COMMANDS[last].completes);
    }
    rules->again_ck[PIMHW_CMD_REF] = config->tREFI;
    rules->outs = pimhw_config_outs(config);
    rules->in_region = pimhw_config_in_region(config);
    rules->modes = config->tMOD > 0 && config->controller == PIMHW_IN_ORDER;
    rules->all_banks = pimhw_i_low_bits(pimhw_config_banks(config));
    if (config->controller == PIMHW_IN_ORDER) return;
    /* what the controllers with gaps take from the table: distances within a class */
    const uint32_t exec_ck[] = {config->tWR_INP, config->tMAC, config->tRD_OUT}; /* W, M, R */
    for (uint32_t last = 0; last < PIMHW_N_COMMANDS; last++) {
        uint8_t c = rules->class_of[last];
        if (c == PIMHW_I_OTHER) continue;
        for (uint32_t next = 0; next < PIMHW_N_COMMANDS; next++) {
            uint64_t key = c == rules->class_of[next] ? rules->key[PIMHW_I_CHANNEL][last][next] : 0;
            rules->gap_ck[last][next] = (uint32_t)pimhw_i_max(config->tCCD_S, key >> 8);
            rules->most_gap = (uint32_t)pimhw_i_max(rules->most_gap, rules->gap_ck[last][next]);
        }
        rules->most_gap = (uint32_t)pimhw_i_max(rules->most_gap, exec_ck[c]);
        rules->again_ck[last] = pimhw_i_max(rules->again_ck[last], rules->gap_ck[last][last]);
        rules->again_reason[last] = PIMHW_I_GAP_REASON[c];
        rules->completes[last] = exec_ck[c];
        if (c != PIMHW_I_M) rules->ruled &= ~(1u << last);
    }
}

enum {
    PIMHW_I_QUEUE = 64,    /* the largest queue_entries */
    PIMHW_I_QUEUED = 128,  /* commands a queue of DCS holds */
    PIMHW_I_RING = 1024,   /* commands not yet in order of issue: those and their rows */
    PIMHW_I_RECORDS = 64,  /* of one kind in a phase of ping-pong */
    PIMHW_I_REFRESHES = 4, /* of a channel: as many slacks are kept */
    PIMHW_I_FIRSTS = 16    /* and reasons */
};

/* How much earlier or later a refresh could have been due, and no command would have moved. */
typedef struct pimhw_i_slack {
    uint32_t early_ck, late_ck;
} pimhw_i_slack;

/* Commands of one instruction on one channel, for the queue of the shared front end. */
typedef struct pimhw_i_run {
    uint64_t last_ck, step_ck, n;
} pimhw_i_run;

/* What a channel is asked to do: commands of one kind on one row. */
typedef struct pimhw_i_work {
    uint32_t command; /* the last one it needs */
    uint32_t bank;
    uint64_t row;
    uint32_t column, tile, out;
    /* for the sink: of the instruction; no clock hangs on them */
    uint32_t first_tile, flags, gpr, aux, round, region, entry;
    uint64_t serial;
    bool fresh; /* the first command that is left is */
} pimhw_i_work;

/* Columns to read or write, from the ordinary queues: PIMHW_CMD_RD or PIMHW_CMD_WR. */
typedef struct pimhw_i_accesses {
    uint32_t n;
    pimhw_i_work at[PIMHW_I_QUEUE];
} pimhw_i_accesses;

/* Streams of the controllers with gaps; static knows the first only. */
enum { PIMHW_I_IO = 0, PIMHW_I_MAC, PIMHW_I_STREAMS };

/* Who hears what a device does, and whether it does right now: it must not call the device. */
typedef struct pimhw_i_listener {
    pimhw_sink to;
    bool told;
} pimhw_i_listener;

/* Commands of one instruction that a controller holds back. */
typedef struct pimhw_i_record {
    pimhw_i_work work;
    uint64_t group; /* ping-pong: of the input tiles */
    uint32_t n, stream;
} pimhw_i_record;

/* A clock and why it is not earlier. */
typedef struct pimhw_i_when {
    uint64_t ck;
    uint32_t reason;
} pimhw_i_when;

typedef struct pimhw_i_last {
    uint64_t ck;
    uint8_t command, bank;
    bool any;
} pimhw_i_last;

/* Commands that have their clocks, until no other can come before them. */
typedef struct pimhw_i_ring {
    uint32_t begin, end;
    uint64_t key[PIMHW_I_RING]; /* clock << 16 | command << 8 | reason */
} pimhw_i_ring;

/* Ping-pong: what is to run beside each other: reads of the phase before, writes for this one. */
typedef struct pimhw_i_phase {
    uint32_t n_w, n_m, n_r, outs; /* outs: accumulations */
    pimhw_i_record w[PIMHW_I_RECORDS], m[PIMHW_I_RECORDS], r[PIMHW_I_RECORDS];
} pimhw_i_phase;

typedef struct pimhw_i_entry {
    uint64_t phase; /* of its last MAC, plus 1 */
    bool going;     /* MACs came since it was read or filled */
} pimhw_i_entry;

/* State of a controller with gaps. Keys of entries are clock << 8 | reason. */
typedef struct pimhw_i_flow {
    pimhw_i_last last[PIMHW_I_STREAMS];
    uint64_t mac_stream_ck; /* the last command of it, rows included */
    /* DCS */
    uint64_t dispatch_ck;
    uint64_t left_ck[PIMHW_I_STREAMS][PIMHW_I_QUEUED];
    uint32_t n_left[PIMHW_I_STREAMS];
    uint32_t n_blocked[PIMHW_I_STREAMS];      /* commands that wait for a refresh */
    pimhw_i_when blocked_at[PIMHW_I_STREAMS]; /* UINT64_MAX: for one of the other stream */
    /* ping-pong */
    bool begun, mac_since;            /* a MAC came since the last WR_GB */
    uint32_t group_tiles;             /* of the newest group */
    uint64_t filling;                 /* the phase that takes MACs */
    uint64_t group, used_group;       /* newest of WR_GB, of a MAC */
    pimhw_i_when start, start_before; /* of the phase that runs next */
    uint64_t done_ck[PIMHW_I_OTHER];
    /* both */
    uint32_t n_records; /* W and R that wait for a refresh; W that wait for their phase */
    pimhw_i_record records[2 * PIMHW_I_QUEUED];
    uint64_t *tile_mac, *tile_write; /* DCS: [in_entries], when a MAC or write may use it */
    uint64_t *out_mac, *out_io;      /* DCS: [outs] */
    uint64_t *tile_group;            /* ping-pong: [in_entries] */
    pimhw_i_entry *sums;             /* ping-pong: [outs] */
    uint64_t *entry_free;            /* ping-pong with a sink: [outs], from which phase on .. */
    uint64_t *entry_of;              /* .. [outs] which one holds the sum of it, plus 1 */
    uint64_t *tile_region;           /* .. [in_entries] where a tile was written last */
    pimhw_i_phase *phase;            /* ping-pong: [3] */
    pimhw_i_ring *ring;              /* DCS: [PIMHW_I_STREAMS] */
    pimhw_i_work *works; /* .. with a sink: [PIMHW_I_STREAMS][PIMHW_I_RING] what is in the rings */
} pimhw_i_flow;

/* Points the tables of a flow into the memory behind it; returns the bytes of both. */
static size_t pimhw_i_flow_point(pimhw_i_flow *f, const pimhw_i_rules *rules)
{
    bool dcs = rules->config.controller == PIMHW_DCS;
    bool pp = rules->config.controller == PIMHW_PING_PONG;
    size_t tiles = rules->config.in_entries, outs = rules->outs, at = (sizeof *f + 63) / 64 * 64;
    PIMHW_I_PART(f, uint64_t, tile_mac, dcs ? tiles : 0)
    PIMHW_I_PART(f, uint64_t, tile_write, dcs ? tiles : 0)
    PIMHW_I_PART(f, uint64_t, out_mac, dcs ? outs : 0)
    PIMHW_I_PART(f, uint64_t, out_io, dcs ? outs : 0)
    PIMHW_I_PART(f, uint64_t, tile_group, pp ? tiles : 0)
    PIMHW_I_PART(f, pimhw_i_entry, sums, pp ? outs : 0)
    PIMHW_I_PART(f, uint64_t, entry_free, pp ? outs : 0)
    PIMHW_I_PART(f, uint64_t, entry_of, pp ? outs : 0)
    PIMHW_I_PART(f, uint64_t, tile_region, pp ? tiles : 0)
    PIMHW_I_PART(f, pimhw_i_phase, phase, pp ? 3u : 0)
    PIMHW_I_PART(f, pimhw_i_ring, ring, dcs ? (size_t)PIMHW_I_STREAMS : 0)
    PIMHW_I_PART(f, pimhw_i_work, works, dcs ? (size_t)PIMHW_I_STREAMS * PIMHW_I_RING : 0)
    return (at + 63) / 64 * 64;
}

/* What a channel knows bank by bank, once a command of one bank has come. */
typedef struct pimhw_i_banks {
    uint64_t row[PIMHW_MAX_BANKS]; /* of an open bank */
    uint64_t group_ready[PIMHW_MAX_BANKS][PIMHW_N_COMMANDS];
    uint64_t bank_ready[PIMHW_MAX_BANKS][PIMHW_N_COMMANDS];
    uint64_t clock_ck;         /* the ordinary queues have been served up to here */
    pimhw_i_accesses queue[2]; /* reads, writes */
    pimhw_i_accesses active;   /* whose row has been opened */
    bool write_mode;
    const char *hazard; /* what has happened .. */
    pimhw_i_work late;  /* .. to this access; of no other it is told */
} pimhw_i_banks;

typedef struct pimhw_i_tally {
    uint64_t active_ck; /* a row was open; while one is, less the clock at which it opened */
    uint64_t n_answers; /* of reads */
    uint64_t commands[PIMHW_N_COMMANDS]; /* of one channel */
    uint64_t spent_ck[PIMHW_N_SPENT];
} pimhw_i_tally;

/* State of the channels of mask, which have received the same instructions at the same clocks. */
typedef struct pimhw_i_channel {
    const pimhw_i_rules *rules;
    pimhw_i_listener *sink; /* may be NULL */
    uint64_t mask;
    uint64_t ready[PIMHW_N_COMMANDS];     /* key of the earliest clock by the channel's rows */
    uint64_t now_ck;                      /* the command bus is free from here on */
    uint64_t last_ck;                     /* of the last command */
    uint64_t end_ck;                      /* when all effects are there */
    uint64_t pending_ck;                  /* the same, of all but reads */
    uint64_t answer_ck;                   /* of the last read or SYNC, to the host */
    uint64_t left_ck;                     /* the last instruction left the PIM queue */
    pimhw_i_when hold;                    /* told to wait */
    uint64_t refreshed_ck;                /* no command before this clock */
    uint64_t latest_ck;                   /* of any command */
    uint64_t open;                        /* bit per bank; unless banked, of all or none */
    uint64_t row;                         /* of all banks, unless banked */
    uint64_t due_ck;                      /* the next refresh */
    uint32_t asleep;                      /* number of the state it is in; 0: this */
    uint64_t base_ck;                     /* asleep: its clock */
    uint64_t issued_ck[PIMHW_N_COMMANDS]; /* the last of each */
    uint8_t last_command;                 /* PIMHW_N_COMMANDS before the first */
    bool register_mode;
    bool pairs;  /* CFR 0 is 0: MACs take two neighbouring banks */
    bool banked; /* *banks holds */
    uint32_t newest_run;
    pimhw_i_tally tally;
    uint64_t n_slack; /* of refreshes, or spans with some, so far */
    pimhw_i_slack slack[PIMHW_I_REFRESHES];
    bool idle; /* a span began in a state that does not know last_ck, and nothing issued since */
    uint64_t n_first;
    uint8_t first[PIMHW_I_FIRSTS]; /* reasons of the newest commands after which it was not */
    pimhw_i_run runs[PIMHW_I_QUEUE];
    pimhw_i_banks *banks; /* of its own, as is the next */
    pimhw_i_flow *flow;   /* controllers with gaps */
} pimhw_i_channel;

/* What a command at clock t makes those of one bank wait for; key 0: for t, as the bus does. */
static void pimhw_i_raise(const uint64_t *key, uint64_t *ready, uint64_t t)
{
    for (uint32_t next = PIMHW_CMD_ACT; next < PIMHW_N_COMMANDS; next++)
        ready[next] = pimhw_i_max(ready[next], (t << 8) + key[next]);
}

/* From here on the channel is looked at bank by bank. */
static void pimhw_i_bank_by_bank(pimhw_i_channel *ch)
{
    if (ch->banked) return;
    memset(ch->banks, 0, sizeof *ch->banks);
    ch->banked = true;
    for (uint32_t i = 0; i < PIMHW_MAX_BANKS; i++)
        ch->banks->row[i] = ch->row;
    /* so far nobody asked when commands of one bank may come */
    for (uint32_t last = 0; last < PIMHW_N_COMMANDS; last++)
        if (ch->tally.commands[last] && ch->rules->ruled >> last & 1)
            pimhw_i_raise(ch->rules->key[PIMHW_I_CHANNEL][last], ch->ready, ch->issued_ck[last]);
    if (ch->last_command < PIMHW_N_COMMANDS) ch->banks->clock_ck = ch->last_ck;
}

/* Charges the clocks from the last command to t: first to that command, the rest to reason. */
static void pimhw_i_charge(pimhw_i_channel *ch, uint64_t t, uint32_t reason)
{
    uint64_t span = t - ch->last_ck;
    if (ch->last_command < PIMHW_N_COMMANDS) {
        uint64_t busy = pimhw_i_min(span, ch->rules->occupies[ch->last_command]);
        ch->tally.spent_ck[PIMHW_I_COMMANDS[ch->last_command].spent] += busy;
        span -= busy;
    }
    ch->tally.spent_ck[reason] += span;
    if (!ch->idle) return;
    ch->idle = false;
    ch->first[ch->n_first++ % PIMHW_I_FIRSTS] = (uint8_t)reason;
}

/* The clock that the table allows a command, and the constraint that sets it. */
static pimhw_i_when pimhw_i_table_at(const pimhw_i_channel *ch, uint32_t command, uint32_t bank)
{
    uint64_t key = ch->ready[command];
    if (pimhw_i_one_bank(command)) {
        uint32_t group = bank / ch->rules->config.n_group_banks;
        key = pimhw_i_later(key, ch->banks->group_ready[group][command]);
        key = pimhw_i_later(key, ch->banks->bank_ready[bank][command]);
    }
    pimhw_i_when at = {key >> 8, PIMHW_WAIT_HOST};
    if (key & 255) at.reason = PIMHW_I_CONSTRAINTS[255 - (key & 255)].reason;
    return at;
}

static void pimhw_i_not_before(pimhw_i_when *when, uint64_t ck, uint32_t reason)
{
    if (ck <= when->ck) return;
    when->ck = ck;
    when->reason = reason;
}

/* Earliest clock of a command and what sets it: a constraint, or else bus, host or hub. */
static pimhw_i_when pimhw_i_earliest(const pimhw_i_channel *ch, uint32_t command, uint32_t bank)
{
    pimhw_i_when at = pimhw_i_table_at(ch, command, bank);
    pimhw_i_not_before(&at, ch->now_ck, PIMHW_WAIT_HOST);
    pimhw_i_not_before(&at, ch->hold.ck, ch->hold.reason);
    return at;
}

/* What n commands of one kind, the last at clock `last`, change but the breakdown. */
static void pimhw_i_effects(pimhw_i_channel *ch, const pimhw_i_work *work, uint32_t command,
                            uint64_t last, uint64_t n)
{
    ch->tally.commands[command] += n;
    ch->latest_ck = pimhw_i_max(ch->latest_ck, last);
    ch->end_ck = pimhw_i_max(ch->end_ck, last + ch->rules->completes[command]);
    ch->issued_ck[command] = last;
    if (!(ch->rules->ruled >> command & 1)) return;
    const uint64_t *key = ch->rules->key[PIMHW_I_CHANNEL][command];
    for (uint64_t left = ch->rules->waits[command]; left; left &= left - 1) {
        uint32_t next = pimhw_i_lowest(left);
        ch->ready[next] = pimhw_i_max(ch->ready[next], (last << 8) + key[next]);
    }
    if (ch->banked) pimhw_i_raise(key, ch->ready, last);
    if (pimhw_i_one_bank(command)) {
        uint32_t group = work->bank / ch->rules->config.n_group_banks;
        pimhw_i_raise(ch->rules->key[PIMHW_I_GROUP][command], ch->banks->group_ready[group], last);
        pimhw_i_raise(ch->rules->key[PIMHW_I_BANKS][command], ch->banks->bank_ready[work->bank],
                      last);
    }
    if (!PIMHW_I_COMMANDS[command].switches) return;
    bool one = pimhw_i_one_bank(command), opens = PIMHW_I_OPENS >> command & 1;
    bool active = ch->open != 0;
    uint64_t which = one ? (uint64_t)1 << work->bank : ch->rules->all_banks;
    ch->open = opens ? ch->open | which : ch->open & ~which;
    if (!one && opens) ch->row = work->row;
    for (uint64_t left = opens && ch->banked ? which : 0; left; left &= left - 1)
        ch->banks->row[pimhw_i_lowest(left)] = work->row;
    if (active != (ch->open != 0)) ch->tally.active_ck += active ? last : 0 - last;
}

/* ==========================================================================
 * [H15] CONTROLLERS: in-order, static, ping-pong, DCS, all on the one table; refresh.
 *       Knows instructions and channel state; never stored data.
 * ========================================================================== */

static void pimhw_i_tell(const pimhw_i_channel *ch, uint32_t command, uint64_t t, uint64_t n,
                         const pimhw_i_work *work, uint32_t reason)
{
    bool tiles = command == PIMHW_CMD_WRGB, row = PIMHW_I_COMMANDS[command].needs_row;
    bool opens = PIMHW_I_OPENS >> command & 1, moves = tiles || row;
    pimhw_event e;
    memset(&e, 0, sizeof e);
    e.issue_ck = t;
    e.command = (pimhw_command)command;
    e.bank = pimhw_i_one_bank(command) ? work->bank : 0;
    e.row = opens || row ? (uint32_t)work->row : 0;
    e.column = row ? work->column : 0;
    e.tile = moves ? work->tile : 0;
    e.out = work->out;
    e.index = tiles ? e.tile - work->first_tile : 0;
    e.region = work->region;
    e.entry = work->entry;
    e.fresh = work->fresh && command == work->command;
    e.flags = work->flags;
    e.gpr = work->gpr;
    e.aux = work->aux;
    e.round = work->round;
    e.serial = work->serial;
    e.reason = (pimhw_spent)reason;
    ch->sink->told = true;
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t left = ch->mask; left; left &= left - 1) {
            e.channel = pimhw_i_lowest(left);
            ch->sink->to.command(ch->sink->to.user, &e);
        }
        e.fresh = false;
        e.issue_ck += ch->rules->again_ck[command];
        e.column += row;
        e.tile += moves;
        e.index += tiles;
        e.reason = (pimhw_spent)ch->rules->again_reason[command];
    }
    ch->sink->told = false;
}

/* Charges n commands of one kind from clock t on and tells the sink, in order of issue. */
static void pimhw_i_note(pimhw_i_channel *ch, uint32_t command, uint64_t t, uint64_t n,
                         const pimhw_i_work *work, uint32_t reason)
{
    const pimhw_i_rules *rules = ch->rules;
    uint64_t step = rules->again_ck[command];
    uint64_t busy = pimhw_i_min(step, rules->occupies[command]);
    pimhw_i_charge(ch, t, reason);
    ch->tally.spent_ck[PIMHW_I_COMMANDS[command].spent] += (n - 1) * busy;
    /* refreshes all wait for the same */
    uint32_t again = command == PIMHW_CMD_REF ? reason : rules->again_reason[command];
    ch->tally.spent_ck[again] += (n - 1) * (step - busy);
    ch->last_command = (uint8_t)command;
    ch->last_ck = t + (n - 1) * step;
    if (ch->sink) pimhw_i_tell(ch, command, t, n, work, reason);
}

/* Issues n commands of one kind from clock t on, as close as their own constraint lets them. */
static void pimhw_i_issue(pimhw_i_channel *ch, uint32_t command, uint64_t t, uint64_t n,
                          const pimhw_i_work *work, uint32_t reason)
{
    uint64_t last = t + (n - 1) * ch->rules->again_ck[command];
    pimhw_i_effects(ch, work, command, last, n);
    ch->now_ck = last + 1;
    pimhw_i_note(ch, command, t, n, work, reason);
}

/* The command that must come next, so that the work's own can come. */
static uint32_t pimhw_i_needed(const pimhw_i_channel *ch, const pimhw_i_work *work)
{
    const pimhw_i_banks *b = ch->banks;
    if (!PIMHW_I_COMMANDS[work->command].needs_row) return work->command;
    if (pimhw_i_one_bank(work->command)) {
        if (!(ch->open >> work->bank & 1)) return PIMHW_CMD_ACT;
        return b->row[work->bank] == work->row ? work->command : (uint32_t)PIMHW_CMD_PRE;
    }
    if (!ch->banked && ch->open && ch->row != work->row) return PIMHW_CMD_PREA;
    for (uint64_t left = ch->banked ? ch->open : 0; left; left &= left - 1)
        if (b->row[pimhw_i_lowest(left)] != work->row) return PIMHW_CMD_PREA;
    return ch->open == ch->rules->all_banks ? work->command : (uint32_t)PIMHW_CMD_ACT16;
}

/* Of n commands, step clocks apart from t on: those by clock `last` and before a refresh. */
static uint64_t pimhw_i_until(const pimhw_i_channel *ch, uint64_t t, uint64_t step, uint64_t last,
                              uint64_t n)
{
    last = pimhw_i_min(last, ch->due_ck - 1);
    if (n == 1 || t + (n - 1) * step <= last) return n;
    return (last - t) / step + 1;
}

/* Sends a row command of a refresh, or n REF, once it is due. */
static void pimhw_i_send_due(pimhw_i_channel *ch, uint32_t command, uint64_t n, uint32_t reason)
{
    pimhw_i_work work;
    memset(&work, 0, sizeof work);
    pimhw_i_when rule = pimhw_i_table_at(ch, command, 0);
    if (rule.ck > ch->due_ck) reason = rule.reason;
    pimhw_i_issue(ch, command, pimhw_i_max(rule.ck, ch->due_ck), n, &work, reason);
    if (command == PIMHW_CMD_REF) ch->due_ck += n * ch->rules->config.tREFI;
}

/* A refresh due by clock t, when the next command would issue, goes first: PREA, REF; true. One
 * that waits until the row may be closed takes place then, whenever it is due: after the last
 * command, and before both that clock and t. */
static bool pimhw_i_refresh(pimhw_i_channel *ch, uint64_t t, uint32_t reason)
{
    if (t < ch->due_ck) return false;
    uint64_t tREFI = ch->rules->config.tREFI;
    pimhw_i_slack *slack = &ch->slack[ch->n_slack++ % PIMHW_I_REFRESHES];
    uint64_t closes_ck = ch->open ? pimhw_i_table_at(ch, PIMHW_CMD_PREA, 0).ck : 0;
    bool row = closes_ck > ch->due_ck;
    slack->early_ck = row ? (uint32_t)(ch->due_ck - ch->last_ck - 1) : 0;
    slack->late_ck = row ? (uint32_t)(pimhw_i_min(t, closes_ck - 1) - ch->due_ck) : 0;
    if (ch->open) pimhw_i_send_due(ch, PIMHW_CMD_PREA, 1, reason);
    pimhw_i_send_due(ch, PIMHW_CMD_REF, 1, reason);
    bool rests = !ch->sink && ch->last_ck + tREFI == ch->due_ck;
    if (rests && t >= ch->due_ck) /* all at once */
        pimhw_i_send_due(ch, PIMHW_CMD_REF, (t - ch->due_ck) / tREFI + 1, reason);
    ch->refreshed_ck = ch->last_ck + ch->rules->occupies[PIMHW_CMD_REF];
    return true;
}

/* Issues a command at clock t, or the change of mode it needs; true if it was the command. */
static bool pimhw_i_send(pimhw_i_channel *ch, uint32_t command, uint64_t t, uint64_t n,
                         const pimhw_i_work *work, uint32_t reason)
{
    bool changes = ch->rules->modes && ch->register_mode != PIMHW_I_COMMANDS[command].register_mode;
    if (changes) {
        /* the mode changes in the clock in which the command itself could have gone */
        command = PIMHW_CMD_TMOD;
        n = 1;
        ch->register_mode = !ch->register_mode;
    }
    pimhw_i_issue(ch, command, t, n, work, reason);
    return !changes;
}

static void pimhw_i_completed(pimhw_i_channel *ch, uint32_t command)
{
    uint64_t done = ch->last_ck + ch->rules->completes[command];
    bool read = PIMHW_I_READS >> command & 1;
    /* answers leave in the order of the reads, one a clock */
    if (read) ch->answer_ck = pimhw_i_max(done, ch->answer_ck + 1);
    if (!read) ch->pending_ck = pimhw_i_max(ch->pending_ck, done);
    ch->tally.n_answers += read;
}

/* The oldest access whose next command may issue by clock t; *soonest: the first clock of any. */
static int pimhw_i_best(const pimhw_i_channel *ch, const pimhw_i_accesses *list, uint64_t t,
                        uint64_t *soonest)
{
    int best = -1;
    *soonest = UINT64_MAX;
    for (uint32_t i = 0; i < list->n; i++) {
        const pimhw_i_work *work = &list->at[i];
        uint64_t ready = pimhw_i_earliest(ch, pimhw_i_needed(ch, work), work->bank).ck;
        *soonest = pimhw_i_min(*soonest, ready);
        if (ready > t) continue;
        if (best < 0 || list->at[i].serial < list->at[best].serial) best = (int)i;
    }
    return best;
}

/* Whether an active access waits for this very bank: then its row is not closed. */
static bool pimhw_i_guarded(const pimhw_i_channel *ch, uint32_t command, uint32_t bank, int self)
{
    if (command != PIMHW_CMD_PRE) return false;
    for (uint32_t i = 0; i < ch->banks->active.n; i++)
        if ((int)i != self && ch->banks->active.at[i].bank == bank) return true;
    return false;
}

/* What a command does to columns of a bank: 1 reads, 2 writes. */
static uint32_t pimhw_i_touches(const pimhw_i_channel *ch, const pimhw_i_work *work, uint32_t bank)
{
    uint32_t command = work->command, of_group = bank % ch->rules->config.n_group_banks;
    bool pair = command == PIMHW_CMD_MAC && ch->pairs;
    if (command == PIMHW_CMD_EWMUL16) return of_group < 2 ? 1 : of_group == 2 ? 2 : 0;
    if (command == PIMHW_CMD_MAC16) return 1;
    if (command == PIMHW_CMD_WRA16) return 2;
    if ((work->bank | pair) != (bank | pair)) return 0;
    if (PIMHW_I_BANK_WRITES >> command & 1) return 2;
    return PIMHW_I_BANK_READS >> command & 1 ? 1 : 0;
}

/* A command goes: whether older accesses of its column, one of them a write, still wait. */
static void pimhw_i_overtake(pimhw_i_channel *ch, const pimhw_i_work *work)
{
    pimhw_i_banks *b = ch->banks;
    const pimhw_i_accesses *lists[] = {&b->active, &b->queue[0], &b->queue[1]};
    for (uint32_t i = 0; i < 3 && ch->sink && !b->hazard; i++)
        for (uint32_t k = 0; k < lists[i]->n; k++) {
            const pimhw_i_work *other = &lists[i]->at[k];
            uint32_t one = pimhw_i_touches(ch, work, other->bank);
            uint32_t both = one | pimhw_i_touches(ch, other, other->bank);
            bool same = other->row == work->row && other->column == work->column;
            if (!same || other->serial >= work->serial || !one || !(both & 2)) continue;
            b->hazard = "channel %u: an access to bank %u, row %u, column %u was overtaken";
            b->late = *other;
        }
}

static void pimhw_i_serve(pimhw_i_channel *ch, pimhw_i_accesses *list, int at, uint64_t t)
{
    pimhw_i_banks *b = ch->banks;
    pimhw_i_work work = list->at[at];
    uint32_t next = pimhw_i_needed(ch, &work);
    if (pimhw_i_guarded(ch, next, work.bank, list == &b->active ? at : -1)) return;
    pimhw_i_when ready = pimhw_i_earliest(ch, next, work.bank);
    uint32_t reason = ready.ck < t ? (uint32_t)PIMHW_WAIT_HOST : ready.reason;
    if (pimhw_i_refresh(ch, t, reason)) {
        b->clock_ck--; /* this clock is looked at again */
        return;
    }
    if (!pimhw_i_send(ch, next, t, 1, &work, reason)) return;
    bool done = next == work.command;
    if (done) pimhw_i_completed(ch, next);
    if (done) pimhw_i_overtake(ch, &work);
    if (!done && (next != PIMHW_CMD_ACT || list == &b->active || b->active.n == PIMHW_I_QUEUE))
        return;
    uint32_t behind = --list->n - (uint32_t)at;
    memmove(&list->at[at], &list->at[at + 1], behind * sizeof work);
    if (!done) b->active.at[b->active.n++] = work;
}

/* Serves the ordinary queues and the active list clock by clock; the PIM queue is empty. */
static void pimhw_i_advance(pimhw_i_channel *ch, uint64_t until_ck)
{
    pimhw_i_banks *b = ch->banks;
    uint64_t soonest;
    ch->hold.ck = 0;
    while (b->clock_ck < until_ck && b->active.n + b->queue[0].n + b->queue[1].n > 0) {
        uint64_t t = ++b->clock_ck;
        pimhw_i_accesses *list = &b->active;
        int best = pimhw_i_best(ch, list, t, &soonest);
        if (best < 0) {
            /* a burst of writes, or no reads */
            uint32_t size = ch->rules->config.queue_entries - 1, writes = b->queue[1].n;
            bool goes_on = b->write_mode && 10 * writes >= 2 * size;
            b->write_mode = goes_on || 10 * writes > 8 * size || b->queue[0].n == 0;
            list = &b->queue[b->write_mode];
            best = pimhw_i_best(ch, list, t, &soonest);
        }
        if (best >= 0) pimhw_i_serve(ch, list, best, t);
    }
    b->clock_ck = pimhw_i_max(b->clock_ck, until_ck);
}

/* An active access that may go by clock t, or must before the command, goes first; else false. */
static bool pimhw_i_active_first(pimhw_i_channel *ch, uint32_t command, uint32_t bank, uint64_t t)
{
    pimhw_i_banks *b = ch->banks;
    uint64_t hold = ch->hold.ck, soonest;
    if (!ch->banked || b->active.n == 0) return false;
    ch->hold.ck = b->clock_ck + 1;
    pimhw_i_best(ch, &b->active, t, &soonest);
    bool first = soonest <= t || pimhw_i_guarded(ch, command, bank, -1);
    if (first) {
        int best = pimhw_i_best(ch, &b->active, soonest, &soonest);
        pimhw_i_serve(ch, &b->active, best, soonest);
        b->clock_ck = ch->last_ck;
    }
    ch->hold.ck = hold;
    return first;
}

/* From a command of a stream to the next of its class, or of the other of W and R. */
static uint64_t pimhw_i_gap(const pimhw_i_rules *rules, const pimhw_i_last *last,
                            const pimhw_i_work *work)
{
    uint32_t group = rules->config.n_group_banks;
    uint64_t gap = rules->gap_ck[last->command][work->command];
    uint64_t in_group = rules->key[PIMHW_I_GROUP][last->command][work->command] >> 8;
    return in_group > gap && last->bank / group == work->bank / group ? in_group : gap;
}

static void pimhw_i_remember(pimhw_i_last *last, const pimhw_i_work *work, uint64_t ck)
{
    pimhw_i_last its = {ck, (uint8_t)work->command, (uint8_t)work->bank, true};
    *last = its;
}

/* The first n commands of a record are over. */
static void pimhw_i_take_off(pimhw_i_record *record, uint32_t n)
{
    record->n -= n;
    record->work.tile += n;
    record->work.column += n;
    record->work.fresh = false;
}

/* Static: the next command of a work, after the last one's time where the class changes. */
static pimhw_i_when pimhw_i_static_at(const pimhw_i_channel *ch, const pimhw_i_work *work,
                                      uint32_t *next)
{
    const pimhw_i_rules *rules = ch->rules;
    const pimhw_i_last *last = &ch->flow->last[0];
    uint32_t of_class = rules->class_of[work->command];
    bool rows = of_class == PIMHW_I_M && rules->config.row_opening != PIMHW_ROW_HIDDEN;
    pimhw_i_when at = ch->hold;
    *next = rows ? pimhw_i_needed(ch, work) : work->command;
    if (last->any) {
        uint32_t its = rules->class_of[last->command];
        uint64_t exec = rules->completes[last->command];
        uint64_t gap = its == of_class ? pimhw_i_gap(rules, last, work) : exec;
        bool head = *next != work->command && rules->config.row_opening == PIMHW_ROW_HEAD;
        pimhw_i_not_before(&at, last->ck + (head ? 0 : gap), PIMHW_I_GAP_REASON[its]);
    }
    pimhw_i_when rule = {ch->refreshed_ck, PIMHW_WAIT_REFRESH};
    if (rows) rule = pimhw_i_table_at(ch, *next, work->bank);
    pimhw_i_not_before(&at, rule.ck, rule.reason);
    return at;
}

/* Does n times the work of one instruction, in the order of the program. */
static void pimhw_i_in_order(pimhw_i_channel *ch, pimhw_i_work *work, uint64_t n)
{
    bool gaps = ch->rules->config.controller == PIMHW_STATIC_GAPS &&
                ch->rules->class_of[work->command] != PIMHW_I_OTHER;
    while (n > 0) {
        uint32_t next = gaps ? 0 : pimhw_i_needed(ch, work);
        pimhw_i_when at =
            gaps ? pimhw_i_static_at(ch, work, &next) : pimhw_i_earliest(ch, next, work->bank);
        if (pimhw_i_active_first(ch, next, work->bank, at.ck)) continue;
        if (pimhw_i_refresh(ch, at.ck, at.reason)) continue;
        bool alone = !ch->banked || ch->banks->active.n == 0;
        uint64_t together = next == work->command && alone ? n : 1;
        together = pimhw_i_until(ch, at.ck, ch->rules->again_ck[next], UINT64_MAX, together);
        if (!pimhw_i_send(ch, next, at.ck, together, work, at.reason)) continue;
        if (next != work->command) continue;
        if (!alone) pimhw_i_overtake(ch, work);
        n -= together;
        if (gaps) pimhw_i_remember(&ch->flow->last[0], work, ch->last_ck);
        work->tile += (uint32_t)together;
        work->column += (uint32_t)together;
        pimhw_i_run run = {ch->last_ck, ch->rules->again_ck[next], together};
        ch->newest_run = (ch->newest_run + 1) % PIMHW_I_QUEUE;
        ch->runs[ch->newest_run] = run;
    }
    ch->left_ck = ch->last_ck;
    if (ch->banked) ch->banks->clock_ck = ch->last_ck;
    pimhw_i_completed(ch, work->command);
}

static bool pimhw_i_has_tiles(uint32_t command)
{
    return command == PIMHW_CMD_WRGB || command == PIMHW_CMD_MAC16 || command == PIMHW_CMD_MAC;
}

/* Whether a command of the streams concerns an output entry. */
static bool pimhw_i_has_out(uint32_t command)
{
    return command != PIMHW_CMD_WRGB && command != PIMHW_CMD_EWMUL16;
}

/* When a stream's work, or next, which opens its row, may issue. first: of a phase (ping-pong). */
static pimhw_i_when pimhw_i_stream_at(const pimhw_i_channel *ch, uint32_t stream,
                                      const pimhw_i_work *work, uint32_t next, bool first)
{
    const pimhw_i_flow *f = ch->flow;
    const pimhw_i_last *last = &f->last[stream];
    bool dcs = ch->rules->config.controller == PIMHW_DCS, mac = stream == PIMHW_I_MAC,
         row = next != work->command;
    const pimhw_i_when *start = row && first ? &f->start_before : &f->start;
    pimhw_i_when at = ch->hold;
    if (dcs) pimhw_i_not_before(&at, f->dispatch_ck, PIMHW_WAIT_HOST);
    if (!row && last->any)
        pimhw_i_not_before(&at, last->ck + pimhw_i_gap(ch->rules, last, work),
                           PIMHW_I_GAP_REASON[ch->rules->class_of[next]]);
    uint64_t tile = 0, out = 0; /* clock << 8 | reason */
    if (!row && dcs && pimhw_i_has_tiles(next))
        tile = (mac ? f->tile_mac : f->tile_write)[work->tile];
    if (!row && dcs && pimhw_i_has_out(next)) out = (mac ? f->out_mac : f->out_io)[work->out];
    pimhw_i_not_before(&at, tile >> 8, (uint32_t)(tile & 255));
    pimhw_i_not_before(&at, out >> 8, (uint32_t)(out & 255));
    if (!dcs) pimhw_i_not_before(&at, start->ck, start->reason);
    if (row) pimhw_i_not_before(&at, f->mac_stream_ck, PIMHW_WAIT_OPERAND);
    pimhw_i_when rule = {ch->refreshed_ck, PIMHW_WAIT_REFRESH};
    if (mac) rule = pimhw_i_table_at(ch, next, work->bank);
    pimhw_i_not_before(&at, rule.ck, rule.reason);
    return at;
}

/* -- DCS -- */

/* Charges and tells what no later command of a stream can precede: they come from a clock on. */
static void pimhw_i_merge(pimhw_i_channel *ch, uint64_t io_ck, uint64_t mac_ck)
{
    for (;;) {
        uint64_t at[PIMHW_I_STREAMS] = {io_ck, mac_ck};
        for (uint32_t s = 0; s < PIMHW_I_STREAMS; s++) {
            const pimhw_i_ring *r = &ch->flow->ring[s];
            if (r->begin != r->end) at[s] = r->key[r->begin % PIMHW_I_RING] >> 16;
        }
        bool mac = at[PIMHW_I_MAC] <= at[PIMHW_I_IO];
        pimhw_i_ring *next = &ch->flow->ring[mac];
        if (next->begin == next->end) return;
        uint32_t slot = next->begin++ % PIMHW_I_RING, command = next->key[slot] >> 8 & 255, n = 1;
        uint64_t key = next->key[slot], step = ch->rules->again_ck[command] << 16;
        /* those of a run that come before the other stream's, at once */
        uint64_t again = (key & ~(uint64_t)255) + step + ch->rules->again_reason[command];
        uint64_t until = at[!mac] - !mac;
        while (!ch->sink && next->begin != next->end && again >> 16 <= until &&
               next->key[next->begin % PIMHW_I_RING] == again)
            next->begin++, n++, again += step;
        const pimhw_i_work *work = &ch->flow->works[mac * PIMHW_I_RING + slot];
        pimhw_i_note(ch, command, key >> 16, n, work, (uint32_t)(key & 255));
    }
}

/* A command enters its queue: not before the 128th before it left. */
static void pimhw_i_dispatch(pimhw_i_flow *f, uint32_t stream, uint64_t ahead)
{
    uint64_t left = f->left_ck[stream][(f->n_left[stream] + ahead) % PIMHW_I_QUEUED];
    f->dispatch_ck = pimhw_i_max(f->dispatch_ck, left);
}

/* Whether an entry of a work's next command waits for one that waits for a refresh. */
static bool pimhw_i_dcs_waits(const pimhw_i_flow *f, const pimhw_i_work *work)
{
    bool tiles = pimhw_i_has_tiles(work->command), out = pimhw_i_has_out(work->command);
    for (uint32_t i = 0; i < f->n_records; i++) {
        const pimhw_i_work *other = &f->records[i].work;
        bool tile = work->tile - other->tile < f->records[i].n; /* of a lower one: huge */
        if (tiles && tile && pimhw_i_has_tiles(other->command)) return true;
        if (out && work->out == other->out && pimhw_i_has_out(other->command)) return true;
    }
    return false;
}

/* n commands get their clocks, a gap apart; key: of the first, as in the ring. */
static void pimhw_i_dcs_put(const pimhw_i_channel *ch, uint32_t stream, uint64_t key,
                            const pimhw_i_work *work, uint32_t n, uint64_t gap)
{
    pimhw_i_ring *ring = &ch->flow->ring[stream];
    PIMHW_ASSERT(ring->end + n - ring->begin <= PIMHW_I_RING);
    for (uint32_t i = 0; i < n; i++)
        ring->key[(ring->end + i) % PIMHW_I_RING] = key + i * (gap << 16);
    for (uint32_t i = 0; i < n && ch->sink; i++) {
        pimhw_i_work *to = &ch->flow->works[stream * PIMHW_I_RING + (ring->end + i) % PIMHW_I_RING];
        *to = *work;
        to->tile += i;
        to->column += i;
    }
    ring->end += n;
}

/* n commands of a record get their clocks, a gap apart, and what they mean for their entries; key:
 * of the first, as in the ring. */
static void pimhw_i_dcs_issue(pimhw_i_channel *ch, pimhw_i_record *record, uint64_t key, uint32_t n,
                              uint64_t gap)
{
    const pimhw_i_rules *rules = ch->rules;
    pimhw_i_flow *f = ch->flow;
    pimhw_i_work *work = &record->work;
    const uint32_t stream = record->stream, command = work->command, n_left = f->n_left[stream];
    const uint32_t of_class = rules->class_of[command], reason = PIMHW_I_GAP_REASON[of_class];
    const bool mac = of_class == PIMHW_I_M, tiles = pimhw_i_has_tiles(command);
    const uint64_t ck = key >> 16, last = ck + (n - 1) * gap, exec = rules->completes[command];
    const uint64_t write = mac && rules->config.early_tiles ? rules->config.tCCD_S : exec;
    pimhw_i_dcs_put(ch, stream, key, work, n, gap);
    pimhw_i_effects(ch, work, command, last, n);
    for (uint32_t i = 0; i < n; i++)
        f->left_ck[stream][(n_left + i) % PIMHW_I_QUEUED] = ck + i * gap;
    f->n_left[stream] = n_left + n;
    for (uint32_t i = 0; i < n && tiles; i++)
        f->tile_write[work->tile + i] = (ck + write + i * gap) << 8 | reason;
    for (uint32_t i = 0; i < n && command == PIMHW_CMD_WRGB; i++)
        f->tile_mac[work->tile + i] = (ck + exec + i * gap) << 8 | reason;
    if (mac) f->mac_stream_ck = last;
    if (pimhw_i_has_out(command)) {
        f->out_io[work->out] = (last + exec) << 8 | reason;
        f->out_mac[work->out] = (last + (mac && rules->config.is_mac ? 0 : exec)) << 8 | reason;
    }
    pimhw_i_remember(&f->last[stream], work, last);
    if (tiles) work->tile += n;
    work->column += n;
    record->n -= n;
}

/* Commands of a record that follow the one before by the gap of their class, as pimhw_i_stream_at
 * would have it: nothing else holds them. */
static void pimhw_i_dcs_run(pimhw_i_channel *ch, pimhw_i_record *record)
{
    const pimhw_i_rules *rules = ch->rules;
    const uint32_t stream = record->stream, command = record->work.command;
    const bool mac = stream == PIMHW_I_MAC;
    pimhw_i_flow *f = ch->flow;
    const pimhw_i_work *work = &record->work;
    bool plain = f->n_records == 0 && !ch->banked && (!mac || rules->config.is_mac);
    if (!plain || !pimhw_i_has_tiles(command)) return;
    const uint64_t *ready = (mac ? f->tile_mac : f->tile_write) + work->tile;
    const uint64_t gap = pimhw_i_gap(rules, &f->last[stream], work);
    const uint64_t first_ck = f->last[stream].ck + gap;
    const uint64_t reason = PIMHW_I_GAP_REASON[rules->class_of[command]];
    uint64_t ck = first_ck;
    uint32_t n = 0;
    for (; n < record->n && ck < ch->due_ck && ready[n] >> 8 <= ck; n++)
        ck += gap;
    if (n == 0) return;
    pimhw_i_dispatch(f, stream, n - 1);
    pimhw_i_dcs_issue(ch, record, first_ck << 16 | command << 8 | reason, n, gap);
}

/* Issues commands of a record that come before the next refresh; the others wait for it, and so do
 * all of a stream of which some wait. */
static void pimhw_i_dcs_some(pimhw_i_channel *ch, pimhw_i_record *record)
{
    uint32_t stream = record->stream;
    pimhw_i_flow *f = ch->flow;
    const pimhw_i_work *work = &record->work;
    while (record->n > 0 && f->n_blocked[stream] == 0) {
        pimhw_i_dispatch(f, stream, 0);
        uint32_t next = pimhw_i_needed(ch, work);
        pimhw_i_when at = pimhw_i_stream_at(ch, stream, work, next, false);
        if (next == work->command && pimhw_i_dcs_waits(f, work)) at.ck = UINT64_MAX;
        if (at.ck >= ch->due_ck) {
            f->blocked_at[stream] = at;
            break;
        }
        uint64_t key = at.ck << 16 | next << 8 | at.reason;
        if (next == work->command) {
            pimhw_i_dcs_issue(ch, record, key, 1, 0);
            pimhw_i_dcs_run(ch, record);
            continue;
        }
        pimhw_i_dcs_put(ch, stream, key, work, 1, 0);
        pimhw_i_effects(ch, work, next, at.ck, 1);
        f->mac_stream_ck = at.ck;
    }
    if (record->n == 0) return;
    f->n_blocked[stream] += record->n;
    pimhw_i_dispatch(f, stream, f->n_blocked[stream] - 1); /* the last */
    f->records[f->n_records++] = *record;
}

/* All that could issue before the refresh has: it takes place, then both streams go on. */
static void pimhw_i_dcs_refresh(pimhw_i_channel *ch)
{
    pimhw_i_flow *f = ch->flow;
    const pimhw_i_when *io = &f->blocked_at[PIMHW_I_IO], *mac = &f->blocked_at[PIMHW_I_MAC];
    bool io_first = !f->n_blocked[PIMHW_I_MAC] || (f->n_blocked[PIMHW_I_IO] && io->ck < mac->ck);
    pimhw_i_merge(ch, UINT64_MAX, UINT64_MAX);
    pimhw_i_refresh(ch, io_first ? io->ck : mac->ck, io_first ? io->reason : mac->reason);
    f->mac_stream_ck = ch->last_ck;
    uint32_t n = f->n_records;
    f->n_records = f->n_blocked[PIMHW_I_IO] = f->n_blocked[PIMHW_I_MAC] = 0;
    for (uint32_t i = 0; i < n; i++) {
        pimhw_i_record record = f->records[i];
        pimhw_i_dcs_some(ch, &record);
    }
}

/* Two queues, each in order; a stream whose next command meets a refresh waits for the other. What
 * has issued is told after as many commands as a queue holds. */
static void pimhw_i_dcs(pimhw_i_channel *ch, const pimhw_i_work *work, uint64_t n)
{
    pimhw_i_flow *f = ch->flow;
    const uint32_t stream = ch->rules->class_of[work->command] == PIMHW_I_M;
    pimhw_i_record left = {*work, 0, (uint32_t)n, stream};
    while (left.n > 0) {
        pimhw_i_record part = left;
        part.n = (uint32_t)pimhw_i_min(left.n, PIMHW_I_QUEUED - f->n_blocked[stream]);
        pimhw_i_take_off(&left, part.n);
        pimhw_i_dcs_some(ch, &part);
        while ((f->n_blocked[0] > 0 && f->n_blocked[1] > 0) ||
               (left.n > 0 && f->n_blocked[stream] == PIMHW_I_QUEUED))
            pimhw_i_dcs_refresh(ch);
        uint64_t from = pimhw_i_max(f->dispatch_ck, ch->hold.ck);
        uint64_t io_ck = pimhw_i_max(f->last[PIMHW_I_IO].ck, from);
        uint64_t mac_ck = pimhw_i_max(f->mac_stream_ck, from);
        pimhw_i_merge(ch, f->n_blocked[PIMHW_I_IO] ? ch->due_ck : io_ck,
                      f->n_blocked[PIMHW_I_MAC] ? ch->due_ck : mac_ck);
    }
}

/* -- ping-pong -- */

static pimhw_i_phase *pimhw_i_pp_phase(pimhw_i_flow *f, uint64_t k)
{
    return &f->phase[k % 3];
}

/* A list of records that commands leave one after the other. */
typedef struct pimhw_i_cursor {
    pimhw_i_record *record;
    uint32_t n;
} pimhw_i_cursor;

/* The start of the phase after: all of this one is done. */
static pimhw_i_when pimhw_i_pp_next_start(const pimhw_i_flow *f)
{
    pimhw_i_when next = f->start;
    for (uint32_t c = PIMHW_I_M; c < PIMHW_I_M + 3; c++) /* M, R, W */
        pimhw_i_not_before(&next, f->done_ck[c % 3], PIMHW_I_GAP_REASON[c % 3]);
    return next;
}

/* The first n commands of a stream's record have issued, the last at clock `last`. */
static void pimhw_i_pp_did(pimhw_i_flow *f, const pimhw_i_rules *rules, uint32_t stream,
                           pimhw_i_cursor *from, uint64_t last, uint64_t n)
{
    const pimhw_i_work *work = &from->record->work;
    pimhw_i_remember(&f->last[stream], work, last);
    f->done_ck[rules->class_of[work->command]] = last + rules->completes[work->command];
    pimhw_i_take_off(from->record, (uint32_t)n);
    bool over = from->record->n == 0;
    from->record += over;
    from->n -= over;
}

/* Streams that take turns, each as far from its last command as from the next, go on so, before a
 * refresh, until a record is over, at once, if nobody listens; at: their next commands. False: they
 * do not. */
static bool pimhw_i_pp_turns(pimhw_i_channel *ch, pimhw_i_cursor *const from[PIMHW_I_STREAMS],
                             const pimhw_i_when at[PIMHW_I_STREAMS])
{
    const pimhw_i_rules *rules = ch->rules;
    const uint32_t a = at[PIMHW_I_MAC].ck <= at[PIMHW_I_IO].ck ? PIMHW_I_MAC : PIMHW_I_IO, b = !a;
    const uint64_t apart = at[b].ck - at[a].ck, step = at[b].ck - ch->last_ck;
    /* what comes after the last of a record may come at once, as a row */
    uint64_t n = pimhw_i_min(from[a]->record->n - 1u, from[b]->record->n);
    uint32_t command[PIMHW_I_STREAMS];
    for (uint32_t s = 0; s < PIMHW_I_STREAMS; s++) {
        const pimhw_i_last *last = &ch->flow->last[s];
        uint32_t c = command[s] = from[s]->record->work.command;
        bool on = last->any && last->command == c && last->ck + step == at[s].ck;
        if (!on || rules->again_ck[c] != step || rules->again_reason[c] != at[s].reason)
            return false;
    }
    if (ch->idle || ch->last_command != command[b]) return false;
    if (n == 0 || apart >= step || at[b].ck >= ch->due_ck) return false;
    n = pimhw_i_until(ch, at[b].ck, step, UINT64_MAX, n);
    for (uint32_t s = 0; s < PIMHW_I_STREAMS; s++) {
        uint64_t to_next = s == a ? apart : step - apart, last = at[s].ck + (n - 1) * step;
        uint64_t busy = pimhw_i_min(to_next, rules->occupies[command[s]]);
        ch->tally.spent_ck[PIMHW_I_COMMANDS[command[s]].spent] += n * busy;
        ch->tally.spent_ck[at[!s].reason] += n * (to_next - busy);
        pimhw_i_effects(ch, &from[s]->record->work, command[s], last, n);
        pimhw_i_pp_did(ch->flow, rules, s, from[s], last, n);
    }
    ch->last_ck = at[b].ck + (n - 1) * step;
    ch->now_ck = ch->last_ck + 1;
    ch->flow->mac_stream_ck = ch->flow->last[PIMHW_I_MAC].ck;
    return true;
}

/* One phase: its MACs beside its reads and the next one's writes, whose first row may open. */
static void pimhw_i_pp_run(pimhw_i_channel *ch, pimhw_i_phase *phase, pimhw_i_phase *after)
{
    pimhw_i_cursor mac = {phase->m, phase->n_m}, reads = {phase->r, phase->n_r};
    pimhw_i_cursor writes = {after->w, after->n_w};
    const pimhw_i_work *ahead = after->n_m ? &after->m[0].work : NULL;
    pimhw_i_flow *f = ch->flow;
    const pimhw_i_when never = {UINT64_MAX, 0};
    pimhw_i_when m = never, i = never;
    bool first = true, mac_moved = true, io_moved = true;
    uint32_t next = 0;
    for (;;) {
        pimhw_i_cursor *io = reads.n ? &reads : &writes;
        const pimhw_i_work *work = mac.n ? &mac.record->work : ahead;
        if (mac_moved) {
            next = work ? pimhw_i_needed(ch, work) : 0;
            bool any = mac.n || (work && next != work->command);
            m = any ? pimhw_i_stream_at(ch, PIMHW_I_MAC, work, next, mac.n && first) : never;
        }
        const pimhw_i_work *its = io->n ? &io->record->work : NULL;
        if (io_moved) i = its ? pimhw_i_stream_at(ch, PIMHW_I_IO, its, its->command, false) : never;
        if (!mac.n && !io->n && m.ck >= pimhw_i_pp_next_start(f).ck) break;
        bool mac_first = m.ck <= i.ck;
        const pimhw_i_when *at = mac_first ? &m : &i;
        if (!ch->sink && mac.n && io->n && next == work->command) {
            pimhw_i_cursor *const both[PIMHW_I_STREAMS] = {io, &mac};
            const pimhw_i_when both_at[PIMHW_I_STREAMS] = {i, m};
            if (pimhw_i_pp_turns(ch, both, both_at)) {
                mac_moved = io_moved = true;
                first = false;
                continue;
            }
        }
        /* a command of one stream moves nothing of the other */
        mac_moved = mac_first, io_moved = !mac_first;
        if (pimhw_i_refresh(ch, at->ck, at->reason)) {
            mac_moved = io_moved = true;
            f->mac_stream_ck = ch->last_ck;
            continue;
        }
        pimhw_i_cursor *from = mac_first ? &mac : io;
        if (!mac_first) work = its;
        uint32_t command = mac_first ? next : work->command;
        bool opens = command != work->command;
        uint64_t step = ch->rules->again_ck[command], last = mac_first ? i.ck : m.ck - 1;
        uint64_t k = opens ? 1 : pimhw_i_until(ch, at->ck, step, last, from->record->n);
        pimhw_i_issue(ch, command, at->ck, k, work, at->reason);
        if (mac_first) f->mac_stream_ck = ch->last_ck;
        if (opens) continue;
        pimhw_i_pp_did(f, ch->rules, mac_first ? PIMHW_I_MAC : PIMHW_I_IO, from, ch->last_ck, k);
        first = first && !mac_first;
    }
    f->start_before = f->start;
    f->start = pimhw_i_pp_next_start(f);
}

/* Ends the phase being filled; the one before it can run now, for all beside it is known. */
static void pimhw_i_pp_cut(pimhw_i_channel *ch)
{
    pimhw_i_flow *f = ch->flow;
    pimhw_i_phase *full = pimhw_i_pp_phase(f, f->filling);
    pimhw_i_phase *before = pimhw_i_pp_phase(f, f->filling + 2);
    pimhw_i_pp_run(ch, before, full);
    before->n_r = before->n_m = before->outs = full->n_w = 0;
    f->filling++;
}

#define PIMHW_I_NO_ENTRY UINT32_MAX
#define PIMHW_I_ANY_OUT  UINT32_MAX
#define PIMHW_I_NO_OUT   (UINT32_MAX - 1)

/* Work on a sum that goes on, or begins in the phase being filled, gets an accumulator that is free
 * by then; none, if the program holds too many, or goes on with a sum whose place another took. */
static void pimhw_i_pp_enter(const pimhw_i_channel *ch, pimhw_i_work *work)
{
    pimhw_i_flow *f = ch->flow;
    uint64_t *of_out = &f->entry_of[work->out];
    if (!ch->sink) return;
    work->fresh = *of_out == 0;
    uint32_t entry = work->fresh ? 0 : (uint32_t)*of_out - 1, n = ch->rules->outs;
    while (work->fresh && entry < n && f->entry_free[entry] > f->filling)
        entry++;
    work->entry = entry < n ? entry : PIMHW_I_NO_ENTRY;
    if (entry >= n) return;
    for (uint32_t i = 0; i < n && work->fresh; i++)
        if (f->entry_of[i] == (uint64_t)entry + 1) f->entry_of[i] = (uint64_t)PIMHW_I_NO_ENTRY + 1;
    f->entry_free[entry] = UINT64_MAX;
    *of_out = (uint64_t)entry + 1;
}

/* The sum of an output has been read: after the phase of that another may take its accumulator.
 * ends: that was all of it, else it may still go on before that. */
static void pimhw_i_pp_leave(pimhw_i_flow *f, uint32_t out, bool ends)
{
    if (!f->entry_of[out]) return;
    uint64_t entry = f->entry_of[out] - 1;
    if (entry != PIMHW_I_NO_ENTRY && f->entry_free[entry] == UINT64_MAX)
        f->entry_free[entry] = pimhw_i_max(f->filling, f->sums[out].phase) + 1;
    if (ends) f->entry_of[out] = 0;
}

/* Whether a write that waits is for MACs of a group, or for the output they add to. */
static bool pimhw_i_pp_claims(const pimhw_i_record *write, uint64_t group, uint32_t out)
{
    if (write->work.command == PIMHW_CMD_WRGB) return write->group <= group;
    return write->work.out == out || out == PIMHW_I_ANY_OUT;
}

/* Such writes go with the phase being filled; a bias takes its accumulator then. */
static void pimhw_i_pp_claim(pimhw_i_channel *ch, uint64_t group, uint32_t out)
{
    pimhw_i_flow *f = ch->flow;
    uint32_t left = 0, n = 0;
    for (uint32_t i = 0; i < f->n_records; i++)
        n += pimhw_i_pp_claims(&f->records[i], group, out);
    if (n == 0) return;
    if (pimhw_i_pp_phase(f, f->filling)->n_w + n > PIMHW_I_RECORDS) pimhw_i_pp_cut(ch);
    pimhw_i_phase *phase = pimhw_i_pp_phase(f, f->filling);
    for (uint32_t i = 0; i < f->n_records; i++) {
        pimhw_i_work *work = &f->records[i].work;
        bool claimed = pimhw_i_pp_claims(&f->records[i], group, out);
        if (claimed && work->command == PIMHW_CMD_WRMAC16) pimhw_i_pp_enter(ch, work);
        *(claimed ? &phase->w[phase->n_w++] : &f->records[left++]) = f->records[i];
    }
    f->n_records = left;
}

/* Runs all phases; the next one starts anew. */
static void pimhw_i_pp_finish(pimhw_i_channel *ch)
{
    pimhw_i_flow *f = ch->flow;
    if (!f->begun) return;
    pimhw_i_pp_cut(ch);
    pimhw_i_pp_cut(ch);
    pimhw_i_pp_claim(ch, UINT64_MAX, PIMHW_I_ANY_OUT); /* beside the last reads */
    pimhw_i_pp_cut(ch);
    memset(f->tile_group, 0, ch->rules->config.in_entries * sizeof f->tile_group[0]);
    memset(f->sums, 0, ch->rules->outs * sizeof f->sums[0]);
    for (uint32_t i = 0; i < ch->rules->outs; i++)
        if (f->entry_free[i] < UINT64_MAX) f->entry_free[i] = 0;
    f->start_before = f->start;
    f->filling = f->group = f->used_group = 0;
    f->group_tiles = 0;
    f->begun = f->mac_since = false;
}

static void pimhw_i_pp_wait(pimhw_i_channel *ch, const pimhw_i_work *work, uint32_t n,
                            uint64_t group)
{
    pimhw_i_flow *f = ch->flow;
    pimhw_i_record record = {*work, group, n, 0};
    if (f->n_records == PIMHW_I_RECORDS) {
        pimhw_i_pp_cut(ch);
        pimhw_i_pp_claim(ch, UINT64_MAX, PIMHW_I_ANY_OUT);
    }
    f->records[f->n_records++] = record;
}

/* WR_GB: cut into groups that a region holds. */
static void pimhw_i_pp_write(pimhw_i_channel *ch, pimhw_i_work *work, uint64_t n)
{
    pimhw_i_flow *f = ch->flow;
    while (n > 0) {
        if (f->group == f->used_group || f->mac_since || f->group_tiles == ch->rules->in_region) {
            f->group++;
            f->group_tiles = 0;
            f->mac_since = false;
        }
        uint32_t k = (uint32_t)pimhw_i_min(n, ch->rules->in_region - f->group_tiles);
        work->region = f->group & 1;
        pimhw_i_pp_wait(ch, work, k, f->group);
        for (uint32_t i = 0; i < k; i++) {
            f->tile_group[work->tile + i] = f->group;
            f->tile_region[work->tile + i] = f->group & 1;
        }
        f->group_tiles += k;
        work->tile += k;
        n -= k;
    }
}

/* A MAC: cut into parts whose tiles are of one group. */
static void pimhw_i_pp_mac(pimhw_i_channel *ch, pimhw_i_work *work, uint64_t n)
{
    pimhw_i_flow *f = ch->flow;
    bool tiles = pimhw_i_has_tiles(work->command), adds = pimhw_i_has_out(work->command);
    pimhw_i_entry *sum = adds ? &f->sums[work->out] : NULL;
    pimhw_i_record left = {*work, 0, (uint32_t)n, 0};
    f->mac_since = true;
    while (left.n > 0) {
        const uint64_t *group = f->tile_group + (tiles ? left.work.tile : 0);
        pimhw_i_record part = left;
        part.group = tiles ? group[0] : 0;
        if (tiles) part.n = 1;
        while (part.n < left.n && group[part.n] == part.group)
            part.n++;
        pimhw_i_take_off(&left, part.n);
        pimhw_i_phase *p = pimhw_i_pp_phase(f, f->filling);
        bool newer = part.group > f->used_group && p->n_m > 0;
        bool full = adds && !sum->going && p->outs >= ch->rules->outs / 2;
        if (newer || full || p->n_m == PIMHW_I_RECORDS) pimhw_i_pp_cut(ch);
        /* groups that no MAC uses take the other region; the one behind them waits for its MACs */
        if (part.group > f->used_group + 1 && pimhw_i_pp_phase(f, f->filling + 2)->n_m > 0) {
            pimhw_i_pp_claim(ch, f->used_group + 1, PIMHW_I_NO_OUT);
            pimhw_i_pp_cut(ch);
        }
        pimhw_i_pp_claim(ch, part.group, adds ? work->out : PIMHW_I_NO_OUT);
        f->used_group = pimhw_i_max(f->used_group, part.group);
        p = pimhw_i_pp_phase(f, f->filling);
        if (tiles) part.work.region = (uint32_t)f->tile_region[part.work.tile];
        if (adds) {
            if (!sum->going || sum->phase != f->filling + 1) p->outs++;
            sum->going = true;
            sum->phase = f->filling + 1;
            pimhw_i_pp_enter(ch, &part.work);
        }
        p->m[p->n_m++] = part;
    }
}

static void pimhw_i_pp_read(pimhw_i_channel *ch, pimhw_i_work *work)
{
    pimhw_i_flow *f = ch->flow;
    pimhw_i_entry *sum = &f->sums[work->out];
    pimhw_i_phase *p;
    if (work->command == PIMHW_CMD_RDMAC16) pimhw_i_pp_claim(ch, 0, work->out);
    /* sum->phase is the phase of its last MAC plus 1 */
    while (p = pimhw_i_pp_phase(f, pimhw_i_max(f->filling, sum->phase)), p->n_r == PIMHW_I_RECORDS)
        pimhw_i_pp_cut(ch);
    sum->going = false;
    /* where nothing was summed: the accumulator that never is */
    work->entry = ch->rules->outs;
    work->fresh = true;
    if (f->entry_of[work->out]) pimhw_i_pp_enter(ch, work);
    if (work->command == PIMHW_CMD_RDMAC16)
        pimhw_i_pp_leave(f, work->out, ch->rules->config.out_clear == PIMHW_CLEAR_READ);
    p->r[p->n_r].work = *work;
    p->r[p->n_r++].n = 1;
}

static void pimhw_i_ping_pong(pimhw_i_channel *ch, pimhw_i_work *work, uint64_t n)
{
    pimhw_i_flow *f = ch->flow;
    uint32_t of_class = ch->rules->class_of[work->command];
    f->begun = true;
    if (of_class == PIMHW_I_M) {
        pimhw_i_pp_mac(ch, work, n);
    } else if (of_class == PIMHW_I_R) {
        pimhw_i_pp_read(ch, work);
    } else if (work->command == PIMHW_CMD_WRGB) {
        pimhw_i_pp_write(ch, work, n);
    } else {
        f->sums[work->out].going = false;
        pimhw_i_pp_leave(f, work->out, true);
        pimhw_i_pp_wait(ch, work, 1, 0);
    }
}

/* -- all of them -- */

/* Lets everything a channel holds back issue, so that its end is known. */
static void pimhw_i_flush(pimhw_i_channel *ch)
{
    if (ch->rules->config.controller == PIMHW_PING_PONG) pimhw_i_pp_finish(ch);
    if (ch->rules->config.controller != PIMHW_DCS) return;
    while (ch->flow->n_records > 0)
        pimhw_i_dcs_refresh(ch);
    pimhw_i_merge(ch, UINT64_MAX, UINT64_MAX);
    /* the listing goes on from here */
    ch->flow->dispatch_ck = pimhw_i_max(ch->flow->dispatch_ck, ch->latest_ck);
}

/* Does n times the work of one instruction, under the channel's controller. */
static void pimhw_i_control(pimhw_i_channel *ch, pimhw_i_work *work, uint64_t n)
{
    uint32_t controller = ch->rules->config.controller;
    if (controller != PIMHW_IN_ORDER && ch->rules->class_of[work->command] == PIMHW_I_OTHER) {
        pimhw_i_flush(ch); /* all before is complete, and so is this before what comes later */
        pimhw_i_not_before(&ch->hold, ch->end_ck, PIMHW_WAIT_HOST);
        pimhw_i_in_order(ch, work, n);
        pimhw_i_not_before(&ch->hold, ch->end_ck, PIMHW_WAIT_HOST);
        memset(ch->flow->last, 0, sizeof ch->flow->last);
        ch->flow->mac_stream_ck = ch->last_ck;
        return;
    }
    if (controller == PIMHW_PING_PONG)
        pimhw_i_ping_pong(ch, work, n);
    else if (controller == PIMHW_DCS)
        pimhw_i_dcs(ch, work, n);
    else
        pimhw_i_in_order(ch, work, n);
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
static uint64_t pimhw_i_take_ck(pimhw_i_channel *ch, uint64_t from_ck)
{
    while (ch->banked) {
        pimhw_i_advance(ch, from_ck);
        /* empty ones take at once, however far its own commands have moved the channel's clock */
        if (ch->banks->queue[0].n + ch->banks->queue[1].n == 0) break;
        from_ck = ch->banks->clock_ck + 1;
    }
    return from_ck;
}

/* Puts an access into its queue when the PIM queue is empty and there is room; returns when. */
static uint64_t pimhw_i_access_ck(pimhw_i_channel *ch, const pimhw_i_work *work, uint64_t from_ck)
{
    pimhw_i_banks *b = ch->banks;
    pimhw_i_accesses *list = &b->queue[work->command == PIMHW_CMD_WR];
    uint64_t t = pimhw_i_max(from_ck, ch->left_ck);
    pimhw_i_advance(ch, t);
    if (work->command == PIMHW_CMD_RD && b->queue[1].n > 0) {
        /* the simulator forwards any read from the write queue */
        ch->answer_ck = pimhw_i_max(t + 1, ch->answer_ck + 1);
        ch->tally.n_answers++;
        if (b->hazard) return t;
        b->hazard = "channel %u: the read of bank %u, row %u, column %u met writes: SYNC is first";
        b->late = *work;
        return t;
    }
    while (list->n >= ch->rules->config.queue_entries)
        pimhw_i_advance(ch, ++t);
    pimhw_i_work *a = &list->at[list->n++];
    *a = *work;
    a->tile = a->out = 0;
    return t;
}

/* ==========================================================================
 * [H16] DISPATCHER: programs built and judged; with a request, their instructions one at a time.
 *       Knows loops and operands, and which of them clocks hang on; counts no clocks.
 * ========================================================================== */

PIMHW_API void pimhw_program_init(pimhw_program *program)
{
    memset(program, 0, sizeof *program);
}

/* The first failure stays; returns the name of nothing. */
static uint8_t pimhw_i_program_fail(pimhw_program *program, const char *text, uint64_t most)
{
    if (program->status == PIMHW_OK) pimhw_cause_write(&program->why, text, most);
    program->status = PIMHW_ERR_PROGRAM;
    return 0;
}

/* The name of an entry among n of a table, a new one if it must be. */
static uint8_t pimhw_i_name(pimhw_program *program, void *table, uint32_t *n, uint32_t most,
                            const void *entry, size_t bytes, const char *text)
{
    char *at = (char *)table;
    for (uint32_t i = 0; i < *n; i++, at += bytes)
        if (memcmp(at, entry, bytes) == 0) return (uint8_t)(i + 1);
    if (*n == most) return pimhw_i_program_fail(program, text, most);
    memcpy(at, entry, bytes);
    return (uint8_t)++ * n;
}

PIMHW_API uint8_t pimhw_program_tail(pimhw_program *program, const pimhw_tail *tail)
{
    return pimhw_i_name(program, program->tails, &program->n_tails, PIMHW_PROGRAM_TAILS, tail,
                        sizeof *tail, "more than %u tails in a program");
}

PIMHW_API uint8_t pimhw_program_operand(pimhw_program *program, const pimhw_operand *operand)
{
    return pimhw_i_name(program, program->operands, &program->n_operands, PIMHW_PROGRAM_OPERANDS,
                        operand, sizeof *operand, "more than %u operands in a program");
}

PIMHW_API uint8_t pimhw_program_const(pimhw_program *program, uint64_t value)
{
    pimhw_operand o;
    if (value == 0) return 0;
    memset(&o, 0, sizeof o);
    o.base = value;
    return pimhw_program_operand(program, &o);
}

PIMHW_API void pimhw_program_item(pimhw_program *program, const pimhw_item *item)
{
    uint32_t at = program->n_items;
    bool opens = item->kind < PIMHW_END, ends = item->kind == PIMHW_END;
    bool nests = opens && program->depth == 2 * PIMHW_LOOPS && at < PIMHW_PROGRAM_ITEMS;
    const char *fault = NULL;
    if (ends && program->depth == 0) fault = "item %u: END closes nothing";
    if (nests) fault = "more than %u structures nested";
    if (at == PIMHW_PROGRAM_ITEMS) fault = "more than %u items in a program";
    if (fault) {
        pimhw_i_program_fail(program, fault, nests ? 2 * PIMHW_LOOPS : at);
        return;
    }
    program->items[at] = *item;
    program->n_items++;
    if (opens) program->open[program->depth++] = (uint16_t)at;
    if (!ends) return;
    uint16_t opener = program->open[--program->depth];
    program->items[at].end = opener;
    program->items[opener].end = (uint16_t)at;
}

PIMHW_API void pimhw_program_add(pimhw_program *program, const pimhw_instruction *in)
{
    const uint64_t value[8] = {in->op_size, in->bank, in->row, in->column,
                               in->tile,    in->out,  in->gpr, in->aux};
    pimhw_item item;
    memset(&item, 0, sizeof item);
    item.mask = in->mask;
    item.kind = (uint8_t)pimhw_i_min(in->kind, UINT8_MAX); /* that is none, either */
    item.flags = (uint8_t)in->flags;
    for (uint32_t f = 0; f < 8; f++)
        *((uint8_t *)&item + offsetof(pimhw_item, op_size) + f) =
            pimhw_program_const(program, value[f]);
    pimhw_program_item(program, &item);
}

PIMHW_API void pimhw_program_loop(pimhw_program *program, uint8_t rounds_name, uint64_t mask)
{
    pimhw_item loop;
    memset(&loop, 0, sizeof loop);
    loop.kind = PIMHW_LOOP;
    loop.mask = mask;
    loop.op_size = rounds_name;
    pimhw_program_item(program, &loop);
}

PIMHW_API void pimhw_program_end(pimhw_program *program)
{
    pimhw_item end;
    memset(&end, 0, sizeof end);
    end.kind = PIMHW_END;
    pimhw_program_item(program, &end);
}

PIMHW_API uint64_t pimhw_program_bytes(const pimhw_program *program)
{
    return (uint64_t)program->n_items * sizeof(pimhw_item) +
           (uint64_t)program->n_operands * sizeof(pimhw_operand) +
           (uint64_t)program->n_tails * sizeof(pimhw_tail);
}

/* Fields of an item that are operands, in its order. */
enum {
    PIMHW_I_OP_SIZE = 0,
    PIMHW_I_BANK,
    PIMHW_I_ROW,
    PIMHW_I_COLUMN,
    PIMHW_I_TILE,
    PIMHW_I_OUT,
    PIMHW_I_GPR,
    PIMHW_I_AUX
};

static const uint8_t *pimhw_i_names(const pimhw_item *item)
{
    return (const uint8_t *)item + offsetof(pimhw_item, op_size);
}

/* Steps below 2^32 and rounds below 2^28: no sum of products reaches 2^64. */
enum { PIMHW_I_MOST_BITS = 32, PIMHW_I_MOST_ROUND_BITS = 28 };

/* All bits of the steps of the first loops: 0, nothing grows. */
static uint64_t pimhw_i_grows(const uint64_t step[PIMHW_LOOPS], uint32_t n_loops)
{
    uint64_t bits = 0;
    for (uint32_t l = 0; l < n_loops; l++)
        bits |= step[l];
    return bits;
}

/* What is wrong with an operand in so many loops; NULL: nothing. Tails may be of loops inside. */
static const char *pimhw_i_operand_fault(const pimhw_program *p, const pimhw_operand *o,
                                         uint32_t loops)
{
    uint64_t bits = pimhw_i_grows(o->step, PIMHW_LOOPS);
    if (pimhw_i_grows(o->step + loops, PIMHW_LOOPS - loops))
        return "a step of a loop that is not open";
    if (bits >> PIMHW_I_MOST_BITS) return "a step of 2^32 or more";
    if (bits && o->base >> 62) return "a base of 2^62 or more that grows";
    for (int i = 0; i < 2; i++) {
        if (o->tail[i] > p->n_tails) return "a tail that is not there";
        if (o->tail[i] == 0) continue;
        const pimhw_tail *t = &p->tails[o->tail[i] - 1];
        if (t->rest > PIMHW_RESTS) return "a tail of a number no block has";
        bits = pimhw_i_grows(t->step, PIMHW_LOOPS) | t->channel_step | t->mul;
        if (bits >> PIMHW_I_MOST_BITS) return "a step or factor of 2^32 or more";
    }
    return NULL;
}

static const char PIMHW_I_NO_THIRD[] = "EWMUL: n_group_banks is less than the 3 it takes";

typedef struct pimhw_i_nest {
    uint32_t open[PIMHW_LOOPS + 2]; /* a block, and the loop that is one too many */
    uint32_t depth;
    bool in_block; /* else all that are open are loops, or the list */
} pimhw_i_nest;

static bool pimhw_i_is_constant(const pimhw_operand *o)
{
    return !pimhw_i_grows(o->step, PIMHW_LOOPS) && !o->tail[0] && !o->tail[1];
}

/* The rounds that a list or block names; UINT64_MAX if they are not a constant. */
static uint64_t pimhw_i_aux(const pimhw_program *p, const pimhw_item *item)
{
    const pimhw_operand *o = item->aux ? &p->operands[item->aux - 1] : NULL;
    return !o ? 0 : pimhw_i_is_constant(o) ? o->base : UINT64_MAX;
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
        if (p->items[opener].kind == PIMHW_BLOCK) nest->in_block = false;
        return NULL;
    }
    nest->open[nest->depth++] = i;
    if (item->kind != PIMHW_LOOP && pimhw_i_aux(p, item) >> PIMHW_I_MOST_ROUND_BITS)
        return "aux is not a constant below 2^28";
    if (item->kind == PIMHW_BLOCK) {
        if (nest->in_block) return "a block inside a block";
        if (!in_list) return "a block outside a list";
        if (pimhw_i_aux(p, item) > pimhw_i_aux(p, &p->items[0]))
            return "aux is more than the list's";
        nest->in_block = true;
    }
    if (item->kind == PIMHW_LIST && i != 0) return "a list that is not the first item";
    return nest->depth - nest->in_block > PIMHW_LOOPS ? "loops nested too deep" : NULL;
}

static const char *pimhw_i_item_fault(const pimhw_program *p, uint32_t i, const pimhw_config *c,
                                      pimhw_i_nest *nest)
{
    const pimhw_item *item = &p->items[i];
    if (item->kind >= PIMHW_N_KINDS) return "no such kind";
    /* of a list that is not closed END is at 0, and that is what is wrong with it */
    uint32_t list_end = p->items[0].kind == PIMHW_LIST ? p->items[0].end : 0;
    if (list_end > 0 && i > list_end) return "after the list";
    const char *fault = NULL;
    const uint8_t *names = pimhw_i_names(item);
    uint32_t loops = nest->depth - nest->in_block;
    for (int f = 0; f < 8 && !fault; f++) {
        if (names[f] > p->n_operands)
            return "an operand that is not there; numbers get names by pimhw_program_const";
        if (names[f]) fault = pimhw_i_operand_fault(p, &p->operands[names[f] - 1], loops);
    }
    if (fault) return fault;
    if (item->space >= PIMHW_SPACES) return "a row space that is not there";
    bool structure = item->kind <= PIMHW_END;
    if (structure) fault = pimhw_i_nest_fault(p, i, nest);
    if (fault || (structure && item->kind != PIMHW_LOOP)) return fault;
    if (PIMHW_I_KINDS[item->kind].taker == PIMHW_I_BY_ALL) return NULL;
    if (item->mask & ~pimhw_i_low_bits(c->n_channels)) return "mask: a channel the device lacks";
    if (!item->mask) return "mask: no channel";
    if (item->kind == PIMHW_EWMUL && c->n_group_banks < 3) return PIMHW_I_NO_THIRD;
    return PIMHW_I_KINDS[item->kind].sized && item->op_size == 0 ? "op_size is 0" : NULL;
}

PIMHW_API pimhw_status pimhw_program_check(const pimhw_program *p, const pimhw_config *config,
                                           pimhw_cause *why)
{
    pimhw_i_nest nest;
    if (!p || !config) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    if (p->n_items > PIMHW_PROGRAM_ITEMS || p->n_operands > PIMHW_PROGRAM_OPERANDS ||
        p->n_tails > PIMHW_PROGRAM_TAILS)
        return PIMHW_I_UNABLE(why, "the program was not made by the builder");
    if (p->status != PIMHW_OK) {
        if (why) *why = p->why;
        return p->status;
    }
    memset(&nest, 0, sizeof nest);
    for (uint32_t i = 0; i < p->n_items; i++) {
        const char *fault = pimhw_i_item_fault(p, i, config, &nest);
        if (fault) return PIMHW_I_UNABLE(why, "item %u: %s", (uint64_t)i, fault);
    }
    if (nest.depth == 0) return PIMHW_OK;
    return PIMHW_I_UNABLE(why, "item %u: not closed", (uint64_t)nest.open[nest.depth - 1]);
}

enum { PIMHW_I_TERMS = 12, PIMHW_I_ROWS = 4 };

/* What a span hangs on: a tail, as far as it matters, or an operand that grows with outer loops. */
typedef struct pimhw_i_term {
    uint8_t tail; /* its name; 0: the operand */
    uint8_t operand;
    uint64_t unit; /* of a tail only whole units count, */
    uint64_t most; /* and no more than so many */
} pimhw_i_term;

/* A span is a loop as a whole or one of its rounds. Spans of one item whose terms are equal receive
 * the same instructions, but for their rows' base, and but for fields that time nothing. */
typedef struct pimhw_i_scope {
    bool alike;     /* the terms tell all */
    bool masks;     /* instructions of some channels only */
    uint8_t spaces; /* of its rows: a bit each */
    uint8_t n_terms;
    bool any_row; /* else the first row it asks for is one of these, from the rows' base */
    uint8_t n_rows;
    uint64_t rows[PIMHW_I_ROWS];
    uint64_t outer_step[PIMHW_LOOPS]; /* of the rows' base, by the loops around */
    pimhw_i_term terms[PIMHW_I_TERMS];
} pimhw_i_scope;

/* What is walked while a look is taken at a state of ping-pong, in instructions, or of DCS, in
 * commands; and looks in a row, more where what they learn more often serves later. */
enum { PIMHW_I_LOOK = 12, PIMHW_I_FEW_LOOKS = 4, PIMHW_I_MANY_LOOKS = 256 };

/* A loop, whose rounds are at a level. */
typedef struct pimhw_i_loop {
    pimhw_i_scope whole, round;
    uint64_t weight; /* instructions of a round, about */
    uint64_t cost;   /* what a round takes: that, or the commands of the last that was walked */
    uint64_t most;   /* looks in a row, */
    uint64_t spare;  /* those that its rounds have earned of late, in what they cost */
    uint32_t n_left; /* DCS: commands that had left the queues */
    bool idle;       /* no looks until they are as many as may be */
} pimhw_i_loop;

/* What walking needs to know of a program again and again. */
typedef struct pimhw_i_sketch {
    uint8_t uneven[PIMHW_PROGRAM_ITEMS];     /* bit f: field f tells channels apart */
    uint8_t dynamic[PIMHW_PROGRAM_ITEMS];    /* bit f: field f of the item is not a constant */
    uint64_t value[PIMHW_PROGRAM_ITEMS][8];  /* the constants, by field; of others 0 */
    uint8_t matter[PIMHW_PROGRAM_ITEMS];     /* bit f: field f tells rounds apart */
    bool lists;                              /* channels have lists of their own */
    bool banked;                             /* commands of one bank */
    bool laps;                               /* rounds of like blocks may be alike */
    pimhw_i_loop loops[PIMHW_PROGRAM_ITEMS]; /* by their first items */
} pimhw_i_sketch;

/* The loops around an item, from a level on: those inside a span. */
typedef struct pimhw_i_inside {
    uint32_t level, depth;
    uint64_t last[PIMHW_LOOPS];               /* round; UINT64_MAX: no limit is known */
    const pimhw_operand *around[PIMHW_LOOPS]; /* for the most of an operand: how often they run */
} pimhw_i_inside;

/* What the steps of the loops inside but one add at most beyond `times` others, which those inside
 * of that one do not move. */
static uint64_t pimhw_i_growth_over(const pimhw_i_inside *in, const uint64_t step[PIMHW_LOOPS],
                                    const uint64_t less[PIMHW_LOOPS], uint64_t times, uint32_t but)
{
    uint64_t sum = 0;
    for (uint32_t l = in->level; l < in->depth; l++) {
        uint64_t taken = l < but ? pimhw_i_times(times, less[l]) : 0;
        if (l == but || step[l] <= taken) continue;
        sum = pimhw_i_plus(sum, pimhw_i_times(step[l] - taken, in->last[l]));
    }
    return sum;
}

/* What the steps add at most by the loops inside. */
static uint64_t pimhw_i_growth(const pimhw_i_inside *in, const uint64_t step[PIMHW_LOOPS])
{
    return pimhw_i_growth_over(in, step, step, 0, PIMHW_LOOPS);
}

static void pimhw_i_add_term(pimhw_i_scope *span, pimhw_i_term term)
{
    for (uint32_t i = 0; i < span->n_terms; i++) {
        pimhw_i_term *t = &span->terms[i];
        if (t->tail != term.tail || t->operand != term.operand || t->unit != term.unit) continue;
        t->most = pimhw_i_max(t->most, term.most);
        return;
    }
    if (span->n_terms == PIMHW_I_TERMS) span->alike = false;
    if (span->alike) span->terms[span->n_terms++] = term; /* else it is not looked at */
}

/* The terms of an operand; returns the most it can be. While loops inside go on, a tail loses
 * multiples of g, so that only ceil(left / g) matters, and beyond what the operand itself can be
 * with the loss of all rounds, it does not matter either. */
static uint64_t pimhw_i_add_operand(const pimhw_program *p, const pimhw_i_inside *in,
                                    const pimhw_operand *o, uint8_t name, pimhw_i_scope *span)
{
    bool grows = pimhw_i_grows(o->step, in->level) != 0;
    uint64_t most = grows ? UINT64_MAX : pimhw_i_plus(o->base, pimhw_i_growth(in, o->step));
    pimhw_i_term term = {0, name, 1, UINT64_MAX};
    for (int k = 0; k < 2; k++) {
        if (!o->tail[k]) continue;
        const pimhw_tail *t = &p->tails[o->tail[k] - 1];
        uint64_t unit = pimhw_i_max(t->unit, 1), mul = pimhw_i_max(t->mul, 1), gcd = unit;
        bool same = !t->rest && !t->channel_step && !pimhw_i_grows(t->step, in->level);
        uint64_t limit = pimhw_i_times(pimhw_i_ceil_div(t->base, unit), mul);
        if (same) term.most = pimhw_i_min(term.most, limit);
        for (uint32_t l = in->level; l < in->depth; l++)
            for (uint64_t other = t->step[l], rest; other != 0; other = rest) {
                rest = gcd % other;
                gcd = other;
            }
        uint64_t needed = pimhw_i_times(pimhw_i_ceil_div(most, mul), unit);
        if (most == UINT64_MAX) needed = most;
        needed = pimhw_i_plus(needed, pimhw_i_growth(in, t->step));
        pimhw_i_term tail = {o->tail[k], 0, gcd, needed == UINT64_MAX ? needed : needed / gcd};
        if (!same && tail.most > 0) pimhw_i_add_term(span, tail);
    }
    if (grows) pimhw_i_add_term(span, term);
    return most;
}

/* The row of an item: all of a span must move together. */
static void pimhw_i_add_row(const pimhw_program *p, const pimhw_i_inside *in,
                            const pimhw_item *item, pimhw_i_scope *span)
{
    static const pimhw_operand none = {0, {0}, {0}, {0}};
    const pimhw_operand *o = item->row ? &p->operands[item->row - 1] : &none;
    if (o->tail[0] || o->tail[1]) span->alike = false;
    for (uint32_t l = 0; l < in->level; l++) {
        if (span->spaces && o->step[l] != span->outer_step[l]) span->alike = false;
        span->outer_step[l] = o->step[l];
    }
    span->spaces |= (uint8_t)(1u << item->space);
    uint32_t i = 0;
    while (i < span->n_rows && span->rows[i] != o->base)
        i++;
    if (i == PIMHW_I_ROWS || span->spaces == 3) span->any_row = true;
    if (i == span->n_rows && !span->any_row) span->rows[span->n_rows++] = o->base;
}

/* What is left before the first round of any loop, by the rests of a block, if there is one. */
static uint64_t pimhw_i_most_left(const pimhw_tail *t, const pimhw_block *block)
{
    return pimhw_i_plus(t->base, block && t->rest ? block->rest[t->rest - 1] : 0);
}

/* What the steps add at most if a loop has a round for each unit of what is left, which other loops
 * make less: unit * its round + what they took <= left - 1. UINT64_MAX: that bounds nothing. */
static uint64_t pimhw_i_growth_left(const pimhw_i_inside *in, const pimhw_block *block,
                                    const uint64_t step[PIMHW_LOOPS], uint32_t level,
                                    const pimhw_tail *t)
{
    uint64_t left = pimhw_i_most_left(t, block), unit = pimhw_i_max(t->unit, 1);
    if (t->mul > 1 || left == 0 || step[level] % unit) return UINT64_MAX;
    uint64_t times = step[level] / unit, own = pimhw_i_times(times, left - 1);
    return pimhw_i_plus(own, pimhw_i_growth_over(in, step, t->step, times, level));
}

/* The most that a column and op_size are together, by what is left for op_size. */
static uint64_t pimhw_i_most_columns(const pimhw_program *p, const pimhw_i_inside *in,
                                     const pimhw_block *block, const pimhw_item *item)
{
    uint64_t most = UINT64_MAX;
    const pimhw_operand *o = &p->operands[item->op_size - 1];
    const pimhw_operand *column = &p->operands[item->column - 1];
    for (int k = 0; k < 2; k++) {
        const pimhw_tail *t = o->tail[k] ? &p->tails[o->tail[k] - 1] : NULL;
        if (!t || t->mul > 1 || t->unit > 1) continue;
        uint64_t left = pimhw_i_plus(column->base, pimhw_i_most_left(t, block));
        uint64_t over = pimhw_i_growth_over(in, column->step, t->step, 1, PIMHW_LOOPS);
        most = pimhw_i_min(most, pimhw_i_plus(left, over));
    }
    return most;
}

/* The most an operand can be, where the rests of blocks are not more than those of one. */
static uint64_t pimhw_i_most(const pimhw_program *p, const pimhw_i_inside *in,
                             const pimhw_block *block, uint8_t name)
{
    if (name == 0) return 0;
    const pimhw_operand *o = &p->operands[name - 1];
    uint64_t growth = pimhw_i_growth(in, o->step);
    for (uint32_t l = 0; l < in->depth; l++)
        for (int k = 0; k < 2 && in->around[l]; k++) {
            const uint8_t tail = in->around[l]->tail[k];
            if (tail == 0) continue;
            uint64_t its = pimhw_i_growth_left(in, block, o->step, l, &p->tails[tail - 1]);
            growth = pimhw_i_min(growth, its);
        }
    uint64_t most = pimhw_i_plus(o->base, growth);
    for (int k = 0; k < 2; k++) {
        if (!o->tail[k]) continue;
        const pimhw_tail *t = &p->tails[o->tail[k] - 1];
        uint64_t units = pimhw_i_ceil_div(pimhw_i_most_left(t, block), pimhw_i_max(t->unit, 1));
        most = pimhw_i_min(most, pimhw_i_times(units, pimhw_i_max(t->mul, 1)));
    }
    return most;
}

static void pimhw_i_add_item(const pimhw_i_sketch *s, const pimhw_program *p, uint32_t i,
                             uint64_t mask, pimhw_i_inside *in, pimhw_i_scope *span)
{
    const pimhw_item *item = &p->items[i];
    const pimhw_i_kind *kind = &PIMHW_I_KINDS[item->kind];
    uint64_t rounds = 0;
    if (item->kind == PIMHW_END) {
        in->depth -= p->items[item->end].kind != PIMHW_BLOCK;
        return;
    }
    bool hub = item->kind >= PIMHW_EWADD; /* or all channels: done once */
    if (hub || item->kind == PIMHW_BLOCK || item->kind == PIMHW_AF) span->alike = false;
    if (mask & ~item->mask) span->masks = true;
    for (uint32_t f = 8; f-- > 0;) { /* op_size is last */
        uint8_t name = pimhw_i_names(item)[f];
        if (name && s->matter[i] >> f & 1)
            rounds = pimhw_i_add_operand(p, in, &p->operands[name - 1], name, span);
    }
    if (kind->has_row) pimhw_i_add_row(p, in, item, span);
    /* what is not done in the first rounds of the loops inside may be in others */
    if (item->op_size && p->operands[item->op_size - 1].base == 0) span->any_row = true;
    if (item->kind != PIMHW_LOOP) return;
    in->last[in->depth++] = rounds - (rounds > 0 && rounds < UINT64_MAX);
}

static void pimhw_i_sketch_loops(pimhw_i_sketch *s, const pimhw_program *p, uint32_t controller)
{
    uint32_t level = 0;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const pimhw_item *item = &p->items[i];
        if (item->kind == PIMHW_LIST) level++;
        if (item->kind == PIMHW_END && p->items[item->end].kind != PIMHW_BLOCK) level--;
        if (item->kind != PIMHW_LOOP) continue;
        pimhw_i_loop *loop = &s->loops[i];
        memset(loop, 0, sizeof *loop);
        for (uint32_t round = 0; round < 2; round++) { /* the loop as a whole, one of its rounds */
            pimhw_i_scope *span = round ? &loop->round : &loop->whole;
            pimhw_i_inside in;
            span->alike = true;
            in.level = in.depth = level + round;
            for (uint32_t k = i + round; k <= item->end - round; k++)
                pimhw_i_add_item(s, p, k, item->mask, &in, span);
        }
        level++;
        uint64_t looks = controller == PIMHW_DCS ? PIMHW_I_MANY_LOOKS : PIMHW_I_FEW_LOOKS;
        loop->most = loop->spare = looks * PIMHW_I_LOOK;
        loop->weight = 1;
        for (uint32_t k = i + 1; k < item->end; k++)
            loop->weight += p->items[k].kind == PIMHW_LOOP ? 4 : 1;
        loop->cost = loop->weight;
    }
}

static void pimhw_i_sketch_init(pimhw_i_sketch *s, const pimhw_program *p,
                                const pimhw_request *request, uint32_t controller, bool shared)
{
    bool entries = controller == PIMHW_PING_PONG || controller == PIMHW_DCS;
    uint32_t matter = 1u << PIMHW_I_OP_SIZE | 1u << PIMHW_I_BANK;
    if (entries) matter |= 1u << PIMHW_I_TILE | 1u << PIMHW_I_OUT;
    s->lists = request && request->list_begin;
    s->banked = false;
    s->laps = !s->lists && p->items[0].kind == PIMHW_LIST;
    for (uint32_t i = 0; i < p->n_operands; i++)
        s->laps = s->laps && p->operands[i].step[0] == 0;
    for (uint32_t i = 0; i < p->n_tails; i++)
        s->laps = s->laps && p->tails[i].step[0] == 0;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const pimhw_item *item = &p->items[i];
        const uint8_t *names = pimhw_i_names(item);
        /* an earlier round's mode or end, a row that is not of a block */
        if (item->kind == PIMHW_CFR || item->kind == PIMHW_EOC || item->kind == PIMHW_AF)
            s->laps = false;
        /* blocks of different channels lie in different rows, lists differ in length */
        bool blocks = PIMHW_I_KINDS[item->kind].has_row || item->kind == PIMHW_LIST;
        uint32_t dynamic = 0, uneven = 0;
        for (uint32_t f = 0; f < 8; f++) {
            const pimhw_operand *o = names[f] ? &p->operands[names[f] - 1] : NULL;
            if (o && !pimhw_i_is_constant(o)) dynamic |= 1u << f;
            s->value[i][f] = o && !(dynamic >> f & 1) ? o->base : 0;
            for (int k = 0; k < 2 && o; k++) {
                const pimhw_tail *t = o->tail[k] ? &p->tails[o->tail[k] - 1] : NULL;
                if (t && (t->channel_step || (s->lists && t->rest))) uneven |= 1u << f;
            }
        }
        s->dynamic[i] = (uint8_t)dynamic;
        s->uneven[i] = (uint8_t)(uneven | (s->lists && blocks ? 1u << PIMHW_I_ROW : 0));
        s->matter[i] = (uint8_t)matter;
        if (PIMHW_I_KINDS[item->kind].taker == PIMHW_I_BY_HOST)
            s->matter[i] = item->kind == PIMHW_CFR ? 255 : 1u << PIMHW_I_OP_SIZE;
        if (shared) s->matter[i] |= (uint8_t)uneven; /* a tick for each of its values */
        s->banked = s->banked || pimhw_i_one_bank(PIMHW_I_KINDS[item->kind].command);
    }
    pimhw_i_sketch_loops(s, p, controller);
}

typedef struct pimhw_i_walker {
    const pimhw_program *program;
    const pimhw_request *request; /* NULL: none */
    const pimhw_i_sketch *sketch;
    uint64_t mask;  /* channels that take part here */
    uint64_t outer; /* those outside the block */
    uint64_t todo;  /* those the current item still has to reach */
    uint64_t lag;   /* of the block: rounds ago */
    uint32_t pc, depth;
    uint32_t at; /* item of the last instruction or loop */
    uint64_t index[PIMHW_LOOPS];
    uint64_t bound[PIMHW_LOOPS]; /* rounds of the channel with most */
    uint64_t enter[PIMHW_LOOPS];
    uint32_t opener;                        /* item of the round that begins, or ended */
    uint32_t stop;                          /* the walk ends before this item */
    bool alike;                             /* the channels get the same instructions */
    bool nests;                             /* loops without the hub are told */
    bool even[PIMHW_LOOPS];                 /* all channels do bound rounds; else: */
    uint64_t (*rounds)[PIMHW_MAX_CHANNELS]; /* [PIMHW_LOOPS], rounds of each channel */
} pimhw_i_walker;

static uint64_t pimhw_i_blocks(const pimhw_request *request, uint32_t channel)
{
    if (!request) return 0;
    if (!request->list_begin) return request->n_blocks;
    return request->list_begin[channel + 1] - request->list_begin[channel];
}

/* Which of its blocks every channel is at. */
static uint64_t pimhw_i_block_index(const pimhw_i_walker *w)
{
    bool in_list = w->program->items[0].kind == PIMHW_LIST;
    return in_list && w->depth > 0 ? w->index[0] - w->lag : 0;
}

/* The block a channel works on; NULL if there is none. */
static const pimhw_block *pimhw_i_block(const pimhw_i_walker *w, uint32_t channel)
{
    uint64_t i = pimhw_i_block_index(w);
    if (i >= pimhw_i_blocks(w->request, channel)) return NULL;
    if (w->sketch->lists) i = w->request->order[w->request->list_begin[channel] + i];
    return &w->request->blocks[i];
}

static uint64_t pimhw_i_steps(const pimhw_i_walker *w, const uint64_t step[PIMHW_LOOPS])
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < w->depth; l++)
        sum += step[l] * w->index[l];
    return sum;
}

static uint64_t pimhw_i_left(const pimhw_i_walker *w, const pimhw_tail *t, uint32_t channel)
{
    uint64_t left = pimhw_i_most_left(t, t->rest ? pimhw_i_block(w, channel) : NULL);
    uint64_t gone = pimhw_i_steps(w, t->step);
    if (t->channel_step)
        gone += t->channel_step * (t->channel_div > 1 ? channel / t->channel_div : channel);
    return left <= gone ? 0 : left - gone;
}

static uint64_t pimhw_i_value(const pimhw_i_walker *w, uint8_t name, uint32_t channel)
{
    if (name == 0) return 0;
    const pimhw_operand *o = &w->program->operands[name - 1];
    uint64_t value = o->base + pimhw_i_steps(w, o->step);
    for (int k = 0; k < 2 && value; k++) {
        if (!o->tail[k]) continue;
        const pimhw_tail *t = &w->program->tails[o->tail[k] - 1];
        uint64_t left = pimhw_i_left(w, t, channel);
        uint64_t most = t->unit > 1 ? pimhw_i_ceil_div(left, t->unit) : left;
        if (t->mul > 1) most = pimhw_i_times(most, t->mul);
        value = pimhw_i_min(value, most);
    }
    return value;
}

static uint64_t pimhw_i_rounds(const pimhw_i_walker *w, const pimhw_item *item, uint32_t channel)
{
    if (item->kind == PIMHW_LOOP) return pimhw_i_value(w, item->op_size, channel);
    uint64_t n = pimhw_i_blocks(w->request, channel);
    return n ? n + pimhw_i_value(w, item->aux, channel) : 0;
}

/* Rounds of each channel of mask, into w->rounds and w->bound; false if all do the same. */
static bool pimhw_i_uneven_rounds(pimhw_i_walker *w, const pimhw_item *item, uint64_t mask)
{
    uint64_t *rounds = w->rounds[w->depth];
    uint32_t first = pimhw_i_lowest(mask), last = pimhw_i_highest(mask);
    uint64_t most = w->bound[w->depth] = pimhw_i_rounds(w, item, first);
    if (w->alike || !w->sketch->uneven[w->pc] || first == last) return false;
    /* of one block, no channel has more left than a lower one */
    if (!w->sketch->lists && most == pimhw_i_rounds(w, item, last)) return false;
    for (uint64_t left = mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        rounds[c] = pimhw_i_rounds(w, item, c);
        w->bound[w->depth] = pimhw_i_max(w->bound[w->depth], rounds[c]);
    }
    return true;
}

/* Goes to the head of the round w->index says, of the loop whose item is w->pc. */
static void pimhw_i_to_round(pimhw_i_walker *w)
{
    uint32_t level = w->depth - 1;
    const pimhw_item *opener = &w->program->items[w->pc++];
    bool list = opener->kind == PIMHW_LIST;
    w->mask = list ? w->enter[level] : w->enter[level] & opener->mask;
    for (uint64_t left = w->even[level] ? 0 : w->mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        if (w->index[level] >= w->rounds[level][c]) w->mask &= ~((uint64_t)1 << c);
    }
}

/* False if a channel would do 2^28 rounds or more. */
static bool pimhw_i_enter_loop(pimhw_i_walker *w, const pimhw_item *item)
{
    uint32_t level = w->depth;
    uint64_t mask = item->kind == PIMHW_LOOP ? w->mask & item->mask : w->mask;
    w->bound[level] = 0;
    w->even[level] = mask == 0 || !pimhw_i_uneven_rounds(w, item, mask);
    if (w->bound[level] == 0) w->pc = item->end + 1u;
    if (w->bound[level] == 0) return true;
    if (w->bound[level] >> PIMHW_I_MOST_ROUND_BITS) return false;
    w->enter[level] = w->mask;
    w->index[level] = 0;
    w->depth++;
    pimhw_i_to_round(w);
    return true;
}

/* Values of some fields of an item for one channel; of constants the row alone, if a block may
 * move it. */
static void pimhw_i_fields(const pimhw_i_walker *w, uint32_t channel, uint32_t fields,
                           uint64_t value[8])
{
    const pimhw_item *item = &w->program->items[w->pc];
    bool has_row = PIMHW_I_KINDS[item->kind].has_row && (fields >> PIMHW_I_ROW & 1);
    const pimhw_block *block = has_row ? pimhw_i_block(w, channel) : NULL;
    const uint8_t *names = pimhw_i_names(item);
    if (has_row) value[PIMHW_I_ROW] = w->sketch->value[w->pc][PIMHW_I_ROW];
    for (uint64_t left = fields & w->sketch->dynamic[w->pc]; left; left &= left - 1) {
        uint32_t f = pimhw_i_lowest(left);
        value[f] = pimhw_i_value(w, names[f], channel);
    }
    if (block && value[PIMHW_I_ROW] <= UINT32_MAX)
        value[PIMHW_I_ROW] += block->row_base[item->space];
}

static bool pimhw_i_same_fields(const pimhw_i_walker *w, uint32_t channel, const uint64_t value[8])
{
    uint64_t its[8];
    memcpy(its, value, sizeof its);
    pimhw_i_fields(w, channel, w->sketch->uneven[w->pc], its);
    return memcmp(its, value, sizeof its) == 0;
}

/* The channels of mask that share the values of its lowest; of hub work, all. */
static uint64_t pimhw_i_sharers(const pimhw_i_walker *w, uint64_t mask, uint64_t value[8])
{
    uint64_t sharers = mask & (~mask + 1);
    const pimhw_item *item = &w->program->items[w->pc];
    bool epu = item->kind == PIMHW_EPU;
    if (w->alike) return mask;
    /* the hub has one unit: work of channels that each have a list of their own adds up there */
    for (uint64_t left = mask & (mask - 1); left && epu && w->sketch->lists; left &= left - 1) {
        uint64_t its = pimhw_i_value(w, item->op_size, pimhw_i_lowest(left));
        value[PIMHW_I_OP_SIZE] = pimhw_i_plus(value[PIMHW_I_OP_SIZE], its);
    }
    if (epu || !w->sketch->uneven[w->pc] || sharers == mask) return mask;
    /* of one block, the values of the channels between two equal ones are the same */
    if (!w->sketch->lists && pimhw_i_same_fields(w, pimhw_i_highest(mask), value)) return mask;
    for (uint64_t left = mask & (mask - 1); left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        if (pimhw_i_same_fields(w, c, value)) sharers |= (uint64_t)1 << c;
    }
    return sharers;
}

/* An item with its operands; false if one is 2^32 or more. */
static bool pimhw_i_fill(const pimhw_item *item, uint64_t mask, const uint64_t value[8],
                         pimhw_instruction *in)
{
    in->mask = mask;
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

/* The instruction of the lowest channel in w->todo and those that share its operands. */
static bool pimhw_i_take(pimhw_i_walker *w, const pimhw_item *item, pimhw_instruction *in)
{
    uint64_t value[8];
    memcpy(value, w->sketch->value[w->pc], sizeof value);
    pimhw_i_fields(w, pimhw_i_lowest(w->todo), 255, value);
    uint64_t mask = pimhw_i_sharers(w, w->todo, value);
    w->todo &= ~mask;
    in->round = (uint32_t)pimhw_i_block_index(w);
    return pimhw_i_fill(item, mask, value, in);
}

typedef enum pimhw_i_step {
    PIMHW_I_GIVEN,
    PIMHW_I_ROUND, /* a round begins */
    PIMHW_I_LEFT,  /* the last round of a loop is over */
    PIMHW_I_NEST,  /* a loop that concerns channels alone; nothing happened */
    PIMHW_I_DONE,
    PIMHW_I_WRONG
} pimhw_i_step;

static pimhw_i_step pimhw_i_next(pimhw_i_walker *w, pimhw_instruction *in)
{
    while (w->pc < w->stop) {
        const pimhw_item *item = &w->program->items[w->pc];
        if (item->kind == PIMHW_LOOP || item->kind == PIMHW_LIST) {
            uint32_t depth = w->depth;
            w->at = w->opener = w->pc;
            bool loop = item->kind == PIMHW_LOOP;
            if (w->nests && loop && w->sketch->loops[w->pc].whole.alike) return PIMHW_I_NEST;
            if (!pimhw_i_enter_loop(w, item)) return PIMHW_I_WRONG;
            if (w->depth > depth) return PIMHW_I_ROUND;
        } else if (item->kind == PIMHW_BLOCK) {
            w->outer = w->mask;
            w->lag = pimhw_i_value(w, item->aux, 0);
            for (uint64_t left = w->mask; left; left &= left - 1)
                if (!pimhw_i_block(w, pimhw_i_lowest(left))) w->mask &= ~(left & (~left + 1));
            w->pc = w->mask ? w->pc + 1 : item->end; /* which leaves it */
        } else if (item->kind == PIMHW_END && w->program->items[item->end].kind == PIMHW_BLOCK) {
            w->pc++;
            w->mask = w->outer;
            w->lag = 0;
        } else if (item->kind == PIMHW_END) {
            uint32_t level = w->depth - 1;
            w->opener = item->end;
            if (++w->index[level] < w->bound[level]) {
                w->pc = w->opener;
                pimhw_i_to_round(w);
                return PIMHW_I_ROUND;
            }
            w->pc++;
            w->mask = w->enter[level];
            w->depth--;
            return PIMHW_I_LEFT;
        } else {
            w->at = w->pc;
            bool everybody = PIMHW_I_KINDS[item->kind].taker == PIMHW_I_BY_ALL;
            if (!w->todo) w->todo = everybody ? w->mask : w->mask & item->mask;
            bool any = w->todo != 0;
            if (any && !pimhw_i_take(w, item, in)) return PIMHW_I_WRONG;
            if (!w->todo) w->pc++;
            if (any && in->op_size > 0) return PIMHW_I_GIVEN;
        }
    }
    return PIMHW_I_DONE;
}

/* ==========================================================================
 * [H17] DEVICE: what a device is made of; created and destroyed.
 *       Knows what there is of everything; moves no clock.
 * ========================================================================== */

enum {
    PIMHW_I_JOBS = 8,          /* EPU works of one stream on their way */
    PIMHW_I_WORTH = 24,        /* instructions that are worth a look */
    PIMHW_I_CHAIN = 3,         /* edges of a chain before it may be a cycle */
    PIMHW_I_MOST_WORDS = 1024, /* of a state, or of all of a shared front end */
    PIMHW_I_ROOM = 4096,       /* for that, or for the parts of an edge */
    PIMHW_I_WORDS = 1 << 20,
    PIMHW_I_TEXTS = 32768,
    PIMHW_I_EDGES = 32768,
    PIMHW_I_CHAINS = 16384, /* of texts or edges; a power of two */
    PIMHW_I_TRIALS = PIMHW_LOOPS + 1,
    PIMHW_I_KEY_BITS = 20,  /* of a text's number in a key */
    PIMHW_I_PHASE_BITS = 5, /* in which refreshes of one place of edges differ */
    PIMHW_I_TALLY = sizeof(pimhw_i_tally) / sizeof(uint64_t),
    PIMHW_I_SPENT = offsetof(pimhw_i_tally, spent_ck) / sizeof(uint64_t),
    PIMHW_I_ACTIVE = offsetof(pimhw_i_tally, active_ck) / sizeof(uint64_t),
    PIMHW_I_OPENED = offsetof(pimhw_i_tally, commands) / sizeof(uint64_t) + PIMHW_CMD_ACT16
};

/* A run of so many clocks is refused: keys, of a clock and 16 bits, have room for 4 times them. */
#define PIMHW_I_MOST_CK ((uint64_t)1 << 46)

typedef struct pimhw_i_job {
    uint64_t ready_ck, cost_ck;
    bool awaited;
} pimhw_i_job;

typedef struct pimhw_i_jobs {
    pimhw_i_job at[PIMHW_I_JOBS]; /* not yet done, oldest first */
    uint32_t n;
    uint64_t done_ck[PIMHW_I_JOBS]; /* of awaited works that are done, oldest first */
    uint32_t n_done;
} pimhw_i_jobs;

/* One stream of instructions: its place in the program, its works at the hub. */
typedef struct pimhw_i_stream {
    pimhw_i_walker walker;
    pimhw_i_jobs jobs;
    pimhw_instruction in; /* the instruction that waits for the hub */
    bool waits;
} pimhw_i_stream;

typedef enum pimhw_i_progress { PIMHW_I_IDLE, PIMHW_I_OPEN, PIMHW_I_ENDED } pimhw_i_progress;

/* Spans of a program that are like others need not be walked again. A unit is a group of channels,
 * or those of a shared front end that a loop concerns, with their host. Its state, relative to its
 * clock, is a text, without what is over by then, and so are the terms of a span; their numbers are
 * compared. An edge leads from a state, through a span with given terms, to a state; if it holds
 * refreshes, from where those are equally far off. What it adds on the way is counted apart; of a
 * unit that goes from edge to edge only the number of its state is kept, and it is asleep. */
typedef struct pimhw_i_text {
    uint64_t hash;
    uint32_t at, n;
    uint16_t next; /* in its chain; 0: the last */
    bool waits;    /* of a state: commands do, under DCS for a refresh */
} pimhw_i_text;

/* What a span does to a group of channels; at the head of a trial: the group. */
typedef struct pimhw_i_part {
    uint64_t end_ck, latest_ck, last_ck; /* from the base; or unmoved */
    uint64_t row;                        /* from the base of rows, if it opens any */
    uint64_t due_ck;
    uint64_t counted; /* bit i: word i of the tally is not 0 */
    int32_t active;
    uint32_t first; /* reason of its first command, where the state does not know last_ck: the sum
                       for it is as if that were the base */
} pimhw_i_part;

/* 64 bytes, of one line of a cache: edges are met in no order. */
typedef struct pimhw_i_edge {
    uint64_t key, phase; /* of where it leads on from; phase 0: it meets no refresh */
    uint64_t clocks;
    uint64_t n_instructions, n_rounds; /* of a channel; of a shared front end: of all */
    pimhw_i_slack slack;               /* for the phase */
    uint32_t parts;        /* where those of its groups lie, behind them what they add to tallies */
    uint16_t to;           /* a state */
    uint16_t next;         /* in its chain; 0: the last */
    bool refreshed, again; /* again: a round of a loop that leads back to its head */
} pimhw_i_edge;

typedef struct pimhw_i_trial {
    bool open, waits;
    uint32_t n_groups;
    uint64_t key, phase; /* of the place */
    uint64_t base_ck, n_instructions, n_rounds;
    uint64_t nest;                     /* of the device */
    uint64_t index, heads, power;      /* of a mark */
    uint64_t rows[PIMHW_MAX_CHANNELS]; /* of the place */
    pimhw_i_part part[PIMHW_MAX_CHANNELS];
    uint64_t n_slack[PIMHW_MAX_CHANNELS];
    uint64_t n_first[PIMHW_MAX_CHANNELS];
    pimhw_i_tally tally[PIMHW_MAX_CHANNELS];
} pimhw_i_trial;

/* 7 of a group beside its tally, 5 of all beside the hub's works */
enum { PIMHW_I_LAP_WORDS = PIMHW_MAX_CHANNELS * (7 + PIMHW_I_TALLY) + PIMHW_I_JOBS + 5 };

/* A round of a list as a whole, the hub's work in it too, before one whose blocks differ from its
 * own in their rows alone: words at its head, and how its channels met the hub. */
typedef struct pimhw_i_lap {
    bool open;
    uint32_t n;          /* words so far */
    uint64_t begin, end; /* of the blocks that differ so */
    uint64_t row_step;   /* from one to the next */
    uint64_t hub_ck;     /* the hub was free */
    uint64_t n_rounds;
    uint64_t lead; /* channels whose work was over last whenever the hub got some */
    uint64_t kept; /* channels of which beyond has what the device had then */
    /* the hub was done at least so long before they asked; 0: it was not */
    uint64_t early_ck[PIMHW_MAX_CHANNELS];
    pimhw_i_tally beyond[PIMHW_MAX_CHANNELS];
    uint64_t words[PIMHW_I_LAP_WORDS];
} pimhw_i_lap;

typedef struct pimhw_i_memo {
    uint32_t n_words;
    uint32_t terms; /* the text of the last place */
    bool full;
    uint32_t n_texts, n_edges;
    uint16_t texts[PIMHW_I_CHAINS], edges[PIMHW_I_CHAINS]; /* the first of a chain; 0: none */
    pimhw_i_text text[PIMHW_I_TEXTS];
    pimhw_i_edge edge[PIMHW_I_EDGES]; /* the first: of rounds since a mark */
    uint64_t words[PIMHW_I_WORDS];
} pimhw_i_memo;

struct pimhw_device {
    pimhw_config config;
    size_t bytes, flow_bytes; /* of the device; of the state of a controller with gaps */
    bool shared;              /* one host feeds all channels */
    pimhw_i_rules rules;
    pimhw_i_listener sink;
    pimhw_i_progress phase;
    pimhw_cause *why;    /* of the program that runs; may be NULL */
    bool sketched;       /* the sketch and the memo are of `program` */
    pimhw_i_when decode; /* shared front end: the next instruction; from here on 0 at the start */
    uint64_t epu_free_ck, epu_ck, skipped_rounds, walked_rounds;
    uint32_t unit;  /* its first group */
    uint64_t nest;  /* of a shared front end: channels of the loop that is walked */
    uint32_t known; /* number of its state, until something happens; 0: not yet */
    bool real_rows; /* a row is one of the device, not of a block */
    bool safe;      /* no instruction of the program can be refused */
    bool skips;     /* spans that are like others are not walked */
    bool laps;      /* .. nor rounds of its list */
    bool endless;   /* the hub or a channel passed PIMHW_I_MOST_CK, or as many rounds */
    uint64_t n_instructions;
    uint64_t n_sent;            /* instructions to channels, in the order of the program */
    uint32_t n_groups, n_ready; /* ready: they have a flow and banks, and may be free */
    uint32_t n_streams;
    uint8_t group_of[PIMHW_MAX_CHANNELS];     /* of each channel */
    pimhw_i_tally beyond[PIMHW_MAX_CHANNELS]; /* what a channel has beyond its group's tally */
    uint32_t af_mode;                         /* what CFR 2 holds: the row of AF */
    pimhw_i_channel groups[PIMHW_MAX_CHANNELS];
    pimhw_i_banks banks[PIMHW_MAX_CHANNELS]; /* of the groups */
    pimhw_i_trial trial[PIMHW_I_TRIALS];     /* of rounds by depth; the last: of all else */
    pimhw_i_trial mark[PIMHW_I_TRIALS];
    pimhw_i_lap lap;
    pimhw_i_memo memo;
    pimhw_i_stream streams[PIMHW_MAX_CHANNELS];
    uint64_t rounds[PIMHW_LOOPS][PIMHW_MAX_CHANNELS];
    pimhw_i_sketch sketch;
    pimhw_program program;
};

enum { PIMHW_I_DEVICE_BYTES = (sizeof(pimhw_device) + 63) / 64 * 64 };

/* The state of a controller with gaps of group g; NULL where there is none. */
static pimhw_i_flow *pimhw_i_flow_of(pimhw_device *d, uint32_t g)
{
    if (d->flow_bytes == 0) return NULL;
    return (pimhw_i_flow *)(void *)((char *)d + PIMHW_I_DEVICE_BYTES + g * d->flow_bytes);
}

/* As much of it as is in use: without a sink, not its last table. */
static size_t pimhw_i_flow_used(const pimhw_device *d)
{
    bool works = d->config.controller == PIMHW_DCS && !d->groups[0].sink;
    return d->flow_bytes - (works ? sizeof(pimhw_i_work) * PIMHW_I_STREAMS * PIMHW_I_RING : 0);
}

PIMHW_API pimhw_status pimhw_device_create(pimhw_device **device, const pimhw_config *config,
                                           pimhw_cause *why)
{
    if (!device) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    *device = NULL;
    PIMHW_I_TRY(pimhw_i_config_dram(config, why));
    pimhw_allocator a = config->allocator;
    if (!a.alloc) a = pimhw_allocator_default();
    pimhw_i_rules rules;
    pimhw_i_rules_init(&rules, config);
    bool gaps = config->controller != PIMHW_IN_ORDER;
    size_t flow_bytes = gaps ? pimhw_i_flow_point(NULL, &rules) : 0;
    size_t bytes = PIMHW_I_DEVICE_BYTES + flow_bytes * config->n_channels;
    pimhw_device *d = (pimhw_device *)a.alloc(a.user, bytes, 64);
    uint64_t asked = bytes;
    if (!d) return PIMHW_I_FAIL(why, PIMHW_ERR_MEMORY, "no memory for a device: %u bytes", asked);
    memset(d, 0, offsetof(pimhw_device, groups)); /* the rest is filled as it comes into use */
    d->config = *config;
    d->config.allocator = a;
    d->bytes = bytes;
    d->flow_bytes = flow_bytes;
    d->rules = rules;
    d->shared = config->front_end == PIMHW_SHARED && config->controller == PIMHW_IN_ORDER;
    *device = d;
    return PIMHW_OK;
}

PIMHW_API void pimhw_device_destroy(pimhw_device *d)
{
    if (d) d->config.allocator.release(d->config.allocator.user, d, d->bytes);
}

PIMHW_API const pimhw_config *pimhw_device_config(const pimhw_device *d)
{
    return &d->config;
}

/* ==========================================================================
 * [H18] SPANS: states of channels and spans of a program that were met before: not walked again.
 *       Keeps clocks as distances from a base, and moves clocks on by them; no data.
 * ========================================================================== */

#define PIMHW_I_UNMOVED UINT64_MAX

/* Writes the state of channels relative to a clock into words, or reads it back at another. */
typedef struct pimhw_i_pen {
    uint64_t *words;
    uint64_t base;
    uint32_t n, most;
    bool back;
} pimhw_i_pen;

/* Room for n words; NULL and nothing more to come: there is none. */
static uint64_t *pimhw_i_pen_room(pimhw_i_pen *pen, uint32_t n)
{
    uint64_t *words = &pen->words[pen->n];
    bool fits = n <= pen->most - pen->n;
    pen->n = fits ? pen->n + n : pen->most;
    return fits ? words : NULL;
}

/* A number less a base. */
static void pimhw_i_pen_word(pimhw_i_pen *pen, uint64_t *at, uint64_t base)
{
    uint64_t *word = pimhw_i_pen_room(pen, 1);
    if (word && pen->back) *at = *word + base;
    if (word && !pen->back) *word = *at - base;
}

/* n numbers of a ring of wrap + 1 less a base, or 0 if they are below the least, as ramps: how many
 * numbers there are in each, and, in the low bits, from one to the next. */
static void pimhw_i_pen_ramps(pimhw_i_pen *pen, uint64_t *at, uint32_t wrap, uint32_t first,
                              uint32_t n, uint64_t least, uint64_t base)
{
    enum { BITS = 48 };
    const uint64_t one = (uint64_t)1 << BITS, half = one / 2;
    uint64_t *words = &pen->words[pen->n], *ramp = words, value = 0, step = 0;
    if (!pen->back && !pimhw_i_pen_room(pen, n)) return;
    for (uint32_t i = 0; i < n && !pen->back;) {
        const uint64_t *from = &at[(first + i) & wrap], *to = from + 1; /* up to the ring's end */
        const uint64_t *end = pimhw_i_min(n - i - 1, wrap - ((first + i) & wrap)) + to;
        uint64_t now = *from < least ? 0 : *from - base;
        bool on = i > 0 && now - value == step && step < half;
        step = now - value;
        if (step + half >= one) { /* too far apart */
            pen->n = pen->most;
            return;
        }
        if (!now)
            while (!step && to < end && *to < least)
                to++;
        else if (step < half)
            for (uint64_t next = *from + step; to < end && *to == next; to++)
                next += step;
        ramp -= on;
        *ramp = (on ? *ramp : step & (one - 1)) + (uint64_t)(to - from) * one;
        ramp++;
        value = now ? to[-1] - base : 0;
        i += (uint32_t)(to - from);
    }
    for (uint32_t i = 0; i < n && pen->back; ramp++) {
        step = ((*ramp & (one - 1)) ^ half) - half;
        for (uint64_t left = *ramp >> BITS; left > 0; left--, i++) {
            value += step;
            at[(first + i) & wrap] = value + base; /* below the least: as good as 0 */
        }
    }
    pen->n = (uint32_t)(ramp - pen->words);
}

/* Clocks, with `bits` of something else below them, that count from the base on: before it, 0. */
static void pimhw_i_pen_ahead(pimhw_i_pen *pen, uint64_t *at, uint32_t n, uint64_t base,
                              uint32_t bits)
{
    uint64_t *words = pimhw_i_pen_room(pen, n), least = base << bits;
    uint64_t before = least - ((uint64_t)1 << bits);
    for (uint32_t i = 0; i < n && words && pen->back; i++)
        at[i] = words[i] ? words[i] + before : 0;
    for (uint32_t i = 0; i < n && words && !pen->back; i++)
        words[i] = at[i] < least ? 0 : at[i] - before;
}

static void pimhw_i_pen_when(pimhw_i_pen *pen, pimhw_i_when *when)
{
    uint64_t key = when->ck << 8 | when->reason;
    pimhw_i_pen_ahead(pen, &key, 1, pen->base, 8);
    when->ck = key >> 8;
    when->reason = (uint32_t)(key & 255);
}

/* Less than a word. */
static uint32_t pimhw_i_pen_small(pimhw_i_pen *pen, uint32_t value)
{
    uint64_t word = value;
    pimhw_i_pen_word(pen, &word, 0);
    return (uint32_t)word;
}

/* The clock before which no later command of the channel issues. */
static uint64_t pimhw_i_base_ck(const pimhw_i_channel *ch)
{
    const pimhw_i_flow *f = ch->flow;
    uint64_t base = ch->now_ck;
    if (ch->asleep) return ch->base_ck;
    if (ch->rules->config.controller == PIMHW_PING_PONG)
        base = pimhw_i_min(f->start.ck, pimhw_i_max(f->start_before.ck, f->mac_stream_ck));
    if (ch->rules->config.controller == PIMHW_DCS) {
        const pimhw_i_last *io = &f->last[PIMHW_I_IO], *mac = &f->last[PIMHW_I_MAC];
        base = f->dispatch_ck;
        if (io->any && mac->any) /* a row may be opened with the last MAC */
            base = pimhw_i_max(base + 1, pimhw_i_min(io->ck, mac->ck)) - 1;
    }
    return ch->hold.ck <= ch->due_ck ? pimhw_i_max(base, ch->hold.ck) : base;
}

#define PIMHW_I_APART ((uint64_t)1 << 63) /* in place of last_ck: it is told apart */

/* Groups of input tiles count from here: only how far they are from the newest in use matters. */
#define PIMHW_I_USED ((uint64_t)1 << 40)

/* Records of commands that wait; their rows are seen from the open one. */
static void pimhw_i_pen_records(pimhw_i_pen *pen, const pimhw_i_channel *ch,
                                pimhw_i_record *records, uint32_t *n)
{
    *n = pimhw_i_pen_small(pen, *n);
    uint64_t *words = pimhw_i_pen_room(pen, 4 * *n), used = ch->flow->used_group;
    for (uint32_t i = 0; i < *n && words; i++, words += 4) {
        pimhw_i_record *r = &records[i];
        if (!pen->back) {
            bool has_row = PIMHW_I_COMMANDS[r->work.command].needs_row;
            words[0] = (uint64_t)r->n << 32 | r->work.command;
            words[1] = (uint64_t)r->work.tile << 32 | r->work.out;
            words[2] = has_row ? r->work.row - ch->row : 0;
            words[3] = r->group > used ? r->group - used : 0;
            continue;
        }
        memset(r, 0, sizeof *r);
        r->n = (uint32_t)(words[0] >> 32);
        r->work.command = (uint32_t)words[0];
        r->work.tile = (uint32_t)(words[1] >> 32);
        r->work.out = (uint32_t)words[1];
        r->work.row = PIMHW_I_COMMANDS[r->work.command].needs_row ? words[2] + ch->row : 0;
        r->group = words[3] ? words[3] + used : 0;
        if (ch->rules->class_of[r->work.command] == PIMHW_I_M) r->stream = PIMHW_I_MAC;
    }
}

static void pimhw_i_pen_ping_pong(pimhw_i_pen *pen, pimhw_i_channel *ch)
{
    pimhw_i_flow *f = ch->flow;
    uint32_t flags = pimhw_i_pen_small(pen, (uint32_t)f->mac_since << 1 | f->begun);
    f->begun = flags & 1;
    f->mac_since = flags >> 1 & 1;
    if (pen->back) f->filling = 0, f->used_group = PIMHW_I_USED;
    f->group_tiles = pimhw_i_pen_small(pen, f->group_tiles);
    pimhw_i_pen_word(pen, &f->group, f->used_group);
    pimhw_i_pen_when(pen, &f->start);
    pimhw_i_pen_when(pen, &f->start_before);
    uint64_t start = pimhw_i_max(f->start.ck, pen->base);
    pimhw_i_pen_ahead(pen, f->done_ck, PIMHW_I_OTHER, start, 0);
    for (uint32_t i = 0; i < 3; i++) {
        pimhw_i_phase *p = pimhw_i_pp_phase(f, f->filling + 2 + i);
        p->outs = pimhw_i_pen_small(pen, p->outs);
        pimhw_i_pen_records(pen, ch, p->w, &p->n_w);
        pimhw_i_pen_records(pen, ch, p->m, &p->n_m);
        pimhw_i_pen_records(pen, ch, p->r, &p->n_r);
    }
    pimhw_i_pen_records(pen, ch, f->records, &f->n_records);
    /* where runs of tiles and sums begin; of groups of tiles in use only that */
    enum { BITS = 20, INDEX = (1 << BITS) - 1 };
    uint32_t n_tiles = ch->rules->config.in_entries, n_sums = ch->rules->outs;
    uint64_t *end = &pen->words[pen->n], used = f->used_group, now = 0;
    if (!pen->back && !pimhw_i_pen_room(pen, n_tiles + n_sums + 1)) return;
    for (uint32_t i = 0; i < n_tiles; i++) {
        uint64_t *group = &f->tile_group[i];
        if (!pen->back && (i == 0 || group[0] != group[-1]))
            *end++ = (*group > used ? *group - used : 0) << BITS | i;
        if (!pen->back) continue;
        if ((*end & INDEX) == i) {
            uint64_t later = *end++ >> BITS;
            now = later ? f->used_group + later : used--;
        }
        *group = now;
    }
    for (uint32_t i = 0; i < n_sums; i++) {
        pimhw_i_entry *sum = &f->sums[i];
        uint64_t later = sum->phase > f->filling ? sum->phase - f->filling : 0;
        uint64_t word = later << 1 | sum->going;
        if (!pen->back && (i == 0 || word != now)) *end++ = (now = word) << BITS | i;
        if (pen->back && (*end & INDEX) == i) now = *end++ >> BITS;
        sum->going = now & 1;
        if (pen->back) sum->phase = now >> 1;
    }
    if (!pen->back) *end = UINT64_MAX; /* no index */
    pen->n = (uint32_t)(end + 1 - pen->words);
}

static void pimhw_i_pen_dcs(pimhw_i_pen *pen, pimhw_i_channel *ch)
{
    pimhw_i_flow *f = ch->flow;
    if (pen->back) f->dispatch_ck = pen->base;
    /* the other tables of entries lie behind the first */
    uint32_t n_entries = 2 * (ch->rules->config.in_entries + ch->rules->outs);
    uint64_t least = pen->base << 8;
    pimhw_i_pen_ramps(pen, f->tile_mac, UINT32_MAX, 0, n_entries, least, least - 256);
    /* commands that wait for a refresh, which is kept apart */
    pimhw_i_pen_records(pen, ch, f->records, &f->n_records);
    if (pen->back) f->n_blocked[PIMHW_I_IO] = f->n_blocked[PIMHW_I_MAC] = 0;
    for (uint32_t i = 0; i < f->n_records && pen->back; i++)
        f->n_blocked[f->records[i].stream] += f->records[i].n;
    for (uint32_t s = 0; s < PIMHW_I_STREAMS; s++) {
        pimhw_i_ring *r = &f->ring[s];
        pimhw_i_when *at = &f->blocked_at[s];
        uint64_t *left_ck = f->left_ck[s], ck = at->ck == UINT64_MAX ? 0 : at->ck;
        uint32_t n = 0, end = f->n_left[s];
        if (f->n_blocked[s] > 0) {
            pimhw_i_pen_ahead(pen, &ck, 1, pen->base, 0);
            at->ck = ck ? ck : UINT64_MAX;
            at->reason = pimhw_i_pen_small(pen, at->reason);
        }
        /* those before have left by now, too */
        for (uint32_t more = PIMHW_I_QUEUED; more > 0 && n < PIMHW_I_QUEUED; more /= 2)
            n += left_ck[(end - n - more) % PIMHW_I_QUEUED] > pen->base ? more : 0;
        n = pimhw_i_pen_small(pen, n);
        if (pen->back) memset(left_ck, 0, sizeof f->left_ck[s]);
        pimhw_i_pen_ramps(pen, left_ck, PIMHW_I_QUEUED - 1, end - n, n, 0, pen->base - 1);
        n = pimhw_i_pen_small(pen, r->end - r->begin);
        r->end = r->begin + n;
        pimhw_i_pen_ramps(pen, r->key, PIMHW_I_RING - 1, r->begin, n, 0, (pen->base << 16) - 1);
    }
}

/* What the host of a shared front end waits for: the queue as far as it reaches past its clock. */
static void pimhw_i_pen_queue(pimhw_i_pen *pen, pimhw_i_channel *ch, uint64_t entries)
{
    uint32_t n = 0;
    pimhw_i_pen_ahead(pen, &ch->answer_ck, 1, pen->base, 0);
    pimhw_i_pen_ahead(pen, &ch->pending_ck, 1, pen->base, 0);
    pimhw_i_pen_ahead(pen, &ch->left_ck, 1, pen->base, 0);
    for (uint64_t left = entries; n < PIMHW_I_QUEUE && left > 0 && !pen->back; n++) {
        const pimhw_i_run *run = &ch->runs[(ch->newest_run + PIMHW_I_QUEUE - n) % PIMHW_I_QUEUE];
        if (run->last_ck <= pen->base) break;
        left -= pimhw_i_min(run->n, left);
    }
    n = pimhw_i_pen_small(pen, n);
    if (pen->back) memset(ch->runs, 0, sizeof ch->runs);
    for (uint32_t i = 0; i < n; i++) {
        pimhw_i_run *run = &ch->runs[(ch->newest_run + PIMHW_I_QUEUE - i) % PIMHW_I_QUEUE];
        run->n = pimhw_i_min(run->n, entries); /* nobody asks for more */
        pimhw_i_pen_word(pen, &run->last_ck, pen->base);
        pimhw_i_pen_word(pen, &run->step_ck, 0);
        pimhw_i_pen_word(pen, &run->n, 0);
    }
}

/* State of a channel but for its open row, its next refresh, its end and what adds up. */
static void pimhw_i_pen_channel(pimhw_i_pen *pen, const pimhw_device *d, pimhw_i_channel *ch)
{
    const pimhw_i_rules *rules = &d->rules;
    /* a refresh that is overdue takes place where no clock before the base may be forgotten */
    if (!pen->back && (ch->banked || ch->due_ck < pen->base)) pen->n = pen->most;
    uint32_t modes = (uint32_t)ch->register_mode << 8 | (uint32_t)(ch->open != 0) << 9;
    uint32_t flags = pimhw_i_pen_small(pen, modes | ch->last_command);
    ch->last_command = (uint8_t)flags;
    ch->register_mode = flags >> 8 & 1;
    ch->open = flags >> 9 & 1 ? rules->all_banks : 0;
    uint64_t ends[2] = {ch->end_ck, ch->flow ? ch->latest_ck : 0}; /* kept apart */
    /* where all it waits for is a clock far behind its last command, how far is told apart */
    uint64_t busy = ch->last_command < PIMHW_N_COMMANDS ? rules->occupies[ch->last_command] : 0;
    bool idle = !pen->back && !d->shared && ch->last_ck + busy < pen->base;
    uint64_t newest = idle ? PIMHW_I_APART : ch->last_ck - pen->base;
    pimhw_i_pen_word(pen, &newest, 0); /* the second */
    if (newest != PIMHW_I_APART) ch->last_ck = newest + pen->base;
    pimhw_i_pen_ahead(pen, &ch->now_ck, 1, pen->base, 0);
    pimhw_i_pen_ahead(pen, &ch->refreshed_ck, 1, pen->base, 0);
    pimhw_i_pen_ahead(pen, ends, 2, pen->base, 0);
    pimhw_i_pen_when(pen, &ch->hold);
    pimhw_i_pen_ahead(pen, ch->ready, PIMHW_CMD_ACT, pen->base, 8);
    if (d->shared) pimhw_i_pen_queue(pen, ch, d->config.queue_entries);
    if (ch->flow) pimhw_i_pen_ahead(pen, &ch->flow->mac_stream_ck, 1, pen->base, 0);
    for (uint32_t s = 0; s < PIMHW_I_STREAMS && ch->flow; s++) {
        pimhw_i_last *last = &ch->flow->last[s];
        uint64_t key = last->any ? (last->ck + rules->most_gap) << 8 | last->command : 0;
        pimhw_i_pen_ahead(pen, &key, 1, pen->base, 8);
        last->any = key != 0;
        last->ck = last->any ? (key >> 8) - rules->most_gap : 0;
        last->command = (uint8_t)key;
    }
    if (rules->config.controller == PIMHW_DCS) pimhw_i_pen_dcs(pen, ch);
    if (rules->config.controller == PIMHW_PING_PONG) pimhw_i_pen_ping_pong(pen, ch);
}

/* Groups of the unit: of a shared front end all, from the first. */
static uint32_t pimhw_i_n_unit(const pimhw_device *d)
{
    return d->shared ? d->n_groups : 1;
}

static uint64_t pimhw_i_unit_ck(const pimhw_device *d)
{
    return d->shared ? d->decode.ck : pimhw_i_base_ck(&d->groups[d->unit]);
}

static uint64_t pimhw_i_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Room for a text or an edge behind those kept; NULL: there is none left. */
static uint64_t *pimhw_i_room(pimhw_i_memo *m)
{
    if (m->n_words + PIMHW_I_ROOM > PIMHW_I_WORDS) m->full = true;
    if (m->n_texts + 1 == PIMHW_I_TEXTS || m->n_edges + 1 == PIMHW_I_EDGES) m->full = true;
    return m->full ? NULL : &m->words[m->n_words];
}

/* One by one: words that have just been written are not there yet for wider loads. */
static bool pimhw_i_same(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    uint64_t other = 0;
    for (uint32_t i = 0; i < n; i++)
        other |= a[i] ^ b[i];
    return other == 0;
}

/* Number of the text of n words in the room; it is kept. */
static uint32_t pimhw_i_intern(pimhw_i_memo *m, uint32_t n)
{
    const uint64_t *words = &m->words[m->n_words];
    uint64_t a = n, b = 1, c = 2, hash = 3; /* four at a time do not wait for each other */
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a = pimhw_i_mix(a, words[i]);
        b = pimhw_i_mix(b, words[i + 1]);
        c = pimhw_i_mix(c, words[i + 2]);
        hash = pimhw_i_mix(hash, words[i + 3]);
    }
    for (; i < n; i++)
        a = pimhw_i_mix(a, words[i]);
    hash = pimhw_i_mix(a ^ c, b + 2 * hash);
    uint16_t *slot = &m->texts[hash % PIMHW_I_CHAINS];
    for (; *slot; slot = &m->text[*slot].next) {
        const pimhw_i_text *text = &m->text[*slot];
        if (text->hash != hash || text->n != n) continue;
        if (pimhw_i_same(&m->words[text->at], words, n)) return *slot;
    }
    pimhw_i_text added = {hash, m->n_words, n, 0, false};
    *slot = (uint16_t)++m->n_texts;
    m->text[*slot] = added;
    m->n_words += n;
    return *slot;
}

/* Whether a channel has no part in the unit's loop: nothing comes of what it waits for. */
static bool pimhw_i_rests(const pimhw_device *d, const pimhw_i_channel *ch)
{
    return d->shared && !(ch->mask & d->nest);
}

/* Channels of a unit are those of the words, later or earlier; false: there was no room. */
static bool pimhw_i_pen_unit(pimhw_device *d, pimhw_i_pen *pen, uint32_t first)
{
    if (d->shared) d->decode.reason = pimhw_i_pen_small(pen, d->decode.reason);
    for (uint32_t g = first; g < first + pimhw_i_n_unit(d); g++) {
        if (pen->back) d->groups[g].asleep = 0;
        uint64_t mask = pimhw_i_rests(d, &d->groups[g]) ? 0 : d->groups[g].mask;
        if (d->shared) pimhw_i_pen_word(pen, &mask, 0);
        if (mask) pimhw_i_pen_channel(pen, d, &d->groups[g]);
    }
    return pen->n < pen->most;
}

/* Number of the unit's state; 0: it is not kept. */
static uint32_t pimhw_i_state(pimhw_device *d)
{
    if (d->groups[d->unit].asleep) return d->groups[d->unit].asleep;
    if (d->known) return d->known;
    pimhw_i_pen pen = {pimhw_i_room(&d->memo), pimhw_i_unit_ck(d), 0, PIMHW_I_MOST_WORDS, false};
    if (!pen.words || !pimhw_i_pen_unit(d, &pen, d->unit)) return 0;
    const pimhw_i_flow *f = d->groups[d->unit].flow;
    d->known = pimhw_i_intern(&d->memo, pen.n);
    d->memo.text[d->known].waits = f && (f->begun || f->n_records > 0);
    return d->known;
}

/* A channel, or all of a shared front end, of which only a state's number was kept, is itself. */
static void pimhw_i_wake(pimhw_device *d, pimhw_i_channel *ch)
{
    if (!ch->asleep) return;
    const pimhw_i_text *text = &d->memo.text[ch->asleep];
    pimhw_i_pen pen = {&d->memo.words[text->at], ch->base_ck, 0, text->n, true};
    pimhw_i_pen_unit(d, &pen, d->shared ? 0 : (uint32_t)(ch - d->groups));
}

static void pimhw_i_wake_all(pimhw_device *d)
{
    for (uint32_t g = 0; g < d->n_groups; g++)
        pimhw_i_wake(d, &d->groups[g]);
}

/* Other channels of a shared front end take part from here on: the others are as they were left. */
static void pimhw_i_turn_to(pimhw_device *d, uint64_t nest)
{
    if (!d->shared || d->nest == nest) return;
    pimhw_i_wake_all(d);
    d->known = 0;
    d->nest = nest;
}

static void pimhw_i_close_trials(pimhw_device *d)
{
    for (uint32_t i = 0; i < PIMHW_I_TRIALS; i++)
        d->trial[i].open = d->mark[i].open = false;
    d->lap.open = false;
}

static void pimhw_i_forget(pimhw_device *d)
{
    pimhw_i_wake_all(d);
    pimhw_i_memo *m = &d->memo;
    memset(m, 0, offsetof(pimhw_i_memo, text) + sizeof m->text[0]);
    d->known = 0;
    pimhw_i_close_trials(d);
}

/* Before a program is walked: what was learnt of it the last time holds for any request. */
static void pimhw_i_meet(pimhw_device *d, const pimhw_program *p, const pimhw_request *request)
{
    bool lists = request && request->list_begin;
    pimhw_i_close_trials(d);
    if (d->sketched && d->sketch.lists == lists && memcmp(&d->program, p, sizeof *p) == 0) return;
    pimhw_i_forget(d);
    pimhw_i_sketch_init(&d->sketch, p, request, d->config.controller, d->shared);
    d->program = *p;
    d->sketched = true;
}

/* What it hangs on whether a span is like another, at its head. */
typedef struct pimhw_i_place {
    uint64_t key;      /* the span, the state, the terms, behind each other */
    uint64_t phase;    /* how far off all refreshes are; 0: not alike */
    uint64_t row_base; /* the rows of the span are not below */
    uint64_t apart;    /* those of its second row space from the first */
    uint64_t n_same;   /* rounds from here on with these terms */
    uint64_t terms[PIMHW_I_TERMS];
    uint32_t first, until; /* channels of these terms */
    uint32_t state;
    bool waits;                        /* commands do; where their rows lie is known */
    const pimhw_i_edge *edge;          /* of the unit before, of these terms too; NULL: none */
    uint64_t seen;                     /* the row it had open */
    uint64_t rows[PIMHW_MAX_CHANNELS]; /* row_base of each group: they may do other blocks */
} pimhw_i_place;

/* Rows and terms of a span for the lowest channel of mask and those behind it that share them;
 * lowers n_same to the rounds of a level that do so, too. */
static void pimhw_i_place_terms(const pimhw_i_walker *w, const pimhw_i_scope *scope, uint32_t level,
                                uint64_t mask, pimhw_i_place *place)
{
    uint64_t spare[PIMHW_I_TERMS]; /* a tail may lose so much, and its term stays */
    uint64_t first = pimhw_i_lowest(mask), until = pimhw_i_highest(mask) + 1u;
    if (scope->masks) until = first + 1; /* each takes other instructions */
    for (uint32_t i = 0; i < scope->n_terms; i++) {
        const pimhw_i_term *term = &scope->terms[i];
        if (!term->tail) {
            const pimhw_operand *o = &w->program->operands[term->operand - 1];
            uint64_t sum = o->base + pimhw_i_steps(w, o->step);
            if (o->step[level] && sum < term->most) place->n_same = 1;
            place->terms[i] = pimhw_i_min(sum, term->most);
            continue;
        }
        const pimhw_tail *t = &w->program->tails[term->tail - 1];
        uint64_t left = pimhw_i_left(w, t, (uint32_t)first);
        uint64_t value = pimhw_i_min(pimhw_i_ceil_div(left, term->unit), term->most);
        place->terms[i] = value;
        if (value == 0) continue;
        spare[i] = left - (value - 1) * term->unit - 1;
        if (t->channel_step && first + 1 < until) {
            uint64_t div = pimhw_i_max(t->channel_div, 1), more = spare[i] / t->channel_step;
            until = pimhw_i_min(until, pimhw_i_times(first / div + more + 1, div));
        }
    }
    for (uint32_t i = 0; i < scope->n_terms; i++) {
        const pimhw_i_term *term = &scope->terms[i];
        const pimhw_tail *t = term->tail ? &w->program->tails[term->tail - 1] : NULL;
        if (!t || !t->step[level] || place->terms[i] == 0) continue;
        uint64_t div = pimhw_i_max(t->channel_div, 1), less = 0;
        if (t->channel_step) /* the last of them has the least left */
            less = t->channel_step * ((until - 1) / div - first / div);
        place->n_same = pimhw_i_min(place->n_same, (spare[i] - less) / t->step[level] + 1);
    }
    place->first = (uint32_t)first;
    place->until = (uint32_t)until;
    const pimhw_block *block = scope->spaces ? pimhw_i_block(w, place->first) : NULL;
    uint64_t zero = block ? block->row_base[0] : 0, one = block ? block->row_base[1] : 0;
    bool both = scope->spaces == 3;
    place->row_base = both ? pimhw_i_min(zero, one) : scope->spaces == 2 ? one : zero;
    place->row_base += pimhw_i_steps(w, scope->outer_step);
    place->apart = both ? one - zero : 0;
}

/* The open row of a channel as a span sees it; 0: not at all. Any but the first row that it asks
 * for is closed, whichever it is; but those of commands that wait are seen from it. */
static uint64_t pimhw_i_seen(const pimhw_i_scope *scope, const pimhw_i_place *place,
                             const pimhw_i_channel *ch)
{
    uint64_t row = ch->row - place->row_base;
    bool met = place->waits, above = scope->spaces && ch->open && ch->row >= place->row_base;
    if (above && scope->any_row) met = true;
    for (uint32_t i = 0; i < scope->n_rows && above; i++)
        met = met || row == scope->rows[i];
    return met ? row + 1 : 0;
}

/* The same for all of a group, whose blocks may differ; false: and so do their rows or terms. */
static bool pimhw_i_place_group(const pimhw_i_walker *w, const pimhw_i_scope *scope, uint32_t level,
                                uint64_t mask, pimhw_i_place *place)
{
    const pimhw_block *block = NULL;
    uint64_t terms[PIMHW_I_TERMS], row_base = 0, apart = 0;
    bool like = true;
    for (uint64_t left = mask; left && like; left &= left - 1) {
        uint32_t channel = pimhw_i_lowest(left);
        const pimhw_block *other = pimhw_i_block(w, channel);
        if (!other) return false;
        bool known = block && memcmp(block, other, sizeof *block) == 0 && channel < place->until;
        if (!known) pimhw_i_place_terms(w, scope, level, left, place);
        if (!known && left != mask)
            like = place->row_base == row_base && place->apart == apart &&
                   pimhw_i_same(place->terms, terms, scope->n_terms);
        block = other;
        row_base = place->row_base;
        apart = place->apart;
        memcpy(terms, place->terms, scope->n_terms * sizeof terms[0]);
    }
    return like;
}

static uint64_t pimhw_i_key(uint64_t span, uint64_t state, uint64_t terms)
{
    return (span << PIMHW_I_KEY_BITS | state) << PIMHW_I_KEY_BITS | terms;
}

/* Where the unit is in the program and what it is like; false: it cannot be told. */
static bool pimhw_i_place_of(pimhw_device *d, const pimhw_i_walker *w, uint32_t item, bool whole,
                             pimhw_i_place *place)
{
    const pimhw_i_loop *loop = &d->sketch.loops[item];
    const pimhw_i_scope *scope = whole ? &loop->whole : &loop->round;
    pimhw_i_memo *m = &d->memo;
    uint32_t level = whole ? PIMHW_LOOPS - 1 : w->depth - 1, n = 0;
    const bool lists = d->shared && d->sketch.lists;
    uint64_t base = 0, n_in = 0;
    if (lists) place->until = 0;
    place->state = pimhw_i_state(d);
    uint64_t *words = pimhw_i_room(m);
    if (!place->state || !words) return false;
    place->waits = m->text[place->state].waits;
    if (scope->masks) words[n++] = d->shared ? 0 : pimhw_i_lowest(w->mask);
    uint64_t due = d->groups[d->unit].due_ck;
    for (uint32_t i = 0; pimhw_i_rests(d, &d->groups[d->unit + i]); i++)
        due = d->groups[d->unit + i + 1].due_ck;
    place->phase = d->config.refresh ? due - pimhw_i_unit_ck(d) + 1 : 0;
    for (uint32_t i = 0; i < pimhw_i_n_unit(d); i++) {
        const pimhw_i_channel *ch = &d->groups[d->unit + i];
        uint64_t in = ch->mask & w->mask;
        if (pimhw_i_rests(d, ch)) continue;
        if (ch->due_ck != due) place->phase = 0;
        if (in && in != ch->mask) return false;
        if (lists) {
            if (!pimhw_i_place_group(w, scope, level, in, place)) return false;
        } else if (in) {
            if (pimhw_i_lowest(in) < place->first || pimhw_i_lowest(in) >= place->until)
                pimhw_i_place_terms(w, scope, level, in, place);
            if (pimhw_i_highest(in) >= place->until) return false;
        }
        place->rows[i] = place->row_base;
        base = n_in == 0 ? place->row_base : base;
        n_in += in != 0;
        place->seen = pimhw_i_seen(scope, place, ch);
        words[n++] = place->seen << 1 | (in != 0);
        for (uint32_t t = 0; in && t < scope->n_terms; t++)
            words[n++] = place->terms[t];
        if (in && scope->spaces == 3) words[n++] = place->apart;
        /* channels in the same rows share instructions */
        if (in && lists && scope->spaces) words[n++] = place->row_base - base;
    }
    const pimhw_i_text *last = &m->text[m->terms];
    bool same = last->n == n && pimhw_i_same(&m->words[last->at], words, n);
    if (!same) m->terms = pimhw_i_intern(m, n);
    place->key = pimhw_i_key(2 * item + whole, place->state, m->terms);
    return true;
}

static void pimhw_i_try(pimhw_device *d, pimhw_i_trial *t, const pimhw_i_place *place)
{
    t->open = true;
    t->waits = place->waits;
    t->key = place->key;
    t->phase = place->phase;
    t->base_ck = pimhw_i_unit_ck(d);
    t->n_instructions = d->n_instructions;
    t->n_rounds = d->walked_rounds + d->skipped_rounds;
    t->n_groups = d->n_groups;
    t->nest = d->nest;
    bool idle = !d->shared && d->memo.words[d->memo.text[place->state].at + 1] == PIMHW_I_APART;
    for (uint32_t i = 0; i < pimhw_i_n_unit(d); i++) {
        pimhw_i_channel *ch = &d->groups[d->unit + i];
        pimhw_i_part part = {ch->end_ck, ch->latest_ck, ch->last_ck, ch->row, ch->due_ck,
                             0,          ch->open != 0, idle};
        ch->idle = idle;
        t->part[i] = part;
        t->n_slack[i] = ch->n_slack;
        t->n_first[i] = ch->n_first;
        t->rows[i] = place->rows[i];
        t->tally[i] = ch->tally;
    }
}

/* A clock that a span moved, from its base. */
static uint64_t pimhw_i_moved(uint64_t now, uint64_t then, uint64_t base)
{
    return now == then ? PIMHW_I_UNMOVED : now - base;
}

static const pimhw_i_part *pimhw_i_parts(const pimhw_device *d, const pimhw_i_edge *e)
{
    return (const pimhw_i_part *)(const void *)&d->memo.words[e->parts];
}

/* The least of the refreshes of a channel since it had n, if the next is due after all of this. */
static void pimhw_i_slack_since(const pimhw_device *d, const pimhw_i_channel *ch, uint64_t n,
                                pimhw_i_slack *least)
{
    uint64_t next_ck = pimhw_i_max(pimhw_i_unit_ck(d), ch->latest_ck + 1);
    bool known = ch->n_slack - n <= PIMHW_I_REFRESHES;
    if (!known || ch->due_ck < next_ck) least->early_ck = least->late_ck = 0;
    least->early_ck = (uint32_t)pimhw_i_min(least->early_ck, ch->due_ck - next_ck);
    /* what waits for the next refresh would still */
    for (uint32_t s = 0; ch->flow && !ch->asleep && s < PIMHW_I_STREAMS; s++) {
        uint64_t ck = ch->flow->n_blocked[s] ? ch->flow->blocked_at[s].ck : UINT64_MAX;
        least->late_ck = (uint32_t)pimhw_i_min(least->late_ck, ck - ch->due_ck);
    }
    for (; known && n < ch->n_slack; n++) {
        const pimhw_i_slack *slack = &ch->slack[n % PIMHW_I_REFRESHES];
        if (slack->early_ck < least->early_ck) least->early_ck = slack->early_ck;
        if (slack->late_ck < least->late_ck) least->late_ck = slack->late_ck;
    }
}

static void pimhw_i_count_skipped(pimhw_device *d, uint64_t times, uint64_t rounds)
{
    d->skipped_rounds = pimhw_i_plus(d->skipped_rounds, pimhw_i_times(times, rounds));
    d->endless = d->endless || d->skipped_rounds >= PIMHW_MAX_CHANNELS * PIMHW_I_MOST_CK;
}

/* What happened since a trial, as an edge to a state, into the room; returns its words there. To no
 * state, if it is not known why the first command came when it did. */
static uint32_t pimhw_i_edge_since(pimhw_device *d, const pimhw_i_trial *t, pimhw_i_edge *e,
                                   uint32_t to)
{
    uint64_t base = t->base_ck, n = d->shared ? 1 : pimhw_i_count(d->groups[d->unit].mask);
    e->to = (uint16_t)to;
    e->parts = d->memo.n_words;
    e->refreshed = d->config.controller == PIMHW_DCS && d->memo.text[to].waits;
    e->again = false;
    e->slack.early_ck = e->slack.late_ck = UINT32_MAX;
    e->clocks = pimhw_i_unit_ck(d) - base;
    e->n_instructions = (d->n_instructions - t->n_instructions) / n;
    e->n_rounds = (d->walked_rounds + d->skipped_rounds - t->n_rounds) / n;
    pimhw_i_part *parts = (pimhw_i_part *)(void *)&d->memo.words[e->parts];
    uint64_t *sum = (uint64_t *)(void *)&parts[pimhw_i_n_unit(d)];
    for (uint32_t i = 0; i < pimhw_i_n_unit(d); i++) {
        const pimhw_i_channel *ch = &d->groups[d->unit + i];
        const pimhw_i_part *from = &t->part[i];
        pimhw_i_part *p = &parts[i];
        uint64_t n_first = from->first ? ch->n_first - t->n_first[i] : 0;
        if (n_first > PIMHW_I_FIRSTS) e->to = 0;
        p->first = PIMHW_N_SPENT;
        if (n_first > 0) p->first = ch->first[t->n_first[i] % PIMHW_I_FIRSTS];
        p->active = (ch->open != 0) - from->active;
        /* what its tally grew by, as if the base were 0 */
        const uint64_t *now = (const uint64_t *)&ch->tally, *then = (const uint64_t *)&t->tally[i];
        uint64_t counted = 0;
        for (uint32_t k = 0; k < PIMHW_I_TALLY; k++) {
            if (now[k] == then[k] && k != PIMHW_I_ACTIVE) continue; /* most */
            *sum = now[k] - then[k];
            if (k == PIMHW_I_ACTIVE) *sum += (uint64_t)p->active * base;
            if (k == PIMHW_I_SPENT + p->first) *sum -= base - from->last_ck;
            sum++;
            counted |= (uint64_t)1 << k;
        }
        p->counted = counted;
        p->end_ck = pimhw_i_moved(ch->end_ck, from->end_ck, base);
        p->latest_ck = pimhw_i_moved(ch->latest_ck, from->latest_ck, base);
        p->last_ck = pimhw_i_moved(ch->last_ck, from->last_ck, base);
        p->row = ch->row - t->rows[i];
        p->due_ck = ch->due_ck - from->due_ck;
        e->refreshed = e->refreshed || p->due_ck > 0;
        if (!pimhw_i_rests(d, ch)) pimhw_i_slack_since(d, ch, t->n_slack[i], &e->slack);
    }
    e->phase = e->refreshed ? t->phase : 0;
    if (!e->phase) e->slack.late_ck = 0;
    e->slack.early_ck = (uint32_t)pimhw_i_min(e->slack.early_ck, e->phase ? e->phase - 1 : 0);
    return (uint32_t)(sum - &d->memo.words[e->parts]);
}

/* Of n spans like an edge, one after the other, those that are over when a refresh is due. */
static uint64_t pimhw_i_before_due(const pimhw_device *d, const pimhw_i_edge *e, uint64_t n)
{
    const pimhw_i_part *parts = pimhw_i_parts(d, e);
    uint64_t base = pimhw_i_unit_ck(d);
    bool refresh = d->config.refresh && !e->refreshed;
    if (n > 1 && e->clocks && !refresh) n = pimhw_i_min(n, PIMHW_I_MOST_CK / e->clocks);
    for (uint32_t i = 0; i < pimhw_i_n_unit(d) && refresh; i++) {
        uint64_t due = d->groups[d->unit + i].due_ck, end = base + e->clocks;
        if (pimhw_i_rests(d, &d->groups[d->unit + i])) continue;
        if (parts[i].latest_ck != PIMHW_I_UNMOVED)
            end = pimhw_i_max(end, base + parts[i].latest_ck + 1);
        if (end > due) return 0;
        if (n > 1 && e->clocks) n = pimhw_i_min(n, (due - end) / e->clocks + 1);
    }
    return n;
}

/* The unit does n times what an edge says; the rows of the last time are seen `on` from these. */
static void pimhw_i_follow(pimhw_device *d, const pimhw_i_edge *e, uint64_t n, const uint64_t *rows,
                           uint64_t on)
{
    uint64_t base = pimhw_i_unit_ck(d), last = base + (n - 1) * e->clocks;
    uint64_t times = d->shared ? n : n * pimhw_i_count(d->groups[d->unit].mask);
    const pimhw_i_part *parts = pimhw_i_parts(d, e);
    const uint64_t *sum = (const uint64_t *)(const void *)&parts[pimhw_i_n_unit(d)];
    d->known = 0;
    d->n_instructions += times * e->n_instructions;
    pimhw_i_count_skipped(d, times, e->n_rounds);
    for (uint32_t i = 0; i < pimhw_i_n_unit(d); i++) {
        pimhw_i_channel *ch = &d->groups[d->unit + i];
        const pimhw_i_part *p = &parts[i];
        uint64_t *to = (uint64_t *)&ch->tally;
        for (uint64_t left = p->counted; left; left &= left - 1)
            to[pimhw_i_lowest(left)] += n * *sum++;
        ch->tally.active_ck -= (uint64_t)p->active * base;
        if (p->first < PIMHW_N_SPENT) {
            uint64_t gaps = base - ch->last_ck + (n - 1) * (e->clocks - p->last_ck);
            ch->tally.spent_ck[p->first] += gaps;
            ch->first[ch->n_first++ % PIMHW_I_FIRSTS] = (uint8_t)p->first;
            ch->idle = false;
        }
        if (p->last_ck != PIMHW_I_UNMOVED) ch->last_ck = last + p->last_ck;
        if (p->active) ch->open ^= d->rules.all_banks;
        if (p->end_ck != PIMHW_I_UNMOVED) ch->end_ck = pimhw_i_max(ch->end_ck, last + p->end_ck);
        if (p->latest_ck != PIMHW_I_UNMOVED)
            ch->latest_ck = pimhw_i_max(ch->latest_ck, last + p->latest_ck);
        if (p->counted >> PIMHW_I_OPENED & 1) ch->row = rows[i] + on + p->row;
        if (e->refreshed && !pimhw_i_rests(d, ch)) { /* all of them are as far off */
            uint32_t off = (uint32_t)(ch->due_ck - base + 1 - e->phase);
            pimhw_i_slack slack = {e->slack.early_ck + off, e->slack.late_ck - off};
            ch->slack[ch->n_slack++ % PIMHW_I_REFRESHES] = slack;
        }
        ch->due_ck += n * p->due_ck;
        d->endless = d->endless || ch->end_ck >= PIMHW_I_MOST_CK;
        ch->asleep = e->to;
        ch->base_ck = last + e->clocks;
    }
    if (d->shared) d->decode.ck = last + e->clocks;
    d->endless = d->endless || last >= PIMHW_I_MOST_CK;
}

/* The slot of an edge, or where it belongs. */
static uint16_t *pimhw_i_edge_slot(pimhw_i_memo *m, uint64_t key, uint64_t phase)
{
    uint64_t hash = pimhw_i_mix(phase ? (phase >> PIMHW_I_PHASE_BITS) + 1 : 0, key);
    uint16_t *slot = &m->edges[hash % PIMHW_I_CHAINS];
    for (; *slot; slot = &m->edge[*slot].next) {
        const pimhw_i_edge *e = &m->edge[*slot];
        uint64_t first = e->phase - e->slack.early_ck;
        uint64_t most = (uint64_t)e->slack.early_ck + e->slack.late_ck;
        if (e->key == key && phase - first <= most) break;
    }
    return slot;
}

/* An edge that leads on from a place; NULL: none is known. */
static pimhw_i_edge *pimhw_i_edge_from(pimhw_device *d, const pimhw_i_place *place)
{
    pimhw_i_memo *m = &d->memo;
    for (uint32_t k = 0; k < 1u + (place->phase > 0); k++) {
        uint16_t number = *pimhw_i_edge_slot(m, place->key, k ? place->phase : 0);
        if (number && pimhw_i_before_due(d, &m->edge[number], 1)) return &m->edge[number];
    }
    return NULL;
}

/* The span of a trial has ended: it is kept. */
static void pimhw_i_learn(pimhw_device *d, pimhw_i_trial *t)
{
    pimhw_i_memo *m = &d->memo;
    if (!t->open) return;
    t->open = false;
    if (t->n_groups != d->n_groups) return;
    pimhw_i_turn_to(d, t->nest);
    uint32_t to = pimhw_i_state(d);
    if (to == 0 || !pimhw_i_room(m)) return;
    pimhw_i_edge *e = &m->edge[m->n_edges + 1];
    uint32_t n_words = pimhw_i_edge_since(d, t, e, to);
    if (e->to == 0 || (e->refreshed && t->phase == 0)) return;
    /* commands wait at its end alone: seen from an open row that is its own, or not at all */
    bool opened = pimhw_i_parts(d, e)->counted >> PIMHW_I_OPENED & 1;
    if (m->text[to].waits && !t->waits && !opened) return;
    e->key = t->key;
    uint16_t *slot = pimhw_i_edge_slot(m, e->key, e->phase);
    if (*slot) return;
    *slot = (uint16_t)++m->n_edges;
    e->next = 0;
    m->n_words += n_words;
}

/* The unit is at a head as it was at its mark: how often what it did since is done again. Otherwise
 * a mark is set, at heads 1, 2, 4, .. apart [Brent]. */
static uint64_t pimhw_i_cycle(pimhw_device *d, pimhw_i_trial *mark, const pimhw_i_place *place,
                              uint64_t index, uint64_t rounds, uint64_t row_step)
{
    bool same = mark->open && mark->n_groups == d->n_groups && mark->key == place->key;
    /* refreshes are as far off as they were, or none took place */
    bool phase = place->phase && mark->phase == place->phase;
    for (uint32_t i = 0; i < pimhw_i_n_unit(d) && same && !phase; i++)
        same = d->groups[d->unit + i].due_ck == mark->part[i].due_ck;
    if (same && pimhw_i_room(&d->memo)) {
        uint64_t period = index - mark->index;
        pimhw_i_edge *e = &d->memo.edge[0];
        pimhw_i_edge_since(d, mark, e, place->state);
        uint64_t n = pimhw_i_before_due(d, e, pimhw_i_min(rounds, place->n_same) / period);
        if (n > 0 && e->to > 0) {
            pimhw_i_follow(d, e, n, mark->rows, n * period * row_step);
            mark->open = false;
            return n * period;
        }
    }
    bool terms = (mark->key ^ place->key) % ((uint64_t)1 << PIMHW_I_KEY_BITS) == 0; /* the same */
    bool on = mark->open && terms;
    if (on && ++mark->heads < mark->power) return 0;
    mark->power = on ? 2 * mark->power : 1;
    mark->heads = 0;
    mark->index = index;
    pimhw_i_try(d, mark, place);
    return 0;
}

/* Rounds after which other channels take part. */
static uint64_t pimhw_i_rounds_alike(const pimhw_i_walker *w, uint32_t level)
{
    uint64_t limit = w->bound[level];
    for (uint64_t left = w->even[level] ? 0 : w->mask; left; left &= left - 1)
        limit = pimhw_i_min(limit, w->rounds[level][pimhw_i_lowest(left)]);
    return limit;
}

/* Rounds that were not walked are worth what walking them would have cost. */
static void pimhw_i_earn(pimhw_i_loop *loop, uint64_t rounds)
{
    uint64_t more = pimhw_i_times(rounds, loop->cost);
    loop->spare = pimhw_i_min(loop->most, pimhw_i_plus(loop->spare, more));
}

/* A round begins; whether to look if its state is known. The states of ping-pong and DCS are long:
 * looks that find nothing would take longer than short rounds do, so rounds must earn them. Those
 * of DCS that are walked earn a quarter [measured: with more a prefill by heads takes longer, with
 * less a ragged step]. */
static bool pimhw_i_looks(const pimhw_device *d, pimhw_i_loop *loop)
{
    const pimhw_i_flow *f = d->groups[d->unit].flow;
    if (d->config.controller < PIMHW_PING_PONG) return true;
    if (d->config.controller == PIMHW_DCS) {
        loop->cost = f->n_left[0] + f->n_left[1] - loop->n_left;
        loop->n_left = f->n_left[0] + f->n_left[1];
        loop->spare = pimhw_i_min(loop->most, loop->spare + loop->cost / 4);
    } else {
        pimhw_i_earn(loop, 1);
    }
    bool idle = loop->spare < (loop->idle ? loop->most : (uint64_t)PIMHW_I_LOOK);
    /* looks that found nothing: the next ones later */
    if (idle && !loop->idle) loop->cost = pimhw_i_max(loop->cost / 2, 1);
    loop->idle = idle;
    return !idle;
}

/* Follows rounds of a loop that are known, from a head; false: the last one is over. */
static bool pimhw_i_follow_rounds(pimhw_device *d, pimhw_i_walker *w)
{
    uint32_t level = w->depth - 1;
    pimhw_i_loop *loop = &d->sketch.loops[w->opener];
    uint64_t limit = pimhw_i_rounds_alike(w, level), *index = &w->index[level];
    pimhw_i_trial *t = &d->trial[level], *mark = &d->mark[level];
    const pimhw_i_edge *last = NULL;
    uint64_t row_step = loop->round.outer_step[level], n_chain = 0, last_phase = 0;
    pimhw_i_place place;
    if (*index == 0) t->open = mark->open = false;
    pimhw_i_learn(d, t);
    pimhw_i_turn_to(d, w->mask);
    if (d->memo.full) pimhw_i_forget(d);
    bool worth = w->bound[level] >= 2 && w->bound[level] * loop->weight >= PIMHW_I_WORTH;
    if (!loop->round.alike || !worth || !pimhw_i_looks(d, loop)) return true;
    place.row_base = place.first = place.until = 0; /* all else is set with them */
    while (*index < limit && !d->endless) {
        uint64_t most = limit - *index, n = 0;
        if (!place.until) place.n_same = UINT64_MAX;
        loop->spare -= pimhw_i_min(loop->spare, PIMHW_I_LOOK);
        if (!pimhw_i_place_of(d, w, w->opener, false, &place)) break;
        pimhw_i_edge *e = pimhw_i_edge_from(d, &place);
        if (!e) {
            pimhw_i_try(d, t, &place);
            break;
        }
        bool back = e == last && (!e->refreshed || place.phase == last_phase);
        e->again = e->again || back; /* once back at its head, always */
        if (!e->again && n_chain++ >= PIMHW_I_CHAIN)
            n = pimhw_i_cycle(d, mark, &place, *index, most, row_step);
        last = n > 0 ? NULL : e;
        last_phase = place.phase;
        if (n == 0) {
            n = pimhw_i_before_due(d, e, e->again ? pimhw_i_min(most, place.n_same) : 1);
            pimhw_i_follow(d, e, n, place.rows, (n - 1) * row_step);
        }
        if (d->config.controller == PIMHW_PING_PONG) loop->cost = loop->weight;
        pimhw_i_earn(loop, n);
        *index += n;
        bool ends = *index == limit && limit < w->bound[level];
        place.row_base += n * row_step;
        place.until = n < place.n_same && !ends ? place.until : 0; /* the terms are known */
        place.n_same -= n;
        if (!ends) continue;
        w->pc = w->opener; /* with fewer channels */
        pimhw_i_to_round(w);
        limit = pimhw_i_rounds_alike(w, level);
    }
    if (*index < w->bound[level]) return true;
    *index = w->bound[level] - 1;
    w->pc = w->program->items[w->opener].end;
    return false;
}

/* ==========================================================================
 * [H19] RUNS: host, hub and channels together; what is refused and what is read; the calls.
 *       The one room in which data and clocks meet.
 * ========================================================================== */

static const char PIMHW_I_NO_STREAM[] = "no stream has begun, or it ended at a failure";
static const char PIMHW_I_AFTER_EOC[] = "an instruction after EOC";
static const char PIMHW_I_TOO_MANY[] = "EPU: more than %u works that nothing waits for";
static const char PIMHW_I_TOO_LONG[] = "the run takes 2^46 clocks or rounds, or more";

/* Another group becomes what a group is, but for its flow and banks. */
static void pimhw_i_take_state(const pimhw_device *d, pimhw_i_channel *other,
                               const pimhw_i_channel *ch)
{
    size_t bytes = d->shared ? offsetof(pimhw_i_channel, banks) : offsetof(pimhw_i_channel, runs);
    memcpy((void *)other, (const void *)ch, bytes);
}

static void pimhw_i_members(pimhw_device *d, pimhw_i_channel *ch, uint64_t mask)
{
    ch->mask = mask;
    for (; mask; mask &= mask - 1)
        d->group_of[pimhw_i_lowest(mask)] = (uint8_t)(ch - d->groups);
}

static void pimhw_i_split(pimhw_device *d, pimhw_i_channel *ch, uint64_t outside)
{
    PIMHW_ASSERT(d->n_groups < PIMHW_MAX_CHANNELS);
    pimhw_i_channel *other = &d->groups[d->n_groups];
    bool fresh = d->n_groups == d->n_ready;
    if (fresh) {
        other->flow = pimhw_i_flow_of(d, d->n_ready);
        other->banks = &d->banks[d->n_ready++];
    }
    pimhw_i_take_state(d, other, ch);
    if (ch->flow && (fresh || !ch->asleep)) {
        memcpy((void *)other->flow, (const void *)ch->flow, pimhw_i_flow_used(d));
        pimhw_i_flow_point(other->flow, &d->rules);
    }
    if (ch->banked) *other->banks = *ch->banks;
    d->n_groups++;
    ch->mask &= ~outside;
    pimhw_i_members(d, other, outside);
}

/* The channels of a group become members of another, which is in the same state. */
static void pimhw_i_join(pimhw_device *d, pimhw_i_channel *other, pimhw_i_channel *ch)
{
    const uint64_t *has = (const uint64_t *)&ch->tally, *its = (const uint64_t *)&other->tally;
    for (uint64_t left = ch->mask; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        uint64_t *beyond = (uint64_t *)&d->beyond[c];
        if (!(d->lap.kept >> c & 1)) d->lap.beyond[c] = d->beyond[c];
        d->lap.kept |= (uint64_t)1 << c;
        for (uint32_t i = 0; i < PIMHW_I_TALLY; i++)
            beyond[i] += has[i] - its[i];
    }
    pimhw_i_members(d, other, other->mask | ch->mask);
    /* the last group takes its place */
    pimhw_i_channel *last = &d->groups[--d->n_groups];
    pimhw_i_flow *flow = ch->flow;
    pimhw_i_banks *banks = ch->banks;
    if (ch == last) return;
    ch->flow = last->flow;
    ch->banks = last->banks;
    pimhw_i_take_state(d, ch, last);
    pimhw_i_members(d, ch, ch->mask);
    last->flow = flow;
    last->banks = banks;
}

/* Groups of mask that are in one state at one clock become one; so few have to be looked at. They
 * fall asleep. */
static void pimhw_i_gather(pimhw_device *d, uint64_t mask)
{
    for (uint32_t g = d->n_groups; g-- > 0;) {
        pimhw_i_channel *ch = &d->groups[g];
        if (ch->mask & ~mask) continue;
        d->unit = g;
        d->known = 0;
        ch->base_ck = pimhw_i_base_ck(ch);
        ch->asleep = pimhw_i_state(d);
        for (uint32_t k = d->n_groups; ch->asleep && k-- > g + 1;) {
            pimhw_i_channel *b = &d->groups[k];
            if (ch->asleep == b->asleep && ch->base_ck == b->base_ck && ch->due_ck == b->due_ck &&
                ch->row == b->row && ch->end_ck == b->end_ck && ch->latest_ck == b->latest_ck &&
                ch->last_ck == b->last_ck)
                pimhw_i_join(d, ch, b);
        }
    }
    d->known = 0;
}

/* The group of *left's lowest channel, taken from *left; those not in *left form another group. */
static pimhw_i_channel *pimhw_i_group(pimhw_device *d, uint64_t *left)
{
    pimhw_i_channel *ch = &d->groups[d->group_of[pimhw_i_lowest(*left)]];
    uint64_t outside = ch->mask & ~*left;
    *left &= ~ch->mask;
    if (outside) pimhw_i_split(d, ch, outside);
    return ch;
}

/* Lets everything a group holds back issue; what comes of a state is kept as that of a span is. */
static void pimhw_i_drain(pimhw_device *d, pimhw_i_channel *ch)
{
    pimhw_i_trial *t = &d->trial[PIMHW_LOOPS];
    pimhw_i_place place;
    if (d->config.controller < PIMHW_PING_PONG) return;
    if (d->skips && d->memo.full) pimhw_i_forget(d);
    memset(&place, 0, offsetof(pimhw_i_place, rows));
    d->unit = (uint32_t)(ch - d->groups);
    d->known = t->open = 0;
    if (d->skips) {
        place.state = pimhw_i_state(d);
        place.key = pimhw_i_key(2 * PIMHW_PROGRAM_ITEMS, place.state, 0);
        place.phase = d->config.refresh ? ch->due_ck - pimhw_i_base_ck(ch) + 1 : 0;
        place.rows[0] = ch->row;
    }
    const pimhw_i_edge *e = place.state ? pimhw_i_edge_from(d, &place) : NULL;
    if (e) {
        pimhw_i_follow(d, e, 1, place.rows, 0);
        return;
    }
    pimhw_i_wake(d, ch);
    if (place.state) pimhw_i_try(d, t, &place);
    pimhw_i_flush(ch);
    d->known = 0;
    pimhw_i_learn(d, t);
}

/* Does the work that was ready first, of all streams; ties to the lowest stream. */
static bool pimhw_i_epu_serve(pimhw_device *d)
{
    pimhw_i_jobs *first = NULL;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        pimhw_i_jobs *jobs = &d->streams[i].jobs;
        if (jobs->n && (!first || jobs->at[0].ready_ck < first->at[0].ready_ck)) first = jobs;
    }
    if (!first) return false;
    d->epu_free_ck = pimhw_i_max(d->epu_free_ck, first->at[0].ready_ck) + first->at[0].cost_ck;
    d->epu_ck += first->at[0].cost_ck;
    d->endless = d->endless || d->epu_free_ck >= PIMHW_I_MOST_CK;
    d->epu_free_ck = pimhw_i_min(d->epu_free_ck, PIMHW_I_MOST_CK);
    if (first->at[0].awaited) first->done_ck[first->n_done++] = d->epu_free_ck;
    memmove(first->at, first->at + 1, --first->n * sizeof first->at[0]);
    return true;
}

/* New work at the hub, ready when all before it on its channels is done. */
static void pimhw_i_epu_post(pimhw_device *d, pimhw_i_jobs *jobs, const pimhw_instruction *in)
{
    const pimhw_config *c = &d->config;
    uint64_t ready = d->decode.ck, lead = 0;
    uint64_t ops = pimhw_i_ceil_div(in->op_size, c->epu_lanes);
    for (uint64_t left = in->mask; left;) {
        pimhw_i_channel *ch = pimhw_i_group(d, &left);
        pimhw_i_drain(d, ch);
        if (ch->end_ck > ready) lead = 0;
        if (ch->end_ck >= ready) lead |= ch->mask;
        ready = pimhw_i_max(ready, ch->end_ck);
    }
    d->lap.lead &= lead;
    pimhw_i_job *job = &jobs->at[jobs->n++];
    job->ready_ck = ready;
    /* beyond the most clocks there can be it makes no difference how far */
    job->cost_ck = pimhw_i_min(ops, PIMHW_I_MOST_CK) * c->epu_ck_per_op;
    job->awaited = (in->flags & PIMHW_AWAITED) != 0;
}

/* Channels asked the hub for what it had so long before; or wait for each other: 0. */
static void pimhw_i_lap_met(pimhw_device *d, uint64_t mask, uint64_t early_ck)
{
    for (; mask && d->lap.open; mask &= mask - 1) {
        uint64_t *least = &d->lap.early_ck[pimhw_i_lowest(mask)];
        *least = pimhw_i_min(*least, early_ck);
    }
}

/* A group waits for the hub. If two different times lead from its state to the same one, all it did
 * is over after the shorter, and every longer one leads there, too. */
static void pimhw_i_wait(pimhw_device *d, pimhw_i_channel *ch, uint64_t until_ck)
{
    pimhw_i_memo *m = &d->memo;
    uint64_t time = until_ck - ch->base_ck;
    uint64_t key = pimhw_i_key(2 * PIMHW_PROGRAM_ITEMS + 1, ch->asleep, 0);
    bool known = ch->asleep && until_ck > ch->base_ck && until_ck <= ch->due_ck;
    uint16_t *slot = known ? pimhw_i_edge_slot(m, key, 0) : NULL;
    pimhw_i_edge *e = known ? &m->edge[*slot ? *slot : m->n_edges + 1] : NULL;
    if (known && *slot && (e->again ? time >= e->clocks : time == e->clocks)) {
        ch->asleep = e->to;
        ch->base_ck = until_ck;
        return;
    }
    pimhw_i_wake(d, ch);
    pimhw_i_not_before(&ch->hold, until_ck, PIMHW_WAIT_EPU);
    if (!known || !pimhw_i_room(m) || pimhw_i_base_ck(ch) != until_ck) return;
    d->unit = (uint32_t)(ch - d->groups);
    uint32_t to = pimhw_i_state(d);
    d->known = 0;
    ch->base_ck = until_ck;
    ch->asleep = to;
    bool same = *slot && e->to == to;
    if (to == 0 || (*slot && e->again && !same)) return;
    e->again = same;
    e->clocks = e->again ? pimhw_i_min(e->clocks, time) : time;
    e->to = (uint16_t)to;
    if (*slot) return;
    e->key = key;
    e->phase = e->next = 0;
    e->slack.early_ck = e->slack.late_ck = 0;
    *slot = (uint16_t)++m->n_edges;
}

/* Lets the channels of the instruction, or the host, wait for the oldest awaited work. */
static void pimhw_i_epu_wait(pimhw_device *d, pimhw_i_jobs *jobs, uint64_t mask)
{
    if (jobs->n_done == 0) return;
    uint64_t done = jobs->done_ck[0];
    memmove(jobs->done_ck, jobs->done_ck + 1, --jobs->n_done * sizeof jobs->done_ck[0]);
    if (d->shared) pimhw_i_not_before(&d->decode, done, PIMHW_WAIT_EPU);
    while (mask && !d->shared) {
        pimhw_i_channel *ch = pimhw_i_group(d, &mask);
        pimhw_i_drain(d, ch);
        uint64_t base = pimhw_i_base_ck(ch);
        pimhw_i_lap_met(d, ch->mask, base - pimhw_i_min(base, done + 1));
        if (done + 1 >= base) pimhw_i_wait(d, ch, done); /* else: long ago */
    }
}

/* A SYNC or EOC goes through a channel's PIM queue; returns when its answer comes: after all
 * answers before it, and when no write is under way. It does not wait for accesses whose row is
 * still being opened, but those that go meanwhile hold it up. */
static uint64_t pimhw_i_sync_ck(pimhw_device *d, pimhw_i_channel *ch)
{
    uint64_t taken = pimhw_i_take_ck(ch, d->decode.ck) + 1;
    do
        taken = pimhw_i_max(taken, ch->now_ck);
    while (pimhw_i_active_first(ch, PIMHW_CMD_TMOD, 0, taken));
    ch->now_ck = taken + 1;
    ch->left_ck = taken;
    if (ch->banked) ch->banks->clock_ck = taken;
    uint64_t before_ck = ch->answer_ck, n_before = ch->tally.n_answers;
    uint64_t answer = pimhw_i_max(taken, before_ck) + 1;
    for (;;) {
        if (ch->banked) pimhw_i_advance(ch, answer - 1);
        if (answer > ch->pending_ck) break;
        answer = ch->banked ? answer + 1 : ch->pending_ck + 1;
    }
    /* answers to reads that went meanwhile come after it, one a clock */
    ch->answer_ck = pimhw_i_max(answer + (ch->tally.n_answers - n_before), ch->answer_ck);
    return answer;
}

/* SYNC and EOC: all channels empty their queues; then the host, or each channel, goes on. */
static void pimhw_i_sync(pimhw_device *d)
{
    uint64_t answer = 0;
    pimhw_i_wake_all(d);
    pimhw_i_lap_met(d, UINT64_MAX, 0);
    for (uint32_t g = 0; g < d->n_groups; g++) {
        pimhw_i_channel *ch = &d->groups[g];
        pimhw_i_flush(ch);
        uint64_t end = d->shared ? pimhw_i_sync_ck(d, ch) : pimhw_i_max(ch->end_ck, ch->hold.ck);
        answer = pimhw_i_max(answer, end);
    }
    if (d->shared) d->decode.ck = answer;
    for (uint32_t g = 0; g < d->n_groups && !d->shared; g++)
        pimhw_i_not_before(&d->groups[g].hold, answer, PIMHW_WAIT_HOST);
}

/* An instruction on one channel of a shared front end; returns when the host may go on. */
static uint64_t pimhw_i_hand_over(pimhw_device *d, pimhw_i_channel *ch, const pimhw_instruction *in,
                                  pimhw_i_work *work)
{
    const pimhw_i_kind *kind = &PIMHW_I_KINDS[in->kind];
    if (kind->taker == PIMHW_I_BY_QUEUES) return pimhw_i_access_ck(ch, work, d->decode.ck);
    uint64_t taken = pimhw_i_take_ck(ch, d->decode.ck);
    ch->hold.ck = taken + 1;
    ch->hold.reason = d->decode.reason;
    pimhw_i_in_order(ch, work, in->op_size);
    /* the next one waits for a read's answer; it frees the host in the clock after it */
    if (PIMHW_I_RESULT >> kind->command & 1) return ch->answer_ck - 1;
    return pimhw_i_max(taken, pimhw_i_queue_left_ck(ch, d->config.queue_entries));
}

/* Sends a command instruction to its channels and, on a shared front end, lets the host go on. */
static void pimhw_i_send_all(pimhw_device *d, const pimhw_instruction *in)
{
    /* AF opens a row of its own, beyond all others */
    uint64_t next = d->decode.ck;
    uint64_t row = in->kind == PIMHW_AF ? (1u << 29 | d->af_mode) : in->row;
    uint32_t command = PIMHW_I_KINDS[in->kind].command;
    for (uint64_t left = in->mask; left;) {
        pimhw_i_work work = {command,   in->bank, row,       in->column, in->tile,
                             in->out,   in->tile, in->flags, in->gpr,    in->aux,
                             in->round, 0,        in->out,   d->n_sent,  false};
        pimhw_i_channel *ch = pimhw_i_group(d, &left);
        pimhw_i_wake(d, ch);
        if (pimhw_i_one_bank(command)) pimhw_i_bank_by_bank(ch);
        if (d->shared)
            next = pimhw_i_max(next, pimhw_i_hand_over(d, ch, in, &work));
        else
            pimhw_i_control(ch, &work, in->op_size);
        d->endless = d->endless || ch->end_ck >= PIMHW_I_MOST_CK;
    }
    d->n_sent++;
    if (d->shared) d->decode.ck = next + 1;
    d->decode.reason = PIMHW_WAIT_HOST;
}

/* One instruction of a stream; false if it must wait for the hub, then nothing happened. */
static bool pimhw_i_execute(pimhw_device *d, pimhw_i_stream *s, const pimhw_instruction *in)
{
    const pimhw_i_jobs *jobs = &s->jobs;
    uint32_t taker = PIMHW_I_KINDS[in->kind].taker, all = d->config.n_channels;
    bool hub = taker == PIMHW_I_BY_HOST;
    if (in->kind == PIMHW_EPU && jobs->n + jobs->n_done >= PIMHW_I_JOBS) return false;
    if (in->kind == PIMHW_EPU_WAIT && jobs->n_done == 0 && jobs->n > 0) return false;
    if (d->shared) pimhw_i_wake_all(d);
    d->known = 0;
    switch (in->kind) {
    case PIMHW_EPU: pimhw_i_epu_post(d, &s->jobs, in); break;
    case PIMHW_EPU_WAIT: pimhw_i_epu_wait(d, &s->jobs, in->mask); break;
    case PIMHW_SYNC: pimhw_i_sync(d); break;
    case PIMHW_EOC:
        pimhw_i_sync(d);
        d->phase = PIMHW_I_ENDED;
        s->walker.nests = false; /* what comes is refused, item by item */
        break;
    case PIMHW_EWADD:
    case PIMHW_GPR:
    case PIMHW_CFR: /* one clock of the host */
        if (d->shared) d->decode.ck++;
        d->decode.reason = PIMHW_WAIT_HOST;
        if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 2) d->af_mode = in->gpr;
        if (in->kind == PIMHW_CFR && in->out == 1 && in->aux == 0)
            for (uint32_t g = 0; g < d->n_groups; g++)
                d->groups[g].pairs = in->gpr == 0;
        if (in->kind == PIMHW_CFR && d->config.controller != PIMHW_IN_ORDER) pimhw_i_sync(d);
        break;
    default: pimhw_i_send_all(d, in);
    }
    if (d->sink.to.hub && hub) {
        d->sink.told = true;
        d->sink.to.hub(d->sink.to.user, in);
        d->sink.told = false;
    }
    d->n_instructions += hub ? 1 : taker == PIMHW_I_BY_ALL ? all : pimhw_i_count(in->mask);
    return true;
}

static void pimhw_i_start(pimhw_device *d, const pimhw_sink *sink, const pimhw_request *request,
                          pimhw_cause *why)
{
    memset(&d->sink, 0, sizeof d->sink);
    if (sink) d->sink.to = *sink;
    d->phase = PIMHW_I_OPEN;
    memset((char *)d + offsetof(pimhw_device, decode), 0,
           offsetof(pimhw_device, groups) - offsetof(pimhw_device, decode));
    memset(&d->lap, 0, offsetof(pimhw_i_lap, early_ck));
    d->why = why;
    d->real_rows = !request;
    d->decode.reason = PIMHW_WAIT_HOST;
    d->n_groups = d->n_ready = d->n_streams = 1;
    memset(&d->streams[0].jobs, 0, sizeof d->streams[0].jobs);
    pimhw_i_channel *ch = &d->groups[0];
    memset(ch, 0, sizeof *ch);
    ch->rules = &d->rules;
    if (sink && sink->command) ch->sink = &d->sink;
    ch->mask = pimhw_i_low_bits(d->config.n_channels);
    ch->banks = &d->banks[0];
    ch->flow = pimhw_i_flow_of(d, 0);
    ch->due_ck = d->config.refresh ? d->config.refresh_phase : UINT64_MAX;
    ch->last_command = PIMHW_N_COMMANDS;
    ch->hold.reason = PIMHW_WAIT_HOST;
    if (!ch->flow) return;
    memset((void *)ch->flow, 0, pimhw_i_flow_used(d));
    pimhw_i_flow_point(ch->flow, &d->rules);
    ch->flow->start.reason = ch->flow->start_before.reason = PIMHW_WAIT_HOST;
}

/* A pointer of a call is NULL, or the device is called by what it calls. */
static pimhw_status pimhw_i_not_now(const pimhw_device *d, pimhw_cause *why)
{
    bool told = d && d->sink.told;
    return PIMHW_I_WRONG(why, told ? "the device is called by what it calls" : PIMHW_I_NULL);
}

PIMHW_API pimhw_status pimhw_device_begin(pimhw_device *d, const pimhw_sink *sink)
{
    if (!d || d->sink.told) return PIMHW_ERR_ARGUMENT;
    pimhw_i_start(d, sink, NULL, NULL);
    return PIMHW_OK;
}

static pimhw_status pimhw_i_judge(const pimhw_device *d, const pimhw_instruction *in,
                                  pimhw_cause *why)
{
    const pimhw_config *c = &d->config;
    const pimhw_i_kind *kind = &PIMHW_I_KINDS[(uint32_t)in->kind % PIMHW_N_KINDS];
    bool known = (uint32_t)in->kind < PIMHW_N_KINDS && kind->taker != PIMHW_I_BY_NOBODY;
    bool everybody = kind->taker == PIMHW_I_BY_ALL, sent = kind->taker > PIMHW_I_BY_ALL;
    bool copies = in->kind == PIMHW_COPY_BKGB || in->kind == PIMHW_COPY_GBBK;
    bool outs = d->rules.class_of[kind->command] < PIMHW_I_OTHER && pimhw_i_has_out(kind->command);
    bool tiles = copies || pimhw_i_has_tiles(kind->command);
    uint64_t beyond = everybody ? 0 : in->mask & ~pimhw_i_low_bits(c->n_channels);
    uint64_t size = in->op_size, row = pimhw_config_columns(c);
    uint64_t most = !kind->sized ? 1 : kind->has_row ? row : c->in_entries;
    const struct {
        bool asked;
        uint64_t is, most;
        const char *what;
    } rules[] = {
        {beyond != 0, beyond ? pimhw_i_lowest(beyond) : 0, c->n_channels - 1u, "mask: channel"},
        {sent, size, most, "op_size"},
        {sent && tiles, in->tile + size, c->in_entries, "tile + op_size"},
        {kind->has_row, in->column + size, row, "column + op_size"},
        {sent && outs, in->out, d->rules.outs - 1u, "out"},
        {sent && pimhw_i_one_bank(kind->command), in->bank, pimhw_config_banks(c) - 1u, "bank"},
        {in->kind == PIMHW_WR_ABK, pimhw_i_count(in->mask), 1, "channels of the mask"},
        {kind->has_row && d->real_rows, in->row, c->n_rows - 1u, "row"},
    };
    const char *name = (uint32_t)in->kind < PIMHW_N_KINDS ? kind->name : "?";
    if (!known)
        return PIMHW_I_UNABLE(why, "%s: kind %u is no instruction", name, (uint64_t)in->kind);
    if (!everybody && !in->mask) return PIMHW_I_UNABLE(why, "%s: the mask has no channel", name);
    if (in->kind == PIMHW_EWMUL && c->n_group_banks < 3)
        return PIMHW_I_UNABLE(why, PIMHW_I_NO_THIRD);
    if (sent && size == 0) return PIMHW_I_UNABLE(why, "%s: op_size is 0, not 1 to %u", name, most);
    for (uint32_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].asked && rules[i].is > rules[i].most)
            return PIMHW_I_UNABLE(why, "%s: %s is %u, the device allows at most %u", name,
                                  rules[i].what, rules[i].is, rules[i].most);
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_device_submit(pimhw_device *d, const pimhw_instruction *instruction,
                                           pimhw_cause *why)
{
    if (!d || !instruction || d->sink.told) return pimhw_i_not_now(d, why);
    if (d->phase != PIMHW_I_OPEN)
        return PIMHW_I_WRONG(why,
                             d->phase == PIMHW_I_ENDED ? PIMHW_I_AFTER_EOC : PIMHW_I_NO_STREAM);
    pimhw_status status = pimhw_i_judge(d, instruction, why);
    if (status == PIMHW_OK && d->endless) status = PIMHW_I_UNABLE(why, PIMHW_I_TOO_LONG);
    while (status == PIMHW_OK && !pimhw_i_execute(d, &d->streams[0], instruction))
        if (!pimhw_i_epu_serve(d))
            status = PIMHW_I_UNABLE(why, PIMHW_I_TOO_MANY, (uint64_t)PIMHW_I_JOBS);
    if (status != PIMHW_OK) d->phase = PIMHW_I_IDLE;
    return status;
}

static void pimhw_i_collect(const pimhw_device *d, pimhw_readings *r)
{
    const pimhw_config *c = &d->config;
    for (uint32_t k = 0; k < c->n_channels; k++) {
        const pimhw_i_channel *ch = &d->groups[d->group_of[k]];
        uint64_t its[PIMHW_N_COMMANDS];
        for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++)
            r->commands[i] += its[i] = ch->tally.commands[i] + d->beyond[k].commands[i];
        const uint64_t macs = its[PIMHW_CMD_MAC16] + its[PIMHW_CMD_MAC];
        r->n_busy_channels += macs > 0;
        if (k == r->critical_channel) r->critical_macs = macs;
        r->active_ck += ch->tally.active_ck + d->beyond[k].active_ck + (ch->open ? r->cycles : 0);
    }
    const uint64_t banks = pimhw_config_banks(c), of_all = r->commands[PIMHW_CMD_MAC16];
    const uint64_t of_one = r->commands[PIMHW_CMD_MAC];
    const double mac16s = (double)of_all + (double)of_one / (double)banks;
    r->macs = pimhw_i_plus(pimhw_i_times(of_all, banks), of_one);
    r->macs = r->padding_macs = pimhw_i_times(r->macs, pimhw_config_lanes(c));
    if (r->cycles)
        r->mac_utilisation = mac16s * c->tCCD_MAC / ((double)r->cycles * (double)c->n_channels);
    r->controller_bytes =
        c->controller == PIMHW_DCS ? 8 * ((uint64_t)c->in_entries + pimhw_config_outs(c)) : 0;
}

/* Energy from the counts and the time; r has all else. */
static void pimhw_i_energy(const pimhw_config *c, const pimhw_i_rules *rules, pimhw_readings *r)
{
    double banks = pimhw_config_banks(c), ck_ns = c->tCK_ps * 1e-3, channels = c->n_channels;
    for (uint32_t i = 0; i < PIMHW_N_COMMANDS; i++) {
        const pimhw_i_command *command = &PIMHW_I_COMMANDS[i];
        double n = (double)r->commands[i], of_all = command->every_bank ? banks : 1;
        bool asked = command->needs_row || command->linked, sums = PIMHW_I_RESULT >> i & 1;
        /* what a command brings from the hub or takes there: of a bank, or the buffer, or of all */
        uint64_t bytes = i == PIMHW_CMD_WRMAC16 ? 2 : sums ? c->out_bits / 8 : c->column_bytes;
        if (i == PIMHW_CMD_WRMAC16 || i == PIMHW_CMD_WRA16 || sums) bytes *= pimhw_config_banks(c);
        if (command->linked)
            r->link_bytes = pimhw_i_plus(r->link_bytes, pimhw_i_times(r->commands[i], bytes));
        r->energy_pJ[command->energy] += n * of_all * rules->joules_fJ[i] * 1e-3;
        r->energy_pJ[PIMHW_ENERGY_CONTROL] += n * (c->eCMD_fJ + (asked ? c->eREQ_fJ : 0.)) * 1e-3;
    }
    r->energy_pJ[PIMHW_ENERGY_LINK] = (double)r->link_bytes / 32 * c->eLINK_fJ * 1e-3;
    bool refreshed = c->refresh && r->cycles >= c->refresh_phase;
    uint64_t refreshes = refreshed ? (r->cycles - c->refresh_phase) / c->tREFI + 1 : 0;
    double all_ck = (double)r->cycles * channels, active_ck = (double)r->active_ck;
    /* 1 uW for 1 ns is 1e-3 pJ */
    r->energy_pJ[PIMHW_ENERGY_ACTIVE] = active_ck * ck_ns * c->pACTIVE_uW * 1e-3;
    r->energy_pJ[PIMHW_ENERGY_IDLE] = (all_ck - active_ck) * ck_ns * c->pIDLE_uW * 1e-3;
    r->energy_pJ[PIMHW_ENERGY_REFRESH] = (double)refreshes * channels * banks * c->eREF_fJ * 1e-3;
    for (uint32_t i = 0; i < PIMHW_N_ENERGY; i++)
        r->total_pJ += r->energy_pJ[i];
    r->average_mW = r->ns > 0 ? r->total_pJ / r->ns : 0;
}

/* Lane products against those of a MAC every tCCD_MAC on all channels. */
static void pimhw_i_flops(const pimhw_config *c, pimhw_readings *r)
{
    double done = (double)(r->useful_macs ? r->useful_macs : r->macs);
    double peak = (double)r->cycles / c->tCCD_MAC * c->n_channels * pimhw_config_banks(c) *
                  pimhw_config_lanes(c);
    r->flop_utilisation = peak > 0 ? done / peak : 0;
}

PIMHW_API pimhw_status pimhw_device_finish(pimhw_device *d, pimhw_readings *readings,
                                           pimhw_cause *why)
{
    pimhw_readings r;
    if (d && d->sink.told) return pimhw_i_not_now(d, why);
    if (!d || !readings || d->phase == PIMHW_I_IDLE)
        return PIMHW_I_WRONG(why, d && !readings ? "readings is NULL" : PIMHW_I_NO_STREAM);
    if (d->phase == PIMHW_I_OPEN) pimhw_i_sync(d); /* EOC has done so */
    while (pimhw_i_epu_serve(d))
        continue;
    d->phase = PIMHW_I_IDLE;
    memset(&r, 0, sizeof r);
    r.size = sizeof r;
    r.version = 1;
    pimhw_i_channel *last = &d->groups[0]; /* to end, of equals the lowest */
    /* the host's end is its answer, whatever is still on its way, but no command comes after it */
    uint64_t host_ck = d->decode.ck;
    for (uint32_t g = 0; g < d->n_groups; g++) {
        pimhw_i_channel *ch = &d->groups[g];
        bool lower = pimhw_i_lowest(ch->mask) < pimhw_i_lowest(last->mask);
        if (d->shared && ch->banked) pimhw_i_advance(ch, d->decode.ck);
        if (ch->end_ck + lower > last->end_ck) last = ch;
        host_ck = pimhw_i_max(host_ck, ch->last_ck);
    }
    uint64_t drained = d->shared ? host_ck : last->end_ck;
    r.cycles = pimhw_i_max(drained, d->epu_free_ck);
    if (d->endless || r.cycles >= PIMHW_I_MOST_CK) /* what was held back may end that late */
        return PIMHW_I_UNABLE(why, PIMHW_I_TOO_LONG);
    r.ns = (double)r.cycles * (double)d->config.tCK_ps * 1e-3;
    r.critical_channel = pimhw_i_lowest(last->mask);
    pimhw_i_charge(last, drained, PIMHW_WAIT_DRAIN);
    for (uint32_t i = 0; i < PIMHW_N_SPENT; i++)
        r.breakdown_ck[i] = last->tally.spent_ck[i] + d->beyond[r.critical_channel].spent_ck[i];
    r.breakdown_ck[PIMHW_WAIT_EPU] += r.cycles - drained;
    r.epu_ck = d->epu_ck;
    r.n_instructions = d->n_instructions;
    r.skipped_rounds = d->skipped_rounds;
    r.walked_rounds = d->walked_rounds;
    pimhw_i_collect(d, &r);
    pimhw_i_energy(&d->config, &d->rules, &r);
    pimhw_i_flops(&d->config, &r);
    *readings = r;
    return PIMHW_OK;
}

static pimhw_status pimhw_i_request_check(const pimhw_device *d, const pimhw_program *program,
                                          const pimhw_request *request, pimhw_cause *why)
{
    PIMHW_I_TRY(pimhw_program_check(program, &d->config, why));
    if (!request) return PIMHW_OK;
    if (request->n_blocks && !request->blocks) return PIMHW_I_WRONG(why, "request: blocks is NULL");
    if (request->chunks && request->n_chunks > d->config.va2pa_entries)
        return PIMHW_I_FAIL(why, PIMHW_ERR_ADDRESS, "request: %u chunks, the table holds %u",
                            (uint64_t)request->n_chunks, (uint64_t)d->config.va2pa_entries);
    const uint32_t *list = request->list_begin, n_channels = d->config.n_channels;
    PIMHW_I_TRY(pimhw_i_chunks_check(request, n_channels, why));
    for (uint32_t c = 0; list && c < n_channels; c++)
        if (list[c] > list[c + 1])
            return PIMHW_I_WRONG(why, "request: list_begin falls at channel %u", (uint64_t)c);
    for (uint32_t i = list ? list[0] : 0; list && i < list[n_channels]; i++)
        if (!request->order || request->order[i] >= request->n_blocks)
            return PIMHW_I_WRONG(why, "request: order[%u] is no block", (uint64_t)i);
    return PIMHW_OK;
}

/* The first item with which loops of constant rounds alone, and a list of the fewest blocks of a
 * channel, come to the last clock of a channel, or to as many rounds; n_items: there is none. */
static uint32_t pimhw_i_endless_item(const pimhw_program *p, const pimhw_request *request,
                                     uint32_t n_channels)
{
    uint64_t fewest = UINT64_MAX;
    for (uint32_t c = 0; c < n_channels; c++)
        fewest = pimhw_i_min(fewest, pimhw_i_blocks(request, c));
    uint64_t rounds[PIMHW_LOOPS + 1] = {1}, masks[PIMHW_LOOPS + 1] = {pimhw_i_low_bits(n_channels)};
    uint64_t in_loops = 0, of_channel[PIMHW_MAX_CHANNELS] = {0};
    uint32_t depth = 0;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const pimhw_item *item = &p->items[i];
        const pimhw_operand *o = item->op_size ? &p->operands[item->op_size - 1] : NULL;
        const pimhw_i_kind *kind = &PIMHW_I_KINDS[item->kind];
        uint64_t size = o && pimhw_i_is_constant(o) ? o->base : 0;
        if (item->kind == PIMHW_END) depth -= p->items[item->end].kind != PIMHW_BLOCK;
        if (item->kind == PIMHW_LOOP || item->kind == PIMHW_LIST) {
            const bool list = item->kind == PIMHW_LIST;
            masks[depth + 1] = list ? masks[depth] : masks[depth] & item->mask;
            if (list) size = fewest;
            uint64_t n = pimhw_i_times(rounds[depth], masks[depth + 1] ? size : 0);
            rounds[++depth] = pimhw_i_min(n, PIMHW_I_MOST_CK);
            in_loops += rounds[depth];
            if (in_loops >= PIMHW_I_MOST_CK) return i;
        }
        bool sent = kind->taker > PIMHW_I_BY_HOST;
        uint64_t left = sent && (!kind->sized || size > 0) ? masks[depth] & item->mask : 0;
        for (; left; left &= left - 1) {
            uint64_t *clocks = &of_channel[pimhw_i_lowest(left)];
            *clocks += rounds[depth];
            if (*clocks >= PIMHW_I_MOST_CK) return i;
        }
    }
    return p->n_items;
}

/* Judges a program as a whole, before it is walked: what speaks of all channels at once has no
 * place in streams that run apart. d->safe: by bounds of its operands, no instruction can be
 * refused. */
static pimhw_status pimhw_i_bounds(pimhw_device *d, const pimhw_program *p,
                                   const pimhw_request *request, pimhw_cause *why)
{
    uint32_t endless = pimhw_i_endless_item(p, request, d->config.n_channels);
    pimhw_block block = {{0}, {0}}; /* as large as any */
    pimhw_i_inside in = {0, 0, {0}, {NULL}};
    bool apart = !d->shared && request && request->list_begin;
    d->safe = true;
    if (endless < p->n_items)
        return PIMHW_I_UNABLE(why, "item %u: %s", (uint64_t)endless, PIMHW_I_TOO_LONG);
    for (uint32_t i = 0; request && i < request->n_blocks; i++) {
        const pimhw_block *b = &request->blocks[i];
        for (uint32_t k = 0; k < PIMHW_RESTS; k++)
            block.rest[k] = pimhw_i_max(block.rest[k], b->rest[k]);
        for (uint32_t k = 0; k < PIMHW_SPACES; k++)
            block.row_base[k] = (uint32_t)pimhw_i_max(block.row_base[k], b->row_base[k]);
    }
    uint64_t most_blocks = 0; /* of a channel */
    for (uint32_t c = 0; c < d->config.n_channels; c++)
        most_blocks = pimhw_i_max(most_blocks, pimhw_i_blocks(request, c));
    for (uint32_t i = 0; i < p->n_items; i++) {
        const pimhw_item *item = &p->items[i];
        const pimhw_operand *o = item->op_size ? &p->operands[item->op_size - 1] : NULL;
        uint64_t value[8] = {0};
        pimhw_instruction it;
        if (item->kind == PIMHW_END) in.depth -= p->items[item->end].kind != PIMHW_BLOCK;
        if (item->kind == PIMHW_END || item->kind == PIMHW_BLOCK) continue;
        for (uint32_t f = 0; f < 8; f++)
            value[f] = pimhw_i_most(p, &in, &block, pimhw_i_names(item)[f]);
        bool list = item->kind == PIMHW_LIST;
        if (list || item->kind == PIMHW_LOOP) {
            uint64_t rounds = list ? most_blocks + pimhw_i_aux(p, item) : value[0];
            if (rounds >> PIMHW_I_MOST_ROUND_BITS) d->safe = false;
            in.around[in.depth] = list ? NULL : o;
            in.last[in.depth++] = rounds - (rounds > 0);
            continue;
        }
        bool all = PIMHW_I_KINDS[item->kind].taker == PIMHW_I_BY_ALL;
        if (apart && (all || item->kind == PIMHW_CFR || item->kind == PIMHW_EWADD))
            return PIMHW_I_UNABLE(why, "item %u: %s, where channels have lists of their own",
                                  (uint64_t)i, PIMHW_I_KINDS[item->kind].name);
        if (PIMHW_I_KINDS[item->kind].has_row)
            value[PIMHW_I_ROW] = pimhw_i_plus(value[PIMHW_I_ROW], block.row_base[item->space]);
        if (item->op_size && item->column) {
            uint64_t columns = pimhw_i_most_columns(p, &in, &block, item);
            columns -= pimhw_i_min(columns, value[PIMHW_I_OP_SIZE]);
            value[PIMHW_I_COLUMN] = pimhw_i_min(value[PIMHW_I_COLUMN], columns);
        }
        if (!pimhw_i_fill(item, item->mask, value, &it)) d->safe = false;
        if (it.op_size > 0 && pimhw_i_judge(d, &it, NULL) != PIMHW_OK) d->safe = false;
    }
    return PIMHW_OK;
}

/* Whether what a walker came to is an instruction the device can do. */
static bool pimhw_i_accept(pimhw_device *d, const pimhw_i_stream *s, pimhw_i_step step)
{
    pimhw_cause what;
    if (step == PIMHW_I_WRONG)
        pimhw_cause_write(&what, s->walker.program->items[s->walker.at].kind <= PIMHW_LIST
                                     ? "2^28 rounds or more"
                                     : "an operand, or a row with its row_base, of 2^32 or more");
    else if (d->phase == PIMHW_I_ENDED)
        pimhw_cause_write(&what, PIMHW_I_AFTER_EOC);
    else if (d->safe || pimhw_i_judge(d, &s->in, &what) == PIMHW_OK)
        return true;
    pimhw_cause_write(d->why, "item %u: %s", (uint64_t)s->walker.at, what.text);
    return false;
}

static bool pimhw_i_stream_run(pimhw_device *d, pimhw_i_stream *s);

/* A loop on channels that do the same: known, or walked and learnt. */
static bool pimhw_i_do_unit(pimhw_device *d, pimhw_i_stream *s, pimhw_i_place *place)
{
    pimhw_i_walker *w = &s->walker;
    pimhw_i_trial *t = &d->trial[PIMHW_LOOPS];
    const pimhw_i_channel *ch = &d->groups[d->unit];
    bool told = true;
    d->known = 0;
    /* as the unit before, in all that a span without refreshes hangs on */
    if (!place->edge || ch->asleep != place->state || !pimhw_i_before_due(d, place->edge, 1) ||
        pimhw_i_seen(&d->sketch.loops[w->pc].whole, place, ch) != place->seen) {
        told = pimhw_i_place_of(d, w, w->pc, true, place);
        place->edge = told ? pimhw_i_edge_from(d, place) : NULL;
    }
    if (place->edge) {
        pimhw_i_follow(d, place->edge, 1, place->rows, 0);
        if (d->shared || place->edge->phase) place->edge = NULL;
        return true;
    }
    t->open = false;
    if (told) pimhw_i_try(d, t, place);
    pimhw_i_walker outer = *w;
    w->nests = false;
    w->alike = !d->shared;
    w->stop = w->program->items[w->pc].end + 1u;
    if (!pimhw_i_stream_run(d, s)) return false;
    pimhw_i_learn(d, t);
    *w = outer;
    return true;
}

/* A loop that concerns no hub: channels that have their own front ends do it apart. */
static bool pimhw_i_do_nest(pimhw_device *d, pimhw_i_stream *s)
{
    pimhw_i_walker *w = &s->walker;
    pimhw_i_place place;
    uint64_t mask = w->mask, left = mask & w->program->items[w->pc].mask;
    if (d->memo.full) pimhw_i_forget(d);
    pimhw_i_turn_to(d, left);
    if (!d->shared && (left & (left - 1))) pimhw_i_gather(d, left);
    place.first = place.until = 0; /* all else is set with them */
    place.n_same = UINT64_MAX;
    place.edge = NULL;
    while (left) {
        if (!d->shared && pimhw_i_lowest(left) >= place.until) {
            const pimhw_i_scope *scope = &d->sketch.loops[w->pc].whole;
            pimhw_i_place_terms(w, scope, PIMHW_LOOPS - 1, left, &place);
            place.edge = NULL;
        }
        uint64_t alike = left & pimhw_i_low_bits(place.until);
        const pimhw_i_channel *ch = d->shared ? d->groups : pimhw_i_group(d, &alike);
        d->unit = (uint32_t)(ch - d->groups);
        w->mask = d->shared ? mask : ch->mask;
        left &= ~w->mask;
        if (!pimhw_i_do_unit(d, s, &place)) return false;
    }
    w->mask = mask;
    w->pc = w->program->items[w->pc].end + 1u;
    return true;
}

/* What the words of a lap are gone through for: kept at the head of a round; compared at the next;
 * moved on by n such rounds. */
typedef enum pimhw_i_lap_use { PIMHW_I_KEEP, PIMHW_I_COMPARE, PIMHW_I_ADVANCE } pimhw_i_lap_use;

/* The next word; false: it is compared and did not move on by `by`. */
static bool pimhw_i_lap_word(pimhw_i_lap *lap, uint64_t *at, pimhw_i_lap_use use, uint64_t n,
                             uint64_t by)
{
    uint64_t *word = &lap->words[lap->n++];
    if (use == PIMHW_I_COMPARE) return *at - *word == by;
    if (use == PIMHW_I_ADVANCE) *at += n * (*at - *word);
    if (use == PIMHW_I_KEEP) *word = *at;
    return true;
}

/* The same for the clocks, state and row of a group. One that moves on by less than the hub does
 * not lead, and the hub will make it wait: lowers n to the rounds before that. */
static bool pimhw_i_lap_group(pimhw_i_lap *lap, pimhw_i_channel *ch, pimhw_i_lap_use use,
                              uint64_t *n, uint64_t hub)
{
    uint64_t state = ch->asleep, moved = ch->base_ck - lap->words[lap->n];
    uint64_t *const clocks[] = {&ch->base_ck, &ch->end_ck, &ch->latest_ck, &ch->last_ck};
    bool same = true;
    for (uint32_t i = 0; i < 4; i++)
        same = pimhw_i_lap_word(lap, clocks[i], use, *n, moved) && same;
    same = pimhw_i_lap_word(lap, &ch->row, use, *n, lap->row_step) && same;
    same = pimhw_i_lap_word(lap, &state, use, 0, 0) && same;
    same = pimhw_i_lap_word(lap, &ch->mask, use, 0, 0) && same;
    if (use != PIMHW_I_COMPARE) return state > 0;
    if (!same || moved > hub) return false;
    if (moved == hub) return true;
    lap->lead &= ~ch->mask;
    for (uint64_t left = ch->mask; left; left &= left - 1) {
        uint64_t early = lap->early_ck[pimhw_i_lowest(left)];
        *n = pimhw_i_min(*n, (early - (early > 0)) / (hub - moved));
    }
    return true;
}

/* The same for hub and channels; false: a state is not known, or not that of the head before, or a
 * channel that does not move on with the hub was last. */
static bool pimhw_i_lap_all(pimhw_device *d, pimhw_i_jobs *jobs, pimhw_i_lap_use use, uint64_t *n)
{
    pimhw_i_lap *lap = &d->lap;
    uint64_t hub = d->epu_free_ck - lap->hub_ck, of_all = pimhw_i_low_bits(d->config.n_channels);
    uint64_t n_done = jobs->n_done;
    lap->n = 0;
    bool same = pimhw_i_lap_word(lap, &n_done, use, 0, 0);
    same = pimhw_i_lap_word(lap, &d->decode.ck, use, *n, d->shared ? hub : 0) && same;
    pimhw_i_lap_word(lap, &d->epu_free_ck, use, *n, hub);
    for (uint32_t i = 0; i < jobs->n_done && same; i++)
        same = pimhw_i_lap_word(lap, &jobs->done_ck[i], use, *n, hub);
    for (uint64_t left = of_all; left && same;) {
        pimhw_i_channel *ch = pimhw_i_group(d, &left);
        same = pimhw_i_lap_group(lap, ch, use, n, hub);
    }
    if (use == PIMHW_I_COMPARE || !same) return same && lap->lead;
    /* what a round adds to, by any number */
    pimhw_i_lap_word(lap, &d->epu_ck, use, *n, 0);
    pimhw_i_lap_word(lap, &d->n_instructions, use, *n, 0);
    for (uint64_t left = of_all; left;) {
        uint64_t *sums = (uint64_t *)&pimhw_i_group(d, &left)->tally;
        for (uint32_t i = 0; i < PIMHW_I_TALLY; i++)
            pimhw_i_lap_word(lap, &sums[i], use, *n, 0);
    }
    for (uint64_t left = use == PIMHW_I_ADVANCE ? lap->kept : 0; left; left &= left - 1) {
        uint32_t c = pimhw_i_lowest(left);
        uint64_t *to = (uint64_t *)&d->beyond[c], *from = (uint64_t *)&lap->beyond[c];
        for (uint32_t i = 0; i < PIMHW_I_TALLY; i++)
            to[i] += *n * (to[i] - from[i]);
    }
    return true;
}

/* The end of the blocks from the first on that differ from one to the next in their rows alone, by
 * as many. */
static uint64_t pimhw_i_alike_end(const pimhw_request *request, uint64_t first, uint64_t *row_step)
{
    uint64_t end = first + 1;
    for (; end < request->n_blocks; end++) {
        const pimhw_block *a = &request->blocks[end - 1], *b = a + 1;
        if (end == first + 1) *row_step = b->row_base[0] - (uint64_t)a->row_base[0];
        for (uint32_t k = 0; k < PIMHW_SPACES; k++)
            if (b->row_base[k] - (uint64_t)a->row_base[k] != *row_step) return end;
        if (memcmp(a->rest, b->rest, sizeof a->rest) != 0) return end;
    }
    return end;
}

/* At the head of a round of the list: rounds like the one before it are not walked. The hub and the
 * channels it waits for move on by as many clocks, others by less, until it makes them wait. */
static void pimhw_i_follow_laps(pimhw_device *d, pimhw_i_stream *s)
{
    pimhw_i_walker *w = &s->walker;
    pimhw_i_lap *lap = &d->lap;
    uint64_t lag = pimhw_i_aux(w->program, &w->program->items[0]), i = w->index[0], most_ck = 0;
    if (i == 0) lap->end = 0;
    if (i >= lap->end) {
        lap->open = false;
        lap->begin = i;
        lap->end = pimhw_i_alike_end(w->request, i, &lap->row_step);
    }
    if (i < lap->begin + lag || lap->end - i < 2) return;
    pimhw_i_turn_to(d, w->mask);
    if (!d->shared) pimhw_i_gather(d, w->mask);
    uint32_t state = d->shared ? pimhw_i_state(d) : 0;
    for (uint32_t g = 0; g < d->n_groups && state > 0; g++) {
        d->groups[g].asleep = state;
        d->groups[g].base_ck = d->decode.ck;
    }
    while (pimhw_i_epu_serve(d)) /* in the order it came, of the one stream there is */
        continue;
    uint64_t n = pimhw_i_min(lap->end, w->bound[0] - 1) - i, hub = d->epu_free_ck - lap->hub_ck;
    for (uint32_t g = 0; g < d->n_groups; g++)
        most_ck = pimhw_i_max(most_ck, pimhw_i_max(d->groups[g].end_ck, d->epu_free_ck));
    bool same = lap->open && hub > 0 && most_ck < PIMHW_I_MOST_CK &&
                pimhw_i_lap_all(d, &s->jobs, PIMHW_I_COMPARE, &n);
    if (same) n = pimhw_i_min(n, (PIMHW_I_MOST_CK - most_ck) / hub);
    if (same && n > 0) {
        pimhw_i_lap_all(d, &s->jobs, PIMHW_I_ADVANCE, &n);
        pimhw_i_count_skipped(d, n, d->walked_rounds + d->skipped_rounds - lap->n_rounds);
        lap->open = false;
        w->index[0] += n;
        w->pc = w->opener;
        pimhw_i_to_round(w);
        return;
    }
    lap->hub_ck = d->epu_free_ck;
    lap->n_rounds = d->walked_rounds + d->skipped_rounds;
    lap->kept = 0;
    lap->lead = UINT64_MAX;
    memset(lap->early_ck, 255, sizeof lap->early_ck);
    lap->open = pimhw_i_lap_all(d, &s->jobs, PIMHW_I_KEEP, &n);
}

/* Steps one stream, or a nest of it, until it ends or waits for the hub. False: it is refused. */
static bool pimhw_i_stream_run(pimhw_device *d, pimhw_i_stream *s)
{
    pimhw_i_walker *w = &s->walker;
    const bool nest = d->skips && d->phase == PIMHW_I_OPEN && !w->nests; /* all is right there */
    for (;;) {
        pimhw_i_step step = s->waits ? PIMHW_I_GIVEN : pimhw_i_next(w, &s->in);
        if (d->endless) return false;
        if (step == PIMHW_I_DONE) return true;
        if (step == PIMHW_I_NEST && !pimhw_i_do_nest(d, s)) return false;
        if (step == PIMHW_I_LEFT && nest) pimhw_i_learn(d, &d->trial[w->depth]);
        if (step == PIMHW_I_ROUND && (!nest || pimhw_i_follow_rounds(d, w)))
            d->walked_rounds += pimhw_i_count(w->mask);
        if (step == PIMHW_I_ROUND && d->laps && w->depth == 1) pimhw_i_follow_laps(d, s);
        if (step != PIMHW_I_GIVEN && step != PIMHW_I_WRONG) continue;
        if (!nest && !s->waits && !pimhw_i_accept(d, s, step)) return false;
        s->waits = !pimhw_i_execute(d, s, &s->in);
        if (s->waits) return true;
    }
}

static bool pimhw_i_streams_run(pimhw_device *d)
{
    bool waits;
    do {
        waits = false;
        for (uint32_t i = 0; i < d->n_streams; i++) {
            if (!pimhw_i_stream_run(d, &d->streams[i])) return false;
            waits = waits || d->streams[i].waits;
        }
        /* no stream can send earlier work any more: the oldest is next */
    } while (waits && pimhw_i_epu_serve(d));
    if (waits) pimhw_cause_write(d->why, PIMHW_I_TOO_MANY, (uint64_t)PIMHW_I_JOBS);
    return !waits;
}

/* The streams at the begin of a program; without a work at the hub. */
static void pimhw_i_streams_begin(pimhw_device *d, const pimhw_program *p,
                                  const pimhw_request *request)
{
    for (uint32_t i = 0; i < d->n_streams; i++) {
        pimhw_i_walker *w = &d->streams[i].walker;
        memset(&d->streams[i], 0, sizeof d->streams[i]);
        w->program = p;
        w->request = request;
        w->sketch = &d->sketch;
        w->mask = d->n_streams > 1 ? (uint64_t)1 << i : pimhw_i_low_bits(d->config.n_channels);
        w->rounds = d->rounds;
        w->stop = p->n_items;
        w->nests = d->skips && d->phase == PIMHW_I_OPEN;
    }
}

/* All runs of a program. */
static bool pimhw_i_runs(pimhw_device *d, const pimhw_program *p, const pimhw_request *request)
{
    uint64_t n = request && request->repeats > 1 ? request->repeats : 1;
    pimhw_i_meet(d, p, request);
    if (d->sketch.lists && !d->shared) d->n_streams = d->config.n_channels;
    /* if nobody looks and all instructions are known to be right */
    d->skips = d->safe && !d->sink.to.command && !d->sink.to.hub && !d->sketch.banked;
    d->laps = request && d->skips && d->sketch.laps && !d->config.refresh;
    for (uint64_t left = n;; left--) {
        d->walked_rounds += n > 1;
        pimhw_i_streams_begin(d, p, request);
        bool done = pimhw_i_streams_run(d);
        if (d->endless) pimhw_cause_write(d->why, PIMHW_I_TOO_LONG);
        if (!done || left == 1) return done;
        while (pimhw_i_epu_serve(d)) /* everything is over before it runs once more */
            continue;
        pimhw_i_sync(d);
        d->known = 0;
        for (uint32_t g = 0; g < d->n_groups; g++)
            pimhw_i_not_before(d->shared ? &d->decode : &d->groups[g].hold, d->epu_free_ck,
                               PIMHW_WAIT_EPU);
    }
}

PIMHW_API pimhw_status pimhw_device_time(pimhw_device *d, pimhw_readings *readings,
                                         const pimhw_program *program, const pimhw_request *request,
                                         const pimhw_sink *sink, pimhw_cause *why)
{
    pimhw_readings r;
    if (!d || !readings || !program || d->sink.told) return pimhw_i_not_now(d, why);
    PIMHW_I_TRY(pimhw_i_request_check(d, program, request, why));
    pimhw_i_start(d, sink, request, why);
    pimhw_status status = pimhw_i_bounds(d, program, request, why);
    if (status == PIMHW_OK && !pimhw_i_runs(d, program, request)) status = PIMHW_ERR_PROGRAM;
    if (status == PIMHW_OK) status = pimhw_device_finish(d, &r, why);
    d->phase = PIMHW_I_IDLE;
    if (status != PIMHW_OK) return status;
    r.program_bytes = pimhw_program_bytes(program);
    if (request) {
        uint64_t order = request->list_begin ? request->list_begin[d->config.n_channels] : 0;
        uint64_t lists = request->list_begin ? d->config.n_channels + 1u : 0;
        r.request_bytes = request->n_blocks * (uint64_t)sizeof(pimhw_block) + 4 * (order + lists);
        r.va2pa_bytes = request->chunks ? 6 * (uint64_t)request->n_chunks : 0;
        uint64_t repeats = pimhw_i_max(request->repeats, 1);
        if (request->useful_macs > r.macs / repeats)
            return PIMHW_I_UNABLE(why, "request: useful_macs %u, the program does %u",
                                  request->useful_macs, r.macs / repeats);
        r.useful_macs = request->useful_macs * repeats;
        r.padding_macs = r.macs - r.useful_macs;
        pimhw_i_flops(&d->config, &r);
    }
    *readings = r;
    return PIMHW_OK;
}

/* After a run: what the ordinary queues still hold is done, though no reading counts it. */
static pimhw_status pimhw_i_rest(pimhw_device *d, pimhw_cause *why)
{
    for (uint32_t g = 0; g < d->n_groups; g++) {
        pimhw_i_channel *ch = &d->groups[g];
        const pimhw_i_work *late = &ch->banks->late;
        if (!ch->banked) continue;
        if (d->shared) pimhw_i_advance(ch, UINT64_MAX);
        if (ch->banks->hazard)
            return PIMHW_I_FAIL(why, PIMHW_ERR_HAZARD, ch->banks->hazard,
                                (uint64_t)pimhw_i_lowest(ch->mask), (uint64_t)late->bank, late->row,
                                (uint64_t)late->column);
    }
    return PIMHW_OK;
}

PIMHW_API pimhw_status pimhw_device_run(pimhw_device *d, pimhw_readings *readings,
                                        pimhw_units *units, const pimhw_program *program,
                                        const pimhw_request *request, const pimhw_hub *hub,
                                        pimhw_cause *why)
{
    pimhw_readings r;
    pimhw_sink sink = {pimhw_units_command, units, pimhw_units_hub};
    if (!d || !readings || !units || !program || d->sink.told) return pimhw_i_not_now(d, why);
    static const char fields[][16] = {
        "n_channels",   "n_bank_groups", "n_group_banks", "n_ranks",   "n_rows",   "row_bytes",
        "column_bytes", "in_entries",    "element_bytes", "out_clear", "out_bits", "lane_type"};
    for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const pimhw_i_field *field = pimhw_i_field_find(fields[i], strlen(fields[i]));
        const uint32_t has = pimhw_i_field_get(&units->config, field);
        if (has != pimhw_i_field_get(&d->config, field))
            return PIMHW_I_WRONG(why, "the units have another %s, %u", fields[i], (uint64_t)has);
    }
    if (units->n_outs <= pimhw_config_outs(&d->config))
        return PIMHW_I_WRONG(why, "the units have fewer accumulators");
    pimhw_units_begin(units, request, hub);
    pimhw_status status = pimhw_device_time(d, &r, program, request, &sink, why);
    if (status == PIMHW_OK) status = pimhw_i_rest(d, why);
    pimhw_status done = pimhw_units_end(units, status == PIMHW_OK ? why : NULL);
    if (status == PIMHW_OK) status = done;
    if (status == PIMHW_OK) *readings = r;
    return status;
}

PIMHW_API pimhw_status pimhw_device_resolve(
    pimhw_device *d, const pimhw_program *program, const pimhw_request *request,
    bool (*emit)(void *user, const pimhw_instruction *instruction), void *user, pimhw_cause *why)
{
    if (!d || !program || !emit || d->sink.told) return pimhw_i_not_now(d, why);
    PIMHW_I_TRY(pimhw_i_request_check(d, program, request, why));
    pimhw_status status = PIMHW_OK;
    pimhw_i_start(d, NULL, request, why);
    d->phase = PIMHW_I_IDLE;
    pimhw_i_stream *s = &d->streams[0];
    pimhw_i_meet(d, program, request);
    pimhw_i_streams_begin(d, program, request);
    for (bool goes_on = true; goes_on;) {
        pimhw_i_step step = pimhw_i_next(&s->walker, &s->in);
        if (step == PIMHW_I_ROUND || step == PIMHW_I_LEFT) continue;
        if (step == PIMHW_I_DONE) break;
        if (!pimhw_i_accept(d, s, step)) status = PIMHW_ERR_PROGRAM;
        d->sink.told = true;
        goes_on = status == PIMHW_OK && emit(user, &s->in);
        d->sink.told = false;
        if (goes_on && s->in.kind == PIMHW_EOC) d->phase = PIMHW_I_ENDED;
    }
    d->phase = PIMHW_I_IDLE;
    return status;
}

static bool pimhw_i_count_bytes(void *user, const pimhw_instruction *instruction)
{
    (void)instruction;
    *(uint64_t *)user += PIMHW_INSTRUCTION_BYTES;
    return true;
}

PIMHW_API pimhw_status pimhw_program_unroll(pimhw_device *d, uint64_t *bytes,
                                            const pimhw_program *program,
                                            const pimhw_request *request, pimhw_cause *why)
{
    uint64_t n = 0;
    if (!bytes) return PIMHW_I_WRONG(why, PIMHW_I_NULL);
    pimhw_status status = pimhw_device_resolve(d, program, request, pimhw_i_count_bytes, &n, why);
    if (status == PIMHW_OK) *bytes = n;
    return status;
}

#ifdef __cplusplus
}
#endif

#endif /* PIMHW_IMPLEMENTED */

/*
 * MIT License, of pim_hw.h and pimattn.h
 *
 * Copyright (c) 2026 the pimattn authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software
 * and associated documentation files (the "Software"), to deal in the Software without
 * restriction, including without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
 * Software is furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all copies or
 * substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
 * BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 * NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
 * DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 */
