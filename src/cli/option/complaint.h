/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of a process that is one of several. Until the processes have agreed on the result of the run, an error is
 * held back and not printed, because all of them may have the same one. The process that the launcher numbers 0 prints
 * the error on which they agree. */
#ifndef ITH_CLI_COMPLAINT_H
#define ITH_CLI_COMPLAINT_H

#include "option.h"

#include <stdbool.h>

/* From now on an error names the file and the line of each option in it that a file has set. NULL: it names none. The
 * options must live until then. */
void ith_error_explain(const ith_options *options);

/* From now on ith_cli_error and ith_cli_usage keep their first sentence instead of printing it. leads: the launcher has
 * numbered this process 0. */
void ith_error_hold(bool leads);
/* From now on errors are printed again. A sentence that was held is forgotten. */
void ith_error_release(void);
/* The sentence that is held; "" if there is none. */
const char *ith_error_held(void);
/* Prints the sentence that is held, if there is one, and forgets it. */
void ith_error_say(void);
/* Prints "ithaca: SENTENCE" on standard error even if errors are held. */
void ith_error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether this process speaks for the run: it is the only one, or `leads` was true in ith_error_hold. */
bool ith_error_leads(void);

#endif
