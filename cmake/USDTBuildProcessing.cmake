# Post-processing, for record formats that a header can't write (FORMATS dof): our launcher stands before the compilers
# of a target (<LANG>_COMPILER_LAUNCHER), so that every object is complete when its compile step ends. Nothing happens at
# link time, so archives, object libraries, unity builds, caches and incremental builds need no special care.
# Not here: how objects are changed; the launcher does that.

# Whether probes with these formats need it: a header writes SDT notes, and NOPs of the smallest size or, for x86-64, with
# room for a jump (live).
function(_usdtbuild_is_processed out formats live)
  set(${out} FALSE PARENT_SCOPE)
  if((live AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$") OR formats MATCHES "dof|usdt" OR USDTBUILD_NOP OR USDTBUILD_SITE_TABLE)
    set(${out} TRUE PARENT_SCOPE)
  elseif(NOT formats AND CMAKE_SYSTEM_NAME MATCHES "^(FreeBSD|SunOS)$") # whose DTrace reads DOF
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# The generators that honour <LANG>_COMPILER_LAUNCHER. The others would build programs whose probes don't link.
function(_usdtbuild_require_launchers where)
  if(NOT CMAKE_GENERATOR MATCHES "^Ninja|Makefiles")
    message(FATAL_ERROR "${where}: the generator ${CMAKE_GENERATOR} ignores compiler launchers, which these formats or settings need. Configure with -G Ninja or -G \"Unix Makefiles\", or leave FORMATS, LIVE, USDTBUILD_NOP and USDTBUILD_SITE_TABLE out for SDT notes, which need none.")
  endif()
endfunction()

# Put our launcher in front of the target's compilers, with these formats and those of earlier calls.
function(_usdtbuild_launch target formats)
  get_property(all TARGET ${target} PROPERTY USDTBUILD_TARGET_FORMATS)
  list(APPEND all ${formats})
  list(REMOVE_DUPLICATES all)
  set_property(TARGET ${target} PROPERTY USDTBUILD_TARGET_FORMATS "${all}")
  _usdtbuild_launcher(launcher "${all}")
  get_property(table TARGET ${target} PROPERTY USDTBUILD_PATCHABLE_TABLE)
  if(table)
    _usdtbuild_door(door)
    list(LENGTH door behind)
    list(INSERT launcher ${behind} --patchable-table=${table})
  endif()
  foreach(language C CXX)
    get_property(others TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER)
    _usdtbuild_strip_launcher(others "${others}")
    set_property(TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER ${launcher} ${others})
  endforeach()
  # Ninja compiles anew when a command line changes, launcher included. Make looks at definitions and flags only, so a new
  # version of the tool or other settings must show there.
  string(MD5 settings "${launcher}")
  string(SUBSTRING "${settings}" 0 12 settings)
  set_property(TARGET ${target} PROPERTY USDTBUILD_SETTINGS ${settings})
  get_property(checked TARGET ${target} PROPERTY USDTBUILD_CHECKED)
  if(NOT checked)
    if(CMAKE_GENERATOR MATCHES "Makefiles")
      target_compile_definitions(${target} PRIVATE USDTBUILD_$<TARGET_PROPERTY:USDTBUILD_SETTINGS>)
    endif()
    set_property(TARGET ${target} PROPERTY USDTBUILD_CHECKED TRUE)
    _usdtbuild_warn_of_rule_launcher(${target})
    if(NOT CMAKE_VERSION VERSION_LESS 3.19)
      cmake_language(EVAL CODE "cmake_language(DEFER CALL _usdtbuild_check_launcher [[${target}]])")
    endif()
  endif()
endfunction()

# The words that start the launcher: isolated mode without site-packages starts in 9 ms.
function(_usdtbuild_door out)
  get_property(python GLOBAL PROPERTY USDTBUILD_PYTHON)
  get_property(package GLOBAL PROPERTY USDTBUILD_PACKAGE)
  set(${out} "${python}" -I -S "${package}/launcher.py" PARENT_SCOPE)
endfunction()

# Tell whether words begin with the launcher's door.
function(_usdtbuild_begins_with_door out words)
  _usdtbuild_door(door)
  string(FIND "${words};" "${door};" at)
  set(${out} FALSE PARENT_SCOPE)
  if(at EQUAL 0)
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# The launcher as the words that stand before the compiler.
function(_usdtbuild_launcher out formats)
  _usdtbuild_door(door)
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
