/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca tokenize: prints the ids that a model's tokenizer gives, a line for each text. */
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
    "A line of ids for a line of text, cleaned as prompts are and ended by </s>, cut at 512 ids.";

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

/* Opens the model and its tokenizer, which the library does when it is first used. */
static int open_model(ith_context *context, const ith_model_files *files, ith_pipeline **pipeline)
{
    int32_t ids[512];
    int64_t count = 0;
    ith_status status = ith_pipeline_open_files(context, files, pipeline);
    if (!status)
        status = ith_pipeline_tokenize(*pipeline, "", ids, &count);
    return status ? ith_cli_error("%s", ith_context_error(context)) : ITH_EXIT_DONE;
}

/* Prints the token ids of one text on a line. line: the number of the text, for error messages. */
static int print_ids(ith_context *context, ith_pipeline *pipeline, const char *text, int64_t line)
{
    int32_t ids[512];
    int64_t count = 0;
    if (ith_pipeline_tokenize(pipeline, text, ids, &count))
        return ith_cli_error("text %lld: %s", (long long)line, ith_context_error(context));
    for (int64_t i = 0; i < count; i++)
        printf("%s%d", i ? " " : "", (int)ids[i]);
    putchar('\n');
    return ITH_EXIT_DONE;
}

/* Prints the ids of each line of standard input, until there is none or standard output takes no more (main.c says
 * why). */
static int print_lines(ith_context *context, ith_pipeline *pipeline)
{
    char *line = malloc(ITH_INPUT_LINE_BYTES + 1);
    const char *fault;
    int code = line ? ITH_EXIT_DONE : ith_cli_error("there is no memory for a line");
    for (int64_t number = 1; !code && !ferror(stdout) && ith_input_line(stdin, line, &fault); number++)
        code = fault ? ith_cli_error("text %lld: %s", (long long)number, fault)
                     : print_ids(context, pipeline, line, number);
    free(line);
    return code;
}

/* Opens the model, and prints the ids of each TEXT or, without one, of each line of standard input. */
static int run(const tokenize_settings *settings)
{
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    int code = ith_cli_context(ITH_TALK_NORMAL, &context);
    if (code)
        return code;
    code = open_model(context, &settings->files, &pipeline);
    if (!code && !settings->text_count)
        code = print_lines(context, pipeline);
    for (int i = 0; !code && i < settings->text_count; i++)
        code = print_ids(context, pipeline, settings->texts[i], i + 1);
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
    return code;
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
        code = ith_model_check_named(&settings.files, true, argv[0]);
    if (!code)
        code = run(&settings);
    ith_options_free(&options);
    free(settings.texts);
    return code;
}
