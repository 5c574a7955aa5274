/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a model's files from rank 0's process to the processes that lack them (lend.h). The lender sends for each file
 * a head, a list of ranges of bytes, and the bytes. A head without a name is the last one. */
#include "lend.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/lent_files.h"
#include "../../base/size.h"
#include "../../comm/comm.h"
#include "../../files/mapping.h"
#include "../../files/suffix.h"
#include "../../files/tensor.h"
#include "../names/module_names.h"
#include "../source/weight_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((int64_t)1 << 20) /* the most bytes of one broadcast */
#define NAME_BYTES 512                 /* more than a subfolder and the longest name of a file have */

/* The head of a file that is sent. */
typedef struct file_head {
    char name[NAME_BYTES]; /* path in the model's folder; "": no more files */
    int64_t bytes, range_count;
} file_head;

/* Bytes of a file that are sent. */
typedef struct byte_range {
    int64_t begin, bytes;
} byte_range;

/* The lender, the processes that lack the model, and their state. */
typedef struct lending {
    ith_context *context;
    ith_comm *group; /* rank 0 of it is the lender */
    const char *folder;
    char *piece; /* [PIECE_BYTES] on the lender */
} lending;

/* ---- The lender ------------------------------------------------------------------------------------------------ */

/* Whether other processes read a tensor of a file. file: its path in the model's folder. */
static bool is_needed(const char *file, const ith_tensor *tensor)
{
    if (ith_name_after(file, "text_encoder/") || ith_name_after(file, "image_encoder/"))
        return false;
    if (ith_name_after(file, "vae/"))
        return !ith_name_after(tensor->name, "encoder.") && !ith_name_after(tensor->name, "quant_conv.");
    return !ith_name_after(tensor->name, "blocks.") || tensor->dims != 2 || !ith_suffix(tensor->name, ".weight");
}

/* Lists the ranges of a .safetensors file that other processes read: its header and the tensors that they need. */
static ith_status list_ranges(const lending *l, const char *name, const char *path, byte_range **ranges, int64_t *count)
{
    ith_tensor_file *file = NULL;
    *ranges = NULL, *count = 0;
    ith_status status = ith_tensor_file_open(l->context, path, &file);
    const int64_t tensors = ith_tensor_file_count(file);
    if (!status && !(*ranges = ith_alloc(l->context, tensors + 1, sizeof **ranges, "a list of weights")))
        status = ITH_ERR_MEMORY;
    if (!status) {
        (*ranges)[(*count)++] = (byte_range){0, ith_tensor_file_offset(file, NULL)};
        for (int64_t i = 0; i < tensors; i++) {
            const ith_tensor *tensor = ith_tensor_file_at(file, i);
            if (is_needed(name, tensor))
                (*ranges)[(*count)++] = (byte_range){ith_tensor_file_offset(file, tensor), tensor->bytes};
        }
    }
    ith_tensor_file_close(&file);
    return status;
}

static ith_status send_range(const lending *l, const char *path, const ith_mapping *file, byte_range range)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < range.bytes && !status; done += PIECE_BYTES) {
        const int64_t bytes = ith_min64(PIECE_BYTES, range.bytes - done);
        status = ith_mapping_copy(l->context, path, l->piece, file->data + range.begin + done, bytes);
        if (!status)
            status = ith_comm_broadcast(l->group, l->piece, bytes, 0);
    }
    return status;
}

/* Sends these ranges of one file. ranges NULL: the whole file. */
static ith_status send_ranges(const lending *l, const char *name, const char *path, byte_range *ranges, int64_t count)
{
    ith_mapping file;
    ith_status status = ith_mapping_open(l->context, path, &file);
    if (status)
        return status;
    file_head head = {.bytes = file.bytes, .range_count = ranges ? count : 1};
    byte_range whole = {0, file.bytes};
    snprintf(head.name, sizeof head.name, "%s", name);
    if (!ranges)
        ranges = &whole;
    status = ith_comm_broadcast(l->group, &head, sizeof head, 0);
    if (!status)
        status = ith_comm_broadcast(l->group, ranges, head.range_count * (int64_t)sizeof *ranges, 0);
    for (int64_t i = 0; i < head.range_count && !status; i++)
        status = send_range(l, path, &file, ranges[i]);
    ith_mapping_close(&file);
    return status;
}

