/* SPDX-License-Identifier: Apache-2.0 */
/* CLIP's image encoder, a vision transformer (arXiv:2103.00020, arXiv:2010.11929), without its last layer.
 *
 *     x = [class, patch_embedding(patches)] + positions                 [1 + patches, dim]
 *     x = layer_norm(x)
 *     for every layer but the last:
 *         n = layer_norm(x)
 *         x = x + o(attention(q(n), k(n), v(n)))
 *         n = layer_norm(x)
 *         x = x + fc2(act(fc1(n)))
 *     rows = x */
#include "vision_encoder.h"

#include "../part/encoder_layers.h"
#include "../part/weights.h"
#include "vision_pixels.h"

#include <omp.h>
#include <stdio.h>

/* An open encoder. */
struct ith_vision_encoder {
    ith_vision_config config;
    ith_operand_types types;
    float *class_row; /* [dim] */
    float *positions; /* [tokens, dim] */
    ith_encoder_norm first_norm;
    ith_linear *patches; /* the numbers of a patch to dim, without a bias */
    ith_weights_memory memory;
    ith_encoder_layer layers[]; /* the layers that are computed: all but the last; inner is dim */
};

static int64_t computed_layers(const ith_vision_config *config)
{
    return config->layers - 1;
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

#define MODEL "vision_model."

/* Takes a table [rows, dim], or a vector [dim] if rows is 1. In files of the original code both have the shape [1,
 * rows, dim]. */
static float *name_table(ith_weights *w, const char *name, int64_t rows, int64_t dim)
{
    const int64_t shape[] = {1, rows, dim};
    const bool is_original = w->store && ith_store_size(w->store, name, 2);
    const int dims = is_original ? 3 : rows > 1 ? 2 : 1;
    return ith_weights_floats(w, name, dims, shape + 3 - dims);
}

static ith_encoder_norm name_norm(ith_weights *w, const char *weight, const char *bias, int64_t dim)
{
    ith_encoder_norm norm = {ith_weights_floats(w, weight, 1, &dim), NULL};
    norm.bias = ith_weights_floats(w, bias, 1, &dim);
    return norm;
}

/* Makes one linear layer with biases from `count` modules that read the same rows, each from `in` to `out` numbers. */
static ith_linear *linear(ith_weights *w, const ith_vision_encoder *encoder, const char *const *modules, int count,
                          int64_t in, int64_t out)
{
    return ith_weights_linear(w, modules, count, true, 2, (int64_t[]){out, in}, encoder->types);
}

/* Takes the weights of layer `index`. In files of the original code, q, k and v of a layer are one matrix. */
static void name_layer(ith_weights *w, const ith_vision_encoder *encoder, int64_t index, ith_encoder_layer *layer)
{
    static const char *const q_k_v[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    static const char *const qkv = "self_attn.qkv_proj", *const o = "self_attn.out_proj", *const fc1 = "mlp.fc1",
                             *const fc2 = "mlp.fc2";
    const int64_t dim = encoder->config.dim, ffn = encoder->config.ffn_dim;
    char joint[ITH_STORE_NAME_BYTES];
    ith_weights_prefix(w, MODEL "encoder.layers.%lld.", (long long)index);
    snprintf(joint, sizeof joint, "%s%s.weight", w->prefix, qkv);
    layer->attention_norm = name_norm(w, "layer_norm1.weight", "layer_norm1.bias", dim);
    if (w->store && ith_store_has(w->store, joint))
        layer->qkv = linear(w, encoder, &qkv, 1, dim, 3 * dim);
    else
        layer->qkv = linear(w, encoder, q_k_v, 3, dim, dim);
    layer->o = linear(w, encoder, &o, 1, dim, dim);
    layer->ffn_norm = name_norm(w, "layer_norm2.weight", "layer_norm2.bias", dim);
    layer->up = linear(w, encoder, &fc1, 1, dim, ffn);
    layer->down = linear(w, encoder, &fc2, 1, ffn, dim);
}

/* Marks tensors as taken that are not needed: the layers that are not computed, and position_ids, which old files
 * have. */
static void skip_rest(ith_store *store, const ith_vision_config *config)
{
    char last[64];
    snprintf(last, sizeof last, MODEL "encoder.layers.%lld.", (long long)computed_layers(config));
    ith_store_skip(store, last);
    ith_store_skip(store, MODEL "post_layernorm.");
    ith_store_skip(store, "visual_projection");
    ith_store_skip(store, MODEL "embeddings.position_ids");
}

/* Lists all weights of the encoder, to take, check or count them. */
static void name_weights(ith_weights *w, void *model)
{
    static const char *const patches = MODEL "embeddings.patch_embedding";
    ith_vision_encoder *encoder = model;
    const ith_vision_config *c = &encoder->config;
    encoder->class_row = name_table(w, MODEL "embeddings.class_embedding", 1, c->dim);
    encoder->positions = name_table(w, MODEL "embeddings.position_embedding.weight", ith_vision_tokens(c), c->dim);
    encoder->patches = ith_weights_linear(w, &patches, 1, false, 4,
                                          (int64_t[]){c->dim, ITH_VISION_COLOURS, c->patch, c->patch}, encoder->types);
    encoder->first_norm = name_norm(w, MODEL "pre_layrnorm.weight", MODEL "pre_layrnorm.bias", c->dim);
    for (int64_t i = 0; i < computed_layers(c); i++)
        name_layer(w, encoder, i, &encoder->layers[i]);
    if (w->store)
        skip_rest(w->store, c);
}

static int64_t struct_bytes(const ith_vision_config *config)
{
    return (int64_t)sizeof(ith_vision_encoder) + computed_layers(config) * (int64_t)sizeof(ith_encoder_layer);
}

static ith_vision_encoder *new_encoder(ith_context *context, const ith_vision_config *config, ith_operand_types types)
{
    ith_vision_encoder *encoder = ith_alloc_zero(context, 1, struct_bytes(config), "an image encoder");
    if (encoder)
        encoder->config = *config, encoder->types = types;
    return encoder;
}

ith_status ith_vision_encoder_open(ith_context *context, const ith_vision_config *config, ith_store *store,
                                   ith_operand_types types, bool keeps_packed, ith_vision_encoder **out)
{
    *out = new_encoder(context, config, types);
    if (!*out) {
        ith_store_close(&store);
        return ITH_ERR_MEMORY;
    }
    (*out)->memory.store = store;
    ith_status status =
        ith_weights_take(context, ith_weights_keep(keeps_packed), true, name_weights, *out, &(*out)->memory);
    if (status)
        ith_vision_encoder_free(context, out);
    return status;
}

ith_status ith_vision_encoder_check(ith_context *context, const ith_vision_config *config, ith_store *store)
{
    ith_vision_encoder *encoder = new_encoder(context, config, ith_operands_f32());
    ith_status status = encoder ? ith_weights_check(context, store, NULL, name_weights, encoder) : ITH_ERR_MEMORY;
    ith_vision_encoder_free(context, &encoder);
    return status;
}

void ith_vision_encoder_free(ith_context *context, ith_vision_encoder **encoder)
{
    if (!encoder || !*encoder)
        return;
    ith_vision_encoder *e = *encoder;
    ith_weights_free(context, &e->memory);
    ith_free(context, e);
    *encoder = NULL;
}

/* ---- Encoding -------------------------------------------------------------------------------------------------- */

/* The workspace of one call of ith_vision_encode. */
typedef struct vision_workspace {
    const ith_vision_encoder *encoder;
    ith_encoder_run run; /* run.x is the caller's array */
    ith_plan *attention;
    ith_vision_pixels pixels;
    ith_linear_workspace linears;
    float *qkv; /* [tokens, 3 dim]: q, k, v of the attention, which overwrites q with o */
} vision_workspace;

/* Lays out the buffers of one call of ith_vision_encode in an arena. If the arena has no memory yet, it only counts the
 * bytes. */
static void lay_out(const ith_vision_encoder *encoder, ith_arena *arena, vision_workspace *w)
{
    const ith_vision_config *c = &encoder->config;
    const int64_t tokens = ith_vision_tokens(c);
    w->qkv = ith_arena_take(arena, tokens, 3 * c->dim * (int64_t)sizeof *w->qkv);
    ith_vision_pixels_lay_out(c, arena, &w->pixels);
    ith_linear_workspace_lay_out(encoder->memory.linears, omp_get_max_threads(), tokens, arena, &w->linears);
}

/* The attention of all layers: heads lie side by side in the rows of q, k and v, which lie side by side. */
static ith_attn_problem problem_of(const ith_vision_config *c)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = c->heads, problem.head_dim = c->dim / c->heads;
    problem.q_len = problem.kv_len = ith_vision_tokens(c);
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = problem.o_row_stride = 3 * c->dim;
    return problem;
}

static ith_attn_options options_of(void)
{
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    return options;
}

/* The `attend` of an ith_encoder_run. */
static ith_status attend(const void *user, const ith_encoder_layer *layer, float *qkv)
{
    const vision_workspace *w = user;
    const int64_t dim = w->run.dim;
    (void)layer;
    return ith_plan_execute(
        w->attention,
        &(ith_attn_tensors){
            .struct_size = sizeof(ith_attn_tensors), .q = qkv, .k = qkv + dim, .v = qkv + 2 * dim, .o = qkv});
}

/* Stores numbers of the embedding of patch `patch`, with their position, in row 1 + patch of x. */
static void take_patch(void *user, int64_t patch, int64_t first, int64_t count, const float *y)
{
    const vision_workspace *w = user;
    const int64_t at = (1 + patch) * w->encoder->config.dim + first;
    for (int64_t i = 0; i < count; i++)
        w->run.x[at + i] = y[i] + w->encoder->positions[at + i];
}

static void finish_patch(void *user, int64_t patch)
{
    const vision_workspace *w = user;
    ith_encoder_normalise(&w->run, &w->encoder->first_norm, 1 + patch);
}

/* x = layer_norm([class, patch_embedding(patches)] + positions) */
static ith_status embed(ith_context *context, vision_workspace *w, const ith_image *image)
{
    const ith_vision_encoder *encoder = w->encoder;
    const ith_linear_rows x = {w->run.x + w->run.dim, w->run.dim};
    const ith_linear_input patches = {ith_vision_patch_row, &w->pixels};
    const ith_linear_output rows = {.take = take_patch, .finish = finish_patch, .user = w, .rows = &x};
    ith_status status = ith_vision_pixels_read(context, &encoder->config, image, &w->pixels);
    if (!status)
        status = ith_linear_apply(context, encoder->patches, &w->linears, w->run.rows - 1, &patches, &rows);
    if (status)
        return status;
    for (int64_t i = 0; i < w->run.dim; i++)
        w->run.x[i] = encoder->class_row[i] + encoder->positions[i];
    ith_encoder_normalise(&w->run, &encoder->first_norm, 0);
    return ITH_OK;
}

/* Describes the run of a workspace through the layers. */
static ith_encoder_run run_of(ith_context *context, const vision_workspace *w, float *rows)
{
    const ith_vision_config *c = &w->encoder->config;
    const ith_rowops *rowops = ith_rowops_choose(ith_context_cpu(context));
    return (ith_encoder_run){.name = "image encoder",
                             .rowops = rowops,
                             .linears = &w->linears,
                             .rows = ith_vision_tokens(c),
                             .dim = c->dim,
                             .inner = c->dim,
                             .eps = (float)c->eps,
                             .act = c->act == ITH_VISION_GELU_QUICK ? rowops->gelu_quick : rowops->gelu,
                             .attend = attend,
                             .user = w,
                             .x = rows,
                             .qkv = w->qkv};
}

static ith_status encode(ith_context *context, vision_workspace *w, const ith_image *image, const ith_span *span)
{
    const ith_vision_encoder *encoder = w->encoder;
    const int64_t layers = computed_layers(&encoder->config);
    const ith_attn_problem problem = problem_of(&encoder->config);
    const ith_attn_options options = options_of();
    ith_status status = embed(context, w, image);
    if (!status)
        status = ith_plan_create(context, &problem, &options, NULL, &w->attention);
    if (!status) {
        ith_span_show(context, span, 1, layers + 1);
        status = ith_encoder_layers_apply(context, &w->run, encoder->layers, layers, span, 1, 0);
    }
    ith_plan_destroy(&w->attention);
    return status;
}

ith_status ith_vision_encode(ith_context *context, const ith_vision_encoder *encoder, const ith_image *image,
                             float *rows, const ith_span *span)
{
    vision_workspace w = {.encoder = encoder};
    ith_arena arena = {0};
    lay_out(encoder, &arena, &w);
    ith_status status = ith_arena_allocate(context, &arena, "the image encoder's workspace");
    if (status)
        return status;
    lay_out(encoder, &arena, &w);
    w.run = run_of(context, &w, rows);
    status = encode(context, &w, image, span);
    ith_free(context, arena.base);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

ith_status ith_vision_encoder_bytes(ith_context *context, const ith_vision_config *config, ith_operand_types types,
                                    bool keeps_packed, const ith_image *image, int64_t *bytes)
{
    const ith_attn_problem problem = problem_of(config);
    const ith_attn_options options = options_of();
    ith_plan_info plan = ITH_PLAN_INFO_INIT;
    ith_vision_encoder *encoder = new_encoder(context, config, types);
    if (!encoder)
        return ITH_ERR_MEMORY;
    vision_workspace workspace;
    ith_arena arena = {0};
    ith_status status =
        ith_weights_outline(context, ith_weights_keep(keeps_packed), name_weights, encoder, &encoder->memory);
    if (!status)
        status = ith_plan_predict(context, &problem, &options, 1, 0, true, &plan);
    if (!status) {
        lay_out(encoder, &arena, &workspace);
        /* the plan is made when the picture has been scaled */
        const int64_t later = ith_max64(plan.memory_bytes + ITH_ALLOC_HEADER, ith_vision_pixels_bytes(config, image));
        *bytes = struct_bytes(config) + encoder->memory.bytes + 2 * ITH_ALLOC_HEADER + arena.used_bytes + later;
    }
    ith_vision_encoder_free(context, &encoder);
    return status;
}

/* ---- Work ------------------------------------------------------------------------------------------------------ */

static void list_layers(const ith_vision_encoder *encoder, int64_t layers, const ith_work_list *list)
{
    static const char stage[] = "vision";
    const ith_vision_config *c = &encoder->config;
    const ith_attn_problem problem = problem_of(c);
    const int64_t tokens = ith_vision_tokens(c);
    const double times = (double)layers, f32 = sizeof(float);
    ith_work_take_linear(list, stage, 1, tokens - 1, ith_linear_inputs(encoder->patches), c->dim);
    ith_encoder_layer_list(&encoder->layers[0], stage, times, tokens, list);
    ith_work_take_attention(list, stage, times, &problem);
    /* two norms read and write a row, two sums read two and write one; the activation reads and writes a hidden row */
    ith_work_take_rows(list, stage, times, (double)tokens * f32 * (10 * (double)c->dim + 2 * (double)c->ffn_dim));
}

ith_status ith_vision_encoder_list(ith_context *context, const ith_vision_config *config, ith_operand_types types,
                                   const ith_work_list *list)
{
    ith_vision_config two = *config;
    two.layers = 2;
    ith_vision_encoder *encoder = new_encoder(context, &two, types);
    if (!encoder)
        return ITH_ERR_MEMORY;
    ith_status status = ith_weights_sketch(context, name_weights, encoder, &encoder->memory);
    if (!status)
        list_layers(encoder, computed_layers(config), list);
    ith_vision_encoder_free(context, &encoder);
    return status;
}
