/* SPDX-License-Identifier: Apache-2.0 */
/* Devices in use: each device that a context has asked for is opened once in a process, and stays open. The functions
 * of its module are in device.h. */
#ifndef ITH_KERNELS_DEVICE_USE_H
#define ITH_KERNELS_DEVICE_USE_H

#include "../base/context.h"
#include "device.h"

#include <pthread.h>

/* A device in use. */
typedef struct ith_device_use {
    const ith_device_module *module;
    struct ith_device *device;
    char name[32];
    char model[64]; /* the maker's name, in characters that wisdom may have */
    /* the stream of ith_device_copy, one copy at a time */
    struct ith_device_stream *copies;
    pthread_mutex_t copying;
    struct ith_device_use *next;
} ith_device_use;

/* Returns status. If it is a failure, records the device's name and the sentence that its module wrote. */
ith_status ith_device_check(ith_context *context, ith_status status, const char *said);

/* Waits until a stream's work has ended. asks (may be NULL): called every few microseconds at first, and every hundred
 * microseconds later. If it returns true, the wait ends with ITH_ERR_INTERRUPTED while the device may still be
 * working. */
ith_status ith_device_wait(ith_context *context, struct ith_device_stream *stream, bool (*asks)(void *user),
                           void *user);

/* Waits until a stream's work has ended, or some of it has failed. stream: NULL does nothing. */
void ith_device_drain(const ith_device_use *use, struct ith_device_stream *stream);

/* The kernel of the context's device that is called `name`; NULL if there is none. */
const ith_device_kernel *ith_device_kernel_named(const ith_device_use *use, const char *name);

/* The modules that serve devices. Each exports a table of type ith_device_module. */
extern ith_module_kind ith_device_modules;

#endif
