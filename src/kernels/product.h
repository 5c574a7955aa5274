/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of product kernels, which compute the matrix products of linear layers and convolutions. kernels.inc
 * lists them; plain C in ref/ defines the result of each.
 *
 * A product kernel computes
 *
 *     out[i][j] (+)= sum over k < steps of left[i][k] right[k][j]
 *
 * left     Rows of numbers that are contiguous along k: the weights of a linear layer (row i belongs to output feature
 *          i), or the pixels of a frame (the channels of neighbouring pixels lie side by side). They are broadcast.
 *
 * right    Panels of `columns` columns, packed in the kernel's own order: rows of activations of a linear layer (column
 *          j is a row of x), or the filters of a convolution (column j belongs to output channel j). A panel stays in
 *          the first-level cache; its columns lie in the lanes of vectors.
 *
 * out      f32. A linear layer gets y transposed, [features][rows of x], and a convolution gets [pixels][channels].
 *
 * So weights need no transposition: pack_left only converts numbers. Some kernels also take an interleaved left operand
 * (see `interleave`), and are faster with it. The caller cuts k into blocks of about `depth` steps, and left into
 * blocks of rows that fit the second-level cache (the loops of BLIS, doi:10.1145/2764454).
 *
 * A left operand consists of parts. With most kernels it has one part: the numbers themselves, as f32 in kernels of
 * type F32, as bf16 in kernels of type BF16. A kernel of type F32 with parts = 3 writes each number as the sum of up to
 * three bf16 numbers: an f32 needs three, an f16 two, a bf16 one. Part n is the matrix of the n-th of these numbers.
 *
 * Every kernel must keep these rules.
 *   - out[i][j] depends on row i of left, on column j of right, on the bounds of the blocks of k, and on the old
 *     out[i][j] if the call adds. It does not depend on the positions of i and j, on `rows` or `columns`, or on the
 *     thread.
 *   - It accepts every rows >= 0, every columns from 0 to the kernel's `columns`, and every steps >= 1. It reads
 *     only rows [0, rows) and steps [0, steps) of left, rounded up to a whole tile of rows if it is interleaved. It
 *     writes only rows [0, rows) and columns [0, columns) of out. `out` overlaps no operand.
 *   - Sums are f32. Products of bf16 are exact in f32. Against float64 the error is at most the error of a sum in f32
 *     in any order.
 *   - NaN and infinity in row i of left or in column j of right reach only the numbers out[i][*] or out[*][j]. */
#ifndef ITH_KERNELS_PRODUCT_H
#define ITH_KERNELS_PRODUCT_H

#include "kernel.h"

/* The largest number of parts of a left operand. */
#define ITH_PRODUCT_PARTS_MAX 3

/* A request to convert contiguous numbers of a left operand, such as a row or some of its steps. */
typedef struct ith_product_left {
    const void *x;   /* [count] numbers of `dtype`, aligned to their type */
    ith_dtype dtype; /* F32, BF16 or F16 */
    bool rounds;     /* the numbers are rounded to bf16 (to nearest, ties to even) first */
    int64_t count;
    void *to;           /* where part 0 is written: [count] f32 if the kernel has type F32 and parts = 1, else bf16 */
    int64_t part_bytes; /* bytes from one part to the next */
} ith_product_left;

/* A request to pack columns [first, first + count) of a right panel. Other columns stay as they are. */
typedef struct ith_product_right {
    const float *const *x; /* [count] pointers to columns, `steps` contiguous numbers each; NULL: a column of zeros */
    bool rounds;           /* the numbers are rounded to bf16 first; a kernel of type BF16 rounds them always */
    int64_t steps;         /* steps of the whole panel */
    int64_t first, count;
    void *panel; /* aligned to 64 */
} ith_product_right;

/* A request to pack steps [first, first + count) of all columns of a right panel from a transposed matrix, such as
 * `out` of a linear layer's product. `first` is a multiple of the kernel's `step`, and so is `count` unless first +
 * count = steps. */
typedef struct ith_product_turned {
    const float *x; /* [count][stride]: row k has the numbers of step first + k, one for each column of the panel */
    int64_t stride; /* numbers between two rows of x, at least the kernel's `columns` */
    bool rounds;    /* as in ith_product_right */
    int64_t steps;  /* steps of the whole panel */
    int64_t first, count;
    void *panel; /* aligned to 64 */
} ith_product_turned;

