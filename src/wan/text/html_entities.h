/* SPDX-License-Identifier: Apache-2.0 */
/* The named character references of HTML 5 (https://html.spec.whatwg.org/entities.json). */
#ifndef ITH_WAN_HTML_ENTITIES_H
#define ITH_WAN_HTML_ENTITIES_H

typedef struct ith_html_entity {
    const char *name;  /* without '&'; with ';', except in old references, which may lack it */
    const char *value; /* UTF-8 */
} ith_html_entity;

/* Ordered by strcmp of the names. */
extern const ith_html_entity ith_html_entities[];
extern const int ith_html_entities_count;

/* The upper-case form (`value`) of each value of a lower-case reference (`name`), if it differs; ordered by strcmp. */
extern const ith_html_entity ith_html_capitals[];
extern const int ith_html_capitals_count;

#endif
