/* SPDX-License-Identifier: Apache-2.0 */
#include "support/guarded.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { REGIONS_MAX = 4096 }; /* a product in blocks of two steps takes some regions for each block */
static struct {
    void *pages;
    size_t bytes;
} regions[REGIONS_MAX];
static int count;

void *guarded_new(int64_t bytes, int64_t align, bool at_end)
{
    assert_true(count < REGIONS_MAX && bytes % align == 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), usable = ((size_t)bytes + page - 1) / page * page;
    char *pages = mmap(NULL, usable + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    memset(pages + page, 0xff, usable);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + page + usable, page, PROT_NONE), 0);
    regions[count].pages = pages;
    regions[count++].bytes = usable + 2 * page;
    return pages + page + (at_end ? usable - (size_t)bytes : 0);
}

void guarded_free_all(void)
{
    while (count > 0) {
        count--;
        munmap(regions[count].pages, regions[count].bytes);
    }
}
