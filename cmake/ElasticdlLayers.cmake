# Who may never reach whom (docs/architecture.md, "Direction of dependencies").
foreach(target elasticdl elasticdl-master elasticdl-ps elasticdl_master
               elasticdl_cli elasticdl_data elasticdl_checkpoint elasticdl_optim
               elasticdl_ledger elasticdl_metric)
  elasticdl_forbid_dependency(${target} elasticdl_torch elasticdl_model)
endforeach()
elasticdl_forbid_dependency(elasticdl gRPC::grpc++)
elasticdl_forbid_dependency(elasticdl_worker elasticdl_kube)
elasticdl_forbid_dependency(elasticdl_collective gRPC::grpc++)
elasticdl_forbid_dependency(elasticdl_kube elasticdl_proto)
get_property(modules GLOBAL PROPERTY ELASTICDL_MODULES)
foreach(module IN LISTS modules)
  if(NOT module MATCHES "^(cli|program|master_program)$")
    elasticdl_forbid_dependency(elasticdl_${module} elasticdl_cli)
  endif()
endforeach()
if(ELASTICDL_BUILD_TESTS AND ELASTICDL_WITH_TORCH)
  elasticdl_check_tests()
endif()
