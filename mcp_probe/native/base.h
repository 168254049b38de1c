/* What every part of the accelerator stands on. */
#define _GNU_SOURCE 1
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <frameobject.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#define NARGS(nargsf) PyVectorcall_NARGS(nargsf)

typedef long long ns_t;
#define NO_NS LLONG_MIN /* has not happened: None to Python */

enum { WAKE_LOOP = 0, WAKE_THREAD = 1, WAKE_SOCKET = 2, WAKE_UNKNOWN = 3, WAKE_SPLIT = 4 };
#define RING_NS 500000LL
#define WAITED_NS 200000LL /* a poll this long had nothing to find when it began */
#define WORK_NS 1000000LL
#define GIL_NS 6250000LL /* who waits for the GIL wakes at least as often as that */
#define MAX_MARKS 256
#define BUCKETS 976 /* of an iteration's length, up to 2^63 ns */

static inline ns_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (ns_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* How often the calling thread gave its CPU away, and how often others took it; 0 where the system
 * does not count that (twin: capture/context_switches.py). */
typedef struct {
    long sleeps, taken;
} Switches;

static inline Switches switches_so_far(void)
{
#ifdef RUSAGE_THREAD
    struct rusage used;
    if (getrusage(RUSAGE_THREAD, &used) == 0)
        return (Switches){used.ru_nvcsw, used.ru_nivcsw};
#endif
    return (Switches){0, 0};
}

static inline void keep(PyObject **slot, PyObject *value)
{
    PyObject *before = *slot;
    *slot = Py_NewRef(value);
    Py_XDECREF(before);
}

static inline int is_set(PyObject *slot)
{
    return slot != NULL && slot != Py_None;
}

static inline PyObject *none_unless(int failed)
{
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static inline PyObject *ns_or_none(ns_t value)
{
    if (value == NO_NS)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

/* What a weak reference refers to: a new reference, or NULL. */
static inline PyObject *referent_of(PyObject *weak)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    (void)PyWeakref_GetRef(weak, &found);
    return found;
#else
    PyObject *found = PyWeakref_GetObject(weak);
    return found == Py_None ? NULL : Py_XNewRef(found);
#endif
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

/* The collector's side of a type, from the list of its fields that hold objects: `#define
 * X_OBJECTS(EACH) EACH(a) EACH(b)`. FREE(self) runs before these are dropped: weak references,
 * blocks, descriptors. */
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
        type->tp_free(self); \
        Py_DECREF(type); \
    }

/* The fault of ours that is set, taken: a new reference, with its traceback; NULL where it could
 * not even be made. */
static inline PyObject *caught(void)
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
