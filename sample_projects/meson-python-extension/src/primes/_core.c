#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "primes.h" /* made from primes.d when the extension is built */

static size_t sieve(char *composite, size_t limit)
{
	size_t found = 0;

	for (size_t n = 2; n <= limit; n++) {
		if (composite[n])
			continue;
		found++;
		if (n > limit / n)
			continue;
		size_t multiples = 0;
		for (size_t m = n * n; m <= limit; m += n) {
			multiples += !composite[m];
			composite[m] = 1;
		}
		PRIMES_CROSSED_OUT(n, multiples);
	}
	return found;
}

static PyObject *count(PyObject *module, PyObject *number)
{
	(void)module;
	Py_ssize_t limit = PyNumber_AsSsize_t(number, PyExc_OverflowError);
	if (limit == -1 && PyErr_Occurred())
		return NULL;
	if (limit < 2)
		return PyLong_FromLong(0);
	char *composite = limit < PY_SSIZE_T_MAX ? PyMem_Calloc((size_t)limit + 1, 1) : NULL;
	if (composite == NULL)
		return PyErr_NoMemory();

	PRIMES_SIEVE_START((size_t)limit);
	size_t found = sieve(composite, (size_t)limit);
	PRIMES_SIEVE_DONE((size_t)limit, found);
	PyMem_Free(composite);
	return PyLong_FromSize_t(found);
}

static PyMethodDef methods[] = {
	{"count", count, METH_O, "Return how many prime numbers there are up to a limit."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_core", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModule_Create(&definition);
}
