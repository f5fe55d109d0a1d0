/* Submissions, read so that those which ask for the same share it: `controlplane/submissions.py`,
 * which says why, in C.
 *
 * That module shares the roles. Here a spec is known by its whole text but for the workload, which is
 * how long a simulated job takes and so is nearly always another one. What is known was read by
 * msgspec, and whatever is not written as we write it is read by it as it is.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include "texts.h"

#include <string.h>

/* Specs that are remembered, and how long their texts may be; the same for namespaces. */
#define SPECS_BITS 10
#define SPEC_BYTES_MAX 10000
#define NAMESPACES_BITS 6
#define NAMESPACE_BYTES_MAX 200

static Text specs_known[1 << SPECS_BITS];
static Text namespaces_known[1 << NAMESPACES_BITS];

static PyObject *read_whole, *read_spec, *read_workload; /* msgspec's decoders */
static PyObject *submitted;                              /* the class of the event */
static PyObject *replace, *workload_field;               /* msgspec's function, and ("workload",) */
static PyObject *no_workload;                            /* what a spec has that says nothing of it */

/* What is left of a text. */
typedef struct {
    const char *at;
    const char *end;
} Rest;

static int skip(Rest *rest, const char *text, size_t size) {
    if ((size_t)(rest->end - rest->at) < size || memcmp(rest->at, text, size) != 0) {
        return 0;
    }
    rest->at += size;
    return 1;
}
#define SKIP(rest, text) skip((rest), (text), sizeof(text) - 1)

/* A string of which nothing has to be decoded, up to its quote, which is skipped; its size, or -1. */
static Py_ssize_t plain_string(Rest *rest) {
    const char *begin = rest->at;
    for (; rest->at < rest->end; rest->at++) {
        char found = *rest->at;
        if (found == '"') {
            return rest->at++ - begin;
        }
        if (found < ' ' || found > '~' || found == '\\') {
            break;
        }
    }
    return -1;
}

