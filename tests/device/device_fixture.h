/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a test program: the one that the environment variable ITHACA_TEST_DEVICE names, or the first GPU. */
#ifndef ITH_TESTS_DEVICE_FIXTURE_H
#define ITH_TESTS_DEVICE_FIXTURE_H

#include "support/fixture.h"

#include "gpu/fake/fake_device.h"
#include "kernels/device_use.h"

/* The device's name, and its functions. */
extern const char *device_name;
extern const ith_device_use *device_use;
/* What tests see of the fake device (gpu/fake), and tell it; NULL: the device is another one. */
extern fake_control_table *device_fake;

/* Finds the device, for main. Ends the program with 77 if there is none, and with 1 after another failure. */
void device_require(void);

/* As context_set_up, with a context that uses the device. */
int device_context_set_up(void **state);

/* Memory of the device that may be used now. */
int64_t device_free_bytes(void);

#endif
