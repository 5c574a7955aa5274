/* SPDX-License-Identifier: Apache-2.0 */
/* make_tiny_model FOLDER: writes FOLDER/model (a model that makes videos from images), FOLDER/lora.safetensors and
 * FOLDER/first.png. Runs in tests/. */
#include "media/picture.h"
#include "support/engine/tiny_model.h"
#include "support/fixture.h"

#include <stdio.h>
#include <sys/stat.h>

#define SIDE 16

int main(int count, char **words)
{
    char path[512];
    uint8_t pixels[SIDE * SIDE * 3];
    if (count != 2 || context_set_up(NULL))
        return 2;
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        pixels[i] = (uint8_t)(i * 7);
    snprintf(path, sizeof path, "%s/model", words[1]);
    mkdir(path, 0700);
    tiny_model_write(context, TINY_IMAGE, path);
    snprintf(path, sizeof path, "%s/lora.safetensors", words[1]);
    tiny_lora_write(context, path);
    snprintf(path, sizeof path, "%s/first.png", words[1]);
    check(context, ith_picture_write(context, path, pixels, SIDE, SIDE, 1));
    return context_tear_down(NULL);
}
