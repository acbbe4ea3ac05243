# The functions a project calls; find_package(USDTBuild) includes this file.
#
# How it works: a target that uses probes gets our launcher in front of its compiler
# (<LANG>_COMPILER_LAUNCHER), so that every object is complete when its compile step ends. Nothing happens at link
# time, so that archives, object libraries, unity builds, caches and incremental builds need no special care.
# Not here: how objects are changed; the launcher does that.

# usdt_add_provider(NAME FILE.d
#                   [HEADER path/of/header.h]     how sources include it; FILE.h if not given
#                   [PROVIDERS name...]           only these providers of the file; all if not given
#                   [FORMATS stapsdt|dof|usdt...] which records to write; the target system's own if not given
#                   [PREPROCESS]                  run the C preprocessor over the file first, with
#                   [INCLUDES folder...]          these folders, relative to the current source folder, and
#                   [DEFINES NAME[=VALUE]...]     these macros
#                   [DISABLED])                   probes compile to nothing, arguments are still checked
#
# Makes NAME, an INTERFACE target that stands for the provider file. Its header is generated at build time and written
# only if it changes: touching FILE.d, or editing a comment in it, recompiles nothing.
function(usdt_add_provider)
  if(ARGC LESS 2)
    message(FATAL_ERROR "usdt_add_provider needs a name for the target and a provider file: usdt_add_provider(app app.d)")
  endif()
  set(name "${ARGV0}")
  set(where "usdt_add_provider(${name})")
  cmake_parse_arguments(PARSE_ARGV 2 arg "DISABLED;PREPROCESS" "HEADER" "PROVIDERS;FORMATS;INCLUDES;DEFINES")
  _usdtbuild_reject_stray("${where}" "HEADER, PROVIDERS, FORMATS, PREPROCESS, INCLUDES, DEFINES and DISABLED")
  if((arg_INCLUDES OR arg_DEFINES) AND NOT arg_PREPROCESS)
    message(FATAL_ERROR "${where}: INCLUDES and DEFINES are for the preprocessor; add PREPROCESS.")
  endif()
  if(TARGET "${name}")
    message(FATAL_ERROR "${where}: there is a target named ${name} already; a provider needs a name of its own, such as ${name}-probes.")
  endif()
  get_filename_component(file "${ARGV1}" ABSOLUTE)
  get_source_file_property(generated "${file}" GENERATED)
  if(IS_DIRECTORY "${file}" OR NOT (generated OR EXISTS "${file}"))
    message(FATAL_ERROR "${where}: there is no provider file ${file}. The second argument is a .d file, relative to ${CMAKE_CURRENT_SOURCE_DIR}.")
  endif()
  if("${CMAKE_CURRENT_BINARY_DIR}" MATCHES "([#<>])")
    message(FATAL_ERROR "${where}: CMake allows no commands in folders with a '${CMAKE_MATCH_1}' in their path, and headers are made by commands. Build in another folder than ${CMAKE_BINARY_DIR}: cmake -B /another/folder.")
  endif()
  if(CMAKE_GENERATOR MATCHES "Makefiles" AND CMAKE_SOURCE_DIR MATCHES "#")
    message(FATAL_ERROR "${where}: CMake's Makefiles can't be run where the sources' folder has a '#' in its path, with probes or without: ${CMAKE_SOURCE_DIR}. Use cmake -G Ninja, or another folder.")
  endif()
  _usdtbuild_choose_formats(formats "${where}" "${arg_FORMATS}")
  _usdtbuild_place_header(header include_dir "${where}" "${name}" "${file}" "${arg_HEADER}")
  _usdtbuild_decide_disabled(disabled "${arg_DISABLED}")
  if(NOT disabled)
    _usdtbuild_require_generator("${where}")
  endif()

  set(options "")
  foreach(provider IN LISTS arg_PROVIDERS)
    list(APPEND options --provider ${provider})
  endforeach()
  if(disabled)
    list(APPEND options --none)
  endif()
  if(arg_PREPROCESS)
    _usdtbuild_preprocessor_options(words "${arg_INCLUDES}" "${arg_DEFINES}")
    list(APPEND options ${words})
  endif()
  _usdtbuild_add_header_rule("${name}" "${file}" "${header}" "${options}" "${arg_PREPROCESS}")

  add_library(${name} INTERFACE)
  set_target_properties(${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "$<BUILD_INTERFACE:${include_dir}>"
    INTERFACE_USDTBUILD_PROVIDER_INCLUDE_DIR "${include_dir}"
    INTERFACE_USDTBUILD_PROVIDER_FILE "${file}"
    INTERFACE_USDTBUILD_PROVIDER_PREPROCESS "${arg_PREPROCESS}"
    INTERFACE_USDTBUILD_PROVIDER_HEADER "${header}"
    INTERFACE_USDTBUILD_FORMATS "${formats}")
  if(NOT CMAKE_VERSION VERSION_LESS 3.19)  # before that, INTERFACE targets can't depend on anything
    add_dependencies(${name} usdt-header-${name})
  endif()
  if(disabled)
    return()
  endif()
  set_property(TARGET ${name} PROPERTY INTERFACE_USDTBUILD_LAUNCH 1)
  if(formats MATCHES "dof|usdt")  # DTrace increments no semaphore: the question must be one that it can answer
    target_compile_definitions(${name} INTERFACE USDT_ENABLED_BY_CALL)
  endif()
  if(NOT CMAKE_VERSION VERSION_LESS 3.30)
    # Plain target_link_libraries() hands these two on to the launcher that _usdtbuild_prepare_linking() set.
    set_property(TARGET ${name} PROPERTY TRANSITIVE_COMPILE_PROPERTIES USDTBUILD_LAUNCH USDTBUILD_FORMATS)
  else()
    _usdtbuild_explain_linking("${name}" "${header}" "${include_dir}")
  endif()
  if(CMAKE_GENERATOR MATCHES "Makefiles")
    # Ninja compiles anew when a command line changes, launcher included. Make looks at definitions and flags only, so
    # a new version of the tool or other settings must show there.
    get_property(version GLOBAL PROPERTY USDTBUILD_VERSION)
    string(MD5 settings "${version} ${formats} ${USDTBUILD_NOP} ${USDTBUILD_SITE_TABLE}")
    string(SUBSTRING "${settings}" 0 12 settings)
    set_property(TARGET ${name} PROPERTY INTERFACE_COMPILE_DEFINITIONS "$<BUILD_INTERFACE:USDTBUILD_${settings}>")
  endif()
endfunction()

# target_usdt_providers(TARGET PROVIDER...
#                       [PATCHABLE_FUNCTION_ENTRY N[,M]|auto   also -fpatchable-function-entry=N,M,
#                       [PATCHABLE_TABLE absolute|relative]])  with the compiler's table or our own
#
# Lets the C and C++ sources of TARGET include the providers' headers and use their probes. TARGET is an executable or
# any kind of library that is compiled here. May be called more than once for one target.
function(target_usdt_providers)
  if(ARGC LESS 2)
    message(FATAL_ERROR "target_usdt_providers needs a target and one or more providers: target_usdt_providers(app app-probes)")
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "PRIVATE;PUBLIC;INTERFACE" "PATCHABLE_FUNCTION_ENTRY;PATCHABLE_TABLE" "")
  set(target "${ARGV0}")
  set(where "target_usdt_providers(${target})")
  _usdtbuild_resolve_target(target "${where}" "${target}")
  if(arg_PUBLIC OR arg_INTERFACE)
    message(FATAL_ERROR "${where}: PUBLIC and INTERFACE don't work here, because sources that use probes are compiled by a launcher, which each target needs for itself. Call target_usdt_providers for each target whose sources include the header; from CMake 3.30, target_link_libraries(${target} PUBLIC provider) does that.")
  endif()
  if("PATCHABLE_FUNCTION_ENTRY" IN_LIST arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${where}: PATCHABLE_FUNCTION_ENTRY needs numbers, such as PATCHABLE_FUNCTION_ENTRY 7,5.")
  endif()
  if(DEFINED arg_PATCHABLE_TABLE OR arg_KEYWORDS_MISSING_VALUES)
    if(NOT arg_PATCHABLE_TABLE MATCHES "^(absolute|relative)$" OR NOT arg_PATCHABLE_FUNCTION_ENTRY)
      message(FATAL_ERROR "${where}: PATCHABLE_TABLE is absolute or relative, and goes with PATCHABLE_FUNCTION_ENTRY.")
    endif()
    set_property(TARGET ${target} PROPERTY USDTBUILD_PATCHABLE_TABLE ${arg_PATCHABLE_TABLE})
    if(CMAKE_GENERATOR MATCHES "Makefiles")  # which look at definitions, see usdt_add_provider
      target_compile_definitions(${target} PRIVATE USDTBUILD_TABLE_${arg_PATCHABLE_TABLE})
    endif()
  endif()

  foreach(provider IN LISTS arg_UNPARSED_ARGUMENTS)
    _usdtbuild_resolve_provider(provider "${where}" "${provider}")
    target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_USDTBUILD_PROVIDER_INCLUDE_DIR>)
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_COMPILE_DEFINITIONS>)
    add_dependencies(${target} usdt-header-${provider})
    get_property(launch TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_LAUNCH)
    if(launch)
      get_property(formats TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_FORMATS)
      _usdtbuild_launch(${target} "${formats}")
    endif()
  endforeach()
  if(arg_PATCHABLE_FUNCTION_ENTRY)
    _usdtbuild_patchable("${where}" ${target} "${arg_PATCHABLE_FUNCTION_ENTRY}")
  endif()
