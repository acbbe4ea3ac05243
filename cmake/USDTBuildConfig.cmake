# find_package(USDTBuild [version] [CONFIG] [REQUIRED] [COMPONENTS Build Verify PatchableFunctionEntry])
#
# Static probes for the targets of a CMake project. Defines
#
#   usdt_add_provider(NAME FILE.d ...)            a target that stands for a provider file and its header
#   target_usdt_providers(TARGET PROVIDER ...)    lets a target's sources use the providers' probes
#   usdt_verify(TARGET ...)                       a test that checks the probes of the finished binary
#   USDTBuild::usdtbuild                          the command line tool, for COMMAND and DEPENDS
#   USDTBuild::live                               a library that switches the program's own probes (USDTBuildLive.cmake)
#
# each described above its function in USDTBuildFunctions.cmake. Components: Build (headers)
# and Verify (reading finished binaries) are always there; PatchableFunctionEntry is there if the compilers of this
# project know -fpatchable-function-entry. Settings a user may give with -D:
#
#   USDTBuild_PYTHON     the Python that runs usdtbuild; found by itself in most cases
#   USDTBUILD_DISABLED   ON: all probes compile to nothing
#   USDTBUILD_FORMATS    the record formats of providers that name none themselves
#   USDTBUILD_NOP        what takes a probe call's place: safe, nop5, nop10 or classic (usdtbuild cc --help)
#   USDTBUILD_SITE_TABLE ON: a loaded table of the sites, for usdt_live.h where files can't be read (docs/live.md)
#
# The last two, and other formats than stapsdt, need post-processing (docs/post-processing.md).

if(CMAKE_VERSION VERSION_LESS 3.16)
  set(USDTBuild_FOUND FALSE)
  set(USDTBuild_NOT_FOUND_MESSAGE "usdtbuild needs CMake 3.16 or newer, and this is ${CMAKE_VERSION}.")
  return()
endif()

# Whatever the project around us was written for. Functions keep the policies they were defined under.
cmake_policy(VERSION 3.16...4.0)

if(NOT USDTBuild_VERSION)  # add_subdirectory() and FetchContent come here without find_package()
  include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildConfigVersion.cmake")
  set(USDTBuild_VERSION "${PACKAGE_VERSION}")
  unset(PACKAGE_VERSION)
  unset(PACKAGE_VERSION_EXACT)
  unset(PACKAGE_VERSION_COMPATIBLE)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildFolders.cmake")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_usdtbuild_package}/_version.py")

include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildPython.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildFunctions.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildProcessing.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildPatchable.cmake")

_usdtbuild_find_python("${USDTBuild_VERSION}")
get_property(USDTBuild_NOT_FOUND_MESSAGE GLOBAL PROPERTY USDTBUILD_PYTHON_PROBLEM)
if(USDTBuild_NOT_FOUND_MESSAGE)
  set(USDTBuild_FOUND FALSE)
  return()
endif()

if(USDTBUILD_NOP AND NOT USDTBUILD_NOP MATCHES "^(safe|nop5|nop10|classic)$")
  message(FATAL_ERROR "USDTBUILD_NOP is safe, nop5, nop10 or classic, not '${USDTBUILD_NOP}'.")
endif()
_usdtbuild_define_tool()
_usdtbuild_check_components()
include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildLive.cmake")
_usdtbuild_define_live()
