/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel of a link whose control connections are an ith_watch. */
#ifndef ITH_COMM_LINK_CONTROL_H
#define ITH_COMM_LINK_CONTROL_H

#include "watch.h"

#include <stdatomic.h>

/* The first member of such a link. */
typedef struct ith_link_control {
    ith_watch *watch;
    _Atomic int64_t looked_ns; /* the last time at which the control connections were read and had nothing */
} ith_link_control;

/* ith_link.tell. self: a link that begins with an ith_link_control. */
bool ith_link_tell(void *self, int process, const void *data, size_t bytes, bool droppable);

/* Whether ith_link.hear, which is called very often, should read the control connections now: not within 0.2 ms after
 * they had nothing. */
bool ith_link_may_look(const ith_link_control *control);
/* Notes the time if a read of the control connections has found nothing. Returns the event that it has found. */
ith_watch_event ith_link_looked(ith_link_control *control, ith_watch_event event);
/* Lets the next ith_link_may_look return true. For the end of a rest, which a message may have ended. */
void ith_link_look_soon(ith_link_control *control);

#endif
