# The functions a project calls; find_package(USDTBuild) includes this file.
#
# How it works: a header is made from each provider file, and its macros are whole probes. Compilers and linkers run as
# they do without probes. Other record formats than SDT notes are made in objects: USDTBuildProcessing.cmake.

# usdt_add_provider(NAME FILE.d
#                   [HEADER path/of/header.h]     how sources include it; FILE.h if not given
#                   [COMMITTED header.h]          the header is in the repository; the build makes none
#                   [PROVIDERS name...]           only these providers of the file; all if not given
#                   [FORMATS stapsdt|dof|usdt...] which records to write; the target system's own if not given
#                   [LIVE]                        probes that usdt_live.h can switch (docs/live.md)
#                   [PREPROCESS]                  run the C preprocessor over the file first, with
#                   [INCLUDES folder...]          these folders, relative to the current source folder, and
#                   [DEFINES NAME[=VALUE]...]     these macros
#                   [DISABLED])                   probes compile to nothing, arguments are still checked
#
# Makes NAME, an INTERFACE target that stands for the provider file and its header, which is written only if it changes.
# With COMMITTED, a test named usdt-header-NAME says whether the header fits FILE.d.
function(usdt_add_provider)
  if(ARGC LESS 2)
    message(FATAL_ERROR "usdt_add_provider needs a name for the target and a provider file: usdt_add_provider(app app.d)")
  endif()
  set(name "${ARGV0}")
  set(where "usdt_add_provider(${name})")
  cmake_parse_arguments(PARSE_ARGV 2 arg "DISABLED;LIVE;PREPROCESS" "HEADER;COMMITTED" "PROVIDERS;FORMATS;INCLUDES;DEFINES")
  _usdtbuild_reject_stray("${where}" "HEADER, COMMITTED, PROVIDERS, FORMATS, LIVE, PREPROCESS, INCLUDES, DEFINES and DISABLED")
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
  _usdtbuild_choose_formats(formats "${where}" "${arg_FORMATS}")
  _usdtbuild_decide_disabled(disabled "${arg_DISABLED}")
  set(processed FALSE)
  if(NOT disabled)
    _usdtbuild_is_processed(processed "${formats}" "${arg_LIVE}")
  endif()
  if(processed)
    _usdtbuild_require_launchers("${where}")
  endif()
  set(options "")
  foreach(provider IN LISTS arg_PROVIDERS)
    list(APPEND options --provider ${provider})
  endforeach()
  if(arg_PREPROCESS)
    _usdtbuild_preprocessor_options(words "${arg_INCLUDES}" "${arg_DEFINES}")
    list(APPEND options ${words})
  endif()

  add_library(${name} INTERFACE)
  _usdtbuild_watch_use(${name})
  if(arg_COMMITTED)
    get_filename_component(included "${arg_COMMITTED}" NAME)
    _usdtbuild_use_committed(include_dir "${where}" "${name}" "${file}" "${arg_COMMITTED}" "${arg_HEADER}" ${processed} "${options}")
    if(disabled)
      target_compile_definitions(${name} INTERFACE USDT_DISABLE)
    endif()
  else()
    _usdtbuild_require_folders("${where}")
    _usdtbuild_place_header(header include_dir included "${where}" "${name}" "${file}" "${arg_HEADER}")
    get_filename_component(beside "${file}" DIRECTORY)
    get_filename_component(own "${header}" NAME)
    if(EXISTS "${beside}/${own}" AND NOT header STREQUAL "${beside}/${own}")
      message(WARNING "${where}: sources beside ${beside}/${own} include that file, and not the header that the build makes. Delete it, or write COMMITTED ${own}.")
    endif()
    if(disabled)
      list(APPEND options --none)
    elseif(processed)
      list(APPEND options --formats=dof)  # it is the same header for all formats that objects get afterwards
    endif()
    _usdtbuild_add_header_rule("${name}" "${file}" "${header}" "${options}" "${arg_PREPROCESS}")
    if(NOT CMAKE_VERSION VERSION_LESS 3.19)  # before that, INTERFACE targets can't depend on anything
      add_dependencies(${name} usdt-header-${name})
    endif()
  endif()
  set_target_properties(${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "$<BUILD_INTERFACE:${include_dir}>"
    INTERFACE_USDTBUILD_PROVIDER_INCLUDE_DIR "${include_dir}"
    INTERFACE_USDTBUILD_PROVIDER_HEADER "${included}"
    INTERFACE_USDTBUILD_PROVIDER_FILE "${file}"
    INTERFACE_USDTBUILD_PROVIDER_PREPROCESS "${arg_PREPROCESS}"
    INTERFACE_USDTBUILD_DISABLED ${disabled}
    INTERFACE_USDTBUILD_PROCESSED ${processed}
    INTERFACE_USDTBUILD_FORMATS "${formats}")
  if(arg_LIVE AND NOT processed)
    target_compile_definitions(${name} INTERFACE USDT_LIVE)
  endif()
  if(processed AND formats MATCHES "dof|usdt") # DTrace increments no semaphore: the question must be one that it can answer
    target_compile_definitions(${name} INTERFACE USDT_ENABLED_BY_CALL)
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
    message(FATAL_ERROR "${where}: PUBLIC and INTERFACE don't work here: call it for each target whose sources include the header, or write target_link_libraries(${target} PUBLIC provider), from CMake 3.19 on.")
  endif()
  if("PATCHABLE_FUNCTION_ENTRY" IN_LIST arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${where}: PATCHABLE_FUNCTION_ENTRY needs numbers, such as PATCHABLE_FUNCTION_ENTRY 7,5.")
  endif()
  if(DEFINED arg_PATCHABLE_TABLE OR arg_KEYWORDS_MISSING_VALUES)
    if(NOT arg_PATCHABLE_TABLE MATCHES "^(absolute|relative)$" OR NOT arg_PATCHABLE_FUNCTION_ENTRY)
      message(FATAL_ERROR "${where}: PATCHABLE_TABLE is absolute or relative, and goes with PATCHABLE_FUNCTION_ENTRY.")
    endif()
    set_property(TARGET ${target} PROPERTY USDTBUILD_PATCHABLE_TABLE ${arg_PATCHABLE_TABLE})
  endif()

  foreach(provider IN LISTS arg_UNPARSED_ARGUMENTS)
    _usdtbuild_resolve_provider(provider "${where}" "${provider}")
    set_property(GLOBAL APPEND PROPERTY USDTBUILD_USED ${provider})
    _usdtbuild_reject_same_header("${where}" ${target} ${provider})
    target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_USDTBUILD_PROVIDER_INCLUDE_DIR>)
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_COMPILE_DEFINITIONS>)
    if(TARGET usdt-header-${provider})
      add_dependencies(${target} usdt-header-${provider})
    endif()
    get_property(processed TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_PROCESSED)
    if(processed)
      get_property(formats TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_FORMATS)
      _usdtbuild_launch(${target} "${formats}")
    endif()
  endforeach()
  if(arg_PATCHABLE_FUNCTION_ENTRY)
    _usdtbuild_patchable("${where}" ${target} "${arg_PATCHABLE_FUNCTION_ENTRY}")
  endif()
  if(arg_PATCHABLE_TABLE STREQUAL "relative")  # which takes the place of the compiler's in each object
    _usdtbuild_require_launchers("${where}")
    _usdtbuild_launch(${target} "")
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
  if(NOT type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY|STATIC_LIBRARY)$")
    message(FATAL_ERROR "${where}: only a file can be verified, and ${target} is a ${type}; verify the executable or library that contains it.")
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
    get_property(disabled TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_DISABLED)
    if(NOT disabled)  # a disabled provider's probes are nowhere
      get_property(file TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_PROVIDER_FILE)
      list(APPEND options --provider "${file}")
    endif()
  endforeach()
  _usdtbuild_decide_disabled(disabled FALSE)
  if(disabled OR ("${options}" STREQUAL "" AND NOT "${arg_PROVIDERS}" STREQUAL ""))
    return()
  endif()
  # The interpreter and not USDTBuild::usdtbuild: add_test() would run a target under CMAKE_CROSSCOMPILING_EMULATOR.
  _usdtbuild_command(command)
  add_test(NAME "${arg_NAME}" COMMAND ${command} verify ${options} ${arg_ARGS} $<TARGET_FILE:${target}>)
