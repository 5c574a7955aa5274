/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a test program: the environment variable ITHACA_TEST_DEVICE names it; otherwise it is the first GPU. */
#ifndef ITH_TESTS_DEVICE_FIXTURE_H
#define ITH_TESTS_DEVICE_FIXTURE_H

#include "support/fixture.h"

#include "gpu/fake/fake_device.h"
#include "kernels/device_use.h"

/* The device's name, and its functions. */
extern const char *device_name;
extern const ith_device_use *device_use;
/* The table by which tests control and observe the fake device (gpu/fake); NULL for other devices. */
extern fake_control_table *device_fake;

/* Called by main: finds the device. Ends the program with 77 if there is none, and with 1 after another failure. */
void device_require(void);

/* As context_set_up, with a context that uses the device. */
int device_context_set_up(void **state);

/* The bytes of the device's memory that may be used now. */
int64_t device_free_bytes(void);

#endif
