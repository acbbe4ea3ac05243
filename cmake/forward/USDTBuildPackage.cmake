# Sets _usdtbuild_found to the cmake folder of the Python package that this environment holds, or to ''.

set(_usdtbuild_found "")
get_filename_component(_usdtbuild_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
file(GLOB _usdtbuild_configs
  "${_usdtbuild_prefix}/lib*/python3*/site-packages/usdtbuild/cmake/USDTBuildConfig.cmake"
  "${_usdtbuild_prefix}/lib*/python3*/dist-packages/usdtbuild/cmake/USDTBuildConfig.cmake")
if(_usdtbuild_configs)
  list(GET _usdtbuild_configs 0 _usdtbuild_found)
  get_filename_component(_usdtbuild_found "${_usdtbuild_found}" DIRECTORY)
elseif(EXISTS "${_usdtbuild_prefix}/bin/python3")
  # An editable install: only its Python knows where the sources are.
  execute_process(
    COMMAND "${_usdtbuild_prefix}/bin/python3" -I -c "import usdtbuild; print(usdtbuild.__path__[0])"
    OUTPUT_VARIABLE _usdtbuild_folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _usdtbuild_result)
  if(_usdtbuild_result EQUAL 0 AND EXISTS "${_usdtbuild_folder}/cmake/USDTBuildConfig.cmake")
    set(_usdtbuild_found "${_usdtbuild_folder}/cmake")
  endif()
  unset(_usdtbuild_folder)
  unset(_usdtbuild_result)
endif()
unset(_usdtbuild_configs)
unset(_usdtbuild_prefix)
