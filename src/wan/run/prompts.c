/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes the prompts of a run, or copies prompts that the pipeline keeps (prompts.h). */
#include "prompts.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/hash.h"
#include "../../base/trace.h"
#include "denoise/denoise_choice.h"

#include <string.h>

ith_status ith_count_ids(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                         int64_t counts[2])
{
    int32_t ids[ITH_TEXT_LEN];
    const char *const texts[2] = {options->prompt, options->negative};
    int prompts = ith_denoise_is_guided(pipeline->model, options) ? 2 : 1;
    ith_status status = ith_pipeline_need_tokenizer(pipeline, context);
    counts[0] = counts[1] = 0;
    for (int i = 0; i < prompts && !status; i++)
        status = ith_tokenizer_encode(context, pipeline->tokenizer, texts[i], ids, &counts[i]);
    return status;
}

/* Texts that are encoded together, and their rows. */
typedef struct job {
    const char *const *texts;
    int64_t count;
    float **rows;   /* [count] allocated for each text; NULL: not encoded */
    int64_t *sizes; /* [count] number of rows */
} job;

static ith_status encode_text(ith_rank *rank, const ith_text_encoder *encoder, const job *j, int64_t index)
{
    const ith_pipeline *pipeline = rank->pipeline;
    const ith_span span = {ITH_STAGE_TEXT, index * ITH_PROGRESS_UNIT, (index + 1) * ITH_PROGRESS_UNIT,
                           j->count * ITH_PROGRESS_UNIT};
    int32_t ids[ITH_TEXT_LEN];
    int64_t *size = &j->sizes[index];
    ith_status status = ith_tokenizer_encode(rank->context, pipeline->tokenizer, j->texts[index], ids, size);
    if (status)
        return status;
    j->rows[index] = ith_alloc(rank->context, *size * pipeline->model->text.dim, sizeof(float), "an encoded prompt");
    if (!j->rows[index])
        return ITH_ERR_MEMORY;
    return ith_text_encode(rank->context, encoder, ids, *size, j->rows[index], &span);
}

static ith_status open_encoder(ith_rank *rank, ith_text_encoder **encoder)
{
    const ith_model *model = rank->pipeline->model;
    double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    ith_store *store = NULL;
    ith_status status = ith_model_open_part(rank->context, model, ITH_PART_TEXT, &store);
    if (!status)
        status = ith_text_encoder_open(rank->context, &model->text, store, rank->types.products,
                                       rank->options.keep_packed == ITH_KEEP_ALL, encoder);
    ith_trace_end(rank->context, traced, "open text encoder", "load");
    rank->report.load_seconds += ith_clock_seconds() - start;
    return status;
}

/* Opens the text encoder, encodes the texts, and frees the text encoder. */
static ith_status encode(ith_rank *rank, const job *j)
{
    ith_text_encoder *encoder = NULL;
    ith_status status = open_encoder(rank, &encoder);
    if (status)
        return status;
    ith_observer_set_activity(rank->context, "encoding the prompts");
    double start = ith_clock_seconds();
    for (int64_t i = 0; i < j->count && !status; i++) {
        double traced = ith_trace_begin(rank->context);
        status = ith_model_check_unchanged(rank->context, rank->pipeline->model, ITH_PART_TEXT);
        if (!status)
            status = encode_text(rank, encoder, j, i);
        ith_trace_end(rank->context, traced, "text", "compute");
    }
    rank->report.text_seconds += ith_clock_seconds() - start;
    ith_text_encoder_free(rank->context, &encoder);
    return status;
}

/* ---- Texts that a pipeline keeps ------------------------------------------------------------------------------- */

uint64_t ith_prompt_list_hash(const ith_prompt_list *list)
{
    uint64_t hash = 1;
    for (int64_t i = 0; i < list->count; i++)
        hash = ith_hash(hash + 1, list->texts[i], (int64_t)strlen(list->texts[i]));
    return hash;
}

static const ith_kept_text *find_kept(const ith_pipeline *pipeline, const char *text, ith_operand_types types)
{
    for (int64_t i = 0; i < pipeline->kept_count; i++) {
        const ith_kept_text *kept = &pipeline->kept[i];
        if (!strcmp(kept->text, text) && ith_operand_types_equal(kept->types, types))
            return kept;
    }
    return NULL;
}

/* Adds the encoded texts to the texts that the pipeline keeps. Their rows then belong to the pipeline. */
static ith_status add_kept(ith_rank *rank, const job *j)
{
    ith_pipeline *pipeline = rank->pipeline;
    ith_context *context = rank->context;
    const int64_t before = pipeline->kept_count;
    ith_kept_text *longer = ith_alloc(context, before + j->count, sizeof *longer, "a list of texts");
    if (!longer)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < before; i++)
        longer[i] = pipeline->kept[i];
    ith_free(context, pipeline->kept);
    pipeline->kept = longer;
    for (int64_t i = 0; i < j->count; i++) {
        char *text = ith_strdup(context, j->texts[i]);
        if (!text)
            return ITH_ERR_MEMORY;
        pipeline->kept[pipeline->kept_count++] = (ith_kept_text){text, rank->types.products, j->sizes[i], j->rows[i]};
        j->rows[i] = NULL;
    }
    return ITH_OK;
}

