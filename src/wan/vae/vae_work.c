/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the work of the layers that have been made for one size of picture. */
#include "vae_memory.h"

double ith_vae_conv_times(const ith_vae_conv *conv, int64_t frames)
{
    return (double)conv->first_times + (double)(frames - 1) * (double)conv->times;
}

static void list_linear(const ith_work_list *list, const char *stage, double times, const ith_vae_linear *l)
{
    ith_work_take_linear(list, stage, times, l->pixels, l->filter->in, l->filter->out);
}

static void list_conv(const ith_work_list *list, double times, const ith_vae_conv *c)
{
    const ith_conv_shape *s = &c->conv.shape;
    const double numbers = (double)s->height * (double)s->width * (double)s->in * (s->halves_time ? 2 : 1);
    const ith_work work = {.kind = ITH_WORK_OF_CONV,
                           .stage = c->stage,
                           .times = times,
                           .rows = ith_conv_out_height(s) * ith_conv_out_width(s),
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

void ith_vae_work_list(const ith_vae_work *work, int64_t frames, const ith_work_list *list)
{
    list_linear(list, work->quant->stage, (double)frames, work->quant);
    list_attention(list, (double)frames, &work->middle.attention);
    for (int64_t i = 0; i < work->conv_count; i++) {
        const ith_vae_conv *c = &work->convs[i];
        const double times = ith_vae_conv_times(c, frames);
        list_conv(list, times, c);
        if (c->shortcut)
            list_linear(list, c->stage, times, c->shortcut);
    }
}

void ith_vae_work_begin_latent(ith_vae_work *work, bool first, const ith_span *shown)
{
    work->shown = *shown;
    work->operations = work->operations_done = 0;
    for (int64_t i = 0; i < work->conv_count; i++) {
        const ith_vae_conv *c = &work->convs[i];
        work->operations += (double)(first ? c->first_times : c->times) * ith_conv_operations(&c->conv.shape);
    }
}
