from spack.package import *


class PyUsdtbuild(PythonPackage):
    """@SUMMARY@"""

    homepage = "@HOMEPAGE@"
    url = "@URL@"
    license("Apache-2.0 AND MIT")

    version("@VERSION@", sha256="@SHA256@")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")
@SPACK_DEPENDENCIES@
