# Which Python runs usdtbuild: found once for each build folder, as the interpreter's own path. Not FindPython: that
# module returns what stands in PATH, and where that is a shim (pyenv, asdf) each compilation would pay 90 ms for it;
# and a project that builds extensions needs its own answer from FindPython, which may be another Python than ours.

include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildFolders.cmake")
set_property(GLOBAL PROPERTY USDTBUILD_PACKAGE "${_usdtbuild_package}")
set_property(GLOBAL PROPERTY USDTBUILD_FOLDER "${CMAKE_CURRENT_LIST_DIR}")
unset(_usdtbuild_package)

# _usdtbuild_find_python(VERSION): sets the global properties USDTBUILD_PYTHON, and USDTBUILD_PYTHON_PROBLEM, a
# sentence, where no Python can run usdtbuild. The answer is kept in the cache for as long as it fits.
function(_usdtbuild_find_python version)
  get_property(package GLOBAL PROPERTY USDTBUILD_PACKAGE)
  set_property(GLOBAL PROPERTY USDTBUILD_VERSION "${version}")
  set_property(GLOBAL PROPERTY USDTBUILD_PYTHON_PROBLEM "")
  set(question "${version} in ${package} by ${USDTBuild_PYTHON}")
  if(_USDTBUILD_PYTHON AND EXISTS "${_USDTBUILD_PYTHON}" AND _USDTBUILD_PYTHON_QUESTION STREQUAL question)
    set_property(GLOBAL PROPERTY USDTBUILD_PYTHON "${_USDTBUILD_PYTHON}")
    return()
  endif()

  _usdtbuild_list_pythons(candidates "${package}")
  set(problems "")
  foreach(candidate IN LISTS candidates)
    _usdtbuild_try_python(python problem "${candidate}" "${package}")
    if(python)
      set(_USDTBUILD_PYTHON "${python}" CACHE INTERNAL "The Python that runs usdtbuild")
      set(_USDTBUILD_PYTHON_QUESTION "${question}" CACHE INTERNAL "What _USDTBUILD_PYTHON is the answer to")
      set_property(GLOBAL PROPERTY USDTBUILD_PYTHON "${python}")
      return()
    endif()
    string(APPEND problems "\n  ${candidate}: ${problem}")
  endforeach()
  if(NOT candidates)
    set(problems "\n  there is no python3 in PATH")
  endif()
  set_property(GLOBAL PROPERTY USDTBUILD_PYTHON_PROBLEM
    "No Python here can run usdtbuild ${version} of ${package}. Install it into an environment (python3 -m pip install usdtbuild) and name that environment's Python with -DUSDTBuild_PYTHON=/path/to/python3. Tried:${problems}")
endfunction()

# The interpreters worth asking, the likeliest first; a name the user gave is the only one.
function(_usdtbuild_list_pythons out package)
  if(USDTBuild_PYTHON)
    set(${out} "${USDTBuild_PYTHON}" PARENT_SCOPE)
    return()
  endif()
  set(found "")
  get_property(folder GLOBAL PROPERTY USDTBUILD_FOLDER)
  if(EXISTS "${folder}/python")  # `cmake --install` wrote down which one it was installed with
    file(STRINGS "${folder}/python" found LIMIT_COUNT 1)
  endif()
  # lib/python3.11/site-packages/usdtbuild belongs to the Python in the bin folder beside that lib folder. A checkout's
  # own environment is .venv.
  set(beside "")
  if(package MATCHES "/(site|dist)-packages/[^/]+$")
    get_filename_component(beside "${package}/../../../../bin/python3" ABSOLUTE)
  endif()
  get_filename_component(checkout "${package}/../.venv/bin/python3" ABSOLUTE)
  # scikit-build-core and FindPython say which Python the project itself is built for. The activated environment's,
  # and the one behind a `usdtbuild` in PATH, come next.
  list(APPEND found "${beside}" "${checkout}" "${Python_EXECUTABLE}" "${Python3_EXECUTABLE}"
    "$ENV{VIRTUAL_ENV}/bin/python3")
  find_program(_USDTBUILD_SCRIPT usdtbuild NO_CMAKE_FIND_ROOT_PATH)
  if(_USDTBUILD_SCRIPT)
    file(STRINGS "${_USDTBUILD_SCRIPT}" first_line LIMIT_COUNT 1 REGEX "^#!/")
    string(REGEX REPLACE "^#! *([^ ]+).*" "\\1" interpreter "${first_line}")
    if(interpreter MATCHES "python")
      list(APPEND found "${interpreter}")
    endif()
  endif()
  unset(_USDTBUILD_SCRIPT CACHE)
  find_program(_USDTBUILD_PATH_PYTHON NAMES python3 python NO_CMAKE_FIND_ROOT_PATH)
  list(APPEND found "${_USDTBUILD_PATH_PYTHON}" "/usr/bin/python3")
  unset(_USDTBUILD_PATH_PYTHON CACHE)

  set(there "")
  get_filename_component(checkout "${package}/.." ABSOLUTE)
  foreach(candidate IN LISTS found)
    string(FIND "${candidate}" "${checkout}/" place)
    if(USDTBUILD_TO_INSTALL AND place EQUAL 0)  # what is installed must work without the checkout
      continue()
    endif()
    if(EXISTS "${candidate}" AND NOT IS_DIRECTORY "${candidate}")
      list(APPEND there "${candidate}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES there)
  set(${out} "${there}" PARENT_SCOPE)
endfunction()

# Ask one interpreter: its own path, or '' and what it lacks.
function(_usdtbuild_try_python out_python out_problem candidate package)
  set(${out_python} "" PARENT_SCOPE)
  get_property(folder GLOBAL PROPERTY USDTBUILD_FOLDER)
  execute_process(
    COMMAND "${candidate}" -E "${folder}/check_python.py" "${package}/.."
    OUTPUT_VARIABLE said ERROR_VARIABLE complaint RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(${out_problem} "doesn't run (${result}) ${complaint}" PARENT_SCOPE)
    return()
  endif()
  # An empty third line must stay an element of the list.
  string(REGEX REPLACE "\r?\n" ";" lines "${said}")
  list(GET lines 0 executable)
  list(GET lines 1 python_version)
  list(GET lines 2 missing)
  if(python_version VERSION_LESS 3.10)
    set(${out_problem} "is Python ${python_version}, and usdtbuild needs 3.10 or newer" PARENT_SCOPE)
  elseif(missing)
    string(REPLACE "elftools" "pyelftools" missing "${missing}")
    set(${out_problem} "lacks ${missing} (${candidate} -m pip install ${missing})" PARENT_SCOPE)
  else()
    set(${out_python} "${executable}" PARENT_SCOPE)
  endif()
endfunction()
