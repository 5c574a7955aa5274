/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that must be refused: one of another ABI, and one without a required function. */
#include <ithaca/transport.h>

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {.abi = ITH_TRANSPORT_MODULE_ABI + ABI_DIFFERENCE,
                                                         .name = MODULE_NAME};
