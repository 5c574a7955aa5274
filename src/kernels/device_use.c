/* SPDX-License-Identifier: Apache-2.0 */
/* Opens devices for contexts, and gives callers their memory (ithaca/ithaca.h, device_use.h). */
#include "device_use.h"

#include "../base/clock.h"
#include "../base/sized.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A wait asks again and again whether a stream has ended: without pauses for SPIN_SECONDS, because a nap takes more
 * than 50 microseconds, and later with a nap before each question. */
#define SPIN_SECONDS 1e-3
#define NAP_NS 20000

static const char *find_fault(const ith_module_head *table)
{
    const ith_device_module *module = (const ith_device_module *)table;
    return module->open && module->kernels ? NULL : "it lacks open or its kernels";
}

ith_module_kind ith_device_modules = {
    .name = "device", .symbol = "ith_device_module_table", .abi = ITH_DEVICE_MODULE_ABI, .find_fault = find_fault};

/* The devices in use of this process, which are never closed, and the lock of the list. */
static ith_device_use *in_use;
static pthread_mutex_t in_use_lock = PTHREAD_MUTEX_INITIALIZER;

ith_status ith_device_check(ith_context *context, ith_status status, const char *said)
{
    const ith_device_use *use = ith_context_device_use(context);
    return status ? ith_fail(context, status, "%s: %s", use ? use->name : "the device", said) : ITH_OK;
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Splits "cuda:N" or "cuda" into the name of a module and the number of a device. Returns false for another form. */
static bool split_name(const char *name, char module[16], int *index)
{
    size_t length = strcspn(name, ":");
    *index = 0;
    if (length == 0 || length >= 16)
        return false;
    memcpy(module, name, length);
    module[length] = 0;
    if (name[length] == 0)
        return true;
    char *end = NULL;
    const char *digits = name + length + 1;
    long number = strtol(digits, &end, 10);
    *index = (int)number;
    return *digits >= '0' && *digits <= '9' && *end == 0 && number <= 9999;
}

static ith_status refuse_name(ith_context *context, const char *name)
{
    return ith_fail(context, ITH_ERR_ARGUMENT, "the device '%.40s' is none of cpu, cuda and cuda:N, such as cuda:0",
                    name);
}

/* Finds the module ithaca_device_NAME.so. Without a module, only "cuda" names a device. given: the name of the device.
 */
static ith_status find_module(ith_context *context, const char *name, const char *given, const ith_device_module **out)
{
    const ith_module *module = ith_module_named(&ith_device_modules, name);
    *out = module ? (const ith_device_module *)module->table : NULL;
    if (*out)
        return ITH_OK;
    if (module)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "the device %s: %s: %s", given, module->path, module->refusal);
    if (strcmp(name, "cuda") != 0)
        return refuse_name(context, given);
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "no module ithaca_device_%s.so was found, which serves the device %s: it is built where a CUDA "
                    "toolkit is installed; without it, the device cpu computes",
                    name, given);
}

/* Copies the maker's name of a device. Characters that a subject of wisdom cannot have become '_'. */
static void copy_model(const char *maker, char *model, size_t model_bytes)
{
    snprintf(model, model_bytes, "%s", maker);
    for (char *c = model; *c; c++)
        if (*c < ' ' || *c > '~' || *c == ':')
            *c = '_';
}

/* Opens the device of `use`, its stream for copies, and asks for its model. On failure nothing stays open. */
static ith_status open_parts(ith_device_use *use, int index, char *said)
{
    ith_device_facts facts = {.name = ""};
    const ith_device_module *module = use->module;
    ith_status status = module->open(index, &use->device, said);
    if (status)
        return status;
    status = module->facts(use->device, &facts, said);
    if (!status)
        status = module->create_stream(use->device, &use->copies, said);
    if (status)
        module->close(use->device);
    copy_model(facts.name, use->model, sizeof use->model);
    return status;
}

/* Opens a device that is not in use yet, and puts it at the head of the list, which is locked. */
static ith_status open_device(ith_context *context, const ith_device_module *module, const char *name, int index)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_use *use = calloc(1, sizeof *use);
    if (!use)
        return ith_fail(context, ITH_ERR_MEMORY, "out of memory for a device");
    use->module = module;
    snprintf(use->name, sizeof use->name, "%s:%d", name, index);
    ith_status status = open_parts(use, index, said);
    if (status) {
        ith_fail(context, status, "%s: %s", use->name, said);
        free(use);
        return status;
    }
    use->copying = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    use->next = in_use;
    in_use = use;
    return ITH_OK;
}

