/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_COUNT_H
#define ITH_BASE_COUNT_H

/* The number of elements of an array. */
#define ITH_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#endif
