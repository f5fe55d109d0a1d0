/* Many rows as columns: `adapters/sqlite_log/strung.py`, which says what that means, in C.
 *
 * There SQLite calls a function for every value, and writes each time as digits that are read again.
 * Here it calls one for every row. The function is SQLite's to call, so this file makes it known to
 * every connection that is opened from now on, through the library that Python itself has loaded: two
 * of them in one process would not know of each other's locks.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <dlfcn.h>
#include <sqlite3ext.h>
#include <string.h>

SQLITE_EXTENSION_INIT1

#define HASH_BYTES 32

/* The columns in the order of the function's arguments. */
enum { AT, VERSION, STREAM, TYPE, PAYLOAD, CAUSE, ACTOR, HASH, COLUMNS };

typedef struct {
    char *text;
    sqlite3_uint64 size;
    sqlite3_uint64 room;
} Column;

/* What has been strung together so far. */
typedef struct {
    Column columns[COLUMNS];
    sqlite3_uint64 rows;
    int bad; /* some value is of another type, or there was no memory */
} Strung;

static int put(Column *column, const void *part, size_t size) {
    if (column->room - column->size < size) {
        sqlite3_uint64 room = 2 * (column->size + size) + 1000;
        char *text = sqlite3_realloc64(column->text, room);
        if (text == NULL) {
            return 0;
        }
        column->text = text;
        column->room = room;
    }
    if (size > 0) {
        memcpy(column->text + column->size, part, size);
        column->size += size;
    }
    return 1;
}

static int put_text(Column *column, sqlite3_value *value, int is_first) {
    if (sqlite3_value_type(value) != SQLITE_TEXT) {
        return 0;
    }
    const unsigned char *text = sqlite3_value_text(value);
    return text != NULL && (is_first || put(column, "\n", 1)) &&
           put(column, text, sqlite3_value_bytes(value));
}

static int put_hash(Column *column, sqlite3_value *value, int is_first) {
    if (sqlite3_value_type(value) != SQLITE_BLOB || sqlite3_value_bytes(value) != HASH_BYTES) {
        return 0;
    }
    return (is_first || put(column, ",", 1)) &&
           put(column, sqlite3_value_blob(value), HASH_BYTES);
}

static int put_time(Column *column, sqlite3_value *value) {
    double time = sqlite3_value_double(value);
    return sqlite3_value_type(value) == SQLITE_FLOAT && put(column, &time, sizeof time);
}

static int put_version(Column *column, sqlite3_value *value) {
    sqlite3_int64 version = sqlite3_value_int64(value);
    return sqlite3_value_type(value) == SQLITE_INTEGER && put(column, &version, sizeof version);
}

static void add_row(sqlite3_context *context, int given, sqlite3_value **values) {
    Strung *strung = sqlite3_aggregate_context(context, sizeof *strung);
    if (strung == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    Column *columns = strung->columns;
    int is_first = strung->rows++ == 0;
    int good = !strung->bad && put_time(&columns[AT], values[AT]) &&
               put_version(&columns[VERSION], values[VERSION]) &&
               put_hash(&columns[HASH], values[HASH], is_first);
    for (int i = STREAM; good && i <= ACTOR; i++) {
        good = put_text(&columns[i], values[i], is_first);
    }
    strung->bad = !good;
}

/* One blob: how many rows there are, how long each column is, and the columns. NULL if something is
 * wrong with them. */
static void give_columns(sqlite3_context *context) {
    Strung *strung = sqlite3_aggregate_context(context, 0);
    if (strung == NULL) {
        sqlite3_result_null(context);
        return;
    }
    sqlite3_uint64 head[1 + COLUMNS] = {strung->rows}, size = sizeof head;
    for (int i = 0; i < COLUMNS; i++) {
        head[1 + i] = strung->columns[i].size;
        size += strung->columns[i].size;
    }
    char *all = strung->bad ? NULL : sqlite3_malloc64(size), *at = all;
    if (all != NULL) {
        memcpy(at, head, sizeof head);
        at += sizeof head;
    }
    for (int i = 0; i < COLUMNS; i++) {
        Column *column = &strung->columns[i];
        if (all != NULL && column->size > 0) {
            memcpy(at, column->text, column->size);
            at += column->size;
        }
        sqlite3_free(column->text);
    }
    if (all == NULL) {
        sqlite3_result_null(context);
    } else {
        sqlite3_result_blob64(context, all, size, sqlite3_free);
    }
}

static int introduce(sqlite3 *connection, char **message, const sqlite3_api_routines *routines) {
    SQLITE_EXTENSION_INIT2(routines);
    int rules = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    return sqlite3_create_function(connection, "muster_columns", COLUMNS, rules, NULL, NULL, add_row,
                                   give_columns);
}

/* Numbers that are the same as the one before are one object. */
static PyObject *times(const char *at, Py_ssize_t count) {
    PyObject *list = PyList_New(count), *time = NULL;
    double before = 0.0;
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        double number;
        memcpy(&number, at + i * sizeof number, sizeof number);
        if (time == NULL || memcmp(&number, &before, sizeof number) != 0) {
            time = PyFloat_FromDouble(number);
            before = number;
        } else {
            Py_INCREF(time);
        }
        if (time == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, time);
        }
    }
    return list;
}

