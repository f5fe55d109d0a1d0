/* Texts that were read before, and what was read of them.
 *
 * A text has one place in a table, so a table never grows. Whoever comes to its place for the second
 * time in a row is kept there, and sends away who was. So what is said once leaves only a trace, and what
 * is said again and again is soon there.
 */
#include <Python.h>

#include <string.h>

typedef struct {
    uint64_t trace; /* the hash of who came last and is not here */
    uint64_t hash;
    PyObject *reader; /* two readers may make something else of the same text */
    PyObject *text;   /* bytes */
    PyObject *value;
} Text;

/* Eight bytes at a time. Whoever finds texts that meet at one place makes them be read more often. */
static inline uint64_t hash_of(const char *text, size_t size) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ size, word = 0;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, size);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93u;
}

static inline int is_text(const Text *place, uint64_t hash, const PyObject *reader,
                          const char *text, Py_ssize_t size) {
    return place->text != NULL && place->hash == hash && place->reader == reader &&
           PyBytes_GET_SIZE(place->text) == size &&
           memcmp(PyBytes_AS_STRING(place->text), text, size) == 0;
}

/* Whether somebody who is not there has been here just before; if not, that is so from now on. */
static inline int came_again(Text *place, uint64_t hash) {
    int again = place->trace == hash;
    place->trace = hash;
    return again;
}

static void drop_text(Text *place) {
    Text dropped = *place;
    *place = (Text){0, 0, NULL, NULL, NULL};
    Py_XDECREF(dropped.reader);
    Py_XDECREF(dropped.text);
    Py_XDECREF(dropped.value);
}

/* 0, or -1 for an error. */
static int keep_text(Text *place, uint64_t hash, PyObject *reader, const char *text,
                     Py_ssize_t size, PyObject *value) {
    PyObject *kept = PyBytes_FromStringAndSize(text, size);
    if (kept == NULL) {
        return -1;
    }
    drop_text(place);
    *place = (Text){0, hash, Py_NewRef(reader), kept, Py_NewRef(value)};
    return 0;
}
