/* SPDX-License-Identifier: Apache-2.0 */
#include "support/folder_fixture.h"

char *folder;

int folder_set_up(void **state)
{
    folder = temporary_folder();
    return context_set_up(state);
}

int folder_tear_down(void **state)
{
    temporary_remove(folder);
    return context_tear_down(state);
}
