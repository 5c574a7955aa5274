/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions of AMX for processors with AVX-512 that lack them, so that tests can run the machine code of AMX
 * kernels there. Such a processor stops at each of these instructions with the signal SIGILL; the handler of the signal
 * computes the result (Intel SDM volume 2, chapter on AMX instructions) and goes on behind the instruction. A test
 * program is linked with this file and with -Wl,--wrap=ith_cpu_detect. Where AMX exists, or AVX512-BF16 does not, it
 * ends with 77: skipped.
 *
 * Instructions that a processor would refuse end the process with a sentence: a tile that is not configured, tiles
 * whose shapes do not fit, an illegal configuration. */
#include "base/cpu.h"

#include <immintrin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, SKIPPED = 77, DENORMALS_ARE_ZERO = 0x8040 };

typedef struct tile {
    int rows, row_bytes;
    _Alignas(64) unsigned char at[ROWS][ROW_BYTES];
} tile;

/* The tile registers of a thread. */
static _Thread_local struct {
    bool configured;
    tile tiles[TILES];
} state;

uint32_t __real_ith_cpu_detect(uint32_t allowed);
uint32_t __wrap_ith_cpu_detect(uint32_t allowed);

uint32_t __wrap_ith_cpu_detect(uint32_t allowed)
{
    return __real_ith_cpu_detect(allowed) | (allowed & ITH_CPU_AMX_BF16);
}

static _Noreturn void refuse(const char *reason)
{
    static const char prefix[] = "emulated AMX: ";
    if (write(STDERR_FILENO, prefix, sizeof prefix - 1) > 0 && write(STDERR_FILENO, reason, strlen(reason)) > 0)
        (void)!write(STDERR_FILENO, "\n", 1);
    abort();
}

/* ---- Decoding -------------------------------------------------------------------------------------------------- */

/* An instruction with a VEX prefix of three bytes. */
typedef struct instruction {
    int prefix; /* 0: none, 1: 66, 2: F3, 3: F2 */
    int opcode, mod, reg, rm;
    int third;          /* the register that the VEX prefix names */
    const char *memory; /* the address of the operand in memory, NULL: there is none */
    int64_t stride;     /* the index register, scaled: bytes between two rows of a tile */
    int length;         /* bytes of the instruction */
} instruction;

static int64_t register_of(const ucontext_t *context, int number)
{
    static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[places[number]];
}

/* Reads the displacement of an operand in memory, which has `bytes` bytes. */
static int64_t displacement(const unsigned char *at, int bytes)
{
    int32_t wide = 0;
    if (bytes == 1)
        return (signed char)*at;
    memcpy(&wide, at, (size_t)bytes);
    return wide;
}

/* Reads ModRM's operand in memory. base_bit and index_bit: bit 3 of the registers' numbers. */
static void decode_memory(const ucontext_t *context, const unsigned char *code, int base_bit, int index_bit,
                          instruction *i)
{
    int base = i->rm, at = 5;
    i->stride = 0;
    if (i->rm == 4) { /* a SIB byte follows */
        const int sib = code[at++], index = (sib >> 3 & 7) | index_bit;
        base = sib & 7;
        if (index != 4)
            i->stride = register_of(context, index) * (1 << (sib >> 6));
    }
    const bool has_base = i->mod != 0 || base != 5;
    const int bytes = i->mod == 1 ? 1 : i->mod == 2 || !has_base ? 4 : 0;
    int64_t address = displacement(code + at, bytes);
    i->length = at + bytes;
    if (has_base)
        address += register_of(context, base | base_bit);
    else if (i->rm == 5)
        address += (int64_t)(intptr_t)(code + i->length);
    i->memory = (const char *)(intptr_t)address;
}

/* Whether the code begins with an instruction on tiles. */
static bool is_on_tiles(const unsigned char *code)
{
    return code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[3] == 0x49 || code[3] == 0x4b || code[3] == 0x5c);
}

static instruction decode(const ucontext_t *context, const unsigned char *code)
{
    instruction i = {.prefix = code[2] & 3, .opcode = code[3], .third = ~(code[2] >> 3) & 15, .length = 5};
    i.mod = code[4] >> 6, i.reg = code[4] >> 3 & 7, i.rm = code[4] & 7;
    if (i.mod != 3)
        decode_memory(context, code, code[1] & 0x20 ? 0 : 8, code[1] & 0x40 ? 0 : 8, &i);
    return i;
}

/* ---- Instructions ---------------------------------------------------------------------------------------------- */

static tile *configured(int number)
{
    if (!state.configured || number >= TILES || !state.tiles[number].rows)
        refuse("a tile register that is not configured");
    return &state.tiles[number];
}

