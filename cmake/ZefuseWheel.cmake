# What a wheel holds besides the Python files and the C interface (component runtime, runtime/capi): the libraries in lib/, each
# with a run path inside the wheel.
find_library(ZEFUSE_GOMP NAMES libgomp.so.1 REQUIRED)

set_target_properties(zefuse_core ze_zefuse_cpu ze_zefuse_cuda zefuse-spirv-emitter zefuse-jit zefuse-try-loader PROPERTIES INSTALL_RPATH "$ORIGIN")
# By file, not by target: a wheel holds no links, and nobody links these but through find_package(zefuse).
install(TARGETS zefuse_core ze_zefuse_cpu ze_zefuse_cuda LIBRARY DESTINATION lib NAMELINK_SKIP COMPONENT runtime)
install(TARGETS zefuse-spirv-emitter zefuse-ptx RUNTIME DESTINATION lib COMPONENT runtime)
# torch's own libgomp has the same name, and the first one loaded serves all: this one is for programs without torch.
install(PROGRAMS ${ZEFUSE_ONEDNN} DESTINATION lib COMPONENT runtime)
file(REAL_PATH ${ZEFUSE_GOMP} gomp)
install(PROGRAMS ${gomp} DESTINATION lib RENAME libgomp.so.1 COMPONENT runtime)
add_custom_target(zefuse_wheel
  DEPENDS zefuse_core ze_zefuse_cpu ze_zefuse_cuda zefuse_runtime_shared zefuse-spirv-emitter zefuse-jit zefuse-ptx zefuse-try-loader)
get_property(sycl GLOBAL PROPERTY ZEFUSE_SYCL_TARGETS)  # those that this machine has the headers for
if(sycl)
  add_dependencies(zefuse_wheel ${sycl})
endif()
# torch's libraries are loaded before these.
foreach(suffix IN LISTS ZEFUSE_TORCHES)
  string(REPLACE "-" "" suffix ${suffix})
  add_dependencies(zefuse_wheel zefuse_aten${suffix})
  set_target_properties(zefuse_aten${suffix} PROPERTIES INSTALL_RPATH "")
  install(TARGETS zefuse_aten${suffix} LIBRARY DESTINATION lib/${ZEFUSE_TORCH_FOLDER${suffix}} COMPONENT runtime)
endforeach()
foreach(suffix IN LISTS ZEFUSE_GLUES)
  string(REPLACE "-" "" suffix ${suffix})
  add_dependencies(zefuse_wheel zefuse_python${suffix})
  set_target_properties(zefuse_python${suffix} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  # Half of a glue's compilation is what its files have in common of torch's and pybind11's headers, and nobody edits them here.
  set_target_properties(zefuse_python${suffix} zefuse_import_fx${suffix} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  install(TARGETS zefuse_python${suffix}
          LIBRARY DESTINATION lib/${ZEFUSE_TORCH_FOLDER${ZEFUSE_GLUE_TORCH${suffix}}} COMPONENT runtime)
endforeach()
