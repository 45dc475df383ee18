/* Mapping and cells: where a byte lies, that every mapping is a bijection that keeps FACIL's
 * promises, pages given and taken back, and a GEMV by the units on the host's own matrix. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

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
typedef struct bits {
    uint32_t channel, rank, bank, row, column, byte;
} bits;

static bits bits_of(const pimhw_geometry *g, uint32_t map_id)
{
    bits b = {0, 0, 0, 0, 0, 0};
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
    bits b = bits_of(&g, 5);
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
    bits b = bits_of(&g, 1);
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
    bits b = bits_of(&g, 3);
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
}

static void the_conventional_map_interleaves_transfers(void)
{
    pimhw_geometry g = preset("lpddr5-jetson", PIMHW_CHUNK_AIM);
    bits b = bits_of(&g, PIMHW_MAP_HOST);
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
    for (uint32_t i = 0; pimhw_preset_name(i); i++)
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
    }
    CHECK_U(pimhw_free(m, pointer, &why), PIMHW_OK);
}

static void host_and_banks_see_the_same_bytes(void)
{
    check_rng rng = {7};
    for (uint32_t i = 0; pimhw_preset_name(i); i++)
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
    return check_end();
}