endfunction()

# --- providers ------------------------------------------------------------------------------------------------------

# The formats a provider is recorded in: its own, or the user's, or '' for the system's own.
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

# Remember a provider, so that the end of the configuration can name those that no target uses. Their header is not
# found, or not made yet, when a source is compiled, and the compiler's message can't say why.
function(_usdtbuild_watch_use provider)
  get_property(watched GLOBAL PROPERTY USDTBUILD_PROVIDERS)
  set_property(GLOBAL APPEND PROPERTY USDTBUILD_PROVIDERS ${provider})
  if(NOT watched AND NOT CMAKE_VERSION VERSION_LESS 3.19)
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _usdtbuild_name_unused)
  endif()
endfunction()

function(_usdtbuild_name_unused)
  get_property(unused GLOBAL PROPERTY USDTBUILD_PROVIDERS)
  get_property(used GLOBAL PROPERTY USDTBUILD_USED)
  list(REMOVE_ITEM unused "" ${used})
  set(linked "")
  if(unused)
    _usdtbuild_linked(linked "${CMAKE_SOURCE_DIR}")
  endif()
  foreach(provider IN LISTS unused)
    string(FIND "${linked}" "${provider}" found)  # it may stand in a generator expression
    if(found EQUAL -1)
      message(NOTICE "usdtbuild: no target uses the provider ${provider}. Call target_usdt_providers(TARGET ${provider}) for each target whose sources include its header.")
    endif()
  endforeach()
endfunction()