/* Behind the JSON object that begins here; NULL if it has no end. */
static const char *object_end(const char *at, const char *end) {
    int depth = 0, quoted = 0;
    for (; at < end; at++) {
        if (quoted) {
            if (*at == '\\') {
                at++;
            } else if (*at == '"') {
                quoted = 0;
            }
        } else if (*at == '"') {
            quoted = 1;
        } else if (*at == '{') {
            depth++;
        } else if (*at == '}' && --depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* Where the last member of this name begins, with its comma; NULL if there is none. */
static const char *last_member(const char *begin, const char *end, const char *name, size_t size) {
    const char *at = end;
    while ((at = memrchr(begin, ',', at - begin)) != NULL) {
        if ((size_t)(end - at) > size && memcmp(at, name, size) == 0) {
            return at;
        }
    }
    return NULL;
}

static PyObject *read_text(PyObject *read, const char *text, Py_ssize_t size) {
    PyObject *bytes = PyBytes_FromStringAndSize(text, size);
    PyObject *value = bytes == NULL ? NULL : PyObject_CallOneArg(read, bytes);
    Py_XDECREF(bytes);
    return value;
}

/* Whether something was refused, and not broken: then it is to be read as it is. */
static int refused(void) {
    if (PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        return 1;
    }
    return 0;
}

/* Whether a spec says nothing of its workload; -1 for an error. */
static int lacks_workload(PyObject *spec) {
    PyObject *workload = PyObject_GetAttr(spec, PyTuple_GET_ITEM(workload_field, 0));
    Py_XDECREF(workload); /* the spec has it still */
    return workload == NULL ? -1 : workload == no_workload;
}

/* The spec without its workload; None if these are no two parts of one, or if it is said once more in
 * one of them. `parts` is its beginning up to the workload, a line break, and what comes behind it. */
static PyObject *read_parts(char *parts, Py_ssize_t size, Py_ssize_t cut) {
    /* If the first part is a spec with a bracket behind it, then what was cut out between the two was
     * a member of the spec, and none of anything within it. */
    parts[cut] = '}';
    PyObject *spec = read_text(read_spec, parts, cut + 1);
    parts[cut] = '\n';
    if (spec != NULL && !(size == cut + 2 && parts[cut + 1] == '}')) {
        Py_DECREF(spec);
        char whole[SPEC_BYTES_MAX];
        memcpy(whole, parts, cut);
        memcpy(whole + cut, parts + cut + 1, size - cut - 1);
        spec = read_text(read_spec, whole, size - 1);
    }
    if (spec == NULL) {
        return refused() ? Py_NewRef(Py_None) : NULL;
    }
    int lacks = lacks_workload(spec);
    if (lacks <= 0) {
        Py_SETREF(spec, lacks < 0 ? NULL : Py_NewRef(Py_None));
    }
    return spec;
}

/* The same, if it is remembered or comes for the second time. */
static PyObject *known_spec(char *parts, Py_ssize_t size, Py_ssize_t cut) {
    uint64_t hash = hash_of(parts, size);
    Text *place = &specs_known[hash >> (64 - SPECS_BITS)];
    if (is_text(place, hash, read_spec, parts, size)) {
        return Py_NewRef(place->value);
    }
    if (!came_again(place, hash)) {
        Py_RETURN_NONE;
    }
    PyObject *spec = read_parts(parts, size, cut);
    if (spec != NULL && keep_text(place, hash, read_spec, parts, size, spec) < 0) {
        Py_CLEAR(spec);
    }
    return spec;
}

static PyObject *with_workload(PyObject *spec, const char *text, Py_ssize_t size) {
    PyObject *workload = read_text(read_workload, text, size);
    if (workload == NULL) {
        return refused() ? Py_NewRef(Py_None) : NULL;
    }
    PyObject *arguments[] = {spec, workload};
    PyObject *whole = PyObject_Vectorcall(replace, arguments, 1, workload_field);
    Py_DECREF(workload);
    return whole;
}

static const char WORKLOAD[] = ",\"workload\":";
#define WORKLOAD_SIZE (sizeof WORKLOAD - 1)

/* The spec in a text; None if it is to be read as it is. */
static PyObject *shared_spec(const char *text, const char *end) {
    if (end - text > SPEC_BYTES_MAX - 1 || text == end) {
        Py_RETURN_NONE;
    }
    const char *cut = last_member(text, end, WORKLOAD, WORKLOAD_SIZE), *behind;
    if (cut == NULL) {
        /* Nothing is cut out, just before the last bracket. */
        cut = behind = end - 1;
    } else if (cut[WORKLOAD_SIZE] != '{' ||
               (behind = object_end(cut + WORKLOAD_SIZE, end)) == NULL || behind == end) {
        Py_RETURN_NONE;
    }
    char parts[SPEC_BYTES_MAX];
    Py_ssize_t size = cut - text;
    memcpy(parts, text, size);
    parts[size] = '\n';
    memcpy(parts + size + 1, behind, end - behind);
    PyObject *spec = known_spec(parts, size + 1 + (end - behind), size);
    if (spec == NULL || spec == Py_None || behind == cut) {
        return spec;
    }
    PyObject *whole = with_workload(spec, cut + WORKLOAD_SIZE, behind - cut - WORKLOAD_SIZE);
    Py_DECREF(spec);
    return whole;
}

static PyObject *namespace_named(const char *text, Py_ssize_t size) {
    if (size > NAMESPACE_BYTES_MAX) {
        return PyUnicode_FromStringAndSize(text, size);
    }
    uint64_t hash = hash_of(text, size);
    Text *place = &namespaces_known[hash >> (64 - NAMESPACES_BITS)];
    if (is_text(place, hash, submitted, text, size)) {
        return Py_NewRef(place->value);
    }
    PyObject *name = PyUnicode_FromStringAndSize(text, size);
    if (name != NULL && keep_text(place, hash, submitted, text, size, name) < 0) {
        Py_CLEAR(name);
    }
    return name;
}

/* The submission in a payload; None if it is to be read as it is. */
static PyObject *shared_submission(const char *text, const char *end) {
    Rest rest = {text, end};
    const char *job, *namespace, *name;
    Py_ssize_t job_size, namespace_size, name_size;
    if (!SKIP(&rest, "{\"job\":\"") || (job = rest.at, job_size = plain_string(&rest)) < 0 ||
        !SKIP(&rest, ",\"namespace\":\"") ||
        (namespace = rest.at, namespace_size = plain_string(&rest)) < 0 ||
        !SKIP(&rest, ",\"name\":\"") || (name = rest.at, name_size = plain_string(&rest)) < 0 ||
        !SKIP(&rest, ",\"spec\":") || rest.end - rest.at < 2 || rest.end[-1] != '}') {
        Py_RETURN_NONE;
    }
    PyObject *spec = shared_spec(rest.at, rest.end - 1);
    if (spec == NULL || spec == Py_None) {
        return spec;
    }
    PyObject *fields[] = {PyUnicode_FromStringAndSize(job, job_size),
                          namespace_named(namespace, namespace_size),
                          PyUnicode_FromStringAndSize(name, name_size), spec};
    PyObject *event = NULL;
    if (fields[0] != NULL && fields[1] != NULL && fields[2] != NULL) {
        event = PyObject_Vectorcall(submitted, fields, 4, NULL);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(fields[i]);
    }
    return event;
}

static PyObject *read_submitted(PyObject *module, PyObject *payload) {
    if (!PyBytes_Check(payload)) {
        PyErr_SetString(PyExc_TypeError, "a payload is bytes");
        return NULL;
    }
    const char *text = PyBytes_AS_STRING(payload);
    PyObject *event = shared_submission(text, text + PyBytes_GET_SIZE(payload));
    if (event != Py_None) {
        return event;
    }
    Py_DECREF(event);
    return PyObject_CallOneArg(read_whole, payload);
}

static PyMethodDef METHODS[] = {
    {"read_submitted", read_submitted, METH_O, "What the codec would read."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "controlplane.submissions",
                                    .m_size = -1, .m_methods = METHODS};

/* Something of a module, or NULL. */
static PyObject *of_module(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported == NULL ? NULL : PyObject_GetAttrString(imported, name);
    Py_XDECREF(imported);
    return found;
}

/* What reads values of a class, or NULL. */
static PyObject *reader_of(PyObject *class) {
    PyObject *make = class == NULL ? NULL : of_module("msgspec.json", "Decoder");
    PyObject *decoder = make == NULL ? NULL : PyObject_CallOneArg(make, class);
    PyObject *read = decoder == NULL ? NULL : PyObject_GetAttrString(decoder, "decode");
    Py_XDECREF(make);
    Py_XDECREF(decoder);
    return read;
}

PyMODINIT_FUNC PyInit_submissions(void) {
    PyObject *spec = of_module("controlplane.model", "JobSpec");
    PyObject *workload = spec == NULL ? NULL : of_module("controlplane.model", "Workload");
    submitted = workload == NULL ? NULL : of_module("controlplane.events", "JobSubmitted");
    read_whole = reader_of(submitted);
    read_spec = read_whole == NULL ? NULL : reader_of(spec);
    read_workload = read_spec == NULL ? NULL : reader_of(workload);
    replace = read_workload == NULL ? NULL : of_module("msgspec.structs", "replace");
    workload_field = replace == NULL ? NULL : Py_BuildValue("(s)", "workload");
    Py_XDECREF(spec);
    Py_XDECREF(workload);
    static const char plainest[] = "{\"roles\":[],\"done_when\":{\"role\":\"\"}}";
    spec = workload_field == NULL ? NULL : read_text(read_spec, plainest, sizeof plainest - 1);
    no_workload = spec == NULL ? NULL : PyObject_GetAttrString(spec, "workload");
    Py_XDECREF(spec);
    return no_workload == NULL ? NULL : PyModule_Create(&MODULE);
}
