/* SPDX-License-Identifier: Apache-2.0 */
#include "vae_checkpoints.h"

#include "files/store.h"
#include "kinds.h"
#include "support/memory.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

const vae_checkpoint vae_checkpoints[VAE_CHECKPOINTS] = {{"../models/shapes/vae", 16, 8},
                                                         {"golden/ti2v/model/vae", 48, 16}};

ith_vae_config vae_config_in(ith_context *context, const char *folder)
{
    ith_vae_config config;
    assert_int_equal(ith_vae_config_read(context, folder, &config), ITH_OK);
    return config;
}

int64_t vae_file_bytes(ith_context *context, const char *folder)
{
    ith_store *store = NULL;
    const int64_t before = memory_of(context).current_bytes;
    assert_int_equal(ith_store_open(context, folder, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &store), ITH_OK);
    const int64_t bytes = memory_of(context).current_bytes - before;
    ith_store_close(&store);
    return bytes;
}

void with_vaes_and_sizes(void (*test)(const vae_checkpoint *checkpoint, int kind, int64_t height, int64_t width))
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {9, 11}};
    const int threads = omp_get_max_threads();
    ith_context *context = new_context();
    const int kinds = operand_kinds_here(context);
    ith_context_destroy(&context);
    for (int kind = 0; kind < VAE_CHECKPOINTS * kinds; kind++)
        for (int i = 0; i < 3; i++) {
            omp_set_num_threads(i + 1);
            test(&vae_checkpoints[kind / kinds], kind % kinds, sizes[i][0], sizes[i][1]);
        }
    omp_set_num_threads(threads);
}
