/* SPDX-License-Identifier: Apache-2.0 */
/* A context and an empty folder, for cmocka's set-up and tear-down. */
#ifndef ITH_TESTS_FOLDER_FIXTURE_H
#define ITH_TESTS_FOLDER_FIXTURE_H

#include "support/context_fixture.h"
#include "support/temporary.h"

static char *folder;

static inline int folder_set_up(void **state)
{
    folder = temporary_folder();
    return context_set_up(state);
}

static inline int folder_tear_down(void **state)
{
    temporary_remove(folder);
    return context_tear_down(state);
}

#endif
