/* Calls that load a slot themselves: straight, in loops, behind branches, as the last thing a function does. */
int own_one(int);
int own_two(const char *, int);
int own_three(int);
int own_four(int);
__attribute__((weak)) int missing(int);

int (*pointer)(int) = own_one; /* a variable, which holds what a slot holds, and no slot */

int once(int n) { return own_one(n) + 1; }
int last(int n) { return own_one(n); }
int either(const char *text, int n) { return n > 5 ? own_two(text, n + 1) : own_three(n); }
int sometimes(int n) { if (n) own_four(n); return n; }
int often(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += own_three(i); return sum; }
int mixed(const char *text, int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++) {
		sum += own_three(i);
		if (sum > 100)
			sum += own_two(text, own_one(sum));
		else
			own_four(sum);
	}
	return sum;
}
int many(const char *text, int a, int b, int c)
{
	return own_one(a) + own_one(b) + own_one(c) + own_two(text, a) + own_two(text, b) + own_three(c);
}
int weak(int n) { return missing ? missing(n) : 0; }
int by_pointer(int n) { return pointer(n) + 1; }

void _start(void)
{
	once(1), last(2), either("", 3), sometimes(4), often(5), mixed("", 6), many("", 7, 8, 9), weak(10), by_pointer(11);
	for (;;)
		own_one(0);
}
