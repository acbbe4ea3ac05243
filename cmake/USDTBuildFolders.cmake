# Sets _usdtbuild_package to the folder of the Python package: around this one where usdtbuild was installed, beside it
# in a checkout.

get_filename_component(_usdtbuild_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(NOT EXISTS "${_usdtbuild_package}/_version.py")
  string(APPEND _usdtbuild_package "/usdtbuild")
endif()
