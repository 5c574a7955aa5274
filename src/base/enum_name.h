/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_ENUM_NAME_H
#define ITH_BASE_ENUM_NAME_H

/* Defines the function that names the values 0, 1, ... of an enumeration; any other value is "unknown". */
#define ITH_ENUM_NAME(function, type, ...)                                                                             \
    const char *function(type value)                                                                                   \
    {                                                                                                                  \
        static const char *const names[] = {__VA_ARGS__};                                                              \
        return (unsigned)value < sizeof names / sizeof *names ? names[value] : "unknown";                              \
    }

#endif
