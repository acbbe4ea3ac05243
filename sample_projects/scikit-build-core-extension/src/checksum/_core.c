#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "checksum.h" /* made from checksum.d when the extension is built */

static uint32_t update(uint32_t before, const unsigned char *data, size_t length)
{
	uint32_t low = before & 0xffff, high = before >> 16;

	CHECKSUM_UPDATE_START(length, before);
	for (size_t i = 0; i < length; i++) {
		low = (low + data[i]) % 65521;
		high = (high + low) % 65521;
	}
	CHECKSUM_UPDATE_DONE(length, high << 16 | low);
	return high << 16 | low;
}

static PyObject *adler32(PyObject *module, PyObject *arguments)
{
	Py_buffer data;
	unsigned long before = 1;
	if (!PyArg_ParseTuple(arguments, "y*|k", &data, &before))
		return NULL;
	uint32_t after = update((uint32_t)before, data.buf, (size_t)data.len);
	PyBuffer_Release(&data);
	return PyLong_FromUnsignedLong(after);
}

static PyMethodDef methods[] = {
	{"adler32", adler32, METH_VARARGS, "adler32(data, before=1): return the checksum of all bytes so far."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_core", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModule_Create(&definition);
}
