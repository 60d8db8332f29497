# Third-party packages, all from the distribution. Their headers are SYSTEM, so
# our warnings do not apply to them.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Snappy REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
# Only `--collective=gloo` needs it; without it that says so.
find_path(GLOO_INCLUDE gloo/allreduce.h)
find_library(GLOO_LIBRARY gloo)
if(GLOO_INCLUDE AND GLOO_LIBRARY)
  add_library(elasticdl_gloo INTERFACE)
  target_link_libraries(elasticdl_gloo INTERFACE ${GLOO_LIBRARY}
    Threads::Threads)
  target_include_directories(elasticdl_gloo SYSTEM INTERFACE ${GLOO_INCLUDE})
  add_library(elasticdl::gloo ALIAS elasticdl_gloo)
else()
  message(STATUS "no Gloo (libgloo-dev): built without --collective=gloo")
endif()
# Only `--collective=mpi` needs it, in a library of its own.
find_package(MPI COMPONENTS CXX QUIET)
if(MPI_CXX_FOUND)
  add_library(elasticdl_mpi INTERFACE)
  target_link_libraries(elasticdl_mpi INTERFACE MPI::MPI_CXX)
  # The C interface only.
  target_compile_definitions(elasticdl_mpi INTERFACE
    OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  add_library(elasticdl::mpi ALIAS elasticdl_mpi)
else()
  message(STATUS "no MPI (libopenmpi-dev): built without --collective=mpi")
endif()
# Only `--collective=nccl` needs them, in a library of its own.
find_path(CUDART_INCLUDE cuda_runtime_api.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
  PATH_SUFFIXES include)
if(NOT CUDART_INCLUDE)
  file(GLOB cuda_folders /usr/local/cuda-*)
  find_path(CUDART_INCLUDE cuda_runtime_api.h
    PATHS ${cuda_folders} PATH_SUFFIXES include)
endif()
get_filename_component(cuda_folder "${CUDART_INCLUDE}" DIRECTORY)
find_library(CUDART_LIBRARY cudart
  HINTS ${cuda_folder} PATH_SUFFIXES lib64 lib)
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDART_INCLUDE})
find_library(NCCL_LIBRARY nccl HINTS ${cuda_folder} PATH_SUFFIXES lib64 lib)
if(CUDART_INCLUDE AND CUDART_LIBRARY)
  add_library(elasticdl_cudart INTERFACE)
  target_link_libraries(elasticdl_cudart INTERFACE ${CUDART_LIBRARY})
  target_include_directories(elasticdl_cudart SYSTEM INTERFACE
    ${CUDART_INCLUDE})
  add_library(elasticdl::cudart ALIAS elasticdl_cudart)
  if(NCCL_INCLUDE AND NCCL_LIBRARY)
    add_library(elasticdl_nccl INTERFACE)
    target_link_libraries(elasticdl_nccl INTERFACE ${NCCL_LIBRARY}
      elasticdl::cudart)
    target_include_directories(elasticdl_nccl SYSTEM INTERFACE ${NCCL_INCLUDE})
    add_library(elasticdl::nccl ALIAS elasticdl_nccl)
    file(STRINGS ${NCCL_INCLUDE}/nccl.h numbers
      REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9]+" "." NCCL_VERSION "${numbers}")
    string(REGEX REPLACE "^\\." "" NCCL_VERSION "${NCCL_VERSION}")
  endif()
endif()
if(NOT TARGET elasticdl::nccl)
  message(STATUS "no NCCL or no CUDA runtime (libnccl-dev, cuda-cudart-dev): "
    "built without --collective=nccl")
endif()
# Where the doubles of both are built, see tests/gpu.
set(ELASTICDL_GPU_DOUBLES ${CMAKE_BINARY_DIR}/gpu-doubles)
if(ELASTICDL_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(ELASTICDL_WITH_TORCH)
  find_package(Torch REQUIRED)
  # Torch's package puts plain libraries in a variable; the alias target gives
  # it the name that the layering check knows.
  add_library(elasticdl_torch INTERFACE)
  target_link_libraries(elasticdl_torch INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(elasticdl_torch SYSTEM INTERFACE
    ${TORCH_INCLUDE_DIRS})
  add_library(elasticdl::torch ALIAS elasticdl_torch)
endif()
