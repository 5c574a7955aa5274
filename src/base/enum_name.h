/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_ENUM_NAME_H
#define ITH_BASE_ENUM_NAME_H

/* The name of a value of an enumeration, whose values 0, 1, ... have `count` names; "unknown" for any other value. */
static inline const char *ith_enum_name(const char *const *names, int count, int value)
{
    return value >= 0 && value < count ? names[value] : "unknown";
}

#endif
