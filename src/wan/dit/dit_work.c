/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the work of the transformer, with the sizes of the layers that dit_open.c has laid out, in the stages of
 * dit_forward.c. */
#include "dit_workspace.h"

#define F32 ((double)sizeof(float))

/* Adds `times` applications of a linear layer to `rows` rows. The operations of its LoRAs count as the layer's. */
static void take_linear(const ith_dit *dit, const ith_work_list *list, const char *stage, double times,
                        const ith_linear *linear, int64_t rows)
{
    ith_work work = ith_work_of_linear(stage, times, rows, ith_linear_inputs(linear), ith_linear_outputs(linear));
    work.operations += ith_linear_added_operations(linear, dit->keep, rows);
    list->take(list->user, &work);
}

/* Adds a layer whose operands are f32 in every precision. */
static void take_f32(const ith_work_list *list, const char *stage, const ith_linear *linear, int64_t rows)
{
    ith_work work = ith_work_of_linear(stage, 1, rows, ith_linear_inputs(linear), ith_linear_outputs(linear));
    work.in_f32 = true;
    list->take(list->user, &work);
}

/* The bytes that the conversion of one number between f32 and the type of attention reads and writes; 0 if attention
 * takes f32. */
static double conversion_bytes(const ith_dit *dit)
{
    return dit->types.attention == ITH_F32 ? 0 : F32 + (double)ith_dtype_bytes(dit->types.attention);
}

void ith_dit_list_layer(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, const ith_work_list *list)
{
    const ith_dit_layer *layer = &dit->layers[0];
    ith_attn_problem self, cross;
    const int64_t rows = ith_dit_problems(dit, shape, ranks, rank, &self, &cross);
    const double numbers = (double)rows * (double)dit->config.dim, converted = conversion_bytes(dit) * numbers;
    const double norm = 2 * F32 * numbers, sum = 3 * F32 * numbers; /* read and write; read both and write */
    const double image_sum = shape->image_rows ? (double)ith_dtype_bytes(dit->types.attention) * numbers : 0;
    const double hidden = 2 * F32 * (double)rows * (double)dit->config.ffn_dim;
    take_linear(dit, list, "qkv", 1, layer->qkv, rows);
    ith_work_take_rows(list, "qkv", 1, 5 * norm + 3 * converted); /* LN; RMSNorm and RoPE of q and of k */
    ith_work_take_attention(list, "self attention", 1, &self);
    take_linear(dit, list, "project", 1, layer->self_out, rows);
    take_linear(dit, list, "project", 1, layer->cross_q, rows);
    ith_work_take_rows(list, "project", 1, 2 * norm + sum + 2 * converted);
    ith_work_take_attention(list, "cross attention", 1, &cross);
    if (shape->image_rows) {
        const ith_attn_problem image = ith_dit_image_problem(dit, shape);
        ith_work_take_attention(list, "cross attention", (double)shape->batch, &image);
    }
    take_linear(dit, list, "ffn", 1, layer->cross_out, rows);
    take_linear(dit, list, "ffn", 1, layer->ffn_up, rows);
    take_linear(dit, list, "ffn", 1, layer->ffn_down, rows);
    ith_work_take_rows(list, "ffn", 1, norm + 2 * sum + converted + hidden + image_sum);
}

void ith_dit_list_ends(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, const ith_work_list *list)
{
    static const char stage[] = "ends";
    ith_attn_problem self, cross;
    const int64_t rows = ith_dit_problems(dit, shape, ranks, rank, &self, &cross);
    take_f32(list, stage, dit->patch, rows);
    take_f32(list, stage, dit->time_1, ith_dit_time_rows(shape));
    take_f32(list, stage, dit->time_2, ith_dit_time_rows(shape));
    take_f32(list, stage, dit->time_proj, ith_dit_time_rows(shape));
    take_f32(list, stage, dit->head, rows);
    ith_work_take_rows(list, stage, 1, 2 * F32 * (double)rows * (double)dit->config.dim);
}

void ith_dit_list_text(const ith_dit *dit, int64_t layers, int64_t batch, int64_t longest, const ith_work_list *list)
{
    static const char stage[] = "text keys";
    const ith_linear *kv = dit->layers[0].cross_kv;
    const int64_t rows = batch * ith_dit_text_keys(longest);
    take_linear(dit, list, stage, 1, dit->text_1, rows);
    take_linear(dit, list, stage, 1, dit->text_2, rows);
    take_linear(dit, list, stage, (double)layers, kv, rows);
}

void ith_dit_list_image(const ith_dit *dit, int64_t layers, int64_t rows, const ith_work_list *list)
{
    static const char stage[] = "image keys";
    if (!rows)
        return;
    take_linear(dit, list, stage, 1, dit->image_1, rows);
    take_linear(dit, list, stage, 1, dit->image_2, rows);
    take_linear(dit, list, stage, (double)layers, dit->layers[0].cross_image_kv, rows);
}
