# cmake --install and find_package(halftone).
include(CMakePackageConfigHelpers)
set(installed halftone)
if(TARGET halftone_engine)
  list(APPEND installed halftone_engine)
endif()
install(TARGETS ${installed} EXPORT halftoneTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/halftone
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT halftoneTargets NAMESPACE halftone::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halftone)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/halftoneConfig.cmake.in
  ${PROJECT_BINARY_DIR}/halftoneConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halftone)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/halftoneConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/halftoneConfig.cmake
              ${PROJECT_BINARY_DIR}/halftoneConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/halftone)
