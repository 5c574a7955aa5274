/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom as a text file:
 *
 *     ithaca wisdom 3, library 0.2.0
 *     machine INSTRUCTION SETS; MODEL
 *     SUBJECT: NAME NUMBER {NAME NUMBER}
 *     ...
 *     checksum OF ALL LINES BEFORE
 *
 * A file is loaded only if all of it is well formed and the checksum is right. Subjects and names need not be known to
 * this library: entries of other operations, and kernels of modules that are not loaded, are kept and written again.
 *
 * To save, a process locks a file beside it, reads the entries that the file has now, adds its own measurements, and
 * replaces the file. So processes that save at the same time lose nothing. */
#include "../base/cpu.h"
#include "../base/file_lock.h"
#include "../base/hash.h"
#include "../base/open_file.h"
#include "../base/replace_file.h"
#include "tile_wisdom.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2560
#define CHECKSUM "checksum "
#define CHECKSUM_BYTES 32
#define SEPARATORS " "

_Static_assert(ITH_WISDOM_SUBJECT_BYTES + ITH_WISDOM_FIGURES * (ITH_ATTN_NAME_BYTES + 12) < LINE_BYTES,
               "a line has no room for the longest entry");
_Static_assert(ITH_ATTN_NAME_BYTES == 48 && ITH_WISDOM_SUBJECT_BYTES == 256 && ITH_WISDOM_MOST == 1000000000,
               "the sentences of read_figures and read_entry name other limits");

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
    snprintf(header.version, sizeof header.version, "ithaca wisdom 3, library %s", ith_version());
    snprintf(header.machine, sizeof header.machine, "machine %s; %s",
             ith_cpu_describe(ith_context_cpu(context), sets, sizeof sets), ith_cpu_model(model, sizeof model));
    return header;
}

/* Continues the hash of the lines of a file. */
static uint64_t hash_line(uint64_t before, const char *line)
{
    return ith_hash(before, line, (int64_t)strlen(line));
}

static void write_checksum(uint64_t hash, char *text)
{
    snprintf(text, CHECKSUM_BYTES, CHECKSUM "%016" PRIx64, hash);
}