endfunction()

# usdt_verify(TARGET
#             [PROVIDERS provider...]  whose probes must all be there
#             [NAME test-name]         usdt-verify-TARGET if not given
#             [ARGS option...])        options of `usdtbuild verify`
#
# Adds a test: `usdtbuild verify` looks at the finished binary and fails where a tracer would not see or not fire a
# probe. Needs enable_testing() or include(CTest) in the top CMakeLists.txt, as every test does. No test is added where
# probes are disabled.
function(usdt_verify)
  if(ARGC LESS 1)
    message(FATAL_ERROR "usdt_verify needs a target: usdt_verify(app)")
  endif()
  set(where "usdt_verify(${ARGV0})")
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "PROVIDERS;ARGS")
  _usdtbuild_reject_stray("${where}" "PROVIDERS, NAME and ARGS")
  _usdtbuild_resolve_target(target "${where}" "${ARGV0}")
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
    message(FATAL_ERROR "${where}: only what the linker made can be verified, and ${target} is a ${type}; verify the executable or shared library that contains it.")
  endif()
  if(NOT arg_NAME)
    set(arg_NAME "usdt-verify-${ARGV0}")
  endif()
  set(options "")
  foreach(provider IN LISTS arg_PROVIDERS)
    _usdtbuild_resolve_provider(provider "${where}" "${provider}")
    get_property(preprocess TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_PROVIDER_PREPROCESS)
    if(preprocess)
      message(FATAL_ERROR "${where}: ${provider} is made with PREPROCESS, and verify reads plain provider files; leave it out of PROVIDERS.")
    endif()
    get_property(launch TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_LAUNCH)
    if(launch)  # a disabled provider's probes are nowhere
      get_property(file TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_PROVIDER_FILE)
      list(APPEND options --provider "${file}")
    endif()
  endforeach()
  _usdtbuild_decide_disabled(disabled FALSE)
  if(disabled)
    return()
  endif()
  # The interpreter and not USDTBuild::usdtbuild: add_test() would run a target under CMAKE_CROSSCOMPILING_EMULATOR.
  _usdtbuild_command(command)
  add_test(NAME "${arg_NAME}" COMMAND ${command} verify ${options} ${arg_ARGS} $<TARGET_FILE:${target}>)
