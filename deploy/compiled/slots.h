/* What the compiler for typed Python cannot know of objects that it did not lay out itself.
 *
 * mypyc reads a field of a foreign object by its name, every time. The interpreter does better: it
 * remembers at each place in the code where the field was found last, and looks again only if the
 * type is another one. The same is done here, for what the core asks most:
 *
 *   fields of values     a slot at a fixed offset of the type that was met last
 *   named tuples         made in place; by itself a class calls a function of its own for each
 *   members and globals  known as long as the version of the class, module or dictionary is the same
 *   isinstance           a walk over base classes, unless the metaclass has a say of its own
 *
 * Included by every generated file behind mypyc's own run-time library.
 */
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030D0000
#define MUSTER_DICT_VERSION(dict) (((PyDictObject *)(dict))->ma_version_tag)
#else
/* Later dictionaries tell no version: 0 is never taken for a known one. */
#define MUSTER_DICT_VERSION(dict) ((uint64_t)0)
#endif

/* One place in the code that reads an attribute. */
typedef struct {
    PyTypeObject *type; /* of values, with the slot's offset */
    Py_ssize_t offset;
    PyTypeObject *other; /* the same of the type that was met before: two kinds often take turns */
    Py_ssize_t other_offset;
    PyObject *owner; /* a module or a class, and what it had while it had this version */
    uint64_t version;
    PyObject *value;
} MusterPlace;

/* One place in the code that looks up a constant key. Versions are unique among dictionaries. */
typedef struct {
    uint64_t version;
    PyObject *value;
} MusterEntry;

static uint64_t muster_version_of(PyObject *owner) {
    if (Py_IS_TYPE(owner, &PyModule_Type)) {
        return MUSTER_DICT_VERSION(PyModule_GetDict(owner));
    }
    PyTypeObject *type = (PyTypeObject *)owner;
#if PY_VERSION_HEX < 0x030C0000
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return 0;
    }
#endif
    return type->tp_version_tag;
}

/* Whether reading it again would give the same, as long as its owner has this version. */
static int muster_stays(PyObject *owner, PyObject *name, PyObject *value) {
    if (Py_IS_TYPE(owner, &PyModule_Type)) {
        return PyDict_GetItemWithError(PyModule_GetDict(owner), name) == value;
    }
    /* Of a class only its own instances: the members of an enumeration. */
    return Py_TYPE(value) == (PyTypeObject *)owner;
}

static PyObject *muster_read_of_owner(PyObject *owner, PyObject *name, MusterPlace *place) {
    uint64_t version = muster_version_of(owner);
    if (place->owner == owner && version != 0 && place->version == version) {
        return Py_NewRef(place->value);
    }
    PyObject *value = PyObject_GetAttr(owner, name);
    version = muster_version_of(owner);
    if (value != NULL && version != 0 && Py_REFCNT(value) > 1 && muster_stays(owner, name, value)) {
        place->owner = owner;
        place->version = version;
        place->value = value;
    }
    return value;
}

/* The function that makes a class's named tuples; NULL if they are none, or of a subclass. */
static PyObject *muster_maker(PyTypeObject *type) {
    if (type->tp_base != &PyTuple_Type) {
        return NULL;
    }
    PyObject *maker = PyObject_GetAttrString((PyObject *)type, "__new__");
    PyObject *module = maker != NULL && PyFunction_Check(maker) ? PyFunction_GetModule(maker) : NULL;
    /* That is what the standard library calls it, and nobody else. */
    PyObject *prefix = PyUnicode_FromString("namedtuple_");
    if (module == NULL || prefix == NULL || !PyUnicode_Check(module) ||
        PyUnicode_Tailmatch(module, prefix, 0, PY_SSIZE_T_MAX, -1) != 1) {
        Py_CLEAR(maker);
    }
    Py_XDECREF(prefix);
    PyErr_Clear();
    return maker;
}

/* The names of a named tuple's fields, or NULL. */
static PyObject *muster_fields(PyTypeObject *type) {
    PyObject *maker = muster_maker(type);
    PyObject *fields = maker == NULL ? NULL : PyDict_GetItemString(type->tp_dict, "_fields");
    Py_XDECREF(maker);
    return fields != NULL && PyTuple_CheckExact(fields) ? fields : NULL;
}

/* Where all objects of this type have this field, or 0. */
static Py_ssize_t muster_offset(PyTypeObject *type, PyObject *name) {
    PyObject *found = _PyType_Lookup(type, name);
    if (found == NULL) {
        return 0;
    }
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }
    if (strcmp(Py_TYPE(found)->tp_name, "_collections._tuplegetter") == 0) {
        PyObject *fields = muster_fields(type);
        Py_ssize_t index = fields == NULL ? -1 : PySequence_Index(fields, name);
        if (index >= 0) {
            return offsetof(PyTupleObject, ob_item) + index * sizeof(PyObject *);
        }
        PyErr_Clear();
    }
    return 0;
}

static PyObject *muster_read_first(PyObject *object, PyObject *name, MusterPlace *place) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == place->other) {
        PyObject *value = *(PyObject **)((char *)object + place->other_offset);
        if (value != NULL) {
            return Py_NewRef(value);
        }
    }
    if (type == &PyModule_Type || PyType_Check(object)) {
        return muster_read_of_owner(object, name, place);
    }
    Py_ssize_t offset = muster_offset(type, name);
    if (offset > 0) {
        /* A type that is remembered stays, so that no other one comes to lie in its place. */
        Py_XDECREF(place->other);
        place->other = place->type;
        place->other_offset = place->offset;
        place->offset = offset;
        place->type = (PyTypeObject *)Py_NewRef(type);
        PyObject *value = *(PyObject **)((char *)object + offset);
        if (value != NULL) {
            return Py_NewRef(value);
        }
    }
    return PyObject_GetAttr(object, name);
}

