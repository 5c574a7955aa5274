/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with the file names, configurations and tensor shapes of published repositories are opened as the right
 * model, or refused with a sentence that names the model. The files are sparse: their tensors have no data. The shapes
 * come from the original code (golden/published.json, tools/make_name_golden.py). */
#include "support/engine/sparse_weights.h"
#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <ithaca/wan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* ---- Configurations ---------------------------------------------------------------------------------------------- */

typedef struct text_file {
    const char *name, *text;
} text_file;

#define COMPONENTS                                                                                                     \
    "\"scheduler\": [\"diffusers\", \"UniPCMultistepScheduler\"], \"text_encoder\": [\"transformers\", "               \
    "\"UMT5EncoderModel\"], \"tokenizer\": [\"transformers\", \"T5TokenizerFast\"], \"transformer\": [\"diffusers\", " \
    "\"WanTransformer3DModel\"], \"vae\": [\"diffusers\", \"AutoencoderKLWan\"], \"_diffusers_version\": \"0.35.0\""
#define SECOND "\"transformer_2\": [\"diffusers\", \"WanTransformer3DModel\"]"
#define DIT(heads, ffn, layers, in, out, added, image)                                                                 \
    "{\"_class_name\": \"WanTransformer3DModel\", \"_diffusers_version\": \"0.33.0\", \"added_kv_proj_dim\": " added   \
    ", \"attention_head_dim\": 128, \"cross_attn_norm\": true, \"eps\": 1e-06, \"ffn_dim\": " ffn                      \
    ", \"freq_dim\": 256, \"image_dim\": " image ", \"in_channels\": " in ", \"num_attention_heads\": " heads          \
    ", \"num_layers\": " layers ", \"out_channels\": " out ", \"patch_size\": [1, 2, 2], \"qk_norm\": "                \
    "\"rms_norm_across_heads\", \"rope_max_seq_len\": 1024, \"text_dim\": 4096}"
#define SCHEDULER(shift)                                                                                               \
    {                                                                                                                  \
        "scheduler/scheduler_config.json",                                                                             \
            "{\"_class_name\": \"UniPCMultistepScheduler\", \"flow_shift\": " shift ", \"use_flow_sigmas\": true, "    \
            "\"prediction_type\": \"flow_prediction\", \"predict_x0\": true, \"solver_order\": 2, \"solver_type\": "   \
            "\"bh2\", \"lower_order_final\": true, \"final_sigmas_type\": \"zero\", \"num_train_timesteps\": 1000, "   \
            "\"timestep_spacing\": \"linspace\", \"thresholding\": false, \"disable_corrector\": []}"                  \
    }
#define UMT5                                                                                                           \
    {                                                                                                                  \
        "text_encoder/config.json",                                                                                    \
            "{\"architectures\": [\"UMT5EncoderModel\"], \"d_ff\": 10240, \"d_kv\": 64, \"d_model\": 4096, "           \
            "\"dense_act_fn\": \"gelu_new\", \"feed_forward_proj\": \"gated-gelu\", \"is_gated_act\": true, "          \
            "\"layer_norm_epsilon\": 1e-06, \"model_type\": \"umt5\", \"num_heads\": 64, \"num_layers\": 24, "         \
            "\"relative_attention_max_distance\": 128, \"relative_attention_num_buckets\": 32, "                       \
            "\"scalable_attention\": true, \"tie_word_embeddings\": false, \"vocab_size\": 256384}"                    \
    }
/* without mean and deviation, which have their defaults */
#define VAE_21                                                                                                         \
    {                                                                                                                  \
        "vae/config.json",                                                                                             \
            "{\"_class_name\": \"AutoencoderKLWan\", \"attn_scales\": [], \"base_dim\": 96, \"dim_mult\": [1, 2, 4, "  \
            "4], \"dropout\": 0.0, \"num_res_blocks\": 2, \"temperal_downsample\": [false, true, true], \"z_dim\": "   \
            "16}"                                                                                                      \
    }
#define WITH_CLIP                                                                                                      \
    "\"image_encoder\": [\"transformers\", \"CLIPVisionModel\"], \"image_processor\": [\"transformers\", "             \
    "\"CLIPImageProcessor\"], "
#define CLIP                                                                                                           \
    {                                                                                                                  \
        "image_encoder/config.json",                                                                                   \
            "{\"architectures\": [\"CLIPVisionModel\"], \"attention_dropout\": 0.0, \"dropout\": 0.0, "                \
            "\"hidden_act\": \"gelu\", \"hidden_size\": 1280, \"image_size\": 224, \"initializer_factor\": 1.0, "      \
            "\"initializer_range\": 0.02, \"intermediate_size\": 5120, \"layer_norm_eps\": 1e-05, "                    \
            "\"model_type\": \"clip_vision_model\", \"num_attention_heads\": 16, \"num_channels\": 3, "                \
            "\"num_hidden_layers\": 32, \"patch_size\": 14, \"projection_dim\": 1024, \"torch_dtype\": \"float16\", "  \
            "\"transformers_version\": \"4.46.2\"}"                                                                    \
    }
#define CLIP_PROCESSOR                                                                                                 \
    {                                                                                                                  \
        "image_processor/preprocessor_config.json",                                                                    \
            "{\"crop_size\": {\"height\": 224, \"width\": 224}, \"do_center_crop\": true, \"do_convert_rgb\": true, "  \
            "\"do_normalize\": true, \"do_rescale\": true, \"do_resize\": true, \"image_mean\": [0.48145466, "         \
            "0.4578275, 0.40821073], \"image_processor_type\": \"CLIPImageProcessor\", \"image_std\": [0.26862954, "   \
            "0.26130258, 0.27577711], \"resample\": 3, \"rescale_factor\": 0.00392156862745098, \"size\": "            \
            "{\"shortest_edge\": 224}}"                                                                                \
    }
