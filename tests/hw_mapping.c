/* Mapping and cells: where a byte lies, that every mapping is a bijection that keeps FACIL's
 * promises, pages given and taken back, and a GEMV by the units on the host's own matrix. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

#include "../examples/gemv.h"

static pimhw_cause why;

static pimhw_geometry geometry(uint32_t channels, uint32_t ranks, uint32_t banks, pimhw_chunk chunk)
{
    pimhw_geometry g = {.n_channels = channels, .n_ranks = ranks, .n_banks = banks};
    g.n_rows = 65536, g.row_bytes = 2048, g.transfer_bytes = 32;
    g.chunk_rows = chunk == PIMHW_CHUNK_AIM ? 1 : 8;
    g.chunk_bytes = chunk == PIMHW_CHUNK_AIM ? 2048 : 256;
    g.page_bytes = 1u << 21;
    return g;
}

static pimhw_geometry preset(const char *name, pimhw_chunk chunk)
{
    pimhw_config c;
    pimhw_geometry g;
    memset(&g, 0, sizeof g);
    CHECK_U(pimhw_config_init(&c, name, NULL), PIMHW_OK);
    CHECK_U(pimhw_geometry_init(&g, &c, chunk, &why), PIMHW_OK);
    return g;
}

/* pa is at channel, rank, bank, row, column, byte, and they are at pa. */
static void lies(const pimhw_geometry *g, uint32_t map_id, uint64_t pa, pimhw_da want)
{
    pimhw_da da;
    uint64_t back = 0;
    if (!CHECK_U(pimhw_map_da(&da, g, map_id, pa, &why), PIMHW_OK)) return;
    CHECK_U(da.channel, want.channel);
    CHECK_U(da.rank, want.rank);
    CHECK_U(da.bank, want.bank);
    CHECK_U(da.row, want.row);
    CHECK_U(da.column, want.column);
    CHECK_U(da.byte, want.byte);
    CHECK_U(pimhw_map_pa(&back, g, map_id, &want, &why), PIMHW_OK);
    CHECK_U(back, pa);
}

#define LIES(g, map_id, pa, ...) lies((g), (map_id), (pa), (pimhw_da){__VA_ARGS__})

static void placed(const pimhw_geometry *g, uint64_t columns, uint32_t map_id, uint32_t parts,
                   uint64_t stride)
{
    pimhw_placement p;
    if (!CHECK_U(pimhw_map_select(&p, g, 100, columns, 2, &why), PIMHW_OK)) {
        printf("  %s\n", why.text);
        return;
    }
    CHECK_U(p.map_id, map_id);
    CHECK_U(p.n_parts, parts);
    CHECK_U(p.stride_bytes, stride);
    CHECK_U(p.page_rows, g->page_bytes / stride);
    CHECK_U(p.n_pages, (100 + p.page_rows - 1) / p.page_rows);
    CHECK_U(p.bytes, p.n_pages * g->page_bytes);
}

/* Bits of the page offset that a place's field takes, by trying each. */
typedef struct places {
    uint32_t channel, rank, bank, row, column, byte;
} places;

static places bits_of(const pimhw_geometry *g, uint32_t map_id)
{
    places b = {0, 0, 0, 0, 0, 0};
    for (uint32_t i = 0; i < 21; i++) {
        pimhw_da da;
        CHECK_U(pimhw_map_da(&da, g, map_id, (uint64_t)1 << i, &why), PIMHW_OK);
        b.channel |= (uint32_t)(da.channel != 0) << i;
        b.rank |= (uint32_t)(da.rank != 0) << i;
        b.bank |= (uint32_t)(da.bank != 0) << i;
        b.row |= (uint32_t)(da.row != 0) << i;
        b.column |= (uint32_t)(da.column != 0) << i;
        b.byte |= (uint32_t)(da.byte != 0) << i;
    }
    return b;
}

/* Bits high to low, both included. */
static uint32_t span(uint32_t high, uint32_t low)
{
    return (uint32_t)(((uint64_t)2 << high) - ((uint64_t)1 << low));
}

static void bound_of_map_ids_is_13_at_worst(void)
{
    static const struct {
        const char *name;
        uint32_t bound, last;
    } platforms[] = {{"lpddr5-jetson", 7, 1},
                     {"lpddr5-macbook", 6, 0},
                     {"lpddr5-ideapad", 9, 3},
                     {"lpddr5-iphone", 9, 3}};
    uint32_t bound = 0, last = 0;
    pimhw_geometry g = geometry(1, 1, 8, PIMHW_CHUNK_AIM);
    CHECK_U(pimhw_map_ids(&g, &bound, &last, &why), PIMHW_OK);
    CHECK_U(bound, 13);
    CHECK_U(last, 7);
    g.n_banks = 16;
    CHECK_U(pimhw_map_ids(&g, &bound, NULL, &why), PIMHW_OK);
    CHECK_U(bound, 12);
    for (size_t i = 0; i < sizeof platforms / sizeof *platforms; i++) {
        g = preset(platforms[i].name, PIMHW_CHUNK_AIM);
        CHECK_U(g.n_ranks, 2);
        CHECK_U(g.n_banks, 16);
        CHECK_U(pimhw_map_ids(&g, &bound, &last, &why), PIMHW_OK);
        CHECK_U(bound, platforms[i].bound);
        CHECK_U(last, platforms[i].last);
    }
}

static void facil_fig_10_changes_units_at_bits_20_to_16(void)
{
    pimhw_geometry g = geometry(2, 1, 16, PIMHW_CHUNK_AIM);
    placed(&g, 65536, 5, 2, 131072);
    places b = bits_of(&g, 5);
    CHECK_U(b.channel | b.rank | b.bank, span(20, 16));
    CHECK_U(b.byte, span(4, 0));
    CHECK_U(b.column, span(10, 5));
    CHECK_U(b.row, span(15, 11));
    CHECK_U(b.channel, span(16, 16));
    CHECK_U(b.bank, span(20, 17));
    LIES(&g, 5, 0x00ffff, 0, 0, 0, 31, 63, 31);
    LIES(&g, 5, 0x010000, 1, 0, 0, 0, 0, 0);
    LIES(&g, 5, 0x020000, 0, 0, 1, 0, 0, 0);
    LIES(&g, 5, 0x012345, 1, 0, 0, 4, 26, 5);
    LIES(&g, 5, 0x1fffff, 1, 0, 15, 31, 63, 31);
    LIES(&g, 5, 0x200000, 0, 0, 0, 32, 0, 0);
}