static inline PyObject *muster_read(PyObject *object, PyObject *name, MusterPlace *place) {
    if (__builtin_expect(Py_TYPE(object) == place->type, 1)) {
        PyObject *value = *(PyObject **)((char *)object + place->offset);
        if (__builtin_expect(value != NULL, 1)) {
            return Py_NewRef(value);
        }
    }
    return muster_read_first(object, name, place);
}

static PyObject *muster_find_first(PyObject *dict, PyObject *key, MusterEntry *entry) {
    PyObject *value = CPyDict_GetItem(dict, key);
    if (value != NULL && PyDict_CheckExact(dict)) {
        entry->version = MUSTER_DICT_VERSION(dict);
        entry->value = value;
    }
    return value;
}

static inline PyObject *muster_find(PyObject *dict, PyObject *key, MusterEntry *entry) {
    if (__builtin_expect(PyDict_CheckExact(dict) && entry->version != 0 &&
                             MUSTER_DICT_VERSION(dict) == entry->version, 1)) {
        return Py_NewRef(entry->value);
    }
    return muster_find_first(dict, key, entry);
}

static int muster_isinstance(PyObject *object, PyObject *class) {
    static PyObject *instancecheck;
    static PyTypeObject *plain; /* a metaclass that has no say of its own */
    if (Py_IS_TYPE(object, (PyTypeObject *)class)) {
        return 1;
    }
    if (!PyType_Check(class)) {
        return PyObject_IsInstance(object, class);
    }
    if (Py_TYPE(class) != plain) {
        if (instancecheck == NULL) {
            instancecheck = PyUnicode_InternFromString("__instancecheck__");
        }
        PyObject *said = _PyType_Lookup(Py_TYPE(class), instancecheck);
        if (said != _PyType_Lookup(&PyType_Type, instancecheck)) {
            return PyObject_IsInstance(object, class);
        }
        plain = Py_TYPE(class);
    }
    return PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)class);
}

/* One place in the code that calls something. */
typedef struct {
    PyTypeObject *type; /* a named tuple's class that was called here */
    Py_ssize_t size;
    PyObject *defaults; /* of its last fields, or NULL */
    int others; /* how often something else was: such a place is left alone */
} MusterCall;

static void muster_learn_to_make(PyTypeObject *type, MusterCall *place) {
    PyObject *fields = muster_fields(type);
    place->others++;
    if (fields == NULL) {
        return;
    }
    PyObject *maker = muster_maker(type);
    Py_XSETREF(place->defaults, Py_XNewRef(PyFunction_GetDefaults(maker)));
    Py_DECREF(maker);
    Py_XSETREF(place->type, (PyTypeObject *)Py_NewRef(type));
    place->size = PyTuple_GET_SIZE(fields);
}

static PyObject *muster_make_tuple(MusterCall *place, PyObject *const *values, Py_ssize_t count) {
    PyTypeObject *type = place->type;
    Py_ssize_t given = place->defaults == NULL ? 0 : PyTuple_GET_SIZE(place->defaults);
    Py_ssize_t first = place->size - given; /* that need not be told */
    if (count > place->size || count < first) {
        return NULL;
    }
    PyObject *made = type->tp_alloc(type, place->size);
    if (made == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < place->size; i++) {
        PyObject *value = i < count ? values[i] : PyTuple_GET_ITEM(place->defaults, i - first);
        PyTuple_SET_ITEM(made, i, Py_NewRef(value));
    }
    return made;
}

static PyObject *muster_call_class(PyObject *called, PyObject *const *arguments, size_t count,
                                   PyObject *names, MusterCall *place) {
    if (names == NULL && place->others < 3 &&
        PyType_HasFeature((PyTypeObject *)called, Py_TPFLAGS_TUPLE_SUBCLASS)) {
        if ((PyTypeObject *)called != place->type) {
            muster_learn_to_make((PyTypeObject *)called, place);
        }
        if ((PyTypeObject *)called == place->type) {
            PyObject *made = muster_make_tuple(place, arguments, PyVectorcall_NARGS(count));
            if (made != NULL) {
                return made;
            }
        }
    }
    return PyObject_Vectorcall(called, arguments, count, names);
}

static inline PyObject *muster_call(PyObject *called, PyObject *const *arguments, size_t count,
                                    PyObject *names, MusterCall *place) {
    if (Py_IS_TYPE(called, &PyType_Type)) {
        return muster_call_class(called, arguments, count, names, place);
    }
    return PyObject_Vectorcall(called, arguments, count, names);
}

/* In generated code these stand where the name or the key is a constant; see `build.py`. */
#define MusterObject_GetAttr(object, name)     \
    ({                                         \
        static MusterPlace place;              \
        muster_read((object), (name), &place); \
    })
#define MusterDict_GetItem(dict, key)       \
    ({                                      \
        static MusterEntry entry;           \
        muster_find((dict), (key), &entry); \
    })
#define MusterObject_Vectorcall(called, arguments, count, names)          \
    ({                                                                    \
        static MusterCall place;                                          \
        muster_call((called), (arguments), (count), (names), &place);     \
    })
#define PyObject_IsInstance muster_isinstance
