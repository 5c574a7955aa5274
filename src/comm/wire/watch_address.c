/* SPDX-License-Identifier: Apache-2.0 */
/* The address of a process for control connections: its host, its interfaces, and its port. */
#include "watch_state.h"

#include "../../base/host_name.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

/* The inode of a namespace of this process; 0 if it is unknown. */
static uint64_t find_namespace(const char *path)
{
    struct stat about;
    return stat(path, &about) ? 0 : (uint64_t)about.st_ino;
}

static void describe_host(ith_watch_address *a)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || !fgets(a->boot, sizeof a->boot, file))
        a->boot[0] = 0;
    if (file)
        fclose(file);
    a->boot[strcspn(a->boot, "\n")] = 0;
    a->network = find_namespace("/proc/self/ns/net");
    a->uts = find_namespace("/proc/self/ns/uts");
    a->pid = getpid();
    ith_host_name(a->name, sizeof a->name);
}

bool ith_watch_same_host(const ith_watch_address *a, const ith_watch_address *b)
{
    return !strcmp(a->boot, b->boot) && a->network == b->network && a->uts == b->uts && !strcmp(a->name, b->name);
}

ith_watch_life ith_watch_find_life(int64_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? ITH_WATCH_ENDED : ITH_WATCH_RUNS;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *name_end = read ? strrchr(line, ')') : NULL; /* the state follows the name, in brackets */
    if (!name_end || strlen(name_end) <= 2)
        return ITH_WATCH_RUNS;
    switch (name_end[2]) {
    case 'T':
    case 't': return ITH_WATCH_STOPPED;
    case 'Z':
    case 'X': return ITH_WATCH_ENDED;
    default: return ITH_WATCH_RUNS;
    }
}

/* Adds the address of an interface, unless other hosts cannot use it: the interface is down, is the loopback, or the
 * address is valid on one link only. */
static void add_interface(ith_watch_address *a, const struct ifaddrs *i)
{
    ith_watch_interface *to = &a->interface[a->interfaces];
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK) ||
        a->interfaces == ITH_WATCH_INTERFACES)
        return;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
    if (i->ifa_addr->sa_family == AF_INET)
        memcpy(to->bytes, &((const struct sockaddr_in *)i->ifa_addr)->sin_addr, 4);
    else if (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(six))
        memcpy(to->bytes, six, 16);
    else
        return;
    to->ipv6 = i->ifa_addr->sa_family == AF_INET6;
    a->interfaces++;
}

static void find_interfaces(ith_watch_address *a)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        add_interface(a, i);
    freeifaddrs(list);
}

/* Opens a port for connections over IPv6 and IPv4; over IPv4 alone where there is no IPv6. Returns -1 on failure. */
static int open_port(uint16_t *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET};
    socklen_t six_bytes = sizeof six, four_bytes = sizeof four;
    const int flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int listener = socket(AF_INET6, flags, 0);
    if (listener >= 0 && !setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int)) &&
        !bind(listener, (struct sockaddr *)&six, sizeof six) && !listen(listener, BACKLOG) &&
        !getsockname(listener, (struct sockaddr *)&six, &six_bytes)) {
        *port = ntohs(six.sin6_port);
        return listener;
    }
    if (listener >= 0)
        close(listener);
    listener = socket(AF_INET, flags, 0);
    if (listener >= 0 && !bind(listener, (struct sockaddr *)&four, sizeof four) && !listen(listener, BACKLOG) &&
        !getsockname(listener, (struct sockaddr *)&four, &four_bytes)) {
        *port = ntohs(four.sin_port);
        return listener;
    }
    int reason = errno;
    if (listener >= 0)
        close(listener);
    errno = reason;
    return -1;
}

ith_watch *ith_watch_listen(ith_watch_address *mine, char *sentence, size_t bytes)
{
    ith_watch *w = calloc(1, sizeof *w);
    if (!w) {
        snprintf(sentence, bytes, "no memory for the control connections");
        return NULL;
    }
    *mine = (ith_watch_address){.pid = 0};
    w->wake = w->listener = -1;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (w->epoll >= 0)
        w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake >= 0 && !epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &(struct epoll_event){.events = EPOLLIN}) &&
        getrandom(mine->cookie, sizeof mine->cookie, 0) == sizeof mine->cookie)
        w->listener = open_port(&mine->port);
    if (w->listener < 0) {
        snprintf(sentence, bytes, "a port for control connections could not be opened: %s", strerror(errno));
        ith_watch_close(w, true);
        return NULL;
    }
    describe_host(mine);
    find_interfaces(mine);
    w->mine = *mine;
    return w;
}