# Complain of two providers of a target whose headers sources include by the same name: they would get the first one's.
function(_usdtbuild_reject_same_header where target provider)
  get_property(others TARGET ${target} PROPERTY USDTBUILD_PROVIDERS)
  get_property(header TARGET ${provider} PROPERTY INTERFACE_USDTBUILD_PROVIDER_HEADER)
  foreach(other IN LISTS others)
    get_property(taken TARGET ${other} PROPERTY INTERFACE_USDTBUILD_PROVIDER_HEADER)
    if(taken STREQUAL header AND NOT other STREQUAL provider)
      message(FATAL_ERROR "${where}: ${other} and ${provider} have the same header, ${header}, and sources would get one of them only. Call one otherwise: usdt_add_provider(${provider} FILE.d HEADER ${provider}/${header}).")
    endif()
  endforeach()
  set_property(TARGET ${target} APPEND PROPERTY USDTBUILD_PROVIDERS ${provider})
endfunction()

# What the targets of a directory and of those below it link.
function(_usdtbuild_linked out directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(below DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  set(all "")
  foreach(target IN LISTS targets)
    get_property(libraries TARGET ${target} PROPERTY LINK_LIBRARIES)
    get_property(interface TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES)
    list(APPEND all ${libraries} ${interface})
  endforeach()
  foreach(each IN LISTS below)
    _usdtbuild_linked(more "${each}")
    list(APPEND all ${more})
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# Where the header goes, and the folder that makes it includable under the name the user chose, and that name.
function(_usdtbuild_place_header out_header out_dir out_included where name file given)
  if(IS_ABSOLUTE "${given}")
    get_filename_component(dir "${given}" DIRECTORY)
    set(header "${given}")
    get_filename_component(given "${given}" NAME)
  else()
    if(NOT given)
      get_filename_component(stem "${file}" NAME)
      string(REGEX REPLACE "\\.d$" "" stem "${stem}")
      set(given "${stem}.h")
    endif()
    set(dir "${CMAKE_CURRENT_BINARY_DIR}/usdt/${name}")
    get_filename_component(header "${dir}/${given}" ABSOLUTE)
    string(FIND "${header}" "${dir}/" inside)
    if(NOT inside EQUAL 0)
      message(FATAL_ERROR "${where}: HEADER ${given} leads out of the folder that sources include it from; give it as sources include it, such as HEADER myproject/probes.h.")
    endif()
  endif()
  if(NOT header MATCHES "\\.(h|hh|hpp|hxx|H)$")
    message(FATAL_ERROR "${where}: HEADER ${given} is not the name of a header; give it as sources include it, such as HEADER myproject/probes.h.")
  endif()
  set(${out_header} "${header}" PARENT_SCOPE)
  set(${out_dir} "${dir}" PARENT_SCOPE)
  set(${out_included} "${given}" PARENT_SCOPE)
endfunction()

# A header that is in the repository: its folder, and a test that it fits the provider file.
function(_usdtbuild_use_committed out_dir where name file header given processed options)
  get_filename_component(header "${header}" ABSOLUTE)
  if(given OR processed)
    message(FATAL_ERROR "${where}: a COMMITTED header is where it is and makes SDT notes; leave HEADER, and what needs post-processing (FORMATS, LIVE, USDTBUILD_FORMATS, USDTBUILD_NOP, USDTBUILD_SITE_TABLE), out, or COMMITTED.")
  elseif(NOT EXISTS "${header}")
    message(FATAL_ERROR "${where}: there is no header ${header}. Make it, and commit it: usdtbuild header ${file} -o ${header}")
  endif()
  _usdtbuild_command(command)
  add_test(NAME usdt-header-${name} COMMAND ${command} header --check "${file}" -o "${header}" ${options})
  get_filename_component(dir "${header}" DIRECTORY)
  set(${out_dir} "${dir}" PARENT_SCOPE)
endfunction()

# What CMake can't do with some names of folders, in sentences that say so.
function(_usdtbuild_require_folders where)
  if("${CMAKE_CURRENT_BINARY_DIR}" MATCHES "([#<>])")
    message(FATAL_ERROR "${where}: CMake allows no commands in folders with a '${CMAKE_MATCH_1}' in their path, and headers are made by commands. Build in another folder than ${CMAKE_BINARY_DIR}: cmake -B /another/folder.")
  endif()
  if(CMAKE_GENERATOR MATCHES "Makefiles" AND CMAKE_SOURCE_DIR MATCHES "#")
    message(FATAL_ERROR "${where}: CMake's Makefiles can't be run where the sources' folder has a '#' in its path, with probes or without: ${CMAKE_SOURCE_DIR}. Use cmake -G Ninja, or another folder.")
  endif()
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
  list(APPEND command header "${file}" -o "${header}" --stamp "${folder}/stamp" ${options})
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
  get_filename_component(place "${header}" DIRECTORY)
  file(MAKE_DIRECTORY "${place}")  # Make makes the stamp's folder only
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
  get_property(is_provider TARGET ${name} PROPERTY INTERFACE_USDTBUILD_PROVIDER_FILE SET)
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
