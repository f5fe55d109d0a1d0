/* The text that a row's hash is taken over, and the hash. */
#include <Python.h>

#include <openssl/evp.h>
#include <string.h>

#define HASH_BYTES 32
/* Digits of the largest position. */
#define DIGITS_MAX 19

static PyObject *encode; /* msgspec's, to JSON */
static EVP_MD *sha256;

/* To be called once, before all else; -1 for an error. */
static int begin_hashing(void) {
    PyObject *json = PyImport_ImportModule("msgspec.json");
    PyObject *encoder = json == NULL ? NULL : PyObject_CallMethod(json, "Encoder", NULL);
    encode = encoder == NULL ? NULL : PyObject_GetAttrString(encoder, "encode");
    Py_XDECREF(json);
    Py_XDECREF(encoder);
    if (encode == NULL) {
        return -1;
    }
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (sha256 == NULL) {
        PyErr_SetString(PyExc_ImportError, "OpenSSL has no SHA-256 here");
        return -1;
    }
    return 0;
}

/* Whether JSON writes a text as it is, but for the ends of its lines. */
static int is_plain(const unsigned char *text, Py_ssize_t size) {
    unsigned char strange = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        unsigned char found = text[i];
        strange |= (found < ' ' && found != '\n') | (found > '~') | (found == '"') | (found == '\\');
    }
    return !strange;
}

/* A text that grows. */
typedef struct {
    char *text;
    size_t size;
    size_t room;
} Buffer;

static int has_room(Buffer *buffer, size_t more) {
    if (buffer->room - buffer->size >= more) {
        return 1;
    }
    size_t room = 2 * (buffer->size + more);
    char *text = PyMem_Realloc(buffer->text, room);
    if (text == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    buffer->text = text;
    buffer->room = room;
    return 1;
}

/* Most parts are short, and a call takes longer than to copy them. */
static inline void put(Buffer *buffer, const char *part, size_t size) {
    char *to = buffer->text + buffer->size;
    buffer->size += size;
    if (size > 16) {
        memcpy(to, part, size);
    } else if (size >= 8) {
        memcpy(to, part, 8);
        memcpy(to + size - 8, part + size - 8, 8);
    } else {
        while (size--) {
            *to++ = *part++;
        }
    }
}

static void put_number(Buffer *buffer, long long number) {
    char digits[DIGITS_MAX], *first = digits + DIGITS_MAX;
    do {
        *--first = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put(buffer, first, digits + DIGITS_MAX - first);
}

static int hash(EVP_MD_CTX *context, const Buffer *buffer, unsigned char *digest) {
    unsigned int size = 0;
    if (EVP_DigestInit_ex2(context, sha256, NULL) &&
        EVP_DigestUpdate(context, buffer->text, buffer->size) &&
        EVP_DigestFinal_ex(context, digest, &size) && size == HASH_BYTES) {
        return 1;
    }
    PyErr_SetString(PyExc_RuntimeError, "OpenSSL does not hash");
    return 0;
}
