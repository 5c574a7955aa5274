/* The all-to-all of ulysses: every rank's rows of all heads become all rows of every rank's heads, and back.
 *
 * Rank u of U gets query problems ith_share(batch * heads, U, u), and the key problems that these attend to, of the
 * sequence that the U ranks hold together. Blocks go straight from the caller's [B, S share, H, D] to their place in
 * [S, problems, D]; q, k and v travel as one exchange. */
#ifndef ITH_ATTENTION_EXCHANGE_H
#define ITH_ATTENTION_EXCHANGE_H

#include "setting.h"

typedef struct ith_exchange ith_exchange;

ith_status ith_exchange_create(const ith_attn_setting *setting, ith_exchange **out);
void ith_exchange_destroy(ith_exchange **exchange);

/* What this rank computes between the two exchanges; data lie in the exchange's buffers. */
typedef struct ith_exchanged {
    int64_t first_problem, problems, first_keys, keys_count;
    int64_t q_rows, kv_rows;
    ith_rows q, k, v, o;
    float *lse;
} ith_exchanged;
const ith_exchanged *ith_exchange_result(const ith_exchange *exchange);

ith_status ith_exchange_in(ith_exchange *exchange, const ith_attn_tensors *tensors);
ith_status ith_exchange_out(ith_exchange *exchange, const ith_attn_tensors *tensors);

/* Bytes that this rank sends to others in both exchanges, without lse. */
int64_t ith_exchange_sent_bytes(const ith_exchange *exchange);

#endif
