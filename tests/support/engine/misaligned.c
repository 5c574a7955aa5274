/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/misaligned.h"

#include "support/temporary.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void write_misaligned(const char *from, const char *to)
{
    size_t bytes = 0;
    char *whole = temporary_read(from, &bytes), *longer = malloc(bytes + 1);
    uint64_t header = 0;
    memcpy(&header, whole, 8);
    memcpy(longer, whole, 8 + header);
    longer[8 + header] = ' ';
    memcpy(longer + 9 + header, whole + 8 + header, bytes - 8 - header);
    header++;
    memcpy(longer, &header, 8);
    temporary_write(to, longer, bytes + 1);
    free(whole);
    free(longer);
}
