/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the work of the decoder, with the layers that vae_layout.c has made for one size of picture. */
#include "vae_decoder.h"

/* How often a layer is computed for `frames` latent frames, if it is computed `first` times for the first one and
 * `later` times for each later one. */
static double times_of(int64_t frames, int64_t first, int64_t later)
{
    return (double)first + (double)(frames - 1) * (double)later;
}

static void list_linear(const ith_work_list *list, const char *stage, double times, const ith_vae_linear *l)
{
    ith_work_take_linear(list, stage, times, l->pixels, l->filter->in, l->filter->out);
}

static void list_conv(const ith_work_list *list, double times, const ith_vae_conv *c)
{
    const ith_conv_shape *s = &c->conv.shape;
    const double numbers = (double)s->height * (double)s->width * (double)s->in;
    const ith_work work = {.kind = ITH_WORK_OF_CONV,
                           .stage = c->stage,
                           .times = times,
                           .rows = s->height * s->width,
                           .in = s->in,
                           .out = s->out,
                           .operations = ith_conv_operations(s)};
    list->take(list->user, &work);
    /* the input is read, normalised and written */
    ith_work_take_rows(list, ITH_VAE_NORMS, times, 2 * (double)sizeof(float) * numbers);
}

/* The attention and its products: each latent frame passes them once. */
static void list_attention(const ith_work_list *list, double times, const ith_vae_attention *attention)
{
    const ith_attn_problem problem = ith_vae_attention_problem(attention);
    list_linear(list, ITH_VAE_ATTENTION, times, attention->qkv);
    ith_work_take_attention(list, ITH_VAE_ATTENTION, times, &problem);
    list_linear(list, ITH_VAE_ATTENTION, times, attention->proj);
}

void ith_vae_decoder_list(const ith_vae_decoder *d, int64_t frames, const ith_work_list *list)
{
    const ith_vae_work *work = &d->work;
    list_linear(list, d->post_quant->stage, (double)frames, d->post_quant);
    list_attention(list, (double)frames, &d->attention);
    for (int64_t i = 0; i < work->conv_count; i++) {
        const ith_vae_conv *c = &work->convs[i];
        const double times = times_of(frames, c->first_times, c->times);
        list_conv(list, times, c);
        if (c->shortcut)
            list_linear(list, c->stage, times, c->shortcut);
    }
}

ith_status ith_vae_list(ith_context *context, const ith_vae_config *config, ith_operand_types types, int64_t frames,
                        int64_t height, int64_t width, const ith_vae_span *band, const ith_work_list *list)
{
    ith_vae *vae = NULL;
    ith_vae_decoder *decoder = NULL;
    ith_status status = ith_vae_create(context, config, types, &vae);
    if (!status)
        status = ith_vae_decoder_create(context, vae, height, width, band, &decoder);
    if (!status)
        ith_vae_decoder_list(decoder, frames, list);
    ith_vae_decoder_free(&decoder);
    ith_vae_free(context, &vae);
    return status;
}
