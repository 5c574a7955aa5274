/* SPDX-License-Identifier: Apache-2.0 */
#include "support/temporary.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void temporary_require(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

char *temporary_folder(void)
{
    const char *parent = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/ithaca-test-XXXXXX", parent ? parent : "/tmp");
    temporary_require(mkdtemp(path) != NULL, path);
    char *copy = strdup(path);
    temporary_require(copy != NULL, "strdup");
    return copy;
}

static int temporary_remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

void temporary_remove(char *folder)
{
    nftw(folder, temporary_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

const char *temporary_path(const char *folder, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    temporary_require(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0], name);
    return path;
}

void temporary_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    temporary_require(file != NULL, path);
    temporary_require(fwrite(data, 1, bytes, file) == bytes, path);
    temporary_require(fclose(file) == 0, path);
}

char *temporary_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    temporary_require(file != NULL, path);
    struct stat info;
    temporary_require(fstat(fileno(file), &info) == 0, path);
    size_t size = (size_t)info.st_size;
    char *data = malloc(size + 1);
    temporary_require(data && fread(data, 1, size, file) == size, path);
    fclose(file);
    data[size] = '\0';
    if (bytes)
        *bytes = size;
    return data;
}

int temporary_count(const char *folder)
{
    DIR *entries = opendir(folder);
    temporary_require(entries != NULL, folder);
    int count = -2; /* the entries "." and ".." do not count */
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}
