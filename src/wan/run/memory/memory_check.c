/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the predicted memory of a run with the machine's free memory. If the run does not fit, a search over
 * precision, guidance branches, frames and size finds the smallest change that makes it fit. */
#include "run_memory.h"

#include "../../../base/context.h"
#include "../../../base/size.h"

#include <stdio.h>

/* The state of the search for options that fit into memory. */
typedef struct search {
    ith_pipeline *pipeline;
    ith_context *context;
    bool denoised; /* all steps are done in the saved run */
    const ith_team *team;
    int64_t free_bytes;
    ith_generate_options best; /* the last options that fit */
    int64_t best_bytes;        /* predicted bytes with `best` */
    int64_t least_bytes;       /* the least predicted bytes so far, with any options */
} search;

/* A number of bytes as text, returned by value. */
typedef struct byte_text {
    char text[32];
} byte_text;

static byte_text print_bytes(int64_t bytes)
{
    byte_text out;
    if (bytes < 1000000000)
        snprintf(out.text, sizeof out.text, "%.1f MB", (double)bytes / 1e6);
    else
        snprintf(out.text, sizeof out.text, "%.1f GB", (double)bytes / 1e9);
    return out;
}

/* Whether a run with these options fits into the free memory. If it fits, the options are kept as s->best. */
static bool fits(search *s, const ith_generate_options *options)
{
    int64_t bytes = 0;
    if (ith_predict(s->pipeline, s->context, options, s->denoised, s->team, &bytes))
        return false;
    s->least_bytes = ith_min64(s->least_bytes, bytes);
    if (bytes > s->free_bytes)
        return false;
    s->best = *options, s->best_bytes = bytes;
    return true;
}

/* Finds the largest number of frames that fits, by bisection. */
static bool fewer_frames_fit(search *s, ith_generate_options options)
{
    int64_t stride = s->pipeline->model->info.frame_stride;
    int64_t fit = -1, too_many = (options.frames - 1) / stride; /* both are numbers of latent frames after the first */
    while (too_many - fit > 1) {
        int64_t middle = fit + (too_many - fit) / 2;
        options.frames = middle * stride + 1;
        if (fits(s, &options))
            fit = middle;
        else
            too_many = middle;
    }
    return fit >= 0;
}

/* Tries 3/4, 1/2 and 1/4 of the height and width, and stops at the first size with which the run fits into memory. */
static bool smaller_pictures_fit(search *s, ith_generate_options options)
{
    int64_t multiple = s->pipeline->model->info.size_multiple, height = options.height, width = options.width;
    for (int quarters = 3; quarters > 0; quarters--) {
        options.height = ith_max64(height * quarters / 4 / multiple, 1) * multiple;
        options.width = ith_max64(width * quarters / 4 / multiple, 1) * multiple;
        if (fits(s, &options))
            return true;
    }
    return false;
}

/* Tries changes in this order until the run fits: keep_packed and shard_weights off, also in all later attempts;
 * guidance branches computed one after the other; precision bf16; both; both and fewer frames; both and a smaller
 * picture. A run from latents has neither guidance nor another size, so of these it tries precision bf16 alone. A
 * resumed run keeps the precision and the size of the saved run, so it tries the order of the branches alone. */
static bool find_fitting(search *s, const ith_generate_options *asked)
{
    ith_generate_options mapped = *asked;
    if (asked->keep_packed == ITH_KEEP_ALL)
        mapped.keep_packed = ITH_KEEP_NONE;
    if (ith_shards_weights(asked, s->team) && !s->team->lends)
        mapped.shard_weights = 0;
    const bool is_other = mapped.keep_packed != asked->keep_packed || mapped.shard_weights != asked->shard_weights;
    if (is_other && fits(s, &mapped))
        return true;
    ith_generate_options in_turn = mapped, bf16 = mapped, both = mapped;
    in_turn.cfg = both.cfg = ITH_CFG_SEQUENTIAL;
    bf16.precision = both.precision = ITH_PRECISION_BF16;
    if (asked->from_latents)
        return fits(s, &bf16);
    if (asked->resume_file)
        return fits(s, &in_turn);
    return fits(s, &in_turn) || fits(s, &bf16) || fits(s, &both) || fewer_frames_fit(s, both) ||
           smaller_pictures_fit(s, both);
}

/* Writes the options of `other` that differ from `asked` to `text`: ", keep_packed off, precision bf16, cfg
 * sequential, frames 21". */
