/* What every part of the accelerator stands on. */
#define _GNU_SOURCE 1
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <stdio.h>
#include <structmember.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif

/* Exported by every CPython 3.10-3.13, outside its limited API. */
typedef PyObject *(*vectorcall_t)(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
extern PyObject *PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
extern PyObject *PyObject_VectorcallDict(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keywords);
extern PyObject *PyObject_VectorcallMethod(PyObject *name, PyObject *const *args, size_t nargsf, PyObject *kwnames);
extern PyObject *PyMethod_New(PyObject *, PyObject *);
extern PyTypeObject PyMethod_Type;
extern PyObject *PyMethod_Function(PyObject *);
extern PyObject *PyContext_CopyCurrent(void);
extern int PyContext_Enter(PyObject *);
extern int PyContext_Exit(PyObject *);
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **);
extern PyTypeObject PyContext_Type;
extern PyObject *PyContextVar_Set(PyObject *, PyObject *);
extern int PyContextVar_Reset(PyObject *, PyObject *);
extern PyTypeObject PyCoro_Type;
#define HAVE_VECTORCALL (1UL << 11)
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif

/* Headers from 3.12 on hand these out without a reference, as they are immortal there; before, they are not. */
#undef Py_RETURN_NONE
#undef Py_RETURN_TRUE
#undef Py_RETURN_FALSE
#define Py_RETURN_NONE return Py_NewRef(Py_None)
#define Py_RETURN_TRUE return Py_NewRef(Py_True)
#define Py_RETURN_FALSE return Py_NewRef(Py_False)

#define NARGS(nargsf) ((Py_ssize_t)((nargsf) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))

typedef long long ns_t;

enum { WAKE_LOOP = 0, WAKE_THREAD = 1, WAKE_SOCKET = 2, WAKE_UNKNOWN = 3, WAKE_SPLIT = 4 };
#define RING_NS 500000LL
#define LATE_NS 1000000LL
#define MAX_MARKS 256
#define BUCKETS 976 /* of an iteration's length, up to 2^63 ns */

static inline ns_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (ns_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

static PyObject *str_closed, *str_debug, *str_ready, *str_self, *str_done, *str_keep, *str_settle, *str_charge,
    *str_write_to_self, *str_run, *str_broken, *str_writing, *str_flushed, *str__context, *str_callback, *str_args, *str_get,
    *str_message, *str_params, *str_name, *str_method, *str_id, *str_error, *str_result, *str_is_error, *str_forget,
    *str_finish, *str_consumed, *str_waiting, *str_arrived_by, *str_answered, *str_asking, *str_context, *empty_tuple;
static PyTypeObject *request_type, *steps_type, *handle_type;

static void keep(PyObject **slot, PyObject *value)
{
    PyObject *before = *slot;
    *slot = Py_NewRef(value);
    Py_XDECREF(before);
}

static int is_set(PyObject *slot)
{
    return slot != NULL && slot != Py_None;
}

static PyObject *none_unless(int failed)
{
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* As PyObject_CallFunctionObjArgs and PyObject_CallMethodObjArgs, which count their arguments and copy them. */
static inline PyObject *call_with_one(PyObject *callable, PyObject *arg)
{
    return PyObject_VectorcallDict(callable, &arg, 1, NULL);
}

static inline PyObject *call_with_two(PyObject *callable, PyObject *first, PyObject *second)
{
    PyObject *args[] = {first, second};
    return PyObject_VectorcallDict(callable, args, 2, NULL);
}

static inline PyObject *call_method(PyObject *self, PyObject *name)
{
    return PyObject_VectorcallMethod(name, &self, 1, NULL);
}

static inline PyObject *call_method_with(PyObject *self, PyObject *name, PyObject *arg)
{
    PyObject *args[] = {self, arg};
    return PyObject_VectorcallMethod(name, args, 2, NULL);
}

static int call_one(PyObject *target, PyObject *name, PyObject *arg)
{
    PyObject *done = call_method_with(target, name, arg);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* args[from:nargs] as a tuple: a new reference. */
static PyObject *arguments_from(PyObject *const *args, Py_ssize_t from, Py_ssize_t nargs)
{
    PyObject *rest = nargs == from ? Py_NewRef(empty_tuple) : PyTuple_New(nargs - from);
    for (Py_ssize_t i = from; rest != NULL && i < nargs; i++)
        PyTuple_SetItem(rest, i - from, Py_NewRef(args[i]));
    return rest;
}

/* The exception that is set, taken: with its traceback, a new reference; NULL where it could not even be made. */
static PyObject *caught(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (error != NULL && traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

/* What stands for `inner`: an attribute of its own, else one of that. */
static PyObject *attribute_of(PyObject *self, PyObject *inner, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(inner, name);
}

static int truth_of(PyObject *owner, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    int truth = value == NULL ? -1 : value == Py_False ? 0 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return truth;
}

typedef struct {
    PyObject **slot;
    const char *text;
} name_t;

static int intern_names(const name_t *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((*names[i].slot = PyUnicode_InternFromString(names[i].text)) == NULL)
            return -1;
    return 0;
}
#define INTERN(names) intern_names(names, sizeof(names) / sizeof((names)[0]))

static PyObject *pass_on(PyObject *original, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional = arguments_from(args, 0, nargs), *keywords = NULL, *result = NULL;
    if (positional == NULL)
        return NULL;
    if (kwnames != NULL && PyTuple_Size(kwnames)) {
        keywords = PyDict_New();
        for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_Size(kwnames); i++)
            if (PyDict_SetItem(keywords, PyTuple_GetItem(kwnames, i), args[nargs + i]) < 0)
                Py_CLEAR(keywords);
        if (keywords == NULL) {
            Py_DECREF(positional);
            return NULL;
        }
    }
    result = PyObject_Call(original, positional, keywords);
    Py_DECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

/* Room for one row more, with twice as many as there were. -1 with an exception, and nothing changed. */
static int make_room(void **rows, int used, int *room, size_t size)
{
    if (used < *room)
        return 0;
    int more = *room ? 2 * *room : 16;
    void *moved = PyMem_Realloc(*rows, more * size);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *rows = moved;
    *room = more;
    return 0;
}

/* The collector's side of a type, from the list of its fields that hold objects: `#define X_OBJECTS(EACH) EACH(a) EACH(b)`.
 * FREE(self) runs before these are dropped: weak references, blocks, descriptors. */
#define VISIT_FIELD(field) Py_VISIT((PyObject *)self->field);
#define CLEAR_FIELD(field) Py_CLEAR(self->field);
#define NOTHING_TO_FREE(self)
#define TRAVERSE_AND_CLEAR(Type, prefix, OBJECTS) \
    static int prefix##_traverse(Type *self, visitproc visit, void *arg) \
    { \
        Py_VISIT(Py_TYPE(self)); \
        OBJECTS(VISIT_FIELD) \
        return 0; \
    } \
\
    static int prefix##_clear(Type *self) \
    { \
        OBJECTS(CLEAR_FIELD) \
        return 0; \
    }

#define DEALLOCATE(Type, prefix, FREE) \
    static void prefix##_dealloc(Type *self) \
    { \
        PyTypeObject *type = Py_TYPE(self); \
        PyObject_GC_UnTrack(self); \
        FREE(self); \
        prefix##_clear(self); \
        PyObject_GC_Del(self); \
        Py_DECREF(type); \
    }
