/* SPDX-License-Identifier: Apache-2.0 */
/* The named character references of HTML 5 (https://html.spec.whatwg.org/entities.json). */
#ifndef ITH_WAN_HTML_ENTITIES_H
#define ITH_WAN_HTML_ENTITIES_H

/* A named character reference and its value. */
typedef struct ith_html_entity {
    const char *name;  /* without '&' and with ';'; older references have a second entry without ';' */
    const char *value; /* UTF-8 */
} ith_html_entity;

/* All references, ordered by strcmp of their names. */
extern const ith_html_entity ith_html_entities[];
extern const int ith_html_entities_count;

/* Upper-case forms of characters that have a named reference. name: the character, such as U+00E9; value: its
 * upper-case form, such as U+00C9. Ordered by strcmp of `name`. */
extern const ith_html_entity ith_html_capitals[];
extern const int ith_html_capitals_count;

#endif
