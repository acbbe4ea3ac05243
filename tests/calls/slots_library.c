/* What slots.c calls. own_again calls itself, by way of own_turn (gcc for ppc64 calls the same function directly), and
   own_outer others, all through this library's own slots. */
int own_again(int value);
int own_turn(int value);

int own_early(int value)
{
	return value + 1;
}

int own_filled(int value)
{
	return value * 2;
}

int own_late(int value)
{
	return value - 3;
}

int own_again(int value)
{
	volatile int inner = value > 0 ? own_turn(value - 1) : 0;
	return inner + value;
}

int own_turn(int value)
{
	volatile int inner = own_again(value);
	return inner + 1;
}

int own_outer(int value)
{
	return own_late(value) + own_early(value) * 7;
}