ith_status ith_prompts_keep(ith_rank *rank, void *list)
{
    const ith_prompt_list *asked = list;
    ith_context *context = rank->context;
    if (rank->team.lends && rank->rank) /* rank 0 encodes, and sends the prompts of each run */
        return ITH_OK;
    const char **texts = ith_alloc(context, asked->count, sizeof(char *), "a list of texts");
    float **rows = ith_alloc_zero(context, asked->count, sizeof(float *), "a list of texts");
    int64_t *sizes = ith_alloc(context, asked->count, sizeof *sizes, "a list of texts");
    job j = {texts, 0, rows, sizes};
    ith_status status = texts && rows && sizes ? ITH_OK : ITH_ERR_MEMORY;
    for (int64_t i = 0; i < asked->count && !status; i++) {
        bool is_new = !find_kept(rank->pipeline, asked->texts[i], rank->types.products);
        for (int64_t k = 0; k < j.count && is_new; k++)
            is_new = strcmp(texts[k], asked->texts[i]) != 0;
        if (is_new)
            texts[j.count++] = asked->texts[i];
    }
    if (!status && j.count)
        status = encode(rank, &j);
    if (!status && j.count)
        status = add_kept(rank, &j);
    for (int64_t i = 0; i < j.count; i++)
        ith_free(context, rows[i]);
    ith_free(context, texts);
    ith_free(context, rows);
    ith_free(context, sizes);
    return status;
}

bool ith_prompts_are_kept(const ith_pipeline *pipeline, const ith_context *context, const ith_generate_options *options)
{
    const ith_operand_types types = ith_number_types_choose(context, options->precision).products;
    return find_kept(pipeline, options->prompt, types) &&
           (!ith_denoise_is_guided(pipeline->model, options) || find_kept(pipeline, options->negative, types));
}

int64_t ith_prompts_kept_bytes(const ith_pipeline *pipeline)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < pipeline->kept_count; i++)
        rows += pipeline->kept[i].count;
    return rows * pipeline->model->text.dim * (int64_t)sizeof(float);
}

void ith_prompts_free(ith_pipeline *pipeline)
{
    for (int64_t i = 0; i < pipeline->kept_count; i++) {
        ith_free(pipeline->context, pipeline->kept[i].text);
        ith_free(pipeline->context, pipeline->kept[i].rows);
    }
    ith_free(pipeline->context, pipeline->kept);
}

/* ---- The prompts of a run -------------------------------------------------------------------------------------- */

/* Copies a text that the pipeline keeps to the prompts of the run. */
static ith_status copy_kept(ith_rank *rank, const ith_kept_text *kept, int which)
{
    ith_shared *shared = &rank->pipeline->shared;
    const int64_t numbers = kept->count * rank->pipeline->model->text.dim;
    shared->text_count[which] = kept->count;
    shared->text[which] = ith_alloc(rank->context, numbers, sizeof(float), "an encoded prompt");
    if (!shared->text[which])
        return ITH_ERR_MEMORY;
    memcpy(shared->text[which], kept->rows, (size_t)numbers * sizeof(float));
    return ITH_OK;
}

ith_status ith_prompts_make(ith_rank *rank, void *unused)
{
    (void)unused;
    const ith_pipeline *pipeline = rank->pipeline;
    ith_shared *shared = &rank->pipeline->shared;
    const char *const all[2] = {rank->options.prompt, rank->options.negative};
    const int prompts = ith_denoise_is_guided(pipeline->model, &rank->options) ? 2 : 1;
    const char *texts[2];
    float *rows[2] = {NULL};
    int64_t sizes[2] = {0};
    int places[2];
    job j = {texts, 0, rows, sizes};
    ith_status status = ITH_OK;
    if (rank->team.lends && rank->rank)
        return ITH_OK;
    for (int i = 0; i < prompts && !status; i++) {
        const ith_kept_text *kept = find_kept(pipeline, all[i], rank->types.products);
        if (kept)
            status = copy_kept(rank, kept, i);
        else
            texts[j.count] = all[i], places[j.count++] = i;
    }
    if (!status && j.count)
        status = encode(rank, &j);
    for (int64_t i = 0; i < j.count; i++)
        shared->text[places[i]] = rows[i], shared->text_count[places[i]] = sizes[i];
    return status;
}

ith_status ith_prompts_share(ith_rank *rank, void *unused)
{
    (void)unused;
    ith_shared *shared = &rank->pipeline->shared;
    const int prompts = ith_denoise_is_guided(rank->pipeline->model, &rank->options) ? 2 : 1;
    ith_status status = ITH_OK;
    for (int i = 0; i < prompts && !status; i++) {
        status = ith_comm_broadcast(rank->leaders, &shared->text_count[i], sizeof shared->text_count[i], 0);
        const int64_t numbers = shared->text_count[i] * rank->pipeline->model->text.dim;
        if (!status && rank->rank && !(shared->text[i] = ith_alloc(rank->context, numbers, sizeof(float), "a prompt")))
            status = ITH_ERR_MEMORY;
        status = ith_comm_agree(rank->leaders, status); /* a leader without memory does not take part */
        if (!status)
            status = ith_comm_broadcast(rank->leaders, shared->text[i], numbers * (int64_t)sizeof *shared->text[i], 0);
    }
    return status;
}
