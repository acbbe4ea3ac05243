from conan import ConanFile
from conan.tools.files import copy, get


class UsdtbuildConan(ConanFile):
    name = "usdtbuild"
    version = "@VERSION@"
    description = "@SUMMARY@"
    license = "Apache-2.0 AND MIT"
    homepage = "@HOMEPAGE@"
    topics = ("usdt", "tracing", "bpftrace", "cmake", "meson")
    package_type = "application"
    settings = "os"

    def source(self):
        get(self, "@URL@", sha256="@SHA256@", strip_root=True)

    def package(self):
        where = f"{self.package_folder}/python"
        self.run(f'python3 -m pip install --no-warn-script-location --target "{where}" "{self.source_folder}"')
        copy(self, "LICENSE", self.source_folder, f"{self.package_folder}/licenses")

    def package_info(self):
        self.buildenv_info.prepend_path("PATH", f"{self.package_folder}/python/bin")
        self.buildenv_info.prepend_path("PYTHONPATH", f"{self.package_folder}/python")
        self.cpp_info.builddirs = ["python/usdtbuild/cmake"]
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
