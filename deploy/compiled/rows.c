/* Rows of the log, made of what was recorded: `controlplane/rows.py`, which says what that means, in C.
 *
 * As it is written, the half of a row's time goes into the steps between encoding an event and taking
 * a hash. msgspec writes the payload, and whatever else is not plain, so both forms write the same.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hashing.h"

#include <string.h>

/* The names of fields. */
static PyObject *position_field, *at_field, *event_field, *cause_field, *actor_field, *job_field,
    *stream_field;

/* What is common to the rows of a batch. */
typedef struct {
    PyObject *kinds; /* the class of an event: its name, its version, whether its stream is its job */
    EVP_MD_CTX *context;
    Buffer buffer;
    unsigned char hash[EVP_MAX_MD_SIZE]; /* of the row before */
    PyObject *at;                        /* the time of the row before, and how it is written */
    PyObject *at_text;
} Batch;

static int put_bytes(Buffer *buffer, PyObject *bytes) {
    if (bytes == NULL) {
        return 0;
    }
    int there = has_room(buffer, PyBytes_GET_SIZE(bytes));
    if (there) {
        put(buffer, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    }
    return there;
}

static int put_json(Buffer *buffer, PyObject *value) {
    PyObject *bytes = PyObject_CallOneArg(encode, value);
    int there = put_bytes(buffer, bytes);
    Py_XDECREF(bytes);
    return there;
}

static int put_text(Buffer *buffer, PyObject *text) {
    if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_COMPACT_ASCII(text)) {
        return put_json(buffer, text);
    }
    const char *data = (const char *)PyUnicode_1BYTE_DATA(text);
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (!is_plain((const unsigned char *)data, size) || memchr(data, '\n', size) != NULL) {
        return put_json(buffer, text);
    }
    if (!has_room(buffer, size + 2)) {
        return 0;
    }
    put(buffer, "\"", 1);
    put(buffer, data, size);
    put(buffer, "\"", 1);
    return 1;
}

static int put_position(Buffer *buffer, PyObject *position) {
    int overflow = 1;
    long long number =
        PyLong_CheckExact(position) ? PyLong_AsLongLongAndOverflow(position, &overflow) : -1;
    if (overflow || number < 0) {
        return put_json(buffer, position);
    }
    if (!has_room(buffer, DIGITS_MAX)) {
        return 0;
    }
    put_number(buffer, number);
    return 1;
}

/* Most rows of a batch happened at the same time as the one before. */
static int put_time(Batch *batch, PyObject *at) {
    if (at != batch->at) {
        Py_XSETREF(batch->at, Py_NewRef(at));
        Py_XSETREF(batch->at_text, PyObject_CallOneArg(encode, at));
    }
    return put_bytes(&batch->buffer, batch->at_text);
}

static int put_mark(Buffer *buffer, char mark) {
    if (!has_room(buffer, 1)) {
        return 0;
    }
    put(buffer, &mark, 1);
    return 1;
}

/* What a row consists of, in its order. */
enum { POSITION, AT, STREAM, TYPE, VERSION, PAYLOAD, CAUSE, ACTOR, HASH, FIELDS };

/* Fills the hash in, over what is there already. */
static int chain(Batch *batch, PyObject *row) {
    Buffer *buffer = &batch->buffer;
    buffer->size = 0;
    if (!has_room(buffer, HASH_BYTES)) {
        return 0;
    }
    put(buffer, (const char *)batch->hash, HASH_BYTES);
    int done = put_mark(buffer, '[') && put_position(buffer, PyTuple_GET_ITEM(row, POSITION)) &&
               put_mark(buffer, ',') && put_time(batch, PyTuple_GET_ITEM(row, AT)) &&
               put_mark(buffer, ',') && put_text(buffer, PyTuple_GET_ITEM(row, STREAM)) &&
               put_mark(buffer, ',') && put_text(buffer, PyTuple_GET_ITEM(row, TYPE)) &&
               put_mark(buffer, ',') && put_position(buffer, PyTuple_GET_ITEM(row, VERSION)) &&
               put_mark(buffer, ',') && put_text(buffer, PyTuple_GET_ITEM(row, CAUSE)) &&
               put_mark(buffer, ',') && put_text(buffer, PyTuple_GET_ITEM(row, ACTOR)) &&
               put_mark(buffer, ']') && put_bytes(buffer, PyTuple_GET_ITEM(row, PAYLOAD)) &&
               hash(batch->context, buffer, batch->hash);
    if (!done) {
        return 0;
    }
    PyObject *digest = PyBytes_FromStringAndSize((const char *)batch->hash, HASH_BYTES);
    if (digest == NULL) {
        return 0;
    }
    PyTuple_SET_ITEM(row, HASH, digest);
    return 1;
}

