/* SPDX-License-Identifier: Apache-2.0 */
/* The names that a misspelled name may stand for. */
#ifndef ITH_CLI_NEAREST_H
#define ITH_CLI_NEAREST_H

/* Returns the name among `count` names that is spelled most like `name`; NULL if none is like it, or if all are longer
 * than 64 letters. A name is like another if at most a third of its letters differ, and at most three. NULL among the
 * names is passed over. */
const char *ith_nearest(const char *name, const char *const *names, int count);
/* As ith_nearest, but the nearest name counts however many letters differ. */
const char *ith_nearest_of_all(const char *name, const char *const *names, int count);

#endif