static void platforms_place_as_worked_out_by_hand(void)
{
    pimhw_geometry g = preset("lpddr5-iphone", PIMHW_CHUNK_AIM);
    placed(&g, 2048, 1, 1, 4096);
    places b = bits_of(&g, 1);
    CHECK_U(b.column, span(10, 5));
    CHECK_U(b.row, span(11, 11) | span(20, 19));
    CHECK_U(b.channel, span(13, 12));
    CHECK_U(b.rank, span(14, 14));
    CHECK_U(b.bank, span(18, 15));
    LIES(&g, 1, 0x1000, 1, 0, 0, 0, 0, 0);
    LIES(&g, 1, 0x4000, 0, 1, 0, 0, 0, 0);
    LIES(&g, 1, 0x8000, 0, 0, 1, 0, 0, 0);
    LIES(&g, 1, 0x80000, 0, 0, 0, 2, 0, 0);
    LIES(&g, 1, 0x12345, 2, 0, 2, 0, 26, 5);
    placed(&g, 8192, 3, 1, 16384);
    b = bits_of(&g, 3);
    CHECK_U(b.row, span(13, 11));
    CHECK_U(b.channel, span(15, 14));
    CHECK_U(b.rank, span(16, 16));
    CHECK_U(b.bank, span(20, 17));
    LIES(&g, 3, 0x12345, 0, 1, 0, 4, 26, 5);

    g = preset("lpddr5-jetson", PIMHW_CHUNK_AIM);
    placed(&g, 4096, 1, 2, 8192);
    placed(&g, 14336, 1, 8, 32768);
    b = bits_of(&g, 1);
    CHECK_U(b.channel, span(15, 12));
    CHECK_U(b.rank, span(16, 16));
    CHECK_U(b.bank, span(20, 17));
    CHECK_U(b.row, span(11, 11));
    LIES(&g, 1, 0x12345, 2, 1, 0, 0, 26, 5);

    g = preset("lpddr5-macbook", PIMHW_CHUNK_AIM);
    placed(&g, 4096, 0, 4, 8192);
    placed(&g, 14336, 0, 16, 32768);
    b = bits_of(&g, 0);
    CHECK_U(b.row, 0);
    CHECK_U(b.channel, span(15, 11));
    CHECK_U(b.rank, span(16, 16));
    CHECK_U(b.bank, span(20, 17));
    LIES(&g, 0, 0x800, 1, 0, 0, 0, 0, 0);
    LIES(&g, 0, 0x12345, 4, 1, 0, 0, 26, 5);

    g = preset("lpddr5-ideapad", PIMHW_CHUNK_AIM);
    placed(&g, 4096, 2, 1, 8192);
    placed(&g, 16384, 3, 2, 32768);
}

static void hbm_pim_keeps_8_rows_in_one_dram_row(void)
{
    pimhw_geometry g = geometry(1, 1, 16, PIMHW_CHUNK_HBM_PIM);
    pimhw_placement p;
    placed(&g, 1024, 3, 1, 2048);
    places b = bits_of(&g, 3);
    CHECK_U(b.column, span(7, 5) | span(13, 11));
    CHECK_U(b.row, span(10, 8) | span(20, 18));
    CHECK_U(b.bank, span(17, 14));
    LIES(&g, 3, 0x100, 0, 0, 0, 1, 0, 0);
    LIES(&g, 3, 0x800, 0, 0, 0, 0, 8, 0);
    LIES(&g, 3, 0x4000, 0, 0, 1, 0, 0, 0);
    LIES(&g, 3, 0x12345, 0, 0, 4, 3, 34, 5);
    CHECK_U(pimhw_map_select(&p, &g, 1, 1024, 2, &why), PIMHW_OK);
    CHECK_U(p.chunk_rows, 8);
    /* 128 KB a bank and page: two rows of 64 KB, so chunks of 8 rows hold columns of two */
    CHECK_U(pimhw_map_select(&p, &g, 1, 32768, 2, &why), PIMHW_OK);
    CHECK_U(p.n_parts, 1);
    CHECK_U(p.chunk_rows, 2);
    CHECK_U(p.map_id, 6);
}

