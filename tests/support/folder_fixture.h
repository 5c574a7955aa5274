/* SPDX-License-Identifier: Apache-2.0 */
/* The fixture's context and an empty folder. */
#ifndef ITH_TESTS_FOLDER_FIXTURE_H
#define ITH_TESTS_FOLDER_FIXTURE_H

#include "support/fixture.h"
#include "support/temporary.h"

extern char *folder;

int folder_set_up(void **state);
int folder_tear_down(void **state);

#endif
