/* SPDX-License-Identifier: Apache-2.0 */
/* The tests that every transport must pass. They use public headers only. Ranks share no memory, and each rank checks
 * its own results, so ranks may be threads, processes, or processes on several machines. */
#ifndef ITH_TESTS_SUITE_H
#define ITH_TESTS_SUITE_H

#include <ithaca/transport.h>

#define SUITE_RANKS 5 /* the most ranks of a test */

/* A transport under test. */
typedef struct suite_subject {
    const char *name;
    int ranks;            /* the most ranks that `run` can make, 2 or more */
    bool alive, notifies; /* whether its table has `alive` and `silence`, and whether it has `notify` */
    /* Runs fn as `ranks` ranks, each with a context and a communicator of its own, which it destroys when fn has
     * returned. All start afresh. `user` is only read. Returns the number of ranks whose fn failed. If each
     * process runs the suite by itself, returns in all of them the same number, which is 0 if no rank failed. */
    int (*run)(void *self, int ranks, ith_rank_fn fn, void *user);
    void *self;
} suite_subject;

/* Runs all tests whose name contains `only` (NULL: all), and prints a line for each that fails to standard error.
 * Returns the number of tests that failed. */
int suite_run(const suite_subject *subject, const char *only);

/* ---- For the files of the suite -------------------------------------------------------------------------------- */

typedef struct suite_test {
    const char *name;
    int (*run)(const suite_subject *subject); /* returns the number of ranks or runs that failed */
} suite_test;

/* The last entry of each list has the name NULL. */
extern const suite_test suite_operations[], suite_failures[], suite_plans[];

/* Prints the place and the condition; returns ITH_ERR_INTERNAL. */
ith_status suite_complain(const char *file, int line, const char *condition, ith_context *context);

#define SUITE_CHECK(context, condition)                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return suite_complain(__FILE__, __LINE__, #condition, context);                                            \
    } while (0)
#define SUITE_TRY(context, call) SUITE_CHECK(context, (call) == ITH_OK)

int suite_least(int a, int b);
void suite_nap(double seconds);
double suite_seconds(void);
uint32_t suite_mix(uint32_t a, uint32_t b);
/* One run of `bytes` bytes at data, sent to or received from peer. */
ith_transfer suite_whole(int peer, void *data, int64_t bytes);

#endif
