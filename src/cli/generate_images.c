/* SPDX-License-Identifier: Apache-2.0 */
/* The images of ithaca generate: --image and --last-image. */
#include "generate.h"

#include <stdlib.h>

/* Reads an image, and sets *option to it. */
static ith_status read_image(ith_generation *g, const char *path, ith_image *image, const ith_image **option)
{
    const ith_media *media;
    uint8_t *rgb = NULL;
    if (!path || g->settings.from_latents)
        return ITH_OK;
    ith_status status = ith_media_load(g->context, &media);
    if (!status)
        status = media->image_read(g->context, path, &rgb, &image->height, &image->width);
    image->struct_size = sizeof *image, image->rgb = rgb;
    *option = image;
    return status;
}

ith_status ith_generate_read_images(ith_generation *g)
{
    ith_status status = read_image(g, g->settings.image, &g->image, &g->options.image);
    return status ? status : read_image(g, g->settings.last_image, &g->last_image, &g->options.last_image);
}

void ith_generate_free_images(ith_generation *g)
{
    free((void *)(uintptr_t)g->image.rgb);
    free((void *)(uintptr_t)g->last_image.rgb);
}
