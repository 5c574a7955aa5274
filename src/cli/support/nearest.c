/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the name that is spelled most like another (nearest.h). */
#include "nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#define LONGEST 64 /* letters of a name; longer names are passed over */

/* A letter as it is compared: '_' and capitals count as '-' and small letters. */
static int plain(char letter)
{
    return letter == '_' ? '-' : tolower((unsigned char)letter);
}

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* The number of changes that make name b of name a: a letter is inserted, removed or replaced, or two neighbours are
 * swapped (the restricted distance of Damerau and Levenshtein). rows: the last three rows of its table in turn. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    const int letters = (int)strlen(b);
    for (int j = 0; j <= letters; j++)
        rows[0][j] = j;
    for (int i = 1; a[i - 1]; i++) {
        const int *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        int *row = rows[i % 3];
        row[0] = i;
        for (int j = 1; j <= letters; j++) {
            const int letter = plain(a[i - 1]);
            row[j] = lesser(above[j - 1] + (letter != plain(b[j - 1])), 1 + lesser(above[j], row[j - 1]));
            if (i > 1 && j > 1 && letter == plain(b[j - 2]) && plain(a[i - 2]) == plain(b[j - 1]))
                row[j] = lesser(row[j], before[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][letters];
}

/* The nearest name at a distance of less than `limit`. */
static const char *find(const char *name, const char *const *names, int count, int limit)
{
    const char *best = NULL;
    for (int i = 0; i < count && strlen(name) <= LONGEST; i++) {
        const int far = names[i] && strlen(names[i]) <= LONGEST ? distance(name, names[i]) : limit;
        if (far < limit)
            limit = far, best = names[i];
    }
    return best;
}

const char *ith_nearest(const char *name, const char *const *names, int count)
{
    const int third = (int)(strlen(name) / 3);
    return find(name, names, count, 1 + lesser(third, 3));
}

const char *ith_nearest_of_all(const char *name, const char *const *names, int count)
{
    return find(name, names, count, INT_MAX);
}
