"""One module a command of `usdtbuild`; `usdtbuild.cli` loads the one that is asked for and no other."""
