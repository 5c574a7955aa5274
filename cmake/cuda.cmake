# SPDX-License-Identifier: Apache-2.0
# The module ithaca_device_cuda.so: kernels for NVIDIA GPUs. It is built where there is a CUDA toolkit, with a GPU or
# without, and left out where there is none. Nothing else links CUDA.
option(ITHACA_CUDA "Build the module for NVIDIA GPUs if there is a CUDA toolkit" ON)
option(ITHACA_CUDA_QUICK "Compile most of its kernels for sm_80 alone, in half the time: the driver of a later GPU \
compiles them again when they are first used" OFF)
if(NOT ITHACA_CUDA OR ITHACA_SANITIZE OR CMAKE_CROSSCOMPILING)
  return()
endif()
include(CheckLanguage)
find_program(ITHACA_NVCC nvcc HINTS /usr/local/cuda/bin)
mark_as_advanced(ITHACA_NVCC)
# check_language tries the compiler, so that half a toolkit counts as none. It tries none that is set already.
if(ITHACA_NVCC AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${ITHACA_NVCC})
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "No CUDA toolkit was found: the module for NVIDIA GPUs is not built")
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES 80-real)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0) # the first with all instructions of Hopper
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.0: the module for NVIDIA GPUs is not built")
  return()
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")

# One object library for each set of instructions.
function(ithaca_cuda_objects name architectures)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endfunction()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.cu
     ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.c)
list(FILTER cuda_sources EXCLUDE REGEX _sm90\.cu$)
file(GLOB cuda_sm90_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*_sm90.cu)
# Every device since sm_80: machine code for it and for Hopper, and PTX for later ones.
set(architectures "80-real;90")
if(ITHACA_CUDA_QUICK)
  set(architectures 80)
endif()
ithaca_cuda_objects(ith_cuda "${architectures}" ${cuda_sources})
ithaca_cuda_objects(ith_cuda_sm90 "90a-real" ${cuda_sm90_sources})
add_library(ithaca_device_cuda MODULE $<TARGET_OBJECTS:ith_cuda> $<TARGET_OBJECTS:ith_cuda_sm90>)
set_target_properties(ithaca_device_cuda PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN;$ORIGIN/.." LINKER_LANGUAGE CUDA)
target_link_options(ithaca_device_cuda PRIVATE -Wl,-z,nodelete -Wl,--exclude-libs,ALL)
target_link_libraries(ithaca_device_cuda PRIVATE ith_base ${CMAKE_DL_LIBS})
install(TARGETS ithaca_device_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ithaca)
message(STATUS "The module for NVIDIA GPUs is built with ${CMAKE_CUDA_COMPILER}")
