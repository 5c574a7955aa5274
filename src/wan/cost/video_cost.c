/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the cost of a video (ithaca/video_cost.h): lists the work of each stage and prices it.
 *
 *     text     the leader of a process encodes the prompts with all threads of the process
 *     denoise  every rank computes its share of the tokens; rank 0 has the largest share
 *     images   rank 0 encodes them with all threads of its process
 *     decode   the leader of a process decodes a band of rows with all threads */
#include "video_price.h"
#include "video_problem.h"

#include "../../base/callback.h"
#include "../../base/context.h"
#include "../../base/parallel.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../dit/dit_workspace.h"
#include "../run/condition_size.h"
#include "../run/decode.h"
#include "../run/denoise/denoise_choice.h"
#include "../run/memory/predicted_run.h"

#include <stdio.h>

/* The state of one prediction. */
typedef struct prediction {
    ith_context *context;
    ith_video_problem problem;
    ith_video_model model;
    ith_attn_options options;
    ith_video_place place;
    ith_dit *dit;       /* one layer of the transformer, without weights */
    int sequence_ranks; /* ranks over which a sequence is split */
    ith_plan_info info;
    ith_cost attention;
    ith_video_cost cost;
    const ith_simulation *simulation; /* how the layers are simulated; NULL: predicted by the model */
    const ith_plan_candidate *listed; /* the current plan of a list, for `listed_batch` branches; or NULL */
    int64_t listed_batch;
} prediction;

static prediction prediction_of(ith_context *context)
{
    return (prediction){.context = context,
                        .options = ITH_ATTN_OPTIONS_INIT,
                        .info = ITH_PLAN_INFO_INIT,
                        .attention = ITH_COST_INIT,
                        .cost = ITH_VIDEO_COST_INIT};
}

/* The threads of a process, as options take them. A process of many devices may have more units. */
static int process_threads(const ith_video_place *place)
{
    return (int)ith_min64(place->threads, ITH_THREADS_MOST);
}

