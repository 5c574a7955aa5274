# SPDX-License-Identifier: Apache-2.0
# The transports over MPI: ithaca_transport_openmpi.so and ithaca_transport_mpich.so, each built with the compiler wrapper of
# its MPI, and left out where there is none. Nothing else links MPI. MPI does not run under a sanitizer.
if(ITHACA_SANITIZE OR CMAKE_CROSSCOMPILING)
  return()
endif()
file(WRITE ${PROJECT_BINARY_DIR}/which_mpi.c "#include <mpi.h>
#if defined(OPEN_MPI)
ithaca_mpi=openmpi
#elif defined(MPICH_VERSION)
ithaca_mpi=mpich
#endif
")

# Sets <out> to the kind of MPI that a compiler wrapper belongs to; empty if it is unknown.
function(ithaca_mpi_kind wrapper out)
  execute_process(COMMAND ${wrapper} -E ${PROJECT_BINARY_DIR}/which_mpi.c OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "ithaca_mpi=([a-z]+)" found "${text}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Builds the module of an MPI, if one of the wrappers is of that MPI.
function(ithaca_mpi_module kind title)
  set(kind_found "")
  foreach(wrapper mpicc.${kind} mpicc)
    find_program(ITHACA_MPICC_${wrapper} ${wrapper})
    mark_as_advanced(ITHACA_MPICC_${wrapper})
    if(ITHACA_MPICC_${wrapper} AND NOT kind_found STREQUAL kind)
      ithaca_mpi_kind(${ITHACA_MPICC_${wrapper}} kind_found)
      set(command ${ITHACA_MPICC_${wrapper}})
    endif()
  endforeach()
  if(NOT kind_found STREQUAL kind)
    message(STATUS "${title} was not found: the transport ${kind} is not built")
    return()
  endif()
  # Both kinds print the compiler and its options.
  execute_process(COMMAND ${command} -show OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(words UNIX_COMMAND "${text}")
  set(compile "")
  set(link "")
  foreach(word ${words})
    if(word MATCHES "^-I(.*)")
      list(APPEND compile ${CMAKE_MATCH_1})
    elseif(word MATCHES "^-(L|l|Wl,)|^/.*\\.(so|a)$")
      list(APPEND link ${word})
    endif()
  endforeach()
  add_library(ith_mpi_${kind} INTERFACE)
  target_include_directories(ith_mpi_${kind} SYSTEM INTERFACE ${compile})
  target_link_libraries(ith_mpi_${kind} INTERFACE ${link})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/mpi/*.c)
  add_library(ithaca_transport_${kind} MODULE ${sources} $<TARGET_OBJECTS:ith_wire>)
  target_compile_definitions(ithaca_transport_${kind} PRIVATE MODULE_NAME="${kind}")
  # MPI stays loaded: it has threads and handlers of its own.
  target_link_options(ithaca_transport_${kind} PRIVATE -Wl,-z,nodelete)
  target_link_libraries(ithaca_transport_${kind} PRIVATE ithaca ith_mpi_${kind} Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(ithaca_transport_${kind} PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN;$ORIGIN/..")
  install(TARGETS ithaca_transport_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ithaca)
  message(STATUS "The transport ${kind} is built with ${command}")
endfunction()

ithaca_mpi_module(openmpi "Open MPI")
ithaca_mpi_module(mpich "MPICH")
