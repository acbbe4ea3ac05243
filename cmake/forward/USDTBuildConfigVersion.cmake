# Hands on to the version file inside the Python package.

include("${CMAKE_CURRENT_LIST_DIR}/USDTBuildPackage.cmake")
if(_usdtbuild_found)
  include("${_usdtbuild_found}/USDTBuildConfigVersion.cmake")
else()
  set(PACKAGE_VERSION "unknown")
  set(PACKAGE_VERSION_COMPATIBLE TRUE) # USDTBuildConfig.cmake says what is wrong
endif()
unset(_usdtbuild_found)
