#ifndef ITH_BASE_CPU_H
#define ITH_BASE_CPU_H

#include "context.h"

/* Bits of ith_cpu_feature that processor and operating system both support. */
uint32_t ith_cpu_detect(void);

#endif
