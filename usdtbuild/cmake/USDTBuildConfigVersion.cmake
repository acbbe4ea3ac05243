# Only in a checkout and in editable installs: a wheel has the file itself here.

include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/USDTBuildConfigVersion.cmake")