/* A stage that the leader of each process computes with all threads. */
static ith_video_seconds led_by_one(const prediction *p)
{
    return (ith_video_seconds){.place = &p->place,
                               .units = p->place.process_units,
                               .type = p->model.types.products.rounded,
                               .ranks = 1,
                               .threads = process_threads(&p->place)};
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static ith_status predict_text(prediction *p)
{
    const ith_video_model *m = &p->model;
    ith_video_seconds seconds = led_by_one(p), keys = led_by_one(p);
    const ith_work_list encode = {ith_video_add_work, &seconds}, make = {ith_video_add_work, &keys};
    const int64_t branches = m->counts[1] ? 2 : 1, batch = ith_denoise_batch(&m->model, &m->options);
    ith_status status = ITH_OK;
    for (int i = 0; i < branches && !status; i++)
        status = ith_text_encoder_list(p->context, &m->model.text, m->types.products, m->counts[i], &encode);
    for (int64_t branch = 0; branch < branches; branch += batch)
        ith_dit_list_text(p->dit, p->problem.layers, batch,
                          batch == 2 ? ith_max64(m->counts[0], m->counts[1]) : m->counts[branch], &make);
    ith_dit_list_image(p->dit, p->problem.layers, ith_condition_image_rows(&m->model, &m->options), &make);
    const double experts = (double)ith_min64(p->problem.experts, ith_video_steps_left(&p->problem));
    p->cost.text_seconds = ith_video_seconds_all(&seconds) + experts * ith_video_seconds_all(&keys);
    p->cost.operations +=
        seconds.operations + seconds.attention_operations + experts * (keys.operations + keys.attention_operations);
    return status ? status : seconds.status ? seconds.status : keys.status;
}

/* ---- Denoising --------------------------------------------------------------------------------------------------- */

/* The options of self-attention, with the threads of a rank. */
static ith_attn_options attention_options(const prediction *p)
{
    ith_attn_options options = p->options;
    if (!p->place.view.machine.rank_units)
        options.threads = (int)ith_min64(p->place.rank_threads, ITH_THREADS_MOST);
    return options;
}

/* The factor by which work takes longer because the ranks of a sequence have more threads than their host has units. */
static double own_crowding(const prediction *p)
{
    const int64_t wanted = ith_min64(p->place.view.unit_ranks, p->sequence_ranks) * p->place.rank_threads;
    const double crowding = (double)wanted / (double)p->place.view.machine.host_units;
    return crowding > 1 ? crowding : 1;
}

/* The self-attention of a pass. With cfg parallel the two halves of the ranks attend at the same time, and may share
 * the units of a host. */
static ith_status predict_attention(prediction *p, const ith_dit_shape *shape, ith_plan_info *info, ith_cost *cost,
                                    double *seconds)
{
    ith_attn_problem self, cross;
    const ith_attn_options options = attention_options(p);
    ith_status status = ITH_OK;
    ith_dit_problems(p->dit, shape, p->sequence_ranks, 0, &self, &cross);
    if (p->listed && p->listed_batch == shape->batch)
        *info = *p->listed->info, *cost = *p->listed->cost;
    else
        status = ith_plan_cost(p->context, &self, &options, p->place.machine, p->sequence_ranks, info, cost);
    if (status)
        return status;
    *seconds = cost->seconds * p->place.crowding / own_crowding(p);
    return ITH_OK;
}

/* Simulates layers: self-attention, and before it the other work of a layer, whose price is `work`. *seconds becomes
 * the time of a layer minus this price. */
static ith_status simulate_layers(prediction *p, const ith_dit_shape *shape, double work, double *seconds)
{
    ith_attn_problem self, cross;
    const ith_attn_options options = attention_options(p);
    const double more = p->place.crowding / own_crowding(p);
    ith_simulation s = *p->simulation;
    ith_dit_problems(p->dit, shape, p->sequence_ranks, 0, &self, &cross);
    s.work_seconds = work / p->place.crowding; /* the simulated ranks take turns on the units */
    s.executions = s.executions ? s.executions : p->problem.layers;
    ith_status status = ith_plan_simulate(p->context, &self, &options, p->place.machine, p->sequence_ranks, &s,
                                          &p->info, &p->attention);
    *seconds = p->attention.seconds * more - work;
    return status;
}

/* The bytes of a layer that a host sends to the others in a pass, and as many that it receives, if the hosts share out
 * the weights. */
static double load_bytes(const prediction *p)
{
    ith_linear *linears[ITH_DIT_LINEARS];
    double bytes = 0;
    if (!p->problem.shard_weights || p->place.hosts < 2)
        return 0;
    ith_dit_layer_linears(&p->dit->layers[0], linears);
    for (int i = 0; i < ITH_DIT_LINEARS; i++)
        bytes += (double)ith_linear_inputs(linears[i]) * (double)ith_linear_outputs(linears[i]) *
                 (double)ith_dtype_bytes(ITH_BF16);
    return bytes * (double)(p->place.hosts - 1) / (double)p->place.hosts;
}

/* Sets the parts of cost that belong to one pass, in which each rank computes `batch` guidance branches. */
static ith_status predict_pass(prediction *p, int64_t batch)
{
    const ith_dit_shape shape = ith_video_shape(&p->model, batch);
    ith_video_seconds layer = {.place = &p->place,
                               .units = p->place.rank_units,
                               .type = p->model.types.products.rounded,
                               .ranks = p->sequence_ranks,
                               .threads = (int)ith_min64(p->place.rank_threads, ITH_THREADS_MOST),
                               .skips_self = true};
    ith_video_seconds ends = layer;
    ith_video_cost *c = &p->cost;
    ith_status status = predict_attention(p, &shape, &p->info, &p->attention, &c->attention_seconds);
    if (status)
        return status;
    ith_dit_list_layer(p->dit, &shape, p->sequence_ranks, 0, &(ith_work_list){ith_video_add_work, &layer});
    ith_dit_list_ends(p->dit, &shape, p->sequence_ranks, 0, &(ith_work_list){ith_video_add_work, &ends});
    c->linear_seconds = layer.linear, c->cross_seconds = layer.attention, c->row_seconds = layer.row;
    const double sent = load_bytes(p);
    const double load = sent > 0 ? ith_video_send_seconds(&p->place, p->place.ranks - 1, sent) : 0;
    const double computed = c->attention_seconds + layer.linear + layer.attention + layer.row;
    if (load > computed)
        c->linear_seconds += load - computed;
    if (p->simulation)
        status =
            simulate_layers(p, &shape, c->linear_seconds + c->cross_seconds + c->row_seconds, &c->attention_seconds);
    if (status)
        return status;
    c->layer_seconds = c->attention_seconds + c->linear_seconds + c->cross_seconds + c->row_seconds;
    c->ends_seconds = ith_video_seconds_all(&ends);
    c->pass_seconds = (double)p->problem.layers * c->layer_seconds + c->ends_seconds;
    return layer.status ? layer.status : ends.status;
}

/* The numbers of the latents of rank 0's tokens. */
static double share_numbers(const prediction *p)
{
    int64_t begin, count;
    ith_share(ith_latent_count(&p->model.size), p->sequence_ranks, 0, &begin, &count);
    return (double)count;
}

/* Between passes: the solver, which one thread computes, two agreements of the ranks, and with cfg parallel the
 * exchange of the branches. */
static double exchange_seconds(prediction *p, bool guided)
{
    const ith_machine *m = &p->place.view.machine;
    const double numbers = share_numbers(p), bytes = numbers * (double)sizeof(float);
    /* the solver reads x, v and the history, and writes x and the history, of which DPM-Solver++ writes one array;
     * guidance reads two branches, writes one */
    const int64_t order = p->problem.solver_order, dpmpp = p->problem.solver == ITH_SOLVER_DPMPP;
    const double rows = bytes * (double)((dpmpp ? 3 + order : 4 + 2 * order) + (guided ? 3 : 0));
    double seconds = m->row_bytes_per_second > 0 ? rows / m->row_bytes_per_second : 0;
    if (p->place.ranks > 1)
        seconds += 2 * m->start_seconds;
    if (guided && p->sequence_ranks < p->place.ranks)
        seconds += ith_video_send_seconds(&p->place, p->sequence_ranks, bytes);
    return seconds;
}

/* Sets the parts of cost that belong to one step. */
static ith_status predict_step(prediction *p, bool guided)
{
    const ith_cfg cfg = p->model.options.cfg;
    ith_video_cost *c = &p->cost;
    c->passes = guided && cfg == ITH_CFG_SEQUENTIAL ? 2 : 1;
    ith_status status = predict_pass(p, guided && cfg == ITH_CFG_BATCH ? 2 : 1);
    c->exchange_seconds = exchange_seconds(p, guided);
    c->step_seconds = (double)c->passes * c->pass_seconds + c->exchange_seconds;
    return status;
}

/* Predicts the encoding of the images, which rank 0 leads. */
static ith_status predict_images(prediction *p)
{
    const ith_video_model *m = &p->model;
    const ith_latent_size size = ith_condition_size(&m->model, &m->options, &m->size);
    const ith_vae_extent extent = {size.frames, size.height, size.width, NULL};
    ith_video_seconds seconds = led_by_one(p);
    const bool denoised = !ith_video_steps_left(&p->problem);
    if (!p->problem.images || (denoised && !ith_condition_known(&m->model, &m->options, &m->size)))
        return ITH_OK;
    ith_status status = ith_vae_encode_list(p->context, &m->model.vae, m->types.products, &extent,
                                            &(ith_work_list){ith_video_add_work, &seconds});
    for (int64_t i = 0; i < p->problem.images && p->problem.vision_dim && !status; i++)
        status = ith_vision_encoder_list(p->context, &m->model.vision, m->types.products,
                                         &(ith_work_list){ith_video_add_work, &seconds});
    p->cost.image_seconds = ith_video_seconds_all(&seconds);
    p->cost.operations += seconds.operations + seconds.attention_operations;
    return status ? status : seconds.status;
}

/* The operations of a guidance branch in one pass, on all ranks. */
static double branch_operations(const prediction *p)
{
    const ith_dit_shape shape = ith_video_shape(&p->model, 1);
    ith_video_seconds layer = {.place = &p->place, .units = 1, .ranks = 1, .threads = 1, .skips_self = true};
    ith_video_seconds ends = layer;
    ith_dit_list_layer(p->dit, &shape, 1, 0, &(ith_work_list){ith_video_add_work, &layer});
    ith_dit_list_ends(p->dit, &shape, 1, 0, &(ith_work_list){ith_video_add_work, &ends});
    return (double)p->problem.layers * (layer.operations + layer.attention_operations) + ends.operations;
}

/* Predicts the steps with one guidance branch, then the steps with both: `cost` keeps the parts of the last step. */
static ith_status predict_steps(prediction *p)
{
    const int64_t guided = p->problem.guided_steps, single = ith_video_steps_left(&p->problem) - guided;
    ith_video_cost *c = &p->cost;
    ith_status status = ITH_OK;
    for (int both = 0; both < 2 && !status; both++) {
        const int64_t steps = both ? guided : single;
        if (!steps)
            continue;
        status = predict_step(p, both);
        c->denoise_seconds += (double)steps * c->step_seconds;
        const int64_t layers = steps * c->passes * p->problem.layers;
        c->sent_bytes += layers * p->attention.sent_bytes + (int64_t)(load_bytes(p) * (double)layers);
        if (both && p->sequence_ranks < p->place.ranks)
            c->sent_bytes += steps * (int64_t)share_numbers(p) * (int64_t)sizeof(float);
    }
    c->operations += (double)(single + 2 * guided) * branch_operations(p);
    return status;
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* Prices the band of rows of one process. */
static ith_status predict_band(const prediction *p, int processes, int process, ith_video_seconds *seconds)
{
    const ith_latent_size *size = &p->model.size;
    const ith_vae_span band = ith_decode_band(size, processes, process);
    const ith_vae_extent extent = {size->frames, size->height, size->width, &band};
    *seconds = led_by_one(p);
    if (band.begin >= band.end)
        return ITH_OK;
    return ith_vae_decode_list(p->context, &p->model.model.vae, p->model.types.products, &extent,
                               &(ith_work_list){ith_video_add_work, seconds});
}

/* Predicts the decoding of the busiest process: the first one, which has the longest band, or the second one, which
 * computes rows beyond its band on both sides. */
static ith_status predict_decoding(prediction *p)
{
    const int processes = p->problem.steps ? (int)p->place.processes : 1;
    ith_video_cost *c = &p->cost;
    const double pixels = (double)p->problem.frames * (double)p->problem.height * (double)p->problem.width;
    const double row_rate = p->place.view.machine.row_bytes_per_second;
    if (!p->problem.decoder_levels)
        return ITH_OK;
    for (int process = 0; process < processes && process < 2; process++) {
        ith_video_seconds seconds;
        ith_status status = predict_band(p, processes, process, &seconds);
        if (status || seconds.status)
            return status ? status : seconds.status;
        if (ith_video_seconds_all(&seconds) > c->decode_seconds)
            c->decode_seconds = ith_video_seconds_all(&seconds);
        if (!process) /* bands overlap a little: their sum is a little more than the whole */
            c->operations += (seconds.operations + seconds.attention_operations) * processes;
    }
    const double share = 3 * pixels / processes; /* bytes of the rows of one process, for all frames */
    c->write_seconds = row_rate > 0 ? share * (1 + (double)sizeof(float)) / row_rate : 0;
    if (processes > 1) {
        c->write_seconds +=
            (double)p->problem.frames *
            ith_video_send_seconds(&p->place, p->place.ranks - 1, share * (processes - 1) / (double)p->problem.frames);
        c->sent_bytes += (int64_t)share;
    }
    return ITH_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* The memory of the first process of a host, or of another one. */
static ith_status process_bytes(const prediction *p, bool first_on_host, int64_t *bytes)
{
    const ith_video_place *place = &p->place;
    ith_generate_options options = p->model.options;
    const ith_team team = {.ranks = (int)place->ranks,
                           .count = (int)place->process_ranks,
                           .processes = (int)place->processes,
                           .hosts = (int)place->hosts,
                           .host_processes = (int)place->host_processes,
                           .first_on_host = first_on_host,
                           .shares_memory = place->processes == 1};
    const bool denoised = p->problem.steps && !ith_video_steps_left(&p->problem);
    options.threads = process_threads(place);
    options.attention = &p->options;
    const ith_predicted_run run =
        ith_predicted_run_of(&p->model.model, p->context, &options, denoised, p->model.counts, &team);
    return ith_predict_model(&run, true, bytes);
}

static ith_status predict_memory(prediction *p)
{
    int64_t other = 0, others = p->place.host_processes - 1;
    ith_status status = process_bytes(p, true, &p->cost.memory_bytes);
    if (!status && others)
        status = process_bytes(p, false, &other);
    if (!status &&
        (!ith_size_mul(other, others, &others) || !ith_size_add(p->cost.memory_bytes, others, &p->cost.host_bytes)))
        status = ith_fail(p->context, ITH_ERR_MEMORY, "the processes of a host take more memory than a size can hold");
    return status;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static ith_status read_arguments(prediction *p, const ith_video_problem *problem, const ith_attn_options *options,
                                 ith_cfg cfg, const ith_machine *machine, int ranks)
{
    ith_status status = ITH_OK;
    if (options)
        status = ITH_SIZED_READ(p->context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options, &p->options);
    if (!status)
        status = ith_video_model_make(p->context, problem, cfg, &p->problem, &p->model);
    if (!status)
        status = ith_video_place_find(p->context, machine, ranks, &p->options, p->problem.threads, &p->place);
    if (!status)
        status = ith_request_check_ranks(p->context, &p->model.options, ranks);
    if (!status && ith_video_product(&p->place.view, ITH_WORK_LINEAR, ITH_F32, 1, 1).gflops <= 0)
        status = ith_fail(p->context, ITH_ERR_UNSUPPORTED, "the machine %s has no rate of products",
                          p->place.view.machine.name);
    if (!status)
        p->sequence_ranks = ith_denoise_sequence_ranks(&p->model.model, &p->model.options, ranks);
    return status;
}

/* Predicts the stages that do not depend on the plan of self-attention. */
static ith_status predict_shared(prediction *p)
{
    const ith_video_model *m = &p->model;
    const ith_dit_choices choices = {
        .types = m->types,
        .lora = m->model.loras[0],
        .keep = ith_denoise_keep(&m->model, &m->options, 0, &m->size, (int)p->place.ranks),
    };
    ith_status status = ith_dit_sketch(p->context, &m->model.dit[0], &choices, &p->dit);
    if (!status && ith_video_steps_left(&p->problem))
        status = predict_text(p);
    if (!status)
        status = predict_images(p);
    return status ? status : predict_decoding(p);
}

/* Predicts denoising and memory, and adds up the stages. */
static ith_status predict_rest(prediction *p)
{
    ith_video_cost *c = &p->cost;
    ith_status status = p->problem.steps ? predict_steps(p) : ITH_OK;
    if (!status)
        status = predict_memory(p);
    c->seconds = c->text_seconds + c->image_seconds + c->denoise_seconds + c->decode_seconds + c->write_seconds;
    return status;
}

/* The caller's structs that a prediction fills in; info, attention: or NULL. */
typedef struct answer {
    ith_plan_info *info;
    ith_cost *attention;
    ith_video_cost *cost;
} answer;

static ith_status check_answer(ith_context *context, const answer *to)
{
    ith_status status = ITH_SIZED_CHECK(context, ith_video_cost, ITH_VIDEO_COST_INIT, to->cost);
    if (!status && to->info)
        status = ITH_SIZED_CHECK(context, ith_plan_info, ITH_PLAN_INFO_INIT, to->info);
    if (!status && to->attention)
        status = ITH_SIZED_CHECK(context, ith_cost, ITH_COST_INIT, to->attention);
    return status;
}

static ith_status fill_answer(const prediction *p, const answer *to)
{
    if (to->info)
        ITH_SIZED_FILL(p->context, ith_plan_info, ITH_PLAN_INFO_INIT, to->info, &p->info);
    if (to->attention)
        ITH_SIZED_FILL(p->context, ith_cost, ITH_COST_INIT, to->attention, &p->attention);
    return ITH_SIZED_FILL(p->context, ith_video_cost, ITH_VIDEO_COST_INIT, to->cost, &p->cost);
}

/* Predicts a video: by simulation if p->simulation is set, otherwise by the model. */
static ith_status predict(prediction *p, const ith_video_problem *problem, const ith_attn_options *options, ith_cfg cfg,
                          const ith_machine *machine, int ranks, const answer *to)
{
    ith_status status = check_answer(p->context, to);
    if (!status)
        status = read_arguments(p, problem, options, cfg, machine, ranks);
    if (!status)
        status = predict_shared(p);
    if (!status)
        status = predict_rest(p);
    ith_dit_free(p->context, &p->dit);
    ith_video_model_free(&p->model);
    return status ? status : fill_answer(p, to);
}

ith_status ith_video_predict(ith_context *context, const ith_video_problem *problem, const ith_attn_options *options,
                             ith_cfg cfg, const ith_machine *machine, int ranks, ith_plan_info *info,
                             ith_cost *attention, ith_video_cost *cost)
{
    prediction p = prediction_of(context);
    const ith_status status = ith_need(NULL, context, "context");
    return status ? status : predict(&p, problem, options, cfg, machine, ranks, &(answer){info, attention, cost});
}

ith_status ith_video_simulate(ith_context *context, const ith_video_problem *problem, const ith_attn_options *options,
                              ith_cfg cfg, const ith_machine *machine, int ranks, const ith_simulation *given,
                              ith_plan_info *info, ith_cost *attention, ith_video_cost *cost)
{
    prediction p = prediction_of(context);
    ith_simulation simulation = ITH_SIMULATION_INIT;
    ith_status status = ith_need(NULL, context, "context");
    if (!status && given)
        status = ITH_SIZED_READ(context, ith_simulation, ITH_SIMULATION_INIT, given, &simulation);
    p.simulation = &simulation;
    return status ? status : predict(&p, problem, options, cfg, machine, ranks, &(answer){info, attention, cost});
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* A list of the plans of a video. */
typedef struct listing {
    prediction *p;
    ith_video_cost shared; /* the cost of the stages that do not depend on the plan */
    ith_video_candidate_fn take;
    void *user;
    int64_t passed; /* the number of plans that were passed on */
} listing;

static ith_status pass_on(listing *l, const ith_plan_candidate *candidate, const ith_video_cost *cost)
{
    ith_callback_begin(l->p->context);
    const int returned = l->take(l->user, candidate, cost);
    return ith_callback_end(l->p->context, returned, "take", "plan", l->passed++);
}

/* Predicts the video with a plan of its self-attention, and passes both on (ith_plan_candidate_fn). A plan with which
 * the video cannot be made is not legal. */
static ith_status list_plan(void *user, const ith_plan_candidate *candidate)
{
    listing *l = user;
    prediction *p = l->p;
    if (!candidate->legal)
        return pass_on(l, candidate, NULL);
    p->listed = candidate;
    p->options = *candidate->options;
    p->cost = l->shared;
    ith_status status = predict_rest(p);
    if (!status)
        return pass_on(l, candidate, &p->cost);
    if (status != ITH_ERR_ARGUMENT && status != ITH_ERR_UNSUPPORTED)
        return status;
    ith_plan_candidate refused = {.struct_size = sizeof refused, .options = candidate->options};
    snprintf(refused.rule, sizeof refused.rule, "%s", ith_context_error(p->context));
    return pass_on(l, &refused, NULL);
}

/* Lists the plans of self-attention in the steps that compute most guidance branches. */
static ith_status list_plans(listing *l)
{
    prediction *p = l->p;
    ith_attn_problem self, cross;
    const ith_attn_options options = attention_options(p);
    p->listed_batch = p->problem.guided_steps && p->model.options.cfg == ITH_CFG_BATCH ? 2 : 1;
    const ith_dit_shape shape = ith_video_shape(&p->model, p->listed_batch);
    ith_dit_problems(p->dit, &shape, p->sequence_ranks, 0, &self, &cross);
    return ith_plan_list(p->context, &self, &options, p->place.machine, p->sequence_ranks, list_plan, l);
}

ith_status ith_video_list(ith_context *context, const ith_video_problem *problem, const ith_attn_options *options,
                          ith_cfg cfg, const ith_machine *machine, int ranks, ith_video_candidate_fn take, void *user)
{
    prediction p = prediction_of(context);
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, take ? "" : NULL, "take");
    if (!status)
        status = read_arguments(&p, problem, options, cfg, machine, ranks);
    if (!status)
        status = predict_shared(&p);
    listing l = {.p = &p, .shared = p.cost, .take = take, .user = user};
    if (!status)
        status = list_plans(&l);
    ith_dit_free(context, &p.dit);
    ith_video_model_free(&p.model);
    return status;
}
