/* SPDX-License-Identifier: Apache-2.0 */
/* within SET PROGRAM: runs a test under ITHACA_CPU=SET, if this machine has more sets, all of SET among them. Sets that
 * an outer ITHACA_CPU forbids do not count. Otherwise it says why not, and ends with 77: skipped. */
#include "base/context.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SKIPPED = 77, WRONG = 2 };

/* The instruction sets that ITHACA_CPU allows. */
static bool find_limit(uint32_t *allowed)
{
    char sentence[ITH_ERROR_BYTES];
    bool known = ith_cpu_limit(allowed, sentence, sizeof sentence);
    if (!known)
        fprintf(stderr, "%s\n", sentence);
    return known;
}

int main(int argc, char **argv)
{
    uint32_t outer, inner;
    char text[128];
    if (argc != 3 || !find_limit(&outer))
        return WRONG;
    uint32_t machine = ith_cpu_detect(outer);
    if (setenv("ITHACA_CPU", argv[1], 1) || !find_limit(&inner))
        return WRONG;
    if (inner & ~machine) {
        printf("skipped: this machine lacks %s\n", ith_cpu_describe(inner & ~machine, text, sizeof text));
        return SKIPPED;
    }
    if (!(machine & ~inner)) {
        printf("skipped: this machine has nothing besides %s; the test without '@' ran on it\n",
               ith_cpu_describe(machine, text, sizeof text));
        return SKIPPED;
    }
    execv(argv[2], (char *const[]){argv[2], NULL});
    perror(argv[2]);
    return WRONG;
}