static ith_status check_arguments(ith_context *context, const char *path)
{
    ith_status status = ith_need(NULL, context, "context");
    return status ? status : ith_need(context, path, "path");
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

/* A wisdom file that is being read. */
typedef struct reader {
    ith_context *context;
    const char *path;
    FILE *file;
    int line;              /* number of the current line */
    char text[LINE_BYTES]; /* the current line, without its newline */
    uint64_t hash;         /* of all lines before the current one */
    bool foreign;          /* the file was written for another machine or by another version */
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
    if (r->line++)
        r->hash = hash_line(r->hash, r->text);
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
    r->foreign = strcmp(r->text, header.version);
    if (r->foreign)
        return wrong(r, "this wisdom is of another format or version: measure again, to get one that begins with ",
                     header.version);
    status = next_line(r);
    r->foreign = !status && strcmp(r->text, header.machine);
    return r->foreign ? wrong(r, "this wisdom is of another machine; here it would say ", header.machine) : status;
}

/* Reads a whole number from 1 to most; 0 if the word is anything else. */
static int64_t read_number(const char *word, int64_t most)
{
    char *end = NULL;
    if (!word || word[0] < '1' || word[0] > '9')
        return 0;
    long long value = strtoll(word, &end, 10); /* LLONG_MAX if it is larger */
    return *end || value > most ? 0 : value;
}

/* Reads the pairs of a name and a number behind the subject. */
static ith_status read_figures(reader *r, char *rest, ith_wisdom_entry *entry)
{
    char *word, *last = NULL;
    for (char *at = rest; (word = strtok_r(at, SEPARATORS, &last)); at = NULL) {
        if (entry->count == ITH_WISDOM_FIGURES)
            return wrong(r, "there are more numbers than an entry can hold", "");
        ith_wisdom_figure *figure = &entry->figures[entry->count++];
        if (strlen(word) >= sizeof figure->name)
            return wrong(r, "a name must be shorter than 48 letters, unlike ", word);
        strcpy(figure->name, word);
        word = strtok_r(NULL, SEPARATORS, &last);
        figure->value = (int32_t)read_number(word, ITH_WISDOM_MOST);
        if (!figure->value)
            return wrong(r, "a number must be from 1 to 1000000000, not ", word ? word : "missing");
    }
    return entry->count ? ITH_OK : wrong(r, "no number follows the subject ", entry->subject);
}

/* Reads a line of the form SUBJECT: NAME NUMBER {NAME NUMBER}. */
static ith_status read_entry(reader *r, ith_wisdom_entry *entry)
{
    char line[LINE_BYTES], why[256];
    *entry = (ith_wisdom_entry){.count = 0};
    for (const char *c = r->text; *c; c++)
        if (*c < ' ' || *c > '~')
            return wrong(r, "wisdom is plain ASCII text", "");
    strcpy(line, r->text); /* the hash needs the line as it is */
    char *rest = strchr(line, ':');
    if (!rest || rest == line)
        return wrong(r, "a line must be SUBJECT: NAME NUMBER ..., or the checksum, and not ", line);
    *rest++ = '\0';
    if (strlen(line) >= sizeof entry->subject)
        return wrong(r, "a subject must be shorter than 256 letters, unlike ", line);
    strcpy(entry->subject, line);
    ith_status status = read_figures(r, rest, entry);
    if (!status && !ith_tile_wisdom_is_legal(entry, why, sizeof why))
        status = wrong(r, why, "");
    return status;
}

/* Checks the last line, which begins with "checksum ". */
static ith_status read_end(reader *r)
{
    char expected[CHECKSUM_BYTES];
    write_checksum(r->hash, expected);
    if (strcmp(r->text, expected))
        return wrong(r, "the file was changed or damaged: its contents have the ", expected);
    return fgetc(r->file) == EOF ? ITH_OK : wrong(r, "the file goes on after its end", "");
}

/* Reads a whole file, up to its checksum, which must be the last line. */
static ith_status read_lines(reader *r, ith_wisdom *out)
{
    ith_status status = read_header(r);
    while (!status && !(status = next_line(r))) {
        ith_wisdom_entry entry;
        if (!strncmp(r->text, CHECKSUM, strlen(CHECKSUM)))
            return read_end(r);
        if (out->count == ITH_WISDOM_ENTRIES)
            return wrong(r, "there are more lines than wisdom can hold", "");
        status = read_entry(r, &entry);
        if (!status)
            ith_wisdom_put(out, &entry);
    }
    return status;
}

/* Reads a file. *foreign: whether it was written for another machine or by another version, and is refused for that. */
static ith_status read_wisdom(ith_context *context, const char *path, ith_wisdom *out, bool *foreign)
{
    reader r = {.context = context, .path = path};
    ith_status status = open_wisdom(&r);
    if (!status)
        status = read_lines(&r, out);
    if (r.file)
        fclose(r.file);
    *foreign = r.foreign;
    return status;
}

/* Reads the whole file before it locks the wisdom, so that a malformed file changes nothing. */
ith_status ith_wisdom_load(ith_context *context, const char *path)
{
    ith_wisdom *wisdom = NULL;
    const ith_wisdom_entry *entry;
    bool foreign;
    ith_status status = check_arguments(context, path);
    if (status)
        return status;
    ith_wisdom *found = ith_alloc_zero(context, 1, sizeof *found, "the wisdom of a file");
    if (!found)
        return ITH_ERR_MEMORY;
    status = read_wisdom(context, path, found, &foreign);
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

/* ---- Merging --------------------------------------------------------------------------------------------------- */

/* The new contents of a file: its header, the entries that it has now, and the entries of this context. */
typedef struct merge {
    wisdom_header header;
    ith_wisdom now, ours;
} merge;

/* Adds the entries of this context to the file's entries. If the file has an entry of the same subject, only an entry
 * that this process has measured replaces it: another process may have measured the subject since this one read the
 * file. */
static void add_ours(merge *m)
{
    const ith_wisdom_entry *entry;
    for (int64_t n = 0; (entry = ith_wisdom_at(&m->ours, n)); n++)
        if (entry->own || !ith_wisdom_find(&m->now, entry->subject))
            ith_wisdom_put(&m->now, entry);
}

static ith_status write_wisdom(FILE *file, void *user)
{
    const merge *m = user;
    const ith_wisdom_entry *entry;
    char line[LINE_BYTES];
    uint64_t hash = hash_line(hash_line(0, m->header.version), m->header.machine);
    fprintf(file, "%s\n%s\n", m->header.version, m->header.machine);
    for (int64_t n = 0; (entry = ith_wisdom_at(&m->now, n)); n++) {
        int length = snprintf(line, sizeof line, "%s:", entry->subject);
        for (int i = 0; i < entry->count; i++)
            length += snprintf(line + length, sizeof line - (size_t)length, " %s %" PRId32, entry->figures[i].name,
                               entry->figures[i].value);
        fprintf(file, "%s\n", line);
        hash = hash_line(hash, line);
    }
    write_checksum(hash, line);
    fprintf(file, "%s\n", line);
    return ITH_OK;
}

/* Reads the entries that the file has now. A file that does not exist counts as empty, and so does a device. A file of
 * another machine or version counts as empty too, because it is replaced. */
static ith_status read_now(ith_context *context, const char *path, ith_wisdom *now)
{
    struct stat info;
    bool foreign = false;
    if (stat(path, &info) || S_ISCHR(info.st_mode))
        return ITH_OK;
    ith_status status = read_wisdom(context, path, now, &foreign);
    return foreign ? ITH_OK : status;
}

/* Reads, merges and replaces the file, while no other process does. */
static ith_status merge_into(ith_context *context, const char *path, merge *m)
{
    struct stat info;
    int lock = -1;
    const bool device = !stat(path, &info) && !S_ISREG(info.st_mode);
    ith_status status = device ? ITH_OK : ith_file_lock(context, path, &lock);
    if (!status)
        status = read_now(context, path, &m->now);
    if (!status) {
        add_ours(m);
        status = ith_replace_file(context, path, write_wisdom, m);
    }
    ith_file_unlock(lock);
    return status;
}

/* Copies the wisdom while it is locked, and writes the copy after unlocking, so that a slow disk delays no other
 * context. */
ith_status ith_wisdom_save(ith_context *context, const char *path)
{
    ith_wisdom *wisdom = NULL;
    ith_status status = check_arguments(context, path);
    if (status)
        return status;
    merge *m = ith_alloc_zero(context, 1, sizeof *m, "a copy of the wisdom");
    status = m ? ith_wisdom_open(context, &wisdom) : ITH_ERR_MEMORY;
    if (!status) {
        m->ours = *wisdom;
        ith_wisdom_close(context);
        m->header = header_of(context);
        status = merge_into(context, path, m);
    }
    ith_free(context, m);
    return status;
}
