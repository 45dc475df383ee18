/* device.c - pim_hw.h alone: describe a device, write a small program, see where its clocks go.
 *
 * The program is a matrix times a vector, 128 x 1024, on one channel: the vector goes into the
 * global buffer once; each of the 16 banks holds one matrix row in one of its own rows, so every
 * round of the loop makes 16 outputs.
 */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#define EX_NAME "device"
#include "common.h"

enum { OUTPUTS = 128, INPUTS = 1024 };

/* One round per row of the banks. With the AiM dialect a bias must empty the accumulator first. */
static void write_gemv(pimhw_program *program, const pimhw_config *config)
{
    uint32_t n_banks = pimhw_config_banks(config);
    uint32_t n_lanes = pimhw_config_lanes(config);
    uint64_t n_columns = (INPUTS + n_lanes - 1) / n_lanes;
    const uint64_t channel = 1;
    pimhw_operand row = {.step = {1}}; /* row 0, and one further in every round */

    pimhw_program_init(program);
    pimhw_program_add(
        program, &(pimhw_instruction){.kind = PIMHW_WR_GB, .mask = channel, .op_size = n_columns});
    pimhw_program_loop(program, pimhw_program_const(program, (OUTPUTS + n_banks - 1) / n_banks),
                       channel);
    if (config->out_clear == PIMHW_CLEAR_BIAS)
        pimhw_program_add(program, &(pimhw_instruction){.kind = PIMHW_WR_BIAS, .mask = channel});
    pimhw_program_item(program, &(pimhw_item){.kind = PIMHW_MAC_ABK,
                                              .mask = channel,
                                              .op_size = pimhw_program_const(program, n_columns),
                                              .row = pimhw_program_operand(program, &row)});
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
    }
    return ex_done();
}
