/* SPDX-License-Identifier: Apache-2.0 */
#include "support/probe_wisdom.h"

#include "base/context.h"
#include "base/hash.h"
#include "plan/wisdom.h"
#include "support/temporary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void probe_require(int holds)
{
    if (!holds)
        abort();
}

static ith_context *new_context(void)
{
    ith_context *context = NULL;
    probe_require(!ith_context_create(NULL, &context));
    return context;
}

/* The first two lines of the wisdom of this machine, and their length; static storage. */
static const char *header_lines(const char *path, size_t *bytes)
{
    static char text[4096];
    if (!text[0]) {
        ith_context *context = new_context();
        size_t all = 0;
        unlink(path);
        probe_require(!ith_wisdom_save(context, path));
        char *saved = temporary_read(path, &all);
        probe_require(all < sizeof text);
        memcpy(text, saved, all);
        *(strchr(strchr(text, '\n') + 1, '\n') + 1) = '\0';
        free(saved);
        ith_context_destroy(&context);
    }
    *bytes = strlen(text);
    return text;
}

/* Writes the header, the entries and the checksum of all their lines, as the reader counts them. */
static void write_file(const char *path, const uint8_t *entries, size_t bytes)
{
    size_t head = 0;
    const char *header = header_lines(path, &head);
    char *text = malloc(head + bytes + 1);
    probe_require(text != NULL);
    memcpy(text, header, head);
    memcpy(text + head, entries, bytes);
    text[head + bytes] = '\0';
    uint64_t hash = 0;
    char *end;
    for (char *line = text; (end = memchr(line, '\n', (size_t)(text + head + bytes - line))); line = end + 1)
        hash = ith_hash(hash, line, end - line);
    FILE *file = fopen(path, "wb");
    probe_require(file && fwrite(text, 1, head + bytes, file) == head + bytes);
    fprintf(file, "checksum %016" PRIx64 "\n", hash);
    probe_require(!fclose(file));
    free(text);
}

/* Plans whose kernel, tiles and strategy the entries may decide. All of them are legal without wisdom. */
static void make_plans(ith_context *context)
{
    static const int64_t head_dims[] = {7, 8, 64, 128};
    for (size_t i = 0; i < 2 * sizeof head_dims / sizeof *head_dims; i++) {
        ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        problem.batch = 1, problem.heads = problem.kv_heads = 4, problem.head_dim = head_dims[i / 2];
        problem.q_len = problem.kv_len = 40, problem.dtype = i % 2 ? ITH_BF16 : ITH_F32;
        for (int ranks = 1; ranks <= 4; ranks *= 2)
            probe_require(!ith_plan_predict(context, &problem, &options, ranks, 0, true, &info));
    }
}

/* Whether two contexts have the same entries in the same order, whoever measured them. */
static bool same_entries(ith_context *one, ith_context *two)
{
    ith_wisdom *a = NULL, *b = NULL;
    const ith_wisdom_entry *x, *y;
    bool same = !ith_wisdom_open(one, &a) && !ith_wisdom_open(two, &b);
    for (int64_t i = 0; same && (x = ith_wisdom_at(a, i)); i++) {
        y = ith_wisdom_at(b, i);
        same = y && !strcmp(x->subject, y->subject) && x->count == y->count;
        for (int k = 0; same && k < x->count; k++)
            same = !strcmp(x->figures[k].name, y->figures[k].name) && x->figures[k].value == y->figures[k].value;
    }
    ith_wisdom_close(two);
    ith_wisdom_close(one);
    return same;
}

static void use_wisdom(ith_context *context, const char *path)
{
    ith_context *again = new_context();
    make_plans(context);
    unlink(path);
    probe_require(!ith_wisdom_save(context, path) && !ith_wisdom_load(again, path));
    probe_require(same_entries(context, again));
    ith_context_destroy(&again);
}

ith_status probe_wisdom(ith_context *context, const uint8_t *entries, size_t bytes)
{
    static char path[64];
    if (!path[0])
        snprintf(path, sizeof path, "/dev/shm/ithaca-wisdom-%d", (int)getpid());
    write_file(path, entries, bytes);
    ith_status status = ith_wisdom_load(context, path);
    const char *sentence = ith_context_error(context);
    if (status)
        probe_require(strstr(sentence, path) && !strchr(sentence, '\n'));
    else
        use_wisdom(context, path);
    unlink(path);
    return status;
}

ith_status probe_wisdom_file(ith_context *context, const char *path)
{
    size_t bytes = 0;
    char *entries = temporary_read(path, &bytes);
    ith_context *fresh = NULL; /* wisdom of the files before would count, too */
    probe_require(!ith_context_create(NULL, &fresh));
    ith_status status = probe_wisdom(fresh, (const uint8_t *)entries, bytes);
    if (status)
        ith_fail(context, status, "%s", ith_context_error(fresh));
    ith_context_destroy(&fresh);
    free(entries);
    return status;
}
