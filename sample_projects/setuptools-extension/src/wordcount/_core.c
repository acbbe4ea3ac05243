#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "wordcount.h" /* made from wordcount.d when the extension is built */

static int is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static PyObject *count(PyObject *module, PyObject *text)
{
	Py_ssize_t length;
	const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
	if (bytes == NULL)
		return NULL;

	WORDCOUNT_COUNT_START(bytes, (size_t)length);
	Py_ssize_t words = 0, start = 0;
	for (Py_ssize_t i = 0; i <= length; i++) {
		if (i < length && !is_space(bytes[i]))
			continue;
		if (i > start) {
			words++;
			WORDCOUNT_WORD((size_t)start, (size_t)(i - start));
		}
		start = i + 1;
	}
	WORDCOUNT_COUNT_DONE((size_t)words);
	return PyLong_FromSsize_t(words);
}

static PyMethodDef methods[] = {
	{"count", count, METH_O, "Return how many words a text has."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_core", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModule_Create(&definition);
}