endfunction()

# --- providers ------------------------------------------------------------------------------------------------------

# The formats a provider is recorded in: its own, or the user's, or '' for what the launcher thinks right.
function(_usdtbuild_choose_formats out where given)
  if(NOT given)
    set(given "${USDTBUILD_FORMATS}")
  endif()
  foreach(format IN LISTS given)
    if(NOT format MATCHES "^(stapsdt|dof|usdt)$")
      message(FATAL_ERROR "${where}: there is no record format '${format}'; the formats are stapsdt, dof and usdt.")
    endif()
  endforeach()
  set(${out} "${given}" PARENT_SCOPE)
endfunction()

# Where the header goes, and the folder that makes it includable under the name the user chose.
function(_usdtbuild_place_header out_header out_dir where name file given)
  if(IS_ABSOLUTE "${given}")
    get_filename_component(dir "${given}" DIRECTORY)
    set(header "${given}")
  else()
    if(NOT given)
      get_filename_component(stem "${file}" NAME)
      string(REGEX REPLACE "\\.d$" "" stem "${stem}")
      set(given "${stem}.h")
    endif()
    set(dir "${CMAKE_CURRENT_BINARY_DIR}/usdt/${name}")
    get_filename_component(header "${dir}/${given}" ABSOLUTE)
  endif()
  if(NOT header MATCHES "\\.(h|hh|hpp|hxx|H)$")
    message(FATAL_ERROR "${where}: HEADER ${given} is not the name of a header; give it as sources include it, such as HEADER myproject/probes.h.")
  endif()
  set(${out_header} "${header}" PARENT_SCOPE)
  set(${out_dir} "${dir}" PARENT_SCOPE)
