/* SPDX-License-Identifier: Apache-2.0 */
/* The named character references of HTML 5 (https://html.spec.whatwg.org/entities.json). */
#ifndef ITH_WAN_HTML_ENTITIES_H
#define ITH_WAN_HTML_ENTITIES_H

typedef struct ith_html_entity {
    const char *name;  /* without '&'; with ';' unless the reference is one of the old ones that need none */
    const char *value; /* UTF-8 */
} ith_html_entity;

/* Ordered by name, as strcmp does. */
extern const ith_html_entity ith_html_entities[];
extern const int ith_html_entities_count;

/* Values of lower-case names that have other capitals: from the value to its capitals, ordered likewise. */
extern const ith_html_entity ith_html_capitals[];
extern const int ith_html_capitals_count;

#endif
