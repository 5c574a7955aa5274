/* SPDX-License-Identifier: Apache-2.0 */
/* Which sanitizer watches this program, as 0 or 1. gcc defines macros, and clang has features. */
#ifndef ITH_TESTS_SANITIZERS_H
#define ITH_TESTS_SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZES_ADDRESSES 1
#elif defined(__has_feature)
#define SANITIZES_ADDRESSES __has_feature(address_sanitizer)
#else
#define SANITIZES_ADDRESSES 0
#endif

#if defined(__SANITIZE_THREAD__)
#define SANITIZES_THREADS 1
#elif defined(__has_feature)
#define SANITIZES_THREADS __has_feature(thread_sanitizer)
#else
#define SANITIZES_THREADS 0
#endif

#define SANITIZED (SANITIZES_ADDRESSES || SANITIZES_THREADS)

#endif