endfunction()

# Before CMake 3.30 a target that merely links the provider gets no launcher, and would not link for want of symbols that
# tell nobody anything. So it is shown another header, which says what to write.
function(_usdtbuild_explain_linking name header include_dir)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/usdt/${name}.linked")
  file(RELATIVE_PATH shown "${include_dir}" "${header}")
  set(text "#error \"a target that uses these probes links ${name}, which makes no probes with CMake before 3.30: write target_usdt_providers(TARGET ${name}) for it\"\n")
  file(GENERATE OUTPUT "${folder}/${shown}" CONTENT "${text}")
  set_property(TARGET ${name} PROPERTY INTERFACE_INCLUDE_DIRECTORIES
    "$<BUILD_INTERFACE:$<IF:$<BOOL:$<TARGET_PROPERTY:USDTBUILD_CHECKED>>,${include_dir},${folder}>>")
endfunction()

# Whether probes are to compile to nothing: the project says so, the user does, or the system has none of our tracers.
function(_usdtbuild_decide_disabled out asked)
  set(disabled FALSE)
  if(asked OR USDTBUILD_DISABLED)
    set(disabled TRUE)
  elseif(NOT CMAKE_SYSTEM_NAME MATCHES "^(Linux|Android|FreeBSD|SunOS)$")
    set(disabled TRUE)
    get_property(said GLOBAL PROPERTY USDTBUILD_SAID_NO_TRACING)
    if(NOT said)
      message(STATUS "usdtbuild: no probes on ${CMAKE_SYSTEM_NAME}; they compile to nothing")
      set_property(GLOBAL PROPERTY USDTBUILD_SAID_NO_TRACING TRUE)
    endif()
  endif()
  set(${out} ${disabled} PARENT_SCOPE)
endfunction()

# The generators that honour <LANG>_COMPILER_LAUNCHER. The others would build programs whose probes don't link.
function(_usdtbuild_require_generator where)
  if(NOT CMAKE_GENERATOR MATCHES "^Ninja|Makefiles")
    message(FATAL_ERROR "${where}: the generator ${CMAKE_GENERATOR} ignores compiler launchers, through which probes are built. Configure with -G Ninja or -G \"Unix Makefiles\", or with -DUSDTBUILD_DISABLED=ON for a build without probes.")
  endif()
endfunction()

# PREPROCESS as options of `usdtbuild header`.
function(_usdtbuild_preprocessor_options out includes defines)
  set(options -C)
  foreach(folder IN LISTS includes)
    get_filename_component(folder "${folder}" ABSOLUTE)
    list(APPEND options -I "${folder}")
  endforeach()
  foreach(define IN LISTS defines)
    list(APPEND options -D "${define}")
  endforeach()
  set(${out} "${options}" PARENT_SCOPE)
endfunction()

# The rule that makes the header, and the target usdt-header-NAME that others can depend on.
function(_usdtbuild_add_header_rule name file header options preprocess)
  get_filename_component(shown "${header}" NAME)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/usdt/${name}")
  _usdtbuild_command(command)
  list(APPEND command header "${file}" --formats=stapsdt,dof,usdt -o "${header}" --stamp "${folder}/stamp" ${options})
  set(watch_includes "")
  if(preprocess)
    set(compiler "${CMAKE_C_COMPILER}")
    if(NOT compiler)
      set(compiler "${CMAKE_CXX_COMPILER}")
    endif()
    set(command "${CMAKE_COMMAND}" -E env "CC=${compiler}" ${command})
    # Older CMakes with Make have no way to watch what is included; there a changed .d alone makes the header anew.
    if(CMAKE_GENERATOR MATCHES "^Ninja" OR NOT CMAKE_VERSION VERSION_LESS 3.20)
      list(APPEND command --depfile "${folder}/depends")
      set(watch_includes DEPFILE "${folder}/depends")
    endif()
  endif()
  # Make doesn't notice that a command has changed; this file, rewritten only when it has, tells it.
  get_property(version GLOBAL PROPERTY USDTBUILD_VERSION)
  file(GENERATE OUTPUT "${folder}/command" CONTENT "usdtbuild ${version}\n${command}\n")
  # The stamp is what the rule makes, the header a by-product: an unchanged header isn't written again, and would
  # otherwise be older than the provider file for ever.
  add_custom_command(
    OUTPUT "${folder}/stamp"
    BYPRODUCTS "${header}"
    COMMAND ${command}
    DEPENDS "${file}" "${folder}/command"
    ${watch_includes}
    COMMENT "Generating probe header ${shown}"
    VERBATIM)
  add_custom_target(usdt-header-${name} DEPENDS "${folder}/stamp")
