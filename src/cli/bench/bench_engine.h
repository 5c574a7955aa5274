/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench block, decode and encode: parts of the engine with random weights. ithaca bench generate: whole
 * runs of a model. */
#ifndef ITH_CLI_BENCH_ENGINE_H
#define ITH_CLI_BENCH_ENGINE_H

/* The commands. argv[0] is "ithaca bench block" and so on. Each returns an exit status. */
int ith_cli_bench_block(int argc, char **argv);
int ith_cli_bench_decode(int argc, char **argv);
int ith_cli_bench_encode(int argc, char **argv);
int ith_cli_bench_generate(int argc, char **argv);

#endif
