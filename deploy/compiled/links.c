/* Whether the hashes of many rows follow from each other: `controlplane/links.py`, which says what
 * that means, in C.
 *
 * As it is written, a row costs some twenty objects and as many calls, and more is done around its
 * hash than in it. Here it costs a copy of its text and one hash. msgspec writes each column as one
 * JSON text, so what is hashed is what the other form hashes to the last byte; this only cuts it into
 * rows.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hashing.h"

#include <string.h>

/* A comma stands between two hashes. */
#define HASH_STEP (HASH_BYTES + 1)

/* What is left of a column. */
typedef struct {
    enum { LINES, JSON_LIST, JSON_LINES } kind;
    PyObject *text; /* what the parts lie in */
    const char *at;
    const char *end;
    int over; /* its last part was taken */
    /* Of a list: what it was made of, which row is next, and the part of the one before it. */
    PyObject *list;
    Py_ssize_t row;
    const char *part;
    size_t size;
} Column;

/* Lines of bytes, which stay as they are. */
static int open_lines(Column *column, PyObject *value) {
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "payloads and hashes are bytes");
        return -1;
    }
    column->kind = LINES;
    column->text = Py_NewRef(value);
    column->at = PyBytes_AS_STRING(value);
    column->end = column->at + PyBytes_GET_SIZE(value);
    return 0;
}

/* The list without those that are the same object as the one before. */
static PyObject *without_repeats(PyObject *list) {
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(list); i++) {
        if (i > 0 && PyList_GET_ITEM(list, i) == PyList_GET_ITEM(list, i - 1)) {
            continue;
        }
        if (PyList_Append(found, PyList_GET_ITEM(list, i)) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

/* A list, or a text with a line a row, as msgspec writes it: [1.5,2.5], or "one\ntwo". What happened
 * at one instant stands side by side, and few events are not of the first version, so most members of
 * a list are the one before once more: they are written once. */
static int open_json(Column *column, PyObject *value) {
    int is_text = PyUnicode_Check(value);
    if (!is_text && !PyList_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "a column is a text or a list");
        return -1;
    }
    column->kind = is_text ? JSON_LINES : JSON_LIST;
    column->list = is_text ? NULL : Py_NewRef(value);
    PyObject *written = is_text ? Py_NewRef(value) : without_repeats(value);
    if (written == NULL) {
        return -1;
    }
    column->text = PyObject_CallOneArg(encode, written);
    Py_DECREF(written);
    if (column->text == NULL) {
        return -1;
    }
    if (!PyBytes_Check(column->text) || PyBytes_GET_SIZE(column->text) < 2) {
        PyErr_SetString(PyExc_TypeError, "a column was written as something else");
        return -1;
    }
    /* Without its brackets or quotes. */
    column->at = PyBytes_AS_STRING(column->text) + 1;
    column->end = column->at + PyBytes_GET_SIZE(column->text) - 2;
    return 0;
}

/* A text with a line a row: as it is, if it can be, or as msgspec writes it. */
static int open_text(Column *column, PyObject *value) {
    if (!PyUnicode_Check(value) || !PyUnicode_IS_COMPACT_ASCII(value) ||
        !is_plain(PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value))) {
        return open_json(column, value);
    }
    column->kind = LINES;
    column->text = Py_NewRef(value);
    column->at = (const char *)PyUnicode_1BYTE_DATA(value);
    column->end = column->at + PyUnicode_GET_LENGTH(value);
    return 0;
}

/* The end of the first line of a JSON text. A backslash and the character behind it are one. */
static const char *json_line_end(const char *at, const char *end) {
    while ((at = memchr(at, '\\', end - at)) != NULL && at + 1 < end) {
        if (at[1] == 'n') {
            return at;
        }
        at += 2;
    }
    return NULL;
}

/* The next part of the text, which is there; what separates it from the one behind it is skipped. */
static void next_part(Column *column) {
    const char *at = column->at, *stop;
    if (column->kind == JSON_LINES) {
        stop = json_line_end(at, column->end);
    } else {
        stop = memchr(at, column->kind == LINES ? '\n' : ',', column->end - at);
    }
    if (stop != NULL) {
        column->at = stop + (column->kind == JSON_LINES ? 2 : 1);
    } else {
        stop = column->end;
        column->over = 1;
    }
    column->part = at;
    column->size = stop - at;
}

/* Goes on to the next row; 0 if there is none. */
static int next(Column *column) {
    PyObject *list = column->list;
    if (list != NULL) {
        Py_ssize_t row = column->row;
        if (row == PyList_GET_SIZE(list)) {
            return 0;
        }
        column->row++;
        if (row > 0 && PyList_GET_ITEM(list, row) == PyList_GET_ITEM(list, row - 1)) {
            return 1;
        }
    }
    if (column->over) {
        return 0;
    }
    next_part(column);
    return 1;
}

