# SPDX-License-Identifier: Apache-2.0
# The transport over NCCL, ithaca_transport_nccl.so: built where there are the headers of NCCL and CUDA, left out where
# there are none. It links neither: it loads NCCL and the driver when it is used.
option(ITHACA_NCCL "Build the transport over NCCL if there are its headers" ON)
if(NOT ITHACA_NCCL OR CMAKE_CROSSCOMPILING)
  return()
endif()
find_path(ITHACA_CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
find_path(ITHACA_NCCL_INCLUDE nccl.h HINTS $ENV{NCCL_HOME}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
mark_as_advanced(ITHACA_CUDA_INCLUDE ITHACA_NCCL_INCLUDE)
if(NOT ITHACA_CUDA_INCLUDE OR NOT ITHACA_NCCL_INCLUDE)
  message(STATUS "The headers of NCCL or CUDA were not found: the transport nccl is not built")
  return()
endif()
file(GLOB nccl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/nccl/*.c)
add_library(ithaca_transport_nccl MODULE ${nccl_sources} $<TARGET_OBJECTS:ith_wire>)
target_include_directories(ithaca_transport_nccl SYSTEM PRIVATE ${ITHACA_NCCL_INCLUDE} ${ITHACA_CUDA_INCLUDE})
# NCCL stays loaded: it has threads of its own.
target_link_options(ithaca_transport_nccl PRIVATE -Wl,-z,nodelete)
target_link_libraries(ithaca_transport_nccl PRIVATE ithaca Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(ithaca_transport_nccl PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN;$ORIGIN/..")
install(TARGETS ithaca_transport_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ithaca)
message(STATUS "The transport nccl is built with ${ITHACA_NCCL_INCLUDE}/nccl.h")
