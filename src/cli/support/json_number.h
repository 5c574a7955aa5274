/* SPDX-License-Identifier: Apache-2.0 */
/* Makes numbers for JSON. JSON has no infinity and no NaN, so both become null. */
#ifndef ITH_CLI_JSON_NUMBER_H
#define ITH_CLI_JSON_NUMBER_H

#include <jansson.h>
#include <math.h>

static inline json_t *ith_cli_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