static void load_config(const unsigned char *config)
{
    if (config[0] != 1 || config[1])
        refuse("a configuration of another palette, or that starts at another row");
    memset(&state, 0, sizeof state);
    for (int i = 0; i < TILES; i++) {
        const int row_bytes = config[16 + 2 * i] | config[17 + 2 * i] << 8, rows = config[48 + i];
        if (row_bytes > ROW_BYTES || rows > ROWS || !rows != !row_bytes)
            refuse("a configuration with an illegal shape");
        state.tiles[i].rows = rows, state.tiles[i].row_bytes = row_bytes;
    }
    state.configured = true;
}

static void load_tile(const instruction *i)
{
    tile *t = configured(i->reg);
    memset(t->at, 0, sizeof t->at);
    for (int row = 0; row < t->rows; row++)
        memcpy(t->at[row], i->memory + row * i->stride, (size_t)t->row_bytes);
}

static void store_tile(const instruction *i)
{
    const tile *t = configured(i->reg);
    for (int row = 0; row < t->rows; row++)
        memcpy((char *)(intptr_t)i->memory + row * i->stride, t->at[row], (size_t)t->row_bytes);
}

static float from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* TDPBF16PS: sums[m][n] += sum over k of a[m][2 k] b[k][2 n] + a[m][2 k + 1] b[k][2 n + 1] */
static void multiply(const instruction *i)
{
    tile *sums = configured(i->reg);
    const tile *a = configured(i->rm), *b = configured(i->third);
    if (a->rows != sums->rows || b->row_bytes != sums->row_bytes || a->row_bytes != 4 * b->rows || sums == a ||
        sums == b || a == b)
        refuse("a product of tiles whose shapes do not fit");
    for (int m = 0; m < sums->rows; m++) {
        float even[ROWS] = {0}, odd[ROWS] = {0}, *to = (float *)(void *)sums->at[m];
        const uint16_t *left = (const uint16_t *)(const void *)a->at[m];
        for (int k = 0; k < b->rows; k++) {
            const uint16_t *right = (const uint16_t *)(const void *)b->at[k];
            const float first = from_bf16(left[2 * k]), second = from_bf16(left[2 * k + 1]);
            for (int n = 0; n < ROWS; n++) {
                even[n] = __builtin_fmaf(first, from_bf16(right[2 * n]), even[n]);
                odd[n] = __builtin_fmaf(second, from_bf16(right[2 * n + 1]), odd[n]);
            }
        }
        for (int n = 0; n < sums->row_bytes / 4; n++)
            to[n] += even[n] + odd[n];
    }
}

static void zero(const instruction *i)
{
    tile *t = configured(i->reg);
    memset(t->at, 0, sizeof t->at);
}

static void execute(const instruction *i)
{
    enum { NONE, P66, F3, F2 };
    if (i->opcode == 0x49 && i->prefix == NONE && i->memory)
        load_config((const unsigned char *)i->memory);
    else if (i->opcode == 0x49 && i->prefix == NONE)
        memset(&state, 0, sizeof state);
    else if (i->opcode == 0x49 && i->prefix == F2 && !i->memory)
        zero(i);
    else if (i->opcode == 0x4b && (i->prefix == F2 || i->prefix == P66) && i->memory)
        load_tile(i);
    else if (i->opcode == 0x4b && i->prefix == F3 && i->memory)
        store_tile(i);
    else if (i->opcode == 0x5c && i->prefix == F3 && !i->memory)
        multiply(i);
    else
        refuse("an illegal instruction that is none of those that are emulated");
}

/* Executes all instructions on tiles that follow one another from here, because each signal takes microseconds. */
static void handle(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *interrupted = context;
    greg_t *next = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    const unsigned char *code = (const unsigned char *)(intptr_t)*next;
    (void)signal, (void)info;
    if (!is_on_tiles(code))
        refuse("an illegal instruction that is none of AMX");
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | DENORMALS_ARE_ZERO);
    do {
        const instruction i = decode(interrupted, code);
        execute(&i);
        code += i.length;
    } while (is_on_tiles(code));
    _mm_setcsr(mode);
    *next = (greg_t)(intptr_t)code;
}

/* Takes the place of the system's function. cmocka sets a handler of its own for SIGILL in each test: that is left
 * out. */
__attribute__((visibility("default"))) __sighandler_t signal(int number, __sighandler_t handler)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    if (number == SIGILL)
        return SIG_DFL;
    return sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

__attribute__((constructor)) static void begin(void)
{
    const uint32_t machine = __real_ith_cpu_detect(ITH_CPU_ALL);
    if ((machine & ITH_CPU_AMX_BF16) || !(machine & ITH_CPU_AVX512_BF16)) {
        printf("skipped: this machine has AMX, or lacks avx512_bf16\n");
        fflush(stdout);
        _exit(SKIPPED);
    }
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
}
