/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank sends to others in one execution, from the setting alone. */
#ifndef ITH_ATTENTION_VOLUME_H
#define ITH_ATTENTION_VOLUME_H

#include "setting.h"

/* Bytes of queries, keys, values and outputs; see ith_plan_info.sent_bytes. */
int64_t ith_volume_bytes(const ith_attn_setting *setting);

#endif
