/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel of a link over an ith_watch (link_control.h). */
#include "link_control.h"

#define LOOK_NS 200000 /* time between two reads of control connections that have nothing */

bool ith_link_tell(void *self, int process, const void *data, size_t bytes, bool droppable)
{
    const ith_link_control *control = self;
    return ith_watch_send(control->watch, process, data, bytes, droppable);
}

bool ith_link_may_look(const ith_link_control *control)
{
    return ith_watch_now_ns() - atomic_load(&control->looked_ns) >= LOOK_NS;
}

ith_watch_event ith_link_looked(ith_link_control *control, ith_watch_event event)
{
    if (event == ITH_WATCH_NOTHING)
        atomic_store(&control->looked_ns, ith_watch_now_ns());
    return event;
}

void ith_link_look_soon(ith_link_control *control)
{
    atomic_store(&control->looked_ns, 0);
}
