# Installed as share/cmake/USDTBuild of a Python environment, so that find_package(USDTBuild) works as soon as the
# environment is activated. Hands on to the files inside the Python package.

include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildPackage.cmake")
if(_usdtbuild_found)
  include("${_usdtbuild_found}/USDTBuildConfig.cmake")
else()
  set(USDTBuild_FOUND FALSE)
  set(USDTBuild_NOT_FOUND_MESSAGE "${CMAKE_CURRENT_LIST_DIR} is left over from a usdtbuild that is gone; install it anew (python3 -m pip install usdtbuild).")
endif()
unset(_usdtbuild_found)
