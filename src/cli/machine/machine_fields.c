/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a machine description (machine_fields.h). machines/README.md explains them. */
#include "machine_fields.h"

#include "../shared_option/attend_options.h"

/* The word of a kind of product (ith_field.word). */
static const char *work_word(int value)
{
    static const char *const words[] = {"linear", "convolution"};
    return (unsigned)value < sizeof words / sizeof *words ? words[value] : "unknown";
}

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

#define TEXT(member) #member, ITH_FIELD_TEXT, offsetof(OWNER, member), false, sizeof(((OWNER *)0)->member), NULL
#define NAME(member) #member, ITH_FIELD_TEXT, offsetof(OWNER, member), true, sizeof(((OWNER *)0)->member), NULL
#define WHOLE(member) #member, ITH_FIELD_WHOLE, offsetof(OWNER, member), false, 0, NULL
#define NUMBER(member) #member, ITH_FIELD_NUMBER, offsetof(OWNER, member), false, 0, NULL
#define FLAG(member) #member, ITH_FIELD_FLAG, offsetof(OWNER, member), false, 0, NULL
#define WORD(member, word) #member, ITH_FIELD_WORD, offsetof(OWNER, member), true, 0, word

#define OWNER ith_machine_level
static const ith_field level_fields[] = {
    {NAME(name)},
    {WHOLE(ranks)},
    {FLAG(shares_memory)},
    {FLAG(between_hosts)},
    {NUMBER(bytes_per_second)},
    {NUMBER(group_bytes_per_second)},
    {NUMBER(latency_seconds)},
    {NUMBER(copy_bytes_per_second)},
    {NUMBER(overlap)},
    {NUMBER(setup_seconds)},
};
#undef OWNER

#define OWNER ith_machine_attention
static const ith_field attention_fields[] = {
    {NAME(kernel)},
    {WORD(dtype, ith_attend_dtype_word)},
    {WORD(softmax, ith_attend_softmax_word)},
    {"head_dim", ITH_FIELD_WHOLE, offsetof(OWNER, head_dim), true, 0, NULL},
    {WHOLE(block_q)},
    {WHOLE(block_kv)},
    {WHOLE(block_kv_compute)},
    {WHOLE(block_kv_compute_in)},
    {"gflops", ITH_FIELD_NUMBER, offsetof(OWNER, gflops), true, 0, NULL},
    {NUMBER(call_seconds)},
    {NUMBER(pack_bytes_per_second)},
    {NUMBER(offset_bytes_per_second)},
};
#undef OWNER

#define OWNER ith_machine_product
static const ith_field product_fields[] = {
    {WORD(work, work_word)},
    {WORD(dtype, ith_attend_dtype_word)},
    {WHOLE(rows)},
    {WHOLE(features)},
    {"gflops", ITH_FIELD_NUMBER, offsetof(OWNER, gflops), true, 0, NULL},
    {NUMBER(call_seconds)},
};
#undef OWNER

#define OWNER ith_machine
static const ith_field machine_fields[] = {
    {NAME(name)},
    {TEXT(source)},
    {"like", ITH_FIELD_LIKE, 0, false, 0, NULL},
    {WHOLE(ranks)},
    {"host_units", ITH_FIELD_WHOLE, offsetof(OWNER, host_units), true, 0, NULL},
    {WHOLE(rank_units)},
    {NUMBER(busy_share)},
    {NUMBER(memory_bytes)},
    {NUMBER(row_bytes_per_second)},
    {NUMBER(start_seconds)},
    {WHOLE(even_heads)},
    {WHOLE(unit_hosts)},
    {"levels", ITH_FIELD_LIST, 0, false, 0, NULL},
    {"attention", ITH_FIELD_LIST, 1, false, 0, NULL},
    {"products", ITH_FIELD_LIST, 2, false, 0, NULL},
};
#undef OWNER

static const ith_machine_level level_init = ITH_MACHINE_LEVEL_INIT;
static const ith_machine_attention attention_init = ITH_MACHINE_ATTENTION_INIT;
static const ith_machine_product product_init = ITH_MACHINE_PRODUCT_INIT;

const ith_machine_list ith_machine_lists[ITH_MACHINE_LIST_COUNT] = {
    {{"a level", level_fields, COUNT(level_fields)},
     &level_init,
     sizeof level_init,
     offsetof(ith_machine, level_count),
     offsetof(ith_machine, levels)},
    {{"a row of attention", attention_fields, COUNT(attention_fields)},
     &attention_init,
     sizeof attention_init,
     offsetof(ith_machine, attention_count),
     offsetof(ith_machine, attention)},
    {{"a row of products", product_fields, COUNT(product_fields)},
     &product_init,
     sizeof product_init,
     offsetof(ith_machine, product_count),
     offsetof(ith_machine, products)},
};
const ith_fields ith_machine_fields = {"the machine", machine_fields, COUNT(machine_fields)};
