/* Shapes of code with probes, for test_complete.py and benchmarks/shapes.py: SHAPES_2 and so on fire a probe. */
#include SHAPES

struct pair { int a, b; const char *name; };
extern int work(int), other;

int constants(int a, int b) { SHAPES_6(1, a, 2, b, 3, 4); return a; }
int global(int a) { SHAPES_6(1, a, 2, 3, 4, other); return a; }
int seven(int a, int b, int c, int d, int e, int f, int g) { SHAPES_7(a, b, c, d, e, f, g); return a; }
int fields(struct pair *p, int c) { SHAPES_7(p->a, p->b, c, 1, 2, 3, 4); return c; }
int leaf(int a, const char *s) { SHAPES_2(a, s); return a + 1; }
int string(int a) { SHAPES_2(a, "text"); return a; }
int busy(int a, int b, int c, int d, int e, int f)
{
	int g = work(a);
	SHAPES_7(a, b, c, d, e, f, g);
	return work(b) + work(c) + work(d) + work(e) + f;
}
static int small(int x) { SHAPES_2(x, "small"); return x * 3; }
int calls_small(int x) { return small(x) + 1; }
int calls_small_too(int x) { return small(x) * 2; }
int calls_small_again(int x) { return small(x) * 5; }
static inline int inlined(int x) { SHAPES_0(); return x * 7; }
int calls_inlined(int x) { return inlined(x) + 1; }
int threaded(int x, int y) { int r = 0; if (x) r = work(y); SHAPES_2(y, "t"); if (x) r += work(y + 1); return r; }
int correlated(int x, int y) { int r = x ? 1 : work(y); SHAPES_2(r, "c"); return r == 1 ? work(7) : r; }
int loop(int n) { int s = 0; for (int i = 0; i < n; i++) { SHAPES_2(i, "l"); s += work(i); } return s; }
int counted(void) { int s = 0; for (int i = 0; i < 4; i++) { SHAPES_2(i, "u"); s += i; } return s; }
int sum(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) { s += p[i]; SHAPES_2(s, "s"); } return s; }
int switched(int x, int y)
{
	switch (x) {
	case 1: y = work(1); break;
	case 2: y = work(2); break;
	case 3: y = work(9); break;
	default: y = 5;
	}
	SHAPES_2(y, "switch");
	return y;
}
int invariant(int n, int flag)
{
	int s = 0;
	for (int i = 0; i < n; i++) {
		if (flag) s += work(i);
		else s -= work(i);
		SHAPES_2(s, "unswitch");
	}
	return s;
}
int several_ends(int x)
{
	if (x == 1) { work(2); goto out; }
	if (x == 2) { work(4); goto out; }
	if (x == 7) return 9;
out:
	SHAPES_0();
	return 3;
}
int first_round(int *a, int n)
{
	int s = 0, first = 1;
	for (int i = 0; i < n; i++) {
		if (first) { first = 0; s = work(3); }
		SHAPES_2(s, "peel");
		s += a[i];
	}
	return s;
}
double doubles(double a, double b) { SHAPES_2((int)a, "d"); return a * b; }
