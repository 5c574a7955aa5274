/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is no module. */
extern const int ithaca_bare;
const int ithaca_bare = 1;
