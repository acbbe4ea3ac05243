# USDTBuild::live, the runtime with which a program switches its own probes and functions on and off (docs/live.md).
#
# A static library, compiled by the project's own compiler when something links it:
#
#   target_link_libraries(app PRIVATE USDTBuild::live)
#
# It is there on Linux, for projects that have C among their languages. Not here: probes; they come from usdt_add_provider().

function(_usdtbuild_define_live)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(TARGET usdtbuild-live OR NOT "C" IN_LIST languages OR NOT CMAKE_SYSTEM_NAME MATCHES "^(Linux|Android)$")
    return()
  endif()
  get_property(package GLOBAL PROPERTY USDTBUILD_PACKAGE)
  file(GLOB sources "${package}/runtime/live/*.c")
  add_library(usdtbuild-live STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(usdtbuild-live SYSTEM INTERFACE "$<BUILD_INTERFACE:${package}/runtime/live>")
  # Its assembly and its compiler's code are one piece, which link-time optimisation would take apart.
  target_compile_options(usdtbuild-live PRIVATE -O2 -fno-lto -fno-sanitize=thread)
  set_target_properties(usdtbuild-live PROPERTIES
    C_STANDARD 99 C_EXTENSIONS ON POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF UNITY_BUILD OFF
    EXPORT_COMPILE_COMMANDS OFF)  # compile_commands.json is about the project's own sources
  find_package(Threads QUIET)
  target_link_libraries(usdtbuild-live INTERFACE ${CMAKE_DL_LIBS} ${CMAKE_THREAD_LIBS_INIT})
  add_library(USDTBuild::live ALIAS usdtbuild-live)
endfunction()
