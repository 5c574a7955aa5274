/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the corpus of a fuzzer. */
#ifndef ITH_TESTS_CORPUS_H
#define ITH_TESTS_CORPUS_H

#include <ithaca/ithaca.h>

typedef ith_status corpus_probe(ith_context *ctx, const char *path);

/* Probes every file of a folder: files whose names begin with "valid" are read, all others are refused, each within a
 * second of processor time, and no memory is left. Fails if fewer than `least` are refused. */
void corpus_replay(const char *folder, corpus_probe *probe, int least);

#endif
