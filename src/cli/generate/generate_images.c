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

/* If the run has an image, and the user gives an area, a height or a width, the size follows from it and from the
 * image's shape: leaves open a height and a width that only the model's folder sets. */
static void leave_to_image(ith_generation *g)
{
    static const char *const names[] = {"area", "height", "width"};
    int64_t *const sizes[] = {NULL, &g->settings.height, &g->settings.width};
    int64_t *const resolved[] = {NULL, &g->options.height, &g->options.width};
    bool given = false;
    for (int i = 0; i < 3; i++)
        given |= ith_option_source_of(g->table, names[i]) >= ITH_FROM_CONFIG;
    for (int i = 1; i < 3 && given && g->options.image; i++) {
        ith_option_source *source = &g->table->source[ith_option_find(g->table, names[i])];
        if (*source == ITH_FROM_MODEL)
            *sizes[i] = *resolved[i] = 0, *source = ITH_FROM_RULE;
    }
}

ith_status ith_generate_read_images(ith_generation *g)
{
    ith_status status = read_image(g, g->settings.image, &g->image, &g->options.image);
    leave_to_image(g);
    return status ? status : read_image(g, g->settings.last_image, &g->last_image, &g->options.last_image);
}

void ith_generate_free_images(ith_generation *g)
{
    free((void *)(uintptr_t)g->image.rgb);
    free((void *)(uintptr_t)g->last_image.rgb);
}
