/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca info: the machine, the kernels, the modules and the transports; or the machine and a model. */
#include "../cli.h"
#include "../generate/generate.h"
#include "../launch/thread_limit.h"
#include "../shared_option/device_option.h"
#include "../shared_option/model_options.h"
#include "../support/json_print.h"
#include "../support/module_name.h"
#include "info_rates.h"

#include <ithaca/wan.h>

#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The values of the command's options. */
typedef struct info_settings {
    ith_model_files files;
    const char *device;
    int64_t threads;
    bool json;
} info_settings;

static const ith_option own_rows[] = {
    {"threads", "N", "Measure rates on this many threads at once (1)", ITH_OPTION_WHOLE,
     .offset = offsetof(info_settings, threads), .least = 1, .most = ITH_CLI_THREADS_MAX},
    ITH_DEVICE_OPTION("attention", offsetof(info_settings, device)),
    {"json", NULL, "Print one JSON object", ITH_OPTION_FLAG, .offset = offsetof(info_settings, json)},
    {.help = "A model, which is described instead of the kernels; nothing is measured then:"},
};

static const char doc[] =
    "Describe this machine, its devices (GPUs), the kernels that were built, the modules that were found and the "
    "transports between ranks."
    "\v"
    "Rates are measured now, in 10^9 operations a second: the highest rate of each instruction set, and the rate of "
    "attention with each kernel for tensors of a type at head size 128, beside the peak of the instructions with which "
    "the kernel multiplies and as a share of it. bf16_amx/6 is a sixth of AMX's peak: the kernel makes a product of "
    "f32 of six products of bf16. f32_avx512+f16_avx512fp16: logits in f32, outputs in fp16. The fastest kernel "
    "differs between machines with the same instruction sets. The environment variable ITHACA_CPU, a list of the "
    "names under instruction_sets, hides all others. With --device the kernels of this device are listed and "
    "measured. Modules bring more kernels, transports and devices: files called ithaca_kernel_NAME.so, "
    "ithaca_transport_NAME.so and ithaca_device_NAME.so, in the folder that the environment variable "
    "ITHACA_PLUGIN_PATH names, otherwise in ithaca/ beside the library or beside the library itself. A module that "
    "cannot be used is listed with the reason.";

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

/* The processors, instruction sets and memory of this machine as a JSON object. */
static json_t *describe_machine(ith_context *context)
{
    char features[256];
    return json_pack("{s:I, s:s, s:I}", "processors", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "instruction_sets",
                     ith_cpu_describe(ith_context_cpu(context), features, sizeof features), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE));
}

/* The sizes and the defaults of a model as a JSON object. */
static json_t *describe_model(const ith_model_info *m)
{
    json_t *sizes = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)m->layers, "heads",
                              (json_int_t)m->heads, "head_dim", (json_int_t)m->head_dim, "ffn_dim",
                              (json_int_t)m->ffn_dim, "text_layers", (json_int_t)m->text_layers, "text_dim",
                              (json_int_t)m->text_dim, "latent_channels", (json_int_t)m->latent_channels);
    json_t *strides =
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "frame_stride", (json_int_t)m->frame_stride, "pixel_stride",
                  (json_int_t)m->pixel_stride, "size_multiple", (json_int_t)m->size_multiple, "least_images",
                  (json_int_t)m->least_images, "most_images", (json_int_t)m->most_images);
    json_t *defaults = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:[f, f], s:s}", "frames", (json_int_t)m->frames,
                                 "height", (json_int_t)m->height, "width", (json_int_t)m->width, "steps",
                                 (json_int_t)m->steps, "fps", m->fps, "shift", m->shift, "guidance", m->guidance[0],
                                 m->guidance[1], "negative", m->negative ? m->negative : "");
    json_object_set_new(defaults, "shift_source", json_string(m->shift_source));
    json_t *model = json_pack("{s:s, s:i}", "kind", m->kind, "experts", m->experts);
    /* A model of two experts without a boundary has NAN here, which JSON cannot express. */
    json_object_set_new(model, "boundary", m->boundary >= 0 ? json_real(m->boundary) : json_null());
    json_object_update_new(model, sizes);
    json_object_update_new(model, strides);
    json_object_set_new(model, "defaults", defaults);
    return model;
}

