/* device.c - pim_hw.h alone: describe a device, write a small program, see where its clocks go.
 *
 * The program is a matrix times a vector, 128 x 1024, on one channel: the vector goes into the
 * global buffer once or, where that is too small, piece by piece for every output; each of the
 * banks holds a matrix row in rows of its own, so every round of the loop makes an output a bank.
 */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#define EX_NAME "device"
#include "common.h"

enum { OUTPUTS = 128, INPUTS = 1024 };

/* The largest number up to most that divides n. */
static uint64_t divisor(uint64_t n, uint64_t most)
{
    uint64_t d = n < most ? n : most;
    while (n % d != 0)
        d--;
    return d;
}

static void add_input(pimhw_program *program, uint64_t n_columns)
{
    pimhw_program_add(program,
                      &(pimhw_instruction){.kind = PIMHW_WR_GB, .mask = 1, .op_size = n_columns});
}

/* One round per matrix row of the banks, in it one per row and piece. With the AiM dialect a bias
 * must empty the accumulator first. */
static void write_gemv(pimhw_program *program, const pimhw_config *config)
{
    uint32_t n_banks = pimhw_config_banks(config), n_lanes = pimhw_config_lanes(config);
    uint64_t n_columns = (INPUTS + n_lanes - 1) / n_lanes;
    uint64_t in_row = divisor(n_columns, pimhw_config_columns(config));
    bool whole = n_columns <= pimhw_config_in_region(config);
    uint64_t piece = whole ? in_row : divisor(in_row, pimhw_config_in_region(config));
    bool cut = piece < n_columns;
    const uint64_t channel = 1;
    pimhw_operand row = {.step = {n_columns / in_row, cut}}, column = {.step = {0, 0, piece}};
    pimhw_operand tile = {.step = {0, whole ? piece : 0}};

    pimhw_program_init(program);
    if (whole) add_input(program, n_columns);
    pimhw_program_loop(program, pimhw_program_const(program, (OUTPUTS + n_banks - 1) / n_banks),
                       channel);
    if (config->out_clear == PIMHW_CLEAR_BIAS)
        pimhw_program_add(program, &(pimhw_instruction){.kind = PIMHW_WR_BIAS, .mask = channel});
    if (cut) {
        pimhw_program_loop(program, pimhw_program_const(program, n_columns / in_row), channel);
        pimhw_program_loop(program, pimhw_program_const(program, in_row / piece), channel);
    }
    if (!whole) add_input(program, piece);
    pimhw_item mac = {.kind = PIMHW_MAC_ABK,
                      .mask = channel,
                      .op_size = pimhw_program_const(program, piece),
                      .row = pimhw_program_operand(program, &row)};
    if (cut) mac.column = pimhw_program_operand(program, &column);
    if (cut) mac.tile = pimhw_program_operand(program, &tile);
    pimhw_program_item(program, &mac);
    for (int i = 0; cut && i < 2; i++)
        pimhw_program_end(program);
    pimhw_program_add(program, &(pimhw_instruction){.kind = PIMHW_RD_MAC, .mask = channel});
    pimhw_program_end(program);
}

static void time_gemv(pimhw_readings *readings, const pimhw_config *config)
{
    pimhw_device *device = NULL;
    pimhw_program program;
    pimhw_cause why = {{0}};
    pimhw_request request = {.useful_macs = OUTPUTS * INPUTS};
    write_gemv(&program, config);
    if (pimhw_program_check(&program, config, &why) != PIMHW_OK) ex_die("program: %s", why.text);
    if (pimhw_device_create(&device, config, &why) != PIMHW_OK) ex_die("device: %s", why.text);
    if (pimhw_device_time(device, readings, &program, &request, NULL, &why) != PIMHW_OK)
        ex_die("program: %s", why.text);
    pimhw_device_destroy(device);
}

int main(int argc, char **argv)
{
    bool json = false;
    const char *preset = "aimx";
    ex_texts sets = {{0}, 0};
    const ex_option options[] = {
        {.name = "--device", .value = "PRESET", .text = &preset, .help = "default aimx"},
        {.name = "--set", .value = "FIELD=N", .texts = &sets, .help = "e.g. tRP=20; repeatable"},
        {.name = "--json", .flag = &json, .help = "readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/device [options]\n"
               "Times a 128 x 1024 matrix times a vector on one channel of a PIM device.",
               options, EX_COUNT(options), NULL, 0);
    pimhw_config config;
    pimhw_readings readings;
    ex_device(&config, preset, 1, &sets);
    if (config.flash_page_bytes != 0) ex_die("--device: %s is flash, without banks", preset);
    time_gemv(&readings, &config);
    if (json) {
        printf("{\"schema\": %d, \"device\": \"%s\", \"readings\": ", (int)EX_SCHEMA, preset);
        ex_json_device(stdout, &readings, config.tCK_ps);
        printf("}\n");
    } else {
        printf("%d x %d matrix times a vector on one channel of %s\n", (int)OUTPUTS, (int)INPUTS,
               preset);
        ex_print_device(&readings, config.tCK_ps);
        printf("  energy %.3f uJ, %.1f mW:\n", readings.total_pJ * 1e-6, readings.average_mW);
        ex_print_energy(readings.energy_pJ, readings.total_pJ);
    }
    return ex_done();
}
