"""Functions as C++ programmers wrote them: what is left without parameters, in both languages that look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from usdtbuild.folders import folder
from usdtbuild.inspection.demangle import without_parameters

if TYPE_CHECKING:
    from pathlib import Path

LIVE = folder("runtime") / "live"
# What binutils' c++filt writes, and what of it is the function's name.
CORPUS = {
    "oops(int)": "oops",
    "shop::price(int, char const*)": "shop::price",
    "shop::use()": "shop::use",
    "shop::g(int (*)(int))": "shop::g",
    "int shop::f<int>(int)": "shop::f<int>",
    "void shop::f<std::vector<int, std::allocator<int> > >(std::vector<int, std::allocator<int> >)": (
        "shop::f<std::vector<int, std::allocator<int> > >"
    ),
    "int (*shop::ret<int>(int))(char)": "int (*shop::ret<int>(int))(char)",
    "shop::(anonymous namespace)::A::operator()(int) const": "shop::(anonymous namespace)::A::operator()",
    "shop::(anonymous namespace)::A::operator bool() const": "shop::(anonymous namespace)::A::operator bool",
    "std::basic_ios<char, std::char_traits<char> >::operator void*() const": (
        "std::basic_ios<char, std::char_traits<char> >::operator void*"
    ),
    "shop::A::operator<(shop::A const&) const": "shop::A::operator<",
    "shop::A::operator<=>(shop::A const&) const": "shop::A::operator<=>",
    "bool shop::operator<< <int>(shop::A&, int)": "shop::operator<< <int>",
    "shop::A::operator->()": "shop::A::operator->",
    "shop::A::operator[](int)": "shop::A::operator[]",
    "shop::A::operator new(unsigned long)": "shop::A::operator new",
    "shop::A::operator delete[](void*)": "shop::A::operator delete[]",
    "operator+(std::vector<int, std::allocator<int> >, int)": "operator+",
    "shop::f<int>(int)::{lambda(int)#1}::operator()(int) const": "shop::f<int>(int)::{lambda(int)#1}::operator()",
    "shop::A::m() const::{lambda()#1}::operator()() const": "shop::A::m() const::{lambda()#1}::operator()",
    "shop::A::m() &&::L::n(int)": "shop::A::m() &&::L::n",
    "shop::A::~A()": "shop::A::~A",
    "f[abi:cxx11](int)": "f[abi:cxx11]",
    "decltype (x+y) shop::add<int, int>(int, int)": "shop::add<int, int>",
    "shop::price(int) [clone .cold]": "shop::price",
    "std::foo<(std::kind)1>::bar()": "std::foo<(std::kind)1>::bar",
    "cooperator(int)": "cooperator",
    "operators::x<int>(int)": "operators::x<int>",
    "vtable for shop::A": "vtable for shop::A",
    "<shop::price as core::ops::Add<i32>>::add": "<shop::price as core::ops::Add<i32>>::add",
    "f((((": "f",
    "f(int (*)(int))::L::n(int)": "f(int (*)(int))::L::n",
    "f(int (*)(int)) const volatile &::L::n(int)": "f(int (*)(int)) const volatile &::L::n",
    "f))))(": "f))))(",
    "operator": "operator",
    "operator(": "operator",
    " (": " (",
    "": "",
}
MAIN = """
#include <stdio.h>
#include "written.c"
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		size_t length;
		const char *name = without_parameters(argv[i], &length);
		printf("%.*s\\n", (int)length, name);
	}
	return argc == 0;
}
"""


@pytest.mark.parametrize("written", CORPUS)
def test_a_name_without_parameters(written: str) -> None:
    assert without_parameters(written) == CORPUS[written]


def test_the_runtime_leaves_the_same(run: Any, tmp_path: Path, compiled: Any) -> None:
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover")
    compiled(tmp_path, "main.c", MAIN, "-O1", "-g", *checks, f"-I{LIVE}")
    lines = run(tmp_path / "main", *CORPUS).stdout.split("\n")[:-1]
    assert dict(zip(CORPUS, lines)) == CORPUS


def test_a_long_name_takes_no_long_time() -> None:
    for text in ("f()::", "operator+", "operator()(", "a<", "(b"):
        assert without_parameters(text * (16384 // len(text))) is not None
