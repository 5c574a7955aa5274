/* SPDX-License-Identifier: Apache-2.0 */
/* Locales in which numbers and letters differ from C's, as a program that uses the library may have set one. */
#ifndef ITH_TESTS_OTHER_LOCALE_H
#define ITH_TESTS_OTHER_LOCALE_H

/* "tr_TR.UTF-8" has a decimal comma, and I is not the capital of i. "ps_AF.UTF-8" has a decimal point of two bytes. */

/* Makes a locale, which setlocale and newlocale then know until the program ends. Skips the test if the C library's
 * sources of locales (Debian's package locales) are not there. */
void other_locale_make(const char *name);
/* Runs a test in a locale of other_locale_make. */
void in_other_locale(const char *name, void (*test)(void **state), void **state);

#endif