#define ORIGINAL_DIT(type, dim, ffn, heads, in, out, layers)                                                           \
    "{\"_class_name\": \"WanModel\", \"_diffusers_version\": \"0.30.0\", \"dim\": " dim                                \
    ", \"eps\": 1e-06, \"ffn_dim\": " ffn ", \"freq_dim\": 256, \"in_dim\": " in ", \"model_type\": \"" type           \
    "\", \"num_heads\": " heads ", \"num_layers\": " layers ", \"out_dim\": " out ", \"text_len\": 512}"

/* ---- Repositories ------------------------------------------------------------------------------------------------ */

typedef struct repository {
    const char *name, *kind; /* kind: the model that is opened; NULL: it is refused */
    const char *refusal;     /* a word of the sentence */
    text_file texts[8];
    sparse_weights files[6];
    /* files that the caller names in the folder; NULL: the folder is searched */
    const char *dit, *dit_high, *dit_low, *vae, *text_encoder, *image_encoder;
} repository;

#define TEXT_F32                                                                                                       \
    {                                                                                                                  \
        "text_encoder/model", "umt5", 24, "F32", SPARSE_DIFFUSERS, 5, NULL, 0                                          \
    }
#define TEXT_BF16                                                                                                      \
    {                                                                                                                  \
        "text_encoder/model", "umt5", 24, "BF16", SPARSE_DIFFUSERS, 3, NULL, 0                                         \
    }
#define VAE_F32                                                                                                        \
    {                                                                                                                  \
        "vae/diffusion_pytorch_model", "vae_2.1", 0, "F32", SPARSE_DIFFUSERS, 1, NULL, 0                               \
    }
#define DIFFUSERS_DIT(name, model, layers, shards, extra)                                                              \
    {                                                                                                                  \
        name "/diffusion_pytorch_model", model, layers, "F32", SPARSE_DIFFUSERS, shards, extra, 0                      \
    }
#define COMFY_TEXT                                                                                                     \
    {                                                                                                                  \
        "split_files/text_encoders/umt5_xxl_fp16", "umt5", 24, "F16", SPARSE_DIFFUSERS, 1, NULL, 0                     \
    }
#define COMFY_VAE                                                                                                      \
    {                                                                                                                  \
        "split_files/vae/wan_2.1_vae", "vae_2.1", 0, "BF16", SPARSE_ORIGINAL, 1, NULL, 0                               \
    }
#define COMFY_DIT(name, model, layers)                                                                                 \
    {                                                                                                                  \
        "split_files/diffusion_models/" name, model, layers, "F16", SPARSE_ORIGINAL, 1, NULL, 0                        \
    }
#define ORIGINAL_FILE(name, model, layers, shards, extra)                                                              \
    {                                                                                                                  \
        name, model, layers, "F32", SPARSE_ORIGINAL, shards, extra, 0                                                  \
    }

#define GGUF_DIT(name, model, layers, type, extra)                                                                     \
    {                                                                                                                  \
        name, model, layers, type, SPARSE_GGUF, 1, extra, 0                                                            \
    }
#define GGUF_TEXT                                                                                                      \
    {                                                                                                                  \
        "umt5-xxl-encoder-Q8_0", "umt5", 24, "q8_0", SPARSE_GGUF, 1, NULL, 0                                           \
    }

#define VISION(name, forms)                                                                                            \
    {                                                                                                                  \
        name, "vision", 32, "F16", forms, 1, NULL, 0                                                                   \
    }