/* Sends one file. A folder that is named like a file is left out. */
static ith_status send_file(const lending *l, const char *name)
{
    byte_range *ranges = NULL;
    int64_t count = 0;
    char *path = ith_format(l->context, "%s/%s", l->folder, name);
    ith_status status = path ? ITH_OK : ITH_ERR_MEMORY;
    const bool file = path && !ith_is_folder(path);
    if (file && ith_suffix(name, ".safetensors"))
        status = list_ranges(l, name, path, &ranges, &count);
    if (file && !status)
        status = send_ranges(l, name, path, ranges, count);
    ith_free(l->context, ranges);
    ith_free(l->context, path);
    return status;
}

static int is_model_file(const struct dirent *entry)
{
    static const char *const kinds[] = {".json", ".yaml", ".model", ".safetensors"};
    for (int i = 0; i < ITH_COUNT(kinds); i++)
        if (ith_suffix(entry->d_name, kinds[i]))
            return 1;
    return 0;
}

/* Sends the files of a subfolder of the model's folder. name: its name and a '/'; "": the model's folder itself. */
static ith_status send_folder(const lending *l, const char *name)
{
    struct dirent **entries = NULL;
    char *path = ith_format(l->context, "%s/%s", l->folder, name);
    if (!path)
        return ITH_ERR_MEMORY;
    const int count = scandir(path, &entries, is_model_file, alphasort);
    ith_status status = ITH_OK;
    if (count < 0 && errno != ENOENT)
        status = ith_fail(l->context, ITH_ERR_IO, "cannot read the folder %s: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char file[NAME_BYTES];
        snprintf(file, sizeof file, "%s%s", name, entries[i]->d_name);
        if (!status)
            status = send_file(l, file);
        free(entries[i]);
    }
    free(entries);
    ith_free(l->context, path);
    return status;
}

static ith_status lend(lending *l)
{
    static const char *const folders[] = {
        "",     "scheduler/",     "tokenizer/",      "text_encoder/", "transformer/", "transformer_2/",
        "vae/", "image_encoder/", "image_processor/"};
    file_head last = {.name = ""};
    ith_status status = ITH_OK;
    l->piece = ith_alloc(l->context, PIECE_BYTES, 1, "sending a model");
    if (!l->piece)
        return ITH_ERR_MEMORY;
    for (int i = 0; i < ITH_COUNT(folders) && !status; i++)
        status = send_folder(l, folders[i]);
    if (!status)
        status = ith_comm_broadcast(l->group, &last, sizeof last, 0);
    ith_free(l->context, l->piece);
    return status;
}

/* ---- The others ------------------------------------------------------------------------------------------------ */

static ith_status receive_range(const lending *l, ith_lent_file *file, byte_range range)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < range.bytes && !status; done += PIECE_BYTES) {
        const int64_t bytes = ith_min64(PIECE_BYTES, range.bytes - done);
        void *to = ith_lent_file_fill(l->context, file, range.begin + done, bytes);
        status = to ? ith_comm_broadcast(l->group, to, bytes, 0) : ITH_ERR_MEMORY;
    }
    return status;
}

static ith_status receive_file(const lending *l, const file_head *head)
{
    ith_lent_file *file = NULL;
    byte_range *ranges = ith_alloc(l->context, head->range_count, sizeof *ranges, "a list of weights");
    char *path = ith_format(l->context, "%s/%s", l->folder, head->name);
    ith_status status = ranges && path ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_comm_broadcast(l->group, ranges, head->range_count * (int64_t)sizeof *ranges, 0);
    if (!status)
        status = ith_lent_file_create(l->context, path, head->bytes, &file);
    for (int64_t i = 0; i < head->range_count && !status; i++)
        status = receive_range(l, file, ranges[i]);
    if (file)
        ith_lent_file_end(file);
    ith_free(l->context, ranges);
    ith_free(l->context, path);
    return status;
}