static int has_ended(const Column *column) {
    return column->over && (column->list == NULL || column->row == PyList_GET_SIZE(column->list));
}

/* The columns in the order in which a row's hash covers them, behind its position. */
enum { AT, STREAM, TYPE, VERSION, CAUSE, ACTOR, PAYLOAD, COLUMNS };

/* What stands before each part: [1,1.5,"stream","type",1,"cause","actor"] and then the payload. */
static const char *const BEFORE[] = {",", ",\"", "\",\"", "\",", ",\"", "\",\"", "\"]"};
static const size_t BEFORE_SIZE[] = {1, 2, 3, 2, 2, 3, 2};

/* The text of the next row, up to its payload, behind what is in the buffer; -1 for an error, 0 if
 * a column has no more. */
static int put_row(Buffer *buffer, long long position, Column *columns) {
    size_t size = 1 + DIGITS_MAX;
    for (int i = 0; i < COLUMNS; i++) {
        if (!next(&columns[i])) {
            return 0;
        }
        size += BEFORE_SIZE[i] + columns[i].size;
    }
    if (!has_room(buffer, size)) {
        return -1;
    }
    put(buffer, "[", 1);
    put_number(buffer, position);
    for (int i = 0; i < COLUMNS; i++) {
        put(buffer, BEFORE[i], BEFORE_SIZE[i]);
        put(buffer, columns[i].part, columns[i].size);
    }
    return 1;
}

/* 1 if all follow, 0 if not, -1 for an error. */
static int all_linked(PyObject *previous, long long after, Column *columns, const char *hashes,
                      Py_ssize_t count, Buffer *buffer, EVP_MD_CTX *context) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    const char *before = PyBytes_AS_STRING(previous);
    size_t before_size = PyBytes_GET_SIZE(previous);
    for (Py_ssize_t i = 0; i < count; i++) {
        buffer->size = 0;
        if (!has_room(buffer, before_size)) {
            return -1;
        }
        put(buffer, before, before_size);
        int there = put_row(buffer, after + 1 + i, columns);
        if (there <= 0) {
            return there;
        }
        if (!hash(context, buffer, digest)) {
            return -1;
        }
        const char *found = hashes + i * HASH_STEP;
        if (memcmp(digest, found, HASH_BYTES) != 0 || (i + 1 < count && found[HASH_BYTES] != ',')) {
            return 0;
        }
        before = found;
        before_size = HASH_BYTES;
    }
    for (int i = 0; i < COLUMNS; i++) {
        if (!has_ended(&columns[i])) {
            return 0;
        }
    }
    return 1;
}

static PyObject *linked(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given != 10) {
        return PyErr_Format(PyExc_TypeError, "linked() takes 10 arguments, not %zd", given);
    }
    PyObject *previous = args[0], *hashes = args[9];
    if (!PyBytes_Check(previous) || !PyBytes_Check(hashes)) {
        PyErr_SetString(PyExc_TypeError, "hashes are bytes");
        return NULL;
    }
    long long after = PyLong_AsLongLong(args[1]);
    if (after == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t count = (PyBytes_GET_SIZE(hashes) + 1) / HASH_STEP;
    if (count == 0 || (PyBytes_GET_SIZE(hashes) + 1) % HASH_STEP || after < 0 ||
        after > PY_LLONG_MAX - count) {
        Py_RETURN_FALSE;
    }
    Column columns[COLUMNS];
    memset(columns, 0, sizeof columns);
    Buffer buffer = {NULL, 0, 0};
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int found = -1;
    if (context == NULL) {
        PyErr_NoMemory();
    } else if (open_json(&columns[AT], args[2]) == 0 && open_text(&columns[STREAM], args[3]) == 0 &&
               open_text(&columns[TYPE], args[4]) == 0 &&
               open_json(&columns[VERSION], args[5]) == 0 &&
               open_lines(&columns[PAYLOAD], args[6]) == 0 &&
               open_text(&columns[CAUSE], args[7]) == 0 &&
               open_text(&columns[ACTOR], args[8]) == 0) {
        found = all_linked(previous, after, columns, PyBytes_AS_STRING(hashes), count, &buffer,
                           context);
    }
    for (int i = 0; i < COLUMNS; i++) {
        Py_XDECREF(columns[i].text);
        Py_XDECREF(columns[i].list);
    }
    PyMem_Free(buffer.text);
    EVP_MD_CTX_free(context);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyMethodDef METHODS[] = {
    {"linked", (PyCFunction)(void (*)(void))linked, METH_FASTCALL,
     "Whether the hashes of many rows follow from each other."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "controlplane.links",
                                    .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit_links(void) { return begin_hashing() < 0 ? NULL : PyModule_Create(&MODULE); }
