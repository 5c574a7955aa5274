/* SPDX-License-Identifier: Apache-2.0 */
/* Makes files of a model under other names, in the fixture's folder (folder_fixture.h), and checks the video or the
 * refusal that such files give. */
#ifndef ITH_TESTS_MODEL_PARTS_H
#define ITH_TESTS_MODEL_PARTS_H

#include "support/engine/repackage.h"

#include <ithaca/wan.h>

#define MODEL "../models/shapes"
#define SIDE 16
#define NONE ITH_DTYPE_NONE

/* The path of a file in the folder. */
const char *in_folder(const char *name);
void make_folder(const char *name);
/* from: a path; to: a name in the folder */
void copy_file(const char *from, const char *to);
/* Writes a component of a model into the new folder `to`, as the file NAME, or as NAME-0000i-of-0000n in `parts`
 * shards. Writes its config.json too, unless its sizes follow from its tensors. */
void make_part_of(const char *model, const char *part, const char *to, const char *name, rename_fn *rename,
                  const char *prefix, ith_dtype type, int parts);
/* The same with a component of MODEL. */
void make_part(const char *part, const char *to, const char *name, rename_fn *rename, const char *prefix,
               ith_dtype type, int parts);
/* All components, with the names of the original code and these prefixes, as in a repository of original weights. */
void make_original(const char *dit_prefix, ith_dtype type, int parts);

typedef struct frame {
    uint8_t rgb[SIDE * SIDE * 3];
} frame;

/* Returns the only frame of a video that both experts make, or, with `boundary` 0, the first expert alone. */
frame video_with(const ith_model_files *files, double boundary, const ith_image *image);
/* The same of both experts, without an image. */
frame video_of(const ith_model_files *files);
/* The same of the model in a folder. */
frame video_of_folder(const char *path);
/* Checks that two frames are equal, and not of one colour. */
void assert_same(const frame *a, const frame *b);
/* Checks that a model of these files is refused with a sentence that has these words. */
void assert_files_refused(ith_model_files files, ith_status wanted, const char *words);

#endif
