/* SPDX-License-Identifier: Apache-2.0 */
/* The Wan diffusion transformer: one expert's weights, a prompt's keys and values, and one rank's forward pass.
 *
 * A latent [C, F, H, W] becomes a sequence of S = F * H/2 * W/2 tokens (patches of 1 x 2 x 2), f outermost, then h, w.
 * Each rank holds its ith_share of the S tokens from the embedding to the last layer. Only self-attention communicates.
 * Every other stage computes each token alone, so that its bits depend neither on other tokens nor on the number of
 * ranks.
 *
 * An expert is opened with the number types of its products and of its attention. The first and the last layer, the
 * time embedding, norms, modulation and the residual stream are always f32.
 *
 * If the context uses a device when an expert is opened, its layers are copied there, and passes compute there. The
 * time embedding and the prompts' keys are still made by the processor. */
#ifndef ITH_WAN_DIT_H
#define ITH_WAN_DIT_H

#include <ithaca/ithaca.h>

#include "../../base/observer.h"
#include "../../files/store.h"
#include "../lora/lora.h"
#include "../part/precision.h"
#include "../text/text_length.h"

#define ITH_DIT_MOST_LAYERS 4096
#define ITH_DIT_MOST_IMAGE_ROWS (1 << 16)
#define ITH_DIT_PATCH 4 /* numbers of one channel in a token: a patch of 1 x 2 x 2 */

/* The sizes of an expert, and its variants. */
typedef struct ith_dit_config {
    int64_t heads, head_dim, dim; /* dim = heads * head_dim */
    int64_t ffn_dim, layers, text_dim, freq_dim;
    int64_t in_channels, out_channels;
    int64_t patch[3], positions; /* positions: the largest number of patches along an axis */
    double eps;
    bool raw_cross; /* cross_attn_norm is false: there is no norm2, and cross-attention reads rows as they are */
    /* Wan 2.1's models from images attend to the rows of an image encoder too. image_dim: numbers of such a row; 0: the
     * model has none. image_rows: the number of rows, each of which has a learnt vector added; 0: any number, without
     * such vectors. */
    int64_t image_dim, image_rows;
} ith_dit_config;

/* Checks that all sizes are within limits, so that no product of two overflows, and the rules that they must meet
 * together. where: the beginning of the error message. */
ith_status ith_dit_config_check(ith_context *context, const char *where, const ith_dit_config *config);
/* Checks the range of eps, which is read from config.json. */
ith_status ith_dit_eps_check(ith_context *context, const char *where, double eps);

/* Reads and checks folder/config.json. If a field asks for another architecture, the error message names it. */
ith_status ith_dit_config_read(ith_context *context, const char *folder, ith_dit_config *out);

/* Sets the configuration of an expert with canonical names in `store`, from files of another origin than diffusers. If
 * folder/config.json describes a transformer, it gives the sizes, or at least the number of heads. Otherwise all sizes
 * follow from the tensors. */
ith_status ith_dit_config_find(ith_context *context, const char *folder, const ith_store *store, ith_dit_config *out);

/* The weights of an expert. Matrices lie in the mapped files, whose pages all processes of a machine share. They are
 * read-only, and all ranks of a process share them. */
typedef struct ith_dit ith_dit;
/* The choices with which an expert is made, besides its configuration. */
typedef struct ith_dit_choices {
    ith_number_types types; /* of the products and of the attention */
    ith_lora *lora;         /* changes to the weights, which outlive the expert; NULL: there are none */
    ith_linear_keep keep;   /* the linear layers that convert their weights when the expert is made, and keep them in
                               memory; the results have the same bits */
    int64_t streamed;       /* for ith_dit_open alone: number of layers whose weights lie in the host's memory and are
                               copied to the device in every pass; 0 on the processor */
} ith_dit_choices;
/* Makes the layers of an expert from its open weight files. The expert owns the store; a call that fails closes it. */
ith_status ith_dit_open(ith_context *context, const ith_dit_config *config, ith_store *store,
                        const ith_dit_choices *choices, ith_dit **out);
/* Checks that the weight files hold every tensor of the expert, by name, type and shape, and no other tensor, and that
 * every change of `lora` (NULL: none) fits one. Reads headers only. The store stays the caller's. */
ith_status ith_dit_check(ith_context *context, const ith_dit_config *config, ith_store *store, ith_lora *lora);
/* The layers that an expert with a LoRA (NULL: without one) should keep, for passes of `rows` rows on a rank: with few
 * rows, merging the LoRA anew in each pass would take a large share of the time. */
ith_linear_keep ith_dit_keep(const ith_lora *lora, int64_t rows);
/* Makes an expert with random weights of the type `type`, for benchmarks. */
ith_status ith_dit_make_random(ith_context *context, const ith_dit_config *config, ith_dtype type,
                               const ith_dit_choices *choices, ith_dit **out);
