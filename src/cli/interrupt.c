#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t came;

static void take(int number)
{
    (void)number;
    came = 1;
}

void ith_interrupt_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    /* SA_RESETHAND: the second one does what it always does. */
    const struct sigaction action = {.sa_handler = take, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

bool ith_interrupt_came(void)
{
    return came != 0;
}
