# Only in a checkout and in editable installs: a wheel has the package itself here (cmake/USDTBuildConfig.cmake).

include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/USDTBuildConfig.cmake")