endfunction()

# --- targets --------------------------------------------------------------------------------------------------------

# Put our launcher in front of the target's compilers, with these formats and those of earlier calls.
function(_usdtbuild_launch target formats)
  get_property(all TARGET ${target} PROPERTY USDTBUILD_TARGET_FORMATS)
  list(APPEND all ${formats})
  list(REMOVE_DUPLICATES all)
  set_property(TARGET ${target} PROPERTY USDTBUILD_TARGET_FORMATS "${all}")
  _usdtbuild_launcher(launcher "${all}")
  get_property(table TARGET ${target} PROPERTY USDTBUILD_PATCHABLE_TABLE)
  if(table)
    get_property(door GLOBAL PROPERTY USDTBUILD_DOOR)
    list(LENGTH door behind)
    list(INSERT launcher ${behind} --patchable-table=${table})
  endif()
  foreach(language C CXX)
    get_property(others TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER)
    _usdtbuild_strip_linking_launcher(others "${others}")
    _usdtbuild_strip_launcher(others "${others}")
    set_property(TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER ${launcher} ${others})
  endforeach()
  get_property(checked TARGET ${target} PROPERTY USDTBUILD_CHECKED)
  if(NOT checked)
    set_property(TARGET ${target} PROPERTY USDTBUILD_CHECKED TRUE)
    _usdtbuild_warn_of_rule_launcher(${target})
    if(NOT CMAKE_VERSION VERSION_LESS 3.19)
      cmake_language(EVAL CODE "cmake_language(DEFER CALL _usdtbuild_check_launcher [[${target}]])")
    endif()
  endif()
endfunction()

# Make the launcher's door: a native program in the build folder, which costs a compile step next to nothing, or, where
# there is no compiler for the machine that builds, Python (isolated mode without site-packages starts in 9 ms).
function(_usdtbuild_define_door)
  get_property(python GLOBAL PROPERTY USDTBUILD_PYTHON)
  get_property(package GLOBAL PROPERTY USDTBUILD_PACKAGE)
  get_property(defined GLOBAL PROPERTY USDTBUILD_DOOR SET)
  if(defined)
    return()
  endif()
  set(door "${python}" -I -S "${package}/launcher.py")
  if(NOT USDTBUILD_DISABLED)
    execute_process(COMMAND ${door} --native "${CMAKE_BINARY_DIR}/CMakeFiles/usdtbuild"
      OUTPUT_VARIABLE said RESULT_VARIABLE code ERROR_QUIET)
    if(code EQUAL 0 AND said)
      string(REGEX REPLACE "\n$" "" said "${said}")
      string(REPLACE "\n" ";" door "${said}")
    endif()
  endif()
  set_property(GLOBAL PROPERTY USDTBUILD_DOOR "${door}")
endfunction()

# Tell whether words begin with the launcher's door.
function(_usdtbuild_begins_with_door out words)
  get_property(door GLOBAL PROPERTY USDTBUILD_DOOR)
  string(FIND "${words};" "${door};" at)
  set(${out} FALSE PARENT_SCOPE)
  if(at EQUAL 0)
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# The launcher as the words that stand before the compiler.
function(_usdtbuild_launcher out formats)
  get_property(door GLOBAL PROPERTY USDTBUILD_DOOR)
  get_property(version GLOBAL PROPERTY USDTBUILD_VERSION)
  set(words ${door} --tool-version=${version})
  # Objects don't always say which system they are for.
  if(CMAKE_SYSTEM_NAME STREQUAL "FreeBSD")
    list(APPEND words --target-os=freebsd)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "SunOS")
    list(APPEND words --target-os=illumos)
  endif()
  if(USDTBUILD_NOP)
    list(APPEND words --nop=${USDTBUILD_NOP})
  endif()
  if(USDTBUILD_SITE_TABLE)
    list(APPEND words --site-table)
  endif()
  if(formats)
    string(REPLACE ";" "," formats "${formats}")
    list(APPEND words --formats=${formats})
  endif()
  set(${out} ${words} -- PARENT_SCOPE)
endfunction()

# A launcher property without the words that an earlier call put in front.
function(_usdtbuild_strip_launcher out words)
  _usdtbuild_begins_with_door(ours "${words}")
  if(ours)
    list(FIND words "--" end)
    math(EXPR after "${end} + 1")
    list(LENGTH words length)
    if(after EQUAL length)
      set(words "")
    else()
      list(SUBLIST words ${after} -1 words)
    endif()
  endif()
  set(${out} "${words}" PARENT_SCOPE)
