/* The events in many payloads, read in one call: `controlplane/payloads.py`, which says what that
 * means, in C.
 *
 * There are few types of events, so a name is compared with those that were met on this page, and no
 * object is made of it. Payloads are long, and the C library looks for their ends many bytes at once.
 *
 * Most events of jobs say what others have said before, of another job. So what is behind the job's
 * id is looked up among the texts that were read lately, and whoever is found there is the event.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include "texts.h"

#include <string.h>

/* As many types as are remembered; what comes beyond them is looked up each time. */
#define TYPES_MAX 32
/* Events that are remembered, and how long what they say may be. */
#define EVENTS_BITS 14
#define EVENT_BYTES_MAX 500
/* Jobs whose ids are remembered: what happens to one comes in little groups. */
#define JOBS_BITS 10

/* How the payload of an event of a job begins. */
static const char BEFORE_JOB[] = "{\"job\":\"";
#define BEFORE_JOB_SIZE ((Py_ssize_t)sizeof BEFORE_JOB - 1)

typedef struct {
    const char *name;
    Py_ssize_t size;
    PyObject *version; /* borrowed of the readers, as long as the call takes; NULL without a reader */
    PyObject *read;
    int alike; /* whether events that differ in the job alone are one */
} Type;

typedef struct {
    PyObject *readers;
    PyObject *held[TYPES_MAX]; /* what `known` borrows from */
    Type known[TYPES_MAX];
    int count;
} Types;

static Text events_known[1 << EVENTS_BITS];
static PyObject *jobs_known[1 << JOBS_BITS];

/* Fills in what reads a type; -1 for an error. The tuple it is borrowed from is `held`. */
static int look_up(Types *types, const char *name, Py_ssize_t size, Type *type, PyObject **held) {
    *type = (Type){name, size, NULL, NULL, 0};
    *held = NULL;
    PyObject *key = PyUnicode_DecodeUTF8(name, size, NULL);
    if (key == NULL) {
        return -1;
    }
    PyObject *reader = PyDict_GetItemWithError(types->readers, key);
    Py_DECREF(key);
    if (reader == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_Check(reader) || PyTuple_GET_SIZE(reader) != 3) {
        PyErr_SetString(PyExc_TypeError, "a reader is a version, a function and a truth");
        return -1;
    }
    *held = Py_NewRef(reader);
    type->version = PyTuple_GET_ITEM(reader, 0);
    type->read = PyTuple_GET_ITEM(reader, 1);
    type->alike = PyTuple_GET_ITEM(reader, 2) == Py_True;
    return 0;
}

/* What a reader makes of a payload, or None if it refuses it. */
static PyObject *read_payload(PyObject *read, const char *text, Py_ssize_t size) {
    PyObject *payload = PyBytes_FromStringAndSize(text, size);
    if (payload == NULL) {
        return NULL;
    }
    PyObject *event = PyObject_CallOneArg(read, payload);
    Py_DECREF(payload);
    if (event == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return event;
}

/* Where the id ends that begins here; NULL unless it is plain, without anything to be decoded. */
static const char *job_end(const char *at, const char *end) {
    while (at < end && *at != '"') {
        if (*at < ' ' || *at > '~' || *at == '\\') {
            return NULL;
        }
        at++;
    }
    return at == end ? NULL : at;
}

static PyObject *job_named(const char *id, Py_ssize_t size) {
    PyObject **place = &jobs_known[hash_of(id, size) >> (64 - JOBS_BITS)];
    if (*place != NULL && PyUnicode_GET_LENGTH(*place) == size &&
        memcmp(PyUnicode_1BYTE_DATA(*place), id, size) == 0) {
        return Py_NewRef(*place);
    }
    PyObject *job = PyUnicode_New(size, 127);
    if (job != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(job), id, size);
        Py_XSETREF(*place, Py_NewRef(job));
    }
    return job;
}

/* Whether a job is named in it once more: then that one is meant. Backslashes may hide a name. */
static int names_a_job(const char *rest, Py_ssize_t size) {
    return memmem(rest, size, "\"job\"", 5) != NULL || memchr(rest, '\\', size) != NULL;
}

/* The event that says of no job what is said here of one; None if there is none such. */
static PyObject *read_unnamed(const Type *type, const char *rest, Py_ssize_t size) {
    if (names_a_job(rest, size)) {
        Py_RETURN_NONE;
    }
    char text[BEFORE_JOB_SIZE + EVENT_BYTES_MAX];
    memcpy(text, BEFORE_JOB, BEFORE_JOB_SIZE);
    memcpy(text + BEFORE_JOB_SIZE, rest, size);
    return read_payload(type->read, text, BEFORE_JOB_SIZE + size);
}

