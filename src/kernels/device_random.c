/* SPDX-License-Identifier: Apache-2.0 */
/* Fills memory of a device with random numbers (device_random.h). */
#include "device_random.h"

#include "../base/dtype.h"
#include "../base/random_numbers.h"
#include "../base/size.h"

enum { BLOCK = 65536 }; /* numbers that are drawn */

ith_status ith_device_fill_random(ith_context *context, struct ith_device_stream *stream, ith_dtype dtype, void *memory,
                                  int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "", *to = memory;
    const ith_device_module *module = ith_context_device_use(context)->module;
    const int64_t block = ith_min64(BLOCK * ith_dtype_bytes(dtype), bytes);
    uint32_t seed = 2;
    char *drawn = ith_alloc(context, block, 1, "random numbers");
    if (!drawn)
        return ITH_ERR_MEMORY;
    ith_random_numbers(dtype, drawn, block / ith_dtype_bytes(dtype), &seed);
    ith_status status = ith_device_copy(context, to, drawn, block);
    for (int64_t done = block, more; done < bytes && !status; done += more) {
        more = ith_min64(done, bytes - done);
        status = ith_device_check(context, module->copy(stream, to + done, to, more, said), said);
    }
    if (!status)
        status = ith_device_wait(context, stream, NULL, NULL);
    ith_free(context, drawn);
    return status;
}