endfunction()

# At the end of the directory: somebody may have replaced the launcher after we set it, and the only trace of that
# would be undefined symbols at link time.
function(_usdtbuild_check_launcher target)
  foreach(language C CXX)
    get_property(words TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER)
    _usdtbuild_begins_with_door(ours "${words}")
    if(NOT ours)
      message(FATAL_ERROR "target_usdt_providers(${target}): ${language}_COMPILER_LAUNCHER was changed afterwards, to '${words}', so the probes would not be built. Set it before target_usdt_providers(${target} ...), which keeps it and puts itself in front.")
    endif()
  endforeach()
endfunction()

# The older way to use ccache puts it in front of everything, us included, and caches nothing then.
function(_usdtbuild_warn_of_rule_launcher target)
  get_property(everywhere GLOBAL PROPERTY RULE_LAUNCH_COMPILE)
  get_property(directory DIRECTORY PROPERTY RULE_LAUNCH_COMPILE)
  get_property(own TARGET ${target} PROPERTY RULE_LAUNCH_COMPILE)
  if("${everywhere};${directory};${own}" MATCHES "(s?ccache|distcc)")
    message(WARNING "target_usdt_providers(${target}): RULE_LAUNCH_COMPILE runs ${CMAKE_MATCH_1} in front of the probes' launcher, where it can't cache. Use CMAKE_C_COMPILER_LAUNCHER and CMAKE_CXX_COMPILER_LAUNCHER instead; then it runs behind.")
  endif()
endfunction()

# Add -fpatchable-function-entry, once each compiler of the project has shown what it makes of these numbers.
function(_usdtbuild_patchable where target numbers)
  if(numbers STREQUAL "auto")
    set(numbers "")
  elseif(NOT numbers MATCHES "^([0-9]+)(,([0-9]+))?$" OR CMAKE_MATCH_3 GREATER CMAKE_MATCH_1)
    message(FATAL_ERROR "${where}: PATCHABLE_FUNCTION_ENTRY ${numbers} is not N or N,M: the number of NOPs, and how many of them stand before the function's entry, which can't be more. PATCHABLE_FUNCTION_ENTRY auto takes the smallest that is safe.")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  get_property(table TARGET ${target} PROPERTY USDTBUILD_PATCHABLE_TABLE)
  foreach(language IN ITEMS C CXX)
    if(language IN_LIST languages)
      _usdtbuild_patchable_flags(flags problem "${numbers}" ${language} "${table}")
      if(problem)
        message(FATAL_ERROR "${where}: PATCHABLE_FUNCTION_ENTRY can't be had with ${CMAKE_${language}_COMPILER}: ${problem}")
      endif()
      foreach(flag IN LISTS flags)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:${language}>:${flag}>")
      endforeach()
    endif()
  endforeach()
endfunction()

# What `usdtbuild flags` says of one compiler of the project: flags, or a problem. It compiles a probe and runs it where
# it can, because there are compilers that take the option and miscompile it. Asked once for each build folder and table.
function(_usdtbuild_patchable_flags out_flags out_problem numbers language table)
  set(compiler "${CMAKE_${language}_COMPILER}")
  separate_arguments(own UNIX_COMMAND "${CMAKE_${language}_FLAGS}")
  if(CMAKE_${language}_COMPILER_TARGET)
    list(APPEND own --target=${CMAKE_${language}_COMPILER_TARGET})
  endif()
  if(CMAKE_SYSROOT)
    list(APPEND own --sysroot=${CMAKE_SYSROOT})
  endif()
  get_property(version GLOBAL PROPERTY USDTBUILD_VERSION)
  string(MD5 key "${version} ${numbers} ${table} ${compiler} ${CMAKE_${language}_COMPILER_VERSION} ${own}")
  if(NOT DEFINED _USDTBUILD_PATCHABLE_${key})
    set(emulator "")
    if(CMAKE_CROSSCOMPILING_EMULATOR)
      string(REPLACE ";" " " words "${CMAKE_CROSSCOMPILING_EMULATOR}")
      set(emulator --emulator "${words}")
    endif()
    set(names C c CXX c++)
    list(FIND names ${language} index)
    math(EXPR index "${index} + 1")
    list(GET names ${index} name)
    if(table)
      set(table --patchable-table=${table})
    endif()
    _usdtbuild_command(command)
    execute_process(
      COMMAND ${command} flags --patchable ${numbers} ${table} --compiler "${compiler}" --language ${name} ${emulator} -- ${own}
      OUTPUT_VARIABLE flags ERROR_VARIABLE said RESULT_VARIABLE result
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "usdtbuild: " "" said "${said}")
    if(NOT result EQUAL 0)
      set(${out_flags} "" PARENT_SCOPE)
      set(${out_problem} "${said}" PARENT_SCOPE)
      return()
    endif()
    if(said)
      string(REPLACE "--patchable-table=relative" "PATCHABLE_TABLE relative" said "${said}")
      message(WARNING "-fpatchable-function-entry with ${compiler}: ${said}")
    endif()
    separate_arguments(flags UNIX_COMMAND "${flags}")
    set(_USDTBUILD_PATCHABLE_${key} "${flags}" CACHE INTERNAL "Options for patchable function entries")
  endif()
  set(${out_flags} "${_USDTBUILD_PATCHABLE_${key}}" PARENT_SCOPE)
  set(${out_problem} "" PARENT_SCOPE)
