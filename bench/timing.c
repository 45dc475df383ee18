/* How fast is the timing itself? Channel commands a host second, for streams sent instruction by
 * instruction (GEMV in order A and C on the simulator's device) and for attention programs. */
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"

#include <stdio.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "timing: %s failed\n", what);
    exit(1);
}

static void print(const char *name, uint32_t channels, const pimhw_readings *r, double seconds)
{
    uint64_t n = 0;
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        n += r->commands[i];
    printf("%s,%u,%llu,%llu,%llu,%.3f,%.1f\n", name, channels, (unsigned long long)r->cycles,
           (unsigned long long)r->n_instructions, (unsigned long long)n, seconds * 1e3,
           (double)n / seconds * 1e-6);
}

static void send(pimhw_device *d, pimhw_kind kind, uint64_t mask, uint64_t op_size, uint32_t row)
{
    pimhw_instruction in;
    memset(&in, 0, sizeof in);
    in.kind = kind;
    in.mask = mask;
    in.op_size = op_size;
    in.row = row;
    must(pimhw_device_submit(d, &in, NULL) == PIMHW_OK, "submit");
}

/* 4096 x 4096 on so many channels; order C rewrites the buffer for every output. */
static void gemv(const char *name, uint32_t channels, bool order_c)
{
    pimhw_config c;
    pimhw_device *d;
    pimhw_readings r;
    uint64_t mask = channels == 32 ? 0xffffffffu : (1u << channels) - 1;
    must(pimhw_config_init(&c, "aim-gddr6", NULL) == PIMHW_OK, "preset");
    must(pimhw_device_create(&d, &c, NULL) == PIMHW_OK, "create");
    double start = now_s();
    must(pimhw_device_begin(d, NULL) == PIMHW_OK, "begin");
    for (uint32_t i = 0; i < 4 * 256 / channels; i++) {
        uint32_t outs = 256 / channels;
        uint32_t output = order_c ? i / 4 : i % outs, chunk = order_c ? i % 4 : i / outs;
        if (order_c ? chunk == 0 : true) send(d, PIMHW_WR_BIAS, mask, 1, 0);
        if (order_c || output == 0) send(d, PIMHW_WR_GB, mask, 64, 0);
        send(d, PIMHW_MAC_ABK, mask, 64, output * 4 + chunk);
        if (order_c ? chunk == 3 : true) send(d, PIMHW_RD_MAC, mask, 1, 0);
    }
    must(pimhw_device_finish(d, &r, NULL) == PIMHW_OK, "finish");
    print(name, channels, &r, now_s() - start);
    pimhw_device_destroy(d);
}

/* One Llama-3-8B layer. */
static void attention(const char *preset, uint32_t partition, uint64_t tokens)
{
    pimattn_config c;
    pimattn_readings r;
    pimattn_span span = {tokens, 1};
    char name[64];
    memset(&c, 0, sizeof c);
    c.shape.n_layers = 32;
    c.shape.n_heads = 32;
    c.shape.n_kv_heads = 8;
    c.shape.head_dim = 128;
    c.partition = partition;
    must(pimhw_config_init(&c.device, preset, NULL) == PIMHW_OK, "preset");
    double start = now_s();
    must(pimattn_estimate(&r, &c, &span, 1, NULL) == PIMATTN_OK, "estimate");
    double seconds = now_s() - start;
    snprintf(name, sizeof name, "attention_%s_%s_T%u", preset, partition ? "hfp" : "tcp",
             (unsigned)tokens);
    print(name, c.device.n_channels, &r.device, seconds);
}

int main(void)
{
    printf("stream,channels,cycles,instructions,channel_commands,host_ms,commands_per_us\n");
    gemv("gemv_4096x4096_A", 1, false);
    gemv("gemv_4096x4096_A", 32, false);
    gemv("gemv_4096x4096_C", 1, true);
    gemv("gemv_4096x4096_C", 32, true);
    for (uint64_t tokens = 16; tokens <= 65536; tokens *= 16) {
        attention("aimx", PIMATTN_TCP, tokens);
        attention("aimx", PIMATTN_HFP, tokens);
        attention("aim-gddr6", PIMATTN_TCP, tokens);
    }
    return 0;
}
