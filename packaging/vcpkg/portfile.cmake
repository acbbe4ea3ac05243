# A tool of the build and a CMake package; no library. The Python packages that it needs lie beside it.
set(VCPKG_POLICY_EMPTY_INCLUDE_FOLDER enabled)
vcpkg_download_distfile(ARCHIVE URLS "@URL@" FILENAME "usdtbuild-${VERSION}.tar.gz" SHA512 @SHA512@)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")
vcpkg_find_acquire_program(PYTHON3)
x_vcpkg_get_python_packages(PYTHON_VERSION 3 PYTHON_EXECUTABLE "${PYTHON3}" PACKAGES pip OUT_PYTHON_VAR PYTHON3)
set(tools "${CURRENT_PACKAGES_DIR}/tools/usdtbuild")
vcpkg_execute_required_process(
  COMMAND "${PYTHON3}" -m pip install --target "${tools}" "${SOURCE_PATH}"
  WORKING_DIRECTORY "${CURRENT_BUILDTREES_DIR}" LOGNAME "install-${TARGET_TRIPLET}")
file(WRITE "${CURRENT_PACKAGES_DIR}/share/usdtbuild/usdtbuild-config.cmake"
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/../../tools/usdtbuild/usdtbuild/cmake/USDTBuildConfig.cmake\")\n")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/usdtbuild/tracing/outputs/page/uPlot.LICENSE")
