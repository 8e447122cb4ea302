# The interpreter that is built for, and where its packages lie: .venv's, or that of a wheel's build.
# ZEFUSE_PYTHON_PREFIXES: folders with lib/ and include/ of packages; of an isolated build pip's own one first.
if(SKBUILD)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import sys, sysconfig, pathlib
places = [p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))] + [sysconfig.get_path('purelib')]
print(';'.join(dict.fromkeys(str(pathlib.Path(p).parents[2]) for p in places)))
print(';'.join(dict.fromkeys(str(t) for p in places if (t := pathlib.Path(p) / 'torch').is_dir())))"
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "^([^\n]*)\n?(.*)$" _ "${answer}")
  set(ZEFUSE_PYTHON_PREFIXES ${CMAKE_MATCH_1})
  set(torch_dirs ${CMAKE_MATCH_2})
  list(POP_FRONT torch_dirs torch_dir)
  set(ZEFUSE_STATIC_LLVM ON)
  set(ZEFUSE_BUILD_TESTS OFF)
else()
  # The Python environment the Makefile made: oneDNN and torch live in it.
  set(ZEFUSE_VENV "${CMAKE_CURRENT_SOURCE_DIR}/.venv" CACHE PATH "virtual environment with torch and oneDNN")
  set(ZEFUSE_PYTHON_PREFIXES ${ZEFUSE_VENV})
  if(NOT Python3_EXECUTABLE)
    set(Python3_EXECUTABLE ${ZEFUSE_VENV}/bin/python)
  endif()
  file(GLOB torch_dir ${ZEFUSE_VENV}/lib/python3*/site-packages/torch)
endif()
set(ZEFUSE_TORCH_DIRS "" CACHE STRING "folders of torch packages (site-packages/torch), one glue each; empty: the interpreter's")
if(NOT ZEFUSE_TORCH_DIRS AND DEFINED ENV{ZEFUSE_TORCH_DIRS})
  set(ZEFUSE_TORCH_DIRS $ENV{ZEFUSE_TORCH_DIRS})
endif()
if(NOT ZEFUSE_TORCH_DIRS)
  set(ZEFUSE_TORCH_DIRS ${torch_dir})
endif()
set(ZEFUSE_PYTHON_HEADERS "" CACHE STRING "folders with Python.h of other Pythons to compile the glue for as well")
if(NOT ZEFUSE_PYTHON_HEADERS AND DEFINED ENV{ZEFUSE_PYTHON_HEADERS})
  set(ZEFUSE_PYTHON_HEADERS $ENV{ZEFUSE_PYTHON_HEADERS})
endif()