/* Fills a field in; NULL is an error that has been told. */
static int fill(PyObject *row, int field, PyObject *value) {
    if (value == NULL) {
        return 0;
    }
    PyTuple_SET_ITEM(row, field, value);
    return 1;
}

/* Every store gives times back as floats, so an integer must be hashed as one, too. */
static PyObject *time_of(PyObject *recorded) {
    PyObject *at = PyObject_GetAttr(recorded, at_field);
    if (at != NULL && !PyFloat_CheckExact(at)) {
        Py_SETREF(at, PyNumber_Float(at));
    }
    return at;
}

static PyObject *kind_of(PyObject *kinds, PyObject *event) {
    PyObject *type = (PyObject *)Py_TYPE(event), *kind = PyDict_GetItemWithError(kinds, type);
    if (kind == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, type);
        }
    } else if (!PyTuple_Check(kind) || PyTuple_GET_SIZE(kind) != 3) {
        PyErr_SetString(PyExc_TypeError, "a kind is a name, a version and a truth");
        kind = NULL;
    }
    return kind;
}

static int fill_of_event(Batch *batch, PyObject *row, PyObject *event) {
    PyObject *kind = kind_of(batch->kinds, event);
    if (kind == NULL) {
        return 0;
    }
    PyObject *whose = PyTuple_GET_ITEM(kind, 2) == Py_True ? job_field : stream_field;
    fill(row, TYPE, Py_NewRef(PyTuple_GET_ITEM(kind, 0)));
    fill(row, VERSION, Py_NewRef(PyTuple_GET_ITEM(kind, 1)));
    return fill(row, STREAM, PyObject_GetAttr(event, whose)) &&
           fill(row, PAYLOAD, PyObject_CallOneArg(encode, event));
}

static PyObject *row_of(Batch *batch, PyObject *recorded) {
    PyObject *row = PyTuple_New(FIELDS), *event = PyObject_GetAttr(recorded, event_field);
    int done = row != NULL && event != NULL && fill_of_event(batch, row, event) &&
               fill(row, POSITION, PyObject_GetAttr(recorded, position_field)) &&
               fill(row, AT, time_of(recorded)) &&
               fill(row, CAUSE, PyObject_GetAttr(recorded, cause_field)) &&
               fill(row, ACTOR, PyObject_GetAttr(recorded, actor_field)) && chain(batch, row);
    Py_XDECREF(event);
    if (!done) {
        Py_CLEAR(row);
    }
    return row;
}

/* The rows of a list or tuple. */
static PyObject *rows_of(Batch *batch, PyObject *recorded) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(recorded);
    PyObject *rows = PyList_New(count);
    for (Py_ssize_t i = 0; rows != NULL && i < count; i++) {
        PyObject *row = row_of(batch, PySequence_Fast_GET_ITEM(recorded, i));
        if (row == NULL) {
            Py_CLEAR(rows);
        } else {
            PyList_SET_ITEM(rows, i, row);
        }
    }
    return rows;
}

static PyObject *chained(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given != 3) {
        return PyErr_Format(PyExc_TypeError, "chained() takes 3 arguments, not %zd", given);
    }
    if (!PyBytes_Check(args[1]) || PyBytes_GET_SIZE(args[1]) != HASH_BYTES ||
        !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a hash is 32 bytes, and kinds are a dict");
        return NULL;
    }
    PyObject *recorded = PySequence_Tuple(args[0]), *rows = NULL;
    if (recorded == NULL) {
        return NULL;
    }
    Batch batch = {.kinds = args[2], .context = EVP_MD_CTX_new()};
    memcpy(batch.hash, PyBytes_AS_STRING(args[1]), HASH_BYTES);
    if (batch.context == NULL) {
        PyErr_NoMemory();
    } else {
        rows = rows_of(&batch, recorded);
    }
    EVP_MD_CTX_free(batch.context);
    PyMem_Free(batch.buffer.text);
    Py_XDECREF(batch.at);
    Py_XDECREF(batch.at_text);
    Py_DECREF(recorded);
    return rows;
}

static PyMethodDef METHODS[] = {
    {"chained", (PyCFunction)(void (*)(void))chained, METH_FASTCALL,
     "Rows of what was recorded, each chained to the one before."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "controlplane.rows",
                                    .m_size = -1, .m_methods = METHODS};

static int know_field(PyObject **field, const char *name) {
    *field = PyUnicode_InternFromString(name);
    return *field != NULL;
}

PyMODINIT_FUNC PyInit_rows(void) {
    int known = know_field(&position_field, "position") && know_field(&at_field, "at") &&
                know_field(&event_field, "event") && know_field(&cause_field, "cause") &&
                know_field(&actor_field, "actor") && know_field(&job_field, "job") &&
                know_field(&stream_field, "stream");
    return !known || begin_hashing() < 0 ? NULL : PyModule_Create(&MODULE);
}