/* The same, with the job that it is said of; None in both places if it is to be read as it is. */
static PyObject *read_alike_one(const Type *type, const char *text, Py_ssize_t size,
                                PyObject **job) {
    const char *id = text + BEFORE_JOB_SIZE, *end = text + size;
    *job = Py_NewRef(Py_None);
    if (size <= BEFORE_JOB_SIZE || memcmp(text, BEFORE_JOB, BEFORE_JOB_SIZE) != 0) {
        Py_RETURN_NONE;
    }
    const char *rest = job_end(id, end);
    if (rest == NULL || end - rest > EVENT_BYTES_MAX) {
        Py_RETURN_NONE;
    }
    uint64_t hash = hash_of(rest, end - rest);
    Text *place = &events_known[hash >> (64 - EVENTS_BITS)];
    PyObject *event;
    if (is_text(place, hash, type->read, rest, end - rest)) {
        event = Py_NewRef(place->value);
    } else {
        event = came_again(place, hash) ? read_unnamed(type, rest, end - rest) : Py_NewRef(Py_None);
        if (event == NULL || event == Py_None) {
            return event;
        }
        if (keep_text(place, hash, type->read, rest, end - rest, event) < 0) {
            Py_DECREF(event);
            return NULL;
        }
    }
    Py_SETREF(*job, job_named(id, rest - id));
    if (*job == NULL) {
        Py_CLEAR(event);
    }
    return event;
}

/* The event in a payload, or None. If a job is asked for, it may be one that is said of that job. */
static PyObject *read_one(const Type *type, PyObject *version, const char *text, Py_ssize_t size,
                          PyObject **job) {
    int same = type->read == NULL          ? 0
               : version == type->version ? 1
                                          : PyObject_RichCompareBool(version, type->version, Py_EQ);
    if (same < 0) {
        return NULL;
    }
    if (same && job != NULL && type->alike) {
        PyObject *event = read_alike_one(type, text, size, job);
        if (event != Py_None) {
            return event;
        }
        Py_DECREF(event);
    } else if (job != NULL) {
        *job = Py_NewRef(Py_None);
    }
    return same ? read_payload(type->read, text, size) : Py_NewRef(Py_None);
}

/* The same by the name of its type. */
static PyObject *read_named(Types *types, const char *name, Py_ssize_t name_size, PyObject *version,
                            const char *text, Py_ssize_t size, PyObject **job) {
    for (int i = 0; i < types->count; i++) {
        const Type *known = &types->known[i];
        if (known->size == name_size && memcmp(known->name, name, name_size) == 0) {
            return read_one(known, version, text, size, job);
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
        return read_one(&found, version, text, size, job);
    }
    PyObject *event = read_one(&found, version, text, size, job);
    Py_XDECREF(held);
    return event;
}

static const char *line_end(const char *at, const char *end) {
    const char *found = memchr(at, '\n', end - at);
    return found == NULL ? end : found;
}

/* Puts the event of a row into the list, and its job into the other one, if there is one. */
static int read_row(Types *types, const char *name, Py_ssize_t name_size, PyObject *version,
                    const char *text, Py_ssize_t size, PyObject *jobs, PyObject *events) {
    PyObject *job = NULL;
    Py_INCREF(version);
    PyObject *event = read_named(types, name, name_size, version, text, size,
                                 jobs == NULL ? NULL : &job);
    Py_DECREF(version);
    int failed = event == NULL || PyList_Append(events, event) < 0 ||
                 (jobs != NULL && PyList_Append(jobs, job) < 0);
    Py_XDECREF(event);
    Py_XDECREF(job);
    return failed ? -1 : 0;
}

/* Fills the lists; 0, or -1 for an error. */
static int read_lines(Types *types, const char *name, const char *names_end, PyObject *versions,
                      const char *text, const char *texts_end, PyObject *jobs, PyObject *events) {
    for (;;) {
        const char *name_end = line_end(name, names_end), *text_end = line_end(text, texts_end);
        Py_ssize_t row = PyList_GET_SIZE(events);
        if (row >= PyList_GET_SIZE(versions)) {
            break;
        }
        if (read_row(types, name, name_end - name, PyList_GET_ITEM(versions, row), text,
                     text_end - text, jobs, events) < 0) {
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

/* The events; the jobs go into a list that was given for them, or nowhere. */
static PyObject *read_columns(PyObject *const *args, Py_ssize_t given, PyObject *jobs) {
    if (given != 4) {
        return PyErr_Format(PyExc_TypeError, "4 arguments are to be given, not %zd", given);
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
                                     texts + PyBytes_GET_SIZE(args[2]), jobs, events) < 0) {
        Py_CLEAR(events);
    }
    for (int i = 0; i < types.count; i++) {
        Py_XDECREF(types.held[i]);
    }
    return events;
}

static PyObject *read_all(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    return read_columns(args, given, NULL);
}

static PyObject *read_alike(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    PyObject *jobs = PyList_New(0);
    PyObject *events = jobs == NULL ? NULL : read_columns(args, given, jobs);
    PyObject *both = events == NULL ? NULL : PyTuple_Pack(2, jobs, events);
    Py_XDECREF(jobs);
    Py_XDECREF(events);
    return both;
}

static PyObject *forget(PyObject *module, PyObject *unused) {
    for (size_t i = 0; i < Py_ARRAY_LENGTH(events_known); i++) {
        drop_text(&events_known[i]);
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(jobs_known); i++) {
        Py_CLEAR(jobs_known[i]);
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"read_all", (PyCFunction)(void (*)(void))read_all, METH_FASTCALL,
     "The events in many payloads, read in one call."},
    {"read_alike", (PyCFunction)(void (*)(void))read_alike, METH_FASTCALL,
     "The same, with what is said of several jobs read once."},
    {"forget", forget, METH_NOARGS, "Lets go of what was remembered."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "controlplane.payloads",
                                    .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit_payloads(void) { return PyModule_Create(&MODULE); }