static void narrow_rows_are_padded_and_wide_ones_refused(void)
{
    pimhw_geometry g = geometry(1, 1, 16, PIMHW_CHUNK_AIM);
    pimhw_placement p, before;
    placed(&g, 512, 0, 1, 2048);
    placed(&g, 1, 0, 1, 2048);
    placed(&g, 65536, 6, 1, 131072);
    memset(&p, 0x5a, sizeof p);
    before = p;
    CHECK_U(pimhw_map_select(&p, &g, 1, 65537, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "columns");
    CHECK_U(pimhw_map_select(&p, &g, 1, 131072, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_BYTES(&p, &before, sizeof p);
    g = preset("lpddr5-jetson", PIMHW_CHUNK_AIM);
    placed(&g, 65536, 1, 32, 131072);
    CHECK_U(pimhw_map_select(&p, &g, 1, 131072, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "columns is 131072");
    CHECK_BYTES(&p, &before, sizeof p);
    g = geometry(1, 1, 16, PIMHW_CHUNK_AIM);
    g.row_bytes = g.chunk_bytes = g.transfer_bytes = 2;
    placed(&g, 1, 0, 1, 2); /* one number is a whole chunk */
}

static void the_conventional_map_interleaves_transfers(void)
{
    pimhw_geometry g = preset("lpddr5-jetson", PIMHW_CHUNK_AIM);
    places b = bits_of(&g, PIMHW_MAP_HOST);
    CHECK_U(b.channel, span(8, 5));
    CHECK_U(b.bank, span(12, 9));
    CHECK_U(b.column, span(18, 13));
    CHECK_U(b.rank, span(19, 19));
    CHECK_U(b.row, span(20, 20));
    LIES(&g, PIMHW_MAP_HOST, 0x20, 1, 0, 0, 0, 0, 0);
    LIES(&g, PIMHW_MAP_HOST, 0x200, 0, 0, 1, 0, 0, 0);
    LIES(&g, PIMHW_MAP_HOST, 0x2000, 0, 0, 0, 0, 1, 0);
    LIES(&g, PIMHW_MAP_HOST, 0x12345, 10, 0, 1, 0, 9, 5);
}

/* Number of a place among all of the first page. */
static uint64_t place_of(const pimhw_geometry *g, const pimhw_da *da)
{
    uint64_t at = da->row;
    at = at * g->n_channels + da->channel;
    at = at * g->n_ranks + da->rank;
    at = at * g->n_banks + da->bank;
    at = at * (g->row_bytes / g->transfer_bytes) + da->column;
    return at * g->transfer_bytes + da->byte;
}

static unsigned char seen[1u << 21];

/* Every address of the second page: another place each, inside of the page's rows, and back. */
static void bijective(const pimhw_geometry *g, uint32_t map_id, uint32_t every)
{
    uint64_t stripe = (uint64_t)g->n_channels * g->n_ranks * g->n_banks * g->row_bytes;
    uint32_t page_rows = (uint32_t)(g->page_bytes / stripe);
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < g->page_bytes; i += every) {
        uint64_t pa = g->page_bytes + i + i / every % every, back = 0;
        pimhw_da da;
        pimhw_map_da(&da, g, map_id, pa, NULL);
        pimhw_map_pa(&back, g, map_id, &da, NULL);
        bool inside = da.channel < g->n_channels && da.rank < g->n_ranks && da.bank < g->n_banks &&
                      da.row / page_rows == 1 && da.column < g->row_bytes / g->transfer_bytes &&
                      da.byte == pa % g->transfer_bytes;
        if (!CHECK(inside) || !CHECK_U(back, pa)) return;
        da.row -= page_rows;
        if (!CHECK(!seen[place_of(g, &da)]++)) return;
    }
}

/*
 * What a MapID promises a matrix whose rows are padded to stride: one chunk in one DRAM row of one
 * bank, a row whole in one bank unless it is split, and the banks of a rank, at equal row and
 * column, at the same column of the matrix in different rows.
 */
static void keeps_promises(const pimhw_geometry *g, uint32_t map_id)
{
    const uint32_t columns = g->row_bytes / g->transfer_bytes;
    uint64_t per_bank = g->page_bytes / ((uint64_t)g->n_channels * g->n_ranks * g->n_banks);
    uint64_t stride = (uint64_t)g->chunk_bytes << map_id;
    for (uint64_t pa = 0; pa < g->page_bytes; pa += g->transfer_bytes) {
        pimhw_da da, start;
        pimhw_map_da(&da, g, map_id, pa, NULL);
        pimhw_map_da(&start, g, map_id, pa / g->chunk_bytes * g->chunk_bytes, NULL);
        bool same_row = da.channel == start.channel && da.rank == start.rank &&
                        da.bank == start.bank && da.row == start.row;
        pimhw_map_da(&start, g, map_id, pa / stride * stride, NULL);
        bool same_bank =
            da.channel == start.channel && da.rank == start.rank && da.bank == start.bank;
        if (!CHECK(same_row) || !CHECK(same_bank)) return;
    }
    for (uint32_t row = 0; row < per_bank / g->row_bytes; row++)
        for (uint32_t column = 0; column < columns; column++) {
            pimhw_da da = {g->n_channels - 1, g->n_ranks - 1, 0, row, column, 0};
            uint64_t first = 0, pa = 0, last = 0;
            pimhw_map_pa(&first, g, map_id, &da, NULL);
            for (da.bank = 1, last = first; da.bank < g->n_banks; da.bank++, last = pa) {
                pimhw_map_pa(&pa, g, map_id, &da, NULL);
                if (!CHECK_U(pa % stride, first % stride) || !CHECK(pa >= last + stride)) return;
            }
        }
}

static void every_mapping_of_every_preset_is_a_bijection(void)
{
    uint32_t n_mappings = 0, n_aim = 0, n_hbm = 0;
    for (uint32_t i = 0; pimhw_preset_name(i + 1); i++) /* the last is flash */
        for (int chunk = PIMHW_CHUNK_AIM; chunk <= PIMHW_CHUNK_HBM_PIM; chunk++) {
            pimhw_geometry g = preset(pimhw_preset_name(i), (pimhw_chunk)chunk);
            uint32_t last = 0;
            bool fits = pimhw_map_ids(&g, NULL, &last, &why) == PIMHW_OK;
            CHECK(fits || (chunk == PIMHW_CHUNK_HBM_PIM && g.row_bytes < 8 * g.chunk_bytes));
            for (uint32_t id = 0; id < PIMHW_N_MAPS; id++) {
                if (id <= PIMHW_MAP_LAST && (!fits || id > last)) continue;
                bijective(&g, id, g.transfer_bytes);
                if (id <= PIMHW_MAP_LAST) keeps_promises(&g, id);
                n_mappings++;
                n_aim += id <= PIMHW_MAP_LAST && chunk == PIMHW_CHUNK_AIM;
                n_hbm += id <= PIMHW_MAP_LAST && chunk == PIMHW_CHUNK_HBM_PIM;
            }
        }
    CHECK(n_mappings > 80);
    CHECK(n_aim >= 2 * 14);
    CHECK(n_hbm >= 2 * 8);
}

/* --------------------------------------------------------------------------
 * Cells.
 * -------------------------------------------------------------------------- */

static check_heap heap;

/* A small device on the counting allocator; NULL if it cannot be created. */
static pimhw_memory *memory_of(const char *name, uint32_t n_rows, pimhw_chunk chunk)
{
    pimhw_config c;
    pimhw_memory *m = NULL;
    CHECK_U(pimhw_config_init(&c, name, NULL), PIMHW_OK);
    c.n_rows = n_rows;
    c.allocator.alloc = heap_alloc, c.allocator.release = heap_release, c.allocator.user = &heap;
    pimhw_status status = pimhw_memory_create(&m, &c, chunk, &why);
    CHECK(status == PIMHW_OK || (status == PIMHW_ERR_MEMORY && heap.fail_at > 0));
    return m;
}

static pimhw_memory *odd_memory(void)
{
    pimhw_config c;
    pimhw_memory *m = NULL;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.n_channels = 3, c.n_bank_groups = 12, c.n_rows = 23;
    c.allocator.alloc = heap_alloc, c.allocator.release = heap_release, c.allocator.user = &heap;
    CHECK_U(pimhw_memory_create(&m, &c, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
    return m;
}

/* What the host writes through its pointer the banks hold where the mapping says, and back. */
static void one_copy(pimhw_memory *m, uint32_t map_id, check_rng *rng)
{
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    void *pointer = NULL;
    uint64_t page = g->page_bytes;
    if (!CHECK_U(pimhw_alloc(m, &pointer, 2 * page, map_id, &why), PIMHW_OK)) return;
    unsigned char *host = (unsigned char *)pointer;
    for (int i = 0; i < 400; i++) {
        uint64_t at = rng_range(rng, 0, 2 * page - 1), pa = 0, back = 0;
        uint32_t id = 0;
        unsigned char byte = (unsigned char)rng_u64(rng), read = 0;
        pimhw_da da;
        CHECK_U(pimhw_memory_find(m, &pa, &id, host + at, &why), PIMHW_OK);
        CHECK_U(id, map_id);
        CHECK_U(pimhw_map_da(&da, g, map_id, pa, &why), PIMHW_OK);
        host[at] = byte;
        CHECK_U(pimhw_memory_read(m, &read, &da, 1, &why), PIMHW_OK);
        CHECK_U(read, byte);
        read = (unsigned char)(byte + 1);
        CHECK_U(pimhw_memory_write(m, &da, &read, 1, &why), PIMHW_OK);
        CHECK_U(host[at], read);
        CHECK_U(pimhw_map_pa(&back, g, map_id, &da, &why), PIMHW_OK);
        CHECK_U(back, pa);
    }
    CHECK_U(pimhw_free(m, pointer, &why), PIMHW_OK);
}

/* A row of a bank is one run of bytes for the banks, however its columns are spread. */
static void rows_are_whole(pimhw_memory *m, uint32_t map_id, check_rng *rng)
{
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    static unsigned char row[8192], read[8192], column[64];
    void *pointer = NULL;
    if (!CHECK_U(pimhw_alloc(m, &pointer, 1, map_id, &why), PIMHW_OK)) return;
    for (int i = 0; i < 20; i++) {
        pimhw_da da = {(uint32_t)rng_range(rng, 0, g->n_channels - 1),
                       (uint32_t)rng_range(rng, 0, g->n_ranks - 1),
                       (uint32_t)rng_range(rng, 0, g->n_banks - 1),
                       0,
                       0,
                       0};
        for (uint32_t j = 0; j < g->row_bytes; j++)
            row[j] = (unsigned char)rng_u64(rng);
        CHECK_U(pimhw_memory_write(m, &da, row, g->row_bytes, &why), PIMHW_OK);
        CHECK_U(pimhw_memory_read(m, read, &da, g->row_bytes, &why), PIMHW_OK);
        CHECK_BYTES(read, row, g->row_bytes);
        da.column = g->row_bytes / g->transfer_bytes / 2;
        CHECK_U(pimhw_memory_read(m, column, &da, g->transfer_bytes, &why), PIMHW_OK);
        CHECK_BYTES(column, row + g->row_bytes / 2, g->transfer_bytes);
        da.byte = 5; /* some that begin and end within columns */
        CHECK_U(pimhw_memory_read(m, read, &da, 2 * g->transfer_bytes, &why), PIMHW_OK);
        CHECK_BYTES(read, row + g->row_bytes / 2 + 5, 2 * g->transfer_bytes);
    }
    CHECK_U(pimhw_free(m, pointer, &why), PIMHW_OK);
}

static void host_and_banks_see_the_same_bytes(void)
{
    check_rng rng = {7};
    for (uint32_t i = 0; pimhw_preset_name(i + 1); i++) /* the last is flash */
        for (int chunk = PIMHW_CHUNK_AIM; chunk <= PIMHW_CHUNK_HBM_PIM; chunk++) {
            pimhw_memory *m = memory_of(pimhw_preset_name(i), 64, (pimhw_chunk)chunk);
            uint32_t last = 0;
            bool fits = m && pimhw_map_ids(pimhw_memory_geometry(m), NULL, &last, NULL) == PIMHW_OK;
            for (uint32_t id = 0; m && id < PIMHW_N_MAPS; id++) {
                if (id <= PIMHW_MAP_LAST && (!fits || id > last)) continue;
                one_copy(m, id, &rng);
                rows_are_whole(m, id, &rng);
            }
            pimhw_memory_destroy(m);
        }
    pimhw_memory *m = odd_memory();
    for (uint32_t id = PIMHW_MAP_ROWS; m && id < PIMHW_N_MAPS; id++) {
        one_copy(m, id, &rng);
        rows_are_whole(m, id, &rng);
    }
    pimhw_memory_destroy(m);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
}

/* 3 channels of 48 banks: 288 KB a row of all banks, 7 such rows a page, 23 rows in all. */
static void geometries_without_powers_of_two_have_two_mappings(void)
{
    pimhw_memory *m = odd_memory();
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    void *p = NULL;
    CHECK_U(g->page_bytes, 7 * 3 * 48 * 2048);
    for (uint32_t id = PIMHW_MAP_ROWS; id < PIMHW_N_MAPS; id++)
        bijective(g, id, 1);
    LIES(g, PIMHW_MAP_ROWS, 2048, 1, 0, 0, 0, 0, 0);
    LIES(g, PIMHW_MAP_ROWS, 3 * 2048, 0, 0, 1, 0, 0, 0);
    LIES(g, PIMHW_MAP_ROWS, 3 * 48 * 2048 + 33, 0, 0, 0, 1, 1, 1);
    CHECK_U(pimhw_alloc(m, &p, 1, 0, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "n_channels is 3");
    CHECK(p == NULL);
    CHECK_U(pimhw_alloc(m, &p, 4 * g->page_bytes, PIMHW_MAP_ROWS, &why), PIMHW_ERR_FULL);
    CHECK_STR(why.text, "4 pages wanted, 3 free");
    CHECK_U(pimhw_alloc(m, &p, 3 * g->page_bytes, PIMHW_MAP_ROWS, &why), PIMHW_OK);
    /* the two rows beyond the last whole page take writes all the same */
    pimhw_da da = {2, 0, 47, 22, 63, 31};
    unsigned char byte = 9, read = 0;
    CHECK_U(pimhw_memory_write(m, &da, &byte, 1, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_read(m, &read, &da, 1, &why), PIMHW_OK);
    CHECK_U(read, 9);
    pimhw_memory_destroy(m);
    CHECK_U(heap.n_live, 0);
}

/* A page that was given and taken back belongs to nobody, whatever its MapID was: its rows are
 * apart from each other. */
static void freed_pages_are_nobodys_again(void)
{
    pimhw_memory *m = odd_memory();
    void *p = NULL;
    CHECK_U(pimhw_alloc(m, &p, 1, PIMHW_MAP_HOST, &why), PIMHW_OK);
    CHECK_U(pimhw_free(m, p, &why), PIMHW_OK);
    for (int reads = 0; reads < 2; reads++)
        for (uint32_t i = 0; i < 3; i++) {
            const pimhw_da da = {i, 0, 47 - i, 2 * i, 0, 0};
            unsigned char byte = (unsigned char)(i + 1);
            if (!reads) CHECK_U(pimhw_memory_write(m, &da, &byte, 1, &why), PIMHW_OK);
            if (reads) CHECK_U(pimhw_memory_read(m, &byte, &da, 1, &why), PIMHW_OK);
            CHECK_U(byte, i + 1);
        }
    pimhw_memory_destroy(m);
    CHECK_U(heap.n_live, 0);
}

/* Pages come lowest first, adjacent or not; freed ones come back zeroed; others stay. */
static void pages_are_given_and_taken_back(void)
{
    pimhw_memory *m = memory_of("lpddr5-iphone", 64, PIMHW_CHUNK_AIM); /* 8 pages of 8 rows */
    const uint64_t page = 1u << 21;
    void *p[8] = {NULL};
    unsigned char *host = NULL;
    uint64_t pa = 0, start = pimhw_memory_bytes(m);
    uint32_t id = 0;
    for (int i = 0; i < 4; i++)
        CHECK_U(pimhw_alloc(m, &p[i], 1, PIMHW_MAP_ROWS, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_bytes(m) - start, 4 * page);
    memset(p[1], 7, (size_t)page);
    CHECK_U(pimhw_free(m, p[1], &why), PIMHW_OK);
    CHECK_U(pimhw_free(m, p[3], &why), PIMHW_OK);
    CHECK_U(pimhw_alloc(m, &p[4], 3 * page - 5, 2, &why), PIMHW_OK);
    static const uint64_t pages[] = {1, 3, 4};
    host = (unsigned char *)p[4];
    for (size_t i = 0; i < 3 * page; i += 4096)
        if (!CHECK_U(host[i], 0)) break;
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_U(pimhw_memory_find(m, &pa, &id, host + i * page + 17, &why), PIMHW_OK);
        CHECK_U(pa, pages[i] * page + 17);
        CHECK_U(id, 2);
    }
    /* a page that somebody wrote to is not free; nothing takes none */
    pimhw_da da = {0, 0, 0, 41, 0, 0};
    uint64_t before = pimhw_memory_bytes(m);
    CHECK_U(pimhw_memory_write(m, &da, "x", 0, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_bytes(m), before);
    CHECK_U(pimhw_memory_write(m, &da, "x", 1, &why), PIMHW_OK);
    CHECK_U(pimhw_alloc(m, &p[5], 3 * page, 0, &why), PIMHW_ERR_FULL);
    CHECK_STR(why.text, "3 pages wanted, 2 free");
    CHECK_U(pimhw_alloc(m, &p[5], 2 * page, 0, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_find(m, &pa, NULL, p[5], &why), PIMHW_OK);
    CHECK_U(pa, 6 * page);
    CHECK_U(pimhw_memory_bytes(m) - start, 8 * page);
    CHECK_U(pimhw_free(m, p[4], &why), PIMHW_OK);
    CHECK_U(pimhw_memory_bytes(m) - start, 5 * page);
    pimhw_memory_destroy(m);
    CHECK_U(heap.n_live, 0);
    CHECK_U(heap.n_wrong, 0);
}

static void *newest;

static void *alloc_newest(void *user, size_t bytes, size_t align)
{
    newest = heap_alloc(user, bytes, align);
    return newest;
}

/* Where the bytes of a page are that somebody wrote to is no address that pimhw_alloc gave. */
static void written_pages_have_no_host_address(void)
{
    pimhw_config c = hw_config("lpddr5-iphone", 4);
    pimhw_memory *m = NULL;
    uint64_t pa = 77;
    uint32_t id = 77;
    const pimhw_da da = {0, 0, 0, 41, 0, 0};
    c.n_rows = 64;
    c.allocator.alloc = alloc_newest, c.allocator.release = heap_release, c.allocator.user = &heap;
    if (!CHECK_U(pimhw_memory_create(&m, &c, PIMHW_CHUNK_AIM, &why), PIMHW_OK)) return;
    CHECK_U(pimhw_memory_write(m, &da, "x", 1, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_find(m, &pa, &id, newest, &why), PIMHW_ERR_ADDRESS);
    CHECK_U(pimhw_free(m, newest, &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "is not from pimhw_alloc");
    CHECK(pa == 77 && id == 77);
    char byte = 0;
    CHECK_U(pimhw_memory_read(m, &byte, &da, 1, &why), PIMHW_OK);
    CHECK_U(byte, 'x');
    pimhw_memory_destroy(m);
    CHECK_U(heap.n_live, 0);
}

static void what_was_never_written_is_zero_and_costs_nothing(void)
{
    pimhw_memory *m = memory_of("lpddr5-jetson", 65536, PIMHW_CHUNK_AIM); /* 64 GB */
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    unsigned char row[2048];
    pimhw_da da = {15, 1, 15, 65535, 0, 0};
    CHECK(pimhw_memory_bytes(m) < 1u << 20);
    memset(row, 5, sizeof row);
    CHECK_U(pimhw_memory_read(m, row, &da, sizeof row, &why), PIMHW_OK);
    for (size_t i = 0; i < sizeof row; i++)
        CHECK_U(row[i], 0);
    uint64_t before = pimhw_memory_bytes(m);
    CHECK_U(pimhw_memory_write(m, &da, row, 1, &why), PIMHW_OK);
    CHECK_U(pimhw_memory_bytes(m) - before, g->page_bytes);
    pimhw_memory_destroy(m);
}

static void wrong_addresses_are_named(void)
{
    static const char *const names[] = {"channel 16", "rank 2",    "bank 16",
                                        "row 64",     "column 64", "byte 32"};
    pimhw_memory *m = memory_of("lpddr5-jetson", 64, PIMHW_CHUNK_AIM);
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    const pimhw_da zero = {0, 0, 0, 0, 0, 0};
    unsigned char byte = 77;
    uint64_t pa = 5;
    uint32_t last = 0;
    void *p = NULL, *freed = NULL;
    CHECK_U(pimhw_map_ids(g, NULL, &last, &why), PIMHW_OK);
    for (size_t i = 0; i < 6; i++) {
        const uint32_t beyond[] = {16, 2, 16, 64, 64, 32};
        pimhw_da da = zero;
        uint32_t *fields[] = {&da.channel, &da.rank, &da.bank, &da.row, &da.column, &da.byte};
        *fields[i] = beyond[i];
        CHECK_U(pimhw_map_pa(&pa, g, 0, &da, &why), PIMHW_ERR_ADDRESS);
        CHECK_HAS(why.text, names[i]);
        CHECK_U(pimhw_memory_read(m, &byte, &da, 1, &why), PIMHW_ERR_ADDRESS);
        CHECK_U(pimhw_memory_write(m, &da, &byte, 1, &why), PIMHW_ERR_ADDRESS);
        CHECK_HAS(why.text, names[i]);
    }
    CHECK_U(pa, 5);
    CHECK_U(byte, 77);
    pimhw_da da = {0, 0, 0, 3, 63, 31};
    CHECK_U(pimhw_memory_write(m, &da, &byte, 2, &why), PIMHW_ERR_ADDRESS);
    CHECK_STR(why.text, "byte 2048 of row 3, which has 2048");
    CHECK_U(pimhw_map_da(&da, g, 0, (uint64_t)64 << 20, &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "physical address 67108864");
    CHECK_U(da.row, 3);
    CHECK_U(pimhw_map_da(&da, g, last + 1, 0, &why), PIMHW_ERR_ARGUMENT);
    CHECK_STR(why.text, "map_id is 2, not 0 to 1, 14 or 15");
    CHECK_U(pimhw_map_pa(&pa, g, PIMHW_N_MAPS, &zero, &why), PIMHW_ERR_ARGUMENT);
    const pimhw_da nowhere = {UINT32_MAX, 0, 0, 0, 0, 0};
    CHECK_U(pimhw_map_pa(NULL, g, 0, &nowhere, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_alloc(m, &p, 1, last + 1, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "map_id is 2");
    CHECK_U(pimhw_alloc(m, &p, 0, 0, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_alloc(m, &p, UINT64_MAX, 0, &why), PIMHW_ERR_FULL);
    CHECK(p == NULL);

    CHECK_U(pimhw_alloc(m, &p, 5u << 20, 0, &why), PIMHW_OK);
    uint64_t held = pimhw_memory_bytes(m);
    CHECK_U(pimhw_free(m, &byte, &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "not from pimhw_alloc");
    CHECK_U(pimhw_free(m, NULL, &why), PIMHW_ERR_ADDRESS);
    CHECK_U(pimhw_free(m, (char *)p + 1, &why), PIMHW_ERR_ADDRESS);
    CHECK_U(pimhw_free(m, (char *)p + (2u << 20), &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "physical address 2097152");
    CHECK_U(pimhw_memory_find(m, &pa, NULL, (char *)p + (6u << 20), &why), PIMHW_ERR_ADDRESS);
    CHECK_U(pimhw_memory_bytes(m), held);
    freed = p;
    CHECK_U(pimhw_free(m, p, &why), PIMHW_OK);
    CHECK_U(pimhw_free(m, freed, &why), PIMHW_ERR_ADDRESS);
    CHECK_HAS(why.text, "freed already");
    pimhw_memory_destroy(m);
    pimhw_memory_destroy(NULL);
    CHECK_U(heap.n_live, 0);
}

/* A page short of rows mixes rows that are there with others: both ways the others are refused. */
static void pages_short_of_rows_end_at_the_last(void)
{
    pimhw_geometry g = geometry(2, 1, 4, PIMHW_CHUNK_AIM); /* pages of 128 rows */
    const uint32_t map_id = 5;
    uint64_t n_there = 0, bytes = 0;
    g.n_rows = 150;
    bytes = (uint64_t)g.n_rows * 2 * 4 * g.row_bytes;
    for (uint64_t pa = 0; pa < bytes; pa += 32) {
        pimhw_da da = {9, 9, 9, 9, 9, 9};
        uint64_t back = 0;
        pimhw_status status = pimhw_map_da(&da, &g, map_id, pa, &why);
        if (status == PIMHW_OK) CHECK_U(pimhw_map_pa(&back, &g, map_id, &da, &why), PIMHW_OK);
        if (status == PIMHW_OK && !CHECK(back == pa && da.row < g.n_rows)) return;
        if (status == PIMHW_OK) n_there++;
        if (status != PIMHW_OK && !CHECK(status == PIMHW_ERR_ADDRESS && da.row == 9)) return;
    }
    for (uint32_t row = 0; row < g.n_rows; row++) {
        pimhw_da da = {1, 0, 3, row, 0, 0};
        uint64_t pa = 7;
        pimhw_status status = pimhw_map_pa(&pa, &g, map_id, &da, &why);
        CHECK(status == PIMHW_OK ? pa < bytes : status == PIMHW_ERR_ADDRESS && pa == 7);
    }
    CHECK(n_there >= (1u << 21) / 32 && n_there < bytes / 32);
}

/* Between small chunks of large pages there is room for MapIDs of more than four bits. */
static void no_matrix_is_placed_beyond_the_last_map(void)
{
    pimhw_placement p = {.map_id = 99};
    pimhw_geometry g = geometry(1, 1, 1, PIMHW_CHUNK_AIM);
    g.row_bytes = g.chunk_bytes = g.transfer_bytes = 2;
    CHECK_U(pimhw_map_select(&p, &g, 1, 1u << 14, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "columns");
    CHECK_U(p.map_id, 99);
    CHECK_U(pimhw_map_select(&p, &g, 1, 1u << 13, 2, &why), PIMHW_OK);
    CHECK_U(p.map_id, PIMHW_MAP_LAST);
}

/* Each wrong field of a geometry or matrix by its name; outputs stay. */
static void wrong_geometries_and_matrices_are_named(void)
{
    static const struct {
        size_t offset;
        uint32_t value;
        const char *name;
    } wrong[] = {
        {offsetof(pimhw_geometry, n_channels), 3, "n_channels"},
        {offsetof(pimhw_geometry, n_ranks), 3, "n_ranks"},
        {offsetof(pimhw_geometry, n_banks), 12, "n_banks"},
        {offsetof(pimhw_geometry, n_banks), 0, "n_banks"},
        {offsetof(pimhw_geometry, n_channels), 0, "n_channels"},
        {offsetof(pimhw_geometry, n_channels), 256, "page_bytes"},
        {offsetof(pimhw_geometry, n_rows), 0, "n_rows"},
        {offsetof(pimhw_geometry, row_bytes), 2000, "row_bytes"},
        {offsetof(pimhw_geometry, row_bytes), 96 * 16, "row_bytes"},
        {offsetof(pimhw_geometry, transfer_bytes), 0, "transfer_bytes"},
        {offsetof(pimhw_geometry, row_bytes), 16, "row_bytes 16 is not a multiple"},
        {offsetof(pimhw_geometry, chunk_rows), 2, "chunk_rows"},
        {offsetof(pimhw_geometry, chunk_bytes), 4096, "chunk_bytes"},
        {offsetof(pimhw_geometry, chunk_bytes), 16, "chunk_bytes"},
    };
    pimhw_placement p, before;
    memset(&p, 0x5a, sizeof p);
    before = p;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pimhw_geometry g = geometry(4, 2, 16, PIMHW_CHUNK_AIM);
        memcpy((char *)&g + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        g.page_bytes = wrong[i].value == 12 || wrong[i].value == 3 || wrong[i].value == 96 * 16
                           ? 3u << 20
                           : 1u << 21;
        CHECK_U(pimhw_map_select(&p, &g, 64, 64, 2, &why), PIMHW_ERR_CONFIG);
        CHECK_HAS(why.text, wrong[i].name);
    }
    pimhw_geometry g = geometry(4, 2, 16, PIMHW_CHUNK_AIM);
    g.page_bytes = 0;
    CHECK_U(pimhw_map_select(&p, &g, 64, 64, 2, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "page_bytes");
    g = geometry(4, 2, 16, PIMHW_CHUNK_AIM);
    CHECK_U(pimhw_map_select(&p, &g, 0, 64, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "rows is 0");
    CHECK_U(pimhw_map_select(&p, &g, 64, 0, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "columns is 0");
    CHECK_U(pimhw_map_select(&p, &g, 64, UINT64_MAX, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "columns");
    CHECK_U(pimhw_map_select(&p, &g, UINT64_MAX, 64, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "rows");
    for (uint32_t e = 0; e <= 64; e += e < 3 ? 3 : 61) {
        CHECK_U(pimhw_map_select(&p, &g, 64, 64, e, &why), PIMHW_ERR_ARGUMENT);
        CHECK_HAS(why.text, "element_bytes");
    }
    CHECK_U(pimhw_map_select(NULL, &g, 64, 64, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_U(pimhw_map_select(&p, NULL, 64, 64, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_BYTES(&p, &before, sizeof p);
    pimhw_config c = hw_config("lpddr5-iphone", 4);
    c.n_ranks = 5;
    CHECK_U(pimhw_geometry_init(&g, &c, PIMHW_CHUNK_AIM, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "n_ranks 5");
    CHECK_U(pimhw_geometry_init(&g, &c, (pimhw_chunk)2, &why), PIMHW_ERR_ARGUMENT);
}

/* Sizes of 2^63 bytes and matrices of 2^64 are refused, and not what is a little less. */
static void the_largest_sizes_are_taken(void)
{
    pimhw_geometry g = geometry(1u << 10, 1u << 10, 1u << 10, PIMHW_CHUNK_AIM);
    pimhw_placement p;
    uint64_t pa = 0;
    g.page_bytes = UINT64_C(1) << 41; /* a row of all banks */
    g.n_rows = (1u << 22) - 1;
    const pimhw_da last = {1023, 1023, 1023, g.n_rows - 1, 63, 31};
    CHECK_U(pimhw_map_pa(&pa, &g, PIMHW_MAP_ROWS, &last, &why), PIMHW_OK);
    CHECK_U(pa, ((uint64_t)g.n_rows << 41) - 1);
    g.n_rows++;
    CHECK_U(pimhw_map_pa(&pa, &g, PIMHW_MAP_ROWS, &last, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "n_rows 4194304");
    g = geometry(4, 2, 16, PIMHW_CHUNK_AIM);
    uint64_t page_rows = g.page_bytes / 2048, most = (UINT64_MAX >> 21) * page_rows;
    CHECK_U(pimhw_map_select(&p, &g, most, 1024, 2, &why), PIMHW_OK);
    CHECK_U(p.bytes, UINT64_MAX << 21);
    CHECK_U(pimhw_map_select(&p, &g, most + 1, 1024, 2, &why), PIMHW_ERR_ARGUMENT);
    CHECK_HAS(why.text, "rows");
    g.page_bytes = 3u << 20; /* whole rows of all banks, but no power of two */
    CHECK_U(pimhw_map_pa(&pa, &g, 0, &(pimhw_da){0}, &why), PIMHW_ERR_CONFIG);
    CHECK_HAS(why.text, "page_bytes");
    CHECK_U(pimhw_map_pa(&pa, &g, PIMHW_MAP_HOST, &(pimhw_da){0}, &why), PIMHW_OK);
}

/* The n-th allocation fails, for all n: the call says so and nothing else happened. */
static void allocations_that_fail_change_nothing(void)
{
    for (uint64_t n = 1; n <= 4; n++) {
        memset(&heap, 0, sizeof heap);
        heap.fail_at = n;
        pimhw_memory *m = memory_of("lpddr5-iphone", 64, PIMHW_CHUNK_AIM);
        CHECK((m == NULL) == (n == 1));
        if (!m) continue;
        pimhw_da da = {0, 0, 0, 9, 0, 0};
        void *p = NULL;
        uint64_t start = pimhw_memory_bytes(m), page = 1u << 21;
        bool wrote = pimhw_memory_write(m, &da, "x", 1, &why) == PIMHW_OK;
        CHECK(wrote == (n != 2));
        CHECK_U(pimhw_memory_bytes(m) - start, wrote ? page : 0);
        pimhw_status status = pimhw_alloc(m, &p, 3 * page, 0, &why);
        CHECK_U(status, n == 3 ? PIMHW_ERR_MEMORY : PIMHW_OK);
        CHECK((p == NULL) == (n == 3));
        CHECK_U(pimhw_memory_bytes(m) - start, (wrote ? page : 0) + (p ? 3 * page : 0));
        pimhw_memory_destroy(m);
        CHECK_U(heap.n_live, 0);
        CHECK_U(heap.n_wrong, 0);
    }
    memset(&heap, 0, sizeof heap);
}

/* --------------------------------------------------------------------------
 * GEMV: instructions of examples/gemv.h's program, executed on the bytes in the banks by the
 * plainest code: f16 lanes, products exact in f32, a pairwise tree of 16, one f32 sum an entry.
 * -------------------------------------------------------------------------- */

static float half_values[65536];

static float half(uint16_t bits)
{
    return half_values[bits];
}

static void half_table(void)
{
    for (uint32_t i = 0; i < 65536; i++) {
        int exponent = (int)(i >> 10 & 31), mantissa = (int)(i & 1023);
        double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        if (exponent == 31) value = mantissa ? (double)NAN : (double)INFINITY;
        half_values[i] = (float)(i >> 15 ? -value : value);
    }
}

/* Nearest f16 of a number below 2^15; subnormal ones are 0. */
static uint16_t to_half(double value)
{
    int exponent = 0;
    double fraction = frexp(fabs(value), &exponent);
    if (fabs(value) < 0x1p-14) return 0;
    uint32_t mantissa = (uint32_t)floor(ldexp(fraction, 11) + 0.5);
    if (mantissa == 2048) mantissa = 1024, exponent++;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (uint32_t)(exponent + 14) << 10 |
                      (mantissa - 1024));
}

enum { LANES = 16, MOST_ENTRIES = 64 };

typedef struct units {
    const pimhw_config *config;
    const pimhw_memory *memory;
    uint16_t *vector; /* [columns of the vector][LANES] */
    const gemv *v;
    uint16_t gb[PIMHW_MAX_CHANNELS][MOST_ENTRIES][LANES];
    float sum[PIMHW_MAX_CHANNELS][MOST_ENTRIES][PIMHW_MAX_BANKS];
    float (*results)[PIMHW_MAX_BANKS]; /* [blocks of the GPR] */
    uint64_t n_blocks, n_macs, n_reads;
    pimhw_status status;
} units;

static void mac(units *u, uint32_t channel, const pimhw_instruction *in)
{
    const pimhw_geometry *g = pimhw_memory_geometry(u->memory);
    uint16_t columns[MOST_ENTRIES][LANES];
    for (uint32_t bank = 0; bank < pimhw_config_banks(u->config); bank++) {
        const pimhw_da from = {channel, bank / g->n_banks, bank % g->n_banks,
                               in->row, in->column,        0};
        u->status = pimhw_memory_read(u->memory, columns, &from,
                                      (uint32_t)(in->op_size * sizeof columns[0]), &why);
        if (u->status) return;
        for (uint32_t i = 0; i < in->op_size; i++) {
            const uint16_t *k = columns[i];
            float tree[LANES];
            for (uint32_t j = 0; j < LANES; j++)
                tree[j] = half(k[j]) * half(u->gb[channel][in->tile + i][j]);
            for (uint32_t n = LANES / 2; n > 0; n /= 2)
                for (uint32_t j = 0; j < n; j++)
                    tree[j] = tree[2 * j] + tree[2 * j + 1];
            u->sum[channel][in->out][bank] += tree[0];
            u->n_macs += LANES;
        }
    }
}

static bool execute(void *user, const pimhw_instruction *in)
{
    units *u = (units *)user;
    for (uint32_t c = 0; c < u->config->n_channels && !u->status; c++) {
        if (!(in->mask >> c & 1)) continue;
        if (in->kind == PIMHW_MAC_ABK) mac(u, c, in);
        if (in->kind == PIMHW_WR_GB && CHECK(in->gpr + in->op_size <= u->v->n_columns))
            memcpy(u->gb[c][in->tile], u->vector + (size_t)in->gpr * LANES,
                   (size_t)in->op_size * sizeof u->gb[c][0]);
        if (in->kind == PIMHW_WR_BIAS && CHECK_U(in->gpr, u->v->n_columns))
            memset(u->sum[c][in->out], 0, sizeof u->sum[c][in->out]);
        uint64_t block = in->gpr + (uint64_t)u->v->n_blocks * c;
        if (in->kind == PIMHW_RD_MAC && CHECK(block < u->n_blocks)) {
            memcpy(u->results[block], u->sum[c][in->out], sizeof u->sum[c][in->out]);
            if (u->config->out_clear == PIMHW_CLEAR_READ)
                memset(u->sum[c][in->out], 0, sizeof u->sum[c][in->out]);
            u->n_reads++;
        }
    }
    return u->status == PIMHW_OK;
}

/* A matrix in memory, its vector, what is expected of it. */
typedef struct problem {
    uint64_t rows, columns;
    pimhw_placement place;
    unsigned char *matrix;
    uint16_t *vector; /* columns rounded up to LANES, and zeros of every bank */
} problem;

static uint16_t at(const problem *p, uint64_t row, uint64_t column)
{
    uint16_t value;
    memcpy(&value, p->matrix + row * p->place.stride_bytes + 2 * column, sizeof value);
    return value;
}

/*
 * Of n columns, each a tree of 4 levels and one sum, and of the sums of the parts: at most
 * 4 + n + parts roundings touch any product, so |error| <= (4 + n + parts) u / (1 - ..) times the
 * sum of |products|, u = 2^-24. Small whole numbers are exact.
 */
static void compare(const problem *p, const gemv *v, const units *u, bool whole)
{
    for (uint64_t row = 0; row < p->rows; row++) {
        double want = 0, size = 0;
        float sum = 0;
        for (uint64_t i = 0; i < p->columns; i++) {
            double product = (double)half(at(p, row, i)) * (double)half(p->vector[i]);
            want += product;
            size += fabs(product);
        }
        for (uint32_t part = 0; part < v->n_parts; part++) {
            uint32_t bank = 0;
            uint64_t block = gemv_block(v, row, part, &bank);
            if (CHECK(block < u->n_blocks)) sum += u->results[block][bank];
        }
        double bound = size * 1.01 * (4 + v->n_columns + v->n_parts) * 0x1p-24;
        if (!CHECK_NEAR(sum, want, whole ? 0 : bound)) return;
    }
}

/* Rows beyond the last and columns beyond a row's end hold NaN: no unit's sum may see a column. */
static void fill(problem *p, check_rng *rng, bool whole)
{
    const uint16_t nan = 0x7e00;
    for (uint64_t i = 0; i + 1 < p->place.bytes; i += 2) {
        uint64_t row = i / p->place.stride_bytes, column = i % p->place.stride_bytes / 2;
        uint64_t end = (p->columns + LANES - 1) / LANES * LANES;
        double draw = whole ? (double)rng_range(rng, 0, 8) - 4 : (double)rng_normal(rng);
        uint16_t value = column < p->columns ? to_half(draw) : column < end ? 0 : nan;
        if (row >= p->rows) value = nan;
        memcpy(p->matrix + i, &value, sizeof value);
    }
    for (uint64_t i = 0; i < p->columns; i++)
        p->vector[i] = to_half(whole ? (double)rng_range(rng, 0, 8) - 4 : (double)rng_normal(rng));
}

/* The device's own units give the same bits under its controller. */
static void run(const problem *p, const units *u, pimhw_device *device, pimhw_memory *m,
                const pimhw_program *program, const pimhw_request *request)
{
    pimhw_units *own = NULL;
    pimhw_readings r;
    if (!CHECK_U(pimhw_units_create(&own, u->config, m, &why), PIMHW_OK)) return;
    memcpy(pimhw_units_gpr(own, 0), p->vector, (u->v->n_columns + u->v->n_zeros) * 32u);
    pimhw_status status = pimhw_device_run(device, &r, own, program, request, NULL, &why);
    if (!CHECK_U(status, PIMHW_OK)) printf("  %s\n", why.text);
    CHECK_U(r.macs, u->n_macs);
    for (uint64_t row = 0; row < p->rows && !status; row++)
        for (uint32_t part = 0; part < u->v->n_parts; part++) {
            float sums[PIMHW_MAX_BANKS];
            uint32_t bank = 0;
            uint64_t block = gemv_block(u->v, row, part, &bank);
            memcpy(sums, pimhw_units_gpr(own, (uint32_t)block), 4 * pimhw_config_banks(u->config));
            if (!CHECK_BYTES(&sums[bank], &u->results[block][bank], 4)) row = p->rows, part = 64;
        }
    pimhw_units_destroy(own);
}

/* Builds the program, executes it, times it; the matrix is not touched. */
static void multiply(const problem *p, const pimhw_config *c, pimhw_memory *m, bool whole)
{
    static pimhw_program program;
    static units u;
    const pimhw_geometry *g = pimhw_memory_geometry(m);
    gemv v = gemv_of(c, g, &p->place, p->rows, p->columns);
    pimhw_device *device = NULL;
    pimhw_request request;
    pimhw_readings r;
    pimhw_block *blocks = (pimhw_block *)check_alloc(v.n_pages, sizeof *blocks);
    memset(&u, 0, sizeof u);
    u.config = c, u.memory = m, u.vector = p->vector, u.v = &v;
    u.n_blocks = gemv_end(&v);
    u.results = (float(*)[PIMHW_MAX_BANKS])check_alloc(u.n_blocks, sizeof u.results[0]);
    CHECK_U(gemv_request(&request, blocks, &v, m, p->matrix, p->rows * p->columns, &why), PIMHW_OK);
    CHECK_U(pimhw_device_create(&device, c, &why), PIMHW_OK);
    if (CHECK_U(gemv_program(&program, &v, c, &why), PIMHW_OK)) {
        pimhw_status status = pimhw_device_resolve(device, &program, &request, execute, &u, &why);
        if (!CHECK_U(status, PIMHW_OK) || u.status) printf("  %s\n", why.text);
        CHECK_U(u.status, PIMHW_OK);
        compare(p, &v, &u, whole);
        run(p, &u, device, m, &program, &request);
        CHECK_U(pimhw_device_time(device, &r, &program, &request, NULL, &why), PIMHW_OK);
        CHECK_U(r.macs, u.n_macs);
        CHECK_U(r.useful_macs, p->rows * p->columns);
        CHECK_U(r.commands[PIMHW_CMD_RDMAC16], u.n_reads);
    } else {
        printf("  %s\n", why.text);
    }
    pimhw_device_destroy(device);
    free(u.results);
    free(blocks);
}

static void gemv_case(const pimhw_config *c, pimhw_memory *m, uint64_t rows, uint64_t columns,
                      check_rng *rng)
{
    problem p = {.rows = rows, .columns = columns};
    void *pointer = NULL;
    bool whole = rng_range(rng, 0, 1);
    if (!CHECK_U(pimhw_map_select(&p.place, pimhw_memory_geometry(m), rows, columns, 2, &why),
                 PIMHW_OK) ||
        !CHECK_U(pimhw_alloc(m, &pointer, p.place.bytes, p.place.map_id, &why), PIMHW_OK)) {
        printf("  %s\n", why.text);
        return;
    }
    p.matrix = (unsigned char *)pointer;
    p.vector = (uint16_t *)check_alloc(columns + 6 * LANES, sizeof *p.vector);
    fill(&p, rng, whole);
    uint64_t held = pimhw_memory_bytes(m);
    unsigned char *before = (unsigned char *)check_alloc((size_t)p.place.bytes, 1);
    memcpy(before, p.matrix, (size_t)p.place.bytes);
    multiply(&p, c, m, whole);
    CHECK_BYTES(p.matrix, before, (size_t)p.place.bytes);
    CHECK_U(pimhw_memory_bytes(m) - held, 0);
    CHECK_U(pimhw_free(m, pointer, &why), PIMHW_OK);
    free(before);
    free(p.vector);
}

/* Shapes of all kinds: less than a chunk, no power of two, in parts over channels and ranks; pages
 * that are not adjacent, because others between them are taken. */
static void gemv_through_the_mapping_is_right(void)
{
    static const struct {
        const char *preset;
        uint32_t n_channels;
        uint64_t rows, columns;
    } cases[] = {
        {"lpddr5-iphone", 4, 300, 2048},
        {"lpddr5-iphone", 4, 130, 8192},
        {"lpddr5-iphone", 4, 1, 1},
        {"lpddr5-iphone", 4, 700, 1000},
        {"lpddr5-iphone", 4, 40, 50000},
        {"lpddr5-jetson", 16, 300, 4096},
        {"lpddr5-jetson", 16, 70, 14336},
        {"lpddr5-jetson", 16, 20, 65536},
        {"lpddr5-macbook", 32, 300, 4096},
        {"lpddr5-macbook", 32, 65, 14336},
        {"lpddr5-ideapad", 4, 257, 4096},
        {"lpddr5-ideapad", 4, 100, 16384},
        {"aimx", 2, 100, 3000},
        {"aimx", 16, 513, 5000},
        {"aim-gddr6", 32, 100, 4096},
        {"aimx", 1, 3, 65536},
        {"pam-hbm3", 4, 70, 700},
        {"newton-hbm2", 8, 77, 9000},
    };
    check_rng rng = {11};
    half_table();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = i; k < i + 3; k += 2) { /* two of the controllers each */
            pimhw_config c;
            pimhw_memory *m = NULL;
            void *p[3];
            CHECK_U(pimhw_config_init(&c, cases[i].preset, NULL), PIMHW_OK);
            c.n_channels = cases[i].n_channels, c.controller = (uint32_t)k % 4;
            c.out_bits = 32;
            CHECK_U(pimhw_memory_create(&m, &c, PIMHW_CHUNK_AIM, &why), PIMHW_OK);
            for (int j = 0; j < 3; j++)
                CHECK_U(pimhw_alloc(m, &p[j], 1, PIMHW_MAP_ROWS, &why), PIMHW_OK);
            CHECK_U(pimhw_free(m, p[1], &why), PIMHW_OK);
            gemv_case(&c, m, cases[i].rows, cases[i].columns, &rng);
            pimhw_memory_destroy(m);
        }
}

int main(void)
{
    RUN(bound_of_map_ids_is_13_at_worst);
    RUN(facil_fig_10_changes_units_at_bits_20_to_16);
    RUN(platforms_place_as_worked_out_by_hand);
    RUN(hbm_pim_keeps_8_rows_in_one_dram_row);
    RUN(narrow_rows_are_padded_and_wide_ones_refused);
    RUN(the_conventional_map_interleaves_transfers);
    RUN(every_mapping_of_every_preset_is_a_bijection);
    RUN(host_and_banks_see_the_same_bytes);
    RUN(geometries_without_powers_of_two_have_two_mappings);
    RUN(freed_pages_are_nobodys_again);
    RUN(pages_are_given_and_taken_back);
    RUN(written_pages_have_no_host_address);
    RUN(what_was_never_written_is_zero_and_costs_nothing);
    RUN(wrong_addresses_are_named);
    RUN(pages_short_of_rows_end_at_the_last);
    RUN(no_matrix_is_placed_beyond_the_last_map);
    RUN(wrong_geometries_and_matrices_are_named);
    RUN(the_largest_sizes_are_taken);
    RUN(allocations_that_fail_change_nothing);
    RUN(gemv_through_the_mapping_is_right);
    return check_end();
}
