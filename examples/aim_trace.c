/* aim_trace.c - times an AiM text trace, as the public simulator would. */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#define EX_NAME "aim_trace"
#include "common.h"
#include "aim_text.h"

/* Writes one command of the listing. */
static void list_command(void *user, const pimhw_event *event)
{
    fprintf((FILE *)user,
            "%" PRIu64 " %" PRIu32 " %s %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32
            " %s\n",
            event->issue_ck, event->channel, pimhw_command_str(event->command), event->bank,
            event->row, event->column, event->tile, event->out, pimhw_spent_str(event->reason));
}

/* Sends one line, which ends in a 0, to the device; whether there was something on it. */
static bool submit_line(pimhw_device *device, const char *path, uint64_t line, const char *text)
{
    pimhw_instruction instruction;
    pimhw_cause why = {{0}};
    bool found = false;
    if (ex_aim_parse(text, &instruction, &found, &why) != PIMHW_OK)
        ex_die("%s: line %" PRIu64 ": %s", path, line, why.text);
    if (found && pimhw_device_submit(device, &instruction, &why) != PIMHW_OK)
        ex_die("%s: line %" PRIu64 ": %s", path, line, why.text);
    return found;
}

/* Times the whole trace. A line ends in a 0 while it is read. */
static void time_trace(pimhw_device *device, pimhw_readings *readings, const char *path,
                       char *trace, size_t n_bytes, const pimhw_sink *sink)
{
    pimhw_cause why = {{0}};
    uint64_t line = 0;
    bool any = false;
    if (pimhw_device_begin(device, sink) != PIMHW_OK) ex_die("%s: cannot begin", path);
    for (size_t at = 0; at < n_bytes;) {
        char *newline = (char *)memchr(trace + at, '\n', n_bytes - at);
        size_t length = newline != NULL ? (size_t)(newline - (trace + at)) : n_bytes - at;
        line++;
        if (memchr(trace + at, 0, length) != NULL)
            ex_die("%s: line %" PRIu64 ": a zero byte in the text", path, line);
        /* Only the text's last line is without a newline, and a 0 follows it already. */
        trace[at + length] = 0;
        any = submit_line(device, path, line, trace + at) || any;
        if (newline != NULL) *newline = '\n'; /* for a second pass */
        at += length + 1;
    }
    if (!any) ex_die("%s: no instruction", path);
    if (pimhw_device_finish(device, readings, &why) != PIMHW_OK)
        ex_die("%s: after line %" PRIu64 ": %s", path, line, why.text);
}

static void print_totals(const pimhw_readings *readings)
{
    printf("cycles %" PRIu64 "\n", readings->cycles);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        if (readings->commands[i] != 0)
            printf("%s %" PRIu64 "\n", pimhw_command_str((pimhw_command)i), readings->commands[i]);
}

int main(int argc, char **argv)
{
    bool clocks = false, json = false;
    const char *preset = NULL, *path = NULL;
    uint32_t n_channels = 0;
    ex_texts sets = {{0}, 0};
    const ex_option options[] = {
        {.name = "--clocks",
         .flag = &clocks,
         .help = "first every command: clock channel command bank row column tile out reason"},
        {.name = "--device",
         .value = "PRESET",
         .text = &preset,
         .help = "default: as the trace says, else aim-gddr6"},
        {.name = "--channels",
         .value = "N",
         .number = &n_channels,
         .min = 1,
         .help = "default: likewise, else as the preset has"},
        {.name = "--set",
         .value = "FIELD=N",
         .texts = &sets,
         .help = "a field of the device, such as controller=3; repeatable"},
        {.name = "--json", .flag = &json, .help = "readings as JSON"}};
    ex_options(argc, argv,
               "usage: build/aim_trace [options] FILE\n"
               "Prints the clocks an AiM text trace takes and its commands by type; - reads\n"
               "standard input.",
               options, EX_COUNT(options), &path, 1);
    if (clocks && json) ex_die("--clocks is a listing; --json has no form for it");
    size_t n_bytes = 0;
    char *trace = (char *)ex_read_file(path, &n_bytes);
    pimhw_config config;
    pimhw_device *device = NULL;
    pimhw_readings readings;
    pimhw_cause why = {{0}};
    ex_aim_device(&config, path, trace, preset, "aim-gddr6", n_channels, &sets);
    if (pimhw_device_create(&device, &config, &why) != PIMHW_OK) ex_die("device: %s", why.text);
    time_trace(device, &readings, path, trace, n_bytes, NULL);
    /* The listing only once the whole trace is known to be good. */
    const pimhw_sink sink = {list_command, stdout, NULL};
    if (clocks) time_trace(device, &readings, path, trace, n_bytes, &sink);
    if (json) {
        printf("{\"schema\": %d, \"device\": \"%s\", \"readings\": ", (int)EX_SCHEMA,
               config.preset);
        ex_json_device(stdout, &readings, config.tCK_ps);
        printf("}\n");
    } else {
        print_totals(&readings);
        ex_aim_print_untimed(trace, n_bytes);
    }
    pimhw_device_destroy(device);
    free(trace);
    return ex_done();
}