static const repository repositories[] = {
    {.name = "Wan2.1-T2V-1.3B-Diffusers",
     .kind = "Wan2.1-T2V-1.3B",
     .texts = {{"model_index.json", "{\"_class_name\": \"WanPipeline\", " COMPONENTS "}"},
               {"transformer/config.json", DIT("12", "8960", "30", "16", "16", "null", "null")},
               SCHEDULER("3.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "1.3B", 30, 2, NULL), TEXT_F32, VAE_F32}},
    {.name = "Wan2.1-T2V-14B-Diffusers",
     .kind = "Wan2.1-T2V-14B",
     .texts = {{"model_index.json", "{\"_class_name\": \"WanPipeline\", " COMPONENTS "}"},
               {"transformer/config.json", DIT("40", "13824", "40", "16", "16", "null", "null")},
               SCHEDULER("3.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "14B", 40, 12, NULL), TEXT_F32, VAE_F32}},
    {.name = "Wan2.2-T2V-A14B-Diffusers",
     .kind = "Wan2.2-T2V-A14B",
     .texts = {{"model_index.json",
                "{\"_class_name\": \"WanPipeline\", \"boundary_ratio\": 0.875, " SECOND ", " COMPONENTS "}"},
               {"transformer/config.json", DIT("40", "13824", "40", "16", "16", "null", "null")},
               {"transformer_2/config.json", DIT("40", "13824", "40", "16", "16", "null", "null")},
               SCHEDULER("3.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "14B", 40, 12, NULL), DIFFUSERS_DIT("transformer_2", "14B", 40, 12, NULL),
               TEXT_BF16, VAE_F32}},
    {.name = "Wan2.2-I2V-A14B-Diffusers",
     .kind = "Wan2.2-I2V-A14B",
     .texts = {{"model_index.json",
                "{\"_class_name\": \"WanImageToVideoPipeline\", \"boundary_ratio\": 0.9, "
                "\"image_encoder\": [null, null], \"image_processor\": [null, null], " SECOND ", " COMPONENTS "}"},
               {"transformer/config.json", DIT("40", "13824", "40", "36", "16", "null", "null")},
               {"transformer_2/config.json", DIT("40", "13824", "40", "36", "16", "null", "null")},
               SCHEDULER("3.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "I2V", 40, 12, NULL), DIFFUSERS_DIT("transformer_2", "I2V", 40, 12, NULL),
               TEXT_BF16, VAE_F32}},
    {.name = "Wan2.1-I2V-14B-480P-Diffusers",
     .kind = "Wan2.1-I2V-14B-480P",
     .texts = {{"model_index.json", "{\"_class_name\": \"WanImageToVideoPipeline\", " WITH_CLIP COMPONENTS "}"},
               {"transformer/config.json", DIT("40", "13824", "40", "36", "16", "5120", "1280")},
               CLIP,
               CLIP_PROCESSOR,
               SCHEDULER("3.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "I2V-2.1", 40, 14, NULL), TEXT_F32, VAE_F32,
               VISION("image_encoder/model", SPARSE_DIFFUSERS)}},
    {.name = "Wan2.1-FLF2V-14B-720P-diffusers",
     .kind = "Wan2.1-FLF2V-14B-720P",
     .texts = {{"model_index.json", "{\"_class_name\": \"WanImageToVideoPipeline\", " WITH_CLIP COMPONENTS "}"},
               {"transformer/config.json",
                DIT("40", "13824", "40", "36", "16", "5120", "1280, \"pos_embed_seq_len\": 514")},
               CLIP,
               CLIP_PROCESSOR,
               SCHEDULER("16.0"),
               UMT5,
               VAE_21},
     .files = {DIFFUSERS_DIT("transformer", "FLF2V-2.1", 40, 14, NULL), TEXT_F32, VAE_F32,
               VISION("image_encoder/model", SPARSE_DIFFUSERS)}},
    {.name = "Wan2.1-VACE-14B-diffusers",
     .refusal = "WanVACEPipeline",
     .texts = {{"model_index.json", "{\"_class_name\": \"WanVACEPipeline\", " COMPONENTS "}"}}},
    {.name = "Wan2.1-T2V-1.3B",
     .kind = "Wan2.1-T2V-1.3B",
     .texts = {{"config.json", ORIGINAL_DIT("t2v", "1536", "8960", "12", "16", "16", "30")},
               {"Wan2.1_VAE.pth", "PK"},
               {"models_t5_umt5-xxl-enc-bf16.pth", "PK"}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "1.3B", 30, 1, NULL),
               {"other/umt5_xxl_fp16", "umt5", 24, "F16", SPARSE_DIFFUSERS, 1, NULL, 0},
               {"other/wan_2.1_vae", "vae_2.1", 0, "BF16", SPARSE_ORIGINAL, 1, NULL, 0}}},
    {.name = "Wan2.1-T2V-1.3B as it is",
     .refusal = "Wan2.1_VAE.pth is a PyTorch pickle",
     .texts = {{"config.json", ORIGINAL_DIT("t2v", "1536", "8960", "12", "16", "16", "30")}, {"Wan2.1_VAE.pth", "PK"}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "1.3B", 30, 1, NULL)}},
    {.name = "Wan2.2-T2V-A14B",
     .kind = "Wan2.2-T2V-A14B",
     .texts = {{"configuration.json", "{}"},
               {"high_noise_model/config.json", ORIGINAL_DIT("t2v", "5120", "13824", "40", "16", "16", "40")},
               {"low_noise_model/config.json", ORIGINAL_DIT("t2v", "5120", "13824", "40", "16", "16", "40")}},
     .files = {ORIGINAL_FILE("high_noise_model/diffusion_pytorch_model", "14B", 40, 6, NULL),
               ORIGINAL_FILE("low_noise_model/diffusion_pytorch_model", "14B", 40, 6, NULL), COMFY_TEXT, COMFY_VAE}},
    {.name = "Wan2.2-TI2V-5B",
     .kind = "Wan2.2-TI2V-5B",
     .texts = {{"config.json", ORIGINAL_DIT("ti2v", "3072", "14336", "24", "48", "48", "30")}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "5B", 30, 3, NULL),
               {"split_files/vae/wan2.2_vae", "vae_2.2", 0, "F16", SPARSE_ORIGINAL, 1, NULL, 0},
               COMFY_TEXT}},
    {.name = "Wan2.1-I2V-14B-720P",
     .kind = "Wan2.1-I2V-14B-720P",
     .texts = {{"config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")}},
     .files = {ORIGINAL_FILE("wan2.1-i2v-720p/diffusion_pytorch_model", "I2V-2.1", 40, 7, NULL), COMFY_TEXT, COMFY_VAE,
               VISION("clip_vision_h", SPARSE_DIFFUSERS)}},
    {.name = "Wan2.1-I2V-14B-720P without its image encoder",
     .refusal = "models_clip_open-clip-xlm-roberta-large-vit-huge-14.pth is a PyTorch pickle",
     .texts = {{"config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")},
               {"models_clip_open-clip-xlm-roberta-large-vit-huge-14.pth", "PK"}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "I2V-2.1", 40, 7, NULL), COMFY_TEXT, COMFY_VAE}},
    {.name = "Wan2.1-FLF2V-14B-720P",
     .kind = "Wan2.1-FLF2V-14B-720P",
     .texts = {{"config.json", ORIGINAL_DIT("flf2v", "5120", "13824", "40", "36", "16", "40")}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "FLF2V-2.1", 40, 7, NULL), COMFY_TEXT, COMFY_VAE,
               VISION("clip_visual_fp16", SPARSE_ORIGINAL)}},
    {.name = "Wan2.1-VACE-1.3B",
     .refusal = "a VACE model",
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "1.3B", 30, 1, "vace_blocks.0.after_proj.bias"), COMFY_TEXT,
               COMFY_VAE}},
    {.name = "Wan2.2-S2V-14B",
     .refusal = "S2V",
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "14B", 40, 4, "casual_audio_encoder.weights"), COMFY_TEXT,
               COMFY_VAE}},
    {.name = "Wan2.2-Animate-14B",
     .refusal = "an Animate model",
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "I2V", 40, 4, "face_adapter.fuser_blocks.0.k_norm.weight"),
               COMFY_TEXT, COMFY_VAE}},
    {.name = "Wan2.1-Fun-14B-Control",
     .refusal = "Fun-Control",
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "14B", 40, 1, "ref_conv.bias"), COMFY_TEXT, COMFY_VAE}},
    {.name = "Wan2.2-Fun-A14B-Control-Camera",
     .refusal = "a Fun-Camera model",
     .files = {ORIGINAL_FILE("high_noise_model/diffusion_pytorch_model", "I2V", 40, 1, "control_adapter.conv.bias"),
               ORIGINAL_FILE("low_noise_model/diffusion_pytorch_model", "I2V", 40, 1, "control_adapter.conv.bias"),
               COMFY_TEXT, COMFY_VAE}},
    {.name = "HuMo-17B",
     .refusal = "HuMo, a model with audio",
     .files = {ORIGINAL_FILE("HuMo-17B/humo", "I2V", 40, 6, "audio_proj.audio_proj_glob_1.layer.bias"), COMFY_TEXT,
               COMFY_VAE}},
    {.name = "MeiGen-AI/MeiGen-MultiTalk, in the folder of Wan2.1-I2V-14B-480P",
     .refusal = "MultiTalk or another model with audio",
     .texts = {{"config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "I2V", 40, 7, "audio_proj.proj1.bias"), COMFY_TEXT, COMFY_VAE}},
    {.name = "MeiGen-AI/MeiGen-MultiTalk, multitalk.safetensors alone",
     .refusal = "it holds a part of MultiTalk or another model with audio",
     .files = {{"multitalk", "none", 0, "F16", SPARSE_ORIGINAL, 1, "audio_proj.proj1.bias", 0}, COMFY_TEXT, COMFY_VAE},
     .dit = "multitalk.safetensors",
     .vae = "split_files/vae/wan_2.1_vae.safetensors",
     .text_encoder = "split_files/text_encoders/umt5_xxl_fp16.safetensors"},
    /* has the inputs of I2V-14B, and no tensor or field that tells it apart */
    {.name = "Wan2.1-Fun-14B-InP",
     .kind = "Wan2.1-I2V-14B-480P",
     .texts = {{"config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")}},
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "I2V-2.1", 40, 1, NULL), COMFY_TEXT, COMFY_VAE,
               VISION("clip_vision_h", SPARSE_DIFFUSERS)}},
    /* has the inputs of I2V-A14B, and no tensor or field that tells it apart */
    {.name = "Wan2.2-Fun-A14B-InP",
     .kind = "Wan2.2-I2V-A14B",
     .texts = {{"high_noise_model/config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")},
               {"low_noise_model/config.json", ORIGINAL_DIT("i2v", "5120", "13824", "40", "36", "16", "40")}},
     .files = {ORIGINAL_FILE("high_noise_model/diffusion_pytorch_model", "I2V", 40, 1, NULL),
               ORIGINAL_FILE("low_noise_model/diffusion_pytorch_model", "I2V", 40, 1, NULL), COMFY_TEXT, COMFY_VAE}},
    {.name = "decart-ai/Lucy-Edit-Dev",
     .refusal = "LucyEditPipeline",
     .texts = {{"model_index.json", "{\"_class_name\": \"LucyEditPipeline\", " COMPONENTS "}"},
               {"transformer/config.json", DIT("24", "14336", "30", "96", "48", "null", "null")},
               SCHEDULER("5.0"),
               UMT5}},
    {.name = "Lucy-Edit in a single file",
     .refusal = "(Lucy-Edit)",
     .files = {{"Wan2_2_Lucy-Edit-Dev_fp16", "Lucy-Edit", 30, "F16", SPARSE_ORIGINAL, 1, NULL, 0},
               {"vae/wan2.2_vae", "vae_2.2", 0, "F16", SPARSE_ORIGINAL, 1, NULL, 0},
               COMFY_TEXT}},
    {.name = "FastWan2.1-T2V-1.3B with sparse attention",
     .refusal = "sparse attention (VSA)",
     .files = {ORIGINAL_FILE("diffusion_pytorch_model", "1.3B", 30, 1, "blocks.0.to_gate_compress.bias"), COMFY_TEXT,
               COMFY_VAE}},
    {.name = "Kijai/WanVideo_comfy, plain fp8",
     .kind = "Wan2.1-T2V-14B",
     .files = {{"Wan2_1-T2V-14B_fp8_e4m3fn", "14B", 40, "F16", SPARSE_ORIGINAL, 1, NULL, 3},
               {"umt5-xxl-enc-bf16", "umt5", 24, "BF16", SPARSE_ORIGINAL, 1, NULL, 0},
               {"Wan2_1_VAE_bf16", "vae_2.1", 0, "BF16", SPARSE_ORIGINAL, 1, NULL, 0}}},
    {.name = "city96/Wan2.1-T2V-14B-gguf",
     .kind = "Wan2.1-T2V-14B",
     .files = {GGUF_DIT("wan2.1-t2v-14b-Q4_K_M", "14B", 40, "q4_k", NULL), GGUF_TEXT, COMFY_VAE}},
    {.name = "city96/Wan2.1-I2V-14B-480P-gguf",
     .kind = "Wan2.1-I2V-14B-480P",
     .files = {GGUF_DIT("wan2.1-i2v-14b-480p-Q8_0", "I2V-2.1", 40, "q8_0", NULL), GGUF_TEXT, COMFY_VAE,
               VISION("split_files/clip_vision/clip_vision_h", SPARSE_DIFFUSERS)}},
    {.name = "city96/Wan2.1-FLF2V-14B-720P-gguf",
     .kind = "Wan2.1-FLF2V-14B-720P",
     .files = {GGUF_DIT("wan2.1-flf2v-14b-720p-Q4_K_M", "FLF2V-2.1", 40, "q4_k", NULL), GGUF_TEXT, COMFY_VAE,
               VISION("split_files/clip_vision/clip_vision_h", SPARSE_DIFFUSERS)}},
    {.name = "Comfy-Org/Wan_2.1_ComfyUI_repackaged, I2V without CLIP",
     .refusal = "image_encoder",
     .files = {COMFY_DIT("wan2.1_i2v_720p_14B_fp16", "I2V-2.1", 40), COMFY_TEXT, COMFY_VAE}},
    {.name = "QuantStack/Wan2.1_14B_VACE-SPARSE_GGUF",
     .refusal = "a VACE model",
     .files = {GGUF_DIT("Wan2.1_14B_VACE-Q5_0", "14B", 40, "q5_0", "vace_patch_embedding.bias"), GGUF_TEXT, COMFY_VAE}},
    {.name = "QuantStack/Wan2.2-T2V-A14B-SPARSE_GGUF",
     .kind = "Wan2.2-T2V-A14B",
     .files = {GGUF_DIT("HighNoise/Wan2.2-T2V-A14B-HighNoise-Q5_K_M", "14B", 40, "q5_k", NULL),
               GGUF_DIT("LowNoise/Wan2.2-T2V-A14B-LowNoise-Q5_K_M", "14B", 40, "q5_k", NULL),
               {"VAE/Wan2.1_VAE", "vae_2.1", 0, "F32", SPARSE_ORIGINAL, 1, NULL, 0},
               GGUF_TEXT}},
    {.name = "QuantStack/Wan2.2-I2V-A14B-SPARSE_GGUF",
     .kind = "Wan2.2-I2V-A14B",
     .files = {GGUF_DIT("HighNoise/Wan2.2-I2V-A14B-HighNoise-Q2_K", "I2V", 40, "q2_k", NULL),
               GGUF_DIT("LowNoise/Wan2.2-I2V-A14B-LowNoise-Q2_K", "I2V", 40, "q2_k", NULL),
               {"VAE/Wan2.1_VAE", "vae_2.1", 0, "F32", SPARSE_ORIGINAL, 1, NULL, 0},
               GGUF_TEXT}},
    {.name = "QuantStack/Wan2.2-TI2V-5B-SPARSE_GGUF",
     .kind = "Wan2.2-TI2V-5B",
     .files = {GGUF_DIT("Wan2.2-TI2V-5B-Q4_1", "5B", 30, "q4_1", NULL),
               {"VAE/Wan2.2_VAE", "vae_2.2", 0, "F32", SPARSE_ORIGINAL, 1, NULL, 0},
               GGUF_TEXT}},
    {.name = "QuantStack, experts swapped",
     .refusal = "by their names they are swapped",
     .files = {GGUF_DIT("HighNoise/Wan2.2-T2V-A14B-HighNoise-Q4_0", "14B", 1, "q4_0", NULL),
               GGUF_DIT("LowNoise/Wan2.2-T2V-A14B-LowNoise-Q4_0", "14B", 1, "q4_0", NULL), COMFY_VAE, GGUF_TEXT},
     .dit_high = "LowNoise/Wan2.2-T2V-A14B-LowNoise-Q4_0.gguf",
     .dit_low = "HighNoise/Wan2.2-T2V-A14B-HighNoise-Q4_0.gguf"},
    {.name = "Comfy-Org/Wan_2.2_ComfyUI_Repackaged, T2V",
     .kind = "Wan2.2-T2V-A14B",
     .files = {COMFY_DIT("wan2.2_t2v_high_noise_14B_fp16", "14B", 40),
               COMFY_DIT("wan2.2_t2v_low_noise_14B_fp16", "14B", 40), COMFY_TEXT, COMFY_VAE}},
    {.name = "Comfy-Org/Wan_2.2_ComfyUI_Repackaged, I2V",
     .kind = "Wan2.2-I2V-A14B",
     .files = {COMFY_DIT("wan2.2_i2v_high_noise_14B_fp16", "I2V", 40),
               COMFY_DIT("wan2.2_i2v_low_noise_14B_fp16", "I2V", 40), COMFY_TEXT, COMFY_VAE},
     .dit_high = "split_files/diffusion_models/wan2.2_i2v_high_noise_14B_fp16.safetensors",
     .dit_low = "split_files/diffusion_models/wan2.2_i2v_low_noise_14B_fp16.safetensors",
     .vae = "split_files/vae/wan_2.1_vae.safetensors",
     .text_encoder = "split_files/text_encoders/umt5_xxl_fp16.safetensors"},
    {.name = "Comfy-Org/Wan_2.2_ComfyUI_Repackaged, fp8_scaled",
     .kind = "Wan2.2-T2V-A14B",
     .files = {{"wan2.2_t2v_high_noise_14B_fp8_scaled", "14B", 40, "F16", SPARSE_ORIGINAL, 1, NULL, 1},
               {"wan2.2_t2v_low_noise_14B_fp8_scaled", "14B", 40, "F16", SPARSE_ORIGINAL, 1, NULL, 1},
               COMFY_TEXT,
               COMFY_VAE}},
    {.name = "Comfy-Org, fp8_scaled without its scales",
     .refusal = "scale",
     .files = {{"wan2.1_t2v_1.3B_fp8_scaled", "1.3B", 30, "F16", SPARSE_ORIGINAL, 1, NULL, 2}, COMFY_TEXT, COMFY_VAE}},
    {.name = "Comfy-Org, experts swapped",
     .refusal = "by their names they are swapped",
     .files = {COMFY_DIT("wan2.2_t2v_high_noise_14B_fp16", "14B", 1),
               COMFY_DIT("wan2.2_t2v_low_noise_14B_fp16", "14B", 1), COMFY_TEXT, COMFY_VAE},
     .dit_high = "split_files/diffusion_models/wan2.2_t2v_low_noise_14B_fp16.safetensors",
     .dit_low = "split_files/diffusion_models/wan2.2_t2v_high_noise_14B_fp16.safetensors"},
    {.name = "Comfy-Org, one expert for both",
     .refusal = "by their names both are for high noise",
     .files = {COMFY_DIT("wan2.2_t2v_high_noise_14B_fp16", "14B", 1), COMFY_TEXT, COMFY_VAE},
     .dit_high = "split_files/diffusion_models/wan2.2_t2v_high_noise_14B_fp16.safetensors",
     .dit_low = "split_files/diffusion_models/wan2.2_t2v_high_noise_14B_fp16.safetensors"},
    {.name = "Comfy-Org, one expert alone",
     .refusal = "one of two experts",
     .files = {COMFY_DIT("wan2.2_t2v_high_noise_14B_fp16", "14B", 1), COMFY_TEXT, COMFY_VAE},
     .dit = "split_files/diffusion_models/wan2.2_t2v_high_noise_14B_fp16.safetensors"},
    {.name = "Comfy-Org, TI2V-5B",
     .kind = "Wan2.2-TI2V-5B",
     .files = {{"diffusion_models/wan2.2_ti2v_5B_fp16", "5B", 30, "F16", SPARSE_PREFIXED, 1, NULL, 0},
               {"vae/wan2.2_vae", "vae_2.2", 0, "F16", SPARSE_ORIGINAL, 1, NULL, 0},
               COMFY_TEXT}},
    {.name = "Comfy-Org, TI2V-5B with the autoencoder of Wan 2.1",
     .refusal = "wan2.2_vae",
     .files = {{"diffusion_models/wan2.2_ti2v_5B_fp16", "5B", 30, "F16", SPARSE_PREFIXED, 1, NULL, 0},
               COMFY_VAE,
               COMFY_TEXT}},
    {.name = "Comfy-Org, A14B with the autoencoder of Wan 2.2",
     .refusal = "wan_2.1_vae",
     .files = {COMFY_DIT("wan2.1_t2v_14B_fp16", "14B", 40),
               {"vae/wan2.2_vae", "vae_2.2", 0, "F16", SPARSE_ORIGINAL, 1, NULL, 0},
               COMFY_TEXT}},
    {.name = "Comfy-Org, two models in a folder",
     .refusal = "dit must name one",
     .files = {COMFY_DIT("wan2.1_t2v_14B_fp16", "14B", 40), COMFY_DIT("wan2.1_t2v_1.3B_fp16", "1.3B", 30), COMFY_VAE,
               COMFY_TEXT}},
    {.name = "Comfy-Org, an autoencoder for a transformer",
     .refusal = "it holds an autoencoder",
     .files = {COMFY_VAE, COMFY_TEXT},
     .dit = "split_files/vae/wan_2.1_vae.safetensors"},
    {.name = "a LoRA for a transformer",
     .refusal = "it holds a LoRA",
     .files = {{"lora", "none", 0, "F16", SPARSE_ORIGINAL, 1, "diffusion_model.blocks.0.self_attn.q.lora_A.weight", 0}},
     .dit = "lora.safetensors"},
};

