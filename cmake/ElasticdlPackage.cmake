# Debian packages (`make deb`):
#   elasticdl-client  the client, with completion and manual pages
#   elasticdl         master, worker, parameter server; headers, examples and
#                     what compiles model files
# The client says what its completion and its manual are, so both are made when
# it is installed.
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    execute_process(COMMAND \"${ELASTICDL_ROOT}/scripts/man-pages.sh\"
      \"${CMAKE_BINARY_DIR}/bin/elasticdl\" \"\${prefix}/share/man/man1\"
      COMMAND_ERROR_IS_FATAL ANY)
    file(MAKE_DIRECTORY \"\${prefix}/share/bash-completion/completions\")
    execute_process(COMMAND \"${CMAKE_BINARY_DIR}/bin/elasticdl\" completion bash
      OUTPUT_FILE \"\${prefix}/share/bash-completion/completions/elasticdl\"
      COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT client)
endif()
foreach(package elasticdl elasticdl-client)
  set(component elasticdl)
  if(package STREQUAL elasticdl-client)
    set(component client)
  endif()
  install(FILES ${ELASTICDL_ROOT}/LICENSE DESTINATION share/doc/${package}
    RENAME copyright COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME elasticdl)
set(CPACK_PACKAGE_VENDOR ElasticDL)
set(CPACK_PACKAGE_CONTACT "ElasticDL <elasticdl@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/deb)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL elasticdl client)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME elasticdl-client)
set(CPACK_DEBIAN_CLIENT_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION
  "elastic deep-learning training, client
 Starts, watches, scales and stops jobs, on this machine together with the
 package elasticdl and on Kubernetes clusters alone.")
set(CPACK_DEBIAN_ELASTICDL_PACKAGE_NAME elasticdl)
# A model file is compiled when a job starts, with the headers of libtorch.
set(CPACK_DEBIAN_ELASTICDL_PACKAGE_DEPENDS
  "elasticdl-client (= ${PROJECT_VERSION}), g++, libabsl-dev, libtorch-dev, libopenblas0-openmp")
set(CPACK_COMPONENT_ELASTICDL_DESCRIPTION
  "elastic deep-learning training
 Trains deep-learning models on workers that may come and go: master, worker,
 parameter server, headers for model files and examples.")
include(CPack)