/* Sets *bytes to the memory of these random weights, which the expert holds besides ith_dit_bytes. */
ith_status ith_dit_random_bytes(ith_context *context, const ith_dit_config *config, ith_dtype type, int64_t *bytes);
void ith_dit_free(ith_context *context, ith_dit **dit);
const ith_dit_config *ith_dit_config_of(const ith_dit *dit);

/* The keys and values of one or more prompts in every layer of one expert, for cross-attention. They are made once per
 * prompt and expert. rows[b] is [counts[b], text_dim]: the text encoder's rows of prompt b without padding, at most
 * 512. The reference pads each prompt with 512 - counts[b] rows of zeros, whose keys are all alike. Here one key stands
 * for all of them, with log(512 - counts[b]) added to its logit. An ith_dit_text is read-only, and ranks share it. With
 * rows NULL the keys and values are not computed: the caller receives them into ith_dit_text_data. */
typedef struct ith_dit_text ith_dit_text;
ith_status ith_dit_text_create(ith_context *context, const ith_dit *dit, int64_t batch, const float *const *rows,
                               const int64_t *counts, ith_dit_text **out);
/* The keys and values of a text, and their bytes; NULL and 0 if text is NULL. */
void *ith_dit_text_data(const ith_dit *dit, ith_dit_text *text, int64_t *bytes);
void ith_dit_text_free(ith_context *context, ith_dit_text **text);

/* The keys and values of a video's images in every layer of an expert with image_dim. They are made once per video and
 * expert, and serve all guidance branches. rows [count, image_dim]: the image encoder's rows of all images, one image
 * after the other. With rows NULL the keys and values are not computed: the caller receives them into
 * ith_dit_image_data. */
typedef struct ith_dit_image ith_dit_image;
ith_status ith_dit_image_create(ith_context *context, const ith_dit *dit, const float *rows, int64_t count,
                                ith_dit_image **out);
/* The keys and values of images, and their bytes; NULL and 0 if image is NULL. */
void *ith_dit_image_data(const ith_dit *dit, ith_dit_image *image, int64_t *bytes);
void ith_dit_image_free(ith_context *context, ith_dit_image **image);

/* One rank's buffers and plans for latents of one size. A forward pass allocates nothing. The entries of a batch are
 * the guidance branches. */
typedef struct ith_dit_workspace ith_dit_workspace;
/* The sizes of a pass. */
typedef struct ith_dit_shape {
    int64_t batch, frames, height, width; /* size of the latents; height and width are even */
    int64_t longest_text; /* the most rows of a prompt in any later pass; 0: no prompt is longer than the first ones */
    int64_t known;        /* the first tokens, whose latents are known and whose time step is 0; 0: there are none */
    int64_t image_rows;   /* rows of the image encoder to which every token attends; 0: the model has no image_dim */
} ith_dit_shape;
/* The number of tokens S of latents of this size: one for each square of 2 x 2 in each frame. */
static inline int64_t ith_dit_token_count(int64_t frames, int64_t height, int64_t width)
{
    return frames * (height / 2) * (width / 2);
}
/* Collective over comm (NULL: one rank): all ranks succeed or all fail. dit, text and comm must outlive the
 * workspace. */
ith_status ith_dit_workspace_create(ith_context *context, const ith_dit *dit, const ith_dit_text *text,
                                    const ith_dit_shape *shape, const ith_attn_options *options, ith_comm *comm,
                                    ith_dit_workspace **out);
void ith_dit_workspace_free(ith_context *context, ith_dit_workspace **workspace);
/* Sets the prompts' keys and values (`text`) for the following passes. They must belong to the same expert, for
 * shape.batch prompts of at most shape.longest_text rows. */
void ith_dit_workspace_set_text(ith_dit_workspace *workspace, const ith_dit_text *text);
/* Sets the images' keys and values for the following passes. They must belong to the same expert, and come from
 * shape.image_rows rows. Without image_dim the model needs none. */
void ith_dit_workspace_set_image(ith_dit_workspace *workspace, const ith_dit_image *image);
/* Sets the part of the run's progress (`span`) that the next pass accounts for. After every stage of every layer, the
 * context's observer gets the progress of the pass. It gets nothing if all of span is zero. */
void ith_dit_workspace_show(ith_dit_workspace *workspace, const ith_span *span);
/* Makes the passes use the layers that `shards` loads (dit_shards.h); NULL: the layers are read from their files. comm:
 * the rank's communicator. leads: this rank is the leader of its process. */
typedef struct ith_dit_shards ith_dit_shards;
void ith_dit_workspace_set_shards(ith_dit_workspace *workspace, ith_dit_shards *shards, ith_comm *comm, bool leads);
/* The plan of the self-attention. */
const ith_plan *ith_dit_workspace_plan(const ith_dit_workspace *workspace);

/* The input of a pass: a rank's tokens. The numbers of a token are in the order (channel, patch row, patch column).
 * With a condition, the first out_channels channels of a token come from `latents`, and the others from `condition`. */
