/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes latents, a band of rows in each process, or all rows on rank 0's device (decode.h). */
#include "decode.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/trace.h"
#include "../vae/vae_device.h"
#include "frames.h"

ith_vae_span ith_decode_band(const ith_latent_size *size, int processes, int process)
{
    int64_t begin, count;
    ith_share(size->height, processes, process, &begin, &count);
    return (ith_vae_span){begin, begin + count};
}

static int64_t rgb_bytes(const ith_vae_config *config, const ith_latent_size *size, const ith_vae_span *rows)
{
    return (rows->end - rows->begin) * config->stride_space * size->width * config->stride_space * 3;
}

/* The bytes of ith_frames.rgb: of a whole frame on rank 0, otherwise of the process's own rows. */
static int64_t frame_bytes(const ith_vae_config *config, const ith_latent_size *size, int processes, int process)
{
    const ith_vae_span all = {0, size->height}, band = ith_decode_band(size, processes, process);
    return rgb_bytes(config, size, process ? &band : &all);
}

/* The number of ith_frames.parts. */
static int part_count(int processes, int process)
{
    return process ? 1 : processes - 1;
}

/* The number of processes that decode. */
static int decoding_processes(const ith_generate_options *options, const ith_team *team)
{
    return options->from_latents ? 1 : team->processes;
}

ith_status ith_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                            const ith_generate_options *options, const ith_latent_size *size, const ith_team *team,
                            int64_t *bytes)
{
    const int processes = decoding_processes(options, team), process = team->process;
    *bytes = 0;
    if (process >= processes)
        return ITH_OK;
    const ith_vae_span band = ith_decode_band(size, processes, process);
    const ith_vae_extent extent = {size->frames, size->height, size->width, &band};
    ith_status status = ITH_OK;
    if (band.begin < band.end)
        status = ith_vae_decode_bytes(context, config, types, &extent, bytes);
    *bytes += frame_bytes(config, size, processes, process) +
              part_count(processes, process) * (int64_t)sizeof(ith_transfer) + 2 * ITH_ALLOC_HEADER;
    return status;
}

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

/* Lists the transfers that gather a frame: on rank 0 a receive from each other process, elsewhere a send to rank 0. */
static void list_parts(ith_frames *f, const ith_vae_config *config, const ith_latent_size *size, int processes)
{
    const int process = f->rank->team.process;
    for (int i = 0; i < f->part_count; i++) {
        const int owner = process ? process : i + 1;
        const ith_vae_span band = ith_decode_band(size, processes, owner), above = {0, band.begin};
        uint8_t *rows = process ? f->rgb : f->rgb + rgb_bytes(config, size, &above);
        f->parts[i] = (ith_transfer){process ? 0 : owner,
                                     {.data = rows, .count = {1, 1}, .bytes = rgb_bytes(config, size, &band)}};
    }
}

static ith_status make_frames(ith_rank *rank, const ith_vae_config *config, int processes, ith_frames *out)
{
    const ith_latent_size *size = &rank->size;
    const int process = rank->team.process;
    *out = (ith_frames){.rank = rank,
                        .height = size->height * config->stride_space,
                        .width = size->width * config->stride_space,
                        .part_count = part_count(processes, process)};
    out->rgb = ith_alloc(rank->context, frame_bytes(config, size, processes, process), 1, "a frame");
    out->parts = ith_alloc(rank->context, out->part_count, sizeof *out->parts, "the rows of a frame");
    if (!out->rgb || !out->parts)
        return ITH_ERR_MEMORY;
    list_parts(out, config, size, processes);
    return ITH_OK;
}

static void free_frames(const ith_frames *f)
{
    ith_free(f->rank->context, f->parts);
    ith_free(f->rank->context, f->rgb);
}

/* ---- Decoding -------------------------------------------------------------------------------------------------- */

static ith_status open_decoder(ith_rank *rank, ith_vae **vae)
{
    double start = ith_clock_seconds();
    ith_observer_set_activity(rank->context, "opening the autoencoder");
    ith_status status = ith_rank_open_vae(rank, ITH_VAE_DECODER, vae);
    rank->report.load_seconds += ith_clock_seconds() - start;
    return status;
}

/* Decodes this process's band of all frames. A process without rows has no autoencoder, and takes part in the gathering
 * of each frame. */
static ith_status decode_band(ith_rank *rank, const ith_vae *vae, const ith_vae_span *band, int processes)
{
    const ith_latent_size *size = &rank->size;
    const ith_vae_extent extent = {size->frames, size->height, size->width, band};
    const ith_vae_config *config = &rank->pipeline->model->vae;
    const int64_t count = (size->frames - 1) * config->stride_time + 1;
    ith_frames frames;
    ith_status status = make_frames(rank, config, processes, &frames);
    ith_frames_set_activity(rank, 0);
    if (!status && vae)
        status = ith_vae_decode(rank->context, vae, rank->pipeline->shared.latents, &extent, ith_frames_take, &frames,
                                &rank->report.load_seconds);
    for (int64_t index = 0; index < count && !status && !vae; index++)
        status = ith_frames_take(&frames, index, NULL, 0, 0);
    free_frames(&frames);
    return status;
}

/* Sets *alone to whether rank 0's process decodes alone, because it has a device that decodes. All leaders call it. */
static ith_status decide_alone(ith_rank *rank, int processes, int32_t *alone)
{
    const char *reason;
    *alone = ith_vae_device_serves(rank->context, &reason);
    return processes > 1 ? ith_comm_broadcast(rank->leaders, alone, sizeof *alone, 0) : ITH_OK;
}

static ith_status decode(ith_rank *rank, int processes)
{
    const ith_vae_span band = ith_decode_band(&rank->size, processes, rank->team.process);
    float *latents = rank->pipeline->shared.latents;
    ith_vae *vae = NULL;
    ith_status status = ITH_OK;
    if (processes > 1)
        status =
            ith_comm_broadcast(rank->leaders, latents, ith_latent_count(&rank->size) * (int64_t)sizeof *latents, 0);
    if (!status && band.begin < band.end)
        status = open_decoder(rank, &vae);
    const double start = ith_clock_seconds(), loaded = rank->report.load_seconds;
    if (!status)
        status = decode_band(rank, vae, &band, processes);
    rank->report.decode_seconds +=
        ith_clock_seconds() - start - rank->report.decode_sink_seconds - (rank->report.load_seconds - loaded);
    ith_vae_free(rank->context, &vae);
    return status;
}

ith_status ith_decode(ith_rank *rank, void *user)
{
    (void)user;
    int processes = decoding_processes(&rank->options, &rank->team);
    int32_t alone = 0;
    if (rank->team.process >= processes)
        return ITH_OK;
    ith_context_set_device_use(rank->context, rank->device);
    ith_status status = decide_alone(rank, processes, &alone);
    if (!status && alone)
        processes = 1;
    if (!status && rank->team.process < processes)
        status = decode(rank, processes);
    ith_context_set_device_use(rank->context, NULL);
    if (status && processes > 1) /* the other processes wait for this one's rows, and must learn its error message */
        status = ith_rank_fail(rank, ith_observer_say_activity(rank->context, status));
    return status;
}
