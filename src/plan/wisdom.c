/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom in memory, and as a text file:
 *
 *     ithaca wisdom 2, library 0.2.0
 *     machine INSTRUCTION SETS; MODEL
 *     SUBJECT: KERNEL RATE {KERNEL RATE}
 *     ...
 *     end
 *
 * A file is loaded only if all of it is well formed. Subjects and kernels need not be known to this library: entries of
 * other operations, and kernels of plugins that are not loaded, are kept and written again. */
#include "wisdom.h"

#include "../base/cpu.h"
#include "../base/open_file.h"
#include "../base/replace_file.h"
#include "../base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define SEPARATORS " "

ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out)
{
    *out = ith_context_lock_wisdom(context, sizeof **out);
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

void ith_wisdom_close(ith_context *context)
{
    ith_context_unlock_wisdom(context);
}

/* Entry i of the list, where entry 0 is the oldest. The list is a ring buffer, in which new entries replace the
 * oldest. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *w, int64_t i)
{
    int64_t oldest = ith_max64(w->count - ITH_WISDOM_ENTRIES, 0);
    return oldest + i < w->count ? &w->entries[(oldest + i) % ITH_WISDOM_ENTRIES] : NULL;
}

const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *w, const char *subject)
{
    const ith_wisdom_entry *entry;
    for (int64_t i = 0; (entry = ith_wisdom_at(w, i)); i++)
        if (!strcmp(entry->subject, subject))
            return entry;
    return NULL;
}

void ith_wisdom_put(ith_wisdom *w, const ith_wisdom_entry *entry)
{
    const ith_wisdom_entry *known = ith_wisdom_find(w, entry->subject);
    int64_t slot = known ? known - w->entries : w->count++ % ITH_WISDOM_ENTRIES;
    w->entries[slot] = *entry;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

/* The first two lines of a wisdom file. */
typedef struct wisdom_header {
    char version[64], machine[512];
} wisdom_header;

/* The header that this library writes to wisdom files on this machine. Rates are valid only for the machine and the
 * library version that were measured. */
static wisdom_header header_of(const ith_context *context)
{
    wisdom_header header;
    char sets[128], model[256];
    snprintf(header.version, sizeof header.version, "ithaca wisdom 2, library %s", ith_version());
    snprintf(header.machine, sizeof header.machine, "machine %s; %s",
             ith_cpu_describe(ith_context_cpu(context), sets, sizeof sets), ith_cpu_model(model, sizeof model));
    return header;
}

/* The contents of a file that is being written. */
typedef struct wisdom_copy {
    wisdom_header header;
    ith_wisdom wisdom;
} wisdom_copy;

static ith_status write_wisdom(FILE *file, void *user)
{
    const wisdom_copy *copy = user;
    const ith_wisdom_entry *entry;
    fprintf(file, "%s\n%s\n", copy->header.version, copy->header.machine);
    for (int64_t n = 0; (entry = ith_wisdom_at(&copy->wisdom, n)); n++) {
        fprintf(file, "%s:", entry->subject);
        for (int i = 0; i < entry->count; i++)
            fprintf(file, " %s %" PRId32, entry->kernels[i].kernel, entry->kernels[i].rate);
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

/* Copies the wisdom (measured rates of kernels) while it is locked, and writes the copy after unlocking, so that a slow
 * disk delays no other context. */
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

/* A wisdom file that is being read. */
typedef struct reader {
    ith_context *context;
    const char *path;
    FILE *file;
    int line;              /* number of the current line */
    char text[LINE_BYTES]; /* the current line, without its newline */
} reader;

/* Fails with ITH_ERR_FORMAT. The error sentence consists of the file, the line, `what`, and at most 100 characters of
 * `found`. */
static ith_status wrong(const reader *r, const char *what, const char *found)
{
    return ith_fail(r->context, ITH_ERR_FORMAT, "%s, line %d: %s%.100s", r->path, r->line, what, found);
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

/* Reads the next line. Fails if it has no newline or is longer than the buffer. */
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

/* Reads the first two lines, which must be the lines that this library would write on this machine. */
static ith_status read_header(reader *r)
{
    wisdom_header header = header_of(r->context);
    ith_status status = next_line(r);
    if (status)
        return status;
    if (strncmp(r->text, "ithaca wisdom ", 14))
        return wrong(r, "this is not wisdom", "");
    if (strcmp(r->text, header.version))
        return wrong(r, "this wisdom is of another format or version: measure again, to get one that begins with ",
                     header.version);
    status = next_line(r);
    if (!status && strcmp(r->text, header.machine))
        status = wrong(r, "this wisdom is of another machine; here it would say ", header.machine);
    return status;
}

/* Reads a whole number from 1 to most; 0 if the word is anything else. */
static int64_t read_number(const char *word, int64_t most)
{
    char *end = NULL;
    if (!word || word[0] < '1' || word[0] > '9')
        return 0;
    errno = 0;
    long long value = strtoll(word, &end, 10);
    return *end || errno || value > most ? 0 : value;
}

/* Reads a line of the form SUBJECT: KERNEL RATE {KERNEL RATE}. */
static ith_status read_entry(reader *r, ith_wisdom_entry *entry)
{
    *entry = (ith_wisdom_entry){.count = 0};
    for (const char *c = r->text; *c; c++)
        if (*c < ' ' || *c > '~')
            return wrong(r, "wisdom is plain ASCII text", "");
    char *rest = strchr(r->text, ':'), *word;
    if (!rest || rest == r->text)
        return wrong(r, "a line must be SUBJECT: KERNEL RATE ..., or end, and not ", r->text);
    *rest++ = '\0';
    if (strlen(r->text) >= sizeof entry->subject)
        return wrong(r, "a subject must be shorter than 64 letters, unlike ", r->text);
    strcpy(entry->subject, r->text);
    for (char *at = rest; (word = strtok_r(at, SEPARATORS, &rest)); at = NULL) {
        if (entry->count == ITH_WISDOM_KERNELS)
            return wrong(r, "there are more kernels than an entry can hold", "");
        ith_wisdom_rate *kernel = &entry->kernels[entry->count++];
        if (strlen(word) >= sizeof kernel->kernel)
            return wrong(r, "a kernel's name must be shorter than 48 letters, unlike ", word);
        strcpy(kernel->kernel, word);
        word = strtok_r(NULL, SEPARATORS, &rest);
        kernel->rate = (int32_t)read_number(word, ITH_WISDOM_MOST_RATE);
        if (!kernel->rate)
            return wrong(r, "a rate must be from 1 to 1000000000, not ", word ? word : "missing");
    }
    return entry->count ? ITH_OK : wrong(r, "no kernel follows the subject ", entry->subject);
}

/* Reads a whole file, up to the line "end", which must be the last. */
static ith_status read_wisdom(reader *r, ith_wisdom *out)
{
    ith_status status = read_header(r);
    while (!status && !(status = next_line(r))) {
        ith_wisdom_entry entry;
        if (!strcmp(r->text, "end"))
            return fgetc(r->file) == EOF ? ITH_OK : wrong(r, "the file goes on after its end", "");
        if (out->count == ITH_WISDOM_ENTRIES)
            return wrong(r, "there are more lines than wisdom can hold", "");
        status = read_entry(r, &entry);
        if (!status)
            ith_wisdom_put(out, &entry);
    }
    return status;
}

/* Reads the whole file before it locks the wisdom, so that a malformed file changes nothing. */
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