static json_t *published; /* the shapes of tensors */

/* ---- Defaults ---------------------------------------------------------------------------------------------------- */

/* The defaults of a published model, from wan/configs and generate.py of the reference code. */
typedef struct defaults {
    const char *kind;
    int64_t frames, steps, area[2]; /* width and height */
    double fps, shift, high, low, boundary;
    const char *before; /* words of the negative prompt before the common ones; NULL: none */
} defaults;

static const defaults reference[] = {
    {"Wan2.1-T2V-1.3B", 81, 50, {832, 480}, 16, 5, 5, 5, 0, NULL},
    {"Wan2.1-T2V-14B", 81, 50, {1280, 720}, 16, 5, 5, 5, 0, NULL},
    {"Wan2.2-T2V-A14B", 81, 40, {1280, 720}, 16, 12, 4, 3, 0.875, NULL},
    {"Wan2.2-I2V-A14B", 81, 40, {1280, 720}, 16, 5, 3.5, 3.5, 0.9, NULL},
    {"Wan2.2-TI2V-5B", 121, 50, {1280, 704}, 24, 5, 5, 5, 0, NULL},
    {"Wan2.1-I2V-14B-480P", 81, 40, {832, 480}, 16, 3, 5, 5, 0, "镜头晃动，"},
    {"Wan2.1-I2V-14B-720P", 81, 40, {1280, 720}, 16, 5, 5, 5, 0, "镜头晃动，"},
    {"Wan2.1-FLF2V-14B-720P", 81, 50, {1280, 720}, 16, 16, 5, 5, 0, "镜头切换，镜头晃动，"},
};

