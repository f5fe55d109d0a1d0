/* The events in many payloads, read in one call: `controlplane/payloads.py`, which says what that
 * means, in C.
 *
 * There are few types of events, so a name is compared with those that were met on this page, and no
 * object is made of it. Payloads are long, and the C library looks for their ends many bytes at once.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

/* As many types as are remembered; what comes beyond them is looked up each time. */
#define TYPES_MAX 32

typedef struct {
    const char *name;
    Py_ssize_t size;
    PyObject *version; /* borrowed of the readers, as long as the call takes; NULL without a reader */
    PyObject *read;
} Type;

typedef struct {
    PyObject *readers;
    PyObject *held[TYPES_MAX]; /* what `known` borrows from */
    Type known[TYPES_MAX];
    int count;
} Types;

/* Fills in what reads a type; -1 for an error. The pair it is borrowed from is `held`. */
static int look_up(Types *types, const char *name, Py_ssize_t size, Type *type, PyObject **held) {
    *type = (Type){name, size, NULL, NULL};
    *held = NULL;
    PyObject *key = PyUnicode_DecodeUTF8(name, size, NULL);
    if (key == NULL) {
        return -1;
    }
    PyObject *pair = PyDict_GetItemWithError(types->readers, key);
    Py_DECREF(key);
    if (pair == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a reader is a version and a function");
        return -1;
    }
    *held = Py_NewRef(pair);
    type->version = PyTuple_GET_ITEM(pair, 0);
    type->read = PyTuple_GET_ITEM(pair, 1);
    return 0;
}

/* The event in a payload, or None. */
static PyObject *read_one(const Type *type, PyObject *version, const char *text, Py_ssize_t size) {
    if (type->read == NULL) {
        Py_RETURN_NONE;
    }
    int same = version == type->version ? 1 : PyObject_RichCompareBool(version, type->version, Py_EQ);
    if (same <= 0) {
        return same < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *payload = PyBytes_FromStringAndSize(text, size);
    if (payload == NULL) {
        return NULL;
    }
    PyObject *event = PyObject_CallOneArg(type->read, payload);
    Py_DECREF(payload);
    if (event == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return event;
}

/* The same by the name of its type. */
static PyObject *read_named(Types *types, const char *name, Py_ssize_t name_size, PyObject *version,
                            const char *text, Py_ssize_t size) {
    for (int i = 0; i < types->count; i++) {
        const Type *known = &types->known[i];
        if (known->size == name_size && memcmp(known->name, name, name_size) == 0) {
            return read_one(known, version, text, size);
        }
    }
    Type found;
    PyObject *held;
    if (look_up(types, name, name_size, &found, &held) < 0) {
        return NULL;
    }
    if (types->count < TYPES_MAX) {
        types->held[types->count] = held;
        types->known[types->count++] = found;
        return read_one(&found, version, text, size);
    }
    PyObject *event = read_one(&found, version, text, size);
    Py_XDECREF(held);
    return event;
}

static const char *line_end(const char *at, const char *end) {
    const char *found = memchr(at, '\n', end - at);
    return found == NULL ? end : found;
}

/* Fills the list with the events; 0, or -1 for an error. */
static int read_lines(Types *types, const char *name, const char *names_end, PyObject *versions,
                      const char *text, const char *texts_end, PyObject *events) {
    for (;;) {
        const char *name_end = line_end(name, names_end), *text_end = line_end(text, texts_end);
        Py_ssize_t row = PyList_GET_SIZE(events);
        if (row >= PyList_GET_SIZE(versions)) {
            break;
        }
        PyObject *version = Py_NewRef(PyList_GET_ITEM(versions, row));
        PyObject *event =
            read_named(types, name, name_end - name, version, text, text_end - text);
        Py_DECREF(version);
        if (event == NULL) {
            return -1;
        }
        int failed = PyList_Append(events, event);
        Py_DECREF(event);
        if (failed) {
            return -1;
        }
        if (name_end == names_end || text_end == texts_end) {
            if (name_end == names_end && text_end == texts_end &&
                PyList_GET_SIZE(events) == PyList_GET_SIZE(versions)) {
                return 0;
            }
            break;
        }
        name = name_end + 1;
        text = text_end + 1;
    }
    PyErr_SetString(PyExc_ValueError, "the columns are of different lengths");
    return -1;
}

static PyObject *read_all(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given != 4) {
        return PyErr_Format(PyExc_TypeError, "read_all() takes 4 arguments, not %zd", given);
    }
    if (!PyUnicode_Check(args[0]) || !PyList_Check(args[1]) || !PyBytes_Check(args[2]) ||
        !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "columns are a text, a list and bytes; readers are a dict");
        return NULL;
    }
    Py_ssize_t size;
    const char *names = PyUnicode_AsUTF8AndSize(args[0], &size);
    if (names == NULL) {
        return NULL;
    }
    Types types = {.readers = args[3], .count = 0};
    const char *texts = PyBytes_AS_STRING(args[2]);
    PyObject *events = PyList_New(0);
    if (events != NULL && read_lines(&types, names, names + size, args[1], texts,
                                     texts + PyBytes_GET_SIZE(args[2]), events) < 0) {
        Py_CLEAR(events);
    }
    for (int i = 0; i < types.count; i++) {
        Py_XDECREF(types.held[i]);
    }
    return events;
}

static PyMethodDef METHODS[] = {
    {"read_all", (PyCFunction)(void (*)(void))read_all, METH_FASTCALL,
     "The events in many payloads, read in one call."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "controlplane.payloads",
                                    .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit_payloads(void) { 
    return PyModule_Create(&MODULE);
}