typedef struct ith_dit_tokens {
    const float *latents;   /* [batch, share of S, channels * 4]; all in_channels if there is no condition */
    int64_t batch_stride;   /* numbers from one batch entry's latents to the next; 0: all entries have the same */
    const float *known;     /* replaces the latents of the rank's tokens below shape.known; NULL: nothing does */
    const float *condition; /* [share of S, (in_channels - out_channels) * 4], for all entries; NULL: none */
} ith_dit_tokens;

/* Collective: one forward pass. out: [batch, share of S, out_channels * 4]. t: [batch], the time step of each entry,
 * except for the tokens below shape.known. The error message of ITH_ERR_INTERRUPTED names the layer. */
ith_status ith_dit_forward(ith_context *context, ith_dit_workspace *workspace, const ith_dit_tokens *tokens,
                           const float *t, float *out);

/* For tests: a function that gets the output of every stage, as rows [count, width] with count = batch * share of S, or
 * count = ith_dit_time_rows for the time embedding. A stage has the name of the module of diffusers'
 * WanTransformer3DModel with this output: patch_embedding, condition_embedder.time_embedder,
 * condition_embedder.time_proj, blocks.N.attn1, blocks.N.attn2, blocks.N.ffn, blocks.N. */
typedef void (*ith_dit_watch_fn)(void *user, const char *stage, const float *rows, int64_t count, int64_t width);
/* space: [batch * share of S, dim] numbers of the caller's memory, in which the rows of a stage are collected. */
void ith_dit_workspace_watch(ith_dit_workspace *workspace, ith_dit_watch_fn watch, void *user, float *space);

/* Convert a latent [channels, frames, height, width] to tokens and back. Only tokens [begin, begin + count) of [S,
 * channels * 4] are converted. */
void ith_dit_patchify(const float *latent, int64_t channels, const ith_dit_shape *shape, int64_t begin, int64_t count,
                      float *tokens);
void ith_dit_unpatchify(const float *tokens, int64_t channels, const ith_dit_shape *shape, int64_t begin, int64_t count,
                        float *latent);

/* Makes an expert without weights, to predict memory. It counts the same bytes as an open expert. */
ith_status ith_dit_outline(ith_context *context, const ith_dit_config *config, const ith_dit_choices *choices,
                           ith_dit **out);
/* Makes an expert of one layer without weights, to read the sizes of its linear layers. config->layers may be more.
 * Its layers keep no weights in memory, whatever choices->keep says. */
ith_status ith_dit_sketch(ith_context *context, const ith_dit_config *config, const ith_dit_choices *choices,
                          ith_dit **out);
/* Returns the exact number of bytes of an open expert without its ith_store. An expert of ith_dit_outline gives the
 * same number. */
int64_t ith_dit_bytes(const ith_dit *dit);
/* Sets *held to the bytes of an ith_dit_text for `batch` prompts of at most `longest` rows, and *making to the further
 * bytes that ith_dit_text_create needs while it computes. */
void ith_dit_text_bytes(const ith_dit *dit, int64_t batch, int64_t longest, int64_t *held, int64_t *making);
/* The same for an ith_dit_image of `rows` rows; 0 for 0 rows. */
void ith_dit_image_bytes(const ith_dit *dit, int64_t rows, int64_t *held, int64_t *making);
/* The bytes that an expert takes on its device for its weights, of which `streamed` layers are streamed to each of
 * `ranks` ranks, and for the keys and values of `texts` prompts; 0 if it computes on the processor. */
int64_t ith_dit_expert_device_bytes(const ith_dit *dit, int64_t texts, int64_t streamed, int ranks);
/* The smallest number of layers that must be streamed so that these bytes are at most `room`; all layers if not even
 * that is enough; 0 on the processor. */
int64_t ith_dit_streamed_layers(const ith_dit *dit, int64_t texts, int ranks, int64_t room);
/* The bytes of the host that streamed layers take; 0 on the processor. */
int64_t ith_dit_streamed_bytes(const ith_dit *dit, int64_t streamed);
/* A rank that need not exist, among the ranks that share the tokens of a sequence. */
typedef struct ith_dit_rank {
    int ranks, rank;                 /* number of these ranks; number of this rank among them */
    bool shared_memory;              /* whether the ranks can read one another's memory */
    const ith_attn_options *options; /* of self-attention; NULL: the defaults */
} ith_dit_rank;
/* Sets *bytes to the size of the workspace of a rank, for the number of threads that the calling thread has now.
 * shape->longest_text is the length of the longest prompt. */
ith_status ith_dit_workspace_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                   const ith_dit_rank *rank, int64_t *bytes);
/* Sets *bytes to the memory of the device that this workspace takes, with its plans; 0 on the processor. */
ith_status ith_dit_workspace_device_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                          const ith_dit_rank *rank, int64_t *bytes);

#endif
