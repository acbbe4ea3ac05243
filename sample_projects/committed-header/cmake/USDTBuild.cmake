# usdtbuild 0.2.0: include() this in place of find_package(USDTBuild) where the headers of probes are in the repository. The
# project then builds without usdtbuild and Python, with its probes; where usdtbuild is installed, tests check them, too.
find_package(USDTBuild CONFIG QUIET NO_CMAKE_FIND_ROOT_PATH) # it is for the machine that builds
if(USDTBuild_FOUND)
  return()
endif()

function(usdt_add_provider name file)
  cmake_parse_arguments(arg "DISABLED" "COMMITTED" "FORMATS" ${ARGN})
  if(NOT arg_COMMITTED OR arg_FORMATS OR USDTBUILD_FORMATS)
    message(FATAL_ERROR "usdt_add_provider(${name}): without COMMITTED, or with FORMATS, this needs usdtbuild, which wasn't found: python3 -m pip install usdtbuild")
  endif()
  get_filename_component(folder "${arg_COMMITTED}" ABSOLUTE)
  get_filename_component(folder "${folder}" DIRECTORY)
  add_library(${name} INTERFACE)
  target_include_directories(${name} INTERFACE "$<BUILD_INTERFACE:${folder}>")
  if(arg_DISABLED OR USDTBUILD_DISABLED)
    target_compile_definitions(${name} INTERFACE USDT_DISABLE)
  endif()
endfunction()

function(target_usdt_providers target)
  foreach(provider IN LISTS ARGN)
    if(TARGET "${provider}") # PRIVATE isn't
      target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_INCLUDE_DIRECTORIES>)
      target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${provider},INTERFACE_COMPILE_DEFINITIONS>)
    endif()
  endforeach()
endfunction()

function(usdt_verify) # there is nothing to look with
endfunction()
# usdtbuild vendor wrote this, and replaces it while it is unchanged: checksum b42ea28fcfd32cdb
