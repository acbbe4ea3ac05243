class Usdtbuild < Formula
  include Language::Python::Virtualenv

  desc "Static probes (USDT) for C, C++ and Python extensions"
  homepage "@HOMEPAGE@"
  url "@URL@"
  sha256 "@SHA256@"
  license all_of: ["Apache-2.0", "MIT"]

  depends_on :linux
  depends_on "python@3.13"

  # `brew update-python-resources usdtbuild` writes the resources of what it needs here.

  def install
    virtualenv_install_with_resources
  end

  test do
    (testpath/"app.d").write "provider app { probe tick(int); };\n"
    system bin/"usdtbuild", "header", "app.d"
    assert_path_exists testpath/"app.h"
  end
end