static ith_status borrow(const lending *l)
{
    ith_status status;
    file_head head;
    while (!(status = ith_comm_broadcast(l->group, &head, sizeof head, 0)) && head.name[0])
        if ((status = receive_file(l, &head)))
            break;
    return status;
}

/* ---- Both ------------------------------------------------------------------------------------------------------ */

static bool lacks(ith_context *context, const char *path)
{
    return access(ith_lent_path(context, path), F_OK) && (errno == ENOENT || errno == ENOTDIR);
}

/* Writes the path of a model's index. The caller has it on the stack: a lack of memory must not look like a lack of the
 * file. Returns false if no path is so long. */
static bool print_index(const char *folder, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/model_index.json", folder) < PATH_MAX;
}

static bool lacks_model(ith_context *context, const char *folder)
{
    char path[PATH_MAX];
    return print_index(folder, path) && lacks(context, path);
}

bool ith_model_is_lent(ith_context *context, const char *folder)
{
    char path[PATH_MAX];
    return print_index(folder, path) && ith_lent_path(context, path) != path;
}

/* Whether the rank is the lowest one of its process. */
static bool is_first(const ith_comm *comm, int rank)
{
    for (int lower = 0; lower < rank; lower++)
        if (ith_comm_place_of(comm, lower).process == ith_comm_place_of(comm, rank).process)
            return false;
    return true;
}

/* The numbers that ith_model_lend sums over the ranks. LENDERS is 1 if rank 0 has a model. UNSUITED is 1 if rank 0 has
 * a folder that is no diffusers checkpoint. WITHOUT_FOLDER is the number of ranks without the folder. */
enum { LENDERS, UNSUITED, WITHOUT_FOLDER, COUNTS };

static ith_status ask_all(ith_comm *comm, const char *folder, float sum[COUNTS])
{
    const int rank = ith_comm_rank(comm);
    const bool model = !lacks_model(comm->context, folder), absent = lacks(comm->context, folder) && !model;
    sum[LENDERS] = !rank && model, sum[UNSUITED] = !rank && !model && !absent, sum[WITHOUT_FOLDER] = absent;
    ith_status status = ith_comm_allreduce(comm, sum, COUNTS, ITH_REDUCE_SUM);
    if (status || !(sum[UNSUITED] > 0 && sum[WITHOUT_FOLDER] > 0))
        return status;
    if (!rank)
        status = ith_fail(comm->context, ITH_ERR_UNSUPPORTED,
                          "%s has no model_index.json, so it is not sent to processes that lack the folder: give every "
                          "process the files, or take a folder in the layout of diffusers, such as "
                          "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
                          folder);
    return ith_comm_agree(comm, status);
}

static ith_status lend_model(ith_comm *comm, const char *folder)
{
    ith_context *context = comm->context;
    ith_status status = ith_comm_agree(comm, ith_need(context, folder, "folder"));
    float sum[COUNTS];
    if (!status)
        status = ask_all(comm, folder, sum);
    if (status)
        return status;
    const int rank = ith_comm_rank(comm);
    const bool lacking = is_first(comm, rank) && lacks_model(context, folder);
    lending l = {.context = context, .folder = folder};
    if (sum[LENDERS] == 1.0f)
        status = ith_comm_split(comm, !rank || lacking, rank, &l.group);
    if (!status && l.group && (!rank || lacking) && ith_comm_size(l.group) > 1)
        status = rank ? borrow(&l) : lend(&l);
    if (!status)
        status = ith_comm_barrier(comm); /* ranks of the processes that have borrowed the model see its files */
    ith_comm_destroy(&l.group);
    return status;
}

/* The call holds its communicator, which another thread may destroy meanwhile. */
ith_status ith_model_lend(ith_comm *comm, const char *folder)
{
    ith_comm_hold(comm);
    ith_status status = comm ? lend_model(comm, folder) : ITH_OK;
    ith_comm_release(comm);
    return status;
}

const char *ith_model_file(ith_context *context, const char *path)
{
    return context && path ? ith_lent_path(context, path) : path;
}
