/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and reads small text files (input_file.h). */
#include "input_file.h"

#include "../cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *ith_input_open(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return NULL;
    bool regular = !fstat(file, &info) && S_ISREG(info.st_mode);
    FILE *stream = regular ? fdopen(file, "r") : NULL;
    if (!stream) {
        int error = regular ? errno : EINVAL;
        close(file);
        errno = error;
    }
    return stream;
}

FILE *ith_input_open_once(const char *path, bool *once)
{
    struct stat info;
    const bool standard = !strcmp(path, "-"), pipe = !standard && !stat(path, &info) && S_ISFIFO(info.st_mode);
    *once = standard || pipe;
    return standard ? stdin : pipe ? fopen(path, "re") : ith_input_open(path);
}

const char *ith_input_fault(void)
{
    return errno == EINVAL ? "it is not a file" : strerror(errno);
}

char *ith_input_text(FILE *file, const char *path, size_t most, size_t *bytes)
{
    char *text = malloc(most + 1);
    *bytes = text ? fread(text, 1, most + 1, file) : 0;
    if (!text)
        ith_cli_error("%s: there is no memory to read it", path);
    else if (ferror(file))
        ith_cli_error("%s: %s", path, strerror(errno));
    else if (*bytes > most)
        ith_cli_error("%s: it is longer than %zu bytes", path, most);
    else
        return text;
    free(text);
    return NULL;
}

bool ith_input_line(FILE *file, char *line, const char **fault)
{
    size_t length = 0;
    int byte = EOF;
    *fault = NULL;
    while (!*fault && (byte = getc_unlocked(file)) != EOF && byte != '\n')
        if (!byte)
            *fault = "it has a zero byte (NUL), so it is no text";
        else if (length == ITH_INPUT_LINE_BYTES)
            *fault = "it is longer than 1048576 bytes";
        else
            line[length++] = (char)byte;
    line[length] = '\0';
    if (ferror(file))
        *fault = strerror(errno);
    return *fault || byte != EOF || length;
}
