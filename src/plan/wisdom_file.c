/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom as text:
 *
 *     ithaca wisdom 1, library 0.2.0
 *     machine INSTRUCTION SETS; MODEL
 *     attention TYPE HEAD_DIM SOFTMAX KERNEL {KERNEL RATE}
 *     ...
 *     end
 *
 * A line "attention" says which kernel is taken, then what each that was timed did, in 10^6 operations a second. A file
 * is read with suspicion: everything about it must be right before any of it counts. */
#include "../base/open_file.h"
#include "../base/replace_file.h"
#include "wisdom.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define SEPARATORS " "

static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
static const ith_softmax softmaxes[] = {ITH_SOFTMAX_ONLINE, ITH_SOFTMAX_FIXED_M};

/* The first and second line of every file that is written and read here. */
typedef struct wisdom_header {
    char version[64], machine[512];
} wisdom_header;

/* What Linux calls the processor; "unknown" elsewhere. */
static void model_name(char *text, size_t text_bytes)
{
    char line[256];
    snprintf(text, text_bytes, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10))
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(text, text_bytes, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file)
        fclose(file);
}

static wisdom_header header_of(const ith_context *context)
{
    wisdom_header header;
    char sets[128], model[256];
    model_name(model, sizeof model);
    snprintf(header.version, sizeof header.version, "ithaca wisdom 1, library %s", ith_version());
    snprintf(header.machine, sizeof header.machine, "machine %s; %s",
             ith_cpu_describe(ith_context_cpu(context), sets, sizeof sets), model);
    return header;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

typedef struct wisdom_copy {
    wisdom_header header;
    ith_wisdom wisdom;
} wisdom_copy;

static ith_status write_wisdom(FILE *file, void *user)
{
    const wisdom_copy *copy = user;
    const ith_wisdom_entry *entry;
    const ith_attn_kernel *kernel;
    fprintf(file, "%s\n%s\n", copy->header.version, copy->header.machine);
    for (int64_t n = 0; (entry = ith_wisdom_at(&copy->wisdom, n)); n++) {
        fprintf(file, "attention %s %" PRId64 " %s %s", ith_dtype_name(entry->dtype), entry->head_dim,
                ith_softmax_name(entry->softmax), entry->kernel->name);
        for (int i = 0; i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++)
            if (entry->rates[i] > 0)
                fprintf(file, " %s %" PRId32, kernel->name, entry->rates[i]);
        fputc('\n', file);
    }
    fputs("end\n", file);
    return ITH_OK;
}

static ith_status check_arguments(ith_context *context, const char *path)
{
    ith_status status = ith_need(NULL, context, "context");
    return status ? status : ith_need(context, path, "path");
}

ith_status ith_wisdom_save(ith_context *context, const char *path)
{
    ith_wisdom *wisdom = NULL;
    ith_status status = check_arguments(context, path);
    if (!status)
        status = ith_wisdom_open(context, &wisdom);
    if (status)
        return status;
    wisdom_copy *copy = ith_alloc(context, 1, sizeof *copy, "a copy of the wisdom");
    if (copy)
        copy->wisdom = *wisdom;
    ith_wisdom_close(context);
    if (!copy)
        return ITH_ERR_MEMORY;
    copy->header = header_of(context);
    status = ith_replace_file(context, path, write_wisdom, copy);
    ith_free(context, copy);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    ith_context *context;
    const char *path;
    FILE *file;
    int line;
    char text[LINE_BYTES]; /* of the line, without its end */
} reader;

static ith_status wrong(const reader *r, const char *what, const char *word)
{
    return ith_fail(r->context, ITH_ERR_FORMAT, "%s, line %d: %s%.100s", r->path, r->line, what, word);
}

static ith_status open_wisdom(reader *r)
{
    int file;
    int64_t bytes;
    ith_status status = ith_open_file(r->context, r->path, &file, &bytes);
    if (status)
        return status;
    r->file = fdopen(file, "r");
    if (r->file)
        return ITH_OK;
    close(file);
    return ith_fail(r->context, ITH_ERR_MEMORY, "out of memory to read %s", r->path);
}

static ith_status next_line(reader *r)
{
    r->line++;
    errno = 0;
    if (!fgets(r->text, sizeof r->text, r->file)) {
        if (ferror(r->file))
            return ith_fail(r->context, ITH_ERR_IO, "cannot read %s: %s", r->path, strerror(errno));
        return wrong(r, "the file is cut off", "");
    }
    char *end = strchr(r->text, '\n');
    if (!end)
        return wrong(r, "the line is too long or cut off", "");
    *end = '\0';
    return ITH_OK;
}

static ith_status read_header(reader *r)
{
    wisdom_header header = header_of(r->context);
    ith_status status = next_line(r);
    if (status)
        return status;
    if (strncmp(r->text, "ithaca wisdom ", 14))
        return wrong(r, "this is not wisdom", "");
    if (strcmp(r->text, header.version))
        return wrong(r, "measure again: wisdom must begin with ", header.version);
    status = next_line(r);
    if (!status && strcmp(r->text, header.machine))
        status = wrong(r, "this wisdom is of another machine; here it would say ", header.machine);
    return status;
}

/* A whole number from 1 to most; 0 if the word is anything else. */
static int64_t read_number(const char *word, int64_t most)
{
    char *end = NULL;
    if (!word || word[0] < '1' || word[0] > '9')
        return 0;
    errno = 0;
    long long value = strtoll(word, &end, 10);
    return *end || errno || value > most ? 0 : value;
}

/* The place in the table of a kernel that runs here and takes the entry's problem; -1 if it is none. */
static int read_kernel(const reader *r, const ith_wisdom_entry *entry, const char *word)
{
    const ith_attn_kernel *kernel;
    for (int i = 0; word && i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++)
        if (!strcmp(kernel->name, word))
            return (kernel->cpu & ~ith_context_cpu(r->context)) == 0 &&
                           kernel->supports(entry->dtype, entry->head_dim, entry->softmax)
                       ? i
                       : -1;
    return -1;
}

/* What follows "attention". */
static ith_status read_entry(const reader *r, char **rest, ith_wisdom_entry *entry)
{
    *entry = (ith_wisdom_entry){0};
    const char *word = strtok_r(NULL, SEPARATORS, rest);
    for (size_t i = 0; word && i < sizeof types / sizeof *types; i++)
        if (!strcmp(word, ith_dtype_name(types[i])))
            entry->dtype = types[i];
    if (!entry->dtype)
        return wrong(r, "the type must be f32, bf16 or f16, not ", word ? word : "missing");
    word = strtok_r(NULL, SEPARATORS, rest);
    entry->head_dim = read_number(word, ITH_ATTN_HEAD_DIM_MAX);
    if (!entry->head_dim)
        return wrong(r, "the head size must be from 1 to 65536, not ", word ? word : "missing");
    word = strtok_r(NULL, SEPARATORS, rest);
    for (size_t i = 0; word && i < sizeof softmaxes / sizeof *softmaxes; i++)
        if (!strcmp(word, ith_softmax_name(softmaxes[i])))
            entry->softmax = softmaxes[i];
    if (!entry->softmax)
        return wrong(r, "the softmax must be online or fixed_m, not ", word ? word : "missing");
    word = strtok_r(NULL, SEPARATORS, rest);
    int place = read_kernel(r, entry, word);
    if (place < 0)
        return wrong(r, "no kernel that serves here is named ", word ? word : "nothing");
    entry->kernel = ith_attn_kernel_at(place);
    while ((word = strtok_r(NULL, SEPARATORS, rest))) {
        place = read_kernel(r, entry, word);
        if (place < 0)
            return wrong(r, "no kernel that serves here is named ", word);
        word = strtok_r(NULL, SEPARATORS, rest);
        entry->rates[place] = (int32_t)read_number(word, ITH_WISDOM_MOST_RATE);
        if (!entry->rates[place])
            return wrong(r, "a rate must be from 1 to 1000000000, not ", word ? word : "missing");
    }
    return ITH_OK;
}

/* Everything up to the line "end", with which the file ends. */
static ith_status read_wisdom(reader *r, ith_wisdom *out)
{
    ith_status status = read_header(r);
    while (!status && !(status = next_line(r))) {
        ith_wisdom_entry entry;
        char *rest = NULL;
        if (!strcmp(r->text, "end"))
            return fgetc(r->file) == EOF ? ITH_OK : wrong(r, "the file goes on after its end", "");
        const char *word = strtok_r(r->text, SEPARATORS, &rest);
        if (!word || strcmp(word, "attention"))
            return wrong(r, "a line must begin with attention, or be end, and not begin with ",
                         word ? word : "nothing");
        if (out->count == ITH_WISDOM_ENTRIES)
            return wrong(r, "there are more lines than wisdom can hold", "");
        status = read_entry(r, &rest, &entry);
        if (!status)
            ith_wisdom_put(out, &entry);
    }
    return status;
}

ith_status ith_wisdom_load(ith_context *context, const char *path)
{
    ith_wisdom *wisdom = NULL;
    const ith_wisdom_entry *entry;
    reader r = {.context = context, .path = path};
    ith_status status = check_arguments(context, path);
    if (status)
        return status;
    ith_wisdom *found = ith_alloc_zero(context, 1, sizeof *found, "the wisdom of a file");
    if (!found)
        return ITH_ERR_MEMORY;
    status = open_wisdom(&r);
    if (!status)
        status = read_wisdom(&r, found);
    if (r.file)
        fclose(r.file);
    if (!status)
        status = ith_wisdom_open(context, &wisdom);
    if (!status) {
        for (int64_t n = 0; (entry = ith_wisdom_at(found, n)); n++)
            ith_wisdom_put(wisdom, entry);
        ith_wisdom_close(context);
    }
    ith_free(context, found);
    return status;
}
