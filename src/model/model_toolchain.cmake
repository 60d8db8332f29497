# What model files are compiled with at run time: the toolchain file (for the
# build tree and for an installation) and the precompiled header that makes a
# model compile in seconds. Format: toolchain.cc.
set(share ${CMAKE_BINARY_DIR}/share/elasticdl)
set(model_flags -std=c++17 -O2 -DNDEBUG -fPIC -D_GLIBCXX_USE_CXX11_ABI=1)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Two models in one process keep their own static variables.
  list(APPEND model_flags -fno-gnu-unique)
endif()
set(model_links -Wl,--no-undefined-version -labsl_strings -labsl_status
    -ltorch -ltorch_cpu -lc10)
set(model_modules model data metric optim common)

# elasticdl_write_toolchain(<file> <include>...)
function(elasticdl_write_toolchain file)
  set(text "# Made by CMake. How elasticdl compiles model files.\n")
  string(APPEND text "compiler=${CMAKE_CXX_COMPILER}\n")
  string(APPEND text
    "compiler_id=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\n")
  foreach(flag IN LISTS model_flags)
    string(APPEND text "flag=${flag}\n")
  endforeach()
  foreach(dir IN LISTS ARGN)
    string(APPEND text "include=${dir}\n")
  endforeach()
  foreach(link IN LISTS model_links)
    string(APPEND text "link=${link}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
endfunction()

# Torch's own folder beside the system's, wherever it is installed.
set(torch_dirs ${TORCH_INCLUDE_DIRS})
list(REMOVE_ITEM torch_dirs /usr/include)

set(build_dirs)
foreach(module IN LISTS model_modules)
  list(APPEND build_dirs ${ELASTICDL_ROOT}/src/${module}/include)
endforeach()
elasticdl_write_toolchain(${share}/model_toolchain.txt
  "\${root}/share/elasticdl/pch" ${build_dirs} ${torch_dirs})
elasticdl_write_toolchain(${share}/install/model_toolchain.txt
  "\${root}/share/elasticdl/pch" "\${root}/include" ${torch_dirs})

# The precompiled header, with the flags of the toolchain file. GCC takes it in
# place of elasticdl/model/plugin.h because its folder is searched first.
set(pch ${share}/pch/elasticdl/model/plugin.h.gch)
set(includes)
foreach(dir IN LISTS build_dirs torch_dirs)
  list(APPEND includes -I${dir})
endforeach()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_custom_command(OUTPUT ${pch}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${share}/pch/elasticdl/model
    COMMAND ${CMAKE_CXX_COMPILER} ${model_flags} ${includes} -x c++-header
            -w -MD -MF ${pch}.d -MT ${pch} -o ${pch}
            ${CMAKE_CURRENT_SOURCE_DIR}/include/elasticdl/model/plugin.h
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/include/elasticdl/model/plugin.h
    DEPFILE ${pch}.d
    COMMENT "Precompiling the header of model files"
    VERBATIM)
  add_custom_target(elasticdl_model_pch ALL DEPENDS ${pch})
  # It only saves time, and `make build` does not make it.
  install(FILES ${pch} DESTINATION share/elasticdl/pch/elasticdl/model OPTIONAL)
endif()

foreach(module IN LISTS model_modules)
  install(DIRECTORY ${ELASTICDL_ROOT}/src/${module}/include/ DESTINATION include)
endforeach()
install(FILES ${share}/install/model_toolchain.txt
  DESTINATION share/elasticdl)
