# SPDX-License-Identifier: Apache-2.0
# ctest reads this file before it runs tests. Threads that wait leave the cores to the test beside them: where they spin, a
# test of one second takes up to thirty beside another one.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
