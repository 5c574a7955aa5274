# SPDX-License-Identifier: Apache-2.0
# The files of `make install`: libraries with their SONAMEs, headers, pkg-config and CMake files, program, man pages,
# licence.
include(CMakePackageConfigHelpers)

# The file finds its prefix from where it lies, so that `cmake --install --prefix` may name any.
function(ithaca_pkg_config pc_name pc_description pc_requires)
  file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ithaca.pc.in ${PROJECT_BINARY_DIR}/${pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS ithaca EXPORT ithacaTargets DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/ithaca/ithaca.h include/ithaca/transport.h include/ithaca/cost.h include/ithaca/tune.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ithaca)
ithaca_pkg_config(ithaca "Exact context-parallel attention" "")
if(ITHACA_ENGINE)
  install(TARGETS ithaca_wan EXPORT ithacaTargets DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ithaca_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS ithaca_media LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ithaca)
  install(FILES include/ithaca/bench.h include/ithaca/files.h include/ithaca/video_cost.h include/ithaca/wan.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ithaca)
  ithaca_pkg_config(ithaca_wan "Wan video engine" "ithaca")
  file(GLOB machines CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/machines/*)
  install(FILES ${machines} DESTINATION ${CMAKE_INSTALL_DATADIR}/ithaca/machines)
  file(GLOB man_pages ${PROJECT_SOURCE_DIR}/docs/man/*.1)
  install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ithaca)
install(EXPORT ithacaTargets NAMESPACE ithaca:: DESTINATION ${config_folder})
configure_package_config_file(cmake/ithacaConfig.cmake.in ${PROJECT_BINARY_DIR}/ithacaConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ithacaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ithacaConfig.cmake ${PROJECT_BINARY_DIR}/ithacaConfigVersion.cmake
        DESTINATION ${config_folder})