endfunction()

# --- what was passed ------------------------------------------------------------------------------------------------

# Complain of arguments the caller's cmake_parse_arguments(... arg ...) could not place. A macro: it reads arg_*.
macro(_usdtbuild_reject_stray where known)
  if(arg_UNPARSED_ARGUMENTS)
    string(REPLACE ";" " " stray "${arg_UNPARSED_ARGUMENTS}")
    message(FATAL_ERROR "${where}: don't know what to do with '${stray}'; the options are ${known}.")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    string(REPLACE ";" " and " missing "${arg_KEYWORDS_MISSING_VALUES}")
    message(FATAL_ERROR "${where}: ${missing} needs a value.")
  endif()
endmacro()

# The target behind a name that may be an alias, if sources are compiled for it.
function(_usdtbuild_resolve_target out where name)
  if(NOT TARGET "${name}")
    message(FATAL_ERROR "${where}: there is no target ${name}; call this after add_executable() or add_library().")
  endif()
  get_target_property(aliased ${name} ALIASED_TARGET)
  if(aliased)
    set(name ${aliased})
  endif()
  get_target_property(type ${name} TYPE)
  get_target_property(imported ${name} IMPORTED)
  if(imported)
    message(FATAL_ERROR "${where}: ${name} is imported, so nothing of it is built here.")
  elseif(type MATCHES "^(INTERFACE_LIBRARY|UTILITY)$")
    message(FATAL_ERROR "${where}: ${name} has no sources of its own to compile (it is a ${type}); name the targets whose sources use the probes.")
  endif()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# The provider target behind a name that may be an alias.
function(_usdtbuild_resolve_provider out where name)
  if(NOT TARGET "${name}")
    set(hint "")
    if(name MATCHES "\\.d$")
      set(hint " That is a file: usdt_add_provider(NAME ${name}) makes a target from it.")
    endif()
    message(FATAL_ERROR "${where}: there is no provider ${name}; usdt_add_provider() must come first.${hint}")
  endif()
  get_target_property(aliased ${name} ALIASED_TARGET)
  if(aliased)
    set(name ${aliased})
  endif()
  get_property(is_provider TARGET ${name} PROPERTY INTERFACE_USDTBUILD_PROVIDER_HEADER SET)
  if(NOT is_provider)
    message(FATAL_ERROR "${where}: ${name} is a target, but not one that usdt_add_provider() made.")
  endif()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# --- the tool -------------------------------------------------------------------------------------------------------

# The command line tool as words for COMMAND.
function(_usdtbuild_command out)
  get_property(python GLOBAL PROPERTY USDTBUILD_PYTHON)
  get_property(folder GLOBAL PROPERTY USDTBUILD_FOLDER)
  set(${out} "${python}" -E "${folder}/run.py" PARENT_SCOPE)
endfunction()

