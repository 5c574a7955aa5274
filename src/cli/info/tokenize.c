/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca tokenize: prints the ids that a tokenizer gives, a line for each text. */
#include "../cli.h"
#include "../file/input_file.h"
#include "../shared_option/model_options.h"

#include <ithaca/wan.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of the command's options and arguments. */
typedef struct tokenize_settings {
    ith_model_files files;
    char **texts; /* the arguments TEXT; the strings belong to argv */
    int text_count;
} tokenize_settings;

static const char doc[] =
    "Print the ids that a model's tokenizer gives for each TEXT, or for each line of standard input."
    "\v"
    "The tokenizer is a model's, or --tokenizer alone. A line of ids for a line of text, cleaned as prompts are and "
    "ended by </s>, cut at 512 ids.";

/* Appends an argument TEXT of the command line to settings->texts. */
static int take_text(void *user, char *text)
{
    tokenize_settings *settings = user;
    char **texts = realloc(settings->texts, ((size_t)settings->text_count + 1) * sizeof *texts);
    if (!texts)
        return ENOMEM;
    settings->texts = texts;
    texts[settings->text_count++] = text;
    return 0;
}

/* A tokenizer, in a model or alone. */
typedef struct open_tokenizer {
    ith_pipeline *pipeline;   /* the model; NULL: the tokenizer is alone */
    ith_tokenizer *tokenizer; /* NULL: it is the model's */
} open_tokenizer;

/* Whether the tokenizer is named, and nothing else of a model. */
static bool is_alone(const ith_model_files *files)
{
    return files->tokenizer && !ith_model_is_named(files) && !files->vae && !files->text_encoder &&
           !files->image_encoder && !files->variant;
}

static ith_status take_ids(const open_tokenizer *t, const char *text, int32_t *ids, int64_t *count)
{
    return t->pipeline ? ith_pipeline_tokenize(t->pipeline, text, ids, count)
                       : ith_tokenizer_ids(t->tokenizer, text, ids, count);
}

/* Opens the tokenizer, or the model with its tokenizer, which the library reads when it is first used. */
static int open_files(ith_context *context, const ith_model_files *files, open_tokenizer *t)
{
    int32_t ids[512];
    int64_t count = 0;
    ith_status status = is_alone(files) ? ith_tokenizer_open(context, files->tokenizer, &t->tokenizer)
                                        : ith_pipeline_open_files(context, files, &t->pipeline);
    if (!status)
        status = take_ids(t, "", ids, &count);
    return status ? ith_cli_error("%s", ith_context_error(context)) : ITH_EXIT_DONE;
}

/* Prints the token ids of one text on a line. line: the number of the text, for error messages. */
static int print_ids(ith_context *context, const open_tokenizer *t, const char *text, int64_t line)
{
    int32_t ids[512];
    int64_t count = 0;
    if (take_ids(t, text, ids, &count))
        return ith_cli_error("text %lld: %s", (long long)line, ith_context_error(context));
    for (int64_t i = 0; i < count; i++)
        printf("%s%d", i ? " " : "", (int)ids[i]);
    putchar('\n');
    return ITH_EXIT_DONE;
}

/* Prints the ids of each line of standard input, until there is none or standard output takes no more (main.c says
 * why). */
static int print_lines(ith_context *context, const open_tokenizer *t)
{
    char *line = malloc(ITH_INPUT_LINE_BYTES + 1);
    const char *fault;
    int code = line ? ITH_EXIT_DONE : ith_cli_error("there is no memory for a line");
    for (int64_t number = 1; !code && !ferror(stdout) && ith_input_line(stdin, line, &fault); number++)
        code = fault ? ith_cli_error("text %lld: %s", (long long)number, fault) : print_ids(context, t, line, number);
    free(line);
    return code;
}

/* Opens the tokenizer, and prints the ids of each TEXT or, without one, of each line of standard input. */
static int run(const tokenize_settings *settings)
{
    ith_context *context = NULL;
    open_tokenizer t = {0};
    int code = ith_cli_context(ITH_TALK_NORMAL, &context);
    if (code)
        return code;
    code = open_files(context, &settings->files, &t);
    if (!code && !settings->text_count)
        code = print_lines(context, &t);
    for (int i = 0; !code && i < settings->text_count; i++)
        code = print_ids(context, &t, settings->texts[i], i + 1);
    ith_tokenizer_close(&t.tokenizer);
    ith_pipeline_close(&t.pipeline);
    ith_context_destroy(&context);
    return code;
}

/* Checks that a tokenizer is named. Returns an exit status. */
static int check_files(const ith_model_files *files, const char *command)
{
    if (is_alone(files) || ith_model_is_named(files))
        return ITH_EXIT_DONE;
    return ith_cli_usage(command, ITH_MODEL_NEEDED ", or --tokenizer alone");
}

int ith_cli_tokenize(int argc, char **argv)
{
    static ith_option table[ITH_OPTIONS_MAX];
    tokenize_settings settings = {.files = ITH_MODEL_FILES_INIT};
    ith_options options = {.table = table,
                           .count = ith_model_add_options(table, 0, offsetof(tokenize_settings, files)),
                           .settings = &settings,
                           .command = argv[0],
                           .take_argument = take_text};
    ith_options_parse(&options, argc, argv, doc, "[TEXT...]");
    int code = ith_options_check(&options);
    if (!code)
        code = check_files(&settings.files, argv[0]);
    if (!code)
        code = run(&settings);
    ith_options_free(&options);
    free(settings.texts);
    return code;
}
