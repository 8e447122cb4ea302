# The torch versions that the glue (runtime/aten, python/) is compiled against, those of ZEFUSE_TORCH_DIRS (ZefusePython.cmake).
# One set of glue each, in lib/torch-2.13/ and so on, from which the package picks at import.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT ZEFUSE_TORCH_DIRS)
  message(FATAL_ERROR "no torch to compile against: install torch (docs/install.md has the versions) for ${Python3_EXECUTABLE}, or set ZEFUSE_TORCH_DIRS to the folders of torch packages (site-packages/torch)")
endif()

# Of each torch its version and a suffix of targets, none for the first: ZEFUSE_TORCHES is a list of suffixes, "-" for none.
set(ZEFUSE_TORCHES)
foreach(dir IN LISTS ZEFUSE_TORCH_DIRS)
  file(STRINGS ${dir}/version.py line REGEX "^__version__")
  string(REGEX MATCH "([0-9]+)\\.([0-9]+)" version "${line}")
  set(suffix _${CMAKE_MATCH_1}_${CMAKE_MATCH_2})
  if(NOT ZEFUSE_TORCHES)
    set(suffix "")
    set(ZEFUSE_TORCHES "-")
  else()
    list(APPEND ZEFUSE_TORCHES ${suffix})
  endif()
  # Not through find_package(Torch): its targets bring all of torch's libraries. Whoever loads the glue has loaded torch.
  add_library(zefuse_torch_headers${suffix} INTERFACE)
  target_include_directories(zefuse_torch_headers${suffix} SYSTEM INTERFACE ${dir}/include)
  add_library(zefuse_torch${suffix} INTERFACE)
  target_link_libraries(zefuse_torch${suffix} INTERFACE zefuse_torch_headers${suffix} ${dir}/lib/libtorch_cpu.so ${dir}/lib/libc10.so)
  add_library(zefuse_torch_python${suffix} INTERFACE)
  target_link_libraries(zefuse_torch_python${suffix} INTERFACE ${dir}/lib/libtorch_python.so)
  set(ZEFUSE_TORCH_FOLDER${suffix} torch-${version})
endforeach()