# USDTBuild::usdtbuild, a script in the build folder: an imported executable must be one file.
function(_usdtbuild_define_tool)
  if(TARGET USDTBuild::usdtbuild OR CMAKE_HOST_WIN32)
    return()
  endif()
  get_property(python GLOBAL PROPERTY USDTBUILD_PYTHON)
  get_property(source GLOBAL PROPERTY USDTBUILD_FOLDER)
  get_property(version GLOBAL PROPERTY USDTBUILD_VERSION)
  set(folder "${CMAKE_BINARY_DIR}/CMakeFiles/usdtbuild")
  configure_file("${source}/tool.in" "${folder}/plain/usdtbuild" @ONLY)
  file(COPY "${folder}/plain/usdtbuild" DESTINATION "${folder}"
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  add_executable(USDTBuild::usdtbuild IMPORTED)
  set_target_properties(USDTBuild::usdtbuild PROPERTIES IMPORTED_LOCATION "${folder}/usdtbuild")
endfunction()

# Answer find_package's COMPONENTS. A macro: the answers are variables of the caller.
macro(_usdtbuild_check_components)
  set(USDTBuild_FOUND TRUE)
  foreach(_usdtbuild_component IN LISTS USDTBuild_FIND_COMPONENTS)
    set(USDTBuild_${_usdtbuild_component}_FOUND FALSE)
    set(_usdtbuild_why "there is no component ${_usdtbuild_component}; there are Build, Verify and PatchableFunctionEntry")
    if(_usdtbuild_component MATCHES "^(Build|Verify)$")
      set(USDTBuild_${_usdtbuild_component}_FOUND TRUE)
    elseif(_usdtbuild_component STREQUAL "PatchableFunctionEntry")
      set(USDTBuild_${_usdtbuild_component}_FOUND TRUE)
      get_property(_usdtbuild_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
      foreach(_usdtbuild_language IN ITEMS C CXX)
        if(";${_usdtbuild_languages};" MATCHES ";${_usdtbuild_language};")
          _usdtbuild_patchable_flags(_usdtbuild_flags _usdtbuild_problem "" ${_usdtbuild_language} "")
          if(_usdtbuild_problem)
            set(USDTBuild_${_usdtbuild_component}_FOUND FALSE)
            set(_usdtbuild_why "${_usdtbuild_problem}")
          endif()
        endif()
      endforeach()
      unset(_usdtbuild_flags)
      unset(_usdtbuild_language)
      unset(_usdtbuild_languages)
      unset(_usdtbuild_problem)
    endif()
    if(USDTBuild_FIND_REQUIRED_${_usdtbuild_component} AND NOT USDTBuild_${_usdtbuild_component}_FOUND)
      set(USDTBuild_FOUND FALSE)
      set(USDTBuild_NOT_FOUND_MESSAGE "USDTBuild: ${_usdtbuild_why}.")
    endif()
  endforeach()
  unset(_usdtbuild_component)
  unset(_usdtbuild_why)
endmacro()

# --- plain target_link_libraries(), CMake 3.30 and newer --------------------------------------------------------------

# What stands in a launcher property in front of `others`: nothing for targets that link no provider, else the
# launcher's words. The separator belongs to the words, because an empty element would be run as a program.
function(_usdtbuild_linking_launcher out others)
  _usdtbuild_launcher(words "@formats@")
  if(others)
    list(APPEND words "")
  endif()
  string(REPLACE ";" "$<SEMICOLON>" words "${words}")
  set(formats "$<TARGET_PROPERTY:USDTBUILD_FORMATS>")
  string(REPLACE "--formats=@formats@$<SEMICOLON>"
    "$<$<BOOL:${formats}>:--formats=$<JOIN:$<REMOVE_DUPLICATES:${formats}>,$<COMMA>>$<SEMICOLON>>" words "${words}")
  set(${out} "$<$<BOOL:$<TARGET_PROPERTY:USDTBUILD_LAUNCH>>:${words}>" PARENT_SCOPE)
endfunction()

# A launcher property without that.
function(_usdtbuild_strip_linking_launcher out words)
  foreach(others TRUE FALSE)
    _usdtbuild_linking_launcher(linking ${others})
    string(REPLACE "${linking}" "" words "${words}")
  endforeach()
  set(${out} "${words}" PARENT_SCOPE)
endfunction()

# Let every target that is made after this point look at what it links. A macro: it sets the caller's variables, from
# which targets take their launchers.
macro(_usdtbuild_prepare_linking)
  if(NOT CMAKE_VERSION VERSION_LESS 3.30 AND CMAKE_GENERATOR MATCHES "^Ninja|Makefiles")
    foreach(_usdtbuild_language C CXX)
      # Without what an earlier find_package() in this directory or above put there.
      _usdtbuild_strip_linking_launcher(_usdtbuild_others "${CMAKE_${_usdtbuild_language}_COMPILER_LAUNCHER}")
      _usdtbuild_linking_launcher(_usdtbuild_linking "${_usdtbuild_others}")
      set(CMAKE_${_usdtbuild_language}_COMPILER_LAUNCHER "${_usdtbuild_linking}${_usdtbuild_others}")
    endforeach()
    unset(_usdtbuild_language)
    unset(_usdtbuild_linking)
    unset(_usdtbuild_others)
  endif()
endmacro()