/* One call of a product kernel: a block of left by one panel of right. */
typedef struct ith_product_call {
    int64_t rows, columns, steps;
    const void *left;    /* part 0 of the first row */
    int64_t left_stride; /* bytes between two rows of a part */
    int64_t part_bytes;  /* bytes between two parts */
    int parts;           /* parts of left, at most the kernel's `parts` */
    bool interleaved;    /* left is interleaved (see `interleave`), and parts is 1 */
    const void *right;   /* a packed panel of `steps` steps, or a part of one (see `step`); aligned to 64 */
    float *out;
    int64_t out_stride; /* numbers between two rows of out */
    bool adds;          /* the products are added to out; otherwise they overwrite it, and out is not read */
    /* Memory that is read after this call. The kernel may fetch some of it into the second-level cache; addresses that
     * do not exist do no harm. */
    const void *next;         /* the right panel of the next call, as many bytes as this call's panel; NULL: none */
    const void *next_left;    /* rows that pack_left converts next, or converted rows that are multiplied next;
                                 NULL: none */
    int64_t next_left_rows;   /* number of these rows; 0 if next_left is NULL */
    int64_t next_left_bytes;  /* bytes of each row; a kernel may fetch up to 4 * steps bytes instead */
    int64_t next_left_stride; /* bytes between two of these rows */
    const void *next_out;     /* rows that the caller writes after this call, NULL: none */
    int64_t next_out_rows;    /* number of these rows; 0 if next_out is NULL */
    int64_t next_out_bytes;   /* bytes of each row */
    int64_t next_out_stride;  /* bytes between two of these rows */
} ith_product_call;

/* A product kernel: its name, its requirements, its sizes and its functions. */
typedef struct ith_product_kernel {
    const char *name; /* shorter than ITH_ATTN_NAME_BYTES, without spaces */
    uint32_t cpu;     /* the instruction sets that the kernel needs, as ith_cpu_feature bits */
    ith_dtype type;   /* F32: products have the precision of f32; BF16: both operands are rounded to bf16 */
    int parts;        /* parts of an f32 number on the left: 1, or 3 if f32 is computed as sums of bf16 */
    int64_t rows;     /* rows of the tile in registers; calls are fastest if their rows are a multiple of it */
    int64_t columns;  /* columns of a right panel */
    int64_t lanes;    /* a call takes as long for any number of columns as for the next multiple of `lanes` */
    int64_t step;     /* a panel can be cut at every step k that is a multiple of `step`: the steps from k on lie
                         right_bytes(k) behind its beginning, and are a panel themselves */
    int64_t depth;    /* the best number of steps of a call, a multiple of `step` */
    /* The best sizes for a linear layer. block_bytes: bytes of a block of left with all its parts, which stays in the
     * second-level cache while it is multiplied by every right panel of a strip. strip: columns of all these panels, a
     * multiple of `columns`. A faster kernel needs more columns to make up for the conversion of weights, and more rows
     * to make up for the reading of right panels. */
    int64_t block_bytes, strip;
    /* span: the largest number of columns for which a thread computes all blocks of k before it goes on to other
     * columns of the strip, so that their sums stay in the second-level cache; a multiple of `columns`, or 0: the whole
     * strip. The thread keeps the converted weights of all blocks meanwhile. block_steps: steps of a block, a multiple
     * of `step`; 0: depth. */
    int64_t span, block_steps;
    /* The instructions of the products if left has 1, 2 or 3 parts (index parts - 1). */
    ith_instructions instructions[ITH_PRODUCT_PARTS_MAX];
    /* Bytes of a right panel of `steps` steps, a multiple of 64. */
    int64_t (*right_bytes)(int64_t steps);
    void (*pack_left)(const ith_product_left *left);
    /* Some kernels also take an interleaved left operand, which has the steps of one call. Its tiles have `rows` rows,
     * counted from the first row on. The first interleaved_rows rows of a tile are interleaved: number k of row r lies
     * at [k][r], from the place on where the tile's first row begins in a plain operand. The other rows of the tile lie
     * where they lie in a plain operand. Results have the same bits. 0: the kernel takes plain rows only. */
    int64_t interleaved_rows;
    /* Interleaves interleaved_rows rows of `steps` converted numbers, `stride` numbers apart. NULL if that is 0. */
    void (*interleave)(const float *x, int64_t stride, int64_t steps, float *to);
    void (*pack_right)(const ith_product_right *right);
    void (*pack_turned)(const ith_product_turned *turned);
    void (*multiply)(const ith_product_call *call);
} ith_product_kernel;

/* Initialises the function pointers of an ith_product_kernel with functions of the same names, which the kernel's file
 * defines. */
#define ITH_PRODUCT_FUNCTIONS                                                                                          \
    .right_bytes = right_bytes, .pack_left = pack_left, .pack_right = pack_right, .pack_turned = pack_turned,          \
    .multiply = multiply

/* Returns product kernel number `index`; NULL beyond the last. */
const ith_product_kernel *ith_product_kernel_at(int index);
/* Returns the first product kernel of this type (F32 or BF16) that needs only instruction sets among the
 * ith_cpu_feature bits `cpu`. NULL if there is none; there is always one for F32. */
const ith_product_kernel *ith_product_kernel_choose(ith_dtype type, uint32_t cpu);
/* Returns the first product kernel of type F32 that multiplies f32 numbers themselves, not as sums of bf16. */
const ith_product_kernel *ith_product_kernel_exact(uint32_t cpu);
/* The number of parts that pack_left writes for numbers of `dtype`, or for numbers that are rounded to bf16 first. */
int ith_product_parts(const ith_product_kernel *kernel, ith_dtype dtype, bool rounds);

#endif