/* Sets *out to device `index` of a module, which is opened if it is not in use. */
static ith_status find_device(ith_context *context, const ith_device_module *module, const char *name, int index,
                              ith_device_use **out)
{
    char full[sizeof(*out)->name];
    ith_status status = ITH_OK;
    snprintf(full, sizeof full, "%s:%d", name, index);
    pthread_mutex_lock(&in_use_lock);
    for (*out = in_use; *out && strcmp((*out)->name, full);)
        *out = (*out)->next;
    if (!*out) {
        status = open_device(context, module, name, index);
        *out = status ? NULL : in_use;
    }
    pthread_mutex_unlock(&in_use_lock);
    return status;
}

ith_status ith_context_use_device(ith_context *context, const char *name)
{
    char module_name[16];
    int index;
    const ith_device_module *module = NULL;
    ith_device_use *use = NULL;
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = ith_need(context, name, "name");
    if (status)
        return status;
    if (!strcmp(name, "cpu")) {
        ith_context_set_device_use(context, NULL);
        return ITH_OK;
    }
    if (!split_name(name, module_name, &index))
        return refuse_name(context, name);
    status = find_module(context, module_name, name, &module);
    if (!status)
        status = find_device(context, module, module_name, index, &use);
    if (!status)
        ith_context_set_device_use(context, use);
    return status;
}

ith_status ith_device_describe(ith_context *context, ith_device_info *info)
{
    ith_device_info filled = ITH_DEVICE_INFO_INIT;
    char said[ITH_DEVICE_SENTENCE] = "";
    if (!context)
        return ith_need(NULL, context, "context");
    ith_device_use *use = ith_context_device_use(context);
    snprintf(filled.name, sizeof filled.name, "%s", use ? use->name : "cpu");
    if (use) {
        ith_device_facts facts = {0};
        ith_status status = ith_device_check(context, use->module->facts(use->device, &facts, said), said);
        if (status)
            return status;
        snprintf(filled.description, sizeof filled.description, "%s", facts.name);
        filled.capability = facts.capability;
        filled.processors = facts.processors;
        filled.memory_bytes = facts.memory_bytes;
        filled.free_bytes = facts.free_bytes;
    }
    return ITH_SIZED_FILL(context, ith_device_info, ITH_DEVICE_INFO_INIT, info, &filled);
}

const ith_device_kernel *ith_device_kernel_named(const ith_device_use *use, const char *name)
{
    for (const ith_device_kernel *const *kernel = use->module->kernels; *kernel; kernel++)
        if (!strcmp((*kernel)->name, name))
            return *kernel;
    return NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

ith_status ith_device_allocate(ith_context *context, int64_t bytes, void **out)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    if (out)
        *out = NULL;
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = ith_need(context, out, "out");
    if (status)
        return status;
    if (bytes < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT, "bytes is %lld, and must be 0 or more", (long long)bytes);
    ith_device_use *use = ith_context_device_use(context);
    if (use)
        return ith_device_check(context, use->module->allocate(use->device, bytes, out, said), said);
    *out = ith_alloc(context, bytes, 1, "a tensor");
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

void ith_device_release(ith_context *context, void *pointer)
{
    ith_device_use *use = context ? ith_context_device_use(context) : NULL;
    if (use)
        use->module->release(use->device, pointer);
    else if (context)
        ith_free(context, pointer);
}

/* Pauses between two questions whether a stream has ended. begin: the time of the first one. */
static void pause_wait(double begin)
{
    if (ith_clock_seconds() - begin < SPIN_SECONDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

ith_status ith_device_wait(ith_context *context, struct ith_device_stream *stream, bool (*asks)(void *user), void *user)
{
    const ith_device_use *use = ith_context_device_use(context);
    char said[ITH_DEVICE_SENTENCE] = "";
    const double begin = ith_clock_seconds();
    for (bool done = false;;) {
        ith_status status = use->module->query(stream, &done, said);
        if (status || done)
            return ith_device_check(context, status, said);
        if (asks && asks(user))
            return ITH_ERR_INTERRUPTED;
        pause_wait(begin);
    }
}

void ith_device_drain(const ith_device_use *use, struct ith_device_stream *stream)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const double begin = ith_clock_seconds();
    for (bool done = !stream; !done && !use->module->query(stream, &done, said);)
        pause_wait(begin);
}

ith_status ith_device_copy(ith_context *context, void *target, const void *source, int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    if (!context)
        return ith_need(NULL, context, "context");
    if (bytes < 0 || (bytes > 0 && (!target || !source)))
        return ith_fail(context, ITH_ERR_ARGUMENT, "bytes is %lld, and must be 0 or more; target and source are needed",
                        (long long)bytes);
    ith_device_use *use = ith_context_device_use(context);
    if (!use) {
        if (bytes > 0)
            memmove(target, source, (size_t)bytes);
        return ITH_OK;
    }
    pthread_mutex_lock(&use->copying);
    ith_status status = ith_device_check(context, use->module->copy(use->copies, target, source, bytes, said), said);
    if (!status)
        status = ith_device_wait(context, use->copies, NULL, NULL);
    pthread_mutex_unlock(&use->copying);
    return status;
}
