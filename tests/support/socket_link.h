/* SPDX-License-Identifier: Apache-2.0 */
/* Links (comm/wire/link.h) over Unix sockets, which keep datagrams whole. The processes of a link are forked, or are
 * threads of one process that take the parts of processes. A rough link is built on any other link, and is slow, full
 * or late at random, as networks are. */
#ifndef ITH_TESTS_SOCKET_LINK_H
#define ITH_TESTS_SOCKET_LINK_H

#include "comm/wire/link.h"

#define LINK_PROCESSES 5

/* The processes of a group, each with its sockets to each other: [process][other][0: datagrams, 1: messages]. */
typedef struct link_scene {
    int processes;
    ith_link_process all[LINK_PROCESSES];
    int sockets[LINK_PROCESSES][LINK_PROCESSES][2];
} link_scene;

/* Makes a scene of `ranks` ranks, with `each` ranks in each process, the rest in the last process, and two processes on
 * each host. Returns false if the system has no more sockets. */
bool link_scene_make(link_scene *scene, int ranks, int each);
/* Closes the sockets of all processes but `process` (-1: of all), as a process does after a fork. */
void link_scene_keep(const link_scene *scene, int process);

/* Makes the link of one process, which closes its sockets when it is closed. NULL if there is no memory. */
ith_link *socket_link_new(const link_scene *scene, int process);
/* Closes the sockets of a link as the system does when a process dies. */
void socket_link_die(ith_link *link);

/* How rough a link is. */
typedef struct roughness {
    unsigned seed;
    int full;            /* reserve fails this many times in 100 */
    double late_seconds; /* a datagram arrives up to this much later */
    bool unsettled;      /* datagrams count as settled only after some calls of `settled` */
    double pause;        /* seconds between two long datagrams to a process */
} roughness;

/* A link over `inner`, which it closes. NULL if there is no memory. */
ith_link *rough_link_new(ith_link *inner, const roughness *how);

#endif