static PyObject *versions(const char *at, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        sqlite3_int64 number;
        memcpy(&number, at + i * sizeof number, sizeof number);
        PyObject *version = PyLong_FromLongLong(number);
        if (version == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, version);
        }
    }
    return list;
}

/* A column as Python has it. */
static PyObject *column(int which, const char *at, Py_ssize_t size, Py_ssize_t count) {
    switch (which) {
    case AT:
        return times(at, count);
    case VERSION:
        return versions(at, count);
    case PAYLOAD:
    case HASH:
        return PyBytes_FromStringAndSize(at, size);
    default:
        return PyUnicode_DecodeUTF8(at, size, NULL);
    }
}

static PyObject *taken_apart(PyObject *module, PyObject *found) {
    if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 1) {
        PyErr_SetString(PyExc_TypeError, "one value is to be taken apart");
        return NULL;
    }
    PyObject *all = PyTuple_GET_ITEM(found, 0);
    if (all == Py_None) {
        Py_RETURN_NONE;
    }
    sqlite3_uint64 head[1 + COLUMNS], left;
    if (!PyBytes_Check(all) || (size_t)PyBytes_GET_SIZE(all) < sizeof head) {
        PyErr_SetString(PyExc_TypeError, "columns are taken from bytes");
        return NULL;
    }
    const char *at = PyBytes_AS_STRING(all);
    memcpy(head, at, sizeof head);
    at += sizeof head;
    left = PyBytes_GET_SIZE(all) - sizeof head;
    if (head[0] > left / 8 || head[1 + AT] != 8 * head[0] || head[1 + VERSION] != 8 * head[0]) {
        PyErr_SetString(PyExc_ValueError, "these are no columns");
        return NULL;
    }
    PyObject *columns = PyTuple_New(COLUMNS);
    for (int i = 0; columns != NULL && i < COLUMNS; i++) {
        sqlite3_uint64 size = head[1 + i];
        PyObject *made = size > left ? NULL : column(i, at, size, head[0]);
        if (made == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "these are no columns");
            }
            Py_CLEAR(columns);
            break;
        }
        PyTuple_SET_ITEM(columns, i, made);
        at += size;
        left -= size;
    }
    return columns;
}

static PyMethodDef METHODS[] = {
    {"taken_apart", taken_apart, METH_O, "The columns in what SQLite has found."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "adapters.sqlite_log.strung",
                                    .m_size = -1, .m_methods = METHODS};

static const char COLUMNS_SQL[] =
    "SELECT muster_columns(at, version, stream, type, payload, cause, actor, hash) "
    "FROM events WHERE position > ? AND position <= ?";

typedef int (*Introducer)(void (*)(void));

/* What makes a function known to later connections, of the library that Python uses; or NULL. */
static Introducer introducer(void) {
    PyObject *module = PyImport_ImportModule("_sqlite3");
    PyObject *path = module == NULL ? NULL : PyModule_GetFilenameObject(module);
    const char *name = path == NULL ? NULL : PyUnicode_AsUTF8(path);
    void *library = name == NULL ? NULL : dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    Introducer found = NULL;
    if (library != NULL) {
        *(void **)&found = dlsym(library, "sqlite3_auto_extension");
        dlclose(library);
    }
    Py_XDECREF(path);
    Py_XDECREF(module);
    return found;
}

PyMODINIT_FUNC PyInit_strung(void) {
    Introducer introduced = introducer();
    if (introduced == NULL || introduced((void (*)(void))introduce) != SQLITE_OK) {
        PyErr_SetString(PyExc_ImportError,
                        "Python's SQLite takes no functions in C here; compile the core once more");
        return NULL;
    }
    PyObject *module = PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddStringConstant(module, "COLUMNS", COLUMNS_SQL) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
