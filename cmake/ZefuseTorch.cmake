# The torch versions that the glue (runtime/aten, python/) is compiled against, those of ZEFUSE_TORCH_DIRS (ZefusePython.cmake).
# One set of glue each, in lib/torch-2.13/ and so on, from which the package picks at import. The part that is Python's (_C) is
# compiled for each Python as well: the one that builds, and those of ZEFUSE_PYTHON_HEADERS.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT ZEFUSE_TORCH_DIRS)
  message(FATAL_ERROR "no torch to compile against: install torch (docs/install.md has the versions) for ${Python3_EXECUTABLE}, or set ZEFUSE_TORCH_DIRS to the folders of torch packages (site-packages/torch)")
endif()

# What is compiled once for each torch: ZEFUSE_TORCHES, a list of suffixes of targets, "-" for none, which the first one has.
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

# Of each Python its headers, and what its extension modules' names end in. Headers alone are enough: an extension links no
# libpython. The target's suffix is "" for the Python that builds.
add_library(zefuse_python_headers INTERFACE)
target_link_libraries(zefuse_python_headers INTERFACE Python3::Module)
set(ZEFUSE_SOABI ${Python3_SOABI})
set(ZEFUSE_PYTHONS "-")
foreach(dir IN LISTS ZEFUSE_PYTHON_HEADERS)
  file(STRINGS ${dir}/patchlevel.h lines REGEX "define PY_M(AJOR|INOR)_VERSION")
  string(REGEX MATCH "MAJOR_VERSION +([0-9]+).*MINOR_VERSION +([0-9]+)" _ "${lines}")
  set(suffix _${CMAKE_MATCH_1}${CMAKE_MATCH_2})
  add_library(zefuse_python_headers${suffix} INTERFACE)
  target_include_directories(zefuse_python_headers${suffix} SYSTEM INTERFACE ${dir} ${dir}/..)  # Debian's pyconfig.h names a neighbour
  set(ZEFUSE_SOABI${suffix} cpython-${CMAKE_MATCH_1}${CMAKE_MATCH_2}-x86_64-linux-gnu)
  list(APPEND ZEFUSE_PYTHONS ${suffix})
endforeach()

# What is compiled for each torch and Python: ZEFUSE_GLUES, again suffixes; of each, ZEFUSE_GLUE_TORCH and ZEFUSE_GLUE_PYTHON.
set(ZEFUSE_GLUES)
foreach(torch IN LISTS ZEFUSE_TORCHES)
  foreach(python IN LISTS ZEFUSE_PYTHONS)
    string(REPLACE "-" "" of_torch ${torch})
    string(REPLACE "-" "" of_python ${python})
    set(suffix "${of_torch}${of_python}")
    set(ZEFUSE_GLUE_TORCH${suffix} "${of_torch}")
    set(ZEFUSE_GLUE_PYTHON${suffix} "${of_python}")
    if(suffix STREQUAL "")
      set(suffix "-")
    endif()
    list(APPEND ZEFUSE_GLUES ${suffix})
  endforeach()
endforeach()
