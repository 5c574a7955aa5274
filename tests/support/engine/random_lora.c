/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/random_lora.h"

#include "support/fixture.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 6, DIM = 192, FFN = 768, MODULES = 10, RANK = 7 };

void random_lora_write(ith_context *ctx, uint64_t *seed, const char *path)
{
    static const struct {
        const char *name;
        int64_t in, out;
    } modules[MODULES] = {{"attn1.to_q", DIM, DIM},     {"attn1.to_k", DIM, DIM},     {"attn1.to_v", DIM, DIM},
                          {"attn1.to_out.0", DIM, DIM}, {"attn2.to_q", DIM, DIM},     {"attn2.to_k", DIM, DIM},
                          {"attn2.to_v", DIM, DIM},     {"attn2.to_out.0", DIM, DIM}, {"ffn.net.0.proj", DIM, FFN},
                          {"ffn.net.2", FFN, DIM}};
    static char names[2 * LAYERS * MODULES][80];
    float *numbers = random_floats(seed, 2 * FFN * RANK);
    ith_tensor tensors[2 * LAYERS * MODULES];
    for (int i = 0; i < 2 * LAYERS * MODULES; i++) {
        const int module = i / 2 % MODULES;
        ith_tensor *t = &tensors[i];
        *t = (ith_tensor)ITH_TENSOR_INIT;
        snprintf(names[i], sizeof names[i], "transformer.blocks.%d.%s.lora_%c.weight", i / 2 / MODULES,
                 modules[module].name, i % 2 ? 'B' : 'A');
        t->name = names[i], t->dtype = ITH_F32, t->dims = 2;
        t->shape[0] = i % 2 ? modules[module].out : RANK, t->shape[1] = i % 2 ? RANK : modules[module].in;
        t->data = numbers + random_between(seed, 0, FFN * RANK);
        t->bytes = t->shape[0] * t->shape[1] * 4;
    }
    check(ctx, ith_tensor_file_write(ctx, path, tensors, 2 * LAYERS * MODULES, NULL, NULL, 0));
    free(numbers);
}