/* The weight files of a model's components as a JSON object; or the reason why they cannot be read. */
static json_t *describe_parts(ith_context *context, ith_pipeline *pipeline)
{
    json_t *parts = json_object();
    ith_model_part part = ITH_MODEL_PART_INIT;
    for (int i = 0;; i++) {
        if (ith_pipeline_part(pipeline, i, &part)) {
            json_object_set_new(parts, "fault", ith_cli_json_text(ith_context_error(context)));
            return parts;
        }
        if (!part.name)
            return parts;
        json_object_set_new(parts, part.name,
                            json_pack("{s:o, s:s, s:I, s:I}", "path", ith_cli_json_text(part.path), "types", part.types,
                                      "tensors", (json_int_t)part.tensors, "bytes", (json_int_t)part.bytes));
    }
}

/* The peak memory of a run in one process at the model's own size, as JSON; or the reason why it cannot be predicted.
 */
static json_t *describe_memory(ith_context *context, ith_pipeline *pipeline, const ith_model_info *m)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    int64_t bytes = 0;
    options.prompt = "", options.boundary = m->boundary >= 0 ? m->boundary : 0.5;
    options.frames = m->frames, options.height = m->height, options.width = m->width;
    ith_model_put_stand_ins(m, &options);
    if (ith_pipeline_predict(pipeline, &options, 1, 1, &bytes))
        return ith_cli_json_text(ith_context_error(context));
    return json_integer((json_int_t)bytes);
}

/* The kernels of matrix products as a JSON array [{"name", "usable"}]. */
static json_t *list_products(const ith_context *context)
{
    json_t *products = json_array();
    bool usable = false;
    const char *name;
    for (int i = 0; (name = ith_product_list(context, i, &usable)); i++)
        json_array_append_new(products, json_pack("{s:s, s:b}", "name", name, "usable", usable));
    return products;
}

/* The modules that were found, each with the reason if it cannot be used, as a JSON array. */
static json_t *describe_modules(void)
{
    json_t *modules = json_array();
    const char *path, *refusal;
    for (int i = 0; (path = ith_module_list(i, &refusal)); i++)
        json_array_append_new(modules, ith_cli_json_about(path, *refusal ? refusal : "used"));
    return modules;
}

/* The version of the MPI that a module links, as its library tells it (MPI_Get_library_version); "" if it links none.
 */
