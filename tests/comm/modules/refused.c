/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that cannot be used: of another ABI, or without a function. */
#include <ithaca/transport.h>

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {.abi = ITH_TRANSPORT_MODULE_ABI + ABI_DIFFERENCE,
                                                         .name = MODULE_NAME};