/* sample_neg_prompt of the reference code, one clause on each line. */
static const char negative[] = "色调艳丽，"
                               "过曝，"
                               "静态，"
                               "细节模糊不清，"
                               "字幕，"
                               "风格，"
                               "作品，"
                               "画作，"
                               "画面，"
                               "静止，"
                               "整体发灰，"
                               "最差质量，"
                               "低质量，"
                               "JPEG压缩残留，"
                               "丑陋的，"
                               "残缺的，"
                               "多余的手指，"
                               "画得不好的手部，"
                               "画得不好的脸部，"
                               "畸形的，"
                               "毁容的，"
                               "形态畸形的肢体，"
                               "手指融合，"
                               "静止不动的画面，"
                               "杂乱的背景，"
                               "三条腿，"
                               "背景人很多，"
                               "倒着走";

static void check_defaults(const repository *r, const ith_model_info *info)
{
    const defaults *d = reference;
    while (strcmp(d->kind, info->kind) != 0)
        if (++d == reference + sizeof reference / sizeof *reference)
            fail_msg("%s: no defaults of %s are known here", r->name, info->kind);
    if (info->frames != d->frames || info->steps != d->steps || info->width != d->area[0] || info->height != d->area[1])
        fail_msg("%s: %lld frames of %lld x %lld in %lld steps", r->name, (long long)info->frames,
                 (long long)info->width, (long long)info->height, (long long)info->steps);
    if (info->fps != d->fps || info->shift != d->shift || info->boundary != d->boundary)
        fail_msg("%s: fps %g, shift %g, boundary %g", r->name, info->fps, info->shift, info->boundary);
    if (info->guidance[0] != d->high || info->guidance[1] != d->low)
        fail_msg("%s: guidance %g, %g", r->name, info->guidance[0], info->guidance[1]);
    const size_t before = d->before ? strlen(d->before) : 0;
    if (strncmp(info->negative, d->before ? d->before : "", before) || strcmp(info->negative + before, negative))
        fail_msg("%s: the negative prompt is %s", r->name, info->negative);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static const char *in(const char *name, char space[512])
{
    if (name)
        snprintf(space, 512, "%s/%s", folder, name);
    return name ? space : NULL;
}

static ith_status open_all(const repository *r, ith_pipeline **out)
{
    char names[6][512];
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = r->dit || r->dit_high ? NULL : folder;
    files.dit = in(r->dit, names[0]);
    files.dit_high = in(r->dit_high, names[1]), files.dit_low = in(r->dit_low, names[2]);
    files.vae = in(r->vae, names[3]), files.text_encoder = in(r->text_encoder, names[4]);
    files.image_encoder = in(r->image_encoder, names[5]);
    files.tokenizer = "../models/shapes/tokenizer";
    ith_status status = ith_pipeline_open_files(context, &files, out);
    return status ? status : ith_pipeline_check(*out);
}

/* The shift that a video of this size has by default. Sizes of 0: they follow from the images and the area. */
static double shift_of(ith_pipeline *pipeline, int64_t height, int64_t width, int64_t area)
{
    static const uint8_t pixel[3];
    const ith_image image = {sizeof image, pixel, 1, 1};
    ith_model_info info = ITH_MODEL_INFO_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    check(context, ith_pipeline_info(pipeline, &info));
    options.prompt = "a", options.height = height, options.width = width, options.area = area;
    options.image = &image, options.last_image = info.least_images == 2 ? &image : NULL;
    check(context, ith_pipeline_resolve(pipeline, &options));
    return options.shift;
}

/* The reference code takes a shift of 3 for I2V of Wan 2.1 in 832 x 480 and 480 x 832, and 5 in larger sizes. The shift
 * of FLF2V is the same in all sizes. */
static void check_shifts(ith_pipeline *pipeline, const char *kind)
{
    const bool varies = !strncmp(kind, "Wan2.1-I2V", 10);
    if (!varies && strncmp(kind, "Wan2.1-FLF2V", 12) != 0)
        return;
    assert_true(shift_of(pipeline, 480, 832, 0) == (varies ? 3 : 16));
    assert_true(shift_of(pipeline, 832, 480, 0) == (varies ? 3 : 16));
    assert_true(shift_of(pipeline, 720, 1280, 0) == (varies ? 5 : 16));
    assert_true(shift_of(pipeline, 0, 0, 480 * 832) == (varies ? 3 : 16));
    assert_true(shift_of(pipeline, 0, 0, 720 * 1280) == (varies ? 5 : 16));
    assert_true(shift_of(pipeline, 480, 0, 0) == (varies ? 3 : 16)); /* the picture is square */
    assert_true(shift_of(pipeline, 0, 720, 0) == (varies ? 5 : 16));
}

static void check_repository(const repository *r)
{
    ith_pipeline *pipeline = NULL;
    for (size_t i = 0; r->texts[i].name; i++)
        sparse_write_text(r->texts[i].name, r->texts[i].text);
    for (size_t i = 0; i < sizeof r->files / sizeof *r->files && r->files[i].name; i++)
        sparse_write_weights(&r->files[i], published);
    ith_status status = open_all(r, &pipeline);
    if (r->kind) {
        ith_model_info info = ITH_MODEL_INFO_INIT;
        if (status)
            fail_msg("%s: %s", r->name, ith_context_error(context));
        check(context, ith_pipeline_info(pipeline, &info));
        if (strcmp(info.kind, r->kind) != 0)
            fail_msg("%s was taken for %s", r->name, info.kind);
        check_defaults(r, &info);
        check_shifts(pipeline, info.kind);
    } else if (!status || !strstr(ith_context_error(context), r->refusal)) {
        fail_msg("%s: no '%s' in: %s", r->name, r->refusal, status ? ith_context_error(context) : "it is opened");
    }
    ith_pipeline_close(&pipeline);
}

static void published_repositories_are_recognised(void **state)
{
    published = json_load_file("golden/published.json", 0, NULL);
    assert_non_null(published);
    for (size_t i = 0; i < sizeof repositories / sizeof *repositories; i++) {
        check_repository(&repositories[i]);
        folder_tear_down(state);
        folder_set_up(state);
    }
    json_decref(published);
}

/* Sizes without a config.json come from the shapes of tensors. A tensor without elements can claim any of them. */
static void sizes_beyond_limits_are_refused(void **state)
{
    static const struct {
        const char *model, *tensor;
        int dim; /* the dimension that becomes `size`; the other ones become 0 */
        int64_t size;
        const char *word;
    } cases[] = {
        {"1.3B", "blocks.0.ffn.0.weight", 0, INT64_C(1) << 62, "feed-forward network"},
        {"1.3B", "blocks.0.ffn.0.weight", 0, INT64_C(1) << 31, "feed-forward network"},
        {"1.3B", "text_embedding.0.weight", 1, INT64_MAX, "features of the text"},
        {"1.3B", "time_embedding.0.weight", 1, INT64_C(1) << 62, "features of the time"},
        {"1.3B", "head.head.weight", 0, INT64_C(1) << 62, "channels that it makes"},
        {"umt5", "blocks.0.ffn.gate.0.weight", 0, INT64_C(1) << 62, "feed-forward network"},
        {"umt5", "blocks.0.attn.q.weight", 0, INT64_C(1) << 62, "numbers of a head"},
        {"umt5", "token_embedding.weight", 0, INT64_MAX, "do not make a umT5"},
        {"umt5", "blocks.0.pos_embedding.embedding.weight", 0, 600, "buckets"}, /* whose other dimension stays */
        {"vae_2.1", "decoder.head.0.gamma", 0, INT64_C(1) << 62, "decoder's first width"},
        {"vae_2.1", "encoder.conv1.weight", 0, INT64_C(1) << 62, "encoder's first width"},
        {"vision", "visual.pos_embedding", 1, INT64_MAX, "do not make an image encoder"},
        {"vision", "visual.transformer.0.mlp.0.weight", 0, INT64_C(1) << 62, "feed-forward network"},
    };
    repository r = {
        .name = "sizes beyond limits",
        .files = {ORIGINAL_FILE("dit", "1.3B", 2, 1, NULL), COMFY_TEXT, COMFY_VAE, VISION("clip", SPARSE_ORIGINAL)},
        .dit = "dit.safetensors",
        .vae = "split_files/vae/wan_2.1_vae.safetensors",
        .text_encoder = "split_files/text_encoders/umt5_xxl_fp16.safetensors"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        published = json_load_file("golden/published.json", 0, NULL);
        json_t *shape = json_object_get(json_object_get(published, cases[i].model), cases[i].tensor);
        assert_true((int)json_array_size(shape) > cases[i].dim);
        for (int d = 0; d < (int)json_array_size(shape) && cases[i].size != 600; d++)
            json_array_set_new(shape, (size_t)d, json_integer(0));
        json_array_set_new(shape, (size_t)cases[i].dim, json_integer(cases[i].size));
        const bool has_vision = !strcmp(cases[i].model, "vision");
        r.files[0].model = has_vision ? "I2V-2.1" : "1.3B";
        r.image_encoder = has_vision ? "clip.safetensors" : NULL;
        r.refusal = cases[i].word;
        check_repository(&r);
        json_decref(published);
        folder_tear_down(state);
        folder_set_up(state);
    }
}

/* The cache of Hugging Face has links with the names of the files, to files without them. */
static void a_link_has_the_word_of_a_model(void **state)
{
    static const char link[] = "wan2.1_i2v_720p_14B_fp16.safetensors";
    const repository r = {.name = "a link",
                          .kind = "Wan2.1-I2V-14B-720P",
                          .files = {ORIGINAL_FILE("blobs/0a1b2c", "I2V-2.1", 40, 1, NULL), COMFY_TEXT, COMFY_VAE,
                                    VISION("clip", SPARSE_DIFFUSERS)},
                          .dit = link,
                          .vae = "split_files/vae/wan_2.1_vae.safetensors",
                          .text_encoder = "split_files/text_encoders/umt5_xxl_fp16.safetensors",
                          .image_encoder = "clip.safetensors"};
    (void)state;
    published = json_load_file("golden/published.json", 0, NULL);
    assert_int_equal(symlink("blobs/0a1b2c.safetensors", temporary_path(folder, link)), 0);
    check_repository(&r);
    json_decref(published);
}

/* An eps out of range is refused in a config.json of the original code, too. */
static void eps_of_the_original_code_is_checked(void **state)
{
    static const char *const values[] = {"-1", "0", "1", "1e308"};
    char text[512];
    repository r = {.name = "eps of the original code",
                    .refusal = "eps must be between 0 and 1",
                    .texts = {{"config.json", text}},
                    .files = {ORIGINAL_FILE("dit", "1.3B", 2, 1, NULL), COMFY_TEXT, COMFY_VAE},
                    .dit = "dit.safetensors",
                    .vae = "split_files/vae/wan_2.1_vae.safetensors",
                    .text_encoder = "split_files/text_encoders/umt5_xxl_fp16.safetensors"};
    published = json_load_file("golden/published.json", 0, NULL);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text, "{\"_class_name\": \"WanModel\", \"num_heads\": 12, \"eps\": %s}", values[i]);
        check_repository(&r);
        folder_tear_down(state);
        folder_set_up(state);
    }
    json_decref(published);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_beyond_limits_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_link_has_the_word_of_a_model, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(eps_of_the_original_code_is_checked, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(published_repositories_are_recognised, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests_name("published repositories", tests, NULL, NULL);
}
