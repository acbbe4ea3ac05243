// Functions of C++ that call each other, as often as the first argument says.

#include <cstdio>
#include <cstdlib>
namespace shop {
template <class T> __attribute__((noinline)) T tax(T amount) { __asm__ volatile(""); return amount / 5; }
__attribute__((noinline)) int price(int amount, const char *what) { __asm__ volatile(""); return amount * 100 + tax(amount) + what[0]; }
struct Basket {
	int total = 0;
	__attribute__((noinline)) bool operator()(int n) { __asm__ volatile(""); total += n; return n & 1; }
	__attribute__((noinline)) Basket &operator<<(int n) { __asm__ volatile(""); total += price(n, "x"); return *this; }
};
}
__attribute__((noinline)) int oops(int n) { __asm__ volatile(""); return n + 1; }
int main(int argc, char **argv) {
	shop::Basket b;
	int n = argc > 1 ? atoi(argv[1]) : 10;
	for (int i = 0; i < n; i++) { b << i; b(oops(i)); shop::tax(1.5 * i); }
	printf("%d\n", b.total);
}
