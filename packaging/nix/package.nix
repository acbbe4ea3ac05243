{ lib, python3Packages, fetchurl }:

python3Packages.buildPythonApplication {
  pname = "usdtbuild";
  version = "@VERSION@";
  pyproject = true;

  src = fetchurl {
    url = "@URL@";
    sha256 = "@SHA256@";
  };

  build-system = [ python3Packages.hatchling ];
  dependencies = with python3Packages; [ @NIX_DEPENDENCIES@ ];
  pythonImportsCheck = [ "usdtbuild" ];

  meta = {
    description = "@SUMMARY@";
    homepage = "@HOMEPAGE@";
    license = with lib.licenses; [ asl20 mit ];
    platforms = lib.platforms.linux;
    mainProgram = "usdtbuild";
  };
}