static void describe_changes(const ith_generate_options *asked, const ith_generate_options *other, char *text,
                             size_t bytes)
{
    char frames[48] = "", size[64] = "";
    if (other->frames != asked->frames)
        snprintf(frames, sizeof frames, ", frames %lld", (long long)other->frames);
    if (other->height != asked->height || other->width != asked->width)
        snprintf(size, sizeof size, ", height %lld, width %lld", (long long)other->height, (long long)other->width);
    snprintf(text, bytes, "%s%s%s%s%s%s", other->keep_packed != asked->keep_packed ? ", keep_packed off" : "",
             other->shard_weights != asked->shard_weights ? ", shard_weights off" : "",
             other->precision != asked->precision ? ", precision bf16" : "",
             other->cfg != asked->cfg ? ", cfg sequential" : "", frames, size);
}

/* The options that would need less memory on a device, as the end of a sentence; "" if there are none. */
static const char *less_on_device(const ith_generate_options *options, bool denoised)
{
    if (options->from_latents)
        return options->precision == ITH_PRECISION_BF16 ? "" : ": precision bf16 needs less";
    if (options->resume_file)
        return denoised ? "" : ": cfg sequential needs less";
    return ": cfg sequential, precision bf16, fewer frames or a smaller picture need less";
}

/* Compares the predicted memory on the context's device, if it uses one, with the memory that the run may take there.
 */
static ith_status check_device(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                               bool denoised, const ith_team *team)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    ith_device_need need;
    ith_status status = ith_predict_device(pipeline, context, options, denoised, team, &need);
    if (!status && need.bytes)
        status = ith_device_describe(context, &info);
    if (status || !need.bytes)
        return status;
    const int64_t streamed = ith_max64(need.streamed[0], need.streamed[1]);
    if (need.bytes <= options->device_memory) {
        if (streamed)
            ith_log(context, ITH_LOG_INFO,
                    "%s has no room for %lld of the transformer's layers: their weights wait in pinned memory of this "
                    "machine, and each pass copies them",
                    info.name, (long long)streamed);
        return ITH_OK;
    }
    return ith_fail(context, ITH_ERR_MEMORY,
                    "this run needs at least %s on the device %s, and may take %s of its %s%s; force tries it all the "
                    "same",
                    print_bytes(need.bytes).text, info.name, print_bytes(options->device_memory).text,
                    print_bytes(info.memory_bytes).text, less_on_device(options, denoised));
}

/* Writes the options with which the run would fit into s->free_bytes, or the least memory that it would need. */
static void advise(search *s, const ith_generate_options *options, char *advice, size_t bytes)
{
    char changes[192];
    const char *where = s->team->host_processes > 1 ? " in this process" : "";
    if (!find_fitting(s, options)) {
        snprintf(advice, bytes, "the least that other options would need is %s%s", print_bytes(s->least_bytes).text,
                 where);
        return;
    }
    describe_changes(options, &s->best, changes, sizeof changes);
    snprintf(advice, bytes, "%s%s would do with %s", print_bytes(s->best_bytes).text, where, changes + 2);
}

ith_status ith_check_memory(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                            bool denoised, const ith_team *team, const ith_memory_balance *balance)
{
    const ith_memory_limit *free = &balance->machine.free, *shared = &balance->machine.shared;
    if (options->force)
        return ITH_OK;
    ith_status status = check_device(pipeline, context, options, denoised, team);
    const bool host_lacks = balance->host_bytes > shared->bytes;
    if (status || (balance->bytes <= free->bytes && !host_lacks))
        return status;
    search s = {.pipeline = pipeline,
                .context = context,
                .denoised = denoised,
                .team = team,
                .free_bytes = free->bytes,
                .least_bytes = balance->bytes};
    if (host_lacks) { /* a part of the shared memory, in proportion to this process's need */
        const double part = (double)balance->bytes / (double)balance->host_bytes;
        s.free_bytes = ith_min64(free->bytes, (int64_t)(part * (double)shared->bytes));
    }
    char advice[256];
    advise(&s, options, advice, sizeof advice);
    if (balance->bytes > free->bytes)
        return ith_fail(context, ITH_ERR_MEMORY,
                        "this run holds %s at its peak, and %s %s: %s; force tries it all the same",
                        print_bytes(balance->bytes).text, print_bytes(free->bytes).text, free->source, advice);
    return ith_fail(context, ITH_ERR_MEMORY,
                    "the %d processes of this host hold %s at their peak, this one %s, and %s %s: %s; force tries it "
                    "all the same",
                    team->host_processes, print_bytes(balance->host_bytes).text, print_bytes(balance->bytes).text,
                    print_bytes(shared->bytes).text, shared->source, advice);
}
