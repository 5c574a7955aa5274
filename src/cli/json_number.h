/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in JSON, which has neither infinity nor NaN: they become null. */
#ifndef ITH_CLI_JSON_NUMBER_H
#define ITH_CLI_JSON_NUMBER_H

#include <jansson.h>
#include <math.h>

static inline json_t *ith_cli_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