static const char *mpi_version(const char *path, char *text, size_t bytes)
{
    static const char name[] = "MPI_Get_library_version";
    int (*get)(char *version, int *length) = NULL;
    char version[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING is at most this in Open MPI and MPICH */
    int length = 0;
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = module ? dlsym(module, name) : NULL;
    memcpy(&get, &symbol, sizeof get);
    if (get)
        get(version, &length);
    for (char *at = version; *at; at++)
        *at = *at == '\t' ? ' ' : *at;
    snprintf(text, bytes, "%.*s", (int)strcspn(version, ",\n"), version);
    return text;
}

/* Adds a transport of a module to the list, or the reason why it cannot be used. */
static void add_transport(json_t *transports, const char *name, const char *path, const char *refusal)
{
    char about[256], version[64] = "";
    if (*refusal)
        snprintf(about, sizeof about, "cannot be used: %.200s", refusal);
    else
        snprintf(about, sizeof about, "ranks in several processes%s%s",
                 *mpi_version(path, version, sizeof version) ? ", by " : "", version);
    json_array_append_new(transports, ith_cli_json_about(name, about));
}

static bool has_name(const json_t *list, const char *name)
{
    size_t index;
    const json_t *item;
    json_array_foreach(list, index, item)
    {
        if (!strcmp(json_string_value(json_object_get(item, "name")), name))
            return true;
    }
    return false;
}

/* The transports of this machine, and the missing transports over MPI, as a JSON array [{"name", "about"}]. */
static json_t *list_transports(void)
{
    static const char *const mpi[] = {"openmpi", "mpich"};
    json_t *all = json_array();
    const char *path, *refusal;
    json_array_append_new(all, ith_cli_json_about("local", "ranks as threads of one process"));
    for (int i = 0; (path = ith_module_list(i, &refusal)); i++) {
        char name[64];
        if (ith_cli_module_name(path, "transport", name, sizeof name))
            add_transport(all, name, path, refusal);
    }
    for (size_t i = 0; i < sizeof mpi / sizeof *mpi; i++)
        if (!has_name(all, mpi[i]))
            add_transport(all, mpi[i], "", "its module was not found");
    return all;
}

/* Measures peaks and kernels. Returns them with the devices, the modules and the transports as a JSON object. */
static json_t *describe_kernels(ith_context *context, int threads)
{
    json_t *peaks = ith_info_peaks(context, threads);
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o}", "devices", ith_device_list(), "measured_threads", threads,
                     "peaks", peaks, "kernels", ith_info_kernels(context, threads), "products", list_products(context),
                     "modules", describe_modules(), "transports", list_transports());
}

/* The sizes, the defaults, the files and the memory of a model as a JSON object. */
static json_t *describe_whole_model(ith_context *context, ith_pipeline *pipeline, const ith_model_info *info)
{
    json_t *model = describe_model(info);
    json_object_set_new(model, "predicted_memory_bytes", describe_memory(context, pipeline, info));
    json_object_set_new(model, "files", describe_parts(context, pipeline));
    return model;
}

/* Puts the defaults that the model's folder carries in ithaca.yaml in place of the model's own. */
static void take_defaults(const ith_generate_settings *from, ith_model_info *m)
{
    const struct {
        int64_t from, *to;
    } wholes[] = {
        {from->frames, &m->frames}, {from->height, &m->height}, {from->width, &m->width}, {from->steps, &m->steps}};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        *wholes[i].to = wholes[i].from ? wholes[i].from : *wholes[i].to;
    for (int i = 0; i < 2; i++)
        m->guidance[i] = isnan(from->guidance[i]) ? m->guidance[i] : from->guidance[i];
    m->fps = from->fps > 0 ? from->fps : m->fps;
    m->boundary = isnan(from->boundary) ? m->boundary : from->boundary;
    m->negative = from->negative ? from->negative : m->negative;
    if (from->shift > 0)
        m->shift = from->shift, m->shift_source = "ithaca.yaml of the model folder";
}

/* ---- Text ------------------------------------------------------------------------------------------------------- */

static void print_object(json_t *object, int indent);

/* Prints a number, a text or a list of numbers at the end of a line. */
static void print_value(const json_t *value)
{
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    printf(" %s\n", text ? text : json_is_string(value) ? json_string_value(value) : "");
    free(text);
}

/* Prints one figure: in percent if its key ends in "_share", otherwise with its key as a rate. */
static void print_figure(const char *key, double value)
{
    static const char share[] = "_share";
    size_t length = strlen(key), ending = sizeof share - 1;
    if (length > ending && !strcmp(key + length - ending, share))
        printf(" (%.1f%%)", 100 * value);
    else
        printf(" %s %.1f", key, value);
}

/* Prints a line for each object of a list: its name, a note ("about", or the instructions of a kernel), and its
 * figures. */
static void print_list(json_t *list, int indent)
{
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item)
    {
        json_t *usable = json_object_get(item, "usable"), *peak = json_object_get(item, "peak"), *value;
        const char *note = json_string_value(json_object_get(item, "about")), *key;
        if (usable)
            note = json_is_true(usable) ? json_string_value(peak) : "not on this machine";
        printf("%*s%-25s %-25s", indent, "", json_string_value(json_object_get(item, "name")), note ? note : "");
        json_object_foreach(item, key, value)
        {
            if (json_is_real(value))
                print_figure(key, json_real_value(value));
        }
        putchar('\n');
    }
}

