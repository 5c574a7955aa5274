#ifndef ITH_DNN_PRECISION_H
#define ITH_DNN_PRECISION_H

/* In what the operands of matrix products and convolutions are held. Sums are f32 always. */
typedef enum ith_precision { ITH_PRECISION_AUTO = 0, ITH_PRECISION_F32, ITH_PRECISION_BF16 } ith_precision;

/* Of an operand. */
static inline int ith_precision_bytes(ith_precision precision)
{
    return precision == ITH_PRECISION_BF16 ? 2 : 4;
}

#endif
