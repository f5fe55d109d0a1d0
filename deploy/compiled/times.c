/* Times as SQLite strings them together: `adapters/sqlite_log/times.py`, which says what that means,
 * in C.
 *
 * What happened at the same instant stands side by side, so a time that is written as the one before
 * it is the same object: a job that is kept refers to its times for as long.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

static const double FRACTION = 1073741824.0; /* 2**30 */

/* Reads an integer up to `end`; whether it is one, and not too large for SQLite. */
static int integer(const char *at, const char *end, long long *found) {
    int negative = at < end && *at == '-';
    at += negative;
    unsigned long long size = 0;
    if (at == end || (*at == '0' && at + 1 < end)) {
        return 0;
    }
    for (; at < end; at++) {
        if (*at < '0' || *at > '9' || size > (unsigned long long)PY_LLONG_MAX / 10) {
            return 0;
        }
        size = size * 10 + (unsigned long long)(*at - '0');
    }
    if (size > (unsigned long long)PY_LLONG_MAX) {
        return 0;
    }
    *found = negative ? -(long long)size : (long long)size;
    return 1;
}

static PyObject *seconds(PyObject *module, PyObject *text) {
    if (!PyBytes_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "times are read from bytes");
        return NULL;
    }
    const char *at = PyBytes_AS_STRING(text), *end = at + PyBytes_GET_SIZE(text);
    const char *before = at;
    size_t before_size = 0;
    PyObject *time = NULL, *times = PyList_New(0);
    while (times != NULL && at <= end && before != end) {
        const char *stop = memchr(at, ',', end - at);
        stop = stop == NULL ? end : stop;
        size_t size = stop - at;
        if (time == NULL || size != before_size || memcmp(at, before, size) != 0) {
            long long number;
            Py_XDECREF(time);
            time = NULL;
            if (!integer(at, stop, &number)) {
                PyErr_SetString(PyExc_ValueError, "some time is no integer");
                Py_CLEAR(times);
                break;
            }
            time = PyFloat_FromDouble((double)number / FRACTION);
            before = at;
            before_size = size;
        }
        if (time == NULL || PyList_Append(times, time) < 0) {
            Py_CLEAR(times);
        }
        at = stop + 1;
    }
    Py_XDECREF(time);
    return times;
}

static PyMethodDef METHODS[] = {
    {"seconds", seconds, METH_O, "The times in a text."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "adapters.sqlite_log.times",
                                    .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit_times(void) {
    PyObject *module = PyModule_Create(&MODULE);
    PyObject *fraction = PyFloat_FromDouble(FRACTION);
    if (module == NULL || fraction == NULL || PyModule_AddObjectRef(module, "FRACTION", fraction)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(fraction);
    return module;
}
