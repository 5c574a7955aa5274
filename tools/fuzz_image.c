/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for the reader of pictures. From the root of the tree:
 *
 *     clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc tools/fuzz_image.c \
 *         src/media/image*.c src/media/yuv.c $(find src/base -name '*.c') -fopenmp -lavcodec -lswscale -lavutil -ldl \
 *         -lm -o fuzz
 *     mkdir -p found && ./fuzz -max_len=20000 found tests/golden/pictures
 *
 * Add inputs that it finds to tests/media/corpus, under names that describe them; the name of a right picture begins
 * with "valid". tests/media/test_image.c replays the corpus. */
#include "media/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ith_context *context;
    uint8_t *padded = calloc(1, size + 64), *rgb = NULL;
    int64_t height, width;
    if (!padded || (!context && ith_context_create(NULL, &context)))
        abort();
    memcpy(padded, data, size);
    ith_image_decode(context, "it", padded, (int64_t)size, &rgb, &height, &width);
    free(rgb);
    free(padded);
    return 0;
}