/* Prints each member of an object on a line; its lists and inner objects follow on indented lines. */
static void print_object(json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        printf("%*s%s", indent, "", key);
        bool list = json_is_array(value) && json_is_object(json_array_get(value, 0));
        if (!list && !json_is_object(value)) {
            printf("%*s", (int)(strlen(key) < 20 - (size_t)indent ? 20 - (size_t)indent - strlen(key) : 0), "");
            print_value(value);
            continue;
        }
        putchar('\n');
        if (list)
            print_list(value, indent + 2);
        else
            print_object(value, indent + 2);
    }
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* Describes the machine and either the model, with the defaults of its folder, or the kernels, as text or as JSON. */
static int print_all(ith_context *context, ith_pipeline *pipeline, const ith_generate_settings *defaults,
                     const info_settings *settings)
{
    const int threads = (int)settings->threads;
    json_t *all = json_pack("{s:s, s:o}", "version", ith_version(), "machine", describe_machine(context));
    ith_model_info model = ITH_MODEL_INFO_INIT;
    int failed = 0;
    if (!pipeline) {
        failed = json_object_update_new(all, describe_kernels(context, threads));
    } else if (ith_pipeline_info(pipeline, &model) == ITH_OK) {
        take_defaults(defaults, &model);
        failed = json_object_set_new(all, "model", describe_whole_model(context, pipeline, &model));
    }
    if (!all || failed)
        return ith_cli_error("there is no memory to describe this machine");
    if (settings->json)
        return ith_cli_json_print(all, "the description", JSON_INDENT(2));
    print_object(all, 0);
    json_decref(all);
    return ITH_EXIT_DONE;
}

/* Refuses options of the command line about measurements beside a model, with which nothing is measured. */
static int check_measured(const info_settings *settings, const ith_options *options)
{
    static const char *const names[] = {"device", "threads"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ith_model_is_named(&settings->files) && ith_option_source_of(options, names[i]) == ITH_FROM_COMMAND)
            return ith_cli_usage(options->command, "--%s is about kernels, and a model is described instead of them",
                                 names[i]);
    return ITH_EXIT_DONE;
}

int ith_cli_info(int argc, char **argv)
{
    static ith_option table[ITH_OPTIONS_MAX];
    info_settings settings = {.files = ITH_MODEL_FILES_INIT, .threads = 1};
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    options.count = ith_options_append(table, 0, own_rows, sizeof own_rows / sizeof *own_rows, 0);
    options.count = ith_model_add_options(table, options.count, offsetof(info_settings, files));
    ith_generate_settings defaults;
    ith_options default_options;
    ith_generate_open_options(&defaults, &default_options);
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    ith_options_parse(&options, argc, argv, doc, NULL);
    int code = ith_options_check(&options);
    if (!code)
        code = ith_model_check_named(&settings.files, false, argv[0]);
    if (!code)
        code = check_measured(&settings, &options);
    if (!code)
        code = ith_cli_context(ITH_TALK_NORMAL, &context);
    if (!code)
        code = ith_device_choose(context, argv[0], settings.device);
    if (!code)
        code = ith_cli_prepare_threads(1, settings.threads, 0);
    if (!code && ith_model_is_named(&settings.files) && ith_pipeline_open_files(context, &settings.files, &pipeline))
        code = ith_cli_error("%s", ith_context_error(context));
    if (!code) {
        defaults.files = settings.files;
        code = ith_generate_parse_model(&defaults, context, &default_options);
    }
    if (!code)
        code = print_all(context, pipeline, &defaults, &settings);
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
    ith_options_free(&default_options);
    ith_options_free(&options);
    return code;
}
