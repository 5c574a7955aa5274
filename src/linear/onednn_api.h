/* SPDX-License-Identifier: Apache-2.0 */
/* The differences between oneDNN 2 and 3. In version 2 a memory descriptor is a struct, and a primitive descriptor is
 * made from an operation descriptor. In version 3 a memory descriptor is a handle, and one call makes a primitive
 * descriptor. https://oneapi-src.github.io/oneDNN/dev_guide_transition_to_v3.html */
#ifndef ITH_LINEAR_ONEDNN_API_H
#define ITH_LINEAR_ONEDNN_API_H

#include <oneapi/dnnl/dnnl.h>

#include <stdbool.h>
#include <stddef.h>

/* A memory descriptor (shape, type and strides of a tensor). It is zero at first; layout_free frees it. */
typedef dnnl_memory_desc_t layout;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_view; /* a memory descriptor that another owner frees */
#else
typedef const dnnl_memory_desc_t *layout_view;
#endif

static inline layout_view layout_borrow(const layout *own)
{
#if DNNL_VERSION_MAJOR >= 3
    return *own;
#else
    return own;
#endif
}

static inline void layout_free(layout *own)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*own)
        dnnl_memory_desc_destroy(*own);
    *own = NULL;
#else
    (void)own;
#endif
}

static inline dnnl_status_t layout_tagged(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type,
                                          dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(out, dims, size, type, tag);
#else
    return dnnl_memory_desc_init_by_tag(out, dims, size, type, tag);
#endif
}

static inline dnnl_status_t layout_strided(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type,
                                           const dnnl_dims_t strides)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(out, dims, size, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(out, dims, size, type, strides);
#endif
}

static inline dnnl_status_t append_sum(dnnl_post_ops_t operations)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(operations, 1.0f);
#endif
}

/* Makes the descriptor of a matrix product dst = src weights + bias. bias NULL: no bias. */
static inline dnnl_status_t matmul_descriptor(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *src,
                                              const layout *weights, const layout *bias, const layout *dst,
                                              dnnl_primitive_attr_t attributes)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, engine, *src, *weights, bias ? *bias : NULL, *dst, attributes);
#else
    dnnl_matmul_desc_t description;
    dnnl_status_t status = dnnl_matmul_desc_init(&description, src, weights, bias, dst);
    return status ? status : dnnl_primitive_desc_create(out, &description, attributes, engine, NULL);
#endif
}

/* Makes the attributes of a primitive. The caller of the primitive gives its scratch memory, so that threads can share
 * the primitive and an execution allocates none. adds: the result is added to dst. */
static inline dnnl_status_t attributes_make(bool adds, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t operations = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (!status && adds) {
        status = dnnl_post_ops_create(&operations);
        if (!status)
            status = append_sum(operations);
        if (!status)
            status = dnnl_primitive_attr_set_post_ops(*out, operations);
    }
    if (operations)
        dnnl_post_ops_destroy(operations);
    return status;
}

#endif
