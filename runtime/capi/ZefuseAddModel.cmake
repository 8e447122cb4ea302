# zefuse_add_model(name MODEL model.pt2 [TARGETS cpu dg2-g11 ...] [OUTPUT model.zefuse] [OPTIONS --option x=y ...])
#
# A target `name` that compiles a torch.export program at build time, for programs without Python and torch: operators that
# only torch has are an error, each named. Its property ZEFUSE_PACKAGE is the package's path, by default
# ${CMAKE_CURRENT_BINARY_DIR}/name.zefuse. MODEL may also be a Python factory, module:function, with PYTHONPATH in the
# environment. Compiling needs zefuse's Python package with torch; ZEFUSE_COMMAND names its command (a list).
find_program(ZEFUSE_EXECUTABLE zefuse DOC "the command of zefuse's Python package")

function(zefuse_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "MODEL;OUTPUT" "TARGETS;OPTIONS")
  if(NOT ARG_MODEL OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "zefuse_add_model(${name} MODEL model.pt2 [TARGETS ...] [OUTPUT ...] [OPTIONS ...]): "
                        "MODEL is missing, or '${ARG_UNPARSED_ARGUMENTS}' is no argument")
  endif()
  set(command ${ZEFUSE_COMMAND})
  if(NOT command)
    set(command ${ZEFUSE_EXECUTABLE})
  endif()
  if(NOT command)
    message(FATAL_ERROR "zefuse_add_model: no command zefuse; set ZEFUSE_COMMAND, for example to \"python3;-m;zefuse\"")
  endif()
  set(depends)
  set(model ${ARG_MODEL})
  if(NOT model MATCHES "^[A-Za-z0-9_.]+:[A-Za-z0-9_]+$")
    get_filename_component(model ${model} ABSOLUTE)
    set(depends ${model})
  endif()
  set(output ${ARG_OUTPUT})
  if(NOT output)
    set(output ${name}.zefuse)
  endif()
  get_filename_component(output ${output} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  get_filename_component(folder ${output} DIRECTORY)
  set(targets)
  if(ARG_TARGETS)
    list(JOIN ARG_TARGETS "," list)
    set(targets --targets ${list})
  endif()
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${command} compile ${model} --standalone ${targets} ${ARG_OPTIONS} -o ${output}
    DEPENDS ${depends} VERBATIM COMMENT "zefuse: ${name}")
  add_custom_target(${name} ALL DEPENDS ${output})
  set_target_properties(${name} PROPERTIES ZEFUSE_PACKAGE ${output})
endfunction()
