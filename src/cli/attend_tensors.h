/* The tensors of `ithaca attend`: read from one file, written to another. */
#ifndef ITH_CLI_ATTEND_TENSORS_H
#define ITH_CLI_ATTEND_TENSORS_H

#include <ithaca/files.h>

typedef struct ith_attend_tensors {
    ith_tensor_file *file;
    ith_attn_problem problem; /* whole, with strides, of the type that is computed in */
    const void *q, *k, *v;    /* whole: in the file's mapping, or in copies[] */
    float *key_bias;          /* [B, Skv] or NULL */
    void *o;                  /* [B, Sq, H, D] */
    float *lse;               /* [B, H, Sq] */
    ith_dtype stored;         /* of q in the file, and of o when it is written */
    void *copies[3];
} ith_attend_tensors;

/* Reads q, k, v, and kv_lengths, mask and the scale if they are there. compute: the type to compute in, NONE for the
 * stored one. Prints what is wrong and returns an exit status. */
int ith_attend_read(ith_context *context, const char *path, ith_dtype compute, ith_attend_tensors *t);
/* Writes o and lse. */
int ith_attend_write(ith_context *context, const char *path, ith_attend_tensors *t, const char *plan);
void ith_attend_free(ith_attend_tensors *t);

#endif
