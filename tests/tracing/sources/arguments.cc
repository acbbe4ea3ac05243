// Functions with arguments of many kinds, all of which they use. What a function does not read, a caller needn't write (GCC 16).
#include <string>
#define PLAIN __attribute__((noinline))
enum Kind { RED, GREEN = 5 };
struct Point { int x; double y; };
struct Big { long a, b, c; };
static volatile long sink;
PLAIN void numbers(int a, unsigned char b, long long c, short d, bool e, char f, unsigned g) { sink = a + b + c + d + e + f + g; }
PLAIN void floats(float a, double b, int c, double d) { sink = long(a + b + c + d); }
PLAIN void texts(const char *a, const std::string &b, Kind c) { sink = a[0] + b[0] + long(b.size()) + c; }
PLAIN void structs(Point p, const Big &q, Point *r) { sink = p.x + long(p.y) + q.a + q.b + q.c + r->x; }
PLAIN void many(int a, int b, int c, int d, int e, int f, int g, int h) { sink = a + b + c + d + e + f + g + h; }
struct Basket { int count; PLAIN void add(int n, const char *what) { count += n + what[0]; sink = count; } };
int main() {
    Basket basket = {3};
    Point point = {7, 2.5};
    for (int i = 0; i < 3; i++) {
        numbers(-i - 1, 200 + i, 1LL << (40 + i), -300 - i, i == 1, 'a' + i, 4000000000u + i);
        floats(1.5f * i, -0.25 * i, i, 1e10 * i);
        texts(i ? "tea" : "coffee", std::string(i + 3, 'x'), i ? GREEN : RED);
        structs({i, i + 0.5}, {i, i + 1, i + 2}, &point);
        many(i, 1, 2, 3, 4, 5, 6, 7 + i);
        basket.add(i, "bread");
    }
}
